/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h: runs packed schedules over a platform, in virtual time.
 *
 * Every link, and every processor, serves what comes in the order in which it came; a processor
 * belongs to a rank, and ranks share cores where the platform has fewer. A message costs its
 * sender's processor, then passes the links, then costs its receiver's; of a long message the
 * processors' work overlaps with the links', but for the first and the last piece. A message that
 * is longer than eager leaves when the receiver, ready for it, has asked for it, which is a message
 * without data. Between ranks of one host the receiver copies. Servers begin an operation when the
 * first word of it has come to them. The same run gives the same times, always.
 */
#ifndef SHOAL_SIM_SIM_H
#define SHOAL_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/platform.h"
#include "sim/program.h"

struct sim_operation {
    const struct sim_programs *programs; /* borrowed */
    double ready_ns;         /* it begins then, or when fewer than in_flight others are under way */
    int priority;            /* of those that are ready the one with the least begins first */
    double work_ns;          /* what each rank's processor does before it begins it */
    double begin_ns, end_ns; /* out */
    bool begun;              /* out */
};

struct sim_step_time {
    double start_ns, end_ns;
};

struct sim_run {
    const struct sim_platform *platform; /* borrowed */
    struct sim_operation *operations;    /* in the order in which they are ready */
    int operation_count;
    int in_flight;    /* 1 or more */
    double notice_ns; /* from the choice of what begins next until all ranks know of it */
    bool every_rank;  /* also where one host stands for all */
    /* Of a single operation with every_rank: of each step, rank by rank; may be NULL. */
    struct sim_step_time *times;
    double end_ns;        /* out: of the last operation */
    uint64_t event_count; /* out */
    bool one_host;        /* out: one host stood for all */
};

/* SHOAL_ERR_LIMIT if all ranks' steps are more than memory is meant for; SHOAL_ERR_INTERNAL if the
 * ranks wait for each other. */
enum shoal_status sim_run(struct sim_run *run);

/* The least time that any algorithm needs for the shape on this platform: the bytes that must pass
 * the busiest link, or all links together, one latency, and the inputs that must be summed. What
 * messages cost processors is left out. alltoall's counts are equal. */
double sim_bound(const struct sim_platform *platform, const struct coll_shape *shape);

/* The shares of an allreduce that ranks come to when they have measured this platform's links, as
 * the library does (comm/steer.h): shares[shape->host_count]. False: equal ones. */
bool sim_shares(const struct sim_platform *platform, const struct coll_shape *shape,
                uint32_t *shares);

#endif
