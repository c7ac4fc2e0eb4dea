/* SPDX-License-Identifier: Apache-2.0 */
/* resource_config_test.c: files as SageMaker writes them, and everything else. */
#include "boot/resource_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "boot/json.h"
#include "support/fuzz.h"

static char path[] = "/tmp/shoal-resource-config-XXXXXX";

static const char real_file[] =
    "{\"current_host\":\"algo-2\",\"current_instance_type\":\"ml.p4d.24xlarge\","
    "\"current_group_name\":\"homogeneousCluster\",\"hosts\":[\"algo-1\",\"algo-10\",\"algo-2\"],"
    "\"instance_groups\":[{\"instance_group_name\":\"homogeneousCluster\","
    "\"instance_type\":\"ml.p4d.24xlarge\",\"hosts\":[\"algo-1\",\"algo-10\",\"algo-2\"]}],"
    "\"network_interface_name\":\"eth0\"}";

static enum shoal_status read_text(const char *text, size_t bytes,
                                   struct boot_resource_config **out)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
    return boot_resource_config_read(path, out);
}

static void a_file_as_sagemaker_writes_it(void **state)
{
    (void)state;
    struct boot_resource_config *config;
    assert_int_equal(read_text(real_file, strlen(real_file), &config), SHOAL_OK);
    assert_int_equal(config->host_count, 3);
    assert_string_equal(config->hosts[1], "algo-10");
    assert_int_equal(config->current, 2);
    assert_string_equal(config->interface_name, "eth0");
    assert_string_equal(config->path, path);
    boot_resource_config_free(config);
}

static void a_processing_job_has_less_in_it(void **state)
{
    (void)state;
    const char *text = " {\n \"hosts\" : [ \"\\u0061lgo-1\" ] , \"current_host\" : \"algo-1\"\n}\n";
    struct boot_resource_config *config;
    assert_int_equal(read_text(text, strlen(text), &config), SHOAL_OK);
    assert_int_equal(config->host_count, 1);
    assert_string_equal(config->hosts[0], "algo-1");
    assert_null(config->interface_name);
    boot_resource_config_free(config);
}

static void wrong_files_are_named_with_their_place(void **state)
{
    (void)state;
    const struct {
        const char *text, *part;
    } cases[] = {
        {"", "line 1, column 1: an object is expected"},
        {"[]", "an object is expected"},
        {"{\"hosts\":[\"a\"],\n \"current_host\":7}", "line 2, column 17: text in quotes"},
        {"{\"hosts\":\"a\",\"current_host\":\"a\"}", "a list is expected"},
        {"{\"hosts\":[\"a\"]}", "\"current_host\" is missing"},
        {"{\"hosts\":[],\"current_host\":\"a\"}", "\"hosts\" is missing or empty"},
        {"{\"current_host\":\"a\"}", "\"hosts\" is missing or empty"},
        {"{\"hosts\":[\"a\"],\"current_host\":\"b\"}", "\"b\" is not in \"hosts\""},
        {"{\"hosts\":[\"a\",\"a\"],\"current_host\":\"a\"}", "twice"},
        {"{\"hosts\":[\"a\"],\"hosts\":[\"a\"],\"current_host\":\"a\"}", "second time"},
        {"{\"hosts\":[\"a\"],\"current_host\":\"a\",\"current_host\":\"a\"}", "second time"},
        {"{\"hosts\":[\"-oProxyCommand=x\"],\"current_host\":\"a\"}", "a name of letters"},
        {"{\"hosts\":[\"a b\"],\"current_host\":\"a\"}", "a name of letters"},
        {"{\"hosts\":[\"\"],\"current_host\":\"a\"}", "a name of letters"},
        {"{\"hosts\":[\"a\\u0000b\"],\"current_host\":\"a\"}", "NUL"},
        {"{\"hosts\":[\"a\"],\"current_host\":\"a\"} x", "more text than one value"},
        {"{\"hosts\":[\"a\"],\"current_host\":\"a\",}", "text in quotes is expected"},
        {"{\"hosts\":[\"a\" \"b\"],\"current_host\":\"a\"}", "\",\" or \"]\""},
        {"{\"hosts\":[\"a\"],\"current_host\":\"a", "closing quote is missing"},
        {"{\"x\":tru,\"hosts\":[\"a\"],\"current_host\":\"a\"}", "a value is expected"},
        {"{\"x\":01,\"hosts\":[\"a\"],\"current_host\":\"a\"}", "\",\" or \"}\""},
        {"{\"x\":1.,\"hosts\":[\"a\"],\"current_host\":\"a\"}", "a value is expected"},
        {"{\"x\":\"\\ud800\",\"hosts\":[\"a\"]}", "half of a character"},
        {"{\"x\":\"\\q\"}", "unknown escape"},
        {"{\"x\":\"\xc0\x80\"}", "not UTF-8"},
        {"{\"x\":\"\xff\"}", "not UTF-8"},
        {"{\"x\" 1}", "\":\" is expected"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct boot_resource_config *config;
        assert_int_equal(read_text(cases[i].text, strlen(cases[i].text), &config),
                         SHOAL_ERR_FORMAT);
        if (strstr(base_error_text(), cases[i].part) == NULL ||
            strstr(base_error_text(), path) == NULL)
            fail_msg("case %zu: \"%s\"", i, base_error_text());
    }
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    char text[4096];
    size_t used = (size_t)sprintf(text, "{\"x\":");
    memset(text + used, '[', 2000);
    struct boot_resource_config *config;
    assert_int_equal(read_text(text, used + 2000, &config), SHOAL_ERR_FORMAT);
    assert_non_null(strstr(base_error_text(), "nested too deeply"));
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    struct boot_resource_config *config;
    assert_int_equal(boot_resource_config_read("/nonexistent/resourceconfig.json", &config),
                     SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "/nonexistent/resourceconfig.json"));
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct boot_resource_config *config;
    struct boot_json json;
    int *refused = user;
    boot_json_begin(&json, text, count);
    enum shoal_status status = boot_json_skip(&json);
    if (status == SHOAL_OK)
        status = boot_json_end(&json);
    assert_true(status == SHOAL_OK || status == SHOAL_ERR_FORMAT);
    *refused += status != SHOAL_OK;
    if (round % 8 == 0 && read_text(text, count, &config) == SHOAL_OK)
        boot_resource_config_free(config);
}

