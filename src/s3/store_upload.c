/* SPDX-License-Identifier: Apache-2.0 */
/* store_upload.c: multipart uploads: made, looked at, given up. */
#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "s3/contents.h"
#include "s3/store_state.h"

#define UPLOAD_LIST_MAX 1000

/* ------------------------------------------------------------------------------------------ rows
 */

static enum s3_code text_copy(const char *text, char **out)
{
    return s3_from_status(base_strdup(text, "what is said about an object", out));
}

/* The columns of S3_UPLOAD_COLUMNS. */
static void upload_read(sqlite3_stmt *row, struct s3_upload *out)
{
    *out = (struct s3_upload){.created_ms = sqlite3_column_int64(row, 3),
                              .algorithm = (enum s3_algorithm)sqlite3_column_int(row, 4),
                              .is_composite = sqlite3_column_int(row, 5) != 0};
    snprintf(out->name, sizeof(out->name), "%s", sql_column_text(row, 1));
    snprintf(out->key, sizeof(out->key), "%s", sql_column_text(row, 2));
    s3_headers_class(sql_column_text(row, 6), out->storage_class);
}

static enum s3_code row_read(sqlite3_stmt *row, bool with_texts, struct s3_upload_row *out)
{
    out->id = sqlite3_column_int64(row, 0);
    upload_read(row, &out->upload);
    out->content = sqlite3_column_int64(row, 7);
    out->stride = sqlite3_column_int64(row, 8);
    if (!with_texts)
        return S3_OK;
    S3_TRY(text_copy(sql_column_text(row, 6), &out->headers));
    enum s3_code code = text_copy(sql_column_text(row, 9), &out->tags);
    if (code != S3_OK) {
        base_free(out->headers);
        out->headers = NULL;
    }
    return code;
}

enum s3_code s3_upload_row(struct sql_database *database, const char *bucket, const char *key,
                           const char *name, bool with_texts, struct s3_upload_row *out)
{
    bool row;
    *out = (struct s3_upload_row){0};
    S3_TRY(s3_bucket_row(database, bucket, &out->bucket));
    sqlite3_stmt *find = sql_statement(database, S3_SQL_UPLOAD_FIND);
    sql_bind_text(database, find, 1, name);
    sql_bind_int(database, find, 2, out->bucket);
    s3_bind_key(database, find, 3, key);
    S3_TRY(s3_step(database, find, &row));
    if (!row)
        return s3_error(S3_NO_SUCH_UPLOAD, NULL);
    enum s3_code code = row_read(find, with_texts, out);
    sql_reset(find);
    return code;
}

/* Drops the files that parts have for themselves. */
static enum s3_code parts_drop(struct s3_writer *writer, int64_t id, int64_t place)
{
    struct sql_database *database = &writer->sql.database;
    sqlite3_stmt *list = sql_statement(database, S3_SQL_PART_LIST);
    sql_bind_int(database, list, 1, id);
    sql_bind_int(database, list, 2, 0);
    for (;;) {
        bool row;
        S3_TRY(s3_step(database, list, &row));
        if (!row)
            break;
        int64_t content = sqlite3_column_int64(list, 5);
        enum s3_code code = content != place ? s3_content_drop(writer, content) : S3_OK;
        if (code != S3_OK) {
            sql_reset(list);
            return code;
        }
    }
    sqlite3_stmt *remove_rows = sql_statement(database, S3_SQL_PART_DELETE);
    sql_bind_int(database, remove_rows, 1, id);
    return s3_run(database, remove_rows);
}

enum s3_code s3_upload_remove(struct s3_writer *writer, int64_t id, int64_t content)
{
    S3_TRY(parts_drop(writer, id, content));
    sqlite3_stmt *remove_row = sql_statement(&writer->sql.database, S3_SQL_UPLOAD_DELETE);
    sql_bind_int(&writer->sql.database, remove_row, 1, id);
    S3_TRY(s3_run(&writer->sql.database, remove_row));
    return content != 0 ? s3_content_drop(writer, content) : S3_OK;
}

/* ------------------------------------------------------------------------------ create and abort
 */

struct upload_write {
    struct s3_write write;
    struct s3_store *store;
    char bucket[S3_BUCKET_NAME_MAX + 1], key[S3_KEY_BYTES_MAX + 1], name[S3_UPLOAD_NAME_BYTES];
    char *headers, *tags, *out;
    enum s3_algorithm algorithm;
    bool is_composite;
    int64_t id; /* of one that is given up */
    s3_done done;
    void *user;
};

