/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: members of requests, and errors in the public services' words. */
#include "logs/request.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define DIGITS_MAX 18

enum shoal_status logs_refuse(struct job_fault *fault, const char *type, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fault->type = type;
    vsnprintf(fault->text, sizeof(fault->text), format, arguments);
    va_end(arguments);
    return SHOAL_OK;
}

const char *logs_text(const json_t *request, const char *name, const char *otherwise)
{
    const json_t *value = json_object_get(request, name);
    return json_is_string(value) ? json_string_value(value) : otherwise;
}

int64_t logs_number(const json_t *request, const char *name, int64_t otherwise)
{
    const json_t *value = json_object_get(request, name);
    if (json_is_real(value))
        return (int64_t)json_real_value(value);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

bool logs_flag(const json_t *request, const char *name)
{
    return json_is_true(json_object_get(request, name));
}

bool logs_digits(const char *text, char end, int64_t *out, const char **rest)
{
    size_t zeros = strspn(text, "0"), digits = strspn(text, "0123456789");
    if (digits == 0 || digits - zeros > DIGITS_MAX || text[digits] != end)
        return false;
    *out = 0;
    for (size_t i = 0; i < digits; i++)
        *out = *out * 10 + (text[i] - '0');
    if (rest != NULL)
        *rest = text + digits + (end != '\0');
    return true;
}

/* An identifier is the name, or an ARN with the name behind "log-group:". */
bool logs_group_check(const json_t *request, struct job_fault *fault)
{
    const char *name = logs_text(request, "logGroupName", NULL);
    const char *identifier = logs_text(request, "logGroupIdentifier", NULL);
    if ((name == NULL) == (identifier == NULL)) {
        logs_refuse(fault, LOGS_INVALID,
                    "Exactly one of logGroupName and logGroupIdentifier must be given.");
        return false;
    }
    if (name == NULL) {
        const char *arn = strstr(identifier, ":log-group:");
        name = arn != NULL ? arn + strlen(":log-group:") : identifier;
    }
    size_t length = strlen(LOGS_GROUP);
    bool is_there = strncmp(name, LOGS_GROUP, length) == 0 &&
                    (name[length] == '\0' || strcmp(name + length, ":*") == 0);
    if (!is_there)
        logs_refuse(fault, LOGS_NOT_FOUND, "The specified log group does not exist.");
    return is_there;
}

enum shoal_status logs_reply(json_t *made, json_t **reply)
{
    *reply = made;
    return made != NULL ? SHOAL_OK : base_error(SHOAL_ERR_MEMORY, "no memory for a reply");
}

enum shoal_status logs_append(json_t *list, json_t *item)
{
    if (item == NULL || json_array_append_new(list, item) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a reply");
    return SHOAL_OK;
}
