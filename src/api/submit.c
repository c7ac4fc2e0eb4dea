/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit.c: which path a call takes: alone, same host, or by a schedule over the transports.
 */
#include <string.h>

#include "api/handles.h"
#include "base/options.h"
#include "coll/coll.h"
#include "comm/shares.h"
#include "comm/steer.h"
#include "kernel/kernel.h"
#include "local/local.h"

/* ---- groups of one
 * -------------------------------------------------------------------------------------------- */

static enum shoal_status alone(struct comm_group *group, const struct comm_call *call)
{
    comm_count(&group->counters.bytes[COMM_WAY_COPIED], comm_call_bytes(call, 0, 1));
    uint64_t count = call->counts ? call->counts[0] : call->count;
    if (call->kind == COLL_BARRIER || count == 0)
        return SHOAL_OK;
    size_t elem_bytes = kernel_dtype_bytes(call->dtype);
    bool parts_out = call->kind == COLL_ALLGATHER || call->kind == COLL_GATHER;
    bool parts_in = call->kind == COLL_SCATTER || call->kind == COLL_ALLTOALL;
    const uint64_t *out_displs = parts_out ? call->displs : call->recv_displs;
    unsigned char *out = call->out;
    const unsigned char *in = call->in;
    if (out_displs)
        out += out_displs[0] * elem_bytes;
    if (parts_in && call->displs)
        in += call->displs[0] * elem_bytes;
    if (call->has_factor)
        kernel_scale(call->dtype, out, in, call->factor, count);
    else if (out != in)
        memmove(out, in, count * elem_bytes);
    return SHOAL_OK;
}

static enum shoal_status alone_run(struct comm_group *group, const struct comm_call *call,
                                   struct comm_plan *plan, uint64_t sequence)
{
    (void)plan;
    (void)sequence;
    return alone(group, call);
}

static enum shoal_status alone_start(struct comm_group *group, struct comm_request *request)
{
    TRY(alone(group, &request->call));
    struct comm_task task = {.group = group, .owner = request};
    comm_request_done(&task, SHOAL_OK);
    return SHOAL_OK;
}

const struct comm_path api_alone_path = {alone_run, alone_start, false};

/* ---- plans
 * ------------------------------------------------------------------------------------------------------
 */

/* Servers only sum. What else their group does, exchanges of rates (steer.h), is among its ranks.
 */
static void leave_servers_out(const struct comm_group *group, struct coll_shape *shape)
{
    shape->size -= shape->server_count;
    shape->server_count = 0;
    shape->host_count = comm_group_rank_hosts(group);
}

static struct coll_shape shape_of(const struct comm_group *group, const struct comm_call *call)
{
    struct coll_shape shape = {.kind = call->kind,
                               .rank = group->rank,
                               .size = group->size,
                               .root = call->root,
                               .elem_bytes =
                                   call->kind == COLL_BARRIER ? 1 : kernel_dtype_bytes(call->dtype),
                               .wide_sums = kernel_dtype_is_half(call->dtype),
                               .count = call->count,
                               .counts = call->counts,
                               .displs = call->displs,
                               .recv_counts = call->recv_counts,
                               .recv_displs = call->recv_displs,
                               .in_place = call->in_place,
                               .long_messages = call->long_messages,
                               .shares = comm_steer_shares(group, call),
                               .host_of = group->host_of,
                               .host_count = group->host_count,
                               .crowded = group->world && group->world->crowded,
                               .server_count = group->server_count};
    if (call->kind != COLL_ALLREDUCE && shape.server_count > 0)
        leave_servers_out(group, &shape);
    uint64_t segment_bytes = (uint64_t)base_option_int(OPTION_SEGMENT_BYTES);
    shape.segment_count =
        segment_bytes > 0 ? segment_bytes / shape.elem_bytes : coll_segment_count(&shape);
    if (shape.segment_count == 0)
        shape.segment_count = 1;
    return shape;
}

