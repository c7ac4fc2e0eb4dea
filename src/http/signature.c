/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signature.c: what is signed, and the signature of it.
 *
 *   canonical   method, path, query in order, signed headers, their names, payload; each on a line
 *   to sign     "AWS4-HMAC-SHA256", time, scope, SHA-256 of the canonical request
 *   key         HMAC chain: secret, date, region, service, "aws4_request"
 *   signature   HMAC of what is to be signed, in hexadecimal
 *
 * Client and server must agree on every byte, so each side writes the canonical form anew out of
 * what the request means: names and values of the query are decoded and encoded again, and so is
 * S3's path, which is taken as it is. Other services' paths lose empty and dotted parts and are
 * encoded once more on top of their encoding.
 */
#include "http/signature.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <openssl/crypto.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/signature_form.h"
#include "http/text.h"

void http_signature_time(int64_t time_s, char out[HTTP_SIGNATURE_TIME_BYTES])
{
    time_t seconds = (time_t)time_s;
    struct tm parts;
    gmtime_r(&seconds, &parts);
    strftime(out, HTTP_SIGNATURE_TIME_BYTES, "%Y%m%dT%H%M%SZ", &parts);
}

/* ---- the canonical request ---------------------------------------------------------------------
 */

/* Without empty parts, "." and "..", and what ".." leads out of. */
static void normal_path_put(struct http_text *text, const char *path)
{
    size_t length = strlen(path), count = 0;
    const char *parts[256];
    size_t lengths[256];
    for (const char *at = path; *at != '\0' && count < 256;) {
        size_t part = strcspn(at, "/");
        if (part == 2 && strncmp(at, "..", 2) == 0) {
            count -= count > 0;
        } else if (part > 0 && !(part == 1 && *at == '.')) {
            parts[count] = at;
            lengths[count++] = part;
        }
        at += part;
        at += *at == '/';
    }
    for (size_t i = 0; i < count; i++) {
        http_text_put(text, "/");
        http_text_encode(text, parts[i], lengths[i], false);
    }
    if (count == 0 || path[length - 1] == '/')
        http_text_put(text, "/");
}

static enum shoal_status s3_path_put(struct http_text *text, const char *path)
{
    char *decoded;
    TRY(base_strdup(path, "a path", &decoded));
    size_t count = strlen(decoded);
    enum shoal_status status = http_decode(decoded, &count, false);
    if (status == SHOAL_OK)
        http_text_encode(text, decoded, count, true);
    base_free(decoded);
    return status;
}

/* An encoded parameter: places in one text. */
struct parameter {
    const char *name, *value;
};

static int parameter_compare(const void *left, const void *right)
{
    const struct parameter *a = left, *b = right;
    int names = strcmp(a->name, b->name);
    return names != 0 ? names : strcmp(a->value, b->value);
}

/* Every name and value, each with its NUL. */
static void query_encode(const struct http_pairs *query, struct http_text *encoded)
{
    for (size_t i = 0; i < query->count; i++) {
        const struct http_pair *pair = &query->pairs[i];
        if (strcmp(pair->name, "X-Amz-Signature") == 0)
            continue;
        http_text_encode(encoded, pair->name, strlen(pair->name), false);
        http_text_add(encoded, "", 1);
        http_text_encode(encoded, pair->value, strlen(pair->value), false);
        http_text_add(encoded, "", 1);
    }
}

static enum shoal_status query_put_encoded(struct http_text *text, const struct http_text *encoded,
                                           size_t most)
{
    struct parameter *parameters;
    TRY(BASE_NEW_ARRAY(&parameters, most, "parameters"));
    size_t count = 0;
    const char *end = encoded->bytes + encoded->count;
    for (const char *at = encoded->bytes; at < end; count++) {
        parameters[count].name = at;
        parameters[count].value = at + strlen(at) + 1;
        at = parameters[count].value + strlen(parameters[count].value) + 1;
    }
    qsort(parameters, count, sizeof(*parameters), parameter_compare);
    for (size_t i = 0; i < count; i++)
        http_text_format(text, "%s%s=%s", i > 0 ? "&" : "", parameters[i].name,
                         parameters[i].value);
    base_free(parameters);
    return SHOAL_OK;
}

