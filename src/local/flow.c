/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flow.c: drives an operation through its moves, never blocking inside: a caller's thread waits
 * between two advances, the engine does something else.
 *
 * Round i does put(i), reduce(i-1), take(i-2), or put(i), take(i-1) where nothing is reduced: by
 * the time a move waits for the peers they have usually done theirs a round ago.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "kernel/kernel.h"
#include "local/direct.h"
#include "local/group.h"
#include "local/history.h"
#include "local/local.h"
#include "local/slot.h"

enum move { MOVE_PUT = 0, MOVE_REDUCE, MOVE_TAKE, MOVE_COUNT };

/* ---- looking at the peers
 * -------------------------------------------------------------------------------------- */

/* The stamp of a block is that of another operation. The first difference is in the histories,
 * unless a peer that disagreed in the number of blocks is in an operation of its own by now. */
static void mismatch(struct local_op *op, int rank, uint64_t theirs_packed)
{
    struct comm_group *group = op->local->group;
    struct comm_signature mine = comm_signature_unpack(op->signature);
    struct comm_signature theirs = comm_signature_unpack(theirs_packed);
    char my_call[128], their_call[128], me[160], them[160];
    if (local_history_differs(op->local, rank, 1, op->sequence))
        return;
    comm_group_break(group, SHOAL_ERR_MISMATCH,
                     "operation #%" PRIu64 " on group '%s' differs: %s called %s, but %s called %s",
                     op->sequence, group->name, comm_rank_text(group, group->rank, me, sizeof(me)),
                     comm_signature_text(&mine, my_call, sizeof(my_call)),
                     comm_rank_text(group, rank, them, sizeof(them)),
                     comm_signature_text(&theirs, their_call, sizeof(their_call)));
}

/* That rank has started this operation too, with its call packed as `theirs`. False: the calls
 * differ, and the group is broken. */
static bool compare_calls(struct local_op *op, int rank, uint64_t theirs)
{
    uint64_t *compared = &op->local->compared[rank];
    if (theirs != op->signature) {
        mismatch(op, rank, theirs);
        return false;
    }
    if (*compared < op->sequence &&
        local_history_differs(op->local, rank, *compared, op->sequence - 1))
        return false;
    *compared = op->sequence + 1;
    return true;
}

/* Whether rank has put block b; its first block must be of the same operation. */
static bool has_put(struct local_op *op, int rank, uint64_t b)
{
    uint64_t block = op->first_block + b;
    const struct local_stamp *stamp = &op->local->slots[rank]->stamps[block % LOCAL_STAMPS];
    if (atomic_load_explicit(&stamp->number, memory_order_acquire) < block + 1)
        return false;
    if (b == 0 && !compare_calls(op, rank, stamp->signature))
        return false;
    if (b == 0 && op->offerable && op->way == LOCAL_BY_BLOCKS && local_direct_offered(op, rank))
        return atomic_load_explicit(&op->local->slots[rank]->staged, memory_order_acquire) > block;
    return true;
}

/* Whether the answers are enough to go on: all have offered, or one has not. */
static bool is_answered(struct local_op *op)
{
    bool all = true;
    for (int i = 0; i < op->local->group->size; i++) {
        bool here = i == op->local->group->rank || has_put(op, i, 0);
        if (here && !local_direct_offered(op, i))
            return true;
        all = all && here;
        op->waits_for = here ? op->waits_for : i;
    }
    return all;
}

static bool has_reduced(const struct local_op *op, int rank, uint64_t b)
{
    return atomic_load_explicit(&op->local->slots[rank]->reduced, memory_order_acquire) >=
           op->first_block + b + 1;
}

/* How many blocks all peers must have taken before this rank puts block b. */
static uint64_t taken_before(const struct local_op *op, uint64_t b)
{
    uint64_t ahead = op->mode == LOCAL_INLINE ? LOCAL_STAMPS : LOCAL_STAGES;
    uint64_t end = op->first_block + b + 1;
    return end > ahead ? end - ahead : 0;
}

