/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_wire.h: raw sockets between the hosts of a group, to measure what the network itself
 * allows: the same bytes in the same pattern as the operation, without reduction, framing or
 * algorithm.
 *
 * The first rank of each host takes part; the others of the host only keep the bench's barriers.
 */
#ifndef SHOAL_CMD_BENCH_WIRE_H
#define SHOAL_CMD_BENCH_WIRE_H

#include <stdint.h>

#include "shoal.h"

#define BENCH_STREAMS_MAX 4

struct bench_wire;

/* What goes to and comes from one host in a round. */
struct bench_flow {
    const unsigned char *send;
    unsigned char *receive;
    uint64_t send_bytes, receive_bytes;
};

/* Connects every host with every other by BENCH_STREAMS_MAX TCP streams, which go by turns over the
 * interfaces that SHOAL_INTERFACE names. Collective over the group. */
enum shoal_status bench_wire_create(shoal_group_t group, struct bench_wire **out);
/* Moves flows[host] for every host but this one, full duplex, all at once, each striped over
 * `streams` sockets. On ranks that take no part: returns at once. */
enum shoal_status bench_wire_exchange(struct bench_wire *wire, const struct bench_flow *flows,
                                      int streams);
/* NULL is allowed. */
void bench_wire_free(struct bench_wire *wire);

#endif
