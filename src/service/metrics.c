/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c: a job's definitions go to the room that reads its lines, the last values come back. */
#include "service/metrics.h"

#include "base/log.h"
#include "base/status.h"
#include "logs/logs.h"
#include "service/record.h"

static enum shoal_status begin(struct service *service, const struct service_job *job)
{
    struct sql_database *reader;
    json_t *request = NULL;
    TRY(sql_reader_take(&service->readers, &reader));
    enum shoal_status status = service_request_get(reader, job->id, &request, NULL);
    sql_reader_give(&service->readers, reader);
    TRY(status);
    const json_t *algorithm = json_object_get(request, "AlgorithmSpecification");
    status =
        logs_job_begin(service->logs, job->name, json_object_get(algorithm, "MetricDefinitions"));
    json_decref(request);
    return status == SHOAL_ERR_STATE ? SHOAL_OK : status; /* it has begun already */
}

void service_metrics_begin(struct service *service, const struct service_job *job)
{
    if (begin(service, job) != SHOAL_OK)
        base_log(BASE_LOG_WARN, "metrics of the training job %s: %s", job->name, base_error_text());
}

json_t *service_metrics_end(struct service *service, const struct service_job *job)
{
    json_t *values = NULL;
    service_metrics_begin(service, job); /* an earlier service may have left it to this one */
    enum shoal_status status = logs_job_end(service->logs, job->name);
    if (status == SHOAL_OK)
        status = logs_job_metrics(service->logs, job->name, &values);
    if (status != SHOAL_OK)
        base_log(BASE_LOG_WARN, "metrics of the training job %s: %s", job->name, base_error_text());
    if (json_array_size(values) > 0)
        return values;
    json_decref(values);
    return NULL;
}
