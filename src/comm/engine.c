/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c: the engine's centre: frames in and out, windows, the list of tasks, poll and sleep.
 * What breaks is in failure.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/engine_state.h"
#include "comm/failure.h"

/* ---- life
 * ------------------------------------------------------------------------------------------- */

enum shoal_status comm_engine_create(const struct comm_engine_options *options,
                                     struct comm_engine **out)
{
    struct comm_engine *engine = NULL;
    TRY(BASE_NEW(&engine, "the engine"));
    engine->options = *options;
    engine->early_sends_end = &engine->early_sends;
    engine->sleep_fd = epoll_create1(EPOLL_CLOEXEC);
    enum shoal_status status = SHOAL_OK;
    if (engine->sleep_fd < 0)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "epoll_create1");
    else
        status = BASE_NEW_ARRAY(&engine->peers, options->size, "the engine's peers");
    if (status != SHOAL_OK) {
        comm_engine_free(engine);
        return status;
    }
    for (int i = 0; i < options->size; i++) {
        engine->peers[i].credit.owner = OWNER_CONTROL;
        engine->peers[i].credit.keep = true;
        engine->peers[i].credit.peer = i;
    }
    *out = engine;
    return SHOAL_OK;
}

void comm_engine_free(struct comm_engine *engine)
{
    if (!engine)
        return;
    for (int i = 0; engine->peers && i < engine->options.size; i++)
        if (engine->peers[i].arrival.kind == ARRIVAL_CONTROL)
            base_free(engine->peers[i].arrival.control);
    early_free_all(engine);
    send_free_idle(engine);
    failure_free_controls(engine);
    if (engine->sleep_fd >= 0)
        close(engine->sleep_fd);
    base_free(engine->peers);
    base_free(engine);
}

enum shoal_status comm_engine_attach(struct comm_engine *engine, struct net_endpoint *endpoint,
                                     const bool *peers)
{
    BASE_ASSERT(engine->endpoint_count < COMM_ENDPOINTS_MAX);
    int fd = net_of(endpoint)->descriptor(endpoint);
    if (fd >= 0)
        TRY(comm_engine_watch(engine, fd));
    engine->endpoints[engine->endpoint_count++] = endpoint;
    for (int i = 0; i < engine->options.size; i++)
        if (peers[i])
            engine->peers[i].endpoint = endpoint;
    return SHOAL_OK;
}

bool comm_engine_flow(const struct comm_engine *engine, int peer, struct net_flow *out)
{
    struct net_endpoint *endpoint = engine->peers[peer].endpoint;
    return endpoint && net_of(endpoint)->flow(endpoint, peer, out);
}

void comm_engine_use_streams(struct comm_engine *engine, int count)
{
    for (int i = 0; i < engine->endpoint_count; i++)
        net_of(engine->endpoints[i])->use_streams(engine->endpoints[i], count);
}

enum shoal_status comm_engine_watch(struct comm_engine *engine, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(engine->sleep_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "epoll_ctl for the engine");
    return SHOAL_OK;
}

void comm_engine_add_group(struct comm_engine *engine, struct comm_group *group)
{
    group->engine = engine;
    group->next_in_engine = engine->groups;
    engine->groups = group;
    failure_group_added(engine, group);
}

void comm_engine_remove_group(struct comm_engine *engine, struct comm_group *group)
{
    BASE_ASSERT(group->first_task == NULL);
    for (struct comm_group **at = &engine->groups; *at; at = &(*at)->next_in_engine)
        if (*at == group) {
            *at = group->next_in_engine;
            break;
        }
    engine->closed[engine->closed_count++ % COMM_CLOSED_MAX] = group->context;
    early_forget(engine, group->context);
}

bool engine_is_closed(const struct comm_engine *engine, uint64_t context)
{
    for (uint32_t i = 0; i < engine->closed_count && i < COMM_CLOSED_MAX; i++)
        if (engine->closed[i] == context)
            return true;
    return false;
}

struct comm_group *comm_engine_find_group(struct comm_engine *engine, uint64_t context)
{
    for (struct comm_group *group = engine->groups; group; group = group->next_in_engine)
        if (group->context == context)
            return group;
    return NULL;
}

int64_t engine_now_ns(const struct comm_engine *engine)
{
    return engine->options.now_ns(engine->options.now_user);
}

/* ---- frames out
 * ---------------------------------------------------------------------------------------- */

