/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.h: the template of a vector form: all its loops, for the instruction set that the
 * including file is compiled for.
 *
 * Written with the vector types of gcc and clang (operators on whole vectors), so that one text
 * serves every instruction set and does not depend on what the autovectoriser thinks of it.
 *
 * The shape of every reduce loop (vector_lane.h): a step takes four vectors of each input in turn
 * and keeps the four sums in registers, so that each input is read once and the output written
 * once, however many inputs there are. All inputs of a step are read before its output is written,
 * so the output may be one of them. The rest goes one vector at a time, and what is less than a
 * vector through the same arithmetic with the missing lanes zero. So the bits of an element depend
 * neither on its position nor on the count.
 *
 * The including file first defines
 *   VECTOR_BYTES      16, 32 or 64
 *   VECTOR_LOOPS      the name of the table
 * then includes vector_types.h and defines the functions, with `full` for a vector and `half` for
 * half of one (16-bit floats that fill a vector once they are widened to f32):
 *   full_stream_two, half_stream_two   store two, one behind the other, around the cache, to memory
 *                                   aligned to the whole of one
 *   stream_end                      orders those stores before a later release store
 *   full_load_part, full_store_part, half_load_part, half_store_part
 *                                   the first `bytes` bytes only; the rest reads as zero
 *   widen_u16, narrow_u16           half to a vector of u32 and back; values fit
 *   widen_f16, narrow_f16           half to a vector of f32 and back, as half.h does it
 * or takes the plain ones from vector_plain.h. Last it includes this file.
 */
#include <string.h>

#include "kernel/form.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pairs of bf16, parts of vectors");

INLINE vfull full_load(const char *from)
{
    return *(const vfull_anywhere *)(const void *)from;
}

INLINE void full_store(char *to, vfull value)
{
    *(vfull_anywhere *)(void *)to = value;
}

INLINE vhalf half_load(const char *from)
{
    return *(const vhalf_anywhere *)(const void *)from;
}

INLINE void half_store(char *to, vhalf value)
{
    *(vhalf_anywhere *)(void *)to = value;
}

/* bf16 is the upper half of an f32. */
INLINE vf32 widen_bf16(vhalf half)
{
    return (vf32)(widen_u16(half) << 16);
}

/* A NaN becomes quiet and loses its lower half, as half_to_bf16 in half.h does it. */
INLINE vf32 quiet_bf16(vf32 value)
{
    vu32 is_nan = (vu32)(value != value);
    return (vf32)(((vu32)value | (is_nan & 0x400000u)) & ~(is_nan & 0xffffu));
}

/* Of f16 the conversion does it. */
INLINE vf32 quiet_f16(vf32 value)
{
    return value;
}

/* To bf16 as half_to_bf16 does it, left in the upper half of each 32 bits: adds 0x7fff, and one
 * more if the kept part is odd. Written as a difference, that is one instruction less with AVX-512,
 * whose ternary logic makes the term at once.
 *
 * Not for a NaN whose lower half could carry into the upper one: f32 numbers from elsewhere are
 * made quiet first. Of what was computed from bf16 numbers there is nothing to do, which saves a
 * third of a sum's instructions: such a NaN is one of theirs, quiet by then, or the machine's own.
 */
INLINE vu32 round_bf16(vf32 value)
{
    vu32 bits = (vu32)value;
    return bits - ((bits >> 16 & 1u) ^ 0xffff8001u);
}

INLINE vhalf narrow_bf16(vf32 value)
{
    return narrow_u16(round_bf16(value) >> 16);
}

/* What rounding has lost: 0 where the difference is no number. */
INLINE vf32 lost_by_rounding(vf32 exact, vf32 rounded)
{
    vi32 lost = (vi32)(exact - rounded);
    return (vf32)(lost & ((lost & 0x7fffffff) < 0x7f800000));
}

/* Far enough ahead that a line has come from another core's cache when its turn comes. */
#define OWN_AHEAD_BYTES 2048

INLINE void own_lines(const char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += KERNEL_LINE_BYTES) {
        kernel_own_line(at + i + OWN_AHEAD_BYTES);
    }
}

