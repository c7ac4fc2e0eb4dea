/* SPDX-License-Identifier: Apache-2.0 */
/* record_test.c: a job's rows through its life: statuses, transitions, attempts, its end, and that
 * nothing is left when it is deleted. */
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
#include "service/prepare.h"
#include "service/record_fixture.h"

struct fixture {
    struct record_fixture rows;
    int64_t id;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    record_fixture_open(&fixture->rows);
    fixture->id = record_fixture_add(&fixture->rows, "One", "arn:one", 7, service_now_ms());
    assert_int_equal(service_row_enter(&fixture->rows.database, fixture->id, SERVICE_STARTING),
                     SHOAL_OK);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    record_fixture_close(&fixture->rows);
    free(fixture);
    return 0;
}

static void enter(struct fixture *fixture, enum service_secondary which)
{
    assert_int_equal(service_row_enter(&fixture->rows.database, fixture->id, which), SHOAL_OK);
}

static struct service_row row_of(struct fixture *fixture)
{
    struct service_row row;
    assert_int_equal(service_row_get(&fixture->rows.database, fixture->id, &row), SHOAL_OK);
    return row;
}

static void expect(struct fixture *fixture, const char *status, const char *secondary)
{
    struct service_row row = row_of(fixture);
    assert_string_equal(row.status, status);
    assert_string_equal(row.secondary, secondary);
}

/* Their statuses, with blanks between; each begins when the one before ends. */
static void expect_transitions(struct fixture *fixture, const char *expected)
{
    json_t *list;
    char found[256] = "";
    double ended = 0;
    assert_int_equal(service_transitions_get(&fixture->rows.database, fixture->id, &list),
                     SHOAL_OK);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *end = json_object_get(one, "EndTime");
        double start = json_real_value(json_object_get(one, "StartTime"));
        size_t used = strlen(found);
        snprintf(found + used, sizeof(found) - used, "%s%s", i > 0 ? " " : "",
                 json_string_value(json_object_get(one, "Status")));
        assert_true(i == 0 || start == ended);
        ended = json_real_value(end);
    }
    json_decref(list);
    assert_string_equal(found, expected);
}

static void test_a_status_follows_the_other(void **state)
{
    struct fixture *fixture = *state;
    json_t *list;
    enter(fixture, SERVICE_PREPARING_INSTANCES);
    expect_transitions(fixture, "Starting");
    assert_int_equal(service_transitions_get(&fixture->rows.database, fixture->id, &list),
                     SHOAL_OK);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(list, 0), "StatusMessage")),
        "Preparing the instances for training");
    assert_null(json_object_get(json_array_get(list, 0), "EndTime"));
    json_decref(list);
    enter(fixture, SERVICE_DOWNLOADING);
    enter(fixture, SERVICE_TRAINING);
    expect(fixture, "InProgress", "Training");
    enter(fixture, SERVICE_UPLOADING);
    enter(fixture, SERVICE_COMPLETED);
    expect(fixture, "Completed", "Completed");
    expect_transitions(fixture, "Starting Downloading Training Uploading Completed");
}

static void test_a_job_that_is_being_stopped_stays_so_until_its_end(void **state)
{
    struct fixture *fixture = *state;
    enter(fixture, SERVICE_TRAINING);
    enter(fixture, SERVICE_STOPPING_NOW);
    assert_true(row_of(fixture).is_stopping);
    enter(fixture, SERVICE_UPLOADING);
    expect(fixture, "Stopping", "Uploading");
    enter(fixture, SERVICE_STOPPED);
    expect(fixture, "Stopped", "Stopped");
    assert_false(row_of(fixture).is_stopping);
}

static void test_attempts_add_up(void **state)
{
    struct fixture *fixture = *state;
    struct sql_database *database = &fixture->rows.database;
    int64_t id = fixture->id;
    assert_int_equal(service_row_number(database, SERVICE_SQL_JOB_BEGIN, id, 5), SHOAL_OK);
    assert_int_equal(service_row_number(database, SERVICE_SQL_JOB_STARTED, id, 111), SHOAL_OK);
    assert_int_equal(service_row_number(database, SERVICE_SQL_JOB_ATTEMPT, id, 1000), SHOAL_OK);
    struct service_row row = row_of(fixture);
    assert_int_equal(row.phase, SERVICE_WAITING);
    assert_int_equal(row.attempt, 2);
    assert_int_equal(row.accelerators, 5);
    assert_int_equal(service_row_number(database, SERVICE_SQL_JOB_STARTED, id, 222), SHOAL_OK);
    sqlite3_stmt *end = sql_statement(database, SERVICE_SQL_JOB_END);
    sql_bind_int(database, end, 1, id);
    sql_bind_text(database, end, 2, "because");
    sql_bind_int(database, end, 3, 333);
    sql_bind_int(database, end, 4, 500);
    assert_int_equal(sql_run(database, end), SHOAL_OK);
    row = row_of(fixture);
    assert_int_equal(row.phase, SERVICE_ENDED);
    assert_int_equal(row.started_ms, 111);
    assert_int_equal(row.ended_ms, 333);
    assert_int_equal(row.trained_ms, 1500);
    assert_string_equal(row.reason, "because");
}

/* An error's text that is cut within a character is the reason up to it: JSON takes no half ones.
 */
static void test_reasons_are_utf8(void **state)
{
    char reason[SERVICE_REASON_BYTES];
    (void)state;
    base_error(SHOAL_ERR_ARGUMENT, "no object s3://bkt/%.4s", "a\xE2\x82\xAC\xE2\x82\xAC");
    service_reason(SHOAL_ERR_ARGUMENT, reason);
    assert_string_equal(reason, "ClientError: no object s3://bkt/a\xE2\x82\xAC");
    base_error(SHOAL_ERR_SYSTEM, "CapacityError: %.3s", "a\xE2\x82\xAC");
    service_reason(SHOAL_ERR_SYSTEM, reason);
    json_t *text = json_string(reason);
    assert_non_null(text);
    json_decref(text);
}

