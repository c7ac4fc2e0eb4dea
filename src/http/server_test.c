/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_test.c: the server over real sockets: bodies both ways, suspension, files, sources,
 * limits, signatures, and what it says to requests that are wrong.
 */
#include "http/http.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "http/keys.h"
#include "http/pairs.h"
#include "http/signature.h"
#include "support/client.h"
#include "support/fuzz.h"

#define WAIT_MS 30000
#define SLOW_MS 300 /* longer than the server of its test takes to stop */

/* ---- a service for the tests: what it does is its path ----------------------------------------
 */

struct work {
    int64_t sum;
    bool has_waited;
    int parts;
    struct http_request *request;
    bool is_late;
};

static int ended, begun, held_pieces;
static bool gate_is_open;         /* for /gate: pieces wait for it */
static struct http_request *kept; /* /keep: who resumes it is the test */

static void *resume_later(void *user)
{
    struct work *work = user;
    if (work->is_late)
        base_sleep_ms(20);
    http_request_resume(work->request);
    return NULL;
}

static void *wake_later(void *user)
{
    base_sleep_ms(10);
    http_source_wake(user);
    return NULL;
}

static void in_thread(void *(*run)(void *), void *user)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, user), 0);
    pthread_detach(thread);
}

static enum shoal_status begin(void *user, struct http_request *request)
{
    struct work *work;
    (void)user;
    TRY(BASE_NEW(&work, "a test's work"));
    work->request = request;
    http_request_attach(request, work);
    __atomic_add_fetch(&begun, 1, __ATOMIC_RELEASE);
    const char *path = http_request_path(request);
    if (strcmp(path, "/stream") == 0 || strcmp(path, "/full") == 0 || strcmp(path, "/gate") == 0)
        http_body_stream(request);
    if (strcmp(path, "/small") == 0)
        http_body_limit(request, 10);
    if (strcmp(path, "/refused") == 0)
        return http_reply_error(request, 404, "NoSuchBucket", "The bucket %s is <not> there", "b");
    return SHOAL_OK;
}

static void gate_pass(void)
{
    __atomic_add_fetch(&held_pieces, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&gate_is_open, __ATOMIC_ACQUIRE))
        base_sleep_ms(1);
}

static enum shoal_status piece(void *user, struct http_request *request, const void *data,
                               size_t bytes)
{
    struct work *work = http_request_attachment(request);
    (void)user;
    if (strcmp(http_request_path(request), "/full") == 0)
        return base_error(SHOAL_ERR_SYSTEM, "no space left");
    if (strcmp(http_request_path(request), "/gate") == 0)
        gate_pass();
    for (size_t i = 0; i < bytes; i++)
        work->sum += ((const unsigned char *)data)[i];
    return SHOAL_OK;
}

static enum shoal_status echo(struct http_request *request)
{
    size_t bytes;
    const void *body = http_body(request, &bytes);
    const char *query = http_request_query(request, "q");
    TRY(http_reply_header_format(request, "X-Query", "%s", query != NULL ? query : "none"));
    TRY(http_reply_header(request, "X-Method", http_request_method(request)));
    return http_reply_bytes(request, 200, "text/plain", body, bytes);
}

static enum shoal_status source_read(void *user, void *out, size_t capacity, size_t *bytes)
{
    struct work *work = user;
    (void)capacity;
    if (!work->has_waited) {
        work->has_waited = true;
        in_thread(wake_later, work->request);
        return SHOAL_IN_PROGRESS;
    }
    work->has_waited = false;
    *bytes = work->parts++ < 3 ? 4 : 0;
    memcpy(out, "part", *bytes);
    return SHOAL_OK;
}

static enum shoal_status file_reply(struct http_request *request)
{
    int fd = memfd_create("reply", MFD_CLOEXEC);
    assert_int_equal(write(fd, "0123456789", 10), 10);
    return http_reply_file(request, 206, fd, 3, 4);
}

