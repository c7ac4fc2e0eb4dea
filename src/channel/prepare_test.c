/* SPDX-License-Identifier: Apache-2.0 */
/* prepare_test.c: what jobs find in /opt/ml/input, from a real store. */
#include "channel/channel_fixture.h"
#include "support/files.h"
#include "support/fuzz.h"

#define CHANNEL(name, uri, more)                                                 \
    "{'ChannelName': '" name "', 'DataSource': {'S3DataSource': {'S3DataType': " \
    "'S3Prefix', 'S3Uri': '" uri "'" more
#define INPUTS(list) "{'InputDataConfig': [" list "]}"

static void put_objects(struct trial *trial, const char *const *keys)
{
    for (; *keys != NULL; keys++)
        object_put(trial, *keys, *keys);
}

/* ---- input/config ---- */

static void configuration_has_the_documented_form(void **state)
{
    struct trial *trial = *state;
    object_put(trial, "in/a", "a");
    trial_job(trial, 2,
              "{'HyperParameters': {'lr': '0.1', 'sagemaker_program': '\\'train.py\\''}, "
              "'CheckpointConfig': {'S3Uri': 's3://bkt/ck'}, 'InputDataConfig': [" CHANNEL(
                  "train", "s3://bkt/in",
                  ", 'S3DataDistributionType': 'ShardedByS3Key'") "}}, "
                                                                  "'ContentType': 'text/csv', "
                                                                  "'InputMode': 'FastFile'}]}");
    expect_ok(trial_prepare(trial));
    file_is(trial, "algo-1/ml/input/config/resourceconfig.json",
            "{\"current_group_name\":\"homogeneousCluster\",\"current_host\":\"algo-1\","
            "\"current_instance_type\":\"ml.m5.large\",\"hosts\":[\"algo-1\",\"algo-2\"],"
            "\"instance_groups\":[{\"hosts\":[\"algo-1\",\"algo-2\"],\"instance_group_name\":"
            "\"homogeneousCluster\",\"instance_type\":\"ml.m5.large\"}],"
            "\"network_interface_name\":\"eth0\"}");
    file_is(trial, "algo-2/ml/input/config/hyperparameters.json",
            "{\"lr\":\"0.1\",\"sagemaker_program\":\"\\\"train.py\\\"\"}");
    file_is(trial, "algo-2/ml/input/config/inputdataconfig.json",
            "{\"train\":{\"ContentType\":\"text/csv\",\"RecordWrapperType\":\"None\","
            "\"S3DistributionType\":\"ShardedByS3Key\",\"TrainingInputMode\":\"FastFile\"}}");
    file_is(trial, "algo-1/ml/input/config/checkpointconfig.json", "{\"S3Uri\":\"s3://bkt/ck\"}");
    assert_non_null(strstr(trial_text(trial, "algo-2/ml/input/config/resourceconfig.json"),
                           "\"current_host\":\"algo-2\""));
}

/* ---- prefixes ---- */

