/* SPDX-License-Identifier: Apache-2.0 */
/* code.c: names, HTTP statuses and texts of S3's codes. */
#include "s3/code.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/status.h"

#define S3_CODE_ROW(constant, name, status, text) [constant] = {name, text, status},
static const struct {
    const char *name, *text;
    int status;
} rows[S3_CODE_COUNT] = {S3_CODES(S3_CODE_ROW)};

const char *s3_code_name(enum s3_code code)
{
    return rows[code].name;
}

int s3_code_status(enum s3_code code)
{
    return rows[code].status;
}

const char *s3_code_text(enum s3_code code)
{
    return rows[code].text;
}

static enum shoal_status status_of(enum s3_code code)
{
    return rows[code].status >= 500 ? SHOAL_ERR_SYSTEM : SHOAL_ERR_ARGUMENT;
}

enum s3_code s3_error(enum s3_code code, const char *format, ...)
{
    if (format == NULL) {
        base_error(status_of(code), "%s", rows[code].text);
        return code;
    }
    char text[BASE_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    base_error(status_of(code), "%s", text);
    return code;
}

enum s3_code s3_error_errno(int error_number, const char *format, ...)
{
    char text[BASE_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    base_error_errno(SHOAL_ERR_SYSTEM, error_number, "%s", text);
    return error_number == ENOSPC || error_number == EDQUOT ? S3_STORAGE_FULL : S3_INTERNAL_ERROR;
}

enum s3_code s3_from_status(enum shoal_status status)
{
    if (status == SHOAL_ERR_MEMORY)
        return S3_SLOW_DOWN;
    return status == SHOAL_OK ? S3_OK : S3_INTERNAL_ERROR;
}
