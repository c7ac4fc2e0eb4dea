/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_test.c: times that can be computed by hand, bounds that every algorithm must respect, and one
 * host that stands for all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "coll/coll.h"
#include "sim/sim.h"
#include "support/coll_case.h"

static double link_rate[SIM_HOSTS_MAX];

/* 1 byte per ns between hosts, so that elements of 4 bytes take 4 ns; all else is free. */
static const struct sim_platform wire = {.own_bytes_per_ns = link_rate,
                                         .own_host_last = -1,
                                         .accelerators = 1,
                                         .link_latency_ns = 100,
                                         .link_bytes_per_ns = 1,
                                         .copy_bytes_per_ns = 1e9,
                                         .reduce_bytes_per_ns = 1e9,
                                         .eager_bytes = UINT64_MAX};

/* The same, but long messages wait until they are asked for, as the engine does it. */
static struct sim_platform asked(void)
{
    struct sim_platform platform = wire;
    platform.eager_bytes = 0;
    return platform;
}

static enum shoal_status simulate(const struct coll_group *group, const struct sim_platform *links,
                                  struct sim_step_time *times, double *time_ns)
{
    struct sim_programs *programs;
    struct sim_platform platform = *links;
    platform.host_count = group->shapes[0].host_count;
    enum shoal_status status = sim_programs_pack(group->shapes, group->schedules, &programs);
    if (status != SHOAL_OK)
        return status;
    struct sim_operation operation = {.programs = programs};
    struct sim_run run = {.platform = &platform,
                          .operations = &operation,
                          .operation_count = 1,
                          .in_flight = 1,
                          .every_rank = true,
                          .times = times};
    status = sim_run(&run);
    sim_programs_free(programs);
    *time_ns = run.end_ns;
    return status;
}

static double predict(const struct coll_case *one, const struct sim_platform *links,
                      double *bound_ns)
{
    struct coll_group *group;
    double time_ns = -1;
    assert_int_equal(BASE_NEW(&group, "a test's group"), SHOAL_OK);
    assert_true(case_shapes(one, group));
    assert_int_equal(case_schedules(one, group), SHOAL_OK);
    if (simulate(group, links, NULL, &time_ns) != SHOAL_OK)
        fail_msg("%s: %s", case_text(one), base_error_text());
    struct sim_platform platform = *links;
    platform.host_count = group->shapes[0].host_count;
    if (bound_ns)
        *bound_ns = sim_bound(&platform, group->shapes);
    case_release(one, group);
    base_free(group);
    return time_ns;
}

static struct coll_case make(enum coll_kind kind, const char *name, int size, uint64_t count,
                             uint64_t segment_count)
{
    return (struct coll_case){.algorithm = coll_find(kind, name),
                              .size = size,
                              .count = count,
                              .segment_count = segment_count,
                              .hosts = HOSTS_EACH};
}

