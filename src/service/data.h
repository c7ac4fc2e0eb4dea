/* SPDX-License-Identifier: Apache-2.0 */
/* data.h: a job's request and instances, as the room channel wants them. */
#ifndef SHOAL_SERVICE_DATA_H
#define SHOAL_SERVICE_DATA_H

#include "channel/channel.h"
#include "service/job.h"
#include "service/request.h"
#include "service/service_state.h"

struct service_data {
    struct channel_job channel; /* all of it is in this struct, or the service's */
    struct service_hosts hosts;
    struct service_row row;
    json_t *request;
    char folder[SERVICE_PATH_BYTES], file_systems[SERVICE_PATH_BYTES], buckets[SERVICE_PATH_BYTES];
    struct channel_checkpoints *checkpoints; /* NULL: none are followed */
};

/* Reads what the database has of the job. */
enum shoal_status service_data_load(struct service *service, const struct service_job *job,
                                    struct service_data **out);
/* For a request that has no job yet. Borrows the request. */
enum shoal_status service_data_check(const struct service *service, const json_t *request);
/* Follows the job's checkpoints from now on, if it has a bucket for them. */
enum shoal_status service_data_follow(struct service_data *data);
/* Stops following them, and frees. NULL is allowed. */
void service_data_free(struct service_data *data, bool job_has_ended);

#endif
