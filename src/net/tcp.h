/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h: the inside of the tcp transport, shared by its files and nobody else:
 *
 *   tcp.c          the endpoint: its descriptors, the event loop, timers, open and close
 *   tcp_greet.c    connections under proof: those that come in, those that go out
 *   tcp_link.c     links that stand: sending, receiving, ending
 *   tcp_address.c  where a rank can be reached and in which order to try
 *   tcp_fork.c     what a forked child must not keep open
 *
 * States of a link, and who moves it:
 *   IDLE -> OPENING      net_tcp_start_opening: the first send
 *   IDLE, OPENING -> STANDING  net_tcp_stand: one connection passed the proof on both sides
 *   OPENING -> LOST      no candidate could be reached in time
 *   STANDING -> LEFT     the peer's good-bye was read
 *   STANDING -> LOST     the connection broke or ended without good-bye
 *   IDLE -> LOST         the peer is excluded, or there is no memory
 * LEFT and LOST are final.
 *
 * On the wire, after the proof (net/proof.h): the acceptor's 8 bytes `ready`, then frames both
 * ways. A frame whose payload length is all ones is the good-bye.
 *
 * Which connection becomes the link, when both sides connect at once: a side that has an attempt
 * of its own under way answers a peer's hello only if the peer's rank is lower; else the hello is
 * parked until the own attempt has failed or succeeded. So the lower rank's connection wins, and
 * yet a peer that can be reached one way only is reached. The acceptor holds the link for open when
 * it has seen the proof, the connector when it has seen `ready`; before that no frame flows, so an
 * attempt that ends earlier has lost nothing.
 *
 * Invariants:
 *  1. fd >= 0 exactly in STANDING; opening != NULL exactly in OPENING.
 *  2. A rank never has an attempt of its own under way while it has answered the hello of a higher
 *     rank and waits for the proof.
 *  3. Epoll carries kind and number, not pointers, so an event that is late finds nothing instead
 *     of freed memory.
 *  4. A link in the dirty list is flushed before poll() returns.
 */
#ifndef SHOAL_NET_TCP_H
#define SHOAL_NET_TCP_H

#include <sys/epoll.h>

#include "net/frame_queue.h"
#include "net/proof.h"
#include "net/tcp_address.h"
#include "net/transport.h"

#define NET_TCP_INCOMING_MAX 64 /* connections under proof at once */
#define NET_TCP_BUFFER_BYTES (16 * 1024)
#define NET_TCP_REASON_BYTES 192
#define NET_TCP_READY_BYTES  8
#define NET_TCP_EVENTS_MAX   64

enum net_tcp_kind {
    NET_TCP_LISTENER = 1,
    NET_TCP_WAKER,
    NET_TCP_TIMER,
    NET_TCP_INCOMING, /* number: slot */
    NET_TCP_OPENING,  /* number: peer */
    NET_TCP_LINK      /* number: peer */
};

enum net_tcp_step {
    NET_TCP_FREE = 0,
    NET_TCP_CONNECTING, /* connector: until the connection stands */
    NET_TCP_ANSWER,     /* connector: hello sent, waits for the answer */
    NET_TCP_READY,      /* connector: proof sent, waits for `ready` */
    NET_TCP_HELLO,      /* acceptor: waits for the hello */
    NET_TCP_PARKED,     /* acceptor: has the hello; an own attempt to the same rank goes first */
    NET_TCP_PROOF       /* acceptor: answered, waits for the proof */
};

/* Why an attempt failed, beside the errno values. */
enum net_tcp_failure {
    NET_TCP_NOT_TRIED = 0,
    NET_TCP_CLOSED = -1,    /* closed during the proof */
    NET_TCP_IMPOSTOR = -2,  /* a wrong proof, or another rank than was asked for */
    NET_TCP_NO_ANSWER = -3, /* connected, but nothing came */
    NET_TCP_SILENT = -4     /* not even connected in time */
};

struct net_tcp_greeting {
    int fd;
    enum net_tcp_step step;
    int peer; /* -1 until its hello came */
    int64_t begun_ns, deadline_ns;
    struct net_proof proof;
    unsigned char in[NET_ANSWER_BYTES];
    size_t in_bytes;
    unsigned char answer[NET_ANSWER_BYTES]; /* held back while parked */
};

struct net_tcp_opening {
    struct net_tcp_candidate candidates[NET_TCP_CANDIDATES_MAX];
    int count, next; /* next: candidate to try */
    struct net_tcp_greeting attempt;
    int64_t begun_ns, deadline_ns;
    int64_t retry_ns; /* when the next round begins; BASE_NO_DEADLINE: an attempt is under way */
};

enum net_tcp_state {
    NET_TCP_LINK_IDLE = 0,
    NET_TCP_LINK_OPENING,
    NET_TCP_LINK_STANDING,
    NET_TCP_LINK_LEFT,
    NET_TCP_LINK_LOST
};

