/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.h: pipelines as data. A model is cut in chunks, chunks lie on stages, and every
 * microbatch goes forward through all chunks and backward through them again. A pipeline says in
 * which order each stage does its share of that.
 *
 * Three things are kept apart: who makes the order (one file per family), who proves that it is
 * right (pipeline_check.c, which knows nothing of how it was made), and who says how long it takes
 * (pipeline_simulate.c, in virtual time). docs/pipeline.md has the schedules and their theory.
 *
 * An activation is what a chunk keeps of one microbatch from the forward until the backward is
 * over, with a split backward until the weight gradient is.
 */
#ifndef SHOAL_PLAN_PIPELINE_H
#define SHOAL_PLAN_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "shoal.h"

#define PLAN_STAGES_MAX       1024
#define PLAN_MICROBATCHES_MAX 65536
/* Of all stages together. With times up to PLAN_TIME_MAX_NS every sum fits in 63 bits. */
#define PLAN_OPERATIONS_MAX  (1 << 22)
#define PLAN_TIME_MAX_NS     (INT64_C(1) << 39) /* nine minutes, of one operation or transfer */
#define PLAN_CHUNK_MAX_BYTES (UINT64_C(1) << 40)

struct plan_pipeline {
    enum shoal_pipeline_kind kind;
    int stage_count, microbatch_count, chunk_count;
    int active;        /* microbatches; see plan_pipeline_held_max */
    bool split;        /* backwards are two operations */
    int *chunk_stages; /* [chunk_count] */
    int *stage_chunks; /* [chunk_count] chunks in their order, stage by stage */
    int *first_chunk;  /* [stage_count + 1] where each stage's begin in stage_chunks */
    int *first;        /* [stage_count + 1] where each stage's operations begin */
    struct shoal_pipeline_operation *operations; /* [first[stage_count]] stage by stage, in order */
};

/* Makes the order and checks it. The options are within the limits and fit together, and have
 * costs; they are not needed afterwards. SHOAL_ERR_MEMORY. */
enum shoal_status plan_pipeline_create(const struct shoal_pipeline_options *options,
                                       struct plan_pipeline **out);
/* NULL is allowed. */
void plan_pipeline_free(struct plan_pipeline *pipeline);

/* How many activations a stage keeps at most at any time; the order has to obey. */
int plan_pipeline_held_max(const struct plan_pipeline *pipeline, int stage);

/* Proves of an order, whatever the times: every microbatch goes through every chunk forward and
 * backward once, on the chunk's stage; the stages never wait for each other in a circle; a weight
 * gradient comes after its input gradient; no stage keeps more activations than it may, and no more
 * microbatches than `active` are in an interleaved pipeline. Otherwise SHOAL_ERR_INTERNAL with the
 * stage and the operation. SHOAL_ERR_MEMORY. */
enum shoal_status plan_pipeline_check(const struct plan_pipeline *pipeline);

/* shoal_pipeline_simulate: the costs are complete and within the limits. */
enum shoal_status plan_pipeline_simulate(const struct plan_pipeline *pipeline,
                                         const struct shoal_pipeline_costs *costs,
                                         struct shoal_pipeline_result *out,
                                         struct shoal_pipeline_stage *stages,
                                         struct shoal_pipeline_times *times);

/* "forward of microbatch 3 through chunk 1": static texts of the thread, two valid at a time. */
const char *plan_pipeline_operation_text(const struct shoal_pipeline_operation *operation);

static inline int plan_pipeline_stage_chunk_count(const struct plan_pipeline *pipeline, int stage)
{
    return pipeline->first_chunk[stage + 1] - pipeline->first_chunk[stage];
}

#endif
