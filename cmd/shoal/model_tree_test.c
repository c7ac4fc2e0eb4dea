/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_tree_test.c: the trees of known models have the published numbers of parameters and are cut
 * close to the optimum; damaged ones are named with their line. Includes the source because the
 * command's files are in no library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "model_table.c"
#include "model_tree.c"
#include "support/fuzz.h"

static void totals_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t parameters, bytes; /* bytes of each */
        int modules;
    } cases[] = {
        {"gpt-2", 124439808, 4, 127},
        {"bert-large", 336226108, 4, 379},
        {"resnet-50", 25557032, 4, 151},
        {"t5-large", 737668096, 4, 901},
        /* with embeddings of the head's own: */
        {"gpt-10b", 10077937664, 2, 53},
        {"gpt-30b", 30319966208, 2, 53},
        {"gpt-60b", 60423962624, 2, 79},
        {"gpt-175b", 175221817344, 2, 101},
    };
    assert_int_equal(MODEL_TREES_COUNT, sizeof(cases) / sizeof(cases[0]));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_tree tree;
        uint64_t bytes = 0;
        assert_int_equal(model_tree_read(cases[i].name, &tree), SHOAL_OK);
        assert_string_equal(tree.name, cases[i].name);
        for (int k = 0; k < tree.module_count; k++)
            bytes += tree.modules[k].parameter_bytes;
        assert_int_equal(bytes, cases[i].bytes * cases[i].parameters);
        assert_int_equal(tree.module_count, cases[i].modules);
        model_tree_release(&tree);
    }
}

static void assert_cut_well(const struct model_tree *tree, int devices, double memory_weight)
{
    struct shoal_plan_options options = SHOAL_PLAN_OPTIONS_INIT;
    struct shoal_plan_report report = SHOAL_PLAN_REPORT_INIT;
    shoal_plan_t plan;
    options.modules = tree->modules;
    options.module_count = tree->module_count;
    options.device_count = devices;
    options.memory_weight = memory_weight;
    assert_int_equal(shoal_plan_create(&options, &plan), SHOAL_OK);
    assert_int_equal(shoal_plan_report(plan, &report), SHOAL_OK);
    if (report.largest_cost > 1.05 * report.optimum_cost + 1e-12)
        fail_msg("%s on %d devices: %g, not %g", tree->name, devices, report.largest_cost,
                 report.optimum_cost);
    assert_true(report.crossings >= devices - 1 || report.devices_used < devices);
    shoal_plan_free(plan);
}

static void known_models_are_cut_within_a_twentieth_of_the_optimum(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_TREES_COUNT; i++) {
        struct model_tree tree;
        assert_int_equal(model_tree_read(model_trees[i].name, &tree), SHOAL_OK);
        for (int devices = 1; devices <= 64; devices++)
            for (int tenths = 0; tenths <= 10; tenths += 2)
                assert_cut_well(&tree, devices, tenths / 10.0);
        model_tree_release(&tree);
    }
}

static enum shoal_status parse(const char *text, struct model_tree *tree)
{
    char *copy;
    TRY(base_strdup(text, "a text", &copy));
    return model_tree_parse("t", copy, tree);
}

