/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h: what the body of CreateTrainingJob asks for, and what of it can't be had here: checks
 * beyond those of the API's model.
 */
#ifndef SHOAL_SERVICE_REQUEST_H
#define SHOAL_SERVICE_REQUEST_H

#include <jansson.h>

#include "job/validate.h"
#include "s3/store.h"
#include "service/queue.h"

/* The instances of a request, in the order of their numbers. */
struct service_host {
    char name[24];            /* algo-1 */
    const char *group, *type; /* "homogeneousCluster" where it has no groups; of the request */
};
#define SERVICE_HOSTS_MAX 100

/* Fills up to SERVICE_HOSTS_MAX of them. SHOAL_ERR_LIMIT: there are more, or none. */
enum shoal_status service_request_hosts(const json_t *request, struct service_host *hosts,
                                        int *count);
/* What all of them take together. */
enum shoal_status service_request_need(const json_t *request, struct service_room *out);
/* False with the fault: what is missing, contradicts itself, or is more than there is. Blocks for
 * looks at the store. */
bool service_request_check(const json_t *request, struct s3_store *store,
                           const struct service_room *machine, struct job_fault *fault);

#endif
