/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule_access.c: a skip list of intervals.
 *
 * The nodes cut [0, infinity) in intervals of elements that have the same last writer and the same
 * readers; a node reaches from its `begin` to the next node's. A write joins the intervals that it
 * covers, so the list stays as long as the buffer is fragmented, not as long as the schedule, and
 * each access costs the logarithm of that plus the intervals it touches. Nodes and readers live in
 * two pools and are recycled.
 *
 * Invariants:
 *  1. node 0 is the head: begin 0, on every level, never removed.
 *  2. `begin` grows strictly along each level; level k is a part of level k-1.
 *  3. a reader in a node's list has read all of the node's elements since the node's writer.
 */
#include "comm/schedule_access.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define NONE   UINT32_MAX
#define LEVELS 12 /* enough for 4^12 intervals */

struct interval {
    uint64_t begin;
    uint32_t writer;       /* NONE: nobody */
    uint32_t first_reader; /* in readers; NONE: nobody */
    uint32_t level;        /* it is on levels 0 to level-1 */
    uint32_t next[LEVELS]; /* NONE: the last one; next[0] links the free ones too */
};

struct reader {
    uint32_t step, next;
};

struct access_map {
    struct interval *intervals;
    uint32_t interval_count, interval_capacity, free_interval;
    struct reader *readers;
    uint32_t reader_count, reader_capacity, free_reader;
    uint64_t random; /* draws the levels: fixed seed, so equal shapes cost equal time */
};

/* Doubles an array that is full. */
static enum shoal_status grow(void **array, uint32_t *capacity, size_t item_bytes, const char *what)
{
    uint32_t larger = *capacity ? *capacity * 2 : 64;
    if (*capacity > UINT32_MAX / 4)
        return base_error(SHOAL_ERR_LIMIT, "a schedule may not have more than 2^30 %s", what);
    void *fresh;
    TRY(base_alloc(item_bytes * larger, what, &fresh));
    if (*capacity)
        memcpy(fresh, *array, item_bytes * *capacity);
    base_free(*array);
    *array = fresh;
    *capacity = larger;
    return SHOAL_OK;
}

void comm_access_list_release(struct access_list *list)
{
    base_free(list->steps);
    memset(list, 0, sizeof(*list));
}

enum shoal_status comm_access_list_add(struct access_list *list, uint32_t step)
{
    if (list->count == list->capacity)
        TRY(grow((void **)&list->steps, &list->capacity, sizeof(uint32_t), "dependencies"));
    list->steps[list->count++] = step;
    return SHOAL_OK;
}

static enum shoal_status take_interval(struct access_map *map, uint32_t *out)
{
    if (map->free_interval != NONE) {
        *out = map->free_interval;
        map->free_interval = map->intervals[*out].next[0];
        return SHOAL_OK;
    }
    if (map->interval_count == map->interval_capacity)
        TRY(grow((void **)&map->intervals, &map->interval_capacity, sizeof(struct interval),
                 "intervals"));
    *out = map->interval_count++;
    return SHOAL_OK;
}

static enum shoal_status push_reader(struct access_map *map, uint32_t interval, uint32_t step)
{
    uint32_t taken = map->free_reader;
    if (taken != NONE) {
        map->free_reader = map->readers[taken].next;
    } else {
        if (map->reader_count == map->reader_capacity)
            TRY(grow((void **)&map->readers, &map->reader_capacity, sizeof(struct reader),
                     "readers"));
        taken = map->reader_count++;
    }
    map->readers[taken].step = step;
    map->readers[taken].next = map->intervals[interval].first_reader;
    map->intervals[interval].first_reader = taken;
    return SHOAL_OK;
}

static void drop_readers(struct access_map *map, struct interval *interval)
{
    while (interval->first_reader != NONE) {
        uint32_t reader = interval->first_reader;
        interval->first_reader = map->readers[reader].next;
        map->readers[reader].next = map->free_reader;
        map->free_reader = reader;
    }
}

enum shoal_status comm_access_map_create(struct access_map **out)
{
    struct access_map *map;
    TRY(BASE_NEW(&map, "a schedule's access map"));
    map->free_interval = map->free_reader = NONE;
    map->random = UINT64_C(0x9e3779b97f4a7c15);
    uint32_t head;
    enum shoal_status status = take_interval(map, &head);
    if (status != SHOAL_OK) {
        comm_access_map_free(map);
        return status;
    }
    struct interval *first = &map->intervals[head];
    first->writer = first->first_reader = NONE;
    first->level = LEVELS;
    for (int level = 0; level < LEVELS; level++)
        first->next[level] = NONE;
    *out = map;
    return SHOAL_OK;
}

