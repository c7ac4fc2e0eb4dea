/* SPDX-License-Identifier: Apache-2.0 */
/* tree_list.c: what is in folders that are not trusted, in one order whatever the disk's is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/tree.h"

#define LEVELS_MAX  64
#define TEXTS_BYTES ((size_t)64 << 10)

/* Paths, block after block. */
struct channel_texts {
    struct channel_texts *next;
    size_t used, room;
    char bytes[];
};

static enum shoal_status keep_text(struct channel_tree *tree, const char *text, const char **out)
{
    size_t bytes = strlen(text) + 1;
    struct channel_texts *block = tree->texts;
    tree->text_bytes += (int64_t)bytes;
    if (tree->text_bytes > CHANNEL_TREE_TEXTS)
        return base_error(SHOAL_ERR_LIMIT, "the paths of its files take more than 256 MiB");
    if (block == NULL || block->room - block->used < bytes) {
        size_t room = bytes > TEXTS_BYTES ? bytes : TEXTS_BYTES;
        TRY(base_alloc(sizeof(*block) + room, "paths of files", (void **)&block));
        block->room = room;
        block->next = tree->texts;
        tree->texts = block;
    }
    *out = memcpy(block->bytes + block->used, text, bytes);
    block->used += bytes;
    return SHOAL_OK;
}

static enum shoal_status more_room(struct channel_tree *tree)
{
    if (tree->count < tree->room)
        return SHOAL_OK;
    if (tree->count >= CHANNEL_TREE_MAX)
        return base_error(SHOAL_ERR_LIMIT, "there are more than %d files and folders",
                          CHANNEL_TREE_MAX);
    size_t room = tree->room * 2 + 64;
    struct channel_entry *larger;
    TRY(BASE_NEW_ARRAY(&larger, room, "a list of files"));
    if (tree->count > 0)
        memcpy(larger, tree->entries, tree->count * sizeof(*larger));
    base_free(tree->entries);
    tree->entries = larger;
    tree->room = room;
    return SHOAL_OK;
}

struct listing {
    struct channel_tree *tree;
    int folder; /* its number */
    char path[CHANNEL_PATH_BYTES];
};

static enum shoal_status add_entry(struct listing *listing, const struct stat *about,
                                   const char *target)
{
    struct channel_entry entry = {
        .folder = listing->folder,
        .mode = about->st_mode,
        .bytes = S_ISREG(about->st_mode) ? about->st_size : 0,
        .modified_ms = about->st_mtim.tv_sec * INT64_C(1000) + about->st_mtim.tv_nsec / 1000000,
        .changed_ns = about->st_ctim.tv_sec * INT64_C(1000000000) + about->st_ctim.tv_nsec};
    TRY(more_room(listing->tree));
    TRY(keep_text(listing->tree, listing->path, &entry.path));
    if (target != NULL)
        TRY(keep_text(listing->tree, target, &entry.target));
    listing->tree->entries[listing->tree->count++] = entry;
    return SHOAL_OK;
}

static enum shoal_status list_folder(struct listing *listing, int fd, int level);

static enum shoal_status list_below(struct listing *listing, int folder_fd, const char *name,
                                    int level)
{
    int fd = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        return list_folder(listing, fd, level);
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading the folder '%.300s'",
                                listing->path);
    listing->tree->left_out++; /* it has gone, or may not be read */
    return SHOAL_OK;
}

/* One entry of a folder; listing->path is its path. */
static enum shoal_status list_one(struct listing *listing, int folder_fd, const char *name,
                                  int level)
{
    struct stat about;
    char target[CHANNEL_PATH_BYTES];
    if (fstatat(folder_fd, name, &about, AT_SYMLINK_NOFOLLOW) != 0)
        return SHOAL_OK; /* it has gone */
    if (S_ISREG(about.st_mode))
        return add_entry(listing, &about, NULL);
    if (S_ISDIR(about.st_mode) && level + 1 < LEVELS_MAX) {
        TRY(add_entry(listing, &about, NULL));
        return list_below(listing, folder_fd, name, level + 1);
    }
    ssize_t bytes =
        S_ISLNK(about.st_mode) ? readlinkat(folder_fd, name, target, sizeof(target) - 1) : -1;
    if (bytes < 0) {
        listing->tree->left_out++;
        return SHOAL_OK;
    }
    target[bytes] = '\0';
    return add_entry(listing, &about, target);
}

/* Closes fd. */
static enum shoal_status list_folder(struct listing *listing, int fd, int level)
{
    size_t used = strlen(listing->path);
    DIR *list = fdopendir(fd);
    if (list == NULL) {
        close(fd);
        return base_error(SHOAL_ERR_MEMORY, "no memory for reading a folder");
    }
    enum shoal_status status = SHOAL_OK;
    for (struct dirent *entry; status == SHOAL_OK && (entry = readdir(list)) != NULL;) {
        const char *name = entry->d_name;
        size_t bytes = strlen(name);
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (used + bytes + 2 > sizeof(listing->path)) {
            listing->tree->left_out++;
            continue;
        }
        listing->path[used] = '/';
        memcpy(listing->path + used + (used > 0), name, bytes + 1);
        status = list_one(listing, fd, name, level);
        listing->path[used] = '\0';
    }
    closedir(list);
    return status;
}

enum shoal_status channel_tree_add_file(struct channel_tree *tree, int folder_fd, int folder,
                                        const char *name)
{
    struct listing *listing;
    struct stat about;
    if (fstatat(folder_fd, name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode))
        return SHOAL_OK;
    TRY(BASE_NEW(&listing, "the listing of a folder"));
    listing->tree = tree;
    listing->folder = folder;
    memcpy(listing->path, name, strlen(name) + 1);
    enum shoal_status status = add_entry(listing, &about, NULL);
    base_free(listing);
    return status;
}

