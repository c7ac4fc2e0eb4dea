/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: text that grows by doubling, with one sticky failure. */
#include "http/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define FIRST_BYTES 256

enum shoal_status http_text_status(const struct http_text *text)
{
    return text->status;
}

const char *http_text_string(const struct http_text *text)
{
    return text->bytes != NULL ? text->bytes : "";
}

void http_text_free(struct http_text *text)
{
    size_t limit = text->limit;
    base_free(text->bytes);
    *text = (struct http_text){.limit = limit};
}

enum shoal_status http_text_reserve(struct http_text *text, size_t count)
{
    if (text->status != SHOAL_OK)
        return text->status;
    size_t limit = text->limit > 0 ? text->limit : HTTP_TEXT_BYTES_MAX;
    if (count > limit || text->count > limit - count)
        return text->status = base_error(SHOAL_ERR_LIMIT, "a text of more than %zu bytes", limit);
    size_t needed = text->count + count + 1;
    if (needed <= text->capacity)
        return SHOAL_OK;
    size_t capacity = text->capacity > 0 ? text->capacity : FIRST_BYTES;
    while (capacity < needed)
        capacity *= 2;
    void *bytes;
    text->status = base_alloc(capacity, "a text", &bytes);
    if (text->status != SHOAL_OK)
        return text->status;
    if (text->count > 0)
        memcpy(bytes, text->bytes, text->count);
    base_free(text->bytes);
    text->bytes = bytes;
    text->capacity = capacity;
    return SHOAL_OK;
}

void http_text_add(struct http_text *text, const void *bytes, size_t count)
{
    if (http_text_reserve(text, count) != SHOAL_OK)
        return;
    if (count > 0)
        memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    text->bytes[text->count] = '\0';
}

void http_text_put(struct http_text *text, const char *string)
{
    http_text_add(text, string, strlen(string));
}

void http_text_format(struct http_text *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length >= 0 && http_text_reserve(text, (size_t)length) == SHOAL_OK) {
        vsnprintf(text->bytes + text->count, (size_t)length + 1, format, again);
        text->count += (size_t)length;
    }
    va_end(again);
}

const char *http_xml_escape(const char *text, size_t left, size_t *bytes)
{
    *bytes = 1;
    switch (*text) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\r': return "&#13;";
    case '\t': return "&#9;";
    case '\n': return "&#10;";
    default: break;
    }
    size_t count = base_utf8_bytes(text, left);
    *bytes = count > 0 ? count : 1;
    bool is_last = count == 3 && memcmp(text, "\xef\xbf\xbe", 3) >= 0 &&
                   memcmp(text, "\xef\xbf\xbf", 3) <= 0; /* U+FFFE, U+FFFF */
    return count == 0 || (unsigned char)*text < 0x20 || is_last ? BASE_UTF8_REPLACEMENT : NULL;
}

void http_text_xml(struct http_text *text, const char *string)
{
    const char *end = string + strlen(string);
    for (size_t bytes; string < end; string += bytes) {
        const char *escape = http_xml_escape(string, (size_t)(end - string), &bytes);
        if (escape != NULL)
            http_text_put(text, escape);
        else
            http_text_add(text, string, bytes);
    }
}

void http_text_element(struct http_text *text, const char *name, const char *string)
{
    http_text_format(text, "<%s>", name);
    http_text_xml(text, string);
    http_text_format(text, "</%s>", name);
}

void http_text_json(struct http_text *text, const char *string)
{
    const char *end = string + strlen(string);
    http_text_add(text, "\"", 1);
    for (size_t bytes; string<end; string += bytes> 0 ? bytes : 1) {
        unsigned char byte = (unsigned char)*string;
        bytes = base_utf8_bytes(string, (size_t)(end - string));
        if (byte == '"' || byte == '\\')
            http_text_format(text, "\\%c", byte);
        else if (byte < 0x20)
            http_text_format(text, "\\u%04x", byte);
        else if (bytes == 0)
            http_text_put(text, BASE_UTF8_REPLACEMENT);
        else
            http_text_add(text, string, bytes);
    }
    http_text_add(text, "\"", 1);
}

static bool stays(unsigned char byte, bool keep_slash)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
           (byte >= '0' && byte <= '9') || byte == '-' || byte == '.' || byte == '_' ||
           byte == '~' || (byte == '/' && keep_slash);
}

void http_text_encode(struct http_text *text, const char *bytes, size_t count, bool keep_slash)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        char escape[3] = {'%', digits[byte >> 4], digits[byte & 15]};
        if (stays(byte, keep_slash))
            http_text_add(text, &bytes[i], 1);
        else
            http_text_add(text, escape, sizeof(escape));
    }
}
