/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_link.c: links that stand: how their streams join, and how they end.
 *
 * A failed send does not end the link: what the peer said before is still in the socket, perhaps
 * its good-bye. The end is always found by reading. The first stream tells how a link ends; the end
 * of another one means nothing before the first has been read to its end.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/tcp.h"

/* A host is taken for dead when this long nothing came from it, and it left this many repeats of
 * ours unanswered. A stopped process does not count: its kernel answers. */
#define SILENT_MS      20000
#define SILENT_REPEATS 4

/* Keep-alive, for links on which nothing is under way: found dead after 15 + 3 * 5 s. */
#define KEEP_IDLE_S     15
#define KEEP_INTERVAL_S 5
#define KEEP_COUNT      3

/* Where a link has several streams, what waits in each one's kernel buffer beyond what is on its
 * way: more would bind pieces to a slow stream, less might let a fast one run dry. */
#define UNSENT_BYTES (128 << 10)

void net_tcp_init_link(struct net_tcp_link *link, int peer)
{
    link->peer = peer;
    link->incoming = -1;
    link->first.link = link;
    link->first.fd = -1;
    link->streams[0] = &link->first;
}

enum shoal_status net_tcp_get_stream(struct net_tcp_link *link, int number,
                                     struct net_tcp_stream **out)
{
    struct net_tcp_stream **stream = &link->streams[number];

    if (*stream == NULL) {
        TRY(BASE_NEW(stream, "another stream of a tcp link"));
        (*stream)->link = link;
        (*stream)->number = (uint8_t)number;
        (*stream)->fd = -1;
    }
    *out = *stream;
    return SHOAL_OK;
}

/* ---- the end of a link ---- */

static void close_stream(struct net_tcp_stream *stream)
{
    net_tcp_end_opening(stream);
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
    base_free(stream->piece);
    stream->piece = NULL;
    stream->buffer = NULL;
    stream->begin = stream->end = 0;
    stream->left = 0;
    stream->wants_out = stream->full = stream->paused = stream->end_seen = false;
}

void net_tcp_release_link(struct net_tcp_link *link)
{
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++)
        if (link->streams[i] != NULL)
            close_stream(link->streams[i]);
    link->stream_count = 0;
    link->in_frame = false;
    link->cut = NULL;
    net_frame_queue_drop(&link->queue);
}

void net_tcp_free_streams(struct net_tcp_link *link)
{
    base_free(link->reason);
    for (int i = 1; i < NET_TCP_STREAMS_MAX; i++)
        base_free(link->streams[i]);
}

/* For sends that come later; the beginning of it. */
static void remember_reason(struct net_tcp_link *link, const char *text)
{
    size_t bytes = strnlen(text, NET_TCP_REASON_BYTES - 1) + 1;

    base_free(link->reason);
    link->reason = NULL;
    if (base_alloc(bytes, "why a tcp link ended", (void **)&link->reason) == SHOAL_OK)
        snprintf(link->reason, bytes, "%s", text);
}

const char *net_tcp_reason(const struct net_tcp_link *link)
{
    return link->reason != NULL ? link->reason : "its link has ended";
}

void net_tcp_report_lost(struct net_tcp *ep, const struct net_tcp_link *link, const char *text)
{
    if (ep->closing)
        return;
    ep->event_count++;
    ep->events.lost(ep->events.user, link->peer, link->why, text);
}

/* `text` may be longer than what the link remembers for later sends. */
void net_tcp_lose(struct net_tcp *ep, struct net_tcp_link *link, enum shoal_status why,
                  const char *text)
{
    net_tcp_release_link(link);
    if (link->incoming >= 0)
        net_tcp_drop_incoming(ep, link->incoming);
    link->state = NET_TCP_LINK_LOST;
    link->why = why;
    remember_reason(link, text);
    net_tcp_report_lost(ep, link, text);
}