static enum shoal_status query_put(struct http_text *text, const struct http_pairs *query)
{
    struct http_text encoded = {0};
    query_encode(query, &encoded);
    enum shoal_status status = http_text_status(&encoded);
    if (status == SHOAL_OK && encoded.count > 0)
        status = query_put_encoded(text, &encoded, query->count);
    http_text_free(&encoded);
    return status;
}

/* Without blanks at the ends, and one for several within. */
static void value_put(struct http_text *text, const char *value)
{
    bool blank = false, some = false;
    for (; *value != '\0'; value++) {
        if (*value == ' ' || *value == '\t') {
            blank = some;
            continue;
        }
        if (blank)
            http_text_put(text, " ");
        http_text_add(text, value, 1);
        blank = false;
        some = true;
    }
}

static void header_put(struct http_text *text, const struct http_pairs *headers, const char *name,
                       size_t length)
{
    http_text_add(text, name, length);
    http_text_put(text, ":");
    bool first = true;
    for (size_t i = 0; i < headers->count; i++) {
        const struct http_pair *header = &headers->pairs[i];
        if (strlen(header->name) != length || strncasecmp(header->name, name, length) != 0)
            continue;
        if (!first)
            http_text_put(text, ",");
        value_put(text, header->value);
        first = false;
    }
    http_text_put(text, "\n");
}

static void headers_put(struct http_text *text, const struct http_pairs *headers, const char *names)
{
    while (*names != '\0') {
        size_t length = strcspn(names, ";");
        header_put(text, headers, names, length);
        names += length;
        names += *names == ';';
    }
}

enum shoal_status signature_canonical(const struct http_message *message,
                                      const struct http_signature *signature, const char *payload,
                                      struct http_text *text)
{
    http_text_format(text, "%s\n", message->method);
    if (strcmp(signature->service, "s3") == 0)
        TRY(s3_path_put(text, message->path));
    else
        normal_path_put(text, message->path);
    http_text_put(text, "\n");
    TRY(query_put(text, message->query));
    http_text_put(text, "\n");
    headers_put(text, message->headers, signature->signed_headers);
    http_text_format(text, "\n%s\n%s", signature->signed_headers, payload);
    return http_text_status(text);
}

/* ---- key and signature -------------------------------------------------------------------------
 */

static enum shoal_status key_make(const struct http_signature *signature, const char *secret,
                                  unsigned char key[HTTP_DIGEST_BYTES])
{
    char first[4 + HTTP_KEY_SECRET_BYTES];
    int length = snprintf(first, sizeof(first), "AWS4%s", secret);
    const char *const rest[] = {signature->region, signature->service, "aws4_request"};
    enum shoal_status status =
        http_digest_hmac(first, (size_t)length, signature->date, strlen(signature->date), key);
    OPENSSL_cleanse(first, sizeof(first));
    for (int i = 0; i < 3 && status == SHOAL_OK; i++) {
        unsigned char next[HTTP_DIGEST_BYTES];
        status = http_digest_hmac(key, HTTP_DIGEST_BYTES, rest[i], strlen(rest[i]), next);
        memcpy(key, next, sizeof(next));
    }
    return status;
}

static void scope_put(const struct http_signature *signature, char out[HTTP_SIGNATURE_SCOPE_BYTES])
{
    snprintf(out, HTTP_SIGNATURE_SCOPE_BYTES, "%s/%s/%s/aws4_request", signature->date,
             signature->region, signature->service);
}

static enum shoal_status text_sign(const unsigned char key[HTTP_DIGEST_BYTES], const char *text,
                                   char hex[HTTP_DIGEST_HEX_BYTES])
{
    unsigned char mac[HTTP_DIGEST_BYTES];
    TRY(http_digest_hmac(key, HTTP_DIGEST_BYTES, text, strlen(text), mac));
    http_digest_hex(mac, hex);
    return SHOAL_OK;
}

enum shoal_status signature_make(const struct http_message *message,
                                 const struct http_signature *signature, const char *secret,
                                 const char *payload, char hex[HTTP_DIGEST_HEX_BYTES])
{
    struct http_text canonical = {0};
    char digest[HTTP_DIGEST_HEX_BYTES] = "", scope[HTTP_SIGNATURE_SCOPE_BYTES], to_sign[320];
    enum shoal_status status = signature_canonical(message, signature, payload, &canonical);
    if (status == SHOAL_OK)
        status = http_digest_of(canonical.bytes, canonical.count, digest);
    http_text_free(&canonical);
    TRY(status);
    scope_put(signature, scope);
    snprintf(to_sign, sizeof(to_sign), "AWS4-HMAC-SHA256\n%s\n%s\n%s", signature->time, scope,
             digest);
    unsigned char key[HTTP_DIGEST_BYTES];
    TRY(key_make(signature, secret, key));
    return text_sign(key, to_sign, hex);
}

