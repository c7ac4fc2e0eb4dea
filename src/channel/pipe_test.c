/* SPDX-License-Identifier: Apache-2.0 */
/* pipe_test.c: Pipe mode, with the process that fills the FIFOs (this program, started again). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "channel/channel_fixture.h"
#include "channel/objects.h"
#include "support/files.h"

#define PATIENCE_MS 20000
#define PIPE(type, more, outside)                                                   \
    "{'InputDataConfig': [{'ChannelName': 'c', 'InputMode': 'Pipe', 'DataSource': " \
    "{'S3DataSource': {'S3DataType': '" type "'" more "}}" outside "}]}"

extern char **environ;

struct feeder {
    pid_t pid;
    int err;
};

static struct feeder feeder_start(struct trial *trial)
{
    struct feeder feeder;
    int ends[2];
    posix_spawn_file_actions_t actions;
    char *argv[] = {(char *)"test", (char *)CHANNEL_FEED_COMMAND, trial->folder, NULL};
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    assert_int_equal(posix_spawn(&feeder.pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    feeder.err = ends[0];
    return feeder;
}

static void feeder_end(struct feeder *feeder)
{
    kill(feeder->pid, SIGKILL);
    waitpid(feeder->pid, NULL, 0);
    close(feeder->err);
}

/* Opens a FIFO as readers do, but not for ever. */
static int fifo_open(struct trial *trial, const char *path)
{
    char whole[256];
    int64_t deadline_ns = base_deadline_ns(PATIENCE_MS);
    int fd;
    snprintf(whole, sizeof(whole), "%s/%s", trial->folder, path);
    while ((fd = open(whole, O_RDONLY | O_NONBLOCK)) < 0 && base_now_ns() < deadline_ns)
        base_sleep_ms(1);
    if (fd < 0)
        fail_msg("no FIFO %s", path);
    return fd;
}

/* Reads until `room` bytes or the writer's end. */
static size_t fifo_read(int fd, char *out, size_t room)
{
    size_t used = 0;
    bool has_begun = false;
    int64_t deadline_ns = base_deadline_ns(PATIENCE_MS);
    while (used < room && base_now_ns() < deadline_ns) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        poll(&poller, 1, 10);
        ssize_t got = read(fd, out + used, room - used);
        if (got == 0 && (has_begun || (poller.revents & POLLHUP) != 0))
            break;
        if (got > 0) {
            used += (size_t)got;
            has_begun = true;
        }
    }
    return used;
}

/* All of an epoch, with zeros as '.'. */
static const char *epoch_text(struct trial *trial, const char *path)
{
    static char text[4096];
    int fd = fifo_open(trial, path);
    size_t bytes = fifo_read(fd, text, sizeof(text) - 1);
    close(fd);
    for (size_t i = 0; i < bytes; i++)
        text[i] = text[i] == '\0' ? '.' : text[i];
    text[bytes] = '\0';
    return text;
}

/* ---- what comes ---- */

static void objects_come_one_after_the_other_in_every_epoch(void **state)
{
    struct trial *trial = *state;
    object_put(trial, "in/a", "first ");
    object_put(trial, "in/b/c", "second ");
    object_put(trial, "in/b/", "");
    object_put(trial, "in/d", "third");
    trial_job(trial, 2, PIPE("S3Prefix", ", 'S3Uri': 's3://bkt/in'", ""));
    expect_ok(trial_prepare(trial));
    const char *command, *folder;
    assert_int_equal(
        json_unpack(trial->description, "{s:[[s, s]]}", "companions", &command, &folder), 0);
    assert_string_equal(command, CHANNEL_FEED_COMMAND);
    assert_string_equal(folder, trial->folder);
    struct feeder feeder = feeder_start(trial);
    assert_string_equal(epoch_text(trial, "algo-1/ml/input/data/c_0"), "first second third");
    assert_string_equal(epoch_text(trial, "algo-1/ml/input/data/c_1"), "first second third");
    assert_string_equal(epoch_text(trial, "algo-2/ml/input/data/c_0"), "first second third");
    assert_string_equal(epoch_text(trial, "algo-1/ml/input/data/c_2"), "first second third");
    feeder_end(&feeder);
}

