/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe.c: DescribeLogGroups and DescribeLogStreams. A token is the sort key of the last stream
 * of its page, so that it stays right while streams come and go.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/identity.h"
#include "logs/events.h"
#include "logs/stream.h"

#define GROUP_ARN   "arn:aws:logs:us-east-1:" HTTP_ACCOUNT ":log-group:" LOGS_GROUP
#define LIMIT       50
#define TOKEN_BYTES (LOGS_STREAM_BYTES + 32)

/* ---- groups ---- */

static int64_t changed_ms(const struct stat *facts)
{
    return (int64_t)facts->st_mtim.tv_sec * 1000 + facts->st_mtim.tv_nsec / 1000000;
}

enum shoal_status logs_groups_describe(struct logs *logs, const json_t *request, json_t **reply,
                                       struct job_fault *fault)
{
    struct stat facts = {0};
    const char *prefix = logs_text(request, "logGroupNamePrefix", "");
    const char *part = logs_text(request, "logGroupNamePattern", "");
    (void)fault;
    json_t *group = NULL;
    stat(logs->root, &facts);
    if (strncmp(LOGS_GROUP, prefix, strlen(prefix)) == 0 && strcasestr(LOGS_GROUP, part) != NULL)
        group =
            json_pack("{s:s, s:I, s:i, s:s, s:s, s:s}", "logGroupName", LOGS_GROUP, "creationTime",
                      (json_int_t)changed_ms(&facts), "metricFilterCount", 0, "arn", GROUP_ARN ":*",
                      "logGroupArn", GROUP_ARN, "logGroupClass", "STANDARD");
    return logs_reply(group != NULL ? json_pack("{s:[o]}", "logGroups", group)
                                    : json_pack("{s:[]}", "logGroups"),
                      reply);
}

/* ---- streams ---- */

static enum shoal_status stream_json(const struct logs *logs, const char *name, json_t *list)
{
    char path[PATH_MAX];
    struct logs_stream stream;
    int64_t first_ms = 0, last_ms = 0, epoch_s = 0;
    bool has_lines = false;
    TRY(logs_path(logs->root, name, path));
    enum shoal_status status = logs_stream_open(path, &stream);
    if (status == SHOAL_ERR_STATE) /* removed since it was listed */
        return SHOAL_OK;
    TRY(status);
    status = logs_stream_times(&stream, &first_ms, &last_ms, &has_lines);
    logs_stream_close(&stream);
    TRY(status);
    logs_is_file(strchr(name, '/') + 1, NULL, &epoch_s);
    json_t *out = json_pack(
        "{s:s, s:I, s:o, s:I}", "logStreamName", name, "creationTime", (json_int_t)epoch_s * 1000,
        "arn", json_sprintf(GROUP_ARN ":log-stream:%s", name), "storedBytes", (json_int_t)0);
    if (out != NULL && has_lines) {
        json_object_set_new(out, "firstEventTimestamp", json_integer(first_ms));
        json_object_set_new(out, "lastEventTimestamp", json_integer(last_ms));
        json_object_set_new(out, "lastIngestionTime", json_integer(last_ms));
    }
    return logs_append(list, out);
}

/* A stream's place in the order that was asked for. */
struct key {
    int64_t time_ms; /* 0 when names alone count */
    char name[LOGS_STREAM_BYTES];
};

static int key_compare(const void *one, const void *other)
{
    const struct key *a = one, *b = other;
    if (a->time_ms != b->time_ms)
        return a->time_ms < b->time_ms ? -1 : 1;
    return strcmp(a->name, b->name);
}

static bool token_read(const char *token, struct key *out)
{
    const char *name;
    if (!logs_digits(token, ':', &out->time_ms, &name) || strlen(name) >= sizeof(out->name))
        return false;
    snprintf(out->name, sizeof(out->name), "%s", name);
    return true;
}

/* When it was last written to, which is when its last line came. */
static enum shoal_status time_of(const struct logs *logs, const char *name, int64_t *time_ms)
{
    char path[PATH_MAX];
    struct stat facts = {0};
    TRY(logs_path(logs->root, name, path));
    stat(path, &facts);
    *time_ms = changed_ms(&facts);
    return SHOAL_OK;
}