enum shoal_status channel_tree_add_path(struct channel_tree *tree, const char *path, int folder)
{
    struct channel_entry entry = {.folder = folder, .mode = S_IFREG};
    TRY(more_room(tree));
    TRY(keep_text(tree, path, &entry.path));
    tree->entries[tree->count++] = entry;
    return SHOAL_OK;
}

enum shoal_status channel_tree_add(struct channel_tree *tree, int folder_fd, int folder)
{
    struct listing *listing;
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading a folder");
    enum shoal_status status = BASE_NEW(&listing, "the listing of a folder");
    if (status != SHOAL_OK) {
        close(fd);
        return status;
    }
    listing->tree = tree;
    listing->folder = folder;
    status = list_folder(listing, fd, 0);
    base_free(listing);
    return status;
}

/* ---- one list of several ---- */

/* By path, where '/' comes before all other bytes: so a folder is followed by what is in it. */
static int compare_paths(const char *a, const char *b)
{
    for (;; a++, b++) {
        if (*a == *b && *a != '\0')
            continue;
        if (*a == *b)
            return 0;
        unsigned left = *a == '\0' ? 0 : *a == '/' ? 1 : 2u + (unsigned char)*a;
        unsigned right = *b == '\0' ? 0 : *b == '/' ? 1 : 2u + (unsigned char)*b;
        return left < right ? -1 : 1;
    }
}

int channel_entry_compare(const void *a, const void *b)
{
    const struct channel_entry *left = a, *right = b;
    int order = compare_paths(left->path, right->path);
    return order != 0 ? order : (left->folder > right->folder) - (left->folder < right->folder);
}

static bool is_below(const char *path, const char *above)
{
    size_t bytes = strlen(above);
    return strncmp(path, above, bytes) == 0 && path[bytes] == '/';
}

void channel_tree_sort(struct channel_tree *tree)
{
    if (tree->count > 1)
        qsort(tree->entries, tree->count, sizeof(*tree->entries), channel_entry_compare);
}

void channel_tree_merge(struct channel_tree *tree)
{
    size_t kept = 0;
    const char *file = NULL; /* the last one that is no folder */
    channel_tree_sort(tree);
    for (size_t i = 0; i < tree->count; i++) {
        const struct channel_entry *entry = &tree->entries[i];
        if (kept > 0 && strcmp(tree->entries[kept - 1].path, entry->path) == 0)
            continue;
        if (file != NULL && is_below(entry->path, file))
            continue;
        if (!S_ISDIR(entry->mode))
            file = entry->path;
        tree->entries[kept++] = *entry;
    }
    tree->count = kept;
}

void channel_tree_release(struct channel_tree *tree)
{
    while (tree->texts != NULL) {
        struct channel_texts *block = tree->texts;
        tree->texts = block->next;
        base_free(block);
    }
    base_free(tree->entries);
    *tree = (struct channel_tree){0};
}

/* ---- links ---- */

/* Appends the parts of a path to `out`, whose ".." take parts away; false if one leads out. */
static bool walk(char out[CHANNEL_PATH_BYTES], const char *path)
{
    size_t used = strlen(out);
    while (*path != '\0') {
        size_t bytes = strcspn(path, "/");
        if (bytes == 2 && memcmp(path, "..", 2) == 0) {
            if (used == 0)
                return false;
            while (used > 0 && out[used - 1] != '/')
                used--;
            used -= used > 0;
        } else if (bytes > 0 && !(bytes == 1 && *path == '.')) {
            if (used + bytes + 2 > CHANNEL_PATH_BYTES)
                return false;
            if (used > 0)
                out[used++] = '/';
            memcpy(out + used, path, bytes);
            used += bytes;
        }
        out[used] = '\0';
        path += bytes + (path[bytes] == '/');
    }
    return true;
}

/* From the folder that `path` lies in to `target`, both of the tree. */
static bool relative(const char *path, const char *target, char out[CHANNEL_PATH_BYTES])
{
    size_t same = 0, used = 0;
    for (size_t i = 0; path[i] != '\0' && path[i] == target[i]; i++) {
        if (path[i] == '/')
            same = i + 1;
    }
    for (const char *at = path + same; (at = strchr(at, '/')) != NULL; at++) {
        if (used + 4 > CHANNEL_PATH_BYTES)
            return false;
        memcpy(out + used, "../", 3);
        used += 3;
    }
    size_t bytes = strlen(target + same);
    if (used + bytes + 2 > CHANNEL_PATH_BYTES)
        return false;
    memcpy(out + used, target + same, bytes);
    used += bytes;
    if (used > 0 && out[used - 1] == '/')
        used--;
    if (used == 0)
        out[used++] = '.';
    out[used] = '\0';
    return true;
}

/* What comes out has ".." only at its beginning, where the folders are known to be no links; so
 * other links of the tree can't bend it. */
bool channel_link_inside(const char *path, const char *target, const char *mount,
                         char out[CHANNEL_PATH_BYTES])
{
    char full[CHANNEL_PATH_BYTES] = "";
    if (*target == '/') {
        size_t bytes = mount != NULL ? strlen(mount) : 0;
        if (mount == NULL || strncmp(target, mount, bytes) != 0 ||
            (target[bytes] != '/' && target[bytes] != '\0') || !walk(full, target + bytes))
            return false;
    } else {
        const char *slash = strrchr(path, '/');
        size_t bytes = slash != NULL ? (size_t)(slash - path) : 0;
        if (bytes >= sizeof(full))
            return false;
        memcpy(full, path, bytes);
        full[bytes] = '\0';
        if (!walk(full, target))
            return false;
    }
    return relative(path, full, out);
}
