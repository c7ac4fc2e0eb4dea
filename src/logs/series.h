/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series.h: values of a job's metrics in a file, in the order in which they were found: records of
 * 32 bytes, as this machine has them in memory, appended.
 *
 * A record says up to where its stream was looked at, so that the file alone tells where to go on.
 * A mark is a record that says only this. Whatever of the end is not whole (a kill, a power cut) is
 * cut off and found again in the streams.
 */
#ifndef SHOAL_LOGS_SERIES_H
#define SHOAL_LOGS_SERIES_H

#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

#define LOGS_SERIES_MARK UINT16_MAX

struct logs_point {
    int64_t time_ms;
    double value;
    int64_t offset;  /* in the stream, behind the line it is from */
    uint16_t metric; /* the place of its definition, or LOGS_SERIES_MARK */
    uint16_t number; /* the stream: algo-<number>-<epoch_s> */
    uint32_t epoch_s;
};
_Static_assert(sizeof(struct logs_point) == 32, "a format of files");

struct logs_series {
    int fd;
    uint64_t count; /* of records */
};

typedef void logs_point_taker(void *user, const struct logs_point *point);

/* Opens it for appending, makes it, gives every record to `take`, and cuts off what is not whole.
 */
enum shoal_status logs_series_open(const char *path, size_t metric_count, logs_point_taker *take,
                                   void *user, struct logs_series *out);
/* All of them or none. */
enum shoal_status logs_series_append(struct logs_series *series, const struct logs_point *points,
                                     size_t count);
void logs_series_close(struct logs_series *series);
/* Every whole record of a file that somebody may be appending to; none if there is no file. */
enum shoal_status logs_series_read(const char *path, size_t metric_count, logs_point_taker *take,
                                   void *user);

#endif
