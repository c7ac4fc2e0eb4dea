/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partition_test.c: models onto devices: close to the optimum on random trees, modules that share
 * parameters, placement by hand, memory that is too small, strange models, and failing memory.
 */
#include "plan/partition.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "plan/tree.h"

#define MIB (UINT64_C(1) << 20)

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (seed * UINT64_C(2685821657736338717) >> 33) % below;
}

/* ---- models -------------------------------------------------------------------------------- */

static struct shoal_plan_options options_of(const struct shoal_plan_module *modules, int count,
                                            int devices)
{
    struct shoal_plan_options options = SHOAL_PLAN_OPTIONS_INIT;
    options.modules = modules;
    options.module_count = count;
    options.device_count = devices;
    options.memory_weight = 0.5;
    return options;
}

static struct shoal_plan_module module_of(const char *name, int parent, uint64_t mib, uint64_t us)
{
    struct shoal_plan_module module = SHOAL_PLAN_MODULE_INIT;
    module.name = name;
    module.parent = parent;
    module.parameter_bytes = mib * MIB;
    module.forward_ns = us * 1000;
    module.backward_ns = us * 2000;
    module.output_bytes = MIB;
    return module;
}

/* Trees of any shape; some nodes have work of their own, some modules share parameters. */
static void make_tree(struct shoal_plan_module *modules, int count)
{
    int reach = 1 + (int)draw((uint64_t)count);
    for (int i = 0; i < count; i++) {
        int parent = i - 1 - (int)draw((uint64_t)(i < reach ? i : reach) + (i == 0));
        modules[i] = module_of("module", i == 0 ? -1 : parent, draw(2) ? draw(100) : 0,
                               draw(2) ? draw(100) : 0);
        modules[i].activation_bytes = draw(50) * MIB;
        modules[i].shares = i > 0 && draw(8) == 0 ? (int)draw((uint64_t)i) : -1;
    }
}

/* The embedding, blocks of attention and mlp, and a head that uses the embedding's parameters. */
#define BLOCKS       12
#define LANGUAGE_MAX (6 + 3 * BLOCKS)
static int make_language_model(struct shoal_plan_module *modules)
{
    int count = 0;
    modules[count++] = module_of("", -1, 0, 0);
    modules[count++] = module_of("embedding", 0, 150, 10);
    modules[count++] = module_of("blocks", 0, 0, 0);
    for (int block = 0; block < BLOCKS; block++) {
        int at = count;
        modules[count++] = module_of("block", 2, 0, 0);
        modules[count++] = module_of("attention", at, 9, 100);
        modules[count++] = module_of("mlp", at, 18, 200);
    }
    modules[count++] = module_of("norm", 0, 0, 5);
    modules[count] = module_of("head", 0, 0, 400);
    modules[count++].shares = 1;
    return count;
}

static struct plan_partition *partition_of(const struct shoal_plan_options *options)
{
    struct plan_partition *partition = NULL;
    if (plan_partition_create(options, &partition) != SHOAL_OK)
        fail_msg("%s", base_error_text());
    return partition;
}

static void assert_error(const struct shoal_plan_options *options, enum shoal_status status,
                         const char *text)
{
    struct plan_partition *partition = NULL;
    size_t blocks = base_memory_blocks();
    assert_int_equal(plan_partition_create(options, &partition), status);
    if (!strstr(base_error_text(), text))
        fail_msg("'%s' is not in '%s'", text, base_error_text());
    assert_null(partition);
    assert_int_equal(base_memory_blocks(), blocks);
}

/* ---- the optimum --------------------------------------------------------------------------- */

