/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_pattern.c: fills and checks benchmark buffers block by block.
 *
 * The phase of element i is i + block(i) + block(i) / 64 + ..., modulo 8, so that data which ends
 * up some blocks away from its place is found. Inside a block of 64 elements the phase is i plus
 * the block's own, so eight prepared blocks serve all.
 */
#include "bench_pattern.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[BENCH_DTYPE_COUNT] = {
    [BENCH_F64] = {"f64", 8},
    [BENCH_F32] = {"f32", 4},
    [BENCH_F16] = {"f16", 2},
    [BENCH_BF16] = {"bf16", 2},
    [BENCH_I8] = {"i8", 1},
    [BENCH_U8] = {"u8", 1},
    [BENCH_I16] = {"i16", 2},
    [BENCH_I32] = {"i32", 4},
    [BENCH_I64] = {"i64", 8},
    [BENCH_U16] = {"u16", 2},
    [BENCH_U32] = {"u32", 4},
    [BENCH_U64] = {"u64", 8},
    [BENCH_BOOL] = {"bool", 1},
    [BENCH_COMPLEX64] = {"complex64", 8},
    [BENCH_COMPLEX128] = {"complex128", 16},
};

static const char *const reduction_names[BENCH_REDUCTION_COUNT] = {
    "sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor"};

