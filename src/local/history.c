/* SPDX-License-Identifier: Apache-2.0 */
/* history.c: see history.h. */
#include "local/history.h"

#include <inttypes.h>
#include <stdio.h>

#define NO_SEQUENCE UINT64_MAX

static struct local_record *record_of(struct local_slot *slot, uint64_t sequence)
{
    return &slot->history[sequence % LOCAL_HISTORY];
}

void local_history_note(struct local_group *local, uint64_t sequence, uint64_t signature)
{
    struct local_record *record = record_of(local->own, sequence);
    atomic_store_explicit(&record->sequence, NO_SEQUENCE, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* no new signature beside the old sequence */
    atomic_store_explicit(&record->signature, signature, memory_order_relaxed);
    atomic_store_explicit(&record->sequence, sequence, memory_order_release);
}

void local_history_note_call(struct local_group *local, const struct comm_call *call,
                             uint64_t sequence)
{
    struct comm_signature signature = comm_signature_of(call, local->group->size);
    local_history_note(local, sequence, comm_signature_pack(&signature));
}

/* The signature of a rank's operation; 0 if it has not started it, or long forgotten. */
static uint64_t find(struct local_slot *slot, uint64_t sequence)
{
    struct local_record *record = record_of(slot, sequence);
    if (atomic_load_explicit(&record->sequence, memory_order_acquire) != sequence)
        return 0;
    uint64_t signature = atomic_load_explicit(&record->signature, memory_order_relaxed);
    /* The owner may write the next one here at this moment. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&record->sequence, memory_order_relaxed) == sequence ? signature
                                                                                     : 0;
}

bool local_history_differs(struct local_group *local, int rank, uint64_t from, uint64_t to)
{
    struct comm_group *group = local->group;
    char my_call[128], their_call[128], me[160], them[160];
    if (to >= LOCAL_HISTORY && from <= to - LOCAL_HISTORY)
        from = to - LOCAL_HISTORY + 1;
    for (uint64_t sequence = from; local->slots[rank] && sequence <= to; sequence++) {
        uint64_t mine = find(local->own, sequence), theirs = find(local->slots[rank], sequence);
        if (mine == 0 || theirs == 0 || mine == theirs)
            continue;
        struct comm_signature my_signature = comm_signature_unpack(mine);
        struct comm_signature their_signature = comm_signature_unpack(theirs);
        comm_group_break(group, SHOAL_ERR_MISMATCH,
                         "operation #%" PRIu64
                         " on group '%s' differs: %s called %s, but %s called %s",
                         sequence, group->name, comm_rank_text(group, group->rank, me, sizeof(me)),
                         comm_signature_text(&my_signature, my_call, sizeof(my_call)),
                         comm_rank_text(group, rank, them, sizeof(them)),
                         comm_signature_text(&their_signature, their_call, sizeof(their_call)));
        return true;
    }
    return false;
}

bool local_history_catch_up(struct local_group *local, uint64_t to)
{
    for (int i = 0; i < local->group->size; i++) {
        if (i == local->group->rank || local->compared[i] > to)
            continue;
        if (local_history_differs(local, i, local->compared[i], to))
            return false;
        local->compared[i] = to + 1;
    }
    return true;
}
