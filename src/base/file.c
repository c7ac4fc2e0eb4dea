/* SPDX-License-Identifier: Apache-2.0 */
/* file.c: see file.h. */
#include "base/file.h"

#include <errno.h>
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
