/* SPDX-License-Identifier: Apache-2.0 */
/* memory_test.c: the heap's door: zeroed, aligned, counted, and failing on demand. */
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"

static void blocks_are_zeroed_aligned_and_counted(void **state)
{
    (void)state;
    size_t bytes = base_memory_bytes(), blocks = base_memory_blocks();
    unsigned char *block[40];
    for (size_t i = 0; i < 40; i++) {
        assert_int_equal(base_alloc(i * 13, "a block", (void **)&block[i]), SHOAL_OK);
        assert_int_equal((uintptr_t)block[i] % 64, 0);
        for (size_t j = 0; j < i * 13; j++)
            assert_int_equal(block[i][j], 0);
        memset(block[i], 0xff, i * 13);
    }
    assert_int_equal(base_memory_blocks(), blocks + 40);
    assert_int_equal(base_memory_bytes(), bytes + 13 * 39 * 40 / 2);
    for (size_t i = 0; i < 40; i++)
        base_free(block[i]);
    base_free(NULL);
    assert_int_equal(base_memory_blocks(), blocks);
    assert_int_equal(base_memory_bytes(), bytes);
}

static void too_much_is_an_error_with_a_name(void **state)
{
    (void)state;
    void *out = &out;
    assert_int_equal(base_alloc(SIZE_MAX, "the moon", &out), SHOAL_ERR_MEMORY);
    assert_non_null(strstr(base_error_text(), "the moon"));
    assert_int_equal(base_alloc_array(SIZE_MAX / 2, 3, "the sun", &out), SHOAL_ERR_MEMORY);
    assert_non_null(strstr(base_error_text(), "the sun"));
    assert_ptr_equal(out, &out);
}

static void the_nth_allocation_fails_once(void **state)
{
    (void)state;
    char *text;
    base_memory_fail_at(2);
    assert_int_equal(base_strdup("a", "first", &text), SHOAL_OK);
    base_free(text);
    assert_int_equal(base_strdup("a", "second", &text), SHOAL_ERR_MEMORY);
    assert_non_null(strstr(base_error_text(), "second"));
    assert_int_equal(base_strdup("abc", "third", &text), SHOAL_OK);
    assert_string_equal(text, "abc");
    base_free(text);
    base_memory_fail_at(1);
    base_memory_fail_at(0);
    uint64_t count = base_memory_count();
    assert_int_equal(base_strdup("a", "fourth", &text), SHOAL_OK);
    assert_int_equal(base_memory_count(), count + 1);
    base_free(text);
}

/* In a new process, because the variable counts from its first allocation. */
static int as_child(void)
{
    void *first, *second;
    return base_alloc(1, "first", &first) == SHOAL_OK &&
                   base_alloc(1, "second", &second) == SHOAL_ERR_MEMORY
               ? 0
               : 1;
}

static void the_environment_can_make_one_fail(void **state)
{
    const char *program = *state;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("SHOAL_FAIL_ALLOC", "2", 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
        execl(program, program, "child", NULL);
        _exit(9);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return as_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_zeroed_aligned_and_counted),
        cmocka_unit_test(too_much_is_an_error_with_a_name),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test_prestate(the_environment_can_make_one_fail, argv[0]),
    };
    return cmocka_run_group_tests_name("base memory", tests, NULL, NULL);
}
