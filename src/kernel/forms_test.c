/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forms_test.c: every form against the reference, bit by bit, through the doors of kernel.h.
 *
 * Only NaN has no fixed bits (which of two NaNs survives an addition is the compiler's choice), so
 * a NaN equals any NaN. Inputs and output lie in pages of their own between forbidden pages, at the
 * very start or the very end, so that one byte read or written outside is a crash.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernel/form.h"
#include "kernel/half.h"
#include "kernel/rounding.h"
#include "support/skip.h"

enum { MAX_INPUTS = 17 };

static const int input_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17};
static const size_t small_counts[] = {0, 1, 7, 8, 15, 16, 31, 64, 65, 130, 517};

/* ---- memory between forbidden pages ---- */

#define AREA_BYTES ((size_t)64 << 10)

static unsigned char *areas[MAX_INPUTS + 3];

static int make_areas(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < sizeof areas / sizeof *areas; i++) {
        unsigned char *memory =
            mmap(NULL, AREA_BYTES + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED ||
            mprotect(memory + page, AREA_BYTES, PROT_READ | PROT_WRITE) != 0) {
            return -1;
        }
        areas[i] = memory + page;
    }
    return 0;
}

/* `bytes` at the end of area i, or `shift` bytes after its start if that is given. */
static unsigned char *place(int i, size_t bytes, int shift)
{
    return shift < 0 ? areas[i] + AREA_BYTES - bytes : areas[i] + shift;
}

/* ---- values ---- */

static uint64_t seed;

static uint64_t random_bits(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t high = seed >> 32;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return high << 32 | seed >> 32;
}

/* The dtype of one part of a complex number, or the dtype itself. */
static enum shoal_dtype part_of(enum shoal_dtype dtype)
{
    return dtype == SHOAL_COMPLEX64 ? SHOAL_F32 : dtype == SHOAL_COMPLEX128 ? SHOAL_F64 : dtype;
}

static void put_float(enum shoal_dtype part, unsigned char *at, uint64_t bits)
{
    double f64 = ldexp((double)(int32_t)bits, -28 - (int)(bits >> 32 & 7));
    float f32 = (float)f64;
    uint16_t half = part == SHOAL_F16 ? half_to_f16(f32) : half_to_bf16(f32);
    const void *from = part == SHOAL_F64   ? (const void *)&f64
                       : part == SHOAL_F32 ? (const void *)&f32
                                           : &half;
    bool raw = (bits >> 35) % 8 == 3; /* any bits: NaN, infinity, subnormals */
    memcpy(at, raw ? (const void *)&bits : from, kernel_dtype_bytes(part));
}

static void make_values(enum shoal_dtype dtype, unsigned char *array, size_t count)
{
    enum shoal_dtype part = part_of(dtype);
    size_t bytes = kernel_dtype_bytes(part);
    size_t parts = count * kernel_dtype_bytes(dtype) / bytes;
    for (size_t i = 0; i < parts; i++) {
        uint64_t bits = random_bits();
        if (!kernel_supports(dtype, SHOAL_BAND)) {
            put_float(part, array + i * bytes, bits);
        } else {
            bits = dtype == SHOAL_BOOL ? bits >> 40 & 1 : (bits >> 61) == 0 ? 0 : bits;
            memcpy(array + i * bytes, &bits, bytes);
        }
    }
}

enum { POOL_COUNT = 8191 };

/* Values from somewhere in a pool of them, because making each is slow. */
static void fill(enum shoal_dtype dtype, unsigned char *array, size_t count)
{
    static unsigned char pools[SHOAL_DTYPE_COUNT][POOL_COUNT * 16];
    static bool made[SHOAL_DTYPE_COUNT];
    size_t bytes = kernel_dtype_bytes(dtype);
    if (!made[dtype]) {
        make_values(dtype, pools[dtype], POOL_COUNT);
        made[dtype] = true;
    }
    while (count > 0) {
        size_t from = random_bits() % POOL_COUNT;
        size_t part = count < POOL_COUNT - from ? count : POOL_COUNT - from;
        memcpy(array, pools[dtype] + from * bytes, part * bytes);
        array += part * bytes;
        count -= part;
    }
}

