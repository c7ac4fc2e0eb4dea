/* SPDX-License-Identifier: Apache-2.0 */
/*
 * database.h: a connection to the index, and its statements.
 *
 * A connection belongs to one thread at a time. Statements are compiled at first use and kept. What
 * fails in binding is remembered and comes out of s3_step, so that callers have one thing to check.
 */
#ifndef SHOAL_S3_DATABASE_H
#define SHOAL_S3_DATABASE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "s3/code.h"
#include "s3/sql.h"

struct s3_database {
    sqlite3 *connection;
    sqlite3_stmt *statements[S3_SQL_COUNT];
    int bind_status;          /* the first that failed since the last s3_sql */
    struct s3_database *next; /* of a list of free ones */
};

/* Opens the file; the writer also makes it, with its tables. FORMAT: it is of another version. */
enum shoal_status s3_database_open(const char *path, bool is_writer, struct s3_database *out);
/* Safe on a zeroed one. */
void s3_database_close(struct s3_database *database);

/* The statement, ready to be bound and stepped. */
sqlite3_stmt *s3_sql(struct s3_database *database, enum s3_sql which);
void s3_bind_int(struct s3_database *database, sqlite3_stmt *statement, int place, int64_t value);
/* NULL binds NULL. Borrowed until the statement is used again. */
void s3_bind_text(struct s3_database *database, sqlite3_stmt *statement, int place,
                  const char *text);
void s3_bind_blob(struct s3_database *database, sqlite3_stmt *statement, int place,
                  const void *data, int bytes);
/* Keys are blobs, which SQLite orders by their bytes. */
void s3_bind_key(struct s3_database *database, sqlite3_stmt *statement, int place, const char *key);
/* *row: there is one; else the statement is at its end and is reset. STORAGE_FULL, INTERNAL_ERROR.
 */
enum s3_code s3_step(struct s3_database *database, sqlite3_stmt *statement, bool *row);
/* Of a statement that gives no rows. */
enum s3_code s3_run(struct s3_database *database, sqlite3_stmt *statement);
/* Ends a statement whose rows are not all wanted: what its columns gave is gone. */
void s3_reset(sqlite3_stmt *statement);
/* A column as text of its own size; "" for NULL. Valid until the next step. */
const char *s3_column_text(sqlite3_stmt *statement, int column);

#endif
