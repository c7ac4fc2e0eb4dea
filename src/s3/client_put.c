/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_put.c: objects go: in one request, or in parts side by side, out of a file or of a
 * descriptor that can only be read once; and copies within the service.
 *
 * Every body carries its CRC-32, so a part is read twice: for the check and for the network. What
 * is read first is in memory the second time. An upload that fails is aborted, so that the service
 * keeps no parts of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/text.h"
#include "s3/client_state.h"
#include "s3/crc.h"
#include "s3/protocol.h"
#include "s3/xml_read.h"

#define CRC_HEADER   "x-amz-checksum-crc32"
#define CRC_TEXT     12
#define READ_BYTES   (128 << 10)
#define COPY_ONE_MAX (INT64_C(5) << 30)
#define COPY_PART    (INT64_C(1) << 30)
#define UPLOAD_BYTES 1025 /* its name, which is the service's */
#define DOUBLE_EVERY 2000 /* parts of a stream, whose length nobody knows: then they get longer */

/* ------------------------------------------------------------------------------------- one body */

/* Bytes of a file, or of memory. */
struct body {
    struct s3_client *client;
    struct http_file_part file;
    const char *memory; /* NULL: of the file */
    int64_t bytes, done;
    char crc[CRC_TEXT];
};

static enum shoal_status body_read(void *user, void *out, size_t capacity, size_t *bytes)
{
    struct body *body = user;
    int64_t left = body->bytes - body->done;
    *bytes = left < (int64_t)capacity ? (size_t)left : capacity;
    if (body->memory != NULL) {
        memcpy(out, body->memory + body->done, *bytes);
    } else {
        struct http_upload upload;
        body->file.done = body->done;
        http_file_upload(&body->file, &upload);
        TRY(upload.read(&body->file, out, *bytes, bytes));
    }
    body->done += (int64_t)*bytes;
    s3_client_progress(body->client, (int64_t)*bytes);
    return SHOAL_OK;
}

static enum shoal_status body_rewind(void *user)
{
    struct body *body = user;
    s3_client_progress(body->client, -body->done);
    body->done = 0;
    return SHOAL_OK;
}

static void crc_write(uint64_t crc, char text[CRC_TEXT])
{
    const unsigned char bytes[] = {(unsigned char)(crc >> 24), (unsigned char)(crc >> 16),
                                   (unsigned char)(crc >> 8), (unsigned char)crc};
    s3_base64(bytes, sizeof(bytes), text);
}

static enum s3_code body_check(struct body *body)
{
    char buffer[READ_BYTES];
    uint64_t crc = 0;
    if (body->memory != NULL) {
        crc = s3_crc_add(S3_CRC_32, 0, body->memory, (size_t)body->bytes);
    } else {
        struct http_file_part part = body->file;
        struct http_upload upload;
        size_t bytes;
        http_file_upload(&part, &upload);
        while (part.done < part.bytes) {
            S3_TRY(s3_from_status(upload.read(&part, buffer, sizeof(buffer), &bytes)));
            crc = s3_crc_add(S3_CRC_32, crc, buffer, bytes);
        }
    }
    crc_write(crc, body->crc);
    return S3_OK;
}

static enum s3_code body_send(struct body *body, struct s3_request *request,
                              char etag[S3_ETAG_BYTES])
{
    struct http_upload upload = {
        .bytes = body->bytes, .read = body_read, .rewind = body_rewind, .user = body};
    struct http_answer answer;
    S3_TRY(body_check(body));
    s3_request_header(request, CRC_HEADER, body->crc);
    request->method = "PUT";
    request->upload = &upload;
    enum s3_code code = s3_client_send(body->client, request, &answer, NULL);
    if (code != S3_OK) {
        body_rewind(body);
        return code;
    }
    s3_etag_of(http_answer_header(&answer, "ETag"), etag);
    http_answer_free(&answer);
    return S3_OK;
}

static enum s3_code object_send(struct body *body, const struct s3_client_put *put,
                                struct s3_written *out)
{
    struct s3_request request = {.bucket = put->bucket, .key = put->key};
    struct s3_written written = {.bytes = body->bytes, .checksum.algorithm = S3_CRC32};
    if (put->content_type != NULL)
        s3_request_header(&request, "content-type", put->content_type);
    S3_TRY(body_send(body, &request, written.etag));
    memcpy(written.checksum.text, body->crc, sizeof(body->crc));
    if (out != NULL)
        *out = written;
    return S3_OK;
}

/* -------------------------------------------------------------------------------------- uploads */

struct sent_part {
    char etag[S3_ETAG_BYTES], crc[CRC_TEXT];
};

