/* SPDX-License-Identifier: Apache-2.0 */
/* run.h: one execution of a plan; all its memory, kept in the plan's pool between executions. */
#ifndef SHOAL_COMM_RUN_H
#define SHOAL_COMM_RUN_H

#include "comm/engine.h"
#include "comm/engine_state.h"
#include "comm/plan.h"

enum step_state {
    STEP_WAITING = 0, /* for other steps */
    STEP_POSTED,      /* receive: buffer is ready. send: waits for a grant */
    STEP_MOVING,      /* send: the frame with the data is queued. receive: payload is arriving */
    STEP_DONE
};

struct comm_run {
    enum comm_owner owner;
    struct comm_task task;
    struct comm_plan *plan;
    struct comm_run *next_idle;
    uint32_t *wait_left;
    unsigned char *state;      /* enum step_state */
    bool *granted, *busy;      /* per step */
    struct net_frame *frames;  /* per step: a send's data or offer, a receive's grant */
    struct comm_early **early; /* per step: a receive's data or offer that came before it started */
    uint32_t *queue;           /* steps to start, in order */
    uint32_t queue_head, queue_tail;
    uint32_t steps_left, frames_out;
    bool starting;                      /* inside the queue's loop */
    unsigned char *bases[BUFFER_COUNT]; /* by enum schedule_buffer */
    unsigned char *scratch;
    unsigned char *scaled; /* PREMUL_SUM: the input times the factor */
    uint64_t scaled_bytes;
};

/* Frees the plan's pool. */
void comm_run_free_idle(struct comm_plan *plan);

#endif
