/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait_test.c: no wake-up may be lost, between processes and between threads, whatever the policy:
 * every wait below has no deadline but the test's own, so a lost one is a test that fails.
 */
#include "base/wait.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/options.h"
#include "base/shared.h"
#include "support/files.h"

#define ROUNDS     200000
#define LONGEST_MS 60000

/* Two players: each waits for its turn at its own bell. */
struct table {
    struct base_bell bells[2];
    atomic_uint turns[2];
};

struct player {
    struct table *table;
    int side;
    unsigned wanted;
};

static bool is_my_turn(void *user)
{
    struct player *player = user;
    return atomic_load_explicit(&player->table->turns[player->side], memory_order_acquire) ==
           player->wanted;
}

static bool play(struct table *table, int side, unsigned rounds,
                 const struct base_wait_policy *policy, unsigned seed, unsigned naps_per_1024)
{
    struct player player = {table, side, 0};
    for (unsigned round = 1; round <= rounds; round++) {
        player.wanted = round;
        if (side == 1 && !base_wait(&table->bells[side], policy, is_my_turn, &player,
                                    base_deadline_ns(LONGEST_MS)))
            return false;
        seed = seed * 1103515245u + 12345u;
        if ((seed >> 16) % 1024 < naps_per_1024) {
            struct timespec nap = {.tv_nsec = (long)(seed >> 8) % 200000};
            nanosleep(&nap, NULL);
        }
        atomic_store_explicit(&table->turns[1 - side], round, memory_order_release);
        base_bell_ring(&table->bells[1 - side]);
        if (side == 0 && !base_wait(&table->bells[side], policy, is_my_turn, &player,
                                    base_deadline_ns(LONGEST_MS)))
            return false;
    }
    return true;
}

static void play_as_processes(const struct base_wait_policy *policy, unsigned rounds,
                              unsigned naps_per_1024)
{
    struct base_shared shared;
    assert_int_equal(base_shared_create("test", sizeof(struct table), BASE_FORK_SHARES, &shared),
                     SHOAL_OK);
    assert_int_equal(base_shared_commit(&shared, 0, sizeof(struct table)), SHOAL_OK);
    pid_t pid = fork();
    if (pid == 0)
        _exit(play(shared.address, 1, rounds, policy, 77, naps_per_1024) ? 0 : 1);
    bool good = play(shared.address, 0, rounds, policy, 33, naps_per_1024);
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_true(good);
    assert_int_equal(result, 0);
    assert_int_equal(((struct table *)shared.address)->bells[0].sleepers, 0);
    base_shared_release(&shared);
}

static void processes_that_spin_lose_nothing(void **state)
{
    (void)state;
    struct base_wait_policy policy = {50000, 4};
    play_as_processes(&policy, ROUNDS, 0);
}

/* Straight to sleep: the narrow place between the last look and the futex is met all the time. */
static void processes_that_sleep_at_once_lose_nothing(void **state)
{
    (void)state;
    struct base_wait_policy policy = {0, 0};
    play_as_processes(&policy, ROUNDS / 2, 0);
}

static void processes_with_random_sleeps_lose_nothing(void **state)
{
    (void)state;
    struct base_wait_policy policy = {1000, 2};
    play_as_processes(&policy, ROUNDS / 2, 16);
}

struct seat {
    struct table *table;
    struct base_wait_policy policy;
    bool good;
};

static void *play_as_thread(void *argument)
{
    struct seat *seat = argument;
    seat->good = play(seat->table, 1, ROUNDS / 10, &seat->policy, 5, 4);
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    (void)state;
    struct table table;
    memset(&table, 0, sizeof(table));
    struct seat seat = {&table, {0, 1}, false};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, play_as_thread, &seat), 0);
    assert_true(play(&table, 0, ROUNDS / 10, &seat.policy, 6, 4));
    pthread_join(thread, NULL);
    assert_true(seat.good);
}

/* Many sleepers at one bell: one ring wakes all. */
struct crowd {
    struct base_bell bell;
    atomic_int gate;
    atomic_int through;
};

static bool gate_is_open(void *user)
{
    return atomic_load(&((struct crowd *)user)->gate) != 0;
}

static void *wait_at_gate(void *user)
{
    struct crowd *crowd = user;
    struct base_wait_policy policy = {0, 0};
    if (base_wait(&crowd->bell, &policy, gate_is_open, crowd, base_deadline_ns(LONGEST_MS)))
        atomic_fetch_add(&crowd->through, 1);
    return NULL;
}

static void one_ring_wakes_everybody(void **state)
{
    (void)state;
    enum { count = 16 };
    struct crowd crowd;
    pthread_t threads[count];
    memset(&crowd, 0, sizeof(crowd));
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_at_gate, &crowd), 0);
    while (atomic_load(&crowd.bell.sleepers) < count)
        base_sleep_ms(1);
    atomic_store(&crowd.gate, 1);
    assert_false(base_bell_ring(&crowd.bell));
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(crowd.through, count);
    assert_int_equal(crowd.bell.sleepers, 0);
}

static bool never(void *user)
{
    (*(int *)user)++;
    return false;
}

