/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_receive.c: frames in.
 *
 * One recvmsg fills first what is missing of the current payload, in its place, and then a small
 * buffer, so that a payload's end and the headers behind it, or many small frames, need one call.
 * A read shorter than asked means that there is no more: no second call finds that out. Behind a
 * piece only the next header is read, for the bytes behind that have a place of their own.
 *
 * A stream is paused when its next message can't be taken yet: a frame while another one is still
 * coming in pieces, or a piece of a frame whose header has not come. The end of a frame, or the
 * beginning of one in pieces, lets paused streams go on. If what it waits for was lost with another
 * stream, it ends with the peer's words, which are then looked for behind it.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/tcp.h"

/* The end of a payload of that length is acknowledged at once. Otherwise the kernel keeps the last
 * acknowledgement back for up to 40 ms, in the hope of data that could carry it, and the sender's
 * kernel would count that as time in which its link was busy (tcp_flow.c). */
#define ACK_NOW_BYTES (16 << 10)

/* When a stream's end was read, what the other streams still have to say comes within this time. */
#define END_LIMIT_NS (3 * BASE_NS_PER_S)

/* Of what is left of a payload: less comes in one packet or two, and of more a part is taken while
 * the rest comes. */
#define LOW_WATER_MIN (UINT64_C(16) << 10)
#define LOW_WATER_MAX (UINT64_C(256) << 10)

#define READS_PER_POLL     4
#define READ_PAYLOAD_BYTES (UINT64_C(1) << 20)

/* What became of the message at the front of a stream's buffer. */
enum intake {
    INTAKE_TAKEN,
    INTAKE_PARTIAL, /* more of it has to come first */
    INTAKE_PAUSED   /* it waits for another stream */
};

/* ---- frames ---- */

static void begin_frame(struct net_tcp *ep, struct net_tcp_link *link,
                        const struct net_header *header)
{
    link->header = *header;
    ep->event_count++;
    if (header->payload_bytes == 0) {
        if (!ep->closing)
            ep->events.received(ep->events.user, link->peer, &link->header, NULL);
        return;
    }
    link->in_frame = true;
    link->payload_left = header->payload_bytes;
    link->payload = NULL;
    if (!ep->closing)
        link->payload = ep->events.arriving(ep->events.user, link->peer, &link->header);
}

/* `bytes` more of the payload have come on the stream. */
static void advance(struct net_tcp *ep, struct net_tcp_stream *stream, uint64_t bytes)
{
    struct net_tcp_link *link = stream->link;

    stream->at += bytes;
    stream->left -= bytes;
    link->payload_left -= bytes;
    if (stream->left == 0 && link->header.payload_bytes >= ACK_NOW_BYTES)
        net_tcp_set_option(stream->fd, IPPROTO_TCP, TCP_QUICKACK, 1);
    if (link->payload_left > 0)
        return;
    link->in_frame = false;
    link->in_pieces = false;
    link->resume = true;
    if (link->payload != NULL && !ep->closing) {
        ep->event_count++;
        ep->events.received(ep->events.user, link->peer, &link->header, link->payload);
    }
}

/* ---- messages ---- */

static void lose_by_nonsense(struct net_tcp *ep, struct net_tcp_link *link)
{
    char text[NET_TCP_REASON_BYTES];

    snprintf(text, sizeof(text), "rank %d at %s sends what is not shoal's protocol", link->peer,
             link->first.peer_text);
    net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST, text);
}

static enum intake take_piece(struct net_tcp *ep, struct net_tcp_stream *stream,
                              const struct net_header *header)
{
    struct net_tcp_link *link = stream->link;
    uint64_t bytes = header->payload_bytes & ~NET_TCP_KINDS;
    uint64_t whole = link->header.payload_bytes;
    struct net_tcp_place place;

    memcpy(&place, header->body, sizeof(place));
    if (stream->number > 0 && place.frame > link->pieced_count)
        return INTAKE_PAUSED;
    if (!link->in_pieces || place.frame != link->pieced_count || place.at > whole ||
        bytes > whole - place.at || bytes > link->payload_left) {
        lose_by_nonsense(ep, link);
        return INTAKE_TAKEN;
    }
    stream->at = place.at;
    stream->left = bytes;
    return INTAKE_TAKEN;
}

