/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c: opening, making and removing in folders that are not trusted. */
#include "channel/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"

#define OPEN_TRIES 16

int channel_open_beneath(int folder_fd, const char *path, int flags, mode_t mode)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .mode = (flags & O_CREAT) != 0 ? mode : 0,
                           .resolve =
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = -1;
    for (int i = 0; i < OPEN_TRIES; i++) {
        fd = (int)syscall(SYS_openat2, folder_fd, *path != '\0' ? path : ".", &how, sizeof(how));
        if (fd >= 0 || errno != EAGAIN) /* EAGAIN: something was renamed on the way */
            break;
    }
    return fd;
}

int channel_open_kind(int folder_fd, const char *path, mode_t kind, int flags)
{
    char by_number[64];
    struct stat about;
    int place = channel_open_beneath(folder_fd, path, O_PATH, 0), fd = -1;
    if (place < 0)
        return -1;
    if (fstat(place, &about) == 0) {
        snprintf(by_number, sizeof(by_number), "/proc/self/fd/%d", place);
        errno = EINVAL;
        if ((about.st_mode & S_IFMT) == kind)
            fd = open(by_number, flags | O_CLOEXEC);
    }
    int number = errno;
    close(place);
    errno = number;
    return fd;
}

static enum shoal_status in_the_way(const char *path)
{
    return base_error(SHOAL_ERR_STATE, "'%.300s' can't be made: a file or a link is in the way",
                      path);
}

/* One folder further; closes `at`. */
static int enter(int at, const char *name)
{
    int next = -1;
    if (mkdirat(at, name, CHANNEL_FOLDER_MODE) == 0 || errno == EEXIST)
        next = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int number = errno;
    close(at);
    errno = number;
    return next;
}

enum shoal_status channel_folder_open(int folder_fd, const char *path, int *out)
{
    char part[NAME_MAX + 1];
    int at = fcntl(folder_fd, F_DUPFD_CLOEXEC, 0);
    for (const char *next = path; at >= 0 && *next != '\0';) {
        size_t bytes = strcspn(next, "/");
        bool is_step = bytes == 0 || (bytes == 1 && *next == '.');
        if (bytes > NAME_MAX || (bytes == 2 && memcmp(next, "..", 2) == 0)) {
            close(at);
            return base_error(SHOAL_ERR_ARGUMENT, "'%.300s' is no path of a folder", path);
        }
        snprintf(part, sizeof(part), "%.*s", (int)bytes, next);
        next += bytes + (next[bytes] == '/');
        if (!is_step)
            at = enter(at, part);
    }
    if (at < 0 && (errno == ENOTDIR || errno == ELOOP))
        return in_the_way(path);
    if (at < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the folder '%.300s'", path);
    *out = at;
    return SHOAL_OK;
}

enum shoal_status channel_folder_above(int folder_fd, const char *path, int *out, const char **name)
{
    char above[CHANNEL_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    int bytes = slash != NULL ? (int)(slash - path) : 0;
    if (snprintf(above, sizeof(above), "%.*s", bytes, path) >= CHANNEL_PATH_BYTES)
        return base_error(SHOAL_ERR_LIMIT, "the path '%.100s...' is too long", path);
    TRY(channel_folder_open(folder_fd, above, out));
    *name = slash != NULL ? slash + 1 : path;
    return SHOAL_OK;
}

/* ---- removing: what lies deep is moved up first, so that two descriptors are enough ---- */

struct removal {
    int top_fd;
    unsigned number; /* of what was moved up */
};

static bool is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static bool move_up(struct removal *removal, int folder_fd, const char *name)
{
    char fresh[32];
    for (int tries = 0; tries < 1000; tries++) {
        snprintf(fresh, sizeof(fresh), ".removed-%u", removal->number++);
        if (renameat2(folder_fd, name, removal->top_fd, fresh, RENAME_NOREPLACE) == 0)
            return true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

/* Empties a folder below the top. */
static bool empty(struct removal *removal, const char *folder)
{
    int fd = openat(removal->top_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    bool good = list != NULL;
    if (fd >= 0 && fchmod(fd, 0700) != 0)
        good = false;
    for (struct dirent *entry; good && (entry = readdir(list)) != NULL;) {
        if (is_dots(entry->d_name) || unlinkat(fd, entry->d_name, 0) == 0)
            continue;
        good = unlinkat(fd, entry->d_name, AT_REMOVEDIR) == 0 ||
               ((errno == ENOTEMPTY || errno == EEXIST) && move_up(removal, fd, entry->d_name));
    }
    int number = errno;
    if (list != NULL)
        closedir(list);
    else if (fd >= 0)
        close(fd);
    errno = number;
    return good && unlinkat(removal->top_fd, folder, AT_REMOVEDIR) == 0;
}

/* One turn over the top's entries; *left says whether there were any. */
static bool empty_top(struct removal *removal, bool *left)
{
    int fd = openat(removal->top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    bool good = list != NULL;
    *left = false;
    for (struct dirent *entry; good && (entry = readdir(list)) != NULL;) {
        if (is_dots(entry->d_name))
            continue;
        *left = true;
        good = unlinkat(removal->top_fd, entry->d_name, 0) == 0 || empty(removal, entry->d_name);
    }
    int number = errno;
    if (list != NULL)
        closedir(list);
    errno = number;
    return good;
}

enum shoal_status channel_tree_remove(int folder_fd, const char *name)
{
    if (unlinkat(folder_fd, name, 0) == 0 || errno == ENOENT)
        return SHOAL_OK;
    struct removal removal = {
        .top_fd = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    bool good = removal.top_fd >= 0, left = true;
    while (good && left)
        good = empty_top(&removal, &left);
    if (good)
        good = unlinkat(folder_fd, name, AT_REMOVEDIR) == 0;
    int number = errno;
    if (removal.top_fd >= 0)
        close(removal.top_fd);
    if (!good)
        return base_error_errno(SHOAL_ERR_SYSTEM, number, "removing the folder '%.300s'", name);
    return SHOAL_OK;
}

/* ---- files ---- */

enum shoal_status channel_write_all(int fd, const void *data, size_t bytes, int64_t start)
{
    if (base_file_write(fd, data, bytes, start) != bytes)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing a file");
    return SHOAL_OK;
}

enum shoal_status channel_file_put(int folder_fd, const char *name, const char *text, size_t bytes)
{
    char fresh[NAME_MAX + 1];
    snprintf(fresh, sizeof(fresh), ".%.200s.new", name);
    TRY(channel_tree_remove(folder_fd, fresh));
    int fd = openat(folder_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the file '%s'", name);
    enum shoal_status status = channel_write_all(fd, text, bytes, 0);
    if (close(fd) != 0 && status == SHOAL_OK)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing the file '%s'", name);
    if (status == SHOAL_OK)
        status = channel_tree_remove(folder_fd, name);
    if (status == SHOAL_OK && renameat(folder_fd, fresh, folder_fd, name) != 0)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing the file '%s'", name);
    return status;
}
