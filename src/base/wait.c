/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.c: spin, yield, sleep.
 *
 * Invariants of a bell:
 *  1. A waiter sleeps only after it has added itself to `sleepers` and has then, with a full fence
 *     in between, found its condition false.
 *  2. A writer reads `sleepers` only after its data, with a full fence in between; if there are
 *     any, it changes `number` before it wakes.
 *  3. The waiter gives the kernel the `number` that it read before its last look.
 * By 1 and 2 the waiter sees the data or the writer sees the sleeper; by 3 a ring between the last
 * look and the sleep makes the kernel refuse to sleep.
 *
 * Yielding is for ranks that share a core with each other. A yielded core that comes back late was
 * taken by somebody who computes, and each further yield would cost a slice of his (milliseconds);
 * a sleeper is put before him when it is woken. So from then on nothing is yielded for a while.
 *
 * A process that dies asleep leaves `sleepers` too high: later rings make a system call in vain,
 * nothing else.
 */
#include "base/wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/options.h"

#define SPIN_ALONE_NS    (50 * INT64_C(1000))
#define SPIN_CROWDED_NS  0
#define YIELDS_ALONE     4
#define YIELDS_CROWDED   50
#define PAUSES_PER_YIELD 16
#define CORE_AWAY_NS     (200 * INT64_C(1000)) /* longer than other ranks' steps */
#define CONTENDED_NS     (20 * BASE_NS_PER_MS)
#define SLICE_SHORT_NS   (100 * UINT64_C(1000))

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

/* The writer's fence and look, and the waiter's announcement and fence. The thread sanitizer does
 * not know fences; for it both are read-modify-writes of the same word, which orders them as well:
 * the later one of the two sees what the other wrote before. */
#ifdef THREAD_SANITIZER
static unsigned fence_and_look(struct base_bell *bell)
{
    return atomic_fetch_add(&bell->sleepers, 0);
}

static void announce_and_fence(struct base_bell *bell)
{
    atomic_fetch_add(&bell->sleepers, 1);
}
#else
static unsigned fence_and_look(struct base_bell *bell)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&bell->sleepers, memory_order_relaxed);
}

static void announce_and_fence(struct base_bell *bell)
{
    atomic_fetch_add(&bell->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
}
#endif

/* Not FUTEX_PRIVATE_FLAG: bells lie in memory that several processes map. */
static void futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps while *word == value, until woken or the deadline (absolute, monotonic). */
static void futex_wait(atomic_uint *word, unsigned value, int64_t deadline_ns)
{
    struct timespec until = {.tv_sec = deadline_ns / BASE_NS_PER_S,
                             .tv_nsec = deadline_ns % BASE_NS_PER_S};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value,
            deadline_ns == BASE_NO_DEADLINE ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

bool base_bell_has_sleepers(struct base_bell *bell)
{
    return fence_and_look(bell) != 0 || base_bell_has_engine(bell);
}

bool base_bell_ring(struct base_bell *bell)
{
    if (fence_and_look(bell) != 0) {
        atomic_fetch_add(&bell->number, 1);
        futex_wake_all(&bell->number);
    }
    return atomic_load_explicit(&bell->event_fd_waiter, memory_order_relaxed) != 0 &&
           atomic_exchange(&bell->event_fd_waiter, 0) != 0;
}

struct base_wait_policy base_wait_policy_make(int ranks_on_host)
{
    struct base_wait_policy policy = {SPIN_CROWDED_NS, YIELDS_CROWDED};
    if (base_cores_granted() >= ranks_on_host)
        policy = (struct base_wait_policy){SPIN_ALONE_NS, YIELDS_ALONE};
    int64_t spin_us = base_option_int(OPTION_SPIN_US);
    if (spin_us >= 0)
        policy.spin_ns = spin_us * 1000;
    return policy;
}

/* Somebody else computes on this core: until then, yielding it would cost his whole slice, while
 * who sleeps is given the core soon after he is woken. */
static _Thread_local int64_t contended_until_ns;

bool base_yield(void)
{
    int64_t start_ns = base_now_ns();
    if (start_ns < contended_until_ns)
        return false;
    sched_yield();
    int64_t end_ns = base_now_ns();
    if (end_ns - start_ns < CORE_AWAY_NS)
        return true;
    contended_until_ns = end_ns + CONTENDED_NS;
    return false;
}

/* Spins and yields as the policy says; true if ready. */
static bool wait_awake(const struct base_wait_policy *policy, bool (*ready)(void *user), void *user,
                       int64_t deadline_ns)
{
    bool yields = true;
    if (policy->spin_ns > 0) {
        int64_t end_ns = base_now_ns() + policy->spin_ns;
        if (end_ns > deadline_ns)
            end_ns = deadline_ns;
        do {
            for (int i = 0; i < PAUSES_PER_YIELD; i++) {
                base_pause();
                if (ready(user))
                    return true;
            }
            /* who is waited for may be on this very core, whatever the counts say */
            yields = yields && base_yield();
            if (ready(user))
                return true;
        } while (base_now_ns() < end_ns);
    }
    for (int i = 0; i < policy->yield_count && yields; i++) {
        yields = base_yield();
        if (ready(user))
            return true;
    }
    return false;
}

static _Thread_local uint64_t sleeps;

uint64_t base_wait_sleeps(void)
{
    return sleeps;
}

/* One announced look, and a sleep if it finds nothing; true if ready. */
static bool wait_asleep(struct base_bell *bell, bool (*ready)(void *user), void *user,
                        int64_t deadline_ns)
{
    unsigned number = atomic_load(&bell->number);
    announce_and_fence(bell);
    bool done = ready(user);
    if (!done) {
        sleeps++;
        futex_wait(&bell->number, number, deadline_ns);
    }
    atomic_fetch_sub(&bell->sleepers, 1);
    return done;
}

int base_core(void)
{
    return sched_getcpu();
}

void base_leave_core(void)
{
    cpu_set_t all, others;
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return; /* more cores than the set holds: the kernel's choice stands */
    others = all;
    CPU_CLR((size_t)sched_getcpu(), &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0)
        sched_setaffinity(0, sizeof(all), &all);
}

/* The kernel's struct sched_attr in its first version; glibc 2.36 does not have it. */
struct thread_schedule {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns; /* of an ordinary thread: its slice, 0.1 ms at least */
    uint64_t deadline_ns;
    uint64_t period_ns;
};

void base_wake_soon(void)
{
    struct thread_schedule schedule = {.size = sizeof(schedule)};
    if (syscall(SYS_sched_getattr, 0, &schedule, sizeof(schedule), 0) != 0 ||
        schedule.policy != SCHED_OTHER)
        return;
    schedule.runtime_ns = SLICE_SHORT_NS;
    syscall(SYS_sched_setattr, 0, &schedule, 0);
}

bool base_wait(struct base_bell *bell, const struct base_wait_policy *policy,
               bool (*ready)(void *user), void *user, int64_t deadline_ns)
{
    if (ready(user) || wait_awake(policy, ready, user, deadline_ns))
        return true;
    while (!wait_asleep(bell, ready, user, deadline_ns)) {
        if (ready(user))
            return true;
        if (deadline_ns != BASE_NO_DEADLINE && base_now_ns() >= deadline_ns)
            return ready(user);
    }
    return true;
}
