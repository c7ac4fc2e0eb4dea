/* SPDX-License-Identifier: Apache-2.0 */
/*
 * not_finite_test.c: NaN and infinities in sums of all sizes and types, between ranks of a host, of
 * several hosts, and both; by each algorithm; with fusion buffers, compressed and not; with the
 * scalar form of the arithmetic loops and with the one that this processor has. servers_test.c does
 * the same with servers, test_links.py with shards that follow rates.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/not_finite.h"
#include "support/processes.h"

static int sum_all_sizes(shoal_group_t group, void *user)
{
    (void)user;
    static const uint64_t counts[] = {13, 5003, 70001};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        REQUIRE(not_finite_sums(group, counts[i]) == 0);
    return 0;
}

static int fuse_all_ways(shoal_group_t group, void *user)
{
    (void)user;
    for (int way = SHOAL_COMPRESSION_NONE; way <= SHOAL_COMPRESSION_INT8; way++)
        REQUIRE(not_finite_fused(group, (enum shoal_compression)way) == 0);
    return 0;
}

static void run(int hosts, int (*main)(shoal_group_t, void *), const char *variable)
{
    struct processes run = {.size = 4, .hosts = hosts, .main = main, .environment = {variable}};
    assert_true(processes_run(&run));
    processes_release(&run);
}

static void test_sums(void **state)
{
    (void)state;
    for (int hosts = 1; hosts <= 4; hosts *= 2)
        run(hosts, sum_all_sizes, NULL);
    run(1, sum_all_sizes, "SHOAL_LOCAL=0");
}

static void test_algorithms(void **state)
{
    (void)state;
    static const char *const names[] = {"SHOAL_ALGORITHM=allreduce:direct",
                                        "SHOAL_ALGORITHM=allreduce:ring",
                                        "SHOAL_ALGORITHM=allreduce:halving_doubling"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        run(4, sum_all_sizes, names[i]);
}

static void test_scalar_form(void **state)
{
    (void)state;
    run(1, sum_all_sizes, "SHOAL_ISA=scalar");
    run(4, fuse_all_ways, "SHOAL_ISA=scalar");
}

static void test_fused(void **state)
{
    (void)state;
    for (int hosts = 1; hosts <= 4; hosts *= 2)
        run(hosts, fuse_all_ways, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_algorithms),
        cmocka_unit_test(test_scalar_form),
        cmocka_unit_test(test_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
