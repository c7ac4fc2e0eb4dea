/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h: requests to a service, ours or another that takes signature version 4: signed, sent,
 * repeated where that is safe, and answered.
 *
 *     struct http_endpoint endpoint;
 *     TRY(http_endpoint_find(&(struct http_endpoint_wish){.service = "sagemaker"}, &endpoint));
 *     TRY(http_client_create(&(struct http_client_options){&endpoint, "sagemaker"}, &client));
 *     struct http_answer answer;
 *     TRY(http_client_invoke(client, "SageMaker.DescribeTrainingJob", "{…}", true, &answer));
 *     … http_answer_text(&answer) …
 *     http_answer_free(&answer);
 *     http_client_free(client);
 *
 * A client keeps its connection from one request to the next. One thread at a time uses it; threads
 * that send side by side have one each. libcurl carries the bytes.
 */
#ifndef SHOAL_HTTP_CLIENT_H
#define SHOAL_HTTP_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/endpoint.h"
#include "http/pairs.h"
#include "http/text.h"
#include "shoal.h"

#define HTTP_ANSWER_BYTES_MAX  ((size_t)16 << 20)
#define HTTP_ERROR_CODE_BYTES  128
#define HTTP_ERROR_TEXT_BYTES  640
#define HTTP_CLIENT_ATTEMPTS   5
#define HTTP_CLIENT_CONNECT_MS 10000
#define HTTP_CLIENT_IDLE_S     60

struct http_client;

struct http_client_options {
    const struct http_endpoint *endpoint; /* copied */
    const char *service;                  /* that signatures name: "s3", "sagemaker", "logs" */
    int attempts;                         /* of one call at most; 0: HTTP_CLIENT_ATTEMPTS */
    int64_t connect_ms;                   /* 0: HTTP_CLIENT_CONNECT_MS */
    int idle_s;                           /* without a byte either way; 0: HTTP_CLIENT_IDLE_S */
    const atomic_bool *is_cancelled;      /* set by any thread: calls end soon; NULL: never */
};

/* Copies what it needs but for is_cancelled. */
enum shoal_status http_client_create(const struct http_client_options *options,
                                     struct http_client **out);
/* NULL is allowed. */
void http_client_free(struct http_client *client);
const struct http_endpoint *http_client_endpoint(const struct http_client *client);
/* Later requests are signed for this region. */
enum shoal_status http_client_set_region(struct http_client *client, const char *region);

/* ---- an answer ---------------------------------------------------------------------------------
 */

struct http_answer {
    int status;
    struct http_pairs headers;
    struct http_text body;            /* unless a download took it; `count` bytes and a NUL */
    char code[HTTP_ERROR_CODE_BYTES]; /* of the service's error, of statuses from 300 on:
                                       * "NoSuchKey", "ValidationException"; "" if it says none */
    char text[HTTP_ERROR_TEXT_BYTES]; /* its message, or "" */
    int attempts;
};

/* NULL if it is not there. Names are not case-sensitive. */
const char *http_answer_header(const struct http_answer *answer, const char *name);
/* The body, with a NUL behind it; "" if there is none. */
const char *http_answer_text(const struct http_answer *answer);
/* Safe on a zeroed one; it is zeroed then. */
void http_answer_free(struct http_answer *answer);

/* ---- a call ------------------------------------------------------------------------------------
 */

/* A body that is read while it goes. */
struct http_upload {
    int64_t bytes; /* in all */
    /* Gives 1 to `capacity` bytes and sets *bytes. */
    enum shoal_status (*read)(void *user, void *out, size_t capacity, size_t *bytes);
    /* Begins with the first byte, before each attempt; NULL: it can't, and there is one attempt. */
    enum shoal_status (*rewind)(void *user);
    void *user;
};

/* The body of an answer of 200 to 299, while it comes. */
struct http_download {
    /* Before the first piece, and of an empty body too; may be NULL. */
    enum shoal_status (*begin)(void *user, const struct http_answer *answer);
    enum shoal_status (*piece)(void *user, const void *data, size_t bytes);
    void *user;
};

/* Which calls are sent again after a failure that leaves open whether they took effect. Those that
 * certainly did not (no connection, 429, 503) are sent again in any case. */
enum http_repeat {
    HTTP_REPEAT_BY_METHOD = 0, /* all but POST */
    HTTP_REPEAT_ALWAYS,
    HTTP_REPEAT_NEVER
};

struct http_call {
    const char *method;
    const char *host_label; /* goes in front of the host with a dot (virtual-host style); or NULL */
    const char *path;       /* decoded; begins with '/' */
    const struct http_pair *query; /* decoded */
    size_t query_count;
    const struct http_pair *headers; /* all are signed; host, date and digest are added */
    size_t header_count;
    const void *body; /* one of these, or none */
    size_t body_bytes;
    const struct http_upload *upload;
    const struct http_download *download; /* NULL: the body is in the answer */
    size_t answer_bytes_max;              /* 0: HTTP_ANSWER_BYTES_MAX */
    int64_t timeout_ms;                   /* for everything; 0: only idle_s ends it */
    enum http_repeat repeat;
    bool is_cleanup; /* it goes although the client is cancelled: takes back what was begun */
};

/* SHOAL_OK: there is an answer, of whatever status; it is for the caller to free. Else *answer is
 * zeroed, and the text names the address:
 *     SHOAL_ERR_PEER_UNREACHABLE  no connection
 *     SHOAL_ERR_PEER_LOST         it broke; SHOAL_ERR_TIMEOUT: it was silent, or time was over
 *     SHOAL_ERR_PEER_REFUSED      its certificate is not trusted
 *     SHOAL_ERR_LIMIT             the answer is too long
 *     SHOAL_ERR_ABORTED           cancelled
 * and whatever `upload` and `download` return. What a download got of a broken answer it keeps: the
 * call is not repeated then. */
enum shoal_status http_client_send(struct http_client *client, const struct http_call *call,
                                   struct http_answer *answer);
/* SHOAL_OK for statuses below 300. Else SHOAL_ERR_PEER_REFUSED, with who refused what, the
 * service's code and text, and the status. */
enum shoal_status http_client_check(const struct http_client *client, const struct http_call *call,
                                    const struct http_answer *answer);
/* Both. *answer is left, for its code, also where the service refused. */
enum shoal_status http_client_call(struct http_client *client, const struct http_call *call,
                                   struct http_answer *answer);
/* An operation of a JSON service: POST with `target` ("SageMaker.ListTrainingJobs") and a body of
 * JSON; both, as above. is_safe: it may be repeated in any case. */
enum shoal_status http_client_invoke(struct http_client *client, const char *target,
                                     const char *json, bool is_safe, struct http_answer *answer);

/* ---- bodies in files --------------------------------------------------------------------------
 */

/* `bytes` of a file from `first` on. */
struct http_file_part {
    int fd; /* borrowed; read and written with its own offset */
    int64_t first, bytes;
    int64_t done; /* how far it is; 0 to start */
};
/* Fills in an upload that reads it; SHOAL_ERR_FORMAT if the file is shorter. */
void http_file_upload(struct http_file_part *part, struct http_upload *out);
/* A download into it; SHOAL_ERR_LIMIT for more bytes. */
void http_file_download(struct http_file_part *part, struct http_download *out);

#endif
