/* SPDX-License-Identifier: Apache-2.0 */
/*
 * half.h: one f16 or bf16 number to f32 and back, in plain integer C.
 *
 * Written with integers so that the bits are the same on every machine: to 16 bits rounds to the
 * nearest, ties to even, keeps subnormals, overflows to infinity and keeps NaN a NaN (quiet, sign
 * and upper payload kept), which is also what the conversion instructions of x86 do.
 */
#ifndef SHOAL_KERNEL_HALF_H
#define SHOAL_KERNEL_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float half_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float half_from_bf16(uint16_t half)
{
    return half_float_of((uint32_t)half << 16);
}

static inline uint16_t half_to_bf16(float value)
{
    uint32_t bits = half_bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    /* Just under a half, plus one if the kept part is odd: ties go to even. A carry out of the
     * fraction raises the exponent, at the top to infinity, as it should. */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float half_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 31u;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 31) {
        return half_float_of(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    }
    if (exponent == 0) { /* subnormal: fraction steps of 2^-24 */
        return half_float_of(sign | half_bits_of((float)fraction * 0x1p-24f));
    }
    return half_float_of(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

static inline uint16_t half_to_f16(float value)
{
    uint32_t bits = half_bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
    }
    if (size >= 0x47800000u) { /* 2^16 and more */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (size < 0x33000000u) { /* below 2^-25, half of the least step */
        return (uint16_t)sign;
    }
    uint32_t drop = 13; /* fraction bits that do not fit */
    uint32_t kept = size - ((127u - 15u) << 23);
    if (size < 0x38800000u) { /* below 2^-14: steps of 2^-24 */
        drop = 126 - (size >> 23);
        kept = (size & 0x7fffffu) | 0x800000u;
    }
    uint32_t below_half = (1u << (drop - 1)) - 1;
    return (uint16_t)(sign | (kept + below_half + (kept >> drop & 1u)) >> drop);
}

#endif
