/* SPDX-License-Identifier: Apache-2.0 */
/* steps.c: numbers the steps of all ranks and pairs up their messages. */
#include "coll/steps.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

const char *coll_steps_text(const struct steps *steps, uint32_t number)
{
    static const char *const kinds[] = {"send", "recv", "reduce", "copy"};
    static _Thread_local char texts[2][160];
    static _Thread_local int turn;
    char *text = texts[turn ^= 1], peer[32] = "";
    const struct schedule_step *step = coll_steps_at(steps, number);
    int rank = steps->rank_of[number];
    if (step->kind == STEP_SEND || step->kind == STEP_RECV)
        snprintf(peer, sizeof(peer), " %s rank %d", step->kind == STEP_SEND ? "to" : "from",
                 step->peer);
    snprintf(text, sizeof(texts[0]), "rank %d step %u (%s of %llu elements%s, %s+%llu)", rank,
             number - steps->first[rank], kinds[step->kind], (unsigned long long)step->at.count,
             peer, schedule_buffer_name(step->at.buffer), (unsigned long long)step->at.offset);
    return text;
}

enum shoal_status coll_steps_init(struct schedule *const *schedules, int size, struct steps *steps)
{
    *steps = (struct steps){.size = size, .schedules = schedules};
    TRY(BASE_NEW_ARRAY(&steps->first, size + 1, "the steps of all ranks"));
    for (int rank = 0; rank < size; rank++) {
        uint64_t end = (uint64_t)steps->first[rank] + schedules[rank]->step_count;
        if (end >= STEPS_NONE)
            return base_error(SHOAL_ERR_LIMIT, "the ranks have more than 2^32 steps together: use "
                                               "smaller counts or longer segments");
        steps->first[rank + 1] = (uint32_t)end;
    }
    steps->count = steps->first[size];
    TRY(BASE_NEW_ARRAY(&steps->rank_of, steps->count, "the steps of all ranks"));
    TRY(BASE_NEW_ARRAY(&steps->partner, steps->count, "the steps of all ranks"));
    for (int rank = 0; rank < size; rank++)
        for (uint32_t i = steps->first[rank]; i < steps->first[rank + 1]; i++) {
            steps->rank_of[i] = rank;
            steps->partner[i] = STEPS_NONE;
        }
    return SHOAL_OK;
}

void coll_steps_release(struct steps *steps)
{
    base_free(steps->first);
    base_free(steps->rank_of);
    base_free(steps->partner);
}

/* The messages of one rank in one direction, by peer: number first[peer] + message in list. */
struct mailbox {
    uint32_t *first; /* [size+1] */
    uint32_t *list;
};

static enum shoal_status fill_mailbox(const struct steps *steps, int rank, enum step_kind kind,
                                      const struct mailbox *box)
{
    uint32_t begin = steps->first[rank], end = steps->first[rank + 1];
    memset(box->first, 0, sizeof(uint32_t) * (size_t)(steps->size + 1));
    for (uint32_t i = begin; i < end; i++) {
        const struct schedule_step *step = coll_steps_at(steps, i);
        if (step->kind == kind && step->message != box->first[step->peer + 1]++)
            return base_error(SHOAL_ERR_INTERNAL, "%s has message number %u out of order",
                              coll_steps_text(steps, i), step->message);
    }
    for (int peer = 0; peer < steps->size; peer++)
        box->first[peer + 1] += box->first[peer];
    for (uint32_t i = begin; i < end; i++) {
        const struct schedule_step *step = coll_steps_at(steps, i);
        if (step->kind == kind)
            box->list[box->first[step->peer] + step->message] = i;
    }
    return SHOAL_OK;
}

static enum shoal_status pair_up(struct steps *steps, uint32_t send, uint32_t receive)
{
    struct schedule_span from = coll_steps_at(steps, send)->at,
                         to = coll_steps_at(steps, receive)->at;
    if (from.count != to.count)
        return base_error(SHOAL_ERR_INTERNAL, "%s gets %llu elements from %s",
                          coll_steps_text(steps, receive), (unsigned long long)from.count,
                          coll_steps_text(steps, send));
    if ((from.buffer == BUFFER_WIDE) != (to.buffer == BUFFER_WIDE))
        return base_error(SHOAL_ERR_INTERNAL, "%s gets elements of another width from %s",
                          coll_steps_text(steps, receive), coll_steps_text(steps, send));
    steps->partner[send] = receive;
    steps->partner[receive] = send;
    return SHOAL_OK;
}

static enum shoal_status pair_sends(struct steps *steps, int rank, const struct mailbox *sends,
                                    const struct mailbox *receives)
{
    TRY(fill_mailbox(steps, rank, STEP_SEND, sends));
    for (int peer = 0; peer < steps->size; peer++) {
        const struct mailbox *theirs = &receives[peer];
        uint32_t sent = sends->first[peer + 1] - sends->first[peer];
        uint32_t awaited = theirs->first[rank + 1] - theirs->first[rank];
        if (sent != awaited)
            return base_error(SHOAL_ERR_INTERNAL,
                              "rank %d sends %u messages to rank %d, which receives %u", rank, sent,
                              peer, awaited);
        for (uint32_t i = 0; i < sent; i++)
            TRY(pair_up(steps, sends->list[sends->first[peer] + i],
                        theirs->list[theirs->first[rank] + i]));
    }
    return SHOAL_OK;
}

static enum shoal_status pair_all(struct steps *steps, const struct mailbox *sends,
                                  struct mailbox *receives, uint32_t *firsts, uint32_t *lists)
{
    for (int rank = 0; rank < steps->size; rank++) {
        receives[rank].first = firsts + (size_t)rank * (size_t)(steps->size + 1);
        receives[rank].list = lists + steps->first[rank];
        TRY(fill_mailbox(steps, rank, STEP_RECV, &receives[rank]));
    }
    for (int rank = 0; rank < steps->size; rank++)
        TRY(pair_sends(steps, rank, sends, receives));
    return SHOAL_OK;
}

enum shoal_status coll_steps_pair(struct steps *steps)
{
    size_t size = (size_t)steps->size;
    struct mailbox sends = {0}, *receives = NULL;
    uint32_t *firsts = NULL, *lists = NULL;
    enum shoal_status status = BASE_NEW_ARRAY(&receives, size, "the ranks' mailboxes");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&firsts, (size + 1) * (size + 1), "the ranks' mailboxes");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&lists, 2 * (size_t)steps->count, "the ranks' mailboxes");
    if (status == SHOAL_OK) {
        sends.first = firsts + size * (size + 1);
        sends.list = lists + steps->count;
        status = pair_all(steps, &sends, receives, firsts, lists);
    }
    base_free(receives);
    base_free(firsts);
    base_free(lists);
    return status;
}
