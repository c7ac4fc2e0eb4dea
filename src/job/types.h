/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.h: which part of this machine an instance of a type gets, and what the machine has left.
 *
 * instances.conf, a file of rows (rows.h):
 *
 *   ml.p4d.24xlarge   cores=8 memory=64G accelerators=4
 *   ml.m5.*           cores=1/8 memory=1/8
 *   *                 accelerators=0
 *
 * cores: 1.5, 1/4 (of the machine's), all. memory: 8G, 512M, 1/4, all. accelerators: 2, all. What a
 * row names is counted, and is the instance's limit; a row's missing cores or memory are those of
 * the default.
 *
 * The default, for what no row names and where there is no file: every instance gets an equal
 * share, a quarter of the machine, or one part of as many as the job has instances, and is counted
 * with it, but may use what others leave. Types of the families p, g, trn, inf and dl, and
 * `local_gpu`, share the machine's accelerators equally among the instances of such types in the
 * job. So the default takes every name, on every machine. Names that no row matches in a file are
 * refused.
 *
 * Nothing here is thread-safe but reading the types.
 */
#ifndef SHOAL_JOB_TYPES_H
#define SHOAL_JOB_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "shoal.h"

#define JOB_GROUPS_MAX       5
#define JOB_ACCELERATORS_MAX 64
#define JOB_TYPES_SHARES     4

struct job_share {
    uint64_t core_thousands, memory_bytes;
    int accelerator_count;
    bool cores_limited,
        memory_limited; /* not more than that, where control groups can be written */
};

/* What this process may use: by its affinity, its control groups, and the device files there are.
 * Accelerators are those of one kind, numbered from 0. */
void job_machine_look(struct job_share *out);

/* Instances of a job of one type. */
struct job_group {
    const char *type;
    int count;
};

struct job_need {
    int group_count;
    int counts[JOB_GROUPS_MAX];
    struct job_share each[JOB_GROUPS_MAX]; /* of an instance of the group */
    struct job_share all;
};

struct job_types;

/* path NULL, or of a file that is not there: the default. SHOAL_ERR_FORMAT names file and line. */
enum shoal_status job_types_load(const char *path, struct job_types **out);
/* NULL is allowed. */
void job_types_free(struct job_types *types);

/* What a job's instances need of the machine. SHOAL_ERR_ARGUMENT: a type that no row names;
 * SHOAL_ERR_LIMIT: more than the machine has, which the text says: it can never run. Any thread. */
enum shoal_status job_types_need(const struct job_types *types, const struct job_share *machine,
                                 const struct job_group *groups, int group_count,
                                 struct job_need *out);

/* What is taken now. Set `machine`, all else zero. */
struct job_capacity {
    struct job_share machine;
    uint64_t core_thousands, memory_bytes; /* taken */
    uint64_t accelerators;                 /* a bit for each that is taken */
};

/* Takes what all instances need, or nothing: whether it fits now. *accelerators has a bit for each
 * that the job got. */
bool job_capacity_take(struct job_capacity *capacity, const struct job_need *need,
                       uint64_t *accelerators);
/* For a job that runs already, as after a restart: takes these, whether they fit or not. */
void job_capacity_retake(struct job_capacity *capacity, const struct job_need *need,
                         uint64_t accelerators);
/* Gives back what one of the two took. */
void job_capacity_give(struct job_capacity *capacity, const struct job_need *need,
                       uint64_t accelerators);

/* The group of a job's instance; groups follow each other. */
int job_need_group(const struct job_need *need, int instance);
/* Of the job's accelerators those of one instance. */
uint64_t job_need_accelerators(const struct job_need *need, uint64_t accelerators, int instance);

#endif
