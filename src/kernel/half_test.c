/* SPDX-License-Identifier: Apache-2.0 */
/*
 * half_test.c: f16 and bf16 conversion against the definition of the formats: values decoded with
 * ldexp, rounding by looking for the nearest value in the sorted list of all of them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/form.h"
#include "kernel/half.h"

struct format {
    enum shoal_dtype dtype;
    int exponent_bits, fraction_bits;
};

static const struct format f16 = {SHOAL_F16, 5, 10};
static const struct format bf16 = {SHOAL_BF16, 8, 7};

/* The value of the bits, by the definition of IEEE 754. */
static double decode(const struct format *format, uint16_t bits)
{
    int top = (1 << format->exponent_bits) - 1;
    int bias = top / 2;
    int exponent = bits >> format->fraction_bits & top;
    int fraction = bits & ((1 << format->fraction_bits) - 1);
    double size;
    if (exponent == top) {
        size = fraction ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        size = ldexp(fraction, 1 - bias - format->fraction_bits);
    } else {
        size =
            ldexp(fraction + (1 << format->fraction_bits), exponent - bias - format->fraction_bits);
    }
    return bits & 0x8000 ? -size : size;
}

/* The bits nearest to a value that is not NaN. Positive formats sort as their bits do; infinity
 * stands where the next finite value would be. */
static uint16_t nearest(const struct format *format, double value)
{
    uint16_t infinity = (uint16_t)(((1 << format->exponent_bits) - 1) << format->fraction_bits);
    double size = fabs(value);
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t low = 0, high = infinity; /* decode(low) <= size; high is above or infinity */
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (decode(format, middle) <= size) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = decode(format, low);
    double step = below - decode(format, (uint16_t)(low - (low > 0)));
    double above = high == infinity ? below + step : decode(format, high);
    if (isinf(size)) {
        return sign | infinity;
    }
    if (size - below == above - size) {
        return sign | (low % 2 == 0 ? low : high);
    }
    return sign | (size - below < above - size ? low : high);
}

static uint16_t convert_one(const struct format *format, float value)
{
    return format->dtype == SHOAL_F16 ? half_to_f16(value) : half_to_bf16(value);
}

static void check_all_values(const struct format *format)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t bits = (uint16_t)i;
        float value = format->dtype == SHOAL_F16 ? half_from_f16(bits) : half_from_bf16(bits);
        double expected = decode(format, bits);
        if (isnan(expected)) {
            assert_true(isnan(value));
            uint16_t back = convert_one(format, value);
            assert_true(isnan(decode(format, back)));
            uint16_t quiet = (uint16_t)(1 << (format->fraction_bits - 1));
            assert_int_equal(back, bits | quiet);
        } else {
            assert_true((double)value == expected && !signbit(value) == !signbit(expected));
            assert_int_equal(convert_one(format, value), bits);
        }
    }
}

static void every_value_goes_to_f32_and_back(void **state)
{
    (void)state;
    check_all_values(&f16);
    check_all_values(&bf16);
}

static void check_rounding(const struct format *format, float value)
{
    uint16_t got = convert_one(format, value), expected = nearest(format, (double)value);
    if (got != expected) {
        fail_msg("%s of %a: got %04x, expected %04x", kernel_dtype_name(format->dtype),
                 (double)value, got, expected);
    }
}

/* Halfway between each value and the next, and one f32 step to both sides of it. */
static void check_ties(const struct format *format)
{
    int top = ((1 << format->exponent_bits) - 1) << format->fraction_bits;
    for (int low = 0; low + 1 < top; low++) {
        double below = decode(format, (uint16_t)low), above = decode(format, (uint16_t)(low + 1));
        float tie = (float)(below + (above - below) / 2);
        check_rounding(format, tie);
        check_rounding(format, -tie);
        check_rounding(format, nextafterf(tie, INFINITY));
        check_rounding(format, nextafterf(tie, 0));
    }
}

static void ties_go_to_even(void **state)
{
    (void)state;
    check_ties(&f16);
    check_ties(&bf16);
}

