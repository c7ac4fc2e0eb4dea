/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: warm pools: who may have one, what is kept, and how long. */
#include "service/pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "service/files.h"

#define CACHE_PATH "/opt/ml/sagemaker/warmpoolcache"

/* ---- requests ---- */

int64_t service_pool_period(const json_t *request)
{
    const json_t *resources = json_object_get(request, "ResourceConfig");
    return json_integer_value(json_object_get(resources, "KeepAlivePeriodInSeconds"));
}

static bool is_spot(const json_t *request)
{
    return json_is_true(json_object_get(request, "EnableManagedSpotTraining"));
}

static bool has_groups(const json_t *request)
{
    const json_t *resources = json_object_get(request, "ResourceConfig");
    return json_array_size(json_object_get(resources, "InstanceGroups")) > 0;
}

bool service_pool_check(const json_t *request, struct job_fault *fault)
{
    if (service_pool_period(request) == 0 || (!is_spot(request) && !has_groups(request)))
        return true;
    snprintf(fault->text, sizeof(fault->text),
             "Invalid KeepAlivePeriodInSeconds. It is not supported with %s",
             is_spot(request) ? "EnableManagedSpotTraining" : "InstanceGroups");
    fault->type = "ValidationException";
    return false;
}

/* What is false is as what is not there. */
static json_t *part_of(const json_t *request, const char *parent, const char *name)
{
    const json_t *object = parent != NULL ? json_object_get(request, parent) : request;
    json_t *value = json_object_get(object, name);
    return value == NULL || json_is_false(value) ? json_null() : json_incref(value);
}

