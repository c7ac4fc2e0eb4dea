/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: indexes over a schedule, and the group's cache of plans. */
#include "comm/plan.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/group.h"
#include "comm/run.h"
#include "comm/steer.h"

#define WIDE_ALIGN 64 /* a line of the cache */

static uint32_t hash_number(uint32_t hash, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        hash = (hash ^ (uint32_t)(number >> (8 * i) & 255)) * 16777619u;
    return hash;
}

static uint32_t hash_of(const char *algorithm, const struct coll_shape *shape)
{
    uint32_t hash = 2166136261u;
    for (; *algorithm; algorithm++)
        hash = (hash ^ (unsigned char)*algorithm) * 16777619u;
    hash = hash_number(hash, shape->segment_count);
    for (int host = 0; shape->shares && host < shape->host_count; host++)
        hash = hash_number(hash, shape->shares[host]);
    return hash;
}

/* Lists the steps of one kind by peer: first[peer] … first[peer+1]-1 in `list`, message k at first
 * + k. */
static enum shoal_status index_messages(const struct schedule *schedule, enum step_kind kind,
                                        int size, uint32_t **first, uint32_t **list)
{
    TRY(BASE_NEW_ARRAY(first, size + 1, "a plan's message index"));
    uint32_t total = 0;
    for (uint32_t i = 0; i < schedule->step_count; i++)
        if (schedule->steps[i].kind == kind) {
            (*first)[schedule->steps[i].peer + 1]++;
            total++;
        }
    for (int peer = 0; peer < size; peer++)
        (*first)[peer + 1] += (*first)[peer];
    TRY(BASE_NEW_ARRAY(list, total + 1, "a plan's message list"));
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        const struct schedule_step *step = &schedule->steps[i];
        if (step->kind == kind)
            (*list)[(*first)[step->peer] + step->message] = i;
    }
    return SHOAL_OK;
}

/* Steps that wait for none: receives, or else the others. */
static void list_ready(struct comm_plan *plan, bool receives)
{
    const struct schedule *schedule = plan->schedule;
    for (uint32_t i = 0; i < schedule->step_count; i++)
        if (schedule->steps[i].wait_count == 0 &&
            (schedule->steps[i].kind == STEP_RECV) == receives)
            plan->ready_first[plan->ready_count++] = i;
}

/* Receives come first: behind the data of this rank's sends their grants would reach the peer when
 * that data has, and with it the peer's own data would wait. */
static enum shoal_status index_ready(struct comm_plan *plan)
{
    TRY(BASE_NEW_ARRAY(&plan->ready_first, plan->schedule->step_count + 1, "a plan's first steps"));
    list_ready(plan, true);
    list_ready(plan, false);
    return SHOAL_OK;
}

static enum shoal_status keep_shares(struct comm_plan *plan, const struct coll_shape *shape)
{
    if (!shape->shares)
        return SHOAL_OK;
    TRY(BASE_NEW_ARRAY(&plan->shares, shape->host_count, "a plan's shares"));
    memcpy(plan->shares, shape->shares, sizeof(*plan->shares) * (size_t)shape->host_count);
    return SHOAL_OK;
}

static enum shoal_status index_all(struct comm_plan *plan, int size)
{
    TRY(index_messages(plan->schedule, STEP_SEND, size, &plan->send_first, &plan->send_steps));
    TRY(index_messages(plan->schedule, STEP_RECV, size, &plan->recv_first, &plan->recv_steps));
    return index_ready(plan);
}

enum shoal_status comm_plan_create(const struct coll_shape *shape, enum shoal_dtype dtype,
                                   struct schedule *schedule, struct comm_plan **out)
{
    struct comm_plan *plan = NULL;
    enum shoal_status status = BASE_NEW(&plan, "a plan");
    if (status != SHOAL_OK) {
        schedule_free(schedule);
        return status;
    }
    plan->kind = shape->kind;
    plan->count = shape->count;
    plan->elem_bytes = shape->elem_bytes;
    plan->dtype = dtype;
    plan->root = shape->root;
    plan->in_place = shape->in_place;
    plan->long_messages = shape->long_messages;
    plan->is_v = shape->counts != NULL;
    plan->schedule = schedule;
    uint64_t narrow_bytes = schedule->scratch_count * shape->elem_bytes;
    plan->wide_at = (narrow_bytes + WIDE_ALIGN - 1) / WIDE_ALIGN * WIDE_ALIGN;
    plan->scratch_bytes = plan->wide_at + schedule->wide_count * sizeof(float);
    plan->hash = hash_of(schedule->algorithm, shape);
    status = index_all(plan, shape->size);
    if (status == SHOAL_OK)
        status = keep_shares(plan, shape);
    if (status != SHOAL_OK) {
        comm_plan_free(plan);
        return status;
    }
    *out = plan;
    return SHOAL_OK;
}

void comm_plan_free(struct comm_plan *plan)
{
    if (!plan)
        return;
    BASE_ASSERT(atomic_load(&plan->users) == 0);
    comm_run_free_idle(plan);
    schedule_free(plan->schedule);
    base_free(plan->send_first);
    base_free(plan->send_steps);
    base_free(plan->recv_first);
    base_free(plan->recv_steps);
    base_free(plan->ready_first);
    base_free(plan->shares);
    base_free(plan);
}

static bool plan_fits(const struct comm_plan *plan, const struct comm_call *call)
{
    return plan->kind == call->kind && plan->count == call->count && plan->dtype == call->dtype &&
           plan->root == call->root && plan->in_place == call->in_place &&
           plan->long_messages == call->long_messages;
}

struct comm_plan *comm_plan_find(struct comm_group *group, const struct comm_call *call)
{
    if (call->counts)
        return NULL;
    uint32_t version = comm_steer_version(group, call);
    for (struct comm_plan **at = &group->plans; *at; at = &(*at)->next) {
        struct comm_plan *plan = *at;
        if (!plan_fits(plan, call) || plan->version != version)
            continue;
        *at = plan->next;
        plan->next = group->plans;
        group->plans = plan;
        return plan;
    }
    return NULL;
}

/* The least recently used plan that is not running leaves. */
static void drop_oldest(struct comm_group *group)
{
    struct comm_plan **oldest = NULL;
    for (struct comm_plan **at = &group->plans; *at; at = &(*at)->next)
        if (atomic_load_explicit(&(*at)->users, memory_order_acquire) == 0)
            oldest = at;
    if (!oldest)
        return;
    struct comm_plan *plan = *oldest;
    *oldest = plan->next;
    group->plan_count--;
    comm_plan_free(plan);
}

void comm_plan_drop_versions(struct comm_group *group, uint32_t kept)
{
    for (struct comm_plan **at = &group->plans; *at;) {
        struct comm_plan *plan = *at;
        bool stays = plan->version == 0 || plan->version == kept ||
                     atomic_load_explicit(&plan->users, memory_order_acquire) > 0;
        if (stays) {
            at = &plan->next;
            continue;
        }
        *at = plan->next;
        group->plan_count--;
        comm_plan_free(plan);
    }
}

void comm_plan_keep(struct comm_group *group, struct comm_plan *plan)
{
    if (group->plan_count >= COMM_PLANS_MAX)
        drop_oldest(group);
    plan->next = group->plans;
    group->plans = plan;
    group->plan_count++;
}
