/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moves.c: what put, reduce and take copy and sum, per kind of operation.
 *
 * Sums are always over ranks 0 … p-1 in this order, so the bits don't depend on mode, block or
 * slice.
 */
#include <string.h>

#include "kernel/kernel.h"
#include "local/layout.h"

#define SIZE_MAX_RANKS COMM_LOCAL_MAX

/* ---- layout
 * ------------------------------------------------------------------------------------------------
 */

static uint64_t largest_part(const struct local_op *op)
{
    uint64_t most = local_part_count(op, 0);
    for (int i = 1; op->call.counts && i < op->local->group->size; i++)
        most = local_part_count(op, i) > most ? local_part_count(op, i) : most;
    return most;
}

/* Kinds in which a rank puts something else for each of the others. */
static bool put_per_rank(const struct local_op *op)
{
    enum coll_kind kind = op->call.kind;
    return kind == COLL_REDUCE_SCATTER || kind == COLL_ALLTOALL || kind == COLL_SCATTER;
}

/* Whether all that this rank puts lies in its stamp. */
static bool fits_stamp(const struct local_op *op)
{
    if (!put_per_rank(op))
        return op->bytes <= LOCAL_INLINE_BYTES;
    return !op->call.counts && op->bytes * (size_t)op->local->group->size <= LOCAL_INLINE_BYTES;
}

/* Whether the output should go around the cache: its lines need not be read before they are
 * written, and what peers are about to read stays. Not what was just read as input. */
static bool streaming_pays(const struct local_op *op)
{
    enum coll_kind kind = op->call.kind;
    bool has_parts = kind == COLL_ALLGATHER || kind == COLL_GATHER || kind == COLL_ALLTOALL;
    if (local_sums(op) && op->call.in_place)
        return false;
    return op->bytes * (has_parts ? (size_t)op->local->group->size : 1) >= op->local->stream_bytes;
}

/* Two ranks that both put and take the same can change their stages now and then: who has read a
 * line writes it next, and so needs no leave of the other core for that. They then have twice the
 * stages, which must stay in the second-level cache. */
#define SWAP_BYTES_MAX ((size_t)256 << 10)

static bool swapping_pays(const struct local_op *op)
{
    enum coll_kind kind = op->call.kind;
    return op->local->may_swap && (kind == COLL_ALLGATHER || kind == COLL_ALLTOALL) &&
           op->bytes <= SWAP_BYTES_MAX;
}

/* Of a stage's blocks sums and rooted copies use only so much, smaller pieces: what one rank has
 * put another reads while it is still near, and the root is not a whole large block ahead. Where
 * all put and take at once nothing is gained by that. */
#define SUM_SLICE_BYTES  ((size_t)64 << 10) /* of each rank */
#define ROOT_PIECE_BYTES ((size_t)128 << 10)

static size_t piece_bytes(const struct local_op *op)
{
    const struct local_group *local = op->local;
    if (op->call.kind == COLL_BROADCAST || op->call.kind == COLL_GATHER)
        return local_min(ROOT_PIECE_BYTES, local->block_bytes);
    if (op->mode == LOCAL_SLICED)
        return local_min(SUM_SLICE_BYTES * (size_t)local->group->size, local->block_bytes);
    return local->block_bytes;
}

