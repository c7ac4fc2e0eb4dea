/* SPDX-License-Identifier: Apache-2.0 */
/*
 * database.h: a connection to an SQLite file, and its statements.
 *
 * Whoever has a file describes it with a schema: its tables, and every statement that works on
 * them, in one array whose indices are an enumeration. A connection belongs to one thread at a
 * time. Statements are compiled at first use and kept. What fails in binding is remembered and
 * comes out of sql_step, so that callers have one thing to check.
 */
#ifndef SHOAL_SQL_DATABASE_H
#define SHOAL_SQL_DATABASE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

struct sql_schema {
    const char *what; /* in texts of errors: "the index of objects" */
    int version;      /* a file of a later one is refused */
    const char *tables;
    /* What makes version n + 1 of version n, for n from 1 on; NULL where there is but one. */
    const char *const *upgrades;
    const char *const *statements;
    int statement_count;
};

struct sql_database {
    const struct sql_schema *schema;
    sqlite3 *connection;
    sqlite3_stmt **statements;
    int bind_status;           /* the first that failed since the last sql_statement */
    bool is_full;              /* the last step that failed did so because the disk is full */
    struct sql_database *next; /* of a list of free ones */
};

/* Opens the file; the writer also makes it, with its tables, or brings one of an earlier version up
 * to this. FORMAT: it is of a later version. */
enum shoal_status sql_database_open(const char *path, const struct sql_schema *schema,
                                    bool is_writer, struct sql_database *out);
/* Safe on a zeroed one. */
void sql_database_close(struct sql_database *database);

/* The statement with this index in the schema, ready to be bound and stepped. */
sqlite3_stmt *sql_statement(struct sql_database *database, int which);
void sql_bind_int(struct sql_database *database, sqlite3_stmt *statement, int place, int64_t value);
void sql_bind_real(struct sql_database *database, sqlite3_stmt *statement, int place, double value);
/* NULL binds NULL. Borrowed until the statement is used again. */
void sql_bind_text(struct sql_database *database, sqlite3_stmt *statement, int place,
                   const char *text);
void sql_bind_blob(struct sql_database *database, sqlite3_stmt *statement, int place,
                   const void *data, int bytes);
/* *row: there is one; else the statement is at its end and is reset. SYSTEM: see is_full. */
enum shoal_status sql_step(struct sql_database *database, sqlite3_stmt *statement, bool *row);
/* Of a statement that gives no rows, or whose rows are not wanted. */
enum shoal_status sql_run(struct sql_database *database, sqlite3_stmt *statement);
/* Ends a statement whose rows are not all wanted: what its columns gave is gone. */
void sql_reset(sqlite3_stmt *statement);
/* A statement that is no part of the schema, to be stepped and then finalized by
 * sqlite3_finalize(). SHOAL_ERR_ARGUMENT if it is none. */
enum shoal_status sql_prepare(struct sql_database *database, const char *text, sqlite3_stmt **out);
/* A column as text of its own size; "" for NULL. Valid until the next step. */
const char *sql_column_text(sqlite3_stmt *statement, int column);

/* Transactions, for the writer. */
enum sql_transaction {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_MARK,
    SQL_MARK_UNDO,
    SQL_MARK_END,
    SQL_TRANSACTION_COUNT
};
enum shoal_status sql_transact(struct sql_database *database, enum sql_transaction which);

#endif
