/* SPDX-License-Identifier: Apache-2.0 */
/* events.c: a binary heap. */
#include "sim/events.h"

#include <stdbool.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

enum shoal_status events_push(struct events *events, struct event event)
{
    if (events->count == events->capacity) {
        size_t capacity = events->capacity ? 2 * events->capacity : 1024;
        struct event *entries;
        TRY(BASE_NEW_ARRAY(&entries, capacity, "the simulation's events"));
        if (events->count)
            memcpy(entries, events->entries, sizeof(*entries) * events->count);
        base_free(events->entries);
        events->entries = entries;
        events->capacity = capacity;
    }
    size_t at = events->count++;
    for (; at > 0 && is_before(&event, &events->entries[(at - 1) / 2]); at = (at - 1) / 2)
        events->entries[at] = events->entries[(at - 1) / 2];
    events->entries[at] = event;
    return SHOAL_OK;
}

struct event events_pop(struct events *events)
{
    struct event first = events->entries[0], last = events->entries[--events->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= events->count)
            break;
        if (child + 1 < events->count &&
            is_before(&events->entries[child + 1], &events->entries[child]))
            child++;
        if (!is_before(&events->entries[child], &last))
            break;
        events->entries[at] = events->entries[child];
        at = child;
    }
    if (events->count)
        events->entries[at] = last;
    return first;
}
