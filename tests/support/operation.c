/* SPDX-License-Identifier: Apache-2.0 */
/* operation.c: see operation.h. */
#include "support/operation.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/kernel.h"

#define GUARD_BYTES 64
#define GUARD       0xa5
#define AFTER       0xee
#define PERIOD      3

/* ---- sizes
 * ------------------------------------------------------------------------------------------ */

static bool reduces(enum coll_kind kind)
{
    return kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER;
}

static uint64_t blocks_extent(const struct coll_shape *shape)
{
    uint64_t extent = 0;
    for (int i = 0; i < shape->size; i++) {
        uint64_t end = schedule_block_offset(shape, i) + schedule_block_count(shape, i);
        if (end > extent)
            extent = end;
    }
    return extent;
}

/* The shape seen from the receiving side. */
static struct coll_shape receiving(const struct coll_shape *shape)
{
    struct coll_shape back = *shape;
    if (shape->kind == COLL_ALLTOALL && shape->counts) {
        back.counts = shape->recv_counts;
        back.displs = shape->recv_displs;
    }
    return back;
}

static uint64_t in_extent(const struct coll_shape *shape)
{
    bool at_root = shape->rank == shape->root;
    switch (shape->kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE: return shape->count;
    case COLL_BROADCAST: return at_root ? shape->count : 0;
    case COLL_ALLGATHER:
    case COLL_GATHER: return schedule_block_count(shape, shape->rank);
    case COLL_SCATTER: return at_root ? blocks_extent(shape) : 0;
    case COLL_REDUCE_SCATTER:
    case COLL_ALLTOALL: return blocks_extent(shape);
    default: return 0;
    }
}

static uint64_t out_extent(const struct coll_shape *shape)
{
    bool at_root = shape->rank == shape->root;
    struct coll_shape back = receiving(shape);
    switch (shape->kind) {
    case COLL_ALLREDUCE:
    case COLL_BROADCAST: return shape->count;
    case COLL_REDUCE: return at_root ? shape->count : 0;
    case COLL_ALLGATHER: return blocks_extent(shape);
    case COLL_GATHER: return at_root ? blocks_extent(shape) : 0;
    case COLL_REDUCE_SCATTER:
    case COLL_SCATTER: return schedule_block_count(shape, shape->rank);
    case COLL_ALLTOALL: return blocks_extent(&back);
    default: return 0;
    }
}

/* Where input and output begin when they lie over each other. False: they don't. */
static bool overlay(const struct coll_shape *shape, uint64_t *in_base, uint64_t *out_base)
{
    bool at_root = shape->rank == shape->root;
    *in_base = *out_base = 0;
    if (!shape->in_place)
        return false;
    switch (shape->kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
    case COLL_BROADCAST: return true;
    case COLL_GATHER:
        if (!at_root)
            return false;
        /* fall through */
    case COLL_ALLGATHER: *in_base = schedule_block_offset(shape, shape->rank); return true;
    case COLL_SCATTER:
        if (!at_root)
            return false;
        /* fall through */
    case COLL_REDUCE_SCATTER: *out_base = schedule_block_offset(shape, shape->rank); return true;
    default: return false;
    }
}

/* ---- values
 * ----------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ b * UINT64_C(0x9e3779b97f4a7c15)) + UINT64_C(0x632be59bd9b4e019);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Number of floats that an element is made of; 0: it is an integer. */
static int parts_of(enum shoal_dtype dtype)
{
    switch (dtype) {
    case SHOAL_F64:
    case SHOAL_F32:
    case SHOAL_F16:
    case SHOAL_BF16: return 1;
    case SHOAL_COMPLEX64:
    case SHOAL_COMPLEX128: return 2;
    default: return 0;
    }
}

static void put_part(enum shoal_dtype dtype, unsigned char *out, double value)
{
    float single = (float)value;
    if (dtype == SHOAL_F64 || dtype == SHOAL_COMPLEX128)
        memcpy(out, &value, sizeof(value));
    else if (dtype == SHOAL_F32 || dtype == SHOAL_COMPLEX64)
        memcpy(out, &single, sizeof(single));
    else
        kernel_from_f32(dtype, out, &single, 1);
}

/* Small integers. For products 1, -1 and here and there a 2, so that they stay exact; and of
 * complex numbers 1+2i and its negative, whose powers have no zero in them that could have two
 * signs. */
