/* SPDX-License-Identifier: Apache-2.0 */
/* outside_test.c: lines about buckets elsewhere, right, wrong and of any bytes. */
#include "s3/outside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "support/fuzz.h"

static const char text[] =
    "# buckets of others\n\n"
    "archive https://s3.eu-west-3.amazonaws.com/ region=eu-west-3 profile=archive # old\n"
    "team-*\thttp://127.0.0.1:9000 style=path\r\n"
    "*.data http://example.com style=virtual";

static void the_first_line_that_fits_decides(void **state)
{
    (void)state;
    struct s3_outside *outside;
    struct s3_client *client;
    assert_int_equal(s3_outside_parse("f", text, strlen(text), &outside), SHOAL_OK);
    assert_true(s3_outside_has(outside, "archive"));
    assert_true(s3_outside_has(outside, "team-a"));
    assert_true(s3_outside_has(outside, "x.data"));
    assert_false(s3_outside_has(outside, "team"));
    assert_false(s3_outside_has(outside, "data"));
    setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "invented", 1);
    struct s3_client_options options = {.parallel = 2};
    assert_int_equal(s3_outside_client(outside, "team-b", options, &client), S3_OK);
    assert_string_equal(s3_client_url(client), "http://127.0.0.1:9000");
    s3_client_free(client);
    assert_int_equal(s3_outside_client(outside, "ours", options, &client), S3_NO_SUCH_BUCKET);
    s3_outside_free(outside);
    assert_int_equal(s3_outside_load("/nonexistent/outside.conf", &outside), SHOAL_OK);
    assert_false(s3_outside_has(outside, "archive"));
    s3_outside_free(outside);
}

static void wrong(const char *line, const char *why)
{
    struct s3_outside *outside;
    assert_int_equal(s3_outside_parse("f", line, strlen(line), &outside), SHOAL_ERR_FORMAT);
    if (strstr(base_error_text(), why) == NULL)
        fail_msg("no \"%s\" in: %s", why, base_error_text());
}

static void wrong_lines_are_named(void **state)
{
    (void)state;
    wrong("bucket", "f, line 1: a bucket without the address");
    wrong("\n\nbucket localhost:9000", "f, line 3: the address 'localhost:9000'");
    wrong("bucket http://a colour=red", "'colour=red' is none of");
    wrong("bucket http://a region=", "line 1");
}

static void take_any(void *user, char *changed, size_t count, uint64_t round)
{
    struct s3_outside *outside;
    (void)user;
    (void)round;
    if (s3_outside_parse("f", changed, count, &outside) != SHOAL_OK)
        return;
    s3_outside_has(outside, "archive");
    s3_outside_free(outside);
}

static void any_bytes(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {FUZZ_TEXT(text)};
    static const char *const words[] = {"style=path", "region=", "profile=", "http://",
                                        "team-*",     "[a-",     "?",        NULL};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_line_that_fits_decides),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(any_bytes),
    };
    return cmocka_run_group_tests_name("s3 outside", tests, NULL, NULL);
}
