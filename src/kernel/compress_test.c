/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compress_test.c: rounding with feedback in every form, against what half.h says of each number.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/form.h"
#include "kernel/half.h"

#define SAMPLES 4099

static float values[SAMPLES], residuals[SAMPLES];

/* Any bits in every fifth place, so NaN, infinities and subnormals are among them. */
static float sample(uint64_t *state, size_t i)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint32_t bits = (uint32_t)(*state >> 32);
    return i % 5 == 0 ? half_float_of(bits) : ldexpf((float)(int32_t)bits, -31 - (int)(i % 9));
}

static void make_samples(void)
{
    uint64_t state = 1;
    for (size_t i = 0; i < SAMPLES; i++) {
        values[i] = sample(&state, i);
        residuals[i] = i % 5 == 0 ? 0 : ldexpf(sample(&state, i + 1), -9);
    }
    values[1] = 65519.0f; /* rounds to the largest f16, and with a residual to infinity */
    values[2] = 65519.0f, residuals[2] = 2.0f;
    values[3] = (float)INFINITY, values[4] = (float)NAN, residuals[4] = 0.5f;
}

static void check_one(enum shoal_dtype dtype, float value, float residual, uint16_t rounded,
                      float kept)
{
    bool f16 = dtype == SHOAL_F16;
    float exact = value + residual;
    uint16_t expected = f16 ? half_to_f16(exact) : half_to_bf16(exact);
    float back = f16 ? half_from_f16(rounded) : half_from_bf16(rounded);
    float lost = exact - back;
    if (isnan(exact))
        assert_true(isnan(back));
    else
        assert_int_equal(rounded, expected);
    if (!isfinite(lost))
        lost = 0;
    assert_memory_equal(&kept, &lost, sizeof(lost));
}

/* In place: the halves begin where the numbers do. */
static void check(enum shoal_dtype dtype, size_t count)
{
    unsigned char *memory = malloc(count * sizeof(float) + 1);
    float *kept = malloc(count * sizeof(float) + 1);
    assert_true(memory && kept);
    memcpy(memory, values, count * sizeof(float));
    memcpy(kept, residuals, count * sizeof(float));
    kernel_compress(dtype, memory, (const float *)(const void *)memory, kept, count);
    for (size_t i = 0; i < count; i++) {
        uint16_t rounded;
        memcpy(&rounded, memory + i * sizeof(rounded), sizeof(rounded));
        check_one(dtype, values[i], residuals[i], rounded, kept[i]);
    }
    free(memory);
    free(kept);
}

static void check_without_feedback(enum shoal_dtype dtype)
{
    float memory[SAMPLES];
    uint16_t apart[SAMPLES];
    memcpy(memory, values, sizeof(memory));
    kernel_from_f32(dtype, apart, values, SAMPLES);
    kernel_from_f32(dtype, memory, memory, SAMPLES);
    assert_memory_equal(memory, apart, sizeof(apart));
}

static void every_form_keeps_what_is_lost(void **state)
{
    (void)state;
    make_samples();
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (!form->supported())
            continue;
        assert_true(kernel_force_isa(form->name));
        for (int half = 0; half < 2; half++) {
            enum shoal_dtype dtype = half ? SHOAL_BF16 : SHOAL_F16;
            for (size_t count = 0; count < 70; count++)
                check(dtype, count);
            check(dtype, SAMPLES);
            check_without_feedback(dtype);
        }
    }
}

/* The sum of what was rounded is the sum of what came, but for what is still kept. */
static void nothing_is_lost_for_good(void **state)
{
    (void)state;
    float residual = 0, sum = 0, value = 1.0f + 0x1p-13f;
    for (int step = 0; step < 4096; step++) {
        uint16_t rounded;
        kernel_compress(SHOAL_BF16, &rounded, &value, &residual, 1);
        sum += half_from_bf16(rounded);
    }
    assert_true(sum + residual == 4096 * value);
}

/* ---- 8 bits in blocks ---- */

#define BLOCKS (SAMPLES / KERNEL_BLOCK_COUNT)
#define COUNT  ((size_t)BLOCKS * KERNEL_BLOCK_COUNT)

/* Blocks of ordinary numbers, of large ones, of subnormals and of zeros. */
static void make_blocks(void)
{
    make_samples();
    for (size_t i = 0; i < COUNT; i++) {
        size_t block = i / KERNEL_BLOCK_COUNT;
        if (block == 1)
            values[i] = residuals[i] = 0;
        else if (block == 2)
            values[i] = half_float_of((uint32_t)(i % 90));
        else if (block == 3)
            values[i] = 0x1p-119f * (float)(i % 7);
    }
}

/* What is lost is at most half a scale; odd numbers stay what they are, and leave nothing. */
static void check_block(const struct kernel_block *block, const float *wanted, const float *got,
                        const float *kept)
{
    float largest = 0;
    for (int i = 0; i < KERNEL_BLOCK_COUNT; i++) {
        if (isnan(wanted[i])) {
            assert_true(isnan(got[i]) && kept[i] == 0);
        } else if (isinf(wanted[i])) {
            assert_true(got[i] == wanted[i] && kept[i] == 0);
        } else {
            largest = fabsf(wanted[i]) > largest ? fabsf(wanted[i]) : largest;
            assert_true(kept[i] == wanted[i] - got[i]);
            assert_true(block->scale == 0 || fabsf(kept[i]) <= 0.50001f * block->scale);
        }
    }
    assert_true(block->scale == (largest / 126 < 0x1p-126f ? 0 : largest / 126));
}

static void check_blocks(const struct kernel_block *expected, const float *expected_sum)
{
    static struct kernel_block blocks[BLOCKS];
    static float kept[COUNT], got[COUNT], wanted[COUNT];
    memcpy(kept, residuals, sizeof(kept));
    for (size_t i = 0; i < COUNT; i++)
        wanted[i] = values[i] + residuals[i];
    kernel_pack_blocks(blocks, values, kept, BLOCKS);
    kernel_unpack_blocks(got, blocks, false, BLOCKS);
    for (size_t i = 0; i < BLOCKS; i++)
        check_block(&blocks[i], wanted + i * KERNEL_BLOCK_COUNT, got + i * KERNEL_BLOCK_COUNT,
                    kept + i * KERNEL_BLOCK_COUNT);
    assert_memory_equal(blocks, expected, sizeof(blocks));
    kernel_unpack_blocks(got, blocks, true, BLOCKS);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(got[i] == expected_sum[i] || (isnan(got[i]) && isnan(expected_sum[i])));
    kernel_pack_blocks(blocks, wanted, NULL, BLOCKS);
    assert_memory_equal(blocks, expected, sizeof(blocks));
}

static void every_form_makes_the_same_blocks(void **state)
{
    (void)state;
    static struct kernel_block blocks[BLOCKS];
    static float kept[COUNT], sum[COUNT];
    make_blocks();
    memcpy(kept, residuals, sizeof(kept));
    assert_true(kernel_force_isa("scalar"));
    kernel_pack_blocks(blocks, values, kept, BLOCKS);
    kernel_unpack_blocks(sum, blocks, false, BLOCKS);
    kernel_unpack_blocks(sum, blocks, true, BLOCKS);
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++)
        if (kernel_force_isa(form->name))
            check_blocks(blocks, sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_keeps_what_is_lost),
        cmocka_unit_test(nothing_is_lost_for_good),
        cmocka_unit_test(every_form_makes_the_same_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
