/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partition.c: weighs the nodes, assigns them by the published method, and compares the result with
 * the best contiguous assignment, which takes its place where it is more than PLAN_SLACK better, or
 * where memory asks for it, and which gives a part of that slack away where less crosses then.
 *
 * Costs are whole numbers, in units of 2^-48 of the whole model: sums don't depend on their order,
 * and the optimum is exact. What is placed by hand is no part of the row that is cut; it is what
 * devices have already.
 */
#include "plan/partition.h"

#include <stdbool.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plan/borders.h"
#include "plan/published.h"
#include "plan/segments.h"
#include "plan/tree.h"

#define WHOLE            0x1p48
#define COPIES_MAX       64
#define MICROBATCHES_MAX 4096
#define UNLIMITED        UINT64_MAX
#define MEMORY_OF_PLAN   "a plan"

struct state {
    const struct shoal_plan_options *options;
    struct plan_tree tree;
    uint64_t *costs; /* [node_count] */
    /* Sums over the nodes before each that are not placed by hand: [node_count + 1]. */
    uint64_t *cost_before, *parameter_before, *activation_before;
    struct plan_part *parts; /* [device_count] */
    struct plan_row row;     /* the nodes that are not placed by hand, for the devices */
    int *borders;            /* [device_count + 1] of the best contiguous assignment */
    /* Bytes that come into a module, or into a node, from the one before it. */
    uint64_t *entering;      /* [module_count] */
    uint64_t *node_entering; /* [node_count] */
    int *device_of;          /* [node_count] */
    uint64_t *loads;         /* [device_count] */
    uint64_t optimum;
    struct plan_partition *partition;
};

/* ---- options ------------------------------------------------------------------------------- */

static enum shoal_status check_options(const struct shoal_plan_options *options)
{
    if (options->device_count < 1 || options->device_count > PLAN_DEVICES_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "options.device_count is %d: give 1 to %d",
                          options->device_count, PLAN_DEVICES_MAX);
    if (!(options->memory_weight >= 0 && options->memory_weight <= 1))
        return base_error(SHOAL_ERR_ARGUMENT, "options.memory_weight is %g: give 0 to 1",
                          options->memory_weight);
    if (!options->auto_partition &&
        (options->default_device < 0 || options->default_device >= options->device_count))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.default_device is %d: without auto_partition, give the device "
                          "of modules that are not placed, 0 to %d",
                          options->default_device, options->device_count - 1);
    if (options->parameter_copies < 1 || options->parameter_copies > COPIES_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "options.parameter_copies is %d: give 1 to %d",
                          options->parameter_copies, COPIES_MAX);
    for (int i = 0; options->in_flight && i < options->device_count; i++)
        if (options->in_flight[i] < 1 || options->in_flight[i] > MICROBATCHES_MAX)
            return base_error(SHOAL_ERR_ARGUMENT, "options.in_flight[%d] is %d: give 1 to %d", i,
                              options->in_flight[i], MICROBATCHES_MAX);
    return SHOAL_OK;
}

static uint64_t in_flight(const struct shoal_plan_options *options, int device)
{
    return options->in_flight ? (uint64_t)options->in_flight[device] : 1;
}

static uint64_t limit(const struct shoal_plan_options *options, int device)
{
    bool limited = options->memory_limits && options->memory_limits[device] > 0;
    return limited ? options->memory_limits[device] : UNLIMITED;
}

static uint64_t memory(const struct shoal_plan_options *options, int device, uint64_t parameters,
                       uint64_t activations)
{
    return parameters * (uint64_t)options->parameter_copies +
           activations * in_flight(options, device);
}

/* ---- costs --------------------------------------------------------------------------------- */

static uint64_t memory_of(const struct plan_node *node)
{
    return node->parameter_bytes + node->activation_bytes;
}

static uint64_t time_of(const struct plan_node *node)
{
    return node->forward_ns + node->backward_ns;
}

/* A model without memory is weighed by time, one without time by memory, and one that costs nothing
 * by the number of its modules. */
static void weigh(struct state *state)
{
    const struct plan_tree *tree = &state->tree;
    uint64_t memory_sum = 0, time_sum = 0;
    for (int node = 0; node < tree->node_count; node++) {
        memory_sum += memory_of(&tree->nodes[node]);
        time_sum += time_of(&tree->nodes[node]);
    }
    double weight = time_sum == 0 ? 1 : memory_sum == 0 ? 0 : state->options->memory_weight;
    double per_byte = memory_sum ? weight * WHOLE / (double)memory_sum : 0;
    double per_ns = time_sum ? (1 - weight) * WHOLE / (double)time_sum : 0;
    double alike = memory_sum + time_sum == 0 ? WHOLE / tree->node_count : 0;
    for (int i = 0; i < tree->node_count; i++) {
        const struct plan_node *node = &tree->nodes[i];
        state->costs[i] = (uint64_t)((double)memory_of(node) * per_byte +
                                     (double)time_of(node) * per_ns + alike + 0.5);
    }
}