static void test_names_differ_in_more_than_case(void **state)
{
    struct fixture *fixture = *state;
    struct service_row row;
    bool found;
    assert_int_equal(service_row_find(&fixture->rows.database, "oNE", &found, &row), SHOAL_OK);
    assert_true(found);
    assert_string_equal(row.name, "One");
    assert_int_equal(row.priority, 7);
    assert_int_equal(service_row_find(&fixture->rows.database, "two", &found, &row), SHOAL_OK);
    assert_false(found);
}

static int64_t count(struct fixture *fixture, const char *table)
{
    char text[128];
    sqlite3_stmt *statement;
    bool row;
    snprintf(text, sizeof(text), "SELECT count(*) FROM %s", table);
    assert_int_equal(sql_prepare(&fixture->rows.database, text, &statement), SHOAL_OK);
    assert_int_equal(sql_step(&fixture->rows.database, statement, &row), SHOAL_OK);
    int64_t result = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return result;
}

static void test_nothing_is_left_of_a_deleted_job(void **state)
{
    static const char *const tables[] = {"job", "request", "transition", "property", "tag"};
    struct fixture *fixture = *state;
    struct sql_database *database = &fixture->rows.database;
    json_t *request = json_pack("{s:{s:s}, s:[{s:i}, {s:i}]}", "HyperParameters", "lr", "0.1",
                                "List", "a", 1, "a", 2);
    json_t *metrics = json_pack("[{s:s, s:f}]", "MetricName", "loss", "Value", 0.5);
    json_t *request_read, *metrics_read;
    assert_int_equal(service_request_put(database, SERVICE_SQL_REQUEST_ADD, fixture->id, request),
                     SHOAL_OK);
    assert_int_equal(
        service_request_put(database, SERVICE_SQL_REQUEST_METRICS, fixture->id, metrics), SHOAL_OK);
    assert_int_equal(service_property_put(database, fixture->id, "", request), SHOAL_OK);
    assert_int_equal(service_metrics_index(database, fixture->id, metrics), SHOAL_OK);
    assert_int_equal(count(fixture, "property"), 4);
    assert_int_equal(count(fixture, "property WHERE path = 'Metrics.loss' AND number = 0.5"), 1);
    sqlite3_stmt *tag = sql_statement(database, SERVICE_SQL_TAG_PUT);
    sql_bind_text(database, tag, 1, "arn:one");
    sql_bind_text(database, tag, 2, "key");
    sql_bind_text(database, tag, 3, "value");
    assert_int_equal(sql_run(database, tag), SHOAL_OK);

    assert_int_equal(service_request_get(database, fixture->id, &request_read, &metrics_read),
                     SHOAL_OK);
    assert_true(json_equal(request, request_read) && json_equal(metrics, metrics_read));
    json_decref(request_read);
    json_decref(metrics_read);
    json_decref(request);
    json_decref(metrics);

    struct service_row row = row_of(fixture);
    assert_int_equal(service_row_delete(database, &row), SHOAL_OK);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        assert_int_equal(count(fixture, tables[i]), 0);
    assert_int_equal(service_row_get(database, fixture->id, &row), SHOAL_ERR_STATE);
    assert_int_equal(service_row_enter(database, fixture->id, SERVICE_TRAINING), SHOAL_ERR_STATE);
}

/* The file is made as the first version had it. */
static void test_jobs_of_the_first_version_are_kept(void **state)
{
    static const char old[] =
        "ALTER TABLE job DROP COLUMN keep_s; ALTER TABLE job DROP COLUMN pool;"
        "ALTER TABLE job DROP COLUMN pool_until_ms; ALTER TABLE job DROP COLUMN pool_retained_ms;"
        "ALTER TABLE job DROP COLUMN pool_reused_by; ALTER TABLE job DROP COLUMN pool_cache;"
        "ALTER TABLE job DROP COLUMN pool_since_ms;"
        "PRAGMA user_version = 1";
    struct fixture *fixture = *state;
    struct sql_database *database = &fixture->rows.database;
    assert_int_equal(sqlite3_exec(database->connection, old, NULL, NULL, NULL), SQLITE_OK);
    sql_database_close(database);
    assert_int_equal(sql_database_open(fixture->rows.path, &service_schema, true, database),
                     SHOAL_OK);
    struct service_row row = row_of(fixture);
    assert_string_equal(row.name, "One");
    assert_string_equal(row.pool, "");
    assert_int_equal(row.keep_s, 0);
    assert_int_equal(row.pool_since_ms, row.created_ms);
    assert_int_equal(service_row_number(database, SERVICE_SQL_JOB_PHASE, fixture->id, 2), SHOAL_OK);
    assert_int_equal(service_row_number(database, SERVICE_SQL_POOL_PERIOD, fixture->id, 9),
                     SHOAL_OK);
    row = row_of(fixture);
    assert_string_equal(row.pool, "InUse");
    assert_int_equal(row.keep_s, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_status_follows_the_other, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_job_that_is_being_stopped_stays_so_until_its_end,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_attempts_add_up, setup, teardown),
        cmocka_unit_test(test_reasons_are_utf8),
        cmocka_unit_test_setup_teardown(test_names_differ_in_more_than_case, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_left_of_a_deleted_job, setup, teardown),
        cmocka_unit_test_setup_teardown(test_jobs_of_the_first_version_are_kept, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
