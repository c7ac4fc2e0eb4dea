/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc.c: cyclic redundancy checks, eight bytes at a time, or 64 by folding.
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

static uint64_t tables[S3_CRC_COUNT][8][256];
/* x^(d+63) and x^(d-1), at the top of 64 bits: over all lanes, and to the next one. */
static uint64_t far_powers[S3_CRC_COUNT][2], near_powers[S3_CRC_COUNT][2];
static bool can_fold;
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

static void powers_make(enum s3_crc kind)
{
    far_powers[kind][0] = power(kind, FOLD_BYTES * 8 + 63);
    far_powers[kind][1] = power(kind, FOLD_BYTES * 8 - 1);
    near_powers[kind][0] = power(kind, LANE_BYTES * 8 + 63);
    near_powers[kind][1] = power(kind, LANE_BYTES * 8 - 1);
}

static void tables_make(void)
{
#if defined(__x86_64__)
    can_fold = __builtin_cpu_supports("pclmul");
#endif
    for (int kind = 0; kind < S3_CRC_COUNT; kind++)
        powers_make((enum s3_crc)kind);
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
#define FOLDS __attribute__((target("pclmul")))

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

/* `bytes` are some times FOLD_BYTES, and at least once. */
FOLDS static uint64_t fold_add(enum s3_crc kind, uint64_t value, const unsigned char *at,
                               size_t bytes)
{
    __m128i lanes[LANES];
    unsigned char rest[LANE_BYTES];
    __m128i far = _mm_loadu_si128((const __m128i *)(const void *)far_powers[kind]);
    __m128i near = _mm_loadu_si128((const __m128i *)(const void *)near_powers[kind]);
    for (int i = 0; i < LANES; i++)
        lanes[i] = lane_at(at + i * LANE_BYTES);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_set_epi64x(0, (long long)value));
    for (at += FOLD_BYTES, bytes -= FOLD_BYTES; bytes > 0; at += FOLD_BYTES, bytes -= FOLD_BYTES)
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
