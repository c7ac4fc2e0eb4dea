/* SPDX-License-Identifier: Apache-2.0 */
/* store_link_test.c: objects in the directory of a job. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "s3/store_fixture.h"
#include "support/skip.h"

struct job {
    char path[128];
    int fd;
};

static struct job job_make(const struct fixture *fixture, const char *name)
{
    struct job job;
    snprintf(job.path, sizeof(job.path), "%s/%s", fixture->directory, name);
    assert_int_equal(mkdir(job.path, 0755), 0);
    job.fd = open(job.path, O_RDONLY | O_DIRECTORY);
    assert_true(job.fd >= 0);
    return job;
}

static void file_is(const struct job *job, const char *name, const char *text)
{
    char seen[64] = "";
    struct stat about;
    int fd = openat(job->fd, name, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, seen, sizeof(seen) - 1), strlen(text));
    assert_string_equal(seen, text);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0444);
    close(fd);
}

static void objects_put(struct s3_store *store, const char *const *keys)
{
    assert_int_equal(bucket_make(store, "bkt"), S3_OK);
    for (; *keys != NULL; keys++)
        assert_int_equal(put_text(store, "bkt", *keys, *keys), S3_OK);
}

static void a_prefix_becomes_a_tree(void **state)
{
    struct fixture *fixture = *state;
    struct job job = job_make(fixture, "job");
    int64_t count;
    objects_put(fixture->store,
                (const char *const[]){"in/a", "in/b/c", "in/b/d/e", "out/x", "in/..f/g", NULL});
    assert_int_equal(put_text(fixture->store, "bkt", "in/", ""), S3_OK);
    assert_int_equal(put_text(fixture->store, "bkt", "in/empty/", ""), S3_OK);
    struct s3_link_options options = {
        .bucket = "bkt", .prefix = "in/", .strip_bytes = 3, .directory_fd = job.fd};
    assert_int_equal(s3_store_link(fixture->store, &options, &count), S3_OK);
    assert_int_equal(count, 4);
    file_is(&job, "a", "in/a");
    file_is(&job, "b/c", "in/b/c");
    file_is(&job, "b/d/e", "in/b/d/e");
    file_is(&job, "..f/g", "in/..f/g");
    assert_int_equal(faccessat(job.fd, "empty", F_OK, 0), 0);
    assert_int_equal(faccessat(job.fd, "x", F_OK, 0), -1);
    /* What becomes of the key is nothing to the job. */
    assert_int_equal(put_text(fixture->store, "bkt", "in/a", "new"), S3_OK);
    assert_int_equal(delete_key(fixture->store, "bkt", "in/b/c"), S3_OK);
    fixture_again(fixture);
    file_is(&job, "a", "in/a");
    file_is(&job, "b/c", "in/b/c");
    close(job.fd);
}

static bool every_second(void *user, int64_t index, const char *key)
{
    (void)user, (void)key;
    return index % 2 == 1;
}

static void a_shard_is_chosen(void **state)
{
    struct fixture *fixture = *state;
    struct job job = job_make(fixture, "job");
    int64_t count;
    objects_put(fixture->store, (const char *const[]){"a", "b", "c", "d", NULL});
    struct s3_link_options options = {
        .bucket = "bkt", .prefix = "", .directory_fd = job.fd, .choose = every_second};
    assert_int_equal(s3_store_link(fixture->store, &options, &count), S3_OK);
    assert_int_equal(count, 2);
    file_is(&job, "b", "b");
    file_is(&job, "d", "d");
    assert_int_equal(faccessat(job.fd, "a", F_OK, 0), -1);
    close(job.fd);
}

static void keys_that_are_no_paths_are_named(void **state)
{
    struct fixture *fixture = *state;
    static const char *const bad[][3] = {
        {"x/../../etc", NULL}, {"x//y", NULL}, {"/x", NULL}, {"x", "x/y", NULL}, {"./x", NULL}};
    int64_t count;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char name[8];
        snprintf(name, sizeof(name), "job%zu", i);
        struct job job = job_make(fixture, name);
        objects_put(fixture->store, bad[i]);
        struct s3_link_options options = {.bucket = "bkt", .prefix = "", .directory_fd = job.fd};
        assert_int_equal(s3_store_link(fixture->store, &options, &count), S3_INVALID_ARGUMENT);
        const char *last = bad[i][1] != NULL ? bad[i][1] : bad[i][0];
        assert_non_null(strstr(base_error_text(), last));
        for (const char *const *key = bad[i]; *key != NULL; key++)
            assert_int_equal(delete_key(fixture->store, "bkt", *key), S3_OK);
        assert_int_equal(bucket_remove(fixture->store, "bkt"), S3_OK);
        close(job.fd);
    }
}

/* A job may have put links in its directory: nothing is written through them. */
static void links_are_not_followed(void **state)
{
    struct fixture *fixture = *state;
    struct job job = job_make(fixture, "job"), outside = job_make(fixture, "outside");
    objects_put(fixture->store, (const char *const[]){"k", NULL});
    assert_int_equal(symlinkat("../outside", job.fd, "folder"), 0);
    assert_int_equal(symlinkat("../outside/file", job.fd, "file"), 0);
    assert_int_equal(s3_store_link_one(fixture->store, "bkt", "k", job.fd, "folder/file"),
                     S3_INVALID_ARGUMENT);
    assert_int_equal(s3_store_link_one(fixture->store, "bkt", "k", job.fd, "file"),
                     S3_INVALID_ARGUMENT);
    assert_int_equal(s3_store_link_one(fixture->store, "bkt", "k", job.fd, "../file"),
                     S3_INVALID_ARGUMENT);
    assert_int_equal(faccessat(outside.fd, "file", F_OK, 0), -1);
    close(job.fd);
    close(outside.fd);
}

/* /dev/shm is another file system than /tmp, where the machine has one. */
static void other_file_systems_get_copies(void **state)
{
    struct fixture *fixture = *state;
    char path[] = "/dev/shm/shoal-s3-test-XXXXXX";
    struct job job;
    objects_put(fixture->store, (const char *const[]){"k", NULL});
    if (mkdtemp(path) == NULL)
        skip_because("no /dev/shm here, so no second file system");
    job.fd = open(path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(s3_store_link_one(fixture->store, "bkt", "k", job.fd, "sub/k"), S3_OK);
    file_is(&job, "sub/k", "k");
    close(job.fd);
    fixture_remove(path);
}

int main(void)
{
#define LINK_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        LINK_TEST(a_prefix_becomes_a_tree),          LINK_TEST(a_shard_is_chosen),
        LINK_TEST(keys_that_are_no_paths_are_named), LINK_TEST(links_are_not_followed),
        LINK_TEST(other_file_systems_get_copies),
    };
    return cmocka_run_group_tests_name("s3 link", tests, NULL, NULL);
}
