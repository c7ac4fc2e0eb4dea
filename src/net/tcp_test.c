/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_test.c: the conformance suite over tcp, and what only a network can do to a link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "net/proof.h"
#include "net/tcp_address.h"
#include "support/holdings.h"
#include "support/net_conformance.h"
#include "support/skip.h"

/* What fill() writes over the suite's options; a test that changes something changes it back. */
static struct {
    const char *interface;
    int other_secret_rank, other_job_rank; /* -1: none */
    int64_t connect_timeout_ms;
} plan = {.other_secret_rank = -1, .other_job_rank = -1};

static void *create(int size)
{
    (void)size;
    return &plan;
}

static void destroy(void *world)
{
    (void)world;
}

static void fill(void *world, int rank, struct net_endpoint_options *options)
{
    (void)world;
    options->interface = plan.interface;
    if (plan.connect_timeout_ms > 0)
        options->connect_timeout_ms = plan.connect_timeout_ms;
    if (rank == plan.other_secret_rank)
        options->secret[5] ^= 1;
    if (rank == plan.other_job_rank)
        options->job[5] ^= 1;
}

static const struct net_fixture fixture = {.transport = &net_tcp,
                                           .threads = true,
                                           .processes = true,
                                           .create = create,
                                           .destroy = destroy,
                                           .fill = fill};

static bool heard_lost(void *user)
{
    return ((struct node_peer *)user)->lost_count > 0;
}

/* ---- raw connections ---- */

static uint16_t port_of(const struct node *node)
{
    return (uint16_t)(node->address[2] | node->address[3] << 8);
}

