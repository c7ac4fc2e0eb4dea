/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h: the server of the job service: requests in, replies out, on one port for all services.
 *
 * A room registers a handler per service. For each request the server calls, one at a time and on
 * the connection's thread:
 *
 *     begin      the head is here, and its signature is right. Takes the body as it comes
 *                (http_body_stream) or, by default, at once with a limit (http_body_limit).
 *     piece      of a streamed body, in order, after the decoding of aws-chunked. Not to be trusted
 *                before `complete`: only then has the whole body proved to be what was signed.
 *     complete   the body is whole and right. Replies, or suspends.
 *     resumed    after http_request_suspend and http_request_resume. Replies, or suspends again.
 *     end        the request is over, answered or not: what was attached is freed. Always comes
 *                once if `begin` was called, after everything else: of a request that the server
 *                gave up while it was suspended, in the thread that resumes it, which may be after
 *                http_server_stop.
 *
 * Each of these may reply; then nothing but `end` follows, and what is left of the body is read and
 * dropped. A callback that fails without a reply answers as an internal error with the text of
 * base_error; those that say what the client did wrong call http_reply_error.
 *
 * Callbacks must not wait for other requests: their thread serves many connections. What takes long
 * (a sync of a file is allowed) suspends the request, and any thread resumes it later.
 *
 * Functions on a request are called within its callbacks only, except http_request_resume.
 */
#ifndef SHOAL_HTTP_HTTP_H
#define SHOAL_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

struct http_server;
struct http_request;
struct http_keys;

/* ---- services --------------------------------------------------------------------------------
 */

enum http_service {
    HTTP_S3 = 0,
    HTTP_SAGEMAKER,
    HTTP_RUNTIME, /* /endpoints/NAME/invocations */
    HTTP_LOGS,
    HTTP_MONITORING,
    HTTP_MONITORING_QUERY, /* the same by forms, as older clients speak to it */
    HTTP_STS,
    HTTP_IAM,
    HTTP_ABSENT,       /* a service that is not here, */
    HTTP_ABSENT_QUERY, /* and one whose requests are forms */
    HTTP_SERVICE_COUNT
};

/* "s3", "sagemaker", … */
const char *http_service_name(enum http_service service);

/* All but `complete` may be NULL. */
struct http_handler {
    enum shoal_status (*begin)(void *user, struct http_request *request);
    enum shoal_status (*piece)(void *user, struct http_request *request, const void *data,
                               size_t bytes);
    enum shoal_status (*complete)(void *user, struct http_request *request);
    enum shoal_status (*resumed)(void *user, struct http_request *request);
    void (*end)(void *user, struct http_request *request);
};

/* ---- server ----------------------------------------------------------------------------------
 */

/* Every one has a default (HTTP_LIMITS_INIT); what happens beyond is in docs/http.md. */
struct http_limits {
    size_t head_bytes;      /* request line and headers */
    size_t collected_bytes; /* of a body that is not streamed, unless its handler says more */
    int64_t body_bytes;     /* of any body */
    unsigned connections;   /* at one time */
    unsigned threads;       /* 0: by the cores */
    unsigned idle_s;        /* without a byte either way */
    int64_t head_ms;        /* from a connection's first byte of a request to its whole head */
    int64_t body_grace_ms;  /* a body may be slower than the rate below for so long */
    int64_t body_bytes_per_s;
    int64_t stop_ms; /* for requests under way when the server is stopped */
};
#define HTTP_LIMITS_INIT                                                                     \
    {                                                                                        \
        64 << 10, 4 << 20, (INT64_C(5) << 30) + (INT64_C(64) << 20), 1000, 0, 60, 20 * 1000, \
            30 * 1000, 1 << 10, 10 * 1000                                                    \
    }

/* The one port speaks HTTP, TLS, and CONNECT for hosts of amazonaws.com (docs/http.md). All is
 * borrowed. */
struct http_tls {
    const char *dir;              /* the service's, with its authority (authority.h) */
    const char *certificate_path; /* PEM: shown where the client calls no host of amazonaws.com; */
    const char *key_path;         /* both NULL: one of the authority is */
    bool is_only;                 /* requests without TLS are refused, but for those of this machine
                                     itself: a job's, and who watches over it */
};

struct http_options {
    const char *host;             /* a numeric address or a name; "" and "*": all */
    int port;                     /* 0: any free one */
    const struct http_keys *keys; /* who may call (keys.h), borrowed; NULL: anyone, unsigned */
    const struct http_tls *tls;   /* NULL: HTTP only */
    struct http_limits limits;
    const struct http_handler *handlers[HTTP_SERVICE_COUNT]; /* NULL: each of its operations is
                                                                unknown */
    void *users[HTTP_SERVICE_COUNT];                         /* for the handlers */
};

/* Listens and serves. SHOAL_ERR_SYSTEM names the address if it can't be had; SHOAL_ERR_FORMAT a
 * certificate or key that can't be used. */
enum shoal_status http_server_start(const struct http_options *options, struct http_server **out);
/* "127.0.0.1:8080", "[::1]:8080": where it listens. Valid while the server is. */
const char *http_server_address(const struct http_server *server);
int http_server_port(const struct http_server *server);
/* Accepts no more, lets the requests under way end for limits.stop_ms, answers those that are still
 * suspended then with 503, and frees the server. Blocks. NULL is allowed. */
void http_server_stop(struct http_server *server);

/* ---- a request -------------------------------------------------------------------------------
 * All texts are valid until `end` returns. */