static bool both_nan(enum shoal_dtype part, const unsigned char *a, const unsigned char *b)
{
    double x = 0, y = 0;
    float f32[2];
    uint16_t half[2];
    if (part == SHOAL_F64) {
        memcpy(&x, a, sizeof x), memcpy(&y, b, sizeof y);
    } else if (part == SHOAL_F32) {
        memcpy(&f32[0], a, sizeof(float)), memcpy(&f32[1], b, sizeof(float));
        x = (double)f32[0], y = (double)f32[1];
    } else if (part == SHOAL_F16 || part == SHOAL_BF16) {
        memcpy(&half[0], a, 2), memcpy(&half[1], b, 2);
        x = (double)(part == SHOAL_F16 ? half_from_f16(half[0]) : half_from_bf16(half[0]));
        y = (double)(part == SHOAL_F16 ? half_from_f16(half[1]) : half_from_bf16(half[1]));
    }
    return isnan(x) && isnan(y);
}

static void expect_same(const char *what, enum shoal_dtype dtype, const unsigned char *got,
                        const unsigned char *expected, size_t count)
{
    if (count == 0 || memcmp(got, expected, count * kernel_dtype_bytes(dtype)) == 0) {
        return;
    }
    enum shoal_dtype part = part_of(dtype);
    size_t bytes = kernel_dtype_bytes(part);
    size_t parts = count * kernel_dtype_bytes(dtype) / bytes;
    for (size_t i = 0; i < parts; i++) {
        const unsigned char *a = got + i * bytes, *b = expected + i * bytes;
        if (memcmp(a, b, bytes) != 0 && !both_nan(part, a, b)) {
            fail_msg("%s, %s, form %s: number %zu of %zu differs from the reference", what,
                     kernel_dtype_name(dtype), kernel_isa(), i, parts);
        }
    }
}

/* ---- reduce ---- */

struct reduce_case {
    struct kernel_reduce how;
    int input_count;
    size_t count;
    int shift;    /* of the areas: see place; out is one byte further */
    int in_place; /* index of the input that is the output, or -1 */
    int also;     /* index of the input that is the second output; AREA: none is; NONE: there is no
                   * second output */
};
enum { NONE = -2, AREA = -1 };

static void check_reduce(const struct reduce_case *c)
{
    size_t bytes = c->count * kernel_dtype_bytes(c->how.dtype);
    const void *inputs[MAX_INPUTS];
    unsigned char *expected = areas[MAX_INPUTS + 1];
    for (int k = 0; k < c->input_count; k++) {
        unsigned char *input = place(k, bytes, c->shift);
        fill(c->how.dtype, input, c->count);
        inputs[k] = input;
    }
    unsigned char *out = place(MAX_INPUTS, bytes, c->shift < 0 ? -1 : c->shift + 1);
    if (c->in_place >= 0) {
        out = place(c->in_place, bytes, c->shift);
    }
    unsigned char *also = NULL;
    if (c->also != NONE) {
        also = place(c->also == AREA ? MAX_INPUTS + 2 : c->also, bytes,
                     c->also == AREA && c->shift >= 0 ? c->shift + 2 : c->shift);
    }
    kernel_reference_reduce(&c->how, expected, inputs, c->input_count, c->count);
    struct kernel_reduce how = c->how;
    how.also = also;
    how.owns = c->in_place >= 0;
    kernel_reduce(&how, out, inputs, c->input_count, c->count);
    expect_same(kernel_op_name(c->how.op), c->how.dtype, out, expected, c->count);
    if (also != NULL) {
        expect_same("second output", c->how.dtype, also, expected, c->count);
    }
}

/* Calls check on every (dtype, op) that has a meaning, in every form that this processor has. */
static void for_every_form_dtype_op(void (*check)(struct kernel_reduce how))
{
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (!form->supported()) {
            print_message("this processor lacks %s\n", form->name);
            continue;
        }
        assert_true(kernel_force_isa(form->name));
        assert_string_equal(kernel_isa(), form->name);
        for (int i = 0; i < SHOAL_DTYPE_COUNT * SHOAL_OP_COUNT; i++) {
            struct kernel_reduce how = {.dtype = (enum shoal_dtype)(i / SHOAL_OP_COUNT),
                                        .op = (enum shoal_op)(i % SHOAL_OP_COUNT)};
            how.divisor = how.op == SHOAL_AVG ? 3 : 0;
            seed = (uint64_t)i;
            if (kernel_supports(how.dtype, how.op)) {
                check(how);
            }
        }
    }
}

