/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logs.c: which jobs are looked at, and the thread that does it: each second while there are any.
 * Whoever asks for values has what came since looked at first, so the second is no delay; it only
 * keeps that work short.
 */
#include "logs/logs.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "logs/events.h"
#include "logs/job.h"
#include "logs/metrics.h"

#define GONE_PREFIX     ".gone." /* of folders that are to be removed */
#define LOOK_INTERVAL_S 1
#define LOOK_BYTES      (8 << 20)  /* of a stream, before other jobs have their turn */
#define ASK_BYTES       (64 << 20) /* of a stream, before an answer */

const struct logs_operation logs_operations[] = {
    {"DescribeLogGroups", logs_groups_describe},
    {"DescribeLogStreams", logs_streams_describe},
    {"GetLogEvents", logs_events_get},
    {"FilterLogEvents", logs_events_filter},
    {NULL, NULL},
};

/* ---- jobs in hand ----------------------------------------------------------------------------
 */

/* The caller holds logs->lock. */
static struct logs_job *find(const struct logs *logs, const char *name)
{
    struct logs_job *job = logs->jobs;
    while (job != NULL && strcmp(job->name, name) != 0)
        job = job->next;
    return job;
}

static struct logs_job *take(struct logs *logs, const char *name)
{
    pthread_mutex_lock(&logs->lock);
    struct logs_job *job = find(logs, name);
    if (job != NULL)
        job->users++;
    pthread_mutex_unlock(&logs->lock);
    return job;
}

static void give_back(struct logs *logs, struct logs_job *job)
{
    pthread_mutex_lock(&logs->lock);
    job->users--;
    pthread_cond_broadcast(&logs->change);
    pthread_mutex_unlock(&logs->lock);
}

static enum shoal_status look(struct logs *logs, struct logs_job *job, int64_t bytes, bool *is_done)
{
    pthread_mutex_lock(&job->lock);
    enum shoal_status status = logs_job_scan(job, logs->root, bytes, is_done);
    pthread_mutex_unlock(&job->lock);
    return status;
}

/* ---- the thread
 * ----------------------------------------------------------------------------------
 */

/* The job behind the one of that name, taken; NULL at the end of the list. */
static struct logs_job *take_next(struct logs *logs, const struct logs_job *previous)
{
    pthread_mutex_lock(&logs->lock);
    struct logs_job *job = previous == NULL ? logs->jobs : previous->next;
    if (job != NULL && !logs->stops)
        job->users++;
    else
        job = NULL;
    pthread_mutex_unlock(&logs->lock);
    return job;
}

/* A turn for each job. A job that was taken stays in the list, so its successor is known. */
static void look_at_all(struct logs *logs)
{
    struct logs_job *job = take_next(logs, NULL);
    while (job != NULL) {
        bool is_done;
        if (look(logs, job, LOOK_BYTES, &is_done) != SHOAL_OK)
            base_log(BASE_LOG_WARN, "metrics of the job %s: %s", job->name, base_error_text());
        struct logs_job *next = take_next(logs, job);
        give_back(logs, job);
        job = next;
    }
}

static void wait_a_while(struct logs *logs)
{
    struct timespec until;
    pthread_mutex_lock(&logs->lock);
    while (!logs->stops && logs->jobs == NULL)
        pthread_cond_wait(&logs->change, &logs->lock);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOOK_INTERVAL_S;
    int result = 0;
    while (!logs->stops && result == 0)
        result = pthread_cond_timedwait(&logs->change, &logs->lock, &until);
    pthread_mutex_unlock(&logs->lock);
}

static bool stops(struct logs *logs)
{
    pthread_mutex_lock(&logs->lock);
    bool it_does = logs->stops;
    pthread_mutex_unlock(&logs->lock);
    return it_does;
}

static void *run(void *user)
{
    struct logs *logs = user;
    while (!stops(logs)) {
        look_at_all(logs);
        wait_a_while(logs);
    }
    return NULL;
}

/* ---- opening and closing ---------------------------------------------------------------------
 */

static enum shoal_status prepare(struct logs *logs, const char *path)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make the folder of logs %s", path);
    if (realpath(path, logs->root) == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot find the folder of logs %s", path);
    int error = pthread_create(&logs->thread, NULL, run, logs);
    if (error != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, error, "cannot make a thread");
    logs->has_thread = true;
    return SHOAL_OK;
}

enum shoal_status logs_open(const char *path, struct logs **out)
{
    struct logs *logs;
    pthread_condattr_t clock;
    TRY(BASE_NEW(&logs, "logs"));
    pthread_mutex_init(&logs->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&logs->change, &clock);
    pthread_condattr_destroy(&clock);
    enum shoal_status status = prepare(logs, path);
    if (status != SHOAL_OK) {
        logs_close(logs);
        return status;
    }
    *out = logs;
    return SHOAL_OK;
}

void logs_close(struct logs *logs)
{
    if (logs == NULL)
        return;
    pthread_mutex_lock(&logs->lock);
    logs->stops = true;
    pthread_cond_broadcast(&logs->change);
    pthread_mutex_unlock(&logs->lock);
    if (logs->has_thread)
        pthread_join(logs->thread, NULL);
    while (logs->jobs != NULL) {
        struct logs_job *next = logs->jobs->next;
        logs_job_free(logs->jobs);
        logs->jobs = next;
    }
    pthread_cond_destroy(&logs->change);
    pthread_mutex_destroy(&logs->lock);
    base_free(logs);
}

/* ---- folders of jobs -------------------------------------------------------------------------
 */

