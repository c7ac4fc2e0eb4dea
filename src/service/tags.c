/* SPDX-License-Identifier: Apache-2.0 */
/* tags.c: AddTags, ListTags, DeleteTags. */
#include "service/tags.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define PAGE_DEFAULT 50

static const char *key_of(const json_t *tag)
{
    return json_string_value(json_object_get(tag, "Key"));
}

static const char *value_of(const json_t *tag)
{
    return json_string_value(json_object_get(tag, "Value"));
}

static enum shoal_status priority_read(struct service_call *call, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || llabs(number) > SERVICE_PRIORITY_MAX)
        return service_refuse(call, "ValidationException",
                              "The tag " SERVICE_PRIORITY_TAG
                              " is a whole number from -%d to %d, not '%s'",
                              SERVICE_PRIORITY_MAX, SERVICE_PRIORITY_MAX, text);
    *out = number;
    return SHOAL_OK;
}

enum shoal_status service_tags_check(struct service_call *call, const json_t *tags,
                                     int64_t *priority)
{
    for (size_t i = 0; i < json_array_size(tags); i++) {
        const json_t *tag = json_array_get(tags, i);
        for (size_t j = 0; j < i; j++)
            if (strcmp(key_of(tag), key_of(json_array_get(tags, j))) == 0)
                return service_refuse(call, "ValidationException",
                                      "Tag keys must be unique; '%s' is there more than once",
                                      key_of(tag));
        if (strcmp(key_of(tag), SERVICE_PRIORITY_TAG) == 0)
            TRY(priority_read(call, value_of(tag), priority));
    }
    return SHOAL_OK;
}

enum shoal_status service_tags_put(struct sql_database *database, const char *arn,
                                   const json_t *tags)
{
    for (size_t i = 0; i < json_array_size(tags); i++) {
        const json_t *tag = json_array_get(tags, i);
        sqlite3_stmt *put = sql_statement(database, SERVICE_SQL_TAG_PUT);
        sql_bind_text(database, put, 1, arn);
        sql_bind_text(database, put, 2, key_of(tag));
        sql_bind_text(database, put, 3, value_of(tag));
        TRY(sql_run(database, put));
    }
    return SHOAL_OK;
}

enum shoal_status service_tags_get(struct sql_database *database, const char *arn,
                                   const char *after, int limit, json_t **out)
{
    json_t *list = json_array();
    bool found = true;
    enum shoal_status status = SHOAL_OK;
    sqlite3_stmt *all = sql_statement(database, SERVICE_SQL_TAG_LIST);
    sql_bind_text(database, all, 1, arn);
    sql_bind_text(database, all, 2, after);
    sql_bind_int(database, all, 3, limit);
    while (status == SHOAL_OK && (status = sql_step(database, all, &found)) == SHOAL_OK && found)
        if (json_array_append_new(list, json_pack("{s:s, s:s}", "Key", sql_column_text(all, 0),
                                                  "Value", sql_column_text(all, 1))) != 0) {
            sql_reset(all);
            status = base_error(SHOAL_ERR_MEMORY, "no memory for a list of tags");
        }
    if (status == SHOAL_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

/* ---- operations ---- */

static enum shoal_status resource_find(struct service_call *call, struct sql_database *database)
{
    bool found;
    const char *arn = service_input_text(call, "ResourceArn");
    TRY(service_row_by_arn(database, arn, &found, &call->row));
    if (!found)
        return service_refuse(call, "ValidationException", "Requested resource not found: %s", arn);
    return SHOAL_OK;
}

static enum shoal_status add_check(struct service_call *call)
{
    int64_t ignored;
    return service_tags_check(call, json_object_get(call->input, "Tags"), &ignored);
}

static enum shoal_status priority_set(struct service_call *call, struct sql_database *database)
{
    TRY(service_tags_check(call, json_object_get(call->input, "Tags"), &call->row.priority));
    return service_row_number(database, SERVICE_SQL_JOB_PRIORITY, call->row.id, call->row.priority);
}

static enum shoal_status add_run(struct service_call *call, struct sql_database *database)
{
    bool row;
    TRY(resource_find(call, database));
    TRY(service_tags_put(database, call->row.arn, json_object_get(call->input, "Tags")));
    sqlite3_stmt *count = sql_statement(database, SERVICE_SQL_TAG_COUNT);
    sql_bind_text(database, count, 1, call->row.arn);
    TRY(sql_step(database, count, &row));
    int64_t tags = row ? sqlite3_column_int64(count, 0) : 0;
    sql_reset(count);
    if (tags > SERVICE_TAGS_MAX)
        return service_refuse(call, "ResourceLimitExceeded",
                              "A resource has at most %d tags, and this one would have %d",
                              SERVICE_TAGS_MAX, (int)tags);
    TRY(priority_set(call, database));
    return service_tags_get(database, call->row.arn, "", SERVICE_TAGS_MAX, &call->output);
}

/* The reply has the tags under a name. */
static enum shoal_status add_reply(struct service_call *call, struct sql_database *database)
{
    TRY(add_run(call, database));
    call->output = json_pack("{s:o}", "Tags", call->output);
    return SHOAL_OK;
}

static void add_done(struct service_call *call)
{
    service_watch_priority(call->service->watch, call->row.id, call->row.priority);
}

const struct service_operation service_tags_add = {
    .name = "AddTags", .writes = true, .check = add_check, .run = add_reply, .done = add_done};

/* The token is the last key of the page before. */
static enum shoal_status list_run(struct service_call *call, struct sql_database *database)
{
    json_t *tags;
    const char *after = service_input_text(call, "NextToken");
    int64_t limit = service_input_number(call, "MaxResults", PAGE_DEFAULT);
    TRY(resource_find(call, database));
    if (limit > SERVICE_TAGS_MAX)
        limit = SERVICE_TAGS_MAX;
    TRY(service_tags_get(database, call->row.arn, after != NULL ? after : "", (int)limit, &tags));
    call->output = json_pack("{s:o}", "Tags", tags);
    return SHOAL_OK;
}

const struct service_operation service_tags_list = {.name = "ListTags", .run = list_run};

static enum shoal_status delete_run(struct service_call *call, struct sql_database *database)
{
    json_t *key;
    size_t i;
    TRY(resource_find(call, database));
    json_array_foreach(json_object_get(call->input, "TagKeys"), i, key)
    {
        sqlite3_stmt *remove = sql_statement(database, SERVICE_SQL_TAG_DELETE);
        sql_bind_text(database, remove, 1, call->row.arn);
        sql_bind_text(database, remove, 2, json_string_value(key));
        TRY(sql_run(database, remove));
        if (strcmp(json_string_value(key), SERVICE_PRIORITY_TAG) == 0)
            call->row.priority = 0;
    }
    TRY(service_row_number(database, SERVICE_SQL_JOB_PRIORITY, call->row.id, call->row.priority));
    call->output = json_object();
    return SHOAL_OK;
}

const struct service_operation service_tags_delete = {
    .name = "DeleteTags", .writes = true, .run = delete_run, .done = add_done};
