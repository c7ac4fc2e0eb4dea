/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline_test.c: what the public functions of pipelines refuse, with a text that helps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "shoal.h"

static const int64_t times_ns[] = {10, 10, 10, 10};
static const uint64_t bytes[] = {100, 100, 100, 100};

static struct shoal_pipeline_options options;
static struct shoal_pipeline_costs costs;
static shoal_pipeline_t pipeline;

static void start(void)
{
    options = (struct shoal_pipeline_options)SHOAL_PIPELINE_OPTIONS_INIT;
    costs = (struct shoal_pipeline_costs)SHOAL_PIPELINE_COSTS_INIT;
    options.stage_count = 2;
    options.microbatch_count = 4;
    options.costs = &costs;
    costs.forward_ns = costs.backward_input_ns = costs.backward_weight_ns = times_ns;
    costs.activation_bytes = costs.output_bytes = bytes;
    pipeline = NULL;
}

static void expect(enum shoal_status status, const char *words)
{
    assert_int_equal(shoal_pipeline_create(&options, &pipeline), status);
    assert_null(pipeline);
    if (!strstr(shoal_last_error(NULL), words))
        fail_msg("'%s' does not say '%s'", shoal_last_error(NULL), words);
    start();
}

static void sizes_out_of_range(void **state)
{
    (void)state;
    start();
    options.kind = SHOAL_PIPELINE_KIND_COUNT;
    expect(SHOAL_ERR_ARGUMENT, "options.kind 6");
    options.kind = (enum shoal_pipeline_kind) - 1;
    expect(SHOAL_ERR_ARGUMENT, "options.kind -1");
    options.stage_count = 0;
    expect(SHOAL_ERR_ARGUMENT, "options.stage_count is 0");
    options.stage_count = 1025;
    expect(SHOAL_ERR_ARGUMENT, "give 1 to 1024");
    options.microbatch_count = 0;
    expect(SHOAL_ERR_ARGUMENT, "options.microbatch_count is 0");
    options.stage_count = 1024;
    options.microbatch_count = 65536;
    expect(SHOAL_ERR_LIMIT, "at most 4194304");
    options.struct_bytes = 8;
    expect(SHOAL_ERR_ARGUMENT, "SHOAL_PIPELINE_OPTIONS_INIT");
    assert_int_equal(shoal_pipeline_create(NULL, &pipeline), SHOAL_ERR_ARGUMENT);
    assert_int_equal(shoal_pipeline_create(&options, NULL), SHOAL_ERR_ARGUMENT);
}

static void chunks_that_do_not_fit(void **state)
{
    (void)state;
    static const int outside[] = {0, 1, 2}, missing[] = {0, 0, 0};
    start();
    options.chunk_count = 1;
    expect(SHOAL_ERR_ARGUMENT, "each of the 2 stages needs a chunk");
    options.chunk_count = 4;
    expect(SHOAL_ERR_ARGUMENT, "1f1b has one chunk on each");
    options.kind = SHOAL_PIPELINE_ZERO_BUBBLE;
    options.chunk_count = 4;
    expect(SHOAL_ERR_ARGUMENT, "zero-bubble has one chunk on each");
    options.kind = SHOAL_PIPELINE_INTERLEAVED_1F1B;
    options.chunk_count = 3;
    expect(SHOAL_ERR_ARGUMENT, "equally many chunks");
    options.kind = SHOAL_PIPELINE_ZERO_BUBBLE_V;
    options.chunk_count = 2;
    expect(SHOAL_ERR_ARGUMENT, "two chunks on each");
    options.chunk_stages = missing;
    expect(SHOAL_ERR_ARGUMENT, "is fixed");
    options.kind = SHOAL_PIPELINE_SIMPLE;
    options.chunk_count = 3;
    options.chunk_stages = outside;
    expect(SHOAL_ERR_ARGUMENT, "options.chunk_stages[2] is 2");
    options.kind = SHOAL_PIPELINE_INTERLEAVED;
    options.chunk_count = 3;
    options.chunk_stages = missing;
    expect(SHOAL_ERR_ARGUMENT, "stage 1 without a chunk");
}

static void limits_without_meaning(void **state)
{
    (void)state;
    start();
    options.active_microbatches = -1;
    expect(SHOAL_ERR_ARGUMENT, "options.active_microbatches is -1");
    options.kind = SHOAL_PIPELINE_SIMPLE;
    options.active_microbatches = 2;
    expect(SHOAL_ERR_ARGUMENT, "simple has no such limit");
    options.kind = SHOAL_PIPELINE_INTERLEAVED_1F1B;
    options.active_microbatches = 2;
    expect(SHOAL_ERR_ARGUMENT, "interleaved-1f1b has no such limit");
}

