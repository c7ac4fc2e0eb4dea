/* SPDX-License-Identifier: Apache-2.0 */
/* internet_test.c: the proxy, with a server of its own behind it. */
#include "job/internet.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
    int fd, port;
    bool own_allowed;
    pthread_t thread;
};

static void listen_at(struct place *place)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    place->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(place->fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(place->fd, 8), 0);
    assert_int_equal(getsockname(place->fd, (struct sockaddr *)&address, &bytes), 0);
    place->port = ntohs(address.sin_port);
}

static void *proxy_run(void *argument)
{
    const struct place *place = argument;
    internet_serve(place->fd, place->own_allowed);
    return NULL;
}

static void proxy_open(struct place *place, bool own_allowed)
{
    listen_at(place);
    place->own_allowed = own_allowed;
    assert_int_equal(pthread_create(&place->thread, NULL, proxy_run, place), 0);
}

static void proxy_close(struct place *place)
{
    shutdown(place->fd, SHUT_RDWR);
    pthread_join(place->thread, NULL);
    close(place->fd);
}

/* Reads until the end, or until `enough` has come. */
static void hear(int fd, const char *enough, char *out, size_t capacity)
{
    size_t used = 0;
    ssize_t got;
    out[0] = '\0';
    while ((enough == NULL || strstr(out, enough) == NULL) &&
           (got = recv(fd, out + used, capacity - 1 - used, 0)) > 0) {
        used += (size_t)got;
        out[used] = '\0';
    }
}

/* Says what it heard, in the body of an answer. */
static void *server_run(void *argument)
{
    const struct place *place = argument;
    char heard[4096], text[4200];
    int fd = accept(place->fd, NULL, NULL);
    hear(fd, "\r\n\r\nend", heard, sizeof(heard));
    snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n\r\n%s", heard);
    send(fd, text, strlen(text), MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void server_open(struct place *place)
{
    listen_at(place);
    assert_int_equal(pthread_create(&place->thread, NULL, server_run, place), 0);
}

static void server_close(struct place *place)
{
    pthread_join(place->thread, NULL);
    close(place->fd);
}

static int connect_to(const struct place *place)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)place->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void tunnels_carry_bytes_both_ways(void **state)
{
    struct place proxy, server;
    char text[256], heard[4096];
    (void)state;
    proxy_open(&proxy, true);
    server_open(&server);
    int fd = connect_to(&proxy);
    snprintf(text, sizeof(text), "CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\nearly ",
             server.port);
    say(fd, text);
    hear(fd, "\r\n\r\n", heard, sizeof(heard));
    assert_string_equal(heard, "HTTP/1.1 200 Connection established\r\n\r\n");
    say(fd, "late\r\n\r\nend");
    hear(fd, NULL, heard, sizeof(heard));
    assert_string_equal(heard, "HTTP/1.1 200 OK\r\n\r\nearly late\r\n\r\nend");
    close(fd);
    server_close(&server);
    proxy_close(&proxy);
}

static void plain_requests_go_on_as_the_server_expects_them(void **state)
{
    struct place proxy, server;
    char text[512], heard[4096];
    (void)state;
    proxy_open(&proxy, true);
    server_open(&server);
    int fd = connect_to(&proxy);
    snprintf(text, sizeof(text),
             "POST http://127.0.0.1:%d/a?b=http://c/ HTTP/1.1\r\nHost: h\r\n"
             "Proxy-Connection: keep-alive\r\nConnection: keep-alive\r\nX: y\r\n\r\nend",
             server.port);
    say(fd, text);
    hear(fd, NULL, heard, sizeof(heard));
    assert_string_equal(heard, "HTTP/1.1 200 OK\r\n\r\nPOST /a?b=http://c/ HTTP/1.1\r\n"
                               "Connection: close\r\nHost: h\r\nX: y\r\n\r\nend");
    close(fd);
    server_close(&server);
    proxy_close(&proxy);
}

static void expect(const struct place *proxy, const char *request, const char *answer)
{
    char heard[4096];
    int fd = connect_to(proxy);
    say(fd, request);
    shutdown(fd, SHUT_WR);
    hear(fd, NULL, heard, sizeof(heard));
    assert_int_equal(strncmp(heard, answer, strlen(answer)), 0);
    close(fd);
}

static void machine_itself_is_refused(void **state)
{
    static const char *const hosts[] = {"127.0.0.1:80",
                                        "localhost:80",
                                        "[::1]:80",
                                        "0.0.0.0:80",
                                        "169.254.169.254:80",
                                        "[::ffff:127.0.0.1]:80",
                                        "[::ffff:a9fe:a9fe]:80",
                                        "10.77.1.1:22",
                                        "127.1:80",
                                        "2130706433:80"};
    struct place proxy;
    char text[256];
    (void)state;
    proxy_open(&proxy, false);
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        snprintf(text, sizeof(text), "CONNECT %s HTTP/1.1\r\n\r\n", hosts[i]);
        expect(&proxy, text, "HTTP/1.1 403 Forbidden");
    }
    expect(&proxy, "GET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n", "HTTP/1.1 403 Forbidden");
    proxy_close(&proxy);
}

static void what_is_no_request_is_refused(void **state)
{
    static const char *const wrong[] = {"GET / HTTP/1.1\r\n\r\n",
                                        "CONNECT  HTTP/1.1\r\n\r\n",
                                        "CONNECT host:port HTTP/1.1\r\n\r\n",
                                        "CONNECT host:123456 HTTP/1.1\r\n\r\n",
                                        "CONNECT [::1 HTTP/1.1\r\n\r\n",
                                        "CONNECT me@host:80 HTTP/1.1\r\n\r\n",
                                        "GET http:// HTTP/1.1\r\n\r\n",
                                        "GET ftp://host/ HTTP/1.1\r\n\r\n",
                                        "GET\r\nX: http://127.0.0.1:1/ HTTP/1.1\r\n\r\n",
                                        "\r\n\r\n",
                                        "CONNECT host:443"};
    struct place proxy;
    (void)state;
    proxy_open(&proxy, true);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect(&proxy, wrong[i], "HTTP/1.1 400 Bad Request");
    proxy_close(&proxy);
}

/* Heads of random bytes, and cut ones: an answer or an end, and the proxy goes on. */
static void any_bytes_are_survived(void **state)
{
    static const char letters[] = "CONNECT GEThttp://[]:@/?127.0.01 HTP\r\n\r\n";
    struct place proxy;
    char text[200], heard[4096];
    (void)state;
    srand(1);
    proxy_open(&proxy, false);
    for (int i = 0; i < 300; i++) {
        size_t bytes = 1 + (size_t)rand() % (sizeof(text) - 1);
        for (size_t k = 0; k < bytes; k++)
            text[k] = letters[(size_t)rand() % (sizeof(letters) - 1)];
        int fd = connect_to(&proxy);
        send(fd, text, bytes, MSG_NOSIGNAL);
        send(fd, "\r\n\r\n", 4, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        hear(fd, NULL, heard, sizeof(heard));
        close(fd);
    }
    expect(&proxy, "CONNECT 127.0.0.1:80 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 Forbidden");
    proxy_close(&proxy);
}

static int without_proxies(void **state)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tunnels_carry_bytes_both_ways),
        cmocka_unit_test(plain_requests_go_on_as_the_server_expects_them),
        cmocka_unit_test(machine_itself_is_refused),
        cmocka_unit_test(what_is_no_request_is_refused),
        cmocka_unit_test(any_bytes_are_survived),
    };
    return cmocka_run_group_tests(tests, without_proxies, NULL);
}
