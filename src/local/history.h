/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history.h: what a rank called last, in its slot, for peers that did not look at the time.
 *
 * A rank that only gives (reduce and gather but for the root, the root of a broadcast) is through
 * without having looked at the others' calls. It compares in a later operation, and whoever waits
 * for long compares too.
 */
#ifndef SHOAL_LOCAL_HISTORY_H
#define SHOAL_LOCAL_HISTORY_H

#include "local/slot.h"

/* Writes the call down in the own slot; before anything of the operation is published. */
void local_history_note(struct local_group *local, uint64_t sequence, uint64_t signature);
/* As comm_group's local_note: of a call that takes another path. */
void local_history_note_call(struct local_group *local, const struct comm_call *call,
                             uint64_t sequence);
/* Compares all that a peer has started from operation `from` to `to` with the own calls; the group
 * breaks at the first difference. True if there is one. */
bool local_history_differs(struct local_group *local, int rank, uint64_t from, uint64_t to);
/* Compares what was not compared yet up to operation `to`, which all peers have started. False:
 * there is a difference. */
bool local_history_catch_up(struct local_group *local, uint64_t to);

#endif
