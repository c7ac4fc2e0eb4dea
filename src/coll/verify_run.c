/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_run.c: runs all ranks' schedules on symbols.
 *
 * A step is ready when all that it waits for is done. A copy or reduce then runs; a message moves
 * when both its ends are ready, and ends both: sends that block until their receive is there. Ready
 * steps run in any order, since the race check has shown that the order among them cannot matter,
 * and running one never makes another one unready: so if this run ends, every run ends, and if it
 * stops, every run stops there.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "coll/verify.h"

#define NONE UINT32_MAX

/* ---- messages ------------------------------------------------------------------------------ */

/* The steps of one kind on one rank by peer and message: first[peer] + message. */
static enum shoal_status index_messages(const struct verifier *verifier, int rank,
                                        enum step_kind kind, uint32_t *first, uint32_t *list)
{
    const struct schedule *schedule = verifier->schedules[rank];
    memset(first, 0, sizeof(uint32_t) * (size_t)(verifier->size + 1));
    for (uint32_t i = 0; i < schedule->step_count; i++)
        if (schedule->steps[i].kind == kind) {
            const struct schedule_step *step = &schedule->steps[i];
            if (step->message != first[step->peer + 1]++)
                return base_error(SHOAL_ERR_INTERNAL, "%s has message number %u out of order",
                                  verify_step_text(verifier, rank, i), step->message);
        }
    for (int peer = 0; peer < verifier->size; peer++)
        first[peer + 1] += first[peer];
    for (uint32_t i = 0; i < schedule->step_count; i++)
        if (schedule->steps[i].kind == kind)
            list[first[schedule->steps[i].peer] + schedule->steps[i].message] = i;
    return SHOAL_OK;
}

static enum shoal_status pair_up(struct verifier *verifier, int from, uint32_t send, int to,
                                 uint32_t receive)
{
    uint64_t sent = verifier->schedules[from]->steps[send].at.count;
    uint64_t received = verifier->schedules[to]->steps[receive].at.count;
    if (sent != received)
        return base_error(SHOAL_ERR_INTERNAL, "%s gets %llu elements from step %u of rank %d",
                          verify_step_text(verifier, to, receive), (unsigned long long)sent, send,
                          from);
    verifier->partner[verifier->first_step[from] + send] = verifier->first_step[to] + receive;
    verifier->partner[verifier->first_step[to] + receive] = verifier->first_step[from] + send;
    return SHOAL_OK;
}

/* Indexes of all ranks' receives: [size][size+1] and one list per rank. */
struct mailboxes {
    uint32_t *first, *list;
};

static enum shoal_status match_sends(struct verifier *verifier, const struct mailboxes *receives,
                                     int rank, uint32_t *first, uint32_t *list)
{
    size_t row = (size_t)verifier->size + 1;
    TRY(index_messages(verifier, rank, STEP_SEND, first, list));
    for (int peer = 0; peer < verifier->size; peer++) {
        const uint32_t *theirs = &receives->first[row * (size_t)peer];
        uint32_t sent = first[peer + 1] - first[peer], awaited = theirs[rank + 1] - theirs[rank];
        if (sent != awaited)
            return base_error(SHOAL_ERR_INTERNAL,
                              "rank %d sends %u messages to rank %d, which receives %u", rank, sent,
                              peer, awaited);
        const uint32_t *their_list = &receives->list[verifier->first_step[peer]];
        for (uint32_t i = 0; i < sent; i++)
            TRY(pair_up(verifier, rank, list[first[peer] + i], peer, their_list[theirs[rank] + i]));
    }
    return SHOAL_OK;
}

static enum shoal_status match_all(struct verifier *verifier, struct mailboxes *receives,
                                   struct mailboxes *sends)
{
    size_t row = (size_t)verifier->size + 1;
    for (int rank = 0; rank < verifier->size; rank++)
        TRY(index_messages(verifier, rank, STEP_RECV, &receives->first[row * (size_t)rank],
                           &receives->list[verifier->first_step[rank]]));
    for (int rank = 0; rank < verifier->size; rank++)
        TRY(match_sends(verifier, receives, rank, sends->first, sends->list));
    return SHOAL_OK;
}

enum shoal_status verify_messages(struct verifier *verifier)
{
    size_t row = (size_t)verifier->size + 1, steps = verifier->first_step[verifier->size];
    struct mailboxes receives = {0}, sends = {0};
    enum shoal_status status =
        BASE_NEW_ARRAY(&receives.first, row * (size_t)verifier->size, "the verifier's mailboxes");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&receives.list, steps, "the verifier's mailboxes");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&sends.first, row, "the verifier's mailboxes");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&sends.list, steps, "the verifier's mailboxes");
    if (status == SHOAL_OK)
        status = match_all(verifier, &receives, &sends);
    base_free(receives.first);
    base_free(receives.list);
    base_free(sends.first);
    base_free(sends.list);
    return status;
}

