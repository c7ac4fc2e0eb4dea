/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door_test.c: who is let in, as what, and what becomes of those who say nothing or the wrong
 * thing.
 */
#include "http/door.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "support/client.h"

/* What stands behind the door: it says what it was given, with the first bytes, and closes; or it
 * keeps what it is given. */
struct inside {
    atomic_uint kept;
    bool keeps;
    int fds[8];
};

static void give(void *user, bool is_tls, int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct inside *inside = user;
    char text[64];
    assert_int_equal(address->sa_family, AF_INET);
    assert_int_equal(bytes, sizeof(struct sockaddr_in));
    if (inside->keeps) {
        inside->fds[atomic_load(&inside->kept)] = fd;
        atomic_fetch_add(&inside->kept, 1);
        return;
    }
    ssize_t got = recv(fd, text, sizeof(text), MSG_DONTWAIT);
    send(fd, is_tls ? "tls:" : "http:", is_tls ? 4 : 5, MSG_NOSIGNAL);
    send(fd, text, got > 0 ? (size_t)got : 0, MSG_NOSIGNAL);
    close(fd);
}

static unsigned given(void *user)
{
    struct inside *inside = user;
    return atomic_load(&inside->kept);
}

struct fixture {
    struct inside inside;
    struct door *door;
    int listener;
    struct sockaddr_in address;
};

static void fixture_open(struct fixture *fixture, struct door_options options)
{
    socklen_t bytes = sizeof(fixture->address);
    fixture->address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    fixture->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fixture->listener, (struct sockaddr *)&fixture->address, bytes), 0);
    assert_int_equal(listen(fixture->listener, 64), 0);
    getsockname(fixture->listener, (struct sockaddr *)&fixture->address, &bytes);
    options.listener = fixture->listener;
    options.address = "127.0.0.1:7800";
    options.give = give;
    options.given = given;
    options.user = &fixture->inside;
    assert_int_equal(door_open(&options, &fixture->door), SHOAL_OK);
}

static void fixture_close(struct fixture *fixture)
{
    door_close(fixture->door);
    close(fixture->listener);
    for (unsigned i = 0; i < atomic_load(&fixture->inside.kept); i++)
        close(fixture->inside.fds[i]);
    assert_int_equal(base_memory_blocks(), 0);
}

static struct door_options open_to_all(void)
{
    return (struct door_options){.head_ms = 20000, .most = 100, .has_tls = true};
}

static int dial(const struct fixture *fixture)
{
    return client_dial(ntohs(fixture->address.sin_port));
}

static void put(int fd, const char *text)
{
    client_put(fd, text, strlen(text));
}

static const char *ask(const struct fixture *fixture, const char *text)
{
    int fd = dial(fixture);
    put(fd, text);
    return client_read_all(fd);
}

static void each_gets_who_speaks_its_language(void **state)
{
    (void)state;
    struct fixture fixture = {0};
    fixture_open(&fixture, open_to_all());
    assert_string_equal(ask(&fixture, "GET / HTTP/1.1\r\n"), "http:GET / HTTP/1.1\r\n");
    assert_string_equal(ask(&fixture, "\x16\x03\x01"), "tls:\x16\x03\x01");
    int fd = dial(&fixture);
    for (const char *at = "CONNECx"; *at != '\0'; at++) {
        char letter[2] = {*at, '\0'};
        put(fd, letter);
    }
    assert_string_equal(client_read_all(fd), "http:CONNECx");
    fixture_close(&fixture);
}

static void a_connect_becomes_tls(void **state)
{
    (void)state;
    struct fixture fixture = {0};
    fixture_open(&fixture, open_to_all());
    static const char head[] = "CONNECT b.s3.amazonaws.com:443 HTTP/1.1\r\nHost: b\r\n\r\n";
    assert_string_equal(ask(&fixture, "CONNECT sts.amazonaws.com:443 HTTP/1.1\r\n\r\n\x16xyz"),
                        "HTTP/1.1 200 Connection established\r\n\r\ntls:\x16xyz");
    int fd = dial(&fixture);
    for (size_t i = 0; i < sizeof(head) - 1; i++) { /* in as many pieces as it has bytes */
        char letter[2] = {head[i], '\0'};
        put(fd, letter);
    }
    expect_in(client_read_all(fd), "200 Connection established\r\n\r\ntls:");
    fixture_close(&fixture);
}