/* Costs of the nodes in order, from the definition: shares of memory and time. */
static int costs_of(const struct shoal_plan_options *options, double *costs)
{
    struct plan_tree tree;
    double memory = 0, time = 0;
    assert_int_equal(plan_tree_init(options, &tree), SHOAL_OK);
    int count = tree.node_count;
    for (int i = 0; i < count; i++) {
        memory += (double)(tree.nodes[i].parameter_bytes + tree.nodes[i].activation_bytes);
        time += (double)(tree.nodes[i].forward_ns + tree.nodes[i].backward_ns);
    }
    double weight = time == 0 ? 1 : memory == 0 ? 0 : options->memory_weight;
    for (int i = 0; i < count; i++) {
        const struct plan_node *node = &tree.nodes[i];
        costs[i] =
            (memory ? weight * (double)(node->parameter_bytes + node->activation_bytes) / memory
                    : 0) +
            (time ? (1 - weight) * (double)(node->forward_ns + node->backward_ns) / time : 0);
    }
    plan_tree_release(&tree);
    return count;
}

/* By trying all ways. */
static double best_of_all(const double *costs, int count, int devices)
{
    double best = 0, own = 0;
    for (int i = 0; i < count; i++)
        best += costs[i];
    for (int i = 1; i < count && devices > 1; i++) {
        own += costs[i - 1];
        double rest = best_of_all(costs + i, count - i, devices - 1);
        double largest = own > rest ? own : rest;
        best = largest < best ? largest : best;
    }
    return best;
}

static double largest_load(const struct plan_partition *partition)
{
    double largest = 0;
    for (int i = 0; i < partition->device_count; i++)
        largest = partition->loads[i].cost > largest ? partition->loads[i].cost : largest;
    return largest;
}

static void random_trees_are_cut_within_a_twentieth_of_the_optimum(void **state)
{
    (void)state;
    enum { MODULES_MAX = 14, DEVICES_MAX = 5 };
    int published = 0;
    seed = 1;
    for (int n = 0; n < 1000; n++) {
        struct shoal_plan_module modules[MODULES_MAX];
        double costs[MODULES_MAX], sum = 0;
        int count = 1 + (int)draw(MODULES_MAX), devices = 1 + (int)draw(DEVICES_MAX);
        make_tree(modules, count);
        struct shoal_plan_options options = options_of(modules, count, devices);
        options.memory_weight = (double)draw(11) / 10;
        struct plan_partition *partition = partition_of(&options);
        double best = best_of_all(costs, costs_of(&options, costs), devices);
        if (best > 0)
            assert_float_equal(partition->report.optimum_cost, best, 1e-9);
        assert_true(largest_load(partition) <= 1.05 * partition->report.optimum_cost + 1e-9);
        assert_float_equal(largest_load(partition), partition->report.largest_cost, 1e-12);
        for (int i = 0; i < count; i++) {
            int shares = modules[i].shares;
            assert_in_range(partition->device_of[i], 0, devices - 1);
            assert_true(shares < 0 || partition->device_of[i] == partition->device_of[shares]);
        }
        for (int i = 0; i < devices; i++)
            sum += partition->loads[i].cost;
        assert_float_equal(sum, 1, 1e-9);
        published += partition->report.method == SHOAL_PLAN_PUBLISHED;
        plan_partition_free(partition);
    }
    assert_in_range(published, 100, 900); /* both ways are tried */
}

/* What the published method makes of a node with three children and four devices: two segments
 * would be better than three, but each child is a segment, and the largest gets two devices. */
static void the_published_method_is_followed(void **state)
{
    (void)state;
    struct shoal_plan_module modules[] = {
        module_of("", -1, 0, 0),    module_of("a", 0, 30, 0),   module_of("b", 0, 0, 0),
        module_of("b.0", 2, 30, 0), module_of("b.1", 2, 30, 0), module_of("c", 0, 30, 0),
    };
    static const int expected[] = {0, 0, 1, 1, 2, 3};
    struct shoal_plan_options options = options_of(modules, 6, 4);
    struct plan_partition *partition = partition_of(&options);
    assert_int_equal(partition->report.method, SHOAL_PLAN_PUBLISHED);
    for (int i = 0; i < 6; i++)
        assert_int_equal(partition->device_of[i], expected[i]);
    assert_float_equal(partition->report.largest_cost, 0.25, 1e-12);
    assert_int_equal(partition->report.devices_used, 4);
    plan_partition_free(partition);
}

/* ---- shared parameters --------------------------------------------------------------------- */

