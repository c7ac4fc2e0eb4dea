/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c: which of the waiting jobs start now. */
#include "service/queue.h"

#include <stdlib.h>

/* What is not needed doesn't matter, however little of it there is. */
static bool part_fits(int64_t room, int64_t need)
{
    return need <= 0 || need <= room;
}

bool service_room_fits(const struct service_room *room, const struct service_room *need)
{
    return part_fits(room->core_thousands, need->core_thousands) &&
           part_fits(room->memory_bytes, need->memory_bytes) &&
           part_fits(room->accelerators, need->accelerators);
}

void service_room_take(struct service_room *room, const struct service_room *need)
{
    room->core_thousands -= need->core_thousands;
    room->memory_bytes -= need->memory_bytes;
    room->accelerators -= need->accelerators;
}

static int compare(const void *left, const void *right)
{
    const struct service_queued *a = left, *b = right;
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    if (a->is_spot != b->is_spot)
        return a->is_spot ? 1 : -1;
    return (a->id > b->id) - (a->id < b->id);
}

void service_room_give(struct service_room *room, const struct service_room *need)
{
    room->core_thousands += need->core_thousands;
    room->memory_bytes += need->memory_bytes;
    room->accelerators += need->accelerators;
}

/* Whether the job has any of what there is too little of. */
static bool helps(const struct service_room *room, const struct service_room *need,
                  const struct service_room *has)
{
    return (!part_fits(room->core_thousands, need->core_thousands) && has->core_thousands > 0) ||
           (!part_fits(room->memory_bytes, need->memory_bytes) && has->memory_bytes > 0) ||
           (!part_fits(room->accelerators, need->accelerators) && has->accelerators > 0);
}

void service_queue_sort(struct service_queued *jobs, size_t count)
{
    qsort(jobs, count, sizeof(*jobs), compare);
}

void service_queue_admit(struct service_queued *jobs, size_t count, struct service_room room)
{
    service_queue_sort(jobs, count);
    for (size_t i = 0; i < count; i++) {
        jobs[i].starts = service_room_fits(&room, &jobs[i].need);
        service_room_take(&room, &jobs[i].need);
    }
}

bool service_queue_interrupt(struct service_queued *running, size_t count, struct service_room room,
                             const struct service_queued *waiting)
{
    service_queue_sort(running, count);
    for (size_t i = 0; i < count; i++)
        running[i].ends = false;
    for (size_t i = count; i-- > 0 && !service_room_fits(&room, &waiting->need);) {
        if (running[i].priority > waiting->priority || !running[i].is_spot ||
            !helps(&room, &waiting->need, &running[i].need))
            continue;
        running[i].ends = true;
        service_room_give(&room, &running[i].need);
    }
    bool fits = service_room_fits(&room, &waiting->need);
    for (size_t i = 0; i < count && !fits; i++)
        running[i].ends = false;
    return fits;
}