static int connect_raw(const struct node *node)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(port_of(node)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Reads exactly `bytes` while the suite's nodes go on; false: the other end closed. */
static bool read_raw(struct suite *suite, int fd, void *out, size_t bytes)
{
    int64_t deadline_ns = base_deadline_ns(SUITE_LIMIT_MS);
    size_t done = 0;

    while (done < bytes) {
        ssize_t count = recv(fd, (char *)out + done, bytes - done, MSG_DONTWAIT);

        if (count == 0)
            return false;
        if (count > 0)
            done += (size_t)count;
        suite_poll(suite);
        assert_true(base_now_ns() < deadline_ns);
    }
    return true;
}

static void expect_closed(struct suite *suite, int fd)
{
    char byte;

    assert_false(read_raw(suite, fd, &byte, 1));
    close(fd);
}

static void open_pair(struct suite *suite)
{
    suite_open(suite, &fixture, 2);
    node_send(&suite->nodes[0], 1, 10);
    suite_until_received(suite, 1, 1);
}

/* The link of the pair still works, and nothing was said of any peer's end. */
static void expect_undisturbed(struct suite *suite)
{
    uint64_t count[2] = {suite->nodes[0].received_total, suite->nodes[1].received_total};

    node_send(&suite->nodes[0], 1, 5000);
    node_send(&suite->nodes[1], 0, 5000);
    suite_until_received(suite, 0, count[0] + 1);
    suite_until_received(suite, 1, count[1] + 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(suite->nodes[i].peers[1 - i].lost_count, 0);
        assert_int_equal(suite->nodes[i].peers[1 - i].left_count, 0);
    }
}

/* ---- who does not belong here ---- */

static void wrong_secret(void **state)
{
    struct suite suite;

    (void)state;
    plan.other_secret_rank = 1;
    suite_open(&suite, &fixture, 3);
    plan.other_secret_rank = -1;
    node_send(&suite.nodes[0], 1, 10);
    suite_until(&suite, heard_lost, &suite.nodes[0].peers[1]);
    assert_int_equal(suite.nodes[0].peers[1].why, SHOAL_ERR_PEER_REFUSED);
    assert_non_null(strstr(suite.nodes[0].peers[1].text, "rank 1"));
    assert_int_equal(suite.nodes[1].received_total, 0);
    node_send(&suite.nodes[0], 2, 10);
    suite_until_received(&suite, 2, 1);
    suite_close(&suite);
}

static void other_job(void **state)
{
    struct suite suite;

    (void)state;
    plan.other_job_rank = 1;
    suite_open(&suite, &fixture, 3);
    plan.other_job_rank = -1;
    node_send(&suite.nodes[1], 0, 10);
    node_send(&suite.nodes[2], 0, 10);
    suite_until(&suite, heard_lost, &suite.nodes[1].peers[0]);
    assert_int_equal(suite.nodes[1].peers[0].why, SHOAL_ERR_PEER_REFUSED);
    assert_int_equal(suite.nodes[0].received_total, 1);
    assert_int_equal(suite.nodes[0].peers[1].lost_count, 0);
    suite_close(&suite);
}

static void garbage(void **state)
{
    struct suite suite;
    char noise[4096];

    (void)state;
    memset(noise, 'G', sizeof(noise));
    open_pair(&suite);
    for (size_t bytes = 64; bytes <= sizeof(noise); bytes *= 8) {
        int fd = connect_raw(&suite.nodes[0]);

        assert_int_equal(send(fd, noise, bytes, MSG_NOSIGNAL), bytes);
        suite_poll(&suite);
        expect_undisturbed(&suite);
        close(fd);
    }
    suite_close(&suite);
}

static void silent_connection(void **state)
{
    struct suite suite;
    int64_t start_ns = base_now_ns();
    int silent, drip;

    (void)state;
    open_pair(&suite);
    silent = connect_raw(&suite.nodes[0]);
    drip = connect_raw(&suite.nodes[0]);
    assert_int_equal(send(drip, "shoal", 5, MSG_NOSIGNAL), 5);
    expect_undisturbed(&suite);
    expect_closed(&suite, silent);
    expect_closed(&suite, drip);
    assert_true(base_now_ns() - start_ns < 20 * BASE_NS_PER_S);
    expect_undisturbed(&suite);
    suite_close(&suite);
}

static void scanner(void **state)
{
    struct suite suite;

    (void)state;
    open_pair(&suite);
    for (int i = 0; i < 200; i++) {
        int fd = connect_raw(&suite.nodes[i % 2]);

        if (i % 3 == 0)
            assert_int_equal(send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 18);
        node_send(&suite.nodes[0], 1, 100);
        node_send(&suite.nodes[1], 0, 100);
        suite_poll(&suite);
        close(fd);
    }
    suite_until_received(&suite, 0, 200);
    suite_until_received(&suite, 1, 201);
    expect_undisturbed(&suite);
    suite_close(&suite);
}

/* Two hundred strangers that hold their connections neither stay nor keep a peer out. */
static void full_house(void **state)
{
    enum { STRANGERS = 200 };
    struct suite suite;
    int fds[STRANGERS];
    int before, most = 0;

    (void)state;
    suite_open(&suite, &fixture, 2);
    before = open_descriptors();
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = connect_raw(&suite.nodes[1]);
        suite_poll(&suite);
        if (open_descriptors() - before - (i + 1) > most)
            most = open_descriptors() - before - (i + 1);
    }
    assert_true(most <= 64);
    node_send(&suite.nodes[0], 1, 10);
    suite_until_received(&suite, 1, 1);
    expect_undisturbed(&suite);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    suite_close(&suite);
}

/* A second process that says it is rank 1, and even knows the secret. */
static void taken_rank(void **state)
{
    struct suite suite;
    struct node *second = calloc(1, sizeof(*second));
    unsigned char addresses[2][NET_ADDRESS_BYTES];
    size_t address_bytes[2];

    (void)state;
    open_pair(&suite);
    assert_int_equal(node_open(second, &fixture, suite.world, 1, 2), SHOAL_OK);
    for (int i = 0; i < 2; i++) {
        memcpy(addresses[i], suite.nodes[i].address, NET_ADDRESS_BYTES);
        address_bytes[i] = suite.nodes[i].address_bytes;
    }
    node_meet(second, (const unsigned char(*)[NET_ADDRESS_BYTES])addresses, address_bytes);
    node_send(second, 0, 10);
    while (second->peers[0].lost_count == 0) {
        node_poll(second);
        suite_poll(&suite);
    }
    assert_int_equal(second->peers[0].why, SHOAL_ERR_PEER_REFUSED);
    expect_undisturbed(&suite);
    node_close(second, 0);
    free(second);
    suite_close(&suite);
}