/* Every cut, and many random changes, of a text that has all kinds of values. */
static void broken_texts_never_crash(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"hosts\":[\"a\",\"b\"],\"current_host\":\"a\",\"n\":[-1.5e+3,0,true,false,null,{}],"
        "\"s\":\"\\ud83d\\ude00 \\n \xc3\xa9\",\"network_interface_name\":\"eth0\"}";
    static const char *const words[] = {"null",     "true",    "\\ud83d",    "\\ude00", "\\u0000",
                                        "[[[[[[[[", "{\"a\":", "\"hosts\":", NULL};
    int refused = 0;
    for (size_t bytes = 0; bytes < sizeof(whole) - 1; bytes++) {
        char *text = malloc(bytes + (bytes == 0)); /* so that a read behind its end is seen */
        memcpy(text, whole, bytes);
        take_any(&refused, text, bytes, 0);
        free(text);
    }
    assert_int_equal(refused, sizeof(whole) - 1);
    static const struct fuzz_text texts[] = {FUZZ_TEXT(whole), FUZZ_TEXT(real_file)};
    struct fuzz fuzz = FUZZ(texts, words, 4000, .is_alone = true);
    fuzz_run(&fuzz, take_any, &refused);
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    size_t blocks = base_memory_blocks();
    enum shoal_status status = SHOAL_ERR_MEMORY;
    for (uint64_t nth = 1; status != SHOAL_OK; nth++) {
        struct boot_resource_config *config;
        base_memory_fail_at(nth);
        status = read_text(real_file, strlen(real_file), &config);
        assert_true(status == SHOAL_OK || status == SHOAL_ERR_MEMORY);
        if (status == SHOAL_OK)
            boot_resource_config_free(config);
        assert_int_equal(base_memory_blocks(), blocks);
    }
    base_memory_fail_at(0);
}

static int set_up(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    close(fd);
    return fd < 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_as_sagemaker_writes_it),
        cmocka_unit_test(a_processing_job_has_less_in_it),
        cmocka_unit_test(wrong_files_are_named_with_their_place),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(broken_texts_never_crash),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests_name("boot resource config", tests, set_up, tear_down);
}