static void test_times_by_hand(void **state)
{
    (void)state;
    static const struct {
        enum coll_kind kind;
        const char *name;
        int size;
        uint64_t count;
        double expected_ns;
        bool is_half;
    } cases[] = {
        {COLL_BROADCAST, "exchange", 2, 1000, 4000 + 100, false},
        {COLL_BROADCAST, "binomial", 4, 1000, 2 * (4000 + 100), false},
        {COLL_ALLGATHER, "direct", 4, 1000, 3 * 4000 + 100, false},
        {COLL_ALLGATHER, "ring", 4, 1000, 3 * (4000 + 100), false},
        {COLL_ALLREDUCE, "direct", 4, 4000, 2 * (3 * 4000 + 100), false},
        {COLL_ALLREDUCE, "ring", 4, 4000, 6 * (4000 + 100), false},
        {COLL_ALLREDUCE, "recursive_doubling", 4, 1000, 2 * (4000 + 100), false},
        {COLL_BARRIER, "dissemination", 8, 0, 3 * 100, false},
        {COLL_BARRIER, "direct", 8, 0, 100, false},
        /* Inputs and results of 2 bytes, sums of 4. */
        {COLL_ALLREDUCE, "direct", 4, 4000, 2 * (3 * 2000 + 100), true},
        {COLL_ALLREDUCE, "ring", 4, 4000, 4 * (2000 + 100) + 2 * (4000 + 100), true},
        {COLL_ALLREDUCE, "recursive_doubling", 4, 1000, 2000 + 100 + 4000 + 100, true},
        {COLL_REDUCE_SCATTER, "pairwise", 4, 1000, 3 * 2000 + 100, true},
        {COLL_REDUCE, "binomial", 4, 1000, 2000 + 100 + 4000 + 100, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct coll_case one =
            make(cases[i].kind, cases[i].name, cases[i].size, cases[i].count, 1000000);
        one.is_half = cases[i].is_half;
        double time_ns = predict(&one, &wire, NULL);
        if (time_ns < cases[i].expected_ns - 2 || time_ns > cases[i].expected_ns + 2)
            fail_msg("%s: %.0f ns, not %.0f", case_text(&one), time_ns, cases[i].expected_ns);
    }
}

/* With segments the large ones come close to the bound: that is why the table takes them. */
static void test_chosen_algorithms_are_near_the_bound(void **state)
{
    (void)state;
    static const struct {
        enum coll_kind kind;
        const char *name;
        double worst;
    } cases[] = {
        {COLL_ALLREDUCE, "direct", 1.10}, {COLL_REDUCE, "direct", 1.10},
        {COLL_BROADCAST, "direct", 1.10}, {COLL_BROADCAST, "chain", 1.15},
        {COLL_ALLGATHER, "direct", 1.01}, {COLL_REDUCE_SCATTER, "direct", 1.01},
        {COLL_ALLREDUCE, "ring", 1.10},   {COLL_ALLREDUCE, "halving_doubling", 1.11},
        {COLL_ALLTOALL, "direct", 1.01},
    };
    struct sim_platform links = asked();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t count = case_has_v(cases[i].kind) ? 100000 : 800000;
        struct coll_case one = make(cases[i].kind, cases[i].name, 8, count, 4000);
        double bound_ns, time_ns = predict(&one, &links, &bound_ns);
        if (time_ns > cases[i].worst * bound_ns)
            fail_msg("%s: %.2f times the bound", case_text(&one), time_ns / bound_ns);
    }
}

static void test_nothing_beats_the_bound(void **state)
{
    (void)state;
    struct sim_platform both = wire;
    both.link_latency_ns = 1000;
    both.local_latency_ns = 10;
    both.copy_bytes_per_ns = 8;
    both.reduce_bytes_per_ns = 4;
    for (int i = 0; coll_algorithms()[i]; i++)
        for (int size = 1; size <= 12; size++)
            for (int hosts = 0; hosts < 2 * HOSTS_LAYOUTS; hosts++) {
                struct coll_case one = {.algorithm = coll_algorithms()[i],
                                        .size = size,
                                        .count = 300,
                                        .segment_count = 50,
                                        .hosts = (enum case_hosts)(hosts % HOSTS_LAYOUTS),
                                        .is_half = hosts >= HOSTS_LAYOUTS};
                struct coll_group group;
                if (!case_shapes(&one, &group))
                    continue;
                double bound_ns, time_ns = predict(&one, &both, &bound_ns);
                if (time_ns < 0.999 * bound_ns)
                    fail_msg("%s: %.0f ns, less than %.0f", case_text(&one), time_ns, bound_ns);
            }
}

/* The port of a host is shared by its ranks, so two levels must beat one. */
static void test_two_levels_spare_the_port(void **state)
{
    (void)state;
    struct coll_case flat = make(COLL_ALLREDUCE, "direct", 8, 80000, 1000);
    struct coll_case level = make(COLL_ALLREDUCE, "two_level", 8, 80000, 1000);
    flat.hosts = level.hosts = HOSTS_PAIRS;
    struct sim_platform links = asked();
    double flat_ns = predict(&flat, &links, NULL), bound_ns;
    double level_ns = predict(&level, &links, &bound_ns);
    assert_true(level_ns < 0.53 * flat_ns);
    assert_true(level_ns < 1.02 * bound_ns);
}

