/* SPDX-License-Identifier: Apache-2.0 */
/* options_test.c: the table, its reading from the environment, and everything a user gets wrong. */
#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/status.h"
#include "support/fuzz.h"

static int set_up(void **state)
{
    (void)state;
    clearenv();
    base_options_reset();
    return 0;
}

static void set(const char *name, const char *value)
{
    setenv(name, value, 1);
    base_options_reset();
}

static void assert_wrong(const char *part)
{
    if (base_options_load() != SHOAL_ERR_OPTION || strstr(base_error_text(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", base_error_text(), part);
}

static void every_row_is_whole(void **state)
{
    (void)state;
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct base_option *row = &base_options()[id];
        assert_int_equal(strncmp(row->name, "SHOAL_", 6), 0);
        assert_non_null(row->default_text);
        assert_true(strlen(row->help) > 20);
        char range[128];
        base_option_range((enum base_option_id)id, range, sizeof(range));
        assert_true(range[0] != '\0');
        for (int other = 0; other < id; other++)
            assert_string_not_equal(row->name, base_options()[other].name);
    }
    assert_true(OPTION_COUNT < 40);
}

static void defaults_stand_without_an_environment(void **state)
{
    (void)state;
    assert_int_equal(base_options_load(), SHOAL_OK);
    assert_int_equal(base_option_int(OPTION_TIMEOUT_MS), 300000);
    assert_int_equal(base_option_int(OPTION_EAGER_BYTES), 16384);
    assert_int_equal(base_option_int(OPTION_RING_BYTES), 262144);
    assert_int_equal(base_option_int(OPTION_LOCAL), 1);
    assert_int_equal(base_option_int(OPTION_SPIN_US), -1);
    assert_int_equal(base_option_int(OPTION_RANK), -1);
    assert_int_equal(base_option_int(OPTION_SIZE), -1);
    assert_string_equal(base_option_text(OPTION_LOG), "warn");
    assert_null(base_option_text(OPTION_INTERFACE));
    assert_false(base_option_is_set(OPTION_TIMEOUT_MS));
}

static void values_are_read_once(void **state)
{
    (void)state;
    set("SHOAL_TIMEOUT_MS", "77");
    set("SHOAL_REPRODUCIBLE", "yes");
    set("SHOAL_RING_BYTES", "1M");
    set("SHOAL_INTERFACE", "eth7");
    set("SHOAL_SPIN_US", "");
    assert_int_equal(base_options_load(), SHOAL_OK);
    assert_int_equal(base_option_int(OPTION_TIMEOUT_MS), 77);
    assert_int_equal(base_option_int(OPTION_REPRODUCIBLE), 1);
    assert_int_equal(base_option_int(OPTION_RING_BYTES), 1048576);
    assert_string_equal(base_option_text(OPTION_INTERFACE), "eth7");
    assert_int_equal(base_option_int(OPTION_SPIN_US), -1);
    assert_true(base_option_is_set(OPTION_TIMEOUT_MS));
    assert_false(base_option_is_set(OPTION_SPIN_US));
    setenv("SHOAL_TIMEOUT_MS", "88", 1);
    assert_int_equal(base_option_int(OPTION_TIMEOUT_MS), 77);
}

static void wrong_values_name_variable_value_and_range(void **state)
{
    (void)state;
    const struct {
        const char *name, *value, *part;
    } cases[] = {
        {"SHOAL_TIMEOUT_MS", "0", "SHOAL_TIMEOUT_MS=\"0\""},
        {"SHOAL_TIMEOUT_MS", "0", "1 to 2147483647"},
        {"SHOAL_TIMEOUT_MS", "5s", "\"5s\""},
        {"SHOAL_TIMEOUT_MS", " 5", "\" 5\""},
        {"SHOAL_TIMEOUT_MS", "99999999999999999999", "999999"},
        {"SHOAL_RING_BYTES", "300K", "a power of two"},
        {"SHOAL_RING_BYTES", "1K", "4K to 64M"},
        {"SHOAL_SEGMENT_BYTES", "1", "4K to 1G, or 0"},
        {"SHOAL_SEGMENT_BYTES", "-4K", "\"-4K\""},
        {"SHOAL_LOCAL", "2", "0 or 1"},
        {"SHOAL_LOG", "loud", "error|warn|info|debug"},
        {"SHOAL_ISA", "avx", "avx2|avx512|neon"},
        {"SHOAL_SIZE", "0", "1 to"},
        {"SHOAL_PORT", "65536", "0 to 65535"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set_up(NULL);
        set(cases[i].name, cases[i].value);
        assert_wrong(cases[i].part);
        assert_wrong(cases[i].name);
    }
    /* The default stands in for a wrong value. */
    set_up(NULL);
    set("SHOAL_TIMEOUT_MS", "0");
    assert_int_equal(base_option_int(OPTION_TIMEOUT_MS), 300000);
}

static void a_value_too_long_is_told(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'h', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    set("SHOAL_STORE", text);
    assert_wrong("at most 511 characters");
}

static void typos_are_told_with_the_nearest_name(void **state)
{
    (void)state;
    set("SHOAL_TIMEOUT", "5");
    assert_wrong("unknown variable SHOAL_TIMEOUT: did you mean SHOAL_TIMEOUT_MS?");
    set_up(NULL);
    set("SHOAL_LGO", "info");
    assert_wrong("SHOAL_LOG?");
    set_up(NULL);
    set("SHOAL_BANANA_SPLIT_MODE", "1");
    assert_wrong("shoal info --options");
    set_up(NULL);
    set("SHOAL_VHOSTS_PIDS", "1");
    set("SHOAL_TEST_ANYTHING", "1");
    set("SHOAL_BUILD", "x");
    set("SHOALTIMEOUT", "not ours");
    assert_int_equal(base_options_load(), SHOAL_OK);
}

static void bytes_are_parsed(void **state)
{
    (void)state;
    const struct {
        const char *text;
        uint64_t bytes;
    } right[] = {
        {"0", 0},
        {"123", 123},
        {"64K", 65536},
        {"64k", 65536},
        {"4M", 4194304},
        {"1G", 1073741824},
        {"2T", 2199023255552},
        {"64KiB", 65536},
        {"64KB", 65536},
        {"12B", 12},
        {"18446744073709551615", UINT64_MAX},
    };
    const char *wrong[] = {"",
                           "K",
                           "-1",
                           "+1",
                           " 1",
                           "1 K",
                           "1X",
                           "1KK",
                           "0x10",
                           "1.5G",
                           "18446744073709551616",
                           "99999999999T",
                           "1Ki"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(base_parse_bytes(right[i].text, &bytes), SHOAL_OK);
        assert_true(bytes == right[i].bytes);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (base_parse_bytes(wrong[i], &bytes) != SHOAL_ERR_OPTION)
            fail_msg("\"%s\" was taken", wrong[i]);
    }
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    enum base_option_id id = (enum base_option_id)fuzz_below(&round, OPTION_COUNT);
    const struct base_option *row = &base_options()[id];
    int64_t value = -1;
    uint64_t bytes;
    char again[BASE_BYTES_TEXT_BYTES];
    (void)user;
    (void)count;
    if (base_option_parse(id, text, &value) == SHOAL_OK && row->kind == BASE_OPTION_INT &&
        !(row->zero_too && value == 0))
        assert_in_range(value - row->minimum, 0, row->maximum - row->minimum);
    if (base_parse_bytes(text, &bytes) == SHOAL_OK) {
        uint64_t same;
        assert_int_equal(base_parse_bytes(base_bytes_text(bytes, again), &same), SHOAL_OK);
        assert_true(same == bytes);
    }
    base_nearest(text, (const char *const[]){"allreduce", "broadcast"}, 2);
}

/* Values of any text: within the row's range, or refused. */
static void any_value_is_taken_or_refused(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {FUZZ_TEXT("65536"), FUZZ_TEXT("64KiB"), FUZZ_TEXT("0"),
                                             FUZZ_TEXT("info"), FUZZ_TEXT("eth0,lo")};
    static const char *const words[] = {"K", "MiB", "G", "T", "-", "+", "1", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 5000, .is_string = true, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

static void the_nearest_word_is_found(void **state)
{
    (void)state;
    const char *const words[] = {"allreduce", "allgather", "broadcast", "barrier"};
    assert_string_equal(base_nearest("allredcue", words, 4), "allreduce");
    assert_string_equal(base_nearest("brodcast", words, 4), "broadcast");
    assert_null(base_nearest("x", words, 4));
    assert_null(base_nearest("frobnicate", words, 4));
    assert_string_equal(base_nearest("barrier", words, 4), "barrier");
}

/* What base_log writes on stderr at a level. */
static void log_at(const char *level, char *text, size_t bytes)
{
    int ends[2], before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    set("SHOAL_LOG", level);
    dup2(ends[1], STDERR_FILENO);
    base_log(BASE_LOG_ERROR, "an error of %d", 1);
    base_log(BASE_LOG_INFO, "an info");
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    ssize_t got = read(ends[0], text, bytes - 1);
    text[got > 0 ? got : 0] = '\0';
    close(ends[0]);
}

static void the_log_follows_its_level(void **state)
{
    (void)state;
    char text[1024];
    base_log_set_rank(7);
    log_at("error", text, sizeof(text));
    assert_non_null(strstr(text, "rank 7 error: an error of 1\n"));
    assert_non_null(strstr(text, base_host_name()));
    assert_null(strstr(text, "an info"));
    log_at("info", text, sizeof(text));
    assert_non_null(strstr(text, "info: an info\n"));
    base_log_set_server(2);
    log_at("error", text, sizeof(text));
    assert_non_null(strstr(text, "server 2 error: an error of 1\n"));
    base_log_set_server(-1);
    base_log_set_rank(-1);
    log_at("debug", text, sizeof(text));
    assert_null(strstr(text, "rank 7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_row_is_whole, set_up),
        cmocka_unit_test_setup(defaults_stand_without_an_environment, set_up),
        cmocka_unit_test_setup(values_are_read_once, set_up),
        cmocka_unit_test_setup(wrong_values_name_variable_value_and_range, set_up),
        cmocka_unit_test_setup(a_value_too_long_is_told, set_up),
        cmocka_unit_test_setup(typos_are_told_with_the_nearest_name, set_up),
        cmocka_unit_test_setup(any_value_is_taken_or_refused, set_up),
        cmocka_unit_test_setup(bytes_are_parsed, set_up),
        cmocka_unit_test_setup(the_nearest_word_is_found, set_up),
        cmocka_unit_test_setup(the_log_follows_its_level, set_up),
    };
    return cmocka_run_group_tests_name("base options", tests, NULL, NULL);
}