static void exact_parts(const struct operation_options *options, int rank, uint64_t bits,
                        double parts[2])
{
    parts[0] = (double)(bits % 7) - 3;
    parts[1] = (double)(bits / 7 % 7) - 3;
    if (options->op != SHOAL_PROD)
        return;
    parts[0] = bits & 1 ? -1 : 1;
    parts[1] = 2 * parts[0];
    if (parts_of(options->dtype) == 1 && rank % 6 == 0)
        parts[0] *= 2;
}

/* Sums: 8 significant bits from 2^7 to 2^11, so that two may need 12 bits, and 17 need less
 * than 24. Products: four ranks have six bits, so that two of them need up to 12 and all four less
 * than 24. */
static double half_value(const struct operation_options *options, int rank, uint64_t bits)
{
    if (options->op != SHOAL_PROD)
        return (double)((128 + bits % 128) << (bits >> 8) % 4);
    bool has_bits = rank < 5 && rank != 2;
    double magnitude = has_bits ? (double)(33 + 2 * (bits / 2 % 8)) / 32 : 1;
    return bits & 1 ? -magnitude : magnitude;
}

static double any_part(uint64_t bits)
{
    double magnitude = (double)(UINT64_C(1) << (bits >> 8) % 12);
    return ((double)(bits >> 40) / (double)(1 << 24) - 0.5) * magnitude;
}

static void put_value(const struct operation_options *options, int rank, uint64_t index,
                      unsigned char *out)
{
    enum shoal_dtype dtype = options->dtype;
    size_t bytes = kernel_dtype_bytes(dtype);
    int parts = parts_of(dtype);
    if (options->values == VALUES_PERIODIC)
        index %= PERIOD;
    uint64_t bits = mix(mix(options->seed, (uint64_t)rank + 1), index);
    double exact[2];
    exact_parts(options, rank, bits, exact);
    for (int i = 0; i < parts; i++)
        put_part(dtype, out + (size_t)i * (bytes / (size_t)parts),
                 options->values == VALUES_EXACT    ? exact[i]
                 : options->values == VALUES_HALVES ? half_value(options, rank, bits)
                                                    : any_part(mix(bits, (uint64_t)i)));
    if (parts == 0)
        memcpy(out, &bits, bytes);
    if (dtype == SHOAL_BOOL)
        *out &= 1;
}

void values_fill(const struct operation_options *options, int rank, void *out, uint64_t count)
{
    size_t bytes = kernel_dtype_bytes(options->dtype);
    for (uint64_t i = 0; i < count; i++)
        put_value(options, rank, i, (unsigned char *)out + i * bytes);
}

static void fill_factor(const struct operation_options *options, int rank, unsigned char *out)
{
    int parts = parts_of(options->dtype);
    size_t bytes = kernel_dtype_bytes(options->dtype);
    memset(out, 0, 16);
    for (int i = 0; i < parts; i++)
        put_part(options->dtype, out + (size_t)i * (bytes / (size_t)parts), 1 + (rank + i) % 2);
    if (parts == 0)
        out[0] = (unsigned char)(2 * rank + 1);
}

/* ---- what must come out
 * ----------------------------------------------------------------------------- */

/* All inputs in one reduce, in the order of ranks. */
static enum shoal_status reduce_plainly(struct operation *operation)
{
    const struct operation_options *options = &operation->options;
    int size = options->coll.size;
    size_t bytes = operation->sum_count * operation->elem_bytes;
    unsigned char *inputs = NULL;
    const void *at[ENGINES_MAX];
    TRY(base_alloc(bytes * (size_t)size, "a test's inputs", (void **)&inputs));
    for (int rank = 0; rank < size; rank++) {
        unsigned char *input = inputs + bytes * (size_t)rank, factor[16];
        values_fill(options, rank, input, operation->sum_count);
        fill_factor(options, rank, factor);
        if (options->op == SHOAL_PREMUL_SUM)
            kernel_scale(options->dtype, input, input, factor, operation->sum_count);
        at[rank] = input;
    }
    struct kernel_reduce how = {.dtype = options->dtype,
                                .op = options->op,
                                .divisor = options->op == SHOAL_AVG ? (uint32_t)size : 0};
    kernel_reduce(&how, operation->result, at, size, operation->sum_count);
    base_free(inputs);
    return SHOAL_OK;
}

