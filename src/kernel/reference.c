/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c: every dtype and op in plain C, one element at a time: the form "scalar".
 *
 * It is the definition that the vector forms are tested against, so it is written to be checked by
 * reading, not to be fast. An element is widened to the type it is computed in (16-bit floats to
 * float, integers to 64 bits), combined left to right, divided if that is asked for, and narrowed
 * once.
 *
 * Choices where C or the hardware leaves one:
 *  - Integers are combined as unsigned, so sums and products wrap. AVG divides the wrapped sum.
 *  - Float min and max give NaN if any input is NaN; of equal numbers (-0 and +0) the first stays.
 *  - Complex products are (ac - bd, ad + bc), without the recovery of infinities of C's Annex G.
 *  - bool: nonzero is true, the result is 0 or 1; sum and max are or, prod and min are and.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "kernel/form.h"
#include "kernel/half.h"

struct complex_f32 {
    float re, im;
};
struct complex_f64 {
    double re, im;
};

/* ---- combine: a op b, in the type of computation ---- */

#define DEFINE_FLOAT_COMBINE(T)                           \
    static T combine_##T(enum shoal_op op, T a, T b)      \
    {                                                     \
        switch (op) {                                     \
        case SHOAL_SUM:                                   \
        case SHOAL_AVG:                                   \
        case SHOAL_PREMUL_SUM: return a + b;              \
        case SHOAL_PROD: return a * b;                    \
        case SHOAL_MIN: return b < a || b != b ? b : a;   \
        case SHOAL_MAX: return b > a || b != b ? b : a;   \
        default: BASE_ASSERT(!"op on a float"); return a; \
        }                                                 \
    }
DEFINE_FLOAT_COMBINE(float)
DEFINE_FLOAT_COMBINE(double)

#define DEFINE_INTEGER_COMBINE(T)                                     \
    static T combine_##T(enum shoal_op op, T a, T b)                  \
    {                                                                 \
        switch (op) {                                                 \
        case SHOAL_SUM:                                               \
        case SHOAL_AVG:                                               \
        case SHOAL_PREMUL_SUM: return (T)((uint64_t)a + (uint64_t)b); \
        case SHOAL_PROD: return (T)((uint64_t)a * (uint64_t)b);       \
        case SHOAL_MIN: return b < a ? b : a;                         \
        case SHOAL_MAX: return b > a ? b : a;                         \
        case SHOAL_BAND: return a & b;                                \
        case SHOAL_BOR: return a | b;                                 \
        case SHOAL_BXOR: return a ^ b;                                \
        case SHOAL_LAND: return a && b;                               \
        case SHOAL_LOR: return a || b;                                \
        case SHOAL_LXOR: return !a != !b;                             \
        default: BASE_ASSERT(!"op on an integer"); return a;          \
        }                                                             \
    }
DEFINE_INTEGER_COMBINE(int64_t)
DEFINE_INTEGER_COMBINE(uint64_t)

static bool combine_bool(enum shoal_op op, bool a, bool b)
{
    switch (op) {
    case SHOAL_SUM:
    case SHOAL_MAX:
    case SHOAL_BOR:
    case SHOAL_LOR: return a || b;
    case SHOAL_PROD:
    case SHOAL_MIN:
    case SHOAL_BAND:
    case SHOAL_LAND: return a && b;
    case SHOAL_BXOR:
    case SHOAL_LXOR: return a != b;
    default: BASE_ASSERT(!"op on a bool"); return a;
    }
}

#define DEFINE_COMPLEX_COMBINE(NAME, T)                                            \
    static T combine_##NAME(enum shoal_op op, T a, T b)                            \
    {                                                                              \
        if (op == SHOAL_PROD) {                                                    \
            return (T){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};      \
        }                                                                          \
        BASE_ASSERT(op == SHOAL_SUM || op == SHOAL_AVG || op == SHOAL_PREMUL_SUM); \
        return (T){a.re + b.re, a.im + b.im};                                      \
    }
DEFINE_COMPLEX_COMBINE(complex_f32, struct complex_f32)
DEFINE_COMPLEX_COMBINE(complex_f64, struct complex_f64)

/* ---- divide ---- */

static float divide_float(float a, uint32_t divisor)
{
    return a / (float)divisor;
}

static double divide_double(double a, uint32_t divisor)
{
    return a / (double)divisor;
}

static int64_t divide_int64_t(int64_t a, uint32_t divisor)
{
    return a / (int64_t)divisor;
}

static uint64_t divide_uint64_t(uint64_t a, uint32_t divisor)
{
    return a / divisor;
}

static bool divide_bool(bool a, uint32_t divisor)
{
    (void)divisor;
    BASE_ASSERT(!"avg of bool");
    return a;
}

