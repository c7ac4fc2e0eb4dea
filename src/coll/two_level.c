/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_level.c: allreduce, reduce and broadcast for several ranks on each of several hosts: what can
 * be done within a host is done there, and the network carries each element once per host instead
 * of once per rank (BlueConnect, SysML 2019, with two dimensions and direct exchanges in both).
 *
 * The buffer is cut in as many slices as the smallest host has ranks. On each host rank number i
 * owns slice i; ranks beyond own nothing but work along. Allreduce:
 *   1. within each host, all send their part of slice i to its owner, which sums them;
 *   2. the owners of slice i on all hosts allreduce it among themselves, directly;
 *   3. within each host, the owners give their slices to all.
 * So all owners of a host share the work and drive the network together, hosts of unequal size fit
 * in, and with one rank on some host it becomes the form with one leader per host.
 *
 * Reduce ends with the owners on the root's host, which hand over to the root. Broadcast starts
 * from the root, which stands for all owners of its host.
 *
 * The sums within the hosts come first, then those over the hosts: every element has the same tree,
 * which depends on which ranks share hosts.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/layout.h"
#include "coll/team.h"

struct two_level {
    const struct coll_shape *shape;
    struct schedule_builder *builder;
    struct layout layout;
    struct team host;    /* the ranks of this host */
    struct part *slices; /* [host's size] empty beyond the owners */
    int *peer_ranks;     /* [host_count] room for a team with one rank of each host */
    bool is_owner;
};

static void two_level_release(struct two_level *level)
{
    coll_layout_release(&level->layout);
    base_free(level->slices);
    base_free(level->peer_ranks);
}

static enum shoal_status two_level_init(const struct coll_shape *shape,
                                        struct schedule_builder *builder, struct two_level *level)
{
    *level = (struct two_level){.shape = shape, .builder = builder};
    struct layout *layout = &level->layout;
    TRY(coll_layout_init(shape, layout));
    int host_size = coll_layout_host_size(layout, layout->host);
    enum shoal_status status = BASE_NEW_ARRAY(&level->slices, host_size, "a team's parts");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&level->peer_ranks, shape->host_count, "a team's ranks");
    if (status != SHOAL_OK) {
        two_level_release(level);
        return status;
    }
    coll_parts_cut(shape->count, level->slices, layout->smallest);
    level->is_owner = layout->local < layout->smallest;
    level->host = (struct team){.ranks = &layout->ranks[layout->first[layout->host]],
                                .size = host_size,
                                .me = layout->local};
    return SHOAL_OK;
}

/* The team of the owners of one slice, one of each host, in host order. */
static struct team owners_of(const struct two_level *level, int slice)
{
    for (int host = 0; host < level->layout.host_count; host++)
        level->peer_ranks[host] = coll_layout_rank(&level->layout, host, slice);
    return (struct team){
        .ranks = level->peer_ranks, .size = level->layout.host_count, .me = level->layout.host};
}

/* Step 1: sums the host's parts of this rank's slice at `place`; returns where the sum is, which is
 * the input where the rank is alone. */
static enum shoal_status reduce_on_host(struct two_level *level, struct schedule_span place,
                                        struct schedule_span *out)
{
    struct schedule_span input = span_of(BUFFER_INPUT, 0, level->shape->count);
    if (level->host.size == 1) {
        *out = coll_part_at(input, level->slices[0]);
        return SHOAL_OK;
    }
    *out = place;
    return coll_team_reduce(level->builder, &level->host, level->slices, input, place,
                            level->shape->segment_count, false);
}

static enum shoal_status run_allreduce(struct two_level *level)
{
    uint64_t segment_count = level->shape->segment_count;
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, level->shape->count), sum;
    struct schedule_span slice = coll_part_at(output, level->slices[level->layout.local]);
    TRY(reduce_on_host(level, slice, &sum));
    if (level->is_owner) {
        struct team owners = owners_of(level, level->layout.local);
        TRY(coll_team_allreduce(level->builder, &owners, sum, slice, segment_count));
    }
    coll_team_share(level->builder, &level->host, level->slices, slice, output, segment_count);
    return SHOAL_OK;
}

