/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c: last values, and ListMetrics: out of the jobs' files, whether a job runs or not. */
#include "logs/metrics.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "logs/request.h"

#define PAGE_MAX 500
#define RECENT_S (3 * 3600)

const struct logs_operation logs_metric_operations[] = {
    {"GetMetricData", logs_metrics_data},
    {"GetMetricStatistics", logs_metrics_statistics},
    {"ListMetrics", logs_metrics_list},
    {NULL, NULL},
};

/* ---- last values ---- */

enum shoal_status logs_job_definitions(const struct logs *logs, const char *name, json_t **out)
{
    char path[PATH_MAX];
    json_error_t error;
    *out = NULL;
    if (!logs_is_job(name))
        return SHOAL_OK;
    TRY(logs_definitions_path(logs->root, name, path));
    if (access(path, F_OK) != 0)
        return SHOAL_OK;
    *out = json_load_file(path, 0, &error);
    if (!json_is_array(*out)) {
        json_decref(*out);
        *out = NULL;
        return base_error(SHOAL_ERR_FORMAT, "%s line %d: %s", path, error.line, error.text);
    }
    return SHOAL_OK;
}

static void take_last(void *user, const struct logs_point *point)
{
    struct logs_value *values = user;
    if (point->metric == LOGS_SERIES_MARK)
        return;
    struct logs_value *last = &values[point->metric];
    if (!last->is_there || point->time_ms >= last->time_ms)
        *last = (struct logs_value){true, point->value, point->time_ms};
}

/* Of definitions that share a name, the one with the latest value speaks. */
static bool is_latest(const json_t *definitions, const struct logs_value *values, size_t index)
{
    const char *name = logs_text(json_array_get(definitions, index), "Name", "");
    for (size_t i = 0; i < json_array_size(definitions); i++) {
        bool is_same = strcmp(logs_text(json_array_get(definitions, i), "Name", ""), name) == 0;
        bool is_later = values[i].time_ms > values[index].time_ms ||
                        (values[i].time_ms == values[index].time_ms && i > index);
        if (is_same && values[i].is_there && is_later)
            return false;
    }
    return values[index].is_there;
}

static enum shoal_status values_json(const json_t *definitions, const struct logs_value *values,
                                     json_t *list)
{
    for (size_t i = 0; i < json_array_size(definitions); i++) {
        if (!is_latest(definitions, values, i))
            continue;
        const char *name = logs_text(json_array_get(definitions, i), "Name", "");
        TRY(logs_append(list,
                        json_pack("{s:s, s:f, s:f}", "MetricName", name, "Value", values[i].value,
                                  "Timestamp", (double)values[i].time_ms / 1000)));
    }
    return SHOAL_OK;
}

static enum shoal_status values_find(struct logs *logs, const char *job, const json_t *definitions,
                                     json_t *list)
{
    char path[PATH_MAX];
    struct logs_value values[LOGS_DEFINITIONS_MAX] = {0};
    size_t count = json_array_size(definitions);
    if (count > LOGS_DEFINITIONS_MAX)
        return base_error(SHOAL_ERR_FORMAT, "the job %s has too many metrics", job);
    TRY(logs_series_path(logs->root, job, path));
    TRY(logs_series_read(path, count, take_last, values));
    return values_json(definitions, values, list);
}

enum shoal_status logs_job_metrics(struct logs *logs, const char *job, json_t **out)
{
    json_t *definitions, *list = NULL;
    TRY(logs_job_catch_up(logs, job));
    TRY(logs_job_definitions(logs, job, &definitions));
    enum shoal_status status = logs_reply(json_array(), &list);
    if (status == SHOAL_OK && definitions != NULL)
        status = values_find(logs, job, definitions, list);
    json_decref(definitions);
    if (status != SHOAL_OK)
        json_decref(list);
    else
        *out = list;
    return status;
}

/* ---- ListMetrics ---- */

struct listing {
    struct logs *logs;
    const char *metric; /* NULL: all */
    const char *job;    /* the same */
    const char *after;  /* the last job of the page before; "" to start */
    int64_t since_s;    /* jobs whose last value is older are left out */
    json_t *metrics;
};