static struct complex_f32 divide_complex_f32(struct complex_f32 a, uint32_t divisor)
{
    return (struct complex_f32){a.re / (float)divisor, a.im / (float)divisor};
}

static struct complex_f64 divide_complex_f64(struct complex_f64 a, uint32_t divisor)
{
    return (struct complex_f64){a.re / (double)divisor, a.im / (double)divisor};
}

/* ---- the loops, one set per dtype ---- */

/* Every dtype: X(name, enum, element in memory, type of computation and its suffix above, widen,
 * narrow, wrap). `wrap` brings a computed value to the element's range before the division:
 * integers wrap, floats keep their full precision. */
#define KEEP(x)  (x)
#define TRUTH(x) ((x) != 0)
#define DTYPES(X)                                                                                  \
    X(f64, SHOAL_F64, double, double, double, KEEP, KEEP, KEEP)                                    \
    X(f32, SHOAL_F32, float, float, float, KEEP, KEEP, KEEP)                                       \
    X(f16, SHOAL_F16, uint16_t, float, float, half_from_f16, half_to_f16, KEEP)                    \
    X(bf16, SHOAL_BF16, uint16_t, float, float, half_from_bf16, half_to_bf16, KEEP)                \
    X(i8, SHOAL_I8, int8_t, int64_t, int64_t, KEEP, (int8_t), (int8_t))                            \
    X(u8, SHOAL_U8, uint8_t, uint64_t, uint64_t, KEEP, (uint8_t), (uint8_t))                       \
    X(i16, SHOAL_I16, int16_t, int64_t, int64_t, KEEP, (int16_t), (int16_t))                       \
    X(i32, SHOAL_I32, int32_t, int64_t, int64_t, KEEP, (int32_t), (int32_t))                       \
    X(i64, SHOAL_I64, int64_t, int64_t, int64_t, KEEP, KEEP, KEEP)                                 \
    X(u16, SHOAL_U16, uint16_t, uint64_t, uint64_t, KEEP, (uint16_t), (uint16_t))                  \
    X(u32, SHOAL_U32, uint32_t, uint64_t, uint64_t, KEEP, (uint32_t), (uint32_t))                  \
    X(u64, SHOAL_U64, uint64_t, uint64_t, uint64_t, KEEP, KEEP, KEEP)                              \
    X(bool, SHOAL_BOOL, uint8_t, bool, bool, TRUTH, KEEP, KEEP)                                    \
    X(complex64, SHOAL_COMPLEX64, struct complex_f32, struct complex_f32, complex_f32, KEEP, KEEP, \
      KEEP)                                                                                        \
    X(complex128, SHOAL_COMPLEX128, struct complex_f64, struct complex_f64, complex_f64, KEEP,     \
      KEEP, KEEP)

#define DEFINE_LOOPS(NAME, ENUM, ELEMENT, COMPUTED, SUFFIX, WIDEN, NARROW, WRAP)             \
    static COMPUTED read_##NAME(const void *array, size_t i)                                 \
    {                                                                                        \
        ELEMENT element;                                                                     \
        memcpy(&element, (const char *)array + i * sizeof element, sizeof element);          \
        return WIDEN(element);                                                               \
    }                                                                                        \
    static void write_##NAME(void *array, size_t i, COMPUTED value)                          \
    {                                                                                        \
        ELEMENT element = NARROW(value);                                                     \
        memcpy((char *)array + i * sizeof element, &element, sizeof element);                \
    }                                                                                        \
    static void reduce_##NAME(const struct kernel_reduce *how, void *out,                    \
                              const void *const *inputs, int input_count, size_t count)      \
    {                                                                                        \
        for (size_t i = 0; i < count; i++) {                                                 \
            COMPUTED sum = read_##NAME(inputs[0], i);                                        \
            for (int k = 1; k < input_count; k++) {                                          \
                sum = combine_##SUFFIX(how->op, sum, read_##NAME(inputs[k], i));             \
            }                                                                                \
            if (how->op == SHOAL_AVG && how->divisor > 1) {                                  \
                sum = divide_##SUFFIX(WRAP(sum), how->divisor);                              \
            }                                                                                \
            write_##NAME(out, i, sum);                                                       \
        }                                                                                    \
    }                                                                                        \
    static void scale_##NAME(void *out, const void *in, const void *factor, size_t count)    \
    {                                                                                        \
        COMPUTED by = read_##NAME(factor, 0);                                                \
        for (size_t i = 0; i < count; i++) {                                                 \
            write_##NAME(out, i, combine_##SUFFIX(SHOAL_PROD, read_##NAME(in, i), by));      \
        }                                                                                    \
    }                                                                                        \
    static void divide_all_##NAME(void *out, const void *in, uint32_t divisor, size_t count) \
    {                                                                                        \
        for (size_t i = 0; i < count; i++) {                                                 \
            write_##NAME(out, i, divide_##SUFFIX(read_##NAME(in, i), divisor));              \
        }                                                                                    \
    }
