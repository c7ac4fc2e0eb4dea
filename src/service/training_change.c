/* SPDX-License-Identifier: Apache-2.0 */
/* training_change.c: StopTrainingJob, UpdateTrainingJob, DeleteTrainingJob. */
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "service/call.h"
#include "service/pool.h"

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
    if (status == SHOAL_OK && !service_pool_check(request, &call->fault))
        status = base_error(SHOAL_ERR_ARGUMENT, "%s", call->fault.type);
    if (status == SHOAL_OK)
        status = service_request_put(database, SERVICE_SQL_REQUEST_SET, call->row.id, request);
    json_decref(request);
    return status;
}

static bool has_pool(const struct service_row *row)
{
    return strcmp(row->pool, SERVICE_POOL_AVAILABLE) == 0;
}

/* What is kept already is kept so long from its beginning on. */
static enum shoal_status period_update(struct service_call *call, struct sql_database *database)
{
    struct service_row *row = &call->row;
    int64_t period_s = service_pool_period(call->input);
    TRY(service_row_number(database, SERVICE_SQL_POOL_PERIOD, row->id, period_s));
    if (!has_pool(row))
        return SHOAL_OK;
    row->pool_until_ms =
        service_pool_until(row, row->pool_until_ms + (period_s - row->keep_s) * 1000);
    return service_row_number(database, SERVICE_SQL_POOL_KEEP, row->id, row->pool_until_ms);
}

static enum shoal_status update_run(struct service_call *call, struct sql_database *database)
{
    bool changes_pool = json_object_get(call->input, "ResourceConfig") != NULL;
    TRY(service_call_find(call, database));
    if ((call->row.phase == SERVICE_ENDED && !(changes_pool && has_pool(&call->row))) ||
        call->row.is_stopping)
        return service_refuse(call, "ValidationException",
                              "The request was rejected because the training job is in status %s.",
                              call->row.status);
    TRY(request_update(call, database));
    if (changes_pool)
        TRY(period_update(call, database));
    TRY(service_row_number(database, SERVICE_SQL_JOB_MODIFIED, call->row.id, service_now_ms()));
    call->output = json_pack("{s:s}", "TrainingJobArn", call->row.arn);
    return SHOAL_OK;
}

static void update_done(struct service_call *call)
{
    if (has_pool(&call->row))
        service_watch_keep(call->service->watch, call->row.id, call->row.pool_until_ms);
}

const struct service_operation service_training_update = {
    .name = "UpdateTrainingJob", .writes = true, .run = update_run, .done = update_done};

/* ---- delete ---- */

static enum shoal_status delete_run(struct service_call *call, struct sql_database *database)
{
    TRY(service_call_find(call, database));
    if (call->row.phase != SERVICE_ENDED)
        return service_refuse(call, "ResourceInUse",
                              "The request was rejected because the training job is in status %s. "
                              "Stop it first.",
                              call->row.status);
    if (has_pool(&call->row))
        return service_refuse(call, "ResourceInUse",
                              "The request was rejected because the training job has a warm pool "
                              "that is Available. End it with UpdateTrainingJob and a "
                              "KeepAlivePeriodInSeconds of 0.");
    return service_row_delete(database, &call->row);
}

static void delete_done(struct service_call *call)
{
    if (logs_job_remove(call->service->logs, call->row.name) != SHOAL_OK)
        base_log(BASE_LOG_WARN, "logs of the training job %s: %s", call->row.name,
                 base_error_text());
    service_watch_clean(call->service->watch);
}

const struct service_operation service_training_delete = {
    .name = "DeleteTrainingJob", .writes = true, .run = delete_run, .done = delete_done};
