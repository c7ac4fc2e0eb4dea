/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_check.c: proves that an order is right, whatever the times are. First each stage's
 * operations by themselves: they are its own, each stands once, and none is missing. Then all
 * together: stages take operations as long as their inputs are there; if that ends before all are
 * taken, no times could have helped. Last, what each stage keeps, which its own order alone
 * decides.
 */
#include "plan/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define TEXT_BYTES 80

struct check {
    const struct plan_pipeline *pipeline;
    uint8_t *done; /* [chunk][microbatch] bit of each work */
    int *taken;    /* [stage] operations */
};

const char *plan_pipeline_operation_text(const struct shoal_pipeline_operation *operation)
{
    static _Thread_local char texts[2][TEXT_BYTES];
    static _Thread_local int turn;
    static const char *const names[] = {"forward", "backward", "input gradient", "weight gradient"};
    char *text = texts[turn++ % 2];
    unsigned work = (unsigned)operation->work;
    snprintf(text, TEXT_BYTES, "%s of microbatch %d through chunk %d",
             work < 4 ? names[work] : "unknown work", operation->microbatch, operation->chunk);
    return text;
}

/* ---- each stage by itself -------------------------------------------------------------------- */

static bool is_of_stage(const struct plan_pipeline *pipeline, int stage,
                        const struct shoal_pipeline_operation *operation)
{
    return operation->chunk >= 0 && operation->chunk < pipeline->chunk_count &&
           pipeline->chunk_stages[operation->chunk] == stage && operation->microbatch >= 0 &&
           operation->microbatch < pipeline->microbatch_count;
}

static bool is_work_of(const struct plan_pipeline *pipeline, enum shoal_pipeline_work work)
{
    bool half = work == SHOAL_WORK_BACKWARD_INPUT || work == SHOAL_WORK_BACKWARD_WEIGHT;
    return work == SHOAL_WORK_FORWARD || (pipeline->split ? half : work == SHOAL_WORK_BACKWARD);
}

static uint8_t *done_of(const struct check *check, int chunk, int microbatch)
{
    return &check->done[(size_t)chunk * (size_t)check->pipeline->microbatch_count +
                        (size_t)microbatch];
}

static bool is_done(const struct check *check, enum shoal_pipeline_work work, int chunk,
                    int microbatch)
{
    return *done_of(check, chunk, microbatch) >> work & 1;
}

static void set_done(const struct check *check, const struct shoal_pipeline_operation *operation)
{
    *done_of(check, operation->chunk, operation->microbatch) |= (uint8_t)(1u << operation->work);
}

/* A stage has room for as many operations as it needs, so without a repeat none is missing. */
static enum shoal_status check_stage(const struct check *check, int stage)
{
    const struct plan_pipeline *pipeline = check->pipeline;
    for (int i = pipeline->first[stage]; i < pipeline->first[stage + 1]; i++) {
        const struct shoal_pipeline_operation *operation = &pipeline->operations[i];
        if (!is_of_stage(pipeline, stage, operation) || !is_work_of(pipeline, operation->work))
            return base_error(SHOAL_ERR_INTERNAL,
                              "stage %d of a pipeline has the %s, which is not "
                              "its own",
                              stage, plan_pipeline_operation_text(operation));
        if (is_done(check, operation->work, operation->chunk, operation->microbatch))
            return base_error(SHOAL_ERR_INTERNAL, "stage %d of a pipeline has the %s twice", stage,
                              plan_pipeline_operation_text(operation));
        set_done(check, operation);
    }
    return SHOAL_OK;
}

/* ---- together -------------------------------------------------------------------------------- */

/* What an operation waits for that is not done yet; false: nothing. */
static bool awaited(const struct check *check, const struct shoal_pipeline_operation *operation,
                    struct shoal_pipeline_operation *out)
{
    const struct plan_pipeline *pipeline = check->pipeline;
    bool last = operation->chunk + 1 == pipeline->chunk_count;
    *out = *operation;
    switch (operation->work) {
    case SHOAL_WORK_FORWARD:
        out->chunk--;
        return out->chunk >= 0 && !is_done(check, out->work, out->chunk, out->microbatch);
    case SHOAL_WORK_BACKWARD_WEIGHT: out->work = SHOAL_WORK_BACKWARD_INPUT; break;
    default: out->chunk += last ? 0 : 1; out->work = last ? SHOAL_WORK_FORWARD : operation->work;
    }
    return !is_done(check, out->work, out->chunk, out->microbatch);
}

