/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.c: the beginning and the end of a step, and what other ranks are doing.
 *
 * At the end of a step each rank tells all others twice: a first mark when its program has ended
 * the step, and a second one when it has had all others' first. Behind the first ones all homes
 * have heard what makers dropped, and have passed it on; behind the second ones all routes have
 * heard that. So what is left over then was forgotten by somebody. What already came of the next
 * step carries the number of its sender's step, and is left alone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "pipe/state.h"

/* ---- what ranks are doing
 * ---------------------------------------------------------------------------------------------- */

void pipe_ask(struct pipe *pipe, int rank)
{
    struct pipe_answer *answer = &pipe->answers[rank];
    if (answer->asked == pipe->round)
        return;
    *answer = (struct pipe_answer){.asked = pipe->round};
    if (rank == pipe->group->rank) {
        answer->came = true;
        answer->state = pipe_doing_now(pipe);
    } else {
        pipe_post(pipe, rank, (struct pipe_header){.type = LETTER_ASK}, NULL, 0);
    }
}

void pipe_forget_answers(struct pipe *pipe)
{
    pipe->round++;
    pipe->asked_ns = 0;
}

const char *pipe_doing_text(const struct pipe *pipe, int rank, char *text, size_t text_bytes)
{
    const struct pipe_answer *answer = &pipe->answers[rank];
    const struct pipe_state *state = &answer->state;
    char what[PIPE_TEXT_BYTES], value[PIPE_TEXT_BYTES];
    long long for_ms = (long long)state->for_ms;
    if (!answer->came) {
        snprintf(text, text_bytes, "it does not answer");
        return text;
    }
    pipe_task_text(pipe, state->kind, state->module, state->microbatch, what);
    switch (state->doing) {
    case DOING_TASK: snprintf(text, text_bytes, "it has run %s for %lld ms", what, for_ms); break;
    case DOING_WAIT:
        snprintf(text, text_bytes,
                 "it has nothing to run since %lld ms; its %s waits for %s of "
                 "home %d",
                 for_ms, what, pipe_value_text(state->id, value), pipe_id_home(state->id));
        break;
    case DOING_STEP_END: snprintf(text, text_bytes, "it is at the end of the step"); break;
    case DOING_OUTSIDE:
        snprintf(text, text_bytes, "it is in no step, since %lld ms", for_ms);
        break;
    case DOING_NOTHING:
        snprintf(text, text_bytes, "it has had no task since %lld ms", for_ms);
        break;
    }
    return text;
}

/* ---- steps
 * ---------------------------------------------------------------------------------------------- */

enum shoal_status pipe_step_begin(struct pipe *pipe)
{
    TRY(pipe_health(pipe));
    pthread_mutex_lock(&pipe->lock);
    bool amid = pipe->in_step;
    if (!amid) {
        pipe->in_step = true;
        pipe->timeline.kept = pipe->timeline.count = 0;
        pipe->turned_ns = base_now_ns();
        pipe_forget_answers(pipe);
        pipe_changed(pipe);
    }
    pipe_unlock(pipe);
    return amid ? base_error(SHOAL_ERR_STATE, "a step has begun already: end it first") : SHOAL_OK;
}

/* A rank that has not sent so many marks; -1: none. */
static int find_late(const struct pipe *pipe, uint64_t marks)
{
    for (int i = 0; i < pipe->group->size; i++)
        if (i != pipe->group->rank && pipe->marks[i] < marks)
            return i;
    return -1;
}

static enum shoal_status fail_late(struct pipe *pipe, int late, int64_t timeout_ms)
{
    char who[PIPE_TEXT_BYTES], doing[3 * PIPE_TEXT_BYTES];
    return pipe_fail(pipe, SHOAL_ERR_TIMEOUT,
                     "the end of step %" PRIu64 " took longer than %lld ms: %s has not come to it: "
                     "%s",
                     pipe->step, (long long)timeout_ms, pipe_rank_text(pipe, late, who),
                     pipe_doing_text(pipe, late, doing, sizeof(doing)));
}

/* Lock held, and given back while it waits. Marks that are there count although a rank has left
 * since: it has sent what it owes. */
