/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_fuse.h: `shoal bench fuse`: a training step of a known model, by fusion buffers, and beside
 * it the same step with one blocking allreduce behind the backward pass. Computing is simulated by
 * waiting, as a processor waits for its accelerator.
 */
#ifndef SHOAL_CMD_BENCH_FUSE_H
#define SHOAL_CMD_BENCH_FUSE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench_measure.h"
#include "model.h"
#include "shoal.h"

#define FUSE_STEPS_MAX     1000
#define FUSE_FORWARD_SHARE (1.0 / 3) /* of the computing; as `shoal sim --model` */

/* What is replayed. */
struct fuse_replay_settings {
    struct model model;
    double scale;          /* of each tensor's elements */
    double compute_ns;     /* 0: as long as the allreduce of all gradients takes here */
    uint64_t buffer_bytes; /* 0: by the options, as in_flight */
    int in_flight;
    enum shoal_compression compression;
    int steps;
    bool check;
};

/* Times of a step, in ns; of all ranks the longest. */
enum fuse_value {
    FUSE_COMPUTE,            /* until the last gradient was added */
    FUSE_STEP,               /* with fusion buffers */
    FUSE_FLIGHT,             /* in which a buffer was on its way */
    FUSE_EXPOSED,            /* of that, after the computing */
    FUSE_BLOCKING_STEP,      /* with one allreduce after the computing */
    FUSE_BLOCKING_ALLREDUCE, /* of that, the allreduce */
    FUSE_VALUE_COUNT
};

struct fuse_replay_result {
    int tensors, buffers, in_flight;
    uint64_t elements, bytes, buffer_bytes; /* bytes with the padding between tensors */
    double compute_ns;                      /* asked for, or found */
    struct {
        double median, low, high;
    } values[FUSE_VALUE_COUNT];
    /* Buffers of a step that were ready and had to wait, and that went with another one; rank 0. */
    double held_back, joined;
    /* In a step, the link and direction that carried most, and 2(h-1)/h n; 0 on one host. */
    double link_bytes, link_bound_bytes;
    /* The last step, CLOCK_MONOTONIC in ns. */
    int64_t start_ns, computed_ns, end_ns;
};

/* Replays settings->steps steps of each kind by turns. All ranks call it. 0, or another value after
 * the reason was printed. The fuse is *fuse, to be freed by the caller, also on failure. */
int fuse_replay(const struct fuse_replay_settings *settings, const struct bench_library *library,
                shoal_group_t group, shoal_fuse_t *fuse, struct fuse_replay_result *out);

/* A picture of the last step: each buffer's ready, packed, sent, reduced, back. */
void fuse_timeline_print(const struct fuse_replay_settings *settings,
                         const struct fuse_replay_result *result, shoal_fuse_t fuse, FILE *out);

/* argv[0] is "fuse". Returns the exit status. */
int bench_fuse(int argc, char **argv);

#endif
