/* SPDX-License-Identifier: Apache-2.0 */
/* frame_queue.c: an intrusive list of frames to one peer. */
#include "net/frame_queue.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* The missing rest of a frame, with the memory for it behind. */
struct rest {
    struct net_frame frame;
    unsigned char payload[];
};

void net_frame_queue_push(struct net_frame_queue *queue, struct net_frame *frame)
{
    frame->next = NULL;
    frame->done_bytes = 0;
    if (queue->last != NULL)
        queue->last->next = frame;
    else
        queue->first = frame;
    queue->last = frame;
}

struct net_frame *net_frame_queue_pop(struct net_frame_queue *queue)
{
    struct net_frame *frame = queue->first;

    queue->first = frame->next;
    if (queue->first == NULL)
        queue->last = NULL;
    if (frame != queue->stand_in)
        return frame;
    queue->stand_in = NULL;
    base_free(frame);
    return NULL;
}

/* A copy that has the header and the same done_bytes; of the payload only what is still missing is
 * there, so `payload` points to where the payload's first byte would be. */
static enum shoal_status copy_rest(const struct net_frame *frame, struct net_frame **out)
{
    uint64_t payload_done =
        frame->done_bytes > NET_HEADER_BYTES ? frame->done_bytes - NET_HEADER_BYTES : 0;
    uint64_t missing = frame->header.payload_bytes - payload_done;
    struct rest *rest;

    TRY(base_alloc(sizeof(*rest) + missing, "the rest of a withdrawn frame", (void **)&rest));
    if (missing > 0)
        memcpy(rest->payload, (const unsigned char *)frame->payload + payload_done, missing);
    rest->frame.header = frame->header;
    rest->frame.done_bytes = frame->done_bytes;
    rest->frame.payload = (const void *)((uintptr_t)rest->payload - payload_done);
    *out = &rest->frame;
    return SHOAL_OK;
}

enum shoal_status net_frame_queue_withdraw(struct net_frame_queue *queue, struct net_frame *frame)
{
    bool partly = frame->done_bytes > 0 && frame->done_bytes < net_frame_bytes(frame);
    enum shoal_status status = SHOAL_OK;
    struct net_frame **link = &queue->first, *before = NULL, *copy = NULL;

    while (*link != NULL && *link != frame) {
        before = *link;
        link = &before->next;
    }
    if (*link == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "the frame to withdraw is not queued");
    if (partly)
        status = copy_rest(frame, &copy);
    if (copy != NULL) {
        copy->next = frame->next;
        queue->stand_in = copy;
    }
    *link = copy != NULL ? copy : frame->next;
    if (queue->last == frame)
        queue->last = copy != NULL ? copy : before;
    return status;
}

void net_frame_queue_drop(struct net_frame_queue *queue)
{
    base_free(queue->stand_in);
    *queue = (struct net_frame_queue){0};
}
