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
 * With servers these sum over the hosts as well, each a share of every slice, and with shares of
 * hosts the owners do so by them (uneven.c). A server owns no slice and has no input; it gets the
 * hosts' sums of its parts of all slices, piece by piece.
 *
 * A slice goes through these steps in pieces, each a segment per host long, so that the network
 * works on one piece while the hosts work on the next ones; the host's sums need scratch for a few
 * pieces only, however long the buffer is.
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
#include "coll/segments.h"
#include "coll/team.h"
#include "coll/uneven.h"

#define PIECES_AHEAD 4

struct two_level {
    const struct coll_shape *shape;
    struct schedule_builder *builder;
    struct layout layout;
    struct team host;    /* the ranks of this host */
    struct team owners;  /* of this rank's slice, one of each host, if it has one */
    struct part *slices; /* [host's size] empty beyond the owners */
    struct part *pieces; /* [host's size] of the slices, those in hand */
    int *peer_ranks;     /* [host_count + servers] room for a team with one rank of each host */
    bool is_owner;
    struct uneven over_hosts; /* of coll_is_uneven: the owners of this rank's slice, and servers */
    uint64_t piece_count, pieces_total; /* elements of a piece; pieces of the longest slice */
    struct schedule_span sums;          /* of the host, for PIECES_AHEAD pieces */
};

static void two_level_release(struct two_level *level)
{
    coll_layout_release(&level->layout);
    base_free(level->slices);
    base_free(level->pieces);
    base_free(level->peer_ranks);
    coll_uneven_release(&level->over_hosts);
}

/* The team of the owners of one slice, one of each host, in host order. */
static struct team owners_of(const struct two_level *level, int slice)
{
    for (int host = 0; host < level->layout.host_count; host++)
        level->peer_ranks[host] = coll_layout_rank(&level->layout, host, slice);
    return (struct team){
        .ranks = level->peer_ranks, .size = level->layout.host_count, .me = level->layout.host};
}

/* Of coll_is_uneven: the same with the servers behind them, in `ranks`, by their shares. */
static enum shoal_status uneven_of(const struct two_level *level, int slice, int *ranks,
                                   struct uneven *out)
{
    const struct coll_shape *shape = level->shape;
    int hosts = level->layout.host_count, first_server = schedule_rank_count(shape);
    bool is_server = shape->rank >= first_server;
    for (int host = 0; host < hosts; host++)
        ranks[host] = coll_layout_rank(&level->layout, host, slice);
    for (int i = 0; i < shape->server_count; i++)
        ranks[hosts + i] = first_server + i;
    return coll_uneven_init(shape, level->builder, OWNERS_HOSTS, ranks,
                            is_server ? hosts + shape->rank - first_server : level->layout.host,
                            level->slices[0].count,
                            shape->wide_sums ? sizeof(float) : shape->elem_bytes, out);
}

/* The number of a rank of this host on it; the host's size for others. */
static int local_of(const struct two_level *level, int rank)
{
    int local = 0;
    while (local < level->host.size && level->host.ranks[local] != rank)
        local++;
    return local;
}

static enum shoal_status two_level_init(const struct coll_shape *shape,
                                        struct schedule_builder *builder, struct two_level *level)
{
    *level = (struct two_level){.shape = shape, .builder = builder};
    struct layout *layout = &level->layout;
    TRY(coll_layout_init(shape, layout));
    bool is_server = shape->rank >= schedule_rank_count(shape);
    int host_size = is_server ? layout->smallest : coll_layout_host_size(layout, layout->host);
    enum shoal_status status = BASE_NEW_ARRAY(&level->slices, host_size, "a team's parts");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&level->pieces, host_size, "a team's parts");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&level->peer_ranks, layout->host_count + shape->server_count,
                                "a team's ranks");
    if (status != SHOAL_OK) {
        two_level_release(level);
        return status;
    }
    coll_parts_cut(shape->count, level->slices, layout->smallest);
    if (is_server)
        return SHOAL_OK;
    level->is_owner = layout->local < layout->smallest;
    level->host = (struct team){.ranks = &layout->ranks[layout->first[layout->host]],
                                .size = host_size,
                                .me = layout->local};
    return SHOAL_OK;
}

