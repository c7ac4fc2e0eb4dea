/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c: requests to an S3 service: connections, addresses, and answers as S3's codes.
 *
 * A bucket of AWS may lie in another region than the one that requests were signed for. The service
 * then names the right one, for which the request is sent once more, and so are all later ones.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/client_state.h"
#include "s3/xml_read.h"

#define REGION_HEADER "x-amz-bucket-region"
#define CLEANUP_MS    10000

/* ---------------------------------------------------------------------------------- connections */

static bool is_of_aws(const char *url)
{
    size_t length = strlen(url);
    const char *const ends[] = {".amazonaws.com", ".amazonaws.com.cn"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t end = strlen(ends[i]);
        if (length > end && strcmp(url + length - end, ends[i]) == 0)
            return true;
    }
    return false;
}

enum s3_code s3_client_create(const struct s3_client_options *options, struct s3_client **out)
{
    struct s3_client *client;
    int parallel = options->parallel > 0 ? options->parallel : S3_CLIENT_PARALLEL;
    int64_t part_bytes = options->part_bytes > 0 ? options->part_bytes : S3_CLIENT_PART_BYTES;
    if (part_bytes < S3_PART_BYTES_MIN || part_bytes > S3_PART_BYTES_MAX)
        return s3_error(S3_INVALID_ARGUMENT, "parts have 5 MiB to 5 GiB");
    S3_TRY(s3_from_status(BASE_NEW(&client, "an S3 client")));
    client->endpoint = *options->endpoint;
    client->is_virtual = options->style == S3_STYLE_VIRTUAL ||
                         (options->style == S3_STYLE_AUTO && is_of_aws(options->endpoint->url));
    client->parallel = parallel < S3_CLIENT_PARALLEL_MAX ? parallel : S3_CLIENT_PARALLEL_MAX;
    client->part_bytes = part_bytes;
    client->is_cancelled = options->is_cancelled;
    client->progress = options->progress;
    client->user = options->user;
    pthread_mutex_init(&client->lock, NULL);
    pthread_cond_init(&client->given, NULL);
    *out = client;
    return S3_OK;
}

void s3_client_free(struct s3_client *client)
{
    if (client == NULL)
        return;
    for (int i = 0; i < client->idle_count; i++)
        http_client_free(client->idle[i]);
    pthread_cond_destroy(&client->given);
    pthread_mutex_destroy(&client->lock);
    base_free(client);
}

const char *s3_client_url(const struct s3_client *client)
{
    return client->endpoint.url;
}

void s3_client_progress(struct s3_client *client, int64_t bytes)
{
    if (client->progress != NULL && bytes != 0)
        client->progress(client->user, bytes);
}

/* One that is idle, or a new one, or the next that is given back. */
static enum shoal_status connection_take(struct s3_client *client, struct http_client **out)
{
    struct http_client_options options = {.service = "s3", .is_cancelled = client->is_cancelled};
    struct http_endpoint endpoint;
    pthread_mutex_lock(&client->lock);
    while (client->idle_count == 0 && client->made_count == client->parallel)
        pthread_cond_wait(&client->given, &client->lock);
    bool is_idle = client->idle_count > 0;
    if (is_idle)
        *out = client->idle[--client->idle_count];
    else
        client->made_count++;
    endpoint = client->endpoint;
    pthread_mutex_unlock(&client->lock);
    if (is_idle)
        return http_client_set_region(*out, endpoint.region);
    options.endpoint = &endpoint;
    enum shoal_status status = http_client_create(&options, out);
    if (status == SHOAL_OK)
        return SHOAL_OK;
    pthread_mutex_lock(&client->lock);
    client->made_count--;
    pthread_cond_signal(&client->given);
    pthread_mutex_unlock(&client->lock);
    return status;
}

static void connection_give(struct s3_client *client, struct http_client *connection)
{
    pthread_mutex_lock(&client->lock);
    client->idle[client->idle_count++] = connection;
    pthread_cond_signal(&client->given);
    pthread_mutex_unlock(&client->lock);
}

/* ------------------------------------------------------------------------------------- requests */

void s3_request_query(struct s3_request *request, const char *name, const char *value)
{
    BASE_ASSERT(request->query_count < S3_REQUEST_QUERY_MAX);
    request->query[request->query_count++] = (struct http_pair){name, value};
}

void s3_request_header(struct s3_request *request, const char *name, const char *value)
{
    BASE_ASSERT(request->header_count < S3_REQUEST_HEADERS_MAX);
    request->headers[request->header_count++] = (struct http_pair){name, value};
}

/* A bucket with a dot would not match the certificate of one name below the service's. */
static bool is_by_host(const struct s3_client *client, const char *bucket)
{
    bool is_encrypted = strncmp(client->endpoint.url, "https:", 6) == 0;
    return client->is_virtual && bucket != NULL && !(is_encrypted && strchr(bucket, '.') != NULL);
}

#define PATH_BYTES (S3_BUCKET_NAME_MAX + S3_KEY_BYTES_MAX + 3)

