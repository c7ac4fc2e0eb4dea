/* SPDX-License-Identifier: Apache-2.0 */
/*
 * body.c: a request's body on its way to its handler: digested, decoded, counted, and collected or
 * passed on. The first failure ends it; what still comes is dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "http/refusal.h"
#include "http/request.h"

static bool is_chunked(const struct http_request *request)
{
    return request->payload_kind >= PAYLOAD_CHUNKS_SIGNED;
}

static bool is_signed(enum request_payload kind)
{
    return kind == PAYLOAD_CHUNKS_SIGNED || kind == PAYLOAD_CHUNKS_SIGNED_TRAILERS;
}

static enum shoal_status chunked_open(struct http_request *request)
{
    enum request_payload kind = request->payload_kind;
    struct http_chunk_signer signer;
    struct http_chunked_options options = {.is_signed = is_signed(kind),
                                           .has_trailers = kind == PAYLOAD_CHUNKS_TRAILERS ||
                                                           kind == PAYLOAD_CHUNKS_SIGNED_TRAILERS,
                                           .announced = request->announced};
    if (options.is_signed && request->key != NULL) {
        TRY(http_chunk_signer_begin(&request->signature, request->key->secret, &signer));
        options.signer = &signer;
    }
    return http_chunked_create(&options, &request->chunked);
}

enum shoal_status body_open(struct http_request *request)
{
    request->body.limit = request->collect_max;
    if (is_chunked(request))
        return chunked_open(request);
    if (request->payload_kind == PAYLOAD_LATE || request->payload_kind == PAYLOAD_DIGEST)
        return http_digest_create(&request->digest);
    return SHOAL_OK;
}

/* What is left of a piece when it is decoded. */
static enum shoal_status decoded_take(void *user, const void *data, size_t bytes)
{
    struct http_request *request = user;
    request->body_bytes += (int64_t)bytes;
    if (request->is_streamed)
        return request->handler->piece(request->user, request, data, bytes);
    if ((uint64_t)request->body_bytes > request->collect_max) {
        http_refuse(request, REFUSAL_BODY_TOO_LARGE, NULL);
        return SHOAL_ERR_LIMIT;
    }
    http_text_add(&request->body, data, bytes);
    return http_text_status(&request->body);
}

enum shoal_status body_take(struct http_request *request, const char *bytes, size_t count)
{
    request->received += (int64_t)count;
    if (request->received > server_limits(request->server)->body_bytes) {
        http_refuse(request, REFUSAL_BODY_TOO_LARGE, NULL);
        return SHOAL_ERR_LIMIT;
    }
    if (request->chunked != NULL) {
        struct http_chunked_sink sink = {decoded_take, request};
        return http_chunked_feed(request->chunked, bytes, count, &sink);
    }
    if (request->digest != NULL)
        TRY(http_digest_add(request->digest, bytes, count));
    return decoded_take(request, bytes, count);
}

static enum shoal_status form_read(struct http_request *request)
{
    bool has_form = route_is_query(request->service) && !route_is_absent(request->service);
    if (!has_form || request->is_streamed)
        return SHOAL_OK;
    TRY(http_pairs_parse(http_text_string(&request->body), request->body.count, REQUEST_FORM_MAX,
                         &request->form));
    route_operation(request);
    return SHOAL_OK;
}

bool body_close(struct http_request *request)
{
    enum shoal_status status = SHOAL_OK;
    if (request->chunked != NULL)
        status = http_chunked_finish(request->chunked);
    else if (request->announced >= 0 && request->received != request->announced)
        http_refuse(request, REFUSAL_BODY_SHORT, NULL);
    if (status == SHOAL_OK && !request->is_replied)
        status = form_read(request);
    if (status == SHOAL_ERR_MEMORY)
        request_failed(request, status);
    else if (status != SHOAL_OK)
        http_refuse(request, REFUSAL_BODY_FORM, base_error_text());
    return !request->is_replied;
}

void http_body_stream(struct http_request *request)
{
    request->is_streamed = true;
}

void http_body_limit(struct http_request *request, size_t bytes)
{
    request->collect_max = bytes;
    request->body.limit = bytes;
}

int64_t http_body_announced(const struct http_request *request)
{
    return request->announced;
}

const void *http_body(const struct http_request *request, size_t *bytes)
{
    *bytes = request->body.count;
    return http_text_string(&request->body);
}

int64_t http_body_bytes(const struct http_request *request)
{
    return request->body_bytes;
}

const char *http_body_trailer(const struct http_request *request, const char *name)
{
    return request->chunked != NULL ? http_chunked_trailer(request->chunked, name) : NULL;
}

const char *http_body_form(const struct http_request *request, const char *name)
{
    return http_pairs_find(&request->form, name);
}
