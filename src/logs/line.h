/* SPDX-License-Identifier: Apache-2.0 */
/* line.h: a line of a log file (job/log.h): thirteen digits of milliseconds, a blank, the text. */
#ifndef SHOAL_LOGS_LINE_H
#define SHOAL_LOGS_LINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOGS_TIME_BYTES 14 /* in front of each line */

struct logs_line {
    int64_t time_ms;  /* since 1970 */
    const char *text; /* as the program wrote it, not ended by NUL */
    size_t bytes;
    int64_t offset, next; /* where it begins in the file, and where the next one does */
};

/* Reads a line without its newline. false: it has no time (it was cut by a full disk); then all of
 * it is the text, and time_ms is left as it was. */
bool logs_line_read(const char *data, size_t bytes, struct logs_line *line);
/* The text as JSON: bytes that are not UTF-8 become U+FFFD. NULL without memory. */
json_t *logs_line_json(const struct logs_line *line);

#endif
