/* SPDX-License-Identifier: Apache-2.0 */
/* job.c: what the watcher must know of a request: what it takes, and its limits. */
#include "service/job.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/description.h"
#include "service/data.h"
#include "service/pool.h"
#include "service/request.h"

static enum shoal_status pool_fill(struct service_job *job, const struct service_row *row,
                                   const json_t *request)
{
    job->pool_cache = row->pool_cache;
    if (strcmp(row->pool, SERVICE_POOL_AVAILABLE) == 0)
        atomic_init(&job->pool_until_ms, row->pool_until_ms);
    return service_pool_key(request, &job->pool_key);
}

enum shoal_status service_job_create(const struct service *service, const struct service_row *row,
                                     const json_t *request, struct service_job **out)
{
    struct service_job *job;
    json_int_t runtime_s = JOB_RUNTIME_S_DEFAULT, wait_s = 0, pending_s = 0, retries = 0;
    int is_spot = 0;
    json_unpack((json_t *)request, "{s?{s?I, s?I, s?I}, s?b, s?{s?I}}", "StoppingCondition",
                "MaxRuntimeInSeconds", &runtime_s, "MaxWaitTimeInSeconds", &wait_s,
                "MaxPendingTimeInSeconds", &pending_s, "EnableManagedSpotTraining", &is_spot,
                "RetryStrategy", "MaximumRetryAttempts", &retries);
    TRY(BASE_NEW(&job, "a job"));
    *job = (struct service_job){.id = row->id,
                                .priority = row->priority,
                                .phase = row->phase,
                                .attempt = row->attempt,
                                .accelerators = row->accelerators,
                                .is_spot = is_spot != 0,
                                .retries_max = (int)retries,
                                .runtime_s = runtime_s,
                                .supervisor_fd = -1};
    job->has_need = service_request_need(service, request, &job->need) == SHOAL_OK;
    if (!job->has_need)
        job->need = (struct job_need){0};
    snprintf(job->name, sizeof(job->name), "%s", row->name);
    if (job->is_spot && wait_s > 0)
        job->wait_until_ms = row->created_ms + wait_s * 1000;
    if (pending_s > 0)
        job->pending_until_ms = row->created_ms + pending_s * 1000;
    atomic_init(&job->stop_wanted, row->is_stopping);
    enum shoal_status status = pool_fill(job, row, request);
    if (status != SHOAL_OK)
        service_job_free(job);
    else
        *out = job;
    return status;
}

enum service_secondary service_job_limit(const struct service_job *job, int64_t now_ms)
{
    if (job->wait_until_ms > 0 && now_ms >= job->wait_until_ms)
        return SERVICE_MAX_WAIT;
    if (job->phase == SERVICE_WAITING && job->pending_until_ms > 0 &&
        now_ms >= job->pending_until_ms)
        return SERVICE_MAX_PENDING;
    return SERVICE_FAILED;
}

void service_job_stop(struct service_job *job)
{
    atomic_store(&job->stop_wanted, true);
    atomic_store(&job->preparing.is_cancelled, true);
}

void service_job_free(struct service_job *job)
{
    if (job == NULL)
        return;
    service_data_free(job->data, false);
    base_free(job->pool_key);
    base_free(job);
}
