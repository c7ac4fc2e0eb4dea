/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter.c: FilterLogEvents: lines of many streams in the order of their times (streams in that of
 * their names where times are equal), those that pass a pattern. A token is the place in that
 * order:
 * "<time>/<offset>/<stream>": the stream goes on at the offset, those before it in the order with
 * lines that are later, those behind it with lines that are not earlier.
 *
 * A request looks at lines for half a second at most, then it replies with what it has and a token.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "logs/events.h"
#include "logs/pattern.h"
#include "logs/stream.h"

#define SOURCES_MAX  100
#define OVERRUNS_MAX 20
#define SEARCH_MS    500
#define TOKEN_BYTES  (LOGS_STREAM_BYTES + 48)

struct source {
    const char *name;
    struct logs_stream stream;
    struct logs_reader reader;
    struct logs_line line;
    bool has_line;
};

struct place {
    int64_t time_ms, offset;
    char name[LOGS_STREAM_BYTES]; /* "": the beginning */
};

struct search {
    const struct logs *logs;
    int64_t start_ms, end_ms;
    size_t limit, bytes;
    struct place at; /* where the page before ended; then where this one does */
    struct logs_names names;
    struct logs_pattern *pattern;
    struct source *sources;
    size_t count;
    bool is_over; /* nothing is left */
};

static bool token_read(const char *token, struct place *out)
{
    const char *rest, *name;
    if (!logs_digits(token, '/', &out->time_ms, &rest) ||
        !logs_digits(rest, '/', &out->offset, &name) || !logs_is_stream(name))
        return false;
    snprintf(out->name, sizeof(out->name), "%s", name);
    return true;
}

/* ---- sources ---- */

/* Where a stream begins, by times and the last page. */
static enum shoal_status first_place(const struct search *search, const struct source *source,
                                     int64_t *from)
{
    int64_t time_ms = search->start_ms;
    int order = strcmp(source->name, search->at.name);
    if (search->at.name[0] != '\0' && order == 0) {
        *from = search->at.offset;
        return SHOAL_OK;
    }
    if (search->at.name[0] != '\0')
        time_ms = search->at.time_ms + (order < 0);
    return time_ms > 0 ? logs_stream_find(&source->stream, time_ms, from) : SHOAL_OK;
}

/* A stream that has lines in the range becomes a source; others are closed. */
static enum shoal_status source_begin(struct search *search, struct source *source)
{
    int64_t from = 0, until = source->stream.end;
    TRY(first_place(search, source, &from));
    if (search->end_ms < INT64_MAX)
        TRY(logs_stream_find(&source->stream, search->end_ms, &until));
    if (from >= until) {
        logs_stream_close(&source->stream);
        return SHOAL_OK;
    }
    if (search->count == SOURCES_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "More than %d log streams have events in this time: name them by "
                          "logStreamNames or logStreamNamePrefix, or narrow the time",
                          SOURCES_MAX);
    search->count++;
    TRY(logs_reader_init(&source->stream, from, until, &source->reader));
    return logs_reader_next(&source->reader, &source->line, &source->has_line);
}

static void source_end(struct source *source)
{
    logs_reader_release(&source->reader);
    logs_stream_close(&source->stream);
}

static enum shoal_status sources_begin(struct search *search)
{
    /* One more than may be used, for the one that is looked at. */
    TRY(BASE_NEW_ARRAY(&search->sources, SOURCES_MAX + 1, "a search in logs"));
    for (size_t i = 0; i < search->names.count; i++) {
        char path[PATH_MAX];
        struct source *source = &search->sources[search->count];
        *source = (struct source){.name = search->names.items[i]};
        TRY(logs_path(search->logs->root, source->name, path));
        enum shoal_status status = logs_stream_open(path, &source->stream);
        if (status == SHOAL_ERR_STATE) /* removed since it was listed */
            continue;
        TRY(status);
        size_t before = search->count;
        status = source_begin(search, source);
        if (status != SHOAL_OK && search->count == before)
            logs_stream_close(&source->stream);
        TRY(status);
    }
    return SHOAL_OK;
}

/* The source whose line is next; NULL: there is none. */
static struct source *earliest(const struct search *search)
{
    struct source *first = NULL;
    for (size_t i = 0; i < search->count; i++) {
        struct source *source = &search->sources[i];
        if (source->has_line && (first == NULL || source->line.time_ms < first->line.time_ms))
            first = source;
    }
    return first;
}

/* ---- events ---- */

/* Distinct for each line of all streams: its time, its stream's name as a number, its place. */
static json_t *id_make(const struct source *source)
{
    uint64_t name = UINT64_C(14695981039346656037);
    for (const char *at = source->name; *at != '\0'; at++)
        name = (name ^ (unsigned char)*at) * UINT64_C(1099511628211);
    return json_sprintf("%016lld%020llu%020lld", (long long)source->line.time_ms,
                        (unsigned long long)name, (long long)source->line.offset);
}

static enum shoal_status event_add(struct search *search, const struct source *source, json_t *list)
{
    json_t *event = logs_event_json(&source->line);
    if (event == NULL ||
        json_object_set_new(event, "logStreamName", json_string(source->name)) != 0 ||
        json_object_set_new(event, "eventId", id_make(source)) != 0) {
        json_decref(event);
        event = NULL;
    }
    search->bytes += source->line.bytes + LOGS_EVENT_EXTRA_BYTES;
    return logs_append(list, event);
}

static void place_set(struct search *search, const struct source *source)
{
    search->at.time_ms = source->line.time_ms;
    search->at.offset = source->line.next;
    snprintf(search->at.name, sizeof(search->at.name), "%s", source->name);
}

