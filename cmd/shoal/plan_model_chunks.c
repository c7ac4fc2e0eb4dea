/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model_chunks.c: pipelines over a model that was cut: each chunk's times and bytes. Schedules
 * with one chunk on each stage have the devices' loads. For others the model is cut into as many
 * pieces as there are chunks, unless modules were placed by hand: then into equal shares of what a
 * device has.
 */
#include "base/status.h"
#include "plan_model.h"

/* Of a backward pass, what makes the gradient of weights: half, as it is for matrix products. */
#define WEIGHT_SHARE 2

static bool is_placed(const struct shoal_plan_options *options)
{
    for (int i = 0; i < options->module_count; i++)
        if (options->modules[i].device >= 0)
            return true;
    return !options->auto_partition;
}

static void set_chunk(struct pipeline_chunk *chunk, const struct shoal_plan_load *load, int shares)
{
    uint64_t backward_ns = load->backward_ns / (uint64_t)shares;
    chunk->forward_ns = (int64_t)(load->forward_ns / (uint64_t)shares);
    chunk->backward_weight_ns = (int64_t)(backward_ns / WEIGHT_SHARE);
    chunk->backward_input_ns = (int64_t)backward_ns - chunk->backward_weight_ns;
    chunk->activation_bytes = load->activation_bytes / (uint64_t)shares;
    chunk->output_bytes = load->output_bytes;
}

static enum shoal_status set_chunks(shoal_plan_t plan, struct pipeline_chunk *chunks, int count)
{
    for (int i = 0; i < count; i++) {
        struct shoal_plan_load load = SHOAL_PLAN_LOAD_INIT;
        TRY(shoal_plan_load(plan, i, &load));
        set_chunk(&chunks[i], &load, 1);
    }
    return SHOAL_OK;
}

static enum shoal_status fill(void *user, struct pipeline_chunk *chunks, int chunk_count)
{
    const struct plan_model *model = user;
    struct shoal_plan_options options = model->options;
    shoal_plan_t plan;
    if (chunk_count == options.device_count)
        return set_chunks(model->plan, chunks, chunk_count);
    for (int i = 0; i < chunk_count && is_placed(&options); i++)
        set_chunk(&chunks[i], &model->loads[chunks[i].stage], chunks[i].stage_share);
    if (is_placed(&options))
        return SHOAL_OK;
    options.device_count = chunk_count;
    options.memory_limits = NULL; /* those are of devices, which have several chunks */
    options.in_flight = NULL;
    TRY(shoal_plan_create(&options, &plan));
    enum shoal_status status = set_chunks(plan, chunks, chunk_count);
    shoal_plan_free(plan);
    return status;
}

enum shoal_status plan_model_pipelines(struct plan_model *model,
                                       const struct pipeline_request *wanted, const char *timeline,
                                       bool json)
{
    struct pipeline_request request = *wanted;
    struct pipeline_table made;
    request.stage_count = model->options.device_count;
    request.fill = fill;
    request.user = model;
    if (request.microbatch_count == 0)
        request.microbatch_count = 4 * request.stage_count;
    enum shoal_status status = pipeline_table_build(&request, &made);
    if (status == SHOAL_OK && timeline)
        status = pipeline_write_svg(&made, timeline);
    if (status == SHOAL_OK && json) {
        printf(",\n");
        pipeline_print_json(&made, stdout);
    } else if (status == SHOAL_OK) {
        printf("\n  pipelines of %d microbatches\n", request.microbatch_count);
        pipeline_print_text(&made, stdout);
    }
    pipeline_table_release(&made);
    return status;
}
