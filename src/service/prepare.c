/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.c: the folder of a job, and what its supervisor reads in it. */
#include "service/prepare.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "job/description.h"
#include "job/outcome.h"
#include "job/start.h"
#include "job/supervisor.h"
#include "logs/logs.h"
#include "service/code.h"
#include "service/data.h"
#include "service/files.h"
#include "service/pool.h"

#define OTHER_MS      2000
#define OTHER_POLL_MS 5

void service_reason(enum shoal_status status, char out[SERVICE_REASON_BYTES])
{
    static const char *const words[] = {"ClientError", "InternalServerError", "AlgorithmError",
                                        "CapacityError"};
    const char *text = base_error_text();
    const char *kind = (int)status < 200 ? "ClientError: " : "InternalServerError: ";
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0)
            kind = "";
    size_t used = (size_t)snprintf(out, SERVICE_REASON_BYTES, "%s", kind);
    /* Texts that are cut short may end within a character, and JSON has none of these. */
    job_clean_text(text, strlen(text), JOB_REASON_CHARS_MAX - used, out + used,
                   SERVICE_REASON_BYTES - used);
}

struct preparation {
    struct service *service;
    struct service_job *job;
    struct service_data *data;
    struct job_software *software;
    json_t *description;
};

/* ---- description ---- */

/* Each host's log, of this start. */
static enum shoal_status instances_json(const struct preparation *all, json_t **out)
{
    int64_t now_s = service_now_ms() / 1000;
    json_t *list = json_array();
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; i < all->data->hosts.count && status == SHOAL_OK; i++) {
        char path[SERVICE_PATH_BYTES];
        status = logs_stream_make(all->service->logs, all->data->row.name, i + 1, now_s, path,
                                  sizeof(path));
        if (status == SHOAL_OK && json_array_append_new(list, json_pack("{s:s}", "log", path)) != 0)
            status = base_error(SHOAL_ERR_MEMORY, "no memory for a job's description");
    }
    if (status == SHOAL_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

static enum shoal_status description_make(const struct preparation *all, json_t **out)
{
    json_t *instances;
    int64_t left_s = all->job->runtime_s - all->data->row.trained_ms / 1000;
    TRY(instances_json(all, &instances));
    *out = json_pack("{s:s, s:o, s:[s], s:I}", "name", all->data->row.name, "instances", instances,
                     "hidden", all->service->directory, "max_runtime_s",
                     (json_int_t)(left_s > 0 ? left_s : 1));
    return *out != NULL ? SHOAL_OK
                        : base_error(SHOAL_ERR_MEMORY, "no memory for a job's description");
}

static enum shoal_status program_describe(const struct preparation *all, json_t *description)
{
    char region[SERVICE_ARN_BYTES] = "us-east-1";
    sscanf(all->data->row.arn, "arn:aws:sagemaker:%63[^:]", region);
    struct job_start_order order = {.name = all->data->row.name,
                                    .arn = all->data->row.arn,
                                    .request = all->data->request,
                                    .software = all->software,
                                    .need = &all->job->need,
                                    .accelerators = all->job->accelerators,
                                    .region = region,
                                    .service = all->service->address,
                                    .directory = all->service->directory,
                                    .key = all->service->key_id,
                                    .secret = all->service->secret};
    return job_start_describe(&order, description);
}

/* ---- all of it ---- */

static enum shoal_status downloading_change(struct sql_database *database, void *user)
{
    const struct service_job *job = user;
    return service_row_enter(database, job->id, SERVICE_DOWNLOADING);
}

static enum shoal_status data_fill(const struct preparation *all)
{
    struct service_data *data = all->data;
    if (json_array_size(json_object_get(data->request, "InputDataConfig")) > 0)
        TRY(service_commit(all->service, downloading_change, all->job));
    data->channel.control = &all->job->preparing;
    TRY(channel_prepare(&data->channel, all->description));
    return service_code_unpack(&data->channel);
}

static enum shoal_status fill(struct preparation *all)
{
    const json_t *algorithm = json_object_get(all->data->request, "AlgorithmSpecification");
    TRY(service_folder_clear(all->data->folder, JOB_SUPERVISOR_LOCK));
    TRY(job_images_prepare(all->service->images,
                           json_string_value(json_object_get(algorithm, "TrainingImage")),
                           &all->job->preparing.is_cancelled, &all->software));
    TRY(description_make(all, &all->description));
    TRY(program_describe(all, all->description));
    TRY(service_pool_mount(all->service, all->job, &all->data->hosts, all->description));
    TRY(data_fill(all));
    return service_json_write(all->data->folder, JOB_DESCRIPTION_FILE, all->description);
}

/* Whether there is nothing to do: a supervisor of this attempt runs, or has left its record. */
static enum shoal_status started_already(const char *folder, bool *out)
{
    enum job_presence presence;
    TRY(job_supervisor_find(folder, &presence));
    *out = presence != JOB_GONE;
    return SHOAL_OK;
}

/* One that was on its way may have been first. One that is refused is there for a moment. */
static enum shoal_status other_await(const char *folder, bool *started)
{
    enum job_presence presence = JOB_RUNS;
    int64_t deadline_ns = base_deadline_ns(OTHER_MS);
    int fd;
    while (presence == JOB_RUNS && base_left_ms(deadline_ns) > 0) {
        if (job_supervisor_connect(folder, &fd) == SHOAL_OK) {
            close(fd);
            break;
        }
        base_sleep_ms(OTHER_POLL_MS);
        TRY(job_supervisor_find(folder, &presence));
    }
    *started = presence != JOB_GONE;
    return SHOAL_OK;
}

/* While no supervisor can come: one may be on its way that a killed service had begun to start. */
static enum shoal_status fill_alone(struct preparation *all, bool *started)
{
    const char *folder = all->data->folder;
    int lock_fd;
    TRY(service_folder_make(folder));
    TRY(started_already(folder, started));
    if (*started)
        return SHOAL_OK;
    enum shoal_status status = job_supervisor_hold(folder, &lock_fd);
    if (status == SHOAL_ERR_STATE) {
        TRY(other_await(folder, started));
        return *started ? SHOAL_OK : SHOAL_ERR_ABORTED; /* again */
    }
    TRY(status);
    status = fill(all);
    close(lock_fd);
    return status;
}

static enum shoal_status start(const struct preparation *all, bool *started)
{
    char text[BASE_ERROR_TEXT_BYTES];
    if (atomic_load(&all->job->stop_wanted))
        return base_error(SHOAL_ERR_ABORTED, "the job is being stopped");
    enum shoal_status status = job_supervisor_start(all->data->folder);
    if (status != SHOAL_ERR_STATE)
        return status;
    snprintf(text, sizeof(text), "%s", base_error_text());
    TRY(other_await(all->data->folder, started));
    return *started ? SHOAL_OK : base_error(SHOAL_ERR_SYSTEM, "%s", text);
}

static void preparation_release(struct preparation *all)
{
    job_software_free(all->software);
    json_decref(all->description);
    service_data_free(all->data, false);
}

enum shoal_status service_prepare(struct service *service, struct service_job *job,
                                  char reason[SERVICE_REASON_BYTES])
{
    struct preparation all = {.service = service, .job = job};
    bool started = false;
    TRY(service_data_load(service, job, &all.data));
    enum shoal_status status = fill_alone(&all, &started);
    if (status == SHOAL_OK && !started)
        status = start(&all, &started);
    if (status != SHOAL_OK && status != SHOAL_ERR_ABORTED)
        service_reason(status, reason);
    preparation_release(&all);
    return status;
}
