/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segments_test.c: segmentation against all possible cuts, with and without parts that have
 * something already and little memory; how many comparisons it takes; devices for segments.
 */
#include "plan/segments.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/allocation.h"
#include "plan/borders.h"

#define ITEMS_MAX 10
#define PARTS_MAX 6

static uint64_t seed;

/* xorshift64*, so that every run makes the same rows. */
static uint64_t draw(uint64_t below)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (seed * UINT64_C(2685821657736338717) >> 33) % below;
}

struct sample {
    uint64_t costs[ITEMS_MAX + 1], parameters[ITEMS_MAX + 1], activations[ITEMS_MAX + 1];
    struct plan_part parts[PARTS_MAX];
    struct plan_row row;
};

static void make_sample(struct sample *sample, bool with_parts)
{
    int items = 1 + (int)draw(ITEMS_MAX), parts = 1 + (int)draw(PARTS_MAX);
    uint64_t range = UINT64_C(1) << draw(31);
    for (int i = 0; i < items; i++) {
        sample->costs[i + 1] = sample->costs[i] + (draw(4) ? draw(range) : 0);
        sample->parameters[i + 1] = sample->parameters[i] + draw(20);
        sample->activations[i + 1] = sample->activations[i] + draw(20);
    }
    for (int i = 0; i < parts; i++)
        sample->parts[i] = (struct plan_part){.cost = draw(2) ? draw(range) : 0,
                                              .room_bytes = draw(3) ? draw(400) : UINT64_MAX,
                                              .parameter_times = 1 + draw(3),
                                              .activation_times = 1 + draw(3)};
    sample->row = (struct plan_row){.item_count = items,
                                    .cost_before = sample->costs,
                                    .parameter_before = sample->parameters,
                                    .activation_before = sample->activations,
                                    .part_count = parts,
                                    .parts = with_parts ? sample->parts : NULL};
}

static bool has_room(const struct plan_row *row, int part, int from, int to)
{
    if (!row->parts)
        return true;
    const struct plan_part *taker = &row->parts[part];
    return (row->parameter_before[to] - row->parameter_before[from]) * taker->parameter_times +
               (row->activation_before[to] - row->activation_before[from]) *
                   taker->activation_times <=
           taker->room_bytes;
}

/* The best of all ways to give the items from `from` on to the parts from `part` on, UINT64_MAX if
 * there is none. Ten items over six parts have 3003 ways. */
static uint64_t best_of_all(const struct plan_row *row, int part, int from)
{
    uint64_t best = UINT64_MAX;
    if (part == row->part_count)
        return from == row->item_count ? 0 : UINT64_MAX;
    for (int to = from; to <= row->item_count; to++) {
        if (!has_room(row, part, from, to))
            continue;
        uint64_t own = row->cost_before[to] - row->cost_before[from] +
                       (row->parts ? row->parts[part].cost : 0);
        uint64_t rest = best_of_all(row, part + 1, to);
        uint64_t largest = rest > own ? rest : own;
        best = largest < best ? largest : best;
    }
    return best;
}

static void assert_optimal(const struct plan_row *row)
{
    int borders[PARTS_MAX + 1];
    uint64_t best = best_of_all(row, 0, 0);
    int stuck = plan_segments(row, borders, NULL);
    if (best == UINT64_MAX) {
        assert_in_range(stuck, 0, row->item_count - 1);
        return;
    }
    assert_int_equal(stuck, -1);
    assert_int_equal(borders[0], 0);
    assert_int_equal(borders[row->part_count], row->item_count);
    for (int part = 0; part < row->part_count; part++) {
        bool may_be_empty = row->parts || row->item_count < row->part_count;
        assert_true(borders[part + 1] >= borders[part] + !may_be_empty);
        assert_true(has_room(row, part, borders[part], borders[part + 1]));
    }
    assert_int_equal(plan_segments_largest(row, borders), best);
}

static void rows_are_cut_as_well_as_by_trying_all_ways(void **state)
{
    (void)state;
    seed = 1;
    for (int i = 0; i < 1000; i++) {
        struct sample sample = {0};
        make_sample(&sample, false);
        assert_optimal(&sample.row);
    }
}

static void so_they_are_for_parts_that_differ(void **state)
{
    (void)state;
    int without_room = 0;
    seed = 2;
    for (int i = 0; i < 1000; i++) {
        struct sample sample = {0};
        make_sample(&sample, true);
        without_room += best_of_all(&sample.row, 0, 0) == UINT64_MAX;
        assert_optimal(&sample.row);
    }
    assert_in_range(without_room, 50, 950);
}

static void equal_items_make_parts_that_are_alike(void **state)
{
    (void)state;
    uint64_t before[41];
    int borders[41];
    for (uint64_t i = 0; i <= 40; i++)
        before[i] = i * 7;
    for (int parts = 1; parts <= 40; parts++) {
        struct plan_row row = {.item_count = 40, .cost_before = before, .part_count = parts};
        assert_int_equal(plan_segments(&row, borders, NULL), -1);
        for (int part = 0; part < parts; part++)
            assert_in_range(borders[part + 1] - borders[part], 40 / parts,
                            (40 + parts - 1) / parts);
    }
}

