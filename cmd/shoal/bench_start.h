/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_start.h: `shoal bench start`: how long it takes until processes are a group, and what that
 * group costs them. The numbers go from the ranks (start_rank.c) to the program that started them
 * (bench_start.c) as one line of text.
 */
#ifndef SHOAL_CMD_BENCH_START_H
#define SHOAL_CMD_BENCH_START_H

#include <stdint.h>

/* Of one start; of all ranks the last or the largest. The same order as start_values[]. */
enum start_value {
    START_LAUNCH_MS,         /* from the launch until every rank has the group */
    START_ARRIVE_MS,         /* of that, until the last rank asked for it */
    START_CREATE_MS,         /* another group of all, made by ranks that run */
    START_SPLIT_MS,          /* a sub-group of all ranks by shoal_group_split */
    START_SUBSET_MS,         /* by shoal_group_subset, of several in a row */
    START_SUBSET_SUM_MS,     /* of one, until its first allreduce is done too */
    START_SUM_MS,            /* a later allreduce, for comparison */
    START_MAPPED_BYTES,      /* address space of the shared regions */
    START_SHARED_BYTES,      /* of shared memory that the rank has taken, when the group is made */
    START_SHARED_SUM_BYTES,  /* after an allreduce of 1 MiB */
    START_PRIVATE_BYTES,     /* of memory of its own, more than before the group was made */
    START_PRIVATE_SUM_BYTES, /* after the allreduce */
    START_PAGE_TABLE_BYTES,  /* of the kernel's, for the rank's mappings, likewise after it */
    START_DESCRIPTORS,       /* more than before */
    START_THREADS,
    START_VALUE_COUNT
};

/* argv[0] is "start". Returns the exit status. */
int bench_start(int argc, char **argv);

#endif