/* Whether every peer has left the block that this one would overwrite. */
static bool block_is_free(struct local_op *op, uint64_t b)
{
    struct local_group *local = op->local;
    uint64_t needed = taken_before(op, b);
    if (local->known_taken >= needed)
        return true;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < local->group->size; i++) {
        if (i == local->group->rank)
            continue;
        uint64_t taken = atomic_load_explicit(&local->slots[i]->taken, memory_order_acquire);
        least = taken < least ? taken : least;
    }
    local->known_taken = least;
    if (least < needed)
        return false;
    /* Each operation has a block or more, so all have started those before the last few. */
    return op->sequence <= LOCAL_STAMPS ||
           local_history_catch_up(local, op->sequence - LOCAL_STAMPS);
}

static bool peer_is_ready(struct local_op *op, int rank, enum move move, uint64_t b)
{
    if (move == MOVE_REDUCE)
        return has_put(op, rank, b);
    if (!local_takes_from(op, rank))
        return true;
    return op->reduces ? has_reduced(op, rank, b) : has_put(op, rank, b);
}

/* ---- the loop
 * ----------------------------------------------------------------------------------------------------
 */

/* Block that `move` handles in this round; false if none. */
static bool block_of(const struct local_op *op, enum move move, uint64_t *b)
{
    uint64_t lag = move == MOVE_PUT ? 0 : move == MOVE_REDUCE ? 1 : op->reduces ? 2 : 1;
    if (move == MOVE_REDUCE && !op->reduces)
        return false;
    *b = op->round - lag;
    return op->round >= lag && *b < op->block_count;
}

/* Whether all peers are done with everybody's buffers. */
static bool have_worked(struct local_op *op)
{
    for (; op->waits_for < op->local->group->size; op->waits_for++)
        if (op->waits_for != op->local->group->rank &&
            !has_reduced(op, op->waits_for, op->block_count - 1))
            return false;
    return true;
}

/* Whether what the move needs of the peers is there. */
static bool peers_are_ready(struct local_op *op)
{
    struct local_group *local = op->local;
    enum move move = (enum move)op->move;
    uint64_t b;
    if (!local->attached && !local_find_peers(local))
        return false;
    if (op->way == LOCAL_OFFERED)
        return is_answered(op);
    if (op->way == LOCAL_WORKED)
        return have_worked(op);
    if (!block_of(op, move, &b))
        return true;
    if (move == MOVE_PUT)
        return block_is_free(op, b);
    for (; op->waits_for < local->group->size; op->waits_for++)
        if (op->waits_for != local->group->rank && !peer_is_ready(op, op->waits_for, move, b))
            return false;
    return true;
}

static bool move_is_ready(struct local_op *op)
{
    return local_is_broken(op->local) || peers_are_ready(op); /* the caller looks why it failed */
}

/* A peer that has done its part may end at once: then the group is broken, but the operation ends
 * well if all that it needs is there, and the next one tells of the loss. Not where the peers'
 * buffers are used: who has given up may have freed them. */
static bool may_go_on(struct local_op *op)
{
    struct local_group *local = op->local;
    local_adopt_failure(local);
    return !local->given_up && op->way != LOCAL_OFFERED && !op->stopped &&
           comm_group_health(local->group) == SHOAL_ERR_PEER_LOST && peers_are_ready(op);
}

/* Operations in which each rank needs a stamp of every other. */
static bool needs_all(const struct local_op *op)
{
    enum coll_kind kind = op->call.kind;
    return op->reduces || kind == COLL_ALLREDUCE || kind == COLL_ALLGATHER ||
           kind == COLL_ALLTOALL || kind == COLL_REDUCE_SCATTER || kind == COLL_BARRIER;
}

static void publish(struct local_op *op, atomic_ullong *number, uint64_t b)
{
    struct local_group *local = op->local;
    atomic_store_explicit(number, op->first_block + b + 1, memory_order_release);
    local_ring(local);
}

/* Rings only if a peer may soon wait for it. After an operation of one block that needs all, a peer
 * is three rooted operations away from that, and then looks every PUT_SLICE_MS; this saves a fence.
 */
