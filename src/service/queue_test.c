/* SPDX-License-Identifier: Apache-2.0 */
/* queue_test.c: the order of jobs, what is kept for those that don't fit, and that nobody waits for
 * ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "service/queue.h"

#define JOBS_MAX 40

static struct service_queued job(int64_t id, int64_t priority, int64_t cores, int64_t accelerators)
{
    return (struct service_queued){
        .id = id,
        .priority = priority,
        .need = {.core_thousands = cores * 1000, .accelerators = accelerators}};
}

static struct service_room room(int64_t cores, int64_t accelerators)
{
    return (struct service_room){.core_thousands = cores * 1000, .accelerators = accelerators};
}

/* The ids of those that start, in their order, as digits. */
static void expect(struct service_queued *jobs, size_t count, struct service_room machine,
                   const char *ids)
{
    char found[JOBS_MAX + 1] = "";
    size_t used = 0;
    service_queue_admit(jobs, count, machine);
    for (size_t i = 0; i < count; i++)
        if (jobs[i].starts)
            found[used++] = (char)('0' + jobs[i].id);
    found[used] = '\0';
    assert_string_equal(found, ids);
}

static void test_older_and_more_important_ones_go_first(void **state)
{
    (void)state;
    struct service_queued jobs[] = {job(3, 0, 1, 0), job(1, 0, 1, 0), job(2, 5, 1, 0)};
    expect(jobs, 3, room(2, 0), "21");
    expect(jobs, 3, room(0, 0), "");
    expect(jobs, 3, room(3, 0), "213");
}

static void test_what_a_large_job_waits_for_is_kept_for_it(void **state)
{
    (void)state;
    struct service_queued jobs[] = {job(1, 0, 8, 0), job(2, 0, 1, 0)};
    expect(jobs, 2, room(4, 0), "");
    expect(jobs, 2, room(8, 0), "1");
    expect(jobs, 2, room(9, 0), "12");
}

static void test_those_that_need_no_accelerator_pass(void **state)
{
    (void)state;
    struct service_queued jobs[] = {job(1, 0, 2, 4), job(2, 0, 1, 1), job(3, 0, 1, 0)};
    expect(jobs, 3, room(8, 2), "3");
    expect(jobs, 3, room(8, 5), "123");
}

static void test_a_job_without_needs_starts_where_nothing_is_left(void **state)
{
    (void)state;
    struct service_queued none = {.id = 1};
    struct service_room negative = {-1, -1, -1};
    service_queue_admit(&none, 1, negative);
    assert_true(none.starts);
}

static void expect_ends(struct service_queued *running, size_t count, struct service_room free,
                        struct service_queued waiting, const char *ids)
{
    char found[JOBS_MAX + 1] = "";
    size_t used = 0;
    service_queue_interrupt(running, count, free, &waiting);
    for (size_t i = 0; i < count; i++)
        if (running[i].ends)
            found[used++] = (char)('0' + running[i].id);
    found[used] = '\0';
    assert_string_equal(found, ids);
}

static void test_spot_jobs_make_room(void **state)
{
    (void)state;
    struct service_queued running[] = {job(1, 0, 2, 0), job(2, 0, 2, 1), job(3, 9, 2, 0),
                                       job(4, 0, 2, 0), job(5, 0, 0, 2)};
    for (int i = 0; i < 5; i++)
        running[i].is_spot = running[i].id != 4;
    expect_ends(running, 5, room(0, 0), job(6, 0, 2, 0), "2");
    expect_ends(running, 5, room(1, 0), job(6, 0, 5, 0), "12");
    expect_ends(running, 5, room(0, 0), job(6, 0, 0, 3), "25");
    expect_ends(running, 5, room(0, 0), job(6, 0, 6, 0), "");
    expect_ends(running, 5, room(0, 0), job(6, 9, 6, 0), "312");
    expect_ends(running, 5, room(9, 0), job(6, 0, 6, 0), "");
    struct service_queued queue[] = {job(1, 0, 1, 0), job(2, 0, 1, 0)};
    queue[0].is_spot = true;
    expect(queue, 2, room(1, 0), "2");
}

/* Random jobs on a machine where each runs for some rounds: never more than there is, everyone runs
 * in the end, and of two jobs that need the same the more important or older one is first. */
static void test_random_queues_run_empty(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 50; seed++) {
        struct service_queued jobs[JOBS_MAX];
        int64_t started_at[JOBS_MAX + 1] = {0}, ends_at[JOBS_MAX + 1] = {0};
        struct service_room machine = room(8, 4), needs[JOBS_MAX + 1];
        int64_t priorities[JOBS_MAX + 1];
        size_t count = JOBS_MAX;
        srand(seed);
        for (int i = 0; i < JOBS_MAX; i++) {
            jobs[i] = job(i + 1, rand() % 3, 1 + rand() % 8, rand() % 5);
            needs[i + 1] = jobs[i].need;
            priorities[i + 1] = jobs[i].priority;
        }
        for (int64_t round = 1; count > 0; round++) {
            assert_true(round < 10000);
            for (int i = 1; i <= JOBS_MAX; i++)
                if (ends_at[i] == round)
                    service_room_give(&machine, &needs[i]);
            service_queue_admit(jobs, count, machine);
            size_t left = 0;
            for (size_t i = 0; i < count; i++) {
                int64_t id = jobs[i].id;
                if (jobs[i].starts) {
                    service_room_take(&machine, &needs[id]);
                    started_at[id] = round;
                    ends_at[id] = round + 1 + rand() % 5;
                } else {
                    jobs[left++] = jobs[i];
                }
            }
            count = left;
            assert_true(machine.core_thousands >= 0 && machine.accelerators >= 0);
        }
        for (int a = 1; a <= JOBS_MAX; a++)
            for (int b = a + 1; b <= JOBS_MAX; b++)
                if (memcmp(&needs[a], &needs[b], sizeof(needs[a])) == 0 &&
                    priorities[a] >= priorities[b])
                    assert_true(started_at[a] <= started_at[b]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_older_and_more_important_ones_go_first),
        cmocka_unit_test(test_what_a_large_job_waits_for_is_kept_for_it),
        cmocka_unit_test(test_those_that_need_no_accelerator_pass),
        cmocka_unit_test(test_a_job_without_needs_starts_where_nothing_is_left),
        cmocka_unit_test(test_spot_jobs_make_room),
        cmocka_unit_test(test_random_queues_run_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
