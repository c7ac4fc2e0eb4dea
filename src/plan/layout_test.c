/* SPDX-License-Identifier: Apache-2.0 */
/* layout_test.c: which layouts are tried, what they take by the model, and which come first. */
#include "plan/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"

#define MIB    (UINT64_C(1) << 20)
#define LAYERS 16
#define COUNT  (2 + 2 * LAYERS)

/* Layers of one module each, all alike: 10 MiB, 1 ms forward, 2 ms backward. */
static void make_model(struct shoal_plan_module *modules)
{
    static const char *const names[LAYERS] = {"l.0",  "l.1",  "l.2",  "l.3", "l.4",  "l.5",
                                              "l.6",  "l.7",  "l.8",  "l.9", "l.10", "l.11",
                                              "l.12", "l.13", "l.14", "l.15"};
    for (int i = 0; i < COUNT; i++) {
        struct shoal_plan_module *module = &modules[i];
        *module = (struct shoal_plan_module)SHOAL_PLAN_MODULE_INIT;
        bool is_leaf = i > 1 && i % 2 == 1;
        module->name = i < 2 ? "" : is_leaf ? "leaf" : names[(i - 2) / 2];
        module->parent = i == 0 ? -1 : i == 1 ? 0 : is_leaf ? i - 1 : 1;
        module->output_bytes = MIB;
        if (!is_leaf)
            continue;
        module->parameter_bytes = 10 * MIB;
        module->activation_bytes = MIB;
        module->forward_ns = 1000000;
        module->backward_ns = 2000000;
    }
}

static struct plan_layout_request request_of(const struct shoal_plan_module *modules, int ranks,
                                             int host_ranks, int batch)
{
    struct plan_layout_request request = {.model = SHOAL_PLAN_OPTIONS_INIT,
                                          .rank_count = ranks,
                                          .host_ranks = host_ranks,
                                          .batch = batch,
                                          .host_bytes_per_ns = 1e6,
                                          .network_bytes_per_ns = 1e6};
    request.model.modules = modules;
    request.model.module_count = COUNT;
    request.model.parameter_copies = 4;
    return request;
}

static struct plan_layout *layouts_of(const struct plan_layout_request *request, int *count)
{
    struct plan_layout *layouts = NULL;
    if (plan_layouts_create(request, &layouts, count) != SHOAL_OK)
        fail_msg("%s", base_error_text());
    return layouts;
}

static const struct plan_layout *find(const struct plan_layout *layouts, int count, int data,
                                      int pipeline, int tensor)
{
    for (int i = 0; i < count; i++)
        if (layouts[i].data == data && layouts[i].pipeline == pipeline &&
            layouts[i].tensor == tensor && layouts[i].microbatch_size == 1)
            return &layouts[i];
    return NULL;
}

/* 16 ranks, 4 on a host, 16 microbatches: T is 1, 2 or 4, and all degrees are powers of two. */
static void all_layouts_are_tried(void **state)
{
    (void)state;
    struct shoal_plan_module modules[COUNT];
    int count = 0, seen = 0;
    make_model(modules);
    struct plan_layout_request request = request_of(modules, 16, 4, 16);
    struct plan_layout *layouts = layouts_of(&request, &count);
    for (int tensor = 1; tensor <= 16; tensor++)
        for (int pipeline = 1; pipeline <= 16; pipeline++) {
            bool possible = 16 % (tensor * pipeline) == 0 && tensor <= 4;
            int data = possible ? 16 / tensor / pipeline : 1;
            const struct plan_layout *layout = find(layouts, count, data, pipeline, tensor);
            assert_int_equal(layout != NULL, possible);
            if (layout)
                assert_int_equal(layout->microbatches, 16 / data);
            seen += possible;
        }
    assert_int_equal(seen, 12);
    for (int i = 1; i < count; i++)
        assert_true(layouts[i - 1].step_ns <= layouts[i].step_ns);
    base_free(layouts);
}

