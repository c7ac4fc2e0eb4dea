/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_complete.c: the parts of an upload become an object.
 *
 *   a worker    compares the list with the parts that are there, counts ETag and checksum, and has
 *               the bytes in one file: mostly they lie so already (place.h); else it copies those
 *               that don't, or, where that could disturb others, all
 *   the writer  commits the object's row, and removes those of the upload
 *
 * A kill in between leaves the upload as it was: what was copied into its file lies where no part
 * lies, and the client can ask again. It can also after a kill, or a broken connection, behind the
 * commit: an upload that is not there, of parts that the object is made of, is done.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/contents.h"
#include "s3/store_state.h"

/* A listed part, and where it is. */
struct source {
    int64_t content, start, bytes;
    unsigned char md5[S3_MD5_BYTES], checksum[S3_CHECKSUM_BYTES_MAX];
    bool has_checksum;
};

struct completion {
    union {
        struct s3_task task;
        struct s3_write write;
    } as;
    struct s3_store *store;
    char bucket[S3_BUCKET_NAME_MAX + 1], key[S3_KEY_BYTES_MAX + 1], name[S3_UPLOAD_NAME_BYTES];
    char *checksum, *match, *none_match; /* NULL: none */
    struct s3_part *parts;               /* as listed */
    struct source *sources;
    size_t count;
    struct s3_upload_row upload;
    bool is_closed, is_quiet; /* the place */
    int64_t placed;           /* parts in it */
    int64_t bytes, content;   /* of the object */
    bool is_new_file;         /* content has no row yet */
    bool is_done;             /* by an earlier request */
    char *sizes;
    struct s3_written written, *out;
    s3_done done;
    void *user;
};

static void completion_end(struct s3_write *write, enum s3_code code)
{
    struct completion *all = (struct completion *)write;
    if (code == S3_OK)
        s3_place_forget(all->store, all->upload.id);
    else if (all->is_closed)
        s3_place_open(all->store, all->upload.id);
    if (code != S3_OK && code != S3_INTERNAL_ERROR && all->is_new_file)
        s3_content_unlink(all->store, all->content);
    if (code == S3_OK && all->out != NULL)
        *all->out = all->written;
    all->done(all->user, code);
    base_free(all->checksum);
    base_free(all->match);
    base_free(all->none_match);
    base_free(all->parts);
    base_free(all->sources);
    base_free(all->sizes);
    base_free(all->upload.headers);
    base_free(all->upload.tags);
    base_free(all);
}

/* ------------------------------------------------------------------------------- what is listed */

static enum s3_code part_find(struct sql_database *database, int64_t upload, int number,
                              struct source *out)
{
    sqlite3_stmt *get = sql_statement(database, S3_SQL_PART_GET);
    sql_bind_int(database, get, 1, upload);
    sql_bind_int(database, get, 2, number);
    bool row;
    S3_TRY(s3_step(database, get, &row));
    if (!row)
        return s3_error(S3_INVALID_PART, NULL);
    *out = (struct source){.content = sqlite3_column_int64(get, 0),
                           .start = sqlite3_column_int64(get, 1),
                           .bytes = sqlite3_column_int64(get, 2)};
    const void *md5 = sqlite3_column_blob(get, 3), *checksum = sqlite3_column_blob(get, 4);
    int checksum_bytes = sqlite3_column_bytes(get, 4);
    if (md5 != NULL && sqlite3_column_bytes(get, 3) == S3_MD5_BYTES)
        memcpy(out->md5, md5, S3_MD5_BYTES);
    if (checksum != NULL && checksum_bytes <= S3_CHECKSUM_BYTES_MAX) {
        memcpy(out->checksum, checksum, (size_t)checksum_bytes);
        out->has_checksum = true;
    }
    sql_reset(get);
    return S3_OK;
}

/* Whether the part that is there is the one that the list names. */
static enum s3_code part_compare(const struct completion *all, size_t i)
{
    const struct s3_part *listed = &all->parts[i];
    const struct source *found = &all->sources[i];
    unsigned char md5[S3_MD5_BYTES], checksum[S3_CHECKSUM_BYTES_MAX];
    if (!s3_unhex(listed->etag, md5, sizeof(md5)) || memcmp(md5, found->md5, sizeof(md5)) != 0)
        return s3_error(S3_INVALID_PART, NULL);
    if (listed->checksum.text[0] != '\0' && found->has_checksum) {
        size_t bytes = s3_algorithm_bytes(all->upload.upload.algorithm);
        if (!s3_unbase64(listed->checksum.text, checksum, bytes) ||
            memcmp(checksum, found->checksum, bytes) != 0)
            return s3_error(S3_INVALID_PART, NULL);
    }
    if (found->bytes < S3_PART_BYTES_MIN && i + 1 < all->count)
        return s3_error(S3_ENTITY_TOO_SMALL,
                        "Your proposed upload is smaller than the minimum allowed size: part %d "
                        "has %" PRId64 " bytes, and each but the last must have 5 MiB.",
                        listed->number, found->bytes);
    return S3_OK;
}

