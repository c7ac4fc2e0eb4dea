/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_streams_test.c: the conformance suite over tcp links of several streams, on one interface and
 * on two, and what happens to a link when one of its streams does not open or breaks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "net/tcp.h"
#include "support/net_conformance.h"
#include "support/skip.h"

#define LARGE_BYTES 1000003

/* What fill() writes over the suite's options. */
static struct plan {
    const char *interface[2];
    int streams[2];
    int64_t connect_timeout_ms;
} plan;

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
    options->interface = plan.interface[rank % 2];
    options->streams = plan.streams[rank % 2];
    if (plan.connect_timeout_ms > 0)
        options->connect_timeout_ms = plan.connect_timeout_ms;
}

static const struct net_fixture fixture = {.transport = &net_tcp,
                                           .threads = true,
                                           .processes = true,
                                           .allocates = true,
                                           .create = create,
                                           .destroy = destroy,
                                           .fill = fill};

static struct plan alike(const char *interface, int streams)
{
    return (struct plan){.interface = {interface, interface}, .streams = {streams, streams}};
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

/* ---- inside of a node ---- */

static struct net_tcp_link *link_of(struct node *node, int peer)
{
    return &((struct net_tcp *)node->endpoint)->links[peer];
}

struct count {
    struct suite *suite;
    int streams;
};

static bool all_stand(void *user)
{
    const struct count *count = user;

    return link_of(&count->suite->nodes[0], 1)->stream_count == count->streams &&
           link_of(&count->suite->nodes[1], 0)->stream_count == count->streams;
}

static void open_pair(struct suite *suite, int streams)
{
    suite_open(suite, &fixture, 2);
    node_send(&suite->nodes[0], 1, 10);
    suite_until(suite, all_stand, &(struct count){suite, streams});
}

static bool both_heard_lost(void *user)
{
    const struct suite *suite = user;

    return suite->nodes[0].peers[1].lost_count > 0 && suite->nodes[1].peers[0].lost_count > 0;
}

/* Bytes that node 0's kernel has sent on a stream. */
static uint64_t sent_on(struct suite *suite, int stream)
{
    struct net_tcp_link *link = link_of(&suite->nodes[0], 1);
    struct net_tcp_link alone = {.state = NET_TCP_LINK_STANDING,
                                 .streams = {link->streams[stream]}};
    struct net_tcp endpoint = {.links = &alone};
    struct net_flow flow = {0};

    assert_true(net_tcp_flow((struct net_endpoint *)&endpoint, 0, &flow));
    return flow.acked_bytes;
}

/* ---- tests ---- */

/* Every stream carries its part; small frames stay on the first. */
static void large_frames_are_cut(void **state)
{
    struct suite suite;
    uint64_t before[4];

    (void)state;
    plan = alike("127.0.0.1", 4);
    open_pair(&suite, 4);
    for (int i = 0; i < 100; i++)
        node_send(&suite.nodes[0], 1, 1000);
    suite_until_received(&suite, 1, 101);
    for (int i = 0; i < 4; i++)
        before[i] = sent_on(&suite, i);
    for (int i = 1; i < 4; i++)
        assert_true(before[i] < 1000);
    for (int i = 0; i < 10; i++)
        node_send(&suite.nodes[0], 1, LARGE_BYTES);
    suite_until_received(&suite, 1, 111);
    for (int i = 0; i < 4; i++)
        assert_true(sent_on(&suite, i) - before[i] > LARGE_BYTES);
    suite_close(&suite);
}

static void send_both_ways(struct suite *suite, int frames)
{
    uint64_t received[2] = {suite->nodes[0].received_total, suite->nodes[1].received_total};

    for (int i = 0; i < frames; i++) {
        node_send(&suite->nodes[0], 1, LARGE_BYTES);
        node_send(&suite->nodes[1], 0, LARGE_BYTES);
    }
    suite_until_received(suite, 0, received[0] + (uint64_t)frames);
    suite_until_received(suite, 1, received[1] + (uint64_t)frames);
}

/* Connections come while frames flow, are left unused, and are used again. */
static void number_that_changes(void **state)
{
    struct suite suite;
    const int counts[] = {4, 1, 8, 2, 8};
    int most = 1;

    (void)state;
    plan = alike("127.0.0.1", 0);
    open_pair(&suite, 1);
    for (int i = 0; i < 5; i++) {
        uint64_t before[NET_TCP_STREAMS_MAX];

        for (int side = 0; side < 2; side++)
            net_tcp.use_streams(suite.nodes[side].endpoint, counts[i]);
        send_both_ways(&suite, 3);
        most = counts[i] > most ? counts[i] : most;
        suite_until(&suite, all_stand, &(struct count){&suite, most});
        for (int k = 0; k < most; k++)
            before[k] = sent_on(&suite, k);
        send_both_ways(&suite, 10);
        for (int k = 0; k < most; k++)
            assert_int_equal(sent_on(&suite, k) > before[k], k < counts[i]);
    }
    suite_close(&suite);
}

/* What was asked for by number stays so. */
static void number_that_is_fixed(void **state)
{
    struct suite suite;

    (void)state;
    plan = alike("127.0.0.1", 2);
    open_pair(&suite, 2);
    for (int side = 0; side < 2; side++)
        net_tcp.use_streams(suite.nodes[side].endpoint, 4);
    send_both_ways(&suite, 10);
    assert_int_equal(link_of(&suite.nodes[0], 1)->stream_count, 2);
    suite_close(&suite);
}

static bool gave_up(void *user)
{
    const struct count *count = user;

    return link_of(&count->suite->nodes[0], 1)->full_house;
}

/* The peer takes no further connections, as behind a firewall that counts them. */
static void more_that_cannot_be_opened(void **state)
{
    struct suite suite;
    struct net_tcp *peer;

    (void)state;
    plan = alike("127.0.0.1", 0);
    plan.connect_timeout_ms = 300;
    open_pair(&suite, 1);
    peer = (struct net_tcp *)suite.nodes[1].endpoint;
    assert_int_equal(shutdown(peer->listen_fd, SHUT_RDWR), 0);
    for (int side = 0; side < 2; side++)
        net_tcp.use_streams(suite.nodes[side].endpoint, 4);
    send_both_ways(&suite, 3);
    suite_until(&suite, gave_up, &(struct count){&suite, 0});
    send_both_ways(&suite, 3);
    assert_int_equal(link_of(&suite.nodes[0], 1)->stream_count, 1);
    suite_close(&suite);
}

/* Only the side that connects decides; whatever the other one was told, it takes what comes. */
static void sides_that_differ(void **state)
{
    struct suite suite;

    (void)state;
    plan = (struct plan){.interface = {"127.0.0.1", "127.0.0.1"}, .streams = {3, 1}};
    open_pair(&suite, 3);
    for (int i = 0; i < 5; i++) {
        node_send(&suite.nodes[0], 1, LARGE_BYTES);
        node_send(&suite.nodes[1], 0, LARGE_BYTES);
    }
    suite_until_received(&suite, 0, 5);
    suite_until_received(&suite, 1, 6);
    suite_close(&suite);
}

static void two_interfaces(void **state)
{
    struct suite suite;

    (void)state;
    if (!has_ipv6())
        skip_because("no ::1 on this machine");
    plan = alike("127.0.0.1,::1", 0);
    open_pair(&suite, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(link_of(&suite.nodes[0], 1)->streams[i]->own.any.sa_family,
                         i == 0 ? AF_INET : AF_INET6);
    node_send(&suite.nodes[0], 1, LARGE_BYTES);
    suite_until_received(&suite, 1, 2);
    suite_close(&suite);
}

/* A frame under way is withdrawn: it still ends in pieces, and the next ones follow. */
static void withdrawn_while_cut(void **state)
{
    struct suite suite;

    (void)state;
    plan = alike("127.0.0.1", 3);
    open_pair(&suite, 3);
    for (int round = 0; round < 20; round++) {
        struct net_frame *frame = node_send(&suite.nodes[0], 1, (uint64_t)LARGE_BYTES * 20);

        for (int i = 0; i < round % 4; i++)
            node_poll(&suite.nodes[0]);
        if (link_of(&suite.nodes[0], 1)->cut == frame)
            node_withdraw(&suite.nodes[0], 1, frame);
        node_send(&suite.nodes[0], 1, LARGE_BYTES);
    }
    suite_until_received(&suite, 1, 41);
    suite_close(&suite);
}

/* One stream breaks: both sides are told, also the one whose stream is only silent. */
static void broken_stream(void **state)
{
    struct suite suite;
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};

    (void)state;
    plan = alike("127.0.0.1", 4);
    open_pair(&suite, 4);
    for (int i = 0; i < 5; i++)
        node_send(&suite.nodes[0], 1, (uint64_t)LARGE_BYTES * 8);
    suite_poll(&suite);
    assert_int_equal(
        connect(link_of(&suite.nodes[1], 0)->streams[2]->fd, &nowhere, sizeof(nowhere)), 0);
    suite_until(&suite, both_heard_lost, &suite);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(suite.nodes[i].peers[1 - i].why, SHOAL_ERR_PEER_LOST);
        assert_non_null(strstr(suite.nodes[i].peers[1 - i].text, "by lo broke"));
    }
    suite_close(&suite);
}

