/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c: walks down a path, a folder at a time. */
#include "s3/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Takes the descriptor. -1 with errno. */
static int step(int at, const char *part, bool makes)
{
    int next = -1;
    if (!makes || mkdirat(at, part, 0755) == 0 || errno == EEXIST)
        next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int number = errno;
    close(at);
    errno = number;
    return next;
}

enum s3_code s3_folder_of(int folder, const char *path, bool makes, int *out, const char **name)
{
    int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    const char *rest = path, *slash;
    for (; at >= 0 && (slash = strchr(rest, '/')) != NULL; rest = slash + 1) {
        char part[NAME_MAX + 1];
        snprintf(part, sizeof(part), "%.*s", (int)(slash - rest), rest);
        at = step(at, part, makes);
    }
    if (at < 0 && (errno == ENOTDIR || errno == ELOOP || errno == EEXIST))
        return s3_error(S3_INVALID_ARGUMENT, "a file or a link is where '%.300s' needs a folder",
                        path);
    if (at < 0)
        return s3_error_errno(errno, "can't open a folder of '%.300s'", path);
    *out = at;
    *name = rest;
    return S3_OK;
}
