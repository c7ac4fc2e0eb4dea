/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_send.c: frames out.
 *
 * One sendmsg carries headers and payloads of up to 32 queued frames. Within poll() sends are only
 * queued, and each link is flushed once at its end, so that frames that arise together leave
 * together.
 *
 * Where a link has several streams, frames with larger payloads are cut: the header goes by the
 * first stream, and each stream that has room takes the next piece. So a stream that is slow by
 * nature or for the moment just takes fewer of them. Only one frame is being cut at a time; the
 * kernel's buffers keep the other streams busy until its last piece has found room.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/status.h"
#include "net/tcp.h"

#define GATHER_FRAMES   32
#define SENDS_PER_FLUSH 8
#define CUT_BYTES_MIN   (16 << 10) /* shorter payloads are not worth a second header */
#define PIECE_BYTES_MAX (64 << 10)

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

/* Whether the frame is to be cut when its turn comes. */
static bool is_to_be_cut(const struct net_tcp_link *link, const struct net_frame *frame)
{
    return link->spread > 1 && frame->done_bytes == 0 && frame != &link->good_bye &&
           frame->header.payload_bytes >= CUT_BYTES_MIN;
}

/* ---- one system call ---- */

/* False when the stream takes no more now. */
static bool send_pieces(struct net_tcp_stream *stream, struct iovec *pieces, int count,
                        uint64_t bytes, uint64_t *taken)
{
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
    ssize_t sent;

    *taken = 0;
    do
        sent = sendmsg(stream->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) {
        /* Whatever the error, reading will come to an end. */
        stream->write_error = errno;
        (void)shutdown(stream->fd, SHUT_RDWR);
        return false;
    }
    *taken = sent > 0 ? (uint64_t)sent : 0;
    stream->full = *taken < bytes;
    return !stream->full;
}

/* ---- whole frames ---- */

static int gather(const struct net_tcp_link *link, struct iovec *pieces, uint64_t *bytes)
{
    int count = 0;

    *bytes = 0;
    for (struct net_frame *frame = link->queue.first;
         frame != NULL && count + 2 <= 2 * GATHER_FRAMES && !is_to_be_cut(link, frame);
         frame = frame->next) {
        uint64_t total = net_tcp_wire_bytes(link, frame), done = frame->done_bytes;

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
        uint64_t missing = net_tcp_wire_bytes(link, frame) - frame->done_bytes;
        uint64_t taken = bytes < missing ? bytes : missing;

        frame->done_bytes += taken;
        bytes -= taken;
    }
    while (link->queue.first != NULL &&
           link->queue.first->done_bytes == net_tcp_wire_bytes(link, link->queue.first)) {
        struct net_frame *frame = net_frame_queue_pop(&link->queue);

        if (frame != NULL && frame != &link->good_bye) {
            ep->event_count++;
            ep->events.sent(ep->events.user, frame);
        }
    }
}

/* False when there is no more to do now. */
static bool send_frames(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct iovec pieces[2 * GATHER_FRAMES];
    uint64_t bytes, taken;
    int count = gather(link, pieces, &bytes);
    bool more = send_pieces(&link->first, pieces, count, bytes, &taken);

    account(ep, link, taken);
    return more;
}

/* ---- a frame that is cut ---- */

static void begin_cutting(struct net_tcp_link *link)
{
    struct net_tcp_piece *piece = link->first.piece;
    struct net_header header = link->queue.first->header;

    link->cut = link->queue.first;
    link->cut->done_bytes = NET_HEADER_BYTES; /* a copy of it is on its way from here on */
    link->cut_given = 0;
    link->cut_count++;
    header.payload_bytes |= NET_TCP_CUT;
    memcpy(piece->head, &header, NET_HEADER_BYTES);
    piece->head_bytes = NET_HEADER_BYTES;
    piece->at = piece->bytes = piece->done_bytes = 0;
}

/* Gives the stream the frame's next piece, behind the frame's header if that waits there. */
static void give_piece(struct net_tcp_link *link, struct net_tcp_stream *stream)
{
    struct net_tcp_piece *piece = stream->piece;
    uint64_t rest = link->cut->header.payload_bytes - link->cut_given;
    struct net_tcp_place place = {.frame = link->cut_count, .at = link->cut_given};
    struct net_header header = {0};

    piece->at = link->cut_given;
    piece->bytes = rest < PIECE_BYTES_MAX ? rest : PIECE_BYTES_MAX;
    header.payload_bytes = piece->bytes | NET_TCP_PIECE;
    memcpy(header.body, &place, sizeof(place));
    memcpy(piece->head + piece->head_bytes, &header, NET_HEADER_BYTES);
    piece->head_bytes += NET_HEADER_BYTES;
    if (piece->head_bytes == NET_HEADER_BYTES)
        piece->done_bytes = 0;
    link->cut_given += piece->bytes;
    link->turn = (stream->number + 1) % NET_TCP_STREAMS_MAX;
}

