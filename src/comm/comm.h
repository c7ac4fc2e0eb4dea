/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h: the room's face to the rooms above it: worlds, groups, requests.
 *
 * A world is what one shoal_group_create makes: links to all peers, the engine, the progress
 * thread, this rank's shared region. The root group and all groups split from it share the world.
 *
 * Threads. The engine belongs to whoever holds the world's token: the progress thread, or a thread
 * that runs a blocking operation itself because nothing else is in flight (saves two thread
 * switches). All others put requests in the queue and wait on the request. The progress thread
 * sleeps while nothing is in flight, but for a look every COMM_TICK_MS at what peers did.
 */
#ifndef SHOAL_COMM_COMM_H
#define SHOAL_COMM_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/tuning.h"
#include "base/wait.h"
#include "boot/host.h"
#include "comm/call.h"
#include "comm/engine.h"
#include "comm/group.h"
#include "comm/region.h"

#define COMM_TICK_MS          200
#define COMM_LOCAL_TASK_BYTES 1024 /* room for the same-host path's task in a request */

/* The user's question whether a blocking call shall end, asked on one thread only. */
struct comm_interrupt {
    int (*ask)(void *user); /* NULL: none */
    void *user;
    pthread_t thread;
    int64_t next_ns;
};

struct comm_world {
    int rank, size;    /* servers count, behind the ranks */
    int rank_count;    /* those that are no servers */
    char **host_names; /* [size] */
    int *host_of;      /* [size] host index, by first rank */
    int *local_index;  /* [size] local rank on its host */
    int local_rank, local_size;
    bool crowded;     /* hosts share a machine and have more ranks than it has cores */
    int *local_ranks; /* [local_size] world ranks of this host */
    struct base_tuning_table tuning; /* what the lowest of them found */
    struct boot_host *host;
    atomic_bool dead[COMM_LOCAL_MAX]; /* by local rank: its process has ended, not in good order */
    struct comm_region region;
    pthread_mutex_t region_lock;
    struct net_endpoint *shm, *tcp;
    struct comm_engine *engine;
    struct base_wait_policy policy; /* of callers */
    int64_t thread_spin_ns;         /* of the progress thread */
    int spin_halvings;              /* of either, while it does not pay (token held) */
    atomic_int group_count;
    struct comm_group *root;
    int64_t linger_ms; /* how long closing waits for frames that are on their way */

    pthread_mutex_t token;
    pthread_mutex_t queue_lock;
    struct comm_request *queue, **queue_end;
    atomic_int queued;
    atomic_int engine_asleep, thread_idle;
    atomic_int token_wanted; /* the progress thread is to give the token back */
    atomic_int work_left;    /* a caller gave the token back with operations under way */
    atomic_bool stop;
    pthread_t thread;
    bool thread_runs;
    int wake_fd;  /* eventfd: for the idle thread */
    int watch_fd; /* epoll over wake_fd and the lifelines of this host's peers */
    struct comm_used_name *used_names; /* of subsets */
    struct comm_interrupt interrupt;
    struct shoal_counters counted; /* of groups that were freed */
    int counted_groups;
    struct comm_world *next; /* of the process */
};

/* Joins. On success *root is the world's root group. */
enum shoal_status comm_world_create(const struct shoal_group_options *options,
                                    struct comm_group **root);
/* Joins as the server that the environment says. *root is a group of this process alone; groups
 * that ranks share with servers are opened by comm_group_open when `serving` tells of them. Waits
 * for the ranks for as long as their store is there. */
enum shoal_status comm_world_create_server(const struct comm_serving *serving,
                                           struct comm_group **root);
/* After all its groups but the root are freed. */
void comm_world_free(struct comm_world *world);
/* Says good-bye to the peers, once what is on its way has gone, after linger_ms at most. Only
 * comm_world_free may follow. Token held, or no thread uses the engine. */
void comm_world_depart(struct comm_world *world, int64_t linger_ms);
/* Memory of this rank's region, which the ranks of the host share: not zeroed, 64-byte aligned. Any
 * thread. */
