/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h: a log file, which may be gigabytes long and still grow: places found in it by time and
 * by counting lines, and lines read from a place on.
 *
 * A place is the offset of a line's first byte, or the end. Times don't decrease, so a time is
 * found by bisection, in some thirty reads of 4 KiB. What has no newline yet is not there.
 */
#ifndef SHOAL_LOGS_STREAM_H
#define SHOAL_LOGS_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "logs/line.h"
#include "shoal.h"

/* What the public service counts for a line beside its text. */
#define LOGS_EVENT_EXTRA_BYTES 26

struct logs_stream {
    int fd;
    int64_t end; /* behind the last newline there was at the opening */
};

/* SHOAL_ERR_STATE if there is no such file. */
enum shoal_status logs_stream_open(const char *path, struct logs_stream *out);
void logs_stream_close(struct logs_stream *stream);
/* The place of the first line whose time is not before this; the end if there is none. */
enum shoal_status logs_stream_find(const struct logs_stream *stream, int64_t time_ms,
                                   int64_t *place);

/* The first place at or behind an offset. */
enum shoal_status logs_stream_place(const struct logs_stream *stream, int64_t from, int64_t *place);

struct logs_budget {
    size_t lines, bytes; /* bytes: of texts and LOGS_EVENT_EXTRA_BYTES for each */
};
/* The place from which lines up to `until` (a place) fit the budget, at least one, and not before
 * `floor`. */
enum shoal_status logs_stream_back(const struct logs_stream *stream, int64_t until, int64_t floor,
                                   struct logs_budget budget, int64_t *place);
/* Times of the first and the last line; false in *has_lines when there is none. */
enum shoal_status logs_stream_times(const struct logs_stream *stream, int64_t *first_ms,
                                    int64_t *last_ms, bool *has_lines);

/* ---- lines from a place on ----
 */

struct logs_reader {
    int fd;
    int64_t offset;  /* of the first byte that was not taken yet */
    int64_t end;     /* a place: not read beyond */
    int64_t time_ms; /* of the last line, which lines without one get */
    char *buffer;
    size_t begin, count; /* what the buffer holds that was not taken yet */
};

/* From one place to another. Borrows the stream's descriptor. Lines longer than those that
 * supervisors write come in pieces. */
enum shoal_status logs_reader_init(const struct logs_stream *stream, int64_t from, int64_t until,
                                   struct logs_reader *out);
/* The next line, valid until the next call; false in *has_line at the end. */
enum shoal_status logs_reader_next(struct logs_reader *reader, struct logs_line *line,
                                   bool *has_line);
/* Safe on a zeroed one. */
void logs_reader_release(struct logs_reader *reader);

#endif