static void a_deadline_ends_the_wait(void **state)
{
    (void)state;
    struct base_bell bell;
    struct base_wait_policy policy = {1000, 1}, spinning = {10 * BASE_NS_PER_S, 0};
    int looks = 0;
    memset(&bell, 0, sizeof(bell));
    int64_t before_ns = base_now_ns();
    assert_false(base_wait(&bell, &policy, never, &looks, base_deadline_ns(20)));
    assert_true(base_now_ns() - before_ns >= 20 * BASE_NS_PER_MS);
    assert_true(looks > 2);
    assert_int_equal(bell.sleepers, 0);
    assert_false(base_wait(&bell, &policy, never, &looks, 0));
    before_ns = base_now_ns();
    assert_false(base_wait(&bell, &spinning, never, &looks, base_deadline_ns(5)));
    assert_true(base_now_ns() - before_ns < 9 * BASE_NS_PER_S);
}

static void a_quiet_bell_costs_no_number(void **state)
{
    (void)state;
    struct base_bell bell;
    memset(&bell, 0, sizeof(bell));
    assert_false(base_bell_ring(&bell));
    assert_int_equal(bell.number, 0);
    atomic_store(&bell.event_fd_waiter, 1);
    assert_true(base_bell_ring(&bell));
    assert_false(base_bell_ring(&bell));
    assert_int_equal(bell.event_fd_waiter, 0);
}

static void the_policy_follows_cores_and_option(void **state)
{
    (void)state;
    int cores = base_cores_granted();
    assert_true(cores >= 1);
    struct base_wait_policy alone = base_wait_policy_make(1);
    struct base_wait_policy crowded = base_wait_policy_make(cores + 1);
    assert_true(alone.spin_ns > crowded.spin_ns);
    assert_true(crowded.yield_count > 0);
    setenv("SHOAL_SPIN_US", "7", 1);
    base_options_reset();
    assert_int_equal(base_wait_policy_make(cores + 1).spin_ns, 7000);
    unsetenv("SHOAL_SPIN_US");
    base_options_reset();
}

/* ---- quotas ---------------------------------------------------------------------------------- */

static char folder[] = "/tmp/shoal-cgroup-XXXXXX";

static int cores_by(const char *list)
{
    char path[256];
    put_file(folder, "list", list);
    snprintf(path, sizeof(path), "%s/list", folder);
    return base_cgroup_cores(path, folder);
}

static void quotas_of_both_versions_are_read(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    put_file(folder, "a/b/cpu.max", "max 100000\n");
    put_file(folder, "a/cpu.max", "350000 100000\n");
    put_file(folder, "tight/cpu.max", "50000 100000\n");
    put_file(folder, "cpu/x/cpu.cfs_quota_us", "200000\n");
    put_file(folder, "cpu/x/cpu.cfs_period_us", "100000\n");
    put_file(folder, "cpu/free/cpu.cfs_quota_us", "-1\n");
    put_file(folder, "cpu/free/cpu.cfs_period_us", "100000\n");
    put_file(folder, "odd/cpu.max", "nonsense\n");
    assert_int_equal(cores_by("0::/a/b\n"), 3);
    assert_int_equal(cores_by("0::/a/b/hidden/deeper\n"), 3);
    assert_int_equal(cores_by("0::/tight\n"), 1);
    assert_int_equal(cores_by("0::/\n"), INT_MAX);
    assert_int_equal(cores_by("0::/odd\n"), INT_MAX);
    assert_int_equal(cores_by("5:memory:/x\n4:cpu,cpuacct:/x\n0::/a\n"), 2);
    assert_int_equal(cores_by("4:cpuset:/x\n"), INT_MAX);
    assert_int_equal(cores_by("4:cpu:/free\n"), INT_MAX);
    assert_int_equal(cores_by("nonsense\n\n:\n"), INT_MAX);
    assert_int_equal(base_cgroup_cores("/nonexistent", folder), INT_MAX);
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* A child on the same core that computes until it is killed. */
static pid_t compute_on(const cpu_set_t *core)
{
    pid_t pid = fork();
    if (pid == 0) {
        sched_setaffinity(0, sizeof(*core), core);
        for (volatile unsigned long i = 0;; i++)
            ;
    }
    return pid;
}

static void a_core_on_which_another_computes_is_not_yielded(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    pid_t pid = compute_on(&one);
    int64_t deadline_ns = base_deadline_ns(LONGEST_MS);
    bool yields = true;
    while (yields && base_now_ns() < deadline_ns)
        yields = base_yield();
    bool again = base_yield(); /* at once: it is remembered */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    sched_setaffinity(0, sizeof(all), &all);
    assert_false(yields);
    assert_false(again);
    while (!base_yield() && base_now_ns() < deadline_ns)
        ; /* and forgotten */
    assert_true(base_now_ns() < deadline_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_that_spin_lose_nothing),
        cmocka_unit_test(processes_that_sleep_at_once_lose_nothing),
        cmocka_unit_test(processes_with_random_sleeps_lose_nothing),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(one_ring_wakes_everybody),
        cmocka_unit_test(a_deadline_ends_the_wait),
        cmocka_unit_test(a_quiet_bell_costs_no_number),
        cmocka_unit_test(the_policy_follows_cores_and_option),
        cmocka_unit_test(a_core_on_which_another_computes_is_not_yielded),
        cmocka_unit_test(quotas_of_both_versions_are_read),
    };
    return cmocka_run_group_tests_name("base wait", tests, NULL, NULL);
}
