/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outcome.h: how a job ended, and why, in the words that its user reads; and the record of it,
 * exit.json in the job's folder, which appears whole or not at all.
 *
 *   {
 *     "outcome": "Failed", "failure_reason": "AlgorithmError: ValueError: bad data, exit code: 1",
 *     "exit_code": 1, "started_ms": 1763841600123, "ended_ms": 1763841660456,
 *     "instances": [{"host": "algo-1", "exit_code": 1},
 *                   {"host": "algo-2", "exit_code": 137, "out_of_memory": true}]
 *   }
 */
#ifndef SHOAL_JOB_OUTCOME_H
#define SHOAL_JOB_OUTCOME_H

#include <jansson.h>
#include <stdint.h>

#include "job/instance.h"

#define JOB_EXIT_FILE        "exit.json"
#define JOB_REASON_CHARS_MAX 1024
/* The public service's words for a program that can't be executed. */
#define JOB_CANNOT_START                                                                 \
    "CannotStartContainerError. Please make sure the container can be run with 'docker " \
    "run <image> train'. "

enum job_outcome {
    JOB_COMPLETED,
    JOB_FAILED,      /* the program failed */
    JOB_NOT_STARTED, /* this machine could not run it; nothing of it ran */
    JOB_STOPPED,     /* on demand */
    JOB_OUT_OF_TIME, /* its time limit passed */
    JOB_INTERRUPTED  /* the machine or the service's owner ended the supervisor */
};

/* "Completed", "Failed", "NotStarted", "Stopped", "MaxRuntimeExceeded", "Interrupted". */
const char *job_outcome_name(enum job_outcome outcome);
/* SHOAL_ERR_FORMAT for another name. */
enum shoal_status job_outcome_parse(const char *name, enum job_outcome *out);

/* The reason of an instance that has ended with a failure: what the program left in
 * /opt/ml/output/failure, else the last lines of its log. At most 1,024 characters. */
void job_failure_text(const struct job_plan *plan, const struct job_instances *instances, int index,
                      char *out, size_t capacity);
/* Copies text as valid UTF-8 of at most `chars_max` characters; bytes that are none become U+FFFD,
 * and control characters but tab and newline are left out. */
void job_clean_text(const char *text, size_t bytes, size_t chars_max, char *out, size_t capacity);

struct job_record {
    enum job_outcome outcome;
    char reason[JOB_REASON_CHARS_MAX * 4 + 1]; /* "" unless it failed */
    int exit_code;                             /* of the instance that failed first */
    int64_t started_ms, ended_ms;              /* since 1970; 0: never */
};

/* Keeps room for the record in the job's folder: the job may fill the disk before it ends. */
void job_record_reserve(const char *folder);
/* Writes exit.json. `instances` may be NULL when there were none. */
enum shoal_status job_record_write(const char *folder, const struct job_record *record,
                                   const struct job_instances *instances);
/* SHOAL_ERR_STATE when there is no record; SHOAL_ERR_FORMAT. */
enum shoal_status job_record_read(const char *folder, struct job_record *out);

#endif
