/* SPDX-License-Identifier: Apache-2.0 */
/* json.c: see json.h. Every read is checked against `end`; recursion is bounded by the depth. */
#include "boot/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

void boot_json_begin(struct boot_json *json, const char *text, size_t bytes)
{
    *json = (struct boot_json){.text = text, .end = text + bytes, .at = text};
}

enum shoal_status boot_json_error(const struct boot_json *json, const char *what)
{
    int line = 1, column = 1;
    for (const char *at = json->text; at < json->at; at++) {
        column = *at == '\n' ? 1 : column + 1;
        line += *at == '\n';
    }
    return base_error(SHOAL_ERR_FORMAT, "line %d, column %d: %s", line, column, what);
}

static void skip_blanks(struct boot_json *json)
{
    while (json->at < json->end && memchr(" \t\r\n", *json->at, 4) != NULL)
        json->at++;
}

/* The next character that is no blank, '\0' at the end. */
static char peek(struct boot_json *json)
{
    skip_blanks(json);
    return json->at < json->end ? *json->at : '\0';
}

/* ---- objects and arrays ---------------------------------------------------------------------- */

static enum shoal_status enter(struct boot_json *json, char open, char close, const char *what)
{
    if (peek(json) != open)
        return boot_json_error(json, what);
    if (json->depth == BOOT_JSON_DEPTH_MAX)
        return boot_json_error(json, "nested too deeply");
    json->at++;
    json->first[json->depth] = true;
    json->close[json->depth++] = close;
    return SHOAL_OK;
}

enum shoal_status boot_json_object(struct boot_json *json)
{
    return enter(json, '{', '}', "an object is expected here");
}

enum shoal_status boot_json_array(struct boot_json *json)
{
    return enter(json, '[', ']', "a list is expected here");
}

enum shoal_status boot_json_element(struct boot_json *json, bool *more)
{
    bool *first = &json->first[json->depth - 1];
    char close = json->close[json->depth - 1], next = peek(json);
    if (next == close) {
        json->at++;
        json->depth--;
        *more = false;
        return SHOAL_OK;
    }
    if (!*first) {
        if (next != ',')
            return boot_json_error(json, close == '}' ? "\",\" or \"}\" is expected here"
                                                      : "\",\" or \"]\" is expected here");
        json->at++;
    }
    *first = false;
    *more = true;
    return SHOAL_OK;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Where a string goes; with cut, what doesn't fit is dropped instead of an error. */
struct sink {
    char *out;
    size_t bytes, used;
    bool cut;
};

static enum shoal_status put(struct boot_json *json, struct sink *sink, const char *from,
                             size_t count)
{
    if (sink->out == NULL)
        return SHOAL_OK;
    if (sink->used + count >= sink->bytes)
        return sink->cut ? SHOAL_OK : boot_json_error(json, "this text is too long");
    memcpy(sink->out + sink->used, from, count);
    sink->used += count;
    return SHOAL_OK;
}

/* A code point as UTF-8. */
static enum shoal_status put_code(struct boot_json *json, struct sink *sink, uint32_t code)
{
    char bytes[4];
    size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (code == 0)
        return boot_json_error(json, "a NUL in text");
    if (count == 1) {
        bytes[0] = (char)code;
        return put(json, sink, bytes, 1);
    }
    for (size_t i = count - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    bytes[0] = (char)((0xf00 >> count) | code);
    return put(json, sink, bytes, count);
}

static enum shoal_status four_digits(struct boot_json *json, uint32_t *out)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t number = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        const char *digit = NULL;
        if (json->at < json->end && *json->at != '\0')
            digit =
                strchr(digits, *json->at >= 'A' && *json->at <= 'F' ? *json->at + 32 : *json->at);
        if (digit == NULL)
            return boot_json_error(json, "four hexadecimal digits are expected behind \\u");
        number = number << 4 | (uint32_t)(digit - digits);
    }
    *out = number;
    return SHOAL_OK;
}

/* Behind "\u": one code point, perhaps of two halves. */
static enum shoal_status unicode_escape(struct boot_json *json, struct sink *sink)
{
    uint32_t code, low;
    TRY(four_digits(json, &code));
    if (code >= 0xdc00 && code < 0xe000)
        return boot_json_error(json, "the second half of a character without the first");
    if (code >= 0xd800 && code < 0xdc00) {
        if (json->end - json->at < 2 || json->at[0] != '\\' || json->at[1] != 'u')
            return boot_json_error(json, "the first half of a character without the second");
        json->at += 2;
        TRY(four_digits(json, &low));
        if (low < 0xdc00 || low >= 0xe000)
            return boot_json_error(json, "the first half of a character without the second");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    return put_code(json, sink, code);
}

static enum shoal_status escape(struct boot_json *json, struct sink *sink)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char name = json->at < json->end ? *json->at : '\0';
    const char *found = name != '\0' ? strchr(names, name) : NULL;
    if (name == 'u') {
        json->at++;
        return unicode_escape(json, sink);
    }
    if (found == NULL)
        return boot_json_error(json, "an unknown escape in text");
    json->at++;
    return put(json, sink, &meanings[found - names], 1);
}

