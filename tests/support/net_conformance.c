/* SPDX-License-Identifier: Apache-2.0 */
/* net_conformance.c: what a transport must do, driven by one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "support/holdings.h"
#include "support/net_conformance.h"
#include "support/skip.h"

#define LARGE_BYTES ((UINT64_C(1) << 20) + 7)

static const struct net_fixture *tested;

static const uint64_t sizes[] = {0, 1, 63, 64, 65, 4095, 4096, LARGE_BYTES};
#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))

/* ---- the suite's frame ---- */

static void exchange_addresses(struct suite *suite)
{
    unsigned char(*addresses)[NET_ADDRESS_BYTES] = calloc((size_t)suite->size, NET_ADDRESS_BYTES);
    size_t address_bytes[NODE_PEERS_MAX];

    for (int i = 0; i < suite->size; i++) {
        memcpy(addresses[i], suite->nodes[i].address, suite->nodes[i].address_bytes);
        address_bytes[i] = suite->nodes[i].address_bytes;
    }
    for (int i = 0; i < suite->size; i++)
        assert_int_equal(node_meet(&suite->nodes[i],
                                   (const unsigned char(*)[NET_ADDRESS_BYTES])addresses,
                                   address_bytes),
                         SHOAL_OK);
    free(addresses);
}

void suite_open(struct suite *suite, const struct net_fixture *fixture, int size)
{
    assert_true(size <= NODE_PEERS_MAX);
    *suite = (struct suite){.fixture = fixture,
                            .size = size,
                            .memory_blocks = base_memory_blocks(),
                            .descriptors = open_descriptors()};
    suite->world = fixture->create(size);
    suite->nodes = calloc((size_t)size, sizeof(*suite->nodes));
    for (int i = 0; i < size; i++) {
        if (node_open(&suite->nodes[i], fixture, suite->world, i, size) != SHOAL_OK)
            fail_msg("open of rank %d: %s", i, base_error_text());
    }
    exchange_addresses(suite);
}

void suite_poll(struct suite *suite)
{
    if (suite->fixture->step != NULL)
        suite->fixture->step(suite->world);
    for (int i = 0; i < suite->size; i++) {
        if (suite->nodes[i].endpoint != NULL)
            node_poll(&suite->nodes[i]);
        if (suite->nodes[i].fault[0] != '\0')
            fail_msg("%s", suite->nodes[i].fault);
    }
}

void suite_until(struct suite *suite, bool (*done)(void *user), void *user)
{
    int64_t deadline_ns = base_deadline_ns(SUITE_LIMIT_MS);

    while (!done(user)) {
        suite_poll(suite);
        if (base_now_ns() > deadline_ns)
            fail_msg("nothing came of it in %d s", SUITE_LIMIT_MS / 1000);
    }
}

struct expectation {
    struct node *node;
    uint64_t count;
};

static bool has_received(void *user)
{
    struct expectation *expectation = user;

    return expectation->node->received_total >= expectation->count;
}

void suite_until_received(struct suite *suite, int rank, uint64_t count)
{
    struct expectation expectation = {&suite->nodes[rank], count};

    suite_until(suite, has_received, &expectation);
    assert_int_equal(suite->nodes[rank].received_total, count);
}

void suite_close(struct suite *suite)
{
    for (int i = 0; i < suite->size; i++) {
        node_close(&suite->nodes[i], 0);
        if (suite->nodes[i].fault[0] != '\0')
            fail_msg("%s", suite->nodes[i].fault);
    }
    suite->fixture->destroy(suite->world);
    free(suite->nodes);
    assert_int_equal(base_memory_blocks(), suite->memory_blocks);
    assert_int_equal(open_descriptors(), suite->descriptors);
}

static bool nothing_under_way(void *user)
{
    struct suite *suite = user;

    for (int i = 0; i < suite->size; i++) {
        for (int j = 0; j < suite->size; j++) {
            if (suite->nodes[i].peers[j].under_way != NULL)
                return false;
        }
    }
    return true;
}

static bool heard_end(void *user)
{
    struct node_peer *peer = user;

    return peer->lost_count + peer->left_count > 0;
}

static bool heard_lost(void *user)
{
    return ((struct node_peer *)user)->lost_count > 0;
}

