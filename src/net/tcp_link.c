/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_link.c: links that stand.
 *
 * Sending: one sendmsg carries headers and payloads of up to 32 queued frames. Within poll() sends
 * are only queued, and each link is flushed once at its end, so that frames that arise together
 * leave together.
 *
 * Receiving: one recvmsg fills first what is missing of the current payload, in its place, and then
 * a small buffer, so that a payload's end and the headers behind it, or many small frames, need
 * one call. A read shorter than asked means that there is no more: no second call finds that out.
 *
 * A failed send does not end the link: what the peer said before is still in the socket, perhaps
 * its good-bye. The end is always found by reading.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/tcp.h"

/* The end of a payload of that length is acknowledged at once. Otherwise the kernel keeps the last
 * acknowledgement back for up to 40 ms, in the hope of data that could carry it, and the sender's
 * kernel would count that as time in which its link was busy (tcp_flow.c). */
#define ACK_NOW_BYTES (16 << 10)

#define GATHER_FRAMES      32
#define SENDS_PER_FLUSH    8
#define READS_PER_POLL     4
#define READ_PAYLOAD_BYTES (UINT64_C(1) << 20)
#define GOOD_BYE_BYTES     UINT64_MAX

/* A host is taken for dead when this long nothing came from it, and it left this many repeats of
 * ours unanswered. A stopped process does not count: its kernel answers. */
#define SILENT_MS      20000
#define SILENT_REPEATS 4

/* Keep-alive, for links on which nothing is under way: found dead after 15 + 3 * 5 s. */
#define KEEP_IDLE_S     15
#define KEEP_INTERVAL_S 5
#define KEEP_COUNT      3

/* ---- the end of a link ---- */

void net_tcp_release_link(struct net_tcp_link *link)
{
    net_tcp_end_opening(link);
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    base_free(link->buffer);
    link->buffer = NULL;
    link->in_payload = false;
    link->wants_out = false;
    net_frame_queue_drop(&link->queue);
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
    snprintf(link->reason, sizeof(link->reason), "%s", text);
    net_tcp_report_lost(ep, link, text);
}

static void lose_connection(struct net_tcp *ep, struct net_tcp_link *link, int error)
{
    char text[NET_TCP_REASON_BYTES], cause[64];

    if (error == 0)
        snprintf(text, sizeof(text),
                 "rank %d at %s closed the connection without good-bye: its process ended",
                 link->peer, link->peer_text);
    else
        snprintf(text, sizeof(text), "the connection to rank %d at %s broke: %s", link->peer,
                 link->peer_text, strerror_r(error, cause, sizeof(cause)));
    net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST, text);
}

static void leave(struct net_tcp *ep, struct net_tcp_link *link)
{
    bool frames_left = link->queue.first != NULL;

    net_tcp_release_link(link);
    link->state = NET_TCP_LINK_LEFT;
    link->why = SHOAL_ERR_PEER_LOST;
    snprintf(link->reason, sizeof(link->reason), "rank %d at %s closed its end in good order",
             link->peer, link->peer_text);
    if (ep->closing)
        return;
    ep->event_count++;
    ep->events.left(ep->events.user, link->peer);
    if (frames_left)
        net_tcp_report_lost(ep, link, link->reason);
}

/* ---- the beginning ---- */