static enum shoal_status complete(void *user, struct http_request *request)
{
    struct work *work = http_request_attachment(request);
    const char *path = http_request_path(request);
    (void)user;
    if (strcmp(path, "/stream") == 0) {
        char text[32];
        snprintf(text, sizeof(text), "%lld", (long long)work->sum);
        return http_reply_bytes(request, 200, NULL, text, strlen(text));
    }
    if (strcmp(path, "/file") == 0)
        return file_reply(request);
    if (strcmp(path, "/source") == 0) {
        struct http_source source = {.read = source_read, .user = work};
        return http_reply_source(request, 200, -1, &source);
    }
    if (strcmp(path, "/nothing") == 0)
        return SHOAL_OK;
    if (strcmp(path, "/who") == 0)
        return http_reply_bytes(request, 200, NULL, http_request_key_name(request),
                                strlen(http_request_key_name(request)));
    if (strcmp(path, "/later") == 0 || strcmp(path, "/at-once") == 0) {
        work->is_late = strcmp(path, "/later") == 0;
        http_request_suspend(request);
        if (work->is_late)
            in_thread(resume_later, work);
        else
            http_request_resume(request);
        return SHOAL_OK;
    }
    if (strcmp(path, "/keep") == 0 || strcmp(path, "/slow-keep") == 0) {
        if (path[1] == 's')
            base_sleep_ms(SLOW_MS);
        http_request_suspend(request);
        __atomic_store_n(&kept, request, __ATOMIC_RELEASE);
        return SHOAL_OK;
    }
    return echo(request);
}

static enum shoal_status resumed(void *user, struct http_request *request)
{
    struct work *work = http_request_attachment(request);
    (void)user;
    if (work->parts++ < 2) { /* twice, and then the reply */
        http_request_suspend(request);
        in_thread(resume_later, work);
        return SHOAL_OK;
    }
    return echo(request);
}

static void end(void *user, struct http_request *request)
{
    (void)user;
    base_free(http_request_attachment(request));
    __atomic_add_fetch(&ended, 1, __ATOMIC_RELAXED);
}

static const struct http_handler handler = {
    .begin = begin, .piece = piece, .complete = complete, .resumed = resumed, .end = end};

/* ---- a client that sends bytes ----------------------------------------------------------------
 */

static struct http_server *server;
static const char *reply; /* to the last of ask() */

static struct http_server *start(const struct http_options *options)
{
    struct http_server *out;
    assert_int_equal(http_server_start(options, &out), SHOAL_OK);
    return out;
}

static struct http_options options_of(void)
{
    struct http_options options = {.host = "127.0.0.1", .limits = HTTP_LIMITS_INIT};
    options.handlers[HTTP_S3] = &handler;
    options.limits.threads = 2;
    return options;
}

static int dial(const struct http_server *to)
{
    return client_dial(http_server_port(to));
}

static const char *ask_of(const struct http_server *to, const char *request)
{
    int fd = dial(to);
    client_put(fd, request, strlen(request));
    return reply = client_read_all(fd);
}