void local_op_lay_out(struct local_op *op)
{
    const struct local_group *local = op->local;
    uint64_t n = op->call.kind == COLL_BARRIER ? 0 : largest_part(op);
    size_t bytes = n * op->elem_bytes;
    op->bytes = bytes;
    op->reduces = op->streams = op->in_peer = op->swaps = false;
    if (fits_stamp(op)) { /* no division on the shortest way */
        op->mode = LOCAL_INLINE;
        op->block_elems = LOCAL_INLINE_BYTES;
        op->block_count = 1;
        return;
    }
    op->streams = streaming_pays(op);
    op->swaps = swapping_pays(op);
    if (put_per_rank(op)) {
        op->mode = LOCAL_SLICED;
        op->block_elems = local->slice_bytes / op->elem_bytes;
    } else {
        op->mode = LOCAL_SYMMETRIC;
        if (local_sums(op) && bytes > local->symmetric_bytes) {
            op->mode = LOCAL_SLICED;
            op->reduces = true;
            op->in_peer =
                local->group->size == 2 && op->call.kind == COLL_ALLREDUCE && !op->call.has_factor;
        }
        op->block_elems = piece_bytes(op) / op->elem_bytes;
    }
    op->block_count = n == 0 ? 1 : (n + op->block_elems - 1) / op->block_elems;
}

/* ---- memory of the own stage
 * ------------------------------------------------------------------------------------------------
 */

/* How much of a block this rank writes at most. */
static size_t staged_bytes(const struct local_op *op)
{
    const struct local_group *local = op->local;
    enum coll_kind kind = op->call.kind;
    bool root = local->group->rank == op->call.root;
    bool writes = kind == COLL_BROADCAST || kind == COLL_SCATTER ? root
                  : kind == COLL_GATHER                          ? !root
                                                                 : true;
    if (!writes || op->mode == LOCAL_INLINE)
        return 0;
    if (put_per_rank(op))
        return (size_t)(local->group->size - 1) * local->slice_bytes +
               local_min(op->bytes, local->slice_bytes);
    return local_min(op->bytes, op->block_elems * op->elem_bytes);
}

static size_t result_bytes(const struct local_op *op)
{
    if (!op->reduces || op->in_peer)
        return 0;
    struct local_run run = local_run_of(op, 0, op->call.count);
    return local_slice_of(op, run.count, 0).count * op->elem_bytes;
}

/* Makes *taken at least `bytes`. */
static enum shoal_status take_memory(const struct local_group *local, const unsigned char *start,
                                     size_t bytes, size_t *taken)
{
    const struct comm_world *world = local->group->world;
    const struct base_shared *own = &world->host->regions[world->local_rank];
    size_t offset = (size_t)(start - (const unsigned char *)own->address);
    if (bytes <= *taken)
        return SHOAL_OK;
    TRY(base_shared_commit(own, offset + *taken, bytes - *taken));
    *taken = bytes;
    return SHOAL_OK;
}

static enum shoal_status take_stage_memory(const struct local_op *op, uint64_t block)
{
    struct local_group *local = op->local;
    int rank = local->group->rank;
    unsigned char *stage = local_stage(op, rank, block);
    size_t bytes = staged_bytes(op), *lent = &local->lent_taken[block % LOCAL_STAGES];
    if (local_holder(op, rank, block) == rank)
        return take_memory(local, stage, bytes, &local->stage_taken[block % LOCAL_STAGES]);
    if (bytes <= *lent)
        return SHOAL_OK;
    TRY(base_shared_populate(stage + *lent, bytes - *lent));
    *lent = bytes;
    return SHOAL_OK;
}

bool local_take_stage(struct local_op *op, uint64_t b)
{
    struct local_group *local = op->local;
    struct comm_group *group = local->group;
    uint64_t block = op->first_block + b;
    char who[160];
    enum shoal_status status = take_stage_memory(op, block);
    if (status == SHOAL_OK)
        status = take_memory(local, local_result(local, group->rank, block), result_bytes(op),
                             &local->result_taken[block % LOCAL_STAGES]);
    if (status != SHOAL_OK)
        comm_group_break(group, status, "group '%s': %s: %s", group->name,
                         comm_rank_text(group, group->rank, who, sizeof(who)), base_error_text());
    return status == SHOAL_OK;
}

/* ---- put
 * ------------------------------------------------------------------------------------------------------
 */

