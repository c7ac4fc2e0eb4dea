/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines.c: many streams of bytes become whole lines in one output.
 *
 * Invariants: (1) the queue of a sink ends with a newline unless `open` names the stream whose
 * piece stands last; (2) a stream is `continued` only while it is its sink's `open`.
 */
#include "launch/lines.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/utf8.h"

#define FORMAT_BYTES 4096
#define NEWLINE      "\n"

/* ---- sinks ---- */

void launch_sink_init(struct launch_sink *sink, int fd, enum launch_lines_form form)
{
    bool terminal = isatty(fd) == 1;
    const char *no_color = getenv("NO_COLOR");
    *sink = (struct launch_sink){.fd = fd, .form = form, .live = terminal};
    sink->color = terminal && form == LAUNCH_LINES_TAG && (no_color == NULL || *no_color == '\0');
}

bool launch_sink_full(const struct launch_sink *sink)
{
    return launch_bytes_count(&sink->queue) >= LAUNCH_SINK_BYTES;
}

/* Before a line of anybody but `stream`. */
static enum shoal_status close_open_line(struct launch_sink *sink,
                                         const struct launch_stream *stream)
{
    if (sink->open == NULL || sink->open == stream)
        return SHOAL_OK;
    TRY(launch_bytes_append(&sink->queue, NEWLINE, 1));
    sink->open->continued = false;
    sink->open->returned = false;
    sink->open = NULL;
    return SHOAL_OK;
}

enum shoal_status launch_sink_raw(struct launch_sink *sink, const void *data, size_t count)
{
    TRY(close_open_line(sink, NULL));
    return launch_bytes_append(&sink->queue, data, count);
}

enum shoal_status launch_sink_note(struct launch_sink *sink, const char *text)
{
    TRY(close_open_line(sink, NULL));
    if (sink->form != LAUNCH_LINES_JSON)
        return launch_put_format(&sink->queue, "shoal: %s\n", text);
    TRY(launch_put_format(&sink->queue, "{\"type\":\"note\",\"text\":"));
    TRY(launch_json_text(&sink->queue, text, strlen(text)));
    return launch_put_format(&sink->queue, "}\n");
}

/* After poll has said that there is room, a pipe takes PIPE_BUF bytes without blocking; so nothing
 * need be changed on a description that other processes may share. */
static bool write_chunk(struct launch_sink *sink)
{
    size_t count = launch_bytes_count(&sink->queue);
    if (count > LAUNCH_CHUNK_BYTES)
        count = LAUNCH_CHUNK_BYTES;
    ssize_t written = write(sink->fd, launch_bytes_front(&sink->queue), count);
    if (written > 0)
        launch_bytes_take(&sink->queue, (size_t)written);
    else if (written < 0 && errno != EINTR && errno != EAGAIN)
        sink->closed = true;
    return written > 0;
}

void launch_sink_flush(struct launch_sink *sink)
{
    bool going = true;
    while (going && !sink->closed && launch_bytes_count(&sink->queue) > 0) {
        struct pollfd polled = {sink->fd, POLLOUT, 0};
        going = poll(&polled, 1, 0) > 0 && write_chunk(sink);
    }
    if (sink->closed)
        launch_bytes_take(&sink->queue, launch_bytes_count(&sink->queue));
}

enum shoal_status launch_sink_finish(struct launch_sink *sink, int64_t deadline_ns)
{
    if (sink->form == LAUNCH_LINES_TAG)
        TRY(close_open_line(sink, NULL));
    for (;;) {
        launch_sink_flush(sink);
        if (launch_bytes_count(&sink->queue) == 0)
            return SHOAL_OK;
        if (base_now_ns() >= deadline_ns)
            return base_error(SHOAL_ERR_TIMEOUT, "nobody reads the output");
        struct pollfd polled = {sink->fd, POLLOUT, 0};
        poll(&polled, 1, base_left_ms(deadline_ns));
    }
}

void launch_sink_release(struct launch_sink *sink)
{
    launch_bytes_release(&sink->queue);
}

/* ---- one stream's pieces ---- */

static enum shoal_status put_tag(struct launch_sink *sink, const struct launch_stream *stream)
{
    static const int colors[] = {36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};
    const char *word = stream->is_server ? "server " : "";
    if (sink->form != LAUNCH_LINES_TAG)
        return SHOAL_OK;
    if (!sink->color)
        return launch_put_format(&sink->queue, "[%s%d] ", word, stream->rank);
    int color = colors[(unsigned)stream->rank % (sizeof(colors) / sizeof(colors[0]))];
    return launch_put_format(&sink->queue, "\033[%dm[%s%d]\033[0m ", color, word, stream->rank);
}

static void remember_last(struct launch_stream *stream, const unsigned char *data, size_t count)
{
    while (count > 0 && strchr(" \t\r\n", data[count - 1]) != NULL && data[count - 1] != '\0')
        count--;
    if (count == 0)
        return;
    if (count >= sizeof(stream->last))
        count = sizeof(stream->last) - 1;
    memcpy(stream->last, data, count);
    stream->last[count] = '\0';
}

