/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: a program's output in a file, each line with the time at which it was complete.
 *
 *     1763841600123 epoch 1, loss 0.31
 *
 * Thirteen digits of milliseconds since 1970, a blank, the line as it came. Bytes are not changed;
 * a line over 64 KiB goes in pieces. A full disk or the log's own limit drops whole lines, and a
 * line of the log says how many.
 */
#ifndef SHOAL_JOB_LOG_H
#define SHOAL_JOB_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "launch/bytes.h"

#define JOB_LOG_LINE_BYTES_MAX (64u << 10)
#define JOB_LOG_BYTES_MAX      (UINT64_C(4) << 30)
#define JOB_LOG_TAIL_BYTES     2048

struct job_log {
    int fd;
    uint64_t written_bytes, limit_bytes;
    uint64_t dropped_lines;
    uint64_t last_ms;            /* of the last line: times don't decrease */
    struct launch_bytes partial; /* of a line that has no end yet */
    struct launch_bytes ready;   /* lines with their times, to be written */
    char tail[JOB_LOG_TAIL_BYTES];
    size_t tail_bytes;
};

/* Puts text behind what is kept, of which the last `capacity` - 1 bytes stay. */
void job_keep_last(char *kept, size_t *kept_bytes, size_t capacity, const char *text, size_t bytes);

/* Opens the file for appending; makes it. SHOAL_ERR_SYSTEM. */
enum shoal_status job_log_open(struct job_log *log, const char *path);
/* Takes output and writes the lines that are complete. SHOAL_ERR_MEMORY only. */
enum shoal_status job_log_write(struct job_log *log, const void *data, size_t bytes);
/* Writes a last line that has no end, and closes. */
void job_log_close(struct job_log *log);
/* The last whole lines that came, without their times, at most `capacity` - 1 bytes of them. */
void job_log_tail(const struct job_log *log, char *out, size_t capacity);

#endif
