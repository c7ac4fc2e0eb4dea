/* SPDX-License-Identifier: Apache-2.0 */
/* partition.h: which device runs which module, and what that means for each device. */
#ifndef SHOAL_PLAN_PARTITION_H
#define SHOAL_PLAN_PARTITION_H

#include <stdint.h>

#include "shoal.h"

/* How far the largest load may be above the least possible one: one part in so many. */
#define PLAN_SLACK 20

struct plan_partition {
    int module_count, device_count;
    int *device_of;                /* [module_count] */
    struct shoal_plan_load *loads; /* [device_count] */
    struct shoal_plan_report report;
    uint64_t steps; /* comparisons made */
};

/* Cuts the model. The options, whose pointers are good, are checked here; nothing of them is kept.
 * SHOAL_ERR_ARGUMENT, SHOAL_ERR_LIMIT (also if the devices' memory is too small) and
 * SHOAL_ERR_MEMORY name module or device. Any thread. */
enum shoal_status plan_partition_create(const struct shoal_plan_options *options,
                                        struct plan_partition **out);
void plan_partition_free(struct plan_partition *partition); /* NULL is allowed */

#endif