static void the_head_is_where_the_embedding_is(void **state)
{
    (void)state;
    struct shoal_plan_module modules[LANGUAGE_MAX];
    int count = make_language_model(modules);
    for (int devices = 1; devices <= 16; devices++) {
        struct shoal_plan_options options = options_of(modules, count, devices);
        struct plan_partition *partition = partition_of(&options);
        assert_int_equal(partition->device_of[count - 1], partition->device_of[1]);
        assert_true(partition->report.largest_cost <= 1.05 * partition->report.optimum_cost);
        /* Once to the end and once back to the embedding's device, and no more often. */
        int used = partition->report.devices_used;
        assert_in_range(used, devices < 9 ? devices : 8, devices);
        assert_int_equal(partition->report.crossings, used > 1 ? used : 0);
        assert_int_equal(partition->report.crossing_bytes, partition->report.crossings * (int)MIB);
        assert_int_equal(partition->loads[0].visits, devices > 1 ? 2 : 1);
        plan_partition_free(partition);
    }
}

/* ---- placement by hand --------------------------------------------------------------------- */

static void what_is_in_a_placed_module_follows_it(void **state)
{
    (void)state;
    struct shoal_plan_module modules[LANGUAGE_MAX];
    int count = make_language_model(modules);
    modules[2].device = 2;  /* the blocks */
    modules[12].device = 1; /* a block among them */
    struct shoal_plan_options options = options_of(modules, count, 4);
    options.auto_partition = 0;
    options.default_device = 3;
    struct plan_partition *partition = partition_of(&options);
    assert_int_equal(partition->report.method, SHOAL_PLAN_MANUAL);
    for (int i = 0; i < count; i++) {
        int expected = i >= 12 && i < 15 ? 1 : i >= 2 && i < 3 + 3 * BLOCKS ? 2 : 3;
        assert_int_equal(partition->device_of[i], expected);
    }
    assert_int_equal(partition->loads[0].module_count, 0);
    assert_int_equal(partition->report.devices_used, 3);
    assert_true(partition->report.optimum_cost < partition->report.largest_cost);
    plan_partition_free(partition);
}

/* The rest goes around what is placed: device 3 has the half of the model already. */
static void others_are_placed_around_it(void **state)
{
    (void)state;
    struct shoal_plan_module modules[9];
    modules[0] = module_of("", -1, 0, 0);
    for (int i = 1; i < 9; i++)
        modules[i] = module_of("leaf", 0, i == 4 ? 70 : 10, 0);
    modules[4].device = 3;
    struct shoal_plan_options options = options_of(modules, 9, 4);
    struct plan_partition *partition = partition_of(&options);
    assert_int_equal(partition->device_of[4], 3);
    for (int i = 1; i < 9; i++)
        assert_true(i == 4 || partition->device_of[i] < 3);
    assert_float_equal(partition->report.largest_cost, 0.5, 1e-12);
    assert_float_equal(partition->report.optimum_cost, 0.5, 1e-12);
    plan_partition_free(partition);
}

static void modules_that_share_parameters_are_placed_together(void **state)
{
    (void)state;
    struct shoal_plan_module modules[LANGUAGE_MAX];
    int count = make_language_model(modules), head = count - 1;
    struct shoal_plan_options options = options_of(modules, count, 4);
    modules[head].device = 3;
    struct plan_partition *partition = partition_of(&options);
    assert_int_equal(partition->device_of[1], 3);
    assert_int_equal(partition->device_of[head], 3);
    plan_partition_free(partition);
    modules[1].device = 0;
    assert_error(&options, SHOAL_ERR_ARGUMENT,
                 "module 'head' shares parameters with 'embedding', so they must be on one device: "
                 "they are placed on 3 and 0");
    modules[1].device = -1;
    modules[0].device = 1; /* around both: the head's own word counts for the embedding too */
    partition = partition_of(&options);
    assert_int_equal(partition->device_of[1], 3);
    assert_int_equal(partition->device_of[5], 1);
    plan_partition_free(partition);
}

/* ---- memory -------------------------------------------------------------------------------- */

