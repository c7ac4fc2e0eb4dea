/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_zero_bubble.c: backwards in two halves. The gradient of a chunk's input is what the
 * stage before waits for; the gradient of its weights nobody waits for until the step ends, so it
 * goes where a stage would else stand still (Zero bubble pipeline parallelism, 2023; Pipeline
 * parallelism with controllable memory, 2024).
 *
 * Memory is the price: an activation is kept until its weight gradient is done. `active` is how
 * many microbatches' activations a stage may keep.
 *
 * zero-bubble: p stages, one chunk each. With active = p the first stage begins with p forwards, as
 * in 1f1b, and does each weight gradient at once. Stage s has its first input gradient s operations
 * sooner, so it begins with p - s forwards, and puts its weight gradients off by s microbatches: it
 * keeps p activations too, and no stage waits for a weight gradient of a later one. (That is H1.)
 * With more, the first stages begin with more forwards, up to 2(p - s) - 1, with which none waits
 * between its first operation and its last (H2).
 *
 * zero-bubble-v: two chunks each, the second half of the model on the stages in reverse order. So
 * the last chunk lies on the first stage, and input gradients come back to every stage as soon as
 * forwards end there. Its order follows a rule: input gradients, then forwards while there is room,
 * then weight gradients. One place is kept for the second chunk, else a stage full of first chunks
 * would wait forever.
 */
#include "plan/pipeline_clock.h"
#include "plan/pipeline_orders.h"

/* How many forwards come before the first backward. */
static int warm_up(const struct plan_pipeline *pipeline, int stage)
{
    int left = pipeline->stage_count - stage;
    int more = pipeline->active - pipeline->stage_count;
    if (more < 0)
        return left < pipeline->active ? left : pipeline->active;
    return left + (pipeline->stage_count > 1 ? more * (left - 1) / (pipeline->stage_count - 1) : 0);
}

void plan_order_zero_bubble(struct plan_pipeline *pipeline)
{
    int count = pipeline->microbatch_count;
    for (int stage = 0; stage < pipeline->stage_count; stage++) {
        struct shoal_pipeline_operation *out = pipeline->operations + pipeline->first[stage];
        int ahead = warm_up(pipeline, stage), put_off = pipeline->active - ahead;
        int forward = 0, weight = 0;
        for (int backward = 0; backward < count; backward++) {
            for (; forward < backward + ahead && forward < count; forward++)
                *out++ = (struct shoal_pipeline_operation){SHOAL_WORK_FORWARD, forward, stage};
            *out++ = (struct shoal_pipeline_operation){SHOAL_WORK_BACKWARD_INPUT, backward, stage};
            for (; weight + put_off <= backward; weight++)
                *out++ =
                    (struct shoal_pipeline_operation){SHOAL_WORK_BACKWARD_WEIGHT, weight, stage};
        }
        for (; weight < count; weight++)
            *out++ = (struct shoal_pipeline_operation){SHOAL_WORK_BACKWARD_WEIGHT, weight, stage};
    }
}

/* ---- zero-bubble-v --------------------------------------------------------------------------- */

static bool rule_v(const struct plan_clock *clock, int stage, struct shoal_pipeline_operation *out)
{
    static const enum shoal_pipeline_work works[] = {[PLAN_FORWARD] = SHOAL_WORK_FORWARD,
                                                     [PLAN_BACKWARD] = SHOAL_WORK_BACKWARD_INPUT,
                                                     [PLAN_WEIGHT] = SHOAL_WORK_BACKWARD_WEIGHT};
    const struct plan_pipeline *pipeline = clock->pipeline;
    int room = plan_pipeline_held_max(pipeline, stage) - clock->held[stage];
    int from = room > 1 ? 0 : room == 1 ? pipeline->stage_count : pipeline->chunk_count;
    enum plan_pass pass = PLAN_BACKWARD;
    int chunk = plan_clock_earliest(clock, stage, pass, 0);
    if (chunk < 0)
        chunk = plan_clock_earliest(clock, stage, pass = PLAN_FORWARD, from);
    if (chunk < 0)
        chunk = plan_clock_earliest(clock, stage, pass = PLAN_WEIGHT, 0);
    if (chunk < 0)
        return false;
    *out = (struct shoal_pipeline_operation){works[pass], clock->begun[pass][chunk], chunk};
    return true;
}

enum shoal_status plan_order_zero_bubble_v(struct plan_pipeline *pipeline,
                                           const struct shoal_pipeline_costs *costs)
{
    return plan_clock_run(pipeline, costs, rule_v, NULL);
}
