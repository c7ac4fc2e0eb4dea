/* SPDX-License-Identifier: Apache-2.0 */
/* store_link.c: objects as files of a job: hard links to their contents. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "s3/contents.h"
#include "s3/folder.h"
#include "s3/store_state.h"

/* A kernel call on "this descriptor's file": needs no privilege. */
#define DESCRIPTOR_PATH_BYTES 40

static enum s3_code copy_to(int from, int64_t bytes, int folder, const char *name)
{
    int to = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (to < 0)
        return s3_error_errno(errno, "can't make the file %s", name);
    enum s3_code code = s3_content_copy(from, 0, to, 0, bytes);
    close(to);
    return code;
}

static enum s3_code link_to(int from, int64_t bytes, int folder, const char *name)
{
    char path[DESCRIPTOR_PATH_BYTES];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", from);
    if (linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW) == 0)
        return S3_OK;
    if (errno == EEXIST)
        return s3_error(S3_INVALID_ARGUMENT, "one key is a folder, or a file, where another has a "
                                             "file");
    if (errno == ENOSPC || errno == EDQUOT)
        return s3_error_errno(errno, "can't link the file %s", name);
    return copy_to(from, bytes, folder, name); /* another file system, or too many links */
}

enum s3_code s3_store_link_one(struct s3_store *store, const char *bucket, const char *key,
                               int directory_fd, const char *path)
{
    bool is_directory;
    struct s3_object object;
    const char *name;
    int fd, folder;
    S3_TRY(s3_key_path_check(path, &is_directory));
    if (is_directory)
        return s3_error(S3_INVALID_ARGUMENT, "'%s' names a directory, not a file", path);
    S3_TRY(s3_object_get(store, bucket, key, NULL, &object, &fd));
    int64_t bytes = object.bytes;
    s3_object_release(&object);
    enum s3_code code = s3_folder_of(directory_fd, path, true, &folder, &name);
    if (code == S3_OK) {
        code = link_to(fd, bytes, folder, name);
        close(folder);
    }
    close(fd);
    return code;
}

/* Links the entries of one page; index goes on from page to page. */
struct linking {
    struct s3_store *store;
    const struct s3_link_options *options;
    int64_t index, count;
};

static enum s3_code directory_make(const struct s3_link_options *options, const char *path)
{
    int folder;
    const char *name;
    S3_TRY(s3_folder_of(options->directory_fd, path, true, &folder, &name));
    close(folder);
    return S3_OK;
}

static enum s3_code entry_link(struct linking *linking, const struct s3_list_entry *entry)
{
    const struct s3_link_options *options = linking->options;
    int64_t index = linking->index++;
    if (options->choose != NULL && !options->choose(options->user, index, entry->key))
        return S3_OK;
    bool is_directory;
    if (strlen(entry->key) < options->strip_bytes)
        return s3_error(S3_INVALID_ARGUMENT, "the key '%.300s' is shorter than what is left off",
                        entry->key);
    const char *path = entry->key + options->strip_bytes;
    if (*path == '\0' && entry->bytes == 0)
        return S3_OK; /* the folder itself, as consoles make them */
    S3_TRY(s3_key_path_check(path, &is_directory));
    if (is_directory && entry->bytes != 0)
        return s3_error(S3_INVALID_ARGUMENT,
                        "The key '%.300s' ends in '/' but has bytes, so it can be neither file nor "
                        "folder of a job. Copy the object to another key.",
                        entry->key);
    if (is_directory)
        return directory_make(options, path);
    enum s3_code code =
        s3_store_link_one(linking->store, options->bucket, entry->key, options->directory_fd, path);
    if (code == S3_NO_SUCH_KEY)
        return S3_OK; /* deleted since it was listed */
    linking->count += code == S3_OK;
    return code;
}

static enum s3_code page_link(struct linking *linking, const struct s3_list *page)
{
    for (int i = 0; i < page->count; i++) {
        enum s3_code code = entry_link(linking, &page->entries[i]);
        if (code == S3_INVALID_ARGUMENT)
            return s3_error(code,
                            "The objects under s3://%s/%s can't be files of a job, at key "
                            "'%.300s': %s",
                            linking->options->bucket, linking->options->prefix,
                            page->entries[i].key, base_error_text());
        S3_TRY(code);
    }
    return S3_OK;
}

enum s3_code s3_store_link(struct s3_store *store, const struct s3_link_options *options,
                           int64_t *count)
{
    struct linking linking = {.store = store, .options = options};
    char after[S3_KEY_BYTES_MAX + 1] = "";
    for (bool is_over = false; !is_over;) {
        struct s3_list page;
        struct s3_list_options want = {.bucket = options->bucket,
                                       .prefix = options->prefix,
                                       .after = after[0] != '\0' ? after : NULL,
                                       .limit = S3_LIST_KEYS_MAX};
        S3_TRY(s3_list(store, &want, &page));
        enum s3_code code = page_link(&linking, &page);
        is_over = !page.is_truncated;
        if (page.count > 0)
            snprintf(after, sizeof(after), "%s", page.entries[page.count - 1].key);
        s3_list_release(&page);
        S3_TRY(code);
    }
    *count = linking.count;
    return S3_OK;
}
