/* SPDX-License-Identifier: Apache-2.0 */
/* counters.c: see counters.h. */
#include "comm/counters.h"

#include <inttypes.h>

#include "base/log.h"
#include "comm/comm.h"

static bool is_far(const struct comm_group *group, int peer)
{
    return group->host_of[peer] != group->host_of[group->rank];
}

void comm_count_sent(struct comm_group *group, int peer, uint64_t bytes)
{
    comm_count(&group->counters.sent_bytes, bytes);
    if (is_far(group, peer))
        comm_count(&group->counters.network_sent_bytes, bytes);
}

void comm_count_received(struct comm_group *group, int peer, uint64_t bytes)
{
    comm_count(&group->counters.received_bytes, bytes);
    if (is_far(group, peer))
        comm_count(&group->counters.network_received_bytes, bytes);
}

static uint64_t number_of(const atomic_ullong *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

static struct shoal_counters numbers_of(const struct comm_counters *counters)
{
    struct shoal_counters now = {
        .operations = number_of(&counters->operations),
        .requests = number_of(&counters->requests),
        .inline_bytes = number_of(&counters->bytes[COMM_WAY_INLINE]),
        .symmetric_bytes = number_of(&counters->bytes[COMM_WAY_SYMMETRIC]),
        .staged_bytes = number_of(&counters->bytes[COMM_WAY_STAGED]),
        .direct_bytes = number_of(&counters->bytes[COMM_WAY_DIRECT]),
        .engine_bytes = number_of(&counters->bytes[COMM_WAY_ENGINE]),
        .streamed_bytes = number_of(&counters->streamed_bytes),
        .sent_bytes = number_of(&counters->sent_bytes),
        .received_bytes = number_of(&counters->received_bytes),
        .network_sent_bytes = number_of(&counters->network_sent_bytes),
        .network_received_bytes = number_of(&counters->network_received_bytes),
        .sleeps = number_of(&counters->sleeps),
    };
    for (int way = 0; way < COMM_WAY_COUNT; way++)
        now.bytes += number_of(&counters->bytes[way]);
    return now;
}

/* All members of shoal_counters but the first are numbers. */
static void add(struct shoal_counters *sum, const struct comm_counters *counters)
{
    struct shoal_counters more = numbers_of(counters);
    uint64_t *to = &sum->operations;
    const uint64_t *from = &more.operations;
    for (size_t i = 0; i < (sizeof(*sum) - sizeof(sum->struct_bytes)) / sizeof(*to); i++)
        to[i] += from[i];
}

void comm_counters_add(struct shoal_counters *sum, const struct comm_group *group)
{
    add(sum, &group->counters);
    if (group->served)
        add(sum, &group->served->counters);
}

static void log_sum(const struct comm_world *world, const char *name)
{
    const struct shoal_counters *sum = &world->counted;
    base_log(BASE_LOG_INFO,
             "group '%s' is freed after %" PRIu64 " operations in %d groups, %" PRIu64
             " of them as requests; bytes %" PRIu64 ": inline %" PRIu64 ", symmetric %" PRIu64
             ", staged %" PRIu64 ", direct %" PRIu64 ", engine %" PRIu64 "; streamed %" PRIu64
             "; messages sent %" PRIu64 " and received %" PRIu64 ", of these by network %" PRIu64
             " and %" PRIu64 "; sleeps %" PRIu64,
             name, sum->operations, world->counted_groups, sum->requests, sum->bytes,
             sum->inline_bytes, sum->symmetric_bytes, sum->staged_bytes, sum->direct_bytes,
             sum->engine_bytes, sum->streamed_bytes, sum->sent_bytes, sum->received_bytes,
             sum->network_sent_bytes, sum->network_received_bytes, sum->sleeps);
}

void comm_counters_end(struct comm_group *group)
{
    struct comm_world *world = group->world;
    add(&world->counted, &group->counters);
    world->counted_groups++;
    if (group->is_root)
        log_sum(world, group->name);
}
