/* SPDX-License-Identifier: Apache-2.0 */
/* record_fixture.h: for the tests of this room: a database in a file of its own, and jobs in it. */
#ifndef SHOAL_SERVICE_RECORD_FIXTURE_H
#define SHOAL_SERVICE_RECORD_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "service/record.h"

struct record_fixture {
    char path[64];
    struct sql_database database;
};

static inline void record_fixture_open(struct record_fixture *fixture)
{
    snprintf(fixture->path, sizeof(fixture->path), "/tmp/shoal-record-XXXXXX");
    close(mkstemp(fixture->path));
    assert_int_equal(sql_database_open(fixture->path, &service_schema, true, &fixture->database),
                     SHOAL_OK);
}

static inline void record_fixture_close(struct record_fixture *fixture)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    char path[80];
    sql_database_close(&fixture->database);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s%s", fixture->path, ends[i]);
        unlink(path);
    }
}

/* The row of a job that is in progress; its number. */
static inline int64_t record_fixture_add(struct record_fixture *fixture, const char *name,
                                         const char *arn, int64_t priority, int64_t created_ms)
{
    struct sql_database *database = &fixture->database;
    sqlite3_stmt *add = sql_statement(database, SERVICE_SQL_JOB_ADD);
    sql_bind_text(database, add, 1, name);
    sql_bind_text(database, add, 2, arn);
    sql_bind_int(database, add, 3, priority);
    sql_bind_text(database, add, 4, SERVICE_IN_PROGRESS);
    sql_bind_text(database, add, 5, "");
    sql_bind_int(database, add, 6, created_ms);
    assert_int_equal(sql_run(database, add), SHOAL_OK);
    return sqlite3_last_insert_rowid(database->connection);
}

#endif
