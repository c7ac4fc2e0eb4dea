/* SPDX-License-Identifier: Apache-2.0 */
/* record.c: rows of training jobs. */
#include "service/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"

#define PATH_BYTES  512
#define VALUE_BYTES 1025 /* filters have at most 1,024 */

#define SERVICE_SQL_TEXT(name, text) [SERVICE_SQL_##name] = text,
static const char *const statements[SERVICE_SQL_COUNT] = {SERVICE_STATEMENTS(SERVICE_SQL_TEXT)};

static const char *const upgrades[SERVICE_SCHEMA_VERSION - 1] = {SERVICE_UPGRADE_1,
                                                                 SERVICE_UPGRADE_2};

const struct sql_schema service_schema = {.what = "the database of jobs",
                                          .version = SERVICE_SCHEMA_VERSION,
                                          .tables = SERVICE_SCHEMA,
                                          .upgrades = upgrades,
                                          .statements = statements,
                                          .statement_count = SERVICE_SQL_COUNT};

int64_t service_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- reading ---- */

void service_row_take(sqlite3_stmt *at, struct service_row *out)
{
    out->id = sqlite3_column_int64(at, 0);
    snprintf(out->name, sizeof(out->name), "%s", sql_column_text(at, 1));
    snprintf(out->arn, sizeof(out->arn), "%s", sql_column_text(at, 2));
    out->phase = (enum service_phase)sqlite3_column_int(at, 3);
    out->attempt = sqlite3_column_int(at, 4);
    out->priority = sqlite3_column_int64(at, 5);
    snprintf(out->status, sizeof(out->status), "%s", sql_column_text(at, 6));
    snprintf(out->secondary, sizeof(out->secondary), "%s", sql_column_text(at, 7));
    out->is_stopping = strcmp(out->status, SERVICE_STOPPING) == 0;
    snprintf(out->reason, sizeof(out->reason), "%s", sql_column_text(at, 8));
    out->created_ms = sqlite3_column_int64(at, 9);
    out->modified_ms = sqlite3_column_int64(at, 10);
    out->started_ms = sqlite3_column_int64(at, 11);
    out->ended_ms = sqlite3_column_int64(at, 12);
    out->trained_ms = sqlite3_column_int64(at, 13);
    out->accelerators = (uint64_t)sqlite3_column_int64(at, 14);
    out->keep_s = sqlite3_column_int64(at, 15);
    snprintf(out->pool, sizeof(out->pool), "%s", sql_column_text(at, 16));
    out->pool_until_ms = sqlite3_column_int64(at, 17);
    out->pool_retained_ms = sqlite3_column_int64(at, 18);
    snprintf(out->pool_reused_by, sizeof(out->pool_reused_by), "%s", sql_column_text(at, 19));
    out->pool_cache = sqlite3_column_int64(at, 20);
    out->pool_since_ms = sqlite3_column_int64(at, 21);
}

static enum shoal_status take_one(struct sql_database *database, sqlite3_stmt *find, bool *found,
                                  struct service_row *out)
{
    TRY(sql_step(database, find, found));
    if (*found) {
        service_row_take(find, out);
        sql_reset(find);
    }
    return SHOAL_OK;
}

enum shoal_status service_row_find(struct sql_database *database, const char *name, bool *found,
                                   struct service_row *out)
{
    sqlite3_stmt *find = sql_statement(database, SERVICE_SQL_JOB_FIND);
    sql_bind_text(database, find, 1, name);
    return take_one(database, find, found, out);
}

enum shoal_status service_row_by_arn(struct sql_database *database, const char *arn, bool *found,
                                     struct service_row *out)
{
    sqlite3_stmt *find = sql_statement(database, SERVICE_SQL_JOB_BY_ARN);
    sql_bind_text(database, find, 1, arn);
    return take_one(database, find, found, out);
}

enum shoal_status service_row_get(struct sql_database *database, int64_t id,
                                  struct service_row *out)
{
    bool found;
    sqlite3_stmt *get = sql_statement(database, SERVICE_SQL_JOB_GET);
    sql_bind_int(database, get, 1, id);
    TRY(take_one(database, get, &found, out));
    return found ? SHOAL_OK : base_error(SHOAL_ERR_STATE, "the job is not there any more");
}

/* ---- changing ---- */

enum shoal_status service_row_number(struct sql_database *database, enum service_sql which,
                                     int64_t id, int64_t number)
{
    sqlite3_stmt *change = sql_statement(database, (int)which);
    sql_bind_int(database, change, 1, id);
    sql_bind_int(database, change, 2, number);
    return sql_run(database, change);
}