static void check_counts(struct kernel_reduce how)
{
    static const int shifts[] = {-1, 0, 1, 3, 16};
    struct reduce_case c = {.how = how, .in_place = -1};
    for (size_t n = 0; n < sizeof input_counts / sizeof *input_counts; n++) {
        for (size_t i = 0; i < sizeof small_counts / sizeof *small_counts; i++) {
            for (size_t s = 0; s < sizeof shifts / sizeof *shifts; s++) {
                c.input_count = input_counts[n];
                c.count = small_counts[i];
                c.shift = shifts[s];
                c.how.stream = (n + i + s) % 2 != 0;
                c.also = (n + i + s) % 4 < 2 ? NONE : AREA;
                check_reduce(&c);
            }
        }
    }
}

static void every_count_and_alignment(void **state)
{
    (void)state;
    for_every_form_dtype_op(check_counts);
}

static void check_in_place(struct kernel_reduce how)
{
    struct reduce_case c = {.how = how, .count = 333, .shift = 2};
    for (c.input_count = 1; c.input_count <= 9; c.input_count++) {
        for (c.in_place = 0; c.in_place < c.input_count; c.in_place++) {
            c.how.stream = !c.how.stream;
            c.also = NONE;
            check_reduce(&c);
            c.also = (c.in_place + 1) % c.input_count;
            check_reduce(&c);
        }
    }
}

static void output_may_be_any_input(void **state)
{
    (void)state;
    for_every_form_dtype_op(check_in_place);
}

/* Long enough for several blocks of integer AVG and for stores around the cache, whose first vector
 * starts at every alignment (out lies one byte after the shift). */
static void check_long(struct kernel_reduce how)
{
    struct reduce_case c = {.how = how, .input_count = 3, .in_place = -1};
    for (c.shift = -1; c.shift <= 64; c.shift += 4) {
        c.count = (AREA_BYTES / 8 - 100) / kernel_dtype_bytes(how.dtype) + (size_t)(c.shift + 1);
        c.how.stream = true;
        c.also = c.shift % 8 == 3 ? AREA : NONE;
        check_reduce(&c);
    }
    c.also = AREA;
    c.shift = 1;
    c.count = AREA_BYTES / kernel_dtype_bytes(how.dtype) - 61;
    c.how.stream = false;
    check_reduce(&c);
}

static void long_arrays(void **state)
{
    (void)state;
    for_every_form_dtype_op(check_long);
}

static void check_million(enum shoal_dtype dtype, enum shoal_op op, bool stream)
{
    enum { COUNT = 1000003, INPUTS = 3 };
    struct kernel_reduce how = {.dtype = dtype, .op = op, .divisor = 7, .stream = stream};
    size_t bytes = COUNT * kernel_dtype_bytes(dtype);
    unsigned char *arrays[INPUTS + 2];
    for (int k = 0; k < INPUTS + 2; k++) {
        arrays[k] = malloc(bytes);
        assert_non_null(arrays[k]);
        if (k < INPUTS) {
            fill(dtype, arrays[k], COUNT);
        }
    }
    const void *inputs[] = {arrays[0], arrays[1], arrays[2]};
    kernel_reference_reduce(&how, arrays[INPUTS], inputs, INPUTS, COUNT);
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (kernel_force_isa(form->name)) {
            memset(arrays[INPUTS + 1], 0, bytes);
            kernel_reduce(&how, arrays[INPUTS + 1], inputs, INPUTS, COUNT);
            expect_same("1000003 elements", dtype, arrays[INPUTS + 1], arrays[INPUTS], COUNT);
        }
    }
    for (int k = 0; k < INPUTS + 2; k++) {
        free(arrays[k]);
    }
}

static void a_million_elements(void **state)
{
    (void)state;
    seed = 5;
    check_million(SHOAL_F32, SHOAL_SUM, false);
    check_million(SHOAL_F32, SHOAL_AVG, true);
    check_million(SHOAL_BF16, SHOAL_AVG, true);
    check_million(SHOAL_F16, SHOAL_SUM, false);
    check_million(SHOAL_I64, SHOAL_AVG, false);
    check_million(SHOAL_F64, SHOAL_MAX, true);
}

