/* SPDX-License-Identifier: Apache-2.0 */
/* condition.h: what a request asks before it is carried out, and which bytes it wants. */
#ifndef SHOAL_S3_CONDITION_H
#define SHOAL_S3_CONDITION_H

#include <stdbool.h>
#include <stdint.h>

#include "s3/code.h"

/* The four headers. ETags as they stand in the header (quoted or not, several with commas, "*"),
 * NULL: absent; times in seconds since 1970, 0: absent. Borrowed by whoever takes a struct of
 * these. */
struct s3_conditions {
    const char *match, *none_match;
    int64_t modified_since_s, unmodified_since_s;
};

/* For reading an object that is there. OK, NOT_MODIFIED or PRECONDITION_FAILED, as RFC 9110 orders
 * them: If-Match hides If-Unmodified-Since, If-None-Match hides If-Modified-Since. */
enum s3_code s3_conditions_check(const struct s3_conditions *conditions, const char *etag,
                                 int64_t modified_ms);

/* For writing; etag NULL: there is no object of that key, which a match turns into NO_SUCH_KEY. */
enum s3_code s3_conditions_check_write(const struct s3_conditions *conditions, const char *etag);

struct s3_range {
    bool is_part; /* false: the whole object */
    int64_t first, count;
};

/* The header Range against an object of so many bytes. text NULL, and what is no range of one piece
 * of bytes, are the whole, as RFC 9110 asks; one that lies outside is INVALID_RANGE. */
enum s3_code s3_range_of(const char *text, int64_t bytes, struct s3_range *out);

#endif
