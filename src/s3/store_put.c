/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_put.c: a body comes in and becomes an object, or a part of an upload.
 *
 *   the caller's thread    s3_put_begin makes the file, s3_put_write fills it
 *   the same, or a worker  counts digests, and compares them at the end: of a long body a worker
 *                          does, behind the writer (follower.h)
 *   a worker               syncs the file
 *   the writer             commits the row
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/contents.h"
#include "s3/store_state.h"

/* Dirty pages of a large body are sent to the disk as they come, a window behind: the sync at the
 * end then has little left. */
#define FLUSH_BYTES  (INT64_C(8) << 20)
#define SOURCE_BYTES (256 << 10)
/* Longer bodies are digested by a worker behind the writer. */
#define FOLLOW_BYTES (INT64_C(1) << 20)

struct s3_put {
    union {
        struct s3_task task;
        struct s3_write write;
    } as;
    struct s3_store *store;
    char bucket[S3_BUCKET_NAME_MAX + 1], key[S3_KEY_BYTES_MAX + 1];
    char *headers, *tags, *match, *none_match; /* NULL: none */
    struct s3_digest digest;
    struct s3_digest_result result;
    struct s3_follower follower;
    bool is_followed, is_opaque;
    int64_t content, start; /* the file, and where in it the body begins */
    int64_t expected_bytes, bytes, flushed_bytes;
    int fd;
    bool has_failed;
    /* Of a part: */
    int64_t upload; /* 0: an object */
    char upload_name[S3_UPLOAD_NAME_BYTES];
    int part_number;
    struct s3_slot slot;
    /* Of the end: */
    char md5[S3_CHECKSUM_TEXT_BYTES], checksum[S3_CHECKSUM_TEXT_BYTES]; /* what it must be, or "" */
    struct s3_written written, *out;
    s3_done done;
    void *user;
    int source_fd; /* of a body that is copied from a file */
    int64_t source_first;
};

static void put_free(struct s3_put *put)
{
    if (put->fd >= 0)
        close(put->fd);
    s3_digest_release(&put->digest);
    base_free(put->headers);
    base_free(put->tags);
    base_free(put->match);
    base_free(put->none_match);
    base_free(put);
}

/* Whether the file is the put's own. */
static bool has_own_file(const struct s3_put *put)
{
    return put->slot.place == NULL && put->fd >= 0;
}

static void put_drop(void *user)
{
    struct s3_put *put = user;
    if (has_own_file(put))
        s3_content_unlink(put->store, put->content);
    s3_place_give(put->store, &put->slot, false);
    put_free(put);
}

void s3_put_abort(struct s3_put *put)
{
    if (put == NULL)
        return;
    if (put->is_followed)
        s3_follower_end(&put->follower, false, put_drop, put);
    else
        put_drop(put);
}

/* --------------------------------------------------------------------------------------- begin */

static enum s3_code text_keep(const char *text, char **out)
{
    if (text == NULL || *text == '\0')
        return S3_OK;
    return s3_from_status(base_strdup(text, "what is said about an object", out));
}

static enum s3_code options_check(const struct s3_put_options *options)
{
    int64_t most = options->upload != NULL ? S3_PART_BYTES_MAX : S3_OBJECT_BYTES_MAX;
    S3_TRY(s3_key_check(options->key));
    if (strnlen(options->bucket, S3_BUCKET_NAME_MAX + 1) > S3_BUCKET_NAME_MAX)
        return s3_error(S3_NO_SUCH_BUCKET, NULL);
    if (options->bytes > most)
        return s3_error(S3_ENTITY_TOO_LARGE, NULL);
    if (options->upload != NULL &&
        (options->part_number < 1 || options->part_number > S3_PART_NUMBER_MAX))
        return s3_error(S3_INVALID_ARGUMENT,
                        "Part number must be an integer between 1 and 10000, inclusive");
    return S3_OK;
}

