/* SPDX-License-Identifier: Apache-2.0 */
/* protocol.c: from the HTTP server's callbacks to an operation's functions, and to its error. */
#include "s3/protocol.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/protocol_state.h"

#define COLLECT_BYTES (8 << 20)

/* Answers a code that no reply went out for. */
static enum shoal_status error_reply(struct s3_call *call, enum s3_code code)
{
    char text[512];
    snprintf(text, sizeof(text), "%s", base_error_text());
    if (code == S3_OK || http_replied(call->request))
        return SHOAL_OK;
    if (code == S3_NOT_MODIFIED)
        return http_reply_empty(call->request, 304);
    if (call->bucket[0] != '\0')
        http_error_member(call->request, "BucketName", call->bucket);
    if (call->key[0] != '\0')
        http_error_member(call->request, "Key", call->key);
    return http_reply_error(call->request, s3_code_status(code), s3_code_name(code), "%s", text);
}

static struct s3_call *call_of(struct http_request *request)
{
    return http_request_attachment(request);
}

void s3_call_wait(struct s3_call *call)
{
    http_request_suspend(call->request);
}

void s3_call_done(void *user, enum s3_code code)
{
    struct s3_call *call = user;
    call->code = code;
    snprintf(call->text, sizeof(call->text), "%s", code != S3_OK ? base_error_text() : "");
    http_request_resume(call->request);
}

static enum s3_code begin_with(struct s3_call *call)
{
    S3_TRY(s3_call_locate(call));
    S3_TRY(s3_call_route(call));
    if (call->operation->body == S3_BODY_STREAM) {
        http_body_stream(call->request);
        return call->operation->begin(call);
    }
    http_body_limit(call->request,
                    call->operation->body == S3_BODY_NONE ? 64 << 10 : COLLECT_BYTES);
    return S3_OK;
}

static enum shoal_status on_begin(void *user, struct http_request *request)
{
    const struct s3_protocol *protocol = user;
    struct s3_call *call;
    TRY(BASE_NEW(&call, "a request"));
    call->store = protocol->store;
    call->request = request;
    call->key = "";
    call->source_fd = -1;
    http_request_attach(request, call);
    return error_reply(call, begin_with(call));
}

static enum shoal_status on_piece(void *user, struct http_request *request, const void *data,
                                  size_t bytes)
{
    (void)user;
    struct s3_call *call = call_of(request);
    return error_reply(call, s3_put_write(call->put, data, bytes));
}

static enum shoal_status on_complete(void *user, struct http_request *request)
{
    (void)user;
    struct s3_call *call = call_of(request);
    return error_reply(call, call->operation->complete(call));
}

static enum shoal_status on_resumed(void *user, struct http_request *request)
{
    (void)user;
    struct s3_call *call = call_of(request);
    enum s3_code code = call->code;
    if (code != S3_OK)
        s3_error(code, "%s", call->text);
    else
        code = call->operation->resumed(call);
    return error_reply(call, code);
}

static void on_end(void *user, struct http_request *request)
{
    (void)user;
    struct s3_call *call = call_of(request);
    if (call == NULL)
        return;
    s3_put_abort(call->put);
    if (call->source_fd >= 0)
        close(call->source_fd);
    base_free(call->deleted.keys);
    base_free(call->owned);
    base_free(call);
}

const struct http_handler *s3_protocol_handler(void)
{
    static const struct http_handler handler = {.begin = on_begin,
                                                .piece = on_piece,
                                                .complete = on_complete,
                                                .resumed = on_resumed,
                                                .end = on_end};
    return &handler;
}

/* -------------------------------------------------------------------------------------- replies */

enum s3_code s3_reply_empty(struct s3_call *call, int status)
{
    return s3_from_status(http_reply_empty(call->request, status));
}

enum s3_code s3_reply_xml(struct s3_call *call, struct s3_xml *xml, const char *root)
{
    enum s3_code code = s3_xml_end(xml, root);
    if (code == S3_OK)
        code = s3_from_status(
            http_reply_bytes(call->request, 200, "application/xml", xml->text, xml->bytes));
    s3_xml_release(xml);
    return code;
}

/* A header that can't be sent (a control character in metadata) is left out. */
void s3_reply_header(struct s3_call *call, const char *name, const char *value)
{
    http_reply_header(call->request, name, value);
}

void s3_reply_etag(struct s3_call *call, const char *etag)
{
    http_reply_header_format(call->request, "ETag", "\"%s\"", etag);
}

void s3_reply_date(struct s3_call *call, const char *name, int64_t ms)
{
    char text[40];
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    s3_reply_header(call, name, text);
}
