/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: the one door to the heap.
 *
 * An empty block has a byte all the same, so that its address lies within it: checkers of leaks
 * find it. A block has a line of 64 bytes in front that holds its size, so that the caller's part
 * stays aligned to cache lines and counting needs no table. The three counters are plain atomics:
 * nothing on the step path allocates.
 */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

#define ALIGN_BYTES 64

struct block_head {
    size_t bytes;
};

static atomic_size_t held_bytes, held_blocks;
static atomic_uint_least64_t taken_count;
/* The allocation that fails, counted as taken_count; 0: none. */
static atomic_uint_least64_t failing_number;
static atomic_bool environment_read;

/* SHOAL_FAIL_ALLOC counts from the process's first allocation. */
static void read_environment(void)
{
    if (atomic_exchange(&environment_read, true))
        return;
    const char *text = getenv("SHOAL_FAIL_ALLOC");
    if (text != NULL)
        atomic_store(&failing_number, strtoull(text, NULL, 10));
}

enum shoal_status base_alloc(size_t bytes, const char *what, void **out)
{
    if (!atomic_load_explicit(&environment_read, memory_order_relaxed))
        read_environment();
    uint64_t number = atomic_fetch_add(&taken_count, 1) + 1;
    size_t whole;
    void *raw;
    if (number == atomic_load(&failing_number) ||
        __builtin_add_overflow(bytes > 0 ? bytes : 1, (size_t)ALIGN_BYTES, &whole) ||
        posix_memalign(&raw, ALIGN_BYTES, whole) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for %s (%zu bytes)", what, bytes);
    memset(raw, 0, whole);
    ((struct block_head *)raw)->bytes = bytes;
    atomic_fetch_add(&held_bytes, bytes);
    atomic_fetch_add(&held_blocks, 1);
    *out = (char *)raw + ALIGN_BYTES;
    return SHOAL_OK;
}

enum shoal_status base_alloc_array(size_t count, size_t element_bytes, const char *what, void **out)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, element_bytes, &bytes))
        return base_error(SHOAL_ERR_MEMORY, "no memory for %s (%zu of %zu bytes)", what, count,
                          element_bytes);
    return base_alloc(bytes, what, out);
}

void base_free(void *memory)
{
    if (memory == NULL)
        return;
    struct block_head *head = (struct block_head *)((char *)memory - ALIGN_BYTES);
    atomic_fetch_sub(&held_bytes, head->bytes);
    atomic_fetch_sub(&held_blocks, 1);
    free(head);
}

enum shoal_status base_strdup(const char *text, const char *what, char **out)
{
    size_t bytes = strlen(text) + 1;
    void *copy;
    TRY(base_alloc(bytes, what, &copy));
    memcpy(copy, text, bytes);
    *out = copy;
    return SHOAL_OK;
}

size_t base_memory_bytes(void)
{
    return atomic_load(&held_bytes);
}

size_t base_memory_blocks(void)
{
    return atomic_load(&held_blocks);
}

void base_memory_fail_at(uint64_t nth)
{
    atomic_store(&environment_read, true);
    atomic_store(&failing_number, nth == 0 ? 0 : atomic_load(&taken_count) + nth);
}

uint64_t base_memory_count(void)
{
    return atomic_load(&taken_count);
}

size_t base_cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : (size_t)1 << 20;
}