/* ---- allreduce and reduce ------------------------------------------------------------------ */

/* Whether the host has a sum of its own, be it of one rank's input in f32, since the owners of a
 * slice must all have the same width. */
static bool makes_sums(const struct two_level *level)
{
    return level->host.size > 1 || level->shape->wide_sums;
}

/* Cuts the slices in pieces, and takes scratch for their sums. */
static void begin_pieces(struct two_level *level, uint64_t piece_count)
{
    uint64_t longest = level->slices[0].count;
    level->piece_count = piece_count < longest ? piece_count : longest;
    level->pieces_total = longest ? coll_segments_in(longest, level->piece_count) : 0;
    level->host.again = level->pieces_total > 1;
    if (!level->is_owner)
        return;
    level->owners = owners_of(level, level->layout.local);
    level->owners.again = level->host.again;
    uint64_t pieces = level->pieces_total < PIECES_AHEAD ? level->pieces_total : PIECES_AHEAD;
    if (makes_sums(level))
        level->sums = schedule_sums(level->builder, pieces * level->piece_count);
}

/* A segment for every host. */
static uint64_t even_piece_count(const struct coll_shape *shape)
{
    uint64_t hosts = (uint64_t)shape->host_count;
    return shape->segment_count < UINT64_MAX / hosts ? shape->segment_count * hosts : UINT64_MAX;
}

/* Step 1: sums the host's inputs of piece `number` of this rank's slice; *out is where, the input
 * itself if the host has no sum. Its count is the piece's, 0 if the slice has no such piece. */
static enum shoal_status reduce_on_host(struct two_level *level, uint64_t number,
                                        struct schedule_span *out)
{
    struct schedule_span input = span_of(BUFFER_INPUT, 0, level->shape->count);
    for (int local = 0; local < level->host.size; local++) {
        struct schedule_span piece =
            coll_segment_of(coll_part_at(input, level->slices[local]), number, level->piece_count);
        level->pieces[local] = (struct part){piece.offset, piece.count};
    }
    struct part own = level->pieces[level->host.me];
    *out = coll_part_at(input, own);
    if (!makes_sums(level))
        return SHOAL_OK;
    *out = coll_span_within(level->sums, number % PIECES_AHEAD * level->piece_count, own.count);
    return coll_team_reduce(level->builder, &level->host, level->pieces, input, *out,
                            level->shape->segment_count, false);
}

/* Step 2, of one piece. */
static enum shoal_status sum_over_hosts(struct two_level *level, struct schedule_span sum,
                                        struct schedule_span place)
{
    if (coll_is_uneven(level->shape))
        return coll_uneven_piece(&level->over_hosts, sum, place);
    return coll_team_allreduce(level->builder, &level->owners, sum, place,
                               level->shape->segment_count);
}

static enum shoal_status run_allreduce(struct two_level *level)
{
    const struct coll_shape *shape = level->shape;
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count), sum;
    uint64_t piece_count = even_piece_count(shape);
    if (coll_is_uneven(shape)) {
        TRY(uneven_of(level, level->is_owner ? level->layout.local : 0, level->peer_ranks,
                      &level->over_hosts));
        piece_count = level->over_hosts.piece_count;
    }
    begin_pieces(level, piece_count);
    for (uint64_t number = 0; number < level->pieces_total; number++) {
        TRY(reduce_on_host(level, number, &sum));
        struct schedule_span place = coll_part_at(output, level->pieces[level->host.me]);
        if (level->is_owner)
            TRY(sum_over_hosts(level, sum, place));
        coll_team_share(level->builder, &level->host, level->pieces, place, output,
                        shape->segment_count);
    }
    return SHOAL_OK;
}

/* Piece after piece of all slices. The spans of the hosts' sums, which a server does not have, only
 * say how many elements there are, and how wide. */