static enum s3_code path_make(const struct s3_client *client, const struct s3_request *request,
                              char path[PATH_BYTES])
{
    const char *bucket = request->bucket, *key = request->key;
    if (bucket != NULL &&
        (bucket[0] == '\0' || strlen(bucket) > S3_BUCKET_NAME_MAX || strchr(bucket, '/') != NULL))
        return s3_error(S3_INVALID_BUCKET_NAME, "'%.100s' can't be the name of a bucket", bucket);
    if (key != NULL)
        S3_TRY(s3_key_check(key));
    if (bucket == NULL || is_by_host(client, bucket))
        snprintf(path, PATH_BYTES, "/%s", key != NULL ? key : "");
    else
        snprintf(path, PATH_BYTES, "/%s%s%s", bucket, key != NULL ? "/" : "",
                 key != NULL ? key : "");
    return S3_OK;
}

/* What S3 says by name; else what its status says. */
static enum s3_code code_of(const struct s3_request *request, const struct http_answer *answer)
{
    for (int code = S3_OK + 1; code < S3_CODE_COUNT; code++)
        if (strcmp(answer->code, s3_code_name((enum s3_code)code)) == 0)
            return (enum s3_code)code;
    switch (answer->status) {
    case 304: return S3_NOT_MODIFIED;
    case 401:
    case 403: return S3_ACCESS_DENIED;
    case 404: return request->key != NULL ? S3_NO_SUCH_KEY : S3_NO_SUCH_BUCKET;
    case 412: return S3_PRECONDITION_FAILED;
    case 416: return S3_INVALID_RANGE;
    default: return S3_INTERNAL_ERROR;
    }
}

/* Whether the answer names another region than the request's, which is taken from now on. */
static bool is_elsewhere(struct s3_client *client, const struct http_client *connection,
                         const struct http_answer *answer, char region[HTTP_ENDPOINT_REGION_BYTES])
{
    const char *named = http_answer_header(answer, REGION_HEADER);
    if (answer->status < 300 || named == NULL || named[0] == '\0' ||
        strlen(named) >= HTTP_ENDPOINT_REGION_BYTES)
        return false;
    memcpy(region, named, strlen(named) + 1);
    pthread_mutex_lock(&client->lock);
    memcpy(client->endpoint.region, region, strlen(region) + 1);
    pthread_mutex_unlock(&client->lock);
    return strcmp(region, http_client_endpoint(connection)->region) != 0;
}

static enum shoal_status answer_get(struct s3_client *client, const struct http_call *call,
                                    struct http_client *connection, struct http_answer *answer)
{
    char region[HTTP_ENDPOINT_REGION_BYTES];
    TRY(http_client_send(connection, call, answer));
    if (!is_elsewhere(client, connection, answer, region) ||
        (call->upload != NULL && call->upload->rewind == NULL))
        return SHOAL_OK;
    http_answer_free(answer);
    TRY(http_client_set_region(connection, region));
    return http_client_send(connection, call, answer);
}

static enum s3_code call_send(struct s3_client *client, const struct s3_request *request,
                              const struct http_call *call, struct http_answer *answer,
                              enum shoal_status *failure)
{
    struct http_client *connection;
    *failure = connection_take(client, &connection);
    S3_TRY(s3_from_status(*failure));
    *failure = answer_get(client, call, connection, answer);
    enum s3_code code = s3_from_status(*failure);
    if (code == S3_OK && http_client_check(connection, call, answer) != SHOAL_OK) {
        char text[BASE_ERROR_TEXT_BYTES];
        snprintf(text, sizeof(text), "%s", base_error_text());
        code = s3_error(code_of(request, answer), "%s", text);
        http_answer_free(answer);
    }
    connection_give(client, connection);
    return code;
}

enum s3_code s3_client_send(struct s3_client *client, const struct s3_request *request,
                            struct http_answer *answer, enum shoal_status *failure)
{
    char path[PATH_BYTES];
    enum shoal_status ignored;
    *answer = (struct http_answer){0};
    S3_TRY(path_make(client, request, path));
    struct http_call call = {.method = request->method,
                             .path = path,
                             .query = request->query,
                             .query_count = request->query_count,
                             .headers = request->headers,
                             .header_count = request->header_count,
                             .body = request->body,
                             .body_bytes = request->body_bytes,
                             .upload = request->upload,
                             .download = request->download,
                             .repeat = request->repeat,
                             .is_cleanup = request->is_cleanup,
                             .timeout_ms = request->is_cleanup ? CLEANUP_MS : 0};
    if (is_by_host(client, request->bucket))
        call.host_label = request->bucket;
    return call_send(client, request, &call, answer, failure != NULL ? failure : &ignored);
}

enum s3_code s3_client_do(struct s3_client *client, const struct s3_request *request)
{
    struct http_answer answer;
    S3_TRY(s3_client_send(client, request, &answer, NULL));
    http_answer_free(&answer);
    return S3_OK;
}

/* ---------------------------------------------------------------------------------- what is said
 */

struct error_reader {
    char code[64], text[512];
};

