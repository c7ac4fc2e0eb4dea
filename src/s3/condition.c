/* SPDX-License-Identifier: Apache-2.0 */
/* condition.c: conditional requests and ranges, as RFC 9110 and S3 have them. */
#include "s3/condition.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* The next ETag of a list, without "W/" and quotes; moves *list behind it; NULL at the end. */
static const char *next_etag(const char **list, size_t *bytes)
{
    const char *at = *list + strspn(*list, " \t,");
    if (*at == '\0')
        return NULL;
    if (strncmp(at, "W/\"", 3) == 0)
        at += 2;
    bool quoted = *at == '"';
    at += quoted;
    *bytes = strcspn(at, quoted ? "\"" : ", \t");
    *list = at + *bytes;
    if (quoted && **list == '"')
        ++*list;
    return at;
}

static bool has_etag(const char *list, const char *etag)
{
    size_t bytes, etag_bytes = strlen(etag);
    const char *one;
    while ((one = next_etag(&list, &bytes)) != NULL) {
        if (bytes == 1 && *one == '*')
            return true;
        if (bytes == etag_bytes && strncasecmp(one, etag, bytes) == 0)
            return true;
    }
    return false;
}

enum s3_code s3_conditions_check(const struct s3_conditions *conditions, const char *etag,
                                 int64_t modified_ms)
{
    int64_t modified_s = modified_ms / 1000;
    if (conditions->match != NULL) {
        if (!has_etag(conditions->match, etag))
            return s3_error(S3_PRECONDITION_FAILED, NULL);
    } else if (conditions->unmodified_since_s != 0 && modified_s > conditions->unmodified_since_s) {
        return s3_error(S3_PRECONDITION_FAILED, NULL);
    }
    if (conditions->none_match != NULL)
        return has_etag(conditions->none_match, etag) ? s3_error(S3_NOT_MODIFIED, NULL) : S3_OK;
    if (conditions->modified_since_s != 0 && modified_s <= conditions->modified_since_s)
        return s3_error(S3_NOT_MODIFIED, NULL);
    return S3_OK;
}

enum s3_code s3_conditions_check_write(const struct s3_conditions *conditions, const char *etag)
{
    if (conditions->match != NULL && etag == NULL)
        return s3_error(S3_NO_SUCH_KEY, NULL);
    if (conditions->match != NULL && !has_etag(conditions->match, etag))
        return s3_error(S3_PRECONDITION_FAILED, NULL);
    if (conditions->none_match != NULL && etag != NULL && has_etag(conditions->none_match, etag))
        return s3_error(S3_PRECONDITION_FAILED, NULL);
    return S3_OK;
}

/* Digits up to 18, which fit; false where there are none or more. */
static bool number_read(const char **text, int64_t *out)
{
    int64_t value = 0;
    int digits = 0;
    for (; isdigit((unsigned char)**text); ++*text, digits++) {
        if (digits == 18)
            return false;
        value = value * 10 + (**text - '0');
    }
    *out = value;
    return digits > 0;
}

/* "bytes=FIRST-LAST", "bytes=FIRST-", "bytes=-COUNT": first and last, either -1 where absent. */
static bool range_read(const char *text, int64_t *first, int64_t *last)
{
    if (strncasecmp(text, "bytes=", 6) != 0)
        return false;
    text += 6;
    *first = *last = -1;
    if (*text != '-' && !number_read(&text, first))
        return false;
    if (*text++ != '-')
        return false;
    if (*text != '\0' && !number_read(&text, last))
        return false;
    return *text == '\0' && (*first >= 0 || *last >= 0) && (*last < 0 || *first <= *last);
}

enum s3_code s3_range_of(const char *text, int64_t bytes, struct s3_range *out)
{
    int64_t first, last;
    *out = (struct s3_range){.count = bytes};
    if (text == NULL || !range_read(text, &first, &last))
        return S3_OK;
    if (first < 0) { /* the last so many bytes */
        int64_t count = last < bytes ? last : bytes;
        if (count == 0)
            return s3_error(S3_INVALID_RANGE, NULL);
        *out = (struct s3_range){.is_part = true, .first = bytes - count, .count = count};
        return S3_OK;
    }
    if (first >= bytes)
        return s3_error(S3_INVALID_RANGE, NULL);
    if (last < 0 || last >= bytes)
        last = bytes - 1;
    *out = (struct s3_range){.is_part = true, .first = first, .count = last - first + 1};
    return S3_OK;
}
