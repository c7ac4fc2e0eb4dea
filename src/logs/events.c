/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.c: GetLogEvents. A token is a place in the file and a direction: "f/<place>/s" goes on
 * with the lines from the place on, "b/<place>/s" with those before it. At the stream's end the
 * token is the one that was given, as in the public service, and goes on when there is more.
 */
#include "logs/events.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "logs/stream.h"

#define TOKEN_BYTES 64

struct range {
    int64_t from, until; /* places */
    bool is_backward;    /* the last ones that fit rather than the first */
};

/* false: it is not a token of ours, or beyond the stream. */
static bool token_read(const char *token, const struct logs_stream *stream, struct range *range)
{
    int64_t place;
    bool is_forward = strncmp(token, "f/", 2) == 0;
    if (!is_forward && strncmp(token, "b/", 2) != 0)
        return false;
    const char *rest;
    if (!logs_digits(token + 2, '/', &place, &rest) || strcmp(rest, "s") != 0 ||
        place > stream->end)
        return false;
    range->is_backward = !is_forward;
    *(is_forward ? &range->from : &range->until) = place;
    return true;
}

static json_t *token_make(char direction, int64_t place)
{
    char token[TOKEN_BYTES];
    snprintf(token, sizeof(token), "%c/%056lld/s", direction, (long long)place);
    return json_string(token);
}

json_t *logs_event_json(const struct logs_line *line)
{
    return json_pack("{s:I, s:o, s:I}", "timestamp", (json_int_t)line->time_ms, "message",
                     logs_line_json(line), "ingestionTime", (json_int_t)line->time_ms);
}

/* Lines from range->from on that fit; *next is behind them. */
static enum shoal_status collect(const struct logs_stream *stream, const struct range *range,
                                 size_t limit, json_t *events, int64_t *next)
{
    struct logs_reader reader;
    struct logs_line line;
    bool has_line = true;
    size_t bytes = 0;
    *next = range->from;
    if (range->from >= range->until)
        return SHOAL_OK;
    TRY(logs_reader_init(stream, range->from, range->until, &reader));
    enum shoal_status status = SHOAL_OK;
    while (json_array_size(events) < limit) {
        status = logs_reader_next(&reader, &line, &has_line);
        if (status != SHOAL_OK || !has_line)
            break;
        bytes += line.bytes + LOGS_EVENT_EXTRA_BYTES;
        if (bytes > LOGS_REPLY_BYTES_MAX && json_array_size(events) > 0)
            break;
        status = logs_append(events, logs_event_json(&line));
        if (status != SHOAL_OK)
            break;
        *next = line.next;
    }
    logs_reader_release(&reader);
    return status;
}

/* Which lines are asked for, by times and token. */
static enum shoal_status range_find(const struct logs_stream *stream, const json_t *request,
                                    size_t limit, struct range *range, struct job_fault *fault)
{
    int64_t start_ms = logs_number(request, "startTime", 0);
    int64_t end_ms = logs_number(request, "endTime", INT64_MAX), first = 0, last = stream->end;
    const char *token = logs_text(request, "nextToken", NULL);
    if (start_ms > 0)
        TRY(logs_stream_find(stream, start_ms, &first));
    if (end_ms < INT64_MAX)
        TRY(logs_stream_find(stream, end_ms, &last));
    *range = (struct range){first, last, !logs_flag(request, "startFromHead")};
    if (token != NULL && !token_read(token, stream, range))
        return logs_refuse(fault, LOGS_INVALID, "The specified nextToken is invalid.");
    if (range->from < first)
        range->from = first;
    if (range->until > last)
        range->until = last;
    if (range->is_backward && range->until > range->from)
        return logs_stream_back(stream, range->until, range->from,
                                (struct logs_budget){limit, LOGS_REPLY_BYTES_MAX}, &range->from);
    if (range->is_backward)
        range->from = range->until;
    return SHOAL_OK;
}

static enum shoal_status get(const struct logs_stream *stream, const json_t *request,
                             json_t **reply, struct job_fault *fault)
{
    struct range range;
    int64_t next;
    size_t limit = (size_t)logs_number(request, "limit", LOGS_EVENTS_MAX);
    TRY(range_find(stream, request, limit, &range, fault));
    if (fault->type != NULL)
        return SHOAL_OK;
    json_t *events = json_array();
    if (events == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a reply");
    enum shoal_status status = collect(stream, &range, limit, events, &next);
    if (status != SHOAL_OK) {
        json_decref(events);
        return status;
    }
    return logs_reply(json_pack("{s:o, s:o, s:o}", "events", events, "nextForwardToken",
                                token_make('f', next), "nextBackwardToken",
                                token_make('b', range.from)),
                      reply);
}

enum shoal_status logs_events_get(struct logs *logs, const json_t *request, json_t **reply,
                                  struct job_fault *fault)
{
    struct logs_stream stream;
    char path[PATH_MAX];
    const char *name = logs_text(request, "logStreamName", "");
    if (!logs_group_check(request, fault))
        return SHOAL_OK;
    enum shoal_status status = SHOAL_ERR_STATE;
    if (logs_is_stream(name)) {
        TRY(logs_path(logs->root, name, path));
        status = logs_stream_open(path, &stream);
    }
    if (status == SHOAL_ERR_STATE)
        return logs_refuse(fault, LOGS_NOT_FOUND, "The specified log stream does not exist.");
    TRY(status);
    status = get(&stream, request, reply, fault);
    logs_stream_close(&stream);
    return status;
}