#define LANE      f64
#define LANE_BITS 64
#define LANE_FLOAT
#include "kernel/vector_lane.h"

#define LANE      f32
#define LANE_BITS 32
#define LANE_FLOAT
#include "kernel/vector_lane.h"

#define LANE      f16
#define LANE_BITS 16
#define LANE_FLOAT
#define LANE_HALF
#include "kernel/vector_lane.h"

#define LANE      bf16
#define LANE_BITS 16
#define LANE_FLOAT
#define LANE_HALF
#define LANE_PAIRED
#include "kernel/vector_lane.h"

#define LANE      i8
#define LANE_BITS 8
#define LANE_SIGNED
#include "kernel/vector_lane.h"

#define LANE      i16
#define LANE_BITS 16
#define LANE_SIGNED
#include "kernel/vector_lane.h"

#define LANE      i32
#define LANE_BITS 32
#define LANE_SIGNED
#include "kernel/vector_lane.h"

#define LANE      i64
#define LANE_BITS 64
#define LANE_SIGNED
#include "kernel/vector_lane.h"

#define LANE      u8
#define LANE_BITS 8
#define LANE_UNSIGNED
#include "kernel/vector_lane.h"

#define LANE      u16
#define LANE_BITS 16
#define LANE_UNSIGNED
#include "kernel/vector_lane.h"

#define LANE      u32
#define LANE_BITS 32
#define LANE_UNSIGNED
#include "kernel/vector_lane.h"

#define LANE      u64
#define LANE_BITS 64
#define LANE_UNSIGNED
#include "kernel/vector_lane.h"

#include "kernel/vector_block.h"

/* ---- the table ---- */

#define ORDER_OPS(lane) [COMBINE_MIN] = reduce_min_##lane, [COMBINE_MAX] = reduce_max_##lane
#define NUMBER_OPS(lane) \
    ORDER_OPS(lane), [COMBINE_SUM] = reduce_sum_##lane, [COMBINE_PROD] = reduce_prod_##lane
#define UNSIGNED_OPS(lane)                                                                      \
    NUMBER_OPS(lane), [COMBINE_BAND] = reduce_band_##lane, [COMBINE_BOR] = reduce_bor_##lane,   \
                      [COMBINE_BXOR] = reduce_bxor_##lane, [COMBINE_LAND] = reduce_land_##lane, \
                      [COMBINE_LOR] = reduce_lor_##lane, [COMBINE_LXOR] = reduce_lxor_##lane

const struct kernel_loops VECTOR_LOOPS = {
    .reduce =
        {
            [LANE_F64] = {NUMBER_OPS(f64)},
            [LANE_F32] = {NUMBER_OPS(f32)},
            [LANE_F16] = {NUMBER_OPS(f16)},
            [LANE_BF16] = {NUMBER_OPS(bf16)},
            [LANE_I8] = {ORDER_OPS(i8)},
            [LANE_I16] = {ORDER_OPS(i16)},
            [LANE_I32] = {ORDER_OPS(i32)},
            [LANE_I64] = {ORDER_OPS(i64)},
            [LANE_U8] = {UNSIGNED_OPS(u8)},
            [LANE_U16] = {UNSIGNED_OPS(u16)},
            [LANE_U32] = {UNSIGNED_OPS(u32)},
            [LANE_U64] = {UNSIGNED_OPS(u64)},
        },
    .scale =
        {
            [LANE_F64] = scale_f64,
            [LANE_F32] = scale_f32,
            [LANE_F16] = scale_f16,
            [LANE_BF16] = scale_bf16,
            [LANE_U8] = scale_u8,
            [LANE_U16] = scale_u16,
            [LANE_U32] = scale_u32,
            [LANE_U64] = scale_u64,
        },
    .f16_to_f32 = to_f32_f16,
    .bf16_to_f32 = to_f32_bf16,
    .f16_from_f32 = from_f32_f16,
    .bf16_from_f32 = from_f32_bf16,
    .f16_compress = compress_f16,
    .bf16_compress = compress_bf16,
    .pack_block = pack_block,
    .unpack_block = unpack_block,
};
