/* SPDX-License-Identifier: Apache-2.0 */
/* plan_build.c: the schedules of all ranks of an operation, and what is known about them. */
#include "plan.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernel/kernel.h"

const char *plan_host_name(const struct plan *plan, int host)
{
    return plan->request->hosts.hosts[host].name;
}

/* ---- shapes and schedules ------------------------------------------------------------------ */

/* Whether `bytes` means all p blocks. */
static bool has_blocks(enum coll_kind kind)
{
    return kind != COLL_ALLREDUCE && kind != COLL_REDUCE && kind != COLL_BROADCAST &&
           kind != COLL_BARRIER;
}

static enum shoal_status fill_shapes(struct plan *plan)
{
    const struct plan_request *request = plan->request;
    TRY(BASE_NEW_ARRAY(&plan->host_of, plan->size, "the ranks' hosts"));
    TRY(BASE_NEW_ARRAY(&plan->shapes, plan->size, "the ranks' shapes"));
    for (int host = 0, rank = 0; host < request->hosts.count; host++)
        for (int i = 0; i < request->hosts.hosts[host].rank_count; i++)
            plan->host_of[rank++] = host;
    for (int rank = 0; rank < plan->size; rank++)
        plan->shapes[rank] = (struct coll_shape){.kind = request->kind,
                                                 .rank = rank,
                                                 .size = plan->size,
                                                 .root = request->root,
                                                 .elem_bytes = plan->elem_bytes,
                                                 .wide_sums = kernel_dtype_is_half(request->dtype),
                                                 .count = plan->count,
                                                 .in_place = request->kind == COLL_BROADCAST,
                                                 .segment_count = 1,
                                                 .host_of = plan->host_of,
                                                 .host_count = request->hosts.count};
    plan->segment_count = request->segment_bytes ? request->segment_bytes / plan->elem_bytes
                                                 : coll_segment_count(&plan->shapes[0]);
    if (plan->segment_count == 0)
        plan->segment_count = 1;
    return SHOAL_OK;
}

static enum shoal_status make_schedules(struct plan *plan, uint64_t count, uint64_t segment_count,
                                        struct schedule **schedules)
{
    for (int rank = 0; rank < plan->size; rank++) {
        plan->shapes[rank].count = count;
        plan->shapes[rank].segment_count = segment_count;
        TRY(coll_schedule(plan->algorithm, &plan->shapes[rank], &schedules[rank]));
    }
    return SHOAL_OK;
}

static void free_schedules(struct plan *plan, struct schedule **schedules)
{
    for (int rank = 0; schedules && rank < plan->size; rank++)
        schedule_free(schedules[rank]);
    base_free(schedules);
}

/* ---- rounds -------------------------------------------------------------------------------- */

static enum shoal_status count_messages(struct plan *plan, struct schedule *const *schedules,
                                        const uint32_t *rounds)
{
    uint64_t *sent; /* by the rank in hand, per round */
    TRY(BASE_NEW_ARRAY(&plan->rounds, plan->round_count, "the rounds"));
    TRY(BASE_NEW_ARRAY(&sent, plan->round_count, "the rounds"));
    for (int rank = 0, number = 0; rank < plan->size; rank++) {
        memset(sent, 0, sizeof(*sent) * plan->round_count);
        for (uint32_t i = 0; i < schedules[rank]->step_count; i++, number++) {
            const struct schedule_step *step = &schedules[rank]->steps[i];
            if (step->kind != STEP_SEND)
                continue;
            uint32_t at = rounds[number] - 1;
            struct plan_round *round = &plan->rounds[at];
            uint64_t bytes = plan_step_bytes(plan, step);
            round->messages++;
            round->bytes += bytes;
            if (plan->host_of[rank] != plan->host_of[step->peer])
                round->network_bytes += bytes;
            sent[at] += bytes;
            if (sent[at] > round->most_bytes)
                round->most_bytes = sent[at];
        }
    }
    base_free(sent);
    return SHOAL_OK;
}

/* Of schedules whose messages are not cut: the rounds of the paper. */
static enum shoal_status find_rounds(struct plan *plan)
{
    struct schedule **whole;
    uint32_t *rounds = NULL;
    uint64_t steps = 0;
    TRY(BASE_NEW_ARRAY(&whole, plan->size, "the schedules"));
    enum shoal_status status = make_schedules(plan, plan->count, UINT64_MAX, whole);
    for (int rank = 0; status == SHOAL_OK && rank < plan->size; rank++)
        steps += whole[rank]->step_count;
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&rounds, steps, "the rounds");
    if (status == SHOAL_OK)
        status = coll_rounds(whole, plan->size, rounds, &plan->round_count);
    if (status == SHOAL_OK)
        status = count_messages(plan, whole, rounds);
    base_free(rounds);
    free_schedules(plan, whole);
    return status;
}

