/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door.h: the server's listening socket. It accepts connections, looks at their first bytes without
 * taking them, and hands each to the daemon that speaks its language; CONNECT it answers itself,
 * and hands over what follows. So one port serves HTTP, HTTPS, and clients that take it for their
 * proxy.
 */
#ifndef SHOAL_HTTP_DOOR_H
#define SHOAL_HTTP_DOOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "http/front.h"
#include "shoal.h"

struct door;

/* Whose requests may come without TLS. */
enum door_plain {
    DOOR_PLAIN_ALL,
    DOOR_PLAIN_OWN, /* of this machine: no other one can read them */
    DOOR_PLAIN_NONE
};

struct door_options {
    int listener;        /* borrowed */
    int64_t head_ms;     /* for a connection's first bytes, and for the head of a CONNECT */
    unsigned most;       /* connections at one time; others wait to be accepted */
    const char *address; /* where TLS is, for those who don't speak it; borrowed */
    bool has_tls;
    enum door_plain plain;
    /* Takes a connection, in the door's thread. */
    void (*give)(void *user, bool is_tls, int fd, const struct sockaddr *address, socklen_t bytes);
    /* How many of those that were given are still there. */
    unsigned (*given)(void *user);
    void (*crowded)(void *user); /* there are as many as may be: somebody should go; may be NULL */
    void *user;
};

/* Starts to accept, in a thread of its own. */
enum shoal_status door_open(const struct door_options *options, struct door **out);
/* Accepts no more, and closes those that said nothing yet. Nothing is given after it. NULL is
 * allowed. */
void door_close(struct door *door);

#endif
