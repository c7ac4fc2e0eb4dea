/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task.c: submitting tasks, and taking the next one.
 *
 * Who waits for a task looks five times a second whether one that is here waits too long for a
 * value; a second before that is an error it asks the value's home what it is doing. Where nothing
 * waits here it asks all others, and goes on for as long as they are at work. Time counts from the
 * end of the last task, however often a caller gives up waiting and comes back.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "pipe/state.h"

/* ---- submitting
 * ---------------------------------------------------------------------------------------------- */

/* A task with room for what it points to. */
static enum shoal_status make_task(const struct shoal_pipe_task *from, struct pipe_task **out)
{
    struct pipe_task *task = NULL;
    size_t needs_bytes = sizeof(uint64_t) * (size_t)from->need_count;
    TRY(base_alloc(sizeof(*task) + needs_bytes + from->blob_bytes, "a task", (void **)&task));
    unsigned char *at = (unsigned char *)(task + 1);
    task->task = *from;
    task->task.struct_bytes = sizeof(task->task);
    task->task.needs = (const uint64_t *)at;
    task->task.blob = at + needs_bytes;
    task->came_ns = base_now_ns();
    if (needs_bytes > 0)
        memcpy(at, from->needs, needs_bytes);
    if (from->blob_bytes > 0)
        memcpy(at + needs_bytes, from->blob, from->blob_bytes);
    *out = task;
    return SHOAL_OK;
}

static enum shoal_status check_runs(const struct pipe *pipe, const struct shoal_pipe_task *task)
{
    char what[PIPE_TEXT_BYTES], me[PIPE_TEXT_BYTES], them[PIPE_TEXT_BYTES];
    bool of_module = task->kind == SHOAL_PIPE_FORWARD || task->kind == SHOAL_PIPE_BACKWARD;
    if (!of_module || task->module < 0 || !pipe->runs || pipe->runs[task->module])
        return SHOAL_OK;
    return base_error(SHOAL_ERR_MISMATCH, "%s came to %s, which does not run that module, from %s",
                      pipe_task_text(pipe, task->kind, task->module, task->microbatch, what),
                      pipe_rank_text(pipe, pipe->group->rank, me),
                      pipe_rank_text(pipe, task->rank, them));
}

/* Lock held. Until all its needs are known it has one more that is missing; if one of them can't
 * be, it stays in the queue of a pipe that is broken. */
static enum shoal_status take_in(struct pipe *pipe, const struct shoal_pipe_task *from,
                                 uint64_t step)
{
    struct pipe_task *task = NULL;
    TRY(check_runs(pipe, from));
    TRY(make_task(from, &task));
    task->step = step;
    task->missing = 1;
    enum shoal_status status = pipe_queue_add(&pipe->queue, task);
    if (status != SHOAL_OK) {
        base_free(task);
        return status;
    }
    for (int i = 0; i < from->need_count; i++) {
        struct pipe_value *value = NULL;
        TRY(pipe_value_know(pipe, task->task.needs[i], step, &value));
        TRY(pipe_value_need(value, task));
    }
    if (--task->missing == 0)
        pipe_queue_ready(&pipe->queue, task);
    if ((uint64_t)pipe->queue.count > pipe->counted.tasks_deepest)
        pipe->counted.tasks_deepest = (uint64_t)pipe->queue.count;
    pipe_changed(pipe);
    return SHOAL_OK;
}

enum shoal_status pipe_task_arrives(struct pipe *pipe, int from, const struct pipe_header *header,
                                    const unsigned char *body)
{
    struct shoal_pipe_task task = {.rank = from,
                                   .kind = (enum shoal_pipe_kind)header->kind,
                                   .module = header->module,
                                   .microbatch = header->microbatch,
                                   .needs = (const uint64_t *)body,
                                   .need_count = (int)header->count,
                                   .blob = body + sizeof(uint64_t) * header->count,
                                   .blob_bytes = header->small_bytes,
                                   .keeps = header->way != 0};
    if (header->kind < 0 || header->kind >= SHOAL_PIPE_KIND_COUNT || header->module < -1 ||
        header->module >= pipe->module_count || header->microbatch < 0 ||
        header->microbatch > PIPE_MICROBATCH_MAX)
        return base_error(SHOAL_ERR_FORMAT, "a task can't be understood");
    return take_in(pipe, &task, pipe_step_of(pipe, from));
}

