/* SPDX-License-Identifier: Apache-2.0 */
/* store_upload_test.c: multipart uploads: parts in any order and from many threads, sent twice, of
 * odd sizes, across a restart; and what lists of parts may not be. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "s3/store_fixture.h"

#define PART_BYTES ((size_t)S3_PART_BYTES_MIN)
#define PARTS_MAX  8

static unsigned char pattern[3 * S3_PART_BYTES_MIN];

struct parts {
    struct s3_store *store;
    char upload[S3_UPLOAD_NAME_BYTES];
    struct s3_part listed[PARTS_MAX];
    size_t bytes[PARTS_MAX];
    int count;
};

/* A part's bytes are the pattern from `shift` on. */
static size_t shift_of(int number, int version)
{
    return (size_t)(number * 1009 + version * 77);
}

static enum s3_code part_put(struct parts *parts, int number, size_t bytes, int version)
{
    struct s3_put_options options = {.bucket = "bkt",
                                     .key = "big",
                                     .upload = parts->upload,
                                     .part_number = number,
                                     .bytes = (int64_t)bytes};
    struct s3_written written;
    S3_TRY(put_with(parts->store, &options, NULL, pattern + shift_of(number, version), bytes,
                    &written));
    struct s3_part *listed = &parts->listed[number - 1];
    listed->number = number;
    memcpy(listed->etag, written.etag, sizeof(listed->etag));
    parts->bytes[number - 1] = bytes;
    if (number > parts->count)
        parts->count = number;
    return S3_OK;
}

static void begin(struct parts *parts, struct s3_store *store, enum s3_algorithm algorithm,
                  bool is_composite)
{
    struct s3_upload_options options = {.bucket = "bkt",
                                        .key = "big",
                                        .headers = "content-type:x/y\n",
                                        .algorithm = algorithm,
                                        .is_composite = is_composite};
    *parts = (struct parts){.store = store};
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (unsigned char)(i * 31 + i / 251);
    enum s3_code code = bucket_make(store, "bkt");
    assert_true(code == S3_OK || code == S3_BUCKET_OWNED);
    assert_int_equal(upload_make(store, &options, parts->upload), S3_OK);
}

static enum s3_code finish(struct parts *parts, struct s3_written *out)
{
    struct s3_complete complete = {.bucket = "bkt",
                                   .key = "big",
                                   .upload = parts->upload,
                                   .parts = parts->listed,
                                   .part_count = (size_t)parts->count};
    return upload_finish(parts->store, &complete, out);
}

/* The object is the parts of these versions, one behind the other; its file has nothing else. */
static void object_check(struct parts *parts, const int *versions)
{
    struct s3_object object;
    int fd;
    int64_t start = 0;
    unsigned char *seen = malloc(PART_BYTES * 2);
    assert_int_equal(s3_object_get(parts->store, "bkt", "big", NULL, &object, &fd), S3_OK);
    assert_string_equal(object.headers, "content-type:x/y\n");
    assert_int_equal(object.part_count, parts->count);
    for (int i = 0; i < parts->count; i++) {
        struct s3_range range;
        size_t bytes = parts->bytes[i];
        assert_int_equal(s3_object_part(&object, i + 1, &range), S3_OK);
        assert_int_equal(range.first, start);
        assert_int_equal(range.count, bytes);
        assert_int_equal(pread(fd, seen, bytes, start), bytes);
        assert_memory_equal(seen, pattern + shift_of(i + 1, versions != NULL ? versions[i] : 0),
                            bytes);
        start += (int64_t)bytes;
    }
    assert_int_equal(object.bytes, start);
    assert_int_equal(lseek(fd, 0, SEEK_END), start);
    struct s3_range range;
    assert_int_equal(s3_object_part(&object, parts->count + 1, &range), S3_INVALID_PART_NUMBER);
    s3_object_release(&object);
    close(fd);
    free(seen);
}

/* One file from the start on: no byte is copied. */
static void parts_in_any_order_lie_in_place(void **state)
{
    struct fixture *fixture = *state;
    static const int order[] = {3, 1, 5, 2, 4};
    struct parts parts;
    struct s3_written written;
    begin(&parts, fixture->store, S3_NO_CHECKSUM, false);
    for (int i = 0; i < 5; i++)
        assert_int_equal(part_put(&parts, order[i], order[i] == 5 ? 1234 : PART_BYTES, 0), S3_OK);
    assert_int_equal(fixture_files(fixture), 1);
    assert_int_equal(finish(&parts, &written), S3_OK);
    assert_string_equal(written.etag + 32, "-5");
    object_check(&parts, NULL);
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), 1);
    parts.store = fixture->store;
    object_check(&parts, NULL);
}

