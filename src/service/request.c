/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: requests for training jobs beyond what the API's model says of them. */
#include "service/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "job/description.h"
#include "job/instance.h"
#include "logs/logs.h"
#include "s3/name.h"

#define DEFAULT_GROUP "homogeneousCluster"
#define WAIT_S_MAX    (30 * 86400)

/* ---- instances ---- */

static enum shoal_status hosts_add(struct service_host *hosts, int *count, const char *group,
                                   const char *type, json_int_t how_many)
{
    for (json_int_t i = 0; i < how_many; i++) {
        if (*count == SERVICE_HOSTS_MAX)
            return base_error(SHOAL_ERR_LIMIT, "a job has at most %d instances", SERVICE_HOSTS_MAX);
        job_host_name(*count, hosts[*count].name);
        hosts[*count].group = group;
        hosts[*count].type = type;
        ++*count;
    }
    return SHOAL_OK;
}

enum shoal_status service_request_hosts(const json_t *request, struct service_host *hosts,
                                        int *count)
{
    const json_t *resources = json_object_get(request, "ResourceConfig");
    json_t *groups = json_object_get(resources, "InstanceGroups"), *group;
    size_t i;
    *count = 0;
    json_array_foreach(groups, i, group)
        TRY(hosts_add(hosts, count, json_string_value(json_object_get(group, "InstanceGroupName")),
                      json_string_value(json_object_get(group, "InstanceType")),
                      json_integer_value(json_object_get(group, "InstanceCount"))));
    const char *type = json_string_value(json_object_get(resources, "InstanceType"));
    if (json_array_size(groups) == 0 && type != NULL)
        TRY(hosts_add(hosts, count, DEFAULT_GROUP, type,
                      json_integer_value(json_object_get(resources, "InstanceCount"))));
    if (*count == 0)
        return base_error(SHOAL_ERR_LIMIT, "a job has at least one instance: ResourceConfig needs "
                                           "InstanceType and InstanceCount, or InstanceGroups");
    return SHOAL_OK;
}

enum shoal_status service_request_need(const json_t *request, struct service_room *out)
{
    struct service_host hosts[SERVICE_HOSTS_MAX];
    int count;
    TRY(service_request_hosts(request, hosts, &count));
    *out = (struct service_room){.instances = count};
    return SHOAL_OK;
}

/* ---- checks ---- */

static bool refuse(struct job_fault *fault, const char *type, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool refuse(struct job_fault *fault, const char *type, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof(fault->text), format, arguments);
    va_end(arguments);
    fault->type = type;
    return false;
}

static bool room_check(const json_t *request, const struct service_room *machine,
                       struct job_fault *fault)
{
    struct service_room need;
    if (service_request_need(request, &need) != SHOAL_OK)
        return refuse(fault, "ValidationException", "%s", base_error_text());
    if (service_room_fits(machine, &need))
        return true;
    return refuse(fault, "ResourceLimitExceeded",
                  "The job asks for more than this machine has: %d instances; there can be %d at "
                  "one time",
                  (int)need.instances, (int)machine->instances);
}

static bool times_check(const json_t *request, struct job_fault *fault)
{
    json_int_t runtime_s = JOB_RUNTIME_S_DEFAULT, wait_s = 0;
    int is_spot = 0;
    json_unpack((json_t *)request, "{s?{s?I, s?I}, s?b}", "StoppingCondition",
                "MaxRuntimeInSeconds", &runtime_s, "MaxWaitTimeInSeconds", &wait_s,
                "EnableManagedSpotTraining", &is_spot);
    if (runtime_s > JOB_RUNTIME_S_MAX)
        return refuse(fault, "ValidationException",
                      "Invalid MaxRuntimeInSeconds. It must be less than or equal to %d",
                      JOB_RUNTIME_S_MAX);
    if (wait_s > 0 && !is_spot)
        return refuse(fault, "ValidationException",
                      "Invalid MaxWaitTimeInSeconds. It is supported only when "
                      "EnableManagedSpotTraining is set to true");
    if (wait_s > 0 && (wait_s < runtime_s || wait_s > WAIT_S_MAX))
        return refuse(fault, "ValidationException",
                      "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or "
                      "equal to MaxRuntimeInSeconds");
    return true;
}

