/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h: SHA-256 and HMAC-SHA256, by libcrypto. */
#ifndef SHOAL_HTTP_DIGEST_H
#define SHOAL_HTTP_DIGEST_H

#include <stddef.h>

#include "shoal.h"

#define HTTP_DIGEST_BYTES     32
#define HTTP_DIGEST_HEX_BYTES 65 /* with the NUL */
/* SHA-256 of nothing. */
#define HTTP_DIGEST_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* A SHA-256 of bytes that come in pieces. */
struct http_digest;
enum shoal_status http_digest_create(struct http_digest **out);
enum shoal_status http_digest_add(struct http_digest *digest, const void *bytes, size_t count);
/* The digest of what came so far, in lower-case digits; begins anew. */
enum shoal_status http_digest_finish(struct http_digest *digest, char hex[HTTP_DIGEST_HEX_BYTES]);
void http_digest_free(struct http_digest *digest);

enum shoal_status http_digest_of(const void *bytes, size_t count, char hex[HTTP_DIGEST_HEX_BYTES]);
enum shoal_status http_digest_hmac(const void *key, size_t key_bytes, const void *bytes,
                                   size_t count, unsigned char mac[HTTP_DIGEST_BYTES]);
void http_digest_hex(const unsigned char digest[HTTP_DIGEST_BYTES],
                     char hex[HTTP_DIGEST_HEX_BYTES]);

#endif
