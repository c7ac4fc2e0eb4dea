/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statistics.c: GetMetricStatistics and GetMetricData: values of one metric of a job, by periods
 * that begin at multiples of their length.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "logs/metrics.h"

#define STATISTICS_POINTS_MAX 1440
#define DATA_POINTS_MAX       100800
#define DATA_QUERIES_MAX      500

#define INVALID_VALUE       "InvalidParameterValueException"
#define INVALID_COMBINATION "InvalidParameterCombinationException"

struct bucket {
    uint64_t count;
    double sum, minimum, maximum;
};

static const char *const statistic_names[] = {"SampleCount", "Average", "Sum", "Minimum",
                                              "Maximum"};
#define STATISTIC_COUNT (sizeof(statistic_names) / sizeof(statistic_names[0]))

static double statistic_of(const struct bucket *bucket, const char *name)
{
    const double values[STATISTIC_COUNT] = {(double)bucket->count,
                                            bucket->sum / (double)bucket->count, bucket->sum,
                                            bucket->minimum, bucket->maximum};
    for (size_t i = 0; i < STATISTIC_COUNT; i++) {
        if (strcmp(name, statistic_names[i]) == 0)
            return values[i];
    }
    return NAN;
}

static bool is_statistic(const char *name)
{
    const struct bucket one = {.count = 1};
    return !isnan(statistic_of(&one, name));
}

/* Values of one metric of one job from one time to another. */
struct question {
    struct logs *logs;
    const char *metric, *job; /* job NULL: no metric of ours is meant */
    int64_t start_s, end_s, period_s;
    int64_t first_s; /* where the first period begins */
    size_t bucket_count;
    struct bucket *buckets;
    bool is_wanted[LOGS_DEFINITIONS_MAX];
};

static void take_point(void *user, const struct logs_point *point)
{
    struct question *question = user;
    int64_t second = point->time_ms / 1000 - question->first_s;
    if (point->metric == LOGS_SERIES_MARK || !question->is_wanted[point->metric] || second < 0)
        return;
    uint64_t index = (uint64_t)(second / question->period_s);
    if (index >= question->bucket_count)
        return;
    struct bucket *bucket = &question->buckets[index];
    bool is_first = bucket->count++ == 0;
    bucket->sum += point->value;
    bucket->minimum = is_first || point->value < bucket->minimum ? point->value : bucket->minimum;
    bucket->maximum = is_first || point->value > bucket->maximum ? point->value : bucket->maximum;
}

/* The only dimension that metrics here have. */
static const char *job_of(const json_t *metric)
{
    const json_t *dimensions = json_object_get(metric, "Dimensions");
    const json_t *dimension = json_array_get(dimensions, 0);
    bool is_ours = strcmp(logs_text(metric, "Namespace", ""), LOGS_NAMESPACE) == 0 &&
                   json_array_size(dimensions) == 1 &&
                   strcmp(logs_text(dimension, "Name", ""), LOGS_DIMENSION) == 0;
    return is_ours ? logs_text(dimension, "Value", NULL) : NULL;
}

static void times_set(struct question *question)
{
    question->first_s = question->start_s - question->start_s % question->period_s;
    question->bucket_count =
        (size_t)((question->end_s - question->first_s + question->period_s - 1) /
                 question->period_s);
}

/* Fills the buckets; the caller frees them. */
static enum shoal_status ask(struct question *question)
{
    char path[PATH_MAX];
    json_t *definitions = NULL;
    TRY(BASE_NEW_ARRAY(&question->buckets, question->bucket_count, "periods of a metric"));
    if (question->job == NULL || !logs_is_job(question->job))
        return SHOAL_OK;
    TRY(logs_job_catch_up(question->logs, question->job));
    TRY(logs_job_definitions(question->logs, question->job, &definitions));
    size_t count = json_array_size(definitions);
    for (size_t i = 0; i < count && i < LOGS_DEFINITIONS_MAX; i++)
        question->is_wanted[i] =
            strcmp(logs_text(json_array_get(definitions, i), "Name", ""), question->metric) == 0;
    json_decref(definitions);
    TRY(logs_series_path(question->logs->root, question->job, path));
    return logs_series_read(path, count < LOGS_DEFINITIONS_MAX ? count : LOGS_DEFINITIONS_MAX,
                            take_point, question);
}