/* A whole request, and the whole reply. */
static const char *ask(const char *method, const char *target, const char *headers,
                       const char *body)
{
    static char request[CLIENT_REPLY_BYTES];
    snprintf(request, sizeof(request),
             "%s %s HTTP/1.1\r\nHost: test\r\nConnection: close\r\n%s\r\n%s", method, target,
             headers, body);
    return ask_of(server, request);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void heads_are_decoded(void **state)
{
    (void)state;
    expect_in(ask("GET", "/a%20b/%2e?q=x%2By+z&r", "", ""), "HTTP/1.1 200");
    expect_in(reply, "X-Query: x+y z\r\n");
    expect_in(reply, "X-Method: GET\r\n");
    expect_in(reply, "x-amz-request-id: ");
    expect_in(ask("GET", "http://test/?q=1", "", ""), "X-Query: 1\r\n");
    expect_in(ask("GET", "/%zz", "", ""), "<Code>InvalidURI</Code>");
    expect_in(ask("GET", "/a%00b", "", ""), "<Code>InvalidURI</Code>");
    expect_in(ask("GET", "/?a=%0", "", ""), "<Code>InvalidURI</Code>");
    expect_in(ask("HEAD", "/", "", ""), "X-Method: HEAD\r\n");
}

static void bodies_come_collected_and_streamed(void **state)
{
    (void)state;
    expect_in(ask("PUT", "/", "Content-Length: 5\r\n", "hello"), "\r\n\r\nhello");
    expect_in(ask("PUT", "/", "Transfer-Encoding: chunked\r\n", "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"),
              "\r\n\r\nhello");
    expect_in(ask("PUT", "/stream", "Content-Length: 5\r\n", "hello"), "\r\n\r\n532");
    expect_in(ask("PUT", "/small", "Content-Length: 10\r\n", "0123456789"), "\r\n\r\n0123456789");
    expect_in(ask("PUT", "/small", "Content-Length: 11\r\n", "0123456789a"),
              "<Code>EntityTooLarge</Code>");
    expect_in(ask("PUT", "/full", "Content-Length: 5\r\n", "hello"), "<Code>InternalError</Code>");
    expect_in(reply, "no space left");
    expect_in(ask("PUT", "/", "Content-Length: 5, 6\r\n", "hello"), "400");
    static char large[CLIENT_REPLY_BYTES / 2];
    memset(large, '1', sizeof(large) - 1);
    char length[64];
    snprintf(length, sizeof(length), "Content-Length: %zu\r\n", sizeof(large) - 1);
    expect_in(ask("PUT", "/", length, large), "111111");
    assert_string_equal(strstr(reply, "\r\n\r\n") + 4, large);
}

#define CHUNKED "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n"

static void aws_chunks_are_decoded(void **state)
{
    (void)state;
    static const char body[] = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
    char headers[256];
    snprintf(headers, sizeof(headers),
             CHUNKED "x-amz-decoded-content-length: 5\r\nContent-Length: %zu\r\n",
             sizeof(body) - 1);
    expect_in(ask("PUT", "/", headers, body), "\r\n\r\nhello");
    snprintf(headers, sizeof(headers),
             CHUNKED "x-amz-decoded-content-length: 4\r\nContent-Length: %zu\r\n",
             sizeof(body) - 1);
    expect_in(ask("PUT", "/", headers, body), "more data than x-amz-decoded-content-length");
    snprintf(headers, sizeof(headers), CHUNKED "Content-Length: %zu\r\n", sizeof(body) - 3);
    expect_in(ask("PUT", "/", headers, body), "it ends too early");
    static const char digest[] =
        "x-amz-content-sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\r\n"
        "Content-Length: 5\r\n";
    expect_in(ask("PUT", "/", digest, "hello"), "\r\n\r\nhello");
    expect_in(ask("PUT", "/", digest, "jello"), "<Code>XAmzContentSHA256Mismatch</Code>");
    expect_in(ask("PUT", "/", "x-amz-content-sha256: what\r\n", ""),
              "<Code>InvalidArgument</Code>");
}

static void replies_of_every_kind(void **state)
{
    (void)state;
    expect_in(ask("GET", "/file", "", ""), "HTTP/1.1 206");
    expect_in(reply, "\r\n\r\n3456");
    expect_in(ask("GET", "/source", "", ""), "4\r\npart\r\n4\r\npart\r\n4\r\npart\r\n0\r\n");
    expect_in(ask("GET", "/later?q=1", "", ""), "X-Query: 1\r\n");
    expect_in(ask("PUT", "/at-once", "Content-Length: 2\r\n", "ok"), "\r\n\r\nok");
    expect_in(ask("GET", "/nothing", "", ""), "the handler gave no reply");
    expect_in(ask("GET", "/refused", "", ""), "HTTP/1.1 404");
    expect_in(reply, "The bucket b is &lt;not&gt; there");
    expect_in(ask("PUT", "/refused", "Content-Length: 5\r\nExpect: 100-continue\r\n", ""),
              "HTTP/1.1 404");
    expect_in(ask("PUT", "/", "Content-Length: 5\r\nExpect: 100-continue\r\n", "hello"),
              "HTTP/1.1 100 Continue");
}

static void connections_stay(void **state)
{
    (void)state;
    expect_in(ask_of(server, "GET /?q=1 HTTP/1.1\r\nHost: t\r\n\r\n"
                             "PUT /refused HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nxx"
                             "GET /?q=2 HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"),
              "X-Query: 1\r\n");
    expect_in(reply, "NoSuchBucket");
    expect_in(reply, "X-Query: 2\r\n");
}

static void unknown_operations_are_named(void **state)
{
    (void)state;
    expect_in(ask("POST", "/", "X-Amz-Target: SageMaker.CreateApp\r\nContent-Length: 2\r\n", "{}"),
              "{\"__type\":\"UnknownOperationException\",\"message\":\"shoal's sagemaker does not "
              "have the operation 'CreateApp'\"}");
    expect_in(reply, "x-amzn-RequestId: ");
    expect_in(ask("POST", "/", "X-Amz-Target: Logs_20140328.CreateLogGroup\r\n", ""),
              "'CreateLogGroup'");
    expect_in(ask("POST", "/endpoints/e/invocations", "Content-Length: 2\r\n", "{}"),
              "x-amzn-errortype: UnknownOperationException");
    expect_in(ask("POST", "/", "Content-Type: application/x-www-form-urlencoded\r\n", ""),
              "<Code>InvalidAction</Code>");
}

static void large_heads_are_refused(void **state)
{
    (void)state;
    static char header[200000];
    memset(header, 'x', sizeof(header));
    memcpy(header, "X-Large: ", 9);
    memcpy(header + sizeof(header) - 3, "\r\n", 3);
    expect_in(ask("GET", "/", header, ""), "HTTP/1.1 4");
    header[70000] = '\0';
    memcpy(header + 69998, "\r\n", 3);
    expect_in(ask("GET", "/", header, ""), "RequestHeaderSectionTooLarge");
    size_t used = 0;
    for (int i = 0; i < 120; i++)
        used += (size_t)snprintf(header + used, sizeof(header) - used, "X-%d: y\r\n", i);
    expect_in(ask("GET", "/", header, ""), "RequestHeaderSectionTooLarge");
}

/* ---- signatures -------------------------------------------------------------------------------
 */

static const char keys_text[] = "INVENTED invented-secret tester\n";

/* A request that is signed, with one header more behind the signature. */
static const char *ask_signed(const struct http_server *to, const char *target, int64_t time_s,
                              const char *payload, const char *more, const char *body)
{
    static char request[8192];
    char authorization[1024], date[HTTP_SIGNATURE_TIME_BYTES], path[256];
    struct http_key key = {.id = "INVENTED", .secret = "invented-secret"};
    struct http_pair headers[] = {
        {"host", "test"}, {"x-amz-date", date}, {"x-amz-content-sha256", payload}};
    struct http_pairs query = {0}, pairs = {headers, 3, NULL};
    snprintf(path, sizeof(path), "%.*s", (int)strcspn(target, "?"), target);
    http_signature_time(time_s, date);
    if (strchr(target, '?') != NULL)
        assert_int_equal(
            http_pairs_parse(strchr(target, '?') + 1, strlen(strchr(target, '?') + 1), 20, &query),
            SHOAL_OK);
    struct http_message message = {"PUT", path, &query, &pairs};
    struct http_signing signing = {&key, "us-east-1", "s3", time_s, payload};
    assert_int_equal(http_signature_sign(&message, &signing, authorization, sizeof(authorization)),
                     SHOAL_OK);
    http_pairs_free(&query);
    snprintf(request, sizeof(request),
             "PUT %s HTTP/1.1\r\nHost: test\r\nConnection: close\r\nX-Amz-Date: %s\r\n"
             "x-amz-content-sha256: %s\r\nAuthorization: %s\r\nContent-Length: %zu\r\n%s\r\n%s",
             target, date, payload, authorization, strlen(body), more, body);
    return ask_of(to, request);
}

static void signatures_are_checked(void **state)
{
    (void)state;
    struct http_options options = options_of();
    struct http_keys *keys;
    assert_int_equal(http_keys_parse("k", keys_text, sizeof(keys_text) - 1, &keys), SHOAL_OK);
    options.keys = keys;
    struct http_server *closed = start(&options);
    int64_t now = (int64_t)time(NULL);
    static const char any[] = "UNSIGNED-PAYLOAD";
    expect_in(ask_signed(closed, "/who", now, any, "", "x"), "\r\n\r\ntester");
    expect_in(ask_signed(closed, "/a%20b?q=%2F", now, any, "", "x"), "X-Query: /\r\n");
    expect_in(ask_signed(closed, "/who", now - 1000, any, "", "x"), "<Code>RequestTimeTooSkewed<");
    expect_in(ask_signed(closed, "/who", now, any, "x-amz-copy-source: /b/k\r\n", "x"),
              "headers present in the request which were not signed");
    expect_in(ask_signed(closed, "/who", now, HTTP_DIGEST_EMPTY, "", "x"),
              "<Code>XAmzContentSHA256Mismatch<");
    expect_in(ask_of(closed, "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"),
              "<Code>AccessDenied<");
    expect_in(ask_of(closed, "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"
                             "Authorization: AWS4-HMAC-SHA256 nothing\r\n\r\n"),
              "<Code>AuthorizationHeaderMalformed<");
    expect_in(ask_of(closed,
                     "POST / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"
                     "X-Amz-Target: SageMaker.ListTrainingJobs\r\nContent-Length: 0\r\n\r\n"),
              "MissingAuthenticationTokenException");
    http_server_stop(closed);
    http_keys_free(keys);
}

/* ---- limits and the end -----------------------------------------------------------------------
 */

static void slow_clients_are_cut_off(void **state)
{
    (void)state;
    struct http_options options = options_of();
    options.limits.head_ms = 300;
    options.limits.body_grace_ms = 300;
    options.limits.body_bytes_per_s = 1000;
    struct http_server *strict = start(&options);
    int head = dial(strict), body = dial(strict);
    client_put(head, "GET / HTT", 9);
    static const char start_of_body[] = "PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n";
    client_put(body, start_of_body, sizeof(start_of_body) - 1);
    int64_t begin_ns = base_now_ns();
    for (int i = 0; i < 30; i++) {
        client_put(head, "x", 1);
        client_put(body, "x", 1);
        base_sleep_ms(50);
    }
    assert_string_equal(client_read_all(head), "");
    assert_string_equal(client_read_all(body), "");
    assert_true(base_now_ns() - begin_ns < 20 * BASE_NS_PER_S);
    http_server_stop(strict);
}

static void wait_for(const int *count, int least)
{
    int64_t deadline_ns = base_deadline_ns(WAIT_MS);
    while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < least && base_left_ms(deadline_ns) > 0)
        base_sleep_ms(1);
    assert_true(__atomic_load_n(count, __ATOMIC_ACQUIRE) >= least);
}