enum http_service http_request_service(const struct http_request *request);
const char *http_request_method(const struct http_request *request);
/* Decoded, begins with '/'; holds no NUL. May hold empty parts, "." and "..": nothing is a file
 * name before its room has made it one. */
const char *http_request_path(const struct http_request *request);
/* The value of a parameter of the query, decoded; "" if it has none, NULL if it is not there. The
 * first, if it is there more than once. Names are case-sensitive. */
const char *http_request_query(const struct http_request *request, const char *name);
/* The nth parameter; false beyond the last. */
bool http_request_query_at(const struct http_request *request, size_t n, const char **name,
                           const char **value);
/* NULL if it is not there. Names of headers are not case-sensitive. */
const char *http_request_header(const struct http_request *request, const char *name);
bool http_request_header_at(const struct http_request *request, size_t n, const char **name,
                            const char **value);
/* Who signed: the access key's id, and the name that the keys file gives it (else the id). "" and
 * "anonymous" on a server without keys. */
const char *http_request_key_id(const struct http_request *request);
const char *http_request_key_name(const struct http_request *request);
/* The region that the signature names, else "us-east-1". */
const char *http_request_region(const struct http_request *request);
/* As it stands in the reply's headers and in the log. */
const char *http_request_id(const struct http_request *request);
/* The operation: of X-Amz-Target behind the dot, or of a form's Action; "" where there is none. */
const char *http_request_operation(const struct http_request *request);

/* Anything of the handler's own; NULL to start. */
void http_request_attach(struct http_request *request, void *attachment);
void *http_request_attachment(const struct http_request *request);

/* ---- its body --------------------------------------------------------------------------------
 */

/* In `begin`: the body goes to `piece`. */
void http_body_stream(struct http_request *request);
/* In `begin`: it is collected up to this many bytes rather than limits.collected_bytes. A longer
 * one is refused (EntityTooLarge, RequestEntityTooLarge). */
void http_body_limit(struct http_request *request, size_t bytes);
/* What was announced (Content-Length, x-amz-decoded-content-length), -1 if nothing was. */
int64_t http_body_announced(const struct http_request *request);
/* In `complete` and later: a collected body, with a NUL behind it; and its bytes, streamed or not.
 */
const void *http_body(const struct http_request *request, size_t *bytes);
int64_t http_body_bytes(const struct http_request *request);
/* In `complete` and later: a trailer of an aws-chunked body, such as x-amz-checksum-crc32; NULL if
 * it is not there. */
const char *http_body_trailer(const struct http_request *request, const char *name);
/* In `complete` of a query service: a parameter of the form; NULL if it is not there. */
const char *http_body_form(const struct http_request *request, const char *name);
/* The nth one; false beyond the last. */
bool http_body_form_at(const struct http_request *request, size_t n, const char **name,
                       const char **value);

/* ---- suspension ------------------------------------------------------------------------------
 */

/* In `complete` or `resumed`, which returns SHOAL_OK after it: the reply comes later. Whoever is to
 * resume it does so exactly once, also when the client has gone. */
void http_request_suspend(struct http_request *request);
/* From any thread, also before the callback that suspends has returned. `resumed` is called soon,
 * on the connection's thread. The request may be gone when this returns. */
void http_request_resume(struct http_request *request);

/* ---- replies ---------------------------------------------------------------------------------
 * One per request. Content-Length, Date, Connection and the request's id are added. For HEAD the
 * same reply goes without its body. */

/* A header of the reply to come. Names and values with control characters are SHOAL_ERR_FORMAT. */
enum shoal_status http_reply_header(struct http_request *request, const char *name,
                                    const char *value);
enum shoal_status http_reply_header_format(struct http_request *request, const char *name,
                                           const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* No body. */
enum shoal_status http_reply_empty(struct http_request *request, int status);
/* The bytes are copied. content_type NULL: none. */
enum shoal_status http_reply_bytes(struct http_request *request, int status,
                                   const char *content_type, const void *bytes, size_t count);
/* To HEAD, where the body would have so many bytes. */
enum shoal_status http_reply_head(struct http_request *request, int status, uint64_t bytes);
/* `bytes` of a file from `offset` (sendfile). Takes fd, also when it fails. */
enum shoal_status http_reply_file(struct http_request *request, int status, int fd, uint64_t offset,
                                  uint64_t bytes);

/* A body that is made while it goes. */
struct http_source {
    /* Writes 1 to `capacity` bytes and sets *bytes. 0 bytes: the end. SHOAL_IN_PROGRESS: none now;
     * it is called again after http_source_wake. Another status breaks the connection off. */
    enum shoal_status (*read)(void *user, void *out, size_t capacity, size_t *bytes);
    void (*close)(void *user); /* when the request ends; may be NULL */
    void *user;
};
/* bytes -1: unknown, sent in chunks. Calls close also when it fails. */
enum shoal_status http_reply_source(struct http_request *request, int status, int64_t bytes,
                                    const struct http_source *source);
/* From any thread, at any time between the reply and `close`: there is more to read. */
void http_source_wake(struct http_request *request);

/* An error in the form of the request's service: S3's XML, the JSON of the JSON services, or the
 * XML of the query services. `code` as the service documents it: "NoSuchKey",
 * "ValidationException". */
enum shoal_status http_reply_error(struct http_request *request, int status, const char *code,
                                   const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Before it: one more element of the error, such as BucketName. */
enum shoal_status http_error_member(struct http_request *request, const char *name,
                                    const char *value);
/* UnknownOperationException (NotImplemented in S3) with the operation's name. */
enum shoal_status http_reply_unknown(struct http_request *request);
/* Whether there is a reply already. */
bool http_replied(const struct http_request *request);

#endif
