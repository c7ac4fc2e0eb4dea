/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h: buckets and objects in a directory of this machine. It knows no HTTP.
 *
 *     index.db            SQLite: which key has which contents, and all that is said about them
 *     contents/<d>/<id>   the bytes: files with numbers for names, written once, never changed
 *     lock                held while a store is open
 *
 * A write makes a new file, syncs it, and commits the row that names it; whoever reads sees the old
 * object or the new one. A file that no row names is removed when the store is opened, so whatever
 * ends the process at whatever moment, an object is whole or not there, and what was answered with
 * S3_OK is there.
 *
 * Threads. All calls may come from any thread. Those that read answer at once. Those that write
 * take a function that is called when the write is on the disk or has failed, once, in a thread of
 * the store's (or before the call returns, in the caller's); base_error_text() has the reason
 * there. It must not block. One thread writes rows, and commits at once what has come in while it
 * committed before, so that many writers share a sync. struct s3_wait makes a blocking call out of
 * any.
 *
 * Strings are NUL-terminated UTF-8, borrowed during the call unless said otherwise.
 */
#ifndef SHOAL_S3_STORE_H
#define SHOAL_S3_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3/code.h"
#include "s3/condition.h"
#include "s3/digest.h"
#include "s3/headers.h"
#include "s3/name.h"

#define S3_OBJECT_BYTES_MAX  (INT64_C(50) << 40)
#define S3_PART_BYTES_MIN    (INT64_C(5) << 20) /* but of the last one */
#define S3_PART_BYTES_MAX    (INT64_C(5) << 30)
#define S3_PART_NUMBER_MAX   10000
#define S3_HEADERS_BYTES_MAX (16 << 10)
#define S3_LIST_KEYS_MAX     1000
#define S3_DELETE_KEYS_MAX   1000
#define S3_UPLOAD_NAME_BYTES 33
#define S3_BUCKETS_MAX       10000

struct s3_store;

/* Takes the directory, which is made where it isn't there; one process at a time (STATE names who
 * has it). Removes what a killed process left behind. */
enum shoal_status s3_store_open(const char *directory, struct s3_store **out);
/* Waits for writes under way. Whatever was got from the store must have been given back. */
void s3_store_close(struct s3_store *store);

typedef void (*s3_done)(void *user, enum s3_code code);

/* A blocking call: s3_wait_init, the call with s3_wait_done and the struct, s3_wait_for. */
struct s3_wait {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
    enum s3_code code;
    char text[512];
};
void s3_wait_init(struct s3_wait *wait);
void s3_wait_done(void *wait, enum s3_code code);
/* The code, with its text in this thread; releases the struct. */
enum s3_code s3_wait_for(struct s3_wait *wait);

/* ------------------------------------------------------------------------------------ buckets */

struct s3_bucket {
    char name[S3_BUCKET_NAME_MAX + 1];
    int64_t created_ms;
};

/* INVALID_BUCKET_NAME, BUCKET_OWNED: it is there. */
void s3_bucket_create(struct s3_store *store, const char *name, s3_done done, void *user);
/* NO_SUCH_BUCKET, BUCKET_NOT_EMPTY. Uploads under way in it end. */
void s3_bucket_delete(struct s3_store *store, const char *name, s3_done done, void *user);
/* NO_SUCH_BUCKET. */
enum s3_code s3_bucket_find(struct s3_store *store, const char *name, struct s3_bucket *out);
/* All, by name; *out is freed with base_free. */
enum s3_code s3_bucket_list(struct s3_store *store, struct s3_bucket **out, size_t *count);

/* ------------------------------------------------------------------------------------ objects */

/* What the index says of an object. Texts are in one block, given back by s3_object_release. */
struct s3_object {
    int64_t bytes, modified_ms;
    char etag[S3_ETAG_BYTES]; /* without quotes */
    struct s3_checksum checksum;
    int part_count;      /* 0: not made of parts */
    const char *parts;   /* their sizes: "8388608*127 1234", "" where there are none */
    const char *headers; /* what s3_put_begin got (headers.h); "" */
    const char *tags;    /* the same */
    void *block;
};
void s3_object_release(struct s3_object *object);

/* Looks an object up, and opens it: *fd is for reading `bytes` from 0 (with pread or sendfile),
 * whatever becomes of the key; the caller closes it. fd NULL: only looks. NO_SUCH_BUCKET,
 * NO_SUCH_KEY, and what the conditions say (with NOT_MODIFIED and PRECONDITION_FAILED *out is
 * filled in too, and no file open). conditions may be NULL. */
