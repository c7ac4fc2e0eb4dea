/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h: the thread that owns all writing to the index.
 *
 * Writes wait in a queue. The thread takes all that are there, applies them in one transaction, and
 * ends each of them when it is committed, so a sync is shared by all that came during the one
 * before. Each sees what those before it did. A write that is refused (a condition does not hold)
 * has changed nothing and does not hinder the others; where the database itself fails, the
 * transaction is undone and each write gets one of its own, so that none fails for another.
 */
#ifndef SHOAL_S3_WRITER_H
#define SHOAL_S3_WRITER_H

#include <pthread.h>
#include <stdint.h>

#include "s3/database.h"

struct s3_writer;

/* Embedded first in what a write needs. */
struct s3_write {
    /* Set by whoever submits. apply runs inside a transaction, perhaps twice, and changes only the
     * database; what it changed is undone unless it returns S3_OK. */
    enum s3_code (*apply)(struct s3_write *write, struct s3_writer *writer);
    /* Once, afterwards; owns the write. */
    void (*end)(struct s3_write *write, enum s3_code code);
    /* The writer's. */
    struct s3_write *next;
    enum s3_code code;
    char *text; /* of its error */
};

struct s3_store;

struct s3_writer {
    struct s3_store *store;
    struct s3_database database;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct s3_write *first, **last;
    bool stops, is_running;
    /* Files that the transaction leaves without a row. */
    int64_t *unused;
    size_t unused_count, unused_room;
};

/* The database is open already. */
enum shoal_status s3_writer_start(struct s3_writer *writer, struct s3_store *store);
/* When nothing is under way any more. Closes the database. */
void s3_writer_stop(struct s3_writer *writer);
/* From any thread, also from a write's end. */
void s3_writer_submit(struct s3_writer *writer, struct s3_write *write);

#endif
