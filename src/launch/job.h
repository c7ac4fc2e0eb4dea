/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h: one job as the launcher sees it. Internal to launch: job.c holds its life, start.c what
 * happens until the ranks run, report.c what is said about them.
 *
 * Invariants: (1) a failure is set once and then only replaced by a better cause while it settles;
 * (2) when `ending`, every connection has had END or is told as soon as it can hear; (3) the job is
 * over when the processes of all connections have ended, and the other launchers, if there are.
 */
#ifndef SHOAL_LAUNCH_JOB_H
#define SHOAL_LAUNCH_JOB_H

#include "boot/store.h"
#include "launch/connection.h"
#include "launch/launch.h"
#include "launch/peers.h"

#define JOB_TEXT_BYTES 2048

struct job_rank {
    struct launch_connection *connection;
    pid_t pid; /* 0: not started */
    bool exited;
    struct launch_stream out, err;
};

struct job_failure {
    bool set;
    bool final; /* no better cause comes: not a rank's own exit with a code */
    int exit_code;
    char text[JOB_TEXT_BYTES];
};

struct job {
    const struct launch_options *options;
    struct launch_loop loop;
    int signal_fd;
    struct launch_sink sinks[2];
    struct launch_sink *out, *err; /* the same when stdout and stderr are, and with JSON */
    struct launch_sink *last;      /* of the last word in plain text; NULL: none beside JSON */

    struct launch_connection *connections;
    int connection_count;
    enum launch_phase phase; /* which all connections have reached */
    struct job_rank *ranks;  /* of this launcher, then its servers; [0] is first_rank */
    int rank_count, server_count, first_rank, size;
    int64_t start_deadline_ns, deadline_ns;

    struct boot_store_server *server;  /* NULL with a part that isn't the first */
    char secret[1024];                 /* as text, for the ranks */
    unsigned char key[32];             /* what the store makes of it */
    struct launch_addresses addresses; /* of this host, where others find the store */
    char master[LAUNCH_ADDRESS_BYTES + 256];
    int master_port;

    struct job_failure failure;
    int64_t settle_ns; /* when the failure is final */
    bool ending;
    int interrupts; /* signals that asked to end */
    int passed_signal;

    struct launch_peers *peers;  /* the other launchers; NULL without a part */
    bool peers_ready;            /* the first one's store answers, or there are none */
    bool peers_told, peers_over; /* that we have ended; that they have */

    bool input_open; /* our stdin, as far as rank 0 wants it */
    size_t input_under_way;
};

/* start.c: opens the connections; then called whenever one has reached a phase. */
enum shoal_status launch_job_start(struct job *job);
enum shoal_status launch_job_start_advance(struct job *job);
enum shoal_status launch_job_survey_read(struct launch_connection *connection,
                                         struct launch_message *message);
enum shoal_status launch_job_probe_read(struct job *job, struct launch_connection *connection,
                                        struct launch_message *message);

/* report.c: lines and events, and the words for failures. A note says nothing when the job
 * is quiet. */
enum shoal_status launch_job_note(struct job *job, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
enum shoal_status launch_job_report_start(struct job *job, int rank);
enum shoal_status launch_job_report_exit(struct job *job, int rank, int wait_status);
/* The last word, and the exit code. */
enum shoal_status launch_job_report_end(struct job *job, int exit_code);
void launch_job_describe_exit(const struct job *job, int rank, int wait_status, const char *cause,
                              char *out, size_t capacity);
void launch_job_describe_lost(const struct launch_connection *connection, char *out,
                              size_t capacity);
/* Names of the hosts whose agents have not reached `phase`. */
void launch_job_describe_late(const struct job *job, enum launch_phase phase, char *out,
                              size_t capacity);

/* job.c: the first failure counts; a better cause may replace it while it settles. */
void launch_job_fail(struct job *job, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