static enum shoal_status put_json_piece(struct launch_stream *stream, const unsigned char *data,
                                        size_t count)
{
    struct launch_bytes *queue = &stream->sink->queue;
    bool whole = count > 0 && data[count - 1] == '\n';
    TRY(launch_put_format(queue, "{\"type\":\"output\",\"%s\":%d,\"host\":",
                          stream->is_server ? "server" : "rank", stream->rank));
    TRY(launch_json_text(queue, stream->host, strlen(stream->host)));
    TRY(launch_put_format(queue, ",\"stream\":\"%s\",\"text\":", stream->name));
    TRY(launch_json_text(queue, data, whole ? count - 1 : count));
    return launch_put_format(queue, whole ? "}\n" : ",\"partial\":true}\n");
}

static enum shoal_status put_piece(struct launch_stream *stream, const unsigned char *data,
                                   size_t count)
{
    struct launch_sink *sink = stream->sink;
    remember_last(stream, data, count);
    if (sink->closed)
        return SHOAL_OK;
    if (sink->form == LAUNCH_LINES_JSON)
        return put_json_piece(stream, data, count);
    TRY(close_open_line(sink, stream));
    bool newline_after_return = stream->returned && data[0] == '\n';
    if (!stream->continued && !newline_after_return)
        TRY(put_tag(sink, stream));
    TRY(launch_bytes_append(&sink->queue, data, count));
    unsigned char end = data[count - 1];
    stream->returned = sink->live && end == '\r';
    stream->continued = end != '\n' && !stream->returned;
    sink->open = end == '\n' ? NULL : stream;
    return SHOAL_OK;
}

/* Length of the first piece that is complete, 0 if there is none. */
static size_t piece_length(const struct launch_stream *stream)
{
    const unsigned char *data = launch_bytes_front(&stream->partial);
    size_t count = launch_bytes_count(&stream->partial);
    size_t limit = count < LAUNCH_LINE_BYTES ? count : LAUNCH_LINE_BYTES;
    if (count == 0)
        return 0;
    const unsigned char *end = memchr(data, '\n', limit);
    if (stream->sink->live) {
        size_t line = end != NULL ? (size_t)(end - data) : limit;
        const unsigned char *returned = memchr(data, '\r', line);
        end = returned != NULL ? returned : end;
    }
    if (end != NULL)
        return (size_t)(end - data) + 1;
    return count >= LAUNCH_LINE_BYTES ? LAUNCH_LINE_BYTES : 0;
}

enum shoal_status launch_stream_write(struct launch_stream *stream, const void *data, size_t count)
{
    TRY(launch_bytes_append(&stream->partial, data, count));
    stream->arrived_ns = base_now_ns();
    for (size_t length; (length = piece_length(stream)) > 0;) {
        TRY(put_piece(stream, launch_bytes_front(&stream->partial), length));
        launch_bytes_take(&stream->partial, length);
    }
    return SHOAL_OK;
}

int64_t launch_stream_idle_ns(const struct launch_stream *stream)
{
    if (!stream->sink->live || launch_bytes_count(&stream->partial) == 0)
        return BASE_NO_DEADLINE;
    return stream->arrived_ns + LAUNCH_IDLE_MS * BASE_NS_PER_MS;
}

enum shoal_status launch_stream_flush(struct launch_stream *stream)
{
    size_t count = launch_bytes_count(&stream->partial);
    if (count == 0)
        return SHOAL_OK;
    TRY(put_piece(stream, launch_bytes_front(&stream->partial), count));
    launch_bytes_take(&stream->partial, count);
    return SHOAL_OK;
}

void launch_stream_release(struct launch_stream *stream)
{
    if (stream->sink != NULL && stream->sink->open == stream)
        stream->sink->open = NULL;
    launch_bytes_release(&stream->partial);
}

/* ---- text ---- */

enum shoal_status launch_put_format(struct launch_bytes *out, const char *format, ...)
{
    char text[FORMAT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (length < 0)
        length = 0;
    if (length >= FORMAT_BYTES)
        length = FORMAT_BYTES - 1;
    return launch_bytes_append(out, text, (size_t)length);
}

enum shoal_status launch_json_text(struct launch_bytes *out, const void *text, size_t count)
{
    const unsigned char *data = text;
    TRY(launch_bytes_append(out, "\"", 1));
    while (count > 0) {
        size_t length = base_utf8_bytes((const char *)data, count);
        if (length == 0)
            TRY(launch_bytes_append(out, BASE_UTF8_REPLACEMENT, 3));
        else if (data[0] == '"' || data[0] == '\\')
            TRY(launch_put_format(out, "\\%c", data[0]));
        else if (data[0] < 0x20 || data[0] == 0x7f)
            TRY(launch_put_format(out, "\\u%04x", data[0]));
        else
            TRY(launch_bytes_append(out, data, length));
        length = length > 0 ? length : 1;
        data += length;
        count -= length;
    }
    return launch_bytes_append(out, "\"", 1);
}