static enum s3_code options_keep(struct s3_put *put, const struct s3_put_options *options)
{
    snprintf(put->bucket, sizeof(put->bucket), "%s", options->bucket);
    snprintf(put->key, sizeof(put->key), "%s", options->key);
    put->expected_bytes = options->bytes;
    S3_TRY(text_keep(options->headers, &put->headers));
    S3_TRY(text_keep(options->tags, &put->tags));
    if (options->conditions == NULL)
        return S3_OK;
    S3_TRY(text_keep(options->conditions->match, &put->match));
    return text_keep(options->conditions->none_match, &put->none_match);
}

/* Where the body goes: the upload's place, or a file of its own. */
static enum s3_code file_make(struct s3_put *put, const struct s3_upload_row *upload, int64_t bytes)
{
    if (upload != NULL)
        S3_TRY(s3_place_take(put->store, upload, put->part_number, bytes, &put->slot));
    if (put->slot.place != NULL) {
        put->fd = put->slot.fd;
        put->content = put->slot.content;
        put->start = put->slot.start;
    } else {
        S3_TRY(s3_content_create(put->store, &put->content, &put->fd));
    }
    return s3_content_reserve(put->fd, put->start, bytes);
}

static enum s3_code digest_begin(struct s3_put *put, enum s3_algorithm algorithm)
{
    return put->is_opaque ? s3_digest_init_checksum(&put->digest, algorithm)
                          : s3_digest_init(&put->digest, algorithm);
}

static enum s3_code begin_with(struct s3_put *put, struct sql_database *reader,
                               const struct s3_put_options *options)
{
    int64_t bucket;
    enum s3_algorithm algorithm = options->algorithm;
    if (options->upload == NULL) {
        S3_TRY(s3_bucket_row(reader, options->bucket, &bucket));
        S3_TRY(file_make(put, NULL, options->bytes));
        return digest_begin(put, algorithm);
    }
    struct s3_upload_row upload;
    S3_TRY(s3_upload_row(reader, options->bucket, options->key, options->upload, false, &upload));
    if (upload.upload.algorithm != S3_NO_CHECKSUM)
        algorithm = upload.upload.algorithm;
    put->upload = upload.id;
    put->part_number = options->part_number;
    snprintf(put->upload_name, sizeof(put->upload_name), "%s", upload.upload.name);
    S3_TRY(file_make(put, &upload, options->bytes));
    return digest_begin(put, algorithm);
}

enum s3_code s3_put_begin(struct s3_store *store, const struct s3_put_options *options,
                          struct s3_put **out)
{
    struct s3_put *put;
    struct sql_database *reader;
    S3_TRY(options_check(options));
    S3_TRY(s3_from_status(BASE_NEW(&put, "an object on its way in")));
    put->store = store;
    put->fd = -1;
    put->is_opaque = options->is_opaque;
    enum s3_code code = options_keep(put, options);
    if (code == S3_OK)
        code = s3_reader_take(store, &reader);
    if (code == S3_OK) {
        code = begin_with(put, reader, options);
        sql_reader_give(&store->readers, reader);
    }
    if (code != S3_OK) {
        s3_put_abort(put);
        return code;
    }
    bool is_slow = put->digest.has_md5 || put->digest.sha != NULL;
    put->is_followed = is_slow && (options->bytes < 0 || options->bytes >= FOLLOW_BYTES);
    if (put->is_followed)
        s3_follower_init(&put->follower, &store->followers, &put->digest, put->fd, put->start);
    *out = put;
    return S3_OK;
}

/* --------------------------------------------------------------------------------------- write */

static enum s3_code too_much(const struct s3_put *put, size_t bytes)
{
    int64_t most = put->upload != 0 ? S3_PART_BYTES_MAX : S3_OBJECT_BYTES_MAX;
    int64_t after = put->bytes + (int64_t)bytes;
    if (put->expected_bytes >= 0 && after > put->expected_bytes)
        return s3_error(S3_INCOMPLETE_BODY, NULL);
    return after > most ? s3_error(S3_ENTITY_TOO_LARGE, NULL) : S3_OK;
}

