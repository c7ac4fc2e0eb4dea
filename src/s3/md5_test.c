/* SPDX-License-Identifier: Apache-2.0 */
/*
 * md5_test.c: MD5 against libcrypto's: of all lengths around a block's, in pieces, and of bodies of
 * unlike lengths side by side.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "s3/md5.h"

#define DATA_BYTES 4000

static unsigned char data[S3_MD5_LANES][DATA_BYTES];

static int data_make(void **state)
{
    uint32_t number = 1;
    (void)state;
    for (int lane = 0; lane < S3_MD5_LANES; lane++)
        for (size_t i = 0; i < DATA_BYTES; i++) {
            number = number * 1664525 + 1013904223;
            data[lane][i] = (unsigned char)(number >> 24);
        }
    return 0;
}

static void md5_is(struct s3_md5 *md5, const unsigned char *bytes, size_t count)
{
    unsigned char seen[S3_MD5_BYTES], expected[EVP_MAX_MD_SIZE];
    assert_int_equal(EVP_Digest(bytes, count, expected, NULL, EVP_md5(), NULL), 1);
    s3_md5_end(md5, seen);
    assert_memory_equal(seen, expected, S3_MD5_BYTES);
}

static void a_body_in_two_pieces(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= 200; bytes++)
        for (size_t cut = 0; cut <= bytes; cut++) {
            struct s3_md5 md5;
            struct s3_md5_piece first = {&md5, data[0], cut};
            struct s3_md5_piece second = {&md5, data[0] + cut, bytes - cut};
            s3_md5_init(&md5);
            s3_md5_add(&first, 1);
            s3_md5_add(&second, 1);
            md5_is(&md5, data[0], bytes);
        }
}

/* Piece `round` of a lane is of another length than those beside it, some are empty, and all but
 * the first begin within a block. */
static size_t piece_bytes(int lane, int round)
{
    return (size_t)(lane * 131 + round * 517) % 900;
}

static void bodies_side_by_side(void **state)
{
    (void)state;
    for (int count = 1; count <= S3_MD5_LANES; count++) {
        struct s3_md5 md5s[S3_MD5_LANES];
        size_t done[S3_MD5_LANES] = {0};
        for (int lane = 0; lane < count; lane++)
            s3_md5_init(&md5s[lane]);
        for (int round = 0; round < 4; round++) {
            struct s3_md5_piece pieces[S3_MD5_LANES];
            for (int lane = 0; lane < count; lane++) {
                size_t bytes = piece_bytes(lane, round);
                pieces[lane] = (struct s3_md5_piece){&md5s[lane], data[lane] + done[lane], bytes};
                done[lane] += bytes;
            }
            s3_md5_add(pieces, count);
        }
        for (int lane = 0; lane < count; lane++)
            md5_is(&md5s[lane], data[lane], done[lane]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_in_two_pieces),
        cmocka_unit_test(bodies_side_by_side),
    };
    return cmocka_run_group_tests_name("s3 md5", tests, data_make, NULL);
}
