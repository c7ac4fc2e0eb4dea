/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home.c: the service's directory.
 *
 * Who runs is told by a lock, not by the file: it goes with its process, however that ends.
 */
#include "http/home.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#define LOCK_TRIES    20
#define LOCK_PAUSE_MS 10

static const char *const schemes[] = {
    [HTTP_HOME_PLAIN] = " http",
    [HTTP_HOME_TLS] = " tls",
    [HTTP_HOME_TLS_GIVEN] = " tls-given",
};

struct http_home {
    char path[HTTP_HOME_PATH_BYTES];
    int fd; /* of `address`, locked */
};

enum shoal_status http_home_default(char *path, size_t bytes)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int length;
    if (data != NULL && data[0] == '/')
        length = snprintf(path, bytes, "%s/shoal", data);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path, bytes, "%s/.local/share/shoal", home);
    else
        return base_error(SHOAL_ERR_ARGUMENT, "HOME is not set: give the directory with --dir");
    if (length < 0 || (size_t)length >= bytes)
        return base_error(SHOAL_ERR_ARGUMENT, "the path of the service's directory is too long");
    return SHOAL_OK;
}

enum shoal_status http_home_file(const char *path, const char *name, char *out, size_t bytes)
{
    int length = snprintf(out, bytes, "%s/%s", path, name);
    if (length < 0 || (size_t)length >= bytes)
        return base_error(SHOAL_ERR_ARGUMENT, "the path %s is too long", path);
    return SHOAL_OK;
}

/* The directory and those above it. */
static enum shoal_status folders_make(const char *path)
{
    char part[HTTP_HOME_PATH_BYTES];
    TRY(http_home_file(path, "", part, sizeof(part)));
    for (char *at = strchr(part + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make the directory %s", part);
        *at = '/';
    }
    return SHOAL_OK;
}

/* What the file says; empty if it says nothing. */
static void note_read(int fd, char *note, size_t bytes)
{
    ssize_t got = pread(fd, note, bytes - 1, 0);
    note[got > 0 ? got : 0] = '\0';
    note[strcspn(note, "\n")] = '\0';
}

static enum shoal_status taken(const char *path, int fd)
{
    char note[HTTP_HOME_ADDRESS_BYTES];
    note_read(fd, note, sizeof(note));
    char address[HTTP_HOME_ADDRESS_BYTES];
    long process = 0;
    if (sscanf(note, "%127s %ld", address, &process) != 2)
        return base_error(SHOAL_ERR_STATE, "a service is being started in %s", path);
    return base_error(
        SHOAL_ERR_STATE,
        "%s belongs to the service at %s (process %ld): end that one, or give another "
        "directory with --dir",
        path, address, process);
}

/* A process that a killed service had begun to start has its descriptors for a moment more. */
static bool lock_take(int fd)
{
    for (int tries = 1; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK || tries == LOCK_TRIES)
            return false;
        base_sleep_ms(LOCK_PAUSE_MS);
    }
    return true;
}