static void limits_of_memory_are_kept(void **state)
{
    (void)state;
    struct shoal_plan_module modules[LANGUAGE_MAX];
    int count = make_language_model(modules);
    static const uint64_t limits[] = {160 * 4 * MIB, 0, 40 * 4 * MIB, 300 * 4 * MIB};
    struct shoal_plan_options options = options_of(modules, count, 4);
    options.memory_limits = limits;
    options.parameter_copies = 4;
    options.memory_weight = 0;
    struct plan_partition *partition = partition_of(&options);
    assert_int_equal(partition->report.method, SHOAL_PLAN_BALANCED);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(partition->loads[i].memory_bytes, 4 * partition->loads[i].parameter_bytes);
        assert_true(limits[i] == 0 || partition->loads[i].memory_bytes <= limits[i]);
    }
    assert_true(partition->report.largest_cost <= partition->report.optimum_cost + 1e-12);
    plan_partition_free(partition);
}

static void activations_count_once_for_each_microbatch_in_flight(void **state)
{
    (void)state;
    struct shoal_plan_module modules[7];
    static const int in_flight[] = {3, 2, 1};
    static const uint64_t limits[] = {6 * MIB, 6 * MIB, 6 * MIB};
    modules[0] = module_of("", -1, 0, 0);
    for (int i = 1; i < 7; i++) {
        modules[i] = module_of("leaf", 0, 0, 10);
        modules[i].activation_bytes = MIB;
    }
    struct shoal_plan_options options = options_of(modules, 7, 3);
    options.memory_limits = limits;
    options.in_flight = in_flight;
    struct plan_partition *partition = partition_of(&options);
    for (int i = 0; i < 3; i++)
        assert_int_equal(partition->loads[i].memory_bytes,
                         partition->loads[i].activation_bytes * (uint64_t)in_flight[i]);
    plan_partition_free(partition);
    static const int more_in_flight[] = {6, 5, 4};
    options.in_flight = more_in_flight;
    assert_error(&options, SHOAL_ERR_LIMIT,
                 "the model does not fit: the devices are full before "
                 "module 'leaf'");
}

static void a_model_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct shoal_plan_module modules[LANGUAGE_MAX];
    int count = make_language_model(modules);
    uint64_t limits[] = {100 * MIB, 120 * MIB, 100 * MIB};
    struct shoal_plan_options options = options_of(modules, count, 3);
    options.memory_limits = limits;
    assert_error(&options, SHOAL_ERR_LIMIT,
                 "module 'embedding' needs 157286400 bytes of memory, and no device has more than "
                 "125829120 for it");
    limits[0] = 150 * MIB;
    assert_error(&options, SHOAL_ERR_LIMIT,
                 "the model does not fit: the devices are full before module 'attention'. It needs "
                 "497025024 bytes even with one microbatch in flight, and the 3 devices have "
                 "387973120 together");
    modules[2].device = 2;
    assert_error(&options, SHOAL_ERR_LIMIT,
                 "device 2 is given more by hand than its 104857600 bytes: module 'mlp' needs "
                 "18874368, and 10485760 are left");
    options.auto_partition = 0;
    options.default_device = 1;
    assert_error(&options, SHOAL_ERR_LIMIT, "device 1 is given more by hand than its 125829120");
}

/* ---- strange models ------------------------------------------------------------------------ */

static void a_model_may_be_one_module(void **state)
{
    (void)state;
    struct shoal_plan_module module = module_of("all", -1, 1, 1);
    struct shoal_plan_options options = options_of(&module, 1, 5);
    struct plan_partition *partition = partition_of(&options);
    assert_int_equal(partition->device_of[0], 0);
    assert_int_equal(partition->report.devices_used, 1);
    assert_float_equal(partition->report.largest_cost, 1, 1e-12);
    plan_partition_free(partition);
}

static void a_model_without_costs_is_cut_by_its_modules(void **state)
{
    (void)state;
    struct shoal_plan_module modules[9];
    for (int i = 0; i < 9; i++)
        modules[i] = module_of("nothing", i ? 0 : -1, 0, 0);
    struct shoal_plan_options options = options_of(modules, 9, 3);
    struct plan_partition *partition = partition_of(&options);
    for (int i = 0; i < 3; i++)
        assert_float_equal(partition->loads[i].cost, 1.0 / 3, 1e-9);
    plan_partition_free(partition);
}