static void a_reader_may_close_early(void **state)
{
    struct trial *trial = *state;
    size_t bytes = 8 << 20;
    char *large = malloc(bytes), some[10];
    memset(large, 'x', bytes);
    struct s3_put_options options = {.bucket = "bkt", .key = "in/large", .bytes = -1};
    assert_int_equal(put_with(trial->store, &options, NULL, large, bytes, NULL), S3_OK);
    trial_job(trial, 1, PIPE("S3Prefix", ", 'S3Uri': 's3://bkt/in/'", ""));
    expect_ok(trial_prepare(trial));
    struct feeder feeder = feeder_start(trial);
    for (int epoch = 0; epoch < 3; epoch++) {
        char path[64];
        snprintf(path, sizeof(path), "algo-1/ml/input/data/c_%d", epoch);
        int fd = fifo_open(trial, path);
        assert_int_equal(fifo_read(fd, some, sizeof(some)), sizeof(some));
        close(fd);
    }
    int fd = fifo_open(trial, "algo-1/ml/input/data/c_3");
    char *seen = malloc(bytes + 1);
    assert_int_equal(fifo_read(fd, seen, bytes + 1), bytes);
    assert_memory_equal(seen, large, bytes);
    close(fd);
    feeder_end(&feeder);
    free(seen);
    free(large);
}

static void record_io_wraps_each_object(void **state)
{
    struct trial *trial = *state;
    object_put(trial, "in/a", "12345");
    object_put(trial, "in/b", "1234");
    object_put(trial, "in/c", "");
    trial_job(trial, 1,
              PIPE("S3Prefix", ", 'S3Uri': 's3://bkt/in'", ", 'RecordWrapperType': 'RecordIO'"));
    expect_ok(trial_prepare(trial));
    struct feeder feeder = feeder_start(trial);
    assert_string_equal(epoch_text(trial, "algo-1/ml/input/data/c_0"),
                        "\x0A\x23\xD7\xCE\x05...12345...\x0A\x23\xD7\xCE\x04...1234"
                        "\x0A\x23\xD7\xCE....");
    feeder_end(&feeder);
}

static void gzip_is_unpacked_on_the_way(void **state)
{
    struct trial *trial = *state;
    hello_put_packed(trial, "in/a.gz");
    trial_job(trial, 1,
              PIPE("S3Prefix", ", 'S3Uri': 's3://bkt/in'",
                   ", 'CompressionType': 'Gzip', 'RecordWrapperType': 'RecordIO'"));
    expect_ok(trial_prepare(trial));
    struct feeder feeder = feeder_start(trial);
    assert_string_equal(epoch_text(trial, "algo-1/ml/input/data/c_0"),
                        "\x0A\x23\xD7\xCE\x06...hello\n..");
    feeder_end(&feeder);
}

static void an_augmented_manifest_gives_its_attributes(void **state)
{
    struct trial *trial = *state;
    static const char *const attributes = ", 'S3Uri': 's3://bkt/m', 'AttributeNames': "
                                          "['image-ref', 'label', 'box']";
    char request[1024];
    object_put(trial, "images/1", "<one>");
    object_put(trial, "images/2", "<two>");
    object_put(trial, "m",
               "{\"other\": 1, \"label\": \"cat\", \"image-ref\": \"s3://bkt/images/1\", "
               "\"box\": {\"x\": 1}}\n\n"
               "{\"image-ref\": \"s3://bkt/images/2\", \"label\": 0, \"box\": [1, 2]}");
    snprintf(request, sizeof(request), PIPE("AugmentedManifestFile", "%s", ""), attributes);
    trial_job(trial, 1, request);
    expect_ok(trial_prepare(trial));
    struct feeder feeder = feeder_start(trial);
    assert_string_equal(epoch_text(trial, "algo-1/ml/input/data/c_0"),
                        "<one>cat{\"x\":1}<two>0[1,2]");
    feeder_end(&feeder);
    static const char *const bad[] = {
        "",
        "\n\n",
        "[]",
        "{\"label\": 1, \"box\": 1}",
        "{\"image-ref\": 7, \"label\": 1, \"box\": 1}",
        "{\"image-ref\": \"s3://bkt/none\", \"label\": 1, \"box\": 1}",
        "{\"image-ref\": \"/etc/passwd\", \"label\": 1, \"box\": 1}",
        "{\"image-ref\": "};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        object_put(trial, "m", bad[i]);
        assert_int_equal(trial_prepare(trial), SHOAL_ERR_ARGUMENT);
        assert_non_null(strstr(base_error_text(), "ClientError: Data download failed: "));
    }
}

/* ---- order ---- */

