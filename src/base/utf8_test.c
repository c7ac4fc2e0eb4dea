/* SPDX-License-Identifier: Apache-2.0 */
/* utf8_test.c: every code point, and all that is none. */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static size_t encode(uint32_t point, char out[4])
{
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t count = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = count - 1; i > 0; i--, point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)(leads[count] | point);
    return count;
}

static void every_point_has_its_length(void **state)
{
    (void)state;
    for (uint32_t point = 0; point < 0x1fffff; point++) {
        char text[4];
        size_t count = encode(point, text);
        bool is_one = point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
        if (base_utf8_bytes(text, count) != (is_one ? count : 0))
            fail_msg("U+%04X", (unsigned)point);
        if (count > 1 && base_utf8_bytes(text, count - 1) != 0)
            fail_msg("U+%04X, cut", (unsigned)point);
    }
}

static void what_is_none_is_told(void **state)
{
    (void)state;
    static const char *const none[] = {"\x80",         "\xc0\x80",         "\xc1\xbf",
                                       "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xe2\x82 ",
                                       "\xc3\xc3",     "\xf8\x88\x80\x80", "\xff"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_int_equal(base_utf8_bytes(none[i], strlen(none[i])), 0);
    assert_int_equal(base_utf8_bytes("\xc3\xa4z", 3), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_point_has_its_length),
        cmocka_unit_test(what_is_none_is_told),
    };
    return cmocka_run_group_tests_name("base utf8", tests, NULL, NULL);
}
