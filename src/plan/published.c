/* SPDX-License-Identifier: Apache-2.0 */
/*
 * published.c: tree partitioning as in "Amazon SageMaker Model Parallelism: a general and flexible
 * framework for large model training" (Karakus et al., 2021, arXiv 2111.05972).
 *
 * The root has all devices. A node's own work runs on the first of its devices. Its children, in
 * their order, are cut into as many contiguous segments as it has devices, or children if these are
 * fewer, so that the largest segment is as small as it can be; the devices are given to segments by
 * the rule of D'Hondt. A segment that gets none runs on the first device of the node; one that gets
 * one device, or has one child, gives what it has to its children; another one is cut again.
 *
 * Which of the waiting segments is treated next makes no difference, so they lie on a stack. The
 * devices of those that wait are all different, which bounds it.
 */
#include "plan/published.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/allocation.h"
#include "plan/segments.h"

/* Children, and devices for them. */
struct segment {
    int from, to;
    int device, device_count;
};

struct state {
    const struct plan_tree *tree;
    const uint64_t *cost_before;
    int *device_of;
    /* Children of the nodes that were cut, those of one node in a row, and sums of their costs. */
    int *children;         /* [node_count] */
    uint64_t *sums_before; /* [node_count + 1] */
    int child_count;
    struct segment *waiting; /* [device_count] */
    int waiting_count;
    int *borders, *device_counts; /* [device_count + 1] of the segment that is cut */
    uint64_t *costs;              /* [device_count] */
    uint64_t *steps;
};

/* Everything in these children runs on one device. */
static void settle(struct state *state, int from, int to, int device)
{
    for (int i = from; i < to; i++) {
        int child = state->children[i];
        for (int node = child; node < state->tree->nodes[child].end; node++)
            state->device_of[node] = device;
    }
}

/* The node's own work has its place; its children wait. */
static void open_node(struct state *state, int node, int device, int device_count)
{
    const struct plan_node *nodes = state->tree->nodes;
    struct segment *segment = &state->waiting[state->waiting_count];
    state->device_of[node] = device;
    *segment = (struct segment){state->child_count, state->child_count, device, device_count};
    for (int child = node + 1; child < nodes[node].end; child = nodes[child].end) {
        state->children[segment->to] = child;
        state->sums_before[segment->to + 1] = state->sums_before[segment->to] +
                                              state->cost_before[nodes[child].end] -
                                              state->cost_before[child];
        segment->to++;
    }
    state->child_count = segment->to;
    state->waiting_count += segment->to > segment->from;
}

static void cut(struct state *state, const struct segment *whole)
{
    int children = whole->to - whole->from, device = whole->device;
    int parts = children < whole->device_count ? children : whole->device_count;
    const uint64_t *sums = state->sums_before + whole->from;
    struct plan_row row = {.item_count = children, .cost_before = sums, .part_count = parts};
    plan_segments(&row, state->borders, state->steps);
    for (int i = 0; i < parts; i++)
        state->costs[i] = sums[state->borders[i + 1]] - sums[state->borders[i]];
    plan_allocation(state->costs, parts, whole->device_count, state->device_counts);
    for (int i = 0; i < parts; i++) {
        int from = whole->from + state->borders[i], to = whole->from + state->borders[i + 1];
        if (state->device_counts[i] == 0)
            settle(state, from, to, whole->device);
        else
            state->waiting[state->waiting_count++] =
                (struct segment){from, to, device, state->device_counts[i]};
        device += state->device_counts[i];
    }
}

static void assign(struct state *state, int device_count)
{
    open_node(state, 0, 0, device_count);
    while (state->waiting_count > 0) {
        struct segment segment = state->waiting[--state->waiting_count];
        if (segment.device_count == 1)
            settle(state, segment.from, segment.to, segment.device);
        else if (segment.to - segment.from == 1)
            open_node(state, state->children[segment.from], segment.device, segment.device_count);
        else
            cut(state, &segment);
    }
}

enum shoal_status plan_published(const struct plan_tree *tree, const uint64_t *cost_before,
                                 int device_count, int *device_of, uint64_t *steps)
{
    struct state state = {
        .tree = tree, .cost_before = cost_before, .device_of = device_of, .steps = steps};
    enum shoal_status status = BASE_NEW_ARRAY(&state.children, tree->node_count, "a plan");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&state.sums_before, tree->node_count + 1, "a plan");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&state.waiting, device_count, "a plan");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&state.borders, device_count + 1, "a plan");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&state.device_counts, device_count + 1, "a plan");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&state.costs, device_count, "a plan");
    if (status == SHOAL_OK)
        assign(&state, device_count);
    base_free(state.costs);
    base_free(state.device_counts);
    base_free(state.borders);
    base_free(state.waiting);
    base_free(state.sums_before);
    base_free(state.children);
    return status;
}
