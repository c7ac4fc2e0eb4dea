/* SPDX-License-Identifier: Apache-2.0 */
/* events_test.c: the operations on log streams: what clients see, their tokens and their errors. */
#include "logs/logs_fixture.h"

#define GROUP "\"logGroupName\": \"" LOGS_GROUP "\""
#define T0    1763841600000

static void lines_write(struct fixture *fixture, const char *job, int number, int from, int until)
{
    for (int i = from; i < until; i++) {
        char text[32];
        snprintf(text, sizeof(text), "%d.%d", number, i);
        fixture_write(fixture, job, number, 1763841600, T0 + 10 * i + number, text);
    }
}

/* GetLogEvents of algo-1 of the job "a"; `more` begins with a comma. */
static json_t *get(struct fixture *fixture, const char *more)
{
    char request[512];
    snprintf(request, sizeof(request), "{" GROUP ", \"logStreamName\": \"a/algo-1-1763841600\"%s}",
             more);
    return fixture_reply(fixture, "GetLogEvents", request);
}

static void expect_events(json_t *reply, const char *expected)
{
    fixture_joined(json_object_get(reply, "events"), "message", expected);
}

static char *token_of(json_t *reply, const char *name)
{
    char *text = NULL;
    const char *token = json_string_value(json_object_get(reply, name));
    assert_non_null(token);
    assert_true(asprintf(&text, ", \"nextToken\": \"%s\"", token) > 0);
    return text;
}

static void forward_tokens_follow_a_stream(void **state)
{
    struct fixture *fixture = *state;
    lines_write(fixture, "a", 1, 0, 5);
    json_t *first = get(fixture, ", \"startFromHead\": true, \"limit\": 3");
    expect_events(first, "1.0 1.1 1.2");
    char *token = token_of(first, "nextForwardToken");
    json_t *second = get(fixture, token);
    expect_events(second, "1.3 1.4");
    char *end = token_of(second, "nextForwardToken"), *same, *again;
    json_t *third = get(fixture, end);
    expect_events(third, "");
    same = token_of(third, "nextForwardToken");
    assert_string_equal(same, end);
    lines_write(fixture, "a", 1, 5, 6);
    json_t *fourth = get(fixture, end);
    expect_events(fourth, "1.5");
    again = token_of(fourth, "nextForwardToken");
    assert_string_not_equal(again, end);
    free(token);
    free(end);
    free(same);
    free(again);
    json_decref(first);
    json_decref(second);
    json_decref(third);
    json_decref(fourth);
}

static void backward_tokens_go_to_the_head(void **state)
{
    struct fixture *fixture = *state;
    const char *expected[] = {"1.5 1.6", "1.3 1.4", "1.1 1.2", "1.0", ""};
    char *token = strdup("");
    lines_write(fixture, "a", 1, 0, 7);
    for (size_t i = 0; i < 5; i++) {
        char more[256];
        snprintf(more, sizeof(more), ", \"limit\": 2%s", token);
        json_t *reply = get(fixture, more);
        expect_events(reply, expected[i]);
        char *next = token_of(reply, "nextBackwardToken");
        assert_true((strcmp(next, token) == 0) == (i == 4));
        free(token);
        token = next;
        json_decref(reply);
    }
    free(token);
}

static void times_bound_what_is_given(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        const char *more, *expected;
    } cases[] = {
        {", \"startTime\": 1763841600021", "1.2 1.3 1.4"},
        {", \"startTime\": 1763841600022", "1.3 1.4"},
        {", \"endTime\": 1763841600021", "1.0 1.1"},
        {", \"startTime\": 1763841600011, \"endTime\": 1763841600031", "1.1 1.2"},
        {", \"startTime\": 1763841600011, \"limit\": 1", "1.4"},
        {", \"startTime\": 1763841600011, \"limit\": 1, \"startFromHead\": true", "1.1"},
        {", \"startTime\": 1763841609999", ""},
        {", \"startTime\": 1763841600031, \"endTime\": 1763841600011", ""},
    };
    lines_write(fixture, "a", 1, 0, 5);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *reply = get(fixture, cases[i].more);
        expect_events(reply, cases[i].expected);
        json_decref(reply);
    }
}

