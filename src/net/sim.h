/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h: a network in virtual time, wholly determined by one seed. All ranks live in one thread:
 * the driver asks the world for the next event, moves the clock, and polls the rank it concerns.
 *
 * Links have a latency and a rate; frames are cut in random pieces (partial writes), delayed and
 * reordered between different pairs (never within one pair), ranks can be slow, stop for a while,
 * or die, each at a moment drawn from the seed or set by the test.
 *
 * A frame may have no payload though payload_bytes is not 0: its time passes, no bytes move. The
 * transport allocates while frames flow. close() with a linger lets everything queued depart, as if
 * a kernel had it; close() never waits.
 */
#ifndef SHOAL_NET_SIM_H
#define SHOAL_NET_SIM_H

#include "net/transport.h"

struct net_sim_world;

struct net_sim_options {
    int size;
    uint64_t seed;
    int64_t latency_min_ns, latency_max_ns; /* drawn per piece, order within a pair kept */
    double bytes_per_ns;      /* rate of each rank's port, both directions; 0: infinite */
    uint32_t piece_bytes_max; /* a frame arrives in pieces of 1 to this; 0: whole */
};

enum shoal_status net_sim_world_create(const struct net_sim_options *options,
                                       struct net_sim_world **out);
void net_sim_world_free(struct net_sim_world *world);

/* Virtual now. */
int64_t net_sim_now_ns(const struct net_sim_world *world);
/* Moves the clock to the next event and returns the rank that it concerns, whose endpoint's poll()
 * will then see it; -1 if no event is pending. Never beyond until_ns: then the clock is until_ns
 * and -1 is returned. */
int net_sim_step(struct net_sim_world *world, int64_t until_ns);
/* At at_ns the rank dies: its frames stop, peers get `lost` one latency later. */
void net_sim_kill(struct net_sim_world *world, int rank, int64_t at_ns);
/* Between from_ns and to_ns nothing of the rank moves (a stopped process). */
void net_sim_stop(struct net_sim_world *world, int rank, int64_t from_ns, int64_t to_ns);
/* Makes the pair unreachable from at_ns on, silently: nothing arrives, nobody is told. */
void net_sim_cut(struct net_sim_world *world, int rank_a, int rank_b, int64_t at_ns);

/* Totals since the start: frames and payload bytes that left each rank. */
uint64_t net_sim_frames(const struct net_sim_world *world, int rank);
uint64_t net_sim_bytes(const struct net_sim_world *world, int rank);

#endif
