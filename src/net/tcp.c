/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.c: the tcp endpoint: one listening socket for both families, one epoll that holds it, all
 * connections, an eventfd for wake and a timer; the epoll's own descriptor is the endpoint's, and
 * it is level-triggered, so that arm has nothing to look for.
 *
 * In a ping-pong one system call moves a frame: poll() first reads the link from which something
 * came last, and asks epoll only when there is nothing (or when it did so several times in a row,
 * so that the others get their turn).
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "net/tcp.h"

#define LISTEN_BACKLOG  1024
#define HOT_STREAK_MAX  8
#define WATCH_PERIOD_NS (5 * BASE_NS_PER_S)
#define CLOSE_NAP_MS    2

static struct net_tcp *own(struct net_endpoint *endpoint)
{
    return (struct net_tcp *)endpoint;
}

/* ---- descriptors ---- */

void net_tcp_watch(struct net_tcp *ep, int fd, enum net_tcp_kind kind, int number, uint32_t events,
                   bool added)
{
    struct epoll_event event = {.events = events,
                                .data.u64 = (uint64_t)kind << 32 | (uint32_t)number};

    /* Fails only for want of kernel memory; then the connection's deadline ends it. */
    (void)epoll_ctl(ep->epoll_fd, added ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

void net_tcp_timer_at(struct net_tcp *ep, int64_t at_ns)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = at_ns / BASE_NS_PER_S, .tv_nsec = at_ns % BASE_NS_PER_S}};

    if (at_ns >= ep->timer_ns)
        return;
    ep->timer_ns = at_ns;
    (void)timerfd_settime(ep->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

void net_tcp_accept_again(struct net_tcp *ep)
{
    if (ep->accepting || ep->listen_fd < 0)
        return;
    ep->accepting = true;
    net_tcp_watch(ep, ep->listen_fd, NET_TCP_LISTENER, 0, EPOLLIN, false);
}

/* ---- the loop ---- */

static void run_timers(struct net_tcp *ep)
{
    int64_t now_ns = base_now_ns(), next_ns = BASE_NO_DEADLINE;
    bool watch = now_ns >= ep->watch_ns, standing = false;
    uint64_t expirations;

    (void)!read(ep->timer_fd, &expirations, sizeof(expirations));
    ep->timer_ns = BASE_NO_DEADLINE;
    net_tcp_accept_again(ep);
    if (watch)
        ep->watch_ns = now_ns + WATCH_PERIOD_NS;
    net_tcp_incoming_timers(ep, now_ns, &next_ns);
    for (int i = 0; i < ep->options.size; i++) {
        struct net_tcp_link *link = &ep->links[i];

        for (int j = 0; j < NET_TCP_STREAMS_MAX; j++)
            if (link->streams[j] != NULL && link->streams[j]->opening != NULL)
                net_tcp_opening_timer(ep, link->streams[j], now_ns, &next_ns);
        if (link->state == NET_TCP_LINK_STANDING && watch)
            net_tcp_check_silence(ep, link);
        if (link->state == NET_TCP_LINK_STANDING && watch)
            net_tcp_check_ended(ep, link, now_ns);
        standing |= link->state == NET_TCP_LINK_STANDING;
    }
    net_tcp_look_at_interfaces(ep, now_ns, &next_ns);
    net_tcp_go_on_with_words(ep, now_ns, &next_ns);
    if (standing && ep->watch_ns < next_ns)
        next_ns = ep->watch_ns;
    if (next_ns != BASE_NO_DEADLINE)
        net_tcp_timer_at(ep, next_ns);
}

/* While a frame comes in pieces, all streams get their turns. */
static bool may_be_hot(const struct net_tcp_link *link)
{
    return link->state == NET_TCP_LINK_STANDING && !link->in_pieces;
}

static void stream_event(struct net_tcp *ep, struct net_tcp_stream *stream, uint32_t events)
{
    struct net_tcp_link *link;
    int before = ep->event_count;

    if (stream == NULL || stream->fd < 0)
        return;
    link = stream->link;
    if ((events & EPOLLOUT) != 0) {
        stream->full = false;
        net_tcp_flush(ep, link);
    }
    if ((events & ~(uint32_t)EPOLLOUT) == 0 || stream->fd < 0)
        return;
    if (!stream->paused)
        net_tcp_receive(ep, stream);
    else if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
        net_tcp_end_paused(ep, stream, (events & (EPOLLHUP | EPOLLERR)) != 0);
    if (ep->event_count > before && stream->number == 0 && may_be_hot(link))
        ep->hot = link->peer;
}

static void opening_event(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    if (stream != NULL)
        net_tcp_greet_outgoing(ep, stream);
}

static struct net_tcp_stream *stream_of(const struct net_tcp *ep, int number)
{
    return ep->links[number / NET_TCP_STREAMS_MAX].streams[number % NET_TCP_STREAMS_MAX];
}

/* True if the timer is among them: it is served last, after what may make it needless. */
static bool dispatch(struct net_tcp *ep, const struct epoll_event *event)
{
    int number = (int)(uint32_t)event->data.u64;

    switch ((enum net_tcp_kind)(event->data.u64 >> 32)) {
    case NET_TCP_LISTENER: net_tcp_accept(ep); break;
    case NET_TCP_WAKER: break;
    case NET_TCP_TIMER: return true;
    case NET_TCP_INCOMING: net_tcp_greet_incoming(ep, number); break;
    case NET_TCP_INTERFACES: net_tcp_interfaces_changed(ep); break;
    case NET_TCP_OPENING: opening_event(ep, stream_of(ep, number)); break;
    case NET_TCP_STREAM: stream_event(ep, stream_of(ep, number), event->events); break;
    }
    return false;
}

static bool poll_hot(struct net_tcp *ep)
{
    struct net_tcp_link *link = ep->hot >= 0 ? &ep->links[ep->hot] : NULL;

    if (link == NULL || !may_be_hot(link) || ep->hot_streak >= HOT_STREAK_MAX) {
        ep->hot_streak = 0;
        return false;
    }
    net_tcp_receive(ep, &link->first);
    if (ep->event_count == 0) {
        ep->hot_streak = 0;
        return false;
    }
    ep->hot_streak++;
    return true;
}

static int poll_endpoint(struct net_endpoint *endpoint)
{
    struct net_tcp *ep = own(endpoint);
    bool timer = false;

    ep->event_count = 0;
    ep->polling = true;
    if (!poll_hot(ep)) {
        int count = epoll_wait(ep->epoll_fd, ep->ready, NET_TCP_EVENTS_MAX, 0);

        for (int i = 0; i < count; i++)
            timer |= dispatch(ep, &ep->ready[i]);
        /* Deadlines are held against a peer only when all that it said has been heard. */
        if (timer && count < NET_TCP_EVENTS_MAX)
            run_timers(ep);
    }
    net_tcp_flush_dirty(ep);
    ep->polling = false;
    return ep->event_count;
}

static int descriptor(struct net_endpoint *endpoint)
{
    return own(endpoint)->epoll_fd;
}

static bool arm(struct net_endpoint *endpoint)
{
    return own(endpoint)->dirty == NULL;
}

/* Only here is a wake taken back: one that comes between the caller's last look at its own work and
 * its sleep must end the sleep, whatever poll() sees on the way. */
static void disarm(struct net_endpoint *endpoint)
{
    eventfd_t wakes;

    (void)eventfd_read(own(endpoint)->wake_fd, &wakes);
}

static void wake(struct net_endpoint *endpoint)
{
    (void)eventfd_write(own(endpoint)->wake_fd, 1);
}

/* ---- frames ---- */

static void send_frame(struct net_endpoint *endpoint, int peer, struct net_frame *frame)
{
    struct net_tcp *ep = own(endpoint);
    struct net_tcp_link *link;

    BASE_ASSERT(peer >= 0 && peer < ep->options.size && peer != ep->options.rank);
    link = &ep->links[peer];
    if (link->state == NET_TCP_LINK_LEFT || link->state == NET_TCP_LINK_LOST) {
        net_tcp_report_lost(ep, link, net_tcp_reason(link));
        return;
    }
    net_frame_queue_push(&link->queue, frame);
    if (link->state == NET_TCP_LINK_IDLE)
        net_tcp_start_opening(ep, &link->first);
    else if (link->state == NET_TCP_LINK_OPENING || link->first.full)
        return;
    else if (ep->polling)
        net_tcp_mark_dirty(ep, link);
    else
        net_tcp_flush(ep, link);
}

static void withdraw(struct net_endpoint *endpoint, int peer, struct net_frame *frame)
{
    struct net_tcp_link *link = &own(endpoint)->links[peer];

    if (net_tcp_withdraw(link, frame) == SHOAL_ERR_MEMORY) {
        /* The link can't go on. The end of the connection brings poll() here. */
        link->broken = true;
        link->first.write_error = ENOMEM;
        (void)shutdown(link->first.fd, SHUT_RDWR);
    }
}

static void divert(struct net_endpoint *endpoint, int peer)
{
    own(endpoint)->links[peer].payload = NULL;
}

static void use_streams(struct net_endpoint *endpoint, int count)
{
    struct net_tcp *ep = own(endpoint);
    int ways = ep->interfaces.way_count > 1 ? ep->interfaces.way_count : 1;

    BASE_ASSERT(count >= 1);
    count = count < NET_TCP_STREAMS_MAX / ways ? count * ways : NET_TCP_STREAMS_MAX;
    if (ep->fixed_streams || ep->streams == count)
        return;
    ep->streams = count;
    for (int i = 0; i < ep->options.size; i++)
        if (ep->links[i].state == NET_TCP_LINK_STANDING)
            net_tcp_spread(ep, &ep->links[i]);
}

/* ---- open ---- */

static enum shoal_status bind_listener(int fd, int family, int port)
{
    union net_tcp_address any = {.any.sa_family = (sa_family_t)family};

    if (family == AF_INET6)
        any.v6.sin6_port = htons((uint16_t)port);
    else
        any.v4.sin_port = htons((uint16_t)port);
    if (bind(fd, &any.any, net_tcp_address_bytes(&any)) != 0) {
        if (errno == EADDRINUSE)
            return base_error(SHOAL_ERR_OPTION,
                              "port %d (SHOAL_PORT) is in use on this host: choose another one, or "
                              "0 for any free one",
                              port);
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot take port %d", port);
    }
    if (listen(fd, LISTEN_BACKLOG) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot listen on port %d", port);
    return SHOAL_OK;
}

/* One socket for IPv6 and IPv4, or IPv4 alone where the kernel has no IPv6. */
static enum shoal_status open_listener(struct net_tcp *ep, int *family)
{
    int port = (int)base_option_int(OPTION_PORT), yes = 1, no = 0;
    int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

    *family = AF_INET6;
    ep->listen_fd = socket(AF_INET6, type, 0);
    if (ep->listen_fd < 0 && errno == EAFNOSUPPORT) {
        *family = AF_INET;
        ep->listen_fd = socket(AF_INET, type, 0);
    }
    if (ep->listen_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make a listening socket");
    if (*family == AF_INET6)
        (void)setsockopt(ep->listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    (void)setsockopt(ep->listen_fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    return bind_listener(ep->listen_fd, *family, port);
}

static enum shoal_status publish(const struct net_tcp *ep, int family, unsigned char *address,
                                 size_t *address_bytes)
{
    union net_tcp_address bound;
    socklen_t bytes = sizeof(bound);

    if (getsockname(ep->listen_fd, &bound.any, &bytes) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot see the own port");
    return net_tcp_publish(&ep->interfaces,
                           ntohs(family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port),
                           address, address_bytes);
}

static enum shoal_status open_descriptors(struct net_tcp *ep)
{
    ep->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    ep->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ep->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (ep->epoll_fd < 0 || ep->wake_fd < 0 || ep->timer_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make the descriptors to wait on");
    return SHOAL_OK;
}

static void free_endpoint(struct net_tcp *ep)
{
    int fds[] = {ep->listen_fd, ep->wake_fd, ep->timer_fd, ep->interfaces_fd, ep->epoll_fd};

    net_tcp_note_closed(ep);
    net_tcp_free_words(ep);
    for (int i = 0; i < NET_TCP_INCOMING_MAX; i++) {
        if (ep->incoming[i].step != NET_TCP_FREE)
            close(ep->incoming[i].fd);
    }
    for (int i = 0; ep->links != NULL && i < ep->options.size; i++) {
        net_tcp_release_link(&ep->links[i]);
        net_tcp_free_streams(&ep->links[i]);
    }
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    base_free(ep->links);
    base_free(ep->addresses);
    base_free(ep->address_at);
    base_free(ep);
}

/* By itself one stream per interface; fewer would leave some of those that were asked for unused.
 */
static enum shoal_status set_streams(struct net_tcp *ep)
{
    int ways = ep->interfaces.way_count > 1 ? ep->interfaces.way_count : 1;

    if (ep->options.streams < 0 || ep->options.streams > NET_TCP_STREAMS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "%d streams: 1 to %d are possible",
                          ep->options.streams, NET_TCP_STREAMS_MAX);
    ep->fixed_streams = ep->options.streams > 0;
    if (!ep->fixed_streams)
        ep->options.streams = ways;
    if (ep->options.streams < ways)
        return base_error(SHOAL_ERR_OPTION,
                          "SHOAL_STREAMS=%d is fewer than the %d interfaces of SHOAL_INTERFACE=%s: "
                          "each needs a stream",
                          ep->options.streams, ways, ep->options.interface);
    ep->streams = ep->options.streams;
    return SHOAL_OK;
}

static enum shoal_status set_up(struct net_tcp *ep, unsigned char *address, size_t *address_bytes)
{
    int family;

    TRY(BASE_NEW_ARRAY(&ep->links, ep->options.size, "tcp links"));
    for (int i = 0; i < ep->options.size; i++)
        net_tcp_init_link(&ep->links[i], i);
    TRY(open_descriptors(ep));
    TRY(open_listener(ep, &family));
    TRY(net_tcp_read_interfaces(ep->options.interface, family == AF_INET6, &ep->interfaces));
    TRY(set_streams(ep));
    TRY(publish(ep, family, address, address_bytes));
    net_tcp_watch(ep, ep->listen_fd, NET_TCP_LISTENER, 0, EPOLLIN, true);
    net_tcp_watch(ep, ep->wake_fd, NET_TCP_WAKER, 0, EPOLLIN, true);
    net_tcp_watch(ep, ep->timer_fd, NET_TCP_TIMER, 0, EPOLLIN, true);
    net_tcp_watch_interfaces(ep);
    return SHOAL_OK;
}

static enum shoal_status open_endpoint(const struct net_endpoint_options *options,
                                       const struct net_events *events, unsigned char *address,
                                       size_t *address_bytes, struct net_endpoint **out)
{
    struct net_tcp *ep;
    enum shoal_status status;

    if (options->size < 1 || options->rank < 0 || options->rank >= options->size)
        return base_error(SHOAL_ERR_ARGUMENT, "rank %d of %d", options->rank, options->size);
    TRY(BASE_NEW(&ep, "a tcp endpoint"));
    ep->transport = &net_tcp;
    ep->events = *events;
    ep->options = *options;
    ep->epoll_fd = ep->listen_fd = ep->wake_fd = ep->timer_fd = ep->interfaces_fd = -1;
    ep->timer_ns = ep->look_ns = BASE_NO_DEADLINE;
    ep->watch_ns = base_now_ns() + WATCH_PERIOD_NS;
    ep->accepting = true;
    ep->hot = -1;
    status = set_up(ep, address, address_bytes);
    if (status != SHOAL_OK) {
        free_endpoint(ep);
        return status;
    }
    net_tcp_note_open(ep);
    *out = (struct net_endpoint *)ep;
    return SHOAL_OK;
}

static enum shoal_status set_peers(struct net_endpoint *endpoint,
                                   const unsigned char *const *addresses,
                                   const size_t *address_bytes)
{
    struct net_tcp *ep = own(endpoint);
    size_t size = (size_t)ep->options.size, total = 0;
    size_t *at;

    for (size_t i = 0; i < size; i++)
        total += address_bytes[i];
    TRY(BASE_NEW_ARRAY(&at, size + 1, "the places of the peers' addresses"));
    base_free(ep->address_at);
    ep->address_at = at;
    base_free(ep->addresses);
    ep->addresses = NULL;
    TRY(base_alloc(total, "the peers' addresses", (void **)&ep->addresses));
    for (size_t i = 0; i < size; i++) {
        if (address_bytes[i] > 0)
            memcpy(ep->addresses + at[i], addresses[i], address_bytes[i]);
        at[i + 1] = at[i] + address_bytes[i];
    }
    return SHOAL_OK;
}

/* ---- close ---- */

static bool has_frames(const struct net_tcp *ep)
{
    for (int i = 0; i < ep->options.size; i++) {
        if (ep->links[i].queue.first != NULL && ep->links[i].first.write_error == 0)
            return true;
    }
    return false;
}

static void nap(struct net_tcp *ep, int64_t deadline_ns, int nap_ms)
{
    struct pollfd wait = {.fd = ep->epoll_fd, .events = POLLIN};
    int left_ms = base_left_ms(deadline_ns);

    (void)poll(&wait, 1, left_ms < nap_ms ? left_ms : nap_ms);
}

/* Sends what is queued; what comes is read and thrown away, so that a peer that closes too can
 * finish. */
static void linger(struct net_tcp *ep, int64_t deadline_ns)
{
    for (;;) {
        (void)poll_endpoint((struct net_endpoint *)ep);
        if (!has_frames(ep) || base_left_ms(deadline_ns) == 0)
            return;
        nap(ep, deadline_ns, INT_MAX);
    }
}

/* Frames that nobody waited for are dropped, so that the good-bye is next; one that is half-way
 * stays and keeps the good-bye from being said: the peer must not take it for whole. */
static void drop_unsent(struct net_tcp *ep)
{
    for (int i = 0; i < ep->options.size; i++) {
        const struct net_frame *first = ep->links[i].queue.first;

        if (first != NULL && first->done_bytes == 0)
            net_frame_queue_drop(&ep->links[i].queue);
    }
}

static void part(struct net_tcp *ep, int64_t deadline_ns)
{
    for (;;) {
        bool done = net_tcp_words_arrived(ep);

        for (int i = 0; i < ep->options.size; i++)
            done &= net_tcp_part(ep, &ep->links[i]);
        if (done || base_left_ms(deadline_ns) == 0)
            return;
        nap(ep, deadline_ns, CLOSE_NAP_MS);
        (void)poll_endpoint((struct net_endpoint *)ep);
    }
}

static void close_endpoint(struct net_endpoint *endpoint, int64_t linger_ms)
{
    struct net_tcp *ep = own(endpoint);
    int64_t deadline_ns = base_deadline_ns(linger_ms > 0 ? linger_ms : 0);

    ep->closing = true;
    for (int i = 0; i < ep->options.size; i++)
        ep->links[i].payload = NULL;
    linger(ep, deadline_ns);
    drop_unsent(ep);
    part(ep, deadline_ns);
    free_endpoint(ep);
}

const struct net_transport net_tcp = {
    .name = "tcp",
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
    .flow = net_tcp_flow,
    .use_streams = use_streams,
    .close = close_endpoint,
};
