/* SPDX-License-Identifier: Apache-2.0 */
/* log.c: lines wait in memory until they are whole, and are written in one piece per turn. */
#include "job/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"

#define TIME_BYTES 32

enum shoal_status job_log_open(struct job_log *log, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening the log %s", path);
    *log = (struct job_log){.fd = fd, .limit_bytes = JOB_LOG_BYTES_MAX};
    off_t end = lseek(fd, 0, SEEK_END);
    log->written_bytes = end > 0 ? (uint64_t)end : 0;
    return SHOAL_OK;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A clock that is set back doesn't take the lines with it: readers find times by bisection. */
static uint64_t line_ms(struct job_log *log)
{
    uint64_t now = now_ms();
    log->last_ms = now > log->last_ms ? now : log->last_ms;
    return log->last_ms;
}

static enum shoal_status put_line(struct job_log *log, const void *line, size_t bytes)
{
    char time[TIME_BYTES];
    int time_bytes = snprintf(time, sizeof(time), "%013" PRIu64 " ", line_ms(log));
    TRY(launch_bytes_append(&log->ready, time, (size_t)time_bytes));
    TRY(launch_bytes_append(&log->ready, line, bytes));
    return launch_bytes_append(&log->ready, "\n", 1);
}

void job_keep_last(char *kept, size_t *kept_bytes, size_t capacity, const char *text, size_t bytes)
{
    if (bytes > capacity - 1) {
        text += bytes - (capacity - 1);
        bytes = capacity - 1;
    }
    size_t stay = capacity - 1 - bytes;
    if (*kept_bytes > stay) {
        memmove(kept, kept + *kept_bytes - stay, stay);
        *kept_bytes = stay;
    }
    memcpy(kept + *kept_bytes, text, bytes);
    *kept_bytes += bytes;
}

static void remember(struct job_log *log, const char *line, size_t bytes)
{
    job_keep_last(log->tail, &log->tail_bytes, sizeof(log->tail), line, bytes);
    log->tail[log->tail_bytes++] = '\n';
}

static uint64_t count_lines(const unsigned char *data, size_t bytes)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < bytes; i++)
        lines += data[i] == '\n';
    return lines;
}

/* All of it or, with an error, the file as it was. */
static bool append_all(struct job_log *log, const unsigned char *data, size_t bytes)
{
    size_t done = 0;
    if (log->written_bytes + bytes > log->limit_bytes)
        return false;
    while (done < bytes) {
        ssize_t count = write(log->fd, data + done, bytes - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    if (done < bytes) {
        /* What was cut off stays as a line of its own when even this fails. */
        if (ftruncate(log->fd, (off_t)log->written_bytes) != 0)
            log->written_bytes += done;
        return false;
    }
    log->written_bytes += bytes;
    return true;
}

/* What can't be written is dropped, so that a full disk doesn't stop the program. */
static void flush(struct job_log *log)
{
    size_t bytes = launch_bytes_count(&log->ready);
    if (bytes == 0)
        return;
    const unsigned char *data = launch_bytes_front(&log->ready);
    if (log->dropped_lines > 0) {
        char note[128];
        int note_bytes = snprintf(note, sizeof(note),
                                  "%013" PRIu64 " shoal: %" PRIu64 " lines could not be kept\n",
                                  line_ms(log), log->dropped_lines);
        if (append_all(log, (unsigned char *)note, (size_t)note_bytes))
            log->dropped_lines = 0;
    }
    if (log->dropped_lines > 0 || !append_all(log, data, bytes))
        log->dropped_lines += count_lines(data, bytes);
    launch_bytes_take(&log->ready, bytes);
}

/* The length of the piece that is complete at the front, with its newline in *skip; 0 and *skip 0:
 * there is none. */
static size_t next_piece(const unsigned char *data, size_t bytes, size_t *skip)
{
    size_t window = bytes < JOB_LOG_LINE_BYTES_MAX + 1 ? bytes : JOB_LOG_LINE_BYTES_MAX + 1;
    const unsigned char *end = memchr(data, '\n', window);
    *skip = end != NULL;
    if (end != NULL)
        return (size_t)(end - data);
    return window > JOB_LOG_LINE_BYTES_MAX ? JOB_LOG_LINE_BYTES_MAX : 0;
}

static enum shoal_status take_lines(struct job_log *log)
{
    size_t skip = 0, bytes;
    while ((bytes = launch_bytes_count(&log->partial)) > 0) {
        const unsigned char *line = launch_bytes_front(&log->partial);
        size_t piece = next_piece(line, bytes, &skip);
        if (piece + skip == 0)
            break;
        TRY(put_line(log, line, piece));
        remember(log, (const char *)line, piece);
        launch_bytes_take(&log->partial, piece + skip);
    }
    return SHOAL_OK;
}

enum shoal_status job_log_write(struct job_log *log, const void *data, size_t bytes)
{
    TRY(launch_bytes_append(&log->partial, data, bytes));
    TRY(take_lines(log));
    flush(log);
    return SHOAL_OK;
}

void job_log_close(struct job_log *log)
{
    if (log->fd < 0)
        return;
    if (launch_bytes_count(&log->partial) > 0 && job_log_write(log, "\n", 1) != SHOAL_OK)
        log->dropped_lines++;
    close(log->fd);
    log->fd = -1;
    launch_bytes_release(&log->partial);
    launch_bytes_release(&log->ready);
}

void job_log_tail(const struct job_log *log, char *out, size_t capacity)
{
    size_t bytes = log->tail_bytes;
    while (bytes > 0 && log->tail[bytes - 1] == '\n')
        bytes--;
    const char *begin = log->tail;
    if (bytes > capacity - 1) {
        begin += bytes - (capacity - 1);
        bytes = capacity - 1;
        const char *line_end = memchr(begin, '\n', bytes);
        if (line_end != NULL) {
            bytes -= (size_t)(line_end + 1 - begin);
            begin = line_end + 1;
        }
    }
    memcpy(out, begin, bytes);
    out[bytes] = '\0';
}
