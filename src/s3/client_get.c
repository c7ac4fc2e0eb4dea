/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_get.c: objects come: what is said of them, in parts side by side, or one byte after the
 * other.
 *
 * A part whose connection breaks goes on at the byte that it has reached, as often as there is
 * progress. All parts ask for the object with the ETag that was seen first (If-Match), so that they
 * are of one object. The CRCs of parts combine to that of the whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "s3/client_state.h"
#include "s3/contents.h"

#define FAILURES_MAX 5 /* without a byte between them */
#define PAUSE_MS     100
#define RANGE_BYTES  64
#define GATHER_BYTES ((size_t)256 << 10)

/* ----------------------------------------------------------------------------------------- head */

/* An ETag that is the MD5 of the bytes: not of parts, and not of encrypted ones. */
static bool is_md5(const char *etag)
{
    unsigned char bytes[S3_MD5_BYTES];
    return s3_unhex(etag, bytes, sizeof(bytes));
}

static void object_read(const struct http_answer *answer, struct s3_object *out)
{
    const char *length = http_answer_header(answer, "Content-Length"),
               *modified = http_answer_header(answer, "Last-Modified"),
               *encrypted = http_answer_header(answer, "x-amz-server-side-encryption");
    *out = (struct s3_object){.parts = "", .headers = "", .tags = ""};
    out->bytes = length != NULL ? strtoll(length, NULL, 10) : 0;
    out->modified_ms = modified != NULL ? s3_time_of(modified) : 0;
    s3_etag_of(http_answer_header(answer, "ETag"), out->etag);
    s3_answer_checksum(answer, &out->checksum);
    out->part_count = !is_md5(out->etag) || (encrypted != NULL && strcmp(encrypted, "AES256") != 0);
}

enum s3_code s3_client_head(struct s3_client *client, const char *bucket, const char *key,
                            struct s3_object *out)
{
    struct http_answer answer;
    struct s3_request request = {.method = "HEAD", .bucket = bucket, .key = key};
    s3_request_header(&request, "x-amz-checksum-mode", "ENABLED");
    S3_TRY(s3_client_send(client, &request, &answer, NULL));
    object_read(&answer, out);
    http_answer_free(&answer);
    return S3_OK;
}

/* --------------------------------------------------------------------------------------- ranges */

/* Some bytes of an object on their way in. */
struct range {
    struct s3_client *client;
    const char *bucket, *key, *etag; /* "": any */
    int64_t first, bytes;            /* -1: to its end, once the first answer said where that is */
    int64_t done;
    bool is_whole;           /* asked for without a range, with the checksum of all */
    struct s3_object object; /* of the first answer */
    bool is_known;
    /* What becomes of them. */
    enum shoal_status (*take)(struct range *range, const void *data, size_t bytes);
    void *user;
};

static enum shoal_status range_wrong(const struct range *range)
{
    return base_error(SHOAL_ERR_FORMAT,
                      "%s answered with other bytes of s3://%s/%s than those asked for",
                      range->client->endpoint.url, range->bucket, range->key);
}

static enum shoal_status range_begin(void *user, const struct http_answer *answer)
{
    struct range *range = user;
    int64_t first = 0, all = 0;
    struct s3_object object;
    object_read(answer, &object);
    if (answer->status == 206 && s3_answer_range(answer, &first, &all))
        object.bytes = all;
    else if (answer->status != 200)
        return range_wrong(range);
    if (first != range->first + range->done)
        return range_wrong(range);
    if (!range->is_known) {
        range->object = object;
        range->is_known = true;
    }
    if (range->bytes < 0)
        range->bytes = object.bytes - range->first;
    return SHOAL_OK;
}

static enum shoal_status range_piece(void *user, const void *data, size_t bytes)
{
    struct range *range = user;
    if ((int64_t)bytes > range->bytes - range->done)
        return range_wrong(range);
    TRY(range->take(range, data, bytes));
    range->done += (int64_t)bytes;
    s3_client_progress(range->client, (int64_t)bytes);
    return SHOAL_OK;
}

