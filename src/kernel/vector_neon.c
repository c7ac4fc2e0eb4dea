/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_neon.c: the form "neon": 16-byte vectors of 64-bit ARM; f16 by its conversion
 * instructions, which every such processor has.
 *
 * Stores around the cache exist for pairs of registers only, and are a hint: memory's order is that
 * of other stores.
 */
#define VECTOR_BYTES 16
#define VECTOR_LOOPS kernel_loops_neon
#include <arm_neon.h>

#include "kernel/vector_types.h"

#include "kernel/vector_plain.h"

INLINE void full_stream_two(char *to, vfull a, vfull b)
{
    __asm__("stnp %q1, %q2, %0" : "=Q"(*(char(*)[2 * sizeof(vfull)]) to) : "w"(a), "w"(b));
}

INLINE void half_stream_two(char *to, vhalf a, vhalf b)
{
    __asm__("stnp %d1, %d2, %0" : "=Q"(*(char(*)[2 * sizeof(vhalf)]) to) : "w"(a), "w"(b));
}

/* The release store of a flag orders them, as it does all stores before it. */
INLINE void stream_end(void)
{
}

INLINE vu32 widen_u16(vhalf half)
{
    return (vu32)vmovl_u16((uint16x4_t)half);
}

INLINE vhalf narrow_u16(vu32 value)
{
    return (vhalf)vmovn_u32((uint32x4_t)value);
}

INLINE vf32 widen_f16(vhalf half)
{
    return (vf32)vcvt_f32_f16((float16x4_t)half);
}

INLINE vhalf narrow_f16(vf32 value)
{
    return (vhalf)vcvt_f16_f32((float32x4_t)value);
}

#include "kernel/vector.h"
