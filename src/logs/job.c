/* SPDX-License-Identifier: Apache-2.0 */
/* job.c: the values in a job's lines, from where the last look ended. */
#include "logs/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "logs/stream.h"

static enum shoal_status file_path(const char *root, const char *job, const char *file,
                                   char out[PATH_MAX])
{
    char name[LOGS_JOB_BYTES + 16];
    snprintf(name, sizeof(name), "%s/%s", job, file);
    return logs_path(root, name, out);
}

enum shoal_status logs_definitions_path(const char *root, const char *job, char out[PATH_MAX])
{
    return file_path(root, job, "metrics.json", out);
}

enum shoal_status logs_series_path(const char *root, const char *job, char out[PATH_MAX])
{
    return file_path(root, job, "metrics.data", out);
}

/* ---- what is known of streams and values ---- */

static enum shoal_status scan_find(struct logs_job *job, int number, int64_t epoch_s,
                                   struct logs_scan **out)
{
    for (size_t i = 0; i < job->scan_count; i++) {
        if (job->scans[i].number == number && job->scans[i].epoch_s == epoch_s) {
            *out = &job->scans[i];
            return SHOAL_OK;
        }
    }
    if (job->scan_count == job->scan_capacity) {
        size_t capacity = job->scan_capacity > 0 ? job->scan_capacity * 2 : 4;
        struct logs_scan *scans;
        TRY(BASE_NEW_ARRAY(&scans, capacity, "streams of a job"));
        if (job->scan_count > 0)
            memcpy(scans, job->scans, job->scan_count * sizeof(*scans));
        base_free(job->scans);
        job->scans = scans;
        job->scan_capacity = capacity;
    }
    *out = &job->scans[job->scan_count++];
    **out = (struct logs_scan){.number = number, .epoch_s = epoch_s};
    return SHOAL_OK;
}

static void last_set(struct logs_job *job, size_t metric, double value, int64_t time_ms)
{
    struct logs_value *last = &job->last[metric];
    if (!last->is_there || time_ms >= last->time_ms)
        *last = (struct logs_value){true, value, time_ms};
}

struct loading {
    struct logs_job *job;
    enum shoal_status status;
};

static void take_point(void *user, const struct logs_point *point)
{
    struct loading *loading = user;
    struct logs_scan *scan;
    enum shoal_status status = scan_find(loading->job, point->number, point->epoch_s, &scan);
    if (status != SHOAL_OK) {
        loading->status = status;
        return;
    }
    if (point->offset > scan->offset)
        scan->offset = scan->marked = point->offset;
    if (point->metric != LOGS_SERIES_MARK)
        last_set(loading->job, point->metric, point->value, point->time_ms);
}

/* ---- making and freeing ---- */

