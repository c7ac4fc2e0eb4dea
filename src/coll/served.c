/* SPDX-License-Identifier: Apache-2.0 */
/*
 * served.c: allreduce with servers, processes that do nothing but sum (docs/servers.md).
 *
 * It is the direct exchange, in which servers have shards as well: every rank sends its part of
 * each shard to the shard's owner, which sums the parts in rank order and sends the result to all
 * ranks. A host with ranks then sends and receives all of the buffer but its own shard, and that
 * shard once for each other host; a server's host only its shards, once for each host with ranks.
 * With n hosts that have ranks and k that have only servers all ports carry the same, 2n(n-1)/D of
 * the buffer, if the former sum (n-k)/D and the latter 2(n-1)/D with D = n² + kn - 2k (Jiang et
 * al., OSDI 2020). That falls from 2(n-1)/n without servers to 1 with n of them, which is the bound
 * for a rank that sends its input and receives the result; more servers than n only share the work.
 *
 * What a host sums is divided among its servers; a rank sums only where no server is beside it.
 */
#include "coll/served.h"
#include "base/memory.h"
#include "base/status.h"
#include "coll/uneven.h"

/* Who is on a host. */
struct crew {
    int ranks, servers;
};

/* What a host's shards weigh, of those with ranks and those without. */
struct weights {
    uint64_t with_ranks, without;
};

static void count_crews(const struct coll_shape *shape, struct crew *crews)
{
    for (int i = 0; i < shape->size; i++)
        if (i < schedule_rank_count(shape))
            crews[shape->host_of[i]].ranks++;
        else
            crews[shape->host_of[i]].servers++;
}

static struct weights weigh(const struct coll_shape *shape, const struct crew *crews)
{
    uint64_t n = 0, k = 0;
    for (int host = 0; host < shape->host_count; host++)
        *(crews[host].ranks > 0 ? &n : &k) += 1;
    if (k >= n)
        return (struct weights){0, 1};
    return (struct weights){n - k, 2 * (n - 1)};
}

#define WEIGHT_UNIT (UINT64_C(1) << 16)

static uint64_t weight_of(const struct coll_shape *shape, const struct crew *crews,
                          struct weights weights, int member)
{
    struct crew crew = crews[shape->host_of[member]];
    bool is_server = member >= schedule_rank_count(shape);
    if (!is_server && crew.servers > 0)
        return 0;
    uint64_t weight = crew.ranks > 0 ? weights.with_ranks : weights.without;
    return weight * WEIGHT_UNIT / (uint64_t)(is_server ? crew.servers : crew.ranks);
}

/* Shares that make up the whole exactly. */
static void fill_shares(const struct coll_shape *shape, const struct crew *crews, uint32_t *shares)
{
    struct weights weights = weigh(shape, crews);
    uint64_t total = 0, before = 0;
    for (int i = 0; i < shape->size; i++)
        total += weight_of(shape, crews, weights, i);
    for (int i = 0; i < shape->size; i++) {
        uint64_t end = before + weight_of(shape, crews, weights, i);
        shares[i] = (uint32_t)(end * SCHEDULE_SHARES_WHOLE / total -
                               before * SCHEDULE_SHARES_WHOLE / total);
        before = end;
    }
}

enum shoal_status coll_served_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    struct crew *crews;
    uint32_t *shares;
    TRY(BASE_NEW_ARRAY(&crews, shape->host_count, "the hosts of an allreduce"));
    enum shoal_status status = BASE_NEW_ARRAY(&shares, shape->size, "the shards of an allreduce");
    if (status == SHOAL_OK) {
        struct coll_shape cut = *shape;
        count_crews(shape, crews);
        fill_shares(shape, crews, shares);
        cut.shares = shares;
        status = coll_uneven_allreduce(&cut, builder, UNEVEN_RANKS);
        base_free(shares);
    }
    base_free(crews);
    return status;
}
