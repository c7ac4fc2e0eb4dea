/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c: executes a schedule.
 *
 * Steps that wait for nothing are queued; each step that is done releases those that waited for it.
 * A receive that becomes ready first looks among the early frames, then grants (if its payload is
 * larger than eager); a send goes out when its payload is eager and the window is open, or when it
 * was granted; reduce and copy run at once on this thread, with the data still in cache. The first
 * large message of a pair in an alltoallv is offered too, so that counts which differ are seen; the
 * first one to each server is offered when the operation starts, with data or not yet.
 */
#include "comm/run.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/failure.h"
#include "kernel/kernel.h"

static void drain_queue(struct comm_engine *engine, struct comm_run *run);

static const struct schedule_step *step_of(const struct comm_run *run, uint32_t step)
{
    return &run->plan->schedule->steps[step];
}

static void *span_address(const struct comm_run *run, const struct schedule_span *span)
{
    return run->bases[span->buffer] +
           span->offset * schedule_elem_bytes(span->buffer, run->plan->elem_bytes);
}

static uint64_t span_bytes(const struct comm_run *run, const struct schedule_span *span)
{
    return schedule_span_bytes(*span, run->plan->elem_bytes);
}

static int world_peer(const struct comm_run *run, uint32_t step)
{
    return run->task.group->members[step_of(run, step)->peer];
}

/* What this rank sends to the other one, or expects from it, is known to these two only. */
static bool has_pair_counts(const struct comm_call *call)
{
    return call->kind == COLL_ALLTOALL && call->counts;
}

static uint64_t pair_count(const struct comm_run *run, int rank, enum step_kind kind)
{
    const struct comm_call *call = &run->task.call;
    return (kind == STEP_SEND ? call->counts : call->recv_counts)[rank];
}

static struct wire wire_of(const struct comm_run *run, uint32_t step, enum wire_type type)
{
    const struct comm_signature *signature = &run->task.signature;
    struct wire wire = {.type = (uint8_t)type,
                        .kind = signature->kind,
                        .dtype = signature->dtype,
                        .op = signature->op,
                        .root = signature->root,
                        .context = run->task.group->context,
                        .sequence = run->task.sequence,
                        .count = signature->count,
                        .message = step_of(run, step)->message,
                        .plan = run->plan->hash};
    if (has_pair_counts(&run->task.call))
        wire.pair_count = pair_count(run, step_of(run, step)->peer, step_of(run, step)->kind);
    else {
        wire.reproducible = run->task.group->reproducible;
        wire.version = run->plan->version;
    }
    return wire;
}

static void post_step(struct comm_engine *engine, struct comm_run *run, uint32_t step,
                      const struct wire *wire, const void *payload, uint64_t payload_bytes)
{
    BASE_ASSERT(!run->busy[step]);
    run->busy[step] = true;
    run->frames_out++;
    struct net_frame *frame = &run->frames[step];
    frame->owner = run;
    engine_post(engine, world_peer(run, step), frame, wire, payload, payload_bytes);
}

static void count_step(struct comm_run *run, const struct schedule_step *done)
{
    if (done->kind == STEP_SEND)
        comm_count_sent(run->task.group, done->peer, span_bytes(run, &done->at));
    else if (done->kind == STEP_RECV)
        comm_count_received(run->task.group, done->peer, span_bytes(run, &done->at));
}

static void complete_step(struct comm_engine *engine, struct comm_run *run, uint32_t step)
{
    BASE_ASSERT(run->state[step] != STEP_DONE);
    run->state[step] = STEP_DONE;
    run->steps_left--;
    engine->events++;
    const struct schedule *schedule = run->plan->schedule;
    const struct schedule_step *done = &schedule->steps[step];
    count_step(run, done);
    for (uint32_t i = 0; i < done->after_count; i++) {
        uint32_t next = schedule->edges[done->after_first + i];
        if (--run->wait_left[next] == 0)
            run->queue[run->queue_tail++] = next;
    }
}

/* ---- send steps
 * ---------------------------------------------------------------------------------- */

static void send_data(struct comm_engine *engine, struct comm_run *run, uint32_t step, bool granted)
{
    const struct schedule_step *send = step_of(run, step);
    struct wire wire = wire_of(run, step, WIRE_DATA);
    wire.granted = granted;
    if (!granted)
        engine->peers[world_peer(run, step)].eager_sent[WIRE_CLASS_COLLECTIVE]++;
    run->state[step] = STEP_MOVING;
    post_step(engine, run, step, &wire, span_address(run, &send->at), span_bytes(run, &send->at));
}