/* Of 16-bit floats it sends sums in 4 bytes and results in 2, where all is 2 at the least. */
static void test_two_levels_pay_for_halves(void **state)
{
    (void)state;
    static const struct {
        enum coll_kind kind;
        uint64_t count;
        double worst;       /* times the bound */
        double most_direct; /* times what direct takes */
    } cases[] = {
        {COLL_ALLREDUCE, 800000, 1.55, 0.76},
        {COLL_REDUCE, 800000, 1.85, 1.02},
        {COLL_REDUCE_SCATTER, 100000, 2.05, 1.02},
    };
    struct sim_platform links = asked();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct coll_case flat = make(cases[i].kind, "direct", 8, cases[i].count, 4000);
        struct coll_case level = make(cases[i].kind, "two_level", 8, cases[i].count, 4000);
        flat.hosts = level.hosts = HOSTS_PAIRS;
        flat.is_half = level.is_half = true;
        double bound_ns, level_ns = predict(&level, &links, &bound_ns);
        double flat_ns = predict(&flat, &links, NULL);
        if (level_ns > cases[i].worst * bound_ns || level_ns > cases[i].most_direct * flat_ns)
            fail_msg("%s: %.2f times the bound, %.2f times direct", case_text(&level),
                     level_ns / bound_ns, level_ns / flat_ns);
    }
}

static void test_steps_have_times(void **state)
{
    (void)state;
    struct coll_case one = make(COLL_ALLREDUCE, "ring", 3, 30, 4);
    struct coll_group group;
    struct sim_step_time times[1000];
    double time_ns;
    assert_true(case_shapes(&one, &group));
    assert_int_equal(case_schedules(&one, &group), SHOAL_OK);
    assert_int_equal(simulate(&group, &wire, times, &time_ns), SHOAL_OK);
    uint32_t number = 0;
    for (int rank = 0; rank < 3; rank++) {
        const struct schedule *schedule = group.schedules[rank];
        for (uint32_t i = 0; i < schedule->step_count; i++) {
            const struct schedule_step *step = &schedule->steps[i];
            assert_true(times[number + i].end_ns >= times[number + i].start_ns);
            assert_true(times[number + i].end_ns <= time_ns);
            for (uint32_t k = 0; k < step->after_count; k++)
                assert_true(times[number + schedule->edges[step->after_first + k]].start_ns >=
                            times[number + i].end_ns);
        }
        number += schedule->step_count;
    }
    case_release(&one, &group);
}

/* ---- one host for all ---------------------------------------------------------------------- */

#define COUNT_EACH 4096

/* A platform on which everything costs something. */
static struct sim_platform costly(int hosts)
{
    struct sim_platform platform = wire;
    platform.host_count = hosts;
    platform.send = (struct sim_cost){300, 0.1};
    platform.receive = (struct sim_cost){400, 0.2};
    platform.local_latency_ns = 300;
    platform.copy_bytes_per_ns = 8;
    platform.reduce_bytes_per_ns = 4;
    platform.eager_bytes = 1000;
    return platform;
}

static struct sim_run run_on(const struct sim_platform *platform, struct sim_operation *operations,
                             int operation_count, bool every_rank)
{
    struct sim_run run = {.platform = platform,
                          .operations = operations,
                          .operation_count = operation_count,
                          .in_flight = 2,
                          .every_rank = every_rank};
    if (sim_run(&run) != SHOAL_OK)
        fail_msg("%s", base_error_text());
    return run;
}

static enum shoal_status make_programs(const char *name, int hosts, int ranks_per_host,
                                       uint64_t count, struct sim_programs **out)
{
    int host_of[CASE_RANKS_MAX];
    struct coll_shape shape = {.kind = COLL_ALLREDUCE,
                               .size = hosts * ranks_per_host,
                               .elem_bytes = 4,
                               .count = count,
                               .segment_count = 2000,
                               .host_of = host_of,
                               .host_count = hosts};
    for (int rank = 0; rank < shape.size; rank++)
        host_of[rank] = rank / ranks_per_host;
    return sim_programs_create(coll_find(COLL_ALLREDUCE, name), &shape, true, out);
}

static struct sim_programs *programs_for(const char *name, int hosts, int ranks_per_host,
                                         uint64_t count)
{
    struct sim_programs *programs;
    if (make_programs(name, hosts, ranks_per_host, count, &programs) != SHOAL_OK)
        fail_msg("%s", base_error_text());
    return programs;
}

/* Where hosts do the same, one of them takes the time that all of them take; where they do nearly
 * the same, nearly. */