void net_tcp_lose_stream(struct net_tcp *ep, struct net_tcp_stream *stream, int error)
{
    struct net_tcp_link *link = stream->link;
    char text[2 * NET_TCP_REASON_BYTES], cause[64], way[IF_NAMESIZE + 8] = "";

    if (stream->interface[0] != '\0')
        snprintf(way, sizeof(way), " by %s", stream->interface);
    if (error == 0)
        snprintf(text, sizeof(text),
                 "rank %d at %s closed the connection without good-bye: its process ended",
                 link->peer, stream->peer_text);
    else
        snprintf(text, sizeof(text), "the connection to rank %d at %s%s broke: %s", link->peer,
                 stream->peer_text, way, strerror_r(error, cause, sizeof(cause)));
    if (error != 0)
        net_tcp_say_words(ep, link, stream, text);
    net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST, text);
}

void net_tcp_leave(struct net_tcp *ep, struct net_tcp_link *link)
{
    bool frames_left = link->queue.first != NULL;
    char text[NET_TCP_REASON_BYTES];

    net_tcp_release_link(link);
    link->state = NET_TCP_LINK_LEFT;
    link->why = SHOAL_ERR_PEER_LOST;
    snprintf(text, sizeof(text), "rank %d at %s closed its end in good order", link->peer,
             link->first.peer_text);
    remember_reason(link, text);
    if (ep->closing)
        return;
    ep->event_count++;
    ep->events.left(ep->events.user, link->peer);
    if (frames_left)
        net_tcp_report_lost(ep, link, text);
}

void net_tcp_check_silence(struct net_tcp *ep, struct net_tcp_link *link)
{
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        struct net_tcp_stream *stream = link->streams[i];
        struct tcp_info info = {0};
        socklen_t bytes = sizeof(info);

        if (stream == NULL || stream->fd < 0 ||
            getsockopt(stream->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
            info.tcpi_last_ack_recv < SILENT_MS ||
            info.tcpi_retransmits + info.tcpi_probes < SILENT_REPEATS)
            continue;
        net_tcp_lose_stream(ep, stream, ETIMEDOUT);
        return;
    }
}

/* ---- the beginning ---- */

static void note_ends(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    union net_tcp_address address;
    socklen_t bytes = sizeof(address);

    snprintf(stream->peer_text, sizeof(stream->peer_text), "an unknown address");
    if (getpeername(stream->fd, &address.any, &bytes) == 0)
        net_tcp_address_text(&address, stream->peer_text);
    bytes = sizeof(address);
    stream->interface[0] = '\0';
    if (getsockname(stream->fd, &address.any, &bytes) != 0)
        return;
    net_tcp_address_simplify(&address);
    stream->own = address;
    snprintf(stream->interface, sizeof(stream->interface), "%s",
             net_tcp_interface_name(&ep->interfaces, &address));
}

static void tune(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    int fd = stream->fd;

    net_tcp_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    net_tcp_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    net_tcp_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
    net_tcp_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S);
    net_tcp_set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
    /* An acceptor's answers too leave by the interface that the connector has come to. */
    if (ep->interfaces.way_count > 1 && stream->interface[0] != '\0')
        (void)setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, stream->interface,
                         (socklen_t)strlen(stream->interface));
}

static void open_stream(struct net_tcp *ep, struct net_tcp_link *link, int number)
{
    bool optional = number >= ep->options.streams;
    struct net_tcp_stream *stream;

    if (net_tcp_get_stream(link, number, &stream) == SHOAL_OK) {
        stream->optional = optional;
        net_tcp_start_opening(ep, stream);
    } else if (optional) {
        link->full_house = true;
    } else {
        net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST, base_error_text());
    }
}

static bool is_missing(const struct net_tcp_link *link, int number)
{
    const struct net_tcp_stream *stream = link->streams[number];

    return stream == NULL || (stream->fd < 0 && stream->opening == NULL);
}

static void open_others(struct net_tcp *ep, struct net_tcp_link *link)
{
    bool closing = link->end_seen_ns != 0;

    for (int i = 1; i < ep->streams && link->state == NET_TCP_LINK_STANDING; i++)
        if (is_missing(link, i) && !link->full_house && !closing)
            open_stream(ep, link, i);
}

void net_tcp_give_up_stream(struct net_tcp_stream *stream, const char *text)
{
    base_log(BASE_LOG_INFO, "the link to rank %d has no stream %d: %s", stream->link->peer,
             stream->number, text);
    stream->link->full_house = true;
    net_tcp_end_opening(stream);
}