struct half_way {
    const struct suite *suite;
    uint64_t received;
};

static bool half_way_or_whole(void *user)
{
    const struct half_way *half_way = user;

    return half_way->suite->nodes[1].peers[0].arriving != NULL ||
           half_way->suite->nodes[1].received_total > half_way->received;
}

/* Polls until a large frame from rank 0 has begun to arrive at rank 1. False: it came in one piece,
 * as it may in a simulated network; then there is no middle of a frame to test. */
static bool comes_half_way(struct suite *suite)
{
    struct half_way half_way = {suite, suite->nodes[1].received_total};

    suite_until(suite, half_way_or_whole, &half_way);
    return suite->nodes[1].peers[0].arriving != NULL;
}

/* ---- what goes in comes out ---- */

static void complete(void **state)
{
    (void)state;
    net_transport_check(tested->transport);
}

static void sizes_both_ways(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        node_send(&suite.nodes[0], 1, sizes[i]);
        suite_until_received(&suite, 1, i + 1);
        node_send(&suite.nodes[1], 0, sizes[i]);
        suite_until_received(&suite, 0, i + 1);
    }
    suite_until(&suite, nothing_under_way, &suite);
    suite_close(&suite);
}

static void sizes_all_at_once(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < SIZE_COUNT; i++) {
            node_send(&suite.nodes[0], 1, sizes[i]);
            node_send(&suite.nodes[1], 0, sizes[SIZE_COUNT - 1 - i]);
        }
    }
    suite_until_received(&suite, 0, 3 * SIZE_COUNT);
    suite_until_received(&suite, 1, 3 * SIZE_COUNT);
    suite_until(&suite, nothing_under_way, &suite);
    assert_int_equal(suite.nodes[0].sent_total, 3 * SIZE_COUNT);
    suite_close(&suite);
}

static void many_peers(void **state)
{
    enum { SIZE = 6, FRAMES = 40 };
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, SIZE);
    for (int frame = 0; frame < FRAMES; frame++) {
        for (int from = 0; from < SIZE; from++) {
            for (int to = 0; to < SIZE; to++) {
                if (to != from)
                    node_send(&suite.nodes[from], to, (uint64_t)(frame * 997 + to * 131) % 9000);
            }
        }
    }
    for (int i = 0; i < SIZE; i++)
        suite_until_received(&suite, i, FRAMES * (SIZE - 1));
    suite_close(&suite);
}

static void simultaneous_first_sends(void **state)
{
    enum { SIZE = 4 };

    (void)state;
    for (int round = 0; round < 20; round++) {
        struct suite suite;

        suite_open(&suite, tested, SIZE);
        for (int from = 0; from < SIZE; from++) {
            for (int to = 0; to < SIZE; to++) {
                if (to != from)
                    node_send(&suite.nodes[from], to, sizes[round % (int)SIZE_COUNT] % 5000);
            }
            if (round % 2 == 1)
                node_poll(&suite.nodes[from]);
        }
        for (int i = 0; i < SIZE; i++)
            suite_until_received(&suite, i, SIZE - 1);
        suite_close(&suite);
    }
}

static void small_frames(void **state)
{
    enum { FRAMES = 5000 };
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    for (int i = 0; i < FRAMES; i++) {
        node_send(&suite.nodes[0], 1, 8);
        if (i % 100 == 99)
            suite_poll(&suite);
    }
    suite_until_received(&suite, 1, FRAMES);
    suite_close(&suite);
}

/* ---- sends from within events ---- */

static void answer(struct node *node, int peer, const struct net_header *header)
{
    (void)header;
    if (node->peers[peer].sent_number < 300)
        node_send(node, peer, node->peers[peer].sent_number % 200);
}

static void send_within_received(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    suite.nodes[0].on_received = answer;
    suite.nodes[1].on_received = answer;
    node_send(&suite.nodes[0], 1, 5);
    suite_until_received(&suite, 1, 300);
    suite_close(&suite);
}

static void send_another(struct node *node, int peer)
{
    if (node->peers[peer].sent_number < 20000)
        node_send(node, peer, 1);
}