/* The peer has no address that the second interface leads to. */
static void unreachable_by_one_interface(void **state)
{
    struct suite suite;

    (void)state;
    if (!has_ipv6())
        skip_because("no ::1 on this machine");
    plan = (struct plan){.interface = {"127.0.0.1,::1", "127.0.0.1"}, .connect_timeout_ms = 300};
    suite_open(&suite, &fixture, 2);
    node_send(&suite.nodes[0], 1, 10);
    suite_until(&suite, both_heard_lost, &suite);
    assert_int_equal(suite.nodes[0].peers[1].why, SHOAL_ERR_PEER_UNREACHABLE);
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(suite.nodes[i].peers[1 - i].text, "rank 1 by ::1, for stream 1"));
    suite_close(&suite);
}

static enum shoal_status try_open(const char *interface, int streams)
{
    struct node *node = calloc(1, sizeof(*node));
    enum shoal_status status;

    plan = alike(interface, streams);
    status = node_open(node, &fixture, &plan, 0, 2);
    if (status == SHOAL_OK)
        node_close(node, 0);
    free(node);
    return status;
}

static void wrong_options(void **state)
{
    (void)state;
    assert_int_equal(try_open(NULL, 8), SHOAL_OK);
    assert_int_equal(try_open(NULL, 9), SHOAL_ERR_ARGUMENT);
    assert_int_equal(try_open(NULL, -1), SHOAL_ERR_ARGUMENT);
    assert_int_equal(try_open("127.0.0.1,", 0), SHOAL_ERR_OPTION);
    assert_int_equal(try_open(",127.0.0.1", 0), SHOAL_ERR_OPTION);
    assert_non_null(strstr(base_error_text(), "eth0,eth1"));
    assert_int_equal(try_open("127.0.0.1,nosuch0", 0), SHOAL_ERR_OPTION);
    assert_non_null(strstr(base_error_text(), "SHOAL_INTERFACE=nosuch0"));
    assert_non_null(strstr(base_error_text(), "lo 127.0.0.1"));
    assert_int_equal(try_open("lo,127.0", 0), SHOAL_ERR_OPTION);
    assert_non_null(strstr(base_error_text(), "lo and 127.0 both mean lo"));
    assert_int_equal(try_open("a,b,c,d,e,f,g,h,i", 0), SHOAL_ERR_OPTION);
    assert_non_null(strstr(base_error_text(), "more than 8"));
    if (!has_ipv6())
        return;
    assert_int_equal(try_open("127.0.0.1,::1", 1), SHOAL_ERR_OPTION);
    assert_non_null(strstr(base_error_text(), "SHOAL_STREAMS=1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_frames_are_cut),         cmocka_unit_test(sides_that_differ),
        cmocka_unit_test(number_that_changes),          cmocka_unit_test(number_that_is_fixed),
        cmocka_unit_test(more_that_cannot_be_opened),   cmocka_unit_test(two_interfaces),
        cmocka_unit_test(withdrawn_while_cut),          cmocka_unit_test(broken_stream),
        cmocka_unit_test(unreachable_by_one_interface), cmocka_unit_test(wrong_options),
    };
    int failed = cmocka_run_group_tests_name("tcp, several streams", tests, NULL, NULL);

    plan = alike("127.0.0.1", 4);
    failed += net_conformance_run(&fixture);
    return failed;
}
