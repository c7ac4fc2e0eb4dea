/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segments.h: cuts a row of items into contiguous parts so that the largest part is as small as it
 * can be. Exact: costs are whole numbers.
 */
#ifndef SHOAL_PLAN_SEGMENTS_H
#define SHOAL_PLAN_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

/* Who takes a part. */
struct plan_part {
    uint64_t cost;            /* of what it has already */
    uint64_t room_bytes;      /* memory that is left; UINT64_MAX: any */
    uint64_t parameter_times, /* memory that a byte of parameters, and of activations, takes */
        activation_times;
};

/* Sums are over the items before each place, so [item_count + 1]; only differences matter. */
struct plan_row {
    int item_count;
    const uint64_t *cost_before;
    const uint64_t *parameter_before, *activation_before; /* bytes; not read without parts */
    int part_count;                                       /* 1 or more */
    const struct plan_part *parts; /* [part_count] in their order; NULL: they have nothing and take
                                      anything */
};

/* Writes where the parts begin, borders[part_count] = item_count being the end. Where parts is NULL
 * and there are items enough, no part is empty. Among equally good cuts it takes one whose parts
 * are alike. Returns -1, or else the first item that no cut finds room for, when each part takes
 * all that it has room for. *steps, unless NULL, grows by the number of comparisons. */
int plan_segments(const struct plan_row *row, int *borders, uint64_t *steps);

/* Whether the items from `from` to before `to` may be that part: with what it has they cost at most
 * `bound`, and there is room. */
bool plan_segments_fits(const struct plan_row *row, int part, int from, int to, uint64_t bound);

/* The largest part of such a cut, with what the parts had. */
uint64_t plan_segments_largest(const struct plan_row *row, const int *borders);

#endif
