/* SPDX-License-Identifier: Apache-2.0 */
/* not_finite.h: NaN and infinities go through sums as they are, and change no other element. */
#ifndef SHOAL_TESTS_NOT_FINITE_H
#define SHOAL_TESTS_NOT_FINITE_H

#include "shoal.h"

/* Means of `count` elements with some of each kind, in all types of floats, by allreduce and
 * reduce_scatter: 0, or 1 with a line on stderr. The group has 2 ranks or more. */
int not_finite_sums(shoal_group_t group, uint64_t count);
/* The same by a fuse of several buffers, after which a step without any has finite results. */
int not_finite_fused(shoal_group_t group, enum shoal_compression compression);

#endif
