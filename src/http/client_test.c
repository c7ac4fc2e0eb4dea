/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_test.c: the client against our own server, which checks every signature, and against
 * sockets that break, are silent or not there.
 */
#include "http/client.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "http/client_state.h"
#include "http/http.h"
#include "support/fuzz.h"

#define BIG_BYTES (3 << 20)

/* ---- a service: what it does is its path -------------------------------------------------------
 */

static int asked;

static enum shoal_status begin(void *user, struct http_request *request)
{
    (void)user;
    http_body_limit(request, 2 * BIG_BYTES);
    return SHOAL_OK;
}

static enum shoal_status echo(struct http_request *request)
{
    size_t bytes;
    const void *body = http_body(request, &bytes);
    const char *query = http_request_query(request, "q &=");
    TRY(http_reply_header(request, "X-Path", http_request_path(request)));
    TRY(http_reply_header(request, "X-Query", query != NULL ? query : "none"));
    TRY(http_reply_header(request, "X-Key", http_request_key_id(request)));
    TRY(http_reply_header(request, "X-Region", http_request_region(request)));
    return http_reply_bytes(request, 200, NULL, body, bytes);
}

static enum shoal_status complete(void *user, struct http_request *request)
{
    (void)user;
    const char *path = http_request_path(request);
    asked++;
    if (strcmp(path, "/busy") == 0 && asked < 3)
        return http_reply_error(request, 503, "SlowDown", "Please reduce your request rate.");
    if (strcmp(path, "/fails") == 0)
        return http_reply_error(request, 500, "InternalError", "We encountered an error.");
    if (strcmp(path, "/refused") == 0)
        return http_reply_error(request, 404, "NoSuchKey", "It is <not> there & never was.");
    return echo(request);
}

static const struct http_handler handler = {.begin = begin, .complete = complete};
static struct http_server *server;
static struct http_keys *keys;
static struct http_endpoint endpoint;

static int serve(void **state)
{
    static const char text[] = "AKIAEXAMPLE invented-secret\n";
    (void)state;
    struct http_options options = {.host = "127.0.0.1", .limits = HTTP_LIMITS_INIT};
    if (http_keys_parse("keys", text, strlen(text), &keys) != SHOAL_OK)
        return -1;
    options.keys = keys;
    for (int i = 0; i < HTTP_SERVICE_COUNT; i++)
        options.handlers[i] = &handler;
    if (http_server_start(&options, &server) != SHOAL_OK)
        return -1;
    char url[64];
    snprintf(url, sizeof(url), "http://%s", http_server_address(server));
    endpoint.key = *http_keys_first(keys);
    memcpy(endpoint.region, "eu-west-3", 10);
    return http_endpoint_set_url(&endpoint, url, "a test") != SHOAL_OK;
}

static int serve_end(void **state)
{
    (void)state;
    http_server_stop(server);
    http_keys_free(keys);
    return base_memory_blocks() != 0;
}

static struct http_client *client_of(const char *service)
{
    struct http_client *client;
    struct http_client_options options = {.endpoint = &endpoint, .service = service, .attempts = 3};
    assert_int_equal(http_client_create(&options, &client), SHOAL_OK);
    asked = 0;
    return client;
}

static void header_is(const struct http_answer *answer, const char *name, const char *value)
{
    assert_non_null(http_answer_header(answer, name));
    assert_string_equal(http_answer_header(answer, name), value);
}

/* ---- what goes well ----------------------------------------------------------------------------
 */

static void test_what_is_sent_arrives_and_its_signature_is_right(void **state)
{
    (void)state;
    struct http_client *client = client_of("s3");
    static const struct http_pair query[] = {{"q &=", "a/b c+d%25é"}, {"empty", ""}};
    static const struct http_pair headers[] = {
        {"x-amz-meta-a", "  two  blanks "}, {"range", "bytes=0-1"}, {"x-amz-meta-empty", ""}};
    static const char *const methods[] = {"GET", "PUT", "POST", "DELETE"};
    for (int i = 0; i < 40; i++) {
        struct http_answer answer;
        struct http_call call = {.method = methods[i % 4],
                                 .path = "/bucket/a b/../é+%20//~(1)",
                                 .query = query,
                                 .query_count = (size_t)i % 3,
                                 .headers = headers,
                                 .header_count = (size_t)i / 4 % 4};
        call.body = i % 4 == 1 || i % 4 == 2 ? "body" : NULL;
        call.body_bytes = call.body != NULL ? 4 : 0;
        if (http_client_call(client, &call, &answer) != SHOAL_OK)
            fail_msg("%d: %s", i, base_error_text());
        header_is(&answer, "x-path", call.path);
        header_is(&answer, "X-QUERY", i % 3 > 0 ? "a/b c+d%25é" : "none");
        header_is(&answer, "X-Key", "AKIAEXAMPLE");
        header_is(&answer, "X-Region", "eu-west-3");
        assert_string_equal(http_answer_text(&answer), call.body != NULL ? "body" : "");
        http_answer_free(&answer);
    }
    http_client_free(client);
}

