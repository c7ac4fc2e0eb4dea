/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline_simulate.c: how long a pipeline takes, how long its stages stand still, what they keep.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plan/pipeline_clock.h"

/* What a finished operation adds to the bytes that a stage keeps, in two's complement. */
static uint64_t change_of_bytes(const struct shoal_pipeline_costs *costs,
                                const struct shoal_pipeline_operation *operation)
{
    uint64_t all = costs->activation_bytes ? costs->activation_bytes[operation->chunk] : 0;
    uint64_t late = costs->weight_input_bytes ? costs->weight_input_bytes[operation->chunk] : all;
    switch (operation->work) {
    case SHOAL_WORK_FORWARD: return all;
    case SHOAL_WORK_BACKWARD_INPUT: return late - all;
    case SHOAL_WORK_BACKWARD_WEIGHT: return 0 - late;
    default: return 0 - all;
    }
}

static struct shoal_pipeline_stage measure(const struct plan_pipeline *pipeline,
                                           const struct shoal_pipeline_costs *costs, int stage,
                                           const struct shoal_pipeline_times *times)
{
    int first = pipeline->first[stage], end = pipeline->first[stage + 1], held = 0;
    struct shoal_pipeline_stage out = {.start_ns = times[first].start_ns,
                                       .end_ns = times[end - 1].end_ns};
    uint64_t bytes = 0;
    for (int i = first; i < end; i++) {
        enum shoal_pipeline_work work = pipeline->operations[i].work;
        out.busy_ns += times[i].end_ns - times[i].start_ns;
        held += work == SHOAL_WORK_FORWARD;
        bytes += change_of_bytes(costs, &pipeline->operations[i]);
        if (held > out.peak_activations)
            out.peak_activations = held;
        if (bytes > out.peak_bytes)
            out.peak_bytes = bytes;
        held -= work == SHOAL_WORK_BACKWARD || work == SHOAL_WORK_BACKWARD_WEIGHT;
    }
    return out;
}

static void add(struct shoal_pipeline_result *result, const struct shoal_pipeline_stage *stage)
{
    int64_t period_ns = stage->end_ns - stage->start_ns;
    if (stage->end_ns > result->step_ns)
        result->step_ns = stage->end_ns;
    if (period_ns > result->period_ns)
        result->period_ns = period_ns;
    if (stage->peak_activations > result->peak_activations)
        result->peak_activations = stage->peak_activations;
    if (stage->peak_bytes > result->peak_bytes)
        result->peak_bytes = stage->peak_bytes;
}

static void summarize(const struct plan_pipeline *pipeline,
                      const struct shoal_pipeline_costs *costs,
                      const struct shoal_pipeline_times *times, struct shoal_pipeline_result *out,
                      struct shoal_pipeline_stage *stages)
{
    double busy_ns = 0;
    for (int stage = 0; stage < pipeline->stage_count; stage++) {
        struct shoal_pipeline_stage one = measure(pipeline, costs, stage, times);
        busy_ns += (double)one.busy_ns;
        add(out, &one);
        if (stages)
            stages[stage] = one;
    }
    if (out->step_ns > 0)
        out->bubble = 1 - busy_ns / ((double)pipeline->stage_count * (double)out->step_ns);
}

enum shoal_status plan_pipeline_simulate(const struct plan_pipeline *pipeline,
                                         const struct shoal_pipeline_costs *costs,
                                         struct shoal_pipeline_result *out,
                                         struct shoal_pipeline_stage *stages,
                                         struct shoal_pipeline_times *times)
{
    struct shoal_pipeline_times *all = NULL;
    int count = pipeline->first[pipeline->stage_count];
    TRY(BASE_NEW_ARRAY(&all, count, "a pipeline's times"));
    enum shoal_status status = plan_clock_run(pipeline, costs, NULL, all);
    if (status == SHOAL_OK) {
        *out = (struct shoal_pipeline_result){.struct_bytes = sizeof(*out)};
        summarize(pipeline, costs, all, out, stages);
        if (times)
            memcpy(times, all, (size_t)count * sizeof(*all));
    }
    base_free(all);
    return status;
}
