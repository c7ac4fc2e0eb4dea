/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recursive_doubling.c: allreduce in log2 p rounds (Thakur, Rabenseifner, Gropp: Optimization of
 * collective communication operations in MPICH, 2005).
 *
 * In round k each rank exchanges its whole sum with the rank at distance 2^k and adds what it gets,
 * the lower rank's sum first, so that both have the same bits. After round k a sum holds 2^(k+1)
 * ranks. Few rounds, but each carries the whole buffer: for small messages among many ranks. Ranks
 * beyond a power of two: fold.h. All elements have the same tree: a balanced one in rank order.
 */
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/fold.h"
#include "coll/segments.h"

static enum shoal_status emit_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    uint64_t segment_count = shape->segment_count;
    struct schedule_span input = span_of(BUFFER_INPUT, 0, shape->count);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count);
    if (shape->size == 1)
        schedule_reduce(builder, output, &input, 1, true);

    struct fold fold = coll_fold_of(shape->rank, shape->size);
    struct schedule_span partial = schedule_sums_at(builder, output), slots[2];
    struct schedule_span sum = coll_fold_in(builder, &fold, input, partial, segment_count);
    for (int distance = 1, round = 0; fold.core_rank >= 0 && distance < fold.core;
         distance *= 2, round++) {
        int core_peer = fold.core_rank ^ distance, peer = coll_fold_rank(&fold, core_peer);
        bool last = 2 * distance == fold.core, lower = core_peer < fold.core_rank;
        /* The peer's first message is its input, unless it has a pair's sum; then come sums. */
        if (round == 0 && !coll_fold_is_pair(&fold, core_peer))
            slots[0] = schedule_scratch(builder, shape->count);
        else if (round <= 2)
            slots[round % 2] = schedule_sums(builder, shape->count);
        struct schedule_span arrived = slots[round % 2];
        coll_segments_send(builder, peer, sum, segment_count);
        coll_segments_recv(builder, peer, arrived, segment_count);
        coll_segments_reduce(builder, last ? output : partial, lower ? arrived : sum,
                             lower ? sum : arrived, segment_count, last);
        sum = partial;
    }
    coll_fold_out(builder, &fold, output, segment_count);
    return SHOAL_OK;
}

const struct coll_algorithm coll_recursive_doubling_allreduce = {
    .name = "recursive_doubling",
    .kind = COLL_ALLREDUCE,
    .summary = "pairs at distance 1, 2, 4, … exchange their sums: log2 p rounds, n log2 p sent",
    .same_tree = true,
    .emit = emit_allreduce,
};
