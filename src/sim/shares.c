/* SPDX-License-Identifier: Apache-2.0 */
/* shares.c: what ranks would measure of a platform's links, and what they would do about it. */
#include "comm/shares.h"

#include "coll/layout.h"
#include "sim/sim.h"

#define BYTES_PER_MS 1e6 /* in a byte per ns */

static bool can_follow(const struct coll_shape *shape)
{
    const struct comm_sites sites = {.host_of = shape->host_of,
                                     .rank_count = schedule_rank_count(shape),
                                     .member_count = shape->size,
                                     .rank_hosts = coll_layout_hosts(shape),
                                     .host_count = shape->host_count};
    return shape->kind == COLL_ALLREDUCE && sites.rank_hosts > 1 && comm_shares_matter(&sites) &&
           shape->size <= COMM_SHARES_MEMBERS_MAX &&
           shape->count >= COMM_SHARES_BYTES_MIN / shape->elem_bytes;
}

bool sim_shares(const struct sim_platform *platform, const struct coll_shape *shape,
                uint32_t *shares)
{
    uint64_t rates[COMM_SHARES_MEMBERS_MAX];
    if (!can_follow(shape))
        return false;
    for (int member = 0; member < shape->size; member++) {
        int host = shape->host_of[member];
        double rate = sim_host_rate(platform, host) * BYTES_PER_MS;
        rates[host] = rate < 1 ? 1 : rate < UINT32_MAX ? (uint64_t)rate : UINT32_MAX;
    }
    return comm_shares_pay(rates, coll_layout_hosts(shape), shape->host_count, shares);
}
