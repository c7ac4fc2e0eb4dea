/* SPDX-License-Identifier: Apache-2.0 */
/* query.h: texts with %XX, as in URLs. */
#ifndef SHOAL_S3_QUERY_H
#define SHOAL_S3_QUERY_H

#include <stdbool.h>
#include <stddef.h>

/* Writes `text` with all but letters, digits and "-_.~" as %XX, without a NUL; up to 3 bytes for
 * each. Returns the end. */
char *s3_query_encode(const char *text, char *out);
/* Decodes %XX, and '+' as a space where plus_is_space, in place. False for a broken one and for
 * %00. */
bool s3_query_decode(char *text, bool plus_is_space);
/* The next "key=value" of a text of them with '&' between, decoded in place; moves *text behind it.
 * False at the end, and *is_broken for what can't be read. */
bool s3_query_next(char **text, char **key, char **value, bool *is_broken);

#endif
