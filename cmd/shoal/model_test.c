/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_test.c: the tables of gradients have the published numbers of parameters; damaged ones are
 * named with their line. Includes the source because the command's files are in no library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model.c"
#include "model_table.c"
#include "support/fuzz.h"

static const struct model_tensor *find(const struct model *model, const char *name)
{
    for (int i = 0; i < model->tensor_count; i++)
        if (strcmp(model->tensors[i].name, name) == 0)
            return &model->tensors[i];
    fail_msg("%s has no %s", model->name, name);
    return NULL;
}

/* With what is frozen, these are the numbers that the implementations publish. */
static void test_totals_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int tensors;
        uint64_t published, frozen;
        const char *first, *last;
    } cases[] = {
        {"bert-large", 398, 336226108, 0, "cls.seq_relationship.bias",
         "bert.embeddings.word_embeddings.weight"},
        {"resnet-50", 161, 25557032, 0, "fc.bias", "conv1.weight"},
        {"mask-rcnn-r50", 84, 44401393, 222400, "roi_heads.mask_predictor.mask_fcn_logits.bias",
         "backbone.body.layer2.0.conv1.weight"},
        {"gpt-2", 148, 124439808, 0, "transformer.ln_f.bias", "transformer.wte.weight"},
        {"gpt-2-xl", 580, 1557611200, 0, "transformer.ln_f.bias", "transformer.wte.weight"},
    };
    assert_int_equal(sizeof(cases) / sizeof(cases[0]), MODEL_TABLES_COUNT);
    for (size_t i = 0; i < MODEL_TABLES_COUNT; i++) {
        struct model model;
        assert_int_equal(model_read(cases[i].name, &model), SHOAL_OK);
        assert_string_equal(model.name, cases[i].name);
        assert_int_equal(model.tensor_count, cases[i].tensors);
        assert_int_equal(model.frozen, cases[i].frozen);
        assert_int_equal(model.parameters + model.frozen, cases[i].published);
        assert_string_equal(model.tensors[0].name, cases[i].first);
        assert_string_equal(model.tensors[model.tensor_count - 1].name, cases[i].last);
        model_release(&model);
    }
}

/* Gradients become ready one after the other, the last one at the end of the pass. In a
 * convolutional network the many parameters of its end are ready early. */
static void test_shares_of_the_pass_rise_to_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_TABLES_COUNT; i++) {
        struct model model;
        double before = 0;
        assert_int_equal(model_read(model_tables[i].name, &model), SHOAL_OK);
        for (int k = 0; k < model.tensor_count; k++) {
            assert_true(model.tensors[k].ready >= before);
            before = model.tensors[k].ready;
        }
        assert_float_equal(before, 1, 1e-9);
        if (strcmp(model.name, "resnet-50") == 0)
            assert_true(find(&model, "layer4.0.conv1.weight")->ready < 0.25);
        model_release(&model);
    }
}

static void test_damaged_tables_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "t: there is no tensor in it"},
        {"a 2x3 1\nparameters 7", "t: its tensors have 6 parameters, not 7"},
        {"parameters 6\na 2x 1", "t:2: expected a shape as 1024x4096, not '2x'"},
        {"a 0 1", "t:1: expected a shape as 1024x4096, not '0'"},
        {"a 2*3 1", "t:1: expected a shape as 1024x4096, not '2*3'"},
        {"a 1099511627776x2 1", "t:1: expected a shape as 1024x4096, not '1099511627776x2'"},
        {"a 2 much", "t:1: expected a number of multiplications, not 'much'"},
        {"parameters -1", "t:1: expected a number of parameters, not '-1'"},
        {"model a\"b\na 2 1", "t:1: expected a name of letters, digits, '.', '_', '+' and '-'"},
        {"model <b>\na 2 1", "t:1: expected a name of letters"},
        {"a 2", "t:1: expected NAME SHAPE WORK, model NAME, parameters NUMBER or frozen NUMBER"},
        {"a 2 1 1", "t:1: expected NAME SHAPE WORK, model NAME, parameters NUMBER or frozen NU"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model model;
        size_t blocks = base_memory_blocks();
        assert_int_equal(model_parse("t", cases[i].text, &model), SHOAL_ERR_FORMAT);
        if (strncmp(base_error_text(), cases[i].error, strlen(cases[i].error)) != 0)
            fail_msg("'%s': %s", cases[i].text, base_error_text());
        assert_int_equal(base_memory_blocks(), blocks);
    }
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct model model;
    (void)user;
    (void)count;
    (void)round;
    if (model_parse("t", text, &model) != SHOAL_OK)
        return;
    assert_true(model.tensor_count > 0 && model.parameters >= (uint64_t)model.tensor_count);
    model_release(&model);
}

static void test_any_text(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("# one\nmodel m\nfrozen 3\nparameters 13\na.weight 2x3 100\nb 7 0 # last\n")};
    static const char *const words[] = {"model ", "parameters ",   "frozen ", "a 2x3 1", "x",
                                        "\n",     "1099511627776", "nan",     NULL};
    struct fuzz fuzz = FUZZ(texts, words, 300, .is_string = true, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

static void test_unknown_models(void **state)
{
    (void)state;
    struct model model;
    assert_int_equal(model_read("bert-larg", &model), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "there are bert-large, gpt-2-xl, gpt-2, mask-rcnn"));
    assert_non_null(strstr(base_error_text(), "did you mean 'bert-large'?"));
    assert_int_equal(model_read("./nowhere", &model), SHOAL_ERR_SYSTEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_totals_are_the_published_ones),
        cmocka_unit_test(test_shares_of_the_pass_rise_to_one),
        cmocka_unit_test(test_damaged_tables_are_named),
        cmocka_unit_test(test_any_text),
        cmocka_unit_test(test_unknown_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
