/* SPDX-License-Identifier: Apache-2.0 */
/* handles.h: what the files of the public API share. */
#ifndef SHOAL_API_HANDLES_H
#define SHOAL_API_HANDLES_H

#include "base/status.h"
#include "comm/comm.h"

/* A public handle is the internal struct under another name. */
static inline struct comm_group *api_group(shoal_group_t handle)
{
    return (struct comm_group *)handle;
}

/* NULL handles, forked children. */
enum shoal_status api_check_group(shoal_group_t handle);
/* Remembers for shoal_last_error which group the thread's text belongs to; returns status. */
enum shoal_status api_end(shoal_group_t handle, enum shoal_status status);
/* Puts the same-host path in place where it is possible, and servers where there are. */
enum shoal_status api_equip(struct comm_group *group);

/* A sub-group of all ranks of parent, for the library's own use: shoal_group_free does not know it.
 * context is the same on all of them, unlike any other. */
enum shoal_status api_twin(struct comm_group *parent, const char *name, uint64_t context,
                           struct comm_group **out);

/* Fills a struct that begins with its size, of the caller's header, from ours of `bytes`. smallest:
 * what the first header had; init: the macro to start from. */
enum shoal_status api_give(void *out, const void *all, size_t bytes, size_t smallest,
                           const char *init);
enum shoal_status api_give_counters(const struct comm_group *const *groups, int group_count,
                                    struct shoal_counters *out);

/* Whether SHOAL_ALGORITHM can be read. */
enum shoal_status api_check_algorithm(void);
/* SHOAL_ERR_ARGUMENT if input and output share bytes otherwise than in place, which is filled in.
 */
enum shoal_status api_check_overlap(const struct comm_group *group, const struct comm_call *call);
/* Carries out a call that was checked, by the path that fits the group. */
enum shoal_status api_submit(struct comm_group *group, struct comm_call *call,
                             shoal_request_t *request);

/* A server's part of an allreduce in a group that ranks share with servers. */
enum shoal_status api_submit_served(struct comm_group *group, const struct comm_call *call,
                                    shoal_request_t *request);

/* Groups of one: copies. */
extern const struct comm_path api_alone_path;

#endif
