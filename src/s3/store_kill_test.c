/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_kill_test.c: a process that writes is killed at random moments, again and again; and a disk
 * that is full.
 *
 * The writer's threads put versions of their own keys, small objects and uploads of two parts, and
 * say before and after each in memory that they share with the test. After a kill the key has a
 * whole version, no older than the last one that was answered and no newer than the last one begun,
 * and no file is left that nothing refers to.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "s3/store_fixture.h"
#include "support/skip.h"

#define KILLS           20
#define THREADS         4
#define KEYS_PER_THREAD 3
#define KEYS            (THREADS * KEYS_PER_THREAD)
#define LARGE_BYTES     ((size_t)S3_PART_BYTES_MIN)

struct key_state {
    atomic_int begun, answered;
};
static struct key_state *states; /* shared with the writer */
static unsigned char *large;     /* contents of a first part */
static struct s3_store *writer_store;

/* Versions of a key differ in size and in every byte. */
static size_t version_write(int key, int version, char *out)
{
    size_t bytes = (size_t)(key * 131 + version * 17) % 3000;
    memset(out, 'a' + version % 26, bytes);
    int head = sprintf(out, "%d:%d:", key, version);
    out[head] = 'a' + (char)(version % 26);
    return bytes > (size_t)head ? bytes : (size_t)head;
}

static void name_of(int key, char name[16])
{
    snprintf(name, 16, "key/%d", key);
}

static enum s3_code upload_version(int key, const char *text, size_t bytes)
{
    char name[16], upload[S3_UPLOAD_NAME_BYTES];
    name_of(key, name);
    struct s3_upload_options options = {.bucket = "bkt", .key = name};
    struct s3_part parts[2] = {{.number = 1}, {.number = 2}};
    struct s3_written written;
    S3_TRY(upload_make(writer_store, &options, upload));
    for (int i = 0; i < 2; i++) {
        struct s3_put_options part = {
            .bucket = "bkt", .key = name, .upload = upload, .part_number = i + 1};
        part.bytes = (int64_t)(i == 0 ? LARGE_BYTES : bytes);
        S3_TRY(put_with(writer_store, &part, NULL, i == 0 ? (const void *)large : text,
                        (size_t)part.bytes, &written));
        memcpy(parts[i].etag, written.etag, sizeof(written.etag));
    }
    struct s3_complete complete = {
        .bucket = "bkt", .key = name, .upload = upload, .parts = parts, .part_count = 2};
    return upload_finish(writer_store, &complete, &written);
}

static void *writer_thread(void *user)
{
    int first = (int)(intptr_t)user * KEYS_PER_THREAD;
    char text[4096], name[16];
    for (;;)
        for (int key = first; key < first + KEYS_PER_THREAD; key++) {
            int version = atomic_load(&states[key].begun) + 1;
            size_t bytes = version_write(key, version, text);
            name_of(key, name);
            atomic_store(&states[key].begun, version);
            struct s3_put_options options = {.bucket = "bkt", .key = name, .bytes = -1};
            enum s3_code code = key == 0
                                    ? upload_version(key, text, bytes)
                                    : put_with(writer_store, &options, NULL, text, bytes, NULL);
            if (code != S3_OK)
                _exit(1);
            atomic_store(&states[key].answered, version);
        }
    return NULL;
}

static void writer_main(const char *directory)
{
    pthread_t threads[THREADS];
    if (s3_store_open(directory, &writer_store) != SHOAL_OK)
        _exit(2);
    enum s3_code code = bucket_make(writer_store, "bkt");
    if (code != S3_OK && code != S3_BUCKET_OWNED)
        _exit(3);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, writer_thread, (void *)(intptr_t)i);
    pthread_join(threads[0], NULL);
}

/* The version that an object is, -1 if it is not a whole one. */
static int version_of(struct s3_store *store, int key, const char *name)
{
    struct s3_object object;
    char *seen = malloc(LARGE_BYTES + 4096), expected[4096];
    int fd, found_key, version = -1;
    assert_int_equal(s3_object_get(store, "bkt", name, NULL, &object, &fd), S3_OK);
    ssize_t bytes = read(fd, seen, LARGE_BYTES + 4096);
    close(fd);
    size_t head = object.part_count == 2 ? LARGE_BYTES : 0;
    assert_int_equal(bytes, object.bytes);
    assert_true((size_t)bytes > head);
    seen[bytes] = '\0';
    assert_int_equal(sscanf(seen + head, "%d:%d:", &found_key, &version), 2);
    assert_int_equal(found_key, key);
    assert_int_equal(bytes - (ssize_t)head, version_write(key, version, expected));
    assert_memory_equal(seen + head, expected, (size_t)bytes - head);
    assert_true(head == 0 || memcmp(seen, large, LARGE_BYTES) == 0);
    s3_object_release(&object);
    free(seen);
    return version;
}