static void post_offer(struct comm_engine *engine, struct comm_run *run, uint32_t step)
{
    struct wire wire = wire_of(run, step, WIRE_OFFER);
    post_step(engine, run, step, &wire, NULL, 0);
}

static bool is_server(const struct comm_run *run, int peer)
{
    return peer >= comm_group_rank_count(run->task.group);
}

static void start_send(struct comm_engine *engine, struct comm_run *run, uint32_t step)
{
    const struct schedule_step *send = step_of(run, step);
    int peer = world_peer(run, step);
    bool was_offered = send->message == 0 && is_server(run, send->peer);
    bool eager = !was_offered && span_bytes(run, &send->at) <= engine->options.eager_bytes;
    if (eager && engine_window_open(engine, peer, WIRE_CLASS_COLLECTIVE)) {
        send_data(engine, run, step, false);
        return;
    }
    if (run->granted[step] && !run->busy[step]) {
        send_data(engine, run, step, true);
        return;
    }
    run->state[step] = STEP_POSTED;
    if (eager || (send->message == 0 && has_pair_counts(&run->task.call)))
        post_offer(engine, run, step);
}

/* Servers hear of operations in their order, whichever of them is the first to have data, and
 * before that of the shares by which they are cut. */
static void offer_to_servers(struct comm_engine *engine, struct comm_run *run)
{
    struct comm_group *group = run->task.group;
    const struct comm_plan *plan = run->plan;
    if (plan->kind != COLL_ALLREDUCE)
        return; /* among ranks */
    if (plan->shares && group->told != plan->version) {
        group->told = plan->version;
        engine_tell_shares(engine, group, plan->version, plan->shares);
    }
    for (int peer = comm_group_rank_count(group); peer < group->size; peer++)
        if (plan->send_first[peer] < plan->send_first[peer + 1])
            post_offer(engine, run, plan->send_steps[plan->send_first[peer]]);
}

/* ---- receive steps
 * --------------------------------------------------------------------------------- */

static void send_grant(struct comm_engine *engine, struct comm_run *run, uint32_t step)
{
    if (run->granted[step])
        return;
    run->granted[step] = true;
    struct wire wire = wire_of(run, step, WIRE_GRANT);
    post_step(engine, run, step, &wire, NULL, 0);
}

/* An early payload that is complete goes to its place. */
static void take_early(struct comm_engine *engine, struct comm_run *run, uint32_t step,
                       struct comm_early *early)
{
    const struct schedule_step *receive = step_of(run, step);
    if (early->payload_bytes > 0)
        memcpy(span_address(run, &receive->at), early->slot, early->payload_bytes);
    run->early[step] = NULL;
    engine_slot_free(engine, early->peer, &early->wire);
    early_give_back(engine, early);
    complete_step(engine, run, step);
}

static bool length_fits(struct comm_run *run, uint32_t step, uint64_t payload_bytes)
{
    const struct schedule_step *receive = step_of(run, step);
    uint64_t expected = span_bytes(run, &receive->at);
    if (payload_bytes == expected)
        return true;
    const struct comm_group *group = run->task.group;
    char mine[128], me[160], them[160];
    comm_group_break(
        run->task.group, SHOAL_ERR_MISMATCH,
        "%s #%llu on group '%s': %s sends %llu bytes where %s expects %llu; the "
        "ranks' counts disagree",
        comm_signature_text(&run->task.signature, mine, sizeof(mine)),
        (unsigned long long)run->task.sequence, group->name,
        comm_rank_text(group, receive->peer, them, sizeof(them)), (unsigned long long)payload_bytes,
        comm_rank_text(group, group->rank, me, sizeof(me)), (unsigned long long)expected);
    return false;
}

static void start_recv(struct comm_engine *engine, struct comm_run *run, uint32_t step)
{
    const struct schedule_step *receive = step_of(run, step);
    run->state[step] = STEP_POSTED;
    struct comm_early *early = run->early[step];
    if (early && early->wire.type == WIRE_DATA) {
        if (early->complete)
            take_early(engine, run, step, early);
        else
            run->state[step] = STEP_MOVING;
        return;
    }
    if (early) { /* an offer */
        run->early[step] = NULL;
        early_give_back(engine, early);
    }
    if (early || span_bytes(run, &receive->at) > engine->options.eager_bytes)
        send_grant(engine, run, step);
}

