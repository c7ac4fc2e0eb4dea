/* SPDX-License-Identifier: Apache-2.0 */
/*
 * validate.c: one walk over request and model together. A value of a wrong type ends it at once, as
 * reading the request does in the service; all broken constraints are listed.
 *
 * Texts are of any length and content, patterns are not ours: each match has a limit of steps, and
 * what exceeds it does not match.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "job/validate.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <pcre2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/outcome.h"

#define DEPTH_MAX        64
#define PATH_BYTES       1024
#define VALUE_BYTES      512
#define MATCH_STEPS_MAX  200000
#define LIST_SHOWN_MAX   20
#define CONSTRAINT_BYTES 1024
#define SECONDS_MAX      1e12 /* of a time since 1970: some 30,000 years */

struct job_validator {
    const struct job_model *model;
    pcre2_code **patterns; /* [shape_count]; NULL: any text */
    pcre2_match_context *context;
};

/* ---- patterns ---- */

static enum shoal_status compile(struct job_validator *validator, size_t index)
{
    const struct job_shape *shape = &validator->model->shapes[index];
    int error;
    PCRE2_SIZE offset;
    validator->patterns[index] = pcre2_compile(
        (PCRE2_SPTR)shape->expression, PCRE2_ZERO_TERMINATED,
        PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NO_UTF_CHECK, &error, &offset, NULL);
    if (validator->patterns[index] == NULL)
        return base_error(SHOAL_ERR_INTERNAL, "shape %s: can't compile '%s' (place %zu, error %d)",
                          shape->name, shape->expression, (size_t)offset, error);
    return SHOAL_OK;
}

