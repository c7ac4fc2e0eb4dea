/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h: the pure loops over elements: reduce, scale, divide, copy, convert.
 *
 * One plain C reference per dtype and op, and SIMD forms chosen once at first use. Every form gives
 * the same bits. Nothing here allocates, blocks or fails: arguments are checked by the caller with
 * kernel_supports(). Pointers may be unaligned.
 */
#ifndef SHOAL_KERNEL_KERNEL_H
#define SHOAL_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

/* Size of one element, 0 for an unknown dtype; names as in shoal.h, "?" if unknown. */
size_t kernel_dtype_bytes(enum shoal_dtype dtype);
const char *kernel_dtype_name(enum shoal_dtype dtype);
const char *kernel_op_name(enum shoal_op op);
/* The dtype or op of that name; false if there is none. */
bool kernel_dtype_parse(const char *name, enum shoal_dtype *out);
bool kernel_op_parse(const char *name, enum shoal_op *out);

/* Whether op has a meaning on dtype. */
bool kernel_supports(enum shoal_dtype dtype, enum shoal_op op);

struct kernel_reduce {
    enum shoal_dtype dtype;
    enum shoal_op op;
    uint32_t divisor; /* AVG: divide the sum by this at the end; 0 or 1: partial sum, no division */
    bool stream;      /* the output will not be read soon: non-temporal stores are welcome */
};

/* out[i] = inputs[0][i] op inputs[1][i] op … op inputs[input_count-1][i], in exactly this order,
 * left to right. input_count >= 1. out may be equal to any of the inputs but must not partly
 * overlap one. f16 and bf16 accumulate in f32 over all inputs and round once. PREMUL_SUM reduces as
 * SUM. */
void kernel_reduce(const struct kernel_reduce *how, void *out, const void *const *inputs,
                   int input_count, size_t count);

/* out[i] = in[i] * *factor; 16-bit floats in f32, rounded once. out may equal in. */
void kernel_scale(enum shoal_dtype dtype, void *out, const void *in, const void *factor,
                  size_t count);

/* out[i] = in[i] / divisor, as the last step of AVG. out may equal in. */
void kernel_divide(enum shoal_dtype dtype, void *out, const void *in, uint32_t divisor,
                   size_t count);

/* memcpy; with stream, non-temporal stores. */
void kernel_copy(void *out, const void *in, size_t bytes, bool stream);

/* Between f32 and a 16-bit float (SHOAL_F16 or SHOAL_BF16), nearest even. */
void kernel_to_f32(enum shoal_dtype from, float *out, const void *in, size_t count);
void kernel_from_f32(enum shoal_dtype to, void *out, const float *in, size_t count);

/* "scalar", "avx2" or "avx512": the form in use. Option SHOAL_ISA forces one. */
const char *kernel_isa(void);
/* Forces a form (tests); false if this CPU lacks it. Not while another thread reduces. */
bool kernel_force_isa(const char *name);

#endif
