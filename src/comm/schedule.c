/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule.c: builds a schedule from steps in program order.
 *
 * Each step's spans are looked up in the access maps, which say whom it must wait for. INPUT and
 * OUTPUT are two buffers with a map for OUTPUT only, since nobody writes INPUT; or, in place, one
 * buffer in which both have a base. The waits are collected as pairs (earlier, later) and turned at
 * the end into one array per earlier step, which is what the engine walks when a step is done.
 *
 * Order without data (signals, awaits, fences) is kept by the list of `ends`, the steps for which
 * nobody waits yet, and by the `gate`: steps for which everything later must wait. A later step
 * that waits for one behind the gate is behind it too and needs no edge of its own, so gates cost
 * few edges.
 *
 * Invariants:
 *  1. edges lead from lower to higher step numbers, so a schedule alone has no cycle.
 *  2. `status` is the first error; after it nothing more is emitted, and finish returns it.
 */
#include "comm/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/schedule_access.h"

#define STEPS_MAX (1u << 26)

struct edge {
    uint32_t from, to;
};

struct schedule_builder {
    const struct coll_shape *shape;
    enum shoal_status status;
    struct schedule_step *steps;
    uint32_t step_count, step_capacity;
    bool *followed; /* [step_capacity] a step waits for it */
    struct schedule_span *sources;
    uint32_t source_count, source_capacity;
    struct edge *edges;
    uint32_t edge_count, edge_capacity;
    uint32_t *sent, *received; /* [size] messages to and from each rank */
    bool aliased;              /* INPUT and OUTPUT are one buffer, with these bases: */
    uint64_t input_base, output_base;
    struct access_map *output, *scratch, *wide;
    uint64_t scratch_count, wide_count;
    struct access_list before; /* of the step in hand */
    struct access_list ends, gate;
    uint32_t gate_end; /* steps from this number on are behind the gate */
};

const char *comm_kind_name(enum coll_kind kind)
{
    static const char *const names[COLL_KIND_COUNT] = {
        [COLL_ALLREDUCE] = "allreduce", [COLL_REDUCE] = "reduce",
        [COLL_BROADCAST] = "broadcast", [COLL_ALLGATHER] = "allgather",
        [COLL_GATHER] = "gather",       [COLL_REDUCE_SCATTER] = "reduce_scatter",
        [COLL_SCATTER] = "scatter",     [COLL_ALLTOALL] = "alltoall",
        [COLL_BARRIER] = "barrier",     [COLL_SEND] = "send",
        [COLL_RECV] = "recv",
    };
    return (unsigned)kind < COLL_KIND_COUNT ? names[kind] : "?";
}

const char *schedule_buffer_name(enum schedule_buffer buffer)
{
    static const char *const names[BUFFER_COUNT] = {"input", "output", "scratch", "wide"};
    return (unsigned)buffer < BUFFER_COUNT ? names[buffer] : "?";
}

uint64_t schedule_block_count(const struct coll_shape *shape, int i)
{
    return shape->counts ? shape->counts[i] : shape->count;
}

uint64_t schedule_block_offset(const struct coll_shape *shape, int i)
{
    if (shape->displs)
        return shape->displs[i];
    if (!shape->counts)
        return shape->count * (uint64_t)i;
    uint64_t offset = 0;
    for (int before = 0; before < i; before++)
        offset += shape->counts[before];
    return offset;
}

/* ---- storage ------------------------------------------------------------------------------- */

static enum shoal_status enlarge(void **array, size_t item_bytes, uint32_t count,
                                 uint32_t larger_count, const char *what)
{
    void *larger;
    TRY(base_alloc(item_bytes * larger_count, what, &larger));
    if (count)
        memcpy(larger, *array, item_bytes * count);
    base_free(*array);
    *array = larger;
    return SHOAL_OK;
}

