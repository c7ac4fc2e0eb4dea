/* SPDX-License-Identifier: Apache-2.0 */
/* platform_test.c: platform files: what they say is understood, what is wrong in them is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "sim/platform.h"
#include "support/fuzz.h"

static const char full[] = "# two switches\n"
                           "hosts 32\n"
                           "ranks 2\n"
                           "servers 8\n"
                           "accelerators 8 rate 200GB/s\n"
                           "link rate 25gbit latency 10us  # of each host\n"
                           "link 3 rate 6gbit\n"
                           "link 39 rate 500mbit\n"
                           "bucket 80K\n"
                           "\n"
                           "switch 16 rate 0.2tbit latency 1.5us\n"
                           "cores 4 shared\n"
                           "send 2us 0.1ns\n"
                           "receive 3us 0ns\n"
                           "local 400ns\n"
                           "copy 9GB/s\n"
                           "reduce 11GB/s\n"
                           "eager 32K";

static void check_full(const struct sim_platform *platform)
{
    assert_int_equal(platform->host_count, 32);
    assert_int_equal(platform->ranks_per_host, 2);
    assert_int_equal(platform->server_count, 8);
    assert_int_equal(sim_all_hosts(platform), 40);
    assert_int_equal(platform->accelerators, 8);
    assert_float_equal(platform->accelerator_bytes_per_ns, 200, 1e-9);
    assert_float_equal(platform->link_bytes_per_ns, 3.125, 1e-9);
    assert_float_equal(platform->link_latency_ns, 10e3, 1e-6);
    assert_float_equal(sim_host_rate(platform, 0), 3.125, 1e-9);
    assert_float_equal(sim_host_rate(platform, 3), 0.75, 1e-9);
    assert_float_equal(sim_host_rate(platform, 39), 0.0625, 1e-9);
    assert_int_equal(platform->bucket_bytes, 80 << 10);
    assert_int_equal(sim_switch_of(platform, 15), 0);
    assert_int_equal(sim_switch_of(platform, 16), 1);
    assert_int_equal(sim_switch_count(platform), 3);
    assert_float_equal(platform->uplink_bytes_per_ns, 25, 1e-9);
    assert_float_equal(platform->uplink_latency_ns, 1500, 1e-6);
    assert_int_equal(platform->cores, 4);
    assert_true(platform->cores_are_shared);
    assert_float_equal(platform->send.message_ns, 2000, 1e-9);
    assert_float_equal(platform->send.byte_ns, 0.1, 1e-9);
    assert_float_equal(platform->receive.byte_ns, 0, 1e-9);
    assert_float_equal(platform->local_latency_ns, 400, 1e-9);
    assert_float_equal(platform->copy_bytes_per_ns, 9, 1e-9);
    assert_float_equal(platform->reduce_bytes_per_ns, 11, 1e-9);
    assert_int_equal(platform->eager_bytes, 32768);
    assert_false(sim_is_uniform(platform));
}

static void test_every_statement(void **state)
{
    (void)state;
    struct sim_platform *platform;
    assert_int_equal(sim_platform_parse("p", full, &platform), SHOAL_OK);
    check_full(platform);
    sim_platform_free(platform);
}

static void test_printed_and_read_again(void **state)
{
    (void)state;
    char path[] = "/tmp/shoal-platform-XXXXXX";
    struct sim_platform *platform, *again;
    FILE *file = fdopen(mkstemp(path), "w");
    assert_int_equal(sim_platform_parse("p", full, &platform), SHOAL_OK);
    sim_platform_print(platform, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(sim_platform_read(path, &again), SHOAL_OK);
    check_full(again);
    unlink(path);
    sim_platform_free(platform);
    sim_platform_free(again);
}

static void test_an_empty_file_is_the_default(void **state)
{
    (void)state;
    struct sim_platform *platform;
    assert_int_equal(sim_platform_parse("p", "", &platform), SHOAL_OK);
    assert_int_equal(platform->host_count, 2);
    assert_true(sim_is_uniform(platform));
    sim_platform_free(platform);
}

static void test_errors_name_file_line_and_what_was_expected(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"hosts 4\nlink rate 25 latency 10us\n", "p:2: rate 25: it takes a number above 0 with "},
        {"link rate 0gbit latency 1us", "p:1: rate 0gbit: it takes a number above 0 with kbit"},
        {"link rate nangbit latency 1us", "p:1: rate nangbit: it takes a number above 0"},
        {"link rate 1gbit latency -1us", "p:1: latency -1us: it takes a number of at least 0"},
        {"link rate 1gbit", "p:1: expected: link rate RATE latency TIME, or link HOST rate RATE"},
        {"link latency 1us", "p:1: expected: link rate RATE latency TIME"},
        {"link", "p:1: expected: link rate RATE latency TIME"},
        {"link speed 1gbit latency 1us", "p:1: expected: link rate RATE latency TIME"},
        {"link 2 rate 1gbit latency 1us", "p:1: expected: link rate RATE latency TIME"},
        {"link 2x rate 1gbit", "p:1: link 2x: it takes a number from 0 to 4095"},
        {"\n\nhosts many", "p:3: hosts many: it takes a number from 1 to 4096"},
        {"hosts 0", "p:1: hosts 0: it takes a number from 1 to 4096"},
        {"hosts 99999999999999999999", "p:1: hosts 99999999999999999999: it takes a number from"},
        {"hosts", "p:1: expected: hosts NUMBER"},
        {"hosts 2 3", "p:1: expected: hosts NUMBER"},
        {"hosts 2\nhosts 3", "p:2: 'hosts' stands already in line 1"},
        {"hosts 2\nlink 0 rate 1gbit\nlink 0 rate 2gbit", "p:3: the link of host 0 has a rate al"},
        {"hosts 2\nlink 2 rate 1gbit", "p:2: the link of host 2 has a rate of its own, but hosts "},
        {"hosts 4096\nranks 2", "p:2: 4096 hosts of 2 ranks and 0 servers: at most 4096 tog"},
        {"servers 4090\nhosts 7", "p:1: 7 hosts of 1 ranks and 4090 servers: at most 4096 tog"},
        {"servers -1", "p:1: servers -1: it takes a number from 0 to 4096"},
        {"servers", "p:1: expected: servers NUMBER"},
        {"servers 2\nlink 4 rate 1gbit",
         "p:2: the link of host 4 has a rate of its own, but hosts "},
        {"bucket many", "p:1: "},
        {"bucket 1K 2K", "p:1: expected: bucket BYTES"},
        {"bucket 1K\nbucket 1K", "p:2: 'bucket' stands already in line 1"},
        {"hots 2", "p:1: there is no 'hots'; did you mean 'hosts'?"},
        {"bandwidth 2",
         "p:1: there is no 'bandwidth': expected hosts, ranks, servers, accelerators, link"},
        {"switch 2 rate 1gbit", "p:1: expected: switch HOSTS rate RATE latency TIME"},
        {"cores 2 both", "p:1: expected: cores NUMBER, or cores NUMBER shared"},
        {"send 1us", "p:1: expected: send TIME TIME (per message, per byte)"},
        {"eager lots", "p:1: "},
        {"hosts 1 2 3 4 5 6 7 8", "p:1: more than 8 words"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sim_platform *platform;
        size_t blocks = base_memory_blocks();
        enum shoal_status status = sim_platform_parse("p", cases[i].text, &platform);
        if (status != SHOAL_ERR_FORMAT ||
            strncmp(base_error_text(), cases[i].error, strlen(cases[i].error)) != 0)
            fail_msg("'%s': %s", cases[i].text, base_error_text());
        assert_int_equal(base_memory_blocks(), blocks);
    }
}

static void test_long_lines_and_missing_files(void **state)
{
    (void)state;
    char text[600];
    struct sim_platform *platform;
    memset(text, ' ', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(sim_platform_parse("p", text, &platform), SHOAL_ERR_FORMAT);
    assert_string_equal(base_error_text(), "p:1: longer than 511 characters");
    assert_int_equal(sim_platform_read("/nowhere/p", &platform), SHOAL_ERR_SYSTEM);
    assert_int_equal(sim_platform_read("/", &platform), SHOAL_ERR_SYSTEM);
    assert_int_equal(sim_platform_read("/bin/sh", &platform), SHOAL_ERR_FORMAT);
}

static void test_another_number_of_hosts(void **state)
{
    (void)state;
    struct sim_platform *platform;
    assert_int_equal(sim_platform_parse("p", "hosts 8\nlink 5 rate 1gbit", &platform), SHOAL_OK);
    assert_int_equal(sim_platform_resize(platform, 6, 0), SHOAL_OK);
    assert_int_equal(sim_platform_resize(platform, 5, 0), SHOAL_ERR_ARGUMENT);
    assert_int_equal(sim_platform_resize(platform, 4, 2), SHOAL_OK);
    assert_int_equal(platform->host_count, 4);
    assert_int_equal(platform->server_count, 2);
    sim_platform_free(platform);
}

static void test_every_failing_allocation(void **state)
{
    (void)state;
    size_t blocks = base_memory_blocks();
    enum shoal_status status = SHOAL_ERR_MEMORY;
    for (uint64_t nth = 1; status != SHOAL_OK; nth++) {
        struct sim_platform *platform = NULL;
        base_memory_fail_at(nth);
        status = sim_platform_parse("p", full, &platform);
        base_memory_fail_at(0);
        assert_true(status == SHOAL_OK || status == SHOAL_ERR_MEMORY);
        if (status == SHOAL_OK)
            sim_platform_free(platform);
        assert_int_equal(base_memory_blocks(), blocks);
    }
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct sim_platform *platform;
    (void)user;
    (void)count;
    (void)round;
    if (sim_platform_parse("p", text, &platform) != SHOAL_OK)
        return;
    assert_in_range(platform->host_count, 1, SIM_HOSTS_MAX);
    assert_in_range(sim_all_hosts(platform) * platform->ranks_per_host, 1, 2 * SIM_RANKS_MAX);
    assert_true(platform->link_bytes_per_ns > 0 && platform->link_latency_ns >= 0);
    assert_in_range(sim_switch_count(platform), 1, sim_all_hosts(platform));
    sim_platform_free(platform);
}

/* Any text is a platform within the limits, or an error. */
static void test_any_text(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {FUZZ_TEXT(full)};
    static const char *const words[] = {
        "hosts ",  "ranks ", "servers ", "link ", " rate ", "gbit", " latency ", "us",
        "switch ", "\n",     "nan",      "inf",   "4096",   "GB/s", "cores ",    NULL};
    struct fuzz fuzz = FUZZ(texts, words, 10000, .is_string = true, .is_alone = true);
    fuzz_run(&fuzz, take_any, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_statement),
        cmocka_unit_test(test_printed_and_read_again),
        cmocka_unit_test(test_an_empty_file_is_the_default),
        cmocka_unit_test(test_errors_name_file_line_and_what_was_expected),
        cmocka_unit_test(test_long_lines_and_missing_files),
        cmocka_unit_test(test_another_number_of_hosts),
        cmocka_unit_test(test_every_failing_allocation),
        cmocka_unit_test(test_any_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
