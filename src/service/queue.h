/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h: which of the waiting jobs start now. Pure computation.
 *
 * A job starts when all its instances fit. Jobs are asked in the order of their priorities, then of
 * their age. What a job that doesn't fit would take is kept for it: one behind it starts only
 * beside that, so that small jobs can't keep a large one waiting for ever, and a job that waits for
 * accelerators doesn't hold up those that need none.
 */
#ifndef SHOAL_SERVICE_QUEUE_H
#define SHOAL_SERVICE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a job takes in all, or what a machine has. */
struct service_room {
    int64_t core_thousands, memory_bytes, accelerators;
};

struct service_queued {
    int64_t id, priority; /* younger jobs have larger ids */
    struct service_room need;
    bool starts; /* set by service_queue_admit */
    void *user;
};

/* Whether `need` fits in `room`, of which parts may be negative. */
bool service_room_fits(const struct service_room *room, const struct service_room *need);
void service_room_take(struct service_room *room, const struct service_room *need);

/* Sorts the jobs and says which start; `room` is what is free. */
void service_queue_admit(struct service_queued *jobs, size_t count, struct service_room room);

#endif
