/* SPDX-License-Identifier: Apache-2.0 */
/* database.c: the index's schema, and S3's codes for what its database returns. */
#include "s3/database.h"

#include <string.h>

#define S3_SQL_TEXT(name, text) [S3_SQL_##name] = text,
static const char *const statements[S3_SQL_COUNT] = {S3_STATEMENTS(S3_SQL_TEXT)};

const struct sql_schema s3_schema = {.what = "the index of objects",
                                     .version = S3_SCHEMA_VERSION,
                                     .tables = S3_SCHEMA,
                                     .statements = statements,
                                     .statement_count = S3_SQL_COUNT};

void s3_bind_key(struct sql_database *database, sqlite3_stmt *statement, int place, const char *key)
{
    sql_bind_blob(database, statement, place, key, (int)strlen(key));
}

static enum s3_code code_of(const struct sql_database *database, enum shoal_status status)
{
    if (status == SHOAL_OK)
        return S3_OK;
    return database->is_full ? S3_STORAGE_FULL : S3_INTERNAL_ERROR;
}

enum s3_code s3_step(struct sql_database *database, sqlite3_stmt *statement, bool *row)
{
    return code_of(database, sql_step(database, statement, row));
}

enum s3_code s3_run(struct sql_database *database, sqlite3_stmt *statement)
{
    return code_of(database, sql_run(database, statement));
}