void comm_access_map_free(struct access_map *map)
{
    if (!map)
        return;
    base_free(map->intervals);
    base_free(map->readers);
    base_free(map);
}

/* A level of k or more with probability 4^-(k-1). */
static uint32_t draw_level(struct access_map *map)
{
    map->random ^= map->random << 13;
    map->random ^= map->random >> 7;
    map->random ^= map->random << 17;
    uint32_t level = 1;
    for (uint64_t bits = map->random; level < LEVELS && (bits & 3) == 0; bits >>= 2)
        level++;
    return level;
}

/* On each level the last interval that begins at or before `at`. */
static void find(const struct access_map *map, uint64_t at, uint32_t last[LEVELS])
{
    uint32_t here = 0;
    for (int level = LEVELS - 1; level >= 0; level--) {
        uint32_t next = map->intervals[here].next[level];
        while (next != NONE && map->intervals[next].begin <= at) {
            here = next;
            next = map->intervals[here].next[level];
        }
        last[level] = here;
    }
}

/* Makes an interval begin at `at`. */
static enum shoal_status split(struct access_map *map, uint64_t at, uint32_t *out)
{
    uint32_t last[LEVELS];
    find(map, at, last);
    if (map->intervals[last[0]].begin == at) {
        *out = last[0];
        return SHOAL_OK;
    }
    uint32_t fresh;
    TRY(take_interval(map, &fresh));
    struct interval *right = &map->intervals[fresh];
    right->begin = at;
    right->writer = map->intervals[last[0]].writer;
    right->first_reader = NONE;
    right->level = draw_level(map);
    for (uint32_t level = 0; level < right->level; level++) {
        struct interval *left = &map->intervals[last[level]];
        right->next[level] = left->next[level];
        left->next[level] = fresh;
    }
    for (uint32_t reader = map->intervals[last[0]].first_reader; reader != NONE;
         reader = map->readers[reader].next)
        TRY(push_reader(map, fresh, map->readers[reader].step));
    *out = fresh;
    return SHOAL_OK;
}

enum shoal_status comm_access_map_read(struct access_map *map, uint64_t offset, uint64_t count,
                                       uint32_t step, struct access_list *before)
{
    uint32_t here, end;
    TRY(split(map, offset, &here));
    TRY(split(map, offset + count, &end));
    for (; here != end; here = map->intervals[here].next[0]) {
        const struct interval *interval = &map->intervals[here];
        if (interval->writer != NONE)
            TRY(comm_access_list_add(before, interval->writer));
        uint32_t newest = interval->first_reader;
        if (newest == NONE || map->readers[newest].step != step)
            TRY(push_reader(map, here, step));
    }
    return SHOAL_OK;
}

/* Takes the intervals that begin after `from` and before `end` out of the list. */
static void join(struct access_map *map, uint32_t from, uint64_t end)
{
    uint32_t last[LEVELS];
    find(map, map->intervals[from].begin, last);
    for (int level = LEVELS - 1; level >= 0; level--) {
        uint32_t next = map->intervals[last[level]].next[level];
        while (next != NONE && map->intervals[next].begin < end) {
            uint32_t gone = next;
            next = map->intervals[gone].next[level];
            if (level == 0) {
                map->intervals[gone].next[0] = map->free_interval;
                map->free_interval = gone;
            }
        }
        map->intervals[last[level]].next[level] = next;
    }
}

enum shoal_status comm_access_map_write(struct access_map *map, uint64_t offset, uint64_t count,
                                        uint32_t step, struct access_list *before)
{
    uint32_t begin, end;
    TRY(split(map, offset, &begin));
    TRY(split(map, offset + count, &end));
    for (uint32_t here = begin; here != end; here = map->intervals[here].next[0]) {
        struct interval *interval = &map->intervals[here];
        if (interval->first_reader == NONE && interval->writer != NONE)
            TRY(comm_access_list_add(before, interval->writer));
        for (uint32_t reader = interval->first_reader; reader != NONE;
             reader = map->readers[reader].next)
            if (map->readers[reader].step != step)
                TRY(comm_access_list_add(before, map->readers[reader].step));
        drop_readers(map, interval);
    }
    join(map, begin, offset + count);
    map->intervals[begin].writer = step;
    return SHOAL_OK;
}
