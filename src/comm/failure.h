/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.h: how the engine finds out that something is wrong, says who and why, and tells the
 * others.
 *
 * Deadlines: some time before a task's deadline the members of its group are asked how far they are
 * (WIRE_ASK); each answers with its last started operation (WIRE_TELL). So the error names those
 * who have not come, not only the neighbour that this rank happens to wait for.
 */
#ifndef SHOAL_COMM_FAILURE_H
#define SHOAL_COMM_FAILURE_H

#include "comm/engine_state.h"

/* At deadlines, and at tasks that wait for a rank which has left. */
void failure_look_at_tasks(struct comm_engine *engine, int64_t now_ns);
void failure_asked(struct comm_engine *engine, struct comm_group *group, int peer,
                   const struct wire *wire);
void failure_told(struct comm_group *group, int peer, const struct wire *wire);
/* A frame of a broken group comes: the peer does not know yet. */
void failure_heard(struct comm_engine *engine, struct comm_group *group, int peer,
                   const struct wire *wire);

/* The group may not work from the start. */
void failure_group_added(struct comm_engine *engine, struct comm_group *group);

/* An abort's text comes: its place, then its end. */
void *failure_arriving(struct comm_engine *engine, struct comm_group *group, int peer,
                       const struct wire *wire, uint64_t payload_bytes);
void failure_received(struct comm_engine *engine, int peer, const struct wire *wire,
                      unsigned char *payload, uint64_t payload_bytes);

void failure_peer_left(struct comm_engine *engine, int peer);

/* Control frames to the group's servers: the shares of a version. */
void engine_tell_shares(struct comm_engine *engine, const struct comm_group *group,
                        uint32_t version, const uint32_t *shares);

void failure_sent(struct comm_engine *engine, struct comm_control *control);
void failure_free_controls(struct comm_engine *engine);

#endif
