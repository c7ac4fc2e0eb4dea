/* SPDX-License-Identifier: Apache-2.0 */
/* query.c: forms into JSON, by the model's shapes, and JSON into XML. */
#include "logs/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"

#define LIST_MAX 1000 /* items of a list: twice what any list here may have */

/* ---- requests ---- */

/* "2026-11-20T17:33:47Z", with a fraction or without; false for other texts. */
static bool time_read(const char *text, double *seconds)
{
    struct tm parts = {0};
    char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);
    if (end == NULL)
        return false;
    double fraction = *end == '.' ? strtod(end, &end) : 0;
    *seconds = (double)timegm(&parts) + fraction;
    return strcmp(end, "Z") == 0 || strcmp(end, "+00:00") == 0;
}

static json_t *scalar(enum job_shape_kind kind, const char *text)
{
    char *end = NULL;
    double seconds;
    errno = 0;
    if (kind == JOB_INTEGER || kind == JOB_LONG) {
        long long whole = strtoll(text, &end, 10);
        return end != text && *end == '\0' && errno == 0 ? json_integer(whole) : json_string(text);
    }
    if (kind == JOB_FLOAT) {
        double number = strtod(text, &end);
        json_t *real = end != text && *end == '\0' ? json_real(number) : NULL;
        return real != NULL ? real : json_string(text); /* not of what is not finite */
    }
    if (kind == JOB_TIMESTAMP)
        return time_read(text, &seconds) ? json_real(seconds) : json_string(text);
    bool is_true = strcmp(text, "true") == 0;
    if (kind == JOB_BOOLEAN && (is_true || strcmp(text, "false") == 0))
        return json_boolean(is_true);
    return json_string(text);
}

/* A place in an object or a list, and what the model has there. */
struct place {
    json_t *parent;
    const char *name; /* of an object's member */
    size_t index;     /* of a list's item */
    const struct job_shape *shape;
};

static json_t *place_get(const struct place *place)
{
    return place->name != NULL ? json_object_get(place->parent, place->name)
                               : json_array_get(place->parent, place->index);
}

/* Items of a list that nothing was said of yet are null. */
static enum shoal_status place_set(const struct place *place, json_t *value)
{
    int failed = value == NULL;
    while (place->name == NULL && failed == 0 && json_array_size(place->parent) <= place->index)
        failed = json_array_append_new(place->parent, json_null());
    if (failed == 0)
        failed = place->name != NULL ? json_object_set_new(place->parent, place->name, value)
                                     : json_array_set_new(place->parent, place->index, value);
    else
        json_decref(value);
    return failed == 0 ? SHOAL_OK : base_error(SHOAL_ERR_MEMORY, "no memory for a request");
}

/* Takes the first step of a path: a member's name. NULL where the model has no such member. */
static const struct job_shape *member_find(const struct job_model *model,
                                           const struct job_shape *shape, const char **path,
                                           const char **name)
{
    size_t bytes = strcspn(*path, ".");
    for (size_t i = 0; i < shape->member_count; i++) {
        const struct job_member *member = &model->members[shape->first_member + i];
        if (strlen(member->name) == bytes && strncmp(member->name, *path, bytes) == 0) {
            *path += bytes;
            *name = member->name;
            return &model->shapes[member->shape];
        }
    }
    return NULL;
}

/* The same of a list: "member.3". */
static enum shoal_status index_take(const char **path, size_t *index)
{
    static const char step[] = "member.";
    char *end = NULL;
    unsigned long number = 0;
    bool is_step = strncmp(*path, step, sizeof(step) - 1) == 0;
    const char *digits = *path + sizeof(step) - 1;
    if (is_step && *digits >= '1' && *digits <= '9')
        number = strtoul(digits, &end, 10);
    if (number == 0 || number > LIST_MAX || (*end != '.' && *end != '\0'))
        return base_error(SHOAL_ERR_FORMAT, "'%.100s' is no item of a list: member.1 to member.%d",
                          *path, LIST_MAX);
    *index = number - 1;
    *path = end;
    return SHOAL_OK;
}

static bool is_container(const struct job_shape *shape)
{
    return shape->kind == JOB_STRUCTURE || shape->kind == JOB_LIST || shape->kind == JOB_MAP;
}

/* The container at a place, which is made where there is none. */
static enum shoal_status container_at(const struct place *place, json_t **out)
{
    json_t *there = place_get(place);
    if (there == NULL || json_is_null(there))
        TRY(place_set(place, place->shape->kind == JOB_LIST ? json_array() : json_object()));
    *out = place_get(place);
    return SHOAL_OK;
}

enum shoal_status logs_query_put(const struct job_model *model,
                                 const struct job_operation *operation, json_t *request,
                                 const char *name, const char *value)
{
    struct place place = {.shape = &model->shapes[operation->input]};
    json_t *container = request;
    for (const char *path = name; container != NULL;) {
        const struct job_shape *shape = place.shape;
        place = (struct place){.parent = container};
        if (shape->kind == JOB_STRUCTURE)
            place.shape = member_find(model, shape, &path, &place.name);
        else if (shape->kind == JOB_LIST) {
            TRY(index_take(&path, &place.index));
            place.shape = &model->shapes[shape->element];
        }
        if (place.shape == NULL)
            return SHOAL_OK;
        if (!is_container(place.shape))
            return *path == '\0' ? place_set(&place, scalar(place.shape->kind, value)) : SHOAL_OK;
        if (*path == '\0')
            return SHOAL_OK; /* "Dimensions=": an empty list */
        path++;
        TRY(container_at(&place, &container));
    }
    return SHOAL_OK;
}

/* ---- replies ---- */

static void time_write(struct http_text *out, double seconds)
{
    char text[40];
    struct tm parts;
    time_t whole = (time_t)seconds;
    gmtime_r(&whole, &parts);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    http_text_put(out, text);
}

static void number_write(struct http_text *out, bool is_time, double number)
{
    if (is_time)
        time_write(out, number);
    else
        http_text_format(out, "%.17g", number);
}

/* The only numbers that are times are those of members called so. */
static void value_write(struct http_text *out, const char *name, bool is_time, const json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    http_text_format(out, "<%s>", name);
    json_object_foreach((json_t *)value, key, item)
    {
        value_write(out, key, strncmp(key, "Timestamp", 9) == 0, item);
    }
    json_array_foreach(value, i, item)
    {
        value_write(out, "member", is_time, item);
    }
    if (json_is_string(value))
        http_text_xml(out, json_string_value(value));
    if (json_is_number(value))
        number_write(out, is_time, json_number_value(value));
    http_text_format(out, "</%s>", name);
}

void logs_query_reply(struct http_text *out, const char *operation, const char *request_id,
                      const json_t *reply)
{
    char result[80];
    snprintf(result, sizeof(result), "%.60sResult", operation);
    http_text_format(out, "<%sResponse xmlns=\"https://monitoring.amazonaws.com/doc/2010-08-01/\">",
                     operation);
    value_write(out, result, false, reply);
    http_text_put(out, "<ResponseMetadata>");
    http_text_element(out, "RequestId", request_id);
    http_text_format(out, "</ResponseMetadata></%sResponse>", operation);
}
