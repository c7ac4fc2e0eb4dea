/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.c: endpoints of the simulated network. poll() reports what the clock has brought to this
 * rank; nothing moves by itself.
 *
 * Unlike the other transports it allocates while frames flow (each piece is a copy), and it takes
 * frames whose payload is NULL though payload_bytes is not 0: their time passes, no bytes are
 * written. So a model of a large job needs no memory for its data.
 */
#include "net/sim.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "net/sim_world.h"

struct sim_endpoint {
    const struct net_transport *transport;
    struct net_events events;
    struct net_sim_world *world;
    struct net_sim_rank *self;
    int rank;
    int event_count;
    bool *excluded; /* [size]; NULL: nobody */
};

static struct sim_endpoint *own(struct net_endpoint *endpoint)
{
    return (struct sim_endpoint *)endpoint;
}

/* ---- ends ---- */

static void report_lost(struct sim_endpoint *ep, const struct net_sim_link *link)
{
    ep->event_count++;
    ep->events.lost(ep->events.user, link->peer, SHOAL_ERR_PEER_LOST, link->reason);
}

static void lose(struct sim_endpoint *ep, struct net_sim_link *link)
{
    if (link->state != NET_SIM_LINK_OPEN)
        return;
    link->state = NET_SIM_LINK_LOST;
    net_frame_queue_drop(&link->queue);
    report_lost(ep, link);
}

static void leave(struct sim_endpoint *ep, struct net_sim_link *link)
{
    bool frames_left = link->queue.first != NULL;

    if (link->state != NET_SIM_LINK_OPEN)
        return;
    link->state = NET_SIM_LINK_LEFT;
    snprintf(link->reason, sizeof(link->reason), "rank %d closed its end in good order",
             link->peer);
    net_frame_queue_drop(&link->queue);
    ep->event_count++;
    ep->events.left(ep->events.user, link->peer);
    if (frames_left)
        report_lost(ep, link);
}

/* ---- sending ---- */

static void lost_at_once(struct sim_endpoint *ep, int peer, enum shoal_status why,
                         const char *reason)
{
    ep->event_count++;
    ep->events.lost(ep->events.user, peer, why, reason);
}

static void send_frame(struct net_endpoint *endpoint, int peer, struct net_frame *frame)
{
    struct sim_endpoint *ep = own(endpoint);
    struct net_sim_link *link;

    BASE_ASSERT(peer >= 0 && peer < ep->world->options.size && peer != ep->rank);
    if (ep->excluded != NULL && ep->excluded[peer]) {
        lost_at_once(ep, peer, SHOAL_ERR_PEER_UNREACHABLE, "the rank has no address");
        return;
    }
    if (net_sim_link_make(ep->world, ep->rank, peer, &link) != SHOAL_OK) {
        lost_at_once(ep, peer, SHOAL_ERR_PEER_UNREACHABLE, base_error_text());
        return;
    }
    if (link->state != NET_SIM_LINK_OPEN) {
        report_lost(ep, link);
        return;
    }
    net_frame_queue_push(&link->queue, frame);
    if (!ep->self->dead)
        net_sim_link_activate(ep->world, ep->rank, link);
}

static void withdraw(struct net_endpoint *endpoint, int peer, struct net_frame *frame)
{
    struct sim_endpoint *ep = own(endpoint);
    struct net_sim_link *link = ep->self->links[peer];

    if (link != NULL && net_frame_queue_withdraw(&link->queue, frame) == SHOAL_ERR_MEMORY)
        net_sim_break_link(ep->world, ep->rank, peer, "no memory to finish a frame");
}

static void report_sent(struct sim_endpoint *ep, struct net_sim_link *link)
{
    struct net_frame *first;

    link->sent_due = false;
    while ((first = link->queue.first) != NULL && first->done_bytes == net_frame_bytes(first)) {
        struct net_frame *frame = net_frame_queue_pop(&link->queue);

        if (frame != NULL) {
            ep->event_count++;
            ep->events.sent(ep->events.user, frame);
        }
    }
}

/* ---- receiving ---- */

static void take_header(struct sim_endpoint *ep, struct net_sim_link *link,
                        const struct net_sim_packet *packet)
{
    link->header = packet->header;
    link->in_payload = link->header.payload_bytes > 0;
    link->payload_done = 0;
    link->payload = NULL;
    if (link->in_payload)
        link->payload = ep->events.arriving(ep->events.user, link->peer, &link->header);
}

static void take_piece(struct sim_endpoint *ep, struct net_sim_link *link,
                       const struct net_sim_packet *packet)
{
    ep->event_count++;
    if (packet->has_header)
        take_header(ep, link, packet);
    if (link->in_payload) {
        if (link->payload != NULL && packet->has_data)
            memcpy(link->payload + link->payload_done, packet->data, packet->payload_bytes);
        link->payload_done += packet->payload_bytes;
        if (link->payload_done < link->header.payload_bytes)
            return;
        link->in_payload = false;
        if (link->payload == NULL)
            return;
    }
    ep->events.received(ep->events.user, link->peer, &link->header, link->payload);
}

static void take_packet(struct sim_endpoint *ep, const struct net_sim_packet *packet)
{
    struct net_sim_link *link = ep->self->links[packet->from];

    if (link->state != NET_SIM_LINK_OPEN)
        return;
    switch (packet->kind) {
    case NET_SIM_PIECE: take_piece(ep, link, packet); break;
    case NET_SIM_GOOD_BYE: leave(ep, link); break;
    case NET_SIM_BREAK:
        snprintf(link->reason, sizeof(link->reason),
                 "rank %d closed the link in the middle of a frame", link->peer);
        lose(ep, link);
        break;
    }
}