static void set_option(int fd, int level, int name, int value)
{
    /* All of them tune; a link works without. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

void net_tcp_stand(struct net_tcp *ep, struct net_tcp_link *link, int fd)
{
    union net_tcp_address address;
    socklen_t bytes = sizeof(address);
    int incoming = link->incoming;

    if (link->opening != NULL && link->opening->attempt.fd == fd)
        link->opening->attempt.fd = -1;
    net_tcp_end_opening(link);
    if (incoming >= 0) {
        if (ep->incoming[incoming].fd == fd)
            ep->incoming[incoming].fd = -1;
        net_tcp_drop_incoming(ep, incoming);
    }
    link->fd = fd;
    link->state = NET_TCP_LINK_STANDING;
    snprintf(link->peer_text, sizeof(link->peer_text), "an unknown address");
    if (getpeername(fd, &address.any, &bytes) == 0)
        net_tcp_address_text(&address, link->peer_text);
    if (base_alloc(NET_TCP_BUFFER_BYTES, "a tcp link's buffer", (void **)&link->buffer) !=
        SHOAL_OK) {
        net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST, base_error_text());
        return;
    }
    link->begin = link->end = 0;
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
    net_tcp_watch(ep, fd, NET_TCP_LINK, link->peer, EPOLLIN, false);
    net_tcp_timer_at(ep, ep->watch_ns);
    net_tcp_mark_dirty(ep, link);
}

void net_tcp_check_silence(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);

    if (getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return;
    if (info.tcpi_last_ack_recv >= SILENT_MS &&
        info.tcpi_retransmits + info.tcpi_probes >= SILENT_REPEATS)
        lose_connection(ep, link, ETIMEDOUT);
}

/* ---- sending ---- */

void net_tcp_mark_dirty(struct net_tcp *ep, struct net_tcp_link *link)
{
    if (link->is_dirty)
        return;
    link->is_dirty = true;
    link->next_dirty = ep->dirty;
    ep->dirty = link;
}

void net_tcp_flush_dirty(struct net_tcp *ep)
{
    while (ep->dirty != NULL) {
        struct net_tcp_link *link = ep->dirty;

        ep->dirty = link->next_dirty;
        link->is_dirty = false;
        net_tcp_flush(ep, link);
    }
}

static void want_out(struct net_tcp *ep, struct net_tcp_link *link, bool wanted)
{
    if (link->wants_out == wanted)
        return;
    link->wants_out = wanted;
    net_tcp_watch(ep, link->fd, NET_TCP_LINK, link->peer, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN,
                  false);
}

/* Bytes that the frame has on the wire: a good-bye is a header alone. */
static uint64_t wire_bytes(const struct net_tcp_link *link, const struct net_frame *frame)
{
    return frame == &link->good_bye ? NET_HEADER_BYTES : net_frame_bytes(frame);
}

static int gather(const struct net_tcp_link *link, struct iovec *pieces, uint64_t *bytes)
{
    int count = 0;

    *bytes = 0;
    for (struct net_frame *frame = link->queue.first;
         frame != NULL && count + 2 <= 2 * GATHER_FRAMES; frame = frame->next) {
        uint64_t total = wire_bytes(link, frame), done = frame->done_bytes;

        *bytes += total - done;
        if (done < NET_HEADER_BYTES) {
            pieces[count++] =
                (struct iovec){(unsigned char *)&frame->header + done, NET_HEADER_BYTES - done};
            done = NET_HEADER_BYTES;
        }
        if (done < total)
            pieces[count++] = (struct iovec){
                (unsigned char *)(uintptr_t)frame->payload + done - NET_HEADER_BYTES, total - done};
    }
    return count;
}

/* The kernel took `bytes` more: first all is written down, then the senders are told, because they
 * may withdraw other frames from within. */
static void account(struct net_tcp *ep, struct net_tcp_link *link, uint64_t bytes)
{
    for (struct net_frame *frame = link->queue.first; frame != NULL && bytes > 0;
         frame = frame->next) {
        uint64_t missing = wire_bytes(link, frame) - frame->done_bytes;
        uint64_t taken = bytes < missing ? bytes : missing;

        frame->done_bytes += taken;
        bytes -= taken;
    }
    while (link->queue.first != NULL &&
           link->queue.first->done_bytes == wire_bytes(link, link->queue.first)) {
        struct net_frame *frame = net_frame_queue_pop(&link->queue);

        if (frame != NULL && frame != &link->good_bye) {
            ep->event_count++;
            ep->events.sent(ep->events.user, frame);
        }
    }
}

/* False when there is no more to do now. */
static bool send_once(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct iovec pieces[2 * GATHER_FRAMES];
    struct msghdr message = {.msg_iov = pieces};
    uint64_t bytes;
    ssize_t count;

    message.msg_iovlen = (size_t)gather(link, pieces, &bytes);
    count = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
        if (errno == EINTR)
            return true;
        if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
            want_out(ep, link, true);
        } else {
            /* Whatever the error, reading will come to an end. */
            link->write_error = errno;
            want_out(ep, link, false);
            (void)shutdown(link->fd, SHUT_RDWR);
        }
        return false;
    }
    account(ep, link, (uint64_t)count);
    if ((uint64_t)count < bytes) {
        want_out(ep, link, true);
        return false;
    }
    return true;
}

void net_tcp_flush(struct net_tcp *ep, struct net_tcp_link *link)
{
    int sends = 0;

    if (link->state != NET_TCP_LINK_STANDING || link->flushing || link->write_error != 0)
        return;
    link->flushing = true;
    while (link->queue.first != NULL) {
        if (sends++ == SENDS_PER_FLUSH) {
            want_out(ep, link, true);
            break;
        }
        if (!send_once(ep, link))
            break;
    }
    if (link->queue.first == NULL)
        want_out(ep, link, false);
    link->flushing = false;
}

/* ---- receiving ---- */

static void end_payload(struct net_tcp *ep, struct net_tcp_link *link)
{
    link->in_payload = false;
    if (link->header.payload_bytes >= ACK_NOW_BYTES)
        set_option(link->fd, IPPROTO_TCP, TCP_QUICKACK, 1);
    if (link->payload != NULL && !ep->closing) {
        ep->event_count++;
        ep->events.received(ep->events.user, link->peer, &link->header, link->payload);
    }
}

