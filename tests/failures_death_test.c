/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_death_test.c: ranks that are killed, at every moment and on every path. All others end
 * with SHOAL_ERR_PEER_LOST that names the rank, its host and the operation that was under way, long
 * before their deadline; a sub-group without the dead rank goes on.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/scenario.h"

#define TIMEOUT_MS 60000
#define QUICK_MS   20000 /* a generous upper bound: seconds on an idle machine */
#define LARGE      (UINT64_C(1) << 20)

static bool is_victim(const struct board *board, int rank)
{
    return rank == board->victim || (board->second > 0 && rank == board->second);
}

/* Waits to be killed. */
static int await_death(struct board *board)
{
    return board_wait(&board->go, 1000);
}

/* A rank that was never linked with the victim by tcp finds nobody at its port. */
static bool says_dead(shoal_group_t group, enum shoal_status status)
{
    return status == SHOAL_ERR_PEER_LOST || (status == SHOAL_ERR_PEER_UNREACHABLE &&
                                             strstr(shoal_last_error(group), "Connection refused"));
}

/* Of two victims either may be named. */
static int check_cause(shoal_group_t group, struct board *board, enum shoal_status status)
{
    char first[64], second[64];
    snprintf(first, sizeof(first), "rank %d (host host", board->victim);
    snprintf(second, sizeof(second), "rank %d (host host", board->second);
    if (!says_dead(group, status))
        return expect_status(group, status, SHOAL_ERR_PEER_LOST, "after a death");
    if (board->second == 0 || !strstr(shoal_last_error(group), second)) {
        EXPECT(shoal_group_health(group), status, first);
    }
    REQUIRE(scenario_since_ms(atomic_load(&board->at_ns)) < QUICK_MS);
    return 0;
}

/* Ends the victims, in the test's process, as soon as all ranks have come to step `step`. */
static void kill_at(struct board *board, const pid_t *pids, int size, int step)
{
    for (int rank = 0; rank < size; rank++)
        if (board_wait(&board->stage[rank], step))
            break;
    atomic_store(&board->at_ns, scenario_now_ns());
    kill(pids[board->victim], SIGKILL);
    if (board->second > 0)
        kill(pids[board->second], SIGKILL);
    atomic_store(&board->go, 1);
}

static void kill_at_first_step(struct board *board, const pid_t *pids)
{
    kill_at(board, pids, board->size, 1);
}

/* ---- the moments
 * ---------------------------------------------------------------------------------------------- */

#define VARIANT_LATER 1

/* Dead before the first operation. */
static int die_before(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    atomic_store(&board->stage[rank], 1);
    if (is_victim(board, rank))
        return await_death(board);
    REQUIRE(board_wait(&board->go, 1) == 0);
    return check_cause(group, board, scenario_sum(group, 1000, board->variant == VARIANT_LATER));
}

/* Dead between two operations: the next one fails. */
static int die_after(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    CHECK(scenario_sum(group, 1000, false));
    CHECK(scenario_sum(group, 10, true));
    atomic_store(&board->stage[rank], 1);
    if (is_victim(board, rank))
        return await_death(board);
    REQUIRE(board_wait(&board->go, 1) == 0);
    return check_cause(group, board, scenario_sum(group, 10, board->variant == VARIANT_LATER));
}

/* Dead while nobody calls anything: the group's health tells. */
static int die_idle(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    CHECK(shoal_barrier(group, NULL));
    CHECK(scenario_sum(group, 10, false));
    atomic_store(&board->stage[rank], 1);
    if (is_victim(board, rank))
        return await_death(board);
    enum shoal_status status = SHOAL_OK;
    int64_t begun_ns = scenario_now_ns();
    while (status == SHOAL_OK && scenario_since_ms(begun_ns) < TIMEOUT_MS) {
        poll(NULL, 0, 5);
        status = shoal_group_health(group);
    }
    return check_cause(group, board, status);
}

