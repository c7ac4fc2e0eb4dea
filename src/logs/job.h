/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h: a job whose lines are looked at for metrics. `lock` is held by whoever looks; the list of
 * jobs and `users` belong to struct logs' lock.
 */
#ifndef SHOAL_LOGS_JOB_H
#define SHOAL_LOGS_JOB_H

#include <pthread.h>

#include "logs/definition.h"
#include "logs/request.h"
#include "logs/series.h"

#define LOGS_POINTS_BATCH 1024
/* Beyond, a look at a stream keeps the last value of each metric only. */
#define LOGS_POINTS_MAX (UINT64_C(1) << 20)
/* A stream in which nothing is found for so long gets a mark. */
#define LOGS_MARK_BYTES (4 << 20)

struct logs_scan { /* how far a stream was looked at */
    int number;
    int64_t epoch_s;
    int64_t offset, marked; /* marked: as the series has it */
};

struct logs_value {
    bool is_there;
    double value;
    int64_t time_ms;
};

struct logs_job {
    struct logs_job *next;
    int users; /* threads that have it in hand */
    bool ends;
    char name[LOGS_JOB_BYTES];
    pthread_mutex_t lock;
    struct logs_definitions *definitions;
    struct logs_series series;
    struct logs_scan *scans;
    size_t scan_count, scan_capacity;
    struct logs_value last[LOGS_DEFINITIONS_MAX];
    struct logs_point points[LOGS_POINTS_BATCH]; /* not yet in the series */
    size_t point_count;
};

/* Takes what the series has. The folder of the job is there. */
enum shoal_status logs_job_open(const char *root, const char *name, const json_t *definitions,
                                struct logs_job **out);
/* NULL is allowed. */
void logs_job_free(struct logs_job *job);
/* Looks at lines that came since, at most `bytes` (about) of each stream; *is_done: up to their
 * ends. The caller holds the job's lock. */
enum shoal_status logs_job_scan(struct logs_job *job, const char *root, int64_t bytes,
                                bool *is_done);

/* Paths of the job's two files. */
enum shoal_status logs_definitions_path(const char *root, const char *job, char out[PATH_MAX]);
enum shoal_status logs_series_path(const char *root, const char *job, char out[PATH_MAX]);

#endif
