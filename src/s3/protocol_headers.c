/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protocol_headers.c: what headers say of an object, of conditions and checksums.
 *
 * The store keeps an object's headers as lines (headers.h).
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/headers.h"
#include "s3/protocol_state.h"
#include "s3/query.h"

#define METADATA_BYTES_MAX 2048
#define META               "x-amz-meta-"

/* Kept and given back. The query's response-NAME takes the place of those that have one. */
static const struct {
    const char *name, *override;
} kept[] = {
    {"content-type", "response-content-type"},
    {"cache-control", "response-cache-control"},
    {"content-disposition", "response-content-disposition"},
    {"content-encoding", "response-content-encoding"},
    {"content-language", "response-content-language"},
    {"expires", "response-expires"},
    {"x-amz-server-side-encryption", NULL},
    {"x-amz-server-side-encryption-aws-kms-key-id", NULL},
    {S3_CLASS_HEADER, NULL},
    {"x-amz-website-redirect-location", NULL},
};
#define KEPT_COUNT (sizeof(kept) / sizeof(kept[0]))

/* ---------------------------------------------------------------------------------------- object
 */

struct lines {
    char text[S3_HEADERS_BYTES_MAX];
    size_t used, metadata;
};

/* The encoding "aws-chunked" is of the transfer, not of the object. */
static size_t encoding_skip(const char *value)
{
    static const char chunked[] = "aws-chunked";
    if (strncasecmp(value, chunked, sizeof(chunked) - 1) != 0)
        return 0;
    return sizeof(chunked) - 1 + strspn(value + sizeof(chunked) - 1, ", ");
}

static enum s3_code line_add(struct lines *lines, const char *name, const char *value)
{
    bool is_meta = strncasecmp(name, META, sizeof(META) - 1) == 0;
    size_t name_bytes = strlen(name), value_bytes = strlen(value);
    if (strcasecmp(name, "content-encoding") == 0) {
        value += encoding_skip(value);
        value_bytes = strlen(value);
    }
    bool is_class = strcasecmp(name, S3_CLASS_HEADER) == 0;
    if (is_class && !s3_class_is_known(value))
        return s3_error(S3_INVALID_STORAGE_CLASS, NULL);
    if ((value_bytes == 0 && !is_meta) || (is_class && strcmp(value, S3_CLASS_STANDARD) == 0))
        return S3_OK; /* the standard one is never said, as in S3 */
    lines->metadata += is_meta ? name_bytes - (sizeof(META) - 1) + value_bytes : 0;
    if (lines->metadata > METADATA_BYTES_MAX ||
        lines->used + name_bytes + value_bytes + 3 > sizeof(lines->text))
        return s3_error(S3_METADATA_TOO_LARGE, NULL);
    for (size_t i = 0; i < name_bytes; i++)
        lines->text[lines->used++] = (char)tolower((unsigned char)name[i]);
    lines->used += (size_t)sprintf(lines->text + lines->used, ":%s\n", value);
    return S3_OK;
}

static bool is_kept(const char *name)
{
    if (strncasecmp(name, META, sizeof(META) - 1) == 0)
        return true;
    for (size_t i = 0; i < KEPT_COUNT; i++)
        if (strcasecmp(name, kept[i].name) == 0)
            return true;
    return false;
}

static enum s3_code lines_of(struct s3_call *call, bool of_storage_only, char **headers)
{
    struct lines *lines;
    const char *name, *value;
    S3_TRY(s3_from_status(BASE_NEW(&lines, "an object's headers")));
    enum s3_code code = S3_OK;
    for (size_t i = 0; code == S3_OK && http_request_header_at(call->request, i, &name, &value);
         i++)
        if (is_kept(name) && (!of_storage_only || s3_header_is_of_storage(name, strlen(name))))
            code = line_add(lines, name, value);
    if (code == S3_OK)
        code = s3_from_status(base_strdup(lines->text, "an object's headers", headers));
    base_free(lines);
    return code;
}