static void a_reply_has_a_megabyte_at_most(void **state)
{
    struct fixture *fixture = *state;
    char *text = malloc(60001), *token = strdup(", \"startFromHead\": true");
    size_t pages = 0, events = 0;
    memset(text, 'x', 60000);
    text[60000] = '\0';
    for (int i = 0; i < 40; i++)
        fixture_write(fixture, "a", 1, 1763841600, T0 + i, text);
    for (size_t found = 1; found > 0; pages++) {
        json_t *reply = get(fixture, token);
        found = json_array_size(json_object_get(reply, "events"));
        assert_true(found <= 17);
        events += found;
        free(token);
        token = token_of(reply, "nextForwardToken");
        json_decref(reply);
    }
    assert_int_equal(events, 40);
    assert_int_equal(pages, 4);
    free(token);
    free(text);
}

static void errors_are_the_services(void **state)
{
    struct fixture *fixture = *state;
    lines_write(fixture, "a", 1, 0, 2);
    const struct {
        const char *request, *type, *text;
    } cases[] = {
        {"{" GROUP ", \"logStreamName\": \"a/algo-2-1763841600\"}", "ResourceNotFoundException",
         "The specified log stream does not exist."},
        {"{" GROUP ", \"logStreamName\": \"../../etc/passwd\"}", "ResourceNotFoundException",
         "The specified log stream does not exist."},
        {"{" GROUP ", \"logStreamName\": \"a/metrics.json\"}", "ResourceNotFoundException",
         "The specified log stream does not exist."},
        {"{\"logGroupName\": \"/aws/other\", \"logStreamName\": \"a/algo-1-1763841600\"}",
         "ResourceNotFoundException", "The specified log group does not exist."},
        {"{" GROUP ", \"logStreamName\": \"a/algo-1-1763841600\", \"nextToken\": \"x\"}",
         "InvalidParameterException", "The specified nextToken is invalid."},
        {"{" GROUP ", \"logStreamName\": \"a/algo-1-1763841600\", \"nextToken\": \"f/9999/s\"}",
         "InvalidParameterException", "The specified nextToken is invalid."},
        {"{\"logStreamName\": \"a/algo-1-1763841600\"}", "InvalidParameterException",
         "logGroupName"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        fixture_refused(fixture, "GetLogEvents", cases[i].request, cases[i].type, cases[i].text);
    fixture_refused(fixture, "DescribeLogStreams",
                    "{" GROUP ", \"orderBy\": \"LastEventTime\", \"logStreamNamePrefix\": \"a\"}",
                    "InvalidParameterException",
                    "Cannot order by LastEventTime with a logStreamNamePrefix.");
}

static void identifiers_name_the_group_too(void **state)
{
    struct fixture *fixture = *state;
    lines_write(fixture, "a", 1, 0, 1);
    json_t *reply = fixture_reply(
        fixture, "GetLogEvents",
        "{\"logGroupIdentifier\": \"arn:aws:logs:us-east-1:000000000000:log-group:" LOGS_GROUP
        ":*\", \"logStreamName\": \"a/algo-1-1763841600\"}");
    expect_events(reply, "1.0");
    json_decref(reply);
}

static void streams_are_listed_in_order(void **state)
{
    struct fixture *fixture = *state;
    lines_write(fixture, "a", 2, 0, 1);
    lines_write(fixture, "a", 10, 0, 1);
    lines_write(fixture, "a", 1, 0, 3);
    lines_write(fixture, "a-b", 1, 0, 1);
    lines_write(fixture, "b", 1, 0, 1);
    const struct {
        const char *more, *expected;
    } cases[] = {
        {", \"logStreamNamePrefix\": \"a/\"",
         "a/algo-1-1763841600 a/algo-10-1763841600 a/algo-2-1763841600"},
        {", \"logStreamNamePrefix\": \"a/algo-10\"", "a/algo-10-1763841600"},
        {", \"logStreamNamePrefix\": \"a\"", "a-b/algo-1-1763841600 a/algo-1-1763841600 "
                                             "a/algo-10-1763841600 a/algo-2-1763841600"},
        {", \"logStreamNamePrefix\": \"none/\"", ""},
        {", \"descending\": true, \"limit\": 2", "b/algo-1-1763841600 a/algo-2-1763841600"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char request[256];
        snprintf(request, sizeof(request), "{" GROUP "%s}", cases[i].more);
        json_t *reply = fixture_reply(fixture, "DescribeLogStreams", request);
        fixture_joined(json_object_get(reply, "logStreams"), "logStreamName", cases[i].expected);
        json_decref(reply);
    }
    json_t *reply = fixture_reply(fixture, "DescribeLogStreams",
                                  "{" GROUP ", \"logStreamNamePrefix\": \"a/algo-1-\"}");
    json_t *stream = json_array_get(json_object_get(reply, "logStreams"), 0);
    assert_int_equal(json_integer_value(json_object_get(stream, "firstEventTimestamp")), T0 + 1);
    assert_int_equal(json_integer_value(json_object_get(stream, "lastEventTimestamp")), T0 + 21);
    assert_int_equal(json_integer_value(json_object_get(stream, "creationTime")), T0);
    json_decref(reply);
}

/* The member of the next request; nothing behind the last page. */
static void member_print(char *out, size_t bytes, const char *token)
{
    out[0] = '\0';
    if (token != NULL)
        snprintf(out, bytes, ", \"nextToken\": \"%s\"", token);
}

static void pages_of_streams_go_through_all(void **state)
{
    struct fixture *fixture = *state;
    const char *orders[] = {"\"LogStreamName\"", "\"LastEventTime\""};
    for (int i = 0; i < 23; i++) {
        char job[16];
        snprintf(job, sizeof(job), "job-%d", i);
        lines_write(fixture, job, 1, 0, 1);
    }
    for (int order = 0; order < 4; order++) {
        char token[256] = "";
        size_t found = 0, pages = 0;
        do {
            char request[512];
            snprintf(request, sizeof(request),
                     "{" GROUP ", \"limit\": 5, \"orderBy\": %s, \"descending\": %s%s}",
                     orders[order / 2], order % 2 != 0 ? "true" : "false", token);
            json_t *reply = fixture_reply(fixture, "DescribeLogStreams", request);
            const char *next = json_string_value(json_object_get(reply, "nextToken"));
            found += json_array_size(json_object_get(reply, "logStreams"));
            member_print(token, sizeof(token), next);
            json_decref(reply);
        } while (token[0] != '\0' && ++pages < 10);
        assert_int_equal(found, 23);
        assert_int_equal(pages, 4);
    }
}

static void the_group_is_described(void **state)
{
    json_t *reply = fixture_reply(*state, "DescribeLogGroups", "{}");
    fixture_joined(json_object_get(reply, "logGroups"), "logGroupName", LOGS_GROUP);
    json_decref(reply);
    reply = fixture_reply(*state, "DescribeLogGroups", "{\"logGroupNamePrefix\": \"/aws/lambda\"}");
    fixture_joined(json_object_get(reply, "logGroups"), "logGroupName", "");
    json_decref(reply);
}

/* All messages of a search in pages of `limit`, joined by blanks. */
static char *filter_all(struct fixture *fixture, const char *more, int limit)
{
    char token[256] = "", *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    for (int pages = 0; pages < 100; pages++) {
        char request[512];
        snprintf(request, sizeof(request), "{" GROUP ", \"limit\": %d%s%s}", limit, more, token);
        json_t *reply = fixture_reply(fixture, "FilterLogEvents", request);
        const char *next = json_string_value(json_object_get(reply, "nextToken"));
        char *page = fixture_join(json_object_get(reply, "events"), "message");
        fprintf(out, "%s%s", page, page[0] != '\0' ? " " : "");
        free(page);
        member_print(token, sizeof(token), next);
        json_decref(reply);
        if (token[0] == '\0')
            break;
    }
    fclose(out);
    assert_string_equal(token, "");
    return text;
}

static void searches_merge_streams_by_time(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        const char *more, *expected;
    } cases[] = {
        {"", "1.0 2.0 1.1 2.1 1.2 2.2 3.0 "},
        {", \"logStreamNamePrefix\": \"a/\"", "1.0 2.0 1.1 2.1 1.2 2.2 "},
        {", \"logStreamNames\": [\"b/algo-3-1763841700\", \"a/algo-2-1763841600\"]",
         "2.0 2.1 2.2 3.0 "},
        {", \"filterPattern\": \"\\\"1.\\\"\"", "1.0 1.1 1.2 "},
        {", \"filterPattern\": \"?\\\".2\\\" ?\\\"3.\\\"\"", "1.2 2.2 3.0 "},
        {", \"filterPattern\": \"%^2%\"", "2.0 2.1 2.2 "},
        {", \"startTime\": 1763841600011, \"endTime\": 1763841600022", "1.1 2.1 1.2 "},
        {", \"startTime\": 1763841610000", ""},
    };
    lines_write(fixture, "a", 1, 0, 3);
    lines_write(fixture, "a", 2, 0, 3);
    fixture_write(fixture, "b", 3, 1763841700, T0 + 23, "3.0");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int limit = 1; limit < 9; limit += 2) {
            char *text = filter_all(fixture, cases[i].more, limit);
            assert_string_equal(text, cases[i].expected);
            free(text);
        }
    }
}

