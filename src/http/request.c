/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: a request's head, and what handlers ask of it. */
#include "http/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "http/refusal.h"

/* Random, in the form of a UUID of version 4. */
static void id_make(char id[REQUEST_ID_BYTES])
{
    unsigned char b[16] = {0};
    if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
        base_log(BASE_LOG_WARN, "no random bytes for a request's id");
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    snprintf(id, REQUEST_ID_BYTES,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

enum shoal_status request_create(struct http_server *server, struct MHD_Connection *connection,
                                 const char *target, struct http_request **out)
{
    struct http_request *request;
    TRY(BASE_NEW(&request, "a request"));
    enum shoal_status status = base_strdup(target, "a request's target", &request->target);
    if (status != SHOAL_OK) {
        base_free(request);
        return status;
    }
    request->server = server;
    request->connection = connection;
    request->announced = -1;
    request->source_fd = -1;
    request->collect_max = server_limits(server)->collected_bytes;
    request->method = "";
    request->path = "";
    request->headers.pairs = request->header_pairs;
    id_make(request->id);
    *out = request;
    return SHOAL_OK;
}

static void request_free(struct http_request *request)
{
    if (request->response != NULL)
        MHD_destroy_response(request->response);
    reply_headers_drop(request);
    if (request->path != NULL && request->path[0] != '\0')
        base_free(request->path);
    base_free(request->target);
    http_pairs_free(&request->query);
    http_pairs_free(&request->form);
    http_text_free(&request->body);
    http_text_free(&request->error_members);
    http_digest_free(request->digest);
    http_chunked_free(request->chunked);
    base_free(request);
}

void request_end(struct http_request *request)
{
    if (request->begun && request->handler->end != NULL)
        request->handler->end(request->user, request);
    request_free(request);
}

void request_release(struct http_request *request)
{
    reply_source_close(request);
    if (suspend_over(request))
        request_end(request);
}

void request_failed(struct http_request *request, enum shoal_status status)
{
    base_log(BASE_LOG_WARN, "request %s (%s %s): %s", request->id, request->method, request->target,
             base_error_text());
    reply_headers_drop(request); /* of the reply that is not to be */
    if (!request->is_replied)
        http_refuse(request, status == SHOAL_ERR_MEMORY ? REFUSAL_MEMORY : REFUSAL_INTERNAL,
                    base_error_text());
}

/* ---- the head ----------------------------------------------------------------------------------
 */

struct reading {
    struct http_request *request;
    size_t bytes;
    bool too_many;
};

static enum MHD_Result header_add(void *user, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    struct reading *reading = user;
    struct http_pairs *headers = &reading->request->headers;
    (void)kind;
    if (headers->count == REQUEST_HEADERS_MAX) {
        reading->too_many = true;
        return MHD_NO;
    }
    reading->bytes += strlen(name) + (value != NULL ? strlen(value) : 0) + 4;
    headers->pairs[headers->count++] = (struct http_pair){name, value != NULL ? value : ""};
    return MHD_YES;
}

static bool headers_read(struct http_request *request)
{
    struct reading reading = {.request = request, .bytes = strlen(request->target)};
    MHD_get_connection_values(request->connection, MHD_HEADER_KIND, header_add, &reading);
    if (reading.too_many || reading.bytes > server_limits(request->server)->head_bytes) {
        http_refuse(request, REFUSAL_HEAD_TOO_LARGE, NULL);
        return false;
    }
    return true;
}

static enum shoal_status target_read(struct http_request *request)
{
    char *target = request->target;
    /* A proxy's form, "http://host/path": what follows the host is meant. */
    if (strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0) {
        const char *host = strstr(target, "://") + 3;
        size_t skip = (size_t)(host - target) + strcspn(host, "/?");
        memmove(target, target + skip, strlen(target + skip) + 1);
    }
    size_t length = strcspn(target, "?");
    request->raw_query = target[length] == '?' ? target + length + 1 : "";
    target[length] = '\0';
    if (target[0] != '/' && strcmp(target, "*") != 0)
        return base_error(SHOAL_ERR_FORMAT, "the path does not begin with '/'");
    char *path;
    TRY(base_strdup(target, "a path", &path));
    enum shoal_status status = http_decode(path, &length, false);
    if (status != SHOAL_OK) {
        base_free(path);
        return status;
    }
    path[length] = '\0';
    request->path = path;
    return http_pairs_parse(request->raw_query, strlen(request->raw_query), REQUEST_QUERY_MAX,
                            &request->query);
}

/* Digits only: a sign, a blank or too many of them are no length. */
static bool length_read(const char *text, int64_t *out)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || text[digits] != '\0')
        return false;
    *out = strtoll(text, NULL, 10);
    return true;
}

