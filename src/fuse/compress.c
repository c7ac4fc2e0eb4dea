/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compress.c: gradients as they travel: packed before their buffer is ready, by the thread that
 * added the last of them, and unpacked when it is back.
 *
 * A buffer of 16-bit floats lies in the first half of its own memory, which nobody else reads until
 * the results are back. So it takes no memory, and ranks of one host sum it where it lies. What has
 * 8 bits is in blocks.c.
 */
#include <string.h>

#include "fuse/state.h"
#include "kernel/kernel.h"

#define STAGE_COUNT 1024 /* elements that are unpacked at a time, out of the nearest cache */

const char *fuse_compression_name(enum shoal_compression compression)
{
    static const char *const names[] = {"none", "bf16", "f16", "int8"};
    size_t number = (size_t)compression;
    return number < sizeof(names) / sizeof(names[0]) ? names[number] : NULL;
}

/* As what elements travel in an allreduce. */
static enum shoal_dtype wire_dtype(const struct fuse *fuse)
{
    switch (fuse->compression) {
    case SHOAL_COMPRESSION_BF16: return SHOAL_BF16;
    case SHOAL_COMPRESSION_F16: return SHOAL_F16;
    default: return fuse->dtype;
    }
}

uint64_t fuse_wire_bytes(const struct fuse *fuse, int buffer)
{
    if (fuse_has_blocks(fuse))
        return fuse_blocks_bytes(fuse, buffer);
    return fuse->windows[buffer].bytes / fuse->elem_bytes * kernel_dtype_bytes(wire_dtype(fuse));
}

struct comm_call fuse_send_call(const struct fuse *fuse, struct fuse_stretch stretch)
{
    const struct fuse_window *first = &fuse->windows[stretch.first];
    const struct fuse_window *last = first + stretch.count - 1;
    unsigned char *memory = fuse->arena + first->offset;
    uint64_t bytes = last->offset + last->bytes - first->offset;
    if (fuse_has_blocks(fuse))
        return fuse_exchange_call(fuse, stretch.first);
    return (struct comm_call){.kind = COLL_ALLREDUCE,
                              .dtype = wire_dtype(fuse),
                              .op = fuse->op,
                              .in = memory,
                              .out = memory,
                              .count = bytes / fuse->elem_bytes,
                              .in_place = true};
}

static void pack_halves(struct fuse *fuse, int buffer)
{
    const struct fuse_window *window = &fuse->windows[buffer];
    void *memory = fuse->arena + window->offset;
    uint64_t count = window->bytes / fuse->elem_bytes;
    if (fuse->residual)
        kernel_compress(wire_dtype(fuse), memory, memory,
                        (float *)(void *)(fuse->residual + window->offset), count);
    else
        kernel_from_f32(wire_dtype(fuse), memory, memory, count);
}

/* From the end: an element grows over those behind it. */
static void unpack_halves(struct fuse *fuse, int buffer)
{
    const struct fuse_window *window = &fuse->windows[buffer];
    uint16_t stage[STAGE_COUNT], *packed = (uint16_t *)(void *)(fuse->arena + window->offset);
    float *out = (float *)(void *)packed;
    for (uint64_t left = window->bytes / fuse->elem_bytes; left > 0;) {
        uint64_t part = left % STAGE_COUNT > 0 ? left % STAGE_COUNT : STAGE_COUNT;
        left -= part;
        memcpy(stage, packed + left, part * sizeof(*stage));
        kernel_to_f32(wire_dtype(fuse), out + left, stage, part);
    }
}

void fuse_pack(struct fuse *fuse, int buffer)
{
    (fuse_has_blocks(fuse) ? fuse_pack_blocks : pack_halves)(fuse, buffer);
}

void fuse_unpack(struct fuse *fuse, int buffer)
{
    (fuse_has_blocks(fuse) ? fuse_unpack_blocks : unpack_halves)(fuse, buffer);
}
