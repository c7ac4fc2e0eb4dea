/* SPDX-License-Identifier: Apache-2.0 */
/*
 * validate_test.c: requests against the model of SageMaker's API: what the SDK sends passes, each
 * kind of fault has the service's text, and nothing that is sent can do harm.
 */
#include "job/validate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "support/fuzz.h"

static struct job_validator *validator;

/* What the SDK sends for two instances with smddp, spot, retries and checkpoints. */
static const char create[] =
    "{\"AlgorithmSpecification\":{\"TrainingInputMode\":\"File\",\"TrainingImage\":"
    "\"123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-gpu-py310\","
    "\"MetricDefinitions\":[{\"Name\":\"loss\",\"Regex\":\"loss=([0-9.]+)\"}],"
    "\"EnableSageMakerMetricsTimeSeries\":true},"
    "\"OutputDataConfig\":{\"S3OutputPath\":\"s3://mybkt/\"},"
    "\"TrainingJobName\":\"pytorch-training-2026-11-20-17-33-47-129\","
    "\"StoppingCondition\":{\"MaxRuntimeInSeconds\":3600,\"MaxWaitTimeInSeconds\":7200},"
    "\"ResourceConfig\":{\"VolumeSizeInGB\":30,\"InstanceCount\":2,"
    "\"InstanceType\":\"ml.p4d.24xlarge\"},"
    "\"RoleArn\":\"arn:aws:iam::111122223333:role/LocalRole\","
    "\"InputDataConfig\":[{\"DataSource\":{\"S3DataSource\":{\"S3DataType\":\"S3Prefix\","
    "\"S3Uri\":\"s3://mybkt/train\",\"S3DataDistributionType\":\"ShardedByS3Key\"}},"
    "\"InputMode\":\"FastFile\",\"ChannelName\":\"train\"}],"
    "\"HyperParameters\":{\"lr\":\"0.1\",\"sagemaker_program\":\"\\\"train.py\\\"\"},"
    "\"Environment\":{\"A\":\"b\"},\"Tags\":[{\"Key\":\"k\",\"Value\":\"v\"}],"
    "\"EnableManagedSpotTraining\":true,"
    "\"CheckpointConfig\":{\"S3Uri\":\"s3://mybkt/ck\",\"LocalPath\":\"/opt/ml/checkpoints\"},"
    "\"ProfilerConfig\":{\"S3OutputPath\":\"s3://mybkt/\",\"DisableProfiler\":false},"
    "\"RetryStrategy\":{\"MaximumRetryAttempts\":3}}";

static int compile_model(void **state)
{
    (void)state;
    if (job_validator_create(&job_model_sagemaker, &validator) == SHOAL_OK)
        return 0;
    fprintf(stderr, "%s\n", base_error_text());
    return 1;
}

static int release_model(void **state)
{
    (void)state;
    job_validator_free(validator);
    return base_memory_blocks() != 0;
}

static bool check(const char *operation, const char *text, struct job_fault *fault)
{
    json_t *request = json_loads(text, JSON_DECODE_ANY, NULL);
    const struct job_operation *found = job_operation_find(&job_model_sagemaker, operation);
    assert_non_null(request);
    assert_non_null(found);
    bool good = job_validate(validator, found, request, fault);
    json_decref(request);
    return good;
}

static void expect_good(const char *operation, const char *text)
{
    struct job_fault fault;
    if (!check(operation, text, &fault))
        fail_msg("%s: %s", fault.type, fault.text);
}

static void expect_fault(const char *operation, const char *text, const char *type,
                         const char *expected)
{
    struct job_fault fault;
    assert_false(check(operation, text, &fault));
    assert_string_equal(fault.text, expected);
    assert_string_equal(fault.type, type);
}

/* The good request with some members replaced. */
static void expect_invalid(const char *changes, const char *expected)
{
    json_t *request = json_loads(create, 0, NULL), *change = json_loads(changes, 0, NULL);
    assert_non_null(change);
    json_object_update_recursive(request, change);
    char *text = json_dumps(request, 0);
    expect_fault("CreateTrainingJob", text, "ValidationException", expected);
    free(text);
    json_decref(change);
    json_decref(request);
}

static void test_what_clients_send_passes(void **state)
{
    (void)state;
    expect_good("CreateTrainingJob", create);
    expect_good("DescribeTrainingJob", "{\"TrainingJobName\":\"a\"}");
    expect_good("ListTrainingJobs", "{}");
    expect_good("ListTrainingJobs", "{\"CreationTimeAfter\":1763841600.5,\"MaxResults\":100,"
                                    "\"NextToken\":null,\"StatusEquals\":\"InProgress\"}");
    expect_good("DescribeTrainingJob", "{\"TrainingJobName\":\"a\",\"Unknown\":{\"x\":[1]}}");
}

