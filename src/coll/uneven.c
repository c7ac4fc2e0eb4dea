/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uneven.c: an allreduce whose owners sum unequal shares of the buffer, for links of unequal rate
 * (comm/shares.h has the optimum) and with servers (owners.c).
 *
 * It is the direct exchange: each rank sends its part of a share to the share's owner, which sums
 * and sends the result to all. The buffer is cut in pieces and each piece by the shares, so that
 * every link carries its due in every moment, also that of a rank with a small share. A rank
 * without a share sends its input and gets the results; a server has nothing but a share, and keeps
 * the sums of a few pieces in scratch while they leave.
 *
 * Shares are measured, so they may change from one operation to the next, and no sum's order may
 * depend on them. So the algorithm that the table chose gives the order: that of the ranks, or that
 * of a ring, where the sum of block b begins at rank b+1 and ends at rank b.
 */
#include "coll/uneven.h"

#include "base/memory.h"
#include "base/status.h"
#include "coll/segments.h"
#include "coll/team.h"

/* floor(count * share / whole) without overflow. */
static uint64_t part_of(uint64_t count, uint64_t share)
{
    return count / SCHEDULE_SHARES_WHOLE * share +
           count % SCHEDULE_SHARES_WHOLE * share / SCHEDULE_SHARES_WHOLE;
}

/* Cuts count elements by the shares. */
static void cut(uint64_t count, const uint32_t *shares, struct part *parts, int part_count)
{
    uint64_t before = 0;
    for (int i = 0; i < part_count; i++) {
        uint64_t begin = part_of(count, before);
        before += shares[i];
        parts[i] = (struct part){begin, part_of(count, before) - begin};
    }
}

#define PART_BYTES_MIN    (UINT64_C(16) << 10)
#define SERVED_PART_BYTES (UINT64_C(32) << 10) /* measured: docs/servers.md */

/* Elements of a piece whose largest part is half a segment, or with servers of a length that is
 * best where all flows of a rank go to a few ports: the last piece's way through the slowest link
 * and its result's way back come on top of the link's due, so pieces are short. */
static uint64_t piece_count(const struct uneven *uneven, uint64_t segment, size_t elem_bytes)
{
    uint64_t largest = 1;
    bool is_served = uneven->team.server_count > 0;
    for (int i = 0; i < uneven->team.size; i++)
        if (uneven->shares[i] > largest)
            largest = uneven->shares[i];
    if (is_served && segment * elem_bytes > SERVED_PART_BYTES)
        segment = SERVED_PART_BYTES / elem_bytes;
    else if (!is_served && segment / 2 * elem_bytes >= PART_BYTES_MIN)
        segment /= 2;
    return segment / largest * SCHEDULE_SHARES_WHOLE +
           segment % largest * SCHEDULE_SHARES_WHOLE / largest;
}

/* So many pieces' sums can be on their way from a server while it receives the next piece. */
#define SUMS_KEPT 4

static bool is_server(const struct uneven *uneven)
{
    return uneven->team.me >= uneven->team.size - uneven->team.server_count;
}

enum shoal_status coll_uneven_init(const struct coll_shape *shape, struct schedule_builder *builder,
                                   enum owners owners, const int *ranks, int me, uint64_t count,
                                   size_t elem_bytes, struct uneven *uneven)
{
    *uneven = (struct uneven){.builder = builder,
                              .team = {.ranks = ranks,
                                       .size = coll_owner_count(shape, owners),
                                       .me = me,
                                       .server_count = shape->server_count,
                                       .again = true}};
    enum shoal_status status =
        BASE_NEW_ARRAY(&uneven->shares, uneven->team.size, "the shards of an allreduce");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&uneven->parts, uneven->team.size, "the parts of an allreduce");
    if (status == SHOAL_OK)
        status = coll_owner_shares(shape, owners, uneven->shares);
    if (status != SHOAL_OK) {
        coll_uneven_release(uneven);
        return status;
    }
    uint64_t segment = shape->segment_count < count ? shape->segment_count : count;
    uneven->piece_count = piece_count(uneven, segment, elem_bytes);
    if (is_server(uneven)) {
        uneven->sum_count = part_of(uneven->piece_count, uneven->shares[me]) + 1; /* cuts round */
        uneven->sums = schedule_scratch(builder, SUMS_KEPT * uneven->sum_count);
    }
    return SHOAL_OK;
}

void coll_uneven_release(struct uneven *uneven)
{
    base_free(uneven->shares);
    base_free(uneven->parts);
}

enum shoal_status coll_uneven_piece(struct uneven *uneven, struct schedule_span from,
                                    struct schedule_span into)
{
    struct team *team = &uneven->team;
    if (into.count == 0)
        return SHOAL_OK;
    uint64_t number = uneven->pieces_begun++;
    cut(into.count, uneven->shares, uneven->parts, team->size);
    struct schedule_span own =
        is_server(uneven) ? coll_span_within(uneven->sums, number % SUMS_KEPT * uneven->sum_count,
                                             uneven->sum_count)
                          : coll_part_at(into, uneven->parts[team->me]);
    TRY(coll_team_reduce(uneven->builder, team, uneven->parts, from, own, into.count, true));
    coll_team_share(uneven->builder, team, uneven->parts, own, into, into.count);
    return SHOAL_OK;
}

static enum shoal_status emit_range(struct uneven *uneven, struct part range)
{
    struct schedule_span input = coll_part_at(span_of(BUFFER_INPUT, 0, 0), range);
    struct schedule_span output = coll_part_at(span_of(BUFFER_OUTPUT, 0, 0), range);
    uint64_t pieces = range.count ? coll_segments_in(range.count, uneven->piece_count) : 0;
    for (uint64_t number = 0; number < pieces; number++)
        TRY(coll_uneven_piece(uneven, coll_segment_of(input, number, uneven->piece_count),
                              coll_segment_of(output, number, uneven->piece_count)));
    return SHOAL_OK;
}

/* Block by block as a ring sums them. */
static enum shoal_status emit_blocks(struct uneven *uneven, uint64_t count)
{
    struct part *blocks;
    int size = uneven->team.size;
    TRY(BASE_NEW_ARRAY(&blocks, size, "the blocks of an allreduce"));
    coll_parts_cut(count, blocks, size);
    enum shoal_status status = SHOAL_OK;
    for (int block = 0; block < size && status == SHOAL_OK; block++) {
        uneven->team.first = (block + 1) % size;
        status = emit_range(uneven, blocks[block]);
    }
    base_free(blocks);
    return status;
}

enum shoal_status coll_uneven_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder, enum uneven_order order)
{
    struct uneven uneven;
    int *ranks;
    TRY(BASE_NEW_ARRAY(&ranks, shape->size, "a team's ranks"));
    for (int rank = 0; rank < shape->size; rank++)
        ranks[rank] = rank;
    enum shoal_status status = coll_uneven_init(shape, builder, OWNERS_RANKS, ranks, shape->rank,
                                                shape->count, shape->elem_bytes, &uneven);
    if (status == SHOAL_OK) {
        status = order == UNEVEN_RANKS ? emit_range(&uneven, (struct part){0, shape->count})
                                       : emit_blocks(&uneven, shape->count);
        coll_uneven_release(&uneven);
    }
    base_free(ranks);
    return status;
}