static void lose_by_words(struct net_tcp *ep, struct net_tcp_stream *stream,
                          const unsigned char *words, uint64_t bytes)
{
    char text[NET_TCP_WORDS_BYTES + NET_TCP_TEXT_BYTES + 64];

    snprintf(text, sizeof(text), "rank %d at %s gave the link up: %.*s", stream->link->peer,
             stream->peer_text, (int)bytes, (const char *)words);
    net_tcp_lose(ep, stream->link, SHOAL_ERR_PEER_LOST, text);
}

static enum intake take_words(struct net_tcp *ep, struct net_tcp_stream *stream,
                              const struct net_header *header)
{
    uint64_t bytes = header->payload_bytes & ~NET_TCP_KINDS;

    if (bytes > NET_TCP_WORDS_BYTES) {
        lose_by_nonsense(ep, stream->link);
        return INTAKE_TAKEN;
    }
    if (stream->end - stream->begin < NET_HEADER_BYTES + bytes)
        return INTAKE_PARTIAL;
    lose_by_words(ep, stream, stream->buffer + stream->begin + NET_HEADER_BYTES, bytes);
    return INTAKE_TAKEN;
}

/* Where among messages words begin; NULL: there are none. */
static const unsigned char *find_words(const unsigned char *bytes, size_t count,
                                       uint64_t *word_bytes)
{
    struct net_header header;

    for (uint64_t at = 0; at <= count && count - at >= NET_HEADER_BYTES;) {
        uint64_t length, kind;

        memcpy(&header, bytes + at, sizeof(header));
        at += NET_HEADER_BYTES;
        kind = header.payload_bytes & NET_TCP_KINDS;
        length = header.payload_bytes & ~NET_TCP_KINDS;
        if (header.payload_bytes == NET_TCP_GOOD_BYE)
            return NULL;
        if (kind == NET_TCP_WORDS && length <= NET_TCP_WORDS_BYTES && length <= count - at) {
            *word_bytes = length;
            return bytes + at;
        }
        if (kind != NET_TCP_CUT)
            at += length;
    }
    return NULL;
}

static void look_for_words(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    size_t held = stream->end - stream->begin;
    const unsigned char *words;
    unsigned char *bytes;
    uint64_t word_bytes;
    ssize_t peeked;
    int waiting = 0;

    stream->end_seen = true;
    if (ioctl(stream->fd, FIONREAD, &waiting) == 0 &&
        base_alloc(held + (size_t)waiting, "what a tcp stream holds", (void **)&bytes) ==
            SHOAL_OK) {
        memcpy(bytes, stream->buffer + stream->begin, held);
        peeked = recv(stream->fd, bytes + held, (size_t)waiting, MSG_PEEK | MSG_DONTWAIT);
        words = find_words(bytes, held + (peeked > 0 ? (size_t)peeked : 0), &word_bytes);
        if (words != NULL)
            lose_by_words(ep, stream, words, word_bytes);
        base_free(bytes);
    }
}

/* A frame, whole or in pieces. */
static enum intake take_frame(struct net_tcp *ep, struct net_tcp_stream *stream,
                              struct net_header *header)
{
    struct net_tcp_link *link = stream->link;
    bool in_pieces = (header->payload_bytes & NET_TCP_CUT) != 0;

    header->payload_bytes &= ~NET_TCP_KINDS;
    if (stream->number > 0 || (in_pieces && header->payload_bytes == 0)) {
        lose_by_nonsense(ep, link);
        return INTAKE_TAKEN;
    }
    link->in_pieces = in_pieces;
    link->pieced_count += in_pieces;
    link->resume |= in_pieces;
    stream->at = 0;
    stream->left = in_pieces ? 0 : header->payload_bytes;
    begin_frame(ep, link, header);
    return INTAKE_TAKEN;
}

static enum intake take_message(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_link *link = stream->link;
    struct net_header header;
    uint64_t kind;
    enum intake intake;

    memcpy(&header, stream->buffer + stream->begin, NET_HEADER_BYTES);
    kind = header.payload_bytes & NET_TCP_KINDS;
    if (header.payload_bytes != NET_TCP_GOOD_BYE && kind == NET_TCP_WORDS)
        return take_words(ep, stream, &header);
    if (header.payload_bytes != NET_TCP_GOOD_BYE && kind == NET_TCP_PIECE) {
        intake = take_piece(ep, stream, &header);
    } else if (link->in_frame) {
        return INTAKE_PAUSED;
    } else if (header.payload_bytes == NET_TCP_GOOD_BYE) {
        net_tcp_leave(ep, link);
        return INTAKE_TAKEN;
    } else {
        stream->begin += NET_HEADER_BYTES;
        return take_frame(ep, stream, &header);
    }
    if (intake == INTAKE_TAKEN)
        stream->begin += NET_HEADER_BYTES;
    return intake;
}