/* Dead in the midst of operations with large payloads. Every sum that is OK is right. */
static int die_within(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    enum shoal_status status = SHOAL_OK;
    for (int round = 0; status == SHOAL_OK; round++) {
        if (round == 2)
            atomic_store(&board->stage[rank], 1);
        status = scenario_sum(group, LARGE, board->variant == VARIANT_LATER);
    }
    return check_cause(group, board, status);
}

/* Many requests under way, of all sorts; the victim takes part in none. */
static int die_with_requests(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    static int64_t in[LARGE], out[4 * LARGE], more[LARGE];
    shoal_request_t requests[5] = {NULL};
    CHECK(scenario_sum(group, 1000, false));
    if (is_victim(board, rank)) {
        atomic_store(&board->stage[rank], 1);
        return await_death(board);
    }
    CHECK(shoal_allreduce(in, more, LARGE, SHOAL_I64, SHOAL_SUM, group, &requests[0]));
    CHECK(shoal_allgather(in, out, LARGE, SHOAL_I64, group, &requests[1]));
    CHECK(shoal_barrier(group, &requests[2]));
    CHECK(shoal_send(in, LARGE, SHOAL_I64, board->victim, 1, group, &requests[3]));
    CHECK(shoal_recv(more, 1, SHOAL_I64, board->victim, 1, NULL, group, &requests[4]));
    atomic_store(&board->stage[rank], 1);
    for (int i = 0; i < 5; i++)
        REQUIRE(check_cause(group, board, shoal_request_wait(&requests[i], -1)) == 0);
    REQUIRE(size > 1);
    return 0;
}

/* Those who are left go on in a group of their own. */
static int go_on_without(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group), left[8], count = 0;
    shoal_group_t others = NULL;
    for (int i = 0; i < size; i++)
        if (i != board->victim)
            left[count++] = i;
    CHECK(scenario_sum(group, 1000, false));
    if (rank != board->victim)
        CHECK(shoal_group_subset(group, left, count, "survivors", &others));
    atomic_store(&board->stage[rank], 1);
    if (rank == board->victim)
        return await_death(board);
    REQUIRE(board_wait(&board->go, 1) == 0);
    REQUIRE(check_cause(group, board, scenario_sum(group, 10, false)) == 0);
    for (int i = 0; i < 20; i++)
        REQUIRE(expect_status(others, scenario_sum(others, i % 2 ? 7 : 100000, i % 3), SHOAL_OK,
                              "a sum of those who are left") == 0);
    REQUIRE(expect_status(others, shoal_group_free(others), SHOAL_OK, "free") == 0);
    return 0;
}

/* The second dies when the others have seen the first's death and go on in a group of their own. */
static int die_one_after_the_other(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group), left[8], count = 0;
    bool later = board->variant == VARIANT_LATER;
    shoal_group_t others = NULL;
    char second[64];
    for (int i = 0; i < size; i++)
        if (i != board->victim)
            left[count++] = i;
    CHECK(scenario_sum(group, 1000, false));
    if (rank != board->victim)
        CHECK(shoal_group_subset(group, left, count, "survivors", &others));
    atomic_store(&board->stage[rank], 1);
    if (rank == board->victim)
        return await_death(board);
    REQUIRE(board_wait(&board->go, 1) == 0);
    REQUIRE(check_cause(group, board, scenario_sum(group, 10, later)) == 0);
    REQUIRE(expect_status(others, scenario_sum(others, 1000, later), SHOAL_OK,
                          "a sum of those who are left") == 0);
    atomic_store(&board->stage[rank], 2);
    if (rank == board->second)
        return await_death(board);
    REQUIRE(board_wait(&board->go, 2) == 0);
    enum shoal_status status = scenario_sum(others, 1000, later);
    snprintf(second, sizeof(second), "rank %d (host host",
             board->second - (board->second > board->victim));
    REQUIRE(says_dead(others, status));
    REQUIRE(strstr(shoal_last_error(others), second));
    REQUIRE(scenario_since_ms(atomic_load(&board->at_ns)) < QUICK_MS);
    return expect_status(others, shoal_group_free(others), SHOAL_OK, "free");
}

