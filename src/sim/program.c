/* SPDX-License-Identifier: Apache-2.0 */
/* program.c: packs schedules, pairs their messages, and finds out whether hosts do the same. */
#include "sim/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* Packed steps take about 60 bytes with what is waited for: 4 GB. */
#define STEPS_MAX    UINT64_C(64000000)
#define HOSTS_LOOKED 8

/* ---- packing ------------------------------------------------------------------------------- */

static double work_bytes(const struct schedule *schedule, const struct schedule_step *step,
                         size_t elem_bytes)
{
    if (step->kind != STEP_REDUCE)
        return (double)schedule_span_bytes(step->at, elem_bytes);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < step->source_count; i++)
        bytes += schedule_span_bytes(schedule->sources[step->source_first + i], elem_bytes);
    return (double)bytes;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

/* Those that wait for a step are put in program order, so that equal programs look equal. */
static enum shoal_status pack(const struct schedule *schedule, size_t elem_bytes,
                              struct sim_program *program)
{
    *program = (struct sim_program){.step_count = schedule->step_count,
                                    .edge_count = schedule->edge_count};
    TRY(BASE_NEW_ARRAY(&program->steps, schedule->step_count, "the simulation's steps"));
    TRY(BASE_NEW_ARRAY(&program->edges, schedule->edge_count, "the simulation's steps"));
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        const struct schedule_step *step = &schedule->steps[i];
        program->steps[i] = (struct sim_step){.kind = step->kind,
                                              .peer = step->peer,
                                              .message = step->message,
                                              .after_first = step->after_first,
                                              .after_count = step->after_count,
                                              .wait_count = step->wait_count,
                                              .bytes = work_bytes(schedule, step, elem_bytes)};
    }
    if (schedule->edge_count)
        memcpy(program->edges, schedule->edges, sizeof(uint32_t) * schedule->edge_count);
    for (uint32_t i = 0; i < program->step_count; i++)
        qsort(&program->edges[program->steps[i].after_first], program->steps[i].after_count,
              sizeof(uint32_t), compare_numbers);
    return SHOAL_OK;
}

static void program_release(struct sim_program *program)
{
    base_free(program->steps);
    base_free(program->edges);
}

static enum shoal_status make_program(const struct coll_algorithm *algorithm,
                                      const struct coll_shape *shape, int rank,
                                      struct sim_program *program)
{
    struct coll_shape own = *shape;
    struct schedule *schedule;
    own.rank = rank;
    TRY(coll_schedule(algorithm, &own, &schedule));
    enum shoal_status status = pack(schedule, shape->elem_bytes, program);
    schedule_free(schedule);
    return status;
}

/* ---- pairing ------------------------------------------------------------------------------- */

/* The receives of a program in the order of peers and messages. */
struct inbox {
    struct arrival {
        int peer;
        uint32_t message, step;
    } * arrivals;
    uint32_t count;
};

static int compare_arrivals(const void *a, const void *b)
{
    const struct arrival *left = a, *right = b;
    if (left->peer != right->peer)
        return left->peer < right->peer ? -1 : 1;
    return left->message < right->message ? -1 : left->message > right->message;
}

static enum shoal_status fill_inbox(struct sim_program *program, struct inbox *inbox)
{
    TRY(BASE_NEW_ARRAY(&inbox->arrivals, program->step_count, "the simulation's messages"));
    for (uint32_t i = 0; i < program->step_count; i++) {
        struct sim_step *step = &program->steps[i];
        step->partner = UINT32_MAX;
        if (step->kind == STEP_RECV)
            inbox->arrivals[inbox->count++] = (struct arrival){step->peer, step->message, i};
    }
    qsort(inbox->arrivals, inbox->count, sizeof(inbox->arrivals[0]), compare_arrivals);
    return SHOAL_OK;
}

/* Where rank 0's host is, seen from host `host`, if its peer is turned or flipped to host 0. */
static int seen_from(const struct sim_programs *programs, int host)
{
    return programs->symmetry == SIM_FLIP ? host
                                          : (programs->host_count - host) % programs->host_count;
}

/* The ends of the messages of program `at`; false: one has no other end. */
static bool pair_sends(struct sim_programs *programs, int at, const struct inbox *inboxes)
{
    int each = programs->ranks_per_host;
    struct sim_program *program = &programs->programs[at];
    for (uint32_t i = 0; i < program->step_count; i++) {
        struct sim_step *step = &program->steps[i];
        if (step->kind != STEP_SEND)
            continue;
        struct arrival wanted = {at, step->message, 0};
        int to = step->peer;
        if (programs->symmetry != SIM_NONE) {
            to = step->peer % each;
            wanted.peer = seen_from(programs, step->peer / each) * each + at;
        }
        const struct arrival *found = bsearch(&wanted, inboxes[to].arrivals, inboxes[to].count,
                                              sizeof(wanted), compare_arrivals);
        if (!found || programs->programs[to].steps[found->step].bytes != step->bytes)
            return false;
        step->partner = found->step;
        programs->programs[to].steps[found->step].partner = i;
    }
    return true;
}