/* What is placed by hand goes to its device, the rest into the row; all of it if no row is cut, to
 * know what cutting would bring. */
static void lay_out(struct state *state)
{
    for (int i = 0; i < state->tree.node_count; i++) {
        const struct plan_node *node = &state->tree.nodes[i];
        bool is_free = node->device < 0 || !state->options->auto_partition;
        state->cost_before[i + 1] = state->cost_before[i] + (is_free ? state->costs[i] : 0);
        state->parameter_before[i + 1] =
            state->parameter_before[i] + (is_free ? node->parameter_bytes : 0);
        state->activation_before[i + 1] =
            state->activation_before[i] + (is_free ? node->activation_bytes : 0);
        if (!is_free)
            state->parts[node->device].cost += state->costs[i];
    }
}

/* ---- memory -------------------------------------------------------------------------------- */

/* What is left on each device beside what is placed there by hand. */
static enum shoal_status find_rooms(struct state *state)
{
    const struct shoal_plan_options *options = state->options;
    for (int device = 0; device < options->device_count; device++) {
        struct plan_part *part = &state->parts[device];
        part->parameter_times = (uint64_t)options->parameter_copies;
        part->activation_times = in_flight(options, device);
        part->room_bytes = limit(options, device);
    }
    for (int i = 0; i < state->tree.node_count; i++) {
        const struct plan_node *node = &state->tree.nodes[i];
        if (node->device < 0 || limit(options, node->device) == UNLIMITED)
            continue;
        uint64_t *room = &state->parts[node->device].room_bytes;
        uint64_t wanted =
            memory(options, node->device, node->parameter_bytes, node->activation_bytes);
        if (wanted > *room)
            return base_error(SHOAL_ERR_LIMIT,
                              "device %d is given more by hand than its %llu bytes: module '%s' "
                              "needs %llu, and %llu are left",
                              node->device, (unsigned long long)limit(options, node->device),
                              options->modules[node->module].name, (unsigned long long)wanted,
                              (unsigned long long)*room);
        *room -= wanted;
    }
    return SHOAL_OK;
}

/* The error for a row of which `node` is the first to find no room. */
static enum shoal_status no_room(const struct state *state, int node)
{
    const struct plan_node *stuck = &state->tree.nodes[node];
    const char *name = state->options->modules[stuck->module].name;
    uint64_t rooms = 0, widest = 0, wanted = 0;
    for (int device = 0; device < state->row.part_count; device++) {
        const struct plan_part *part = &state->parts[device];
        uint64_t bytes =
            memory(state->options, device, stuck->parameter_bytes, stuck->activation_bytes);
        rooms = part->room_bytes > UNLIMITED - rooms ? UNLIMITED : rooms + part->room_bytes;
        if (device == 0 || part->room_bytes > widest) {
            widest = part->room_bytes;
            wanted = bytes;
        }
    }
    if (wanted > widest)
        return base_error(SHOAL_ERR_LIMIT,
                          "module '%s' needs %llu bytes of memory, and no device has more than "
                          "%llu for it",
                          name, (unsigned long long)wanted, (unsigned long long)widest);
    uint64_t parameters = state->parameter_before[state->row.item_count];
    uint64_t activations = state->activation_before[state->row.item_count];
    wanted = parameters * (uint64_t)state->options->parameter_copies + activations;
    return base_error(SHOAL_ERR_LIMIT,
                      "the model does not fit: the devices are full before module '%s'. It needs "
                      "%llu bytes even with one microbatch in flight, and the %d devices have %llu "
                      "together; in order of execution they must be filled one after the other",
                      name, (unsigned long long)wanted, state->row.part_count,
                      (unsigned long long)rooms);
}

/* ---- what crosses -------------------------------------------------------------------------- */

static bool has_work(const struct shoal_plan_module *module)
{
    return module->parameter_bytes + module->activation_bytes + module->forward_ns +
               module->backward_ns >
           0;
}

/* What comes into a module is what the one before it in the same parent returned, or else what came
 * into the parent, and what goes back if the parent works on it itself. latest is scratch
 * [module_count]. */
