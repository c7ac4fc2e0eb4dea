/* SPDX-License-Identifier: Apache-2.0 */
/*
 * md5.c: MD5 (RFC 1321), whose rounds are written once, over words that are numbers or vectors.
 *
 * A step is `a = b + rotated(a + f(b, c, d) + word + sine)`, and the next one waits for it, which
 * is all that takes time. So the functions are written in the forms in which b, the newest word,
 * comes last; and a vector of words of eight bodies takes no more steps than one body.
 *
 * Bodies are bytes one after the other, and a vector wants word i of all bodies: eight by eight
 * words are turned in three steps, each of which exchanges pieces twice as long as the one before.
 */
#include "s3/md5.h"

#include <stdbool.h>
#include <string.h>

#define LANES       S3_MD5_LANES
#define BLOCK_BYTES S3_MD5_BLOCK_BYTES
#define BLOCK_WORDS (BLOCK_BYTES / 4)
#define LANE_BYTES  (4 * LANES)
#define LANES_LEAST 2 /* fewer are faster one after the other */
#define END_BYTES   8 /* the length in bits, at the end of the last block */

typedef uint32_t lanes_word __attribute__((vector_size(LANE_BYTES)));

#if defined(__x86_64__)
#define LANES_TARGET __attribute__((target("avx2")))
#else
#define LANES_TARGET
#endif

/* floor(2^32 * |sin(i + 1)|), i in radians. */
static const uint32_t sines[] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

#define FIRST(a, b, c, d)  a += d ^ (b & (c ^ d))
#define SECOND(a, b, c, d) (a += c & ~d, a += b & d)
#define THIRD(a, b, c, d)  a += b ^ (c ^ d)
#define FOURTH(a, b, c, d) a += c ^ (b | ~d)

#define STEP(function, a, b, c, d, i, word, bits)  \
    a += message[(word) % BLOCK_WORDS] + sines[i]; \
    function(a, b, c, d);                          \
    a = (a << (bits) | a >> (32 - (bits))) + b;

/* 16 steps, of which step i takes word i * factor + first. */
#define ROUND(function, begin, factor, first, bits0, bits1, bits2, bits3)      \
    _Pragma("GCC unroll 4") for (unsigned i = begin; i < (begin) + 16; i += 4) \
    {                                                                          \
        STEP(function, a, b, c, d, i, i *(factor) + (first), bits0)            \
        STEP(function, d, a, b, c, i + 1, (i + 1) * (factor) + (first), bits1) \
        STEP(function, c, d, a, b, i + 2, (i + 2) * (factor) + (first), bits2) \
        STEP(function, b, c, d, a, i + 3, (i + 3) * (factor) + (first), bits3) \
    }

/* A block into `words`. */
#define ROUNDS(word, words, message)                                         \
    do {                                                                     \
        word a = (words)[0], b = (words)[1], c = (words)[2], d = (words)[3]; \
        ROUND(FIRST, 0, 1, 0, 7, 12, 17, 22)                                 \
        ROUND(SECOND, 16, 5, 1, 5, 9, 14, 20)                                \
        ROUND(THIRD, 32, 3, 5, 4, 11, 16, 23)                                \
        ROUND(FOURTH, 48, 7, 0, 6, 10, 15, 21)                               \
        (words)[0] += a, (words)[1] += b, (words)[2] += c, (words)[3] += d;  \
    } while (0)

/* ---- one body ---- */

static void little_endian(uint32_t *words, size_t count)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (size_t i = 0; i < count; i++)
        words[i] = __builtin_bswap32(words[i]);
#else
    (void)words, (void)count;
#endif
}

static void blocks_add(uint32_t words[S3_MD5_WORDS], const unsigned char *data, size_t blocks)
{
    for (; blocks > 0; blocks--, data += BLOCK_BYTES) {
        uint32_t message[BLOCK_WORDS];
        memcpy(message, data, sizeof(message));
        little_endian(message, BLOCK_WORDS);
        ROUNDS(uint32_t, words, message);
    }
}

/* ---- as many as there are lanes ---- */

#define MIXED(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)

