/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward.h: the doors of a job's network: ports of its bridge from which connections lead to an
 * address that the maker's process reaches, or to a service, wherever it answers now.
 *
 * The listening sockets come from inside the job's network; connections out are made in the
 * maker's. Bytes are copied both ways in the maker's loop. At most FORWARD_LINKS_MAX connections at
 * a time; more wait in the kernel's queue.
 */
#ifndef SHOAL_JOB_FORWARD_H
#define SHOAL_JOB_FORWARD_H

#include "launch/loop.h"
#include "shoal.h"

#define FORWARD_DOORS_MAX 8
#define FORWARD_LINKS_MAX 256

struct forward_link;

struct forward_door {
    struct forward *all;
    int listen_fd; /* -1: closed */
    const char *to;
};

struct forward { /* zeroed is a start */
    struct forward_door doors[FORWARD_DOORS_MAX];
    int door_count;
    struct forward_link *links[FORWARD_LINKS_MAX];
    int link_count;
};

/* Where a door leads: "127.0.0.1:8080", "[::1]:8080": an address in numbers; or the absolute path
 * of a service's directory, in which its address is looked up for each connection.
 * SHOAL_ERR_ARGUMENT: it is neither. */
enum shoal_status forward_check(const char *to);
/* Takes a listening socket, also when it fails; `to`, as above, is borrowed until the release. The
 * struct may not move after. */
enum shoal_status forward_add(struct forward *forward, int listen_fd, const char *to);
/* Adds what is to be watched in the loop's next turn, in which connections come, move and go. */
enum shoal_status forward_watch(struct forward *forward, struct launch_loop *loop);
void forward_release(struct forward *forward);

#endif
