/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h: starts the ranks of a job on hosts, watches them, and ends them.
 *
 * One call, one job. On every host, this one included, an agent (agent.h) stands between launcher
 * and ranks; the launcher serves the store where the ranks meet. The whole story: docs/launch.md.
 */
#ifndef SHOAL_LAUNCH_LAUNCH_H
#define SHOAL_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/hosts.h"
#include "launch/lines.h"
#include "launch/process.h"
#include "launch/variables.h"

#define LAUNCH_AGENT_DEFAULT         "ssh {host}"
#define LAUNCH_GRACE_MS_DEFAULT      5000
#define LAUNCH_START_TIMEOUT_DEFAULT 60000

/* When each host runs a launcher of its own for its own ranks, as on SageMaker: where this one
 * stands among them. No agent command is needed then; the first launcher serves the store. */
struct launch_part {
    int index, count;       /* of the launcher */
    const char *first_host; /* by which the others reach the first */
    const char *host;       /* own name, for messages */
    const char *secret;     /* any text, the same in all launchers */
};

struct launch_options {         /* all is borrowed; zeroed is a start, but for the three times */
    char *const *argv;          /* the program and its arguments, NULL behind */
    int rank_count;             /* 0: one for each slot; with `part`: on this host */
    struct launch_hosts *hosts; /* placed by launch_run; count 0: this host */
    int server_count;           /* not with `part` */
    struct launch_hosts *server_hosts; /* likewise; count 0: the hosts of ranks */
    const char *agent;        /* template of the agent's command; NULL: LAUNCH_AGENT_DEFAULT */
    const char *remote_shoal; /* this program's path on other hosts; NULL: as here */
    const char *directory;    /* where the ranks work; NULL: here */
    const char *interface;    /* by which hosts reach each other; NULL: by what answers */
    const struct launch_variables *variables; /* for the ranks; they win over all others */
    int store_port, master_port;              /* 0: any free one */
    int64_t grace_ms;                         /* from SIGTERM to SIGKILL */
    int64_t timeout_ms;                       /* of the whole job; 0: none */
    int64_t start_timeout_ms;                 /* until all ranks run */
    enum launch_lines_form form;
    bool quiet;                     /* of the launcher's own lines only the last, of a failure */
    const struct launch_part *part; /* NULL: this launcher starts all ranks */
};

/* Runs the job to its end, on the calling thread, with its signals blocked and passed on meanwhile.
 * SHOAL_OK: *exit_code is 0, or of the first rank that failed (128 + signal), or a LAUNCH_EXIT_*;
 * what happened has been said on stderr. Otherwise nothing was started: SHOAL_ERR_OPTION and others
 * with a text. Needs a main program whose first argument "run-agent" calls launch_agent_main. */
enum shoal_status launch_run(const struct launch_options *options, int *exit_code);

#endif
