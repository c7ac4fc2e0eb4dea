/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_base.c: the form "base": 16-byte vectors with SSE2, which every x86-64 has, or with what
 * the compiler makes of the vector types on any other machine.
 */
#define VECTOR_BYTES 16
#define VECTOR_LOOPS kernel_loops_base
#include "kernel/vector_types.h"

#include "kernel/vector_plain.h"

#if defined(__SSE2__)
#include <emmintrin.h>

INLINE void full_stream_two(char *to, vfull a, vfull b)
{
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)a);
    _mm_stream_si128((__m128i *)(void *)(to + sizeof a), (__m128i)b);
}

INLINE void half_stream_two(char *to, vhalf a, vhalf b)
{
    _mm_stream_si64((long long *)(void *)to, (long long)a);
    _mm_stream_si64((long long *)(void *)(to + sizeof a), (long long)b);
}

INLINE void stream_end(void)
{
    _mm_sfence();
}

INLINE vu32 widen_u16(vhalf half)
{
    return (vu32)_mm_unpacklo_epi16(_mm_cvtsi64_si128((long long)half), _mm_setzero_si128());
}

/* The only pack of SSE2 saturates as signed: the sign is extended first. */
INLINE vhalf narrow_u16(vu32 value)
{
    __m128i extended = _mm_srai_epi32(_mm_slli_epi32((__m128i)value, 16), 16);
    return (vhalf)_mm_cvtsi128_si64(_mm_packs_epi32(extended, extended));
}
#else
INLINE void full_stream_two(char *to, vfull a, vfull b)
{
    memcpy(to, &a, sizeof a);
    memcpy(to + sizeof a, &b, sizeof b);
}

INLINE void half_stream_two(char *to, vhalf a, vhalf b)
{
    memcpy(to, &a, sizeof a);
    memcpy(to + sizeof a, &b, sizeof b);
}

INLINE void stream_end(void)
{
}

INLINE vu32 widen_u16(vhalf half)
{
    return __builtin_convertvector(half, vu32);
}

INLINE vhalf narrow_u16(vu32 value)
{
    return __builtin_convertvector(value, vhalf);
}
#endif

/* As half_from_f16. Multiplying by 2^(127-15) moves the exponent and makes subnormals normal. */
INLINE vf32 widen_f16(vhalf half)
{
    vu32 bits = widen_u16(half);
    vu32 size = (bits & 0x7fffu) << 13;
    vu32 moved = (vu32)((vf32)size * 0x1p112f);
    vu32 not_finite = (vu32)(size >= 0x0f800000u) & 0x7f800000u;
    vu32 quiet = (vu32)(size > 0x0f800000u) & 0x400000u;
    return (vf32)((bits & 0x8000u) << 16 | moved | not_finite | quiet);
}

INLINE vu32 choose_u32(vu32 which, vu32 yes, vu32 no)
{
    return (which & yes) | (~which & no);
}

/* As half_to_f16. The last place of a number in [0.5, 1) is 2^-24, the step of f16's subnormals, so
 * that adding 0.5 rounds to it. */
INLINE vhalf narrow_f16(vf32 value)
{
    vu32 bits = (vu32)value;
    vu32 size = bits & 0x7fffffffu;
    vu32 normal = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    vu32 subnormal = (vu32)((vf32)size + 0.5f) - 0x3f000000u;
    vu32 nan = (size >> 13 & 0x3ffu) | 0x7e00u;
    vu32 half = choose_u32((vu32)(size < 0x38800000u), subnormal, normal);
    half = choose_u32((vu32)(size >= 0x47800000u), (vu32){0} + 0x7c00u, half);
    half = choose_u32((vu32)(size > 0x7f800000u), nan, half);
    return narrow_u16((bits >> 16 & 0x8000u) | half);
}

#include "kernel/vector.h"
