/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send.c: point to point messages with tags and any-source.
 *
 * Small: at once, if the window to the peer is open. Otherwise: offer, grant, data; so sends posted
 * in any order on both sides never deadlock, and nothing large is ever stored. A message is matched
 * with the first posted receive that fits, in the order of arrival per sender; a receive with the
 * first early message that fits. Messages to oneself never leave this file.
 */
#include "comm/send.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernel/kernel.h"

static const struct comm_task_class send_class;

static uint64_t call_bytes(const struct comm_call *call)
{
    return call->count * kernel_dtype_bytes(call->dtype);
}

static enum shoal_status send_take(struct comm_engine *engine, struct comm_send **out)
{
    struct comm_send *send = engine->idle_sends;
    if (send)
        engine->idle_sends = send->next;
    else
        TRY(BASE_NEW(&send, "a message"));
    memset(send, 0, sizeof(*send));
    send->owner = OWNER_SEND;
    send->id = ++engine->next_id;
    *out = send;
    return SHOAL_OK;
}

static void give_back(struct comm_engine *engine, struct comm_send *send)
{
    send->next = engine->idle_sends;
    engine->idle_sends = send;
}

void send_free_idle(struct comm_engine *engine)
{
    while (engine->idle_sends) {
        struct comm_send *send = engine->idle_sends;
        engine->idle_sends = send->next;
        base_free(send);
    }
}

static void count_message(const struct comm_send *send)
{
    struct comm_group *group = send->task.group;
    const struct comm_call *call = &send->task.call;
    if (call->kind == COLL_RECV && send->source != group->rank)
        comm_count_received(group, send->source, send->bytes);
    else if (call->kind == COLL_SEND && call->root != group->rank)
        comm_count_sent(group, call->root, call_bytes(call));
}

static void finish(struct comm_engine *engine, struct comm_send *send)
{
    engine->events++;
    count_message(send);
    if (send->task.call.kind == COLL_RECV && send->task.call.info) {
        struct shoal_recv_info *info = send->task.call.info;
        info->source = send->source;
        info->tag = send->tag;
        info->bytes = send->bytes;
    }
    engine_task_end(engine, &send->task, SHOAL_OK);
    give_back(engine, send);
}

static void unlink_from(struct comm_send **at, struct comm_send *send)
{
    for (; *at; at = &(*at)->next)
        if (*at == send) {
            *at = send->next;
            return;
        }
}

static void append_to(struct comm_send **at, struct comm_send *send)
{
    while (*at)
        at = &(*at)->next;
    send->next = NULL;
    *at = send;
}

/* ---- matching
 * -------------------------------------------------------------------------------------- */

static bool fits(const struct comm_call *receive, int source, int tag)
{
    return (receive->root == SHOAL_ANY_SOURCE || receive->root == source) &&
           (receive->tag == SHOAL_ANY_TAG || receive->tag == tag);
}

/* The first posted receive that fits, taken off the list. */
static struct comm_send *match_posted(struct comm_group *group, int source, int tag)
{
    for (struct comm_send *at = group->posted_receives; at; at = at->next)
        if (fits(&at->task.call, source, tag)) {
            unlink_from(&group->posted_receives, at);
            return at;
        }
    return NULL;
}

/* Notes the message in the receive; false (and the group broken) if it may not be received there.
 */
static bool accept(struct comm_send *receive, int source, int tag, enum shoal_dtype dtype,
                   uint64_t bytes)
{
    const struct comm_call *call = &receive->task.call;
    struct comm_group *group = receive->task.group;
    receive->source = source;
    receive->tag = tag;
    receive->bytes = bytes;
    receive->matched = true;
    if (bytes <= call_bytes(call) && dtype == call->dtype)
        return true;
    char me[160], them[160];
    comm_group_break(group, SHOAL_ERR_MISMATCH,
                     "receive on group '%s': %s sends %llu x %s with tag %d, but %s receives at "
                     "most %llu x %s",
                     group->name, comm_rank_text(group, source, them, sizeof(them)),
                     (unsigned long long)(bytes / kernel_dtype_bytes(dtype)),
                     kernel_dtype_name(dtype), tag,
                     comm_rank_text(group, group->rank, me, sizeof(me)),
                     (unsigned long long)call->count, kernel_dtype_name(call->dtype));
    return false;
}

