/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_clock.c: events in virtual time. There are three kinds: a stage ends its operation, an
 * output arrives where it is needed, and a stage that waited for its output to be carried is free.
 * All events of a moment are applied before any stage decides, so that what a rule sees does not
 * depend on their order in the queue; among equal times they come in the order in which they were
 * foreseen, so every run gives the same.
 *
 * Between two stages there is one link in each direction, which carries one output at a time, in
 * the order in which they are made; stages compute meanwhile, unless transfers block: then a stage
 * is idle again when its output has been carried. From one chunk to the next on the
 * same stage nothing is carried.
 */
#include "plan/pipeline_clock.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define NO_STAGE (-1)

struct event {
    int64_t time_ns;
    uint32_t sequence;
    int stage;  /* whose operation ends, NO_STAGE: an arrival */
    bool frees; /* it had ended before, and its output has been carried */
    enum plan_pass pass;
    int chunk, microbatch; /* what arrives */
};

struct run {
    struct plan_clock clock;
    plan_rule rule;
    struct shoal_pipeline_times *times; /* may be NULL */
    struct event *events;               /* a heap */
    uint32_t event_count, sequence;
    bool *idle;      /* [stage] */
    int *look;       /* [stage] stages that may have something to do */
    bool *is_looked; /* [stage] is in `look` */
    int look_count;
    int64_t *link_free_ns; /* [from * stages + to] */
};

enum plan_pass plan_pass_of(enum shoal_pipeline_work work)
{
    return work == SHOAL_WORK_FORWARD           ? PLAN_FORWARD
           : work == SHOAL_WORK_BACKWARD_WEIGHT ? PLAN_WEIGHT
                                                : PLAN_BACKWARD;
}

