/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.c: broadcast in a pipeline: the root sends segments to the next rank, which passes each on
 * as soon as it is there. p-2 + segments rounds; every port carries the buffer once, which is the
 * lower bound, with one neighbour on each side however many ranks there are.
 */
#include "coll/algorithms.h"
#include "coll/segments.h"

static enum shoal_status emit_broadcast(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    int size = shape->size, place = (shape->rank - shape->root + size) % size;
    int previous = (shape->rank + size - 1) % size, next = (shape->rank + 1) % size;
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count), source = output;
    if (place == 0)
        source = span_of(BUFFER_INPUT, 0, shape->count);
    uint64_t segments = coll_segments_in(shape->count, shape->segment_count);
    for (uint64_t segment = 0; segment < segments; segment++) {
        struct schedule_span piece = coll_segment_of(source, segment, shape->segment_count);
        if (place > 0)
            schedule_recv(builder, previous, piece);
        if (place < size - 1)
            schedule_send(builder, next, piece);
    }
    schedule_copy(builder, output, source);
    return SHOAL_OK;
}

const struct coll_algorithm coll_chain_broadcast = {
    .name = "chain",
    .kind = COLL_BROADCAST,
    .summary = "segments pass from rank to rank: p-2 + segments rounds, n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_broadcast,
};
