/* SPDX-License-Identifier: Apache-2.0 */
/* client_state.h: what the files of the client share. */
#ifndef SHOAL_HTTP_CLIENT_STATE_H
#define SHOAL_HTTP_CLIENT_STATE_H

#include <curl/curl.h>

#include "http/client.h"

struct http_client {
    CURL *curl;
    struct http_endpoint endpoint;
    char service[33], user_agent[64];
    int attempts, idle_s;
    int64_t connect_ms;
    const atomic_bool *is_cancelled;
    char error[CURL_ERROR_SIZE];
};

/* One attempt at a call, on its way. */
struct http_attempt {
    struct http_client *client;
    const struct http_call *call;
    struct http_answer *answer;
    const char *payload; /* SHA-256 of the body or UNSIGNED-PAYLOAD */
    int64_t deadline_ns;
    struct http_text url;
    struct curl_slist *headers;
    struct http_text head;      /* the answer's, as it came */
    size_t body_done;           /* of the body */
    bool has_head;              /* its end has come */
    bool has_begun;             /* it is read */
    bool has_delivered;         /* a download got something */
    enum shoal_status callback; /* how one of ours failed; its text is the thread's */
};

/* The address, and all headers with the signature; for `time_s`. */
enum shoal_status http_attempt_sign(struct http_attempt *attempt, int64_t time_s);
/* Over the wire and back. */
enum shoal_status http_attempt_run(struct http_attempt *attempt);
void http_attempt_release(struct http_attempt *attempt);

bool http_call_is_cancelled(const struct http_client *client, const struct http_call *call);
/* Fills in code and text out of an error's body and headers. */
void http_answer_explain(struct http_answer *answer);

#endif
