/* SPDX-License-Identifier: Apache-2.0 */
/* store_table.h: the store's keys and values, in memory, each key set once. One thread. */
#ifndef SHOAL_BOOT_STORE_TABLE_H
#define SHOAL_BOOT_STORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

/* A value, or any other run of bytes that several answers send; freed with its last holder. */
struct store_value {
    uint32_t holders;
    size_t bytes;
    unsigned char data[];
};
/* One holder. */
enum shoal_status store_value_create(size_t bytes, struct store_value **out);
struct store_value *store_value_hold(struct store_value *value);
void store_value_drop(struct store_value *value); /* NULL is allowed */

struct store_table;
/* At most limit_bytes of keys and values. */
enum shoal_status store_table_create(size_t limit_bytes, struct store_table **out);
void store_table_free(struct store_table *table);
/* Borrowed; NULL if it is not there. key needs no NUL. */
struct store_value *store_table_find(const struct store_table *table, const char *key,
                                     size_t key_bytes);
/* Adds a key that is not there. SHOAL_ERR_LIMIT when full. */
enum shoal_status store_table_add(struct store_table *table, const char *key, size_t key_bytes,
                                  const void *value, size_t value_bytes);

#endif
