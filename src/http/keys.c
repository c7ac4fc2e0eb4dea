/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c: the file of access keys. */
#include "http/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/home.h"

#define FILE_BYTES_MAX   (1 << 20)
#define KEYS_MAX         1000
#define ID_LENGTH_MIN    3
#define SECRET_LENGTH    40
#define SECRET_MIN       8
#define ID_PREFIX        "SHOAL"
#define ID_RANDOM_LENGTH 15

struct http_keys {
    size_t count, capacity;
    struct http_key *keys;
};

static bool is_plain(const char *word, const char *more)
{
    for (; *word != '\0'; word++) {
        bool is_letter = (*word >= 'a' && *word <= 'z') || (*word >= 'A' && *word <= 'Z');
        if (!is_letter && !(*word >= '0' && *word <= '9') && strchr(more, *word) == NULL)
            return false;
    }
    return true;
}

static bool is_printable(const char *word)
{
    for (; *word != '\0'; word++)
        if (*word <= ' ' || *word > '~')
            return false;
    return true;
}

/* Never with the secret in its text: it may end in a log. */
static enum shoal_status wrong(const char *name, int line, const char *what)
{
    return base_error(SHOAL_ERR_FORMAT,
                      "%s:%d: %s (a line is KEY SECRET [NAME], and '#' begins a comment)", name,
                      line, what);
}

static enum shoal_status check(const char *file, int line, const struct http_keys *keys,
                               const char *id, const char *secret, const char *name)
{
    if (secret == NULL)
        return wrong(file, line, "the secret is missing");
    if (strlen(id) < ID_LENGTH_MIN || strlen(id) >= HTTP_KEY_ID_BYTES || !is_plain(id, "_-"))
        return wrong(file, line, "a key is 3 to 128 letters, digits, '_' and '-'");
    if (strlen(secret) < SECRET_MIN || strlen(secret) >= HTTP_KEY_SECRET_BYTES ||
        !is_printable(secret))
        return wrong(file, line, "a secret is 8 to 128 characters of ASCII without blanks");
    if (name != NULL && (strlen(name) >= HTTP_KEY_NAME_BYTES || !is_plain(name, "_-+=,.@")))
        return wrong(file, line, "a name is at most 64 letters, digits and _-+=,.@");
    if (http_keys_find(keys, id) != NULL)
        return wrong(file, line, "this key stands in an earlier line too");
    if (keys->count == keys->capacity)
        return wrong(file, line, "more than 1000 keys");
    return SHOAL_OK;
}

static enum shoal_status line_parse(const char *file, int number, char *line,
                                    struct http_keys *keys)
{
    line[strcspn(line, "#")] = '\0';
    char *rest = NULL;
    const char *id = strtok_r(line, " \t\r", &rest);
    if (id == NULL)
        return SHOAL_OK;
    const char *secret = strtok_r(NULL, " \t\r", &rest), *name = strtok_r(NULL, " \t\r", &rest);
    if (strtok_r(NULL, " \t\r", &rest) != NULL)
        return wrong(file, number, "a fourth word");
    TRY(check(file, number, keys, id, secret, name));
    struct http_key *key = &keys->keys[keys->count++];
    snprintf(key->id, sizeof(key->id), "%s", id);
    snprintf(key->secret, sizeof(key->secret), "%s", secret);
    snprintf(key->name, sizeof(key->name), "%s", name != NULL ? name : id);
    return SHOAL_OK;
}

static enum shoal_status lines_parse(const char *file, char *text, struct http_keys *keys)
{
    char *line;
    for (int number = 1; (line = strsep(&text, "\n")) != NULL; number++)
        TRY(line_parse(file, number, line, keys));
    if (keys->count == 0)
        return base_error(SHOAL_ERR_FORMAT, "%s: there is no key in it", file);
    return SHOAL_OK;
}

static size_t lines_count(const char *text, size_t bytes)
{
    size_t lines = 1;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    return lines < KEYS_MAX ? lines : KEYS_MAX;
}

