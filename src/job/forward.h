/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward.h: the doors of a job's network: ports of its bridge from which connections lead to an
 * address that the maker's process reaches, such as the service's own.
 *
 * The listening sockets come from inside the job's network; connections out are made in the
 * maker's. Bytes are copied both ways in the maker's loop. At most FORWARD_LINKS_MAX connections at
 * a time; more wait in the kernel's queue.
 */
#ifndef SHOAL_JOB_FORWARD_H
#define SHOAL_JOB_FORWARD_H

#include <sys/socket.h>

#include "launch/loop.h"
#include "shoal.h"

#define FORWARD_DOORS_MAX 8
#define FORWARD_LINKS_MAX 256

struct forward_link;

struct forward_door {
    struct forward *all;
    int listen_fd; /* -1: closed */
    struct sockaddr_storage to;
    socklen_t to_bytes;
};

struct forward { /* zeroed is a start */
    struct forward_door doors[FORWARD_DOORS_MAX];
    int door_count;
    struct forward_link *links[FORWARD_LINKS_MAX];
    int link_count;
};

/* "127.0.0.1:8080", "[::1]:8080": an address in numbers. SHOAL_ERR_ARGUMENT. */
enum shoal_status forward_parse(const char *text, struct sockaddr_storage *address,
                                socklen_t *bytes);
/* Takes a listening socket, also when it fails; `to` as above. The struct may not move after. */
enum shoal_status forward_add(struct forward *forward, int listen_fd, const char *to);
/* Adds what is to be watched in the loop's next turn, in which connections come, move and go. */
enum shoal_status forward_watch(struct forward *forward, struct launch_loop *loop);
void forward_release(struct forward *forward);

#endif