static enum shoal_status reserve_step(struct schedule_builder *builder)
{
    if (builder->step_count < builder->step_capacity)
        return SHOAL_OK;
    uint32_t count = builder->step_count, larger = count ? count * 2 : 64;
    if (larger > STEPS_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "%s of this size needs more than %u steps: choose longer segments "
                          "(SHOAL_SEGMENT_BYTES)",
                          comm_kind_name(builder->shape->kind), STEPS_MAX / 2);
    TRY(enlarge((void **)&builder->steps, sizeof(*builder->steps), count, larger, "steps"));
    TRY(enlarge((void **)&builder->followed, sizeof(*builder->followed), count, larger, "steps"));
    builder->step_capacity = larger;
    return SHOAL_OK;
}

static enum shoal_status add_source(struct schedule_builder *builder, struct schedule_span source)
{
    if (builder->source_count == builder->source_capacity) {
        uint32_t larger = builder->source_count ? builder->source_count * 2 : 64;
        TRY(enlarge((void **)&builder->sources, sizeof(*builder->sources), builder->source_count,
                    larger, "a schedule's sources"));
        builder->source_capacity = larger;
    }
    builder->sources[builder->source_count++] = source;
    return SHOAL_OK;
}

static enum shoal_status add_edge(struct schedule_builder *builder, uint32_t from, uint32_t to)
{
    if (builder->edge_count == builder->edge_capacity) {
        uint32_t larger = builder->edge_count ? builder->edge_count * 2 : 256;
        TRY(enlarge((void **)&builder->edges, sizeof(*builder->edges), builder->edge_count, larger,
                    "a schedule's edges"));
        builder->edge_capacity = larger;
    }
    builder->edges[builder->edge_count].from = from;
    builder->edges[builder->edge_count++].to = to;
    return SHOAL_OK;
}

/* ---- create and free ----------------------------------------------------------------------- */

/* Which buffers are one in place, and where; as shoal.h says per operation. */
static void alias(struct schedule_builder *builder)
{
    const struct coll_shape *shape = builder->shape;
    bool at_root = shape->rank == shape->root;
    builder->aliased = shape->in_place;
    switch (shape->kind) {
    case COLL_GATHER:
        builder->aliased = shape->in_place && at_root; /* else out does not exist */
        /* fall through */
    case COLL_ALLGATHER:
        if (builder->aliased)
            builder->input_base = schedule_block_offset(shape, shape->rank);
        break;
    case COLL_SCATTER:
        builder->aliased = shape->in_place && at_root; /* else in does not exist */
        /* fall through */
    case COLL_REDUCE_SCATTER:
        if (builder->aliased)
            builder->output_base = schedule_block_offset(shape, shape->rank);
        break;
    default: break;
    }
}

enum shoal_status schedule_builder_create(const struct coll_shape *shape,
                                          struct schedule_builder **out)
{
    struct schedule_builder *builder;
    TRY(BASE_NEW(&builder, "a schedule builder"));
    builder->shape = shape;
    alias(builder);
    enum shoal_status status = BASE_NEW_ARRAY(&builder->sent, shape->size, "message numbers");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&builder->received, shape->size, "message numbers");
    if (status == SHOAL_OK)
        status = comm_access_map_create(&builder->output);
    if (status == SHOAL_OK)
        status = comm_access_map_create(&builder->scratch);
    if (status == SHOAL_OK)
        status = comm_access_map_create(&builder->wide);
    if (status != SHOAL_OK) {
        schedule_builder_free(builder);
        return status;
    }
    *out = builder;
    return SHOAL_OK;
}

void schedule_builder_free(struct schedule_builder *builder)
{
    if (!builder)
        return;
    comm_access_map_free(builder->output);
    comm_access_map_free(builder->scratch);
    comm_access_map_free(builder->wide);
    comm_access_list_release(&builder->before);
    comm_access_list_release(&builder->ends);
    comm_access_list_release(&builder->gate);
    base_free(builder->steps);
    base_free(builder->followed);
    base_free(builder->sources);
    base_free(builder->edges);
    base_free(builder->sent);
    base_free(builder->received);
    base_free(builder);
}

