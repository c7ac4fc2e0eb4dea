/* SPDX-License-Identifier: Apache-2.0 */
/* collective.c: the operations: check the arguments, describe the call, submit it. */
#include <string.h>

#include "api/handles.h"
#include "kernel/kernel.h"

#define COUNT_MAX (UINT64_C(1) << 58) /* bytes of any buffer stay below 2^63 */

/* ---- checks
 * ----------------------------------------------------------------------------------------------------
 */

static enum shoal_status check_dtype(const struct comm_call *call)
{
    if (kernel_dtype_bytes(call->dtype) == 0)
        return base_error(SHOAL_ERR_ARGUMENT, "%s: dtype %d is none of shoal.h's",
                          comm_kind_name(call->kind), (int)call->dtype);
    return SHOAL_OK;
}

static enum shoal_status check_counts(const struct comm_call *call, int size)
{
    uint64_t total = 0;
    for (int i = 0; i < size; i++) {
        uint64_t count = call->counts ? call->counts[i] : call->count;
        uint64_t back = call->recv_counts ? call->recv_counts[i] : 0;
        if (count > COUNT_MAX || back > COUNT_MAX || (total += count) > COUNT_MAX)
            return base_error(SHOAL_ERR_ARGUMENT, "%s: a count of %llu elements is too large",
                              comm_kind_name(call->kind), (unsigned long long)count);
    }
    return SHOAL_OK;
}

static enum shoal_status check_buffers(const struct comm_call *call, const struct comm_group *group)
{
    if (!call->in && comm_call_in_count(call, group->rank, group->size) > 0)
        return base_error(SHOAL_ERR_ARGUMENT, "%s: the input buffer is NULL",
                          comm_kind_name(call->kind));
    if (!call->out && comm_call_out_count(call, group->rank, group->size) > 0)
        return base_error(SHOAL_ERR_ARGUMENT, "%s: the output buffer is NULL",
                          comm_kind_name(call->kind));
    return SHOAL_OK;
}

static bool is_rooted(enum coll_kind kind)
{
    return kind == COLL_REDUCE || kind == COLL_BROADCAST || kind == COLL_GATHER ||
           kind == COLL_SCATTER;
}

static bool is_reducing(enum coll_kind kind)
{
    return kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER;
}

static enum shoal_status check_call(const struct comm_group *group, const struct comm_call *call)
{
    TRY(check_dtype(call));
    if (is_rooted(call->kind) && (call->root < 0 || call->root >= group->size))
        return base_error(SHOAL_ERR_ARGUMENT, "%s: root is %d; group '%s' has ranks 0 to %d",
                          comm_kind_name(call->kind), call->root, group->name, group->size - 1);
    if (is_reducing(call->kind) && !kernel_supports(call->dtype, call->op))
        return base_error(SHOAL_ERR_UNSUPPORTED,
                          "%s: %s has no meaning on %s (docs/kernel.md has "
                          "the table)",
                          comm_kind_name(call->kind), kernel_op_name(call->op),
                          kernel_dtype_name(call->dtype));
    if (is_reducing(call->kind) && call->op == SHOAL_PREMUL_SUM && !call->has_factor)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "%s: premul_sum needs a factor: call "
                          "shoal_allreduce_premul or shoal_reduce_scatter_premul",
                          comm_kind_name(call->kind));
    if (!call->counts && call->count > COUNT_MAX / (uint64_t)group->size)
        return base_error(SHOAL_ERR_ARGUMENT, "%s: a count of %llu elements is too large",
                          comm_kind_name(call->kind), (unsigned long long)call->count);
    if (call->counts)
        TRY(check_counts(call, group->size));
    return check_buffers(call, group);
}

/* ---- in place
 * ------------------------------------------------------------------------------------------------------
 */

static uint64_t own_offset(const struct comm_group *group, const struct comm_call *call)
{
    if (!call->counts)
        return call->count * (uint64_t)group->rank;
    if (call->displs)
        return call->displs[group->rank];
    uint64_t offset = 0;
    for (int i = 0; i < group->rank; i++)
        offset += call->counts[i];
    return offset;
}

static bool is_in_place(const struct comm_group *group, const struct comm_call *call)
{
    uint64_t bytes = own_offset(group, call) * kernel_dtype_bytes(call->dtype);
    const unsigned char *in = call->in, *out = call->out;
    bool root = group->rank == call->root;
    switch (call->kind) {
    case COLL_ALLREDUCE: return in == out;
    case COLL_BROADCAST: return true;
    case COLL_REDUCE: return root && in == out;
    case COLL_ALLGATHER: return out && in == out + bytes;
    case COLL_GATHER: return root && out && in == out + bytes;
    case COLL_REDUCE_SCATTER: return in && out == in + bytes;
    case COLL_SCATTER: return root && in && out == in + bytes;
    default: return false;
    }
}

