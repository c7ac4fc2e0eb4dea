/* SPDX-License-Identifier: Apache-2.0 */
/*
 * database.c: SQLite with its log ahead of the data (WAL): readers never wait for the writer, and a
 * commit is one append and one sync.
 *
 * A connection's statements are those of transactions, then the schema's.
 */
#include "sql/database.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define BUSY_TIMEOUT_MS 10000

static const char *const transactions[SQL_TRANSACTION_COUNT] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",     [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",         [SQL_MARK] = "SAVEPOINT one",
    [SQL_MARK_UNDO] = "ROLLBACK TO one", [SQL_MARK_END] = "RELEASE one"};

static enum shoal_status failed(struct sql_database *database, const char *what)
{
    const char *why =
        database->connection != NULL ? sqlite3_errmsg(database->connection) : "out of memory";
    return base_error(SHOAL_ERR_SYSTEM, "%s can't %s: %s", database->schema->what, what, why);
}

static enum shoal_status execute(struct sql_database *database, const char *sql, const char *what)
{
    if (sqlite3_exec(database->connection, sql, NULL, NULL, NULL) != SQLITE_OK)
        return failed(database, what);
    return SHOAL_OK;
}

static enum shoal_status version_get(struct sql_database *database, int *out)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(database->connection, "PRAGMA user_version", -1, &statement, NULL) !=
        SQLITE_OK)
        return failed(database, "be read");
    int status = sqlite3_step(statement);
    *out = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return status == SQLITE_ROW ? SHOAL_OK : failed(database, "be read");
}

/* One transaction: a kill leaves an empty file or a whole one, of one version or the other. */
static enum shoal_status tables_make(struct sql_database *database, int version)
{
    const struct sql_schema *schema = database->schema;
    char end[64];
    snprintf(end, sizeof(end), "PRAGMA user_version = %d; COMMIT", schema->version);
    TRY(execute(database, "BEGIN IMMEDIATE", "be made"));
    if (version == 0)
        TRY(execute(database, schema->tables, "be made"));
    for (; version > 0 && version < schema->version; version++)
        TRY(execute(database, schema->upgrades[version - 1], "be brought up to date"));
    return execute(database, end, "be made");
}

static enum shoal_status schema_make(struct sql_database *database)
{
    const struct sql_schema *schema = database->schema;
    int version = 0;
    TRY(version_get(database, &version));
    if (version == schema->version)
        return SHOAL_OK;
    if (version > schema->version || (version > 0 && schema->upgrades == NULL))
        return base_error(SHOAL_ERR_FORMAT,
                          "%s is of version %d, and this program knows only %d; use the program "
                          "that made it",
                          schema->what, version, schema->version);
    return tables_make(database, version);
}

