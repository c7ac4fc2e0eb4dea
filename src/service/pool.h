/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h: warm pools: the instances of a job that has ended, kept for the next one like it.
 *
 *   InUse       the job has its instances, and they are kept when it ends, or were kept for it
 *   Available   it has ended; what it took of the machine stays taken for the
 *               KeepAlivePeriodInSeconds, but not beyond SERVICE_POOL_MS_MAX since the first of the
 *               jobs that had these instances one after the other began
 *   Reused      a job like it has taken them over, and has a pool InUse
 *   Terminated  nobody came in time, or whoever might have come was told not to wait
 *
 * What is kept is the place on the machine, with its accelerators, and a folder of each instance,
 * /opt/ml/sagemaker/warmpoolcache, which the next job finds as it was left. Which job takes a pool
 * over is the watcher's to say; each change of a pool is part of the commit that it belongs to.
 */
#ifndef SHOAL_SERVICE_POOL_H
#define SHOAL_SERVICE_POOL_H

#include "job/validate.h"
#include "service/request.h"
#include "service/step.h"

#define SERVICE_POOL_IN_USE    "InUse"
#define SERVICE_POOL_AVAILABLE "Available"
#define SERVICE_POOL_MS_MAX    (INT64_C(28) * 86400 * 1000)

/* KeepAlivePeriodInSeconds of a request; 0 where it has none. */
int64_t service_pool_period(const json_t *request);
/* What has to be the same in a job that takes over another one's pool, as a text to be released by
 * base_free; NULL for a job that has no part in pools: a spot job, or one with instance groups. */
enum shoal_status service_pool_key(const json_t *request, char **out);
/* False with the fault: a job that can't have the pool that it asks for. */
bool service_pool_check(const json_t *request, struct job_fault *fault);
/* Adds WarmPoolStatus to a job's description or summary. */
void service_pool_show(const struct service_row *row, json_t *out);

/* Within the writer's transactions. */

/* The job begins, with the pool that job->pool names, and with one of its own if it wants it. */
enum shoal_status service_pool_begin(struct sql_database *database, struct service_job *job);
/* Until when a job's instances are kept that are to be kept until `wish_ms`. */
int64_t service_pool_until(const struct service_row *row, int64_t wish_ms);
/* The job ends, and its instances are kept or not. */
enum shoal_status service_pool_end(struct sql_database *database, const struct service_end *end);

/* A step: ends the pool of a job that has ended, unless it was given more time. */
enum shoal_status service_pool_expire(struct service *service, struct service_job *job);
/* Removes the files that a pool has kept. */
void service_pool_clear(struct service *service, const struct service_job *job);
/* Mounts the folders that are kept in the instances that `description` has. */
enum shoal_status service_pool_mount(const struct service *service, const struct service_job *job,
                                     const struct service_hosts *hosts, json_t *description);
#endif
