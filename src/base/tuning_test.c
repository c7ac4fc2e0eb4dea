/* SPDX-License-Identifier: Apache-2.0 */
/* tuning_test.c: the file of thresholds: written, read, broken in every way, of another machine. */
#include "base/tuning.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/options.h"
#include "base/status.h"
#include "support/fuzz.h"

#define TEXT_BYTES 4096

static char folder[] = "/tmp/shoal-tuning-XXXXXX";
static char path[BASE_TUNING_PATH_BYTES];

static const struct base_tuning two = {2, 8 << 10, 256 << 10, 3 << 20, 64 << 10};
static const struct base_tuning four = {4, 0, 1 << 20, 1234567, 100};

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    unsetenv("SHOAL_TUNE");
    base_options_reset();
    assert_int_equal(base_tuning_path(path), SHOAL_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char inner[64];
    unlink(path);
    snprintf(inner, sizeof(inner), "%s/shoal", folder);
    return rmdir(inner) != 0 || rmdir(folder) != 0; /* nothing else may be left in them */
}

static void write_good(void)
{
    struct base_tuning_table table = {0};
    assert_int_equal(base_tuning_put(&table, &four), SHOAL_OK);
    assert_int_equal(base_tuning_put(&table, &two), SHOAL_OK);
    assert_int_equal(base_tuning_write(path, &table), SHOAL_OK);
}

static size_t read_file(char text[TEXT_BYTES])
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, TEXT_BYTES - 1, file);
    fclose(file);
    text[bytes] = '\0';
    return bytes;
}

