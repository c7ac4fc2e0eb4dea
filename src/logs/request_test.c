/* SPDX-License-Identifier: Apache-2.0 */
/* request_test.c: requests for logs and metrics, changed at random: what passes the model gets a
 * reply or a fault. */
#include "logs/logs_fixture.h"
#include "logs/query.h"
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

/* ---- forms ---- */

/* What the pairs of a form, "a=b&c=d", make of a request. */
static json_t *request_of(const char *operation_name, char *form)
{
    const struct job_operation *operation =
        job_operation_find(&job_model_monitoring, operation_name);
    json_t *request = json_object();
    for (char *pair, *rest = form; (pair = strsep(&rest, "&")) != NULL;) {
        char *value = strchr(pair, '=');
        if (value == NULL)
            continue;
        *value = '\0';
        enum shoal_status status =
            logs_query_put(&job_model_monitoring, operation, request, pair, value + 1);
        assert_true(status == SHOAL_OK || status == SHOAL_ERR_FORMAT || status == SHOAL_ERR_MEMORY);
    }
    return request;
}

static void forms_become_requests(void **state)
{
    static const struct {
        const char *operation, *form, *request;
    } cases[] = {
        {"GetMetricStatistics",
         "Action=GetMetricStatistics&Version=2010-08-01&Period=60&Statistics.member.2=Sum"
         "&Statistics.member.1=Maximum&Dimensions.member.1.Name=a&Dimensions.member.1.Value=b"
         "&StartTime=1970-01-01T00:01:00Z&EndTime=1970-01-01T00:02:00.500000Z",
         "{\"Dimensions\":[{\"Name\":\"a\",\"Value\":\"b\"}],\"EndTime\":120.5,\"Period\":60,"
         "\"StartTime\":60.0,\"Statistics\":[\"Maximum\",\"Sum\"]}"},
        {"GetMetricData",
         "MetricDataQueries.member.1.MetricStat.Metric.MetricName=loss&MaxDatapoints=7"
         "&MetricDataQueries.member.1.ReturnData=false&LabelOptions.Timezone=x",
         "{\"LabelOptions\":{\"Timezone\":\"x\"},\"MaxDatapoints\":7,\"MetricDataQueries\":"
         "[{\"MetricStat\":{\"Metric\":{\"MetricName\":\"loss\"}},\"ReturnData\":false}]}"},
        {"ListMetrics",
         "Dimensions.member.0.Name=a&Dimensions.member.1001.Name=a&Dimensions.x=a&"
         "Dimensions=&Namespace.x=a&Nothing.member.1=a&=a",
         "{\"Dimensions\":[]}"},
        {"GetMetricStatistics", "Period=1x&StartTime=now&Unit=", /* for the model's check */
         "{\"Period\":\"1x\",\"StartTime\":\"now\",\"Unit\":\"\"}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char form[512];
        snprintf(form, sizeof(form), "%s", cases[i].form);
        json_t *request = request_of(cases[i].operation, form);
        char *text = json_dumps(request, JSON_COMPACT | JSON_SORT_KEYS);
        assert_string_equal(text, cases[i].request);
        free(text);
        json_decref(request);
    }
}

static void take_any_form(void *user, char *text, size_t count, uint64_t round)
{
    const struct trial *trial = user;
    const struct logs_operation *operation = &logs_metric_operations[round % 3];
    json_t *request = request_of(operation->name, text);
    run(trial, true, round % 3, request);
    json_decref(request);
    (void)count;
}

static void any_form_is_answered(void **state)
{
    struct trial trial = {.fixture = *state};
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("MetricDataQueries.member.1.Id=m&MetricDataQueries.member.1.MetricStat.Stat=Sum"
                  "&MetricDataQueries.member.1.MetricStat.Period=60&MetricDataQueries.member.1."
                  "MetricStat.Metric.MetricName=loss&StartTime=2025-11-22T20:00:00Z"
                  "&EndTime=2025-11-22T21:00:00.5Z"),
        FUZZ_TEXT("Namespace=/aws/sagemaker/TrainingJobs&MetricName=loss&Period=60"
                  "&StartTime=2025-11-22T20:00:00Z&EndTime=2025-11-22T21:00:00Z"
                  "&Statistics.member.1=Sum&Dimensions.member.1.Name=TrainingJobName"
                  "&Dimensions.member.1.Value=a"),
        FUZZ_TEXT("Dimensions.member.1.Name=TrainingJobName&RecentlyActive=PT3H&NextToken=x")};
    static const char *const words[] = {".member.", ".1",   ".1000", ".0",      "=",
                                        "&",        "..",   "1e999", "nan",     "-1",
                                        ".999Z",    "true", "Id",    ".Metric", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 4000, .is_string = true);
    assert_int_equal(job_validator_create(&job_model_monitoring, &trial.of_metrics), SHOAL_OK);
    fuzz_run(&fuzz, take_any_form, &trial);
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
        cmocka_unit_test(forms_become_requests),
        cmocka_unit_test_setup_teardown(any_request_is_answered, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(any_form_is_answered, fixture_open, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
