/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.c: all that a job finds before its first line runs. */
#include "channel/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/bucket.h"
#include "channel/elsewhere.h"
#include "channel/objects.h"
#include "channel/tree.h"

/* ---- before the job is accepted ---- */

/* The bucket that this member of the request names, if it names one. */
static enum shoal_status check_bucket(const struct channel_job *job, const char *object,
                                      const char *member)
{
    const char *text =
        channel_request_text(job->request, (const char *const[]){object, member, NULL});
    struct channel_uri uri;
    struct s3_list list;
    if (text == NULL)
        return SHOAL_OK;
    TRY(channel_uri_parse(text, &uri));
    enum shoal_status status = channel_bucket_list(job, &uri, NULL, 1, &list);
    if (status == SHOAL_ERR_ARGUMENT)
        return base_error(
            status,
            "There is no S3 bucket '%s', which %s.%s names (%.300s). Create it first, "
            "for example with: aws s3 mb s3://%s",
            uri.bucket, object, member, text, uri.bucket);
    TRY(status);
    s3_list_release(&list);
    return SHOAL_OK;
}

static enum shoal_status check_input(const struct channel_job *job,
                                     const struct channel_input *input)
{
    char path[CHANNEL_PATH_BYTES];
    struct s3_list list;
    if (input->kind == CHANNEL_FILE_SYSTEM)
        return channel_file_system_find(job, input, path, sizeof(path));
    enum shoal_status status = channel_bucket_list(job, &input->uri, NULL, 1, &list);
    if (status == SHOAL_ERR_ARGUMENT)
        return channel_objects_missing(job, input);
    TRY(status);
    int count = list.count;
    s3_list_release(&list);
    return count > 0 ? SHOAL_OK : channel_objects_missing(job, input);
}

enum shoal_status channel_check(const struct channel_job *job)
{
    struct channel_clients clients;
    struct channel_job own;
    struct channel_input *inputs;
    int count;
    TRY(channel_inputs_read(job, &inputs, &count));
    channel_clients_open(job, &clients, &own);
    enum shoal_status status = check_bucket(&own, "OutputDataConfig", "S3OutputPath");
    if (status == SHOAL_OK)
        status = check_bucket(&own, "CheckpointConfig", "S3Uri");
    for (int i = 0; status == SHOAL_OK && i < count; i++)
        status = check_input(&own, &inputs[i]);
    channel_clients_release(&clients);
    base_free(inputs);
    return status;
}

/* ---- the parts' common ground ---- */

enum shoal_status channel_host_open(const struct channel_job *job, int folder_fd, int host,
                                    const char *path, int *out)
{
    int fd;
    TRY(channel_folder_open(folder_fd, job->hosts[host].name, &fd));
    enum shoal_status status = channel_folder_open(fd, path, out);
    close(fd);
    return status;
}

/* The list with that name, made where there is none; borrowed. */
static json_t *list_of(json_t *object, const char *name)
{
    json_t *list = json_object_get(object, name);
    if (list == NULL && json_object_set_new(object, name, json_array()) == 0)
        list = json_object_get(object, name);
    return list;
}

enum shoal_status channel_mount_add(struct channel_work *work, int host, const char *from,
                                    const char *to, const char *access)
{
    json_t *owner = work->description;
    if (host != CHANNEL_ALL_HOSTS)
        owner = json_array_get(json_object_get(owner, "instances"), (size_t)host);
    json_t *mount = json_pack("{s:s, s:s, s:s}", "from", from, "to", to, "access", access);
    if (json_array_append_new(list_of(owner, "mounts"), mount) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's mounts");
    return SHOAL_OK;
}

/* ---- preparing ---- */

static enum shoal_status prepare_inputs(struct channel_work *work,
                                        const struct channel_input *inputs, int count)
{
    TRY(channel_config_put(work, inputs, count));
    for (int i = 0; i < count; i++)
        TRY(inputs[i].mode == CHANNEL_PIPE ? channel_pipes_put(work, &inputs[i])
                                           : channel_files_put(work, &inputs[i]));
    return channel_checkpoints_put(work);
}

/* The process that fills the pipes. */
static enum shoal_status add_feed(struct channel_work *work)
{
    if (json_array_size(work->feed) == 0)
        return SHOAL_OK;
    char *text = json_dumps(work->feed, JSON_COMPACT);
    if (text == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's pipes");
    enum shoal_status status =
        channel_file_put(work->channels_fd, CHANNEL_FEED_FILE, text, strlen(text));
    free(text);
    TRY(status);
    json_t *companion = json_pack("[s, s]", CHANNEL_FEED_COMMAND, work->job->folder);
    if (json_array_append_new(list_of(work->description, "companions"), companion) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's companions");
    return SHOAL_OK;
}

static enum shoal_status prepare_in(struct channel_work *work)
{
    struct channel_input *inputs;
    int count;
    TRY(channel_tree_remove(work->folder_fd, CHANNEL_FOLDER));
    TRY(channel_folder_open(work->folder_fd, CHANNEL_FOLDER, &work->channels_fd));
    TRY(channel_inputs_read(work->job, &inputs, &count));
    enum shoal_status status = prepare_inputs(work, inputs, count);
    base_free(inputs);
    return status == SHOAL_OK ? add_feed(work) : status;
}

static enum shoal_status prepare(struct channel_work *work)
{
    const struct channel_job *job = work->job;
    size_t objects = json_array_size(json_object_get(work->description, "instances"));
    if (job->host_count < 1 || job->host_count > CHANNEL_HOSTS_MAX ||
        objects != (size_t)job->host_count)
        return base_error(SHOAL_ERR_INTERNAL, "the job has %d hosts, its description has %zu",
                          job->host_count, objects);
    work->folder_fd = open(job->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (work->folder_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening the job's folder %s",
                                job->folder);
    enum shoal_status status = prepare_in(work);
    if (work->channels_fd >= 0)
        close(work->channels_fd);
    close(work->folder_fd);
    return status;
}

/* What is the request's fault and what is this machine's. */
enum shoal_status channel_failure(enum shoal_status status, const char *what)
{
    switch (status) {
    case SHOAL_OK:
    case SHOAL_ERR_ABORTED: return status;
    case SHOAL_ERR_ARGUMENT:
    case SHOAL_ERR_LIMIT:
    case SHOAL_ERR_FORMAT:
    case SHOAL_ERR_STATE:
        base_error_context(status, "ClientError: %s", what);
        return SHOAL_ERR_ARGUMENT;
    default: return base_error_context(status, "InternalServerError: %s", what);
    }
}

enum shoal_status channel_prepare(const struct channel_job *job, json_t *description)
{
    struct channel_clients clients;
    struct channel_job own;
    struct channel_work work = {
        .job = &own, .channels_fd = -1, .description = description, .feed = json_array()};
    channel_clients_open(job, &clients, &own);
    enum shoal_status status = prepare(&work);
    channel_clients_release(&clients);
    json_decref(work.feed);
    return channel_failure(status, "Data download failed");
}
