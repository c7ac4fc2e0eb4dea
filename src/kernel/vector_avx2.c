/* SPDX-License-Identifier: Apache-2.0 */
/* vector_avx2.c: the form "avx2": 32-byte vectors; f16 by the F16C instructions. */
#define VECTOR_BYTES 32
#define VECTOR_LOOPS kernel_loops_avx2
#include <immintrin.h>

#include "kernel/vector_types.h"

#include "kernel/vector_plain.h"

INLINE void full_stream_two(char *to, vfull a, vfull b)
{
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)a);
    _mm256_stream_si256((__m256i *)(void *)(to + sizeof a), (__m256i)b);
}

INLINE void half_stream_two(char *to, vhalf a, vhalf b)
{
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)a);
    _mm_stream_si128((__m128i *)(void *)(to + sizeof a), (__m128i)b);
}

INLINE void stream_end(void)
{
    _mm_sfence();
}

INLINE vu32 widen_u16(vhalf half)
{
    return (vu32)_mm256_cvtepu16_epi32((__m128i)half);
}

INLINE vhalf narrow_u16(vu32 value)
{
    __m256i v = (__m256i)value;
    return (vhalf)_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

INLINE vf32 widen_f16(vhalf half)
{
    return (vf32)_mm256_cvtph_ps((__m128i)half);
}

INLINE vhalf narrow_f16(vf32 value)
{
    return (vhalf)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}

#include "kernel/vector.h"