static void test_operations_of_json_services(void **state)
{
    (void)state;
    struct http_client *client = client_of("sagemaker");
    struct http_answer answer;
    assert_int_equal(http_client_invoke(client, "SageMaker.ListX", "{\"A\": 1}", true, &answer),
                     SHOAL_OK);
    assert_string_equal(http_answer_text(&answer), "{\"A\": 1}");
    http_answer_free(&answer);
    assert_int_equal(http_client_set_region(client, "us-west-2"), SHOAL_OK);
    assert_int_equal(http_client_invoke(client, "SageMaker.ListX", "{}", true, &answer), SHOAL_OK);
    header_is(&answer, "X-Region", "us-west-2");
    http_answer_free(&answer);
    http_client_free(client);
}

static int big_file(void)
{
    int fd = memfd_create("big", 0);
    char *bytes = malloc(BIG_BYTES);
    for (int i = 0; i < BIG_BYTES; i++)
        bytes[i] = (char)(i * 7 ^ i >> 11);
    assert_int_equal(write(fd, bytes, BIG_BYTES), BIG_BYTES);
    free(bytes);
    return fd;
}

static void test_bodies_go_from_files_to_files(void **state)
{
    (void)state;
    struct http_client *client = client_of("s3");
    struct http_answer answer;
    int from = big_file(), to = memfd_create("to", 0);
    struct http_file_part source = {.fd = from, .bytes = BIG_BYTES};
    struct http_file_part target = {.fd = to, .first = 5, .bytes = BIG_BYTES};
    struct http_upload upload;
    struct http_download download;
    http_file_upload(&source, &upload);
    http_file_download(&target, &download);
    struct http_call call = {
        .method = "PUT", .path = "/busy", .upload = &upload, .download = &download};
    assert_int_equal(http_client_call(client, &call, &answer), SHOAL_OK);
    assert_int_equal(answer.attempts, 3);
    assert_int_equal(target.done, BIG_BYTES);
    char *sent = malloc(BIG_BYTES), *got = malloc(BIG_BYTES);
    assert_int_equal(pread(from, sent, BIG_BYTES, 0), BIG_BYTES);
    assert_int_equal(pread(to, got, BIG_BYTES, 5), BIG_BYTES);
    assert_memory_equal(sent, got, BIG_BYTES);
    free(sent);
    free(got);
    http_answer_free(&answer);
    target = (struct http_file_part){.fd = to, .bytes = BIG_BYTES / 2};
    call.path = "/echo";
    assert_int_equal(http_client_call(client, &call, &answer), SHOAL_ERR_LIMIT);
    call.download = NULL;
    call.answer_bytes_max = BIG_BYTES - 1;
    assert_int_equal(http_client_call(client, &call, &answer), SHOAL_ERR_LIMIT);
    assert_null(answer.body.bytes);
    close(from);
    close(to);
    http_client_free(client);
}

/* ---- what does not ------------------------------------------------------------------------------
 */

static void refused(const char *service, const char *path, const char *method, int status,
                    const char *code, int times)
{
    struct http_client *client = client_of(service);
    struct http_answer answer;
    struct http_call call = {.method = method, .path = path};
    assert_int_equal(http_client_call(client, &call, &answer), SHOAL_ERR_PEER_REFUSED);
    assert_int_equal(answer.status, status);
    assert_string_equal(answer.code, code);
    assert_non_null(strstr(base_error_text(), endpoint.url));
    assert_non_null(strstr(base_error_text(), code));
    assert_int_equal(asked, times);
    http_answer_free(&answer);
    http_client_free(client);
}

