/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c: SHA-256 and HMAC-SHA256, by libcrypto. */
#include "http/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/memory.h"
#include "base/status.h"

struct http_digest {
    EVP_MD_CTX *context;
};

static enum shoal_status failed(void)
{
    return base_error(SHOAL_ERR_SYSTEM, "libcrypto could not compute a SHA-256");
}

void http_digest_hex(const unsigned char digest[HTTP_DIGEST_BYTES], char hex[HTTP_DIGEST_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < HTTP_DIGEST_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * HTTP_DIGEST_BYTES] = '\0';
}

enum shoal_status http_digest_create(struct http_digest **out)
{
    struct http_digest *digest;
    TRY(BASE_NEW(&digest, "a digest"));
    digest->context = EVP_MD_CTX_new();
    if (digest->context == NULL || EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) != 1) {
        http_digest_free(digest);
        return failed();
    }
    *out = digest;
    return SHOAL_OK;
}

enum shoal_status http_digest_add(struct http_digest *digest, const void *bytes, size_t count)
{
    return EVP_DigestUpdate(digest->context, bytes, count) == 1 ? SHOAL_OK : failed();
}

enum shoal_status http_digest_finish(struct http_digest *digest, char hex[HTTP_DIGEST_HEX_BYTES])
{
    unsigned char bytes[HTTP_DIGEST_BYTES];
    if (EVP_DigestFinal_ex(digest->context, bytes, NULL) != 1 ||
        EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) != 1)
        return failed();
    http_digest_hex(bytes, hex);
    return SHOAL_OK;
}

void http_digest_free(struct http_digest *digest)
{
    if (digest == NULL)
        return;
    EVP_MD_CTX_free(digest->context);
    base_free(digest);
}

enum shoal_status http_digest_of(const void *bytes, size_t count, char hex[HTTP_DIGEST_HEX_BYTES])
{
    unsigned char digest[HTTP_DIGEST_BYTES];
    if (EVP_Digest(bytes, count, digest, NULL, EVP_sha256(), NULL) != 1)
        return failed();
    http_digest_hex(digest, hex);
    return SHOAL_OK;
}

enum shoal_status http_digest_hmac(const void *key, size_t key_bytes, const void *bytes,
                                   size_t count, unsigned char mac[HTTP_DIGEST_BYTES])
{
    if (HMAC(EVP_sha256(), key, (int)key_bytes, bytes, count, mac, NULL) == NULL)
        return failed();
    return SHOAL_OK;
}