enum shoal_status http_keys_parse(const char *name, const char *text, size_t bytes,
                                  struct http_keys **out)
{
    if (memchr(text, '\0', bytes) != NULL)
        return base_error(SHOAL_ERR_FORMAT, "%s: it holds a NUL, so it is no text", name);
    struct http_keys *keys;
    TRY(BASE_NEW(&keys, "access keys"));
    char *copy = NULL;
    enum shoal_status status = base_alloc(bytes + 1, "a file of keys", (void **)&copy);
    if (status == SHOAL_OK) {
        memcpy(copy, text, bytes);
        keys->capacity = lines_count(text, bytes);
        status = BASE_NEW_ARRAY(&keys->keys, keys->capacity, "access keys");
    }
    if (status == SHOAL_OK)
        status = lines_parse(name, copy, keys);
    if (copy != NULL)
        OPENSSL_cleanse(copy, bytes);
    base_free(copy);
    if (status != SHOAL_OK) {
        http_keys_free(keys);
        return status;
    }
    *out = keys;
    return SHOAL_OK;
}

static enum shoal_status file_check(const char *path, int fd, size_t *bytes)
{
    struct stat about;
    TRY(http_home_secret_check(path, fd));
    if (fstat(fd, &about) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read %s", path);
    if (about.st_size > FILE_BYTES_MAX)
        return base_error(SHOAL_ERR_LIMIT, "%s has more than %d bytes", path, FILE_BYTES_MAX);
    *bytes = (size_t)about.st_size;
    return SHOAL_OK;
}

static enum shoal_status file_read(const char *path, int fd, struct http_keys **out)
{
    size_t bytes = 0, used = 0;
    TRY(file_check(path, fd, &bytes));
    char *text;
    TRY(base_alloc(bytes + 1, "a file of keys", (void **)&text));
    ssize_t got = 0;
    while (used < bytes && (got = read(fd, text + used, bytes - used)) > 0)
        used += (size_t)got;
    enum shoal_status status =
        got < 0 ? base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read %s", path)
                : http_keys_parse(path, text, used, out);
    OPENSSL_cleanse(text, bytes);
    base_free(text);
    return status;
}

enum shoal_status http_keys_load(const char *path, struct http_keys **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot open the file of keys %s", path);
    enum shoal_status status = file_read(path, fd, out);
    close(fd);
    return status;
}

/* Letters and digits without bias: bytes beyond the last whole multiple are drawn again. */
static enum shoal_status random_word(const char *alphabet, char *out, size_t length)
{
    size_t letters = strlen(alphabet);
    for (size_t i = 0; i < length;) {
        unsigned char byte;
        if (getrandom(&byte, 1, 0) != 1)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "no random bytes");
        if (byte < 256 / letters * letters)
            out[i++] = alphabet[byte % letters];
    }
    out[length] = '\0';
    return SHOAL_OK;
}

static enum shoal_status file_write(const char *path, int fd)
{
    char id[ID_RANDOM_LENGTH + 1], secret[SECRET_LENGTH + 1];
    TRY(random_word("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", id, ID_RANDOM_LENGTH));
    TRY(random_word("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", secret,
                    SECRET_LENGTH));
    if (dprintf(fd, "# KEY SECRET [NAME]; read when the service starts\n%s%s %s local\n", ID_PREFIX,
                id, secret) < 0 ||
        fsync(fd) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s", path);
    return SHOAL_OK;
}

enum shoal_status http_keys_make(const char *path)
{
    if (access(path, F_OK) == 0)
        return SHOAL_OK;
    char fresh[4096];
    if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
        return base_error(SHOAL_ERR_ARGUMENT, "the path %s is too long", path);
    unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make the file of keys %s", fresh);
    enum shoal_status status = file_write(fresh, fd);
    close(fd);
    if (status == SHOAL_OK && rename(fresh, path) != 0)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot rename %s to %s", fresh, path);
    if (status != SHOAL_OK)
        unlink(fresh);
    return status;
}

const struct http_key *http_keys_find(const struct http_keys *keys, const char *id)
{
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(keys->keys[i].id, id) == 0)
            return &keys->keys[i];
    return NULL;
}

const struct http_key *http_keys_first(const struct http_keys *keys)
{
    return &keys->keys[0];
}

void http_keys_free(struct http_keys *keys)
{
    if (keys == NULL)
        return;
    if (keys->keys != NULL)
        OPENSSL_cleanse(keys->keys, keys->capacity * sizeof(*keys->keys));
    base_free(keys->keys);
    base_free(keys);
}
