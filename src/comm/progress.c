/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c: who moves the engine, and when.
 *
 * Sleepers and how they are woken: the token's holder sleeps in comm_engine_sleep (engine_asleep is
 * set): comm_engine_wake. The idle thread sleeps in epoll on watch_fd (thread_idle is set):
 * wake_fd, which ends the engine's sleep too and is all that does in a world of one rank, whose
 * engine has no endpoint. Both announce themselves before they look at the queue for the last time,
 * and a submitter looks at the announcements after it has put its request in the queue; so one of
 * the two sees the other.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/comm.h"
#include "net/shm.h"

/* ---- deaths
 * -----------------------------------------------------------------------------------------------
 */

static void local_peer_gone(struct comm_world *world, int local_rank)
{
    struct base_shared *regions = world->host->regions;
    if (atomic_load(&comm_region_control_of(&regions[local_rank])->left))
        return; /* in good order: the transport tells */
    atomic_store(&world->dead[local_rank], true);
    net_shm_peer_gone(world->shm, world->local_ranks[local_rank], false);
}

bool comm_process_is_gone(const struct comm_world *world, int local_rank)
{
    return boot_host_is_gone(world->host, local_rank);
}

/* The lifeline of a peer has ended. */
static void watched_end(struct comm_world *world, int fd)
{
    epoll_ctl(world->watch_fd, EPOLL_CTL_DEL, fd, NULL);
    for (int i = 0; i < world->local_size; i++)
        if (world->host->life_fds[i] == fd)
            local_peer_gone(world, i);
}

/* Token held. */
static void look_at_watch(struct comm_world *world)
{
    struct epoll_event events[8];
    int count = epoll_wait(world->watch_fd, events, 8, 0);
    for (int i = 0; i < count; i++) {
        uint64_t number;
        if (events[i].data.fd != world->wake_fd)
            watched_end(world, events[i].data.fd);
        else if (read(world->wake_fd, &number, sizeof(number)) < 0)
            continue; /* somebody else has read it */
    }
}

/* ---- queue
 * ----------------------------------------------------------------------------------------------------
 */

void comm_progress_submit(struct comm_world *world, struct comm_request *request)
{
    request->next = NULL;
    pthread_mutex_lock(&world->queue_lock);
    *world->queue_end = request;
    world->queue_end = &request->next;
    pthread_mutex_unlock(&world->queue_lock);
    atomic_fetch_add(&world->queued, 1);
}

void comm_progress_kick(struct comm_world *world)
{
    atomic_thread_fence(memory_order_seq_cst);
    bool engine_asleep = atomic_load(&world->engine_asleep);
    if (engine_asleep)
        comm_engine_wake(world->engine);
    if (engine_asleep ? world->size == 1 : atomic_load(&world->thread_idle)) {
        uint64_t one = 1;
        if (write(world->wake_fd, &one, sizeof(one)) < 0)
            return; /* the counter is full: it will wake */
    }
}

void comm_progress_wake_all(struct comm_world *world)
{
    base_bell_ring(&comm_region_control_of(&world->host->regions[world->local_rank])->bell);
    atomic_store(&world->work_left, 1);
    comm_progress_kick(world);
}

/* Token held: starts all that is queued. */
static void drain(struct comm_world *world)
{
    if (atomic_load(&world->queued) == 0)
        return;
    pthread_mutex_lock(&world->queue_lock);
    struct comm_request *request = world->queue;
    world->queue = NULL;
    world->queue_end = &world->queue;
    pthread_mutex_unlock(&world->queue_lock);
    while (request) {
        struct comm_request *next = request->next;
        atomic_fetch_sub(&world->queued, 1);
        enum shoal_status status = request->path->start(request->group, request);
        if (status != SHOAL_OK) {
            comm_group_break(request->group, status, "%s", base_error_text());
            struct comm_task failed = {.group = request->group, .owner = request};
            comm_request_done(&failed, status);
        }
        request = next;
    }
}

void comm_progress_flush(struct comm_world *world)
{
    do {
        drain(world);
        comm_engine_poll(world->engine);
    } while (atomic_load(&world->queued) > 0);
}

void comm_progress_go(struct comm_world *world, bool here)
{
    if (!here || pthread_mutex_trylock(&world->token) != 0) {
        comm_progress_kick(world);
        return;
    }
    drain(world);
    comm_engine_poll(world->engine);
    comm_progress_release(world);
}

/* ---- the token's holder
 * ------------------------------------------------------------------------------------------ */

/* Sleeps until something can move, unless something can already. */
static void sleep_with_token(struct comm_world *world)
{
    atomic_store(&world->engine_asleep, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&world->queued) == 0 && atomic_load(&world->token_wanted) == 0 &&
        !atomic_load(&world->stop))
        comm_engine_sleep(world->engine, COMM_TICK_MS);
    atomic_store(&world->engine_asleep, 0);
    look_at_watch(world);
}

#define SPIN_HALVINGS_MAX 5

/* Spinning pays if what is waited for comes sooner than a spin takes, the waking of two sleepers
 * included; while a link is slower than that, less and less of it is done. */
