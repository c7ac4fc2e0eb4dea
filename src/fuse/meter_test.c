/* SPDX-License-Identifier: Apache-2.0 */
/* meter_test.c: times of buffers and callers, the pace of a step, and which links are fast. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fuse/meter.h"

static void test_times(void **state)
{
    (void)state;
    struct fuse_meter meter = {.since_ns = 100};
    fuse_meter_turn(&meter, 200);
    meter.in_flight = 2;
    fuse_meter_turn(&meter, 500);
    meter.waiting = 1;
    fuse_meter_turn(&meter, 900);
    meter.in_flight = 0;
    fuse_meter_turn(&meter, 1000);
    assert_int_equal(meter.flight_ns, 700);
    assert_int_equal(meter.waited_ns, 500);
    assert_int_equal(meter.exposed_ns, 400);
}

/* Each step by its own time; one without buffers has none. */
static void test_pace(void **state)
{
    (void)state;
    struct fuse_meter meter = {.flight_ns = 1000};
    assert_true(fuse_meter_pace(&meter, 500) == 0.5e9);
    meter.flight_ns = 3000;
    assert_true(fuse_meter_pace(&meter, 500) == 0.25e9);
    assert_true(fuse_meter_pace(&meter, 0) == 0);
}

/* Each step by what was carried in it; a link that was not busy tells nothing. */
static void test_links(void **state)
{
    (void)state;
    struct fuse_meter meter = {0};
    assert_true(fuse_meter_links(&meter, 1000, 10, 2) == 2 * 100e6);
    assert_true(fuse_meter_links(&meter, 1600, 30, 2) == 2 * 30e6);
    assert_true(fuse_meter_links(&meter, 1600, 30, 2) == 0);
}

/* As seen on virtual hosts of a machine with two cores: pace, links. */
static void test_fast(void **state)
{
    (void)state;
    static const double limited[][2] = {
        {106e6, 114e6}, {75e6, 141e6}, {49e6, 203e6}, {18e6, 44e6}, {0, 0}};
    static const double unlimited[][2] = {{43e6, 303e6}, {136e6, 615e6}, {195e6, 0}};
    for (int i = 0; i < 5; i++)
        assert_false(fuse_meter_is_fast(limited[i][0], limited[i][1], false));
    assert_false(fuse_meter_is_fast(49e6, 203e6, true));
    assert_true(fuse_meter_is_fast(49e6, 250e6, true));
    assert_true(fuse_meter_is_fast(106e6, 114e6, true));
    for (int i = 0; i < 3; i++)
        assert_true(fuse_meter_is_fast(unlimited[i][0], unlimited[i][1], false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times), cmocka_unit_test(test_pace),
                                       cmocka_unit_test(test_links), cmocka_unit_test(test_fast)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