static void find_entering(struct state *state, int *latest)
{
    const struct shoal_plan_module *modules = state->options->modules;
    for (int i = 0; i < state->options->module_count; i++)
        latest[i] = -1;
    for (int position = 1; position < state->options->module_count; position++) {
        int at = state->tree.order[position], parent = modules[at].parent;
        state->entering[at] =
            latest[parent] < 0 ? state->entering[parent] : modules[latest[parent]].output_bytes;
        latest[parent] = at;
    }
    for (int i = 0; i < state->tree.node_count; i++)
        state->node_entering[i] = state->entering[state->tree.nodes[i].module];
}

static enum shoal_status weigh_borders(struct state *state)
{
    int *latest = NULL;
    TRY(BASE_NEW_ARRAY(&latest, state->options->module_count, MEMORY_OF_PLAN));
    find_entering(state, latest);
    base_free(latest);
    return SHOAL_OK;
}

/* ---- assignments --------------------------------------------------------------------------- */

/* What is placed by hand stays there. */
static void keep_placed(struct state *state)
{
    for (int i = 0; i < state->tree.node_count; i++)
        if (state->tree.nodes[i].device >= 0)
            state->device_of[i] = state->tree.nodes[i].device;
}

static void assign_row(struct state *state)
{
    for (int device = 0; device < state->row.part_count; device++)
        for (int i = state->borders[device]; i < state->borders[device + 1]; i++)
            state->device_of[i] = device;
    keep_placed(state);
}

/* The largest load, and whether all of them fit. */
static uint64_t sum_loads(struct state *state, bool *fits)
{
    uint64_t largest = 0;
    struct shoal_plan_load *loads = state->partition->loads;
    for (int device = 0; device < state->row.part_count; device++) {
        loads[device] = (struct shoal_plan_load)SHOAL_PLAN_LOAD_INIT;
        state->loads[device] = 0;
    }
    for (int i = 0; i < state->tree.node_count; i++) {
        const struct plan_node *node = &state->tree.nodes[i];
        struct shoal_plan_load *load = &loads[state->device_of[i]];
        state->loads[state->device_of[i]] += state->costs[i];
        load->parameter_bytes += node->parameter_bytes;
        load->activation_bytes += node->activation_bytes;
        load->forward_ns += node->forward_ns;
        load->backward_ns += node->backward_ns;
    }
    *fits = true;
    for (int device = 0; device < state->row.part_count; device++) {
        struct shoal_plan_load *load = &loads[device];
        load->cost = (double)state->loads[device] / WHOLE;
        load->memory_bytes =
            memory(state->options, device, load->parameter_bytes, load->activation_bytes);
        *fits = *fits && load->memory_bytes <= limit(state->options, device);
        largest = state->loads[device] > largest ? state->loads[device] : largest;
    }
    return largest;
}

/* Devices with something to do, as assigned and in the best contiguous assignment. */
static int count_used(const struct state *state)
{
    int used = 0;
    for (int device = 0; device < state->row.part_count; device++)
        used += state->loads[device] > 0;
    return used;
}

static int count_usable(const struct state *state)
{
    int usable = 0;
    for (int device = 0; device < state->row.part_count; device++) {
        uint64_t from = state->cost_before[state->borders[device]];
        uint64_t to = state->cost_before[state->borders[device + 1]];
        usable += to - from + state->parts[device].cost > 0;
    }
    return usable;
}

/* The published assignment, if it is good enough and wastes no device; otherwise the best
 * contiguous one. */
static enum shoal_status assign(struct state *state)
{
    struct plan_partition *partition = state->partition;
    struct shoal_plan_report *report = &partition->report;
    bool fits;
    int stuck = plan_segments(&state->row, state->borders, &partition->steps);
    if (stuck >= 0)
        return no_room(state, stuck);
    state->optimum = plan_segments_largest(&state->row, state->borders);
    TRY(plan_published(&state->tree, state->cost_before, partition->device_count, state->device_of,
                       &partition->steps));
    keep_placed(state);
    uint64_t largest = sum_loads(state, &fits);
    report->published_cost = (double)largest / WHOLE;
    report->method = SHOAL_PLAN_PUBLISHED;
    uint64_t bound = state->optimum + state->optimum / PLAN_SLACK;
    if (fits && largest <= bound && count_used(state) >= count_usable(state))
        return SHOAL_OK;
    report->method = SHOAL_PLAN_BALANCED;
    plan_borders_settle(&state->row, state->node_entering, bound, state->borders,
                        &partition->steps);
    assign_row(state);
    sum_loads(state, &fits);
    return SHOAL_OK;
}