static enum s3_code range_ask(struct range *range, enum shoal_status *failure)
{
    char text[RANGE_BYTES], match[S3_ETAG_BYTES + 2];
    struct http_answer answer;
    struct http_download download = {.begin = range_begin, .piece = range_piece, .user = range};
    struct s3_request request = {
        .method = "GET", .bucket = range->bucket, .key = range->key, .download = &download};
    int64_t from = range->first + range->done;
    if (range->is_whole && range->done == 0) {
        s3_request_header(&request, "x-amz-checksum-mode", "ENABLED");
    } else {
        if (range->bytes < 0)
            snprintf(text, sizeof(text), "bytes=%" PRId64 "-", from);
        else
            snprintf(text, sizeof(text), "bytes=%" PRId64 "-%" PRId64, from,
                     range->first + range->bytes - 1);
        s3_request_header(&request, "range", text);
    }
    const char *etag = range->is_known ? range->object.etag : range->etag;
    if (etag[0] != '\0') {
        snprintf(match, sizeof(match), "\"%s\"", etag);
        s3_request_header(&request, "if-match", match);
    }
    S3_TRY(s3_client_send(range->client, &request, &answer, failure));
    http_answer_free(&answer);
    return S3_OK;
}

/* Until all of it is here. */
static enum s3_code range_get(struct range *range)
{
    for (int failures = 0;;) {
        enum shoal_status failure = SHOAL_OK;
        int64_t before = range->done;
        enum s3_code code = range_ask(range, &failure);
        if (code == S3_OK && range->done == range->bytes)
            return S3_OK;
        if (code == S3_OK)
            failure = SHOAL_ERR_PEER_LOST;
        failures = range->done > before ? 0 : failures + 1;
        bool may_pass = failure == SHOAL_ERR_PEER_LOST || failure == SHOAL_ERR_TIMEOUT;
        if (!may_pass || failures == FAILURES_MAX)
            return code != S3_OK ? code
                                 : s3_error(S3_INTERNAL_ERROR,
                                            "%s sends less of s3://%s/%s than "
                                            "there is",
                                            range->client->endpoint.url, range->bucket, range->key);
        base_sleep_ms(failures * PAUSE_MS);
    }
}

/* --------------------------------------------------------------------------------------- checks */

static enum s3_code bytes_wrong(const char *bucket, const char *key, const char *what)
{
    return s3_error(S3_BAD_DIGEST,
                    "what came of s3://%s/%s is not what it should be: its %s is another one",
                    bucket, key, what);
}

/* Of all bytes of an object, one after the other: what it can be compared by. */
static enum s3_code whole_begin(const struct s3_object *object, struct s3_digest *out)
{
    if (object->checksum.algorithm == S3_NO_CHECKSUM && object->part_count == 0)
        return s3_digest_init(out, S3_NO_CHECKSUM);
    return s3_digest_init_checksum(out, object->checksum.algorithm);
}

static enum s3_code md5_check(const struct range *range, const struct s3_digest_result *result)
{
    char hex[2 * S3_MD5_BYTES + 1];
    s3_hex(result->md5, S3_MD5_BYTES, hex);
    return strcasecmp(hex, range->object.etag) == 0 ? S3_OK
                                                    : bytes_wrong(range->bucket, range->key, "MD5");
}

static enum s3_code checksum_check(const char *bucket, const char *key,
                                   const struct s3_checksum *expected,
                                   const unsigned char bytes[S3_CHECKSUM_BYTES_MAX])
{
    char text[S3_CHECKSUM_TEXT_BYTES];
    if (expected->algorithm == S3_NO_CHECKSUM || expected->text[0] == '\0')
        return S3_OK;
    s3_base64(bytes, s3_algorithm_bytes(expected->algorithm), text);
    return strcmp(text, expected->text) == 0
               ? S3_OK
               : bytes_wrong(bucket, key, s3_algorithm_name(expected->algorithm));
}

/* --------------------------------------------------------------------------------- one by one */

struct reading {
    const struct s3_sink *sink;
    struct s3_digest digest;
    bool is_counting; /* the digest is begun */
};