static void others_are_told_why_not(void **state)
{
    (void)state;
    struct fixture fixture = {0};
    fixture_open(&fixture, open_to_all());
    expect_in(ask(&fixture, "CONNECT example.org:443 HTTP/1.1\r\n\r\n"),
              "HTTP/1.1 403 Forbidden by");
    expect_in(ask(&fixture, "CONNECT example.org:443 HTTP/1.1\r\n\r\nmore than it should say"),
              "put example.org in NO_PROXY");
    expect_in(ask(&fixture, "CONNECT s3.amazonaws.com:22 HTTP/1.1\r\n\r\n"), "HTTP/1.1 403 ");
    expect_in(ask(&fixture, "CONNECT nonsense\r\n\r\n"), "HTTP/1.1 400 Bad Request\r\n");
    static char large[FRONT_HEAD_BYTES_MAX + 100];
    memset(large, 'x', sizeof(large) - 1);
    memcpy(large, "CONNECT s3.amazonaws.com:443 HTTP/1.1\r\nX: ", 42);
    expect_in(ask(&fixture, large), "HTTP/1.1 400 Bad Request\r\n");
    fixture_close(&fixture);

    struct fixture plain = {0}, own = {0}, secure = {0};
    struct door_options options = open_to_all();
    options.plain = DOOR_PLAIN_OWN;
    fixture_open(&own, options);
    expect_in(ask(&own, "GET / HTTP/1.1\r\n\r\n"), "http:GET");
    options.plain = DOOR_PLAIN_NONE;
    fixture_open(&secure, options);
    expect_in(ask(&secure, "GET / HTTP/1.1\r\n\r\n"), "TLS only: https://127.0.0.1:7800");
    expect_in(ask(&secure, "\x16"), "tls:");
    options = (struct door_options){.head_ms = 20000, .most = 100};
    fixture_open(&plain, options);
    assert_string_equal(ask(&plain, "\x16\x03\x01"), "");
    expect_in(ask(&plain, "CONNECT s3.amazonaws.com:443 HTTP/1.1\r\n\r\n"), "HTTP/1.1 403 ");
    door_close(plain.door);
    close(plain.listener);
    door_close(own.door);
    close(own.listener);
    fixture_close(&secure);
}

static void who_says_nothing_is_closed(void **state)
{
    (void)state;
    struct fixture fixture = {0};
    struct door_options options = open_to_all();
    options.head_ms = 100;
    fixture_open(&fixture, options);
    int silent = dial(&fixture), slow = dial(&fixture);
    put(slow, "CONNECT s3.amazonaws.com:443 HTT");
    assert_string_equal(client_read_all(silent), "");
    assert_string_equal(client_read_all(slow), "");
    fixture_close(&fixture);
}

static void a_full_door_lets_them_wait(void **state)
{
    (void)state;
    struct fixture fixture = {.inside = {.keeps = true}};
    struct door_options options = open_to_all();
    options.most = 3;
    fixture_open(&fixture, options);
    int fds[5];
    for (int i = 0; i < 5; i++) {
        fds[i] = dial(&fixture);
        put(fds[i], "GET /");
    }
    int64_t deadline_ns = base_deadline_ns(CLIENT_PATIENCE_S * 1000);
    while (given(&fixture.inside) < 3 && base_left_ms(deadline_ns) > 0)
        base_sleep_ms(1);
    base_sleep_ms(50);
    assert_int_equal(given(&fixture.inside), 3);
    close(fixture.inside.fds[2]); /* one leaves, and the next one has its place */
    atomic_store(&fixture.inside.kept, 2);
    while (given(&fixture.inside) < 3 && base_left_ms(deadline_ns) > 0)
        base_sleep_ms(1);
    assert_int_equal(given(&fixture.inside), 3);
    fixture_close(&fixture);
    for (int i = 0; i < 5; i++)
        close(fds[i]);
}

static void it_closes_with_visitors_in_it(void **state)
{
    (void)state;
    struct fixture fixture = {0};
    fixture_open(&fixture, open_to_all());
    int fds[20];
    for (int i = 0; i < 20; i++) {
        fds[i] = dial(&fixture);
        put(fds[i], i % 2 ? "CONN" : "CONNECT a:1 HTTP/1.1\r\n\r\n");
    }
    assert_string_not_equal(client_read_all(fds[0]), ""); /* so they are in */
    fixture_close(&fixture);
    for (int i = 1; i < 20; i++)
        close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gets_who_speaks_its_language),
        cmocka_unit_test(a_connect_becomes_tls),
        cmocka_unit_test(others_are_told_why_not),
        cmocka_unit_test(who_says_nothing_is_closed),
        cmocka_unit_test(a_full_door_lets_them_wait),
        cmocka_unit_test(it_closes_with_visitors_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
