/* SPDX-License-Identifier: Apache-2.0 */
/* search_test.c: searches over rows, times, and random expressions, of which none may make a
 * statement that SQLite refuses. */
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
#include "service/record_fixture.h"
#include "service/search_text.h"

#define JOBS 6

struct fixture {
    struct record_fixture rows;
    struct service_search_text text;
    struct job_fault fault;
};

static void job_add(struct record_fixture *rows, int number)
{
    struct sql_database *database = &rows->database;
    char name[32], arn[64], request[256];
    snprintf(name, sizeof(name), "job-%d", number);
    snprintf(arn, sizeof(arn), "arn:%d", number);
    snprintf(request, sizeof(request),
             "{\"HyperParameters\": {\"lr\": \"0.%d\"}, \"InputDataConfig\": ["
             "{\"ChannelName\": \"train\", \"InputMode\": \"%s\"},"
             "{\"ChannelName\": \"test\", \"InputMode\": \"File\"}]}",
             number, number % 2 ? "Pipe" : "File");
    int64_t id =
        record_fixture_add(rows, name, arn, 0, 1767225600000 + number * 1000); /* 2026-01-01 */
    json_t *parsed = json_loads(request, 0, NULL);
    assert_int_equal(service_request_put(database, SERVICE_SQL_REQUEST_ADD, id, parsed), SHOAL_OK);
    assert_int_equal(service_property_put(database, id, "", parsed), SHOAL_OK);
    json_decref(parsed);
    assert_int_equal(service_row_enter(database, id, SERVICE_STARTING), SHOAL_OK);
    sqlite3_stmt *tag = sql_statement(database, SERVICE_SQL_TAG_PUT);
    sql_bind_text(database, tag, 1, arn);
    sql_bind_text(database, tag, 2, "team");
    sql_bind_text(database, tag, 3, number < 3 ? "a" : "b");
    assert_int_equal(sql_run(database, tag), SHOAL_OK);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    record_fixture_open(&fixture->rows);
    for (int i = 0; i < JOBS; i++)
        job_add(&fixture->rows, i);
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

/* The numbers of the jobs that are found, or "refused". The statement must be right either way. */
static const char *search(struct fixture *fixture, const json_t *request)
{
    static char found[64];
    size_t used = 0;
    sqlite3_stmt *statement;
    bool row;
    snprintf(found, sizeof(found), "refused");
    if (service_search_write(&fixture->text, request, 50, 0, &fixture->fault)) {
        assert_int_equal(sql_prepare(&fixture->rows.database, fixture->text.sql, &statement),
                         SHOAL_OK);
        service_search_bind(&fixture->text, &fixture->rows.database, statement);
        while (sql_step(&fixture->rows.database, statement, &row) == SHOAL_OK && row) {
            struct service_row job;
            service_row_take(statement, &job);
            found[used++] = job.name[4];
        }
        found[used] = '\0';
        sqlite3_finalize(statement);
    }
    json_decref(fixture->text.values);
    return found;
}

static void expect(void **state, const char *expression, const char *jobs)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "{\"SearchExpression\": %s, \"SortBy\": \"TrainingJobName\","
             " \"SortOrder\": \"Ascending\"}",
             expression);
    json_t *request = json_loads(text, 0, NULL);
    assert_non_null(request);
    assert_string_equal(search(*state, request), jobs);
    json_decref(request);
}

#define FILTER(name, how, value) \
    "{\"Name\": \"" name "\", \"Operator\": \"" how "\", \"Value\": \"" value "\"}"
#define FILTERS(list) "{\"Filters\": [" list "]}"

static void test_filters(void **state)
{
    expect(state, "{}", "012345");
    expect(state, FILTERS(FILTER("HyperParameters.lr", "Equals", "0.30")), "3");
    expect(state, FILTERS(FILTER("HyperParameters.lr", "NotEquals", "0.3")), "01245");
    expect(state, FILTERS(FILTER("HyperParameters.lr", "LessThanOrEqualTo", "0.1")), "01");
    expect(state, FILTERS(FILTER("HyperParameters.lr", "Contains", ".5")), "5");
    expect(state, FILTERS(FILTER("HyperParameters.x", "NotExists", "")), "012345");
    expect(state, FILTERS(FILTER("Tags.team", "Equals", "b")), "345");
    expect(state, FILTERS(FILTER("Tags.team", "NotEquals", "b")), "012");
    expect(state, FILTERS(FILTER("Tags.team", "In", "a,c")), "012");
    expect(state, FILTERS(FILTER("TrainingJobName", "In", "job-2,job-9,job-4")), "24");
    expect(state, FILTERS(FILTER("SecondaryStatus", "Equals", "Starting")), "012345");
    expect(state, FILTERS(FILTER("CreationTime", "GreaterThan", "2026-01-01T00:00:03Z")), "45");
    expect(state, FILTERS(FILTER("CreationTime", "LessThan", "1767225601.5")), "01");
    expect(state, FILTERS(FILTER("CreationTime", "LessThan", "noon")), "refused");
    expect(state, FILTERS(FILTER("TrainingTimeInSeconds", "LessThan", "x")), "refused");
    expect(state,
           FILTERS(
               FILTER("Tags.team", "Equals", "a") ", " FILTER("TrainingJobName", "Contains", "-1")),
           "1");
}