static enum shoal_status string(struct boot_json *json, struct sink *sink)
{
    if (peek(json) != '"')
        return boot_json_error(json, "text in quotes is expected here");
    json->at++;
    for (;;) {
        if (json->at == json->end)
            return boot_json_error(json, "the text's closing quote is missing");
        if (*json->at == '"')
            break;
        if ((unsigned char)*json->at < 0x20)
            return boot_json_error(json, "a control character in text");
        if (*json->at == '\\') {
            json->at++;
            TRY(escape(json, sink));
            continue;
        }
        size_t count = base_utf8_bytes(json->at, (size_t)(json->end - json->at));
        if (count == 0)
            return boot_json_error(json, "text that is not UTF-8");
        TRY(put(json, sink, json->at, count));
        json->at += count;
    }
    json->at++;
    if (sink->out != NULL)
        sink->out[sink->used] = '\0';
    return SHOAL_OK;
}

enum shoal_status boot_json_string(struct boot_json *json, char *out, size_t bytes)
{
    struct sink sink = {.out = out, .bytes = bytes};
    return string(json, &sink);
}

enum shoal_status boot_json_member(struct boot_json *json, char *name, size_t bytes, bool *more)
{
    struct sink sink = {.out = name, .bytes = bytes, .cut = true};
    TRY(boot_json_element(json, more));
    if (!*more)
        return SHOAL_OK;
    TRY(string(json, &sink));
    if (peek(json) != ':')
        return boot_json_error(json, "\":\" is expected here");
    json->at++;
    return SHOAL_OK;
}

/* ---- other values ---------------------------------------------------------------------------- */

static bool digits(struct boot_json *json)
{
    const char *from = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at > from;
}

static bool accept(struct boot_json *json, const char *any_of)
{
    if (json->at == json->end || *json->at == '\0' || strchr(any_of, *json->at) == NULL)
        return false;
    json->at++;
    return true;
}

static enum shoal_status number(struct boot_json *json)
{
    accept(json, "-");
    bool right = accept(json, "0") || digits(json);
    if (right && accept(json, "."))
        right = digits(json);
    if (right && accept(json, "eE")) {
        accept(json, "+-");
        right = digits(json);
    }
    return right ? SHOAL_OK : boot_json_error(json, "a value is expected here");
}

static bool word(struct boot_json *json, const char *text)
{
    size_t bytes = strlen(text);
    if ((size_t)(json->end - json->at) < bytes || memcmp(json->at, text, bytes) != 0)
        return false;
    json->at += bytes;
    return true;
}

enum shoal_status boot_json_skip(struct boot_json *json)
{
    struct sink nowhere = {.out = NULL};
    char next = peek(json), name[2];
    bool more = true;
    if (next == '"')
        return string(json, &nowhere);
    if (next != '{' && next != '[')
        return word(json, "true") || word(json, "false") || word(json, "null") ? SHOAL_OK
                                                                               : number(json);
    TRY(next == '{' ? boot_json_object(json) : boot_json_array(json));
    for (;;) {
        TRY(next == '{' ? boot_json_member(json, name, sizeof(name), &more)
                        : boot_json_element(json, &more));
        if (!more)
            return SHOAL_OK;
        TRY(boot_json_skip(json));
    }
}

enum shoal_status boot_json_number(struct boot_json *json, double *out)
{
    char text[64] = "", next = peek(json);
    const char *begin = json->at;
    if (next != '-' && (next < '0' || next > '9'))
        return boot_json_error(json, "a number is expected here");
    TRY(number(json));
    if ((size_t)(json->at - begin) >= sizeof(text))
        return boot_json_error(json, "this number is too long");
    memcpy(text, begin, (size_t)(json->at - begin));
    *out = strtod(text, NULL);
    return SHOAL_OK;
}

enum shoal_status boot_json_end(struct boot_json *json)
{
    skip_blanks(json);
    if (json->at != json->end)
        return boot_json_error(json, "more text than one value");
    return SHOAL_OK;
}
