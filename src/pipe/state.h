/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h: what the files of the room share.
 *
 * A value has a maker (who promised it), a home (where it is put) and routes (ranks that need it);
 * one rank may be all of these. On a rank it is one `struct pipe_value`, made by whatever is heard
 * of it first, and freed when the rank has no part in it any more:
 *
 *   maker   promised -> dropped (the home is told, after all routes)
 *   home    unknown -> put -> sent to each route -> dropped (routes are told how many needs they
 *           have) -> gone, when all views and messages of it are back and its own needs released
 *   route   needed -> here -> dropped, with the number of needs -> gone, when so many are released
 *
 * Invariants
 *  1. `lock` guards all that is below it, and is held for a few instructions or for the copy of a
 *     small value; never while the engine is called. Who holds the token may take it, not the other
 *     way round.
 *  2. What is above it is the token's (mail.c), or doesn't change.
 *  3. Messages of a rank to another are handled in the order in which they were posted (mail.c).
 *     So a home hears of a maker's needs before it hears of the drop, and a route gets a value
 *     before it hears of the drop.
 *  4. A value's memory on its home stays until views_out and sends_out are 0.
 */
#ifndef SHOAL_PIPE_STATE_H
#define SHOAL_PIPE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/wait.h"
#include "pipe/mail.h"
#include "pipe/pipe.h"
#include "pipe/queue.h"

/* ---- values */

struct pipe_route {
    int rank;
    uint32_t needs; /* of tasks there */
    bool sent;
};

enum pipe_memory { MEMORY_NONE, MEMORY_SHARED, MEMORY_OWN, MEMORY_VIEW /* of the home's */ };

/* A task that waits for a value. */
struct pipe_waiter {
    struct pipe_waiter *next;
    struct pipe_task *task;
};

struct pipe_value {
    struct pipe_value *next; /* in its bucket */
    uint64_t id;
    uint64_t step; /* in which it was first heard of */
    bool promised; /* this rank is its maker, and has not dropped it */
    bool put;      /* this rank is its home, and has put it */
    bool here;     /* the data is */
    bool dropped;
    uint32_t needed, given, released; /* needs of tasks here: came, given by next, let go */
    uint32_t needed_in_all;           /* once dropped, on a route */
    struct pipe_route *routes;        /* of the home */
    int route_count, route_capacity;
    uint32_t views_out, sends_out;
    enum pipe_memory kind;
    void *memory;
    uint64_t memory_bytes;
    void *block; /* holds buffers, descriptor, and the data if it is small */
    struct shoal_pipe_buffer *buffers;
    int buffer_count;
    void *descriptor;
    uint32_t descriptor_bytes;
    struct pipe_waiter *waiters;
};

struct pipe_table {
    struct pipe_value **buckets;
    uint32_t bucket_count, count; /* bucket_count: a power of two, or 0 */
};

/* ---- what a rank is doing, as it tells others */

enum pipe_doing { DOING_NOTHING, DOING_TASK, DOING_WAIT, DOING_STEP_END, DOING_OUTSIDE };

struct pipe_state {
    enum pipe_doing doing;
    enum shoal_pipe_kind kind; /* of the task that runs, or waits longest */
    int module, microbatch;
    uint64_t id; /* of the value that it waits for */
    int64_t for_ms;
};

struct pipe_answer {
    uint64_t asked; /* in which round of questions; 0: never */
    bool came;
    struct pipe_state state;
};

#define PIPE_RUNS_MAX 65536

struct pipe_timeline {
    struct shoal_pipe_run *runs; /* [capacity] */
    int capacity, kept;
    int count; /* ever, in this step */
};

/* ---- the pipe */

struct pipe {
    struct pipe_place place;
    struct comm_group *group;
    char name[48];
    char *names;               /* of the modules, one behind the other; NULL: none */
    const char **module_names; /* [module_count] or NULL */
    unsigned char *runs;       /* [module_count] or NULL */
    int module_count;
    uint64_t inline_bytes; /* the largest message that holds a value's data */
    struct base_bell bell; /* for who waits */
    atomic_uint changes;   /* with each ring */
    struct pipe_mail mail;

    pthread_mutex_t lock;
    struct pipe_outbox outbox;
    struct pipe_table table;
    uint64_t promises; /* ever made here */
    struct pipe_queue queue;
    struct pipe_task *current; /* given by next, and its memory still in use */
    bool runs_task;            /* it has not ended */
    bool taking;               /* a thread is in pipe_next */
    bool in_step;
    bool ending;       /* in pipe_step_end */
    uint64_t step;     /* steps ended here, this one too while it is ending */
    uint64_t *marks;   /* [size] from each other rank; two for each step that it ends */
    int byes;          /* ranks that free the pipe */
    int64_t turned_ns; /* when what this rank does last changed */
    int64_t looked_ns; /* when the longest task of another rank began, as these have said last */
    struct pipe_answer *answers; /* [size] */
    uint64_t round;              /* of questions, from 1; answers of earlier ones are forgotten */
    int64_t asked_ns;            /* when all were asked in this round; 0: they were not */
    struct pipe_timeline timeline;
    struct shoal_pipe_counters counted;
};

/* ---- pipe.c */

/* "value 3 of rank 1" and "forward of module 2 'a', microbatch 1"; return text. */
#define PIPE_TEXT_BYTES 160
const char *pipe_value_text(uint64_t id, char text[PIPE_TEXT_BYTES]);
const char *pipe_task_text(const struct pipe *pipe, enum shoal_pipe_kind kind, int module,
                           int microbatch, char text[PIPE_TEXT_BYTES]);
