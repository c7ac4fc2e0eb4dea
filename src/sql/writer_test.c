/* SPDX-License-Identifier: Apache-2.0 */
/* writer_test.c: transactions that many share: refusals and failures of some, order, waiting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "sql/readers.h"
#include "sql/writer.h"

enum { ADD, SUM };
static const char *const statements[] = {
    [ADD] = "INSERT INTO number VALUES(?1)", [SUM] = "SELECT coalesce(sum(value), 0) FROM number"};
static const struct sql_schema schema = {
    .what = "the numbers",
    .version = 1,
    .tables = "CREATE TABLE number(value INTEGER NOT NULL UNIQUE) STRICT;",
    .statements = statements,
    .statement_count = 2};

struct fixture {
    char path[64];
    struct sql_writer writer;
    struct sql_readers readers;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    snprintf(fixture->path, sizeof(fixture->path), "/tmp/shoal-sql-XXXXXX");
    close(mkstemp(fixture->path));
    assert_int_equal(sql_database_open(fixture->path, &schema, true, &fixture->writer.database),
                     SHOAL_OK);
    assert_int_equal(sql_readers_init(&fixture->readers, fixture->path, &schema), SHOAL_OK);
    assert_int_equal(sql_writer_start(&fixture->writer, NULL), SHOAL_OK);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    struct fixture *fixture = *state;
    char path[80];
    sql_readers_release(&fixture->readers);
    sql_writer_stop(&fixture->writer);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s%s", fixture->path, ends[i]);
        unlink(path);
    }
    free(fixture);
    return 0;
}

static int64_t sum(struct fixture *fixture)
{
    struct sql_database *reader;
    bool row;
    assert_int_equal(sql_reader_take(&fixture->readers, &reader), SHOAL_OK);
    sqlite3_stmt *ask = sql_statement(reader, SUM);
    assert_int_equal(sql_step(reader, ask, &row), SHOAL_OK);
    int64_t result = sqlite3_column_int64(ask, 0);
    sql_reset(ask);
    sql_reader_give(&fixture->readers, reader);
    return result;
}

struct add {
    struct sql_write write;
    int64_t value;
    enum shoal_status verdict; /* of its own, after the row is written */
    enum shoal_status status;
    char text[64];
};

static enum shoal_status add_apply(struct sql_write *write, struct sql_database *database)
{
    struct add *add = (struct add *)write;
    sqlite3_stmt *insert = sql_statement(database, ADD);
    sql_bind_int(database, insert, 1, add->value);
    TRY(sql_run(database, insert));
    return add->verdict == SHOAL_OK ? SHOAL_OK : base_error(add->verdict, "no %d", (int)add->value);
}

static void add_end(struct sql_write *write, enum shoal_status status)
{
    struct add *add = (struct add *)write;
    add->status = status;
    snprintf(add->text, sizeof(add->text), "%s", base_error_text());
}

static void add_init(struct add *add, int64_t value, enum shoal_status verdict)
{
    *add = (struct add){
        .write = {.apply = add_apply, .end = add_end}, .value = value, .verdict = verdict};
}

static void test_each_write_has_its_own_outcome(void **state)
{
    struct fixture *fixture = *state;
    struct add adds[8], last;
    for (int i = 0; i < 8; i++) {
        add_init(&adds[i], 1 << i, i == 2 ? SHOAL_ERR_ARGUMENT : SHOAL_OK);
        if (i == 5)
            adds[i].verdict = SHOAL_ERR_SYSTEM;
        sql_writer_submit(&fixture->writer, &adds[i].write);
    }
    add_init(&last, 1 << 8, SHOAL_OK);
    assert_int_equal(sql_writer_run(&fixture->writer, &last.write), SHOAL_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(adds[i].status, adds[i].verdict);
    assert_string_equal(adds[2].text, "no 4");
    assert_string_equal(adds[5].text, "no 32");
    assert_int_equal(sum(fixture), 0x1ff - 4 - 32);
}

static void test_a_constraint_fails_its_write_only(void **state)
{
    struct fixture *fixture = *state;
    struct add twice[2], other;
    add_init(&twice[0], 7, SHOAL_OK);
    add_init(&twice[1], 7, SHOAL_OK);
    add_init(&other, 8, SHOAL_OK);
    sql_writer_submit(&fixture->writer, &twice[0].write);
    sql_writer_submit(&fixture->writer, &twice[1].write);
    assert_int_equal(sql_writer_run(&fixture->writer, &other.write), SHOAL_OK);
    assert_int_equal(twice[0].status, SHOAL_OK);
    assert_int_equal(twice[1].status, SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(twice[1].text, "the numbers fails"));
    assert_int_equal(sum(fixture), 15);
}

static void test_waiting_gives_the_error_to_who_waits(void **state)
{
    struct fixture *fixture = *state;
    struct add add;
    add_init(&add, 3, SHOAL_ERR_STATE);
    assert_int_equal(sql_writer_run(&fixture->writer, &add.write), SHOAL_ERR_STATE);
    assert_string_equal(base_error_text(), "no 3");
    assert_int_equal(sum(fixture), 0);
}

static void test_another_version_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct sql_schema newer = schema;
    struct sql_database database;
    newer.version = 2;
    assert_int_equal(sql_database_open(fixture->path, &newer, true, &database), SHOAL_ERR_FORMAT);
    assert_non_null(strstr(base_error_text(), "the numbers is of version 1"));
}

static void test_an_earlier_version_is_brought_up_to_date(void **state)
{
    static const char *const upgrades[] = {
        "INSERT INTO number VALUES(20);",
        "ALTER TABLE number ADD COLUMN name TEXT; INSERT INTO number VALUES(300, 'a');"};
    struct fixture *fixture = *state;
    struct sql_schema newer = schema;
    struct sql_database database;
    struct add add;
    add_init(&add, 1, SHOAL_OK);
    assert_int_equal(sql_writer_run(&fixture->writer, &add.write), SHOAL_OK);
    newer.version = 3;
    newer.upgrades = upgrades;
    for (int i = 0; i < 2; i++) { /* once */
        assert_int_equal(sql_database_open(fixture->path, &newer, true, &database), SHOAL_OK);
        sql_database_close(&database);
    }
    assert_int_equal(sum(fixture), 321);
    assert_int_equal(sql_database_open(fixture->path, &schema, true, &database), SHOAL_ERR_FORMAT);
    assert_non_null(strstr(base_error_text(), "the numbers is of version 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_write_has_its_own_outcome, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_constraint_fails_its_write_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waiting_gives_the_error_to_who_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_version_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_earlier_version_is_brought_up_to_date, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
