/* SPDX-License-Identifier: Apache-2.0 */
/* allocation.h: how many devices each segment gets. */
#ifndef SHOAL_PLAN_ALLOCATION_H
#define SHOAL_PLAN_ALLOCATION_H

#include <stdint.h>

/* By the rule of D'Hondt: the next device goes to the segment with the largest cost per device that
 * it would then have; of equal ones to that with the fewest devices, then to the first. Costs are
 * below 2^50, device_count at most 1024. Writes device_counts[segment_count]. */
void plan_allocation(const uint64_t *costs, int segment_count, int device_count,
                     int *device_counts);

#endif