/* With links that take no time: (M + P - 1) times a stage's work for a microbatch. */
static void the_bubble_is_that_of_1f1b(void **state)
{
    (void)state;
    struct shoal_plan_module modules[COUNT];
    int count = 0;
    make_model(modules);
    struct plan_layout_request request = request_of(modules, 8, 8, 32);
    request.host_bytes_per_ns = 1e12;
    struct plan_layout *layouts = layouts_of(&request, &count);
    for (int pipeline = 1; pipeline <= 8; pipeline *= 2)
        for (int tensor = 1; tensor * pipeline <= 8; tensor *= 2) {
            int data = 8 / pipeline / tensor, microbatches = 32 / data;
            double work = 3e6 * LAYERS / pipeline / tensor;
            const struct plan_layout *layout = find(layouts, count, data, pipeline, tensor);
            assert_non_null(layout);
            assert_float_equal(layout->step_ns, work * (microbatches + pipeline - 1), 100);
            assert_float_equal(layout->bubble_ns, work * (pipeline - 1), 100);
            assert_float_equal(layout->compute_ns, work * microbatches, 100);
            assert_int_equal(layout->memory_bytes,
                             (40 * MIB * LAYERS / (uint64_t)pipeline +
                              MIB * LAYERS /* P stages, P microbatches on the first */) /
                                 (uint64_t)tensor);
        }
    base_free(layouts);
}

/* Two hosts of one rank: the sums of gradients take 2 (D-1) / D of 160 MiB, less what the backward
 * pass of the last microbatch hides; a pipeline sends 1 MiB per microbatch. */
static void networks_decide_between_copies_and_stages(void **state)
{
    (void)state;
    struct shoal_plan_module modules[COUNT];
    int count = 0;
    make_model(modules);
    struct plan_layout_request request = request_of(modules, 2, 1, 8);
    request.network_bytes_per_ns = 0.1; /* 1.7 s for the gradients, 10 ms for a border */
    struct plan_layout *layouts = layouts_of(&request, &count);
    assert_int_equal(layouts[0].pipeline, 2);
    const struct plan_layout *copies = find(layouts, count, 2, 1, 1);
    assert_float_equal(copies->data_ns, 160.0 * (double)MIB / 0.1 - 2e6 * LAYERS, 100);
    assert_float_equal(copies->bubble_ns, 0, 100);
    base_free(layouts);
    request.network_bytes_per_ns = 100;
    layouts = layouts_of(&request, &count);
    assert_int_equal(layouts[0].data, 2);
    assert_float_equal(layouts[0].data_ns, 0, 1e-9);
    base_free(layouts);
}

/* Two sums of each layer's output in each direction, each rank sending 2 (T-1) / T of it. */
static void layers_are_summed_within_a_host(void **state)
{
    (void)state;
    struct shoal_plan_module modules[COUNT];
    int count = 0;
    make_model(modules);
    struct plan_layout_request request = request_of(modules, 4, 4, 1);
    request.host_bytes_per_ns = 10;
    struct plan_layout *layouts = layouts_of(&request, &count);
    assert_float_equal(find(layouts, count, 1, 1, 4)->tensor_ns,
                       LAYERS * 4 * 1.5 * (double)MIB / 10, 100);
    base_free(layouts);
    for (int i = 2; i < COUNT; i += 2)
        modules[i].name = "unnumbered"; /* no layers that could be cut */
    layouts = layouts_of(&request, &count);
    for (int i = 0; i < count; i++)
        assert_int_equal(layouts[i].tensor, 1);
    base_free(layouts);
}

/* Half of the layers have all the memory, and the other half all the time. */
static void stages_may_be_cut_by_time_alone(void **state)
{
    (void)state;
    struct shoal_plan_module modules[COUNT];
    int count = 0;
    make_model(modules);
    for (int i = 3; i < COUNT; i += 2) {
        modules[i].activation_bytes = 0;
        if (i < 3 + LAYERS)
            modules[i].forward_ns = modules[i].backward_ns = 0;
        else
            modules[i].parameter_bytes = 0;
    }
    struct plan_layout_request request = request_of(modules, 2, 2, 64);
    request.model.memory_weight = 1;
    request.host_bytes_per_ns = 1e12;
    struct plan_layout *layouts = layouts_of(&request, &count);
    const struct plan_layout *first = find(layouts, count, 1, 2, 1);
    assert_float_equal(first->memory_weight, 0, 0);
    assert_float_equal(first->compute_ns, 64 * 4 * 3e6, 100);
    base_free(layouts);
}

