/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc.c: cyclic redundancy checks, eight bytes at a time, or 64 and more by folding.
 *
 * A check is the remainder of the message, taken as a polynomial over bits, by the polynomial of
 * its kind; in the reflected form bit 0 is the highest power. Table k holds the remainders of each
 * byte followed by k zero bytes, so the remainders of eight bytes are eight look-ups that don't
 * wait for each other. Appending n bytes to a message multiplies its remainder by x^8n:
 * s3_crc_combine() does just that, by squaring.
 *
 * Folding: a message is A * x^d + B with A its first 16 bytes, and A * x^d has the same remainder
 * as A's two halves times x^d and x^(d+64), each reduced before: two multiplications without carry,
 * whose sum is 16 bytes again. Four such sums run over the message side by side; what is left of
 * them in the end are 16 bytes with the message's remainder, and the tables do the rest. The
 * processor multiplies reflected numbers one bit short, hence the powers less one.
 *
 * Processors that do two such multiplications with one instruction run sixteen sums side by side,
 * which become four before what is left is folded as above.
 */
#include "s3/crc.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const struct {
    uint64_t polynomial; /* reflected */
    int bits;
} kinds[S3_CRC_COUNT] = {
    [S3_CRC_32] = {UINT64_C(0xedb88320), 32},
    [S3_CRC_32C] = {UINT64_C(0x82f63b78), 32},
    [S3_CRC_64_NVME] = {UINT64_C(0x9a6c9329ac4bc9b5), 64},
};

#define LANES      4
#define LANE_BYTES 16
#define FOLD_BYTES ((size_t)LANES * LANE_BYTES)
#define WIDE_LANES 8 /* of two lanes each */
#define WIDE_BYTES ((size_t)WIDE_LANES * 2 * LANE_BYTES)

static uint64_t tables[S3_CRC_COUNT][8][256];
/* x^(d+63) and x^(d-1), at the top of 64 bits: over all wide lanes, over all lanes, and to the next
 * one. */
static uint64_t wide_powers[S3_CRC_COUNT][2], far_powers[S3_CRC_COUNT][2],
    near_powers[S3_CRC_COUNT][2];
static bool can_fold;
#if defined(__x86_64__)
static bool can_fold_wide;
#endif
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static uint64_t product(enum s3_crc kind, uint64_t a, uint64_t b);

static uint64_t remainder_of_byte(uint64_t polynomial, uint64_t value)
{
    for (int bit = 0; bit < 8; bit++)
        value = value & 1 ? value >> 1 ^ polynomial : value >> 1;
    return value;
}

static uint64_t power(enum s3_crc kind, unsigned exponent)
{
    uint64_t one = UINT64_C(1) << (kinds[kind].bits - 1); /* x^0 */
    uint64_t value = one, square = one >> 1;              /* x */
    for (; exponent != 0; exponent >>= 1) {
        if (exponent & 1)
            value = product(kind, value, square);
        square = product(kind, square, square);
    }
    return value << (64 - kinds[kind].bits);
}

static void powers_make(enum s3_crc kind, size_t bytes, uint64_t powers[2])
{
    powers[0] = power(kind, (unsigned)bytes * 8 + 63);
    powers[1] = power(kind, (unsigned)bytes * 8 - 1);
}

static void tables_make(void)
{
#if defined(__x86_64__)
    can_fold = __builtin_cpu_supports("pclmul");
    can_fold_wide =
        can_fold && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
#endif
    for (int kind = 0; kind < S3_CRC_COUNT; kind++) {
        powers_make((enum s3_crc)kind, WIDE_BYTES, wide_powers[kind]);
        powers_make((enum s3_crc)kind, FOLD_BYTES, far_powers[kind]);
        powers_make((enum s3_crc)kind, LANE_BYTES, near_powers[kind]);
    }
    for (int kind = 0; kind < S3_CRC_COUNT; kind++)
        for (unsigned byte = 0; byte < 256; byte++) {
            uint64_t value = byte;
            for (int zeros = 0; zeros < 8; zeros++) {
                value = remainder_of_byte(kinds[kind].polynomial, value);
                tables[kind][zeros][byte] = value;
            }
        }
}

int s3_crc_bytes(enum s3_crc kind)
{
    return kinds[kind].bits / 8;
}

static uint64_t ones(enum s3_crc kind)
{
    return kinds[kind].bits == 64 ? UINT64_MAX : UINT32_MAX;
}

static uint64_t word_at(const unsigned char *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint64_t table_add(enum s3_crc kind, uint64_t value, const unsigned char *at, size_t bytes)
{
    uint64_t(*table)[256] = tables[kind];
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word = value ^ word_at(at);
        value = table[7][word & 0xff] ^ table[6][word >> 8 & 0xff] ^ table[5][word >> 16 & 0xff] ^
                table[4][word >> 24 & 0xff] ^ table[3][word >> 32 & 0xff] ^
                table[2][word >> 40 & 0xff] ^ table[1][word >> 48 & 0xff] ^ table[0][word >> 56];
    }
    for (; bytes > 0; bytes--, at++)
        value = value >> 8 ^ table[0][(value ^ *at) & 0xff];
    return value;
}

#if defined(__x86_64__)
#define FOLDS      __attribute__((target("pclmul")))
#define FOLDS_WIDE __attribute__((target("pclmul,avx2,vpclmulqdq")))

FOLDS static __m128i powers_of(const uint64_t powers[2])
{
    return _mm_loadu_si128((const __m128i *)(const void *)powers);
}

