/* SPDX-License-Identifier: Apache-2.0 */
/* store_list_test.c: pages of lists against a plain walk over all keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "s3/store_fixture.h"

/* In the order of their bytes. */
static const char *const keys[] = {
    "A",    "a",    "a/", "a/b",   "a/b/c", "a/b/d", "a/c",    "a0",       "b/..",
    "b//x", "b//y", "c",  "d/e/f", "d/e/g", "d/h",   "~tilde", "\xc3\xa9", "\xf0\x9f\x90\xa0"};
#define KEY_COUNT (sizeof(keys) / sizeof(keys[0]))

static void keys_put(struct s3_store *store)
{
    assert_int_equal(bucket_make(store, "bkt"), S3_OK);
    assert_int_equal(bucket_make(store, "bkt2"), S3_OK);
    for (size_t i = KEY_COUNT; i > 0; i--)
        assert_int_equal(put_text(store, "bkt", keys[i - 1], keys[i - 1]), S3_OK);
    assert_int_equal(put_text(store, "bkt2", "a", "other bucket"), S3_OK);
}

/* What a list must be, one in a line: the plain way. */
static void expected_write(const char *prefix, const char *delimiter, char *out, size_t room)
{
    char last[64] = "";
    *out = '\0';
    for (size_t i = 0; i < KEY_COUNT; i++) {
        char entry[64];
        if (strncmp(keys[i], prefix, strlen(prefix)) != 0)
            continue;
        snprintf(entry, sizeof(entry), "%s\n", keys[i]);
        const char *found = *delimiter != '\0' ? strstr(keys[i] + strlen(prefix), delimiter) : NULL;
        if (found != NULL)
            snprintf(entry, sizeof(entry), "%.*s*\n",
                     (int)(found - keys[i]) + (int)strlen(delimiter), keys[i]);
        if (strcmp(entry, last) != 0)
            snprintf(out + strlen(out), room - strlen(out), "%s", entry);
        snprintf(last, sizeof(last), "%s", entry);
    }
}

static void pages_write(struct s3_store *store, const char *prefix, const char *delimiter,
                        int limit, char *out, size_t room)
{
    char after[S3_KEY_BYTES_MAX + 1] = "";
    *out = '\0';
    for (bool is_over = false; !is_over;) {
        struct s3_list page;
        struct s3_list_options options = {.bucket = "bkt",
                                          .prefix = prefix,
                                          .delimiter = delimiter,
                                          .after = after[0] != '\0' ? after : NULL,
                                          .limit = limit};
        assert_int_equal(s3_list(store, &options, &page), S3_OK);
        assert_true(page.count <= limit);
        assert_true(!page.is_truncated || page.count == limit);
        for (int i = 0; i < page.count; i++) {
            const struct s3_list_entry *entry = &page.entries[i];
            if (!entry->is_prefix)
                assert_int_equal(entry->bytes, strlen(entry->key));
            snprintf(out + strlen(out), room - strlen(out), "%s%s\n", entry->key,
                     entry->is_prefix ? "*" : "");
        }
        is_over = !page.is_truncated;
        if (page.count > 0)
            snprintf(after, sizeof(after), "%s", page.entries[page.count - 1].key);
        s3_list_release(&page);
    }
}

static void pages_of_any_size_are_the_whole(void **state)
{
    struct s3_store *store = ((struct fixture *)*state)->store;
    static const char *const prefixes[] = {"",   "a",   "a/", "a/b", "a/b/",
                                           "b/", "b//", "d",  "x",   "~"};
    static const char *const delimiters[] = {"", "/", "//", "/b", "e"};
    char expected[1024], seen[1024];
    keys_put(store);
    for (size_t p = 0; p < sizeof(prefixes) / sizeof(prefixes[0]); p++)
        for (size_t d = 0; d < sizeof(delimiters) / sizeof(delimiters[0]); d++)
            for (int limit = 1; limit<20; limit += limit> 4 ? 7 : 1) {
                expected_write(prefixes[p], delimiters[d], expected, sizeof(expected));
                pages_write(store, prefixes[p], delimiters[d], limit, seen, sizeof(seen));
                assert_string_equal(seen, expected);
            }
}

static void ends_of_what_can_be_asked(void **state)
{
    struct s3_store *store = ((struct fixture *)*state)->store;
    struct s3_list page;
    struct s3_list_options options = {.bucket = "bkt", .limit = 0};
    assert_int_equal(s3_list(store, &options, &page), S3_NO_SUCH_BUCKET);
    keys_put(store);
    assert_int_equal(s3_list(store, &options, &page), S3_OK);
    assert_int_equal(page.count, 0);
    assert_false(page.is_truncated);
    s3_list_release(&page);
    options.limit = 5;
    options.after = "zzz";
    assert_int_equal(s3_list(store, &options, &page), S3_OK);
    assert_int_equal(page.count, 3);
    s3_list_release(&page);
    char long_text[1100];
    memset(long_text, 'a', sizeof(long_text));
    long_text[sizeof(long_text) - 1] = '\0';
    options.prefix = long_text;
    assert_int_equal(s3_list(store, &options, &page), S3_KEY_TOO_LONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pages_of_any_size_are_the_whole, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(ends_of_what_can_be_asked, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests_name("s3 list", tests, NULL, NULL);
}
