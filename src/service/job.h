/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: a training job that has not ended, as the watcher has it in memory. */
#ifndef SHOAL_SERVICE_JOB_H
#define SHOAL_SERVICE_JOB_H

#include <jansson.h>
#include <stdatomic.h>

#include "channel/channel.h"
#include "job/types.h"
#include "service/record.h"

struct service;
struct service_data;

struct service_job {
    struct service_job *next;
    int64_t id, priority;
    char name[SERVICE_NAME_BYTES];
    enum service_phase phase;
    int attempt;
    struct job_need need;
    uint64_t accelerators; /* that it got, a bit for each */
    bool has_need;         /* else it can't be had any more: the tables have changed */
    bool is_spot;
    int retries_max;
    int64_t runtime_s;                       /* at most, of all attempts */
    int64_t wait_until_ms, pending_until_ms; /* since 1970; 0: no limit */
    atomic_bool stop_wanted; /* by its user, whose wish is in its row, or because of a limit */
    bool is_working, is_admitted, stop_sent;
    bool is_passed_over, is_pending; /* the queue has others start; its row says so */
    int64_t not_before_ms;           /* a step that failed is tried again then */
    int supervisor_fd;               /* -1: none */
    /* Steps look at these: the first ends preparing, when the job is stopped or the service ends;
     * the second ends collecting, when the service ends. */
    struct channel_control preparing, collecting;
    /* Warm pools. */
    char *pool_key;             /* what a job must have in common with it; NULL: no part in them */
    int64_t pool_cache;         /* whose folder its instances have, or had; 0: none */
    struct service_job *pool;   /* which has ended, and whose instances this one takes over; */
    bool pool_is_taken;         /* that is committed */
    atomic_llong pool_until_ms; /* when its own is given up, once it has ended; 0: it has none */
    bool is_outbid;             /* its pool goes at once: a more important job needs the room */
    struct service_data *data;  /* while it runs and its checkpoints are followed; NULL: not */
    int collect_failures;
};

/* Of a request; need and limits come from it. */
enum shoal_status service_job_create(const struct service *service, const struct service_row *row,
                                     const json_t *request, struct service_job **out);
/* The limit that has passed at `now_ms`, as the secondary status that it leads to; FAILED: none. */
enum service_secondary service_job_limit(const struct service_job *job, int64_t now_ms);
/* From any thread: it is to end. */
void service_job_stop(struct service_job *job);
/* NULL is allowed. */
void service_job_free(struct service_job *job);

#endif
