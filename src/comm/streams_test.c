/* SPDX-License-Identifier: Apache-2.0 */
/* streams_test.c: more connections are taken where they carry clearly more, and never by noise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "comm/streams.h"

#define LAG 3 /* periods between a plan and its result, as in steer.c */

/* Bytes per ms that so many connections carry, each time anew. */
typedef uint64_t rate_function(int count);

/* Goes on until the trials are over; returns how many connections were found best. *most: the most
 * that were ever in use. */
static int find_best(rate_function *rate_of, uint64_t elapsed_us, int *most)
{
    struct comm_streams streams;
    struct comm_streams_period periods[COMM_STREAMS_PERIODS];
    comm_streams_init(&streams);
    *most = 1;
    for (int i = 0; i < COMM_STREAMS_PERIODS; i++) {
        periods[i] = comm_streams_plan(&streams);
        *most = periods[i].count > *most ? periods[i].count : *most;
        if (i < LAG)
            continue;
        uint64_t rate = rate_of(periods[i - LAG].count);
        struct comm_streams_window carried = {rate * elapsed_us / 1000, elapsed_us};
        comm_streams_judge(&streams, periods[i - LAG], elapsed_us, carried);
    }
    assert_int_equal(streams.tried, 0);
    assert_int_equal(comm_streams_plan(&streams).count, streams.best);
    return streams.best;
}

static uint64_t link_alone(int count)
{
    (void)count;
    return 120000;
}

static uint64_t each_limited(int count)
{
    return (uint64_t)count * 200000;
}

static uint64_t four_fill_it(int count)
{
    return (uint64_t)(count < 4 ? count : 4) * 300000;
}

static uint64_t more_cost(int count)
{
    return 900000 / (uint64_t)(7 + count);
}

static uint64_t barely_more(int count)
{
    return count == 1 ? 100000 : 108000;
}

static uint64_t silent(int count)
{
    (void)count;
    return 0;
}

static void test_best_is_found(void **state)
{
    (void)state;
    const struct {
        rate_function *rate;
        int best, most;
    } cases[] = {{link_alone, 1, 2}, {each_limited, 8, 8}, {four_fill_it, 4, 8},
                 {more_cost, 1, 2},  {barely_more, 1, 2},  {silent, 1, 2}};
    const uint64_t elapsed_us[] = {700, 20000, 400000};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t k = 0; k < 3; k++) {
            int most;
            assert_int_equal(find_best(cases[i].rate, elapsed_us[k], &most), cases[i].best);
            assert_int_equal(most, cases[i].most);
        }
}

static uint64_t noisy(int count)
{
    (void)count;
    return 60000 + (uint64_t)(rand() % 60000);
}

static uint64_t noisy_and_doubled(int count)
{
    return (uint64_t)count * (100000 + (uint64_t)(rand() % 40000));
}

/* Rates that double between any two windows: in twenty runs no connection is added, as three
 * windows would have to lie above the three others by chance. */
static void test_noise_adds_none(void **state)
{
    (void)state;
    int most, added = 0;
    srand(1);
    for (int run = 0; run < 400; run++)
        added += find_best(noisy, 400000, &most) > 1;
    assert_true(added < 20);
    for (int run = 0; run < 20; run++)
        assert_int_equal(find_best(noisy_and_doubled, 400000, &most), COMM_STREAMS_MAX);
}

/* A link that gets faster for good in the middle of a trial. */
static int asked;

static uint64_t recovers(int count)
{
    (void)count;
    return ++asked < 12 ? 30000 : 120000;
}

static void test_a_change_in_mid_trial_adds_none(void **state)
{
    (void)state;
    int most;
    asked = 0;
    assert_int_equal(find_best(recovers, 400000, &most), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_is_found),
        cmocka_unit_test(test_noise_adds_none),
        cmocka_unit_test(test_a_change_in_mid_trial_adds_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
