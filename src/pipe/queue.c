/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.c: tasks on a rank: waiting for needs -> ready -> taken.
 *
 * Ready ones lie in a heap for each kind, by microbatch and then by the order in which they came;
 * an order of the pipe is an order of the kinds, and two of them may be held: a START while as many
 * microbatches as allowed are under way, and, in simple order, a BACKWARD while a microbatch that
 * has not come as far has anything to do here: a FORWARD that came before the first of its
 * BACKWARDs, or a RESUME before that has come. The latter cannot lock up: what it waits for are
 * forwards, which need no backward, and a RESUME that needs one holds nothing once that is here. A
 * START that is held does not count, since its place may be one that only a backward makes free.
 * A FORWARD whose microbatch would be one more than may be kept is held as long as an earlier one
 * is kept. So the earliest that is under way anywhere is held nowhere, and makes room when it is
 * over. With a list the kinds that are in it come in its order and no other, and nothing of them is
 * held.
 */
#include "pipe/queue.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define HEAP_FIRST       16
#define MICROBATCH_FIRST 16

void pipe_queue_init(struct pipe_queue *queue, enum shoal_pipe_order order, int active_max,
                     int kept_max)
{
    memset(queue, 0, sizeof(*queue));
    queue->order = order;
    queue->active_max = active_max;
    queue->kept_max = kept_max;
}

void pipe_queue_release(struct pipe_queue *queue)
{
    for (int kind = 0; kind < SHOAL_PIPE_KIND_COUNT; kind++) {
        for (int i = 0; i < queue->ready[kind].count; i++)
            base_free(queue->ready[kind].tasks[i]);
        base_free(queue->ready[kind].tasks);
    }
    while (queue->first_waiting) {
        struct pipe_task *next = queue->first_waiting->next;
        base_free(queue->first_waiting);
        queue->first_waiting = next;
    }
    base_free(queue->microbatches);
    base_free(queue->list.runs);
}

/* ---- heaps
 * ---------------------------------------------------------------------------------------------- */

static bool goes_before(const struct pipe_task *a, const struct pipe_task *b)
{
    if (a->task.microbatch != b->task.microbatch)
        return a->task.microbatch < b->task.microbatch;
    return a->number < b->number;
}

/* Room for every task of the queue, so that none that waits can find none later. */
static enum shoal_status make_room(struct pipe_heap *heap, int need)
{
    struct pipe_task **more = NULL;
    int capacity = heap->capacity > 0 ? heap->capacity : HEAP_FIRST;
    if (need <= heap->capacity)
        return SHOAL_OK;
    while (capacity < need)
        capacity *= 2;
    TRY(BASE_NEW_ARRAY(&more, capacity, "a pipe's tasks"));
    if (heap->count > 0)
        memcpy(more, heap->tasks, sizeof(*more) * (size_t)heap->count);
    base_free(heap->tasks);
    heap->tasks = more;
    heap->capacity = capacity;
    return SHOAL_OK;
}