/* Thousands of sends, each from within the last one's event, must not nest on the stack. */
static void send_within_sent(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    suite.nodes[0].on_sent = send_another;
    node_send(&suite.nodes[0], 1, 1);
    suite_until_received(&suite, 1, 20000);
    suite_close(&suite);
}

/* ---- frames taken back, payloads thrown away ---- */

static void withdraw_unsent(void **state)
{
    struct suite suite;
    struct net_frame *second;

    (void)state;
    suite_open(&suite, tested, 2);
    node_send(&suite.nodes[0], 1, 32 * LARGE_BYTES);
    second = node_send(&suite.nodes[0], 1, 100);
    assert_int_equal(suite.nodes[0].sent_total, 0);
    node_withdraw(&suite.nodes[0], 1, second);
    suite.nodes[0].peers[1].sent_number--;
    node_send(&suite.nodes[0], 1, 200);
    suite_until_received(&suite, 1, 2);
    suite_until(&suite, nothing_under_way, &suite);
    assert_int_equal(suite.nodes[0].sent_total, 2);
    suite_close(&suite);
}

/* The receiver of a frame that was withdrawn half-way still gets the bytes it had when it was sent,
 * and then the next frame. */
static void withdraw_half_sent(void **state)
{
    struct suite suite;
    struct net_frame *first;

    (void)state;
    suite_open(&suite, tested, 2);
    node_send(&suite.nodes[1], 0, 1);
    suite_until_received(&suite, 0, 1);
    first = node_send(&suite.nodes[0], 1, 32 * LARGE_BYTES);
    if (comes_half_way(&suite) && suite.nodes[0].sent_total == 0) {
        node_withdraw(&suite.nodes[0], 1, first);
        node_send(&suite.nodes[0], 1, 200);
        suite_until_received(&suite, 1, 2);
        suite_until(&suite, nothing_under_way, &suite);
        assert_int_equal(suite.nodes[0].sent_total, 1);
    }
    suite_close(&suite);
}

static void divert(void **state)
{
    struct suite suite;
    struct node_peer *from;

    (void)state;
    suite_open(&suite, tested, 2);
    from = &suite.nodes[1].peers[0];
    node_send(&suite.nodes[0], 1, 32 * LARGE_BYTES);
    node_send(&suite.nodes[0], 1, 300);
    if (comes_half_way(&suite)) {
        tested->transport->divert(suite.nodes[1].endpoint, 0);
        free(from->arriving);
        from->arriving = NULL;
        from->received_number++;
        suite_until_received(&suite, 1, 1);
    }
    suite_until(&suite, nothing_under_way, &suite);
    assert_int_equal(suite.nodes[0].sent_total, 2);
    suite_close(&suite);
}

static void throw_away(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    suite.nodes[1].refuse = true;
    node_send(&suite.nodes[0], 1, 10);
    node_send(&suite.nodes[0], 1, LARGE_BYTES);
    node_send(&suite.nodes[0], 1, 0);
    suite.nodes[1].peers[0].received_number = 2;
    suite_until_received(&suite, 1, 1);
    suite.nodes[1].refuse = false;
    node_send(&suite.nodes[0], 1, 10);
    suite_until_received(&suite, 1, 2);
    suite_close(&suite);
}

/* ---- ends ---- */

static void good_bye_is_left(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 3);
    node_send(&suite.nodes[0], 1, 10);
    suite_until_received(&suite, 1, 1);
    node_send(&suite.nodes[0], 1, 2000);
    node_close(&suite.nodes[0], 5000);
    suite_until(&suite, heard_end, &suite.nodes[1].peers[0]);
    assert_int_equal(suite.nodes[1].received_total, 2);
    assert_int_equal(suite.nodes[1].peers[0].left_count, 1);
    assert_int_equal(suite.nodes[1].peers[0].lost_count, 0);
    node_send(&suite.nodes[1], 0, 10);
    suite_until(&suite, heard_lost, &suite.nodes[1].peers[0]);
    assert_int_equal(suite.nodes[1].peers[0].why, SHOAL_ERR_PEER_LOST);
    assert_null(suite.nodes[1].peers[0].under_way);
    node_send(&suite.nodes[1], 2, 10);
    suite_until_received(&suite, 2, 1);
    suite_close(&suite);
}

