/* SPDX-License-Identifier: Apache-2.0 */
/* log_test.c: lines with times, pieces of long lines, the tail, limits and full disks. */
#include <ctype.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "job/log.h"

struct written {
    char path[64];
    struct job_log log;
};

static void open_log(struct written *written)
{
    snprintf(written->path, sizeof(written->path), "/tmp/shoal-log-XXXXXX");
    int fd = mkstemp(written->path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(job_log_open(&written->log, written->path), SHOAL_OK);
}

static void say(struct written *written, const char *text)
{
    assert_int_equal(job_log_write(&written->log, text, strlen(text)), SHOAL_OK);
}

/* The file's lines without their times, which are checked. Freed by free(). */
static char *read_lines(struct written *written)
{
    char *text = NULL, *line = NULL;
    size_t bytes = 0, capacity = 0;
    FILE *file = fopen(written->path, "r"), *out = open_memstream(&text, &bytes);
    ssize_t count;
    while ((count = getline(&line, &capacity, file)) > 0) {
        for (int i = 0; i < 13; i++)
            assert_true(isdigit((unsigned char)line[i]));
        assert_int_equal(line[13], ' ');
        fwrite(line + 14, 1, (size_t)count - 14, out);
    }
    free(line);
    fclose(file);
    fclose(out);
    return text;
}

static void expect_lines(struct written *written, const char *expected)
{
    job_log_close(&written->log);
    char *text = read_lines(written);
    assert_string_equal(text, expected);
    free(text);
    unlink(written->path);
}

static void test_lines_come_in_any_pieces(void **state)
{
    (void)state;
    struct written written;
    open_log(&written);
    say(&written, "one\ntw");
    say(&written, "o\n\nthree");
    say(&written, "");
    expect_lines(&written, "one\ntwo\n\nthree\n");
    assert_int_equal(base_memory_blocks(), 0);
}

static void test_a_long_line_goes_in_pieces(void **state)
{
    (void)state;
    struct written written;
    size_t bytes = JOB_LOG_LINE_BYTES_MAX + 3;
    char *line = malloc(bytes + 2), *expected = malloc(bytes + 3);
    memset(line, 'x', bytes);
    strcpy(line + bytes, "\n");
    memset(expected, 'x', bytes + 1);
    expected[JOB_LOG_LINE_BYTES_MAX] = '\n';
    strcpy(expected + bytes + 1, "\n");
    open_log(&written);
    say(&written, line);
    expect_lines(&written, expected);
    free(line);
    free(expected);
}

static void test_the_tail_holds_whole_last_lines(void **state)
{
    (void)state;
    struct written written;
    char tail[32], line[64];
    open_log(&written);
    job_log_tail(&written.log, tail, sizeof(tail));
    assert_string_equal(tail, "");
    for (int i = 0; i < 500; i++) {
        snprintf(line, sizeof(line), "line number %d\n", i);
        say(&written, line);
    }
    job_log_tail(&written.log, tail, sizeof(tail));
    assert_string_equal(tail, "line number 499");
    char more[40];
    job_log_tail(&written.log, more, sizeof(more));
    assert_string_equal(more, "line number 498\nline number 499");
    job_log_close(&written.log);
    unlink(written.path);
}

static void test_what_exceeds_the_limit_is_counted(void **state)
{
    (void)state;
    struct written written;
    open_log(&written);
    written.log.limit_bytes = 100;
    for (int i = 0; i < 50; i++)
        say(&written, "0123456789\n");
    written.log.limit_bytes = 10000;
    say(&written, "last\n");
    expect_lines(&written, "0123456789\n0123456789\n0123456789\n0123456789\n"
                           "shoal: 46 lines could not be kept\nlast\n");
}

static void test_a_full_disk_stops_nobody(void **state)
{
    (void)state;
    struct job_log log;
    assert_int_equal(job_log_open(&log, "/dev/full"), SHOAL_OK);
    assert_int_equal(job_log_write(&log, "one\ntwo\n", 8), SHOAL_OK);
    assert_int_equal(log.dropped_lines, 2);
    job_log_close(&log);
}

static void test_a_log_that_cant_be_opened_is_named(void **state)
{
    (void)state;
    struct job_log log;
    assert_int_equal(job_log_open(&log, "/nowhere/log"), SHOAL_ERR_SYSTEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_come_in_any_pieces),
        cmocka_unit_test(test_a_long_line_goes_in_pieces),
        cmocka_unit_test(test_the_tail_holds_whole_last_lines),
        cmocka_unit_test(test_what_exceeds_the_limit_is_counted),
        cmocka_unit_test(test_a_full_disk_stops_nobody),
        cmocka_unit_test(test_a_log_that_cant_be_opened_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