FOLDS static __m128i folded(__m128i value, __m128i powers, __m128i next)
{
    __m128i high = _mm_clmulepi64_si128(value, powers, 0x00);
    __m128i low = _mm_clmulepi64_si128(value, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(high, low), next);
}

FOLDS static __m128i lane_at(const unsigned char *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

FOLDS_WIDE static __m256i wide_folded(__m256i value, __m256i powers, __m256i next)
{
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(value, powers, 0x00),
                                             _mm256_clmulepi64_epi128(value, powers, 0x11)),
                            next);
}

FOLDS_WIDE static __m256i wide_lane_at(const unsigned char *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

/* What the lanes are after `bytes`, which are some times WIDE_BYTES and at least once. */
FOLDS_WIDE static void wide_begin(enum s3_crc kind, uint64_t value, const unsigned char *at,
                                  size_t bytes, __m128i lanes[LANES])
{
    __m256i wide[WIDE_LANES];
    __m256i powers = _mm256_broadcastsi128_si256(powers_of(wide_powers[kind]));
    __m256i far = _mm256_broadcastsi128_si256(powers_of(far_powers[kind]));
    const unsigned char *end = at + bytes;
#pragma GCC unroll 8
    for (int i = 0; i < WIDE_LANES; i++)
        wide[i] = wide_lane_at(at + i * 2 * LANE_BYTES);
    wide[0] = _mm256_xor_si256(wide[0], _mm256_set_epi64x(0, 0, 0, (long long)value));
    for (at += WIDE_BYTES; at < end; at += WIDE_BYTES)
#pragma GCC unroll 8
        for (int i = 0; i < WIDE_LANES; i++)
            wide[i] = wide_folded(wide[i], powers, wide_lane_at(at + i * 2 * LANE_BYTES));
#pragma GCC unroll 8
    for (int i = 2; i < WIDE_LANES; i++)
        wide[i] = wide_folded(wide[i - 2], far, wide[i]);
    for (int i = 0; i < 2; i++) {
        lanes[2 * i] = _mm256_castsi256_si128(wide[WIDE_LANES - 2 + i]);
        lanes[2 * i + 1] = _mm256_extracti128_si256(wide[WIDE_LANES - 2 + i], 1);
    }
}

FOLDS static void lanes_begin(uint64_t value, const unsigned char *at, __m128i lanes[LANES])
{
    for (int i = 0; i < LANES; i++)
        lanes[i] = lane_at(at + i * LANE_BYTES);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_set_epi64x(0, (long long)value));
}

/* `bytes` are some times FOLD_BYTES, and at least once. */
FOLDS static uint64_t fold_add(enum s3_crc kind, uint64_t value, const unsigned char *at,
                               size_t bytes)
{
    __m128i lanes[LANES];
    unsigned char rest[LANE_BYTES];
    const unsigned char *end = at + bytes;
    size_t wide = can_fold_wide ? bytes / WIDE_BYTES * WIDE_BYTES : 0;
    if (wide > 0)
        wide_begin(kind, value, at, wide, lanes);
    else
        lanes_begin(value, at, lanes);
    __m128i far = powers_of(far_powers[kind]), near = powers_of(near_powers[kind]);
    for (at += wide > 0 ? wide : FOLD_BYTES; at < end; at += FOLD_BYTES)
#pragma GCC unroll 4
        for (int i = 0; i < LANES; i++)
            lanes[i] = folded(lanes[i], far, lane_at(at + i * LANE_BYTES));
    for (int i = 1; i < LANES; i++)
        lanes[i] = folded(lanes[i - 1], near, lanes[i]);
    _mm_storeu_si128((__m128i *)(void *)rest, lanes[LANES - 1]);
    return table_add(kind, 0, rest, sizeof(rest));
}
#else
static uint64_t fold_add(enum s3_crc kind, uint64_t value, const unsigned char *at, size_t bytes)
{
    return table_add(kind, value, at, bytes);
}
#endif

uint64_t s3_crc_add(enum s3_crc kind, uint64_t crc, const void *data, size_t bytes)
{
    pthread_once(&tables_once, tables_make);
    const unsigned char *at = data;
    uint64_t value = crc ^ ones(kind);
    size_t folds = can_fold ? bytes / FOLD_BYTES * FOLD_BYTES : 0;
    if (folds > 0)
        value = fold_add(kind, value, at, folds);
    return table_add(kind, value, at + folds, bytes - folds) ^ ones(kind);
}

/* a * b modulo the polynomial of the kind, in the reflected form. */
static uint64_t product(enum s3_crc kind, uint64_t a, uint64_t b)
{
    uint64_t sum = 0;
    for (uint64_t power = UINT64_C(1) << (kinds[kind].bits - 1); power != 0; power >>= 1) {
        if (a & power)
            sum ^= b;
        b = b & 1 ? b >> 1 ^ kinds[kind].polynomial : b >> 1;
    }
    return sum;
}

uint64_t s3_crc_combine(enum s3_crc kind, uint64_t first, uint64_t second, uint64_t second_bytes)
{
    uint64_t one = UINT64_C(1) << (kinds[kind].bits - 1); /* x^0 */
    uint64_t shift = one, square = one >> 8;              /* x^8 */
    for (; second_bytes != 0; second_bytes >>= 1) {
        if (second_bytes & 1)
            shift = product(kind, shift, square);
        square = product(kind, square, square);
    }
    return product(kind, shift, first) ^ second;
}
