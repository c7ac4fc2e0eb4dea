/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_store.c: a folder's files become objects: a batch of paths is taken from the tree, sent side
 * by side, and the next one is taken.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/folder.h"
#include "s3/tree.h"

#define BATCH 256

struct storing {
    struct s3_client *client;
    const char *folder, *bucket, *prefix;
    int folder_fd;
    char (*paths)[S3_KEY_BYTES_MAX + 1];
    int64_t count;
};

/* Up to a batch of them; *used 0: there are no more. */
static enum s3_code batch_take(struct storing *storing, struct s3_tree *tree, int64_t *used)
{
    const struct s3_tree_entry *entry;
    for (*used = 0; *used < BATCH; ++*used) {
        S3_TRY(s3_tree_next(tree, &entry));
        if (entry == NULL)
            return S3_OK;
        snprintf(storing->paths[*used], sizeof(storing->paths[*used]), "%s", entry->path);
    }
    return S3_OK;
}

static enum s3_code opened_store(struct storing *storing, int fd, const char *key)
{
    struct stat about;
    struct s3_client_put put = {.bucket = storing->bucket, .key = key};
    if (fstat(fd, &about) != 0)
        return s3_error_errno(errno, "can't look at the file");
    return s3_client_put(storing->client, &put, fd, 0, about.st_size, NULL);
}

/* Parts of a path may have become links, or pipes, since they were seen. */
static enum s3_code file_open(const struct storing *storing, const char *path, int *fd)
{
    int folder;
    const char *name;
    S3_TRY(s3_folder_of(storing->folder_fd, path, false, &folder, &name));
    *fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int number = errno;
    close(folder);
    return *fd < 0 ? s3_error_errno(number, "can't open %s/%.300s", storing->folder, path) : S3_OK;
}

static enum s3_code one_store(void *user, int64_t index)
{
    struct storing *storing = user;
    const char *path = storing->paths[index];
    char key[2 * S3_KEY_BYTES_MAX];
    int fd;
    S3_TRY(file_open(storing, path, &fd));
    snprintf(key, sizeof(key), "%s%s", storing->prefix, path);
    enum s3_code code = opened_store(storing, fd, key);
    close(fd);
    return code == S3_OK
               ? S3_OK
               : s3_error(code, "%s/%.300s: %s", storing->folder, path, base_error_text());
}

static enum s3_code all_store(struct storing *storing, struct s3_tree *tree)
{
    enum s3_code code;
    int64_t used;
    do {
        code = batch_take(storing, tree, &used);
        if (code == S3_OK && used > 0)
            code = s3_client_side_by_side(storing->client, used, one_store, storing);
        storing->count += used;
    } while (code == S3_OK && used > 0);
    return code;
}

static enum s3_code folder_store(struct storing *storing)
{
    struct s3_tree *tree;
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&storing->paths, BATCH, "paths of a folder")));
    enum s3_code code = s3_tree_of_folder(storing->folder, false, &tree);
    if (code == S3_OK) {
        code = all_store(storing, tree);
        s3_tree_close(tree);
    }
    base_free(storing->paths);
    return code;
}

enum s3_code s3_client_store_tree(struct s3_client *client, const char *folder, const char *bucket,
                                  const char *prefix, int64_t *count)
{
    struct storing storing = {
        .client = client, .folder = folder, .bucket = bucket, .prefix = prefix};
    storing.folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (storing.folder_fd < 0)
        return s3_error_errno(errno, "can't open the folder %s", folder);
    enum s3_code code = folder_store(&storing);
    close(storing.folder_fd);
    if (code == S3_OK)
        *count = storing.count;
    return code;
}