static enum s3_code parts_find(struct completion *all, struct sql_database *reader)
{
    for (size_t i = 0; i < all->count; i++) {
        S3_TRY(part_find(reader, all->upload.id, all->parts[i].number, &all->sources[i]));
        S3_TRY(part_compare(all, i));
        all->bytes += all->sources[i].bytes;
    }
    return all->bytes > S3_OBJECT_BYTES_MAX ? s3_error(S3_ENTITY_TOO_LARGE, NULL) : S3_OK;
}

/* ----------------------------------------------------------------- what is said about the object
 */

/* "8388608*127 1234": sizes of the parts, runs of equal ones together. */
static enum s3_code sizes_write(struct completion *all)
{
    S3_TRY(s3_from_status(base_alloc(1 + 24 * all->count, "sizes of parts", (void **)&all->sizes)));
    char *at = all->sizes;
    for (size_t i = 0, next; i < all->count; i = next) {
        for (next = i + 1; next < all->count && all->sources[next].bytes == all->sources[i].bytes;)
            next++;
        at += sprintf(at, i > 0 ? " %" PRId64 : "%" PRId64, all->sources[i].bytes);
        if (next - i > 1)
            at += sprintf(at, "*%zu", next - i);
    }
    return S3_OK;
}

/* The digest of all parts' digests. */
static enum s3_code digest_of_parts(const struct completion *all, enum s3_algorithm algorithm,
                                    struct s3_digest_result *out)
{
    struct s3_digest digest;
    size_t bytes = s3_algorithm_bytes(algorithm);
    S3_TRY(s3_digest_init(&digest, algorithm));
    enum s3_code code = S3_OK;
    for (size_t i = 0; i < all->count && code == S3_OK; i++) {
        const struct source *part = &all->sources[i];
        bool is_md5 = algorithm == S3_NO_CHECKSUM;
        code = s3_digest_add(&digest, is_md5 ? part->md5 : part->checksum,
                             is_md5 ? S3_MD5_BYTES : bytes);
    }
    if (code == S3_OK)
        code = s3_digest_end(&digest, out);
    s3_digest_release(&digest);
    return code;
}

static enum s3_code etag_write(struct completion *all)
{
    struct s3_digest_result result;
    S3_TRY(digest_of_parts(all, S3_NO_CHECKSUM, &result));
    s3_hex(result.md5, S3_MD5_BYTES, all->written.etag);
    snprintf(all->written.etag + 2 * S3_MD5_BYTES, S3_ETAG_BYTES - 2 * S3_MD5_BYTES, "-%zu",
             all->count);
    return S3_OK;
}

/* Of the whole object, out of the parts' own. */
static void checksum_combine(const struct completion *all, unsigned char *out)
{
    enum s3_algorithm algorithm = all->upload.upload.algorithm;
    memcpy(out, all->sources[0].checksum, s3_algorithm_bytes(algorithm));
    for (size_t i = 1; i < all->count; i++)
        s3_checksum_combine(algorithm, out, all->sources[i].checksum,
                            (uint64_t)all->sources[i].bytes);
}

static enum s3_code checksum_write(struct completion *all)
{
    enum s3_algorithm algorithm = all->upload.upload.algorithm;
    struct s3_checksum *checksum = &all->written.checksum;
    struct s3_digest_result result;
    if (algorithm == S3_NO_CHECKSUM)
        return S3_OK;
    bool is_composite = all->upload.upload.is_composite || !s3_algorithm_combines(algorithm);
    if (is_composite)
        S3_TRY(digest_of_parts(all, algorithm, &result));
    else
        checksum_combine(all, result.checksum);
    checksum->algorithm = algorithm;
    s3_base64(result.checksum, s3_algorithm_bytes(algorithm), checksum->text);
    size_t used = strlen(checksum->text);
    if (is_composite)
        snprintf(checksum->text + used, sizeof(checksum->text) - used, "-%zu", all->count);
    if (all->checksum == NULL || strcmp(all->checksum, checksum->text) == 0)
        return S3_OK;
    checksum->text[used] = '\0'; /* clients say a composite one with or without the count */
    bool is_same = strcmp(all->checksum, checksum->text) == 0;
    if (is_composite)
        snprintf(checksum->text + used, sizeof(checksum->text) - used, "-%zu", all->count);
    return is_same ? S3_OK : s3_error(S3_BAD_DIGEST, NULL);
}

