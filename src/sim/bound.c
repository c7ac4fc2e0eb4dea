/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound.c: the least time for an operation, whatever the algorithm.
 *
 * Over the network: what must enter and leave each host, over the rate of its link, and one
 * latency; the same for all hosts of a switch and its uplink. An allreduce of n must move n in and
 * out of every host, and 2(h-1)n over all links together: on equal links that is the well-known
 * 2(h-1)/h n each, on unequal ones the slowest link may be spared down to n. A server's link counts
 * (h-2)/h of a rank's, since what it sums comes from all h and goes to all (coll/served.c). In all:
 * the inputs of each element must be read once to be summed, spread over all ranks. On one host,
 * where each message costs its receiver a copy, what must enter each rank. These are the textbook
 * bounds (Thakur, Rabenseifner, Gropp 2005; Patarasu, Yuan 2009; Jiang et al. 2020).
 */
#include "sim/sim.h"

enum level { LEVEL_RANKS, LEVEL_HOSTS, LEVEL_SWITCHES };

/* Elements of the blocks of one place's ranks, and of all. */
struct share {
    uint64_t own, all;
    int ranks; /* without servers */
    bool has_root;
};

static int place_of(const struct sim_platform *platform, const struct coll_shape *shape,
                    enum level level, int rank)
{
    int host = shape->host_of[rank];
    return level == LEVEL_RANKS   ? rank
           : level == LEVEL_HOSTS ? host
                                  : sim_switch_of(platform, host);
}

static struct share share_of(const struct sim_platform *platform, const struct coll_shape *shape,
                             enum level level, int place)
{
    bool has_blocks = shape->kind == COLL_ALLGATHER || shape->kind == COLL_REDUCE_SCATTER ||
                      shape->kind == COLL_GATHER || shape->kind == COLL_SCATTER;
    struct share share = {0};
    for (int rank = 0; rank < schedule_rank_count(shape); rank++) {
        uint64_t count = has_blocks ? schedule_block_count(shape, rank) : 0;
        bool here = place_of(platform, shape, level, rank) == place;
        share.all += count;
        share.own += here ? count : 0;
        share.ranks += here;
        share.has_root |= here && rank == shape->root;
    }
    return share;
}

/* Elements that must leave a place, or enter it. */
static double least_elements(const struct coll_shape *shape, struct share share, bool out)
{
    double own = (double)share.own, others = (double)(share.all - share.own);
    double count = (double)shape->count;
    switch (shape->kind) {
    case COLL_ALLREDUCE: return share.ranks > 0 ? count : 0;
    case COLL_REDUCE: return share.has_root != out ? count : 0;
    case COLL_BROADCAST: return share.has_root == out ? count : 0;
    case COLL_ALLGATHER: return out ? own : others;
    case COLL_REDUCE_SCATTER: return out ? others : own;
    case COLL_GATHER: return share.has_root == out ? 0 : out ? own : others;
    case COLL_SCATTER: return share.has_root != out ? 0 : out ? others : own;
    case COLL_ALLTOALL: return (double)share.ranks * (shape->size - share.ranks) * count;
    default: return 0;
    }
}

static double rate_of(const struct sim_platform *platform, enum level level, int place)
{
    return level == LEVEL_RANKS   ? platform->copy_bytes_per_ns
           : level == LEVEL_HOSTS ? sim_host_rate(platform, place)
                                  : platform->uplink_bytes_per_ns;
}

/* Time for what must pass the links of all places, ns. */
static double pass_ns(const struct sim_platform *platform, const struct coll_shape *shape,
                      enum level level, int places)
{
    double most_ns = 0, bytes = (double)shape->elem_bytes, rates[2] = {0, 0};
    int with_ranks = 0;
    for (int place = 0; place < places; place++) {
        double rate = rate_of(platform, level, place);
        struct share share = share_of(platform, shape, level, place);
        double in = least_elements(shape, share, false);
        double out = level == LEVEL_RANKS ? 0 : least_elements(shape, share, true);
        double place_ns = (in > out ? in : out) * bytes / rate;
        most_ns = place_ns > most_ns ? place_ns : most_ns;
        rates[share.ranks > 0] += rate;
        with_ranks += share.ranks > 0;
    }
    double usable = rates[true] + rates[false] * (with_ranks - 2) / with_ranks;
    double together_ns = 2.0 * (with_ranks - 1) * (double)shape->count * bytes / usable;
    return shape->kind == COLL_ALLREDUCE && together_ns > most_ns ? together_ns : most_ns;
}

/* Elements that each rank must read for the sums, if all share the work. */
static double sum_elements(const struct coll_shape *shape)
{
    switch (shape->kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE: return (double)shape->count * schedule_rank_count(shape) / shape->size;
    case COLL_REDUCE_SCATTER: break;
    default: return 0;
    }
    double all = 0;
    for (int rank = 0; rank < shape->size; rank++)
        all += (double)schedule_block_count(shape, rank);
    return all;
}

double sim_bound(const struct sim_platform *platform, const struct coll_shape *shape)
{
    if (shape->size == 1)
        return 0;
    bool network = shape->host_count > 1;
    int switches = sim_switch_count(platform);
    double links_ns = network ? pass_ns(platform, shape, LEVEL_HOSTS, shape->host_count)
                              : pass_ns(platform, shape, LEVEL_RANKS, shape->size);
    double uplinks_ns = switches > 1 ? pass_ns(platform, shape, LEVEL_SWITCHES, switches) : 0;
    links_ns = uplinks_ns > links_ns ? uplinks_ns : links_ns;
    if (links_ns == 0 && shape->kind != COLL_BARRIER)
        return 0;
    double sum_ns = sum_elements(shape) * (double)shape->elem_bytes / platform->reduce_bytes_per_ns;
    if (!network) /* a rank copies and sums one after the other */
        sum_ns += links_ns;
    links_ns += network ? platform->link_latency_ns : platform->local_latency_ns;
    return links_ns > sum_ns ? links_ns : sum_ns;
}
