/* SPDX-License-Identifier: Apache-2.0 */
/* file_test.c: what is written is there, and what can't be is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"

static void all_is_written_at_its_place(void **state)
{
    char path[] = "/tmp/shoal-file-XXXXXX", got[8] = "";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(base_file_write(fd, "world", 5, 2), 5);
    assert_int_equal(base_file_write(fd, "a ", 2, 0), 2);
    assert_int_equal(pread(fd, got, sizeof(got), 0), 7);
    assert_string_equal(got, "a world");
    close(fd);
    unlink(path);
}

/* A limit on the size of files lets the first bytes through. */
static void a_short_write_has_its_reason(void **state)
{
    char path[] = "/tmp/shoal-file-XXXXXX";
    struct rlimit before, limit;
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    size_t written = base_file_write(fd, "world", 5, 0);
    int number = errno;
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(written, 3);
    assert_int_equal(number, EFBIG);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_is_written_at_its_place),
                                       cmocka_unit_test(a_short_write_has_its_reason)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
