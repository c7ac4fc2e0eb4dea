/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c: the steps before and after a power of two of ranks. */
#include "coll/fold.h"

#include "coll/segments.h"

struct fold coll_fold_of(int rank, int size)
{
    struct fold fold = {.core = 1, .partner = -1};
    while (fold.core <= size / 2)
        fold.core *= 2;
    fold.extra = size - fold.core;
    if (rank >= 2 * fold.extra) {
        fold.core_rank = rank - fold.extra;
        return fold;
    }
    fold.core_rank = rank % 2 ? rank / 2 : -1;
    fold.partner = rank % 2 ? rank - 1 : rank + 1;
    return fold;
}

int coll_fold_rank(const struct fold *fold, int core_rank)
{
    return coll_fold_is_pair(fold, core_rank) ? 2 * core_rank + 1 : core_rank + fold->extra;
}

int coll_fold_first(const struct fold *fold, int core_rank)
{
    return coll_fold_is_pair(fold, core_rank) ? 2 * core_rank : core_rank + fold->extra;
}

struct schedule_span coll_fold_in(struct schedule_builder *builder, const struct fold *fold,
                                  struct schedule_span input, struct schedule_span sum,
                                  uint64_t segment_count)
{
    if (fold->partner < 0)
        return input;
    if (fold->core_rank < 0) {
        coll_segments_send(builder, fold->partner, input, segment_count);
        return input;
    }
    struct schedule_span arrived = schedule_scratch(builder, input.count);
    coll_segments_recv(builder, fold->partner, arrived, segment_count);
    coll_segments_reduce(builder, sum, arrived, input, segment_count, false);
    return sum;
}

void coll_fold_out(struct schedule_builder *builder, const struct fold *fold,
                   struct schedule_span output, uint64_t segment_count)
{
    if (fold->partner < 0)
        return;
    if (fold->core_rank < 0)
        coll_segments_recv(builder, fold->partner, output, segment_count);
    else
        coll_segments_send(builder, fold->partner, output, segment_count);
}