static void close_flushes(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    node_send(&suite.nodes[0], 1, 0);
    suite_until_received(&suite, 1, 1);
    /* What the other side would take without being polled: rings and socket buffers hold it. */
    for (int i = 0; i < 10; i++)
        node_send(&suite.nodes[0], 1, 20);
    node_close(&suite.nodes[0], 5000);
    suite_until(&suite, heard_end, &suite.nodes[1].peers[0]);
    assert_int_equal(suite.nodes[1].received_total, 11);
    assert_int_equal(suite.nodes[1].peers[0].left_count, 1);
    suite_close(&suite);
}

static void close_while_peer_sends(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    node_send(&suite.nodes[0], 1, 1);
    suite_until_received(&suite, 1, 1);
    for (int i = 0; i < 40; i++)
        node_send(&suite.nodes[1], 0, LARGE_BYTES);
    node_close(&suite.nodes[0], 100);
    suite_until(&suite, heard_end, &suite.nodes[1].peers[0]);
    suite_until(&suite, nothing_under_way, &suite);
    assert_int_equal(suite.nodes[1].peers[0].left_count, 1);
    assert_int_equal(suite.nodes[1].peers[0].lost_count, suite.nodes[1].sent_total < 40);
    suite_close(&suite);
}

/* Closing in the middle of a large frame without time to finish it is no good order. */
static void close_in_mid_frame_is_lost(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    node_send(&suite.nodes[0], 1, 1);
    suite_until_received(&suite, 1, 1);
    node_send(&suite.nodes[0], 1, 64 * LARGE_BYTES);
    if (comes_half_way(&suite) && suite.nodes[0].sent_total == 1) {
        node_close(&suite.nodes[0], 0);
        suite_until(&suite, heard_end, &suite.nodes[1].peers[0]);
        assert_int_equal(suite.nodes[1].peers[0].left_count, 0);
        assert_int_equal(suite.nodes[1].peers[0].lost_count, 1);
    }
    suite_close(&suite);
}

static void killed_is_lost(void **state)
{
    struct suite suite;

    (void)state;
    if (tested->kill == NULL)
        skip_because("%s: a rank dies only with its process", tested->transport->name);
    suite_open(&suite, tested, 3);
    node_send(&suite.nodes[0], 1, 10);
    node_send(&suite.nodes[2], 1, 10);
    suite_until_received(&suite, 1, 2);
    for (int i = 0; i < 8; i++)
        node_send(&suite.nodes[1], 0, LARGE_BYTES);
    tested->kill(suite.world, 0);
    suite_until(&suite, heard_lost, &suite.nodes[1].peers[0]);
    assert_int_equal(suite.nodes[1].peers[0].why, SHOAL_ERR_PEER_LOST);
    assert_int_equal(suite.nodes[1].peers[0].left_count, 0);
    assert_null(suite.nodes[1].peers[0].under_way);
    node_send(&suite.nodes[1], 0, 10);
    assert_int_equal(suite.nodes[1].peers[0].lost_count, 2);
    assert_null(suite.nodes[1].peers[0].under_way);
    node_send(&suite.nodes[1], 2, 10);
    suite_until_received(&suite, 2, 1);
    suite_close(&suite);
}

static void excluded_is_unreachable(void **state)
{
    struct suite suite;
    unsigned char(*addresses)[NET_ADDRESS_BYTES] = calloc(2, NET_ADDRESS_BYTES);
    size_t none[2] = {0, 0};

    (void)state;
    suite_open(&suite, tested, 2);
    node_meet(&suite.nodes[0], (const unsigned char(*)[NET_ADDRESS_BYTES])addresses, none);
    node_send(&suite.nodes[0], 1, 10);
    suite_until(&suite, heard_lost, &suite.nodes[0].peers[1]);
    assert_int_equal(suite.nodes[0].peers[1].why, SHOAL_ERR_PEER_UNREACHABLE);
    assert_null(suite.nodes[0].peers[1].under_way);
    free(addresses);
    suite_close(&suite);
}

/* ---- memory ---- */

