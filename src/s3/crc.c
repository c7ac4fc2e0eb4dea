/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc.c: cyclic redundancy checks, eight bytes at a time.
 *
 * A check is the remainder of the message, taken as a polynomial over bits, by the polynomial of
 * its kind; in the reflected form bit 0 is the highest power. Table k holds the remainders of each
 * byte followed by k zero bytes, so the remainders of eight bytes are eight look-ups that don't
 * wait for each other. Appending n bytes to a message multiplies its remainder by x^8n:
 * s3_crc_combine() does just that, by squaring.
 */
#include "s3/crc.h"

#include <pthread.h>
#include <string.h>

static const struct {
    uint64_t polynomial; /* reflected */
    int bits;
} kinds[S3_CRC_COUNT] = {
    [S3_CRC_32] = {UINT64_C(0xedb88320), 32},
    [S3_CRC_32C] = {UINT64_C(0x82f63b78), 32},
    [S3_CRC_64_NVME] = {UINT64_C(0x9a6c9329ac4bc9b5), 64},
};

static uint64_t tables[S3_CRC_COUNT][8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static uint64_t remainder_of_byte(uint64_t polynomial, uint64_t value)
{
    for (int bit = 0; bit < 8; bit++)
        value = value & 1 ? value >> 1 ^ polynomial : value >> 1;
    return value;
}

static void tables_make(void)
{
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

uint64_t s3_crc_add(enum s3_crc kind, uint64_t crc, const void *data, size_t bytes)
{
    pthread_once(&tables_once, tables_make);
    uint64_t(*table)[256] = tables[kind];
    const unsigned char *at = data;
    uint64_t value = crc ^ ones(kind);
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word = value ^ word_at(at);
        value = table[7][word & 0xff] ^ table[6][word >> 8 & 0xff] ^ table[5][word >> 16 & 0xff] ^
                table[4][word >> 24 & 0xff] ^ table[3][word >> 32 & 0xff] ^
                table[2][word >> 40 & 0xff] ^ table[1][word >> 48 & 0xff] ^ table[0][word >> 56];
    }
    for (; bytes > 0; bytes--, at++)
        value = value >> 8 ^ table[0][(value ^ *at) & 0xff];
    return value ^ ones(kind);
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