static enum shoal_status check_needs(const struct pipe *pipe, const struct shoal_pipe_task *task)
{
    char what[PIPE_TEXT_BYTES];
    for (int i = 0; i < task->need_count; i++) {
        const struct pipe_value *value = pipe_value_find(pipe, task->needs[i]);
        if (!value || !value->promised)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "task.needs[%d] is %s, which this rank has dropped or not promised",
                              i, pipe_value_text(task->needs[i], what));
    }
    return SHOAL_OK;
}

/* A home that runs the task itself counts the need when the task comes. */
static enum shoal_status route_needs(struct pipe *pipe, const struct shoal_pipe_task *task)
{
    for (int i = 0; i < task->need_count; i++) {
        int home = pipe_id_home(task->needs[i]);
        struct pipe_header header = {
            .type = LETTER_ROUTE, .id = task->needs[i], .count = (uint32_t)task->rank};
        if (home == task->rank)
            continue;
        if (home == pipe->group->rank)
            TRY(pipe_value_route(pipe, pipe_value_find(pipe, task->needs[i]), task->rank));
        else
            pipe_post(pipe, home, header, NULL, 0);
    }
    return SHOAL_OK;
}

/* Lock held. */
static enum shoal_status give(struct pipe *pipe, const struct shoal_pipe_task *task)
{
    TRY(route_needs(pipe, task));
    if (task->rank == pipe->group->rank)
        return take_in(pipe, task, pipe->step);
    struct pipe_header header = {.type = LETTER_TASK,
                                 .kind = (int32_t)task->kind,
                                 .module = task->module,
                                 .microbatch = task->microbatch,
                                 .count = (uint32_t)task->need_count,
                                 .small_bytes = (uint32_t)task->blob_bytes,
                                 .way = task->keeps != 0};
    struct pipe_part parts[] = {{task->needs, sizeof(uint64_t) * (size_t)task->need_count},
                                {task->blob, task->blob_bytes}};
    pipe_post(pipe, task->rank, header, parts, 2);
    return SHOAL_OK;
}

enum shoal_status pipe_submit(struct pipe *pipe, const struct shoal_pipe_task *task)
{
    TRY(pipe_health(pipe));
    pthread_mutex_lock(&pipe->lock);
    enum shoal_status status = check_needs(pipe, task);
    if (status == SHOAL_OK) {
        status = give(pipe, task);
        if (status != SHOAL_OK)
            status = pipe_fail(pipe, status, "%s", base_error_text());
    }
    pipe_unlock(pipe);
    return status;
}

/* ---- taking
 * ---------------------------------------------------------------------------------------------- */

void pipe_task_ends(struct pipe *pipe)
{
    struct pipe_timeline *timeline = &pipe->timeline;
    if (!pipe->runs_task)
        return;
    pipe->turned_ns = base_now_ns();
    if (timeline->kept == timeline->count && timeline->kept > 0 &&
        timeline->runs[timeline->kept - 1].end_ns == 0)
        timeline->runs[timeline->kept - 1].end_ns = pipe->turned_ns;
    pipe->runs_task = false;
}

/* A timeline without memory for more is shorter, and nothing else. */
static bool make_room(struct pipe_timeline *timeline)
{
    struct shoal_pipe_run *more = NULL;
    int capacity = timeline->capacity > 0 ? 2 * timeline->capacity : 256;
    if (timeline->kept < timeline->capacity)
        return true;
    if (timeline->kept < timeline->count || timeline->kept >= PIPE_RUNS_MAX ||
        BASE_NEW_ARRAY(&more, capacity, "a timeline") != SHOAL_OK)
        return false;
    if (timeline->kept > 0)
        memcpy(more, timeline->runs, sizeof(*more) * (size_t)timeline->kept);
    base_free(timeline->runs);
    timeline->runs = more;
    timeline->capacity = capacity;
    return true;
}

