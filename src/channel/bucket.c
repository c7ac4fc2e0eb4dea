/* SPDX-License-Identifier: Apache-2.0 */
/* bucket.c: buckets of this machine's store, and of others. */
#include "channel/bucket.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/elsewhere.h"
#include "channel/tree.h"

#define COPY_BYTES ((size_t)1 << 20)

enum shoal_status channel_cancelled(const struct channel_job *job)
{
    if (job->control != NULL && atomic_load(&job->control->is_cancelled))
        return base_error(SHOAL_ERR_ABORTED, "the job was stopped");
    return SHOAL_OK;
}

void channel_count(const struct channel_job *job, int64_t files, int64_t bytes)
{
    if (job->control != NULL) {
        atomic_fetch_add(&job->control->file_count, files);
        atomic_fetch_add(&job->control->byte_count, bytes);
    }
}

static enum shoal_status status_of(enum s3_code code)
{
    switch (code) {
    case S3_OK: return SHOAL_OK;
    case S3_NO_SUCH_BUCKET:
    case S3_NO_SUCH_KEY:
    case S3_INVALID_ARGUMENT:
    case S3_INVALID_BUCKET_NAME:
    case S3_KEY_TOO_LONG:
    case S3_ACCESS_DENIED: return SHOAL_ERR_ARGUMENT;
    case S3_SLOW_DOWN: return SHOAL_ERR_MEMORY;
    default: return SHOAL_ERR_SYSTEM;
    }
}

static enum shoal_status failed(const struct channel_uri *uri, enum s3_code code)
{
    char text[BASE_ERROR_TEXT_BYTES];
    const char *own = base_error_text();
    snprintf(text, sizeof(text), "%s", *own != '\0' ? own : s3_code_text(code));
    return base_error(status_of(code), "s3://%s/%.300s: %s: %s", uri->bucket, uri->key,
                      s3_code_name(code), text);
}

/* ---- lists ---- */

static enum s3_code list(const struct channel_job *job, const struct s3_list_options *options,
                         struct s3_list *out)
{
    struct s3_client *client;
    S3_TRY(channel_elsewhere_find(job, options->bucket, &client));
    return client != NULL ? channel_elsewhere_list(client, options, out)
                          : s3_list(job->store, options, out);
}

enum shoal_status channel_bucket_list(const struct channel_job *job, const struct channel_uri *uri,
                                      const char *delimiter, int limit, struct s3_list *out)
{
    struct s3_list_options options = {
        .bucket = uri->bucket, .prefix = uri->key, .delimiter = delimiter, .limit = limit};
    enum s3_code code = list(job, &options, out);
    return code == S3_OK ? SHOAL_OK : failed(uri, code);
}

enum shoal_status channel_bucket_each(const struct channel_job *job, const struct channel_uri *uri,
                                      channel_visit visit, void *user)
{
    char after[S3_KEY_BYTES_MAX + 1] = "";
    int64_t count = 0;
    for (bool is_over = false; !is_over;) {
        struct s3_list page;
        struct s3_list_options options = {.bucket = uri->bucket,
                                          .prefix = uri->key,
                                          .after = *after != '\0' ? after : NULL,
                                          .limit = S3_LIST_KEYS_MAX};
        TRY(channel_cancelled(job));
        enum s3_code code = list(job, &options, &page);
        if (code != S3_OK)
            return failed(uri, code);
        enum shoal_status status = SHOAL_OK;
        for (int i = 0; status == SHOAL_OK && i < page.count; i++)
            status = visit(user, &page.entries[i]);
        count += page.count;
        is_over = !page.is_truncated;
        if (page.count > 0)
            snprintf(after, sizeof(after), "%s", page.entries[page.count - 1].key);
        s3_list_release(&page);
        TRY(status);
        if (count > CHANNEL_OBJECTS_MAX)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "s3://%s/%.300s has more than %" PRId64 " objects", uri->bucket,
                              uri->key, CHANNEL_OBJECTS_MAX);
    }
    return SHOAL_OK;
}

/* ---- reading ---- */

