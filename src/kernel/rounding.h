/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounding.h: the thread's floating-point mode while a kernel runs.
 *
 * A framework may have told the caller's thread to flush subnormals, or another rounding; the
 * library's own threads have neither. The bits must not depend on which of them reduces, so kernels
 * run in the default mode (nearest even, subnormals kept, exceptions masked) and put the thread's
 * own back. On x86 that is the MXCSR register; on other machines the caller's mode stays.
 */
#ifndef SHOAL_KERNEL_ROUNDING_H
#define SHOAL_KERNEL_ROUNDING_H

#if defined(__SSE2__)
#include <emmintrin.h>

#define ROUNDING_DEFAULT 0x1f80u /* all exceptions masked, the rest zero */
#define ROUNDING_FLAGS   0x003fu /* exceptions seen so far: no mode */

static inline unsigned rounding_enter(void)
{
    unsigned before = _mm_getcsr();
    if ((before & ~ROUNDING_FLAGS) != ROUNDING_DEFAULT) {
        _mm_setcsr(ROUNDING_DEFAULT);
    }
    return before;
}

static inline void rounding_leave(unsigned before)
{
    if ((before & ~ROUNDING_FLAGS) != ROUNDING_DEFAULT) {
        _mm_setcsr(before);
    }
}
#else
static inline unsigned rounding_enter(void)
{
    return 0;
}

static inline void rounding_leave(unsigned before)
{
    (void)before;
}
#endif

#endif
