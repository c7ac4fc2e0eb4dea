/* SPDX-License-Identifier: Apache-2.0 */
/*
 * archive_extract.c: libarchive reads the format; what is made on the disk is made here, each entry
 * by a descriptor of the folder it goes to.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "channel/archive.h"
#include "channel/tree.h"

#define READ_BYTES ((size_t)1 << 18)
#define LEVELS_MAX 64

struct extraction {
    struct archive *archive;
    int folder_fd;
    struct channel_archive_limits limits;
    struct channel_archive_sum sum;
    const char *path; /* of the entry, cleaned */
};

static enum shoal_status refused(const struct extraction *extraction, const char *why)
{
    return base_error(SHOAL_ERR_ARGUMENT, "the archive's entry '%.300s' %s", extraction->path, why);
}

static enum shoal_status broken(const struct extraction *extraction)
{
    const char *text = archive_error_string(extraction->archive);
    return base_error(SHOAL_ERR_FORMAT,
                      "this is no tar archive (with gzip), or not a whole one: %s",
                      text != NULL ? text : "it can't be read");
}

/* ---- names ---- */

/* The path without "." and empty parts; false if it can't be one below the folder. */
static bool clean_path(const char *path, char out[CHANNEL_PATH_BYTES])
{
    size_t used = 0;
    int levels = 0;
    if (*path == '/')
        return false;
    while (*path != '\0') {
        size_t bytes = strcspn(path, "/");
        bool is_step = bytes == 0 || (bytes == 1 && *path == '.');
        if (bytes == 2 && memcmp(path, "..", 2) == 0)
            return false;
        if (!is_step) {
            if (used + bytes + 2 > CHANNEL_PATH_BYTES || ++levels > LEVELS_MAX)
                return false;
            if (used > 0)
                out[used++] = '/';
            memcpy(out + used, path, bytes);
            used += bytes;
        }
        path += bytes + (path[bytes] == '/');
    }
    out[used] = '\0';
    return true;
}

/* ---- limits ---- */

static enum shoal_status count_entry(struct extraction *extraction)
{
    if (++extraction->sum.entries > extraction->limits.entries)
        return base_error(SHOAL_ERR_LIMIT, "the archive has more than %" PRId64 " entries",
                          extraction->limits.entries);
    return SHOAL_OK;
}

static enum shoal_status count_bytes(struct extraction *extraction, int64_t bytes)
{
    const struct channel_archive_limits *limits = &extraction->limits;
    int64_t read_bytes = archive_filter_bytes(extraction->archive, -1);
    if (bytes > limits->bytes - extraction->sum.bytes)
        return base_error(SHOAL_ERR_LIMIT,
                          "the archive unfolds to more than %" PRId64 " bytes, at '%.300s'",
                          limits->bytes, extraction->path);
    extraction->sum.bytes += bytes;
    if (extraction->sum.bytes > limits->ratio_bytes &&
        extraction->sum.bytes / limits->ratio > read_bytes)
        return base_error(SHOAL_ERR_LIMIT,
                          "the archive unfolds to more than %" PRId64
                          " times its own size, at '%.300s'",
                          limits->ratio, extraction->path);
    return SHOAL_OK;
}

/* ---- one entry ---- */

/* Holes stay holes, and count as bytes all the same. */
static enum shoal_status copy_data(struct extraction *extraction, int fd, int64_t size)
{
    int64_t end = 0;
    for (;;) {
        const void *data;
        size_t bytes;
        la_int64_t start;
        int result = archive_read_data_block(extraction->archive, &data, &bytes, &start);
        if (result == ARCHIVE_EOF)
            break;
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
            return broken(extraction);
        if (start < end || start > INT64_MAX - (int64_t)bytes || start + (int64_t)bytes > size)
            return refused(extraction, "has more data than it says");
        TRY(count_bytes(extraction, start - end + (int64_t)bytes));
        TRY(channel_write_all(fd, data, bytes, start));
        end = start + (int64_t)bytes;
    }
    TRY(count_bytes(extraction, size - end));
    if (size > end && ftruncate(fd, size) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing '%.300s'", extraction->path);
    return SHOAL_OK;
}

static enum shoal_status make_file(struct extraction *extraction, struct archive_entry *entry,
                                   int folder_fd, const char *name)
{
    mode_t mode = (archive_entry_perm(entry) & 0777) | 0600;
    int64_t size = archive_entry_size(entry);
    if (size < 0)
        return refused(extraction, "has no size");
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making '%.300s'", extraction->path);
    enum shoal_status status = copy_data(extraction, fd, size);
    if (status == SHOAL_OK && fchmod(fd, mode) != 0)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "making '%.300s'", extraction->path);
    if (close(fd) != 0 && status == SHOAL_OK)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing '%.300s'", extraction->path);
    return status;
}

