/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_test.c: values out of lines as they come, after restarts and cuts; statistics of them;
 * hostile expressions, and the parsers with random input.
 */
#include "logs/logs_fixture.h"

#include <fcntl.h>

#include "logs/definition.h"
#include "logs/pattern.h"
#include "logs/series.h"

#define T0 1763841600000
#define DEFINITIONS                                              \
    "[{\"Name\": \"loss\", \"Regex\": \"loss=([0-9.eE+-]+)\"}, " \
    "{\"Name\": \"accuracy\", \"Regex\": \"acc: ([0-9.]+)%\"}]"
#define METRIC(name, job)                                                           \
    "\"Namespace\": \"/aws/sagemaker/TrainingJobs\", \"MetricName\": \"" name "\"," \
    "\"Dimensions\": [{\"Name\": \"TrainingJobName\", \"Value\": \"" job "\"}]"

static void begin(struct fixture *fixture, const char *job)
{
    json_t *definitions = json_loads(DEFINITIONS, 0, NULL);
    assert_int_equal(logs_job_begin(fixture->logs, job, definitions), SHOAL_OK);
    json_decref(definitions);
}

static void say(struct fixture *fixture, int number, int64_t time_ms, const char *text)
{
    fixture_write(fixture, "a", number, 1763841600, time_ms, text);
}

static void expect_values(struct fixture *fixture, const char *expected)
{
    json_t *values;
    assert_int_equal(logs_job_metrics(fixture->logs, "a", &values), SHOAL_OK);
    char *text = json_dumps(values, JSON_COMPACT | JSON_REAL_PRECISION(13));
    assert_string_equal(text, expected);
    free(text);
    json_decref(values);
}

static void restart(struct fixture *fixture)
{
    logs_close(fixture->logs);
    assert_int_equal(logs_open(fixture->root, &fixture->logs), SHOAL_OK);
}

static void last_values_are_live(void **state)
{
    struct fixture *fixture = *state;
    begin(fixture, "a");
    expect_values(fixture, "[]");
    say(fixture, 1, T0, "epoch 1 loss=0.5 acc: 40%");
    expect_values(fixture,
                  "[{\"MetricName\":\"loss\",\"Value\":0.5,\"Timestamp\":1763841600.0},"
                  "{\"MetricName\":\"accuracy\",\"Value\":40.0,\"Timestamp\":1763841600.0}]");
    say(fixture, 2, T0 + 2000, "loss=0.25");
    say(fixture, 1, T0 + 1000, "loss=0.75");
    expect_values(fixture,
                  "[{\"MetricName\":\"loss\",\"Value\":0.25,\"Timestamp\":1763841602.0},"
                  "{\"MetricName\":\"accuracy\",\"Value\":40.0,\"Timestamp\":1763841600.0}]");
    assert_int_equal(logs_job_end(fixture->logs, "a"), SHOAL_OK);
    assert_int_equal(logs_job_end(fixture->logs, "a"), SHOAL_OK);
}

static void the_thread_looks_by_itself(void **state)
{
    struct fixture *fixture = *state;
    char path[128];
    say(fixture, 1, T0, "loss=0.5");
    begin(fixture, "a");
    snprintf(path, sizeof(path), "%s/a/metrics.data", fixture->root);
    off_t bytes = 0;
    for (int tries = 0; tries < 500 && bytes == 0; tries++) {
        int fd = open(path, O_RDONLY);
        bytes = lseek(fd, 0, SEEK_END);
        close(fd);
        usleep(10000);
    }
    assert_int_equal(bytes, sizeof(struct logs_point));
}

static void a_restart_loses_and_repeats_nothing(void **state)
{
    struct fixture *fixture = *state;
    begin(fixture, "a");
    say(fixture, 1, T0, "loss=1");
    expect_values(fixture, "[{\"MetricName\":\"loss\",\"Value\":1.0,\"Timestamp\":1763841600.0}]");
    restart(fixture);
    say(fixture, 1, T0 + 1000, "loss=2");
    begin(fixture, "a");
    assert_int_equal(logs_job_end(fixture->logs, "a"), SHOAL_OK);
    restart(fixture);
    expect_values(fixture, "[{\"MetricName\":\"loss\",\"Value\":2.0,\"Timestamp\":1763841601.0}]");
    json_t *reply = fixture_reply(
        fixture, "GetMetricStatistics",
        "{" METRIC("loss", "a") ", \"StartTime\": 1763841600, "
                                "\"EndTime\": 1763841660, \"Period\": 60, \"Statistics\": "
                                "[\"SampleCount\", \"Sum\"]}");
    json_t *point = json_array_get(json_object_get(reply, "Datapoints"), 0);
    assert_true(json_number_value(json_object_get(point, "SampleCount")) == 2);
    assert_true(json_number_value(json_object_get(point, "Sum")) == 3);
    json_decref(reply);
}