static void publish_taken(struct local_op *op, uint64_t b)
{
    atomic_ullong *taken = &op->local->own->taken;
    if (op->block_count > 1 || !needs_all(op))
        publish(op, taken, b);
    else
        atomic_store_explicit(taken, op->first_block + b + 1, memory_order_release);
}

/* The first move on a block. False: without memory for it the group is broken, and nothing
 * published. */
static bool put(struct local_op *op, uint64_t b)
{
    struct local_stamp *stamp = &op->local->own->stamps[(op->first_block + b) % LOCAL_STAMPS];
    if (b == 0)
        local_history_note(op->local, op->sequence, op->signature);
    if (b == 0 && op->offerable)
        local_direct_answer(op, stamp);
    if (b == 0 && op->offers)
        op->way = LOCAL_OFFERED;
    else if (local_take_stage(op, b))
        local_put(op, b);
    else
        return false;
    stamp->signature = op->signature;
    publish(op, &stamp->number, b);
    return true;
}

static bool do_move(struct local_op *op, uint64_t b)
{
    struct local_slot *own = op->local->own;
    switch ((enum move)op->move) {
    case MOVE_PUT: return put(op, b);
    case MOVE_REDUCE:
        local_reduce(op, b);
        publish(op, &own->reduced, b);
        return true;
    case MOVE_TAKE:
        local_take(op, b);
        publish_taken(op, b);
        return true;
    default: return true;
    }
}

static bool all_offered(const struct local_op *op)
{
    for (int i = 0; i < op->local->group->size; i++)
        if (!has_put((struct local_op *)op, i, 0) || !local_direct_offered(op, i))
            return false;
    return true;
}

/* The way through the stages, or through the stamps. */
static enum comm_way staged_way(const struct local_op *op)
{
    if (op->mode == LOCAL_INLINE)
        return COMM_WAY_INLINE;
    return local_sums(op) && op->mode == LOCAL_SYMMETRIC ? COMM_WAY_SYMMETRIC : COMM_WAY_STAGED;
}

static void count_bytes(const struct local_op *op, enum comm_way way)
{
    struct comm_group *group = op->local->group;
    enum coll_kind kind = op->call.kind;
    uint64_t bytes = op->bytes; /* of both buffers; no question on the shortest way */
    if (kind != COLL_ALLREDUCE && kind != COLL_BARRIER)
        bytes = comm_call_bytes(&op->call, group->rank, group->size);
    comm_count(&group->counters.bytes[way], bytes);
    if (op->streams && way != COMM_WAY_SYMMETRIC)
        comm_count(&group->counters.streamed_bytes, bytes);
}

/* Its offer is answered: this rank's part on everybody's buffers, or the first block after all. */
static void take_answer(struct local_op *op)
{
    struct local_slot *own = op->local->own;
    op->waits_for = 0;
    if (all_offered(op)) {
        count_bytes(op, COMM_WAY_DIRECT);
        local_direct_work(op);
        op->way = LOCAL_WORKED;
        if (!op->stopped)
            publish(op, &own->reduced, op->block_count - 1);
    } else if (local_take_stage(op, 0)) {
        count_bytes(op, staged_way(op));
        local_put(op, 0);
        op->way = LOCAL_BY_BLOCKS;
        publish(op, &own->staged, 0);
    }
}

/* True when the operation is over. */
static bool next_move(struct local_op *op)
{
    op->waits_for = 0;
    if (++op->move < MOVE_COUNT)
        return false;
    op->move = MOVE_PUT;
    op->round++;
    return op->round >= op->block_count + (op->reduces ? 2 : 1);
}

/* All stamps of this operation were seen: everybody is through with the operations before. */
static void learn(struct local_op *op)
{
    struct local_group *local = op->local;
    if (needs_all(op) && local->known_taken < op->first_block)
        local->known_taken = op->first_block;
}

/* All peers are done with this operation, stamps included: nobody needs a ring. */
static void end_direct(struct local_op *op)
{
    uint64_t end = op->first_block + op->block_count;
    atomic_store_explicit(&op->local->own->taken, end, memory_order_release);
    learn(op);
    op->local->known_taken = end;
}

