/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h: the one engine that runs operations over transports: schedules of collectives, point to
 * point messages, and tasks of the same-host path.
 *
 * Single-threaded and non-blocking: whoever holds the world's token (progress.c) calls it; a test
 * may run sixty-four of them in one thread over the simulated network. It knows no wall clock but
 * the function it is given.
 *
 * A task is one operation under way. States of a schedule's step: waiting for steps -> ready ->
 * (send: waiting for a grant) -> under way -> done. The task is done when all its steps are.
 */
#ifndef SHOAL_COMM_ENGINE_H
#define SHOAL_COMM_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/call.h"
#include "comm/group.h"
#include "comm/plan.h"
#include "net/transport.h"

struct comm_task;

/* How a kind of task moves. */
struct comm_task_class {
    const char *name;
    /* Moves without blocking; true when the task is done. NULL: events move it. */
    bool (*advance)(struct comm_task *task);
    /* Whether advance would move something; NULL if that is. Peers ring the bell of this rank only
     * when it sleeps, so it is asked again after the sleep was announced. */
    bool (*ready)(struct comm_task *task);
    /* Takes back all that peers or transports may still touch; the group broke and the task, whose
     * memory is gone after this, is over. */
    void (*cancel)(struct comm_task *task);
    /* Sets late[group rank] for those it waits for. */
    void (*late)(struct comm_task *task, bool *late);
};

struct comm_task {
    const struct comm_task_class *class;
    struct comm_group *group;
    struct comm_call call;
    struct comm_signature signature;
    uint32_t plan_hash; /* of a schedule; 0: it runs none */
    uint64_t sequence;
    int64_t deadline_ns;
    int64_t asked_ns;    /* when the members were asked how far they are; 0: not */
    struct comm_answer { /* [size] what they said; NULL: not asked */
        bool came, not_started, ended;
    } * answers;
    /* Called once when the task is over. status and text are the group's failure when it broke. */
    void (*done)(struct comm_task *task, enum shoal_status status);
    void *owner;
    void *owner_run;                   /* the class's own */
    struct comm_task *previous, *next; /* in group */
};

/* All that a server has to know of an operation to take its part. */
struct comm_asked {
    uint64_t context, sequence;
    struct comm_signature signature;
    bool reproducible;
    uint32_t version; /* of shares */
};

/* What a server's engine says of groups that ranks share with servers. Token held. */
struct comm_serving {
    void *user;
    /* A frame came of an operation that this process has not called yet. Each rank tells of a
     * group's operations in rising order, also when this is the first that is heard of the group.
     */
    void (*called)(void *user, const struct comm_asked *asked);
    /* What a host sums by shares of a version; each rank says so before it tells of operations by
     * them. */
    void (*share)(void *user, uint64_t context, uint32_t version, uint32_t host, uint32_t share);
    /* A rank has closed the group, and sends nothing more of it. */
    void (*left)(void *user, uint64_t context);
};

struct comm_engine_options {
    int rank, size; /* in the world */
    uint64_t eager_bytes;
    int64_t (*now_ns)(void *user);
    void *now_user;
    const char *const *host_names; /* [size] for messages; borrowed */
    struct comm_serving serving;   /* zeroed but on a server */
};

enum shoal_status comm_engine_create(const struct comm_engine_options *options,
                                     struct comm_engine **out);
/* After all groups are removed and endpoints closed. */
void comm_engine_free(struct comm_engine *engine);

/* What to give to each transport's open. */
void comm_engine_events(struct comm_engine *engine, struct net_events *out);
/* Hands over an opened endpoint; peers[i] says whether world rank i is reached through it. The
 * engine does not close it. At most 2. */
enum shoal_status comm_engine_attach(struct comm_engine *engine, struct net_endpoint *endpoint,
                                     const bool *peers);

/* Groups that frames may belong to. */
void comm_engine_add_group(struct comm_engine *engine, struct comm_group *group);
void comm_engine_remove_group(struct comm_engine *engine, struct comm_group *group);
struct comm_group *comm_engine_find_group(struct comm_engine *engine, uint64_t context);

/* What the link to a peer (a world rank) has carried; false: not known. */
bool comm_engine_flow(const struct comm_engine *engine, int peer, struct net_flow *out);

/* Large messages go over so many connections to each peer by each interface from now on. Token
 * held; allocates. */
void comm_engine_use_streams(struct comm_engine *engine, int count);

/* Opens a link to a peer, so that each sees when the other is lost. */
void comm_engine_greet(struct comm_engine *engine, int peer);
/* Tells the group's servers that this rank closes it. */
void comm_engine_leave_servers(struct comm_engine *engine, const struct comm_group *group);
/* Whether it was lost or has left. */
bool comm_engine_peer_is_gone(const struct comm_engine *engine, int peer);

/* Adds a descriptor to those that end a sleep. */
enum shoal_status comm_engine_watch(struct comm_engine *engine, int fd);

/* Starts a collective by a plan (comm/plan.h) whose `users` counts this run; done or failed, it
 * counts it no more. call's buffers stay valid until done. The task comes from the plan's pool and
 * returns to it after done(). */
enum shoal_status comm_engine_start_plan(struct comm_engine *engine, struct comm_group *group,
                                         struct comm_plan *plan, const struct comm_call *call,
                                         uint64_t sequence, int64_t deadline_ns,
                                         void (*done)(struct comm_task *, enum shoal_status),
                                         void *owner);
/* Starts a send or receive. */
enum shoal_status comm_engine_start_send(struct comm_engine *engine, struct comm_group *group,
                                         const struct comm_call *call, uint64_t sequence,
                                         int64_t deadline_ns,
                                         void (*done)(struct comm_task *, enum shoal_status),
                                         void *owner);
/* Starts a task of another room (same-host path); the task's memory is the caller's. */
void comm_engine_start_task(struct comm_engine *engine, struct comm_task *task);

/* Moves everything that can move. Returns the number of events; 0: nothing moved. */
int comm_engine_poll(struct comm_engine *engine);
/* Tasks and frames that are not done, or that may be asked for at any time (a server). */
bool comm_engine_busy(const struct comm_engine *engine);
/* Sleeps until something can move, at most timeout_ms; false at once if something can already. */
bool comm_engine_sleep(struct comm_engine *engine, int timeout_ms);
/* Ends a sleep. Any thread. */
void comm_engine_wake(struct comm_engine *engine);

/* A peer's process ended (seen outside of the transports): breaks its groups. */
void comm_engine_peer_lost(struct comm_engine *engine, int peer, enum shoal_status why,
                           const char *text);
/* Tells the members of a broken group, and ends its tasks. poll() does it too, at its next call. */
void comm_engine_group_broke(struct comm_engine *engine, struct comm_group *group);

#endif
