/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_measure_test.c: the benchmark finds wrong results. Its library here is this one process,
 * which plays all ranks of a reduction honestly or with a fault. Includes the sources because the
 * command's files are in no library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/memory.h"
#include "bench_measure.c"
#include "bench_pattern.c"

#define COUNT_MAX 20000

/* ---- patterns
 * ------------------------------------------------------------------------------------- */

/* Plain reduction of doubles, for what bench_pattern_reduced must give. */
static double reduce_plainly(enum bench_reduction reduction, double a, double b)
{
    unsigned long long x = (unsigned long long)a, y = (unsigned long long)b;
    switch (reduction) {
    case BENCH_PROD: return a * b;
    case BENCH_MIN: return a < b ? a : b;
    case BENCH_MAX: return a > b ? a : b;
    case BENCH_BAND: return (double)(x & y);
    case BENCH_BOR: return (double)(x | y);
    case BENCH_BXOR: return (double)(x ^ y);
    case BENCH_LAND: return x != 0 && y != 0;
    case BENCH_LOR: return x != 0 || y != 0;
    case BENCH_LXOR: return (x != 0) != (y != 0);
    default: return a + b;
    }
}

/* Sums of four ranks, element by element, are the prepared pattern. */
static void check_reduction(enum bench_reduction reduction)
{
    static int64_t in[COUNT_MAX], wanted[COUNT_MAX];
    struct bench_pattern pattern;
    const int ranks = 4;
    for (uint64_t round = 0; round < 3; round++) {
        for (int rank = 0; rank < ranks; rank++) {
            bench_pattern_input(&pattern, BENCH_I64, reduction, true, rank, round);
            bench_pattern_fill(&pattern, in, 0, COUNT_MAX);
            for (int i = 0; i < COUNT_MAX; i++)
                wanted[i] = rank == 0 ? in[i]
                                      : (int64_t)reduce_plainly(reduction, (double)wanted[i],
                                                                (double)in[i]);
        }
        for (int i = 0; i < COUNT_MAX && reduction == BENCH_AVG; i++)
            wanted[i] /= ranks;
        bench_pattern_reduced(&pattern, BENCH_I64, reduction, ranks, round);
        assert_int_equal(bench_pattern_check(&pattern, wanted, 0, COUNT_MAX), COUNT_MAX);
        wanted[COUNT_MAX - 1] += 1;
        assert_int_equal(bench_pattern_check(&pattern, wanted, 0, COUNT_MAX), COUNT_MAX - 1);
    }
}

static void test_reductions(void **state)
{
    (void)state;
    for (int reduction = 0; reduction < BENCH_REDUCTION_COUNT; reduction++)
        check_reduction((enum bench_reduction)reduction);
}

/* Encoded values of all dtypes decode to the same small numbers. */
static void test_dtypes(void **state)
{
    unsigned char reference[BENCH_BLOCK * BENCH_ELEMENT_BYTES], other[sizeof(reference)];
    struct bench_pattern pattern;
    (void)state;
    bench_pattern_input(&pattern, BENCH_F64, BENCH_SUM, false, 3, 1);
    bench_pattern_fill(&pattern, reference, 0, BENCH_BLOCK);
    for (enum bench_dtype dtype = 0; dtype < BENCH_BOOL; dtype++) {
        size_t bytes = bench_dtype_bytes(dtype);
        bench_pattern_input(&pattern, dtype, BENCH_SUM, false, 3, 1);
        bench_pattern_fill(&pattern, other, 0, BENCH_BLOCK);
        for (size_t i = 0; i < BENCH_BLOCK; i++) {
            double want = decode(BENCH_F64, reference + i * 8);
            int64_t integer = 0;
            memcpy(&integer, other + i * bytes, bytes);
            double got = is_float(dtype) ? decode(dtype, other + i * bytes) : (double)integer;
            assert_true(want == got);
        }
    }
    assert_int_equal(to_f16(1.0F), 0x3c00);
    assert_int_equal(to_f16(2048.0F), 0x6800);
    assert_int_equal(to_bf16(3.0F), 0x4040);
}

