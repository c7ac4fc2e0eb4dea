/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c: from a call to its end: the door, the sequence number, blocking and non-blocking ways,
 * and requests.
 *
 * A blocking call runs on its caller's thread when nothing of its group is in flight and, if it
 * needs the engine, when the token is free. Everything else becomes a request in the world's queue.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "comm/steer.h"
#include "kernel/kernel.h"

/* ---- the door
 * ------------------------------------------------------------------------------------------------
 */

#define DOOR_YIELDS 64

void comm_door_take(struct comm_group *group)
{
    for (int tries = 0;; tries++) {
        int open = 0;
        if (atomic_compare_exchange_weak_explicit(&group->door, &open, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        if (tries < DOOR_YIELDS)
            sched_yield();
        else
            usleep(50);
    }
}

void comm_door_leave(struct comm_group *group)
{
    atomic_store_explicit(&group->door, 0, memory_order_release);
}

static uint64_t next_sequence(struct comm_group *group, const struct comm_call *call)
{
    return call->kind >= COLL_SEND ? ++group->send_sequence : ++group->sequence;
}

/* ---- requests
 * ---------------------------------------------------------------------------------------------------
 */

static enum shoal_status request_take(struct comm_group *group, struct comm_request **out)
{
    struct comm_request *request = group->idle_requests;
    if (request)
        group->idle_requests = request->next;
    else
        TRY(BASE_NEW(&request, "a request"));
    uint64_t *arrays = request->arrays;
    size_t array_count = request->array_count;
    memset(request, 0, offsetof(struct comm_request, local_task));
    request->group = group;
    request->arrays = arrays;
    request->array_count = array_count;
    group->requests_out++;
    *out = request;
    return SHOAL_OK;
}

void comm_request_put(struct comm_request *request)
{
    struct comm_group *group = request->group;
    atomic_store_explicit(&request->state, REQUEST_IDLE, memory_order_relaxed);
    request->next = group->idle_requests;
    group->idle_requests = request;
    group->requests_out--;
}

static void dispose(struct comm_group *group)
{
    while (group->idle_requests) {
        struct comm_request *request = group->idle_requests;
        group->idle_requests = request->next;
        base_free(request->arrays);
        base_free(request);
    }
    comm_group_dispose(group);
}

void comm_request_end_group(struct comm_group *group)
{
    comm_door_take(group);
    group->closed = true;
    bool last = group->requests_out == 0;
    comm_door_leave(group);
    if (last)
        dispose(group);
}

static void request_give_back(struct comm_request *request)
{
    struct comm_group *group = request->group;
    comm_door_take(group);
    comm_request_put(request);
    bool last = group->closed && group->requests_out == 0;
    comm_door_leave(group);
    if (last)
        dispose(group);
}

/* The caller's arrays of a v form may go when the call returns. */
static enum shoal_status copy_arrays(struct comm_request *request, int size)
{
    struct comm_call *call = &request->call;
    const uint64_t **arrays[] = {&call->counts, &call->displs, &call->recv_counts,
                                 &call->recv_displs};
    if (!call->counts)
        return SHOAL_OK;
    size_t need = 4 * (size_t)size;
    if (request->array_count < need) {
        base_free(request->arrays);
        request->array_count = 0;
        TRY(BASE_NEW_ARRAY(&request->arrays, need, "a request's counts"));
        request->array_count = need;
    }
    for (int i = 0; i < 4; i++) {
        if (!*arrays[i])
            continue;
        uint64_t *copy = request->arrays + (size_t)i * (size_t)size;
        memcpy(copy, *arrays[i], sizeof(uint64_t) * (size_t)size);
        *arrays[i] = copy;
    }
    return SHOAL_OK;
}

void comm_request_done(struct comm_task *task, enum shoal_status status)
{
    struct comm_request *request = task->owner;
    struct comm_group *group = request->group;
    request->status = status;
    int none = 0;
    bool has_callback =
        !atomic_compare_exchange_strong(&request->callback_state, &none, 2) && none == 1;
    if (has_callback)
        request->callback(request->callback_user, status);
    atomic_fetch_sub_explicit(&group->pending, 1, memory_order_release);
    atomic_store_explicit(&request->state, REQUEST_DONE, memory_order_release);
    base_bell_ring(&request->bell);
    atomic_store_explicit(&request->state, REQUEST_LEFT_ALONE, memory_order_release);
}

enum shoal_status comm_request_on_done(struct comm_request *request,
                                       void (*callback)(void *user, enum shoal_status status),
                                       void *user)
{
    if (atomic_exchange(&request->has_callback, true))
        return base_error(SHOAL_ERR_STATE, "a request takes one callback, and this one has it");
    request->callback = callback;
    request->callback_user = user;
    int none = 0;
    if (!atomic_compare_exchange_strong(&request->callback_state, &none, 1))
        callback(user, request->status); /* it was done before */
    return SHOAL_OK;
}

static bool request_is_done(void *user)
{
    const struct comm_request *request = user;
    return atomic_load_explicit(&request->state, memory_order_acquire) != REQUEST_PENDING;
}

static enum shoal_status request_result(struct comm_request **handle)
{
    struct comm_request *request = *handle;
    while (atomic_load_explicit(&request->state, memory_order_acquire) != REQUEST_LEFT_ALONE)
        sched_yield(); /* the other thread is between its last two stores */
    enum shoal_status status = request->status;
    *handle = NULL;
    if (status != SHOAL_OK)
        status = comm_group_health(request->group);
    request_give_back(request);
    return status;
}

enum shoal_status comm_request_test(struct comm_request **request)
{
    return request_is_done(*request) ? request_result(request) : SHOAL_IN_PROGRESS;
}

#define WAIT_SLICE_MS 200 /* the engine keeps deadlines; this only bounds one sleep */

enum shoal_status comm_request_wait(struct comm_request **handle, int64_t timeout_ms)
{
    struct comm_request *request = *handle;
    struct comm_group *group = request->group;
    int64_t deadline_ns = base_deadline_ns(timeout_ms);
    bool interrupted = false;
    while (!request_is_done(request)) {
        int64_t slice_ns = base_deadline_ns(WAIT_SLICE_MS);
        bool last = deadline_ns <= slice_ns;
        uint64_t slept = base_wait_sleeps();
        bool done = base_wait(&request->bell, &group->world->policy, request_is_done, request,
                              last ? deadline_ns : slice_ns);
        comm_count_sleeps(&group->counters, base_wait_sleeps() - slept);
        if (!done && !interrupted)
            interrupted = comm_interrupted(group);
        if (!done && last && !interrupted)
            return base_error(
                SHOAL_ERR_TIMEOUT, "%s #%llu on group '%s' is not done after %lld ms; it goes on",
                comm_kind_name(request->call.kind), (unsigned long long)request->sequence,
                group->name, (long long)timeout_ms);
    }
    if (!interrupted)
        return request_result(handle);
    enum shoal_status why = comm_group_health(group);
    request_result(handle);
    return why;
}

/* ---- submission
 * ----------------------------------------------------------------------------------------------------
 */

/* A plan that will not be run after all. One of a v form is in no cache. */
static void drop_plan(struct comm_plan *plan)
{
    if (plan && atomic_fetch_sub(&plan->users, 1) == 1 && plan->is_v)
        comm_plan_free(plan);
}

/* Up to here a non-blocking operation is begun on its caller's thread: peers then find its data
 * before the progress thread gets a core, and whoever comes last ends it at once. */
#define START_HERE_BYTES 65536

static bool is_small(const struct comm_group *group, const struct comm_call *call)
{
    uint64_t in = comm_call_in_count(call, group->rank, group->size);
    uint64_t out = comm_call_out_count(call, group->rank, group->size);
    uint64_t limit = START_HERE_BYTES / kernel_dtype_bytes(call->dtype);
    return in <= limit && out <= limit;
}

enum shoal_status comm_request_begin(struct comm_group *group, const struct comm_path *path,
                                     const struct comm_call *call, struct comm_plan *plan,
                                     struct comm_request **out)
{
    struct comm_request *request = NULL;
    enum shoal_status status = request_take(group, &request);
    if (status != SHOAL_OK) {
        drop_plan(plan);
        return status;
    }
    request->path = path;
    request->call = *call;
    request->plan = plan;
    status = copy_arrays(request, group->size);
    if (status != SHOAL_OK) {
        drop_plan(plan);
        comm_request_put(request);
        return status;
    }
    request->deadline_ns = base_deadline_ns(atomic_load(&group->timeout_ms));
    request->sequence = next_sequence(group, call);
    atomic_fetch_add(&group->pending, 1);
    *out = request;
    return SHOAL_OK;
}

/* Door held. Whether the call may run on this thread; the token is taken if it needs it. */
static bool may_run_here(struct comm_group *group, const struct comm_path *path)
{
    if (atomic_load_explicit(&group->pending, memory_order_acquire) > 0)
        return false;
    return !path->uses_engine || pthread_mutex_trylock(&group->world->token) == 0;
}

static enum shoal_status run_here(struct comm_group *group, const struct comm_path *path,
                                  const struct comm_call *call, struct comm_plan *plan)
{
    uint64_t sequence = next_sequence(group, call);
    comm_count(&group->counters.operations, 1);
    enum shoal_status status = path->run(group, call, plan, sequence);
    if (status != SHOAL_OK) /* its number is used up: the others can't wait for it */
        comm_group_break(group, status, "%s", base_error_text());
    if (path->uses_engine)
        comm_progress_release(group->world);
    return status;
}

enum shoal_status comm_plan_take(struct comm_group *group, const struct comm_call *call,
                                 comm_make_plan *make, struct comm_plan **out)
{
    struct comm_plan *plan = comm_plan_find(group, call);
    if (!plan) {
        TRY(make(group, call, &plan));
        plan->version = comm_steer_version(group, call);
        if (!plan->is_v)
            comm_plan_keep(group, plan);
    }
    atomic_fetch_add(&plan->users, 1);
    *out = plan;
    return SHOAL_OK;
}

/* Puts the call in the queue, or keeps it until its shares are known. */
static enum shoal_status enqueue(struct comm_group *group, const struct comm_path *path,
                                 const struct comm_call *call, struct comm_plan *plan, bool held,
                                 struct comm_request **out)
{
    TRY(comm_request_begin(group, path, call, plan, out));
    comm_count(&group->counters.operations, 1);
    comm_count(&group->counters.requests, 1);
    if (held)
        comm_steer_hold(group, *out);
    else
        comm_progress_submit(group->world, *out);
    return SHOAL_OK;
}

/* Door held. *out: the request, or NULL where the call blocks and was carried out on this thread.
 */
static enum shoal_status submit(struct comm_group *group, const struct comm_path *path,
                                const struct comm_call *call, comm_make_plan *make, bool blocks,
                                struct comm_request **out)
{
    struct comm_plan *plan = NULL;
    bool known = true;
    if (comm_group_broken(group))
        return comm_group_health(group);
    if (call->counted)
        TRY(comm_steer_next(group, make, &known));
    bool held = !known || (comm_steer_holds(group) && call->kind < COLL_SEND);
    if (make && known)
        TRY(comm_plan_take(group, call, make, &plan));
    *out = NULL;
    enum shoal_status status = blocks && !held && may_run_here(group, path)
                                   ? run_here(group, path, call, plan)
                                   : enqueue(group, path, call, plan, held, out);
    if (status == SHOAL_OK && call->counted)
        comm_steer_count(group);
    return status;
}

enum shoal_status comm_submit(struct comm_group *group, const struct comm_path *path,
                              const struct comm_call *call, comm_make_plan *make,
                              shoal_request_t *request_out)
{
    struct comm_request *request = NULL;
    comm_door_take(group);
    enum shoal_status status = submit(group, path, call, make, !request_out, &request);
    comm_door_leave(group);
    if (status != SHOAL_OK || !request)
        return status;
    comm_progress_go(group->world, is_small(group, call));
    if (!request_out)
        return comm_request_wait(&request, -1);
    *request_out = (shoal_request_t)request;
    return SHOAL_OK;
}

/* ---- the engine's two paths
 * ---------------------------------------------------------------------------------------- */

struct inline_end {
    atomic_int done;
    enum shoal_status status;
};

static void inline_done(struct comm_task *task, enum shoal_status status)
{
    struct inline_end *end = task->owner;
    end->status = status;
    atomic_store_explicit(&end->done, 1, memory_order_release);
}

static enum shoal_status end_of(struct comm_group *group, struct inline_end *end)
{
    bool undisturbed = comm_progress_until(group, &end->done);
    return undisturbed && end->status == SHOAL_OK ? SHOAL_OK : comm_group_health(group);
}

static void count_engine(struct comm_group *group, const struct comm_call *call)
{
    comm_count(&group->counters.bytes[COMM_WAY_ENGINE],
               comm_call_bytes(call, group->rank, group->size));
}

static enum shoal_status run_plan(struct comm_group *group, const struct comm_call *call,
                                  struct comm_plan *plan, uint64_t sequence)
{
    struct inline_end end = {0};
    count_engine(group, call);
    if (group->local)
        group->local_note(group->local, call, sequence);
    int64_t deadline_ns = base_deadline_ns(atomic_load(&group->timeout_ms));
    TRY(comm_engine_start_plan(group->engine, group, plan, call, sequence, deadline_ns, inline_done,
                               &end));
    return end_of(group, &end);
}

static enum shoal_status start_plan(struct comm_group *group, struct comm_request *request)
{
    if (!request->plan) /* it was held back, and the group broke */
        return comm_group_health(group);
    count_engine(group, &request->call);
    if (group->local)
        group->local_note(group->local, &request->call, request->sequence);
    return comm_engine_start_plan(group->engine, group, request->plan, &request->call,
                                  request->sequence, request->deadline_ns, comm_request_done,
                                  request);
}

const struct comm_path comm_path_plan = {run_plan, start_plan, true};

static enum shoal_status run_send(struct comm_group *group, const struct comm_call *call,
                                  struct comm_plan *plan, uint64_t sequence)
{
    (void)plan;
    struct inline_end end = {0};
    count_engine(group, call);
    int64_t deadline_ns = base_deadline_ns(atomic_load(&group->timeout_ms));
    TRY(comm_engine_start_send(group->engine, group, call, sequence, deadline_ns, inline_done,
                               &end));
    return end_of(group, &end);
}

static enum shoal_status start_send(struct comm_group *group, struct comm_request *request)
{
    count_engine(group, &request->call);
    return comm_engine_start_send(group->engine, group, &request->call, request->sequence,
                                  request->deadline_ns, comm_request_done, request);
}

const struct comm_path comm_path_send = {run_send, start_send, true};
