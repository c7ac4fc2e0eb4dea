/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulation_slow_test.c: thousands of random jobs in virtual time, each from one seed: right
 * results or an error that names the culprit, within the deadline.
 *
 * SHOAL_TEST_RUNS: how many (10000). SHOAL_TEST_SEED: only this one, for looking at a failure.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/simulation.h"

#define RUNS 10000

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void test_random_jobs(void **state)
{
    (void)state;
    struct simulation_tally tally = {0};
    uint64_t first = number_from("SHOAL_TEST_SEED", 1);
    uint64_t runs = getenv("SHOAL_TEST_SEED") ? 1 : number_from("SHOAL_TEST_RUNS", RUNS);
    for (uint64_t seed = first; seed < first + runs; seed++) {
        char text[2400];
        if (!simulation_run(seed, &tally, text, sizeof(text)))
            fail_msg("SHOAL_TEST_SEED=%llu: %s", (unsigned long long)seed, text);
    }
    printf("%llu jobs, %llu operations, %llu messages; %llu ends of operations were good, %llu "
           "errors\n",
           (unsigned long long)tally.jobs, (unsigned long long)tally.operations,
           (unsigned long long)tally.messages, (unsigned long long)tally.good_ends,
           (unsigned long long)tally.errors);
    if (runs >= 1000) { /* that it tried what it should */
        assert_true(tally.errors > runs && tally.good_ends > 10 * runs);
        for (int i = 0; i < 7; i++)
            assert_true(tally.faults[i] > runs / 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_jobs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
