/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c: the public face of placements: checks pointers, sizes of structs, and ranks. */
#include "plan/placement.h"

#include "api/handles.h"
#include "base/memory.h"

static enum shoal_status check(const struct shoal_placement *placement, int rank,
                               struct plan_placement *out)
{
    if (!placement)
        return base_error(SHOAL_ERR_ARGUMENT, "placement is NULL");
    if (placement->struct_bytes < sizeof(*placement))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "placement.struct_bytes is %zu, at least %zu expected: start from "
                          "SHOAL_PLACEMENT_INIT",
                          placement->struct_bytes, sizeof(*placement));
    TRY(plan_placement_init(placement, out));
    if (rank < 0 || rank >= out->size)
        return base_error(SHOAL_ERR_ARGUMENT, "rank is %d: there are 0 to %d", rank, out->size - 1);
    return SHOAL_OK;
}

static enum shoal_status find_group(const struct shoal_placement *wanted,
                                    enum shoal_placement_group kind, int rank, int *ranks,
                                    int capacity, int *count, int *index)
{
    struct plan_placement placement;
    int *all = NULL;
    TRY(check(wanted, rank, &placement));
    int size = plan_placement_group_size(&placement, kind);
    if (size == 0)
        return base_error(SHOAL_ERR_ARGUMENT, "kind %d is none of shoal.h's", (int)kind);
    if (!ranks && capacity > 0)
        return base_error(SHOAL_ERR_ARGUMENT, "ranks is NULL");
    TRY(BASE_NEW_ARRAY(&all, size, "a group's ranks"));
    int at = plan_placement_group(&placement, kind, rank, all);
    for (int i = 0; i < size && i < capacity; i++)
        ranks[i] = all[i];
    base_free(all);
    if (count)
        *count = size;
    if (index)
        *index = at;
    return SHOAL_OK;
}

enum shoal_status shoal_placement_group(const struct shoal_placement *placement,
                                        enum shoal_placement_group kind, int rank, int *ranks,
                                        int capacity, int *count, int *index)
{
    return api_end(NULL, find_group(placement, kind, rank, ranks, capacity, count, index));
}
