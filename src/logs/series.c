/* SPDX-License-Identifier: Apache-2.0 */
/* series.c: a file of records, appended in whole batches. */
#include "logs/series.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"

#define BATCH 512

static bool is_whole(const struct logs_point *point, size_t metric_count)
{
    return point->time_ms > 0 && point->offset > 0 && point->number > 0 &&
           (point->metric < metric_count || point->metric == LOGS_SERIES_MARK);
}

/* Gives records to `take` up to the first that is not whole; *count becomes their number. */
static enum shoal_status read_all(int fd, size_t metric_count, logs_point_taker *take, void *user,
                                  uint64_t *count)
{
    struct logs_point points[BATCH];
    for (*count = 0;;) {
        ssize_t bytes =
            pread(fd, points, sizeof(points), (off_t)(*count * sizeof(struct logs_point)));
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes < 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read values of metrics");
        size_t whole = (size_t)bytes / sizeof(struct logs_point);
        for (size_t i = 0; i < whole; i++) {
            if (!is_whole(&points[i], metric_count))
                return SHOAL_OK;
            take(user, &points[i]);
            ++*count;
        }
        if (whole == 0)
            return SHOAL_OK;
    }
}

enum shoal_status logs_series_open(const char *path, size_t metric_count, logs_point_taker *take,
                                   void *user, struct logs_series *out)
{
    struct logs_series series = {.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    if (series.fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot open %s", path);
    enum shoal_status status = read_all(series.fd, metric_count, take, user, &series.count);
    if (status == SHOAL_OK &&
        ftruncate(series.fd, (off_t)(series.count * sizeof(struct logs_point))) != 0)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot cut %s", path);
    if (status != SHOAL_OK) {
        close(series.fd);
        return status;
    }
    *out = series;
    return SHOAL_OK;
}

enum shoal_status logs_series_append(struct logs_series *series, const struct logs_point *points,
                                     size_t count)
{
    size_t bytes = count * sizeof(*points);
    int64_t end = (int64_t)(series->count * sizeof(*points));
    if (base_file_write(series->fd, points, bytes, end) != bytes)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write values of metrics");
    series->count += count;
    return SHOAL_OK;
}

void logs_series_close(struct logs_series *series)
{
    if (series->fd >= 0)
        close(series->fd);
    series->fd = -1;
}

enum shoal_status logs_series_read(const char *path, size_t metric_count, logs_point_taker *take,
                                   void *user)
{
    uint64_t count;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return SHOAL_OK;
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot open %s", path);
    enum shoal_status status = read_all(fd, metric_count, take, user, &count);
    close(fd);
    return status;
}
