/* SPDX-License-Identifier: Apache-2.0 */
/* tune_choice.c: see tune_choice.h. */
#include "tune_choice.h"

#include <math.h>

static double cut_cost(const struct tune_point *points, int count, int cut)
{
    double cost = 0;
    for (int i = 0; i < count; i++)
        cost += log(i < cut ? points[i].low_us : points[i].high_us);
    return cost;
}

int tune_cut(const struct tune_point *points, int count, int standing)
{
    int best = standing;
    double standing_cost = cut_cost(points, count, standing), best_cost = standing_cost;
    for (int cut = 0; cut <= count; cut++) {
        double cost = cut_cost(points, count, cut);
        if (cost < best_cost) {
            best = cut;
            best_cost = cost;
        }
    }
    return standing_cost - best_cost >= TUNE_GAIN_MIN ? best : standing;
}

int tune_least(const double *costs, int count, int standing)
{
    int best = standing;
    for (int i = 0; i < count; i++)
        if (costs[i] < costs[best])
            best = i;
    return costs[standing] - costs[best] >= TUNE_GAIN_MIN ? best : standing;
}
