/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold.h: any number of ranks for algorithms that want a power of two.
 *
 * Let `core` be the largest power of two in p and `extra` the rest. Of the first 2 extra ranks each
 * even one gives its input to the odd one behind it and rests; the odd ones and all later ranks are
 * the core, numbered in rank order. So a core rank stands for a run of neighbouring ranks, and sums
 * in core order are sums in rank order.
 */
#ifndef SHOAL_COLL_FOLD_H
#define SHOAL_COLL_FOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/schedule.h"

struct fold {
    int core, extra;
    int core_rank; /* -1: this rank rests */
    int partner;   /* the other one of the pair, -1: none */
};

struct fold coll_fold_of(int rank, int size);
/* The group's rank of a core rank. */
int coll_fold_rank(const struct fold *fold, int core_rank);
/* Whether the core rank's value is the sum of a pair from the start, and not its input. */
static inline bool coll_fold_is_pair(const struct fold *fold, int core_rank)
{
    return core_rank < fold->extra;
}
/* The first of the ranks that core ranks from `core_rank` on stand for; the size for core_rank ==
 * core. */
int coll_fold_first(const struct fold *fold, int core_rank);

/* The pairs' first step: the resting rank sends `input`; its partner puts the sum in `sum`, and the
 * span that holds its value from then on is returned (`input` on all others). */
struct schedule_span coll_fold_in(struct schedule_builder *builder, const struct fold *fold,
                                  struct schedule_span input, struct schedule_span sum,
                                  uint64_t segment_count);
/* The pairs' last step: the resting rank gets the partner's `output`. */
void coll_fold_out(struct schedule_builder *builder, const struct fold *fold,
                   struct schedule_span output, uint64_t segment_count);

#endif
