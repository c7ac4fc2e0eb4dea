/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_training_step.c: a step of training in copies, stages and slices. The planner cuts the model
 * in chunks by time; a chunk's time is its work, sliced, and the sums within its layers; the
 * pipeline runs in virtual time; a stage's gradients are summed over its copies while its last
 * backward passes go on; then the optimizer works, and where its state is in shares, each share of
 * the parameters goes to the other copies.
 */
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "plan/layout.h"
#include "sim_training.h"

#define WEIGHT_SHARE 2 /* of a backward pass, half makes the gradient of weights */

struct chunk {
    uint64_t parameter_bytes, activation_bytes, output_bytes;
    double forward_ns, backward_ns;           /* work */
    double forward_sums_ns, backward_sums_ns; /* sums within layers */
};

struct run {
    const struct training *training;
    struct training_step *step;
    struct training_places places;
    struct shoal_plan_options options;
    struct chunk *chunks; /* [chunk_count] */
    int chunk_count;
    bool *is_layer;        /* [module_count] */
    uint64_t summed_bytes; /* the last size whose sum was simulated, and its time */
    double summed_ns;
};

/* ---- chunks -------------------------------------------------------------------------------- */

static enum shoal_status sum_ns(struct run *run, uint64_t bytes, double *ns)
{
    if (bytes != run->summed_bytes)
        TRY(training_slices_ns(run->training, bytes, &run->summed_ns));
    run->summed_bytes = bytes;
    *ns = run->summed_ns;
    return SHOAL_OK;
}

static enum shoal_status add_sums(struct run *run, shoal_plan_t plan)
{
    const struct training *training = run->training;
    for (int i = 0; i < run->options.module_count; i++) {
        struct chunk *chunk = &run->chunks[shoal_plan_device(plan, i)];
        double ns;
        if (!run->is_layer[i])
            continue;
        uint64_t bytes = run->options.modules[i].output_bytes * (uint64_t)training->size;
        TRY(sum_ns(run, bytes, &ns));
        chunk->forward_sums_ns += ns * training->forward_sums;
        chunk->backward_sums_ns += ns * training->backward_sums;
    }
    return SHOAL_OK;
}

static enum shoal_status measure_chunk(struct run *run, shoal_plan_t plan, int index)
{
    const struct training *training = run->training;
    struct shoal_plan_load load = SHOAL_PLAN_LOAD_INIT;
    double scale = training->size / training->achieved / training->tensor;
    uint64_t slices = (uint64_t)training->tensor, size = (uint64_t)training->size;
    TRY(shoal_plan_load(plan, index, &load));
    if (load.module_count == 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "%s has too few modules for %d chunks: chunk %d would have nothing to do",
                          training->tree.name, run->chunk_count, index);
    run->chunks[index] = (struct chunk){
        .parameter_bytes = load.parameter_bytes / slices,
        .activation_bytes =
            load.activation_bytes * size / (training->whole_activations ? 1 : slices),
        .output_bytes = load.output_bytes * size / slices,
        .forward_ns = (double)load.forward_ns * scale,
        .backward_ns = (double)load.backward_ns * scale,
    };
    return SHOAL_OK;
}

static enum shoal_status cut(struct run *run)
{
    struct shoal_plan_options *options = &run->options;
    shoal_plan_t plan;
    *options = (struct shoal_plan_options)SHOAL_PLAN_OPTIONS_INIT;
    options->modules = run->training->tree.modules;
    options->module_count = run->training->tree.module_count;
    options->device_count = run->chunk_count;
    options->memory_weight = 0;
    TRY(shoal_plan_create(options, &plan));
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; status == SHOAL_OK && i < run->chunk_count; i++)
        status = measure_chunk(run, plan, i);
    plan_layers_mark(options, run->is_layer);
    if (status == SHOAL_OK)
        status = add_sums(run, plan);
    shoal_plan_free(plan);
    return status;
}

/* ---- the pipeline -------------------------------------------------------------------------- */

/* The stage behind which a chunk's output goes to the next one. With zero-bubble-v the second half
 * of the chunks goes back along the first half's way. */
static int border_of(const struct run *run, int chunk)
{
    int stages = run->training->pipeline;
    bool back = run->training->kind == SHOAL_PIPELINE_ZERO_BUBBLE_V && chunk >= stages;
    if (back)
        return chunk + 1 < run->chunk_count ? 2 * stages - 2 - chunk : 0;
    return chunk % stages;
}

/* Bytes that take as long on a host's link as these do where they go: with others beside them, or
 * between accelerators of the host. */
static uint64_t bytes_on_link(const struct run *run, int chunk)
{
    const struct sim_platform *platform = run->training->platform;
    int crossing = run->places.crossing[border_of(run, chunk)];
    double share =
        crossing > 0 ? crossing : platform->link_bytes_per_ns / platform->accelerator_bytes_per_ns;
    return (uint64_t)ceil((double)run->chunks[chunk].output_bytes * share);
}

