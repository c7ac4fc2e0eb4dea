/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c: proves a schedule right by running it on symbols; verify.h names the parts.
 *
 * A schedule is data without a branch, so one symbolic run stands for all runs with these counts:
 * nothing in it depends on values or on timing. What the tests add is many counts and layouts.
 */
#include "coll/verify.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"

const char *verify_step_text(const struct verifier *verifier, int rank, uint32_t number)
{
    static const char *const kinds[] = {"send", "recv", "reduce", "copy"};
    static const char *const buffers[] = {"input", "output", "scratch"};
    static _Thread_local char text[160];
    const struct schedule_step *step = &verifier->schedules[rank]->steps[number];
    char peer[32] = "";
    if (step->kind == STEP_SEND || step->kind == STEP_RECV)
        snprintf(peer, sizeof(peer), " %s rank %d", step->kind == STEP_SEND ? "to" : "from",
                 step->peer);
    snprintf(text, sizeof(text), "rank %d step %u (%s of %llu elements%s, %s+%llu)", rank, number,
             kinds[step->kind], (unsigned long long)step->at.count, peer, buffers[step->at.buffer],
             (unsigned long long)step->at.offset);
    return text;
}

static enum shoal_status allocate(struct verifier *verifier)
{
    int size = verifier->size;
    TRY(BASE_NEW_ARRAY(&verifier->memories, size, "the verifier's memories"));
    TRY(BASE_NEW_ARRAY(&verifier->first_step, size + 1, "the verifier's steps"));
    for (int rank = 0; rank < size; rank++) {
        uint64_t end = (uint64_t)verifier->first_step[rank] + verifier->schedules[rank]->step_count;
        if (end >= UINT32_MAX)
            return base_error(SHOAL_ERR_LIMIT, "too many steps to verify: use smaller counts");
        verifier->first_step[rank + 1] = (uint32_t)end;
    }
    size_t steps = verifier->first_step[size];
    TRY(BASE_NEW_ARRAY(&verifier->partner, steps, "the verifier's steps"));
    TRY(BASE_NEW_ARRAY(&verifier->depth, steps, "the verifier's steps"));
    if (verifier->shapes[0].kind == COLL_BARRIER)
        verifier->known_words = (size + 63) / 64;
    size_t words = (size_t)verifier->known_words;
    TRY(BASE_NEW_ARRAY(&verifier->known, steps * words, "the verifier's knowledge"));
    for (int rank = 0; rank < size && words; rank++)
        for (size_t i = verifier->first_step[rank]; i < verifier->first_step[rank + 1]; i++)
            verifier->known[i * words + (size_t)rank / 64] = UINT64_C(1) << (rank % 64);
    for (int rank = 0; rank < size; rank++)
        TRY(memory_init(&verifier->shapes[rank], verifier->schedules[rank],
                        &verifier->memories[rank]));
    return trees_create(size, &verifier->trees);
}

static void release(struct verifier *verifier)
{
    for (int rank = 0; rank < verifier->size && verifier->memories; rank++)
        memory_release(&verifier->memories[rank]);
    trees_free(verifier->trees);
    base_free(verifier->memories);
    base_free(verifier->first_step);
    base_free(verifier->partner);
    base_free(verifier->depth);
    base_free(verifier->known);
}

static enum shoal_status prove(struct verifier *verifier, struct coll_report *report)
{
    TRY(allocate(verifier));
    for (int rank = 0; rank < verifier->size; rank++) {
        TRY(verify_form(verifier, rank));
        TRY(verify_race(verifier, rank));
    }
    TRY(verify_messages(verifier));
    TRY(verify_run(verifier));
    return verify_result(verifier, report);
}

static void measure(const struct verifier *verifier, struct coll_report *report)
{
    for (uint32_t i = 0; i < verifier->first_step[verifier->size]; i++)
        if (verifier->depth[i] > report->rounds)
            report->rounds = verifier->depth[i];
    for (int rank = 0; rank < verifier->size; rank++) {
        const struct schedule *schedule = verifier->schedules[rank];
        uint64_t sent = 0;
        for (uint32_t i = 0; i < schedule->step_count; i++)
            if (schedule->steps[i].kind == STEP_SEND)
                sent += schedule->steps[i].at.count * verifier->shapes[rank].elem_bytes;
        if (sent > report->bytes_sent_max)
            report->bytes_sent_max = sent;
        if (schedule->scratch_count > report->scratch_max)
            report->scratch_max = schedule->scratch_count;
    }
}

enum shoal_status coll_verify(const struct coll_shape *shapes, struct schedule *const *schedules,
                              struct coll_report *report)
{
    struct verifier verifier = {.size = shapes[0].size, .shapes = shapes, .schedules = schedules};
    struct coll_report found = {0};
    enum shoal_status status = prove(&verifier, &found);
    if (status == SHOAL_OK) {
        measure(&verifier, &found);
        *report = found;
    }
    release(&verifier);
    return status;
}