static enum shoal_status run_reduce(struct two_level *level)
{
    const struct coll_shape *shape = level->shape;
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count), sum;
    struct part own = level->slices[level->layout.local];
    struct schedule_span slice = coll_part_at(output, own);
    if (shape->rank != shape->root)
        slice = schedule_scratch(level->builder, own.count);
    int root_host = shape->host_of[shape->root];
    TRY(reduce_on_host(level, slice, &sum));
    if (level->is_owner) {
        struct team owners = owners_of(level, level->layout.local);
        TRY(coll_team_reduce_to(level->builder, &owners, root_host, sum, slice,
                                shape->segment_count));
    }
    if (level->layout.host != root_host)
        return SHOAL_OK;
    int root = 0;
    while (level->host.ranks[root] != shape->root)
        root++;
    coll_team_collect(level->builder, &level->host, level->slices, root, slice, output,
                      shape->segment_count);
    return SHOAL_OK;
}

/* Slice `slice` goes from the root to its owners on the other hosts. The root's own copy is made
 * later, with the one on its host. */
static enum shoal_status broadcast_slice(struct two_level *level, int slice, struct part part)
{
    const struct coll_shape *shape = level->shape;
    int root_host = shape->host_of[shape->root];
    struct team owners = owners_of(level, slice);
    level->peer_ranks[root_host] = shape->root;
    struct schedule_span from = coll_part_at(span_of(BUFFER_INPUT, 0, 0), part);
    struct schedule_span into = coll_part_at(span_of(BUFFER_OUTPUT, 0, 0), part);
    return coll_team_broadcast(level->builder, &owners, root_host, from,
                               shape->rank == shape->root ? from : into, shape->segment_count);
}

static enum shoal_status run_broadcast(struct two_level *level)
{
    const struct coll_shape *shape = level->shape;
    struct schedule_span input = span_of(BUFFER_INPUT, 0, shape->count);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count);
    int local = level->layout.local;
    if (level->layout.host != shape->host_of[shape->root]) {
        if (level->is_owner)
            TRY(broadcast_slice(level, local, level->slices[local]));
        coll_team_share(level->builder, &level->host, level->slices,
                        coll_part_at(output, level->slices[local]), output, shape->segment_count);
        return SHOAL_OK;
    }
    for (int slice = 0; slice < level->layout.smallest && shape->rank == shape->root; slice++)
        TRY(broadcast_slice(level, slice, level->slices[slice]));
    int root = 0;
    while (level->host.ranks[root] != shape->root)
        root++;
    return coll_team_broadcast(level->builder, &level->host, root, input, output,
                               shape->segment_count);
}

static enum shoal_status emit(const struct coll_shape *shape, struct schedule_builder *builder)
{
    struct two_level level;
    TRY(two_level_init(shape, builder, &level));
    enum shoal_status status;
    if (shape->kind == COLL_ALLREDUCE)
        status = run_allreduce(&level);
    else if (shape->kind == COLL_REDUCE)
        status = run_reduce(&level);
    else
        status = run_broadcast(&level);
    two_level_release(&level);
    return status;
}

static bool has_two_levels(const struct coll_shape *shape)
{
    return shape->host_count > 1 && shape->host_count < shape->size;
}

const struct coll_algorithm coll_two_level_allreduce = {
    .name = "two_level",
    .kind = COLL_ALLREDUCE,
    .summary = "sum on each host, direct among hosts, share on each host: 4 rounds, "
               "2(h-1)/h n sent per host",
    .same_tree = true,
    .fits = has_two_levels,
    .emit = emit,
};

const struct coll_algorithm coll_two_level_reduce = {
    .name = "two_level",
    .kind = COLL_REDUCE,
    .summary = "sum on each host, direct to the root's host, then the root: 4 rounds, n per host",
    .same_tree = true,
    .fits = has_two_levels,
    .emit = emit,
};

const struct coll_algorithm coll_two_level_broadcast = {
    .name = "two_level",
    .kind = COLL_BROADCAST,
    .summary = "direct from the root to each host, share on each host: 3 rounds, n per host",
    .same_tree = true,
    .rounds_once = true,
    .fits = has_two_levels,
    .emit = emit,
};