/* Whatever is cut off the file, or is zeros after a power cut, comes again out of the lines. */
static void a_cut_file_is_made_whole(void **state)
{
    struct fixture *fixture = *state;
    char path[128];
    for (int i = 0; i < 20; i++)
        say(fixture, 1, T0 + i * 1000, i % 2 != 0 ? "loss=1" : "acc: 3%");
    for (off_t cut = 0; cut < 20 * 32; cut += 37) {
        begin(fixture, "a");
        assert_int_equal(logs_job_end(fixture->logs, "a"), SHOAL_OK);
        snprintf(path, sizeof(path), "%s/a/metrics.data", fixture->root);
        int fd = open(path, O_RDWR);
        assert_int_equal(lseek(fd, 0, SEEK_END), 20 * 32);
        assert_int_equal(ftruncate(fd, cut), 0);
        assert_int_equal(ftruncate(fd, cut + (cut % 2) * 100), 0);
        close(fd);
    }
}

static void statistics_are_by_periods(void **state)
{
    struct fixture *fixture = *state;
    begin(fixture, "a");
    say(fixture, 1, T0 + 1000, "loss=1");
    say(fixture, 1, T0 + 59999, "loss=3");
    say(fixture, 1, T0 + 60000, "loss=5");
    json_t *reply = fixture_reply(
        fixture, "GetMetricStatistics",
        "{" METRIC("loss", "a") ", \"StartTime\": 1763841630, \"EndTime\": 1763841720.5, "
                                "\"Period\": 60, \"Statistics\": [\"Average\", \"Maximum\", "
                                "\"Minimum\", \"Sum\", \"SampleCount\"]}");
    char *text = json_dumps(reply, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(
        text, "{\"Datapoints\":[{\"Average\":2.0,\"Maximum\":3.0,\"Minimum\":1.0,"
              "\"SampleCount\":2.0,\"Sum\":4.0,\"Timestamp\":1763841600.0,\"Unit\":\"None\"},"
              "{\"Average\":5.0,\"Maximum\":5.0,\"Minimum\":5.0,\"SampleCount\":1.0,\"Sum\":5.0,"
              "\"Timestamp\":1763841660.0,\"Unit\":\"None\"}],\"Label\":\"loss\"}");
    free(text);
    json_decref(reply);
    reply = fixture_reply(
        fixture, "GetMetricData",
        "{\"StartTime\": 1763841600, \"EndTime\": 1763841720, "
        "\"MetricDataQueries\": [{\"Id\": \"q\", \"MetricStat\": {\"Metric\": {" METRIC(
            "loss", "a") "}, \"Period\": 60, \"Stat\": \"Average\"}}]}");
    text = json_dumps(reply, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"Messages\":[],\"MetricDataResults\":[{\"Id\":\"q\",\"Label\":"
                              "\"loss\",\"StatusCode\":\"Complete\",\"Timestamps\":[1763841660.0,"
                              "1763841600.0],\"Values\":[5.0,2.0]}]}");
    free(text);
    json_decref(reply);
}

static void statistics_refuse_what_is_wrong(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        const char *more, *type, *text;
    } cases[] = {
        {"\"StartTime\": 5, \"EndTime\": 5, \"Period\": 60, \"Statistics\": [\"Sum\"]",
         "InvalidParameterValueException", "StartTime must be less than the parameter EndTime."},
        {"\"StartTime\": 0, \"EndTime\": 600, \"Period\": 61, \"Statistics\": [\"Sum\"]",
         "InvalidParameterValueException", "Period"},
        {"\"StartTime\": 0, \"EndTime\": 1e10, \"Period\": 60, \"Statistics\": [\"Sum\"]",
         "InvalidParameterCombinationException", "exceeds the limit of 1440"},
        {"\"StartTime\": 0, \"EndTime\": 600, \"Period\": 60", "MissingRequiredParameterException",
         "Statistics"},
        {"\"StartTime\": 0, \"EndTime\": 600, \"Period\": 60, \"Statistics\": [\"Median\"]",
         "InvalidParameterValueException", "unknown"},
        {"\"StartTime\": 0, \"EndTime\": 1e300, \"Period\": 60, \"Statistics\": [\"Sum\"]",
         "InvalidParameterValueException", "EndTime"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char request[512];
        snprintf(request, sizeof(request), "{%s, %s}", METRIC("loss", "a"), cases[i].more);
        fixture_refused(fixture, "GetMetricStatistics", request, cases[i].type, cases[i].text);
    }
    fixture_refused(fixture, "GetMetricData",
                    "{\"StartTime\": 0, \"EndTime\": 600, \"MetricDataQueries\": "
                    "[{\"Id\": \"q\", \"Expression\": \"a+b\"}]}",
                    "ValidationException", "expressions are not supported");
}

static void metrics_are_listed(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        const char *request, *expected;
    } cases[] = {
        {"{}", "loss accuracy loss"},
        {"{\"Namespace\": \"/aws/sagemaker/TrainingJobs\", \"MetricName\": \"loss\"}", "loss loss"},
        {"{\"Namespace\": \"AWS/EC2\"}", ""},
        {"{\"Dimensions\": [{\"Name\": \"TrainingJobName\", \"Value\": \"b\"}]}", "loss"},
        {"{\"Dimensions\": [{\"Name\": \"TrainingJobName\"}]}", "loss accuracy loss"},
        {"{\"Dimensions\": [{\"Name\": \"Host\"}]}", ""},
        {"{\"RecentlyActive\": \"PT3H\", \"NextToken\": \"a\"}", "loss"},
    };
    begin(fixture, "a");
    begin(fixture, "b");
    say(fixture, 1, T0, "loss=1 acc: 7%");
    fixture_write(fixture, "b", 1, 1763841600, T0, "loss=1");
    assert_int_equal(logs_job_end(fixture->logs, "a"), SHOAL_OK);
    assert_int_equal(logs_job_end(fixture->logs, "b"), SHOAL_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *reply = fixture_reply(fixture, "ListMetrics", cases[i].request);
        fixture_joined(json_object_get(reply, "Metrics"), "MetricName", cases[i].expected);
        json_decref(reply);
    }
}

