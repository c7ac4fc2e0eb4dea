/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c: reads of a few KiB at computed offsets; nothing is kept between calls. */
#include "logs/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/log.h"

#define PROBE_BYTES  4096
#define WINDOW_BYTES (64 << 10)
#define BUFFER_BYTES (JOB_LOG_LINE_BYTES_MAX + WINDOW_BYTES / 2)

/* All bytes of [offset, offset + bytes), fewer at the file's end. */
static enum shoal_status read_at(int fd, int64_t offset, char *out, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        ssize_t count = pread(fd, out + *got, bytes - *got, (off_t)offset + (off_t)*got);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read a log");
        if (count == 0)
            break;
        *got += (size_t)count;
    }
    return SHOAL_OK;
}

static int64_t smaller(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

/* ---- opening ---- */

/* The first byte behind the last newline before `until`, and `floor` if there is none. */
static enum shoal_status line_before(int fd, int64_t until, int64_t floor, int64_t *place)
{
    char window[PROBE_BYTES];
    while (until > floor) {
        size_t want = (size_t)smaller(until - floor, sizeof(window)), got;
        TRY(read_at(fd, until - (int64_t)want, window, want, &got));
        const char *newline = memrchr(window, '\n', got);
        if (newline != NULL) {
            *place = until - (int64_t)want + (newline - window) + 1;
            return SHOAL_OK;
        }
        until -= (int64_t)want;
    }
    *place = floor;
    return SHOAL_OK;
}

enum shoal_status logs_stream_open(const char *path, struct logs_stream *out)
{
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return base_error_errno(errno == ENOENT || errno == ENOTDIR ? SHOAL_ERR_STATE
                                                                    : SHOAL_ERR_SYSTEM,
                                errno, "cannot open the log %s", path);
    struct logs_stream stream = {.fd = fd};
    enum shoal_status status =
        fstat(fd, &facts) == 0
            ? line_before(fd, facts.st_size, 0, &stream.end)
            : base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot look at the log %s", path);
    if (status != SHOAL_OK) {
        close(fd);
        return status;
    }
    *out = stream;
    return SHOAL_OK;
}

void logs_stream_close(struct logs_stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}

/* ---- places ---- */

enum shoal_status logs_stream_place(const struct logs_stream *stream, int64_t from, int64_t *place)
{
    char window[PROBE_BYTES];
    if (from == 0) {
        *place = 0;
        return SHOAL_OK;
    }
    for (int64_t at = from - 1; at < stream->end; at += (int64_t)sizeof(window)) {
        size_t got;
        TRY(read_at(stream->fd, at, window, (size_t)smaller(stream->end - at, sizeof(window)),
                    &got));
        const char *newline = memchr(window, '\n', got);
        if (newline != NULL) {
            *place = at + (newline - window) + 1;
            return SHOAL_OK;
        }
    }
    *place = stream->end;
    return SHOAL_OK;
}

/* The first line at or behind `from` that has a time; false in *found if there is none. */
static enum shoal_status dated_from(const struct logs_stream *stream, int64_t from,
                                    struct logs_line *line, bool *found)
{
    char head[LOGS_TIME_BYTES];
    *found = false;
    for (int64_t place = from; !*found; from = place + 1) {
        size_t got;
        TRY(logs_stream_place(stream, from, &place));
        if (place >= stream->end)
            return SHOAL_OK;
        TRY(read_at(stream->fd, place, head, sizeof(head), &got));
        *found = logs_line_read(head, got, line);
        line->offset = place;
    }
    return SHOAL_OK;
}

enum shoal_status logs_stream_find(const struct logs_stream *stream, int64_t time_ms,
                                   int64_t *place)
{
    /* The first dated line at or behind `high` is not before the time; that behind each offset
     * under `low` is. */
    int64_t low = 0, high = stream->end;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        struct logs_line line;
        bool found;
        TRY(dated_from(stream, middle, &line, &found));
        if (!found || line.time_ms >= time_ms)
            high = middle;
        else
            low = line.offset + 1;
    }
    return logs_stream_place(stream, low, place);
}

