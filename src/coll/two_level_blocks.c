/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_level_blocks.c: allgather and reduce-scatter for several ranks on each of several hosts, so
 * that the network carries each block once per host.
 *
 * Rank number i of a host has a deputy on every other host: rank number i modulo that host's size.
 * Allgather: a rank sends its block to the ranks of its own host and to its deputies, and each
 * deputy passes it on to the ranks of its host. Reduce-scatter is the same backwards: on each host
 * all send their part of block b to the deputy of rank b, which sums them and sends the sum to rank
 * b; that adds up the sums of all hosts, in host order.
 *
 * Two rounds within a host and among hosts; the deputies of a host share the work evenly where
 * hosts are of equal size. Ranks of one host go through the blocks in one order, the next host's
 * first, so messages between two of them match.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/layout.h"
#include "coll/segments.h"
#include "coll/team.h"

#define WINDOW_SLOTS 4

struct two_level {
    const struct coll_shape *shape;
    struct schedule_builder *builder;
    struct layout layout;
    struct team host;    /* the ranks of this host */
    struct part *blocks; /* [size] */
    struct part *parts;  /* [host's size] room for a coll_team_reduce */
};

static void two_level_release(struct two_level *level)
{
    coll_layout_release(&level->layout);
    base_free(level->blocks);
    base_free(level->parts);
}

static enum shoal_status two_level_init(const struct coll_shape *shape,
                                        struct schedule_builder *builder, struct two_level *level)
{
    *level = (struct two_level){.shape = shape, .builder = builder};
    struct layout *layout = &level->layout;
    TRY(coll_layout_init(shape, layout));
    level->host = (struct team){.ranks = &layout->ranks[layout->first[layout->host]],
                                .size = coll_layout_host_size(layout, layout->host),
                                .me = layout->local};
    enum shoal_status status = BASE_NEW_ARRAY(&level->blocks, shape->size, "a group's blocks");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&level->parts, level->host.size, "a team's parts");
    if (status != SHOAL_OK) {
        two_level_release(level);
        return status;
    }
    coll_parts_of_blocks(shape, level->blocks);
    return SHOAL_OK;
}

/* The number, on `host`, of the deputy of rank number `local` of another host. */
static int deputy_of(const struct two_level *level, int host, int local)
{
    return local % coll_layout_host_size(&level->layout, host);
}

/* ---- allgather ----------------------------------------------------------------------------- */

/* Sends a block to the other ranks of this host, or receives it from their rank number `local`. */
static void pass_on_host(const struct two_level *level, int local, struct schedule_span block)
{
    const struct team *host = &level->host;
    if (local != host->me) {
        coll_segments_recv(level->builder, host->ranks[local], block, level->shape->segment_count);
        return;
    }
    for (int distance = 1; distance < host->size; distance++)
        coll_segments_send(level->builder, host->ranks[(local + distance) % host->size], block,
                           level->shape->segment_count);
}

static void run_allgather(const struct two_level *level)
{
    const struct coll_shape *shape = level->shape;
    const struct layout *layout = &level->layout;
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, 0);
    struct schedule_span own = span_of(BUFFER_INPUT, 0, level->blocks[shape->rank].count);
    for (int distance = 1; distance < layout->host_count; distance++) {
        int host = coll_layout_host_after(layout, distance);
        coll_segments_send(level->builder,
                           coll_layout_rank(layout, host, deputy_of(level, host, layout->local)),
                           own, shape->segment_count);
    }
    for (int local = 0; local < level->host.size; local++)
        pass_on_host(level, local,
                     local == layout->local
                         ? own
                         : coll_part_at(output, level->blocks[level->host.ranks[local]]));
    for (int distance = 1; distance < layout->host_count; distance++) {
        int host = coll_layout_host_after(layout, layout->host_count - distance);
        for (int local = 0; local < coll_layout_host_size(layout, host); local++) {
            int rank = coll_layout_rank(layout, host, local);
            int deputy = deputy_of(level, layout->host, local);
            struct schedule_span block = coll_part_at(output, level->blocks[rank]);
            if (deputy == layout->local)
                coll_segments_recv(level->builder, rank, block, shape->segment_count);
            pass_on_host(level, deputy, block);
        }
    }
    schedule_copy(level->builder, coll_part_at(output, level->blocks[shape->rank]), own);
}

/* ---- reduce-scatter ------------------------------------------------------------------------ */

/* Sums this host's parts of the blocks of `host`'s ranks number `first` to first + (ranks here) -
 * 1, one at each rank here. *out is where this rank's is; its count is 0 if it has none. */
