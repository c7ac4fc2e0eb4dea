/* SPDX-License-Identifier: Apache-2.0 */
/* store_fixture.h: for the tests of this room: a store in a folder of its own, and blocking calls.
 */
#ifndef SHOAL_S3_STORE_FIXTURE_H
#define SHOAL_S3_STORE_FIXTURE_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/store.h"

struct fixture {
    char directory[64];
    struct s3_store *store;
};

static int fixture_remove_one(const char *path, const struct stat *what, int kind, struct FTW *walk)
{
    (void)what, (void)kind, (void)walk;
    return remove(path);
}

static inline void fixture_remove(const char *directory)
{
    nftw(directory, fixture_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void fixture_open(struct fixture *fixture)
{
    if (s3_store_open(fixture->directory, &fixture->store) != SHOAL_OK) {
        fprintf(stderr, "%s\n", base_error_text());
        abort();
    }
}

static inline int fixture_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    snprintf(fixture->directory, sizeof(fixture->directory), "/tmp/shoal-s3-test-XXXXXX");
    if (mkdtemp(fixture->directory) == NULL)
        return -1;
    fixture_open(fixture);
    *state = fixture;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->store != NULL)
        s3_store_close(fixture->store);
    fixture_remove(fixture->directory);
    free(fixture);
    return 0;
}

/* As after a restart of the service. */
static inline void fixture_again(struct fixture *fixture)
{
    s3_store_close(fixture->store);
    fixture_open(fixture);
}

static inline enum s3_code bucket_make(struct s3_store *store, const char *name)
{
    struct s3_wait wait;
    s3_wait_init(&wait);
    s3_bucket_create(store, name, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

static inline enum s3_code bucket_remove(struct s3_store *store, const char *name)
{
    struct s3_wait wait;
    s3_wait_init(&wait);
    s3_bucket_delete(store, name, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

static inline enum s3_code put_with(struct s3_store *store, const struct s3_put_options *options,
                                    const struct s3_put_expected *expected, const void *data,
                                    size_t bytes, struct s3_written *out)
{
    struct s3_put *put;
    S3_TRY(s3_put_begin(store, options, &put));
    enum s3_code code = s3_put_write(put, data, bytes);
    if (code != S3_OK) {
        s3_put_abort(put);
        return code;
    }
    struct s3_wait wait;
    s3_wait_init(&wait);
    s3_put_finish(put, expected, out, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

static inline enum s3_code put_text(struct s3_store *store, const char *bucket, const char *key,
                                    const char *text)
{
    struct s3_put_options options = {.bucket = bucket, .key = key, .bytes = -1};
    return put_with(store, &options, NULL, text, strlen(text), NULL);
}

/* The object's text in `out`, or the code. */
static inline enum s3_code get_text(struct s3_store *store, const char *bucket, const char *key,
                                    char *out, size_t room)
{
    struct s3_object object;
    int fd;
    S3_TRY(s3_object_get(store, bucket, key, NULL, &object, &fd));
    ssize_t bytes = read(fd, out, room - 1);
    close(fd);
    bool is_whole = bytes == object.bytes;
    s3_object_release(&object);
    if (!is_whole)
        return S3_INTERNAL_ERROR;
    out[bytes] = '\0';
    return S3_OK;
}

static inline enum s3_code delete_key(struct s3_store *store, const char *bucket, const char *key)
{
    struct s3_wait wait;
    s3_wait_init(&wait);
    s3_object_delete(store, bucket, &key, 1, NULL, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

static inline enum s3_code upload_make(struct s3_store *store,
                                       const struct s3_upload_options *options,
                                       char name[S3_UPLOAD_NAME_BYTES])
{
    struct s3_wait wait;
    s3_wait_init(&wait);
    s3_upload_create(store, options, name, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

static inline enum s3_code upload_finish(struct s3_store *store, const struct s3_complete *complete,
                                         struct s3_written *out)
{
    struct s3_wait wait;
    s3_wait_init(&wait);
    s3_upload_complete(store, complete, out, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

static inline enum s3_code upload_give_up(struct s3_store *store, const char *bucket,
                                          const char *key, const char *upload)
{
    struct s3_wait wait;
    s3_wait_init(&wait);
    s3_upload_abort(store, bucket, key, upload, s3_wait_done, &wait);
    return s3_wait_for(&wait);
}

/* Files in contents/ now; removal is done by threads, so whoever expects fewer closes first. */
static int fixture_file_count;
static int fixture_count_one(const char *path, const struct stat *what, int kind, struct FTW *walk)
{
    (void)path, (void)what, (void)walk;
    fixture_file_count += kind == FTW_F;
    return 0;
}
static inline int fixture_files(const struct fixture *fixture)
{
    char path[80];
    snprintf(path, sizeof(path), "%s/contents", fixture->directory);
    fixture_file_count = 0;
    nftw(path, fixture_count_one, 16, FTW_PHYS);
    return fixture_file_count;
}

#endif
