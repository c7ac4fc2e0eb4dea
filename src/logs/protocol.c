/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protocol.c: from a request's body to its reply, on the connection's thread: the longest operation
 * takes half a second.
 */
#include "logs/protocol.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/json.h"
#include "logs/query.h"

#define CODE_BYTES 64

struct logs_protocol {
    struct logs *logs;
    struct job_validator *of_logs, *of_metrics;
};

enum shoal_status logs_protocol_create(struct logs *logs, struct logs_protocol **out)
{
    struct logs_protocol *protocol;
    TRY(BASE_NEW(&protocol, "the protocol of logs"));
    protocol->logs = logs;
    enum shoal_status status = job_validator_create(&job_model_logs, &protocol->of_logs);
    if (status == SHOAL_OK)
        status = job_validator_create(&job_model_monitoring, &protocol->of_metrics);
    if (status != SHOAL_OK) {
        logs_protocol_free(protocol);
        return status;
    }
    *out = protocol;
    return SHOAL_OK;
}

void logs_protocol_free(struct logs_protocol *protocol)
{
    if (protocol == NULL)
        return;
    job_validator_free(protocol->of_logs);
    job_validator_free(protocol->of_metrics);
    base_free(protocol);
}

static bool is_form(const struct http_request *request)
{
    return http_request_service(request) == HTTP_MONITORING_QUERY;
}

static bool is_metrics(const struct http_request *request)
{
    return http_request_service(request) == HTTP_MONITORING || is_form(request);
}

/* CloudWatch's errors have a second name, from the time when it spoke XML, which clients show. */
static void older_name(const char *type, char code[CODE_BYTES])
{
    static const char ending[] = "Exception";
    size_t length = strlen(type), cut = sizeof(ending) - 1;
    if (length > cut && strcmp(type + length - cut, ending) == 0)
        length -= cut;
    snprintf(code, CODE_BYTES, "%.*s", (int)length, type);
    if (strcmp(code, "MissingRequiredParameter") == 0)
        snprintf(code, CODE_BYTES, "MissingParameter");
    if (strcmp(code, "Validation") == 0)
        snprintf(code, CODE_BYTES, "ValidationError");
}

static enum shoal_status refuse(struct http_request *request, const struct job_fault *fault)
{
    char code[CODE_BYTES];
    older_name(fault->type, code);
    if (is_form(request))
        return http_reply_error(request, 400, code, "%s", fault->text);
    if (is_metrics(request))
        TRY(http_reply_header_format(request, "x-amzn-query-error", "%s;Sender", code));
    return http_reply_error(request, 400, fault->type, "%s", fault->text);
}

static enum shoal_status reply_send(struct http_request *request, const char *operation,
                                    const json_t *reply)
{
    if (!is_form(request))
        return http_json_reply(request, reply);
    struct http_text text = {0};
    logs_query_reply(&text, operation, http_request_id(request), reply);
    enum shoal_status status = http_text_status(&text);
    if (status == SHOAL_OK)
        status = http_reply_bytes(request, 200, "text/xml", text.bytes, text.count);
    http_text_free(&text);
    return status;
}

static enum shoal_status run(const struct logs_protocol *protocol,
                             const struct logs_operation *operation, struct http_request *request,
                             const json_t *body)
{
    bool of_metrics = is_metrics(request);
    const struct job_model *model = of_metrics ? &job_model_monitoring : &job_model_logs;
    struct job_fault fault = {0};
    json_t *reply = NULL;
    if (!job_validate(of_metrics ? protocol->of_metrics : protocol->of_logs,
                      job_operation_find(model, operation->name), body, &fault)) {
        if (!of_metrics && strcmp(fault.type, "ValidationException") == 0)
            fault.type = "InvalidParameterException"; /* as that service has it */
        return refuse(request, &fault);
    }
    TRY(operation->run(protocol->logs, body, &reply, &fault));
    if (fault.type != NULL)
        return refuse(request, &fault);
    enum shoal_status status = reply_send(request, operation->name, reply);
    json_decref(reply);
    return status;
}

static const struct logs_operation *find(const struct http_request *request)
{
    const struct logs_operation *operation =
        is_metrics(request) ? logs_metric_operations : logs_operations;
    while (operation->name != NULL && strcmp(operation->name, http_request_operation(request)) != 0)
        operation++;
    return operation->name != NULL ? operation : NULL;
}

/* The form as an object. */
static enum shoal_status form_read(const struct http_request *request, const char *operation,
                                   json_t *body)
{
    const struct job_operation *model = job_operation_find(&job_model_monitoring, operation);
    const char *name, *value;
    for (size_t i = 0; http_body_form_at(request, i, &name, &value); i++)
        TRY(logs_query_put(&job_model_monitoring, model, body, name, value));
    return SHOAL_OK;
}

/* NULL: it was replied to. */
static json_t *body_read(struct http_request *request, const char *operation)
{
    if (!is_form(request))
        return http_json_body(request);
    json_t *body = json_object();
    enum shoal_status status = form_read(request, operation, body);
    if (status == SHOAL_OK && body != NULL)
        return body;
    json_decref(body);
    http_reply_error(request, status == SHOAL_ERR_FORMAT ? 400 : 500,
                     status == SHOAL_ERR_FORMAT ? "MalformedQueryString" : "InternalFailure", "%s",
                     base_error_text());
    return NULL;
}

static enum shoal_status complete(void *user, struct http_request *request)
{
    const struct logs_operation *operation = find(request);
    if (operation == NULL)
        return http_reply_unknown(request);
    json_t *body = body_read(request, operation->name);
    if (body == NULL)
        return SHOAL_OK;
    enum shoal_status status = run(user, operation, request, body);
    json_decref(body);
    return status;
}

const struct http_handler *logs_protocol_handler(void)
{
    static const struct http_handler handler = {.complete = complete};
    return &handler;
}