/* The same numbers give the same bits wherever they lie and however many there are. */
static void bits_do_not_depend_on_position(void **state)
{
    (void)state;
    enum { COUNT = 1024 };
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (!kernel_force_isa(form->name)) {
            continue;
        }
        struct kernel_reduce how = {.dtype = SHOAL_F32, .op = SHOAL_SUM};
        float *inputs[3], *out = (float *)(void *)areas[3], *part = (float *)(void *)areas[4];
        for (int k = 0; k < 3; k++) {
            fill(SHOAL_F32, areas[k], COUNT);
            inputs[k] = (float *)(void *)areas[k];
        }
        kernel_reduce(&how, out, (const void *const *)inputs, 3, COUNT);
        for (size_t at = 0; at < COUNT; at += 37) {
            for (size_t count = 1; count < COUNT - at; count += 61) {
                const void *from[] = {inputs[0] + at, inputs[1] + at, inputs[2] + at};
                kernel_reduce(&how, part, from, 3, count);
                expect_same("a part", SHOAL_F32, (unsigned char *)part, (unsigned char *)(out + at),
                            count);
            }
        }
    }
}

/* ---- every 16-bit float ---- */

enum { ALL_COUNT = 65536, PIECE_COUNT = 15 };

/* Zeros, subnormals, ones, the largest numbers, infinities and NaNs of f16 or bf16; what is one of
 * them in the one is some number in the other. */
static const uint16_t partners[] = {
    0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x83ff, 0x0080, 0x8400, 0x3c00, 0xbc01,
    0x3f80, 0xbf81, 0x7bff, 0xfbff, 0x7f7f, 0xff7f, 0x7c00, 0xfc00, 0x7f80, 0xff80,
    0x7e00, 0x7fc0, 0x7c01, 0xfdaa, 0x7f81, 0xffaa, 0x7fff, 0xffff,
};

/* In one call, or piece by piece, so that few elements go by whole steps of a loop. */
static void reduce_all(const struct kernel_reduce *how, uint16_t *out, const uint16_t *a,
                       const uint16_t *b, size_t piece_count)
{
    for (size_t at = 0; at < ALL_COUNT; at += piece_count) {
        size_t left = ALL_COUNT - at;
        const void *inputs[] = {a + at, b + at};
        kernel_reduce(how, out + at, inputs, 2, left < piece_count ? left : piece_count);
    }
}

/* Also the bits of a NaN, unless there are two to choose from. */
static void expect_same_all(const struct kernel_reduce *how, const uint16_t *got,
                            const uint16_t *expected, const uint16_t *a, const uint16_t *b)
{
    for (size_t i = 0; i < ALL_COUNT; i++) {
        const void *in[] = {&a[i], &b[i]}, *sum[] = {&got[i], &expected[i]};
        if (got[i] != expected[i] &&
            !(both_nan(how->dtype, in[0], in[1]) && both_nan(how->dtype, sum[0], sum[1]))) {
            fail_msg("%s of %s %04x and %04x, form %s: %04x instead of %04x",
                     kernel_op_name(how->op), kernel_dtype_name(how->dtype), a[i], b[i],
                     kernel_isa(), got[i], expected[i]);
        }
    }
}

static void check_all_halves(const struct kernel_reduce *how, uint16_t partner)
{
    static uint16_t a[ALL_COUNT], b[ALL_COUNT], got[ALL_COUNT], expected[ALL_COUNT];
    for (size_t i = 0; i < ALL_COUNT; i++) {
        a[i] = (uint16_t)i;
        b[i] = partner;
    }
    kernel_reference_reduce(how, expected, (const void *const[]){a, b}, 2, ALL_COUNT);
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (form->loops != NULL && kernel_force_isa(form->name)) {
            reduce_all(how, got, a, b, ALL_COUNT);
            expect_same_all(how, got, expected, a, b);
            reduce_all(how, got, a, b, PIECE_COUNT);
            expect_same_all(how, got, expected, a, b);
        }
    }
}

