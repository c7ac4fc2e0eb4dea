/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training_list.c: ListTrainingJobs. A token is what the last row of a page was sorted by, and its
 * id: pages stay whole while jobs come and go.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "service/call.h"
#include "service/training_describe.h"

#define PAGE_DEFAULT 10

/* ?7 and ?8 of SERVICE_LIST, as the token has them: "ID VALUE". */
static enum shoal_status token_bind(struct service_call *call, struct sql_database *database,
                                    sqlite3_stmt *list, bool is_number)
{
    const char *token = service_input_text(call, "NextToken");
    char *end;
    if (token == NULL || *token == '\0')
        return SHOAL_OK;
    errno = 0;
    long long id = strtoll(token, &end, 10);
    if (errno != 0 || end == token || *end != ' ')
        return service_refuse(call, "ValidationException", "Invalid NextToken");
    if (is_number)
        sql_bind_int(database, list, 7, strtoll(end + 1, NULL, 10));
    else
        sql_bind_text(database, list, 7, end + 1);
    sql_bind_int(database, list, 8, id);
    return SHOAL_OK;
}

static json_t *token_of(const struct service_row *row, enum service_sql which)
{
    if (which == SERVICE_SQL_LIST_NAME_UP || which == SERVICE_SQL_LIST_NAME_DOWN)
        return json_sprintf("%" PRId64 " %s", row->id, row->name);
    if (which == SERVICE_SQL_LIST_STATUS_UP || which == SERVICE_SQL_LIST_STATUS_DOWN)
        return json_sprintf("%" PRId64 " %s", row->id, row->status);
    return json_sprintf("%" PRId64 " %" PRId64, row->id, row->created_ms);
}

static enum service_sql statement_of(const struct service_call *call)
{
    const char *by = service_input_text(call, "SortBy");
    const char *order = service_input_text(call, "SortOrder");
    bool down = order == NULL || strcmp(order, "Descending") == 0;
    if (by != NULL && strcmp(by, "Name") == 0)
        return down ? SERVICE_SQL_LIST_NAME_DOWN : SERVICE_SQL_LIST_NAME_UP;
    if (by != NULL && strcmp(by, "Status") == 0)
        return down ? SERVICE_SQL_LIST_STATUS_DOWN : SERVICE_SQL_LIST_STATUS_UP;
    return down ? SERVICE_SQL_LIST_CREATED_DOWN : SERVICE_SQL_LIST_CREATED_UP;
}

static void filters_bind(struct service_call *call, struct sql_database *database,
                         sqlite3_stmt *list)
{
    static const char *const times[] = {"CreationTimeAfter", "CreationTimeBefore",
                                        "LastModifiedTimeAfter", "LastModifiedTimeBefore"};
    for (int i = 0; i < 4; i++) {
        const json_t *time = json_object_get(call->input, times[i]);
        if (json_is_number(time))
            sql_bind_int(database, list, i + 1, (int64_t)(json_number_value(time) * 1000));
    }
    sql_bind_text(database, list, 5, service_input_text(call, "NameContains"));
    sql_bind_text(database, list, 6, service_input_text(call, "StatusEquals"));
    sql_bind_text(database, list, 10, service_input_text(call, "WarmPoolStatusEquals"));
}

/* Appends up to `limit` jobs; *more: there is another, and *last is the one before it. */
static enum shoal_status rows_read(struct sql_database *database, sqlite3_stmt *list, int64_t limit,
                                   json_t *jobs, bool *more, struct service_row *last)
{
    bool found;
    *more = false;
    for (;;) {
        TRY(sql_step(database, list, &found));
        if (!found)
            return SHOAL_OK;
        if ((int64_t)json_array_size(jobs) == limit) {
            *more = true;
            sql_reset(list);
            return SHOAL_OK;
        }
        service_row_take(list, last);
        if (json_array_append_new(jobs, service_training_summary(last)) != 0) {
            sql_reset(list);
            return base_error(SHOAL_ERR_MEMORY, "no memory for a list of jobs");
        }
    }
}

static enum shoal_status run(struct service_call *call, struct sql_database *database)
{
    int64_t limit = service_input_number(call, "MaxResults", PAGE_DEFAULT);
    enum service_sql which = statement_of(call);
    sqlite3_stmt *list = sql_statement(database, (int)which);
    bool more,
        is_number = which == SERVICE_SQL_LIST_CREATED_UP || which == SERVICE_SQL_LIST_CREATED_DOWN;
    struct service_row last;
    TRY(token_bind(call, database, list, is_number));
    filters_bind(call, database, list);
    sql_bind_int(database, list, 9, limit + 1);
    json_t *jobs = json_array();
    call->output = json_pack("{s:o}", "TrainingJobSummaries", jobs);
    if (call->output == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a list of jobs");
    if (json_object_get(call->input, "TrainingPlanArnEquals") != NULL)
        return SHOAL_OK; /* no job has any */
    TRY(rows_read(database, list, limit, jobs, &more, &last));
    if (more)
        json_object_set_new(call->output, "NextToken", token_of(&last, which));
    return SHOAL_OK;
}

const struct service_operation service_training_list = {.name = "ListTrainingJobs", .run = run};
