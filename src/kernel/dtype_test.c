/* SPDX-License-Identifier: Apache-2.0 */
/* dtype_test.c: sizes, names and the table of meanings, each written out here a second time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel.h"

/* One letter per op in the order of enum shoal_op: sum avg prod min max band bor bxor land lor lxor
 * premul_sum; x: has a meaning. */
static const struct {
    const char *name;
    size_t bytes;
    const char *meaning;
} expected[] = {
    [SHOAL_F64] = {"f64", 8, "xxxxx......x"},
    [SHOAL_F32] = {"f32", 4, "xxxxx......x"},
    [SHOAL_F16] = {"f16", 2, "xxxxx......x"},
    [SHOAL_BF16] = {"bf16", 2, "xxxxx......x"},
    [SHOAL_I8] = {"i8", 1, "xxxxxxxxxxxx"},
    [SHOAL_U8] = {"u8", 1, "xxxxxxxxxxxx"},
    [SHOAL_I16] = {"i16", 2, "xxxxxxxxxxxx"},
    [SHOAL_I32] = {"i32", 4, "xxxxxxxxxxxx"},
    [SHOAL_I64] = {"i64", 8, "xxxxxxxxxxxx"},
    [SHOAL_U16] = {"u16", 2, "xxxxxxxxxxxx"},
    [SHOAL_U32] = {"u32", 4, "xxxxxxxxxxxx"},
    [SHOAL_U64] = {"u64", 8, "xxxxxxxxxxxx"},
    [SHOAL_BOOL] = {"bool", 1, "x.xxxxxxxxx."},
    [SHOAL_COMPLEX64] = {"complex64", 8, "xxx........x"},
    [SHOAL_COMPLEX128] = {"complex128", 16, "xxx........x"},
};

static const char *const op_names[] = {"sum", "avg",  "prod", "min", "max",  "band",
                                       "bor", "bxor", "land", "lor", "lxor", "premul_sum"};

static void every_dtype_is_in_the_table(void **state)
{
    (void)state;
    assert_int_equal(sizeof expected / sizeof *expected, SHOAL_DTYPE_COUNT);
    for (int i = 0; i < SHOAL_DTYPE_COUNT; i++) {
        enum shoal_dtype dtype = (enum shoal_dtype)i, parsed;
        assert_string_equal(kernel_dtype_name(dtype), expected[i].name);
        assert_int_equal(kernel_dtype_bytes(dtype), expected[i].bytes);
        assert_true(kernel_dtype_parse(expected[i].name, &parsed));
        assert_int_equal(parsed, dtype);
        bool is_half = dtype == SHOAL_F16 || dtype == SHOAL_BF16;
        assert_int_equal(kernel_dtype_is_half(dtype), is_half);
    }
}

static void every_op_has_its_name(void **state)
{
    (void)state;
    assert_int_equal(sizeof op_names / sizeof *op_names, SHOAL_OP_COUNT);
    for (int i = 0; i < SHOAL_OP_COUNT; i++) {
        enum shoal_op parsed;
        assert_string_equal(kernel_op_name((enum shoal_op)i), op_names[i]);
        assert_true(kernel_op_parse(op_names[i], &parsed));
        assert_int_equal(parsed, i);
    }
}

static void meanings_are_as_documented(void **state)
{
    (void)state;
    for (int i = 0; i < SHOAL_DTYPE_COUNT; i++) {
        for (int op = 0; op < SHOAL_OP_COUNT; op++) {
            assert_int_equal(kernel_supports((enum shoal_dtype)i, (enum shoal_op)op),
                             expected[i].meaning[op] == 'x');
        }
    }
}

static void unknown_values_are_unknown(void **state)
{
    (void)state;
    static const int wrong[] = {-1, SHOAL_DTYPE_COUNT, 1000};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(kernel_dtype_bytes((enum shoal_dtype)wrong[i]), 0);
        assert_string_equal(kernel_dtype_name((enum shoal_dtype)wrong[i]), "?");
        assert_string_equal(kernel_op_name((enum shoal_op)wrong[i]), "?");
        assert_false(kernel_supports((enum shoal_dtype)wrong[i], SHOAL_SUM));
        assert_false(kernel_supports(SHOAL_F32, (enum shoal_op)wrong[i]));
    }
    enum shoal_dtype dtype = SHOAL_I8;
    enum shoal_op op = SHOAL_MAX;
    assert_false(kernel_dtype_parse("float", &dtype));
    assert_false(kernel_dtype_parse("", &dtype));
    assert_false(kernel_op_parse("average", &op));
    assert_int_equal(dtype, SHOAL_I8);
    assert_int_equal(op, SHOAL_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_is_in_the_table),
        cmocka_unit_test(every_op_has_its_name),
        cmocka_unit_test(meanings_are_as_documented),
        cmocka_unit_test(unknown_values_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