/* Data that is some blocks away from its place, or from another rank or round, is found. */
static void test_displaced_data(void **state)
{
    static float buffer[COUNT_MAX];
    struct bench_pattern own, other;
    (void)state;
    bench_pattern_input(&own, BENCH_F32, BENCH_SUM, false, 1, 4);
    for (uint64_t shift = 1; shift < 9000; shift = shift * 3 / 2 + 1) {
        bench_pattern_fill(&own, buffer, shift, COUNT_MAX);
        assert_true(bench_pattern_check(&own, buffer, 0, COUNT_MAX) < COUNT_MAX);
        assert_int_equal(bench_pattern_check(&own, buffer, shift, COUNT_MAX), COUNT_MAX);
    }
    bench_pattern_input(&other, BENCH_F32, BENCH_SUM, false, 2, 4);
    bench_pattern_fill(&other, buffer, 0, COUNT_MAX);
    assert_true(bench_pattern_check(&own, buffer, 0, COUNT_MAX) < COUNT_MAX);
    bench_pattern_input(&other, BENCH_F32, BENCH_SUM, false, 1, 5);
    bench_pattern_fill(&other, buffer, 0, COUNT_MAX);
    assert_true(bench_pattern_check(&own, buffer, 0, COUNT_MAX) < COUNT_MAX);
}

/* ---- settings
 * --------------------------------------------------------------------------------------- */

static void test_sizes(void **state)
{
    static const char *const wrong[] = {
        "",   "x",      "8:", ":8",  "8:4",   "0:8",     "8:64:1",  "8,,9",
        "8,", "8:64M:", "-8", "8.5", "8:64Q", "1:2:3:4", "9999999G"};
    struct bench_settings settings = BENCH_SETTINGS_INIT;
    char error[BENCH_ERROR_BYTES];
    (void)state;
    assert_int_equal(bench_settings_set(&settings, "sizes", "8:64M", error), 0);
    assert_int_equal(settings.size_count, 24);
    assert_int_equal(settings.sizes[23], 64 << 20);
    assert_int_equal(bench_settings_set(&settings, "sizes", "1k:1M:4", error), 0);
    assert_int_equal(settings.size_count, 6);
    assert_int_equal(bench_settings_set(&settings, "sizes", "8,3K,1G", error), 0);
    assert_int_equal(settings.size_count, 3);
    assert_int_equal(settings.sizes[1], 3072);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        error[0] = '\0';
        assert_int_not_equal(bench_settings_set(&settings, "sizes", wrong[i], error), 0);
        assert_non_null(strstr(error, "8:64M"));
    }
}

static void test_wrong_settings(void **state)
{
    static const char *const wrong[][2] = {{"operation", "allreduced"},
                                           {"dtype", "float32"},
                                           {"op", "mean"},
                                           {"iters", "0"},
                                           {"iters", "ten"},
                                           {"size-ms", "-1"},
                                           {"speed", "1"}};
    struct bench_settings settings = BENCH_SETTINGS_INIT;
    char error[BENCH_ERROR_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        error[0] = '\0';
        assert_int_not_equal(bench_settings_set(&settings, wrong[i][0], wrong[i][1], error), 0);
        assert_true(strlen(error) > 10);
    }
    settings = (struct bench_settings)BENCH_SETTINGS_INIT;
    settings.dtype = BENCH_COMPLEX64;
    settings.reduction = BENCH_MAX;
    assert_int_not_equal(bench_settings_finish(&settings, error), 0);
    assert_non_null(strstr(error, "complex64"));
    settings.operation = BENCH_BROADCAST;
    assert_int_equal(bench_settings_finish(&settings, error), 0);
}

/* ---- measuring
 * ---------------------------------------------------------------------------------------- */

/* A group of `size` ranks of which this process is one and plays the others. */
struct played {
    int size;
    bool faulty; /* loses the last rank's contribution */
    uint64_t calls;
};

static void add_i32(int32_t *sum, const int32_t *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        sum[i] += values[i];
}

