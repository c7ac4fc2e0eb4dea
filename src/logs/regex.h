/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.h: regular expressions of users (PCRE2's, which are Python's and Perl's but for rarities)
 * on lines of programs. Both may be hostile: each search has a limit of steps, a line is looked at
 * up to its 8,192nd byte, and bytes that are not UTF-8 match nothing.
 */
#ifndef SHOAL_LOGS_REGEX_H
#define SHOAL_LOGS_REGEX_H

#include <stddef.h>

#include "shoal.h"

#define LOGS_SEARCH_BYTES_MAX 8192

struct logs_regex;

enum logs_search {
    LOGS_FOUND,
    LOGS_ABSENT,
    LOGS_TOO_LONG /* the limit of steps came first */
};

struct logs_match {
    size_t begin, end;             /* of all that matches */
    size_t group_begin, group_end; /* of the first group that takes part; of all if there is none */
};

/* SHOAL_ERR_ARGUMENT says what is wrong with the text, and where. */
enum shoal_status logs_regex_create(const char *text, struct logs_regex **out);
/* NULL is allowed. */
void logs_regex_free(struct logs_regex *regex);
/* The first match at or behind `from`. One thread at a time. */
enum logs_search logs_regex_search(const struct logs_regex *regex, const char *text, size_t bytes,
                                   size_t from, struct logs_match *out);

#endif
