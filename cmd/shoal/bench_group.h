/* SPDX-License-Identifier: Apache-2.0 */
/* bench_group.h: a group of Shoal as a library that bench_measure measures. */
#ifndef SHOAL_CMD_BENCH_GROUP_H
#define SHOAL_CMD_BENCH_GROUP_H

#include <stdbool.h>

#include "bench_measure.h"
#include "shoal.h"

struct bench_group {
    const char *command; /* "bench", for messages */
    shoal_group_t group;
    bool shared_memory; /* buffers come from shoal_alloc */
};

/* `group` is borrowed for as long as the library is used. */
void bench_group_library(struct bench_group *group, struct bench_library *out);

#endif
