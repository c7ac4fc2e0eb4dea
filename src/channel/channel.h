/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.h: what goes in and out of a training job's /opt/ml.
 *
 *   channel_check            CreateTrainingJob: can this request's channels be had at all?
 *   channel_prepare          before the instances are made: input/config, input/data, checkpoints
 *   channel_checkpoints_*    while the job runs: its checkpoints go to their bucket
 *   channel_collect          when it has ended, however: model.tar.gz, output.tar.gz
 *
 * All may be repeated after the service was killed at any moment: each begins anew and ends with
 * the same. They block for as long as the data takes, and may be called from any thread, one at a
 * time for a job (checkpoints_start and _end come between prepare and collect). What they find in
 * the folders of instances was made by strangers: no link is followed out of them, and only files
 * and folders count. docs/channels.md has the whole story.
 *
 * In the job's folder this room owns `channels`, `checkpoints.known`, `checkpoints` in each host's
 * folder, and what it makes in `<host>/ml/input`.
 */
#ifndef SHOAL_CHANNEL_CHANNEL_H
#define SHOAL_CHANNEL_CHANNEL_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shoal.h"

struct channel_clients;
struct s3_store;

#define CHANNEL_URI_BYTES    1280
#define CHANNEL_HOSTS_MAX    100
#define CHANNEL_FEED_COMMAND "channel-feed"

/* An instance, in the order of their numbers. */
struct channel_host {
    const char *name;  /* "algo-1"; its folder has that name in the job's */
    const char *group; /* "homogeneousCluster" where the request has no instance groups */
    const char *type;  /* "ml.m5.large" */
};

/* What a caller may look at, and set, while one of the calls works. Zeroed is a start. */
struct channel_control {
    atomic_bool is_cancelled; /* the call ends soon, with SHOAL_ERR_ABORTED */
    atomic_llong file_count, byte_count;
};

/* All is borrowed during the call. */
struct channel_job {
    const char *name;
    const json_t *request; /* CreateTrainingJob's, as it came; it has passed job_validate */
    const char *folder;    /* of the job, an absolute path */
    const struct channel_host *hosts;
    int host_count;
    struct s3_store *store;
    const char *file_systems; /* the path of filesystems.conf; NULL: there are none */
    const char *buckets; /* the path of buckets.conf (s3/outside.h): which ones are elsewhere; NULL:
                            none */
    struct channel_control *control; /* NULL: nobody looks */
    struct channel_clients *clients; /* this room's own; NULL */
};

/* Whether the request's channels can be had: members that go together, buckets that are there, with
 * objects for each channel, file systems that are known. SHOAL_ERR_ARGUMENT: the text is that of a
 * ValidationException. Reads a page of a list at most for each channel. `folder` and `name` are not
 * used. */
enum shoal_status channel_check(const struct channel_job *job);

/*
 * Makes what the job finds in /opt/ml/input and in its folder of checkpoints, and adds to
 * `description`, which becomes job.json (job/description.h), the mounts and companions that belong
 * to it: to "mounts", "companions" and the "mounts" of each object in "instances", of which there
 * must be one for each host.
 *
 * A failure's text is the FailureReason: "ClientError: Data download failed: …"
 * (SHOAL_ERR_ARGUMENT: the request or its data are wrong), "InternalServerError: …" (this machine),
 * or SHOAL_ERR_ABORTED.
 */
enum shoal_status channel_prepare(const struct channel_job *job, json_t *description);

/* Where the model goes, as ModelArtifacts names it: s3://…/<job>/output/model.tar.gz. */
enum shoal_status channel_model_uri(const struct channel_job *job, char out[CHANNEL_URI_BYTES]);

/*
 * Puts /opt/ml/model of all instances in the bucket as model.tar.gz (or, with CompressionType NONE,
 * file by file below output/model/), /opt/ml/output/data and the failure file as output.tar.gz, and
 * checkpoints that have not gone yet. Where several instances have a file of one name, the
 * first one's goes. A folder with nothing in it makes no object.
 *
 * A failure's text is the FailureReason: "ClientError: Artifact upload failed: …" and so on.
 */
enum shoal_status channel_collect(const struct channel_job *job);

/*
 * Checkpoints of a running job: a thread looks at the folder of each instance, and what is new or
 * has changed goes to the bucket within seconds, whole files only; what the last instance has
 * removed goes there as well. Errors are logged and tried again.
 */
struct channel_checkpoints;
/* *out is NULL where the request has no CheckpointConfig. `job` and what it names must live until
 * the end, but for control. */
enum shoal_status channel_checkpoints_start(const struct channel_job *job,
                                            struct channel_checkpoints **out);
/* Ends the thread. When the job has ended, all that is left goes to the bucket first; else (the
 * service ends, the job goes on) what is under way is given up. NULL is allowed. */
void channel_checkpoints_end(struct channel_checkpoints *checkpoints, bool job_has_ended);

/* The life of the process that fills the FIFOs of Pipe mode, of the job in this folder; a companion
 * of the job's supervisor starts it with the subcommand CHANNEL_FEED_COMMAND. Returns with an error
 * only. */
enum shoal_status channel_feed_run(const char *folder);

#endif
