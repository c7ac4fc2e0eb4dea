/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference_test.c: the reference form against independent arithmetic.
 *
 * Integers are computed here in 128 bits and cut to their width; floats in a type of at least twice
 * their precision plus two bits, rounded after each step, which gives the correctly rounded sum,
 * product and quotient. (16-bit rounding itself is tested in half_test.c.)
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/form.h"
#include "kernel/half.h"

#if LDBL_MANT_DIG >= 2 * DBL_MANT_DIG + 2
typedef long double wide_float;
#else
typedef __float128 wide_float;
#endif
typedef __int128 wide_integer;
typedef unsigned __int128 unsigned_wide;

enum { COUNT = 301, MAX_INPUTS = 17, MAX_ELEMENT_BYTES = 16 };

static unsigned char inputs[MAX_INPUTS][COUNT * MAX_ELEMENT_BYTES];
static unsigned char out[COUNT * MAX_ELEMENT_BYTES];

static uint64_t seed;

static uint32_t random_bits(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

/* ---- integers and bool ---- */

static bool is_signed(enum shoal_dtype dtype)
{
    return dtype == SHOAL_I8 || dtype == SHOAL_I16 || dtype == SHOAL_I32 || dtype == SHOAL_I64;
}

static bool is_integer(enum shoal_dtype dtype)
{
    return kernel_supports(dtype, SHOAL_BAND);
}

/* Cuts to the width of the dtype and reads the sign. */
static wide_integer wrap(enum shoal_dtype dtype, wide_integer value)
{
    if (dtype == SHOAL_BOOL) {
        return value != 0;
    }
    unsigned bits = (unsigned)kernel_dtype_bytes(dtype) * 8;
    wide_integer range = (wide_integer)1 << bits;
    value %= range;
    value += value < 0 ? range : 0;
    return is_signed(dtype) && value >= range / 2 ? value - range : value;
}

static wide_integer integer_at(enum shoal_dtype dtype, const void *array, size_t i)
{
    uint64_t bits = 0;
    size_t bytes = kernel_dtype_bytes(dtype);
    memcpy(&bits, (const char *)array + i * bytes, bytes); /* little-endian machines */
    return wrap(dtype, (wide_integer)bits);
}

static wide_integer integer_combine(enum shoal_dtype dtype, enum shoal_op op, wide_integer a,
                                    wide_integer b)
{
    switch (op) {
    case SHOAL_PROD:
        return wrap(dtype, (wide_integer)(uint64_t)((unsigned_wide)a * (unsigned_wide)b));
    case SHOAL_MIN: return a < b ? a : b;
    case SHOAL_MAX: return a > b ? a : b;
    case SHOAL_BAND: return a & b;
    case SHOAL_BOR: return a | b;
    case SHOAL_BXOR: return a ^ b;
    case SHOAL_LAND: return a != 0 && b != 0;
    case SHOAL_LOR: return a != 0 || b != 0;
    case SHOAL_LXOR: return (a != 0) + (b != 0) == 1;
    default: return wrap(dtype, a + b); /* sum, avg, premul_sum */
    }
}

static void check_integer(const struct kernel_reduce *how, int input_count)
{
    for (size_t i = 0; i < COUNT; i++) {
        wide_integer expected = integer_at(how->dtype, inputs[0], i);
        for (int k = 1; k < input_count; k++) {
            wide_integer next = integer_at(how->dtype, inputs[k], i);
            expected = integer_combine(how->dtype, how->op, expected, next);
        }
        if (how->op == SHOAL_AVG && how->divisor > 1) {
            wide_integer size = expected < 0 ? -expected : expected;
            size /= how->divisor;
            expected = expected < 0 ? -size : size;
        }
        wide_integer got = integer_at(how->dtype, out, i);
        if (got != expected) {
            fail_msg("%s %s of %d inputs, element %zu: got %lld, expected %lld",
                     kernel_dtype_name(how->dtype), kernel_op_name(how->op), input_count, i,
                     (long long)got, (long long)expected);
        }
    }
}

/* ---- floats; a complex number is two of them ---- */

/* The dtype of a part. */
static enum shoal_dtype part_of(enum shoal_dtype dtype)
{
    return dtype == SHOAL_COMPLEX64 ? SHOAL_F32 : dtype == SHOAL_COMPLEX128 ? SHOAL_F64 : dtype;
}

static double part_at(enum shoal_dtype part, const void *array, size_t i)
{
    const char *at = (const char *)array + i * kernel_dtype_bytes(part);
    double f64;
    float f32;
    uint16_t half;
    switch (part) {
    case SHOAL_F64: memcpy(&f64, at, sizeof f64); return f64;
    case SHOAL_F32: memcpy(&f32, at, sizeof f32); return (double)f32;
    default:
        memcpy(&half, at, sizeof half);
        return (double)(part == SHOAL_F16 ? half_from_f16(half) : half_from_bf16(half));
    }
}

/* To the precision that sums are kept in: f64 for f64, else f32. */
static double settle(enum shoal_dtype part, wide_float value)
{
    return part == SHOAL_F64 ? (double)value : (double)(float)value;
}

static double narrow(enum shoal_dtype part, double value)
{
    switch (part) {
    case SHOAL_F16: return (double)half_from_f16(half_to_f16((float)value));
    case SHOAL_BF16: return (double)half_from_bf16(half_to_bf16((float)value));
    default: return value;
    }
}

static double float_combine(enum shoal_dtype part, enum shoal_op op, double a, double b)
{
    switch (op) {
    case SHOAL_PROD: return settle(part, (wide_float)a * (wide_float)b);
    case SHOAL_MIN: return isnan(a) || isnan(b) ? (double)NAN : b < a ? b : a;
    case SHOAL_MAX: return isnan(a) || isnan(b) ? (double)NAN : b > a ? b : a;
    default: return settle(part, (wide_float)a + (wide_float)b);
    }
}

static void expect_part(const struct kernel_reduce *how, int input_count, size_t i, double expected)
{
    enum shoal_dtype part = part_of(how->dtype);
    if (how->op == SHOAL_AVG && how->divisor > 1) {
        /* The divisor is brought to the type of computation first, which matters above 2^24. */
        wide_float divisor = (wide_float)settle(part, (wide_float)how->divisor);
        expected = settle(part, (wide_float)expected / divisor);
    }
    expected = narrow(part, expected);
    double got = part_at(part, out, i);
    bool same =
        isnan(expected) ? isnan(got) != 0 : got == expected && !signbit(got) == !signbit(expected);
    if (!same) {
        fail_msg("%s %s of %d inputs, number %zu: got %a, expected %a",
                 kernel_dtype_name(how->dtype), kernel_op_name(how->op), input_count, i, got,
                 expected);
    }
}

static void check_float(const struct kernel_reduce *how, int input_count)
{
    enum shoal_dtype part = part_of(how->dtype);
    size_t parts = kernel_dtype_bytes(how->dtype) / kernel_dtype_bytes(part);
    for (size_t i = 0; i < COUNT * parts; i++) {
        double expected = part_at(part, inputs[0], i);
        for (int k = 1; k < input_count; k++) {
            expected = float_combine(part, how->op, expected, part_at(part, inputs[k], i));
        }
        expect_part(how, input_count, i, expected);
    }
}

static void check_complex_product(const struct kernel_reduce *how, int input_count)
{
    enum shoal_dtype part = part_of(how->dtype);
    for (size_t i = 0; i < COUNT; i++) {
        double re = part_at(part, inputs[0], 2 * i), im = part_at(part, inputs[0], 2 * i + 1);
        for (int k = 1; k < input_count; k++) {
            double c = part_at(part, inputs[k], 2 * i), d = part_at(part, inputs[k], 2 * i + 1);
            double ac = settle(part, (wide_float)re * (wide_float)c);
            double bd = settle(part, (wide_float)im * (wide_float)d);
            double ad = settle(part, (wide_float)re * (wide_float)d);
            double bc = settle(part, (wide_float)im * (wide_float)c);
            re = settle(part, (wide_float)ac - (wide_float)bd);
            im = settle(part, (wide_float)ad + (wide_float)bc);
        }
        expect_part(how, input_count, 2 * i, re);
        expect_part(how, input_count, 2 * i + 1, im);
    }
}

/* ---- inputs ---- */

/* Random bits in every eighth number, which gives NaN, infinities, subnormals and extremes;
 * moderate values elsewhere, so that sums are not all infinite. */
static void fill_float(enum shoal_dtype part, unsigned char *array, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = (uint64_t)random_bits() << 32 | random_bits();
        double f64 = ldexp((double)random_bits() - 0x1p31, -28 - (int)(bits % 8));
        float f32 = (float)f64;
        uint16_t half = part == SHOAL_F16 ? half_to_f16(f32) : half_to_bf16(f32);
        size_t bytes = kernel_dtype_bytes(part);
        const void *from = part == SHOAL_F64   ? (const void *)&f64
                           : part == SHOAL_F32 ? (const void *)&f32
                                               : &half;
        memcpy(array + i * bytes, i % 8 == 3 ? (const void *)&bits : from, bytes);
    }
}

