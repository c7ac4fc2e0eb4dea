/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signature.h: AWS signature version 4, both ways: made for a request, and checked on one. In the
 * Authorization header or in the query (presigned URLs), and of the chunks of a streamed body. Of
 * version 2 only presigned URLs are read, because boto3 still makes them.
 *
 * Pure computation: nothing here knows of connections or of the clock.
 */
#ifndef SHOAL_HTTP_SIGNATURE_H
#define SHOAL_HTTP_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#include "http/digest.h"
#include "http/keys.h"
#include "http/pairs.h"
#include "shoal.h"

#define HTTP_SIGNATURE_TIME_BYTES    17 /* 20261120T173347Z */
#define HTTP_SIGNATURE_SCOPE_BYTES   160
#define HTTP_SIGNATURE_HEADERS_BYTES 4096
#define HTTP_SIGNATURE_SKEW_S        (15 * 60)
#define HTTP_SIGNATURE_EXPIRES_MAX_S (7 * 24 * 3600)

/* What a client can have done wrong; what each service says of it is in refusal.c. */
enum http_verdict {
    HTTP_ACCEPTED = 0,
    HTTP_UNSIGNED,        /* no signature at all */
    HTTP_MALFORMED,       /* parts are missing or wrong; `why` says which */
    HTTP_MALFORMED_QUERY, /* the same of a presigned URL */
    HTTP_UNKNOWN_KEY,
    HTTP_WRONG_SIGNATURE,
    HTTP_SKEWED,          /* its clock and ours differ by more than 15 minutes */
    HTTP_EXPIRED,         /* a presigned URL's time is over */
    HTTP_HEADER_UNSIGNED, /* host or an x-amz- header is there and not signed */
    HTTP_PAYLOAD_MISSING, /* S3: no x-amz-content-sha256 */
    HTTP_PAYLOAD_WRONG,   /* the body is not the one that was signed */
    HTTP_PAYLOAD_UNKNOWN, /* a form of x-amz-content-sha256 that is not there */
    HTTP_WRONG_SERVICE,   /* the credential's scope is another service's */
    HTTP_VERDICT_COUNT
};

/* A request as it goes over the wire. */
struct http_message {
    const char *method;
    const char *path;               /* not decoded */
    const struct http_pairs *query; /* decoded */
    const struct http_pairs *headers;
};

struct http_signature {
    char key_id[HTTP_KEY_ID_BYTES];
    char time[HTTP_SIGNATURE_TIME_BYTES];
    char date[9], region[65], service[33];             /* the credential's scope */
    char signed_headers[HTTP_SIGNATURE_HEADERS_BYTES]; /* "host;x-amz-date" */
    char hex[HTTP_DIGEST_HEX_BYTES];
    bool presigned;
    bool is_old;       /* version 2 in a URL: `time_s` is when it ends, `hex` is base64 */
    int64_t time_s;    /* since 1970 */
    int64_t expires_s; /* presigned */
    const char *why;   /* HTTP_MALFORMED: in words */
};

/* Reads what a request carries; nothing is checked but its form. */
enum http_verdict http_signature_read(const struct http_message *message,
                                      struct http_signature *out);
/* Whether its time is near enough `now_s`. */
enum http_verdict http_signature_check_time(const struct http_signature *signature, int64_t now_s);
/* Whether host and all x-amz- headers are signed. */
enum http_verdict http_signature_check_headers(const struct http_message *message,
                                               const struct http_signature *signature);
/* Whether it is what this secret makes of the request; `payload` is the body's SHA-256 or the word
 * that stands for it. *verdict is HTTP_ACCEPTED or HTTP_WRONG_SIGNATURE; fails only without memory.
 */
enum shoal_status http_signature_check(const struct http_message *message,
                                       const struct http_signature *signature, const char *secret,
                                       const char *payload, enum http_verdict *verdict);

/* ---- chunks of a streamed body ------------------------------------------------------------------
 */

struct http_chunk_signer {
    unsigned char key[HTTP_DIGEST_BYTES];
    char time[HTTP_SIGNATURE_TIME_BYTES];
    char scope[HTTP_SIGNATURE_SCOPE_BYTES];
    char previous[HTTP_DIGEST_HEX_BYTES];
};

/* Begins with the request's own signature. */
enum shoal_status http_chunk_signer_begin(const struct http_signature *signature,
                                          const char *secret, struct http_chunk_signer *out);
/* The signature of the next chunk, by the SHA-256 of its data. */
enum shoal_status http_chunk_sign(struct http_chunk_signer *signer, const char *digest,
                                  char hex[HTTP_DIGEST_HEX_BYTES]);
/* Of the trailers, by the SHA-256 of "name:value\n" of each. */
enum shoal_status http_chunk_sign_trailers(struct http_chunk_signer *signer, const char *digest,
                                           char hex[HTTP_DIGEST_HEX_BYTES]);

/* ---- for clients
 * ---------------------------------------------------------------------------------
 */

struct http_signing {
    const struct http_key *key;
    const char *region, *service;
    int64_t time_s;
    const char *payload; /* SHA-256 of the body, or UNSIGNED-PAYLOAD */
};

/* Signs all headers of the message, among which are host and x-amz-date (http_signature_time), and
 * for S3 x-amz-content-sha256. `authorization` is the header's value. */
enum shoal_status http_signature_sign(const struct http_message *message,
                                      const struct http_signing *signing, char *authorization,
                                      size_t bytes);
/* The query of a presigned URL, with what message->query has already; host is the one header. */
struct http_text;
enum shoal_status http_signature_presign(const struct http_message *message,
                                         const struct http_signing *signing, int64_t expires_s,
                                         struct http_text *query);
/* 20261120T173347Z. */
void http_signature_time(int64_t time_s, char out[HTTP_SIGNATURE_TIME_BYTES]);

#endif