static enum shoal_status make_result(struct operation *operation)
{
    const struct operation_options *options = &operation->options;
    if (!reduces(options->coll.algorithm->kind))
        return SHOAL_OK;
    operation->sum_count = in_extent(&operation->shapes->shapes[0]);
    TRY(base_alloc(operation->sum_count * operation->elem_bytes, "a test's result",
                   (void **)&operation->result));
    if (options->values == VALUES_EXACT || options->values == VALUES_HALVES ||
        options->coll.algorithm->one_reduce)
        return reduce_plainly(operation);
    return BASE_NEW_ARRAY(&operation->known, operation->sum_count + PERIOD, "a test's marks");
}

/* Output elements [to, to + count) are the sum's elements from `from` on. */
static void expect_sum(struct operation_rank *one, uint64_t to, uint64_t count, uint64_t from)
{
    struct operation *operation = one->operation;
    size_t bytes = operation->elem_bytes;
    unsigned char *expected = one->expected + (one->out - one->memory);
    bool periodic = operation->options.values == VALUES_PERIODIC &&
                    operation->options.coll.algorithm->same_tree;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = operation->known && periodic ? (from + i) % PERIOD : from + i;
        unsigned char *result = operation->result + index * bytes;
        if (operation->known && !operation->known[index]) {
            operation->known[index] = true;
            memcpy(result, one->out + (to + i) * bytes, bytes);
        }
        memcpy(expected + (to + i) * bytes, result, bytes);
    }
}

/* They are rank source's input elements from `from` on. */
static void expect_input(struct operation_rank *one, uint64_t to, uint64_t count, int source,
                         uint64_t from)
{
    const struct operation *operation = one->operation;
    unsigned char *expected = one->expected + (one->out - one->memory);
    for (uint64_t i = 0; i < count; i++)
        put_value(&operation->options, source, from + i,
                  expected + (to + i) * operation->elem_bytes);
}

static void expect_blocks(struct operation_rank *one)
{
    const struct coll_shape *shapes = one->operation->shapes->shapes;
    struct coll_shape back = receiving(&one->shape);
    bool is_alltoall = back.kind == COLL_ALLTOALL;
    for (int source = 0; source < back.size; source++)
        expect_input(one, schedule_block_offset(&back, source), schedule_block_count(&back, source),
                     source, is_alltoall ? schedule_block_offset(&shapes[source], one->rank) : 0);
}

static void expect(struct operation_rank *one)
{
    const struct coll_shape *shape = &one->shape;
    const struct coll_shape *root = &one->operation->shapes->shapes[shape->root];
    bool at_root = shape->rank == shape->root;
    switch (shape->kind) {
    case COLL_ALLREDUCE: expect_sum(one, 0, shape->count, 0); break;
    case COLL_REDUCE:
        if (at_root)
            expect_sum(one, 0, shape->count, 0);
        break;
    case COLL_REDUCE_SCATTER:
        expect_sum(one, 0, schedule_block_count(shape, shape->rank),
                   schedule_block_offset(shape, shape->rank));
        break;
    case COLL_BROADCAST: expect_input(one, 0, shape->count, shape->root, 0); break;
    case COLL_SCATTER:
        expect_input(one, 0, schedule_block_count(shape, shape->rank), shape->root,
                     schedule_block_offset(root, shape->rank));
        break;
    case COLL_GATHER:
        if (at_root)
            expect_blocks(one);
        break;
    case COLL_ALLGATHER:
    case COLL_ALLTOALL: expect_blocks(one); break;
    default: break;
    }
}

/* ---- making
 * ----------------------------------------------------------------------------------------- */

