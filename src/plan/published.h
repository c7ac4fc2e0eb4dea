/* SPDX-License-Identifier: Apache-2.0 */
/* published.h: the published way from a tree to devices. */
#ifndef SHOAL_PLAN_PUBLISHED_H
#define SHOAL_PLAN_PUBLISHED_H

#include "plan/tree.h"

/* Writes device_of[node_count]. cost_before[node_count + 1] are sums over the nodes before each.
 * Nodes that are placed by hand should cost nothing there; where they are placed is not looked at.
 * *steps grows by the comparisons made. */
enum shoal_status plan_published(const struct plan_tree *tree, const uint64_t *cost_before,
                                 int device_count, int *device_of, uint64_t *steps);

#endif
