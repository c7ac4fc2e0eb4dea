/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h: what the launcher and an agent say to each other over the agent's stdin and stdout.
 *
 * The agent speaks first: a greeting, which lets the launcher skip what a login shell may have
 * printed before. After it both directions carry frames: four little-endian 32-bit numbers (type,
 * rank, value, payload bytes) and the payload.
 *
 *   launcher                           agent
 *                                  <-  greeting, HELLO
 *   SURVEY                         ->
 *                                  <-  SURVEYED (is the program there? a free port, own addresses)
 *   PROBE (several hosts only)     ->
 *                                  <-  PROBED (which addresses of launcher and rank 0 it reaches)
 *   START                          ->
 *                                  <-  STARTED per rank, then OUTPUT and EXITED as they come
 *   SIGNAL, INPUT, END, KILL       ->
 *                                  <-  DONE: no process is left; the agent exits
 *
 * REFUSED may come instead of any answer; the agent has then ended what it had started. The end of
 * its stdin, at any time, makes an agent end its ranks.
 */
#ifndef SHOAL_LAUNCH_MESSAGE_H
#define SHOAL_LAUNCH_MESSAGE_H

#include <stdbool.h>

#include "launch/bytes.h"

#define LAUNCH_GREETING          "\nSHOAL-AGENT-1\n"
#define LAUNCH_PAYLOAD_BYTES_MAX (16u << 20)

enum launch_message_type {
    LAUNCH_HELLO = 1,   /* texts version, host name */
    LAUNCH_SURVEY,      /* value 1: open a port for rank 0; texts wdir, program, PATH, interface;
                           number: which port, 0 for any */
    LAUNCH_SURVEYED,    /* value: port or 0; texts: addresses */
    LAUNCH_PROBE,       /* texts: store addresses; texts: rank 0's addresses; all "host:port" */
    LAUNCH_PROBED,      /* two lists of numbers: indexes of those that answer, best first */
    LAUNCH_START,       /* see agent.c, start_read */
    LAUNCH_STARTED,     /* rank; value: pid */
    LAUNCH_OUTPUT,      /* rank; value: 1 stdout, 2 stderr; payload: bytes */
    LAUNCH_EXITED,      /* rank; value: as from waitpid; text: what is known of the cause, or "" */
    LAUNCH_SIGNAL,      /* value: signal number; passed on to the ranks */
    LAUNCH_INPUT,       /* payload: bytes for rank 0's stdin; none: its end */
    LAUNCH_INPUT_TAKEN, /* value: bytes that rank 0 took; rank 1: it takes no more */
    LAUNCH_END,         /* value: grace in ms; SIGTERM, then SIGKILL */
    LAUNCH_KILL,        /* SIGKILL now */
    LAUNCH_REFUSED,     /* value: exit code for the job; text: why */
    LAUNCH_DONE
};

struct launch_message {
    enum launch_message_type type;
    int rank;
    uint32_t value;
    struct launch_reader payload; /* in the queue's memory: until the next append to it */
};

enum shoal_status launch_message_put(struct launch_bytes *out, enum launch_message_type type,
                                     int rank, uint32_t value, const struct launch_bytes *payload);
/* As above with one text as payload. */
enum shoal_status launch_message_put_text(struct launch_bytes *out, enum launch_message_type type,
                                          int rank, uint32_t value, const char *text);
enum shoal_status launch_message_put_raw(struct launch_bytes *out, enum launch_message_type type,
                                         int rank, uint32_t value, const void *payload,
                                         size_t payload_bytes);
/* Takes the next whole message; *found false when there is none yet. SHOAL_ERR_FORMAT. */
enum shoal_status launch_message_take(struct launch_bytes *in, struct launch_message *out,
                                      bool *found);

#endif
