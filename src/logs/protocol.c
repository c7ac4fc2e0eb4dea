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

/* CloudWatch's errors have a second name, from the time when it spoke XML, which clients show. */
static enum shoal_status older_name_add(struct http_request *request, const char *type)
{
    static const char ending[] = "Exception";
    char code[CODE_BYTES];
    size_t length = strlen(type), cut = sizeof(ending) - 1;
    if (length > cut && strcmp(type + length - cut, ending) == 0)
        length -= cut;
    snprintf(code, sizeof(code), "%.*s", (int)length, type);
    if (strcmp(code, "MissingRequiredParameter") == 0)
        snprintf(code, sizeof(code), "MissingParameter");
    if (strcmp(code, "Validation") == 0)
        snprintf(code, sizeof(code), "ValidationError");
    return http_reply_header_format(request, "x-amzn-query-error", "%s;Sender", code);
}

static enum shoal_status refuse(struct http_request *request, const struct job_fault *fault)
{
    if (http_request_service(request) == HTTP_MONITORING)
        TRY(older_name_add(request, fault->type));
    return http_reply_error(request, 400, fault->type, "%s", fault->text);
}

static enum shoal_status run(const struct logs_protocol *protocol,
                             const struct logs_operation *operation, struct http_request *request,
                             const json_t *body)
{
    bool is_metrics = http_request_service(request) == HTTP_MONITORING;
    const struct job_model *model = is_metrics ? &job_model_monitoring : &job_model_logs;
    struct job_fault fault = {0};
    json_t *reply = NULL;
    if (!job_validate(is_metrics ? protocol->of_metrics : protocol->of_logs,
                      job_operation_find(model, operation->name), body, &fault)) {
        if (!is_metrics && strcmp(fault.type, "ValidationException") == 0)
            fault.type = "InvalidParameterException"; /* as that service has it */
        return refuse(request, &fault);
    }
    TRY(operation->run(protocol->logs, body, &reply, &fault));
    if (fault.type != NULL)
        return refuse(request, &fault);
    enum shoal_status status = http_json_reply(request, reply);
    json_decref(reply);
    return status;
}

static const struct logs_operation *find(const struct http_request *request)
{
    const struct logs_operation *operation =
        http_request_service(request) == HTTP_MONITORING ? logs_metric_operations : logs_operations;
    while (operation->name != NULL && strcmp(operation->name, http_request_operation(request)) != 0)
        operation++;
    return operation->name != NULL ? operation : NULL;
}

static enum shoal_status complete(void *user, struct http_request *request)
{
    const struct logs_operation *operation = find(request);
    if (operation == NULL)
        return http_reply_unknown(request);
    json_t *body = http_json_body(request);
    if (body == NULL)
        return SHOAL_OK; /* it was replied to */
    enum shoal_status status = run(user, operation, request, body);
    json_decref(body);
    return status;
}

const struct http_handler *logs_protocol_handler(void)
{
    static const struct http_handler handler = {.complete = complete};
    return &handler;
}
