/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halving.c: reduce-scatter by recursive halving, and allreduce as that followed by an allgather by
 * recursive doubling (Rabenseifner, Optimization of collective reduction operations, 2004).
 *
 * Halving: a rank starts with the whole range. In each round it exchanges halves of its range with
 * the rank at distance core/2, core/4, …, 1: it sends the half that the peer keeps, and adds what
 * arrives to the half that it keeps, the lower rank's operand first. After log2 p rounds it has the
 * complete sum of one part. Doubling runs the rounds backwards: pairs exchange all they have.
 * 2 log2 p rounds, 2(p-1)/p n sent: the lower bound in bytes with few rounds.
 *
 * Every round splits the ranks by one bit of the core rank and puts the lower one first, so each
 * element has the same tree wherever it lies. Ranks beyond a power of two: fold.h; in
 * reduce-scatter the core rank of a pair keeps both blocks and hands the even one's over at the
 * end.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/fold.h"
#include "coll/segments.h"
#include "coll/team.h"

/* What the halving works on. */
struct halving {
    const struct coll_shape *shape;
    struct schedule_builder *builder;
    struct fold fold;
    uint64_t *begin;            /* [core+1] of the core ranks' parts in the range */
    struct schedule_span value; /* where this rank's sum is now: INPUT, then `sum` */
    struct schedule_span sum;   /* the range where sums are kept */
};

/* The part of `range` that core ranks [first, last) keep. */
static struct schedule_span kept_by(const struct halving *halving, struct schedule_span range,
                                    int first, int last)
{
    return coll_span_within(range, halving->begin[first],
                            halving->begin[last] - halving->begin[first]);
}

/* One round with the core rank at `distance`: both hold 2*distance parts from `first` on. Puts the
 * sum of the half that this rank keeps at `to`. */
static void halve(struct halving *halving, int first, int distance, struct schedule_span to,
                  bool final)
{
    struct schedule_builder *builder = halving->builder;
    uint64_t segment_count = halving->shape->segment_count;
    int me = halving->fold.core_rank, core_peer = me ^ distance;
    int peer = coll_fold_rank(&halving->fold, core_peer);
    int mine = me & distance ? first + distance : first;
    int theirs = me & distance ? first : first + distance;

    struct schedule_span given = kept_by(halving, halving->value, theirs, theirs + distance);
    struct schedule_span kept = kept_by(halving, halving->value, mine, mine + distance);
    bool gets_sum =
        distance < halving->fold.core / 2 || coll_fold_is_pair(&halving->fold, core_peer);
    struct schedule_span arrived =
        gets_sum ? schedule_sums(builder, kept.count) : schedule_scratch(builder, kept.count);
    coll_segments_send(builder, peer, given, segment_count);
    coll_segments_recv(builder, peer, arrived, segment_count);
    bool lower = core_peer < me;
    to.count = kept.count;
    coll_segments_reduce(builder, to, lower ? arrived : kept, lower ? kept : arrived, segment_count,
                         final);
}

/* All rounds but the last one, whose result the callers place differently. */
static void halve_until_last(struct halving *halving)
{
    int me = halving->fold.core_rank;
    for (int distance = halving->fold.core / 2; distance > 1; distance /= 2) {
        int first = me & ~(2 * distance - 1), mine = me & ~(distance - 1);
        halve(halving, first, distance, kept_by(halving, halving->sum, mine, mine + distance),
              false);
        halving->value = halving->sum;
    }
}

static enum shoal_status halving_init(const struct coll_shape *shape,
                                      struct schedule_builder *builder, struct halving *halving)
{
    *halving = (struct halving){.shape = shape, .builder = builder};
    halving->fold = coll_fold_of(shape->rank, shape->size);
    return BASE_NEW_ARRAY(&halving->begin, halving->fold.core + 1, "the parts of a halving");
}

/* ---- allreduce ----------------------------------------------------------------------------- */

/* Pairs exchange all they have; a rank has `distance` parts before the round. */
static void double_back(const struct halving *halving, struct schedule_span output)
{
    int me = halving->fold.core_rank;
    uint64_t segment_count = halving->shape->segment_count;
    for (int distance = 1; distance < halving->fold.core; distance *= 2) {
        int peer = coll_fold_rank(&halving->fold, me ^ distance);
        int mine = me & ~(distance - 1), theirs = mine ^ distance;
        coll_segments_send(halving->builder, peer, kept_by(halving, output, mine, mine + distance),
                           segment_count);
        coll_segments_recv(halving->builder, peer,
                           kept_by(halving, output, theirs, theirs + distance), segment_count);
    }
}