static bool all_are_paired(const struct sim_programs *programs)
{
    for (int at = 0; at < programs->program_count; at++)
        for (uint32_t i = 0; i < programs->programs[at].step_count; i++) {
            const struct sim_step *step = &programs->programs[at].steps[i];
            if (step->kind == STEP_RECV && step->partner == UINT32_MAX)
                return false;
        }
    return true;
}

static enum shoal_status pair_messages(struct sim_programs *programs, bool *out_paired)
{
    struct inbox *inboxes;
    TRY(BASE_NEW_ARRAY(&inboxes, programs->program_count, "the simulation's messages"));
    enum shoal_status status = SHOAL_OK;
    for (int at = 0; status == SHOAL_OK && at < programs->program_count; at++)
        status = fill_inbox(&programs->programs[at], &inboxes[at]);
    bool paired = status == SHOAL_OK;
    for (int at = 0; paired && at < programs->program_count; at++)
        paired = pair_sends(programs, at, inboxes);
    *out_paired = paired && all_are_paired(programs);
    for (int at = 0; at < programs->program_count; at++)
        base_free(inboxes[at].arrivals);
    base_free(inboxes);
    return status;
}

/* ---- symmetry ------------------------------------------------------------------------------ */

enum likeness { DIFFERENT, ALIKE, EQUAL };

/* Compares a rank's own program with the one that it has by symmetry. They are alike when they have
 * the same steps, with the same peers, and only wait differently. */
static enum likeness compare_programs(const struct sim_programs *programs, int rank,
                                      const struct sim_program *own)
{
    const struct sim_program *other = sim_program_of(programs, rank);
    if (own->step_count != other->step_count)
        return DIFFERENT;
    bool equal = own->edge_count == other->edge_count;
    for (uint32_t i = 0; i < own->step_count; i++) {
        const struct sim_step *a = &own->steps[i], *b = &other->steps[i];
        bool moves = a->kind == STEP_SEND || a->kind == STEP_RECV;
        if (a->kind != b->kind || a->bytes != b->bytes)
            return DIFFERENT;
        if (moves && (a->message != b->message || a->peer != sim_peer(programs, rank, b->peer)))
            return DIFFERENT;
        equal &= a->wait_count == b->wait_count && a->after_count == b->after_count;
    }
    equal = equal && (own->edge_count == 0 ||
                      memcmp(own->edges, other->edges, sizeof(uint32_t) * own->edge_count) == 0);
    return equal ? EQUAL : ALIKE;
}

/* All hosts if they are few; else the last, the first ones, and some between. */
static int host_to_look_at(const struct sim_programs *programs, int i)
{
    int count = programs->host_count;
    if (count <= HOSTS_LOOKED)
        return i;
    return i < 3 ? i + 1 : count - 1 - (int)((int64_t)(i - 3) * (count - 5) / (HOSTS_LOOKED - 3));
}

static enum shoal_status look_at_others(const struct coll_algorithm *algorithm,
                                        const struct coll_shape *shape,
                                        const struct sim_programs *programs, enum likeness *out)
{
    int each = programs->ranks_per_host, looks = programs->host_count;
    if (looks > HOSTS_LOOKED)
        looks = HOSTS_LOOKED;
    *out = EQUAL;
    for (int i = 0; *out != DIFFERENT && i < looks * each; i++) {
        int rank = host_to_look_at(programs, i / each) * each + i % each;
        struct sim_program own = {0};
        enum shoal_status status = make_program(algorithm, shape, rank, &own);
        enum likeness likeness = DIFFERENT;
        if (status == SHOAL_OK)
            likeness = compare_programs(programs, rank, &own);
        program_release(&own);
        TRY(status);
        *out = likeness < *out ? likeness : *out;
    }
    return SHOAL_OK;
}

static bool is_power_of_two(int number)
{
    return (number & (number - 1)) == 0;
}

static enum shoal_status find_symmetry(const struct coll_algorithm *algorithm,
                                       const struct coll_shape *shape,
                                       struct sim_programs *programs, bool *found)
{
    *found = false;
    for (int i = 0; i < 2 && !*found; i++) {
        programs->symmetry = i == 0 ? SIM_TURN : SIM_FLIP;
        if (programs->symmetry == SIM_FLIP && !is_power_of_two(programs->host_count))
            break;
        enum likeness likeness;
        TRY(look_at_others(algorithm, shape, programs, &likeness));
        programs->exact = likeness == EQUAL;
        if (likeness != DIFFERENT)
            TRY(pair_messages(programs, found));
    }
    return SHOAL_OK;
}

/* ---- all together -------------------------------------------------------------------------- */