const char *pipe_rank_text(const struct pipe *pipe, int rank, char text[PIPE_TEXT_BYTES]);
/* Breaks the pipe on every rank, and wakes who waits here. The lock may be held. Returns status,
 * with the text as this thread's error. */
enum shoal_status pipe_fail(struct pipe *pipe, enum shoal_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Lock held: something changed that a waiting thread looks at. */
void pipe_changed(struct pipe *pipe);
/* Gives the lock back: what was posted goes out if somebody waits for it, and who waits is woken.
 * Not on the engine's thread, which sends what it posts itself. */
void pipe_unlock(struct pipe *pipe);
/* The same before this thread waits: all that was posted goes out. */
void pipe_unlock_to_wait(struct pipe *pipe);
/* Waits until `changes` is another number than `seen`, the deadline, or a fifth of a second. False:
 * the call was interrupted, and the pipe is broken. */
bool pipe_wait(struct pipe *pipe, unsigned seen, int64_t deadline_ns);

/* ---- agree.c */

/* Whether all ranks make the same pipe, and can; mine: how it went on this rank. */
enum shoal_status pipe_compare(const struct pipe *pipe, const struct shoal_pipe_options *options,
                               enum shoal_status mine);
/* Whether all ranks have their groups. */
enum shoal_status pipe_confirm(const struct pipe *pipe, enum shoal_status mine);

/* ---- value.c: lock held */

/* A value's id: its home, its maker, and the how-manieth of that maker. */
#define PIPE_ID_RANK_BITS   12
#define PIPE_ID_NUMBER_BITS 40
static inline uint64_t pipe_id_make(int home, int maker, uint64_t number)
{
    return (uint64_t)home << (PIPE_ID_NUMBER_BITS + PIPE_ID_RANK_BITS) |
           (uint64_t)maker << PIPE_ID_NUMBER_BITS |
           (number & ((UINT64_C(1) << PIPE_ID_NUMBER_BITS) - 1));
}
static inline int pipe_id_home(uint64_t id)
{
    return (int)(id >> (PIPE_ID_NUMBER_BITS + PIPE_ID_RANK_BITS));
}
static inline int pipe_id_maker(uint64_t id)
{
    return (int)(id >> PIPE_ID_NUMBER_BITS) & ((1 << PIPE_ID_RANK_BITS) - 1);
}
static inline uint64_t pipe_id_number(uint64_t id)
{
    return id & ((UINT64_C(1) << PIPE_ID_NUMBER_BITS) - 1);
}

/* NULL: not known here. */
struct pipe_value *pipe_value_find(const struct pipe *pipe, uint64_t id);
/* Makes it if it is not known. `step`: of whoever speaks of it. */
enum shoal_status pipe_value_know(struct pipe *pipe, uint64_t id, uint64_t step,
                                  struct pipe_value **out);
/* A task here needs it. */
enum shoal_status pipe_value_need(struct pipe_value *value, struct pipe_task *task);
/* On its home: a task on `rank` needs it. */
enum shoal_status pipe_value_route(struct pipe *pipe, struct pipe_value *value, int rank);
/* On its home: no more routes come; on a route: so many needs it has here. */
enum shoal_status pipe_value_end(struct pipe *pipe, struct pipe_value *value, uint32_t needs);
/* A message from its home brings it. *data: if its data comes in a message of its own, the value.
 */
enum shoal_status pipe_value_arrives(struct pipe *pipe, int home, const struct pipe_header *header,
                                     const unsigned char *body, struct pipe_value **data);
/* Its data has come in a message of its own. */
void pipe_value_complete(struct pipe *pipe, struct pipe_value *value);
/* Frees it if this rank has no part in it any more. */
void pipe_value_tidy(struct pipe *pipe, struct pipe_value *value);
void pipe_table_release(struct pipe *pipe);
/* How many values, of those first heard of up to that step, are not done with here, with those that
 * are only held or without; text, unless NULL: what is missing of the first of them. */
uint32_t pipe_values_left(const struct pipe *pipe, uint64_t step, bool counts_held, char *text,
                          size_t text_bytes);

/* ---- task.c: lock held */

enum shoal_status pipe_task_arrives(struct pipe *pipe, int from, const struct pipe_header *header,
                                    const unsigned char *body);
/* The task that was given last, if it runs yet, has ended; its memory stays. */
void pipe_task_ends(struct pipe *pipe);
/* What this rank is doing. */
struct pipe_state pipe_doing_now(const struct pipe *pipe);

/* ---- step.c: lock held */

/* Steps that another rank had ended when it sent what comes from it now. */
static inline uint64_t pipe_step_of(const struct pipe *pipe, int rank)
{
    return pipe->marks[rank] / 2;
}

/* So long before the deadline of an error that names a rank it is asked what it is doing. */
static inline int64_t pipe_ask_early_ms(int64_t timeout_ms)
{
    return timeout_ms / 2 < 1000 ? timeout_ms / 2 : 1000;
}

/* What a rank that was asked has said that it is doing; returns text. */
const char *pipe_doing_text(const struct pipe *pipe, int rank, char *text, size_t text_bytes);
/* Asks a rank what it is doing, once in a round. */
void pipe_ask(struct pipe *pipe, int rank);
/* A new round begins. */
void pipe_forget_answers(struct pipe *pipe);

/* ---- receive.c: token held, lock not */

/* A message has come; those of one rank come in their order. */
void pipe_receive(struct pipe *pipe, int from, const struct pipe_header *header,
                  const unsigned char *body, uint64_t body_bytes);

#endif