static enum shoal_status piece_give(struct range *range, const void *data, size_t bytes)
{
    struct reading *reading = range->user;
    enum s3_code code = S3_OK;
    if (range->is_whole && !reading->is_counting) {
        code = whole_begin(&range->object, &reading->digest);
        reading->is_counting = code == S3_OK;
    }
    if (code == S3_OK && reading->is_counting)
        code = s3_digest_add(&reading->digest, data, bytes);
    if (code != S3_OK)
        return base_error(SHOAL_ERR_SYSTEM, "%s", base_error_text());
    return reading->sink->piece(reading->sink->user, data, bytes);
}

static enum s3_code reading_check(const struct range *range, struct reading *reading)
{
    struct s3_digest_result result;
    if (!reading->is_counting)
        return S3_OK;
    S3_TRY(s3_digest_end(&reading->digest, &result));
    if (reading->digest.has_md5)
        return md5_check(range, &result);
    return checksum_check(range->bucket, range->key, &range->object.checksum, result.checksum);
}

enum s3_code s3_client_read(struct s3_client *client, const char *bucket, const char *key,
                            int64_t first, int64_t bytes, const struct s3_sink *sink)
{
    struct reading reading = {.sink = sink};
    struct range range = {.client = client,
                          .bucket = bucket,
                          .key = key,
                          .etag = "",
                          .first = first,
                          .bytes = bytes,
                          .is_whole = first == 0 && bytes < 0,
                          .take = piece_give,
                          .user = &reading};
    enum s3_code code = bytes == 0 ? S3_OK : range_get(&range);
    if (code == S3_OK)
        code = reading_check(&range, &reading);
    s3_digest_release(&reading.digest);
    return code;
}

/* ------------------------------------------------------------------------------------- whole files
 */

struct fetch {
    struct s3_client *client;
    const char *bucket, *key;
    int fd;
    struct s3_object object;
    int64_t part_bytes, count;
    unsigned char (*checksums)[S3_CHECKSUM_BYTES_MAX];
};

/* A part of it. libcurl gives 16 KiB at a time; more is gathered for each write. */
struct fetch_part {
    struct fetch *fetch;
    struct s3_digest digest;
    bool is_counting; /* the digest is begun */
    char *gathered;
    size_t gathered_bytes;
    int64_t at; /* where they belong in the file */
};

static enum s3_code digest_begin(struct fetch_part *part, const struct range *range)
{
    struct fetch *fetch = part->fetch;
    part->is_counting = true;
    if (!range->is_whole)
        return s3_digest_init_checksum(&part->digest, fetch->object.checksum.algorithm);
    fetch->object = range->object;
    return whole_begin(&range->object, &part->digest);
}

static enum s3_code gathered_write(struct fetch_part *part)
{
    S3_TRY(s3_digest_add(&part->digest, part->gathered, part->gathered_bytes));
    S3_TRY(s3_content_write(part->fetch->fd, part->gathered, part->gathered_bytes, part->at));
    part->at += (int64_t)part->gathered_bytes;
    part->gathered_bytes = 0;
    return S3_OK;
}

static enum s3_code bytes_gather(struct fetch_part *part, const char *data, size_t bytes)
{
    while (bytes > 0) {
        size_t room = GATHER_BYTES - part->gathered_bytes, some = bytes < room ? bytes : room;
        memcpy(part->gathered + part->gathered_bytes, data, some);
        part->gathered_bytes += some;
        data += some;
        bytes -= some;
        if (part->gathered_bytes == GATHER_BYTES)
            S3_TRY(gathered_write(part));
    }
    return S3_OK;
}

static enum shoal_status bytes_take(struct range *range, const void *data, size_t bytes)
{
    struct fetch_part *part = range->user;
    enum s3_code code = S3_OK;
    if (!part->is_counting)
        code = digest_begin(part, range);
    if (code == S3_OK)
        code = bytes_gather(part, data, bytes);
    return code == S3_OK ? SHOAL_OK : base_error(SHOAL_ERR_SYSTEM, "%s", base_error_text());
}

static enum s3_code part_get(struct range *range)
{
    struct fetch_part *part = range->user;
    struct fetch *fetch = part->fetch;
    struct s3_digest_result result;
    S3_TRY(range_get(range));
    if (!part->is_counting) {
        fetch->object = range->object; /* no bytes */
        return S3_OK;
    }
    S3_TRY(gathered_write(part));
    S3_TRY(s3_digest_end(&part->digest, &result));
    memcpy(fetch->checksums[range->first / fetch->part_bytes], result.checksum,
           sizeof(result.checksum));
    return part->digest.has_md5 ? md5_check(range, &result) : S3_OK;
}

