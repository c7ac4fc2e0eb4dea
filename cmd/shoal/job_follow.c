/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_follow.c: one list of streams, each with the page of lines that was fetched last. The
 * earliest line of all pages is printed when no stream could have an earlier one: each has a page,
 * or had nothing new in this round.
 *
 * Rounds follow each other after 10 ms while lines come, and more and more slowly up to 250 ms
 * while nothing does: a line is seen within that, and an idle follower costs the service some ms a
 * second.
 */
#include "job_follow.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "logs/logs.h"

#define PAUSE_MS_MIN    10
#define PAUSE_MS_MAX    250
#define PAUSE_STREAM_MS 2     /* more for each stream, so that large jobs are no load */
#define EARLY_MS        20    /* between rounds before the first line, */
#define EARLY_MS_MAX    10000 /* for so long after a change of status */
#define LOST_MS_MAX     60000 /* a service that does not answer is waited for */
#define STREAM_BYTES    128
#define MESSAGE_BYTES   256

struct stream {
    char name[STREAM_BYTES];
    int number;   /* of the instance */
    char *token;  /* where the next page begins; NULL: at `since` */
    json_t *page; /* lines, NULL when there is none */
    size_t next;  /* of the page */
    bool is_idle; /* had nothing new in this round */
};

struct follow {
    struct job_client *client;
    const struct job_follow_options *options;
    struct stream *streams;
    size_t count;
    int instances; /* that the job has */
    bool has_colours;
    uint64_t printed;            /* lines */
    size_t transitions;          /* of statuses that were shown, */
    char message[MESSAGE_BYTES]; /* and what the last one said */
    char status[JOB_STATUS_BYTES];
    int64_t pause_ms;
    int64_t early_until_ns; /* rounds follow each other quickly until then */
    bool has_begun;         /* a round was whole */
    int64_t lost_until_ns;  /* the service is waited for until then; 0: it answers */
};

static volatile sig_atomic_t is_interrupted;

static void interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* ---- streams ---- */

static void streams_release(struct follow *follow)
{
    for (size_t i = 0; i < follow->count; i++) {
        base_free(follow->streams[i].token);
        json_decref(follow->streams[i].page);
    }
    base_free(follow->streams);
    follow->streams = NULL;
    follow->count = 0;
}

static bool is_known(const struct follow *follow, const char *name)
{
    for (size_t i = 0; i < follow->count; i++) {
        if (strcmp(follow->streams[i].name, name) == 0)
            return true;
    }
    return false;
}

static enum shoal_status stream_add(struct follow *follow, const char *name)
{
    struct stream *streams;
    const char *slash = strchr(name, '/');
    int number = slash != NULL ? atoi(slash + 1 + strlen("algo-")) : 0;
    if (is_known(follow, name) || strlen(name) >= STREAM_BYTES ||
        (follow->options->instance > 0 && number != follow->options->instance))
        return SHOAL_OK;
    TRY(BASE_NEW_ARRAY(&streams, follow->count + 1, "streams of a job"));
    if (follow->count > 0)
        memcpy(streams, follow->streams, follow->count * sizeof(*streams));
    base_free(follow->streams);
    follow->streams = streams;
    struct stream *stream = &streams[follow->count++];
    snprintf(stream->name, sizeof(stream->name), "%s", name);
    stream->number = number;
    return SHOAL_OK;
}

