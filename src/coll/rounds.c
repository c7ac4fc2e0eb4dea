/* SPDX-License-Identifier: Apache-2.0 */
/* rounds.c: the longest chains of messages through the schedules of all ranks. */
#include "base/memory.h"
#include "base/status.h"
#include "coll/coll.h"
#include "coll/steps.h"

struct walk {
    const struct steps *steps;
    uint32_t *waits, *queue;
    uint32_t queued;
    uint32_t *rounds;
};

static void finish(struct walk *walk, uint32_t number)
{
    for (uint32_t i = 0; i < coll_steps_at(walk->steps, number)->after_count; i++) {
        uint32_t later = coll_steps_after(walk->steps, number, i);
        if (walk->rounds[later] < walk->rounds[number])
            walk->rounds[later] = walk->rounds[number];
        if (--walk->waits[later] == 0)
            walk->queue[walk->queued++] = later;
    }
}

/* A ready step; a message moves with the second of its ends. */
static void visit(struct walk *walk, uint32_t number)
{
    uint32_t partner = walk->steps->partner[number];
    if (partner == STEPS_NONE) {
        finish(walk, number);
        return;
    }
    if (walk->waits[partner] != 0)
        return;
    uint32_t later = walk->rounds[number] > walk->rounds[partner] ? number : partner;
    walk->rounds[number] = walk->rounds[partner] = walk->rounds[later] + 1;
    walk->waits[number] = walk->waits[partner] = STEPS_NONE;
    finish(walk, number);
    finish(walk, partner);
}

static void visit_all(struct walk *walk, uint32_t *out_count)
{
    const struct steps *steps = walk->steps;
    uint32_t count = 0;
    for (uint32_t number = 0; number < steps->count; number++) {
        walk->waits[number] = coll_steps_at(steps, number)->wait_count;
        walk->rounds[number] = 0;
        if (walk->waits[number] == 0)
            walk->queue[walk->queued++] = number;
    }
    for (uint32_t taken = 0; taken < walk->queued; taken++)
        if (walk->waits[walk->queue[taken]] == 0)
            visit(walk, walk->queue[taken]);
    for (uint32_t number = 0; number < steps->count; number++)
        if (walk->rounds[number] > count)
            count = walk->rounds[number];
    *out_count = count;
}

enum shoal_status coll_rounds(struct schedule *const *schedules, int size, uint32_t *rounds,
                              uint32_t *out_count)
{
    struct steps steps;
    struct walk walk = {.steps = &steps, .rounds = rounds};
    enum shoal_status status = coll_steps_init(schedules, size, &steps);
    if (status == SHOAL_OK)
        status = coll_steps_pair(&steps);
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&walk.waits, steps.count, "the rounds of a schedule");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&walk.queue, steps.count, "the rounds of a schedule");
    if (status == SHOAL_OK)
        visit_all(&walk, out_count);
    base_free(walk.waits);
    base_free(walk.queue);
    coll_steps_release(&steps);
    return status;
}
