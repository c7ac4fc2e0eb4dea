/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.h: the one way to wait for a word in memory to change.
 *
 * Spin only while every rank of this host can have a core of its own; otherwise yield briefly, then
 * sleep in a futex. The writer wakes only when somebody sleeps (a bell counts its sleepers), so
 * that the fast path costs one fence and one load.
 *
 * Protocol (Dekker): the waiter announces itself, fences, looks at its condition again, then sleeps
 * on the bell's number as it was before the look. The writer changes the data, fences, looks for
 * sleepers, and if there are some adds one to the number and wakes. One of the two sees the other.
 */
#ifndef SHOAL_BASE_WAIT_H
#define SHOAL_BASE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A bell: in shared or private memory, zeroed to start. */
struct base_bell {
    atomic_uint number;   /* changes with each ring that had sleepers */
    atomic_uint sleepers; /* in futex */
    atomic_int
        event_fd_waiter; /* 1: the owner sleeps in poll() on its event fd; ring it there too */
    unsigned reserved;
};

/* Rings if somebody sleeps. Returns true if the owner must also be rung at its event fd (the caller
 * has the descriptor). The data that waiters look at must have been written before. */
bool base_bell_ring(struct base_bell *bell);

/* Whether a ring would wake anybody; what was written must be there before, as for a ring. */
bool base_bell_has_sleepers(struct base_bell *bell);

/* Whether the owner sleeps at its event fd; after a look for sleepers, whose fence holds here too.
 */
static inline bool base_bell_has_engine(const struct base_bell *bell)
{
    return atomic_load_explicit(&bell->event_fd_waiter, memory_order_acquire) != 0;
}

/* How long to spin; made once per group from the cores and the ranks on this host. */
struct base_wait_policy {
    int64_t spin_ns; /* pauses, with a yield now and then */
    int yield_count; /* then sched_yield this often */
};
/* cores granted to this process: affinity mask and cgroup quota. At least 1. */
int base_cores_granted(void);
struct base_wait_policy base_wait_policy_make(int ranks_on_host);

/* Waits until ready(user) is true, or deadline; true if ready. Calls ready() from this thread only.
 */
bool base_wait(struct base_bell *bell, const struct base_wait_policy *policy,
               bool (*ready)(void *user), void *user, int64_t deadline_ns);

/* Yields this thread's core to whoever is waited for. False if somebody else computes on it (it was
 * away for long, now or a short while ago): then sleep instead. */
bool base_yield(void);

/* How often this thread has slept in base_wait so far. */
uint64_t base_wait_sleeps(void);

/* The core that this thread is on. */
int base_core(void);
/* Moves this thread to another core of its affinity mask, if it has one; the mask stays what it
 * was. */
void base_leave_core(void);
/* Asks the scheduler for short slices for this thread, so that it runs soon after it is woken on a
 * core that computes, at no larger share of it. Only a hint: Linux before 6.12 ignores it. */
void base_wake_soon(void);

static inline void base_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