static enum shoal_status take(struct http_home *home)
{
    char file[HTTP_HOME_PATH_BYTES + 16];
    TRY(http_home_file(home->path, "address", file, sizeof(file)));
    home->fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (home->fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot open %s", file);
    if (!lock_take(home->fd))
        return errno == EWOULDBLOCK
                   ? taken(home->path, home->fd)
                   : base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot lock %s", file);
    if (ftruncate(home->fd, 0) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s", file);
    return SHOAL_OK;
}

static enum shoal_status home_fill(struct http_home *home, const char *path)
{
    char absolute[PATH_MAX];
    home->fd = -1;
    TRY(folders_make(path));
    if (realpath(path, absolute) == NULL || strlen(absolute) >= sizeof(home->path))
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot use the directory %s", path);
    memcpy(home->path, absolute, strlen(absolute) + 1);
    return take(home);
}

enum shoal_status http_home_open(const char *path, struct http_home **out)
{
    struct http_home *home;
    if (path[0] == '\0')
        return base_error(SHOAL_ERR_ARGUMENT, "the service's directory has no name");
    TRY(BASE_NEW(&home, "the service's directory"));
    enum shoal_status status = home_fill(home, path);
    if (status != SHOAL_OK) {
        if (home->fd >= 0)
            close(home->fd);
        base_free(home);
        return status;
    }
    *out = home;
    return SHOAL_OK;
}

const char *http_home_path(const struct http_home *home)
{
    return home->path;
}

enum shoal_status http_home_announce(struct http_home *home, const char *address,
                                     enum http_home_scheme scheme)
{
    char note[HTTP_HOME_ADDRESS_BYTES];
    int length =
        snprintf(note, sizeof(note), "%s %ld%s\n", address, (long)getpid(), schemes[scheme]);
    if (pwrite(home->fd, note, (size_t)length, 0) != length)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s/address", home->path);
    return SHOAL_OK;
}

void http_home_close(struct http_home *home)
{
    if (home == NULL)
        return;
    /* Without the lock nobody looks at what it says, so a failure changes nothing. */
    (void)!ftruncate(home->fd, 0);
    close(home->fd);
    base_free(home);
}

/* What the running service says of itself. */
static enum shoal_status running_read(const char *path, char note[HTTP_HOME_ADDRESS_BYTES])
{
    char file[HTTP_HOME_PATH_BYTES + 16];
    TRY(http_home_file(path, "address", file, sizeof(file)));
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    bool runs = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (runs)
        note_read(fd, note, HTTP_HOME_ADDRESS_BYTES);
    if (fd >= 0)
        close(fd);
    return runs && note[0] != '\0' ? SHOAL_OK
                                   : base_error(SHOAL_ERR_STATE, "no service runs in %s", path);
}

enum shoal_status http_home_address(const char *path, char *address, size_t bytes)
{
    char note[HTTP_HOME_ADDRESS_BYTES];
    TRY(running_read(path, note));
    note[strcspn(note, " ")] = '\0';
    if (snprintf(address, bytes, "%s", note) >= (int)bytes)
        return base_error(SHOAL_ERR_LIMIT, "the service's address is too long");
    return SHOAL_OK;
}

static enum http_home_scheme scheme_of(const char *note)
{
    const char *word = strrchr(note, ' ');
    for (size_t i = 0; word != NULL && i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (strcmp(word, schemes[i]) == 0)
            return (enum http_home_scheme)i;
    return HTTP_HOME_PLAIN;
}

enum shoal_status http_home_url(const char *path, char *url, size_t bytes,
                                enum http_home_scheme *scheme)
{
    char note[HTTP_HOME_ADDRESS_BYTES];
    TRY(running_read(path, note));
    enum http_home_scheme found = scheme_of(note);
    note[strcspn(note, " ")] = '\0';
    const char *port = strrchr(note, ':'); /* where it listens on all addresses, of this machine */
    bool is_any = strncmp(note, "0.0.0.0:", 8) == 0 || strncmp(note, "[::]:", 5) == 0;
    if (snprintf(url, bytes, "http%s://%s%s", found != HTTP_HOME_PLAIN ? "s" : "",
                 is_any ? "127.0.0.1" : "", is_any && port != NULL ? port : note) >= (int)bytes)
        return base_error(SHOAL_ERR_LIMIT, "the service's address is too long");
    *scheme = found;
    return SHOAL_OK;
}

enum shoal_status http_home_secret_check(const char *path, int fd)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read %s", path);
    if (!S_ISREG(about.st_mode))
        return base_error(SHOAL_ERR_SYSTEM, "%s is no plain file", path);
    if ((about.st_mode & 077) != 0)
        return base_error(SHOAL_ERR_SYSTEM,
                          "%s holds secrets, and others than its owner may use it (mode %03o): "
                          "chmod 600 %s",
                          path, (unsigned)about.st_mode & 0777, path);
    return SHOAL_OK;
}
