/* SPDX-License-Identifier: Apache-2.0 */
/* protocol_object.c: get, head, put, copy, delete and tag objects. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "s3/protocol_state.h"
#include "s3/query.h"

/* ----------------------------------------------------------------------------------- get and head
 */

static int tag_count(const char *tags)
{
    int count = *tags != '\0';
    for (; *tags != '\0'; tags++)
        count += *tags == '&';
    return count;
}

/* Part of the object, by Range or partNumber. */
static enum s3_code range_of(struct s3_call *call, const struct s3_object *object,
                             struct s3_range *out)
{
    int number;
    const char *range = s3_call_header(call, "Range");
    if (!s3_call_asks(call, "partNumber"))
        return s3_range_of(range, object->bytes, out);
    if (range != NULL)
        return s3_error(S3_INVALID_REQUEST, "Cannot specify both Range header and partNumber query "
                                            "parameter");
    S3_TRY(s3_call_number(call, "partNumber", S3_PART_NUMBER_MAX + 1, 0, &number));
    return s3_object_part(object, number, out);
}

static void about_reply(struct s3_call *call, const struct s3_object *object,
                        const struct s3_range *range)
{
    const char *mode = s3_call_header(call, "x-amz-checksum-mode");
    s3_reply_etag(call, object->etag);
    s3_reply_date(call, "Last-Modified", object->modified_ms);
    s3_reply_header(call, "Accept-Ranges", "bytes");
    s3_headers_reply(call, object->headers);
    if (range->is_part && object->bytes > 0)
        http_reply_header_format(call->request, "Content-Range",
                                 "bytes %" PRId64 "-%" PRId64 "/%" PRId64, range->first,
                                 range->first + range->count - 1, object->bytes);
    if (mode != NULL && !range->is_part)
        s3_checksum_reply(call, &object->checksum);
    if (s3_call_asks(call, "partNumber") && object->part_count > 0)
        http_reply_header_format(call->request, "x-amz-mp-parts-count", "%d", object->part_count);
    if (object->tags[0] != '\0')
        http_reply_header_format(call->request, "x-amz-tagging-count", "%d",
                                 tag_count(object->tags));
}

/* Takes fd over. */
static enum s3_code object_reply(struct s3_call *call, const struct s3_object *object, int fd)
{
    struct s3_range range;
    enum s3_code code = range_of(call, object, &range);
    if (code != S3_OK) {
        if (fd >= 0)
            close(fd);
        return code;
    }
    int status = range.is_part && object->bytes > 0 ? 206 : 200;
    about_reply(call, object, &range);
    if (fd < 0)
        return s3_from_status(http_reply_head(call->request, status, (uint64_t)range.count));
    return s3_from_status(
        http_reply_file(call->request, status, fd, (uint64_t)range.first, (uint64_t)range.count));
}

enum s3_code s3_get_reply(struct s3_call *call)
{
    bool is_head = strcmp(http_request_method(call->request), "HEAD") == 0;
    struct s3_conditions conditions;
    struct s3_object object = {0};
    int fd = -1;
    s3_conditions_of(call, "", &conditions);
    enum s3_code code = s3_object_get(call->store, call->bucket, call->key, &conditions, &object,
                                      is_head ? NULL : &fd);
    if (code == S3_OK)
        code = object_reply(call, &object, fd);
    else if (code == S3_NOT_MODIFIED) {
        s3_reply_etag(call, object.etag);
        s3_reply_date(call, "Last-Modified", object.modified_ms);
    }
    s3_object_release(&object);
    return code;
}

/* -------------------------------------------------------------------------------------------- put
 */

enum s3_code s3_put_object_begin(struct s3_call *call)
{
    char *headers = NULL, *tags = NULL;
    const char *value;
    struct s3_conditions conditions;
    s3_conditions_of(call, "", &conditions);
    S3_TRY(s3_checksum_of(call, &call->algorithm, &value));
    S3_TRY(s3_headers_of(call, &headers));
    enum s3_code code = s3_tags_of(call, &tags);
    struct s3_put_options options = {.bucket = call->bucket,
                                     .key = call->key,
                                     .bytes = http_body_announced(call->request),
                                     .headers = headers,
                                     .tags = tags,
                                     .algorithm = call->algorithm,
                                     .conditions = &conditions};
    if (code == S3_OK)
        code = s3_put_begin(call->store, &options, &call->put);
    base_free(headers);
    base_free(tags);
    return code;
}

/* The checksum of the body as its headers or its trailer have it. */
static const char *checksum_said(struct s3_call *call)
{
    enum s3_algorithm algorithm;
    const char *value, *trailer = s3_call_header(call, "x-amz-trailer");
    if (s3_checksum_of(call, &algorithm, &value) != S3_OK || value != NULL || trailer == NULL)
        return value;
    return http_body_trailer(call->request, trailer);
}

