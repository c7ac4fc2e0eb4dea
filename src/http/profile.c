/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c: reads the AWS tools' files, a line at a time. */
#include "http/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)

struct words {
    const char *at;
    size_t count;
};

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

static struct words trimmed(const char *at, size_t count)
{
    while (count > 0 && is_blank(*at)) {
        at++;
        count--;
    }
    while (count > 0 && is_blank(at[count - 1]))
        count--;
    return (struct words){at, count};
}

static bool is_equal(struct words words, const char *text)
{
    return strlen(text) == words.count && memcmp(words.at, text, words.count) == 0;
}

/* Within "[profile  name]": blanks between the words count as one. */
static bool is_section(struct words header, const char *section)
{
    const char *at = header.at, *end = header.at + header.count;
    for (; *section != '\0'; section++) {
        if (at == end)
            return false;
        if (*section != (is_blank(*at) ? ' ' : *at))
            return false;
        at++;
        while (*section == ' ' && at < end && is_blank(*at))
            at++;
    }
    return at == end;
}

static enum shoal_status value_take(const char *file, size_t number, struct words value, char *out,
                                    size_t bytes)
{
    if (value.count >= bytes)
        return base_error(SHOAL_ERR_LIMIT, "%s, line %zu: the value is too long", file, number);
    memcpy(out, value.at, value.count);
    out[value.count] = '\0';
    return SHOAL_OK;
}

struct reading {
    const char *file, *section, *name;
    size_t number;
    bool is_inside;
    char *out;
    size_t bytes;
};

static enum shoal_status line_read(struct reading *reading, const char *line, size_t count)
{
    struct words words = trimmed(line, count);
    bool is_indented = count > 0 && is_blank(*line);
    if (words.count == 0 || *words.at == '#' || *words.at == ';')
        return SHOAL_OK;
    if (*words.at == '[') {
        const char *end = memchr(words.at, ']', words.count);
        if (end == NULL)
            return base_error(SHOAL_ERR_FORMAT, "%s, line %zu: '[' without ']'", reading->file,
                              reading->number);
        struct words header = trimmed(words.at + 1, (size_t)(end - words.at - 1));
        reading->is_inside = is_section(header, reading->section);
        return SHOAL_OK;
    }
    const char *equals = memchr(words.at, '=', words.count);
    if (equals == NULL)
        return base_error(SHOAL_ERR_FORMAT, "%s, line %zu: neither [SECTION] nor NAME = VALUE",
                          reading->file, reading->number);
    size_t before = (size_t)(equals - words.at);
    if (!reading->is_inside || is_indented || !is_equal(trimmed(words.at, before), reading->name))
        return SHOAL_OK; /* what is indented belongs to the line above, such as "s3 =" */
    return value_take(reading->file, reading->number, trimmed(equals + 1, words.count - before - 1),
                      reading->out, reading->bytes);
}

enum shoal_status http_profile_value(const char *file, const char *text, size_t text_bytes,
                                     const char *section, const char *name, char *out, size_t bytes)
{
    struct reading reading = {
        .file = file, .section = section, .name = name, .out = out, .bytes = bytes};
    out[0] = '\0';
    if (memchr(text, '\0', text_bytes) != NULL)
        return base_error(SHOAL_ERR_FORMAT, "%s holds a NUL", file);
    for (const char *at = text, *end = text + text_bytes; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        reading.number++;
        TRY(line_read(&reading, at, (size_t)(stop - at)));
        at = stop + 1;
    }
    return SHOAL_OK;
}

static enum shoal_status bytes_read(const char *file, int fd, char *text, size_t *count)
{
    while (*count <= FILE_BYTES_MAX) {
        ssize_t got = read(fd, text + *count, FILE_BYTES_MAX + 1 - *count);
        if (got < 0 && errno != EINTR)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read %s", file);
        if (got == 0)
            return SHOAL_OK;
        *count += got > 0 ? (size_t)got : 0;
    }
    return base_error(SHOAL_ERR_LIMIT, "%s is longer than %zu bytes", file, FILE_BYTES_MAX);
}

enum shoal_status http_profile_read(const char *file, const char *section, const char *name,
                                    char *out, size_t bytes)
{
    out[0] = '\0';
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return SHOAL_OK;
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot open %s", file);
    char *text;
    size_t count = 0;
    enum shoal_status status = base_alloc(FILE_BYTES_MAX + 1, "a file of settings", (void **)&text);
    if (status == SHOAL_OK) {
        status = bytes_read(file, fd, text, &count);
        if (status == SHOAL_OK)
            status = http_profile_value(file, text, count, section, name, out, bytes);
        base_free(text);
    }
    close(fd);
    return status;
}
