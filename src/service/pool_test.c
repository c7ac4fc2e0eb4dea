/* SPDX-License-Identifier: Apache-2.0 */
/* pool_test.c: how long instances go from one job to the next. */
#include "service/pool.h"

#include <string.h>

#include "service/record_fixture.h"

#define KEEP_S 600

static char key[] = "key";

static int setup(void **state)
{
    static struct record_fixture fixture;
    record_fixture_open(&fixture);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    record_fixture_close(*state);
    return 0;
}

static struct service_row row_of(struct record_fixture *fixture, int64_t id)
{
    struct service_row row;
    assert_int_equal(service_row_get(&fixture->database, id, &row), SHOAL_OK);
    return row;
}

static void set(struct record_fixture *fixture, enum service_sql which, int64_t id, int64_t number)
{
    assert_int_equal(service_row_number(&fixture->database, which, id, number), SHOAL_OK);
}

/* A job that wants its instances kept, and has begun. */
static struct service_job job_begin(struct record_fixture *fixture, const char *name,
                                    struct service_job *pool)
{
    struct service_job job = {
        .id = record_fixture_add(fixture, name, name, 0, 1), .pool = pool, .pool_key = key};
    snprintf(job.name, sizeof(job.name), "%s", name);
    set(fixture, SERVICE_SQL_POOL_PERIOD, job.id, KEEP_S);
    assert_int_equal(service_pool_begin(&fixture->database, &job), SHOAL_OK);
    assert_string_equal(row_of(fixture, job.id).pool, SERVICE_POOL_IN_USE);
    return job;
}

static struct service_row job_end(struct record_fixture *fixture, struct service_job *job)
{
    struct service_end end = {.job = job, .which = SERVICE_COMPLETED};
    assert_int_equal(service_pool_end(&fixture->database, &end), SHOAL_OK);
    struct service_row row = row_of(fixture, job->id);
    bool is_kept = strcmp(row.pool, SERVICE_POOL_AVAILABLE) == 0;
    assert_int_equal(atomic_load(&job->pool_until_ms), is_kept ? row.pool_until_ms : 0);
    return row;
}

static void test_instances_are_as_old_as_the_first_job_that_had_them(void **state)
{
    struct record_fixture *fixture = *state;
    int64_t before_ms = service_now_ms();
    struct service_job one = job_begin(fixture, "one", NULL);
    struct service_row row = job_end(fixture, &one);
    assert_in_range(row.pool_since_ms, before_ms, service_now_ms());
    assert_in_range(row.pool_until_ms, before_ms + KEEP_S * 1000, service_now_ms() + KEEP_S * 1000);

    int64_t since_ms = before_ms - SERVICE_POOL_MS_MAX + 2000;
    set(fixture, SERVICE_SQL_POOL_SINCE, one.id, since_ms);
    struct service_job two = job_begin(fixture, "two", &one);
    assert_string_equal(row_of(fixture, one.id).pool, "Reused");
    row = job_end(fixture, &two);
    assert_string_equal(row.pool, SERVICE_POOL_AVAILABLE);
    assert_int_equal(row.pool_until_ms, since_ms + SERVICE_POOL_MS_MAX);
    assert_int_equal(service_pool_until(&row, row.pool_until_ms + 1), row.pool_until_ms);

    struct service_job three = job_begin(fixture, "three", &two);
    set(fixture, SERVICE_SQL_POOL_SINCE, three.id, since_ms - 4000);
    assert_string_equal(job_end(fixture, &three).pool, "Terminated");
}

static void test_another_attempt_has_the_instances_of_the_one_before(void **state)
{
    struct record_fixture *fixture = *state;
    struct service_job job = job_begin(fixture, "job", NULL);
    set(fixture, SERVICE_SQL_POOL_SINCE, job.id, 7);
    assert_int_equal(service_pool_begin(&fixture->database, &job), SHOAL_OK);
    assert_int_equal(row_of(fixture, job.id).pool_since_ms, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_instances_are_as_old_as_the_first_job_that_had_them,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_attempt_has_the_instances_of_the_one_before,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