/* Copies into the stage; PREMUL_SUM scales on the way. */
static void stage_elems(const struct local_op *op, unsigned char *to, const unsigned char *from,
                        uint64_t count)
{
    if (op->call.has_factor)
        kernel_scale(op->call.dtype, to, from, op->call.factor, count);
    else
        kernel_copy(to, from, count * op->elem_bytes, false);
}

static void put_slices(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    const unsigned char *in = op->call.in;
    unsigned char *stage = local_stage(op, local->group->rank, op->first_block + b);
    struct local_run run = local_run_of(op, b, op->call.count);
    for (int i = 0; i < local->group->size; i++) {
        if (i == local->group->rank && !op->call.has_factor)
            continue;
        struct local_run slice = local_slice_of(op, run.count, i);
        if (slice.count > 0)
            stage_elems(op, stage + slice.offset * op->elem_bytes,
                        in + (run.offset + slice.offset) * op->elem_bytes, slice.count);
    }
}

/* Where a rank's part lies in another's stage or stamp. Of two that change stages each has only the
 * other's, and both in the same place. */
static size_t part_place(const struct local_op *op, int rank)
{
    size_t stride = op->mode == LOCAL_INLINE ? op->bytes : op->local->slice_bytes;
    return op->swaps ? 0 : (size_t)rank * stride;
}

/* Part j of the input goes to the j-th part of the stage. */
static void put_parts(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    const unsigned char *in = op->call.in;
    unsigned char *stage = local_stage(op, local->group->rank, op->first_block + b);
    for (int i = 0; i < local->group->size; i++) {
        if (i == local->group->rank && !op->call.has_factor)
            continue;
        struct local_run run = local_run_of(op, b, local_part_count(op, i));
        if (run.count > 0)
            stage_elems(op, stage + part_place(op, i),
                        in + (local_part_offset(op, i) + run.offset) * op->elem_bytes, run.count);
    }
}

static uint64_t own_count(const struct local_op *op)
{
    enum coll_kind kind = op->call.kind;
    if (kind == COLL_ALLGATHER || kind == COLL_GATHER)
        return local_part_count(op, op->local->group->rank);
    return op->call.count * (put_per_rank(op) ? (uint64_t)op->local->group->size : 1);
}

/* The own contribution, whole. */
static void put_own(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    const unsigned char *in = op->call.in;
    uint64_t block = op->first_block + b;
    struct local_run run = local_run_of(op, b, own_count(op));
    unsigned char *to = op->mode == LOCAL_INLINE ? local->own->stamps[block % LOCAL_STAMPS].payload
                                                 : local_stage(op, local->group->rank, block);
    if (run.count > 0)
        stage_elems(op, to, in + run.offset * op->elem_bytes, run.count);
}

void local_put(struct local_op *op, uint64_t b)
{
    bool root = op->local->group->rank == op->call.root;
    bool whole = op->mode == LOCAL_INLINE;
    switch (op->call.kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
        if (op->mode == LOCAL_SLICED)
            put_slices(op, b);
        else
            put_own(op, b);
        break;
    case COLL_REDUCE_SCATTER:
    case COLL_ALLTOALL: (whole ? put_own : put_parts)(op, b); break;
    case COLL_SCATTER:
        if (root)
            (whole ? put_own : put_parts)(op, b);
        break;
    case COLL_BROADCAST:
        if (root)
            put_own(op, b);
        break;
    case COLL_ALLGATHER: put_own(op, b); break;
    case COLL_GATHER:
        if (!root)
            put_own(op, b);
        break;
    default: break;
    }
}

/* ---- reduce
 * ----------------------------------------------------------------------------------------------------
 */

/* out = sum over all ranks, rank r's data at `at` bytes in its stage (or stamp); the own from
 * own_in, unless it was scaled into the stage. `how` has all but dtype, op and divisor. */
