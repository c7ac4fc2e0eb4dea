/* SPDX-License-Identifier: Apache-2.0 */
/* s3.h: what the operations of `shoal s3` share. */
#ifndef SHOAL_CMD_S3_H
#define SHOAL_CMD_S3_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/endpoint.h"
#include "s3/client.h"
#include "s3/tree.h"

#define S3_FILTERS_MAX 64
#define S3_WORDS_MAX   2

struct s3_filter {
    const char *pattern;
    bool includes;
};

/* What the command line asks for. */
struct s3_wish {
    struct http_endpoint_wish endpoint;
    enum s3_style style;
    long parallel;
    int64_t part_bytes;
    struct s3_filter filters[S3_FILTERS_MAX];
    int filter_count;
    const char *words[S3_WORDS_MAX];
    int word_count;
    bool is_recursive, deletes, is_dry, wants_json, is_quiet, sizes_only, is_forced, is_human;
    bool passes_links;
};

/* s3://BUCKET/KEY, a path of this machine, or "-". */
struct s3_side {
    bool is_remote, is_stream;
    char bucket[S3_BUCKET_NAME_MAX + 1];
    const char *path; /* the key, "" if there is none; or the path */
};

struct s3_progress;

struct s3_session {
    const struct s3_wish *wish;
    struct s3_client *client;
    struct s3_progress *progress;
};

/* SHOAL_ERR_ARGUMENT for s3:// without a bucket. */
enum shoal_status s3_side_of(const char *word, struct s3_side *out);
/* Whether --exclude and --include leave a path in: the last pattern that fits decides. */
bool s3_wish_takes(const struct s3_wish *wish, const char *path);

/* Set by Ctrl-C and SIGTERM. */
extern atomic_bool s3_is_cancelled;

/* The operations. */
enum shoal_status s3_ls(struct s3_session *session);
enum shoal_status s3_mb(struct s3_session *session);
enum shoal_status s3_rb(struct s3_session *session);
enum shoal_status s3_cp(struct s3_session *session);
enum shoal_status s3_sync(struct s3_session *session);
enum shoal_status s3_rm(struct s3_session *session);

/* ---- progress: a line on a terminal, and what was done ------------------------------------------
 */

/* Bars are drawn on stderr if it is a terminal, unless --quiet or --json. */
enum shoal_status s3_progress_create(const struct s3_wish *wish, struct s3_progress **out);
/* More is to be done. */
void s3_progress_plan(struct s3_progress *progress, int64_t files, int64_t bytes);
/* Bytes went over; any thread. */
void s3_progress_bytes(void *progress, int64_t bytes);
/* A file is done: "upload", from, to. Any thread. */
void s3_progress_done(struct s3_progress *progress, const char *verb, const char *from,
                      const char *to);
/* It is not, for the reason in base_error_text(). Any thread. */
void s3_progress_failed(struct s3_progress *progress, const char *verb, const char *from,
                        const char *to);
/* Takes the bar away, writes the sums with --json, and frees it; how many failed. */
int64_t s3_progress_end(struct s3_progress *progress);

#endif
