/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_clock.h: a pipeline in virtual time. It serves two ends: orders that exist are timed,
 * and orders that follow a rule ("a backward that is ready goes first") are made by acting on the
 * rule at every moment at which a stage has nothing to do.
 */
#ifndef SHOAL_PLAN_PIPELINE_CLOCK_H
#define SHOAL_PLAN_PIPELINE_CLOCK_H

#include "plan/pipeline.h"

/* What the input of an operation is there for. A whole backward counts as an input gradient. */
enum plan_pass { PLAN_FORWARD, PLAN_BACKWARD, PLAN_WEIGHT, PLAN_PASS_COUNT };

enum plan_pass plan_pass_of(enum shoal_pipeline_work work);

/* What a rule may look at. */
struct plan_clock {
    const struct plan_pipeline *pipeline;
    const struct shoal_pipeline_costs *costs;
    int64_t now_ns;
    uint8_t *ready;              /* [chunk][microbatch] bit `pass`: its input has arrived */
    int *begun[PLAN_PASS_COUNT]; /* [chunk] how many microbatches have begun this pass */
    int *taken;                  /* [stage] operations begun */
    int *held;                   /* [stage] activations */
};

/* The next operation of an idle stage; false: it waits until something arrives or ends there. */
typedef bool (*plan_rule)(const struct plan_clock *clock, int stage,
                          struct shoal_pipeline_operation *out);

static inline bool plan_clock_is_ready(const struct plan_clock *clock, enum plan_pass pass,
                                       int chunk, int microbatch)
{
    size_t at = (size_t)chunk * (size_t)clock->pipeline->microbatch_count + (size_t)microbatch;
    return clock->ready[at] >> pass & 1;
}

/* Of the stage's chunks from `from` on, one that can begin its next microbatch in this pass: the
 * earliest microbatch, in the latest chunk; -1: none. */
int plan_clock_earliest(const struct plan_clock *clock, int stage, enum plan_pass pass, int from);

/* Runs the pipeline. rule NULL: the order that it has; else its operations are written as the rule
 * makes them.
 * times may be NULL, else [operations of all stages]. SHOAL_ERR_INTERNAL if the stages wait for
 * each other; SHOAL_ERR_MEMORY. */
enum shoal_status plan_clock_run(const struct plan_pipeline *pipeline,
                                 const struct shoal_pipeline_costs *costs, plan_rule rule,
                                 struct shoal_pipeline_times *times);

#endif
