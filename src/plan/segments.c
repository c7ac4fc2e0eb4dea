/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segments.c: min-max segmentation by parametric search.
 *
 * The published method fills a table c(k, i) = min over j of max(c(k-1, j), cost of j to i), which
 * takes D n^2 steps. The same optimum is found by asking whether a bound on the largest part can be
 * kept, which the greedy answers: the first part takes as much as it can, then the second, and so
 * on. (A part that takes less never helps those behind it, also where parts differ in what they
 * have and in their memory, because what fits into a part still fits when its first items are
 * gone.) Bisection over whole numbers then needs at most 50 questions, each of D log n steps.
 */
#include "plan/segments.h"

#include <stddef.h>

static uint64_t cost_of(const struct plan_row *row, int from, int to)
{
    return row->cost_before[to] - row->cost_before[from];
}

bool plan_segments_fits(const struct plan_row *row, int part, int from, int to, uint64_t bound)
{
    uint64_t cost = cost_of(row, from, to);
    if (!row->parts)
        return cost <= bound;
    const struct plan_part *taker = &row->parts[part];
    uint64_t parameters = row->parameter_before[to] - row->parameter_before[from];
    uint64_t activations = row->activation_before[to] - row->activation_before[from];
    return taker->cost <= bound && cost <= bound - taker->cost &&
           parameters * taker->parameter_times + activations * taker->activation_times <=
               taker->room_bytes;
}

/* The largest end of a part that begins at `from`. */
static int furthest(const struct plan_row *row, int part, int from, uint64_t bound, uint64_t *steps)
{
    int good = from, bad = row->item_count + 1;
    while (bad - good > 1) {
        int middle = good + (bad - good) / 2;
        ++*steps;
        if (plan_segments_fits(row, part, from, middle, bound))
            good = middle;
        else
            bad = middle;
    }
    return good;
}

/* The smallest begin of a part that ends at `to`. */
static int earliest(const struct plan_row *row, int part, int to, uint64_t bound, uint64_t *steps)
{
    int good = to, bad = -1;
    while (good - bad > 1) {
        int middle = bad + (good - bad) / 2;
        ++*steps;
        if (plan_segments_fits(row, part, middle, to, bound))
            good = middle;
        else
            bad = middle;
    }
    return good;
}

/* How many items the parts take under this bound. */
static int taken(const struct plan_row *row, uint64_t bound, uint64_t *steps)
{
    int at = 0;
    for (int part = 0; part < row->part_count && at < row->item_count; part++)
        at = furthest(row, part, at, bound, steps);
    return at;
}

static uint64_t part_cost(const struct plan_row *row, int part)
{
    return row->parts ? row->parts[part].cost : 0;
}

/* The least bound that can be kept, of those above `low` and up to `high`, which can. */
static uint64_t least_bound(const struct plan_row *row, uint64_t low, uint64_t high,
                            uint64_t *steps)
{
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (taken(row, middle, steps) == row->item_count)
            high = middle;
        else
            low = middle + 1;
    }
    return high;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The place nearest to where the parts from `part` on would be alike, within [low, high]. */
static int even_border(const struct plan_row *row, int part, int from, int low, int high)
{
    uint64_t rest = cost_of(row, from, row->item_count);
    for (int i = part; i < row->part_count; i++)
        rest += part_cost(row, i);
    uint64_t share = rest / (uint64_t)(row->part_count - part), own = part_cost(row, part);
    uint64_t aim = share > own ? share - own : 0;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (cost_of(row, from, middle) <= aim)
            low = middle;
        else
            high = middle;
    }
    return distance(cost_of(row, from, high), aim) < distance(cost_of(row, from, low), aim) ? high
                                                                                            : low;
}

/* Chooses borders that keep the bound: each has to leave no more than the parts behind it can
 * take, which is found from the end. */
static void choose_borders(const struct plan_row *row, uint64_t bound, int *borders,
                           uint64_t *steps)
{
    bool none_empty = !row->parts && row->item_count >= row->part_count;
    borders[row->part_count] = row->item_count;
    for (int part = row->part_count - 1; part > 0; part--)
        borders[part] = earliest(row, part, borders[part + 1], bound, steps);
    borders[0] = 0;
    for (int part = 0; part + 1 < row->part_count; part++) {
        int from = borders[part], low = borders[part + 1];
        int high = furthest(row, part, from, bound, steps);
        int least = from + (none_empty ? 1 : 0);
        int most = row->item_count - (none_empty ? row->part_count - 1 - part : 0);
        low = low < least ? least : low;
        high = high > most ? most : high;
        borders[part + 1] = even_border(row, part, from, low, high);
    }
}

int plan_segments(const struct plan_row *row, int *borders, uint64_t *steps)
{
    uint64_t ignored = 0, held = 0, largest = 0, work = cost_of(row, 0, row->item_count);
    steps = steps ? steps : &ignored;
    for (int part = 0; part < row->part_count; part++) {
        held += part_cost(row, part);
        largest = part_cost(row, part) > largest ? part_cost(row, part) : largest;
    }
    int at = taken(row, largest + work, steps);
    if (at < row->item_count)
        return at;
    uint64_t parts = (uint64_t)row->part_count, even = (work + held + parts - 1) / parts;
    uint64_t bound = least_bound(row, even > largest ? even : largest, largest + work, steps);
    choose_borders(row, bound, borders, steps);
    return -1;
}

uint64_t plan_segments_largest(const struct plan_row *row, const int *borders)
{
    uint64_t largest = 0;
    for (int part = 0; part < row->part_count; part++) {
        uint64_t cost = part_cost(row, part) + cost_of(row, borders[part], borders[part + 1]);
        largest = cost > largest ? cost : largest;
    }
    return largest;
}
