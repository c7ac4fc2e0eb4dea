/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c: every rank talks straight to every other; the default across up to a few dozen hosts.
 *
 * Allreduce is the sharded form of the balanced fusion buffer (Herring, SC20, with the servers on
 * the ranks themselves): the buffer is cut in p shards, shard i belongs to rank i. Each rank sends
 * its part of shard i to rank i, which sums the p parts in rank order and sends the result to all.
 * Each link carries 2(p-1)/p of the buffer as in a ring, which is the lower bound, but in 2 rounds
 * instead of 2(p-1). With servers of their own it is less: owners.c. Reduce-scatter is the first
 * half of it, allgather the second.
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
#include "coll/uneven.h"

/* The whole group as a team, with a part for each rank. */
struct crew {
    struct team team;
    int *ranks;         /* [size] 0 to size-1 */
    struct part *parts; /* [size] */
};

static void crew_release(struct crew *crew)
{
    base_free(crew->ranks);
    base_free(crew->parts);
}

static enum shoal_status crew_init(const struct coll_shape *shape, struct crew *crew)
{
    TRY(BASE_NEW_ARRAY(&crew->ranks, shape->size, "a team's ranks"));
    enum shoal_status status = BASE_NEW_ARRAY(&crew->parts, shape->size, "a team's parts");
    if (status != SHOAL_OK) {
        base_free(crew->ranks);
        return status;
    }
    for (int rank = 0; rank < shape->size; rank++)
        crew->ranks[rank] = rank;
    crew->team = (struct team){.ranks = crew->ranks, .size = shape->size, .me = shape->rank};
    return SHOAL_OK;
}

/* Allreduce, reduce and broadcast: the parts are cut from one buffer. */
static enum shoal_status emit_buffer(const struct coll_shape *shape,
                                     struct schedule_builder *builder)
{
    struct crew crew;
    if (coll_is_uneven(shape))
        return coll_uneven_allreduce(shape, builder, UNEVEN_RANKS);
    TRY(crew_init(shape, &crew));
    struct schedule_span input = span_of(BUFFER_INPUT, 0, shape->count);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count);
    enum shoal_status status;
    if (shape->kind == COLL_ALLREDUCE)
        status = coll_team_allreduce(builder, &crew.team, input, output, shape->segment_count);
    else if (shape->kind == COLL_REDUCE)
        status = coll_team_reduce_to(builder, &crew.team, shape->root, input, output,
                                     shape->segment_count);
    else
        status = coll_team_broadcast(builder, &crew.team, shape->root, input, output,
                                     shape->segment_count);
    crew_release(&crew);
    return status;
}

/* Allgather, gather, scatter and reduce-scatter: the parts are the shape's blocks. */
static enum shoal_status emit_blocks(const struct coll_shape *shape,
                                     struct schedule_builder *builder)
{
    struct crew crew;
    TRY(crew_init(shape, &crew));
    coll_parts_of_blocks(shape, crew.parts);
    struct team *team = &crew.team;
    struct schedule_span input = span_of(BUFFER_INPUT, 0, 0), output = span_of(BUFFER_OUTPUT, 0, 0);
    enum shoal_status status = SHOAL_OK;
    switch (shape->kind) {
    case COLL_ALLGATHER:
        coll_team_share(builder, team, crew.parts, input, output, shape->segment_count);
        break;
    case COLL_GATHER:
        coll_team_collect(builder, team, crew.parts, shape->root, input, output,
                          shape->segment_count);
        break;
    case COLL_SCATTER:
        coll_team_deal(builder, team, crew.parts, shape->root, input, output, shape->segment_count);
        break;
    default:
        status =
            coll_team_reduce(builder, team, crew.parts, input, output, shape->segment_count, true);
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
    struct part *outgoing;
    TRY(BASE_NEW_ARRAY(&outgoing, 2 * shape->size, "the blocks of an alltoall"));
    struct part *incoming = outgoing + shape->size;
    coll_parts_of_blocks(shape, outgoing);
    coll_parts_of_blocks(&receiving, incoming);
    struct schedule_span input = span_of(BUFFER_INPUT, 0, 0), output = span_of(BUFFER_OUTPUT, 0, 0);
    for (int distance = 1; distance < shape->size; distance++) {
        int to = (shape->rank + distance) % shape->size;
        int from = (shape->rank + shape->size - distance) % shape->size;
        coll_segments_send(builder, to, coll_part_at(input, outgoing[to]), shape->segment_count);
        coll_segments_recv(builder, from, coll_part_at(output, incoming[from]),
                           shape->segment_count);
    }
    schedule_copy(builder, coll_part_at(output, incoming[shape->rank]),
                  coll_part_at(input, outgoing[shape->rank]));
    base_free(outgoing);
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

const struct coll_algorithm coll_direct_allreduce = {
    .name = "direct",
    .kind = COLL_ALLREDUCE,
    .summary = "each rank sums one shard and sends it to all: 2 rounds, 2(p-1)/p n sent",
    .same_tree = true,
    .one_reduce = true,
    .follows_shares = true,
    .takes_servers = true,
    .emit = emit_buffer,
};

const struct coll_algorithm coll_direct_reduce = {
    .name = "direct",
    .kind = COLL_REDUCE,
    .summary = "the other ranks sum one shard each and send it to the root: 2 rounds, n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_buffer,
};

const struct coll_algorithm coll_direct_broadcast = {
    .name = "direct",
    .kind = COLL_BROADCAST,
    .summary = "the root deals shards, which the others pass on to each other: 2 rounds, n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_buffer,
};

const struct coll_algorithm coll_direct_allgather = {
    .name = "direct",
    .kind = COLL_ALLGATHER,
    .summary = "each rank sends its block to all: 1 round, (p-1) n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_blocks,
};

const struct coll_algorithm coll_direct_gather = {
    .name = "direct",
    .kind = COLL_GATHER,
    .summary = "each rank sends its block to the root: 1 round, n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_blocks,
};

const struct coll_algorithm coll_direct_reduce_scatter = {
    .name = "direct",
    .kind = COLL_REDUCE_SCATTER,
    .summary = "each rank sends block i to rank i, which sums: 1 round, (p-1) n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_blocks,
};

const struct coll_algorithm coll_direct_scatter = {
    .name = "direct",
    .kind = COLL_SCATTER,
    .summary = "the root sends each rank its block: 1 round, (p-1) n sent by the root",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_blocks,
};

const struct coll_algorithm coll_direct_alltoall = {
    .name = "direct",
    .kind = COLL_ALLTOALL,
    .summary = "each rank sends each other its block at once: 1 round, (p-1) n sent",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_alltoall,
};

const struct coll_algorithm coll_direct_barrier = {
    .name = "direct",
    .kind = COLL_BARRIER,
    .summary = "each rank signals each other: 1 round, p-1 signals",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_barrier,
};
