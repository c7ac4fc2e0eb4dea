/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h: the thread that leads jobs: it starts those that fit, waits for their supervisors and
 * their limits, and gives each step that takes time to a thread of its own.
 */
#ifndef SHOAL_SERVICE_WATCH_H
#define SHOAL_SERVICE_WATCH_H

#include "service/job.h"

struct service;
struct service_watch;

/* Takes messages from now on. */
enum shoal_status service_watch_create(struct service *service, struct service_watch **out);
/* Takes over all jobs that have not ended, and goes to work. */
enum shoal_status service_watch_start(struct service_watch *watch);
/* Lets the steps under way end. False: some have not within 10 s; then nothing is freed, and the
 * process can only end. NULL is allowed. */
bool service_watch_free(struct service_watch *watch);

/* From any thread; they don't block. */

/* Takes the job. */
void service_watch_add(struct service_watch *watch, struct service_job *job);
/* Its row says why. */
void service_watch_stop_job(struct service_watch *watch, int64_t id);
void service_watch_priority(struct service_watch *watch, int64_t id, int64_t priority);
/* Its instances, which are kept, are kept until then. */
void service_watch_keep(struct service_watch *watch, int64_t id, int64_t until_ms);
/* Something is there to be removed that belongs to no job any more. */
void service_watch_clean(struct service_watch *watch);

#endif
