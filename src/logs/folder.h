/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h: the directory of logs: which jobs and streams there are, and their names and paths.
 *
 * Only names of the right form are looked at, so that none leads out of the directory.
 */
#ifndef SHOAL_LOGS_FOLDER_H
#define SHOAL_LOGS_FOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

#define LOGS_JOB_BYTES    64 /* a job's name and its NUL */
#define LOGS_FILE_BYTES   32 /* algo-<i>-<epoch> and its NUL */
#define LOGS_STREAM_BYTES 96 /* <job>/<file> and its NUL */

struct logs_names { /* zeroed to start */
    char (*items)[LOGS_STREAM_BYTES];
    size_t count, capacity;
};
void logs_names_release(struct logs_names *names);
enum shoal_status logs_names_add(struct logs_names *names, const char *name);
void logs_names_sort(struct logs_names *names);

/* Whether it is a job's name, as CreateTrainingJob takes them. */
bool logs_is_job(const char *name);
/* algo-<i>-<epoch seconds>; either number may be NULL. */
bool logs_is_file(const char *name, int *number, int64_t *epoch_s);
/* <job>/algo-<i>-<epoch>. */
bool logs_is_stream(const char *name);
/* <root>/<name>. SHOAL_ERR_LIMIT. */
enum shoal_status logs_path(const char *root, const char *name, char out[PATH_MAX]);

/* Adds the names of jobs' folders that some stream with this prefix ("" for all) could be in, in
 * the order in which their streams are. */
enum shoal_status logs_jobs_list(const char *root, const char *prefix, struct logs_names *out);
/* Adds the streams of a job that have this prefix, in order. None if there is no such job. */
enum shoal_status logs_streams_list(const char *root, const char *job, const char *prefix,
                                    struct logs_names *out);

#endif
