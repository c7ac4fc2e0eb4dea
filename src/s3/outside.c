/* SPDX-License-Identifier: Apache-2.0 */
/* outside.c: reads the lines that say which buckets are elsewhere, and finds a bucket's. */
#include "s3/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#define FILE_BYTES_MAX (256 << 10)
#define BLANKS         " \t\r"

struct row {
    char pattern[S3_BUCKET_NAME_MAX + 1];
    char url[HTTP_ENDPOINT_URL_BYTES];
    char region[HTTP_ENDPOINT_REGION_BYTES];
    char profile[128];
    enum s3_style style;
};

struct s3_outside {
    struct row *rows;
    size_t count;
};

static enum shoal_status text_take(char *out, size_t bytes, const char *text)
{
    if (*text == '\0' || strlen(text) >= bytes)
        return base_error(SHOAL_ERR_FORMAT, "'%.100s' is empty or too long", text);
    memcpy(out, text, strlen(text) + 1);
    return SHOAL_OK;
}

static enum shoal_status setting_take(struct row *row, const char *word)
{
    if (strncmp(word, "region=", 7) == 0)
        return text_take(row->region, sizeof(row->region), word + 7);
    if (strncmp(word, "profile=", 8) == 0)
        return text_take(row->profile, sizeof(row->profile), word + 8);
    if (strcmp(word, "style=path") == 0)
        row->style = S3_STYLE_PATH;
    else if (strcmp(word, "style=virtual") == 0)
        row->style = S3_STYLE_VIRTUAL;
    else
        return base_error(SHOAL_ERR_FORMAT,
                          "'%.100s' is none of region=, profile=, style=path, style=virtual", word);
    return SHOAL_OK;
}

static enum shoal_status url_take(struct row *row, const char *word)
{
    struct http_endpoint endpoint = {.url = ""};
    if (word == NULL)
        return base_error(SHOAL_ERR_FORMAT, "a bucket without the address of its service");
    if (http_endpoint_set_url(&endpoint, word, "outside") != SHOAL_OK)
        return base_error(SHOAL_ERR_FORMAT, "%s", base_error_text());
    return text_take(row->url, sizeof(row->url), endpoint.url);
}

/* *is_row is false for an empty line. */
static enum shoal_status line_read(char *line, struct row *out, bool *is_row)
{
    char *rest = NULL;
    struct row row = {.style = S3_STYLE_AUTO};
    line[strcspn(line, "#")] = '\0';
    const char *word = strtok_r(line, BLANKS, &rest);
    *is_row = word != NULL;
    if (word == NULL)
        return SHOAL_OK;
    TRY(text_take(row.pattern, sizeof(row.pattern), word));
    TRY(url_take(&row, strtok_r(NULL, BLANKS, &rest)));
    while ((word = strtok_r(NULL, BLANKS, &rest)) != NULL)
        TRY(setting_take(&row, word));
    *out = row;
    return SHOAL_OK;
}

static enum shoal_status lines_read(struct s3_outside *outside, const char *name, char *text)
{
    size_t number = 0;
    for (char *line = text, *next; line != NULL; line = next) {
        bool is_row;
        struct row row;
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        number++;
        enum shoal_status status = line_read(line, &row, &is_row);
        if (status == SHOAL_OK && is_row && outside->count == S3_OUTSIDE_LINES_MAX)
            status = base_error(SHOAL_ERR_FORMAT, "more than %d lines", S3_OUTSIDE_LINES_MAX);
        if (status != SHOAL_OK)
            return base_error_context(status, "%s, line %zu", name, number);
        if (is_row)
            outside->rows[outside->count++] = row;
    }
    return SHOAL_OK;
}

static size_t lines_of(const char *text)
{
    size_t count = 1;
    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count < S3_OUTSIDE_LINES_MAX ? count : S3_OUTSIDE_LINES_MAX;
}

static enum shoal_status text_read(const char *name, char *text, struct s3_outside **out)
{
    struct s3_outside *outside;
    TRY(BASE_NEW(&outside, "buckets elsewhere"));
    enum shoal_status status = BASE_NEW_ARRAY(&outside->rows, lines_of(text), "buckets elsewhere");
    if (status == SHOAL_OK)
        status = lines_read(outside, name, text);
    if (status != SHOAL_OK)
        s3_outside_free(outside);
    else
        *out = outside;
    return status;
}

enum shoal_status s3_outside_parse(const char *name, const char *text, size_t bytes,
                                   struct s3_outside **out)
{
    char *copy;
    if (bytes > FILE_BYTES_MAX || memchr(text, '\0', bytes) != NULL)
        return base_error(SHOAL_ERR_FORMAT, "%s holds a NUL, or more than %d bytes", name,
                          FILE_BYTES_MAX);
    TRY(base_alloc(bytes + 1, "a text of settings", (void **)&copy));
    memcpy(copy, text, bytes);
    enum shoal_status status = text_read(name, copy, out);
    base_free(copy);
    return status;
}

static enum shoal_status file_read(const char *path, int fd, char *text, size_t *bytes)
{
    for (*bytes = 0; *bytes <= FILE_BYTES_MAX;) {
        ssize_t got = read(fd, text + *bytes, FILE_BYTES_MAX + 1 - *bytes);
        if (got < 0 && errno != EINTR)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read %s", path);
        if (got == 0)
            return SHOAL_OK;
        *bytes += got > 0 ? (size_t)got : 0;
    }
    return SHOAL_OK;
}

enum shoal_status s3_outside_load(const char *path, struct s3_outside **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return s3_outside_parse(path, "", 0, out);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot open %s", path);
    char *text;
    size_t bytes;
    enum shoal_status status = base_alloc(FILE_BYTES_MAX + 1, "settings", (void **)&text);
    if (status == SHOAL_OK) {
        status = file_read(path, fd, text, &bytes);
        if (status == SHOAL_OK)
            status = s3_outside_parse(path, text, bytes, out);
        base_free(text);
    }
    close(fd);
    return status;
}

void s3_outside_free(struct s3_outside *outside)
{
    if (outside == NULL)
        return;
    base_free(outside->rows);
    base_free(outside);
}

static const struct row *row_of(const struct s3_outside *outside, const char *bucket)
{
    for (size_t i = 0; i < outside->count; i++)
        if (fnmatch(outside->rows[i].pattern, bucket, 0) == 0)
            return &outside->rows[i];
    return NULL;
}

bool s3_outside_has(const struct s3_outside *outside, const char *bucket)
{
    return row_of(outside, bucket) != NULL;
}

enum s3_code s3_outside_client(const struct s3_outside *outside, const char *bucket,
                               struct s3_client_options options, struct s3_client **out)
{
    const struct row *row = row_of(outside, bucket);
    struct http_endpoint endpoint;
    if (row == NULL)
        return s3_error(S3_NO_SUCH_BUCKET, NULL);
    struct http_endpoint_wish wish = {.service = "s3",
                                      .url = row->url,
                                      .profile = row->profile[0] != '\0' ? row->profile : NULL,
                                      .region = row->region[0] != '\0' ? row->region : NULL};
    S3_TRY(s3_from_status(http_endpoint_find(&wish, &endpoint)));
    options.endpoint = &endpoint;
    options.style = row->style;
    return s3_client_create(&options, out);
}
