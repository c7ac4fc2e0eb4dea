/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c: a strategy is an order of the three axes, of which the last varies fastest. */
#include "plan/placement.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"

static const char letters[PLAN_AXES + 1] = "DPT";

/* Which axes the ranks of a group differ on. */
static const bool differs[][PLAN_AXES] = {
    [SHOAL_PLACEMENT_WORLD] = {true, true, true},
    [SHOAL_PLACEMENT_MP] = {[PLAN_PIPELINE] = true, [PLAN_TENSOR] = true},
    [SHOAL_PLACEMENT_DP] = {[PLAN_DATA] = true, [PLAN_TENSOR] = true},
    [SHOAL_PLACEMENT_PP] = {[PLAN_PIPELINE] = true},
    [SHOAL_PLACEMENT_TP] = {[PLAN_TENSOR] = true},
    [SHOAL_PLACEMENT_RDP] = {[PLAN_DATA] = true},
};
#define KINDS (sizeof(differs) / sizeof(differs[0]))

/* The axes from the slowest to the fastest. */
static enum shoal_status parse(const char *strategy, int order[PLAN_AXES])
{
    const char *word = !strategy || strcmp(strategy, "cluster") == 0 ? "DPT"
                       : strcmp(strategy, "spread") == 0             ? "TPD"
                                                                     : strategy;
    bool seen[PLAN_AXES] = {false};
    bool good = strlen(word) == PLAN_AXES;
    for (int i = 0; i < PLAN_AXES && good; i++) {
        const char *letter = strchr(letters, word[i]);
        order[i] = letter ? (int)(letter - letters) : 0;
        good = letter && !seen[order[i]];
        seen[order[i]] = true;
    }
    if (!good)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "there is no placement strategy '%s': there are cluster, spread, and the "
                          "letters D, P and T in any order",
                          strategy);
    return SHOAL_OK;
}

enum shoal_status plan_placement_init(const struct shoal_placement *wanted,
                                      struct plan_placement *out)
{
    struct plan_placement placement = {.size = wanted->size};
    int order[PLAN_AXES], stride = 1;
    TRY(parse(wanted->strategy, order));
    if (wanted->size < 1 || wanted->pipeline_degree < 1 || wanted->tensor_degree < 1)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "%d ranks, pipeline degree %d and tensor degree %d: each must be 1 or "
                          "more",
                          wanted->size, wanted->pipeline_degree, wanted->tensor_degree);
    int64_t both = (int64_t)wanted->pipeline_degree * wanted->tensor_degree;
    if (wanted->size % both != 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "%d ranks can't be divided by pipeline degree %d x tensor degree %d",
                          wanted->size, wanted->pipeline_degree, wanted->tensor_degree);
    placement.degree[PLAN_DATA] = (int)(wanted->size / both);
    placement.degree[PLAN_PIPELINE] = wanted->pipeline_degree;
    placement.degree[PLAN_TENSOR] = wanted->tensor_degree;
    for (int i = PLAN_AXES - 1; i >= 0; i--) {
        placement.stride[order[i]] = stride;
        stride *= placement.degree[order[i]];
    }
    *out = placement;
    return SHOAL_OK;
}

int plan_placement_at(const struct plan_placement *placement, int rank, int axis)
{
    return rank / placement->stride[axis] % placement->degree[axis];
}

int plan_placement_rank(const struct plan_placement *placement, const int at[PLAN_AXES])
{
    int rank = 0;
    for (int axis = 0; axis < PLAN_AXES; axis++)
        rank += at[axis] * placement->stride[axis];
    return rank;
}

int plan_placement_group_size(const struct plan_placement *placement,
                              enum shoal_placement_group kind)
{
    int size = 1;
    if ((size_t)kind >= KINDS)
        return 0;
    for (int axis = 0; axis < PLAN_AXES; axis++)
        size *= differs[kind][axis] ? placement->degree[axis] : 1;
    return size;
}

int plan_placement_group(const struct plan_placement *placement, enum shoal_placement_group kind,
                         int rank, int *ranks)
{
    int count = 0, index = 0;
    for (int other = 0; other < placement->size; other++) {
        bool together = true;
        for (int axis = 0; axis < PLAN_AXES; axis++)
            together =
                together && (differs[kind][axis] || plan_placement_at(placement, other, axis) ==
                                                        plan_placement_at(placement, rank, axis));
        if (!together)
            continue;
        if (other == rank)
            index = count;
        if (ranks)
            ranks[count] = other;
        count++;
    }
    return index;
}
