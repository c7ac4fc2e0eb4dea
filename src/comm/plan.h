/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h: a schedule made ready to run again and again: indexes from (peer, message) to step, and a
 * pool of runs with all the memory that one execution needs. Cached in the group by shape, so that
 * nothing is built or allocated once a shape has been seen.
 */
#ifndef SHOAL_COMM_PLAN_H
#define SHOAL_COMM_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/call.h"
#include "comm/schedule.h"
#include "net/transport.h"

#define COMM_PLANS_MAX 64 /* per group; the least recently used idle one makes room */

struct comm_group;
struct comm_run;

struct comm_plan {
    struct comm_plan *next;
    /* key */
    enum coll_kind kind;
    uint64_t count;
    size_t elem_bytes;
    enum shoal_dtype dtype;
    int root;
    bool in_place, long_messages, is_v;
    uint32_t version; /* of the shares by which it is cut: comm_steer_version */

    uint32_t *shares; /* [hosts of the group] NULL: those of equal links */
    struct schedule *schedule;
    uint32_t hash;                     /* of algorithm, segment, shares: the same on all ranks */
    uint32_t *send_first, *recv_first; /* [size+1] into the step lists, by peer */
    uint32_t *send_steps, *recv_steps; /* step of the k-th message to or from a peer */
    uint32_t *ready_first;             /* steps that wait for none */
    uint32_t ready_count;
    uint64_t scratch_bytes, wide_at; /* of SCRATCH and WIDE; where WIDE begins in them */
    struct comm_run *idle;
    atomic_int users; /* requests that will run it or do; taken by whoever submits */
};

/* Takes the schedule over. */
enum shoal_status comm_plan_create(const struct coll_shape *shape, enum shoal_dtype dtype,
                                   struct schedule *schedule, struct comm_plan **out);
void comm_plan_free(struct comm_plan *plan);

/* The cached plan of the call's shape in the group, NULL if there is none (v forms are not cached).
 */
struct comm_plan *comm_plan_find(struct comm_group *group, const struct comm_call *call);
/* Frees idle plans by shares of other versions, which will not be used again. */
void comm_plan_drop_versions(struct comm_group *group, uint32_t kept);
/* Puts a plan in the cache; may free an idle old one. */
void comm_plan_keep(struct comm_group *group, struct comm_plan *plan);

#endif