static void memory_rules_layouts_out(void **state)
{
    (void)state;
    struct shoal_plan_module modules[COUNT];
    struct plan_layout *layouts;
    int count = 0;
    make_model(modules);
    struct plan_layout_request request = request_of(modules, 8, 1, 64);
    request.memory_bytes = 180 * MIB; /* a quarter of parameters is 160, and 16 of activations */
    layouts = layouts_of(&request, &count);
    assert_null(find(layouts, count, 8, 1, 1));
    assert_null(find(layouts, count, 4, 2, 1));
    assert_non_null(find(layouts, count, 2, 4, 1));
    assert_non_null(find(layouts, count, 1, 8, 1));
    for (int i = 0; i < count; i++)
        assert_true(layouts[i].memory_bytes <= request.memory_bytes);
    base_free(layouts);
    request.memory_bytes = 50 * MIB;
    assert_int_equal(plan_layouts_create(&request, &layouts, &count), SHOAL_ERR_LIMIT);
    assert_non_null(strstr(base_error_text(), "no layout of 8 ranks fits into 52428800 bytes"));
}

/* The number of stages is looked for, so where modules were placed does not count. */
static void placement_by_hand_is_no_matter(void **state)
{
    (void)state;
    struct shoal_plan_module modules[COUNT];
    int count = 0;
    make_model(modules);
    modules[5].device = 7;
    struct plan_layout_request request = request_of(modules, 2, 2, 2);
    base_free(layouts_of(&request, &count));
    assert_true(count > 0);
    modules[5].parent = 9;
    struct plan_layout *layouts;
    assert_int_equal(plan_layouts_create(&request, &layouts, &count), SHOAL_ERR_ARGUMENT);
}

static void wrong_requests_are_named(void **state)
{
    (void)state;
    struct shoal_plan_module modules[COUNT];
    make_model(modules);
    static const struct {
        int ranks, host_ranks, batch;
        double rate;
        uint64_t memory;
        const char *error;
    } cases[] = {
        {0, 1, 1, 1, 0, "0 ranks: give 1 to 4096"},
        {4097, 1, 1, 1, 0, "4097 ranks: give 1 to 4096"},
        {8, 3, 1, 1, 0, "8 ranks can't be 3 on each host"},
        {8, 0, 1, 1, 0, "8 ranks can't be 0 on each host"},
        {8, 4, 0, 1, 0, "a batch of 0 microbatches: give 1 to 1048576"},
        {8, 4, 1, 0, 0, "rates must be above 0"},
        {8, 4, 1, 1, UINT64_MAX, "18446744073709551615 bytes of memory: give at most"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan_layout *layouts = NULL;
        int count = 0;
        struct plan_layout_request request =
            request_of(modules, cases[i].ranks, cases[i].host_ranks, cases[i].batch);
        request.host_bytes_per_ns = cases[i].rate;
        request.memory_bytes = cases[i].memory;
        assert_int_equal(plan_layouts_create(&request, &layouts, &count), SHOAL_ERR_ARGUMENT);
        if (!strstr(base_error_text(), cases[i].error))
            fail_msg("%s", base_error_text());
    }
}

static void memory_that_fails_is_an_error_and_leaves_nothing(void **state)
{
    (void)state;
    struct shoal_plan_module modules[COUNT];
    int count = 0;
    make_model(modules);
    struct plan_layout_request request = request_of(modules, 2, 2, 2);
    uint64_t before = base_memory_count();
    base_free(layouts_of(&request, &count));
    uint64_t allocations = base_memory_count() - before;
    for (uint64_t nth = 1; nth <= allocations; nth++) {
        struct plan_layout *layouts = NULL;
        size_t blocks = base_memory_blocks();
        base_memory_fail_at(nth);
        assert_int_equal(plan_layouts_create(&request, &layouts, &count), SHOAL_ERR_MEMORY);
        assert_null(layouts);
        assert_int_equal(base_memory_blocks(), blocks);
    }
    base_memory_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_layouts_are_tried),
        cmocka_unit_test(the_bubble_is_that_of_1f1b),
        cmocka_unit_test(networks_decide_between_copies_and_stages),
        cmocka_unit_test(layers_are_summed_within_a_host),
        cmocka_unit_test(stages_may_be_cut_by_time_alone),
        cmocka_unit_test(memory_rules_layouts_out),
        cmocka_unit_test(placement_by_hand_is_no_matter),
        cmocka_unit_test(wrong_requests_are_named),
        cmocka_unit_test(memory_that_fails_is_an_error_and_leaves_nothing),
    };
    return cmocka_run_group_tests_name("plan layout", tests, NULL, NULL);
}
