/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: paths in order, out of pages of a list or out of folders.
 *
 * A folder's names are read at once and sorted as keys are: a folder counts as its name with '/'
 * behind it, so "a.txt" comes before what is in "a". Open folders are a stack, as deep as the path.
 */
#include "s3/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#define NAMES_MAX 10000000

struct name {
    char *text; /* a folder's with '/' behind it */
    bool is_folder;
};

/* A folder that is open. */
struct level {
    int fd;
    size_t path_bytes; /* of its path below the root, with the '/' */
    struct name *names;
    size_t count, at;
};

struct s3_tree {
    struct s3_tree_entry entry;
    /* Of a bucket: */
    struct s3_client *client;
    struct s3_client_listing listing;
    size_t prefix_bytes;
    struct s3_list page;
    int at;
    /* Of a folder: */
    bool follows;
    struct level levels[S3_TREE_DEPTH_MAX];
    int depth;
    char path[S3_KEY_BYTES_MAX + 1];
};

/* ------------------------------------------------------------------------------------- a bucket */

enum s3_code s3_tree_of_bucket(struct s3_client *client, const char *bucket, const char *prefix,
                               struct s3_tree **out)
{
    struct s3_tree *tree;
    S3_TRY(s3_from_status(BASE_NEW(&tree, "a list of keys")));
    tree->client = client;
    tree->listing = (struct s3_client_listing){.bucket = bucket, .prefix = prefix};
    tree->prefix_bytes = strlen(prefix);
    *out = tree;
    return S3_OK;
}

static enum s3_code bucket_next(struct s3_tree *tree, const struct s3_tree_entry **out)
{
    while (tree->at == tree->page.count) {
        *out = NULL;
        if (tree->listing.is_over)
            return S3_OK;
        s3_list_release(&tree->page);
        tree->at = 0;
        S3_TRY(s3_client_list(tree->client, &tree->listing, &tree->page));
    }
    const struct s3_list_entry *entry = &tree->page.entries[tree->at++];
    tree->entry = (struct s3_tree_entry){.path = entry->key + tree->prefix_bytes,
                                         .bytes = entry->bytes,
                                         .modified_ms = entry->modified_ms,
                                         .etag = entry->etag};
    *out = &tree->entry;
    return S3_OK;
}

/* ------------------------------------------------------------------------------------- a folder */

static int name_compare(const void *left, const void *right)
{
    const struct name *a = left, *b = right;
    return strcmp(a->text, b->text);
}

static enum s3_code name_add(struct level *level, size_t *room, const char *text, bool is_folder)
{
    size_t bytes = strlen(text);
    if (level->count == NAMES_MAX)
        return s3_error(S3_INVALID_ARGUMENT, "a folder has more than %d names", NAMES_MAX);
    if (level->count == *room) {
        struct name *more;
        *room = *room * 2 + 32;
        S3_TRY(s3_from_status(BASE_NEW_ARRAY(&more, *room, "names of a folder")));
        if (level->count > 0)
            memcpy(more, level->names, level->count * sizeof(*more));
        base_free(level->names);
        level->names = more;
    }
    struct name *name = &level->names[level->count];
    S3_TRY(s3_from_status(base_alloc(bytes + 2, "a name of a folder", (void **)&name->text)));
    memcpy(name->text, text, bytes);
    if (is_folder)
        name->text[bytes] = '/';
    name->is_folder = is_folder;
    level->count++;
    return S3_OK;
}

