/* SPDX-License-Identifier: Apache-2.0 */
/* query.c: percent-encoding, both ways. */
#include "s3/query.h"

#include <stdio.h>
#include <string.h>

static bool stays(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           strchr("-_.~", c) != NULL;
}

char *s3_query_encode(const char *text, char *out)
{
    for (; *text != '\0'; text++) {
        if (stays(*text)) {
            *out++ = *text;
            continue;
        }
        *out++ = '%';
        *out++ = "0123456789ABCDEF"[(unsigned char)*text >> 4];
        *out++ = "0123456789ABCDEF"[*text & 15];
    }
    return out;
}

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = c != '\0' ? strchr(digits, c) : NULL;
    return found == NULL ? -1 : (int)(found - digits) % 16;
}

bool s3_query_decode(char *text, bool plus_is_space)
{
    char *out = text;
    for (; *text != '\0'; text++) {
        if (*text == '+' && plus_is_space) {
            *out++ = ' ';
        } else if (*text == '%') {
            int high = digit_of(text[1]), low = high < 0 ? -1 : digit_of(text[2]);
            if (low < 0 || high * 16 + low == 0)
                return false;
            *out++ = (char)(high * 16 + low);
            text += 2;
        } else {
            *out++ = *text;
        }
    }
    *out = '\0';
    return true;
}

bool s3_query_next(char **text, char **key, char **value, bool *is_broken)
{
    *is_broken = false;
    if (**text == '\0')
        return false;
    char *end = *text + strcspn(*text, "&");
    bool is_last = *end == '\0';
    *end = '\0';
    *key = *text;
    *text = is_last ? end : end + 1;
    char *equals = strchr(*key, '=');
    *value = equals != NULL ? equals + 1 : end;
    if (equals != NULL)
        *equals = '\0';
    *is_broken = !s3_query_decode(*key, true) || !s3_query_decode(*value, true) || **key == '\0';
    return true;
}