/* What a client sends and its end are seen at once where the server was busy before. */
static void a_request_ends_with_its_client(const char *head)
{
    struct http_options options = options_of();
    options.limits.idle_s = 10 * WAIT_MS / 1000;
    struct http_server *busy = start(&options);
    int before = __atomic_load_n(&ended, __ATOMIC_ACQUIRE), fd = dial(busy);
    __atomic_store_n(&gate_is_open, false, __ATOMIC_RELEASE);
    __atomic_store_n(&held_pieces, 0, __ATOMIC_RELEASE);
    client_put(fd, head, strlen(head));
    wait_for(&held_pieces, 1);
    client_put(fd, "3\r\nabc\r\n", 8);
    close(fd);
    __atomic_store_n(&gate_is_open, true, __ATOMIC_RELEASE);
    wait_for(&ended, before + 1);
    http_server_stop(busy);
}

static void requests_end_with_their_clients(void **state)
{
    (void)state;
    a_request_ends_with_its_client(
        "PUT /gate HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\nthe first of it");
    a_request_ends_with_its_client(
        "PUT /gate HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
}

/* A client that has sent all may say so, and is answered. */
static void who_only_ends_sending_is_answered(void **state)
{
    (void)state;
    int fd = dial(server);
    static const char request[] = "PUT /later HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nok";
    client_put(fd, request, sizeof(request) - 1);
    shutdown(fd, SHUT_WR);
    expect_in(client_read_all(fd), "\r\n\r\nok");
}

/* Announced or not: what is too long is not taken, streamed or collected. */
static void long_bodies_are_refused(void **state)
{
    (void)state;
    struct http_options options = options_of();
    options.limits.body_bytes = 10;
    struct http_server *strict = start(&options);
    static const char *const requests[] = {
        "PUT / HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 11\r\n\r\n0123456789a",
        "PUT /stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\nExpect: 100-continue\r\n"
        "Content-Length: 99999999999999999\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        "8\r\n01234567\r\n8\r\n01234567\r\n0\r\n\r\n",
        "PUT /stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        "b\r\n0123456789a\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        expect_in(ask_of(strict, requests[i]), "<Code>EntityTooLarge</Code>");
    expect_in(ask_of(strict, "PUT / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"
                             "Content-Length: 10\r\n\r\n0123456789"),
              "\r\n\r\n0123456789");
    http_server_stop(strict);
}

/* Sends a request that is kept suspended, and stops its server. */
static struct http_request *stop_with(const char *request, int64_t stop_ms)
{
    struct http_options options = options_of();
    options.limits.stop_ms = stop_ms;
    struct http_server *short_lived = start(&options);
    int fd = dial(short_lived);
    client_put(fd, request, strlen(request));
    while (__atomic_load_n(&begun, __ATOMIC_ACQUIRE) == 0)
        base_sleep_ms(1);
    http_server_stop(short_lived);
    close(fd);
    return __atomic_load_n(&kept, __ATOMIC_ACQUIRE);
}

/* What a suspended request waits for may come after the server is gone: until then nothing of the
 * request goes. */
static void a_stop_leaves_what_is_held(const char *request, int64_t stop_ms)
{
    __atomic_store_n(&begun, 0, __ATOMIC_RELEASE);
    int ended_before = ended;
    struct http_request *held = stop_with(request, stop_ms);
    assert_non_null(held);
    assert_int_equal(ended, ended_before);
    struct work *work = http_request_attachment(held);
    work->sum = 1;
    http_request_resume(held);
    assert_int_equal(ended, ended_before + 1);
}

static void a_stop_answers_who_waits(void **state)
{
    (void)state;
    a_stop_leaves_what_is_held("GET /keep HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", 100);
}

/* The next reply on a connection that stays, as far as its first bytes tell. */
static bool answers(int fd)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    char text[2048];
    client_put(fd, request, sizeof(request) - 1);
    return recv(fd, text, sizeof(text), 0) > 12 && memcmp(text, "HTTP/1.1 200", 12) == 0;
}

static void the_idlest_makes_room(void **state)
{
    (void)state;
    struct http_options options = options_of();
    options.limits.connections = 4;
    struct http_server *small = start(&options);
    int fds[8];
    for (int i = 0; i < 8; i++) {
        fds[i] = dial(small);
        assert_true(answers(fds[i]));
        base_sleep_ms(2); /* so that the order of their ends can be told */
    }
    assert_false(answers(fds[0]));
    assert_true(answers(fds[7]));
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    http_server_stop(small);
}

static void a_stop_ends_who_waits_too_late(void **state)
{
    (void)state;
    a_stop_leaves_what_is_held("GET /slow-keep HTTP/1.1\r\nHost: t\r\n\r\n", SLOW_MS / 6);
}

static void addresses_that_are_taken_are_named(void **state)
{
    (void)state;
    struct http_options options = options_of();
    options.port = http_server_port(server);
    struct http_server *second;
    assert_int_equal(http_server_start(&options, &second), SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "cannot listen on 127.0.0.1:"));
    options.host = "no.such.host.invalid";
    assert_int_equal(http_server_start(&options, &second), SHOAL_ERR_SYSTEM);
}