static void test_refusals_name_code_and_text(void **state)
{
    (void)state;
    refused("s3", "/refused", "GET", 404, "NoSuchKey", 1);
    assert_non_null(strstr(base_error_text(), "It is <not> there & never was. (HTTP 404)"));
    refused("sagemaker", "/refused", "POST", 404, "NoSuchKey", 1);
    assert_non_null(strstr(base_error_text(), "It is <not> there & never was."));
    refused("s3", "/refused", "HEAD", 404, "", 1);
    refused("s3", "/fails", "POST", 500, "InternalError", 1); /* may have taken effect */
    refused("s3", "/fails", "GET", 500, "InternalError", 3);
    char secret[sizeof(endpoint.key.secret)];
    memcpy(secret, endpoint.key.secret, sizeof(secret));
    endpoint.key.secret[0] ^= 1;
    refused("s3", "/", "GET", 403, "SignatureDoesNotMatch", 0);
    memcpy(endpoint.key.secret, secret, sizeof(secret));
    endpoint.key.id[0] = '\0';
    refused("s3", "/", "GET", 403, "AccessDenied", 0);
    assert_non_null(strstr(base_error_text(), "AWS_ACCESS_KEY_ID"));
    endpoint.key = *http_keys_first(keys);
}

/* A socket that listens; with `breaks` a thread takes each connection, reads some, answers with a
 * text and closes it. */
struct socket_server {
    int fd;
    char url[64];
    const char *answer;
    atomic_int taken;
    pthread_t thread;
};

static void *breaks(void *user)
{
    struct socket_server *own = user;
    char some[4096];
    for (;;) {
        int fd = accept(own->fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        atomic_fetch_add(&own->taken, 1);
        (void)!read(fd, some, sizeof(some));
        (void)!write(fd, own->answer, strlen(own->answer));
        close(fd);
    }
}

static void socket_listen(struct socket_server *own)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    own->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(own->fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(own->fd, 5), 0);
    assert_int_equal(getsockname(own->fd, (struct sockaddr *)&address, &length), 0);
    snprintf(own->url, sizeof(own->url), "http://127.0.0.1:%d", ntohs(address.sin_port));
}

static enum shoal_status sent_to(const char *url, const struct http_call *call, int attempts,
                                 const atomic_bool *is_cancelled)
{
    struct http_endpoint other = endpoint;
    struct http_client *client;
    struct http_answer answer;
    struct http_client_options options = {
        .endpoint = &other, .service = "s3", .attempts = attempts, .is_cancelled = is_cancelled};
    assert_int_equal(http_endpoint_set_url(&other, url, "another test"), SHOAL_OK);
    assert_int_equal(http_client_create(&options, &client), SHOAL_OK);
    enum shoal_status status = http_client_call(client, call, &answer);
    http_answer_free(&answer);
    http_client_free(client);
    return status;
}

static void test_connections_that_break(void **state)
{
    (void)state;
    static const char *const answers[] = {"", "HTTP/1.1 200 OK\r\n",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive",
                                          "nothing of the kind\r\n\r\n"};
    struct socket_server own = {.answer = answers[0]};
    const struct http_call get = {.method = "GET", .path = "/"};
    const struct http_call post = {.method = "POST", .path = "/"};
    socket_listen(&own);
    assert_int_equal(pthread_create(&own.thread, NULL, breaks, &own), 0);
    for (int i = 0; i < 4; i++) {
        own.answer = answers[i];
        atomic_store(&own.taken, 0);
        assert_int_equal(sent_to(own.url, &get, 2, NULL), SHOAL_ERR_PEER_LOST);
        assert_int_equal(atomic_load(&own.taken), 2);
        assert_non_null(strstr(base_error_text(), own.url));
    }
    atomic_store(&own.taken, 0);
    assert_int_equal(sent_to(own.url, &post, 2, NULL), SHOAL_ERR_PEER_LOST);
    assert_int_equal(atomic_load(&own.taken), 1);
    shutdown(own.fd, SHUT_RDWR);
    pthread_join(own.thread, NULL);
    close(own.fd);
    assert_int_equal(sent_to(own.url, &post, 2, NULL), SHOAL_ERR_PEER_UNREACHABLE);
    assert_non_null(strstr(base_error_text(), "another test"));
}

