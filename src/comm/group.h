/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h: a group of ranks, and how it breaks.
 *
 * Life: made by world.c (the root group) or group.c (split, subset) -> works -> broken (first cause
 * wins, sticky) -> freed. Only `failure` may be written by several threads; everything that the
 * engine keeps for a group is touched by whoever holds the world's token.
 */
#ifndef SHOAL_COMM_GROUP_H
#define SHOAL_COMM_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/call.h"
#include "comm/counters.h"

#define COMM_HISTORY 64 /* operations whose signature a group remembers, for messages */

struct comm_world;
struct comm_engine;
struct comm_request;
struct comm_plan;
struct comm_steering;
struct local_group;

/* Why a group is broken. state: 0 works, 1 being written, 2 broken. */
struct comm_failure {
    atomic_int state;
    enum shoal_status status;
    char text[BASE_ERROR_TEXT_BYTES];
};

/* A collective that was started. */
struct comm_called {
    uint64_t sequence; /* 0: none yet */
    struct comm_signature signature;
    uint32_t plan_hash;
};

struct comm_group {
    struct comm_world *world; /* NULL in engine tests */
    struct comm_engine *engine;
    char name[64];
    uint64_t context; /* the same on all members, unlike any other group of the world */
    int rank, size;
    int server_count; /* of `size`, the last ones: servers, of a group that `serves` another */
    int *members;     /* [size] world rank of each group rank */
    int *rank_of;     /* [world size] group rank of each world rank, -1: not in it */
    int *host_of;     /* [size] host index within the group, numbered by first rank */
    int host_count, local_rank, local_size;
    atomic_llong timeout_ms;
    bool reproducible, is_root;

    struct comm_failure failure;
    struct comm_group *served; /* the same ranks and the world's servers, for large sums; or NULL */
    struct comm_group *serves; /* the other way round; NULL on a server */

    /* Submission: `door` is held while a sequence number is taken, and by a blocking operation
     * while it runs on its caller's thread. */
    atomic_int door;
    uint64_t sequence;      /* of the last collective started, from 1 */
    uint64_t send_sequence; /* of point to point */
    atomic_int pending;     /* requests not done */
    /* The same-host operation that a caller carries out on its own thread, for messages: its number
     * (0: there is none), and its packed signature, which is written first. */
    atomic_uint_least64_t blocking, blocking_signature;
    struct comm_counters counters;
    uint64_t split_number;              /* splits so far */
    struct comm_request *idle_requests; /* under the door, as the next two */
    int requests_out;                   /* not given back by their users */
    bool closed;                        /* lives on only for those */
    struct comm_group *next_known;      /* api's */

    /* The engine's (under the token). */
    struct comm_group *next_in_engine;
    struct comm_task *first_task, *last_task; /* active, oldest first */
    struct comm_send *posted_receives, *self_sends;
    uint32_t told;        /* version of the shares that servers were told last */
    bool announced;       /* members are told that it broke */
    atomic_bool told_why; /* they were; any thread looks */
    bool *knows_why;      /* [size] this one was told */
    uint64_t started;     /* last collective started, and the signatures of the last ones */
    struct comm_called history[COMM_HISTORY];

    struct comm_steering *steering; /* under the door; NULL: nothing was steered yet */

    struct comm_plan *plans; /* cache, most recently used first */
    int plan_count;

    /* Same-host path; NULL if hosts differ or it is off. Written last: the progress thread looks.
     */
    struct local_group *_Atomic local;
    void (*local_free)(struct local_group *local);
    void (*local_fail)(struct local_group *local); /* tells peers in shared memory */
    /* Shows them a collective that takes another path. */
    void (*local_note)(struct local_group *local, const struct comm_call *call, uint64_t sequence);
};

/* Fills what follows from members: rank_of, host_of (from world_host_of[world rank]), local ranks.
 * members is copied. For world.c, group.c and tests. */
enum shoal_status comm_group_make(int world_rank, int world_size, const int *world_host_of,
                                  const int *members, int size, const char *name, uint64_t context,
                                  struct comm_group **out);
/* Frees what comm_group_make took. */
void comm_group_dispose(struct comm_group *group);

/* Breaks the group, and the one that it serves or is served by: the first cause stays. True if this
 * call was the first. Any thread. */
bool comm_group_break(struct comm_group *group, enum shoal_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline bool comm_group_broken(const struct comm_group *group)
{
    return atomic_load_explicit(&group->failure.state, memory_order_acquire) != 0;
}
/* SHOAL_OK, or the cause with its text as this thread's error. Waits out a writer. */
enum shoal_status comm_group_health(struct comm_group *group);

/* Breaks it as PEER_LOST: that group rank has left in good order, and this operation needs it. Any
 * thread. */
void comm_group_break_by_leaving(struct comm_group *group, int rank,
                                 const struct comm_signature *signature, uint64_t sequence);

/* Those that are no servers. */
static inline int comm_group_rank_count(const struct comm_group *group)
{
    return group->size - group->server_count;
}

/* Hosts that have ranks; they have the first numbers. */
int comm_group_rank_hosts(const struct comm_group *group);

/* "rank 3 (host b)" or "server 1 (host c)" of a group rank, in a buffer of the caller. */
const char *comm_rank_text(const struct comm_group *group, int rank, char *text, size_t text_bytes);
/* "rank 0, 3-5, server 1" from flags[size]; at most a few, then "… and 12 more". */
const char *comm_ranks_text(const struct comm_group *group, const bool *flags, char *text,
                            size_t text_bytes);

#endif