void engine_post(struct comm_engine *engine, int peer, struct net_frame *frame,
                 const struct wire *wire, const void *payload, uint64_t payload_bytes)
{
    struct comm_peer *to = &engine->peers[peer];
    struct wire out = *wire;
    for (int class = 0; class < WIRE_CLASS_COUNT; class ++)
        out.consumed[class] = to->told[class] = to->consumed[class];
    wire_pack(&frame->header, &out, payload_bytes);
    frame->payload = payload;
    frame->next = NULL;
    frame->done_bytes = 0;
    to->linked = true;
    engine->events++;
    net_of(to->endpoint)->send(to->endpoint, peer, frame);
}

void engine_withdraw(struct comm_engine *engine, struct net_endpoint *endpoint, int peer,
                     struct net_frame *frame)
{
    if (engine->peers[peer].lost) /* the transport has let go of it already */
        return;
    net_of(endpoint)->withdraw(endpoint, peer, frame);
}

bool engine_window_open(const struct comm_engine *engine, int peer, enum wire_class class)
{
    const struct comm_peer *to = &engine->peers[peer];
    return (uint16_t)(to->eager_sent[class] - to->eager_acked[class]) < WIRE_SLOTS;
}

/* One slot of the peer's window is free again; says so by itself when half of them are. */
static void consumed(struct comm_engine *engine, int peer, enum wire_class class)
{
    struct comm_peer *from = &engine->peers[peer];
    from->consumed[class]++;
    if ((uint16_t)(from->consumed[class] - from->told[class]) < WIRE_SLOTS / 2 ||
        from->credit.busy || from->lost || from->left)
        return;
    struct wire wire = {.type = WIRE_CREDIT};
    from->credit.busy = true;
    from->credit.frame.owner = &from->credit;
    engine_post(engine, peer, &from->credit.frame, &wire, NULL, 0);
}

void engine_slot_free(struct comm_engine *engine, int peer, const struct wire *wire)
{
    if (wire->type == WIRE_DATA && !wire->granted)
        consumed(engine, peer, WIRE_CLASS_COLLECTIVE);
    else if (wire->type == WIRE_SEND)
        consumed(engine, peer, WIRE_CLASS_SEND);
}

/* ---- events of the transports
 * ------------------------------------------------------------------------ */

static void note_frame(struct comm_engine *engine, int peer, const struct wire *wire)
{
    struct comm_peer *from = &engine->peers[peer];
    from->linked = true;
    engine->events++;
    for (int class = 0; class < WIRE_CLASS_COUNT; class ++)
        from->eager_acked[class] = wire->consumed[class];
}

/* A frame of a group that this rank does not have (yet), or is no member of with that peer. */
static struct comm_group *group_of(struct comm_engine *engine, int peer, const struct wire *wire)
{
    struct comm_group *group = comm_engine_find_group(engine, wire->context);
    return group && group->rank_of[peer] >= 0 ? group : NULL;
}

static void *arrive(struct comm_engine *engine, int peer, const struct wire *wire,
                    uint64_t payload_bytes)
{
    engine->peers[peer].arrival.kind = ARRIVAL_NONE;
    struct comm_group *group = group_of(engine, peer, wire);
    if (group && comm_group_broken(group)) {
        failure_heard(engine, group, peer, wire);
        engine_slot_free(engine, peer, wire);
        return NULL;
    }
    switch (wire->type) {
    case WIRE_DATA: return run_arriving(engine, group, peer, wire, payload_bytes);
    case WIRE_SEND:
    case WIRE_SEND_DATA: return send_arriving(engine, group, peer, wire, payload_bytes);
    case WIRE_ABORT: return failure_arriving(engine, group, peer, wire, payload_bytes);
    default: return NULL;
    }
}

static void *on_arriving(void *user, int peer, const struct net_header *header)
{
    struct comm_engine *engine = user;
    struct wire wire = wire_unpack(header);
    note_frame(engine, peer, &wire);
    return arrive(engine, peer, &wire, header->payload_bytes);
}

/* What ranks tell a server of a group. */
static void serve(const struct comm_serving *serving, const struct wire *wire)
{
    if (wire->type == WIRE_LEAVE)
        serving->left(serving->user, wire->context);
    else
        serving->share(serving->user, wire->context, (uint32_t)wire->sequence, wire->message,
                       (uint32_t)wire->count);
}

