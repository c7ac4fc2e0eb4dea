/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coll_verify_race.c: the form of one rank's schedule, and that its steps don't disturb each other.
 *
 * Two steps may run at once unless one waits for the other, at once or through others. So each step
 * gets the set of all steps that it waits for, and each element the last step that wrote it and
 * those that have read it since; in program order, an access must wait for those that it conflicts
 * with. Waiting is transitive, so it is enough to look at the latest ones.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "coll/verify.h"

#define NONE      UINT32_MAX
#define STEPS_MAX 32768 /* the sets of earlier steps then take 128 MiB */

static const char *text_of(const struct verifier *verifier, int rank, uint32_t step)
{
    return coll_steps_text(&verifier->steps, verifier->steps.first[rank] + step);
}

/* ---- form ---------------------------------------------------------------------------------- */

static bool is_inside(const struct memory *memory, struct schedule_span span)
{
    uint64_t extent = memory->extent[span.buffer];
    return span.offset <= extent && span.count <= extent - span.offset;
}

static enum shoal_status check_sources(const struct verifier *verifier, int rank, uint32_t number)
{
    const struct schedule *schedule = verifier->steps.schedules[rank];
    const struct schedule_step *step = &schedule->steps[number];
    const struct memory *memory = &verifier->memories[rank];
    uint64_t to = memory->base[step->at.buffer] + step->at.offset;
    if (step->source_count == 0 || (step->kind == STEP_COPY && step->source_count != 1) ||
        step->source_first + step->source_count > schedule->source_count)
        return base_error(SHOAL_ERR_INTERNAL, "%s has a wrong number of sources",
                          text_of(verifier, rank, number));
    for (uint32_t i = 0; i < step->source_count; i++) {
        struct schedule_span source = schedule->sources[step->source_first + i];
        uint64_t from = memory->base[source.buffer] + source.offset;
        if (source.count != step->at.count || !is_inside(memory, source))
            return base_error(SHOAL_ERR_INTERNAL, "%s: source %u has a wrong length or place",
                              text_of(verifier, rank, number), i);
        bool apart = from + source.count <= to || to + source.count <= from;
        if (from != to && !apart)
            return base_error(SHOAL_ERR_INTERNAL, "%s partly overlaps its source %u",
                              text_of(verifier, rank, number), i);
    }
    return SHOAL_OK;
}

/* Each sum of 16-bit floats is rounded once, when it is complete: one that is not final stays in
 * f32, and what is final is never summed again, as the trees show. */
static enum shoal_status check_rounding(const struct verifier *verifier, int rank, uint32_t number)
{
    const struct schedule *schedule = verifier->steps.schedules[rank];
    const struct schedule_step *step = &schedule->steps[number];
    bool is_sum = step->source_count > 1, stays_wide = step->at.buffer == BUFFER_WIDE;
    for (uint32_t i = 0; i < step->source_count; i++)
        is_sum |= schedule->sources[step->source_first + i].buffer == BUFFER_WIDE;
    if (stays_wide && step->final)
        return base_error(SHOAL_ERR_INTERNAL, "%s is final, but leaves its sum in f32",
                          text_of(verifier, rank, number));
    if (verifier->shapes[rank].wide_sums && is_sum && !stays_wide && !step->final)
        return base_error(SHOAL_ERR_INTERNAL, "%s rounds a sum that is not final",
                          text_of(verifier, rank, number));
    return SHOAL_OK;
}

static enum shoal_status check_step(const struct verifier *verifier, int rank, uint32_t number)
{
    const struct schedule_step *step = &verifier->steps.schedules[rank]->steps[number];
    if (!is_inside(&verifier->memories[rank], step->at))
        return base_error(SHOAL_ERR_INTERNAL, "%s reaches beyond its buffer",
                          text_of(verifier, rank, number));
    if (step->kind != STEP_SEND && step->at.buffer == BUFFER_INPUT)
        return base_error(SHOAL_ERR_INTERNAL, "%s writes to the input",
                          text_of(verifier, rank, number));
    if (step->kind == STEP_REDUCE || step->kind == STEP_COPY) {
        TRY(check_sources(verifier, rank, number));
        return check_rounding(verifier, rank, number);
    }
    if (step->peer < 0 || step->peer >= verifier->size || step->peer == rank)
        return base_error(SHOAL_ERR_INTERNAL, "%s has no peer", text_of(verifier, rank, number));
    return SHOAL_OK;
}

enum shoal_status coll_verify_form(const struct verifier *verifier, int rank)
{
    const struct schedule *schedule = verifier->steps.schedules[rank];
    if (schedule->step_count > STEPS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "rank %d has %u steps, too many to verify (%d)", rank,
                          schedule->step_count, STEPS_MAX);
    if (schedule->wide_count > 0 && !verifier->shapes[rank].wide_sums)
        return base_error(SHOAL_ERR_INTERNAL, "rank %d has f32 sums, but no 16-bit floats", rank);
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        const struct schedule_step *step = &schedule->steps[i];
        TRY(check_step(verifier, rank, i));
        if (step->after_first + step->after_count > schedule->edge_count)
            return base_error(SHOAL_ERR_INTERNAL, "%s has edges beyond the end",
                              text_of(verifier, rank, i));
        for (uint32_t k = 0; k < step->after_count; k++) {
            uint32_t later = schedule->edges[step->after_first + k];
            if (later <= i || later >= schedule->step_count)
                return base_error(SHOAL_ERR_INTERNAL, "an edge of %s does not lead forward",
                                  text_of(verifier, rank, i));
        }
    }
    return SHOAL_OK;
}