static void a_part_that_comes_again_replaces_the_first(void **state)
{
    struct fixture *fixture = *state;
    struct parts parts;
    struct s3_written written;
    begin(&parts, fixture->store, S3_NO_CHECKSUM, false);
    assert_int_equal(part_put(&parts, 1, PART_BYTES, 0), S3_OK);
    assert_int_equal(part_put(&parts, 2, PART_BYTES, 0), S3_OK);
    struct s3_part older = parts.listed[1];
    assert_int_equal(part_put(&parts, 2, PART_BYTES, 1), S3_OK);
    assert_int_equal(part_put(&parts, 2, PART_BYTES, 2), S3_OK);
    assert_int_equal(part_put(&parts, 3, 7, 0), S3_OK);
    struct s3_part newer = parts.listed[1];
    parts.listed[1] = older;
    assert_int_equal(finish(&parts, &written), S3_INVALID_PART);
    parts.listed[1] = newer;
    assert_int_equal(finish(&parts, &written), S3_OK);
    object_check(&parts, (int[]){0, 2, 0});
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), 1);
}

/* The small part comes first, then larger ones; part numbers have gaps; a restart is between. */
static void odd_sizes_are_copied_together(void **state)
{
    struct fixture *fixture = *state;
    struct parts parts;
    struct s3_written written;
    begin(&parts, fixture->store, S3_NO_CHECKSUM, false);
    assert_int_equal(part_put(&parts, 4, 99, 0), S3_OK);
    assert_int_equal(part_put(&parts, 1, PART_BYTES + 1, 0), S3_OK);
    assert_int_equal(part_put(&parts, 2, PART_BYTES, 0), S3_OK);
    fixture_again(fixture);
    parts.store = fixture->store;
    assert_int_equal(part_put(&parts, 3, PART_BYTES + 3, 0), S3_OK);
    assert_int_equal(finish(&parts, &written), S3_OK);
    object_check(&parts, NULL);
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), 1);
}

/* A list that leaves a part out may not write over it: a later list can name it. */
static void a_failed_end_harms_no_part(void **state)
{
    struct fixture *fixture = *state;
    struct parts parts;
    struct s3_written written;
    struct s3_conditions conditions = {.none_match = "*"};
    begin(&parts, fixture->store, S3_NO_CHECKSUM, false);
    assert_int_equal(put_text(fixture->store, "bkt", "big", "there"), S3_OK);
    for (int number = 1; number <= 3; number++)
        assert_int_equal(part_put(&parts, number, PART_BYTES, 0), S3_OK);
    assert_int_equal(part_put(&parts, 3, PART_BYTES, 1), S3_OK);
    struct s3_part some[] = {parts.listed[0], parts.listed[2]};
    struct s3_complete complete = {.bucket = "bkt",
                                   .key = "big",
                                   .upload = parts.upload,
                                   .parts = some,
                                   .part_count = 2,
                                   .conditions = &conditions};
    assert_int_equal(upload_finish(fixture->store, &complete, &written), S3_PRECONDITION_FAILED);
    assert_int_equal(finish(&parts, &written), S3_OK);
    object_check(&parts, (int[]){0, 0, 1});
}

static void lists_that_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct parts parts;
    struct s3_written written;
    begin(&parts, fixture->store, S3_NO_CHECKSUM, false);
    assert_int_equal(part_put(&parts, 1, 100, 0), S3_OK);
    assert_int_equal(part_put(&parts, 2, PART_BYTES, 0), S3_OK);
    assert_int_equal(finish(&parts, &written), S3_ENTITY_TOO_SMALL);
    struct s3_part one = parts.listed[0];
    parts.listed[0] = parts.listed[1];
    parts.listed[1] = one;
    assert_int_equal(finish(&parts, &written), S3_INVALID_PART_ORDER);
    parts.count = 0;
    assert_int_equal(finish(&parts, &written), S3_MALFORMED_XML);
    assert_int_equal(upload_give_up(fixture->store, "bkt", "other", parts.upload),
                     S3_NO_SUCH_UPLOAD);
    assert_int_equal(upload_give_up(fixture->store, "bkt", "big", parts.upload), S3_OK);
    parts.count = 1;
    assert_int_equal(finish(&parts, &written), S3_NO_SUCH_UPLOAD);
    assert_int_equal(part_put(&parts, 1, 5, 0), S3_NO_SUCH_UPLOAD);
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), 0);
}

