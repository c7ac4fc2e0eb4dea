/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.c: names of the status codes, and the thread's error text.
 *
 * The text is a fixed buffer per thread, so that telling of a failed allocation allocates nothing.
 * A text that is an argument of the next one (base_error(…, "%s", base_error_text())) is allowed:
 * each is written to a scratch buffer first.
 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char error_text[BASE_ERROR_TEXT_BYTES];

/* Puts ": <more>" behind the text, as much as fits. */
static void append(char text[BASE_ERROR_TEXT_BYTES], const char *more)
{
    size_t used = strlen(text);
    const char *const parts[] = {": ", more};
    for (int i = 0; i < 2; i++) {
        size_t bytes = strnlen(parts[i], BASE_ERROR_TEXT_BYTES - 1 - used);
        memcpy(text + used, parts[i], bytes);
        used += bytes;
        text[used] = '\0';
    }
}

enum shoal_status base_error(enum shoal_status status, const char *format, ...)
{
    char text[BASE_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    memcpy(error_text, text, sizeof(text));
    return status;
}

enum shoal_status base_error_errno(enum shoal_status status, int error_number, const char *format,
                                   ...)
{
    char text[BASE_ERROR_TEXT_BYTES], reason[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    append(text, strerror_r(error_number, reason, sizeof(reason)));
    memcpy(error_text, text, sizeof(text));
    return status;
}

enum shoal_status base_error_context(enum shoal_status status, const char *format, ...)
{
    char text[BASE_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    append(text, error_text);
    memcpy(error_text, text, sizeof(text));
    return status;
}

const char *base_error_text(void)
{
    return error_text;
}

void base_error_clear(void)
{
    error_text[0] = '\0';
}

void base_assert_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "shoal: bug at %s:%d: \"%s\" does not hold\n", file, line, condition);
    abort();
}
