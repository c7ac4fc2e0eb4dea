/* SPDX-License-Identifier: Apache-2.0 */
/* training_describe.c: DescribeTrainingJob: what the job was created with, and how it goes. */
#include "service/training_describe.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "service/call.h"
#include "service/pool.h"

static void set_time(json_t *object, const char *name, int64_t ms)
{
    if (ms > 0)
        json_object_set_new(object, name, json_real((double)ms / 1000));
}

static void set_text(json_t *object, const char *name, const char *text)
{
    json_object_set_new(object, name, json_string(text));
}

json_t *service_training_summary(const struct service_row *row)
{
    json_t *out = json_object();
    set_text(out, "TrainingJobName", row->name);
    set_text(out, "TrainingJobArn", row->arn);
    set_time(out, "CreationTime", row->created_ms);
    set_time(out, "TrainingEndTime", row->ended_ms);
    set_time(out, "LastModifiedTime", row->modified_ms);
    set_text(out, "TrainingJobStatus", row->status);
    set_text(out, "SecondaryStatus", row->secondary);
    service_pool_show(row, out);
    return out;
}

/* Where model.tar.gz is, or will be. */
static void set_artifacts(json_t *out, const char *name)
{
    json_t *output = json_object_get(out, "OutputDataConfig");
    const char *path = json_string_value(json_object_get(output, "S3OutputPath"));
    const char *kind = json_string_value(json_object_get(output, "CompressionType"));
    bool is_folder = kind != NULL && strcmp(kind, "NONE") == 0;
    size_t bytes = path != NULL ? strlen(path) : 0;
    while (bytes > 0 && path[bytes - 1] == '/')
        bytes--;
    json_object_set_new(out, "ModelArtifacts",
                        json_pack("{s:o}", "S3ModelArtifacts",
                                  json_sprintf("%.*s/%s/output/%s", (int)bytes, path, name,
                                               is_folder ? "model/" : "model.tar.gz")));
    if (json_object_get(output, "KmsKeyId") == NULL)
        set_text(output, "KmsKeyId", ""); /* attach() of the SDK wants it */
}

static void set_times(json_t *out, const struct service_row *row)
{
    int64_t trained_s = row->trained_ms / 1000;
    set_time(out, "TrainingStartTime", row->started_ms);
    if (row->phase == SERVICE_ENDED && row->started_ms > 0) {
        json_object_set_new(out, "TrainingTimeInSeconds", json_integer(trained_s));
        json_object_set_new(out, "BillableTimeInSeconds", json_integer(trained_s));
    }
}

static void set_defaults(json_t *out)
{
    static const char *const flags[] = {"EnableNetworkIsolation",
                                        "EnableInterContainerTrafficEncryption",
                                        "EnableManagedSpotTraining"};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (json_object_get(out, flags[i]) == NULL)
            json_object_set_new(out, flags[i], json_false());
}

enum shoal_status service_training_json(struct sql_database *database,
                                        const struct service_row *row, json_t **out)
{
    json_t *all = NULL, *metrics = NULL, *transitions = NULL;
    TRY(service_request_get(database, row->id, &all, &metrics));
    enum shoal_status status = service_transitions_get(database, row->id, &transitions);
    json_t *summary = service_training_summary(row);
    if (status == SHOAL_OK && (summary == NULL || json_object_update(all, summary) != 0))
        status = base_error(SHOAL_ERR_MEMORY, "no memory for a description");
    json_decref(summary);
    if (status != SHOAL_OK) {
        json_decref(all);
        json_decref(metrics);
        json_decref(transitions);
        return status;
    }
    set_artifacts(all, row->name);
    set_times(all, row);
    set_defaults(all);
    if (row->reason[0] != '\0')
        set_text(all, "FailureReason", row->reason);
    json_object_set_new(all, "SecondaryStatusTransitions", transitions);
    if (metrics != NULL)
        json_object_set_new(all, "FinalMetricDataList", metrics);
    *out = all;
    return SHOAL_OK;
}

/* Of a job that runs, the values up to now. */
static enum shoal_status live_metrics_set(struct service_call *call)
{
    json_t *metrics = NULL;
    if (call->row.phase != SERVICE_RUNNING && call->row.phase != SERVICE_COLLECTING)
        return SHOAL_OK;
    TRY(logs_job_metrics(call->service->logs, call->row.name, &metrics));
    if (json_array_size(metrics) > 0)
        json_object_set(call->output, "FinalMetricDataList", metrics);
    json_decref(metrics);
    return SHOAL_OK;
}

static enum shoal_status run(struct service_call *call, struct sql_database *database)
{
    TRY(service_call_find(call, database));
    TRY(service_training_json(database, &call->row, &call->output));
    return live_metrics_set(call);
}

const struct service_operation service_training_describe = {.name = "DescribeTrainingJob",
                                                            .run = run};
