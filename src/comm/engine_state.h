/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_state.h: what the files of the engine share: engine.c (poll, deadlines, failure), run.c
 * (schedules), send.c (point to point), early.c (frames that came before their operation).
 *
 * Invariants
 *  1. A frame is in a transport's queue exactly while its owner's busy mark is set.
 *  2. Eager frames to a peer and class that were not reported consumed are at most WIRE_SLOTS, so
 * an early record with a slot can always be had (or memory ran out, which breaks the group).
 *  3. peers[p].arrival says where the payload that is arriving from p goes; what it points to stays
 *     until received(), or is diverted first.
 *  4. A task is in its group's list exactly while it is active; done() is called once, after that.
 */
#ifndef SHOAL_COMM_ENGINE_STATE_H
#define SHOAL_COMM_ENGINE_STATE_H

#include "comm/engine.h"
#include "comm/wire.h"

#define COMM_ENDPOINTS_MAX 2
#define COMM_EARLY_BUCKETS 1024   /* a power of two */
#define COMM_EARLY_MAX     65536u /* early records of one rank; more is a runaway peer */
#define COMM_CLOSED_MAX    64     /* groups that left, whose late frames are known as such */
#define COMM_DOOMED_MAX    16     /* groups that broke before they were made */

/* First member of all that owns frames. */
enum comm_owner { OWNER_RUN, OWNER_SEND, OWNER_CONTROL };

/* A frame that came before its operation was ready for it. */
struct comm_early {
    struct comm_early *next;
    struct wire wire;
    int peer; /* world rank */
    uint64_t payload_bytes;
    bool complete;
    struct comm_run *claimed_run; /* keeps it for this step */
    uint32_t claimed_step;
    struct comm_send *claimed_receive; /* waits for `complete` */
    unsigned char *slot;               /* eager_bytes, behind the record; NULL in small records */
};

enum arrival_kind { ARRIVAL_NONE, ARRIVAL_STEP, ARRIVAL_EARLY, ARRIVAL_RECEIVE, ARRIVAL_CONTROL };

struct comm_arrival {
    enum arrival_kind kind;
    struct comm_run *run;
    uint32_t step;
    struct comm_early *early;
    struct comm_send *receive;
    unsigned char *control; /* abort text */
};

/* A frame of the engine itself: credit, abort, ask, tell. */
struct comm_control {
    enum comm_owner owner;
    struct net_frame frame;
    bool busy, keep; /* keep: lives in the peer */
    int peer;
    struct comm_control *previous, *next; /* of those that are not kept */
};

struct comm_peer {
    struct net_endpoint *endpoint;
    uint16_t eager_sent[WIRE_CLASS_COUNT], eager_acked[WIRE_CLASS_COUNT];
    uint16_t consumed[WIRE_CLASS_COUNT], told[WIRE_CLASS_COUNT];
    struct comm_control credit;
    struct comm_arrival arrival;
    bool linked; /* a frame went to or came from it */
    bool lost, left;
    enum shoal_status why;
    char why_text[256];
};

struct comm_engine {
    struct comm_engine_options options;
    struct comm_peer *peers; /* [size] */
    struct net_endpoint *endpoints[COMM_ENDPOINTS_MAX];
    int endpoint_count;
    int sleep_fd; /* epoll over the endpoints' descriptors; -1: none */
    struct comm_group *groups;
    int task_count;
    struct comm_early *early[COMM_EARLY_BUCKETS];
    struct comm_early *early_sends, **early_sends_end; /* point to point, in order of arrival */
    struct comm_early *idle_small, *idle_slots;
    uint32_t early_count;
    struct comm_send *idle_sends;
    struct comm_control *controls;
    uint32_t next_id;
    uint64_t closed[COMM_CLOSED_MAX]; /* contexts */
    uint32_t closed_count;            /* ever */
    uint64_t doomed[COMM_DOOMED_MAX]; /* contexts */
    enum shoal_status doomed_why[COMM_DOOMED_MAX];
    uint32_t doomed_count; /* ever */
    bool any_left;         /* a peer has left: tasks may wait for it in vain */
    int64_t next_look_ns;  /* at deadlines */
    int events;            /* since the last poll began */
};

/* engine.c */
void engine_post(struct comm_engine *engine, int peer, struct net_frame *frame,
                 const struct wire *wire, const void *payload, uint64_t payload_bytes);