enum shoal_status channel_bucket_link_one(const struct channel_job *job,
                                          const struct channel_uri *uri, int folder_fd,
                                          const char *path)
{
    struct s3_client *client;
    TRY(channel_cancelled(job));
    enum s3_code code = channel_elsewhere_find(job, uri->bucket, &client);
    if (code == S3_OK && client == NULL)
        code = s3_store_link_one(job->store, uri->bucket, uri->key, folder_fd, path);
    if (code != S3_OK)
        return failed(uri, code);
    if (client != NULL)
        TRY(status_of(channel_elsewhere_fetch(job, client, uri, folder_fd, path)));
    channel_count(job, 1, 0);
    return SHOAL_OK;
}

enum shoal_status channel_bucket_link_rest(const struct channel_job *job)
{
    enum shoal_status status = status_of(channel_elsewhere_flush(job));
    return status == SHOAL_OK ? channel_cancelled(job) : status;
}

/* In the store; fd NULL: only looks. */
static enum s3_code open_here(const struct channel_job *job, const struct channel_uri *uri, int *fd,
                              int64_t *bytes, int64_t *modified_ms)
{
    struct s3_object object;
    S3_TRY(s3_object_get(job->store, uri->bucket, uri->key, NULL, &object, fd));
    *bytes = object.bytes;
    *modified_ms = object.modified_ms;
    s3_object_release(&object);
    return S3_OK;
}

enum shoal_status channel_bucket_open(const struct channel_job *job, const struct channel_uri *uri,
                                      int *fd, int64_t *bytes, int64_t *modified_ms)
{
    struct s3_client *client;
    enum s3_code code = channel_elsewhere_find(job, uri->bucket, &client);
    if (code == S3_OK)
        code = client != NULL ? channel_elsewhere_open(job, client, uri, fd, bytes, modified_ms)
                              : open_here(job, uri, fd, bytes, modified_ms);
    return code == S3_OK ? SHOAL_OK : failed(uri, code);
}

enum shoal_status channel_bucket_find(const struct channel_job *job, const struct channel_uri *uri,
                                      int64_t *bytes, int64_t *modified_ms)
{
    struct s3_client *client;
    enum s3_code code = channel_elsewhere_find(job, uri->bucket, &client);
    if (code == S3_OK)
        code = client != NULL ? channel_elsewhere_head(client, uri, bytes, modified_ms)
                              : open_here(job, uri, NULL, bytes, modified_ms);
    return code == S3_OK ? SHOAL_OK : failed(uri, code);
}

static enum shoal_status read_whole(int fd, char *to, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t got = pread(fd, to + at, bytes - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, got < 0 ? errno : EIO, "reading an object");
        at += (size_t)got;
    }
    return SHOAL_OK;
}

enum shoal_status channel_bucket_read(const struct channel_job *job, const struct channel_uri *uri,
                                      int64_t bytes_max, char **out, size_t *bytes)
{
    int fd;
    int64_t size, modified_ms;
    char *text = NULL;
    TRY(channel_bucket_open(job, uri, &fd, &size, &modified_ms));
    enum shoal_status status = SHOAL_OK;
    if (size > bytes_max)
        status = base_error(SHOAL_ERR_LIMIT, "s3://%s/%.300s is larger than %" PRId64 " bytes",
                            uri->bucket, uri->key, bytes_max);
    if (status == SHOAL_OK)
        status = base_alloc((size_t)size + 1, "an object's text", (void **)&text);
    if (status == SHOAL_OK)
        status = read_whole(fd, text, (size_t)size);
    close(fd);
    if (status != SHOAL_OK) {
        base_free(text);
        return status;
    }
    *out = text;
    *bytes = (size_t)size;
    return SHOAL_OK;
}

/* ---- writing ---- */

/* Goes straight to the store; what goes elsewhere is a file first, for its length must be known. */
struct channel_put {
    const struct channel_job *job;
    struct channel_uri uri;
    struct s3_client *client; /* NULL: ours */
    struct s3_put *put;
    int fd;
    int64_t bytes;
};

static enum s3_code begin(struct channel_put *put)
{
    struct s3_put_options options = {.bucket = put->uri.bucket, .key = put->uri.key, .bytes = -1};
    S3_TRY(channel_elsewhere_find(put->job, put->uri.bucket, &put->client));
    return put->client != NULL ? channel_elsewhere_file(put->job, &put->fd)
                               : s3_put_begin(put->job->store, &options, &put->put);
}