static void a_prefix_gives_the_paths_behind_it(void **state)
{
    struct trial *trial = *state;
    put_objects(trial,
                (const char *const[]){"data/train/a.csv", "data/train/b/c.csv", "data/train.csv",
                                      "one", "data/val/x", "data/valid/y", NULL});
    object_put(trial, "data/train/", "");
    object_put(trial, "data/train/empty/", "");
    trial_job(
        trial, 2,
        INPUTS(
            CHANNEL("folder", "s3://bkt/data/train/", "}}}") ", " CHANNEL("file", "s3://bkt/data/train.csv", "}}}") ", " CHANNEL(
                "part", "s3://bkt/data/va",
                "}}}") ", " CHANNEL("both", "s3://bkt/data/val",
                                    "}}}") ", " CHANNEL("name", "s3://bkt/one",
                                                        "}}}") ", " CHANNEL("bare",
                                                                            "s3://bkt/data/valid",
                                                                            "}}}") ", " CHANNEL("al"
                                                                                                "l",
                                                                                                "ht"
                                                                                                "tp"
                                                                                                "s:"
                                                                                                "//"
                                                                                                "bk"
                                                                                                "t."
                                                                                                "s3"
                                                                                                ".u"
                                                                                                "s-"
                                                                                                "ea"
                                                                                                "st"
                                                                                                "-1"
                                                                                                ".a"
                                                                                                "ma"
                                                                                                "zo"
                                                                                                "na"
                                                                                                "ws"
                                                                                                ".c"
                                                                                                "om"
                                                                                                "/",
                                                                                                "}}"
                                                                                                "}")));
    expect_ok(trial_prepare(trial));
    file_is(trial, "channels/all/folder/a.csv", "data/train/a.csv");
    file_is(trial, "channels/all/folder/b/c.csv", "data/train/b/c.csv");
    file_is(trial, "channels/all/file/train.csv", "data/train.csv");
    file_is(trial, "channels/all/part/val/x", "data/val/x");
    file_is(trial, "channels/all/part/valid/y", "data/valid/y");
    file_is(trial, "channels/all/both/val/x", "data/val/x");
    file_is(trial, "channels/all/both/valid/y", "data/valid/y");
    file_is(trial, "channels/all/bare/y", "data/valid/y");
    file_is(trial, "channels/all/name/one", "one");
    file_is(trial, "channels/all/all/data/train/a.csv", "data/train/a.csv");
    assert_string_equal(mount_of(trial, 1, "/opt/ml/input/data/folder"),
                        "channels/all/folder own-copy");
    char path[256];
    struct stat about;
    snprintf(path, sizeof(path), "%s/channels/all/folder/a.csv", trial->folder);
    assert_int_equal(stat(path, &about), 0);
    assert_true(about.st_nlink > 1);
    snprintf(path, sizeof(path), "%s/channels/all/folder/empty", trial->folder);
    assert_int_equal(stat(path, &about), 0);
    expect_ok(trial_prepare(trial)); /* as after a kill */
    file_is(trial, "channels/all/folder/a.csv", "data/train/a.csv");
}

static void fast_file_refuses_parts_of_names(void **state)
{
    struct trial *trial = *state;
    put_objects(trial, (const char *const[]){"data/val/x", "data/valid/y", "whole", NULL});
    const char *const good[] = {"s3://bkt/data/val/", "s3://bkt/data/valid", "s3://bkt/whole",
                                "s3://bkt"};
    char request[512];
    for (size_t i = 0; i < 4; i++) {
        snprintf(request, sizeof(request),
                 INPUTS("{'ChannelName': 'c', 'InputMode': 'FastFile', 'DataSource': "
                        "{'S3DataSource': {'S3DataType': 'S3Prefix', 'S3Uri': '%s'}}}"),
                 good[i]);
        trial_job(trial, 1, request);
        expect_ok(trial_prepare(trial));
    }
    trial_job(trial, 1, INPUTS(CHANNEL("c", "s3://bkt/data/val", "}}, 'InputMode': 'FastFile'}")));
    assert_int_equal(trial_prepare(trial), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "ClientError: Data download failed: Failed to "
                                              "download data. For FastFile mode, partial S3"));
}

/* ---- shards ---- */

/* How many of the keys k0 to k<count-1> a host has; marks them. */
static int shard_of(struct trial *trial, const char *host, int count, int *owners, int number)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/channels/%s/c/k%d", trial->folder, host, i);
        if (access(path, F_OK) == 0) {
            assert_int_equal(owners[i], -1);
            owners[i] = number;
            found++;
        }
    }
    return found;
}

