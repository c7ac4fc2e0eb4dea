/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c: `shoal describe`: all that is known of a job, for people or as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arguments.h"
#include "base/status.h"
#include "job_client.h"

int cmd_describe(int argc, char **argv);

enum { DESCRIBE_JSON, DESCRIBE_DIR, DESCRIBE_ENDPOINT, DESCRIBE_HELP };

static const struct argument table[] = {
    [DESCRIBE_JSON] = {"json", 0, NULL, "as DescribeTrainingJob has it"},
    [DESCRIBE_DIR] = JOB_CLIENT_DIR_ROW,
    [DESCRIBE_ENDPOINT] = JOB_CLIENT_ENDPOINT_ROW,
    [DESCRIBE_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

struct describe {
    struct job_client client;
    const char *name;
    bool wants_json, wants_help;
};

static enum shoal_status take(void *user, int id, const char *value)
{
    struct describe *describe = user;
    switch (id) {
    case DESCRIBE_JSON: describe->wants_json = true; break;
    case DESCRIBE_DIR: describe->client.wish.dir = value; break;
    case DESCRIBE_ENDPOINT: describe->client.wish.url = value; break;
    default: describe->wants_help = true; break;
    }
    return SHOAL_OK;
}

static void help_print(void)
{
    printf("usage: shoal describe [OPTION...] NAME\n\n"
           "Shows a training job: its status and why it waits or failed, what it runs, where its\n"
           "data and model are, its metrics, and the statuses it went through.\n\n");
    arguments_help(table, TABLE_COUNT, stdout);
    printf("\nexample:\n"
           "  shoal describe train-2026-11-22-20-15-01-123\n");
}

/* ---- for people ---- */

static void row(const char *title, const char *text)
{
    if (text[0] != '\0')
        printf("%-16s %s\n", title, text);
}

static double number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static const json_t *last_transition(const json_t *job)
{
    const json_t *all = json_object_get(job, "SecondaryStatusTransitions");
    size_t count = json_array_size(all);
    return count > 0 ? json_array_get(all, count - 1) : NULL;
}

static void status_print(const json_t *job)
{
    double created = number(job, "CreationTime"), ended = number(job, "TrainingEndTime");
    const char *status = job_text(job, "TrainingJobStatus");
    row("Name", job_text(job, "TrainingJobName"));
    printf("%-16s %s (%s)\n", "Status", status, job_text(job, "SecondaryStatus"));
    if (!job_has_ended(status))
        row("Now", job_text(last_transition(job), "StatusMessage"));
    row("Failure", job_text(job, "FailureReason"));
    row("Created", job_time_text(created));
    row("Training since", job_time_text(number(job, "TrainingStartTime")));
    row("Ended", job_time_text(ended));
    if (number(job, "TrainingTimeInSeconds") > 0)
        row("Trained for", job_duration_text(number(job, "TrainingTimeInSeconds")));
}

static void resources_print(const json_t *job)
{
    const json_t *resources = json_object_get(job, "ResourceConfig"), *group;
    size_t i;
    if (json_object_get(resources, "InstanceCount") != NULL)
        printf("%-16s %lld x %s\n", "Instances", (long long)number(resources, "InstanceCount"),
               job_text(resources, "InstanceType"));
    json_array_foreach(json_object_get(resources, "InstanceGroups"), i, group)
    {
        printf("%-16s %lld x %s (%s)\n", i == 0 ? "Instances" : "",
               (long long)number(group, "InstanceCount"), job_text(group, "InstanceType"),
               job_text(group, "InstanceGroupName"));
    }
    row("Warm pool", job_text(json_object_get(job, "WarmPoolStatus"), "Status"));
    row("Image", job_text(json_object_get(job, "AlgorithmSpecification"), "TrainingImage"));
}

/* What a file system's channel has in place of an address. */
static const char *where_of(const json_t *channel)
{
    const json_t *source = json_object_get(channel, "DataSource");
    const char *uri = job_text(json_object_get(source, "S3DataSource"), "S3Uri");
    return uri[0] != '\0'
               ? uri
               : job_text(json_object_get(source, "FileSystemDataSource"), "DirectoryPath");
}

/* Whether an object has this address, or one is below it; `otherwise` where that can't be known, as
 * in a bucket of another service that only jobs reach. */
static bool is_there(const struct describe *describe, const char *address, bool otherwise)
{
    char bucket[S3_BUCKET_NAME_MAX + 1];
    const char *at = strncmp(address, "s3://", 5) == 0 ? address + 5 : address;
    size_t length = strcspn(at, "/");
    struct s3_client_listing listing = {.bucket = bucket, .limit = 1};
    struct s3_client *store;
    struct s3_list page;
    if (length >= sizeof(bucket) || at[length] == '\0' ||
        job_client_store(&describe->client, NULL, &store) != SHOAL_OK)
        return otherwise;
    snprintf(bucket, sizeof(bucket), "%.*s", (int)length, at);
    listing.prefix = at + length + 1;
    bool is_known = s3_client_list(store, &listing, &page) == S3_OK;
    bool found = is_known ? page.count > 0 : otherwise;
    if (is_known)
        s3_list_release(&page);
    s3_client_listing_release(&listing);
    s3_client_free(store);
    return found;
}

/* The API names a model's place whether there is one or not. */
static void model_print(const struct describe *describe, const json_t *job)
{
    const char *status = job_text(job, "TrainingJobStatus");
    const char *address = job_text(json_object_get(job, "ModelArtifacts"), "S3ModelArtifacts");
    bool is_complete = strcmp(status, "Completed") == 0;
    if (!job_has_ended(status) || address[0] == '\0')
        return;
    if (is_there(describe, address, is_complete))
        row("Model", address);
    else if (is_complete)
        row("Model", "none: nothing was in /opt/ml/model, or it was removed since");
}

static void data_print(const json_t *job)
{
    const json_t *channel;
    size_t i;
    json_array_foreach(json_object_get(job, "InputDataConfig"), i, channel)
    {
        printf("%-16s %s: %s\n", i == 0 ? "Data" : "", job_text(channel, "ChannelName"),
               where_of(channel));
    }
    row("Output", job_text(json_object_get(job, "OutputDataConfig"), "S3OutputPath"));
}

static void values_print(const json_t *job)
{
    const char *name, *title = "Hyperparameters";
    const json_t *metric;
    json_t *value;
    size_t i;
    json_object_foreach(json_object_get(job, "HyperParameters"), name, value)
    {
        if (strncmp(name, "sagemaker_", 10) == 0) /* how it is started */
            continue;
        printf("%-16s %s = %s\n", title, name, json_string_value(value));
        title = "";
    }
    json_array_foreach(json_object_get(job, "FinalMetricDataList"), i, metric)
    {
        printf("%-16s %s = %g\n", i == 0 ? "Metrics" : "", job_text(metric, "MetricName"),
               number(metric, "Value"));
    }
}

static void transitions_print(const json_t *job)
{
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(job, "SecondaryStatusTransitions"), i, one)
    {
        double start = number(one, "StartTime"), end = number(one, "EndTime");
        double until = end > 0 ? end : (double)time(NULL);
        printf("%-16s %s  %-12s %10s  %s\n", i == 0 ? "Statuses" : "", job_time_text(start),
               job_text(one, "Status"), job_duration_text(until - start),
               job_text(one, "StatusMessage"));
    }
}

static enum shoal_status describe_run(struct describe *describe)
{
    json_t *job;
    TRY(job_client_describe(&describe->client, describe->name, &job));
    if (describe->wants_json) {
        json_dumpf(job, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        status_print(job);
        resources_print(job);
        data_print(job);
        model_print(describe, job);
        values_print(job);
        transitions_print(job);
    }
    json_decref(job);
    return SHOAL_OK;
}

int cmd_describe(int argc, char **argv)
{
    struct describe describe = {0};
    struct arguments arguments = {.command = "describe",
                                  .table = table,
                                  .count = TABLE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take,
                                  .user = &describe,
                                  .at = 1};
    enum shoal_status status = arguments_take_with_operation(&arguments, &describe.name);
    if (status == SHOAL_OK && describe.wants_help) {
        help_print();
        return 0;
    }
    if (status == SHOAL_OK && describe.name == NULL)
        status = base_error(SHOAL_ERR_ARGUMENT, "no job's name (see shoal jobs)");
    int code = arguments_exit("describe", status == SHOAL_OK ? describe_run(&describe) : status);
    job_client_release(&describe.client);
    return code;
}