/* A filter without a value asks for the dimension's being there, which it always is. */
static bool dimensions_read(struct listing *listing, const json_t *dimensions)
{
    size_t i;
    const json_t *dimension;
    json_array_foreach((json_t *)dimensions, i, dimension)
    {
        if (strcmp(logs_text(dimension, "Name", ""), LOGS_DIMENSION) != 0)
            return false;
        listing->job = logs_text(dimension, "Value", listing->job);
    }
    return true;
}

static bool is_recent(const struct listing *listing, const char *job)
{
    char path[PATH_MAX];
    struct stat facts;
    return logs_series_path(listing->logs->root, job, path) == SHOAL_OK &&
           stat(path, &facts) == 0 && facts.st_size > 0 && facts.st_mtim.tv_sec >= listing->since_s;
}

static enum shoal_status job_list(struct listing *listing, const char *job)
{
    json_t *values;
    const json_t *value;
    size_t i;
    enum shoal_status status = SHOAL_OK;
    if (!is_recent(listing, job))
        return SHOAL_OK;
    TRY(logs_job_metrics(listing->logs, job, &values));
    json_array_foreach(values, i, value)
    {
        const char *name = logs_text(value, "MetricName", "");
        if (status != SHOAL_OK || (listing->metric != NULL && strcmp(name, listing->metric) != 0))
            continue;
        status = logs_append(listing->metrics,
                             json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "Namespace", LOGS_NAMESPACE,
                                       "MetricName", name, "Dimensions", "Name", LOGS_DIMENSION,
                                       "Value", job));
    }
    json_decref(values);
    return status;
}

/* *token: the last job of a page that is full; NULL when all jobs were looked at. */
static enum shoal_status jobs_list(struct listing *listing, const struct logs_names *jobs,
                                   const char **token)
{
    for (size_t i = 0; i < jobs->count; i++) {
        const char *job = jobs->items[i];
        if (strcmp(job, listing->after) <= 0)
            continue;
        TRY(job_list(listing, job));
        if (json_array_size(listing->metrics) > PAGE_MAX - LOGS_DEFINITIONS_MAX &&
            i + 1 < jobs->count) {
            *token = job;
            return SHOAL_OK;
        }
    }
    return SHOAL_OK;
}

static enum shoal_status list(struct listing *listing, json_t **reply)
{
    struct logs_names jobs = {0};
    const char *token = NULL;
    enum shoal_status status = SHOAL_OK;
    if (listing->job != NULL && logs_is_job(listing->job))
        status = logs_names_add(&jobs, listing->job);
    else if (listing->job == NULL)
        status = logs_jobs_list(listing->logs->root, "", &jobs);
    logs_names_sort(&jobs);
    if (status == SHOAL_OK)
        status = jobs_list(listing, &jobs, &token);
    if (status == SHOAL_OK)
        status = logs_reply(
            token != NULL ? json_pack("{s:O, s:s}", "Metrics", listing->metrics, "NextToken", token)
                          : json_pack("{s:O}", "Metrics", listing->metrics),
            reply);
    logs_names_release(&jobs);
    return status;
}

enum shoal_status logs_metrics_list(struct logs *logs, const json_t *request, json_t **reply,
                                    struct job_fault *fault)
{
    bool is_ours = strcmp(logs_text(request, "Namespace", LOGS_NAMESPACE), LOGS_NAMESPACE) == 0;
    struct listing listing = {
        .logs = logs,
        .metric = logs_text(request, "MetricName", NULL),
        .after = logs_text(request, "NextToken", ""),
        .since_s = logs_text(request, "RecentlyActive", NULL) != NULL ? time(NULL) - RECENT_S : 0,
    };
    (void)fault;
    if (!is_ours || !dimensions_read(&listing, json_object_get(request, "Dimensions")))
        return logs_reply(json_pack("{s:[]}", "Metrics"), reply);
    TRY(logs_reply(json_array(), &listing.metrics));
    enum shoal_status status = list(&listing, reply);
    json_decref(listing.metrics);
    return status;
}
