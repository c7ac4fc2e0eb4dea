/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.c: the folder of a job, and what its supervisor reads in it. */
#include "service/prepare.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"
#include "job/description.h"
#include "job/supervisor.h"
#include "service/request.h"

#define SDK_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

void service_reason(enum shoal_status status, char out[SERVICE_REASON_BYTES])
{
    static const char *const words[] = {"ClientError", "InternalServerError", "AlgorithmError",
                                        "CapacityError"};
    const char *text = base_error_text();
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0) {
            snprintf(out, SERVICE_REASON_BYTES, "%s", text);
            return;
        }
    snprintf(out, SERVICE_REASON_BYTES, "%s: %s",
             (int)status < 200 ? "ClientError" : "InternalServerError", text);
}

/* ---- files ---- */

static enum shoal_status folder_make(const char *path)
{
    char part[SERVICE_PATH_BYTES];
    snprintf(part, sizeof(part), "%s", path);
    for (char *at = strchr(part + 1, '/');; at = strchr(at + 1, '/')) {
        if (at != NULL)
            *at = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't make the directory %s", part);
        if (at == NULL)
            return SHOAL_OK;
        *at = '/';
    }
}

static enum shoal_status json_write(const char *folder, const char *name, const json_t *value)
{
    char path[SERVICE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (json_dump_file(value, path, JSON_COMPACT) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't write %s", path);
    return SHOAL_OK;
}

static json_t *resources_json(const struct service_host *hosts, int count, int index)
{
    json_t *names = json_array(), *groups = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(names, json_string(hosts[i].name));
        if (i == 0 || strcmp(hosts[i].group, hosts[i - 1].group) != 0)
            json_array_append_new(groups, json_pack("{s:s, s:s, s:[]}", "instance_group_name",
                                                    hosts[i].group, "instance_type", hosts[i].type,
                                                    "hosts"));
        json_t *group = json_array_get(groups, json_array_size(groups) - 1);
        json_array_append_new(json_object_get(group, "hosts"), json_string(hosts[i].name));
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s}", "current_host", hosts[index].name,
                     "current_instance_type", hosts[index].type, "current_group_name",
                     hosts[index].group, "hosts", names, "instance_groups", groups,
                     "network_interface_name", "eth0");
}

struct preparation {
    struct service *service;
    struct service_job *job;
    const char *folder;
    json_t *request;
    struct service_row row;
    struct service_host hosts[SERVICE_HOSTS_MAX];
    int host_count;
};

static enum shoal_status host_files(const struct preparation *all, int index)
{
    char path[SERVICE_PATH_BYTES];
    json_t *parameters = json_object_get(all->request, "HyperParameters"), *none = json_object();
    snprintf(path, sizeof(path), "%s/%s/ml/input/config", all->folder, all->hosts[index].name);
    TRY(folder_make(path));
    json_t *resources = resources_json(all->hosts, all->host_count, index);
    enum shoal_status status = json_write(path, "resourceconfig.json", resources);
    json_decref(resources);
    if (status == SHOAL_OK)
        status = json_write(path, "hyperparameters.json", parameters != NULL ? parameters : none);
    if (status == SHOAL_OK)
        status = json_write(path, "inputdataconfig.json", none);
    json_decref(none);
    return status;
}

/* ---- description ---- */

static json_t *program_json(const json_t *request)
{
    const json_t *algorithm = json_object_get(request, "AlgorithmSpecification");
    json_t *program = json_copy(json_object_get(algorithm, "ContainerEntrypoint"));
    json_t *arguments = json_object_get(algorithm, "ContainerArguments");
    if (program == NULL)
        program = json_pack("[s]", "train");
    if (arguments != NULL)
        json_array_extend(program, arguments);
    return program;
}

static json_t *environment_json(const struct preparation *all)
{
    json_t *environment = json_pack("{s:s, s:s, s:s}", "PATH", SDK_PATH, "TRAINING_JOB_NAME",
                                    all->row.name, "TRAINING_JOB_ARN", all->row.arn);
    json_object_update(environment, json_object_get(all->request, "Environment"));
    return environment;
}

/* Each host's log, of this start. */
static enum shoal_status instances_json(const struct preparation *all, json_t **out)
{
    char folder[SERVICE_PATH_BYTES];
    long long now_s = service_now_ms() / 1000;
    json_t *list = json_array();
    snprintf(folder, sizeof(folder), "%s/logs/%s", all->service->directory, all->row.name);
    *out = list;
    for (int i = 0; i < all->host_count; i++)
        json_array_append_new(
            list, json_pack("{s:o}", "log",
                            json_sprintf("%s/%s-%lld", folder, all->hosts[i].name, now_s)));
    return folder_make(folder);
}

static enum shoal_status description_write(const struct preparation *all)
{
    json_t *instances = NULL;
    enum shoal_status status = instances_json(all, &instances);
    int64_t left_s = all->job->runtime_s - all->row.trained_ms / 1000;
    json_t *description = json_pack(
        "{s:s, s:o, s:o, s:o, s:[s], s:I}", "name", all->row.name, "program",
        program_json(all->request), "environment", environment_json(all), "instances", instances,
        "hidden", all->service->directory, "max_runtime_s", (json_int_t)(left_s > 0 ? left_s : 1));
    if (status == SHOAL_OK && description == NULL)
        status = base_error(SHOAL_ERR_MEMORY, "no memory for a job's description");
    if (status == SHOAL_OK)
        status = json_write(all->folder, JOB_DESCRIPTION_FILE, description);
    json_decref(description);
    return status;
}

/* ---- all of it ---- */

static enum shoal_status request_read(struct preparation *all)
{
    struct sql_database *reader;
    TRY(sql_reader_take(&all->service->readers, &reader));
    enum shoal_status status = service_row_get(reader, all->job->id, &all->row);
    if (status == SHOAL_OK)
        status = service_request_get(reader, all->job->id, &all->request, NULL);
    sql_reader_give(&all->service->readers, reader);
    return status;
}

static enum shoal_status fill(struct preparation *all)
{
    TRY(service_folder_remove(all->folder));
    TRY(folder_make(all->folder));
    TRY(service_request_hosts(all->request, all->hosts, &all->host_count));
    for (int i = 0; i < all->host_count; i++)
        TRY(host_files(all, i));
    return description_write(all);
}

enum shoal_status service_prepare(struct service *service, struct service_job *job,
                                  const char *folder, char reason[SERVICE_REASON_BYTES])
{
    struct preparation all = {.service = service, .job = job, .folder = folder};
    TRY(request_read(&all));
    enum shoal_status status = fill(&all);
    if (status == SHOAL_OK && !atomic_load(&job->stop_wanted))
        status = job_supervisor_start(folder);
    else if (status == SHOAL_OK)
        status = base_error(SHOAL_ERR_ABORTED, "the job is being stopped");
    if (status != SHOAL_OK)
        service_reason(status, reason);
    json_decref(all.request);
    return status;
}
