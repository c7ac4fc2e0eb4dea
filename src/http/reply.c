/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c: replies: bytes, files, sources, and errors in each service's form. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "http/request.h"

#define SOURCE_BLOCK_BYTES (64 << 10)
#define ERROR_TEXT_BYTES   2048

bool http_replied(const struct http_request *request)
{
    return request->is_replied;
}

/* ---- headers -----------------------------------------------------------------------------------
 */

static bool is_clean(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' && *text != '\t')
            return false;
    return true;
}

enum shoal_status http_reply_header(struct http_request *request, const char *name,
                                    const char *value)
{
    if (!is_clean(name) || !is_clean(value) || strpbrk(name, ": ") != NULL)
        return base_error(SHOAL_ERR_FORMAT, "a header of the reply holds control characters");
    if (request->reply_header_count == REPLY_HEADERS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "a reply has at most %d headers", REPLY_HEADERS_MAX);
    char *name_copy = NULL, *value_copy = NULL;
    enum shoal_status status = base_strdup(name, "a header", &name_copy);
    if (status == SHOAL_OK)
        status = base_strdup(value, "a header", &value_copy);
    if (status != SHOAL_OK) {
        base_free(name_copy);
        request->lacks_header = true;
        return status;
    }
    request->reply_headers[request->reply_header_count++] =
        (struct http_pair){name_copy, value_copy};
    return SHOAL_OK;
}

void reply_headers_drop(struct http_request *request)
{
    for (size_t i = 0; i < request->reply_header_count; i++) {
        base_free((void *)request->reply_headers[i].name);
        base_free((void *)request->reply_headers[i].value);
    }
    request->reply_header_count = 0;
    request->lacks_header = false;
}

