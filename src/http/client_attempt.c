/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_attempt.c: one attempt at a request, carried by libcurl.
 *
 * libcurl calls back, on the caller's thread, for more of the body, with lines of the answer's head
 * and with pieces of its body. A callback that fails leaves its status here and its text in the
 * thread, and that is what the attempt returns.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "http/client_state.h"

#define HEAD_BYTES_MAX      ((size_t)256 << 10)
#define BUFFER_BYTES        (512L << 10)
#define CALLBACK_HAS_FAILED ((size_t)-1) /* more than libcurl gave: an error to it */

/* ---- up --------------------------------------------------------------------------------------
 */

static int64_t body_bytes(const struct http_call *call)
{
    return call->upload != NULL ? call->upload->bytes : (int64_t)call->body_bytes;
}

static bool has_body(const struct http_call *call)
{
    return call->upload != NULL || call->body != NULL || strcmp(call->method, "PUT") == 0 ||
           strcmp(call->method, "POST") == 0;
}

static size_t body_read(char *out, size_t size, size_t count, void *user)
{
    struct http_attempt *attempt = user;
    const struct http_call *call = attempt->call;
    size_t capacity = size * count, bytes = 0;
    if (call->upload == NULL) {
        bytes = call->body_bytes - attempt->body_done;
        bytes = bytes < capacity ? bytes : capacity;
        if (bytes > 0)
            memcpy(out, (const char *)call->body + attempt->body_done, bytes);
        attempt->body_done += bytes;
        return bytes;
    }
    attempt->callback = call->upload->read(call->upload->user, out, capacity, &bytes);
    attempt->body_done += bytes;
    if (attempt->callback == SHOAL_OK && bytes == 0 &&
        (int64_t)attempt->body_done < call->upload->bytes)
        attempt->callback = base_error(SHOAL_ERR_FORMAT, "a body ended before its length");
    return attempt->callback == SHOAL_OK ? bytes : CURL_READFUNC_ABORT;
}

/* When a connection that was kept turns out to be closed, libcurl begins again on a fresh one. */
static int body_seek(void *user, curl_off_t offset, int origin)
{
    struct http_attempt *attempt = user;
    const struct http_upload *upload = attempt->call->upload;
    if (offset != 0 || origin != SEEK_SET)
        return CURL_SEEKFUNC_CANTSEEK;
    attempt->body_done = 0;
    if (upload == NULL)
        return CURL_SEEKFUNC_OK;
    if (upload->rewind == NULL)
        return CURL_SEEKFUNC_CANTSEEK;
    attempt->callback = upload->rewind(upload->user);
    return attempt->callback == SHOAL_OK ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
}

/* ---- down ------------------------------------------------------------------------------------
 */

static bool is_success(const struct http_answer *answer)
{
    return answer->status >= 200 && answer->status < 300;
}

/* "Name: value", in place, with an end to both. */
static void header_split(char *line, struct http_pair *out)
{
    char *colon = strchr(line, ':');
    char *value = colon != NULL ? colon + 1 : line + strlen(line);
    if (colon != NULL)
        *colon = '\0';
    value += strspn(value, " \t");
    size_t length = strlen(value);
    while (length > 0 && (value[length - 1] == ' ' || value[length - 1] == '\t'))
        value[--length] = '\0';
    *out = (struct http_pair){line, value};
}

/* The head as pairs, which point into what the answer holds of it. */
static enum shoal_status head_read(struct http_attempt *attempt)
{
    struct http_pairs *pairs = &attempt->answer->headers;
    size_t most = 0;
    for (size_t i = 0; i < attempt->head.count; i++)
        most += attempt->head.bytes[i] == '\n';
    TRY(base_strdup(http_text_string(&attempt->head), "an answer's headers", &pairs->storage));
    TRY(BASE_NEW_ARRAY(&pairs->pairs, most, "an answer's headers"));
    char *rest = NULL;
    for (char *line = strtok_r(pairs->storage, "\r\n", &rest); line != NULL && pairs->count < most;
         line = strtok_r(NULL, "\r\n", &rest))
        if (strchr(line, ':') != NULL)
            header_split(line, &pairs->pairs[pairs->count++]);
    return SHOAL_OK;
}

static enum shoal_status body_begin(struct http_attempt *attempt)
{
    const struct http_download *download = attempt->call->download;
    if (attempt->has_begun)
        return SHOAL_OK;
    attempt->has_begun = true;
    long status = 0;
    curl_easy_getinfo(attempt->client->curl, CURLINFO_RESPONSE_CODE, &status);
    attempt->answer->status = (int)status;
    TRY(head_read(attempt));
    if (download == NULL || download->begin == NULL || !is_success(attempt->answer))
        return SHOAL_OK;
    attempt->has_delivered = true;
    return download->begin(download->user, attempt->answer);
}

static enum shoal_status body_take(struct http_attempt *attempt, const void *data, size_t bytes)
{
    const struct http_download *download = attempt->call->download;
    TRY(body_begin(attempt));
    if (download != NULL && is_success(attempt->answer)) {
        attempt->has_delivered = true;
        return download->piece(download->user, data, bytes);
    }
    http_text_add(&attempt->answer->body, data, bytes);
    return http_text_status(&attempt->answer->body);
}