/* True when done; false when it waits for peers, or the group broke. */
static bool advance(struct local_op *op)
{
    for (;;) {
        uint64_t b;
        if (!move_is_ready(op))
            return false;
        if (local_is_broken(op->local) && !may_go_on(op))
            return false;
        if (op->way == LOCAL_WORKED) {
            end_direct(op);
            return true;
        }
        if (op->way == LOCAL_OFFERED)
            take_answer(op);
        else if (block_of(op, (enum move)op->move, &b) && !do_move(op, b))
            return false;
        if (op->way == LOCAL_BY_BLOCKS && next_move(op)) {
            learn(op);
            return true;
        }
    }
}

static void begin(struct local_op *op, struct comm_group *group, const struct comm_call *call,
                  uint64_t sequence)
{
    struct local_group *local = group->local;
    struct comm_signature signature = comm_signature_of(call, group->size);
    op->local = local;
    op->call = *call;
    op->sequence = sequence;
    op->signature = comm_signature_pack(&signature);
    op->elem_bytes = call->kind == COLL_BARRIER ? 1 : kernel_dtype_bytes(call->dtype);
    op->round = 0;
    op->move = MOVE_PUT;
    op->waits_for = 0;
    op->way = LOCAL_BY_BLOCKS;
    op->offers = false;
    op->stopped = false;
    local_op_lay_out(op);
    local_direct_consider(op);
    op->first_block = local->next_block;
    local->next_block += op->block_count;
    if (!op->offers)
        count_bytes(op, staged_way(op));
}

/* ---- who is late
 * ---------------------------------------------------------------------------------------------------
 */

static void mark_late(const struct local_op *op, bool *late)
{
    const struct local_group *local = op->local;
    for (int i = 0; i < local->group->size; i++) {
        const struct local_slot *slot = local->slots[i];
        if (i == local->group->rank)
            continue;
        bool came = slot && atomic_load(&slot->stamps[op->first_block % LOCAL_STAMPS].number) >
                                op->first_block;
        late[i] = !came;
    }
}

/* Whether this rank's move needs something more of that one. */
static bool lacks(struct local_op *op, int rank)
{
    const struct local_group *local = op->local;
    uint64_t b;
    if (rank == local->group->rank)
        return false;
    if (!local->attached)
        return !local_find_peer(op->local, rank);
    if (op->way == LOCAL_OFFERED)
        return false;
    if (op->way == LOCAL_WORKED)
        return !has_reduced(op, rank, op->block_count - 1);
    if (!block_of(op, (enum move)op->move, &b))
        return false;
    if (op->move == MOVE_PUT)
        return atomic_load(&local->slots[rank]->taken) < taken_before(op, b);
    return !peer_is_ready(op, rank, (enum move)op->move, b);
}

/* If all have come, those behind this rank's move. */
static void mark_behind(struct local_op *op, bool *late)
{
    for (int i = 0; op->local->attached && i < op->local->group->size; i++)
        late[i] = lacks(op, i);
}

/* Whether a rank this one waits for has left the world: then it waits in vain. */
static void look_for_left(struct local_op *op)
{
    struct comm_group *group = op->local->group;
    struct comm_signature signature = comm_signature_unpack(op->signature);
    const struct base_shared *regions = group->world->host->regions;
    bool left[COMM_LOCAL_MAX] = {false}, late[COMM_LOCAL_MAX] = {false};
    for (int i = 0; i < group->size; i++) /* first, so that all it published is seen after */
        left[i] =
            atomic_load(&comm_region_control_of(&regions[op->local->local_index[i]])->left) != 0;
    mark_late(op, late);
    if (!memchr(late, true, (size_t)group->size))
        mark_behind(op, late);
    for (int i = 0; i < group->size; i++)
        if (left[i] && late[i])
            comm_group_break_by_leaving(group, i, &signature, op->sequence);
}

/* After a while in vain: does a peer run something else, or is it gone? */
static void look_around(struct local_op *op)
{
    for (int i = 0; i < op->local->group->size; i++)
        if (i != op->local->group->rank)
            local_history_differs(op->local, i, op->sequence, op->sequence);
    look_for_left(op);
}