static void begin_task(struct pipe *pipe, struct pipe_task *task, struct shoal_pipe_task *out)
{
    struct pipe_timeline *timeline = &pipe->timeline;
    pipe->current = task;
    pipe->runs_task = true;
    pipe->turned_ns = base_now_ns();
    pipe_forget_answers(pipe);
    pipe->counted.tasks[task->task.kind]++;
    for (int i = 0; i < task->task.need_count; i++)
        pipe_value_find(pipe, task->task.needs[i])->given++;
    if (task->task.kind != SHOAL_PIPE_CONTROL) {
        if (make_room(timeline))
            timeline->runs[timeline->kept++] =
                (struct shoal_pipe_run){.begin_ns = pipe->turned_ns,
                                        .kind = task->task.kind,
                                        .module = task->task.module,
                                        .microbatch = task->task.microbatch};
        timeline->count++;
    }
    *out = task->task;
}

/* Of the task that waits longest. */
static uint64_t first_missing(const struct pipe *pipe)
{
    const struct shoal_pipe_task *task = &pipe->queue.first_waiting->task;
    for (int i = 0; i < task->need_count; i++) {
        const struct pipe_value *value = pipe_value_find(pipe, task->needs[i]);
        if (!value->here)
            return task->needs[i];
    }
    return 0;
}

struct pipe_state pipe_doing_now(const struct pipe *pipe)
{
    struct pipe_state state = {.doing = pipe->ending     ? DOING_STEP_END
                                        : !pipe->in_step ? DOING_OUTSIDE
                                                         : DOING_NOTHING};
    const struct pipe_task *task = pipe->runs_task ? pipe->current : pipe->queue.first_waiting;
    if (task) {
        state.kind = task->task.kind;
        state.module = task->task.module;
        state.microbatch = task->task.microbatch;
    }
    if (pipe->runs_task) {
        state.doing = DOING_TASK;
    } else if (task && state.doing == DOING_NOTHING) {
        state.doing = DOING_WAIT;
        state.id = first_missing(pipe);
    }
    state.for_ms = (base_now_ns() - pipe->turned_ns) / BASE_NS_PER_MS;
    return state;
}

static enum shoal_status fail_late(struct pipe *pipe, int64_t timeout_ms)
{
    const struct shoal_pipe_task *task = &pipe->queue.first_waiting->task;
    uint64_t id = first_missing(pipe);
    char what[PIPE_TEXT_BYTES], value[PIPE_TEXT_BYTES], home[PIPE_TEXT_BYTES], me[PIPE_TEXT_BYTES],
        doing[3 * PIPE_TEXT_BYTES];
    return pipe_fail(pipe, SHOAL_ERR_TIMEOUT,
                     "%s waits on %s longer than %lld ms for %s, which %s has not put: %s",
                     pipe_task_text(pipe, task->kind, task->module, task->microbatch, what),
                     pipe_rank_text(pipe, pipe->group->rank, me), (long long)timeout_ms,
                     pipe_value_text(id, value), pipe_rank_text(pipe, pipe_id_home(id), home),
                     pipe_doing_text(pipe, pipe_id_home(id), doing, sizeof(doing)));
}

/* One that is ready, of a kind that is in the list; NULL: none. */
static const struct shoal_pipe_task *find_held_by_list(const struct pipe *pipe)
{
    for (int kind = 0; kind < SHOAL_PIPE_KIND_COUNT; kind++)
        if (pipe->queue.list.has[kind] && pipe->queue.ready[kind].count > 0)
            return &pipe->queue.ready[kind].tasks[0]->task;
    return NULL;
}

static enum shoal_status fail_list(struct pipe *pipe, int64_t timeout_ms)
{
    const struct pipe_list *list = &pipe->queue.list;
    const struct shoal_pipe_run *next = list->at < list->count ? &list->runs[list->at] : NULL;
    const struct shoal_pipe_task *ready = find_held_by_list(pipe);
    char what[PIPE_TEXT_BYTES] = "its end", instead[PIPE_TEXT_BYTES], me[PIPE_TEXT_BYTES];
    if (next)
        pipe_task_text(pipe, next->kind, next->module, next->microbatch, what);
    return pipe_fail(pipe, SHOAL_ERR_TIMEOUT,
                     "the list of %s, at %d of %d, has come to %s, which is not ready after %lld "
                     "ms; ready instead is %s",
                     pipe_rank_text(pipe, pipe->group->rank, me), list->at, list->count, what,
                     (long long)timeout_ms,
                     pipe_task_text(pipe, ready->kind, ready->module, ready->microbatch, instead));
}