static enum shoal_status submit(shoal_group_t handle, struct comm_call *call,
                                shoal_request_t *request)
{
    enum shoal_status status = api_check_group(handle);
    struct comm_group *group = api_group(handle);
    if (status == SHOAL_OK)
        status = check_call(group, call);
    if (status == SHOAL_OK) {
        call->in_place = is_in_place(group, call);
        status = api_check_overlap(group, call);
    }
    if (status == SHOAL_OK)
        status = api_submit(group, call, request);
    return api_end(handle, status);
}

/* ---- reductions
 * ------------------------------------------------------------------------------------------------------
 */

enum shoal_status shoal_allreduce(const void *in, void *out, uint64_t count, enum shoal_dtype dtype,
                                  enum shoal_op op, shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {
        .kind = COLL_ALLREDUCE, .dtype = dtype, .op = op, .in = in, .out = out, .count = count};
    return submit(group, &call, request);
}

/* Reads the factor, which belongs to the caller again after the call. */
static enum shoal_status take_factor(struct comm_call *call, const void *factor)
{
    size_t bytes = kernel_dtype_bytes(call->dtype);
    if (!factor || bytes == 0)
        return base_error(SHOAL_ERR_ARGUMENT, "%s: the factor is NULL or the dtype unknown",
                          comm_kind_name(call->kind));
    memcpy(call->factor, factor, bytes);
    call->has_factor = true;
    return SHOAL_OK;
}

static enum shoal_status submit_premul(shoal_group_t group, struct comm_call *call,
                                       const void *factor, shoal_request_t *request)
{
    enum shoal_status status = take_factor(call, factor);
    return status == SHOAL_OK ? submit(group, call, request) : api_end(group, status);
}

enum shoal_status shoal_allreduce_premul(const void *in, void *out, uint64_t count,
                                         enum shoal_dtype dtype, const void *factor,
                                         shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_ALLREDUCE,
                             .dtype = dtype,
                             .op = SHOAL_PREMUL_SUM,
                             .in = in,
                             .out = out,
                             .count = count};
    return submit_premul(group, &call, factor, request);
}

enum shoal_status shoal_reduce(const void *in, void *out, uint64_t count, enum shoal_dtype dtype,
                               enum shoal_op op, int root, shoal_group_t group,
                               shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_REDUCE,
                             .dtype = dtype,
                             .op = op,
                             .in = in,
                             .out = out,
                             .count = count,
                             .root = root};
    return submit(group, &call, request);
}

enum shoal_status shoal_reduce_scatter(const void *in, void *out, uint64_t count,
                                       enum shoal_dtype dtype, enum shoal_op op,
                                       shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_REDUCE_SCATTER,
                             .dtype = dtype,
                             .op = op,
                             .in = in,
                             .out = out,
                             .count = count};
    return submit(group, &call, request);
}

enum shoal_status shoal_reduce_scatter_premul(const void *in, void *out, uint64_t count,
                                              enum shoal_dtype dtype, const void *factor,
                                              shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_REDUCE_SCATTER,
                             .dtype = dtype,
                             .op = SHOAL_PREMUL_SUM,
                             .in = in,
                             .out = out,
                             .count = count};
    return submit_premul(group, &call, factor, request);
}

/* The v forms need their counts. */
static enum shoal_status submit_v(shoal_group_t group, struct comm_call *call,
                                  shoal_request_t *request)
{
    if (!call->counts)
        return api_end(group, base_error(SHOAL_ERR_ARGUMENT, "%s: counts is NULL",
                                         comm_kind_name(call->kind)));
    return submit(group, call, request);
}

enum shoal_status shoal_reduce_scatterv(const void *in, void *out, const uint64_t *counts,
                                        enum shoal_dtype dtype, enum shoal_op op,
                                        shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_REDUCE_SCATTER,
                             .dtype = dtype,
                             .op = op,
                             .in = in,
                             .out = out,
                             .counts = counts};
    return submit_v(group, &call, request);
}

/* ---- data movement
 * --------------------------------------------------------------------------------------------------------
 */

enum shoal_status shoal_broadcast(void *buffer, uint64_t count, enum shoal_dtype dtype, int root,
                                  shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_BROADCAST,
                             .dtype = dtype,
                             .in = buffer,
                             .out = buffer,
                             .count = count,
                             .root = root};
    return submit(group, &call, request);
}

enum shoal_status shoal_allgather(const void *in, void *out, uint64_t count, enum shoal_dtype dtype,
                                  shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {
        .kind = COLL_ALLGATHER, .dtype = dtype, .in = in, .out = out, .count = count};
    return submit(group, &call, request);
}

