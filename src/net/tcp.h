/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h: the inside of the tcp transport, shared by its files and nobody else:
 *
 *   tcp.c          the endpoint: its descriptors, the event loop, timers, open and close
 *   tcp_greet.c    connections under proof: those that come in, those that go out
 *   tcp_link.c     links that stand: their streams, their end
 *   tcp_send.c     frames out, over one stream or cut over several
 *   tcp_receive.c  frames in
 *   tcp_words.c    what a link that breaks still tells the peer
 *   tcp_address.c  where a rank can be reached and in which order to try
 *   tcp_watch.c    interfaces of this host that vanish
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
 * A link has 1 to 8 streams, each a connection of its own. The first one makes it stand and carries
 * all headers in their order; the side that connected it opens the others at once, which join when
 * they have passed the same proof. With several interfaces, stream i goes by interface i mod n.
 * Those that use_streams asks for come later in the same way, but the link does without them where
 * they can't be opened; once they stand they stay, also while they are not used.
 *
 * On the wire, after the proof (net/proof.h): the acceptor's 8 bytes `ready`, then messages both
 * ways, a header each and what belongs to it; the top bits of the header's length say which kind:
 *   frame      first stream only: header, payload
 *   cut frame  first stream only: header; the payload comes in pieces, on any stream
 *   piece      number of the cut frame, place in its payload; bytes
 *   words      why the sender has given the link up; text. The last on a stream
 *   good-bye   first stream only, length all ones: nothing more comes on any
 * A cut frame is whole before the next frame begins, on both sides. A stream whose next message
 * comes too early for that is paused: the kernel keeps what comes. Pieces go to whichever stream
 * has room, so that streams of different rates carry what they can.
 *
 * Which connection becomes the link, when both sides connect at once: a side that has an attempt
 * of its own under way answers a peer's hello only if the peer's rank is lower; else the hello is
 * parked until the own attempt has failed or succeeded. So the lower rank's connection wins, and
 * yet a peer that can be reached one way only is reached. The acceptor holds the link for open when
 * it has seen the proof, the connector when it has seen `ready`; before that no frame flows, so an
 * attempt that ends earlier has lost nothing.
 *
 * Invariants:
 *  1. The first stream's fd >= 0 exactly in STANDING; its opening != NULL exactly in OPENING. Other
 *     streams have a fd or an opening only in STANDING.
 *  2. A rank never has an attempt of its own under way while it has answered the hello of a higher
 *     rank and waits for the proof.
 *  3. Epoll carries kind and number, not pointers, so an event that is late finds nothing instead
 *     of freed memory.
 *  4. A link in the dirty list is flushed before poll() returns.
 */
#ifndef SHOAL_NET_TCP_H
#define SHOAL_NET_TCP_H

#include <net/if.h>
#include <sys/epoll.h>

#include "net/frame_queue.h"
#include "net/proof.h"
#include "net/tcp_address.h"
#include "net/transport.h"

#define NET_TCP_INCOMING_MAX 64 /* connections under proof at once */
#define NET_TCP_BUFFER_BYTES (16 * 1024)
#define NET_TCP_REASON_BYTES 192
#define NET_TCP_WORDS_BYTES  512
#define NET_TCP_READY_BYTES  8
#define NET_TCP_EVENTS_MAX   64

/* Kinds of messages, in the header's length. */
#define NET_TCP_GOOD_BYE UINT64_MAX
#define NET_TCP_CUT      (UINT64_C(1) << 63)
#define NET_TCP_PIECE    (UINT64_C(1) << 62)
#define NET_TCP_WORDS    (UINT64_C(1) << 61)
#define NET_TCP_KINDS    (NET_TCP_CUT | NET_TCP_PIECE | NET_TCP_WORDS)

