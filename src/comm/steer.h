/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steer.h: large operations between hosts follow the ranks' links: allreduces their rates
 * (shares.h), and the connections of which links consist what these carry (streams.h).
 *
 * After every COMM_STEER_PERIOD such operations of a group its ranks exchange what their kernels
 * have counted of the flows between them, by an allgather of the library's own that goes beside the
 * user's operations. All have the same numbers then and judge alike. The operation's number says
 * which exchange it goes by: the one that was begun a whole period before its own. That has nearly
 * always ended; where not, the operation's request is held back until it has. No thread waits for
 * it, and whatever the timing, all ranks cut alike. Servers have no part in exchanges; before the
 * first operation by other shares each rank tells them.
 *
 * How many connections are used from a period on is decided when the exchange before it leaves, by
 * the same exchanges on all ranks, and put in place when it starts.
 *
 * Called with the group's door held, where nothing else is said.
 */
#ifndef SHOAL_COMM_STEER_H
#define SHOAL_COMM_STEER_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"

#define COMM_STEER_PERIOD 4

/* What links have carried since they were opened, as the kernel has counted: bytes, and for how
 * long anything was on its way, added up. */
struct comm_carried {
    uint64_t bytes, busy_us;
    int links;
};

/* Of this rank's links to the group's members on other hosts. Any thread; waits for who moves the
 * engine. */
struct comm_carried comm_steer_carried(struct comm_group *group);

/* Whether the group's allreduces can follow its links: several hosts, neither too few nor too many
 * members, and not switched off. Any thread. */
bool comm_steer_can(const struct comm_group *group);
/* Whether its links are measured at all: for that, or to choose their connections, which is done in
 * a world's first group where the options leave their number open. Any thread. */
bool comm_steer_measures(const struct comm_group *group);

/* Before a counted call gets its number: puts its shares in place. *known false: they are not known
 * yet. Then it has to become a request without a plan, which comm_steer_hold takes. `make`: as in
 * comm_submit. SHOAL_ERR_MEMORY. */
enum shoal_status comm_steer_next(struct comm_group *group, comm_make_plan *make, bool *known);
/* Whether requests are held; then all collectives have to be. */
bool comm_steer_holds(const struct comm_group *group);
/* Keeps a request until the shares of all before it and its own are known; then it is queued. */
void comm_steer_hold(struct comm_group *group, struct comm_request *request);
/* After a counted call has got its number: begins an exchange where a period ends. Breaks the group
 * where that is not possible. */
void comm_steer_count(struct comm_group *group);

/* The shares of the call in hand; NULL: equal ones. Of one version they are always the same; equal
 * ones are version 0. */
const uint32_t *comm_steer_shares(const struct comm_group *group, const struct comm_call *call);
uint32_t comm_steer_version(const struct comm_group *group, const struct comm_call *call);

/* When a group is closed. First: waits a while for exchanges that are under way, which the peers
 * need as well. Then, when nothing of the group is pending: frees everything. Door open. */
void comm_steer_finish(struct comm_group *group);
void comm_steer_end(struct comm_group *group);

#endif
