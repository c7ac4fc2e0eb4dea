/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_test.c: every schedule takes the time and the memory that its theory says, in virtual
 * time; times that nobody foresaw never stop one.
 */
#include "plan/pipeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"

#define STAGES_MOST 16
#define CHUNKS_MOST (4 * STAGES_MOST)

static const int stage_counts[] = {1, 2, 3, 4, 5, 8, STAGES_MOST};
#define STAGE_COUNTS (sizeof(stage_counts) / sizeof(stage_counts[0]))

struct one {
    int64_t forward_ns, input_ns, weight_ns; /* of a stage's chunks together */
    struct shoal_pipeline_options options;
    struct shoal_pipeline_result result;
};

/* Makes and runs it, with equal chunks. */
static void run(struct one *one)
{
    int64_t forward_ns[CHUNKS_MOST], input_ns[CHUNKS_MOST], weight_ns[CHUNKS_MOST];
    struct shoal_pipeline_costs costs = SHOAL_PIPELINE_COSTS_INIT;
    struct shoal_pipeline_options *options = &one->options;
    shoal_pipeline_t pipeline;
    int each = options->chunk_count ? options->chunk_count / options->stage_count : 1;
    if (options->kind == SHOAL_PIPELINE_ZERO_BUBBLE_V)
        each = 2;
    for (int chunk = 0; chunk < each * options->stage_count; chunk++) {
        forward_ns[chunk] = one->forward_ns / each;
        input_ns[chunk] = one->input_ns / each;
        weight_ns[chunk] = one->weight_ns / each;
    }
    costs.forward_ns = forward_ns;
    costs.backward_input_ns = input_ns;
    costs.backward_weight_ns = weight_ns;
    options->costs = &costs;
    one->result = (struct shoal_pipeline_result)SHOAL_PIPELINE_RESULT_INIT;
    assert_int_equal(shoal_pipeline_create(options, &pipeline), SHOAL_OK);
    assert_int_equal(shoal_pipeline_simulate(pipeline, &costs, &one->result, NULL, NULL), SHOAL_OK);
    shoal_pipeline_free(pipeline);
}

static struct one one_of(enum shoal_pipeline_kind kind, int stages, int microbatches)
{
    struct one one = {1200, 1440, 960, SHOAL_PIPELINE_OPTIONS_INIT, SHOAL_PIPELINE_RESULT_INIT};
    one.options.kind = kind;
    one.options.stage_count = stages;
    one.options.microbatch_count = microbatches;
    return one;
}

static int64_t whole_ns(const struct one *one)
{
    return one->forward_ns + one->input_ns + one->weight_ns;
}

/* The step is the work of one stage and the time that it stands still, and the bubble says so. */
static void expect_idle(const struct one *one, int64_t idle_ns)
{
    int64_t busy_ns = one->options.microbatch_count * whole_ns(one);
    if (one->result.step_ns != busy_ns + idle_ns)
        fail_msg("%s, %d stages, %d chunks, %d microbatches: stands still %lld ns, not %lld",
                 shoal_pipeline_name(one->options.kind), one->options.stage_count,
                 one->options.chunk_count, one->options.microbatch_count,
                 (long long)(one->result.step_ns - busy_ns), (long long)idle_ns);
    double bubble = (double)idle_ns / (double)(busy_ns + idle_ns);
    assert_true(one->result.bubble > bubble - 1e-9 && one->result.bubble < bubble + 1e-9);
}

/* Calls for every number of stages with few, as many, and more microbatches. */
static void for_each_size(int least, void (*expect)(int stages, int microbatches))
{
    for (size_t i = 0; i < STAGE_COUNTS; i++) {
        int stages = stage_counts[i];
        int counts[] = {1, stages - 1, stages, stages + 1, 2 * stages, 3 * stages + 1, 8 * stages};
        for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
            if (counts[k] >= 1 && counts[k] >= least * stages)
                expect(stages, counts[k]);
    }
}

/* ---- theory ---------------------------------------------------------------------------------- */