/* Content-Length, or what lies within an encoded body. */
static bool announced_read(struct http_request *request)
{
    const char *decoded = http_request_header(request, "x-amz-decoded-content-length");
    const char *length = decoded != NULL ? decoded : http_request_header(request, "content-length");
    if (length != NULL && !length_read(length, &request->announced)) {
        http_refuse(request, REFUSAL_BODY_FORM, "the length is no number");
        return false;
    }
    if (request->announced > server_limits(request->server)->body_bytes) {
        http_refuse(request, REFUSAL_BODY_TOO_LARGE, NULL);
        return false;
    }
    return true;
}

bool request_read_head(struct http_request *request, const char *method)
{
    request->method = method;
    request->begin_ns = base_now_ns();
    if (!headers_read(request))
        return false;
    request->service = route_service(request); /* for who is refused before all of it is known */
    enum shoal_status status = target_read(request);
    if (status == SHOAL_ERR_MEMORY)
        request_failed(request, status);
    else if (status != SHOAL_OK)
        http_refuse(request, REFUSAL_TARGET, base_error_text());
    return status == SHOAL_OK && announced_read(request);
}

/* ---- for handlers ------------------------------------------------------------------------------
 */

enum http_service http_request_service(const struct http_request *request)
{
    return request->service;
}

const char *http_request_method(const struct http_request *request)
{
    return request->method;
}

const char *http_request_path(const struct http_request *request)
{
    return request->path;
}

const char *http_request_query(const struct http_request *request, const char *name)
{
    return http_pairs_find(&request->query, name);
}

static bool pair_at(const struct http_pairs *pairs, size_t n, const char **name, const char **value)
{
    if (n >= pairs->count)
        return false;
    *name = pairs->pairs[n].name;
    *value = pairs->pairs[n].value;
    return true;
}

bool http_request_query_at(const struct http_request *request, size_t n, const char **name,
                           const char **value)
{
    return pair_at(&request->query, n, name, value);
}

const char *http_request_header(const struct http_request *request, const char *name)
{
    return http_pairs_find_header(&request->headers, name);
}

bool http_request_header_at(const struct http_request *request, size_t n, const char **name,
                            const char **value)
{
    return pair_at(&request->headers, n, name, value);
}

bool http_body_form_at(const struct http_request *request, size_t n, const char **name,
                       const char **value)
{
    return pair_at(&request->form, n, name, value);
}

const char *http_request_key_id(const struct http_request *request)
{
    return request->key != NULL ? request->key->id : "";
}

const char *http_request_key_name(const struct http_request *request)
{
    return request->key != NULL ? request->key->name : "anonymous";
}

const char *http_request_region(const struct http_request *request)
{
    return request->signature.region[0] != '\0' ? request->signature.region : "us-east-1";
}

const char *http_request_id(const struct http_request *request)
{
    return request->id;
}

const char *http_request_operation(const struct http_request *request)
{
    return request->operation;
}

void http_request_attach(struct http_request *request, void *attachment)
{
    request->attachment = attachment;
}

void *http_request_attachment(const struct http_request *request)
{
    return request->attachment;
}
