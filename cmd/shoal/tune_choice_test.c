/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_choice_test.c: times that are given lead to the right values. Includes the source because
 * the command's files are in no library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tune_choice.c"

static void the_cut_lies_where_the_times_cross(void **state)
{
    (void)state;
    const struct tune_point points[] = {{1, 2}, {2, 3}, {4, 4.5}, {8, 7}, {16, 10}};
    for (int standing = 0; standing <= 5; standing++)
        assert_int_equal(tune_cut(points, 5, standing), 3);
}

static void one_bad_measurement_moves_no_cut(void **state)
{
    (void)state;
    const struct tune_point points[] = {{1, 2}, {2.2, 2.1}, {4, 8}, {8, 16}, {20, 10}};
    assert_int_equal(tune_cut(points, 5, 0), 4);
}

static void all_or_none_may_lie_below(void **state)
{
    (void)state;
    const struct tune_point low[] = {{1, 2}, {2, 4}}, high[] = {{2, 1}, {4, 2}};
    assert_int_equal(tune_cut(low, 2, 1), 2);
    assert_int_equal(tune_cut(high, 2, 1), 0);
}

static void what_stands_is_kept_for_a_small_gain(void **state)
{
    (void)state;
    const struct tune_point points[] = {{1, 1.01}, {1, 1.02}, {1, 1.01}};
    for (int standing = 0; standing <= 3; standing++)
        assert_int_equal(tune_cut(points, 3, standing), standing);
    const double costs[] = {5.00, 4.97, 4.99};
    assert_int_equal(tune_least(costs, 3, 0), 0);
}

static void the_least_cost_wins(void **state)
{
    (void)state;
    const double costs[] = {5.00, 4.90, 4.80, 4.86};
    assert_int_equal(tune_least(costs, 4, 0), 2);
    assert_int_equal(tune_least(costs, 4, 3), 2);
    assert_int_equal(tune_least(costs, 4, 2), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_lies_where_the_times_cross),
        cmocka_unit_test(one_bad_measurement_moves_no_cut),
        cmocka_unit_test(all_or_none_may_lie_below),
        cmocka_unit_test(what_stands_is_kept_for_a_small_gain),
        cmocka_unit_test(the_least_cost_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