enum shoal_status channel_bucket_begin(const struct channel_job *job, const struct channel_uri *uri,
                                       struct channel_put **out)
{
    struct channel_put *put;
    TRY(BASE_NEW(&put, "an object on its way"));
    *put = (struct channel_put){.job = job, .uri = *uri, .fd = -1};
    enum s3_code code = begin(put);
    if (code != S3_OK) {
        base_free(put);
        return failed(uri, code);
    }
    *out = put;
    return SHOAL_OK;
}

enum shoal_status channel_bucket_write(struct channel_put *put, const void *data, size_t bytes)
{
    TRY(channel_cancelled(put->job));
    if (put->client != NULL) {
        TRY(channel_write_all(put->fd, data, bytes, put->bytes));
    } else {
        enum s3_code code = s3_put_write(put->put, data, bytes);
        if (code != S3_OK)
            return failed(&put->uri, code);
    }
    put->bytes += (int64_t)bytes;
    channel_count(put->job, 0, (int64_t)bytes);
    return SHOAL_OK;
}

static enum s3_code finish_here(struct channel_put *put)
{
    struct s3_wait wait;
    s3_wait_init(&wait);
    s3_put_finish(put->put, NULL, NULL, s3_wait_done, &wait);
    put->put = NULL;
    return s3_wait_for(&wait);
}

enum shoal_status channel_bucket_finish(struct channel_put *put)
{
    enum s3_code code = put->client != NULL
                            ? channel_elsewhere_put(put->client, &put->uri, put->fd, put->bytes)
                            : finish_here(put);
    enum shoal_status status = code == S3_OK ? SHOAL_OK : failed(&put->uri, code);
    if (status == SHOAL_OK)
        channel_count(put->job, 1, 0);
    channel_bucket_abort(put);
    return status;
}

void channel_bucket_abort(struct channel_put *put)
{
    s3_put_abort(put->put);
    if (put->fd >= 0)
        close(put->fd);
    base_free(put);
}

static bool is_same(const struct stat *before, const struct stat *now)
{
    return before->st_size == now->st_size && before->st_mtim.tv_sec == now->st_mtim.tv_sec &&
           before->st_mtim.tv_nsec == now->st_mtim.tv_nsec;
}

/* Puts all that the file has; *copied says how much that was. */
static enum shoal_status put_bytes(struct channel_put *put, int fd, int64_t *copied)
{
    char *buffer;
    TRY(base_alloc(COPY_BYTES, "a buffer for a file", (void **)&buffer));
    enum shoal_status status = SHOAL_OK;
    *copied = 0;
    while (status == SHOAL_OK) {
        ssize_t got = pread(fd, buffer, COPY_BYTES, *copied);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            break;
        if (got < 0)
            status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading a file of the job");
        else
            status = channel_bucket_write(put, buffer, (size_t)got);
        *copied += got;
    }
    base_free(buffer);
    return status;
}

enum shoal_status channel_bucket_put_file(const struct channel_job *job,
                                          const struct channel_uri *uri, int fd, bool *is_whole)
{
    struct stat before, now;
    struct channel_put *put;
    int64_t copied;
    *is_whole = false;
    if (fstat(fd, &before) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading a file of the job");
    TRY(channel_bucket_begin(job, uri, &put));
    enum shoal_status status = put_bytes(put, fd, &copied);
    if (status != SHOAL_OK || fstat(fd, &now) != 0 || !is_same(&before, &now) ||
        copied != before.st_size) {
        channel_bucket_abort(put);
        return status;
    }
    *is_whole = true;
    return channel_bucket_finish(put);
}

static enum s3_code remove_here(const struct channel_job *job, const struct channel_uri *uri)
{
    struct s3_wait wait;
    const char *key = uri->key;
    s3_wait_init(&wait);
    s3_object_delete(job->store, uri->bucket, &key, 1, NULL, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

enum shoal_status channel_bucket_remove(const struct channel_job *job,
                                        const struct channel_uri *uri)
{
    struct s3_client *client;
    enum s3_code code = channel_elsewhere_find(job, uri->bucket, &client);
    if (code == S3_OK)
        code = client != NULL ? channel_elsewhere_remove(client, uri) : remove_here(job, uri);
    return code == S3_OK ? SHOAL_OK : failed(uri, code);
}
