/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_move.c: whole trees between a folder and a bucket elsewhere: a batch of paths is taken from
 * the tree, moved side by side, and the next one is taken.
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

struct move {
    char path[S3_KEY_BYTES_MAX + 1];
    struct s3_object known;
};

struct moving {
    struct s3_client *client;
    const struct s3_link_options *options; /* of what comes */
    const char *folder, *bucket, *prefix;  /* of what goes */
    int folder_fd;
    struct move *batch;
    int64_t count;
};

/* The file at a path below a folder, new, with its folders. A path that ends in '/' makes the
 * folder alone, and *fd is -1. */
static enum s3_code file_make(int folder_fd, const char *path, int *fd)
{
    bool is_directory;
    int folder;
    const char *name;
    S3_TRY(s3_key_path_check(path, &is_directory));
    S3_TRY(s3_folder_of(folder_fd, path, true, &folder, &name));
    *fd = -1;
    if (*name == '\0') {
        close(folder);
        return S3_OK;
    }
    /* A new file, never the bytes of one that others may have open or linked. */
    unlinkat(folder, name, 0);
    int file = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    int number = errno;
    close(folder);
    if (file < 0)
        return s3_error_errno(number, "can't make the file %.300s", path);
    *fd = file;
    return S3_OK;
}

/* --------------------------------------------------------------------------------------- coming */

static enum s3_code one_fetch(void *user, int64_t index)
{
    struct moving *moving = user;
    struct move *move = &moving->batch[index];
    const struct s3_link_options *options = moving->options;
    char key[S3_KEY_BYTES_MAX + 1];
    int fd;
    snprintf(key, sizeof(key), "%s%s", options->prefix, move->path);
    S3_TRY(file_make(options->directory_fd, key + options->strip_bytes, &fd));
    if (fd < 0)
        return S3_OK;
    enum s3_code code = s3_client_get(moving->client, options->bucket, key, &move->known, fd);
    close(fd);
    return code == S3_OK
               ? S3_OK
               : s3_error(code, "s3://%s/%.300s: %s", options->bucket, key, base_error_text());
}

/* Keys that stand for nothing below the directory are left out. */
static enum s3_code is_wanted(const struct s3_link_options *options,
                              const struct s3_tree_entry *entry, int64_t index, bool *out)
{
    char key[S3_KEY_BYTES_MAX + 1];
    bool is_directory;
    snprintf(key, sizeof(key), "%s%s", options->prefix, entry->path);
    *out = options->choose == NULL || options->choose(options->user, index, key);
    if (!*out)
        return S3_OK;
    if (strlen(key) < options->strip_bytes)
        return s3_error(S3_INVALID_ARGUMENT, "the key '%.300s' is shorter than what is left off",
                        key);
    *out = key[options->strip_bytes] != '\0' || entry->bytes != 0;
    if (!*out)
        return S3_OK;
    S3_TRY(s3_key_path_check(key + options->strip_bytes, &is_directory));
    if (is_directory && entry->bytes != 0)
        return s3_error(S3_INVALID_ARGUMENT,
                        "the key '%.300s' ends in '/' but has bytes, so it can be neither file nor "
                        "folder",
                        key);
    return S3_OK;
}

static void move_set(struct move *move, const struct s3_tree_entry *entry)
{
    snprintf(move->path, sizeof(move->path), "%s", entry->path);
    move->known = (struct s3_object){
        .bytes = entry->bytes, .modified_ms = entry->modified_ms, .part_count = 1};
    snprintf(move->known.etag, sizeof(move->known.etag), "%s", entry->etag);
}

/* Up to a batch of them; *used 0: there are no more. */
static enum s3_code batch_take(struct moving *moving, struct s3_tree *tree, int64_t *index,
                               int64_t *used)
{
    const struct s3_tree_entry *entry;
    bool wanted = true;
    for (*used = 0; *used < BATCH;) {
        S3_TRY(s3_tree_next(tree, &entry));
        if (entry == NULL)
            return S3_OK;
        if (moving->options != NULL)
            S3_TRY(is_wanted(moving->options, entry, (*index)++, &wanted));
        if (wanted)
            move_set(&moving->batch[(*used)++], entry);
    }
    return S3_OK;
}

static enum s3_code all_move(struct moving *moving, struct s3_tree *tree,
                             enum s3_code (*run)(void *user, int64_t index))
{
    int64_t index = 0, used;
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&moving->batch, BATCH, "paths to move")));
    enum s3_code code;
    do {
        code = batch_take(moving, tree, &index, &used);
        if (code == S3_OK && used > 0)
            code = s3_client_side_by_side(moving->client, used, run, moving);
        moving->count += used;
    } while (code == S3_OK && used > 0);
    base_free(moving->batch);
    return code;
}

enum s3_code s3_client_fetch_tree(struct s3_client *client, const struct s3_link_options *options,
                                  int64_t *count)
{
    struct s3_tree *tree;
    struct s3_link_options own = *options;
    struct moving moving = {.client = client, .options = &own};
    own.prefix = options->prefix != NULL ? options->prefix : "";
    S3_TRY(s3_tree_of_bucket(client, own.bucket, own.prefix, &tree));
    enum s3_code code = all_move(&moving, tree, one_fetch);
    s3_tree_close(tree);
    if (code == S3_OK)
        *count = moving.count;
    return code;
}

/* ---------------------------------------------------------------------------------------- going */

static enum s3_code opened_store(struct moving *moving, int fd, const char *key)
{
    struct stat about;
    struct s3_client_put put = {.bucket = moving->bucket, .key = key};
    if (fstat(fd, &about) != 0)
        return s3_error_errno(errno, "can't look at the file");
    return s3_client_put(moving->client, &put, fd, 0, about.st_size, NULL);
}

/* Parts of a path may have become links, or pipes, since they were seen. */
static enum s3_code file_open(const struct moving *moving, const char *path, int *fd)
{
    int folder;
    const char *name;
    S3_TRY(s3_folder_of(moving->folder_fd, path, false, &folder, &name));
    *fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int number = errno;
    close(folder);
    return *fd < 0 ? s3_error_errno(number, "can't open %s/%.300s", moving->folder, path) : S3_OK;
}

static enum s3_code one_store(void *user, int64_t index)
{
    struct moving *moving = user;
    const char *path = moving->batch[index].path;
    char key[2 * S3_KEY_BYTES_MAX];
    int fd;
    S3_TRY(file_open(moving, path, &fd));
    snprintf(key, sizeof(key), "%s%s", moving->prefix, path);
    enum s3_code code = opened_store(moving, fd, key);
    close(fd);
    return code == S3_OK ? S3_OK
                         : s3_error(code, "%s/%.300s: %s", moving->folder, path, base_error_text());
}

enum s3_code s3_client_store_tree(struct s3_client *client, const char *folder, const char *bucket,
                                  const char *prefix, int64_t *count)
{
    struct s3_tree *tree;
    struct moving moving = {.client = client, .folder = folder, .bucket = bucket, .prefix = prefix};
    moving.folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (moving.folder_fd < 0)
        return s3_error_errno(errno, "can't open the folder %s", folder);
    enum s3_code code = s3_tree_of_folder(folder, false, &tree);
    if (code == S3_OK) {
        code = all_move(&moving, tree, one_store);
        s3_tree_close(tree);
    }
    close(moving.folder_fd);
    if (code == S3_OK)
        *count = moving.count;
    return code;
}