static void test_operations_are_found_by_name(void **state)
{
    (void)state;
    assert_non_null(job_operation_find(&job_model_sagemaker, "CreatePipeline"));
    assert_null(job_operation_find(&job_model_sagemaker, "CreateNotebookInstance"));
    assert_null(job_operation_find(&job_model_sagemaker, ""));
    assert_true(job_model_sagemaker.operation_count >= 47);
}

static void test_instance_types_are_open(void **state)
{
    (void)state;
    struct job_fault fault;
    json_t *request = json_loads(create, 0, NULL);
    json_object_set_new(json_object_get(request, "ResourceConfig"), "InstanceType",
                        json_string("ml.mine.huge"));
    assert_true(job_validate(
        validator, job_operation_find(&job_model_sagemaker, "CreateTrainingJob"), request, &fault));
    json_decref(request);
}

static void test_each_constraint_has_its_text(void **state)
{
    (void)state;
    expect_invalid("{\"TrainingJobName\":\"a_b\"}",
                   "1 validation error detected: Value 'a_b' at 'trainingJobName' failed to "
                   "satisfy constraint: Member must satisfy regular expression pattern: "
                   "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}");
    expect_invalid("{\"RoleArn\":null}",
                   "1 validation error detected: Value null at 'roleArn' failed to satisfy "
                   "constraint: Member must not be null");
    expect_invalid(
        "{\"AlgorithmSpecification\":{\"TrainingInputMode\":\"Fast\"}}",
        "1 validation error detected: Value 'Fast' at "
        "'algorithmSpecification.trainingInputMode' failed to satisfy constraint: Member "
        "must satisfy enum value set: [Pipe, File, FastFile]");
    expect_invalid(
        "{\"RetryStrategy\":{\"MaximumRetryAttempts\":31}}",
        "1 validation error detected: Value '31' at 'retryStrategy.maximumRetryAttempts' "
        "failed to satisfy constraint: Member must have value less than or equal to 30");
    expect_invalid("{\"InputDataConfig\":[]}",
                   "1 validation error detected: Value '[]' at 'inputDataConfig' failed to satisfy "
                   "constraint: Member must have length greater than or equal to 1");
    expect_invalid("{\"Tags\":[{\"Key\":\"a\",\"Value\":\"b\"},{\"Value\":\"c\"}]}",
                   "1 validation error detected: Value null at 'tags.2.member.key' failed to "
                   "satisfy constraint: Member must not be null");
    expect_invalid("{\"Environment\":{\"1A\":\"x\"}}",
                   "1 validation error detected: Value '{A=b, 1A=x}' at 'environment' failed to "
                   "satisfy constraint: Map keys must satisfy constraint: [Member must have length "
                   "less than or equal to 512, Member must have length greater than or equal to 0, "
                   "Member must satisfy regular expression pattern: [a-zA-Z_][a-zA-Z0-9_]*]");
}

static void test_all_broken_constraints_are_listed(void **state)
{
    (void)state;
    expect_fault("StopTrainingJob", "{}", "ValidationException",
                 "1 validation error detected: Value null at 'trainingJobName' failed to satisfy "
                 "constraint: Member must not be null");
    expect_invalid("{\"TrainingJobName\":\"\",\"RoleArn\":null}",
                   "3 validation errors detected: Value '' at 'trainingJobName' failed to satisfy "
                   "constraint: Member must have length greater than or equal to 1; Value '' at "
                   "'trainingJobName' failed to satisfy constraint: Member must satisfy regular "
                   "expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}; Value null at 'roleArn' "
                   "failed to satisfy constraint: Member must not be null");
}

static void test_lengths_are_of_characters(void **state)
{
    (void)state;
    char text[2048] =
        "{\"ResourceArn\":\"arn:aws:sagemaker:us-east-1:111122223333:training-job/a\","
        "\"Tags\":[{\"Key\":\"";
    for (int i = 0; i < 128; i++)
        strcat(text, "\xC3\xA4");
    strcat(text, "\",\"Value\":\"\"}]}");
    expect_good("AddTags", text);
}

