/* SPDX-License-Identifier: Apache-2.0 */
/* collect_test.c: what jobs leave: models, outputs, checkpoints. */
#include "base/clock.h"
#include "channel/archive.h"
#include "channel/channel_fixture.h"
#include "support/files.h"

#define PATIENCE_MS   20000
#define REQUEST(more) "{'OutputDataConfig': {'S3OutputPath': 's3://bkt/out/'" more "}}"
#define CHECKPOINTS                                           \
    "{'OutputDataConfig': {'S3OutputPath': 's3://bkt/out'}, " \
    "'CheckpointConfig': {'S3Uri': 's3://bkt/ck', 'LocalPath': '/opt/ml/points/'}}"

/* Unpacks an object in the folder `to` of the job's folder. */
static void unpack(struct trial *trial, const char *key, const char *to)
{
    struct s3_object object;
    int fd, folder_fd, job_fd = open(trial->folder, O_RDONLY | O_DIRECTORY);
    assert_int_equal(s3_object_get(trial->store, "bkt", key, NULL, &object, &fd), S3_OK);
    s3_object_release(&object);
    expect_ok(channel_folder_open(job_fd, to, &folder_fd));
    expect_ok(channel_archive_extract(fd, folder_fd, NULL, NULL));
    close(fd);
    close(folder_fd);
    close(job_fd);
}

static void etag_of(struct trial *trial, const char *key, char out[S3_ETAG_BYTES])
{
    struct s3_object object;
    assert_int_equal(s3_object_get(trial->store, "bkt", key, NULL, &object, NULL), S3_OK);
    snprintf(out, S3_ETAG_BYTES, "%s", object.etag);
    s3_object_release(&object);
}

static bool is_object(struct trial *trial, const char *key)
{
    struct s3_object object;
    if (s3_object_get(trial->store, "bkt", key, NULL, &object, NULL) != S3_OK)
        return false;
    s3_object_release(&object);
    return true;
}

/* ---- models and outputs ---- */

static void models_and_outputs_are_packed(void **state)
{
    struct trial *trial = *state;
    char uri[CHANNEL_URI_BYTES], first[S3_ETAG_BYTES], second[S3_ETAG_BYTES];
    trial_job(trial, 2, REQUEST(""));
    put_file(trial->folder, "algo-1/ml/model/weights", "weights");
    put_file(trial->folder, "algo-2/ml/model/shard/2", "of the second");
    put_file(trial->folder, "algo-2/ml/model/weights", "not these");
    put_file(trial->folder, "algo-2/ml/output/data/curve.csv", "1,2");
    put_file(trial->folder, "algo-2/ml/output/failure", "it failed");
    put_file(trial->folder, "algo-2/ml/output/other", "not data");
    expect_ok(channel_model_uri(&trial->job, uri));
    assert_string_equal(uri, "s3://bkt/out/trial/output/model.tar.gz");
    expect_ok(channel_collect(&trial->job));
    etag_of(trial, "out/trial/output/model.tar.gz", first);
    unpack(trial, "out/trial/output/model.tar.gz", "model");
    file_is(trial, "model/weights", "weights");
    file_is(trial, "model/shard/2", "of the second");
    unpack(trial, "out/trial/output/output.tar.gz", "output");
    file_is(trial, "output/curve.csv", "1,2");
    file_is(trial, "output/failure", "it failed");
    file_is(trial, "output/other", "-");
    expect_ok(channel_collect(&trial->job)); /* as after a kill */
    etag_of(trial, "out/trial/output/model.tar.gz", second);
    assert_string_equal(first, second);
}

static void nothing_makes_no_object(void **state)
{
    struct trial *trial = *state;
    trial_job(trial, 2, REQUEST(""));
    put_file(trial->folder, "algo-1/ml/input/x", "");
    expect_ok(channel_collect(&trial->job));
    assert_false(is_object(trial, "out/trial/output/model.tar.gz"));
    assert_false(is_object(trial, "out/trial/output/output.tar.gz"));
}