static void shards_split_the_objects(void **state)
{
    struct trial *trial = *state;
    int owners[4][40];
    for (int i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof(key), "in/k%d", i);
        object_put(trial, key, key);
    }
    static const char *const shuffles[] = {"", ", 'ShuffleConfig': {'Seed': 7}",
                                           ", 'ShuffleConfig': {'Seed': 7}",
                                           ", 'ShuffleConfig': {'Seed': 8}"};
    for (int k = 0; k < 4; k++) {
        char request[512];
        snprintf(request, sizeof(request),
                 INPUTS("{'ChannelName': 'c', 'DataSource': {'S3DataSource': {'S3DataType': "
                        "'S3Prefix', 'S3Uri': 's3://bkt/in', 'S3DataDistributionType': "
                        "'ShardedByS3Key'}}%s}"),
                 shuffles[k]);
        trial_job(trial, 3, request);
        expect_ok(trial_prepare(trial));
        memset(owners[k], -1, sizeof(owners[k]));
        assert_int_equal(shard_of(trial, "algo-1", 40, owners[k], 0), 14);
        assert_int_equal(shard_of(trial, "algo-2", 40, owners[k], 1), 13);
        assert_int_equal(shard_of(trial, "algo-3", 40, owners[k], 2), 13);
        assert_string_equal(mount_of(trial, 1, "/opt/ml/input/data/c"),
                            "channels/algo-2/c own-copy");
    }
    assert_memory_not_equal(owners[0], owners[1], sizeof(owners[0]));
    assert_memory_equal(owners[1], owners[2], sizeof(owners[0]));
    assert_memory_not_equal(owners[2], owners[3], sizeof(owners[0]));
}

static void groups_get_their_channels(void **state)
{
    struct trial *trial = *state;
    put_objects(trial, (const char *const[]){"in/a", "in/b", "in/c", "in/d", NULL});
    trial_job(
        trial, 3,
        INPUTS(CHANNEL(
            "some", "s3://bkt/in/",
            ", 'S3DataDistributionType': "
            "'ShardedByS3Key', 'InstanceGroupNames': ['workers']}}}") ", " CHANNEL("one",
                                                                                   "s3://bkt/in/",
                                                                                   ", "
                                                                                   "'InstanceGroupN"
                                                                                   "ames': "
                                                                                   "['chief']}}"
                                                                                   "}")));
    trial->hosts[0].group = "chief";
    trial->hosts[1].group = trial->hosts[2].group = "workers";
    expect_ok(channel_check(&trial->job));
    expect_ok(trial_prepare(trial));
    assert_string_equal(mount_of(trial, 0, "/opt/ml/input/data/some"), "-");
    assert_string_equal(mount_of(trial, 2, "/opt/ml/input/data/some"),
                        "channels/algo-3/some own-copy");
    assert_string_equal(mount_of(trial, 0, "/opt/ml/input/data/one"), "channels/all/one own-copy");
    assert_string_equal(mount_of(trial, 1, "/opt/ml/input/data/one"), "-");
    file_is(trial, "channels/algo-2/some/a", "in/a");
    file_is(trial, "channels/algo-3/some/b", "in/b");
    file_is(trial, "algo-1/ml/input/config/inputdataconfig.json",
            "{\"one\":{\"RecordWrapperType\":\"None\",\"S3DistributionType\":"
            "\"FullyReplicated\",\"TrainingInputMode\":\"File\"}}");
    trial_job(trial, 1, INPUTS(CHANNEL("c", "s3://bkt/in/", ", 'InstanceGroupNames': ['no']}}}")));
    assert_int_equal(channel_check(&trial->job), SHOAL_ERR_ARGUMENT);
}

/* ---- manifests ---- */

#define MANIFEST(more)                                                           \
    INPUTS("{'ChannelName': 'c', 'DataSource': {'S3DataSource': {'S3DataType': " \
           "'ManifestFile', 'S3Uri': 's3://bkt/m'" more "}}}")

