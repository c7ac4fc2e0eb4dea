/* SPDX-License-Identifier: Apache-2.0 */
/* region.c: first-fit allocator with joining of free neighbours; the directory of slots. */
#include "comm/region.h"

#include <stdbool.h>
#include <string.h>

#include "base/headroom.h"
#include "base/memory.h"
#include "base/status.h"

struct region_block {
    struct region_block *next;
    size_t offset, bytes;
    bool used;
};

struct region_retired {
    struct region_retired *next;
    size_t offset;
    uint64_t context;
    int count;
    int peers[];
};

#define PAGE_BYTES  4096
#define CHECK_BYTES ((size_t)4 << 20) /* of new memory, between two looks at what is left */

static size_t round_up(size_t bytes)
{
    size_t unit = bytes >= PAGE_BYTES ? PAGE_BYTES : 64;
    if (bytes == 0)
        bytes = 1;
    return (bytes + unit - 1) / unit * unit;
}

enum shoal_status comm_region_open(struct base_shared *shared, size_t heap_offset,
                                   struct comm_region *out)
{
    struct region_block *whole = NULL;
    TRY(BASE_NEW(&whole, "the region's first block"));
    whole->offset = heap_offset;
    whole->bytes = shared->bytes - heap_offset;
    *out = (struct comm_region){
        .shared = shared, .heap_offset = heap_offset, .taken_end = heap_offset, .blocks = whole};
    return SHOAL_OK;
}

void comm_region_close(struct comm_region *region)
{
    while (region->blocks) {
        struct region_block *next = region->blocks->next;
        base_free(region->blocks);
        region->blocks = next;
    }
    while (region->retired) {
        struct region_retired *next = region->retired->next;
        base_free(region->retired);
        region->retired = next;
    }
}

enum shoal_status comm_region_retire(struct comm_region *region, size_t offset, uint64_t context,
                                     const int *peers, int count)
{
    struct region_retired *retired = NULL;
    TRY(base_alloc(sizeof(*retired) + sizeof(int) * (size_t)count, "a retired slot",
                   (void **)&retired));
    retired->offset = offset;
    retired->context = context;
    retired->count = count;
    memcpy(retired->peers, peers, sizeof(int) * (size_t)count);
    retired->next = region->retired;
    region->retired = retired;
    return SHOAL_OK;
}

static bool still_used(const struct region_retired *retired, const struct base_shared *regions,
                       const atomic_bool *dead)
{
    for (int i = 0; i < retired->count; i++) {
        int peer = retired->peers[i];
        if (!atomic_load(&dead[peer]) && comm_region_find(&regions[peer], retired->context) != 0)
            return true;
    }
    return false;
}

void comm_region_reclaim(struct comm_region *region, const struct base_shared *regions,
                         const atomic_bool *dead)
{
    for (struct region_retired **at = &region->retired; *at;) {
        struct region_retired *retired = *at;
        if (still_used(retired, regions, dead)) {
            at = &retired->next;
            continue;
        }
        *at = retired->next;
        comm_region_free(region, retired->offset);
        base_free(retired);
    }
}

/* Cuts `bytes` at `at` out of a free block; what is before and behind stays free. */
static enum shoal_status split(struct region_block *block, size_t at, size_t bytes,
                               struct region_block **out)
{
    struct region_block *used = block;
    if (at > block->offset) {
        TRY(BASE_NEW(&used, "a region block"));
        *used = (struct region_block){block->next, at, block->offset + block->bytes - at, false};
        block->bytes = at - block->offset;
        block->next = used;
    }
    if (used->bytes > bytes) {
        struct region_block *rest = NULL;
        TRY(BASE_NEW(&rest, "a region block"));
        *rest = (struct region_block){used->next, at + bytes, used->bytes - bytes, false};
        used->next = rest;
        used->bytes = bytes;
    }
    *out = used;
    return SHOAL_OK;
}

/* Memory beyond what this region ever had must be there, for the kernel does not refuse it: it
 * kills. What was freed keeps its pages and needs no look. */