static void count_value(void *user, size_t definition, double value)
{
    int *count = user;
    (void)definition;
    (void)value;
    ++*count;
}

static void all_matches_of_a_line_count(void **state)
{
    struct logs_definitions *definitions;
    json_t *json = json_loads("[{\"Name\": \"x\", \"Regex\": \"loss (\\\\S+)|other\"}]", 0, NULL);
    const struct {
        const char *line;
        int count;
    } cases[] = {{"loss 1 loss 2\rloss 3", 3},
                 {"loss nan", 0},
                 {"loss 0x10", 0},
                 {"loss -1e-3", 1},
                 {"other", 0},
                 {"loss 1e999", 0},
                 {"", 0},
                 {"loss 1.5,", 0}};
    (void)state;
    assert_int_equal(logs_definitions_create(json, &definitions), SHOAL_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int count = 0;
        logs_definitions_search(definitions, cases[i].line, strlen(cases[i].line), count_value,
                                &count);
        assert_int_equal(count, cases[i].count);
    }
    logs_definitions_free(definitions);
    json_decref(json);
}

static void wrong_definitions_are_refused(void **state)
{
    struct job_fault fault = {0};
    json_t *json = json_loads("[{\"Name\": \"x\", \"Regex\": \"loss ([0-9\"}]", 0, NULL);
    (void)state;
    assert_true(logs_definitions_check(NULL, &fault));
    assert_false(logs_definitions_check(json, &fault));
    assert_string_equal(fault.type, "ValidationException");
    assert_non_null(
        strstr(fault.text, "Invalid regular expression 'loss ([0-9' of the metric 'x'"));
    json_decref(json);
}

/* The worst of the known: each is searched for in 64 KiB, until it is given up. */
static void hostile_expressions_are_given_up(void **state)
{
    const char *texts[] = {"(a+)+$",          "(a|aa)+$",         "(.*)*x(.*)*y", "((a*)*)*$",
                           "^(a?){50}a{50}$", "(?:a(?=a*!))+!$b", "(\\w+\\s*)+:"};
    const size_t bytes = 64 << 10;
    char *line = malloc(bytes);
    (void)state;
    memset(line, 'a', bytes);
    line[LOGS_SEARCH_BYTES_MAX - 1] = '!';
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct logs_definitions *definitions;
        int count = 0;
        json_t *json = json_pack("[{s:s, s:s}]", "Name", "x", "Regex", texts[i]);
        assert_int_equal(logs_definitions_create(json, &definitions), SHOAL_OK);
        for (int times = 0; times < 2 * LOGS_SLOW_MAX / LOGS_SLOW_COST; times++)
            logs_definitions_search(definitions, line, bytes, count_value, &count);
        assert_int_equal(count, 0);
        logs_definitions_free(definitions);
        json_decref(json);
    }
    free(line);
}

