/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_mutation_test.c: breaks right pipelines of every kind in every way that a bug could, and
 * expects the check to notice, with a text that says what.
 */
#include "plan/pipeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"

#define STAGES       3
#define MICROBATCHES 6

typedef struct shoal_pipeline_operation operation;

static struct plan_pipeline *pipeline;

static void make(enum shoal_pipeline_kind kind)
{
    struct shoal_pipeline_options options = SHOAL_PIPELINE_OPTIONS_INIT;
    options.kind = kind;
    options.stage_count = STAGES;
    options.microbatch_count = MICROBATCHES;
    if (kind == SHOAL_PIPELINE_INTERLEAVED)
        options.active_microbatches = STAGES;
    assert_int_equal(shoal_pipeline_create(&options, (shoal_pipeline_t *)&pipeline), SHOAL_OK);
    assert_int_equal(plan_pipeline_check(pipeline), SHOAL_OK);
}

static void expect_caught(const char *word)
{
    const char *name = shoal_pipeline_name(pipeline->kind);
    if (plan_pipeline_check(pipeline) != SHOAL_ERR_INTERNAL)
        fail_msg("%s: not caught: %s", name, word);
    if (!strstr(base_error_text(), word))
        fail_msg("%s: '%s' does not say '%s'", name, base_error_text(), word);
    plan_pipeline_free(pipeline);
}

/* Where the n-th operation of some work stands on a stage. */
static operation *find(int stage, enum shoal_pipeline_work work, int n)
{
    for (int i = pipeline->first[stage]; i < pipeline->first[stage + 1]; i++)
        if (pipeline->operations[i].work == work && n-- == 0)
            return &pipeline->operations[i];
    fail_msg("stage %d has no such operation", stage);
    return NULL;
}

static operation *same(int stage, enum shoal_pipeline_work work, const operation *other)
{
    for (int n = 0;; n++) {
        operation *at = find(stage, work, n);
        if (at->microbatch == other->microbatch && at->chunk == other->chunk)
            return at;
    }
}

static void swap(operation *a, operation *b)
{
    operation kept = *a;
    *a = *b;
    *b = kept;
}

/* Takes one out and puts it back so that it stands at `to`. */
static void move(operation *from, operation *to)
{
    operation kept = *from;
    if (from < to)
        memmove(from, from + 1, (size_t)(to - from) * sizeof(*from));
    else
        memmove(to + 1, to, (size_t)(from - to) * sizeof(*from));
    *to = kept;
}

static enum shoal_pipeline_work backward(void)
{
    return pipeline->split ? SHOAL_WORK_BACKWARD_INPUT : SHOAL_WORK_BACKWARD;
}

static operation *last_of(int stage)
{
    return &pipeline->operations[pipeline->first[stage + 1] - 1];
}

/* ---- one stage's operations ------------------------------------------------------------------ */

static void repeats_and_gaps(enum shoal_pipeline_kind kind)
{
    enum shoal_pipeline_work works[] = {SHOAL_WORK_FORWARD, SHOAL_WORK_BACKWARD_WEIGHT};
    for (int stage = 0; stage < STAGES; stage++)
        for (int n = 1; n < MICROBATCHES; n++)
            for (int i = 0; i < 2; i++) {
                make(kind);
                enum shoal_pipeline_work work = i && !pipeline->split ? backward() : works[i];
                *find(stage, work, n) = *find(stage, work, n - 1);
                expect_caught("twice");
            }
}

static void what_does_not_exist(enum shoal_pipeline_kind kind)
{
    int wrong[] = {-1, MICROBATCHES, 1 << 30};
    for (int i = 0; i < 3; i++) {
        make(kind);
        find(1, SHOAL_WORK_FORWARD, 2)->microbatch = wrong[i];
        expect_caught("not its own");
    }
    int chunks[] = {-1, 0, 2, 3 * STAGES};
    for (int i = 0; i < 4; i++) {
        make(kind);
        find(1, backward(), 2)->chunk = chunks[i];
        expect_caught("not its own");
    }
}