static enum shoal_status configure(struct sql_database *database, bool is_writer)
{
    sqlite3_busy_timeout(database->connection, BUSY_TIMEOUT_MS);
    sqlite3_extended_result_codes(database->connection, 1);
    TRY(execute(database, "PRAGMA cache_size = -2048;", "be set up"));
    if (!is_writer)
        return execute(database, "PRAGMA query_only = 1", "be set up");
    TRY(execute(database, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;", "be set up"));
    return schema_make(database);
}

enum shoal_status sql_database_open(const char *path, const struct sql_schema *schema,
                                    bool is_writer, struct sql_database *out)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (is_writer ? SQLITE_OPEN_CREATE : 0);
    *out = (struct sql_database){.schema = schema};
    TRY(BASE_NEW_ARRAY(&out->statements, SQL_TRANSACTION_COUNT + schema->statement_count,
                       "a connection's statements"));
    enum shoal_status status = SHOAL_OK;
    if (sqlite3_open_v2(path, &out->connection, flags, NULL) != SQLITE_OK)
        status = failed(out, "be opened");
    if (status == SHOAL_OK)
        status = configure(out, is_writer);
    if (status != SHOAL_OK) {
        sql_database_close(out);
        return base_error_context(status, "%s", path);
    }
    return SHOAL_OK;
}

void sql_database_close(struct sql_database *database)
{
    if (database->statements != NULL)
        for (int i = 0; i < SQL_TRANSACTION_COUNT + database->schema->statement_count; i++)
            sqlite3_finalize(database->statements[i]);
    base_free(database->statements);
    sqlite3_close(database->connection);
    *database = (struct sql_database){0};
}

static sqlite3_stmt *statement_ready(struct sql_database *database, int index, const char *text)
{
    sqlite3_stmt **statement = &database->statements[index];
    database->bind_status = SQLITE_OK;
    if (*statement == NULL)
        database->bind_status = sqlite3_prepare_v3(database->connection, text, -1,
                                                   SQLITE_PREPARE_PERSISTENT, statement, NULL);
    else
        sql_reset(*statement);
    return *statement;
}

sqlite3_stmt *sql_statement(struct sql_database *database, int which)
{
    BASE_ASSERT(which >= 0 && which < database->schema->statement_count);
    return statement_ready(database, SQL_TRANSACTION_COUNT + which,
                           database->schema->statements[which]);
}

enum shoal_status sql_prepare(struct sql_database *database, const char *text, sqlite3_stmt **out)
{
    database->bind_status = SQLITE_OK;
    if (sqlite3_prepare_v2(database->connection, text, -1, out, NULL) != SQLITE_OK)
        return base_error(SHOAL_ERR_ARGUMENT, "%s can't be asked so: %s", database->schema->what,
                          sqlite3_errmsg(database->connection));
    return SHOAL_OK;
}

enum shoal_status sql_transact(struct sql_database *database, enum sql_transaction which)
{
    return sql_run(database, statement_ready(database, (int)which, transactions[which]));
}

static void bound(struct sql_database *database, int status)
{
    if (database->bind_status == SQLITE_OK)
        database->bind_status = status;
}

void sql_bind_int(struct sql_database *database, sqlite3_stmt *statement, int place, int64_t value)
{
    bound(database, sqlite3_bind_int64(statement, place, value));
}

void sql_bind_real(struct sql_database *database, sqlite3_stmt *statement, int place, double value)
{
    bound(database, sqlite3_bind_double(statement, place, value));
}

void sql_bind_text(struct sql_database *database, sqlite3_stmt *statement, int place,
                   const char *text)
{
    bound(database, sqlite3_bind_text(statement, place, text, -1, SQLITE_STATIC));
}

void sql_bind_blob(struct sql_database *database, sqlite3_stmt *statement, int place,
                   const void *data, int bytes)
{
    bound(database, sqlite3_bind_blob(statement, place, data, bytes, SQLITE_STATIC));
}

static enum shoal_status step_failed(struct sql_database *database, int status)
{
    int primary = status & 0xff;
    int number = sqlite3_system_errno(database->connection);
    database->is_full = primary == SQLITE_FULL ||
                        (primary == SQLITE_IOERR && (number == ENOSPC || number == EDQUOT));
    if (database->is_full)
        return base_error(SHOAL_ERR_SYSTEM, "The disk that has %s is full.",
                          database->schema->what);
    return base_error(SHOAL_ERR_SYSTEM, "%s fails: %s (%d)", database->schema->what,
                      sqlite3_errstr(primary), status);
}

enum shoal_status sql_step(struct sql_database *database, sqlite3_stmt *statement, bool *row)
{
    int status = database->bind_status;
    if (status == SQLITE_OK)
        status = sqlite3_step(statement);
    *row = status == SQLITE_ROW;
    if (status == SQLITE_ROW)
        return SHOAL_OK;
    enum shoal_status result = status == SQLITE_DONE ? SHOAL_OK : step_failed(database, status);
    sql_reset(statement);
    return result;
}

enum shoal_status sql_run(struct sql_database *database, sqlite3_stmt *statement)
{
    bool row;
    TRY(sql_step(database, statement, &row));
    if (row)
        sql_reset(statement);
    return SHOAL_OK;
}

void sql_reset(sqlite3_stmt *statement)
{
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
}

const char *sql_column_text(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text != NULL ? text : "";
}
