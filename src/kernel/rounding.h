/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounding.h: the thread's floating-point mode while a kernel runs.
 *
 * A framework may have told the caller's thread to flush subnormals, or another rounding; the
 * library's own threads have neither. The bits must not depend on which of them reduces, so kernels
 * run in the default mode (nearest even, subnormals kept, exceptions masked, f16 as IEEE 754 has
 * it) and put the thread's own back. On x86 that is the MXCSR register, on 64-bit ARM FPCR; on
 * other machines the caller's mode stays.
 */
#ifndef SHOAL_KERNEL_ROUNDING_H
#define SHOAL_KERNEL_ROUNDING_H

#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>

#define ROUNDING_DEFAULT 0x1f80u /* all exceptions masked, the rest zero */
#define ROUNDING_FLAGS   0x003fu /* exceptions seen so far: no mode */

static inline uint64_t rounding_get(void)
{
    return _mm_getcsr();
}

static inline void rounding_set(uint64_t mode)
{
    _mm_setcsr((unsigned)mode);
}
#elif defined(__aarch64__)
#define ROUNDING_DEFAULT 0u /* every bit turns something on */
#define ROUNDING_FLAGS   0u /* these are in another register */

static inline uint64_t rounding_get(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode) : : "memory");
    return mode;
}

static inline void rounding_set(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
#else
#define ROUNDING_DEFAULT 0u
#define ROUNDING_FLAGS   0u

static inline uint64_t rounding_get(void)
{
    return ROUNDING_DEFAULT;
}

static inline void rounding_set(uint64_t mode)
{
    (void)mode;
}
#endif

/* To the default mode; gives what rounding_leave() needs. */
static inline uint64_t rounding_enter(void)
{
    uint64_t before = rounding_get();
    if ((before & ~(uint64_t)ROUNDING_FLAGS) != ROUNDING_DEFAULT) {
        rounding_set(ROUNDING_DEFAULT);
    }
    return before;
}

static inline void rounding_leave(uint64_t before)
{
    if ((before & ~(uint64_t)ROUNDING_FLAGS) != ROUNDING_DEFAULT) {
        rounding_set(before);
    }
}

#endif
