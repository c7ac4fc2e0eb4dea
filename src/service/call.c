/* SPDX-License-Identifier: Apache-2.0 */
/* call.c: requests to SageMaker's API, and the table of its operations. */
#include "service/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/json.h"
#include "service/watch.h"

static const struct service_operation *const operations[] = {
    &service_training_create, &service_training_describe, &service_training_stop,
    &service_training_update, &service_training_delete,   &service_training_list,
    &service_tags_add,        &service_tags_list,         &service_tags_delete,
    &service_search};

const struct service_operation *service_operation_find(const char *name)
{
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
        if (strcmp(operations[i]->name, name) == 0)
            return operations[i];
    return NULL;
}

enum shoal_status service_refuse(struct service_call *call, const char *type, const char *format,
                                 ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->fault.text, sizeof(call->fault.text), format, arguments);
    va_end(arguments);
    call->fault.type = type;
    return base_error(SHOAL_ERR_ARGUMENT, "%s", type);
}

const char *service_input_text(const struct service_call *call, const char *name)
{
    return json_string_value(json_object_get(call->input, name));
}

int64_t service_input_number(const struct service_call *call, const char *name, int64_t otherwise)
{
    const json_t *value = json_object_get(call->input, name);
    return json_is_number(value) ? (int64_t)json_number_value(value) : otherwise;
}

enum shoal_status service_call_find(struct service_call *call, struct sql_database *database)
{
    bool found;
    TRY(service_row_find(database, service_input_text(call, "TrainingJobName"), &found,
                         &call->row));
    if (!found)
        return service_refuse(call, "ValidationException", "Requested resource not found.");
    return SHOAL_OK;
}

/* ---- the way of a call ---- */

static enum shoal_status reply(struct service_call *call)
{
    if (call->fault.type != NULL)
        return http_reply_error(call->request, job_fault_status(&call->fault), call->fault.type,
                                "%s", call->fault.text);
    if (call->status != SHOAL_OK)
        return base_error(call->status, "%s", call->text);
    return http_json_reply(call->request, call->output);
}

static void outcome_set(struct service_call *call, enum shoal_status status)
{
    call->status = status;
    if (status != SHOAL_OK)
        snprintf(call->text, sizeof(call->text), "%s", base_error_text());
}

static void outcome_clear(struct service_call *call)
{
    json_decref(call->output);
    call->output = NULL;
    call->fault.type = NULL;
}

static enum shoal_status write_apply(struct sql_write *write, struct sql_database *database)
{
    struct service_call *call = (struct service_call *)write;
    outcome_clear(call);
    return call->operation->run(call, database);
}

static void write_end(struct sql_write *write, enum shoal_status status)
{
    struct service_call *call = (struct service_call *)write;
    outcome_set(call, status);
    if (status == SHOAL_OK && call->operation->done != NULL)
        call->operation->done(call);
    http_request_resume(call->request);
}

static enum shoal_status read_now(struct service_call *call)
{
    struct sql_database *reader;
    TRY(sql_reader_take(&call->service->readers, &reader));
    enum shoal_status status = call->operation->run(call, reader);
    sql_reader_give(&call->service->readers, reader);
    return status;
}

static enum shoal_status run(struct service_call *call)
{
    const struct service_operation *operation = call->operation;
    enum shoal_status status = SHOAL_OK;
    if (operation->check != NULL)
        status = operation->check(call);
    if (status == SHOAL_OK && operation->writes) {
        call->write.apply = write_apply;
        call->write.end = write_end;
        http_request_suspend(call->request);
        sql_writer_submit(&call->service->writer, &call->write);
        return SHOAL_OK;
    }
    if (status == SHOAL_OK)
        status = read_now(call);
    outcome_set(call, status);
    return reply(call);
}

/* ---- the handler ---- */

static bool is_member(const struct job_model *model, const struct job_shape *shape,
                      const char *name)
{
    for (int i = 0; i < shape->member_count; i++)
        if (strcmp(model->members[shape->first_member + i].name, name) == 0)
            return true;
    return false;
}

/* What the model does not know has no meaning: it is neither kept nor shown. */
static void strangers_remove(const struct job_operation *operation, json_t *input)
{
    const struct job_model *model = &job_model_sagemaker;
    const char *name;
    json_t *value;
    void *next;
    json_object_foreach_safe(input, next, name, value)
    {
        if (!is_member(model, &model->shapes[operation->input], name))
            json_object_del(input, name);
    }
}

static enum shoal_status complete(void *user, struct http_request *request)
{
    struct service *service = user;
    struct service_call *call;
    const char *name = http_request_operation(request);
    const struct service_operation *operation = service_operation_find(name);
    if (operation == NULL)
        return http_reply_unknown(request);
    TRY(BASE_NEW(&call, "a request"));
    call->service = service;
    call->request = request;
    call->operation = operation;
    http_request_attach(request, call);
    call->input = http_json_body(request);
    if (call->input == NULL)
        return SHOAL_OK; /* it was replied to */
    const struct job_operation *model = job_operation_find(&job_model_sagemaker, name);
    if (!job_validate(service->validator, model, call->input, &call->fault))
        return reply(call);
    strangers_remove(model, call->input);
    return run(call);
}

static enum shoal_status resumed(void *user, struct http_request *request)
{
    (void)user;
    return reply(http_request_attachment(request));
}

static void end(void *user, struct http_request *request)
{
    struct service_call *call = http_request_attachment(request);
    (void)user;
    if (call == NULL)
        return;
    service_job_free(call->job);
    json_decref(call->input);
    json_decref(call->output);
    base_free(call);
}

const struct http_handler *service_handler(void)
{
    static const struct http_handler handler = {
        .complete = complete, .resumed = resumed, .end = end};
    return &handler;
}
