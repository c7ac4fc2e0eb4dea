/* SPDX-License-Identifier: Apache-2.0 */
/*
 * archive_pack.c: a tree as a tar archive with gzip. What a run of it gives depends on the tree
 * only: entries come in one order, and no time of day, owner or name of a user goes in.
 *
 * Level 1: weights of models hardly become smaller at higher ones, and take several times as long.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/archive.h"
#include "channel/tree.h"

#define COPY_BYTES ((size_t)1 << 20)

struct packing {
    const struct channel_tree *tree;
    const int *folders;
    const char *mount;
    channel_archive_sink sink;
    void *user;
    enum shoal_status sink_status;
    struct archive *archive;
    char *buffer;
    int64_t left_out;
};

static la_ssize_t write_out(struct archive *archive, void *user, const void *data, size_t bytes)
{
    struct packing *packing = user;
    packing->sink_status = packing->sink(packing->user, data, bytes);
    if (packing->sink_status == SHOAL_OK)
        return (la_ssize_t)bytes;
    archive_set_error(archive, EIO, "%s", base_error_text());
    return -1;
}

static enum shoal_status failed(struct packing *packing)
{
    const char *text = archive_error_string(packing->archive);
    enum shoal_status status =
        packing->sink_status != SHOAL_OK ? packing->sink_status : SHOAL_ERR_SYSTEM;
    return base_error(status, "%s", text != NULL ? text : "the archive can't be written");
}

/* The entry's size, whatever has become of the file. */
static enum shoal_status copy_file(struct packing *packing, int fd, int64_t left)
{
    while (left > 0) {
        size_t want = left < (int64_t)COPY_BYTES ? (size_t)left : COPY_BYTES;
        ssize_t got = read(fd, packing->buffer, want);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading a file to pack");
        if (got == 0)
            return SHOAL_OK; /* libarchive fills it up with zeros */
        if (archive_write_data(packing->archive, packing->buffer, (size_t)got) < 0)
            return failed(packing);
        left -= got;
    }
    return SHOAL_OK;
}

static enum shoal_status write_header(struct packing *packing, const struct channel_entry *entry,
                                      const char *target)
{
    struct archive_entry *header = archive_entry_new();
    if (header == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for packing a file");
    archive_entry_set_pathname(header, entry->path);
    archive_entry_set_mode(header, target != NULL ? (AE_IFLNK | 0777) : (entry->mode & ~07000u));
    archive_entry_set_mtime(header, entry->modified_ms / 1000, 0);
    archive_entry_set_size(header, target != NULL ? 0 : entry->bytes);
    if (target != NULL)
        archive_entry_set_symlink(header, target);
    int result = archive_write_header(packing->archive, header);
    archive_entry_free(header);
    return result == ARCHIVE_OK || result == ARCHIVE_WARN ? SHOAL_OK : failed(packing);
}

static enum shoal_status pack_file(struct packing *packing, const struct channel_entry *entry)
{
    int fd = channel_open_kind(packing->folders[entry->folder], entry->path, S_IFREG, O_RDONLY);
    if (fd < 0) {
        packing->left_out++;
        return SHOAL_OK;
    }
    enum shoal_status status = write_header(packing, entry, NULL);
    if (status == SHOAL_OK)
        status = copy_file(packing, fd, entry->bytes);
    close(fd);
    return status;
}

static enum shoal_status pack_entries(struct packing *packing)
{
    char target[CHANNEL_PATH_BYTES];
    for (size_t i = 0; i < packing->tree->count; i++) {
        const struct channel_entry *entry = &packing->tree->entries[i];
        if (S_ISREG(entry->mode))
            TRY(pack_file(packing, entry));
        else if (S_ISDIR(entry->mode))
            TRY(write_header(packing, entry, NULL));
        else if (channel_link_inside(entry->path, entry->target, packing->mount, target))
            TRY(write_header(packing, entry, target));
        else
            packing->left_out++;
    }
    return archive_write_close(packing->archive) == ARCHIVE_OK ? SHOAL_OK : failed(packing);
}

static enum shoal_status pack(struct packing *packing)
{
    struct archive *archive = packing->archive;
    archive_write_set_format_pax_restricted(archive);
    archive_write_add_filter_gzip(archive);
    archive_write_set_filter_option(archive, "gzip", "compression-level", "1");
    archive_write_set_filter_option(archive, "gzip", "timestamp", NULL);
    archive_write_set_bytes_per_block(archive, (int)COPY_BYTES);
    archive_write_set_bytes_in_last_block(archive, 1);
    if (archive_write_open(archive, packing, NULL, write_out, NULL) != ARCHIVE_OK)
        return failed(packing);
    return pack_entries(packing);
}

enum shoal_status channel_archive_pack(const struct channel_tree *tree, const int *folders,
                                       const char *mount, channel_archive_sink sink, void *user,
                                       int64_t *left_out)
{
    struct packing packing = {
        .tree = tree, .folders = folders, .mount = mount, .sink = sink, .user = user};
    TRY(base_alloc(COPY_BYTES, "a buffer for packing", (void **)&packing.buffer));
    packing.archive = archive_write_new();
    /* Names are bytes of UTF-8 whatever the process's locale is. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 != (locale_t)0 ? uselocale(utf8) : (locale_t)0;
    enum shoal_status status = packing.archive != NULL
                                   ? pack(&packing)
                                   : base_error(SHOAL_ERR_MEMORY, "no memory for an archive");
    if (packing.archive != NULL)
        archive_write_free(packing.archive);
    if (utf8 != (locale_t)0) {
        uselocale(before);
        freelocale(utf8);
    }
    base_free(packing.buffer);
    if (status == SHOAL_OK)
        *left_out = packing.left_out + (int64_t)tree->left_out;
    return status;
}