static enum s3_code error_leave(void *user, const char *path, const char *text)
{
    struct error_reader *reader = user;
    if (strcmp(path, "Error/Code") == 0)
        snprintf(reader->code, sizeof(reader->code), "%s", text);
    if (strcmp(path, "Error/Message") == 0)
        snprintf(reader->text, sizeof(reader->text), "%s", text);
    return S3_OK;
}

enum s3_code s3_answer_check(const struct http_answer *answer)
{
    struct error_reader reader = {.code = ""};
    struct s3_request request = {.key = ""};
    S3_TRY(s3_xml_walk(http_answer_text(answer), answer->body.count, error_leave, &reader));
    if (reader.code[0] == '\0')
        return S3_OK;
    struct http_answer error = {.status = 500};
    snprintf(error.code, sizeof(error.code), "%s", reader.code);
    return s3_error(code_of(&request, &error), "%s: %s", reader.code, reader.text);
}

void s3_checksum_header(enum s3_algorithm algorithm, char out[S3_CHECKSUM_HEADER_BYTES])
{
    snprintf(out, S3_CHECKSUM_HEADER_BYTES, "x-amz-checksum-%s", s3_algorithm_name(algorithm));
    for (char *at = out; *at != '\0'; at++)
        if (*at >= 'A' && *at <= 'Z')
            *at = (char)(*at - 'A' + 'a');
}

void s3_answer_checksum(const struct http_answer *answer, struct s3_checksum *out)
{
    *out = (struct s3_checksum){.algorithm = S3_NO_CHECKSUM};
    for (int i = S3_NO_CHECKSUM + 1; i < S3_ALGORITHM_COUNT; i++) {
        char name[S3_CHECKSUM_HEADER_BYTES];
        s3_checksum_header((enum s3_algorithm)i, name);
        const char *value = http_answer_header(answer, name);
        if (value == NULL || strlen(value) >= sizeof(out->text) || strchr(value, '-') != NULL)
            continue;
        out->algorithm = (enum s3_algorithm)i;
        memcpy(out->text, value, strlen(value) + 1);
        return;
    }
}

bool s3_answer_range(const struct http_answer *answer, int64_t *first, int64_t *all)
{
    const char *text = http_answer_header(answer, "Content-Range");
    int64_t from, last, bytes;
    if (text == NULL ||
        sscanf(text, "bytes %18" SCNd64 "-%18" SCNd64 "/%18" SCNd64, &from, &last, &bytes) != 3)
        return false;
    if (from < 0 || last < from || bytes <= last)
        return false;
    *first = from;
    *all = bytes;
    return true;
}

void s3_etag_of(const char *text, char etag[S3_ETAG_BYTES])
{
    etag[0] = '\0';
    if (text == NULL)
        return;
    text += strspn(text, " \n\"");
    size_t bytes = strcspn(text, "\" \n");
    if (bytes >= S3_ETAG_BYTES)
        return;
    memcpy(etag, text, bytes);
    etag[bytes] = '\0';
}

int64_t s3_time_of(const char *text)
{
    struct tm parts = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);
    int64_t ms = 0;
    if (end == NULL)
        end = strptime(text, "%a, %d %b %Y %H:%M:%S", &parts);
    else if (end[0] == '.')
        for (int i = 1, unit = 100; i <= 3 && end[i] >= '0' && end[i] <= '9'; i++, unit /= 10)
            ms += (end[i] - '0') * unit;
    return end == NULL ? 0 : (int64_t)timegm(&parts) * 1000 + ms;
}

/* --------------------------------------------------------------------------------- side by side */

struct side_by_side {
    enum s3_code (*run)(void *user, int64_t index);
    void *user;
    int64_t count;
    atomic_int_fast64_t next;
    atomic_bool has_failed;
    pthread_mutex_t lock;
    enum s3_code code; /* the first failure */
    char text[BASE_ERROR_TEXT_BYTES];
};

static void *side_run(void *user)
{
    struct side_by_side *side = user;
    for (;;) {
        int64_t index = atomic_fetch_add(&side->next, 1);
        if (index >= side->count || atomic_load(&side->has_failed))
            return NULL;
        enum s3_code code = side->run(side->user, index);
        if (code == S3_OK)
            continue;
        pthread_mutex_lock(&side->lock);
        if (side->code == S3_OK) {
            side->code = code;
            snprintf(side->text, sizeof(side->text), "%s", base_error_text());
        }
        pthread_mutex_unlock(&side->lock);
        atomic_store(&side->has_failed, true);
    }
}

enum s3_code s3_client_side_by_side(const struct s3_client *client, int64_t count,
                                    enum s3_code (*run)(void *user, int64_t index), void *user)
{
    pthread_t threads[S3_CLIENT_PARALLEL_MAX];
    int made = 0;
    struct side_by_side side = {.run = run, .user = user, .count = count};
    pthread_mutex_init(&side.lock, NULL);
    while (made + 1 < client->parallel && made + 1 < count &&
           pthread_create(&threads[made], NULL, side_run, &side) == 0)
        made++; /* fewer threads than wanted do as well */
    side_run(&side);
    for (int i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&side.lock);
    return side.code == S3_OK ? S3_OK : s3_error(side.code, "%s", side.text);
}
