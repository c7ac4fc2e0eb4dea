/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.h: names with values: of a query, a form, headers, trailers. */
#ifndef SHOAL_HTTP_PAIRS_H
#define SHOAL_HTTP_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

#include "shoal.h"

struct http_pair {
    const char *name, *value;
};

struct http_pairs {
    struct http_pair *pairs;
    size_t count;
    char *storage; /* what they point into, or NULL */
};

/* Replaces %XX by its byte, and '+' by a blank where it stands for one, in place; the new length.
 * SHOAL_ERR_FORMAT for what is no escape, and for a NUL. */
enum shoal_status http_decode(char *text, size_t *count, bool plus_is_blank);
/* "a=1&b&c=%20" as pairs, decoded; at most `most` of them (SHOAL_ERR_LIMIT). */
enum shoal_status http_pairs_parse(const char *text, size_t count, size_t most,
                                   struct http_pairs *out);
void http_pairs_free(struct http_pairs *pairs);
/* The first value of that name, NULL if there is none. */
const char *http_pairs_find(const struct http_pairs *pairs, const char *name);
/* The same without regard to case. */
const char *http_pairs_find_header(const struct http_pairs *pairs, const char *name);

#endif
