/* SPDX-License-Identifier: Apache-2.0 */
/* borders.h: moves the borders of an even cut to places where less crosses. */
#ifndef SHOAL_PLAN_BORDERS_H
#define SHOAL_PLAN_BORDERS_H

#include "plan/segments.h"

/* entering[item_count]: bytes that come into each item from the one before it. Every border goes
 * to the place near it with the fewest, such that the parts on both sides cost at most `bound`,
 * have room, and are not empty unless they were. *steps grows by the number of places looked at. */
void plan_borders_settle(const struct plan_row *row, const uint64_t *entering, uint64_t bound,
                         int *borders, uint64_t *steps);

#endif