static const struct shoal_pipeline_operation *next_of(const struct check *check, int stage)
{
    int place = check->pipeline->first[stage] + check->taken[stage];
    return place < check->pipeline->first[stage + 1] ? &check->pipeline->operations[place] : NULL;
}

/* Takes what the stage can; whether that was anything. */
static bool advance(struct check *check, int stage)
{
    int before = check->taken[stage];
    const struct shoal_pipeline_operation *next;
    struct shoal_pipeline_operation waits_for;
    while ((next = next_of(check, stage)) && !awaited(check, next, &waits_for)) {
        set_done(check, next);
        check->taken[stage]++;
    }
    return check->taken[stage] > before;
}

static enum shoal_status report_stuck(const struct check *check, int stage)
{
    const struct plan_pipeline *pipeline = check->pipeline;
    const struct shoal_pipeline_operation *next = next_of(check, stage);
    struct shoal_pipeline_operation waits_for;
    awaited(check, next, &waits_for);
    return base_error(SHOAL_ERR_INTERNAL,
                      "stages of a pipeline wait for each other: stage %d has the %s before stage "
                      "%d could do the %s",
                      stage, plan_pipeline_operation_text(next),
                      pipeline->chunk_stages[waits_for.chunk],
                      plan_pipeline_operation_text(&waits_for));
}

/* An operation frees the chunks before and behind it, which lie anywhere: rounds over all stages,
 * in both directions, until nothing moves. */
static enum shoal_status check_together(struct check *check)
{
    int stages = check->pipeline->stage_count;
    bool moved = true;
    while (moved) {
        moved = false;
        for (int stage = 0; stage < stages; stage++)
            moved |= advance(check, stage);
        for (int stage = stages - 1; stage >= 0; stage--)
            moved |= advance(check, stage);
    }
    for (int stage = 0; stage < stages; stage++)
        if (next_of(check, stage))
            return report_stuck(check, stage);
    return SHOAL_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static enum shoal_status check_held(const struct plan_pipeline *pipeline, int stage)
{
    int most = plan_pipeline_held_max(pipeline, stage), held = 0;
    for (int i = pipeline->first[stage]; i < pipeline->first[stage + 1]; i++) {
        const struct shoal_pipeline_operation *operation = &pipeline->operations[i];
        held += operation->work == SHOAL_WORK_FORWARD;
        if (held > most)
            return base_error(SHOAL_ERR_INTERNAL,
                              "stage %d of a pipeline keeps %d activations with the %s, at most %d "
                              "are allowed",
                              stage, held, plan_pipeline_operation_text(operation), most);
        held -=
            operation->work == SHOAL_WORK_BACKWARD || operation->work == SHOAL_WORK_BACKWARD_WEIGHT;
    }
    return SHOAL_OK;
}

/* A microbatch is under way from its first forward to its last backward, both on chunk 0. */
static enum shoal_status check_under_way(const struct plan_pipeline *pipeline)
{
    int stage = pipeline->chunk_stages[0], under_way = 0;
    for (int i = pipeline->first[stage]; i < pipeline->first[stage + 1]; i++) {
        const struct shoal_pipeline_operation *operation = &pipeline->operations[i];
        if (operation->chunk == 0)
            under_way += operation->work == SHOAL_WORK_FORWARD ? 1 : -1;
        if (under_way > pipeline->active)
            return base_error(SHOAL_ERR_INTERNAL,
                              "a pipeline has %d microbatches under way with the %s, at most %d "
                              "are allowed",
                              under_way, plan_pipeline_operation_text(operation), pipeline->active);
    }
    return SHOAL_OK;
}

static enum shoal_status run_checks(struct check *check)
{
    const struct plan_pipeline *pipeline = check->pipeline;
    size_t passes = (size_t)pipeline->chunk_count * (size_t)pipeline->microbatch_count;
    TRY(BASE_NEW_ARRAY(&check->done, passes, "a pipeline's check"));
    TRY(BASE_NEW_ARRAY(&check->taken, pipeline->stage_count, "a pipeline's check"));
    for (int stage = 0; stage < pipeline->stage_count; stage++)
        TRY(check_stage(check, stage));
    memset(check->done, 0, passes);
    TRY(check_together(check));
    for (int stage = 0; stage < pipeline->stage_count; stage++)
        TRY(check_held(pipeline, stage));
    return pipeline->kind == SHOAL_PIPELINE_INTERLEAVED ? check_under_way(pipeline) : SHOAL_OK;
}

enum shoal_status plan_pipeline_check(const struct plan_pipeline *pipeline)
{
    struct check check = {.pipeline = pipeline};
    enum shoal_status status = run_checks(&check);
    base_free(check.done);
    base_free(check.taken);
    return status;
}