enum s3_code s3_put_complete(struct s3_call *call)
{
    struct s3_put_expected expected = {.md5 = s3_call_header(call, "Content-MD5"),
                                       .checksum = checksum_said(call)};
    struct s3_put *put = call->put;
    call->put = NULL; /* the end of the put is its own from here */
    s3_call_wait(call);
    s3_put_finish(put, &expected, &call->written, s3_call_done, call);
    return S3_OK;
}

/* Of an object or a part. */
enum s3_code s3_put_done(struct s3_call *call)
{
    const char *encryption = s3_call_header(call, "x-amz-server-side-encryption");
    s3_reply_etag(call, call->written.etag);
    s3_checksum_reply(call, &call->written.checksum);
    if (encryption != NULL)
        s3_reply_header(call, "x-amz-server-side-encryption", encryption);
    return s3_reply_empty(call, 200);
}

/* ------------------------------------------------------------------------------------------- copy
 */

static bool directive_is_replace(struct s3_call *call, const char *name)
{
    const char *directive = s3_call_header(call, name);
    return directive != NULL && strcmp(directive, "REPLACE") == 0;
}

static enum s3_code self_copy_check(struct s3_call *call, const struct s3_copy *copy)
{
    static const char *const changes[] = {"x-amz-storage-class", "x-amz-server-side-encryption",
                                          "x-amz-website-redirect-location",
                                          "x-amz-checksum-algorithm"};
    bool is_itself = strcmp(copy->bucket, call->bucket) == 0 && strcmp(copy->key, call->key) == 0;
    if (!is_itself || copy->headers != NULL)
        return S3_OK;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        if (s3_call_header(call, changes[i]) != NULL)
            return S3_OK;
    return s3_error(S3_INVALID_REQUEST,
                    "This copy request is illegal because it is trying to copy an object to itself "
                    "without changing the object's metadata, storage class, website redirect "
                    "location or encryption attributes.");
}

enum s3_code s3_copy_object(struct s3_call *call)
{
    char *headers = NULL, *tags = NULL, *storage = NULL;
    struct s3_conditions conditions, to_conditions;
    struct s3_copy copy = {.to_bucket = call->bucket,
                           .to_key = call->key,
                           .conditions = &conditions,
                           .to_conditions = &to_conditions};
    s3_conditions_of(call, "x-amz-copy-source-", &conditions);
    s3_conditions_of(call, "", &to_conditions);
    enum s3_code code = s3_copy_source_of(call, &copy.bucket, &copy.key);
    if (code == S3_OK && directive_is_replace(call, "x-amz-metadata-directive"))
        code = s3_headers_of(call, &headers);
    else if (code == S3_OK)
        code = s3_headers_of_storage(call, &storage);
    if (code == S3_OK && directive_is_replace(call, "x-amz-tagging-directive"))
        code = s3_tags_of(call, &tags);
    copy.headers = headers;
    copy.tags = tags;
    copy.storage = storage;
    if (code == S3_OK)
        code = self_copy_check(call, &copy);
    if (code == S3_OK) {
        s3_call_wait(call);
        s3_object_copy(call->store, &copy, &call->written, s3_call_done, call);
    }
    base_free(headers);
    base_free(tags);
    base_free(storage);
    return code;
}

static enum s3_code copied_reply(struct s3_call *call, const char *root)
{
    struct s3_xml xml;
    s3_xml_begin(&xml, root);
    s3_xml_etag(&xml, call->written.etag);
    s3_xml_time(&xml, "LastModified", call->written.modified_ms);
    s3_checksum_write(&xml, &call->written.checksum);
    return s3_reply_xml(call, &xml, root);
}

enum s3_code s3_copied(struct s3_call *call)
{
    return copied_reply(call, "CopyObjectResult");
}

/* ---------------------------------------------------------------------------------- upload a part
 */

enum s3_code s3_part_put_begin(struct s3_call *call)
{
    const char *value, *etag = s3_call_header(call, S3_ETAG_HEADER);
    int number;
    S3_TRY(s3_call_number(call, "partNumber", S3_PART_NUMBER_MAX + 1, 0, &number));
    S3_TRY(s3_checksum_of(call, &call->algorithm, &value));
    struct s3_put_options options = {.bucket = call->bucket,
                                     .key = call->key,
                                     .upload = s3_call_query(call, "uploadId"),
                                     .part_number = number,
                                     .bytes = http_body_announced(call->request),
                                     .algorithm = call->algorithm};
    options.is_opaque = etag != NULL && strcmp(etag, "opaque") == 0 &&
                        call->algorithm != S3_NO_CHECKSUM &&
                        s3_call_header(call, "Content-MD5") == NULL;
    return s3_put_begin(call->store, &options, &call->put);
}