/* Memory: guard, input, guard, output, guard; in place: guard, both, guard. */
static enum shoal_status take_memory(struct operation_rank *one)
{
    size_t bytes = one->operation->elem_bytes;
    uint64_t in_base, out_base;
    uint64_t in_bytes = in_extent(&one->shape) * bytes, out_bytes = out_extent(&one->shape) * bytes;
    bool over = overlay(&one->shape, &in_base, &out_base);
    in_base *= bytes;
    out_base *= bytes;
    if (!over)
        out_base = in_bytes + GUARD_BYTES;
    uint64_t in_end = in_base + in_bytes, out_end = out_base + out_bytes;
    one->memory_bytes = (in_end > out_end ? in_end : out_end) + 2 * GUARD_BYTES;
    TRY(base_alloc(one->memory_bytes, "a test's buffers", (void **)&one->memory));
    TRY(base_alloc(one->memory_bytes, "a test's expectation", (void **)&one->expected));
    memset(one->memory, GUARD, one->memory_bytes);
    one->in = one->memory + GUARD_BYTES + in_base;
    one->out = one->memory + GUARD_BYTES + out_base;
    values_fill(&one->operation->options, one->rank, one->in, in_bytes / bytes);
    memcpy(one->expected, one->memory, one->memory_bytes);
    return SHOAL_OK;
}

static void make_call(struct operation_rank *one)
{
    const struct operation_options *options = &one->operation->options;
    struct coll_shape *shape = &one->shape;
    bool premul = reduces(shape->kind) && options->op == SHOAL_PREMUL_SUM;
    if (premul)
        shape->in_place = false; /* the scaled input is a buffer of its own */
    one->call = (struct comm_call){.kind = shape->kind,
                                   .dtype = options->dtype,
                                   .op = reduces(shape->kind) ? options->op : SHOAL_SUM,
                                   .in = in_extent(shape) > 0 ? one->in : NULL,
                                   .out = out_extent(shape) > 0 ? one->out : NULL,
                                   .count = shape->count,
                                   .counts = shape->counts,
                                   .displs = shape->displs,
                                   .recv_counts = shape->recv_counts,
                                   .recv_displs = shape->recv_displs,
                                   .root = shape->root,
                                   .in_place = shape->in_place,
                                   .has_factor = premul};
    if (premul)
        fill_factor(options, one->rank, one->call.factor);
}

static enum shoal_status make_rank(struct operation *operation, int rank)
{
    struct operation_rank *one = &operation->rank[rank];
    one->operation = operation;
    one->rank = rank;
    one->shape = operation->shapes->shapes[rank];
    TRY(take_memory(one));
    make_call(one);
    return SHOAL_OK;
}

static void operation_free(struct operation *operation)
{
    for (int i = 0; i < ENGINES_MAX; i++) {
        base_free(operation->rank[i].memory);
        base_free(operation->rank[i].expected);
        comm_plan_free(operation->rank[i].plan);
    }
    base_free(operation->known);
    base_free(operation->result);
    base_free(operation->shapes);
    base_free(operation);
}

static void set_dtype(struct coll_shape *shape, enum shoal_dtype dtype)
{
    shape->elem_bytes = kernel_dtype_bytes(dtype);
    shape->wide_sums = kernel_dtype_is_half(dtype);
}

enum shoal_status operation_create(const struct operation_options *options,
                                   struct engines_group *group, bool *fits, struct operation **out)
{
    struct operation *operation = NULL;
    TRY(BASE_NEW(&operation, "a test's operation"));
    operation->options = *options;
    operation->group = group;
    BASE_ASSERT(options->coll.size == group->size);
    if (options->coll.algorithm->kind == COLL_BARRIER)
        operation->options.dtype = SHOAL_U8;
    operation->elem_bytes = kernel_dtype_bytes(operation->options.dtype);
    enum shoal_status status = BASE_NEW(&operation->shapes, "a test's shapes");
    *fits = status == SHOAL_OK && case_shapes(&options->coll, operation->shapes);
    for (int i = 0; *fits && i < group->size; i++)
        set_dtype(&operation->shapes->shapes[i], operation->options.dtype);
    if (*fits)
        status = make_result(operation);
    for (int i = 0; *fits && i < group->size && status == SHOAL_OK; i++)
        status = make_rank(operation, i);
    if (!*fits || status != SHOAL_OK) {
        operation_free(operation);
        return status;
    }
    *out = operation;
    return SHOAL_OK;
}

void operation_disagree(struct operation *operation, int rank, const struct operation_options *with)
{
    struct operation_rank *one = &operation->rank[rank];
    struct coll_group *shapes = NULL;
    BASE_ASSERT(BASE_NEW(&shapes, "a test's shapes") == SHOAL_OK);
    BASE_ASSERT(case_shapes(&with->coll, shapes) && !with->coll.is_v);
    base_free(one->memory);
    base_free(one->expected);
    struct operation other = {.options = *with, .elem_bytes = kernel_dtype_bytes(with->dtype)};
    one->shape = shapes->shapes[rank];
    set_dtype(&one->shape, with->dtype);
    one->shape.host_of = operation->shapes->host_of;
    one->operation = &other;
    BASE_ASSERT(take_memory(one) == SHOAL_OK);
    make_call(one);
    one->operation = operation;
    base_free(shapes);
}