static void every_16_bit_float(void **state)
{
    (void)state;
    static const enum shoal_op ops[] = {SHOAL_SUM, SHOAL_AVG, SHOAL_PROD, SHOAL_MIN, SHOAL_MAX};
    for (size_t i = 0; i < 2 * sizeof ops / sizeof *ops; i++) {
        struct kernel_reduce how = {
            .dtype = i % 2 ? SHOAL_BF16 : SHOAL_F16, .op = ops[i / 2], .divisor = 3};
        for (size_t k = 0; k < sizeof partners / sizeof *partners; k++) {
            check_all_halves(&how, partners[k]);
        }
    }
}

/* ---- partial sums in f32 ---- */

/* Which of the inputs are f32 by the bits of `mask`; the expectation is made in f32 throughout. */
static void check_wide(struct kernel_reduce how, int input_count, size_t count, unsigned mask)
{
    static float widened[MAX_INPUTS][AREA_BYTES / sizeof(float)], sums[AREA_BYTES / sizeof(float)];
    struct kernel_reduce in_f32 = {.dtype = SHOAL_F32, .op = how.op, .divisor = how.divisor};
    enum shoal_dtype out_dtype = how.wide_out ? SHOAL_F32 : how.dtype;
    const void *inputs[MAX_INPUTS], *reference[MAX_INPUTS];
    bool wide[MAX_INPUTS];
    unsigned char *out = place(MAX_INPUTS, count * kernel_dtype_bytes(out_dtype), -1);
    unsigned char *expected = areas[MAX_INPUTS + 1];
    for (int k = 0; k < input_count; k++) {
        wide[k] = mask >> k & 1;
        enum shoal_dtype dtype = wide[k] ? SHOAL_F32 : how.dtype;
        unsigned char *input = place(k, count * kernel_dtype_bytes(dtype), -1);
        fill(dtype, input, count);
        inputs[k] = input;
        reference[k] = memcpy(widened[k], input, count * kernel_dtype_bytes(dtype));
        if (!wide[k]) {
            kernel_reference_to_f32(how.dtype, widened[k], input, count);
        }
        if (dtype == out_dtype && mask >> 16 & 1) {
            out = input;
        }
    }
    how.wide_inputs = wide;
    kernel_reference_reduce(&in_f32, sums, reference, input_count, count);
    if (how.wide_out) {
        memcpy(expected, sums, count * sizeof(float));
    } else {
        kernel_reference_from_f32(how.dtype, expected, sums, count);
    }
    kernel_reduce(&how, out, inputs, input_count, count);
    expect_same("partial sums", out_dtype, out, expected, count);
}

static void check_wide_dtype(struct kernel_reduce how)
{
    static const size_t counts[] = {0, 1, 7, 64, 517, 1023, 1024, 1025, 3000};
    if (!kernel_dtype_is_half(how.dtype)) {
        return;
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int input_count = 1; input_count <= 9; input_count += 1 + input_count / 3) {
            for (unsigned mask = 0; mask < 12; mask++) {
                how.wide_out = mask % 2 != 0;
                check_wide(how, input_count, counts[i], mask / 2 * 0x29u | mask / 4 % 2 << 16);
            }
        }
    }
}

static void sums_beside_partial_sums_in_f32(void **state)
{
    (void)state;
    for_every_form_dtype_op(check_wide_dtype);
}

/* A sum made in stages has the bits of the sum made at once, since both are the same tree. */
static void a_sum_in_stages_is_rounded_once(void **state)
{
    (void)state;
    enum { COUNT = 2000, INPUTS = 9 };
    static const bool first_is_wide[INPUTS] = {true};
    for (enum shoal_dtype dtype = SHOAL_F16; dtype <= SHOAL_BF16; dtype++) {
        struct kernel_reduce how = {.dtype = dtype, .op = SHOAL_AVG, .divisor = INPUTS};
        const void *inputs[INPUTS], *rest[INPUTS];
        for (int k = 0; k < INPUTS; k++) {
            fill(dtype, areas[k], COUNT);
            inputs[k] = areas[k];
        }
        kernel_reduce(&how, areas[INPUTS], inputs, INPUTS, COUNT);
        for (int stage = 1; stage < INPUTS; stage++) {
            struct kernel_reduce partial = {.dtype = dtype, .op = SHOAL_AVG, .wide_out = true};
            kernel_reduce(&partial, areas[INPUTS + 1], inputs, stage, COUNT);
            rest[0] = areas[INPUTS + 1];
            memcpy(&rest[1], &inputs[stage], (size_t)(INPUTS - stage) * sizeof *rest);
            struct kernel_reduce last = how;
            last.wide_inputs = first_is_wide;
            kernel_reduce(&last, areas[INPUTS + 2], rest, INPUTS - stage + 1, COUNT);
            expect_same("in stages", dtype, areas[INPUTS + 2], areas[INPUTS], COUNT);
        }
    }
}