enum shoal_status comm_shared_alloc(struct comm_world *world, size_t bytes, void **out);
/* SHOAL_ERR_ARGUMENT if it is none of that. */
enum shoal_status comm_shared_free(struct comm_world *world, void *memory);

/* ---- groups (subgroup.c)
 * --------------------------------------------------------------------------- */

/* members: world ranks. Registers it with the engine. */
enum shoal_status comm_group_open(struct comm_world *world, const int *members, int size,
                                  const char *name, uint64_t context, struct comm_group **out);
/* Gives the group, which has all ranks in their order, a companion of the same ranks and the
 * world's servers: group->served. Closed with it. */
enum shoal_status comm_group_open_served(struct comm_group *group);
/* How long a world whose root it is may wait for frames that are on their way when it is left. */
int64_t comm_group_linger_ms(const struct comm_group *group);
/* Ends its requests and frees it (a root: its world too). */
enum shoal_status comm_group_close(struct comm_group *group);
enum shoal_status comm_group_subset(struct comm_group *parent, const int *ranks, int count,
                                    const char *name, struct comm_group **out);
/* Of a split: the same on all members, unlike any other. */
uint64_t comm_split_context(const struct comm_group *parent, uint64_t split_number, int color);

/* ---- operations (request.c)
 * -------------------------------------------------------------------------- */

/* Breaks the group on all its ranks, with that cause if it has none yet, and wakes who waits. Any
 * thread. */
void comm_group_fail(struct comm_group *group, enum shoal_status status, const char *text);
/* Of a group that is broken: until this rank has told the others why, a tenth of a second at most.
 * The caller's process may end next. */
void comm_group_tell(struct comm_group *group);
/* Breaks it with SHOAL_ERR_ABORTED and who did it. */
void comm_group_abort(struct comm_group *group, const char *reason);
/* In a blocking call that has waited in vain for a moment: asks the user whether it shall end.
 * True: it shall, and the group is aborted. (interrupt.c) */
bool comm_interrupted(struct comm_group *group);

/* How calls of one path are carried out. */
struct comm_path {
    /* Carries the call out on this thread. Door held; token too if `uses_engine`. */
    enum shoal_status (*run)(struct comm_group *group, const struct comm_call *call,
                             struct comm_plan *plan, uint64_t sequence);
    /* Starts it in the engine for the request. Token held. */
    enum shoal_status (*start)(struct comm_group *group, struct comm_request *request);
    bool uses_engine;
};
extern const struct comm_path comm_path_plan; /* collectives by schedule */
extern const struct comm_path comm_path_send; /* send and receive */

/* Makes the plan of a call, which is one of a shape that has none in the cache. Door held. */
typedef enum shoal_status comm_make_plan(struct comm_group *group, const struct comm_call *call,
                                         struct comm_plan **out);

/* Carries out `call` by `path`: blocking if request is NULL. make: for comm_path_plan; NULL where
 * the path needs no plan. */
enum shoal_status comm_submit(struct comm_group *group, const struct comm_path *path,
                              const struct comm_call *call, comm_make_plan *make,
                              shoal_request_t *request);

/* For submission and steer.c. The door is a lock of one word; it may be kept by a blocking
 * operation that is under way. */
void comm_door_take(struct comm_group *group);
void comm_door_leave(struct comm_group *group);
/* Door held. The plan of the call, cached or made; counts the use. */
enum shoal_status comm_plan_take(struct comm_group *group, const struct comm_call *call,
                                 comm_make_plan *make, struct comm_plan **out);
/* Door held. A request with a number of its own that is in no queue yet. Takes the plan's use over,
 * also when it fails. */
enum shoal_status comm_request_begin(struct comm_group *group, const struct comm_path *path,
                                     const struct comm_call *call, struct comm_plan *plan,
                                     struct comm_request **out);
/* Door held. Gives back a request that is left alone. */
void comm_request_put(struct comm_request *request);

