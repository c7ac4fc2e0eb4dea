/* SPDX-License-Identifier: Apache-2.0 */
/* start_text_test.c: values in the forms that Python programs print; expected texts are Python's.
 */
#include "job/start_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"

struct form {
    const char *json, *variable, *argument;
};

static const struct form forms[] = {
    {"0.1", "0.1", "0.1"},
    {"1e-5", "1e-05", "1e-05"},
    {"0.0001", "0.0001", "0.0001"},
    {"0.00012345", "0.00012345", "0.00012345"},
    {"1e5", "100000.0", "100000.0"},
    {"1.5e300", "1.5e+300", "1.5e+300"},
    {"1e16", "1e+16", "1e+16"},
    {"123456789012345.6", "123456789012345.6", "123456789012345.6"},
    {"9007199254740993.0", "9007199254740992.0", "9007199254740992.0"},
    {"-0.0", "-0.0", "-0.0"},
    {"3", "3", "3"},
    {"-42", "-42", "-42"},
    {"true", "true", "True"},
    {"null", "", ""},
    {"\"a b\"", "a b", "a b"},
    {"\"\\u00e9\"", "\xC3\xA9", "\xC3\xA9"},
    {"[1, 2.5, \"x\", null, false]", "[1,2.5,\"x\",null,false]", "[1, 2.5, 'x', None, False]"},
    {"[\"it's\", \"\\\"\", \"\\n\"]", "[\"it's\",\"\\\"\",\"\\n\"]", "[\"it's\", '\"', '\\n']"},
    {"{\"b\": 1, \"a\": [\"x\"]}", "{\"a\":[\"x\"],\"b\":1}", "a=['x'],b=1"},
    {"{\"b\": {\"d\": 1, \"c\": \"t\"}}", "{\"b\":{\"c\":\"t\",\"d\":1}}", "b={'c': 't', 'd': 1}"},
    {"[\"\\u00e9\"]", "[\"\\u00E9\"]", "['\xC3\xA9']"},
    {"{}", "{}", ""},
    {"[]", "[]", "[]"},
};

static void values_are_shown_as_python_shows_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        json_t *value = json_loads(forms[i].json, JSON_DECODE_ANY, NULL);
        char *text;
        assert_non_null(value);
        assert_int_equal(start_text_variable(value, &text), SHOAL_OK);
        assert_string_equal(text, forms[i].variable);
        base_free(text);
        assert_int_equal(start_text_argument(value, &text), SHOAL_OK);
        assert_string_equal(text, forms[i].argument);
        base_free(text);
        json_decref(value);
    }
}

static void texts_of_json_are_quoted(void **state)
{
    json_t *value = json_string("a\"b");
    char *text;
    (void)state;
    assert_int_equal(start_text_json(value, &text), SHOAL_OK);
    assert_string_equal(text, "\"a\\\"b\"");
    base_free(text);
    json_decref(value);
}

static void numbers_read_back_as_themselves(void **state)
{
    (void)state;
    srand(1);
    for (int i = 0; i < 20000; i++) {
        double mantissa = (double)rand() / RAND_MAX * 2 - 1;
        char power[32], *text;
        snprintf(power, sizeof(power), "%.17ge%d", mantissa, rand() % 600 - 300);
        json_t *value = json_real(strtod(power, NULL));
        assert_int_equal(start_text_json(value, &text), SHOAL_OK);
        assert_true(strtod(text, NULL) == json_real_value(value));
        base_free(text);
        json_decref(value);
    }
}

static void depth_is_bounded(void **state)
{
    json_t *value = json_array();
    char *text;
    (void)state;
    for (int i = 0; i < 100; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, value);
        value = outer;
    }
    assert_int_equal(start_text_json(value, &text), SHOAL_ERR_LIMIT);
    json_decref(value);
    assert_int_equal(base_memory_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_shown_as_python_shows_them),
        cmocka_unit_test(texts_of_json_are_quoted),
        cmocka_unit_test(numbers_read_back_as_themselves),
        cmocka_unit_test(depth_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
