/* SPDX-License-Identifier: Apache-2.0 */
/* store_test.c: buckets and objects: what is put is got, replaced, copied, deleted, after a restart
 * too. */
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "s3/store_fixture.h"

static void buckets_come_and_go(void **state)
{
    struct fixture *fixture = *state;
    struct s3_store *store = fixture->store;
    struct s3_bucket *buckets, one;
    size_t count;
    assert_int_equal(bucket_make(store, "zebra"), S3_OK);
    assert_int_equal(bucket_make(store, "ape.1"), S3_OK);
    assert_int_equal(bucket_make(store, "zebra"), S3_BUCKET_OWNED);
    assert_int_equal(bucket_make(store, "Zebra"), S3_INVALID_BUCKET_NAME);
    assert_non_null(strstr(base_error_text(), "Zebra"));
    assert_int_equal(s3_bucket_list(store, &buckets, &count), S3_OK);
    assert_int_equal(count, 2);
    assert_string_equal(buckets[0].name, "ape.1");
    assert_string_equal(buckets[1].name, "zebra");
    base_free(buckets);
    assert_int_equal(put_text(store, "zebra", "k", "v"), S3_OK);
    assert_int_equal(bucket_remove(store, "zebra"), S3_BUCKET_NOT_EMPTY);
    assert_int_equal(delete_key(store, "zebra", "k"), S3_OK);
    assert_int_equal(bucket_remove(store, "zebra"), S3_OK);
    assert_int_equal(bucket_remove(store, "zebra"), S3_NO_SUCH_BUCKET);
    assert_int_equal(s3_bucket_find(store, "zebra", &one), S3_NO_SUCH_BUCKET);
    fixture_again(fixture);
    assert_int_equal(s3_bucket_find(fixture->store, "ape.1", &one), S3_OK);
    assert_true(one.created_ms > 1000000000000);
}

static void an_object_is_what_was_put(void **state)
{
    struct fixture *fixture = *state;
    struct s3_store *store = fixture->store;
    struct s3_put_options options = {.bucket = "bkt",
                                     .key = "dir/hello",
                                     .bytes = 5,
                                     .headers = "content-type:text/plain\n",
                                     .tags = "a:b\n",
                                     .algorithm = S3_CRC32};
    struct s3_put_expected expected = {.md5 = "XUFAKrxLKna5cZ2REBfFkg==", .checksum = "NhCmhg=="};
    struct s3_written written;
    struct s3_object object;
    assert_int_equal(bucket_make(store, "bkt"), S3_OK);
    assert_int_equal(put_with(store, &options, &expected, "hello", 5, &written), S3_OK);
    assert_string_equal(written.etag, "5d41402abc4b2a76b9719d911017c592");
    assert_string_equal(written.checksum.text, "NhCmhg==");
    fixture_again(fixture);
    int fd;
    char text[8] = "";
    assert_int_equal(s3_object_get(fixture->store, "bkt", "dir/hello", NULL, &object, &fd), S3_OK);
    assert_int_equal(read(fd, text, sizeof(text)), 5);
    close(fd);
    assert_string_equal(text, "hello");
    assert_string_equal(object.etag, written.etag);
    assert_string_equal(object.headers, options.headers);
    assert_string_equal(object.tags, "a:b\n");
    assert_int_equal(object.checksum.algorithm, S3_CRC32);
    assert_int_equal(object.modified_ms, written.modified_ms);
    s3_object_release(&object);
}

static void what_does_not_fit_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct s3_store *store = fixture->store;
    struct s3_put_options options = {.bucket = "bkt", .key = "k", .bytes = 5};
    struct s3_put_expected wrong = {.md5 = "XUFAKrxLKna5cZ2REBfFkw=="}, broken = {.md5 = "abc"};
    struct s3_put_expected wrong_sum = {.checksum = "NhCmhw=="};
    char text[8];
    assert_int_equal(bucket_make(store, "bkt"), S3_OK);
    assert_int_equal(put_text(store, "bkt", "k", "old"), S3_OK);
    assert_int_equal(put_with(store, &options, &wrong, "hello", 5, NULL), S3_BAD_DIGEST);
    assert_int_equal(put_with(store, &options, &broken, "hello", 5, NULL), S3_INVALID_DIGEST);
    assert_int_equal(put_with(store, &options, NULL, "hell", 4, NULL), S3_INCOMPLETE_BODY);
    assert_int_equal(put_with(store, &options, NULL, "hello!", 6, NULL), S3_INCOMPLETE_BODY);
    options.algorithm = S3_CRC32;
    assert_int_equal(put_with(store, &options, &wrong_sum, "hello", 5, NULL), S3_BAD_DIGEST);
    options.bucket = "nosuch";
    assert_int_equal(put_with(store, &options, NULL, "hello", 5, NULL), S3_NO_SUCH_BUCKET);
    assert_int_equal(put_text(store, "bkt", "", "x"), S3_INVALID_ARGUMENT);
    assert_int_equal(put_text(store, "bkt", "\xff", "x"), S3_INVALID_ARGUMENT);
    char long_key[1026] = "";
    memset(long_key, 'k', 1025);
    assert_int_equal(put_text(store, "bkt", long_key, "x"), S3_KEY_TOO_LONG);
    long_key[1024] = '\0';
    assert_int_equal(put_text(store, "bkt", long_key, "x"), S3_OK);
    assert_int_equal(get_text(store, "bkt", "k", text, sizeof(text)), S3_OK);
    assert_string_equal(text, "old");
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), 2);
}

