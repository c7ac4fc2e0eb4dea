/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_base.c: the form "base": 16-byte vectors with what every processor of the kind has (SSE2
 * on x86-64, NEON on 64-bit ARM).
 */
#define VECTOR_BYTES 16
#define VECTOR_LOOPS kernel_loops_base
#include "kernel/half.h"
#include "kernel/vector_types.h"

#include "kernel/vector_plain.h"

#if defined(__SSE2__)
#include <emmintrin.h>

INLINE void full_stream(char *to, vfull value)
{
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)value);
}

INLINE void half_stream(char *to, vhalf value)
{
    _mm_stream_si64((long long *)(void *)to, (long long)value);
}

INLINE void stream_end(void)
{
    _mm_sfence();
}
#else
INLINE void full_stream(char *to, vfull value)
{
    memcpy(to, &value, sizeof value);
}

INLINE void half_stream(char *to, vhalf value)
{
    memcpy(to, &value, sizeof value);
}

INLINE void stream_end(void)
{
}
#endif

/* There is no instruction for it that all have. */
INLINE vf32 widen_f16(vhalf half)
{
    vf32 value = {0};
    for (size_t i = 0; i < VECTOR_BYTES / sizeof(float); i++) {
        value[i] = half_from_f16(half[i]);
    }
    return value;
}

INLINE vhalf narrow_f16(vf32 value)
{
    vhalf half = {0};
    for (size_t i = 0; i < VECTOR_BYTES / sizeof(float); i++) {
        half[i] = half_to_f16(value[i]);
    }
    return half;
}

#include "kernel/vector.h"
