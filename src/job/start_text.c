/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_text.c: see start_text.h. Numbers with a fraction get the fewest digits that read back as
 * the same number, in the form that Python chooses: 0.1, 1e-05, 100000.0.
 */
#include "job/start_text.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/start_json.h"

#define REAL_BYTES     64
#define DIGITS_MAX     17
#define EXPONENT_LEAST (-4) /* below it, and from MOST on, Python writes an exponent */
#define EXPONENT_MOST  16
#define DEPTH_MAX      64

/* ---- numbers ---- */

/* The digits of a finite number, without sign and point, and the power of ten of the first. */
static int shortest_digits(double value, char digits[REAL_BYTES])
{
    char text[REAL_BYTES];
    for (int count = 1; count <= DIGITS_MAX; count++) {
        snprintf(text, sizeof(text), "%.*e", count - 1, fabs(value));
        if (strtod(text, NULL) == fabs(value))
            break;
    }
    size_t used = 0;
    const char *at = text;
    for (; *at != 'e'; at++)
        if (isdigit((unsigned char)*at))
            digits[used++] = *at;
    digits[used] = '\0';
    return atoi(at + 1);
}

static void put_real(FILE *out, double value)
{
    char digits[REAL_BYTES];
    int exponent = shortest_digits(value, digits), count = (int)strlen(digits);
    if (signbit(value))
        fputc('-', out);
    if (exponent < EXPONENT_LEAST || exponent >= EXPONENT_MOST) {
        fprintf(out, "%c%s%se%+03d", digits[0], count > 1 ? "." : "", digits + 1, exponent);
    } else if (exponent < 0) {
        fputs("0.", out);
        for (int i = exponent; i < -1; i++)
            fputc('0', out);
        fputs(digits, out);
    } else {
        for (int i = 0; i <= exponent; i++)
            fputc(i < count ? digits[i] : '0', out);
        fprintf(out, ".%s", count > exponent + 1 ? digits + exponent + 1 : "0");
    }
}

/* ---- JSON ---- */

typedef enum shoal_status (*put_function)(FILE *out, const json_t *value, int depth);

static enum shoal_status put_json_text(FILE *out, const json_t *value)
{
    return json_dumpf(value, out, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) == 0
               ? SHOAL_OK
               : base_error(SHOAL_ERR_MEMORY, "no memory for a text");
}

/* A text as Python shows it: in single quotes, unless it holds some and no double ones. */
static enum shoal_status put_python_text(FILE *out, const json_t *value)
{
    const char *text = json_string_value(value);
    char quote = strchr(text, '\'') != NULL && strchr(text, '"') == NULL ? '"' : '\'';
    fputc(quote, out);
    for (; *text != '\0'; text++) {
        if (*text == quote || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if (*text == '\n' || *text == '\r' || *text == '\t')
            fprintf(out, "\\%c", *text == '\n' ? 'n' : *text == '\r' ? 'r' : 't');
        else if ((unsigned char)*text < ' ' || *text == 0x7f)
            fprintf(out, "\\x%02x", *text);
        else
            fputc(*text, out);
    }
    fputc(quote, out);
    return SHOAL_OK;
}

/* JSON or Python's form of a value. */
static enum shoal_status put_value(FILE *out, const json_t *value, bool python, int depth);

static enum shoal_status put_text(FILE *out, const json_t *value, bool python)
{
    return python ? put_python_text(out, value) : put_json_text(out, value);
}

static enum shoal_status put_object(FILE *out, const json_t *object, bool python, int depth)
{
    const char **keys, *separator = "";
    TRY(start_names(object, &keys));
    enum shoal_status status = SHOAL_OK;
    fputc('{', out);
    for (size_t i = 0; keys[i] != NULL && status == SHOAL_OK; i++) {
        json_t *key = json_string(keys[i]);
        fputs(separator, out);
        status = key != NULL ? put_text(out, key, python)
                             : base_error(SHOAL_ERR_MEMORY, "no memory for a text");
        json_decref(key);
        fputs(python ? ": " : ":", out);
        if (status == SHOAL_OK)
            status = put_value(out, json_object_get(object, keys[i]), python, depth + 1);
        separator = python ? ", " : ",";
    }
    fputc('}', out);
    base_free(keys);
    return status;
}

static enum shoal_status put_array(FILE *out, const json_t *array, bool python, int depth)
{
    fputc('[', out);
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i > 0)
            fputs(python ? ", " : ",", out);
        TRY(put_value(out, json_array_get(array, i), python, depth + 1));
    }
    fputc(']', out);
    return SHOAL_OK;
}

static enum shoal_status put_value(FILE *out, const json_t *value, bool python, int depth)
{
    if (depth > DEPTH_MAX)
        return base_error(SHOAL_ERR_LIMIT, "a value has more than 64 levels");
    switch (json_typeof(value)) {
    case JSON_OBJECT: return put_object(out, value, python, depth);
    case JSON_ARRAY: return put_array(out, value, python, depth);
    case JSON_STRING: return put_text(out, value, python);
    case JSON_INTEGER: fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); break;
    case JSON_REAL: put_real(out, json_real_value(value)); break;
    case JSON_TRUE: fputs(python ? "True" : "true", out); break;
    case JSON_FALSE: fputs(python ? "False" : "false", out); break;
    default: fputs(python ? "None" : "null", out); break;
    }
    return SHOAL_OK;
}

/* ---- the three forms ---- */

static enum shoal_status put_json(FILE *out, const json_t *value, int depth)
{
    return put_value(out, value, false, depth);
}

/* At the top a text is itself, and null nothing. */
static bool put_plain(FILE *out, const json_t *value)
{
    if (json_is_string(value))
        fputs(json_string_value(value), out);
    return json_is_string(value) || json_is_null(value);
}

static enum shoal_status put_variable(FILE *out, const json_t *value, int depth)
{
    return put_plain(out, value) ? SHOAL_OK : put_value(out, value, false, depth);
}

static enum shoal_status put_argument(FILE *out, const json_t *value, int depth)
{
    const char **keys, *separator = "";
    if (put_plain(out, value))
        return SHOAL_OK;
    if (!json_is_object(value))
        return put_value(out, value, true, depth);
    TRY(start_names(value, &keys));
    enum shoal_status status = SHOAL_OK;
    for (size_t i = 0; keys[i] != NULL && status == SHOAL_OK; i++) {
        const json_t *item = json_object_get(value, keys[i]);
        fprintf(out, "%s%s=", separator, keys[i]);
        if (json_is_string(item))
            fputs(json_string_value(item), out);
        else
            status = put_value(out, item, true, depth + 1);
        separator = ",";
    }
    base_free(keys);
    return status;
}

static enum shoal_status make(const json_t *value, put_function put, char **out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a text");
    enum shoal_status status = put(stream, value, 0);
    bool whole = !ferror(stream);
    whole = fclose(stream) == 0 && whole;
    if (status == SHOAL_OK)
        status = whole ? base_strdup(text, "a text", out)
                       : base_error(SHOAL_ERR_MEMORY, "no memory for a text");
    free(text);
    return status;
}

enum shoal_status start_text_variable(const json_t *value, char **out)
{
    return make(value, put_variable, out);
}

enum shoal_status start_text_argument(const json_t *value, char **out)
{
    return make(value, put_argument, out);
}

enum shoal_status start_text_json(const json_t *value, char **out)
{
    return make(value, put_json, out);
}
