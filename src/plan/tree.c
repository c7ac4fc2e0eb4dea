/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: checks modules, merges those that share parameters, and numbers the nodes. Nothing here
 * recurses: a model may be a chain of a million modules.
 */
#include "plan/tree.h"

#include <stddef.h>

#include "base/memory.h"
#include "base/status.h"

/* A module's place among others; -1: none. */
struct kin {
    int parent, first, next;
};

/* ---- checks -------------------------------------------------------------------------------- */

static enum shoal_status check_links(const struct shoal_plan_module *module, int at)
{
    if (!module->name)
        return base_error(SHOAL_ERR_ARGUMENT, "modules[%d].name is NULL", at);
    if (at == 0 && module->parent != -1)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "module '%s' is the first, so it is the root: its parent must be -1, not "
                          "%d",
                          module->name, module->parent);
    if (at > 0 && (module->parent < 0 || module->parent >= at))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "module '%s' is number %d and has parent %d: it takes the number of a "
                          "module before it",
                          module->name, at, module->parent);
    if (module->shares < -1 || module->shares >= at)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "module '%s' is number %d and shares the parameters of module %d: it "
                          "takes the number of a module before it, or -1",
                          module->name, at, module->shares);
    return SHOAL_OK;
}

static enum shoal_status add(const char *what, const char *name, uint64_t quantity, uint64_t *sum)
{
    if (quantity > PLAN_QUANTITY_MAX || *sum + quantity > PLAN_QUANTITY_MAX)
        return base_error(
            SHOAL_ERR_LIMIT, "module '%s': with its %llu, the model has more than %llu %s", name,
            (unsigned long long)quantity, (unsigned long long)PLAN_QUANTITY_MAX, what);
    *sum += quantity;
    return SHOAL_OK;
}

static enum shoal_status check_modules(const struct shoal_plan_options *options)
{
    uint64_t bytes = 0, times = 0, outputs = 0;
    if (options->module_count < 1 || options->module_count > PLAN_MODULES_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "options.module_count is %d: a model has 1 to %d",
                          options->module_count, PLAN_MODULES_MAX);
    for (int i = 0; i < options->module_count; i++) {
        const struct shoal_plan_module *module = &options->modules[i];
        TRY(check_links(module, i));
        if (module->device < -1 || module->device >= options->device_count)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "module '%s' is placed on device %d: there are 0 to %d", module->name,
                              module->device, options->device_count - 1);
        TRY(add("bytes of parameters and activations", module->name, module->parameter_bytes,
                &bytes));
        TRY(add("bytes of parameters and activations", module->name, module->activation_bytes,
                &bytes));
        TRY(add("ns of work", module->name, module->forward_ns, &times));
        TRY(add("ns of work", module->name, module->backward_ns, &times));
        TRY(add("bytes of outputs", module->name, module->output_bytes, &outputs));
    }
    return SHOAL_OK;
}

/* ---- order --------------------------------------------------------------------------------- */

/* From parents to lists of children, in the order of their numbers. A parent of -1 is left out. */
static void link_children(struct kin *kin, int count)
{
    for (int i = 0; i < count; i++)
        kin[i].first = kin[i].next = -1;
    for (int i = count - 1; i > 0; i--) {
        if (kin[i].parent < 0)
            continue;
        kin[i].next = kin[kin[i].parent].first;
        kin[kin[i].parent].first = i;
    }
}

/* What runs after `at`, -1 at the end: its first child, or else the next one of the nearest that
 * has one, of itself and those around it. */
static int following(const struct kin *kin, int at)
{
    if (kin[at].first >= 0)
        return kin[at].first;
    while (at >= 0 && kin[at].next < 0)
        at = kin[at].parent;
    return at < 0 ? -1 : kin[at].next;
}

static void order_modules(const struct shoal_plan_options *options, struct kin *kin, int *order)
{
    for (int i = 0; i < options->module_count; i++)
        kin[i].parent = options->modules[i].parent;
    link_children(kin, options->module_count);
    for (int at = 0, position = 0; at >= 0; at = following(kin, at))
        order[position++] = at;
}

/* ---- nodes --------------------------------------------------------------------------------- */

/* first[i] becomes the first of the modules that i shares parameters with, i itself if none. */
static void find_first(const struct shoal_plan_options *options, int *first)
{
    for (int i = 0; i < options->module_count; i++) {
        int shares = options->modules[i].shares;
        first[i] = shares < 0 ? i : first[shares];
    }
}

