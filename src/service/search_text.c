/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search_text.c: searches as SQL. A property is a column of job, a tag, or a row of property, by
 * its path; the first two words of a path tell which.
 */
#include "service/search_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "service/sql.h"

#define NAME_BYTES  512
#define SECONDS_MAX 1e12 /* some 30,000 years */

enum kind { KIND_TEXT, KIND_NUMBER, KIND_TIME };

static const struct column {
    const char *name, *expression;
    enum kind kind;
} columns[] = {
    {"TrainingJobName", "name", KIND_TEXT},
    {"TrainingJobArn", "arn", KIND_TEXT},
    {"TrainingJobStatus", "status", KIND_TEXT},
    {"SecondaryStatus", "secondary", KIND_TEXT},
    {"FailureReason", "reason", KIND_TEXT},
    {"WarmPoolStatus.Status", "pool", KIND_TEXT},
    {"CreationTime", "created_ms", KIND_TIME},
    {"LastModifiedTime", "modified_ms", KIND_TIME},
    {"TrainingStartTime", "started_ms", KIND_TIME},
    {"TrainingEndTime", "ended_ms", KIND_TIME},
    {"TrainingTimeInSeconds", "(CASE WHEN phase = 4 THEN trained_ms / 1000 END)", KIND_NUMBER},
    {"BillableTimeInSeconds", "(CASE WHEN phase = 4 THEN trained_ms / 1000 END)", KIND_NUMBER},
};

static const struct comparison {
    const char *name, *sign;
} comparisons[] = {{"GreaterThan", ">"},
                   {"GreaterThanOrEqualTo", ">="},
                   {"LessThan", "<"},
                   {"LessThanOrEqualTo", "<="}};

/* ---- text and values ---- */

static void fail(struct service_search_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void fail(struct service_search_text *text, const char *format, ...)
{
    va_list arguments;
    if (text->failed)
        return;
    va_start(arguments, format);
    vsnprintf(text->fault->text, sizeof(text->fault->text), format, arguments);
    va_end(arguments);
    text->fault->type = "ValidationException";
    text->failed = true;
}

static void put(struct service_search_text *text, const char *part)
{
    size_t bytes = strlen(part);
    if (text->used + bytes + 1 > sizeof(text->sql)) {
        fail(text, "The search expression is too large");
        return;
    }
    memcpy(text->sql + text->used, part, bytes + 1);
    text->used += bytes;
}

/* A value, as "?N" in the text. Takes it. */
static void put_value(struct service_search_text *text, json_t *value)
{
    char place[16];
    if (json_array_append_new(text->values, value) != 0)
        fail(text, "The search expression is too large");
    snprintf(place, sizeof(place), "?%zu", json_array_size(text->values));
    put(text, place);
}

static bool number_read(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

bool service_time_read(const char *text, int64_t *ms)
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M",
                                        "%Y-%m-%d"};
    double seconds;
    if (number_read(text, &seconds)) {
        *ms = fabs(seconds) <= SECONDS_MAX ? (int64_t)(seconds * 1000) : 0;
        return fabs(seconds) <= SECONDS_MAX;
    }
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm parts = {0};
        const char *rest = strptime(text, forms[i], &parts);
        if (rest == NULL)
            continue;
        size_t digits = *rest == '.' ? strspn(rest + 1, "0123456789") : 0;
        double fraction = digits > 0 ? strtod(rest, NULL) : 0;
        rest += digits > 0 ? digits + 1 : 0;
        if (*rest != '\0' && strcmp(rest, "Z") != 0 && strcmp(rest, "+00:00") != 0)
            continue;
        *ms = (int64_t)timegm(&parts) * 1000 + (int64_t)(fraction * 1000);
        return true;
    }
    return false;
}

/* ---- conditions ---- */

static const struct column *column_find(const char *name)
{
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        if (strcmp(columns[i].name, name) == 0)
            return &columns[i];
    return NULL;
}

static const char *sign_of(const char *how)
{
    for (size_t i = 0; i < sizeof(comparisons) / sizeof(comparisons[0]); i++)
        if (strcmp(comparisons[i].name, how) == 0)
            return comparisons[i].sign;
    return "=";
}

/* The value as the kind of what it is compared with. */
static void put_typed(struct service_search_text *text, enum kind kind, const char *value)
{
    int64_t ms = 0;
    double number = 0;
    if (kind == KIND_TIME && !service_time_read(value, &ms))
        fail(text, "'%s' is no time, such as 2026-01-31T12:00:00Z", value);
    if (kind == KIND_NUMBER && !number_read(value, &number))
        fail(text, "'%s' is no number", value);
    if (kind == KIND_TIME)
        put_value(text, json_integer(ms));
    else
        put_value(text, kind == KIND_NUMBER ? json_real(number) : json_string(value));
}