static enum shoal_status make_symlink(struct extraction *extraction, struct archive_entry *entry,
                                      int folder_fd, const char *name)
{
    const char *target = archive_entry_symlink(entry);
    char inside[CHANNEL_PATH_BYTES];
    if (target == NULL || *target == '\0' || *target == '/' ||
        !channel_link_inside(extraction->path, target, NULL, inside))
        return refused(extraction, "is a link to a place outside of the archive");
    if (symlinkat(inside, folder_fd, name) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making '%.300s'", extraction->path);
    return SHOAL_OK;
}

/* Another name of a file that the archive had before. */
static enum shoal_status make_hard_link(struct extraction *extraction, const char *target,
                                        int folder_fd, const char *name)
{
    char clean[CHANNEL_PATH_BYTES], path[64];
    struct stat about;
    if (!clean_path(target, clean) || *clean == '\0')
        return refused(extraction, "is a link to a place outside of the archive");
    int fd = channel_open_beneath(extraction->folder_fd, clean, O_PATH | O_NOFOLLOW, 0);
    if (fd < 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        if (fd >= 0)
            close(fd);
        return refused(extraction, "is another name of a file that the archive doesn't have");
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int result = linkat(AT_FDCWD, path, folder_fd, name, AT_SYMLINK_FOLLOW);
    int number = errno;
    close(fd);
    if (result != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, number, "making '%.300s'", extraction->path);
    return SHOAL_OK;
}

static enum shoal_status make_folder(struct extraction *extraction, struct archive_entry *entry)
{
    int fd;
    mode_t mode = (archive_entry_perm(entry) & 0777) | 0700;
    TRY(channel_folder_open(extraction->folder_fd, extraction->path, &fd));
    int result = *extraction->path != '\0' ? fchmod(fd, mode) : 0;
    close(fd);
    if (result != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making '%.300s'", extraction->path);
    return SHOAL_OK;
}

static enum shoal_status make_in(struct extraction *extraction, struct archive_entry *entry,
                                 int folder_fd, const char *name)
{
    const char *hard_link = archive_entry_hardlink(entry);
    mode_t kind = archive_entry_filetype(entry);
    if (hard_link == NULL && kind != AE_IFREG && kind != AE_IFLNK)
        return refused(extraction, "is a device, a FIFO or a socket");
    if (unlinkat(folder_fd, name, 0) != 0 && errno != ENOENT)
        return refused(extraction, "is a file where another entry has a folder");
    if (hard_link != NULL)
        return make_hard_link(extraction, hard_link, folder_fd, name);
    if (kind == AE_IFLNK)
        return make_symlink(extraction, entry, folder_fd, name);
    return make_file(extraction, entry, folder_fd, name);
}

static enum shoal_status take_entry(struct extraction *extraction, struct archive_entry *entry)
{
    char clean[CHANNEL_PATH_BYTES];
    const char *path = archive_entry_pathname(entry), *name;
    int folder_fd;
    extraction->path = path != NULL ? path : "?";
    if (path == NULL)
        return refused(extraction, "has no name that can be read");
    if (!clean_path(path, clean))
        return refused(extraction, "leads out of the folder, or is too deep");
    extraction->path = clean;
    TRY(count_entry(extraction));
    if (archive_entry_hardlink(entry) == NULL && archive_entry_filetype(entry) == AE_IFDIR)
        return make_folder(extraction, entry);
    if (*clean == '\0')
        return refused(extraction, "has no name");
    TRY(channel_folder_above(extraction->folder_fd, clean, &folder_fd, &name));
    enum shoal_status status = make_in(extraction, entry, folder_fd, name);
    close(folder_fd);
    return status;
}

static enum shoal_status take_entries(struct extraction *extraction)
{
    for (;;) {
        struct archive_entry *entry;
        int result = archive_read_next_header(extraction->archive, &entry);
        if (result == ARCHIVE_EOF)
            return SHOAL_OK;
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
            return broken(extraction);
        TRY(take_entry(extraction, entry));
    }
}

enum shoal_status channel_archive_extract(int archive_fd, int folder_fd,
                                          const struct channel_archive_limits *limits,
                                          struct channel_archive_sum *sum)
{
    static const struct channel_archive_limits usual = CHANNEL_ARCHIVE_LIMITS_INIT;
    struct extraction extraction = {.archive = archive_read_new(),
                                    .folder_fd = folder_fd,
                                    .limits = limits != NULL ? *limits : usual,
                                    .path = ""};
    if (extraction.archive == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for reading an archive");
    /* Names are bytes of UTF-8 whatever the process's locale is. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 != (locale_t)0 ? uselocale(utf8) : (locale_t)0;
    archive_read_support_filter_gzip(extraction.archive);
    archive_read_support_format_tar(extraction.archive);
    archive_read_support_format_empty(extraction.archive);
    enum shoal_status status = SHOAL_OK;
    if (archive_read_open_fd(extraction.archive, archive_fd, READ_BYTES) != ARCHIVE_OK)
        status = broken(&extraction);
    if (status == SHOAL_OK)
        status = take_entries(&extraction);
    archive_read_free(extraction.archive);
    if (utf8 != (locale_t)0) {
        uselocale(before);
        freelocale(utf8);
    }
    if (status == SHOAL_OK && sum != NULL)
        *sum = extraction.sum;
    return status;
}