static void divert(struct net_endpoint *endpoint, int peer)
{
    struct net_sim_link *link = own(endpoint)->self->links[peer];

    if (link != NULL)
        link->payload = NULL;
}

static int poll_endpoint(struct net_endpoint *endpoint)
{
    struct sim_endpoint *ep = own(endpoint);
    struct net_sim_rank *self = ep->self;

    if (self->dead || net_sim_is_stopped(ep->world, self))
        return 0;
    ep->event_count = 0;
    while (self->sent_due != NULL) {
        struct net_sim_link *link = self->sent_due;

        self->sent_due = link->next_sent;
        report_sent(ep, link);
    }
    while (self->inbox_first != NULL) {
        struct net_sim_packet *packet = self->inbox_first;

        self->inbox_first = packet->next;
        if (self->inbox_first == NULL)
            self->inbox_last = NULL;
        take_packet(ep, packet);
        base_free(packet);
    }
    while (self->end_due != NULL) {
        struct net_sim_link *link = self->end_due;

        self->end_due = link->next_end;
        link->end_due = false;
        lose(ep, link);
    }
    return ep->event_count;
}

/* ---- what a simulated rank does not need ---- */

static int descriptor(struct net_endpoint *endpoint)
{
    (void)endpoint;
    return -1;
}

static bool arm(struct net_endpoint *endpoint)
{
    const struct net_sim_rank *self = own(endpoint)->self;

    return self->inbox_first == NULL && self->sent_due == NULL && self->end_due == NULL;
}

static void disarm(struct net_endpoint *endpoint)
{
    (void)endpoint;
}

static void wake(struct net_endpoint *endpoint)
{
    (void)endpoint;
}

/* ---- open and close ---- */

static enum shoal_status open_endpoint(const struct net_endpoint_options *options,
                                       const struct net_events *events, unsigned char *address,
                                       size_t *address_bytes, struct net_endpoint **out)
{
    struct net_sim_world *world = options->context;
    struct sim_endpoint *ep;
    int32_t rank = options->rank;

    if (world == NULL || options->size != world->options.size || rank < 0 || rank >= options->size)
        return base_error(SHOAL_ERR_ARGUMENT, "rank %d of %d does not fit the simulated world",
                          rank, options->size);
    if (world->ranks[rank].endpoint != NULL || world->ranks[rank].closed)
        return base_error(SHOAL_ERR_STATE, "rank %d was opened in this world before", rank);
    TRY(BASE_NEW(&ep, "a simulated endpoint"));
    ep->transport = &net_sim;
    ep->events = *events;
    ep->world = world;
    ep->self = &world->ranks[rank];
    ep->rank = rank;
    ep->self->endpoint = (struct net_endpoint *)ep;
    memcpy(address, &rank, sizeof(rank));
    *address_bytes = sizeof(rank);
    *out = (struct net_endpoint *)ep;
    return SHOAL_OK;
}

static enum shoal_status set_peers(struct net_endpoint *endpoint,
                                   const unsigned char *const *addresses,
                                   const size_t *address_bytes)
{
    struct sim_endpoint *ep = own(endpoint);

    (void)addresses;
    if (ep->excluded == NULL)
        TRY(BASE_NEW_ARRAY(&ep->excluded, ep->world->options.size, "the excluded ranks"));
    for (int i = 0; i < ep->world->options.size; i++)
        ep->excluded[i] = address_bytes[i] == 0;
    return SHOAL_OK;
}

/* With time to linger, everything queued departs, one piece behind the other, as if a kernel had
 * it. Virtual time can't pass in here, so how long is all the same. */
static bool flush_link(struct sim_endpoint *ep, struct net_sim_link *link)
{
    int64_t at_ns = ep->world->now_ns;

    while (net_sim_next_frame(link) != NULL) {
        if (ep->self->out_free_ns > at_ns)
            at_ns = ep->self->out_free_ns;
        if (!net_sim_depart(ep->world, ep->rank, link, at_ns))
            return false;
    }
    report_sent(ep, link);
    return true;
}

static void close_link(struct sim_endpoint *ep, struct net_sim_link *link, bool linger)
{
    bool whole;

    if (link->state == NET_SIM_LINK_OPEN) {
        const struct net_frame *next;

        if (linger)
            (void)flush_link(ep, link);
        next = net_sim_next_frame(link);
        whole = next == NULL || next->done_bytes == 0;
        link->said_good_bye =
            net_sim_send_mark(ep->world, ep->rank, link, whole ? NET_SIM_GOOD_BYE : NET_SIM_BREAK);
        if (!link->said_good_bye)
            net_sim_break_link(ep->world, ep->rank, link->peer, "the simulation is out of memory");
        link->state = NET_SIM_LINK_LEFT;
    }
    net_frame_queue_drop(&link->queue);
}

static void close_endpoint(struct net_endpoint *endpoint, int64_t linger_ms)
{
    struct sim_endpoint *ep = own(endpoint);
    struct net_sim_rank *self = ep->self;

    for (int i = 0; i < ep->world->options.size; i++) {
        if (self->links[i] != NULL && !self->dead)
            close_link(ep, self->links[i], linger_ms > 0);
        else if (self->links[i] != NULL)
            net_frame_queue_drop(&self->links[i]->queue);
    }
    self->endpoint = NULL;
    self->closed = true;
    base_free(ep->excluded);
    base_free(ep);
}

const struct net_transport net_sim = {
    .name = "sim",
    .open = open_endpoint,
    .set_peers = set_peers,
    .send = send_frame,
    .withdraw = withdraw,
    .divert = divert,
    .poll = poll_endpoint,
    .descriptor = descriptor,
    .arm = arm,
    .disarm = disarm,
    .wake = wake,
    .flow = net_no_flow,
    .use_streams = net_no_streams,
    .close = close_endpoint,
};
