/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: homes one behind the other, and windows of one size over them. */
#include "fuse/layout.h"

#define BUFFERS_WANTED   64
#define BUFFER_BYTES_MIN (UINT64_C(256) << 10)
#define BUFFER_BYTES_MAX (UINT64_C(4) << 20)

uint64_t fuse_layout_bytes(const struct fuse_home *homes, int tensor_count)
{
    uint64_t total = 0;
    for (int i = 0; i < tensor_count; i++) {
        if (homes[i].bytes > (uint64_t)INT64_MAX - FUSE_ALIGN_BYTES ||
            total + fuse_layout_room(homes[i].bytes) > (uint64_t)INT64_MAX)
            return UINT64_MAX;
        total += fuse_layout_room(homes[i].bytes);
    }
    return total;
}

uint64_t fuse_layout_buffer_bytes(uint64_t bytes)
{
    uint64_t part = bytes / BUFFERS_WANTED / FUSE_ALIGN_BYTES * FUSE_ALIGN_BYTES;
    if (part < BUFFER_BYTES_MIN)
        return BUFFER_BYTES_MIN;
    return part < BUFFER_BYTES_MAX ? part : BUFFER_BYTES_MAX;
}

uint64_t fuse_layout_buffers(uint64_t bytes, uint64_t buffer_bytes)
{
    return bytes / buffer_bytes + (bytes % buffer_bytes > 0);
}

/* The tensor lies in the window, or a part of it does. */
static void enter(struct fuse_window *window, int tensor)
{
    if (window->tensor_count++ == 0)
        window->first_tensor = window->priority = tensor;
    window->last_tensor = tensor;
    if (tensor < window->priority)
        window->priority = tensor;
}

void fuse_layout(struct fuse_home *homes, int tensor_count, const uint32_t *order,
                 struct fuse_window *windows, uint64_t buffer_bytes)
{
    uint64_t total = fuse_layout_bytes(homes, tensor_count), offset = 0;
    uint64_t buffer_count = fuse_layout_buffers(total, buffer_bytes);
    for (uint64_t b = 0; b < buffer_count; b++) {
        uint64_t left = total - b * buffer_bytes;
        windows[b] = (struct fuse_window){.offset = b * buffer_bytes,
                                          .bytes = left < buffer_bytes ? left : buffer_bytes};
    }
    for (int i = 0; i < tensor_count; i++) {
        int tensor = (int)order[i];
        struct fuse_home *home = &homes[tensor];
        home->offset = offset;
        home->first_buffer = (int)(offset / buffer_bytes);
        home->last_buffer = home->first_buffer - 1;
        if (home->bytes > 0)
            home->last_buffer = (int)((offset + home->bytes - 1) / buffer_bytes);
        for (int b = home->first_buffer; b <= home->last_buffer; b++)
            enter(&windows[b], tensor);
        offset += fuse_layout_room(home->bytes);
    }
}
