/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c: see direct.h. Sums are over ranks 0 to p-1 in this order, as those of moves.c. */
#include "local/direct.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "kernel/kernel.h"
#include "local/group.h"
#include "local/layout.h"

#define PIECE_BYTES      ((size_t)16 << 10)  /* fits the nearest cache with its inputs */
#define CHUNK_BYTES      ((size_t)256 << 10) /* between two looks for a failure */
#define QUIESCE_MS       1000
#define QUIESCE_PAUSE_US 20

/* What a stamp's payload holds if the operation can be offered. */
struct answer {
    uint64_t offers;
    uint64_t in, out; /* offsets in the owner's region */
};
_Static_assert(sizeof(struct answer) <= LOCAL_INLINE_BYTES, "fits in a stamp");

static bool lies_in(const struct base_shared *region, const void *buffer, uint64_t bytes)
{
    uintptr_t at = (uintptr_t)buffer, start = (uintptr_t)region->address;
    return at >= start && at - start < region->bytes && bytes <= region->bytes - (at - start);
}

/* ---- offers
 * ------------------------------------------------------------------------------------------------
 */

/* Which of its own buffers the others need. */
static void needed(const struct local_op *op, bool *in, bool *out)
{
    bool root = op->local->group->rank == op->call.root;
    *in = *out = false;
    switch (op->call.kind) {
    case COLL_ALLREDUCE: *in = *out = true; break;
    case COLL_REDUCE: *in = true, *out = root; break;
    case COLL_BROADCAST:
    case COLL_SCATTER: *in = root; break;
    case COLL_GATHER: *in = !root; break;
    default: *in = true; break;
    }
}

void local_direct_consider(struct local_op *op)
{
    const struct local_group *local = op->local;
    const struct base_shared *region =
        &local->group->world->host->regions[local->group->world->local_rank];
    int rank = local->group->rank, size = local->group->size;
    bool in, out;
    op->offerable =
        op->mode != LOCAL_INLINE && !op->call.has_factor && op->bytes > local->direct_bytes;
    if (!op->offerable)
        return;
    needed(op, &in, &out);
    uint64_t in_bytes = comm_call_in_count(&op->call, rank, size) * op->elem_bytes;
    uint64_t out_bytes = comm_call_out_count(&op->call, rank, size) * op->elem_bytes;
    op->offers = (!in || lies_in(region, op->call.in, in_bytes)) &&
                 (!out || lies_in(region, op->call.out, out_bytes));
}

static uint64_t offset_of(const struct local_op *op, const void *buffer)
{
    const struct comm_world *world = op->local->group->world;
    return (uint64_t)((uintptr_t)buffer -
                      (uintptr_t)world->host->regions[world->local_rank].address);
}

void local_direct_answer(const struct local_op *op, struct local_stamp *stamp)
{
    struct answer answer = {op->offers, offset_of(op, op->call.in), offset_of(op, op->call.out)};
    memcpy(stamp->payload, &answer, sizeof(answer));
}

static struct answer answer_of(const struct local_op *op, int rank)
{
    struct answer answer;
    memcpy(&answer, op->local->slots[rank]->stamps[op->first_block % LOCAL_STAMPS].payload,
           sizeof(answer));
    return answer;
}

bool local_direct_offered(const struct local_op *op, int rank)
{
    return answer_of(op, rank).offers != 0;
}

/* ---- everybody's buffers
 * ------------------------------------------------------------------------------------------------
 */

static unsigned char *region_of(const struct local_op *op, int rank)
{
    const struct local_group *local = op->local;
    return local->group->world->host->regions[local->local_index[rank]].address;
}

static const unsigned char *input_of(const struct local_op *op, int rank)
{
    if (rank == op->local->group->rank)
        return op->call.in;
    return region_of(op, rank) + answer_of(op, rank).in;
}

static unsigned char *output_of(const struct local_op *op, int rank)
{
    if (rank == op->local->group->rank)
        return op->call.out;
    return region_of(op, rank) + answer_of(op, rank).out;
}

/* ---- work
 * ------------------------------------------------------------------------------------------------
 */

static bool must_stop(struct local_op *op)
{
    op->stopped = op->stopped || local_is_broken(op->local);
    return op->stopped;
}

/* Bytes [at, at + bytes) of all inputs, from in_at on, summed into all outputs, from out_at on. */
struct summing {
    const unsigned char *inputs[COMM_LOCAL_MAX];
    unsigned char *outputs[COMM_LOCAL_MAX];
    int output_count;
    struct kernel_reduce how;
};

/* One output gets the sum at once; several get it from a piece that stays in the nearest cache: the
 * first output, or, when they go around the cache, a place aside. */
