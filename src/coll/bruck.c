/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bruck.c: allgather and alltoall in log2 p rounds for any p (Bruck et al., Efficient algorithms
 * for all-to-all communications in multiport message-passing systems, 1997).
 *
 * Allgather: rank r collects the blocks r, r+1, r+2, … in scratch. In round k it sends the first
 * 2^k of them to rank r - 2^k and gets the 2^k following its own from rank r + 2^k. At the end the
 * blocks are put in their places.
 *
 * Alltoall: the block for rank r + i has to travel i places, which it does by the bits of i: in
 * round k all blocks whose i has bit k move 2^k places on, packed in one message. Each block is
 * sent (p log2 p)/2 / p times on average: few messages for more bytes. Blocks must have equal
 * counts.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/segments.h"
#include "coll/team.h"

/* ---- allgather ----------------------------------------------------------------------------- */

/* Puts the collected blocks in their places, neighbours that stay neighbours in one copy. */
static void put_in_place(const struct coll_shape *shape, struct schedule_builder *builder,
                         const struct part *blocks, struct schedule_span collected)
{
    uint64_t from = 0;
    for (int i = 0; i < shape->size;) {
        struct part run = blocks[(shape->rank + i++) % shape->size];
        for (; i < shape->size; i++) {
            const struct part *next = &blocks[(shape->rank + i) % shape->size];
            if (next->offset != run.offset + run.count)
                break;
            run.count += next->count;
        }
        schedule_copy(builder, span_of(BUFFER_OUTPUT, run.offset, run.count),
                      coll_span_within(collected, from, run.count));
        from += run.count;
    }
}

static enum shoal_status emit_allgather(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    int size = shape->size, rank = shape->rank;
    struct part *blocks;
    TRY(BASE_NEW_ARRAY(&blocks, size, "the blocks of an allgather"));
    coll_parts_of_blocks(shape, blocks);
    uint64_t total = 0;
    for (int i = 0; i < size; i++)
        total += blocks[i].count;
    struct schedule_span collected = schedule_scratch(builder, total);
    schedule_copy(builder, coll_span_within(collected, 0, blocks[rank].count),
                  span_of(BUFFER_INPUT, 0, blocks[rank].count));

    uint64_t held = blocks[rank].count; /* elements of the `distance` blocks that are here */
    for (int distance = 1; distance < size; distance *= 2) {
        int moved = distance < size - distance ? distance : size - distance;
        uint64_t outgoing = 0, incoming = 0;
        for (int i = 0; i < moved; i++) {
            outgoing += blocks[(rank + i) % size].count;
            incoming += blocks[(rank + distance + i) % size].count;
        }
        coll_segments_send(builder, (rank + size - distance) % size,
                           coll_span_within(collected, 0, outgoing), shape->segment_count);
        coll_segments_recv(builder, (rank + distance) % size,
                           coll_span_within(collected, held, incoming), shape->segment_count);
        held += incoming;
    }
    put_in_place(shape, builder, blocks, collected);
    base_free(blocks);
    return SHOAL_OK;
}

/* ---- alltoall ------------------------------------------------------------------------------ */

static bool has_equal_blocks(const struct coll_shape *shape)
{
    return shape->counts == NULL;
}

/* Moves the blocks whose distance has the bit `step`; `where` says where the block for each
 * distance is now. */
static void move_on(const struct coll_shape *shape, struct schedule_builder *builder, int step,
                    struct schedule_span *where)
{
    int moved = 0;
    for (int distance = 0; distance < shape->size; distance++)
        moved += (distance & step) != 0;
    struct schedule_span packed = schedule_scratch(builder, shape->count * (uint64_t)moved);
    struct schedule_span arrived = schedule_scratch(builder, packed.count);
    uint64_t offset = 0;
    for (int distance = 0; distance < shape->size; distance++) {
        if (!(distance & step))
            continue;
        schedule_copy(builder, coll_span_within(packed, offset, shape->count), where[distance]);
        where[distance] = coll_span_within(arrived, offset, shape->count);
        offset += shape->count;
    }
    coll_segments_send(builder, (shape->rank + step) % shape->size, packed, shape->segment_count);
    coll_segments_recv(builder, (shape->rank + shape->size - step) % shape->size, arrived,
                       shape->segment_count);
}

static enum shoal_status emit_alltoall(const struct coll_shape *shape,
                                       struct schedule_builder *builder)
{
    int size = shape->size, rank = shape->rank;
    uint64_t count = shape->count;
    struct schedule_span *where;
    TRY(BASE_NEW_ARRAY(&where, size, "the blocks of an alltoall"));
    for (int distance = 0; distance < size; distance++)
        where[distance] =
            span_of(BUFFER_INPUT, count * (uint64_t)((rank + distance) % size), count);
    for (int step = 1; step < size; step *= 2)
        move_on(shape, builder, step, where);
    for (int distance = 0; distance < size; distance++)
        schedule_copy(
            builder,
            span_of(BUFFER_OUTPUT, count * (uint64_t)((rank + size - distance) % size), count),
            where[distance]);
    base_free(where);
    return SHOAL_OK;
}

const struct coll_algorithm coll_bruck_allgather = {
    .name = "bruck",
    .kind = COLL_ALLGATHER,
    .summary = "collected blocks go to rank r-1, r-2, r-4, …: log2 p rounds, (p-1) n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_allgather,
};

const struct coll_algorithm coll_bruck_alltoall = {
    .name = "bruck",
    .kind = COLL_ALLTOALL,
    .summary = "blocks travel by the bits of their distance: log2 p rounds, (p/2) n log2 p sent",
    .same_tree = true,
    .one_reduce = true,
    .fits = has_equal_blocks,
    .emit = emit_alltoall,
};