/* The bytes of the source that are copied. */
static enum s3_code copy_range_of(struct s3_call *call, int64_t bytes, struct s3_range *out)
{
    const char *text = s3_call_header(call, "x-amz-copy-source-range");
    int64_t first, last;
    char rest;
    if (text == NULL)
        return s3_range_of(NULL, bytes, out);
    if (sscanf(text, "bytes=%18" SCNd64 "-%18" SCNd64 "%c", &first, &last, &rest) != 2 || first < 0)
        return s3_error(S3_INVALID_ARGUMENT,
                        "The x-amz-copy-source-range value must be of the form bytes=first-last "
                        "where first and last are the zero-based offsets of the first and last "
                        "bytes to copy");
    if (first > last || last >= bytes)
        return s3_error(S3_INVALID_ARGUMENT,
                        "Range specified is not valid for source object of size: %" PRId64, bytes);
    *out = (struct s3_range){.is_part = true, .first = first, .count = last - first + 1};
    return S3_OK;
}

enum s3_code s3_part_copy(struct s3_call *call)
{
    const char *bucket, *key;
    struct s3_conditions conditions;
    struct s3_object object = {0};
    struct s3_range range;
    int number;
    s3_conditions_of(call, "x-amz-copy-source-", &conditions);
    S3_TRY(s3_call_number(call, "partNumber", S3_PART_NUMBER_MAX + 1, 0, &number));
    S3_TRY(s3_copy_source_of(call, &bucket, &key));
    enum s3_code code =
        s3_object_get(call->store, bucket, key, &conditions, &object, &call->source_fd);
    if (code == S3_NOT_MODIFIED)
        code = s3_error(S3_PRECONDITION_FAILED, NULL);
    if (code == S3_OK)
        code = copy_range_of(call, object.bytes, &range);
    s3_object_release(&object);
    S3_TRY(code);
    struct s3_put_options options = {.bucket = call->bucket,
                                     .key = call->key,
                                     .upload = s3_call_query(call, "uploadId"),
                                     .part_number = number,
                                     .bytes = range.count};
    S3_TRY(s3_put_begin(call->store, &options, &call->put));
    struct s3_put *put = call->put;
    call->put = NULL;
    s3_call_wait(call);
    s3_put_finish_from(put, call->source_fd, range.first, &call->written, s3_call_done, call);
    return S3_OK;
}

enum s3_code s3_part_copied(struct s3_call *call)
{
    return copied_reply(call, "CopyPartResult");
}

/* ----------------------------------------------------------------------------------------- delete
 */

enum s3_code s3_delete_object(struct s3_call *call)
{
    struct s3_conditions conditions = {.match = s3_call_header(call, "if-match")};
    s3_call_wait(call);
    s3_object_delete(call->store, call->bucket, &call->key, 1, &conditions, s3_call_done, call);
    return S3_OK;
}

enum s3_code s3_no_content(struct s3_call *call)
{
    return s3_reply_empty(call, 204);
}

enum s3_code s3_ok(struct s3_call *call)
{
    return s3_reply_empty(call, 200);
}

/* ------------------------------------------------------------------------------------------- tags
 */

enum s3_code s3_tags_get(struct s3_call *call)
{
    struct s3_object object;
    struct s3_xml xml;
    char *tags, *key, *value;
    bool is_broken;
    S3_TRY(s3_object_get(call->store, call->bucket, call->key, NULL, &object, NULL));
    enum s3_code code = s3_from_status(base_strdup(object.tags, "tags", &call->owned));
    s3_object_release(&object);
    S3_TRY(code);
    s3_xml_begin(&xml, "Tagging");
    s3_xml_open(&xml, "TagSet");
    for (tags = call->owned; s3_query_next(&tags, &key, &value, &is_broken) && !is_broken;) {
        s3_xml_open(&xml, "Tag");
        s3_xml_text(&xml, "Key", key);
        s3_xml_text(&xml, "Value", value);
        s3_xml_close(&xml, "Tag");
    }
    s3_xml_close(&xml, "TagSet");
    return s3_reply_xml(call, &xml, "Tagging");
}

enum s3_code s3_tags_put(struct s3_call *call)
{
    size_t bytes;
    const void *body = http_body(call->request, &bytes);
    S3_TRY(s3_body_check(call));
    S3_TRY(s3_tags_body_read(body, bytes, &call->owned));
    s3_call_wait(call);
    s3_object_tag(call->store, call->bucket, call->key, call->owned, s3_call_done, call);
    return S3_OK;
}

enum s3_code s3_tags_delete(struct s3_call *call)
{
    s3_call_wait(call);
    s3_object_tag(call->store, call->bucket, call->key, "", s3_call_done, call);
    return S3_OK;
}