static void take_payload(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_link *link = stream->link;
    uint64_t count = stream->end - stream->begin;

    if (count > stream->left)
        count = stream->left;
    if (link->payload != NULL)
        memcpy(link->payload + stream->at, stream->buffer + stream->begin, count);
    stream->begin += count;
    advance(ep, stream, count);
}

/* Takes everything off the buffer but what has to wait. */
static void take_buffer(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    const struct net_tcp_link *link = stream->link;
    enum intake intake = INTAKE_TAKEN;

    while (link->state == NET_TCP_LINK_STANDING && intake == INTAKE_TAKEN) {
        size_t held = stream->end - stream->begin;

        if (stream->left > 0 && held > 0)
            take_payload(ep, stream);
        else if (stream->left == 0 && held >= NET_HEADER_BYTES)
            intake = take_message(ep, stream);
        else
            break;
    }
    if (link->state != NET_TCP_LINK_STANDING)
        return;
    stream->paused = intake == INTAKE_PAUSED;
    memmove(stream->buffer, stream->buffer + stream->begin, stream->end - stream->begin);
    stream->end -= stream->begin;
    stream->begin = 0;
}

/* ---- one system call ---- */

static bool read_once(struct net_tcp *ep, struct net_tcp_stream *stream);

static void note_end(struct net_tcp_link *link)
{
    if (link->end_seen_ns == 0)
        link->end_seen_ns = base_now_ns();
}

/* The connection has ended or broken; error: an errno or 0. */
static void end_stream(struct net_tcp *ep, struct net_tcp_stream *stream, int error)
{
    struct net_tcp_link *link = stream->link;
    bool between = stream->left == 0 && stream->end == 0 && stream->piece->head_bytes == 0;

    if (stream->number == 0) {
        net_tcp_lose_stream(ep, stream, error != 0 ? error : stream->write_error);
        return;
    }
    /* What the peer said last is on the first stream. */
    while (!link->first.paused && read_once(ep, &link->first))
        continue;
    if (link->state != NET_TCP_LINK_STANDING)
        return;
    if (error != 0 || stream->write_error != 0 || !between) {
        net_tcp_lose_stream(ep, stream, error != 0 ? error : stream->write_error);
        return;
    }
    /* The peer closes its end, and the good-bye is on its way. */
    note_end(link);
    close(stream->fd);
    stream->fd = -1;
    link->stream_count--;
}

/* Room behind the payload: of a stream that carries pieces the next header is enough. */
static size_t room_of(const struct net_tcp_stream *stream, uint64_t direct)
{
    const struct net_tcp_link *link = stream->link;
    bool pieces = stream->number > 0 || (link->in_frame && link->in_pieces);

    if (pieces && (direct > 0 || stream->left == 0) && stream->end < NET_HEADER_BYTES)
        return NET_HEADER_BYTES - stream->end;
    return NET_TCP_BUFFER_BYTES - stream->end;
}

/* One read; false: nothing more is there now, or it has to wait, or the link has ended. */
static bool read_once(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_link *link = stream->link;
    struct iovec pieces[2];
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 1};
    uint64_t direct = 0, room, came;
    ssize_t count;

    if (stream->left > 0 && link->payload != NULL) {
        direct = stream->left < READ_PAYLOAD_BYTES ? stream->left : READ_PAYLOAD_BYTES;
        pieces[0] = (struct iovec){link->payload + stream->at, direct};
        message.msg_iovlen = 2;
    }
    /* Behind a part that isn't the payload's last, the buffer gets the next bytes of the payload;
     * take_payload copies them. */
    room = room_of(stream, direct);
    pieces[message.msg_iovlen - 1] = (struct iovec){stream->buffer + stream->end, room};
    count = recvmsg(stream->fd, &message, MSG_DONTWAIT);
    if (count < 0) {
        if (errno != EAGAIN && errno != EINTR)
            end_stream(ep, stream, errno);
        return false;
    }
    if (count == 0) {
        end_stream(ep, stream, 0);
        return false;
    }
    came = (uint64_t)count;
    stream->end += came < direct ? 0 : came - direct;
    if (direct > 0)
        advance(ep, stream, came < direct ? came : direct);
    take_buffer(ep, stream);
    return came == direct + room && link->state == NET_TCP_LINK_STANDING && !stream->paused;
}