static void the_wrong_work(enum shoal_pipeline_kind kind)
{
    make(kind);
    enum shoal_pipeline_work other =
        pipeline->split ? SHOAL_WORK_BACKWARD : SHOAL_WORK_BACKWARD_INPUT;
    find(2, backward(), 1)->work = other;
    expect_caught("not its own");
    make(kind);
    find(0, SHOAL_WORK_FORWARD, 1)->work = (enum shoal_pipeline_work)7;
    expect_caught("unknown work");
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void a_backward_before_its_forward(enum shoal_pipeline_kind kind)
{
    for (int stage = 0; stage < STAGES; stage++)
        for (int n = 0; n < MICROBATCHES; n++) {
            make(kind);
            operation *forward = find(stage, SHOAL_WORK_FORWARD, n);
            swap(forward, same(stage, backward(), forward));
            expect_caught("wait for each other");
        }
}

static void a_weight_gradient_before_its_input_gradient(enum shoal_pipeline_kind kind)
{
    for (int stage = 0; stage < STAGES; stage++)
        for (int n = 0; n < MICROBATCHES; n++) {
            make(kind);
            if (!pipeline->split) {
                plan_pipeline_free(pipeline);
                return;
            }
            operation *input = find(stage, SHOAL_WORK_BACKWARD_INPUT, n);
            swap(input, same(stage, SHOAL_WORK_BACKWARD_WEIGHT, input));
            expect_caught("wait for each other");
        }
}

/* The first stage wants a backward before it lets a microbatch go on which the last one waits. */
static void stages_in_a_circle(enum shoal_pipeline_kind kind)
{
    make(kind);
    operation *late = find(0, SHOAL_WORK_FORWARD, 0);
    operation *back = find(0, backward(), 0);
    move(late, back);
    expect_caught("wait for each other");

    make(kind);
    operation *first = find(STAGES - 1, SHOAL_WORK_FORWARD, 0);
    move(first, last_of(STAGES - 1));
    expect_caught("wait for each other");
}

/* A forward that comes sooner, or a release that comes later, than memory allows. */
static void too_much_is_kept(enum shoal_pipeline_kind kind)
{
    for (int stage = 0; stage < STAGES; stage++) {
        make(kind);
        enum shoal_pipeline_work release =
            pipeline->split ? SHOAL_WORK_BACKWARD_WEIGHT : SHOAL_WORK_BACKWARD;
        int chunks = plan_pipeline_stage_chunk_count(pipeline, stage);
        int most = plan_pipeline_held_max(pipeline, stage);
        if (most >= chunks * MICROBATCHES) { /* no limit that could be broken */
            plan_pipeline_free(pipeline);
            continue;
        }
        /* All that gives room before the first forward that needs it goes behind that forward. */
        operation *full = find(stage, SHOAL_WORK_FORWARD, most);
        for (operation *at = &pipeline->operations[pipeline->first[stage]]; at < full;)
            if (at->work == release)
                move(at, full--);
            else
                at++;
        enum shoal_status status = plan_pipeline_check(pipeline);
        assert_int_equal(status, SHOAL_ERR_INTERNAL);
        if (!strstr(base_error_text(), "are allowed") &&
            !strstr(base_error_text(), "wait for each other"))
            fail_msg("%s: '%s'", shoal_pipeline_name(kind), base_error_text());
        plan_pipeline_free(pipeline);
    }
}

/* Where nothing else is wrong: the check of memory is the one that speaks. */
static void a_smaller_limit_is_broken(enum shoal_pipeline_kind kind)
{
    make(kind);
    bool limited = kind != SHOAL_PIPELINE_SIMPLE && kind != SHOAL_PIPELINE_INTERLEAVED_1F1B;
    if (limited) {
        pipeline->active--;
        expect_caught("are allowed");
    } else {
        plan_pipeline_free(pipeline);
    }
}

/* The only microbatch may keep three activations, one of each chunk. When it has given one back,
 * the stage has room for a second microbatch, which may not enter all the same. */
static void more_microbatches_under_way_than_allowed(void **state)
{
    (void)state;
    struct shoal_pipeline_options options = SHOAL_PIPELINE_OPTIONS_INIT;
    options.kind = SHOAL_PIPELINE_INTERLEAVED;
    options.microbatch_count = 3;
    options.chunk_count = 3;
    options.active_microbatches = 1;
    assert_int_equal(shoal_pipeline_create(&options, (shoal_pipeline_t *)&pipeline), SHOAL_OK);
    operation *second = find(0, SHOAL_WORK_FORWARD, 3);
    assert_int_equal(second->microbatch, 1);
    move(second, find(0, SHOAL_WORK_BACKWARD, 1));
    expect_caught("under way");
}

/* ---- all kinds ------------------------------------------------------------------------------- */

static void for_each_kind(void (*damage)(enum shoal_pipeline_kind kind))
{
    for (int kind = 0; kind < SHOAL_PIPELINE_KIND_COUNT; kind++)
        damage((enum shoal_pipeline_kind)kind);
}

static void what_a_stage_has_is_checked(void **state)
{
    (void)state;
    for_each_kind(repeats_and_gaps);
    for_each_kind(what_does_not_exist);
    for_each_kind(the_wrong_work);
}

static void the_order_is_checked(void **state)
{
    (void)state;
    for_each_kind(a_backward_before_its_forward);
    for_each_kind(a_weight_gradient_before_its_input_gradient);
    for_each_kind(stages_in_a_circle);
}

static void the_memory_is_checked(void **state)
{
    (void)state;
    for_each_kind(too_much_is_kept);
    for_each_kind(a_smaller_limit_is_broken);
}

/* Two operations of a stage change places, anywhere: either the check objects, or the order still
 * ends, as its simulation shows. */
static void random_swaps_are_refused_or_harmless(void **state)
{
    (void)state;
    unsigned draw = 1;
    int refused = 0;
    for (int turn = 0; turn < 3000; turn++) {
        struct shoal_pipeline_result result = SHOAL_PIPELINE_RESULT_INIT;
        make((enum shoal_pipeline_kind)(turn % SHOAL_PIPELINE_KIND_COUNT));
        int stage = turn % STAGES, first = pipeline->first[stage];
        unsigned count = (unsigned)(pipeline->first[stage + 1] - first);
        operation *places[2];
        for (int i = 0; i < 2; i++) {
            draw = draw * 1664525u + 1013904223u;
            places[i] = &pipeline->operations[first + (int)((draw >> 8) % count)];
        }
        swap(places[0], places[1]);
        enum shoal_status checked = plan_pipeline_check(pipeline);
        enum shoal_status ran =
            shoal_pipeline_simulate((shoal_pipeline_t)pipeline, NULL, &result, NULL, NULL);
        assert_true(checked == SHOAL_OK || checked == SHOAL_ERR_INTERNAL);
        assert_true(checked != SHOAL_OK || ran == SHOAL_OK);
        refused += checked != SHOAL_OK;
        plan_pipeline_free(pipeline);
    }
    assert_in_range(refused, 1000, 2999);
}

static void the_check_survives_failing_allocations(void **state)
{
    (void)state;
    make(SHOAL_PIPELINE_1F1B);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        base_memory_fail_at(nth);
        assert_int_equal(plan_pipeline_check(pipeline), SHOAL_ERR_MEMORY);
        base_memory_fail_at(0);
    }
    plan_pipeline_free(pipeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_stage_has_is_checked),
        cmocka_unit_test(the_order_is_checked),
        cmocka_unit_test(the_memory_is_checked),
        cmocka_unit_test(more_microbatches_under_way_than_allowed),
        cmocka_unit_test(random_swaps_are_refused_or_harmless),
        cmocka_unit_test(the_check_survives_failing_allocations),
    };
    return cmocka_run_group_tests_name("plan pipeline mutations", tests, NULL, NULL);
}
