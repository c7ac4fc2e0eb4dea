/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c: the public face of pipelines: checks arguments and fills in what they leave open. */
#include "plan/pipeline.h"

#include "api/handles.h"
#include "base/memory.h"

static const char *const names[SHOAL_PIPELINE_KIND_COUNT] = {
    [SHOAL_PIPELINE_SIMPLE] = "simple",
    [SHOAL_PIPELINE_INTERLEAVED] = "interleaved",
    [SHOAL_PIPELINE_1F1B] = "1f1b",
    [SHOAL_PIPELINE_INTERLEAVED_1F1B] = "interleaved-1f1b",
    [SHOAL_PIPELINE_ZERO_BUBBLE] = "zero-bubble",
    [SHOAL_PIPELINE_ZERO_BUBBLE_V] = "zero-bubble-v",
};

static bool is_kind(enum shoal_pipeline_kind kind)
{
    return (int)kind >= 0 && kind < SHOAL_PIPELINE_KIND_COUNT;
}

const char *shoal_pipeline_name(enum shoal_pipeline_kind kind)
{
    return is_kind(kind) ? names[kind] : "?";
}

/* ---- options --------------------------------------------------------------------------------- */

/* Whether the order follows a rule, so that chunks may lie anywhere. */
static bool follows_rule(enum shoal_pipeline_kind kind)
{
    return kind == SHOAL_PIPELINE_SIMPLE || kind == SHOAL_PIPELINE_INTERLEAVED;
}

static int default_chunk_count(const struct shoal_pipeline_options *options)
{
    bool several = options->kind == SHOAL_PIPELINE_INTERLEAVED_1F1B ||
                   options->kind == SHOAL_PIPELINE_ZERO_BUBBLE_V;
    return options->stage_count * (several ? 2 : 1);
}

static enum shoal_status check_chunk_count(const struct shoal_pipeline_options *options)
{
    int stages = options->stage_count, chunks = options->chunk_count;
    const char *name = names[options->kind];
    if (chunks < stages || chunks > PLAN_OPERATIONS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.chunk_count is %d: each of the %d stages needs a chunk", chunks,
                          stages);
    if ((options->kind == SHOAL_PIPELINE_1F1B || options->kind == SHOAL_PIPELINE_ZERO_BUBBLE) &&
        chunks != stages)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.chunk_count is %d: %s has one chunk on each of the %d stages",
                          chunks, name, stages);
    if (options->kind == SHOAL_PIPELINE_INTERLEAVED_1F1B && chunks % stages != 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.chunk_count is %d: %s has equally many chunks on each of the %d "
                          "stages",
                          chunks, name, stages);
    if (options->kind == SHOAL_PIPELINE_ZERO_BUBBLE_V && chunks != 2 * stages)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.chunk_count is %d: %s has two chunks on each of the %d stages",
                          chunks, name, stages);
    return SHOAL_OK;
}

/* Each stage has a chunk. */
static enum shoal_status check_placement(const struct shoal_pipeline_options *options, bool *seen)
{
    for (int chunk = 0; chunk < options->chunk_count; chunk++) {
        int stage = options->chunk_stages[chunk];
        if (stage < 0 || stage >= options->stage_count)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "options.chunk_stages[%d] is %d: the stages are 0 to %d", chunk,
                              stage, options->stage_count - 1);
        seen[stage] = true;
    }
    for (int stage = 0; stage < options->stage_count; stage++)
        if (!seen[stage])
            return base_error(SHOAL_ERR_ARGUMENT,
                              "options.chunk_stages leaves stage %d without a chunk", stage);
    return SHOAL_OK;
}

static enum shoal_status check_chunk_stages(const struct shoal_pipeline_options *options)
{
    bool *seen;
    if (!options->chunk_stages)
        return SHOAL_OK;
    if (!follows_rule(options->kind))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.chunk_stages: where the chunks of %s lie is fixed",
                          names[options->kind]);
    TRY(BASE_NEW_ARRAY(&seen, options->stage_count, "a pipeline's stages"));
    enum shoal_status status = check_placement(options, seen);
    base_free(seen);
    return status;
}

static enum shoal_status check_active(const struct shoal_pipeline_options *options)
{
    bool limited =
        options->kind != SHOAL_PIPELINE_SIMPLE && options->kind != SHOAL_PIPELINE_INTERLEAVED_1F1B;
    if (options->active_microbatches < 0 ||
        options->active_microbatches > PLAN_MICROBATCHES_MAX + PLAN_STAGES_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "options.active_microbatches is %d: give 1 to %d",
                          options->active_microbatches, PLAN_MICROBATCHES_MAX + PLAN_STAGES_MAX);
    if (options->active_microbatches && !limited)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.active_microbatches is %d, but %s has no such limit",
                          options->active_microbatches, names[options->kind]);
    return SHOAL_OK;
}