int plan_clock_earliest(const struct plan_clock *clock, int stage, enum plan_pass pass, int from)
{
    const struct plan_pipeline *pipeline = clock->pipeline;
    int best = -1;
    for (int i = pipeline->first_chunk[stage]; i < pipeline->first_chunk[stage + 1]; i++) {
        int chunk = pipeline->stage_chunks[i], microbatch = clock->begun[pass][chunk];
        if (chunk >= from && microbatch < pipeline->microbatch_count &&
            plan_clock_is_ready(clock, pass, chunk, microbatch) &&
            (best < 0 || microbatch <= clock->begun[pass][best]))
            best = chunk;
    }
    return best;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static bool is_sooner(const struct event *a, const struct event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

static void push(struct run *run, struct event event)
{
    uint32_t at = run->event_count++;
    event.sequence = run->sequence++;
    for (; at > 0 && is_sooner(&event, &run->events[(at - 1) / 2]); at = (at - 1) / 2)
        run->events[at] = run->events[(at - 1) / 2];
    run->events[at] = event;
}

static struct event pop(struct run *run)
{
    struct event first = run->events[0], last = run->events[--run->event_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < run->event_count; child = 2 * at + 1) {
        if (child + 1 < run->event_count && is_sooner(&run->events[child + 1], &run->events[child]))
            child++;
        if (!is_sooner(&run->events[child], &last))
            break;
        run->events[at] = run->events[child];
        at = child;
    }
    run->events[at] = last;
    return first;
}

/* ---- what happens ---------------------------------------------------------------------------- */

static void look_at(struct run *run, int stage)
{
    if (run->idle[stage] && !run->is_looked[stage]) {
        run->is_looked[stage] = true;
        run->look[run->look_count++] = stage;
    }
}

static void arrive(struct run *run, enum plan_pass pass, int chunk, int microbatch)
{
    const struct plan_pipeline *pipeline = run->clock.pipeline;
    size_t at = (size_t)chunk * (size_t)pipeline->microbatch_count + (size_t)microbatch;
    run->clock.ready[at] |= (uint8_t)(1u << pass);
    look_at(run, pipeline->chunk_stages[chunk]);
}

static void set_idle(struct run *run, int stage)
{
    run->idle[stage] = true;
    look_at(run, stage);
}

/* The output of chunk `from`, or the gradient of its input, goes to the next chunk `to`. */
static void carry(struct run *run, enum plan_pass pass, int from, int to, int microbatch)
{
    const struct plan_pipeline *pipeline = run->clock.pipeline;
    const struct shoal_pipeline_costs *costs = run->clock.costs;
    int source = pipeline->chunk_stages[from], target = pipeline->chunk_stages[to];
    if (source == target) {
        arrive(run, pass, to, microbatch);
        set_idle(run, source);
        return;
    }
    int64_t *free_ns =
        &run->link_free_ns[(size_t)source * (size_t)pipeline->stage_count + (size_t)target];
    uint64_t bytes = costs->output_bytes ? costs->output_bytes[from < to ? from : to] : 0;
    int64_t begin_ns = *free_ns > run->clock.now_ns ? *free_ns : run->clock.now_ns;
    *free_ns = begin_ns;
    if (costs->bytes_per_ns > 0)
        *free_ns += (int64_t)ceil((double)bytes / costs->bytes_per_ns);
    push(run, (struct event){.time_ns = *free_ns + costs->latency_ns,
                             .stage = NO_STAGE,
                             .pass = pass,
                             .chunk = to,
                             .microbatch = microbatch});
    if (costs->transfers_block)
        push(run, (struct event){.time_ns = *free_ns, .stage = source, .frees = true});
    else
        set_idle(run, source);
}

static void finish(struct run *run, int stage)
{
    struct plan_clock *clock = &run->clock;
    const struct plan_pipeline *pipeline = clock->pipeline;
    const struct shoal_pipeline_operation *done =
        &pipeline->operations[pipeline->first[stage] + clock->taken[stage] - 1];
    int chunk = done->chunk, microbatch = done->microbatch;
    if (done->work == SHOAL_WORK_FORWARD && chunk + 1 < pipeline->chunk_count)
        carry(run, PLAN_FORWARD, chunk, chunk + 1, microbatch);
    else if (done->work != SHOAL_WORK_FORWARD && done->work != SHOAL_WORK_BACKWARD_WEIGHT &&
             chunk > 0)
        carry(run, PLAN_BACKWARD, chunk, chunk - 1, microbatch);
    else
        set_idle(run, stage);
    if (done->work == SHOAL_WORK_FORWARD && chunk + 1 == pipeline->chunk_count)
        arrive(run, PLAN_BACKWARD, chunk, microbatch);
    if (done->work == SHOAL_WORK_BACKWARD_INPUT)
        arrive(run, PLAN_WEIGHT, chunk, microbatch);
    if (done->work == SHOAL_WORK_BACKWARD || done->work == SHOAL_WORK_BACKWARD_WEIGHT)
        clock->held[stage]--;
}

static int64_t duration_ns(const struct shoal_pipeline_costs *costs,
                           const struct shoal_pipeline_operation *operation)
{
    int64_t input_ns = costs->backward_input_ns[operation->chunk];
    int64_t weight_ns = costs->backward_weight_ns[operation->chunk];
    switch (operation->work) {
    case SHOAL_WORK_FORWARD: return costs->forward_ns[operation->chunk];
    case SHOAL_WORK_BACKWARD_INPUT: return input_ns;
    case SHOAL_WORK_BACKWARD_WEIGHT: return weight_ns;
    default: return input_ns + weight_ns;
    }
}

/* The next one of the order that exists, if its input is there. */
static bool rule_of_order(const struct plan_clock *clock, int stage,
                          struct shoal_pipeline_operation *out)
{
    const struct plan_pipeline *pipeline = clock->pipeline;
    *out = pipeline->operations[pipeline->first[stage] + clock->taken[stage]];
    return plan_clock_is_ready(clock, plan_pass_of(out->work), out->chunk, out->microbatch);
}

static void begin(struct run *run, int stage)
{
    struct plan_clock *clock = &run->clock;
    const struct plan_pipeline *pipeline = clock->pipeline;
    struct shoal_pipeline_operation operation;
    int place = pipeline->first[stage] + clock->taken[stage];
    if (place == pipeline->first[stage + 1] || !run->rule(clock, stage, &operation))
        return;
    if (run->rule != rule_of_order)
        pipeline->operations[place] = operation;
    clock->taken[stage]++;
    clock->begun[plan_pass_of(operation.work)][operation.chunk]++;
    clock->held[stage] += operation.work == SHOAL_WORK_FORWARD;
    run->idle[stage] = false;
    int64_t end_ns = clock->now_ns + duration_ns(clock->costs, &operation);
    if (run->times)
        run->times[place] = (struct shoal_pipeline_times){clock->now_ns, end_ns};
    push(run, (struct event){.time_ns = end_ns, .stage = stage});
}

static void decide(struct run *run)
{
    for (int i = 0; i < run->look_count; i++) {
        run->is_looked[run->look[i]] = false;
        begin(run, run->look[i]);
    }
    run->look_count = 0;
}

static void apply(struct run *run, const struct event *event)
{
    if (event->stage == NO_STAGE)
        arrive(run, event->pass, event->chunk, event->microbatch);
    else if (event->frees)
        set_idle(run, event->stage);
    else
        finish(run, event->stage);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void release(struct run *run)
{
    base_free(run->clock.ready);
    for (int pass = 0; pass < PLAN_PASS_COUNT; pass++)
        base_free(run->clock.begun[pass]);
    base_free(run->clock.taken);
    base_free(run->clock.held);
    base_free(run->events);
    base_free(run->idle);
    base_free(run->look);
    base_free(run->is_looked);
    base_free(run->link_free_ns);
}

static enum shoal_status allocate(struct run *run)
{
    const struct plan_pipeline *pipeline = run->clock.pipeline;
    int stages = pipeline->stage_count, chunks = pipeline->chunk_count;
    size_t passes = (size_t)chunks * (size_t)pipeline->microbatch_count;
    const char *what = "a pipeline in virtual time";
    TRY(BASE_NEW_ARRAY(&run->clock.ready, passes, what));
    for (int pass = 0; pass < PLAN_PASS_COUNT; pass++)
        TRY(BASE_NEW_ARRAY(&run->clock.begun[pass], chunks, what));
    TRY(BASE_NEW_ARRAY(&run->clock.taken, stages, what));
    TRY(BASE_NEW_ARRAY(&run->clock.held, stages, what));
    /* At a time, each stage has an end ahead, and each pass at most one arrival. */
    TRY(BASE_NEW_ARRAY(&run->events, (size_t)stages + passes, what));
    TRY(BASE_NEW_ARRAY(&run->idle, stages, what));
    TRY(BASE_NEW_ARRAY(&run->look, stages, what));
    TRY(BASE_NEW_ARRAY(&run->is_looked, stages, what));
    return BASE_NEW_ARRAY(&run->link_free_ns, (size_t)stages * (size_t)stages, what);
}

static void start(struct run *run)
{
    const struct plan_pipeline *pipeline = run->clock.pipeline;
    memset(run->idle, true, (size_t)pipeline->stage_count * sizeof(*run->idle));
    for (int microbatch = 0; microbatch < pipeline->microbatch_count; microbatch++)
        arrive(run, PLAN_FORWARD, 0, microbatch);
    decide(run);
}

static enum shoal_status check_all_done(const struct run *run)
{
    const struct plan_pipeline *pipeline = run->clock.pipeline;
    for (int stage = 0; stage < pipeline->stage_count; stage++) {
        int count = pipeline->first[stage + 1] - pipeline->first[stage];
        if (run->clock.taken[stage] < count)
            return base_error(SHOAL_ERR_INTERNAL,
                              "stage %d of a pipeline waits forever, after %d of its %d operations",
                              stage, run->clock.taken[stage], count);
    }
    return SHOAL_OK;
}

enum shoal_status plan_clock_run(const struct plan_pipeline *pipeline,
                                 const struct shoal_pipeline_costs *costs, plan_rule rule,
                                 struct shoal_pipeline_times *times)
{
    struct run run = {.clock = {.pipeline = pipeline, .costs = costs},
                      .rule = rule ? rule : rule_of_order,
                      .times = times};
    enum shoal_status status = allocate(&run);
    if (status == SHOAL_OK) {
        start(&run);
        while (run.event_count > 0) {
            run.clock.now_ns = run.events[0].time_ns;
            while (run.event_count > 0 && run.events[0].time_ns == run.clock.now_ns) {
                struct event event = pop(&run);
                apply(&run, &event);
            }
            decide(&run);
        }
        status = check_all_done(&run);
    }
    release(&run);
    return status;
}
