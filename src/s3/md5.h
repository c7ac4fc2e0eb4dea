/* SPDX-License-Identifier: Apache-2.0 */
/*
 * md5.h: the MD5 of up to eight bodies at one time.
 *
 * MD5 is here what names bytes (ETag), and keeps no secret. One body's can't be shared among cores
 * or lanes, because each step waits for the one before; but a vector holds eight bodies' words, and
 * its steps take no longer than those of one.
 */
#ifndef SHOAL_S3_MD5_H
#define SHOAL_S3_MD5_H

#include <stddef.h>
#include <stdint.h>

#define S3_MD5_BYTES       16
#define S3_MD5_LANES       8
#define S3_MD5_WORDS       4
#define S3_MD5_BLOCK_BYTES 64

struct s3_md5 {
    uint32_t words[S3_MD5_WORDS];
    uint64_t bytes;                         /* so far */
    unsigned char rest[S3_MD5_BLOCK_BYTES]; /* bytes % S3_MD5_BLOCK_BYTES of them: no block yet */
};

/* A piece that comes behind what its MD5 has. */
struct s3_md5_piece {
    struct s3_md5 *md5;
    const unsigned char *data;
    size_t bytes;
};

void s3_md5_init(struct s3_md5 *md5);
/* `count` up to S3_MD5_LANES, each of another MD5; pieces of one length take the least time. Any
 * thread. Changes the pieces. */
void s3_md5_add(struct s3_md5_piece *pieces, int count);
void s3_md5_end(struct s3_md5 *md5, unsigned char out[S3_MD5_BYTES]);

#endif
