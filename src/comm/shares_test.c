/* SPDX-License-Identifier: Apache-2.0 */
/* shares_test.c: the shares are the best there are, and noise does not change them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/shares.h"

#define WHOLE     ((double)SCHEDULE_SHARES_WHOLE)
#define HOSTS_MAX 32

/* The longest time of a port, in units of buffer / rate, of n hosts with ranks and then servers. */
static double time_of(const uint64_t *rates, const double *shares, int n, int size)
{
    double longest = 0;
    for (int i = 0; i < size; i++) {
        double load = i < n ? 1 + (n - 2) * shares[i] : n * shares[i];
        double time = load / (double)rates[i];
        longest = time > longest ? time : longest;
    }
    return longest;
}

/* Whether the hosts can sum everything within that time. */
static bool suffices(const uint64_t *rates, int n, int size, double time)
{
    double sum = 0;
    for (int i = 0; i < size; i++) {
        double load = time * (double)rates[i];
        if (i < n && load < 1)
            return false;
        sum += i >= n ? load / n : n > 2 ? (load - 1) / (n - 2) : 1;
    }
    return sum >= 1;
}

static double least_time(const uint64_t *rates, int n, int size)
{
    double low = 0, high = 1e9;
    for (int step = 0; step < 200; step++) {
        double middle = (low + high) / 2;
        *(suffices(rates, n, size, middle) ? &high : &low) = middle;
    }
    return high;
}

static void expect_best(const uint64_t *rates, int n, int size)
{
    uint32_t best[HOSTS_MAX];
    double shares[HOSTS_MAX];
    uint64_t sum = 0;
    comm_shares_best(rates, n, size, best);
    for (int i = 0; i < size; i++) {
        shares[i] = best[i] / WHOLE;
        sum += best[i];
    }
    assert_int_equal(sum, SCHEDULE_SHARES_WHOLE);
    double time = time_of(rates, shares, n, size), least = least_time(rates, n, size);
    if (time >= 1.005 * least)
        fail_msg("%d hosts with ranks of %d: %g instead of %g", n, size, time, least);
}

static void test_shares_are_the_best(void **state)
{
    (void)state;
    srand(1);
    for (int size = 3; size <= HOSTS_MAX; size++)
        for (int round = 0; round < 40; round++) {
            uint64_t rates[HOSTS_MAX];
            for (int i = 0; i < size; i++)
                rates[i] = (uint64_t)1 + (uint64_t)(rand() % 1000) * (round % 2 ? 1 : 4000000);
            expect_best(rates, round % 4 < 2 ? size : 2 + rand() % (size - 2), size);
        }
}

/* Equal shares are left for a gain of a quarter, and for no less. */
static void test_shares_must_pay(void **state)
{
    (void)state;
    const uint64_t alike[] = {1000, 1000, 1000, 900}, slow[] = {1000, 1000, 1000, 250};
    uint32_t best[4];
    assert_false(comm_shares_pay(alike, 4, 4, best));
    assert_true(comm_shares_pay(slow, 4, 4, best));
    assert_int_equal(best[3], 0);
}

/* One server of four with a quarter of the rate gets a quarter of the others' shares; the ranks sum
 * what is left. With a slow rank the servers have room, and the ranks sum nothing. */
static void test_servers_on_slow_links(void **state)
{
    (void)state;
    uint64_t rates[8] = {100, 100, 100, 100, 100, 100, 100, 25};
    uint32_t best[8];
    comm_shares_best(rates, 4, 8, best);
    assert_in_range(best[7], best[6] / 4 - 1, best[6] / 4 + 1);
    assert_true(best[0] > 0.03 * WHOLE && best[0] < 0.035 * WHOLE);
    rates[7] = 100;
    rates[3] = 25;
    comm_shares_best(rates, 4, 8, best);
    for (int i = 0; i < 8; i++)
        assert_int_equal(best[i], i < 4 ? 0 : SCHEDULE_SHARES_WHOLE / 4);
}

static void test_equal_rates_have_equal_shares(void **state)
{
    (void)state;
    const uint64_t rates[5] = {125000, 125000, 125000, 125000, 125000};
    uint32_t best[5];
    comm_shares_best(rates, 5, 5, best);
    for (int i = 0; i < 5; i++)
        assert_in_range(best[i], SCHEDULE_SHARES_WHOLE / 5, SCHEDULE_SHARES_WHOLE / 5 + 1);
}

static const int own_hosts[] = {0, 1, 2, 3};
static const struct comm_sites four = {own_hosts, 4, 4, 4, 4};

/* Reports of four ranks, of flows that go on for 600 ms at a time. */
struct reports {
    uint64_t words[4 * 9];
    struct comm_shares shares;
};

static void reports_start(struct reports *reports)
{
    memset(reports, 0, sizeof(*reports));
    assert_int_equal(comm_shares_words(4), 9);
    assert_int_equal(comm_shares_init(&four, &reports->shares), SHOAL_OK);
    assert_false(comm_shares_judge(&reports->shares, reports->words));
}

static void flow(struct reports *reports, int from, int to, uint64_t bytes_per_ms, uint64_t ms)
{
    reports->words[9 * from + 1 + 2 * to] += bytes_per_ms * ms;
    reports->words[9 * from + 2 + 2 * to] += 1000 * ms;
}

