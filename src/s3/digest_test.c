/* SPDX-License-Identifier: Apache-2.0 */
/* digest_test.c: check values as published, pieces as wholes, names, conditions and ranges. */
#include "s3/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "s3/condition.h"
#include "s3/crc.h"
#include "s3/name.h"
#include "s3/query.h"
#include "support/fuzz.h"

/* The checks of "123456789" that the catalogues of these polynomials give. */
static void checks_are_the_published_ones(void **state)
{
    (void)state;
    assert_int_equal(s3_crc_add(S3_CRC_32, 0, "123456789", 9), 0xcbf43926);
    assert_int_equal(s3_crc_add(S3_CRC_32C, 0, "123456789", 9), 0xe3069283);
    assert_true(s3_crc_add(S3_CRC_64_NVME, 0, "123456789", 9) == UINT64_C(0xae8b14860a799888));
}

static void pieces_combine_to_the_whole(void **state)
{
    (void)state;
    unsigned char data[3000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * i / 7 + i);
    for (int kind = 0; kind < S3_CRC_COUNT; kind++) {
        uint64_t whole = s3_crc_add((enum s3_crc)kind, 0, data, sizeof(data));
        for (size_t cut = 0; cut <= sizeof(data); cut += 37) {
            uint64_t first = s3_crc_add((enum s3_crc)kind, 0, data, cut);
            uint64_t second = s3_crc_add((enum s3_crc)kind, 0, data + cut, sizeof(data) - cut);
            assert_true(whole ==
                        s3_crc_add((enum s3_crc)kind, first, data + cut, sizeof(data) - cut));
            assert_true(whole ==
                        s3_crc_combine((enum s3_crc)kind, first, second, sizeof(data) - cut));
        }
    }
}

/* Long pieces are folded, single bytes go by the tables. */
static void all_lengths_have_one_check(void **state)
{
    (void)state;
    unsigned char data[1700];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * i / 3 + 7 * i);
    for (int kind = 0; kind < S3_CRC_COUNT; kind++)
        for (size_t first = 0; first < 3; first++) {
            uint64_t check = 5;
            for (size_t bytes = 0; first + bytes < sizeof(data); bytes++) {
                assert_true(check == s3_crc_add((enum s3_crc)kind, 5, data + first, bytes));
                check = s3_crc_add((enum s3_crc)kind, check, data + first + bytes, 1);
            }
        }
}

static void digests_have_their_texts(void **state)
{
    (void)state;
    struct s3_digest_result result;
    char text[64];
    assert_int_equal(s3_digest_of(S3_SHA1, "abc", 3, &result), S3_OK);
    s3_hex(result.checksum, 20, text);
    assert_string_equal(text, "a9993e364706816aba3e25717850c26c9cd0d89d");
    s3_hex(result.md5, 16, text);
    assert_string_equal(text, "900150983cd24fb0d6963f7d28e17f72");
    assert_int_equal(s3_digest_of(S3_CRC64NVME, "123456789", 9, &result), S3_OK);
    s3_base64(result.checksum, 8, text);
    assert_string_equal(text, "rosUhgp5mIg=");
    unsigned char bytes[8];
    assert_true(s3_unbase64(text, bytes, 8));
    assert_memory_equal(bytes, result.checksum, 8);
    assert_false(s3_unbase64("rosUhgp5mIh=", bytes, 8));
    assert_false(s3_unbase64("rosUhgp5mI==", bytes, 8));
    assert_false(s3_unbase64("ros", bytes, 8));
    assert_false(s3_unhex("12zz", bytes, 2));
}

