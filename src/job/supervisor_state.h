/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor_state.h: what the files supervisor*.c share; nobody else's. */
#ifndef SHOAL_JOB_SUPERVISOR_STATE_H
#define SHOAL_JOB_SUPERVISOR_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "job/companion.h"
#include "job/description.h"
#include "job/outcome.h"
#include "launch/loop.h"

#define SUPERVISOR_CLIENTS_MAX 16
#define SUPERVISOR_LINE_BYTES  4096
#define SUPERVISOR_LOCK_FILE   JOB_SUPERVISOR_LOCK
#define SUPERVISOR_SOCKET_FILE "socket"
#define SUPERVISOR_LOG_FILE    "supervisor.log"
#define SUPERVISOR_READY       "ready\n"

struct supervisor;

struct supervisor_client {
    struct supervisor *supervisor;
    int fd; /* -1: free */
    char line[SUPERVISOR_LINE_BYTES];
    size_t line_bytes;
};

/*
 * STARTING -> RUNNING -> ENDING -> ENDED. In ENDING `outcome` says why, all instances have got
 * SIGTERM, and at kill_ns they get SIGKILL. All instances may end in RUNNING: then the job is
 * complete.
 */
enum supervisor_phase {
    SUPERVISOR_STARTING,
    SUPERVISOR_RUNNING,
    SUPERVISOR_ENDING,
    SUPERVISOR_ENDED
};

struct supervisor {
    const char *folder;
    struct job_description *description;
    struct job_instances *instances;
    enum supervisor_phase phase;
    struct job_record record;
    int first_failed; /* instance; -1: none */
    int64_t started_ns, limit_ns, kill_ns;
    int lock_fd, listen_fd, signal_fd;
    struct supervisor_client clients[SUPERVISOR_CLIENTS_MAX];
    struct companion companions[JOB_COMPANIONS_MAX];
};

/* supervisor_control.c: the socket. The folder is this process's working directory. */
enum shoal_status supervisor_listen(struct supervisor *supervisor);
enum shoal_status supervisor_watch_clients(struct supervisor *supervisor, struct launch_loop *loop);
void supervisor_close_clients(struct supervisor *supervisor);

/* supervisor.c, for commands. */
void supervisor_end(struct supervisor *supervisor, enum job_outcome outcome, int64_t grace_s);
void supervisor_kill(struct supervisor *supervisor);
void supervisor_set_limit(struct supervisor *supervisor, int64_t max_runtime_s);

#endif
