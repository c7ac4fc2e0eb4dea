/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring_endpoint.h: an endpoint whose links are pairs of rings: what shm and inproc have in common.
 * The two differ in where the rings lie and in how a peer's death is learned; the rest is here.
 *
 * States of a link, and who moves it:
 *   OPEN -> LEFT   receive: everything was taken and the peer's ring ended in good order
 *   OPEN -> LOST   receive: the peer is gone (told from above, or its flag) or its ring ended in
 * the middle of a frame; poll: a withdrawn frame could not be copied NONE           the own rank,
 * and ranks that this endpoint can't reach; sends are `lost` LEFT and LOST are final.
 */
#ifndef SHOAL_NET_RING_ENDPOINT_H
#define SHOAL_NET_RING_ENDPOINT_H

#include "base/wait.h"
#include "net/frame_queue.h"
#include "net/ring.h"
#include "net/transport.h"

#define NET_RING_REASON_BYTES 160

enum net_ring_state {
    NET_RING_LINK_NONE = 0,
    NET_RING_LINK_OPEN,
    NET_RING_LINK_LEFT,
    NET_RING_LINK_LOST
};

struct net_ring_link {
    int peer; /* world rank */
    enum net_ring_state state;
    struct net_ring_writer writer;
    struct net_ring_reader reader;
    struct net_frame_queue queue;
    bool flushing;    /* a flush is under way further up the stack */
    bool has_outward; /* the ring that this rank writes has its memory */
    /* the frame that is arriving */
    bool in_payload;
    struct net_header header;
    unsigned char *payload; /* as arriving() said; NULL: thrown away */
    uint64_t payload_done;
    /* the end */
    const atomic_int *dead; /* the peer's flag; NULL: its death is told by `gone` */
    bool gone, gone_in_order;
    bool broken; /* by this side: the stream to the peer can't be continued */
    enum shoal_status why;
    char reason[NET_RING_REASON_BYTES];
    /* to wake the peer */
    struct base_bell *bell;
    int event_fd;
};

struct net_ring_endpoint {
    const struct net_transport *transport;
    struct net_events events;
    int rank, size;
    int link_count;              /* peers with rings */
    struct net_ring_link *links; /* [link_count], any order */
    int *link_of;                /* [size] index in links, -1: none */
    int next_link;               /* where the next poll begins */
    int event_count;             /* of the poll under way */
    const atomic_int *own_dead;  /* NULL: never; set: this endpoint does nothing any more */
    struct base_bell *bell;      /* the own */
    int event_fd;
};

struct net_ring_peer {
    int peer;                          /* world rank */
    struct net_ring *outward, *inward; /* this rank writes, this rank reads */
    unsigned char *outward_data;       /* the rings' bytes */
    const unsigned char *inward_data;
    const atomic_int *dead;
    struct base_bell *bell;
    int event_fd;
};

/* Makes an endpoint with `count` peers; bell and event_fd are the own rank's, non-blocking. */
struct net_ring_endpoint_options {
    const struct net_transport *transport;
    const struct net_endpoint_options *endpoint;
    const struct net_events *events;
    const struct net_ring_peer *peers;
    int peer_count;
    size_t ring_bytes;
    bool takes_rings; /* the bytes of a ring have no memory before they are populated */
    const atomic_int *own_dead;
    struct base_bell *bell;
    int event_fd;
};
enum shoal_status net_ring_endpoint_open(const struct net_ring_endpoint_options *options,
                                         unsigned char *address, size_t *address_bytes,
                                         struct net_endpoint **out);

/* The peer's process ended; what it wrote before is still delivered. */
void net_ring_endpoint_peer_gone(struct net_endpoint *endpoint, int peer, bool left_in_order);

/* Members of struct net_transport. */
enum shoal_status net_ring_endpoint_set_peers(struct net_endpoint *endpoint,
                                              const unsigned char *const *addresses,
                                              const size_t *address_bytes);
void net_ring_endpoint_send(struct net_endpoint *endpoint, int peer, struct net_frame *frame);
void net_ring_endpoint_withdraw(struct net_endpoint *endpoint, int peer, struct net_frame *frame);
void net_ring_endpoint_divert(struct net_endpoint *endpoint, int peer);
int net_ring_endpoint_poll(struct net_endpoint *endpoint);
int net_ring_endpoint_descriptor(struct net_endpoint *endpoint);
bool net_ring_endpoint_arm(struct net_endpoint *endpoint);
void net_ring_endpoint_disarm(struct net_endpoint *endpoint);
void net_ring_endpoint_wake(struct net_endpoint *endpoint);
void net_ring_endpoint_close(struct net_endpoint *endpoint, int64_t linger_ms);

#endif
