/* SPDX-License-Identifier: Apache-2.0 */
/* store_bucket.c: buckets are rows. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "s3/contents.h"
#include "s3/store_state.h"

enum s3_code s3_bucket_row(struct sql_database *database, const char *name, int64_t *id)
{
    sqlite3_stmt *find = sql_statement(database, S3_SQL_BUCKET_FIND);
    sql_bind_text(database, find, 1, name);
    bool row;
    S3_TRY(s3_step(database, find, &row));
    if (!row)
        return s3_error(S3_NO_SUCH_BUCKET, NULL);
    *id = sqlite3_column_int64(find, 0);
    sql_reset(find);
    return S3_OK;
}

static enum s3_code find_with(struct sql_database *database, const char *name,
                              struct s3_bucket *out)
{
    sqlite3_stmt *find = sql_statement(database, S3_SQL_BUCKET_FIND);
    sql_bind_text(database, find, 1, name);
    bool row;
    S3_TRY(s3_step(database, find, &row));
    if (!row)
        return s3_error(S3_NO_SUCH_BUCKET, NULL);
    snprintf(out->name, sizeof(out->name), "%s", name);
    out->created_ms = sqlite3_column_int64(find, 1);
    sql_reset(find);
    return S3_OK;
}

enum s3_code s3_bucket_find(struct s3_store *store, const char *name, struct s3_bucket *out)
{
    struct sql_database *reader;
    S3_TRY(s3_reader_take(store, &reader));
    enum s3_code code = find_with(reader, name, out);
    sql_reader_give(&store->readers, reader);
    return code;
}

static enum s3_code list_with(struct sql_database *database, struct s3_bucket *buckets,
                              size_t *count)
{
    sqlite3_stmt *list = sql_statement(database, S3_SQL_BUCKET_LIST);
    bool row;
    for (*count = 0; *count < S3_BUCKETS_MAX; ++*count) {
        S3_TRY(s3_step(database, list, &row));
        if (!row)
            return S3_OK;
        snprintf(buckets[*count].name, sizeof(buckets->name), "%s", sql_column_text(list, 0));
        buckets[*count].created_ms = sqlite3_column_int64(list, 1);
    }
    sql_reset(list);
    return S3_OK;
}

enum s3_code s3_bucket_list(struct s3_store *store, struct s3_bucket **out, size_t *count)
{
    struct s3_bucket *buckets;
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&buckets, S3_BUCKETS_MAX, "a list of buckets")));
    struct sql_database *reader;
    enum s3_code code = s3_reader_take(store, &reader);
    if (code == S3_OK) {
        code = list_with(reader, buckets, count);
        sql_reader_give(&store->readers, reader);
    }
    if (code != S3_OK)
        base_free(buckets);
    else
        *out = buckets;
    return code;
}

/* -------------------------------------------------------------------------------------- writes */

struct bucket_write {
    struct s3_write write;
    struct s3_store *store;
    char name[S3_BUCKET_NAME_MAX + 1];
    int64_t id; /* of one that is deleted */
    s3_done done;
    void *user;
};

static void bucket_end(struct s3_write *write, enum s3_code code)
{
    struct bucket_write *bucket = (struct bucket_write *)write;
    if (code == S3_OK && bucket->id != 0)
        s3_places_forget(bucket->store, bucket->id);
    bucket->done(bucket->user, code);
    base_free(bucket);
}

static void submit(struct s3_store *store, const char *name,
                   enum s3_code (*apply)(struct s3_write *write, struct s3_writer *writer),
                   s3_done done, void *user)
{
    struct bucket_write *bucket;
    enum s3_code code = s3_from_status(BASE_NEW(&bucket, "a write of a bucket"));
    if (code != S3_OK) {
        done(user, code);
        return;
    }
    *bucket = (struct bucket_write){
        .write = {.apply = apply, .end = bucket_end}, .store = store, .done = done, .user = user};
    snprintf(bucket->name, sizeof(bucket->name), "%s", name);
    s3_writer_submit(&store->writer, &bucket->write);
}

static enum s3_code create_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct sql_database *database = &writer->sql.database;
    const char *name = ((struct bucket_write *)write)->name;
    int64_t id;
    bool row;
    enum s3_code found = s3_bucket_row(database, name, &id);
    if (found != S3_NO_SUCH_BUCKET)
        return found == S3_OK ? s3_error(S3_BUCKET_OWNED, NULL) : found;
    sqlite3_stmt *count = sql_statement(database, S3_SQL_BUCKET_COUNT);
    S3_TRY(s3_step(database, count, &row));
    bool is_full = row && sqlite3_column_int64(count, 0) >= S3_BUCKETS_MAX;
    sql_reset(count);
    if (is_full)
        return s3_error(S3_INVALID_REQUEST, "There are %d buckets already, the most there can be.",
                        S3_BUCKETS_MAX);
    sqlite3_stmt *add = sql_statement(database, S3_SQL_BUCKET_ADD);
    sql_bind_text(database, add, 1, name);
    sql_bind_int(database, add, 2, s3_now_ms());
    return s3_run(database, add);
}

void s3_bucket_create(struct s3_store *store, const char *name, s3_done done, void *user)
{
    enum s3_code code = s3_bucket_name_check(name);
    if (code != S3_OK)
        done(user, code);
    else
        submit(store, name, create_apply, done, user);
}

/* One upload of the bucket at a time, until there is none. */
static enum s3_code uploads_end(struct s3_writer *writer, int64_t bucket)
{
    for (;;) {
        struct sql_database *database = &writer->sql.database;
        sqlite3_stmt *find = sql_statement(database, S3_SQL_UPLOAD_OF_BUCKET);
        sql_bind_int(database, find, 1, bucket);
        bool row;
        S3_TRY(s3_step(database, find, &row));
        if (!row)
            return S3_OK;
        int64_t id = sqlite3_column_int64(find, 0), content = sqlite3_column_int64(find, 1);
        sql_reset(find);
        S3_TRY(s3_upload_remove(writer, id, content));
    }
}

static enum s3_code delete_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct bucket_write *bucket = (struct bucket_write *)write;
    struct sql_database *database = &writer->sql.database;
    bool row;
    S3_TRY(s3_bucket_row(database, bucket->name, &bucket->id));
    sqlite3_stmt *used = sql_statement(database, S3_SQL_BUCKET_USED);
    sql_bind_int(database, used, 1, bucket->id);
    S3_TRY(s3_step(database, used, &row));
    if (row) {
        sql_reset(used);
        return s3_error(S3_BUCKET_NOT_EMPTY, NULL);
    }
    S3_TRY(uploads_end(writer, bucket->id));
    sqlite3_stmt *remove_row = sql_statement(database, S3_SQL_BUCKET_DELETE);
    sql_bind_int(database, remove_row, 1, bucket->id);
    return s3_run(database, remove_row);
}

void s3_bucket_delete(struct s3_store *store, const char *name, s3_done done, void *user)
{
    if (strnlen(name, S3_BUCKET_NAME_MAX + 1) > S3_BUCKET_NAME_MAX)
        done(user, s3_error(S3_NO_SUCH_BUCKET, NULL));
    else
        submit(store, name, delete_apply, done, user);
}