/* ---------------------------------------------------------------------------- the bytes in one
 * file */

/* How many parts lie in the upload's place, listed or not. */
static enum s3_code placed_count(struct sql_database *reader, const struct s3_upload_row *upload,
                                 int64_t *out)
{
    sqlite3_stmt *count = sql_statement(reader, S3_SQL_PART_COUNT);
    sql_bind_int(reader, count, 1, upload->id);
    sql_bind_int(reader, count, 2, upload->content);
    bool row;
    S3_TRY(s3_step(reader, count, &row));
    *out = row ? sqlite3_column_int64(count, 0) : 0;
    if (row)
        sql_reset(count);
    return S3_OK;
}

/* Whether the place can become the object: each part in it is listed and lies where the object has
 * it. (What is copied in must not hit a part that a later list may name, should this one fail.) */
static bool place_fits(const struct completion *all)
{
    int64_t start = 0, listed = 0;
    for (size_t i = 0; i < all->count; i++) {
        bool is_there = all->sources[i].content == all->upload.content;
        if (is_there && all->sources[i].start != start)
            return false;
        listed += is_there;
        start += all->sources[i].bytes;
    }
    return listed > 0 && listed == all->placed && all->is_quiet;
}

static enum s3_code part_copy(struct completion *all, const struct source *part, int to,
                              int64_t start)
{
    int from;
    S3_TRY(s3_content_open(all->store, part->content, false, &from));
    if (from < 0)
        return s3_error(S3_NO_SUCH_UPLOAD, NULL); /* given up meanwhile */
    enum s3_code code = s3_content_copy(from, part->start, to, start, part->bytes);
    close(from);
    return code;
}

/* Copies what is not in the file yet, and ends it where the object ends. */
static enum s3_code file_fill(struct completion *all, int fd)
{
    int64_t start = 0;
    S3_TRY(s3_content_reserve(fd, 0, all->bytes));
    for (size_t i = 0; i < all->count; i++) {
        if (all->sources[i].content != all->content)
            S3_TRY(part_copy(all, &all->sources[i], fd, start));
        start += all->sources[i].bytes;
    }
    if (ftruncate(fd, all->bytes) != 0)
        return s3_error_errno(errno, "can't end an object's file");
    return s3_content_seal(fd);
}

static enum s3_code file_make(struct completion *all)
{
    int fd = -1;
    if (all->count == 1 && all->sources[0].content != all->upload.content) {
        all->content = all->sources[0].content; /* the only part's file is the object's */
        return S3_OK;
    }
    if (place_fits(all)) {
        S3_TRY(s3_content_open(all->store, all->upload.content, true, &fd));
        all->content = all->upload.content;
    }
    if (fd < 0) {
        S3_TRY(s3_content_create(all->store, &all->content, &fd));
        all->is_new_file = true;
    }
    enum s3_code code = file_fill(all, fd);
    close(fd);
    return code;
}

/* ------------------------------------------------------------------------------------------ commit
 */

static enum s3_code complete_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct completion *all = (struct completion *)write;
    struct s3_conditions conditions = {.match = all->match, .none_match = all->none_match};
    struct s3_upload_row now;
    S3_TRY(s3_upload_row(&writer->sql.database, all->bucket, all->key, all->name, false, &now));
    struct s3_object_row row = {.content = all->content,
                                .bytes = all->bytes,
                                .modified_ms = all->written.modified_ms = s3_now_ms(),
                                .etag = all->written.etag,
                                .checksum = all->written.checksum,
                                .part_count = (int)all->count,
                                .parts = all->sizes,
                                .headers = all->upload.headers,
                                .tags = all->upload.tags};
    S3_TRY(all->is_new_file ? s3_content_add(writer, all->content)
                            : s3_content_hold(writer, all->content));
    S3_TRY(s3_object_row_put(writer, all->bucket, all->key, &conditions, &row));
    return s3_upload_remove(writer, now.id, now.content);
}

