/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c: channels as folders. Objects become hard links to the store's files, in a folder that
 * each instance has mounted as an own copy (FastFile: read-only): no byte is copied that is not
 * changed, and no job changes a bucket. Hosts that get the same share a folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/bucket.h"
#include "channel/inflate.h"
#include "channel/objects.h"
#include "channel/prepare.h"
#include "channel/tree.h"

#define GIB                    (INT64_C(1) << 30)
#define UNPACKED_BYTES_DEFAULT (INT64_C(1) << 40)
#define ALL                    "all" /* no host's name */

struct filling {
    const struct channel_job *job;
    const struct channel_input *input;
    int folders[CHANNEL_HOSTS_MAX]; /* which get objects by turns */
    int folder_count;
    uint32_t *order; /* the turns' order; NULL: as they come */
    uint32_t order_count, index;
    int64_t bytes_left; /* for unpacked files */
};

/* ---- one object ---- */

struct unpacking {
    int fd;
    int64_t at, *bytes_left;
};

static enum shoal_status unpack_some(void *user, const void *data, size_t bytes)
{
    struct unpacking *unpacking = user;
    if ((int64_t)bytes > *unpacking->bytes_left)
        return base_error(SHOAL_ERR_LIMIT, "unpacked, the channel is larger than VolumeSizeInGB");
    TRY(channel_write_all(unpacking->fd, data, bytes, unpacking->at));
    unpacking->at += (int64_t)bytes;
    *unpacking->bytes_left -= (int64_t)bytes;
    return SHOAL_OK;
}