/* Whether it is a folder or a regular file; false: neither. */
static bool kind_of(const struct s3_tree *tree, int fd, const char *name, bool *is_folder)
{
    struct stat about;
    if (fstatat(fd, name, &about, tree->follows ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
        return false; /* gone, or a link to nothing */
    *is_folder = S_ISDIR(about.st_mode);
    return *is_folder || S_ISREG(about.st_mode);
}

static enum s3_code names_read(const struct s3_tree *tree, struct level *level)
{
    int fd = fcntl(level->fd, F_DUPFD_CLOEXEC, 0);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL) {
        int number = errno;
        if (fd >= 0)
            close(fd);
        return s3_error_errno(number, "can't read the folder %s", tree->path);
    }
    enum s3_code code = S3_OK;
    size_t room = 0;
    struct dirent *entry;
    bool is_folder;
    while (code == S3_OK && (entry = readdir(folder)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            kind_of(tree, level->fd, entry->d_name, &is_folder))
            code = name_add(level, &room, entry->d_name, is_folder);
    closedir(folder);
    if (code == S3_OK && level->count > 0)
        qsort(level->names, level->count, sizeof(*level->names), name_compare);
    return code;
}

static void level_close(struct s3_tree *tree)
{
    struct level *level = &tree->levels[--tree->depth];
    for (size_t i = 0; i < level->count; i++)
        base_free(level->names[i].text);
    base_free(level->names);
    close(level->fd);
    *level = (struct level){0};
}

/* Takes the descriptor, also when it fails. */
static enum s3_code level_open(struct s3_tree *tree, int fd)
{
    if (tree->depth == S3_TREE_DEPTH_MAX) {
        close(fd);
        return s3_error(S3_INVALID_ARGUMENT, "folders more than %d deep: %.300s", S3_TREE_DEPTH_MAX,
                        tree->path);
    }
    struct level *level = &tree->levels[tree->depth++];
    *level = (struct level){.fd = fd, .path_bytes = strlen(tree->path)};
    return names_read(tree, level);
}

enum s3_code s3_tree_of_folder(const char *path, bool follows, struct s3_tree **out)
{
    struct s3_tree *tree;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return s3_error_errno(errno, "can't open the folder %s", path);
    enum s3_code code = s3_from_status(BASE_NEW(&tree, "a folder's files"));
    if (code != S3_OK) {
        close(fd);
        return code;
    }
    tree->follows = follows;
    code = level_open(tree, fd);
    if (code != S3_OK)
        s3_tree_close(tree);
    else
        *out = tree;
    return code;
}

static enum s3_code path_set(struct s3_tree *tree, const struct level *level,
                             const struct name *name)
{
    size_t bytes = strlen(name->text);
    if (level->path_bytes + bytes > S3_KEY_BYTES_MAX)
        return s3_error(S3_KEY_TOO_LONG, "a path of more than %d bytes can't be a key: %.200s…",
                        S3_KEY_BYTES_MAX, tree->path);
    memcpy(tree->path + level->path_bytes, name->text, bytes + 1);
    if (!s3_is_utf8(tree->path, level->path_bytes + bytes))
        return s3_error(S3_INVALID_ARGUMENT, "a name that is not UTF-8 can't be a key: %.300s",
                        tree->path);
    return S3_OK;
}

static enum s3_code folder_enter(struct s3_tree *tree, const struct level *level,
                                 const struct name *name)
{
    char own[NAME_MAX + 1];
    snprintf(own, sizeof(own), "%.*s", (int)strlen(name->text) - 1, name->text);
    int fd = openat(level->fd, own,
                    O_RDONLY | O_DIRECTORY | O_CLOEXEC | (tree->follows ? 0 : O_NOFOLLOW));
    if (fd < 0)
        return s3_error_errno(errno, "can't open the folder %.300s", tree->path);
    return level_open(tree, fd);
}

static enum s3_code folder_next(struct s3_tree *tree, const struct s3_tree_entry **out)
{
    struct stat about;
    *out = NULL;
    while (tree->depth > 0) {
        struct level *level = &tree->levels[tree->depth - 1];
        if (level->at == level->count) {
            level_close(tree);
            continue;
        }
        const struct name *name = &level->names[level->at++];
        S3_TRY(path_set(tree, level, name));
        if (name->is_folder) {
            S3_TRY(folder_enter(tree, level, name));
            continue;
        }
        if (fstatat(level->fd, name->text, &about, tree->follows ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
            continue; /* gone since */
        tree->entry = (struct s3_tree_entry){.path = tree->path,
                                             .bytes = about.st_size,
                                             .modified_ms = (int64_t)about.st_mtim.tv_sec * 1000 +
                                                            about.st_mtim.tv_nsec / 1000000,
                                             .etag = ""};
        *out = &tree->entry;
        return S3_OK;
    }
    return S3_OK;
}

enum s3_code s3_tree_next(struct s3_tree *tree, const struct s3_tree_entry **out)
{
    return tree->client != NULL ? bucket_next(tree, out) : folder_next(tree, out);
}

void s3_tree_close(struct s3_tree *tree)
{
    if (tree == NULL)
        return;
    while (tree->depth > 0)
        level_close(tree);
    s3_list_release(&tree->page);
    s3_client_listing_release(&tree->listing);
    base_free(tree);
}