static void test_one_host_stands_for_all(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int ranks_per_host;
        enum sim_symmetry symmetry;
    } cases[] = {{"ring", 1, SIM_TURN},
                 {"direct", 1, SIM_TURN},
                 {"exchange", 1, SIM_TURN},
                 {"two_level", 4, SIM_TURN},
                 {"recursive_doubling", 1, SIM_FLIP},
                 {"halving_doubling", 1, SIM_FLIP}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int hosts = 4; hosts <= 64 / cases[i].ranks_per_host; hosts *= 2) {
            struct sim_programs *programs =
                programs_for(cases[i].name, hosts, cases[i].ranks_per_host, COUNT_EACH * 16);
            struct sim_platform platform = costly(hosts);
            struct sim_operation one = {.programs = programs}, all = one;
            struct sim_run of_one = run_on(&platform, &one, 1, false);
            struct sim_run of_all = run_on(&platform, &all, 1, true);
            if (programs->symmetry != cases[i].symmetry || !of_one.one_host || of_all.one_host)
                fail_msg("%s on %d hosts: symmetry %d", cases[i].name, hosts, programs->symmetry);
            double allowed = programs->exact ? 1e-6 : 0.03;
            if (of_one.end_ns < (1 - allowed) * of_all.end_ns ||
                of_one.end_ns > (1 + allowed) * of_all.end_ns)
                fail_msg("%s on %d hosts: %.0f ns by one host, %.0f by all", cases[i].name, hosts,
                         of_one.end_ns, of_all.end_ns);
            sim_programs_free(programs);
        }
}

/* What has no symmetry is simulated rank by rank. */
static void test_uneven_hosts_are_simulated_one_by_one(void **state)
{
    (void)state;
    struct sim_programs *programs = programs_for("halving_doubling", 6, 1, COUNT_EACH);
    struct sim_platform platform = costly(6);
    struct sim_operation operation = {.programs = programs};
    assert_int_equal(programs->symmetry, SIM_NONE);
    assert_false(run_on(&platform, &operation, 1, false).one_host);
    sim_programs_free(programs);
}

/* ---- platforms that are not the same everywhere -------------------------------------------- */

static void test_a_slow_link_holds_up_all(void **state)
{
    (void)state;
    struct sim_programs *programs = programs_for("direct", 4, 1, COUNT_EACH * 16);
    struct sim_platform platform = costly(4);
    struct sim_operation operation = {.programs = programs};
    double even_ns = run_on(&platform, &operation, 1, false).end_ns;
    link_rate[2] = 0.25;
    platform.own_host_last = 2;
    struct sim_run slow = run_on(&platform, &operation, 1, false);
    link_rate[2] = 0;
    assert_false(slow.one_host);
    assert_true(slow.end_ns > 3.4 * even_ns && slow.end_ns < 4.2 * even_ns);
    sim_programs_free(programs);
}

/* Two switches of four hosts: half of what a direct exchange sends goes through the uplinks, which
 * are eight times as slow as the links below them together. */
static void test_uplinks_are_shared(void **state)
{
    (void)state;
    struct sim_programs *programs = programs_for("direct", 8, 1, COUNT_EACH * 16);
    struct sim_platform platform = costly(8);
    struct sim_operation operation = {.programs = programs};
    double bytes = 2.0 * COUNT_EACH * 16 * 4 / 8 * 16;
    platform.switch_hosts = 4;
    platform.uplink_bytes_per_ns = 0.5;
    platform.uplink_latency_ns = 1000;
    struct sim_run run = run_on(&platform, &operation, 1, false);
    assert_false(run.one_host);
    assert_true(run.end_ns > bytes / 0.5 && run.end_ns < 1.1 * bytes / 0.5);
    sim_programs_free(programs);
}

/* Four hosts on one core: all that their processors do is done one after the other. */
static void test_cores_are_shared(void **state)
{
    (void)state;
    struct sim_programs *programs = programs_for("direct", 4, 1, COUNT_EACH * 16);
    struct sim_platform platform = costly(4);
    struct sim_operation operation = {.programs = programs};
    platform.link_bytes_per_ns = 1000;
    platform.eager_bytes = UINT64_MAX;
    double own_ns = run_on(&platform, &operation, 1, false).end_ns;
    platform.cores = 1;
    platform.cores_are_shared = true;
    double shared_ns = run_on(&platform, &operation, 1, false).end_ns;
    assert_true(shared_ns > 3.8 * own_ns && shared_ns < 4.2 * own_ns);
    sim_programs_free(programs);
}

