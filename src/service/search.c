/* SPDX-License-Identifier: Apache-2.0 */
/* search.c: Search for training jobs. Resources that there are none of here give no results. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "service/call.h"
#include "service/search_text.h"
#include "service/tags.h"
#include "service/training_describe.h"

#define PAGE_DEFAULT 10

static enum shoal_status result_add(struct sql_database *database, const struct service_row *row,
                                    json_t *results)
{
    json_t *job, *tags = NULL;
    TRY(service_training_json(database, row, &job));
    enum shoal_status status = service_tags_get(database, row->arn, "", SERVICE_TAGS_MAX, &tags);
    if (status == SHOAL_OK)
        json_object_set_new(job, "Tags", tags);
    json_array_append_new(results, json_pack("{s:o}", "TrainingJob", job));
    return status;
}

static enum shoal_status rows_read(struct sql_database *database, sqlite3_stmt *statement,
                                   int64_t limit, json_t *results, bool *more)
{
    struct service_row row;
    *more = false;
    for (;;) {
        TRY(sql_step(database, statement, more));
        if (!*more || (int64_t)json_array_size(results) == limit)
            return SHOAL_OK;
        service_row_take(statement, &row);
        TRY(result_add(database, &row, results));
    }
}

/* The token of a page is how many results are before it. */
static enum shoal_status offset_read(struct service_call *call, int64_t *out)
{
    const char *token = service_input_text(call, "NextToken");
    char *end;
    *out = 0;
    if (token == NULL || *token == '\0')
        return SHOAL_OK;
    *out = strtoll(token, &end, 10);
    if (*end != '\0' || *out < 0)
        return service_refuse(call, "ValidationException", "Invalid NextToken");
    return SHOAL_OK;
}

static enum shoal_status search(struct service_call *call, struct sql_database *database,
                                struct service_search_text *text)
{
    int64_t limit = service_input_number(call, "MaxResults", PAGE_DEFAULT);
    int64_t offset;
    bool more;
    sqlite3_stmt *statement;
    TRY(offset_read(call, &offset));
    if (!service_search_write(text, call->input, limit + 1, offset, &call->fault))
        return base_error(SHOAL_ERR_ARGUMENT, "%s", call->fault.type);
    json_t *results = json_array();
    call->output = json_pack("{s:o}", "Results", results);
    TRY(sql_prepare(database, text->sql, &statement));
    service_search_bind(text, database, statement);
    enum shoal_status status = rows_read(database, statement, limit, results, &more);
    sqlite3_finalize(statement);
    if (status == SHOAL_OK && more)
        json_object_set_new(call->output, "NextToken", json_sprintf("%" PRId64, offset + limit));
    return status;
}

static enum shoal_status run(struct service_call *call, struct sql_database *database)
{
    struct service_search_text *text;
    if (strcmp(service_input_text(call, "Resource"), "TrainingJob") != 0) {
        call->output = json_pack("{s:[]}", "Results");
        return SHOAL_OK;
    }
    TRY(BASE_NEW(&text, "a search"));
    enum shoal_status status = search(call, database, text);
    json_decref(text->values);
    base_free(text);
    return status;
}

const struct service_operation service_search = {.name = "Search", .run = run};
