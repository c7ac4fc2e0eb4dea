/* SPDX-License-Identifier: Apache-2.0 */
/* input_test.c: places in S3, tables of file systems, augmented manifests: of any bytes. */
#include "channel/input.h"

#include "base/status.h"
#include "channel/channel_fixture.h"
#include "support/files.h"

/* A copy of a text, `changes` bytes of it changed to any but NUL; freed by the caller. */
static char *changed(const char *text, int changes, unsigned *seed)
{
    char *copy = strdup(text);
    size_t bytes = strlen(copy);
    for (int i = 0; i < changes; i++)
        copy[(size_t)rand_r(seed) % bytes] = (char)(rand_r(seed) % 255 + 1);
    if (rand_r(seed) % 4 == 0)
        copy[(size_t)rand_r(seed) % bytes] = '\0';
    return copy;
}

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

static void places_of_any_bytes(void **state)
{
    (void)state;
    unsigned seed = 5;
    for (int round = 0; round < 20000; round++) {
        struct channel_uri uri;
        char *text = changed(round % 2 == 0 ? "s3://bucket/some/key"
                                            : "https://bucket.s3.us-east-1.amazonaws.com/some/key",
                             round % 5, &seed);
        if (channel_uri_parse(text, &uri) == SHOAL_OK)
            assert_true(strlen(uri.bucket) > 0 && strlen(uri.key) <= S3_KEY_BYTES_MAX);
        free(text);
    }
}

/* Whatever the table says: a directory that exists, or an error. */
static void tables_of_any_bytes(void **state)
{
    struct trial *trial = *state;
    struct channel_input input = {
        .name = "c", .file_system = "fs-0123456789", .directory = "/x", .is_writable = true};
    static char table[256];
    char line[256], path[CHANNEL_PATH_BYTES];
    unsigned seed = 9;
    snprintf(table, sizeof(table), "%s/table", trial->folder);
    snprintf(line, sizeof(line), "# of\nfs-0123456789 /tmp rw # one\nfs-2 /var ro\n");
    trial_job(trial, 1, "{}");
    trial->job.file_systems = table;
    for (int round = 0; round < 300; round++) {
        char *text = changed(line, round % 6, &seed);
        unlink(table);
        put_file(trial->folder, "table", text);
        if (channel_file_system_find(&trial->job, &input, path, sizeof(path)) == SHOAL_OK)
            assert_int_equal(access(path, F_OK), 0);
        free(text);
    }
}

/* Records that are written, or an error. */
static void augmented_manifests_of_any_bytes(void **state)
{
    struct trial *trial = *state;
    static const char manifest[] = "{\"a-ref\": \"s3://bkt/x\", \"b\": {\"c\": [1, \"d\"]}}\n"
                                   "{\"a-ref\": \"s3://bkt/y\", \"b\": \"text\"}\n";
    unsigned seed = 13;
    object_put(trial, "x", "x");
    object_put(trial, "y", "y");
    for (int round = 0; round < 60; round++) {
        char *text = changed(manifest, round % 4, &seed);
        object_put(trial, "m", text);
        free(text);
        trial_job(trial, 1,
                  "{'InputDataConfig': [{'ChannelName': 'c', 'InputMode': 'Pipe', 'DataSource': "
                  "{'S3DataSource': {'S3DataType': 'AugmentedManifestFile', 'S3Uri': 's3://bkt/m', "
                  "'AttributeNames': ['a-ref', 'b']}}}]}");
        enum shoal_status status = trial_prepare(trial);
        assert_true(status == SHOAL_OK || status == SHOAL_ERR_ARGUMENT);
    }
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
