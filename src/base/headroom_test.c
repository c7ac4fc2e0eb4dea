/* SPDX-License-Identifier: Apache-2.0 */
/* headroom_test.c: the memory that is left, by the files of both versions of control groups. */
#include "base/headroom.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/files.h"

#define MIB ((int64_t)1 << 20)

static char folder[] = "/tmp/shoal-headroom-XXXXXX";

static int64_t left_by(const char *list)
{
    char path[256], meminfo[256];
    put_file(folder, "list", list);
    snprintf(path, sizeof(path), "%s/list", folder);
    snprintf(meminfo, sizeof(meminfo), "%s/meminfo", folder);
    return base_headroom_by(path, folder, meminfo);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    put_file(folder, "meminfo",
             "MemTotal:       16777216 kB\nMemAvailable:    1048576 kB\nSwapFree: 0 kB\n");
    return 0;
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static void without_a_limit_the_system_counts(void **state)
{
    (void)state;
    put_file(folder, "free/memory.max", "max\n");
    put_file(folder, "free/memory.current", "4096\n");
    put_file(folder, "odd/memory.max", "nonsense\n");
    put_file(folder, "odd/memory.current", "1\n");
    put_file(folder, "memory/free/memory.limit_in_bytes", "9223372036854771712\n");
    put_file(folder, "memory/free/memory.usage_in_bytes", "4096\n");
    assert_int_equal(left_by("0::/free\n"), 1024 * MIB);
    assert_int_equal(left_by("0::/odd\n"), 1024 * MIB);
    assert_int_equal(left_by("0::/nowhere\n"), 1024 * MIB);
    assert_int_equal(left_by("4:memory:/free\n0::/\n"), 1024 * MIB);
    assert_int_equal(left_by("nonsense\n\n:\n"), 1024 * MIB);
}

static void the_second_version_is_read(void **state)
{
    (void)state;
    put_file(folder, "a/memory.max", "104857600\n");
    put_file(folder, "a/memory.current", "73400320\n");
    put_file(folder, "a/b/memory.max", "max\n");
    put_file(folder, "a/b/memory.current", "73400320\n");
    put_file(folder, "full/memory.max", "1048576\n");
    put_file(folder, "full/memory.current", "2097152\n");
    assert_int_equal(left_by("0::/a\n"), 30 * MIB);
    assert_int_equal(left_by("0::/a/b\n"), 30 * MIB); /* the one above binds */
    assert_int_equal(left_by("0::/full\n"), 0);
    put_file(folder, "a/memory.stat",
             "anon 1\nfile 52428800\ninactive_file 10485760\nactive_file 5242880\n");
    assert_int_equal(left_by("0::/a\n"), 45 * MIB); /* with the cache of files */
}

static void the_first_version_is_read(void **state)
{
    (void)state;
    put_file(folder, "memory/x/memory.limit_in_bytes", "104857600\n");
    put_file(folder, "memory/x/memory.usage_in_bytes", "73400320\n");
    put_file(folder, "memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 10485760\n");
    assert_int_equal(left_by("5:cpu:/y\n4:memory:/x\n0::/\n"), 40 * MIB);
    assert_int_equal(left_by("4:hugetlb,memory:/x/hidden\n"), 40 * MIB);
    assert_int_equal(left_by("4:memoryless:/x\n"), 1024 * MIB);
}

static void swap_counts(void **state)
{
    (void)state;
    put_file(folder, "meminfo", "MemAvailable: 1048576 kB\nSwapFree: 1024 kB\n");
    assert_int_equal(left_by("0::/a\n"), 46 * MIB);
    assert_int_equal(left_by("0::/free\n"), 1025 * MIB);
}

static void nothing_is_known_without_files(void **state)
{
    (void)state;
    assert_int_equal(base_headroom_by("/nonexistent", folder, "/nonexistent"), INT64_MAX);
    assert_true(base_headroom_bytes() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit_the_system_counts),
        cmocka_unit_test(the_second_version_is_read),
        cmocka_unit_test(the_first_version_is_read),
        cmocka_unit_test(swap_counts),
        cmocka_unit_test(nothing_is_known_without_files),
    };
    return cmocka_run_group_tests_name("base headroom", tests, set_up, tear_down);
}