/* ---- local steps
 * ------------------------------------------------------------------------------------ */

#define REDUCE_SOURCES_MAX 1024 /* the most ranks that one reduce may join */

static const struct schedule_span *source_of(const struct comm_run *run,
                                             const struct schedule_step *step, uint32_t i)
{
    return &run->plan->schedule->sources[step->source_first + i];
}

/* What the step's reduction is; `wide` has room for a mark per source. */
static struct kernel_reduce reduction_of(const struct comm_run *run,
                                         const struct schedule_step *step, bool *wide)
{
    const struct comm_call *call = &run->task.call;
    struct kernel_reduce how = {
        .dtype = call->dtype, .op = call->op, .wide_out = step->at.buffer == BUFFER_WIDE};
    for (uint32_t i = 0; i < step->source_count; i++) {
        wide[i] = source_of(run, step, i)->buffer == BUFFER_WIDE;
        if (wide[i])
            how.wide_inputs = wide;
    }
    if (step->final && call->op == SHOAL_AVG)
        how.divisor = (uint32_t)comm_group_rank_count(run->task.group);
    return how;
}

static void start_reduce(struct comm_run *run, const struct schedule_step *step)
{
    const void *inputs[REDUCE_SOURCES_MAX];
    bool wide[REDUCE_SOURCES_MAX];
    BASE_ASSERT(step->source_count <= REDUCE_SOURCES_MAX);
    for (uint32_t i = 0; i < step->source_count; i++)
        inputs[i] = span_address(run, source_of(run, step, i));
    struct kernel_reduce how = reduction_of(run, step, wide);
    kernel_reduce(&how, span_address(run, &step->at), inputs, (int)step->source_count,
                  step->at.count);
}

static void start_copy(struct comm_run *run, const struct schedule_step *step)
{
    const struct schedule_span *from = source_of(run, step, 0);
    void *out = span_address(run, &step->at);
    const void *in = span_address(run, from);
    bool divides = step->final && run->task.call.op == SHOAL_AVG;
    bool converts = (from->buffer == BUFFER_WIDE) != (step->at.buffer == BUFFER_WIDE);
    if (divides || converts)
        start_reduce(run, step);
    else if (out != in)
        memmove(out, in, span_bytes(run, &step->at));
}

static void start_step(struct comm_engine *engine, struct comm_run *run, uint32_t index)
{
    const struct schedule_step *step = step_of(run, index);
    switch (step->kind) {
    case STEP_SEND: start_send(engine, run, index); return;
    case STEP_RECV: start_recv(engine, run, index); return;
    case STEP_REDUCE: start_reduce(run, step); break;
    case STEP_COPY: start_copy(run, step); break;
    }
    complete_step(engine, run, index);
}

/* ---- life of a run
 * --------------------------------------------------------------------------------- */

/* One use of the plan is over; a v form's goes with its last one. */
static void plan_release(struct comm_plan *plan)
{
    int before = atomic_fetch_sub_explicit(&plan->users, 1, memory_order_acq_rel);
    if (plan->is_v && before == 1)
        comm_plan_free(plan);
}

static void run_release(struct comm_run *run)
{
    struct comm_plan *plan = run->plan;
    run->next_idle = plan->idle;
    plan->idle = run;
    plan_release(plan);
}

/* Ends the run when nothing of it is left. */
static void finish_if_done(struct comm_engine *engine, struct comm_run *run)
{
    if (run->steps_left > 0 || run->frames_out > 0)
        return;
    engine_task_end(engine, &run->task, SHOAL_OK);
    run_release(run);
}

static void drain_queue(struct comm_engine *engine, struct comm_run *run)
{
    if (run->starting)
        return;
    run->starting = true;
    while (run->queue_head < run->queue_tail && !comm_group_broken(run->task.group))
        start_step(engine, run, run->queue[run->queue_head++]);
    run->starting = false;
    if (!comm_group_broken(run->task.group))
        finish_if_done(engine, run);
}

