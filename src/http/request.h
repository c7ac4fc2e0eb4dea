/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h: a request as the room's own files see it.
 *
 * Its phases, each on the connection's thread:
 *
 *   HEAD      up to `begin`; also holds on until the body is there, where only the body tells
 *             whether the signature is right
 *   BODY      pieces come
 *   WHOLE     `complete` was called, and `resumed` may be again
 *
 * `response` is there from the moment that something replied; it goes when the connection takes it,
 * which is before the body or behind it, never in between.
 */
#ifndef SHOAL_HTTP_REQUEST_H
#define SHOAL_HTTP_REQUEST_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/chunked.h"
#include "http/http.h"
#include "http/pairs.h"
#include "http/signature.h"
#include "http/text.h"

#define REQUEST_ID_BYTES    37
#define REQUEST_HEADERS_MAX 100
#define REQUEST_QUERY_MAX   200
#define REQUEST_FORM_MAX    2000
#define REPLY_HEADERS_MAX   128 /* more than requests have, which may be kept and given back */

enum request_phase { REQUEST_HEAD, REQUEST_BODY, REQUEST_WHOLE };

/* How a body is told to be the right one: x-amz-content-sha256. */
enum request_payload {
    PAYLOAD_UNSIGNED,
    PAYLOAD_DIGEST,        /* its SHA-256 stands in a header that is signed */
    PAYLOAD_LATE,          /* its SHA-256 is part of what is signed, and nowhere else */
    PAYLOAD_CHUNKS_SIGNED, /* this and the next: aws-chunked, in the forms of chunked.h */
    PAYLOAD_CHUNKS_TRAILERS,
    PAYLOAD_CHUNKS_SIGNED_TRAILERS
};

struct http_request {
    struct http_server *server;
    struct MHD_Connection *connection;
    const struct http_handler *handler;
    void *user;
    enum request_phase phase;
    bool begun, is_streamed, is_replied, is_queued;
    char id[REQUEST_ID_BYTES];

    const char *method;
    char *target;          /* as sent; cut at the '?' */
    const char *raw_query; /* in it */
    char *path;
    struct http_pairs query, headers, form;
    struct http_pair header_pairs[REQUEST_HEADERS_MAX];
    enum http_service service;
    char operation[129];

    struct http_signature signature;
    const struct http_key *key;
    char payload[HTTP_DIGEST_HEX_BYTES]; /* the word or digest that was signed */
    enum request_payload payload_kind;

    size_t collect_max;
    int64_t announced, received, begin_ns;
    struct http_text body;
    int64_t body_bytes;
    struct http_digest *digest;
    struct http_chunked *chunked;
    enum shoal_status body_status; /* the first failure of a piece */
    void *attachment;

    struct MHD_Response *response;
    int reply_status;
    struct http_pair reply_headers[REPLY_HEADERS_MAX]; /* copies */
    size_t reply_header_count;
    bool lacks_header;              /* for want of memory: the reply is none */
    struct http_text error_members; /* in the error's form */
    struct http_source source;
    int source_fd; /* of a file's reply, to close */

    /* Under the lock of suspend.c. */
    bool wants_suspension, is_suspended, may_go_on, is_given_up, is_over, is_held;
    struct http_request *previous, *next; /* among those that are suspended */
};

/* request.c */
enum shoal_status request_create(struct http_server *server, struct MHD_Connection *connection,
                                 const char *target, struct http_request **out);
/* The connection is done with it: ends it, or leaves that to who is still to resume it. */
void request_release(struct http_request *request);
/* Calls the handler's `end`, and frees it. */
void request_end(struct http_request *request);
/* Reads what the head says: headers, path, query. false: it is refused. */
bool request_read_head(struct http_request *request, const char *method);
/* Runs a callback; a failure becomes a reply. */
void request_failed(struct http_request *request, enum shoal_status status);

/* authorize.c: routing and signature. false: it is refused. */
bool request_authorize(struct http_request *request);
/* The same of what only the whole body tells. */
bool request_authorize_body(struct http_request *request);

/* route.c */
enum http_service route_service(const struct http_request *request);
void route_operation(struct http_request *request);
/* The service whose name a credential for it carries. */
const char *route_signing_name(enum http_service service);
bool route_is_absent(enum http_service service);
/* Whether its requests are forms and its replies XML. */
bool route_is_query(enum http_service service);

/* body.c */
enum shoal_status body_open(struct http_request *request);
/* One piece as it came. */
enum shoal_status body_take(struct http_request *request, const char *bytes, size_t count);
/* At the end: whether all of it is there. false: it is refused. */
bool body_close(struct http_request *request);

/* suspend.c */
/* After a callback that wants it: suspends the connection, unless somebody resumed it already. */
bool suspend_settle(struct http_request *request);
/* Whether somebody resumed it; asked once for each time. */
bool suspend_resumed(struct http_request *request);
/* The same in the reader of a source that has nothing now. */
bool suspend_source(struct http_request *request);
/* Lets all that are suspended go on, and marks them. */
void suspend_give_up(struct http_server *server);
/* The connection is done with it. True if it may be ended, else who holds it will. */
bool suspend_over(struct http_request *request);

/* reply.c: once, when the request ends. */
void reply_source_close(struct http_request *request);
void reply_headers_drop(struct http_request *request);

/* server.c */
const struct http_limits *server_limits(const struct http_server *server);
const struct http_keys *server_keys(const struct http_server *server);
/* It is being stopped, and nothing may wait any more. */
bool server_gives_up(const struct http_server *server);

#endif