static enum shoal_status new_programs(const struct coll_shape *shape, int program_count,
                                      struct sim_programs **out)
{
    struct sim_programs *programs;
    TRY(BASE_NEW(&programs, "the simulation's programs"));
    programs->size = shape->size;
    programs->host_count = shape->host_count;
    programs->server_count = shape->server_count;
    programs->ranks_per_host = shape->size / shape->host_count;
    programs->program_count = program_count;
    programs->exact = true;
    enum shoal_status status =
        BASE_NEW_ARRAY(&programs->programs, program_count, "the simulation's programs");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&programs->host_of, shape->size, "the simulation's programs");
    if (status != SHOAL_OK) {
        sim_programs_free(programs);
        return status;
    }
    memcpy(programs->host_of, shape->host_of, sizeof(int) * (size_t)shape->size);
    *out = programs;
    return SHOAL_OK;
}

void sim_programs_free(struct sim_programs *programs)
{
    if (!programs)
        return;
    for (int at = 0; programs->programs && at < programs->program_count; at++)
        program_release(&programs->programs[at]);
    base_free(programs->programs);
    base_free(programs->host_of);
    base_free(programs);
}

static void count_steps(struct sim_programs *programs)
{
    for (int rank = 0; rank < programs->size; rank++)
        programs->step_count += sim_program_of(programs, rank)->step_count;
    for (int at = 0; at < programs->program_count; at++) {
        uint64_t sent = 0;
        for (uint32_t i = 0; i < programs->programs[at].step_count; i++)
            sent += programs->programs[at].steps[i].kind == STEP_SEND;
        if (sent > programs->messages_max)
            programs->messages_max = sent;
    }
}

/* Makes the programs of ranks 0 to program_count - 1; the rest is the caller's. */
static enum shoal_status make_programs(const struct coll_algorithm *algorithm,
                                       const struct coll_shape *shape,
                                       struct sim_programs *programs)
{
    uint64_t steps = 0;
    programs->algorithm = algorithm->name;
    for (int rank = 0; rank < programs->program_count; rank++) {
        TRY(make_program(algorithm, shape, rank, &programs->programs[rank]));
        steps += programs->programs[rank].step_count;
        uint64_t expected = steps / (uint64_t)(rank + 1) * (uint64_t)programs->program_count;
        if (expected > STEPS_MAX)
            return base_error(SHOAL_ERR_LIMIT,
                              "%s on %d ranks has about %llu million steps, and no symmetry that "
                              "would spare them: at most %llu million; longer segments make fewer",
                              algorithm->name, shape->size,
                              (unsigned long long)(expected / 1000000),
                              (unsigned long long)(STEPS_MAX / 1000000));
    }
    return SHOAL_OK;
}

static enum shoal_status create_symmetric(const struct coll_algorithm *algorithm,
                                          const struct coll_shape *shape, bool *found,
                                          struct sim_programs **out)
{
    struct sim_programs *programs;
    *found = false;
    TRY(new_programs(shape, shape->size / shape->host_count, &programs));
    enum shoal_status status = make_programs(algorithm, shape, programs);
    if (status == SHOAL_OK)
        status = find_symmetry(algorithm, shape, programs, found);
    if (status == SHOAL_OK && *found) {
        count_steps(programs);
        *out = programs;
    } else {
        sim_programs_free(programs);
    }
    return status;
}

static enum shoal_status pair_all(struct sim_programs *programs)
{
    bool paired;
    TRY(pair_messages(programs, &paired));
    if (!paired)
        return base_error(SHOAL_ERR_INTERNAL, "%s on %d ranks has a message without another end",
                          programs->algorithm, programs->size);
    count_steps(programs);
    return SHOAL_OK;
}

enum shoal_status sim_programs_create(const struct coll_algorithm *algorithm,
                                      const struct coll_shape *shape, bool symmetric,
                                      struct sim_programs **out)
{
    struct sim_programs *programs;
    bool found = false;
    bool alike = shape->server_count == 0 && !shape->shares;
    if (symmetric && alike && shape->host_count > 1)
        TRY(create_symmetric(algorithm, shape, &found, out));
    if (found)
        return SHOAL_OK;
    TRY(new_programs(shape, shape->size, &programs));
    enum shoal_status status = make_programs(algorithm, shape, programs);
    if (status == SHOAL_OK)
        status = pair_all(programs);
    if (status == SHOAL_OK)
        *out = programs;
    else
        sim_programs_free(programs);
    return status;
}

enum shoal_status sim_programs_pack(const struct coll_shape *shape,
                                    struct schedule *const *schedules, struct sim_programs **out)
{
    struct sim_programs *programs;
    TRY(new_programs(shape, shape->size, &programs));
    programs->algorithm = schedules[0]->algorithm;
    enum shoal_status status = SHOAL_OK;
    for (int rank = 0; status == SHOAL_OK && rank < shape->size; rank++)
        status = pack(schedules[rank], shape->elem_bytes, &programs->programs[rank]);
    if (status == SHOAL_OK)
        status = pair_all(programs);
    if (status == SHOAL_OK)
        *out = programs;
    else
        sim_programs_free(programs);
    return status;
}