static void fill(enum shoal_dtype dtype)
{
    enum shoal_dtype part = part_of(dtype);
    for (int k = 0; k < MAX_INPUTS; k++) {
        if (!is_integer(dtype)) {
            fill_float(part, inputs[k],
                       COUNT * kernel_dtype_bytes(dtype) / kernel_dtype_bytes(part));
            continue;
        }
        for (size_t i = 0; i < COUNT * MAX_ELEMENT_BYTES; i++) {
            inputs[k][i] = (unsigned char)random_bits();
            /* A bool is 0 or 1; of the integers some are 0, for the logical ops. */
            inputs[k][i] &= dtype == SHOAL_BOOL ? 1 : i / 16 % 3 == 0 ? 0 : 0xff;
        }
    }
}

static void check(const struct kernel_reduce *how, int input_count)
{
    const void *arrays[MAX_INPUTS];
    for (int k = 0; k < input_count; k++) {
        arrays[k] = inputs[k];
    }
    memset(out, 0xa5, sizeof out);
    kernel_reference_reduce(how, out, arrays, input_count, COUNT);
    if (is_integer(how->dtype)) {
        check_integer(how, input_count);
    } else if (how->op == SHOAL_PROD && part_of(how->dtype) != how->dtype) {
        check_complex_product(how, input_count);
    } else {
        check_float(how, input_count);
    }
}