static void no_items_are_no_trouble(void **state)
{
    (void)state;
    uint64_t before[1] = {0};
    int borders[4];
    struct plan_row row = {.cost_before = before, .part_count = 3};
    assert_int_equal(plan_segments(&row, borders, NULL), -1);
    for (int part = 0; part <= 3; part++)
        assert_int_equal(borders[part], 0);
    assert_int_equal(plan_segments_largest(&row, borders), 0);
}

/* A table of D n^2 entries would be 6.4e9 here. Sums that pass 2^64 do no harm. */
static void long_rows_take_few_comparisons(void **state)
{
    (void)state;
    enum { ITEMS = 10000, PARTS = 64 };
    uint64_t *before = malloc((ITEMS + 1) * sizeof(*before)), steps = 0;
    int borders[PARTS + 1];
    assert_non_null(before);
    seed = 3;
    before[0] = UINT64_MAX - (UINT64_C(1) << 47);
    for (int i = 0; i < ITEMS; i++)
        before[i + 1] = before[i] + draw(UINT64_C(1) << 31) * 10;
    struct plan_row row = {.item_count = ITEMS, .cost_before = before, .part_count = PARTS};
    assert_int_equal(plan_segments(&row, borders, &steps), -1);
    uint64_t work = before[ITEMS] - before[0], largest = plan_segments_largest(&row, borders);
    assert_in_range(largest, work / PARTS, work / PARTS + (UINT64_C(1) << 31) * 10);
    assert_in_range(steps, 1, 52 * PARTS * 14);
    free(before);
}

/* Blocks of two halves, between which four times as much crosses. */
static void borders_go_to_where_less_crosses(void **state)
{
    (void)state;
    enum { HALVES = 16, PARTS = 3 };
    uint64_t before[HALVES + 1], none[HALVES + 1] = {0}, entering[HALVES], steps = 0;
    struct plan_part parts[PARTS];
    int borders[PARTS + 1];
    for (uint64_t i = 0; i <= HALVES; i++)
        before[i] = 100 * i;
    for (int i = 0; i < HALVES; i++)
        entering[i] = i % 2 ? 4 : 1;
    for (int i = 0; i < PARTS; i++)
        parts[i] = (struct plan_part){0, UINT64_MAX, 1, 1};
    struct plan_row row = {HALVES, before, none, none, PARTS, parts};
    assert_int_equal(plan_segments(&row, borders, NULL), -1);
    assert_int_equal(plan_segments_largest(&row, borders), 600);
    assert_true(borders[1] % 2 || borders[2] % 2);
    plan_borders_settle(&row, entering, 630, borders, &steps);
    assert_int_equal(borders[1] % 2 + borders[2] % 2, 0);
    assert_int_equal(plan_segments_largest(&row, borders), 600);
    assert_in_range(steps, 1, 2 * HALVES);
    for (uint64_t i = 0; i <= HALVES; i++)
        none[i] = i; /* now each takes two bytes, and the first two parts have room for five */
    parts[0].room_bytes = parts[1].room_bytes = 11;
    static const int full[] = {0, 5, 10, HALVES};
    memcpy(borders, full, sizeof(full));
    plan_borders_settle(&row, entering, 630, borders, &steps);
    assert_int_equal(borders[1], 5); /* the first part has no room for a sixth */
    assert_int_equal(borders[2], 10);
}

static void devices_go_by_the_rule_of_dhondt(void **state)
{
    (void)state;
    static const uint64_t votes[] = {100000, 80000, 30000, 20000};
    static const int seats[] = {4, 3, 1, 0};
    int given[4];
    plan_allocation(votes, 4, 8, given);
    for (int i = 0; i < 4; i++)
        assert_int_equal(given[i], seats[i]);
    static const uint64_t alike[] = {0, 0, 0};
    plan_allocation(alike, 3, 5, given);
    assert_int_equal(given[0], 2);
    assert_int_equal(given[1], 2);
    assert_int_equal(given[2], 1);
}

/* What defines it: no segment would have more per device with one more than another has now. */
static void no_device_would_be_better_elsewhere(void **state)
{
    (void)state;
    seed = 4;
    for (int n = 0; n < 1000; n++) {
        uint64_t costs[8];
        int given[8], segments = 1 + (int)draw(8), devices = (int)draw(65), sum = 0;
        for (int i = 0; i < segments; i++)
            costs[i] = draw(UINT64_C(1) << 30);
        plan_allocation(costs, segments, devices, given);
        for (int i = 0; i < segments; i++) {
            sum += given[i];
            for (int j = 0; j < segments; j++)
                assert_true(given[i] == 0 ||
                            costs[i] * (uint64_t)(given[j] + 1) >= costs[j] * (uint64_t)given[i]);
        }
        assert_int_equal(sum, devices);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_cut_as_well_as_by_trying_all_ways),
        cmocka_unit_test(so_they_are_for_parts_that_differ),
        cmocka_unit_test(equal_items_make_parts_that_are_alike),
        cmocka_unit_test(no_items_are_no_trouble),
        cmocka_unit_test(long_rows_take_few_comparisons),
        cmocka_unit_test(borders_go_to_where_less_crosses),
        cmocka_unit_test(devices_go_by_the_rule_of_dhondt),
        cmocka_unit_test(no_device_would_be_better_elsewhere),
    };
    return cmocka_run_group_tests_name("plan segments", tests, NULL, NULL);
}