/* All links divide their rate by three; rank 3's has another rate. */
static bool judge_for(struct reports *reports, uint64_t rate, uint64_t other, uint64_t ms)
{
    for (int from = 0; from < 4; from++) {
        reports->words[9 * from] += 1000 * ms;
        for (int to = 0; to < 4; to++)
            if (from != to)
                flow(reports, from, to, (from == 3 || to == 3 ? other : rate) / 3, ms);
    }
    return comm_shares_judge(&reports->shares, reports->words);
}

static bool judge(struct reports *reports, uint64_t rate, uint64_t other)
{
    return judge_for(reports, rate, other, 600);
}

static void test_change_needs_two_in_a_row(void **state)
{
    (void)state;
    struct reports reports;
    reports_start(&reports);
    assert_false(judge(&reports, 120000, 30000));
    assert_false(judge(&reports, 120000, 120000)); /* the first was noise */
    assert_false(judge(&reports, 120000, 30000));
    assert_true(reports.shares.even);
    assert_true(judge(&reports, 120000, 30000));
    assert_false(reports.shares.even);
    assert_int_equal(reports.shares.now[3], 0);
    for (int i = 0; i < 3; i++)
        assert_in_range(reports.shares.now[i], SCHEDULE_SHARES_WHOLE / 3,
                        SCHEDULE_SHARES_WHOLE / 3 + 2);
    assert_false(judge(&reports, 120000, 30000)); /* nothing new */
    assert_false(judge(&reports, 120000, 120000));
    assert_true(judge(&reports, 120000, 120000)); /* and back */
    assert_true(reports.shares.even);
    comm_shares_release(&reports.shares);
}

static void test_moments_count_for_little(void **state)
{
    (void)state;
    struct reports reports;
    reports_start(&reports);
    for (int i = 0; i < 20; i++) {
        assert_false(judge_for(&reports, 120000, 30000, 50));
        assert_false(judge_for(&reports, 120000, 120000, 300));
    }
    comm_shares_release(&reports.shares);
}

static void test_small_differences_change_nothing(void **state)
{
    (void)state;
    struct reports reports;
    reports_start(&reports);
    for (int i = 0; i < 4; i++)
        assert_false(judge(&reports, 120000, 100000));
    comm_shares_release(&reports.shares);
}

static void test_what_is_not_known_changes_nothing(void **state)
{
    (void)state;
    struct reports reports;
    reports_start(&reports);
    for (int i = 0; i < 4; i++)
        assert_false(judge(&reports, 120000, 0));
    comm_shares_release(&reports.shares);
}

/* In a ring the ranks beside a slow link see it too; but each has a fast flow on its other side. */
static void test_flows_of_a_ring(void **state)
{
    (void)state;
    struct reports reports;
    reports_start(&reports);
    for (int round = 0; round < 2; round++) {
        for (int from = 0; from < 4; from++)
            flow(&reports, from, (from + 1) % 4, from == 2 || from == 3 ? 30000 : 120000, 600);
        reports.words[0] += 600000;
        assert_int_equal(comm_shares_judge(&reports.shares, reports.words), round == 1);
    }
    assert_int_equal(reports.shares.now[3], 0);
    comm_shares_release(&reports.shares);
}

/* Four ranks on two hosts and two servers: only ranks report, some flows of a host are idle, and
 * what was too little to measure keeps its rate. */
static void test_reports_with_servers(void **state)
{
    (void)state;
    static const int host_of[] = {0, 0, 1, 1, 2, 3};
    const struct comm_sites sites = {host_of, 4, 6, 2, 4};
    enum { WORDS = 13 };
    uint64_t words[4 * WORDS] = {0};
    struct comm_shares shares;
    assert_int_equal(comm_shares_words(6), WORDS);
    assert_int_equal(comm_shares_init(&sites, &shares), SHOAL_OK);
    assert_false(comm_shares_judge(&shares, words));
    for (int round = 0; round < 3; round++) {
        words[0] += 600000;
        for (int rank = 0; rank < 4; rank += 2)
            for (int server = 4; server < 6; server++) {
                uint64_t rate = server == 4 ? 50000 : round == 2 ? 0 : 12500;
                words[rank * WORDS + 1 + 2 * server] += 600 * rate;
                words[rank * WORDS + 2 + 2 * server] += 600000;
            }
        assert_int_equal(comm_shares_judge(&shares, words), round == 1);
    }
    assert_in_range(shares.now[2], SCHEDULE_SHARES_WHOLE / 2, SCHEDULE_SHARES_WHOLE / 2 + 200);
    assert_in_range(shares.now[3], SCHEDULE_SHARES_WHOLE / 8, SCHEDULE_SHARES_WHOLE / 8 + 50);
    assert_int_equal(shares.now[0], shares.now[1]);
    comm_shares_release(&shares);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_are_the_best),
        cmocka_unit_test(test_shares_must_pay),
        cmocka_unit_test(test_servers_on_slow_links),
        cmocka_unit_test(test_reports_with_servers),
        cmocka_unit_test(test_equal_rates_have_equal_shares),
        cmocka_unit_test(test_change_needs_two_in_a_row),
        cmocka_unit_test(test_moments_count_for_little),
        cmocka_unit_test(test_small_differences_change_nothing),
        cmocka_unit_test(test_what_is_not_known_changes_nothing),
        cmocka_unit_test(test_flows_of_a_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