/* The bucket of s3://bucket/key, if it has one. */
static bool bucket_check(const char *uri, const char *where, struct s3_store *store,
                         struct job_fault *fault)
{
    char name[S3_BUCKET_NAME_MAX + 1];
    struct s3_bucket bucket;
    if (uri == NULL || strncmp(uri, "s3://", 5) != 0)
        return true;
    size_t bytes = strcspn(uri + 5, "/");
    if (bytes > 0 && bytes < sizeof(name)) {
        memcpy(name, uri + 5, bytes);
        name[bytes] = '\0';
        if (s3_bucket_find(store, name, &bucket) == S3_OK)
            return true;
    }
    return refuse(fault, "ValidationException",
                  "There is no S3 bucket '%.*s', which %s names (%s). Create it first, for example "
                  "with: aws s3 mb s3://%.*s",
                  (int)bytes, uri + 5, where, uri, (int)bytes, uri + 5);
}

static bool buckets_check(const json_t *request, struct s3_store *store, struct job_fault *fault)
{
    const char *output = NULL, *checkpoints = NULL;
    json_unpack((json_t *)request, "{s?{s?s}, s?{s?s}}", "OutputDataConfig", "S3OutputPath",
                &output, "CheckpointConfig", "S3Uri", &checkpoints);
    if (!bucket_check(output, "OutputDataConfig.S3OutputPath", store, fault) ||
        !bucket_check(checkpoints, "CheckpointConfig.S3Uri", store, fault))
        return false;
    json_t *channel;
    size_t i;
    json_array_foreach(json_object_get(request, "InputDataConfig"), i, channel)
    {
        const char *uri = NULL, *name = NULL;
        char where[128];
        json_unpack(channel, "{s?s, s?{s?{s?s}}}", "ChannelName", &name, "DataSource",
                    "S3DataSource", "S3Uri", &uri);
        snprintf(where, sizeof(where), "channel %s", name != NULL ? name : "");
        if (!bucket_check(uri, where, store, fault))
            return false;
    }
    return true;
}

static bool channels_check(const json_t *request, struct job_fault *fault)
{
    const json_t *channels = json_object_get(request, "InputDataConfig");
    for (size_t i = 0; i < json_array_size(channels); i++) {
        const json_t *name = json_object_get(json_array_get(channels, i), "ChannelName");
        for (size_t j = 0; j < i; j++)
            if (json_equal(name, json_object_get(json_array_get(channels, j), "ChannelName")))
                return refuse(fault, "ValidationException",
                              "Channel names must be unique; '%s' is there more than once",
                              json_string_value(name));
    }
    return true;
}

static bool algorithm_check(const json_t *request, struct job_fault *fault)
{
    const json_t *algorithm = json_object_get(request, "AlgorithmSpecification");
    if (json_object_get(algorithm, "AlgorithmName") != NULL)
        return refuse(fault, "ValidationException",
                      "AlgorithmSpecification.AlgorithmName is not supported here: name an image "
                      "by TrainingImage");
    if (json_object_get(algorithm, "TrainingImage") == NULL)
        return refuse(fault, "ValidationException", "AlgorithmSpecification needs a TrainingImage");
    return true;
}

bool service_request_check(const json_t *request, struct s3_store *store,
                           const struct service_room *machine, struct job_fault *fault)
{
    const json_t *algorithm = json_object_get(request, "AlgorithmSpecification");
    return logs_definitions_check(json_object_get(algorithm, "MetricDefinitions"), fault) &&
           algorithm_check(request, fault) && times_check(request, fault) &&
           channels_check(request, fault) && room_check(request, machine, fault) &&
           buckets_check(request, store, fault);
}
