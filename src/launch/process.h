/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h: programs started with pipes, and the end of whole trees of them.
 *
 * A program is the leader of a process group of its own, so that a terminal's signals reach it only
 * when they are passed on, and it gets a signal when the thread that started it ends. In a session
 * of its own it has no terminal at all: what it would ask there, it cannot ask.
 */
#ifndef SHOAL_LAUNCH_PROCESS_H
#define SHOAL_LAUNCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "shoal.h"

#define LAUNCH_EXIT_TIMEOUT        124 /* the job's own time limit passed */
#define LAUNCH_EXIT_LAUNCH         125 /* the ranks could not be started or watched */
#define LAUNCH_EXIT_NOT_EXECUTABLE 126
#define LAUNCH_EXIT_NOT_FOUND      127

struct launch_program {
    const char *path; /* no search in PATH unless search_path */
    bool search_path;
    char *const *argv;
    char *const *envp;     /* NULL: this process's */
    const char *directory; /* NULL: this one */
    bool input;            /* stdin is a pipe, else /dev/null */
    bool session;          /* of its own */
    int death_signal;      /* what it gets when its starter ends */
};

struct launch_process {
    pid_t pid;
    int in, out, err; /* our ends, non-blocking, close-on-exec; in is -1 without input */
};

/* SHOAL_ERR_SYSTEM when it can't be executed; *exec_errno then says why, 0 when it was something
 * else. */
enum shoal_status launch_process_start(const struct launch_program *program,
                                       struct launch_process *out, int *exec_errno);
void launch_process_close(struct launch_process *process); /* the three ends; -1 allowed */
void launch_fd_close(int *fd);                             /* sets it to -1; -1 allowed */

#define LAUNCH_PATH_BYTES 4096
/* Where this program lies, also when another file has taken its place since it was started.
 * SHOAL_ERR_SYSTEM. */
enum shoal_status launch_own_path(char path[LAUNCH_PATH_BYTES]);

/* Sends the signal to every descendant of `root`; their number. Without /proc: 0. */
int launch_descendants_kill(pid_t root, int signal_number);

/* The exit code that a shell would give: 128 + signal. */
int launch_exit_code(int wait_status);
/* "exited with code 3", "was killed by SIGSEGV (core dumped)". */
void launch_exit_describe(int wait_status, char *out, size_t capacity);
/* "SIGTERM"; "signal 99" for one without a name. Static or thread's memory. */
const char *launch_signal_name(int signal_number);

#endif
