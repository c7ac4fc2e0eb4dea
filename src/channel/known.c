/* SPDX-License-Identifier: Apache-2.0 */
/* known.c: paths, each with a zero behind it, in "checkpoints.known". */
#include "channel/known.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#define FILE_NAME "checkpoints.known"

/* Puts the paths of a tree's files at `out`, where there is any; their bytes. */
static size_t paths_put(const struct channel_tree *tree, const bool *wanted, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < tree->count; i++) {
        size_t bytes = strlen(tree->entries[i].path) + 1;
        if (!S_ISREG(tree->entries[i].mode) || (wanted != NULL && !wanted[i]))
            continue;
        if (out != NULL)
            memcpy(out + used, tree->entries[i].path, bytes);
        used += bytes;
    }
    return used;
}

enum shoal_status channel_known_write(struct channel_known *known, int folder_fd,
                                      const struct channel_tree *now,
                                      const struct channel_tree *seen, const bool *is_put)
{
    struct channel_known fresh;
    size_t bytes = paths_put(now, NULL, NULL);
    fresh.bytes = bytes + paths_put(seen, is_put, NULL);
    TRY(base_alloc(fresh.bytes + 1, "the paths of checkpoints", (void **)&fresh.text));
    paths_put(now, NULL, fresh.text);
    paths_put(seen, is_put, fresh.text + bytes);
    enum shoal_status status = SHOAL_OK;
    bool is_same = known->text != NULL && known->bytes == fresh.bytes &&
                   memcmp(known->text, fresh.text, fresh.bytes) == 0;
    if (!is_same)
        status = channel_file_put(folder_fd, FILE_NAME, fresh.text, fresh.bytes);
    if (status != SHOAL_OK) {
        base_free(fresh.text);
        return status;
    }
    base_free(known->text);
    *known = fresh;
    return SHOAL_OK;
}

static enum shoal_status text_read(int fd, struct channel_known *out)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading " FILE_NAME);
    TRY(base_alloc((size_t)about.st_size + 1, "the paths of checkpoints", (void **)&out->text));
    ssize_t got = pread(fd, out->text, (size_t)about.st_size, 0);
    out->bytes = got > 0 ? (size_t)got : 0;
    out->text[out->bytes] = '\0';
    return SHOAL_OK;
}

enum shoal_status channel_known_read(int folder_fd, struct channel_tree *tree)
{
    struct channel_known was = {0};
    int fd = openat(folder_fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return SHOAL_OK;
    enum shoal_status status = text_read(fd, &was);
    close(fd);
    for (size_t at = 0; status == SHOAL_OK && at < was.bytes; at += strlen(was.text + at) + 1)
        status = channel_tree_add_path(tree, was.text + at, CHANNEL_KNOWN_FOLDER);
    channel_known_release(&was);
    return status;
}

void channel_known_release(struct channel_known *known)
{
    base_free(known->text);
    *known = (struct channel_known){0};
}
