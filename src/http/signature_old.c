/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signature_old.c: presigned URLs of signature version 2, which boto3 makes for S3 unless it is
 * told otherwise: AWSAccessKeyId, Expires (seconds since 1970) and Signature, an HMAC-SHA1 in
 * base64 of
 *
 *   method, Content-MD5, Content-Type, expires; each on a line
 *   x-amz- headers in order, "name:value" on a line each
 *   the path as sent, and those parameters that name a part of the object or change the reply
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/status.h"
#include "http/signature_form.h"
#include "http/text.h"

#define SHA1_BYTES     20
#define SHA1_BASE64    28
#define SIGNED_MAX     100
#define EXPIRES_DIGITS 15

/* In order, as they are signed. */
static const char *const parameters[] = {
    "accelerate",
    "acl",
    "cors",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "partNumber",
    "policy",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
};

enum http_verdict signature_old_read(const struct http_message *message, struct http_signature *out)
{
    const char *key = http_pairs_find(message->query, "AWSAccessKeyId");
    const char *expires = http_pairs_find(message->query, "Expires");
    const char *hmac = http_pairs_find(message->query, "Signature");
    if (key == NULL)
        return HTTP_UNSIGNED;
    out->presigned = out->is_old = true;
    out->why = "AWSAccessKeyId, Expires or Signature is missing or wrong";
    size_t digits = expires != NULL ? strspn(expires, "0123456789") : 0;
    if (hmac == NULL || digits == 0 || digits > EXPIRES_DIGITS || expires[digits] != '\0' ||
        strlen(key) >= sizeof(out->key_id) || strlen(hmac) != SHA1_BASE64)
        return HTTP_MALFORMED_QUERY;
    out->why = NULL;
    out->time_s = strtoll(expires, NULL, 10);
    memcpy(out->key_id, key, strlen(key));
    memcpy(out->hex, hmac, SHA1_BASE64);
    memcpy(out->service, "s3", 3);
    return HTTP_ACCEPTED;
}

static int name_compare(const void *left, const void *right)
{
    const struct http_pair *const *a = left, *const *b = right;
    return strcasecmp((*a)->name, (*b)->name);
}

static void headers_put(struct http_text *text, const struct http_pairs *headers)
{
    const struct http_pair *chosen[SIGNED_MAX];
    size_t count = 0;
    for (size_t i = 0; i < headers->count && count < SIGNED_MAX; i++)
        if (strncasecmp(headers->pairs[i].name, "x-amz-", 6) == 0)
            chosen[count++] = &headers->pairs[i];
    qsort(chosen, count, sizeof(chosen[0]), name_compare);
    for (size_t i = 0; i < count; i++) {
        for (const char *at = chosen[i]->name; *at != '\0'; at++)
            http_text_format(text, "%c", *at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at);
        http_text_format(text, ":%s\n", chosen[i]->value);
    }
}

static void resource_put(struct http_text *text, const struct http_message *message)
{
    char mark = '?';
    http_text_put(text, message->path);
    for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {
        const char *value = http_pairs_find(message->query, parameters[i]);
        if (value == NULL)
            continue;
        http_text_format(text, "%c%s%s%s", mark, parameters[i], value[0] != '\0' ? "=" : "", value);
        mark = '&';
    }
}

static const char *header_of(const struct http_message *message, const char *name)
{
    const char *value = http_pairs_find_header(message->headers, name);
    return value != NULL ? value : "";
}

enum shoal_status signature_old_make(const struct http_message *message, const char *secret,
                                     char out[HTTP_DIGEST_HEX_BYTES])
{
    struct http_text text = {0};
    unsigned char mac[SHA1_BYTES];
    const char *expires = http_pairs_find(message->query, "Expires");
    http_text_format(&text, "%s\n%s\n%s\n%s\n", message->method, header_of(message, "content-md5"),
                     header_of(message, "content-type"), expires);
    headers_put(&text, message->headers);
    resource_put(&text, message);
    enum shoal_status status = http_text_status(&text);
    if (status == SHOAL_OK &&
        HMAC(EVP_sha1(), secret, (int)strlen(secret), (const unsigned char *)text.bytes, text.count,
             mac, NULL) == NULL)
        status = base_error(SHOAL_ERR_SYSTEM, "libcrypto could not compute an HMAC");
    if (status == SHOAL_OK)
        EVP_EncodeBlock((unsigned char *)out, mac, SHA1_BYTES);
    http_text_free(&text);
    return status;
}