static void every_dtype_and_op_is_right(void **state)
{
    (void)state;
    static const uint32_t divisors[] = {0, 1, 2, 3, 7, 129, 1000003, UINT32_MAX};
    for (int i = 0; i < SHOAL_DTYPE_COUNT * SHOAL_OP_COUNT; i++) {
        struct kernel_reduce how = {.dtype = (enum shoal_dtype)(i / SHOAL_OP_COUNT),
                                    .op = (enum shoal_op)(i % SHOAL_OP_COUNT)};
        if (!kernel_supports(how.dtype, how.op)) {
            continue;
        }
        seed = (uint64_t)i;
        fill(how.dtype);
        for (int input_count = 1; input_count <= MAX_INPUTS; input_count++) {
            size_t divisor_count = how.op == SHOAL_AVG ? sizeof divisors / sizeof *divisors : 1;
            for (size_t d = 0; d < divisor_count; d++) {
                how.divisor = divisors[d];
                check(&how, input_count);
            }
        }
    }
}

/* ---- a few by hand ---- */

#define REDUCE_TWO(T, DTYPE, OP, DIVISOR, A, B)                                             \
    reduce_two(&(struct kernel_reduce){.dtype = (DTYPE), .op = (OP), .divisor = (DIVISOR)}, \
               &(T){A}, &(T){B}, &(T){0})

static const void *reduce_two(const struct kernel_reduce *how, const void *a, const void *b,
                              void *result)
{
    kernel_reference_reduce(how, result, (const void *const[]){a, b}, 2, 1);
    return result;
}

#define EXPECT(T, DTYPE, OP, DIVISOR, A, B, RESULT) \
    assert_true(*(const T *)REDUCE_TWO(T, DTYPE, OP, DIVISOR, A, B) == (T)(RESULT))

static void hand_made_integers(void **state)
{
    (void)state;
    EXPECT(int8_t, SHOAL_I8, SHOAL_SUM, 0, 100, 100, -56);
    EXPECT(uint8_t, SHOAL_U8, SHOAL_SUM, 0, 200, 100, 44);
    EXPECT(uint16_t, SHOAL_U16, SHOAL_PROD, 0, 0xffff, 0xffff, 1);
    EXPECT(int32_t, SHOAL_I32, SHOAL_SUM, 0, INT32_MAX, 1, INT32_MIN);
    EXPECT(int64_t, SHOAL_I64, SHOAL_PROD, 0, INT64_MIN, -1, INT64_MIN);
    EXPECT(int32_t, SHOAL_I32, SHOAL_AVG, 2, -3, -4, -3); /* toward zero */
    EXPECT(int32_t, SHOAL_I32, SHOAL_AVG, 2, 3, 4, 3);
    EXPECT(uint64_t, SHOAL_U64, SHOAL_AVG, 2, UINT64_MAX, 0, UINT64_MAX / 2);
    EXPECT(int8_t, SHOAL_I8, SHOAL_MIN, 0, -1, 1, -1);
    EXPECT(uint8_t, SHOAL_U8, SHOAL_MIN, 0, 0xff, 1, 1);
    EXPECT(uint8_t, SHOAL_U8, SHOAL_LXOR, 0, 4, 2, 0);
    EXPECT(uint8_t, SHOAL_U8, SHOAL_LXOR, 0, 4, 0, 1);
    EXPECT(uint8_t, SHOAL_U8, SHOAL_BXOR, 0, 4, 2, 6);
    EXPECT(uint8_t, SHOAL_U8, SHOAL_LAND, 0, 4, 2, 1);
    EXPECT(uint8_t, SHOAL_U8, SHOAL_BAND, 0, 4, 2, 0);
    EXPECT(uint8_t, SHOAL_BOOL, SHOAL_SUM, 0, 1, 1, 1);
    EXPECT(uint8_t, SHOAL_BOOL, SHOAL_PROD, 0, 1, 0, 0);
    EXPECT(uint8_t, SHOAL_BOOL, SHOAL_MIN, 0, 1, 0, 0);
    EXPECT(uint8_t, SHOAL_BOOL, SHOAL_MAX, 0, 1, 0, 1);
    EXPECT(uint8_t, SHOAL_BOOL, SHOAL_BXOR, 0, 1, 1, 0);
}

