/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe.c: making and freeing a pipe, its texts and its failure.
 */
#include "pipe/pipe.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "pipe/state.h"

#define WAIT_SLICE_MS 200 /* how often the group above and the deadline are looked at */

/* ---- texts
 * ---------------------------------------------------------------------------------------------- */

const char *pipe_value_text(uint64_t id, char text[PIPE_TEXT_BYTES])
{
    snprintf(text, PIPE_TEXT_BYTES, "value %" PRIu64 " of rank %d", pipe_id_number(id),
             pipe_id_maker(id));
    return text;
}

const char *pipe_task_text(const struct pipe *pipe, enum shoal_pipe_kind kind, int module,
                           int microbatch, char text[PIPE_TEXT_BYTES])
{
    static const char *const kinds[] = {"control", "resume", "backward", "forward", "start"};
    char of[PIPE_TEXT_BYTES / 2 + 32] = "";
    if (module >= 0 && pipe->module_names)
        snprintf(of, sizeof(of), " of module %d '%.79s'", module, pipe->module_names[module]);
    else if (module >= 0)
        snprintf(of, sizeof(of), " of module %d", module);
    snprintf(text, PIPE_TEXT_BYTES, "%s%s, microbatch %d", kinds[kind], of, microbatch);
    return text;
}

const char *pipe_rank_text(const struct pipe *pipe, int rank, char text[PIPE_TEXT_BYTES])
{
    return comm_rank_text(pipe->place.parent, rank, text, PIPE_TEXT_BYTES);
}

/* ---- failure
 * ---------------------------------------------------------------------------------------------- */

static void fail_with(struct pipe *pipe, enum shoal_status status, const char *text)
{
    comm_group_fail(pipe->group, status, text);
    atomic_fetch_add(&pipe->changes, 1);
    base_bell_ring(&pipe->bell);
}

