/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunked.h: the decoder of aws-chunked bodies, in which S3's clients stream what they have not
 * hashed before:
 *
 *     1000;chunk-signature=<64 digits>\r\n <data> \r\n … 0;chunk-signature=…\r\n
 *     x-amz-checksum-crc32:<value>\r\n x-amz-trailer-signature:<64 digits>\r\n \r\n
 *
 * Signatures and trailers are there or not, as x-amz-content-sha256 announced.
 */
#ifndef SHOAL_HTTP_CHUNKED_H
#define SHOAL_HTTP_CHUNKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/signature.h"
#include "shoal.h"

struct http_chunked;

struct http_chunked_options {
    bool is_signed;                         /* chunks (and trailers) carry signatures */
    bool has_trailers;                      /* lines may follow the last chunk */
    const struct http_chunk_signer *signer; /* copied; NULL: signatures are not checked */
    int64_t announced;                      /* decoded bytes; -1: not announced */
};

struct http_chunked_sink {
    enum shoal_status (*piece)(void *user, const void *data, size_t bytes);
    void *user;
};

enum shoal_status http_chunked_create(const struct http_chunked_options *options,
                                      struct http_chunked **out);
/* Takes any part of the body; data goes to the sink as it comes, before its chunk's signature was
 * seen. SHOAL_ERR_FORMAT for what is no such body, or one of another length than announced;
 * SHOAL_ERR_PEER_REFUSED for a wrong signature; what the sink returns. */
enum shoal_status http_chunked_feed(struct http_chunked *chunked, const void *bytes, size_t count,
                                    const struct http_chunked_sink *sink);
/* At the end: whether it was whole. */
enum shoal_status http_chunked_finish(const struct http_chunked *chunked);
/* Decoded bytes so far. */
int64_t http_chunked_bytes(const struct http_chunked *chunked);
/* NULL if there is none of that name. */
const char *http_chunked_trailer(const struct http_chunked *chunked, const char *name);
void http_chunked_free(struct http_chunked *chunked);

#endif