enum s3_code s3_object_get(struct s3_store *store, const char *bucket, const char *key,
                           const struct s3_conditions *conditions, struct s3_object *out, int *fd);
/* The bytes of part `number`, from 1, of an object; the whole is part 1 of one that was not made of
 * parts. INVALID_PART_NUMBER. */
enum s3_code s3_object_part(const struct s3_object *object, int number, struct s3_range *out);

/* Keys that are not there count as deleted. NO_SUCH_BUCKET. conditions (NULL: none) hold for a
 * single key: If-Match. */
void s3_object_delete(struct s3_store *store, const char *bucket, const char *const *keys,
                      size_t count, const struct s3_conditions *conditions, s3_done done,
                      void *user);

/* Replaces the tags of an object. NO_SUCH_KEY. */
void s3_object_tag(struct s3_store *store, const char *bucket, const char *key, const char *tags,
                   s3_done done, void *user);

/* A copy has the contents of the source, which are shared: nothing is read or written but rows. */
struct s3_copy {
    const char *bucket, *key; /* from */
    const char *to_bucket, *to_key;
    const struct s3_conditions *conditions; /* on the source; NULL: none */
    const struct s3_conditions *to_conditions;
    const char *headers, *tags; /* NULL: the source's; */
    const char *storage; /* then with these in the place of its lines of storage; NULL: none */
};
/* The new object's; filled in before done is called. */
struct s3_written {
    char etag[S3_ETAG_BYTES];
    struct s3_checksum checksum;
    int64_t bytes, modified_ms;
};
void s3_object_copy(struct s3_store *store, const struct s3_copy *copy, struct s3_written *out,
                    s3_done done, void *user);

/* ---------------------------------------------------------------------------------------- put */

/* A body on its way in: an object or a part of an upload. One thread at a time. */
struct s3_put;

struct s3_put_options {
    const char *bucket, *key;
    const char *upload; /* NULL: an object; else the upload whose part this is */
    int part_number;
    int64_t bytes; /* if known, else -1: room is taken at once, and another length is an error */
    const char *headers, *tags;  /* lines (headers.h), "key=value&…"; NULL: none */
    enum s3_algorithm algorithm; /* of the checksum that is kept with it; a part has its upload's
                                  * where it has one */
    const struct s3_conditions *conditions; /* NULL: none; looked at when the object is committed */
    bool is_opaque; /* the ETag may be any that no other body has, rather than the MD5, which takes
                     * longer than all else */
};

/* NO_SUCH_BUCKET, NO_SUCH_UPLOAD, KEY_TOO_LONG, INVALID_ARGUMENT, ENTITY_TOO_LARGE, STORAGE_FULL.
 */
enum s3_code s3_put_begin(struct s3_store *store, const struct s3_put_options *options,
                          struct s3_put **out);
/* Takes the next bytes of the body. After an error the put can only be ended. */
enum s3_code s3_put_write(struct s3_put *put, const void *data, size_t bytes);

/* What the body must have been; NULL: nothing said. Texts of base64. */
struct s3_put_expected {
    const char *md5, *checksum;
};
/* The body is whole: commits it, and frees the put whatever happens. INCOMPLETE_BODY, BAD_DIGEST,
 * INVALID_DIGEST, NO_SUCH_BUCKET, NO_SUCH_UPLOAD, PRECONDITION_FAILED, STORAGE_FULL: then nothing
 * has changed. `out` (may be NULL) is filled in before done is called. */
void s3_put_finish(struct s3_put *put, const struct s3_put_expected *expected,
                   struct s3_written *out, s3_done done, void *user);
/* The body is as many bytes as were announced of a file, from `first` on; read in a thread of the
 * store's. fd is borrowed until done is called. */
void s3_put_finish_from(struct s3_put *put, int fd, int64_t first, struct s3_written *out,
                        s3_done done, void *user);
/* The body does not come whole: as if it had never begun. NULL is allowed. */
void s3_put_abort(struct s3_put *put);

/* --------------------------------------------------------------------------------------- list */

struct s3_list_options {
    const char *bucket;
    const char *prefix;    /* NULL or "": all */
    const char *delimiter; /* NULL or "": none. Keys that have it behind the prefix are one entry */
    const char *after;     /* keys behind this one only; NULL: from the first */
    int limit;             /* entries at most, up to S3_LIST_KEYS_MAX */
};