/* ---- verify -------------------------------------------------------------------------------- */

#define EXACT_COUNT_MAX   4096
#define SEGMENT_COUNT_MIN 3

/* Proves the same schedule with fewer elements, cut in as many segments. */
static enum shoal_status verify(struct plan *plan)
{
    uint64_t count = plan->count, segment_count = plan->segment_count;
    if (count > EXACT_COUNT_MAX && segment_count > SEGMENT_COUNT_MIN) {
        count = count / segment_count * SEGMENT_COUNT_MIN +
                (count % segment_count) * SEGMENT_COUNT_MIN / segment_count;
        segment_count = SEGMENT_COUNT_MIN;
    }
    struct schedule **small;
    TRY(BASE_NEW_ARRAY(&small, plan->size, "the schedules"));
    enum shoal_status status = make_schedules(plan, count, segment_count, small);
    if (status == SHOAL_OK)
        status = coll_verify(plan->shapes, small, &plan->report);
    plan->verified = status == SHOAL_OK;
    plan->verified_count = count;
    free_schedules(plan, small);
    return status;
}

/* ---- links --------------------------------------------------------------------------------- */

static enum shoal_status count_links(struct plan *plan)
{
    bool by_rank = plan->request->hosts.count == 1;
    plan->place_count = by_rank ? plan->size : plan->request->hosts.count;
    size_t places = (size_t)plan->place_count;
    TRY(BASE_NEW_ARRAY(&plan->link_bytes, places * places, "the links"));
    for (int rank = 0; rank < plan->size; rank++)
        for (uint32_t i = 0; i < plan->schedules[rank]->step_count; i++) {
            const struct schedule_step *step = &plan->schedules[rank]->steps[i];
            if (step->kind != STEP_SEND)
                continue;
            size_t from = (size_t)(by_rank ? rank : plan->host_of[rank]);
            size_t to = (size_t)(by_rank ? step->peer : plan->host_of[step->peer]);
            plan->link_bytes[from * places + to] += plan_step_bytes(plan, step);
        }
    return SHOAL_OK;
}

static enum shoal_status predict(struct plan *plan)
{
    TRY(BASE_NEW_ARRAY(&plan->first, plan->size + 1, "the steps"));
    for (int rank = 0; rank < plan->size; rank++)
        plan->first[rank + 1] = plan->first[rank] + plan->schedules[rank]->step_count;
    TRY(BASE_NEW_ARRAY(&plan->times, plan->first[plan->size], "the steps' times"));
    struct sim_programs *programs;
    TRY(sim_programs_pack(plan->shapes, plan->schedules, &programs));
    struct sim_operation operation = {.programs = programs};
    struct sim_run run = {.platform = plan->request->platform,
                          .operations = &operation,
                          .operation_count = 1,
                          .in_flight = 1,
                          .every_rank = true,
                          .times = plan->times};
    enum shoal_status status = sim_run(&run);
    plan->bound_ns = sim_bound(plan->request->platform, plan->shapes);
    plan->predicted_ns = run.end_ns;
    sim_programs_free(programs);
    return status;
}

static enum shoal_status choose(struct plan *plan)
{
    const struct plan_request *request = plan->request;
    char forced[128]; /* "allreduce:ring", so that ring must be one of allreduce's */
    snprintf(forced, sizeof(forced), "%s:%s", comm_kind_name(request->kind),
             request->algorithm ? request->algorithm : "auto");
    struct coll_choice choice = {
        .dtype = request->dtype, .reproducible = request->reproducible, .forced = forced};
    TRY(coll_choose(&plan->shapes[0], &choice, &plan->algorithm));
    return coll_explain(&plan->shapes[0], &choice, plan->why, sizeof(plan->why));
}

enum shoal_status plan_build(const struct plan_request *request, struct plan *plan)
{
    *plan = (struct plan){.request = request, .size = request->size};
    plan->elem_bytes = shoal_dtype_bytes(request->dtype);
    plan->count = request->bytes / plan->elem_bytes;
    if (has_blocks(request->kind))
        plan->count /= (uint64_t)plan->size;
    TRY(fill_shapes(plan));
    TRY(choose(plan));
    TRY(find_rounds(plan));
    if (request->verify)
        TRY(verify(plan));
    TRY(BASE_NEW_ARRAY(&plan->schedules, plan->size, "the schedules"));
    TRY(make_schedules(plan, plan->count, plan->segment_count, plan->schedules));
    TRY(count_links(plan));
    return predict(plan);
}

void plan_release(struct plan *plan)
{
    free_schedules(plan, plan->schedules);
    base_free(plan->host_of);
    base_free(plan->shapes);
    base_free(plan->first);
    base_free(plan->times);
    base_free(plan->rounds);
    base_free(plan->link_bytes);
}