static void without_compression_files_are_objects(void **state)
{
    struct trial *trial = *state;
    char uri[CHANNEL_URI_BYTES];
    trial_job(trial, 2, REQUEST(", 'CompressionType': 'NONE'"));
    put_file(trial->folder, "algo-1/ml/model/a/b", "b");
    put_file(trial->folder, "algo-2/ml/model/c", "c");
    expect_ok(channel_model_uri(&trial->job, uri));
    assert_string_equal(uri, "s3://bkt/out/trial/output/model/");
    expect_ok(channel_collect(&trial->job));
    object_is(trial, "out/trial/output/model/a/b", "b");
    object_is(trial, "out/trial/output/model/c", "c");
}

static void hostile_folders_give_nothing_away(void **state)
{
    struct trial *trial = *state;
    char path[256];
    trial_job(trial, 2, REQUEST(""));
    put_file(trial->fixture->directory, "secret/file", "secret");
    put_file(trial->folder, "algo-1/ml/output/data/x", "x");
    snprintf(path, sizeof(path), "%s/algo-1/ml/model", trial->folder);
    assert_int_equal(symlink("../../../secret", path), 0);
    snprintf(path, sizeof(path), "%s/algo-1/ml/output/failure", trial->folder);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof(path), "%s/algo-2", trial->folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/algo-2/ml", trial->folder);
    assert_int_equal(symlink("../../secret", path), 0);
    expect_ok(channel_collect(&trial->job));
    assert_false(is_object(trial, "out/trial/output/model.tar.gz"));
    unpack(trial, "out/trial/output/output.tar.gz", "output");
    file_is(trial, "output/x", "x");
    file_is(trial, "output/failure", "-");
}

static void a_missing_bucket_is_said(void **state)
{
    struct trial *trial = *state;
    static struct channel_control control = {.is_cancelled = true};
    trial_job(trial, 1, "{'OutputDataConfig': {'S3OutputPath': 's3://no-such-bucket/'}}");
    put_file(trial->folder, "algo-1/ml/model/a", "a");
    assert_int_equal(channel_collect(&trial->job), SHOAL_ERR_ARGUMENT);
    assert_string_equal(base_error_text(),
                        "ClientError: Artifact upload failed: s3://no-such-bucket/trial/output/"
                        "model.tar.gz: NoSuchBucket: The specified bucket does not exist");
    trial_job(trial, 1, REQUEST(""));
    trial->job.control = &control;
    assert_int_equal(channel_collect(&trial->job), SHOAL_ERR_ABORTED);
    assert_false(is_object(trial, "out/trial/output/model.tar.gz"));
}

/* ---- checkpoints ---- */

static void object_becomes(struct trial *trial, const char *key, const char *text)
{
    int64_t deadline_ns = base_deadline_ns(PATIENCE_MS);
    char seen[256];
    do {
        if (get_text(trial->store, "bkt", key, seen, sizeof(seen)) != S3_OK)
            snprintf(seen, sizeof(seen), "-");
        if (strcmp(seen, text) == 0)
            return;
        base_sleep_ms(10);
    } while (base_now_ns() < deadline_ns);
    fail_msg("object %s has '%s', not '%s'", key, seen, text);
}