static void names_of_buckets(void **state)
{
    (void)state;
    static const char *const good[] = {
        "abc",       "a.b-c", "1.2.3",
        "my-bucket", "0ab",   "a23456789012345678901234567890123456789012345678901234567890123"};
    static const char *const bad[] = {
        "",      "ab",          "Abc",
        "a_b",   "a..b",        "-ab",
        "ab-",   "a.-b",        "1.2.3.4",
        "xn--a", "abc-s3alias", "a/b",
        "..",    "a b",         "a234567890123456789012345678901234567890123456789012345678901234"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_equal(s3_bucket_name_check(good[i]), S3_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(s3_bucket_name_check(bad[i]), S3_INVALID_BUCKET_NAME);
}

static void keys_that_can_be_paths(void **state)
{
    (void)state;
    static const char *const bad[] = {"/a", "a//b", "..", "a/../b", ".", "a/.", "a//", "/", "a/.."};
    bool is_directory;
    assert_int_equal(s3_key_path_check("a/b..c/...", &is_directory), S3_OK);
    assert_false(is_directory);
    assert_int_equal(s3_key_path_check("a/b/", &is_directory), S3_OK);
    assert_true(is_directory);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(s3_key_path_check(bad[i], &is_directory), S3_INVALID_ARGUMENT);
    assert_true(s3_is_utf8("h\xc3\xa9\xf0\x9f\x90\xa0", 7));
    assert_false(s3_is_utf8("\xc0\x80", 2));
    assert_false(s3_is_utf8("\xed\xa0\x80", 3));
    assert_false(s3_is_utf8("\xf4\x90\x80\x80", 4));
    assert_false(s3_is_utf8("\xc3", 1));
}

static void conditions_are_asked_in_order(void **state)
{
    (void)state;
    const char *etag = "abc";
    struct s3_conditions none = {0};
    assert_int_equal(s3_conditions_check(&none, etag, 5000), S3_OK);
    struct s3_conditions match = {.match = "\"x\", \"abc\"", .unmodified_since_s = 1};
    assert_int_equal(s3_conditions_check(&match, etag, 5000), S3_OK);
    struct s3_conditions other = {.match = "\"x\""};
    assert_int_equal(s3_conditions_check(&other, etag, 5000), S3_PRECONDITION_FAILED);
    struct s3_conditions old = {.unmodified_since_s = 4};
    assert_int_equal(s3_conditions_check(&old, etag, 5000), S3_PRECONDITION_FAILED);
    struct s3_conditions same = {.none_match = "W/\"abc\""};
    assert_int_equal(s3_conditions_check(&same, etag, 5000), S3_NOT_MODIFIED);
    struct s3_conditions since = {.modified_since_s = 5};
    assert_int_equal(s3_conditions_check(&since, etag, 5999), S3_NOT_MODIFIED);
    struct s3_conditions newer = {.none_match = "abcd", .modified_since_s = 9};
    assert_int_equal(s3_conditions_check(&newer, etag, 5000), S3_OK);
}

static void range_is(const char *text, int64_t bytes, bool is_part, int64_t first, int64_t count)
{
    struct s3_range range;
    assert_int_equal(s3_range_of(text, bytes, &range), S3_OK);
    assert_int_equal(range.is_part, is_part);
    assert_int_equal(range.first, first);
    assert_int_equal(range.count, count);
}

static void ranges(void **state)
{
    (void)state;
    struct s3_range range;
    range_is(NULL, 10, false, 0, 10);
    range_is("bytes=0-3", 10, true, 0, 4);
    range_is("bytes=4-", 10, true, 4, 6);
    range_is("bytes=-3", 10, true, 7, 3);
    range_is("bytes=-30", 10, true, 0, 10);
    range_is("bytes=9-99", 10, true, 9, 1);
    range_is("bytes=3-2", 10, false, 0, 10);
    range_is("bytes=1-2,4-5", 10, false, 0, 10);
    range_is("lines=1-2", 10, false, 0, 10);
    range_is("bytes=-", 10, false, 0, 10);
    range_is("bytes=99999999999999999999-", 10, false, 0, 10);
    assert_int_equal(s3_range_of("bytes=10-", 10, &range), S3_INVALID_RANGE);
    assert_int_equal(s3_range_of("bytes=0-", 0, &range), S3_INVALID_RANGE);
    assert_int_equal(s3_range_of("bytes=-0", 10, &range), S3_INVALID_RANGE);
}

/* What headers, paths and queries say in a few letters. */
static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    int64_t bytes = (int64_t)fuzz_below(&round, 20);
    struct s3_conditions conditions = {.match = text, .none_match = bytes % 2 ? text : NULL};
    struct s3_range range;
    unsigned char out[S3_CHECKSUM_BYTES_MAX];
    char again[2 * S3_CHECKSUM_BYTES_MAX + 1];
    bool is_directory, is_broken = false;
    enum s3_algorithm algorithm;
    char *at = text, *key, *value;
    (void)user;
    if (s3_range_of(text, bytes, &range) == S3_OK)
        assert_true(range.first >= 0 && range.count >= 0 && range.first + range.count <= bytes);
    s3_conditions_check(&conditions, "abc", 5000);
    s3_conditions_check_write(&conditions, "abc");
    s3_algorithm_of(text, &algorithm);
    if (s3_bucket_name_check(text) == S3_OK)
        assert_in_range(count, 3, S3_BUCKET_NAME_MAX);
    if (s3_key_check(text) == S3_OK)
        assert_true(count <= S3_KEY_BYTES_MAX && s3_is_utf8(text, count));
    if (s3_key_path_check(text, &is_directory) == S3_OK)
        assert_null(strstr(text, "//"));
    if (s3_unbase64(text, out, 8)) {
        s3_base64(out, 8, again);
        assert_string_equal(again, text);
    }
    s3_unhex(text, out, count / 2 < sizeof(out) ? count / 2 : sizeof(out));
    while (!is_broken && s3_query_next(&at, &key, &value, &is_broken)) {}
}

static void texts_of_any_bytes(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("bytes=0-3"),       FUZZ_TEXT("\"x\", W/\"abc\""),
        FUZZ_TEXT("rosUhgp5mIg="),    FUZZ_TEXT("my-bucket.a1"),
        FUZZ_TEXT("a/b..c/./d/"),     FUZZ_TEXT("a=b%20c&d=%C3%A9+e"),
        FUZZ_TEXT("0123456789abcdef")};
    static const char *const words[] = {"bytes=", "-",    ",",        "*", "\"abc\"", "W/",
                                        "%2",     "xn--", "-s3alias", "=", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_string = true, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks_are_the_published_ones),
        cmocka_unit_test(pieces_combine_to_the_whole),
        cmocka_unit_test(all_lengths_have_one_check),
        cmocka_unit_test(digests_have_their_texts),
        cmocka_unit_test(names_of_buckets),
        cmocka_unit_test(keys_that_can_be_paths),
        cmocka_unit_test(conditions_are_asked_in_order),
        cmocka_unit_test(ranges),
        cmocka_unit_test(texts_of_any_bytes),
    };
    return cmocka_run_group_tests_name("s3 digest", tests, NULL, NULL);
}
