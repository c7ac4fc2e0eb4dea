/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elsewhere.h: buckets that another service has, by the lines of buckets.conf (s3/outside.h). What
 * a job reads there is copied into its folder; what it makes goes there in parts, side by side. For
 * bucket.c only. Codes and texts are S3's.
 */
#ifndef SHOAL_CHANNEL_ELSEWHERE_H
#define SHOAL_CHANNEL_ELSEWHERE_H

#include "channel/input.h"
#include "s3/client.h"
#include "s3/outside.h"

#define CHANNEL_CLIENTS_MAX 8
#define CHANNEL_FETCHES_MAX 64

/* An object that is to become a file. */
struct channel_fetch {
    struct channel_uri uri;
    char path[S3_KEY_BYTES_MAX + 1];
    int folder_fd;
};

/* Clients of one job's calls. One thread. */
struct channel_clients {
    struct s3_outside *outside; /* NULL: not read yet */
    struct {
        char bucket[S3_BUCKET_NAME_MAX + 1]; /* "": free */
        struct s3_client *client;
    } rows[CHANNEL_CLIENTS_MAX];
    int next; /* whose place the next one takes */
    /* What waits to be fetched, all by one client. */
    struct channel_fetch *fetches; /* room for CHANNEL_FETCHES_MAX; NULL: none were */
    int fetch_count;
    struct s3_client *fetch_client;
};

/* A job's calls go by `own` from now on, until the clients are released. */
void channel_clients_open(const struct channel_job *job, struct channel_clients *clients,
                          struct channel_job *own);
void channel_clients_release(struct channel_clients *clients);

/* The client for a bucket that is elsewhere; NULL: it is ours. */
enum s3_code channel_elsewhere_find(const struct channel_job *job, const char *bucket,
                                    struct s3_client **out);

enum s3_code channel_elsewhere_list(struct s3_client *client, const struct s3_list_options *options,
                                    struct s3_list *out);
enum s3_code channel_elsewhere_head(struct s3_client *client, const struct channel_uri *uri,
                                    int64_t *bytes, int64_t *modified_ms);
/* A copy in a file without a name, on the disk of the job's folder. */
enum s3_code channel_elsewhere_open(const struct channel_job *job, struct s3_client *client,
                                    const struct channel_uri *uri, int *fd, int64_t *bytes,
                                    int64_t *modified_ms);
/* A copy at a path below a folder, made now or by the next flush, side by side with others; the
 * folder must stay open until then. INVALID_ARGUMENT: something is there. Texts name the object
 * that failed, which may be an earlier one. */
enum s3_code channel_elsewhere_fetch(const struct channel_job *job, struct s3_client *client,
                                     const struct channel_uri *uri, int folder_fd,
                                     const char *path);
enum s3_code channel_elsewhere_flush(const struct channel_job *job);
enum s3_code channel_elsewhere_put(struct s3_client *client, const struct channel_uri *uri, int fd,
                                   int64_t bytes);
enum s3_code channel_elsewhere_remove(struct s3_client *client, const struct channel_uri *uri);
/* A file without a name on the disk of the job's folder. */
enum s3_code channel_elsewhere_file(const struct channel_job *job, int *fd);

#endif
