/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound.c: the least time for an operation, in the model of coll_predict.
 *
 * Over the network: what must enter and leave each host, however it is done, over the rate of its
 * port, and one latency. In all: the inputs of each element must be read once to be summed, spread
 * over all ranks. On one host, where each message costs its receiver a copy, what must enter each
 * rank. These are the textbook bounds (Thakur, Rabenseifner, Gropp 2005; Patarasu, Yuan 2009).
 */
#include "coll/coll.h"

/* Elements of the blocks of one place's ranks (a host's, or one rank), and of all. */
struct share {
    uint64_t own, all;
    bool has_root;
};

static int place_of(const struct coll_shape *shape, int rank)
{
    return shape->host_count > 1 ? shape->host_of[rank] : rank;
}

static struct share share_of(const struct coll_shape *shape, int place)
{
    struct share share = {0};
    bool has_blocks = shape->kind == COLL_ALLGATHER || shape->kind == COLL_REDUCE_SCATTER ||
                      shape->kind == COLL_GATHER || shape->kind == COLL_SCATTER;
    for (int rank = 0; rank < shape->size; rank++) {
        bool here = place_of(shape, rank) == place;
        uint64_t count = has_blocks ? schedule_block_count(shape, rank) : 0;
        share.all += count;
        share.own += here ? count : 0;
        share.has_root |= here && rank == shape->root;
    }
    return share;
}

/* What alltoall moves out of a place, or into it. */
static uint64_t alltoall_elements(const struct coll_shape *shapes, int place, bool out)
{
    uint64_t elements = 0;
    for (int from = 0; from < shapes[0].size; from++)
        for (int to = 0; to < shapes[0].size; to++) {
            bool from_here = place_of(shapes, from) == place;
            bool to_here = place_of(shapes, to) == place;
            if (from_here != to_here && from_here == out)
                elements += schedule_block_count(&shapes[from], to);
        }
    return elements;
}

/* Elements that must leave a place, or enter it. */
static double port_elements(const struct coll_shape *shapes, int place, int place_count, bool out)
{
    const struct coll_shape *shape = &shapes[0];
    struct share share = share_of(shape, place);
    double own = (double)share.own, others = (double)(share.all - share.own);
    double count = (double)shape->count;
    switch (shape->kind) {
    case COLL_ALLREDUCE: return 2.0 * (place_count - 1) / place_count * count;
    case COLL_REDUCE: return share.has_root != out ? count : 0;
    case COLL_BROADCAST: return share.has_root == out ? count : 0;
    case COLL_ALLGATHER: return out ? own : others;
    case COLL_REDUCE_SCATTER: return out ? others : own;
    case COLL_GATHER: return share.has_root == out ? 0 : out ? own : others;
    case COLL_SCATTER: return share.has_root != out ? 0 : out ? others : own;
    case COLL_ALLTOALL: return (double)alltoall_elements(shapes, place, out);
    default: return 0;
    }
}

static bool has_sum(enum coll_kind kind)
{
    return kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER;
}

/* Elements that each rank must read for the sums, if all share the work. */
static double sum_elements(const struct coll_shape *shape)
{
    if (!has_sum(shape->kind))
        return 0;
    if (shape->kind != COLL_REDUCE_SCATTER)
        return (double)shape->count;
    return (double)share_of(shape, 0).all;
}

double coll_lower_bound(const struct coll_shape *shapes, const struct coll_links *links)
{
    const struct coll_shape *shape = &shapes[0];
    if (shape->size == 1)
        return 0;
    bool network = shape->host_count > 1;
    int place_count = network ? shape->host_count : shape->size;
    double most = 0;
    for (int place = 0; place < place_count; place++) {
        double in = port_elements(shapes, place, place_count, false);
        double out = network ? port_elements(shapes, place, place_count, true) : 0;
        most = in > most ? in : most;
        most = out > most ? out : most;
    }
    if (most == 0 && shape->kind != COLL_BARRIER)
        return 0;
    double bytes = (double)shape->elem_bytes;
    double sum_ns = sum_elements(shape) * bytes / links->reduce_bytes_per_ns;
    double rate = network ? links->network_bytes_per_ns : links->memory_bytes_per_ns;
    double latency_ns = network ? links->network_latency_ns : links->memory_latency_ns;
    double port_ns = most * bytes / rate;
    if (!network) /* a rank copies and sums one after the other */
        sum_ns += port_ns;
    port_ns += latency_ns;
    return port_ns > sum_ns ? port_ns : sum_ns;
}