int64_t engine_now_ns(const struct comm_engine *engine);
bool engine_window_open(const struct comm_engine *engine, int peer, enum wire_class class);
/* The frame, if it was an eager one, holds no slot any more. */
void engine_slot_free(struct comm_engine *engine, int peer, const struct wire *wire);
/* Whether this rank had the group and removed it. */
bool engine_is_closed(const struct comm_engine *engine, uint64_t context);
void engine_task_begin(struct comm_engine *engine, struct comm_task *task);
void engine_task_end(struct comm_engine *engine, struct comm_task *task, enum shoal_status status);
/* Cancels the task of a broken group, then ends it with the group's failure. */
void engine_task_cancel(struct comm_engine *engine, struct comm_task *task);
/* The transport of an endpoint: every endpoint starts with it. */
static inline const struct net_transport *net_of(const struct net_endpoint *endpoint)
{
    return *(const struct net_transport *const *)endpoint;
}
/* Takes a busy frame back. */
void engine_withdraw(struct comm_engine *engine, struct net_endpoint *endpoint, int peer,
                     struct net_frame *frame);
/* Ends a payload that is arriving from peer (a world rank) before its time. */
void engine_divert(struct comm_engine *engine, int peer);
/* Breaks the group with SHOAL_ERR_MISMATCH; `theirs` came from group rank `rank`. */
void engine_mismatch(struct comm_group *group, uint64_t sequence, const struct comm_signature *mine,
                     int rank, const struct comm_signature *theirs);
static inline struct comm_signature engine_signature(const struct wire *wire)
{
    struct comm_signature signature = {wire->kind, wire->dtype, wire->op, wire->root, wire->count};
    return signature;
}

/* What this rank called as the collective of that number; NULL: nothing yet, or long ago, or one
 * that did not need the engine. */
static inline const struct comm_called *engine_called(const struct comm_group *group,
                                                      uint64_t sequence)
{
    const struct comm_called *called = &group->history[sequence % COMM_HISTORY];
    return called->sequence == sequence ? called : NULL;
}
static inline bool engine_agrees(const struct comm_called *called, const struct wire *wire)
{
    struct comm_signature theirs = engine_signature(wire);
    return comm_signature_equal(&called->signature, &theirs) && called->plan_hash == wire->plan;
}

/* An operation whose number is taken could not start, so the group can't go on: breaks it. */
enum shoal_status engine_not_started(struct comm_group *group, const struct comm_call *call,
                                     uint64_t sequence, enum shoal_status status);

/* early.c */
/* A record for the frame whose header has come, and from now on for its payload; the caller files
 * it. group may be NULL: not made yet. Without a place for it the group breaks, and NULL returns.
 */
struct comm_early *early_keep(struct comm_engine *engine, struct comm_group *group, int peer,
                              const struct wire *wire, uint64_t payload_bytes);
/* The record's frame is used up. */
void early_give_back(struct comm_engine *engine, struct comm_early *early);
/* Nobody will use it: ends its arrival and frees its slot at the sender too. */
void early_drop(struct comm_engine *engine, struct comm_early *early);
/* Puts it in the table of collectives. */
void early_file(struct comm_engine *engine, struct comm_early *early);
/* Takes one record of the collective out of the table, in no order; NULL: none. */
struct comm_early *early_pull(struct comm_engine *engine, uint64_t context, uint64_t sequence);
/* Drops what belongs to a group that goes. */
void early_forget(struct comm_engine *engine, uint64_t context);
void early_free_all(struct comm_engine *engine);

/* run.c */
void *run_arriving(struct comm_engine *engine, struct comm_group *group, int peer,
                   const struct wire *wire, uint64_t payload_bytes);
void run_received_step(struct comm_engine *engine, struct comm_run *run, uint32_t step);
void run_received_early(struct comm_engine *engine, struct comm_early *early);
void run_control(struct comm_engine *engine, struct comm_group *group, int peer,
                 const struct wire *wire);
void run_sent(struct comm_engine *engine, struct net_frame *frame);

/* send.c */
void *send_arriving(struct comm_engine *engine, struct comm_group *group, int peer,
                    const struct wire *wire, uint64_t payload_bytes);
void send_received(struct comm_engine *engine, struct comm_send *receive);
void send_received_early(struct comm_engine *engine, struct comm_early *early);
void send_control(struct comm_engine *engine, struct comm_group *group, int peer,
                  const struct wire *wire);
void send_sent(struct comm_engine *engine, struct net_frame *frame);
void send_free_idle(struct comm_engine *engine);

#endif