/* "IN (…)" of words with commas between them. */
static void put_list(struct service_search_text *text, enum kind kind, const char *value)
{
    char word[1025];
    put(text, " IN (");
    for (const char *at = value;; at++) {
        size_t bytes = strcspn(at, ",");
        snprintf(word, sizeof(word), "%.*s", (int)bytes, at);
        put_typed(text, kind, word);
        at += bytes;
        if (*at == '\0')
            break;
        put(text, ", ");
    }
    put(text, ")");
}

/* "<expression> <how> <value>" */
static void put_condition(struct service_search_text *text, const char *expression, enum kind kind,
                          const char *how, const char *value)
{
    if (strcmp(how, "Contains") == 0) {
        put(text, "instr(");
        put(text, expression);
        put(text, ", ");
        put_value(text, json_string(value));
        put(text, ") > 0");
        return;
    }
    put(text, expression);
    if (strcmp(how, "In") == 0) {
        put_list(text, kind, value);
        return;
    }
    put(text, sign_of(how));
    put_typed(text, kind, value);
}

static void put_column(struct service_search_text *text, const struct column *column,
                       const char *how, const char *value)
{
    if (strcmp(how, "Exists") == 0 || strcmp(how, "NotExists") == 0) {
        put(text, column->expression);
        put(text, *how == 'E' ? " IS NOT NULL" : " IS NULL");
    } else if (strcmp(how, "NotEquals") == 0) {
        put(text, column->expression);
        put(text, " IS NOT ");
        put_typed(text, column->kind, value);
    } else {
        put_condition(text, column->expression, column->kind, how, value);
    }
}

/* On `prefix`text and `prefix`number of a row of property: as numbers, if the value is one. */
static void put_scalar(struct service_search_text *text, const char *prefix, const char *how,
                       const char *value)
{
    char words[64], numbers[64];
    double number;
    snprintf(words, sizeof(words), "%stext", prefix);
    snprintf(numbers, sizeof(numbers), "%snumber", prefix);
    bool is_order = strcmp(sign_of(how), "=") != 0;
    bool is_equal = strcmp(how, "Equals") == 0 || strcmp(how, "NotEquals") == 0;
    if (number_read(value, &number) && is_order) {
        put_condition(text, numbers, KIND_NUMBER, how, value);
    } else if (number_read(value, &number) && is_equal) {
        put(text, "(");
        put_condition(text, numbers, KIND_NUMBER, "Equals", value);
        put(text, " OR ");
        put_condition(text, words, KIND_TEXT, "Equals", value);
        put(text, ")");
    } else {
        put_condition(text, words, KIND_TEXT, is_equal ? "Equals" : how, value);
    }
}

static bool is_negative(const char *how)
{
    return strncmp(how, "Not", 3) == 0;
}

static bool is_existence(const char *how)
{
    return strcmp(how, "Exists") == 0 || strcmp(how, "NotExists") == 0;
}

static void put_tag(struct service_search_text *text, const char *key, const char *how,
                    const char *value)
{
    put(text, is_negative(how) ? "arn NOT IN (" : "arn IN (");
    put(text, "SELECT arn FROM tag WHERE key = ");
    put_value(text, json_string(key));
    if (!is_existence(how)) {
        put(text, " AND ");
        put_condition(text, "value", KIND_TEXT, strcmp(how, "NotEquals") == 0 ? "Equals" : how,
                      value);
    }
    put(text, ")");
}

static void put_property(struct service_search_text *text, const char *path, const char *how,
                         const char *value)
{
    put(text, is_negative(how) ? "id NOT IN (" : "id IN (");
    put(text, "SELECT job FROM property WHERE path = ");
    put_value(text, json_string(path));
    if (!is_existence(how)) {
        put(text, " AND ");
        put_scalar(text, "", how, value);
    }
    put(text, ")");
}

/* What a filter says, checked. */
static bool filter_read(struct service_search_text *text, const json_t *filter, const char **name,
                        const char **how, const char **value)
{
    *name = json_string_value(json_object_get(filter, "Name"));
    *how = json_string_value(json_object_get(filter, "Operator"));
    *value = json_string_value(json_object_get(filter, "Value"));
    if (*how == NULL)
        *how = *value != NULL ? "Equals" : "Exists";
    if (*value == NULL && !is_existence(*how))
        fail(text, "The filter on %s needs a Value", *name);
    return !text->failed;
}

static void put_filter(struct service_search_text *text, const json_t *filter)
{
    const char *name, *how, *value;
    if (!filter_read(text, filter, &name, &how, &value))
        return;
    const struct column *column = column_find(name);
    if (column != NULL)
        put_column(text, column, how, value);
    else if (strncmp(name, "Tags.", 5) == 0)
        put_tag(text, name + 5, how, value);
    else
        put_property(text, name, how, value);
}

