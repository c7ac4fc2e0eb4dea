/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c: proves a schedule right by running it on symbols; verify.h names the parts.
 *
 * A schedule is data without a branch, so one symbolic run stands for all runs with these counts:
 * nothing in it depends on values or on timing. What the tests add is many counts and layouts.
 */
#include "coll/verify.h"

#include "base/memory.h"
#include "base/status.h"

static enum shoal_status allocate(struct verifier *verifier, struct schedule *const *schedules)
{
    int size = verifier->size;
    TRY(coll_steps_init(schedules, size, &verifier->steps));
    const struct steps *steps = &verifier->steps;
    TRY(BASE_NEW_ARRAY(&verifier->memories, size, "the verifier's memories"));
    TRY(BASE_NEW_ARRAY(&verifier->depth, steps->count, "the verifier's steps"));
    if (verifier->shapes[0].kind == COLL_BARRIER)
        verifier->known_words = (size + 63) / 64;
    size_t words = (size_t)verifier->known_words;
    TRY(BASE_NEW_ARRAY(&verifier->known, steps->count * words, "the verifier's knowledge"));
    for (size_t number = 0; words && number < steps->count; number++) {
        int rank = steps->rank_of[number];
        verifier->known[number * words + (size_t)rank / 64] = UINT64_C(1) << (rank % 64);
    }
    for (int rank = 0; rank < size; rank++)
        TRY(coll_memory_init(&verifier->shapes[rank], schedules[rank], &verifier->memories[rank]));
    return coll_trees_create(schedule_rank_count(&verifier->shapes[0]), &verifier->trees);
}

static void release(struct verifier *verifier)
{
    for (int rank = 0; rank < verifier->size && verifier->memories; rank++)
        coll_memory_release(&verifier->memories[rank]);
    coll_trees_free(verifier->trees);
    base_free(verifier->memories);
    coll_steps_release(&verifier->steps);
    base_free(verifier->depth);
    base_free(verifier->known);
}

static enum shoal_status prove(struct verifier *verifier, struct schedule *const *schedules,
                               struct coll_report *report)
{
    TRY(allocate(verifier, schedules));
    for (int rank = 0; rank < verifier->size; rank++) {
        TRY(coll_verify_form(verifier, rank));
        TRY(coll_verify_race(verifier, rank));
    }
    TRY(coll_steps_pair(&verifier->steps));
    TRY(coll_verify_run(verifier));
    return coll_verify_result(verifier, report);
}

static void measure(const struct verifier *verifier, struct coll_report *report)
{
    for (uint32_t number = 0; number < verifier->steps.count; number++)
        if (verifier->depth[number] > report->rounds)
            report->rounds = verifier->depth[number];
    for (int rank = 0; rank < verifier->size; rank++) {
        const struct schedule *schedule = verifier->steps.schedules[rank];
        size_t elem_bytes = verifier->shapes[rank].elem_bytes;
        uint64_t sent = 0, scratch = schedule_scratch_bytes(schedule, elem_bytes);
        for (uint32_t i = 0; i < schedule->step_count; i++)
            if (schedule->steps[i].kind == STEP_SEND)
                sent += schedule_span_bytes(schedule->steps[i].at, elem_bytes);
        if (sent > report->bytes_sent_max)
            report->bytes_sent_max = sent;
        if (scratch > report->scratch_bytes_max)
            report->scratch_bytes_max = scratch;
    }
}

enum shoal_status coll_verify(const struct coll_shape *shapes, struct schedule *const *schedules,
                              struct coll_report *report)
{
    struct verifier verifier = {.size = shapes[0].size, .shapes = shapes};
    struct coll_report found = {0};
    enum shoal_status status = prove(&verifier, schedules, &found);
    if (status == SHOAL_OK) {
        measure(&verifier, &found);
        *report = found;
    }
    release(&verifier);
    return status;
}