static void test_silence_ends_by_the_deadline_and_by_a_cancel(void **state)
{
    (void)state;
    struct socket_server own = {0};
    struct http_call call = {.method = "GET", .path = "/", .timeout_ms = 100};
    atomic_bool is_cancelled = false;
    socket_listen(&own); /* connections are made, and nobody takes them */
    int64_t begun = base_now_ns();
    assert_int_equal(sent_to(own.url, &call, 0, &is_cancelled), SHOAL_ERR_TIMEOUT);
    assert_true(base_now_ns() - begun < 30 * BASE_NS_PER_S);
    atomic_store(&is_cancelled, true);
    call.timeout_ms = 0;
    assert_int_equal(sent_to(own.url, &call, 0, &is_cancelled), SHOAL_ERR_ABORTED);
    close(own.fd);
}

/* ---- errors' bodies -----------------------------------------------------------------------------
 */

static void explained(const char *body, size_t bytes, const char *code, const char *text)
{
    struct http_answer answer = {.status = 400};
    http_text_add(&answer.body, body, bytes);
    http_answer_explain(&answer);
    if (code != NULL) {
        assert_string_equal(answer.code, code);
        assert_string_equal(answer.text, text);
    }
    assert_true(strlen(answer.code) < sizeof(answer.code));
    assert_null(strpbrk(answer.text, "\r\n\x1b"));
    json_t *same = json_string(answer.text); /* refuses what is not UTF-8 */
    assert_non_null(same);
    json_decref(same);
    http_answer_free(&answer);
}

static const char *const bodies[] = {
    "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code><Message>a &amp;\n b</Message></Error>",
    ("<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no</Message>"
     "</Error></ErrorResponse>"),
    "{\"__type\": \"com.amazonaws.x#ValidationException:http://a/\", \"message\": \"a\\u001bb\"}",
    "{\"__type\": \"ResourceNotFound\", \"Message\": \"gone\"}",
    "<!DOCTYPE a [<!ENTITY b \"c\">]><Error><Code>&b;</Code></Error>",
    "<html><body>502 Bad Gateway</body></html>",
    "plain text",
    ""};

static void take_any_error(void *user, char *text, size_t count, uint64_t round)
{
    (void)user;
    (void)round;
    explained(text, count, NULL, NULL);
}

/* Long ones end behind a whole character, wherever the limit is. */
static void test_long_texts_of_errors(void **state)
{
    (void)state;
    for (int before = 0; before < 4; before++) {
        char body[4096];
        int used = snprintf(body, sizeof(body), "{\"message\": \"%.*s", before, "aaaa");
        for (int i = 0; i < 400; i++)
            used += snprintf(body + used, sizeof(body) - (size_t)used, "%s",
                             i % 2 == 0 ? "\xF0\x9F\x90\x9F" : "\xE2\x82\xAC");
        used += snprintf(body + used, sizeof(body) - (size_t)used, "\"}");
        explained(body, (size_t)used, NULL, NULL);
    }
}

static void test_bodies_of_errors(void **state)
{
    struct fuzz_text texts_of_bodies[8];
    (void)state;
    static const char *const codes[] = {
        "NoSuchKey", "AccessDenied", "ValidationException", "ResourceNotFound", "", "", "", ""};
    static const char *const texts[] = {"a & b", "no", "a b", "gone", "", "", "", ""};
    for (int i = 0; i < 8; i++)
        explained(bodies[i], strlen(bodies[i]), codes[i], texts[i]);
    for (size_t i = 0; i < 8; i++)
        texts_of_bodies[i] = (struct fuzz_text){bodies[i], strlen(bodies[i])};
    static const char *const words[] = {"<Code>", "</Code>",    "<Message>", "\"__type\": \"",
                                        "#",      "&#x10ffff;", "&#xe9;",    "\\ud83d\\udc1f",
                                        NULL};
    struct fuzz fuzz = FUZZ(texts_of_bodies, words, 5000);
    fuzz_run(&fuzz, take_any_error, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_sent_arrives_and_its_signature_is_right),
        cmocka_unit_test(test_operations_of_json_services),
        cmocka_unit_test(test_bodies_go_from_files_to_files),
        cmocka_unit_test(test_refusals_name_code_and_text),
        cmocka_unit_test(test_connections_that_break),
        cmocka_unit_test(test_silence_ends_by_the_deadline_and_by_a_cancel),
        cmocka_unit_test(test_long_texts_of_errors),
        cmocka_unit_test(test_bodies_of_errors),
    };
    return cmocka_run_group_tests(tests, serve, serve_end);
}
