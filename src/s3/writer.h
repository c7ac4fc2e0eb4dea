/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h: writes to the index, by the room sql's writer, with S3's codes; and the files that a
 * transaction leaves without a row.
 */
#ifndef SHOAL_S3_WRITER_H
#define SHOAL_S3_WRITER_H

#include <stdint.h>

#include "s3/database.h"
#include "sql/writer.h"

struct s3_writer;

/* Embedded first in what a write needs. */
struct s3_write {
    struct sql_write sql; /* the writer's */
    /* Set by whoever submits. apply runs inside a transaction, perhaps twice, and changes only the
     * database; what it changed is undone unless it returns S3_OK. */
    enum s3_code (*apply)(struct s3_write *write, struct s3_writer *writer);
    /* Once, afterwards; owns the write. */
    void (*end)(struct s3_write *write, enum s3_code code);
    /* The writer's. */
    struct s3_writer *writer;
    enum s3_code code;
};

struct s3_store;

struct s3_writer {
    struct sql_writer sql;
    struct s3_store *store;
    /* Files that the transaction leaves without a row, and how many there were before it. */
    int64_t *unused;
    size_t unused_count, unused_room, unused_before;
};

/* The database is open already. */
enum shoal_status s3_writer_start(struct s3_writer *writer, struct s3_store *store);
/* When nothing is under way any more. Closes the database. */
void s3_writer_stop(struct s3_writer *writer);
/* From any thread, also from a write's end. */
void s3_writer_submit(struct s3_writer *writer, struct s3_write *write);

#endif