enum comm_request_state {
    REQUEST_PENDING = 0,
    REQUEST_DONE,
    REQUEST_LEFT_ALONE, /* done, and nobody of the library touches it any more */
    REQUEST_IDLE        /* the user has given it back */
};

struct shoal_request; /* = struct comm_request */
struct comm_request {
    atomic_int state; /* enum comm_request_state */
    enum shoal_status status;
    struct comm_group *group;
    const struct comm_path *path;
    struct comm_call call;
    struct comm_plan *plan;
    uint64_t sequence;
    int64_t deadline_ns;
    uint64_t *arrays; /* copies of a v form's counts and displacements */
    size_t array_count;
    struct base_bell bell;
    atomic_bool has_callback;
    atomic_int callback_state; /* 0 none, 1 set, 2 done before it was set */
    void (*callback)(void *user, enum shoal_status status);
    void *callback_user;
    struct comm_request *next;
    _Alignas(64) unsigned char local_task[COMM_LOCAL_TASK_BYTES];
};
/* done() of tasks whose owner is a request. */
void comm_request_done(struct comm_task *task, enum shoal_status status);
enum shoal_status comm_request_test(struct comm_request **request);
enum shoal_status comm_request_wait(struct comm_request **request, int64_t timeout_ms);
enum shoal_status comm_request_on_done(struct comm_request *request,
                                       void (*callback)(void *user, enum shoal_status status),
                                       void *user);
/* The user's handle is one that was finished already. */
static inline bool comm_request_is_idle(const struct comm_request *request)
{
    return atomic_load_explicit(&request->state, memory_order_relaxed) == REQUEST_IDLE;
}
/* Frees a closed group, now or when the last request is given back that its user still has. */
void comm_request_end_group(struct comm_group *group);

/* ---- progress (progress.c)
 * ---------------------------------------------------------------------------- */

enum shoal_status comm_progress_start(struct comm_world *world);
void comm_progress_stop(struct comm_world *world);
/* Puts the request in the queue; comm_progress_go sees to it that somebody starts what is there:
 * this thread if `here` and the engine is free, else whoever has the engine. */
void comm_progress_submit(struct comm_world *world, struct comm_request *request);
void comm_progress_go(struct comm_world *world, bool here);
/* Token held: starts what is queued and hands on what can leave now. */
void comm_progress_flush(struct comm_world *world);
/* Token held: moves the engine until *done, sleeping between. False: the call was interrupted. */
bool comm_progress_until(struct comm_group *group, const atomic_int *done);
/* Takes the token, also from a progress thread that is at work. */
void comm_progress_take(struct comm_world *world);
/* Token given back: sees to it that what is left goes on. */
void comm_progress_release(struct comm_world *world);
/* Wakes whoever holds or waits for the engine: after a group broke. */
void comm_progress_kick(struct comm_world *world);
/* The same, and whoever waits on this rank's bell. */
void comm_progress_wake_all(struct comm_world *world);
/* Rings the bells of this rank's local peers in the group, and its own. */
void comm_ring_peers(struct comm_world *world, const struct comm_group *group);

/* Whether the process of a rank of this host has ended, so that it touches no memory any more: asks
 * the kernel, while `dead` is set only when the engine moves. */
bool comm_process_is_gone(const struct comm_world *world, int local_rank);

/* ---- the process (process.c)
 * ---------------------------------------------------------------------------- */

/* SHOAL_ERR_STATE in a child made by fork after a world was created, and at the process's end. */
enum shoal_status comm_process_check(void);
bool comm_process_departed(void);
/* Leaves all worlds in good order; at exit by itself. Blocks for what is on its way to peers, a few
 * seconds at most. Any thread. */
void comm_process_depart(void);
/* Before the first world is made. */
void comm_process_watch(void);
/* A world that stands, and one that is about to be freed. */
void comm_process_add(struct comm_world *world);
void comm_process_remove(const struct comm_world *world);

#endif
