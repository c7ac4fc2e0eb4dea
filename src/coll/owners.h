/* SPDX-License-Identifier: Apache-2.0 */
/* owners.h: how much of a buffer each owner of shards sums, with servers or on unequal links. */
#ifndef SHOAL_COLL_OWNERS_H
#define SHOAL_COLL_OWNERS_H

#include "comm/schedule.h"

/* Who owns shards besides the servers: every rank, or one rank of each host, which has the host's
 * sum. */
enum owners { OWNERS_RANKS, OWNERS_HOSTS };

/* All of them, servers counted. */
int coll_owner_count(const struct coll_shape *shape, enum owners owners);
/* shares[owners]: of ranks or hosts in their order, then of the servers; the whole exactly. They
 * are the shape's shares of hosts, or else the best ones for equal links. Fails only when memory
 * does. */
enum shoal_status coll_owner_shares(const struct coll_shape *shape, enum owners owners,
                                    uint32_t *shares);

#endif