/* Nothing may run. Whether that is for a list's sake, and too long. */
static enum shoal_status look_at_list(struct pipe *pipe, int64_t *deadline_ns)
{
    int64_t timeout_ms = atomic_load(&pipe->place.parent->timeout_ms);
    int64_t late_ns = pipe->turned_ns + timeout_ms * BASE_NS_PER_MS;
    if (!pipe->in_step || !find_held_by_list(pipe))
        return SHOAL_OK;
    if (base_now_ns() >= late_ns)
        return fail_list(pipe, timeout_ms);
    if (late_ns < *deadline_ns)
        *deadline_ns = late_ns;
    return SHOAL_OK;
}

/* Nothing is ready. Whether a task here has waited too long; *deadline_ns comes down to when that
 * is to be looked at next. */
static enum shoal_status look_at_waiting(struct pipe *pipe, int64_t *deadline_ns)
{
    const struct pipe_task *task = pipe->queue.first_waiting;
    int64_t timeout_ms = atomic_load(&pipe->place.parent->timeout_ms);
    int64_t early_ms = pipe_ask_early_ms(timeout_ms);
    if (!task)
        return SHOAL_OK;
    int64_t from_ns = task->came_ns > pipe->turned_ns ? task->came_ns : pipe->turned_ns;
    int64_t late_ns = from_ns + timeout_ms * BASE_NS_PER_MS;
    int64_t ask_ns = late_ns - early_ms * BASE_NS_PER_MS;
    int64_t now_ns = base_now_ns();
    if (now_ns >= late_ns)
        return fail_late(pipe, timeout_ms);
    if (now_ns >= ask_ns)
        pipe_ask(pipe, pipe_id_home(first_missing(pipe)));
    int64_t next_ns = now_ns < ask_ns ? ask_ns : late_ns;
    if (next_ns < *deadline_ns)
        *deadline_ns = next_ns;
    return SHOAL_OK;
}

static enum shoal_status fail_idle(struct pipe *pipe, int rank, int64_t timeout_ms)
{
    char me[PIPE_TEXT_BYTES], other[PIPE_TEXT_BYTES], doing[3 * PIPE_TEXT_BYTES];
    return pipe_fail(pipe, SHOAL_ERR_TIMEOUT,
                     "%s has had nothing to run in step %" PRIu64 " for %lld ms, because of %s: %s",
                     pipe_rank_text(pipe, pipe->group->rank, me), pipe->step + 1,
                     (long long)timeout_ms, pipe_rank_text(pipe, rank, other),
                     pipe_doing_text(pipe, rank, doing, sizeof(doing)));
}

/* A rank that does nothing for others: it does not answer, is in no step, or has run one task for
 * nearly the timeout; -1: none. *busy_ms: the longest that any has run its task. */
static int find_still(const struct pipe *pipe, int64_t timeout_ms, int64_t early_ms,
                      int64_t *busy_ms)
{
    int64_t before_ms = timeout_ms - 2 * early_ms; /* it was asked then, or a little later */
    int64_t long_ms = before_ms > timeout_ms / 4 ? before_ms : timeout_ms / 4;
    *busy_ms = 0;
    for (int i = 0; i < pipe->group->size; i++) {
        const struct pipe_answer *answer = &pipe->answers[i];
        const struct pipe_state *state = &answer->state;
        bool runs = answer->came && state->doing == DOING_TASK;
        if (i == pipe->group->rank)
            continue;
        if (!answer->came || state->doing == DOING_OUTSIDE || (runs && state->for_ms >= long_ms))
            return i;
        if (runs && state->for_ms > *busy_ms)
            *busy_ms = state->for_ms;
    }
    return -1;
}

static void ask_all(struct pipe *pipe, int64_t now_ns)
{
    for (int i = 0; i < pipe->group->size; i++)
        pipe_ask(pipe, i);
    pipe->asked_ns = now_ns;
}

/* Nothing may run, and nothing waits for a value. Whether that is because another rank has long
 * stood still; one that is at work is waited for as long as it may work on one task. */
