/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket.h: what a job's data needs of S3. Only this room's bucket.c knows where a bucket is: in
 * this machine's store, or elsewhere.
 *
 * Texts of errors are S3's, with the place in front: "s3://bucket/key: NoSuchKey: The specified key
 * does not exist." SHOAL_ERR_ARGUMENT where bucket or key aren't there, else SHOAL_ERR_SYSTEM.
 */
#ifndef SHOAL_CHANNEL_BUCKET_H
#define SHOAL_CHANNEL_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "channel/channel.h"
#include "channel/input.h"
#include "s3/store.h"

/* Objects of a channel at most. */
#define CHANNEL_OBJECTS_MAX INT64_C(16000000)

/* The job has been cancelled. */
enum shoal_status channel_cancelled(const struct channel_job *job);
void channel_count(const struct channel_job *job, int64_t files, int64_t bytes);

/* Calls `visit` for each object whose key begins so, in the order of their bytes; what it returns
 * ends the walk unless it is SHOAL_OK. */
typedef enum shoal_status (*channel_visit)(void *user, const struct s3_list_entry *object);
enum shoal_status channel_bucket_each(const struct channel_job *job, const struct channel_uri *uri,
                                      channel_visit visit, void *user);
/* The first `limit` entries of a list, with a delimiter or NULL; s3_list_release. */
enum shoal_status channel_bucket_list(const struct channel_job *job, const struct channel_uri *uri,
                                      const char *delimiter, int limit, struct s3_list *out);

/* An object as a file below a folder, which can't be written: a hard link where that goes. Folders
 * on the way are made. */
enum shoal_status channel_bucket_link_one(const struct channel_job *job,
                                          const struct channel_uri *uri, int folder_fd,
                                          const char *path);
/* Those of other services come side by side, so some may come only now: call it before the folders
 * are closed. */
enum shoal_status channel_bucket_link_rest(const struct channel_job *job);
/* SHOAL_ERR_ARGUMENT where it isn't there. */
enum shoal_status channel_bucket_find(const struct channel_job *job, const struct channel_uri *uri,
                                      int64_t *bytes, int64_t *modified_ms);
/* For reading; the caller closes fd. */
enum shoal_status channel_bucket_open(const struct channel_job *job, const struct channel_uri *uri,
                                      int *fd, int64_t *bytes, int64_t *modified_ms);
/* All of a small object, with a NUL behind; SHOAL_ERR_LIMIT beyond bytes_max. base_free. */
enum shoal_status channel_bucket_read(const struct channel_job *job, const struct channel_uri *uri,
                                      int64_t bytes_max, char **out, size_t *bytes);

/* A body of unknown length on its way in. Ended by finish or abort. */
struct channel_put;
enum shoal_status channel_bucket_begin(const struct channel_job *job, const struct channel_uri *uri,
                                       struct channel_put **out);
enum shoal_status channel_bucket_write(struct channel_put *put, const void *data, size_t bytes);
enum shoal_status channel_bucket_finish(struct channel_put *put);
void channel_bucket_abort(struct channel_put *put);
/* A file as it is now; if it changes on the way, nothing is put and *is_whole is false. */
enum shoal_status channel_bucket_put_file(const struct channel_job *job,
                                          const struct channel_uri *uri, int fd, bool *is_whole);
enum shoal_status channel_bucket_remove(const struct channel_job *job,
                                        const struct channel_uri *uri);

#endif
