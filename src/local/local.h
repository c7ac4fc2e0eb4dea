/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.h: collectives between ranks of one host, over shared memory, hand-written: a schedule
 * would cost more than the operation.
 */
#ifndef SHOAL_LOCAL_LOCAL_H
#define SHOAL_LOCAL_LOCAL_H

#include <stdbool.h>

#include "comm/comm.h"

/* Whether the group can have it: all members on this host, more than one, option SHOAL_LOCAL on. */
bool local_possible(const struct comm_group *group);

/* Takes this rank's slot in its region and puts group->local in place. Sends nothing: peers find
 * the slot in the directory when their first operation needs it. MEMORY, LIMIT. */
enum shoal_status local_attach(struct comm_group *group);

/* Whether it does the call: all collectives but alltoallv. */
bool local_can(const struct comm_call *call);

/* comm_submit's path for it. */
extern const struct comm_path local_path;

#endif