static void break_by_timeout(struct local_op *op)
{
    struct comm_group *group = op->local->group;
    struct comm_signature signature = comm_signature_unpack(op->signature);
    bool late[COMM_LOCAL_MAX] = {false};
    char what[128], who[256], me[160];
    mark_late(op, late);
    bool absent = memchr(late, true, (size_t)group->size) != NULL;
    if (!absent)
        mark_behind(op, late);
    comm_group_break(group, SHOAL_ERR_TIMEOUT,
                     "%s #%" PRIu64 " on group '%s' took longer than %lld ms at %s: %s "
                     "(host %s) %s",
                     comm_signature_text(&signature, what, sizeof(what)), op->sequence, group->name,
                     (long long)atomic_load(&group->timeout_ms),
                     comm_rank_text(group, group->rank, me, sizeof(me)),
                     comm_ranks_text(group, late, who, sizeof(who)),
                     group->world->host_names[group->world->rank],
                     absent ? "has not called it" : "has called it but does not go on");
}

/* ---- on the caller's thread
 * --------------------------------------------------------------------------------------------- */

#define LOOKS_MAX     2000 /* without a pause in between: a pause is longer than a small operation */
#define LOOKS_MIN     200
#define SPIN_ALONE_NS 10000
#define WAIT_SLICE_MS 200
#define PUT_SLICE_MS  10 /* a peer need not ring when it takes: see publish_taken */

/* The rank whose news this one sleeps for: the last of those that are missing. They come more or
 * less in the order of ranks, so most wait for one and are woken once, by it, and not by each of
 * the others (64 ranks on 2 cores: 4032 wake-ups for each exchange). -1: any news may do. */
static int last_lacking(struct local_op *op)
{
    int rank = op->way == LOCAL_BY_BLOCKS && op->move == MOVE_PUT ? -1 : op->local->group->size - 1;
    while (rank >= 0 && !lacks(op, rank))
        rank--;
    return rank;
}

/* Looks again after each change of what it waits for: invariant 5 in slot.h. */
static bool wait_ready(void *user)
{
    struct local_op *op = user;
    atomic_int *awaited = &op->local->own->awaited;
    while (!move_is_ready(op)) {
        int lacking = last_lacking(op);
        int now = lacking < 0 ? LOCAL_AWAITS_ANY : lacking + LOCAL_AWAITS_RANK;
        if (atomic_load_explicit(awaited, memory_order_relaxed) == now)
            return false;
        atomic_exchange(awaited, now);
    }
    return true;
}

/* Looks again and again while every rank has a core of its own; less the next time if the peer
 * turns out not to be running. */
static bool look_long(struct local_op *op)
{
    struct local_group *local = op->local;
    if (local->group->world->policy.spin_ns < SPIN_ALONE_NS)
        return false;
    for (int i = 0; i < local->looks; i++)
        if (move_is_ready(op)) {
            local->looks = LOOKS_MAX;
            return true;
        }
    local->looks = local->looks / 2 > LOOKS_MIN ? local->looks / 2 : LOOKS_MIN;
    return false;
}

#define LEAVE_CORE_EVERY_NS (5 * BASE_NS_PER_MS)

/* Ranks that wait for each other sleep and wake by turns, and then the scheduler takes one core to
 * be enough for both. The higher of two that find themselves on one core leaves it. */
static void part_cores(struct local_op *op)
{
    struct local_group *local = op->local;
    int peer = op->waits_for, core = base_core() + 1;
    atomic_store_explicit(&local->own->core, core, memory_order_relaxed);
    if (local->group->world->policy.spin_ns < SPIN_ALONE_NS || peer >= local->group->rank ||
        !local->slots[peer] ||
        atomic_load_explicit(&local->slots[peer]->core, memory_order_relaxed) != core)
        return;
    int64_t now_ns = base_now_ns();
    if (now_ns - local->left_core_ns < LEAVE_CORE_EVERY_NS)
        return;
    local->left_core_ns = now_ns;
    base_leave_core();
}

/* Waits for the current move; breaks the group when the deadline, which is made at the first wait,
 * passes. */
