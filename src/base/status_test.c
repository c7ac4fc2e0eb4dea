/* SPDX-License-Identifier: Apache-2.0 */
/* status_test.c: error texts, per thread, cut at their limit; clock and deadlines. */
#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

static enum shoal_status inner(void)
{
    return base_error(SHOAL_ERR_SYSTEM, "the disk is full");
}

static enum shoal_status outer(void)
{
    TRY(inner());
    return SHOAL_OK;
}

static void texts_travel_with_the_status(void **state)
{
    (void)state;
    base_error_clear();
    assert_string_equal(base_error_text(), "");
    assert_int_equal(outer(), SHOAL_ERR_SYSTEM);
    assert_string_equal(base_error_text(), "the disk is full");
    assert_int_equal(base_error_context(SHOAL_ERR_SYSTEM, "rank %d", 3), SHOAL_ERR_SYSTEM);
    assert_string_equal(base_error_text(), "rank 3: the disk is full");
    assert_int_equal(base_error_errno(SHOAL_ERR_MEMORY, ENOENT, "open %s", "x"), SHOAL_ERR_MEMORY);
    assert_string_equal(base_error_text(), "open x: No such file or directory");
}

static void a_text_may_contain_the_one_before(void **state)
{
    (void)state;
    base_error(SHOAL_ERR_SYSTEM, "first");
    base_error(SHOAL_ERR_SYSTEM, "%s, then second", base_error_text());
    assert_string_equal(base_error_text(), "first, then second");
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    char text[3 * BASE_ERROR_TEXT_BYTES];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    base_error(SHOAL_ERR_SYSTEM, "%s", text);
    assert_int_equal(strlen(base_error_text()), BASE_ERROR_TEXT_BYTES - 1);
    base_error_context(SHOAL_ERR_SYSTEM, "who");
    assert_int_equal(strlen(base_error_text()), BASE_ERROR_TEXT_BYTES - 1);
    assert_int_equal(strncmp(base_error_text(), "who: xxx", 8), 0);
    base_error_errno(SHOAL_ERR_SYSTEM, ENOENT, "%s", text);
    assert_int_equal(strlen(base_error_text()), BASE_ERROR_TEXT_BYTES - 1);
}

static void *other_thread(void *argument)
{
    (void)argument;
    if (base_error_text()[0] != '\0')
        return (void *)1;
    base_error(SHOAL_ERR_SYSTEM, "of the other thread");
    return NULL;
}

static void each_thread_has_its_own_text(void **state)
{
    (void)state;
    pthread_t thread;
    void *result;
    base_error(SHOAL_ERR_SYSTEM, "of the first thread");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    assert_string_equal(base_error_text(), "of the first thread");
}

static void deadlines_do_not_wrap(void **state)
{
    (void)state;
    assert_int_equal(base_deadline_ns(-1), BASE_NO_DEADLINE);
    assert_int_equal(base_deadline_ns(INT64_MAX), BASE_NO_DEADLINE);
    assert_int_equal(base_left_ms(BASE_NO_DEADLINE), INT_MAX);
    assert_int_equal(base_left_ms(0), 0);
    assert_int_equal(base_left_ms(base_now_ns() - 1), 0);
    assert_in_range(base_left_ms(base_deadline_ns(60000)), 1, 60000);
    assert_int_equal(base_left_ms(base_now_ns() + INT64_C(3600) * 24 * 365 * BASE_NS_PER_S),
                     INT_MAX);
    int64_t before = base_now_ns();
    base_sleep_ms(3);
    base_sleep_ms(-5);
    assert_true(base_now_ns() - before >= 3 * BASE_NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_travel_with_the_status),
        cmocka_unit_test(a_text_may_contain_the_one_before),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(each_thread_has_its_own_text),
        cmocka_unit_test(deadlines_do_not_wrap),
    };
    return cmocka_run_group_tests_name("base status", tests, NULL, NULL);
}