static void checkpoints_go_both_ways(void **state)
{
    struct trial *trial = *state;
    struct channel_checkpoints *checkpoints;
    char path[256], before[S3_ETAG_BYTES];
    struct stat about;
    object_put(trial, "ck/epoch-1/model", "one");
    object_put(trial, "ck/old", "old");
    object_put(trial, "ckother", "not below the folder");
    trial_job(trial, 2, CHECKPOINTS);
    expect_ok(trial_prepare(trial));
    assert_string_equal(mount_of(trial, 1, "/opt/ml/points"), "algo-2/checkpoints writable");
    file_is(trial, "algo-1/checkpoints/epoch-1/model", "one");
    file_is(trial, "algo-2/checkpoints/old", "old");
    snprintf(path, sizeof(path), "%s/algo-1/checkpoints/epoch-1/model", trial->folder);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_nlink, 1); /* a copy, to be written in */
    etag_of(trial, "ck/old", before);
    expect_ok(channel_checkpoints_start(&trial->job, &checkpoints));
    assert_non_null(checkpoints);

    /* A file that is being written is not there before it is whole. */
    snprintf(path, sizeof(path), "%s/algo-1/checkpoints/growing", trial->folder);
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_int_equal(write(fd, "half", 4), 4);
    put_file(trial->folder, "algo-2/checkpoints/epoch-2/model", "two");
    put_file(trial->folder, "algo-1/checkpoints/epoch-1/model", "one again");
    object_becomes(trial, "ck/epoch-2/model", "two");
    object_becomes(trial, "ck/epoch-1/model", "one again");
    assert_false(is_object(trial, "ck/growing"));
    assert_int_equal(write(fd, " whole", 6), 6);
    close(fd);
    object_becomes(trial, "ck/growing", "half whole");

    /* A key goes with the last host's file. */
    snprintf(path, sizeof(path), "%s/algo-2/checkpoints/epoch-2/model", trial->folder);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/algo-1/checkpoints/old", trial->folder);
    assert_int_equal(unlink(path), 0);
    object_becomes(trial, "ck/epoch-2/model", "-");
    assert_true(is_object(trial, "ck/old"));
    put_file(trial->folder, "algo-1/checkpoints/last", "at the end");
    channel_checkpoints_end(checkpoints, true);
    object_is(trial, "ck/last", "at the end");
    object_is(trial, "ckother", "not below the folder");
}

/* A new service finds the folders; what the old one did is not done again. */
static void checkpoints_go_on_after_a_kill(void **state)
{
    struct trial *trial = *state;
    struct s3_object one, two;
    object_put(trial, "ck/a", "a");
    trial_job(trial, 1, CHECKPOINTS);
    expect_ok(trial_prepare(trial));
    put_file(trial->folder, "algo-1/checkpoints/b", "b");
    expect_ok(channel_collect(&trial->job));
    object_is(trial, "ck/b", "b");
    assert_int_equal(s3_object_get(trial->store, "bkt", "ck/b", NULL, &one, NULL), S3_OK);
    base_sleep_ms(2);
    expect_ok(channel_collect(&trial->job));
    assert_int_equal(s3_object_get(trial->store, "bkt", "ck/b", NULL, &two, NULL), S3_OK);
    assert_true(one.modified_ms == two.modified_ms);
    s3_object_release(&one);
    s3_object_release(&two);
    expect_ok(trial_prepare(trial)); /* the job is tried again */
    file_is(trial, "algo-1/checkpoints/b", "b");
}

/* Follows a job of so many hosts that finds "a", until a file that one of them makes is in the
 * bucket. */
static struct channel_checkpoints *follow_one(struct trial *trial, int hosts, const char *file,
                                              const char *key)
{
    struct channel_checkpoints *checkpoints;
    object_put(trial, "ck/a", "a");
    trial_job(trial, hosts, CHECKPOINTS);
    expect_ok(trial_prepare(trial));
    expect_ok(channel_checkpoints_start(&trial->job, &checkpoints));
    put_file(trial->folder, file, "made");
    object_becomes(trial, key, "made");
    return checkpoints;
}

/* Which the killed one can't have seen. */
static void checkpoints_that_went_while_no_service_ran_go_from_the_bucket(void **state)
{
    struct trial *trial = *state;
    char path[256];
    object_put(trial, "ck/kept", "kept");
    struct channel_checkpoints *checkpoints =
        follow_one(trial, 2, "algo-2/checkpoints/b/c", "ck/b/c");
    channel_checkpoints_end(checkpoints, false);
    object_put(trial, "ck/of-others", "of others");
    static const char *const gone[] = {"algo-1/checkpoints/a", "algo-2/checkpoints/a",
                                       "algo-2/checkpoints/b/c", "algo-1/checkpoints/kept"};
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", trial->folder, gone[i]);
        assert_int_equal(unlink(path), 0);
    }
    expect_ok(channel_checkpoints_start(&trial->job, &checkpoints));
    channel_checkpoints_end(checkpoints, true);
    assert_false(is_object(trial, "ck/a"));
    assert_false(is_object(trial, "ck/b/c"));
    object_is(trial, "ck/kept", "kept");
    object_is(trial, "ck/of-others", "of others");
}

