/* SPDX-License-Identifier: Apache-2.0 */
/* group.c: joining, splitting, leaving and aborting groups; memory that local ranks share. */
#include <stdlib.h>
#include <string.h>

#include "api/handles.h"
#include "base/memory.h"
#include "base/options.h"
#include "comm/meet.h"
#include "local/local.h"

enum shoal_status api_check_group(shoal_group_t handle)
{
    if (!handle)
        return base_error(SHOAL_ERR_ARGUMENT, "group is NULL: make one with shoal_group_create");
    return comm_process_check();
}

/* Ranks that are all on one host have no network to spare. */
static bool can_be_served(const struct comm_group *group)
{
    const struct comm_world *world = group->world;
    bool all = world->size > world->rank_count && group->size == world->rank_count &&
               group->host_count > 1;
    for (int i = 0; all && i < group->size; i++)
        all = group->members[i] == i;
    return all;
}

enum shoal_status api_equip(struct comm_group *group)
{
    if (can_be_served(group))
        TRY(comm_group_open_served(group));
    return local_possible(group) ? local_attach(group) : SHOAL_OK;
}

enum shoal_status shoal_unique_id_create(struct shoal_unique_id *out)
{
    if (!out)
        return api_end(NULL, base_error(SHOAL_ERR_ARGUMENT, "out is NULL"));
    return api_end(NULL, comm_unique_id_create(out));
}

/* ---- groups that the caller has
 * ------------------------------------------------------------------------------------------------
 */

static struct comm_group *known;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static void hand_out(struct comm_group *group, shoal_group_t *out)
{
    pthread_mutex_lock(&known_lock);
    group->next_known = known;
    known = group;
    pthread_mutex_unlock(&known_lock);
    *out = (shoal_group_t)group;
}

/* False if the caller does not have it (any more). */
static bool take_back(const struct comm_group *group)
{
    pthread_mutex_lock(&known_lock);
    struct comm_group **at = &known;
    while (*at && *at != group)
        at = &(*at)->next_known;
    bool found = *at != NULL;
    if (found)
        *at = group->next_known;
    pthread_mutex_unlock(&known_lock);
    return found;
}

/* ---- create
 * ------------------------------------------------------------------------------------------------
 */

static enum shoal_status check_options(const struct shoal_group_options *options)
{
    size_t smallest = offsetof(struct shoal_group_options, reproducible) + sizeof(int);
    if (options->struct_bytes < smallest)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.struct_bytes is %zu, at least %zu expected: start from "
                          "SHOAL_GROUP_OPTIONS_INIT",
                          options->struct_bytes, smallest);
    if (options->timeout_ms < 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.timeout_ms is %lld: give 1 or more, or 0 "
                          "for the default",
                          (long long)options->timeout_ms);
    int places =
        (options->store != NULL) + (options->unique_id != NULL) + (options->user_store != NULL);
    if (places > 1)
        return base_error(SHOAL_ERR_ARGUMENT, "options: give one of store, unique_id and "
                                              "user_store, not several");
    if (options->user_store && (!options->user_store->set || !options->user_store->get))
        return base_error(SHOAL_ERR_ARGUMENT, "options.user_store: set and get are both needed");
    return SHOAL_OK;
}

static enum shoal_status create(const struct shoal_group_options *options, shoal_group_t *out)
{
    struct shoal_group_options whole = SHOAL_GROUP_OPTIONS_INIT;
    if (!options)
        options = &whole;
    if (!out)
        return base_error(SHOAL_ERR_ARGUMENT, "out is NULL");
    TRY(comm_process_check());
    TRY(check_options(options));
    if (options->struct_bytes < sizeof(whole)) /* of a program that knows an older, shorter one */
        options = memcpy(&whole, options, options->struct_bytes);
    TRY(base_options_load());
    TRY(api_check_algorithm());
    struct comm_group *group = NULL;
    TRY(comm_world_create(options, &group));
    enum shoal_status status = api_equip(group);
    if (status != SHOAL_OK) {
        comm_group_close(group);
        return status;
    }
    hand_out(group, out);
    return SHOAL_OK;
}

enum shoal_status shoal_group_create(const struct shoal_group_options *options, shoal_group_t *out)
{
    return api_end(NULL, create(options, out));
}

/* ---- sub-groups
 * --------------------------------------------------------------------------------------------------
 */

/* What every rank says in a split. */
struct choice {
    int32_t color, key, rank;
};