/* Looks at one line; false in *goes_on at the end of all, and of the page. */
static enum shoal_status step(struct search *search, json_t *events, bool *goes_on)
{
    struct source *source = earliest(search);
    search->is_over = source == NULL;
    *goes_on = false;
    if (source == NULL)
        return SHOAL_OK;
    if (logs_pattern_passes(search->pattern, source->line.text, source->line.bytes)) {
        size_t bytes = search->bytes + source->line.bytes + LOGS_EVENT_EXTRA_BYTES;
        if (bytes > LOGS_REPLY_BYTES_MAX && json_array_size(events) > 0)
            return SHOAL_OK;
        TRY(event_add(search, source, events));
    }
    place_set(search, source);
    *goes_on = json_array_size(events) < search->limit;
    return logs_reader_next(&source->reader, &source->line, &source->has_line);
}

static enum shoal_status collect(struct search *search, json_t *events)
{
    int64_t deadline = base_deadline_ns(SEARCH_MS);
    bool goes_on = true;
    while (goes_on && base_now_ns() < deadline) {
        TRY(step(search, events, &goes_on));
        if (logs_pattern_overruns(search->pattern) > OVERRUNS_MAX)
            return base_error(SHOAL_ERR_LIMIT, "The filter pattern takes too many steps");
    }
    search->is_over = earliest(search) == NULL;
    return SHOAL_OK;
}

static enum shoal_status reply_make(struct search *search, json_t *events, json_t **reply)
{
    char token[TOKEN_BYTES];
    json_t *made = json_pack("{s:O, s:[]}", "events", events, "searchedLogStreams");
    TRY(logs_reply(made, reply));
    if (search->is_over)
        return SHOAL_OK;
    snprintf(token, sizeof(token), "%lld/%lld/%s", (long long)search->at.time_ms,
             (long long)search->at.offset, search->at.name);
    if (json_object_set_new(made, "nextToken", json_string(token)) == 0)
        return SHOAL_OK;
    json_decref(made);
    return logs_reply(NULL, reply);
}

/* ---- the request ---- */

static enum shoal_status names_by_prefix(struct search *search, const char *prefix)
{
    struct logs_names jobs = {0};
    enum shoal_status status = logs_jobs_list(search->logs->root, prefix, &jobs);
    for (size_t i = 0; status == SHOAL_OK && i < jobs.count; i++)
        status = logs_streams_list(search->logs->root, jobs.items[i], prefix, &search->names);
    logs_names_release(&jobs);
    return status;
}

/* Those that the request names; each has to be there. */
static enum shoal_status names_given(struct search *search, const json_t *list,
                                     struct job_fault *fault)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t before = search->names.count;
        if (name != NULL && logs_is_stream(name))
            TRY(names_by_prefix(search, name));
        bool is_there = false;
        for (size_t j = before; j < search->names.count; j++)
            is_there = is_there || strcmp(search->names.items[j], name) == 0;
        search->names.count = before;
        if (!is_there)
            return logs_refuse(fault, LOGS_NOT_FOUND, "The specified log stream does not exist.");
        TRY(logs_names_add(&search->names, name));
    }
    logs_names_sort(&search->names);
    return SHOAL_OK;
}

static enum shoal_status prepare(struct search *search, const json_t *request,
                                 struct job_fault *fault)
{
    const json_t *names = json_object_get(request, "logStreamNames");
    const char *prefix = logs_text(request, "logStreamNamePrefix", NULL);
    const char *token = logs_text(request, "nextToken", NULL);
    if (names != NULL && prefix != NULL)
        return logs_refuse(fault, LOGS_INVALID,
                           "Only one of logStreamNames and logStreamNamePrefix can be given.");
    if (json_is_false(json_object_get(request, "startFromHead")))
        return logs_refuse(fault, LOGS_INVALID,
                           "Events are given from the earliest on: startFromHead can't be false.");
    if (token != NULL && !token_read(token, &search->at))
        return logs_refuse(fault, LOGS_INVALID, "The specified nextToken is invalid.");
    enum shoal_status status =
        logs_pattern_create(logs_text(request, "filterPattern", ""), &search->pattern);
    if (status == SHOAL_ERR_ARGUMENT)
        return logs_refuse(fault, LOGS_INVALID, "%s", base_error_text());
    TRY(status);
    return names != NULL ? names_given(search, names, fault)
                         : names_by_prefix(search, prefix != NULL ? prefix : "");
}

static enum shoal_status run(struct search *search, const json_t *request, json_t **reply,
                             struct job_fault *fault)
{
    json_t *events = json_array();
    if (events == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a reply");
    enum shoal_status status = prepare(search, request, fault);
    if (status == SHOAL_OK && fault->type == NULL) {
        status = sources_begin(search);
        if (status == SHOAL_OK)
            status = collect(search, events);
        if (status == SHOAL_OK)
            status = reply_make(search, events, reply);
        if (status == SHOAL_ERR_LIMIT)
            status = logs_refuse(fault, LOGS_INVALID, "%s", base_error_text());
    }
    json_decref(events);
    return status;
}

enum shoal_status logs_events_filter(struct logs *logs, const json_t *request, json_t **reply,
                                     struct job_fault *fault)
{
    struct search search = {
        .logs = logs,
        .start_ms = logs_number(request, "startTime", 0),
        .end_ms = logs_number(request, "endTime", INT64_MAX),
        .limit = (size_t)logs_number(request, "limit", LOGS_EVENTS_MAX),
    };
    if (!logs_group_check(request, fault))
        return SHOAL_OK;
    enum shoal_status status = run(&search, request, reply, fault);
    for (size_t i = 0; i < search.count; i++)
        source_end(&search.sources[i]);
    base_free(search.sources);
    logs_pattern_free(search.pattern);
    logs_names_release(&search.names);
    return status;
}