static enum shoal_status cut_evenly(struct halving *halving)
{
    int core = halving->fold.core;
    struct part *parts;
    TRY(BASE_NEW_ARRAY(&parts, core, "the parts of a halving"));
    coll_parts_cut(halving->shape->count, parts, core);
    for (int i = 0; i < core; i++)
        halving->begin[i] = parts[i].offset;
    halving->begin[core] = halving->shape->count;
    base_free(parts);
    return SHOAL_OK;
}

static enum shoal_status emit_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    struct schedule_span input = span_of(BUFFER_INPUT, 0, shape->count);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count);
    if (shape->size == 1) {
        schedule_reduce(builder, output, &input, 1, true);
        return SHOAL_OK;
    }
    struct halving halving;
    TRY(halving_init(shape, builder, &halving));
    enum shoal_status status = cut_evenly(&halving);
    halving.sum = schedule_sums_at(builder, output);
    halving.value = coll_fold_in(builder, &halving.fold, input, halving.sum, shape->segment_count);
    if (status == SHOAL_OK && halving.fold.core_rank >= 0) {
        int me = halving.fold.core_rank;
        halve_until_last(&halving);
        halve(&halving, me & ~1, 1, kept_by(&halving, output, me, me + 1), true);
        double_back(&halving, output);
    }
    coll_fold_out(builder, &halving.fold, output, shape->segment_count);
    base_free(halving.begin);
    return status;
}

/* ---- reduce-scatter ------------------------------------------------------------------------ */

/* The last round. The core rank of a pair gets two blocks in scratch: the partner's and its own. */
static void finish_blocks(struct halving *halving)
{
    const struct coll_shape *shape = halving->shape;
    int me = halving->fold.core_rank;
    struct schedule_span output =
        span_of(BUFFER_OUTPUT, 0, schedule_block_count(shape, shape->rank));
    if (halving->fold.partner < 0) {
        halve(halving, me & ~1, 1, output, true);
        return;
    }
    struct schedule_span both =
        schedule_scratch(halving->builder, halving->begin[me + 1] - halving->begin[me]);
    halve(halving, me & ~1, 1, both, true);
    uint64_t theirs = schedule_block_count(shape, halving->fold.partner);
    coll_segments_send(halving->builder, halving->fold.partner, coll_span_within(both, 0, theirs),
                       shape->segment_count);
    schedule_copy(halving->builder, output, coll_span_within(both, theirs, output.count));
}

static void begins_of_blocks(struct halving *halving)
{
    uint64_t offset = 0;
    for (int rank = 0, core_rank = 0; rank <= halving->shape->size; rank++) {
        if (rank == coll_fold_first(&halving->fold, core_rank))
            halving->begin[core_rank++] = offset;
        if (rank < halving->shape->size)
            offset += schedule_block_count(halving->shape, rank);
    }
}

static enum shoal_status emit_reduce_scatter(const struct coll_shape *shape,
                                             struct schedule_builder *builder)
{
    struct schedule_span output =
        span_of(BUFFER_OUTPUT, 0, schedule_block_count(shape, shape->rank));
    if (shape->size == 1) {
        struct schedule_span input = span_of(BUFFER_INPUT, 0, output.count);
        schedule_reduce(builder, output, &input, 1, true);
        return SHOAL_OK;
    }
    struct halving halving;
    TRY(halving_init(shape, builder, &halving));
    begins_of_blocks(&halving);
    uint64_t total = halving.begin[halving.fold.core];
    struct schedule_span input = span_of(BUFFER_INPUT, 0, total);
    if (halving.fold.core_rank >= 0)
        halving.sum = schedule_sums(builder, total);
    halving.value = coll_fold_in(builder, &halving.fold, input, halving.sum, shape->segment_count);
    if (halving.fold.core_rank >= 0) {
        halve_until_last(&halving);
        finish_blocks(&halving);
    } else {
        coll_segments_recv(builder, halving.fold.partner, output, shape->segment_count);
    }
    base_free(halving.begin);
    return SHOAL_OK;
}

const struct coll_algorithm coll_halving_doubling_allreduce = {
    .name = "halving_doubling",
    .kind = COLL_ALLREDUCE,
    .summary = "halving reduce-scatter, doubling allgather: 2 log2 p rounds, 2(p-1)/p n sent",
    .same_tree = true,
    .emit = emit_allreduce,
};

const struct coll_algorithm coll_halving_reduce_scatter = {
    .name = "halving",
    .kind = COLL_REDUCE_SCATTER,
    .summary = "pairs at distance p/2, …, 1 exchange halves: log2 p rounds, (p-1) n sent",
    .same_tree = true,
    .emit = emit_reduce_scatter,
};