/* 0: as much as the kernel likes. */
static void limit_unsent(const struct net_tcp_link *link, int bytes)
{
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++)
        if (link->streams[i] != NULL && link->streams[i]->fd >= 0)
            net_tcp_set_option(link->streams[i]->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes);
}

void net_tcp_spread(struct net_tcp *ep, struct net_tcp_link *link)
{
    bool was_alone = link->spread <= 1;

    if (link->connected_here)
        open_others(ep, link);
    if (link->state != NET_TCP_LINK_STANDING)
        return;
    link->spread = 1;
    for (int i = 1; i < ep->streams; i++)
        if (link->streams[i] != NULL && link->streams[i]->fd >= 0)
            link->spread = ep->streams;
    if (link->spread > 1)
        limit_unsent(link, UNSENT_BYTES);
    else if (!was_alone)
        limit_unsent(link, 0);
}

void net_tcp_watch_stream(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    uint32_t events = stream->wants_out ? (uint32_t)EPOLLOUT : 0;

    if (!stream->paused)
        events |= (uint32_t)EPOLLIN;
    else if (!stream->end_seen) /* else it would be told for ever */
        events |= (uint32_t)EPOLLRDHUP;
    if (stream->fd < 0 || events == stream->watched)
        return;
    stream->watched = events;
    net_tcp_watch(ep, stream->fd, NET_TCP_STREAM,
                  stream->link->peer * NET_TCP_STREAMS_MAX + stream->number, events, false);
}

void net_tcp_stand(struct net_tcp *ep, struct net_tcp_stream *stream, int fd)
{
    struct net_tcp_link *link = stream->link;
    bool connected_here = stream->opening != NULL && stream->opening->attempt.fd == fd;

    if (connected_here)
        stream->opening->attempt.fd = -1;
    net_tcp_end_opening(stream);
    stream->fd = fd;
    stream->write_error = 0;
    stream->watched = 0;
    link->stream_count++;
    if (stream->number == 0) {
        link->connected_here = connected_here;
        link->state = NET_TCP_LINK_STANDING;
        if (link->incoming >= 0)
            net_tcp_drop_incoming(ep, link->incoming);
    }
    note_ends(ep, stream);
    if (base_alloc(sizeof(*stream->piece) + NET_TCP_BUFFER_BYTES, "a tcp link's buffer",
                   (void **)&stream->piece) != SHOAL_OK) {
        net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST, base_error_text());
        return;
    }
    stream->piece->head_bytes = 0;
    stream->buffer = (unsigned char *)(stream->piece + 1);
    tune(ep, stream);
    net_tcp_watch_stream(ep, stream);
    net_tcp_timer_at(ep, ep->watch_ns);
    net_tcp_mark_dirty(ep, link);
    net_tcp_spread(ep, link);
}

/* ---- parting ---- */

static void say_good_bye(struct net_tcp *ep, struct net_tcp_link *link)
{
    link->good_bye.header.payload_bytes = NET_TCP_GOOD_BYE;
    net_frame_queue_push(&link->queue, &link->good_bye);
    net_tcp_flush(ep, link);
}

/* Ends the streams' outgoing halves; true when all they carried has reached the peer's host. */
static bool shut_streams(struct net_tcp_link *link)
{
    bool arrived = true;

    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        int unsent = 0;

        if (link->streams[i] == NULL || link->streams[i]->fd < 0)
            continue;
        if (!link->shut)
            (void)shutdown(link->streams[i]->fd, SHUT_WR);
        if (ioctl(link->streams[i]->fd, SIOCOUTQ, &unsent) == 0 && unsent > 0)
            arrived = false;
    }
    link->shut = true;
    return arrived;
}

bool net_tcp_part(struct net_tcp *ep, struct net_tcp_link *link)
{
    if (link->state != NET_TCP_LINK_STANDING || link->first.write_error != 0)
        return true;
    net_tcp_flush(ep, link);
    if (link->queue.first != NULL)
        return false;
    if (link->good_bye.done_bytes == 0) {
        say_good_bye(ep, link);
        if (link->queue.first != NULL)
            return false;
    }
    return shut_streams(link);
}