static enum shoal_status unpack_to(struct filling *filling, int from, int folder_fd,
                                   const char *name)
{
    struct unpacking unpacking = {.bytes_left = &filling->bytes_left};
    unpacking.fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (unpacking.fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the file '%.300s'", name);
    enum shoal_status status = channel_inflate(from, unpack_some, &unpacking);
    close(unpacking.fd);
    return status;
}

/* The file is called as the object, without ".gz". */
static enum shoal_status unpack_object(struct filling *filling, const struct channel_object *object,
                                       int folder_fd)
{
    char path[S3_KEY_BYTES_MAX + 1];
    const char *name;
    bool is_directory;
    int from, above;
    int64_t bytes, modified_ms;
    size_t length = strlen(object->path);
    if (s3_key_path_check(object->path, &is_directory) != S3_OK || is_directory)
        return base_error(SHOAL_ERR_ARGUMENT, "the key '%.300s' can't be a file of a job",
                          object->uri.key);
    bool has_end = length > 3 && strcmp(object->path + length - 3, ".gz") == 0 &&
                   object->path[length - 4] != '/';
    snprintf(path, sizeof(path), "%.*s", (int)(has_end ? length - 3 : length), object->path);
    TRY(channel_bucket_open(filling->job, &object->uri, &from, &bytes, &modified_ms));
    enum shoal_status status = channel_folder_above(folder_fd, path, &above, &name);
    if (status == SHOAL_OK) {
        status = unpack_to(filling, from, above, name);
        close(above);
    }
    close(from);
    if (status != SHOAL_OK)
        return base_error_context(status, "s3://%s/%.300s", object->uri.bucket, object->uri.key);
    channel_count(filling->job, 1, bytes);
    return SHOAL_OK;
}

static enum shoal_status make_folder(int folder_fd, const char *path)
{
    int fd;
    TRY(channel_folder_open(folder_fd, path, &fd));
    close(fd);
    return SHOAL_OK;
}

static enum shoal_status put_object(void *user, const struct channel_object *object)
{
    struct filling *filling = user;
    if (object->is_folder) {
        for (int i = 0; i < filling->folder_count; i++)
            TRY(make_folder(filling->folders[i], object->path));
        return SHOAL_OK;
    }
    uint32_t index = filling->index++;
    uint32_t turn = index < filling->order_count ? filling->order[index] : index;
    int folder_fd = filling->folders[turn % (uint32_t)filling->folder_count];
    if (filling->input->is_gzip)
        return unpack_object(filling, object, folder_fd);
    return channel_bucket_link_one(filling->job, &object->uri, folder_fd, object->path);
}

/* ---- the folders ---- */

static enum shoal_status count_object(void *user, const struct channel_object *object)
{
    uint32_t *count = user;
    *count += !object->is_folder;
    return SHOAL_OK;
}

static enum shoal_status fill(struct filling *filling)
{
    const struct channel_input *input = filling->input;
    if (input->is_shuffled && filling->folder_count > 1) {
        uint32_t count = 0;
        TRY(channel_objects_each(filling->job, input, count_object, &count));
        TRY(channel_order_create(count, input->seed, 0, &filling->order));
        filling->order_count = count;
    }
    enum shoal_status status = channel_objects_each(filling->job, input, put_object, filling);
    if (status == SHOAL_OK)
        status = channel_bucket_link_rest(filling->job);
    base_free(filling->order);
    return status;
}

/* The folder of a channel for one host or all, and where it is mounted. */
static enum shoal_status open_folder(struct channel_work *work, const struct channel_input *input,
                                     int host, int *fd)
{
    char path[CHANNEL_PATH_BYTES];
    const char *owner = host == CHANNEL_ALL_HOSTS ? ALL : work->job->hosts[host].name;
    snprintf(path, sizeof(path), "%s/%s", owner, input->name);
    return channel_folder_open(work->channels_fd, path, fd);
}

static enum shoal_status mount_folder(struct channel_work *work, const struct channel_input *input,
                                      const char *owner, int host)
{
    char from[CHANNEL_PATH_BYTES], to[CHANNEL_PATH_BYTES];
    snprintf(from, sizeof(from), "%s/" CHANNEL_FOLDER "/%s/%s", work->job->folder, owner,
             input->name);
    snprintf(to, sizeof(to), CHANNEL_DATA "/%s", input->name);
    return channel_mount_add(work, host, from, to,
                             input->mode == CHANNEL_FILE ? "own-copy" : "read-only");
}

static enum shoal_status mount_folders(struct channel_work *work, const struct channel_input *input,
                                       const int *hosts, int count)
{
    if (!input->is_sharded && count == work->job->host_count)
        return mount_folder(work, input, ALL, CHANNEL_ALL_HOSTS);
    for (int i = 0; i < count; i++) {
        const char *owner = input->is_sharded ? work->job->hosts[hosts[i]].name : ALL;
        TRY(mount_folder(work, input, owner, hosts[i]));
    }
    return SHOAL_OK;
}

static int64_t volume_bytes(const json_t *request)
{
    const json_t *size =
        json_object_get(json_object_get(request, "ResourceConfig"), "VolumeSizeInGB");
    int64_t gib = json_integer_value(size);
    return gib > 0 && gib < UNPACKED_BYTES_DEFAULT / GIB ? gib * GIB : UNPACKED_BYTES_DEFAULT;
}

static enum shoal_status put_file_system(struct channel_work *work,
                                         const struct channel_input *input, const int *hosts,
                                         int count)
{
    char from[CHANNEL_PATH_BYTES], to[CHANNEL_PATH_BYTES];
    TRY(channel_file_system_find(work->job, input, from, sizeof(from)));
    snprintf(to, sizeof(to), CHANNEL_DATA "/%s", input->name);
    for (int i = 0; i < count; i++)
        TRY(channel_mount_add(work, hosts[i], from, to,
                              input->is_writable ? "writable" : "read-only"));
    return SHOAL_OK;
}

enum shoal_status channel_files_put(struct channel_work *work, const struct channel_input *input)
{
    int hosts[CHANNEL_HOSTS_MAX], count = channel_input_hosts(input, work->job, hosts);
    if (input->kind == CHANNEL_FILE_SYSTEM)
        return put_file_system(work, input, hosts, count);
    struct filling filling = {
        .job = work->job, .input = input, .bytes_left = volume_bytes(work->job->request)};
    enum shoal_status status = SHOAL_OK;
    int wanted = input->is_sharded ? count : 1;
    for (int i = 0; status == SHOAL_OK && i < wanted; i++) {
        status = open_folder(work, input, input->is_sharded ? hosts[i] : CHANNEL_ALL_HOSTS,
                             &filling.folders[i]);
        filling.folder_count += status == SHOAL_OK;
    }
    if (status == SHOAL_OK)
        status = fill(&filling);
    for (int i = 0; i < filling.folder_count; i++)
        close(filling.folders[i]);
    return status == SHOAL_OK ? mount_folders(work, input, hosts, count) : status;
}