/* Frames without payload that are not data. */
static void control(struct comm_engine *engine, int peer, const struct wire *wire)
{
    struct comm_group *group = group_of(engine, peer, wire);
    const struct comm_serving *serving = &engine->options.serving;
    if (wire->type == WIRE_LEAVE || wire->type == WIRE_SHARE) {
        if (serving->called)
            serve(serving, wire);
        return;
    }
    if (group && comm_group_broken(group)) {
        failure_heard(engine, group, peer, wire);
        return;
    }
    switch (wire->type) {
    case WIRE_GRANT:
    case WIRE_OFFER: run_control(engine, group, peer, wire); break;
    case WIRE_SEND_OFFER:
    case WIRE_SEND_GRANT: send_control(engine, group, peer, wire); break;
    case WIRE_ASK: failure_asked(engine, group, peer, wire); break;
    case WIRE_TELL: failure_told(group, peer, wire); break;
    default: break; /* WIRE_CREDIT: note_frame has read it */
    }
}

static void finish_arrival(struct comm_engine *engine, int peer, const struct wire *wire,
                           uint64_t payload_bytes)
{
    struct comm_arrival arrival = engine->peers[peer].arrival;
    engine->peers[peer].arrival.kind = ARRIVAL_NONE;
    switch (arrival.kind) {
    case ARRIVAL_STEP: run_received_step(engine, arrival.run, arrival.step); break;
    case ARRIVAL_RECEIVE: send_received(engine, arrival.receive); break;
    case ARRIVAL_CONTROL:
        failure_received(engine, peer, wire, arrival.control, payload_bytes);
        break;
    case ARRIVAL_EARLY:
        if (wire->type == WIRE_DATA)
            run_received_early(engine, arrival.early);
        else
            send_received_early(engine, arrival.early);
        break;
    case ARRIVAL_NONE: break;
    }
}

static void on_received(void *user, int peer, const struct net_header *header, void *payload)
{
    (void)payload;
    struct comm_engine *engine = user;
    struct wire wire = wire_unpack(header);
    bool data = wire.type == WIRE_DATA || wire.type == WIRE_SEND || wire.type == WIRE_SEND_DATA;
    if (header->payload_bytes == 0) {
        note_frame(engine, peer, &wire);
        if (!data) {
            control(engine, peer, &wire);
            return;
        }
        arrive(engine, peer, &wire, 0);
    }
    engine->events++;
    finish_arrival(engine, peer, &wire, header->payload_bytes);
}

static void on_sent(void *user, struct net_frame *frame)
{
    struct comm_engine *engine = user;
    engine->events++;
    switch (*(enum comm_owner *)frame->owner) {
    case OWNER_RUN: run_sent(engine, frame); break;
    case OWNER_SEND: send_sent(engine, frame); break;
    case OWNER_CONTROL: failure_sent(engine, frame->owner); break;
    }
}

static void on_lost(void *user, int peer, enum shoal_status why, const char *text)
{
    comm_engine_peer_lost(user, peer, why, text);
}

static void on_left(void *user, int peer)
{
    failure_peer_left(user, peer);
}

void comm_engine_events(struct comm_engine *engine, struct net_events *out)
{
    *out = (struct net_events){.user = engine,
                               .arriving = on_arriving,
                               .received = on_received,
                               .sent = on_sent,
                               .lost = on_lost,
                               .left = on_left};
}

void engine_divert(struct comm_engine *engine, int peer)
{
    struct comm_peer *from = &engine->peers[peer];
    if (from->arrival.kind == ARRIVAL_NONE)
        return;
    from->arrival.kind = ARRIVAL_NONE;
    if (!from->lost)
        net_of(from->endpoint)->divert(from->endpoint, peer);
}

/* ---- tasks
 * -------------------------------------------------------------------------------------------- */

void engine_task_begin(struct comm_engine *engine, struct comm_task *task)
{
    struct comm_group *group = task->group;
    task->previous = group->last_task;
    task->next = NULL;
    if (group->last_task)
        group->last_task->next = task;
    else
        group->first_task = task;
    group->last_task = task;
    engine->task_count++;
    if (task->call.kind >= COLL_SEND)
        return;
    group->started = task->sequence;
    group->history[task->sequence % COMM_HISTORY] =
        (struct comm_called){task->sequence, task->signature, task->plan_hash};
}

