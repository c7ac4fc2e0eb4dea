/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compress.c: gradients as they travel: packed before their buffer is ready, by the thread that
 * added the last of them, and unpacked when it is back.
 *
 * A packed buffer lies in the first part of its own memory, which nobody else reads until the
 * results are back. So it takes no memory, and ranks of one host sum it where it lies.
 */
#include <string.h>

#include "fuse/state.h"
#include "kernel/kernel.h"

#define STAGE_COUNT 1024 /* elements that are unpacked at a time, out of the nearest cache */

const char *fuse_compression_name(enum shoal_compression compression)
{
    static const char *const names[] = {"none", "bf16", "f16"};
    size_t number = (size_t)compression;
    return number < sizeof(names) / sizeof(names[0]) ? names[number] : NULL;
}

enum shoal_dtype fuse_wire_dtype(const struct fuse *fuse)
{
    switch (fuse->compression) {
    case SHOAL_COMPRESSION_BF16: return SHOAL_BF16;
    case SHOAL_COMPRESSION_F16: return SHOAL_F16;
    default: return fuse->dtype;
    }
}

uint64_t fuse_wire_bytes(const struct fuse *fuse, int buffer)
{
    return fuse->windows[buffer].bytes / fuse->elem_bytes *
           kernel_dtype_bytes(fuse_wire_dtype(fuse));
}

void fuse_pack(struct fuse *fuse, int buffer)
{
    const struct fuse_window *window = &fuse->windows[buffer];
    void *memory = fuse->arena + window->offset;
    uint64_t count = window->bytes / fuse->elem_bytes;
    if (fuse->residual)
        kernel_compress(fuse_wire_dtype(fuse), memory, memory,
                        (float *)(void *)(fuse->residual + window->offset), count);
    else
        kernel_from_f32(fuse_wire_dtype(fuse), memory, memory, count);
}

/* From the end: an element grows over those behind it. */
void fuse_unpack(struct fuse *fuse, int buffer)
{
    const struct fuse_window *window = &fuse->windows[buffer];
    uint16_t stage[STAGE_COUNT], *packed = (uint16_t *)(void *)(fuse->arena + window->offset);
    float *out = (float *)(void *)packed;
    for (uint64_t left = window->bytes / fuse->elem_bytes; left > 0;) {
        uint64_t part = left % STAGE_COUNT > 0 ? left % STAGE_COUNT : STAGE_COUNT;
        left -= part;
        memcpy(stage, packed + left, part * sizeof(*stage));
        kernel_to_f32(fuse_wire_dtype(fuse), out + left, stage, part);
    }
}
