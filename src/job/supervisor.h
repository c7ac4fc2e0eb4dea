/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervisor.h: a process per job that outlives the service.
 *
 * It reads job.json in the job's folder, makes the instances, writes their logs, waits for them
 * within the job's time limit, and leaves exit.json. Meanwhile it answers on the socket "socket" in
 * that folder: one line of JSON for one line.
 *
 *   {"command": "status"}                        -> {"state": "running", "elapsed_s": 12,
 *                                                    "instances": ["running", "ended"]}
 *   {"command": "stop"}                          SIGTERM, the grace, SIGKILL
 *   {"command": "kill"}                          SIGKILL
 *   {"command": "limit", "max_runtime_s": 3600}  another time limit, from the start on
 *
 * Every answer has the same form; {"error": "…"} says what was wrong with the command. A client
 * that keeps its connection sees its end when the job has ended and the record is written.
 *
 * That a supervisor lives is told by its lock on the file "lock", which ends with the process.
 */
#ifndef SHOAL_JOB_SUPERVISOR_H
#define SHOAL_JOB_SUPERVISOR_H

#include <jansson.h>

#include "shoal.h"

#define JOB_SUPERVISOR_COMMAND "job-supervisor"
#define JOB_SUPERVISOR_LOCK    "lock"

enum job_presence {
    JOB_RUNS,  /* a supervisor is there */
    JOB_ENDED, /* it has left a record */
    JOB_GONE   /* neither: never started, or the machine or somebody killed it */
};

/* The supervisor's life, in a process of its own, with one thread. Writes "ready\n" on ready_fd
 * (-1: none) when it has taken charge, or a line that says why it can't. SHOAL_OK: there is a
 * record. */
enum shoal_status job_supervisor_run(const char *folder, int ready_fd);

/* Starts a supervisor, by this program's subcommand "job-supervisor", as nobody's child. Returns
 * when it has taken charge of the job; how the job goes is told by its record. Any thread.
 * SHOAL_ERR_STATE: one is there already, or the job has ended. */
enum shoal_status job_supervisor_start(const char *folder);

/* Any thread. SHOAL_ERR_SYSTEM if the folder can't be looked at. */
enum shoal_status job_supervisor_find(const char *folder, enum job_presence *out);

/* Keeps supervisors away from a job's folder, which is there, until fd is closed: one that a killed
 * service had just begun to start ends by itself. Whoever changes the folder meanwhile leaves its
 * file JOB_SUPERVISOR_LOCK. SHOAL_ERR_STATE: a supervisor is there. Any thread. */
enum shoal_status job_supervisor_hold(const char *folder, int *fd);

/* A connection to a job's supervisor: a descriptor that becomes readable, with nothing to read,
 * when the job has ended. SHOAL_ERR_STATE when none is there. The caller closes it. */
enum shoal_status job_supervisor_connect(const char *folder, int *fd);
/* One command and its answer, within 5 s. The caller releases the answer by json_decref.
 * SHOAL_ERR_STATE with the answer's text if the command was refused. */
enum shoal_status job_supervisor_ask(int fd, const char *command, json_t **answer);

#endif
