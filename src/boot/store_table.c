/* SPDX-License-Identifier: Apache-2.0 */
/* store_table.c: a chained hash table that doubles; keys are never removed. */
#include "boot/store_table.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define BUCKETS_AT_START 256
#define ENTRY_COST_BYTES 128 /* what an entry costs besides key and value, for the limit */

struct entry {
    struct entry *next;
    uint64_t hash;
    struct store_value *value;
    size_t key_bytes;
    char key[];
};

struct store_table {
    struct entry **buckets;
    size_t bucket_count, entry_count;
    size_t used_bytes, limit_bytes;
};

enum shoal_status store_value_create(size_t bytes, struct store_value **out)
{
    TRY(base_alloc(sizeof(**out) + bytes, "a value of the store", (void **)out));
    (*out)->holders = 1;
    (*out)->bytes = bytes;
    return SHOAL_OK;
}

struct store_value *store_value_hold(struct store_value *value)
{
    value->holders++;
    return value;
}

void store_value_drop(struct store_value *value)
{
    if (value != NULL && --value->holders == 0)
        base_free(value);
}

/* FNV-1a. Only clients with the job's secret choose keys, so no flooding to fear. */
static uint64_t hash_of(const char *key, size_t bytes)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)key[i]) * UINT64_C(1099511628211);
    return hash;
}

enum shoal_status store_table_create(size_t limit_bytes, struct store_table **out)
{
    struct store_table *table;
    TRY(BASE_NEW(&table, "the store"));
    enum shoal_status status =
        BASE_NEW_ARRAY(&table->buckets, BUCKETS_AT_START, "the store's keys");
    if (status != SHOAL_OK) {
        base_free(table);
        return status;
    }
    table->bucket_count = BUCKETS_AT_START;
    table->limit_bytes = limit_bytes;
    *out = table;
    return SHOAL_OK;
}

void store_table_free(struct store_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (struct entry *entry = table->buckets[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            store_value_drop(entry->value);
            base_free(entry);
        }
    }
    base_free(table->buckets);
    base_free(table);
}

struct store_value *store_table_find(const struct store_table *table, const char *key,
                                     size_t key_bytes)
{
    uint64_t hash = hash_of(key, key_bytes);
    struct entry *entry = table->buckets[hash % table->bucket_count];
    for (; entry != NULL; entry = entry->next) {
        if (entry->hash == hash && entry->key_bytes == key_bytes &&
            memcmp(entry->key, key, key_bytes) == 0)
            return entry->value;
    }
    return NULL;
}

/* Twice the buckets; without memory for them the chains just get longer. */
static void grow(struct store_table *table)
{
    struct entry **wider;
    size_t count = table->bucket_count * 2;
    if (BASE_NEW_ARRAY(&wider, count, "the store's keys") != SHOAL_OK)
        return;
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (struct entry *entry = table->buckets[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            entry->next = wider[entry->hash % count];
            wider[entry->hash % count] = entry;
        }
    }
    base_free(table->buckets);
    table->buckets = wider;
    table->bucket_count = count;
}

enum shoal_status store_table_add(struct store_table *table, const char *key, size_t key_bytes,
                                  const void *value, size_t value_bytes)
{
    size_t cost = ENTRY_COST_BYTES + key_bytes + value_bytes;
    if (cost > table->limit_bytes - table->used_bytes)
        return base_error(SHOAL_ERR_LIMIT, "the store is full (%zu MiB)", table->limit_bytes >> 20);
    struct entry *entry;
    TRY(base_alloc(sizeof(*entry) + key_bytes, "a key of the store", (void **)&entry));
    enum shoal_status status = store_value_create(value_bytes, &entry->value);
    if (status != SHOAL_OK) {
        base_free(entry);
        return status;
    }
    memcpy(entry->key, key, key_bytes);
    entry->key_bytes = key_bytes;
    entry->hash = hash_of(key, key_bytes);
    if (value_bytes > 0)
        memcpy(entry->value->data, value, value_bytes);
    if (table->entry_count >= table->bucket_count)
        grow(table);
    struct entry **bucket = &table->buckets[entry->hash % table->bucket_count];
    entry->next = *bucket;
    *bucket = entry;
    table->entry_count++;
    table->used_bytes += cost;
    return SHOAL_OK;
}
