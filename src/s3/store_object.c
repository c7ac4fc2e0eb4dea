/* SPDX-License-Identifier: Apache-2.0 */
/* store_object.c: looking objects up, and what changes only their rows: delete, tag, copy. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/contents.h"
#include "s3/store_state.h"

/* How often a get starts over because the object was replaced between its row and its file. */
#define GET_TRIES 16

enum column {
    CONTENT,
    BYTES,
    MODIFIED,
    ETAG,
    ALGORITHM,
    CHECKSUM,
    PART_COUNT,
    PARTS,
    HEADERS,
    TAGS
};

/* --------------------------------------------------------------------------------------- reading
 */

/* The three texts of a row, in one block. */
static enum s3_code texts_keep(struct s3_object *object, sqlite3_stmt *row)
{
    const char **const texts[] = {&object->parts, &object->headers, &object->tags};
    size_t bytes[3], all = 0;
    for (int i = 0; i < 3; i++)
        all += bytes[i] = strlen(sql_column_text(row, PARTS + i)) + 1;
    S3_TRY(s3_from_status(base_alloc(all, "what is said about an object", &object->block)));
    char *at = object->block;
    for (int i = 0; i < 3; i++) {
        memcpy(at, sql_column_text(row, PARTS + i), bytes[i]);
        *texts[i] = at;
        at += bytes[i];
    }
    return S3_OK;
}

static enum s3_code object_read(sqlite3_stmt *row, struct s3_object *out, int64_t *content)
{
    *out = (struct s3_object){.bytes = sqlite3_column_int64(row, BYTES),
                              .modified_ms = sqlite3_column_int64(row, MODIFIED),
                              .part_count = sqlite3_column_int(row, PART_COUNT)};
    *content = sqlite3_column_int64(row, CONTENT);
    snprintf(out->etag, sizeof(out->etag), "%s", sql_column_text(row, ETAG));
    out->checksum.algorithm = (enum s3_algorithm)sqlite3_column_int(row, ALGORITHM);
    snprintf(out->checksum.text, sizeof(out->checksum.text), "%s", sql_column_text(row, CHECKSUM));
    return texts_keep(out, row);
}

static enum s3_code find_with(struct sql_database *database, const char *bucket, const char *key,
                              struct s3_object *out, int64_t *content)
{
    int64_t id;
    bool row;
    S3_TRY(s3_bucket_row(database, bucket, &id));
    sqlite3_stmt *get = sql_statement(database, S3_SQL_OBJECT_GET);
    sql_bind_int(database, get, 1, id);
    s3_bind_key(database, get, 2, key);
    S3_TRY(s3_step(database, get, &row));
    if (!row)
        return s3_error(S3_NO_SUCH_KEY, NULL);
    enum s3_code code = object_read(get, out, content);
    sql_reset(get);
    return code;
}

static enum s3_code find(struct s3_store *store, const char *bucket, const char *key,
                         struct s3_object *out, int64_t *content)
{
    struct sql_database *reader;
    S3_TRY(s3_reader_take(store, &reader));
    enum s3_code code = find_with(reader, bucket, key, out, content);
    sql_reader_give(&store->readers, reader);
    return code;
}

void s3_object_release(struct s3_object *object)
{
    base_free(object->block);
    object->block = NULL;
}

enum s3_code s3_object_get(struct s3_store *store, const char *bucket, const char *key,
                           const struct s3_conditions *conditions, struct s3_object *out, int *fd)
{
    for (int tries = 0; tries < GET_TRIES; tries++) {
        int64_t content;
        enum s3_code code = find(store, bucket, key, out, &content);
        if (code != S3_OK)
            return code;
        if (conditions != NULL)
            code = s3_conditions_check(conditions, out->etag, out->modified_ms);
        if (code != S3_OK || fd == NULL)
            return code;
        code = s3_content_open(store, content, false, fd);
        if (code == S3_OK && *fd >= 0)
            return S3_OK;
        s3_object_release(out);
        if (code != S3_OK)
            return code;
    }
    return s3_error(S3_INTERNAL_ERROR,
                    "the file of the object is missing from the directory of contents");
}