static enum s3_code part_run(void *user, int64_t index)
{
    struct fetch *fetch = user;
    int64_t first = index * fetch->part_bytes, left = fetch->object.bytes - first;
    struct fetch_part part = {.fetch = fetch, .at = first};
    struct range range = {.client = fetch->client,
                          .bucket = fetch->bucket,
                          .key = fetch->key,
                          .etag = fetch->count > 1 ? fetch->object.etag : "",
                          .first = first,
                          .bytes = left < fetch->part_bytes ? left : fetch->part_bytes,
                          .is_whole = fetch->count == 1,
                          .take = bytes_take,
                          .user = &part};
    if (range.is_whole)
        range.bytes = -1;
    S3_TRY(s3_from_status(base_alloc(GATHER_BYTES, "bytes to write", (void **)&part.gathered)));
    enum s3_code code = part_get(&range);
    if (code != S3_OK)
        s3_client_progress(fetch->client, -range.done);
    s3_digest_release(&part.digest);
    base_free(part.gathered);
    return code;
}

/* The parts' checksums, as one, against the object's. */
static enum s3_code parts_check(struct fetch *fetch)
{
    const struct s3_checksum *expected = &fetch->object.checksum;
    if (expected->algorithm == S3_NO_CHECKSUM || fetch->object.bytes == 0)
        return S3_OK;
    for (int64_t i = 1; i < fetch->count; i++) {
        int64_t left = fetch->object.bytes - i * fetch->part_bytes;
        s3_checksum_combine(expected->algorithm, fetch->checksums[0], fetch->checksums[i],
                            (uint64_t)(left < fetch->part_bytes ? left : fetch->part_bytes));
    }
    return checksum_check(fetch->bucket, fetch->key, expected, fetch->checksums[0]);
}

/* One request takes what is no longer than a part; of more must be known how much it is. */
static enum s3_code fetch_plan(struct fetch *fetch, const struct s3_object *known)
{
    fetch->part_bytes = fetch->client->part_bytes;
    if (known != NULL)
        fetch->object = *known;
    if (known == NULL || known->bytes > fetch->part_bytes)
        S3_TRY(s3_client_head(fetch->client, fetch->bucket, fetch->key, &fetch->object));
    /* A SHA of all bytes can't be made out of parts. */
    if (!s3_algorithm_combines(fetch->object.checksum.algorithm))
        fetch->object.checksum.algorithm = S3_NO_CHECKSUM;
    fetch->count = (fetch->object.bytes + fetch->part_bytes - 1) / fetch->part_bytes;
    fetch->count = fetch->count > 0 ? fetch->count : 1;
    return s3_from_status(
        BASE_NEW_ARRAY(&fetch->checksums, fetch->count, "checksums of an object's parts"));
}

/* A full disk is known before the first byte, where the file system can tell. */
static enum s3_code room_take(int fd, int64_t bytes)
{
    if (bytes <= 0 || fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0 ||
        (errno != ENOSPC && errno != EDQUOT && errno != EFBIG))
        return S3_OK;
    return s3_error_errno(errno, "there is no room for %" PRId64 " bytes", bytes);
}

enum s3_code s3_client_get(struct s3_client *client, const char *bucket, const char *key,
                           const struct s3_object *known, int fd)
{
    struct fetch fetch = {.client = client, .bucket = bucket, .key = key, .fd = fd};
    S3_TRY(fetch_plan(&fetch, known));
    enum s3_code code = S3_OK;
    if (ftruncate(fd, 0) != 0)
        code = s3_error_errno(errno, "can't empty the file");
    if (code == S3_OK)
        code = room_take(fd, fetch.object.bytes);
    if (code == S3_OK)
        code = s3_client_side_by_side(client, fetch.count, part_run, &fetch);
    if (code == S3_OK)
        code = parts_check(&fetch);
    base_free(fetch.checksums);
    return code;
}
