/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_sign.c: the address and the headers of a request to be sent.
 *
 * What is signed must be what is sent: both are written here, out of one list of pairs, and libcurl
 * is told to leave the path as it is.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/client_state.h"
#include "http/signature.h"

#define AUTHORIZATION_BYTES (HTTP_SIGNATURE_HEADERS_BYTES + 512)
#define OWN_HEADERS         4 /* host, x-amz-date, x-amz-content-sha256, x-amz-security-token */

/* "http://" and what follows it up to the path. */
static const char *authority_of(const char *url, size_t *scheme, size_t *bytes)
{
    *scheme = (size_t)(strstr(url, "://") + 3 - url);
    *bytes = strcspn(url + *scheme, "/");
    return url + *scheme;
}

static enum shoal_status host_put(const struct http_attempt *attempt, struct http_text *host)
{
    size_t scheme, bytes;
    const char *authority = authority_of(attempt->client->endpoint.url, &scheme, &bytes);
    if (attempt->call->host_label != NULL)
        http_text_format(host, "%s.", attempt->call->host_label);
    http_text_add(host, authority, bytes);
    return http_text_status(host);
}

/* The path in front of the service's own, if the address has one, and then the call's. */
static void path_put(const struct http_attempt *attempt, struct http_text *path)
{
    size_t scheme, bytes;
    const char *authority = authority_of(attempt->client->endpoint.url, &scheme, &bytes);
    http_text_put(path, authority + bytes);
    http_text_encode(path, attempt->call->path, strlen(attempt->call->path), true);
}

static void query_put(const struct http_call *call, struct http_text *url)
{
    for (size_t i = 0; i < call->query_count; i++) {
        const struct http_pair *pair = &call->query[i];
        http_text_put(url, i > 0 ? "&" : "?");
        http_text_encode(url, pair->name, strlen(pair->name), false);
        http_text_put(url, "=");
        http_text_encode(url, pair->value, strlen(pair->value), false);
    }
}

static enum shoal_status url_make(struct http_attempt *attempt, const struct http_text *host,
                                  const struct http_text *path)
{
    size_t scheme, bytes;
    const char *url = attempt->client->endpoint.url;
    authority_of(url, &scheme, &bytes);
    http_text_add(&attempt->url, url, scheme);
    http_text_put(&attempt->url, http_text_string(host));
    http_text_put(&attempt->url, http_text_string(path));
    query_put(attempt->call, &attempt->url);
    return http_text_status(&attempt->url);
}

/* A line of libcurl's list: "Name: value", "Name;" without a value, "Name:" for none at all. */
static enum shoal_status line_put(struct http_attempt *attempt, const char *name,
                                  const char *between, const char *value)
{
    struct http_text line = {0};
    http_text_format(&line, "%s%s%s", name, between, value);
    struct curl_slist *more = NULL;
    if (http_text_status(&line) == SHOAL_OK)
        more = curl_slist_append(attempt->headers, line.bytes);
    http_text_free(&line);
    if (more == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a request's headers");
    attempt->headers = more;
    return SHOAL_OK;
}

static enum shoal_status line_add(struct http_attempt *attempt, const char *name, const char *value)
{
    if (strpbrk(value, "\r\n") != NULL || strpbrk(name, "\r\n:; ") != NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "the header '%s' has a line's end in it", name);
    return line_put(attempt, name, value[0] != '\0' ? ": " : ";", value);
}

static enum shoal_status signature_add(struct http_attempt *attempt, const char *path,
                                       const struct http_pairs *headers, int64_t time_s)
{
    char authorization[AUTHORIZATION_BYTES];
    struct http_client *client = attempt->client;
    struct http_pairs query = {.pairs = (struct http_pair *)attempt->call->query,
                               .count = attempt->call->query_count};
    struct http_message message = {
        .method = attempt->call->method, .path = path, .query = &query, .headers = headers};
    struct http_signing signing = {.key = &client->endpoint.key,
                                   .region = client->endpoint.region,
                                   .service = client->service,
                                   .time_s = time_s,
                                   .payload = attempt->payload};
    TRY(http_signature_sign(&message, &signing, authorization, sizeof(authorization)));
    return line_add(attempt, "Authorization", authorization);
}

/* The call's own and ours; *count of them. */
static void headers_list(const struct http_attempt *attempt, const char *host, const char *time,
                         struct http_pair *out, size_t *count)
{
    const struct http_call *call = attempt->call;
    if (call->header_count > 0)
        memcpy(out, call->headers, call->header_count * sizeof(*out));
    size_t used = call->header_count;
    out[used++] = (struct http_pair){"host", host};
    if (attempt->client->endpoint.key.id[0] != '\0') {
        out[used++] = (struct http_pair){"x-amz-date", time};
        if (strcmp(attempt->client->service, "s3") == 0)
            out[used++] = (struct http_pair){"x-amz-content-sha256", attempt->payload};
        if (attempt->client->endpoint.token[0] != '\0')
            out[used++] =
                (struct http_pair){"x-amz-security-token", attempt->client->endpoint.token};
    }
    *count = used;
}

static enum shoal_status headers_make(struct http_attempt *attempt, const char *host,
                                      const char *path, int64_t time_s)
{
    char time[HTTP_SIGNATURE_TIME_BYTES];
    struct http_pairs all = {0};
    http_signature_time(time_s, time);
    TRY(BASE_NEW_ARRAY(&all.pairs, attempt->call->header_count + OWN_HEADERS, "headers"));
    headers_list(attempt, host, time, all.pairs, &all.count);
    /* Bodies go at once: to wait for "100 Continue" costs more than a refused one. */
    enum shoal_status status = line_put(attempt, "Expect", ":", "");
    for (size_t i = 0; i < all.count && status == SHOAL_OK; i++)
        status = line_add(attempt, all.pairs[i].name, all.pairs[i].value);
    if (status == SHOAL_OK && attempt->client->endpoint.key.id[0] != '\0')
        status = signature_add(attempt, path, &all, time_s);
    base_free(all.pairs);
    return status;
}

enum shoal_status http_attempt_sign(struct http_attempt *attempt, int64_t time_s)
{
    struct http_text host = {0}, path = {0};
    enum shoal_status status = host_put(attempt, &host);
    path_put(attempt, &path);
    if (status == SHOAL_OK)
        status = http_text_status(&path);
    if (status == SHOAL_OK)
        status = url_make(attempt, &host, &path);
    if (status == SHOAL_OK)
        status = headers_make(attempt, http_text_string(&host), http_text_string(&path), time_s);
    http_text_free(&host);
    http_text_free(&path);
    return status;
}

void http_attempt_release(struct http_attempt *attempt)
{
    http_text_free(&attempt->url);
    http_text_free(&attempt->head);
    curl_slist_free_all(attempt->headers);
    attempt->headers = NULL;
}
