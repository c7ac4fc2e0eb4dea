/* SPDX-License-Identifier: Apache-2.0 */
/*
 * authorize.c: whether a request may come in: by its signature where the server has keys.
 *
 * With S3 the head says what the body's digest is, so the signature is checked before the body is
 * read, and the body against the digest behind it. Other services' clients sign the digest without
 * sending it: their bodies are collected first.
 */
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/status.h"
#include "http/refusal.h"
#include "http/request.h"

/* Words in x-amz-content-sha256. */
static const struct {
    const char *word;
    enum request_payload kind;
} words[] = {
    {"UNSIGNED-PAYLOAD", PAYLOAD_UNSIGNED},
    {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", PAYLOAD_CHUNKS_SIGNED},
    {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", PAYLOAD_CHUNKS_SIGNED_TRAILERS},
    {"STREAMING-UNSIGNED-PAYLOAD-TRAILER", PAYLOAD_CHUNKS_TRAILERS},
};

static bool is_digest(const char *text)
{
    return strlen(text) == HTTP_DIGEST_HEX_BYTES - 1 &&
           strspn(text, "0123456789abcdefABCDEF") == HTTP_DIGEST_HEX_BYTES - 1;
}

/* What x-amz-content-sha256 says, or that it says nothing. */
static enum http_verdict payload_read(struct http_request *request)
{
    const char *word = http_request_header(request, "x-amz-content-sha256");
    bool is_s3 = request->service == HTTP_S3;
    bool unsigned_without = request->signature.presigned || server_keys(request->server) == NULL;
    if (word == NULL && is_s3 && !unsigned_without)
        return HTTP_PAYLOAD_MISSING;
    if (word == NULL && !is_s3) {
        request->payload_kind = PAYLOAD_LATE;
        return HTTP_ACCEPTED;
    }
    if (word == NULL)
        word = "UNSIGNED-PAYLOAD";
    if (strlen(word) < sizeof(request->payload))
        memcpy(request->payload, word, strlen(word) + 1);
    if (is_digest(word)) {
        request->payload_kind = PAYLOAD_DIGEST;
        return HTTP_ACCEPTED;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i].word, word) != 0)
            continue;
        request->payload_kind = words[i].kind;
        bool is_encoded = request->payload_kind != PAYLOAD_UNSIGNED;
        if (is_encoded && http_request_header(request, "x-amz-decoded-content-length") == NULL)
            request->announced = -1; /* Content-Length counts the encoding too */
        return HTTP_ACCEPTED;
    }
    return HTTP_PAYLOAD_UNKNOWN;
}

static struct http_message message_of(const struct http_request *request)
{
    return (struct http_message){.method = request->method,
                                 .path = request->target,
                                 .query = &request->query,
                                 .headers = &request->headers};
}

static bool check_signature(struct http_request *request)
{
    struct http_message message = message_of(request);
    enum http_verdict verdict;
    enum shoal_status status = http_signature_check(
        &message, &request->signature, request->key->secret, request->payload, &verdict);
    if (status != SHOAL_OK)
        request_failed(request, status);
    else if (verdict != HTTP_ACCEPTED)
        http_refuse(request, (int)verdict, NULL);
    return !request->is_replied;
}

/* All that can be said without the body. */
static enum http_verdict check_claims(struct http_request *request)
{
    struct http_message message = message_of(request);
    enum http_verdict verdict = http_signature_check_time(&request->signature, (int64_t)time(NULL));
    if (verdict != HTTP_ACCEPTED)
        return verdict;
    request->key = http_keys_find(server_keys(request->server), request->signature.key_id);
    if (request->key == NULL)
        return HTTP_UNKNOWN_KEY;
    if (!route_is_absent(request->service) &&
        strcmp(request->signature.service, route_signing_name(request->service)) != 0)
        return HTTP_WRONG_SERVICE;
    return http_signature_check_headers(&message, &request->signature);
}

bool request_authorize(struct http_request *request)
{
    struct http_message message = message_of(request);
    enum http_verdict verdict = http_signature_read(&message, &request->signature);
    request->service = route_service(request);
    route_operation(request);
    bool is_open = server_keys(request->server) == NULL;
    if (!is_open && verdict == HTTP_ACCEPTED)
        verdict = check_claims(request);
    if (is_open || verdict == HTTP_ACCEPTED)
        verdict = payload_read(request);
    if (verdict != HTTP_ACCEPTED) {
        http_refuse(request, (int)verdict, request->signature.why);
        return false;
    }
    return is_open || request->payload_kind == PAYLOAD_LATE || check_signature(request);
}

bool request_authorize_body(struct http_request *request)
{
    char digest[HTTP_DIGEST_HEX_BYTES];
    if (request->payload_kind != PAYLOAD_LATE && request->payload_kind != PAYLOAD_DIGEST)
        return true;
    enum shoal_status status = http_digest_finish(request->digest, digest);
    if (status != SHOAL_OK) {
        request_failed(request, status);
        return false;
    }
    if (request->payload_kind == PAYLOAD_DIGEST) {
        if (strcasecmp(digest, request->payload) != 0)
            http_refuse(request, HTTP_PAYLOAD_WRONG, NULL);
        return !request->is_replied;
    }
    memcpy(request->payload, digest, sizeof(digest));
    return request->key == NULL || check_signature(request);
}