struct net_tcp_link {
    int peer;
    enum net_tcp_state state;
    int fd;
    struct net_frame_queue queue;
    struct net_tcp_opening *opening;
    int incoming; /* slot with the peer's hello; -1: none */
    bool flushing, wants_out;
    bool is_dirty;
    struct net_tcp_link *next_dirty;
    int write_error; /* errno of the send that failed; the rest of the input is still read */
    bool broken;     /* no memory to finish a withdrawn frame */
    bool shut;       /* good-bye is out */
    struct net_frame good_bye;
    /* what is arriving */
    unsigned char *buffer; /* NET_TCP_BUFFER_BYTES */
    size_t begin, end;     /* bytes in it that are not taken yet */
    bool in_payload;
    struct net_header header;
    unsigned char *payload; /* as arriving() said; NULL: thrown away */
    uint64_t payload_done;
    /* the end */
    enum shoal_status why;
    char peer_text[NET_TCP_TEXT_BYTES];
    char reason[NET_TCP_REASON_BYTES];
};

struct net_tcp {
    const struct net_transport *transport;
    struct net_tcp *next_open; /* tcp_fork.c's */
    struct net_events events;
    struct net_endpoint_options options;
    int epoll_fd, listen_fd, wake_fd, timer_fd;
    int64_t timer_ns;           /* when the timer will fire */
    int64_t watch_ns;           /* when to look for silent hosts next */
    struct net_tcp_link *links; /* [size] */
    unsigned char *addresses;   /* as given by set_peers, back to back */
    size_t *address_at; /* [size + 1] offsets in addresses; NULL: set_peers was not called */
    struct net_tcp_greeting incoming[NET_TCP_INCOMING_MAX];
    int incoming_count;
    bool accepting;
    struct net_tcp_link *dirty;
    int hot;        /* peer from which something came last; -1: none */
    int hot_streak; /* polls that looked only there */
    bool polling, closing;
    int event_count;
    struct epoll_event ready[NET_TCP_EVENTS_MAX];
};

/* ---- tcp.c ---- */
void net_tcp_watch(struct net_tcp *ep, int fd, enum net_tcp_kind kind, int number, uint32_t events,
                   bool added);
/* The timer fires at at_ns or before. */
void net_tcp_timer_at(struct net_tcp *ep, int64_t at_ns);
void net_tcp_accept_again(struct net_tcp *ep);

/* ---- tcp_fork.c ---- */
/* From here on its sockets are closed in forked children. */
void net_tcp_note_open(struct net_tcp *ep);
/* Before they are closed. It may never have been noted. */
void net_tcp_note_closed(const struct net_tcp *ep);

/* ---- tcp_flow.c ---- */
bool net_tcp_flow(struct net_endpoint *endpoint, int peer, struct net_flow *out);

/* ---- tcp_greet.c ---- */
void net_tcp_accept(struct net_tcp *ep);
void net_tcp_greet_incoming(struct net_tcp *ep, int slot);
void net_tcp_drop_incoming(struct net_tcp *ep, int slot);
void net_tcp_start_opening(struct net_tcp *ep, struct net_tcp_link *link);
void net_tcp_greet_outgoing(struct net_tcp *ep, struct net_tcp_link *link);
void net_tcp_end_opening(struct net_tcp_link *link);
/* Looks at deadlines; moves *next_ns to the earliest one left. */
void net_tcp_incoming_timers(struct net_tcp *ep, int64_t now_ns, int64_t *next_ns);
void net_tcp_opening_timer(struct net_tcp *ep, struct net_tcp_link *link, int64_t now_ns,
                           int64_t *next_ns);

/* ---- tcp_link.c ---- */
/* The connection passed the proof: it is the link now. Takes fd. */
void net_tcp_stand(struct net_tcp *ep, struct net_tcp_link *link, int fd);
void net_tcp_mark_dirty(struct net_tcp *ep, struct net_tcp_link *link);
void net_tcp_flush_dirty(struct net_tcp *ep);
void net_tcp_flush(struct net_tcp *ep, struct net_tcp_link *link);
void net_tcp_receive(struct net_tcp *ep, struct net_tcp_link *link);
void net_tcp_report_lost(struct net_tcp *ep, const struct net_tcp_link *link, const char *text);
void net_tcp_lose(struct net_tcp *ep, struct net_tcp_link *link, enum shoal_status why,
                  const char *text);
/* Ends the link if its peer's host has been silent for too long. */
void net_tcp_check_silence(struct net_tcp *ep, struct net_tcp_link *link);
/* A step of closing in good order; true when nothing is left to do. */
bool net_tcp_part(struct net_tcp *ep, struct net_tcp_link *link);
/* Frees what the link holds, without any event. */
void net_tcp_release_link(struct net_tcp_link *link);

#endif
