/* SPDX-License-Identifier: Apache-2.0 */
/* message_test.c: frames and their fields survive any cutting; broken ones are refused. */
#include "launch/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "support/fuzz.h"

static void texts_come_back(void **state)
{
    static const char *const texts[] = {"one", "", "three words here"};
    struct launch_bytes bytes = {0};
    const char **back = NULL;
    int count = 0;
    uint32_t number = 0;
    (void)state;
    assert_int_equal(launch_put_texts(&bytes, texts, 3), SHOAL_OK);
    assert_int_equal(launch_put_number(&bytes, 0xfedcba98u), SHOAL_OK);
    struct launch_reader reader = {launch_bytes_front(&bytes), launch_bytes_count(&bytes)};
    assert_int_equal(launch_read_texts(&reader, &back, &count), SHOAL_OK);
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(back[i], texts[i]);
    assert_null(back[3]);
    assert_int_equal(launch_read_number(&reader, &number), SHOAL_OK);
    assert_true(number == 0xfedcba98u);
    assert_int_equal(reader.left, 0);
    base_free(back);
    launch_bytes_release(&bytes);
}

/* Every prefix of a list of texts is refused, without a leak. */
static void cut_texts_are_refused(void **state)
{
    static const char *const texts[] = {"one", "two"};
    struct launch_bytes bytes = {0};
    (void)state;
    assert_int_equal(launch_put_texts(&bytes, texts, 2), SHOAL_OK);
    for (size_t count = 0; count < launch_bytes_count(&bytes); count++) {
        struct launch_reader reader = {launch_bytes_front(&bytes), count};
        const char **back = NULL;
        int number = 0;
        assert_int_equal(launch_read_texts(&reader, &back, &number), SHOAL_ERR_FORMAT);
    }
    launch_bytes_release(&bytes);
    assert_int_equal(base_memory_blocks(), 0);
}

static void a_text_with_a_hole_is_refused(void **state)
{
    static const unsigned char raw[] = {3, 0, 0, 0, 'a', '\0', 'b', '\0'};
    struct launch_reader reader = {raw, sizeof(raw)};
    const char *text = NULL;
    (void)state;
    assert_int_equal(launch_read_text(&reader, &text), SHOAL_ERR_FORMAT);
}

static void frames_come_back_however_they_are_cut(void **state)
{
    struct launch_bytes sent = {0}, got = {0};
    unsigned seed = 11;
    int taken = 0;
    (void)state;
    for (int i = 0; i < 100; i++) {
        char payload[400];
        memset(payload, i, sizeof(payload));
        assert_int_equal(
            launch_message_put_raw(&sent, LAUNCH_OUTPUT, -i, (uint32_t)i, payload, (size_t)i * 4),
            SHOAL_OK);
    }
    while (taken < 100) {
        size_t count = 1 + (size_t)rand_r(&seed) % 300;
        count = count < launch_bytes_count(&sent) ? count : launch_bytes_count(&sent);
        assert_int_equal(launch_bytes_append(&got, launch_bytes_front(&sent), count), SHOAL_OK);
        launch_bytes_take(&sent, count);
        struct launch_message message;
        for (bool found = true; found;) {
            assert_int_equal(launch_message_take(&got, &message, &found), SHOAL_OK);
            if (!found)
                break;
            assert_int_equal(message.type, LAUNCH_OUTPUT);
            assert_int_equal(message.rank, -taken);
            assert_int_equal(message.value, taken);
            assert_int_equal(message.payload.left, taken * 4);
            for (size_t i = 0; i < message.payload.left; i++)
                assert_int_equal(message.payload.next[i], taken);
            taken++;
        }
    }
    assert_int_equal(launch_bytes_count(&got), 0);
    launch_bytes_release(&sent);
    launch_bytes_release(&got);
}

