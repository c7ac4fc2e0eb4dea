/* SPDX-License-Identifier: Apache-2.0 */
/* process_count.c: asks /proc, so that nobody has to be a parent of what is counted. */
#include "support/process_count.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

int process_count_with(const char *pattern)
{
    char command[128];
    int count = -1;
    snprintf(command, sizeof(command), "cat /proc/[0-9]*/cmdline 2>/dev/null | grep -ac %s",
             pattern);
    FILE *pipe = popen(command, "r");
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}