static enum shoal_status compile_all(struct job_validator *validator)
{
    size_t count = validator->model->shape_count;
    TRY(BASE_NEW_ARRAY(&validator->patterns, count, "patterns of requests"));
    validator->context = pcre2_match_context_create(NULL);
    if (validator->context == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for patterns of requests");
    pcre2_set_match_limit(validator->context, MATCH_STEPS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (validator->model->shapes[i].pattern != NULL)
            TRY(compile(validator, i));
    }
    return SHOAL_OK;
}

#define UNAVAILABLE "ServiceUnavailable"

const char *job_fault_type(enum shoal_status status, const char *otherwise)
{
    return status == SHOAL_ERR_MEMORY ? UNAVAILABLE : otherwise;
}

int job_fault_status(const struct job_fault *fault)
{
    return strcmp(fault->type, UNAVAILABLE) == 0 ? 503 : 400;
}

enum shoal_status job_validator_create(const struct job_model *model, struct job_validator **out)
{
    struct job_validator *validator;
    TRY(BASE_NEW(&validator, "patterns of requests"));
    validator->model = model;
    enum shoal_status status = compile_all(validator);
    if (status != SHOAL_OK) {
        job_validator_free(validator);
        return status;
    }
    *out = validator;
    return SHOAL_OK;
}

void job_validator_free(struct job_validator *validator)
{
    if (validator == NULL)
        return;
    for (size_t i = 0; validator->patterns != NULL && i < validator->model->shape_count; i++)
        pcre2_code_free(validator->patterns[i]);
    base_free(validator->patterns);
    pcre2_match_context_free(validator->context);
    base_free(validator);
}

static bool matches(const struct job_validator *validator, size_t shape, const char *text)
{
    const pcre2_code *pattern = validator->patterns[shape];
    if (pattern == NULL)
        return true;
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int result = data == NULL ? PCRE2_ERROR_NOMEMORY
                              : pcre2_match(pattern, (PCRE2_SPTR)text, strlen(text), 0,
                                            PCRE2_NO_UTF_CHECK, data, validator->context);
    pcre2_match_data_free(data);
    return result >= 0;
}

/* ---- the walk ---- */

struct walk {
    const struct job_validator *validator;
    const struct job_model *model;
    struct job_fault *fault;
    bool stopped; /* a value can't be read */
    int broken_count, depth;
    char path[PATH_BYTES];
    size_t path_bytes;
    char list[JOB_FAULT_BYTES]; /* of broken constraints */
    size_t list_bytes;
};

/* Text at the end of a buffer, cut where it is full. */
static void append(char *buffer, size_t capacity, size_t *used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void append(char *buffer, size_t capacity, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(buffer + *used, capacity - *used, format, arguments);
    va_end(arguments);
    *used = (size_t)bytes < capacity - *used ? *used + (size_t)bytes : capacity - 1;
}

static void stop(struct walk *walk, const char *text)
{
    if (walk->stopped)
        return;
    walk->stopped = true;
    walk->fault->type = "SerializationException";
    snprintf(walk->fault->text, sizeof(walk->fault->text), "%s", text);
}

/* A member's name as errors have it: trainingJobName. */
static void enter(struct walk *walk, const char *name)
{
    append(walk->path, sizeof(walk->path), &walk->path_bytes, "%s%c%s",
           walk->path_bytes > 0 ? "." : "", tolower((unsigned char)name[0]), name + 1);
}

static void leave(struct walk *walk, size_t path_bytes)
{
    walk->path_bytes = path_bytes;
    walk->path[path_bytes] = '\0';
}

static void put_value(const struct walk *walk, size_t shape, const json_t *value, char *out,
                      size_t *used, int depth);

static void put_members(const struct walk *walk, const struct job_shape *shape, const json_t *value,
                        char *out, size_t *used, int depth)
{
    const char *comma = "";
    append(out, VALUE_BYTES, used, "%s(", shape->name);
    for (size_t i = 0; i < shape->member_count; i++) {
        const struct job_member *member = &walk->model->members[shape->first_member + i];
        const json_t *part = json_object_get(value, member->name);
        if (part == NULL)
            continue;
        append(out, VALUE_BYTES, used, "%s%c%s=", comma, tolower((unsigned char)member->name[0]),
               member->name + 1);
        put_value(walk, member->shape, part, out, used, depth);
        comma = ", ";
    }
    append(out, VALUE_BYTES, used, ")");
}

static void put_list(const struct walk *walk, const struct job_shape *shape, const json_t *value,
                     char *out, size_t *used, int depth)
{
    append(out, VALUE_BYTES, used, "[");
    for (size_t i = 0; i < json_array_size(value) && i < LIST_SHOWN_MAX; i++) {
        append(out, VALUE_BYTES, used, "%s", i > 0 ? ", " : "");
        put_value(walk, shape->element, json_array_get(value, i), out, used, depth);
    }
    append(out, VALUE_BYTES, used, "]");
}

static void put_map(const struct walk *walk, const struct job_shape *shape, json_t *value,
                    char *out, size_t *used, int depth)
{
    const char *key, *comma = "";
    json_t *part;
    append(out, VALUE_BYTES, used, "{");
    json_object_foreach(value, key, part)
    {
        append(out, VALUE_BYTES, used, "%s%s=", comma, key);
        put_value(walk, shape->element, part, out, used, depth);
        comma = ", ";
    }
    append(out, VALUE_BYTES, used, "}");
}

/* A value as errors show it, cut after some hundred bytes. */
static void put_value(const struct walk *walk, size_t shape_index, const json_t *value, char *out,
                      size_t *used, int depth)
{
    const struct job_shape *shape = &walk->model->shapes[shape_index];
    if (depth >= DEPTH_MAX || *used >= VALUE_BYTES - 1)
        return;
    if (json_is_string(value))
        append(out, VALUE_BYTES, used, "%s", json_string_value(value));
    else if (json_is_integer(value))
        append(out, VALUE_BYTES, used, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        append(out, VALUE_BYTES, used, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        append(out, VALUE_BYTES, used, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_array(value) && shape->kind == JOB_LIST)
        put_list(walk, shape, value, out, used, depth + 1);
    else if (json_is_object(value) && shape->kind == JOB_MAP)
        put_map(walk, shape, (json_t *)value, out, used, depth + 1);
    else if (json_is_object(value) && shape->kind == JOB_STRUCTURE)
        put_members(walk, shape, value, out, used, depth + 1);
    else
        append(out, VALUE_BYTES, used, "null");
}

/* One more entry of the list; value NULL: there is none. */
static void broken(struct walk *walk, size_t shape, const json_t *value, const char *constraint)
{
    char shown[VALUE_BYTES] = "";
    size_t used = 0;
    if (value != NULL)
        put_value(walk, shape, value, shown, &used, 0);
    append(walk->list, sizeof(walk->list), &walk->list_bytes,
           "%sValue %s%s%s at '%s' failed to satisfy constraint: %s",
           walk->broken_count > 0 ? "; " : "", value != NULL ? "'" : "",
           value != NULL ? shown : "null", value != NULL ? "'" : "", walk->path, constraint);
    walk->broken_count++;
}

/* ---- constraints ---- */

static size_t character_count(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

static bool is_value(const struct walk *walk, const struct job_shape *shape, const char *text)
{
    for (size_t i = 0; i < shape->value_count; i++) {
        if (strcmp(walk->model->values[shape->first_value + i], text) == 0)
            return true;
    }
    return shape->value_count == 0;
}

static void put_enumeration(const struct walk *walk, const struct job_shape *shape, char *out,
                            size_t *used)
{
    append(out, CONSTRAINT_BYTES, used, "Member must satisfy enum value set: [");
    for (size_t i = 0; i < shape->value_count; i++)
        append(out, CONSTRAINT_BYTES, used, "%s%s", i > 0 ? ", " : "",
               walk->model->values[shape->first_value + i]);
    append(out, CONSTRAINT_BYTES, used, "]");
}

/* All that a shape asks of a text, as constraints of map keys and values are told. */
static void put_constraints(const struct walk *walk, const struct job_shape *shape, char *out,
                            size_t *used)
{
    const char *comma = "";
    if (shape->has_max) {
        append(out, CONSTRAINT_BYTES, used, "Member must have length less than or equal to %.0f",
               shape->max);
        comma = ", ";
    }
    if (shape->has_min) {
        append(out, CONSTRAINT_BYTES, used,
               "%sMember must have length greater than or equal to %.0f", comma, shape->min);
        comma = ", ";
    }
    if (shape->pattern != NULL) {
        append(out, CONSTRAINT_BYTES, used, "%sMember must satisfy regular expression pattern: %s",
               comma, shape->pattern);
        comma = ", ";
    }
    if (shape->value_count > 0) {
        append(out, CONSTRAINT_BYTES, used, "%s", comma);
        put_enumeration(walk, shape, out, used);
    }
}

/* `what` is "length" or "value". */
static void check_range(struct walk *walk, size_t index, const json_t *value, double number,
                        const char *what)
{
    const struct job_shape *shape = &walk->model->shapes[index];
    char text[128];
    if (shape->has_max && number > shape->max) {
        snprintf(text, sizeof(text), "Member must have %s less than or equal to %.15g", what,
                 shape->max);
        broken(walk, index, value, text);
    }
    if (shape->has_min && number < shape->min) {
        snprintf(text, sizeof(text), "Member must have %s greater than or equal to %.15g", what,
                 shape->min);
        broken(walk, index, value, text);
    }
}

/* ---- values by kind ---- */

static void check(struct walk *walk, size_t index, const json_t *value);

/* The value is not what its shape says. */
static void refuse_type(struct walk *walk, const json_t *value, const char *wanted)
{
    char text[128];
    const char *is = json_is_string(value)    ? "STRING_VALUE"
                     : json_is_number(value)  ? "NUMBER_VALUE"
                     : json_is_true(value)    ? "TRUE_VALUE"
                     : json_is_boolean(value) ? "FALSE_VALUE"
                                              : NULL;
    if (is == NULL) {
        stop(walk, json_is_array(value) ? "Start of list found where not expected"
                                        : "Start of structure or map found where not expected.");
        return;
    }
    snprintf(text, sizeof(text), "%s cannot be converted to %s", is, wanted);
    stop(walk, text);
}

static void check_string(struct walk *walk, size_t index, const json_t *value)
{
    const struct job_shape *shape = &walk->model->shapes[index];
    char text[CONSTRAINT_BYTES] = "";
    size_t used = 0;
    if (!json_is_string(value)) {
        refuse_type(walk, value, "String");
        return;
    }
    const char *string = json_string_value(value);
    check_range(walk, index, value, (double)character_count(string), "length");
    if (!matches(walk->validator, index, string)) {
        append(text, sizeof(text), &used, "Member must satisfy regular expression pattern: %s",
               shape->pattern);
        broken(walk, index, value, text);
    }
    if (!is_value(walk, shape, string)) {
        used = 0;
        put_enumeration(walk, shape, text, &used);
        broken(walk, index, value, text);
    }
}

static void check_number(struct walk *walk, size_t index, const json_t *value)
{
    static const char *const names[] = {
        [JOB_INTEGER] = "Integer", [JOB_LONG] = "Long", [JOB_FLOAT] = "Double"};
    enum job_shape_kind kind = walk->model->shapes[index].kind;
    double number = json_number_value(value);
    if (!json_is_number(value)) {
        refuse_type(walk, value, names[kind]);
    } else if (kind != JOB_FLOAT &&
               (number != floor(number) || (json_is_real(value) && fabs(number) >= 0x1p63))) {
        stop(walk, kind == JOB_INTEGER ? "NUMBER_VALUE cannot be converted to Integer"
                                       : "NUMBER_VALUE cannot be converted to Long");
    } else if (kind == JOB_INTEGER && (number > INT32_MAX || number < INT32_MIN)) {
        stop(walk, "NUMBER_VALUE cannot be converted to Integer");
    } else {
        check_range(walk, index, value, number, "value");
    }
}

static void check_list(struct walk *walk, size_t index, const json_t *value)
{
    const struct job_shape *shape = &walk->model->shapes[index];
    size_t path_bytes = walk->path_bytes;
    if (!json_is_array(value)) {
        refuse_type(walk, value, "List");
        return;
    }
    check_range(walk, index, value, (double)json_array_size(value), "length");
    for (size_t i = 0; i < json_array_size(value) && !walk->stopped; i++) {
        append(walk->path, sizeof(walk->path), &walk->path_bytes, ".%zu.member", i + 1);
        check(walk, shape->element, json_array_get(value, i));
        leave(walk, path_bytes);
    }
}

/* Whether a text is what its shape says, without an entry in the list. */
static bool is_good_text(const struct walk *walk, size_t index, const char *text)
{
    const struct job_shape *shape = &walk->model->shapes[index];
    double count = (double)character_count(text);
    return (!shape->has_max || count <= shape->max) && (!shape->has_min || count >= shape->min) &&
           matches(walk->validator, index, text) && is_value(walk, shape, text);
}

static void break_map(struct walk *walk, size_t index, const json_t *value, const char *what,
                      size_t part)
{
    char text[CONSTRAINT_BYTES] = "";
    size_t used = 0;
    append(text, sizeof(text), &used, "Map %s must satisfy constraint: [", what);
    put_constraints(walk, &walk->model->shapes[part], text, &used);
    append(text, sizeof(text), &used, "]");
    broken(walk, index, value, text);
}

static void check_map(struct walk *walk, size_t index, const json_t *value)
{
    const struct job_shape *shape = &walk->model->shapes[index];
    bool texts = walk->model->shapes[shape->element].kind == JOB_STRING;
    bool good_keys = true, good_values = true;
    size_t path_bytes = walk->path_bytes;
    const char *key;
    json_t *part;
    if (!json_is_object(value)) {
        refuse_type(walk, value, "Map");
        return;
    }
    check_range(walk, index, value, (double)json_object_size(value), "length");
    json_object_foreach((json_t *)value, key, part)
    {
        good_keys = good_keys && is_good_text(walk, shape->key, key);
        if (texts && json_is_string(part)) {
            good_values =
                good_values && is_good_text(walk, shape->element, json_string_value(part));
            continue;
        }
        append(walk->path, sizeof(walk->path), &walk->path_bytes, ".%s.member", key);
        check(walk, shape->element, part);
        leave(walk, path_bytes);
    }
    if (!good_keys)
        break_map(walk, index, value, "keys", shape->key);
    if (!good_values)
        break_map(walk, index, value, "value", shape->element);
}

static void check_structure(struct walk *walk, size_t index, const json_t *value)
{
    const struct job_shape *shape = &walk->model->shapes[index];
    size_t path_bytes = walk->path_bytes;
    if (!json_is_object(value)) {
        refuse_type(walk, value, "Structure");
        return;
    }
    for (size_t i = 0; i < shape->member_count && !walk->stopped; i++) {
        const struct job_member *member = &walk->model->members[shape->first_member + i];
        const json_t *part = json_object_get(value, member->name);
        enter(walk, member->name);
        if (part != NULL && !json_is_null(part))
            check(walk, member->shape, part);
        else if (member->required)
            broken(walk, member->shape, NULL, "Member must not be null");
        leave(walk, path_bytes);
    }
}

static void check(struct walk *walk, size_t index, const json_t *value)
{
    if (walk->stopped || walk->depth == DEPTH_MAX) {
        stop(walk, "The request is nested too deeply");
        return;
    }
    walk->depth++;
    switch (walk->model->shapes[index].kind) {
    case JOB_STRUCTURE: check_structure(walk, index, value); break;
    case JOB_LIST: check_list(walk, index, value); break;
    case JOB_MAP: check_map(walk, index, value); break;
    case JOB_STRING: check_string(walk, index, value); break;
    case JOB_INTEGER:
    case JOB_LONG:
    case JOB_FLOAT: check_number(walk, index, value); break;
    case JOB_BOOLEAN:
        if (!json_is_boolean(value))
            refuse_type(walk, value, "Boolean");
        break;
    case JOB_TIMESTAMP:
        if (!json_is_number(value) || fabs(json_number_value(value)) > SECONDS_MAX)
            refuse_type(walk, value, "Timestamp");
        break;
    }
    walk->depth--;
}

/* ---- from outside ---- */

const struct job_operation *job_operation_find(const struct job_model *model, const char *name)
{
    for (size_t i = 0; i < model->operation_count; i++) {
        if (strcmp(model->operations[i].name, name) == 0)
            return &model->operations[i];
    }
    return NULL;
}

bool job_validate(const struct job_validator *validator, const struct job_operation *operation,
                  const json_t *request, struct job_fault *fault)
{
    struct walk walk = {.validator = validator, .model = validator->model, .fault = fault};
    check(&walk, operation->input, request);
    if (walk.stopped)
        return false;
    if (walk.broken_count == 0)
        return true;
    char text[JOB_FAULT_BYTES];
    size_t used = 0;
    append(text, sizeof(text), &used, "%d validation error%s detected: %s", walk.broken_count,
           walk.broken_count > 1 ? "s" : "", walk.list);
    fault->type = "ValidationException";
    job_clean_text(text, used, SIZE_MAX, fault->text, sizeof(fault->text));
    return false;
}
