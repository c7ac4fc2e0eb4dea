/* SPDX-License-Identifier: Apache-2.0 */
/*
 * form.h: the inside of the kernel room: its forms and what each must offer.
 *
 * There are two kinds of form. The reference (reference.c, named "scalar") answers every dtype and
 * op directly, in C that can be checked by reading. A vector form is a table of loops over *lanes*:
 * vector.c lowers each (dtype, op) to a lane type and a combine (complex64 sum is f32 sum over
 * twice the lanes, i32 sum is u32 sum, bool max is u8 lor), and what has no lowering (product of
 * complex numbers, division of integers) runs in the reference. The tables come from one template,
 * vector.h, compiled once per instruction set.
 */
#ifndef SHOAL_KERNEL_FORM_H
#define SHOAL_KERNEL_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/kernel.h"

/* ---- the reference: as the functions of kernel.h with the same last name ---- */

void kernel_reference_reduce(const struct kernel_reduce *how, void *out, const void *const *inputs,
                             int input_count, size_t count);
void kernel_reference_scale(enum shoal_dtype dtype, void *out, const void *in, const void *factor,
                            size_t count);
void kernel_reference_divide(enum shoal_dtype dtype, void *out, const void *in, uint32_t divisor,
                             size_t count);
void kernel_reference_to_f32(enum shoal_dtype from, float *out, const void *in, size_t count);
void kernel_reference_from_f32(enum shoal_dtype to, void *out, const float *in, size_t count);
void kernel_reference_compress(enum shoal_dtype to, void *out, const float *in, float *residual,
                               size_t count);
void kernel_reference_pack_block(struct kernel_block *out, const float *in, float *residual);
void kernel_reference_unpack_block(float *out, const struct kernel_block *in, bool add);

/* The largest code, and the least scale: its inverse is finite. */
#define KERNEL_CODE_MAX  126
#define KERNEL_SCALE_MIN 0x1p-126f
#define KERNEL_CODE_INF  127
#define KERNEL_CODE_NAN  (-128)

/* ---- kernel_reduce with wide arrays, by the doors of whichever form is in use ---- */

void kernel_wide_reduce(const struct kernel_reduce *how, void *out, const void *const *inputs,
                        int input_count, size_t count);

/* ---- vector forms ---- */

enum kernel_lane {
    LANE_F64,
    LANE_F32,
    LANE_F16,
    LANE_BF16,
    LANE_I8, /* signed lanes have only min and max: the rest has the same bits as unsigned */
    LANE_I16,
    LANE_I32,
    LANE_I64,
    LANE_U8,
    LANE_U16,
    LANE_U32,
    LANE_U64,
    LANE_COUNT
};

enum kernel_combine {
    COMBINE_SUM,
    COMBINE_PROD,
    COMBINE_MIN,
    COMBINE_MAX,
    COMBINE_BAND,
    COMBINE_BOR,
    COMBINE_BXOR,
    COMBINE_LAND,
    COMBINE_LOR,
    COMBINE_LXOR,
    COMBINE_COUNT
};

/* One pass: out = inputs[0] combine inputs[1] combine …, of the bytes from begin to end. */
struct kernel_pass {
    char *out;
    const char *const *inputs;
    int input_count;
    uint32_t divisor;  /* float lanes: divide at the end; 0 or 1: no */
    size_t begin, end; /* whole lanes */
    bool stream;       /* around the cache, if also: of that alone; none of the inputs */
    char *also;        /* NULL: none */
    bool owns;         /* out's lines are fetched for writing */
};

struct kernel_loops {
    void (*reduce[LANE_COUNT][COMBINE_COUNT])(const struct kernel_pass *pass);
    void (*scale[LANE_COUNT])(char *out, const char *in, const void *factor, size_t bytes);
    void (*f16_to_f32)(float *out, const void *in, size_t count);
    void (*bf16_to_f32)(float *out, const void *in, size_t count);
    void (*f16_from_f32)(void *out, const float *in, size_t count);
    void (*bf16_from_f32)(void *out, const float *in, size_t count);
    void (*f16_compress)(void *out, const float *in, float *residual, size_t count);
    void (*bf16_compress)(void *out, const float *in, float *residual, size_t count);
    void (*pack_block)(struct kernel_block *out, const float *in, float *residual);
    void (*unpack_block)(float *out, const struct kernel_block *in, bool add);
};

void kernel_vector_reduce(const struct kernel_loops *loops, const struct kernel_reduce *how,
                          void *out, const void *const *inputs, int input_count, size_t count);
void kernel_vector_scale(const struct kernel_loops *loops, enum shoal_dtype dtype, void *out,
                         const void *in, const void *factor, size_t count);
void kernel_vector_divide(const struct kernel_loops *loops, enum shoal_dtype dtype, void *out,
                          const void *in, uint32_t divisor, size_t count);
/* With stores around the cache; out != in. */
void kernel_vector_copy_streamed(const struct kernel_loops *loops, void *out, const void *in,
                                 size_t bytes);

/* ---- lines ---- */

#define KERNEL_LINE_BYTES 64 /* of the caches */

/* Fetches a line for writing; touches nothing, also where there is no memory. */
static inline void kernel_own_line(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at)); /* nothing where it is unknown */
#else
    __builtin_prefetch(at, 1);
#endif
}

/* ---- all forms ---- */

struct kernel_form {
    const char *name;
    bool (*supported)(void);          /* by this processor */
    const struct kernel_loops *loops; /* NULL: the reference */
};

/* Best last; ends with a NULL name. The first is the reference. */
extern const struct kernel_form kernel_forms[];

extern const struct kernel_loops kernel_loops_base;
extern const struct kernel_loops kernel_loops_avx2;
extern const struct kernel_loops kernel_loops_avx512;
extern const struct kernel_loops kernel_loops_neon;

#endif