enum shoal_status service_row_text(struct sql_database *database, enum service_sql which,
                                   int64_t id, const char *text)
{
    sqlite3_stmt *change = sql_statement(database, (int)which);
    sql_bind_int(database, change, 1, id);
    sql_bind_text(database, change, 2, text);
    return sql_run(database, change);
}

enum shoal_status service_row_phase(struct sql_database *database, int64_t id,
                                    enum service_phase phase)
{
    return service_row_number(database, SERVICE_SQL_JOB_PHASE, id, (int64_t)phase);
}

static enum shoal_status transition_add(struct sql_database *database, int64_t id,
                                        enum service_secondary which, int64_t now_ms)
{
    TRY(service_row_number(database, SERVICE_SQL_TRANSITION_END, id, now_ms));
    sqlite3_stmt *add = sql_statement(database, SERVICE_SQL_TRANSITION_ADD);
    sql_bind_int(database, add, 1, id);
    sql_bind_text(database, add, 2, service_secondary_name(which));
    sql_bind_text(database, add, 3, service_secondary_message(which));
    sql_bind_int(database, add, 4, now_ms);
    if (service_secondary_ends(which))
        sql_bind_int(database, add, 5, now_ms);
    return sql_run(database, add);
}

enum shoal_status service_row_enter(struct sql_database *database, int64_t id,
                                    enum service_secondary which)
{
    struct service_row row;
    int64_t now_ms = service_now_ms();
    const char *name = service_secondary_name(which), *status = service_secondary_status(which);
    TRY(service_row_get(database, id, &row));
    if (strcmp(row.secondary, name) == 0)
        TRY(service_row_text(database, SERVICE_SQL_TRANSITION_MESSAGE, id,
                             service_secondary_message(which)));
    else
        TRY(transition_add(database, id, which, now_ms));
    if (row.is_stopping && !service_secondary_ends(which))
        status = SERVICE_STOPPING;
    sqlite3_stmt *set = sql_statement(database, SERVICE_SQL_JOB_STATUS);
    sql_bind_int(database, set, 1, id);
    sql_bind_text(database, set, 2, status);
    sql_bind_text(database, set, 3, name);
    sql_bind_int(database, set, 4, now_ms);
    return sql_run(database, set);
}

enum shoal_status service_row_delete(struct sql_database *database, const struct service_row *row)
{
    static const enum service_sql all[] = {SERVICE_SQL_PROPERTY_DELETE,
                                           SERVICE_SQL_TRANSITION_DELETE,
                                           SERVICE_SQL_REQUEST_DELETE, SERVICE_SQL_JOB_DELETE};
    sqlite3_stmt *tags = sql_statement(database, SERVICE_SQL_TAG_DELETE_ALL);
    sql_bind_text(database, tags, 1, row->arn);
    TRY(sql_run(database, tags));
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        sqlite3_stmt *statement = sql_statement(database, (int)all[i]);
        sql_bind_int(database, statement, 1, row->id);
        TRY(sql_run(database, statement));
    }
    return SHOAL_OK;
}

/* ---- documents ---- */

static enum shoal_status document_read(const char *text, json_t **out)
{
    json_error_t error;
    *out = json_loads(text, 0, &error);
    if (*out == NULL)
        return base_error(SHOAL_ERR_FORMAT,
                          "the database of jobs holds a document that is none: %s", error.text);
    return SHOAL_OK;
}

enum shoal_status service_request_get(struct sql_database *database, int64_t id, json_t **request,
                                      json_t **metrics)
{
    bool found;
    sqlite3_stmt *get = sql_statement(database, SERVICE_SQL_REQUEST_GET);
    sql_bind_int(database, get, 1, id);
    TRY(sql_step(database, get, &found));
    if (!found)
        return base_error(SHOAL_ERR_STATE, "the job is not there any more");
    json_t *all = NULL;
    enum shoal_status status = document_read(sql_column_text(get, 0), &all);
    if (status == SHOAL_OK && metrics != NULL) {
        const char *text = sql_column_text(get, 1);
        *metrics = NULL;
        if (text[0] != '\0')
            status = document_read(text, metrics);
    }
    sql_reset(get);
    if (status == SHOAL_OK)
        *request = all;
    else
        json_decref(all);
    return status;
}

