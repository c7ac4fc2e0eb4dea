/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_block.h: 8 bits in blocks, a vector of f32 at a time; vector.h includes it. All blocks are
 * whole, so there are no parts of vectors.
 */
#define BLOCK_BYTES (KERNEL_BLOCK_COUNT * sizeof(float)) /* as f32 */

/* As many codes as a vector has f32. */
typedef int8_t vcodes VECTOR_OF(VECTOR_BYTES / 4);
typedef vcodes vcodes_anywhere __attribute__((aligned(1), may_alias));

INLINE vi32 magnitude_bits(vf32 value)
{
    return (vi32)value & 0x7fffffff;
}

#define INFINITE_BITS 0x7f800000

/* The values that are packed, and the largest finite one. Floats that are not negative are ordered
 * as their bits are. */
static float gather_block(char *values, const char *in, const char *residual)
{
    vi32 largest = {0};
    for (size_t at = 0; at < BLOCK_BYTES; at += VECTOR_BYTES) {
        vf32 value = (vf32)full_load(in + at);
        if (residual) {
            value += (vf32)full_load(residual + at);
        }
        full_store(values + at, (vfull)value);
        vi32 bits = magnitude_bits(value);
        bits &= bits < INFINITE_BITS;
        largest = max_i32(bits, largest);
    }
    int32_t found = 0;
    for (size_t i = 0; i < VECTOR_BYTES / sizeof(found); i++) {
        found = largest[i] > found ? largest[i] : found;
    }
    float value;
    memcpy(&value, &found, sizeof value);
    return value;
}

/* Numbers this large have no fraction, so adding one rounds to the nearest, even if there are two;
 * the lowest bits are then the code. */
#define WHOLE      0x1.8p23f
#define WHOLE_BITS 0x4b400000

INLINE vi32 codes_of(vf32 value, float inverse)
{
    vi32 bits = magnitude_bits(value), sign = (vi32)value >> 31;
    vi32 code = (vi32)(value * inverse + WHOLE) - WHOLE_BITS;
    vi32 infinite = (sign ^ KERNEL_CODE_INF) - sign;
    vi32 odd = select_i32(bits > INFINITE_BITS, (vi32){0} + KERNEL_CODE_NAN, infinite);
    return select_i32(bits < INFINITE_BITS, code, odd);
}

INLINE vf32 values_of(vi32 code, float scale)
{
    vi32 value = (vi32)(__builtin_convertvector(code, vf32) * scale);
    vi32 odd = (code & INT32_MIN) | INFINITE_BITS | ((code == KERNEL_CODE_NAN) & 0x400000);
    return (vf32)select_i32((code > KERNEL_CODE_MAX) | (code < -KERNEL_CODE_MAX), odd, value);
}

static void pack_block(struct kernel_block *out, const float *in, float *residual)
{
    char values[BLOCK_BYTES] __attribute__((aligned(VECTOR_BYTES)));
    char *kept = (char *)residual, *codes = (char *)out->codes;
    float scale = gather_block(values, (const char *)in, kept) / KERNEL_CODE_MAX;
    scale = scale >= KERNEL_SCALE_MIN ? scale : 0;
    float inverse = scale > 0 ? 1 / scale : 0;
    out->scale = scale;
    for (size_t at = 0; at < BLOCK_BYTES; at += VECTOR_BYTES) {
        vf32 value = (vf32)full_load(values + at);
        vi32 code = codes_of(value, inverse);
        *(vcodes_anywhere *)(void *)(codes + at / 4) = __builtin_convertvector(code, vcodes);
        if (kept) {
            full_store(kept + at, (vfull)lost_by_rounding(value, values_of(code, scale)));
        }
    }
}

static void unpack_block(float *out, const struct kernel_block *in, bool add)
{
    char *to = (char *)out;
    const char *codes = (const char *)in->codes;
    for (size_t at = 0; at < BLOCK_BYTES; at += VECTOR_BYTES) {
        vcodes code = *(const vcodes_anywhere *)(const void *)(codes + at / 4);
        vf32 value = values_of(__builtin_convertvector(code, vi32), in->scale);
        if (add) {
            value = (vf32)full_load(to + at) + value;
        }
        full_store(to + at, (vfull)value);
    }
}