/* Whole or not at all; written once, because a job's definitions don't change. */
static enum shoal_status definitions_write(const char *root, const char *name, const json_t *json)
{
    char path[PATH_MAX], fresh[PATH_MAX + 4];
    TRY(logs_definitions_path(root, name, path));
    if (access(path, F_OK) == 0)
        return SHOAL_OK;
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    if (json_dump_file(json, fresh, JSON_COMPACT) != 0 || rename(fresh, path) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s", path);
    return SHOAL_OK;
}

static enum shoal_status load(struct logs_job *job, const char *root)
{
    char path[PATH_MAX];
    struct loading loading = {.job = job};
    TRY(definitions_write(root, job->name, job->definitions->json));
    TRY(logs_series_path(root, job->name, path));
    TRY(logs_series_open(path, job->definitions->count, take_point, &loading, &job->series));
    return loading.status;
}

enum shoal_status logs_job_open(const char *root, const char *name, const json_t *definitions,
                                struct logs_job **out)
{
    struct logs_job *job;
    TRY(BASE_NEW(&job, "a job's metrics"));
    snprintf(job->name, sizeof(job->name), "%s", name);
    pthread_mutex_init(&job->lock, NULL);
    job->series.fd = -1;
    enum shoal_status status = logs_definitions_create(definitions, &job->definitions);
    if (status == SHOAL_OK)
        status = load(job, root);
    if (status != SHOAL_OK) {
        logs_job_free(job);
        return status;
    }
    *out = job;
    return SHOAL_OK;
}

void logs_job_free(struct logs_job *job)
{
    if (job == NULL)
        return;
    logs_series_close(&job->series);
    logs_definitions_free(job->definitions);
    base_free(job->scans);
    pthread_mutex_destroy(&job->lock);
    base_free(job);
}

/* ---- looking ---- */

/* The last value of each metric; those before it go. */
static void thin_out(struct logs_job *job)
{
    size_t kept = 0;
    for (size_t i = 0; i < job->point_count; i++) {
        bool is_last = true;
        for (size_t j = i + 1; j < job->point_count && is_last; j++)
            is_last = job->points[j].metric != job->points[i].metric;
        if (is_last)
            job->points[kept++] = job->points[i];
    }
    job->point_count = kept;
}

/* What was found goes to the series; then the stream counts as looked at up to `offset`. */
static enum shoal_status keep(struct logs_job *job, struct logs_scan *scan, int64_t offset)
{
    if (job->series.count >= LOGS_POINTS_MAX)
        thin_out(job);
    if (job->point_count > 0) {
        enum shoal_status status = logs_series_append(&job->series, job->points, job->point_count);
        size_t count = job->point_count;
        job->point_count = 0; /* if it failed, they are found again */
        TRY(status);
        scan->marked = job->points[count - 1].offset;
    }
    scan->offset = offset;
    return SHOAL_OK;
}

static enum shoal_status mark(struct logs_job *job, struct logs_scan *scan, int64_t time_ms)
{
    struct logs_point point = {.time_ms = time_ms,
                               .offset = scan->offset,
                               .metric = LOGS_SERIES_MARK,
                               .number = (uint16_t)scan->number,
                               .epoch_s = (uint32_t)scan->epoch_s};
    if (time_ms <= 0 || scan->offset - scan->marked < LOGS_MARK_BYTES)
        return SHOAL_OK;
    TRY(logs_series_append(&job->series, &point, 1));
    scan->marked = scan->offset;
    return SHOAL_OK;
}

struct finding {
    struct logs_job *job;
    const struct logs_scan *scan;
    const struct logs_line *line;
};

static void take_value(void *user, size_t metric, double value)
{
    const struct finding *finding = user;
    struct logs_job *job = finding->job;
    if (finding->line->time_ms <= 0)
        return;
    last_set(job, metric, value, finding->line->time_ms);
    if (job->point_count == LOGS_POINTS_BATCH) /* of one line: keep the latest */
        job->point_count--;
    job->points[job->point_count++] =
        (struct logs_point){.time_ms = finding->line->time_ms,
                            .value = value,
                            .offset = finding->line->next,
                            .metric = (uint16_t)metric,
                            .number = (uint16_t)finding->scan->number,
                            .epoch_s = (uint32_t)finding->scan->epoch_s};
}

static enum shoal_status lines_look(struct logs_job *job, struct logs_scan *scan,
                                    struct logs_reader *reader)
{
    struct logs_line line = {0};
    struct finding finding = {job, scan, &line};
    for (bool has_line = true;;) {
        TRY(logs_reader_next(reader, &line, &has_line));
        if (!has_line)
            break;
        logs_definitions_search(job->definitions, line.text, line.bytes, take_value, &finding);
        if (job->point_count > LOGS_POINTS_BATCH / 2)
            TRY(keep(job, scan, line.next));
    }
    TRY(keep(job, scan, reader->offset));
    return mark(job, scan, line.time_ms);
}

/* Up to the first place that is `bytes` behind, or the end. */
static enum shoal_status stream_look(struct logs_job *job, struct logs_scan *scan,
                                     const struct logs_stream *stream, int64_t bytes, bool *is_done)
{
    struct logs_reader reader;
    int64_t until = stream->end;
    if (scan->offset >= until)
        return SHOAL_OK;
    if (until - scan->offset > bytes) {
        TRY(logs_stream_place(stream, scan->offset + bytes, &until));
        *is_done = *is_done && until == stream->end;
    }
    TRY(logs_reader_init(stream, scan->offset, until, &reader));
    enum shoal_status status = lines_look(job, scan, &reader);
    logs_reader_release(&reader);
    return status;
}

static enum shoal_status look(struct logs_job *job, const char *root, const char *name,
                              int64_t bytes, bool *is_done)
{
    char path[PATH_MAX];
    struct logs_stream stream;
    struct logs_scan *scan;
    int number;
    int64_t epoch_s;
    TRY(logs_path(root, name, path));
    if (!logs_is_file(strchr(name, '/') + 1, &number, &epoch_s) || number > UINT16_MAX ||
        number < 1 || epoch_s > UINT32_MAX)
        return SHOAL_OK;
    TRY(scan_find(job, number, epoch_s, &scan));
    enum shoal_status status = logs_stream_open(path, &stream);
    if (status == SHOAL_ERR_STATE)
        return SHOAL_OK;
    TRY(status);
    status = stream_look(job, scan, &stream, bytes, is_done);
    logs_stream_close(&stream);
    return status;
}

enum shoal_status logs_job_scan(struct logs_job *job, const char *root, int64_t bytes,
                                bool *is_done)
{
    struct logs_names names = {0};
    *is_done = true;
    enum shoal_status status = logs_streams_list(root, job->name, "", &names);
    for (size_t i = 0; status == SHOAL_OK && i < names.count; i++)
        status = look(job, root, names.items[i], bytes, is_done);
    logs_names_release(&names);
    return status;
}