static void run_cancel(struct comm_task *task)
{
    struct comm_run *run = task->owner_run;
    struct comm_engine *engine = task->group->engine;
    const struct schedule *schedule = run->plan->schedule;
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        if (schedule->steps[i].kind != STEP_SEND && schedule->steps[i].kind != STEP_RECV)
            continue;
        int peer = world_peer(run, i);
        if (run->busy[i])
            engine_withdraw(engine, engine->peers[peer].endpoint, peer, &run->frames[i]);
        run->busy[i] = false;
        struct comm_arrival *arrival = &engine->peers[peer].arrival;
        if (arrival->kind == ARRIVAL_STEP && arrival->run == run)
            engine_divert(engine, peer);
        if (run->early[i])
            early_drop(engine, run->early[i]);
        run->early[i] = NULL;
    }
    run->frames_out = 0;
    run_release(run);
}

static void run_late(struct comm_task *task, bool *late)
{
    struct comm_run *run = task->owner_run;
    const struct schedule *schedule = run->plan->schedule;
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        const struct schedule_step *step = &schedule->steps[i];
        bool waits = run->state[i] == STEP_POSTED || run->state[i] == STEP_MOVING;
        if (waits && (step->kind == STEP_SEND || step->kind == STEP_RECV))
            late[step->peer] = true;
    }
}

static const struct comm_task_class run_class = {"schedule", NULL, NULL, run_cancel, run_late};

static enum shoal_status take_arrays(struct comm_run *run, const struct comm_plan *plan)
{
    uint32_t steps = plan->schedule->step_count;
    TRY(BASE_NEW_ARRAY(&run->wait_left, steps + 1, "a run's counters"));
    TRY(BASE_NEW_ARRAY(&run->state, steps + 1, "a run's states"));
    TRY(BASE_NEW_ARRAY(&run->granted, steps + 1, "a run's grants"));
    TRY(BASE_NEW_ARRAY(&run->busy, steps + 1, "a run's marks"));
    TRY(BASE_NEW_ARRAY(&run->frames, steps + 1, "a run's frames"));
    TRY(BASE_NEW_ARRAY(&run->early, steps + 1, "a run's early frames"));
    TRY(BASE_NEW_ARRAY(&run->queue, steps + 1, "a run's queue"));
    return base_alloc(plan->scratch_bytes, "a run's scratch", (void **)&run->scratch);
}

static void run_free(struct comm_run *run)
{
    base_free(run->wait_left);
    base_free(run->state);
    base_free(run->granted);
    base_free(run->busy);
    base_free(run->frames);
    base_free(run->early);
    base_free(run->queue);
    base_free(run->scratch);
    base_free(run->scaled);
    base_free(run);
}

void comm_run_free_idle(struct comm_plan *plan)
{
    while (plan->idle) {
        struct comm_run *run = plan->idle;
        plan->idle = run->next_idle;
        run_free(run);
    }
}

static enum shoal_status run_take(struct comm_plan *plan, struct comm_run **out)
{
    struct comm_run *run = plan->idle;
    if (run) {
        plan->idle = run->next_idle;
    } else {
        TRY(BASE_NEW(&run, "a run"));
        enum shoal_status status = take_arrays(run, plan);
        if (status != SHOAL_OK) {
            run_free(run);
            return status;
        }
        run->owner = OWNER_RUN;
        run->plan = plan;
    }
    *out = run;
    return SHOAL_OK;
}

/* PREMUL_SUM: every rank scales its own input first. */
static enum shoal_status scale_input(struct comm_run *run, const struct comm_call *call)
{
    const struct comm_group *group = run->task.group;
    uint64_t count = comm_call_in_count(call, group->rank, group->size);
    uint64_t bytes = count * run->plan->elem_bytes;
    if (bytes > run->scaled_bytes) {
        base_free(run->scaled);
        run->scaled = NULL;
        run->scaled_bytes = 0;
        TRY(base_alloc(bytes, "the scaled input of premul_sum", (void **)&run->scaled));
        run->scaled_bytes = bytes;
    }
    kernel_scale(call->dtype, run->scaled, call->in, call->factor, count);
    run->bases[BUFFER_INPUT] = run->scaled;
    return SHOAL_OK;
}

