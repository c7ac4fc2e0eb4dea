/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h: what an instance may use: control groups where they can be written, and what a process
 * sets for itself.
 *
 * A limit of control groups that can't be set here is not an error: a plain user often may not, and
 * a machine may have none. docs/job.md says so.
 */
#ifndef SHOAL_JOB_LIMITS_H
#define SHOAL_JOB_LIMITS_H

#include <stdbool.h>

struct job_limits;

/* Controllers of version 1 lie in trees of their own; of version 2 in one. */
#define LIMITS_TREES_MAX    3
#define LIMITS_FOLDER_BYTES 512

struct limits_group { /* zeroed is a start */
    int tree_count;
    char folders[LIMITS_TREES_MAX][LIMITS_FOLDER_BYTES];
    int process_fds[LIMITS_TREES_MAX]; /* of cgroup.procs */
    bool has_memory;
};

/* Lets groups of version 2 below this process's own have limits, where that is delegated to it: its
 * own processes then have to be in a leaf, so it moves there. For the service, at its start, before
 * it has children. Where it can't be done, jobs have no such limits. */
void job_limits_prepare(void);
/* The same for the group in `folder` and these controllers, NULL behind; for tests. Whether groups
 * below it can have all of them. */
bool limits_hand_down(const char *folder, const char *const *controllers);

/* Makes the control groups "shoal-<name>" below this process's own, as far as they can be made. */
void limits_group_create(struct limits_group *group, const struct job_limits *limits,
                         const char *name);
/* Moves the calling process in. Only system calls. */
void limits_group_enter(const struct limits_group *group);
/* Whether a process in it was killed for want of memory. */
bool limits_group_out_of_memory(const struct limits_group *group);
/* Removes it; its processes have ended. */
void limits_group_remove(struct limits_group *group);

/* Of the calling process: resource limits, and only the capabilities that a container has. False
 * with errno. */
bool limits_apply(const struct job_limits *limits);

#endif