static void expect_whole_passes(int stages, int microbatches)
{
    struct one one = one_of(SHOAL_PIPELINE_SIMPLE, stages, microbatches);
    run(&one);
    expect_idle(&one, (stages - 1) * whole_ns(&one));
    assert_int_equal(one.result.peak_activations, microbatches);
    one = one_of(SHOAL_PIPELINE_1F1B, stages, microbatches);
    run(&one);
    expect_idle(&one, (stages - 1) * whole_ns(&one));
    assert_int_equal(one.result.peak_activations, stages < microbatches ? stages : microbatches);
    one = one_of(SHOAL_PIPELINE_INTERLEAVED, stages, microbatches);
    one.input_ns = one.weight_ns = one.forward_ns;
    run(&one);
    expect_idle(&one, (stages - 1) * whole_ns(&one));
    assert_in_range(one.result.peak_activations, 1, stages + 2);
}

static void the_bubble_of_whole_passes(void **state)
{
    (void)state;
    for_each_size(0, expect_whole_passes);
}

static void expect_chunks(int stages, int microbatches)
{
    for (int each = 1; each <= 4; each++) {
        struct one one = one_of(SHOAL_PIPELINE_INTERLEAVED_1F1B, stages, microbatches);
        one.options.chunk_count = each * stages;
        run(&one);
        expect_idle(&one, (stages - 1) * whole_ns(&one) / each);
        if (microbatches % stages == 0)
            assert_in_range(one.result.peak_activations, 1, (each - 1) * stages + 2 * stages - 1);
    }
}

static void several_chunks_divide_the_bubble(void **state)
{
    (void)state;
    for_each_size(1, expect_chunks);
}

static void expect_halves(int stages, int microbatches)
{
    struct one plain = one_of(SHOAL_PIPELINE_1F1B, stages, microbatches);
    struct one one = one_of(SHOAL_PIPELINE_ZERO_BUBBLE, stages, microbatches);
    run(&plain);
    run(&one);
    expect_idle(&one, (stages - 1) * (one.forward_ns + one.input_ns - one.weight_ns));
    assert_int_equal(one.result.peak_activations, plain.result.peak_activations);
    if (stages > 1)
        assert_true(one.result.bubble < plain.result.bubble);
}

static void weight_gradients_fill_the_bubble_at_the_same_peak(void **state)
{
    (void)state;
    for_each_size(1, expect_halves);
}

static void expect_none_within(int stages, int microbatches)
{
    struct one one = one_of(SHOAL_PIPELINE_ZERO_BUBBLE, stages, microbatches);
    one.input_ns = one.weight_ns = one.forward_ns;
    one.options.active_microbatches = 2 * stages - 1;
    run(&one);
    assert_int_equal(one.result.period_ns, microbatches * whole_ns(&one));
    expect_idle(&one, (stages - 1) * one.forward_ns);
    assert_int_equal(one.result.peak_activations, 2 * stages - 1);
}

static void with_twice_the_memory_no_stage_waits(void **state)
{
    (void)state;
    for_each_size(2, expect_none_within);
}

static void expect_folded(int stages, int microbatches)
{
    struct one plain = one_of(SHOAL_PIPELINE_ZERO_BUBBLE, stages, microbatches);
    struct one one = one_of(SHOAL_PIPELINE_ZERO_BUBBLE_V, stages, microbatches);
    one.input_ns = one.weight_ns = plain.input_ns = plain.weight_ns = one.forward_ns;
    run(&plain);
    run(&one);
    assert_in_range(one.result.peak_activations, 1, 2 * stages);
    assert_true(one.result.step_ns <= plain.result.step_ns);
    /* The best that is possible: the last stage begins stages - 1 chunks later. */
    int64_t least_ns = microbatches * whole_ns(&one) + (stages - 1) * one.forward_ns / 2;
    assert_true(one.result.step_ns >= least_ns);
    if (stages <= 4 && microbatches % stages == 0)
        assert_int_equal(one.result.step_ns, least_ns);
}