enum shoal_status service_request_put(struct sql_database *database, enum service_sql which,
                                      int64_t id, const json_t *request)
{
    char *text = json_dumps(request, JSON_COMPACT);
    if (text == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's request");
    enum shoal_status status = service_row_text(database, which, id, text);
    free(text);
    return status;
}

static json_t *transition_json(sqlite3_stmt *at)
{
    json_t *one =
        json_pack("{s:s, s:s, s:f}", "Status", sql_column_text(at, 0), "StatusMessage",
                  sql_column_text(at, 1), "StartTime", (double)sqlite3_column_int64(at, 2) / 1000);
    if (one != NULL && sqlite3_column_type(at, 3) != SQLITE_NULL)
        json_object_set_new(one, "EndTime", json_real((double)sqlite3_column_int64(at, 3) / 1000));
    return one;
}

enum shoal_status service_transitions_get(struct sql_database *database, int64_t id, json_t **out)
{
    json_t *list = json_array();
    bool found = true;
    enum shoal_status status = SHOAL_OK;
    sqlite3_stmt *all = sql_statement(database, SERVICE_SQL_TRANSITION_LIST);
    sql_bind_int(database, all, 1, id);
    while (status == SHOAL_OK && (status = sql_step(database, all, &found)) == SHOAL_OK && found)
        if (json_array_append_new(list, transition_json(all)) != 0) {
            sql_reset(all);
            status = base_error(SHOAL_ERR_MEMORY, "no memory for a job's transitions");
        }
    if (status == SHOAL_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

/* ---- properties ---- */

struct property {
    struct sql_database *database;
    int64_t id, item;
    char path[PATH_BYTES];
};

static enum shoal_status scalar_put(const struct property *at, const json_t *value)
{
    char text[VALUE_BYTES], *end;
    if (json_is_string(value))
        snprintf(text, sizeof(text), "%s", json_string_value(value));
    else if (json_is_boolean(value))
        snprintf(text, sizeof(text), "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_integer(value))
        snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, sizeof(text), "%.17g", json_real_value(value));
    else
        return SHOAL_OK;
    double number = strtod(text, &end);
    sqlite3_stmt *add = sql_statement(at->database, SERVICE_SQL_PROPERTY_ADD);
    sql_bind_text(at->database, add, 1, at->path);
    sql_bind_int(at->database, add, 2, at->id);
    sql_bind_int(at->database, add, 3, at->item);
    sql_bind_text(at->database, add, 4, text);
    if (end != text && *end == '\0')
        sql_bind_real(at->database, add, 5, number);
    return sql_run(at->database, add);
}

static enum shoal_status put(struct property *at, const json_t *value);

static enum shoal_status object_put(struct property *at, const json_t *object)
{
    const char *name;
    json_t *member;
    size_t used = strlen(at->path);
    json_object_foreach((json_t *)object, name, member)
    {
        int bytes =
            snprintf(at->path + used, sizeof(at->path) - used, "%s%s", used > 0 ? "." : "", name);
        if (bytes < (int)(sizeof(at->path) - used)) /* longer ones can't be asked for */
            TRY(put(at, member));
        at->path[used] = '\0';
    }
    return SHOAL_OK;
}

static enum shoal_status array_put(struct property *at, const json_t *array)
{
    bool is_outermost = at->item < 0;
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (is_outermost)
            at->item = (int64_t)i;
        TRY(put(at, json_array_get(array, i)));
    }
    if (is_outermost)
        at->item = -1;
    return SHOAL_OK;
}

static enum shoal_status put(struct property *at, const json_t *value)
{
    if (json_is_object(value))
        return object_put(at, value);
    return json_is_array(value) ? array_put(at, value) : scalar_put(at, value);
}

enum shoal_status service_property_put(struct sql_database *database, int64_t id, const char *path,
                                       const json_t *value)
{
    struct property at = {.database = database, .id = id, .item = -1};
    snprintf(at.path, sizeof(at.path), "%s", path);
    return put(&at, value);
}

enum shoal_status service_metrics_index(struct sql_database *database, int64_t id,
                                        const json_t *metrics)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < json_array_size(metrics); i++) {
        const json_t *metric = json_array_get(metrics, i);
        const char *name = json_string_value(json_object_get(metric, "MetricName"));
        snprintf(path, sizeof(path), "Metrics.%s", name != NULL ? name : "");
        TRY(service_property_put(database, id, path, json_object_get(metric, "Value")));
    }
    return SHOAL_OK;
}