enum s3_code s3_headers_of(struct s3_call *call, char **headers)
{
    return lines_of(call, false, headers);
}

enum s3_code s3_headers_of_storage(struct s3_call *call, char **headers)
{
    return lines_of(call, true, headers);
}

enum s3_code s3_tags_of(struct s3_call *call, char **tags)
{
    const char *text = s3_call_header(call, "x-amz-tagging");
    char *again, *key, *value;
    bool is_broken = false;
    int count = 0;
    if (text == NULL)
        text = "";
    S3_TRY(s3_from_status(base_strdup(text, "tags", &again)));
    for (char *at = again; !is_broken && s3_query_next(&at, &key, &value, &is_broken); count++)
        is_broken = is_broken || strlen(key) > 512 || strlen(value) > 1024;
    base_free(again);
    if (is_broken)
        return s3_error(S3_INVALID_ARGUMENT, "The header 'x-amz-tagging' shall be encoded as UTF-8 "
                                             "then URLEncoded URL query parameters without tag "
                                             "name duplicates.");
    if (count > 10)
        return s3_error(S3_INVALID_TAG, "Object tags cannot be greater than 10");
    return s3_from_status(base_strdup(text, "tags", tags));
}

static const char *override_of(const struct s3_call *call, const char *name)
{
    for (size_t i = 0; i < KEPT_COUNT; i++)
        if (kept[i].override != NULL && strcmp(kept[i].name, name) == 0)
            return http_request_query(call->request, kept[i].override);
    return NULL;
}

static void line_reply(struct s3_call *call, const char *line, size_t bytes)
{
    char copy[S3_HEADERS_BYTES_MAX];
    size_t name_bytes = (size_t)((const char *)memchr(line, ':', bytes) - line);
    memcpy(copy, line, bytes);
    copy[name_bytes] = copy[bytes] = '\0';
    if (override_of(call, copy) == NULL)
        s3_reply_header(call, copy, copy + name_bytes + 1);
}

void s3_headers_reply(struct s3_call *call, const char *headers)
{
    size_t bytes;
    for (const char *line = headers; *line != '\0'; line += bytes + (line[bytes] == '\n')) {
        bytes = strcspn(line, "\n");
        if (bytes < S3_HEADERS_BYTES_MAX && memchr(line, ':', bytes) != NULL)
            line_reply(call, line, bytes);
    }
    for (size_t i = 0; i < KEPT_COUNT; i++) {
        const char *value = override_of(call, kept[i].name);
        if (value != NULL)
            s3_reply_header(call, kept[i].name, value);
    }
    if (s3_headers_find(headers, "content-type", &bytes) == NULL &&
        override_of(call, "content-type") == NULL)
        s3_reply_header(call, "Content-Type", "binary/octet-stream");
}

/* ------------------------------------------------------------------------------------ conditions
 */

/* Seconds since 1970 of an HTTP date; 0: it is none. */
static int64_t date_of(const char *text)
{
    struct tm parts = {0};
    if (text == NULL)
        return 0;
    const char *end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    if (end == NULL)
        end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return end != NULL && *end == '\0' ? (int64_t)timegm(&parts) : 0;
}

static const char *prefixed(const struct s3_call *call, const char *prefix, const char *name)
{
    char full[64];
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    return s3_call_header(call, full);
}

void s3_conditions_of(struct s3_call *call, const char *prefix, struct s3_conditions *out)
{
    *out = (struct s3_conditions){
        .match = prefixed(call, prefix, "if-match"),
        .none_match = prefixed(call, prefix, "if-none-match"),
        .modified_since_s = date_of(prefixed(call, prefix, "if-modified-since")),
        .unmodified_since_s = date_of(prefixed(call, prefix, "if-unmodified-since")),
    };
}

/* ------------------------------------------------------------------------------------- checksums
 */

static void checksum_header(enum s3_algorithm algorithm, char name[40])
{
    int at = snprintf(name, 40, "x-amz-checksum-%s", s3_algorithm_name(algorithm));
    for (; at > 0; at--)
        name[at] = (char)tolower((unsigned char)name[at]);
}