static int compare_choices(const void *left, const void *right)
{
    const struct choice *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

/* The members of the own color in order; count is returned. */
static int members_of(const struct comm_group *parent, struct choice *choices, int color,
                      int *members)
{
    int count = 0;
    qsort(choices, (size_t)parent->size, sizeof(*choices), compare_choices);
    for (int i = 0; i < parent->size; i++)
        if (choices[i].color == color)
            members[count++] = parent->members[choices[i].rank];
    return count;
}

/* Makes a new group as its parent is; closes it if that fails. */
static enum shoal_status equip_like(const struct comm_group *parent, struct comm_group *group)
{
    group->reproducible = parent->reproducible;
    atomic_store(&group->timeout_ms, atomic_load(&parent->timeout_ms));
    enum shoal_status status = api_equip(group);
    if (status != SHOAL_OK)
        comm_group_close(group);
    return status;
}

static enum shoal_status open_and_equip(struct comm_group *parent, const int *members, int count,
                                        const char *name, uint64_t context, shoal_group_t *out)
{
    struct comm_group *group = NULL;
    TRY(comm_group_open(parent->world, members, count, name, context, &group));
    TRY(equip_like(parent, group));
    hand_out(group, out);
    return SHOAL_OK;
}

static enum shoal_status split(struct comm_group *parent, int color, int key, shoal_group_t *out)
{
    struct choice mine = {color, key, parent->rank};
    struct choice *choices = NULL;
    int *members = NULL;
    TRY(BASE_NEW_ARRAY(&choices, parent->size, "a split"));
    enum shoal_status status = BASE_NEW_ARRAY(&members, parent->size, "a split");
    if (status == SHOAL_OK)
        status = shoal_allgather(&mine, choices, 3, SHOAL_I32, (shoal_group_t)parent, NULL);
    if (status == SHOAL_OK) {
        uint64_t context = comm_split_context(parent, parent->split_number++, color);
        int count = members_of(parent, choices, color, members);
        if (color >= 0)
            status = open_and_equip(parent, members, count, "split", context, out);
        else
            *out = NULL;
    }
    base_free(choices);
    base_free(members);
    return status;
}

enum shoal_status shoal_group_split(shoal_group_t group, int color, int key, shoal_group_t *out)
{
    enum shoal_status status = api_check_group(group);
    if (status == SHOAL_OK && !out)
        status = base_error(SHOAL_ERR_ARGUMENT, "out is NULL");
    if (status == SHOAL_OK)
        status = split(api_group(group), color, key, out);
    return api_end(group, status);
}

static enum shoal_status check_ranks(const struct comm_group *parent, const int *ranks, int count)
{
    bool seen[65536] = {false};
    bool has_own = false;
    if (!ranks || count < 1 || count > parent->size || parent->size > 65536)
        return base_error(SHOAL_ERR_ARGUMENT, "%d ranks: a sub-group takes 1 to %d", count,
                          parent->size);
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size || seen[ranks[i]])
            return base_error(SHOAL_ERR_ARGUMENT, "ranks[%d] is %d, which is %s", i, ranks[i],
                              ranks[i] >= 0 && ranks[i] < parent->size ? "listed twice"
                                                                       : "no rank of the group");
        seen[ranks[i]] = true;
        has_own |= ranks[i] == parent->rank;
    }
    if (!has_own)
        return base_error(SHOAL_ERR_ARGUMENT, "rank %d is not in the list; only members call this",
                          parent->rank);
    return SHOAL_OK;
}

static enum shoal_status subset(struct comm_group *parent, const int *ranks, int count,
                                const char *name, shoal_group_t *out)
{
    if (!out)
        return base_error(SHOAL_ERR_ARGUMENT, "out is NULL");
    TRY(check_ranks(parent, ranks, count));
    struct comm_group *group = NULL;
    TRY(comm_group_subset(parent, ranks, count, name ? name : "subset", &group));
    TRY(equip_like(parent, group));
    hand_out(group, out);
    return SHOAL_OK;
}

enum shoal_status api_twin(struct comm_group *parent, const char *name, uint64_t context,
                           struct comm_group **out)
{
    struct comm_group *group = NULL;
    TRY(comm_group_open(parent->world, parent->members, parent->size, name, context, &group));
    TRY(equip_like(parent, group));
    *out = group;
    return SHOAL_OK;
}

enum shoal_status shoal_group_subset(shoal_group_t group, const int *ranks, int count,
                                     const char *name, shoal_group_t *out)
{
    enum shoal_status status = api_check_group(group);
    if (status == SHOAL_OK)
        status = subset(api_group(group), ranks, count, name, out);
    return api_end(group, status);
}

/* ---- end
 * ------------------------------------------------------------------------------------------------------------
 */

