/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_world.h: the inside of the simulated network, shared by sim_world.c (clock, events, wires)
 * and sim.c (endpoints, the transport).
 *
 * The way of a frame. It waits in its sender's queue to that peer. The sender's port serves its
 * queues in turn, a piece at a time, each for bytes/rate. A piece is copied when it departs (as a
 * kernel does, so the frame may be `sent` long before it arrives), its first byte arrives one
 * latency later, the receiver's port lets pieces in one after the other, again at its rate, and
 * then the piece lies in the receiver's inbox until poll().
 *
 * Order within a pair: pieces depart in order, a piece never arrives before its predecessor, ports
 * and inboxes are first in, first out; events of the same moment happen in the order in which they
 * were planned.
 *
 * Everything follows from the seed and from the calls of the driver, in their order.
 */
#ifndef SHOAL_NET_SIM_WORLD_H
#define SHOAL_NET_SIM_WORLD_H

#include "net/frame_queue.h"
#include "net/sim.h"

enum net_sim_event_kind {
    NET_SIM_PORT,    /* rank's port is free for the next piece */
    NET_SIM_SENT,    /* rank's last piece to peer has left */
    NET_SIM_ARRIVE,  /* the packet's first byte is at its receiver's port */
    NET_SIM_DELIVER, /* the packet is in */
    NET_SIM_KILL,    /* rank dies */
    NET_SIM_NEWS,    /* of rank's death reaches peer */
    NET_SIM_STOP,    /* rank stops until the time in `until_ns` */
    NET_SIM_RESUME
};

enum net_sim_packet_kind { NET_SIM_PIECE, NET_SIM_GOOD_BYE, NET_SIM_BREAK };

struct net_sim_packet {
    enum net_sim_packet_kind kind;
    int from, to;
    int64_t port_ns; /* how long it takes to pass a port */
    bool has_header;
    struct net_header header;
    uint64_t payload_bytes;
    bool has_data; /* false: the sender gave no payload, only its length */
    struct net_sim_packet *next;
    unsigned char data[];
};

struct net_sim_event {
    int64_t at_ns;
    uint64_t order;
    enum net_sim_event_kind kind;
    int rank, peer;
    int64_t until_ns;
    struct net_sim_packet *packet;
};

enum net_sim_link_state { NET_SIM_LINK_OPEN = 0, NET_SIM_LINK_LEFT, NET_SIM_LINK_LOST };

/* What a rank knows of one peer. */
struct net_sim_link {
    int peer;
    enum net_sim_link_state state;
    /* outward */
    struct net_frame_queue queue;
    int64_t last_arrival_ns;
    bool active; /* in the port's round */
    struct net_sim_link *next_active;
    bool sent_due;
    struct net_sim_link *next_sent;
    bool said_good_bye;
    /* inward */
    bool in_payload;
    struct net_header header;
    unsigned char *payload;
    uint64_t payload_done;
    /* the end, to be reported */
    bool end_due;
    struct net_sim_link *next_end;
    char reason[96];
};

struct net_sim_rank {
    struct net_endpoint *endpoint; /* NULL: not open, or closed */
    bool closed, dead;
    int64_t stopped_until_ns;
    struct net_sim_link **links; /* [size], made when first needed */
    struct net_sim_link *active_first, *active_last;
    bool port_planned;
    int64_t out_free_ns, in_free_ns;
    struct net_sim_packet *inbox_first, *inbox_last;
    struct net_sim_link *sent_due, *end_due;
    uint64_t frames, bytes;
};

struct net_sim_cut {
    int a, b;
    int64_t at_ns;
    struct net_sim_cut *next;
};

struct net_sim_world {
    struct net_sim_options options;
    int64_t now_ns;
    uint64_t random[4];
    uint64_t next_order;
    struct net_sim_event *events; /* a heap: earliest first */
    size_t event_count, event_room;
    struct net_sim_rank *ranks;
    struct net_sim_cut *cuts;
};

/* The link and its opposite, made together if they are new. SHOAL_ERR_MEMORY. */
enum shoal_status net_sim_link_make(struct net_sim_world *world, int rank, int peer,
                                    struct net_sim_link **out);
/* Puts the link in its port's round and plans the port. */
void net_sim_link_activate(struct net_sim_world *world, int rank, struct net_sim_link *link);
/* Lets one piece of the link's next unsent frame depart at at_ns. False: no memory. */
bool net_sim_depart(struct net_sim_world *world, int rank, struct net_sim_link *link,
                    int64_t at_ns);
/* Sends a mark behind everything that departed to the peer. False: no memory. */
bool net_sim_send_mark(struct net_sim_world *world, int rank, struct net_sim_link *link,
                       enum net_sim_packet_kind kind);
/* Both ends of the pair will hear that the link broke; nothing more flows. */
void net_sim_break_link(struct net_sim_world *world, int rank, int peer, const char *reason);
/* The link's first frame that has not departed wholly, NULL if none. */
struct net_frame *net_sim_next_frame(const struct net_sim_link *link);
bool net_sim_is_stopped(const struct net_sim_world *world, const struct net_sim_rank *rank);

#endif
