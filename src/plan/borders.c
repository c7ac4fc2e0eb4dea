/* SPDX-License-Identifier: Apache-2.0 */
/*
 * borders.c: an even cut often goes through the middle of a block, where four times as much crosses
 * as at its ends. Within the slack that the largest load has there is mostly a better place. Each
 * border moves by at most a quarter of the mean load, so that no part becomes small only because
 * another one must be large.
 */
#include "plan/borders.h"

#include <stdbool.h>

#define REACH 4 /* a border moves by at most one part in so many of the mean load */

struct place {
    int at;
    uint64_t bytes, distance;
};

struct search {
    const struct plan_row *row;
    const uint64_t *entering;
    uint64_t bound, reach; /* of a part's cost; of a border */
    int *borders;
    uint64_t *steps;
};

static bool is_better(const struct place *place, const struct place *other)
{
    return place->bytes < other->bytes ||
           (place->bytes == other->bytes && place->distance < other->distance);
}

/* Whether the border before `part` may be here. */
static bool may_be(const struct search *search, int part, int at)
{
    const int *borders = search->borders;
    return plan_segments_fits(search->row, part - 1, borders[part - 1], at, search->bound) &&
           plan_segments_fits(search->row, part, at, borders[part + 1], search->bound);
}

/* Looks at places in one direction, as far as the border reaches. */
static void look(const struct search *search, int part, int direction, struct place *best)
{
    const int *borders = search->borders;
    const uint64_t *cost_before = search->row->cost_before;
    int now = borders[part], least = borders[part - 1] + 1, most = borders[part + 1] - 1;
    for (int at = now + direction; at >= least && at <= most; at += direction) {
        int low = at < now ? at : now, high = at < now ? now : at;
        struct place place = {at, search->entering[at], cost_before[high] - cost_before[low]};
        ++*search->steps;
        if (place.distance > search->reach)
            return;
        if (is_better(&place, best) && may_be(search, part, at))
            *best = place;
    }
}

void plan_borders_settle(const struct plan_row *row, const uint64_t *entering, uint64_t bound,
                         int *borders, uint64_t *steps)
{
    uint64_t work = row->cost_before[row->item_count] - row->cost_before[0];
    uint64_t reach = work / (uint64_t)row->part_count / REACH;
    struct search search = {row, entering, bound, reach, borders, steps};
    for (int part = 1; part < row->part_count; part++) {
        int now = borders[part];
        if (now == borders[part - 1] || now == borders[part + 1])
            continue;
        struct place best = {now, entering[now], 0};
        look(&search, part, -1, &best);
        look(&search, part, 1, &best);
        borders[part] = best.at;
    }
}