struct upload {
    struct s3_client *client;
    const struct s3_client_put *put;
    char name[UPLOAD_BYTES];
    int64_t count; /* parts */
    struct sent_part *parts;
    /* Of a file: */
    int fd;
    int64_t first, bytes, part_bytes;
    /* Of a stream: */
    pthread_mutex_t reading;
    bool is_read;
    const char *source; /* of a copy; NULL: none */
};

static enum s3_code upload_leave(void *user, const char *path, const char *text)
{
    struct upload *upload = user;
    if (strcmp(path, "InitiateMultipartUploadResult/UploadId") == 0)
        snprintf(upload->name, sizeof(upload->name), "%s", text);
    return S3_OK;
}

static enum s3_code upload_create(struct upload *upload)
{
    struct http_answer answer;
    struct s3_request request = {.method = "POST",
                                 .bucket = upload->put->bucket,
                                 .key = upload->put->key,
                                 .repeat = HTTP_REPEAT_ALWAYS};
    s3_request_query(&request, "uploads", "");
    if (upload->source == NULL) {
        s3_request_header(&request, "x-amz-checksum-algorithm", "CRC32");
        s3_request_header(&request, "x-amz-checksum-type", "FULL_OBJECT");
    }
    if (upload->put->content_type != NULL)
        s3_request_header(&request, "content-type", upload->put->content_type);
    S3_TRY(s3_client_send(upload->client, &request, &answer, NULL));
    enum s3_code code =
        s3_xml_walk(http_answer_text(&answer), answer.body.count, upload_leave, upload);
    http_answer_free(&answer);
    if (code == S3_OK && upload->name[0] == '\0')
        code = s3_error(S3_MALFORMED_XML, "the service gave an upload no name");
    return code;
}

/* What it was that failed stays to be read. */
static void upload_abort(struct upload *upload)
{
    char text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    struct s3_request request = {.method = "DELETE",
                                 .bucket = upload->put->bucket,
                                 .key = upload->put->key,
                                 .is_cleanup = true};
    s3_request_query(&request, "uploadId", upload->name);
    (void)s3_client_do(upload->client, &request);
    base_error(SHOAL_ERR_SYSTEM, "%s", text);
}

static enum s3_code part_send(struct upload *upload, struct body *body, int64_t index)
{
    char number[24];
    struct s3_request request = {.bucket = upload->put->bucket, .key = upload->put->key};
    snprintf(number, sizeof(number), "%" PRId64, index + 1);
    s3_request_query(&request, "partNumber", number);
    s3_request_query(&request, "uploadId", upload->name);
    s3_request_header(&request, S3_ETAG_HEADER, "opaque"); /* its CRC is what is compared */
    S3_TRY(body_send(body, &request, upload->parts[index].etag));
    memcpy(upload->parts[index].crc, body->crc, sizeof(body->crc));
    return S3_OK;
}

static void parts_write(const struct upload *upload, struct http_text *body)
{
    http_text_put(body, "<CompleteMultipartUpload "
                        "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (int64_t i = 0; i < upload->count; i++) {
        const struct sent_part *part = &upload->parts[i];
        http_text_format(body, "<Part><PartNumber>%" PRId64 "</PartNumber><ETag>\"%s\"</ETag>",
                         i + 1, part->etag);
        if (part->crc[0] != '\0')
            http_text_element(body, "ChecksumCRC32", part->crc);
        http_text_put(body, "</Part>");
    }
    http_text_put(body, "</CompleteMultipartUpload>");
}

static enum s3_code complete_leave(void *user, const char *path, const char *text)
{
    struct s3_written *written = user;
    if (strcmp(path, "CompleteMultipartUploadResult/ETag") == 0)
        s3_etag_of(text, written->etag);
    return S3_OK;
}

static enum s3_code completed_read(struct upload *upload, const struct http_answer *answer,
                                   struct s3_written *out)
{
    struct s3_written written = {.bytes = upload->bytes};
    S3_TRY(s3_answer_check(answer));
    S3_TRY(s3_xml_walk(http_answer_text(answer), answer->body.count, complete_leave, &written));
    if (out != NULL)
        *out = written;
    return S3_OK;
}

static enum s3_code upload_complete(struct upload *upload, struct s3_written *out)
{
    struct http_text body = {0};
    struct http_answer answer;
    struct s3_request request = {
        .method = "POST", .bucket = upload->put->bucket, .key = upload->put->key};
    parts_write(upload, &body);
    enum s3_code code = s3_from_status(http_text_status(&body));
    s3_request_query(&request, "uploadId", upload->name);
    s3_request_header(&request, "content-type", "application/xml");
    request.body = body.bytes;
    request.body_bytes = body.count;
    if (code == S3_OK)
        code = s3_client_send(upload->client, &request, &answer, NULL);
    http_text_free(&body);
    S3_TRY(code);
    code = completed_read(upload, &answer, out);
    http_answer_free(&answer);
    return code;
}