DTYPES(DEFINE_LOOPS)

#define CASE_REDUCE(NAME, ENUM, ...)                         \
    case ENUM:                                               \
        reduce_##NAME(how, out, inputs, input_count, count); \
        break;
#define CASE_SCALE(NAME, ENUM, ...)           \
    case ENUM:                                \
        scale_##NAME(out, in, factor, count); \
        break;
#define CASE_DIVIDE(NAME, ENUM, ...) \
    case ENUM: divide_all_##NAME(out, in, divisor, count); break;

void kernel_reference_reduce(const struct kernel_reduce *how, void *out, const void *const *inputs,
                             int input_count, size_t count)
{
    switch (how->dtype) {
        DTYPES(CASE_REDUCE)
    default: BASE_ASSERT(!"dtype");
    }
}

void kernel_reference_scale(enum shoal_dtype dtype, void *out, const void *in, const void *factor,
                            size_t count)
{
    switch (dtype) {
        DTYPES(CASE_SCALE)
    default: BASE_ASSERT(!"dtype");
    }
}

void kernel_reference_divide(enum shoal_dtype dtype, void *out, const void *in, uint32_t divisor,
                             size_t count)
{
    switch (dtype) {
        DTYPES(CASE_DIVIDE)
    default: BASE_ASSERT(!"dtype");
    }
}

void kernel_reference_to_f32(enum shoal_dtype from, float *out, const void *in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        write_f32(out, i, from == SHOAL_F16 ? read_f16(in, i) : read_bf16(in, i));
    }
}

void kernel_reference_from_f32(enum shoal_dtype to, void *out, const float *in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (to == SHOAL_F16) {
            write_f16(out, i, read_f32(in, i));
        } else {
            write_bf16(out, i, read_f32(in, i));
        }
    }
}

void kernel_reference_compress(enum shoal_dtype to, void *out, const float *in, float *residual,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float value = read_f32(in, i) + read_f32(residual, i), rounded;
        kernel_reference_from_f32(to, (char *)out + i * sizeof(uint16_t), &value, 1);
        kernel_reference_to_f32(to, &rounded, (const char *)out + i * sizeof(uint16_t), 1);
        float lost = value - rounded;
        write_f32(residual, i, isfinite(lost) ? lost : 0);
    }
}

/* ---- 8 bits in blocks ---- */

static float scale_of(const float *values)
{
    float largest = 0;
    for (size_t i = 0; i < KERNEL_BLOCK_COUNT; i++)
        if (isfinite(values[i]) && fabsf(values[i]) > largest)
            largest = fabsf(values[i]);
    float scale = largest / KERNEL_CODE_MAX;
    return scale >= KERNEL_SCALE_MIN ? scale : 0;
}

static int8_t code_of(float value, float scale)
{
    if (isnan(value))
        return KERNEL_CODE_NAN;
    if (isinf(value))
        return value > 0 ? KERNEL_CODE_INF : -KERNEL_CODE_INF;
    return scale > 0 ? (int8_t)rintf(value * (1 / scale)) : 0;
}

static float value_of(int8_t code, float scale)
{
    if (code == KERNEL_CODE_NAN)
        return (float)NAN;
    if (code == KERNEL_CODE_INF || code == -KERNEL_CODE_INF)
        return code > 0 ? (float)INFINITY : -(float)INFINITY;
    return (float)code * scale;
}

void kernel_reference_pack_block(struct kernel_block *out, const float *in, float *residual)
{
    float values[KERNEL_BLOCK_COUNT];
    for (size_t i = 0; i < KERNEL_BLOCK_COUNT; i++)
        values[i] = residual ? in[i] + residual[i] : in[i];
    out->scale = scale_of(values);
    for (size_t i = 0; i < KERNEL_BLOCK_COUNT; i++) {
        out->codes[i] = code_of(values[i], out->scale);
        float lost = values[i] - value_of(out->codes[i], out->scale);
        if (residual)
            residual[i] = isfinite(lost) ? lost : 0;
    }
}

void kernel_reference_unpack_block(float *out, const struct kernel_block *in, bool add)
{
    for (size_t i = 0; i < KERNEL_BLOCK_COUNT; i++) {
        float value = value_of(in->codes[i], in->scale);
        out[i] = add ? out[i] + value : value;
    }
}
