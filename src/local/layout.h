/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h: which elements of an operation's buffers belong to which rank and block.
 *
 * A block of allreduce and reduce is a run of the buffer, cut in one slice per rank; of the kinds
 * with a part per rank it is the same run of every part.
 */
#ifndef SHOAL_LOCAL_LAYOUT_H
#define SHOAL_LOCAL_LAYOUT_H

#include "local/slot.h"

struct local_run {
    uint64_t offset, count; /* elements */
};

static inline uint64_t local_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t local_part_count(const struct local_op *op, int rank)
{
    return op->call.counts ? op->call.counts[rank] : op->call.count;
}

/* Where rank's part begins on the side with p parts. */
static inline uint64_t local_part_offset(const struct local_op *op, int rank)
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
static inline struct local_run local_run_of(const struct local_op *op, uint64_t b, uint64_t n)
{
    uint64_t offset = local_min(b * op->block_elems, n);
    struct local_run run = {offset, local_min(op->block_elems, n - offset)};
    return run;
}

/* Slice of a rank within n elements, in whole cache lines but the last. */
static inline struct local_run local_slice_of(const struct local_op *op, uint64_t n, int rank)
{
    uint64_t size = (uint64_t)op->local->group->size;
    uint64_t line = 64 / op->elem_bytes;
    uint64_t slice = (((n + size - 1) / size) + line - 1) / line * line;
    uint64_t offset = local_min(slice * (uint64_t)rank, n);
    struct local_run run = {offset, local_min(slice, n - offset)};
    return run;
}

#endif