static enum shoal_status fill(void *user, struct pipeline_chunk *chunks, int chunk_count)
{
    const struct run *run = user;
    for (int i = 0; i < chunk_count; i++) {
        const struct chunk *chunk = &run->chunks[i];
        int64_t backward_ns = (int64_t)(chunk->backward_ns + chunk->backward_sums_ns);
        chunks[i].forward_ns = (int64_t)(chunk->forward_ns + chunk->forward_sums_ns);
        chunks[i].backward_weight_ns = backward_ns / WEIGHT_SHARE;
        chunks[i].backward_input_ns = backward_ns - chunks[i].backward_weight_ns;
        chunks[i].activation_bytes = chunk->activation_bytes;
        chunks[i].output_bytes = bytes_on_link(run, i);
    }
    return SHOAL_OK;
}

static enum shoal_status run_pipeline(struct run *run)
{
    const struct training *training = run->training;
    bool crosses = false;
    for (int stage = 0; stage < training->pipeline; stage++)
        crosses = crosses || run->places.crossing[stage] > 0;
    run->step->request = (struct pipeline_request){
        .stage_count = training->pipeline,
        .microbatch_count = training->microbatches,
        .stage_chunk_count = training->stage_chunks,
        .active_microbatches = training->active,
        .kind = training->kind,
        .bytes_per_ns = training->platform->link_bytes_per_ns,
        .latency_ns = (int64_t)(crosses ? training->platform->link_latency_ns
                                        : training->platform->local_latency_ns),
        .fill = fill,
        .user = run};
    return pipeline_table_build(&run->step->request, &run->step->pipeline);
}

/* ---- gradients and parameters -------------------------------------------------------------- */

/* A stage's chunks in the order in which they end: when the last backward pass of each goes on. */
static int list_gradients(const struct run *run, int stage, struct training_gradients *out)
{
    const struct pipeline_row *row = &run->step->pipeline.rows[0];
    const struct shoal_pipeline_operation *all = shoal_pipeline_operations(row->pipeline, -1);
    const struct shoal_pipeline_operation *own = shoal_pipeline_operations(row->pipeline, stage);
    int operations = shoal_pipeline_operation_count(row->pipeline, stage), count = 0;
    for (int i = operations - 1; i >= 0 && count < row->stage_chunk_count; i--) {
        bool is_last =
            own[i].work == SHOAL_WORK_BACKWARD || own[i].work == SHOAL_WORK_BACKWARD_WEIGHT;
        for (int later = i + 1; later < operations && is_last; later++)
            is_last = own[later].chunk != own[i].chunk || own[later].work != own[i].work;
        if (!is_last)
            continue;
        const struct shoal_pipeline_times *times = &row->times[own - all + i];
        out[row->stage_chunk_count - 1 - count++] =
            (struct training_gradients){.bytes = run->chunks[own[i].chunk].parameter_bytes,
                                        .begin_ns = (double)times->start_ns,
                                        .end_ns = (double)times->end_ns};
    }
    return count;
}

static uint64_t stage_bytes(const struct run *run, int stage)
{
    const struct pipeline_row *row = &run->step->pipeline.rows[0];
    uint64_t bytes = 0;
    for (int i = 0; i < run->chunk_count; i++)
        if (shoal_pipeline_chunk_stage(row->pipeline, i) == stage)
            bytes += run->chunks[i].parameter_bytes;
    return bytes;
}

static uint64_t shared_bytes(const struct training *training, uint64_t parameter_bytes)
{
    return parameter_bytes * (uint64_t)training->sharded_copies / (uint64_t)training->data;
}

/* What an optimizer reads and writes of its own part, at the rate of memory. */
static double optimizer_ns(const struct training *training, uint64_t bytes)
{
    uint64_t own = training->sharded_copies ? (uint64_t)training->data : 1;
    uint64_t state = bytes * (uint64_t)training->state_copies / own + shared_bytes(training, bytes);
    return 2.0 * (double)state / training->platform->reduce_bytes_per_ns;
}

static enum shoal_status finish_stage(struct run *run, int stage,
                                      struct training_gradients *gradients)
{
    const struct training *training = run->training;
    struct training_step *step = run->step;
    double summed_ns = 0, gathered_ns = 0;
    uint64_t bytes = stage_bytes(run, stage);
    int count = list_gradients(run, stage, gradients);
    TRY(training_gradients_ns(training, &run->places, gradients, count, &summed_ns));
    if (training->sharded_copies)
        TRY(training_gather_ns(training, &run->places, bytes, &gathered_ns));
    double late_ns = summed_ns - (double)step->pipeline.rows[0].result.step_ns;
    step->gradients_ns = fmax(step->gradients_ns, late_ns);
    step->update_ns = fmax(step->update_ns, optimizer_ns(training, bytes));
    step->gather_ns = fmax(step->gather_ns, gathered_ns);
    return SHOAL_OK;
}