/* ---- scale, divide, copy ---- */

static void check_scale_and_divide(struct kernel_reduce how)
{
    enum shoal_dtype dtype = how.dtype;
    if (how.op != SHOAL_AVG) { /* once per dtype that has both */
        return;
    }
    static const uint32_t divisors[] = {0, 1, 2, 5, 300, UINT32_MAX};
    unsigned char *factor = place(2, kernel_dtype_bytes(dtype), 3), *expected = areas[3];
    for (size_t i = 0; i < sizeof small_counts / sizeof *small_counts; i++) {
        size_t count = small_counts[i], bytes = count * kernel_dtype_bytes(dtype);
        for (int shift = -1; shift < 4; shift++) {
            unsigned char *in = place(0, bytes, shift);
            unsigned char *out = shift == 2 ? in : place(1, bytes, shift < 0 ? -1 : 3);
            fill(dtype, in, count);
            fill(dtype, factor, 1);
            kernel_reference_scale(dtype, expected, in, factor, count);
            kernel_scale(dtype, out, in, factor, count);
            expect_same("scale", dtype, out, expected, count);
            for (size_t d = 0; d < sizeof divisors / sizeof *divisors; d++) {
                fill(dtype, in, count);
                if (divisors[d] > 1) {
                    kernel_reference_divide(dtype, expected, in, divisors[d], count);
                } else {
                    memcpy(expected, in, bytes);
                }
                kernel_divide(dtype, out, in, divisors[d], count);
                expect_same("divide", dtype, out, expected, count);
            }
        }
    }
}

static void scale_and_divide(void **state)
{
    (void)state;
    for_every_form_dtype_op(check_scale_and_divide);
}

static void copy_copies(void **state)
{
    (void)state;
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (!kernel_force_isa(form->name)) {
            continue;
        }
        for (size_t bytes = 0; bytes < 9000; bytes += bytes < 300 ? 1 : 331) {
            for (int shift = -1; shift < 66; shift += 11) {
                unsigned char *in = place(0, bytes, shift);
                unsigned char *out = place(1, bytes, shift < 0 ? -1 : 70 - shift);
                fill(SHOAL_U8, in, bytes);
                kernel_copy(out, in, bytes, shift % 2 == 0);
                assert_memory_equal(out, in, bytes);
                kernel_copy(in, in, bytes, true);
                assert_memory_equal(out, in, bytes);
            }
        }
    }
}

/* With and without stores around the cache, at every alignment and length modulo a vector. */
static void nothing_outside_is_written(void **state)
{
    (void)state;
    struct kernel_reduce how = {.dtype = SHOAL_U8, .op = SHOAL_SUM};
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (!kernel_force_isa(form->name)) {
            continue;
        }
        for (size_t i = 0; i < 1400; i++) {
            size_t count = i < 700 ? i : 4096 + i;
            unsigned char *out = areas[2] + 64 + i * 7 % 64;
            memset(areas[2], 0x5a, 8192);
            how.stream = i >= 700;
            kernel_reduce(&how, out, (const void *const[]){areas[0], areas[1]}, 2, count);
            for (unsigned char *at = areas[2]; at < areas[2] + 8192; at++) {
                if ((at < out || at >= out + count) && *at != 0x5a) {
                    fail_msg("form %s wrote outside, count %zu", form->name, count);
                }
            }
        }
    }
}

/* ---- the thread's floating-point mode ---- */

