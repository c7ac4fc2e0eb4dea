/* SPDX-License-Identifier: Apache-2.0 */
/* vector_avx512.c: the form "avx512": 64-byte vectors; needs the F, BW, VL and DQ parts. */
#define VECTOR_BYTES 64
#define VECTOR_LOOPS kernel_loops_avx512
#include <immintrin.h>
#include <stddef.h>

#include "kernel/vector_types.h"

INLINE void full_stream_two(char *to, vfull a, vfull b)
{
    _mm512_stream_si512((__m512i *)(void *)to, (__m512i)a);
    _mm512_stream_si512((__m512i *)(void *)(to + sizeof a), (__m512i)b);
}

INLINE void half_stream_two(char *to, vhalf a, vhalf b)
{
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)a);
    _mm256_stream_si256((__m256i *)(void *)(to + sizeof a), (__m256i)b);
}

INLINE void stream_end(void)
{
    _mm_sfence();
}

/* Masked loads and stores touch no byte outside the mask. */
INLINE vfull full_load_part(const char *from, size_t bytes)
{
    return (vfull)_mm512_maskz_loadu_epi8((UINT64_C(1) << bytes) - 1, from);
}

INLINE void full_store_part(char *to, vfull value, size_t bytes)
{
    _mm512_mask_storeu_epi8(to, (UINT64_C(1) << bytes) - 1, (__m512i)value);
}

INLINE vhalf half_load_part(const char *from, size_t bytes)
{
    return (vhalf)_mm256_maskz_loadu_epi8((UINT32_C(1) << bytes) - 1, from);
}

INLINE void half_store_part(char *to, vhalf value, size_t bytes)
{
    _mm256_mask_storeu_epi8(to, (UINT32_C(1) << bytes) - 1, (__m256i)value);
}

INLINE vu32 widen_u16(vhalf half)
{
    return (vu32)_mm512_cvtepu16_epi32((__m256i)half);
}

INLINE vhalf narrow_u16(vu32 value)
{
    return (vhalf)_mm512_cvtepi32_epi16((__m512i)value);
}

INLINE vf32 widen_f16(vhalf half)
{
    return (vf32)_mm512_cvtph_ps((__m256i)half);
}

INLINE vhalf narrow_f16(vf32 value)
{
    return (vhalf)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
}

#include "kernel/vector.h"
