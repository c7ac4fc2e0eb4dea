/* SPDX-License-Identifier: Apache-2.0 */
/* store_state.h: what an open store is made of; for this room's store_*.c only. */
#ifndef SHOAL_S3_STORE_STATE_H
#define SHOAL_S3_STORE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "s3/database.h"
#include "s3/follower.h"
#include "s3/place.h"
#include "s3/store.h"
#include "s3/workers.h"
#include "s3/writer.h"
#include "sql/readers.h"

struct s3_store {
    int directory_fd, contents_fd, lock_fd;
    _Atomic int64_t next_content;
    struct s3_writer writer;
    struct s3_workers workers;
    struct s3_followers followers;
    struct s3_places places;
    struct sql_readers readers;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t under_way; /* writes and tasks that are not done */
};

/* A write or task begins, and is done; the store is closed when none is left. */
void s3_store_entered(struct s3_store *store);
void s3_store_left(struct s3_store *store);

/* A connection for reading; waits while all are taken. It goes back soon, by sql_reader_give. */
enum s3_code s3_reader_take(struct s3_store *store, struct sql_database **out);

int64_t s3_now_ms(void); /* since 1970 */

/* Rows, with a reader's or the writer's connection. */

/* NO_SUCH_BUCKET. */
enum s3_code s3_bucket_row(struct sql_database *database, const char *name, int64_t *id);

struct s3_upload_row {
    int64_t id, bucket, content, stride; /* content and stride 0: none yet */
    struct s3_upload upload;
    char *headers, *tags; /* NULL unless asked for; base_free */
};
/* NO_SUCH_BUCKET, NO_SUCH_UPLOAD. */
enum s3_code s3_upload_row(struct sql_database *database, const char *bucket, const char *key,
                           const char *name, bool with_texts, struct s3_upload_row *out);

/* Removes the rows of an upload and of its parts, and drops their files. */
enum s3_code s3_upload_remove(struct s3_writer *writer, int64_t id, int64_t content);

/* A row of object as it is written. */
struct s3_object_row {
    int64_t content, bytes, modified_ms;
    const char *etag;
    struct s3_checksum checksum;
    int part_count;
    const char *parts, *headers, *tags;
};
/* Writes it in the place of what the key had, unless the conditions (NULL: none) forbid it. The
 * content must have its reference already counted. */
enum s3_code s3_object_row_put(struct s3_writer *writer, const char *bucket, const char *key,
                               const struct s3_conditions *conditions,
                               const struct s3_object_row *row);

#endif