static enum shoal_status folder_make(const struct logs *logs, const char *job, char path[PATH_MAX])
{
    if (!logs_is_job(job))
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is no name of a job", job);
    TRY(logs_path(logs->root, job, path));
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make the folder %s", path);
    return SHOAL_OK;
}

enum shoal_status logs_stream_make(struct logs *logs, const char *job, int number,
                                   int64_t started_s, char *path, size_t bytes)
{
    char folder[PATH_MAX];
    TRY(folder_make(logs, job, folder));
    if (snprintf(path, bytes, "%s/algo-%d-%" PRId64, folder, number, started_s) >= (int)bytes)
        return base_error(SHOAL_ERR_LIMIT, "the path of a log below %s is too long", folder);
    return SHOAL_OK;
}

bool logs_job_has_lines(struct logs *logs, const char *job)
{
    struct logs_names names = {0};
    bool has_lines = false;
    if (logs_is_job(job) && logs_streams_list(logs->root, job, "", &names) == SHOAL_OK) {
        for (size_t i = 0; i < names.count && !has_lines; i++) {
            char path[PATH_MAX];
            struct stat facts;
            has_lines = logs_path(logs->root, names.items[i], path) == SHOAL_OK &&
                        stat(path, &facts) == 0 && facts.st_size > 0;
        }
    }
    logs_names_release(&names);
    return has_lines;
}

/* Under a name that is no job's; the job's is free at once. */
enum shoal_status logs_job_remove(struct logs *logs, const char *job)
{
    char path[PATH_MAX], gone[PATH_MAX];
    if (!logs_is_job(job))
        return SHOAL_OK;
    TRY(logs_job_end(logs, job));
    TRY(logs_path(logs->root, job, path));
    TRY(logs_path(logs->root, GONE_PREFIX "XXXXXX", gone));
    if (mkdtemp(gone) == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make a folder in %s", logs->root);
    if (rename(path, gone) == 0)
        return SHOAL_OK;
    int number = errno;
    rmdir(gone);
    if (number == ENOENT)
        return SHOAL_OK;
    return base_error_errno(SHOAL_ERR_SYSTEM, number, "cannot remove %s", path);
}

static enum shoal_status folder_remove(const char *path)
{
    const struct dirent *entry;
    DIR *folder = opendir(path);
    if (folder == NULL && errno == ENOENT)
        return SHOAL_OK;
    if (folder == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot remove %s", path);
    while ((entry = readdir(folder)) != NULL)
        unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    if (rmdir(path) != 0 && errno != ENOENT)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot remove %s", path);
    return SHOAL_OK;
}

enum shoal_status logs_sweep(struct logs *logs)
{
    char path[PATH_MAX];
    enum shoal_status status = SHOAL_OK;
    DIR *root = opendir(logs->root);
    if (root == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot list %s", logs->root);
    const struct dirent *entry;
    while (status == SHOAL_OK && (entry = readdir(root)) != NULL)
        if (strncmp(entry->d_name, GONE_PREFIX, strlen(GONE_PREFIX)) == 0 &&
            (status = logs_path(logs->root, entry->d_name, path)) == SHOAL_OK)
            status = folder_remove(path);
    closedir(root);
    return status;
}

/* ---- metrics
 * -------------------------------------------------------------------------------------
 */

enum shoal_status logs_job_begin(struct logs *logs, const char *name, const json_t *definitions)
{
    char path[PATH_MAX];
    struct logs_job *job;
    if (json_array_size(definitions) == 0)
        return SHOAL_OK;
    TRY(folder_make(logs, name, path));
    pthread_mutex_lock(&logs->lock);
    enum shoal_status status =
        find(logs, name) != NULL
            ? base_error(SHOAL_ERR_STATE, "metrics of the job %s are looked for already", name)
            : logs_job_open(logs->root, name, definitions, &job);
    if (status == SHOAL_OK) {
        job->next = logs->jobs;
        logs->jobs = job;
        pthread_cond_broadcast(&logs->change);
    }
    pthread_mutex_unlock(&logs->lock);
    return status;
}

enum shoal_status logs_job_catch_up(struct logs *logs, const char *name)
{
    bool is_done;
    struct logs_job *job = take(logs, name);
    if (job == NULL)
        return SHOAL_OK;
    enum shoal_status status = look(logs, job, ASK_BYTES, &is_done);
    give_back(logs, job);
    return status;
}

/* Takes it out of the list when nobody else has it in hand. */
static void take_out(struct logs *logs, struct logs_job *job)
{
    pthread_mutex_lock(&logs->lock);
    while (job->users > 1)
        pthread_cond_wait(&logs->change, &logs->lock);
    struct logs_job **link = &logs->jobs;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    pthread_mutex_unlock(&logs->lock);
}

/* For its end, which is one thread's. */
static struct logs_job *take_last(struct logs *logs, const char *name)
{
    pthread_mutex_lock(&logs->lock);
    struct logs_job *job = find(logs, name);
    if (job != NULL && !job->ends) {
        job->ends = true;
        job->users++;
    } else {
        job = NULL;
    }
    pthread_mutex_unlock(&logs->lock);
    return job;
}

enum shoal_status logs_job_end(struct logs *logs, const char *name)
{
    struct logs_job *job = take_last(logs, name);
    enum shoal_status status = SHOAL_OK;
    if (job == NULL)
        return SHOAL_OK;
    for (bool is_done = false; status == SHOAL_OK && !is_done;)
        status = look(logs, job, LOOK_BYTES, &is_done);
    take_out(logs, job);
    logs_job_free(job);
    return status;
}
