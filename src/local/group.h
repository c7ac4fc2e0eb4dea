/* SPDX-License-Identifier: Apache-2.0 */
/* group.h: a group's slots: finding them, ringing, failing together. */
#ifndef SHOAL_LOCAL_GROUP_H
#define SHOAL_LOCAL_GROUP_H

#include <unistd.h>

#include "local/slot.h"

/* Looks for that rank's slot if it is still missing; true when it is there. */
bool local_find_peer(struct local_group *local, int rank);
/* Likewise of all ranks, up to the first that is missing. */
bool local_find_peers(struct local_group *local);

/* Whether a peer has written its failure into the own slot. */
static inline bool local_failed(const struct local_group *local)
{
    return atomic_load_explicit(&local->own->failure_state, memory_order_acquire) == 2;
}

/* Here, or on a peer that has said so. */
static inline bool local_is_broken(const struct local_group *local)
{
    return comm_group_broken(local->group) || local_failed(local);
}
/* Breaks the group with what a peer wrote. */
void local_adopt_failure(struct local_group *local);
/* Writes the group's failure into the peers' slots, and rings them and this rank. Any thread; only
 * the first call does something. */
void local_fail(struct local_group *local);

/* Whether a peer that sleeps waits for this rank in this group. One without a slot does not: it
 * finds this rank's when it has its own. Its engine sleeps for all groups at once. */
static inline bool local_is_awaited(const struct local_group *local, int peer)
{
    const struct local_slot *slot = local->slots[peer];
    int awaited = slot ? atomic_load(&slot->awaited) : LOCAL_AWAITS_NOBODY;
    return awaited == LOCAL_AWAITS_ANY || awaited == local->group->rank + LOCAL_AWAITS_RANK ||
           base_bell_has_engine(local->bells[peer]);
}

/* Wakes the peers that sleep until this rank has news. */
static inline void local_ring(struct local_group *local)
{
    for (int i = 0; i < local->group->size; i++) {
        uint64_t one = 1;
        if (i == local->group->rank || !base_bell_has_sleepers(local->bells[i]) ||
            !local_is_awaited(local, i) || !base_bell_ring(local->bells[i]))
            continue;
        if (write(local->event_fds[i], &one, sizeof(one)) < 0)
            continue; /* its counter is full: it will wake */
    }
}

#endif