/* ---- frames out
 * ---------------------------------------------------------------------------------------- */

static struct wire wire_of(const struct comm_send *send, enum wire_type type)
{
    const struct comm_call *call = &send->task.call;
    struct wire wire = {.type = (uint8_t)type,
                        .kind = COLL_SEND,
                        .dtype = (uint8_t)call->dtype,
                        .root = call->tag,
                        .context = send->task.group->context,
                        .sequence = send->task.sequence,
                        .count = call_bytes(call),
                        .id = send->id,
                        .id_peer = send->id_peer};
    return wire;
}

static void post(struct comm_engine *engine, struct comm_send *send, int peer,
                 const struct wire *wire, const void *payload, uint64_t payload_bytes)
{
    BASE_ASSERT(!send->busy);
    send->busy = true;
    send->frame.owner = send;
    engine_post(engine, peer, &send->frame, wire, payload, payload_bytes);
}

static int world_rank(const struct comm_send *send, int rank)
{
    return send->task.group->members[rank];
}

static void post_data(struct comm_engine *engine, struct comm_send *send, enum wire_type type)
{
    const struct comm_call *call = &send->task.call;
    struct wire wire = wire_of(send, type);
    send->data_out = true;
    post(engine, send, world_rank(send, call->root), &wire, call->in, call_bytes(call));
}

static void post_grant(struct comm_engine *engine, struct comm_send *receive)
{
    struct wire wire = wire_of(receive, WIRE_SEND_GRANT);
    wire.id = receive->id_peer; /* the sender's, so that it finds itself */
    wire.id_peer = receive->id;
    post(engine, receive, world_rank(receive, receive->source), &wire, NULL, 0);
}

/* ---- start
 * ------------------------------------------------------------------------------------------------
 */

/* Both ends are this rank: copies. */
static void join_self(struct comm_engine *engine, struct comm_send *send, struct comm_send *receive)
{
    const struct comm_call *from = &send->task.call;
    if (!accept(receive, receive->task.group->rank, from->tag, from->dtype, call_bytes(from)))
        return;
    if (from->count > 0)
        memmove(receive->task.call.out, from->in, call_bytes(from));
    finish(engine, receive);
    finish(engine, send);
}

static void begin_send(struct comm_engine *engine, struct comm_send *send)
{
    struct comm_group *group = send->task.group;
    const struct comm_call *call = &send->task.call;
    int peer = world_rank(send, call->root);
    if (call->root == group->rank) {
        struct comm_send *receive = match_posted(group, group->rank, call->tag);
        if (receive)
            join_self(engine, send, receive);
        else
            append_to(&group->self_sends, send);
    } else if (call_bytes(call) <= engine->options.eager_bytes &&
               engine_window_open(engine, peer, WIRE_CLASS_SEND)) {
        engine->peers[peer].eager_sent[WIRE_CLASS_SEND]++;
        post_data(engine, send, WIRE_SEND);
    } else {
        struct wire wire = wire_of(send, WIRE_SEND_OFFER);
        post(engine, send, peer, &wire, NULL, 0);
    }
}

/* The first early message that fits, taken off the list. */
static struct comm_early *match_early(struct comm_engine *engine, const struct comm_send *receive)
{
    struct comm_group *group = receive->task.group;
    for (struct comm_early **at = &engine->early_sends; *at; at = &(*at)->next) {
        struct comm_early *early = *at;
        if (early->wire.context != group->context ||
            !fits(&receive->task.call, group->rank_of[early->peer], early->wire.root))
            continue;
        *at = early->next;
        if (engine->early_sends_end == &early->next)
            engine->early_sends_end = at;
        return early;
    }
    return NULL;
}