static enum shoal_status finish(struct run *run)
{
    struct training_gradients *gradients;
    TRY(BASE_NEW_ARRAY(&gradients, run->step->pipeline.rows[0].stage_chunk_count,
                       "a training's gradients"));
    enum shoal_status status = SHOAL_OK;
    for (int stage = 0; status == SHOAL_OK && stage < run->training->pipeline; stage++)
        status = finish_stage(run, stage, gradients);
    base_free(gradients);
    return status;
}

/* ---- the step ------------------------------------------------------------------------------ */

static void measure_memory(struct run *run)
{
    const struct training *training = run->training;
    struct training_step *step = run->step;
    const struct pipeline_row *row = &step->pipeline.rows[0];
    for (int stage = 0; stage < training->pipeline; stage++) {
        uint64_t bytes = stage_bytes(run, stage), kept = row->stages[stage].peak_bytes;
        uint64_t state = bytes * (uint64_t)training->state_copies;
        uint64_t shared = shared_bytes(training, bytes);
        uint64_t all = state + shared + kept + training->working_bytes;
        if (all <= step->memory_bytes)
            continue;
        step->fullest = stage;
        step->state_bytes = state;
        step->sharded_bytes = shared;
        step->activation_bytes = kept;
        step->memory_bytes = all;
    }
}

/* The stage that works longest has no time to spare; what it waits for is the bubble. */
static void measure_work(struct run *run)
{
    struct training_step *step = run->step;
    const struct pipeline_row *row = &step->pipeline.rows[0];
    int busiest = 0, microbatches = run->training->microbatches;
    for (int stage = 1; stage < run->training->pipeline; stage++)
        if (row->stages[stage].busy_ns > row->stages[busiest].busy_ns)
            busiest = stage;
    for (int i = 0; i < run->chunk_count; i++)
        if (shoal_pipeline_chunk_stage(row->pipeline, i) == busiest) {
            const struct chunk *chunk = &run->chunks[i];
            step->work_ns += (chunk->forward_ns + chunk->backward_ns) * microbatches;
            step->sums_ns += (chunk->forward_sums_ns + chunk->backward_sums_ns) * microbatches;
        }
    step->bubble_ns = (double)row->result.step_ns - step->work_ns - step->sums_ns;
    step->step_ns =
        (double)row->result.step_ns + step->gradients_ns + step->update_ns + step->gather_ns;
}

/* Forward passes that are done again are what a backward pass takes above twice the forward. */
static void measure_rates(struct run *run)
{
    const struct training *training = run->training;
    struct training_step *step = run->step;
    double forward_ns = 0, backward_ns = 0, again_ns = 0;
    for (int i = 0; i < training->tree.module_count; i++) {
        const struct shoal_plan_module *module = &training->tree.modules[i];
        forward_ns += (double)module->forward_ns;
        backward_ns += (double)module->backward_ns;
        again_ns += fmax(0, (double)module->backward_ns - 2 * (double)module->forward_ns);
    }
    double microbatches = (double)training->microbatches * training->size * training->data;
    double ranks = (double)training->data * training->pipeline * training->tensor;
    double done = (forward_ns + backward_ns) * training->peak_per_ns * microbatches;
    step->samples_per_s = microbatches * training->samples / step->step_ns * 1e9;
    step->done_per_ns = done / step->step_ns / ranks;
    step->needed_per_ns = step->done_per_ns * (1 - again_ns / (forward_ns + backward_ns));
}

static enum shoal_status simulate(struct run *run)
{
    TRY(training_places_init(run->training, &run->places));
    TRY(BASE_NEW_ARRAY(&run->chunks, run->chunk_count, "a training's chunks"));
    TRY(BASE_NEW_ARRAY(&run->is_layer, run->training->tree.module_count, "a training's layers"));
    TRY(cut(run));
    TRY(run_pipeline(run));
    TRY(finish(run));
    measure_memory(run);
    measure_work(run);
    measure_rates(run);
    return SHOAL_OK;
}

enum shoal_status training_simulate(const struct training *training, struct training_step *out)
{
    int chunks_of_v = training->kind == SHOAL_PIPELINE_ZERO_BUBBLE_V ? 2 : 1;
    struct run run = {.training = training,
                      .step = out,
                      .chunk_count = training->pipeline * training->stage_chunks * chunks_of_v};
    *out = (struct training_step){0};
    enum shoal_status status = simulate(&run);
    out->request.user = NULL;
    training_places_release(&run.places);
    base_free(run.chunks);
    base_free(run.is_layer);
    return status;
}

void training_step_release(struct training_step *step)
{
    pipeline_table_release(&step->pipeline);
}
