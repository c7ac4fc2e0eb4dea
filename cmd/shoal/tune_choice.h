/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_choice.h: which value the measured times speak for. Pure.
 *
 * The cost of a value is the sum of the logarithms of the times that it leads to, so that a tenth
 * counts as much at a small size as at a large one. What stands is changed only for a gain that
 * noise does not give.
 */
#ifndef SHOAL_CMD_TUNE_CHOICE_H
#define SHOAL_CMD_TUNE_CHOICE_H

/* Of all sizes together; the logarithm of a factor. */
#define TUNE_GAIN_MIN 0.05

/* One size, measured both ways. */
struct tune_point {
    double low_us;  /* as below the threshold */
    double high_us; /* as above it */
};

/* points[count] by size, ascending: how many of them should lie below the threshold, 0 to count;
 * `standing` do now. */
int tune_cut(const struct tune_point *points, int count, int standing);
/* The index of the smallest cost. */
int tune_least(const double *costs, int count, int standing);

#endif