static void reset(struct comm_run *run)
{
    const struct schedule *schedule = run->plan->schedule;
    for (uint32_t i = 0; i < schedule->step_count; i++)
        run->wait_left[i] = schedule->steps[i].wait_count;
    memset(run->state, STEP_WAITING, schedule->step_count);
    memset(run->granted, 0, schedule->step_count);
    memset(run->busy, 0, schedule->step_count);
    run->steps_left = schedule->step_count;
    run->frames_out = 0;
    run->queue_head = 0;
    run->queue_tail = run->plan->ready_count;
    memcpy(run->queue, run->plan->ready_first, sizeof(uint32_t) * run->plan->ready_count);
}

/* ---- frames
 * ------------------------------------------------------------------------------------------ */

static struct comm_run *active_run(struct comm_group *group, uint64_t sequence)
{
    for (struct comm_task *task = group->first_task; task; task = task->next)
        if (task->class == &run_class && task->sequence == sequence)
            return task->owner_run;
    return NULL;
}

/* Whether a frame's sender called what this rank did; if not, the group is broken. */
static bool agrees(const struct comm_run *run, int rank, const struct wire *wire)
{
    struct comm_signature theirs = engine_signature(wire);
    if (comm_signature_equal(&theirs, &run->task.signature) && wire->plan == run->plan->hash)
        return true;
    engine_mismatch(run->task.group, run->task.sequence, &run->task.signature, rank, &theirs);
    return false;
}

/* A frame of an operation that this rank has not called yet. */
static bool is_early(const struct comm_group *group, const struct wire *wire)
{
    return !group || wire->sequence > group->started;
}

/* `mine`: what this rank sends to that one (a grant came) or expects from it (anything else). */
static void break_by_pair(struct comm_group *group, int rank, const struct wire *wire,
                          uint64_t mine)
{
    bool sends = wire->type == WIRE_GRANT;
    char from[160], to[160];
    comm_group_break(group, SHOAL_ERR_MISMATCH,
                     "%s #%llu on group '%s': %s sends %llu x %s to %s, which expects %llu: their "
                     "counts disagree",
                     comm_kind_name(wire->kind), (unsigned long long)wire->sequence, group->name,
                     comm_rank_text(group, sends ? group->rank : rank, from, sizeof(from)),
                     (unsigned long long)(sends ? mine : wire->pair_count),
                     kernel_dtype_name(wire->dtype),
                     comm_rank_text(group, sends ? rank : group->rank, to, sizeof(to)),
                     (unsigned long long)(sends ? wire->pair_count : mine));
}

/* This rank has ended the operation: it was to get nothing from that one, or has sent all it had
 * without a grant. */
static void break_by_ended_pair(struct comm_group *group, int rank, const struct wire *wire)
{
    char from[160], to[160];
    if (wire->type == WIRE_GRANT)
        comm_group_break(group, SHOAL_ERR_MISMATCH,
                         "%s #%llu on group '%s': %s expects %llu x %s from %s, which sends fewer: "
                         "their counts disagree",
                         comm_kind_name(wire->kind), (unsigned long long)wire->sequence,
                         group->name, comm_rank_text(group, rank, to, sizeof(to)),
                         (unsigned long long)wire->pair_count, kernel_dtype_name(wire->dtype),
                         comm_rank_text(group, group->rank, from, sizeof(from)));
    else
        break_by_pair(group, rank, wire, 0);
}

static bool pair_agrees(const struct comm_run *run, int rank, const struct wire *wire)
{
    if (!has_pair_counts(&run->task.call))
        return true;
    uint64_t mine = pair_count(run, rank, wire->type == WIRE_GRANT ? STEP_SEND : STEP_RECV);
    if (mine != wire->pair_count)
        break_by_pair(run->task.group, rank, wire, mine);
    return mine == wire->pair_count;
}

/* A frame comes for an operation that is not active here any more, or never was. */
static void break_by_rest(struct comm_group *group, int rank, const struct wire *wire)
{
    const struct comm_called *called = engine_called(group, wire->sequence);
    struct comm_signature theirs = engine_signature(wire);
    char what[128], me[160], who[160];
    comm_signature_text(&theirs, what, sizeof(what));
    comm_rank_text(group, group->rank, me, sizeof(me));
    comm_rank_text(group, rank, who, sizeof(who));
    if (!called)
        comm_group_break(group, SHOAL_ERR_MISMATCH,
                         "operation #%llu on group '%s' differs: %s called %s, but %s called "
                         "something else",
                         (unsigned long long)wire->sequence, group->name, who, what, me);
    else if (!engine_agrees(called, wire))
        engine_mismatch(group, wire->sequence, &called->signature, rank, &theirs);
    else if (wire->pair_count > 0)
        break_by_ended_pair(group, rank, wire);
    else
        comm_group_break(group, SHOAL_ERR_MISMATCH,
                         "%s #%llu on group '%s': %s exchanges more with %s than that one expects: "
                         "their counts disagree",
                         what, (unsigned long long)wire->sequence, group->name, who, me);
}

