/* SPDX-License-Identifier: Apache-2.0 */
/* sim_test.c: the conformance suite over simulated networks of several kinds, and the simulation's
 * own promises: the same seed gives the same run, and time passes as the links' rates say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "net/sim.h"
#include "support/net_conformance.h"

#define MEGA UINT64_C(1000000)

static struct net_sim_options plan;

static void *create(int size)
{
    struct net_sim_world *world = NULL;
    struct net_sim_options options = plan;

    options.size = size;
    return net_sim_world_create(&options, &world) == SHOAL_OK ? world : NULL;
}

static void destroy(void *world)
{
    net_sim_world_free(world);
}

static void fill(void *world, int rank, struct net_endpoint_options *options)
{
    (void)rank;
    options->context = world;
}

static void step(void *world)
{
    net_sim_step(world, BASE_NO_DEADLINE);
}

static void kill_rank(void *world, int rank)
{
    net_sim_kill(world, rank, net_sim_now_ns(world));
}

static const struct net_fixture fixture = {.transport = &net_sim,
                                           .allocates = true,
                                           .create = create,
                                           .destroy = destroy,
                                           .fill = fill,
                                           .step = step,
                                           .kill = kill_rank};

/* ---- the same seed gives the same run ---- */

/* A number that differs if any delivery differs in time, order or size. */
static uint64_t run_digest(uint64_t seed)
{
    enum { SIZE = 4 };
    struct suite suite;
    uint64_t digest = 0;
    int rank;

    plan.seed = seed;
    suite_open(&suite, &fixture, SIZE);
    for (int frame = 0; frame < 30; frame++) {
        for (int from = 0; from < SIZE; from++)
            node_send(&suite.nodes[from], (from + 1 + frame % (SIZE - 1)) % SIZE,
                      (uint64_t)(frame * 701 + from * 37) % 9000);
    }
    net_sim_stop(suite.world, 2, 20000, 60000);
    while ((rank = net_sim_step(suite.world, BASE_NO_DEADLINE)) >= 0) {
        uint64_t events = (uint64_t)node_poll(&suite.nodes[rank]);

        digest = (digest ^ (uint64_t)net_sim_now_ns(suite.world)) * 0x100000001B3u;
        digest = (digest ^ (uint64_t)rank << 32 ^ events) * 0x100000001B3u;
    }
    for (int i = 0; i < SIZE; i++)
        assert_int_equal(suite.nodes[i].received_total, 30);
    suite_close(&suite);
    return digest;
}

static void seed_decides(void **state)
{
    uint64_t first;

    (void)state;
    plan = (struct net_sim_options){.latency_min_ns = 1000,
                                    .latency_max_ns = 9000,
                                    .bytes_per_ns = 0.5,
                                    .piece_bytes_max = 700};
    first = run_digest(1);
    assert_int_equal(run_digest(1), first);
    assert_int_not_equal(run_digest(2), first);
}

/* ---- time ---- */

/* Runs to the end and returns when the last rank heard something. */
static int64_t run_out(struct suite *suite)
{
    int64_t last_ns = 0;
    int rank;

    while ((rank = net_sim_step(suite->world, BASE_NO_DEADLINE)) >= 0) {
        if (node_poll(&suite->nodes[rank]) > 0)
            last_ns = net_sim_now_ns(suite->world);
    }
    return last_ns;
}

static void assert_near(int64_t value, int64_t wanted, int64_t within)
{
    assert_in_range(value, wanted - within, wanted + within);
}

static void rates_and_latency(void **state)
{
    struct suite suite;

    (void)state;
    plan = (struct net_sim_options){
        .latency_min_ns = 5000, .latency_max_ns = 5000, .bytes_per_ns = 1, .piece_bytes_max = 1500};
    suite_open(&suite, &fixture, 4);
    node_send(&suite.nodes[0], 1, MEGA);
    assert_near(run_out(&suite), MEGA + 5000, 2000);
    suite_close(&suite);

    /* One port in, one port out: two senders share the receiver's, two receivers the sender's. */
    suite_open(&suite, &fixture, 4);
    node_send(&suite.nodes[0], 2, MEGA);
    node_send(&suite.nodes[1], 2, MEGA);
    assert_near(run_out(&suite), 2 * MEGA + 5000, 4000);
    suite_close(&suite);
    suite_open(&suite, &fixture, 4);
    node_send(&suite.nodes[0], 1, MEGA);
    node_send(&suite.nodes[0], 2, MEGA);
    assert_near(run_out(&suite), 2 * MEGA + 5000, 4000);
    suite_close(&suite);

    /* Both directions of a port are free of each other, and so are pairs. */
    suite_open(&suite, &fixture, 4);
    node_send(&suite.nodes[0], 1, MEGA);
    node_send(&suite.nodes[1], 0, MEGA);
    node_send(&suite.nodes[2], 3, MEGA);
    assert_near(run_out(&suite), MEGA + 5000, 2000);
    suite_close(&suite);
}

static void time_limit(void **state)
{
    struct suite suite;

    (void)state;
    plan = (struct net_sim_options){.latency_min_ns = 5000, .latency_max_ns = 5000};
    suite_open(&suite, &fixture, 2);
    node_send(&suite.nodes[0], 1, 1);
    assert_int_equal(net_sim_step(suite.world, BASE_NO_DEADLINE), 0);
    assert_int_equal(net_sim_step(suite.world, 4000), -1);
    assert_int_equal(net_sim_now_ns(suite.world), 4000);
    assert_int_equal(net_sim_step(suite.world, 6000), 1);
    assert_int_equal(net_sim_now_ns(suite.world), 5000);
    assert_int_equal(net_sim_step(suite.world, 7000), -1);
    assert_int_equal(net_sim_now_ns(suite.world), 7000);
    assert_int_equal(net_sim_frames(suite.world, 0), 1);
    assert_int_equal(net_sim_bytes(suite.world, 0), 1);
    suite_close(&suite);
}