struct page {
    bool by_time, is_descending, has_after;
    struct key after; /* of the last stream of the page before */
    size_t limit;
};

/* Whether a stream comes behind the last page. */
static bool is_ahead(const struct page *page, const struct key *key)
{
    if (!page->has_after)
        return true;
    int order = key_compare(key, &page->after);
    return page->is_descending ? order < 0 : order > 0;
}

/* Those of the streams that are ahead, in order. */
static enum shoal_status keys_make(const struct logs *logs, const struct logs_names *names,
                                   const struct page *page, struct key *keys, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < names->count; i++) {
        struct key *key = &keys[*count];
        *key = (struct key){0};
        snprintf(key->name, sizeof(key->name), "%s", names->items[i]);
        if (page->by_time)
            TRY(time_of(logs, key->name, &key->time_ms));
        *count += is_ahead(page, key);
    }
    if (*count > 0)
        qsort(keys, *count, sizeof(*keys), key_compare);
    for (size_t i = 0; page->is_descending && i < *count / 2; i++) {
        struct key swapped = keys[i];
        keys[i] = keys[*count - 1 - i];
        keys[*count - 1 - i] = swapped;
    }
    return SHOAL_OK;
}

static enum shoal_status page_fill(const struct logs *logs, const struct page *page,
                                   const struct key *keys, size_t count, json_t *reply)
{
    json_t *streams = json_object_get(reply, "logStreams");
    size_t shown = count < page->limit ? count : page->limit;
    for (size_t i = 0; i < shown; i++)
        TRY(stream_json(logs, keys[i].name, streams));
    if (shown == count)
        return SHOAL_OK;
    char token[TOKEN_BYTES];
    const struct key *last = &keys[shown - 1];
    snprintf(token, sizeof(token), "%lld:%s", (long long)last->time_ms, last->name);
    if (json_object_set_new(reply, "nextToken", json_string(token)) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a reply");
    return SHOAL_OK;
}

static enum shoal_status names_list(const struct logs *logs, const char *prefix,
                                    struct logs_names *jobs, struct logs_names *streams)
{
    TRY(logs_jobs_list(logs->root, prefix, jobs));
    for (size_t i = 0; i < jobs->count; i++)
        TRY(logs_streams_list(logs->root, jobs->items[i], prefix, streams));
    return SHOAL_OK;
}

static enum shoal_status describe(const struct logs *logs, const char *prefix,
                                  const struct page *page, json_t *reply)
{
    struct logs_names jobs = {0}, streams = {0};
    struct key *keys = NULL;
    size_t count = 0;
    enum shoal_status status = names_list(logs, prefix, &jobs, &streams);
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&keys, streams.count, "a list of log streams");
    if (status == SHOAL_OK)
        status = keys_make(logs, &streams, page, keys, &count);
    if (status == SHOAL_OK)
        status = page_fill(logs, page, keys, count, reply);
    base_free(keys);
    logs_names_release(&jobs);
    logs_names_release(&streams);
    return status;
}

enum shoal_status logs_streams_describe(struct logs *logs, const json_t *request, json_t **reply,
                                        struct job_fault *fault)
{
    const char *prefix = logs_text(request, "logStreamNamePrefix", NULL);
    const char *token = logs_text(request, "nextToken", NULL);
    struct page page = {
        .by_time = strcmp(logs_text(request, "orderBy", ""), "LastEventTime") == 0,
        .is_descending = logs_flag(request, "descending"),
        .has_after = token != NULL,
        .limit = (size_t)logs_number(request, "limit", LIMIT),
    };
    if (!logs_group_check(request, fault))
        return SHOAL_OK;
    if (page.by_time && prefix != NULL)
        return logs_refuse(fault, LOGS_INVALID,
                           "Cannot order by LastEventTime with a logStreamNamePrefix.");
    if (token != NULL && !token_read(token, &page.after))
        return logs_refuse(fault, LOGS_INVALID, "The specified nextToken is invalid.");
    json_t *made = json_pack("{s:[]}", "logStreams");
    TRY(logs_reply(made, reply));
    enum shoal_status status = describe(logs, prefix != NULL ? prefix : "", &page, made);
    if (status != SHOAL_OK) {
        json_decref(made);
        *reply = NULL;
    }
    return status;
}
