/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_run.h: `shoal job-start`: the program of instances whose image is a Python of this machine.
 * It does what the public framework images do with a job. The whole story: docs/job-start.md.
 */
#ifndef SHOAL_JOB_START_RUN_H
#define SHOAL_JOB_START_RUN_H

#include "job/start_python.h"

struct job_start_options {
    struct start_python python;
    char *const *words; /* run these, NULL behind; NULL: train */
};

/* In an instance, once, in a process with one thread. Returns the exit code of the instance, when
 * what failed has been said on stderr and in /opt/ml/output/failure. */
int job_start_run(const struct job_start_options *options);
/* In a rank's process: gives it variables that other launchers give, and becomes words. Returns an
 * exit code when it can't. */
int job_start_rank(char *const *words);

#endif
