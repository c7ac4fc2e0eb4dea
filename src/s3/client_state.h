/* SPDX-License-Identifier: Apache-2.0 */
/* client_state.h: what the files of the client share. */
#ifndef SHOAL_S3_CLIENT_STATE_H
#define SHOAL_S3_CLIENT_STATE_H

#include <pthread.h>

#include "s3/client.h"

#define S3_CLIENT_PARALLEL_MAX 64
#define S3_REQUEST_QUERY_MAX   8
#define S3_REQUEST_HEADERS_MAX 10

struct s3_client {
    struct http_endpoint endpoint;
    bool is_virtual;
    int parallel;
    int64_t part_bytes;
    const atomic_bool *is_cancelled;
    void (*progress)(void *user, int64_t bytes);
    void *user;
    /* Connections: made when they are needed, kept until the end. */
    pthread_mutex_t lock;
    pthread_cond_t given;
    struct http_client *idle[S3_CLIENT_PARALLEL_MAX];
    int idle_count, made_count;
};

/* Zeroed to start. */
struct s3_request {
    const char *method, *bucket, *key; /* NULL: of the service, of the bucket */
    struct http_pair query[S3_REQUEST_QUERY_MAX], headers[S3_REQUEST_HEADERS_MAX];
    size_t query_count, header_count;
    const void *body;
    size_t body_bytes;
    const struct http_upload *upload;
    const struct http_download *download;
    enum http_repeat repeat;
    bool is_cleanup; /* as in struct http_call; with a short deadline */
};
void s3_request_query(struct s3_request *request, const char *name, const char *value);
void s3_request_header(struct s3_request *request, const char *name, const char *value);

/* Sends it on a connection of its own. S3_OK: *answer is for http_answer_free. *failure (may be
 * NULL) is how the network failed, SHOAL_OK if it did not. */
enum s3_code s3_client_send(struct s3_client *client, const struct s3_request *request,
                            struct http_answer *answer, enum shoal_status *failure);
/* The same without an interest in what is answered. */
enum s3_code s3_client_do(struct s3_client *client, const struct s3_request *request);
/* An error that came with status 200, as completing and copying may. */
enum s3_code s3_answer_check(const struct http_answer *answer);
void s3_client_progress(struct s3_client *client, int64_t bytes);

/* Checksums in headers. */
#define S3_CHECKSUM_HEADER_BYTES 40
/* "x-amz-checksum-crc32". */
void s3_checksum_header(enum s3_algorithm algorithm, char out[S3_CHECKSUM_HEADER_BYTES]);
/* That of all bytes, which the answer names; S3_NO_CHECKSUM if it names none. */
void s3_answer_checksum(const struct http_answer *answer, struct s3_checksum *out);
/* Where the bytes of an answer begin, and how long the object is; false where it does not say so.
 */
bool s3_answer_range(const struct http_answer *answer, int64_t *first, int64_t *all);
/* An ETag without its quotes; "" if it is too long to be one. */
void s3_etag_of(const char *text, char etag[S3_ETAG_BYTES]);
/* A time of XML or of a header, in ms since 1970; 0 if it is none. */
int64_t s3_time_of(const char *text);

#endif