/* ---- the proof, byte by byte ---- */

static void drip(struct suite *suite, int fd, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(send(fd, (const char *)bytes + i, 1, MSG_NOSIGNAL), 1);
        suite_poll(suite);
    }
}

/* Goes through the proof as rank 1. */
static int prove_by_hand(struct suite *suite, int rank)
{
    struct net_proof proof = {.rank_mine = rank, .rank_theirs = 0};
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], last[NET_PROOF_BYTES], ready[8];
    int fd = connect_raw(&suite->nodes[0]), yes = 1;

    memset(proof.job, 0x4A, sizeof(proof.job));
    memset(proof.secret, 0x5E, sizeof(proof.secret));
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)), 0);
    assert_int_equal(net_proof_hello(&proof, hello), SHOAL_OK);
    drip(suite, fd, hello, sizeof(hello));
    assert_true(read_raw(suite, fd, answer, sizeof(answer)));
    assert_int_equal(net_proof_check_answer(&proof, answer, last), SHOAL_OK);
    drip(suite, fd, last, sizeof(last));
    assert_true(read_raw(suite, fd, ready, sizeof(ready)));
    return fd;
}

static void frame_byte_by_byte(void **state)
{
    struct suite suite;
    struct {
        int32_t from, to;
        uint64_t number;
    } label = {.from = 1, .to = 0};
    struct net_header header = {.payload_bytes = 0};
    int fd;

    (void)state;
    suite_open(&suite, &fixture, 2);
    fd = prove_by_hand(&suite, 1);
    for (int i = 0; i < 3; i++) {
        label.number = (uint64_t)i;
        memcpy(header.body, &label, sizeof(label));
        drip(&suite, fd, &header, sizeof(header));
    }
    suite_until_received(&suite, 0, 3);
    drip(&suite, fd, &header, 30);
    close(fd);
    suite_until(&suite, heard_lost, &suite.nodes[0].peers[1]);
    assert_int_equal(suite.nodes[0].peers[1].why, SHOAL_ERR_PEER_LOST);
    assert_non_null(strstr(suite.nodes[0].peers[1].text, "127.0.0.1:"));
    assert_non_null(strstr(suite.nodes[0].peers[1].text, "without good-bye"));
    suite_close(&suite);
}

/* ---- counting ---- */

#define COUNTED_BYTES        (UINT64_C(1) << 20)
#define COUNTED_MESSAGES_MAX 2000

/* All of it was sent and acknowledged. */
static bool is_counted(void *user)
{
    struct node *node = user;
    struct net_flow flow;

    return fixture.transport->flow(node->endpoint, 1, &flow) && flow.acked_bytes >= COUNTED_BYTES;
}

static bool busy_at_all(const struct node *node)
{
    struct net_flow flow;

    return fixture.transport->flow(node->endpoint, 1, &flow) && flow.busy_us > 0;
}

static void flow_is_counted(void **state)
{
    struct suite suite;
    struct net_flow flow;

    (void)state;
    suite_open(&suite, &fixture, 2);
    assert_false(fixture.transport->flow(suite.nodes[0].endpoint, 1, &flow)); /* no link yet */
    node_send(&suite.nodes[0], 1, COUNTED_BYTES);
    suite_until_received(&suite, 1, 1);
    suite_until(&suite, is_counted, &suite.nodes[0]);
    assert_true(fixture.transport->flow(suite.nodes[1].endpoint, 0, &flow));
    assert_true(flow.acked_bytes < COUNTED_BYTES); /* the other way only the greeting went */
    /* The kernel counts busy time in ticks; most messages begin and end within one. */
    for (uint64_t sent = 1; !busy_at_all(&suite.nodes[0]); sent++) {
        assert_true(sent < COUNTED_MESSAGES_MAX);
        node_send(&suite.nodes[0], 1, COUNTED_BYTES);
        suite_until_received(&suite, 1, sent + 1);
    }
    suite_close(&suite);
}

