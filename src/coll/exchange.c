/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.c: everything in one round, for small messages, where only the number of rounds counts.
 *
 * Allreduce: every rank sends its whole input to every other and sums all of them itself, in rank
 * order; (p-1) n sent, one latency. Reduce: all send to the root. Broadcast: the root sends to all.
 * The sum has the same tree as direct.c's.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/segments.h"
#include "coll/team.h"

static enum shoal_status emit_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    int size = shape->size;
    struct schedule_span *sources;
    TRY(BASE_NEW_ARRAY(&sources, size, "a reduce's sources"));
    struct schedule_span input = span_of(BUFFER_INPUT, 0, shape->count);
    sources[shape->rank] = input;
    for (int distance = 1; distance < size; distance++) {
        int to = (shape->rank + distance) % size, from = (shape->rank + size - distance) % size;
        sources[from] = schedule_scratch(builder, shape->count);
        coll_segments_send(builder, to, input, shape->segment_count);
        coll_segments_recv(builder, from, sources[from], shape->segment_count);
    }
    schedule_reduce(builder, span_of(BUFFER_OUTPUT, 0, shape->count), sources, size, true);
    base_free(sources);
    return SHOAL_OK;
}

static enum shoal_status emit_reduce(const struct coll_shape *shape,
                                     struct schedule_builder *builder)
{
    struct part *parts;
    TRY(BASE_NEW_ARRAY(&parts, shape->size, "a team's parts"));
    int *ranks;
    enum shoal_status status = BASE_NEW_ARRAY(&ranks, shape->size, "a team's ranks");
    if (status == SHOAL_OK) {
        for (int rank = 0; rank < shape->size; rank++)
            ranks[rank] = rank;
        parts[shape->root].count = shape->count;
        struct team team = {.ranks = ranks, .size = shape->size, .me = shape->rank};
        status = coll_team_reduce(builder, &team, parts, span_of(BUFFER_INPUT, 0, 0),
                                  span_of(BUFFER_OUTPUT, 0, 0), shape->segment_count, true);
        base_free(ranks);
    }
    base_free(parts);
    return status;
}

static enum shoal_status emit_broadcast(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    struct schedule_span input = span_of(BUFFER_INPUT, 0, shape->count);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count);
    if (shape->rank != shape->root) {
        coll_segments_recv(builder, shape->root, output, shape->segment_count);
        return SHOAL_OK;
    }
    for (int distance = 1; distance < shape->size; distance++)
        coll_segments_send(builder, (shape->root + distance) % shape->size, input,
                           shape->segment_count);
    schedule_copy(builder, output, input);
    return SHOAL_OK;
}

/* The inputs of all others fit in a scratch of moderate size. */
#define SCRATCH_BYTES_MAX (UINT64_C(256) << 20)

static bool is_small(const struct coll_shape *shape)
{
    uint64_t others = (uint64_t)shape->size - 1;
    return others == 0 || shape->count <= SCRATCH_BYTES_MAX / shape->elem_bytes / others;
}

const struct coll_algorithm coll_exchange_allreduce = {
    .name = "exchange",
    .kind = COLL_ALLREDUCE,
    .summary = "each rank sends its input to all and sums alone: 1 round, (p-1) n sent",
    .same_tree = true,
    .one_reduce = true,
    .fits = is_small,
    .emit = emit_allreduce,
};

const struct coll_algorithm coll_exchange_reduce = {
    .name = "exchange",
    .kind = COLL_REDUCE,
    .summary = "each rank sends its input to the root, which sums: 1 round, n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_reduce,
};

const struct coll_algorithm coll_exchange_broadcast = {
    .name = "exchange",
    .kind = COLL_BROADCAST,
    .summary = "the root sends to each rank: 1 round, (p-1) n sent by the root",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_broadcast,
};