struct s3_list_entry {
    const char *key;
    bool is_prefix; /* stands for all keys that begin so; the rest is unset */
    int64_t bytes, modified_ms;
    char etag[S3_ETAG_BYTES];
    struct s3_checksum checksum;
    char storage_class[S3_CLASS_BYTES]; /* "" from a client's list */
};

/* One page, in the order of the keys' bytes. The next one is `after` the last entry's key; a prefix
 * in `after` that ends in the delimiter leaves out all keys below it. */
struct s3_list {
    struct s3_list_entry *entries;
    int count;
    bool is_truncated;
    void *texts;
};
/* NO_SUCH_BUCKET. */
enum s3_code s3_list(struct s3_store *store, const struct s3_list_options *options,
                     struct s3_list *out);
void s3_list_release(struct s3_list *list);

/* ------------------------------------------------------------------------------------ uploads */

struct s3_upload_options {
    const char *bucket, *key;
    const char *headers, *tags; /* of the object */
    enum s3_algorithm algorithm;
    bool is_composite; /* the object's checksum is one of its parts' checksums, not of its bytes */
};
/* `name` is filled in before done is called. */
void s3_upload_create(struct s3_store *store, const struct s3_upload_options *options,
                      char name[S3_UPLOAD_NAME_BYTES], s3_done done, void *user);
/* NO_SUCH_UPLOAD. Parts on their way in end with that too. */
void s3_upload_abort(struct s3_store *store, const char *bucket, const char *key,
                     const char *upload, s3_done done, void *user);

struct s3_part {
    int number;
    int64_t bytes, modified_ms;
    char etag[S3_ETAG_BYTES];
    struct s3_checksum checksum;
};
struct s3_upload {
    char key[S3_KEY_BYTES_MAX + 1];
    char name[S3_UPLOAD_NAME_BYTES];
    int64_t created_ms;
    enum s3_algorithm algorithm;
    bool is_composite;
    char storage_class[S3_CLASS_BYTES];
};
enum s3_code s3_upload_find(struct s3_store *store, const char *bucket, const char *key,
                            const char *upload, struct s3_upload *out);
/* Up to `limit` parts behind number `after`; *out is freed with base_free. */
enum s3_code s3_upload_parts(struct s3_store *store, const char *bucket, const char *key,
                             const char *upload, int after, int limit, struct s3_part **out,
                             size_t *count, bool *is_truncated);
/* Up to `limit` uploads of keys with the prefix, behind (after_key, after_name); base_free. */
enum s3_code s3_upload_list(struct s3_store *store, const char *bucket, const char *prefix,
                            const char *after_key, const char *after_name, int limit,
                            struct s3_upload **out, size_t *count, bool *is_truncated);

/* Makes the object out of parts: number and ETag of each, in order of number. INVALID_PART,
 * INVALID_PART_ORDER, ENTITY_TOO_SMALL, NO_SUCH_UPLOAD, OPERATION_ABORTED: it is being made
 * already. `checksum` (NULL: not said) must be the whole object's. Where the object is made of just
 * these parts and the upload is not there, it is done: who lost the answer may ask again. */
struct s3_complete {
    const char *bucket, *key, *upload;
    const struct s3_part *parts; /* number and etag; checksum where the caller gave one */
    size_t part_count;
    const char *checksum;
    const struct s3_conditions *conditions;
};
void s3_upload_complete(struct s3_store *store, const struct s3_complete *complete,
                        struct s3_written *out, s3_done done, void *user);

/* --------------------------------------------------------------------------------------- link */

/*
 * Puts objects in a directory of the same file system as hard links: no byte is copied, and the
 * files stay what they are if their keys change. Across file systems, and beyond what a file may
 * have of links, they are copied. The files are read-only, and must not be made otherwise.
 *
 * The path is the key without its first `strip_bytes`. A key that can't be a path (name.h), and a
 * key `a` beside a key `a/b`, are INVALID_ARGUMENT with both keys' names; links made before that
 * stay, for the caller to remove with the directory.
 */
struct s3_link_options {
    const char *bucket, *prefix;
    size_t strip_bytes;
    int directory_fd;
    /* Which ones, by their number in the list, from 0; NULL: all. */
    bool (*choose)(void *user, int64_t index, const char *key);
    void *user;
};
/* *count: links and copies made, without directories. */
enum s3_code s3_store_link(struct s3_store *store, const struct s3_link_options *options,
                           int64_t *count);
/* One object at a path below a directory, whose folders are made. */
enum s3_code s3_store_link_one(struct s3_store *store, const char *bucket, const char *key,
                               int directory_fd, const char *path);

#endif