enum s3_code s3_checksum_of(struct s3_call *call, enum s3_algorithm *algorithm, const char **value)
{
    char name[40];
    const char *trailer = s3_call_header(call, "x-amz-trailer");
    *algorithm = S3_NO_CHECKSUM;
    *value = NULL;
    for (int i = 1; i < S3_ALGORITHM_COUNT; i++) {
        checksum_header((enum s3_algorithm)i, name);
        const char *found = s3_call_header(call, name);
        if (found == NULL && (trailer == NULL || strcasecmp(trailer, name) != 0))
            continue;
        if (*algorithm != S3_NO_CHECKSUM)
            return s3_error(S3_INVALID_REQUEST, "Expecting a single x-amz-checksum- header. "
                                                "Multiple checksum Types are not allowed.");
        *algorithm = (enum s3_algorithm)i;
        *value = found;
    }
    const char *wanted = s3_call_header(call, "x-amz-sdk-checksum-algorithm");
    if (wanted == NULL)
        wanted = s3_call_header(call, "x-amz-checksum-algorithm");
    if (*algorithm == S3_NO_CHECKSUM && wanted != NULL)
        return s3_algorithm_of(wanted, algorithm);
    return S3_OK;
}

void s3_checksum_reply(struct s3_call *call, const struct s3_checksum *checksum)
{
    char name[40];
    if (checksum->algorithm == S3_NO_CHECKSUM || checksum->text[0] == '\0')
        return;
    checksum_header(checksum->algorithm, name);
    s3_reply_header(call, name, checksum->text);
    s3_reply_header(call, "x-amz-checksum-type",
                    s3_checksum_is_composite(checksum) ? "COMPOSITE" : "FULL_OBJECT");
}

enum s3_code s3_body_check(struct s3_call *call)
{
    size_t bytes;
    const void *body = http_body(call->request, &bytes);
    const char *md5 = s3_call_header(call, "Content-MD5"), *value;
    enum s3_algorithm algorithm;
    struct s3_digest_result result;
    unsigned char expected[S3_CHECKSUM_BYTES_MAX];
    S3_TRY(s3_checksum_of(call, &algorithm, &value));
    S3_TRY(s3_digest_of(algorithm, body, bytes, &result));
    if (md5 != NULL && !s3_unbase64(md5, expected, S3_MD5_BYTES))
        return s3_error(S3_INVALID_DIGEST, NULL);
    if (md5 != NULL && memcmp(expected, result.md5, S3_MD5_BYTES) != 0)
        return s3_error(S3_BAD_DIGEST, NULL);
    size_t count = s3_algorithm_bytes(algorithm);
    if (value != NULL &&
        (!s3_unbase64(value, expected, count) || memcmp(expected, result.checksum, count) != 0))
        return s3_error(S3_BAD_DIGEST, NULL);
    return S3_OK;
}

/* ----------------------------------------------------------------------------------- copy source
 */

enum s3_code s3_copy_source_of(struct s3_call *call, const char **bucket, const char **key)
{
    const char *text = s3_call_header(call, "x-amz-copy-source");
    S3_TRY(s3_from_status(base_strdup(text + (*text == '/'), "a copy's source", &call->owned)));
    char *version = strstr(call->owned, "?versionId=");
    if (version != NULL && strcmp(version, "?versionId=null") != 0)
        return s3_error(S3_INVALID_ARGUMENT, "Invalid version id specified");
    if (version != NULL)
        *version = '\0';
    if (!s3_query_decode(call->owned, false))
        return s3_error(S3_INVALID_ARGUMENT, "Copy Source must be URL-encoded.");
    char *slash = strchr(call->owned, '/');
    if (slash == NULL || slash[1] == '\0')
        return s3_error(
            S3_INVALID_ARGUMENT,
            "Copy Source must mention the source bucket and key: sourcebucket/sourcekey");
    *slash = '\0';
    *bucket = call->owned;
    *key = slash + 1;
    return S3_OK;
}
