/* SPDX-License-Identifier: Apache-2.0 */
/*
 * database.c: SQLite with its log ahead of the data (WAL): readers never wait for the writer, and a
 * commit is one append and one sync.
 */
#include "s3/database.h"

#include <errno.h>
#include <string.h>

#include "base/status.h"

#define BUSY_TIMEOUT_MS 10000

#define S3_SQL_TEXT(name, text) [S3_SQL_##name] = text,
static const char *const texts[S3_SQL_COUNT] = {S3_STATEMENTS(S3_SQL_TEXT)};

static enum shoal_status failed(struct s3_database *database, const char *what)
{
    const char *why =
        database->connection != NULL ? sqlite3_errmsg(database->connection) : "out of memory";
    return base_error(SHOAL_ERR_SYSTEM, "the index of objects can't %s: %s", what, why);
}

static enum shoal_status execute(struct s3_database *database, const char *sql, const char *what)
{
    if (sqlite3_exec(database->connection, sql, NULL, NULL, NULL) != SQLITE_OK)
        return failed(database, what);
    return SHOAL_OK;
}

static enum shoal_status version_get(struct s3_database *database, int *out)
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

static enum shoal_status schema_make(struct s3_database *database)
{
    int version = 0;
    TRY(version_get(database, &version));
    if (version == S3_SCHEMA_VERSION)
        return SHOAL_OK;
    if (version != 0)
        return base_error(SHOAL_ERR_FORMAT,
                          "the index of objects is of version %d, and this program knows only %d; "
                          "use the program that made it",
                          version, S3_SCHEMA_VERSION);
    /* One transaction: a kill leaves an empty file or a whole one. */
    return execute(database, "BEGIN IMMEDIATE;" S3_SCHEMA "PRAGMA user_version = 1; COMMIT",
                   "be made");
}

static enum shoal_status configure(struct s3_database *database, bool is_writer)
{
    sqlite3_busy_timeout(database->connection, BUSY_TIMEOUT_MS);
    sqlite3_extended_result_codes(database->connection, 1);
    TRY(execute(database, "PRAGMA cache_size = -2048;", "be set up"));
    if (!is_writer)
        return execute(database, "PRAGMA query_only = 1", "be set up");
    TRY(execute(database, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;", "be set up"));
    return schema_make(database);
}

enum shoal_status s3_database_open(const char *path, bool is_writer, struct s3_database *out)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (is_writer ? SQLITE_OPEN_CREATE : 0);
    *out = (struct s3_database){0};
    enum shoal_status status = SHOAL_OK;
    if (sqlite3_open_v2(path, &out->connection, flags, NULL) != SQLITE_OK)
        status = failed(out, "be opened");
    if (status == SHOAL_OK)
        status = configure(out, is_writer);
    if (status != SHOAL_OK) {
        s3_database_close(out);
        return base_error_context(status, "%s", path);
    }
    return SHOAL_OK;
}

void s3_database_close(struct s3_database *database)
{
    for (int i = 0; i < S3_SQL_COUNT; i++)
        sqlite3_finalize(database->statements[i]);
    sqlite3_close(database->connection);
    *database = (struct s3_database){0};
}

sqlite3_stmt *s3_sql(struct s3_database *database, enum s3_sql which)
{
    sqlite3_stmt **statement = &database->statements[which];
    database->bind_status = SQLITE_OK;
    if (*statement == NULL)
        database->bind_status = sqlite3_prepare_v3(database->connection, texts[which], -1,
                                                   SQLITE_PREPARE_PERSISTENT, statement, NULL);
    else
        s3_reset(*statement);
    return *statement;
}

static void bound(struct s3_database *database, int status)
{
    if (database->bind_status == SQLITE_OK)
        database->bind_status = status;
}

void s3_bind_int(struct s3_database *database, sqlite3_stmt *statement, int place, int64_t value)
{
    bound(database, sqlite3_bind_int64(statement, place, value));
}

void s3_bind_text(struct s3_database *database, sqlite3_stmt *statement, int place,
                  const char *text)
{
    bound(database, sqlite3_bind_text(statement, place, text, -1, SQLITE_STATIC));
}

void s3_bind_blob(struct s3_database *database, sqlite3_stmt *statement, int place,
                  const void *data, int bytes)
{
    bound(database, sqlite3_bind_blob(statement, place, data, bytes, SQLITE_STATIC));
}

void s3_bind_key(struct s3_database *database, sqlite3_stmt *statement, int place, const char *key)
{
    s3_bind_blob(database, statement, place, key, (int)strlen(key));
}

static enum s3_code step_failed(struct s3_database *database, int status)
{
    int primary = status & 0xff;
    int number = sqlite3_system_errno(database->connection);
    if (primary == SQLITE_FULL ||
        (primary == SQLITE_IOERR && (number == ENOSPC || number == EDQUOT)))
        return s3_error(S3_STORAGE_FULL, "The disk that has the index of objects is full.");
    return s3_error(S3_INTERNAL_ERROR, "the index of objects fails: %s (%d)",
                    sqlite3_errstr(primary), status);
}

enum s3_code s3_step(struct s3_database *database, sqlite3_stmt *statement, bool *row)
{
    int status = database->bind_status;
    if (status == SQLITE_OK)
        status = sqlite3_step(statement);
    *row = status == SQLITE_ROW;
    if (status == SQLITE_ROW)
        return S3_OK;
    enum s3_code code = status == SQLITE_DONE ? S3_OK : step_failed(database, status);
    s3_reset(statement);
    return code;
}

enum s3_code s3_run(struct s3_database *database, sqlite3_stmt *statement)
{
    bool row;
    S3_TRY(s3_step(database, statement, &row));
    if (row)
        s3_reset(statement);
    return S3_OK;
}

void s3_reset(sqlite3_stmt *statement)
{
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
}

const char *s3_column_text(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text != NULL ? text : "";
}
