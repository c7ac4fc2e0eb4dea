/* SPDX-License-Identifier: Apache-2.0 */
/* group.c: taking, finding and giving back slots; how a failure reaches the peers. */
#include "local/group.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "local/history.h"
#include "local/local.h"

bool local_possible(const struct comm_group *group)
{
    return group->size > 1 && group->host_count == 1 && group->world &&
           base_option_int(OPTION_LOCAL) != 0;
}

static void local_release(struct local_group *local)
{
    base_free(local->slots);
    base_free(local->bells);
    base_free(local->event_fds);
    base_free(local->local_index);
    base_free(local->compared);
    base_free(local);
}

/* Peers may still use the slot: it is used again only after all have left the group too, or died.
 */
static void local_free(struct local_group *local)
{
    struct comm_group *group = local->group;
    struct comm_world *world = group->world;
    pthread_mutex_lock(&world->region_lock);
    comm_region_withdraw(&world->host->regions[world->local_rank], group->context);
    if (comm_region_retire(&world->region, local->own_offset, group->context, local->local_index,
                           group->size) != SHOAL_OK)
        base_log(BASE_LOG_WARN, "group '%s': its shared memory is kept: %s", group->name,
                 base_error_text());
    pthread_mutex_unlock(&world->region_lock);
    group->local = NULL;
    local_release(local);
}

static enum shoal_status take_tables(struct local_group *local)
{
    struct comm_group *group = local->group;
    struct comm_world *world = group->world;
    TRY(BASE_NEW_ARRAY(&local->slots, group->size, "a local group's slots"));
    TRY(BASE_NEW_ARRAY(&local->bells, group->size, "a local group's bells"));
    TRY(BASE_NEW_ARRAY(&local->event_fds, group->size, "a local group's descriptors"));
    TRY(BASE_NEW_ARRAY(&local->local_index, group->size, "a local group's indexes"));
    TRY(BASE_NEW_ARRAY(&local->compared, group->size, "a local group's comparisons"));
    for (int i = 0; i < group->size; i++) {
        int index = world->local_index[group->members[i]];
        local->local_index[i] = index;
        local->event_fds[i] = world->host->event_fds[index];
        local->bells[i] = &comm_region_control_of(&world->host->regions[index])->bell;
    }
    return SHOAL_OK;
}

static enum shoal_status take_slot(struct local_group *local)
{
    struct comm_world *world = local->group->world;
    struct base_shared *own = &world->host->regions[world->local_rank];
    size_t bytes =
        sizeof(struct local_slot) + LOCAL_STAGES * (local->block_bytes + local->slice_bytes);
    pthread_mutex_lock(&world->region_lock);
    comm_region_reclaim(&world->region, world->host->regions, world->dead);
    enum shoal_status status =
        comm_region_reserve(&world->region, bytes, sizeof(struct local_slot), &local->own_offset);
    if (status == SHOAL_OK) {
        local->own = (struct local_slot *)((char *)own->address + local->own_offset);
        status = comm_region_publish(own, local->group->context, local->own_offset);
        if (status != SHOAL_OK)
            comm_region_free(&world->region, local->own_offset);
    }
    pthread_mutex_unlock(&world->region_lock);
    return status;
}

static const char *row_source(const struct comm_group *group)
{
    if (base_tuning_forced())
        return "being measured";
    return base_tuning_find(&group->world->tuning, group->size) ? "measured" : "default";
}

static void take_thresholds(struct local_group *local)
{
    const struct comm_group *group = local->group;
    const struct base_tuning *row = base_tuning_forced();
    struct base_tuning standard = base_tuning_default(group->size);
    uint64_t asked = (uint64_t)base_option_int(OPTION_CHUNK_BYTES);
    char text[BASE_TUNING_ROW_BYTES];
    if (!row)
        row = base_tuning_find(&group->world->tuning, group->size);
    if (!row)
        row = &standard;
    size_t size = (size_t)group->size;
    local->slice_bytes = ((asked > 0 ? asked : row->block_bytes) / size + 4095) / 4096 * 4096;
    local->block_bytes = local->slice_bytes * size;
    local->symmetric_bytes = row->symmetric_bytes;
    local->stream_bytes = row->stream_bytes;
    local->direct_bytes = row->direct_bytes;
    local->may_swap = group->size == 2 && base_shared_can_populate();
    base_tuning_row_text(row, text);
    if (group->rank == 0)
        base_log(BASE_LOG_INFO, "group '%s', thresholds (%s): %s", group->name, row_source(group),
                 text);
}

/* A peer's slot, found or not by this rank's operations: this may be any thread. */
static struct local_slot *slot_of(const struct local_group *local, int rank)
{
    struct comm_group *group = local->group;
    if (rank == group->rank)
        return local->own;
    struct base_shared *region = &group->world->host->regions[local->local_index[rank]];
    size_t offset = comm_region_find(region, group->context);
    return offset == 0 ? NULL : (struct local_slot *)((char *)region->address + offset);
}

bool local_find_peer(struct local_group *local, int rank)
{
    if (!local->slots[rank])
        local->slots[rank] = slot_of(local, rank);
    return local->slots[rank] != NULL;
}

/* Some may wait for this rank's slot already. */
static void ring_waiting(struct local_group *local)
{
    for (int i = 0; i < local->group->size; i++)
        local_find_peer(local, i);
    local_ring(local);
}

enum shoal_status local_attach(struct comm_group *group)
{
    struct local_group *local = NULL;
    TRY(BASE_NEW(&local, "a local group"));
    local->group = group;
    take_thresholds(local);
    enum shoal_status status = take_tables(local);
    if (status == SHOAL_OK)
        status = take_slot(local);
    if (status != SHOAL_OK) {
        local_release(local);
        return base_error_context(status, "group '%s'", group->name);
    }
    group->local_free = local_free;
    group->local_fail = local_fail;
    group->local_note = local_history_note_call;
    group->local = local;
    ring_waiting(local);
    return SHOAL_OK;
}

static void adopt(struct local_group *local, const struct local_slot *slot)
{
    if (atomic_load_explicit(&slot->failure_state, memory_order_acquire) == 2)
        comm_group_break(local->group, (enum shoal_status)slot->failure_status, "%s",
                         slot->failure_text);
}

/* A peer whose group broke before this rank had its slot could not write into it. */
static void adopt_earlier_failure(struct local_group *local)
{
    for (int i = 0; i < local->group->size; i++)
        adopt(local, local->slots[i]);
}

bool local_find_peers(struct local_group *local)
{
    for (int i = 0; i < local->group->size; i++)
        if (!local_find_peer(local, i))
            return false;
    local->attached = true;
    adopt_earlier_failure(local);
    return true;
}

/* ---- failing
 * ----------------------------------------------------------------------------------------------------
 */

void local_adopt_failure(struct local_group *local)
{
    adopt(local, local->own);
}

void local_fail(struct local_group *local)
{
    struct comm_group *group = local->group;
    while (atomic_load_explicit(&group->failure.state, memory_order_acquire) == 1)
        ; /* another thread writes the text: microseconds */
    for (int i = 0; i < group->size; i++) {
        struct local_slot *slot = slot_of(local, (group->rank + i) % group->size);
        int none = 0;
        if (!slot || !atomic_compare_exchange_strong(&slot->failure_state, &none, 1))
            continue;
        slot->failure_status = (int32_t)group->failure.status;
        memcpy(slot->failure_text, group->failure.text, sizeof(slot->failure_text));
        atomic_store_explicit(&slot->failure_state, 2, memory_order_release);
    }
    comm_ring_peers(group->world, group);
}