static enum s3_code flush_begin(struct s3_put *put)
{
    int64_t behind = put->bytes - put->flushed_bytes;
    if (behind < FLUSH_BYTES)
        return S3_OK;
    if (put->expected_bytes < 0)
        S3_TRY(s3_content_reserve(put->fd, 0, 0));
    sync_file_range(put->fd, put->start + put->flushed_bytes, behind, SYNC_FILE_RANGE_WRITE);
    put->flushed_bytes = put->bytes;
    return S3_OK;
}

enum s3_code s3_put_write(struct s3_put *put, const void *data, size_t bytes)
{
    enum s3_code code = too_much(put, bytes);
    if (code == S3_OK)
        code = s3_content_write(put->fd, data, bytes, put->start + put->bytes);
    if (code == S3_OK && !put->is_followed)
        code = s3_digest_add(&put->digest, data, bytes);
    if (code == S3_OK) {
        put->bytes += (int64_t)bytes;
        if (put->is_followed)
            s3_follower_wrote(&put->follower, put->bytes);
        code = flush_begin(put);
    }
    put->has_failed = code != S3_OK;
    return code;
}

/* -------------------------------------------------------------------------------------- finish */

static enum s3_code expected_check(struct s3_put *put)
{
    unsigned char bytes[S3_CHECKSUM_BYTES_MAX];
    if (put->md5[0] != '\0' && !s3_unbase64(put->md5, bytes, S3_MD5_BYTES))
        return s3_error(S3_INVALID_DIGEST, NULL);
    if (put->md5[0] != '\0' && memcmp(bytes, put->result.md5, S3_MD5_BYTES) != 0)
        return s3_error(S3_BAD_DIGEST, NULL);
    if (put->checksum[0] == '\0')
        return S3_OK;
    const char *name = s3_algorithm_name(put->digest.algorithm);
    size_t count = s3_algorithm_bytes(put->digest.algorithm);
    if (!s3_unbase64(put->checksum, bytes, count))
        return s3_error(S3_INVALID_REQUEST, "The %s value of the checksum is not valid.", name);
    if (memcmp(bytes, put->result.checksum, count) != 0)
        return s3_error(S3_BAD_DIGEST,
                        "The %s you specified did not match the calculated checksum.", name);
    return S3_OK;
}

/* What stands in for the MD5: no other body was put at the same place of the same file. */
static enum s3_code opaque_make(struct s3_put *put)
{
    int64_t name[] = {put->content, put->start, put->bytes, put->part_number, s3_now_ms()};
    struct s3_digest_result result;
    S3_TRY(s3_digest_of(S3_NO_CHECKSUM, name, sizeof(name), &result));
    memcpy(put->result.md5, result.md5, S3_MD5_BYTES);
    return S3_OK;
}

static enum s3_code body_end(struct s3_put *put)
{
    if (put->has_failed)
        return s3_error(S3_INTERNAL_ERROR, "the body was not written");
    if (put->expected_bytes >= 0 && put->bytes != put->expected_bytes)
        return s3_error(S3_INCOMPLETE_BODY, NULL);
    if (put->is_followed)
        S3_TRY(s3_follower_code(&put->follower));
    S3_TRY(s3_digest_end(&put->digest, &put->result));
    S3_TRY(expected_check(put));
    if (put->is_opaque)
        S3_TRY(opaque_make(put));
    struct s3_written *written = &put->written;
    s3_hex(put->result.md5, S3_MD5_BYTES, written->etag);
    written->bytes = put->bytes;
    written->checksum.algorithm = put->digest.algorithm;
    s3_base64(put->result.checksum, s3_algorithm_bytes(put->digest.algorithm),
              written->checksum.text);
    return S3_OK;
}