static void kill_one_after_the_other(struct board *board, const pid_t *pids)
{
    const int victims[2] = {board->victim, board->second};
    for (int i = 0; i < 2; i++) {
        for (int rank = 0; rank < board->size; rank++)
            if ((i == 0 || rank != victims[0]) && board_wait(&board->stage[rank], i + 1))
                return;
        atomic_store(&board->at_ns, scenario_now_ns());
        kill(pids[victims[i]], SIGKILL);
        atomic_store(&board->go, i + 1);
    }
}

/* ---- after the last operation
 * ---------------------------------------------------------------------------------------------- */

enum { LAST_LATER = 1, LAST_LARGE = 2, LAST_BY_EXIT = 4, LAST_VARIANTS = 8 };

/* The victim ends as soon as it has the last sum. What the others need of it is there by then. */
static int end_after_last_sum(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    bool large = board->variant & LAST_LARGE, later = board->variant & LAST_LATER;
    CHECK(scenario_sum(group, 1000, false));
    atomic_store(&board->stage[rank], 1);
    if (is_victim(board, rank) && !large)
        REQUIRE(board_wait(&board->go, 1) == 0);
    CHECK(scenario_sum(group, large ? LARGE : 100, later));
    if (is_victim(board, rank) && board->variant & LAST_BY_EXIT)
        exit(0);
    if (is_victim(board, rank))
        return 0;
    atomic_store(&board->stage[rank], 2);
    REQUIRE(board_wait(&board->go, 2) == 0);
    return check_cause(group, board, scenario_sum(group, 10, false));
}

static bool is_asleep(pid_t pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
    fclose(file);
    return state == 'S';
}

/* The others sleep in an operation that lacks the victim's part. The error names it. */
static int die_awaited(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    CHECK(shoal_barrier(group, NULL));
    atomic_store(&board->stage[rank], 1);
    if (is_victim(board, rank))
        return await_death(board);
    REQUIRE(check_cause(group, board, scenario_sum(group, 1000, false)) == 0);
    EXPECT(shoal_group_health(group), SHOAL_ERR_PEER_LOST,
           " is lost during allreduce(1000 x i64, sum) #2: ");
    return 0;
}

static void kill_when_others_sleep(struct board *board, const pid_t *pids)
{
    for (int rank = 0; rank < board->size; rank++)
        if (board_wait(&board->stage[rank], 1))
            return;
    for (int rank = 0; rank < board->size; rank++)
        while (rank != board->victim && !is_asleep(pids[rank]))
            poll(NULL, 0, 1);
    poll(NULL, 0, 20);
    kill_at(board, pids, 0, 1);
}

static void test_awaited(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++) {
        struct scenario scenario = {.layout = layout,
                                    .timeout_ms = TIMEOUT_MS,
                                    .victim = layout->size - 1,
                                    .victim_code = 256 + SIGKILL,
                                    .act = die_awaited,
                                    .meanwhile = kill_when_others_sleep};
        scenario_run(&scenario);
    }
}

/* The others stand still, each within the sum, while the victim takes its part in it and ends. */
static void end_while_others_stand(struct board *board, const pid_t *pids)
{
    siginfo_t ended;
    bool stand = !(board->variant & LAST_LARGE);
    for (int rank = 0; rank < board->size; rank++)
        if (board_wait(&board->stage[rank], 1))
            return;
    for (int rank = 0; stand && rank < board->size; rank++) {
        while (!is_asleep(pids[rank]))
            poll(NULL, 0, 1);
        poll(NULL, 0, 5);
        if (rank != board->victim)
            kill(pids[rank], SIGSTOP);
    }
    atomic_store(&board->at_ns, scenario_now_ns());
    atomic_store(&board->go, 1);
    waitid(P_PID, (id_t)pids[board->victim], &ended, WEXITED | WNOWAIT);
    for (int rank = 0; stand && rank < board->size; rank++)
        if (rank != board->victim)
            kill(pids[rank], SIGCONT);
    for (int rank = 0; rank < board->size; rank++)
        if (rank != board->victim && board_wait(&board->stage[rank], 2))
            return;
    atomic_store(&board->go, 2);
}

