/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h: where the parts of an upload are put, so that the object needs no copy in the end.
 *
 * Clients cut a file in parts of one size, the *stride*, but for the last one. So part n of an
 * upload is put at (n - 1) * stride of one file, its *place*, in any order and by many threads at
 * once. If in the end the parts lie one behind the other, the file is the object; what does not (a
 * part sent twice, or of another size) has a file of its own and is copied in then.
 *
 * A place lives in memory, as long as the process: parts that come after a restart have files of
 * their own. Invariants:
 *   1. A slot is taken once; a second body for the same number goes elsewhere. So nobody writes
 *      where a part lies that was answered for.
 *   2. While the object is made (closed), and when it is there, nobody writes to the place. If a
 *      body is still on its way into it then, the object is made in another file.
 */
#ifndef SHOAL_S3_PLACE_H
#define SHOAL_S3_PLACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "s3/code.h"

#define S3_PLACES_MAX 256

struct s3_store;
struct s3_place;

struct s3_places {
    pthread_mutex_t lock;
    struct s3_place *first;
    int count;
};

struct s3_slot {
    struct s3_place *place; /* NULL: none, the part takes a file of its own */
    int64_t content, stride, start;
    int number;
    int fd; /* the caller's */
};

/* A slot for the bytes of a part. */
struct s3_upload_row;
enum s3_code s3_place_take(struct s3_store *store, const struct s3_upload_row *upload, int number,
                           int64_t bytes, struct s3_slot *out);
/* Nobody writes to the slot any more; the part in it is committed (kept), or it is free again. */
void s3_place_give(struct s3_store *store, struct s3_slot *slot, bool is_kept);

/* Before the object is made. *is_quiet: nobody is writing in it. OPERATION_ABORTED: closed
 * already. An upload without a place in memory gets one that says only that it is closed. */
enum s3_code s3_place_close(struct s3_store *store, int64_t upload, bool *is_quiet);
/* The object could not be made: parts may come again. */
void s3_place_open(struct s3_store *store, int64_t upload);
/* The upload is over. Its file is removed if no part was committed in it; else the rows decide. */
void s3_place_forget(struct s3_store *store, int64_t upload);
/* All uploads of a bucket are over. */
void s3_places_forget(struct s3_store *store, int64_t bucket);
void s3_places_release(struct s3_places *places);

#endif
