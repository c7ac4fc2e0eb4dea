/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap.c: whether a call's buffers lie apart, or are in place as shoal.h says.
 *
 * Most calls are answered by two comparisons of whole buffers. Parts with displacements may lie in
 * each other's gaps, so where such buffers meet each part is looked at.
 */
#include "api/handles.h"
#include "kernel/kernel.h"

#define ELEM_BYTES_MAX 16

/* One side of a call: one piece, or a part per rank. */
struct area {
    uintptr_t start;
    uint64_t bytes;                  /* of the one piece */
    const uint64_t *counts, *displs; /* in elements; displs NULL: one piece */
    uint64_t parts;
    size_t elem_bytes;
};

struct span {
    uintptr_t start;
    uint64_t bytes;
};

static bool meet(struct span a, struct span b)
{
    return a.bytes > 0 && b.bytes > 0 && a.start < b.start + b.bytes && b.start < a.start + a.bytes;
}

static struct span part_of(const struct area *area, uint64_t i)
{
    if (!area->displs)
        return (struct span){area->start, area->bytes};
    return (struct span){area->start + area->displs[i] * area->elem_bytes,
                         area->counts[i] * area->elem_bytes};
}

/* From the first byte of any part to the last. */
static struct span hull(const struct area *area)
{
    struct span whole = part_of(area, 0);
    for (uint64_t i = 1; i < area->parts; i++) {
        struct span part = part_of(area, i);
        if (part.bytes == 0)
            continue;
        if (whole.bytes == 0)
            whole = part;
        uintptr_t end = whole.start + whole.bytes, part_end = part.start + part.bytes;
        whole.start = part.start < whole.start ? part.start : whole.start;
        whole.bytes = (part_end > end ? part_end : end) - whole.start;
    }
    return whole;
}

static bool parts_meet(const struct area *in, const struct area *out)
{
    for (uint64_t i = 0; i < in->parts; i++)
        for (uint64_t j = 0; j < out->parts; j++)
            if (meet(part_of(in, i), part_of(out, j)))
                return true;
    return false;
}

static struct area input_of(const struct comm_group *group, const struct comm_call *call)
{
    struct area area = {
        .start = (uintptr_t)call->in, .parts = 1, .elem_bytes = kernel_dtype_bytes(call->dtype)};
    area.bytes = comm_call_in_count(call, group->rank, group->size) * area.elem_bytes;
    bool has_parts = call->kind == COLL_SCATTER || call->kind == COLL_ALLTOALL;
    if (has_parts && call->displs && area.bytes > 0) {
        area.counts = call->counts;
        area.displs = call->displs;
        area.parts = (uint64_t)group->size;
    }
    return area;
}

static struct area output_of(const struct comm_group *group, const struct comm_call *call)
{
    struct area area = {
        .start = (uintptr_t)call->out, .parts = 1, .elem_bytes = kernel_dtype_bytes(call->dtype)};
    bool gathers = call->kind == COLL_ALLGATHER || call->kind == COLL_GATHER;
    const uint64_t *displs = gathers ? call->displs : call->recv_displs;
    area.bytes = comm_call_out_count(call, group->rank, group->size) * area.elem_bytes;
    if (displs && area.bytes > 0) {
        area.counts = gathers ? call->counts : call->recv_counts;
        area.displs = displs;
        area.parts = (uint64_t)group->size;
    }
    return area;
}

static const char *place_text(enum coll_kind kind)
{
    switch (kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE: return "in place is out == in";
    case COLL_ALLGATHER:
    case COLL_GATHER: return "in place is in == this rank's part of out";
    case COLL_REDUCE_SCATTER:
    case COLL_SCATTER: return "in place is out == this rank's part of in";
    default: return "it has no form in place";
    }
}

/* Whether they begin further from each other than either can reach; for most small payloads. */
static bool far_apart(const struct comm_group *group, const struct comm_call *call)
{
    uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    uint64_t distance = in < out ? out - in : in - out;
    return !call->counts && distance >= call->count * (uint64_t)group->size * ELEM_BYTES_MAX;
}

enum shoal_status api_check_overlap(const struct comm_group *group, const struct comm_call *call)
{
    if (call->in_place || call->in == NULL || call->out == NULL || far_apart(group, call))
        return SHOAL_OK;
    if (group->size == 1 && call->in == call->out) /* a copy to itself */
        return SHOAL_OK;
    struct area in = input_of(group, call), out = output_of(group, call);
    struct span in_hull = hull(&in), out_hull = hull(&out);
    if (!meet(in_hull, out_hull) || !parts_meet(&in, &out))
        return SHOAL_OK;
    bool behind = out_hull.start >= in_hull.start;
    return base_error(SHOAL_ERR_ARGUMENT,
                      "%s: the output buffer overlaps the input buffer (%llu bytes in, %llu bytes "
                      "out, which begin %llu bytes %s the input): %s, all else must lie apart",
                      comm_kind_name(call->kind), (unsigned long long)in_hull.bytes,
                      (unsigned long long)out_hull.bytes,
                      (unsigned long long)(behind ? out_hull.start - in_hull.start
                                                  : in_hull.start - out_hull.start),
                      behind ? "behind" : "before", place_text(call->kind));
}