static void folded_stages_wait_less(void **state)
{
    (void)state;
    for_each_size(1, expect_folded);
}

/* Fewer microbatches than stages, and less memory than a stage would like: slower, never stuck. */
static void tight_limits_only_cost_time(void **state)
{
    (void)state;
    static const enum shoal_pipeline_kind kinds[] = {
        SHOAL_PIPELINE_INTERLEAVED, SHOAL_PIPELINE_1F1B, SHOAL_PIPELINE_ZERO_BUBBLE,
        SHOAL_PIPELINE_ZERO_BUBBLE_V};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        for (int stages = 1; stages <= 5; stages++)
            for (int active = 1; active <= 2 * stages + 1; active++)
                for (int microbatches = 1; microbatches <= 11; microbatches++) {
                    struct one one = one_of(kinds[i], stages, microbatches);
                    int each = kinds[i] == SHOAL_PIPELINE_ZERO_BUBBLE_V ? 2 : 1;
                    one.options.active_microbatches = active;
                    run(&one);
                    assert_in_range(one.result.peak_activations, 1, each * active);
                    assert_true(one.result.step_ns >= microbatches * whole_ns(&one));
                }
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* "F0 F1 B0 W0", with chunks as "F0.2" where there are several on a stage. */
static void expect_order(const struct shoal_pipeline_options *options, int stage,
                         const char *expected)
{
    char text[512] = "";
    shoal_pipeline_t pipeline;
    assert_int_equal(shoal_pipeline_create(options, &pipeline), SHOAL_OK);
    const struct shoal_pipeline_operation *operations = shoal_pipeline_operations(pipeline, stage);
    for (int i = 0; i < shoal_pipeline_operation_count(pipeline, stage); i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%c%d", used ? " " : "",
                 "FBIW"[operations[i].work], operations[i].microbatch);
        if (shoal_pipeline_chunk_count(pipeline) > options->stage_count)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), ".%d", operations[i].chunk);
    }
    assert_string_equal(text, expected);
    shoal_pipeline_free(pipeline);
}

