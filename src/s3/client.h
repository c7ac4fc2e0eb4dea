/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h: buckets and objects of an S3 service: ours, or another one anywhere.
 *
 * Calls are named as those of the store (store.h), take the same structs and return the same codes,
 * but block: base_error_text() has the reason, with the service's own words. What a service answers
 * that S3_CODES does not know is S3_ACCESS_DENIED by 401 and 403, S3_NO_SUCH_KEY by 404, else
 * S3_INTERNAL_ERROR; so is what the network does.
 *
 * Threads. All calls may come from any thread. A client has up to `parallel` connections and makes
 * no more requests than that at one time; large objects are moved in parts, side by side.
 *
 * Bytes are checked. What is sent carries its CRC-32, which the service compares. What comes is
 * compared with the checksum that the service keeps of it, if it is of all bytes, else with an ETag
 * that is an MD5; without either, its length is.
 */
#ifndef SHOAL_S3_CLIENT_H
#define SHOAL_S3_CLIENT_H

#include <stdatomic.h>

#include "http/client.h"
#include "s3/store.h"

#define S3_CLIENT_PARALLEL   8
#define S3_CLIENT_PART_BYTES (INT64_C(16) << 20)

struct s3_client;

/* How the bucket is named in an address. */
enum s3_style {
    S3_STYLE_AUTO = 0, /* by host name with AWS's own hosts, else by path */
    S3_STYLE_PATH,     /* http://HOST/BUCKET/KEY */
    S3_STYLE_VIRTUAL   /* http://BUCKET.HOST/KEY */
};

struct s3_client_options {
    const struct http_endpoint *endpoint; /* copied */
    enum s3_style style;
    int parallel;       /* 0: S3_CLIENT_PARALLEL */
    int64_t part_bytes; /* at least S3_PART_BYTES_MIN; 0: S3_CLIENT_PART_BYTES. Larger where an
                         * object would have too many parts */
    const atomic_bool *is_cancelled; /* calls end soon when it is set; NULL: never */
    /* So many more bytes went over; fewer, if they must go again. From any thread; NULL: none. */
    void (*progress)(void *user, int64_t bytes);
    void *user;
};

enum s3_code s3_client_create(const struct s3_client_options *options, struct s3_client **out);
/* When no call is under way. NULL is allowed. */
void s3_client_free(struct s3_client *client);
const char *s3_client_url(const struct s3_client *client);
/* Runs a function for 0 to count - 1, up to `parallel` at one time; the first failure, which ends
 * it soon, with its text. */
enum s3_code s3_client_side_by_side(const struct s3_client *client, int64_t count,
                                    enum s3_code (*run)(void *user, int64_t index), void *user);

/* ------------------------------------------------------------------------------------ buckets */

/* BUCKET_OWNED, BUCKET_EXISTS, INVALID_BUCKET_NAME. */
enum s3_code s3_client_bucket_create(struct s3_client *client, const char *name);
/* NO_SUCH_BUCKET, BUCKET_NOT_EMPTY. */
enum s3_code s3_client_bucket_delete(struct s3_client *client, const char *name);
/* NO_SUCH_BUCKET. */
enum s3_code s3_client_bucket_find(struct s3_client *client, const char *name);
/* *out is freed with base_free. */
enum s3_code s3_client_bucket_list(struct s3_client *client, struct s3_bucket **out, size_t *count);

/* --------------------------------------------------------------------------------------- list */

/* Zeroed to start, but for what is wanted. */
struct s3_client_listing {
    const char *bucket, *prefix, *delimiter; /* as in struct s3_list_options */
    const char *after;
    int limit;    /* of one page; 0: S3_LIST_KEYS_MAX */
    char *token;  /* where the next page begins */
    bool is_over; /* there is no next page */
};
/* The next page, given back by s3_list_release. NO_SUCH_BUCKET. */
enum s3_code s3_client_list(struct s3_client *client, struct s3_client_listing *listing,
                            struct s3_list *out);
void s3_client_listing_release(struct s3_client_listing *listing);

/* ------------------------------------------------------------------------------------ objects */

/* What the service says of an object: bytes, time, ETag, checksum of all bytes; part_count is 0 if
 * the ETag is their MD5. NO_SUCH_KEY (or its bucket: the answer does not tell). */
enum s3_code s3_client_head(struct s3_client *client, const char *bucket, const char *key,
                            struct s3_object *out);
/* Keys that are not there count as deleted. NO_SUCH_BUCKET. */
enum s3_code s3_client_delete(struct s3_client *client, const char *bucket, const char *const *keys,
                              size_t count);
/* Within the service, with all that is said of the source; its `bytes`, if they are known, else -1.
 * What is larger than 5 GiB is copied in parts, and has no metadata then. */
struct s3_client_copy {
    const char *bucket, *key, *to_bucket, *to_key;
};
enum s3_code s3_client_copy(struct s3_client *client, const struct s3_client_copy *copy,
                            int64_t bytes);

/* Into a file, whose length is the object's then: parts side by side, each of which goes on where
 * it broke off. `known`: what head or a list said of it, NULL: asked. PRECONDITION_FAILED: the
 * object changed meanwhile; BAD_DIGEST: its bytes are not what they should be. */
enum s3_code s3_client_get(struct s3_client *client, const char *bucket, const char *key,
                           const struct s3_object *known, int fd);
/* One byte behind the other, from `first`, `bytes` of them (-1: all). A failure of `piece` ends it
 * with S3_INTERNAL_ERROR and its text. BAD_DIGEST comes behind the last byte, of whole objects. */
struct s3_sink {
    enum shoal_status (*piece)(void *user, const void *data, size_t bytes);
    void *user;
};
enum s3_code s3_client_read(struct s3_client *client, const char *bucket, const char *key,
                            int64_t first, int64_t bytes, const struct s3_sink *sink);

struct s3_client_put {
    const char *bucket, *key;
    const char *content_type; /* NULL: binary/octet-stream */
};
/* `bytes` of a file from `first` on. In parts if it is longer than one; if one fails, the upload is
 * aborted, and nothing has changed. */
enum s3_code s3_client_put(struct s3_client *client, const struct s3_client_put *put, int fd,
                           int64_t first, int64_t bytes, struct s3_written *out);
/* All that can be read from a descriptor that is no file. Holds `parallel` parts in memory. */
enum s3_code s3_client_write(struct s3_client *client, const struct s3_client_put *put, int fd,
                             struct s3_written *out);

#endif
