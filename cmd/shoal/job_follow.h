/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_follow.h: what a job prints, of all its instances in the order of time, on stdout; as it is
 * printed, if it is followed, with the job's statuses on stderr.
 */
#ifndef SHOAL_CMD_JOB_FOLLOW_H
#define SHOAL_CMD_JOB_FOLLOW_H

#include "job_client.h"

struct job_follow_options {
    const char *name;
    bool follows;      /* until the job has ended, else what there is */
    bool has_times;    /* in front of each line */
    bool has_statuses; /* on stderr */
    bool wants_json;   /* an object for each line */
    int instance;      /* 0: all */
    int64_t since_ms;  /* since 1970 */
    long tail;         /* the last lines only, then what follows; -1: all */
};
#define JOB_FOLLOW_OPTIONS_INIT \
    {                           \
        .tail = -1              \
    }

/* *status is the job's when this ends: its final one if it was followed. SHOAL_ERR_ABORTED: Ctrl-C,
 * and the job goes on. */
enum shoal_status job_follow(struct job_client *client, const struct job_follow_options *options,
                             char status[JOB_STATUS_BYTES]);
/* For a command that ends with that: what it exits with. */
int job_follow_exit(const char *command, const struct job_follow_options *options,
                    enum shoal_status result, const char *status);

#endif
