/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairwise.c: alltoall and reduce-scatter with one partner at a time, for many ranks, where all
 * flows at once would drown the receivers.
 *
 * In round k rank r sends its block for rank r+k and receives from rank r-k; the next round starts
 * when both are done. p-1 rounds, each link carries what it must. Reduce-scatter adds what arrives
 * to its own block, so it needs scratch for two blocks only; the order of a sum starts at the
 * block's owner and goes down, so the tree depends on the position.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/segments.h"
#include "coll/team.h"

static enum shoal_status emit_alltoall(const struct coll_shape *shape,
                                       struct schedule_builder *builder)
{
    int size = shape->size, rank = shape->rank;
    struct coll_shape receiving = *shape;
    if (shape->counts) {
        receiving.counts = shape->recv_counts;
        receiving.displs = shape->recv_displs;
    }
    struct part *outgoing;
    TRY(BASE_NEW_ARRAY(&outgoing, 2 * size, "the blocks of an alltoall"));
    struct part *incoming = outgoing + size;
    coll_parts_of_blocks(shape, outgoing);
    coll_parts_of_blocks(&receiving, incoming);
    struct schedule_span input = span_of(BUFFER_INPUT, 0, 0), output = span_of(BUFFER_OUTPUT, 0, 0);
    schedule_copy(builder, coll_part_at(output, incoming[rank]),
                  coll_part_at(input, outgoing[rank]));
    for (int distance = 1; distance < size; distance++) {
        int to = (rank + distance) % size, from = (rank + size - distance) % size;
        schedule_fence(builder);
        schedule_send(builder, to, coll_part_at(input, outgoing[to]));
        schedule_recv(builder, from, coll_part_at(output, incoming[from]));
    }
    base_free(outgoing);
    return SHOAL_OK;
}

static enum shoal_status emit_reduce_scatter(const struct coll_shape *shape,
                                             struct schedule_builder *builder)
{
    int size = shape->size, rank = shape->rank;
    struct part *blocks;
    TRY(BASE_NEW_ARRAY(&blocks, size, "the blocks of a reduce-scatter"));
    coll_parts_of_blocks(shape, blocks);
    struct schedule_span input = span_of(BUFFER_INPUT, 0, 0);
    struct schedule_span own = coll_part_at(input, blocks[rank]);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, own.count), sum = own;
    struct schedule_span partial = size > 2 ? schedule_sums_at(builder, output) : output;
    if (size == 1)
        schedule_reduce(builder, output, &own, 1, true);
    struct schedule_span slots[2] = {{0}};
    for (int i = 0; i < 2 && i < size - 1; i++)
        slots[i] = schedule_scratch(builder, own.count);
    for (int distance = 1; distance < size; distance++) {
        int to = (rank + distance) % size, from = (rank + size - distance) % size;
        struct schedule_span arrived = slots[(distance - 1) % 2];
        coll_segments_send(builder, to, coll_part_at(input, blocks[to]), shape->segment_count);
        coll_segments_recv(builder, from, arrived, shape->segment_count);
        bool last = distance == size - 1;
        coll_segments_reduce(builder, last ? output : partial, sum, arrived, shape->segment_count,
                             last);
        sum = partial;
    }
    base_free(blocks);
    return SHOAL_OK;
}

const struct coll_algorithm coll_pairwise_alltoall = {
    .name = "pairwise",
    .kind = COLL_ALLTOALL,
    .summary = "round k: to rank r+k, from rank r-k: p-1 rounds, (p-1) n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_alltoall,
};

const struct coll_algorithm coll_pairwise_reduce_scatter = {
    .name = "pairwise",
    .kind = COLL_REDUCE_SCATTER,
    .summary = "round k: to rank r+k, from rank r-k, added to the own block: p-1 rounds, (p-1) n "
               "sent",
    .emit = emit_reduce_scatter,
};
