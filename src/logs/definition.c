/* SPDX-License-Identifier: Apache-2.0 */
/* definition.c: expressions compiled once for a job, and searched for in each of its lines. */
#include "logs/definition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "logs/request.h"

#define VALUE_BYTES 64
#define BLANKS      " \t\r\n"

static enum shoal_status add(struct logs_definitions *definitions, const json_t *json)
{
    const char *name = logs_text(json, "Name", NULL), *text = logs_text(json, "Regex", NULL);
    if (name == NULL || text == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "A metric definition must have Name and Regex");
    struct logs_definition *definition = &definitions->items[definitions->count];
    enum shoal_status status = logs_regex_create(text, &definition->regex);
    if (status == SHOAL_ERR_ARGUMENT)
        return base_error_context(status, "Invalid regular expression '%s' of the metric '%s'",
                                  text, name);
    TRY(status);
    definition->name = name;
    definitions->count++;
    return SHOAL_OK;
}

enum shoal_status logs_definitions_create(const json_t *json, struct logs_definitions **out)
{
    struct logs_definitions *definitions;
    size_t count = json_array_size(json);
    if (count > LOGS_DEFINITIONS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "A job has at most %d metric definitions",
                          LOGS_DEFINITIONS_MAX);
    TRY(BASE_NEW(&definitions, "definitions of metrics"));
    definitions->json = json_deep_copy(json);
    enum shoal_status status = definitions->json != NULL
                                   ? SHOAL_OK
                                   : base_error(SHOAL_ERR_MEMORY, "no memory for definitions");
    for (size_t i = 0; status == SHOAL_OK && i < count; i++)
        status = add(definitions, json_array_get(definitions->json, i));
    if (status != SHOAL_OK) {
        logs_definitions_free(definitions);
        return status;
    }
    *out = definitions;
    return SHOAL_OK;
}

void logs_definitions_free(struct logs_definitions *definitions)
{
    if (definitions == NULL)
        return;
    for (size_t i = 0; i < definitions->count; i++)
        logs_regex_free(definitions->items[i].regex);
    json_decref(definitions->json);
    base_free(definitions);
}

bool logs_definitions_check(const json_t *json, struct job_fault *fault)
{
    struct logs_definitions *definitions;
    if (json == NULL || json_is_null(json))
        return true;
    enum shoal_status status = logs_definitions_create(json, &definitions);
    if (status == SHOAL_OK)
        logs_definitions_free(definitions);
    else
        logs_refuse(fault, job_fault_type(status, "ValidationException"), "%s", base_error_text());
    return status == SHOAL_OK;
}

bool logs_value_read(const char *text, size_t bytes, double *out)
{
    char number[VALUE_BYTES];
    while (bytes > 0 && strchr(BLANKS, text[bytes - 1]) != NULL)
        bytes--;
    if (bytes == 0 || bytes >= sizeof(number) || memchr(text, '\0', bytes) != NULL)
        return false;
    memcpy(number, text, bytes);
    number[bytes] = '\0';
    /* strtod alone would take hexadecimal numbers, infinities and NaN. */
    if (strspn(number, "+-0123456789.eE" BLANKS) != bytes)
        return false;
    char *end;
    double value = strtod(number, &end);
    if (end == number || *end != '\0' || !isfinite(value))
        return false;
    *out = value;
    return true;
}

static void slowness_add(struct logs_definition *definition, bool is_slow)
{
    definition->slowness += is_slow ? LOGS_SLOW_COST : -(definition->slowness > 0);
    if (is_slow && definition->slowness >= LOGS_SLOW_MAX)
        base_log(BASE_LOG_WARN,
                 "the regular expression of the metric '%s' takes too long on many lines; it is "
                 "not used any more",
                 definition->name);
}

struct search {
    const char *line;
    size_t bytes, index;
    void (*found)(void *user, size_t definition, double value);
    void *user;
};

/* All values of one definition; false when a limit of steps came first. */
static bool search_one(const struct logs_definition *definition, const struct search *search)
{
    struct logs_match match = {0};
    enum logs_search result = LOGS_FOUND;
    for (int matches = 0; matches < LOGS_MATCHES_LINE_MAX; matches++) {
        double value;
        result =
            logs_regex_search(definition->regex, search->line, search->bytes, match.end, &match);
        if (result != LOGS_FOUND)
            break;
        if (logs_value_read(search->line + match.group_begin, match.group_end - match.group_begin,
                            &value))
            search->found(search->user, search->index, value);
        if (match.end == match.begin || match.end == search->bytes)
            break;
    }
    return result != LOGS_TOO_LONG;
}

static void search_all(struct logs_definitions *definitions, struct search *search)
{
    for (search->index = 0; search->index < definitions->count; search->index++) {
        struct logs_definition *definition = &definitions->items[search->index];
        if (definition->slowness >= LOGS_SLOW_MAX)
            continue;
        int64_t begin_ns = base_now_ns();
        bool is_whole = search_one(definition, search);
        slowness_add(definition, !is_whole || base_now_ns() - begin_ns > LOGS_SLOW_NS);
    }
}

void logs_definitions_search(struct logs_definitions *definitions, const char *line, size_t bytes,
                             void (*found)(void *user, size_t definition, double value), void *user)
{
    for (size_t at = 0; at < bytes;) {
        const char *turn = memchr(line + at, '\r', bytes - at);
        size_t count = turn != NULL ? (size_t)(turn - line) - at : bytes - at;
        struct search search = {.line = line + at, .bytes = count, .found = found, .user = user};
        search_all(definitions, &search);
        at += count + 1;
    }
}