static void all_costs_may_be_in_one_module(void **state)
{
    (void)state;
    struct shoal_plan_module modules[9];
    for (int i = 0; i < 9; i++)
        modules[i] = module_of("leaf", i ? 0 : -1, i == 6 ? 100 : 0, 0);
    struct shoal_plan_options options = options_of(modules, 9, 4);
    struct plan_partition *partition = partition_of(&options);
    assert_float_equal(partition->report.largest_cost, 1, 1e-12);
    assert_float_equal(partition->report.optimum_cost, 1, 1e-12);
    plan_partition_free(partition);
}

/* A chain as deep as a model may be: nothing recurses. */
static void deep_chains_are_cut(void **state)
{
    (void)state;
    struct shoal_plan_module *modules = malloc(PLAN_MODULES_MAX * sizeof(*modules));
    assert_non_null(modules);
    for (int i = 0; i < PLAN_MODULES_MAX; i++)
        modules[i] = module_of("link", i - 1, 1, 0);
    struct shoal_plan_options options = options_of(modules, PLAN_MODULES_MAX, 4);
    struct plan_partition *partition = partition_of(&options);
    assert_int_equal(partition->report.method, SHOAL_PLAN_BALANCED);
    for (int i = 0; i < 4; i++)
        assert_int_equal(partition->loads[i].module_count, PLAN_MODULES_MAX / 4);
    plan_partition_free(partition);
    free(modules);
}

/* A table of D n^2 entries would be 6.4e9; a quarter of a million comparisons take about a
 * millisecond. */
static void ten_thousand_modules_over_64_devices_take_few_comparisons(void **state)
{
    (void)state;
    enum { MODULES = 10000 };
    struct shoal_plan_module *modules = malloc(MODULES * sizeof(*modules));
    assert_non_null(modules);
    for (seed = 1; seed < 6;) {
        uint64_t number = seed;
        make_tree(modules, MODULES);
        struct shoal_plan_options options = options_of(modules, MODULES, 64);
        struct plan_partition *partition = partition_of(&options);
        assert_true(partition->report.largest_cost <= 1.05 * partition->report.optimum_cost);
        assert_in_range(partition->steps, 1, 250000);
        plan_partition_free(partition);
        seed = number + 1;
    }
    free(modules);
}

/* ---- errors -------------------------------------------------------------------------------- */