static enum s3_code object_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct s3_put *put = (struct s3_put *)write;
    struct s3_conditions conditions = {.match = put->match, .none_match = put->none_match};
    struct s3_object_row row = {.content = put->content,
                                .bytes = put->bytes,
                                .modified_ms = put->written.modified_ms = s3_now_ms(),
                                .etag = put->written.etag,
                                .checksum = put->written.checksum,
                                .headers = put->headers,
                                .tags = put->tags};
    S3_TRY(s3_object_row_put(writer, put->bucket, put->key, &conditions, &row));
    return s3_content_add(writer, put->content);
}

/* The file of a part that comes again; one in the upload's place belongs to the upload. */
static enum s3_code older_part_drop(struct s3_writer *writer, const struct s3_put *put,
                                    int64_t place)
{
    struct sql_database *database = &writer->sql.database;
    sqlite3_stmt *get = sql_statement(database, S3_SQL_PART_GET);
    sql_bind_int(database, get, 1, put->upload);
    sql_bind_int(database, get, 2, put->part_number);
    bool row;
    S3_TRY(s3_step(database, get, &row));
    int64_t content = row ? sqlite3_column_int64(get, 0) : 0;
    if (row)
        sql_reset(get);
    return content != 0 && content != place ? s3_content_drop(writer, content) : S3_OK;
}

static enum s3_code place_note(struct s3_writer *writer, const struct s3_put *put, int64_t place)
{
    if (put->slot.place != NULL && place == put->content)
        return S3_OK;
    if (put->slot.place != NULL) {
        sqlite3_stmt *set = sql_statement(&writer->sql.database, S3_SQL_UPLOAD_PLACE);
        sql_bind_int(&writer->sql.database, set, 1, put->upload);
        sql_bind_int(&writer->sql.database, set, 2, put->content);
        sql_bind_int(&writer->sql.database, set, 3, put->slot.stride);
        S3_TRY(s3_run(&writer->sql.database, set));
    }
    return s3_content_add(writer, put->content);
}

static enum s3_code part_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct s3_put *put = (struct s3_put *)write;
    struct sql_database *database = &writer->sql.database;
    struct s3_upload_row upload;
    S3_TRY(s3_upload_row(database, put->bucket, put->key, put->upload_name, false, &upload));
    S3_TRY(older_part_drop(writer, put, upload.content));
    S3_TRY(place_note(writer, put, upload.content));
    put->written.modified_ms = s3_now_ms();
    sqlite3_stmt *add = sql_statement(database, S3_SQL_PART_PUT);
    sql_bind_int(database, add, 1, put->upload);
    sql_bind_int(database, add, 2, put->part_number);
    sql_bind_int(database, add, 3, put->content);
    sql_bind_int(database, add, 4, put->start);
    sql_bind_int(database, add, 5, put->bytes);
    sql_bind_int(database, add, 6, put->written.modified_ms);
    sql_bind_blob(database, add, 7, put->result.md5, S3_MD5_BYTES);
    if (put->digest.algorithm != S3_NO_CHECKSUM)
        sql_bind_blob(database, add, 8, put->result.checksum,
                      (int)s3_algorithm_bytes(put->digest.algorithm));
    return s3_run(database, add);
}

/* After INTERNAL_ERROR nobody knows what is on the disk, so the file stays until the next start
 * finds it without a row. */
static void put_end(struct s3_write *write, enum s3_code code)
{
    struct s3_put *put = (struct s3_put *)write;
    if (code != S3_OK && code != S3_INTERNAL_ERROR && has_own_file(put))
        s3_content_unlink(put->store, put->content);
    s3_place_give(put->store, &put->slot, code == S3_OK);
    if (code == S3_OK && put->out != NULL)
        *put->out = put->written;
    s3_done done = put->done;
    void *user = put->user;
    put_free(put);
    done(user, code);
}

