/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_reuse_test.c: many groups that are made, break and are freed, in a world that goes on:
 * the shared memory of each is used again. There is room for a few of them at a time.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/scenario.h"

#define ROOM           "SHOAL_SHARED_BYTES=48M" /* for fewer than twice AT_A_TIME groups */
#define ROUNDS         30
#define AT_A_TIME      9
#define ROUNDS_OF_SOME 6

/* Ways to go through a group's life. */
enum life { USED, UNUSED, ABORTED, ABORTED_UNUSED, ABORTED_AMID, LIVES };

/* The others learn it in an operation, in which they are already or not, or without one. */
static int break_it(shoal_group_t group, enum life life, bool breaks)
{
    enum shoal_status status = SHOAL_OK;
    if (breaks && life == ABORTED_AMID)
        poll(NULL, 0, 2);
    if (breaks)
        REQUIRE(shoal_group_abort(group, "as the test says") == SHOAL_OK);
    if (life != ABORTED_UNUSED)
        status = scenario_sum(group, life == ABORTED_AMID ? 300000 : 10, false);
    while (status == SHOAL_OK && life == ABORTED_UNUSED) {
        status = shoal_group_health(group);
        poll(NULL, 0, status == SHOAL_OK);
    }
    return expect_status(group, status, SHOAL_ERR_ABORTED, "after the abort");
}

static int live(shoal_group_t parent, int round, enum life life)
{
    shoal_group_t group = NULL;
    int breaker = round % shoal_group_size(parent);
    REQUIRE(expect_status(parent, shoal_group_split(parent, 0, 0, &group), SHOAL_OK, "split") == 0);
    bool breaks = shoal_group_rank(group) == breaker;
    if (life != UNUSED && life != ABORTED_UNUSED)
        CHECK(scenario_sum(group, 1000 + (uint64_t)round, round % 2));
    REQUIRE(expect_status(parent, scenario_sum(parent, 10, false), SHOAL_OK, "a sum") == 0);
    if (life >= ABORTED) /* now that all have done theirs */
        REQUIRE(break_it(group, life, breaks) == 0);
    enum shoal_status status = shoal_group_free(group);
    group = NULL;
    CHECK(status);
    return 0;
}

static int live_again_and_again(shoal_group_t group, struct board *board)
{
    for (int round = 0; round < ROUNDS; round++)
        REQUIRE(live(group, round, (enum life)board->variant) == 0);
    return 0;
}

static void test_lives(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++)
        for (int i = 0; i < 2; i++) /* by slots, and through the engine */
            scenario_run(&(struct scenario){.layout = &scenario_layouts[i],
                                            .variant = life,
                                            .environment = {ROOM},
                                            .act = live_again_and_again});
}

/* ---- with one who died
 * --------------------------------------------------------------------------------------------- */

static int take_some(shoal_group_t group, const int *ranks, int count, shoal_group_t *out)
{
    for (int i = 0; i < AT_A_TIME; i++) {
        CHECK(shoal_group_subset(group, ranks, count, "one of some", &out[i]));
        REQUIRE(expect_status(out[i], scenario_sum(out[i], 5000, i % 2), SHOAL_OK, "a sum") == 0);
    }
    return 0;
}

static int free_some(shoal_group_t group, shoal_group_t *some)
{
    for (int i = 0; i < AT_A_TIME; i++)
        CHECK(shoal_group_free(some[i]));
    return 0;
}

/* The groups that broke with the victim make room for those of the others. */
static int go_on_after_a_death(shoal_group_t group, struct board *board)
{
    static const int all[] = {0, 1, 2};
    int rank = shoal_group_rank(group), left[2], count = 0;
    shoal_group_t some[AT_A_TIME], others = NULL;
    for (int i = 0; i < 3; i++)
        if (i != board->victim)
            left[count++] = i;
    if (rank != board->victim)
        CHECK(shoal_group_subset(group, left, 2, "the others", &others));
    REQUIRE(take_some(group, all, 3, some) == 0);
    atomic_store(&board->stage[rank], 1);
    if (rank == board->victim)
        return board_wait(&board->go, 1000);
    while (shoal_group_health(some[0]) == SHOAL_OK)
        poll(NULL, 0, 1);
    REQUIRE(free_some(group, some) == 0);
    static const int both[] = {0, 1};
    for (int round = 0; round < ROUNDS_OF_SOME; round++) {
        REQUIRE(take_some(others, both, 2, some) == 0);
        REQUIRE(free_some(group, some) == 0);
    }
    REQUIRE(expect_status(others, shoal_group_free(others), SHOAL_OK, "free") == 0);
    return 0;
}

static void kill_victim(struct board *board, const pid_t *pids)
{
    for (int rank = 0; rank < 3; rank++)
        board_wait(&board->stage[rank], 1);
    kill(pids[board->victim], SIGKILL);
}

static void test_death(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++)
        scenario_run(&(struct scenario){.layout = &scenario_layouts[0],
                                        .victim = victim,
                                        .victim_code = 256 + SIGKILL,
                                        .environment = {ROOM},
                                        .act = go_on_after_a_death,
                                        .meanwhile = kill_victim});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lives),
        cmocka_unit_test(test_death),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
