/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protocol_test.c: requests as bytes on a socket, and their replies; and, called with `serve
 * DIRECTORY [KEYS]`, a server for clients of other languages, which prints its address and ends
 * with its input.
 */
#include "s3/protocol.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>

#include <cmocka.h>
#include <expat.h>

#include "http/keys.h"
#include "s3/store_fixture.h"
#include "support/fuzz.h"

#define REPLY_BYTES 16384

struct served {
    struct fixture *fixture;
    struct s3_protocol protocol;
    struct http_server *server;
};

static enum shoal_status serve(struct served *served, const struct http_keys *keys)
{
    struct http_options options = {.host = "127.0.0.1", .keys = keys, .limits = HTTP_LIMITS_INIT};
    options.handlers[HTTP_S3] = s3_protocol_handler();
    options.users[HTTP_S3] = &served->protocol;
    return http_server_start(&options, &served->server);
}

static int setup(void **state)
{
    struct served *served = calloc(1, sizeof(*served));
    fixture_setup((void **)&served->fixture);
    served->protocol.store = served->fixture->store;
    *state = served;
    return serve(served, NULL) == SHOAL_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct served *served = *state;
    http_server_stop(served->server);
    fixture_teardown((void **)&served->fixture);
    free(served);
    return 0;
}

static int dial(const struct served *served)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)http_server_port(served->server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* All that comes until the end, ended by a NUL. Closes. */
static char *hear(int fd)
{
    static char reply[REPLY_BYTES];
    size_t used = 0;
    for (ssize_t got; (got = read(fd, reply + used, sizeof(reply) - 1 - used)) > 0;)
        used += (size_t)got;
    reply[used] = '\0';
    close(fd);
    return reply;
}

/* Sends a request on a connection of its own; the whole reply. */
static const char *ask(const struct served *served, const char *method, const char *target,
                       const char *headers, const char *body)
{
    int fd = dial(served);
    bool has_host = strstr(headers, "Host:") != NULL;
    dprintf(fd, "%s %s HTTP/1.1\r\n%sConnection: close\r\n%sContent-Length: %zu\r\n\r\n%s", method,
            target, has_host ? "" : "Host: 127.0.0.1\r\n", headers, strlen(body), body);
    return hear(fd);
}

static void has(const char *reply, const char *text)
{
    if (strstr(reply, text) == NULL)
        fail_msg("no \"%s\" in: %s", text, reply);
}

static void errors_are_documents(void **state)
{
    struct served *served = *state;
    const char *reply = ask(served, "GET", "/nosuch/key", "", "");
    has(reply, "HTTP/1.1 404 ");
    has(reply, "<Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message>");
    has(reply, "<BucketName>nosuch</BucketName>");
    has(reply, "<RequestId>");
    has(ask(served, "PUT", "/bkt", "", ""), "HTTP/1.1 200 ");
    reply = ask(served, "PUT", "/bkt", "", "");
    has(reply, "HTTP/1.1 409 ");
    has(reply, "<Code>BucketAlreadyOwnedByYou</Code>");
    reply = ask(served, "GET", "/bkt/key%26", "", "");
    has(reply, "<Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>");
    has(reply, "<Key>key&amp;</Key>");
    has(ask(served, "PUT", "/B_d", "", ""), "<Code>InvalidBucketName</Code>");
    reply = ask(served, "GET", "/bkt?policy", "", "");
    has(reply, "HTTP/1.1 501 ");
    has(reply, "The operation GetBucketPolicy is not implemented here.");
    has(ask(served, "PUT", "/bkt/k?acl", "", ""), "PutObjectAcl");
    has(ask(served, "GET", "/bkt/k?acl", "", ""), "<Code>NoSuchKey</Code>");
    has(ask(served, "GET", "/none?versions", "", ""), "<Code>NoSuchBucket</Code>");
    has(ask(served, "GET", "/bkt/k?attributes", "", ""), "<Code>InvalidRequest</Code>");
    has(ask(served, "GET", "/bkt/k?attributes", "x-amz-object-attributes: ETag, Size\r\n", ""),
        "<Code>InvalidArgument</Code>");
    has(ask(served, "GET", "/bkt/k?attributes", "x-amz-object-attributes: ETag\r\n", ""),
        "<Code>NoSuchKey</Code>");
    has(ask(served, "PATCH", "/bkt", "", ""), "<Code>MethodNotAllowed</Code>");
    has(ask(served, "POST", "/bkt?delete", "", "<Delete>"), "<Code>MalformedXML</Code>");
    has(ask(served, "PUT", "/bkt/k", "Content-MD5: AAAAAAAAAAAAAAAAAAAAAA==\r\n", "x"),
        "<Code>BadDigest</Code>");
    has(ask(served, "PUT", "/bkt/k", "x-amz-checksum-crc32: AAAAAA==\r\n", "x"),
        "<Code>BadDigest</Code>");
    has(ask(served, "PUT", "/bkt/k?partNumber=1&uploadId=no", "", "x"),
        "<Code>NoSuchUpload</Code>");
    has(ask(served, "GET", "/bkt/k?versionId=3", "", ""), "<Code>InvalidArgument</Code>");
}

static void hosts_name_buckets(void **state)
{
    struct served *served = *state;
    static const char *const hosts[] = {
        "Host: my.bkt.s3.amazonaws.com\r\n", "Host: my.bkt.s3.eu-west-1.amazonaws.com\r\n",
        "Host: my.bkt.s3.localhost:9000\r\n", "Host: my.bkt.localhost\r\n"};
    has(ask(served, "PUT", "/my.bkt", "", ""), "HTTP/1.1 200 ");
    has(ask(served, "PUT", "/my.bkt/a/b", "", "hello"), "HTTP/1.1 200 ");
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
        has(ask(served, "GET", "/a/b", hosts[i], ""), "hello");
    has(ask(served, "GET", "/", "Host: s3.us-east-1.amazonaws.com\r\n", ""), "<Name>my.bkt</Name>");
    has(ask(served, "GET", "/my.bkt/a/b", "Host: localhost:9000\r\n", ""), "hello");
}

static void keys_are_not_tidied(void **state)
{
    struct served *served = *state;
    static const char *const targets[] = {"/bkt/../etc/passwd", "/bkt//a", "/bkt/a/./b/",
                                          "/bkt/%2e%2e/%2e%2e", "/bkt/a%2Fb%20%2B"};
    has(ask(served, "PUT", "/bkt", "", ""), "HTTP/1.1 200 ");
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        has(ask(served, "PUT", targets[i], "", targets[i]), "HTTP/1.1 200 ");
        has(ask(served, "GET", targets[i], "", ""), targets[i]);
    }
    const char *list = ask(served, "GET", "/bkt?list-type=2", "", "");
    has(list, "<Key>../etc/passwd</Key>");
    has(list, "<Key>../..</Key>");
    has(list, "<Key>/a</Key>");
    has(list, "<Key>a/b +</Key>");
    has(list, "<KeyCount>5</KeyCount>");
}