/* ---- running
 * ---------------------------------------------------------------------------------------- */

static void note_wrong(struct operation_rank *one, const char *what, size_t offset)
{
    struct operation *operation = one->operation;
    if (operation->wrong[0])
        return;
    snprintf(operation->wrong, sizeof(operation->wrong),
             "rank %d: %s at byte %td of the output (%td of the input), element of %zu bytes",
             one->rank, what, (ptrdiff_t)offset - (one->out - one->memory),
             (ptrdiff_t)offset - (one->in - one->memory), operation->elem_bytes);
}

static void check_result(struct operation_rank *one)
{
    const struct operation *operation = one->operation;
    if (one->shape.kind == COLL_BARRIER && operation->started < one->shape.size)
        note_wrong(one, "left the barrier before all had come", 0);
    expect(one);
    for (size_t i = 0; i < one->memory_bytes; i++)
        if (one->memory[i] != one->expected[i]) {
            note_wrong(one, "wrong value", i);
            return;
        }
}

static void on_done(struct comm_task *task, enum shoal_status status)
{
    struct operation_rank *one = task->owner;
    if (one->done)
        note_wrong(one, "done twice", 0);
    one->done = true;
    one->done_ns = engines_now_ns(one->operation->group->engines);
    one->status = status;
    if (status == SHOAL_OK)
        check_result(one);
    else
        snprintf(one->text, sizeof(one->text), "%s", task->group->failure.text);
    memset(one->memory, AFTER, one->memory_bytes);
}

static enum shoal_status make_plan(struct operation_rank *one, struct comm_plan **out)
{
    struct schedule *schedule = NULL;
    const struct coll_algorithm *algorithm = one->operation->options.coll.algorithm;
    if (algorithm->kind != one->shape.kind)
        algorithm = coll_find(one->shape.kind, "direct");
    TRY(coll_schedule(algorithm, &one->shape, &schedule));
    return comm_plan_create(&one->shape, one->call.dtype, schedule, out);
}

enum shoal_status operation_start(struct operation *operation, int rank, bool cached)
{
    struct operation_rank *one = &operation->rank[rank];
    struct engines_group *group = operation->group;
    struct comm_group *own = group->of[rank];
    struct comm_plan *plan = cached ? comm_plan_find(own, &one->call) : NULL;
    bool found = plan != NULL;
    if (!plan)
        TRY(make_plan(one, &plan));
    if (cached && !found)
        comm_plan_keep(own, plan);
    else if (!cached && !plan->is_v)
        one->plan = plan; /* a v form's goes with its run */
    atomic_fetch_add(&plan->users, 1);
    one->started = true;
    operation->started++;
    one->deadline_ns = engines_now_ns(group->engines) + group->timeout_ns;
    return comm_engine_start_plan(engines_of(group, rank), own, plan, &one->call,
                                  ++group->sequence[rank], one->deadline_ns, on_done, one);
}

bool operation_done(const struct operation *operation)
{
    for (int i = 0; i < operation->group->size; i++)
        if (operation->rank[i].started && !operation->rank[i].done)
            return false;
    return true;
}

bool operation_end(struct operation *operation, char *text, size_t text_bytes)
{
    for (int i = 0; i < ENGINES_MAX; i++) {
        struct operation_rank *one = &operation->rank[i];
        for (size_t k = 0; one->done && k < one->memory_bytes; k++)
            if (one->memory[k] != AFTER) {
                note_wrong(one, "touched after done", k);
                break;
            }
    }
    bool right = !operation->wrong[0];
    if (!right)
        snprintf(text, text_bytes, "%s: %s", operation_text(&operation->options), operation->wrong);
    operation_free(operation);
    return right;
}

const char *operation_text(const struct operation_options *options)
{
    static char text[400];
    snprintf(text, sizeof(text), "%s, %s %s, values %d", case_text(&options->coll),
             kernel_dtype_name(options->dtype), kernel_op_name(options->op), (int)options->values);
    return text;
}
