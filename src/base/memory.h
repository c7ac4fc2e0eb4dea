/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h: the one door through which shoal takes heap memory. It counts bytes, and tests can make
 * the N-th allocation fail.
 */
#ifndef SHOAL_BASE_MEMORY_H
#define SHOAL_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

/* Zeroed memory, 64-byte aligned; SHOAL_ERR_MEMORY with a text that names `what`. bytes 0 gives a
 * valid pointer. Any thread. */
enum shoal_status base_alloc(size_t bytes, const char *what, void **out);
/* count elements of element_bytes; a product that does not fit is SHOAL_ERR_MEMORY. */
enum shoal_status base_alloc_array(size_t count, size_t element_bytes, const char *what,
                                   void **out);
/* NULL is allowed. */
void base_free(void *memory);
/* Copy of a string; as base_alloc. */
enum shoal_status base_strdup(const char *text, const char *what, char **out);

/* Typed form: TRY(BASE_NEW(&thing, "a thing")). */
#define BASE_NEW(out, what) base_alloc(sizeof(**(out)), (what), (void **)(out))
#define BASE_NEW_ARRAY(out, count, what) \
    base_alloc_array((size_t)(count), sizeof(**(out)), (what), (void **)(out))

/* Bytes and blocks held now. */
size_t base_memory_bytes(void);
size_t base_memory_blocks(void);
/* The nth allocation from now on fails (1: the next); 0 turns it off. For tests. Also by the
 * environment: SHOAL_FAIL_ALLOC. */
void base_memory_fail_at(uint64_t nth);
/* Allocations so far, for tests that walk nth. */
uint64_t base_memory_count(void);

/* Bytes of the cache that a core has to itself (the second level); 1 MiB if the system does not
 * say. */
size_t base_cache_bytes(void);

#endif
