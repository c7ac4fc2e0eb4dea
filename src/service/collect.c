/* SPDX-License-Identifier: Apache-2.0 */
/* collect.c: how a job ended, for its user. */
#include "service/collect.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "job/outcome.h"
#include "job/supervisor.h"
#include "service/data.h"
#include "service/metrics.h"
#include "service/prepare.h"

#define INTERNAL      "InternalServerError"
#define COLLECT_TRIES 3
#define LOST_TEXT                                                                                \
    "InternalServerError: We encountered an internal error. Please try again. (Nothing is left " \
    "of "                                                                                        \
    "the processes of the job: they were killed, or the machine went down.)"

static enum shoal_status record_read(const char *folder, struct job_record *out)
{
    enum job_presence presence;
    TRY(job_supervisor_find(folder, &presence));
    enum shoal_status status = SHOAL_ERR_FORMAT;
    if (presence == JOB_ENDED)
        status = job_record_read(folder, out);
    if (status != SHOAL_ERR_FORMAT) /* what can't be understood won't be tomorrow */
        return status;
    *out = (struct job_record){.outcome = JOB_INTERRUPTED};
    snprintf(out->reason, sizeof(out->reason), "%s", LOST_TEXT);
    return SHOAL_OK;
}

/* ---- how it ended ---- */

/* Stopped by its user, or by a limit of the service's. */
static enum service_secondary stopped_as(const struct service_job *job, int64_t ended_ms)
{
    enum service_secondary limit = service_job_limit(job, ended_ms);
    return limit != SERVICE_FAILED ? limit : SERVICE_STOPPED;
}

static bool is_lost(const struct job_record *record)
{
    return record->outcome == JOB_INTERRUPTED || record->outcome == JOB_NOT_STARTED;
}

static void lost_say(const char *reason, char out[SERVICE_REASON_BYTES])
{
    size_t used = (size_t)snprintf(out, SERVICE_REASON_BYTES, INTERNAL ": ");
    job_clean_text(reason, strlen(reason), JOB_REASON_CHARS_MAX - used, out + used,
                   SERVICE_REASON_BYTES - used);
}

static void end_decide(const struct service_job *job, const struct job_record *record,
                       struct service_end *end)
{
    end->ended_ms = record->ended_ms > 0 ? record->ended_ms : service_now_ms();
    if (record->started_ms > 0)
        end->trained_ms = end->ended_ms - record->started_ms;
    switch (record->outcome) {
    case JOB_COMPLETED: end->which = SERVICE_COMPLETED; return;
    case JOB_STOPPED: end->which = stopped_as(job, end->ended_ms); return;
    case JOB_OUT_OF_TIME: end->which = SERVICE_MAX_RUNTIME; return;
    default: break;
    }
    end->which = SERVICE_FAILED;
    if (is_lost(record) && atomic_load(&job->stop_wanted))
        end->which = stopped_as(job, end->ended_ms);
    else if (is_lost(record) && strncmp(record->reason, INTERNAL, strlen(INTERNAL)) != 0)
        lost_say(record->reason, end->reason);
    else
        snprintf(end->reason, sizeof(end->reason), "%s", record->reason);
}

/* By the queue: nobody else has asked for it. */
static bool is_interrupted(const struct service_job *job, const struct job_record *record,
                           const struct service_end *end)
{
    return record->outcome == JOB_STOPPED && end->which == SERVICE_STOPPED && job->is_spot &&
           !atomic_load(&job->stop_wanted);
}

/* Spot jobs are interrupted and go on, any number of times; others have their retry strategy. */
static bool is_tried_again(const struct service_job *job, const struct job_record *record,
                           struct service_end *end)
{
    if (is_interrupted(job, record, end)) {
        end->which = SERVICE_INTERRUPTED;
        return true;
    }
    if (!is_lost(record) || end->which != SERVICE_FAILED)
        return false;
    if (record->outcome == JOB_INTERRUPTED && job->is_spot)
        end->which = SERVICE_INTERRUPTED;
    else if (job->attempt <= job->retries_max)
        end->which = SERVICE_RESTARTING;
    return end->which != SERVICE_FAILED;
}

/* ---- what it has made ---- */

static enum shoal_status uploading_change(struct sql_database *database, void *user)
{
    const struct service_job *job = user;
    TRY(service_row_phase(database, job->id, SERVICE_COLLECTING));
    return service_row_enter(database, job->id, SERVICE_UPLOADING);
}

/* What keeps the artifacts from their bucket may pass: it is tried again some times. */
static enum shoal_status artifacts_collect(struct service *service, struct service_job *job,
                                           struct service_end *end)
{
    struct service_data *data;
    TRY(service_data_load(service, job, &data));
    data->channel.control = &job->collecting;
    enum shoal_status status = channel_collect(&data->channel);
    service_data_free(data, true);
    if (status == SHOAL_OK || status == SHOAL_ERR_ABORTED)
        return status;
    if (status == SHOAL_ERR_SYSTEM && ++job->collect_failures < COLLECT_TRIES)
        return status;
    if (end->which != SERVICE_FAILED)
        service_reason(status, end->reason);
    end->which = SERVICE_FAILED;
    return SHOAL_OK;
}

/* All checkpoints go to their bucket before the folder goes. */
static enum shoal_status checkpoints_end(struct service *service, struct service_job *job)
{
    if (job->data == NULL) { /* the service was not there when the job ended */
        TRY(service_data_load(service, job, &job->data));
        if (service_data_follow(job->data) != SHOAL_OK)
            base_log(BASE_LOG_WARN, "checkpoints of the training job %s: %s", job->name,
                     base_error_text());
    }
    service_data_free(job->data, true);
    job->data = NULL;
    return SHOAL_OK;
}

enum shoal_status service_collect(struct service *service, struct service_job *job)
{
    char folder[SERVICE_PATH_BYTES];
    struct job_record record;
    struct service_end end = {.job = job};
    TRY(checkpoints_end(service, job));
    service_job_folder(service, job, folder);
    TRY(record_read(folder, &record));
    end_decide(job, &record, &end);
    if (is_tried_again(job, &record, &end))
        return service_step_again(service, job, &end);
    TRY(service_commit(service, uploading_change, job));
    TRY(artifacts_collect(service, job, &end));
    end.metrics = service_metrics_end(service, job);
    enum shoal_status status = service_step_end(service, job, &end);
    json_decref(end.metrics);
    return status;
}
