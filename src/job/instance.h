/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance.h: the instances of a job on this machine: sets of Linux namespaces.
 *
 * Each instance has its own processes, files, network, host name and IPC, and looks like a machine
 * of its own: host name algo-1, algo-2, ..., an address on eth0, an own /opt/ml, /tmp, /dev/shm.
 * All instances of a job share a network that has no other members. They live as long as the
 * process that made them, whichever way it ends, and leave nothing behind.
 *
 * Root makes them as they are; other users in a user namespace, where the system allows it. The
 * whole story, with what an instance sees: docs/job.md.
 *
 * Not thread-safe, and the calling process may have one thread only (it is cloned and goes on in C
 * code in the copies). The caller's loop gives the events: job_instances_watch before each turn.
 */
#ifndef SHOAL_JOB_INSTANCE_H
#define SHOAL_JOB_INSTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "job/log.h"
#include "launch/loop.h"
#include "shoal.h"

#define JOB_INSTANCES_MAX 100
#define JOB_MOUNTS_MAX    256
#define JOB_HOST_BYTES    24
#define JOB_DOORS_MAX     8

enum job_access {
    JOB_READ_ONLY,
    JOB_WRITABLE,
    JOB_OWN_COPY /* writable, and what is written lies in the instance's own folder (overlayfs);
                    read-only where that can't be had */
};

/* A file or folder of the machine that instances have. */
struct job_mount {
    const char *from, *to; /* absolute paths, on the machine and in the instance */
    enum job_access access;
};

struct job_limits {          /* 0: none */
    uint64_t memory_bytes;   /* of an instance; cgroup */
    uint64_t core_thousands; /* 1500: one core and a half; cgroup */
    uint64_t process_count;  /* cgroup */
    uint64_t open_file_count;
    uint64_t shared_memory_bytes; /* size of /dev/shm; none: half of the machine's memory */
};

/* What differs between the instances of a job. */
struct job_instance_plan {
    const char *folder;   /* on the machine, exists: `ml` in it becomes /opt/ml, `own` holds /tmp,
                             /root and the like */
    const char *log_path; /* stdout and stderr; appended */
    char *const *environment;        /* exactly this; NULL behind */
    const struct job_limits *limits; /* NULL: those of the plan */
    uint64_t accelerators_hidden;    /* a bit for each that it doesn't get; see devices.h */
    const struct job_mount *mounts;  /* its own, after those of the plan */
    int mount_count;
};

/* A port of the job's network, at 10.77.0.1 ("host" in /etc/hosts), from which connections lead to
 * an address that the maker reaches. */
struct job_door {
    int port;
    const char *to; /* an address, or a service's directory (forward.h); or JOB_INTERNET: a proxy
                       (internet.h) */
};
#define JOB_INTERNET "internet"

/* All is borrowed until job_instances_free. Zeroed is a start. */
struct job_plan {
    const char *name; /* of the job: letters, digits and hyphens */
    int count;
    const struct job_instance_plan *instances; /* [count] */
    char *const *program;                      /* and its arguments; NULL behind; looked up in the
                                                  PATH of the environment */
    const char *directory;                     /* where it works; NULL: "/" */
    const char *root;                          /* NULL: the machine's */
    bool root_copied; /* each instance has an own copy of `root`, which it may change, with what
                         `root` has in /tmp, /run, /root and the like; read-only all the same, and
                         without that, where overlayfs can't have it */
    const struct job_mount *mounts; /* in this order */
    int mount_count;
    const char *const *hidden; /* of the machine, that no instance may see; NULL behind, or NULL */
    struct job_limits limits;
    const struct job_door *doors;
    int door_count;
};

enum job_instance_state {
    JOB_INSTANCE_PREPARED,
    JOB_INSTANCE_RUNNING,
    JOB_INSTANCE_ENDED /* with all that it had started */
};

struct job_instances;

/* The host name of an instance: algo-1 for 0. */
const char *job_host_name(int index, char buffer[JOB_HOST_BYTES]);

/* Makes all instances ready to start, or none: namespaces, files, network, limits. Nothing of the
 * job runs yet. Blocks for some tens of milliseconds. SHOAL_ERR_SYSTEM names the step that failed,
 * and what is missing on this machine; SHOAL_ERR_ARGUMENT a fault of the plan. */
enum shoal_status job_instances_create(const struct job_plan *plan, struct job_instances **out);

/* Starts the program in all of them. SHOAL_ERR_SYSTEM when it can't be executed in one: the text
 * says why, and what had started is ended by job_instances_free. *exec_errno is then the cause. */
enum shoal_status job_instances_start(struct job_instances *instances, int *exec_errno);

/* Adds the instances' descriptors for the next turn of the loop, in which output goes to the logs
 * and states change. */
enum shoal_status job_instances_watch(struct job_instances *instances, struct launch_loop *loop);

int job_instances_count(const struct job_instances *instances);
enum job_instance_state job_instances_state(const struct job_instances *instances, int index);
/* How its program ended, as from waitpid; only when ENDED. 9 when the instance was killed. */
int job_instances_wait_status(const struct job_instances *instances, int index);
/* Whether the kernel killed a process of the instance because its memory limit was reached. */
bool job_instances_out_of_memory(const struct job_instances *instances, int index);
/* What its log holds last. */
const struct job_log *job_instances_log(const struct job_instances *instances, int index);

/* Sends a signal to the program of a running instance, not to what it has started. */
void job_instances_signal(struct job_instances *instances, int index, int signal_number);
/* Ends an instance with everything in it. Its state changes in a later turn. */
void job_instances_kill(struct job_instances *instances, int index);

/* Kills what is left, waits until it is gone, removes the limits' groups, closes the logs: all are
 * ENDED. Blocks until the kernel has ended all processes. */
void job_instances_end(struct job_instances *instances);
/* The same, and lets go. NULL is allowed. */
void job_instances_free(struct job_instances *instances);

#endif