enum net_tcp_kind {
    NET_TCP_LISTENER = 1,
    NET_TCP_WAKER,
    NET_TCP_TIMER,
    NET_TCP_INTERFACES,
    NET_TCP_INCOMING, /* number: slot */
    NET_TCP_OPENING,  /* number: peer * NET_TCP_STREAMS_MAX + stream */
    NET_TCP_STREAM    /* likewise */
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
    int stream;
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

/* A piece of the frame that is being cut, on its way out. */
struct net_tcp_piece {
    unsigned char head[2 * NET_HEADER_BYTES]; /* the frame's header first, where it begins */
    size_t head_bytes;                        /* 0: there is no piece */
    uint64_t at, bytes;                       /* in the frame's payload */
    uint64_t done_bytes;                      /* of head and bytes together */
};

/* What a piece's header has behind the length. */
struct net_tcp_place {
    uint64_t frame; /* number among the frames of that direction that were cut, from 1 */
    uint64_t at;
};

struct net_tcp_link;

/* One connection of a link. */
struct net_tcp_stream {
    struct net_tcp_link *link;
    int fd;
    int low_water; /* so many bytes must have come before epoll tells; 0: as at first, 1 */
    struct net_tcp_opening *opening;
    uint32_t watched; /* events that epoll is asked for */
    uint8_t number;   /* among the link's */
    bool full;        /* the kernel takes no more now */
    bool wants_out;
    bool paused;     /* its next message has to wait for another stream */
    bool optional;   /* the link stands also if this can't be opened */
    bool end_seen;   /* while it was paused */
    int write_error; /* errno of the send that failed; the rest of the input is still read */
    struct net_tcp_piece *piece; /* NULL until the stream stands */
    /* what is arriving */
    unsigned char *buffer; /* NET_TCP_BUFFER_BYTES, behind the piece */
    size_t begin, end;     /* bytes in it that are not taken yet */
    uint64_t at, left;     /* of the frame's payload, what comes here next */
    uint64_t busy_us;      /* as the flow was last read */
    /* for messages */
    union net_tcp_address own;
    char interface[IF_NAMESIZE]; /* "": not known */
    char peer_text[NET_TCP_TEXT_BYTES];
};

/* There is one for every rank, wherever it is: small members stand together, for room. */
struct net_tcp_link {
    int peer;
    enum net_tcp_state state;
    struct net_tcp_stream first;
    struct net_tcp_stream *streams[NET_TCP_STREAMS_MAX]; /* [0]: first; NULL: never opened */
    int stream_count;                                    /* that stand */
    int spread;          /* large frames are cut over the first so many of them */
    int turn;            /* the stream that is asked first whether it has room for a piece */
    int incoming;        /* slot with the peer's hello; -1: none */
    bool connected_here; /* so this side opens the others */
    bool full_house;     /* an optional one could not be opened, and none is tried again */
    bool flushing;
    bool is_dirty;
    bool broken; /* no memory to finish a withdrawn frame */
    bool shut;   /* good-bye is out */
    bool in_frame, in_pieces;
    bool resume;           /* streams that are paused may go on */
    enum shoal_status why; /* of the end */
    uint64_t busy_us;      /* while any of them was busy, as the flow was last read */
    struct net_frame_queue queue;
    struct net_tcp_link *next_dirty;
    struct net_frame good_bye;
    /* the frame that is being cut: the queue's first; NULL: none */
    struct net_frame *cut;
    uint64_t cut_given; /* bytes of its payload that streams were given */
    uint64_t cut_count; /* frames cut so far */
    /* what is arriving */
    struct net_header header;
    unsigned char *payload; /* as arriving() said; NULL: thrown away */
    uint64_t payload_left;
    uint64_t pieced_count; /* cut frames that have begun to come so far */
    int64_t end_seen_ns;   /* when the first end of one of several streams was seen; 0: not yet */
    char *reason;          /* of the end; NULL: none, or no memory to remember it */
};

/* tcp_words.c's */
struct net_tcp_words;

struct net_tcp {
    const struct net_transport *transport;
    struct net_tcp *next_open; /* tcp_fork.c's */
    struct net_events events;
    struct net_endpoint_options options;
    struct net_tcp_interfaces interfaces;
    int streams;        /* in use on each link; options.streams of them a link can't do without */
    bool fixed_streams; /* the options gave their number */
    int epoll_fd, listen_fd, wake_fd, timer_fd;
    int interfaces_fd; /* tells that interfaces change; -1: nobody does */
    int64_t timer_ns;  /* when the timer will fire */
    int64_t watch_ns;  /* when to look for silent hosts next */
    int64_t look_ns;   /* when to look whether the interfaces are there */
    struct net_tcp_words *words;
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

/* ---- tcp_watch.c ---- */
/* Begins to listen for changes of this host's interfaces. Without such news a link whose interface
 * vanished is found by its silence. */
void net_tcp_watch_interfaces(struct net_tcp *ep);
/* News came: they are looked at a little later, since what goes may come back at once. */
void net_tcp_interfaces_changed(struct net_tcp *ep);
/* Ends the links that have a stream by an interface that is gone, if it is time to look. */
void net_tcp_look_at_interfaces(struct net_tcp *ep, int64_t now_ns, int64_t *next_ns);

/* ---- tcp_words.c ---- */
/* The link is about to break: says why on those of its streams that still work, but not `except`,
 * and takes these over. */
void net_tcp_say_words(struct net_tcp *ep, struct net_tcp_link *link,
                       const struct net_tcp_stream *except, const char *text);
/* Sends what is left of them, closes those that are over. */
void net_tcp_go_on_with_words(struct net_tcp *ep, int64_t now_ns, int64_t *next_ns);
/* Whether all have reached the peers' hosts. */
bool net_tcp_words_arrived(const struct net_tcp *ep);
/* In a forked child. */
void net_tcp_close_copies_of_words(const struct net_tcp *ep);
void net_tcp_free_words(struct net_tcp *ep);

/* ---- tcp_greet.c ---- */
void net_tcp_accept(struct net_tcp *ep);
void net_tcp_greet_incoming(struct net_tcp *ep, int slot);
void net_tcp_drop_incoming(struct net_tcp *ep, int slot);
void net_tcp_start_opening(struct net_tcp *ep, struct net_tcp_stream *stream);
void net_tcp_greet_outgoing(struct net_tcp *ep, struct net_tcp_stream *stream);
void net_tcp_end_opening(struct net_tcp_stream *stream);
/* Looks at deadlines; moves *next_ns to the earliest one left. */
void net_tcp_incoming_timers(struct net_tcp *ep, int64_t now_ns, int64_t *next_ns);
void net_tcp_opening_timer(struct net_tcp *ep, struct net_tcp_stream *stream, int64_t now_ns,
                           int64_t *next_ns);

/* ---- tcp_link.c ---- */
void net_tcp_init_link(struct net_tcp_link *link, int peer);
/* The stream of that number, made if need be. SHOAL_ERR_MEMORY. */
enum shoal_status net_tcp_get_stream(struct net_tcp_link *link, int number,
                                     struct net_tcp_stream **out);
/* The connection passed the proof: the first stream makes the link stand, others join it. Takes fd.
 */
void net_tcp_stand(struct net_tcp *ep, struct net_tcp_stream *stream, int fd);
/* Opens what the link lacks of the endpoint's streams, and spreads large frames over those. */
void net_tcp_spread(struct net_tcp *ep, struct net_tcp_link *link);
/* The stream could not be opened and is done without. */
void net_tcp_give_up_stream(struct net_tcp_stream *stream, const char *text);
/* Asks epoll for what the stream waits for. */
void net_tcp_watch_stream(struct net_tcp *ep, struct net_tcp_stream *stream);
void net_tcp_report_lost(struct net_tcp *ep, const struct net_tcp_link *link, const char *text);
/* Why the link, which has ended, ended. */
const char *net_tcp_reason(const struct net_tcp_link *link);
void net_tcp_lose(struct net_tcp *ep, struct net_tcp_link *link, enum shoal_status why,
                  const char *text);
/* The stream can't go on, and so the link can't; the peer is told by its other streams. error: an
 * errno, 0: its end was read. */
void net_tcp_lose_stream(struct net_tcp *ep, struct net_tcp_stream *stream, int error);
/* The peer's good-bye was read. */
void net_tcp_leave(struct net_tcp *ep, struct net_tcp_link *link);
/* Ends the link if the peer's host has been silent for too long on one of its streams. */
void net_tcp_check_silence(struct net_tcp *ep, struct net_tcp_link *link);
/* A step of closing in good order; true when nothing is left to do. */
bool net_tcp_part(struct net_tcp *ep, struct net_tcp_link *link);
/* Frees what the link holds, without any event; its streams stay, closed, until they are freed. */
void net_tcp_release_link(struct net_tcp_link *link);
void net_tcp_free_streams(struct net_tcp_link *link);

/* ---- tcp_send.c ---- */
void net_tcp_mark_dirty(struct net_tcp *ep, struct net_tcp_link *link);
void net_tcp_flush_dirty(struct net_tcp *ep);
void net_tcp_flush(struct net_tcp *ep, struct net_tcp_link *link);
enum shoal_status net_tcp_withdraw(struct net_tcp_link *link, struct net_frame *frame);
/* Bytes that the frame has on the wire: a good-bye is a header alone. */
static inline uint64_t net_tcp_wire_bytes(const struct net_tcp_link *link,
                                          const struct net_frame *frame)
{
    return frame == &link->good_bye ? NET_HEADER_BYTES : net_frame_bytes(frame);
}

/* ---- tcp_receive.c ---- */
void net_tcp_receive(struct net_tcp *ep, struct net_tcp_stream *stream);
/* All that the peer will ever send on this stream, which is paused, has come: if it ends with
 * words, they end the link. for_good: the connection is gone in both directions; then what it waits
 * for has come by now, or never will, and that ends the link too. */
void net_tcp_end_paused(struct net_tcp *ep, struct net_tcp_stream *stream, bool for_good);
/* Ends a link of which one stream has ended and the others have been silent since. */
void net_tcp_check_ended(struct net_tcp *ep, struct net_tcp_link *link, int64_t now_ns);

static inline void net_tcp_set_option(int fd, int level, int name, int value)
{
    /* All of them tune; a link works without. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

#endif
