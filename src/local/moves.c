/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moves.c: what put, reduce and take copy and sum, per kind of operation.
 *
 * A block of allreduce and reduce is a run of the buffer, cut in one slice per rank; of the kinds
 * with a part per rank it is the same run of every part. Sums are always over ranks 0 … p-1 in this
 * order, so the bits don't depend on mode, block or slice.
 */
#include <string.h>

#include "kernel/kernel.h"
#include "local/slot.h"

#define SIZE_MAX_RANKS COMM_LOCAL_MAX

struct run {
    uint64_t offset, count; /* elements */
};

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t part_count(const struct local_op *op, int rank)
{
    return op->call.counts ? op->call.counts[rank] : op->call.count;
}

/* Where rank's part begins on the side with p parts. */
static uint64_t part_offset(const struct local_op *op, int rank)
{
    if (!op->call.counts)
        return op->call.count * (uint64_t)rank;
    if (op->call.displs)
        return op->call.displs[rank];
    uint64_t offset = 0;
    for (int i = 0; i < rank; i++)
        offset += op->call.counts[i];
    return offset;
}

/* Block b of n elements cut in runs of block_elems. */
static struct run run_of(const struct local_op *op, uint64_t b, uint64_t n)
{
    uint64_t offset = min64(b * op->block_elems, n);
    struct run run = {offset, min64(op->block_elems, n - offset)};
    return run;
}

/* Slice of a rank within a block of n elements, in whole cache lines but the last. */
static struct run slice_of(const struct local_op *op, uint64_t n, int rank)
{
    uint64_t size = (uint64_t)op->local->group->size;
    uint64_t line = 64 / op->elem_bytes;
    uint64_t slice = (((n + size - 1) / size) + line - 1) / line * line;
    uint64_t offset = min64(slice * (uint64_t)rank, n);
    struct run run = {offset, min64(slice, n - offset)};
    return run;
}

/* ---- layout
 * ------------------------------------------------------------------------------------------------
 */

static uint64_t largest_part(const struct local_op *op)
{
    uint64_t most = part_count(op, 0);
    for (int i = 1; op->call.counts && i < op->local->group->size; i++)
        most = part_count(op, i) > most ? part_count(op, i) : most;
    return most;
}

static bool sums(const struct local_op *op)
{
    enum coll_kind kind = op->call.kind;
    return kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER;
}

/* Kinds in which a rank puts something else for each of the others. */
static bool put_per_rank(const struct local_op *op)
{
    enum coll_kind kind = op->call.kind;
    return kind == COLL_REDUCE_SCATTER || kind == COLL_ALLTOALL || kind == COLL_SCATTER;
}

void local_op_lay_out(struct local_op *op)
{
    const struct local_group *local = op->local;
    uint64_t n = op->call.kind == COLL_BARRIER ? 0 : largest_part(op);
    size_t bytes = n * op->elem_bytes;
    op->reduces = false;
    if (bytes <= LOCAL_INLINE_BYTES && !put_per_rank(op)) { /* no division on the shortest way */
        op->mode = LOCAL_INLINE;
        op->block_elems = LOCAL_INLINE_BYTES;
        op->block_count = 1;
        return;
    }
    if (put_per_rank(op)) {
        op->mode = LOCAL_SLICED;
        op->block_elems = local->slice_bytes / op->elem_bytes;
        op->reduces = op->call.kind == COLL_REDUCE_SCATTER;
    } else {
        op->block_elems = local->block_bytes / op->elem_bytes;
        op->mode = LOCAL_SYMMETRIC;
        if (sums(op) && bytes > local->symmetric_bytes) {
            op->mode = LOCAL_SLICED;
            op->reduces = true;
        }
    }
    op->block_count = n == 0 ? 1 : (n + op->block_elems - 1) / op->block_elems;
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
        memcpy(to, from, count * op->elem_bytes);
}