/* Some answer or none. One that is whole is followed by another, whose reply ends the connection;
 * for the reply to one that is not whole nobody waits long. */
static void send_any(void *user, char *text, size_t count, uint64_t round)
{
    static const char last[] = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    struct timeval patience = {.tv_usec = 20000};
    int fd = dial(server);
    (void)user;
    (void)round;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    client_put(fd, text, count);
    client_put(fd, last, sizeof(last) - 1);
    client_read_all(fd);
}

/* Requests with random changes: the server goes on. */
static void the_server_survives_anything(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT(
            "PUT /a%20b?q=x&r HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 5\r\n"
            "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\nAuthorization: "
            "AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/aws4_request\r\n\r\n"
            "5\r\nhello\r\n0\r\n\r\n"),
        FUZZ_TEXT(
            "POST / HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
            "d\r\nAction=GetRole\r\n0\r\n\r\n")};
    static const char *const words[] = {"\r\n",
                                        "\r\n\r\n",
                                        "Content-Length: ",
                                        "Transfer-Encoding: chunked\r\n",
                                        "HTTP/1.1",
                                        "GET ",
                                        "Expect: 100-continue\r\n",
                                        "X-Amz-Target: SageMaker.X\r\n",
                                        "/",
                                        "%2e",
                                        NULL};
    struct fuzz fuzz = FUZZ(texts, words, 200, .bytes_max = 100000);
    fuzz_run(&fuzz, send_any, NULL);
    expect_in(ask("GET", "/?q=1", "", ""), "X-Query: 1\r\n");
}

