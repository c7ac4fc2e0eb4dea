/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c: the SHAs by libcrypto, MD5 by md5.c, the CRCs by crc.c, and their texts. */
#include "s3/digest.h"

#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "s3/crc.h"

static const struct {
    const char *name;
    size_t bytes;
} algorithms[S3_ALGORITHM_COUNT] = {
    [S3_NO_CHECKSUM] = {"", 0},        [S3_CRC32] = {"CRC32", 4}, [S3_CRC32C] = {"CRC32C", 4},
    [S3_CRC64NVME] = {"CRC64NVME", 8}, [S3_SHA1] = {"SHA1", 20},  [S3_SHA256] = {"SHA256", 32},
};

const char *s3_algorithm_name(enum s3_algorithm algorithm)
{
    return algorithms[algorithm].name;
}

size_t s3_algorithm_bytes(enum s3_algorithm algorithm)
{
    return algorithms[algorithm].bytes;
}

enum s3_code s3_algorithm_of(const char *name, enum s3_algorithm *out)
{
    for (int i = 1; i < S3_ALGORITHM_COUNT; i++)
        if (strcasecmp(name, algorithms[i].name) == 0) {
            *out = (enum s3_algorithm)i;
            return S3_OK;
        }
    return s3_error(S3_INVALID_REQUEST,
                    "Checksum algorithm provided is unsupported. Please try again with any of the "
                    "valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]");
}

bool s3_checksum_is_composite(const struct s3_checksum *checksum)
{
    return strchr(checksum->text, '-') != NULL;
}

bool s3_algorithm_combines(enum s3_algorithm algorithm)
{
    return algorithm == S3_CRC32 || algorithm == S3_CRC32C || algorithm == S3_CRC64NVME;
}

static enum s3_crc crc_of(enum s3_algorithm algorithm)
{
    BASE_ASSERT(s3_algorithm_combines(algorithm));
    if (algorithm == S3_CRC64NVME)
        return S3_CRC_64_NVME;
    return algorithm == S3_CRC32 ? S3_CRC_32 : S3_CRC_32C;
}

static enum s3_code failed(void)
{
    return s3_error(S3_INTERNAL_ERROR, "libcrypto can't compute a digest");
}

static enum s3_code context_make(const EVP_MD *kind, EVP_MD_CTX **out)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context == NULL || EVP_DigestInit_ex(context, kind, NULL) != 1) {
        EVP_MD_CTX_free(context);
        return failed();
    }
    *out = context;
    return S3_OK;
}

enum s3_code s3_digest_init_checksum(struct s3_digest *digest, enum s3_algorithm algorithm)
{
    *digest = (struct s3_digest){.algorithm = algorithm};
    if (algorithm == S3_SHA1 || algorithm == S3_SHA256)
        return context_make(algorithm == S3_SHA1 ? EVP_sha1() : EVP_sha256(), &digest->sha);
    return S3_OK;
}

enum s3_code s3_digest_init(struct s3_digest *digest, enum s3_algorithm algorithm)
{
    S3_TRY(s3_digest_init_checksum(digest, algorithm));
    digest->has_md5 = true;
    s3_md5_init(&digest->md5);
    return S3_OK;
}

static enum s3_code checksum_add(struct s3_digest *digest, const void *data, size_t bytes)
{
    if (s3_algorithm_combines(digest->algorithm))
        digest->crc = s3_crc_add(crc_of(digest->algorithm), digest->crc, data, bytes);
    if (digest->sha != NULL && EVP_DigestUpdate(digest->sha, data, bytes) != 1)
        return failed();
    return S3_OK;
}

void s3_digest_add_all(struct s3_digest_piece *pieces, int count)
{
    struct s3_md5_piece md5s[S3_MD5_LANES];
    int md5_count = 0;
    for (int i = 0; i < count; i++) {
        const struct s3_digest_piece *piece = &pieces[i];
        if (piece->digest->has_md5)
            md5s[md5_count++] =
                (struct s3_md5_piece){&piece->digest->md5, piece->data, piece->bytes};
    }
    s3_md5_add(md5s, md5_count);
    for (int i = 0; i < count; i++)
        pieces[i].code = checksum_add(pieces[i].digest, pieces[i].data, pieces[i].bytes);
}

enum s3_code s3_digest_add(struct s3_digest *digest, const void *data, size_t bytes)
{
    struct s3_digest_piece piece = {.digest = digest, .data = data, .bytes = bytes};
    s3_digest_add_all(&piece, 1);
    return piece.code;
}

static void big_endian_put(uint64_t value, unsigned char *bytes, size_t count)
{
    for (size_t i = count; i > 0; i--, value >>= 8)
        bytes[i - 1] = (unsigned char)value;
}

static uint64_t big_endian_get(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

enum s3_code s3_digest_end(struct s3_digest *digest, struct s3_digest_result *out)
{
    *out = (struct s3_digest_result){.md5 = {0}};
    if (digest->has_md5)
        s3_md5_end(&digest->md5, out->md5);
    if (digest->sha != NULL && EVP_DigestFinal_ex(digest->sha, out->checksum, NULL) != 1)
        return failed();
    if (s3_algorithm_combines(digest->algorithm))
        big_endian_put(digest->crc, out->checksum, s3_algorithm_bytes(digest->algorithm));
    return S3_OK;
}

void s3_digest_release(struct s3_digest *digest)
{
    EVP_MD_CTX_free(digest->sha);
    digest->sha = NULL;
}

enum s3_code s3_digest_of(enum s3_algorithm algorithm, const void *data, size_t bytes,
                          struct s3_digest_result *out)
{
    struct s3_digest digest;
    S3_TRY(s3_digest_init(&digest, algorithm));
    enum s3_code code = s3_digest_add(&digest, data, bytes);
    if (code == S3_OK)
        code = s3_digest_end(&digest, out);
    s3_digest_release(&digest);
    return code;
}

void s3_checksum_combine(enum s3_algorithm algorithm, unsigned char *first,
                         const unsigned char *second, uint64_t second_bytes)
{
    size_t count = s3_algorithm_bytes(algorithm);
    uint64_t crc = s3_crc_combine(crc_of(algorithm), big_endian_get(first, count),
                                  big_endian_get(second, count), second_bytes);
    big_endian_put(crc, first, count);
}

void s3_hex(const unsigned char *bytes, size_t count, char *text)
{
    for (size_t i = 0; i < count; i++) {
        *text++ = "0123456789abcdef"[bytes[i] >> 4];
        *text++ = "0123456789abcdef"[bytes[i] & 15];
    }
    *text = '\0';
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool s3_unhex(const char *text, unsigned char *bytes, size_t count)
{
    if (strlen(text) != 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

void s3_base64(const unsigned char *bytes, size_t count, char *text)
{
    EVP_EncodeBlock((unsigned char *)text, bytes, (int)count);
}

bool s3_unbase64(const char *text, unsigned char *bytes, size_t count)
{
    unsigned char all[S3_CHECKSUM_TEXT_BYTES];
    char again[S3_CHECKSUM_TEXT_BYTES];
    size_t length = (count + 2) / 3 * 4;
    if (strlen(text) != length || length >= sizeof(all))
        return false;
    if (EVP_DecodeBlock(all, (const unsigned char *)text, (int)length) < (int)count)
        return false;
    s3_base64(all, count, again); /* the one text that these bytes have */
    if (strcmp(again, text) != 0)
        return false;
    memcpy(bytes, all, count);
    return true;
}