static void put_slices(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    const unsigned char *in = op->call.in;
    unsigned char *stage = local_stage(local, local->group->rank, op->first_block + b);
    struct run run = run_of(op, b, op->call.count);
    for (int i = 0; i < local->group->size; i++) {
        if (i == local->group->rank && !op->call.has_factor)
            continue;
        struct run slice = slice_of(op, run.count, i);
        if (slice.count > 0)
            stage_elems(op, stage + slice.offset * op->elem_bytes,
                        in + (run.offset + slice.offset) * op->elem_bytes, slice.count);
    }
}

/* Part j of the input goes to the j-th part of the stage. */
static void put_parts(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    const unsigned char *in = op->call.in;
    unsigned char *stage = local_stage(local, local->group->rank, op->first_block + b);
    for (int i = 0; i < local->group->size; i++) {
        if (i == local->group->rank && !op->call.has_factor)
            continue;
        struct run run = run_of(op, b, part_count(op, i));
        if (run.count > 0)
            stage_elems(op, stage + (size_t)i * local->slice_bytes,
                        in + (part_offset(op, i) + run.offset) * op->elem_bytes, run.count);
    }
}

static uint64_t own_count(const struct local_op *op)
{
    enum coll_kind kind = op->call.kind;
    bool by_part = kind == COLL_ALLGATHER || kind == COLL_GATHER;
    return by_part ? part_count(op, op->local->group->rank) : op->call.count;
}

/* The own contribution, whole. */
static void put_own(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    const unsigned char *in = op->call.in;
    uint64_t block = op->first_block + b;
    struct run run = run_of(op, b, own_count(op));
    unsigned char *to = op->mode == LOCAL_INLINE ? local->own->stamps[block % LOCAL_SLOTS].payload
                                                 : local_stage(local, local->group->rank, block);
    if (run.count > 0)
        stage_elems(op, to, in + run.offset * op->elem_bytes, run.count);
}

