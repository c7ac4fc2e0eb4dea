/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_queue.h: the frames that wait for one peer, an intrusive list, and the withdrawal of one.
 *
 * A frame of which part is on its way can't be unsaid. When it is withdrawn, a copy of what is
 * still missing takes its place; the copy belongs to the queue and ends without `sent`.
 *
 * Invariant: only the first frames of the queue have done_bytes > 0; all but the first of those are
 * complete.
 */
#ifndef SHOAL_NET_FRAME_QUEUE_H
#define SHOAL_NET_FRAME_QUEUE_H

#include "net/transport.h"

struct net_frame_queue {
    struct net_frame *first, *last;
    struct net_frame *stand_in; /* the copy that replaced a withdrawn first frame; NULL: none */
};

static inline uint64_t net_frame_bytes(const struct net_frame *frame)
{
    return NET_HEADER_BYTES + frame->header.payload_bytes;
}

void net_frame_queue_push(struct net_frame_queue *queue, struct net_frame *frame);

/* Takes the first frame off. Returns it if its sender is to be told, NULL if it was a copy (which
 * is freed). The queue is not empty. */
struct net_frame *net_frame_queue_pop(struct net_frame_queue *queue);

/* Takes `frame` out, wherever it stands, or puts a copy in its place. SHOAL_ERR_ARGUMENT: not in
 * this queue. SHOAL_ERR_MEMORY: no memory for the copy; the frame is out, the stream is broken. */
enum shoal_status net_frame_queue_withdraw(struct net_frame_queue *queue, struct net_frame *frame);

/* Forgets all frames; they belong to their senders again. */
void net_frame_queue_drop(struct net_frame_queue *queue);

#endif
