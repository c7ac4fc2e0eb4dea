/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owners.c: which part of a buffer each owner of shards sums; servers are processes that do nothing
 * else (docs/servers.md).
 *
 * In the direct exchange every rank sends its part of each shard to the shard's owner, which sums
 * the parts in rank order and sends the result to all ranks. A host with ranks then sends and
 * receives all of the buffer but its own shard, and that shard once for each other host; a server's
 * host only its shards, once for each host with ranks. With n hosts that have ranks and k that have
 * only servers all ports carry the same, 2n(n-1)/D of the buffer, if the former sum (n-k)/D and the
 * latter 2(n-1)/D with D = n² + kn - 2k (Jiang et al., OSDI 2020). That falls from 2(n-1)/n without
 * servers to 1 with n of them, which is the bound for a rank that sends its input and receives the
 * result; more servers than n only share the work. For unequal links comm/shares.h has the optimum.
 *
 * All of it is the same per host whether its ranks send their inputs or the host's sum. What a host
 * sums is divided among its servers; a rank sums only where no server is beside it.
 */
#include "coll/owners.h"
#include "base/memory.h"
#include "base/status.h"
#include "coll/layout.h"

/* Who is on a host. */
struct crew {
    int owners, servers;
};

/* What a host's shards weigh, of those with ranks and those without. */
struct weights {
    uint64_t with_ranks, without;
};

int coll_owner_count(const struct coll_shape *shape, enum owners owners)
{
    int count = owners == OWNERS_HOSTS ? coll_layout_hosts(shape) : schedule_rank_count(shape);
    return count + shape->server_count;
}

static int host_of(const struct coll_shape *shape, int owner, int own_count)
{
    if (owner >= own_count)
        return shape->host_of[schedule_rank_count(shape) + owner - own_count];
    return own_count == schedule_rank_count(shape) ? shape->host_of[owner] : owner;
}

static struct weights weigh(const struct coll_shape *shape)
{
    uint64_t n = (uint64_t)coll_layout_hosts(shape), k = (uint64_t)shape->host_count - n;
    if (k >= n)
        return (struct weights){0, 1};
    return (struct weights){n - k, 2 * (n - 1)};
}

#define WEIGHT_UNIT (UINT64_C(1) << 16)

static uint64_t weight_of(const struct coll_shape *shape, int host, struct crew crew,
                          bool is_server)
{
    struct weights weights = weigh(shape);
    if (!is_server && crew.servers > 0)
        return 0;
    uint64_t weight = crew.owners > 0 ? weights.with_ranks : weights.without;
    if (shape->shares)
        weight = shape->shares[host];
    return weight * WEIGHT_UNIT / (uint64_t)(is_server ? crew.servers : crew.owners);
}

/* Makes the weights shares that are the whole exactly. */
static void fill(const struct coll_shape *shape, const struct crew *crews, int own_count,
                 uint32_t *shares)
{
    int count = own_count + shape->server_count;
    uint64_t total = 0, before = 0;
    for (int i = 0; i < count; i++) {
        int host = host_of(shape, i, own_count);
        total += weight_of(shape, host, crews[host], i >= own_count);
    }
    for (int i = 0; i < count; i++) {
        int host = host_of(shape, i, own_count);
        uint64_t end = before + weight_of(shape, host, crews[host], i >= own_count);
        shares[i] = (uint32_t)(end * SCHEDULE_SHARES_WHOLE / total -
                               before * SCHEDULE_SHARES_WHOLE / total);
        before = end;
    }
}

enum shoal_status coll_owner_shares(const struct coll_shape *shape, enum owners owners,
                                    uint32_t *shares)
{
    struct crew *crews;
    int count = coll_owner_count(shape, owners), own_count = count - shape->server_count;
    TRY(BASE_NEW_ARRAY(&crews, shape->host_count, "the hosts of an allreduce"));
    for (int i = 0; i < count; i++) {
        struct crew *crew = &crews[host_of(shape, i, own_count)];
        if (i < own_count)
            crew->owners++;
        else
            crew->servers++;
    }
    fill(shape, crews, own_count, shares);
    base_free(crews);
    return SHOAL_OK;
}
