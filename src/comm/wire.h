/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h: what comm writes in the 56 bytes of a frame's header that are its own.
 *
 * Every frame that belongs to an operation carries the operation's signature (kind, dtype, op,
 * root, count, sequence), so that ranks which disagree find out at the first frame.
 *
 * Flow control. Small payloads go at once (eager) while the receiver is known to have a slot left
 * for an early one: WIRE_SLOTS per direction and class, given back by the running number in
 * `consumed`, which every frame carries. Without a free slot the sender offers, and sends when
 * granted. Larger payloads wait for a grant, which the receiver of a collective sends unasked as
 * soon as its buffer is ready; so they land in their final place and nothing is ever dropped or
 * refused.
 *
 * What a pair exchanges in an alltoallv is known to these two only, so its frames carry that count
 * too, and the sender offers the pair's first message also if it is large: a receiver that expects
 * a small one, or none, would never grant it. So do ranks towards a server, which calls nothing by
 * itself: the offer tells it what to do. That one leaves when the operation starts, so that a
 * server hears of operations in their order even where the data has to be summed first.
 */
#ifndef SHOAL_COMM_WIRE_H
#define SHOAL_COMM_WIRE_H

#include <stdint.h>
#include <string.h>

#include "net/transport.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little-endian and so must be the machine"
#endif

enum wire_type {
    WIRE_DATA = 1,   /* collective: payload; granted or eager */
    WIRE_GRANT,      /* collective: the receiver's buffer is ready */
    WIRE_OFFER,      /* collective: payload is ready, but has no free slot or is large */
    WIRE_SEND,       /* point to point, eager */
    WIRE_SEND_OFFER, /* point to point: id is the sender's */
    WIRE_SEND_GRANT, /* id is the sender's, id_peer the receiver's */
    WIRE_SEND_DATA,  /* id_peer is the receiver's */
    WIRE_CREDIT,     /* only `consumed` matters */
    WIRE_ABORT,      /* count: status. payload: text */
    WIRE_ASK,        /* how far are you in context? The signature is that of operation `sequence` */
    WIRE_LEAVE,      /* to a server: this rank closes the context */
    WIRE_SHARE,      /* to a server, before it hears of operations by it: by the shares of version
                      * `sequence` host number `message` sums `count` */
    WIRE_TELL        /* sequence: the last operation started. message: the one asked for has ended.
                      * count: that one's sequence */
};

#define WIRE_SLOTS 32 /* early eager frames per peer and class */

enum wire_class { WIRE_CLASS_COLLECTIVE = 0, WIRE_CLASS_SEND = 1, WIRE_CLASS_COUNT };

struct wire {
    uint8_t type, kind, dtype, op;
    int32_t root; /* root, or tag */
    uint64_t context, sequence, count;
    uint32_t message;                    /* number between the pair within the operation */
    uint16_t consumed[WIRE_CLASS_COUNT]; /* eager frames taken off their slots so far */
    uint32_t granted;                    /* DATA: 1 if it used no slot */
    uint32_t plan;                       /* collective: hash of algorithm and segment */
    union {
        struct {
            uint32_t id, id_peer; /* point to point */
        };
        uint64_t pair_count;       /* alltoallv, this pair and direction: elements that the frame's
                                    * sender sends (DATA, OFFER) or expects (GRANT) */
        struct {                   /* what servers cannot know, of other collectives */
            uint32_t reproducible; /* the group is */
            uint32_t version;      /* of the shares; 0: those of equal links */
        };
    };
};
_Static_assert(sizeof(struct wire) == NET_HEADER_BYTES - 8, "the header is exactly 64 bytes");

static inline void wire_pack(struct net_header *header, const struct wire *wire,
                             uint64_t payload_bytes)
{
    header->payload_bytes = payload_bytes;
    memcpy(header->body, wire, sizeof(*wire));
}

static inline struct wire wire_unpack(const struct net_header *header)
{
    struct wire wire;
    memcpy(&wire, header->body, sizeof(wire));
    return wire;
}

#endif
