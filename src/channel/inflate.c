/* SPDX-License-Identifier: Apache-2.0 */
/* inflate.c: gzip by libarchive, which reads any number of members. */
#include "channel/inflate.h"

#include <archive.h>
#include <archive_entry.h>

#include "base/status.h"

#define READ_BYTES ((size_t)1 << 18)

static enum shoal_status broken(struct archive *archive)
{
    const char *text = archive_error_string(archive);
    return base_error(SHOAL_ERR_FORMAT, "this is not gzip, or not all of it: %s",
                      text != NULL ? text : "it can't be read");
}

static enum shoal_status
pass_on(struct archive *archive,
        enum shoal_status (*sink)(void *user, const void *data, size_t bytes), void *user)
{
    struct archive_entry *entry;
    int result = archive_read_next_header(archive, &entry);
    if (result == ARCHIVE_EOF)
        return SHOAL_OK;
    if (result != ARCHIVE_OK)
        return broken(archive);
    if (archive_filter_code(archive, 0) != ARCHIVE_FILTER_GZIP)
        return base_error(SHOAL_ERR_FORMAT, "this is not gzip");
    for (;;) {
        const void *data;
        size_t bytes;
        la_int64_t start;
        result = archive_read_data_block(archive, &data, &bytes, &start);
        if (result == ARCHIVE_EOF)
            return SHOAL_OK;
        if (result != ARCHIVE_OK)
            return broken(archive);
        TRY(sink(user, data, bytes));
    }
}

enum shoal_status
channel_inflate(int fd, enum shoal_status (*sink)(void *user, const void *data, size_t bytes),
                void *user)
{
    struct archive *archive = archive_read_new();
    if (archive == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for unpacking");
    archive_read_support_filter_gzip(archive);
    archive_read_support_format_raw(archive);
    archive_read_support_format_empty(archive);
    enum shoal_status status = archive_read_open_fd(archive, fd, READ_BYTES) == ARCHIVE_OK
                                   ? pass_on(archive, sink, user)
                                   : broken(archive);
    archive_read_free(archive);
    return status;
}