/* One that ends without exit takes what is on its way with it, but for what lies in memory. */
static void test_after_last(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int variant = layout->path == PATH_LOCAL ? 0 : LAST_BY_EXIT; variant < LAST_VARIANTS;
             variant++) {
            struct scenario scenario = {.layout = layout,
                                        .timeout_ms = TIMEOUT_MS,
                                        .variant = variant,
                                        .victim = layout->size - 1,
                                        .victim_stays = true,
                                        .act = end_after_last_sum,
                                        .meanwhile = end_while_others_stand};
            scenario_run(&scenario);
        }
}

/* ---- all of them
 * ---------------------------------------------------------------------------------------------- */

/* Each rank dies once, the first of each host among them. */
static void kill_each(int (*act)(shoal_group_t group, struct board *board), int variant)
{
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int victim = 0; victim < layout->size; victim++) {
            struct scenario scenario = {.layout = layout,
                                        .timeout_ms = TIMEOUT_MS,
                                        .variant = variant,
                                        .victim = victim,
                                        .victim_code = 256 + SIGKILL,
                                        .by_address = victim % 2 == 0,
                                        .act = act,
                                        .meanwhile = kill_at_first_step};
            scenario_run(&scenario);
        }
}

static void test_before(void **state)
{
    (void)state;
    kill_each(die_before, 0);
    kill_each(die_before, VARIANT_LATER);
}

static void test_after(void **state)
{
    (void)state;
    kill_each(die_after, 0);
    kill_each(die_after, VARIANT_LATER);
}

static void test_idle(void **state)
{
    (void)state;
    kill_each(die_idle, 0);
}

static void test_within(void **state)
{
    (void)state;
    kill_each(die_within, 0);
    kill_each(die_within, VARIANT_LATER);
}

static void test_with_requests(void **state)
{
    (void)state;
    kill_each(die_with_requests, 0);
}

static void test_go_on_without(void **state)
{
    (void)state;
    kill_each(go_on_without, 0);
}

static void test_two_at_once(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int later = 0; later < 2; later++) {
            struct scenario scenario = {.layout = layout,
                                        .timeout_ms = TIMEOUT_MS,
                                        .variant = later,
                                        .victim = 0,
                                        .second = layout->size - 1,
                                        .victim_code = 256 + SIGKILL,
                                        .act = die_within,
                                        .meanwhile = kill_at_first_step};
            scenario_run(&scenario);
            scenario.act = die_before;
            scenario_run(&scenario);
        }
}

static void test_one_after_the_other(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int victim = 0; victim < layout->size; victim++)
            for (int second = 1; second < layout->size; second++) {
                struct scenario scenario = {.layout = layout,
                                            .timeout_ms = TIMEOUT_MS,
                                            .variant = victim % 2,
                                            .victim = victim,
                                            .second = second,
                                            .victim_code = 256 + SIGKILL,
                                            .act = die_one_after_the_other,
                                            .meanwhile = kill_one_after_the_other};
                if (second != victim)
                    scenario_run(&scenario);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before),        cmocka_unit_test(test_after),
        cmocka_unit_test(test_after_last),    cmocka_unit_test(test_idle),
        cmocka_unit_test(test_awaited),       cmocka_unit_test(test_within),
        cmocka_unit_test(test_with_requests), cmocka_unit_test(test_go_on_without),
        cmocka_unit_test(test_two_at_once),   cmocka_unit_test(test_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