static void shuffled_shards_change_with_the_epoch(void **state)
{
    struct trial *trial = *state;
    char seen[2][3][32];
    for (int i = 0; i < 16; i++) {
        char key[16], text[2] = {(char)('a' + i), '\0'};
        snprintf(key, sizeof(key), "in/%02d", i);
        object_put(trial, key, text);
    }
    for (int run = 0; run < 2; run++) {
        trial_job(trial, 2,
                  PIPE("S3Prefix",
                       ", 'S3Uri': 's3://bkt/in', 'S3DataDistributionType': 'ShardedByS3Key'",
                       ", 'ShuffleConfig': {'Seed': 11}"));
        expect_ok(trial_prepare(trial));
        struct feeder feeder = feeder_start(trial);
        for (int epoch = 0; epoch < 3; epoch++) {
            char path[64];
            for (int host = 1; host <= 2; host++) {
                snprintf(path, sizeof(path), "algo-%d/ml/input/data/c_%d", host, epoch);
                snprintf(seen[run][epoch] + (host - 1) * 8, 9, "%s", epoch_text(trial, path));
            }
            unsigned letters = 0;
            for (int i = 0; i < 16; i++)
                letters |= 1u << (seen[run][epoch][i] - 'a');
            assert_int_equal(letters, 0xFFFF); /* all, each on one host */
        }
        assert_string_not_equal(seen[run][0], seen[run][1]);
        feeder_end(&feeder);
    }
    for (int epoch = 0; epoch < 3; epoch++)
        assert_string_equal(seen[0][epoch], seen[1][epoch]);
}

static void orders_are_permutations(void **state)
{
    (void)state;
    for (uint32_t count = 0; count < 60; count++) {
        uint32_t *order;
        uint64_t found = 0;
        expect_ok(channel_order_create(count, 5, count, &order));
        for (uint32_t i = 0; i < count; i++)
            found |= UINT64_C(1) << order[i];
        assert_true(found == (UINT64_C(1) << count) - 1);
        base_free(order);
    }
}

/* ---- what goes wrong ---- */

/* The feeder's last words. */
static const char *feeder_words(struct feeder *feeder)
{
    static char text[1024];
    size_t used = 0;
    ssize_t got;
    struct pollfd poller = {.fd = feeder->err, .events = POLLIN};
    while (poll(&poller, 1, PATIENCE_MS) == 1 &&
           (got = read(feeder->err, text + used, sizeof(text) - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    return text;
}

static void only_fifos_are_written_to(void **state)
{
    struct trial *trial = *state;
    char path[256], secret[256];
    object_put(trial, "in/a", "data");
    put_file(trial->folder, "secret", "secret");
    snprintf(path, sizeof(path), "%s/algo-1/ml/input/data/c_0", trial->folder);
    snprintf(secret, sizeof(secret), "%s/secret", trial->folder);
    for (int k = 0; k < 2; k++) {
        trial_job(trial, 1, PIPE("S3Prefix", ", 'S3Uri': 's3://bkt/in'", ""));
        expect_ok(trial_prepare(trial));
        assert_int_equal(unlink(path), 0);
        assert_int_equal(k == 0 ? symlink(secret, path) : link(secret, path), 0);
        struct feeder feeder = feeder_start(trial);
        const char *words = feeder_words(&feeder);
        if (strstr(words, "ClientError: Data download failed: the job has changed its pipe") ==
            NULL)
            fail_msg("%s", words);
        feeder_end(&feeder);
        file_is(trial, "secret", "secret");
    }
}

static void data_that_is_not_gzip_is_said(void **state)
{
    struct trial *trial = *state;
    object_put(trial, "in/a", "plain");
    trial_job(trial, 1,
              PIPE("S3Prefix", ", 'S3Uri': 's3://bkt/in'", ", 'CompressionType': 'Gzip'"));
    expect_ok(trial_prepare(trial));
    struct feeder feeder = feeder_start(trial);
    epoch_text(trial, "algo-1/ml/input/data/c_0");
    assert_non_null(
        strstr(feeder_words(&feeder), "ClientError: Data download failed: this is not gzip"));
    feeder_end(&feeder);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], CHANNEL_FEED_COMMAND) == 0) {
        channel_feed_run(argv[2]);
        fprintf(stderr, "%s\n", base_error_text());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        TRIAL_TEST(objects_come_one_after_the_other_in_every_epoch),
        TRIAL_TEST(a_reader_may_close_early),
        TRIAL_TEST(record_io_wraps_each_object),
        TRIAL_TEST(gzip_is_unpacked_on_the_way),
        TRIAL_TEST(an_augmented_manifest_gives_its_attributes),
        TRIAL_TEST(shuffled_shards_change_with_the_epoch),
        cmocka_unit_test(orders_are_permutations),
        TRIAL_TEST(only_fifos_are_written_to),
        TRIAL_TEST(data_that_is_not_gzip_is_said),
    };
    return cmocka_run_group_tests_name("channels as pipes", tests, NULL, NULL);
}