static enum shoal_status serve_slices(const struct two_level *level, struct uneven *over_hosts)
{
    enum schedule_buffer sums = level->shape->wide_sums ? BUFFER_WIDE : BUFFER_SCRATCH;
    uint64_t longest = level->slices[0].count, piece_count = over_hosts[0].piece_count;
    uint64_t pieces = longest ? coll_segments_in(longest, piece_count) : 0;
    for (uint64_t number = 0; number < pieces; number++)
        for (int slice = 0; slice < level->layout.smallest; slice++) {
            uint64_t count =
                coll_segment_of(span_of(sums, 0, level->slices[slice].count), number, piece_count)
                    .count;
            TRY(coll_uneven_piece(&over_hosts[slice], span_of(sums, 0, count),
                                  span_of(BUFFER_OUTPUT, 0, count)));
        }
    return SHOAL_OK;
}

static enum shoal_status run_server(const struct two_level *level)
{
    struct uneven *over_hosts;
    int *ranks = NULL, slices = level->layout.smallest;
    int owners = coll_owner_count(level->shape, OWNERS_HOSTS);
    TRY(BASE_NEW_ARRAY(&over_hosts, slices, "the slices of an allreduce"));
    enum shoal_status status = BASE_NEW_ARRAY(&ranks, slices * owners, "a team's ranks");
    for (int slice = 0; slice < slices && status == SHOAL_OK; slice++)
        status = uneven_of(level, slice, ranks + slice * owners, &over_hosts[slice]);
    if (status == SHOAL_OK)
        status = serve_slices(level, over_hosts);
    for (int slice = 0; slice < slices; slice++)
        coll_uneven_release(&over_hosts[slice]);
    base_free(over_hosts);
    base_free(ranks);
    return status;
}

static enum shoal_status run_reduce(struct two_level *level)
{
    const struct coll_shape *shape = level->shape;
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count), sum;
    struct schedule_span slice = coll_part_at(output, level->slices[level->host.me]);
    int root_host = shape->host_of[shape->root], root = local_of(level, shape->root);
    if (level->layout.host == root_host && level->host.me != root)
        slice = schedule_scratch(level->builder, slice.count);
    begin_pieces(level, even_piece_count(shape));
    for (uint64_t number = 0; number < level->pieces_total; number++) {
        TRY(reduce_on_host(level, number, &sum));
        struct schedule_span place = coll_segment_of(slice, number, level->piece_count);
        if (level->is_owner)
            TRY(coll_team_reduce_to(level->builder, &level->owners, root_host, sum, place,
                                    shape->segment_count));
        if (level->layout.host == root_host)
            coll_team_collect(level->builder, &level->host, level->pieces, root, place, output,
                              shape->segment_count);
    }
    return SHOAL_OK;
}

/* ---- broadcast ----------------------------------------------------------------------------- */

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
    return coll_team_broadcast(level->builder, &level->host, local_of(level, shape->root), input,
                               output, shape->segment_count);
}

static enum shoal_status emit(const struct coll_shape *shape, struct schedule_builder *builder)
{
    struct two_level level;
    TRY(two_level_init(shape, builder, &level));
    enum shoal_status status;
    if (shape->rank >= schedule_rank_count(shape))
        status = run_server(&level);
    else if (shape->kind == COLL_ALLREDUCE)
        status = run_allreduce(&level);
    else if (shape->kind == COLL_REDUCE)
        status = run_reduce(&level);
    else
        status = run_broadcast(&level);
    two_level_release(&level);
    return status;
}

const struct coll_algorithm coll_two_level_allreduce = {
    .name = "two_level",
    .kind = COLL_ALLREDUCE,
    .summary = "sum on each host, direct among hosts, share on each host: 4 rounds, "
               "2(h-1)/h n sent per host",
    .same_tree = true,
    .follows_shares = true,
    .takes_servers = true,
    .fits = coll_layout_is_stacked,
    .emit = emit,
};

const struct coll_algorithm coll_two_level_reduce = {
    .name = "two_level",
    .kind = COLL_REDUCE,
    .summary = "sum on each host, direct to the root's host, then the root: 4 rounds, n per host",
    .same_tree = true,
    .fits = coll_layout_is_stacked,
    .emit = emit,
};

const struct coll_algorithm coll_two_level_broadcast = {
    .name = "two_level",
    .kind = COLL_BROADCAST,
    .summary = "direct from the root to each host, share on each host: 3 rounds, n per host",
    .same_tree = true,
    .one_reduce = true,
    .fits = coll_layout_is_stacked,
    .emit = emit,
};