static void sum_all(const struct local_op *op, struct kernel_reduce *how, uint64_t block, size_t at,
                    const void *own_in, void *out, uint64_t count)
{
    const struct local_group *local = op->local;
    const void *inputs[SIZE_MAX_RANKS];
    int size = local->group->size;
    for (int i = 0; i < size; i++) {
        if (i == local->group->rank && !op->call.has_factor)
            inputs[i] = own_in;
        else if (op->mode == LOCAL_INLINE)
            inputs[i] = local->slots[i]->stamps[block % LOCAL_STAMPS].payload + at;
        else
            inputs[i] = local_stage(op, i, block) + at;
    }
    how->dtype = op->call.dtype;
    how->op = op->call.op;
    if (op->call.op == SHOAL_AVG)
        how->divisor = (uint32_t)size;
    kernel_reduce(how, out, inputs, size, count);
}

/* Where the slice of a rank in a block lies once it is summed. Two ranks sum in each other's stage:
 * its lines then go to and fro between two caches with data in them each way, while lines that the
 * one only reads and the other writes again would have to be called back in between. */
static unsigned char *summed(const struct local_op *op, int rank, uint64_t b,
                             struct local_run slice)
{
    const struct local_group *local = op->local;
    if (op->in_peer)
        return local_stage(op, 1 - rank, op->first_block + b) + slice.offset * op->elem_bytes;
    return local_result(local, rank, op->first_block + b);
}

void local_reduce(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    int rank = local->group->rank;
    bool keeps = op->call.kind == COLL_ALLREDUCE || rank == op->call.root;
    struct local_run run = local_run_of(op, b, op->call.count);
    struct local_run slice = local_slice_of(op, run.count, rank);
    if (slice.count == 0)
        return;
    size_t place = (run.offset + slice.offset) * op->elem_bytes;
    struct kernel_reduce how = {.owns = op->in_peer};
    if (keeps) {
        how.also = (unsigned char *)op->call.out + place;
        how.stream = op->streams;
    }
    sum_all(op, &how, op->first_block + b, slice.offset * op->elem_bytes,
            (const unsigned char *)op->call.in + place, summed(op, rank, b, slice), slice.count);
}

/* ---- take
 * --------------------------------------------------------------------------------------------------------
 */

bool local_takes_from(const struct local_op *op, int rank)
{
    bool root = op->local->group->rank == op->call.root;
    switch (op->call.kind) {
    case COLL_REDUCE:
    case COLL_GATHER: return root;
    case COLL_BROADCAST:
    case COLL_SCATTER: return rank == op->call.root;
    default: return true;
    }
}

/* Copies what a peer has staged. If this rank is the next to write there, it takes the lines over
 * with what is in them, so much at a time as the first-level cache holds. */
#define OWN_BYTES ((size_t)16 << 10)

static void copy_staged(const struct local_op *op, unsigned char *to, const unsigned char *from,
                        size_t bytes)
{
    size_t piece = op->swaps || op->in_peer ? OWN_BYTES : bytes;
    for (size_t at = 0; at < bytes; at += piece) {
        size_t n = local_min(piece, bytes - at);
        if (piece == OWN_BYTES)
            kernel_own(from + at, n);
        kernel_copy(to + at, from + at, n, op->streams);
    }
}

static void take_slices(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    struct local_run run = local_run_of(op, b, op->call.count);
    for (int i = 0; i < local->group->size; i++) {
        struct local_run slice = local_slice_of(op, run.count, i);
        if (i == local->group->rank || slice.count == 0)
            continue;
        copy_staged(op,
                    (unsigned char *)op->call.out + (run.offset + slice.offset) * op->elem_bytes,
                    summed(op, i, b, slice), slice.count * op->elem_bytes);
    }
}

static void take_sum(struct local_op *op, uint64_t b)
{
    struct kernel_reduce how = {0};
    struct local_run run = local_run_of(op, b, op->call.count);
    size_t place = run.offset * op->elem_bytes;
    if (run.count > 0)
        sum_all(op, &how, op->first_block + b, 0, (const unsigned char *)op->call.in + place,
                (unsigned char *)op->call.out + place, run.count);
}

