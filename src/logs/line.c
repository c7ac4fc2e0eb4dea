/* SPDX-License-Identifier: Apache-2.0 */
/* line.c: lines of log files, read and made fit for JSON. */
#include "logs/line.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define REPLACEMENT_BYTES (sizeof(BASE_UTF8_REPLACEMENT) - 1)

bool logs_line_read(const char *data, size_t bytes, struct logs_line *line)
{
    int64_t time_ms = 0;
    size_t digits = 0;
    while (digits < LOGS_TIME_BYTES - 1 && digits < bytes && data[digits] >= '0' &&
           data[digits] <= '9')
        time_ms = time_ms * 10 + (data[digits++] - '0');
    bool has_time = digits == LOGS_TIME_BYTES - 1 && bytes > digits && data[digits] == ' ';
    size_t skip = has_time ? LOGS_TIME_BYTES : 0;
    if (has_time)
        line->time_ms = time_ms;
    line->text = data + skip;
    line->bytes = bytes - skip;
    return has_time;
}

static size_t clean(const char *text, size_t bytes, char *out)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        size_t character = base_utf8_bytes(text + at, bytes - at);
        const char *from = character > 0 ? text + at : BASE_UTF8_REPLACEMENT;
        size_t length = character > 0 ? character : REPLACEMENT_BYTES;
        memcpy(out + count, from, length);
        count += length;
        at += character > 0 ? character : 1;
    }
    return count;
}

json_t *logs_line_json(const struct logs_line *line)
{
    char *cleaned;
    json_t *text = json_stringn(line->text, line->bytes);
    if (text != NULL)
        return text;
    if (base_alloc(line->bytes * REPLACEMENT_BYTES + 1, "a line", (void **)&cleaned) != SHOAL_OK)
        return NULL;
    text = json_stringn(cleaned, clean(line->text, line->bytes, cleaned));
    base_free(cleaned);
    return text;
}
