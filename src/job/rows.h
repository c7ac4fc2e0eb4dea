/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h: configuration files of rows, as instances.conf and images.conf are.
 *
 *   # a comment
 *   PATTERN WORD...        a row; the pattern is a shell's: *, ?, [a-z]; '*' takes '/' too
 *       WORD...            indented: more words of the row above
 *
 * The first row whose pattern matches a name counts.
 */
#ifndef SHOAL_JOB_ROWS_H
#define SHOAL_JOB_ROWS_H

#include <stddef.h>

#include "shoal.h"

#define ROWS_FILE_BYTES_MAX (1u << 20)
#define ROWS_MAX            4096
#define ROWS_WORDS_MAX      128

struct rows_row {
    const char *pattern;
    const char **words; /* NULL behind the last */
    size_t word_count;
    int line; /* of the file */
};

struct rows;

/* Reads a file. Where there is none, `otherwise` is read in its place (NULL: no rows).
 * SHOAL_ERR_FORMAT names file and line. */
enum shoal_status rows_load(const char *path, const char *otherwise, struct rows **out);
/* NULL is allowed. */
void rows_free(struct rows *rows);

size_t rows_count(const struct rows *rows);
const struct rows_row *rows_at(const struct rows *rows, size_t index);
/* NULL when no pattern matches. */
const struct rows_row *rows_find(const struct rows *rows, const char *name);
/* Where the rows come from: the path, or "the default". */
const char *rows_source(const struct rows *rows);
/* "<source>:<line>: <what>", as SHOAL_ERR_FORMAT. */
enum shoal_status rows_wrong(const struct rows *rows, const struct rows_row *row,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