const char *bench_dtype_name(enum bench_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t bench_dtype_bytes(enum bench_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *bench_reduction_name(enum bench_reduction reduction)
{
    return reduction_names[reduction];
}

static bool is_float(enum bench_dtype dtype)
{
    return dtype <= BENCH_BF16 || dtype >= BENCH_COMPLEX64;
}

bool bench_reduction_checkable(enum bench_reduction reduction, enum bench_dtype dtype)
{
    if (dtype == BENCH_BOOL)
        return reduction >= BENCH_LAND;
    if (dtype >= BENCH_COMPLEX64)
        return reduction <= BENCH_AVG;
    return !is_float(dtype) || reduction <= BENCH_MAX;
}

/* ---- single values
 * -------------------------------------------------------------------------------- */

/* Exact for the small numbers used here, rounding to nearest even otherwise. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits += 0x7fff + ((bits >> 16) & 1);
    return (uint16_t)(bits >> 16);
}

/* value >= 0 and in the normal range of f16, or 0. */
static uint16_t to_f16(float value)
{
    if (value == 0)
        return 0;
    int exponent;
    double fraction = frexp((double)value, &exponent); /* 0.5 <= fraction < 1 */
    long mantissa = lrint(ldexp(fraction, 11));        /* 1024 to 2048 */
    return (uint16_t)(((exponent + 13) << 10) + mantissa);
}

static double from_16_bits(enum bench_dtype dtype, uint16_t bits)
{
    if (dtype == BENCH_BF16) {
        uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof(value));
        return (double)value;
    }
    return ldexp(1024 + (bits & 1023), ((bits >> 10) & 31) - 25);
}

static void encode_float(enum bench_dtype dtype, double value, void *out)
{
    float single[2] = {(float)value, (float)value};
    double both[2] = {value, value};
    uint16_t half = dtype == BENCH_F16 ? to_f16(single[0]) : to_bf16(single[0]);
    switch (dtype) {
    case BENCH_F32:
    case BENCH_COMPLEX64: memcpy(out, single, dtypes[dtype].bytes); break;
    case BENCH_F64:
    case BENCH_COMPLEX128: memcpy(out, both, dtypes[dtype].bytes); break;
    default: memcpy(out, &half, sizeof(half));
    }
}

/* Little endian: the low bytes of a wide integer are the narrow one. */
static void encode(enum bench_dtype dtype, double real, uint64_t integer, void *out)
{
    if (is_float(dtype))
        encode_float(dtype, real, out);
    else
        memcpy(out, &integer, dtypes[dtype].bytes);
}

static unsigned input_value(enum bench_dtype dtype, enum bench_reduction reduction, bool reducing,
                            int rank, uint64_t round, unsigned phase)
{
    static const unsigned char values[BENCH_PHASES] = {0, 1, 2, 3, 1, 3, 0, 2};
    unsigned shift = reducing ? (unsigned)(rank & 1) * 3 : (unsigned)rank * 3 + (unsigned)rank / 8;
    unsigned value = values[(phase + shift + (unsigned)round * 5) % BENCH_PHASES];
    if (dtype == BENCH_BOOL)
        return value & 1;
    return reducing && reduction == BENCH_PROD ? 1 + (value & 1) : value;
}

static void combine(enum bench_reduction reduction, double *real, uint64_t *integer, unsigned value)
{
    uint64_t v = value;
    switch (reduction) {
    case BENCH_SUM:
    case BENCH_AVG: *integer += v; break;
    case BENCH_PROD: *integer *= v; break;
    case BENCH_MIN: *integer = *integer < v ? *integer : v; break;
    case BENCH_MAX: *integer = *integer > v ? *integer : v; break;
    case BENCH_BAND: *integer &= v; break;
    case BENCH_BOR: *integer |= v; break;
    case BENCH_BXOR: *integer ^= v; break;
    case BENCH_LAND: *integer = *integer && v; break;
    case BENCH_LOR: *integer = *integer || v; break;
    case BENCH_LXOR: *integer = !*integer != !v; break;
    case BENCH_REDUCTION_COUNT: break;
    }
    *real = reduction == BENCH_PROD ? *real * value : (double)*integer;
}

/* ---- patterns
 * --------------------------------------------------------------------------------------- */

/* Lays the eight encoded values out in the eight blocks. */
static void lay_out(struct bench_pattern *out, enum bench_dtype dtype,
                    unsigned char values[BENCH_PHASES][BENCH_ELEMENT_BYTES])
{
    size_t bytes = dtypes[dtype].bytes;
    out->dtype = dtype;
    out->element_bytes = bytes;
    for (unsigned start = 0; start < BENCH_PHASES; start++) {
        for (unsigned i = 0; i < BENCH_BLOCK; i++)
            memcpy(out->blocks[start] + i * bytes, values[(start + i) % BENCH_PHASES], bytes);
    }
}

void bench_pattern_input(struct bench_pattern *out, enum bench_dtype dtype,
                         enum bench_reduction reduction, bool reducing, int rank, uint64_t round)
{
    unsigned char values[BENCH_PHASES][BENCH_ELEMENT_BYTES];
    for (unsigned phase = 0; phase < BENCH_PHASES; phase++) {
        unsigned value = input_value(dtype, reduction, reducing, rank, round, phase);
        encode(dtype, value, value, values[phase]);
    }
    out->rounded = false;
    lay_out(out, dtype, values);
}

void bench_pattern_reduced(struct bench_pattern *out, enum bench_dtype dtype,
                           enum bench_reduction reduction, int ranks, uint64_t round)
{
    unsigned char values[BENCH_PHASES][BENCH_ELEMENT_BYTES];
    for (unsigned phase = 0; phase < BENCH_PHASES; phase++) {
        uint64_t integer = input_value(dtype, reduction, true, 0, round, phase);
        double real = (double)integer;
        if (ranks == 1 && reduction >= BENCH_LAND)
            integer = integer != 0;
        for (int rank = 1; rank < ranks; rank++)
            combine(reduction, &real, &integer,
                    input_value(dtype, reduction, true, rank, round, phase));
        if (reduction == BENCH_AVG) {
            real /= ranks;
            integer /= (uint64_t)ranks;
        }
        encode(dtype, real, integer, values[phase]);
    }
    out->rounded = reduction == BENCH_AVG && is_float(dtype);
    lay_out(out, dtype, values);
}

static const unsigned char *block_at(const struct bench_pattern *pattern, uint64_t index)
{
    uint64_t block = index / BENCH_BLOCK;
    return pattern->blocks[(block + block / 64 + block / 4096 + block / 262144) % BENCH_PHASES];
}

/* How many of `count` elements from `index` on lie in one block. */
static uint64_t run_length(uint64_t index, uint64_t count)
{
    uint64_t left = BENCH_BLOCK - index % BENCH_BLOCK;
    return left < count ? left : count;
}

void bench_pattern_fill(const struct bench_pattern *pattern, void *buffer, uint64_t first,
                        uint64_t count)
{
    size_t bytes = pattern->element_bytes;
    unsigned char *to = buffer;
    while (count > 0) {
        uint64_t run = run_length(first, count);
        memcpy(to, block_at(pattern, first) + first % BENCH_BLOCK * bytes, run * bytes);
        to += run * bytes;
        first += run;
        count -= run;
    }
}

static double decode(enum bench_dtype dtype, const unsigned char *element)
{
    float single;
    double wide;
    uint16_t half;
    switch (dtype) {
    case BENCH_F32:
    case BENCH_COMPLEX64: memcpy(&single, element, sizeof(single)); return (double)single;
    case BENCH_F64:
    case BENCH_COMPLEX128: memcpy(&wide, element, sizeof(wide)); return wide;
    default: memcpy(&half, element, sizeof(half)); return half == 0 ? 0 : from_16_bits(dtype, half);
    }
}

static bool same_element(const struct bench_pattern *pattern, const unsigned char *expected,
                         const unsigned char *actual)
{
    size_t bytes = pattern->element_bytes;
    if (!pattern->rounded)
        return memcmp(expected, actual, bytes) == 0;
    double tolerance = pattern->dtype == BENCH_F16 || pattern->dtype == BENCH_BF16 ? 1e-2 : 1e-6;
    double want = decode(pattern->dtype, expected), got = decode(pattern->dtype, actual);
    return fabs(want - got) <= tolerance * (fabs(want) + 1e-3);
}

uint64_t bench_pattern_check(const struct bench_pattern *pattern, const void *buffer,
                             uint64_t first, uint64_t count)
{
    size_t bytes = pattern->element_bytes;
    const unsigned char *from = buffer;
    uint64_t done = 0;
    while (done < count) {
        uint64_t run = run_length(first + done, count - done);
        const unsigned char *expected =
            block_at(pattern, first + done) + (first + done) % BENCH_BLOCK * bytes;
        if (memcmp(from + done * bytes, expected, run * bytes) != 0) {
            for (uint64_t i = 0; i < run; i++) {
                if (!same_element(pattern, expected + i * bytes, from + (done + i) * bytes))
                    return done + i;
            }
        }
        done += run;
    }
    return count;
}