static void a_manifest_names_its_objects(void **state)
{
    struct trial *trial = *state;
    put_objects(trial, (const char *const[]){"p/x/a", "p/b", "p/not", NULL});
    object_put(trial, "m", "[{\"prefix\": \"s3://bkt/p/\"}, \"x/a\", \"b\"]");
    trial_job(trial, 2, MANIFEST(", 'S3DataDistributionType': 'ShardedByS3Key'"));
    expect_ok(trial_prepare(trial));
    file_is(trial, "channels/algo-1/c/x/a", "p/x/a");
    file_is(trial, "channels/algo-2/c/b", "p/b");
    file_is(trial, "channels/algo-2/c/not", "-");
}

static void bad_manifests_are_client_errors(void **state)
{
    struct trial *trial = *state;
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "[{\"prefix\": \"s3://bkt/p/\"}]",
        "[{\"prefix\": \"\"}, \"a\"]",
        "[\"a\"]",
        "[{\"prefix\": \"s3://bkt/p/\"}, 7]",
        "[{\"prefix\": \"s3://bkt/p/\"}, \"../../etc/passwd\"]",
        "[{\"prefix\": \"s3://bkt/p/\"}, \"not-there\"]",
        "[{\"prefix\": \"s3://no-such-bucket/p/\"}, \"a\"]",
        "[{\"prefix\": \"ftp://bkt/p/\"}, \"a\"]",
        "[{\"prefix\": \"s3://bkt/p/\"}, \"a\", \"a\"]",
        "[{\"prefix\": \"s3://bkt/p/\"}, \"a\", \"a/b\"]",
    };
    put_objects(trial, (const char *const[]){"p/a", "p/a/b", NULL});
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        object_put(trial, "m", bad[i]);
        trial_job(trial, 1, MANIFEST(""));
        assert_int_equal(trial_prepare(trial), SHOAL_ERR_ARGUMENT);
        if (strncmp(base_error_text(), "ClientError: Data download failed: ", 35) != 0)
            fail_msg("%zu: %s", i, base_error_text());
    }
}

static void take_any_manifest(void *user, char *text, size_t count, uint64_t round)
{
    (void)count;
    (void)round;
    object_put(user, "m", text);
    trial_job(user, 1, MANIFEST(""));
    trial_prepare(user);
}

/* Whatever a manifest is: files of the channel, or an error. */
static void broken_manifests_are_read(void **state)
{
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("[{\"prefix\": \"s3://bkt/p/\"}, \"a\", \"b/c\"]")};
    static const char *const words[] = {"\"prefix\"", "s3://", "null", "\"a\", ", "/..", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 60, .is_string = true);
    put_objects(*state, (const char *const[]){"p/a", "p/b/c", NULL});
    fuzz_run(&fuzz, take_any_manifest, *state);
}

/* ---- other members ---- */

static void gzip_is_unpacked(void **state)
{
    struct trial *trial = *state;
    hello_put_packed(trial, "in/a.csv.gz");
    object_put(trial, "in/empty.gz", "");
    trial_job(trial, 1, INPUTS(CHANNEL("c", "s3://bkt/in", "}}, 'CompressionType': 'Gzip'}")));
    expect_ok(trial_prepare(trial));
    file_is(trial, "channels/all/c/a.csv", "hello\n");
    file_is(trial, "channels/all/c/empty", "");
    object_put(trial, "in/plain.gz", "plain");
    assert_int_equal(trial_prepare(trial), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "s3://bkt/in/plain.gz: this is not gzip"));
}