/* ---- the run ------------------------------------------------------------------------------- */

struct run {
    struct verifier *verifier;
    uint32_t step_count;
    uint32_t *waits; /* steps that each still waits for; NONE when done */
    uint32_t *queue; /* ready steps */
    uint32_t queued, taken;
    int *rank_of;       /* each step's rank */
    uint32_t *operands; /* of one element of a reduce */
};

static const struct schedule_step *step_at(const struct run *run, uint32_t global)
{
    int rank = run->rank_of[global];
    return &run->verifier->schedules[rank]->steps[global - run->verifier->first_step[rank]];
}

static struct cell *cells_at(const struct run *run, int rank, struct schedule_span span)
{
    const struct memory *memory = &run->verifier->memories[rank];
    return &memory->cells[memory->base[span.buffer] + span.offset];
}

/* What the longest chain before it is for a step, it and its message are for those that follow. */
static void finish(struct run *run, uint32_t global)
{
    struct verifier *verifier = run->verifier;
    int rank = run->rank_of[global];
    const struct schedule *schedule = verifier->schedules[rank];
    const struct schedule_step *step = step_at(run, global);
    int words = verifier->known_words;
    run->waits[global] = NONE;
    for (uint32_t i = 0; i < step->after_count; i++) {
        uint32_t later = verifier->first_step[rank] + schedule->edges[step->after_first + i];
        if (verifier->depth[later] < verifier->depth[global])
            verifier->depth[later] = verifier->depth[global];
        for (int word = 0; word < words; word++)
            verifier->known[(size_t)later * (size_t)words + (size_t)word] |=
                verifier->known[(size_t)global * (size_t)words + (size_t)word];
        if (--run->waits[later] == 0)
            run->queue[run->queued++] = later;
    }
}

static enum shoal_status reduce_cell(struct run *run, int rank, const struct schedule_step *step,
                                     uint64_t element)
{
    const struct schedule *schedule = run->verifier->schedules[rank];
    uint32_t index = 0;
    for (uint32_t i = 0; i < step->source_count; i++) {
        const struct cell *cell =
            cells_at(run, rank, schedule->sources[step->source_first + i]) + element;
        TRY(trees_readable(cell->tree));
        if (i > 0 && cell->index != index)
            return base_error(SHOAL_ERR_INTERNAL, "it adds element %u to element %u", cell->index,
                              index);
        index = cell->index;
        run->operands[i] = cell->tree;
    }
    struct cell *to = cells_at(run, rank, step->at) + element;
    uint32_t tree = run->operands[0];
    if (step->source_count > 1 || step->final)
        TRY(trees_reduce(run->verifier->trees, run->operands, step->source_count, step->final,
                         &tree));
    *to = (struct cell){tree, index};
    return SHOAL_OK;
}

static enum shoal_status run_local(struct run *run, uint32_t global)
{
    int rank = run->rank_of[global];
    const struct schedule_step *step = step_at(run, global);
    for (uint64_t i = 0; i < step->at.count; i++) {
        enum shoal_status status = reduce_cell(run, rank, step, i);
        if (status != SHOAL_OK)
            return base_error_context(
                status, "%s, element %llu",
                verify_step_text(run->verifier, rank, global - run->verifier->first_step[rank]),
                (unsigned long long)i);
    }
    finish(run, global);
    return SHOAL_OK;
}

static void merge_known(struct verifier *verifier, uint32_t send, uint32_t receive)
{
    int words = verifier->known_words;
    for (int word = 0; word < words; word++)
        verifier->known[(size_t)receive * (size_t)words + (size_t)word] |=
            verifier->known[(size_t)send * (size_t)words + (size_t)word];
}