enum shoal_status api_check_algorithm(void)
{
    const int host_of[2] = {0, 0};
    const struct coll_algorithm *algorithm = NULL;
    struct coll_shape shape = {.kind = COLL_ALLREDUCE,
                               .size = 2,
                               .elem_bytes = 4,
                               .count = 1,
                               .segment_count = 1,
                               .host_of = host_of,
                               .host_count = 1};
    struct coll_choice choice = {.dtype = SHOAL_F32, .forced = base_option_text(OPTION_ALGORITHM)};
    enum shoal_status status = coll_choose(&shape, &choice, &algorithm);
    return status == SHOAL_OK ? status : base_error_context(status, "SHOAL_ALGORITHM");
}

static struct coll_choice choice_of(const struct comm_group *group, const struct comm_call *call)
{
    return (struct coll_choice){.dtype = call->dtype,
                                .reproducible = group->reproducible,
                                .forced = base_option_text(OPTION_ALGORITHM)};
}

/* Whether links are measured while this goes on. The same on all ranks. */
static bool is_counted(const struct comm_group *group, const struct comm_call *call)
{
    uint64_t parts = call->kind == COLL_ALLREDUCE ? 1 : (uint64_t)group->size;
    bool whole = call->kind == COLL_ALLREDUCE || call->kind == COLL_ALLGATHER ||
                 call->kind == COLL_REDUCE_SCATTER;
    return whole && !call->counts &&
           call->count >= COMM_SHARES_BYTES_MIN / kernel_dtype_bytes(call->dtype) / parts &&
           comm_steer_measures(group);
}

/* Likewise. */
static bool is_steered(const struct comm_group *group, const struct comm_call *call)
{
    const struct coll_algorithm *algorithm;
    if (call->kind != COLL_ALLREDUCE || !call->counted || !comm_steer_can(group))
        return false;
    struct coll_shape shape = shape_of(group, call);
    struct coll_choice choice = choice_of(group, call);
    return coll_choose(&shape, &choice, &algorithm) == SHOAL_OK && algorithm->follows_shares;
}

static enum shoal_status make_plan(struct comm_group *group, const struct comm_call *call,
                                   struct comm_plan **out)
{
    struct coll_shape shape = shape_of(group, call);
    struct coll_choice choice = choice_of(group, call);
    const struct coll_algorithm *algorithm = NULL;
    struct schedule *schedule = NULL;
    TRY(coll_choose(&shape, &choice, &algorithm));
    TRY(coll_schedule(algorithm, &shape, &schedule));
    return comm_plan_create(&shape, call->dtype, schedule, out);
}

/* ---- servers
 * ------------------------------------------------------------------------------------------------
 */

/* The same on all ranks. Whoever forces an algorithm gets it. */
static bool is_served(const struct comm_group *group, const struct comm_call *call)
{
    const struct coll_algorithm *algorithm, *own_choice;
    if (!group->served || call->kind != COLL_ALLREDUCE ||
        call->count < COLL_SERVED_BYTES_MIN / kernel_dtype_bytes(call->dtype))
        return false;
    struct coll_shape shape = shape_of(group, call);
    struct coll_choice choice = choice_of(group, call);
    bool known = coll_choose(&shape, &choice, &algorithm) == SHOAL_OK;
    choice.forced = NULL;
    return known && coll_choose(&shape, &choice, &own_choice) == SHOAL_OK &&
           algorithm == own_choice;
}

enum shoal_status api_submit_served(struct comm_group *group, const struct comm_call *call,
                                    shoal_request_t *request)
{
    return comm_submit(group, &comm_path_plan, call, make_plan, request);
}

enum shoal_status api_submit(struct comm_group *group, struct comm_call *call,
                             shoal_request_t *request)
{
    if (call->kind >= COLL_SEND)
        return comm_submit(group, &comm_path_send, call, NULL, request);
    if (group->size == 1)
        return comm_submit(group, &api_alone_path, call, NULL, request);
    if (group->local && local_can(call))
        return comm_submit(group, &local_path, call, NULL, request);
    if (call->has_factor)
        call->in_place = false; /* the scaled input is a buffer of its own */
    if (is_served(group, call)) {
        atomic_store(&group->served->timeout_ms, atomic_load(&group->timeout_ms));
        call->long_messages = false; /* servers could not know it */
        call->counted = is_counted(group->served, call);
        call->steered = is_steered(group->served, call);
        return api_submit_served(group->served, call, request);
    }
    call->counted = is_counted(group, call);
    call->steered = is_steered(group, call);
    return comm_submit(group, &comm_path_plan, call, make_plan, request);
}
