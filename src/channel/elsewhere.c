/* SPDX-License-Identifier: Apache-2.0 */
/* elsewhere.c: another service's buckets, by the S3 client. */
#include "channel/elsewhere.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/tree.h"

/* ---- clients ---- */

void channel_clients_open(const struct channel_job *job, struct channel_clients *clients,
                          struct channel_job *own)
{
    *clients = (struct channel_clients){0};
    *own = *job;
    own->clients = clients;
}

void channel_clients_release(struct channel_clients *clients)
{
    for (int i = 0; i < CHANNEL_CLIENTS_MAX; i++)
        s3_client_free(clients->rows[i].client);
    s3_outside_free(clients->outside);
    base_free(clients->fetches);
    *clients = (struct channel_clients){0};
}

static enum s3_code add_client(const struct channel_job *job, const char *bucket,
                               struct s3_client **out)
{
    struct channel_clients *clients = job->clients;
    struct s3_client *client;
    struct s3_client_options options = {
        .is_cancelled = job->control != NULL ? &job->control->is_cancelled : NULL};
    S3_TRY(channel_elsewhere_flush(job)); /* for what goes now may be its client */
    S3_TRY(s3_outside_client(clients->outside, bucket, options, &client));
    int row = clients->next++ % CHANNEL_CLIENTS_MAX;
    s3_client_free(clients->rows[row].client);
    clients->rows[row].client = client;
    snprintf(clients->rows[row].bucket, sizeof(clients->rows[row].bucket), "%s", bucket);
    *out = client;
    return S3_OK;
}

enum s3_code channel_elsewhere_find(const struct channel_job *job, const char *bucket,
                                    struct s3_client **out)
{
    struct channel_clients *clients = job->clients;
    *out = NULL;
    if (clients == NULL || job->buckets == NULL)
        return S3_OK;
    if (clients->outside == NULL)
        S3_TRY(s3_from_status(s3_outside_load(job->buckets, &clients->outside)));
    if (!s3_outside_has(clients->outside, bucket))
        return S3_OK;
    for (int i = 0; i < CHANNEL_CLIENTS_MAX; i++) {
        if (strcmp(clients->rows[i].bucket, bucket) == 0) {
            *out = clients->rows[i].client;
            return S3_OK;
        }
    }
    return add_client(job, bucket, out);
}

/* ---- calls ---- */

enum s3_code channel_elsewhere_list(struct s3_client *client, const struct s3_list_options *options,
                                    struct s3_list *out)
{
    struct s3_client_listing listing = {.bucket = options->bucket,
                                        .prefix = options->prefix,
                                        .delimiter = options->delimiter,
                                        .after = options->after,
                                        .limit = options->limit};
    enum s3_code code = s3_client_list(client, &listing, out);
    if (code == S3_OK)
        out->is_truncated = !listing.is_over;
    s3_client_listing_release(&listing);
    return code;
}

enum s3_code channel_elsewhere_head(struct s3_client *client, const struct channel_uri *uri,
                                    int64_t *bytes, int64_t *modified_ms)
{
    struct s3_object object;
    S3_TRY(s3_client_head(client, uri->bucket, uri->key, &object));
    *bytes = object.bytes;
    *modified_ms = object.modified_ms;
    s3_object_release(&object);
    return S3_OK;
}

