/* SPDX-License-Identifier: Apache-2.0 */
/* request_test.c: requests for logs and metrics, changed at random: what passes the model gets a
 * reply or a fault. */
#include "logs/logs_fixture.h"
#include "support/fuzz.h"

#define T0 INT64_C(1763841600000)

#define STREAM "\"logStreamName\": \"a/algo-1-1763841600\""
#define GROUP  "{\"logGroupName\": \"" LOGS_GROUP "\", "
#define METRIC "{\"Namespace\": \"/aws/sagemaker/TrainingJobs\", \"MetricName\": \"loss\", "
#define TIMES  "\"StartTime\": 1763841600, \"EndTime\": 1763845200"

struct trial {
    struct fixture *fixture;
    struct job_validator *of_logs, *of_metrics;
};

static void run(const struct trial *trial, bool is_metrics, size_t index, const json_t *request)
{
    const struct logs_operation *row = is_metrics ? logs_metric_operations : logs_operations;
    struct job_fault fault = {0};
    json_t *reply = NULL;
    size_t count = 0;
    while (row[count].name != NULL)
        count++;
    row += index % count;
    const struct job_operation *operation =
        job_operation_find(is_metrics ? &job_model_monitoring : &job_model_logs, row->name);
    if (!job_validate(is_metrics ? trial->of_metrics : trial->of_logs, operation, request, &fault))
        return;
    enum shoal_status status = row->run(trial->fixture->logs, request, &reply, &fault);
    assert_int_equal(status, SHOAL_OK);
    assert_true((reply != NULL) != (fault.type != NULL));
    json_decref(reply);
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    json_t *request = json_loadb(text, count, 0, NULL);
    for (size_t i = 0; json_is_object(request) && i < 4; i++) {
        run(user, false, i, request);
        run(user, true, i, request);
    }
    json_decref(request);
    (void)round;
}

static void any_request_is_answered(void **state)
{
    struct trial trial = {.fixture = *state};
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT(GROUP STREAM
                  ", \"startFromHead\": true, \"limit\": 2, \"startTime\": 1763841600000,"
                  " \"nextToken\": \"f/00000000000000000000000000000000000000000000"
                  "000000000030/s\"}"),
        FUZZ_TEXT(GROUP STREAM ", \"nextToken\": \"b/30/s\", \"endTime\": 1763841600900}"),
        FUZZ_TEXT(GROUP "\"logStreamNamePrefix\": \"a/\", \"filterPattern\": \"?loss -x %l[o]ss% "
                        "\\\"of memory\\\"\", \"interleaved\": true, \"limit\": 3}"),
        FUZZ_TEXT(GROUP "\"orderBy\": \"LastEventTime\", \"descending\": true, \"limit\": 1,"
                        " \"nextToken\": \"1763841600000:a/algo-1-1763841600\"}"),
        FUZZ_TEXT(METRIC TIMES
                  ", \"Period\": 60, \"Statistics\": [\"Average\", \"Maximum\"],"
                  " \"Dimensions\": [{\"Name\": \"TrainingJobName\", \"Value\": \"a\"}]}"),
        FUZZ_TEXT("{" TIMES
                  ", \"MetricDataQueries\": [{\"Id\": \"m\", \"MetricStat\": {\"Metric\": " METRIC
                  "\"Dimensions\": []}, \"Period\": 1, \"Stat\": \"Sum\"}}],"
                  " \"ScanBy\": \"TimestampAscending\", \"MaxDatapoints\": 10}"),
        FUZZ_TEXT(METRIC "\"RecentlyActive\": \"PT3H\", \"NextToken\": \"x\"}")};
    static const char *const words[] = {"f/",
                                        "b/",
                                        "/s",
                                        ":",
                                        "%",
                                        "(a+)+$",
                                        "?",
                                        "null",
                                        "1e300",
                                        "\"limit\": ",
                                        "\"Period\": ",
                                        "\"startTime\": ",
                                        "[[",
                                        NULL};
    struct fuzz fuzz = FUZZ(texts, words, 4000);
    for (int i = 0; i < 5; i++)
        fixture_write(trial.fixture, "a", 1, 1763841600, T0 + i, "loss=0.5 \xC3\xA9\xFF");
    assert_int_equal(job_validator_create(&job_model_logs, &trial.of_logs), SHOAL_OK);
    assert_int_equal(job_validator_create(&job_model_monitoring, &trial.of_metrics), SHOAL_OK);
    fuzz_run(&fuzz, take_any, &trial);
    job_validator_free(trial.of_logs);
    job_validator_free(trial.of_metrics);
}

static void numbers_are_within_64_bits(void **state)
{
    static const char *const times[] = {"1e300", "-1e19", "9223372036854775807", "1.5e12"};
    struct job_validator *validator;
    (void)state;
    assert_int_equal(job_validator_create(&job_model_logs, &validator), SHOAL_OK);
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        char text[256];
        struct job_fault fault;
        snprintf(text, sizeof(text), GROUP STREAM ", \"startTime\": %s}", times[i]);
        json_t *request = json_loads(text, 0, NULL);
        assert_int_equal(job_validate(validator,
                                      job_operation_find(&job_model_logs, "GetLogEvents"), request,
                                      &fault),
                         i >= 2);
        json_decref(request);
    }
    job_validator_free(validator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_within_64_bits),
        cmocka_unit_test_setup_teardown(any_request_is_answered, fixture_open, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
