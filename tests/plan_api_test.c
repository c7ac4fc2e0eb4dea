/* SPDX-License-Identifier: Apache-2.0 */
/* plan_api_test.c: the planner as programs see it: structs with sizes, NULL, and what it answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "shoal.h"

#define MODULES 4

static void make_modules(struct shoal_plan_module *modules)
{
    static const char *const names[MODULES] = {"", "first", "second", "third"};
    for (int i = 0; i < MODULES; i++) {
        modules[i] = (struct shoal_plan_module)SHOAL_PLAN_MODULE_INIT;
        modules[i].name = names[i];
        modules[i].parent = i ? 0 : -1;
        modules[i].parameter_bytes = i ? 1000 : 0;
        modules[i].output_bytes = 10;
    }
}

static void a_model_is_cut(void **state)
{
    (void)state;
    struct shoal_plan_module modules[MODULES];
    struct shoal_plan_options options = SHOAL_PLAN_OPTIONS_INIT;
    struct shoal_plan_report report = SHOAL_PLAN_REPORT_INIT;
    struct shoal_plan_load load = SHOAL_PLAN_LOAD_INIT;
    shoal_plan_t plan = NULL;
    make_modules(modules);
    options.modules = modules;
    options.module_count = MODULES;
    options.device_count = 3;
    assert_int_equal(shoal_plan_create(&options, &plan), SHOAL_OK);
    memset(modules, 0, sizeof(modules)); /* the plan needs them no more */
    for (int i = 1; i < MODULES; i++)
        assert_int_equal(shoal_plan_device(plan, i), i - 1);
    assert_int_equal(shoal_plan_device(plan, MODULES), -1);
    assert_int_equal(shoal_plan_device(plan, -1), -1);
    assert_int_equal(shoal_plan_report(plan, &report), SHOAL_OK);
    assert_int_equal(report.struct_bytes, sizeof(report));
    assert_int_equal(report.crossings, 2);
    assert_int_equal(report.crossing_bytes, 20);
    assert_int_equal(shoal_plan_load(plan, 2, &load), SHOAL_OK);
    assert_int_equal(load.parameter_bytes, 1000);
    assert_int_equal(load.struct_bytes, sizeof(load));
    assert_int_equal(shoal_plan_load(plan, 3, &load), SHOAL_ERR_ARGUMENT);
    assert_string_equal(shoal_last_error(NULL), "device is 3: the plan has 0 to 2");
    report.struct_bytes = 8;
    assert_int_equal(shoal_plan_report(plan, &report), SHOAL_ERR_ARGUMENT);
    assert_int_equal(shoal_plan_free(plan), SHOAL_OK);
}

static void assert_refused(const struct shoal_plan_options *options, const char *text)
{
    shoal_plan_t plan = NULL;
    assert_int_equal(shoal_plan_create(options, &plan), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(shoal_last_error(NULL), text));
    assert_null(plan);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    struct shoal_plan_module modules[MODULES];
    struct shoal_plan_options options = SHOAL_PLAN_OPTIONS_INIT;
    struct shoal_plan_report report = SHOAL_PLAN_REPORT_INIT;
    make_modules(modules);
    assert_refused(NULL, "options is NULL");
    assert_refused(&options, "options.modules is NULL");
    options.modules = modules;
    assert_refused(&options, "options.module_count is 0");
    options.module_bytes = 8;
    assert_refused(&options, "options.module_bytes is 8, ");
    options.struct_bytes = 8;
    assert_refused(&options, "options.struct_bytes is 8, at least ");
    assert_int_equal(shoal_plan_create(&options, NULL), SHOAL_ERR_ARGUMENT);
    assert_int_equal(shoal_plan_report(NULL, &report), SHOAL_ERR_ARGUMENT);
    assert_int_equal(shoal_plan_device(NULL, 0), -1);
    assert_int_equal(shoal_plan_free(NULL), SHOAL_OK);
}

static void ranks_have_groups(void **state)
{
    (void)state;
    struct shoal_placement placement = SHOAL_PLACEMENT_INIT;
    int ranks[2], count = 0, index = 0;
    /* Of rank 5 where rank = 4 pp + 2 tp + rdp: in 0..7, 1 3 5 7, 4 5 6 7, 1 5, 5 7 and 4 5. */
    static const int counts[] = {8, 4, 4, 2, 2, 2}, indices[] = {5, 2, 1, 1, 0, 1};
    placement.size = 8;
    placement.pipeline_degree = 2;
    placement.tensor_degree = 2;
    placement.strategy = "PTD";
    for (int kind = SHOAL_PLACEMENT_WORLD; kind <= SHOAL_PLACEMENT_RDP; kind++) {
        assert_int_equal(shoal_placement_group(&placement, (enum shoal_placement_group)kind, 5,
                                               NULL, 0, &count, &index),
                         SHOAL_OK);
        assert_int_equal(count, counts[kind]);
        assert_int_equal(index, indices[kind]);
    }
    assert_int_equal(shoal_placement_group(&placement, SHOAL_PLACEMENT_MP, 5, ranks, 2, NULL, NULL),
                     SHOAL_OK);
    assert_int_equal(ranks[0], 1);
    assert_int_equal(ranks[1], 3);
}

static void wrong_placements_are_refused(void **state)
{
    (void)state;
    struct shoal_placement placement = SHOAL_PLACEMENT_INIT;
    int count = 7;
    assert_int_equal(
        shoal_placement_group(&placement, SHOAL_PLACEMENT_MP, 1, NULL, 0, &count, NULL),
        SHOAL_ERR_ARGUMENT);
    assert_string_equal(shoal_last_error(NULL), "rank is 1: there are 0 to 0");
    assert_int_equal(
        shoal_placement_group(&placement, (enum shoal_placement_group)6, 0, NULL, 0, &count, NULL),
        SHOAL_ERR_ARGUMENT);
    assert_int_equal(
        shoal_placement_group(&placement, SHOAL_PLACEMENT_MP, 0, NULL, 1, &count, NULL),
        SHOAL_ERR_ARGUMENT);
    placement.struct_bytes = 8;
    assert_int_equal(
        shoal_placement_group(&placement, SHOAL_PLACEMENT_MP, 0, NULL, 0, &count, NULL),
        SHOAL_ERR_ARGUMENT);
    assert_int_equal(shoal_placement_group(NULL, SHOAL_PLACEMENT_MP, 0, NULL, 0, &count, NULL),
                     SHOAL_ERR_ARGUMENT);
    assert_int_equal(count, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_cut),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(ranks_have_groups),
        cmocka_unit_test(wrong_placements_are_refused),
    };
    return cmocka_run_group_tests_name("plan api", tests, NULL, NULL);
}