/* Finds streams that came since, in pages. */
static enum shoal_status streams_find(struct follow *follow)
{
    char *token = NULL;
    enum shoal_status status;
    do {
        json_t *reply = NULL;
        const json_t *item;
        size_t i;
        json_t *request = json_pack("{s:s, s:o}", "logGroupName", LOGS_GROUP, "logStreamNamePrefix",
                                    json_sprintf("%s/", follow->options->name));
        if (token != NULL)
            json_object_set_new(request, "nextToken", json_string(token));
        free(token);
        token = NULL;
        status =
            job_client_call(follow->client, "Logs_20140328.DescribeLogStreams", request, &reply);
        if (status == SHOAL_ERR_STATE) /* no group yet, on other services */
            return SHOAL_OK;
        json_array_foreach(json_object_get(reply, "logStreams"), i, item)
        {
            if (status == SHOAL_OK)
                status = stream_add(follow, job_text(item, "logStreamName"));
        }
        if (status == SHOAL_OK && json_object_get(reply, "nextToken") != NULL)
            token = strdup(job_text(reply, "nextToken"));
        json_decref(reply);
    } while (token != NULL);
    return status;
}

/* ---- pages ---- */

static enum shoal_status page_request(const struct follow *follow, const struct stream *stream,
                                      json_t *request, json_t **reply)
{
    if (stream->token != NULL)
        json_object_set_new(request, "nextToken", json_string(stream->token));
    if (follow->options->since_ms > 0)
        json_object_set_new(request, "startTime", json_integer(follow->options->since_ms));
    return job_client_call(follow->client, "Logs_20140328.GetLogEvents", request, reply);
}

static enum shoal_status page_take(struct stream *stream, json_t *reply)
{
    json_decref(stream->page);
    stream->page = json_incref(json_object_get(reply, "events"));
    stream->next = 0;
    stream->is_idle = json_array_size(stream->page) == 0;
    base_free(stream->token);
    stream->token = NULL;
    return base_strdup(job_text(reply, "nextForwardToken"), "a place in a log", &stream->token);
}

/* The next page of a stream: the first one from the head, or with --tail the last lines there are.
 */
static enum shoal_status page_fetch(struct follow *follow, struct stream *stream)
{
    json_t *reply;
    bool is_tail = stream->token == NULL && follow->options->tail >= 0;
    json_t *request = json_pack("{s:s, s:s, s:b}", "logGroupName", LOGS_GROUP, "logStreamName",
                                stream->name, "startFromHead", !is_tail);
    if (is_tail)
        json_object_set_new(request, "limit",
                            json_integer(follow->options->tail > 0 ? follow->options->tail : 1));
    enum shoal_status status = page_request(follow, stream, request, &reply);
    stream->is_idle = true;
    if (status == SHOAL_ERR_STATE) /* the stream is not there yet, or has gone */
        return SHOAL_OK;
    TRY(status);
    status = page_take(stream, reply);
    json_decref(reply);
    return status;
}

static const json_t *line_of(const struct stream *stream)
{
    return json_array_get(stream->page, stream->next);
}

static int64_t time_of(const struct stream *stream)
{
    return json_integer_value(json_object_get(line_of(stream), "timestamp"));
}

/* The stream with the earliest line; NULL: none has one. */
static struct stream *earliest(struct follow *follow)
{
    struct stream *first = NULL;
    for (size_t i = 0; i < follow->count; i++) {
        struct stream *stream = &follow->streams[i];
        if (line_of(stream) != NULL && (first == NULL || time_of(stream) < time_of(first)))
            first = stream;
    }
    return first;
}

/* ---- printing ---- */

static void prefix_print(const struct follow *follow, const struct stream *stream)
{
    static const char *const colours[] = {"36", "33", "32", "35", "34", "31"};
    const char *colour = colours[(size_t)stream->number % (sizeof(colours) / sizeof(colours[0]))];
    if (follow->options->has_times) {
        int64_t time_ms = time_of(stream);
        printf("%s.%03d ", job_time_text((double)(time_ms / 1000)), (int)(time_ms % 1000));
    }
    if (follow->instances < 2)
        return;
    if (follow->has_colours)
        printf("\033[%smalgo-%d |\033[0m ", colour, stream->number);
    else
        printf("algo-%d | ", stream->number);
}

