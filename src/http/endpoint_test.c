/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint_test.c: where clients look for addresses and keys, and the files of the AWS tools. */
#include "http/endpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "http/home.h"
#include "http/profile.h"
#include "support/fuzz.h"

static const char *const variables[] = {"AWS_ENDPOINT_URL",      "AWS_ENDPOINT_URL_S3",
                                        "AWS_ACCESS_KEY_ID",     "AWS_REGION",
                                        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
                                        "AWS_DEFAULT_REGION",    "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_CONFIG_FILE",       "AWS_PROFILE",
                                        "XDG_DATA_HOME"};

static char folder[] = "/tmp/shoal-endpoint-XXXXXX";

static int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int folder_remove(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static int variables_clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    return setenv("HOME", folder, 1);
}

static void file_write(const char *name, const char *text, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static void found(const struct http_endpoint_wish *wish, struct http_endpoint *out)
{
    enum shoal_status status = http_endpoint_find(wish, out);
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static void test_the_order_of_addresses(void **state)
{
    (void)state;
    struct http_endpoint endpoint;
    struct http_endpoint_wish wish = {.service = "s3"};
    char path[128];
    assert_int_equal(http_endpoint_find(&wish, &endpoint), SHOAL_ERR_STATE);
    assert_non_null(strstr(base_error_text(), "shoal serve"));
    file_write("config", "[default]\nendpoint_url = http://four:4/\nregion = eu-west-3\n", path,
               sizeof(path));
    setenv("AWS_CONFIG_FILE", path, 1);
    found(&wish, &endpoint);
    assert_string_equal(endpoint.url, "http://four:4");
    assert_string_equal(endpoint.whence, path);
    assert_string_equal(endpoint.region, "eu-west-3");
    assert_string_equal(endpoint.key.id, "");
    setenv("AWS_ENDPOINT_URL", "http://three:3", 1);
    setenv("AWS_DEFAULT_REGION", "us-west-2", 1);
    found(&wish, &endpoint);
    assert_string_equal(endpoint.url, "http://three:3");
    assert_string_equal(endpoint.region, "us-west-2");
    setenv("AWS_ENDPOINT_URL_S3", "https://two", 1);
    setenv("AWS_REGION", "us-west-1", 1);
    found(&wish, &endpoint);
    assert_string_equal(endpoint.url, "https://two");
    assert_string_equal(endpoint.whence, "AWS_ENDPOINT_URL_S3");
    assert_string_equal(endpoint.region, "us-west-1");
    wish = (struct http_endpoint_wish){"sagemaker", "http://[::1]:1", NULL, NULL, "here"};
    found(&wish, &endpoint);
    assert_string_equal(endpoint.url, "http://[::1]:1");
    assert_string_equal(endpoint.region, "here");
    assert_true(http_endpoint_is_private(&endpoint));
}

static void test_the_order_of_keys(void **state)
{
    (void)state;
    struct http_endpoint endpoint;
    struct http_endpoint_wish wish = {.service = "s3", .url = "http://example.com"};
    char path[128];
    file_write("credentials",
               "[default]\naws_access_key_id=AKIAEXAMPLEFILE\naws_secret_access_key = a=b+c\n"
               "[other]\naws_access_key_id=AKIAEXAMPLEOTHER\naws_secret_access_key=secret\n"
               "aws_session_token = token\n[half]\naws_access_key_id=AKIAEXAMPLEHALF\n",
               path, sizeof(path));
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    found(&wish, &endpoint);
    assert_string_equal(endpoint.key.id, "AKIAEXAMPLEFILE");
    assert_string_equal(endpoint.key.secret, "a=b+c");
    assert_string_equal(endpoint.token, "");
    setenv("AWS_PROFILE", "other", 1);
    found(&wish, &endpoint);
    assert_string_equal(endpoint.key.id, "AKIAEXAMPLEOTHER");
    assert_string_equal(endpoint.token, "token");
    setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE", 1);
    assert_int_equal(http_endpoint_find(&wish, &endpoint), SHOAL_ERR_ARGUMENT);
    setenv("AWS_SECRET_ACCESS_KEY", "invented", 1);
    found(&wish, &endpoint);
    assert_string_equal(endpoint.key.id, "AKIAEXAMPLE");
    assert_false(http_endpoint_is_private(&endpoint));
    wish.profile = "half";
    assert_int_equal(http_endpoint_find(&wish, &endpoint), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "credentials"));
}

static void test_a_service_by_its_directory(void **state)
{
    (void)state;
    struct http_endpoint endpoint;
    struct http_home *home;
    char path[128], file[160];
    snprintf(path, sizeof(path), "%s/shoal", folder);
    snprintf(file, sizeof(file), "%s/keys", path);
    struct http_endpoint_wish wish = {.service = "s3", .dir = path};
    setenv("XDG_DATA_HOME", folder, 1);
    assert_int_equal(http_endpoint_find(&wish, &endpoint), SHOAL_ERR_STATE);
    assert_int_equal(http_home_open(path, &home), SHOAL_OK);
    assert_int_equal(http_keys_make(file), SHOAL_OK);
    assert_int_equal(http_home_announce(home, "0.0.0.0:81", HTTP_HOME_PLAIN), SHOAL_OK);
    found(&wish, &endpoint);
    assert_string_equal(endpoint.url, "http://127.0.0.1:81");
    assert_true(endpoint.key.id[0] != '\0');
    wish.dir = NULL; /* it is the default one */
    found(&wish, &endpoint);
    assert_string_equal(endpoint.url, "http://127.0.0.1:81");
    assert_true(endpoint.key.id[0] != '\0');
    wish.url = "http://127.0.0.1:82"; /* another one does not get its keys */
    found(&wish, &endpoint);
    assert_string_equal(endpoint.key.id, "");
    assert_int_equal(http_home_announce(home, "[::]:83", HTTP_HOME_TLS), SHOAL_OK);
    wish = (struct http_endpoint_wish){.service = "s3", .dir = path};
    found(&wish, &endpoint);
    assert_string_equal(endpoint.url, "https://127.0.0.1:83");
    assert_non_null(strstr(endpoint.authorities, "tls/authority.pem"));
    http_home_close(home);
}

static void test_addresses_that_are_wrong(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",          "localhost:1", "http://",      "ftp://a",
                                        "http:///a", "http://:80",  "http://a b",   "http://u@h",
                                        "http://a?", "http://a#b",  "http://a\r\nb"};
    struct http_endpoint endpoint = {0};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(http_endpoint_set_url(&endpoint, wrong[i], "a test"), SHOAL_ERR_ARGUMENT);
        assert_non_null(strstr(base_error_text(), "a test"));
    }
    static const char *const elsewhere[] = {"http://localhost.example.com",
                                            "http://127.0.0.1.example.com",
                                            "http://127.example.com",
                                            "http://[::2]",
                                            "http://[::1",
                                            "http://128.0.0.1"};
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
        assert_int_equal(http_endpoint_set_url(&endpoint, elsewhere[i], ""), SHOAL_OK);
        if (http_endpoint_is_private(&endpoint))
            fail_msg("%s is not this machine", elsewhere[i]);
    }
    assert_int_equal(http_endpoint_set_url(&endpoint, "http://127.1.2.3:80/a", ""), SHOAL_OK);
    assert_true(http_endpoint_is_here(&endpoint));
    assert_int_equal(http_endpoint_set_url(&endpoint, "http://localhost/base//", ""), SHOAL_OK);
    assert_true(http_endpoint_is_private(&endpoint));
    assert_string_equal(endpoint.url, "http://localhost/base");
}