/* Every node is placed, and fits. The optimum is that of free choice and any memory. */
static void assign_by_hand(struct state *state)
{
    bool fits;
    keep_placed(state);
    sum_loads(state, &fits);
    state->row.parts = NULL;
    plan_segments(&state->row, state->borders, &state->partition->steps);
    state->optimum = plan_segments_largest(&state->row, state->borders);
    state->partition->report.method = SHOAL_PLAN_MANUAL;
}

/* ---- report -------------------------------------------------------------------------------- */

/* Whether the module at this position of the order does nothing but hold others. */
static bool is_bare(const struct state *state, int position)
{
    const struct shoal_plan_module *modules = state->options->modules;
    const int *order = state->tree.order;
    bool has_children = position + 1 < state->options->module_count &&
                        modules[order[position + 1]].parent == order[position];
    return has_children && !has_work(&modules[order[position]]);
}

/* Follows a microbatch forward. */
static void follow(struct state *state)
{
    struct plan_partition *partition = state->partition;
    int before = -1;
    for (int position = 0; position < partition->module_count; position++) {
        int at = state->tree.order[position], device = partition->device_of[at];
        if (is_bare(state, position))
            continue;
        partition->loads[device].module_count++;
        partition->loads[device].visits += before != device;
        if (before >= 0 && before != device) {
            partition->loads[before].output_bytes += state->entering[at];
            partition->report.crossings++;
            partition->report.crossing_bytes += state->entering[at];
        }
        before = device;
    }
}

static void describe(struct state *state)
{
    struct plan_partition *partition = state->partition;
    uint64_t largest = 0, sum = 0;
    for (int i = 0; i < partition->module_count; i++)
        partition->device_of[i] = state->device_of[state->tree.node_of[i]];
    follow(state);
    for (int device = 0; device < partition->device_count; device++) {
        sum += state->loads[device];
        largest = state->loads[device] > largest ? state->loads[device] : largest;
        partition->report.devices_used += partition->loads[device].module_count > 0;
    }
    partition->report.largest_cost = (double)largest / WHOLE;
    partition->report.mean_cost = (double)sum / WHOLE / partition->device_count;
    partition->report.optimum_cost = (double)state->optimum / WHOLE;
}

/* ---- making one ---------------------------------------------------------------------------- */

static enum shoal_status prepare(struct state *state)
{
    const struct shoal_plan_options *options = state->options;
    int device_count = options->device_count;
    TRY(plan_tree_init(options, &state->tree));
    int node_count = state->tree.node_count;
    TRY(BASE_NEW_ARRAY(&state->costs, node_count, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->cost_before, node_count + 1, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->parameter_before, node_count + 1, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->activation_before, node_count + 1, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->parts, device_count, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->borders, device_count + 1, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->entering, options->module_count, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->node_entering, node_count, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->device_of, node_count, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->loads, device_count, MEMORY_OF_PLAN));
    TRY(BASE_NEW(&state->partition, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->partition->device_of, options->module_count, MEMORY_OF_PLAN));
    TRY(BASE_NEW_ARRAY(&state->partition->loads, device_count, MEMORY_OF_PLAN));
    state->partition->module_count = options->module_count;
    state->partition->device_count = device_count;
    state->partition->report = (struct shoal_plan_report)SHOAL_PLAN_REPORT_INIT;
    state->row = (struct plan_row){
        node_count,   state->cost_before, state->parameter_before, state->activation_before,
        device_count, state->parts};
    return SHOAL_OK;
}

static enum shoal_status partition(struct state *state)
{
    TRY(check_options(state->options));
    TRY(prepare(state));
    weigh(state);
    lay_out(state);
    TRY(find_rooms(state));
    TRY(weigh_borders(state));
    if (state->options->auto_partition)
        TRY(assign(state));
    else
        assign_by_hand(state);
    describe(state);
    return SHOAL_OK;
}

static void release(struct state *state)
{
    base_free(state->loads);
    base_free(state->device_of);
    base_free(state->node_entering);
    base_free(state->entering);
    base_free(state->borders);
    base_free(state->parts);
    base_free(state->activation_before);
    base_free(state->parameter_before);
    base_free(state->cost_before);
    base_free(state->costs);
    plan_tree_release(&state->tree);
}

enum shoal_status plan_partition_create(const struct shoal_plan_options *options,
                                        struct plan_partition **out)
{
    struct state state = {.options = options};
    enum shoal_status status = partition(&state);
    release(&state);
    if (status == SHOAL_OK)
        *out = state.partition;
    else
        plan_partition_free(state.partition);
    return status;
}

void plan_partition_free(struct plan_partition *partition)
{
    if (!partition)
        return;
    base_free(partition->loads);
    base_free(partition->device_of);
    base_free(partition);
}