static void wrong_modules_are_named(void **state)
{
    (void)state;
    struct shoal_plan_module good[3] = {module_of("root", -1, 1, 1), module_of("a", 0, 1, 1),
                                        module_of("b", 1, 1, 1)};
    struct shoal_plan_module bad[3];
    struct shoal_plan_options options = options_of(bad, 3, 2);
    static const struct {
        int module, parent, shares, device;
        const char *error;
    } cases[] = {
        {0, 0, -1, -1, "module 'root' is the first, so it is the root: its parent must be -1, not"},
        {1, -1, -1, -1, "module 'a' is number 1 and has parent -1: it takes the number of a modu"},
        {1, 1, -1, -1, "module 'a' is number 1 and has parent 1: it takes the number of a module"},
        {1, 7, -1, -1, "module 'a' is number 1 and has parent 7"},
        {2, 0, 2, -1, "module 'b' is number 2 and shares the parameters of module 2: it takes"},
        {2, 0, -2, -1, "module 'b' is number 2 and shares the parameters of module -2"},
        {2, 0, -1, 2, "module 'b' is placed on device 2: there are 0 to 1"},
        {2, 0, -1, -2, "module 'b' is placed on device -2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memcpy(bad, good, sizeof(bad));
        bad[cases[i].module].parent = cases[i].parent;
        bad[cases[i].module].shares = cases[i].shares;
        bad[cases[i].module].device = cases[i].device;
        assert_error(&options, SHOAL_ERR_ARGUMENT, cases[i].error);
    }
    memcpy(bad, good, sizeof(bad));
    bad[1].name = NULL;
    assert_error(&options, SHOAL_ERR_ARGUMENT, "modules[1].name is NULL");
    memcpy(bad, good, sizeof(bad));
    bad[2].forward_ns = PLAN_QUANTITY_MAX;
    assert_error(&options, SHOAL_ERR_LIMIT,
                 "module 'b': with its 1125899906842624, the model has "
                 "more than 1125899906842624 ns of work");
    bad[1].activation_bytes = UINT64_MAX;
    assert_error(&options, SHOAL_ERR_LIMIT, "module 'a': with its 18446744073709551615, the model");
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    static const int nothing_in_flight[] = {1, 0};
    struct shoal_plan_module module = module_of("all", -1, 1, 1);
    const struct shoal_plan_options good = options_of(&module, 1, 2);
    struct shoal_plan_options options = good;
    options.device_count = 0;
    assert_error(&options, SHOAL_ERR_ARGUMENT, "options.device_count is 0: give 1 to 1024");
    options = good;
    options.module_count = 0;
    assert_error(&options, SHOAL_ERR_ARGUMENT, "options.module_count is 0: a model has 1 to");
    options = good;
    options.memory_weight = 1.5;
    assert_error(&options, SHOAL_ERR_ARGUMENT, "options.memory_weight is 1.5: give 0 to 1");
    options.memory_weight = strtod("nan", NULL);
    assert_error(&options, SHOAL_ERR_ARGUMENT, "options.memory_weight is nan: give 0 to 1");
    options = good;
    options.auto_partition = 0;
    options.default_device = 2;
    assert_error(&options, SHOAL_ERR_ARGUMENT, "options.default_device is 2: without");
    options = good;
    options.parameter_copies = 0;
    assert_error(&options, SHOAL_ERR_ARGUMENT, "options.parameter_copies is 0: give 1 to 64");
    options = good;
    options.in_flight = nothing_in_flight;
    assert_error(&options, SHOAL_ERR_ARGUMENT, "options.in_flight[1] is 0: give 1 to 4096");
}

static void memory_that_fails_is_an_error_and_leaves_nothing(void **state)
{
    (void)state;
    struct shoal_plan_module modules[LANGUAGE_MAX];
    int count = make_language_model(modules);
    struct shoal_plan_options options = options_of(modules, count, 4);
    uint64_t before = base_memory_count();
    plan_partition_free(partition_of(&options));
    uint64_t allocations = base_memory_count() - before;
    assert_in_range(allocations, 10, 100);
    for (uint64_t nth = 1; nth <= allocations; nth++) {
        struct plan_partition *partition = NULL;
        size_t blocks = base_memory_blocks();
        base_memory_fail_at(nth);
        assert_int_equal(plan_partition_create(&options, &partition), SHOAL_ERR_MEMORY);
        assert_null(partition);
        assert_int_equal(base_memory_blocks(), blocks);
    }
    base_memory_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_trees_are_cut_within_a_twentieth_of_the_optimum),
        cmocka_unit_test(the_published_method_is_followed),
        cmocka_unit_test(the_head_is_where_the_embedding_is),
        cmocka_unit_test(what_is_in_a_placed_module_follows_it),
        cmocka_unit_test(others_are_placed_around_it),
        cmocka_unit_test(modules_that_share_parameters_are_placed_together),
        cmocka_unit_test(limits_of_memory_are_kept),
        cmocka_unit_test(activations_count_once_for_each_microbatch_in_flight),
        cmocka_unit_test(a_model_that_does_not_fit_is_refused),
        cmocka_unit_test(a_model_may_be_one_module),
        cmocka_unit_test(a_model_without_costs_is_cut_by_its_modules),
        cmocka_unit_test(all_costs_may_be_in_one_module),
        cmocka_unit_test(deep_chains_are_cut),
        cmocka_unit_test(ten_thousand_modules_over_64_devices_take_few_comparisons),
        cmocka_unit_test(wrong_modules_are_named),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(memory_that_fails_is_an_error_and_leaves_nothing),
    };
    return cmocka_run_group_tests_name("plan partition", tests, NULL, NULL);
}