enum shoal_status engine_not_started(struct comm_group *group, const struct comm_call *call,
                                     uint64_t sequence, enum shoal_status status)
{
    char me[160];
    comm_group_break(group, status, "%s #%llu on group '%s' could not start on %s: %s",
                     comm_kind_name(call->kind), (unsigned long long)sequence, group->name,
                     comm_rank_text(group, group->rank, me, sizeof(me)), base_error_text());
    return comm_group_health(group);
}

static void unlink_task(struct comm_engine *engine, struct comm_task *task)
{
    struct comm_group *group = task->group;
    *(task->previous ? &task->previous->next : &group->first_task) = task->next;
    *(task->next ? &task->next->previous : &group->last_task) = task->previous;
    engine->task_count--;
    engine->events++;
    base_free(task->answers);
    task->answers = NULL;
}

void engine_task_end(struct comm_engine *engine, struct comm_task *task, enum shoal_status status)
{
    unlink_task(engine, task);
    task->done(task, status);
}

void engine_task_cancel(struct comm_engine *engine, struct comm_task *task)
{
    unlink_task(engine, task);
    struct comm_task copy = *task; /* cancel gives the task's memory back */
    task->class->cancel(task);
    copy.done(&copy, copy.group->failure.status);
}

void comm_engine_start_task(struct comm_engine *engine, struct comm_task *task)
{
    engine_task_begin(engine, task);
}

/* The same-host task whose turn it is; NULL: none. */
static struct comm_task *local_task(const struct comm_group *group)
{
    struct comm_task *task = group->first_task;
    while (task && !task->class->advance)
        task = task->next;
    return task;
}

/* Whether nothing is left to do for a group but to wait. */
static bool may_sleep(const struct comm_group *group)
{
    if (comm_group_broken(group))
        return group->announced && !group->first_task;
    struct comm_task *task = local_task(group);
    return !task || !task->class->ready(task);
}

/* Tasks of the same-host path run one after the other within a group. */
static void advance_tasks(struct comm_engine *engine, struct comm_group *group)
{
    struct comm_task *task = group->first_task;
    while (task && !comm_group_broken(group)) {
        struct comm_task *next = task->next;
        bool local = task->class->advance != NULL;
        if (local && task->class->advance(task))
            engine_task_end(engine, task, SHOAL_OK);
        else if (local)
            break;
        task = next;
    }
}

/* ---- poll
 * --------------------------------------------------------------------------------------------- */

#define LOOK_EVERY_NS (2 * BASE_NS_PER_MS) /* at deadlines */

int comm_engine_poll(struct comm_engine *engine)
{
    engine->events = 0;
    int moved = 0;
    for (int i = 0; i < engine->endpoint_count; i++)
        moved += net_of(engine->endpoints[i])->poll(engine->endpoints[i]);
    struct comm_group *next = NULL;
    for (struct comm_group *group = engine->groups; group; group = next) {
        next = group->next_in_engine;
        advance_tasks(engine, group);
        if (comm_group_broken(group) && (!group->announced || group->first_task))
            comm_engine_group_broke(engine, group);
    }
    int64_t now_ns = engine->task_count > 0 ? engine_now_ns(engine) : 0;
    if (now_ns >= engine->next_look_ns && engine->task_count > 0) {
        engine->next_look_ns = now_ns + LOOK_EVERY_NS;
        failure_look_at_tasks(engine, now_ns);
    }
    return moved + engine->events;
}

bool comm_engine_busy(const struct comm_engine *engine)
{
    bool may_be_asked = engine->options.serving.called != NULL;
    return engine->task_count > 0 || engine->controls || may_be_asked;
}

bool comm_engine_sleep(struct comm_engine *engine, int timeout_ms)
{
    int armed = 0;
    bool safe = true;
    for (; armed < engine->endpoint_count && safe; armed++)
        safe = net_of(engine->endpoints[armed])->arm(engine->endpoints[armed]);
    atomic_thread_fence(memory_order_seq_cst); /* a peer sees that it is armed, or this its news */
    for (struct comm_group *group = engine->groups; group && safe; group = group->next_in_engine)
        safe = may_sleep(group);
    if (safe) {
        struct epoll_event event;
        epoll_wait(engine->sleep_fd, &event, 1, timeout_ms);
    }
    while (armed-- > 0)
        net_of(engine->endpoints[armed])->disarm(engine->endpoints[armed]);
    return safe;
}

void comm_engine_wake(struct comm_engine *engine)
{
    for (int i = 0; i < engine->endpoint_count; i++)
        net_of(engine->endpoints[i])->wake(engine->endpoints[i]);
}
