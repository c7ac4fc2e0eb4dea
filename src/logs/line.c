/* SPDX-License-Identifier: Apache-2.0 */
/* line.c: lines of log files, read and made fit for JSON. */
#include "logs/line.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define REPLACEMENT       "\xEF\xBF\xBD"
#define REPLACEMENT_BYTES 3

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

/* Bytes of the character at the front; 0: what is there is not UTF-8. */
static size_t character_bytes(const unsigned char *text, size_t left)
{
    static const unsigned char first_min[] = {0, 0, 0xC2, 0xE0, 0xF0};
    if (text[0] < 0x80)
        return 1;
    size_t bytes = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
    if (text[0] < first_min[bytes] || text[0] > 0xF4 || bytes > left)
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    }
    bool is_overlong = (text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xF0 && text[1] < 0x90);
    bool is_beyond = (text[0] == 0xED && text[1] > 0x9F) || (text[0] == 0xF4 && text[1] > 0x8F);
    return is_overlong || is_beyond ? 0 : bytes;
}

static size_t clean(const char *text, size_t bytes, char *out)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        size_t character = character_bytes((const unsigned char *)text + at, bytes - at);
        const char *from = character > 0 ? text + at : REPLACEMENT;
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