static enum shoal_status take(struct comm_region *region, size_t at, size_t bytes)
{
    size_t end = at + bytes, start = at > region->taken_end ? at : region->taken_end;
    size_t more = end > start ? end - start : 0;
    bool looks = region->unchecked_bytes + more > CHECK_BYTES;
    int64_t left = looks ? base_headroom_bytes() : INT64_MAX;
    if (more + CHECK_BYTES > (uint64_t)left)
        return base_error(SHOAL_ERR_MEMORY,
                          "%zu KiB of shared memory are not to be had: this machine, or a control "
                          "group of this process, has %lld MiB of memory left",
                          bytes >> 10, (long long)(left >> 20));
    TRY(base_shared_commit(region->shared, at, bytes));
    region->unchecked_bytes = looks ? 0 : region->unchecked_bytes + more;
    region->taken_end = end > region->taken_end ? end : region->taken_end;
    return SHOAL_OK;
}

static enum shoal_status find_room(struct comm_region *region, size_t bytes, size_t taken_bytes,
                                   size_t *offset)
{
    size_t rounded = round_up(bytes);
    size_t align = rounded >= PAGE_BYTES ? PAGE_BYTES : 64;
    for (struct region_block *block = region->blocks; block; block = block->next) {
        size_t at = (block->offset + align - 1) / align * align;
        if (block->used || rounded < bytes || at + rounded < at ||
            at + rounded > block->offset + block->bytes)
            continue;
        TRY(take(region, at, taken_bytes));
        struct region_block *used = NULL;
        TRY(split(block, at, rounded, &used));
        used->used = true;
        *offset = at;
        return SHOAL_OK;
    }
    return base_error(SHOAL_ERR_MEMORY,
                      "%zu bytes of shared memory are not to be had: the region of %zu bytes is "
                      "full; raise SHOAL_SHARED_BYTES or free some",
                      bytes, region->shared->bytes);
}

enum shoal_status comm_region_alloc(struct comm_region *region, size_t bytes, size_t *offset)
{
    return find_room(region, bytes, bytes, offset);
}

enum shoal_status comm_region_reserve(struct comm_region *region, size_t bytes, size_t taken_bytes,
                                      size_t *offset)
{
    TRY(find_room(region, bytes, taken_bytes, offset));
    memset((char *)region->shared->address + *offset, 0, taken_bytes);
    return SHOAL_OK;
}

static void join_free(struct comm_region *region)
{
    for (struct region_block *block = region->blocks; block && block->next;) {
        struct region_block *next = block->next;
        if (block->used || next->used) {
            block = next;
            continue;
        }
        block->bytes += next->bytes;
        block->next = next->next;
        base_free(next);
    }
}

enum shoal_status comm_region_free(struct comm_region *region, size_t offset)
{
    for (struct region_block *block = region->blocks; block; block = block->next)
        if (block->used && block->offset == offset) {
            block->used = region->keeps_freed;
            join_free(region);
            return SHOAL_OK;
        }
    return base_error(SHOAL_ERR_ARGUMENT, "this address was not returned by shoal_alloc, or was "
                                          "freed already");
}

enum shoal_status comm_region_publish(struct base_shared *own, uint64_t context, size_t offset)
{
    struct region_control *control = comm_region_control_of(own);
    for (int i = 0; i < COMM_DIRECTORY_MAX; i++) {
        struct region_entry *entry = &control->directory[i];
        if (atomic_load_explicit(&entry->context, memory_order_relaxed) != 0)
            continue;
        if (i >= atomic_load_explicit(&control->directory_end, memory_order_relaxed))
            atomic_store(&control->directory_end, i + 1);
        atomic_store(&entry->offset, offset);
        atomic_store(&entry->context, context);
        return SHOAL_OK;
    }
    return base_error(SHOAL_ERR_LIMIT, "more than %d groups on one host at a time",
                      COMM_DIRECTORY_MAX);
}

void comm_region_withdraw(struct base_shared *own, uint64_t context)
{
    struct region_control *control = comm_region_control_of(own);
    int end = atomic_load_explicit(&control->directory_end, memory_order_relaxed);
    for (int i = 0; i < end; i++)
        if (atomic_load_explicit(&control->directory[i].context, memory_order_relaxed) == context)
            atomic_store(&control->directory[i].context, 0);
}

size_t comm_region_find(const struct base_shared *shared, uint64_t context)
{
    struct region_control *control = comm_region_control_of(shared);
    int end = atomic_load(&control->directory_end);
    for (int i = 0; i < end; i++) {
        struct region_entry *entry = &control->directory[i];
        if (atomic_load(&entry->context) != context)
            continue;
        uint64_t offset = atomic_load(&entry->offset);
        if (atomic_load(&entry->context) == context) /* else it is another group's by now */
            return offset;
    }
    return 0;
}