static const char settings[] = "# comment\n[default]\r\nregion = us-east-1\r\n; another\n\n"
                               "[profile  my own]\nregion=eu-west-3\ns3 =\n  region = inner\n"
                               "empty =\n[default2]\nregion = x";

static void value_is(const char *section, const char *name, const char *expected)
{
    char value[32];
    assert_int_equal(
        http_profile_value("file", settings, strlen(settings), section, name, value, sizeof(value)),
        SHOAL_OK);
    assert_string_equal(value, expected);
}

static void test_settings(void **state)
{
    (void)state;
    char value[8];
    value_is("default", "region", "us-east-1");
    value_is("profile my own", "region", "eu-west-3");
    value_is("profile my own", "empty", "");
    value_is("profile my own", "s3", "");
    value_is("default2", "region", "x");
    value_is("none", "region", "");
    value_is("profile my", "region", "");
    assert_int_equal(http_profile_value("file", settings, strlen(settings), "default", "region",
                                        value, sizeof(value)),
                     SHOAL_ERR_LIMIT);
    assert_int_equal(http_profile_value("file", "a=1\nb\n", 6, "x", "y", value, sizeof(value)),
                     SHOAL_ERR_FORMAT);
    assert_non_null(strstr(base_error_text(), "file, line 2"));
    assert_int_equal(http_profile_value("file", "[a\n", 3, "x", "y", value, sizeof(value)),
                     SHOAL_ERR_FORMAT);
}

/* Any bytes are read within bounds: the values end, and never hold a line's end. */
static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    char value[16];
    (void)user;
    (void)round;
    if (http_profile_value("f", text, count, "default", "region", value, sizeof(value)) == SHOAL_OK)
        assert_null(strpbrk(value, "\n"));
}

static void test_settings_of_any_bytes(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {FUZZ_TEXT(settings)};
    static const char *const words[] = {"[default]\n", "region =", "[", "]", "\r", ";", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

static void take_any_url(void *user, char *text, size_t count, uint64_t round)
{
    struct http_endpoint endpoint = {0};
    (void)user;
    (void)count;
    (void)round;
    if (http_endpoint_set_url(&endpoint, text, "here") != SHOAL_OK)
        return;
    assert_in_range(strlen(endpoint.url), 8, HTTP_ENDPOINT_URL_BYTES - 1);
    assert_null(strpbrk(endpoint.url, " \r\n?#@"));
    if (http_endpoint_is_here(&endpoint))
        assert_true(http_endpoint_is_private(&endpoint));
}

static void test_addresses_of_any_bytes(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {FUZZ_TEXT("http://127.0.0.1:7800/"),
                                             FUZZ_TEXT("https://s3.eu-west-3.amazonaws.com"),
                                             FUZZ_TEXT("http://[::1]:80")};
    static const char *const words[] = {"http://", "https://", "[::1]", "localhost", ":",
                                        "/",       "@",        "?",     NULL};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_string = true, .is_alone = true);
    fuzz_run(&fuzz, take_any_url, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_order_of_addresses, variables_clear),
        cmocka_unit_test_setup(test_the_order_of_keys, variables_clear),
        cmocka_unit_test_setup(test_a_service_by_its_directory, variables_clear),
        cmocka_unit_test_setup(test_addresses_that_are_wrong, variables_clear),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_settings_of_any_bytes),
        cmocka_unit_test(test_addresses_of_any_bytes),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