static void checksums_of_the_whole(void **state)
{
    struct fixture *fixture = *state;
    struct parts parts;
    struct s3_written written;
    for (int composite = 0; composite < 2; composite++) {
        begin(&parts, fixture->store, S3_CRC32C, composite == 1);
        assert_int_equal(part_put(&parts, 1, PART_BYTES, 0), S3_OK);
        assert_int_equal(part_put(&parts, 2, 1000, 0), S3_OK);
        assert_int_equal(finish(&parts, &written), S3_OK);
        assert_int_equal(s3_checksum_is_composite(&written.checksum), composite == 1);
    }
    begin(&parts, fixture->store, S3_CRC32C, false);
    assert_int_equal(part_put(&parts, 1, PART_BYTES, 0), S3_OK);
    assert_int_equal(part_put(&parts, 2, 1000, 0), S3_OK);
    assert_int_equal(finish(&parts, &written), S3_OK);
    struct s3_digest digest;
    struct s3_digest_result result;
    char text[64];
    assert_int_equal(s3_digest_init(&digest, S3_CRC32C), S3_OK);
    assert_int_equal(s3_digest_add(&digest, pattern + shift_of(1, 0), PART_BYTES), S3_OK);
    assert_int_equal(s3_digest_add(&digest, pattern + shift_of(2, 0), 1000), S3_OK);
    assert_int_equal(s3_digest_end(&digest, &result), S3_OK);
    s3_digest_release(&digest);
    s3_base64(result.checksum, 4, text);
    assert_string_equal(written.checksum.text, text);
}

static void *two_parts(void *user)
{
    struct parts *parts = user;
    static int turn;
    int first = __atomic_fetch_add(&turn, 2, __ATOMIC_RELAXED) % PARTS_MAX + 1;
    for (int number = first; number < first + 2; number++)
        if (part_put(parts, number, number == PARTS_MAX ? 77 : PART_BYTES, 0) != S3_OK)
            return parts;
    return NULL;
}

static void many_threads_send_parts(void **state)
{
    struct fixture *fixture = *state;
    struct parts parts;
    struct s3_written written;
    pthread_t threads[PARTS_MAX / 2];
    begin(&parts, fixture->store, S3_NO_CHECKSUM, false);
    parts.count = PARTS_MAX;
    for (int i = 0; i < PARTS_MAX / 2; i++)
        pthread_create(&threads[i], NULL, two_parts, &parts);
    for (int i = 0; i < PARTS_MAX / 2; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(finish(&parts, &written), S3_OK);
    object_check(&parts, NULL);
}

static void lists_of_parts_and_uploads(void **state)
{
    struct fixture *fixture = *state;
    struct parts parts;
    struct s3_part *found;
    struct s3_upload *uploads;
    size_t count;
    bool is_truncated;
    begin(&parts, fixture->store, S3_SHA256, true);
    for (int number = 1; number <= 3; number++)
        assert_int_equal(part_put(&parts, number, 10, 0), S3_OK);
    assert_int_equal(s3_upload_parts(fixture->store, "bkt", "big", parts.upload, 1, 1, &found,
                                     &count, &is_truncated),
                     S3_OK);
    assert_int_equal(count, 1);
    assert_true(is_truncated);
    assert_int_equal(found[0].number, 2);
    assert_string_equal(found[0].etag, parts.listed[1].etag);
    assert_int_equal(strlen(found[0].checksum.text), 44);
    base_free(found);
    assert_int_equal(
        s3_upload_list(fixture->store, "bkt", "b", NULL, NULL, 10, &uploads, &count, &is_truncated),
        S3_OK);
    assert_int_equal(count, 1);
    assert_false(is_truncated);
    assert_string_equal(uploads[0].name, parts.upload);
    base_free(uploads);
    assert_int_equal(s3_upload_list(fixture->store, "bkt", "", "big", parts.upload, 10, &uploads,
                                    &count, &is_truncated),
                     S3_OK);
    assert_int_equal(count, 0);
    base_free(uploads);
    assert_int_equal(bucket_remove(fixture->store, "bkt"), S3_OK);
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), 0);
}

int main(void)
{
#define UPLOAD_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        UPLOAD_TEST(parts_in_any_order_lie_in_place),
        UPLOAD_TEST(a_part_that_comes_again_replaces_the_first),
        UPLOAD_TEST(odd_sizes_are_copied_together),
        UPLOAD_TEST(a_failed_end_harms_no_part),
        UPLOAD_TEST(lists_that_are_refused),
        UPLOAD_TEST(checksums_of_the_whole),
        UPLOAD_TEST(many_threads_send_parts),
        UPLOAD_TEST(lists_of_parts_and_uploads),
    };
    return cmocka_run_group_tests_name("s3 upload", tests, NULL, NULL);
}