static void sum_piece(const struct local_op *op, const struct summing *summing, size_t at,
                      size_t bytes)
{
    _Alignas(64) unsigned char aside[PIECE_BYTES];
    const void *inputs[COMM_LOCAL_MAX];
    bool several = summing->output_count > 1;
    unsigned char *sum = several && op->streams ? aside : summing->outputs[0] + at;
    struct kernel_reduce how = summing->how;
    how.stream = !several && op->streams;
    for (int i = 0; i < op->local->group->size; i++)
        inputs[i] = summing->inputs[i] + at;
    kernel_reduce(&how, sum, inputs, op->local->group->size, bytes / op->elem_bytes);
    for (int i = 0; several && i < summing->output_count; i++)
        kernel_copy(summing->outputs[i] + at, sum, bytes, op->streams);
}

static void sum_all(struct local_op *op, const struct summing *summing, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        if (at % CHUNK_BYTES == 0 && must_stop(op))
            return;
        sum_piece(op, summing, at, local_min(PIECE_BYTES, bytes - at));
    }
}

/* The own slice or part of all inputs. */
static void work_sum(struct local_op *op)
{
    const struct local_group *local = op->local;
    int rank = local->group->rank, size = local->group->size;
    bool parts = op->call.kind == COLL_REDUCE_SCATTER;
    struct local_run run = local_slice_of(op, op->call.count, rank);
    if (parts)
        run = (struct local_run){local_part_offset(op, rank), local_part_count(op, rank)};
    size_t at = run.offset * op->elem_bytes;
    struct summing summing = {.how = {.dtype = op->call.dtype, .op = op->call.op}};
    if (op->call.op == SHOAL_AVG)
        summing.how.divisor = (uint32_t)size;
    for (int i = 0; i < size; i++)
        summing.inputs[i] = input_of(op, i) + at;
    for (int i = 0; i < size; i++) { /* the own output first: it is nearest */
        int to = (rank + i) % size;
        if (op->call.kind == COLL_ALLREDUCE || to == (parts ? rank : op->call.root))
            summing.outputs[summing.output_count++] = output_of(op, to) + (parts ? 0 : at);
    }
    sum_all(op, &summing, run.count * op->elem_bytes);
}

static void copy(struct local_op *op, unsigned char *to, const unsigned char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        if (must_stop(op))
            return;
        kernel_copy(to + at, from + at, local_min(CHUNK_BYTES, bytes - at), op->streams);
    }
}

/* What lies in a rank's input for this one goes to the place of that rank's in the output. */
static void work_copy(struct local_op *op, int from)
{
    int rank = op->local->group->rank;
    bool from_part = op->call.kind == COLL_ALLTOALL || op->call.kind == COLL_SCATTER;
    bool to_part = op->call.kind != COLL_BROADCAST && op->call.kind != COLL_SCATTER;
    int owner = from_part ? rank : from; /* whose count it is */
    uint64_t count = op->call.kind == COLL_BROADCAST ? op->call.count : local_part_count(op, owner);
    uint64_t from_at = from_part ? local_part_offset(op, rank) : 0;
    uint64_t to_at = to_part ? local_part_offset(op, from) : 0;
    copy(op, (unsigned char *)op->call.out + to_at * op->elem_bytes,
         input_of(op, from) + from_at * op->elem_bytes, count * op->elem_bytes);
}

static void work_copies(struct local_op *op)
{
    int rank = op->local->group->rank, size = op->local->group->size;
    switch (op->call.kind) {
    case COLL_BROADCAST:
        if (rank != op->call.root)
            work_copy(op, op->call.root);
        break;
    case COLL_SCATTER: work_copy(op, op->call.root); break;
    case COLL_GATHER:
        for (int i = 0; i < size && rank == op->call.root; i++)
            work_copy(op, i);
        break;
    default: /* from the next rank on: not all from the same at once */
        for (int i = 0; i < size; i++)
            work_copy(op, (rank + i) % size);
    }
}

void local_direct_work(struct local_op *op)
{
    atomic_int *working = &op->local->own->working;
    atomic_store(working, 1);
    if (!must_stop(op)) {
        if (local_sums(op))
            work_sum(op);
        else
            work_copies(op);
    }
    atomic_store(working, 0);
}

/* ---- failing
 * ------------------------------------------------------------------------------------------------
 */

/* The engine may stand here and learn of no death meanwhile, so the kernel is asked. */
static bool somebody_works(const struct local_group *local)
{
    for (int i = 0; i < local->group->size; i++)
        if (i != local->group->rank && local->slots[i] && atomic_load(&local->slots[i]->working) &&
            !comm_process_is_gone(local->group->world, local->local_index[i]))
            return true;
    return false;
}

void local_direct_quiesce(const struct local_op *op)
{
    struct comm_world *world = op->local->group->world;
    int64_t deadline_ns = base_deadline_ns(QUIESCE_MS);
    while (somebody_works(op->local) && base_now_ns() < deadline_ns)
        usleep(QUIESCE_PAUSE_US);
    if (!somebody_works(op->local))
        return;
    base_log(BASE_LOG_WARN,
             "group '%s': a rank stands still amid an operation on shared memory; what is freed of "
             "it is not used again",
             op->local->group->name);
    pthread_mutex_lock(&world->region_lock);
    world->region.keeps_freed = true;
    pthread_mutex_unlock(&world->region_lock);
}
