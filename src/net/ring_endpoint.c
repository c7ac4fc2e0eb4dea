/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring_endpoint.c: an endpoint over pairs of rings; states in ring_endpoint.h.
 *
 * No lock, no system call while both sides are awake. A side that made news rings the other's bell,
 * which costs a fence and a load unless the other sleeps.
 *
 * Invariants:
 *  1. Everything a peer published before its end (good-bye, death) is delivered before the end is
 *     reported: the sign of the end is read first, the ring after it.
 *  2. After `left` or `lost` of a peer nothing more is delivered from it, and its queue is empty.
 *  3. Before this side sleeps (arm) it has seen, after announcing sleep, that no ring has news and
 *     no queued frame finds space.
 */
#include "net/ring_endpoint.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/shared.h"
#include "base/status.h"

/* While closing: how long to sleep at most before looking again. */
#define CLOSE_NAP_MS 20

static struct net_ring_endpoint *own(struct net_endpoint *endpoint)
{
    return (struct net_ring_endpoint *)endpoint;
}

static bool own_dead(const struct net_ring_endpoint *ep)
{
    return ep->own_dead != NULL && atomic_load(ep->own_dead) != 0;
}

static bool peer_dead(const struct net_ring_link *link)
{
    return link->gone || (link->dead != NULL && atomic_load(link->dead) != 0);
}

static void wake_peer(const struct net_ring_link *link)
{
    if (base_bell_ring(link->bell))
        (void)eventfd_write(link->event_fd, 1);
}

/* ---- the end of a link ---- */

static void report_lost(struct net_ring_endpoint *ep, const struct net_ring_link *link)
{
    ep->event_count++;
    ep->events.lost(ep->events.user, link->peer, link->why, link->reason);
}