static void a_reader_keeps_the_object_that_it_opened(void **state)
{
    struct fixture *fixture = *state;
    struct s3_store *store = fixture->store;
    struct s3_object object;
    int fd;
    char text[8] = "";
    assert_int_equal(bucket_make(store, "bkt"), S3_OK);
    assert_int_equal(put_text(store, "bkt", "k", "old"), S3_OK);
    assert_int_equal(s3_object_get(store, "bkt", "k", NULL, &object, &fd), S3_OK);
    s3_object_release(&object);
    assert_int_equal(put_text(store, "bkt", "k", "new"), S3_OK);
    assert_int_equal(delete_key(store, "bkt", "k"), S3_OK);
    assert_int_equal(delete_key(store, "bkt", "k"), S3_OK);
    assert_int_equal(pread(fd, text, sizeof(text), 0), 3);
    close(fd);
    assert_string_equal(text, "old");
    assert_int_equal(get_text(store, "bkt", "k", text, sizeof(text)), S3_NO_SUCH_KEY);
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), 0);
}

static enum s3_code put_if(struct s3_store *store, const char *match, const char *none_match)
{
    struct s3_conditions conditions = {.match = match, .none_match = none_match};
    struct s3_put_options options = {
        .bucket = "bkt", .key = "k", .bytes = -1, .conditions = &conditions};
    return put_with(store, &options, NULL, "x", 1, NULL);
}

#define BODIES     12
#define BODY_BYTES ((size_t)1 << 20)
#define STEP_BYTES 70001

struct body {
    struct s3_store *store;
    int number;
    pthread_t thread;
    enum s3_code code;
    struct s3_written written;
};

/* Each is somewhat longer than the one before; every third has a SHA, every fourth is given up. */
static size_t body_make(int number, unsigned char **out)
{
    size_t bytes = BODY_BYTES + (size_t)number * 33333;
    *out = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        (*out)[i] = (unsigned char)(i * i / 5 + i * (size_t)number);
    return bytes;
}

static enum s3_code body_put(struct body *body, const unsigned char *data, size_t bytes)
{
    char key[16];
    snprintf(key, sizeof(key), "%d", body->number);
    struct s3_put_options options = {.bucket = "bkt", .key = key, .bytes = (int64_t)bytes};
    options.algorithm = body->number % 3 == 0 ? S3_SHA256 : S3_CRC32;
    struct s3_put *put;
    struct s3_wait wait;
    S3_TRY(s3_put_begin(body->store, &options, &put));
    for (size_t done = 0; done < bytes; done += STEP_BYTES) {
        size_t some = bytes - done < STEP_BYTES ? bytes - done : STEP_BYTES;
        enum s3_code code = s3_put_write(put, data + done, some);
        if (code != S3_OK || (body->number % 4 == 3 && done > bytes / 2)) {
            s3_put_abort(put);
            return code;
        }
    }
    s3_wait_init(&wait);
    s3_put_finish(put, NULL, &body->written, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

static void *body_thread(void *user)
{
    struct body *body = user;
    unsigned char *data;
    size_t bytes = body_make(body->number, &data);
    body->code = body_put(body, data, bytes);
    free(data);
    return NULL;
}

static void etag_is_md5(const struct body *body)
{
    unsigned char *data, md5[EVP_MAX_MD_SIZE];
    char text[2 * S3_MD5_BYTES + 1];
    size_t bytes = body_make(body->number, &data);
    assert_int_equal(EVP_Digest(data, bytes, md5, NULL, EVP_md5(), NULL), 1);
    s3_hex(md5, S3_MD5_BYTES, text);
    assert_string_equal(body->written.etag, text);
    free(data);
}

static void long_bodies_side_by_side_have_their_own_etags(void **state)
{
    struct fixture *fixture = *state;
    struct body bodies[BODIES] = {{0}};
    assert_int_equal(bucket_make(fixture->store, "bkt"), S3_OK);
    for (int i = 0; i < BODIES; i++) {
        bodies[i].store = fixture->store;
        bodies[i].number = i;
        assert_int_equal(pthread_create(&bodies[i].thread, NULL, body_thread, &bodies[i]), 0);
    }
    for (int i = 0; i < BODIES; i++)
        pthread_join(bodies[i].thread, NULL);
    for (int i = 0; i < BODIES; i++) {
        assert_int_equal(bodies[i].code, S3_OK);
        if (i % 4 != 3)
            etag_is_md5(&bodies[i]);
    }
}

static void conditions_hold_for_writes(void **state)
{
    struct s3_store *store = ((struct fixture *)*state)->store;
    assert_int_equal(bucket_make(store, "bkt"), S3_OK);
    assert_int_equal(put_if(store, "\"abc\"", NULL), S3_NO_SUCH_KEY);
    assert_int_equal(put_if(store, NULL, "*"), S3_OK);
    assert_int_equal(put_if(store, NULL, "*"), S3_PRECONDITION_FAILED);
    assert_int_equal(put_if(store, "\"9dd4e461268c8034f5c8564e155c67a6\"", NULL), S3_OK);
    assert_int_equal(put_if(store, "\"abc\"", NULL), S3_PRECONDITION_FAILED);
}

static enum s3_code copy_to(struct s3_store *store, const struct s3_copy *copy,
                            struct s3_written *out)
{
    struct s3_wait wait;
    s3_wait_init(&wait);
    s3_object_copy(store, copy, out, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

static void a_copy_shares_the_contents(void **state)
{
    struct fixture *fixture = *state;
    struct s3_store *store = fixture->store;
    struct s3_written written;
    struct s3_copy copy = {.bucket = "bkt", .key = "a", .to_bucket = "other", .to_key = "b"};
    char text[8];
    assert_int_equal(bucket_make(store, "bkt"), S3_OK);
    assert_int_equal(put_text(store, "bkt", "a", "hello"), S3_OK);
    assert_int_equal(copy_to(store, &copy, &written), S3_NO_SUCH_BUCKET);
    assert_int_equal(bucket_make(store, "other"), S3_OK);
    assert_int_equal(copy_to(store, &copy, &written), S3_OK);
    assert_int_equal(written.bytes, 5);
    struct s3_copy to_itself = {.bucket = "bkt", .key = "a", .to_bucket = "bkt", .to_key = "a"};
    assert_int_equal(copy_to(store, &to_itself, &written), S3_OK);
    assert_int_equal(get_text(store, "bkt", "a", text, sizeof(text)), S3_OK);
    assert_int_equal(delete_key(store, "bkt", "a"), S3_OK);
    assert_int_equal(copy_to(store, &copy, &written), S3_NO_SUCH_KEY);
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), 1);
    assert_int_equal(get_text(fixture->store, "other", "b", text, sizeof(text)), S3_OK);
    assert_string_equal(text, "hello");
    assert_int_equal(delete_key(fixture->store, "other", "b"), S3_OK);
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), 0);
}