/* This rank's part of the sum. */
static void take_part_sum(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    int rank = local->group->rank;
    struct local_run run = local_run_of(op, b, local_part_count(op, rank));
    if (run.count == 0)
        return;
    const unsigned char *own_in = (const unsigned char *)op->call.in +
                                  (local_part_offset(op, rank) + run.offset) * op->elem_bytes;
    struct kernel_reduce how = {.stream = op->streams};
    sum_all(op, &how, op->first_block + b, part_place(op, rank), own_in,
            (unsigned char *)op->call.out + run.offset * op->elem_bytes, run.count);
}

static const unsigned char *contribution(const struct local_op *op, int rank, uint64_t block)
{
    if (op->mode == LOCAL_INLINE)
        return op->local->slots[rank]->stamps[block % LOCAL_STAMPS].payload;
    return local_stage(op, rank, block);
}

/* Everybody's contribution to its part of out; the own one from in. */
static void take_contributions(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    for (int i = 0; i < local->group->size; i++) {
        struct local_run run = local_run_of(op, b, local_part_count(op, i));
        unsigned char *to = (unsigned char *)op->call.out +
                            (local_part_offset(op, i) + run.offset) * op->elem_bytes;
        const unsigned char *in = (const unsigned char *)op->call.in + run.offset * op->elem_bytes;
        if (run.count == 0)
            continue;
        if (i != local->group->rank)
            copy_staged(op, to, contribution(op, i, op->first_block + b),
                        run.count * op->elem_bytes);
        else if (to != in)
            kernel_copy(to, in, run.count * op->elem_bytes, op->streams);
    }
}

static void take_broadcast(struct local_op *op, uint64_t b)
{
    struct local_run run = local_run_of(op, b, op->call.count);
    if (run.count > 0 && op->local->group->rank != op->call.root)
        kernel_copy((unsigned char *)op->call.out + run.offset * op->elem_bytes,
                    contribution(op, op->call.root, op->first_block + b),
                    run.count * op->elem_bytes, op->streams);
}

/* The part that `from` put for this rank; its own part comes straight from in. */
static void take_part(struct local_op *op, uint64_t b, int from, unsigned char *out)
{
    const struct local_group *local = op->local;
    int rank = local->group->rank;
    struct local_run run = local_run_of(op, b, local_part_count(op, rank));
    const unsigned char *in = (const unsigned char *)op->call.in +
                              (local_part_offset(op, rank) + run.offset) * op->elem_bytes;
    out += run.offset * op->elem_bytes;
    if (run.count == 0)
        return;
    if (from != rank)
        copy_staged(op, out, contribution(op, from, op->first_block + b) + part_place(op, rank),
                    run.count * op->elem_bytes);
    else if (out != in)
        kernel_copy(out, in, run.count * op->elem_bytes, op->streams);
}

static void take_alltoall(struct local_op *op, uint64_t b)
{
    unsigned char *out = op->call.out;
    for (int i = 0; i < op->local->group->size; i++)
        take_part(op, b, i, out + local_part_offset(op, i) * op->elem_bytes);
}

void local_take(struct local_op *op, uint64_t b)
{
    bool root = op->local->group->rank == op->call.root;
    switch (op->call.kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
        if (op->call.kind == COLL_REDUCE && !root)
            break;
        if (op->mode == LOCAL_SLICED)
            take_slices(op, b);
        else
            take_sum(op, b);
        break;
    case COLL_GATHER:
        if (root)
            take_contributions(op, b);
        break;
    case COLL_ALLGATHER: take_contributions(op, b); break;
    case COLL_BROADCAST: take_broadcast(op, b); break;
    case COLL_SCATTER: take_part(op, b, op->call.root, op->call.out); break;
    case COLL_ALLTOALL: take_alltoall(op, b); break;
    case COLL_REDUCE_SCATTER: take_part_sum(op, b); break;
    default: break;
    }
}
