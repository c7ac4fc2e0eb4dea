/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h: a ring of bytes that carries frames from one writer to one reader, in memory that both
 * map (at different addresses, so there are no pointers in it) or both own.
 *
 * A frame is its 64-byte header and its payload, filled up to a multiple of 64 bytes, so that a
 * header never wraps. Frames larger than the ring flow through it in pieces.
 *
 * `written` and `read` count bytes since the start and never wrap in practice; each stands in its
 * own cache line and each side keeps its own copy of the other's count, so that the lines move only
 * when there is news. The writer publishes with release, the reader takes with acquire.
 *
 * Sleeping: the writer that waits for space sets `blocked`; the reader that made space looks at it.
 * Both use sequentially consistent accesses there, so that one of them sees the other (Dekker). The
 * reader that waits for data is woken through its doorbell (base/wait.h).
 */
#ifndef SHOAL_NET_RING_H
#define SHOAL_NET_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/transport.h"

#define NET_RING_LINE_BYTES 64
#define NET_RING_MIN_BYTES  1024

enum net_ring_ended {
    NET_RING_OPEN = 0,
    NET_RING_LEFT,  /* nothing follows; the writer closed in good order */
    NET_RING_BROKEN /* nothing follows; the last frame is not whole */
};

struct net_ring {
    _Alignas(NET_RING_LINE_BYTES) _Atomic uint64_t written; /* the writer's line */
    atomic_uint blocked;                                    /* 1: the writer waits for space */
    atomic_uint ended;                                      /* enum net_ring_ended */
    _Alignas(NET_RING_LINE_BYTES) _Atomic uint64_t read;    /* the reader's line */
};

/* Whether a ring can hold data_bytes: a power of two of at least NET_RING_MIN_BYTES. */
bool net_ring_bytes_valid(size_t data_bytes);

/* ---- the writer's side: private to it -------------------------------------------------------- */

struct net_ring_writer {
    struct net_ring *ring;
    unsigned char *data;
    uint64_t data_bytes, piece_bytes;
    uint64_t written;   /* = ring->written */
    uint64_t read_seen; /* <= ring->read */
    bool blocked;       /* = ring->blocked */
};

/* The ring's bytes lie at data, which need not be there before the first net_ring_put. */
void net_ring_writer_init(struct net_ring_writer *writer, struct net_ring *ring,
                          unsigned char *data, size_t data_bytes);

enum net_ring_put {
    NET_RING_PUT_ALL,   /* the frame's last byte is in */
    NET_RING_PUT_PIECE, /* a piece was put, and there may be space for more */
    NET_RING_PUT_FULL   /* no space; `blocked` is set */
};
/* Puts one piece of the frame, moves frame->done_bytes, and publishes. Ring the reader's bell after
 * ALL and PIECE. */
enum net_ring_put net_ring_put(struct net_ring_writer *writer, struct net_frame *frame);
/* Whether the next piece of the frame would find space; if not, `blocked` is set. Sequentially
 * consistent: for use after having announced sleep. */
bool net_ring_can_put(struct net_ring_writer *writer, const struct net_frame *frame);
/* The last thing a writer does. */
void net_ring_end(struct net_ring_writer *writer, enum net_ring_ended how);

/* ---- the reader's side: private to it -------------------------------------------------------- */

struct net_ring_reader {
    struct net_ring *ring;
    const unsigned char *data;
    uint64_t data_bytes;
    uint64_t read;           /* taken so far */
    uint64_t read_published; /* = ring->read */
    uint64_t written_seen;   /* <= ring->written */
};

void net_ring_reader_init(struct net_ring_reader *reader, struct net_ring *ring,
                          const unsigned char *data, size_t data_bytes);

/* Bytes that can be taken now; looks at the writer's count only when there are none left of the
 * last look. */
uint64_t net_ring_available(struct net_ring_reader *reader);
/* Whether there is anything to do: bytes, or the end. Sequentially consistent, as can_put. */
bool net_ring_has_news(const struct net_ring_reader *reader);
/* Takes a header. At least 64 bytes are available. */
void net_ring_take_header(struct net_ring_reader *reader, struct net_header *header);
/* Takes what has come of the `missing` bytes of a payload (into `out`; NULL: throws them away) and
 * returns how many. */
uint64_t net_ring_take(struct net_ring_reader *reader, void *out, uint64_t missing);
/* Gives the space of what was taken back. True: the writer waits for it, ring its bell. */
bool net_ring_publish_read(struct net_ring_reader *reader);
/* How the writer ended, once everything it wrote was taken; OPEN before. */
enum net_ring_ended net_ring_how_ended(struct net_ring_reader *reader);

#endif