/* An allreduce: the round is the number of calls that had fresh inputs, so each input tells it. */
static int play_call(void *user, const struct bench_call *call)
{
    struct played *played = user;
    static int32_t others[COUNT_MAX];
    struct bench_pattern pattern;
    uint64_t round = 0;
    int last = played->faulty ? played->size - 1 : played->size;
    played->calls++;
    for (; round < BENCH_PHASES; round++) {
        bench_pattern_input(&pattern, call->dtype, call->reduction, true, 0, round);
        if (bench_pattern_check(&pattern, call->in, 0, call->count) == call->count)
            break;
    }
    memcpy(call->out, call->in, call->count * sizeof(int32_t));
    for (int rank = 1; rank < last; rank++) {
        bench_pattern_input(&pattern, call->dtype, call->reduction, true, rank, round);
        bench_pattern_fill(&pattern, others, 0, call->count);
        add_i32(call->out, others, call->count);
    }
    return 0;
}

static int play_barrier(void *user)
{
    (void)user;
    return 0;
}

static int play_maximum(void *user, double *values, size_t count)
{
    (void)user;
    (void)values;
    (void)count;
    return 0;
}

static int play_allocate(void *user, size_t bytes, void **out)
{
    (void)user;
    return base_alloc(bytes, "test buffers", out) == SHOAL_OK ? 0 : -1;
}

static void play_release(void *user, void *memory)
{
    (void)user;
    base_free(memory);
}

static int measure_played(struct played *played, uint64_t bytes, struct bench_result *result)
{
    struct bench_library library = {.name = "played",
                                    .version = "1",
                                    .size = played->size,
                                    .hosts = 1,
                                    .user = played,
                                    .run = play_call,
                                    .barrier = play_barrier,
                                    .maximum = play_maximum,
                                    .allocate = play_allocate,
                                    .release = play_release};
    struct bench_settings settings = BENCH_SETTINGS_INIT;
    settings.dtype = BENCH_I32;
    settings.size_ms = 5;
    return bench_measure(&library, &settings, bytes, result);
}

static void test_right_results_are_measured(void **state)
{
    struct played played = {.size = 3};
    struct bench_result result;
    uint64_t measured_calls = 0;
    (void)state;
    for (uint64_t bytes = 33; bytes < COUNT_MAX * 4; bytes *= 7) { /* 8 elements tell the round */
        size_t blocks = base_memory_blocks();
        assert_int_equal(measure_played(&played, bytes, &result), 0);
        assert_int_equal(base_memory_blocks(), blocks);
        assert_int_equal(result.bytes, (bytes + 3) / 4 * 4);
        assert_int_equal(result.count, result.bytes / 4);
        assert_true(result.min_us > 0 && result.min_us <= result.p50_us);
        assert_true(result.p50_us <= result.p99_us);
        assert_true(result.rounds >= 5 && result.batch >= 1);
        measured_calls += (uint64_t)result.rounds * (uint64_t)result.batch;
    }
    assert_true(played.calls > measured_calls); /* those before the measurement come on top */
}

static void test_wrong_results_are_found(void **state)
{
    struct played played = {.size = 3, .faulty = true};
    struct bench_result result;
    (void)state;
    size_t blocks = base_memory_blocks();
    assert_int_not_equal(measure_played(&played, 4096, &result), 0);
    assert_int_equal(base_memory_blocks(), blocks);
}

static void test_shapes(void **state)
{
    struct bench_settings settings = BENCH_SETTINGS_INIT;
    (void)state;
    settings.operation = BENCH_ALLGATHER;
    struct bench_shape shape = bench_shape_make(&settings, 3, 100);
    assert_int_equal(shape.count, 9);
    assert_int_equal(shape.in_count, 9);
    assert_int_equal(shape.out_count, 27);
    assert_int_equal(shape.bytes, 108);
    settings.operation = BENCH_REDUCE_SCATTER;
    shape = bench_shape_make(&settings, 3, 100);
    assert_int_equal(shape.in_count, 27);
    assert_int_equal(shape.out_count, 9);
    settings.operation = BENCH_BARRIER;
    assert_int_equal(bench_shape_make(&settings, 3, 100).bytes, 0);
    assert_true(bench_bus_factor(BENCH_ALLREDUCE, 4) == 1.5);
    assert_true(bench_bus_factor(BENCH_ALLGATHER, 4) == 0.75);
    assert_true(bench_bus_factor(BENCH_BROADCAST, 4) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_displaced_data),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_wrong_settings),
        cmocka_unit_test(test_right_results_are_measured),
        cmocka_unit_test(test_wrong_results_are_found),
        cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
