/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uneven.c: an allreduce whose ranks sum unequal shares of the buffer, for links of unequal rate
 * (comm/shares.h has the optimum).
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

static bool is_server(const struct coll_shape *shape)
{
    return shape->rank >= schedule_rank_count(shape);
}

#define PART_BYTES_MIN    (UINT64_C(16) << 10)
#define SERVED_PART_BYTES (UINT64_C(32) << 10) /* measured: docs/servers.md */

/* Elements of a piece whose largest part is half a segment, or with servers of a length that is
 * best where all flows of a rank go to a few ports: the last piece's way through the slowest link
 * and its result's way back come on top of the link's due, so pieces are short. */
static uint64_t piece_count(const struct coll_shape *shape)
{
    uint64_t largest = 1, segment = shape->segment_count;
    for (int i = 0; i < shape->size; i++)
        if (shape->shares[i] > largest)
            largest = shape->shares[i];
    if (segment > shape->count)
        segment = shape->count;
    if (shape->server_count > 0 && segment * shape->elem_bytes > SERVED_PART_BYTES)
        segment = SERVED_PART_BYTES / shape->elem_bytes;
    else if (shape->server_count == 0 && segment / 2 * shape->elem_bytes >= PART_BYTES_MIN)
        segment /= 2;
    return segment / largest * SCHEDULE_SHARES_WHOLE +
           segment % largest * SCHEDULE_SHARES_WHOLE / largest;
}

/* All get the sum of the piece; `sums`: where a server keeps its part of it. */
static enum shoal_status emit_piece(const struct coll_shape *shape,
                                    struct schedule_builder *builder, struct team *team,
                                    struct part *parts, struct part piece,
                                    struct schedule_span sums)
{
    struct schedule_span from = span_of(BUFFER_INPUT, piece.offset, piece.count);
    struct schedule_span into = span_of(BUFFER_OUTPUT, piece.offset, piece.count);
    cut(piece.count, shape->shares, parts, shape->size);
    struct schedule_span own = is_server(shape) ? sums : coll_part_at(into, parts[shape->rank]);
    TRY(coll_team_reduce(builder, team, parts, from, own, piece.count, true));
    coll_team_share(builder, team, parts, own, into, piece.count);
    return SHOAL_OK;
}

/* So many pieces' sums can be on their way from a server while it receives the next piece. */
#define SUMS_KEPT 4

static enum shoal_status emit_range(const struct coll_shape *shape,
                                    struct schedule_builder *builder, struct team *team,
                                    struct part *parts, struct part range)
{
    uint64_t each = piece_count(shape), sum_count = 0;
    struct schedule_span sums = {0};
    if (is_server(shape)) {
        sum_count = part_of(each, shape->shares[shape->rank]) + 1; /* cuts are rounded */
        sums = schedule_scratch(builder, SUMS_KEPT * sum_count);
    }
    for (uint64_t done = 0; done < range.count; done += each) {
        uint64_t left = range.count - done;
        struct part piece = {range.offset + done, left < each ? left : each};
        TRY(emit_piece(shape, builder, team, parts, piece,
                       coll_span_within(sums, done / each % SUMS_KEPT * sum_count, sum_count)));
    }
    return SHOAL_OK;
}

static enum shoal_status emit_ranges(const struct coll_shape *shape,
                                     struct schedule_builder *builder, struct team *team,
                                     struct part *parts, enum uneven_order order)
{
    struct part *blocks = parts + shape->size;
    if (order == UNEVEN_RANKS)
        return emit_range(shape, builder, team, parts, (struct part){0, shape->count});
    coll_parts_cut(shape->count, blocks, shape->size);
    for (int block = 0; block < shape->size; block++) {
        team->first = (block + 1) % shape->size;
        TRY(emit_range(shape, builder, team, parts, blocks[block]));
    }
    return SHOAL_OK;
}

enum shoal_status coll_uneven_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder, enum uneven_order order)
{
    struct part *parts;
    int *ranks;
    TRY(BASE_NEW_ARRAY(&parts, 2 * shape->size, "the parts of an allreduce"));
    enum shoal_status status = BASE_NEW_ARRAY(&ranks, shape->size, "a team's ranks");
    if (status == SHOAL_OK) {
        struct team team = {.ranks = ranks,
                            .size = shape->size,
                            .me = shape->rank,
                            .server_count = shape->server_count,
                            .again = true};
        for (int rank = 0; rank < shape->size; rank++)
            ranks[rank] = rank;
        status = emit_ranges(shape, builder, &team, parts, order);
        base_free(ranks);
    }
    base_free(parts);
    return status;
}