static void test_expressions(void **state)
{
    expect(state,
           "{\"Operator\": \"Or\", \"Filters\": [" FILTER(
               "Tags.team", "Equals", "a") "],"
                                           " \"SubExpressions\": [" FILTERS(
                                               FILTER("TrainingJobName", "Equals", "job-5")) "]}",
           "0125");
    expect(
        state,
        "{\"NestedFilters\": [{\"NestedPropertyName\": \"InputDataConfig\", \"Filters\": [" FILTER(
            "InputDataConfig.ChannelName", "Equals", "train") ", " FILTER("InputMode", "Equals",
                                                                          "Pipe") "]}]}",
        "135");
    expect(
        state,
        "{\"NestedFilters\": [{\"NestedPropertyName\": \"InputDataConfig\", \"Filters\": [" FILTER(
            "ChannelName", "Equals", "test") ", " FILTER("InputMode", "Equals", "Pipe") "]}]}",
        "");
}

static void test_times(void **state)
{
    int64_t ms;
    (void)state;
    assert_true(service_time_read("1970-01-02", &ms) && ms == 86400000);
    assert_true(service_time_read("1970-01-01T00:00:01.25Z", &ms) && ms == 1250);
    assert_true(service_time_read("1970-01-01 00:00:01+00:00", &ms) && ms == 1000);
    assert_true(service_time_read("12.5", &ms) && ms == 12500);
    assert_true(service_time_read("-12.5", &ms) && ms == -12500);
    assert_false(service_time_read("1e300", &ms));
    assert_false(service_time_read("nan", &ms));
    assert_false(service_time_read("-inf", &ms));
    assert_false(service_time_read("1970-01-01T00:00:01.5e30Z", &ms));
    assert_false(service_time_read("1970-01-01T00:00:01.Z", &ms));
    assert_false(service_time_read("", &ms));
    assert_false(service_time_read("1970-13-01", &ms));
    assert_false(service_time_read("1970-01-01x", &ms));
}

/* ---- random ones ---- */

static const char *one_of(const char *const *list, size_t count)
{
    return list[(size_t)rand() % count];
}
#define ONE_OF(list) one_of(list, sizeof(list) / sizeof((list)[0]))

static json_t *random_filters(void)
{
    static const char *const names[] = {"TrainingJobName",
                                        "CreationTime",
                                        "Tags.",
                                        "Tags.a'b",
                                        "HyperParameters.\"; DROP TABLE job",
                                        "Metrics.loss",
                                        "x",
                                        "InputDataConfig.ChannelName",
                                        "TrainingTimeInSeconds"};
    static const char *const how[] = {"Equals",      "NotEquals",
                                      "GreaterThan", "GreaterThanOrEqualTo",
                                      "LessThan",    "LessThanOrEqualTo",
                                      "Contains",    "Exists",
                                      "NotExists",   "In"};
    static const char *const values[] = {"1",     "-0.5e3", "2026-01-01", "',;--", ",,",
                                         "a,b,1", "inf",    "nan",        "%s%n",  "?1"};
    json_t *list = json_array();
    for (int count = 1 + rand() % 4; count > 0; count--) {
        json_t *filter = json_pack("{s:s}", "Name", ONE_OF(names));
        if (rand() % 8 != 0)
            json_object_set_new(filter, "Operator", json_string(ONE_OF(how)));
        if (rand() % 8 != 0)
            json_object_set_new(filter, "Value", json_string(ONE_OF(values)));
        json_array_append_new(list, filter);
    }
    return list;
}

static json_t *random_expression(int depth)
{
    json_t *expression = json_object();
    if (rand() % 3 != 0)
        json_object_set_new(expression, "Filters", random_filters());
    if (rand() % 3 == 0)
        json_object_set_new(expression, "Operator", json_string(rand() % 2 ? "Or" : "And"));
    if (rand() % 4 == 0)
        json_object_set_new(expression, "NestedFilters",
                            json_pack("[{s:s, s:o}]", "NestedPropertyName", "InputDataConfig",
                                      "Filters", random_filters()));
    if (rand() % 3 == 0 && depth < SERVICE_SEARCH_DEPTH + 2)
        json_object_set_new(
            expression, "SubExpressions",
            json_pack("[o, o]", random_expression(depth + 1), random_expression(depth + 1)));
    return expression;
}

static void test_random_expressions_make_statements(void **state)
{
    int refused = 0;
    srand(7);
    for (int i = 0; i < 3000; i++) {
        json_t *request = json_pack("{s:o, s:s}", "SearchExpression", random_expression(1),
                                    "SortBy", i % 2 ? "Metrics.a'b" : "CreationTime");
        refused += strcmp(search(*state, request), "refused") == 0;
        json_decref(request);
    }
    assert_in_range(refused, 100, 2900);
    expect(state, "{}", "012345");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_filters, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expressions, setup, teardown),
        cmocka_unit_test(test_times),
        cmocka_unit_test_setup_teardown(test_random_expressions_make_statements, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
