/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h: which of the waiting jobs start now. Pure computation.
 *
 * A job starts when all its instances fit. Jobs are asked in the order of their priorities, spot
 * jobs after others, then of their age. What a job that doesn't fit would take is kept for it: one
 * behind it starts only beside that, so that small jobs can't keep a large one waiting for ever,
 * and a job that waits for accelerators doesn't hold up those that need none.
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
    bool is_spot;
    struct service_room need;
    bool starts; /* set by service_queue_admit */
    bool ends;   /* set by service_queue_interrupt */
    void *user;
};

/* Whether `need` fits in `room`, of which parts may be negative. */
bool service_room_fits(const struct service_room *room, const struct service_room *need);
void service_room_take(struct service_room *room, const struct service_room *need);
void service_room_give(struct service_room *room, const struct service_room *need);

/* The order in which they are asked. */
void service_queue_sort(struct service_queued *jobs, size_t count);
/* Sorts the jobs and says which start; `room` is what is free. */
void service_queue_admit(struct service_queued *jobs, size_t count, struct service_room room);

/* Which running spot jobs are interrupted so that a waiting job, which is none, fits: as few as it
 * takes of those that are not more important than it, the youngest first. None, if that is not
 * enough. `room` is what is free; jobs that are on their way to their end count as free. */
bool service_queue_interrupt(struct service_queued *running, size_t count, struct service_room room,
                             const struct service_queued *waiting);

#endif
