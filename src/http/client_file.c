/* SPDX-License-Identifier: Apache-2.0 */
/* client_file.c: bodies out of files and into them, at offsets of their own. */
#include <errno.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"
#include "http/client.h"

static enum shoal_status part_read(void *user, void *out, size_t capacity, size_t *bytes)
{
    struct http_file_part *part = user;
    int64_t left = part->bytes - part->done;
    size_t wanted = left < (int64_t)capacity ? (size_t)left : capacity;
    ssize_t got;
    do
        got = pread(part->fd, out, wanted, part->first + part->done);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read the file to send");
    if (got == 0 && wanted > 0)
        return base_error(SHOAL_ERR_FORMAT, "the file to send has become shorter");
    part->done += got;
    *bytes = (size_t)got;
    return SHOAL_OK;
}

static enum shoal_status part_rewind(void *user)
{
    struct http_file_part *part = user;
    part->done = 0;
    return SHOAL_OK;
}

void http_file_upload(struct http_file_part *part, struct http_upload *out)
{
    *out = (struct http_upload){
        .bytes = part->bytes, .read = part_read, .rewind = part_rewind, .user = part};
}

static enum shoal_status part_write(void *user, const void *data, size_t bytes)
{
    struct http_file_part *part = user;
    if ((int64_t)bytes > part->bytes - part->done)
        return base_error(SHOAL_ERR_LIMIT, "more bytes came than the %lld that were expected",
                          (long long)part->bytes);
    size_t written = base_file_write(part->fd, data, bytes, part->first + part->done);
    part->done += (int64_t)written;
    if (written != bytes)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write the file");
    return SHOAL_OK;
}

void http_file_download(struct http_file_part *part, struct http_download *out)
{
    *out = (struct http_download){.piece = part_write, .user = part};
}
