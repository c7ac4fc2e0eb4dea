/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict_test.c: times that can be computed by hand, and bounds that every algorithm must respect.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "coll/coll.h"
#include "support/coll_case.h"

/* 1 byte per ns between hosts, so that elements of 4 bytes take 4 ns; memory is free. */
static const struct coll_links wire = {.network_latency_ns = 100,
                                       .network_bytes_per_ns = 1,
                                       .memory_latency_ns = 0,
                                       .memory_bytes_per_ns = 1e9,
                                       .reduce_bytes_per_ns = 1e9};

static double predict(const struct coll_case *one, const struct coll_links *links, double *bound_ns)
{
    struct coll_group *group;
    double time_ns = -1;
    assert_int_equal(BASE_NEW(&group, "a test's group"), SHOAL_OK);
    assert_true(case_shapes(one, group));
    assert_int_equal(case_schedules(one, group), SHOAL_OK);
    enum shoal_status status = coll_predict(group->shapes, group->schedules, links, NULL, &time_ns);
    if (status != SHOAL_OK)
        fail_msg("%s: %s", case_text(one), base_error_text());
    if (bound_ns)
        *bound_ns = coll_lower_bound(group->shapes, links);
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
        {COLL_ALLREDUCE, "ring", 1.10},   {COLL_ALLREDUCE, "halving_doubling", 1.10},
        {COLL_ALLTOALL, "direct", 1.01},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t count = case_has_v(cases[i].kind) ? 100000 : 800000;
        struct coll_case one = make(cases[i].kind, cases[i].name, 8, count, 4000);
        double bound_ns, time_ns = predict(&one, &wire, &bound_ns);
        if (time_ns > cases[i].worst * bound_ns)
            fail_msg("%s: %.2f times the bound", case_text(&one), time_ns / bound_ns);
    }
}

static void test_nothing_beats_the_bound(void **state)
{
    (void)state;
    static const struct coll_links both = {.network_latency_ns = 1000,
                                           .network_bytes_per_ns = 1,
                                           .memory_latency_ns = 10,
                                           .memory_bytes_per_ns = 8,
                                           .reduce_bytes_per_ns = 4};
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
    double flat_ns = predict(&flat, &wire, NULL), bound_ns;
    double level_ns = predict(&level, &wire, &bound_ns);
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
        {COLL_ALLREDUCE, 800000, 1.55, 0.75},
        {COLL_REDUCE, 800000, 1.85, 1.02},
        {COLL_REDUCE_SCATTER, 100000, 2.05, 1.02},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct coll_case flat = make(cases[i].kind, "direct", 8, cases[i].count, 4000);
        struct coll_case level = make(cases[i].kind, "two_level", 8, cases[i].count, 4000);
        flat.hosts = level.hosts = HOSTS_PAIRS;
        flat.is_half = level.is_half = true;
        double bound_ns, level_ns = predict(&level, &wire, &bound_ns);
        double flat_ns = predict(&flat, &wire, NULL);
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
    struct coll_step_time times[1000];
    double time_ns;
    assert_true(case_shapes(&one, &group));
    assert_int_equal(case_schedules(&one, &group), SHOAL_OK);
    assert_int_equal(coll_predict(group.shapes, group.schedules, &wire, times, &time_ns), SHOAL_OK);
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

/* One call of all that runs over the schedules of a group. */
static enum shoal_status examine(const struct coll_group *group, int size)
{
    static uint32_t rounds[10000];
    static struct coll_step_time times[10000];
    struct coll_report report;
    uint32_t round_count;
    double time_ns;
    enum shoal_status status = coll_verify(group->shapes, group->schedules, &report);
    if (status == SHOAL_OK)
        status = coll_rounds(group->schedules, size, rounds, &round_count);
    if (status == SHOAL_OK)
        status = coll_predict(group->shapes, group->schedules, &wire, times, &time_ns);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_by_hand),
        cmocka_unit_test(test_chosen_algorithms_are_near_the_bound),
        cmocka_unit_test(test_nothing_beats_the_bound),
        cmocka_unit_test(test_two_levels_spare_the_port),
        cmocka_unit_test(test_two_levels_pay_for_halves),
        cmocka_unit_test(test_steps_have_times),
        cmocka_unit_test(test_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