static enum shoal_status look_at_others(struct pipe *pipe, int64_t *deadline_ns)
{
    int64_t timeout_ms = atomic_load(&pipe->place.parent->timeout_ms), busy_ms = 0;
    int64_t early_ms = pipe_ask_early_ms(timeout_ms);
    int64_t early_ns = early_ms * BASE_NS_PER_MS, timeout_ns = timeout_ms * BASE_NS_PER_MS;
    if (!pipe->in_step || pipe->queue.first_waiting || find_held_by_list(pipe))
        return SHOAL_OK;
    int64_t from_ns = pipe->looked_ns > pipe->turned_ns ? pipe->looked_ns : pipe->turned_ns;
    int64_t next_ns = from_ns + timeout_ns - early_ns, now_ns = base_now_ns();
    if (now_ns >= next_ns && pipe->asked_ns == 0)
        ask_all(pipe, now_ns);
    if (pipe->asked_ns > 0)
        next_ns = pipe->asked_ns + early_ns;
    if (now_ns >= next_ns) {
        int other = find_still(pipe, timeout_ms, early_ms, &busy_ms);
        if (other >= 0)
            return fail_idle(pipe, other, timeout_ms);
        pipe_forget_answers(pipe);
        pipe->looked_ns = now_ns - busy_ms * BASE_NS_PER_MS;
        next_ns = pipe->looked_ns + timeout_ns - early_ns;
    }
    if (next_ns < *deadline_ns)
        *deadline_ns = next_ns;
    return SHOAL_OK;
}

/* Lock held, and given back while it waits. */
static enum shoal_status wait_for_task(struct pipe *pipe, int64_t deadline_ns,
                                       struct pipe_task **out)
{
    enum shoal_status status = pipe_health(pipe);
    while (status == SHOAL_OK) {
        int64_t look_ns = deadline_ns;
        *out = pipe_queue_take(&pipe->queue, pipe->in_step);
        if (*out)
            return SHOAL_OK;
        if (deadline_ns != BASE_NO_DEADLINE && base_now_ns() >= deadline_ns)
            return SHOAL_IN_PROGRESS;
        status = look_at_waiting(pipe, &look_ns);
        if (status == SHOAL_OK)
            status = look_at_list(pipe, &look_ns);
        if (status == SHOAL_OK)
            status = look_at_others(pipe, &look_ns);
        if (status != SHOAL_OK)
            return status;
        unsigned seen = atomic_load(&pipe->changes);
        int64_t before_ns = base_now_ns();
        pipe_unlock_to_wait(pipe);
        pipe_wait(pipe, seen, look_ns);
        status = pipe_health(pipe);
        pthread_mutex_lock(&pipe->lock);
        pipe->counted.waited_ns += (uint64_t)(base_now_ns() - before_ns);
    }
    return status;
}

enum shoal_status pipe_next(struct pipe *pipe, int64_t timeout_ms, struct shoal_pipe_task *out)
{
    struct pipe_task *task = NULL;
    int64_t deadline_ns = base_deadline_ns(timeout_ms);
    pthread_mutex_lock(&pipe->lock);
    if (pipe->taking) {
        pthread_mutex_unlock(&pipe->lock);
        return base_error(SHOAL_ERR_STATE, "another thread waits for a task: one at a time");
    }
    pipe->taking = true;
    pipe_task_ends(pipe);
    base_free(pipe->current);
    pipe->current = NULL;
    enum shoal_status status = wait_for_task(pipe, deadline_ns, &task);
    if (task)
        begin_task(pipe, task, out);
    pipe->taking = false;
    pipe_unlock(pipe);
    return status;
}

static void tell_over(struct pipe *pipe, int microbatch)
{
    struct pipe_header header = {.type = LETTER_OVER, .microbatch = microbatch};
    pipe_queue_over(&pipe->queue, microbatch);
    for (int i = 0; i < pipe->group->size; i++)
        if (i != pipe->group->rank)
            pipe_post(pipe, i, header, NULL, 0);
}

enum shoal_status pipe_microbatch_end(struct pipe *pipe)
{
    pthread_mutex_lock(&pipe->lock);
    bool any = pipe->queue.active > 0;
    pipe->queue.active -= any;
    if (any && pipe->runs_task)
        tell_over(pipe, pipe->current->task.microbatch);
    pipe_changed(pipe);
    pipe_unlock(pipe);
    return any ? SHOAL_OK
               : base_error(SHOAL_ERR_STATE, "no microbatch that started here is under way");
}
