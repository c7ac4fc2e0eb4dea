/* SPDX-License-Identifier: Apache-2.0 */
/* description_test.c: job.json as it should be, with each fault, damaged, and without memory. */
#include "job/description.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/outcome.h"
#include "support/files.h"
#include "support/fuzz.h"

static const char whole[] =
    "{\"name\": \"digits-1\", \"program\": [\"python3\", \"train.py\", \"--epochs\", \"3\"],"
    "\"directory\": \"/opt/ml/code\", \"root\": \"/images/pytorch\","
    "\"root_access\": \"own-copy\","
    "\"environment\": {\"A\": \"job\", \"B\": \"\xC3\xA4\"},"
    "\"instances\": [{\"log\": \"/l/1\", \"environment\": {\"A\": \"one\"}},"
    "{\"log\": \"/l/2\", \"folder\": \"/elsewhere\","
    "\"accelerators\": [1, 63], \"limits\": {\"core_thousands\": 500},"
    "\"mounts\": [{\"from\": \"/shard\", \"to\": \"/x\", \"access\": \"writable\"}]}],"
    "\"companions\": [[\"channel-feed\", \"/folder\"]],"
    "\"mounts\": [{\"from\": \"/data\", \"to\": \"/opt/ml/input/data/train\"},"
    "{\"from\": \"/usr\", \"to\": \"/usr\", \"access\": \"own-copy\"}],"
    "\"hidden\": [\"/var/lib/shoal\"],"
    "\"limits\": {\"memory_bytes\": 8589934592, \"core_thousands\": 4000},"
    "\"doors\": [{\"port\": 8080, \"to\": \"127.0.0.1:9090\"}],"
    "\"max_runtime_s\": 3600, \"grace_s\": 60, \"failure_grace_s\": 5}";

static char folder[] = "/tmp/shoal-description-XXXXXX";

/* A new file each time: some file systems write one that is cut and filled again to the disk. */
static enum shoal_status read_text(const char *text, struct job_description **out)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/job.json", folder);
    unlink(path);
    put_file(folder, "job.json", text);
    return job_description_read(folder, out);
}

static const char *variable(const struct job_plan *plan, int instance, const char *name)
{
    char *const *variables = plan->instances[instance].environment;
    for (size_t bytes = strlen(name); *variables != NULL; variables++) {
        if (strncmp(*variables, name, bytes) == 0 && (*variables)[bytes] == '=')
            return *variables + bytes + 1;
    }
    return NULL;
}

static void test_everything_is_read(void **state)
{
    (void)state;
    struct job_description *description;
    char path[128];
    assert_int_equal(read_text(whole, &description), SHOAL_OK);
    const struct job_plan *plan = &description->plan;
    assert_string_equal(plan->name, "digits-1");
    assert_string_equal(plan->program[3], "3");
    assert_null(plan->program[4]);
    assert_string_equal(plan->root, "/images/pytorch");
    assert_int_equal(plan->count, 2);
    assert_string_equal(variable(plan, 0, "A"), "one");
    assert_string_equal(variable(plan, 1, "A"), "job");
    assert_string_equal(variable(plan, 0, "B"), "\xC3\xA4");
    snprintf(path, sizeof(path), "%s/algo-1", folder);
    assert_string_equal(plan->instances[0].folder, path);
    assert_string_equal(plan->instances[1].folder, "/elsewhere");
    assert_int_equal(plan->mount_count, 2);
    assert_int_equal(plan->mounts[0].access, JOB_READ_ONLY);
    assert_int_equal(plan->mounts[1].access, JOB_OWN_COPY);
    assert_int_equal(plan->instances[0].mount_count, 0);
    assert_int_equal(plan->instances[1].mount_count, 1);
    assert_string_equal(plan->instances[1].mounts[0].from, "/shard");
    assert_int_equal(plan->instances[1].mounts[0].access, JOB_WRITABLE);
    assert_int_equal(description->companion_count, 1);
    assert_string_equal(description->companions[0][1], "/folder");
    assert_null(description->companions[0][2]);
    assert_string_equal(plan->hidden[0], "/var/lib/shoal");
    assert_int_equal(plan->limits.memory_bytes, 8589934592);
    assert_true(plan->root_copied);
    assert_null(plan->instances[0].limits);
    assert_int_equal(plan->instances[1].limits->core_thousands, 500);
    assert_int_equal(plan->instances[1].limits->memory_bytes, 8589934592);
    assert_int_equal(plan->instances[0].accelerators_hidden, 0);
    assert_int_equal(plan->instances[1].accelerators_hidden,
                     ~(UINT64_C(1) << 1 | UINT64_C(1) << 63));
    assert_int_equal(plan->door_count, 1);
    assert_int_equal(plan->doors[0].port, 8080);
    assert_string_equal(plan->doors[0].to, "127.0.0.1:9090");
    assert_int_equal(description->max_runtime_s, 3600);
    job_description_free(description);
    assert_int_equal(base_memory_blocks(), 0);
}

/* A description whose members are those of a good one, but for `more`. */
static void put_members(const char *more)
{
    json_t *job = json_loads(whole, 0, NULL), *extra = json_loads(more, 0, NULL);
    assert_non_null(extra);
    json_object_update(job, extra);
    char *text = json_dumps(job, 0);
    put_file(folder, "job.json", text);
    free(text);
    json_decref(extra);
    json_decref(job);
}

