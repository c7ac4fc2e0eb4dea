/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c: the events of a simulation.
 *
 * Most servers work in the order of arrival, so each is no more than the time at which it falls
 * free: what comes now begins then, and the end is known at once. The link that leaves a host is
 * shared fairly among the hosts that it sends to, message by message, as connections share it: each
 * message has a tag, where it would begin if its receiver's share were the whole link, and the
 * least tag goes first (Goyal, Vin, Cheng: Start-time fair queuing, 1996).
 *
 * A message goes through these events, all of them numbered by its send:
 *
 *   OFFER     word of it has come to the receiver (short messages beyond the window)
 *   GRANT     the receiver's request has come (long messages, and those that were offered)
 *   SENT      its first piece left the sender's processor: it queues for the first link
 *   LEFT      its last byte left the first link
 *   LINK      its first byte reached another link
 *   ARRIVED   its last byte is at the receiver
 *   CREDIT    its place in the window is free again (short messages)
 *   ENDS      a step is done: those that wait for it may begin
 *
 * Before these an operation has BEGINS, when its ranks know of it, and SERVES, when its servers do.
 *
 * Invariants:
 *  1. Events are taken in the order of time, ties in the order in which they were made. A link
 *     that leaves a host looks at its queue when all events of a time have been taken.
 *  2. A step is ready once, when the count in its state reaches 0; it ends once.
 *  3. When one host stands for all, the ranks are those of host 0, and its two links take what its
 *     likes would send it.
 */
#include "base/memory.h"
#include "base/status.h"
#include "sim/events.h"
#include "sim/sim.h"

#define SLOTS_MAX   64
#define STATES_MAX  UINT64_C(400000000)
#define PIECE_BYTES 65536.0 /* what a processor hands to a link at a time */
#define WINDOW      32      /* short messages to a rank that it has not taken yet: comm/wire.h */

enum event_kind {
    EVENT_OFFER,
    EVENT_GRANT,
    EVENT_SENT,
    EVENT_LEFT,
    EVENT_LINK,
    EVENT_ARRIVED,
    EVENT_CREDIT,
    EVENT_ENDS,
    EVENT_BEGINS,
    EVENT_SERVES
};

/* ---- the model ----------------------------------------------------------------------------- */

/* A step's state: how many it waits for, and what has come before it was ready. */
#define STATE_GRANTED UINT32_C(0x80000000) /* of a send: the receiver has asked for it */
#define STATE_ARRIVED UINT32_C(0x40000000) /* of a receive: its message is here */
#define STATE_OFFERED UINT32_C(0x20000000) /* of a receive: it has to be asked for */
#define STATE_UNASKED UINT32_C(0x20000000) /* of a send: it left unasked, and is in the window */
#define STATE_WAITS   UINT32_C(0x1fffffff)

/* An operation under way. */
struct slot {
    struct sim_operation *operation; /* NULL: free */
    const struct sim_programs *programs;
    uint32_t *states; /* of all simulated ranks */
    uint64_t *first;  /* [rank_count + 1] of each rank's in states */
    int rank_count;   /* simulated */
    uint64_t steps_left;
};

/* The link that leaves a host. */
struct port {
    struct events queue;
    double tag;   /* of the message that it took last */
    double *tags; /* [hosts of the platform] where the next message to each would begin */
    double free_ns;
    bool busy, touched;
};

struct model {
    struct sim_run *run;
    const struct sim_platform *platform;
    const int *host_of;                       /* of ranks */
    int rank_count, host_count, switch_count; /* simulated */
    struct port *ports;                       /* [host_count] */
    int *touched;                             /* [host_count] ports that have news */
    int touched_count;
    double *tags;                      /* of all ports */
    double *in_free_ns;                /* [host_count] */
    double *up_free_ns, *down_free_ns; /* [switch_count] */
    double *rank_free_ns;              /* [rank_count] */
    uint8_t *unasked;                  /* [rank_count * size] messages in the window to each rank */
    int size;                          /* of the largest operation */
    double *core_free_ns;              /* [pools * cores]; NULL: a core for each rank */
    struct events events;
    uint64_t event_count;
    struct slot slots[SLOTS_MAX];
    int slots_used, begun_count;
    int first_waiting; /* of the operations that have not begun */
    double now_ns;
};