static void upload_end(struct s3_write *write, enum s3_code code)
{
    struct upload_write *upload = (struct upload_write *)write;
    if (code == S3_OK && upload->out != NULL)
        memcpy(upload->out, upload->name, sizeof(upload->name));
    if (code == S3_OK && upload->id != 0)
        s3_place_forget(upload->store, upload->id);
    upload->done(upload->user, code);
    base_free(upload->headers);
    base_free(upload->tags);
    base_free(upload);
}

static enum s3_code create_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct upload_write *upload = (struct upload_write *)write;
    struct sql_database *database = &writer->sql.database;
    int64_t bucket;
    S3_TRY(s3_bucket_row(database, upload->bucket, &bucket));
    sqlite3_stmt *add = sql_statement(database, S3_SQL_UPLOAD_ADD);
    sql_bind_text(database, add, 1, upload->name);
    sql_bind_int(database, add, 2, bucket);
    s3_bind_key(database, add, 3, upload->key);
    sql_bind_int(database, add, 4, s3_now_ms());
    sql_bind_int(database, add, 5, upload->algorithm);
    sql_bind_int(database, add, 6, upload->is_composite);
    sql_bind_text(database, add, 7, upload->headers);
    sql_bind_text(database, add, 8, upload->tags);
    return s3_run(database, add);
}

static enum s3_code write_make(struct s3_store *store, const char *bucket, const char *key,
                               struct upload_write **out)
{
    S3_TRY(s3_key_check(key));
    if (strnlen(bucket, S3_BUCKET_NAME_MAX + 1) > S3_BUCKET_NAME_MAX)
        return s3_error(S3_NO_SUCH_BUCKET, NULL);
    struct upload_write *upload;
    S3_TRY(s3_from_status(BASE_NEW(&upload, "an upload")));
    upload->store = store;
    upload->write.end = upload_end;
    snprintf(upload->bucket, sizeof(upload->bucket), "%s", bucket);
    snprintf(upload->key, sizeof(upload->key), "%s", key);
    *out = upload;
    return S3_OK;
}

static enum s3_code create_fill(struct upload_write *upload,
                                const struct s3_upload_options *options)
{
    unsigned char random[(S3_UPLOAD_NAME_BYTES - 1) / 2];
    if (RAND_bytes(random, sizeof(random)) != 1)
        return s3_error(S3_INTERNAL_ERROR, "libcrypto gives no random numbers");
    s3_hex(random, sizeof(random), upload->name);
    upload->algorithm = options->algorithm;
    upload->is_composite = options->is_composite;
    S3_TRY(text_copy(options->headers != NULL ? options->headers : "", &upload->headers));
    return text_copy(options->tags != NULL ? options->tags : "", &upload->tags);
}

void s3_upload_create(struct s3_store *store, const struct s3_upload_options *options,
                      char name[S3_UPLOAD_NAME_BYTES], s3_done done, void *user)
{
    struct upload_write *upload;
    enum s3_code code = write_make(store, options->bucket, options->key, &upload);
    if (code != S3_OK) {
        done(user, code);
        return;
    }
    upload->write.apply = create_apply;
    upload->out = name;
    upload->done = done;
    upload->user = user;
    code = create_fill(upload, options);
    if (code != S3_OK)
        upload_end(&upload->write, code);
    else
        s3_writer_submit(&store->writer, &upload->write);
}

static enum s3_code abort_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct upload_write *upload = (struct upload_write *)write;
    struct s3_upload_row row;
    S3_TRY(s3_upload_row(&writer->sql.database, upload->bucket, upload->key, upload->name, false,
                         &row));
    upload->id = row.id;
    return s3_upload_remove(writer, row.id, row.content);
}

void s3_upload_abort(struct s3_store *store, const char *bucket, const char *key,
                     const char *upload_name, s3_done done, void *user)
{
    struct upload_write *upload;
    enum s3_code code = write_make(store, bucket, key, &upload);
    if (code != S3_OK) {
        done(user, code);
        return;
    }
    upload->write.apply = abort_apply;
    snprintf(upload->name, sizeof(upload->name), "%s", upload_name);
    upload->done = done;
    upload->user = user;
    s3_writer_submit(&store->writer, &upload->write);
}

/* ---------------------------------------------------------------------------------------- reading
 */

enum s3_code s3_upload_find(struct s3_store *store, const char *bucket, const char *key,
                            const char *upload, struct s3_upload *out)
{
    struct sql_database *reader;
    struct s3_upload_row row;
    S3_TRY(s3_reader_take(store, &reader));
    enum s3_code code = s3_upload_row(reader, bucket, key, upload, false, &row);
    sql_reader_give(&store->readers, reader);
    if (code == S3_OK)
        *out = row.upload;
    return code;
}