static void test_each_fault_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *more, *text;
    } faults[] = {
        {"{\"surprise\": 1}", "\"job\" has no member \"surprise\""},
        {"{\"instances\": []}", "\"instances\" must be a list of 1 to 100 objects"},
        {"{\"instances\": [{}]}", "\"log\" must be a text"},
        {"{\"program\": [1]}", "\"program\" must be a text"},
        {"{\"program\": \"sh\"}", "\"program\" must be a list"},
        {"{\"max_runtime_s\": 0}", "\"max_runtime_s\" must be 1 second to 28 days"},
        {"{\"max_runtime_s\": 2419201}", "\"max_runtime_s\" must be 1 second to 28 days"},
        {"{\"grace_s\": -1}", "\"grace_s\" must be a whole number"},
        {"{\"environment\": {\"A=\": \"b\"}}", "\"environment\" has a name that"},
        {"{\"environment\": {\"A\": 1}}", "\"environment\" must be a text"},
        {"{\"environment\": []}", "\"environment\" must be an object"},
        {"{\"mounts\": [{\"from\": \"/\"}]}", "\"to\" must be a text"},
        {"{\"mounts\": [{\"from\": \"/\", \"to\": \"/x\", \"access\": \"all\"}]}",
         "\"access\" must be read-only"},
        {"{\"doors\": [{\"port\": 65536, \"to\": \"127.0.0.1:1\"}]}", "\"port\" must be 1 to"},
        {"{\"companions\": [\"channel-feed\"]}", "\"companions\" must be a list"},
        {"{\"companions\": [[]]}", "\"companions\" has one that is empty"},
        {"{\"limits\": {\"memory_bytes\": 1.5}}", "\"memory_bytes\" must be a whole number"},
    };
    struct job_description *description;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        put_members(faults[i].more);
        assert_int_equal(job_description_read(folder, &description), SHOAL_ERR_FORMAT);
        if (strstr(base_error_text(), faults[i].text) == NULL)
            fail_msg("'%s' does not say '%s'", base_error_text(), faults[i].text);
        assert_int_equal(base_memory_blocks(), 0);
    }
    assert_int_equal(read_text("{\n\"name\": nonsense}", &description), SHOAL_ERR_FORMAT);
    assert_non_null(strstr(base_error_text(), "line 2, column"));
    assert_int_equal(read_text("[]", &description), SHOAL_ERR_FORMAT);
    assert_int_equal(job_description_read("/nowhere", &description), SHOAL_ERR_SYSTEM);
    assert_int_equal(job_description_read("here", &description), SHOAL_ERR_ARGUMENT);
}

static void take_damaged(void *user, char *text, size_t count, uint64_t round)
{
    struct job_description *description;
    (void)user;
    (void)count;
    (void)round;
    if (read_text(text, &description) == SHOAL_OK)
        job_description_free(description);
}

/* Damaged texts are refused or read, and nothing is kept of them. */
static void test_damaged_texts(void **state)
{
    static const struct fuzz_text texts[] = {FUZZ_TEXT(whole)};
    static const char *const words[] = {"\"limits\": ", "{\"from\": ",     "null", "true",   "[[",
                                        "\\u0000",      "\"instances\": ", "-0.5", "algo-1", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 2000, .is_string = true, .is_alone = true);
    (void)state;
    fuzz_run(&fuzz, take_damaged, NULL);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct job_description *description;
    uint64_t before = base_memory_count();
    assert_int_equal(read_text(whole, &description), SHOAL_OK);
    uint64_t count = base_memory_count() - before;
    job_description_free(description);
    for (uint64_t nth = 1; nth <= count; nth++) {
        base_memory_fail_at(nth);
        assert_int_equal(read_text(whole, &description), SHOAL_ERR_MEMORY);
        base_memory_fail_at(0);
        assert_int_equal(base_memory_blocks(), 0);
    }
}

/* ---- texts of others ---- */

static void expect_clean(const char *text, size_t bytes, size_t chars, const char *expected)
{
    char out[64];
    job_clean_text(text, bytes, chars, out, sizeof(out));
    assert_string_equal(out, expected);
}

static void test_texts_become_utf8(void **state)
{
    (void)state;
    expect_clean("plain\n\n", 7, 100, "plain");
    expect_clean("a\0b\033[1m\tc", 9, 100, "ab[1m\tc");
    expect_clean("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x90\x9F", 9, 2, "\xC3\xA4\xE2\x82\xAC");
    expect_clean("\xC0\x80\xED\xA0\x80\xFF", 6, 3, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    expect_clean("\xE2\x82", 2, 100, "\xEF\xBF\xBD\xEF\xBF\xBD");
    expect_clean("", 0, 100, "");
}

static void take_any_text(void *user, char *text, size_t count, uint64_t round)
{
    char out[1024];
    size_t chars = 1 + (size_t)fuzz_below(&round, 20);
    (void)user;
    job_clean_text(text, count, chars, out, sizeof(out));
    json_t *same = json_string(out); /* refuses what is not UTF-8 */
    assert_non_null(same);
    json_decref(same);
}

static void test_any_bytes_become_utf8(void **state)
{
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x90\x9F plain\n"),
        FUZZ_TEXT("\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80\xE2\x82")};
    struct fuzz fuzz = FUZZ(texts, NULL, 20000, .bytes_max = 64);
    (void)state;
    fuzz_run(&fuzz, take_any_text, NULL);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char path[64];
    (void)state;
    snprintf(path, sizeof(path), "%s/job.json", folder);
    return unlink(path) != 0 || rmdir(folder) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_read), cmocka_unit_test(test_each_fault_is_named),
        cmocka_unit_test(test_damaged_texts),      cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_texts_become_utf8),  cmocka_unit_test(test_any_bytes_become_utf8),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
