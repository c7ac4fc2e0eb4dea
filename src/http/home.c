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

#include "base/memory.h"
#include "base/status.h"

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
    size_t address = strcspn(note, " ");
    if (address == 0)
        return base_error(SHOAL_ERR_STATE, "a service is being started in %s", path);
    return base_error(
        SHOAL_ERR_STATE,
        "%s belongs to the service at %.*s (process%s): end that one, or give another "
        "directory with --dir",
        path, (int)address, note, note + address);
}

static enum shoal_status take(struct http_home *home)
{
    char file[HTTP_HOME_PATH_BYTES + 16];
    TRY(http_home_file(home->path, "address", file, sizeof(file)));
    home->fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (home->fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot open %s", file);
    if (flock(home->fd, LOCK_EX | LOCK_NB) != 0)
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

enum shoal_status http_home_announce(struct http_home *home, const char *address)
{
    char note[HTTP_HOME_ADDRESS_BYTES];
    int length = snprintf(note, sizeof(note), "%s %ld\n", address, (long)getpid());
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

static enum shoal_status address_read(const char *path, int fd, char *address, size_t bytes)
{
    char note[HTTP_HOME_ADDRESS_BYTES];
    bool is_free = flock(fd, LOCK_SH | LOCK_NB) == 0;
    note_read(fd, note, sizeof(note));
    size_t length = strcspn(note, " ");
    if (is_free || length == 0 || length >= bytes)
        return base_error(SHOAL_ERR_STATE, "no service runs in %s", path);
    memcpy(address, note, length);
    address[length] = '\0';
    return SHOAL_OK;
}

enum shoal_status http_home_address(const char *path, char *address, size_t bytes)
{
    char file[HTTP_HOME_PATH_BYTES + 16];
    TRY(http_home_file(path, "address", file, sizeof(file)));
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return base_error(SHOAL_ERR_STATE, "no service runs in %s", path);
    enum shoal_status status = address_read(path, fd, address, bytes);
    close(fd);
    return status;
}