/* The active run that a frame belongs to; NULL, and the group broken, if there is none. */
static struct comm_run *run_for(struct comm_group *group, int peer, const struct wire *wire)
{
    int rank = group->rank_of[peer];
    struct comm_run *run = active_run(group, wire->sequence);
    if (run)
        return agrees(run, rank, wire) ? run : NULL;
    break_by_rest(group, rank, wire);
    return NULL;
}

static bool step_for(struct comm_run *run, int rank, const uint32_t *first, const uint32_t *list,
                     uint32_t message, uint32_t *step)
{
    if (first[rank] + message >= first[rank + 1]) {
        const struct comm_group *group = run->task.group;
        char mine[128], me[160], them[160];
        comm_group_break(run->task.group, SHOAL_ERR_MISMATCH,
                         "%s #%llu on group '%s': %s exchanges more with %s than that one expects "
                         "(message %u): their counts disagree",
                         comm_signature_text(&run->task.signature, mine, sizeof(mine)),
                         (unsigned long long)run->task.sequence, group->name,
                         comm_rank_text(group, rank, them, sizeof(them)),
                         comm_rank_text(group, group->rank, me, sizeof(me)), message);
        return false;
    }
    *step = list[first[rank] + message];
    return true;
}

/* A frame that came before its step is ready waits in the run. */
static void keep_early(struct comm_run *run, uint32_t step, struct comm_early *early)
{
    early->claimed_run = run;
    early->claimed_step = step;
    run->early[step] = early;
}

/* The step that a frame of this run's operation is for; false, and the group broken, if none is. */
static bool step_of_frame(struct comm_run *run, int rank, const struct wire *wire,
                          uint64_t payload_bytes, uint32_t *step)
{
    const struct comm_plan *plan = run->plan;
    if (!pair_agrees(run, rank, wire))
        return false;
    if (wire->type == WIRE_GRANT)
        return step_for(run, rank, plan->send_first, plan->send_steps, wire->message, step);
    return step_for(run, rank, plan->recv_first, plan->recv_steps, wire->message, step) &&
           (wire->type == WIRE_OFFER || length_fits(run, *step, payload_bytes));
}

/* Takes over the frames that came before the operation was called; they must be meant for it. */
static void adopt_early(struct comm_engine *engine, struct comm_run *run)
{
    struct comm_group *group = run->task.group;
    struct comm_early *early;
    uint32_t step;
    while ((early = early_pull(engine, group->context, run->task.sequence))) {
        int rank = group->rank_of[early->peer];
        if (!agrees(run, rank, &early->wire) ||
            !step_of_frame(run, rank, &early->wire, early->payload_bytes, &step)) {
            early_drop(engine, early);
        } else if (early->wire.type == WIRE_GRANT) {
            run->granted[step] = true;
            early_give_back(engine, early);
        } else {
            keep_early(run, step, early);
        }
    }
}

enum shoal_status comm_engine_start_plan(struct comm_engine *engine, struct comm_group *group,
                                         struct comm_plan *plan, const struct comm_call *call,
                                         uint64_t sequence, int64_t deadline_ns,
                                         void (*done)(struct comm_task *, enum shoal_status),
                                         void *owner)
{
    struct comm_run *run = NULL;
    enum shoal_status status = run_take(plan, &run);
    if (status != SHOAL_OK) {
        plan_release(plan);
        return engine_not_started(group, call, sequence, status);
    }
    run->task = (struct comm_task){.class = &run_class,
                                   .group = group,
                                   .call = *call,
                                   .signature = comm_signature_of(call, group->size),
                                   .plan_hash = plan->hash,
                                   .sequence = sequence,
                                   .deadline_ns = deadline_ns,
                                   .done = done,
                                   .owner = owner,
                                   .owner_run = run};
    run->bases[BUFFER_INPUT] = (unsigned char *)call->in;
    run->bases[BUFFER_OUTPUT] = call->out;
    run->bases[BUFFER_SCRATCH] = run->scratch;
    run->bases[BUFFER_WIDE] = run->scratch + plan->wide_at;
    status = call->has_factor ? scale_input(run, call) : SHOAL_OK;
    if (status != SHOAL_OK) {
        run_release(run);
        return engine_not_started(group, call, sequence, status);
    }
    reset(run);
    engine_task_begin(engine, &run->task);
    if (engine->early_count > 0)
        adopt_early(engine, run);
    if (!is_server(run, group->rank))
        offer_to_servers(engine, run);
    drain_queue(engine, run);
    return SHOAL_OK;
}