static double seconds(const json_t *request, const char *name)
{
    return json_number_value(json_object_get(request, name));
}

/* Reads and checks times and the period; false with a fault. */
static bool times_read(const json_t *request, int64_t period_s, size_t points_max,
                       struct question *question, struct job_fault *fault)
{
    const double latest_s = 1e11;
    double start_s = seconds(request, "StartTime"), end_s = seconds(request, "EndTime");
    bool is_short = period_s == 1 || period_s == 5 || period_s == 10 || period_s == 30;
    if (!is_short && (period_s <= 0 || period_s % 60 != 0)) {
        logs_refuse(fault, INVALID_VALUE,
                    "The parameter Period must be 1, 5, 10, 30 or a multiple of 60.");
        return false;
    }
    if (!(start_s >= 0) || !(end_s < latest_s) || start_s >= end_s) {
        logs_refuse(fault, INVALID_VALUE,
                    "The parameter StartTime must be less than the parameter EndTime.");
        return false;
    }
    question->start_s = (int64_t)start_s;
    question->end_s = (int64_t)ceil(end_s);
    question->period_s = period_s;
    times_set(question);
    if (question->bucket_count <= points_max + 1)
        return true;
    logs_refuse(fault, INVALID_COMBINATION,
                "You have requested up to %zu datapoints, which exceeds the limit of %zu. You may "
                "reduce the datapoints requested by increasing Period, or decreasing the time "
                "range.",
                question->bucket_count, points_max);
    return false;
}

/* ---- GetMetricStatistics ---- */

static enum shoal_status datapoint(const struct question *question, size_t index,
                                   const json_t *statistics, json_t *list)
{
    size_t i;
    const json_t *name;
    double start_s = (double)(question->first_s + (int64_t)index * question->period_s);
    json_t *out = json_pack("{s:f, s:s}", "Timestamp", start_s, "Unit", "None");
    json_array_foreach((json_t *)statistics, i, name)
    {
        double value = statistic_of(&question->buckets[index], json_string_value(name));
        json_object_set_new(out, json_string_value(name), json_real(value));
    }
    return logs_append(list, out);
}

static bool statistics_check(const json_t *request, struct job_fault *fault)
{
    size_t i;
    const json_t *name, *statistics = json_object_get(request, "Statistics");
    if (json_object_get(request, "ExtendedStatistics") != NULL) {
        logs_refuse(fault, INVALID_VALUE, "ExtendedStatistics are not supported.");
        return false;
    }
    if (json_array_size(statistics) == 0) {
        logs_refuse(fault, "MissingRequiredParameterException",
                    "The request must contain the parameter Statistics.");
        return false;
    }
    json_array_foreach((json_t *)statistics, i, name)
    {
        if (!json_is_string(name) || !is_statistic(json_string_value(name))) {
            logs_refuse(fault, INVALID_VALUE, "The parameter Statistics has an unknown value.");
            return false;
        }
    }
    return true;
}

static bool is_unit(const json_t *request)
{
    return strcmp(logs_text(request, "Unit", "None"), "None") == 0;
}

static enum shoal_status statistics_reply(const struct question *question, const json_t *request,
                                          json_t **reply)
{
    const json_t *statistics = json_object_get(request, "Statistics");
    json_t *points = json_array();
    enum shoal_status status = SHOAL_OK;
    for (size_t i = 0; status == SHOAL_OK && i < question->bucket_count; i++) {
        if (question->buckets[i].count > 0)
            status = datapoint(question, i, statistics, points);
    }
    if (status != SHOAL_OK) {
        json_decref(points);
        return status;
    }
    return logs_reply(json_pack("{s:s, s:o}", "Label", question->metric, "Datapoints", points),
                      reply);
}

enum shoal_status logs_metrics_statistics(struct logs *logs, const json_t *request, json_t **reply,
                                          struct job_fault *fault)
{
    struct question question = {.logs = logs,
                                .metric = logs_text(request, "MetricName", ""),
                                .job = is_unit(request) ? job_of(request) : NULL};
    int64_t period_s = logs_number(request, "Period", 0);
    if (!times_read(request, period_s, STATISTICS_POINTS_MAX, &question, fault) ||
        !statistics_check(request, fault))
        return SHOAL_OK;
    enum shoal_status status = ask(&question);
    if (status == SHOAL_OK)
        status = statistics_reply(&question, request, reply);
    base_free(question.buckets);
    return status;
}

