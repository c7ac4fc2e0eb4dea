/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.c: which service a request on the one port is for. In this order: the prefix of
 * X-Amz-Target, the path of an endpoint's invocations, the service in the credential's scope, a
 * form (a query service; its handler knows the actions of all of them), else S3. A scope that names
 * a service that is not here leads to one that has no operations.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http/request.h"

static const struct {
    const char *name, *signing_name, *target; /* target: prefix of X-Amz-Target */
} services[HTTP_SERVICE_COUNT] = {
    [HTTP_S3] = {"s3", "s3", NULL},
    [HTTP_SAGEMAKER] = {"sagemaker", "sagemaker", "SageMaker."},
    [HTTP_RUNTIME] = {"runtime", "sagemaker", NULL},
    [HTTP_LOGS] = {"logs", "logs", "Logs_20140328."},
    [HTTP_MONITORING] = {"monitoring", "monitoring", "GraniteServiceVersion20100801."},
    [HTTP_MONITORING_QUERY] = {"monitoring", "monitoring", NULL},
    [HTTP_STS] = {"sts", "sts", NULL},
    [HTTP_IAM] = {"iam", "iam", NULL},
    [HTTP_ABSENT] = {"absent", "", NULL},
    [HTTP_ABSENT_QUERY] = {"absent", "", NULL},
};

const char *http_service_name(enum http_service service)
{
    return services[service].name;
}

const char *route_signing_name(enum http_service service)
{
    return services[service].signing_name;
}

bool route_is_absent(enum http_service service)
{
    return service == HTTP_ABSENT || service == HTTP_ABSENT_QUERY;
}

bool route_is_query(enum http_service service)
{
    return service == HTTP_STS || service == HTTP_IAM || service == HTTP_MONITORING_QUERY ||
           service == HTTP_ABSENT_QUERY;
}

static bool starts(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* /endpoints/NAME/invocations, /endpoints/NAME/async-invocations, … */
static bool is_invocation(const char *path)
{
    if (!starts(path, "/endpoints/"))
        return false;
    const char *rest = strchr(path + strlen("/endpoints/"), '/');
    return rest != NULL &&
           (strcmp(rest, "/invocations") == 0 || strcmp(rest, "/async-invocations") == 0 ||
            strcmp(rest, "/invocations-response-stream") == 0);
}

static bool is_form(const struct http_request *request)
{
    const char *type = http_request_header(request, "content-type");
    bool is_root =
        request->path[0] == '\0' || strcmp(request->path, "/") == 0; /* "": not read yet */
    return strcmp(request->method, "POST") == 0 && is_root && type != NULL &&
           strncasecmp(type, "application/x-www-form-urlencoded", 33) == 0;
}

enum http_service route_service(const struct http_request *request)
{
    const char *target = http_request_header(request, "x-amz-target");
    for (int i = 0; i < HTTP_SERVICE_COUNT && target != NULL; i++)
        if (services[i].target != NULL && starts(target, services[i].target))
            return (enum http_service)i;
    const char *scope = request->signature.service;
    bool is_sagemaker = scope[0] == '\0' || strcmp(scope, "sagemaker") == 0;
    if (is_sagemaker && is_invocation(request->path))
        return HTTP_RUNTIME;
    if (strcmp(scope, "monitoring") == 0 && is_form(request))
        return HTTP_MONITORING_QUERY;
    for (int i = 0; scope[0] != '\0' && i < HTTP_SERVICE_COUNT; i++)
        if (strcmp(services[i].signing_name, scope) == 0)
            return (enum http_service)i;
    if (scope[0] != '\0')
        return is_form(request) ? HTTP_ABSENT_QUERY : HTTP_ABSENT;
    return is_form(request) ? HTTP_STS : HTTP_S3;
}

/* What stands behind the dot, or the whole where there is none. */
static void operation_of_target(struct http_request *request, const char *target)
{
    const char *dot = strchr(target, '.');
    snprintf(request->operation, sizeof(request->operation), "%s", dot != NULL ? dot + 1 : target);
}

void route_operation(struct http_request *request)
{
    const char *target = http_request_header(request, "x-amz-target");
    if (target != NULL)
        operation_of_target(request, target);
    else if (request->service == HTTP_RUNTIME)
        snprintf(request->operation, sizeof(request->operation), "InvokeEndpoint");
    else if (request->form.count > 0 && http_pairs_find(&request->form, "Action") != NULL)
        snprintf(request->operation, sizeof(request->operation), "%s",
                 http_pairs_find(&request->form, "Action"));
}
