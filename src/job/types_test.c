/* SPDX-License-Identifier: Apache-2.0 */
/* types_test.c: files of types, shares of a machine, and what fits beside what. */
#include "job/types.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/devices.h"
#include "support/files.h"
#include "support/fuzz.h"

#define GIB (UINT64_C(1) << 30)

static const struct job_share machine = {
    .core_thousands = 16000, .memory_bytes = 64 * GIB, .accelerator_count = 8};

/* The rows of a file, NULL when they are refused. */
static struct job_types *types_of(const char *text)
{
    char path[TEXT_FILE_PATH_BYTES];
    struct job_types *types = NULL;
    make_text_file(text, path);
    if (job_types_load(path, &types) != SHOAL_OK)
        types = NULL;
    unlink(path);
    return types;
}

static enum shoal_status need_of(const struct job_types *types, const char *type, int count,
                                 struct job_need *need)
{
    struct job_group group = {type, count};
    return job_types_need(types, &machine, &group, 1, need);
}

static void default_takes_every_type(void **state)
{
    struct job_types *types;
    struct job_need need;
    (void)state;
    assert_int_equal(job_types_load("/nowhere/instances.conf", &types), SHOAL_OK);
    assert_int_equal(need_of(types, "ml.p4d.24xlarge", 2, &need), SHOAL_OK);
    assert_int_equal(need.each[0].core_thousands, 4000);
    assert_int_equal(need.each[0].memory_bytes, 16 * GIB);
    assert_int_equal(need.each[0].accelerator_count, 4);
    assert_false(need.each[0].cores_limited || need.each[0].memory_limited);
    assert_int_equal(need_of(types, "ml.m5.large", 1, &need), SHOAL_OK);
    assert_int_equal(need.each[0].accelerator_count, 0);
    assert_int_equal(need_of(types, "ml.never.seen", 100, &need), SHOAL_OK);
    assert_int_equal(need.each[0].core_thousands, 160);
    job_types_free(types);
}

static void machine_without_accelerators_runs_their_types(void **state)
{
    static const struct job_share laptop = {.core_thousands = 2000, .memory_bytes = 8 * GIB};
    struct job_group group = {"ml.p4d.24xlarge", 2};
    struct job_types *types;
    struct job_need need;
    (void)state;
    assert_int_equal(job_types_load(NULL, &types), SHOAL_OK);
    assert_int_equal(job_types_need(types, &laptop, &group, 1, &need), SHOAL_OK);
    assert_int_equal(need.each[0].core_thousands, 500);
    assert_int_equal(need.all.accelerator_count, 0);
    job_types_free(types);
}

static void rows_say_what_an_instance_gets(void **state)
{
    struct job_types *types = types_of("# of this machine\n"
                                       "ml.p4d.*  cores=8 memory=24.5G # two of them\n"
                                       "    accelerators=4\n"
                                       "ml.c5.*   cores=1/8 accelerators=all\n"
                                       "\n"
                                       "ml.m5.*   memory=512M\n");
    struct job_need need;
    (void)state;
    assert_non_null(types);
    assert_int_equal(need_of(types, "ml.p4d.24xlarge", 2, &need), SHOAL_OK);
    assert_int_equal(need.each[0].core_thousands, 8000);
    assert_int_equal(need.each[0].memory_bytes, 49 * (GIB / 2));
    assert_int_equal(need.all.accelerator_count, 8);
    assert_true(need.each[0].cores_limited && need.each[0].memory_limited);
    assert_int_equal(need_of(types, "ml.c5.xlarge", 1, &need), SHOAL_OK);
    assert_int_equal(need.each[0].core_thousands, 2000);
    assert_int_equal(need.each[0].memory_bytes, 16 * GIB);
    assert_int_equal(need.each[0].accelerator_count, 8);
    assert_false(need.each[0].memory_limited);
    assert_int_equal(need_of(types, "ml.m5.large", 1, &need), SHOAL_OK);
    assert_int_equal(need.each[0].memory_bytes, GIB / 2);
    assert_int_equal(need_of(types, "ml.t3.large", 1, &need), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "no instances of type 'ml.t3.large'"));
    job_types_free(types);
}

static void too_much_is_said(void **state)
{
    struct job_types *types = types_of("a cores=9\nb memory=40G\nc accelerators=3\n* cores=all\n");
    struct job_need need;
    (void)state;
    assert_int_equal(need_of(types, "a", 2, &need), SHOAL_ERR_LIMIT);
    assert_non_null(strstr(base_error_text(), "need 18 cores, and this machine has 16"));
    assert_int_equal(need_of(types, "b", 2, &need), SHOAL_ERR_LIMIT);
    assert_non_null(strstr(base_error_text(), "need 80 GiB of memory, and this machine has 64"));
    assert_int_equal(need_of(types, "c", 3, &need), SHOAL_ERR_LIMIT);
    assert_non_null(strstr(base_error_text(), "need 9 accelerators, and this machine has 8"));
    assert_int_equal(need_of(types, "whole", 1, &need), SHOAL_OK);
    job_types_free(types);
}

static void wrong_rows_are_named(void **state)
{
    static const char *const wrong[] = {"a\nb cores=x",      "a\nb cores=0",   "a\nb cores=-1",
                                        "a\nb cores=3/2",    "a\nb cores=1/0", "a\nb cores=4G",
                                        "a\nb memory=4X",    "a\nb memory=",   "a\nb memory=1e99",
                                        "a\nb accelerators", "a\nb gpus=1",    "a\nb cores=1/4x"};
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_null(types_of(wrong[i]));
        assert_non_null(strstr(base_error_text(), ":2: "));
    }
    assert_null(types_of("  cores=1\n"));
    assert_non_null(strstr(base_error_text(), ":1: an indented line needs a row above it"));
}

