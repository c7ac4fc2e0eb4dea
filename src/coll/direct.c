/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c: every rank talks straight to every other; the default across up to a few dozen hosts.
 *
 * Allreduce is the sharded form of the balanced fusion buffer (Herring, SC20, with the servers on
 * the ranks themselves): the buffer is cut in p shards, shard i belongs to rank i. Each rank sends
 * its part of shard i to rank i, which sums the p parts in rank order and sends the result to all.
 * Each link carries 2(p-1)/p of the buffer as in a ring, which is the lower bound, but in 2 rounds
 * instead of 2(p-1). Reduce-scatter is the first half of it, allgather the second.
 *
 * Reduce and broadcast are the halves with a root: the shards belong to the other ranks, so the
 * root's port carries the buffer once in one direction, which is the lower bound too (were the
 * root an owner as well, nearly twice). With two ranks there is nothing to share out.
 *
 * The sum of an element is one reduce over all inputs in rank order, wherever the element lies: all
 * of these have the same tree, and 16-bit floats are rounded once.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/segments.h"
#include "coll/team.h"

/* The whole group as a team with its parts; `others`: without the root. */
struct crew {
    struct team everyone, others;
    int *ranks;         /* [size] 0 to size-1; [size-1] the others behind them */
    struct part *parts; /* [size] one per rank; [size-1] those of the others behind them */
    struct part *parts_of_others;
};

static void crew_release(struct crew *crew)
{
    base_free(crew->ranks);
    base_free(crew->parts);
}

static enum shoal_status crew_init(const struct coll_shape *shape, struct crew *crew)
{
    int size = shape->size;
    TRY(BASE_NEW_ARRAY(&crew->ranks, 2 * size, "a team's ranks"));
    enum shoal_status status = BASE_NEW_ARRAY(&crew->parts, 2 * size, "a team's parts");
    if (status != SHOAL_OK) {
        base_free(crew->ranks);
        return status;
    }
    crew->parts_of_others = crew->parts + size;
    crew->everyone = (struct team){crew->ranks, size, shape->rank};
    crew->others = (struct team){crew->ranks + size, 0, -1};
    for (int rank = 0; rank < size; rank++) {
        crew->ranks[rank] = rank;
        if (rank == shape->root)
            continue;
        if (rank == shape->rank)
            crew->others.me = crew->others.size;
        crew->ranks[size + crew->others.size++] = rank;
    }
    return SHOAL_OK;
}

/* Cuts the buffer among the ranks that are not root, or gives it to the root where there are no
 * more than two ranks. */
static void share_out(const struct coll_shape *shape, struct crew *crew)
{
    if (shape->size <= 2) {
        crew->parts[shape->root].count = shape->count;
        return;
    }
    parts_cut(shape->count, crew->parts_of_others, crew->others.size);
    for (int i = 0; i < crew->others.size; i++)
        crew->parts[crew->others.ranks[i]] = crew->parts_of_others[i];
}

static enum shoal_status emit_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    struct crew crew;
    TRY(crew_init(shape, &crew));
    parts_cut(shape->count, crew.parts, shape->size);
    struct schedule_span input = span_of(BUFFER_INPUT, 0, shape->count);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count);
    struct schedule_span own = part_at(output, crew.parts[shape->rank]);
    enum shoal_status status =
        team_reduce(builder, &crew.everyone, crew.parts, input, own, shape->segment_count, true);
    if (status == SHOAL_OK)
        team_share(builder, &crew.everyone, crew.parts, own, output, shape->segment_count);
    crew_release(&crew);
    return status;
}

static enum shoal_status emit_reduce(const struct coll_shape *shape,
                                     struct schedule_builder *builder)
{
    struct crew crew;
    TRY(crew_init(shape, &crew));
    share_out(shape, &crew);
    struct schedule_span input = span_of(BUFFER_INPUT, 0, shape->count);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count);
    struct schedule_span own = output;
    if (shape->rank != shape->root)
        own = schedule_scratch(builder, crew.parts[shape->rank].count);
    enum shoal_status status =
        team_reduce(builder, &crew.everyone, crew.parts, input, own, shape->segment_count, true);
    if (status == SHOAL_OK)
        team_collect(builder, &crew.everyone, crew.parts, shape->root, own, output,
                     shape->segment_count);
    crew_release(&crew);
    return status;
}

static enum shoal_status emit_broadcast(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    struct crew crew;
    TRY(crew_init(shape, &crew));
    parts_cut(shape->count, crew.parts_of_others, crew.others.size);
    for (int i = 0; i < crew.others.size; i++)
        crew.parts[crew.others.ranks[i]] = crew.parts_of_others[i];
    struct schedule_span input = span_of(BUFFER_INPUT, 0, shape->count);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count);
    struct schedule_span own = part_at(output, crew.parts[shape->rank]);
    team_deal(builder, &crew.everyone, crew.parts, shape->root, input, own, shape->segment_count);
    if (shape->rank == shape->root)
        schedule_copy(builder, output, input);
    else
        team_share(builder, &crew.others, crew.parts_of_others, own, output, shape->segment_count);
    crew_release(&crew);
    return SHOAL_OK;
}