static void reset_is_lost(void **state)
{
    struct suite suite;
    struct linger at_once = {.l_onoff = 1};
    int fd;

    (void)state;
    suite_open(&suite, &fixture, 2);
    fd = prove_by_hand(&suite, 1);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    close(fd);
    suite_until(&suite, heard_lost, &suite.nodes[0].peers[1]);
    assert_non_null(strstr(suite.nodes[0].peers[1].text, "reset"));
    suite_close(&suite);
}

/* ---- addresses ---- */

static void nobody_listens(void **state)
{
    struct suite suite;
    char address[32];

    (void)state;
    suite_open(&suite, &fixture, 2);
    snprintf(address, sizeof(address), "127.0.0.1:%u", port_of(&suite.nodes[1]));
    node_close(&suite.nodes[1], 0);
    node_send(&suite.nodes[0], 1, 10);
    suite_until(&suite, heard_lost, &suite.nodes[0].peers[1]);
    assert_int_equal(suite.nodes[0].peers[1].why, SHOAL_ERR_PEER_UNREACHABLE);
    assert_non_null(strstr(suite.nodes[0].peers[1].text, address));
    assert_non_null(strstr(suite.nodes[0].peers[1].text, "refused"));
    suite_close(&suite);
}

static void stopped_peer_times_out(void **state)
{
    struct suite suite;
    int64_t start_ns;

    (void)state;
    plan.connect_timeout_ms = 700;
    suite_open(&suite, &fixture, 2);
    plan.connect_timeout_ms = 0;
    start_ns = base_now_ns();
    node_send(&suite.nodes[0], 1, 10);
    while (suite.nodes[0].peers[1].lost_count == 0) {
        node_poll(&suite.nodes[0]);
        node_sleep(&suite.nodes[0], 20000);
    }
    assert_true(base_now_ns() - start_ns >= 700 * BASE_NS_PER_MS);
    assert_int_equal(suite.nodes[0].peers[1].why, SHOAL_ERR_PEER_UNREACHABLE);
    assert_non_null(strstr(suite.nodes[0].peers[1].text, "no answer"));
    suite_close(&suite);
}

/* Rank 0 knows a wrong port of rank 1 and both send at once: rank 1's connection is taken, though
 * rank 0's would win. */
static void reachable_one_way(void **state)
{
    struct suite suite;
    unsigned char addresses[2][NET_ADDRESS_BYTES];
    size_t address_bytes[2];

    (void)state;
    suite_open(&suite, &fixture, 2);
    for (int i = 0; i < 2; i++) {
        memcpy(addresses[i], suite.nodes[i].address, NET_ADDRESS_BYTES);
        address_bytes[i] = suite.nodes[i].address_bytes;
    }
    addresses[1][2] = 1;
    addresses[1][3] = 0;
    node_meet(&suite.nodes[0], (const unsigned char(*)[NET_ADDRESS_BYTES])addresses, address_bytes);
    node_send(&suite.nodes[0], 1, 10);
    node_send(&suite.nodes[1], 0, 10);
    suite_until_received(&suite, 0, 1);
    suite_until_received(&suite, 1, 1);
    suite_close(&suite);
}

static void broken_address(void **state)
{
    struct suite suite;
    unsigned char addresses[2][NET_ADDRESS_BYTES] = {{0}};
    size_t address_bytes[2] = {0, 7};

    (void)state;
    suite_open(&suite, &fixture, 2);
    node_meet(&suite.nodes[0], (const unsigned char(*)[NET_ADDRESS_BYTES])addresses, address_bytes);
    node_send(&suite.nodes[0], 1, 10);
    suite_until(&suite, heard_lost, &suite.nodes[0].peers[1]);
    assert_int_equal(suite.nodes[0].peers[1].why, SHOAL_ERR_PEER_UNREACHABLE);
    suite_close(&suite);
}

