/* SPDX-License-Identifier: Apache-2.0 */
/* placement_test.c: the published tables of ranks and groups, and what holds for every placement.
 */
#include "plan/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

#define RANKS_MAX 64

static struct plan_placement placement_of(const char *strategy, int size, int pipeline, int tensor)
{
    struct shoal_placement wanted = SHOAL_PLACEMENT_INIT;
    struct plan_placement placement;
    wanted.strategy = strategy;
    wanted.size = size;
    wanted.pipeline_degree = pipeline;
    wanted.tensor_degree = tensor;
    if (plan_placement_init(&wanted, &placement) != SHOAL_OK)
        fail_msg("%s", base_error_text());
    return placement;
}

/* Eight ranks, two of each kind: rank = 4, 2 and 1 times the letters from the left. */
static void the_rightmost_letter_varies_fastest(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        int data, pipeline, tensor; /* what a step on each axis is worth */
    } rows[] = {
        {"DPT", 4, 2, 1},     {"DTP", 4, 1, 2},    {"PDT", 2, 4, 1},
        {"PTD", 1, 4, 2},     {"TDP", 2, 1, 4},    {"TPD", 1, 2, 4},
        {"cluster", 4, 2, 1}, {"spread", 1, 2, 4}, {NULL, 4, 2, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plan_placement placement = placement_of(rows[i].strategy, 8, 2, 2);
        for (int rank = 0; rank < 8; rank++) {
            int at[PLAN_AXES];
            for (int axis = 0; axis < PLAN_AXES; axis++)
                at[axis] = plan_placement_at(&placement, rank, axis);
            assert_int_equal(at[PLAN_DATA] * rows[i].data + at[PLAN_PIPELINE] * rows[i].pipeline +
                                 at[PLAN_TENSOR] * rows[i].tensor,
                             rank);
            assert_int_equal(plan_placement_rank(&placement, at), rank);
        }
    }
}

/* Eight processes in two partitions. */
static void groups_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        enum shoal_placement_group kind;
        int size, members[8][8]; /* of each rank's group */
    } rows[] = {
        {"spread",
         SHOAL_PLACEMENT_MP,
         2,
         {{0, 4}, {1, 5}, {2, 6}, {3, 7}, {0, 4}, {1, 5}, {2, 6}, {3, 7}}},
        {"spread",
         SHOAL_PLACEMENT_DP,
         4,
         {{0, 1, 2, 3},
          {0, 1, 2, 3},
          {0, 1, 2, 3},
          {0, 1, 2, 3},
          {4, 5, 6, 7},
          {4, 5, 6, 7},
          {4, 5, 6, 7},
          {4, 5, 6, 7}}},
        {"cluster",
         SHOAL_PLACEMENT_MP,
         2,
         {{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4, 5}, {4, 5}, {6, 7}, {6, 7}}},
        {"cluster",
         SHOAL_PLACEMENT_DP,
         4,
         {{0, 2, 4, 6},
          {1, 3, 5, 7},
          {0, 2, 4, 6},
          {1, 3, 5, 7},
          {0, 2, 4, 6},
          {1, 3, 5, 7},
          {0, 2, 4, 6},
          {1, 3, 5, 7}}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plan_placement placement = placement_of(rows[i].strategy, 8, 2, 1);
        assert_int_equal(plan_placement_group_size(&placement, rows[i].kind), rows[i].size);
        for (int rank = 0; rank < 8; rank++) {
            int ranks[8], index = plan_placement_group(&placement, rows[i].kind, rank, ranks);
            assert_memory_equal(ranks, rows[i].members[rank], sizeof(int) * (size_t)rows[i].size);
            assert_int_equal(ranks[index], rank);
        }
    }
}

/* mp x rdp = size, pp x dp = size, pp x tp x rdp = size; an MP group is the PP groups across a TP
 * group. */
static void the_published_identities_hold(void **state)
{
    (void)state;
    static const char *const strategies[] = {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"};
    for (int i = 0; i < 6; i++)
        for (int size = 1; size <= RANKS_MAX; size++)
            for (int pipeline = 1; pipeline <= size; pipeline++)
                for (int tensor = 1; pipeline * tensor <= size; tensor++) {
                    if (size % (pipeline * tensor) != 0)
                        continue;
                    struct plan_placement placement =
                        placement_of(strategies[i], size, pipeline, tensor);
                    int of[SHOAL_PLACEMENT_RDP + 1];
                    for (int kind = 0; kind <= SHOAL_PLACEMENT_RDP; kind++)
                        of[kind] =
                            plan_placement_group_size(&placement, (enum shoal_placement_group)kind);
                    assert_int_equal(of[SHOAL_PLACEMENT_WORLD], size);
                    assert_int_equal(of[SHOAL_PLACEMENT_MP] * of[SHOAL_PLACEMENT_RDP], size);
                    assert_int_equal(of[SHOAL_PLACEMENT_PP] * of[SHOAL_PLACEMENT_DP], size);
                    assert_int_equal(of[SHOAL_PLACEMENT_PP], pipeline);
                    assert_int_equal(of[SHOAL_PLACEMENT_TP], tensor);
                    assert_int_equal(of[SHOAL_PLACEMENT_PP] * of[SHOAL_PLACEMENT_TP],
                                     of[SHOAL_PLACEMENT_MP]);
                }
}

static void what_can_not_be_placed_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        int size, pipeline, tensor;
        const char *error;
    } cases[] = {
        {"DPT", 8, 3, 1, "8 ranks can't be divided by pipeline degree 3 x tensor degree 1"},
        {"DPT", 8, 4, 4, "8 ranks can't be divided by pipeline degree 4 x tensor degree 4"},
        {"DPT", 8, 65536, 65536, "8 ranks can't be divided by pipeline degree 65536 x tensor"},
        {"DPT", 8, 0, 1, "8 ranks, pipeline degree 0 and tensor degree 1: each must be 1 or more"},
        {"DPT", 0, 1, 1, "0 ranks, pipeline degree 1 and"},
        {"DPP", 8, 2, 2,
         "there is no placement strategy 'DPP': there are cluster, spread, and the"},
        {"dpt", 8, 2, 2, "there is no placement strategy 'dpt'"},
        {"DP", 8, 2, 2, "there is no placement strategy 'DP'"},
        {"DPTX", 8, 2, 2, "there is no placement strategy 'DPTX'"},
        {"", 8, 2, 2, "there is no placement strategy ''"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shoal_placement wanted = SHOAL_PLACEMENT_INIT;
        struct plan_placement placement;
        wanted.strategy = cases[i].strategy;
        wanted.size = cases[i].size;
        wanted.pipeline_degree = cases[i].pipeline;
        wanted.tensor_degree = cases[i].tensor;
        assert_int_equal(plan_placement_init(&wanted, &placement), SHOAL_ERR_ARGUMENT);
        if (strncmp(base_error_text(), cases[i].error, strlen(cases[i].error)) != 0)
            fail_msg("%s", base_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rightmost_letter_varies_fastest),
        cmocka_unit_test(groups_are_the_published_ones),
        cmocka_unit_test(the_published_identities_hold),
        cmocka_unit_test(what_can_not_be_placed_is_said),
    };
    return cmocka_run_group_tests_name("plan placement", tests, NULL, NULL);
}
