/* SPDX-License-Identifier: Apache-2.0 */
/* vector_types.h: vectors of VECTOR_BYTES bytes (which the including file defines) of each element.
 */
#ifndef SHOAL_KERNEL_VECTOR_TYPES_H
#define SHOAL_KERNEL_VECTOR_TYPES_H

#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

#define VECTOR_OF(bytes) __attribute__((vector_size(bytes)))
typedef double vf64 VECTOR_OF(VECTOR_BYTES);
typedef float vf32 VECTOR_OF(VECTOR_BYTES);
typedef int8_t vi8 VECTOR_OF(VECTOR_BYTES);
typedef int16_t vi16 VECTOR_OF(VECTOR_BYTES);
typedef int32_t vi32 VECTOR_OF(VECTOR_BYTES);
typedef int64_t vi64 VECTOR_OF(VECTOR_BYTES);
typedef uint8_t vu8 VECTOR_OF(VECTOR_BYTES);
typedef uint16_t vu16 VECTOR_OF(VECTOR_BYTES);
typedef uint32_t vu32 VECTOR_OF(VECTOR_BYTES);
typedef uint64_t vu64 VECTOR_OF(VECTOR_BYTES);

/* Bytes as they lie in memory: a vector, and half of one, which holds as many 16-bit floats as a
 * vector holds f32. The second of each may lie anywhere and alias anything. */
typedef vu8 vfull;
typedef vfull vfull_anywhere __attribute__((aligned(1), may_alias));
typedef uint16_t vhalf VECTOR_OF(VECTOR_BYTES / 2);
typedef vhalf vhalf_anywhere __attribute__((aligned(1), may_alias));

#endif