/* Puts the task in the place `at`, which is free, or where the order wants it from there. */
static void settle(struct pipe_heap *heap, int at, struct pipe_task *task)
{
    while (at > 0 && goes_before(task, heap->tasks[(at - 1) / 2])) {
        heap->tasks[at] = heap->tasks[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    for (int child = 2 * at + 1; child < heap->count; child = 2 * at + 1) {
        if (child + 1 < heap->count && goes_before(heap->tasks[child + 1], heap->tasks[child]))
            child++;
        if (!goes_before(heap->tasks[child], task))
            break;
        heap->tasks[at] = heap->tasks[child];
        at = child;
    }
    heap->tasks[at] = task;
}

static void push(struct pipe_heap *heap, struct pipe_task *task)
{
    settle(heap, heap->count++, task);
}

static struct pipe_task *remove_at(struct pipe_heap *heap, int at)
{
    struct pipe_task *task = heap->tasks[at], *last = heap->tasks[--heap->count];
    if (task != last)
        settle(heap, at, last);
    return task;
}

/* ---- microbatches
 * ---------------------------------------------------------------------------------------------- */

static enum shoal_status know_microbatch(struct pipe_queue *queue, int microbatch)
{
    struct pipe_microbatch *more = NULL;
    int count = queue->microbatch_count > 0 ? queue->microbatch_count : MICROBATCH_FIRST;
    if (microbatch >= 0 && microbatch < queue->microbatch_count)
        return SHOAL_OK;
    while (count <= microbatch)
        count *= 2;
    TRY(BASE_NEW_ARRAY(&more, count, "a pipe's microbatches"));
    if (queue->microbatch_count > 0)
        memcpy(more, queue->microbatches, sizeof(*more) * (size_t)queue->microbatch_count);
    base_free(queue->microbatches);
    queue->microbatches = more;
    queue->microbatch_count = count;
    return SHOAL_OK;
}

static bool is_before_backward(const struct pipe_microbatch *microbatch)
{
    return microbatch->forwards > 0 || (microbatch->resumes > 0 && !microbatch->backward);
}

/* The task comes (1) or is taken (-1). */
static void note(struct pipe_queue *queue, struct pipe_task *task, int change)
{
    struct pipe_microbatch *microbatch = &queue->microbatches[task->task.microbatch];
    enum shoal_pipe_kind kind = task->task.kind;
    bool before = is_before_backward(microbatch);
    if (kind == SHOAL_PIPE_FORWARD && change > 0)
        task->comes_first = !microbatch->backward;
    if (kind == SHOAL_PIPE_BACKWARD)
        microbatch->backward = true;
    microbatch->forwards += task->comes_first ? change : 0;
    microbatch->resumes += kind == SHOAL_PIPE_RESUME ? change : 0;
    queue->before_backward += is_before_backward(microbatch) - before;
}

static void set_kept(struct pipe_queue *queue, struct pipe_microbatch *microbatch, int kept)
{
    queue->kept += (kept > 0) - (microbatch->kept > 0);
    microbatch->kept = kept;
}

/* The task is taken. */
static void note_kept(struct pipe_queue *queue, const struct shoal_pipe_task *task)
{
    struct pipe_microbatch *microbatch = &queue->microbatches[task->microbatch];
    if (task->kind == SHOAL_PIPE_FORWARD && task->keeps)
        set_kept(queue, microbatch, microbatch->kept + 1);
    else if (task->kind == SHOAL_PIPE_BACKWARD && microbatch->kept > 0)
        set_kept(queue, microbatch, microbatch->kept - 1);
}

void pipe_queue_over(struct pipe_queue *queue, int microbatch)
{
    if (microbatch >= 0 && microbatch < queue->microbatch_count)
        set_kept(queue, &queue->microbatches[microbatch], 0);
}

/* Whether a forward pass of it would be one microbatch too many. */
static bool waits_for_room(const struct pipe_queue *queue, const struct shoal_pipe_task *task)
{
    if (queue->kept_max == 0 || queue->kept < queue->kept_max || !task->keeps ||
        queue->microbatches[task->microbatch].kept > 0)
        return false;
    for (int i = 0; i < task->microbatch; i++)
        if (queue->microbatches[i].kept > 0)
            return true;
    return false;
}

void pipe_queue_end_step(struct pipe_queue *queue)
{
    queue->active = 0;
    queue->kept = 0;
    queue->list.at = 0;
    queue->before_backward = 0;
    for (int i = 0; i < queue->microbatch_count; i++) {
        queue->microbatches[i].backward = false;
        queue->microbatches[i].kept = 0;
        queue->before_backward += is_before_backward(&queue->microbatches[i]);
    }
}

/* ---- tasks
 * ---------------------------------------------------------------------------------------------- */

static void wait_for_needs(struct pipe_queue *queue, struct pipe_task *task)
{
    task->next = NULL;
    task->previous = queue->last_waiting;
    *(task->previous ? &task->previous->next : &queue->first_waiting) = task;
    queue->last_waiting = task;
}

static void wait_no_longer(struct pipe_queue *queue, struct pipe_task *task)
{
    *(task->previous ? &task->previous->next : &queue->first_waiting) = task->next;
    *(task->next ? &task->next->previous : &queue->last_waiting) = task->previous;
}

enum shoal_status pipe_queue_add(struct pipe_queue *queue, struct pipe_task *task)
{
    if (queue->count >= SHOAL_PIPE_TASKS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "there are %d tasks on this rank, as many as it takes",
                          queue->count);
    TRY(make_room(&queue->ready[task->task.kind], queue->count + 1));
    TRY(know_microbatch(queue, task->task.microbatch));
    task->number = ++queue->came;
    queue->count++;
    note(queue, task, 1);
    wait_for_needs(queue, task);
    if (task->missing == 0)
        pipe_queue_ready(queue, task);
    return SHOAL_OK;
}

void pipe_queue_ready(struct pipe_queue *queue, struct pipe_task *task)
{
    wait_no_longer(queue, task);
    push(&queue->ready[task->task.kind], task);
    queue->ready_count++;
}

static bool may_run(const struct pipe_queue *queue, enum shoal_pipe_kind kind, bool in_step)
{
    if (queue->ready[kind].count == 0 || (!in_step && kind != SHOAL_PIPE_CONTROL))
        return false;
    if (kind == SHOAL_PIPE_START)
        return queue->active_max == 0 || queue->active < queue->active_max;
    return kind != SHOAL_PIPE_BACKWARD || queue->order != SHOAL_PIPE_SIMPLE ||
           queue->before_backward == 0;
}

static struct pipe_task *take_at(struct pipe_queue *queue, enum shoal_pipe_kind kind, int at)
{
    struct pipe_task *task = remove_at(&queue->ready[kind], at);
    queue->count--;
    queue->ready_count--;
    queue->active += kind == SHOAL_PIPE_START;
    note(queue, task, -1);
    note_kept(queue, &task->task);
    return task;
}

/* The first of a kind that is not held for want of room; -1: none. */
static int find_first(const struct pipe_queue *queue, enum shoal_pipe_kind kind)
{
    const struct pipe_heap *heap = &queue->ready[kind];
    int found = -1;
    if (kind != SHOAL_PIPE_FORWARD || !waits_for_room(queue, &heap->tasks[0]->task))
        return 0;
    for (int i = 1; i < heap->count; i++)
        if (!waits_for_room(queue, &heap->tasks[i]->task) &&
            (found < 0 || goes_before(heap->tasks[i], heap->tasks[found])))
            found = i;
    return found;
}

/* Of the tasks that are what comes next in the list, the one that came first; -1: none is ready. */
static int find_listed(const struct pipe_queue *queue)
{
    const struct shoal_pipe_run *next = &queue->list.runs[queue->list.at];
    const struct pipe_heap *heap = &queue->ready[next->kind];
    int found = -1;
    for (int i = 0; i < heap->count; i++) {
        const struct pipe_task *task = heap->tasks[i];
        bool is_next =
            task->task.module == next->module && task->task.microbatch == next->microbatch;
        if (is_next && (found < 0 || task->number < heap->tasks[found]->number))
            found = i;
    }
    return found;
}

static struct pipe_task *take_listed(struct pipe_queue *queue)
{
    struct pipe_list *list = &queue->list;
    int at = list->at < list->count ? find_listed(queue) : -1;
    return at < 0 ? NULL : take_at(queue, list->runs[list->at++].kind, at);
}

struct pipe_task *pipe_queue_take(struct pipe_queue *queue, bool in_step)
{
    static const enum shoal_pipe_kind simple[] = {SHOAL_PIPE_CONTROL, SHOAL_PIPE_RESUME,
                                                  SHOAL_PIPE_FORWARD, SHOAL_PIPE_START,
                                                  SHOAL_PIPE_BACKWARD};
    for (int i = 0; i < SHOAL_PIPE_KIND_COUNT; i++) {
        enum shoal_pipe_kind kind =
            queue->order == SHOAL_PIPE_SIMPLE ? simple[i] : (enum shoal_pipe_kind)i;
        if (queue->list.has[kind] || !may_run(queue, kind, in_step))
            continue;
        int at = find_first(queue, kind);
        if (at >= 0)
            return take_at(queue, kind, at);
    }
    return in_step ? take_listed(queue) : NULL;
}

enum shoal_status pipe_queue_set_list(struct pipe_queue *queue, const struct shoal_pipe_run *runs,
                                      int count)
{
    struct pipe_list list = {.count = count};
    if (count > 0) {
        TRY(BASE_NEW_ARRAY(&list.runs, count, "a pipe's list"));
        memcpy(list.runs, runs, sizeof(*runs) * (size_t)count);
    }
    for (int i = 0; i < count; i++)
        list.has[runs[i].kind] = true;
    base_free(queue->list.runs);
    queue->list = list;
    return SHOAL_OK;
}