static void wait_for_peers(struct local_op *op, int64_t *deadline_ns)
{
    struct comm_group *group = op->local->group;
    if (look_long(op))
        return;
    part_cores(op);
    if (*deadline_ns == 0)
        *deadline_ns = base_deadline_ns(atomic_load(&group->timeout_ms));
    int64_t slice_ns = base_deadline_ns(op->move == MOVE_PUT ? PUT_SLICE_MS : WAIT_SLICE_MS);
    bool last = *deadline_ns <= slice_ns;
    uint64_t slept = base_wait_sleeps();
    bool ready = base_wait(op->local->bells[group->rank], &group->world->policy, wait_ready, op,
                           last ? *deadline_ns : slice_ns);
    atomic_store_explicit(&op->local->own->awaited, LOCAL_AWAITS_NOBODY, memory_order_release);
    comm_count_sleeps(&group->counters, base_wait_sleeps() - slept);
    if (!ready)
        look_around(op);
    if (!ready && comm_interrupted(group))
        return;
    if (!ready && last && !comm_group_broken(group))
        break_by_timeout(op);
}

/* Ends it amid its moves. None after it may move: it would publish numbers that say that this one
 * was done. */
static void give_up(const struct local_op *op)
{
    op->local->given_up = true;
    local_fail(op->local);
    if (op->offers)
        local_direct_quiesce(op);
}

/* False: the group has broken before it was done. */
static bool run_to_its_end(struct local_op *op)
{
    int64_t deadline_ns = 0;
    for (;;) {
        bool last = comm_group_broken(op->local->group);
        if (advance(op))
            return true;
        if (last)
            return false;
        wait_for_peers(op, &deadline_ns);
    }
}

static enum shoal_status run(struct comm_group *group, const struct comm_call *call,
                             struct comm_plan *plan, uint64_t sequence)
{
    (void)plan;
    struct local_op op;
    begin(&op, group, call, sequence);
    atomic_store_explicit(&group->blocking_signature, op.signature, memory_order_relaxed);
    atomic_store_explicit(&group->blocking, sequence, memory_order_release);
    bool done = run_to_its_end(&op);
    atomic_store_explicit(&group->blocking, 0, memory_order_relaxed);
    if (done)
        return SHOAL_OK;
    give_up(&op);
    comm_progress_kick(group->world);
    return comm_group_health(group);
}

/* ---- in the engine
 * -------------------------------------------------------------------------------------------------------
 */

static bool task_advance(struct comm_task *task)
{
    struct local_op *op = task->owner_run;
    return advance(op);
}

static bool task_ready(struct comm_task *task)
{
    return move_is_ready(task->owner_run);
}

static void task_cancel(struct comm_task *task)
{
    give_up(task->owner_run);
}

static void task_late(struct comm_task *task, bool *late)
{
    struct local_op *op = task->owner_run;
    look_around(op);
    mark_late(op, late);
    if (!memchr(late, true, (size_t)task->group->size))
        mark_behind(op, late);
}

static const struct comm_task_class task_class = {"local", task_advance, task_ready, task_cancel,
                                                  task_late};

_Static_assert(sizeof(struct local_op) <= COMM_LOCAL_TASK_BYTES, "fits in a request");

static enum shoal_status start(struct comm_group *group, struct comm_request *request)
{
    struct local_op *op = (struct local_op *)request->local_task;
    memset(op, 0, sizeof(*op));
    begin(op, group, &request->call, request->sequence);
    op->task = (struct comm_task){.class = &task_class,
                                  .group = group,
                                  .call = request->call,
                                  .signature = comm_signature_of(&request->call, group->size),
                                  .sequence = request->sequence,
                                  .deadline_ns = request->deadline_ns,
                                  .done = comm_request_done,
                                  .owner = request,
                                  .owner_run = op};
    comm_engine_start_task(group->engine, &op->task);
    return SHOAL_OK;
}

const struct comm_path local_path = {run, start, false};

bool local_can(const struct comm_call *call)
{
    return call->kind < COLL_SEND && !(call->kind == COLL_ALLTOALL && call->counts);
}
