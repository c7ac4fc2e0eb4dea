/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.c: what becomes of the worlds when the process as a whole forks or ends.
 *
 * A forked child has its parent's memory but not its threads, so it may use nothing of its worlds.
 *
 * A process that comes to its end leaves all worlds in good order, as if it had freed its groups:
 * what it has sent arrives (a socket that closes with unread frames would throw it away), and peers
 * that need nothing more of it go on. Operations under way just stop: only the peers know whether
 * they need more of them. Memory stays, since other threads may be in calls until the process is
 * gone; the token of a world that was left is never given back, so nothing moves any more.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "comm/comm.h"

#define TOKEN_MS 1000 /* a blocking call on another thread has it */
#define LOOK_MS  1

static atomic_bool forked, departed;
static pthread_mutex_t worlds_lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm_world *worlds;

enum shoal_status comm_process_check(void)
{
    if (atomic_load_explicit(&forked, memory_order_relaxed))
        return base_error(SHOAL_ERR_STATE,
                          "this process was forked after shoal started; a child may not use its "
                          "parent's groups: start it by exec, or fork before shoal_group_create");
    if (atomic_load_explicit(&departed, memory_order_relaxed))
        return base_error(SHOAL_ERR_STATE, "this process has left all groups: it is ending");
    return SHOAL_OK;
}

bool comm_process_departed(void)
{
    return atomic_load(&departed);
}

/* ---- the end
 * ---------------------------------------------------------------------------------------------- */

static bool take_token(struct comm_world *world)
{
    int64_t deadline_ns = base_deadline_ns(TOKEN_MS);
    atomic_fetch_add(&world->token_wanted, 1);
    comm_progress_kick(world);
    while (pthread_mutex_trylock(&world->token) != 0) {
        if (base_now_ns() > deadline_ns)
            return false;
        base_sleep_ms(LOOK_MS);
    }
    return true;
}

/* Where a call on another thread has the engine, peers learn from the end of the process. */
static void depart(struct comm_world *world)
{
    if (!take_token(world))
        return;
    comm_progress_flush(world);
    comm_world_depart(world, comm_group_linger_ms(world->root));
}

void comm_process_depart(void)
{
    if (atomic_load(&forked) || atomic_exchange(&departed, true))
        return;
    pthread_mutex_lock(&worlds_lock);
    for (struct comm_world *world = worlds; world; world = world->next)
        depart(world);
    pthread_mutex_unlock(&worlds_lock);
}

/* ---- watching
 * --------------------------------------------------------------------------------------------- */

static void note_fork(void)
{
    atomic_store(&forked, true);
}

static void watch(void)
{
    pthread_atfork(NULL, NULL, note_fork);
    atexit(comm_process_depart);
}

void comm_process_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch);
}

void comm_process_add(struct comm_world *world)
{
    pthread_mutex_lock(&worlds_lock);
    world->next = worlds;
    worlds = world;
    pthread_mutex_unlock(&worlds_lock);
}

void comm_process_remove(const struct comm_world *world)
{
    pthread_mutex_lock(&worlds_lock);
    for (struct comm_world **at = &worlds; *at; at = &(*at)->next)
        if (*at == world) {
            *at = world->next;
            break;
        }
    pthread_mutex_unlock(&worlds_lock);
}
