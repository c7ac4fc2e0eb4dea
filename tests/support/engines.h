/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engines.h: the engines of all ranks of a job in one thread, over inproc or over the simulated
 * network, so that a test decides who moves when. Nothing here blocks, and time is the test's.
 */
#ifndef SHOAL_TESTS_ENGINES_H
#define SHOAL_TESTS_ENGINES_H

#include "comm/engine.h"
#include "net/inproc.h"
#include "net/sim.h"

#define ENGINES_MAX 17

struct engines_options {
    int size;
    uint64_t eager_bytes;
    size_t ring_bytes;         /* inproc: of each pair and direction; 0: 4096 */
    struct net_sim_world *sim; /* NULL: inproc. Borrowed */
    uint64_t late_seed;        /* not 0: `sent` is reported polls later, as this seed says */
};

struct engines {
    int size;
    uint64_t eager_bytes;
    struct net_inproc_hall *hall;
    struct net_sim_world *sim;
    int64_t now_ns; /* inproc: the clock */
    struct comm_engine *engine[ENGINES_MAX];
    struct net_endpoint *endpoint[ENGINES_MAX];
    bool dead[ENGINES_MAX]; /* killed, stopped or gone: not polled */
    int first;              /* who is polled first in the next round */
};

/* A group on all of its members, by group rank. */
struct engines_group {
    struct engines *engines;
    int size;
    int members[ENGINES_MAX];
    struct comm_group *of[ENGINES_MAX];
    uint64_t sequence[ENGINES_MAX], send_sequence[ENGINES_MAX];
    int64_t timeout_ns;
};

enum shoal_status engines_open(const struct engines_options *options, struct engines **out);
/* Groups first. NULL is allowed. */
void engines_close(struct engines *engines);
int64_t engines_now_ns(const struct engines *engines);
/* Polls everyone once; 0: nothing moved. */
int engines_poll(struct engines *engines);
/* Polls until nothing moves any more (inproc). */
void engines_settle(struct engines *engines);
/* The rank closes its endpoint in good order. */
void engines_leave(struct engines *engines, int rank, int64_t linger_ms);
/* inproc: the rank's process is gone. */
void engines_kill(struct engines *engines, int rank);

/* members NULL: all ranks in order. host_of [engines size]; NULL: a host each. */
enum shoal_status engines_group_open(struct engines *engines, const int *members, int size,
                                     const int *host_of, uint64_t context, int64_t timeout_ms,
                                     struct engines_group **out);
/* What still runs on it ends with SHOAL_ERR_ABORTED. NULL is allowed. */
void engines_group_close(struct engines_group *group);
/* The engine of a group rank. */
struct comm_engine *engines_of(const struct engines_group *group, int rank);

#endif