static void tags_are_replaced(void **state)
{
    struct s3_store *store = ((struct fixture *)*state)->store;
    struct s3_object object;
    struct s3_wait wait;
    assert_int_equal(bucket_make(store, "bkt"), S3_OK);
    assert_int_equal(put_text(store, "bkt", "k", "v"), S3_OK);
    s3_wait_init(&wait);
    s3_object_tag(store, "bkt", "k", "x:1\n", s3_wait_done, &wait);
    assert_int_equal(s3_wait_for(&wait), S3_OK);
    assert_int_equal(s3_object_get(store, "bkt", "k", NULL, &object, NULL), S3_OK);
    assert_string_equal(object.tags, "x:1\n");
    s3_object_release(&object);
    s3_wait_init(&wait);
    s3_object_tag(store, "bkt", "none", "x:1\n", s3_wait_done, &wait);
    assert_int_equal(s3_wait_for(&wait), S3_NO_SUCH_KEY);
}

static void a_second_service_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct s3_store *second;
    assert_int_equal(s3_store_open(fixture->directory, &second), SHOAL_ERR_STATE);
    char number[32];
    snprintf(number, sizeof(number), "process %ld", (long)getpid());
    assert_non_null(strstr(base_error_text(), number));
}

/* What a kill leaves: a file without a row, and a row that nothing refers to. */
static void leftovers_are_removed_at_the_start(void **state)
{
    struct fixture *fixture = *state;
    char path[128], text[8];
    assert_int_equal(bucket_make(fixture->store, "bkt"), S3_OK);
    assert_int_equal(put_text(fixture->store, "bkt", "k", "v"), S3_OK);
    s3_store_close(fixture->store);
    snprintf(path, sizeof(path), "%s/contents/0/77", fixture->directory);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    fixture_open(fixture);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(put_text(fixture->store, "bkt", "k2", "v"), S3_OK);
    assert_int_equal(get_text(fixture->store, "bkt", "k", text, sizeof(text)), S3_OK);
    assert_int_equal(fixture_files(fixture), 2);
}

int main(void)
{
#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        STORE_TEST(buckets_come_and_go),
        STORE_TEST(an_object_is_what_was_put),
        STORE_TEST(what_does_not_fit_changes_nothing),
        STORE_TEST(a_reader_keeps_the_object_that_it_opened),
        STORE_TEST(long_bodies_side_by_side_have_their_own_etags),
        STORE_TEST(conditions_hold_for_writes),
        STORE_TEST(a_copy_shares_the_contents),
        STORE_TEST(tags_are_replaced),
        STORE_TEST(a_second_service_is_refused),
        STORE_TEST(leftovers_are_removed_at_the_start),
    };
    return cmocka_run_group_tests_name("s3 store", tests, NULL, NULL);
}