void local_put(struct local_op *op, uint64_t b)
{
    bool root = op->local->group->rank == op->call.root;
    switch (op->call.kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
        if (op->mode == LOCAL_SLICED)
            put_slices(op, b);
        else
            put_own(op, b);
        break;
    case COLL_REDUCE_SCATTER:
    case COLL_ALLTOALL: put_parts(op, b); break;
    case COLL_SCATTER:
        if (root)
            put_parts(op, b);
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
 * own_in, unless it was scaled into the stage. */
static void sum_all(const struct local_op *op, uint64_t block, size_t at, const void *own_in,
                    void *out, uint64_t count)
{
    const struct local_group *local = op->local;
    const void *inputs[SIZE_MAX_RANKS];
    int size = local->group->size;
    for (int i = 0; i < size; i++) {
        if (i == local->group->rank && !op->call.has_factor)
            inputs[i] = own_in;
        else if (op->mode == LOCAL_INLINE)
            inputs[i] = local->slots[i]->stamps[block % LOCAL_SLOTS].payload + at;
        else
            inputs[i] = local_stage(local, i, block) + at;
    }
    struct kernel_reduce how = {.dtype = op->call.dtype, .op = op->call.op};
    if (op->call.op == SHOAL_AVG)
        how.divisor = (uint32_t)size;
    kernel_reduce(&how, out, inputs, size, count);
}

static void reduce_slice(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    int rank = local->group->rank;
    bool keeps = op->call.kind == COLL_ALLREDUCE || rank == op->call.root;
    struct run run = run_of(op, b, op->call.count);
    struct run slice = slice_of(op, run.count, rank);
    if (slice.count == 0)
        return;
    size_t at = slice.offset * op->elem_bytes;
    size_t place = (run.offset + slice.offset) * op->elem_bytes;
    const unsigned char *own_in = (const unsigned char *)op->call.in + place;
    unsigned char *result = local_result(local, rank, op->first_block + b);
    sum_all(op, op->first_block + b, at, own_in, result, slice.count);
    if (keeps)
        memcpy((unsigned char *)op->call.out + place, result, slice.count * op->elem_bytes);
}

static void reduce_part(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    int rank = local->group->rank;
    struct run run = run_of(op, b, part_count(op, rank));
    if (run.count == 0)
        return;
    const unsigned char *own_in =
        (const unsigned char *)op->call.in + (part_offset(op, rank) + run.offset) * op->elem_bytes;
    sum_all(op, op->first_block + b, (size_t)rank * local->slice_bytes, own_in,
            (unsigned char *)op->call.out + run.offset * op->elem_bytes, run.count);
}

void local_reduce(struct local_op *op, uint64_t b)
{
    if (op->call.kind == COLL_REDUCE_SCATTER)
        reduce_part(op, b);
    else
        reduce_slice(op, b);
}

/* ---- take
 * --------------------------------------------------------------------------------------------------------
 */

bool local_takes_from(const struct local_op *op, int rank)
{
    bool root = op->local->group->rank == op->call.root;
    switch (op->call.kind) {
    case COLL_REDUCE_SCATTER: return false;
    case COLL_REDUCE:
    case COLL_GATHER: return root;
    case COLL_BROADCAST:
    case COLL_SCATTER: return rank == op->call.root;
    default: return true;
    }
}

static void take_slices(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    struct run run = run_of(op, b, op->call.count);
    for (int i = 0; i < local->group->size; i++) {
        struct run slice = slice_of(op, run.count, i);
        if (i == local->group->rank || slice.count == 0)
            continue;
        memcpy((unsigned char *)op->call.out + (run.offset + slice.offset) * op->elem_bytes,
               local_result(local, i, op->first_block + b), slice.count * op->elem_bytes);
    }
}

static void take_sum(struct local_op *op, uint64_t b)
{
    struct run run = run_of(op, b, op->call.count);
    size_t place = run.offset * op->elem_bytes;
    if (run.count > 0)
        sum_all(op, op->first_block + b, 0, (const unsigned char *)op->call.in + place,
                (unsigned char *)op->call.out + place, run.count);
}

static const unsigned char *contribution(const struct local_op *op, int rank, uint64_t block)
{
    if (op->mode == LOCAL_INLINE)
        return op->local->slots[rank]->stamps[block % LOCAL_SLOTS].payload;
    return local_stage(op->local, rank, block);
}

/* Everybody's contribution to its part of out; the own one from in. */
static void take_contributions(struct local_op *op, uint64_t b)
{
    const struct local_group *local = op->local;
    for (int i = 0; i < local->group->size; i++) {
        struct run run = run_of(op, b, part_count(op, i));
        unsigned char *to =
            (unsigned char *)op->call.out + (part_offset(op, i) + run.offset) * op->elem_bytes;
        const unsigned char *from =
            (const unsigned char *)op->call.in + run.offset * op->elem_bytes;
        if (i != local->group->rank)
            from = contribution(op, i, op->first_block + b);
        if (run.count > 0 && to != from)
            memcpy(to, from, run.count * op->elem_bytes);
    }
}

static void take_broadcast(struct local_op *op, uint64_t b)
{
    struct run run = run_of(op, b, op->call.count);
    if (run.count > 0 && op->local->group->rank != op->call.root)
        memcpy((unsigned char *)op->call.out + run.offset * op->elem_bytes,
               contribution(op, op->call.root, op->first_block + b), run.count * op->elem_bytes);
}

/* The part that `from` put for this rank; its own part comes straight from in. */
static void take_part(struct local_op *op, uint64_t b, int from, unsigned char *out)
{
    const struct local_group *local = op->local;
    int rank = local->group->rank;
    struct run run = run_of(op, b, part_count(op, rank));
    const unsigned char *in =
        from == rank
            ? (const unsigned char *)op->call.in +
                  (part_offset(op, rank) + run.offset) * op->elem_bytes
            : local_stage(local, from, op->first_block + b) + (size_t)rank * local->slice_bytes;
    out += run.offset * op->elem_bytes;
    if (run.count > 0 && out != in)
        memcpy(out, in, run.count * op->elem_bytes);
}

static void take_alltoall(struct local_op *op, uint64_t b)
{
    unsigned char *out = op->call.out;
    for (int i = 0; i < op->local->group->size; i++)
        take_part(op, b, i, out + part_offset(op, i) * op->elem_bytes);
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
    default: break;
    }
}