/* ---- dependencies -------------------------------------------------------------------------- */

/* Where a span really lies: the map of its buffer (NULL: nobody ever writes there) and the place in
 * it. */
static struct access_map *locate(const struct schedule_builder *builder, struct schedule_span span,
                                 uint64_t *offset)
{
    *offset = span.offset;
    if (span.buffer == BUFFER_SCRATCH || span.buffer == BUFFER_WIDE)
        return span.buffer == BUFFER_WIDE ? builder->wide : builder->scratch;
    if (!builder->aliased)
        return span.buffer == BUFFER_OUTPUT ? builder->output : NULL;
    *offset += span.buffer == BUFFER_INPUT ? builder->input_base : builder->output_base;
    return builder->output;
}

static bool same_place(const struct schedule_builder *builder, struct schedule_span a,
                       struct schedule_span b)
{
    uint64_t at_a, at_b;
    return locate(builder, a, &at_a) == locate(builder, b, &at_b) && at_a == at_b &&
           (builder->aliased || a.buffer == b.buffer);
}

static enum shoal_status reads(struct schedule_builder *builder, struct schedule_span span)
{
    uint64_t offset;
    struct access_map *map = locate(builder, span, &offset);
    if (!map)
        return SHOAL_OK;
    return comm_access_map_read(map, offset, span.count, builder->step_count, &builder->before);
}

static enum shoal_status writes(struct schedule_builder *builder, struct schedule_span span)
{
    uint64_t offset;
    BASE_ASSERT(span.buffer != BUFFER_INPUT);
    struct access_map *map = locate(builder, span, &offset);
    return comm_access_map_write(map, offset, span.count, builder->step_count, &builder->before);
}

static int compare_steps(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* Whether the step in hand has no data: a signal or an await. */
static bool is_empty(const struct schedule_step *step)
{
    return step->at.count == 0;
}

/* Adds the gate where no step behind it is waited for; sorts, drops repeats. */
static enum shoal_status complete_before(struct schedule_builder *builder,
                                         const struct schedule_step *step)
{
    struct access_list *before = &builder->before;
    bool behind = is_empty(step);
    for (uint32_t i = 0; i < before->count && !behind; i++)
        behind = before->steps[i] >= builder->gate_end;
    for (uint32_t i = 0; i < builder->gate.count && !behind; i++)
        TRY(comm_access_list_add(before, builder->gate.steps[i]));
    if (before->count > 1)
        qsort(before->steps, before->count, sizeof(uint32_t), compare_steps);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < before->count; i++)
        if (kept == 0 || before->steps[i] != before->steps[kept - 1])
            before->steps[kept++] = before->steps[i];
    before->count = kept;
    return SHOAL_OK;
}

/* Appends `step`, which waits for `before`; empties `before`. */
static enum shoal_status append(struct schedule_builder *builder, struct schedule_step step)
{
    TRY(complete_before(builder, &step));
    bool signals = is_empty(&step) && step.kind == STEP_SEND;
    uint32_t number = builder->step_count;
    step.wait_count = builder->before.count;
    for (uint32_t i = 0; i < builder->before.count; i++) {
        uint32_t earlier = builder->before.steps[i];
        const struct schedule_step *waited = &builder->steps[earlier];
        uint32_t round = waited->round + (waited->kind == STEP_SEND || waited->kind == STEP_RECV);
        if (round > step.round)
            step.round = round;
        builder->followed[earlier] |= !signals;
        TRY(add_edge(builder, earlier, number));
    }
    builder->before.count = 0;
    builder->steps[number] = step;
    builder->followed[number] = false;
    builder->step_count++;
    return signals ? SHOAL_OK : comm_access_list_add(&builder->ends, number);
}

/* Drops from `ends` the steps that somebody waits for. */
static void refresh_ends(struct schedule_builder *builder)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < builder->ends.count; i++)
        if (!builder->followed[builder->ends.steps[i]])
            builder->ends.steps[kept++] = builder->ends.steps[i];
    builder->ends.count = kept;
}

