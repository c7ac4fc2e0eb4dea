/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h: MD5, which makes the ETag, and one of S3's checksums, over a body as it comes. */
#ifndef SHOAL_S3_DIGEST_H
#define SHOAL_S3_DIGEST_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3/code.h"
#include "s3/md5.h"

#define S3_CHECKSUM_BYTES_MAX  32
#define S3_CHECKSUM_TEXT_BYTES 56 /* base64 of them, and "-10000" of multipart uploads */
#define S3_ETAG_BYTES          40 /* 32 hexadecimal digits, and "-10000" */

enum s3_algorithm {
    S3_NO_CHECKSUM,
    S3_CRC32,
    S3_CRC32C,
    S3_CRC64NVME,
    S3_SHA1,
    S3_SHA256,
    S3_ALGORITHM_COUNT
};

/* A checksum as S3 shows it: base64 of the big-endian bytes; a composite one, of the checksums of
 * an upload's parts, has "-N" behind it. */
struct s3_checksum {
    enum s3_algorithm algorithm;
    char text[S3_CHECKSUM_TEXT_BYTES];
};

/* "CRC32", …; of S3_NO_CHECKSUM "". */
const char *s3_algorithm_name(enum s3_algorithm algorithm);
/* By that name, in any case; INVALID_REQUEST. */
enum s3_code s3_algorithm_of(const char *name, enum s3_algorithm *out);
size_t s3_algorithm_bytes(enum s3_algorithm algorithm);
bool s3_checksum_is_composite(const struct s3_checksum *checksum);

struct s3_digest {
    enum s3_algorithm algorithm;
    bool has_md5;
    struct s3_md5 md5;
    EVP_MD_CTX *sha; /* NULL: of other algorithms */
    uint64_t crc;
};

struct s3_digest_result {
    unsigned char md5[S3_MD5_BYTES];
    unsigned char checksum[S3_CHECKSUM_BYTES_MAX]; /* s3_algorithm_bytes() of them */
};

enum s3_code s3_digest_init(struct s3_digest *digest, enum s3_algorithm algorithm);
/* The same without MD5, whose result is zeros. */
enum s3_code s3_digest_init_checksum(struct s3_digest *digest, enum s3_algorithm algorithm);
enum s3_code s3_digest_add(struct s3_digest *digest, const void *data, size_t bytes);

/* A piece that comes behind what its digest has. */
struct s3_digest_piece {
    struct s3_digest *digest;
    const void *data;
    size_t bytes;
    enum s3_code code; /* set by s3_digest_add_all */
};
/* Up to S3_MD5_LANES of them, each of another digest, whose MD5s are counted side by side. */
void s3_digest_add_all(struct s3_digest_piece *pieces, int count);
enum s3_code s3_digest_end(struct s3_digest *digest, struct s3_digest_result *out);
/* Safe on a zeroed one. */
void s3_digest_release(struct s3_digest *digest);

/* A digest of a few bytes in one call; S3_NO_CHECKSUM: the MD5 only. */
enum s3_code s3_digest_of(enum s3_algorithm algorithm, const void *data, size_t bytes,
                          struct s3_digest_result *out);

/* The check of two parts' bytes out of their own; for the three CRCs. */
void s3_checksum_combine(enum s3_algorithm algorithm, unsigned char *first,
                         const unsigned char *second, uint64_t second_bytes);
bool s3_algorithm_combines(enum s3_algorithm algorithm);

void s3_hex(const unsigned char *bytes, size_t count, char *text); /* 2 * count + 1 */
/* count bytes out of 2 * count digits; false if there are others. */
bool s3_unhex(const char *text, unsigned char *bytes, size_t count);
void s3_base64(const unsigned char *bytes, size_t count, char *text);
/* Exactly `count` bytes out of base64; false if it is something else. */
bool s3_unbase64(const char *text, unsigned char *bytes, size_t count);

#endif