/* ---- several operations -------------------------------------------------------------------- */

/* Two of three are under way at a time; they share the links, so that together they take as long
 * as one after the other, but for what latency each of them waits for. */
static void test_operations_in_flight(void **state)
{
    (void)state;
    struct sim_programs *programs = programs_for("direct", 8, 1, COUNT_EACH * 16);
    struct sim_platform platform = costly(8);
    struct sim_operation alone = {.programs = programs};
    double one_ns = run_on(&platform, &alone, 1, false).end_ns;
    struct sim_operation three[3] = {{.programs = programs},
                                     {.programs = programs, .ready_ns = one_ns / 4},
                                     {.programs = programs, .ready_ns = one_ns / 4}};
    struct sim_run run = run_on(&platform, three, 3, false);
    assert_true(three[0].begin_ns == 0 && three[1].begin_ns == one_ns / 4);
    assert_true(three[2].begin_ns == three[0].end_ns || three[2].begin_ns == three[1].end_ns);
    assert_true(run.end_ns < 3 * one_ns && run.end_ns > 2.5 * one_ns);
    struct sim_operation late[2] = {{.programs = programs},
                                    {.programs = programs, .ready_ns = 3 * one_ns}};
    assert_true(run_on(&platform, late, 2, false).end_ns > 3.99 * one_ns);
    sim_programs_free(programs);
}

/* Of operations that wait for one another the most urgent goes first, also if it was ready last. */
static void test_urgent_operations_overtake(void **state)
{
    (void)state;
    struct sim_programs *programs = programs_for("direct", 4, 1, COUNT_EACH);
    struct sim_platform platform = costly(4);
    struct sim_operation four[4] = {{.programs = programs, .priority = 3},
                                    {.programs = programs, .priority = 2, .ready_ns = 1},
                                    {.programs = programs, .priority = 1, .ready_ns = 1},
                                    {.programs = programs, .priority = 1, .ready_ns = 1e9}};
    struct sim_run run = {
        .platform = &platform, .operations = four, .operation_count = 4, .in_flight = 1};
    assert_int_equal(sim_run(&run), SHOAL_OK);
    assert_true(four[0].begin_ns == 0);
    assert_true(four[2].begin_ns == four[0].end_ns);
    assert_true(four[1].begin_ns == four[2].end_ns);
    assert_true(four[3].begin_ns == 1e9 && run.end_ns == four[3].end_ns);
    double each_ns = four[0].end_ns;
    run.notice_ns = 500;
    assert_int_equal(sim_run(&run), SHOAL_OK);
    assert_float_equal(four[0].end_ns, each_ns + 500, 1e-6);
    sim_programs_free(programs);
}

/* A link that carried nothing for a while has that much in its bucket. */
static void test_buckets_fill_while_links_rest(void **state)
{
    (void)state;
    struct sim_programs *programs = programs_for("exchange", 2, 1, 1000);
    struct sim_platform platform = wire;
    platform.host_count = 2;
    platform.bucket_bytes = 3000;
    struct sim_operation two[2] = {{.programs = programs}, {.programs = programs, .ready_ns = 1e6}};
    run_on(&platform, two, 2, true);
    assert_float_equal(two[0].end_ns, 4100, 1e-6);
    assert_float_equal(two[1].end_ns - two[1].begin_ns, 1100, 1e-6);
    sim_programs_free(programs);
}

/* 32 short messages leave unasked; the next ones wait until they were asked for. */
static void test_short_messages_have_a_window(void **state)
{
    (void)state;
    for (uint64_t messages = 32; messages <= 64; messages += 32) {
        struct coll_case one = make(COLL_BROADCAST, "exchange", 2, messages, 1);
        struct sim_platform platform = wire;
        platform.link_latency_ns = 1e6;
        double time_ns = predict(&one, &platform, NULL), ways = messages == 32 ? 1 : 3;
        assert_true(time_ns > ways * 1e6 && time_ns < ways * 1e6 + 300);
    }
}

