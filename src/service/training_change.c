/* SPDX-License-Identifier: Apache-2.0 */
/* training_change.c: StopTrainingJob, UpdateTrainingJob, DeleteTrainingJob. */
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "service/call.h"

/* ---- stop ---- */

static enum shoal_status stop_run(struct service_call *call, struct sql_database *database)
{
    TRY(service_call_find(call, database));
    if (call->row.is_stopping)
        return SHOAL_OK;
    if (call->row.phase == SERVICE_ENDED)
        return service_refuse(call, "ValidationException",
                              "The request was rejected because the training job is in status %s.",
                              call->row.status);
    return service_row_enter(database, call->row.id, SERVICE_STOPPING_NOW);
}

static void stop_done(struct service_call *call)
{
    service_watch_stop_job(call->service->watch, call->row.id);
}

const struct service_operation service_training_stop = {
    .name = "StopTrainingJob", .writes = true, .run = stop_run, .done = stop_done};

/* ---- update ---- */

/* Members of an object replace those of the same name; others stay. */
static enum shoal_status merge(json_t *request, const char *name, json_t *change)
{
    json_t *old = json_object_get(request, name);
    int failed = json_is_object(old) && json_is_object(change)
                     ? json_object_update(old, change)
                     : json_object_set(request, name, change);
    return failed == 0 ? SHOAL_OK : base_error(SHOAL_ERR_MEMORY, "no memory for a job's request");
}

static enum shoal_status request_update(struct service_call *call, struct sql_database *database)
{
    json_t *request;
    const char *name;
    json_t *change;
    enum shoal_status status = SHOAL_OK;
    TRY(service_request_get(database, call->row.id, &request, NULL));
    json_object_foreach(call->input, name,
                        change) if (status == SHOAL_OK && strcmp(name, "TrainingJobName") != 0)
        status = merge(request, name, change);
    if (status == SHOAL_OK)
        status = service_request_put(database, SERVICE_SQL_REQUEST_SET, call->row.id, request);
    json_decref(request);
    return status;
}

static enum shoal_status update_run(struct service_call *call, struct sql_database *database)
{
    TRY(service_call_find(call, database));
    if (call->row.phase == SERVICE_ENDED || call->row.is_stopping)
        return service_refuse(call, "ValidationException",
                              "The request was rejected because the training job is in status %s.",
                              call->row.status);
    TRY(request_update(call, database));
    TRY(service_row_number(database, SERVICE_SQL_JOB_MODIFIED, call->row.id, service_now_ms()));
    call->output = json_pack("{s:s}", "TrainingJobArn", call->row.arn);
    return SHOAL_OK;
}

const struct service_operation service_training_update = {
    .name = "UpdateTrainingJob", .writes = true, .run = update_run};

/* ---- delete ---- */

static enum shoal_status delete_run(struct service_call *call, struct sql_database *database)
{
    TRY(service_call_find(call, database));
    if (call->row.phase != SERVICE_ENDED)
        return service_refuse(call, "ResourceInUse",
                              "The request was rejected because the training job is in status %s. "
                              "Stop it first.",
                              call->row.status);
    return service_row_delete(database, &call->row);
}

static void delete_done(struct service_call *call)
{
    if (logs_job_remove(call->service->logs, call->row.name) != SHOAL_OK)
        base_log(BASE_LOG_WARN, "logs of the training job %s: %s", call->row.name,
                 base_error_text());
}

const struct service_operation service_training_delete = {
    .name = "DeleteTrainingJob", .writes = true, .run = delete_run, .done = delete_done};