enum shoal_status shoal_group_free(shoal_group_t group)
{
    if (!group || comm_process_departed())
        return SHOAL_OK;
    enum shoal_status status = api_check_group(group);
    if (status == SHOAL_OK && !take_back(api_group(group)))
        return api_end(NULL, base_error(SHOAL_ERR_ARGUMENT,
                                        "this group was freed already, or is none of shoal's"));
    if (status == SHOAL_OK)
        status = comm_group_close(api_group(group));
    if (status == SHOAL_ERR_STATE && comm_process_check() == SHOAL_OK)
        hand_out(api_group(group), &group);
    return api_end(NULL, status);
}

void shoal_leave(void)
{
    comm_process_depart();
}

enum shoal_status shoal_group_abort(shoal_group_t handle, const char *reason)
{
    enum shoal_status status = api_check_group(handle);
    if (status != SHOAL_OK)
        return api_end(handle, status);
    comm_group_abort(api_group(handle), reason ? reason : "no reason given");
    return SHOAL_OK;
}

enum shoal_status shoal_group_health(shoal_group_t group)
{
    enum shoal_status status = api_check_group(group);
    return api_end(group, status == SHOAL_OK ? comm_group_health(api_group(group)) : status);
}

/* ---- questions
 * ----------------------------------------------------------------------------------------------------------
 */

int shoal_group_rank(shoal_group_t group)
{
    return group ? api_group(group)->rank : -1;
}

int shoal_group_size(shoal_group_t group)
{
    return group ? api_group(group)->size : -1;
}

int shoal_group_local_rank(shoal_group_t group)
{
    return group ? api_group(group)->local_rank : -1;
}

int shoal_group_local_size(shoal_group_t group)
{
    return group ? api_group(group)->local_size : -1;
}

int shoal_group_host(shoal_group_t group)
{
    return group ? api_group(group)->host_of[api_group(group)->rank] : -1;
}

int shoal_group_host_count(shoal_group_t group)
{
    return group ? api_group(group)->host_count : -1;
}

enum shoal_status shoal_group_set_timeout(shoal_group_t group, int64_t timeout_ms)
{
    enum shoal_status status = api_check_group(group);
    if (status == SHOAL_OK && timeout_ms < 1)
        status = base_error(SHOAL_ERR_ARGUMENT, "timeout_ms is %lld: give 1 or more",
                            (long long)timeout_ms);
    if (status == SHOAL_OK)
        atomic_store(&api_group(group)->timeout_ms, timeout_ms);
    return api_end(group, status);
}

/* What the caller's header does not know yet is left out; what this library does not know yet is
 * left alone. */
enum shoal_status api_give(void *out, const void *all, size_t bytes, size_t smallest,
                           const char *init)
{
    size_t known;
    if (!out)
        return base_error(SHOAL_ERR_ARGUMENT, "out is NULL");
    memcpy(&known, out, sizeof(known));
    if (known < smallest)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "out->struct_bytes is %zu, at least %zu expected: start from %s", known,
                          smallest, init);
    if (known > bytes)
        known = bytes;
    memcpy(out, all, known);
    memcpy(out, &known, sizeof(known));
    return SHOAL_OK;
}

enum shoal_status api_give_counters(const struct comm_group *const *groups, int group_count,
                                    struct shoal_counters *out)
{
    struct shoal_counters counted = SHOAL_COUNTERS_INIT;
    for (int i = 0; i < group_count; i++)
        comm_counters_add(&counted, groups[i]);
    return api_give(out, &counted, sizeof(counted),
                    offsetof(struct shoal_counters, operations) + sizeof(uint64_t),
                    "SHOAL_COUNTERS_INIT");
}

enum shoal_status shoal_group_counters(shoal_group_t group, struct shoal_counters *out)
{
    enum shoal_status status = api_check_group(group);
    const struct comm_group *one = api_group(group);
    return api_end(group, status == SHOAL_OK ? api_give_counters(&one, 1, out) : status);
}

/* ---- memory
 * ----------------------------------------------------------------------------------------------------------------
 */

enum shoal_status shoal_alloc(shoal_group_t handle, size_t bytes, void **out)
{
    enum shoal_status status = api_check_group(handle);
    if (status == SHOAL_OK && !out)
        status = base_error(SHOAL_ERR_ARGUMENT, "out is NULL");
    if (status == SHOAL_OK)
        status = comm_shared_alloc(api_group(handle)->world, bytes, out);
    return api_end(handle, status);
}

enum shoal_status shoal_free(shoal_group_t handle, void *memory)
{
    if (!memory)
        return SHOAL_OK;
    enum shoal_status status = api_check_group(handle);
    if (status == SHOAL_OK)
        status = comm_shared_free(api_group(handle)->world, memory);
    return api_end(handle, status);
}