static void searches_refuse_what_they_cannot_do(void **state)
{
    struct fixture *fixture = *state;
    lines_write(fixture, "a", 1, 0, 1);
    const struct {
        const char *more, *type, *text;
    } cases[] = {
        {", \"filterPattern\": \"{ $.x = 1 }\"", "InvalidParameterException", "Invalid filter"},
        {", \"filterPattern\": \"a-b\"", "InvalidParameterException",
         "Invalid character(s) in term 'a-b'"},
        {", \"filterPattern\": \"%(%\"", "InvalidParameterException", "regular expression"},
        {", \"logStreamNames\": [\"a/algo-7-1763841600\"]", "ResourceNotFoundException",
         "The specified log stream does not exist."},
        {", \"nextToken\": \"f/0/s\"", "InvalidParameterException",
         "The specified nextToken is invalid."},
        {", \"startFromHead\": false", "InvalidParameterException", "startFromHead"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char request[256];
        snprintf(request, sizeof(request), "{" GROUP "%s}", cases[i].more);
        fixture_refused(fixture, "FilterLogEvents", request, cases[i].type, cases[i].text);
    }
}

static void a_hostile_search_ends(void **state)
{
    struct fixture *fixture = *state;
    char text[2000];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 2] = '!';
    text[sizeof(text) - 1] = '\0';
    for (int i = 0; i < 50; i++)
        fixture_write(fixture, "a", 1, 1763841600, T0 + i, text);
    fixture_refused(fixture, "FilterLogEvents", "{" GROUP ", \"filterPattern\": \"%(a+)+$%\"}",
                    "InvalidParameterException", "too many steps");
}