static void trees_are_read(void **state)
{
    (void)state;
    struct model_tree tree;
    static const int parents[] = {-1, 0, 1, 2, 1, 0};
    assert_int_equal(parse("# a comment\nmodel m 1 2 3 4 5\na 1 2 3 4 5 # more\na.b 0 0 0 0 0\n"
                           "a.b.c 1 1 1 1 1\n\na.d 0 0 0 0 0 device 3\n"
                           "ab 0 0 9 0 0 device 1 shares a.b.c",
                           &tree),
                     SHOAL_OK);
    assert_string_equal(tree.name, "m");
    assert_int_equal(tree.module_count, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(tree.modules[i].parent, parents[i]);
    assert_int_equal(tree.modules[0].backward_ns, 5);
    assert_int_equal(tree.modules[1].activation_bytes, 2);
    assert_int_equal(tree.modules[4].device, 3);
    assert_int_equal(tree.modules[5].device, 1);
    assert_int_equal(tree.modules[5].shares, 3);
    assert_int_equal(tree.modules[5].output_bytes, 9);
    assert_int_equal(tree.modules[3].shares, -1);
    model_tree_release(&tree);
}

static void damaged_trees_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "t: there is no model in it"},
        {"a 1 2 3 4 5", "t:1: expected model NAME first"},
        {"model m\na 1 2 3 4", "t:2: expected NAME PARAMETERS ACTIVATIONS OUTPUT FORWARD BACKWARD"},
        {"model m\na 1 2 3 4 5 shares", "t:2: expected NAME PARAMETERS"},
        {"model m\na 1 2 3 4 5 on 3", "t:2: expected NAME PARAMETERS"},
        {"model m\na 1 2 3 4 5 shares a", "t:2: there is no module 'a' before this one"},
        {"model m\na 1 2 -3 4 5", "t:2: expected a number of at most 18446744073709551615, not"},
        {"model m\na 1 2 3.5 4 5", "t:2: expected a number of at most 18446744073709551615, not"},
        {"model m\na 1 2 3 4 99999999999999999999", "t:2: expected a number of at most"},
        {"model m\na 1 2 3 4 5 device 9999999999", "t:2: expected a number of at most 2147483647"},
        {"model m\na.b 1 2 3 4 5", "t:2: there is no 'a' that 'a.b' could be in"},
        {"model m\na 1 2 3 4 5\nb 1 2 3 4 5\na.c 1 2 3 4 5", "t:4: there is no 'a' that 'a.c'"},
        {"model m\nab 1 2 3 4 5\na.c 1 2 3 4 5", "t:3: there is no 'a' that 'a.c'"},
        {"model m\nm.c 1 2 3 4 5", "t:2: there is no 'm' that 'm.c' could be in"},
        {"model m\n.c 1 2 3 4 5", "t:2: there is no '' that '.c' could be in"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_tree tree;
        size_t blocks = base_memory_blocks();
        assert_int_equal(parse(cases[i].text, &tree), SHOAL_ERR_FORMAT);
        if (strncmp(base_error_text(), cases[i].error, strlen(cases[i].error)) != 0)
            fail_msg("'%s': %s", cases[i].text, base_error_text());
        assert_int_equal(base_memory_blocks(), blocks);
    }
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct model_tree tree;
    (void)user;
    (void)count;
    (void)round;
    if (parse(text, &tree) != SHOAL_OK)
        return;
    for (int i = 0; i < tree.module_count; i++)
        assert_true(tree.modules[i].parent < i && tree.modules[i].shares < i);
    model_tree_release(&tree);
}

static void any_text_is_a_tree_or_refused(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("# one\nmodel m 1 2 3 4 5\na 1 2 3 4 5 # more\na.b 0 0 0 0 0\na.b.c 1 1 1 1 1\n"
                  "\na.d 0 0 0 0 0 device 3\nab 0 0 9 0 0 device 1 shares a.b.c")};
    static const char *const words[] = {"model m", " device ",   " shares a", "a.b",
                                        ".",       " 1 2 3 4 5", "\n",        NULL};
    struct fuzz fuzz = FUZZ(texts, words, 10000, .is_string = true, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

static void memory_that_fails_is_an_error(void **state)
{
    (void)state;
    struct model_tree tree;
    size_t blocks = base_memory_blocks();
    for (uint64_t nth = 1; nth <= 2; nth++) {
        base_memory_fail_at(nth);
        assert_int_equal(model_tree_read("gpt-2", &tree), SHOAL_ERR_MEMORY);
        assert_int_equal(base_memory_blocks(), blocks);
    }
    base_memory_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_are_the_published_ones),
        cmocka_unit_test(known_models_are_cut_within_a_twentieth_of_the_optimum),
        cmocka_unit_test(trees_are_read),
        cmocka_unit_test(damaged_trees_are_named),
        cmocka_unit_test(any_text_is_a_tree_or_refused),
        cmocka_unit_test(memory_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