static void costs_out_of_range(void **state)
{
    (void)state;
    static const int64_t negative_ns[] = {1, -1}, long_ns[] = {1, INT64_C(1) << 50};
    static const uint64_t huge[] = {1, UINT64_C(1) << 50}, more[] = {100, 101};
    start();
    costs.struct_bytes = 8;
    expect(SHOAL_ERR_ARGUMENT, "SHOAL_PIPELINE_COSTS_INIT");
    costs.forward_ns = NULL;
    expect(SHOAL_ERR_ARGUMENT, "costs.forward_ns is NULL");
    costs.backward_input_ns = negative_ns;
    expect(SHOAL_ERR_ARGUMENT, "costs.backward_input_ns[1] is -1");
    costs.backward_weight_ns = long_ns;
    expect(SHOAL_ERR_ARGUMENT, "costs.backward_weight_ns[1]");
    costs.activation_bytes = huge;
    expect(SHOAL_ERR_ARGUMENT, "costs.activation_bytes[1]");
    costs.output_bytes = huge;
    expect(SHOAL_ERR_ARGUMENT, "costs.output_bytes[1]");
    costs.weight_input_bytes = more;
    expect(SHOAL_ERR_ARGUMENT, "costs.weight_input_bytes[1] is more");
    costs.latency_ns = -5;
    expect(SHOAL_ERR_ARGUMENT, "costs.latency_ns is -5");
    costs.bytes_per_ns = NAN;
    expect(SHOAL_ERR_ARGUMENT, "costs.bytes_per_ns");
    costs.bytes_per_ns = 1e-30;
    expect(SHOAL_ERR_ARGUMENT, "takes longer");
}

static void what_one_says_of_itself(void **state)
{
    (void)state;
    struct shoal_pipeline_result result = SHOAL_PIPELINE_RESULT_INIT;
    start();
    options.kind = SHOAL_PIPELINE_ZERO_BUBBLE_V;
    assert_int_equal(shoal_pipeline_create(&options, &pipeline), SHOAL_OK);
    assert_int_equal(shoal_pipeline_chunk_count(pipeline), 4);
    assert_int_equal(shoal_pipeline_chunk_count(NULL), -1);
    assert_int_equal(shoal_pipeline_chunk_stage(pipeline, 1), 1);
    assert_int_equal(shoal_pipeline_chunk_stage(pipeline, 3), 0);
    assert_int_equal(shoal_pipeline_chunk_stage(pipeline, 4), -1);
    assert_int_equal(shoal_pipeline_operation_count(pipeline, -1), 48);
    assert_int_equal(shoal_pipeline_operation_count(pipeline, 1), 24);
    assert_int_equal(shoal_pipeline_operation_count(pipeline, 2), -1);
    assert_null(shoal_pipeline_operations(pipeline, 2));
    assert_ptr_equal(shoal_pipeline_operations(pipeline, 1),
                     shoal_pipeline_operations(pipeline, -1) + 24);
    assert_string_equal(shoal_pipeline_name(SHOAL_PIPELINE_ZERO_BUBBLE_V), "zero-bubble-v");
    assert_string_equal(shoal_pipeline_name(SHOAL_PIPELINE_KIND_COUNT), "?");
    result.struct_bytes = 3;
    assert_int_equal(shoal_pipeline_simulate(pipeline, &costs, &result, NULL, NULL),
                     SHOAL_ERR_ARGUMENT);
    assert_int_equal(shoal_pipeline_simulate(pipeline, &costs, NULL, NULL, NULL),
                     SHOAL_ERR_ARGUMENT);
    assert_int_equal(shoal_pipeline_simulate(NULL, &costs, &result, NULL, NULL),
                     SHOAL_ERR_ARGUMENT);
    shoal_pipeline_free(pipeline);
    shoal_pipeline_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_out_of_range),      cmocka_unit_test(chunks_that_do_not_fit),
        cmocka_unit_test(limits_without_meaning),  cmocka_unit_test(costs_out_of_range),
        cmocka_unit_test(what_one_says_of_itself),
    };
    return cmocka_run_group_tests_name("api pipeline", tests, NULL, NULL);
}
