/* SPDX-License-Identifier: Apache-2.0 */
/*
 * description.h: a job as a file, job.json in the job's folder: what its supervisor is to run.
 *
 *   {
 *     "name": "digits-1",
 *     "program": ["python3", "train.py", "--epochs", "3"],
 *     "directory": "/opt/ml/code",                        where it works; default "/"
 *     "root": "/images/pytorch",                          default: the machine's
 *     "root_access": "own-copy",                          or read-only, the default
 *     "environment": {"TRAINING_JOB_NAME": "digits-1"},
 *     "instances": [                                      1 to 100
 *       {"log": "/dir/logs/digits-1/algo-1", "environment": {"SM_CURRENT_HOST": "algo-1"}},
 *       {"log": "…", "folder": "/dir/jobs/digits-1/algo-2",   default: algo-<i> in the job's folder
 *        "accelerators": [0, 1],                            default: all of the machine
 *        "limits": {"memory_bytes": 4294967296},            before those of the job
 *        "mounts": [{"from": "/shard-2", "to": "/opt/ml/input/data/test"}]}   behind those of the
 * job
 *     ],
 *     "mounts": [{"from": "/data", "to": "/opt/ml/input/data/train", "access": "read-only"}],
 *     "hidden": ["/var/lib/shoal"],
 *     "limits": {"memory_bytes": 8589934592, "core_thousands": 4000, "process_count": 4096,
 *                "open_file_count": 65536, "shared_memory_bytes": 1073741824},
 *     "doors": [{"port": 8080, "to": "127.0.0.1:8080"},   of the job's network, at 10.77.0.1
 *               {"port": 7800, "to": "/var/lib/shoal"},    the service of this directory
 *               {"port": 3128, "to": "internet"}],         a proxy for HTTP
 *     "companions": [["channel-feed", "/dir/jobs/digits-1"]],
 *     "max_runtime_s": 86400, "grace_s": 120, "failure_grace_s": 10
 *   }
 *
 * "access" is read-only (default), writable or own-copy. A companion is a
 * subcommand of this program, with its arguments: see companion.h. Members that are not known are
 * refused.
 */
#ifndef SHOAL_JOB_DESCRIPTION_H
#define SHOAL_JOB_DESCRIPTION_H

#include "job/instance.h"

#define JOB_DESCRIPTION_FILE      "job.json"
#define JOB_DESCRIPTION_BYTES_MAX (4u << 20)
#define JOB_RUNTIME_S_DEFAULT     86400
#define JOB_RUNTIME_S_MAX         (28 * 86400)
#define JOB_GRACE_S_DEFAULT       120
#define JOB_FAILURE_GRACE_S       10
#define JOB_COMPANIONS_MAX        4

struct job_description {
    struct job_plan plan; /* its memory is the description's */
    int64_t max_runtime_s;
    int64_t grace_s;         /* from SIGTERM to SIGKILL after a stop or the time limit */
    int64_t failure_grace_s; /* the same for the other instances when one has failed */
    char *const *companions[JOB_COMPANIONS_MAX];
    int companion_count;
};

/* Reads job.json of a job's folder (an absolute path). SHOAL_ERR_FORMAT names the place. */
enum shoal_status job_description_read(const char *folder, struct job_description **out);
/* NULL is allowed. */
void job_description_free(struct job_description *description);

#endif