/* ---- steps --------------------------------------------------------------------------------- */

static enum shoal_status emit_message(struct schedule_builder *builder, enum step_kind kind,
                                      int peer, struct schedule_span at)
{
    BASE_ASSERT(peer >= 0 && peer < builder->shape->size && peer != builder->shape->rank);
    TRY(reserve_step(builder));
    if (at.count)
        TRY(kind == STEP_SEND ? reads(builder, at) : writes(builder, at));
    uint32_t *numbers = kind == STEP_SEND ? builder->sent : builder->received;
    struct schedule_step step = {.kind = kind, .peer = peer, .message = numbers[peer]++, .at = at};
    return append(builder, step);
}

void schedule_send(struct schedule_builder *builder, int peer, struct schedule_span from)
{
    if (builder->status == SHOAL_OK && from.count)
        builder->status = emit_message(builder, STEP_SEND, peer, from);
}

void schedule_recv(struct schedule_builder *builder, int peer, struct schedule_span to)
{
    if (builder->status == SHOAL_OK && to.count)
        builder->status = emit_message(builder, STEP_RECV, peer, to);
}

static enum shoal_status emit_local(struct schedule_builder *builder, enum step_kind kind,
                                    struct schedule_span to, const struct schedule_span *sources,
                                    int source_count, bool final)
{
    TRY(reserve_step(builder));
    struct schedule_step step = {.kind = kind,
                                 .peer = -1,
                                 .at = to,
                                 .source_first = builder->source_count,
                                 .source_count = (uint32_t)source_count,
                                 .final = final};
    for (int i = 0; i < source_count; i++) {
        struct schedule_span source = sources[i];
        source.count = to.count;
        TRY(add_source(builder, source));
        TRY(reads(builder, source));
    }
    TRY(writes(builder, to));
    return append(builder, step);
}

void schedule_copy(struct schedule_builder *builder, struct schedule_span to,
                   struct schedule_span from)
{
    if (builder->status == SHOAL_OK && to.count && !same_place(builder, to, from))
        builder->status = emit_local(builder, STEP_COPY, to, &from, 1, false);
}

void schedule_reduce(struct schedule_builder *builder, struct schedule_span to,
                     const struct schedule_span *sources, int source_count, bool final)
{
    BASE_ASSERT(source_count >= 1);
    if (builder->status != SHOAL_OK || to.count == 0)
        return;
    if (source_count > 1)
        builder->status = emit_local(builder, STEP_REDUCE, to, sources, source_count, final);
    else if (final || !same_place(builder, to, sources[0]))
        builder->status = emit_local(builder, STEP_COPY, to, sources, 1, final);
}

void schedule_finalize(struct schedule_builder *builder, struct schedule_span at)
{
    if (builder->status == SHOAL_OK && at.count)
        builder->status = emit_local(builder, STEP_COPY, at, &at, 1, true);
}

/* Waits for all that was emitted so far but other signals, which change nothing here. */
static enum shoal_status emit_signal(struct schedule_builder *builder, int peer)
{
    refresh_ends(builder);
    for (uint32_t i = 0; i < builder->ends.count; i++)
        TRY(comm_access_list_add(&builder->before, builder->ends.steps[i]));
    return emit_message(builder, STEP_SEND, peer, span_of(BUFFER_SCRATCH, 0, 0));
}

void schedule_signal(struct schedule_builder *builder, int peer)
{
    if (builder->status == SHOAL_OK)
        builder->status = emit_signal(builder, peer);
}

/* It waits for nothing, and is part of the gate from now on. */
static enum shoal_status emit_await(struct schedule_builder *builder, int peer)
{
    TRY(emit_message(builder, STEP_RECV, peer, span_of(BUFFER_SCRATCH, 0, 0)));
    builder->gate_end = builder->step_count;
    return comm_access_list_add(&builder->gate, builder->step_count - 1);
}

