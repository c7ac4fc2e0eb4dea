/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: a training job that has not ended, as the watcher has it in memory. */
#ifndef SHOAL_SERVICE_JOB_H
#define SHOAL_SERVICE_JOB_H

#include <jansson.h>
#include <stdatomic.h>

#include "service/queue.h"
#include "service/record.h"

struct service_job {
    struct service_job *next;
    int64_t id, priority;
    char name[SERVICE_NAME_BYTES];
    enum service_phase phase;
    int attempt;
    struct service_room need;
    bool is_spot;
    int retries_max;
    int64_t runtime_s;                       /* at most, of all attempts */
    int64_t wait_until_ms, pending_until_ms; /* since 1970; 0: no limit */
    atomic_bool stop_wanted; /* by its user, whose wish is in its row, or because of a limit */
    bool is_working, is_admitted, stop_sent;
    bool is_passed_over, is_pending; /* the queue has others start; its row says so */
    int64_t not_before_ms;           /* a step that failed is tried again then */
    int supervisor_fd;               /* -1: none */
};

/* Of a request; need and limits come from it. */
enum shoal_status service_job_create(const struct service_row *row, const json_t *request,
                                     struct service_job **out);
/* The limit that has passed at `now_ms`, as the secondary status that it leads to; FAILED: none. */
enum service_secondary service_job_limit(const struct service_job *job, int64_t now_ms);
/* NULL is allowed. */
void service_job_free(struct service_job *job);

#endif