static void capacity_holds_all_of_a_job_or_nothing(void **state)
{
    struct job_types *types = types_of("g cores=2 memory=1G accelerators=3\n* cores=8 memory=1G\n");
    struct job_capacity capacity = {.machine = machine};
    struct job_need gpu, cpu;
    uint64_t first, second, none;
    (void)state;
    assert_int_equal(need_of(types, "g", 2, &gpu), SHOAL_OK);
    assert_int_equal(need_of(types, "c", 1, &cpu), SHOAL_OK);
    assert_true(job_capacity_take(&capacity, &gpu, &first));
    assert_int_equal(first, 0x3F);
    assert_int_equal(job_need_accelerators(&gpu, first, 0), 0x07);
    assert_int_equal(job_need_accelerators(&gpu, first, 1), 0x38);
    assert_false(job_capacity_take(&capacity, &gpu, &none));
    assert_true(job_capacity_take(&capacity, &cpu, &second));
    assert_int_equal(second, 0);
    assert_false(job_capacity_take(&capacity, &cpu, &none));
    job_capacity_give(&capacity, &gpu, first);
    assert_true(job_capacity_take(&capacity, &cpu, &none));
    job_capacity_give(&capacity, &cpu, second);
    job_capacity_give(&capacity, &cpu, none);
    job_capacity_retake(&capacity, &gpu, 0xF6);
    assert_false(job_capacity_take(&capacity, &gpu, &none));
    job_capacity_give(&capacity, &gpu, 0xF6);
    assert_int_equal(capacity.core_thousands, 0);
    assert_int_equal(capacity.memory_bytes, 0);
    assert_int_equal(capacity.accelerators, 0);
    job_types_free(types);
}

static void groups_follow_each_other(void **state)
{
    static const int group_of[] = {0, 0, 1, 2};
    struct job_group groups[] = {{"ml.m5.large", 2}, {"ml.p4d.24xlarge", 1}, {"ml.g5.xlarge", 1}};
    struct job_types *types;
    struct job_need need;
    (void)state;
    assert_int_equal(job_types_load(NULL, &types), SHOAL_OK);
    assert_int_equal(job_types_need(types, &machine, groups, 3, &need), SHOAL_OK);
    assert_int_equal(need.all.accelerator_count, 8);
    for (int i = 0; i < 4; i++)
        assert_int_equal(job_need_group(&need, i), group_of[i]);
    assert_int_equal(job_need_accelerators(&need, 0xFF, 1), 0);
    assert_int_equal(job_need_accelerators(&need, 0xFF, 2), 0x0F);
    assert_int_equal(job_need_accelerators(&need, 0xFF, 3), 0xF0);
    assert_int_equal(job_types_need(types, &machine, groups, 6, &need), SHOAL_ERR_ARGUMENT);
    job_types_free(types);
}

static void this_machine_can_be_seen(void **state)
{
    struct job_share here;
    (void)state;
    job_machine_look(&here);
    assert_true(here.core_thousands >= 1000);
    assert_true(here.memory_bytes > 64 << 20);
}

static void instances_see_the_devices_that_they_got(void **state)
{
    (void)state;
    assert_true(devices_shown("null", 0));
    assert_false(devices_shown("sda", UINT64_MAX));
    assert_false(devices_shown("nvidiactl", 0));
    assert_true(devices_shown("nvidiactl", 2));
    assert_true(devices_shown("nvidia-uvm", 2));
    assert_true(devices_shown("nvidia1", 2));
    assert_false(devices_shown("nvidia0", 2));
    assert_false(devices_shown("nvidia10", 2));
    assert_false(devices_shown("neuron3", 2));
    assert_true(devices_shown("dri", 1));
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct job_types *types = types_of(text);
    struct job_need need;
    (void)user;
    (void)count;
    (void)round;
    if (types != NULL)
        need_of(types, "ml.p4d.24xlarge", 3, &need);
    job_types_free(types);
}

/* Files of any words: taken or refused with a line, and nothing is lost. */
static void any_file_is_read_or_refused(void **state)
{
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("# types\nml.p4d.* cores=4 memory=16G accelerators=2\n"
                  "ml.m5.* cores=1/4\n  memory=all\n* cores=0.5 memory=25% accelerators=0")};
    static const char *const words[] = {
        "cores=", "memory=", "accelerators=", "all", "/", "%", "G", "ml.p4d.24xlarge", "[a-",
        "[!",     "?",       "\n ",           NULL};
    struct fuzz fuzz = FUZZ(texts, words, 3000, .is_string = true, .is_alone = true);
    (void)state;
    fuzz_run(&fuzz, take_any, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_takes_every_type),
        cmocka_unit_test(machine_without_accelerators_runs_their_types),
        cmocka_unit_test(rows_say_what_an_instance_gets),
        cmocka_unit_test(too_much_is_said),
        cmocka_unit_test(wrong_rows_are_named),
        cmocka_unit_test(capacity_holds_all_of_a_job_or_nothing),
        cmocka_unit_test(groups_follow_each_other),
        cmocka_unit_test(this_machine_can_be_seen),
        cmocka_unit_test(instances_see_the_devices_that_they_got),
        cmocka_unit_test(any_file_is_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
