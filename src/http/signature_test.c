/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signature_test.c: signatures against the examples that AWS publishes, and what a wrong one, a
 * wrong clock and a wrong form are told. Keys, times and signatures of the examples are those of
 * the public documentation of signature version 4.
 */
#include "http/signature.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/chunked.h"
#include "http/text.h"
#include "support/fuzz.h"

#define S3_TIME  INT64_C(1369353600) /* 2013-05-24 */
#define IAM_TIME INT64_C(1440938160) /* 2015-08-30 12:36 */

static const struct http_key s3_key = {.id = "AKIAIOSFODNN7EXAMPLE",
                                       .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
static const struct http_key iam_key = {.id = "AKIDEXAMPLE",
                                        .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};

struct example {
    const char *method, *path, *query;
    struct http_pair headers[8];
    const char *payload, *signature;
};

static const struct example s3_examples[] = {
    {"GET",
     "/test.txt",
     "",
     {{"Host", "examplebucket.s3.amazonaws.com"},
      {"Range", "bytes=0-9"},
      {"x-amz-content-sha256", HTTP_DIGEST_EMPTY},
      {"x-amz-date", "20130524T000000Z"}},
     HTTP_DIGEST_EMPTY,
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"PUT",
     "/test$file.text",
     "",
     {{"Host", "examplebucket.s3.amazonaws.com"},
      {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
      {"x-amz-date", "20130524T000000Z"},
      {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
      {"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"}},
     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"GET",
     "/",
     "lifecycle",
     {{"Host", "examplebucket.s3.amazonaws.com"},
      {"x-amz-date", "20130524T000000Z"},
      {"x-amz-content-sha256", HTTP_DIGEST_EMPTY}},
     HTTP_DIGEST_EMPTY,
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"GET",
     "/",
     "prefix=J&max-keys=2",
     {{"Host", "examplebucket.s3.amazonaws.com"},
      {"x-amz-date", "20130524T000000Z"},
      {"x-amz-content-sha256", HTTP_DIGEST_EMPTY}},
     HTTP_DIGEST_EMPTY,
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

struct prepared {
    struct http_pair headers[10];
    struct http_pairs header_pairs, query;
    struct http_message message;
};

static void prepare(struct prepared *prepared, const struct example *example)
{
    *prepared = (struct prepared){0};
    prepared->header_pairs.pairs = prepared->headers;
    for (size_t i = 0; i < 8 && example->headers[i].name != NULL; i++)
        prepared->headers[prepared->header_pairs.count++] = example->headers[i];
    assert_int_equal(
        http_pairs_parse(example->query, strlen(example->query), 100, &prepared->query), SHOAL_OK);
    prepared->message = (struct http_message){.method = example->method,
                                              .path = example->path,
                                              .query = &prepared->query,
                                              .headers = &prepared->header_pairs};
}

static struct http_signing signing(const struct http_key *key, const char *service, int64_t time_s,
                                   const char *payload)
{
    return (struct http_signing){.key = key,
                                 .region = "us-east-1",
                                 .service = service,
                                 .time_s = time_s,
                                 .payload = payload};
}

static void expect_example(const struct example *example, const struct http_signing *by)
{
    struct prepared prepared;
    char header[1024];
    prepare(&prepared, example);
    assert_int_equal(http_signature_sign(&prepared.message, by, header, sizeof(header)), SHOAL_OK);
    assert_non_null(strstr(header, "Signature="));
    assert_string_equal(strstr(header, "Signature=") + 10, example->signature);

    struct http_signature signature;
    enum http_verdict verdict = HTTP_VERDICT_COUNT;
    prepared.headers[prepared.header_pairs.count++] = (struct http_pair){"Authorization", header};
    assert_int_equal(http_signature_read(&prepared.message, &signature), HTTP_ACCEPTED);
    assert_int_equal(signature.time_s, by->time_s);
    assert_int_equal(http_signature_check_headers(&prepared.message, &signature), HTTP_ACCEPTED);
    assert_int_equal(http_signature_check(&prepared.message, &signature, by->key->secret,
                                          example->payload, &verdict),
                     SHOAL_OK);
    assert_int_equal(verdict, HTTP_ACCEPTED);
    prepared.message.method = "DELETE";
    assert_int_equal(http_signature_check(&prepared.message, &signature, by->key->secret,
                                          example->payload, &verdict),
                     SHOAL_OK);
    assert_int_equal(verdict, HTTP_WRONG_SIGNATURE);
    http_pairs_free(&prepared.query);
}

static void published_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(s3_examples) / sizeof(s3_examples[0]); i++) {
        struct http_signing by = signing(&s3_key, "s3", S3_TIME, s3_examples[i].payload);
        expect_example(&s3_examples[i], &by);
    }
    static const struct example iam = {
        "GET",
        "/",
        "Action=ListUsers&Version=2010-05-08",
        {{"content-type", "application/x-www-form-urlencoded; charset=utf-8"},
         {"host", "iam.amazonaws.com"},
         {"x-amz-date", "20150830T123600Z"}},
        HTTP_DIGEST_EMPTY,
        "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"};
    struct http_signing by = signing(&iam_key, "iam", IAM_TIME, HTTP_DIGEST_EMPTY);
    expect_example(&iam, &by);
}

static void published_presigned_url(void **state)
{
    (void)state;
    static const struct example example = {
        .method = "GET",
        .path = "/test.txt",
        .query = "",
        .headers = {{"Host", "examplebucket.s3.amazonaws.com"}},
        .signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"};
    struct prepared prepared;
    struct http_text query = {0};
    struct http_signing by = signing(&s3_key, "s3", S3_TIME, "UNSIGNED-PAYLOAD");
    prepare(&prepared, &example);
    assert_int_equal(http_signature_presign(&prepared.message, &by, 86400, &query), SHOAL_OK);
    assert_non_null(strstr(query.bytes, example.signature));

    struct http_signature signature;
    enum http_verdict verdict = HTTP_VERDICT_COUNT;
    http_pairs_free(&prepared.query);
    assert_int_equal(http_pairs_parse(query.bytes, query.count, 100, &prepared.query), SHOAL_OK);
    assert_int_equal(http_signature_read(&prepared.message, &signature), HTTP_ACCEPTED);
    assert_true(signature.presigned);
    assert_int_equal(http_signature_check(&prepared.message, &signature, s3_key.secret,
                                          "UNSIGNED-PAYLOAD", &verdict),
                     SHOAL_OK);
    assert_int_equal(verdict, HTTP_ACCEPTED);
    assert_int_equal(http_signature_check_time(&signature, S3_TIME + 86400), HTTP_ACCEPTED);
    assert_int_equal(http_signature_check_time(&signature, S3_TIME + 86401), HTTP_EXPIRED);
    assert_int_equal(http_signature_check_time(&signature, S3_TIME - 901), HTTP_SKEWED);
    http_text_free(&query);
    http_pairs_free(&prepared.query);
}

static enum shoal_status count_bytes(void *user, const void *data, size_t bytes)
{
    (void)data;
    *(size_t *)user += bytes;
    return SHOAL_OK;
}

/* A signature that is made by hand, to begin a chain of chunks with. */
static struct http_signature seed(const char *hex)
{
    struct http_signature out = {
        .time = "20130524T000000Z", .date = "20130524", .region = "us-east-1", .service = "s3"};
    memcpy(out.hex, hex, strlen(hex) + 1);
    return out;
}

static void chunk_put(struct http_text *body, size_t bytes, const char *signature)
{
    http_text_format(body, "%zx;chunk-signature=%s\r\n", bytes, signature);
    for (size_t i = 0; i < bytes; i++)
        http_text_put(body, "a");
    if (bytes > 0)
        http_text_put(body, "\r\n");
}

/* Fed in pieces of `step` bytes. */
static enum shoal_status decode(const struct http_text *body, bool trailers,
                                const struct http_signature *first, size_t step, size_t *decoded,
                                char *checksum)
{
    struct http_chunk_signer signer;
    struct http_chunked *chunked;
    assert_int_equal(http_chunk_signer_begin(first, s3_key.secret, &signer), SHOAL_OK);
    struct http_chunked_options options = {
        .is_signed = true, .has_trailers = trailers, .signer = &signer, .announced = 66560};
    assert_int_equal(http_chunked_create(&options, &chunked), SHOAL_OK);
    struct http_chunked_sink sink = {count_bytes, decoded};
    enum shoal_status status = SHOAL_OK;
    *decoded = 0;
    for (size_t at = 0; at < body->count && status == SHOAL_OK; at += step)
        status = http_chunked_feed(chunked, body->bytes + at,
                                   body->count - at < step ? body->count - at : step, &sink);
    if (status == SHOAL_OK)
        status = http_chunked_finish(chunked);
    const char *value = http_chunked_trailer(chunked, "X-Amz-Checksum-Crc32c");
    snprintf(checksum, 32, "%s", value != NULL ? value : "");
    http_chunked_free(chunked);
    return status;
}

static void published_chunks(void **state)
{
    (void)state;
    struct http_signature first =
        seed("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
    struct http_text body = {0};
    char checksum[32];
    size_t decoded;
    chunk_put(&body, 65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648");
    chunk_put(&body, 1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497");
    chunk_put(&body, 0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9");
    http_text_put(&body, "\r\n");
    assert_int_equal(body.count, 66824);
    for (size_t step = 1; step < 100000; step = step * 7 + 3) {
        assert_int_equal(decode(&body, false, &first, step, &decoded, checksum), SHOAL_OK);
        assert_int_equal(decoded, 66560);
    }
    body.bytes[100] = 'b';
    assert_int_equal(decode(&body, false, &first, 4096, &decoded, checksum),
                     SHOAL_ERR_PEER_REFUSED);
    body.bytes[100] = 'a';
    body.count -= 2;
    assert_int_equal(decode(&body, false, &first, 4096, &decoded, checksum), SHOAL_ERR_FORMAT);
    http_text_free(&body);
}

static void published_trailers(void **state)
{
    (void)state;
    struct http_signature first =
        seed("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
    struct http_text body = {0};
    char checksum[32];
    size_t decoded;
    chunk_put(&body, 65536, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2");
    chunk_put(&body, 1024, "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7");
    chunk_put(&body, 0, "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992");
    http_text_put(&body,
                  "x-amz-checksum-crc32c:sOO8/Q==\r\n"
                  "x-amz-trailer-signature:"
                  "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n");
    for (size_t step = 1; step < 100000; step = step * 9 + 1) {
        assert_int_equal(decode(&body, true, &first, step, &decoded, checksum), SHOAL_OK);
        assert_string_equal(checksum, "sOO8/Q==");
    }
    *strstr(body.bytes, "sOO8") = 't';
    assert_int_equal(decode(&body, true, &first, 4096, &decoded, checksum), SHOAL_ERR_PEER_REFUSED);
    http_text_free(&body);
}

static enum http_verdict read_header(const char *authorization, const char *date)
{
    struct http_pair headers[] = {{"authorization", authorization}, {"x-amz-date", date}};
    struct http_pairs query = {0}, pairs = {headers, 2, NULL};
    struct http_message message = {"GET", "/", &query, &pairs};
    struct http_signature signature;
    return http_signature_read(&message, &signature);
}

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DAY "20261120T000000Z"

static void malformed_headers_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 ",
        "AWS4-ECDSA-P256-SHA256 Credential=A/20261120/r/s3/aws4_request, SignedHeaders=host, "
        "Signature=" HEX,
        "AWS4-HMAC-SHA256 Credential=A/20261120/r/s3, SignedHeaders=host, Signature=" HEX,
        "AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/aws4_request/x, SignedHeaders=host, "
        "Signature=" HEX,
        "AWS4-HMAC-SHA256 Credential=A/20261121/r/s3/aws4_request, SignedHeaders=host, "
        "Signature=" HEX,
        "AWS4-HMAC-SHA256 Credential=/20261120/r/s3/aws4_request, SignedHeaders=host, "
        "Signature=" HEX,
        "AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/aws4_request, SignedHeaders=Host, "
        "Signature=" HEX,
        "AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/aws4_request, SignedHeaders=, Signature=" HEX,
        "AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/aws4_request, Signature=" HEX,
        "AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/aws4_request, SignedHeaders=host, "
        "Signature=abc",
        "AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/aws4_request, SignedHeaders=host",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(read_header(wrong[i], DAY), HTTP_MALFORMED);
    static const char right[] = "AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/aws4_request,"
                                "SignedHeaders=host,Signature=" HEX;
    assert_int_equal(read_header(right, DAY), HTTP_ACCEPTED);
    assert_int_equal(read_header(right, "20261120T0000Z"), HTTP_MALFORMED);
    assert_int_equal(read_header(right, "2026-11-20T00:00"), HTTP_MALFORMED);
}

static void times_and_headers_are_checked(void **state)
{
    (void)state;
    struct http_signature signature = {.time_s = 10000, .signed_headers = "host;x-amz-date"};
    assert_int_equal(http_signature_check_time(&signature, 10900), HTTP_ACCEPTED);
    assert_int_equal(http_signature_check_time(&signature, 10901), HTTP_SKEWED);
    assert_int_equal(http_signature_check_time(&signature, 9100), HTTP_ACCEPTED);
    assert_int_equal(http_signature_check_time(&signature, 9099), HTTP_SKEWED);
    struct http_pair headers[] = {{"Host", "h"}, {"X-Amz-Date", "d"}, {"X-Amz-Copy-Source", "s"}};
    struct http_pairs query = {0}, pairs = {headers, 2, NULL};
    struct http_message message = {"GET", "/", &query, &pairs};
    assert_int_equal(http_signature_check_headers(&message, &signature), HTTP_ACCEPTED);
    pairs.count = 3;
    assert_int_equal(http_signature_check_headers(&message, &signature), HTTP_HEADER_UNSIGNED);
    snprintf(signature.signed_headers, 16, "x-amz-date");
    pairs.count = 2;
    assert_int_equal(http_signature_check_headers(&message, &signature), HTTP_HEADER_UNSIGNED);
}

/* Random changes of right headers, queries and bodies: answers of any kind, never a fault. */
/* An Authorization header, a presigned URL of version 4 or 2. */
static void take_any_signature(void *user, char *text, size_t count, uint64_t round)
{
    bool is_header = round % 3 == 0;
    struct http_pairs query = {0};
    struct http_pair headers[] = {{"authorization", text}, {"x-amz-date", DAY}};
    struct http_pairs pairs = {headers, is_header ? 2 : 0, NULL};
    struct http_message message = {"GET", "/a", &query, &pairs};
    struct http_signature signature;
    enum http_verdict verdict = HTTP_VERDICT_COUNT;
    (void)user;
    if (!is_header && http_pairs_parse(text, count, 20, &query) != SHOAL_OK)
        return;
    if (http_signature_read(&message, &signature) == HTTP_ACCEPTED) {
        http_signature_check_time(&signature, S3_TIME);
        http_signature_check_headers(&message, &signature);
        if (http_signature_check(&message, &signature, "secret", "x", &verdict) == SHOAL_OK)
            assert_int_equal(verdict, HTTP_WRONG_SIGNATURE);
    }
    http_pairs_free(&query);
}

static void readers_survive_anything(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/aws4_request, "
                  "SignedHeaders=host;x-amz-date, Signature=" HEX),
        FUZZ_TEXT("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=A%2F20261120%2Fr%2Fs3%2F"
                  "aws4_request&X-Amz-Date=20261120T000000Z&X-Amz-Expires=60"
                  "&X-Amz-SignedHeaders=host&X-Amz-Signature=" HEX),
        FUZZ_TEXT("AWSAccessKeyId=A&Expires=1800000000&Signature=0123456789012345678901234567"
                  "&response-content-type=a%2Fb&acl")};
    static const char *const words[] = {
        "aws4_request", "Signature=", "SignedHeaders=host", "Credential=", "X-Amz-Date=",
        "Expires=",     NULL};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_string = true, .is_alone = true);
    fuzz_run(&fuzz, take_any_signature, NULL);
}

/* Fed in pieces, whose ends are anywhere. */
static void take_any_chunks(void *user, char *text, size_t count, uint64_t round)
{
    const struct http_signature first = seed(HEX);
    struct http_chunk_signer signer;
    struct http_chunked *chunked;
    size_t decoded = 0;
    struct http_chunked_sink sink = {count_bytes, &decoded};
    struct http_chunked_options options = {.is_signed = round % 2 == 0,
                                           .has_trailers = round % 3 > 0,
                                           .signer = round % 4 == 0 ? &signer : NULL,
                                           .announced = (int64_t)(round % 5) * 5 - 5};
    (void)user;
    if (http_chunk_signer_begin(&first, s3_key.secret, &signer) != SHOAL_OK ||
        http_chunked_create(&options, &chunked) != SHOAL_OK)
        return;
    enum shoal_status status = SHOAL_OK;
    for (size_t at = 0, piece; at < count && status == SHOAL_OK; at += piece) {
        piece = 1 + (size_t)fuzz_below(&round, count - at);
        status = http_chunked_feed(chunked, text + at, piece, &sink);
    }
    if (status == SHOAL_OK && http_chunked_finish(chunked) == SHOAL_OK)
        assert_int_equal(http_chunked_bytes(chunked), decoded);
    http_chunked_trailer(chunked, "x-amz-a");
    http_chunked_free(chunked);
}

static void decoders_survive_anything(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("5;chunk-signature=" HEX "\r\nhello\r\n0;chunk-signature=" HEX
                  "\r\nx-amz-a:b\r\nx-amz-trailer-signature:" HEX "\r\n\r\n"),
        FUZZ_TEXT("5\r\nhello\r\n0\r\nx-amz-a:b\r\nx-amz-c : d\r\n\r\n")};
    static const char *const words[] = {
        "\r\n", ";chunk-signature=", "x-amz-a:", "0\r\n", "ffffffffffffffff", "7fffffffffffff",
        NULL};
    struct fuzz fuzz = FUZZ(texts, words, 3000, .bytes_max = 6000, .is_alone = true);
    fuzz_run(&fuzz, take_any_chunks, NULL);
}

static void nothing_is_kept(void **state)
{
    (void)state;
    assert_int_equal(base_memory_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_examples),
        cmocka_unit_test(published_presigned_url),
        cmocka_unit_test(published_chunks),
        cmocka_unit_test(published_trailers),
        cmocka_unit_test(malformed_headers_are_refused),
        cmocka_unit_test(times_and_headers_are_checked),
        cmocka_unit_test(readers_survive_anything),
        cmocka_unit_test(decoders_survive_anything),
        cmocka_unit_test(nothing_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