#if defined(__SSE2__)
#define STRANGE_MODE 0xdfc0u /* flush both ways, round up */
#elif defined(__aarch64__)
/* Round up, flush (f16 too), one NaN for all, an f16 without infinity. */
#define STRANGE_MODE 0x07480000u
#else
#define STRANGE_MODE ROUNDING_DEFAULT
#endif

/* Subnormals of f32 and of f16, sums that must be rounded, and numbers too large for f16. */
static float mode_number(size_t i, int input)
{
    switch (i % 4) {
    case 0: return (float)i / (float)(3 + 4 * input);
    case 1: return 0x1p-140f * (float)(i + 1 + (size_t)input);
    case 2: return 0x1p-24f * (float)(i + (size_t)input);
    default: return 150.0f * (float)i;
    }
}

enum { MODE_COUNT = 1000 };

/* Sums of areas 0 and 1 to area 3, area 0 to f32 in area 4, and that back in area 5. */
static void compute_in_mode(enum shoal_dtype dtype, uint64_t mode)
{
    struct kernel_reduce how = {.dtype = dtype, .op = SHOAL_AVG, .divisor = 3};
    const void *const inputs[] = {areas[0], areas[1]};
    const uint64_t own = rounding_get();
    rounding_set(mode);
    const uint64_t before = rounding_get(); /* without what this processor doesn't have */
    kernel_reduce(&how, areas[3], inputs, 2, MODE_COUNT);
    if (kernel_dtype_is_half(dtype)) {
        kernel_to_f32(dtype, (float *)(void *)areas[4], areas[0], MODE_COUNT);
        kernel_from_f32(dtype, areas[5], (float *)(void *)areas[2], MODE_COUNT);
    }
    const uint64_t after = rounding_get();
    rounding_set(own);
    assert_int_equal(after & ~(uint64_t)ROUNDING_FLAGS, before & ~(uint64_t)ROUNDING_FLAGS);
}

static void check_mode(enum shoal_dtype dtype)
{
    unsigned char *expected = areas[6];
    float *numbers = (float *)(void *)areas[2];
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < MODE_COUNT; i++) {
            numbers[i] = mode_number(i, k);
        }
        memcpy(areas[k], numbers, MODE_COUNT * sizeof *numbers);
        if (kernel_dtype_is_half(dtype)) {
            kernel_reference_from_f32(dtype, areas[k], numbers, MODE_COUNT);
        }
    }
    assert_true(kernel_force_isa("scalar"));
    compute_in_mode(dtype, ROUNDING_DEFAULT);
    for (int i = 3; i < 6; i++) {
        memcpy(expected + (i - 3) * 4 * MODE_COUNT, areas[i], 4 * MODE_COUNT);
    }
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (kernel_force_isa(form->name)) {
            compute_in_mode(dtype, STRANGE_MODE);
            for (int i = 3; i < 6; i++) {
                assert_memory_equal(areas[i], expected + (i - 3) * 4 * MODE_COUNT, 4 * MODE_COUNT);
            }
        }
    }
}

static void mode_of_the_thread_has_no_influence(void **state)
{
    (void)state;
    if (STRANGE_MODE == ROUNDING_DEFAULT) {
        skip_because("the mode is left alone on this machine");
    }
    check_mode(SHOAL_F32);
    check_mode(SHOAL_F16);
    check_mode(SHOAL_BF16);
}

static void unknown_forms_are_refused(void **state)
{
    (void)state;
    assert_true(kernel_force_isa("scalar"));
    assert_false(kernel_force_isa("sse9"));
    assert_string_equal(kernel_isa(), "scalar");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_count_and_alignment),
        cmocka_unit_test(output_may_be_any_input),
        cmocka_unit_test(long_arrays),
        cmocka_unit_test(a_million_elements),
        cmocka_unit_test(bits_do_not_depend_on_position),
        cmocka_unit_test(every_16_bit_float),
        cmocka_unit_test(sums_beside_partial_sums_in_f32),
        cmocka_unit_test(a_sum_in_stages_is_rounded_once),
        cmocka_unit_test(scale_and_divide),
        cmocka_unit_test(copy_copies),
        cmocka_unit_test(nothing_outside_is_written),
        cmocka_unit_test(mode_of_the_thread_has_no_influence),
        cmocka_unit_test(unknown_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, make_areas, NULL);
}
