/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h: ordered, reliable frames between the processes of one job; the contract that every
 * transport fulfils: inproc, shm, tcp, sim.
 *
 * An endpoint is this rank's end. It exchanges frames with peers, which are world ranks. A frame is
 * a 64-byte header and a payload. Between two ranks frames arrive complete, once, in the order
 * they were sent, or the peer is reported lost. There is no connect call: the first send opens the
 * link, from either side, also from both at once.
 *
 * Threads: one thread at a time uses an endpoint (the caller sees to it); only `wake` may be called
 * from any thread. No function blocks, except endpoint_open and endpoint_close for a stated time.
 * No function allocates after the link to a peer stands.
 *
 * Flow: send() queues a frame without limit of its own (frames belong to the sender, so the queue
 * is an intrusive list); the receiver never refuses a frame, so whoever sits above must bound what
 * is under way (comm does, by credits and grants).
 *
 * Life of an endpoint: open -> (send, poll)* -> close. close says good-bye to the peers (they get
 * `left`, not `lost`), flushes what is queued at most `linger_ms`, and frees everything; frames not
 * sent by then are dropped without `sent`.
 */
#ifndef SHOAL_NET_TRANSPORT_H
#define SHOAL_NET_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

#define NET_HEADER_BYTES  64
#define NET_ADDRESS_BYTES 1024 /* at most, of what a rank publishes about itself */
#define NET_SECRET_BYTES  32
#define NET_JOB_BYTES     16

struct net_header {
    uint64_t payload_bytes;
    uint8_t body[NET_HEADER_BYTES - 8]; /* belongs to comm; little-endian between hosts */
};

/* A frame to send. The sender owns it and the payload until `sent`. */
struct net_frame {
    struct net_header header;
    const void *payload;
    /* the transport's, until sent: */
    struct net_frame *next;
    uint64_t done_bytes; /* of header and payload together */
    /* the sender's: */
    void *owner;
};

/* What the endpoint tells its user, always from within send() or poll(). The user may call send()
 * from within, not poll() or close. */
struct net_events {
    void *user;
    /* A header came from `peer`. Returns where its payload goes: valid, and payload_bytes long,
     * until received(), divert() or lost(). Not called with payload_bytes 0: then received() comes
     * at once. NULL: the payload is thrown away as it comes, and received() is not called for it.
     */
    void *(*arriving)(void *user, int peer, const struct net_header *header);
    /* The frame is complete; payload as arriving() said, or NULL. */
    void (*received)(void *user, int peer, const struct net_header *header, void *payload);
    /* The frame's bytes were all given on: frame and payload belong to the user again. */
    void (*sent)(void *user, struct net_frame *frame);
    /* The link to peer broke or could not be opened; frames queued to it are the user's again (no
     * `sent` follows). Called once per peer; later sends to it are dropped and reported by `lost`
     * again. why: PEER_LOST, PEER_UNREACHABLE, PEER_REFUSED; text: what happened. */
    void (*lost)(void *user, int peer, enum shoal_status why, const char *text);
    /* The peer closed its endpoint in good order; nothing more comes from it. Frames still queued
     * to it can't be delivered: then `lost` follows at once. */
    void (*left)(void *user, int peer);
};

struct net_endpoint_options {
    int rank, size;
    unsigned char job[NET_JOB_BYTES]; /* the same on all ranks of the job, unlike any other job */
    unsigned char secret[NET_SECRET_BYTES]; /* the same on all ranks, known to nobody else */
    const char *interface;                  /* tcp: names or address prefixes; NULL: by the route */
    int streams;                            /* tcp: connections to a peer; 0: one per interface,
                                               and as many more as use_streams says */
    int64_t connect_timeout_ms;             /* from the first send to an open link */
    void *context; /* transport-specific: inproc's hall, shm's map, sim's world */
};

/* What a link has carried since it was opened, as its host's kernel has counted. */
struct net_flow {
    uint64_t acked_bytes; /* sent, and acknowledged by the peer's host */
    uint64_t busy_us;     /* while anything was on its way or waited for the link */
};

