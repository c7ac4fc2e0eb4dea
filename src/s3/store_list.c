/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_list.c: pages of keys.
 *
 * The index has the keys in order, so a page is a walk from where the last one ended. Behind a
 * common prefix the walk goes on at the first key that doesn't begin so: a million keys below it
 * cost one look-up.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "s3/store_state.h"

#define TEXTS_BYTES_FIRST (64 << 10)
#define SEEK_BYTES        (S3_KEY_BYTES_MAX + 4)

/* Where the walk goes on: at this key, or behind it. */
struct seek {
    char key[SEEK_BYTES];
    bool is_behind;
};

struct walk {
    struct s3_list *list;
    const char *prefix, *delimiter;
    size_t prefix_bytes, delimiter_bytes;
    int limit;
    char *texts; /* all keys of the page; entries hold offsets until it stays where it is */
    size_t used, room;
};

static enum s3_code text_keep(struct walk *walk, const char *text, size_t bytes, size_t *offset)
{
    if (walk->used + bytes + 1 > walk->room) {
        size_t room = (walk->used + bytes + 1) * 2;
        char *larger;
        room = room < TEXTS_BYTES_FIRST ? TEXTS_BYTES_FIRST : room;
        S3_TRY(s3_from_status(base_alloc(room, "a list of keys", (void **)&larger)));
        if (walk->used > 0)
            memcpy(larger, walk->texts, walk->used);
        base_free(walk->texts);
        walk->texts = larger;
        walk->room = room;
    }
    *offset = walk->used;
    memcpy(walk->texts + walk->used, text, bytes);
    walk->texts[walk->used + bytes] = '\0';
    walk->used += bytes + 1;
    return S3_OK;
}

/* Entries' keys are offsets until the walk is over. */
static enum s3_code entry_add(struct walk *walk, const char *key, size_t bytes, sqlite3_stmt *row)
{
    size_t offset;
    S3_TRY(text_keep(walk, key, bytes, &offset));
    struct s3_list_entry *entry = &walk->list->entries[walk->list->count++];
    *entry = (struct s3_list_entry){.key = (const char *)offset, .is_prefix = row == NULL};
    if (row == NULL)
        return S3_OK;
    entry->bytes = sqlite3_column_int64(row, 1);
    entry->modified_ms = sqlite3_column_int64(row, 2);
    snprintf(entry->etag, sizeof(entry->etag), "%s", sql_column_text(row, 3));
    entry->checksum.algorithm = (enum s3_algorithm)sqlite3_column_int(row, 4);
    snprintf(entry->checksum.text, sizeof(entry->checksum.text), "%s", sql_column_text(row, 5));
    s3_headers_class(sql_column_text(row, 6), entry->storage_class);
    return S3_OK;
}

/* The first of all texts behind those that begin with these bytes; false if there is none. */
static bool successor(const char *text, size_t bytes, struct seek *out)
{
    while (bytes > 0 && (unsigned char)text[bytes - 1] == 0xff)
        bytes--;
    if (bytes == 0)
        return false;
    memcpy(out->key, text, bytes);
    out->key[bytes - 1] = (char)((unsigned char)text[bytes - 1] + 1);
    out->key[bytes] = '\0';
    out->is_behind = false;
    return true;
}

/* Bytes of a key up to and with the delimiter behind the prefix; 0: it has none. */
static size_t common_bytes(const struct walk *walk, const char *key)
{
    if (walk->delimiter_bytes == 0)
        return 0;
    const char *found = strstr(key + walk->prefix_bytes, walk->delimiter);
    return found != NULL ? (size_t)(found - key) + walk->delimiter_bytes : 0;
}

/* Walks from the place on, until the page is full (then *is_over), the prefix ends (also), or a
 * common prefix makes the walk go on at another place. */
