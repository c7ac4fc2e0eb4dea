/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance_state.h: what the files instance*.c share; nobody else's.
 *
 * The maker and each instance's first process have a socket of datagrams (struct instance_message)
 * between them, and so have the maker and the hall, the process that makes the instances. Its end
 * says that the other side is gone, whichever way it went.
 */
#ifndef SHOAL_JOB_INSTANCE_STATE_H
#define SHOAL_JOB_INSTANCE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "job/forward.h"
#include "job/instance.h"
#include "job/limits.h"

#define INSTANCE_STEP_BYTES 240
#define INSTANCE_MTU_BYTES  9000

enum instance_message_type {
    INSTANCE_READY = 1, /* up: set up; the hall: all instances are there */
    INSTANCE_FAILED,    /* up: a step failed; error_number, step */
    INSTANCE_STARTED,   /* up: the program runs */
    INSTANCE_EXITED,    /* up: value: as from waitpid; the first process ends now */
    INSTANCE_GO,        /* down: start the program; the hall: ids are mapped */
    INSTANCE_SIGNAL,    /* down: value: its number */
    INSTANCE_KILL       /* down: end with everything */
};

struct instance_message {
    int type;
    int value;
    int error_number;
    char step[INSTANCE_STEP_BYTES];
};

struct instance {
    enum job_instance_state state;
    int control_fd;      /* the maker's end; -1 when the instance is gone */
    int first_fd;        /* the first process's end */
    int output_fd;       /* the maker's end of stdout and stderr; -1 at its end */
    int output_write_fd; /* the program's end */
    bool exited;         /* wait_status is known */
    int wait_status;
    bool out_of_memory;
    struct limits_group group;
    struct job_log log;
    struct job_instances *all;
};

struct job_instances {
    const struct job_plan *plan;
    bool user_namespace;
    pid_t hall_pid;  /* -1: none */
    int hall_fd;     /* the maker's end */
    int hall_own_fd; /* the hall's end */
    struct forward forward;
    pid_t internet_pid;         /* of the door to the Internet; not above 0: none */
    struct instance *instances; /* [plan->count] */
};

/* What an instance may use. */
const struct job_limits *instance_limits(const struct job_plan *plan, int index);
/* The mounts of an instance: those of the plan, then its own. */
const struct job_mount *instance_mount(const struct job_plan *plan, int index, int mount);

/* The hall's life; see instance_hall.c. */
void instance_hall_run(struct job_instances *all) __attribute__((noreturn));
/* The life of an instance's first process; `hall_pipe` gives a byte when eth0 is there. */
void instance_first_run(struct job_instances *all, int index, int hall_pipe)
    __attribute__((noreturn));

/* In the first process: gives it the files of the plan, by a new root. False: `failure` says which
 * step failed, and why. */
bool instance_root_build(const struct job_plan *plan, int index, struct instance_message *failure);

/* Makes what stands in an instance's folder before it is made: folders of /opt/ml, /tmp and the
 * like, the hosts file. */
enum shoal_status instance_folder_fill(const struct job_plan *plan, int index);

/* Fills `failure` with errno when `failed`; returns it. */
bool instance_step_failed(struct instance_message *failure, bool failed, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether the message went out. */
bool instance_send(int fd, const struct instance_message *message);
/* Blocks for the next one; false at the end. */
bool instance_receive(int fd, struct instance_message *message);
/* The same with descriptors, at most JOB_DOORS_MAX, which the receiver closes. */
bool instance_send_fds(int fd, const struct instance_message *message, const int *fds, int count);
bool instance_receive_fds(int fd, struct instance_message *message, int fds[JOB_DOORS_MAX],
                          int *count);
/* Closes all descriptors above 2 but these. Sorts them. */
void instance_close_all_but(int *fds, int count);

/* 10.77.0.1 for the hall (index -1), 10.77.1.1 and on for instances, in network byte order. */
uint32_t instance_address(int index);
#define INSTANCE_ADDRESS_PREFIX 16

#endif