/* All filters hold on one element of a list: rows of property with the same job and item. */
static void put_nested(struct service_search_text *text, const json_t *nested)
{
    const char *list = json_string_value(json_object_get(nested, "NestedPropertyName"));
    const json_t *filters = json_object_get(nested, "Filters");
    size_t list_bytes = strlen(list);
    put(text, "id IN (SELECT p0.job FROM property p0");
    for (size_t i = 1; i < json_array_size(filters); i++) {
        char join[128];
        snprintf(join, sizeof(join),
                 " JOIN property p%zu ON p%zu.job = p0.job AND p%zu.item = p0.item", i, i, i);
        put(text, join);
    }
    for (size_t i = 0; i < json_array_size(filters) && !text->failed; i++) {
        const char *name, *how, *value;
        char prefix[32], path[NAME_BYTES];
        if (!filter_read(text, json_array_get(filters, i), &name, &how, &value))
            return;
        bool is_whole = strncmp(name, list, list_bytes) == 0 && name[list_bytes] == '.';
        snprintf(path, sizeof(path), "%s%s%s", is_whole ? "" : list, is_whole ? "" : ".", name);
        snprintf(prefix, sizeof(prefix), "p%zu.", i);
        if (is_negative(how))
            fail(text, "%s is not supported in NestedFilters", how);
        put(text, i == 0 ? " WHERE " : " AND ");
        put(text, prefix);
        put(text, "path = ");
        put_value(text, json_string(path));
        if (!is_existence(how)) {
            put(text, " AND ");
            put_scalar(text, prefix, how, value);
        }
    }
    put(text, ")");
}

/* ---- expressions ---- */

struct joint { /* between conditions */
    const char *word;
    int count;
};

static void put_joint(struct service_search_text *text, struct joint *joint)
{
    put(text, joint->count++ == 0 ? "(" : joint->word);
}

static void put_expression(struct service_search_text *text, const json_t *expression, int depth)
{
    const char *how = json_string_value(json_object_get(expression, "Operator"));
    struct joint joint = {how != NULL && strcmp(how, "Or") == 0 ? " OR " : " AND ", 0};
    json_t *one;
    size_t i;
    if (depth > SERVICE_SEARCH_DEPTH)
        fail(text, "SubExpressions go %d deep at most", SERVICE_SEARCH_DEPTH);
    if (text->failed)
        return;
    json_array_foreach(json_object_get(expression, "Filters"), i, one)
    {
        put_joint(text, &joint);
        put_filter(text, one);
    }
    json_array_foreach(json_object_get(expression, "NestedFilters"), i, one)
    {
        put_joint(text, &joint);
        put_nested(text, one);
    }
    json_array_foreach(json_object_get(expression, "SubExpressions"), i, one)
    {
        put_joint(text, &joint);
        put_expression(text, one, depth + 1);
    }
    put(text, joint.count > 0 ? ")" : "1");
}

static void put_order(struct service_search_text *text, const json_t *request)
{
    const char *by = json_string_value(json_object_get(request, "SortBy"));
    const char *order = json_string_value(json_object_get(request, "SortOrder"));
    bool up = order != NULL && strcmp(order, "Ascending") == 0;
    const struct column *column = column_find(by != NULL ? by : "LastModifiedTime");
    put(text, " ORDER BY ");
    if (column != NULL) {
        put(text, column->expression);
    } else {
        put(text, "(SELECT coalesce(number, text) FROM property WHERE job = id AND path = ");
        put_value(text, json_string(by));
        put(text, " LIMIT 1)");
    }
    put(text, up ? " ASC, id ASC" : " DESC, id DESC");
}

bool service_search_write(struct service_search_text *text, const json_t *request, int64_t limit,
                          int64_t offset, struct job_fault *fault)
{
    *text = (struct service_search_text){.values = json_array(), .fault = fault};
    put(text, "SELECT " SERVICE_JOB_COLUMNS " FROM job WHERE ");
    put_expression(text, json_object_get(request, "SearchExpression"), 1);
    put_order(text, request);
    put(text, " LIMIT ");
    put_value(text, json_integer(limit));
    put(text, " OFFSET ");
    put_value(text, json_integer(offset));
    return !text->failed;
}

void service_search_bind(const struct service_search_text *text, struct sql_database *database,
                         sqlite3_stmt *statement)
{
    for (size_t i = 0; i < json_array_size(text->values); i++) {
        const json_t *value = json_array_get(text->values, i);
        if (json_is_integer(value))
            sql_bind_int(database, statement, (int)i + 1, json_integer_value(value));
        else if (json_is_real(value))
            sql_bind_real(database, statement, (int)i + 1, json_real_value(value));
        else
            sql_bind_text(database, statement, (int)i + 1, json_string_value(value));
    }
}