/* ---- races --------------------------------------------------------------------------------- */

struct reading {
    uint32_t step, next;
};

struct race {
    const struct verifier *verifier;
    int rank;
    uint32_t words;                   /* of a set of steps */
    uint64_t *before;                 /* [words] per step */
    uint32_t *writer, *first_reading; /* per cell */
    struct reading *readings;
    uint32_t reading_count, reading_capacity;
};

static bool waits_for(const struct race *race, uint32_t step, uint32_t earlier)
{
    return race->before[(uint64_t)step * race->words + earlier / 64] >> (earlier % 64) & 1;
}

/* Each step's set, handed on along the edges. */
static void fill_sets(struct race *race)
{
    const struct schedule *schedule = race->verifier->steps.schedules[race->rank];
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        const struct schedule_step *step = &schedule->steps[i];
        const uint64_t *mine = &race->before[(uint64_t)i * race->words];
        for (uint32_t k = 0; k < step->after_count; k++) {
            uint64_t *theirs =
                &race->before[(uint64_t)schedule->edges[step->after_first + k] * race->words];
            for (uint32_t word = 0; word <= i / 64; word++)
                theirs[word] |= mine[word];
            theirs[i / 64] |= UINT64_C(1) << (i % 64);
        }
    }
}

static enum shoal_status report_race(const struct race *race, uint32_t step, uint32_t earlier,
                                     uint64_t cell)
{
    return base_error(SHOAL_ERR_INTERNAL, "%s does not wait for %s, but both use cell %llu",
                      text_of(race->verifier, race->rank, step),
                      text_of(race->verifier, race->rank, earlier), (unsigned long long)cell);
}

static enum shoal_status add_reading(struct race *race, uint64_t cell, uint32_t step)
{
    if (race->reading_count == race->reading_capacity) {
        uint32_t larger = race->reading_capacity ? 2 * race->reading_capacity : 1024;
        struct reading *fresh;
        TRY(BASE_NEW_ARRAY(&fresh, larger, "the verifier's readings"));
        if (race->reading_count)
            memcpy(fresh, race->readings, sizeof(*fresh) * race->reading_count);
        base_free(race->readings);
        race->readings = fresh;
        race->reading_capacity = larger;
    }
    race->readings[race->reading_count] = (struct reading){step, race->first_reading[cell]};
    race->first_reading[cell] = race->reading_count++;
    return SHOAL_OK;
}

static enum shoal_status read_cells(struct race *race, struct schedule_span span, uint32_t step)
{
    uint64_t begin = race->verifier->memories[race->rank].base[span.buffer] + span.offset;
    for (uint64_t cell = begin; cell < begin + span.count; cell++) {
        uint32_t writer = race->writer[cell];
        if (writer != NONE && !waits_for(race, step, writer))
            return report_race(race, step, writer, cell);
        TRY(add_reading(race, cell, step));
    }
    return SHOAL_OK;
}

static enum shoal_status write_cells(struct race *race, struct schedule_span span, uint32_t step)
{
    uint64_t begin = race->verifier->memories[race->rank].base[span.buffer] + span.offset;
    for (uint64_t cell = begin; cell < begin + span.count; cell++) {
        uint32_t writer = race->writer[cell];
        if (writer != NONE && !waits_for(race, step, writer))
            return report_race(race, step, writer, cell);
        for (uint32_t i = race->first_reading[cell]; i != NONE; i = race->readings[i].next) {
            uint32_t reader = race->readings[i].step;
            if (reader != step && !waits_for(race, step, reader))
                return report_race(race, step, reader, cell);
        }
        race->writer[cell] = step;
        race->first_reading[cell] = NONE;
    }
    return SHOAL_OK;
}

static enum shoal_status walk(struct race *race)
{
    const struct schedule *schedule = race->verifier->steps.schedules[race->rank];
    fill_sets(race);
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        const struct schedule_step *step = &schedule->steps[i];
        if (step->kind == STEP_SEND) {
            TRY(read_cells(race, step->at, i));
            continue;
        }
        for (uint32_t k = 0; step->kind != STEP_RECV && k < step->source_count; k++)
            TRY(read_cells(race, schedule->sources[step->source_first + k], i));
        TRY(write_cells(race, step->at, i));
    }
    return SHOAL_OK;
}

enum shoal_status coll_verify_race(const struct verifier *verifier, int rank)
{
    uint64_t cells = verifier->memories[rank].cell_count;
    uint32_t steps = verifier->steps.schedules[rank]->step_count;
    struct race race = {.verifier = verifier, .rank = rank, .words = steps / 64 + 1};
    enum shoal_status status =
        BASE_NEW_ARRAY(&race.before, (uint64_t)steps * race.words, "the verifier's sets");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&race.writer, cells, "the verifier's writers");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&race.first_reading, cells, "the verifier's readers");
    if (status == SHOAL_OK) {
        memset(race.writer, 0xff, sizeof(uint32_t) * cells);
        memset(race.first_reading, 0xff, sizeof(uint32_t) * cells);
        status = walk(&race);
    }
    base_free(race.before);
    base_free(race.writer);
    base_free(race.first_reading);
    base_free(race.readings);
    return status;
}
