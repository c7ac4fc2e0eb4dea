/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: folders that somebody else fills: a job's, or an archive's. Nothing here follows a
 * symbolic link or leaves the folder that it was given (openat2), so links that were planted, or
 * are exchanged while we work, lead nowhere.
 */
#ifndef SHOAL_CHANNEL_TREE_H
#define SHOAL_CHANNEL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "shoal.h"

#define CHANNEL_PATH_BYTES  4096
#define CHANNEL_TREE_MAX    (1 << 20)            /* entries that are listed at most */
#define CHANNEL_TREE_TEXTS  (INT64_C(256) << 20) /* bytes of their paths */
#define CHANNEL_FOLDER_MODE 0755

/* As openat(), below the folder only and through no link; -1 with errno. */
int channel_open_beneath(int folder_fd, const char *path, int flags, mode_t mode);
/* The same for what is of this kind (S_IFREG, S_IFIFO): nothing else is opened, whatever takes its
 * place meanwhile; EINVAL. */
int channel_open_kind(int folder_fd, const char *path, mode_t kind, int flags);
/* Opens a folder below another one, and makes those on the way that are not there. "" is the folder
 * itself. SHOAL_ERR_STATE: something else is in the way; SHOAL_ERR_SYSTEM. */
enum shoal_status channel_folder_open(int folder_fd, const char *path, int *out);
/* The folder above the last part of a path, made where it isn't there; *name is that part. */
enum shoal_status channel_folder_above(int folder_fd, const char *path, int *out,
                                       const char **name);
/* Removes what has that name, with all below it however deep that is; nothing there is fine.
 * SHOAL_ERR_SYSTEM. */
enum shoal_status channel_tree_remove(int folder_fd, const char *name);

/* A file of this text, whole or not at all, in the place of what has the name.
 * SHOAL_ERR_SYSTEM. */
enum shoal_status channel_file_put(int folder_fd, const char *name, const char *text, size_t bytes);

/* All of a file or nothing. */
enum shoal_status channel_write_all(int fd, const void *data, size_t bytes, int64_t start);

/* What is in folders, as a list. */
struct channel_entry {
    const char *path;                       /* below its folder: "a/b" */
    const char *target;                     /* of a link, else NULL */
    int folder;                             /* which of the folders */
    mode_t mode;                            /* as stat has it: regular file, folder or link */
    int64_t bytes, modified_ms, changed_ns; /* changed_ns: differs when the contents do */
};

struct channel_tree {
    struct channel_entry *entries;
    size_t count, room;
    size_t left_out; /* sockets, devices, FIFOs, folders too deep */
    struct channel_texts *texts;
    int64_t text_bytes;
};

/* Adds all that is in a folder, but what is neither file, folder nor link, and what lies in a path
 * of 4,096 bytes or 64 levels and more. What vanishes meanwhile is left out. SHOAL_ERR_LIMIT: too
 * many entries. Zeroed is a start. */
enum shoal_status channel_tree_add(struct channel_tree *tree, int folder_fd, int folder);
/* Adds one file of a folder by its name, if there is such a file. */
enum shoal_status channel_tree_add_file(struct channel_tree *tree, int folder_fd, int folder,
                                        const char *name);
/* Adds a file of which no more is known than its path. */
enum shoal_status channel_tree_add_path(struct channel_tree *tree, const char *path, int folder);
/* By path, a folder before what is in it, then by folder. */
void channel_tree_sort(struct channel_tree *tree);
/* As sort orders them: less than, equal to or more than 0. */
int channel_entry_compare(const void *a, const void *b);
/* Sorted, and one entry a path: the first folder's, unless both are
 * folders. What would lie below a file goes. */
void channel_tree_merge(struct channel_tree *tree);
void channel_tree_release(struct channel_tree *tree);

/* Where a link of a tree that is mounted at `mount` ("/opt/ml/model") leads, relative to the link;
 * false if that is outside the tree. */
bool channel_link_inside(const char *path, const char *target, const char *mount,
                         char out[CHANNEL_PATH_BYTES]);

#endif
