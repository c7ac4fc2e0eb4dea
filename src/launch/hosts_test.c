/* SPDX-License-Identifier: Apache-2.0 */
/* hosts_test.c: lists and files of hosts, right and broken; placing ranks. */
#include "launch/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "support/files.h"
#include "support/fuzz.h"

static void expect_host(const struct launch_hosts *hosts, int index, const char *name, int slots)
{
    assert_string_equal(hosts->hosts[index].name, name);
    assert_int_equal(hosts->hosts[index].slots, slots);
}

static void lists_are_read(void **state)
{
    struct launch_hosts hosts = {0};
    (void)state;
    assert_int_equal(launch_hosts_parse("a:2, b ,me@c:3,[fd00::1]:4,[::2]", &hosts), SHOAL_OK);
    assert_int_equal(hosts.count, 5);
    expect_host(&hosts, 0, "a", 2);
    expect_host(&hosts, 1, "b", 1);
    expect_host(&hosts, 2, "me@c", 3);
    expect_host(&hosts, 3, "fd00::1", 4);
    expect_host(&hosts, 4, "::2", 1);
    assert_int_equal(launch_hosts_slots(&hosts), 11);
    launch_hosts_release(&hosts);
}

static void broken_lists_are_refused(void **state)
{
    static const struct {
        const char *list, *words;
    } cases[] = {
        {"", "a host name is missing"},
        {"a,,b", "a host name is missing"},
        {"a:", "'' is not a number"},
        {"a:2x", "'2x' is not a number"},
        {"a:-1", "-1 slots"},
        {"a:99999999999999999999", "slots; a host has"},
        {"a:1:2", "several colons"},
        {"[::1", "no closing bracket"},
        {"[::1]2", "after the bracket"},
        {"[]:2", "a host name is missing"},
        {"A:1,a:1", "stands there twice"},
        {"-v", "is not a host name"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct launch_hosts hosts = {0};
        assert_int_not_equal(launch_hosts_parse(cases[i].list, &hosts), SHOAL_OK);
        if (strstr(base_error_text(), cases[i].words) == NULL)
            fail_msg("'%s' gave: %s", cases[i].list, base_error_text());
    }
    assert_int_equal(base_memory_blocks(), 0);
}

static void name_lengths_are_bounded(void **state)
{
    char name[LAUNCH_HOST_NAME_BYTES + 1];
    struct launch_hosts hosts = {0};
    (void)state;
    memset(name, 'a', sizeof(name) - 1);
    name[LAUNCH_HOST_NAME_BYTES] = '\0';
    assert_int_not_equal(launch_hosts_parse(name, &hosts), SHOAL_OK);
    name[LAUNCH_HOST_NAME_BYTES - 1] = '\0';
    assert_int_equal(launch_hosts_parse(name, &hosts), SHOAL_OK);
    launch_hosts_release(&hosts);
}

static enum shoal_status read_text(const char *text, struct launch_hosts *hosts)
{
    char path[TEXT_FILE_PATH_BYTES];
    make_text_file(text, path);
    enum shoal_status status = launch_hosts_read(path, hosts);
    unlink(path);
    return status;
}

static void files_are_read(void **state)
{
    struct launch_hosts hosts = {0};
    (void)state;
    assert_int_equal(
        read_text("# all\n\na slots=2 max_slots=4 # first\r\n\tb:3\n[::1] slots=5\nlast", &hosts),
        SHOAL_OK);
    assert_int_equal(hosts.count, 4);
    expect_host(&hosts, 0, "a", 2);
    expect_host(&hosts, 1, "b", 3);
    expect_host(&hosts, 2, "::1", 5);
    expect_host(&hosts, 3, "last", 1);
    launch_hosts_release(&hosts);
}

static void a_line_that_is_too_long_is_named(void **state)
{
    char text[3000];
    struct launch_hosts hosts = {0};
    (void)state;
    memset(text, 'x', sizeof(text));
    memcpy(text, "ok\n", 3);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(read_text(text, &hosts), SHOAL_ERR_FORMAT);
    assert_non_null(strstr(base_error_text(), ":2: the line is longer than"));
}

static void ranks_fill_hosts_in_order(void **state)
{
    struct launch_hosts hosts = {0};
    (void)state;
    assert_int_equal(launch_hosts_parse("a:2,b:3,c:1", &hosts), SHOAL_OK);
    assert_int_equal(launch_hosts_place(&hosts, 7), SHOAL_ERR_OPTION);
    assert_non_null(strstr(base_error_text(), "7 ranks, but the 3 hosts have 6 slots"));
    assert_int_equal(launch_hosts_place(&hosts, 4), SHOAL_OK);
    assert_int_equal(hosts.count, 2);
    assert_int_equal(hosts.hosts[0].first_rank, 0);
    assert_int_equal(hosts.hosts[0].rank_count, 2);
    assert_int_equal(hosts.hosts[1].first_rank, 2);
    assert_int_equal(hosts.hosts[1].rank_count, 2);
    launch_hosts_release(&hosts);
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct launch_hosts hosts = {0};
    (void)user;
    (void)count;
    (void)round;
    if (launch_hosts_parse(text, &hosts) == SHOAL_OK)
        assert_true(hosts.count > 0 && launch_hosts_slots(&hosts) >= hosts.count);
    launch_hosts_release(&hosts);
    if (read_text(text, &hosts) == SHOAL_OK)
        assert_true(hosts.count > 0 && launch_hosts_slots(&hosts) >= hosts.count);
    launch_hosts_release(&hosts);
}

/* Any text does no more than fail, and leaves nothing. */
static void random_lists_do_no_harm(void **state)
{
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("a:2,[::1]:5,b"), FUZZ_TEXT("# hosts\na slots=2\nb:3\n[::1]:5\nme@last\n")};
    static const char *const words[] = {"slots=", "[",  "]",           ":", ",",
                                        "@",      "\n", "max_slots=1", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 5000, .is_string = true, .is_alone = true);
    (void)state;
    fuzz_run(&fuzz, take_any, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(broken_lists_are_refused),
        cmocka_unit_test(name_lengths_are_bounded),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(a_line_that_is_too_long_is_named),
        cmocka_unit_test(ranks_fill_hosts_in_order),
        cmocka_unit_test(random_lists_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
