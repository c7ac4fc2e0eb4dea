/* SPDX-License-Identifier: Apache-2.0 */
/* agent_ranks.h: the ranks that one agent has started. */
#ifndef SHOAL_LAUNCH_AGENT_RANKS_H
#define SHOAL_LAUNCH_AGENT_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/bytes.h"
#include "launch/loop.h"
#include "launch/process.h"
#include "launch/variables.h"

struct agent_rank {
    struct launch_process process;
    int rank; /* of a server: behind all ranks */
    bool running;
    bool reaped; /* wait_status is there and is to be reported */
    int wait_status;
    struct launch_bytes *reports; /* the agent's */
};

struct agent_ranks { /* zeroed to start; `reports` set */
    struct agent_rank *ranks;
    int size;                     /* all ranks of the job */
    int count, running;           /* servers too */
    bool childless;               /* no child is left, so no descendant either */
    struct launch_bytes *reports; /* messages to the launcher go here; borrowed */
    struct launch_bytes input;    /* what waits for rank 0's stdin */
    bool input_ended;
    uint64_t kernel_kills; /* of the kernel's out-of-memory killer before the start */
};

struct agent_start {
    int size, first_rank, rank_count;
    int first_server, server_count;
    bool input; /* rank 0, if it is here, gets a stdin */
    const char *path, *directory;
    char *const *argv;
    struct launch_variables *variables; /* all but what differs by rank; changed */
};

/* Starts all ranks and reports them. When one can't be executed: SHOAL_ERR_SYSTEM and *exit_code;
 * those that run already are the caller's to end. */
enum shoal_status launch_agent_ranks_start(struct agent_ranks *ranks,
                                           const struct agent_start *start, int *exit_code);
/* Adds the ranks' pipes to the turn; outputs only with read_output. */
enum shoal_status launch_agent_ranks_watch(struct agent_ranks *ranks, struct launch_loop *loop,
                                           bool read_output);
/* Gathers who has ended and reports it, with its output in front. */
enum shoal_status launch_agent_ranks_reap(struct agent_ranks *ranks);
/* Passes a signal on: to the process groups when it is one that terminals send, else to the ranks
 * alone, whose helpers may not expect it. */
void launch_agent_ranks_signal(const struct agent_ranks *ranks, int signal_number);
/* Reads what is left in the pipes. */
enum shoal_status launch_agent_ranks_drain(struct agent_ranks *ranks);
void launch_agent_ranks_release(struct agent_ranks *ranks);

#endif
