/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front.h: what a connection's first bytes are: TLS, a CONNECT to a host that the SDKs have built
 * in, or a request. Pure computation; door.c has the sockets.
 */
#ifndef SHOAL_HTTP_FRONT_H
#define SHOAL_HTTP_FRONT_H

#include <stdbool.h>
#include <stddef.h>

#include "shoal.h"

#define FRONT_HEAD_BYTES_MAX 8192 /* of a CONNECT with its headers */
#define FRONT_HOST_BYTES     254

enum front_kind {
    FRONT_UNSURE, /* more bytes will tell */
    FRONT_TLS,
    FRONT_CONNECT,
    FRONT_PLAIN
};

/* What so many first bytes begin. */
enum front_kind front_kind(const char *bytes, size_t count);

struct front_target {
    char host[FRONT_HOST_BYTES];
    int port;
};

/* The head of a CONNECT: its target, and how many bytes it has. SHOAL_IN_PROGRESS: it is not whole;
 * SHOAL_ERR_FORMAT says what is wrong. */
enum shoal_status front_connect_read(const char *bytes, size_t count, struct front_target *out,
                                     size_t *head_bytes);
/* Whether the front stands for this host: a name below amazonaws.com; and the port of https. */
bool front_serves(const struct front_target *target);
bool front_serves_name(const char *name);
/* Whether a text is a host's name in form: labels of letters, digits, '-' and '_'. */
bool front_is_host_name(const char *name);

#endif