/* A document that came whole is well-formed, whatever it repeats of the request. */
static void document_check(const char *reply)
{
    const char *length = strstr(reply, "\r\nContent-Length: ");
    const char *head_end = strstr(reply, "\r\n\r\n");
    if (head_end == NULL || length == NULL || length > head_end)
        return;
    const char *document = head_end + 4;
    size_t bytes = strtoul(length + 18, NULL, 10);
    if (strncmp(document, "<?xml", 5) != 0 || strlen(document) < bytes)
        return;
    XML_Parser parser = XML_ParserCreate(NULL);
    if (XML_Parse(parser, document, (int)bytes, XML_TRUE) != XML_STATUS_OK)
        fail_msg("%s: %s", XML_ErrorString(XML_GetErrorCode(parser)), document);
    XML_ParserFree(parser);
}

/* One that is whole is followed by another, whose reply ends the connection; for the reply to one
 * that is not whole nobody waits long. */
static void take_any_request(void *user, char *text, size_t count, uint64_t round)
{
    static const char last[] = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    struct timeval patience = {.tv_usec = 100000};
    int fd = dial(user);
    (void)round;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (send(fd, text, count, MSG_NOSIGNAL) == (ssize_t)count)
        send(fd, last, sizeof(last) - 1, MSG_NOSIGNAL);
    const char *reply = hear(fd);
    assert_true(reply[0] == '\0' || strncmp(reply, "HTTP/1.1 ", 9) == 0);
    document_check(reply);
}