static void take_slot(struct comm_engine *engine, struct comm_send *receive,
                      struct comm_early *early)
{
    if (early->payload_bytes > 0)
        memcpy(receive->task.call.out, early->slot, early->payload_bytes);
    engine_slot_free(engine, early->peer, &early->wire);
    early_give_back(engine, early);
    finish(engine, receive);
}

static void take_early_send(struct comm_engine *engine, struct comm_send *receive,
                            struct comm_early *early)
{
    struct comm_group *group = receive->task.group;
    if (!accept(receive, group->rank_of[early->peer], early->wire.root, early->wire.dtype,
                early->wire.count)) {
        early_drop(engine, early);
        return;
    }
    if (early->wire.type == WIRE_SEND_OFFER) {
        receive->id_peer = early->wire.id;
        early_give_back(engine, early);
        post_grant(engine, receive);
    } else if (early->complete) {
        take_slot(engine, receive, early);
    } else {
        early->claimed_receive = receive;
    }
}

static void begin_receive(struct comm_engine *engine, struct comm_send *receive)
{
    struct comm_group *group = receive->task.group;
    for (struct comm_send *send = group->self_sends; send; send = send->next)
        if (fits(&receive->task.call, group->rank, send->task.call.tag)) {
            unlink_from(&group->self_sends, send);
            join_self(engine, send, receive);
            return;
        }
    struct comm_early *early = match_early(engine, receive);
    if (early)
        take_early_send(engine, receive, early);
    else
        append_to(&group->posted_receives, receive);
}

enum shoal_status comm_engine_start_send(struct comm_engine *engine, struct comm_group *group,
                                         const struct comm_call *call, uint64_t sequence,
                                         int64_t deadline_ns,
                                         void (*done)(struct comm_task *, enum shoal_status),
                                         void *owner)
{
    struct comm_send *send = NULL;
    enum shoal_status status = send_take(engine, &send);
    if (status != SHOAL_OK)
        return engine_not_started(group, call, sequence, status);
    send->task = (struct comm_task){.class = &send_class,
                                    .group = group,
                                    .call = *call,
                                    .signature = comm_signature_of(call, group->size),
                                    .sequence = sequence,
                                    .deadline_ns = deadline_ns,
                                    .done = done,
                                    .owner = owner,
                                    .owner_run = send};
    engine_task_begin(engine, &send->task);
    if (comm_group_broken(group))
        return SHOAL_OK; /* the next poll ends it */
    if (call->kind == COLL_SEND)
        begin_send(engine, send);
    else
        begin_receive(engine, send);
    return SHOAL_OK;
}

/* ---- frames in
 * -------------------------------------------------------------------------------------------- */

static void *file_early(struct comm_engine *engine, struct comm_group *group, int peer,
                        const struct wire *wire, uint64_t payload_bytes)
{
    struct comm_early *early = early_keep(engine, group, peer, wire, payload_bytes);
    if (!early)
        return NULL;
    *engine->early_sends_end = early;
    engine->early_sends_end = &early->next;
    return early->slot;
}

static struct comm_send *active_send(struct comm_group *group, uint32_t id)
{
    for (struct comm_task *task = group->first_task; task; task = task->next) {
        struct comm_send *send = task->owner_run;
        if (task->class == &send_class && send->id == id)
            return send;
    }
    return NULL;
}

static void *arrive_in(struct comm_engine *engine, int peer, struct comm_send *receive)
{
    struct comm_arrival *arrival = &engine->peers[peer].arrival;
    arrival->kind = ARRIVAL_RECEIVE;
    arrival->receive = receive;
    return receive->task.call.out;
}