static void hand_made_floats(void **state)
{
    (void)state;
    EXPECT(float, SHOAL_F32, SHOAL_SUM, 0, 0.1f, 0.2f, 0.3f);
    EXPECT(double, SHOAL_F64, SHOAL_SUM, 0, 0.1, 0.2, 0.30000000000000004);
    EXPECT(float, SHOAL_F32, SHOAL_AVG, 3, 1, 1, 0.6666667f);
    EXPECT(float, SHOAL_F32, SHOAL_SUM, 0, 0x1p-149f, 0x1p-149f, 0x1p-148f);
    EXPECT(float, SHOAL_F32, SHOAL_MAX, 0, -(float)INFINITY, -1, -1);
    EXPECT(uint16_t, SHOAL_F16, SHOAL_SUM, 0, 0x3c00, 0x3c00, 0x4000);   /* 1 + 1 */
    EXPECT(uint16_t, SHOAL_F16, SHOAL_SUM, 0, 0x7bff, 0x7bff, 0x7c00);   /* overflow */
    EXPECT(uint16_t, SHOAL_F16, SHOAL_AVG, 2, 0x7bff, 0x7bff, 0x7bff);   /* none in f32 */
    EXPECT(uint16_t, SHOAL_BF16, SHOAL_SUM, 0, 0x3f80, 0x3b80, 0x3f80);  /* 1 + 2^-8: tie */
    EXPECT(uint16_t, SHOAL_BF16, SHOAL_PROD, 0, 0x4000, 0xbf80, 0xc000); /* 2 * -1 */
    float nan = NAN;
    for (int op = SHOAL_MIN; op <= SHOAL_MAX; op++) {
        assert_true(isnan(*(const float *)REDUCE_TWO(float, SHOAL_F32, op, 0, nan, 1)));
        assert_true(isnan(*(const float *)REDUCE_TWO(float, SHOAL_F32, op, 0, 1, nan)));
    }
}

/* 1 + 2^-8 + 2^-8: two roundings to bf16 would lose both terms, one keeps their sum. */
static void halves_round_once(void **state)
{
    (void)state;
    uint16_t one = 0x3f80, small = 0x3b80, result;
    const struct kernel_reduce how = {.dtype = SHOAL_BF16, .op = SHOAL_SUM};
    kernel_reference_reduce(&how, &result, (const void *const[]){&one, &small, &small}, 3, 1);
    assert_int_equal(result, 0x3f81);
}

static void complex_numbers_multiply(void **state)
{
    (void)state;
    float a[2] = {1, 2}, b[2] = {3, 4}, result[2];
    const struct kernel_reduce how = {.dtype = SHOAL_COMPLEX64, .op = SHOAL_PROD};
    kernel_reference_reduce(&how, result, (const void *const[]){a, b}, 2, 1);
    assert_true(result[0] == -5 && result[1] == 10);
    kernel_reference_scale(SHOAL_COMPLEX64, result, a, b, 1);
    assert_true(result[0] == -5 && result[1] == 10);
    kernel_reference_divide(SHOAL_COMPLEX64, result, a, 4, 1);
    assert_true(result[0] == 0.25f && result[1] == 0.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_and_op_is_right),
        cmocka_unit_test(hand_made_integers),
        cmocka_unit_test(hand_made_floats),
        cmocka_unit_test(halves_round_once),
        cmocka_unit_test(complex_numbers_multiply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
