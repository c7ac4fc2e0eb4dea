/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h: the tasks that are on a rank, and which of them runs next. No threads, no clock, no
 * messages: a test gives it tasks and looks what comes.
 */
#ifndef SHOAL_PIPE_QUEUE_H
#define SHOAL_PIPE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "shoal.h"

/* One task on the rank that runs it; its memory holds what the public struct points to. */
struct pipe_task {
    struct shoal_pipe_task task;
    uint64_t number; /* the how-manieth that came here */
    uint64_t step;   /* of whoever has submitted it */
    int64_t came_ns;
    bool comes_first;                  /* a FORWARD that came before its microbatch's backwards */
    int missing;                       /* needs that are not here yet */
    struct pipe_task *previous, *next; /* of those that wait for needs, oldest first */
};

/* Tasks of one kind that are ready: a heap by (microbatch, number). */
struct pipe_heap {
    struct pipe_task **tasks;
    int count, capacity;
};

/* How far a microbatch is on this rank. */
struct pipe_microbatch {
    int forwards;  /* tasks here that come first, and are not taken */
    int resumes;   /* RESUME tasks here that are not taken */
    bool backward; /* one of its backwards came in this step */
    int kept;      /* FORWARD tasks that keep memory less BACKWARD tasks, both taken */
};

/* Tasks in the order in which they are to run in every step. */
struct pipe_list {
    struct shoal_pipe_run *runs; /* [count] */
    int count;                   /* 0: there is no list */
    int at;                      /* the next one */
    bool has[SHOAL_PIPE_KIND_COUNT];
};

struct pipe_queue {
    enum shoal_pipe_order order;
    int active_max; /* microbatches that may be under way; 0: any number */
    int active;
    int kept_max; /* microbatches that may be kept; 0: any number */
    int kept;     /* that are */
    struct pipe_list list;
    struct pipe_heap ready[SHOAL_PIPE_KIND_COUNT];
    struct pipe_task *first_waiting, *last_waiting;
    int count; /* ready and waiting */
    int ready_count;
    uint64_t came;
    struct pipe_microbatch *microbatches; /* [microbatch_count] */
    int microbatch_count;
    int before_backward; /* microbatches that are not as far as their backwards here */
};

void pipe_queue_init(struct pipe_queue *queue, enum shoal_pipe_order order, int active_max,
                     int kept_max);
/* Frees all tasks too. */
void pipe_queue_release(struct pipe_queue *queue);

/* Takes the task over, whose `missing` says whether it waits. On failure it stays the caller's. */
enum shoal_status pipe_queue_add(struct pipe_queue *queue, struct pipe_task *task);
/* The last missing need of the task is here. Room for it was taken when it was added. */
void pipe_queue_ready(struct pipe_queue *queue, struct pipe_task *task);
/* The next task to run, which is the caller's then; NULL: none may run now. in_step: else only
 * CONTROL is given. */
struct pipe_task *pipe_queue_take(struct pipe_queue *queue, bool in_step);
/* The microbatch has ended where it started: nothing of it is kept. */
void pipe_queue_over(struct pipe_queue *queue, int microbatch);
/* Sets, or with count 0 ends, a list; between steps. */
enum shoal_status pipe_queue_set_list(struct pipe_queue *queue, const struct shoal_pipe_run *runs,
                                      int count);
/* A step has ended: microbatches begin anew. */
void pipe_queue_end_step(struct pipe_queue *queue);

#endif