enum s3_code s3_object_part(const struct s3_object *object, int number, struct s3_range *out)
{
    *out = (struct s3_range){.is_part = true, .first = 0, .count = object->bytes};
    if (number == 1 && object->part_count == 0)
        return S3_OK;
    if (number < 1 || number > object->part_count)
        return s3_error(S3_INVALID_PART_NUMBER, NULL);
    int before = 0;
    for (const char *at = object->parts; *at != '\0';) {
        char *end;
        int64_t bytes = strtoll(at, &end, 10), count = 1;
        if (*end == '*')
            count = strtoll(end + 1, &end, 10);
        if (number <= before + count) {
            out->first += (number - before - 1) * bytes;
            out->count = bytes;
            return S3_OK;
        }
        out->first += count * bytes;
        before += (int)count;
        at = end + (*end == ' ');
    }
    return s3_error(S3_INTERNAL_ERROR, "the sizes of the object's parts can't be read");
}

/* ------------------------------------------------------------------------------------- the row */

/* The content and ETag that a key has now; 0 and "" for none. */
static enum s3_code older_get(struct sql_database *database, int64_t bucket, const char *key,
                              int64_t *content, char etag[S3_ETAG_BYTES])
{
    sqlite3_stmt *get = sql_statement(database, S3_SQL_OBJECT_GET);
    sql_bind_int(database, get, 1, bucket);
    s3_bind_key(database, get, 2, key);
    bool row;
    S3_TRY(s3_step(database, get, &row));
    *content = row ? sqlite3_column_int64(get, CONTENT) : 0;
    snprintf(etag, S3_ETAG_BYTES, "%s", row ? sql_column_text(get, ETAG) : "");
    if (row)
        sql_reset(get);
    return S3_OK;
}

static enum s3_code row_write(struct sql_database *database, int64_t bucket, const char *key,
                              const struct s3_object_row *row)
{
    bool has_checksum = row->checksum.algorithm != S3_NO_CHECKSUM && row->checksum.text[0] != '\0';
    sqlite3_stmt *put = sql_statement(database, S3_SQL_OBJECT_PUT);
    sql_bind_int(database, put, 1, bucket);
    s3_bind_key(database, put, 2, key);
    sql_bind_int(database, put, 3, row->content);
    sql_bind_int(database, put, 4, row->bytes);
    sql_bind_int(database, put, 5, row->modified_ms);
    sql_bind_text(database, put, 6, row->etag);
    sql_bind_int(database, put, 7, has_checksum ? row->checksum.algorithm : S3_NO_CHECKSUM);
    sql_bind_text(database, put, 8, has_checksum ? row->checksum.text : NULL);
    sql_bind_int(database, put, 9, row->part_count);
    sql_bind_text(database, put, 10, row->parts);
    sql_bind_text(database, put, 11, row->headers);
    sql_bind_text(database, put, 12, row->tags);
    return s3_run(database, put);
}

enum s3_code s3_object_row_put(struct s3_writer *writer, const char *bucket, const char *key,
                               const struct s3_conditions *conditions,
                               const struct s3_object_row *row)
{
    struct sql_database *database = &writer->sql.database;
    int64_t bucket_id, older;
    char etag[S3_ETAG_BYTES];
    S3_TRY(s3_bucket_row(database, bucket, &bucket_id));
    S3_TRY(older_get(database, bucket_id, key, &older, etag));
    if (conditions != NULL)
        S3_TRY(s3_conditions_check_write(conditions, older != 0 ? etag : NULL));
    S3_TRY(row_write(database, bucket_id, key, row));
    return older != 0 ? s3_content_drop(writer, older) : S3_OK;
}

/* ---------------------------------------------------------------------------------------- writes
 */

/* One struct for the three: keys are one behind the other in `texts`, each with its NUL. */
struct object_write {
    struct s3_write write;
    struct s3_written written, *out;
    struct s3_copy copy; /* of a copy; its texts are in `texts` */
    struct s3_conditions conditions, to_conditions;
    const char *bucket, *tags;
    size_t count;
    s3_done done;
    void *user;
    char *at; /* the end of what is used */
    char texts[];
};

