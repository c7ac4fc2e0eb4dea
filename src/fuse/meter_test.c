/* SPDX-License-Identifier: Apache-2.0 */
/* meter_test.c: times of buffers and callers, and the pace of a step. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times), cmocka_unit_test(test_pace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
