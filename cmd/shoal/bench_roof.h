/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_roof.h: what the hardware allows, measured between the same processes in the same minute by
 * the same rounds, so that a time can be given as a multiple of it.
 *
 * On one host the roof is the larger of two: the ranks copy memory at once, each as many bytes as
 * makes the loads and stores that the operation can't avoid; and the ranks exchange 8 bytes through
 * shared flags. Across hosts it is raw sockets in the operation's pattern, the best of some forms.
 */
#ifndef SHOAL_CMD_BENCH_ROOF_H
#define SHOAL_CMD_BENCH_ROOF_H

#include "bench_measure.h"
#include "shoal.h"

struct bench_roof;

/* Collective over the group, as are the others. */
enum shoal_status bench_roof_create(const struct bench_library *library, shoal_group_t group,
                                    struct bench_roof **out);
/* Fills roof_us, roof and pingpong_us of `result` for its size. */
enum shoal_status bench_roof_measure(struct bench_roof *roof, const struct bench_settings *settings,
                                     struct bench_result *result);
/* NULL is allowed. */
void bench_roof_free(struct bench_roof *roof);

#endif
