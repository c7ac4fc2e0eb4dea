/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h: the pure loops over elements: reduce, scale, divide, copy, convert.
 *
 * One plain C reference per dtype and op, and SIMD forms chosen once at first use. Every form gives
 * the same bits, wherever an element lies in the array and however long that is; only the sign and
 * payload of a NaN are not fixed. Nothing here allocates, blocks or fails: arguments are checked by
 * the caller with kernel_supports(). Pointers may be unaligned. Any thread.
 *
 *  - Float arithmetic is IEEE 754 to nearest even with subnormals kept, whatever mode the calling
 *    thread is in (on x86 and 64-bit ARM; on other machines the thread must be in that mode).
 *  - Float min and max give NaN if any input is NaN; of equal numbers (-0 and +0) the first stays.
 *  - Integers wrap. bool is 0 or 1: sum, max, bor and lor are or, prod, min, band and land are and,
 *    bxor and lxor are xor. Logical ops on integers give 0 or 1.
 *  - Complex products are (ac - bd, ad + bc).
 */
#ifndef SHOAL_KERNEL_KERNEL_H
#define SHOAL_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

/* Size of one element, 0 for an unknown dtype; names as in shoal.h, "?" if unknown. */
size_t kernel_dtype_bytes(enum shoal_dtype dtype);
/* Whether it is a 16-bit float, which is reduced in f32. */
bool kernel_dtype_is_half(enum shoal_dtype dtype);
const char *kernel_dtype_name(enum shoal_dtype dtype);
const char *kernel_op_name(enum shoal_op op);
/* The dtype or op of that name; false if there is none. */
bool kernel_dtype_parse(const char *name, enum shoal_dtype *out);
bool kernel_op_parse(const char *name, enum shoal_op *out);

/* Whether op has a meaning on dtype: sum, prod on all; avg and premul_sum not on bool; min and max
 * not on complex numbers; bitwise and logical ops on integers and bool. */
bool kernel_supports(enum shoal_dtype dtype, enum shoal_op op);

struct kernel_reduce {
    enum shoal_dtype dtype;
    enum shoal_op op;
    uint32_t divisor; /* AVG: divide the sum by this at the end; 0 or 1: partial sum, no division */
    /* The output will not be read soon, and it is large: stores go around the cache where that
     * helps (not below 4 KiB, and not in place). They are ordered before later release
     * stores of this thread. */
    bool stream;
    /* A second output, the same; NULL: none. It may be equal to an input too. `stream` is then
     * about its stores alone, and nothing is wide. */
    void *also;
    /* The output is one of the inputs, and another core has changed it: its lines are fetched for
     * writing at once, some way ahead. */
    bool owns;
    /* 16-bit floats: arrays that hold f32 instead, which are partial sums. Such an output is not
     * rounded. */
    bool wide_out;
    const bool *wide_inputs; /* [input_count]; NULL: none */
};

/* out[i] = inputs[0][i] op inputs[1][i] op … op inputs[input_count-1][i], in exactly this order,
 * left to right. input_count >= 1. out may be equal to any of the inputs of its width but must not
 * partly overlap one. f16 and bf16 accumulate in f32 over all inputs and round once, to the output;
 * so a sum is made in several calls without other roundings if what goes from one to the next is
 * f32. PREMUL_SUM reduces as SUM. AVG divides the sum, which for 16-bit floats is still in f32 and
 * for integers has wrapped; integers truncate toward zero. A single input without division is
 * copied. */
void kernel_reduce(const struct kernel_reduce *how, void *out, const void *const *inputs,
                   int input_count, size_t count);

/* out[i] = in[i] * *factor, one element; not for bool. 16-bit floats in f32, rounded once. out may
 * equal in. */
void kernel_scale(enum shoal_dtype dtype, void *out, const void *in, const void *factor,
                  size_t count);

/* out[i] = in[i] / divisor, as the last step of AVG; divisor 0 or 1 copies. Not for bool. out may
 * equal in. */
void kernel_divide(enum shoal_dtype dtype, void *out, const void *in, uint32_t divisor,
                   size_t count);

/* As memcpy, but out may equal in; stream as in kernel_reduce. */
void kernel_copy(void *out, const void *in, size_t bytes, bool stream);

/* Brings memory that this core will write into its cache for that, at once from where another core
 * has changed it. */
void kernel_own(const void *memory, size_t bytes);

/* Between f32 and a 16-bit float (SHOAL_F16 or SHOAL_BF16): nearest even, overflow to infinity, NaN
 * stays NaN (quiet). Not in place, but what is made of f32 may begin where that does. */
void kernel_to_f32(enum shoal_dtype from, float *out, const void *in, size_t count);
void kernel_from_f32(enum shoal_dtype to, void *out, const float *in, size_t count);

/* Rounds with feedback: out[i] is in[i] + residual[i], in f32, as kernel_from_f32 rounds it; what
 * that lost becomes residual[i], or 0 where it is not finite. out may begin where in does. */
void kernel_compress(enum shoal_dtype to, void *out, const float *in, float *residual,
                     size_t count);

/* Numbers of 8 bits, with a scale for each block of them. A code from -126 to 126 stands for itself
 * times the scale, 127 and -127 for infinities, -128 for NaN. */
#define KERNEL_BLOCK_COUNT 256
struct kernel_block {
    float scale; /* the largest finite size in the block / 126; 0 where that is less than 2^-126 */
    int8_t codes[KERNEL_BLOCK_COUNT];
};

/* Packs whole blocks: in[i] + residual[i], in f32, rounded to the nearest code, even if there are
 * two; what that lost becomes residual[i], or 0 where it is not finite. Under a scale of 0 all that
 * is finite is lost. residual NULL: nothing is added or kept. */
void kernel_pack_blocks(struct kernel_block *out, const float *in, float *residual,
                        size_t block_count);
/* What the blocks stand for, in f32; add: is added to out. */
void kernel_unpack_blocks(float *out, const struct kernel_block *in, bool add, size_t block_count);

/* The form in use: "scalar" (the reference), "base" (16-byte vectors; SSE2 on x86), "avx2",
 * "avx512" or "neon". The best one that this processor has, or the one that option SHOAL_ISA names.
 */
const char *kernel_isa(void);
/* Forces a form (tests); false if this CPU lacks it. Not while another thread reduces. */
bool kernel_force_isa(const char *name);

#endif