static void no_allocation_once_the_link_stands(void **state)
{
    struct suite suite;
    uint64_t before;

    (void)state;
    if (tested->allocates)
        skip_because("%s takes memory for frames under way", tested->transport->name);
    suite_open(&suite, tested, 2);
    node_send(&suite.nodes[0], 1, 1);
    suite_until_received(&suite, 1, 1);
    node_send(&suite.nodes[1], 0, 1);
    suite_until_received(&suite, 0, 1);
    before = base_memory_count();
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        node_send(&suite.nodes[0], 1, sizes[i]);
        node_send(&suite.nodes[1], 0, sizes[i]);
    }
    suite_until_received(&suite, 1, 1 + SIZE_COUNT);
    suite_until_received(&suite, 0, 1 + SIZE_COUNT);
    assert_int_equal(base_memory_count(), before);
    suite_close(&suite);
}

static bool open_fails(void *world, uint64_t nth)
{
    struct node *node = calloc(1, sizeof(*node));
    enum shoal_status status;
    uint64_t count;

    base_memory_fail_at(nth);
    count = base_memory_count();
    status = node_open(node, tested, world, 0, 2);
    count = base_memory_count() - count;
    base_memory_fail_at(0);
    if (status != SHOAL_OK) {
        assert_int_equal(status, SHOAL_ERR_MEMORY);
        assert_string_not_equal(base_error_text(), "");
    } else {
        assert_true(count < nth);
        node_close(node, 0);
    }
    free(node);
    return status != SHOAL_OK;
}

static void open_without_memory(void **state)
{
    size_t blocks = base_memory_blocks();
    int descriptors = open_descriptors();
    uint64_t nth = 1;

    (void)state;
    for (bool failed = true; failed; nth++) {
        void *world = tested->create(2);

        failed = open_fails(world, nth);
        tested->destroy(world);
    }
    assert_true(nth > 2);
    assert_int_equal(base_memory_blocks(), blocks);
    assert_int_equal(open_descriptors(), descriptors);
}

static bool received_or_lost(void *user)
{
    struct suite *suite = user;

    return suite->nodes[1].received_total == 1 || suite->nodes[0].peers[1].lost_count > 0;
}

/* Each allocation on the way to the first frame fails once: the frame arrives all the same, or the
 * link is lost on both sides that know of it; never a crash, a leak or a hang. */
static void link_without_memory(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth < 16; nth++) {
        struct suite suite;

        suite_open(&suite, tested, 2);
        base_memory_fail_at(nth);
        node_send(&suite.nodes[0], 1, 100);
        suite_until(&suite, received_or_lost, &suite);
        base_memory_fail_at(0);
        suite_close(&suite);
    }
}

int net_conformance_run(const struct net_fixture *fixture)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complete),
        cmocka_unit_test(sizes_both_ways),
        cmocka_unit_test(sizes_all_at_once),
        cmocka_unit_test(many_peers),
        cmocka_unit_test(simultaneous_first_sends),
        cmocka_unit_test(small_frames),
        cmocka_unit_test(send_within_received),
        cmocka_unit_test(send_within_sent),
        cmocka_unit_test(withdraw_unsent),
        cmocka_unit_test(withdraw_half_sent),
        cmocka_unit_test(divert),
        cmocka_unit_test(throw_away),
        cmocka_unit_test(good_bye_is_left),
        cmocka_unit_test(close_flushes),
        cmocka_unit_test(close_while_peer_sends),
        cmocka_unit_test(close_in_mid_frame_is_lost),
        cmocka_unit_test(killed_is_lost),
        cmocka_unit_test(excluded_is_unreachable),
        cmocka_unit_test(no_allocation_once_the_link_stands),
        cmocka_unit_test(open_without_memory),
        cmocka_unit_test(link_without_memory),
    };
    int failed;

    tested = fixture;
    failed = cmocka_run_group_tests_name(fixture->transport->name, tests, NULL, NULL);
    if (fixture->threads)
        failed += net_conformance_run_threads(fixture);
    else
        print_message("%s: not in threads, its ranks belong to one\n", fixture->transport->name);
    if (fixture->processes)
        failed += net_conformance_run_processes(fixture);
    else
        print_message("%s: not in processes, its ranks belong to one\n", fixture->transport->name);
    return failed;
}
