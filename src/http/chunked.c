/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunked.c: a body in chunks, taken in pieces of any size.
 *
 *   SIZE ──line──► DATA ──all of it──► BREAK ──\r\n──► SIZE
 *     └──"0"──► TRAILERS ──empty line──► DONE
 *
 * A chunk's signature stands in front of its data and is known to be right only behind it.
 */
#include "http/chunked.h"

#include <string.h>
#include <strings.h>

#include <openssl/crypto.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/text.h"

#define LINE_BYTES    4096
#define TRAILERS_MAX  16
#define SIZE_DIGITS   15
#define SIGNATURE     ";chunk-signature="
#define SIGNATURE_END "x-amz-trailer-signature"

enum state { SIZE, DATA, BREAK, TRAILERS, DONE };

struct http_chunked {
    enum state state;
    bool is_signed, has_trailers, is_checked;
    struct http_chunk_signer signer;
    int64_t announced, decoded;
    uint64_t left;              /* of this chunk's data */
    struct http_digest *digest; /* of this chunk's data */
    char claimed[HTTP_DIGEST_HEX_BYTES];
    char line[LINE_BYTES];
    size_t line_bytes;
    struct http_text trailers; /* "name\0value\0" of each */
    size_t trailer_count;
    struct http_text to_sign; /* "name:value\n" of each */
    bool trailers_signed;
};

enum shoal_status http_chunked_create(const struct http_chunked_options *options,
                                      struct http_chunked **out)
{
    struct http_chunked *chunked;
    TRY(BASE_NEW(&chunked, "a body in chunks"));
    chunked->is_signed = options->is_signed;
    chunked->has_trailers = options->has_trailers;
    chunked->is_checked = options->is_signed && options->signer != NULL;
    chunked->announced = options->announced;
    chunked->trailers.limit = chunked->to_sign.limit = 2 * LINE_BYTES;
    if (chunked->is_checked) {
        chunked->signer = *options->signer;
        enum shoal_status status = http_digest_create(&chunked->digest);
        if (status != SHOAL_OK) {
            http_chunked_free(chunked);
            return status;
        }
    }
    *out = chunked;
    return SHOAL_OK;
}

void http_chunked_free(struct http_chunked *chunked)
{
    if (chunked == NULL)
        return;
    http_digest_free(chunked->digest);
    http_text_free(&chunked->trailers);
    http_text_free(&chunked->to_sign);
    OPENSSL_cleanse(chunked->signer.key, sizeof(chunked->signer.key));
    base_free(chunked);
}

static enum shoal_status wrong(const struct http_chunked *chunked, const char *what)
{
    return base_error(SHOAL_ERR_FORMAT, "the aws-chunked body is wrong behind %lld bytes of it: %s",
                      (long long)chunked->decoded, what);
}

static enum shoal_status compare(const struct http_chunked *chunked, const char *made,
                                 const char *claimed)
{
    if (CRYPTO_memcmp(made, claimed, HTTP_DIGEST_HEX_BYTES) == 0)
        return SHOAL_OK;
    return base_error(SHOAL_ERR_PEER_REFUSED,
                      "the signature of the chunk that ends at byte %lld of the body is wrong",
                      (long long)chunked->decoded);
}

static bool claim_take(const char *text, char out[HTTP_DIGEST_HEX_BYTES])
{
    if (strlen(text) != HTTP_DIGEST_HEX_BYTES - 1 ||
        strspn(text, "0123456789abcdef") != HTTP_DIGEST_HEX_BYTES - 1)
        return false;
    memcpy(out, text, HTTP_DIGEST_HEX_BYTES);
    return true;
}

/* "1f40;chunk-signature=…": its size and what it claims. */
static enum shoal_status size_read(struct http_chunked *chunked)
{
    uint64_t size = 0;
    const char *at = chunked->line;
    int digits = 0;
    for (; digits < SIZE_DIGITS; at++, digits++) {
        int value = *at >= '0' && *at <= '9'   ? *at - '0'
                    : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10
                    : *at >= 'A' && *at <= 'F' ? *at - 'A' + 10
                                               : -1;
        if (value < 0)
            break;
        size = size * 16 + (uint64_t)value;
    }
    if (digits == 0)
        return wrong(chunked, "a chunk begins with its size in hexadecimal digits");
    bool has_claim = strncmp(at, SIGNATURE, sizeof(SIGNATURE) - 1) == 0;
    if (chunked->is_signed != has_claim || (!has_claim && *at != '\0'))
        return wrong(chunked, chunked->is_signed ? "a chunk without ;chunk-signature="
                                                 : "something behind the size of a chunk");
    if (has_claim && !claim_take(at + sizeof(SIGNATURE) - 1, chunked->claimed))
        return wrong(chunked, "a chunk's signature is not 64 hexadecimal digits");
    if (chunked->announced >= 0 && size > (uint64_t)(chunked->announced - chunked->decoded))
        return wrong(chunked, "more data than x-amz-decoded-content-length announced");
    chunked->left = size;
    return SHOAL_OK;
}

static enum shoal_status chunk_check(struct http_chunked *chunked)
{
    char digest[HTTP_DIGEST_HEX_BYTES], made[HTTP_DIGEST_HEX_BYTES];
    if (!chunked->is_checked)
        return SHOAL_OK;
    TRY(http_digest_finish(chunked->digest, digest));
    TRY(http_chunk_sign(&chunked->signer, digest, made));
    return compare(chunked, made, chunked->claimed);
}

static enum shoal_status size_line(struct http_chunked *chunked)
{
    TRY(size_read(chunked));
    chunked->state = DATA;
    if (chunked->left > 0)
        return SHOAL_OK;
    TRY(chunk_check(chunked));
    if (chunked->announced >= 0 && chunked->decoded != chunked->announced)
        return wrong(chunked, "less data than x-amz-decoded-content-length announced");
    chunked->state = TRAILERS;
    return SHOAL_OK;
}