static void file_systems_are_directories(void **state)
{
    struct trial *trial = *state;
    static char table[256];
    char line[512];
    static const char request[] =
        INPUTS("{'ChannelName': 'c', 'DataSource': {'FileSystemDataSource': {'FileSystemId': "
               "'%s', 'FileSystemAccessMode': '%s', 'FileSystemType': '%s', 'DirectoryPath': "
               "'%s'}}}");
    snprintf(table, sizeof(table), "%s/filesystems.conf", trial->folder);
    put_file(trial->folder, "shared/data/x", "x");
    snprintf(line, sizeof(line), "# id directory\nfs-01 %s/shared\nfs-02 %s/shared ro\n",
             trial->folder, trial->folder);
    put_file(trial->folder, "filesystems.conf", line);
    static const struct {
        const char *id, *access, *type, *path, *mount; /* NULL: refused */
    } cases[] = {{"fs-01", "ro", "EFS", "/data", "shared/data read-only"},
                 {"fs-01", "rw", "EFS", "/data/", "shared/data/ writable"},
                 {"fs-01", "rw", "FSxLustre", "/abcdef/data", "shared/data writable"},
                 {"fs-01", "ro", "EFS", "/", "shared/ read-only"},
                 {"fs-02", "ro", "EFS", "/data", "shared/data read-only"},
                 {"fs-02", "rw", "EFS", "/data", NULL},
                 {"fs-03", "ro", "EFS", "/data", NULL},
                 {"fs-01", "ro", "EFS", "/not-there", NULL},
                 {"fs-01", "ro", "EFS", "/../..", NULL},
                 {"fs-01", "ro", "EFS", "/data/x", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), request, cases[i].id, cases[i].access, cases[i].type,
                 cases[i].path);
        trial_job(trial, 1, text);
        trial->job.file_systems = table;
        enum shoal_status status = trial_prepare(trial);
        assert_int_equal(channel_check(&trial->job), status);
        assert_int_equal(status, cases[i].mount != NULL ? SHOAL_OK : SHOAL_ERR_ARGUMENT);
        if (cases[i].mount == NULL)
            continue;
        assert_string_equal(mount_of(trial, 0, "/opt/ml/input/data/c"), cases[i].mount);
    }
}

static void what_is_missing_is_said(void **state)
{
    struct trial *trial = *state;
    trial_job(trial, 1,
              "{'RoleArn': 'arn:aws:iam::000000000000:role/r', 'InputDataConfig': [" CHANNEL(
                  "c", "s3://bkt/none", "}}}") "]}");
    assert_int_equal(channel_check(&trial->job), SHOAL_ERR_ARGUMENT);
    assert_string_equal(
        base_error_text(),
        "No S3 objects found under S3 URL \"s3://bkt/none\" given in input data source. Please "
        "ensure that the bucket exists in the selected region (us-east-1), that objects exist "
        "under that S3 prefix, and that the role \"arn:aws:iam::000000000000:role/r\" has "
        "\"s3:ListBucket\" permissions on bucket \"bkt\".");
    assert_int_equal(trial_prepare(trial), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(),
                           "ClientError: Data download failed: No S3 objects found under S3 URL"));
    trial_job(trial, 1, INPUTS(CHANNEL("c", "s3://no-such-bucket/x", "}}}")));
    assert_int_equal(channel_check(&trial->job), SHOAL_ERR_ARGUMENT);
    assert_int_equal(trial_prepare(trial), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "NoSuchBucket"));
}

static void members_that_do_not_go_together_are_refused(void **state)
{
    struct trial *trial = *state;
    static const char *const bad[] = {
        INPUTS("{'ChannelName': 'c'}"),
        INPUTS(CHANNEL("..", "s3://bkt/in", "}}}")),
        INPUTS(CHANNEL("c", "s3://bkt/in", "}}}") "," CHANNEL("c", "s3://bkt/in", "}}}")),
        INPUTS(CHANNEL("c", "bkt/in", "}}}")),
        INPUTS(CHANNEL("c", "s3://", "}}}")),
        INPUTS(CHANNEL("c", "https://elsewhere.example/bkt/in", "}}}")),
        INPUTS(CHANNEL("c", "s3://bkt/in", ", 'AttributeNames': ['a']}}}")),
        INPUTS(CHANNEL("c", "s3://bkt/in", "}}, 'RecordWrapperType': 'RecordIO'}")),
        INPUTS(CHANNEL("c", "s3://bkt/in",
                       "}}, 'InputMode': 'FastFile', 'CompressionType': "
                       "'Gzip'}")),
        INPUTS("{'ChannelName': 'c', 'DataSource': {'S3DataSource': {'S3DataType': "
               "'AugmentedManifestFile', 'S3Uri': 's3://bkt/m', 'AttributeNames': ['a']}}}"),
        INPUTS("{'ChannelName': 'c', 'InputMode': 'Pipe', 'DataSource': {'S3DataSource': "
               "{'S3DataType': 'AugmentedManifestFile', 'S3Uri': 's3://bkt/m'}}}"),
        INPUTS("{'ChannelName': 'c', 'DataSource': {'S3DataSource': {'S3DataType': 'Converse', "
               "'S3Uri': 's3://bkt/m'}}}"),
    };
    object_put(trial, "in/a", "a");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        trial_job(trial, 1, bad[i]);
        if (channel_check(&trial->job) != SHOAL_ERR_ARGUMENT)
            fail_msg("%s was taken", bad[i]);
    }
}