void *send_arriving(struct comm_engine *engine, struct comm_group *group, int peer,
                    const struct wire *wire, uint64_t payload_bytes)
{
    if (wire->type == WIRE_SEND_DATA) {
        struct comm_send *receive = group ? active_send(group, wire->id_peer) : NULL;
        bool granted = receive && receive->matched && receive->bytes == payload_bytes &&
                       receive->source == group->rank_of[peer];
        return granted ? arrive_in(engine, peer, receive) : NULL;
    }
    struct comm_send *receive =
        group ? match_posted(group, group->rank_of[peer], wire->root) : NULL;
    if (receive) {
        engine_slot_free(engine, peer, wire);
        if (!accept(receive, group->rank_of[peer], wire->root, wire->dtype, payload_bytes))
            return NULL;
        return arrive_in(engine, peer, receive);
    }
    return file_early(engine, group, peer, wire, payload_bytes);
}

void send_received(struct comm_engine *engine, struct comm_send *receive)
{
    if (receive->busy) /* its grant's end was not reported yet: run by send_sent */
        receive->data_out = true;
    else
        finish(engine, receive);
}

void send_received_early(struct comm_engine *engine, struct comm_early *early)
{
    early->complete = true;
    if (early->claimed_receive)
        take_slot(engine, early->claimed_receive, early);
}

void send_control(struct comm_engine *engine, struct comm_group *group, int peer,
                  const struct wire *wire)
{
    if (wire->type == WIRE_SEND_GRANT) {
        struct comm_send *send = group ? active_send(group, wire->id) : NULL;
        if (!send)
            return;
        send->id_peer = wire->id_peer;
        if (send->busy)
            send->granted = true;
        else
            post_data(engine, send, WIRE_SEND_DATA);
        return;
    }
    struct comm_send *receive =
        group ? match_posted(group, group->rank_of[peer], wire->root) : NULL;
    if (!receive) {
        file_early(engine, group, peer, wire, 0);
        return;
    }
    if (!accept(receive, group->rank_of[peer], wire->root, wire->dtype, wire->count))
        return;
    receive->id_peer = wire->id;
    post_grant(engine, receive);
}

void send_sent(struct comm_engine *engine, struct net_frame *frame)
{
    struct comm_send *send = frame->owner;
    send->busy = false;
    if (send->data_out)
        finish(engine, send);
    else if (send->granted)
        post_data(engine, send, WIRE_SEND_DATA);
}

/* ---- the task
 * ---------------------------------------------------------------------------------------------- */

static void send_cancel(struct comm_task *task)
{
    struct comm_send *send = task->owner_run;
    struct comm_group *group = task->group;
    struct comm_engine *engine = group->engine;
    bool receives = task->call.kind == COLL_RECV;
    if (send->busy) {
        int peer = world_rank(send, receives ? send->source : task->call.root);
        engine_withdraw(engine, engine->peers[peer].endpoint, peer, &send->frame);
        send->busy = false;
    }
    for (int peer = 0; receives && send->matched && peer < engine->options.size; peer++) {
        struct comm_arrival *arrival = &engine->peers[peer].arrival;
        if (arrival->kind == ARRIVAL_RECEIVE && arrival->receive == send) {
            engine_divert(engine, peer);
        } else if (arrival->kind == ARRIVAL_EARLY && arrival->early->claimed_receive == send) {
            early_drop(engine, arrival->early);
        }
    }
    unlink_from(&group->posted_receives, send);
    unlink_from(&group->self_sends, send);
    give_back(engine, send);
}

static void send_late(struct comm_task *task, bool *late)
{
    const struct comm_send *send = task->owner_run;
    int peer = send->matched ? send->source : task->call.root;
    if (peer >= 0)
        late[peer] = true;
    else
        for (int i = 0; i < task->group->size; i++)
            late[i] = i != task->group->rank;
}

static const struct comm_task_class send_class = {"message", NULL, NULL, send_cancel, send_late};