/* ---- what befalls ranks ---- */

static void stopped_rank_is_late(void **state)
{
    struct suite suite;

    (void)state;
    plan = (struct net_sim_options){.latency_min_ns = 1000, .latency_max_ns = 1000};
    suite_open(&suite, &fixture, 2);
    net_sim_stop(suite.world, 1, 0, 50000);
    assert_int_equal(net_sim_step(suite.world, 0), -1);
    node_send(&suite.nodes[0], 1, 10);
    node_send(&suite.nodes[1], 0, 10);
    assert_int_equal(run_out(&suite), 51000);
    assert_int_equal(suite.nodes[0].received_total, 1);
    assert_int_equal(suite.nodes[1].received_total, 1);
    assert_int_equal(suite.nodes[0].peers[1].lost_count, 0);
    suite_close(&suite);
}

static void killed_at_its_time(void **state)
{
    struct suite suite;

    (void)state;
    plan = (struct net_sim_options){
        .latency_min_ns = 1000, .latency_max_ns = 1000, .bytes_per_ns = 1, .piece_bytes_max = 1000};
    suite_open(&suite, &fixture, 3);
    node_send(&suite.nodes[0], 1, 5000);
    node_send(&suite.nodes[0], 1, MEGA);
    net_sim_kill(suite.world, 0, 20000);
    assert_int_equal(run_out(&suite), 21000);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(suite.nodes[i].peers[0].lost_count, 1);
        assert_int_equal(suite.nodes[i].peers[0].why, SHOAL_ERR_PEER_LOST);
    }
    assert_int_equal(suite.nodes[1].received_total, 1);
    assert_int_equal(net_sim_frames(suite.world, 0), 1);
    suite_close(&suite);
}

static void cut_is_silent(void **state)
{
    struct suite suite;

    (void)state;
    plan = (struct net_sim_options){.latency_min_ns = 1000, .latency_max_ns = 1000};
    suite_open(&suite, &fixture, 3);
    net_sim_cut(suite.world, 1, 0, 5000);
    node_send(&suite.nodes[0], 1, 10);
    run_out(&suite);
    assert_int_equal(suite.nodes[1].received_total, 1);
    net_sim_step(suite.world, 5000);
    node_send(&suite.nodes[0], 1, 10);
    node_send(&suite.nodes[1], 0, 10);
    node_send(&suite.nodes[0], 2, 10);
    run_out(&suite);
    assert_int_equal(suite.nodes[1].received_total, 1);
    assert_int_equal(suite.nodes[0].received_total, 0);
    assert_int_equal(suite.nodes[2].received_total, 1);
    assert_int_equal(suite.nodes[0].sent_total, 3);
    for (int i = 0; i < 2; i++)
        assert_int_equal(suite.nodes[i].peers[1 - i].lost_count, 0);
    suite_close(&suite);
}

/* A frame for a rank that closed before it ever heard of the sender is not swallowed. */
static void closed_rank_is_unreachable(void **state)
{
    struct suite suite;

    (void)state;
    plan = (struct net_sim_options){.latency_min_ns = 1000, .latency_max_ns = 1000};
    suite_open(&suite, &fixture, 2);
    node_close(&suite.nodes[1], 0);
    node_send(&suite.nodes[0], 1, 10);
    run_out(&suite);
    assert_int_equal(suite.nodes[0].peers[1].lost_count, 1);
    suite_close(&suite);
}

static void wrong_worlds(void **state)
{
    struct net_sim_options options = {.size = 0};
    struct net_sim_world *world = NULL;

    (void)state;
    assert_int_equal(net_sim_world_create(&options, &world), SHOAL_ERR_ARGUMENT);
    options = (struct net_sim_options){.size = 2, .latency_min_ns = 5, .latency_max_ns = 4};
    assert_int_equal(net_sim_world_create(&options, &world), SHOAL_ERR_ARGUMENT);
    assert_null(world);
}

int main(void)
{
    static const struct net_sim_options kinds[] = {
        {.seed = 1,
         .latency_min_ns = 500,
         .latency_max_ns = 500000,
         .bytes_per_ns = 2,
         .piece_bytes_max = 100000},
        {.seed = 2, .latency_min_ns = 0, .latency_max_ns = 0, .bytes_per_ns = 0.1},
        {.seed = 3, .latency_min_ns = 1, .latency_max_ns = 1000000, .piece_bytes_max = 50000},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seed_decides),
        cmocka_unit_test(rates_and_latency),
        cmocka_unit_test(time_limit),
        cmocka_unit_test(stopped_rank_is_late),
        cmocka_unit_test(killed_at_its_time),
        cmocka_unit_test(cut_is_silent),
        cmocka_unit_test(closed_rank_is_unreachable),
        cmocka_unit_test(wrong_worlds),
    };
    int failed = 0;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        plan = kinds[i];
        failed += net_conformance_run(&fixture);
    }
    return failed + cmocka_run_group_tests_name("sim, alone", tests, NULL, NULL);
}