static void lose(struct net_ring_endpoint *ep, struct net_ring_link *link, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void lose(struct net_ring_endpoint *ep, struct net_ring_link *link, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(link->reason, sizeof(link->reason), format, arguments);
    va_end(arguments);
    link->state = NET_RING_LINK_LOST;
    link->why = SHOAL_ERR_PEER_LOST;
    net_frame_queue_drop(&link->queue);
    net_ring_end(&link->writer, NET_RING_BROKEN);
    wake_peer(link);
    report_lost(ep, link);
}

static void leave(struct net_ring_endpoint *ep, struct net_ring_link *link)
{
    bool frames_left = link->queue.first != NULL;

    link->state = NET_RING_LINK_LEFT;
    link->why = SHOAL_ERR_PEER_LOST;
    snprintf(link->reason, sizeof(link->reason), "rank %d closed its end in good order",
             link->peer);
    net_frame_queue_drop(&link->queue);
    ep->event_count++;
    ep->events.left(ep->events.user, link->peer);
    if (frames_left)
        report_lost(ep, link);
}

/* Everything was taken; is it the end? */
static void look_for_end(struct net_ring_endpoint *ep, struct net_ring_link *link, bool dead)
{
    enum net_ring_ended ended = net_ring_how_ended(&link->reader);

    if (ended == NET_RING_BROKEN || (ended == NET_RING_LEFT && link->in_payload))
        lose(ep, link, "rank %d closed the link in the middle of a frame", link->peer);
    else if (ended == NET_RING_LEFT || (dead && link->gone_in_order && !link->in_payload))
        leave(ep, link);
    else if (dead && net_ring_available(&link->reader) == 0)
        lose(ep, link, "the process of rank %d on this host ended", link->peer);
}

/* ---- sending ---- */

/* Before the first frame to a peer; without memory the link breaks at the next poll. */
static bool take_outward(struct net_ring_link *link)
{
    if (!link->has_outward)
        link->has_outward =
            base_shared_populate(link->writer.data, link->writer.data_bytes) == SHOAL_OK;
    link->broken |= !link->has_outward;
    return link->has_outward;
}

static void flush(struct net_ring_endpoint *ep, struct net_ring_link *link)
{
    struct net_ring_writer *writer = &link->writer;
    uint64_t stop = writer->written + 2 * writer->data_bytes, rung = writer->written;

    if (link->flushing || own_dead(ep) || link->queue.first == NULL || !take_outward(link))
        return;
    link->flushing = true;
    while (link->queue.first != NULL && writer->written < stop) {
        enum net_ring_put put = net_ring_put(writer, link->queue.first);
        struct net_frame *done;

        if (put == NET_RING_PUT_FULL)
            break;
        if (writer->written - rung >= writer->piece_bytes) {
            wake_peer(link);
            rung = writer->written;
        }
        if (put != NET_RING_PUT_ALL)
            continue;
        done = net_frame_queue_pop(&link->queue);
        if (done != NULL) {
            ep->event_count++;
            ep->events.sent(ep->events.user, done);
        }
    }
    if (writer->written != rung)
        wake_peer(link);
    link->flushing = false;
}

void net_ring_endpoint_send(struct net_endpoint *endpoint, int peer, struct net_frame *frame)
{
    struct net_ring_endpoint *ep = own(endpoint);
    struct net_ring_link *link;

    BASE_ASSERT(peer >= 0 && peer < ep->size && peer != ep->rank);
    if (ep->link_of[peer] < 0) {
        ep->event_count++;
        ep->events.lost(ep->events.user, peer, SHOAL_ERR_PEER_UNREACHABLE,
                        "the rank is not reached through this transport");
        return;
    }
    link = &ep->links[ep->link_of[peer]];
    if (link->state != NET_RING_LINK_OPEN) {
        report_lost(ep, link);
        return;
    }
    net_frame_queue_push(&link->queue, frame);
    if (link->queue.first == frame)
        flush(ep, link);
}

static struct net_ring_link *find_link(struct net_ring_endpoint *ep, int peer)
{
    BASE_ASSERT(peer >= 0 && peer < ep->size);
    return ep->link_of[peer] < 0 ? NULL : &ep->links[ep->link_of[peer]];
}

void net_ring_endpoint_withdraw(struct net_endpoint *endpoint, int peer, struct net_frame *frame)
{
    struct net_ring_link *link = find_link(own(endpoint), peer);

    if (link == NULL || link->state != NET_RING_LINK_OPEN)
        return;
    if (net_frame_queue_withdraw(&link->queue, frame) == SHOAL_ERR_MEMORY)
        link->broken = true;
}

/* ---- receiving ---- */

static void give_space_back(struct net_ring_link *link)
{
    if (net_ring_publish_read(&link->reader))
        wake_peer(link);
}

static void take_header(struct net_ring_endpoint *ep, struct net_ring_link *link)
{
    net_ring_take_header(&link->reader, &link->header);
    ep->event_count++;
    if (link->header.payload_bytes == 0) {
        ep->events.received(ep->events.user, link->peer, &link->header, NULL);
        return;
    }
    link->in_payload = true;
    link->payload_done = 0;
    link->payload = ep->events.arriving(ep->events.user, link->peer, &link->header);
}

static void take_payload(struct net_ring_endpoint *ep, struct net_ring_link *link)
{
    uint64_t missing = link->header.payload_bytes - link->payload_done;
    unsigned char *to = link->payload != NULL ? link->payload + link->payload_done : NULL;

    link->payload_done += net_ring_take(&link->reader, to, missing);
    ep->event_count++;
    if (link->payload_done < link->header.payload_bytes)
        return;
    link->in_payload = false;
    if (link->payload != NULL)
        ep->events.received(ep->events.user, link->peer, &link->header, link->payload);
}

/* At most one ring full, so that a fast peer doesn't keep the others waiting. */
static void receive(struct net_ring_endpoint *ep, struct net_ring_link *link)
{
    struct net_ring_reader *reader = &link->reader;
    uint64_t stop = reader->read + reader->data_bytes;
    bool dead = peer_dead(link);

    while (link->state == NET_RING_LINK_OPEN && reader->read < stop &&
           net_ring_available(reader) > 0) {
        if (link->in_payload)
            take_payload(ep, link);
        else
            take_header(ep, link);
        if (reader->read - reader->read_published >= reader->data_bytes / 4)
            give_space_back(link);
    }
    give_space_back(link);
    if (link->state == NET_RING_LINK_OPEN && reader->read < stop)
        look_for_end(ep, link, dead);
}

void net_ring_endpoint_divert(struct net_endpoint *endpoint, int peer)
{
    struct net_ring_link *link = find_link(own(endpoint), peer);

    if (link != NULL)
        link->payload = NULL;
}

/* ---- the loop ---- */

static void poll_link(struct net_ring_endpoint *ep, struct net_ring_link *link)
{
    if (link->state != NET_RING_LINK_OPEN)
        return;
    if (link->broken) {
        lose(ep, link, "no memory for a frame to rank %d", link->peer);
        return;
    }
    if (link->queue.first != NULL)
        flush(ep, link);
    receive(ep, link);
}

int net_ring_endpoint_poll(struct net_endpoint *endpoint)
{
    struct net_ring_endpoint *ep = own(endpoint);
    int at = ep->next_link;

    if (own_dead(ep))
        return 0;
    ep->event_count = 0;
    for (int i = 0; i < ep->link_count; i++) {
        poll_link(ep, &ep->links[at]);
        at = at + 1 == ep->link_count ? 0 : at + 1;
    }
    ep->next_link = ep->next_link + 1 >= ep->link_count ? 0 : ep->next_link + 1;
    return ep->event_count;
}

int net_ring_endpoint_descriptor(struct net_endpoint *endpoint)
{
    return own(endpoint)->event_fd;
}

static bool link_has_work(struct net_ring_link *link)
{
    if (link->state != NET_RING_LINK_OPEN)
        return false;
    return link->broken || peer_dead(link) || net_ring_has_news(&link->reader) ||
           (link->queue.first != NULL && net_ring_can_put(&link->writer, link->queue.first));
}

bool net_ring_endpoint_arm(struct net_endpoint *endpoint)
{
    struct net_ring_endpoint *ep = own(endpoint);

    atomic_store(&ep->bell->event_fd_waiter, 1);
    if (own_dead(ep))
        return true;
    for (int i = 0; i < ep->link_count; i++) {
        if (link_has_work(&ep->links[i])) {
            atomic_store(&ep->bell->event_fd_waiter, 0);
            return false;
        }
    }
    return true;
}

void net_ring_endpoint_disarm(struct net_endpoint *endpoint)
{
    struct net_ring_endpoint *ep = own(endpoint);
    eventfd_t count;

    atomic_store(&ep->bell->event_fd_waiter, 0);
    (void)eventfd_read(ep->event_fd, &count);
}

void net_ring_endpoint_wake(struct net_endpoint *endpoint)
{
    (void)eventfd_write(own(endpoint)->event_fd, 1);
}

void net_ring_endpoint_peer_gone(struct net_endpoint *endpoint, int peer, bool left_in_order)
{
    struct net_ring_link *link = find_link(own(endpoint), peer);

    if (link != NULL) {
        link->gone_in_order = left_in_order;
        link->gone = true;
    }
}

/* ---- open and close ---- */

static void init_link(struct net_ring_link *link, const struct net_ring_peer *peer,
                      const struct net_ring_endpoint_options *options)
{
    link->peer = peer->peer;
    link->state = NET_RING_LINK_OPEN;
    link->dead = peer->dead;
    link->bell = peer->bell;
    link->event_fd = peer->event_fd;
    link->has_outward = !options->takes_rings;
    net_ring_writer_init(&link->writer, peer->outward, peer->outward_data, options->ring_bytes);
    net_ring_reader_init(&link->reader, peer->inward, peer->inward_data, options->ring_bytes);
}

enum shoal_status net_ring_endpoint_open(const struct net_ring_endpoint_options *options,
                                         unsigned char *address, size_t *address_bytes,
                                         struct net_endpoint **out)
{
    int size = options->endpoint->size, count = options->peer_count;
    size_t link_bytes = sizeof(struct net_ring_link) * (size_t)count;
    struct net_ring_endpoint *ep;
    int32_t rank = options->endpoint->rank;

    TRY(base_alloc(sizeof(*ep) + link_bytes + sizeof(int) * (size_t)size, "an endpoint over rings",
                   (void **)&ep));
    ep->transport = options->transport;
    ep->events = *options->events;
    ep->rank = rank;
    ep->size = size;
    ep->link_count = count;
    ep->links = (struct net_ring_link *)(ep + 1);
    ep->link_of = (int *)(ep->links + count);
    ep->own_dead = options->own_dead;
    ep->bell = options->bell;
    ep->event_fd = options->event_fd;
    for (int i = 0; i < size; i++)
        ep->link_of[i] = -1;
    for (int i = 0; i < count; i++) {
        init_link(&ep->links[i], &options->peers[i], options);
        ep->link_of[options->peers[i].peer] = i;
    }
    memcpy(address, &rank, sizeof(rank));
    *address_bytes = sizeof(rank);
    *out = (struct net_endpoint *)ep;
    return SHOAL_OK;
}

enum shoal_status net_ring_endpoint_set_peers(struct net_endpoint *endpoint,
                                              const unsigned char *const *addresses,
                                              const size_t *address_bytes)
{
    struct net_ring_endpoint *ep = own(endpoint);

    (void)addresses;
    for (int i = 0; i < ep->size; i++) {
        if (address_bytes[i] == 0 && ep->link_of[i] >= 0) {
            ep->links[ep->link_of[i]].state = NET_RING_LINK_NONE;
            ep->link_of[i] = -1;
        }
    }
    return SHOAL_OK;
}

/* One look at a link while closing: sends what it can, throws away what comes, so that a peer that
 * closes too can finish. True while frames are left to send. */
static bool drain_link(struct net_ring_endpoint *ep, struct net_ring_link *link)
{
    bool over;

    if (link->state != NET_RING_LINK_OPEN)
        return false;
    over = link->broken || peer_dead(link);
    if (!over)
        flush(ep, link);
    while (net_ring_available(&link->reader) > 0)
        link->reader.read = link->reader.written_seen;
    give_space_back(link);
    if (over || net_ring_how_ended(&link->reader) != NET_RING_OPEN) {
        net_ring_end(&link->writer, link->broken ? NET_RING_BROKEN : NET_RING_LEFT);
        link->state = NET_RING_LINK_LEFT;
        net_frame_queue_drop(&link->queue);
    }
    return link->queue.first != NULL;
}

static void linger(struct net_ring_endpoint *ep, int64_t linger_ms)
{
    int64_t deadline_ns = base_deadline_ns(linger_ms);

    for (;;) {
        struct pollfd wait = {.fd = ep->event_fd, .events = POLLIN};
        bool busy = false;
        int left_ms = base_left_ms(deadline_ns);

        for (int i = 0; i < ep->link_count; i++)
            busy |= drain_link(ep, &ep->links[i]);
        if (!busy || left_ms == 0)
            return;
        if (net_ring_endpoint_arm((struct net_endpoint *)ep)) {
            (void)poll(&wait, 1, left_ms < CLOSE_NAP_MS ? left_ms : CLOSE_NAP_MS);
            net_ring_endpoint_disarm((struct net_endpoint *)ep);
        }
    }
}

void net_ring_endpoint_close(struct net_endpoint *endpoint, int64_t linger_ms)
{
    struct net_ring_endpoint *ep = own(endpoint);
    bool silent = own_dead(ep);

    if (!silent)
        linger(ep, linger_ms < 0 ? 0 : linger_ms);
    for (int i = 0; i < ep->link_count; i++) {
        struct net_ring_link *link = &ep->links[i];
        const struct net_frame *first = link->queue.first;

        if (link->state == NET_RING_LINK_OPEN && !silent) {
            net_ring_end(&link->writer,
                         first != NULL && first->done_bytes > 0 ? NET_RING_BROKEN : NET_RING_LEFT);
            wake_peer(link);
        }
        net_frame_queue_drop(&link->queue);
    }
    base_free(ep);
}
