/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_ready.c: schedules whose order is not fixed but follows a rule: a stage that has nothing
 * to do looks at what has arrived and takes one of it. So chunks may lie on stages in any way, and
 * a microbatch may come back to a stage. The order depends on the times; what is made here is the
 * one that the given times lead to.
 *
 * simple: forwards, and when all are done, backwards (GPipe, 2019). interleaved: a backward that is
 * ready goes first, because it sets an activation free; a microbatch enters the first chunk only
 * while fewer than `active` are under way.
 */
#include "plan/pipeline_clock.h"
#include "plan/pipeline_orders.h"

static bool take(const struct plan_clock *clock, enum plan_pass pass, int chunk,
                 struct shoal_pipeline_operation *out)
{
    if (chunk < 0)
        return false;
    *out = (struct shoal_pipeline_operation){pass == PLAN_FORWARD ? SHOAL_WORK_FORWARD
                                                                  : SHOAL_WORK_BACKWARD,
                                             clock->begun[pass][chunk], chunk};
    return true;
}

static bool all_forwards_begun(const struct plan_clock *clock, int stage)
{
    const struct plan_pipeline *pipeline = clock->pipeline;
    for (int i = pipeline->first_chunk[stage]; i < pipeline->first_chunk[stage + 1]; i++)
        if (clock->begun[PLAN_FORWARD][pipeline->stage_chunks[i]] < pipeline->microbatch_count)
            return false;
    return true;
}

static bool rule_simple(const struct plan_clock *clock, int stage,
                        struct shoal_pipeline_operation *out)
{
    enum plan_pass pass = all_forwards_begun(clock, stage) ? PLAN_BACKWARD : PLAN_FORWARD;
    return take(clock, pass, plan_clock_earliest(clock, stage, pass, 0), out);
}

/* Asked only of the first chunk's own stage while it is idle, so backwards that began are over. */
static bool is_full(const struct plan_clock *clock)
{
    return clock->begun[PLAN_FORWARD][0] - clock->begun[PLAN_BACKWARD][0] >=
           clock->pipeline->active;
}

static bool rule_interleaved(const struct plan_clock *clock, int stage,
                             struct shoal_pipeline_operation *out)
{
    bool owns_first = clock->pipeline->chunk_stages[0] == stage;
    int from = owns_first && is_full(clock) ? 1 : 0;
    return take(clock, PLAN_BACKWARD, plan_clock_earliest(clock, stage, PLAN_BACKWARD, 0), out) ||
           take(clock, PLAN_FORWARD, plan_clock_earliest(clock, stage, PLAN_FORWARD, from), out);
}

enum shoal_status plan_order_ready(struct plan_pipeline *pipeline,
                                   const struct shoal_pipeline_costs *costs)
{
    bool simple = pipeline->kind == SHOAL_PIPELINE_SIMPLE;
    return plan_clock_run(pipeline, costs, simple ? rule_simple : rule_interleaved, NULL);
}
