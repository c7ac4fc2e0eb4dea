/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_client.h: the job service as `submit`, `jobs`, `describe`, `logs` and `stop` reach it: by its
 * public API, whichever way its address is found (http/endpoint.h).
 */
#ifndef SHOAL_CMD_JOB_CLIENT_H
#define SHOAL_CMD_JOB_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/client.h"
#include "s3/client.h"
#include "shoal.h"

/* What these commands exit with, beside 0, 1 and EXIT_USAGE. */
#define EXIT_JOB_STOPPED 3
#define EXIT_INTERRUPTED 130

#define JOB_STATUS_BYTES 32

/* Two rows of each command's table of arguments. */
#define JOB_CLIENT_DIR_ROW                           \
    {                                                \
        "dir", 'd', "DIR", "the service's directory" \
    }
#define JOB_CLIENT_ENDPOINT_ROW                                                    \
    {                                                                              \
        "endpoint", 0, "URL",                                                      \
            "the service's address (default: AWS_ENDPOINT_URL, else the service\n" \
            "that runs in the default directory)"                                  \
    }

struct job_client { /* zeroed to start */
    struct http_endpoint_wish wish;
    struct http_client *jobs, *logs; /* made when they are first used */
};

void job_client_release(struct job_client *client);
/* Calls after it find the service anew. */
void job_client_reset(struct job_client *client);
/* Whether a call failed because the service could not be reached. */
bool job_client_is_lost(enum shoal_status status);
/* An operation: "SageMaker.DescribeTrainingJob", "Logs_20140328.GetLogEvents". Takes the request.
 * *reply (may be NULL) is the caller's. SHOAL_ERR_STATE for a resource that is not there, with the
 * service's text. */
enum shoal_status job_client_call(struct job_client *client, const char *target, json_t *request,
                                  json_t **reply);
/* DescribeTrainingJob. */
enum shoal_status job_client_describe(struct job_client *client, const char *name, json_t **reply);

/* A client of the same service's buckets, or of those that the environment names; the caller frees
 * it. Of `options` (may be NULL) the endpoint is set here. */
enum shoal_status job_client_store(const struct job_client *client,
                                   const struct s3_client_options *options, struct s3_client **out);

/* A text of a reply, "" if it is not there. */
const char *job_text(const json_t *reply, const char *name);
/* "2026-11-22 23:05:01", local time; "" for 0. A static text of the thread, four at a time. */
const char *job_time_text(double epoch_s);
/* "1 h 02 min", "3 min 07 s", "0.4 s"; the same. */
const char *job_duration_text(double seconds);
bool job_has_ended(const char *status);
/* What to exit with after a job that has this status. */
int job_exit(const char *status);

#endif