/* Eight words of each body, as eight vectors of a word of all. */
LANES_TARGET static inline void words_turn(const unsigned char *const data[LANES], size_t at,
                                           lanes_word out[LANES])
{
    lanes_word a[LANES], b[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++)
        memcpy(&a[i], data[i] + at, LANE_BYTES);
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 2) {
        b[i] = MIXED(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = MIXED(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < LANES; i += 4) {
        a[i] = MIXED(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        a[i + 1] = MIXED(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        a[i + 2] = MIXED(b[i + 1], b[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        a[i + 3] = MIXED(b[i + 1], b[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int i = 0; i < LANES / 2; i++) {
        out[i] = MIXED(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        out[i + 4] = MIXED(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

LANES_TARGET static void lanes_add(lanes_word words[S3_MD5_WORDS],
                                   const unsigned char *const data[LANES], size_t blocks)
{
    lanes_word kept[S3_MD5_WORDS];
    memcpy(kept, words, sizeof(kept));
    for (size_t at = 0; at < blocks * BLOCK_BYTES; at += BLOCK_BYTES) {
        lanes_word message[BLOCK_WORDS];
        words_turn(data, at, message);
        words_turn(data, at + LANE_BYTES, message + LANES);
        ROUNDS(lanes_word, kept, message);
    }
    memcpy(words, kept, sizeof(kept));
}

static bool has_lanes(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2");
#else
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
#endif
}

static void piece_pass(struct s3_md5_piece *piece, size_t bytes)
{
    piece->md5->bytes += bytes;
    piece->data += bytes;
    piece->bytes -= bytes;
}

/* Idle lanes count what the first one does, for nobody. */
static void pieces_add(struct s3_md5_piece *const pieces[], int count, size_t blocks)
{
    lanes_word words[S3_MD5_WORDS];
    const unsigned char *data[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        const struct s3_md5_piece *piece = pieces[lane < count ? lane : 0];
        data[lane] = piece->data;
        for (int i = 0; i < S3_MD5_WORDS; i++)
            words[i][lane] = piece->md5->words[i];
    }
    lanes_add(words, data, blocks);
    for (int lane = 0; lane < count; lane++) {
        for (int i = 0; i < S3_MD5_WORDS; i++)
            pieces[lane]->md5->words[i] = words[i][lane];
        piece_pass(pieces[lane], blocks * BLOCK_BYTES);
    }
}

/* Those that have whole blocks, and how many all of these have. */
static int with_blocks(struct s3_md5_piece *pieces, int count, struct s3_md5_piece *out[LANES],
                       size_t *blocks)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        size_t own = pieces[i].bytes / BLOCK_BYTES;
        if (own == 0)
            continue;
        if (found == 0 || own < *blocks)
            *blocks = own;
        out[found++] = &pieces[i];
    }
    return found;
}

/* ---- pieces of any length ---- */

/* What makes a block of the rest before it, or becomes rest. */
static void rest_add(struct s3_md5_piece *piece)
{
    struct s3_md5 *md5 = piece->md5;
    size_t held = md5->bytes % BLOCK_BYTES, room = BLOCK_BYTES - held;
    size_t bytes = piece->bytes < room ? piece->bytes : room;
    memcpy(md5->rest + held, piece->data, bytes);
    piece_pass(piece, bytes);
    if (bytes == room)
        blocks_add(md5->words, md5->rest, 1);
}

void s3_md5_init(struct s3_md5 *md5)
{
    *md5 = (struct s3_md5){.words = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}};
}

void s3_md5_add(struct s3_md5_piece *pieces, int count)
{
    struct s3_md5_piece *active[LANES];
    size_t blocks = 0;
    for (int i = 0; i < count; i++)
        if (pieces[i].md5->bytes % BLOCK_BYTES != 0)
            rest_add(&pieces[i]);
    int found = with_blocks(pieces, count, active, &blocks);
    for (; found >= LANES_LEAST && has_lanes(); found = with_blocks(pieces, count, active, &blocks))
        pieces_add(active, found, blocks);
    for (int i = 0; i < count; i++) {
        blocks = pieces[i].bytes / BLOCK_BYTES;
        blocks_add(pieces[i].md5->words, pieces[i].data, blocks);
        piece_pass(&pieces[i], blocks * BLOCK_BYTES);
        if (pieces[i].bytes > 0)
            rest_add(&pieces[i]);
    }
}

void s3_md5_end(struct s3_md5 *md5, unsigned char out[S3_MD5_BYTES])
{
    static const unsigned char padding[BLOCK_BYTES] = {0x80};
    unsigned char length[END_BYTES];
    for (int i = 0; i < END_BYTES; i++)
        length[i] = (unsigned char)(md5->bytes << 3 >> 8 * i);
    size_t held = (md5->bytes + END_BYTES) % BLOCK_BYTES;
    struct s3_md5_piece piece = {md5, padding, BLOCK_BYTES - held};
    s3_md5_add(&piece, 1);
    piece = (struct s3_md5_piece){md5, length, sizeof(length)};
    s3_md5_add(&piece, 1);
    little_endian(md5->words, S3_MD5_WORDS);
    memcpy(out, md5->words, S3_MD5_BYTES);
}