static enum shoal_status check_size(const struct shoal_pipeline_options *options)
{
    int64_t operations = (int64_t)options->chunk_count * options->microbatch_count * 3;
    if (operations > PLAN_OPERATIONS_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "%d chunks and %d microbatches make a pipeline of %lld operations, at "
                          "most %d are allowed",
                          options->chunk_count, options->microbatch_count, (long long)operations,
                          PLAN_OPERATIONS_MAX);
    return SHOAL_OK;
}

static enum shoal_status check_options(const struct shoal_pipeline_options *options)
{
    if (!is_kind(options->kind))
        return base_error(SHOAL_ERR_ARGUMENT, "options.kind %d is none of shoal.h's",
                          (int)options->kind);
    if (options->stage_count < 1 || options->stage_count > PLAN_STAGES_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "options.stage_count is %d: give 1 to %d",
                          options->stage_count, PLAN_STAGES_MAX);
    if (options->microbatch_count < 1 || options->microbatch_count > PLAN_MICROBATCHES_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "options.microbatch_count is %d: give 1 to %d",
                          options->microbatch_count, PLAN_MICROBATCHES_MAX);
    return SHOAL_OK;
}

static enum shoal_status check_chunks(const struct shoal_pipeline_options *options)
{
    TRY(check_chunk_count(options));
    TRY(check_chunk_stages(options));
    TRY(check_active(options));
    return check_size(options);
}

/* ---- costs ----------------------------------------------------------------------------------- */

static enum shoal_status check_times(const char *name, const int64_t *times_ns, int chunk_count)
{
    if (!times_ns)
        return base_error(SHOAL_ERR_ARGUMENT, "costs.%s is NULL", name);
    for (int chunk = 0; chunk < chunk_count; chunk++)
        if (times_ns[chunk] < 0 || times_ns[chunk] > PLAN_TIME_MAX_NS / 2)
            return base_error(SHOAL_ERR_ARGUMENT, "costs.%s[%d] is %lld: give 0 to %lld", name,
                              chunk, (long long)times_ns[chunk], (long long)PLAN_TIME_MAX_NS / 2);
    return SHOAL_OK;
}

static enum shoal_status check_bytes(const char *name, const uint64_t *bytes, int chunk_count)
{
    for (int chunk = 0; bytes && chunk < chunk_count; chunk++)
        if (bytes[chunk] > PLAN_CHUNK_MAX_BYTES)
            return base_error(SHOAL_ERR_ARGUMENT, "costs.%s[%d] is %llu: give 0 to %llu", name,
                              chunk, (unsigned long long)bytes[chunk],
                              (unsigned long long)PLAN_CHUNK_MAX_BYTES);
    return SHOAL_OK;
}

static enum shoal_status check_link(const struct shoal_pipeline_costs *costs, int chunk_count)
{
    if (costs->latency_ns < 0 || costs->latency_ns > PLAN_TIME_MAX_NS / 2)
        return base_error(SHOAL_ERR_ARGUMENT, "costs.latency_ns is %lld: give 0 to %lld",
                          (long long)costs->latency_ns, (long long)PLAN_TIME_MAX_NS / 2);
    if (!(costs->bytes_per_ns >= 0))
        return base_error(SHOAL_ERR_ARGUMENT, "costs.bytes_per_ns is %g: give 0 or more",
                          costs->bytes_per_ns);
    for (int chunk = 0; costs->output_bytes && chunk < chunk_count; chunk++)
        if (costs->bytes_per_ns > 0 && (double)costs->output_bytes[chunk] / costs->bytes_per_ns >
                                           (double)(PLAN_TIME_MAX_NS / 2))
            return base_error(SHOAL_ERR_ARGUMENT,
                              "costs.output_bytes[%d] at costs.bytes_per_ns takes longer than %lld "
                              "ns",
                              chunk, (long long)PLAN_TIME_MAX_NS / 2);
    return SHOAL_OK;
}

static enum shoal_status check_costs(const struct shoal_pipeline_costs *costs, int chunk_count)
{
    if (costs->struct_bytes < sizeof(*costs))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "costs.struct_bytes is %zu, at least %zu expected: start from "
                          "SHOAL_PIPELINE_COSTS_INIT",
                          costs->struct_bytes, sizeof(*costs));
    TRY(check_times("forward_ns", costs->forward_ns, chunk_count));
    TRY(check_times("backward_input_ns", costs->backward_input_ns, chunk_count));
    TRY(check_times("backward_weight_ns", costs->backward_weight_ns, chunk_count));
    TRY(check_bytes("activation_bytes", costs->activation_bytes, chunk_count));
    TRY(check_bytes("output_bytes", costs->output_bytes, chunk_count));
    for (int chunk = 0; costs->weight_input_bytes && chunk < chunk_count; chunk++)
        if (!costs->activation_bytes ||
            costs->weight_input_bytes[chunk] > costs->activation_bytes[chunk])
            return base_error(SHOAL_ERR_ARGUMENT,
                              "costs.weight_input_bytes[%d] is more than the activation", chunk);
    return check_link(costs, chunk_count);
}