enum shoal_status pipe_fail(struct pipe *pipe, enum shoal_status status, const char *format, ...)
{
    char text[BASE_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fail_with(pipe, status, text);
    return base_error(status, "pipe '%s': %s", pipe->name, text);
}

enum shoal_status pipe_health(struct pipe *pipe)
{
    struct comm_group *parent = pipe->place.parent;
    if (!comm_group_broken(pipe->group)) {
        if (!comm_group_broken(parent))
            return SHOAL_OK;
        enum shoal_status why = comm_group_health(parent);
        fail_with(pipe, why, base_error_text());
    }
    return base_error_context(comm_group_health(pipe->group), "pipe '%s'", pipe->name);
}

void pipe_abort(struct pipe *pipe, const char *reason)
{
    char me[PIPE_TEXT_BYTES], what[PIPE_TEXT_BYTES] = "";
    pthread_mutex_lock(&pipe->lock);
    if (pipe->runs_task) {
        const struct shoal_pipe_task *task = &pipe->current->task;
        pipe_task_text(pipe, task->kind, task->module, task->microbatch, what);
    }
    pthread_mutex_unlock(&pipe->lock);
    pipe_fail(pipe, SHOAL_ERR_ABORTED, "aborted by %s%s%s%s%s",
              pipe_rank_text(pipe, pipe->group->rank, me), what[0] ? " in " : "", what,
              reason ? ": " : "", reason ? reason : "");
    comm_group_tell(pipe->group);
}

/* ---- waiting
 * ---------------------------------------------------------------------------------------------- */

void pipe_changed(struct pipe *pipe)
{
    atomic_fetch_add(&pipe->changes, 1);
}

static void unlock(struct pipe *pipe, bool waits)
{
    bool goes = waits ? pipe->outbox.first != NULL : pipe->outbox.urgent;
    pthread_mutex_unlock(&pipe->lock);
    base_bell_ring(&pipe->bell);
    if (goes)
        pipe_mail_go(pipe, waits);
}

/* By another thread: this one's next task waits for it. */
void pipe_unlock(struct pipe *pipe)
{
    unlock(pipe, false);
}

void pipe_unlock_to_wait(struct pipe *pipe)
{
    unlock(pipe, true);
}

struct wait {
    struct pipe *pipe;
    unsigned seen;
};

static bool has_changed(void *user)
{
    const struct wait *wait = user;
    return atomic_load(&wait->pipe->changes) != wait->seen;
}

bool pipe_wait(struct pipe *pipe, unsigned seen, int64_t deadline_ns)
{
    struct wait wait = {pipe, seen};
    int64_t slice_ns = base_deadline_ns(WAIT_SLICE_MS);
    bool changed = base_wait(&pipe->bell, &pipe->group->world->policy, has_changed, &wait,
                             deadline_ns < slice_ns ? deadline_ns : slice_ns);
    return changed || !comm_interrupted(pipe->group);
}

/* ---- making one
 * ---------------------------------------------------------------------------------------------- */

static enum shoal_status copy_names(struct pipe *pipe, const char *const *names)
{
    size_t bytes = 0;
    if (!names || pipe->module_count == 0)
        return SHOAL_OK;
    for (int i = 0; i < pipe->module_count; i++)
        bytes += strlen(names[i]) + 1;
    TRY(base_alloc(bytes, "a pipe's names", (void **)&pipe->names));
    TRY(BASE_NEW_ARRAY(&pipe->module_names, pipe->module_count, "a pipe's names"));
    char *at = pipe->names;
    for (int i = 0; i < pipe->module_count; i++) {
        pipe->module_names[i] = at;
        at = stpcpy(at, names[i]) + 1;
    }
    return SHOAL_OK;
}

static enum shoal_status take_memory(struct pipe *pipe, const struct shoal_pipe_options *options)
{
    TRY(pipe_mail_make(pipe));
    TRY(BASE_NEW_ARRAY(&pipe->marks, pipe->place.parent->size, "a pipe's ranks"));
    TRY(BASE_NEW_ARRAY(&pipe->answers, pipe->place.parent->size, "a pipe's ranks"));
    if (options->runs) {
        TRY(base_alloc((size_t)pipe->module_count, "a pipe's modules", (void **)&pipe->runs));
        memcpy(pipe->runs, options->runs, (size_t)pipe->module_count);
    }
    return copy_names(pipe, options->module_names);
}

static void set_up(struct pipe *pipe, const struct pipe_place *place,
                   const struct shoal_pipe_options *options)
{
    uint64_t eager_bytes = (uint64_t)base_option_int(OPTION_EAGER_BYTES);
    uint64_t letter_bytes = sizeof(struct pipe_header) + MAIL_BODY_MAX;
    pipe->place = *place;
    pipe->module_count = options->module_count;
    pipe->inline_bytes = eager_bytes < letter_bytes ? eager_bytes : letter_bytes;
    pipe->round = 1;
    pipe->turned_ns = base_now_ns();
    snprintf(pipe->name, sizeof(pipe->name), "%s", options->name ? options->name : "pipe");
    pthread_mutex_init(&pipe->lock, NULL);
    pipe_queue_init(&pipe->queue, options->order, options->active_microbatches,
                    options->kept_microbatches);
}

/* Also of a pipe that is only half made. */
static void release(struct pipe *pipe)
{
    if (pipe->group)
        comm_group_close(pipe->group);
    pipe_mail_release(pipe);
    pipe_table_release(pipe);
    pipe_queue_release(&pipe->queue);
    pthread_mutex_destroy(&pipe->lock);
    base_free(pipe->current);
    base_free(pipe->timeline.runs);
    base_free(pipe->answers);
    base_free(pipe->marks);
    base_free(pipe->runs);
    base_free(pipe->names);
    base_free(pipe->module_names);
    base_free(pipe);
}

/* On all ranks or on none, so they agree about the number. It has no deadlines: a receive for a
 * message that may come waits for as long as the pipe is there. */
static enum shoal_status take_group(struct pipe *pipe)
{
    struct comm_group *parent = pipe->place.parent;
    uint64_t context = comm_split_context(parent, parent->split_number++, 0);
    char name[64];
    snprintf(name, sizeof(name), "%s (pipe)", pipe->name);
    TRY(comm_group_open(parent->world, parent->members, parent->size, name, context, &pipe->group));
    atomic_store(&pipe->group->timeout_ms, -1);
    return SHOAL_OK;
}

enum shoal_status pipe_create(const struct pipe_place *place,
                              const struct shoal_pipe_options *options, struct pipe **out)
{
    struct pipe *pipe = NULL;
    TRY(BASE_NEW(&pipe, "a pipe"));
    set_up(pipe, place, options);
    enum shoal_status status = pipe_compare(pipe, options, take_memory(pipe, options));
    if (status == SHOAL_OK)
        status = pipe_confirm(pipe, take_group(pipe));
    if (status != SHOAL_OK) {
        release(pipe);
        return status;
    }
    pipe_mail_open(pipe);
    *out = pipe;
    return SHOAL_OK;
}

/* ---- freeing it
 * ---------------------------------------------------------------------------------------------- */

/* Others may wait for what will not come. */
static void leave_work(struct pipe *pipe)
{
    char me[PIPE_TEXT_BYTES];
    pthread_mutex_lock(&pipe->lock);
    int tasks = pipe->queue.count;
    uint32_t values = pipe_values_left(pipe, UINT64_MAX, pipe->in_step, NULL, 0);
    pthread_mutex_unlock(&pipe->lock);
    if (tasks > 0 || values > 0)
        pipe_fail(pipe, SHOAL_ERR_ABORTED, "%s freed it with %d tasks and %u values left",
                  pipe_rank_text(pipe, pipe->group->rank, me), tasks, values);
}

static void say_bye(struct pipe *pipe)
{
    pthread_mutex_lock(&pipe->lock);
    for (int i = 0; i < pipe->group->size; i++)
        if (i != pipe->group->rank)
            pipe_post(pipe, i, (struct pipe_header){.type = LETTER_BYE}, NULL, 0);
    pipe_unlock(pipe);
}

/* Until nothing comes and nothing goes any more. A rank that has heard all others may end its
 * process before this one has: what breaks then concerns nobody. */
static void wait_for_byes(struct pipe *pipe)
{
    int64_t deadline_ns = base_deadline_ns(atomic_load(&pipe->place.parent->timeout_ms));
    bool over = false;
    while (!over && pipe_health(pipe) == SHOAL_OK) {
        unsigned seen = atomic_load(&pipe->changes);
        pthread_mutex_lock(&pipe->lock);
        over = pipe->byes == pipe->group->size - 1 && pipe->outbox.out == 0;
        pthread_mutex_unlock(&pipe->lock);
        if (!over && base_now_ns() >= deadline_ns)
            pipe_fail(pipe, SHOAL_ERR_TIMEOUT, "not all ranks have freed it");
        else if (!over)
            pipe_wait(pipe, seen, deadline_ns);
    }
}

/* The caller's last error stays what it was. */
void pipe_free(struct pipe *pipe)
{
    char text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    if (pipe_health(pipe) == SHOAL_OK)
        leave_work(pipe);
    if (pipe_health(pipe) == SHOAL_OK) {
        say_bye(pipe);
        wait_for_byes(pipe);
    }
    pipe_mail_close(pipe);
    release(pipe);
    base_error(SHOAL_OK, "%s", text);
}

/* ---- questions
 * ---------------------------------------------------------------------------------------------- */

struct comm_group *pipe_parent(const struct pipe *pipe)
{
    return pipe->place.parent;
}

int pipe_module_count(const struct pipe *pipe)
{
    return pipe->module_count;
}

void pipe_counters(struct pipe *pipe, struct shoal_pipe_counters *out)
{
    pthread_mutex_lock(&pipe->lock);
    *out = pipe->counted;
    pthread_mutex_unlock(&pipe->lock);
    out->struct_bytes = sizeof(*out);
}

int pipe_timeline(struct pipe *pipe, struct shoal_pipe_run *runs, int capacity)
{
    struct pipe_timeline *timeline = &pipe->timeline;
    pthread_mutex_lock(&pipe->lock);
    int kept = timeline->kept < capacity ? timeline->kept : capacity;
    if (kept > 0)
        memcpy(runs, timeline->runs, sizeof(*runs) * (size_t)kept);
    int count = timeline->count;
    pthread_mutex_unlock(&pipe->lock);
    return count;
}
