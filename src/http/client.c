/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c: calls: attempts at them, pauses between, and what is made of their answers.
 *
 * An attempt is followed by another one if the failure passes by itself (no connection, a broken
 * one, 429, 500, 502, 503, 504, and codes that ask for patience), the call may be sent again, its
 * body can be read again, and no download has got anything. Pauses double from 100 ms to 5 s, with
 * a random part, so that clients that failed together don't come back together; Retry-After is
 * followed up to 20 s.
 */
#include "http/client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "http/client_state.h"
#include "http/digest.h"

#define PAUSE_FIRST_MS     100
#define PAUSE_MAX_MS       5000
#define RETRY_AFTER_MAX_MS 20000
#define PAUSE_STEP_MS      50 /* how soon a cancelled call ends */
#define HASH_BYTES         (64 << 10)

/* ---- a client ----------------------------------------------------------------------------------
 */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_began;

static void curl_begin(void)
{
    curl_began = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static enum shoal_status client_fill(struct http_client *client,
                                     const struct http_client_options *options)
{
    client->endpoint = *options->endpoint;
    if (snprintf(client->service, sizeof(client->service), "%s", options->service) >=
        (int)sizeof(client->service))
        return base_error(SHOAL_ERR_ARGUMENT, "the service's name %s is too long",
                          options->service);
    client->attempts = options->attempts > 0 ? options->attempts : HTTP_CLIENT_ATTEMPTS;
    client->connect_ms = options->connect_ms > 0 ? options->connect_ms : HTTP_CLIENT_CONNECT_MS;
    client->idle_s = options->idle_s > 0 ? options->idle_s : HTTP_CLIENT_IDLE_S;
    client->is_cancelled = options->is_cancelled;
    snprintf(client->user_agent, sizeof(client->user_agent), "shoal/" SHOAL_VERSION_STRING);
    client->curl = curl_easy_init();
    if (client->curl == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for an HTTP client");
    return SHOAL_OK;
}

enum shoal_status http_client_create(const struct http_client_options *options,
                                     struct http_client **out)
{
    struct http_client *client;
    pthread_once(&curl_once, curl_begin);
    if (curl_began != CURLE_OK)
        return base_error(SHOAL_ERR_SYSTEM, "libcurl can't be used: %s",
                          curl_easy_strerror(curl_began));
    TRY(BASE_NEW(&client, "an HTTP client"));
    enum shoal_status status = client_fill(client, options);
    if (status != SHOAL_OK) {
        http_client_free(client);
        return status;
    }
    *out = client;
    return SHOAL_OK;
}

void http_client_free(struct http_client *client)
{
    if (client == NULL)
        return;
    if (client->curl != NULL)
        curl_easy_cleanup(client->curl);
    base_free(client);
}

const struct http_endpoint *http_client_endpoint(const struct http_client *client)
{
    return &client->endpoint;
}

enum shoal_status http_client_set_region(struct http_client *client, const char *region)
{
    if (strlen(region) >= sizeof(client->endpoint.region))
        return base_error(SHOAL_ERR_ARGUMENT, "the region's name %s is too long", region);
    memcpy(client->endpoint.region, region, strlen(region) + 1);
    return SHOAL_OK;
}

/* ---- answers -----------------------------------------------------------------------------------
 */

const char *http_answer_header(const struct http_answer *answer, const char *name)
{
    return http_pairs_find_header(&answer->headers, name);
}

const char *http_answer_text(const struct http_answer *answer)
{
    return http_text_string(&answer->body);
}

void http_answer_free(struct http_answer *answer)
{
    http_pairs_free(&answer->headers);
    http_text_free(&answer->body);
    *answer = (struct http_answer){0};
}

/* ---- payload -----------------------------------------------------------------------------------
 */

static enum shoal_status upload_hash(const struct http_upload *upload, struct http_digest *digest,
                                     char hex[HTTP_DIGEST_HEX_BYTES])
{
    char buffer[HASH_BYTES];
    size_t bytes;
    for (int64_t done = 0; done < upload->bytes; done += (int64_t)bytes) {
        int64_t left = upload->bytes - done;
        size_t capacity = left < HASH_BYTES ? (size_t)left : HASH_BYTES;
        TRY(upload->read(upload->user, buffer, capacity, &bytes));
        TRY(http_digest_add(digest, buffer, bytes));
    }
    TRY(http_digest_finish(digest, hex));
    return upload->rewind(upload->user);
}

/* What the signature says of the body. A long one's digest would take a second pass over it, which
 * only an open network is worth. */
static enum shoal_status payload_make(const struct http_client *client,
                                      const struct http_call *call,
                                      char payload[HTTP_DIGEST_HEX_BYTES])
{
    const struct http_upload *upload = call->upload;
    if (upload == NULL)
        return http_digest_of(call->body != NULL ? call->body : "", call->body_bytes, payload);
    bool is_s3 = strcmp(client->service, "s3") == 0;
    if (is_s3 && (upload->rewind == NULL || http_endpoint_is_private(&client->endpoint))) {
        snprintf(payload, HTTP_DIGEST_HEX_BYTES, "UNSIGNED-PAYLOAD");
        return SHOAL_OK;
    }
    if (upload->rewind == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "a body that can be read once only can't be signed");
    struct http_digest *digest;
    TRY(http_digest_create(&digest));
    enum shoal_status status = upload_hash(upload, digest, payload);
    http_digest_free(digest);
    return status;
}

/* ---- again? ------------------------------------------------------------------------------------
 */

static bool is_one_of(const char *code, const char *const *codes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(code, codes[i]) == 0)
            return true;
    return false;
}

/* The service says that it did nothing, for now. */
static bool asks_for_patience(const struct http_answer *answer)
{
    static const char *const codes[] = {"SlowDown",
                                        "Throttling",
                                        "ThrottlingException",
                                        "RequestLimitExceeded",
                                        "TooManyRequestsException",
                                        "ServiceUnavailable"};
    return answer->status == 429 || answer->status == 503 ||
           is_one_of(answer->code, codes, sizeof(codes) / sizeof(codes[0]));
}

static bool may_repeat(const struct http_call *call)
{
    return call->repeat == HTTP_REPEAT_ALWAYS ||
           (call->repeat == HTTP_REPEAT_BY_METHOD && strcmp(call->method, "POST") != 0);
}

static bool is_worth_another(const struct http_attempt *attempt, enum shoal_status status)
{
    const struct http_call *call = attempt->call;
    const struct http_answer *answer = attempt->answer;
    if (attempt->callback != SHOAL_OK || attempt->has_delivered ||
        (call->upload != NULL && call->upload->rewind == NULL))
        return false;
    if (status == SHOAL_ERR_PEER_UNREACHABLE)
        return true;
    if (status == SHOAL_OK && asks_for_patience(answer))
        return true;
    if (!may_repeat(call))
        return false;
    return status == SHOAL_ERR_PEER_LOST || status == SHOAL_ERR_TIMEOUT ||
           (status == SHOAL_OK &&
            (answer->status == 500 || answer->status == 502 || answer->status == 504 ||
             strcmp(answer->code, "RequestTimeout") == 0));
}

static int64_t pause_ms(const struct http_answer *answer, int attempt)
{
    int64_t pause = PAUSE_FIRST_MS;
    const char *after = http_answer_header(answer, "Retry-After");
    uint16_t random = 0;
    for (int i = 1; i < attempt && pause < PAUSE_MAX_MS; i++)
        pause *= 2;
    pause = pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
    if (getrandom(&random, sizeof(random), 0) == (ssize_t)sizeof(random))
        pause = pause / 2 + pause * random / UINT16_MAX;
    if (after != NULL && atol(after) > 0 && atol(after) <= RETRY_AFTER_MAX_MS / 1000)
        pause = atol(after) * 1000;
    return pause;
}

bool http_call_is_cancelled(const struct http_client *client, const struct http_call *call)
{
    return client->is_cancelled != NULL && !call->is_cleanup && atomic_load(client->is_cancelled);
}

/* False if the call is over first. */
static bool pause_for(const struct http_client *client, const struct http_call *call, int64_t ms,
                      int64_t deadline_ns)
{
    int64_t end_ns = base_deadline_ns(ms);
    if (end_ns >= deadline_ns)
        return false;
    while (base_left_ms(end_ns) > 0) {
        if (http_call_is_cancelled(client, call))
            return false;
        int left_ms = base_left_ms(end_ns);
        base_sleep_ms(left_ms < PAUSE_STEP_MS ? left_ms : PAUSE_STEP_MS);
    }
    return true;
}

/* ---- calls -------------------------------------------------------------------------------------
 */

static enum shoal_status attempt_make(struct http_attempt *attempt)
{
    const struct http_upload *upload = attempt->call->upload;
    if (upload != NULL && upload->rewind != NULL)
        TRY(upload->rewind(upload->user));
    TRY(http_attempt_sign(attempt, (int64_t)time(NULL)));
    TRY(http_attempt_run(attempt));
    if (attempt->answer->status >= 300)
        http_answer_explain(attempt->answer);
    return SHOAL_OK;
}

enum shoal_status http_client_send(struct http_client *client, const struct http_call *call,
                                   struct http_answer *answer)
{
    char payload[HTTP_DIGEST_HEX_BYTES];
    int64_t deadline_ns = base_deadline_ns(call->timeout_ms > 0 ? call->timeout_ms : -1);
    *answer = (struct http_answer){0};
    TRY(payload_make(client, call, payload));
    for (int number = 1;; number++) {
        struct http_attempt attempt = {.client = client,
                                       .call = call,
                                       .answer = answer,
                                       .payload = payload,
                                       .deadline_ns = deadline_ns};
        enum shoal_status status = attempt_make(&attempt);
        bool goes_on = number < client->attempts && is_worth_another(&attempt, status);
        http_attempt_release(&attempt);
        answer->attempts = number;
        if (!goes_on || !pause_for(client, call, pause_ms(answer, number), deadline_ns)) {
            if (status != SHOAL_OK)
                http_answer_free(answer);
            return status;
        }
        http_answer_free(answer);
    }
}

enum shoal_status http_client_check(const struct http_client *client, const struct http_call *call,
                                    const struct http_answer *answer)
{
    const struct http_endpoint *endpoint = &client->endpoint;
    if (answer->status < 300)
        return SHOAL_OK;
    bool is_unsigned =
        endpoint->key.id[0] == '\0' && (answer->status == 401 || answer->status == 403);
    return base_error(SHOAL_ERR_PEER_REFUSED, "%s refused %s %s: %s%s%s (HTTP %d)%s", endpoint->url,
                      call->method, call->path, answer->code, answer->code[0] != '\0' ? ": " : "",
                      answer->text[0] != '\0' ? answer->text : "no reason given", answer->status,
                      is_unsigned ? "; the request was not signed: no keys are known "
                                    "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
                                  : "");
}

enum shoal_status http_client_call(struct http_client *client, const struct http_call *call,
                                   struct http_answer *answer)
{
    TRY(http_client_send(client, call, answer));
    return http_client_check(client, call, answer);
}

enum shoal_status http_client_invoke(struct http_client *client, const char *target,
                                     const char *json, bool is_safe, struct http_answer *answer)
{
    bool is_monitoring = strcmp(client->service, "monitoring") == 0;
    const struct http_pair headers[] = {{"content-type", is_monitoring
                                                             ? "application/x-amz-json-1.0"
                                                             : "application/x-amz-json-1.1"},
                                        {"x-amz-target", target}};
    struct http_call call = {.method = "POST",
                             .path = "/",
                             .headers = headers,
                             .header_count = 2,
                             .body = json,
                             .body_bytes = strlen(json),
                             .repeat = is_safe ? HTTP_REPEAT_ALWAYS : HTTP_REPEAT_BY_METHOD};
    TRY(http_client_send(client, &call, answer));
    call.path = target; /* which says more than the path that all share */
    return http_client_check(client, &call, answer);
}