static size_t body_write(char *data, size_t size, size_t count, void *user)
{
    struct http_attempt *attempt = user;
    attempt->callback = body_take(attempt, data, size * count);
    return attempt->callback == SHOAL_OK ? size * count : CALLBACK_HAS_FAILED;
}

/* A line of the head. Each "HTTP/…" begins another one: what was before it was "100 Continue". */
static size_t head_write(char *data, size_t size, size_t count, void *user)
{
    struct http_attempt *attempt = user;
    size_t bytes = size * count;
    if (attempt->has_begun)
        return bytes; /* a trailer */
    if (bytes >= 5 && memcmp(data, "HTTP/", 5) == 0) {
        http_text_free(&attempt->head);
        return bytes;
    }
    attempt->has_head = bytes <= 2; /* the empty line */
    if (memchr(data, '\0', bytes) == NULL)
        http_text_add(&attempt->head, data, bytes);
    attempt->callback = http_text_status(&attempt->head);
    return attempt->callback == SHOAL_OK ? bytes : CALLBACK_HAS_FAILED;
}

static int is_over(void *user, curl_off_t down, curl_off_t down_now, curl_off_t up,
                   curl_off_t up_now)
{
    const struct http_attempt *attempt = user;
    (void)down, (void)down_now, (void)up, (void)up_now;
    return http_call_is_cancelled(attempt->client, attempt->call);
}

/* ---- the attempt -----------------------------------------------------------------------------
 */

static void method_set(struct http_attempt *attempt)
{
    CURL *curl = attempt->client->curl;
    const struct http_call *call = attempt->call;
    if (strcmp(call->method, "HEAD") == 0) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
        return;
    }
    if (has_body(call)) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)body_bytes(call));
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, body_read);
        curl_easy_setopt(curl, CURLOPT_READDATA, attempt);
        curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, body_seek);
        curl_easy_setopt(curl, CURLOPT_SEEKDATA, attempt);
        curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
}

static void bounds_set(struct http_attempt *attempt)
{
    struct http_client *client = attempt->client;
    CURL *curl = client->curl;
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)client->connect_ms);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)client->idle_s);
    if (attempt->deadline_ns != BASE_NO_DEADLINE) {
        int left_ms = base_left_ms(attempt->deadline_ns);
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, left_ms > 0 ? (long)left_ms : 1L);
    }
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_over);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, attempt);
}

static void options_set(struct http_attempt *attempt)
{
    struct http_client *client = attempt->client;
    CURL *curl = client->curl;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, http_text_string(&attempt->url));
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, attempt->headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, client->user_agent);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->error);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, head_write);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, attempt);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, body_write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, attempt);
    if (client->endpoint.authorities[0] != '\0')
        curl_easy_setopt(curl, CURLOPT_CAINFO, client->endpoint.authorities);
    if (http_endpoint_is_here(&client->endpoint))
        curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    method_set(attempt);
    bounds_set(attempt);
}

static enum shoal_status unreachable(const struct http_attempt *attempt, const char *why)
{
    const struct http_endpoint *endpoint = &attempt->client->endpoint;
    return base_error(SHOAL_ERR_PEER_UNREACHABLE, "cannot reach %s (%s): %s", endpoint->url,
                      endpoint->whence, why);
}

static enum shoal_status carried_wrong(const struct http_attempt *attempt, CURLcode code)
{
    const struct http_client *client = attempt->client;
    const char *url = client->endpoint.url;
    const char *why = client->error[0] != '\0' ? client->error : curl_easy_strerror(code);
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: return unreachable(attempt, why);
    case CURLE_OPERATION_TIMEDOUT:
        return base_error(SHOAL_ERR_TIMEOUT, "%s did not answer in time: %s", url, why);
    case CURLE_ABORTED_BY_CALLBACK:
        return base_error(SHOAL_ERR_ABORTED, "the request to %s was cancelled", url);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return base_error(SHOAL_ERR_PEER_REFUSED,
                          "%s has a certificate that is not trusted here: %s (AWS_CA_BUNDLE may "
                          "name a file of authorities)",
                          url, why);
    case CURLE_OUT_OF_MEMORY: return base_error(SHOAL_ERR_MEMORY, "no memory for a request");
    case CURLE_URL_MALFORMAT:
        return base_error(SHOAL_ERR_ARGUMENT, "the address %s can't be used: %s", url, why);
    default: return base_error(SHOAL_ERR_PEER_LOST, "the connection to %s broke: %s", url, why);
    }
}

enum shoal_status http_attempt_run(struct http_attempt *attempt)
{
    size_t most = attempt->call->answer_bytes_max;
    attempt->head.limit = HEAD_BYTES_MAX;
    attempt->answer->body.limit = most > 0 ? most : HTTP_ANSWER_BYTES_MAX;
    attempt->client->error[0] = '\0';
    options_set(attempt);
    CURLcode code = curl_easy_perform(attempt->client->curl);
    if (attempt->callback != SHOAL_OK)
        return base_error_context(attempt->callback, "%s", attempt->client->endpoint.url);
    if (code != CURLE_OK || !attempt->has_head) /* libcurl takes half a head for one */
        return carried_wrong(attempt, code != CURLE_OK ? code : CURLE_GOT_NOTHING);
    return body_begin(attempt);
}
