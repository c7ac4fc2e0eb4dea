/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subgroup.c: opening and closing groups of a world.
 *
 * A sub-group's context is a hash of its parent's context, its members, its name, and how often
 * this rank has used the same three before. All members compute the same number without a message,
 * because a group is made by all of its members, each time.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "comm/comm.h"
#include "comm/steer.h"

struct comm_used_name {
    struct comm_used_name *next;
    uint64_t hash;
    uint64_t times;
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash ^= value + UINT64_C(0x9e3779b97f4a7c15) + (hash << 6) + (hash >> 2);
    hash *= UINT64_C(0xff51afd7ed558ccd);
    return hash ^ hash >> 32;
}

enum shoal_status comm_group_open(struct comm_world *world, const int *members, int size,
                                  const char *name, uint64_t context, struct comm_group **out)
{
    struct comm_group *group = NULL;
    TRY(comm_group_make(world->rank, world->size, world->host_of, members, size, name, context,
                        &group));
    group->world = world;
    while (size > 1 && members[size - group->server_count - 1] >= world->rank_count)
        group->server_count++;
    atomic_store(&group->timeout_ms, base_option_int(OPTION_TIMEOUT_MS));
    comm_progress_take(world);
    comm_engine_add_group(world->engine, group);
    comm_progress_release(world);
    if (group->server_count == 0)
        atomic_fetch_add(&world->group_count, 1);
    *out = group;
    return SHOAL_OK;
}

enum shoal_status comm_group_open_served(struct comm_group *group)
{
    struct comm_world *world = group->world;
    struct comm_group *served = NULL;
    int *members = NULL;
    TRY(BASE_NEW_ARRAY(&members, world->size, "a group's members"));
    for (int i = 0; i < world->size; i++)
        members[i] = i;
    enum shoal_status status =
        comm_group_open(world, members, world->size, group->name,
                        mix(group->context, UINT64_C(0x736572766564)) | 1, &served);
    base_free(members);
    TRY(status);
    comm_progress_take(world); /* under which the engine breaks groups */
    served->reproducible = group->reproducible;
    served->serves = group;
    group->served = served;
    comm_progress_release(world);
    return SHOAL_OK;
}

/* How often this rank has made a group of that hash before. */
static enum shoal_status count_use(struct comm_world *world, uint64_t hash, uint64_t *times)
{
    struct comm_used_name *used = world->used_names;
    while (used && used->hash != hash)
        used = used->next;
    if (!used) {
        TRY(BASE_NEW(&used, "a group's name"));
        used->hash = hash;
        used->next = world->used_names;
        world->used_names = used;
    }
    *times = used->times++;
    return SHOAL_OK;
}

uint64_t comm_split_context(const struct comm_group *parent, uint64_t split_number, int color)
{
    return mix(mix(mix(parent->context, UINT64_C(0x73706c6974)), split_number),
               (uint64_t)(int64_t)color) |
           1;
}

enum shoal_status comm_group_subset(struct comm_group *parent, const int *ranks, int count,
                                    const char *name, struct comm_group **out)
{
    struct comm_world *world = parent->world;
    int *members = NULL;
    TRY(BASE_NEW_ARRAY(&members, count, "a group's members"));
    uint64_t hash = mix(parent->context, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        members[i] = parent->members[ranks[i]];
        hash = mix(hash, (uint64_t)members[i]);
    }
    for (const char *at = name; *at; at++)
        hash = mix(hash, (unsigned char)*at);
    uint64_t times = 0;
    pthread_mutex_lock(&world->region_lock);
    enum shoal_status status = count_use(world, hash, &times);
    pthread_mutex_unlock(&world->region_lock);
    if (status == SHOAL_OK)
        status = comm_group_open(world, members, count, name, mix(hash, times) | 1, out);
    base_free(members);
    return status;
}

/* ---- closing
 * ------------------------------------------------------------------------------------------------
 */

#define CLOSE_LOOK_MS 1
#define LINGER_MS     5000
#define LINGER_BROKEN_MS                                                     \
    1000 /* only texts of failures are on their way, some to ranks that left \
          */

int64_t comm_group_linger_ms(const struct comm_group *group)
{
    return comm_group_broken(group) ? LINGER_BROKEN_MS : LINGER_MS;
}

/* Ends what is pending, by breaking the group on this rank only if there is something. */
static void end_pending(struct comm_group *group)
{
    if (atomic_load(&group->pending) > 0)
        comm_group_break(group, SHOAL_ERR_ABORTED,
                         "group '%s' was freed on rank %d with %d "
                         "operations pending",
                         group->name, group->rank, atomic_load(&group->pending));
    while (atomic_load_explicit(&group->pending, memory_order_acquire) > 0) {
        comm_progress_kick(group->world);
        base_sleep_ms(CLOSE_LOOK_MS);
    }
}

static void free_plans(struct comm_group *group)
{
    while (group->plans) {
        struct comm_plan *plan = group->plans;
        group->plans = plan->next;
        comm_plan_free(plan);
    }
}

static void free_names(struct comm_world *world)
{
    while (world->used_names) {
        struct comm_used_name *next = world->used_names->next;
        base_free(world->used_names);
        world->used_names = next;
    }
}

static void close_served(struct comm_group *group)
{
    struct comm_group *served = group->served;
    comm_progress_take(group->world);
    served->serves = NULL;
    group->served = NULL;
    comm_progress_release(group->world);
    comm_group_close(served);
}

enum shoal_status comm_group_close(struct comm_group *group)
{
    struct comm_world *world = group->world;
    bool root = world->root == group;
    if (root && atomic_load(&world->group_count) > 1)
        return base_error(SHOAL_ERR_STATE,
                          "group '%s' still has %d sub-groups (a fuse has two): free them first",
                          group->name, atomic_load(&world->group_count) - 1);
    if (group->served)
        close_served(group);
    comm_steer_finish(group);
    end_pending(group);
    if (root)
        world->linger_ms = comm_group_linger_ms(group);
    comm_progress_take(world);
    if (comm_group_broken(group))
        comm_engine_group_broke(world->engine, group); /* members are told before this rank goes */
    if (group->rank < comm_group_rank_count(group))
        comm_engine_leave_servers(world->engine, group);
    comm_engine_remove_group(world->engine, group);
    comm_counters_end(group);
    comm_progress_release(world);
    if (group->local)
        group->local_free(group->local);
    comm_steer_end(group);
    free_plans(group);
    if (group->server_count == 0)
        atomic_fetch_sub(&world->group_count, 1);
    comm_request_end_group(group);
    if (root) {
        free_names(world);
        comm_world_free(world);
    }
    return SHOAL_OK;
}