static enum shoal_status push(struct model *model, enum event_kind kind, double at_ns,
                              const struct event *from)
{
    struct event event = *from;
    event.kind = (uint8_t)kind;
    event.at_ns = at_ns;
    event.order = model->event_count++;
    return events_push(&model->events, event);
}

static const struct sim_step *step_at(const struct slot *slot, int rank, uint32_t step)
{
    return &sim_program_of(slot->programs, rank)->steps[step];
}

static uint32_t *state_at(const struct slot *slot, int rank, uint32_t step)
{
    return &slot->states[slot->first[rank] + step];
}

/* The other end of a message among the simulated ranks. */
static int other_end(const struct model *model, const struct slot *slot, int rank,
                     const struct sim_step *step)
{
    if (model->run->one_host)
        return step->peer % slot->programs->ranks_per_host;
    return sim_peer(slot->programs, rank, step->peer);
}

static bool is_local(const struct model *model, const struct slot *slot, int rank,
                     const struct sim_step *step)
{
    if (model->run->one_host)
        return step->peer < slot->programs->ranks_per_host;
    return model->host_of[rank] == model->host_of[other_end(model, slot, rank, step)];
}

static bool is_eager(const struct model *model, const struct sim_step *step)
{
    return step->bytes <= (double)model->platform->eager_bytes;
}

static void note_start(struct model *model, const struct slot *slot, int rank, uint32_t step,
                       double at_ns)
{
    if (model->run->times)
        model->run->times[slot->first[rank] + step].start_ns = at_ns;
}

static void note_end(struct model *model, const struct slot *slot, int rank, uint32_t step,
                     double at_ns)
{
    if (model->run->times)
        model->run->times[slot->first[rank] + step].end_ns = at_ns;
}

/* ---- processors ---------------------------------------------------------------------------- */

/* The core that falls free last before the rank does, else the first one after. */
static double *find_core(const struct model *model, int rank)
{
    const struct sim_platform *platform = model->platform;
    int pool = platform->cores_are_shared ? 0 : model->host_of[rank];
    double *cores = model->core_free_ns + (size_t)pool * (size_t)platform->cores, *best = cores;
    double wanted_ns = model->rank_free_ns[rank];
    wanted_ns = wanted_ns > model->now_ns ? wanted_ns : model->now_ns;
    for (double *core = cores + 1; core < cores + platform->cores; core++) {
        bool fits = *core <= wanted_ns, best_fits = *best <= wanted_ns;
        if (fits != best_fits ? fits : fits ? *core > *best : *core < *best)
            best = core;
    }
    return best;
}

/* Gives a rank's processor work of all_ns; returns when it begins. */
static double work(struct model *model, int rank, double all_ns)
{
    double start_ns = model->rank_free_ns[rank];
    double *core = model->core_free_ns ? find_core(model, rank) : NULL;
    start_ns = start_ns > model->now_ns ? start_ns : model->now_ns;
    if (core && *core > start_ns)
        start_ns = *core;
    model->rank_free_ns[rank] = start_ns + all_ns;
    if (core)
        *core = start_ns + all_ns;
    return start_ns;
}

/* What a message costs a processor, and of that the part that no link's work overlaps. */
static double cost_ns(struct sim_cost cost, double bytes)
{
    return cost.message_ns + bytes * cost.byte_ns;
}

