/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h: where tensors and buffers lie in the arena. Pure: no memory is taken, nothing waits.
 */
#ifndef SHOAL_FUSE_LAYOUT_H
#define SHOAL_FUSE_LAYOUT_H

#include <stdint.h>

#define FUSE_ALIGN_BYTES 64 /* a home is as good for vectors as memory of its own */

/* Of a tensor. */
struct fuse_home {
    uint64_t bytes;                /* given */
    uint64_t offset;               /* in the arena */
    int first_buffer, last_buffer; /* that it lies in; last < first: it has no elements */
};

/* Of a buffer: a window of the arena. */
struct fuse_window {
    uint64_t offset, bytes;
    int tensor_count;              /* that lie in it, or a part of them does */
    int first_tensor, last_tensor; /* of these, as they lie */
    int priority;                  /* the lowest of their numbers */
};

/* What a tensor takes of the arena. */
static inline uint64_t fuse_layout_room(uint64_t bytes)
{
    return (bytes + FUSE_ALIGN_BYTES - 1) / FUSE_ALIGN_BYTES * FUSE_ALIGN_BYTES;
}

/* Of all tensors together, that room; the same in every order. UINT64_MAX: too many. */
uint64_t fuse_layout_bytes(const struct fuse_home *homes, int tensor_count);
/* The size of buffers that suits so many bytes; a multiple of FUSE_ALIGN_BYTES. docs/fuse.md. */
uint64_t fuse_layout_buffer_bytes(uint64_t bytes);
/* How many buffers of that size, which is a multiple of FUSE_ALIGN_BYTES, hold so much. */
uint64_t fuse_layout_buffers(uint64_t bytes, uint64_t buffer_bytes);

/* Lays the tensors one behind the other in that order; windows[] has as many as fuse_layout_buffers
 * says. */
void fuse_layout(struct fuse_home *homes, int tensor_count, const uint32_t *order,
                 struct fuse_window *windows, uint64_t buffer_bytes);

#endif
