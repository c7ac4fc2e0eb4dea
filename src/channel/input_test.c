/* SPDX-License-Identifier: Apache-2.0 */
/* input_test.c: places in S3, tables of file systems, augmented manifests: of any bytes. */
#include "channel/input.h"

#include "base/status.h"
#include "channel/channel_fixture.h"
#include "support/files.h"
#include "support/fuzz.h"

static void places_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *bucket, *key; /* bucket NULL: refused */
    } cases[] = {{"s3://bkt/a/b", "bkt", "a/b"},
                 {"s3://bkt", "bkt", ""},
                 {"s3://bkt/", "bkt", ""},
                 {"s3://bkt//a", "bkt", "/a"},
                 {"https://bkt.s3.us-east-1.amazonaws.com/a", "bkt", "a"},
                 {"https://my.bkt.s3.amazonaws.com/a", "my.bkt", "a"},
                 {"https://s3.eu-west-1.amazonaws.com/bkt/a/b", "bkt", "a/b"},
                 {"https://s3.amazonaws.com/bkt", "bkt", ""},
                 {"https://s3.amazonaws.com/", NULL, NULL},
                 {"https://example.com/bkt/a", NULL, NULL},
                 {"https://bkt.s3.amazonaws.com.example.com/a", NULL, NULL},
                 {"s3://", NULL, NULL},
                 {"s3:///a", NULL, NULL},
                 {"/bkt/a", NULL, NULL},
                 {"", NULL, NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct channel_uri uri;
        enum shoal_status status = channel_uri_parse(cases[i].text, &uri);
        assert_int_equal(status, cases[i].bucket != NULL ? SHOAL_OK : SHOAL_ERR_ARGUMENT);
        if (cases[i].bucket == NULL)
            continue;
        assert_string_equal(uri.bucket, cases[i].bucket);
        assert_string_equal(uri.key, cases[i].key);
    }
}

static void take_any_place(void *user, char *text, size_t count, uint64_t round)
{
    struct channel_uri uri;
    (void)user;
    (void)count;
    (void)round;
    if (channel_uri_parse(text, &uri) == SHOAL_OK)
        assert_true(strlen(uri.bucket) > 0 && strlen(uri.key) <= S3_KEY_BYTES_MAX);
}

static void places_of_any_bytes(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("s3://bucket/some/key"),
        FUZZ_TEXT("https://bucket.s3.us-east-1.amazonaws.com/some/key"),
        FUZZ_TEXT("https://s3.amazonaws.com/bucket/some/key")};
    static const char *const words[] = {"s3://", "https://", ".amazonaws.com", "s3.", "/", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_string = true, .is_alone = true);
    fuzz_run(&fuzz, take_any_place, NULL);
}

static void take_any_table(void *user, char *text, size_t count, uint64_t round)
{
    struct trial *trial = user;
    struct channel_input input = {
        .name = "c", .file_system = "fs-0123456789", .directory = "/x", .is_writable = true};
    char path[CHANNEL_PATH_BYTES];
    (void)count;
    (void)round;
    unlink(trial->job.file_systems);
    put_file(trial->folder, "table", text);
    if (channel_file_system_find(&trial->job, &input, path, sizeof(path)) == SHOAL_OK)
        assert_int_equal(access(path, F_OK), 0);
}

/* Whatever the table says: a directory that exists, or an error. */
static void tables_of_any_bytes(void **state)
{
    struct trial *trial = *state;
    static char table[256];
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("# of\nfs-0123456789 /tmp rw # one\nfs-2 /var ro\n")};
    static const char *const words[] = {"fs-0123456789", " /tmp", "..", " rw", "#", "\n", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 300, .is_string = true);
    snprintf(table, sizeof(table), "%s/table", trial->folder);
    trial_job(trial, 1, "{}");
    trial->job.file_systems = table;
    fuzz_run(&fuzz, take_any_table, trial);
}

static void take_any_manifest(void *user, char *text, size_t count, uint64_t round)
{
    (void)count;
    (void)round;
    object_put(user, "m", text);
    trial_job(user, 1,
              "{'InputDataConfig': [{'ChannelName': 'c', 'InputMode': 'Pipe', 'DataSource': "
              "{'S3DataSource': {'S3DataType': 'AugmentedManifestFile', 'S3Uri': 's3://bkt/m', "
              "'AttributeNames': ['a-ref', 'b']}}}]}");
    enum shoal_status status = trial_prepare(user);
    assert_true(status == SHOAL_OK || status == SHOAL_ERR_ARGUMENT);
}

/* Records that are written, or an error. */
static void augmented_manifests_of_any_bytes(void **state)
{
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("{\"a-ref\": \"s3://bkt/x\", \"b\": {\"c\": [1, \"d\"]}}\n"
                  "{\"a-ref\": \"s3://bkt/y\", \"b\": \"text\"}\n")};
    static const char *const words[] = {"\"a-ref\"", "s3://", "null", "\\ud83d", "\n", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 60, .is_string = true);
    object_put(*state, "x", "x");
    object_put(*state, "y", "y");
    fuzz_run(&fuzz, take_any_manifest, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_read),
        cmocka_unit_test(places_of_any_bytes),
        TRIAL_TEST(tables_of_any_bytes),
        TRIAL_TEST(augmented_manifests_of_any_bytes),
    };
    return cmocka_run_group_tests_name("what requests say of channels", tests, NULL, NULL);
}
