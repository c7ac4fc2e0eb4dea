/* SPDX-License-Identifier: Apache-2.0 */
/* placement.h: ranks as places on three axes: data (D), pipeline (P) and tensor (T). */
#ifndef SHOAL_PLAN_PLACEMENT_H
#define SHOAL_PLAN_PLACEMENT_H

#include "shoal.h"

enum { PLAN_DATA, PLAN_PIPELINE, PLAN_TENSOR, PLAN_AXES };

struct plan_placement {
    int size;
    int degree[PLAN_AXES]; /* their product is size */
    int stride[PLAN_AXES]; /* between ranks that are neighbours on the axis */
};

/* SHOAL_ERR_ARGUMENT says what is wrong with strategy or degrees. */
enum shoal_status plan_placement_init(const struct shoal_placement *wanted,
                                      struct plan_placement *out);

/* A rank, 0 to size-1, on an axis, and the other way around. */
int plan_placement_at(const struct plan_placement *placement, int rank, int axis);
int plan_placement_rank(const struct plan_placement *placement, const int at[PLAN_AXES]);

/* How many ranks a group of this kind has; 0 if there is no such kind. */
int plan_placement_group_size(const struct plan_placement *placement,
                              enum shoal_placement_group kind);
/* The ranks of the group that `rank` is in, rising, and which of them it is. ranks may be NULL. */
int plan_placement_group(const struct plan_placement *placement, enum shoal_placement_group kind,
                         int rank, int *ranks);

#endif
