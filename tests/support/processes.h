/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes.h: runs the ranks of a job as real processes of this machine, for tests.
 *
 * Each rank is forked before anything of shoal has started in it, makes its root group and calls
 * the test's function. Ranks may believe they are on different hosts (SHOAL_HOST_ID), and then talk
 * by tcp over loopback. The parent waits with a deadline and ends only its own children.
 */
#ifndef SHOAL_TESTS_PROCESSES_H
#define SHOAL_TESTS_PROCESSES_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "shoal.h"

#define PROCESSES_MAX 64

struct processes {
    int size;
    int hosts;                  /* ranks are spread over so many in blocks; 0 or 1: one host */
    int timeout_ms;             /* of the group; 0: 20 s */
    const char *environment[8]; /* "NAME=value" for all ranks, ended by NULL */
    /* Returns the rank's exit code; 0 is good. */
    int (*main)(shoal_group_t group, void *user);
    /* Instead of main: without a group made; store is "host:port". */
    int (*bare)(int rank, int size, const char *store, void *user);
    void *user;
    int deadline_s; /* of the whole run; 0: 60 */
    /* filled: */
    pid_t pids[PROCESSES_MAX];
    int exit_codes[PROCESSES_MAX]; /* 0 to 255, 256 + signal, or -1 if it was still running */
    char *output[PROCESSES_MAX];   /* what the rank wrote to stderr */
};

/* Starts all ranks. */
void processes_start(struct processes *run);
/* Waits for all, collects, ends what is left at the deadline. True if every rank returned 0. */
bool processes_wait(struct processes *run);
/* Both. Prints the output of ranks that failed. */
bool processes_run(struct processes *run);
void processes_release(struct processes *run);

/* In a rank: complains on stderr and returns 1 if status is not what was expected. */
int expect_status(shoal_group_t group, enum shoal_status status, enum shoal_status expected,
                  const char *what);
/* In a rank: returns 1 with a message unless the last error contains all of the given pieces (ended
 * by NULL). */
int expect_text(shoal_group_t group, const char *const *pieces);

/* In a function of a rank that returns 1 for a fault; `group` is its group. */
#define CHECK(call)                                        \
    do {                                                   \
        if (expect_status(group, (call), SHOAL_OK, #call)) \
            return 1;                                      \
    } while (0)

#define REQUIRE(condition)                                                           \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
            return 1;                                                                \
        }                                                                            \
    } while (0)

#endif