static void folders_of_jobs_come_and_go(void **state)
{
    struct fixture *fixture = *state;
    char path[256];
    assert_false(logs_job_has_lines(fixture->logs, "a"));
    assert_int_equal(logs_stream_make(fixture->logs, "../a", 1, 1, path, sizeof(path)),
                     SHOAL_ERR_ARGUMENT);
    assert_int_equal(logs_stream_make(fixture->logs, "a", 1, 1, path, 20), SHOAL_ERR_LIMIT);
    lines_write(fixture, "a", 1, 0, 1);
    assert_true(logs_job_has_lines(fixture->logs, "a"));
    assert_int_equal(logs_job_remove(fixture->logs, "a"), SHOAL_OK);
    assert_int_equal(logs_job_remove(fixture->logs, "a"), SHOAL_OK);
    assert_false(logs_job_has_lines(fixture->logs, "a"));
}

/* Entries below the folder of logs. */
static int files_count(const struct fixture *fixture)
{
    char command[128];
    int count;
    snprintf(command, sizeof(command), "find %s -mindepth 1 | wc -l", fixture->root);
    FILE *found = popen(command, "r");
    assert_int_equal(fscanf(found, "%d", &count), 1);
    pclose(found);
    return count;
}

static void removed_logs_take_their_time_elsewhere(void **state)
{
    struct fixture *fixture = *state;
    lines_write(fixture, "a", 1, 0, 1);
    assert_int_equal(logs_job_remove(fixture->logs, "a"), SHOAL_OK);
    assert_int_equal(files_count(fixture), 2); /* whatever they hold */
    lines_write(fixture, "a", 1, 0, 1);
    assert_int_equal(logs_job_remove(fixture->logs, "a"), SHOAL_OK);
    lines_write(fixture, "a", 1, 0, 1);
    assert_int_equal(logs_sweep(fixture->logs), SHOAL_OK);
    assert_int_equal(files_count(fixture), 2);
    assert_true(logs_job_has_lines(fixture->logs, "a"));
}

