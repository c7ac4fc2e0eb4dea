/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.h: what takes a job from one phase to the next. In a thread of its own; blocks.
 *
 * Every step first commits what it is about to do, and can be repeated: whatever kills the service,
 * the next one goes on from the phase in the database.
 */
#ifndef SHOAL_SERVICE_STEP_H
#define SHOAL_SERVICE_STEP_H

#include "service/job.h"
#include "service/service_state.h"

/* Leads the job until it waits for its supervisor (RUNNING, with supervisor_fd), for the queue
 * (WAITING), or has ended. A failure leaves it as it is, to be tried again. */
enum shoal_status service_step(struct service *service, struct service_job *job);

/* How an attempt ended: as a secondary status, and what goes with it. */
struct service_end {
    struct service_job *job;
    enum service_secondary which;
    char reason[SERVICE_REASON_BYTES]; /* of FAILED, else "" */
    int64_t ended_ms, trained_ms;      /* since 1970; how long it trained */
    json_t *metrics;                   /* FinalMetricDataList, borrowed; NULL: none */
};
/* The job's end, or that it waits for another attempt; its folder goes. */
enum shoal_status service_step_end(struct service *service, struct service_job *job,
                                   const struct service_end *end);
enum shoal_status service_step_again(struct service *service, struct service_job *job,
                                     const struct service_end *end);

/* Keeps room on the disk for such commits, where there is some. */
void service_reserve_take(const struct service *service);
/* Commits a change of the database; waits for it. On a full disk it takes the room that is kept. */
typedef enum shoal_status (*service_change)(struct sql_database *database, void *user);
enum shoal_status service_commit(struct service *service, service_change change, void *user);

/* The job's folder, which each attempt has for itself. */
void service_job_folder(const struct service *service, const struct service_job *job,
                        char out[SERVICE_PATH_BYTES]);

#endif
