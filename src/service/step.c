/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.c: from phase to phase. Each function below ends with the commit that makes its work the
 * past; before that, everything can be done again.
 */
#include "service/step.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "job/supervisor.h"
#include "service/collect.h"
#include "service/data.h"
#include "service/files.h"
#include "service/metrics.h"
#include "service/pool.h"
#include "service/prepare.h"

#define RESERVE_BYTES  (4 << 20)
#define RESTART_MS     1000 /* doubled with every attempt */
#define RESTART_MS_MAX 60000
#define ATTACH_MS      2000
#define ATTACH_POLL_MS 5

/* ---- commits ---- */

struct commit {
    struct sql_write write; /* first */
    service_change change;
    void *user;
};

static enum shoal_status commit_apply(struct sql_write *write, struct sql_database *database)
{
    struct commit *commit = (struct commit *)write;
    return commit->change(database, commit->user);
}

enum shoal_status service_commit(struct service *service, service_change change, void *user)
{
    struct commit commit = {.write = {.apply = commit_apply}, .change = change, .user = user};
    enum shoal_status status = sql_writer_run(&service->writer, &commit.write);
    if (status != SHOAL_ERR_SYSTEM || !base_file_reserve_use(service->reserve))
        return status;
    commit = (struct commit){.write = {.apply = commit_apply}, .change = change, .user = user};
    return sql_writer_run(&service->writer, &commit.write);
}

/* A job may fill the disk, and what it has filled goes only when its end has been written. So
 * there is room that nobody takes until a commit about a job fails. */
void service_reserve_take(const struct service *service)
{
    base_file_reserve(service->reserve, RESERVE_BYTES);
}

/* ---- folders ---- */

void service_job_folder(const struct service *service, const struct service_job *job,
                        char out[SERVICE_PATH_BYTES])
{
    snprintf(out, SERVICE_PATH_BYTES, "%s/jobs/%s.%lld.%d", service->directory, job->name,
             (long long)job->id, job->attempt);
}

/* What is left of it is of no use, and no reason to keep the job from its end. */
static void folder_clear(struct service *service, const struct service_job *job)
{
    char path[SERVICE_PATH_BYTES];
    service_job_folder(service, job, path);
    if (service_folder_remove(path) != SHOAL_OK)
        base_log(BASE_LOG_WARN, "training job %s: %s", job->name, base_error_text());
    service_reserve_take(service);
}

/* ---- ends ---- */

static enum shoal_status end_change(struct sql_database *database, void *user)
{
    const struct service_end *end = user;
    int64_t id = end->job->id;
    sqlite3_stmt *set = sql_statement(database, SERVICE_SQL_JOB_END);
    sql_bind_int(database, set, 1, id);
    sql_bind_text(database, set, 2, end->reason[0] != '\0' ? end->reason : NULL);
    sql_bind_int(database, set, 3, end->ended_ms);
    sql_bind_int(database, set, 4, end->trained_ms);
    TRY(sql_run(database, set));
    if (end->metrics != NULL) {
        TRY(service_request_put(database, SERVICE_SQL_REQUEST_METRICS, id, end->metrics));
        TRY(service_metrics_index(database, id, end->metrics));
    }
    TRY(service_pool_end(database, end));
    return service_row_enter(database, id, end->which);
}

enum shoal_status service_step_end(struct service *service, struct service_job *job,
                                   const struct service_end *end)
{
    TRY(service_commit(service, end_change, (void *)end));
    folder_clear(service, job);
    if (atomic_load(&job->pool_until_ms) == 0)
        service_pool_clear(service, job);
    atomic_store(&job->stop_wanted, false); /* it was; what may be wanted next is its pool's end */
    job->stop_sent = false;
    job->phase = SERVICE_ENDED;
    return SHOAL_OK;
}

/* Ends a job that never ran, or can't. */
static enum shoal_status end_early(struct service *service, struct service_job *job,
                                   enum service_secondary which, const char *reason)
{
    struct service_end end = {.job = job, .which = which, .ended_ms = service_now_ms()};
    snprintf(end.reason, sizeof(end.reason), "%s", reason);
    return service_step_end(service, job, &end);
}

/* ---- waiting ---- */

static enum shoal_status pending_change(struct sql_database *database, void *user)
{
    const struct service_job *job = user;
    struct service_row row;
    TRY(service_row_get(database, job->id, &row));
    return row.is_stopping ? SHOAL_OK : service_row_enter(database, job->id, SERVICE_PENDING);
}

static enum shoal_status begin_change(struct sql_database *database, void *user)
{
    struct service_job *job = user;
    TRY(service_pool_begin(database, job));
    TRY(service_row_number(database, SERVICE_SQL_JOB_BEGIN, job->id, (int64_t)job->accelerators));
    return service_row_enter(database, job->id, SERVICE_PREPARING_INSTANCES);
}

