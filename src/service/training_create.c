/* SPDX-License-Identifier: Apache-2.0 */
/* training_create.c: CreateTrainingJob: a row that says that the job waits. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "http/identity.h"
#include "service/call.h"
#include "service/pool.h"
#include "service/request.h"
#include "service/tags.h"

#define SERVICE_OPEN_MAX 10000

static void arn_write(const char *region, const char *name, char out[SERVICE_ARN_BYTES])
{
    int used = snprintf(out, SERVICE_ARN_BYTES, "arn:aws:sagemaker:%.32s:%s:training-job/", region,
                        HTTP_ACCOUNT);
    for (size_t i = 0; name[i] != '\0' && used + 1 < SERVICE_ARN_BYTES; i++)
        out[used++] = (char)tolower((unsigned char)name[i]);
    out[used] = '\0';
}

static enum shoal_status check(struct service_call *call)
{
    struct service_row *row = &call->row;
    if (!service_request_check(call->service, call->input, &call->fault))
        return base_error(SHOAL_ERR_ARGUMENT, "%s", call->fault.type);
    TRY(service_tags_check(call, json_object_get(call->input, "Tags"), &row->priority));
    snprintf(row->name, sizeof(row->name), "%s", service_input_text(call, "TrainingJobName"));
    arn_write(http_request_region(call->request), row->name, row->arn);
    row->phase = SERVICE_WAITING;
    row->attempt = 1;
    row->keep_s = service_pool_period(call->input);
    row->created_ms = service_now_ms();
    return SHOAL_OK;
}

static enum shoal_status count_check(struct service_call *call, struct sql_database *database)
{
    bool row;
    sqlite3_stmt *count = sql_statement(database, SERVICE_SQL_JOB_OPEN_COUNT);
    sql_bind_int(database, count, 1, SERVICE_OPEN_MAX);
    TRY(sql_step(database, count, &row));
    bool is_full = row && sqlite3_column_int64(count, 0) == SERVICE_OPEN_MAX;
    sql_reset(count);
    if (is_full)
        return service_refuse(call, "ResourceLimitExceeded",
                              "%d training jobs wait or run, the most there can be",
                              SERVICE_OPEN_MAX);
    return SHOAL_OK;
}

static enum shoal_status row_add(struct service_call *call, struct sql_database *database)
{
    struct service_row *row = &call->row;
    sqlite3_stmt *add = sql_statement(database, SERVICE_SQL_JOB_ADD);
    sql_bind_text(database, add, 1, row->name);
    sql_bind_text(database, add, 2, row->arn);
    sql_bind_int(database, add, 3, row->priority);
    sql_bind_text(database, add, 4, SERVICE_IN_PROGRESS);
    sql_bind_text(database, add, 5, "");
    sql_bind_int(database, add, 6, row->created_ms);
    sql_bind_int(database, add, 7, row->keep_s);
    TRY(sql_run(database, add));
    row->id = sqlite3_last_insert_rowid(database->connection);
    return service_row_enter(database, row->id, SERVICE_STARTING);
}

static enum shoal_status documents_add(struct service_call *call, struct sql_database *database)
{
    json_t *request = json_copy(call->input);
    if (request == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's request");
    json_object_del(request, "Tags");
    enum shoal_status status =
        service_request_put(database, SERVICE_SQL_REQUEST_ADD, call->row.id, request);
    if (status == SHOAL_OK)
        status = service_property_put(database, call->row.id, "", request);
    json_decref(request);
    return status;
}

static enum shoal_status run(struct service_call *call, struct sql_database *database)
{
    bool found;
    struct service_row other;
    TRY(service_row_find(database, call->row.name, &found, &other));
    if (found)
        return service_refuse(call, "ResourceInUse",
                              "Training job names must be unique within an AWS account and region, "
                              "and a training job with this name already exists (%s)",
                              other.arn);
    TRY(count_check(call, database));
    TRY(row_add(call, database));
    TRY(documents_add(call, database));
    TRY(service_tags_put(database, call->row.arn, json_object_get(call->input, "Tags")));
    service_job_free(call->job);
    call->job = NULL;
    TRY(service_job_create(call->service, &call->row, call->input, &call->job));
    call->output = json_pack("{s:s}", "TrainingJobArn", call->row.arn);
    return SHOAL_OK;
}

static void done(struct service_call *call)
{
    service_watch_add(call->service->watch, call->job);
    call->job = NULL;
}

const struct service_operation service_training_create = {
    .name = "CreateTrainingJob", .writes = true, .check = check, .run = run, .done = done};