/* Each allocation of an operation fails once: an error or the reply, and nothing is left behind. */
static void walk_allocations(struct fixture *fixture, const struct logs_operation *operation,
                             const char *request)
{
    json_t *json = json_loads(request, 0, NULL);
    for (uint64_t nth = 1, before = 0; nth == 1 || base_memory_count() - before >= nth; nth++) {
        struct job_fault fault = {0};
        json_t *reply = NULL;
        size_t blocks = base_memory_blocks();
        before = base_memory_count();
        base_memory_fail_at(nth);
        enum shoal_status status = operation->run(fixture->logs, json, &reply, &fault);
        base_memory_fail_at(0);
        assert_true(status == SHOAL_ERR_MEMORY ? reply == NULL : status == SHOAL_OK);
        json_decref(reply);
        assert_int_equal(base_memory_blocks(), blocks);
    }
    json_decref(json);
}

static void allocations_may_fail(void **state)
{
    struct fixture *fixture = *state;
    lines_write(fixture, "a", 1, 0, 20);
    lines_write(fixture, "b", 1, 0, 20);
    fixture_write(fixture, "b", 1, 1763841600, T0 + 900, "\xFF is no UTF-8");
    for (const struct logs_operation *row = logs_operations; row->name != NULL; row++) {
        bool is_get = strcmp(row->name, "GetLogEvents") == 0;
        walk_allocations(fixture, row,
                         is_get ? "{" GROUP ", \"logStreamName\": \"b/algo-1-1763841600\"}"
                                : "{" GROUP ", \"filterPattern\": \"?b ?\\\"1.\\\"\"}");
    }
}

#define LOGS_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOGS_TEST(forward_tokens_follow_a_stream),
        LOGS_TEST(backward_tokens_go_to_the_head),
        LOGS_TEST(times_bound_what_is_given),
        LOGS_TEST(a_reply_has_a_megabyte_at_most),
        LOGS_TEST(errors_are_the_services),
        LOGS_TEST(identifiers_name_the_group_too),
        LOGS_TEST(streams_are_listed_in_order),
        LOGS_TEST(pages_of_streams_go_through_all),
        LOGS_TEST(the_group_is_described),
        LOGS_TEST(searches_merge_streams_by_time),
        LOGS_TEST(searches_refuse_what_they_cannot_do),
        LOGS_TEST(a_hostile_search_ends),
        LOGS_TEST(folders_of_jobs_come_and_go),
        LOGS_TEST(removed_logs_take_their_time_elsewhere),
        LOGS_TEST(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
