/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.h: launchers of one job tell each other of failures and ends, through the job's store.
 *
 * A thread of its own speaks with the store, whose calls block; the launcher's loop hears of it by
 * a descriptor. Keys: "launch/failed" (set once, by the first that fails: exit code and text) and
 * "launch/ended/I".
 */
#ifndef SHOAL_LAUNCH_PEERS_H
#define SHOAL_LAUNCH_PEERS_H

#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

#define LAUNCH_PEERS_TEXT_BYTES 2048

enum launch_peers_news {
    LAUNCH_PEERS_NONE,
    LAUNCH_PEERS_READY,  /* the store answers; first */
    LAUNCH_PEERS_FAILED, /* another launcher's ranks failed, or the store cannot be reached */
    LAUNCH_PEERS_OVER    /* nothing more is to be done: all have ended, as far as it matters */
};

struct launch_peers;

/* Starts the thread, which connects to the store until the deadline. secret: 32 bytes. */
enum shoal_status launch_peers_open(const char *store, const unsigned char *secret, int index,
                                    int count, int64_t deadline_ns, struct launch_peers **out);
/* Readable when there is news. */
int launch_peers_fd(const struct launch_peers *peers);
/* Takes the next news, with the exit code and text of a failure. */
enum launch_peers_news launch_peers_take(struct launch_peers *peers, int *exit_code, char *text,
                                         size_t capacity);
/* The ranks here have ended, in good order (exit_code 0) or by this failure (text is copied). The
 * others are told; the first launcher, whose store they use, then waits for them: with a failure,
 * at most patience_ms. */
void launch_peers_end(struct launch_peers *peers, int exit_code, const char *text,
                      int64_t patience_ms);
/* Tells the others of a failure while ranks here still end. Once. */
void launch_peers_fail(struct launch_peers *peers, int exit_code, const char *text);
/* Stops and frees; does not wait for others. NULL is allowed. */
void launch_peers_close(struct launch_peers *peers);

#endif