static void judge_spin(struct comm_world *world, int64_t waited_ns, int64_t spin_ns)
{
    bool pays = waited_ns < 2 * spin_ns;
    if (pays && world->spin_halvings > 0)
        world->spin_halvings--;
    else if (!pays && world->spin_halvings < SPIN_HALVINGS_MAX)
        world->spin_halvings++;
}

/* One round: start, move, and, when nothing moved for spin_ns, sleep. True: it slept. */
static bool step(struct comm_world *world, int64_t *idle_since_ns, int64_t spin_ns)
{
    drain(world);
    if (comm_engine_poll(world->engine) > 0) {
        *idle_since_ns = 0;
        return false;
    }
    int64_t now_ns = base_now_ns();
    if (*idle_since_ns == 0)
        *idle_since_ns = now_ns;
    if (now_ns - *idle_since_ns < spin_ns >> world->spin_halvings && base_yield())
        return false; /* it went to the peer if that is on this very core */
    sleep_with_token(world);
    judge_spin(world, base_now_ns() - *idle_since_ns, spin_ns);
    *idle_since_ns = 0;
    return true;
}

bool comm_progress_until(struct comm_group *group, const atomic_int *done)
{
    struct comm_world *world = group->world;
    int64_t idle_since_ns = 0;
    bool interrupted = false;
    while (!atomic_load_explicit(done, memory_order_acquire)) {
        bool slept = step(world, &idle_since_ns, world->policy.spin_ns);
        comm_count_sleeps(&group->counters, slept);
        if (slept && !interrupted)
            interrupted = comm_interrupted(group);
    }
    return !interrupted;
}

void comm_progress_take(struct comm_world *world)
{
    if (pthread_mutex_trylock(&world->token) == 0)
        return;
    atomic_fetch_add(&world->token_wanted, 1);
    comm_progress_kick(world);
    pthread_mutex_lock(&world->token);
    atomic_fetch_sub(&world->token_wanted, 1);
}

void comm_progress_release(struct comm_world *world)
{
    bool busy = comm_engine_busy(world->engine);
    atomic_store(&world->work_left, busy);
    pthread_mutex_unlock(&world->token);
    if (busy || atomic_load(&world->queued) > 0)
        comm_progress_kick(world);
}

/* ---- the thread
 * -----------------------------------------------------------------------------------------------------
 */

#define HOLDER_PAUSE_US 200 /* between two looks at a token that a caller holds */

/* Works while there is work and nobody else wants the token; returns with it given back. Who takes
 * it then sees to it that the rest goes on. */
static void work(struct comm_world *world)
{
    int64_t idle_since_ns = 0;
    atomic_store(&world->work_left, 0);
    look_at_watch(world);
    comm_engine_poll(world->engine);
    while (!atomic_load(&world->stop) && atomic_load(&world->token_wanted) == 0 &&
           (comm_engine_busy(world->engine) || atomic_load(&world->queued) > 0))
        step(world, &idle_since_ns, world->thread_spin_ns);
    pthread_mutex_unlock(&world->token);
}

static void *progress_thread(void *user)
{
    struct comm_world *world = user;
    base_wake_soon(); /* a step of its own is short, and peers wait for it */
    while (!atomic_load(&world->stop)) {
        atomic_store(&world->thread_idle, 1);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load(&world->queued) == 0 && !atomic_load(&world->work_left) &&
            !atomic_load(&world->stop)) {
            struct epoll_event event;
            epoll_wait(world->watch_fd, &event, 1, COMM_TICK_MS);
        }
        atomic_store(&world->thread_idle, 0);
        /* A caller that holds the token starts what is queued, and kicks when it goes. */
        if (pthread_mutex_trylock(&world->token) == 0)
            work(world);
        else
            usleep(HOLDER_PAUSE_US);
    }
    return NULL;
}

enum shoal_status comm_progress_start(struct comm_world *world)
{
    int error = pthread_create(&world->thread, NULL, progress_thread, world);
    if (error != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, error, "the progress thread can't be made");
    world->thread_runs = true;
    return SHOAL_OK;
}

void comm_progress_stop(struct comm_world *world)
{
    if (!world->thread_runs)
        return;
    atomic_store(&world->stop, true);
    uint64_t one = 1;
    if (write(world->wake_fd, &one, sizeof(one)) < 0)
        base_log(BASE_LOG_DEBUG, "wake-up of the progress thread: counter full");
    comm_engine_wake(world->engine);
    pthread_join(world->thread, NULL);
    world->thread_runs = false;
}

void comm_ring_peers(struct comm_world *world, const struct comm_group *group)
{
    for (int i = 0; i < world->local_size; i++) {
        if (group->rank_of[world->local_ranks[i]] < 0)
            continue;
        struct region_control *control = comm_region_control_of(&world->host->regions[i]);
        uint64_t one = 1;
        if (base_bell_ring(&control->bell) &&
            write(world->host->event_fds[i], &one, sizeof(one)) < 0)
            continue; /* its counter is full: it will wake */
    }
}
