/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counters.h: what a group has done, counted as it goes: shoal_group_counters and the line that
 * SHOAL_LOG=info prints when a root group is freed.
 *
 * A number has one writer at a time, so counting is a plain addition: what is counted by
 * submission belongs to the door's holder, messages to the token's, and the bytes of a way to
 * whoever carries out an operation that goes it, which the door and `pending` order. Only sleeps
 * are counted by any thread at once. Any thread may read.
 */
#ifndef SHOAL_COMM_COUNTERS_H
#define SHOAL_COMM_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shoal.h"

struct comm_group;

/* How an operation's buffers go from rank to rank. */
enum comm_way {
    COMM_WAY_COPIED, /* a group of one */
    COMM_WAY_INLINE,
    COMM_WAY_SYMMETRIC,
    COMM_WAY_STAGED,
    COMM_WAY_DIRECT,
    COMM_WAY_ENGINE,
    COMM_WAY_COUNT
};

struct comm_counters {
    atomic_ullong operations, requests;
    atomic_ullong bytes[COMM_WAY_COUNT];
    atomic_ullong streamed_bytes;
    atomic_ullong sent_bytes, received_bytes;                 /* of messages */
    atomic_ullong network_sent_bytes, network_received_bytes; /* of these, between hosts */
    atomic_ullong sleeps;
};

/* Of a number whose writer this thread is. */
static inline void comm_count(atomic_ullong *number, uint64_t more)
{
    uint64_t before = atomic_load_explicit(number, memory_order_relaxed);
    atomic_store_explicit(number, before + more, memory_order_relaxed);
}

static inline void comm_count_sleeps(struct comm_counters *counters, uint64_t more)
{
    if (more > 0)
        atomic_fetch_add_explicit(&counters->sleeps, more, memory_order_relaxed);
}

/* A message's payload that went to, or came from, group rank `peer`. Token held. */
void comm_count_sent(struct comm_group *group, int peer, uint64_t bytes);
void comm_count_received(struct comm_group *group, int peer, uint64_t bytes);

/* Adds a group's numbers as they are now, with those of what servers summed for it. */
void comm_counters_add(struct shoal_counters *sum, const struct comm_group *group);
/* Adds the group's to those of its world; a root group then logs the sum. Token held, the group at
 * its end. */
void comm_counters_end(struct comm_group *group);

#endif