/* ---- checks ------------------------------------------------------------------------------------
 */

enum http_verdict http_signature_check_time(const struct http_signature *signature, int64_t now_s)
{
    int64_t ahead = signature->time_s - now_s;
    if (signature->is_old)
        return ahead < 0 ? HTTP_EXPIRED : HTTP_ACCEPTED;
    if (ahead > HTTP_SIGNATURE_SKEW_S)
        return HTTP_SKEWED;
    if (signature->presigned)
        return now_s - signature->time_s > signature->expires_s ? HTTP_EXPIRED : HTTP_ACCEPTED;
    return -ahead > HTTP_SIGNATURE_SKEW_S ? HTTP_SKEWED : HTTP_ACCEPTED;
}

static bool is_signed(const struct http_signature *signature, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = signature->signed_headers; *at != '\0';) {
        size_t part = strcspn(at, ";");
        if (part == length && strncasecmp(at, name, length) == 0)
            return true;
        at += part;
        at += *at == ';';
    }
    return false;
}

enum http_verdict http_signature_check_headers(const struct http_message *message,
                                               const struct http_signature *signature)
{
    if (signature->is_old)
        return HTTP_ACCEPTED; /* which signs them all, and no host */
    if (!is_signed(signature, "host"))
        return HTTP_HEADER_UNSIGNED;
    for (size_t i = 0; i < message->headers->count; i++) {
        const char *name = message->headers->pairs[i].name;
        if (strncasecmp(name, "x-amz-", 6) == 0 && !is_signed(signature, name))
            return HTTP_HEADER_UNSIGNED;
    }
    return HTTP_ACCEPTED;
}

enum shoal_status http_signature_check(const struct http_message *message,
                                       const struct http_signature *signature, const char *secret,
                                       const char *payload, enum http_verdict *verdict)
{
    char hex[HTTP_DIGEST_HEX_BYTES] = {0};
    if (signature->is_old)
        TRY(signature_old_make(message, secret, hex));
    else
        TRY(signature_make(message, signature, secret, payload, hex));
    bool same = CRYPTO_memcmp(hex, signature->hex, sizeof(hex)) == 0;
    *verdict = same ? HTTP_ACCEPTED : HTTP_WRONG_SIGNATURE;
    return SHOAL_OK;
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

enum shoal_status http_chunk_signer_begin(const struct http_signature *signature,
                                          const char *secret, struct http_chunk_signer *out)
{
    TRY(key_make(signature, secret, out->key));
    scope_put(signature, out->scope);
    memcpy(out->time, signature->time, sizeof(out->time));
    memcpy(out->previous, signature->hex, sizeof(out->previous));
    return SHOAL_OK;
}

static enum shoal_status next_sign(struct http_chunk_signer *signer, const char *kind,
                                   const char *digests, char hex[HTTP_DIGEST_HEX_BYTES])
{
    char to_sign[512];
    snprintf(to_sign, sizeof(to_sign), "%s\n%s\n%s\n%s\n%s", kind, signer->time, signer->scope,
             signer->previous, digests);
    TRY(text_sign(signer->key, to_sign, hex));
    memcpy(signer->previous, hex, sizeof(signer->previous));
    return SHOAL_OK;
}

enum shoal_status http_chunk_sign(struct http_chunk_signer *signer, const char *digest,
                                  char hex[HTTP_DIGEST_HEX_BYTES])
{
    char digests[2 * HTTP_DIGEST_HEX_BYTES];
    snprintf(digests, sizeof(digests), "%s\n%s", HTTP_DIGEST_EMPTY, digest);
    return next_sign(signer, "AWS4-HMAC-SHA256-PAYLOAD", digests, hex);
}

enum shoal_status http_chunk_sign_trailers(struct http_chunk_signer *signer, const char *digest,
                                           char hex[HTTP_DIGEST_HEX_BYTES])
{
    return next_sign(signer, "AWS4-HMAC-SHA256-TRAILER", digest, hex);
}