/* All of an upload: `run` sends one part. */
static enum s3_code upload_run(struct upload *upload, int64_t most,
                               enum s3_code (*run)(void *user, int64_t index),
                               struct s3_written *out)
{
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&upload->parts, most, "parts of an upload")));
    enum s3_code code = upload_create(upload);
    if (code == S3_OK) {
        code = s3_client_side_by_side(upload->client, most, run, upload);
        if (code == S3_OK)
            code = upload_complete(upload, out);
        if (code != S3_OK)
            upload_abort(upload);
    }
    base_free(upload->parts);
    return code;
}

/* ---------------------------------------------------------------------------------- out of a file
 */

static int64_t part_bytes_for(int64_t wanted, int64_t bytes)
{
    while ((bytes + wanted - 1) / wanted > S3_PART_NUMBER_MAX)
        wanted *= 2;
    return wanted;
}

static enum s3_code file_part_run(void *user, int64_t index)
{
    struct upload *upload = user;
    int64_t done = index * upload->part_bytes, left = upload->bytes - done;
    struct body body = {.client = upload->client,
                        .bytes = left < upload->part_bytes ? left : upload->part_bytes};
    body.file = (struct http_file_part){
        .fd = upload->fd, .first = upload->first + done, .bytes = body.bytes};
    return part_send(upload, &body, index);
}

enum s3_code s3_client_put(struct s3_client *client, const struct s3_client_put *put, int fd,
                           int64_t first, int64_t bytes, struct s3_written *out)
{
    struct upload upload = {.client = client,
                            .put = put,
                            .fd = fd,
                            .first = first,
                            .bytes = bytes,
                            .part_bytes = part_bytes_for(client->part_bytes, bytes)};
    if (bytes > S3_OBJECT_BYTES_MAX)
        return s3_error(S3_ENTITY_TOO_LARGE, NULL);
    if (bytes <= upload.part_bytes) {
        struct body body = {.client = client, .bytes = bytes};
        body.file = (struct http_file_part){.fd = fd, .first = first, .bytes = bytes};
        return object_send(&body, put, out);
    }
    upload.count = (bytes + upload.part_bytes - 1) / upload.part_bytes;
    return upload_run(&upload, upload.count, file_part_run, out);
}

/* -------------------------------------------------------------------------------- out of a stream
 */

/* Up to `capacity` bytes; fewer at the end only. */
static enum s3_code stream_read(int fd, char *buffer, int64_t capacity, int64_t *bytes)
{
    *bytes = 0;
    while (*bytes < capacity) {
        ssize_t got = read(fd, buffer + *bytes, (size_t)(capacity - *bytes));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return s3_error_errno(errno, "can't read what is to be sent");
        if (got == 0)
            return S3_OK;
        *bytes += got;
    }
    return S3_OK;
}

/* The next piece of the stream, and its number; 0 bytes: there is none. */
static enum s3_code stream_next(struct upload *upload, char **buffer, int64_t *bytes,
                                int64_t *index)
{
    pthread_mutex_lock(&upload->reading);
    int64_t capacity = upload->part_bytes << (upload->count / DOUBLE_EVERY);
    enum s3_code code = S3_OK;
    *buffer = NULL;
    *bytes = 0;
    if (!upload->is_read)
        code = s3_from_status(base_alloc((size_t)capacity, "a part of a stream", (void **)buffer));
    if (code == S3_OK && !upload->is_read)
        code = stream_read(upload->fd, *buffer, capacity, bytes);
    upload->is_read = upload->is_read || code != S3_OK || *bytes < capacity;
    if (code == S3_OK && *bytes > 0) {
        *index = upload->count++;
        upload->bytes += *bytes;
    }
    pthread_mutex_unlock(&upload->reading);
    return code;
}

static enum s3_code stream_part_run(void *user, int64_t index)
{
    struct upload *upload = user;
    struct body body = {.client = upload->client};
    char *buffer;
    enum s3_code code = stream_next(upload, &buffer, &body.bytes, &index);
    body.memory = buffer;
    if (code == S3_OK && body.bytes > 0)
        code = part_send(upload, &body, index);
    base_free(buffer);
    return code;
}

/* The first piece tells whether there are more; it is the upload's part 1 then. */
struct stream {
    struct upload upload;
    char *first;
    int64_t first_bytes;
};

static enum s3_code stream_run(void *user, int64_t index)
{
    struct stream *stream = user;
    if (index > 0)
        return stream_part_run(&stream->upload, index);
    struct body body = {
        .client = stream->upload.client, .memory = stream->first, .bytes = stream->first_bytes};
    enum s3_code code = part_send(&stream->upload, &body, 0);
    base_free(stream->first);
    stream->first = NULL;
    return code;
}

