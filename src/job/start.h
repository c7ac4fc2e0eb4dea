/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.h: what a training job's request, its image and its share of the machine mean for its
 * instances: the part of job.json (description.h) that starts the program.
 *
 * Images that are a Python of this machine start by `shoal job-start` (start_run.h) in each
 * instance, which does what the public training toolkit does. All others start their own program:
 * the request's ContainerEntrypoint and ContainerArguments, else the image's entry point with
 * `train`.
 */
#ifndef SHOAL_JOB_START_H
#define SHOAL_JOB_START_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "job/images.h"
#include "job/types.h"

#define JOB_START_COMMAND     "job-start"
#define JOB_START_URI_BYTES   2600
#define JOB_START_DIRECTORY   "/opt/ml/code"
#define JOB_GROUP_HOMOGENEOUS "homogeneousCluster" /* of jobs without groups */

struct job_start_order { /* all is borrowed */
    const char *name, *arn;
    const json_t *request; /* CreateTrainingJob, valid */
    const struct job_software *software;
    const struct job_need *need;
    uint64_t accelerators; /* what job_capacity_take gave */
    const char *region;
    const char *service; /* "127.0.0.1:7800", whose port it has in the job's network too; NULL: jobs
                            don't reach it */
    const char *directory;    /* the service's, by which the supervisor finds it; NULL as above */
    const char *key, *secret; /* its access key for the job's programs; NULL: none */
    bool is_offline;          /* the job has no Internet, whatever it asks for */
};

/* The groups of a request's ResourceConfig: their number. Names may be NULL. Texts are the
 * request's. */
int job_start_groups(const json_t *request, struct job_group groups[JOB_GROUPS_MAX],
                     const char *names[JOB_GROUPS_MAX]);

/* Puts in a description: program, root, directory, environment, limits, and of each instance (the
 * list "instances" is there, one object each) its environment and accelerators; adds to mounts and
 * doors. All else is the caller's. SHOAL_ERR_ARGUMENT: the request wants what can't be here. */
enum shoal_status job_start_describe(const struct job_start_order *order, json_t *description);

/* The archive of code that has to lie, unpacked, in ml/code of each instance before the start:
 * whether there is one, an s3:// URI. */
bool job_start_code(const json_t *request, char *uri, size_t bytes);

#endif
