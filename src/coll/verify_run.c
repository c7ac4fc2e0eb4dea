/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coll_verify_run.c: runs all ranks' schedules on symbols.
 *
 * A step is ready when all that it waits for is done. A copy or reduce then runs; a message moves
 * when both its ends are ready, and ends both: sends that block until their receive is there. Ready
 * steps run in any order, since the race check has shown that the order among them cannot matter,
 * and running one never makes another one unready: so if this run ends, every run ends, and if it
 * stops, every run stops there.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/verify.h"

#define NONE STEPS_NONE

struct run {
    struct verifier *verifier;
    const struct steps *steps;
    uint32_t *waits; /* [steps] that each still waits for; NONE when done */
    uint32_t *queue; /* [steps] that are or were ready */
    uint32_t queued, taken;
    uint32_t *operands; /* of one element of a reduce */
};

static struct cell *cells_at(const struct run *run, int rank, struct schedule_span span)
{
    const struct memory *memory = &run->verifier->memories[rank];
    return &memory->cells[memory->base[span.buffer] + span.offset];
}

/* What step `from` knows of the ranks and of the messages before it, step `to` knows too. */
static void hand_on(struct verifier *verifier, uint32_t from, uint32_t to)
{
    size_t words = (size_t)verifier->known_words;
    if (verifier->depth[to] < verifier->depth[from])
        verifier->depth[to] = verifier->depth[from];
    for (size_t word = 0; word < words; word++)
        verifier->known[to * words + word] |= verifier->known[from * words + word];
}

static void finish(struct run *run, uint32_t number)
{
    const struct schedule_step *step = coll_steps_at(run->steps, number);
    run->waits[number] = NONE;
    for (uint32_t i = 0; i < step->after_count; i++) {
        uint32_t later = coll_steps_after(run->steps, number, i);
        hand_on(run->verifier, number, later);
        if (--run->waits[later] == 0)
            run->queue[run->queued++] = later;
    }
}

static enum shoal_status reduce_cell(struct run *run, int rank, const struct schedule_step *step,
                                     uint64_t element)
{
    const struct schedule *schedule = run->steps->schedules[rank];
    uint32_t index = 0;
    for (uint32_t i = 0; i < step->source_count; i++) {
        const struct cell *cell =
            cells_at(run, rank, schedule->sources[step->source_first + i]) + element;
        TRY(coll_trees_readable(cell->tree));
        if (i > 0 && cell->index != index)
            return base_error(SHOAL_ERR_INTERNAL, "it adds element %u to element %u", cell->index,
                              index);
        index = cell->index;
        run->operands[i] = cell->tree;
    }
    uint32_t tree = run->operands[0];
    if (step->source_count > 1 || step->final)
        TRY(coll_trees_reduce(run->verifier->trees, run->operands, step->source_count, step->final,
                              &tree));
    cells_at(run, rank, step->at)[element] = (struct cell){tree, index};
    return SHOAL_OK;
}

static enum shoal_status run_local(struct run *run, uint32_t number)
{
    const struct schedule_step *step = coll_steps_at(run->steps, number);
    for (uint64_t i = 0; i < step->at.count; i++) {
        enum shoal_status status = reduce_cell(run, run->steps->rank_of[number], step, i);
        if (status != SHOAL_OK)
            return base_error_context(status, "%s, element %llu",
                                      coll_steps_text(run->steps, number), (unsigned long long)i);
    }
    finish(run, number);
    return SHOAL_OK;
}

static enum shoal_status move_message(struct run *run, uint32_t send, uint32_t receive)
{
    const struct steps *steps = run->steps;
    struct schedule_span from = coll_steps_at(steps, send)->at,
                         to = coll_steps_at(steps, receive)->at;
    const struct cell *source = cells_at(run, steps->rank_of[send], from);
    struct cell *target = cells_at(run, steps->rank_of[receive], to);
    for (uint64_t i = 0; i < from.count; i++) {
        enum shoal_status status = coll_trees_readable(source[i].tree);
        if (status != SHOAL_OK)
            return base_error_context(status, "%s, element %llu", coll_steps_text(steps, send),
                                      (unsigned long long)i);
        target[i] = source[i];
    }
    hand_on(run->verifier, send, receive);
    uint32_t depth = ++run->verifier->depth[receive];
    run->verifier->depth[send] = depth;
    finish(run, send);
    finish(run, receive);
    return SHOAL_OK;
}

/* Runs a ready step, if it can: the first end of a message waits for the other one. */
static enum shoal_status run_step(struct run *run, uint32_t number)
{
    enum step_kind kind = coll_steps_at(run->steps, number)->kind;
    if (kind != STEP_SEND && kind != STEP_RECV)
        return run_local(run, number);
    uint32_t partner = run->steps->partner[number];
    if (run->waits[partner] != 0)
        return SHOAL_OK;
    return kind == STEP_SEND ? move_message(run, number, partner)
                             : move_message(run, partner, number);
}

/* Names a step that is ready but whose message cannot move. */
static enum shoal_status report_deadlock(const struct run *run)
{
    for (uint32_t number = 0; number < run->steps->count; number++)
        if (run->waits[number] == 0)
            return base_error(SHOAL_ERR_INTERNAL, "deadlock: %s waits for %s, which never starts",
                              coll_steps_text(run->steps, number),
                              coll_steps_text(run->steps, run->steps->partner[number]));
    return base_error(SHOAL_ERR_INTERNAL, "deadlock: no step is ready");
}

static enum shoal_status drain(struct run *run)
{
    for (uint32_t number = 0; number < run->steps->count; number++)
        if (run->waits[number] == 0)
            run->queue[run->queued++] = number;
    while (run->taken < run->queued) {
        uint32_t number = run->queue[run->taken++];
        if (run->waits[number] == 0)
            TRY(run_step(run, number));
    }
    for (uint32_t number = 0; number < run->steps->count; number++)
        if (run->waits[number] != NONE)
            return report_deadlock(run);
    return SHOAL_OK;
}

/* Counts from the edges; the engine counts from wait_count, which must agree with them. */
static enum shoal_status count_waits(struct run *run)
{
    const struct steps *steps = run->steps;
    for (uint32_t number = 0; number < steps->count; number++)
        for (uint32_t i = 0; i < coll_steps_at(steps, number)->after_count; i++)
            run->waits[coll_steps_after(steps, number, i)]++;
    for (uint32_t number = 0; number < steps->count; number++)
        if (run->waits[number] != coll_steps_at(steps, number)->wait_count)
            return base_error(SHOAL_ERR_INTERNAL, "%s says that it waits for %u steps, not %u",
                              coll_steps_text(steps, number),
                              coll_steps_at(steps, number)->wait_count, run->waits[number]);
    return SHOAL_OK;
}

static uint32_t operands_max(const struct steps *steps)
{
    uint32_t most = 1;
    for (uint32_t number = 0; number < steps->count; number++)
        if (coll_steps_at(steps, number)->source_count > most)
            most = coll_steps_at(steps, number)->source_count;
    return most;
}

enum shoal_status coll_verify_run(struct verifier *verifier)
{
    const struct steps *steps = &verifier->steps;
    struct run run = {.verifier = verifier, .steps = steps};
    enum shoal_status status = BASE_NEW_ARRAY(&run.waits, steps->count, "the verifier's run");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&run.queue, steps->count, "the verifier's run");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&run.operands, operands_max(steps), "the verifier's run");
    if (status == SHOAL_OK)
        status = count_waits(&run);
    if (status == SHOAL_OK)
        status = drain(&run);
    base_free(run.waits);
    base_free(run.queue);
    base_free(run.operands);
    return status;
}
