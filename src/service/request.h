/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h: what the body of CreateTrainingJob asks for, and what of it can't be had here: checks
 * beyond those of the API's model.
 */
#ifndef SHOAL_SERVICE_REQUEST_H
#define SHOAL_SERVICE_REQUEST_H

#include <jansson.h>

#include "channel/channel.h"
#include "job/instance.h"
#include "job/types.h"
#include "job/validate.h"

/* The instances of a request, in the order of their numbers. */
struct service_hosts {
    int count;
    struct channel_host list[JOB_INSTANCES_MAX]; /* groups and types are the request's */
    char names[JOB_INSTANCES_MAX][JOB_HOST_BYTES];
};
/* SHOAL_ERR_LIMIT: there are too many. SHOAL_ERR_ARGUMENT: there are none. */
enum shoal_status service_request_hosts(const json_t *request, struct service_hosts *out);
struct service;

/* What they take of the machine. SHOAL_ERR_ARGUMENT: a type that is not here; SHOAL_ERR_LIMIT: more
 * than there is. */
enum shoal_status service_request_need(const struct service *service, const json_t *request,
                                       struct job_need *out);
/* False with the fault: what is missing, contradicts itself, or is more than there is. Blocks for
 * looks at the store. */
bool service_request_check(const struct service *service, const json_t *request,
                           struct job_fault *fault);

#endif
