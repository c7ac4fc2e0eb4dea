/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logs.h: what jobs print, and the numbers in it: log streams and metrics.
 *
 * A stream is a file in the form of job/log.h, which a job's supervisor appends to:
 * DIR/<job>/algo-<i>-<epoch seconds>, the stream `<job>/algo-<i>-<epoch>` of the group
 * /aws/sagemaker/TrainingJobs. Its lines are in the order of their times and never change, so that
 * a place in the file is a token, and a time is found by bisection: there is no index to be kept.
 *
 * Metrics are found in the lines by the job's MetricDefinitions, as they come, and kept beside the
 * streams (DIR/<job>/metrics.json and metrics.data). They follow from the streams, so whoever is
 * killed loses none: what the file has not is looked for again.
 *
 *     logs_job_begin      the job's streams are looked at from now on; also after a restart
 *     logs_job_metrics    the last value of each metric, up to this moment
 *     logs_job_end        everything was looked at, and its files are closed
 *
 * Any thread may call any of these; two jobs don't wait for each other.
 */
#ifndef SHOAL_LOGS_LOGS_H
#define SHOAL_LOGS_LOGS_H

#include <jansson.h>
#include <stdbool.h>

#include "job/validate.h"
#include "shoal.h"

#define LOGS_GROUP           "/aws/sagemaker/TrainingJobs"
#define LOGS_DEFINITIONS_MAX 40

struct logs;

/* Makes the directory if it is not there, and a thread that looks at jobs' lines. */
enum shoal_status logs_open(const char *path, struct logs **out);
/* NULL is allowed. Jobs that were begun are as after a kill: they can be begun again. */
void logs_close(struct logs *logs);

/* ---- streams of a job ----
 */

/* The path of the file that instance `number` (from 1 on) of a job writes, and its folder made.
 * SHOAL_ERR_LIMIT if `bytes` are too few, SHOAL_ERR_SYSTEM. */
enum shoal_status logs_stream_make(struct logs *logs, const char *job, int number,
                                   int64_t started_s, char *path, size_t bytes);
/* Whether a job has printed anything. */
bool logs_job_has_lines(struct logs *logs, const char *job);
/* Removes all streams and metrics of a job that has ended: nobody finds them any more, and its name
 * is free. Quick: what they take of the disk is given back by logs_sweep. SHOAL_ERR_SYSTEM. */
enum shoal_status logs_job_remove(struct logs *logs, const char *job);
/* Gives back what removed jobs took, also those of an earlier service. Blocks for as long as the
 * file system takes. SHOAL_ERR_SYSTEM. */
enum shoal_status logs_sweep(struct logs *logs);

/* ---- metrics of a job ----
 */

/* Whether they can be used; else fills the fault: each a regular expression (PCRE2's, Perl's and
 * Python's), at most 40. `definitions` is the request's MetricDefinitions, or NULL. */
bool logs_definitions_check(const json_t *definitions, struct job_fault *fault);
/* Begins, or goes on after a restart. SHOAL_ERR_STATE if it has begun; without definitions it does
 * nothing. */
enum shoal_status logs_job_begin(struct logs *logs, const char *job, const json_t *definitions);
/* FinalMetricDataList: [{"MetricName", "Value", "Timestamp"}], in the definitions' order, those
 * that have a value; of a job that runs or has ended. The caller releases it. */
enum shoal_status logs_job_metrics(struct logs *logs, const char *job, json_t **out);
/* Looks at what is left, and closes. No error for a job that was not begun. */
enum shoal_status logs_job_end(struct logs *logs, const char *job);

/* ---- operations of the public services ----
 */

struct logs_operation {
    const char *name; /* "GetLogEvents" */
    /* The request has passed its model, and the fault has no type. SHOAL_OK: *reply is the reply's
     * body, for the caller to release, or the fault says what was wrong with the request. */
    enum shoal_status (*run)(struct logs *logs, const json_t *request, json_t **reply,
                             struct job_fault *fault);
};

/* CloudWatch Logs: DescribeLogGroups, DescribeLogStreams, GetLogEvents, FilterLogEvents.
 * CloudWatch: GetMetricData, GetMetricStatistics, ListMetrics. Both end with a NULL name. */
extern const struct logs_operation logs_operations[];
extern const struct logs_operation logs_metric_operations[];

#endif