/* What an event costs of a budget, by the line's bytes in the file. */
static size_t cost(int64_t line_bytes)
{
    int64_t text = line_bytes - LOGS_TIME_BYTES - 1;
    return (size_t)(text > 0 ? text : 0) + LOGS_EVENT_EXTRA_BYTES;
}

enum shoal_status logs_stream_back(const struct logs_stream *stream, int64_t until, int64_t floor,
                                   struct logs_budget budget, int64_t *place)
{
    int64_t at = until;
    size_t lines = 0, bytes = 0;
    while (at > floor && lines < budget.lines) {
        int64_t start;
        TRY(line_before(stream->fd, at - 1, floor, &start));
        bytes += cost(at - start);
        if (bytes > budget.bytes && lines > 0)
            break;
        at = start;
        lines++;
    }
    *place = at;
    return SHOAL_OK;
}

enum shoal_status logs_stream_times(const struct logs_stream *stream, int64_t *first_ms,
                                    int64_t *last_ms, bool *has_lines)
{
    struct logs_line line = {0};
    TRY(dated_from(stream, 0, &line, has_lines));
    if (!*has_lines)
        return SHOAL_OK;
    *first_ms = line.time_ms;
    int64_t place = stream->end;
    for (bool found = false; !found;) {
        char head[LOGS_TIME_BYTES];
        size_t got;
        TRY(line_before(stream->fd, place - 1, 0, &place));
        TRY(read_at(stream->fd, place, head, sizeof(head), &got));
        found = logs_line_read(head, got, &line);
    }
    *last_ms = line.time_ms;
    return SHOAL_OK;
}

/* ---- lines ---- */

enum shoal_status logs_reader_init(const struct logs_stream *stream, int64_t from, int64_t until,
                                   struct logs_reader *out)
{
    struct logs_reader reader = {.fd = stream->fd, .offset = from, .end = until};
    TRY(base_alloc(BUFFER_BYTES, "a log's lines", (void **)&reader.buffer));
    *out = reader;
    return SHOAL_OK;
}

static enum shoal_status fill(struct logs_reader *reader)
{
    size_t got;
    if (reader->count > 0)
        memmove(reader->buffer, reader->buffer + reader->begin, reader->count);
    reader->begin = 0;
    int64_t at = reader->offset + (int64_t)reader->count;
    size_t want = (size_t)smaller(reader->end - at, (int64_t)(BUFFER_BYTES - reader->count));
    TRY(read_at(reader->fd, at, reader->buffer + reader->count, want, &got));
    if (got < want) /* the file was cut */
        reader->end = at + (int64_t)got;
    reader->count += got;
    return SHOAL_OK;
}

/* For a line without a time that has none before it here: that of the next one. */
static enum shoal_status time_of_next(const struct logs_reader *reader, int64_t *time_ms)
{
    struct logs_stream rest = {.fd = reader->fd, .end = reader->end};
    struct logs_line line = {0};
    bool found;
    TRY(dated_from(&rest, reader->offset + 1, &line, &found));
    *time_ms = line.time_ms;
    return SHOAL_OK;
}

enum shoal_status logs_reader_next(struct logs_reader *reader, struct logs_line *line,
                                   bool *has_line)
{
    const char *newline = NULL;
    if (reader->count > 0)
        newline = memchr(reader->buffer + reader->begin, '\n', reader->count);
    if (newline == NULL && reader->offset + (int64_t)reader->count < reader->end) {
        TRY(fill(reader));
        newline = memchr(reader->buffer, '\n', reader->count);
    }
    *has_line = reader->count > 0;
    if (!*has_line)
        return SHOAL_OK;
    const char *data = reader->buffer + reader->begin;
    size_t bytes = newline != NULL ? (size_t)(newline - data) : reader->count;
    size_t taken = bytes + (newline != NULL);
    line->time_ms = reader->time_ms;
    if (!logs_line_read(data, bytes, line) && line->time_ms == 0)
        TRY(time_of_next(reader, &line->time_ms));
    reader->time_ms = line->time_ms;
    line->offset = reader->offset;
    reader->offset = line->next = reader->offset + (int64_t)taken;
    reader->begin += taken;
    reader->count -= taken;
    return SHOAL_OK;
}

void logs_reader_release(struct logs_reader *reader)
{
    base_free(reader->buffer);
    *reader = (struct logs_reader){0};
}