enum shoal_status service_pool_key(const json_t *request, char **out)
{
    static const char *const parts[][2] = {{NULL, "RoleArn"},
                                           {"ResourceConfig", "InstanceType"},
                                           {"ResourceConfig", "InstanceCount"},
                                           {"ResourceConfig", "VolumeSizeInGB"},
                                           {"ResourceConfig", "VolumeKmsKeyId"},
                                           {"VpcConfig", "SecurityGroupIds"},
                                           {"VpcConfig", "Subnets"},
                                           {NULL, "EnableInterContainerTrafficEncryption"},
                                           {NULL, "EnableNetworkIsolation"},
                                           {"SessionChainingConfig", "EnableSessionTagChaining"}};
    *out = NULL;
    if (is_spot(request) || has_groups(request))
        return SHOAL_OK;
    json_t *key = json_array();
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        json_array_append_new(key, part_of(request, parts[i][0], parts[i][1]));
    char *text = json_dumps(key, JSON_COMPACT);
    json_decref(key);
    if (text == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's warm pool");
    enum shoal_status status = base_strdup(text, "a job's warm pool", out);
    free(text);
    return status;
}

void service_pool_show(const struct service_row *row, json_t *out)
{
    if (row->pool[0] == '\0')
        return;
    json_t *pool = json_pack("{s:s}", "Status", row->pool);
    if (strcmp(row->pool, SERVICE_POOL_IN_USE) != 0 &&
        strcmp(row->pool, SERVICE_POOL_AVAILABLE) != 0)
        json_object_set_new(pool, "ResourceRetainedBillableTimeInSeconds",
                            json_integer(row->pool_retained_ms / 1000));
    if (row->pool_reused_by[0] != '\0')
        json_object_set_new(pool, "ReusedByJob", json_string(row->pool_reused_by));
    json_object_set_new(out, "WarmPoolStatus", pool);
}

/* ---- changes ---- */

static enum shoal_status take(struct sql_database *database, const struct service_job *job)
{
    sqlite3_stmt *statement = sql_statement(database, SERVICE_SQL_POOL_TAKE);
    sql_bind_int(database, statement, 1, job->pool->id);
    sql_bind_text(database, statement, 2, job->name);
    sql_bind_int(database, statement, 3, service_now_ms());
    return sql_run(database, statement);
}

/* Instances that are taken over are as old as they were, and so are those of another attempt. */
static enum shoal_status since_set(struct sql_database *database, const struct service_job *job)
{
    struct service_row pool = {.pool_since_ms = service_now_ms()};
    if (job->pool == NULL && job->pool_cache != 0)
        return SHOAL_OK;
    if (job->pool != NULL)
        TRY(service_row_get(database, job->pool->id, &pool));
    return service_row_number(database, SERVICE_SQL_POOL_SINCE, job->id, pool.pool_since_ms);
}

enum shoal_status service_pool_begin(struct sql_database *database, struct service_job *job)
{
    struct service_row row;
    TRY(service_row_get(database, job->id, &row));
    TRY(since_set(database, job));
    if (job->pool == NULL && (row.keep_s == 0 || row.pool[0] != '\0'))
        return SHOAL_OK;
    if (job->pool != NULL)
        TRY(take(database, job));
    job->pool_cache = job->pool != NULL ? job->pool->pool_cache : job->id;
    return service_row_number(database, SERVICE_SQL_POOL_USE, job->id, job->pool_cache);
}

/* Whatever its program did; not if the machine may be at fault. */
static bool leaves_instances(const struct service_end *end)
{
    return end->which != SERVICE_FAILED || (strncmp(end->reason, "InternalServerError", 19) != 0 &&
                                            strncmp(end->reason, "CapacityError", 13) != 0);
}

int64_t service_pool_until(const struct service_row *row, int64_t wish_ms)
{
    int64_t last_ms = row->pool_since_ms + SERVICE_POOL_MS_MAX;
    return wish_ms < last_ms ? wish_ms : last_ms;
}

enum shoal_status service_pool_end(struct sql_database *database, const struct service_end *end)
{
    struct service_row row;
    int64_t now_ms = service_now_ms();
    TRY(service_row_get(database, end->job->id, &row));
    if (strcmp(row.pool, SERVICE_POOL_IN_USE) != 0)
        return SHOAL_OK;
    int64_t until_ms = service_pool_until(&row, now_ms + row.keep_s * 1000);
    bool is_kept = until_ms > now_ms && end->job->pool_key != NULL && leaves_instances(end);
    atomic_store(&end->job->pool_until_ms, is_kept ? until_ms : 0);
    return service_row_number(database, is_kept ? SERVICE_SQL_POOL_KEEP : SERVICE_SQL_POOL_END,
                              row.id, is_kept ? until_ms : now_ms);
}

static enum shoal_status expire_change(struct sql_database *database, void *user)
{
    struct service_job *job = user;
    struct service_row row;
    int64_t now_ms = service_now_ms();
    TRY(service_row_get(database, job->id, &row));
    if (!job->is_outbid && row.pool_until_ms > now_ms) {
        atomic_store(&job->pool_until_ms, row.pool_until_ms);
        return SHOAL_OK;
    }
    atomic_store(&job->pool_until_ms, 0);
    return service_row_number(database, SERVICE_SQL_POOL_END, job->id,
                              row.pool_until_ms < now_ms ? row.pool_until_ms : now_ms);
}

enum shoal_status service_pool_expire(struct service *service, struct service_job *job)
{
    TRY(service_commit(service, expire_change, job));
    atomic_store(&job->stop_wanted, false);
    if (atomic_load(&job->pool_until_ms) == 0)
        service_pool_clear(service, job);
    return SHOAL_OK;
}

/* ---- files ---- */

void service_pool_clear(struct service *service, const struct service_job *job)
{
    char path[SERVICE_PATH_BYTES];
    if (job->pool_cache == 0)
        return;
    snprintf(path, sizeof(path), "%s/pools/%" PRId64, service->directory, job->pool_cache);
    if (service_folder_remove(path) != SHOAL_OK)
        base_log(BASE_LOG_WARN, "warm pool of the training job %s: %s", job->name,
                 base_error_text());
}

static enum shoal_status mount_add(json_t *instance, const char *from)
{
    json_t *mounts = json_object_get(instance, "mounts");
    if (mounts == NULL) {
        mounts = json_array();
        json_object_set_new(instance, "mounts", mounts);
    }
    if (json_array_append_new(mounts, json_pack("{s:s, s:s, s:s}", "from", from, "to", CACHE_PATH,
                                                "access", "writable")) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's mounts");
    return SHOAL_OK;
}

enum shoal_status service_pool_mount(const struct service *service, const struct service_job *job,
                                     const struct service_hosts *hosts, json_t *description)
{
    char path[SERVICE_PATH_BYTES + JOB_HOST_BYTES];
    const json_t *instances = json_object_get(description, "instances");
    for (int i = 0; job->pool_cache != 0 && i < hosts->count; i++) {
        snprintf(path, sizeof(path), "%s/pools/%" PRId64 "/%s", service->directory, job->pool_cache,
                 hosts->names[i]);
        TRY(service_folder_make(path));
        TRY(mount_add(json_array_get(instances, (size_t)i), path));
    }
    return SHOAL_OK;
}