static enum shoal_status begin(struct service *service, struct service_job *job)
{
    if (atomic_load(&job->stop_wanted)) {
        enum service_secondary limit = service_job_limit(job, service_now_ms());
        return end_early(service, job, limit != SERVICE_FAILED ? limit : SERVICE_STOPPED, "");
    }
    if (!job->has_need)
        return end_early(service, job, SERVICE_FAILED,
                         "CapacityError: the instances that the job asked for can't be had any "
                         "more: instances.conf has changed");
    if (!job->is_admitted) {
        job->is_pending = true;
        return service_commit(service, pending_change, job);
    }
    int64_t cache = job->pool_cache;
    enum shoal_status status = service_commit(service, begin_change, job);
    if (status != SHOAL_OK) {
        job->pool_cache = cache;
        return status;
    }
    job->pool_is_taken = job->pool != NULL;
    job->phase = SERVICE_PREPARING;
    return SHOAL_OK;
}

/* ---- preparing ---- */

static enum shoal_status started_change(struct sql_database *database, void *user)
{
    const struct service_job *job = user;
    struct service_row row;
    TRY(service_row_get(database, job->id, &row));
    TRY(service_row_phase(database, job->id, SERVICE_RUNNING));
    TRY(service_row_number(database, SERVICE_SQL_JOB_STARTED, job->id, service_now_ms()));
    return row.is_stopping ? SHOAL_OK : service_row_enter(database, job->id, SERVICE_TRAINING);
}

static enum shoal_status prepare(struct service *service, struct service_job *job)
{
    char reason[SERVICE_REASON_BYTES] = "";
    enum shoal_status status = service_prepare(service, job, reason);
    if (status != SHOAL_OK && atomic_load(&job->stop_wanted))
        return begin(service, job); /* it was given up for that */
    if (status != SHOAL_OK && reason[0] != '\0')
        return end_early(service, job, SERVICE_FAILED, reason);
    TRY(status);
    TRY(service_commit(service, started_change, job));
    job->phase = SERVICE_RUNNING;
    return SHOAL_OK;
}

/* ---- running ---- */

/* While it runs, its lines are looked at for metrics and its checkpoints go to their bucket. That
 * they don't is no reason to end it: what is there when it ends goes then. */
static enum shoal_status follow(struct service *service, struct service_job *job)
{
    service_metrics_begin(service, job);
    if (job->data == NULL)
        TRY(service_data_load(service, job, &job->data));
    if (service_data_follow(job->data) != SHOAL_OK)
        base_log(BASE_LOG_WARN, "training job %s: %s", job->name, base_error_text());
    return SHOAL_OK;
}

/* A supervisor that ends closes its socket a little before it is gone. */
static enum shoal_status attach(struct service *service, struct service_job *job)
{
    char folder[SERVICE_PATH_BYTES];
    enum job_presence presence;
    int64_t deadline_ns = base_deadline_ns(ATTACH_MS);
    service_job_folder(service, job, folder);
    do {
        TRY(job_supervisor_find(folder, &presence));
        if (presence != JOB_RUNS) {
            job->phase = SERVICE_COLLECTING;
            return SHOAL_OK;
        }
        if (job_supervisor_connect(folder, &job->supervisor_fd) == SHOAL_OK)
            return follow(service, job);
        base_sleep_ms(ATTACH_POLL_MS);
    } while (base_left_ms(deadline_ns) > 0);
    return base_error_context(SHOAL_ERR_STATE, "it runs and can't be asked");
}

/* ---- again ---- */

static enum shoal_status again_change(struct sql_database *database, void *user)
{
    const struct service_end *end = user;
    TRY(service_row_number(database, SERVICE_SQL_JOB_ATTEMPT, end->job->id, end->trained_ms));
    return service_row_enter(database, end->job->id, end->which);
}

enum shoal_status service_step_again(struct service *service, struct service_job *job,
                                     const struct service_end *end)
{
    int64_t delay_ms = RESTART_MS;
    TRY(service_commit(service, again_change, (void *)end));
    folder_clear(service, job);
    for (int i = 1; i < job->attempt && delay_ms < RESTART_MS_MAX; i++)
        delay_ms *= 2;
    job->attempt++;
    job->stop_sent = false;
    job->is_passed_over = job->is_pending = false;
    job->phase = SERVICE_WAITING;
    job->not_before_ms = service_now_ms() + delay_ms;
    return SHOAL_OK;
}

/* ---- from outside ---- */

static enum shoal_status next(struct service *service, struct service_job *job)
{
    switch (job->phase) {
    case SERVICE_WAITING: return begin(service, job);
    case SERVICE_PREPARING: return prepare(service, job);
    case SERVICE_RUNNING: return attach(service, job);
    case SERVICE_COLLECTING: return service_collect(service, job);
    default: return service_pool_expire(service, job);
    }
}

static bool is_waiting(const struct service_job *job)
{
    return job->phase == SERVICE_ENDED || job->phase == SERVICE_WAITING ||
           (job->phase == SERVICE_RUNNING && job->supervisor_fd >= 0);
}

enum shoal_status service_step(struct service *service, struct service_job *job)
{
    job->not_before_ms = 0;
    do
        TRY(next(service, job));
    while (!is_waiting(job));
    return SHOAL_OK;
}