static enum shoal_status reduce_on_host(struct two_level *level, int host, int first,
                                        struct schedule_span *out)
{
    int left = coll_layout_host_size(&level->layout, host) - first;
    for (int local = 0; local < level->host.size; local++)
        level->parts[local] =
            local < left ? level->blocks[coll_layout_rank(&level->layout, host, first + local)]
                         : (struct part){0};
    struct schedule_span input = span_of(BUFFER_INPUT, 0, 0);
    *out = coll_part_at(input, level->parts[level->host.me]);
    if (level->host.size == 1)
        return SHOAL_OK;
    *out = schedule_sums(level->builder, out->count);
    return coll_team_reduce(level->builder, &level->host, level->parts, input, *out,
                            level->shape->segment_count, false);
}

/* `count` elements of scratch for the slots of each other host: what comes from a host with one
 * rank is its input and no sum. */
static void take_slots(const struct two_level *level, struct schedule_span *slots, uint64_t count)
{
    const struct layout *layout = &level->layout;
    for (int host = 0; host < layout->host_count; host++) {
        if (host == layout->host)
            continue;
        bool sends_sum = coll_layout_host_size(layout, host) > 1;
        slots[host] = sends_sum ? schedule_sums(level->builder, count)
                                : schedule_scratch(level->builder, count);
    }
}

/* Adds the other hosts' sums of this rank's block to `own`, this host's. */
static enum shoal_status reduce_over_hosts(struct two_level *level, struct schedule_span own)
{
    const struct layout *layout = &level->layout;
    uint64_t segment_count = level->shape->segment_count;
    struct schedule_span *sources;
    TRY(BASE_NEW_ARRAY(&sources, 2 * layout->host_count, "a reduce's sources"));
    struct schedule_span *slots = sources + layout->host_count;
    uint64_t segments = coll_segments_in(own.count, segment_count);
    uint64_t slot_count = own.count < segment_count ? own.count : segment_count;
    uint64_t window = segments < WINDOW_SLOTS ? segments : WINDOW_SLOTS;
    take_slots(level, slots, window * slot_count);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, own.count);
    for (uint64_t segment = 0; segment < segments; segment++) {
        struct schedule_span piece = coll_segment_of(own, segment, segment_count);
        sources[layout->host] = piece;
        for (int distance = 1; distance < layout->host_count; distance++) {
            int host = coll_layout_host_after(layout, layout->host_count - distance);
            sources[host] =
                coll_span_within(slots[host], segment % window * slot_count, piece.count);
            schedule_recv(level->builder,
                          coll_layout_rank(layout, host, deputy_of(level, host, layout->local)),
                          sources[host]);
        }
        schedule_reduce(level->builder, coll_segment_of(output, segment, segment_count), sources,
                        layout->host_count, true);
    }
    base_free(sources);
    return SHOAL_OK;
}

static enum shoal_status run_reduce_scatter(struct two_level *level)
{
    const struct layout *layout = &level->layout;
    struct schedule_span sum;
    for (int distance = 1; distance < layout->host_count; distance++) {
        int host = coll_layout_host_after(layout, distance);
        int host_size = coll_layout_host_size(layout, host);
        for (int first = 0; first < host_size; first += level->host.size) {
            TRY(reduce_on_host(level, host, first, &sum));
            if (first + layout->local < host_size)
                coll_segments_send(level->builder,
                                   coll_layout_rank(layout, host, first + layout->local), sum,
                                   level->shape->segment_count);
        }
    }
    TRY(reduce_on_host(level, layout->host, 0, &sum));
    return reduce_over_hosts(level, sum);
}

static enum shoal_status emit(const struct coll_shape *shape, struct schedule_builder *builder)
{
    struct two_level level;
    TRY(two_level_init(shape, builder, &level));
    enum shoal_status status = SHOAL_OK;
    if (shape->kind == COLL_ALLGATHER)
        run_allgather(&level);
    else
        status = run_reduce_scatter(&level);
    two_level_release(&level);
    return status;
}

const struct coll_algorithm coll_two_level_allgather = {
    .name = "two_level",
    .kind = COLL_ALLGATHER,
    .summary =
        "to one rank of each host, which passes it on there: 2 rounds, (h-1) n sent to hosts",
    .same_tree = true,
    .one_reduce = true,
    .fits = coll_layout_is_stacked,
    .emit = emit,
};

const struct coll_algorithm coll_two_level_reduce_scatter = {
    .name = "two_level",
    .kind = COLL_REDUCE_SCATTER,
    .summary = "sum each block on each host, then over hosts: 2 rounds, (h-1) n sent to hosts",
    .same_tree = true,
    .fits = coll_layout_is_stacked,
    .emit = emit,
};
