/* SPDX-License-Identifier: Apache-2.0 */
/* database.h: the index as a database of the room sql, whose failures are S3's codes here. */
#ifndef SHOAL_S3_DATABASE_H
#define SHOAL_S3_DATABASE_H

#include "s3/code.h"
#include "s3/sql.h"
#include "sql/database.h"

extern const struct sql_schema s3_schema;

/* Keys are blobs, which SQLite orders by their bytes. */
void s3_bind_key(struct sql_database *database, sqlite3_stmt *statement, int place,
                 const char *key);
/* As sql_step and sql_run. STORAGE_FULL, INTERNAL_ERROR. */
enum s3_code s3_step(struct sql_database *database, sqlite3_stmt *statement, bool *row);
enum s3_code s3_run(struct sql_database *database, sqlite3_stmt *statement);

#endif