static enum shoal_status trailers_check(struct http_chunked *chunked, const char *claim)
{
    char digest[HTTP_DIGEST_HEX_BYTES], made[HTTP_DIGEST_HEX_BYTES];
    char claimed[HTTP_DIGEST_HEX_BYTES];
    if (!claim_take(claim, claimed))
        return wrong(chunked, "the trailers' signature is not 64 hexadecimal digits");
    chunked->trailers_signed = true;
    if (!chunked->is_checked)
        return SHOAL_OK;
    TRY(http_digest_of(http_text_string(&chunked->to_sign), chunked->to_sign.count, digest));
    TRY(http_chunk_sign_trailers(&chunked->signer, digest, made));
    return compare(chunked, made, claimed);
}

static enum shoal_status trailers_end(struct http_chunked *chunked)
{
    if (chunked->is_signed && chunked->has_trailers && !chunked->trailers_signed)
        return wrong(chunked, "trailers without " SIGNATURE_END);
    chunked->state = DONE;
    return SHOAL_OK;
}

static enum shoal_status trailer_line(struct http_chunked *chunked)
{
    char *line = chunked->line;
    if (line[0] == '\0')
        return trailers_end(chunked);
    char *colon = strchr(line, ':');
    if (!chunked->has_trailers || colon == NULL || colon == line || chunked->trailers_signed)
        return wrong(chunked, "a line behind the last chunk that is no trailer");
    *colon = '\0';
    char *value = colon + 1 + strspn(colon + 1, " \t");
    for (size_t end = strlen(value); end > 0 && strchr(" \t", value[end - 1]) != NULL; end--)
        value[end - 1] = '\0';
    if (strcmp(line, SIGNATURE_END) == 0)
        return chunked->is_signed ? trailers_check(chunked, value)
                                  : wrong(chunked, "signed trailers where none were announced");
    if (chunked->trailer_count == TRAILERS_MAX)
        return wrong(chunked, "too many trailers");
    http_text_format(&chunked->to_sign, "%s:%s\n", line, value);
    http_text_add(&chunked->trailers, line, strlen(line) + 1);
    http_text_add(&chunked->trailers, value, strlen(value) + 1);
    TRY(http_text_status(&chunked->to_sign));
    TRY(http_text_status(&chunked->trailers));
    chunked->trailer_count++;
    return SHOAL_OK;
}

static enum shoal_status line_end(struct http_chunked *chunked)
{
    size_t count = chunked->line_bytes;
    if (count == 0 || chunked->line[count - 1] != '\r')
        return wrong(chunked, "a line that does not end with CR LF");
    chunked->line[count - 1] = '\0';
    chunked->line_bytes = 0;
    if (strlen(chunked->line) != count - 1)
        return wrong(chunked, "a NUL in a line");
    if (chunked->state == SIZE)
        return size_line(chunked);
    if (chunked->state == TRAILERS)
        return trailer_line(chunked);
    if (count > 1)
        return wrong(chunked, "a chunk is longer than it said");
    chunked->state = SIZE;
    return SHOAL_OK;
}

/* Up to the end of the line, or all of it; how much was taken. */
static enum shoal_status line_feed(struct http_chunked *chunked, const char *bytes, size_t count,
                                   size_t *taken)
{
    const char *end = memchr(bytes, '\n', count);
    size_t part = end != NULL ? (size_t)(end - bytes) : count;
    if (chunked->line_bytes + part >= LINE_BYTES)
        return wrong(chunked, "a line without an end");
    memcpy(chunked->line + chunked->line_bytes, bytes, part);
    chunked->line_bytes += part;
    *taken = part + (end != NULL);
    return end != NULL ? line_end(chunked) : SHOAL_OK;
}

static enum shoal_status data_feed(struct http_chunked *chunked, const char *bytes, size_t count,
                                   const struct http_chunked_sink *sink, size_t *taken)
{
    size_t part = count < chunked->left ? count : (size_t)chunked->left;
    if (chunked->is_checked)
        TRY(http_digest_add(chunked->digest, bytes, part));
    TRY(sink->piece(sink->user, bytes, part));
    chunked->left -= part;
    chunked->decoded += (int64_t)part;
    *taken = part;
    if (chunked->left > 0)
        return SHOAL_OK;
    chunked->state = BREAK;
    return chunk_check(chunked);
}

enum shoal_status http_chunked_feed(struct http_chunked *chunked, const void *bytes, size_t count,
                                    const struct http_chunked_sink *sink)
{
    const char *at = bytes;
    while (count > 0) {
        size_t taken = 0;
        if (chunked->state == DONE)
            return wrong(chunked, "something behind its end");
        if (chunked->state == DATA)
            TRY(data_feed(chunked, at, count, sink, &taken));
        else
            TRY(line_feed(chunked, at, count, &taken));
        at += taken;
        count -= taken;
    }
    return SHOAL_OK;
}

enum shoal_status http_chunked_finish(const struct http_chunked *chunked)
{
    return chunked->state == DONE ? SHOAL_OK : wrong(chunked, "it ends too early");
}

int64_t http_chunked_bytes(const struct http_chunked *chunked)
{
    return chunked->decoded;
}

const char *http_chunked_trailer(const struct http_chunked *chunked, const char *name)
{
    const char *at = http_text_string(&chunked->trailers);
    for (size_t i = 0; i < chunked->trailer_count; i++) {
        const char *value = at + strlen(at) + 1;
        if (strcasecmp(at, name) == 0)
            return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}
