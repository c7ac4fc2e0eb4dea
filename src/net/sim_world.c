/* SPDX-License-Identifier: Apache-2.0 */
/* sim_world.c: the simulated network's clock, events and wires; how it works is in sim_world.h. */
#include "net/sim_world.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#define NEWS_AGAIN_NS 1000 /* when there was no memory to hear them */

/* ---- randomness: xoshiro256** by Blackman and Vigna, seeded by splitmix64 ---- */

static uint64_t rotated(uint64_t value, int by)
{
    return value << by | value >> (64 - by);
}

static void seed_random(uint64_t state[4], uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t mixed = seed += 0x9E3779B97F4A7C15u;

        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
        state[i] = mixed ^ mixed >> 31;
    }
}

static uint64_t next_random(uint64_t state[4])
{
    uint64_t result = rotated(state[1] * 5, 7) * 9, shifted = state[1] << 17;

    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotated(state[3], 45);
    return result;
}

static int64_t draw_latency(struct net_sim_world *world)
{
    uint64_t spread = (uint64_t)(world->options.latency_max_ns - world->options.latency_min_ns) + 1;

    return world->options.latency_min_ns + (int64_t)(next_random(world->random) % spread);
}

/* ---- events ---- */

static bool is_before(const struct net_sim_event *a, const struct net_sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

/* Room for one more event, and beyond it always for a NET_SIM_PORT and a NET_SIM_SENT of each rank,
 * which are planned without asking. Other events that are planned without asking take the place of
 * the one that is happening. */
static enum shoal_status reserve_event(struct net_sim_world *world)
{
    size_t needed = world->event_count + 1 + 2 * (size_t)world->options.size;
    size_t room = world->event_room > 0 ? world->event_room : 64;
    struct net_sim_event *events;

    if (needed <= world->event_room)
        return SHOAL_OK;
    while (room < needed)
        room *= 2;
    TRY(BASE_NEW_ARRAY(&events, room, "simulated events"));
    if (world->event_count > 0)
        memcpy(events, world->events, world->event_count * sizeof(*events));
    base_free(world->events);
    world->events = events;
    world->event_room = room;
    return SHOAL_OK;
}

/* Room was reserved. */
static void plan(struct net_sim_world *world, struct net_sim_event event)
{
    size_t at = world->event_count++;

    BASE_ASSERT(world->event_count <= world->event_room);
    event.order = world->next_order++;
    for (; at > 0 && is_before(&event, &world->events[(at - 1) / 2]); at = (at - 1) / 2)
        world->events[at] = world->events[(at - 1) / 2];
    world->events[at] = event;
}

static struct net_sim_event take_earliest(struct net_sim_world *world)
{
    struct net_sim_event earliest = world->events[0], moved = world->events[--world->event_count];
    size_t at = 0, child;

    for (; (child = 2 * at + 1) < world->event_count; at = child) {
        if (child + 1 < world->event_count &&
            is_before(&world->events[child + 1], &world->events[child]))
            child++;
        if (!is_before(&world->events[child], &moved))
            break;
        world->events[at] = world->events[child];
    }
    if (world->event_count > 0)
        world->events[at] = moved;
    return earliest;
}

/* For what the driver orders: without memory it does not happen, and that is said. */
static void plan_order(struct net_sim_world *world, struct net_sim_event event)
{
    if (event.at_ns < world->now_ns)
        event.at_ns = world->now_ns;
    if (reserve_event(world) != SHOAL_OK)
        base_log(BASE_LOG_ERROR, "simulation: %s", base_error_text());
    else
        plan(world, event);
}

/* ---- links ---- */

enum shoal_status net_sim_link_make(struct net_sim_world *world, int rank, int peer,
                                    struct net_sim_link **out)
{
    struct net_sim_link **mine = &world->ranks[rank].links[peer];
    struct net_sim_link **theirs = &world->ranks[peer].links[rank];

    if (*mine == NULL) {
        TRY(BASE_NEW(mine, "a simulated link"));
        (*mine)->peer = peer;
    }
    if (*theirs == NULL) {
        TRY(BASE_NEW(theirs, "a simulated link"));
        (*theirs)->peer = rank;
    }
    *out = *mine;
    return SHOAL_OK;
}

struct net_frame *net_sim_next_frame(const struct net_sim_link *link)
{
    struct net_frame *frame = link->queue.first;

    while (frame != NULL && frame->done_bytes == net_frame_bytes(frame))
        frame = frame->next;
    return frame;
}

bool net_sim_is_stopped(const struct net_sim_world *world, const struct net_sim_rank *rank)
{
    return world->now_ns < rank->stopped_until_ns;
}

static void plan_port(struct net_sim_world *world, int rank)
{
    struct net_sim_rank *self = &world->ranks[rank];

    if (self->port_planned || self->active_first == NULL)
        return;
    self->port_planned = true;
    plan(world, (struct net_sim_event){
                    .at_ns = self->out_free_ns > world->now_ns ? self->out_free_ns : world->now_ns,
                    .kind = NET_SIM_PORT,
                    .rank = rank});
}

void net_sim_link_activate(struct net_sim_world *world, int rank, struct net_sim_link *link)
{
    struct net_sim_rank *self = &world->ranks[rank];

    if (!link->active) {
        link->active = true;
        link->next_active = NULL;
        if (self->active_last != NULL)
            self->active_last->next_active = link;
        else
            self->active_first = link;
        self->active_last = link;
    }
    plan_port(world, rank);
}

static void note_end(struct net_sim_rank *rank, struct net_sim_link *link, const char *reason)
{
    if (link == NULL || link->end_due || link->state != NET_SIM_LINK_OPEN)
        return;
    snprintf(link->reason, sizeof(link->reason), "%s", reason);
    link->end_due = true;
    link->next_end = rank->end_due;
    rank->end_due = link;
}

void net_sim_break_link(struct net_sim_world *world, int rank, int peer, const char *reason)
{
    note_end(&world->ranks[rank], world->ranks[rank].links[peer], reason);
    note_end(&world->ranks[peer], world->ranks[peer].links[rank], reason);
}

/* ---- packets ---- */

/* With room for its events, of which there is one at a time. */
static enum shoal_status make_packet(struct net_sim_world *world, int from, int to,
                                     uint64_t data_bytes, struct net_sim_packet **out)
{
    struct net_sim_packet *packet;

    TRY(reserve_event(world));
    TRY(base_alloc(sizeof(*packet) + data_bytes, "a simulated packet", (void **)&packet));
    packet->from = from;
    packet->to = to;
    *out = packet;
    return SHOAL_OK;
}

static void launch(struct net_sim_world *world, struct net_sim_link *link,
                   struct net_sim_packet *packet, int64_t at_ns)
{
    int64_t arrival_ns = at_ns + draw_latency(world);

    if (arrival_ns < link->last_arrival_ns)
        arrival_ns = link->last_arrival_ns;
    link->last_arrival_ns = arrival_ns;
    plan(world, (struct net_sim_event){.at_ns = arrival_ns,
                                       .kind = NET_SIM_ARRIVE,
                                       .rank = packet->to,
                                       .peer = packet->from,
                                       .packet = packet});
}

static int64_t port_time(const struct net_sim_world *world, uint64_t bytes)
{
    if (world->options.bytes_per_ns <= 0)
        return 0;
    return (int64_t)((double)bytes / world->options.bytes_per_ns + 0.5);
}

static uint64_t draw_piece(struct net_sim_world *world, uint64_t missing)
{
    uint64_t piece;

    if (world->options.piece_bytes_max == 0 || missing == 0)
        return missing;
    piece = 1 + next_random(world->random) % world->options.piece_bytes_max;
    return piece < missing ? piece : missing;
}

bool net_sim_depart(struct net_sim_world *world, int rank, struct net_sim_link *link, int64_t at_ns)
{
    struct net_sim_rank *self = &world->ranks[rank];
    struct net_frame *frame = net_sim_next_frame(link);
    bool first = frame->done_bytes == 0, has_data = frame->payload != NULL;
    uint64_t offset = first ? 0 : frame->done_bytes - NET_HEADER_BYTES;
    uint64_t bytes = draw_piece(world, frame->header.payload_bytes - offset);
    struct net_sim_packet *packet;

    if (make_packet(world, rank, link->peer, has_data ? bytes : 0, &packet) != SHOAL_OK)
        return false;
    packet->kind = NET_SIM_PIECE;
    packet->has_header = first;
    packet->header = frame->header;
    packet->payload_bytes = bytes;
    packet->has_data = has_data;
    packet->port_ns = port_time(world, bytes + (first ? NET_HEADER_BYTES : 0));
    if (has_data && bytes > 0)
        memcpy(packet->data, (const unsigned char *)frame->payload + offset, bytes);
    frame->done_bytes = NET_HEADER_BYTES + offset + bytes;
    self->bytes += bytes;
    self->frames += frame->done_bytes == net_frame_bytes(frame);
    self->out_free_ns = at_ns + packet->port_ns;
    launch(world, link, packet, at_ns);
    return true;
}

bool net_sim_send_mark(struct net_sim_world *world, int rank, struct net_sim_link *link,
                       enum net_sim_packet_kind kind)
{
    struct net_sim_rank *self = &world->ranks[rank];
    struct net_sim_packet *packet;

    if (make_packet(world, rank, link->peer, 0, &packet) != SHOAL_OK)
        return false;
    packet->kind = kind;
    launch(world, link, packet,
           self->out_free_ns > world->now_ns ? self->out_free_ns : world->now_ns);
    return true;
}

static bool is_cut(const struct net_sim_world *world, int a, int b)
{
    for (const struct net_sim_cut *cut = world->cuts; cut != NULL; cut = cut->next) {
        if (world->now_ns >= cut->at_ns &&
            ((cut->a == a && cut->b == b) || (cut->a == b && cut->b == a)))
            return true;
    }
    return false;
}

/* ---- what happens; each returns the rank whose poll() will see it, or -1 ---- */

static int seen_by(const struct net_sim_world *world, int rank)
{
    const struct net_sim_rank *self = &world->ranks[rank];

    return self->endpoint == NULL || self->dead || net_sim_is_stopped(world, self) ? -1 : rank;
}

static int serve_port(struct net_sim_world *world, int rank)
{
    struct net_sim_rank *self = &world->ranks[rank];
    struct net_sim_link *link = self->active_first;

    self->port_planned = false;
    if (self->dead || link == NULL)
        return -1;
    if (net_sim_is_stopped(world, self)) {
        self->out_free_ns = self->stopped_until_ns;
        plan_port(world, rank);
        return -1;
    }
    self->active_first = link->next_active;
    if (self->active_first == NULL)
        self->active_last = NULL;
    link->active = false;
    if (net_sim_next_frame(link) != NULL) {
        if (!net_sim_depart(world, rank, link, world->now_ns)) {
            net_sim_break_link(world, rank, link->peer, "the simulation is out of memory");
            return seen_by(world, rank);
        }
        if (link->queue.first->done_bytes == net_frame_bytes(link->queue.first))
            plan(world, (struct net_sim_event){.at_ns = self->out_free_ns,
                                               .kind = NET_SIM_SENT,
                                               .rank = rank,
                                               .peer = link->peer});
    }
    if (net_sim_next_frame(link) != NULL)
        net_sim_link_activate(world, rank, link);
    else
        plan_port(world, rank);
    return -1;
}

static int note_sent(struct net_sim_world *world, int rank, int peer)
{
    struct net_sim_rank *self = &world->ranks[rank];
    struct net_sim_link *link = self->links[peer];

    if (self->dead || link->sent_due)
        return -1;
    link->sent_due = true;
    link->next_sent = self->sent_due;
    self->sent_due = link;
    return seen_by(world, rank);
}

/* A piece for a rank that closed before there was a link: like a port where nobody listens. */
static int bounce(struct net_sim_world *world, struct net_sim_packet *packet)
{
    int from = packet->from, to = packet->to;
    bool knows = world->ranks[to].links[from]->said_good_bye;

    base_free(packet);
    if (knows)
        return -1;
    note_end(&world->ranks[from], world->ranks[from].links[to], "the rank has closed its end");
    return seen_by(world, from);
}

static int arrive(struct net_sim_world *world, struct net_sim_event event)
{
    struct net_sim_rank *self = &world->ranks[event.rank];

    if (self->dead || is_cut(world, event.rank, event.peer)) {
        base_free(event.packet);
        return -1;
    }
    if (self->closed)
        return bounce(world, event.packet);
    if (self->in_free_ns < world->now_ns)
        self->in_free_ns = world->now_ns;
    self->in_free_ns += event.packet->port_ns;
    event.at_ns = self->in_free_ns;
    event.kind = NET_SIM_DELIVER;
    plan(world, event);
    return -1;
}

static int deliver(struct net_sim_world *world, int rank, struct net_sim_packet *packet)
{
    struct net_sim_rank *self = &world->ranks[rank];

    if (self->dead || self->closed) {
        base_free(packet);
        return -1;
    }
    packet->next = NULL;
    if (self->inbox_last != NULL)
        self->inbox_last->next = packet;
    else
        self->inbox_first = packet;
    self->inbox_last = packet;
    return seen_by(world, rank);
}

static void empty_inbox(struct net_sim_rank *rank)
{
    while (rank->inbox_first != NULL) {
        struct net_sim_packet *packet = rank->inbox_first;

        rank->inbox_first = packet->next;
        base_free(packet);
    }
    rank->inbox_last = NULL;
}

static int die(struct net_sim_world *world, int rank)
{
    struct net_sim_rank *self = &world->ranks[rank];

    if (self->dead)
        return -1;
    self->dead = true;
    empty_inbox(self);
    for (int i = 0; i < world->options.size; i++) {
        if (self->links[i] != NULL)
            net_frame_queue_drop(&self->links[i]->queue);
    }
    /* In the place that NET_SIM_KILL has just left. */
    plan(world, (struct net_sim_event){.at_ns = world->now_ns + draw_latency(world),
                                       .kind = NET_SIM_NEWS,
                                       .rank = rank,
                                       .peer = 0});
    return -1;
}

/* The news goes from peer to peer at the same moment; what is still on its way from the dead rank
 * is lost. */
static int spread_news(struct net_sim_world *world, struct net_sim_event event)
{
    int peer = event.peer, dead = event.rank;
    struct net_sim_link *link;
    char reason[64];

    if (peer >= world->options.size)
        return -1;
    if (peer == dead || world->ranks[peer].closed || world->ranks[peer].dead ||
        is_cut(world, peer, dead)) {
        event.peer++;
        plan(world, event);
        return -1;
    }
    if (net_sim_link_make(world, peer, dead, &link) != SHOAL_OK) {
        event.at_ns += NEWS_AGAIN_NS;
        plan(world, event);
        return -1;
    }
    event.peer++;
    plan(world, event);
    snprintf(reason, sizeof(reason), "the process of rank %d ended", dead);
    note_end(&world->ranks[peer], link, reason);
    return seen_by(world, peer);
}

static int happen(struct net_sim_world *world, struct net_sim_event event)
{
    struct net_sim_rank *self = &world->ranks[event.rank];

    switch (event.kind) {
    case NET_SIM_PORT: return serve_port(world, event.rank);
    case NET_SIM_SENT: return note_sent(world, event.rank, event.peer);
    case NET_SIM_ARRIVE: return arrive(world, event);
    case NET_SIM_DELIVER: return deliver(world, event.rank, event.packet);
    case NET_SIM_KILL: return die(world, event.rank);
    case NET_SIM_NEWS: return spread_news(world, event);
    case NET_SIM_STOP:
        if (self->stopped_until_ns < event.until_ns)
            self->stopped_until_ns = event.until_ns;
        event.at_ns = event.until_ns;
        event.kind = NET_SIM_RESUME;
        plan(world, event);
        return -1;
    case NET_SIM_RESUME: return seen_by(world, event.rank);
    }
    return -1;
}

/* ---- the driver's calls ---- */

enum shoal_status net_sim_world_create(const struct net_sim_options *options,
                                       struct net_sim_world **out)
{
    struct net_sim_world *world;
    size_t size = (size_t)options->size;
    enum shoal_status status;

    if (options->size < 1 || options->latency_min_ns < 0 ||
        options->latency_max_ns < options->latency_min_ns)
        return base_error(SHOAL_ERR_ARGUMENT, "%d ranks, latency %lld to %lld ns", options->size,
                          (long long)options->latency_min_ns, (long long)options->latency_max_ns);
    TRY(BASE_NEW(&world, "a simulated world"));
    world->options = *options;
    seed_random(world->random, options->seed);
    status = BASE_NEW_ARRAY(&world->ranks, size, "simulated ranks");
    for (size_t i = 0; i < size && status == SHOAL_OK; i++)
        status = BASE_NEW_ARRAY(&world->ranks[i].links, size, "a simulated rank's links");
    if (status == SHOAL_OK)
        status = reserve_event(world);
    if (status != SHOAL_OK) {
        net_sim_world_free(world);
        return status;
    }
    *out = world;
    return SHOAL_OK;
}

static void free_rank(struct net_sim_rank *rank, int size)
{
    empty_inbox(rank);
    for (int i = 0; rank->links != NULL && i < size; i++) {
        if (rank->links[i] != NULL)
            net_frame_queue_drop(&rank->links[i]->queue);
        base_free(rank->links[i]);
    }
    base_free(rank->links);
}

void net_sim_world_free(struct net_sim_world *world)
{
    if (world == NULL)
        return;
    for (size_t i = 0; i < world->event_count; i++)
        base_free(world->events[i].packet);
    base_free(world->events);
    for (int i = 0; world->ranks != NULL && i < world->options.size; i++)
        free_rank(&world->ranks[i], world->options.size);
    base_free(world->ranks);
    while (world->cuts != NULL) {
        struct net_sim_cut *cut = world->cuts;

        world->cuts = cut->next;
        base_free(cut);
    }
    base_free(world);
}

int64_t net_sim_now_ns(const struct net_sim_world *world)
{
    return world->now_ns;
}

int net_sim_step(struct net_sim_world *world, int64_t until_ns)
{
    while (world->event_count > 0 && world->events[0].at_ns <= until_ns) {
        struct net_sim_event event = take_earliest(world);
        int rank;

        world->now_ns = event.at_ns;
        rank = happen(world, event);
        if (rank >= 0)
            return rank;
    }
    if (until_ns != BASE_NO_DEADLINE && until_ns > world->now_ns)
        world->now_ns = until_ns;
    return -1;
}

void net_sim_kill(struct net_sim_world *world, int rank, int64_t at_ns)
{
    plan_order(world, (struct net_sim_event){.at_ns = at_ns, .kind = NET_SIM_KILL, .rank = rank});
}

void net_sim_stop(struct net_sim_world *world, int rank, int64_t from_ns, int64_t to_ns)
{
    plan_order(world, (struct net_sim_event){
                          .at_ns = from_ns, .kind = NET_SIM_STOP, .rank = rank, .until_ns = to_ns});
}

void net_sim_cut(struct net_sim_world *world, int rank_a, int rank_b, int64_t at_ns)
{
    struct net_sim_cut *cut;

    if (BASE_NEW(&cut, "a simulated cut") != SHOAL_OK) {
        base_log(BASE_LOG_ERROR, "simulation: %s", base_error_text());
        return;
    }
    *cut = (struct net_sim_cut){.a = rank_a, .b = rank_b, .at_ns = at_ns, .next = world->cuts};
    world->cuts = cut;
}

uint64_t net_sim_frames(const struct net_sim_world *world, int rank)
{
    return world->ranks[rank].frames;
}

uint64_t net_sim_bytes(const struct net_sim_world *world, int rank)
{
    return world->ranks[rank].bytes;
}
