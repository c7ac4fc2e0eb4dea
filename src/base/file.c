/* SPDX-License-Identifier: Apache-2.0 */
/* file.c: see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

size_t base_file_write(int fd, const void *data, size_t bytes, int64_t start)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t written =
            pwrite(fd, (const char *)data + done, bytes - done, start + (int64_t)done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written == 0)
            errno = EIO;
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    return done;
}

void base_file_reserve(const char *path, int64_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (fallocate(fd, 0, 0, bytes) != 0)
        unlink(path);
    close(fd);
}

bool base_file_reserve_use(const char *path)
{
    return unlink(path) == 0;
}