/* ---- GetMetricData ---- */

static bool query_check(const json_t *query, struct job_fault *fault)
{
    const char *id = logs_text(query, "Id", "");
    const json_t *stat = json_object_get(query, "MetricStat");
    if (json_object_get(query, "Expression") != NULL || stat == NULL) {
        logs_refuse(fault, "ValidationException",
                    "The query '%s' must have a MetricStat: expressions are not supported.", id);
        return false;
    }
    if (!is_statistic(logs_text(stat, "Stat", ""))) {
        logs_refuse(fault, "ValidationException",
                    "The value '%s' for Stat of the query '%s' is not supported.",
                    logs_text(stat, "Stat", ""), id);
        return false;
    }
    return true;
}

static enum shoal_status series_json(const struct question *question, const json_t *query,
                                     bool is_descending, json_t *results)
{
    const char *stat = logs_text(json_object_get(query, "MetricStat"), "Stat", "");
    json_t *times = json_array(), *values = json_array();
    enum shoal_status status = SHOAL_OK;
    for (size_t i = 0; status == SHOAL_OK && i < question->bucket_count; i++) {
        size_t index = is_descending ? question->bucket_count - 1 - i : i;
        const struct bucket *bucket = &question->buckets[index];
        if (bucket->count == 0)
            continue;
        double start_s = (double)(question->first_s + (int64_t)index * question->period_s);
        status = logs_append(times, json_real(start_s));
        if (status == SHOAL_OK)
            status = logs_append(values, json_real(statistic_of(bucket, stat)));
    }
    json_t *result = json_pack("{s:s, s:s, s:o, s:o, s:s}", "Id", logs_text(query, "Id", ""),
                               "Label", logs_text(query, "Label", question->metric), "Timestamps",
                               times, "Values", values, "StatusCode", "Complete");
    if (status != SHOAL_OK) {
        json_decref(result);
        return status;
    }
    return logs_append(results, result);
}

static enum shoal_status query_run(struct logs *logs, const json_t *request, const json_t *query,
                                   json_t *results, struct job_fault *fault)
{
    const json_t *stat = json_object_get(query, "MetricStat");
    const json_t *metric = json_object_get(stat, "Metric");
    bool is_descending =
        strcmp(logs_text(request, "ScanBy", "TimestampDescending"), "TimestampDescending") == 0;
    struct question question = {.logs = logs,
                                .metric = logs_text(metric, "MetricName", ""),
                                .job = is_unit(stat) ? job_of(metric) : NULL};
    if (!query_check(query, fault) ||
        !times_read(request, logs_number(stat, "Period", 0), DATA_POINTS_MAX, &question, fault))
        return SHOAL_OK;
    if (json_is_false(json_object_get(query, "ReturnData")))
        return SHOAL_OK;
    enum shoal_status status = ask(&question);
    if (status == SHOAL_OK)
        status = series_json(&question, query, is_descending, results);
    base_free(question.buckets);
    return status;
}

enum shoal_status logs_metrics_data(struct logs *logs, const json_t *request, json_t **reply,
                                    struct job_fault *fault)
{
    const json_t *queries = json_object_get(request, "MetricDataQueries");
    json_t *results;
    size_t count = json_array_size(queries);
    if (count == 0 || count > DATA_QUERIES_MAX)
        return logs_refuse(fault, "ValidationException",
                           "The collection MetricDataQueries must have a size from 1 to %d.",
                           DATA_QUERIES_MAX);
    TRY(logs_reply(json_array(), &results));
    enum shoal_status status = SHOAL_OK;
    for (size_t i = 0; status == SHOAL_OK && fault->type == NULL && i < count; i++)
        status = query_run(logs, request, json_array_get(queries, i), results, fault);
    if (status == SHOAL_OK && fault->type == NULL)
        status =
            logs_reply(json_pack("{s:O, s:[]}", "MetricDataResults", results, "Messages"), reply);
    json_decref(results);
    return status;
}