static void frames_of_another_kind_are_refused(void **state)
{
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        uint32_t type = bad == 0 ? 0 : bad == 1 ? LAUNCH_DONE + 1 : LAUNCH_OUTPUT;
        struct launch_bytes bytes = {0};
        struct launch_message message;
        bool found = false;
        assert_int_equal(launch_put_number(&bytes, type), SHOAL_OK);
        assert_int_equal(launch_put_number(&bytes, 0), SHOAL_OK);
        assert_int_equal(launch_put_number(&bytes, 0), SHOAL_OK);
        assert_int_equal(launch_put_number(&bytes, LAUNCH_PAYLOAD_BYTES_MAX + (bad == 2)),
                         SHOAL_OK);
        assert_int_equal(launch_message_take(&bytes, &message, &found), SHOAL_ERR_FORMAT);
        assert_false(found);
        launch_bytes_release(&bytes);
    }
}

static void a_failing_allocation_leaves_no_half_frame(void **state)
{
    char payload[10000] = "";
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct launch_bytes bytes = {0};
        base_memory_fail_at(nth);
        enum shoal_status status =
            launch_message_put_raw(&bytes, LAUNCH_OUTPUT, 0, 0, payload, sizeof(payload));
        base_memory_fail_at(0);
        size_t whole = 16 + sizeof(payload);
        assert_int_equal(launch_bytes_count(&bytes), status == SHOAL_OK ? whole : 0);
        assert_int_equal(status, nth == 1 ? SHOAL_ERR_MEMORY : SHOAL_OK);
        launch_bytes_release(&bytes);
    }
    assert_int_equal(base_memory_blocks(), 0);
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct launch_bytes bytes = {0};
    struct launch_message message;
    bool found = true;
    (void)user;
    (void)round;
    if (launch_bytes_append(&bytes, text, count) != SHOAL_OK)
        found = false;
    while (found && launch_message_take(&bytes, &message, &found) == SHOAL_OK && found) {
        const char **texts;
        const char *one;
        int text_count;
        uint32_t number;
        assert_in_range(message.type, LAUNCH_HELLO, LAUNCH_DONE);
        if (launch_read_text(&message.payload, &one) == SHOAL_OK)
            assert_true(strlen(one) < count);
        if (launch_read_texts(&message.payload, &texts, &text_count) == SHOAL_OK) {
            assert_null(texts[text_count]);
            base_free(texts);
        }
        if (launch_read_number(&message.payload, &number) == SHOAL_OK)
            assert_true(message.payload.left < count);
    }
    launch_bytes_release(&bytes);
}

/* Whatever comes through the pipe: messages within it, or an error. */
static void any_bytes_are_messages_or_refused(void **state)
{
    static const char *const back[] = {"one", "", "three words"};
    static const char *const words[] = {"\x01", "\x10", "\xff\xff\xff\xff", NULL};
    struct launch_bytes sent = {0}, payload = {0};
    (void)state;
    assert_int_equal(launch_put_text(&payload, "1.2.3"), SHOAL_OK);
    assert_int_equal(launch_put_texts(&payload, back, 3), SHOAL_OK);
    assert_int_equal(launch_put_number(&payload, 7), SHOAL_OK);
    assert_int_equal(launch_message_put(&sent, LAUNCH_SURVEY, 0, 1, &payload), SHOAL_OK);
    assert_int_equal(launch_message_put(&sent, LAUNCH_OUTPUT, 3, 2, &payload), SHOAL_OK);
    const struct fuzz_text texts[] = {
        {(const char *)launch_bytes_front(&sent), launch_bytes_count(&sent)}};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
    launch_bytes_release(&sent);
    launch_bytes_release(&payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(cut_texts_are_refused),
        cmocka_unit_test(a_text_with_a_hole_is_refused),
        cmocka_unit_test(frames_come_back_however_they_are_cut),
        cmocka_unit_test(frames_of_another_kind_are_refused),
        cmocka_unit_test(a_failing_allocation_leaves_no_half_frame),
        cmocka_unit_test(any_bytes_are_messages_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
