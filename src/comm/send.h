/* SPDX-License-Identifier: Apache-2.0 */
/* send.h: one send or receive under way; kept in the engine's pool between uses. */
#ifndef SHOAL_COMM_SEND_H
#define SHOAL_COMM_SEND_H

#include "comm/engine_state.h"

struct comm_send {
    enum comm_owner owner;
    struct comm_task task;
    struct net_frame frame;
    bool busy;     /* the frame is queued */
    bool data_out; /* send: the queued frame carries the data */
    bool granted;  /* send: the grant came while the offer was still queued */
    bool matched;  /* receive: a message was found and is arriving */
    uint32_t id;   /* of this side */
    uint32_t id_peer;
    int source, tag; /* receive: of the matched message (group rank) */
    uint64_t bytes;
    struct comm_send *next; /* idle, posted receives, or sends to oneself */
};

#endif