/* Somebody removes the folders of a job: that removes nothing from the bucket. */
static void folders_that_go_take_nothing_along(void **state)
{
    struct trial *trial = *state;
    char path[256];
    struct channel_checkpoints *checkpoints = follow_one(trial, 1, "algo-1/checkpoints/b", "ck/b");
    snprintf(path, sizeof(path), "%s/algo-1", trial->folder);
    expect_ok(channel_tree_remove(AT_FDCWD, path));
    channel_checkpoints_end(checkpoints, true);
    expect_ok(channel_checkpoints_start(&trial->job, &checkpoints)); /* makes them anew */
    channel_checkpoints_end(checkpoints, true);
    object_is(trial, "ck/a", "a");
    object_is(trial, "ck/b", "made");
}

static void planted_links_are_no_checkpoints(void **state)
{
    struct trial *trial = *state;
    char path[256];
    trial_job(trial, 1, CHECKPOINTS);
    expect_ok(trial_prepare(trial));
    put_file(trial->folder, "secret", "secret");
    put_file(trial->folder, "algo-1/checkpoints/real", "real");
    snprintf(path, sizeof(path), "%s/algo-1/checkpoints/link", trial->folder);
    assert_int_equal(symlink("../../secret", path), 0);
    snprintf(path, sizeof(path), "%s/algo-1/checkpoints/folder", trial->folder);
    assert_int_equal(symlink("../..", path), 0);
    expect_ok(channel_collect(&trial->job));
    object_is(trial, "ck/real", "real");
    assert_false(is_object(trial, "ck/link"));
    assert_false(is_object(trial, "ck/folder/secret"));
}

static void bad_places_of_checkpoints_are_said(void **state)
{
    struct trial *trial = *state;
    static const char *const bad[] = {
        "{'CheckpointConfig': {'S3Uri': 's3://bkt/ck', 'LocalPath': 'relative'}}",
        "{'CheckpointConfig': {'S3Uri': 's3://bkt/ck', 'LocalPath': '/opt/ml/'}}",
        "{'CheckpointConfig': {'S3Uri': 's3://bkt/ck', 'LocalPath': '/'}}",
        "{'CheckpointConfig': {'S3Uri': 'bkt/ck'}}",
        "{'CheckpointConfig': {'S3Uri': 's3://no-such-bucket/ck'}}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        trial_job(trial, 1, bad[i]);
        assert_int_equal(trial_prepare(trial), SHOAL_ERR_ARGUMENT);
    }
}

static void a_job_without_checkpoints_has_none(void **state)
{
    struct trial *trial = *state;
    struct channel_checkpoints *checkpoints = (void *)1;
    trial_job(trial, 1, REQUEST(""));
    expect_ok(channel_checkpoints_start(&trial->job, &checkpoints));
    assert_null(checkpoints);
    channel_checkpoints_end(checkpoints, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRIAL_TEST(models_and_outputs_are_packed),
        TRIAL_TEST(nothing_makes_no_object),
        TRIAL_TEST(without_compression_files_are_objects),
        TRIAL_TEST(hostile_folders_give_nothing_away),
        TRIAL_TEST(a_missing_bucket_is_said),
        TRIAL_TEST(checkpoints_go_both_ways),
        TRIAL_TEST(checkpoints_go_on_after_a_kill),
        TRIAL_TEST(checkpoints_that_went_while_no_service_ran_go_from_the_bucket),
        TRIAL_TEST(folders_that_go_take_nothing_along),
        TRIAL_TEST(planted_links_are_no_checkpoints),
        TRIAL_TEST(bad_places_of_checkpoints_are_said),
        TRIAL_TEST(a_job_without_checkpoints_has_none),
    };
    return cmocka_run_group_tests_name("what jobs leave", tests, NULL, NULL);
}