static void put_sync(struct s3_task *task)
{
    struct s3_put *put = (struct s3_put *)task;
    bool is_alone = put->slot.place == NULL;
    enum s3_code code = S3_OK;
    if (is_alone)
        code = s3_content_seal(put->fd);
    else if (fdatasync(put->fd) != 0)
        code = s3_error_errno(errno, "can't sync a part's file");
    put->as.write =
        (struct s3_write){.apply = put->upload != 0 ? part_apply : object_apply, .end = put_end};
    if (code == S3_OK)
        s3_writer_submit(&put->store->writer, &put->as.write);
    else
        put_end(&put->as.write, code);
}

/* Frees it, as if it had never begun; the thread's text is what is told. */
static void put_fail(struct s3_put *put, enum s3_code code)
{
    char text[BASE_ERROR_TEXT_BYTES];
    s3_done done = put->done;
    void *user = put->user;
    snprintf(text, sizeof(text), "%s", base_error_text());
    put_drop(put);
    done(user, s3_error(code, "%s", text));
}

/* On a worker, when all is digested. */
static void put_followed(void *user)
{
    struct s3_put *put = user;
    enum s3_code code = body_end(put);
    if (code == S3_OK)
        put_sync(&put->as.task);
    else
        put_fail(put, code);
}

/* One that is too long to be right is wrong without its end, too; "" stands for none, so an empty
 * one becomes another that is wrong. */
static void text_expect(char out[S3_CHECKSUM_TEXT_BYTES], const char *text)
{
    if (text != NULL)
        snprintf(out, S3_CHECKSUM_TEXT_BYTES, "%s", *text != '\0' ? text : "?");
}

void s3_put_finish(struct s3_put *put, const struct s3_put_expected *expected,
                   struct s3_written *out, s3_done done, void *user)
{
    if (expected != NULL) {
        text_expect(put->md5, expected->md5);
        text_expect(put->checksum, expected->checksum);
    }
    put->out = out;
    put->done = done;
    put->user = user;
    if (put->is_followed) {
        s3_follower_end(&put->follower, true, put_followed, put);
        return;
    }
    enum s3_code code = body_end(put);
    if (code != S3_OK) {
        put_fail(put, code);
        return;
    }
    put->as.task = (struct s3_task){.run = put_sync};
    s3_workers_submit(&put->store->workers, &put->as.task);
}

/* -------------------------------------------------------------------------------- from a file */

static enum s3_code body_copy(struct s3_put *put)
{
    char *buffer;
    int64_t first = put->source_first;
    S3_TRY(s3_from_status(base_alloc(SOURCE_BYTES, "a buffer for copying", (void **)&buffer)));
    enum s3_code code = S3_OK;
    while (code == S3_OK && put->bytes < put->expected_bytes) {
        int64_t left = put->expected_bytes - put->bytes;
        size_t want = left < SOURCE_BYTES ? (size_t)left : SOURCE_BYTES;
        ssize_t got = pread(put->source_fd, buffer, want, first + put->bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            code = s3_error_errno(got < 0 ? errno : EIO, "can't read an object's file");
        else
            code = s3_put_write(put, buffer, (size_t)got);
    }
    base_free(buffer);
    return code;
}

static void copy_run(struct s3_task *task)
{
    struct s3_put *put = (struct s3_put *)task;
    s3_done done = put->done;
    void *user = put->user;
    enum s3_code code = body_copy(put);
    if (code != S3_OK) {
        char text[BASE_ERROR_TEXT_BYTES];
        snprintf(text, sizeof(text), "%s", base_error_text());
        s3_put_abort(put);
        done(user, s3_error(code, "%s", text));
        return;
    }
    s3_put_finish(put, NULL, put->out, done, user);
}

void s3_put_finish_from(struct s3_put *put, int fd, int64_t first, struct s3_written *out,
                        s3_done done, void *user)
{
    BASE_ASSERT(put->expected_bytes >= 0);
    put->source_fd = fd;
    put->source_first = first;
    put->out = out;
    put->done = done;
    put->user = user;
    put->as.task = (struct s3_task){.run = copy_run};
    s3_workers_submit(&put->store->workers, &put->as.task);
}