static enum shoal_status wait_for_marks(struct pipe *pipe, uint64_t marks)
{
    int64_t timeout_ms = atomic_load(&pipe->place.parent->timeout_ms);
    int64_t early_ms = pipe_ask_early_ms(timeout_ms);
    int64_t late_ns = base_deadline_ns(timeout_ms),
            ask_ns = base_deadline_ns(timeout_ms - early_ms);
    for (int late; (late = find_late(pipe, marks)) >= 0;) {
        TRY(pipe_health(pipe));
        int64_t now_ns = base_now_ns();
        if (now_ns >= late_ns)
            return fail_late(pipe, late, timeout_ms);
        if (now_ns >= ask_ns)
            pipe_ask(pipe, late);
        unsigned seen = atomic_load(&pipe->changes);
        pipe_unlock(pipe);
        pipe_wait(pipe, seen, now_ns < ask_ns ? ask_ns : late_ns);
        pthread_mutex_lock(&pipe->lock);
    }
    return SHOAL_OK;
}

/* A task of the step that ends. */
static const struct pipe_task *find_left(const struct pipe *pipe)
{
    for (const struct pipe_task *task = pipe->queue.first_waiting; task; task = task->next)
        if (task->step < pipe->step && task->task.kind != SHOAL_PIPE_CONTROL)
            return task;
    for (int kind = SHOAL_PIPE_CONTROL + 1; kind < SHOAL_PIPE_KIND_COUNT; kind++)
        for (int i = 0; i < pipe->queue.ready[kind].count; i++)
            if (pipe->queue.ready[kind].tasks[i]->step < pipe->step)
                return pipe->queue.ready[kind].tasks[i];
    return NULL;
}

static enum shoal_status check_left(struct pipe *pipe)
{
    char what[PIPE_TEXT_BYTES], me[PIPE_TEXT_BYTES], lack[3 * PIPE_TEXT_BYTES];
    const struct pipe_task *task = find_left(pipe);
    pipe_rank_text(pipe, pipe->group->rank, me);
    if (task)
        return pipe_fail(
            pipe, SHOAL_ERR_STATE,
            "step %" PRIu64 " ends on %s with %d tasks that did not run, such as %s", pipe->step,
            me, pipe->queue.count,
            pipe_task_text(pipe, task->task.kind, task->task.module, task->task.microbatch, what));
    const struct pipe_list *list = &pipe->queue.list;
    if (list->at < list->count)
        return pipe_fail(pipe, SHOAL_ERR_STATE,
                         "step %" PRIu64 " ends on %s at %d of %d of its list: %s did not come",
                         pipe->step, me, list->at, list->count,
                         pipe_task_text(pipe, list->runs[list->at].kind,
                                        list->runs[list->at].module,
                                        list->runs[list->at].microbatch, what));
    uint32_t left = pipe_values_left(pipe, pipe->step, false, lack, sizeof(lack));
    if (left > 0)
        return pipe_fail(pipe, SHOAL_ERR_STATE,
                         "step %" PRIu64 " ends on %s with %u values left over: %s", pipe->step, me,
                         left, lack);
    return SHOAL_OK;
}

static void send_marks(struct pipe *pipe)
{
    for (int i = 0; i < pipe->group->size; i++)
        if (i != pipe->group->rank)
            pipe_post(pipe, i, (struct pipe_header){.type = LETTER_MARK}, NULL, 0);
}

static enum shoal_status end_step(struct pipe *pipe)
{
    pipe->step++;
    send_marks(pipe);
    TRY(wait_for_marks(pipe, 2 * pipe->step - 1));
    send_marks(pipe);
    TRY(wait_for_marks(pipe, 2 * pipe->step));
    return check_left(pipe);
}

enum shoal_status pipe_step_end(struct pipe *pipe)
{
    TRY(pipe_health(pipe));
    pthread_mutex_lock(&pipe->lock);
    if (!pipe->in_step || pipe->ending) {
        pthread_mutex_unlock(&pipe->lock);
        return base_error(SHOAL_ERR_STATE, "no step has begun on this rank");
    }
    pipe_task_ends(pipe);
    pipe->ending = true;
    enum shoal_status status = end_step(pipe);
    pipe->ending = false;
    pipe->in_step = false;
    pipe->turned_ns = base_now_ns();
    pipe->counted.steps += status == SHOAL_OK;
    pipe_queue_end_step(&pipe->queue);
    pipe_unlock(pipe);
    return status;
}

enum shoal_status pipe_list(struct pipe *pipe, const struct shoal_pipe_run *runs, int count)
{
    pthread_mutex_lock(&pipe->lock);
    enum shoal_status status = pipe->in_step
                                   ? base_error(SHOAL_ERR_STATE, "a step has begun: a list is set "
                                                                 "between steps")
                                   : pipe_queue_set_list(&pipe->queue, runs, count);
    pthread_mutex_unlock(&pipe->lock);
    return status;
}
