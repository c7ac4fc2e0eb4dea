/* SPDX-License-Identifier: Apache-2.0 */
/* fit_test.c: times that were simulated on one platform lead from another one back to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "sim/fit.h"

#define HOSTS_MAX 4

static const int host_of[HOSTS_MAX] = {0, 1, 2, 3};
static const uint64_t counts[] = {2, 1 << 12, 1 << 16, 1 << 20};

#define SIZE_COUNT   (sizeof(counts) / sizeof(counts[0]))
#define SAMPLE_COUNT (2 * SIZE_COUNT)

static struct sim_programs *programs_for(int hosts, uint64_t count)
{
    struct sim_programs *programs;
    struct coll_shape shape = {.kind = COLL_ALLREDUCE,
                               .size = hosts,
                               .elem_bytes = 4,
                               .count = count,
                               .host_of = host_of,
                               .host_count = hosts};
    shape.segment_count = coll_segment_count(&shape);
    const struct coll_algorithm *direct = coll_find(COLL_ALLREDUCE, "direct");
    assert_int_equal(sim_programs_create(direct, &shape, true, &programs), SHOAL_OK);
    return programs;
}

static void assert_near(double value, double expected, double factor)
{
    if (value < expected / factor || value > expected * factor)
        fail_msg("%g is not %g", value, expected);
}

static void test_the_platform_is_found_again(void **state)
{
    (void)state;
    struct sim_programs *programs[SAMPLE_COUNT];
    struct sim_sample samples[SAMPLE_COUNT];
    struct sim_platform *platform;
    assert_int_equal(sim_platform_create(2, &platform), SHOAL_OK);
    platform->link_bytes_per_ns = 0.3;
    platform->link_latency_ns = 15e3;
    platform->send = platform->receive = (struct sim_cost){8e3, 0.4};
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        programs[i] = programs_for(i < SIZE_COUNT ? 2 : HOSTS_MAX, counts[i % SIZE_COUNT]);
        samples[i] = (struct sim_sample){.programs = programs[i]};
    }
    assert_int_equal(sim_samples_run(platform, samples, SAMPLE_COUNT), SHOAL_OK);
    for (size_t i = 0; i < SAMPLE_COUNT; i++)
        samples[i].measured_ns = samples[i].simulated_ns;
    platform->link_bytes_per_ns = 1;
    platform->link_latency_ns = 50e3;
    platform->send = platform->receive = (struct sim_cost){3e3, 0.1};
    assert_int_equal(sim_fit(platform, samples, SAMPLE_COUNT), SHOAL_OK);
    for (size_t i = 0; i < SAMPLE_COUNT; i++)
        assert_near(samples[i].simulated_ns, samples[i].measured_ns, 1.05);
    assert_near(platform->link_bytes_per_ns, 0.3, 1.05);
    for (size_t i = 0; i < SAMPLE_COUNT; i++)
        sim_programs_free(programs[i]);
    sim_platform_free(platform);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_platform_is_found_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
