/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c: buffers of 8 bits, in blocks with a scale each (kernel.h).
 *
 * Such numbers can't be summed as they are, so each rank owns a shard: it gets all ranks' parts of
 * it in one exchange, sums them in f32 in the order of ranks, and packs the sum again, with a
 * residual of its own; then all gather the shards. Every rank so unpacks the same bits. A shard is
 * whole blocks, as many on each rank: where they don't come out even, what is beyond the buffer's
 * end is zeros.
 */
#include <string.h>

#include "base/memory.h"
#include "fuse/state.h"
#include "kernel/kernel.h"

#define BLOCK_BYTES (KERNEL_BLOCK_COUNT * sizeof(float)) /* in the arena */

static uint64_t rank_count(const struct fuse *fuse)
{
    return (uint64_t)fuse->place.parent->size;
}

static uint64_t shard_blocks(const struct fuse *fuse, int buffer)
{
    uint64_t shard_bytes = rank_count(fuse) * BLOCK_BYTES;
    return (fuse->windows[buffer].bytes + shard_bytes - 1) / shard_bytes;
}

/* The buffer's area in packed or received. */
static struct kernel_block *area_of(const struct fuse *fuse, struct kernel_block *all, int buffer)
{
    return all + (uint64_t)buffer * rank_count(fuse) * fuse->blocks.shard_blocks;
}

uint64_t fuse_blocks_bytes(const struct fuse *fuse, int buffer)
{
    return rank_count(fuse) * shard_blocks(fuse, buffer) * sizeof(struct kernel_block);
}

/* ---- memory
 * ---------------------------------------------------------------------------------------------- */

static uint64_t residual_bytes(const struct fuse *fuse)
{
    return (uint64_t)fuse->buffer_count * fuse->blocks.shard_blocks * BLOCK_BYTES;
}

enum shoal_status fuse_take_blocks(struct fuse *fuse, bool feedback)
{
    struct fuse_blocks *blocks = &fuse->blocks;
    if (fuse->buffer_count == 0)
        return SHOAL_OK;
    blocks->shard_blocks = shard_blocks(fuse, 0);
    uint64_t bytes = (uint64_t)fuse->buffer_count * fuse_blocks_bytes(fuse, 0);
    TRY(base_alloc(bytes, "a fuse's packed buffers", (void **)&blocks->packed));
    TRY(base_alloc(bytes, "a fuse's packed buffers", (void **)&blocks->received));
    return feedback
               ? base_alloc(residual_bytes(fuse), "a fuse's residuals", (void **)&blocks->residual)
               : SHOAL_OK;
}

void fuse_give_blocks(struct fuse *fuse)
{
    base_free(fuse->blocks.packed);
    base_free(fuse->blocks.received);
    base_free(fuse->blocks.residual);
}

void fuse_clear_blocks(struct fuse *fuse)
{
    if (fuse->blocks.residual)
        memset(fuse->blocks.residual, 0, residual_bytes(fuse));
}

/* ---- packing
 * ---------------------------------------------------------------------------------------------- */

/* The buffer's last block, which is not whole. residual: of its first element; NULL: none. */
static void pack_rest(struct kernel_block *out, const float *in, float *residual, uint64_t count)
{
    float values[KERNEL_BLOCK_COUNT] = {0}, kept[KERNEL_BLOCK_COUNT] = {0};
    memcpy(values, in, count * sizeof(*in));
    if (residual)
        memcpy(kept, residual, count * sizeof(*in));
    kernel_pack_blocks(out, values, residual ? kept : NULL, 1);
    if (residual)
        memcpy(residual, kept, count * sizeof(*in));
}

void fuse_pack_blocks(struct fuse *fuse, int buffer)
{
    const struct fuse_window *window = &fuse->windows[buffer];
    struct kernel_block *out = area_of(fuse, fuse->blocks.packed, buffer);
    const float *in = (const float *)(const void *)(fuse->arena + window->offset);
    float *residual = fuse->residual ? (float *)(void *)(fuse->residual + window->offset) : NULL;
    uint64_t whole = window->bytes / BLOCK_BYTES, done = whole * KERNEL_BLOCK_COUNT;
    uint64_t used = whole, left = window->bytes % BLOCK_BYTES / sizeof(*in);
    kernel_pack_blocks(out, in, residual, whole);
    if (left > 0)
        pack_rest(&out[used++], in + done, residual ? residual + done : NULL, left);
    memset(&out[used], 0, fuse_blocks_bytes(fuse, buffer) - used * sizeof(*out));
}

void fuse_unpack_blocks(struct fuse *fuse, int buffer)
{
    const struct fuse_window *window = &fuse->windows[buffer];
    const struct kernel_block *in = area_of(fuse, fuse->blocks.packed, buffer);
    float rest[KERNEL_BLOCK_COUNT];
    float *out = (float *)(void *)(fuse->arena + window->offset);
    uint64_t whole = window->bytes / BLOCK_BYTES, left_bytes = window->bytes % BLOCK_BYTES;
    kernel_unpack_blocks(out, in, false, whole);
    if (left_bytes > 0) {
        kernel_unpack_blocks(rest, &in[whole], false, 1);
        memcpy(out + whole * KERNEL_BLOCK_COUNT, rest, left_bytes);
    }
}

/* ---- the sum
 * ---------------------------------------------------------------------------------------------- */

/* The sum goes to this rank's place among the packed shards, which are all sent by now. */
void fuse_sum_blocks(struct fuse *fuse, int buffer)
{
    uint64_t shard = shard_blocks(fuse, buffer), rank = (uint64_t)fuse->data->rank;
    const struct kernel_block *in = area_of(fuse, fuse->blocks.received, buffer);
    struct kernel_block *out = area_of(fuse, fuse->blocks.packed, buffer) + rank * shard;
    float *residual = fuse->blocks.residual, sum[KERNEL_BLOCK_COUNT];
    if (residual)
        residual += (uint64_t)buffer * fuse->blocks.shard_blocks * KERNEL_BLOCK_COUNT;
    for (uint64_t i = 0; i < shard; i++) {
        for (uint64_t from = 0; from < rank_count(fuse); from++)
            kernel_unpack_blocks(sum, &in[from * shard + i], from > 0, 1);
        if (fuse->op == SHOAL_AVG)
            kernel_divide(SHOAL_F32, sum, sum, (uint32_t)rank_count(fuse), KERNEL_BLOCK_COUNT);
        kernel_pack_blocks(&out[i], sum, residual ? residual + i * KERNEL_BLOCK_COUNT : NULL, 1);
    }
}

/* ---- calls
 * ---------------------------------------------------------------------------------------------- */

struct comm_call fuse_exchange_call(const struct fuse *fuse, int buffer)
{
    return (struct comm_call){.kind = COLL_ALLTOALL,
                              .dtype = SHOAL_U8,
                              .in = area_of(fuse, fuse->blocks.packed, buffer),
                              .out = area_of(fuse, fuse->blocks.received, buffer),
                              .count = shard_blocks(fuse, buffer) * sizeof(struct kernel_block)};
}

struct comm_call fuse_gather_call(const struct fuse *fuse, int buffer)
{
    uint64_t shard = shard_blocks(fuse, buffer);
    struct kernel_block *all = area_of(fuse, fuse->blocks.packed, buffer);
    return (struct comm_call){.kind = COLL_ALLGATHER,
                              .dtype = SHOAL_U8,
                              .in = all + (uint64_t)fuse->data->rank * shard,
                              .out = all,
                              .count = shard * sizeof(struct kernel_block),
                              .in_place = true};
}
