/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit_request.c: the body of CreateTrainingJob, as the SDK makes it for a script: which script,
 * and how it is started on several instances, are hyperparameters whose values are JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "http/identity.h"
#include "submit.h"

#define DEFAULT_IMAGE "python"
#define DEFAULT_TYPE  "ml.local" /* "local" alone would keep the SDK from attaching to the job */
#define REGION        "us-east-1"

/* ---- hyperparameters ---- */

/* A value as JSON: numbers, true, lists, … as they stand, all else as a text. */
static json_t *value_json(const char *value)
{
    json_t *parsed = json_loads(value, JSON_DECODE_ANY, NULL);
    if (parsed != NULL && !json_is_string(parsed)) {
        json_decref(parsed);
        return json_string(value);
    }
    json_decref(parsed);
    json_t *plain = json_string(value);
    char *quoted = plain != NULL ? json_dumps(plain, JSON_ENCODE_ANY) : NULL;
    json_decref(plain);
    json_t *out = quoted != NULL ? json_string(quoted) : NULL;
    free(quoted);
    return out;
}

static enum shoal_status put(json_t *object, const char *name, size_t name_bytes, json_t *value)
{
    char key[512];
    if (name_bytes == 0 || name_bytes >= sizeof(key)) {
        json_decref(value);
        return base_error(SHOAL_ERR_ARGUMENT, "'%s': a name has 1 to 511 characters", name);
    }
    snprintf(key, sizeof(key), "%.*s", (int)name_bytes, name);
    if (value == NULL || json_object_set_new(object, key, value) != 0)
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is not UTF-8", name);
    return SHOAL_OK;
}

static enum shoal_status literal_put(json_t *object, const char *name, json_t *value)
{
    return put(object, name, strlen(name), value);
}

/* Words of the form NAME=VALUE. */
static enum shoal_status pairs_put(const struct submit_list *list, const char *option,
                                   json_t *(*value_of)(const char *value), json_t *object)
{
    for (int i = 0; i < list->count; i++) {
        const char *word = list->items[i], *equals = strchr(word, '=');
        if (equals == NULL)
            return base_error(SHOAL_ERR_ARGUMENT, "%s %s: it takes NAME=VALUE", option, word);
        TRY(put(object, word, (size_t)(equals - word), value_of(equals + 1)));
    }
    return SHOAL_OK;
}

/* The script's own options, "--lr 0.1" and "--lr=0.1": scripts get hyperparameters in this form. */
static enum shoal_status arguments_put(const struct submit_list *list, json_t *object)
{
    for (int i = 0; i < list->count; i++) {
        const char *word = list->items[i];
        const char *name = word + strspn(word, "-"), *equals = strchr(name, '=');
        if (name == word || *name == '\0')
            return base_error(SHOAL_ERR_ARGUMENT,
                              "'%s' behind -- has no option in front of it: scripts get "
                              "hyperparameters, --name value",
                              word);
        if (equals != NULL) {
            TRY(put(object, name, (size_t)(equals - name), value_json(equals + 1)));
            continue;
        }
        const char *next = i + 1 < list->count ? list->items[i + 1] : NULL;
        bool is_number = next != NULL && next[0] == '-' && strspn(next + 1, "0123456789.") > 0;
        if (next == NULL || (next[0] == '-' && !is_number))
            return base_error(SHOAL_ERR_ARGUMENT,
                              "'%s' behind -- has no value: scripts get hyperparameters, "
                              "--name value",
                              word);
        TRY(literal_put(object, name, value_json(next)));
        i++;
    }
    return SHOAL_OK;
}

static enum shoal_status text_put(json_t *object, const char *name, const char *text)
{
    json_t *plain = json_string(text);
    char *quoted = plain != NULL ? json_dumps(plain, JSON_ENCODE_ANY) : NULL;
    json_decref(plain);
    json_t *value = quoted != NULL ? json_string(quoted) : NULL;
    free(quoted);
    return literal_put(object, name, value);
}

static const char *type_of(const struct submit *submit)
{
    return submit->instance_type != NULL ? submit->instance_type : DEFAULT_TYPE;
}

/* How many ranks an instance has is said in one way, whatever starts them. */
static enum shoal_status processes_put(const struct submit *submit, json_t *object)
{
    if (submit->processes == 0)
        return SHOAL_OK;
    return literal_put(object, "sagemaker_mpi_num_of_processes_per_host",
                       json_sprintf("%ld", submit->processes));
}

static enum shoal_status distribution_put(const struct submit *submit, json_t *object)
{
    const char *how = submit->distribution;
    if (how == NULL)
        return submit->processes == 0
                   ? SHOAL_OK
                   : base_error(SHOAL_ERR_ARGUMENT, "--processes %ld goes with --distribution",
                                submit->processes);
    TRY(processes_put(submit, object));
    if (strcmp(how, "torchrun") == 0)
        return literal_put(object, "sagemaker_torch_distributed_enabled", json_string("true"));
    if (strcmp(how, "smddp") == 0) {
        TRY(literal_put(object, "sagemaker_distributed_dataparallel_enabled", json_string("true")));
        return text_put(object, "sagemaker_instance_type", type_of(submit));
    }
    if (strcmp(how, "mpi") != 0)
        return base_error(SHOAL_ERR_ARGUMENT, "--distribution %s: it takes smddp, mpi or torchrun",
                          how);
    TRY(literal_put(object, "sagemaker_mpi_enabled", json_string("true")));
    return text_put(object, "sagemaker_mpi_custom_mpi_options", "");
}

