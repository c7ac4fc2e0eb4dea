/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collect.c: what a job leaves. Archives go to the bucket while they are packed: there is no second
 * copy on the disk, and the object appears when it is whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "channel/archive.h"
#include "channel/bucket.h"
#include "channel/elsewhere.h"
#include "channel/prepare.h"
#include "channel/tree.h"

#define MODEL_PLACE  "ml/model"
#define OUTPUT_PLACE "ml/output"
#define DATA_PLACE   "ml/output/data"

/* The folders of all hosts that make one archive. */
struct collection {
    const struct channel_job *job;
    const char *mount; /* where the job saw them */
    int folders[2 * CHANNEL_HOSTS_MAX];
    int folder_count;
    struct channel_tree tree;
    struct channel_uri uri;
    struct channel_put *put;
    int64_t left_out;
};

/* ---- where it goes ---- */

static bool is_compressed(const struct channel_job *job)
{
    const char *type = channel_request_text(
        job->request, (const char *const[]){"OutputDataConfig", "CompressionType", NULL});
    return type == NULL || strcmp(type, "NONE") != 0;
}

/* s3://…/<job>/output/<name> */
static enum shoal_status place_of(const struct channel_job *job, const char *name,
                                  char out[CHANNEL_URI_BYTES])
{
    const char *path = channel_request_text(
        job->request, (const char *const[]){"OutputDataConfig", "S3OutputPath", NULL});
    size_t bytes = path != NULL ? strlen(path) : 0;
    while (bytes > 0 && path[bytes - 1] == '/')
        bytes--;
    if (bytes == 0 || snprintf(out, CHANNEL_URI_BYTES, "%.*s/%s/output/%s", (int)bytes, path,
                               job->name, name) >= CHANNEL_URI_BYTES)
        return base_error(SHOAL_ERR_ARGUMENT, "S3OutputPath is missing or too long");
    return SHOAL_OK;
}

enum shoal_status channel_model_uri(const struct channel_job *job, char out[CHANNEL_URI_BYTES])
{
    return place_of(job, is_compressed(job) ? "model.tar.gz" : "model/", out);
}

/* ---- what there is ---- */

/* Opens a host's folder and adds what is in it; one that isn't there has nothing. */
static enum shoal_status add_place(struct collection *collection, int job_fd, int host,
                                   const char *place)
{
    char path[CHANNEL_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", collection->job->hosts[host].name, place);
    int fd = channel_open_beneath(job_fd, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %.300s", path);
    if (fd < 0)
        return SHOAL_OK;
    int number = collection->folder_count++;
    collection->folders[number] = fd;
    if (strcmp(place, OUTPUT_PLACE) == 0)
        return channel_tree_add_file(&collection->tree, fd, number, "failure");
    return channel_tree_add(&collection->tree, fd, number);
}

static enum shoal_status add_places(struct collection *collection, const char *place)
{
    const struct channel_job *job = collection->job;
    int job_fd = open(job->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening the job's folder %s",
                                job->folder);
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; status == SHOAL_OK && i < job->host_count; i++)
        status = add_place(collection, job_fd, i, place);
    close(job_fd);
    return status;
}

static void release(struct collection *collection)
{
    for (int i = 0; i < collection->folder_count; i++)
        close(collection->folders[i]);
    channel_tree_release(&collection->tree);
    if (collection->left_out > 0)
        base_log(BASE_LOG_WARN,
                 "job %s: %" PRId64 " entries of %s were left out: links to elsewhere, devices, "
                 "FIFOs, sockets, or what can't be read",
                 collection->job->name, collection->left_out, collection->mount);
}

/* ---- how it goes ---- */

static enum shoal_status write_archive(void *user, const void *data, size_t bytes)
{
    struct collection *collection = user;
    return channel_bucket_write(collection->put, data, bytes);
}

static enum shoal_status put_archive(struct collection *collection)
{
    TRY(channel_bucket_begin(collection->job, &collection->uri, &collection->put));
    enum shoal_status status =
        channel_archive_pack(&collection->tree, collection->folders, collection->mount,
                             write_archive, collection, &collection->left_out);
    if (status != SHOAL_OK) {
        channel_bucket_abort(collection->put);
        return status;
    }
    return channel_bucket_finish(collection->put);
}

static enum shoal_status put_one(struct collection *collection, const struct channel_entry *entry)
{
    struct channel_uri uri = collection->uri;
    size_t used = strlen(uri.key);
    bool is_whole = false;
    if (strlen(entry->path) >= sizeof(uri.key) - used)
        return base_error(SHOAL_ERR_LIMIT, "the key %s%.300s is longer than 1024 bytes", uri.key,
                          entry->path);
    memcpy(uri.key + used, entry->path, strlen(entry->path) + 1);
    int fd = channel_open_kind(collection->folders[entry->folder], entry->path, S_IFREG, O_RDONLY);
    if (fd < 0) {
        collection->left_out++;
        return SHOAL_OK;
    }
    enum shoal_status status = channel_bucket_put_file(collection->job, &uri, fd, &is_whole);
    collection->left_out += status == SHOAL_OK && !is_whole;
    close(fd);
    return status;
}

static enum shoal_status put_files(struct collection *collection)
{
    for (size_t i = 0; i < collection->tree.count; i++) {
        const struct channel_entry *entry = &collection->tree.entries[i];
        if (S_ISREG(entry->mode))
            TRY(put_one(collection, entry));
        else
            collection->left_out += !S_ISDIR(entry->mode);
    }
    return SHOAL_OK;
}

static enum shoal_status put(struct collection *collection, const char *name)
{
    char place[CHANNEL_URI_BYTES];
    channel_tree_merge(&collection->tree);
    collection->left_out = (int64_t)collection->tree.left_out;
    if (collection->tree.count == 0)
        return SHOAL_OK;
    TRY(place_of(collection->job, name, place));
    TRY(channel_uri_parse(place, &collection->uri));
    return name[strlen(name) - 1] == '/' ? put_files(collection) : put_archive(collection);
}

static enum shoal_status collect_model(const struct channel_job *job)
{
    struct collection collection = {.job = job, .mount = CHANNEL_ML "/model"};
    enum shoal_status status = add_places(&collection, MODEL_PLACE);
    if (status == SHOAL_OK)
        status = put(&collection, is_compressed(job) ? "model.tar.gz" : "model/");
    release(&collection);
    return status;
}

/* The failure file lies beside what /opt/ml/output/data has. */
static enum shoal_status collect_output(const struct channel_job *job)
{
    struct collection collection = {.job = job, .mount = CHANNEL_ML "/output/data"};
    enum shoal_status status = add_places(&collection, DATA_PLACE);
    if (status == SHOAL_OK)
        status = add_places(&collection, OUTPUT_PLACE);
    if (status == SHOAL_OK)
        status = put(&collection, "output.tar.gz");
    release(&collection);
    return status;
}

enum shoal_status channel_collect(const struct channel_job *job)
{
    struct channel_clients clients;
    struct channel_job own;
    channel_clients_open(job, &clients, &own);
    enum shoal_status status = channel_checkpoints_flush(&own);
    if (status == SHOAL_OK)
        status = collect_model(&own);
    if (status == SHOAL_OK)
        status = collect_output(&own);
    channel_clients_release(&clients);
    return channel_failure(status, "Artifact upload failed");
}