/* Allgather, gather, scatter and reduce-scatter: the parts are the shape's blocks. */
static enum shoal_status emit_blocks(const struct coll_shape *shape,
                                     struct schedule_builder *builder)
{
    struct crew crew;
    TRY(crew_init(shape, &crew));
    parts_of_blocks(shape, crew.parts);
    const struct team *team = &crew.everyone;
    struct schedule_span input = span_of(BUFFER_INPUT, 0, 0), output = span_of(BUFFER_OUTPUT, 0, 0);
    enum shoal_status status = SHOAL_OK;
    switch (shape->kind) {
    case COLL_ALLGATHER:
        team_share(builder, team, crew.parts, input, output, shape->segment_count);
        break;
    case COLL_GATHER:
        team_collect(builder, team, crew.parts, shape->root, input, output, shape->segment_count);
        break;
    case COLL_SCATTER:
        team_deal(builder, team, crew.parts, shape->root, input, output, shape->segment_count);
        break;
    default:
        status = team_reduce(builder, team, crew.parts, input, output, shape->segment_count, true);
        break;
    }
    crew_release(&crew);
    return status;
}

static enum shoal_status emit_alltoall(const struct coll_shape *shape,
                                       struct schedule_builder *builder)
{
    struct coll_shape receiving = *shape;
    if (shape->counts) {
        receiving.counts = shape->recv_counts;
        receiving.displs = shape->recv_displs;
    }
    struct crew crew;
    TRY(crew_init(shape, &crew));
    struct part *incoming = crew.parts_of_others;
    parts_of_blocks(shape, crew.parts);
    parts_of_blocks(&receiving, incoming);
    struct schedule_span input = span_of(BUFFER_INPUT, 0, 0), output = span_of(BUFFER_OUTPUT, 0, 0);
    for (int distance = 1; distance < shape->size; distance++) {
        int to = (shape->rank + distance) % shape->size;
        int from = (shape->rank + shape->size - distance) % shape->size;
        segments_send(builder, to, part_at(input, crew.parts[to]), shape->segment_count);
        segments_recv(builder, from, part_at(output, incoming[from]), shape->segment_count);
    }
    schedule_copy(builder, part_at(output, incoming[shape->rank]),
                  part_at(input, crew.parts[shape->rank]));
    crew_release(&crew);
    return SHOAL_OK;
}

static enum shoal_status emit_barrier(const struct coll_shape *shape,
                                      struct schedule_builder *builder)
{
    for (int distance = 1; distance < shape->size; distance++)
        schedule_signal(builder, (shape->rank + distance) % shape->size);
    for (int distance = 1; distance < shape->size; distance++)
        schedule_await(builder, (shape->rank + shape->size - distance) % shape->size);
    return SHOAL_OK;
}

const struct coll_algorithm direct_allreduce = {
    .name = "direct",
    .kind = COLL_ALLREDUCE,
    .summary = "each rank sums one shard and sends it to all: 2 rounds, 2(p-1)/p n sent",
    .same_tree = true,
    .rounds_once = true,
    .emit = emit_allreduce,
};

const struct coll_algorithm direct_reduce = {
    .name = "direct",
    .kind = COLL_REDUCE,
    .summary = "the other ranks sum one shard each and send it to the root: 2 rounds, n sent",
    .same_tree = true,
    .rounds_once = true,
    .emit = emit_reduce,
};

const struct coll_algorithm direct_broadcast = {
    .name = "direct",
    .kind = COLL_BROADCAST,
    .summary = "the root deals shards, which the others pass on to each other: 2 rounds, n sent",
    .same_tree = true,
    .rounds_once = true,
    .emit = emit_broadcast,
};

const struct coll_algorithm direct_allgather = {
    .name = "direct",
    .kind = COLL_ALLGATHER,
    .summary = "each rank sends its block to all: 1 round, (p-1) n sent",
    .same_tree = true,
    .rounds_once = true,
    .emit = emit_blocks,
};

const struct coll_algorithm direct_gather = {
    .name = "direct",
    .kind = COLL_GATHER,
    .summary = "each rank sends its block to the root: 1 round, n sent",
    .same_tree = true,
    .rounds_once = true,
    .emit = emit_blocks,
};

const struct coll_algorithm direct_reduce_scatter = {
    .name = "direct",
    .kind = COLL_REDUCE_SCATTER,
    .summary = "each rank sends block i to rank i, which sums: 1 round, (p-1) n sent",
    .same_tree = true,
    .rounds_once = true,
    .emit = emit_blocks,
};

const struct coll_algorithm direct_scatter = {
    .name = "direct",
    .kind = COLL_SCATTER,
    .summary = "the root sends each rank its block: 1 round, (p-1) n sent by the root",
    .same_tree = true,
    .rounds_once = true,
    .emit = emit_blocks,
};

const struct coll_algorithm direct_alltoall = {
    .name = "direct",
    .kind = COLL_ALLTOALL,
    .summary = "each rank sends each other its block at once: 1 round, (p-1) n sent",
    .same_tree = true,
    .rounds_once = true,
    .emit = emit_alltoall,
};

const struct coll_algorithm direct_barrier = {
    .name = "direct",
    .kind = COLL_BARRIER,
    .summary = "each rank signals each other: 1 round, p-1 signals",
    .same_tree = true,
    .rounds_once = true,
    .emit = emit_barrier,
};