/* Whatever a peer's published bytes are, they are understood or refused, never believed. */
static void any_bytes_as_address(void **state)
{
    struct net_tcp_candidate candidates[NET_TCP_CANDIDATES_MAX];
    static const struct net_tcp_interfaces all;
    unsigned char bytes[NET_ADDRESS_BYTES];
    uint64_t random = 7;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t length = (size_t)(random >> 33) % 120;
        unsigned char *exact = malloc(length > 0 ? length : 1);
        int count = -1;

        for (size_t i = 0; i < length; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            exact[i] = (unsigned char)(random >> 56);
        }
        if (length > 1 && round % 4 != 0) {
            exact[0] = 2;
            exact[1] %= round % 4 == 1 ? 3 : 40;
        }
        if (net_tcp_read_candidates(exact, length, &all, 0, candidates, &count) == SHOAL_OK)
            assert_in_range(count, 0, NET_TCP_CANDIDATES_MAX);
        else
            assert_int_equal(count, -1);
        free(exact);
        random = random * 6364136223846793005u + 1442695040888963407u;
    }
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(net_tcp_read_candidates(bytes, 0, &all, 0, candidates, &(int){0}),
                     SHOAL_ERR_FORMAT);
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&loopback, sizeof(loopback)) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

static void ipv6_only(void **state)
{
    struct suite suite;

    (void)state;
    if (!has_ipv6())
        skip_because("no ::1 on this machine");
    plan.interface = "::1";
    suite_open(&suite, &fixture, 2);
    plan.interface = NULL;
    assert_int_equal(suite.nodes[0].address[1], 1);
    assert_int_equal(suite.nodes[0].address[20], 6);
    node_send(&suite.nodes[0], 1, 100);
    suite_until_received(&suite, 1, 1);
    node_close(&suite.nodes[0], 1000);
    while (suite.nodes[1].peers[0].left_count == 0)
        suite_poll(&suite);
    suite_close(&suite);
}

static enum shoal_status open_on(const char *interface, struct node *node)
{
    enum shoal_status status;

    plan.interface = interface;
    status = node_open(node, &fixture, &plan, 0, 2);
    plan.interface = NULL;
    return status;
}

static void interface_option(void **state)
{
    struct node *node = calloc(1, sizeof(*node));
    static const char *const good[] = {"lo", "127.", "127.0.0.1", "127.0.0.0/8"};
    static const char *const bad[] = {"nosuch0", "203.0.113.", "203.0.113.0/24", "127.0.0.0/x"};
    int descriptors = open_descriptors();

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(open_on(good[i], node), SHOAL_OK);
        assert_int_equal(node->address[20], 4);
        node_close(node, 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(open_on(bad[i], node), SHOAL_ERR_OPTION);
        assert_non_null(strstr(base_error_text(), bad[i]));
        assert_non_null(strstr(base_error_text(), "lo 127.0.0.1"));
    }
    assert_int_equal(open_descriptors(), descriptors);
    free(node);
}

static void port_in_use(void **state)
{
    struct node *first = calloc(1, sizeof(*first)), *second = calloc(1, sizeof(*second));
    char port[16];

    (void)state;
    assert_int_equal(open_on(NULL, first), SHOAL_OK);
    snprintf(port, sizeof(port), "%u", port_of(first));
    setenv("SHOAL_PORT", port, 1);
    base_options_reset();
    assert_int_equal(open_on(NULL, second), SHOAL_ERR_OPTION);
    assert_non_null(strstr(base_error_text(), port));
    node_close(first, 0);
    assert_int_equal(open_on(NULL, second), SHOAL_OK);
    assert_int_equal(port_of(second), atoi(port));
    node_close(second, 0);
    unsetenv("SHOAL_PORT");
    base_options_reset();
    free(first);
    free(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_secret),      cmocka_unit_test(other_job),
        cmocka_unit_test(garbage),           cmocka_unit_test(silent_connection),
        cmocka_unit_test(scanner),           cmocka_unit_test(full_house),
        cmocka_unit_test(taken_rank),        cmocka_unit_test(frame_byte_by_byte),
        cmocka_unit_test(flow_is_counted),   cmocka_unit_test(reset_is_lost),
        cmocka_unit_test(nobody_listens),    cmocka_unit_test(stopped_peer_times_out),
        cmocka_unit_test(reachable_one_way), cmocka_unit_test(broken_address),
        cmocka_unit_test(ipv6_only),         cmocka_unit_test(any_bytes_as_address),
        cmocka_unit_test(interface_option),  cmocka_unit_test(port_in_use),
    };
    int failed = net_conformance_run(&fixture);

    return failed + cmocka_run_group_tests_name("tcp, alone", tests, NULL, NULL);
}