static enum shoal_status hyperparameters_fill(const struct submit *submit, json_t *object)
{
    char source[SUBMIT_KEY_BYTES + S3_BUCKET_NAME_MAX + 8];
    snprintf(source, sizeof(source), "s3://%s/%s", submit->bucket, submit->source_key);
    TRY(pairs_put(&submit->hyperparameters, "--hyperparameter", value_json, object));
    TRY(arguments_put(&submit->arguments, object));
    TRY(text_put(object, "sagemaker_submit_directory", source));
    TRY(text_put(object, "sagemaker_program", submit->script));
    TRY(text_put(object, "sagemaker_job_name", submit->job));
    TRY(text_put(object, "sagemaker_region", REGION));
    TRY(literal_put(object, "sagemaker_container_log_level", json_string("20")));
    return distribution_put(submit, object);
}

/* ---- the rest ---- */

static enum shoal_status channels_fill(const struct submit *submit, json_t *list)
{
    for (int i = 0; i < submit->data.count; i++) {
        char name[65], prefix[256];
        const char *what;
        TRY(submit_data_split(submit->data.items[i], name, &what));
        submit_data_prefix(submit, name, prefix, sizeof(prefix));
        json_t *uri = submit_is_address(what) ? json_string(what)
                                              : json_sprintf("s3://%s/%s", submit->bucket, prefix);
        json_t *channel = json_pack("{s:s, s:{s:{s:s, s:o, s:s}}}", "ChannelName", name,
                                    "DataSource", "S3DataSource", "S3DataType", "S3Prefix", "S3Uri",
                                    uri, "S3DataDistributionType", "FullyReplicated");
        if (channel == NULL || json_array_append_new(list, channel) != 0)
            return base_error(SHOAL_ERR_ARGUMENT, "--data %s is not UTF-8", submit->data.items[i]);
    }
    return SHOAL_OK;
}

static enum shoal_status metrics_fill(const struct submit *submit, json_t *list)
{
    for (int i = 0; i < submit->metrics.count; i++) {
        const char *word = submit->metrics.items[i], *equals = strchr(word, '=');
        if (equals == NULL || equals == word)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "--metric %s: it takes NAME=REGEX, such as 'loss=loss: ([0-9.]+)'",
                              word);
        json_t *metric = json_pack(
            "{s:o, s:s}", "Name", json_stringn(word, (size_t)(equals - word)), "Regex", equals + 1);
        if (metric == NULL || json_array_append_new(list, metric) != 0)
            return base_error(SHOAL_ERR_ARGUMENT, "--metric %s is not UTF-8", word);
    }
    return SHOAL_OK;
}

static json_t *base_make(const struct submit *submit)
{
    json_t *output = submit->output != NULL ? json_string(submit->output)
                                            : json_sprintf("s3://%s/", submit->bucket);
    json_t *request = json_pack(
        "{s:s, s:s, s:{s:s, s:s}, s:{s:o}, s:{s:s, s:I, s:i}, s:{s:I}}", "TrainingJobName",
        submit->job, "RoleArn", HTTP_ROLE_ARN, "AlgorithmSpecification", "TrainingImage",
        submit->image != NULL ? submit->image : DEFAULT_IMAGE, "TrainingInputMode", "File",
        "OutputDataConfig", "S3OutputPath", output, "ResourceConfig", "InstanceType",
        type_of(submit), "InstanceCount", (json_int_t)submit->instances, "VolumeSizeInGB", 30,
        "StoppingCondition", "MaxRuntimeInSeconds",
        (json_int_t)((submit->max_runtime_ms + 999) / 1000));
    if (request != NULL && submit->priority != 0)
        json_object_set_new(request, "Tags",
                            json_pack("[{s:s, s:o}]", "Key", "shoal:priority", "Value",
                                      json_sprintf("%ld", submit->priority)));
    if (request != NULL && submit->keep_alive_s > 0)
        json_object_set_new(json_object_get(request, "ResourceConfig"), "KeepAlivePeriodInSeconds",
                            json_integer(submit->keep_alive_s));
    if (request != NULL && submit->checkpoints != NULL)
        json_object_set_new(request, "CheckpointConfig",
                            json_pack("{s:s}", "S3Uri", submit->checkpoints));
    return request;
}

/* An object or list that is only there if it holds something. */
static void part_set(json_t *request, const char *name, json_t *part)
{
    if (json_object_size(part) + json_array_size(part) > 0)
        json_object_set(request, name, part);
    json_decref(part);
}

static enum shoal_status fill(const struct submit *submit, json_t *request)
{
    json_t *hyperparameters = json_object(), *environment = json_object();
    json_t *channels = json_array(), *metrics = json_array();
    enum shoal_status status = hyperparameters_fill(submit, hyperparameters);
    if (status == SHOAL_OK)
        status = pairs_put(&submit->environment, "--env", json_string, environment);
    if (status == SHOAL_OK)
        status = channels_fill(submit, channels);
    if (status == SHOAL_OK)
        status = metrics_fill(submit, metrics);
    part_set(request, "HyperParameters", hyperparameters);
    part_set(request, "Environment", environment);
    part_set(request, "InputDataConfig", channels);
    part_set(json_object_get(request, "AlgorithmSpecification"), "MetricDefinitions", metrics);
    return status;
}

enum shoal_status submit_request(const struct submit *submit, json_t **out)
{
    json_t *request = base_make(submit);
    if (request == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "an argument is not UTF-8");
    enum shoal_status status = fill(submit, request);
    if (status == SHOAL_OK)
        *out = request;
    else
        json_decref(request);
    return status;
}