static void part_read(sqlite3_stmt *row, enum s3_algorithm algorithm, struct s3_part *out)
{
    *out = (struct s3_part){.number = sqlite3_column_int(row, 0),
                            .bytes = sqlite3_column_int64(row, 1),
                            .modified_ms = sqlite3_column_int64(row, 2)};
    const unsigned char *md5 = sqlite3_column_blob(row, 3), *checksum = sqlite3_column_blob(row, 4);
    if (md5 != NULL && sqlite3_column_bytes(row, 3) == S3_MD5_BYTES)
        s3_hex(md5, S3_MD5_BYTES, out->etag);
    size_t bytes = (size_t)sqlite3_column_bytes(row, 4);
    if (checksum != NULL && bytes != 0 && bytes == s3_algorithm_bytes(algorithm)) {
        out->checksum.algorithm = algorithm;
        s3_base64(checksum, bytes, out->checksum.text);
    }
}

static enum s3_code parts_with(struct sql_database *database, const struct s3_upload_row *upload,
                               int after, int limit, struct s3_part *parts, size_t *count,
                               bool *is_truncated)
{
    sqlite3_stmt *list = sql_statement(database, S3_SQL_PART_LIST);
    sql_bind_int(database, list, 1, upload->id);
    sql_bind_int(database, list, 2, after);
    *count = 0;
    *is_truncated = false;
    for (;;) {
        bool row;
        S3_TRY(s3_step(database, list, &row));
        if (!row)
            return S3_OK;
        if (*count == (size_t)limit)
            break;
        part_read(list, upload->upload.algorithm, &parts[(*count)++]);
    }
    *is_truncated = true;
    sql_reset(list);
    return S3_OK;
}

enum s3_code s3_upload_parts(struct s3_store *store, const char *bucket, const char *key,
                             const char *upload, int after, int limit, struct s3_part **out,
                             size_t *count, bool *is_truncated)
{
    struct sql_database *reader;
    struct s3_upload_row row;
    struct s3_part *parts;
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&parts, limit, "a list of parts")));
    enum s3_code code = s3_reader_take(store, &reader);
    if (code == S3_OK) {
        code = s3_upload_row(reader, bucket, key, upload, false, &row);
        if (code == S3_OK)
            code = parts_with(reader, &row, after, limit, parts, count, is_truncated);
        sql_reader_give(&store->readers, reader);
    }
    if (code != S3_OK)
        base_free(parts);
    else
        *out = parts;
    return code;
}

struct upload_list {
    const char *bucket, *prefix, *after_key, *after_name;
    int limit;
    struct s3_upload *uploads;
    size_t count;
    bool is_truncated;
};

static enum s3_code uploads_with(struct sql_database *database, struct upload_list *want)
{
    int64_t bucket;
    S3_TRY(s3_bucket_row(database, want->bucket, &bucket));
    sqlite3_stmt *list = sql_statement(database, S3_SQL_UPLOAD_LIST);
    sql_bind_int(database, list, 1, bucket);
    s3_bind_key(database, list, 2, want->after_key);
    sql_bind_text(database, list, 3, want->after_name);
    s3_bind_key(database, list, 4, want->prefix);
    for (;;) {
        bool row;
        S3_TRY(s3_step(database, list, &row));
        if (!row)
            return S3_OK;
        if (strncmp(sql_column_text(list, 2), want->prefix, strlen(want->prefix)) != 0)
            break;
        if (want->count == (size_t)want->limit) {
            want->is_truncated = true;
            break;
        }
        upload_read(list, &want->uploads[want->count++]);
    }
    sql_reset(list);
    return S3_OK;
}

enum s3_code s3_upload_list(struct s3_store *store, const char *bucket, const char *prefix,
                            const char *after_key, const char *after_name, int limit,
                            struct s3_upload **out, size_t *count, bool *is_truncated)
{
    struct upload_list want = {.bucket = bucket,
                               .prefix = prefix != NULL ? prefix : "",
                               .after_key = after_key != NULL ? after_key : "",
                               .after_name = after_name != NULL ? after_name : "",
                               .limit = limit < UPLOAD_LIST_MAX ? limit : UPLOAD_LIST_MAX};
    struct sql_database *reader;
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&want.uploads, want.limit, "a list of uploads")));
    enum s3_code code = s3_reader_take(store, &reader);
    if (code == S3_OK) {
        code = uploads_with(reader, &want);
        sql_reader_give(&store->readers, reader);
    }
    if (code != S3_OK) {
        base_free(want.uploads);
        return code;
    }
    *out = want.uploads;
    *count = want.count;
    *is_truncated = want.is_truncated;
    return S3_OK;
}