static void send_piece(const struct net_tcp_link *link, struct net_tcp_stream *stream)
{
    struct net_tcp_piece *piece = stream->piece;
    struct iovec parts[2];
    uint64_t taken, total = piece->head_bytes + piece->bytes, done = piece->done_bytes;
    int count = 0;

    if (done < piece->head_bytes) {
        parts[count++] = (struct iovec){piece->head + done, piece->head_bytes - done};
        done = piece->head_bytes;
    }
    if (done < total)
        parts[count++] = (struct iovec){(unsigned char *)(uintptr_t)link->cut->payload + piece->at +
                                            done - piece->head_bytes,
                                        total - done};
    (void)send_pieces(stream, parts, count, total - piece->done_bytes, &taken);
    piece->done_bytes += taken;
    if (piece->done_bytes == total)
        piece->head_bytes = 0;
}

static bool has_room(const struct net_tcp_stream *stream)
{
    return stream->fd >= 0 && !stream->full && stream->write_error == 0;
}

/* One piece of the stream; true if it is on its way. */
static bool serve(struct net_tcp_link *link, struct net_tcp_stream *stream)
{
    struct net_tcp_piece *piece = stream->piece;
    bool payload_left =
        link->cut_given < link->cut->header.payload_bytes && stream->number < link->spread;
    bool only_frame;

    if (!has_room(stream))
        return false;
    only_frame = piece->head_bytes == NET_HEADER_BYTES && piece->bytes == 0;
    if (payload_left && (piece->head_bytes == 0 || (only_frame && piece->done_bytes == 0)))
        give_piece(link, stream);
    if (piece->head_bytes == 0)
        return false;
    send_piece(link, stream);
    return piece->head_bytes == 0;
}

static bool has_piece(const struct net_tcp_stream *stream)
{
    return stream != NULL && stream->piece != NULL && stream->piece->head_bytes > 0;
}

static bool is_cut_out(const struct net_tcp_link *link)
{
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++)
        if (has_piece(link->streams[i]))
            return false;
    return link->cut_given == link->cut->header.payload_bytes;
}

/* A round over the streams; false when there is no more to do now. */
static bool send_cut(struct net_tcp *ep, struct net_tcp_link *link)
{
    bool moved = false;
    int turn = link->turn;

    for (int i = 0; i < NET_TCP_STREAMS_MAX && !is_cut_out(link); i++) {
        int number = (turn + i) % NET_TCP_STREAMS_MAX;

        moved |= link->streams[number] != NULL && serve(link, link->streams[number]);
    }
    if (is_cut_out(link)) {
        link->cut->done_bytes = NET_HEADER_BYTES + link->cut->header.payload_bytes;
        link->cut = NULL;
        account(ep, link, 0);
        moved = true;
    }
    return moved;
}

/* Of the payload, how much surely is out, from its beginning on. */
static uint64_t cut_prefix(const struct net_tcp_link *link)
{
    uint64_t prefix = link->cut_given;

    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        const struct net_tcp_piece *piece;

        if (!has_piece(link->streams[i]))
            continue;
        piece = link->streams[i]->piece;
        if (piece->bytes > 0 && piece->at < prefix)
            prefix = piece->at;
    }
    return prefix;
}

enum shoal_status net_tcp_withdraw(struct net_tcp_link *link, struct net_frame *frame)
{
    enum shoal_status status;
    bool is_cut = frame == link->cut;
    uint64_t prefix;

    if (is_cut) {
        /* At least a byte is left, so that a copy takes the frame's place. */
        prefix = cut_prefix(link);
        if (prefix == frame->header.payload_bytes)
            prefix--;
        frame->done_bytes = NET_HEADER_BYTES + prefix;
    }
    status = net_frame_queue_withdraw(&link->queue, frame);
    if (is_cut)
        link->cut = link->queue.stand_in;
    return status;
}

/* ---- all of it ---- */

/* Where something is left to send, epoll tells when there is room; `soon`: there may be some. */
static void want_out(struct net_tcp *ep, struct net_tcp_link *link, bool soon)
{
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        struct net_tcp_stream *stream = link->streams[i];

        if (stream == NULL || stream->fd < 0)
            continue;
        stream->full = stream->full && link->queue.first != NULL;
        stream->wants_out = link->queue.first != NULL && stream->write_error == 0 &&
                            (stream->full || soon) &&
                            (stream->number < link->spread || has_piece(stream));
        net_tcp_watch_stream(ep, stream);
    }
}

void net_tcp_flush(struct net_tcp *ep, struct net_tcp_link *link)
{
    int sends = 0;
    bool more = true;

    if (link->state != NET_TCP_LINK_STANDING || link->flushing || link->first.write_error != 0)
        return;
    link->flushing = true;
    while (link->queue.first != NULL && more && sends++ < SENDS_PER_FLUSH) {
        if (link->cut == NULL && is_to_be_cut(link, link->queue.first))
            begin_cutting(link);
        more = link->cut != NULL ? send_cut(ep, link) : send_frames(ep, link);
    }
    want_out(ep, link, more);
    link->flushing = false;
}
