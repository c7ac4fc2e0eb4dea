/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: requests for training jobs beyond what the API's model says of them. */
#include "service/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "job/description.h"
#include "job/instance.h"
#include "job/start.h"
#include "logs/logs.h"
#include "service/data.h"
#include "service/pool.h"
#include "service/service_state.h"

#define WAIT_S_MAX (30 * 86400)

/* ---- instances ---- */

static enum shoal_status hosts_add(struct service_hosts *hosts, const char *group, const char *type,
                                   int how_many)
{
    for (int i = 0; i < how_many; i++, hosts->count++) {
        int at = hosts->count;
        if (at == JOB_INSTANCES_MAX)
            return base_error(SHOAL_ERR_LIMIT, "A job has at most %d instances", JOB_INSTANCES_MAX);
        hosts->list[at] = (struct channel_host){
            .name = job_host_name(at, hosts->names[at]), .group = group, .type = type};
    }
    return SHOAL_OK;
}

enum shoal_status service_request_hosts(const json_t *request, struct service_hosts *out)
{
    struct job_group groups[JOB_GROUPS_MAX];
    const char *names[JOB_GROUPS_MAX];
    int group_count = job_start_groups(request, groups, names);
    out->count = 0;
    for (int i = 0; i < group_count; i++)
        TRY(hosts_add(out, names[i] != NULL ? names[i] : JOB_GROUP_HOMOGENEOUS, groups[i].type,
                      groups[i].count));
    if (out->count == 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "A job has at least one instance: ResourceConfig needs InstanceType and "
                          "InstanceCount, or InstanceGroups");
    return SHOAL_OK;
}

enum shoal_status service_request_need(const struct service *service, const json_t *request,
                                       struct job_need *out)
{
    struct service_hosts hosts;
    struct job_group groups[JOB_GROUPS_MAX];
    const char *names[JOB_GROUPS_MAX];
    TRY(service_request_hosts(request, &hosts));
    return job_types_need(service->types, &service->machine, groups,
                          job_start_groups(request, groups, names), out);
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

static bool room_check(const struct service *service, const json_t *request,
                       struct job_fault *fault)
{
    struct job_need need;
    enum shoal_status status = service_request_need(service, request, &need);
    if (status == SHOAL_OK)
        return true;
    return refuse(fault,
                  status == SHOAL_ERR_LIMIT ? "ResourceLimitExceeded"
                                            : job_fault_type(status, "ValidationException"),
                  "%s", base_error_text());
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

/* Whether the buckets and what the channels name are there. */
static bool data_check(const struct service *service, const json_t *request,
                       struct job_fault *fault)
{
    enum shoal_status status = service_data_check(service, request);
    if (status == SHOAL_OK)
        return true;
    return refuse(fault, job_fault_type(status, "ValidationException"), "%s", base_error_text());
}

static bool algorithm_check(const struct service *service, const json_t *request,
                            struct job_fault *fault)
{
    const json_t *algorithm = json_object_get(request, "AlgorithmSpecification");
    const char *image = json_string_value(json_object_get(algorithm, "TrainingImage"));
    if (json_object_get(algorithm, "AlgorithmName") != NULL)
        return refuse(fault, "ValidationException",
                      "AlgorithmSpecification.AlgorithmName is not supported here: name an image "
                      "by TrainingImage");
    if (image == NULL)
        return refuse(fault, "ValidationException", "AlgorithmSpecification needs a TrainingImage");
    enum shoal_status status = job_images_check(service->images, image);
    if (status == SHOAL_OK)
        return true;
    return refuse(fault, job_fault_type(status, "ValidationException"), "%s", base_error_text());
}

bool service_request_check(const struct service *service, const json_t *request,
                           struct job_fault *fault)
{
    const json_t *algorithm = json_object_get(request, "AlgorithmSpecification");
    return logs_definitions_check(json_object_get(algorithm, "MetricDefinitions"), fault) &&
           service_pool_check(request, fault) && algorithm_check(service, request, fault) &&
           times_check(request, fault) && room_check(service, request, fault) &&
           data_check(service, request, fault);
}