static void orders_are_as_documented(void **state)
{
    (void)state;
    struct shoal_pipeline_options options = one_of(SHOAL_PIPELINE_SIMPLE, 2, 3).options;
    expect_order(&options, 1, "F0 F1 F2 B0 B1 B2");
    options = one_of(SHOAL_PIPELINE_1F1B, 3, 4).options;
    expect_order(&options, 0, "F0 F1 F2 B0 F3 B1 B2 B3");
    expect_order(&options, 1, "F0 F1 B0 F2 B1 F3 B2 B3");
    expect_order(&options, 2, "F0 B0 F1 B1 F2 B2 F3 B3");
    options = one_of(SHOAL_PIPELINE_INTERLEAVED, 2, 5).options;
    expect_order(&options, 1, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
    options = one_of(SHOAL_PIPELINE_INTERLEAVED_1F1B, 2, 2).options;
    expect_order(&options, 0, "F0.0 F1.0 F0.2 F1.2 B0.2 B1.2 B0.0 B1.0");
    expect_order(&options, 1, "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 B0.1 B1.1");
    options = one_of(SHOAL_PIPELINE_ZERO_BUBBLE, 2, 3).options;
    expect_order(&options, 0, "F0 F1 I0 W0 F2 I1 W1 I2 W2");
    expect_order(&options, 1, "F0 I0 F1 I1 W0 F2 I2 W1 W2");
    options = one_of(SHOAL_PIPELINE_ZERO_BUBBLE_V, 1, 1).options;
    expect_order(&options, 0, "F0.0 F0.1 I0.1 I0.0 W0.1 W0.0");
}

/* A backward that is ready goes first; when too many are under way, no new one enters. */
static void interleaved_takes_what_is_ready(void **state)
{
    (void)state;
    struct shoal_pipeline_options options = one_of(SHOAL_PIPELINE_INTERLEAVED, 2, 4).options;
    expect_order(&options, 0, "F0 F1 F2 F3 B0 B1 B2 B3");
    options.active_microbatches = 2;
    expect_order(&options, 0, "F0 F1 B0 F2 B1 F3 B2 B3");
    options.active_microbatches = 1;
    expect_order(&options, 0, "F0 B0 F1 B1 F2 B2 F3 B3");
    int revisited[] = {0, 1, 0};
    options.chunk_stages = revisited;
    options.chunk_count = 3;
    expect_order(&options, 0,
                 "F0.0 F0.2 B0.2 B0.0 F1.0 F1.2 B1.2 B1.0 F2.0 F2.2 B2.2 B2.0 "
                 "F3.0 F3.2 B3.2 B3.0");
}

/* ---- links and memory ------------------------------------------------------------------------ */

static void links_carry_one_output_at_a_time(void **state)
{
    (void)state;
    const int64_t zero_ns[] = {0, 0}, ten_ns[] = {10, 10};
    const uint64_t bytes[] = {200, 0};
    struct shoal_pipeline_costs costs = SHOAL_PIPELINE_COSTS_INIT;
    struct shoal_pipeline_result result = SHOAL_PIPELINE_RESULT_INIT;
    struct shoal_pipeline_stage stages[2];
    struct shoal_pipeline_times times[12];
    struct shoal_pipeline_options options = one_of(SHOAL_PIPELINE_SIMPLE, 2, 3).options;
    shoal_pipeline_t pipeline;
    costs.forward_ns = ten_ns;
    costs.backward_input_ns = costs.backward_weight_ns = zero_ns;
    costs.output_bytes = bytes;
    costs.bytes_per_ns = 2;
    costs.latency_ns = 7;
    assert_int_equal(shoal_pipeline_create(&options, &pipeline), SHOAL_OK);
    assert_int_equal(shoal_pipeline_simulate(pipeline, &costs, &result, stages, times), SHOAL_OK);
    /* Made at 10, 20, 30; sent from 10, 110, 210, 100 ns each; there 7 ns later. */
    assert_int_equal(times[6].start_ns, 117);
    assert_int_equal(times[7].start_ns, 217);
    assert_int_equal(times[8].start_ns, 317);
    /* All three gradients at 327, on the other direction of the link. */
    assert_int_equal(times[3].start_ns, 327 + 107);
    assert_int_equal(times[5].end_ns, 327 + 307);
    assert_int_equal(result.step_ns, 634);
    assert_int_equal(stages[0].busy_ns, 30);
    assert_int_equal(stages[1].start_ns, 117);
    assert_int_equal(stages[1].end_ns, 327);
    assert_int_equal(result.period_ns, 634);
    shoal_pipeline_free(pipeline);
}

static void bytes_are_kept_until_they_are_not_needed(void **state)
{
    (void)state;
    const int64_t same_ns[] = {10, 10};
    const uint64_t activation[] = {100, 1000}, late[] = {40, 300};
    struct shoal_pipeline_costs costs = SHOAL_PIPELINE_COSTS_INIT;
    struct shoal_pipeline_result result = SHOAL_PIPELINE_RESULT_INIT;
    struct shoal_pipeline_stage stages[2];
    struct shoal_pipeline_options options = one_of(SHOAL_PIPELINE_ZERO_BUBBLE, 2, 3).options;
    shoal_pipeline_t pipeline;
    costs.forward_ns = costs.backward_input_ns = costs.backward_weight_ns = same_ns;
    costs.activation_bytes = activation;
    assert_int_equal(shoal_pipeline_create(&options, &pipeline), SHOAL_OK);
    assert_int_equal(shoal_pipeline_simulate(pipeline, &costs, &result, stages, NULL), SHOAL_OK);
    assert_int_equal(stages[0].peak_bytes, 200);
    assert_int_equal(stages[1].peak_bytes, 2000);
    costs.weight_input_bytes = late;
    assert_int_equal(shoal_pipeline_simulate(pipeline, &costs, &result, stages, NULL), SHOAL_OK);
    assert_int_equal(stages[0].peak_bytes, 200);
    assert_int_equal(stages[1].peak_bytes, 1300); /* F0 I0 F1: one whole, of one what is late */
    assert_int_equal(result.peak_bytes, 1300);
    assert_int_equal(result.peak_activations, 2);
    shoal_pipeline_free(pipeline);
}

/* ---- any times ------------------------------------------------------------------------------- */

static uint64_t random_state;

static int64_t random_below(int64_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((random_state >> 33) % (uint64_t)bound);
}

struct any {
    int64_t forward_ns[CHUNKS_MOST], input_ns[CHUNKS_MOST], weight_ns[CHUNKS_MOST];
    uint64_t output_bytes[CHUNKS_MOST];
    struct shoal_pipeline_costs costs;
};

static void draw(struct any *any)
{
    int64_t scale = 1 + random_below(1000);
    for (int chunk = 0; chunk < CHUNKS_MOST; chunk++) {
        any->forward_ns[chunk] = random_below(scale);
        any->input_ns[chunk] = random_below(scale);
        any->weight_ns[chunk] = random_below(scale);
        any->output_bytes[chunk] = (uint64_t)random_below(500);
    }
    any->costs = (struct shoal_pipeline_costs)SHOAL_PIPELINE_COSTS_INIT;
    any->costs.forward_ns = any->forward_ns;
    any->costs.backward_input_ns = any->input_ns;
    any->costs.backward_weight_ns = any->weight_ns;
    any->costs.output_bytes = any->output_bytes;
    any->costs.latency_ns = random_below(100);
    any->costs.bytes_per_ns = (double)random_below(5);
}

/* Where the operation stands among all; its work may be either form of a backward. */
static int find(const struct plan_pipeline *pipeline, bool forward, int microbatch, int chunk)
{
    for (int i = 0;; i++) {
        const struct shoal_pipeline_operation *operation = &pipeline->operations[i];
        if (operation->microbatch == microbatch && operation->chunk == chunk &&
            operation->work != SHOAL_WORK_BACKWARD_WEIGHT &&
            (operation->work == SHOAL_WORK_FORWARD) == forward)
            return i;
    }
}

/* An operation begins when its stage is free and, at the earliest, when its input can be there. */
static void expect_possible(const struct plan_pipeline *pipeline, const struct any *any,
                            const struct shoal_pipeline_times *times)
{
    for (int stage = 0; stage < pipeline->stage_count; stage++)
        for (int i = pipeline->first[stage]; i < pipeline->first[stage + 1]; i++) {
            const struct shoal_pipeline_operation *operation = &pipeline->operations[i];
            bool forward = operation->work == SHOAL_WORK_FORWARD;
            int from = operation->chunk + (forward ? -1 : 1);
            if (i > pipeline->first[stage])
                assert_true(times[i].start_ns >= times[i - 1].end_ns);
            if (operation->work == SHOAL_WORK_BACKWARD_WEIGHT || from < 0 ||
                from == pipeline->chunk_count)
                continue;
            int border = forward ? from : operation->chunk;
            int64_t arrival_ns = times[find(pipeline, forward, operation->microbatch, from)].end_ns;
            if (pipeline->chunk_stages[from] != stage) {
                arrival_ns += any->costs.latency_ns;
                if (any->costs.bytes_per_ns > 0)
                    arrival_ns +=
                        (int64_t)((double)any->output_bytes[border] / any->costs.bytes_per_ns);
            }
            assert_true(times[i].start_ns >= arrival_ns);
        }
}

static void run_any(const struct shoal_pipeline_options *options, const struct any *any)
{
    static struct shoal_pipeline_times times[3 * CHUNKS_MOST * 16];
    struct shoal_pipeline_result result = SHOAL_PIPELINE_RESULT_INIT;
    shoal_pipeline_t pipeline;
    assert_int_equal(shoal_pipeline_create(options, &pipeline), SHOAL_OK);
    const struct plan_pipeline *inside = (const struct plan_pipeline *)pipeline;
    assert_int_equal(shoal_pipeline_simulate(pipeline, &any->costs, &result, NULL, times),
                     SHOAL_OK);
    expect_possible(inside, any, times);
    assert_true(result.bubble > -1e-9 && result.bubble <= 1);
    assert_true(result.period_ns <= result.step_ns);
    shoal_pipeline_free(pipeline);
}

/* Orders that were made for some times are run with others. */
static void no_times_stop_a_pipeline(void **state)
{
    (void)state;
    struct any made, met;
    int places[CHUNKS_MOST];
    for (int turn = 0; turn < 600; turn++) {
        struct shoal_pipeline_options options = SHOAL_PIPELINE_OPTIONS_INIT;
        random_state = (uint64_t)turn;
        draw(&made);
        draw(&met);
        options.kind = (enum shoal_pipeline_kind)(turn % SHOAL_PIPELINE_KIND_COUNT);
        options.stage_count = 1 + (int)random_below(6);
        options.microbatch_count = 1 + (int)random_below(12);
        options.costs = &made.costs;
        if (options.kind == SHOAL_PIPELINE_INTERLEAVED_1F1B)
            options.chunk_count = options.stage_count * (1 + (int)random_below(4));
        if (options.kind <= SHOAL_PIPELINE_INTERLEAVED && random_below(2)) {
            options.chunk_count = options.stage_count + (int)random_below(9);
            for (int chunk = 0; chunk < options.chunk_count; chunk++)
                places[chunk] =
                    chunk < options.stage_count ? chunk : (int)random_below(options.stage_count);
            options.chunk_stages = places;
        }
        run_any(&options, &made);
        run_any(&options, &met);
    }
}

/* ---- memory that is not there ---------------------------------------------------------------- */

static enum shoal_status make_and_run(const struct shoal_pipeline_options *options)
{
    struct shoal_pipeline_result result = SHOAL_PIPELINE_RESULT_INIT;
    shoal_pipeline_t pipeline = NULL;
    TRY(shoal_pipeline_create(options, &pipeline));
    enum shoal_status status = shoal_pipeline_simulate(pipeline, NULL, &result, NULL, NULL);
    shoal_pipeline_free(pipeline);
    return status;
}

static void failing_allocations_leave_nothing(void **state)
{
    (void)state;
    int places[] = {0, 1, 2, 1};
    for (int kind = 0; kind < SHOAL_PIPELINE_KIND_COUNT; kind++) {
        struct shoal_pipeline_options options =
            one_of((enum shoal_pipeline_kind)kind, 3, 4).options;
        if (kind <= SHOAL_PIPELINE_INTERLEAVED) {
            options.chunk_stages = places;
            options.chunk_count = 4;
        }
        size_t blocks = base_memory_blocks();
        enum shoal_status status = SHOAL_ERR_MEMORY;
        for (uint64_t nth = 1; status != SHOAL_OK; nth++) {
            assert_true(nth < 100);
            base_memory_fail_at(nth);
            status = make_and_run(&options);
            base_memory_fail_at(0);
            assert_true(status == SHOAL_OK || status == SHOAL_ERR_MEMORY);
            assert_int_equal(base_memory_blocks(), blocks);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bubble_of_whole_passes),
        cmocka_unit_test(several_chunks_divide_the_bubble),
        cmocka_unit_test(weight_gradients_fill_the_bubble_at_the_same_peak),
        cmocka_unit_test(with_twice_the_memory_no_stage_waits),
        cmocka_unit_test(folded_stages_wait_less),
        cmocka_unit_test(tight_limits_only_cost_time),
        cmocka_unit_test(orders_are_as_documented),
        cmocka_unit_test(interleaved_takes_what_is_ready),
        cmocka_unit_test(links_carry_one_output_at_a_time),
        cmocka_unit_test(bytes_are_kept_until_they_are_not_needed),
        cmocka_unit_test(no_times_stop_a_pipeline),
        cmocka_unit_test(failing_allocations_leave_nothing),
    };
    return cmocka_run_group_tests_name("plan pipeline", tests, NULL, NULL);
}