static void text_print(const struct follow *follow, const struct stream *stream)
{
    const json_t *text = json_object_get(line_of(stream), "message");
    prefix_print(follow, stream);
    fwrite(json_string_value(text), 1, json_string_length(text), stdout);
}

static enum shoal_status json_print(const struct stream *stream)
{
    json_t *line = json_pack("{s:o, s:I, s:O}", "instance", json_sprintf("algo-%d", stream->number),
                             "timestamp", (json_int_t)time_of(stream), "message",
                             json_object_get(line_of(stream), "message"));
    if (line == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a line");
    json_dumpf(line, stdout, JSON_COMPACT);
    json_decref(line);
    return SHOAL_OK;
}

static enum shoal_status line_print(struct follow *follow, struct stream *stream)
{
    if (follow->options->wants_json)
        TRY(json_print(stream));
    else
        text_print(follow, stream);
    fputc('\n', stdout);
    stream->next++;
    follow->printed++;
    return SHOAL_OK;
}

static enum shoal_status output_check(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return base_error(SHOAL_ERR_SYSTEM, "cannot write to stdout");
    return SHOAL_OK;
}

/* Everything there is, in order. */
static enum shoal_status drain(struct follow *follow)
{
    for (size_t i = 0; i < follow->count; i++)
        follow->streams[i].is_idle = false;
    for (;;) {
        for (size_t i = 0; i < follow->count; i++) {
            struct stream *stream = &follow->streams[i];
            if (line_of(stream) == NULL && !stream->is_idle)
                TRY(page_fetch(follow, stream));
        }
        struct stream *stream = earliest(follow);
        if (stream == NULL || is_interrupted)
            return output_check();
        TRY(line_print(follow, stream));
    }
}

/* Of the last lines of each stream the last ones of all. */
static enum shoal_status tail_cut(struct follow *follow)
{
    size_t lines = 0, kept = (size_t)follow->options->tail;
    for (size_t i = 0; i < follow->count; i++) {
        TRY(page_fetch(follow, &follow->streams[i]));
        lines += json_array_size(follow->streams[i].page);
    }
    for (; lines > kept; lines--)
        earliest(follow)->next++;
    return SHOAL_OK;
}

/* ---- the job ---- */

static void transition_print(struct follow *follow, const json_t *one)
{
    const char *message = job_text(one, "StatusMessage");
    snprintf(follow->message, sizeof(follow->message), "%.*s", MESSAGE_BYTES - 1, message);
    follow->early_until_ns = base_deadline_ns(EARLY_MS_MAX);
    if (!follow->options->has_statuses)
        return;
    fflush(stdout);
    fprintf(stderr, "%s %s%s%s\n",
            job_time_text(json_number_value(json_object_get(one, "StartTime"))),
            job_text(one, "Status"), message[0] != '\0' ? ": " : "", message);
}

/* Statuses that came since, and what the last one says, when that changes. */
static void transitions_print(struct follow *follow, const json_t *job)
{
    const json_t *all = json_object_get(job, "SecondaryStatusTransitions");
    size_t count = json_array_size(all);
    if (count > 0 && follow->transitions == count) {
        const char *message = job_text(json_array_get(all, count - 1), "StatusMessage");
        if (strncmp(message, follow->message, MESSAGE_BYTES - 1) != 0)
            follow->transitions--;
    }
    for (; follow->transitions < count; follow->transitions++)
        transition_print(follow, json_array_get(all, follow->transitions));
}

static enum shoal_status job_look(struct follow *follow)
{
    json_t *job;
    TRY(job_client_describe(follow->client, follow->options->name, &job));
    const json_t *resources = json_object_get(job, "ResourceConfig");
    const json_t *groups = json_object_get(resources, "InstanceGroups"), *group;
    size_t i;
    follow->instances = (int)json_integer_value(json_object_get(resources, "InstanceCount"));
    json_array_foreach((json_t *)groups, i, group)
    {
        follow->instances += (int)json_integer_value(json_object_get(group, "InstanceCount"));
    }
    snprintf(follow->status, sizeof(follow->status), "%s", job_text(job, "TrainingJobStatus"));
    transitions_print(follow, job);
    if (follow->options->has_statuses && strcmp(follow->status, "Failed") == 0) {
        fflush(stdout);
        fprintf(stderr, "%s\n", job_text(job, "FailureReason"));
    }
    json_decref(job);
    return SHOAL_OK;
}

/* Short while a first line is to be expected: soon after the job's status has changed. */
static void pause_for(struct follow *follow)
{
    int64_t more_ms = PAUSE_STREAM_MS * (int64_t)follow->count, most_ms = PAUSE_MS_MAX + more_ms;
    if (follow->printed == 0 && base_now_ns() < follow->early_until_ns) {
        base_sleep_ms(EARLY_MS + more_ms);
        return;
    }
    base_sleep_ms(follow->pause_ms);
    follow->pause_ms = follow->pause_ms * 3 / 2 < most_ms ? follow->pause_ms * 3 / 2 : most_ms;
}

/* The job's status is looked at before its lines, so that none is missed at its end. */
static enum shoal_status round_run(struct follow *follow, bool *is_last)
{
    TRY(job_look(follow));
    TRY(streams_find(follow));
    if (!follow->has_begun && follow->options->tail >= 0)
        TRY(tail_cut(follow));
    follow->has_begun = true;
    TRY(drain(follow));
    *is_last = !follow->options->follows || job_has_ended(follow->status);
    return SHOAL_OK;
}

/* A service that is started again goes on where it was, and so does who follows. */
static bool is_waited_for(struct follow *follow, enum shoal_status status)
{
    if (!follow->has_begun || !follow->options->follows || !job_client_is_lost(status))
        return false;
    if (follow->lost_until_ns == 0) {
        follow->lost_until_ns = base_deadline_ns(LOST_MS_MAX);
        fflush(stdout);
        fprintf(stderr, "%s; waiting for it\n", base_error_text());
    }
    job_client_reset(follow->client);
    return base_left_ms(follow->lost_until_ns) > 0;
}

static enum shoal_status rounds(struct follow *follow)
{
    bool is_last = false;
    while (!is_interrupted) {
        uint64_t before = follow->printed;
        enum shoal_status status = round_run(follow, &is_last);
        if (status == SHOAL_OK && is_last)
            return SHOAL_OK;
        if (status == SHOAL_OK)
            follow->lost_until_ns = 0;
        else if (!is_waited_for(follow, status))
            return status;
        if (follow->printed != before)
            follow->pause_ms = PAUSE_MS_MIN;
        pause_for(follow);
    }
    return base_error(SHOAL_ERR_ABORTED, "interrupted");
}

enum shoal_status job_follow(struct job_client *client, const struct job_follow_options *options,
                             char status[JOB_STATUS_BYTES])
{
    struct follow follow = {.client = client,
                            .options = options,
                            .has_colours = isatty(STDOUT_FILENO) != 0,
                            .pause_ms = PAUSE_MS_MIN};
    struct sigaction action = {.sa_handler = interrupt}, before;
    sigaction(SIGINT, &action, &before);
    enum shoal_status result = rounds(&follow);
    sigaction(SIGINT, &before, NULL);
    streams_release(&follow);
    snprintf(status, JOB_STATUS_BYTES, "%s", follow.status);
    return result;
}

int job_follow_exit(const char *command, const struct job_follow_options *options,
                    enum shoal_status result, const char *status)
{
    if (result == SHOAL_ERR_ABORTED) {
        fprintf(stderr,
                "\nThe job goes on. See it again: shoal logs -f %s; end it: shoal stop %s\n",
                options->name, options->name);
        return EXIT_INTERRUPTED;
    }
    if (result != SHOAL_OK)
        return arguments_exit(command, result);
    return options->follows ? job_exit(status) : 0;
}
