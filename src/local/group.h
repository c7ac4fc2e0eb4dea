/* SPDX-License-Identifier: Apache-2.0 */
/* group.h: a group's slots: finding them, ringing, failing together. */
#ifndef SHOAL_LOCAL_GROUP_H
#define SHOAL_LOCAL_GROUP_H

#include <unistd.h>

#include "local/slot.h"

/* Looks for the slots that are still missing; true when all are there. */
bool local_find_peers(struct local_group *local);

/* Whether a peer has written its failure into the own slot. */
static inline bool local_failed(const struct local_group *local)
{
    return atomic_load_explicit(&local->own->failure_state, memory_order_acquire) == 2;
}
/* Breaks the group with what a peer wrote. */
void local_adopt_failure(struct local_group *local);
/* Writes the group's failure into the peers' slots, and rings them and this rank. Any thread; only
 * the first call does something. */
void local_fail(struct local_group *local);

/* Wakes the peers that sleep. */
static inline void local_ring(struct local_group *local)
{
    for (int i = 0; i < local->group->size; i++)
        if (i != local->group->rank && base_bell_ring(local->bells[i])) {
            uint64_t one = 1;
            if (write(local->event_fds[i], &one, sizeof(one)) < 0)
                continue; /* its counter is full: it will wake */
        }
}

#endif