static struct sim_programs *served_programs(int ranks, int servers, uint64_t count)
{
    int host_of[CASE_RANKS_MAX];
    struct sim_programs *programs;
    struct coll_shape shape = {.kind = COLL_ALLREDUCE,
                               .size = ranks + servers,
                               .elem_bytes = 4,
                               .count = count,
                               .segment_count = 1000,
                               .host_of = host_of,
                               .host_count = ranks + servers,
                               .server_count = servers};
    for (int i = 0; i < shape.size; i++)
        host_of[i] = i;
    const struct coll_algorithm *direct = coll_find(COLL_ALLREDUCE, "direct");
    assert_int_equal(sim_programs_create(direct, &shape, true, &programs), SHOAL_OK);
    return programs;
}

/* What each port has to carry: 2n(n-1)/(n² + kn - 2k) of the buffer, and all of it from k = n on.
 */
static void test_servers_take_the_load_off(void **state)
{
    (void)state;
    static const double loads[] = {1.5, 4.0 / 3, 1.2, 12.0 / 11, 1, 1, 1};
    const int host_of[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (int servers = 0; servers < 7; servers++) {
        struct coll_shape shape = {.kind = COLL_ALLREDUCE,
                                   .size = 4 + servers,
                                   .elem_bytes = 4,
                                   .count = 1 << 20,
                                   .host_of = host_of,
                                   .host_count = 4 + servers,
                                   .server_count = servers};
        struct sim_platform platform = asked();
        platform.host_count = 4;
        platform.server_count = servers;
        double bound_ns = sim_bound(&platform, &shape), bytes = 4.0 * (1 << 20);
        assert_float_equal(bound_ns, loads[servers] * bytes + 100, 1);
        struct sim_programs *programs = served_programs(4, servers, shape.count);
        struct sim_operation operation = {.programs = programs};
        double time_ns = run_on(&platform, &operation, 1, false).end_ns;
        if (time_ns < bound_ns || time_ns > (servers % 4 ? 1.25 : 1.06) * bound_ns)
            fail_msg("%d servers: %.2f times the bound", servers, time_ns / bound_ns);
        sim_programs_free(programs);
    }
}

/* Ranks begin an operation with few servers, the next one with more: both are one run. */
static void test_operations_with_and_without_servers(void **state)
{
    (void)state;
    struct sim_programs *served = served_programs(4, 3, COUNT_EACH * 16);
    struct sim_programs *alone = programs_for("direct", 4, 1, COUNT_EACH);
    struct sim_platform platform = costly(4);
    platform.server_count = 3;
    struct sim_operation three[3] = {
        {.programs = alone}, {.programs = served}, {.programs = alone}};
    assert_true(run_on(&platform, three, 3, false).end_ns > three[0].end_ns);
    sim_programs_free(served);
    sim_programs_free(alone);
}

/* Four links, one of a quarter of the others' rate: equal shares take 1.5 times as long. */
static void test_shares_follow_the_links(void **state)
{
    (void)state;
    const int host_of[] = {0, 1, 2, 3};
    uint32_t shares[4];
    struct sim_platform platform = asked();
    struct coll_shape shape = {.kind = COLL_ALLREDUCE,
                               .size = 4,
                               .elem_bytes = 4,
                               .count = 1 << 20,
                               .segment_count = 2000,
                               .host_of = host_of,
                               .host_count = 4};
    platform.host_count = 4;
    assert_false(sim_shares(&platform, &shape, shares));
    link_rate[1] = 0.25;
    platform.own_host_last = 1;
    assert_true(sim_shares(&platform, &shape, shares));
    assert_int_equal(shares[1], 0);
    double time_ns[2], bound_ns = sim_bound(&platform, &shape);
    for (int follows = 0; follows < 2; follows++) {
        struct sim_programs *programs;
        shape.shares = follows ? shares : NULL;
        const struct coll_algorithm *direct = coll_find(COLL_ALLREDUCE, "direct");
        assert_int_equal(sim_programs_create(direct, &shape, true, &programs), SHOAL_OK);
        struct sim_operation operation = {.programs = programs};
        time_ns[follows] = run_on(&platform, &operation, 1, false).end_ns;
        sim_programs_free(programs);
    }
    assert_true(time_ns[1] < 1.05 * bound_ns && time_ns[0] > 1.4 * time_ns[1]);
    shape.count = 1 << 17;
    assert_false(sim_shares(&platform, &shape, shares));
    link_rate[1] = 0;
}

/* One call of all that runs over the schedules of a group. */
static enum shoal_status examine(const struct coll_group *group, int size)
{
    static uint32_t rounds[10000];
    static struct sim_step_time times[10000];
    struct coll_report report;
    uint32_t round_count;
    double time_ns;
    enum shoal_status status = coll_verify(group->shapes, group->schedules, &report);
    if (status == SHOAL_OK)
        status = coll_rounds(group->schedules, size, rounds, &round_count);
    if (status == SHOAL_OK)
        status = simulate(group, &wire, times, &time_ns);
    return status;
}

/* Memory that fails at any point is an error, and nothing stays behind. */
static void test_every_failing_allocation(void **state)
{
    (void)state;
    static struct coll_group group;
    for (int i = 0; coll_algorithms()[i]; i++) {
        struct coll_case one = {.algorithm = coll_algorithms()[i],
                                .size = 5,
                                .count = 20,
                                .segment_count = 3,
                                .hosts = HOSTS_PAIRS,
                                .is_half = i % 2};
        assert_true(case_shapes(&one, &group));
        assert_int_equal(case_schedules(&one, &group), SHOAL_OK);
        size_t blocks = base_memory_blocks();
        enum shoal_status status = SHOAL_ERR_MEMORY;
        for (uint64_t nth = 1; status != SHOAL_OK; nth++) {
            base_memory_fail_at(nth);
            status = examine(&group, one.size);
            base_memory_fail_at(0);
            assert_true(status == SHOAL_OK || status == SHOAL_ERR_MEMORY);
            assert_int_equal(base_memory_blocks(), blocks);
        }
        case_release(&one, &group);
    }
}

static enum shoal_status simulate_symmetric(const char *name)
{
    struct sim_programs *programs;
    struct sim_platform platform = costly(4);
    TRY(make_programs(name, 4, 1, COUNT_EACH, &programs));
    struct sim_operation operation = {.programs = programs};
    struct sim_run run = {
        .platform = &platform, .operations = &operation, .operation_count = 1, .in_flight = 1};
    enum shoal_status status = sim_run(&run);
    sim_programs_free(programs);
    return status;
}

static void test_every_failing_allocation_of_a_symmetry(void **state)
{
    (void)state;
    static const char *const names[] = {"direct", "halving_doubling"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t blocks = base_memory_blocks();
        enum shoal_status status = SHOAL_ERR_MEMORY;
        for (uint64_t nth = 1; status != SHOAL_OK; nth++) {
            base_memory_fail_at(nth);
            status = simulate_symmetric(names[i]);
            base_memory_fail_at(0);
            assert_true(status == SHOAL_OK || status == SHOAL_ERR_MEMORY);
            assert_int_equal(base_memory_blocks(), blocks);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_by_hand),
        cmocka_unit_test(test_chosen_algorithms_are_near_the_bound),
        cmocka_unit_test(test_nothing_beats_the_bound),
        cmocka_unit_test(test_two_levels_spare_the_port),
        cmocka_unit_test(test_two_levels_pay_for_halves),
        cmocka_unit_test(test_steps_have_times),
        cmocka_unit_test(test_one_host_stands_for_all),
        cmocka_unit_test(test_uneven_hosts_are_simulated_one_by_one),
        cmocka_unit_test(test_a_slow_link_holds_up_all),
        cmocka_unit_test(test_uplinks_are_shared),
        cmocka_unit_test(test_cores_are_shared),
        cmocka_unit_test(test_operations_in_flight),
        cmocka_unit_test(test_urgent_operations_overtake),
        cmocka_unit_test(test_buckets_fill_while_links_rest),
        cmocka_unit_test(test_short_messages_have_a_window),
        cmocka_unit_test(test_servers_take_the_load_off),
        cmocka_unit_test(test_operations_with_and_without_servers),
        cmocka_unit_test(test_shares_follow_the_links),
        cmocka_unit_test(test_every_failing_allocation),
        cmocka_unit_test(test_every_failing_allocation_of_a_symmetry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
