/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c: every rank talks to its two neighbours only (Patarasu, Yuan: Bandwidth optimal all-reduce
 * algorithms for clusters of workstations, 2009).
 *
 * Reduce-scatter: block b starts at rank b+1 and travels around the ring to rank b; each rank on
 * the way adds its input. At step t rank r sends block r-1-t to its right and receives block r-2-t
 * from its left, so all links carry one block at a time. Allgather: finished blocks travel once
 * around. Allreduce is the two after each other: 2(p-1) rounds, 2(p-1)/p n sent, the lower bound in
 * bytes. A block moves in segments, so a rank passes one on while the next arrives.
 *
 * The order of a sum starts at the block's right neighbour: the tree depends on the position.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/segments.h"
#include "coll/team.h"
#include "coll/uneven.h"

struct ring {
    const struct coll_shape *shape;
    struct schedule_builder *builder;
    struct part *blocks; /* [size] */
    int left, right;
};

static enum shoal_status ring_init(const struct coll_shape *shape, struct schedule_builder *builder,
                                   struct ring *ring)
{
    *ring = (struct ring){.shape = shape, .builder = builder};
    ring->left = (shape->rank + shape->size - 1) % shape->size;
    ring->right = (shape->rank + 1) % shape->size;
    return BASE_NEW_ARRAY(&ring->blocks, shape->size, "a ring's blocks");
}

/* The block `distance` places before this rank's; distance is at most 2 size. */
static int block_before(const struct ring *ring, int distance)
{
    return (ring->shape->rank + 2 * ring->shape->size - distance) % ring->shape->size;
}

static uint64_t longest_block(const struct ring *ring)
{
    uint64_t longest = 0;
    for (int i = 0; i < ring->shape->size; i++)
        if (ring->blocks[i].count > longest)
            longest = ring->blocks[i].count;
    return longest;
}

/* The sum of this rank's block arrives at `result`. The first to arrive is an input, then come
 * sums; they are kept in two places in turn, where they arrived if sums are no wider. */
static void travel_and_sum(const struct ring *ring, struct schedule_span result)
{
    const struct coll_shape *shape = ring->shape;
    struct schedule_span input = span_of(BUFFER_INPUT, 0, 0);
    if (shape->size == 1) {
        struct schedule_span own = coll_part_at(input, ring->blocks[0]);
        schedule_reduce(ring->builder, result, &own, 1, true);
        return;
    }
    uint64_t longest = longest_block(ring);
    struct schedule_span first = schedule_scratch(ring->builder, longest);
    struct schedule_span slots[2] = {schedule_sums_at(ring->builder, first),
                                     schedule_sums(ring->builder, longest)};
    struct schedule_span value = coll_part_at(input, ring->blocks[block_before(ring, 1)]);
    for (int step = 0; step < shape->size - 1; step++) {
        bool last = step == shape->size - 2;
        struct schedule_span added =
            coll_part_at(input, ring->blocks[block_before(ring, 2 + step)]);
        struct schedule_span sum = coll_span_within(slots[step % 2], 0, added.count);
        struct schedule_span arrived = step == 0 ? coll_span_within(first, 0, added.count) : sum;
        coll_segments_send(ring->builder, ring->right, value, shape->segment_count);
        coll_segments_recv(ring->builder, ring->left, arrived, shape->segment_count);
        coll_segments_reduce(ring->builder, last ? result : sum, arrived, added,
                             shape->segment_count, last);
        value = sum;
    }
}

/* Each rank's block, which is at `own`, goes around into the range at OUTPUT. */
static void travel(const struct ring *ring, struct schedule_span own)
{
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, 0), value = own;
    for (int step = 0; step < ring->shape->size - 1; step++) {
        struct schedule_span next =
            coll_part_at(output, ring->blocks[block_before(ring, 1 + step)]);
        coll_segments_send(ring->builder, ring->right, value, ring->shape->segment_count);
        coll_segments_recv(ring->builder, ring->left, next, ring->shape->segment_count);
        value = next;
    }
    schedule_copy(ring->builder, coll_part_at(output, ring->blocks[ring->shape->rank]), own);
}

static enum shoal_status emit_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    struct ring ring;
    if (shape->shares)
        return coll_uneven_allreduce(shape, builder, UNEVEN_RING);
    TRY(ring_init(shape, builder, &ring));
    coll_parts_cut(shape->count, ring.blocks, shape->size);
    struct schedule_span own = coll_part_at(span_of(BUFFER_OUTPUT, 0, 0), ring.blocks[shape->rank]);
    travel_and_sum(&ring, own);
    travel(&ring, own);
    base_free(ring.blocks);
    return SHOAL_OK;
}

static enum shoal_status emit_reduce_scatter(const struct coll_shape *shape,
                                             struct schedule_builder *builder)
{
    struct ring ring;
    TRY(ring_init(shape, builder, &ring));
    coll_parts_of_blocks(shape, ring.blocks);
    travel_and_sum(&ring, span_of(BUFFER_OUTPUT, 0, ring.blocks[shape->rank].count));
    base_free(ring.blocks);
    return SHOAL_OK;
}

static enum shoal_status emit_allgather(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    struct ring ring;
    TRY(ring_init(shape, builder, &ring));
    coll_parts_of_blocks(shape, ring.blocks);
    travel(&ring, span_of(BUFFER_INPUT, 0, ring.blocks[shape->rank].count));
    base_free(ring.blocks);
    return SHOAL_OK;
}

const struct coll_algorithm coll_ring_allreduce = {
    .name = "ring",
    .kind = COLL_ALLREDUCE,
    .summary = "blocks travel around twice, summed, then shared: 2(p-1) rounds, 2(p-1)/p n sent",
    .follows_shares = true,
    .emit = emit_allreduce,
};

const struct coll_algorithm coll_ring_reduce_scatter = {
    .name = "ring",
    .kind = COLL_REDUCE_SCATTER,
    .summary = "blocks travel around and are summed on the way: p-1 rounds, (p-1) n sent",
    .emit = emit_reduce_scatter,
};

const struct coll_algorithm coll_ring_allgather = {
    .name = "ring",
    .kind = COLL_ALLGATHER,
    .summary = "blocks travel around: p-1 rounds, (p-1) n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_allgather,
};