static void random_text(char *out, size_t capacity)
{
    static const char *const parts[] = {"loss", "=", "(", ")",   "[",     "]",        "{",    "}",
                                        "+",    "*", "?", "\\d", "\\",    "%",        "\"",   " ",
                                        "-",    "?", ".", "1",   "0.5",   "\xC3\xA9", "\xFF", "|",
                                        "^",    "$", "a", "e9",  "(?P<x>"};
    size_t used = 0;
    for (int parts_left = rand() % 12; parts_left > 0; parts_left--) {
        const char *part = parts[(size_t)rand() % (sizeof(parts) / sizeof(parts[0]))];
        if (used + strlen(part) + 1 >= capacity)
            break;
        memcpy(out + used, part, strlen(part));
        used += strlen(part);
    }
    out[used] = '\0';
}

/* Patterns and expressions of any text are used or refused, on lines of any bytes. */
static void random_patterns_are_bounded(void **state)
{
    (void)state;
    srand(11);
    for (int i = 0; i < 5000; i++) {
        char text[128], line[128];
        struct logs_pattern *pattern;
        struct logs_regex *regex;
        struct logs_match match;
        double value;
        random_text(text, sizeof(text));
        random_text(line, sizeof(line));
        size_t bytes = strlen(line);
        if (logs_pattern_create(text, &pattern) == SHOAL_OK) {
            logs_pattern_passes(pattern, line, bytes);
            logs_pattern_free(pattern);
        }
        if (logs_regex_create(text, &regex) == SHOAL_OK) {
            if (logs_regex_search(regex, line, bytes, 0, &match) == LOGS_FOUND)
                assert_true(match.begin <= match.end && match.end <= bytes &&
                            match.group_begin <= match.group_end && match.group_end <= bytes);
            logs_regex_free(regex);
        }
        logs_value_read(line, bytes, &value);
    }
    assert_int_equal(base_memory_blocks(), 0);
}

static void patterns_pass_what_they_say(void **state)
{
    const struct {
        const char *pattern, *line;
        bool passes;
    } cases[] = {
        {"", "anything", true},
        {"ERROR", "an ERROR here", true},
        {"ERROR", "an error here", false},
        {"ERROR step", "step 3 ERROR", true},
        {"ERROR step", "ERROR", false},
        {"ERROR -retry", "ERROR retry", false},
        {"ERROR -retry", "ERROR", true},
        {"-retry", "fine", true},
        {"?ERROR ?WARN", "a WARN", true},
        {"?ERROR ?WARN", "fine", false},
        {"?ERROR step", "step", true},
        {"\"out of memory\"", "CUDA out of memory.", true},
        {"\"a \\\"b\\\"\"", "say a \"b\"", true},
        {"%loss=[0-9]+%", "loss=12", true},
        {"%^loss%", "the loss", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct logs_pattern *pattern;
        assert_int_equal(logs_pattern_create(cases[i].pattern, &pattern), SHOAL_OK);
        bool passes = logs_pattern_passes(pattern, cases[i].line, strlen(cases[i].line));
        if (passes != cases[i].passes)
            fail_msg("'%s' on '%s'", cases[i].pattern, cases[i].line);
        logs_pattern_free(pattern);
    }
}

#define LOGS_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOGS_TEST(last_values_are_live),
        LOGS_TEST(the_thread_looks_by_itself),
        LOGS_TEST(a_restart_loses_and_repeats_nothing),
        LOGS_TEST(a_cut_file_is_made_whole),
        LOGS_TEST(statistics_are_by_periods),
        LOGS_TEST(statistics_refuse_what_is_wrong),
        LOGS_TEST(metrics_are_listed),
        cmocka_unit_test(all_matches_of_a_line_count),
        cmocka_unit_test(wrong_definitions_are_refused),
        cmocka_unit_test(hostile_expressions_are_given_up),
        cmocka_unit_test(random_patterns_are_bounded),
        cmocka_unit_test(patterns_pass_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