static int all_start(void **state)
{
    (void)state;
    struct http_options options = options_of();
    options.limits.stop_ms = 300; /* for the halves of requests that the last test leaves */
    server = start(&options);
    return 0;
}

static int all_end(void **state)
{
    (void)state;
    http_server_stop(server);
    assert_true(ended > 0);
    assert_int_equal(base_memory_blocks(), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_decoded),
        cmocka_unit_test(bodies_come_collected_and_streamed),
        cmocka_unit_test(aws_chunks_are_decoded),
        cmocka_unit_test(replies_of_every_kind),
        cmocka_unit_test(connections_stay),
        cmocka_unit_test(unknown_operations_are_named),
        cmocka_unit_test(large_heads_are_refused),
        cmocka_unit_test(signatures_are_checked),
        cmocka_unit_test(slow_clients_are_cut_off),
        cmocka_unit_test(requests_end_with_their_clients),
        cmocka_unit_test(who_only_ends_sending_is_answered),
        cmocka_unit_test(long_bodies_are_refused),
        cmocka_unit_test(a_stop_answers_who_waits),
        cmocka_unit_test(a_stop_ends_who_waits_too_late),
        cmocka_unit_test(the_idlest_makes_room),
        cmocka_unit_test(addresses_that_are_taken_are_named),
        cmocka_unit_test(the_server_survives_anything),
    };
    return cmocka_run_group_tests(tests, all_start, all_end);
}
