/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.h: the parts of channel_prepare; for this room's files only. */
#ifndef SHOAL_CHANNEL_PREPARE_H
#define SHOAL_CHANNEL_PREPARE_H

#include "channel/input.h"

#define CHANNEL_FOLDER      "channels"
#define CHANNEL_FEED_FILE   "feed.json"
#define CHANNEL_CHECKPOINTS "checkpoints"
#define CHANNEL_ML          "/opt/ml"
#define CHANNEL_DATA        CHANNEL_ML "/input/data"
#define CHANNEL_ALL_HOSTS   (-1)

/* One preparation. */
struct channel_work {
    const struct channel_job *job;
    int folder_fd;       /* the job's */
    int channels_fd;     /* `channels` in it */
    json_t *description; /* what becomes job.json */
    json_t *feed;        /* what becomes channels/feed.json: a list of pipes */
};

/* input/config of every host. */
enum shoal_status channel_config_put(struct channel_work *work, const struct channel_input *inputs,
                                     int count);
/* The folder of a channel in File or FastFile mode, and its mounts. */
enum shoal_status channel_files_put(struct channel_work *work, const struct channel_input *input);
/* A channel in Pipe mode: what its pipes will say, and the first of them. */
enum shoal_status channel_pipes_put(struct channel_work *work, const struct channel_input *input);
/* The checkpoints that the bucket has, and where the job finds them. */
enum shoal_status channel_checkpoints_put(struct channel_work *work);

/* When the job has ended: all checkpoints that the bucket does not have. */
enum shoal_status channel_checkpoints_flush(const struct channel_job *job);

/* Adds a mount for one host, or for all. `access` is job.json's. */
enum shoal_status channel_mount_add(struct channel_work *work, int host, const char *from,
                                    const char *to, const char *access);
/* A host's folder below that of the job: "ml/input/data". */
enum shoal_status channel_host_open(const struct channel_job *job, int folder_fd, int host,
                                    const char *path, int *out);

/* Puts "ClientError: <what>: " or "InternalServerError: <what>: " before the text of a failure. */
enum shoal_status channel_failure(enum shoal_status status, const char *what);

#endif
