/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c: a file's text is kept and cut into words in its place. */
#include "job/rows.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define TEXT_BYTES 256
#define BLANKS     " \t\r"

struct rows {
    char *source, *text;
    struct rows_row *rows; /* [capacity] */
    size_t count, capacity;
};

/* ---- the text ---- */

static enum shoal_status text_read(FILE *file, const char *path, char **out)
{
    char *text;
    TRY(base_alloc(ROWS_FILE_BYTES_MAX + 1, "a configuration file", (void **)&text));
    size_t bytes = fread(text, 1, ROWS_FILE_BYTES_MAX + 1, file);
    enum shoal_status status = SHOAL_OK;
    if (ferror(file))
        status = base_error(SHOAL_ERR_SYSTEM, "reading %s failed", path);
    else if (bytes > ROWS_FILE_BYTES_MAX)
        status = base_error(SHOAL_ERR_FORMAT, "%s is larger than 1 MiB", path);
    else if (memchr(text, '\0', bytes) != NULL)
        status = base_error(SHOAL_ERR_FORMAT, "%s holds a NUL: it is no text", path);
    if (status != SHOAL_OK) {
        base_free(text);
        return status;
    }
    text[bytes] = '\0';
    *out = text;
    return SHOAL_OK;
}

static enum shoal_status text_load(const char *path, const char *otherwise, struct rows *rows)
{
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    if (file == NULL && path != NULL && errno != ENOENT)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", path);
    TRY(base_strdup(file != NULL ? path : "the default", "a configuration file", &rows->source));
    if (file == NULL)
        return base_strdup(otherwise != NULL ? otherwise : "", "a configuration file", &rows->text);
    enum shoal_status status = text_read(file, path, &rows->text);
    fclose(file);
    return status;
}

/* ---- rows ---- */

static enum shoal_status wrong_line(const struct rows *rows, int line, const char *what)
{
    return base_error(SHOAL_ERR_FORMAT, "%s:%d: %s", rows->source, line, what);
}

static enum shoal_status add_row(struct rows *rows, char *pattern, int line)
{
    struct rows_row *row = &rows->rows[rows->count];
    if (rows->count == rows->capacity)
        return wrong_line(rows, line, "there are more than 4096 rows");
    TRY(BASE_NEW_ARRAY(&row->words, ROWS_WORDS_MAX + 1, "a configuration file"));
    row->pattern = pattern;
    row->line = line;
    rows->count++;
    return SHOAL_OK;
}

static enum shoal_status read_line(struct rows *rows, char *text, int line)
{
    bool goes_on = strchr(BLANKS, *text) != NULL;
    char *rest = NULL;
    for (char *word = strtok_r(text, BLANKS, &rest); word != NULL && *word != '#';
         word = strtok_r(NULL, BLANKS, &rest)) {
        if (!goes_on) {
            TRY(add_row(rows, word, line));
            goes_on = true;
            continue;
        }
        if (rows->count == 0)
            return wrong_line(rows, line, "an indented line needs a row above it");
        struct rows_row *row = &rows->rows[rows->count - 1];
        if (row->word_count == ROWS_WORDS_MAX)
            return wrong_line(rows, line, "the row has more than 128 words");
        row->words[row->word_count++] = word;
    }
    return SHOAL_OK;
}

static size_t count_lines(const char *text)
{
    size_t count = 1;
    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count < ROWS_MAX ? count : ROWS_MAX;
}

static enum shoal_status read_lines(struct rows *rows)
{
    rows->capacity = count_lines(rows->text);
    TRY(BASE_NEW_ARRAY(&rows->rows, rows->capacity, "a configuration file"));
    int line = 1;
    for (char *at = rows->text; at != NULL; line++) {
        char *end = strchr(at, '\n');
        if (end != NULL)
            *end++ = '\0';
        if (*at != '\0')
            TRY(read_line(rows, at, line));
        at = end;
    }
    return SHOAL_OK;
}

enum shoal_status rows_load(const char *path, const char *otherwise, struct rows **out)
{
    struct rows *rows;
    TRY(BASE_NEW(&rows, "a configuration file"));
    enum shoal_status status = text_load(path, otherwise, rows);
    if (status == SHOAL_OK)
        status = read_lines(rows);
    if (status != SHOAL_OK) {
        rows_free(rows);
        return status;
    }
    *out = rows;
    return SHOAL_OK;
}

void rows_free(struct rows *rows)
{
    if (rows == NULL)
        return;
    for (size_t i = 0; i < rows->count; i++)
        base_free(rows->rows[i].words);
    base_free(rows->rows);
    base_free(rows->text);
    base_free(rows->source);
    base_free(rows);
}

size_t rows_count(const struct rows *rows)
{
    return rows->count;
}

const struct rows_row *rows_at(const struct rows *rows, size_t index)
{
    return &rows->rows[index];
}

const struct rows_row *rows_find(const struct rows *rows, const char *name)
{
    for (size_t i = 0; i < rows->count; i++)
        if (fnmatch(rows->rows[i].pattern, name, FNM_NOESCAPE) == 0)
            return &rows->rows[i];
    return NULL;
}

const char *rows_source(const struct rows *rows)
{
    return rows->source;
}

enum shoal_status rows_wrong(const struct rows *rows, const struct rows_row *row,
                             const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return wrong_line(rows, row->line, text);
}
