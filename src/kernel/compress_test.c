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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_keeps_what_is_lost),
        cmocka_unit_test(nothing_is_lost_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
