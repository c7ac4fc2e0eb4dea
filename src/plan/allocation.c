/* SPDX-License-Identifier: Apache-2.0 */
/* allocation.c: the rule of D'Hondt, in whole numbers: quotients are compared crosswise. */
#include "plan/allocation.h"

#include <stdbool.h>

static bool goes_before(uint64_t cost, int devices, uint64_t other_cost, int other_devices)
{
    uint64_t mine = cost * (uint64_t)(other_devices + 1);
    uint64_t theirs = other_cost * (uint64_t)(devices + 1);
    return mine > theirs || (mine == theirs && devices < other_devices);
}

void plan_allocation(const uint64_t *costs, int segment_count, int device_count, int *device_counts)
{
    for (int i = 0; i < segment_count; i++)
        device_counts[i] = 0;
    for (int device = 0; device < device_count; device++) {
        int best = 0;
        for (int i = 1; i < segment_count; i++)
            if (goes_before(costs[i], device_counts[i], costs[best], device_counts[best]))
                best = i;
        device_counts[best]++;
    }
}
