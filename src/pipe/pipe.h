/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe.h: the room's face to api: tasks and values between pipeline stages, as shoal.h and
 * docs/pipe.md say.
 *
 * Calls are what the public ones are, with arguments that were checked: ranks, modules, kinds and
 * counts in range, pointers where they are needed.
 */
#ifndef SHOAL_PIPE_PIPE_H
#define SHOAL_PIPE_PIPE_H

#include "comm/comm.h"

#define PIPE_MICROBATCH_MAX   65535
#define PIPE_BUFFER_BYTES_MAX (UINT64_C(1) << 44)

struct pipe;

/* What the room above lends. */
struct pipe_place {
    struct comm_group *parent; /* outlives the pipe */
    /* Carries out a collective call on it, and waits. */
    enum shoal_status (*submit)(struct comm_group *group, struct comm_call *call,
                                shoal_request_t *request);
};

/* Collective. */
enum shoal_status pipe_create(const struct pipe_place *place,
                              const struct shoal_pipe_options *options, struct pipe **out);
void pipe_free(struct pipe *pipe);
void pipe_abort(struct pipe *pipe, const char *reason);
/* SHOAL_OK, or why the pipe is broken; also if its parent is. */
enum shoal_status pipe_health(struct pipe *pipe);

enum shoal_status pipe_promise(struct pipe *pipe, int home, uint64_t *id);
enum shoal_status pipe_put(struct pipe *pipe, uint64_t id, const struct shoal_pipe_value *value);
enum shoal_status pipe_value(struct pipe *pipe, uint64_t id, struct shoal_pipe_value *out);
enum shoal_status pipe_release(struct pipe *pipe, uint64_t id);
enum shoal_status pipe_drop(struct pipe *pipe, uint64_t id);

enum shoal_status pipe_submit(struct pipe *pipe, const struct shoal_pipe_task *task);
/* SHOAL_IN_PROGRESS: there was none in that time. */
enum shoal_status pipe_next(struct pipe *pipe, int64_t timeout_ms, struct shoal_pipe_task *out);
enum shoal_status pipe_microbatch_end(struct pipe *pipe);
enum shoal_status pipe_list(struct pipe *pipe, const struct shoal_pipe_run *runs, int count);
enum shoal_status pipe_step_begin(struct pipe *pipe);
enum shoal_status pipe_step_end(struct pipe *pipe);

struct comm_group *pipe_parent(const struct pipe *pipe);
int pipe_module_count(const struct pipe *pipe);
void pipe_counters(struct pipe *pipe, struct shoal_pipe_counters *out);
int pipe_timeline(struct pipe *pipe, struct shoal_pipe_run *runs, int capacity);

#endif