static enum s3_code walk_on(struct walk *walk, struct sql_database *database, sqlite3_stmt *rows,
                            struct seek *place, bool *is_over)
{
    *is_over = true;
    for (;;) {
        bool row;
        S3_TRY(s3_step(database, rows, &row));
        if (!row)
            return S3_OK;
        const char *key = sql_column_text(rows, 0);
        if (strncmp(key, walk->prefix, walk->prefix_bytes) != 0)
            return S3_OK;
        if (place->is_behind && strcmp(key, place->key) == 0)
            continue;
        if (walk->list->count == walk->limit) {
            walk->list->is_truncated = true;
            return S3_OK;
        }
        size_t common = common_bytes(walk, key);
        S3_TRY(entry_add(walk, key, common != 0 ? common : strlen(key), common != 0 ? NULL : rows));
        if (common != 0) {
            *is_over = !successor(key, common, place);
            return S3_OK;
        }
    }
}

/* The first place: the prefix, or behind `after`; a common prefix there has all its keys behind
 * it. False: nothing can be there. */
static bool place_first(const struct walk *walk, const char *after, struct seek *place)
{
    *place = (struct seek){.is_behind = false};
    snprintf(place->key, sizeof(place->key), "%s", walk->prefix);
    if (after == NULL || strcmp(after, walk->prefix) < 0)
        return true;
    snprintf(place->key, sizeof(place->key), "%s", after);
    place->is_behind = true;
    size_t bytes = strlen(place->key);
    bool begins = strncmp(after, walk->prefix, walk->prefix_bytes) == 0;
    if (begins && common_bytes(walk, place->key) == bytes)
        return successor(after, bytes, place);
    return true;
}

static enum s3_code walk_all(struct walk *walk, struct sql_database *database, int64_t bucket,
                             const char *after)
{
    struct seek place;
    bool is_over = !place_first(walk, after, &place);
    while (!is_over) {
        sqlite3_stmt *rows = sql_statement(database, S3_SQL_OBJECT_LIST);
        sql_bind_int(database, rows, 1, bucket);
        struct seek from = place; /* what is bound must stay */
        s3_bind_key(database, rows, 2, from.key);
        enum s3_code code = walk_on(walk, database, rows, &place, &is_over);
        sql_reset(rows);
        S3_TRY(code);
    }
    return S3_OK;
}

static enum s3_code list_with(struct walk *walk, struct sql_database *database,
                              const struct s3_list_options *options)
{
    int64_t bucket;
    S3_TRY(s3_bucket_row(database, options->bucket, &bucket));
    if (walk->limit == 0)
        return S3_OK;
    return walk_all(walk, database, bucket, options->after);
}

enum s3_code s3_list(struct s3_store *store, const struct s3_list_options *options,
                     struct s3_list *out)
{
    *out = (struct s3_list){0};
    struct walk walk = {.list = out,
                        .prefix = options->prefix != NULL ? options->prefix : "",
                        .delimiter = options->delimiter != NULL ? options->delimiter : ""};
    walk.prefix_bytes = strlen(walk.prefix);
    walk.delimiter_bytes = strlen(walk.delimiter);
    walk.limit = options->limit < S3_LIST_KEYS_MAX ? options->limit : S3_LIST_KEYS_MAX;
    if (walk.prefix_bytes > S3_KEY_BYTES_MAX ||
        (options->after != NULL && strlen(options->after) > S3_KEY_BYTES_MAX))
        return s3_error(S3_KEY_TOO_LONG, NULL);
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&out->entries, walk.limit, "a list of keys")));
    struct sql_database *reader;
    enum s3_code code = s3_reader_take(store, &reader);
    if (code == S3_OK) {
        code = list_with(&walk, reader, options);
        sql_reader_give(&store->readers, reader);
    }
    out->texts = walk.texts;
    for (int i = 0; i < out->count; i++)
        out->entries[i].key = walk.texts + (size_t)out->entries[i].key;
    if (code != S3_OK)
        s3_list_release(out);
    return code;
}

void s3_list_release(struct s3_list *list)
{
    base_free(list->entries);
    base_free(list->texts);
    *list = (struct s3_list){0};
}