/* Numbers the nodes; node_of has the first modules when it is called. */
static void number_nodes(const struct shoal_plan_options *options, struct kin *kin,
                         struct plan_tree *tree)
{
    int *first = tree->node_of, count = options->module_count;
    for (int i = 0; i < count; i++)
        kin[i].parent = i > 0 && first[i] == i ? first[options->modules[i].parent] : -1;
    link_children(kin, count);
    for (int at = 0; at >= 0; at = following(kin, at)) {
        tree->nodes[tree->node_count].module = at;
        tree->nodes[tree->node_count++].device = -1;
    }
    for (int node = 0; node < tree->node_count; node++)
        kin[tree->nodes[node].module].next = node; /* from here on: the node's number */
    for (int node = 0; node < tree->node_count; node++)
        tree->nodes[node].end = node + 1;
    for (int node = tree->node_count - 1; node > 0; node--) {
        int parent = kin[kin[tree->nodes[node].module].parent].next;
        if (tree->nodes[parent].end < tree->nodes[node].end)
            tree->nodes[parent].end = tree->nodes[node].end;
    }
    for (int i = 0; i < count; i++)
        tree->node_of[i] = kin[first[i]].next;
}

static void sum_nodes(const struct shoal_plan_options *options, struct plan_tree *tree)
{
    for (int i = 0; i < options->module_count; i++) {
        const struct shoal_plan_module *module = &options->modules[i];
        struct plan_node *node = &tree->nodes[tree->node_of[i]];
        node->parameter_bytes += module->parameter_bytes;
        node->activation_bytes += module->activation_bytes;
        node->forward_ns += module->forward_ns;
        node->backward_ns += module->backward_ns;
    }
}

/* ---- placement by hand --------------------------------------------------------------------- */

/* One device for the node of `module`; decided[node] is the module that chose it, -1: none yet. */
static enum shoal_status decide(const struct shoal_plan_options *options, struct plan_tree *tree,
                                int *decided, int module, int device)
{
    int number = tree->node_of[module], before = decided[number];
    struct plan_node *node = &tree->nodes[number];
    if (before >= 0 && node->device != device)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "module '%s' shares parameters with '%s', so they must be on one device: "
                          "they are placed on %d and %d",
                          options->modules[module].name, options->modules[before].name, device,
                          node->device);
    if (before < 0)
        decided[number] = module;
    node->device = device;
    return SHOAL_OK;
}

/* First the modules that are placed themselves, then those that follow the module around them,
 * unless one that shares their parameters was placed itself. */
static enum shoal_status place(const struct shoal_plan_options *options, struct plan_tree *tree,
                               int *wanted, int *decided)
{
    const struct shoal_plan_module *modules = options->modules;
    for (int i = 0; i < options->module_count; i++) {
        wanted[i] = modules[i].device >= 0 ? modules[i].device
                    : i > 0                ? wanted[modules[i].parent]
                                           : -1;
        decided[i] = -1;
    }
    for (int i = 0; i < options->module_count; i++)
        if (modules[i].device >= 0)
            TRY(decide(options, tree, decided, i, wanted[i]));
    for (int i = 0; i < options->module_count; i++) {
        int chooser = decided[tree->node_of[i]];
        if (wanted[i] >= 0 && (chooser < 0 || modules[chooser].device < 0))
            TRY(decide(options, tree, decided, i, wanted[i]));
    }
    for (int node = 0; node < tree->node_count && !options->auto_partition; node++)
        if (tree->nodes[node].device < 0)
            tree->nodes[node].device = options->default_device;
    return SHOAL_OK;
}

static enum shoal_status place_by_hand(const struct shoal_plan_options *options,
                                       struct plan_tree *tree)
{
    int *wanted = NULL, *decided = NULL;
    enum shoal_status status = BASE_NEW_ARRAY(&wanted, options->module_count, "a model's devices");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&decided, options->module_count, "a model's devices");
    if (status == SHOAL_OK)
        status = place(options, tree, wanted, decided);
    base_free(decided);
    base_free(wanted);
    return status;
}

enum shoal_status plan_tree_init(const struct shoal_plan_options *options, struct plan_tree *tree)
{
    struct kin *kin = NULL;
    *tree = (struct plan_tree){0};
    TRY(check_modules(options));
    TRY(BASE_NEW_ARRAY(&tree->nodes, options->module_count, "a model's tree"));
    TRY(BASE_NEW_ARRAY(&tree->node_of, options->module_count, "a model's tree"));
    TRY(BASE_NEW_ARRAY(&tree->order, options->module_count, "a model's tree"));
    TRY(BASE_NEW_ARRAY(&kin, options->module_count, "a model's tree"));
    order_modules(options, kin, tree->order);
    find_first(options, tree->node_of);
    number_nodes(options, kin, tree);
    base_free(kin);
    sum_nodes(options, tree);
    return place_by_hand(options, tree);
}

void plan_tree_release(struct plan_tree *tree)
{
    base_free(tree->order);
    base_free(tree->node_of);
    base_free(tree->nodes);
}