static double piece_ns(struct sim_cost cost, double bytes)
{
    return cost_ns(cost, bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
}

/* ---- messages ------------------------------------------------------------------------------ */

/* How many messages of a rank to a peer, as its program names it, have not been taken yet. */
static uint8_t *window_to(const struct model *model, int rank, int peer)
{
    return &model->unasked[(size_t)rank * (size_t)model->size + (size_t)peer];
}

/* The receiver takes a message. Its operation may be over before the sender knows, so the event has
 * the peer in place of the step. */
static enum shoal_status give_credit(struct model *model, struct slot *slot, int sender,
                                     uint32_t step)
{
    struct event event = {.rank = (uint16_t)sender,
                          .step = (uint32_t)step_at(slot, sender, step)->peer};
    if ((*state_at(slot, sender, step) & STATE_UNASKED) == 0)
        return SHOAL_OK;
    return push(model, EVENT_CREDIT, model->now_ns + model->platform->link_latency_ns, &event);
}

static enum shoal_status start_send(struct model *model, struct slot *slot, int rank, uint32_t step)
{
    const struct sim_step *send = step_at(slot, rank, step);
    struct sim_cost cost = model->platform->send;
    double start_ns = work(model, rank, cost_ns(cost, send->bytes));
    struct event event = {
        .rank = (uint16_t)rank, .step = step, .slot = (uint8_t)(slot - model->slots)};
    return push(model, EVENT_SENT, start_ns + piece_ns(cost, send->bytes), &event);
}

static enum shoal_status start_local(struct model *model, struct slot *slot, int rank,
                                     uint32_t step)
{
    const struct sim_step *receive = step_at(slot, rank, step);
    double start_ns = work(model, rank, receive->bytes / model->platform->copy_bytes_per_ns);
    double end_ns = model->rank_free_ns[rank];
    int sender = other_end(model, slot, rank, receive);
    struct event event = {
        .rank = (uint16_t)sender, .step = receive->partner, .slot = (uint8_t)(slot - model->slots)};
    note_start(model, slot, rank, step, start_ns);
    note_start(model, slot, sender, receive->partner, start_ns);
    TRY(push(model, EVENT_ENDS, end_ns, &event));
    event.rank = (uint16_t)rank;
    event.step = step;
    return push(model, EVENT_ENDS, end_ns + model->platform->local_latency_ns, &event);
}

static enum shoal_status start_receive(struct model *model, struct slot *slot, int rank,
                                       uint32_t step, bool early)
{
    const struct sim_step *receive = step_at(slot, rank, step);
    struct sim_cost cost = model->platform->receive;
    double copy_ns = early ? receive->bytes / model->platform->copy_bytes_per_ns : 0;
    double start_ns = work(model, rank, cost_ns(cost, receive->bytes) + copy_ns);
    if (early)
        note_start(model, slot, rank, step, model->now_ns);
    struct event event = {
        .rank = (uint16_t)rank, .step = step, .slot = (uint8_t)(slot - model->slots)};
    TRY(give_credit(model, slot, other_end(model, slot, rank, receive), receive->partner));
    return push(model, EVENT_ENDS, start_ns + piece_ns(cost, receive->bytes) + copy_ns, &event);
}

/* A message without data, which no long one holds up, from rank `from` about a send of `rank`. */
static enum shoal_status send_word(struct model *model, struct slot *slot, enum event_kind kind,
                                   int from, int rank, uint32_t step)
{
    const struct sim_platform *platform = model->platform;
    double left_ns = work(model, from, platform->send.message_ns) + platform->send.message_ns;
    struct event event = {
        .rank = (uint16_t)rank, .step = step, .slot = (uint8_t)(slot - model->slots)};
    return push(model, kind, left_ns + platform->link_latency_ns, &event);
}

/* The receiver asks. */
static enum shoal_status send_grant(struct model *model, struct slot *slot, int rank, uint32_t step)
{
    const struct sim_step *receive = step_at(slot, rank, step);
    int sender = other_end(model, slot, rank, receive);
    return send_word(model, slot, EVENT_GRANT, rank, sender, receive->partner);
}

/* ---- links --------------------------------------------------------------------------------- */

struct link {
    double *free_ns; /* NULL: it is a port */
    double bytes_per_ns;
    double delay_ns; /* from its end to the next link's begin */
    bool last;
};

/* The hop-th link from one host to another: out, in; or out, up, down, in. */
static struct link link_at(const struct model *model, int from, int to, int hop)
{
    const struct sim_platform *platform = model->platform;
    int up = sim_switch_of(platform, from), down = sim_switch_of(platform, to);
    double latency_ns = platform->link_latency_ns;
    bool far = up != down;
    if (hop == 0)
        return (struct link){NULL, sim_host_rate(platform, from), far ? latency_ns / 2 : latency_ns,
                             false};
    if (far && hop < 3)
        return (struct link){hop == 1 ? &model->up_free_ns[up] : &model->down_free_ns[down],
                             platform->uplink_bytes_per_ns,
                             hop == 1 ? platform->uplink_latency_ns : latency_ns / 2, false};
    return (struct link){&model->in_free_ns[to], sim_host_rate(platform, to), 0, true};
}

/* A link of a host takes a message now, or when it is free; returns when its last byte has passed.
 * What was not used of its rate, up to a bucket of it, goes at once. */
static double pass(const struct model *model, double *free_ns, double bytes, double bytes_per_ns)
{
    double credit_ns = (double)model->platform->bucket_bytes / bytes_per_ns;
    double begin_ns = *free_ns > model->now_ns - credit_ns ? *free_ns : model->now_ns - credit_ns;
    *free_ns = begin_ns + bytes / bytes_per_ns;
    return *free_ns > model->now_ns ? *free_ns : model->now_ns;
}

/* The host at the other end of a message, as the platform numbers it if host 0 stands for all. */
static int host_to(const struct model *model, const struct slot *slot, int rank,
                   const struct sim_step *send)
{
    if (model->run->one_host)
        return send->peer / slot->programs->ranks_per_host;
    return model->host_of[other_end(model, slot, rank, send)];
}

static void touch_port(struct model *model, int host)
{
    if (!model->ports[host].touched)
        model->touched[model->touched_count++] = host;
    model->ports[host].touched = true;
}

/* Of messages with equal tags the one that is earlier in program order goes first. */
static enum shoal_status join_port(struct model *model, struct slot *slot, const struct event *sent)
{
    const struct sim_step *send = step_at(slot, sent->rank, sent->step);
    int from = model->host_of[sent->rank], to = host_to(model, slot, sent->rank, send);
    struct port *port = &model->ports[from];
    uint64_t operation = (uint64_t)(slot->operation - model->run->operations);
    struct event entry = *sent;
    entry.at_ns = port->tags[to] > port->tag ? port->tags[to] : port->tag;
    entry.order = operation << 32 | sent->step;
    port->tags[to] = entry.at_ns + send->bytes;
    touch_port(model, from);
    return events_push(&port->queue, entry);
}

static enum shoal_status use_port(struct model *model, int host)
{
    struct port *port = &model->ports[host];
    port->touched = false;
    if (port->busy || port->queue.count == 0)
        return SHOAL_OK;
    struct event event = events_pop(&port->queue);
    const struct slot *slot = &model->slots[event.slot];
    const struct sim_step *send = step_at(slot, event.rank, event.step);
    int to = model->run->one_host ? 0 : host_to(model, slot, event.rank, send);
    struct link link = link_at(model, host, to, 0);
    double end_ns = pass(model, &port->free_ns, send->bytes, link.bytes_per_ns);
    port->busy = true;
    port->tag = event.at_ns;
    note_start(model, slot, event.rank, event.step, model->now_ns);
    TRY(push(model, EVENT_LEFT, end_ns, &event));
    event.hop = 1;
    event.tail_ns = end_ns + link.delay_ns;
    return push(model, EVENT_LINK, model->now_ns + link.delay_ns, &event);
}

static enum shoal_status use_touched_ports(struct model *model)
{
    for (int i = 0; i < model->touched_count; i++)
        TRY(use_port(model, model->touched[i]));
    model->touched_count = 0;
    return SHOAL_OK;
}

/* A message enters another link than the first, now. */
static enum shoal_status take_link(struct model *model, struct slot *slot,
                                   const struct event *event)
{
    const struct sim_step *send = step_at(slot, event->rank, event->step);
    int from = model->host_of[event->rank];
    int to = model->run->one_host ? 0 : host_to(model, slot, event->rank, send);
    int receiver = other_end(model, slot, event->rank, send);
    struct link link = link_at(model, from, to, event->hop);
    double start_ns = *link.free_ns > model->now_ns ? *link.free_ns : model->now_ns;
    double end_ns = pass(model, link.free_ns, send->bytes, link.bytes_per_ns);
    struct event next = *event;
    next.tail_ns = end_ns > event->tail_ns ? end_ns : event->tail_ns;
    if (link.last && (*state_at(slot, receiver, send->partner) & STATE_WAITS) == 0)
        note_start(model, slot, receiver, send->partner, start_ns);
    if (link.last)
        return push(model, EVENT_ARRIVED, next.tail_ns, &next);
    next.hop++;
    next.tail_ns += link.delay_ns;
    return push(model, EVENT_LINK, start_ns + link.delay_ns, &next);
}

/* ---- steps --------------------------------------------------------------------------------- */

static enum shoal_status make_send_ready(struct model *model, struct slot *slot, int rank,
                                         uint32_t step)
{
    const struct sim_step *send = step_at(slot, rank, step);
    if (is_local(model, slot, rank, send)) {
        int receiver = other_end(model, slot, rank, send);
        if (*state_at(slot, receiver, send->partner) & STATE_WAITS)
            return SHOAL_OK;
        return start_local(model, slot, receiver, send->partner);
    }
    uint32_t *state = state_at(slot, rank, step);
    uint8_t *unasked = window_to(model, rank, send->peer);
    if (*state & STATE_GRANTED)
        return start_send(model, slot, rank, step);
    if (!is_eager(model, send))
        return SHOAL_OK;
    if (*unasked == WINDOW)
        return send_word(model, slot, EVENT_OFFER, rank, rank, step);
    *state |= STATE_UNASKED;
    ++*unasked;
    return start_send(model, slot, rank, step);
}

static enum shoal_status make_receive_ready(struct model *model, struct slot *slot, int rank,
                                            uint32_t step)
{
    const struct sim_step *receive = step_at(slot, rank, step);
    if (is_local(model, slot, rank, receive)) {
        int sender = other_end(model, slot, rank, receive);
        if (*state_at(slot, sender, receive->partner) & STATE_WAITS)
            return SHOAL_OK;
        return start_local(model, slot, rank, step);
    }
    if (*state_at(slot, rank, step) & STATE_ARRIVED)
        return start_receive(model, slot, rank, step, true);
    bool asks = !is_eager(model, receive) || *state_at(slot, rank, step) & STATE_OFFERED;
    return asks ? send_grant(model, slot, rank, step) : SHOAL_OK;
}

static enum shoal_status make_ready(struct model *model, struct slot *slot, int rank, uint32_t step)
{
    const struct sim_step *ready = step_at(slot, rank, step);
    if (ready->kind == STEP_SEND)
        return make_send_ready(model, slot, rank, step);
    if (ready->kind == STEP_RECV)
        return make_receive_ready(model, slot, rank, step);
    const struct sim_platform *platform = model->platform;
    double rate =
        ready->kind == STEP_REDUCE ? platform->reduce_bytes_per_ns : platform->copy_bytes_per_ns;
    double start_ns = work(model, rank, ready->bytes / rate);
    struct event event = {
        .rank = (uint16_t)rank, .step = step, .slot = (uint8_t)(slot - model->slots)};
    note_start(model, slot, rank, step, start_ns);
    return push(model, EVENT_ENDS, model->rank_free_ns[rank], &event);
}

static enum shoal_status take_offer(struct model *model, struct slot *slot,
                                    const struct event *event)
{
    const struct sim_step *send = step_at(slot, event->rank, event->step);
    int receiver = other_end(model, slot, event->rank, send);
    uint32_t *state = state_at(slot, receiver, send->partner);
    (void)work(model, receiver, model->platform->receive.message_ns);
    *state |= STATE_OFFERED;
    return *state & STATE_WAITS ? SHOAL_OK : send_grant(model, slot, receiver, send->partner);
}

static enum shoal_status take_grant(struct model *model, struct slot *slot,
                                    const struct event *event)
{
    uint32_t *state = state_at(slot, event->rank, event->step);
    (void)work(model, event->rank, model->platform->receive.message_ns);
    *state |= STATE_GRANTED;
    return *state & STATE_WAITS ? SHOAL_OK : start_send(model, slot, event->rank, event->step);
}

static enum shoal_status take_arrival(struct model *model, struct slot *slot,
                                      const struct event *event)
{
    const struct sim_step *send = step_at(slot, event->rank, event->step);
    int receiver = other_end(model, slot, event->rank, send);
    uint32_t *state = state_at(slot, receiver, send->partner);
    if (*state & STATE_WAITS) {
        *state |= STATE_ARRIVED;
        return SHOAL_OK;
    }
    return start_receive(model, slot, receiver, send->partner, false);
}

/* ---- operations ---------------------------------------------------------------------------- */

static enum shoal_status slot_init(struct model *model, struct slot *slot)
{
    const struct sim_programs *programs = slot->programs;
    slot->rank_count = model->run->one_host ? programs->ranks_per_host : programs->size;
    TRY(BASE_NEW_ARRAY(&slot->first, slot->rank_count + 1, "the simulation's state"));
    for (int rank = 0; rank < slot->rank_count; rank++)
        slot->first[rank + 1] = slot->first[rank] + sim_program_of(programs, rank)->step_count;
    slot->steps_left = slot->first[slot->rank_count];
    if (slot->steps_left > STATES_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "%llu million steps: at most %llu million; longer "
                          "segments make fewer",
                          (unsigned long long)(slot->steps_left / 1000000),
                          (unsigned long long)(STATES_MAX / 1000000));
    TRY(BASE_NEW_ARRAY(&slot->states, slot->steps_left, "the simulation's state"));
    for (int rank = 0; rank < slot->rank_count; rank++) {
        const struct sim_program *program = sim_program_of(programs, rank);
        for (uint32_t i = 0; i < program->step_count; i++)
            slot->states[slot->first[rank] + i] = program->steps[i].wait_count + 1;
    }
    return SHOAL_OK;
}

static void slot_release(struct slot *slot)
{
    base_free(slot->states);
    base_free(slot->first);
    *slot = (struct slot){0};
}

static void end_operation(struct model *model, struct slot *slot)
{
    slot->operation->end_ns = model->now_ns;
    if (model->now_ns > model->run->end_ns)
        model->run->end_ns = model->now_ns;
    slot_release(slot);
    model->slots_used--;
}

/* Each step waits for one more than its program says until its rank has begun, so that the two ends
 * of a message start it once. */
static enum shoal_status begin_rank(struct model *model, struct slot *slot, int rank)
{
    const struct sim_program *program = sim_program_of(slot->programs, rank);
    for (uint32_t i = 0; i < program->step_count; i++)
        if ((--*state_at(slot, rank, i) & STATE_WAITS) == 0)
            TRY(make_ready(model, slot, rank, i));
    return SHOAL_OK;
}

/* Ranks begin, and send a word of it to each server. */
static enum shoal_status begin_ranks(struct model *model, struct slot *slot)
{
    int servers = slot->programs->server_count, ranks = slot->rank_count - servers;
    struct sim_cost send = model->platform->send;
    double words_ns = servers * send.message_ns;
    struct event served = {.slot = (uint8_t)(slot - model->slots)};
    for (int rank = 0; rank < ranks; rank++) {
        (void)work(model, rank, slot->operation->work_ns + words_ns);
        TRY(begin_rank(model, slot, rank));
    }
    if (servers == 0)
        return SHOAL_OK;
    double came_ns = model->now_ns + send.message_ns + model->platform->link_latency_ns;
    return push(model, EVENT_SERVES, came_ns, &served);
}

/* The ranks' words have come. */
static enum shoal_status begin_servers(struct model *model, struct slot *slot)
{
    int ranks = slot->rank_count - slot->programs->server_count;
    for (int server = ranks; server < slot->rank_count; server++) {
        (void)work(model, server, ranks * model->platform->receive.message_ns);
        TRY(begin_rank(model, slot, server));
    }
    return SHOAL_OK;
}

static enum shoal_status begin_operation(struct model *model, struct slot *slot,
                                         struct sim_operation *operation)
{
    slot->operation = operation;
    slot->programs = operation->programs;
    model->slots_used++;
    model->begun_count++;
    operation->begin_ns = model->now_ns;
    operation->begun = true;
    TRY(slot_init(model, slot));
    struct event begins = {.slot = (uint8_t)(slot - model->slots)};
    if (slot->steps_left > 0)
        return push(model, EVENT_BEGINS, model->now_ns + model->run->notice_ns, &begins);
    end_operation(model, slot);
    return SHOAL_OK;
}

/* Of those that are ready the most urgent one; NULL: none is. */
static struct sim_operation *most_urgent(struct model *model)
{
    const struct sim_run *run = model->run;
    struct sim_operation *best = NULL;
    while (model->first_waiting < run->operation_count &&
           run->operations[model->first_waiting].begun)
        model->first_waiting++;
    for (int i = model->first_waiting; i < run->operation_count; i++) {
        struct sim_operation *operation = &run->operations[i];
        if (operation->ready_ns > model->now_ns)
            break;
        if (!operation->begun && (!best || operation->priority < best->priority))
            best = operation;
    }
    return best;
}

static enum shoal_status begin_operations(struct model *model)
{
    while (model->slots_used < model->run->in_flight) {
        struct sim_operation *operation = most_urgent(model);
        struct slot *slot = model->slots;
        if (!operation)
            return SHOAL_OK;
        while (slot->operation)
            slot++;
        TRY(begin_operation(model, slot, operation));
    }
    return SHOAL_OK;
}

static enum shoal_status end_step(struct model *model, struct slot *slot, const struct event *event)
{
    const struct sim_program *program = sim_program_of(slot->programs, event->rank);
    const struct sim_step *step = &program->steps[event->step];
    note_end(model, slot, event->rank, event->step, model->now_ns);
    for (uint32_t i = 0; i < step->after_count; i++) {
        uint32_t later = program->edges[step->after_first + i];
        if ((--*state_at(slot, event->rank, later) & STATE_WAITS) == 0)
            TRY(make_ready(model, slot, event->rank, later));
    }
    if (--slot->steps_left == 0)
        end_operation(model, slot);
    return SHOAL_OK;
}

static enum shoal_status take_event(struct model *model, const struct event *event)
{
    struct slot *slot = &model->slots[event->slot];
    switch ((enum event_kind)event->kind) {
    case EVENT_OFFER: return take_offer(model, slot, event);
    case EVENT_GRANT: return take_grant(model, slot, event);
    case EVENT_SENT: return join_port(model, slot, event);
    case EVENT_LINK: return take_link(model, slot, event);
    case EVENT_ARRIVED: return take_arrival(model, slot, event);
    case EVENT_CREDIT: --*window_to(model, event->rank, (int)event->step); return SHOAL_OK;
    case EVENT_BEGINS: return begin_ranks(model, slot);
    case EVENT_SERVES: return begin_servers(model, slot);
    case EVENT_LEFT:
        model->ports[model->host_of[event->rank]].busy = false;
        touch_port(model, model->host_of[event->rank]);
        break;
    default: break;
    }
    return end_step(model, slot, event);
}

/* When the next thing happens; a negative time: never. */
static double next_time(const struct model *model)
{
    const struct sim_run *run = model->run;
    double next_ns = model->events.count ? model->events.entries[0].at_ns : -1;
    if (model->begun_count == run->operation_count || model->slots_used == run->in_flight)
        return next_ns;
    double ready_ns = run->operations[model->first_waiting].ready_ns;
    ready_ns = ready_ns > model->now_ns ? ready_ns : model->now_ns;
    return next_ns < 0 || ready_ns < next_ns ? ready_ns : next_ns;
}

static enum shoal_status take_events(struct model *model)
{
    for (double next_ns; (next_ns = next_time(model)) >= 0;) {
        model->now_ns = next_ns;
        TRY(begin_operations(model));
        while (model->events.count && model->events.entries[0].at_ns <= model->now_ns) {
            struct event event = events_pop(&model->events);
            TRY(take_event(model, &event));
        }
        TRY(use_touched_ports(model));
    }
    if (model->slots_used > 0)
        return base_error(SHOAL_ERR_INTERNAL, "deadlock: ranks wait for each other");
    return SHOAL_OK;
}

static enum shoal_status model_init(struct model *model)
{
    const struct sim_platform *platform = model->platform;
    const char *what = "the simulation's links";
    size_t hosts = (size_t)model->host_count, all_hosts = (size_t)sim_all_hosts(platform);
    TRY(BASE_NEW_ARRAY(&model->ports, hosts, what));
    TRY(BASE_NEW_ARRAY(&model->touched, hosts, what));
    TRY(BASE_NEW_ARRAY(&model->tags, hosts * all_hosts, what));
    for (size_t host = 0; host < hosts; host++)
        model->ports[host].tags = model->tags + host * all_hosts;
    TRY(BASE_NEW_ARRAY(&model->in_free_ns, model->host_count, what));
    TRY(BASE_NEW_ARRAY(&model->up_free_ns, model->switch_count, what));
    TRY(BASE_NEW_ARRAY(&model->down_free_ns, model->switch_count, what));
    TRY(BASE_NEW_ARRAY(&model->rank_free_ns, model->rank_count, what));
    TRY(BASE_NEW_ARRAY(&model->unasked, (size_t)model->rank_count * (size_t)model->size, what));
    if (platform->cores == 0)
        return SHOAL_OK;
    int pools = platform->cores_are_shared ? 1 : model->host_count;
    return BASE_NEW_ARRAY(&model->core_free_ns, pools * platform->cores, what);
}

static void model_release(struct model *model)
{
    for (int i = 0; i < SLOTS_MAX; i++)
        slot_release(&model->slots[i]);
    base_free(model->events.entries);
    for (int host = 0; model->ports && host < model->host_count; host++)
        base_free(model->ports[host].queue.entries);
    base_free(model->ports);
    base_free(model->touched);
    base_free(model->tags);
    base_free(model->in_free_ns);
    base_free(model->up_free_ns);
    base_free(model->down_free_ns);
    base_free(model->rank_free_ns);
    base_free(model->unasked);
    base_free(model->core_free_ns);
}

enum shoal_status sim_run(struct sim_run *run)
{
    BASE_ASSERT(run->in_flight >= 1 && run->in_flight <= SLOTS_MAX && run->operation_count > 0);
    const struct sim_programs *largest = run->operations[0].programs;
    run->one_host = !run->every_rank && sim_is_uniform(run->platform);
    for (int i = 0; i < run->operation_count; i++) {
        const struct sim_programs *programs = run->operations[i].programs;
        run->operations[i].begun = false;
        run->one_host &= programs->symmetry != SIM_NONE;
        largest = programs->size > largest->size ? programs : largest;
    }
    struct model model = {
        .run = run, .platform = run->platform, .host_of = largest->host_of, .size = largest->size};
    model.rank_count = run->one_host ? largest->ranks_per_host : largest->size;
    model.host_count = run->one_host ? 1 : largest->host_count;
    model.switch_count = run->one_host ? 1 : sim_switch_count(run->platform);
    run->end_ns = 0;
    enum shoal_status status = model_init(&model);
    if (status == SHOAL_OK)
        status = take_events(&model);
    run->event_count = model.event_count;
    model_release(&model);
    return status;
}