/* Takes one header off the buffer. */
static void take_header(struct net_tcp *ep, struct net_tcp_link *link)
{
    memcpy(&link->header, link->buffer + link->begin, NET_HEADER_BYTES);
    link->begin += NET_HEADER_BYTES;
    if (link->header.payload_bytes == GOOD_BYE_BYTES) {
        leave(ep, link);
        return;
    }
    ep->event_count++;
    if (link->header.payload_bytes == 0) {
        if (!ep->closing)
            ep->events.received(ep->events.user, link->peer, &link->header, NULL);
        return;
    }
    link->in_payload = true;
    link->payload_done = 0;
    link->payload = NULL;
    if (!ep->closing)
        link->payload = ep->events.arriving(ep->events.user, link->peer, &link->header);
}

static void take_payload(struct net_tcp *ep, struct net_tcp_link *link)
{
    uint64_t missing = link->header.payload_bytes - link->payload_done;
    uint64_t count = link->end - link->begin;

    if (count > missing)
        count = missing;
    if (link->payload != NULL)
        memcpy(link->payload + link->payload_done, link->buffer + link->begin, count);
    link->begin += count;
    link->payload_done += count;
    if (count == missing)
        end_payload(ep, link);
}

/* Takes everything off the buffer but the beginning of a header. */
static void take_buffer(struct net_tcp *ep, struct net_tcp_link *link)
{
    while (link->state == NET_TCP_LINK_STANDING) {
        size_t held = link->end - link->begin;

        if (link->in_payload && held > 0)
            take_payload(ep, link);
        else if (!link->in_payload && held >= NET_HEADER_BYTES)
            take_header(ep, link);
        else
            break;
    }
    if (link->state != NET_TCP_LINK_STANDING)
        return;
    memmove(link->buffer, link->buffer + link->begin, link->end - link->begin);
    link->end -= link->begin;
    link->begin = 0;
}

/* One read; false: nothing more is there now, or the link has ended. */
static bool read_once(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct iovec pieces[2];
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 1};
    uint64_t direct = 0, asked, came;
    ssize_t count;

    if (link->in_payload && link->payload != NULL) {
        direct = link->header.payload_bytes - link->payload_done;
        if (direct > READ_PAYLOAD_BYTES)
            direct = READ_PAYLOAD_BYTES;
        pieces[0] = (struct iovec){link->payload + link->payload_done, direct};
        message.msg_iovlen = 2;
    }
    /* Behind a piece that isn't the payload's last, the buffer gets the next bytes of the payload;
     * take_payload copies them. */
    pieces[message.msg_iovlen - 1] =
        (struct iovec){link->buffer + link->end, NET_TCP_BUFFER_BYTES - link->end};
    asked = direct + NET_TCP_BUFFER_BYTES - link->end;
    count = recvmsg(link->fd, &message, MSG_DONTWAIT);
    if (count < 0) {
        if (errno != EAGAIN && errno != EINTR)
            lose_connection(ep, link, errno);
        return false;
    }
    if (count == 0) {
        lose_connection(ep, link, link->write_error);
        return false;
    }
    came = (uint64_t)count;
    link->payload_done += came < direct ? came : direct;
    link->end += came < direct ? 0 : came - direct;
    if (direct > 0 && link->payload_done == link->header.payload_bytes)
        end_payload(ep, link);
    take_buffer(ep, link);
    return came == asked && link->state == NET_TCP_LINK_STANDING;
}

void net_tcp_receive(struct net_tcp *ep, struct net_tcp_link *link)
{
    if (link->broken) {
        net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST,
                     "no memory to finish a frame whose operation ended early");
        return;
    }
    for (int i = 0; i < READS_PER_POLL; i++) {
        if (!read_once(ep, link))
            return;
    }
}

/* ---- parting ---- */

static void say_good_bye(struct net_tcp *ep, struct net_tcp_link *link)
{
    link->good_bye.header.payload_bytes = GOOD_BYE_BYTES;
    net_frame_queue_push(&link->queue, &link->good_bye);
    net_tcp_flush(ep, link);
}

bool net_tcp_part(struct net_tcp *ep, struct net_tcp_link *link)
{
    int unsent = 0;

    if (link->state != NET_TCP_LINK_STANDING || link->write_error != 0)
        return true;
    net_tcp_flush(ep, link);
    if (link->queue.first != NULL)
        return false;
    if (link->good_bye.done_bytes == 0) {
        say_good_bye(ep, link);
        if (link->queue.first != NULL)
            return false;
    }
    if (!link->shut) {
        link->shut = true;
        (void)shutdown(link->fd, SHUT_WR);
    }
    return ioctl(link->fd, SIOCOUTQ, &unsent) != 0 || unsent == 0;
}
