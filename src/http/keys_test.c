/* SPDX-License-Identifier: Apache-2.0 */
/* keys_test.c: the file of keys: made once, read strictly, closed to others. Also names and values
 * of queries. */
#include "http/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/pairs.h"
#include "support/fuzz.h"

static void path_make(char path[64], const char *name)
{
    char folder[] = "/tmp/shoal-keys-XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(path, 64, "%s/%s", folder, name);
}

static void path_remove(char *path)
{
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

static void a_fresh_file_has_one_pair(void **state)
{
    (void)state;
    char path[64], id[HTTP_KEY_ID_BYTES], secret[HTTP_KEY_SECRET_BYTES];
    struct http_keys *keys;
    struct stat about;
    path_make(path, "keys");
    assert_int_equal(http_keys_make(path), SHOAL_OK);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(http_keys_load(path, &keys), SHOAL_OK);
    memcpy(id, http_keys_first(keys)->id, sizeof(id));
    memcpy(secret, http_keys_first(keys)->secret, sizeof(secret));
    assert_int_equal(strlen(id), 20);
    assert_int_equal(strlen(secret), 40);
    assert_string_equal(http_keys_first(keys)->name, "local");
    http_keys_free(keys);

    assert_int_equal(http_keys_make(path), SHOAL_OK);
    assert_int_equal(http_keys_load(path, &keys), SHOAL_OK);
    assert_string_equal(http_keys_find(keys, id)->secret, secret);
    http_keys_free(keys);

    chmod(path, 0640);
    assert_int_equal(http_keys_load(path, &keys), SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "chmod 600"));
    path_remove(path);
    assert_int_equal(http_keys_load(path, &keys), SHOAL_ERR_SYSTEM);
}

static void files_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "there is no key"},
        {"# nothing\n\n", "there is no key"},
        {"INVENTED\n", "f:1: the secret is missing"},
        {"\nINVENTED invented-secret name more\n", "f:2: a fourth word"},
        {"INVENTED short\n", "f:1: a secret is"},
        {"INVENTED? invented-secret\n", "f:1: a key is"},
        {"IN invented-secret\n", "f:1: a key is"},
        {"INVENTED invented-secret a/b\n", "f:1: a name is"},
        {"INVENTED invented-secret\nINVENTED invented-other\n", "f:2: this key stands"},
    };
    struct http_keys *keys;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(http_keys_parse("f", cases[i].text, strlen(cases[i].text), &keys),
                         SHOAL_ERR_FORMAT);
        assert_non_null(strstr(base_error_text(), cases[i].error));
        assert_null(strstr(base_error_text(), "invented-secret"));
    }
    assert_int_equal(http_keys_parse("f", "A\0B", 3, &keys), SHOAL_ERR_FORMAT);
    static const char right[] = "# two\nINVENTED-1\tinvented-secret\r\n\n"
                                "INVENTED-2 invented-other me # mine";
    assert_int_equal(http_keys_parse("f", right, sizeof(right) - 1, &keys), SHOAL_OK);
    assert_string_equal(http_keys_find(keys, "INVENTED-1")->name, "INVENTED-1");
    assert_string_equal(http_keys_find(keys, "INVENTED-2")->name, "me");
    assert_string_equal(http_keys_find(keys, "INVENTED-2")->secret, "invented-other");
    assert_null(http_keys_find(keys, "INVENTED-3"));
    http_keys_free(keys);
}

static void queries_are_decoded(void **state)
{
    (void)state;
    struct http_pairs pairs;
    static const char query[] = "a=1&b&=x&c=%20+%2B%c3%A9&&a=2&d=e=f";
    assert_int_equal(http_pairs_parse(query, sizeof(query) - 1, 20, &pairs), SHOAL_OK);
    assert_int_equal(pairs.count, 6);
    assert_string_equal(http_pairs_find(&pairs, "a"), "1");
    assert_string_equal(http_pairs_find(&pairs, "b"), "");
    assert_string_equal(http_pairs_find(&pairs, ""), "x");
    assert_string_equal(http_pairs_find(&pairs, "c"), "  +\xc3\xa9");
    assert_string_equal(http_pairs_find(&pairs, "d"), "e=f");
    assert_null(http_pairs_find(&pairs, "A"));
    assert_string_equal(http_pairs_find_header(&pairs, "A"), "1");
    http_pairs_free(&pairs);
    assert_int_equal(http_pairs_parse("", 0, 20, &pairs), SHOAL_OK);
    assert_int_equal(pairs.count, 0);
    static const char *const wrong[] = {"a=%", "a=%2", "a=%zz", "%00", "a=%4", "%4g=1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(http_pairs_parse(wrong[i], strlen(wrong[i]), 20, &pairs),
                         SHOAL_ERR_FORMAT);
    assert_int_equal(http_pairs_parse("a&b&c", 5, 2, &pairs), SHOAL_ERR_LIMIT);
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct http_pairs pairs;
    struct http_keys *keys;
    (void)user;
    (void)round;
    if (http_keys_parse("f", text, count, &keys) == SHOAL_OK) {
        assert_ptr_equal(http_keys_find(keys, http_keys_first(keys)->id), http_keys_first(keys));
        http_keys_free(keys);
    }
    if (http_pairs_parse(text, count, 20, &pairs) == SHOAL_OK) {
        assert_true(pairs.count <= 20);
        http_pairs_free(&pairs);
    }
}

static void readers_survive_anything(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("# KEY SECRET [NAME]\nAKIAEXAMPLE secret/of+it local\nAKIAOTHER other # x\n"),
        FUZZ_TEXT("prefix=J&max-keys=2&a=%20b+c&d&e=%C3%A9&=x&&delimiter=%2F")};
    static const char *const words[] = {"AKIAEXAMPLE", "%41", "+", "&", "=", "\n#", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_file_has_one_pair),
        cmocka_unit_test(files_are_read_strictly),
        cmocka_unit_test(queries_are_decoded),
        cmocka_unit_test(readers_survive_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