enum s3_code channel_elsewhere_file(const struct channel_job *job, int *fd)
{
    *fd = open(job->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return *fd >= 0 ? S3_OK : s3_error_errno(errno, "can't make a file in %s", job->folder);
}

enum s3_code channel_elsewhere_open(const struct channel_job *job, struct s3_client *client,
                                    const struct channel_uri *uri, int *fd, int64_t *bytes,
                                    int64_t *modified_ms)
{
    struct s3_object object;
    int file;
    S3_TRY(s3_client_head(client, uri->bucket, uri->key, &object));
    enum s3_code code = channel_elsewhere_file(job, &file);
    if (code == S3_OK) {
        code = s3_client_get(client, uri->bucket, uri->key, &object, file);
        if (code == S3_OK && lseek(file, 0, SEEK_SET) != 0)
            code = s3_error_errno(errno, "can't read a copy");
        if (code != S3_OK)
            close(file);
    }
    if (code == S3_OK) {
        *fd = file;
        *bytes = object.bytes;
        *modified_ms = object.modified_ms;
    }
    s3_object_release(&object);
    return code;
}

static enum s3_code fetch_to(struct s3_client *client, const struct channel_uri *uri, int folder_fd,
                             const char *name)
{
    int fd = openat(folder_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0 && errno == EEXIST)
        return s3_error(S3_INVALID_ARGUMENT, "one key is a folder, or a file, where another has a "
                                             "file");
    if (fd < 0)
        return s3_error_errno(errno, "can't make the file %s", name);
    enum s3_code code = s3_client_get(client, uri->bucket, uri->key, NULL, fd);
    close(fd);
    return code;
}

static enum s3_code fetch(struct s3_client *client, const struct channel_fetch *wanted)
{
    bool is_directory;
    const char *name;
    int above;
    S3_TRY(s3_key_path_check(wanted->path, &is_directory));
    if (is_directory)
        return s3_error(S3_INVALID_ARGUMENT, "'%s' names a directory, not a file", wanted->path);
    enum shoal_status status = channel_folder_above(wanted->folder_fd, wanted->path, &above, &name);
    if (status == SHOAL_ERR_STATE)
        return s3_error(S3_INVALID_ARGUMENT, "one key is a file where another needs a folder");
    S3_TRY(s3_from_status(status));
    enum s3_code code = fetch_to(client, &wanted->uri, above, name);
    close(above);
    return code;
}

static enum s3_code fetch_numbered(void *user, int64_t index)
{
    struct channel_clients *clients = user;
    const struct channel_fetch *wanted = &clients->fetches[index];
    char text[BASE_ERROR_TEXT_BYTES];
    enum s3_code code = fetch(clients->fetch_client, wanted);
    if (code == S3_OK)
        return code;
    snprintf(text, sizeof(text), "%s", base_error_text());
    return s3_error(code, "s3://%s/%.300s: %s: %s", wanted->uri.bucket, wanted->uri.key,
                    s3_code_name(code), text);
}

enum s3_code channel_elsewhere_flush(const struct channel_job *job)
{
    struct channel_clients *clients = job->clients;
    if (clients == NULL || clients->fetch_count == 0)
        return S3_OK;
    int count = clients->fetch_count;
    clients->fetch_count = 0;
    return s3_client_side_by_side(clients->fetch_client, count, fetch_numbered, clients);
}

enum s3_code channel_elsewhere_fetch(const struct channel_job *job, struct s3_client *client,
                                     const struct channel_uri *uri, int folder_fd, const char *path)
{
    struct channel_clients *clients = job->clients;
    if (clients->fetches == NULL)
        S3_TRY(s3_from_status(
            BASE_NEW_ARRAY(&clients->fetches, CHANNEL_FETCHES_MAX, "objects to fetch")));
    if (clients->fetch_count == CHANNEL_FETCHES_MAX || clients->fetch_client != client)
        S3_TRY(channel_elsewhere_flush(job));
    struct channel_fetch *wanted = &clients->fetches[clients->fetch_count];
    if (snprintf(wanted->path, sizeof(wanted->path), "%s", path) >= (int)sizeof(wanted->path))
        return s3_error(S3_KEY_TOO_LONG, NULL);
    wanted->uri = *uri;
    wanted->folder_fd = folder_fd;
    clients->fetch_client = client;
    clients->fetch_count++;
    return S3_OK;
}

enum s3_code channel_elsewhere_put(struct s3_client *client, const struct channel_uri *uri, int fd,
                                   int64_t bytes)
{
    struct s3_client_put put = {.bucket = uri->bucket, .key = uri->key};
    return s3_client_put(client, &put, fd, 0, bytes, NULL);
}

enum s3_code channel_elsewhere_remove(struct s3_client *client, const struct channel_uri *uri)
{
    const char *key = uri->key;
    return s3_client_delete(client, uri->bucket, &key, 1);
}
