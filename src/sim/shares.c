/* SPDX-License-Identifier: Apache-2.0 */
/* shares.c: what ranks would measure of a platform's links, and what they would do about it. */
#include "comm/shares.h"

#include "sim/sim.h"

#define BYTES_PER_MS 1e6 /* in a byte per ns */

static bool can_follow(const struct coll_shape *shape)
{
    return shape->kind == COLL_ALLREDUCE && shape->server_count == 0 &&
           shape->host_count == shape->size && shape->size >= COMM_SHARES_RANKS_MIN &&
           shape->size <= COMM_SHARES_RANKS_MAX &&
           shape->count >= COMM_SHARES_BYTES_MIN / shape->elem_bytes;
}

bool sim_shares(const struct sim_platform *platform, const struct coll_shape *shape,
                uint32_t *shares)
{
    uint64_t rates[COMM_SHARES_RANKS_MAX];
    if (!can_follow(shape))
        return false;
    for (int rank = 0; rank < shape->size; rank++) {
        double rate = sim_host_rate(platform, shape->host_of[rank]) * BYTES_PER_MS;
        rates[rank] = rate < 1 ? 1 : rate < UINT32_MAX ? (uint64_t)rate : UINT32_MAX;
    }
    return comm_shares_pay(rates, shape->size, shares);
}
