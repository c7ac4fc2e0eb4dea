/* SPDX-License-Identifier: Apache-2.0 */
/* elsewhere_test.c: jobs whose data is in another service's buckets: a server of ours with a store
 * of its own. */
#include "channel/channel_fixture.h"
#include "channel/elsewhere.h"
#include "http/http.h"
#include "s3/protocol.h"
#include "support/files.h"

struct served {
    struct trial *trial;
    struct fixture *far;
    struct s3_protocol protocol;
    struct http_server *server;
    char table[160];
};

static int setup(void **state)
{
    struct served *served = calloc(1, sizeof(*served));
    struct http_options options = {.host = "127.0.0.1", .limits = HTTP_LIMITS_INIT};
    char line[128];
    if (trial_setup((void **)&served->trial) != 0 || fixture_setup((void **)&served->far) != 0)
        return -1;
    served->protocol.store = served->far->store;
    options.handlers[HTTP_S3] = s3_protocol_handler();
    options.users[HTTP_S3] = &served->protocol;
    if (http_server_start(&options, &served->server) != SHOAL_OK)
        return -1;
    snprintf(line, sizeof(line), "far* http://127.0.0.1:%d style=path\n",
             http_server_port(served->server));
    put_file(served->trial->folder, "buckets.conf", line);
    snprintf(served->table, sizeof(served->table), "%s/buckets.conf", served->trial->folder);
    setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "invented", 1);
    *state = served;
    return bucket_make(served->far->store, "far") == S3_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct served *served = *state;
    http_server_stop(served->server);
    fixture_teardown((void **)&served->far);
    trial_teardown((void **)&served->trial);
    free(served);
    return 0;
}

static void far_put(struct served *served, const char *key, const char *text)
{
    assert_int_equal(put_text(served->far->store, "far", key, text), S3_OK);
}

static void far_is(struct served *served, const char *key, const char *text)
{
    char seen[4096];
    assert_int_equal(get_text(served->far->store, "far", key, seen, sizeof(seen)), S3_OK);
    assert_string_equal(seen, text);
}

static void job(struct served *served, int count, const char *request)
{
    trial_job(served->trial, count, request);
    served->trial->job.buckets = served->table;
}

static void channels_come_from_elsewhere(void **state)
{
    struct served *served = *state;
    struct trial *trial = served->trial;
    far_put(served, "in/a", "a");
    far_put(served, "in/b/c", "c");
    far_put(served, "m", "[{\"prefix\": \"s3://far/in/\"}, \"b/c\"]");
    object_put(trial, "near", "near");
    job(served, 2,
        "{'InputDataConfig': ["
        "{'ChannelName': 'c', 'DataSource': {'S3DataSource': {'S3DataType': 'S3Prefix', 'S3Uri': "
        "'s3://far/in', 'S3DataDistributionType': 'ShardedByS3Key'}}},"
        "{'ChannelName': 'm', 'DataSource': {'S3DataSource': {'S3DataType': 'ManifestFile', "
        "'S3Uri': 's3://far/m'}}},"
        "{'ChannelName': 'p', 'InputMode': 'Pipe', 'DataSource': {'S3DataSource': {'S3DataType': "
        "'S3Prefix', 'S3Uri': 's3://far/in/a'}}},"
        "{'ChannelName': 'n', 'DataSource': {'S3DataSource': {'S3DataType': 'S3Prefix', 'S3Uri': "
        "'s3://bkt/near'}}}]}");
    expect_ok(channel_check(&trial->job));
    expect_ok(trial_prepare(trial));
    file_is(trial, "channels/algo-1/c/a", "a");
    file_is(trial, "channels/algo-2/c/b/c", "c");
    file_is(trial, "channels/all/m/b/c", "c");
    file_is(trial, "channels/pipe/p/files/0/0", "a");
    file_is(trial, "channels/all/n/near", "near");
}

static void many_objects_come_side_by_side(void **state)
{
    struct served *served = *state;
    struct trial *trial = served->trial;
    char key[32], path[64];
    for (int i = 0; i < 70; i++) {
        snprintf(key, sizeof(key), "in/%d/%d", i % 3, i);
        far_put(served, key, key);
    }
    job(served, 1,
        "{'InputDataConfig': [{'ChannelName': 'c', 'DataSource': {'S3DataSource': {'S3DataType': "
        "'S3Prefix', 'S3Uri': 's3://far/in'}}}]}");
    expect_ok(trial_prepare(trial));
    for (int i = 0; i < 70; i++) {
        snprintf(key, sizeof(key), "in/%d/%d", i % 3, i);
        snprintf(path, sizeof(path), "channels/all/c/%d/%d", i % 3, i);
        file_is(trial, path, key);
    }
    far_put(served, "in/0/0/below", "a file is in its way");
    assert_int_equal(trial_prepare(trial), SHOAL_ERR_ARGUMENT);
    assert_non_null(
        strstr(base_error_text(), "ClientError: Data download failed: s3://far/in/0/0"));
}

static void what_is_missing_elsewhere_is_said(void **state)
{
    struct served *served = *state;
    static const char *const uris[] = {"s3://far/none", "s3://far-away/in"};
    char request[256];
    for (int i = 0; i < 2; i++) {
        snprintf(request, sizeof(request),
                 "{'InputDataConfig': [{'ChannelName': 'c', 'DataSource': {'S3DataSource': "
                 "{'S3DataType': 'S3Prefix', 'S3Uri': '%s'}}}]}",
                 uris[i]);
        job(served, 1, request);
        assert_int_equal(channel_check(&served->trial->job), SHOAL_ERR_ARGUMENT);
        assert_non_null(strstr(base_error_text(), "No S3 objects found under S3 URL"));
        assert_int_equal(trial_prepare(served->trial), SHOAL_ERR_ARGUMENT);
    }
}

static void models_and_checkpoints_go_elsewhere(void **state)
{
    struct served *served = *state;
    struct trial *trial = served->trial;
    struct s3_object object;
    far_put(served, "ck/start", "start");
    job(served, 1,
        "{'OutputDataConfig': {'S3OutputPath': 's3://far/out', 'CompressionType': 'NONE'},"
        "'CheckpointConfig': {'S3Uri': 's3://far/ck/'}}");
    expect_ok(trial_prepare(trial));
    file_is(trial, "algo-1/checkpoints/start", "start");
    put_file(trial->folder, "algo-1/ml/model/weights", "weights");
    put_file(trial->folder, "algo-1/ml/output/data/x", "x");
    put_file(trial->folder, "algo-1/checkpoints/made", "made");
    expect_ok(channel_collect(&trial->job));
    far_is(served, "out/trial/output/model/weights", "weights");
    far_is(served, "ck/made", "made");
    assert_int_equal(s3_object_get(served->far->store, "far", "out/trial/output/output.tar.gz",
                                   NULL, &object, NULL),
                     S3_OK);
    s3_object_release(&object);
}

int main(void)
{
#define SERVED_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        SERVED_TEST(channels_come_from_elsewhere),
        SERVED_TEST(many_objects_come_side_by_side),
        SERVED_TEST(what_is_missing_elsewhere_is_said),
        SERVED_TEST(models_and_checkpoints_go_elsewhere),
    };
    return cmocka_run_group_tests_name("buckets elsewhere", tests, NULL, NULL);
}