/* The given costs, checked, or equal ones. *owned is to be freed in any case. */
static enum shoal_status find_costs(const struct shoal_pipeline_costs *given, int chunk_count,
                                    struct shoal_pipeline_costs *out, int64_t **owned)
{
    *owned = NULL;
    if (given) {
        TRY(check_costs(given, chunk_count));
        *out = *given;
        return SHOAL_OK;
    }
    TRY(BASE_NEW_ARRAY(owned, chunk_count, "a pipeline's costs"));
    for (int chunk = 0; chunk < chunk_count; chunk++)
        (*owned)[chunk] = 1000;
    *out = (struct shoal_pipeline_costs){.struct_bytes = sizeof(*out),
                                         .forward_ns = *owned,
                                         .backward_input_ns = *owned,
                                         .backward_weight_ns = *owned};
    return SHOAL_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static enum shoal_status create(const struct shoal_pipeline_options *options, shoal_pipeline_t *out)
{
    struct plan_pipeline *pipeline = NULL;
    int64_t *owned;
    if (!options || !out)
        return base_error(SHOAL_ERR_ARGUMENT, "%s is NULL", options ? "out" : "options");
    if (options->struct_bytes < sizeof(*options))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.struct_bytes is %zu, at least %zu expected: start from "
                          "SHOAL_PIPELINE_OPTIONS_INIT",
                          options->struct_bytes, sizeof(*options));
    TRY(check_options(options));
    struct shoal_pipeline_options all = *options;
    struct shoal_pipeline_costs costs;
    if (all.chunk_count == 0)
        all.chunk_count = default_chunk_count(options);
    TRY(check_chunks(&all));
    enum shoal_status status = find_costs(options->costs, all.chunk_count, &costs, &owned);
    all.costs = &costs;
    if (status == SHOAL_OK)
        status = plan_pipeline_create(&all, &pipeline);
    base_free(owned);
    if (status == SHOAL_OK)
        *out = (shoal_pipeline_t)pipeline;
    return status;
}

enum shoal_status shoal_pipeline_create(const struct shoal_pipeline_options *options,
                                        shoal_pipeline_t *out)
{
    return api_end(NULL, create(options, out));
}

static struct plan_pipeline *inside(shoal_pipeline_t pipeline)
{
    return (struct plan_pipeline *)pipeline;
}

enum shoal_status shoal_pipeline_free(shoal_pipeline_t pipeline)
{
    plan_pipeline_free(inside(pipeline));
    return SHOAL_OK;
}

int shoal_pipeline_chunk_count(shoal_pipeline_t pipeline)
{
    return pipeline ? inside(pipeline)->chunk_count : -1;
}

int shoal_pipeline_chunk_stage(shoal_pipeline_t pipeline, int chunk)
{
    bool exists = pipeline && chunk >= 0 && chunk < inside(pipeline)->chunk_count;
    return exists ? inside(pipeline)->chunk_stages[chunk] : -1;
}

static bool has_stage(shoal_pipeline_t pipeline, int stage)
{
    return pipeline && stage >= -1 && stage < inside(pipeline)->stage_count;
}

int shoal_pipeline_operation_count(shoal_pipeline_t pipeline, int stage)
{
    if (!has_stage(pipeline, stage))
        return -1;
    const int *first = inside(pipeline)->first;
    return stage < 0 ? first[inside(pipeline)->stage_count] : first[stage + 1] - first[stage];
}

const struct shoal_pipeline_operation *shoal_pipeline_operations(shoal_pipeline_t pipeline,
                                                                 int stage)
{
    if (!has_stage(pipeline, stage))
        return NULL;
    return inside(pipeline)->operations + (stage < 0 ? 0 : inside(pipeline)->first[stage]);
}

static enum shoal_status simulate(shoal_pipeline_t pipeline,
                                  const struct shoal_pipeline_costs *given,
                                  struct shoal_pipeline_result *out,
                                  struct shoal_pipeline_stage *stages,
                                  struct shoal_pipeline_times *times)
{
    struct shoal_pipeline_costs costs;
    struct shoal_pipeline_result result = SHOAL_PIPELINE_RESULT_INIT;
    int64_t *owned;
    if (!pipeline)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "pipeline is NULL: make one with shoal_pipeline_create");
    if (!out || out->struct_bytes < sizeof(*out))
        return api_give(out, &result, sizeof(result), sizeof(result), "SHOAL_PIPELINE_RESULT_INIT");
    enum shoal_status status = find_costs(given, inside(pipeline)->chunk_count, &costs, &owned);
    if (status == SHOAL_OK)
        status = plan_pipeline_simulate(inside(pipeline), &costs, &result, stages, times);
    base_free(owned);
    TRY(status);
    return api_give(out, &result, sizeof(result), sizeof(result), "SHOAL_PIPELINE_RESULT_INIT");
}

enum shoal_status shoal_pipeline_simulate(shoal_pipeline_t pipeline,
                                          const struct shoal_pipeline_costs *costs,
                                          struct shoal_pipeline_result *out,
                                          struct shoal_pipeline_stage *stages,
                                          struct shoal_pipeline_times *times)
{
    return api_end(NULL, simulate(pipeline, costs, out, stages, times));
}