/* Puts a text behind the others; NULL stays NULL. */
static const char *text_add(struct object_write *object, const char *text)
{
    if (text == NULL)
        return NULL;
    size_t bytes = strlen(text) + 1;
    char *copy = memcpy(object->at, text, bytes);
    object->at += bytes;
    return copy;
}

static size_t text_bytes(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

static void object_end(struct s3_write *write, enum s3_code code)
{
    struct object_write *object = (struct object_write *)write;
    if (code == S3_OK && object->out != NULL)
        *object->out = object->written;
    object->done(object->user, code);
    base_free(object);
}

static enum s3_code write_make(size_t bytes,
                               enum s3_code (*apply)(struct s3_write *, struct s3_writer *),
                               s3_done done, void *user, struct object_write **out)
{
    struct object_write *object;
    S3_TRY(s3_from_status(base_alloc(sizeof(*object) + bytes, "a write", (void **)&object)));
    object->write = (struct s3_write){.apply = apply, .end = object_end};
    object->at = object->texts;
    object->done = done;
    object->user = user;
    *out = object;
    return S3_OK;
}

static enum s3_code key_delete(struct s3_writer *writer, int64_t bucket, const char *key,
                               const struct s3_conditions *conditions)
{
    struct sql_database *database = &writer->sql.database;
    int64_t older;
    char etag[S3_ETAG_BYTES];
    S3_TRY(older_get(database, bucket, key, &older, etag));
    S3_TRY(s3_conditions_check_write(conditions, older != 0 ? etag : NULL));
    if (older == 0)
        return S3_OK;
    sqlite3_stmt *remove_row = sql_statement(database, S3_SQL_OBJECT_DELETE);
    sql_bind_int(database, remove_row, 1, bucket);
    s3_bind_key(database, remove_row, 2, key);
    S3_TRY(s3_run(database, remove_row));
    return s3_content_drop(writer, older);
}

static enum s3_code delete_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct object_write *object = (struct object_write *)write;
    int64_t bucket;
    S3_TRY(s3_bucket_row(&writer->sql.database, object->bucket, &bucket));
    const char *key = object->bucket + strlen(object->bucket) + 1;
    for (size_t i = 0; i < object->count; i++, key += strlen(key) + 1)
        S3_TRY(key_delete(writer, bucket, key, &object->conditions));
    return S3_OK;
}

void s3_object_delete(struct s3_store *store, const char *bucket, const char *const *keys,
                      size_t count, const struct s3_conditions *conditions, s3_done done,
                      void *user)
{
    struct object_write *object;
    const char *match = conditions != NULL ? conditions->match : NULL;
    size_t bytes = text_bytes(bucket) + text_bytes(match);
    for (size_t i = 0; i < count; i++)
        bytes += text_bytes(keys[i]);
    enum s3_code code = write_make(bytes, delete_apply, done, user, &object);
    if (code != S3_OK) {
        done(user, code);
        return;
    }
    object->bucket = text_add(object, bucket);
    object->count = count;
    for (size_t i = 0; i < count; i++)
        text_add(object, keys[i]);
    object->conditions.match = text_add(object, match);
    s3_writer_submit(&store->writer, &object->write);
}

static enum s3_code tag_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct object_write *object = (struct object_write *)write;
    struct sql_database *database = &writer->sql.database;
    int64_t bucket, content;
    char etag[S3_ETAG_BYTES];
    const char *key = object->bucket + strlen(object->bucket) + 1;
    S3_TRY(s3_bucket_row(database, object->bucket, &bucket));
    S3_TRY(older_get(database, bucket, key, &content, etag));
    if (content == 0)
        return s3_error(S3_NO_SUCH_KEY, NULL);
    sqlite3_stmt *tag = sql_statement(database, S3_SQL_OBJECT_TAG);
    sql_bind_int(database, tag, 1, bucket);
    s3_bind_key(database, tag, 2, key);
    sql_bind_text(database, tag, 3, object->tags);
    return s3_run(database, tag);
}

void s3_object_tag(struct s3_store *store, const char *bucket, const char *key, const char *tags,
                   s3_done done, void *user)
{
    struct object_write *object;
    size_t bytes = text_bytes(bucket) + text_bytes(key) + text_bytes(tags);
    enum s3_code code = write_make(bytes, tag_apply, done, user, &object);
    if (code != S3_OK) {
        done(user, code);
        return;
    }
    object->bucket = text_add(object, bucket);
    text_add(object, key);
    object->tags = text_add(object, tags);
    s3_writer_submit(&store->writer, &object->write);
}

