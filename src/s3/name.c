/* SPDX-License-Identifier: Apache-2.0 */
/* name.c: the rules for names of buckets and keys. */
#include "s3/name.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define PATH_PART_BYTES_MAX 255

static bool is_letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends(const char *text, const char *suffix)
{
    size_t bytes = strlen(text), suffix_bytes = strlen(suffix);
    return bytes >= suffix_bytes && strcmp(text + bytes - suffix_bytes, suffix) == 0;
}

/* Four numbers with dots between them, whatever their size. */
static bool is_like_an_address(const char *name)
{
    int dots = 0;
    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '.')
            dots++;
        else if (*at < '0' || *at > '9')
            return false;
    }
    return dots == 3;
}

static const char *wrong_characters(const char *name, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!is_letter_or_digit(name[i]) && name[i] != '-' && name[i] != '.')
            return "it may have only a-z, 0-9, '-' and '.'";
    if (!is_letter_or_digit(name[0]) || !is_letter_or_digit(name[bytes - 1]))
        return "it must begin and end with a letter or digit";
    if (strstr(name, "..") != NULL)
        return "it has two dots in a row";
    if (strstr(name, ".-") != NULL || strstr(name, "-.") != NULL)
        return "it has a '-' beside a '.'";
    return NULL;
}

static const char *reserved(const char *name)
{
    static const char *const beginnings[] = {"xn--", "sthree-"};
    static const char *const endings[] = {"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"};
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++)
        if (begins(name, beginnings[i]))
            return "its beginning is reserved";
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (ends(name, endings[i]))
            return "its end is reserved";
    return NULL;
}

enum s3_code s3_bucket_name_check(const char *name)
{
    size_t bytes = strnlen(name, S3_BUCKET_NAME_MAX + 1);
    const char *wrong = NULL;
    if (bytes < 3 || bytes > S3_BUCKET_NAME_MAX)
        wrong = "it must have 3 to 63 characters";
    if (wrong == NULL)
        wrong = wrong_characters(name, bytes);
    if (wrong == NULL && is_like_an_address(name))
        wrong = "it looks like an IP address";
    if (wrong == NULL)
        wrong = reserved(name);
    if (wrong == NULL)
        return S3_OK;
    return s3_error(S3_INVALID_BUCKET_NAME, "The specified bucket is not valid: '%.80s': %s.", name,
                    wrong);
}

bool s3_is_utf8(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t step = base_utf8_bytes(text + at, bytes - at);
        if (step == 0 || text[at] == '\0')
            return false;
        at += step;
    }
    return true;
}

enum s3_code s3_key_check(const char *key)
{
    size_t bytes = strlen(key);
    if (bytes == 0)
        return s3_error(S3_INVALID_ARGUMENT, "A key must have at least one byte.");
    if (bytes > S3_KEY_BYTES_MAX)
        return s3_error(S3_KEY_TOO_LONG, NULL);
    if (!s3_is_utf8(key, bytes))
        return s3_error(S3_INVALID_ARGUMENT, "A key must be UTF-8.");
    return S3_OK;
}

static const char *wrong_part(const char *part, size_t bytes)
{
    if (bytes == 0)
        return "it has an empty part ('//', or a '/' at its beginning)";
    if (bytes > PATH_PART_BYTES_MAX)
        return "one of its parts is longer than a file's name may be (255 bytes)";
    if (part[0] == '.' && (bytes == 1 || (bytes == 2 && part[1] == '.')))
        return "it has a part '.' or '..'";
    return NULL;
}

enum s3_code s3_key_path_check(const char *key, bool *is_directory)
{
    size_t bytes = strlen(key);
    bool directory = bytes > 1 && key[bytes - 1] == '/';
    size_t end = bytes - (directory ? 1 : 0);
    for (size_t at = 0; at <= end;) {
        const char *slash = memchr(key + at, '/', end - at);
        size_t part = slash != NULL ? (size_t)(slash - key) - at : end - at;
        const char *wrong = wrong_part(key + at, part);
        if (wrong != NULL)
            return s3_error(S3_INVALID_ARGUMENT,
                            "The key '%.300s' can't be a path in a job: %s. Copy the object to "
                            "another key.",
                            key, wrong);
        at += part + 1;
    }
    *is_directory = directory;
    return S3_OK;
}
