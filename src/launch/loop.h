/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h: one turn of an event loop over poll(2).
 *
 * Interest is stated anew each turn: a descriptor that is not added is not looked at, which is all
 * that back-pressure needs. Unlike epoll, poll takes regular files too (stdin may be one).
 */
#ifndef SHOAL_LAUNCH_LOOP_H
#define SHOAL_LAUNCH_LOOP_H

#include <poll.h>
#include <stdint.h>

#include "shoal.h"

struct launch_watch {
    int fd;
    short events;
    enum shoal_status (*ready)(void *owner, short events);
    void *owner;
};

struct launch_loop { /* zeroed to start */
    struct launch_watch *watches;
    struct pollfd *polled;
    int count, capacity;
};

enum shoal_status launch_loop_add(struct launch_loop *loop, struct launch_watch watch);
/* Waits for one of the added, or the deadline; calls ready() of each that has events; forgets all.
 * Returns the first failure that a ready() returned, after calling the others. */
enum shoal_status launch_loop_turn(struct launch_loop *loop, int64_t deadline_ns);
void launch_loop_release(struct launch_loop *loop);

#endif