/* The source is looked up in the same transaction as the row is written. */
static enum s3_code copy_row(struct s3_writer *writer, struct object_write *object,
                             const struct s3_object *source, int64_t content)
{
    const struct s3_copy *copy = &object->copy;
    const char *storage = copy->storage != NULL ? copy->storage : "";
    char *headers = NULL;
    if (copy->headers == NULL)
        S3_TRY(s3_headers_copied(source->headers, storage, &headers));
    struct s3_object_row row = {
        .content = content,
        .bytes = source->bytes,
        .modified_ms = s3_now_ms(),
        .etag = source->etag,
        .checksum = source->checksum,
        .part_count = source->part_count,
        .parts = source->parts,
        .headers = copy->headers != NULL ? copy->headers : headers,
        .tags = copy->tags != NULL ? copy->tags : source->tags,
    };
    object->written = (struct s3_written){
        .bytes = row.bytes, .modified_ms = row.modified_ms, .checksum = row.checksum};
    memcpy(object->written.etag, source->etag, sizeof(source->etag));
    enum s3_code code = s3_conditions_check(&object->conditions, source->etag, source->modified_ms);
    if (code == S3_OK)
        code = s3_content_hold(writer, content); /* first: it may be the key's own */
    if (code == S3_OK)
        code =
            s3_object_row_put(writer, copy->to_bucket, copy->to_key, &object->to_conditions, &row);
    base_free(headers);
    return code;
}

static enum s3_code copy_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct object_write *object = (struct object_write *)write;
    struct s3_object source;
    int64_t content;
    S3_TRY(
        find_with(&writer->sql.database, object->copy.bucket, object->copy.key, &source, &content));
    enum s3_code code = copy_row(writer, object, &source, content);
    s3_object_release(&source);
    /* What holds for reading a source that has not changed is a failed condition of a copy. */
    return code == S3_NOT_MODIFIED ? s3_error(S3_PRECONDITION_FAILED, NULL) : code;
}

static void copy_texts(struct object_write *object, const struct s3_copy *copy)
{
    object->copy = (struct s3_copy){.bucket = text_add(object, copy->bucket),
                                    .key = text_add(object, copy->key),
                                    .to_bucket = text_add(object, copy->to_bucket),
                                    .to_key = text_add(object, copy->to_key),
                                    .headers = text_add(object, copy->headers),
                                    .tags = text_add(object, copy->tags),
                                    .storage = text_add(object, copy->storage)};
    if (copy->conditions != NULL) {
        object->conditions = *copy->conditions;
        object->conditions.match = text_add(object, copy->conditions->match);
        object->conditions.none_match = text_add(object, copy->conditions->none_match);
    }
    if (copy->to_conditions != NULL) {
        object->to_conditions.match = text_add(object, copy->to_conditions->match);
        object->to_conditions.none_match = text_add(object, copy->to_conditions->none_match);
    }
}

static size_t condition_bytes(const struct s3_conditions *conditions)
{
    if (conditions == NULL)
        return 0;
    return text_bytes(conditions->match) + text_bytes(conditions->none_match);
}

void s3_object_copy(struct s3_store *store, const struct s3_copy *copy, struct s3_written *out,
                    s3_done done, void *user)
{
    struct object_write *object;
    size_t bytes = text_bytes(copy->bucket) + text_bytes(copy->key) + text_bytes(copy->to_bucket) +
                   text_bytes(copy->to_key) + text_bytes(copy->headers) + text_bytes(copy->tags) +
                   text_bytes(copy->storage) + condition_bytes(copy->conditions) +
                   condition_bytes(copy->to_conditions);
    enum s3_code code = s3_key_check(copy->to_key);
    if (code == S3_OK)
        code = write_make(bytes, copy_apply, done, user, &object);
    if (code != S3_OK) {
        done(user, code);
        return;
    }
    copy_texts(object, copy);
    object->out = out;
    s3_writer_submit(&store->writer, &object->write);
}