/* No run takes the frame: it frees its slot, and its payload is thrown away. */
static void *refuse(struct comm_engine *engine, int peer, const struct wire *wire)
{
    engine_slot_free(engine, peer, wire);
    return NULL;
}

void *run_arriving(struct comm_engine *engine, struct comm_group *group, int peer,
                   const struct wire *wire, uint64_t payload_bytes)
{
    struct comm_early *early = NULL;
    if (is_early(group, wire)) {
        early = early_keep(engine, group, peer, wire, payload_bytes);
        if (early)
            early_file(engine, early);
        return early ? early->slot : NULL;
    }
    struct comm_run *run = run_for(group, peer, wire);
    uint32_t step;
    if (!run || !step_of_frame(run, group->rank_of[peer], wire, payload_bytes, &step) ||
        run->early[step] || run->state[step] > STEP_POSTED)
        return refuse(engine, peer, wire);
    if (run->state[step] == STEP_WAITING) {
        early = early_keep(engine, group, peer, wire, payload_bytes);
        if (early)
            keep_early(run, step, early);
        return early ? early->slot : NULL;
    }
    run->state[step] = STEP_MOVING;
    engine_slot_free(engine, peer, wire);
    engine->peers[peer].arrival =
        (struct comm_arrival){.kind = ARRIVAL_STEP, .run = run, .step = step};
    return span_address(run, &step_of(run, step)->at);
}

void run_received_step(struct comm_engine *engine, struct comm_run *run, uint32_t step)
{
    complete_step(engine, run, step);
    drain_queue(engine, run);
}

void run_received_early(struct comm_engine *engine, struct comm_early *early)
{
    early->complete = true;
    struct comm_run *run = early->claimed_run;
    if (!run || run->state[early->claimed_step] != STEP_MOVING)
        return; /* its step takes it when it starts */
    take_early(engine, run, early->claimed_step, early);
    drain_queue(engine, run);
}

void run_control(struct comm_engine *engine, struct comm_group *group, int peer,
                 const struct wire *wire)
{
    struct comm_early *early = NULL;
    if (is_early(group, wire)) {
        early = early_keep(engine, group, peer, wire, 0);
        if (early)
            early_file(engine, early);
        return;
    }
    struct comm_run *run = run_for(group, peer, wire);
    uint32_t step;
    if (!run || !step_of_frame(run, group->rank_of[peer], wire, 0, &step))
        return;
    if (wire->type == WIRE_GRANT) {
        run->granted[step] = true;
        if (run->state[step] == STEP_POSTED && !run->busy[step])
            send_data(engine, run, step, true);
    } else if (run->state[step] == STEP_POSTED) {
        send_grant(engine, run, step);
    } else if (run->state[step] == STEP_WAITING && !run->early[step]) {
        early = early_keep(engine, group, peer, wire, 0);
        if (early)
            keep_early(run, step, early);
    }
}

void run_sent(struct comm_engine *engine, struct net_frame *frame)
{
    struct comm_run *run = frame->owner;
    uint32_t step = (uint32_t)(frame - run->frames);
    run->busy[step] = false;
    run->frames_out--;
    bool is_offer = run->state[step] == STEP_WAITING || run->state[step] == STEP_POSTED;
    if (step_of(run, step)->kind == STEP_SEND && is_offer) {
        if (run->granted[step] &&
            run->state[step] == STEP_POSTED) /* the grant overtook the end of the offer */
            send_data(engine, run, step, true);
        return; /* and the run may be over */
    }
    if (step_of(run, step)->kind == STEP_SEND)
        complete_step(engine, run, step);
    if (!comm_group_broken(run->task.group))
        drain_queue(engine, run);
}