enum shoal_status shoal_allgatherv(const void *in, void *out, const uint64_t *counts,
                                   const uint64_t *displs, enum shoal_dtype dtype,
                                   shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_ALLGATHER,
                             .dtype = dtype,
                             .in = in,
                             .out = out,
                             .counts = counts,
                             .displs = displs};
    return submit_v(group, &call, request);
}

enum shoal_status shoal_gather(const void *in, void *out, uint64_t count, enum shoal_dtype dtype,
                               int root, shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {
        .kind = COLL_GATHER, .dtype = dtype, .in = in, .out = out, .count = count, .root = root};
    return submit(group, &call, request);
}

enum shoal_status shoal_gatherv(const void *in, void *out, const uint64_t *counts,
                                const uint64_t *displs, enum shoal_dtype dtype, int root,
                                shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_GATHER,
                             .dtype = dtype,
                             .in = in,
                             .out = out,
                             .counts = counts,
                             .displs = displs,
                             .root = root};
    return submit_v(group, &call, request);
}

enum shoal_status shoal_scatter(const void *in, void *out, uint64_t count, enum shoal_dtype dtype,
                                int root, shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {
        .kind = COLL_SCATTER, .dtype = dtype, .in = in, .out = out, .count = count, .root = root};
    return submit(group, &call, request);
}

enum shoal_status shoal_scatterv(const void *in, void *out, const uint64_t *counts,
                                 const uint64_t *displs, enum shoal_dtype dtype, int root,
                                 shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_SCATTER,
                             .dtype = dtype,
                             .in = in,
                             .out = out,
                             .counts = counts,
                             .displs = displs,
                             .root = root};
    return submit_v(group, &call, request);
}

enum shoal_status shoal_alltoall(const void *in, void *out, uint64_t count, enum shoal_dtype dtype,
                                 shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {
        .kind = COLL_ALLTOALL, .dtype = dtype, .in = in, .out = out, .count = count};
    return submit(group, &call, request);
}

enum shoal_status shoal_alltoallv(const void *in, const uint64_t *send_counts,
                                  const uint64_t *send_displs, void *out,
                                  const uint64_t *recv_counts, const uint64_t *recv_displs,
                                  enum shoal_dtype dtype, shoal_group_t group,
                                  shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_ALLTOALL,
                             .dtype = dtype,
                             .in = in,
                             .out = out,
                             .counts = send_counts,
                             .displs = send_displs,
                             .recv_counts = recv_counts,
                             .recv_displs = recv_displs};
    if (!recv_counts)
        return api_end(group, base_error(SHOAL_ERR_ARGUMENT, "alltoallv: recv_counts is NULL"));
    return submit_v(group, &call, request);
}

enum shoal_status shoal_barrier(shoal_group_t group, shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_BARRIER, .dtype = SHOAL_U8};
    return submit(group, &call, request);
}

/* ---- point to point
 * ------------------------------------------------------------------------------------------------------------
 */

static enum shoal_status submit_message(shoal_group_t handle, struct comm_call *call, bool any,
                                        shoal_request_t *request)
{
    enum shoal_status status = api_check_group(handle);
    struct comm_group *group = api_group(handle);
    int least = any ? -1 : 0;
    if (status == SHOAL_OK && (call->root < least || call->root >= group->size))
        status = base_error(SHOAL_ERR_ARGUMENT, "%s: rank %d is none of group '%s' (0 to %d)",
                            comm_kind_name(call->kind), call->root, group->name, group->size - 1);
    if (status == SHOAL_OK && call->tag < least)
        status = base_error(SHOAL_ERR_ARGUMENT, "%s: tag is %d; tags are 0 or more",
                            comm_kind_name(call->kind), call->tag);
    if (status == SHOAL_OK && call->count > COUNT_MAX)
        status = base_error(SHOAL_ERR_ARGUMENT, "%s: a count of %llu elements is too large",
                            comm_kind_name(call->kind), (unsigned long long)call->count);
    if (status == SHOAL_OK)
        status = check_dtype(call);
    if (status == SHOAL_OK)
        status = check_buffers(call, group);
    if (status == SHOAL_OK)
        status = api_submit(group, call, request);
    return api_end(handle, status);
}

enum shoal_status shoal_send(const void *in, uint64_t count, enum shoal_dtype dtype,
                             int destination, int tag, shoal_group_t group,
                             shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_SEND,
                             .dtype = dtype,
                             .in = in,
                             .count = count,
                             .root = destination,
                             .tag = tag};
    return submit_message(group, &call, false, request);
}

enum shoal_status shoal_recv(void *out, uint64_t count, enum shoal_dtype dtype, int source, int tag,
                             struct shoal_recv_info *info, shoal_group_t group,
                             shoal_request_t *request)
{
    struct comm_call call = {.kind = COLL_RECV,
                             .dtype = dtype,
                             .out = out,
                             .count = count,
                             .root = source,
                             .tag = tag,
                             .info = info};
    return submit_message(group, &call, true, request);
}