#define REQUEST(line, headers, body) \
    FUZZ_TEXT(line " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" headers "\r\n" body)

static void any_request_is_answered(void **state)
{
    struct served *served = *state;
    static const struct fuzz_text texts[] = {
        REQUEST("GET /bkt?list-type=2&prefix=a%20/&delimiter=/&max-keys=3&start-after=b"
                "&encoding-type=url&continuation-token=6162",
                "", ""),
        REQUEST("GET /bkt?prefix=k&marker=%C3%A9&fetch-owner=true", "", ""),
        REQUEST("GET /bkt?uploads&key-marker=k&upload-id-marker=1", "", ""),
        REQUEST("PUT /bkt/k%20/a+b",
                "Content-Length: 5\r\nx-amz-meta-a: b\r\nx-amz-tagging: a=b&c=%20\r\n"
                "x-amz-checksum-crc32: NhCmhg==\r\nContent-Type: text/plain\r\n"
                "If-None-Match: *\r\n",
                "hello"),
        REQUEST("GET /bkt/k?response-content-type=a%2Fb&partNumber=1",
                "Range: bytes=0-3\r\nIf-Modified-Since: Fri, 24 May 2013 00:00:00 GMT\r\n"
                "If-Match: \"x\"\r\n",
                ""),
        REQUEST("PUT /bkt/copy",
                "x-amz-copy-source: /bkt/k%20a?versionId=null\r\n"
                "x-amz-metadata-directive: REPLACE\r\nContent-Length: 0\r\n",
                ""),
        REQUEST("POST /bkt/k?uploads", "x-amz-checksum-algorithm: CRC32C\r\nContent-Length: 0\r\n",
                ""),
        REQUEST("POST /bkt?delete", "Content-Length: 54\r\n",
                "<Delete><Object><Key>a&amp;b</Key></Object>"
                "</Delete>  "),
        REQUEST("PUT /bkt/k?tagging", "Content-Length: 79\r\n",
                "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag>"
                "</TagSet></Tagging>    "),
        REQUEST("PUT /bkt/k?partNumber=1&uploadId=no", "Content-Length: 1\r\n", "x")};
    static const char *const words[] = {
        "%00",        "%ff",           "%0d%0a",    "%3C",   "%1B",     "?acl",
        "&uploadId=", "&partNumber=",  "max-keys=", "/..",   "bytes=-", "\r\n",
        "x-amz-",     "Content-MD5: ", "DELETE ",   "HEAD ", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 600);
    has(ask(served, "PUT", "/bkt", "", ""), "HTTP/1.1 200 ");
    has(ask(served, "PUT", "/bkt/k", "", "hello"), "HTTP/1.1 200 ");
    fuzz_run(&fuzz, take_any_request, served);
    has(ask(served, "GET", "/bkt?list-type=2", "", ""), "<Name>bkt</Name>");
}

static int serve_clients(const char *directory, const char *keys_path)
{
    struct served served = {0};
    struct http_keys *keys = NULL;
    char end;
    if (s3_store_open(directory, &served.protocol.store) != SHOAL_OK ||
        (keys_path != NULL &&
         (http_keys_make(keys_path) != SHOAL_OK || http_keys_load(keys_path, &keys) != SHOAL_OK)) ||
        serve(&served, keys) != SHOAL_OK) {
        fprintf(stderr, "%s\n", base_error_text());
        return 1;
    }
    printf("%s\n", http_server_address(served.server));
    fflush(stdout);
    while (read(STDIN_FILENO, &end, 1) > 0)
        continue;
    http_server_stop(served.server);
    s3_store_close(served.protocol.store);
    http_keys_free(keys);
    return 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc >= 3 && strcmp(argv[1], "serve") == 0)
        return serve_clients(argv[2], argc > 3 ? argv[3] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(errors_are_documents, setup, teardown),
        cmocka_unit_test_setup_teardown(hosts_name_buckets, setup, teardown),
        cmocka_unit_test_setup_teardown(keys_are_not_tidied, setup, teardown),
        cmocka_unit_test_setup_teardown(any_request_is_answered, setup, teardown),
    };
    return cmocka_run_group_tests_name("s3 protocol", tests, NULL, NULL);
}
