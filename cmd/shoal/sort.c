/* SPDX-License-Identifier: Apache-2.0 */
/* sort.c: see sort.h. */
#include "sort.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void sort_doubles(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
}