/* Lets paused streams take what waits in their buffers; that may free others in turn. */
static void resume(struct net_tcp *ep, struct net_tcp_link *link)
{
    while (link->state == NET_TCP_LINK_STANDING && link->resume) {
        link->resume = false;
        for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
            struct net_tcp_stream *stream = link->streams[i];

            if (stream != NULL && stream->paused && link->state == NET_TCP_LINK_STANDING)
                take_buffer(ep, stream);
        }
    }
    for (int i = 0; i < NET_TCP_STREAMS_MAX && link->state == NET_TCP_LINK_STANDING; i++)
        if (link->streams[i] != NULL)
            net_tcp_watch_stream(ep, link->streams[i]);
}

static bool is_silent(const struct net_tcp_stream *stream)
{
    struct pollfd news = {.fd = stream->fd, .events = POLLIN | POLLRDHUP};

    return stream->fd >= 0 && poll(&news, 1, 0) == 0;
}

/* The peer ended a stream while another one owes something, and had no room for words. */
static void lose_by_silence(struct net_tcp *ep, struct net_tcp_link *link)
{
    char text[2 * NET_TCP_REASON_BYTES];
    int used = snprintf(text, sizeof(text), "rank %d at %s gave the link up", link->peer,
                        link->first.peer_text);

    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        const struct net_tcp_stream *stream = link->streams[i];

        if (stream == NULL || !is_silent(stream))
            continue;
        snprintf(text + used, sizeof(text) - (size_t)used,
                 ": its connection from %s to interface %s here has gone silent", stream->peer_text,
                 stream->interface);
        break;
    }
    net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST, text);
}

void net_tcp_check_ended(struct net_tcp *ep, struct net_tcp_link *link, int64_t now_ns)
{
    if (link->end_seen_ns == 0 || now_ns < link->end_seen_ns + END_LIMIT_NS)
        return;
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        const struct net_tcp_stream *stream = link->streams[i];

        if (stream != NULL && stream->fd >= 0 && !stream->paused && !is_silent(stream))
            return;
    }
    lose_by_silence(ep, link);
}

void net_tcp_end_paused(struct net_tcp *ep, struct net_tcp_stream *stream, bool for_good)
{
    struct net_tcp_link *link = stream->link;

    note_end(link);
    if (!stream->end_seen)
        look_for_words(ep, stream);
    for (int i = 0; i < NET_TCP_STREAMS_MAX && link->state == NET_TCP_LINK_STANDING; i++) {
        struct net_tcp_stream *other = link->streams[i];

        while (for_good && other != NULL && other->fd >= 0 && !other->paused &&
               read_once(ep, other))
            continue;
        resume(ep, link);
    }
    if (link->state == NET_TCP_LINK_STANDING && for_good && stream->paused)
        lose_by_silence(ep, link);
}

/* Amid a payload nothing can be done before the rest of it is there: whoever sleeps is woken then,
 * or for a large part of it, and not by each packet. */
static void set_low_water(struct net_tcp_stream *stream)
{
    int low_water = 1;

    if (stream->left >= LOW_WATER_MIN)
        low_water = (int)(stream->left < LOW_WATER_MAX ? stream->left : LOW_WATER_MAX);
    if (stream->fd < 0 || low_water == (stream->low_water > 0 ? stream->low_water : 1))
        return;
    stream->low_water = low_water;
    net_tcp_set_option(stream->fd, SOL_SOCKET, SO_RCVLOWAT, low_water);
}

void net_tcp_receive(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_link *link = stream->link;

    if (link->broken) {
        net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST,
                     "no memory to finish a frame whose operation ended early");
        return;
    }
    for (int i = 0; i < READS_PER_POLL && !stream->paused; i++) {
        if (!read_once(ep, stream))
            break;
    }
    if (link->stream_count > 1 || link->first.paused)
        resume(ep, link);
    set_low_water(stream);
}