enum shoal_status http_reply_header_format(struct http_request *request, const char *name,
                                           const char *format, ...)
{
    char value[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    if (length < 0 || length >= (int)sizeof(value))
        return base_error(SHOAL_ERR_LIMIT, "the header %s of the reply is too long", name);
    return http_reply_header(request, name, value);
}

static bool headers_put(struct http_request *request, struct MHD_Response *response)
{
    bool fits = true;
    for (size_t i = 0; i < request->reply_header_count; i++)
        fits &= MHD_add_response_header(response, request->reply_headers[i].name,
                                        request->reply_headers[i].value) == MHD_YES;
    const char *id = request->service == HTTP_S3 ? "x-amz-request-id" : "x-amzn-RequestId";
    fits &= MHD_add_response_header(response, id, request->id) == MHD_YES;
    return fits && MHD_add_response_header(response, "Server", "Shoal") == MHD_YES;
}

/* Takes the response. One without its headers is not sent, and those that were to go with it don't
 * go with the error in its place. */
static enum shoal_status settle(struct http_request *request, int status,
                                struct MHD_Response *response)
{
    if (response == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a reply");
    if (request->lacks_header) {
        reply_headers_drop(request);
        MHD_destroy_response(response);
        return base_error(SHOAL_ERR_MEMORY, "no memory for a reply's headers");
    }
    if (request->is_replied || !headers_put(request, response)) {
        bool twice = request->is_replied;
        MHD_destroy_response(response);
        return twice ? base_error(SHOAL_ERR_STATE, "the request has a reply already")
                     : base_error(SHOAL_ERR_MEMORY, "no memory for a reply's headers");
    }
    request->response = response;
    request->reply_status = status;
    request->is_replied = true;
    return SHOAL_OK;
}

/* ---- bodies ------------------------------------------------------------------------------------
 */

enum shoal_status http_reply_empty(struct http_request *request, int status)
{
    return settle(request, status,
                  MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

enum shoal_status http_reply_bytes(struct http_request *request, int status,
                                   const char *content_type, const void *bytes, size_t count)
{
    if (content_type != NULL)
        TRY(http_reply_header(request, "Content-Type", content_type));
    return settle(request, status,
                  MHD_create_response_from_buffer(count, (void *)bytes, MHD_RESPMEM_MUST_COPY));
}

/* Never called: MHD sends no body to HEAD. */
static ssize_t nothing_read(void *user, uint64_t position, char *out, size_t capacity)
{
    (void)user, (void)position, (void)out, (void)capacity;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

enum shoal_status http_reply_head(struct http_request *request, int status, uint64_t bytes)
{
    return settle(request, status,
                  MHD_create_response_from_callback(bytes, 1, nothing_read, NULL, NULL));
}

enum shoal_status http_reply_file(struct http_request *request, int status, int fd, uint64_t offset,
                                  uint64_t bytes)
{
    struct MHD_Response *response = MHD_create_response_from_fd_at_offset64(bytes, fd, offset);
    if (response == NULL)
        close(fd);
    return settle(request, status, response);
}

static ssize_t source_read(void *user, uint64_t position, char *out, size_t capacity)
{
    struct http_request *request = user;
    (void)position;
    for (;;) {
        size_t bytes = 0;
        enum shoal_status status =
            request->is_given_up
                ? base_error(SHOAL_ERR_STATE, "the service is being stopped")
                : request->source.read(request->source.user, out, capacity, &bytes);
        if (status == SHOAL_OK)
            return bytes > 0 ? (ssize_t)bytes : MHD_CONTENT_READER_END_OF_STREAM;
        if (status != SHOAL_IN_PROGRESS) {
            base_log(BASE_LOG_WARN, "request %s: the reply breaks off: %s", request->id,
                     base_error_text());
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        if (suspend_source(request))
            return 0;
    }
}

enum shoal_status http_reply_source(struct http_request *request, int status, int64_t bytes,
                                    const struct http_source *source)
{
    /* Not closed by the response, which the connection keeps for longer than the request. */
    struct MHD_Response *response =
        MHD_create_response_from_callback(bytes >= 0 ? (uint64_t)bytes : MHD_SIZE_UNKNOWN,
                                          SOURCE_BLOCK_BYTES, source_read, request, NULL);
    request->source = *source;
    enum shoal_status result = settle(request, status, response);
    if (result != SHOAL_OK)
        reply_source_close(request);
    return result;
}

void reply_source_close(struct http_request *request)
{
    if (request->source.close != NULL)
        request->source.close(request->source.user);
    request->source.close = NULL;
}

/* ---- errors ------------------------------------------------------------------------------------
 */

enum shoal_status http_error_member(struct http_request *request, const char *name,
                                    const char *value)
{
    struct http_text *members = &request->error_members;
    bool is_json = request->service != HTTP_S3 && !route_is_query(request->service);
    if (is_json) {
        http_text_put(members, ",");
        http_text_json(members, name);
        http_text_put(members, ":");
        http_text_json(members, value);
    } else {
        http_text_element(members, name, value);
    }
    return http_text_status(members);
}

static void s3_error_put(const struct http_request *request, const char *code, const char *message,
                         struct http_text *out)
{
    http_text_put(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
    http_text_element(out, "Code", code);
    http_text_element(out, "Message", message);
    http_text_put(out, http_text_string(&request->error_members));
    http_text_element(out, "Resource", request->path);
    http_text_element(out, "RequestId", request->id);
    http_text_put(out, "</Error>");
}

static void query_error_put(const struct http_request *request, int status, const char *code,
                            const char *message, struct http_text *out)
{
    const char *version = request->service == HTTP_IAM                ? "2010-05-08"
                          : request->service == HTTP_MONITORING_QUERY ? "2010-08-01"
                                                                      : "2011-06-15";
    http_text_format(out, "<ErrorResponse xmlns=\"https://%s.amazonaws.com/doc/%s/\"><Error>",
                     http_service_name(request->service), version);
    http_text_element(out, "Type", status < 500 ? "Sender" : "Receiver");
    http_text_element(out, "Code", code);
    http_text_element(out, "Message", message);
    http_text_put(out, http_text_string(&request->error_members));
    http_text_put(out, "</Error>");
    http_text_element(out, "RequestId", request->id);
    http_text_put(out, "</ErrorResponse>");
}

static void json_error_put(const struct http_request *request, const char *code,
                           const char *message, struct http_text *out)
{
    http_text_put(out, "{\"__type\":");
    http_text_json(out, code);
    http_text_put(out, ",\"message\":");
    http_text_json(out, message);
    http_text_put(out, http_text_string(&request->error_members));
    http_text_put(out, "}");
}

static const char *error_put(const struct http_request *request, int status, const char *code,
                             const char *message, struct http_text *out)
{
    switch (request->service) {
    case HTTP_S3: s3_error_put(request, code, message, out); return "application/xml";
    case HTTP_STS:
    case HTTP_IAM:
    case HTTP_MONITORING_QUERY:
    case HTTP_ABSENT_QUERY: query_error_put(request, status, code, message, out); return "text/xml";
    case HTTP_ABSENT:
    case HTTP_RUNTIME: json_error_put(request, code, message, out); return "application/json";
    default: json_error_put(request, code, message, out); return "application/x-amz-json-1.1";
    }
}

enum shoal_status http_reply_error(struct http_request *request, int status, const char *code,
                                   const char *format, ...)
{
    char message[ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    base_log(BASE_LOG_INFO, "request %s (%s %s): %d %s: %s", request->id, request->method,
             request->target, status, code, message);
    struct http_text body = {0};
    const char *type = error_put(request, status, code, message, &body);
    enum shoal_status result = http_text_status(&body);
    bool is_rest = request->service == HTTP_RUNTIME || request->service == HTTP_ABSENT;
    if (result == SHOAL_OK && is_rest)
        result = http_reply_header(request, "x-amzn-errortype", code);
    if (result == SHOAL_OK)
        result = http_reply_bytes(request, status, type, body.bytes, body.count);
    http_text_free(&body);
    return result;
}

enum shoal_status http_reply_unknown(struct http_request *request)
{
    if (request->service == HTTP_S3)
        return http_reply_error(request, 501, "NotImplemented",
                                "%s %s: shoal's S3 does not have this operation", request->method,
                                request->path);
    const char *code =
        route_is_query(request->service) ? "InvalidAction" : "UnknownOperationException";
    if (route_is_absent(request->service))
        return http_reply_error(request, 400, code,
                                "shoal does not have the service '%s': it has s3, sagemaker, logs, "
                                "monitoring, sts and iam",
                                request->signature.service);
    return http_reply_error(request, 400, code, "shoal's %s does not have the operation '%s'",
                            http_service_name(request->service), request->operation);
}
