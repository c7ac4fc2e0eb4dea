/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c: where chunks lie, how many activations a stage may keep, and who makes the order. */
#include "plan/pipeline.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/pipeline_orders.h"

static int minimum(int a, int b)
{
    return a < b ? a : b;
}

static int maximum(int a, int b)
{
    return a > b ? a : b;
}

int plan_pipeline_held_max(const struct plan_pipeline *pipeline, int stage)
{
    int all = plan_pipeline_stage_chunk_count(pipeline, stage) * pipeline->microbatch_count;
    switch (pipeline->kind) {
    case SHOAL_PIPELINE_INTERLEAVED:
        return minimum(plan_pipeline_stage_chunk_count(pipeline, stage) * pipeline->active, all);
    case SHOAL_PIPELINE_1F1B: return minimum(pipeline->stage_count - stage, pipeline->active);
    case SHOAL_PIPELINE_INTERLEAVED_1F1B:
        return minimum(plan_warm_up_interleaved_1f1b(pipeline, stage) + 1, all);
    case SHOAL_PIPELINE_ZERO_BUBBLE: return pipeline->active;
    case SHOAL_PIPELINE_ZERO_BUBBLE_V: return 2 * pipeline->active;
    default: return all;
    }
}

/* What the options leave open. More than a schedule has a use for would only make it worse:
 * zero-bubble puts weight gradients off by what it may keep. */
static int active_microbatches(const struct shoal_pipeline_options *options)
{
    int stages = options->stage_count, asked = options->active_microbatches;
    switch (options->kind) {
    case SHOAL_PIPELINE_INTERLEAVED: return asked ? asked : stages + 2;
    case SHOAL_PIPELINE_ZERO_BUBBLE:
        return asked ? minimum(asked,
                               minimum(2 * stages - 1, maximum(stages, options->microbatch_count)))
                     : stages;
    case SHOAL_PIPELINE_1F1B:
    case SHOAL_PIPELINE_ZERO_BUBBLE_V: return asked ? asked : stages;
    default: return options->microbatch_count;
    }
}

/* ---- where chunks lie ------------------------------------------------------------------------ */

static int stage_of(const struct shoal_pipeline_options *options, int chunk)
{
    int stages = options->stage_count;
    if (options->chunk_stages)
        return options->chunk_stages[chunk];
    if (options->kind == SHOAL_PIPELINE_ZERO_BUBBLE_V && chunk >= stages)
        return 2 * stages - 1 - chunk;
    return chunk % stages;
}

static void place_chunks(struct plan_pipeline *pipeline,
                         const struct shoal_pipeline_options *options)
{
    int stages = pipeline->stage_count, works = pipeline->split ? 3 : 2;
    for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) {
        pipeline->chunk_stages[chunk] = stage_of(options, chunk);
        pipeline->first_chunk[pipeline->chunk_stages[chunk] + 1]++;
    }
    for (int stage = 0; stage < stages; stage++) {
        int count = pipeline->first_chunk[stage + 1] * works * pipeline->microbatch_count;
        pipeline->first[stage + 1] = pipeline->first[stage] + count;
        pipeline->first_chunk[stage + 1] += pipeline->first_chunk[stage];
    }
    for (int chunk = pipeline->chunk_count - 1; chunk >= 0; chunk--)
        pipeline->stage_chunks[--pipeline->first_chunk[pipeline->chunk_stages[chunk] + 1]] = chunk;
    for (int stage = 0; stage < stages; stage++)
        pipeline->first_chunk[stage] = pipeline->first_chunk[stage + 1];
    pipeline->first_chunk[stages] = pipeline->chunk_count;
}

/* ---- making one ------------------------------------------------------------------------------ */

static enum shoal_status allocate(struct plan_pipeline *pipeline,
                                  const struct shoal_pipeline_options *options)
{
    TRY(BASE_NEW_ARRAY(&pipeline->chunk_stages, pipeline->chunk_count, "a pipeline's chunks"));
    TRY(BASE_NEW_ARRAY(&pipeline->stage_chunks, pipeline->chunk_count, "a pipeline's chunks"));
    TRY(BASE_NEW_ARRAY(&pipeline->first_chunk, pipeline->stage_count + 1, "a pipeline's stages"));
    TRY(BASE_NEW_ARRAY(&pipeline->first, pipeline->stage_count + 1, "a pipeline's stages"));
    place_chunks(pipeline, options);
    return BASE_NEW_ARRAY(&pipeline->operations, pipeline->first[pipeline->stage_count],
                          "a pipeline's order");
}

static enum shoal_status make_order(struct plan_pipeline *pipeline,
                                    const struct shoal_pipeline_costs *costs)
{
    switch (pipeline->kind) {
    case SHOAL_PIPELINE_1F1B: plan_order_1f1b(pipeline); return SHOAL_OK;
    case SHOAL_PIPELINE_INTERLEAVED_1F1B: plan_order_interleaved_1f1b(pipeline); return SHOAL_OK;
    case SHOAL_PIPELINE_ZERO_BUBBLE: plan_order_zero_bubble(pipeline); return SHOAL_OK;
    case SHOAL_PIPELINE_ZERO_BUBBLE_V: return plan_order_zero_bubble_v(pipeline, costs);
    default: return plan_order_ready(pipeline, costs);
    }
}

enum shoal_status plan_pipeline_create(const struct shoal_pipeline_options *options,
                                       struct plan_pipeline **out)
{
    struct plan_pipeline *pipeline;
    TRY(BASE_NEW(&pipeline, "a pipeline"));
    *pipeline = (struct plan_pipeline){.kind = options->kind,
                                       .stage_count = options->stage_count,
                                       .microbatch_count = options->microbatch_count,
                                       .chunk_count = options->chunk_count,
                                       .active = active_microbatches(options),
                                       .split = options->kind == SHOAL_PIPELINE_ZERO_BUBBLE ||
                                                options->kind == SHOAL_PIPELINE_ZERO_BUBBLE_V};
    enum shoal_status status = allocate(pipeline, options);
    if (status == SHOAL_OK)
        status = make_order(pipeline, options->costs);
    if (status == SHOAL_OK)
        status = plan_pipeline_check(pipeline);
    if (status == SHOAL_OK)
        *out = pipeline;
    else
        plan_pipeline_free(pipeline);
    return status;
}

void plan_pipeline_free(struct plan_pipeline *pipeline)
{
    if (!pipeline)
        return;
    base_free(pipeline->chunk_stages);
    base_free(pipeline->stage_chunks);
    base_free(pipeline->first_chunk);
    base_free(pipeline->first);
    base_free(pipeline->operations);
    base_free(pipeline);
}