/* Parts are compared when none can come any more. */
static enum s3_code look_up(struct completion *all, struct sql_database *reader)
{
    S3_TRY(s3_upload_row(reader, all->bucket, all->key, all->name, true, &all->upload));
    S3_TRY(s3_place_close(all->store, all->upload.id, &all->is_quiet));
    all->is_closed = true;
    S3_TRY(parts_find(all, reader));
    return placed_count(reader, &all->upload, &all->placed);
}

/* Whether the object is made of the parts that are listed: its ETag tells. */
static enum s3_code done_before(struct completion *all)
{
    struct s3_object object;
    for (size_t i = 0; i < all->count; i++)
        if (!s3_unhex(all->parts[i].etag, all->sources[i].md5, S3_MD5_BYTES))
            return s3_error(S3_NO_SUCH_UPLOAD, NULL);
    S3_TRY(etag_write(all));
    if (s3_object_get(all->store, all->bucket, all->key, NULL, &object, NULL) != S3_OK)
        return s3_error(S3_NO_SUCH_UPLOAD, NULL);
    all->is_done = strcmp(object.etag, all->written.etag) == 0;
    all->written.checksum = object.checksum;
    all->written.bytes = object.bytes;
    all->written.modified_ms = object.modified_ms;
    s3_object_release(&object);
    return all->is_done ? S3_OK : s3_error(S3_NO_SUCH_UPLOAD, NULL);
}

static enum s3_code prepare(struct completion *all)
{
    struct sql_database *reader;
    S3_TRY(s3_reader_take(all->store, &reader));
    enum s3_code code = look_up(all, reader);
    sql_reader_give(&all->store->readers, reader);
    if (code == S3_NO_SUCH_UPLOAD)
        return done_before(all);
    S3_TRY(code);
    S3_TRY(sizes_write(all));
    S3_TRY(etag_write(all));
    S3_TRY(checksum_write(all));
    all->written.bytes = all->bytes;
    return file_make(all);
}

static void complete_run(struct s3_task *task)
{
    struct completion *all = (struct completion *)task;
    enum s3_code code = prepare(all);
    all->as.write = (struct s3_write){.apply = complete_apply, .end = completion_end};
    if (code == S3_OK && !all->is_done)
        s3_writer_submit(&all->store->writer, &all->as.write);
    else
        completion_end(&all->as.write, code);
}

static enum s3_code text_keep(const char *text, char **out)
{
    return text == NULL ? S3_OK : s3_from_status(base_strdup(text, "a condition", out));
}

static enum s3_code completion_fill(struct completion *all, const struct s3_complete *complete)
{
    if (complete->part_count == 0 || complete->part_count > S3_PART_NUMBER_MAX)
        return s3_error(S3_MALFORMED_XML, "You must specify at least one part");
    for (size_t i = 1; i < complete->part_count; i++)
        if (complete->parts[i].number <= complete->parts[i - 1].number)
            return s3_error(S3_INVALID_PART_ORDER, NULL);
    if (strlen(complete->key) > S3_KEY_BYTES_MAX || strlen(complete->bucket) > S3_BUCKET_NAME_MAX ||
        strlen(complete->upload) >= S3_UPLOAD_NAME_BYTES)
        return s3_error(S3_NO_SUCH_UPLOAD, NULL);
    strcpy(all->key, complete->key);
    strcpy(all->bucket, complete->bucket);
    strcpy(all->name, complete->upload);
    all->count = complete->part_count;
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&all->parts, all->count, "a list of parts")));
    memcpy(all->parts, complete->parts, all->count * sizeof(*all->parts));
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&all->sources, all->count, "a list of parts")));
    S3_TRY(text_keep(complete->checksum, &all->checksum));
    if (complete->conditions == NULL)
        return S3_OK;
    S3_TRY(text_keep(complete->conditions->match, &all->match));
    return text_keep(complete->conditions->none_match, &all->none_match);
}

void s3_upload_complete(struct s3_store *store, const struct s3_complete *complete,
                        struct s3_written *out, s3_done done, void *user)
{
    struct completion *all;
    enum s3_code code = s3_from_status(BASE_NEW(&all, "an upload's end"));
    if (code != S3_OK) {
        done(user, code);
        return;
    }
    all->store = store;
    all->out = out;
    all->done = done;
    all->user = user;
    code = completion_fill(all, complete);
    if (code != S3_OK) {
        completion_end((struct s3_write *)all, code);
        return;
    }
    all->as.task = (struct s3_task){.run = complete_run};
    s3_workers_submit(&store->workers, &all->as.task);
}