static void uploads_end(struct s3_store *store)
{
    struct s3_upload *uploads;
    size_t count;
    bool is_truncated;
    assert_int_equal(
        s3_upload_list(store, "bkt", "", NULL, NULL, 100, &uploads, &count, &is_truncated), S3_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(upload_give_up(store, "bkt", uploads[i].key, uploads[i].name), S3_OK);
    base_free(uploads);
}

static void keys_check(struct fixture *fixture)
{
    int objects = 0;
    for (int key = 0; key < KEYS; key++) {
        char name[16], text[8];
        name_of(key, name);
        int begun = atomic_load(&states[key].begun), answered = atomic_load(&states[key].answered);
        enum s3_code code = get_text(fixture->store, "bkt", name, text, sizeof(text));
        if (code == S3_NO_SUCH_KEY || code == S3_NO_SUCH_BUCKET) {
            assert_int_equal(answered, 0);
            continue;
        }
        int version = version_of(fixture->store, key, name);
        assert_true(version >= answered && version <= begun);
        atomic_store(&states[key].answered, version);
        objects++;
    }
    if (bucket_make(fixture->store, "bkt") == S3_BUCKET_OWNED)
        uploads_end(fixture->store);
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), objects);
}

static int answered_count(void)
{
    int all = 0;
    for (int key = 0; key < KEYS; key++)
        all += atomic_load(&states[key].answered);
    return all;
}

/* Every second time a kill may hit the start as well; else something is answered first, also on a
 * machine under load. */
static void moment_wait(int kill_number, unsigned *seed)
{
    int before = answered_count();
    int64_t deadline = base_deadline_ns(20000);
    while (kill_number % 2 == 0 && answered_count() < before + 2 && base_left_ms(deadline) > 0)
        base_sleep_ms(1);
    base_sleep_ms(20 + rand_r(seed) % 150);
}

static void what_was_answered_survives_kills(void **state)
{
    struct fixture *fixture = *state;
    states = mmap(NULL, sizeof(*states) * KEYS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    assert_true(states != MAP_FAILED);
    large = malloc(LARGE_BYTES);
    memset(large, 'L', LARGE_BYTES);
    unsigned seed = 7;
    for (int kill_number = 0; kill_number < KILLS; kill_number++) {
        s3_store_close(fixture->store);
        fixture->store = NULL;
        pid_t child = fork();
        if (child == 0)
            writer_main(fixture->directory);
        moment_wait(kill_number, &seed);
        int status;
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        fixture_open(fixture);
        keys_check(fixture);
    }
    assert_true(answered_count() >= KILLS);
    print_message("%d versions were answered, over %d kills\n", answered_count(), KILLS);
    munmap(states, sizeof(*states) * KEYS);
    free(large);
}

/* ------------------------------------------------------------------------------------ full disk */

static void a_full_disk_loses_nothing(void **state)
{
    struct fixture *fixture = *state;
    static char block[1 << 20];
    char key[32], text[64];
    int stored = 0;
    s3_store_close(fixture->store);
    fixture->store = NULL;
    if (mount("shoal-test", fixture->directory, "tmpfs", 0, "size=16m") != 0) {
        fixture_open(fixture);
        skip_because("no mount here, so no disk to fill: %s", strerror(errno));
    }
    fixture_open(fixture);
    assert_int_equal(bucket_make(fixture->store, "bkt"), S3_OK);
    assert_int_equal(put_text(fixture->store, "bkt", "small", "small"), S3_OK);
    struct s3_put_options options = {.bucket = "bkt", .key = "too-large", .bytes = 1 << 30};
    assert_int_equal(put_with(fixture->store, &options, NULL, block, sizeof(block), NULL),
                     S3_STORAGE_FULL);
    for (enum s3_code code = S3_OK; code == S3_OK && stored < 100; stored += code == S3_OK) {
        snprintf(key, sizeof(key), "block/%d", stored);
        options = (struct s3_put_options){.bucket = "bkt", .key = key, .bytes = sizeof(block)};
        code = put_with(fixture->store, &options, NULL, block, sizeof(block), NULL);
        assert_true(code == S3_OK || code == S3_STORAGE_FULL);
    }
    assert_true(stored > 8 && stored < 16);
    assert_non_null(strstr(base_error_text(), "full"));
    assert_int_equal(get_text(fixture->store, "bkt", "small", text, sizeof(text)), S3_OK);
    /* Deleting makes room, also after a restart. */
    fixture_again(fixture);
    assert_int_equal(fixture_files(fixture), stored + 1);
    assert_int_equal(delete_key(fixture->store, "bkt", "block/0"), S3_OK);
    fixture_again(fixture);
    options = (struct s3_put_options){.bucket = "bkt", .key = "again", .bytes = sizeof(block) / 2};
    assert_int_equal(put_with(fixture->store, &options, NULL, block, sizeof(block) / 2, NULL),
                     S3_OK);
    s3_store_close(fixture->store);
    fixture->store = NULL;
    umount2(fixture->directory, MNT_DETACH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_answered_survives_kills, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_full_disk_loses_nothing, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests_name("s3 kills", tests, NULL, NULL);
}