static void write_file(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static void expect_refused(const char *part)
{
    struct base_tuning_table table = {.count = 77};
    enum shoal_status status = base_tuning_read(path, &table);
    if (status != SHOAL_ERR_FORMAT || strstr(base_error_text(), part) == NULL ||
        strstr(base_error_text(), path) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", shoal_status_name(status), base_error_text(),
                 part);
    assert_int_equal(table.count, 77);
    assert_int_equal(base_tuning_load(&table), SHOAL_ERR_FORMAT);
    assert_int_equal(table.count, 0);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct base_tuning_table table;
    write_good();
    assert_int_equal(base_tuning_read(path, &table), SHOAL_OK);
    assert_int_equal(table.count, 2);
    assert_memory_equal(base_tuning_find(&table, 2), &two, sizeof(two));
    assert_memory_equal(base_tuning_find(&table, 4), &four, sizeof(four));
    assert_null(base_tuning_find(&table, 3));
    assert_int_equal(base_tuning_load(&table), SHOAL_OK);
    assert_int_equal(table.count, 2);
}

static void no_file_is_no_fault(void **state)
{
    (void)state;
    struct base_tuning_table table = {.count = 77};
    unlink(path);
    assert_int_equal(base_tuning_read(path, &table), SHOAL_OK);
    assert_int_equal(table.count, 0);
}

static void the_option_turns_it_off(void **state)
{
    (void)state;
    struct base_tuning_table table = {.count = 77};
    write_good();
    setenv("SHOAL_TUNE", "0", 1);
    base_options_reset();
    assert_int_equal(base_tuning_load(&table), SHOAL_OK);
    assert_int_equal(table.count, 0);
    unsetenv("SHOAL_TUNE");
    base_options_reset();
}

static void a_part_of_a_file_is_refused(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    write_good();
    size_t bytes = read_file(text);
    for (size_t cut = 0; cut < bytes; cut++) {
        write_file(text, cut);
        expect_refused("");
    }
    write_file(text, bytes);
    struct base_tuning_table table;
    assert_int_equal(base_tuning_read(path, &table), SHOAL_OK);
}

/* One line of a good file is another. */
static void write_with(const char *line, const char *instead)
{
    char text[TEXT_BYTES], other[2 * TEXT_BYTES];
    write_good();
    read_file(text);
    char *at = strstr(text, line);
    while (at != NULL && at[-1] != '\n')
        at = strstr(at + 1, line);
    assert_non_null(at);
    int bytes = snprintf(other, sizeof(other), "%.*s%s%s", (int)(at - text), text, instead,
                         at + strcspn(at, "\n"));
    write_file(other, (size_t)bytes);
}

static void broken_files_are_named_with_their_line(void **state)
{
    (void)state;
    const struct {
        const char *line, *instead, *part;
    } cases[] = {
        {"shoal-tune 1", "shoal-tune 2", "line 3: it is of another version of shoal"},
        {"shoal-tune 1", "{\"version\": 1}", "stands where shoal-tune is expected"},
        {"cpu ", "cpu Abacus 3000", "line 4: it is of another machine: cpu is \"Abacus 3000\""},
        {"cores ", "cores 99999", "line 5: it is of another machine: cores is \"99999\""},
        {"cores ", "", "stands where cores is expected"},
        {"ranks 2", "rank 2", "line 6: \"rank\" is not understood"},
        {"ranks 2", "", "is not understood"},
        {"ranks 2", "ranks 1 symmetric 1K block 64K stream 1M direct 1K", "\"1\" is no number"},
        {"ranks 2", "ranks 257 symmetric 1K block 64K stream 1M direct 1K", "\"257\" is no number"},
        {"ranks 2", "ranks 2x symmetric 1K block 64K stream 1M direct 1K", "\"2x\" is no number"},
        {"ranks 2", "ranks 4 symmetric 1K block 64K stream 1M direct 1K", "a second row for 4"},
        {"ranks 2", "ranks 2 symmetric 1K block 64K stream 1M", "direct is expected"},
        {"ranks 2", "ranks 2 symmetric 1K block 64K stream 1M direct",
         "\"\" is no value of direct"},
        {"ranks 2", "ranks 2 symmetric 1K block 64K stream 1M direct 1K 7", "\" 7\" is too much"},
        {"ranks 2", "ranks 2 symmetric 1K block 1K stream 1M direct 1K", "\"1K\" is no value of"},
        {"ranks 2", "ranks 2 symmetric 1K block 1T stream 1M direct 1K", "\"1T\" is no value of"},
        {"ranks 2", "ranks 2 symmetric -1 block 64K stream 1M direct 1K", "\"-1\" is no value"},
        {"ranks 2", "ranks 2 symmetric 1K block 64K stream x direct 1K", "\"x\" is no value of"},
        {"ranks 2", "ranks 2 block 64K symmetric 1K stream 1M direct 1K", "symmetric is expected"},
        {"end", "end\nend", "line 9: there is more behind the end"},
        {"end", "end.", "line 8: \"end.\" is not understood"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_with(cases[i].line, cases[i].instead);
        expect_refused(cases[i].part);
    }
}

static void what_is_no_text_is_refused(void **state)
{
    (void)state;
    char text[3 * TEXT_BYTES];
    for (int seed = 0; seed < 200; seed++) {
        srand((unsigned)seed);
        size_t bytes = (size_t)(rand() % 300);
        for (size_t i = 0; i < bytes; i++)
            text[i] = (char)rand();
        write_file(text, bytes);
        expect_refused("");
    }
    memset(text, '#', sizeof(text));
    write_file(text, sizeof(text));
    expect_refused("larger than");
    write_good();
    size_t bytes = read_file(text);
    text[bytes / 2] = '\0';
    write_file(text, bytes);
    expect_refused("");
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    struct base_tuning_table table;
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused("is no file");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused("is no file");
    assert_int_equal(base_tuning_write(path, &(struct base_tuning_table){0}), SHOAL_ERR_SYSTEM);
    rmdir(path);
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    char nowhere[BASE_TUNING_PATH_BYTES];
    assert_int_equal(base_tuning_path(nowhere), SHOAL_OK);
    assert_int_equal(base_tuning_read(nowhere, &table), SHOAL_OK);
    assert_int_equal(table.count, 0);
    assert_int_equal(base_tuning_write(nowhere, &table), SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "/dev/null"));
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void the_place_follows_the_environment(void **state)
{
    (void)state;
    char *home = getenv("HOME") != NULL ? strdup(getenv("HOME")) : NULL;
    char found[BASE_TUNING_PATH_BYTES];
    struct base_tuning_table table = {.count = 77};
    setenv("XDG_CACHE_HOME", "relative", 1); /* of no meaning, by the specification */
    setenv("HOME", "/home/somebody", 1);
    assert_int_equal(base_tuning_path(found), SHOAL_OK);
    assert_non_null(strstr(found, "/home/somebody/.cache/shoal/tune-"));
    unsetenv("HOME");
    assert_int_equal(base_tuning_path(found), SHOAL_ERR_OPTION);
    assert_int_equal(base_tuning_load(&table), SHOAL_OK);
    assert_int_equal(table.count, 0);
    setenv("XDG_CACHE_HOME", folder, 1);
    if (home != NULL)
        setenv("HOME", home, 1);
    free(home);
}

static void rows_have_their_place(void **state)
{
    (void)state;
    struct base_tuning_table table = {0};
    for (int ranks = 9; ranks > 1; ranks--) {
        struct base_tuning row = base_tuning_default(ranks);
        assert_int_equal(base_tuning_put(&table, &row), SHOAL_OK);
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(table.rows[i].ranks, i + 2);
    struct base_tuning more = base_tuning_default(10);
    assert_int_equal(base_tuning_put(&table, &more), SHOAL_ERR_LIMIT);
    assert_int_equal(base_tuning_put(&table, &four), SHOAL_OK);
    assert_int_equal(table.count, 8);
    assert_memory_equal(&table.rows[2], &four, sizeof(four));
}

/* Readers see a whole file at any time. */
static void a_file_that_is_replaced_is_whole(void **state)
{
    (void)state;
    write_good();
    pid_t writer = fork();
    if (writer == 0) {
        struct base_tuning_table table = {.count = 1, .rows = {two}};
        for (int i = 0; i < 300; i++)
            if (base_tuning_write(path, &table) != SHOAL_OK)
                _exit(1);
        _exit(0);
    }
    int wait_status = 0;
    while (waitpid(writer, &wait_status, WNOHANG) == 0) {
        struct base_tuning_table table;
        assert_int_equal(base_tuning_read(path, &table), SHOAL_OK);
        assert_true(table.count == 1 || table.count == 2);
    }
    assert_int_equal(wait_status, 0);
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct base_tuning_table table = {.count = -1};
    (void)user;
    (void)round;
    write_file(text, count);
    if (base_tuning_read(path, &table) != SHOAL_OK)
        assert_int_equal(table.count, -1);
    else
        assert_in_range(table.count, 0, BASE_TUNING_ROWS_MAX);
    for (int64_t i = 1; i < table.count; i++)
        assert_true(table.rows[i - 1].ranks < table.rows[i].ranks);
}

/* Any file is a table in order, or refused as a whole. */
static void any_file_is_read_or_refused(void **state)
{
    (void)state;
    char good[TEXT_BYTES];
    static const char *const words[] = {"ranks 2 ",       "symmetric ", "block ", "stream ",
                                        "direct ",        "64K ",       "\n",     "end\n",
                                        "shoal-tune 1\n", "#",          "256",    NULL};
    write_good();
    const struct fuzz_text texts[] = {{good, read_file(good)}};
    struct fuzz fuzz = FUZZ(texts, words, 300, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(no_file_is_no_fault),
        cmocka_unit_test(the_option_turns_it_off),
        cmocka_unit_test(a_part_of_a_file_is_refused),
        cmocka_unit_test(broken_files_are_named_with_their_line),
        cmocka_unit_test(what_is_no_text_is_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(the_place_follows_the_environment),
        cmocka_unit_test(rows_have_their_place),
        cmocka_unit_test(a_file_that_is_replaced_is_whole),
        cmocka_unit_test(any_file_is_read_or_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
