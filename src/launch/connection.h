/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connection.h: the launcher's end of one agent.
 *
 * States, by `phase`: CONNECTING -> GREETED (HELLO came) -> SURVEYED -> PROBED -> RUNNING (START
 * was sent) -> FINISHED (DONE came: nothing is left there). The command's process is a matter of
 * its own: when it has `ended` before FINISHED, the agent is lost.
 */
#ifndef SHOAL_LAUNCH_CONNECTION_H
#define SHOAL_LAUNCH_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/agent_command.h"
#include "launch/hosts.h"
#include "launch/loop.h"
#include "launch/message.h"
#include "launch/process.h"
#include "launch/reach.h"

#define LAUNCH_WORDS_BYTES 512

enum launch_phase {
    LAUNCH_PHASE_CONNECTING,
    LAUNCH_PHASE_GREETED,
    LAUNCH_PHASE_SURVEYED,
    LAUNCH_PHASE_PROBED,
    LAUNCH_PHASE_RUNNING,
    LAUNCH_PHASE_FINISHED
};

struct launch_connection;

/* What a connection tells its owner, from within watch's turn or launch_connection_look. */
struct launch_connection_events {
    void *user;
    enum shoal_status (*message)(void *user, struct launch_connection *connection,
                                 struct launch_message *message);
    /* A line that the agent's command printed on stderr. */
    enum shoal_status (*said)(void *user, struct launch_connection *connection, const char *line);
};

struct launch_connection {
    const struct launch_host *host;
    bool local;
    enum launch_phase phase;
    struct launch_connection_events events;
    struct launch_agent_command command;
    struct launch_process process;
    bool ended; /* the process; wait_status is there */
    int wait_status;
    bool greeted;        /* the greeting was found in what came */
    bool ending;         /* END was sent */
    int64_t patience_ns; /* when its process is killed at last */
    struct launch_bytes in, out, saying;
    char last_words[LAUNCH_WORDS_BYTES]; /* last line on stderr */
    /* from the survey and the probe: */
    struct launch_addresses addresses;
    int port;
    char store[LAUNCH_ADDRESS_BYTES + 16];    /* as that host reaches it */
    bool reaches_first[LAUNCH_ADDRESSES_MAX]; /* by the first host's addresses */
};

/* Starts the agent's command; host, and local (which needs no command), are set. */
enum shoal_status launch_connection_open(struct launch_connection *connection, const char *pattern,
                                         const char *shoal,
                                         const struct launch_connection_events *events);
enum shoal_status launch_connection_watch(struct launch_connection *connection,
                                          struct launch_loop *loop, bool read_messages);
/* After SIGCHLD: sees whether the process has ended, and then reads all that is left of it. */
enum shoal_status launch_connection_look(struct launch_connection *connection);
/* The last line that came on stdout in place of a greeting; "" when there is none. */
void launch_connection_printed(const struct launch_connection *connection, char *out,
                               size_t capacity);
/* Sends a message without payload. */
enum shoal_status launch_connection_send(struct launch_connection *connection,
                                         enum launch_message_type type, uint32_t value);
/* Kills the process and its group. */
void launch_connection_kill(struct launch_connection *connection, int signal_number);
void launch_connection_release(struct launch_connection *connection);

#endif
