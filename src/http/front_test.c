/* SPDX-License-Identifier: Apache-2.0 */
/* front_test.c: first bytes of connections, right, wrong, in part, and changed at random. */
#include "http/front.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/fuzz.h"

static void first_bytes_tell_the_kind(void **state)
{
    (void)state;
    assert_int_equal(front_kind("", 0), FRONT_UNSURE);
    assert_int_equal(front_kind("\x16\x03\x01", 3), FRONT_TLS);
    assert_int_equal(front_kind("C", 1), FRONT_UNSURE);
    assert_int_equal(front_kind("CONNECT", 7), FRONT_UNSURE);
    assert_int_equal(front_kind("CONNECT a", 9), FRONT_CONNECT);
    assert_int_equal(front_kind("CONNECTED", 9), FRONT_PLAIN);
    assert_int_equal(front_kind("G", 1), FRONT_PLAIN);
    assert_int_equal(front_kind("\r\nCONNECT ", 10), FRONT_PLAIN);
}

static enum shoal_status read_head(const char *text, struct front_target *out, size_t *bytes)
{
    return front_connect_read(text, strlen(text), out, bytes);
}

static void connects_are_read(void **state)
{
    (void)state;
    struct front_target target;
    size_t bytes = 0;
    static const char whole[] =
        "CONNECT sts.us-east-1.amazonaws.com:443 HTTP/1.1\r\nHost: x\r\n\r\n\x16more";
    assert_int_equal(read_head(whole, &target, &bytes), SHOAL_OK);
    assert_string_equal(target.host, "sts.us-east-1.amazonaws.com");
    assert_int_equal(target.port, 443);
    assert_int_equal(bytes, strlen(whole) - 5);
    for (size_t cut = 8; cut < bytes; cut++)
        assert_int_equal(front_connect_read(whole, cut, &target, &bytes), SHOAL_IN_PROGRESS);
    static const char *const wrong[] = {
        "CONNECT  HTTP/1.1\r\n\r\n",
        "CONNECT a HTTP/1.1\r\n\r\n",
        "CONNECT a: HTTP/1.1\r\n\r\n",
        "CONNECT :443 HTTP/1.1\r\n\r\n",
        "CONNECT a:0 HTTP/1.1\r\n\r\n",
        "CONNECT a:65536 HTTP/1.1\r\n\r\n",
        "CONNECT a:000443 HTTP/1.1\r\n\r\n",
        "CONNECT a:+1 HTTP/1.1\r\n\r\n",
        "CONNECT a..b:443 HTTP/1.1\r\n\r\n",
        "CONNECT a/b:443 HTTP/1.1\r\n\r\n",
        "CONNECT a:443\r\n\r\n",
        "CONNECT a:443 HTTP/2\r\n\r\n",
        "CONNECT [::1]:443 HTTP/1.1\r\n\r\n",
        "CONNECT \r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (read_head(wrong[i], &target, &bytes) != SHOAL_ERR_FORMAT)
            fail_msg("taken: %s", wrong[i]);
    char large[FRONT_HEAD_BYTES_MAX];
    memset(large, 'x', sizeof(large));
    memcpy(large, whole, 52);
    assert_int_equal(front_connect_read(large, sizeof(large), &target, &bytes), SHOAL_ERR_FORMAT);
}

static bool serves(const char *host, int port)
{
    struct front_target target = {.port = port};
    snprintf(target.host, sizeof(target.host), "%s", host);
    return front_serves(&target);
}

static void only_the_sdk_s_hosts_are_served(void **state)
{
    (void)state;
    assert_true(serves("sts.us-east-1.amazonaws.com", 443));
    assert_true(serves("Bucket.S3.AmazonAWS.com", 443));
    assert_false(serves("sts.us-east-1.amazonaws.com", 80));
    assert_false(serves(".amazonaws.com", 443));
    assert_false(serves("amazonaws.com", 443));
    assert_false(serves("evilamazonaws.com", 443));
    assert_false(serves("sts.amazonaws.com.example.org", 443));
}

static void names_have_a_form(void **state)
{
    (void)state;
    char label[70];
    memset(label, 'a', sizeof(label));
    label[63] = '\0';
    assert_true(front_is_host_name(label));
    assert_true(front_is_host_name("a_b.c-d.0"));
    label[63] = 'a';
    label[64] = '\0';
    assert_false(front_is_host_name(label));
    assert_false(front_is_host_name(""));
    assert_false(front_is_host_name("a."));
    assert_false(front_is_host_name("a,DNS:b"));
}

/* Whatever comes, a target that is taken is one that can be named. */
static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct front_target target = {.port = -1};
    size_t bytes = 0;
    (void)user;
    (void)round;
    if (front_kind(text, count) != FRONT_CONNECT ||
        front_connect_read(text, count, &target, &bytes) != SHOAL_OK)
        return;
    assert_true(front_is_host_name(target.host));
    assert_in_range(target.port, 1, 65535);
    assert_in_range(bytes, 1, count);
    front_serves(&target);
}

static void anything_is_survived(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("CONNECT b.s3.amazonaws.com:443 HTTP/1.1\r\nHost: b\r\n\r\n"),
        FUZZ_TEXT("CONNECT a:1 HTTP/1.0\r\n\r\n\x16\x03\x01")};
    static const char *const words[] = {"CONNECT ", " HTTP/1.1", "\r\n\r\n", ":443", ".", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_bytes_tell_the_kind),
        cmocka_unit_test(connects_are_read),
        cmocka_unit_test(only_the_sdk_s_hosts_are_served),
        cmocka_unit_test(names_have_a_form),
        cmocka_unit_test(anything_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