void schedule_await(struct schedule_builder *builder, int peer)
{
    if (builder->status == SHOAL_OK)
        builder->status = emit_await(builder, peer);
}

/* The ends are the gate from now on: every step so far but signals leads to one of them. */
void schedule_fence(struct schedule_builder *builder)
{
    if (builder->status != SHOAL_OK || builder->step_count == builder->gate_end)
        return;
    refresh_ends(builder);
    builder->gate.count = 0;
    for (uint32_t i = 0; i < builder->ends.count && builder->status == SHOAL_OK; i++)
        builder->status = comm_access_list_add(&builder->gate, builder->ends.steps[i]);
    builder->gate_end = builder->step_count;
}

struct schedule_span schedule_scratch(struct schedule_builder *builder, uint64_t count)
{
    struct schedule_span span = span_of(BUFFER_SCRATCH, builder->scratch_count, count);
    builder->scratch_count += count;
    return span;
}

struct schedule_span schedule_sums(struct schedule_builder *builder, uint64_t count)
{
    if (!builder->shape->wide_sums)
        return schedule_scratch(builder, count);
    struct schedule_span span = span_of(BUFFER_WIDE, builder->wide_count, count);
    builder->wide_count += count;
    return span;
}

struct schedule_span schedule_sums_at(struct schedule_builder *builder, struct schedule_span place)
{
    return builder->shape->wide_sums ? schedule_sums(builder, place.count) : place;
}

/* ---- finish -------------------------------------------------------------------------------- */

/* Edges by their earlier step, in the order of the later ones: a counting sort. */
static void sort_edges(const struct schedule_builder *builder, struct schedule *schedule)
{
    for (uint32_t i = 0; i < builder->edge_count; i++)
        schedule->steps[builder->edges[i].from].after_count++;
    uint32_t first = 0;
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        schedule->steps[i].after_first = first;
        first += schedule->steps[i].after_count;
        schedule->steps[i].after_count = 0;
    }
    for (uint32_t i = 0; i < builder->edge_count; i++) {
        struct schedule_step *from = &schedule->steps[builder->edges[i].from];
        schedule->edges[from->after_first + from->after_count++] = builder->edges[i].to;
    }
}

static enum shoal_status compact(const struct schedule_builder *builder, struct schedule *schedule)
{
    TRY(BASE_NEW_ARRAY(&schedule->steps, builder->step_count, "a schedule's steps"));
    TRY(BASE_NEW_ARRAY(&schedule->sources, builder->source_count, "a schedule's sources"));
    TRY(BASE_NEW_ARRAY(&schedule->edges, builder->edge_count, "a schedule's edges"));
    schedule->step_count = builder->step_count;
    schedule->source_count = builder->source_count;
    schedule->edge_count = builder->edge_count;
    schedule->scratch_count = builder->scratch_count;
    schedule->wide_count = builder->wide_count;
    if (builder->step_count)
        memcpy(schedule->steps, builder->steps, sizeof(*builder->steps) * builder->step_count);
    if (builder->source_count)
        memcpy(schedule->sources, builder->sources,
               sizeof(*builder->sources) * builder->source_count);
    sort_edges(builder, schedule);
    return SHOAL_OK;
}

enum shoal_status schedule_finish(struct schedule_builder *builder, const char *algorithm,
                                  struct schedule **out)
{
    enum shoal_status status = builder->status;
    struct schedule *schedule = NULL;
    if (status == SHOAL_OK)
        status = BASE_NEW(&schedule, "a schedule");
    if (status == SHOAL_OK)
        status = compact(builder, schedule);
    schedule_builder_free(builder);
    if (status != SHOAL_OK) {
        schedule_free(schedule);
        return status;
    }
    schedule->algorithm = algorithm;
    *out = schedule;
    return SHOAL_OK;
}

void schedule_free(struct schedule *schedule)
{
    if (!schedule)
        return;
    base_free(schedule->steps);
    base_free(schedule->sources);
    base_free(schedule->edges);
    base_free(schedule);
}