static enum shoal_status move_message(struct run *run, uint32_t send, uint32_t receive)
{
    struct verifier *verifier = run->verifier;
    int from = run->rank_of[send], to = run->rank_of[receive];
    const struct cell *source = cells_at(run, from, step_at(run, send)->at);
    struct cell *target = cells_at(run, to, step_at(run, receive)->at);
    for (uint64_t i = 0; i < step_at(run, send)->at.count; i++) {
        enum shoal_status status = trees_readable(source[i].tree);
        if (status != SHOAL_OK)
            return base_error_context(
                status, "%s, element %llu",
                verify_step_text(verifier, from, send - verifier->first_step[from]),
                (unsigned long long)i);
        target[i] = source[i];
    }
    uint32_t depth = verifier->depth[send] > verifier->depth[receive] ? verifier->depth[send]
                                                                      : verifier->depth[receive];
    verifier->depth[send] = verifier->depth[receive] = depth + 1;
    merge_known(verifier, send, receive);
    finish(run, send);
    finish(run, receive);
    return SHOAL_OK;
}

/* Runs a ready step, if it can: the first end of a message waits for the other one. */
static enum shoal_status run_step(struct run *run, uint32_t global)
{
    const struct schedule_step *step = step_at(run, global);
    if (step->kind != STEP_SEND && step->kind != STEP_RECV)
        return run_local(run, global);
    uint32_t partner = run->verifier->partner[global];
    if (run->waits[partner] != 0)
        return SHOAL_OK;
    if (step->kind == STEP_SEND)
        return move_message(run, global, partner);
    return move_message(run, partner, global);
}

/* A chain of steps that wait for each other, from a step that is ready but whose message cannot
 * move. */
static enum shoal_status report_deadlock(const struct run *run)
{
    const struct verifier *verifier = run->verifier;
    for (uint32_t global = 0; global < run->step_count; global++) {
        if (run->waits[global] != 0)
            continue;
        int rank = run->rank_of[global];
        uint32_t partner = verifier->partner[global];
        int peer = run->rank_of[partner];
        char text[200];
        strncpy(text, verify_step_text(verifier, rank, global - verifier->first_step[rank]),
                sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        return base_error(SHOAL_ERR_INTERNAL, "deadlock: %s waits for %s, which never starts", text,
                          verify_step_text(verifier, peer, partner - verifier->first_step[peer]));
    }
    return base_error(SHOAL_ERR_INTERNAL, "deadlock: no step is ready");
}

static enum shoal_status drain(struct run *run)
{
    for (uint32_t global = 0; global < run->step_count; global++)
        if (run->waits[global] == 0)
            run->queue[run->queued++] = global;
    while (run->taken < run->queued) {
        uint32_t global = run->queue[run->taken++];
        if (run->waits[global] == 0)
            TRY(run_step(run, global));
    }
    for (uint32_t global = 0; global < run->step_count; global++)
        if (run->waits[global] != NONE)
            return report_deadlock(run);
    return SHOAL_OK;
}

/* Counts from the edges, not from wait_count, which must agree with them. */
static enum shoal_status count_waits(struct run *run)
{
    const struct verifier *verifier = run->verifier;
    for (int rank = 0; rank < verifier->size; rank++) {
        const struct schedule *schedule = verifier->schedules[rank];
        uint32_t first = verifier->first_step[rank];
        for (uint32_t i = 0; i < schedule->step_count; i++) {
            const struct schedule_step *step = &schedule->steps[i];
            run->rank_of[first + i] = rank;
            for (uint32_t k = 0; k < step->after_count; k++)
                run->waits[first + schedule->edges[step->after_first + k]]++;
        }
        for (uint32_t i = 0; i < schedule->step_count; i++)
            if (run->waits[first + i] != schedule->steps[i].wait_count)
                return base_error(SHOAL_ERR_INTERNAL, "%s says that it waits for %u steps, not %u",
                                  verify_step_text(verifier, rank, i),
                                  schedule->steps[i].wait_count, run->waits[first + i]);
    }
    return drain(run);
}

static uint32_t operands_max(const struct verifier *verifier)
{
    uint32_t most = 1;
    for (int rank = 0; rank < verifier->size; rank++)
        for (uint32_t i = 0; i < verifier->schedules[rank]->step_count; i++)
            if (verifier->schedules[rank]->steps[i].source_count > most)
                most = verifier->schedules[rank]->steps[i].source_count;
    return most;
}

enum shoal_status verify_run(struct verifier *verifier)
{
    struct run run = {.verifier = verifier, .step_count = verifier->first_step[verifier->size]};
    enum shoal_status status = BASE_NEW_ARRAY(&run.waits, run.step_count, "the verifier's run");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&run.queue, run.step_count, "the verifier's run");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&run.rank_of, run.step_count, "the verifier's run");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&run.operands, operands_max(verifier), "the verifier's run");
    if (status == SHOAL_OK)
        status = count_waits(&run);
    base_free(run.waits);
    base_free(run.queue);
    base_free(run.rank_of);
    base_free(run.operands);
    return status;
}