static enum s3_code stream_send(struct stream *stream, const struct s3_client_put *put,
                                struct s3_written *out)
{
    struct upload *upload = &stream->upload;
    struct body body = {
        .client = upload->client, .memory = stream->first, .bytes = stream->first_bytes};
    if (stream->first_bytes < upload->part_bytes)
        return object_send(&body, put, out);
    upload->count = 1;
    upload->bytes = stream->first_bytes;
    return upload_run(upload, S3_PART_NUMBER_MAX, stream_run, out);
}

enum s3_code s3_client_write(struct s3_client *client, const struct s3_client_put *put, int fd,
                             struct s3_written *out)
{
    struct stream stream = {
        .upload = {.client = client, .put = put, .fd = fd, .part_bytes = client->part_bytes}};
    S3_TRY(s3_from_status(
        base_alloc((size_t)client->part_bytes, "a part of a stream", (void **)&stream.first)));
    pthread_mutex_init(&stream.upload.reading, NULL);
    enum s3_code code = stream_read(fd, stream.first, client->part_bytes, &stream.first_bytes);
    if (code == S3_OK)
        code = stream_send(&stream, put, out);
    pthread_mutex_destroy(&stream.upload.reading);
    base_free(stream.first);
    return code;
}

/* --------------------------------------------------------------------------------------- copies */

static enum s3_code copied_leave(void *user, const char *path, const char *text)
{
    if (strcmp(path, "CopyPartResult/ETag") == 0)
        s3_etag_of(text, user);
    return S3_OK;
}

static enum s3_code copy_part_run(void *user, int64_t index)
{
    struct upload *upload = user;
    char number[24], range[64];
    int64_t first = index * COPY_PART, last = first + COPY_PART;
    struct http_answer answer;
    struct s3_request request = {
        .method = "PUT", .bucket = upload->put->bucket, .key = upload->put->key};
    last = last < upload->bytes ? last : upload->bytes;
    snprintf(number, sizeof(number), "%" PRId64, index + 1);
    snprintf(range, sizeof(range), "bytes=%" PRId64 "-%" PRId64, first, last - 1);
    s3_request_query(&request, "partNumber", number);
    s3_request_query(&request, "uploadId", upload->name);
    s3_request_header(&request, "x-amz-copy-source", upload->source);
    s3_request_header(&request, "x-amz-copy-source-range", range);
    S3_TRY(s3_client_send(upload->client, &request, &answer, NULL));
    enum s3_code code = s3_answer_check(&answer);
    if (code == S3_OK)
        code = s3_xml_walk(http_answer_text(&answer), answer.body.count, copied_leave,
                           upload->parts[index].etag);
    http_answer_free(&answer);
    if (code == S3_OK)
        s3_client_progress(upload->client, last - first);
    return code;
}

static enum s3_code copy_whole(struct s3_client *client, const struct s3_client_copy *copy,
                               const char *source)
{
    struct http_answer answer;
    struct s3_request request = {.method = "PUT", .bucket = copy->to_bucket, .key = copy->to_key};
    s3_request_header(&request, "x-amz-copy-source", source);
    S3_TRY(s3_client_send(client, &request, &answer, NULL));
    enum s3_code code = s3_answer_check(&answer);
    http_answer_free(&answer);
    return code;
}

static enum s3_code copy_send(struct s3_client *client, const struct s3_client_copy *copy,
                              int64_t bytes, const char *source)
{
    struct s3_client_put put = {.bucket = copy->to_bucket, .key = copy->to_key};
    struct upload upload = {.client = client, .put = &put, .source = source, .bytes = bytes};
    if (bytes > COPY_ONE_MAX) {
        upload.count = (bytes + COPY_PART - 1) / COPY_PART;
        return upload_run(&upload, upload.count, copy_part_run, NULL);
    }
    S3_TRY(copy_whole(client, copy, source));
    s3_client_progress(client, bytes);
    return S3_OK;
}

enum s3_code s3_client_copy(struct s3_client *client, const struct s3_client_copy *copy,
                            int64_t bytes)
{
    struct http_text source = {0};
    struct s3_object object = {.bytes = bytes};
    if (bytes < 0)
        S3_TRY(s3_client_head(client, copy->bucket, copy->key, &object));
    http_text_format(&source, "/%s/", copy->bucket);
    http_text_encode(&source, copy->key, strlen(copy->key), true);
    enum s3_code code = s3_from_status(http_text_status(&source));
    if (code == S3_OK)
        code = copy_send(client, copy, object.bytes, source.bytes);
    http_text_free(&source);
    return code;
}