static void a_cancelled_job_ends_early(void **state)
{
    struct trial *trial = *state;
    static struct channel_control control = {.is_cancelled = true};
    object_put(trial, "in/a", "a");
    trial_job(trial, 1, INPUTS(CHANNEL("c", "s3://bkt/in", "}}}")));
    trial->job.control = &control;
    assert_int_equal(trial_prepare(trial), SHOAL_ERR_ABORTED);
    atomic_store(&control.is_cancelled, false);
    expect_ok(trial_prepare(trial));
    assert_int_equal(atomic_load(&control.file_count), 1);
}

/* What a job left in its folders before it is prepared again. */
static void planted_links_lead_nowhere(void **state)
{
    struct trial *trial = *state;
    char link[256], outside[128];
    object_put(trial, "in/a", "a");
    snprintf(outside, sizeof(outside), "%s/outside", trial->fixture->directory);
    put_file(trial->fixture->directory, "outside", "untouched");
    put_file(trial->folder, "algo-1/ml/input/config/x", "");
    snprintf(link, sizeof(link), "%s/algo-1/ml/input/config/hyperparameters.json", trial->folder);
    assert_int_equal(symlink(outside, link), 0);
    trial_job(trial, 1, INPUTS(CHANNEL("c", "s3://bkt/in", "}}}")));
    expect_ok(trial_prepare(trial));
    file_is(trial, "../outside", "untouched");
    file_is(trial, "algo-1/ml/input/config/hyperparameters.json", "{}");
    snprintf(link, sizeof(link), "%s/algo-1", trial->folder);
    expect_ok(channel_tree_remove(AT_FDCWD, link));
    assert_int_equal(mkdir(link, 0755), 0);
    snprintf(link, sizeof(link), "%s/algo-1/ml", trial->folder);
    assert_int_equal(symlink(trial->fixture->directory, link), 0);
    assert_int_equal(trial_prepare(trial), SHOAL_ERR_ARGUMENT);
    file_is(trial, "../input", "-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRIAL_TEST(configuration_has_the_documented_form),
        TRIAL_TEST(a_prefix_gives_the_paths_behind_it),
        TRIAL_TEST(fast_file_refuses_parts_of_names),
        TRIAL_TEST(shards_split_the_objects),
        TRIAL_TEST(groups_get_their_channels),
        TRIAL_TEST(a_manifest_names_its_objects),
        TRIAL_TEST(bad_manifests_are_client_errors),
        TRIAL_TEST(broken_manifests_are_read),
        TRIAL_TEST(gzip_is_unpacked),
        TRIAL_TEST(file_systems_are_directories),
        TRIAL_TEST(what_is_missing_is_said),
        TRIAL_TEST(members_that_do_not_go_together_are_refused),
        TRIAL_TEST(a_cancelled_job_ends_early),
        TRIAL_TEST(planted_links_lead_nowhere),
    };
    return cmocka_run_group_tests_name("channels prepared", tests, NULL, NULL);
}
