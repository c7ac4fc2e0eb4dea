/* SPDX-License-Identifier: Apache-2.0 */
/* sort.h: measured values in order, for medians and the like. */
#ifndef SHOAL_CMD_SORT_H
#define SHOAL_CMD_SORT_H

#include <stddef.h>

/* Smallest first; no NaN. */
void sort_doubles(double *values, size_t count);

#endif