static void hand_made_cases(void **state)
{
    (void)state;
    static const struct {
        float value;
        uint16_t f16, bf16;
    } cases[] = {
        {0.0f, 0x0000, 0x0000},
        {-0.0f, 0x8000, 0x8000},
        {1.0f, 0x3c00, 0x3f80},
        {-2.0f, 0xc000, 0xc000},
        {65504.0f, 0x7bff, 0x4780},           /* largest f16 */
        {65519.996f, 0x7bff, 0x4780},         /* just below the tie */
        {65520.0f, 0x7c00, 0x4780},           /* tie: even is infinity */
        {0x1p-24f, 0x0001, 0x3380},           /* least f16 subnormal */
        {0x1p-25f, 0x0000, 0x3300},           /* tie: even is zero */
        {0x1.000002p-25f, 0x0001, 0x3300},    /* above the tie */
        {0x1.ffcp-15f, 0x0400, 0x3880},       /* tie up to the least normal f16 */
        {0x1p-133f, 0x0000, 0x0001},          /* least bf16 subnormal */
        {0x1p-134f, 0x0000, 0x0000},          /* tie: even is zero */
        {0x1.fffffep+127f, 0x7c00, 0x7f80},   /* largest f32 */
        {1.0f + 0x1p-8f, 0x3c04, 0x3f80},     /* bf16 tie: even is below */
        {1.0f + 3 * 0x1p-8f, 0x3c0c, 0x3f82}, /* bf16 tie: even is above */
        {1.0f + 0x1p-11f, 0x3c00, 0x3f80},    /* f16 tie: even is below */
        {(float)INFINITY, 0x7c00, 0x7f80},
        {-(float)INFINITY, 0xfc00, 0xff80},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(half_to_f16(cases[i].value), cases[i].f16);
        assert_int_equal(half_to_bf16(cases[i].value), cases[i].bf16);
    }
    /* A NaN whose payload lies only in the bits that are cut off stays a NaN. */
    assert_int_equal(half_to_f16(half_float_of(0x7f800001)), 0x7e00);
    assert_int_equal(half_to_bf16(half_float_of(0xff800001)), 0xffc0);
}

/* ---- the loops of every form against half.h ---- */

#define SAMPLE_COUNT 300007

static float *samples(void)
{
    float *values = malloc(SAMPLE_COUNT * sizeof *values);
    assert_non_null(values);
    uint64_t seed = 1;
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(seed >> 32);
        if (i % 4 == 1) { /* near a tie of one of the formats */
            bits = (bits & ~0x1fffu) | 0x1000u;
        } else if (i % 4 == 2) {
            bits = (bits & ~0xffffu) | 0x8000u;
        } else if (i % 4 == 3) { /* in the range of f16 */
            bits = (bits & 0x80000000u) | 0x33000000u | (bits % 0x14800000u);
        }
        values[i] = half_float_of(bits);
    }
    return values;
}

static void check_form(const struct format *format, const float *values, size_t count)
{
    unsigned char *halves = malloc(count * 2 + 1), *back = malloc(count * 4 + 1);
    assert_true(halves != NULL && back != NULL);
    for (size_t shift = 0; shift < 2; shift++) {
        kernel_from_f32(format->dtype, halves + shift, values, count);
        kernel_to_f32(format->dtype, (float *)(void *)(back + shift), halves + shift, count);
        for (size_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, halves + shift + 2 * i, sizeof half);
            assert_int_equal(half, convert_one(format, values[i]));
            uint32_t bits;
            memcpy(&bits, back + shift + 4 * i, sizeof bits);
            float expected =
                format->dtype == SHOAL_F16 ? half_from_f16(half) : half_from_bf16(half);
            assert_int_equal(bits, half_bits_of(expected));
        }
    }
    free(halves);
    free(back);
}

static void every_form_converts_alike(void **state)
{
    (void)state;
    float *values = samples();
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (!form->supported()) {
            print_message("this processor lacks %s\n", form->name);
            continue;
        }
        assert_true(kernel_force_isa(form->name));
        check_form(&f16, values, SAMPLE_COUNT);
        check_form(&bf16, values, SAMPLE_COUNT);
        for (size_t count = 0; count < 70; count++) {
            check_form(&f16, values + count, count);
            check_form(&bf16, values + count, count);
        }
    }
    free(values);
}

static void random_values_round_to_nearest(void **state)
{
    (void)state;
    float *values = samples();
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        if (!isnan(values[i])) {
            check_rounding(&f16, values[i]);
            check_rounding(&bf16, values[i]);
        }
    }
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_goes_to_f32_and_back),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(hand_made_cases),
        cmocka_unit_test(random_values_round_to_nearest),
        cmocka_unit_test(every_form_converts_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
