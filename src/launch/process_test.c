/* SPDX-License-Identifier: Apache-2.0 */
/* process_test.c: a program whose file is replaced while it runs, as by an update, finds the new
 * one. */
#include "launch/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* In a copy of this program: what it takes for its path when another file is there, or none. */
static int child(const char *copy, const char *original)
{
    char path[LAUNCH_PATH_BYTES];
    if (unlink(copy) != 0 || (original[0] != '\0' && symlink(original, copy) != 0) ||
        launch_own_path(path) != SHOAL_OK)
        return 1;
    puts(path);
    return 0;
}

static void expect_path(const char *original)
{
    char folder[] = "/tmp/shoal-process-XXXXXX", own[LAUNCH_PATH_BYTES];
    char copy[64], command[2 * LAUNCH_PATH_BYTES + 256], found[LAUNCH_PATH_BYTES] = "";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(launch_own_path(own), SHOAL_OK);
    snprintf(copy, sizeof(copy), "%s/copy", folder);
    snprintf(command, sizeof(command), "cp '%s' %s && %s %s '%s'; rm -rf %s", own, copy, copy, copy,
             original, folder);
    FILE *out = popen(command, "re");
    assert_non_null(out);
    assert_non_null(fgets(found, sizeof(found), out));
    assert_int_equal(pclose(out), 0);
    found[strcspn(found, "\n")] = '\0';
    assert_string_equal(found, copy);
}

static void a_replaced_program_is_found(void **state)
{
    (void)state;
    expect_path("/bin/true");
}

static void a_removed_program_keeps_its_path(void **state)
{
    (void)state;
    expect_path("");
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return child(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replaced_program_is_found),
        cmocka_unit_test(a_removed_program_keeps_its_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