static void test_values_of_wrong_types(void **state)
{
    (void)state;
    static const char type[] = "SerializationException";
    expect_fault("StopTrainingJob", "{\"TrainingJobName\":1}", type,
                 "NUMBER_VALUE cannot be converted to String");
    expect_fault("StopTrainingJob", "{\"TrainingJobName\":[1]}", type,
                 "Start of list found where not expected");
    expect_fault("StopTrainingJob", "{\"TrainingJobName\":{}}", type,
                 "Start of structure or map found where not expected.");
    expect_fault("StopTrainingJob", "[]", type, "Start of list found where not expected");
    expect_fault("ListTrainingJobs", "{\"MaxResults\":\"10\"}", type,
                 "STRING_VALUE cannot be converted to Integer");
    expect_fault("ListTrainingJobs", "{\"MaxResults\":1.5}", type,
                 "NUMBER_VALUE cannot be converted to Integer");
    expect_fault("ListTrainingJobs", "{\"MaxResults\":4294967296}", type,
                 "NUMBER_VALUE cannot be converted to Integer");
    expect_fault("ListTrainingJobs", "{\"CreationTimeAfter\":1e300}", type,
                 "NUMBER_VALUE cannot be converted to Timestamp");
    expect_fault("CreateTrainingJob", "{\"EnableNetworkIsolation\":\"yes\"}", type,
                 "STRING_VALUE cannot be converted to Boolean");
}

/* A search expression may hold others: an endless nest is refused. */
static void test_nests_have_an_end(void **state)
{
    (void)state;
    struct job_fault fault;
    json_t *expression = json_object();
    for (int i = 0; i < 500; i++)
        expression = json_pack("{s:[o]}", "SubExpressions", expression);
    json_t *request =
        json_pack("{s:s, s:o}", "Resource", "TrainingJob", "SearchExpression", expression);
    assert_false(job_validate(validator, job_operation_find(&job_model_sagemaker, "Search"),
                              request, &fault));
    assert_string_equal(fault.text, "The request is nested too deeply");
    json_decref(request);
}

/* Long texts against every pattern end soon: a match has a limit of steps. */
static void test_long_names_end_soon(void **state)
{
    (void)state;
    struct job_fault fault;
    char name[4096], text[8192];
    memset(name, '-', sizeof(name));
    name[0] = 'a';
    name[sizeof(name) - 1] = '\0';
    snprintf(text, sizeof(text), "{\"TrainingJobName\":\"%s\"}", name);
    assert_false(check("StopTrainingJob", text, &fault));
    snprintf(text, sizeof(text), "{\"ResourceArn\":\"arn:aws:sagemaker:%s\"}", name);
    check("ListTags", text, &fault);
}

static void take_damaged(void *user, char *text, size_t count, uint64_t round)
{
    struct job_fault fault = {0};
    json_t *request = json_loadb(text, count, JSON_DECODE_ANY, NULL);
    size_t operation = (size_t)fuzz_below(&round, job_model_sagemaker.operation_count);
    (void)user;
    if (request != NULL &&
        !job_validate(validator, &job_model_sagemaker.operations[operation], request, &fault)) {
        json_t *answer = json_pack("{s:s, s:s}", "__type", fault.type, "message", fault.text);
        assert_non_null(answer);
        json_decref(answer);
    }
    json_decref(request);
}

/* Damaged requests, against all operations: a fault has a type and a text in UTF-8. */
static void test_damaged_requests(void **state)
{
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT(create),
        FUZZ_TEXT("{\"ResourceArn\":\"arn:aws:sagemaker:us-east-1:111122223333:training-job/a\","
                  "\"Tags\":[{\"Key\":\"k\",\"Value\":\"v\"}],\"MaxResults\":10,"
                  "\"CreationTimeAfter\":1763841600.5,\"SearchExpression\":{\"Filters\":[{}]}}")};
    static const char *const words[] = {
        "null",  "true", "{}", "[]", "\"\"", "[[[[", "\\u0000", "\\ud83d\\udc1f", "\"MaxResults\":",
        "1e308", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 8000);
    (void)state;
    fuzz_run(&fuzz, take_damaged, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_clients_send_passes),
        cmocka_unit_test(test_operations_are_found_by_name),
        cmocka_unit_test(test_instance_types_are_open),
        cmocka_unit_test(test_each_constraint_has_its_text),
        cmocka_unit_test(test_all_broken_constraints_are_listed),
        cmocka_unit_test(test_lengths_are_of_characters),
        cmocka_unit_test(test_values_of_wrong_types),
        cmocka_unit_test(test_nests_have_an_end),
        cmocka_unit_test(test_long_names_end_soon),
        cmocka_unit_test(test_damaged_requests),
    };
    return cmocka_run_group_tests(tests, compile_model, release_model);
}