struct net_endpoint; /* each transport's own; starts with `const struct net_transport *transport` */

struct net_transport {
    const char *name;

    /* Opens this rank's end. Writes what peers need to reach it in address[0..*address_bytes).
     * `address` has room for NET_ADDRESS_BYTES. Takes nothing; options and events are copied
     * (options->context and ->interface are borrowed for the endpoint's life). Errors: ARGUMENT,
     * MEMORY, SYSTEM, OPTION. */
    enum shoal_status (*open)(const struct net_endpoint_options *options,
                              const struct net_events *events, unsigned char *address,
                              size_t *address_bytes, struct net_endpoint **out);

    /* Gives the addresses of all ranks (as published by `open` on each; entry of the own rank is
     * ignored, an entry of 0 bytes is a rank that this endpoint will not talk to). Copied. Before
     * the first send. */
    enum shoal_status (*set_peers)(struct net_endpoint *endpoint,
                                   const unsigned char *const *addresses,
                                   const size_t *address_bytes);

    /* Queues a frame for peer, which is not the own rank, and may send at once. */
    void (*send)(struct net_endpoint *endpoint, int peer, struct net_frame *frame);

    /* Takes a queued frame back, because its operation ended: on return frame and payload are the
     * sender's again. If part of it was sent already, the transport finishes it from a copy of its
     * own (or, without memory for one, ends the link), so that later frames still fit. */
    void (*withdraw)(struct net_endpoint *endpoint, int peer, struct net_frame *frame);

    /* The payload that is arriving from peer, if any, is thrown away from now on instead of going
     * where arriving() said; received() is then not called for it. */
    void (*divert)(struct net_endpoint *endpoint, int peer);

    /* Moves what can be moved without blocking, and reports events. Returns the number of events
     * reported, 0 if nothing moved. `deadline`s of opening links are looked at here. */
    int (*poll)(struct net_endpoint *endpoint);

    /* A descriptor that is readable when poll() has something to do, for poll(2) or a nested epoll;
     * or -1 if the transport has none (sim). */
    int (*descriptor)(struct net_endpoint *endpoint);

    /* Before sleeping on the descriptor: true if it is safe to sleep (a later event will make it
     * readable); false if there is something to do now. After waking, disarm. */
    bool (*arm)(struct net_endpoint *endpoint);
    void (*disarm)(struct net_endpoint *endpoint);

    /* Makes the descriptor readable until disarm, so that a sleep that is under way or about to
     * begin ends. Any thread. */
    void (*wake)(struct net_endpoint *endpoint);

    /* Reads the flow to peer; false where that is not known: no link yet, or a transport or kernel
     * that doesn't count. */
    bool (*flow)(struct net_endpoint *endpoint, int peer, struct net_flow *out);

    /* From now on large frames go over so many connections to each peer by each interface, as far
     * as they stand: this rank opens those that are missing on links that it has opened, the peer
     * on the others. What can't be opened is done without. At least 1. Allocates. Nothing happens
     * on transports without connections, or where the options gave a number. */
    void (*use_streams)(struct net_endpoint *endpoint, int count);

    /* Says good-bye and frees. Blocks at most linger_ms. Reports nothing but `sent`; what still
     * arrives is thrown away. */
    void (*close)(struct net_endpoint *endpoint, int64_t linger_ms);
};

/* Asserts that every member is there. Call once per transport before use. */
void net_transport_check(const struct net_transport *transport);

/* `flow` of transports that don't count. */
bool net_no_flow(struct net_endpoint *endpoint, int peer, struct net_flow *out);
/* `use_streams` of transports without connections. */
void net_no_streams(struct net_endpoint *endpoint, int count);

/* One global symbol per transport. */
extern const struct net_transport
    net_inproc;                            /* options.context: struct net_inproc_hall, inproc.h */
extern const struct net_transport net_shm; /* options.context: struct net_shm_map, shm.h */
extern const struct net_transport net_tcp;
extern const struct net_transport net_sim; /* options.context: struct net_sim_world, sim.h */

#endif
