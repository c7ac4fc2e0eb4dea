/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_absence_test.c: ranks that do not come, come late, are stopped, leave early or abort.
 * Whoever waits ends within its deadline with an error that names exactly the absent rank, also
 * where the algorithm waits for an innocent neighbour.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/scenario.h"

#define SLACK_MS 10000 /* a generous upper bound for machines under load */
#define COUNT    3000

static int64_t in[COUNT * 8], out[COUNT * 8];

static const struct layout wide[] = {
    {"tcp", 4, 4, PATH_TCP},
    {"shm", 4, 1, PATH_SHM},
    {"mixed", 5, 2, PATH_MIXED},
    {NULL, 0, 0, PATH_LOCAL},
};

/* ---- in an operation
 * ---------------------------------------------------------------------------------------------- */

#define VARIANT_LATER 100
#define KINDS         7
#define ABSENCE_MS    2000 /* half of it is for the answers of those who are there */

/* Operations in which everybody waits for everybody, or, from `kind` 5 on, for the victim as root.
 */
static enum shoal_status call_kind(int kind, shoal_group_t group, int victim,
                                   shoal_request_t *request)
{
    switch (kind) {
    case 0: return shoal_allreduce(in, out, COUNT, SHOAL_I64, SHOAL_SUM, group, request);
    case 1: return shoal_barrier(group, request);
    case 2: return shoal_allgather(in, out, COUNT, SHOAL_I64, group, request);
    case 3: return shoal_reduce_scatter(in, out, COUNT, SHOAL_I64, SHOAL_SUM, group, request);
    case 4: return shoal_alltoall(in, out, COUNT, SHOAL_I64, group, request);
    case 5: return shoal_broadcast(out, COUNT, SHOAL_I64, victim, group, request);
    default: return shoal_scatter(in, out, COUNT, SHOAL_I64, victim, group, request);
    }
}

static int expect_late(shoal_group_t group, enum shoal_status status, int victim)
{
    char who[64];
    snprintf(who, sizeof(who), ": rank %d (host host", victim);
    EXPECT(status, SHOAL_ERR_TIMEOUT, who, "#2", "took longer than");
    EXPECT(shoal_group_health(group), SHOAL_ERR_TIMEOUT, who);
    return 0;
}

/* The victim does not call the second operation until the others have given up. */
static int stay_away(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), kind = board->variant % VARIANT_LATER;
    shoal_request_t request = NULL;
    bool later = board->variant >= VARIANT_LATER;
    CHECK(scenario_sum(group, COUNT, false));
    if (rank == board->victim) {
        for (int i = 0; i < shoal_group_size(group); i++)
            REQUIRE(i == rank || board_wait(&board->stage[i], 1) == 0);
        enum shoal_status status = call_kind(kind, group, rank, NULL);
        if (status ==
            SHOAL_OK) /* it had all that it needs, from ranks that sent before they gave up */
            status = shoal_barrier(group, NULL);
        return expect_late(group, status, rank);
    }
    CHECK(shoal_group_set_timeout(group, ABSENCE_MS));
    int64_t begun_ns = scenario_now_ns();
    enum shoal_status status = call_kind(kind, group, board->victim, later ? &request : NULL);
    if (later && status == SHOAL_OK)
        status = shoal_request_wait(&request, -1);
    int64_t took_ms = scenario_since_ms(begun_ns);
    atomic_store(&board->stage[rank], 1);
    REQUIRE(took_ms < ABSENCE_MS + SLACK_MS);
    return expect_late(group, status, board->victim);
}

static void test_absent(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct scenario scenario = {.layout = layout,
                                        .variant = kind + (kind % 2 ? VARIANT_LATER : 0),
                                        .victim = kind % layout->size,
                                        .act = stay_away};
            scenario_run(&scenario);
        }
}

static void stay_away_from(const char *algorithm, const char *variable)
{
    for (const struct layout *layout = wide; layout->size > 0; layout++)
        for (int later = 0; later < 2; later++) {
            struct scenario scenario = {.layout = layout,
                                        .environment = {variable},
                                        .variant = later * VARIANT_LATER,
                                        .victim = later ? 2 : 0,
                                        .act = stay_away};
            print_message("%s on %s\n", algorithm, layout->name);
            scenario_run(&scenario);
        }
}

/* Algorithms that wait for a neighbour, who waits for another. */
static void test_absent_from_chains(void **state)
{
    (void)state;
    stay_away_from("ring", "SHOAL_ALGORITHM=allreduce:ring");
    stay_away_from("recursive doubling", "SHOAL_ALGORITHM=allreduce:recursive_doubling");
    stay_away_from("halving", "SHOAL_ALGORITHM=allreduce:halving_doubling");
}

/* A send that nobody receives, a receive that nobody sends. */
static int wait_for_message(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), last = shoal_group_size(group) - 1;
    char who[32];
    if (rank != board->victim && rank != last)
        return 0;
    if (rank == last)
        return board_wait(&board->go, 1); /* is there, but does not take part */
    CHECK(shoal_group_set_timeout(group, ABSENCE_MS));
    snprintf(who, sizeof(who), ": rank %d (host host", last);
    int64_t begun_ns = scenario_now_ns();
    if (board->variant == 0) {
        EXPECT(shoal_recv(out, COUNT, SHOAL_I64, last, 3, NULL, group, NULL), SHOAL_ERR_TIMEOUT,
               who, "has not sent it");
    } else {
        EXPECT(shoal_send(in, COUNT, SHOAL_I64, last, 3, group, NULL), SHOAL_ERR_TIMEOUT, who,
               "has not received it");
    }
    REQUIRE(scenario_since_ms(begun_ns) < ABSENCE_MS + SLACK_MS);
    atomic_store(&board->go, 1);
    return 0;
}

static void test_messages(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++)
        scenario_on_every_layout((struct scenario){.variant = variant, .act = wait_for_message});
}

/* ---- stopped processes
 * ---------------------------------------------------------------------------------------------- */

static int be_stopped(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    CHECK(scenario_sum(group, COUNT, false));
    if (rank != board->victim)
        CHECK(shoal_group_set_timeout(group, ABSENCE_MS));
    atomic_store(&board->stage[rank], 1);
    REQUIRE(board_wait(&board->go, rank == board->victim ? 2 : 1) == 0);
    int64_t begun_ns = scenario_now_ns();
    enum shoal_status status = scenario_sum(group, COUNT, board->variant != 0);
    atomic_store(&board->stage[rank], 2);
    REQUIRE(scenario_since_ms(begun_ns) < ABSENCE_MS + SLACK_MS);
    return expect_late(group, status, board->victim);
}

static void test_stopped(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int later = 0; later < 2; later++) {
            struct scenario scenario = {.layout = layout,
                                        .variant = later,
                                        .victim = later ? 0 : layout->size - 1,
                                        .act = be_stopped,
                                        .meanwhile = scenario_stop_victim};
            scenario_run(&scenario);
        }
}

/* Stops each rank for a moment, while operations run. */
static void stop_for_moments(struct board *board, const pid_t *pids)
{
    for (int rank = 0; rank < board->size; rank++)
        board_wait(&board->stage[rank], 1);
    for (int round = 0; round < 4; round++) {
        kill(pids[round % board->size], SIGSTOP);
        poll(NULL, 0, 300);
        kill(pids[round % board->size], SIGCONT);
        poll(NULL, 0, 20);
    }
    atomic_store(&board->go, 1);
}

/* All agree by a sum when to end. */
static int run_on(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    int64_t end = 0, any = 0;
    for (int round = 0; any == 0; round++) {
        CHECK(scenario_sum(group, round % 3 ? 10 : 200000, round % 2));
        atomic_store(&board->stage[rank], 1);
        end = atomic_load(&board->go);
        CHECK(shoal_allreduce(&end, &any, 1, SHOAL_I64, SHOAL_MAX, group, NULL));
    }
    return 0;
}

static void test_stopped_for_moments(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++) {
        struct scenario scenario = {.layout = layout, .act = run_on, .meanwhile = stop_for_moments};
        scenario_run(&scenario);
    }
}

/* ---- ranks that leave
 * ---------------------------------------------------------------------------------------------- */

/* Variants: 0 frees its group, 1 exits without that; 10 and more: before the first operation. */
#define EXITS  1
#define BEFORE 10

static int go_away(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    char who[64];
    snprintf(who, sizeof(who), "rank %d (host host", board->victim);
    enum shoal_status status = SHOAL_OK;
    if (board->variant < BEFORE)
        status = scenario_sum(group, COUNT, false);
    if (rank == board->victim)
        return status != SHOAL_OK;
    int64_t begun_ns = scenario_now_ns();
    if (status == SHOAL_OK) /* others may have seen it before this rank was through */
        status = scenario_sum(group, COUNT, board->variant % 2 == 0);
    REQUIRE(scenario_since_ms(begun_ns) < SLACK_MS + 5000);
    if (status == SHOAL_ERR_PEER_UNREACHABLE && strstr(shoal_last_error(group), "refused"))
        return 0; /* no link by tcp: nobody is there */
    EXPECT(status, SHOAL_ERR_PEER_LOST, who);
    return 0;
}

static void test_leaving(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int variant = 0; variant < 4; variant++)
            for (int victim = 0; victim < layout->size; victim += layout->size - 1) {
                struct scenario scenario = {.layout = layout,
                                            .timeout_ms = 60000,
                                            .variant = variant % 2 + (variant < 2 ? 0 : BEFORE),
                                            .victim = victim,
                                            .victim_stays = variant % 2 == EXITS,
                                            .act = go_away};
                scenario_run(&scenario);
            }
}

/* Ranks that need nobody any more may come to their ends one by one. */
static int end_one_by_one(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    CHECK(scenario_sum(group, COUNT, false));
    CHECK(shoal_barrier(group, NULL));
    poll(NULL, 0, 30 * (board->variant == 0 ? rank : shoal_group_size(group) - rank));
    return 0;
}

static void test_end_one_by_one(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++)
        scenario_on_every_layout((struct scenario){.variant = variant, .act = end_one_by_one});
}

/* ---- aborts
 * ---------------------------------------------------------------------------------------------- */

static void *abort_soon(void *user)
{
    poll(NULL, 0, 200);
    shoal_group_abort(user, "the loss is not a number");
    return NULL;
}

static int expect_aborted(shoal_group_t group, enum shoal_status status, int victim)
{
    char who[32];
    snprintf(who, sizeof(who), "rank %d (host host", victim);
    EXPECT(status, SHOAL_ERR_ABORTED, who, "the loss is not a number");
    return 0;
}

/* Variants, in bits: 1 non-blocking; 2 before the first operation; 4 the victim's main thread is in
 * an operation itself. The last rank never takes part. */
static int abort_all(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), last = shoal_group_size(group) - 1;
    pthread_t thread;
    if (!(board->variant & 2))
        CHECK(scenario_sum(group, COUNT, false));
    if (rank == board->victim)
        REQUIRE(pthread_create(&thread, NULL, abort_soon, group) == 0);
    enum shoal_status status = SHOAL_OK;
    int64_t begun_ns = scenario_now_ns();
    if (rank == last || (rank == board->victim && !(board->variant & 4))) {
        while (status == SHOAL_OK && scenario_since_ms(begun_ns) < SLACK_MS) {
            poll(NULL, 0, 2);
            status = shoal_group_health(group);
        }
    } else {
        status = scenario_sum(group, COUNT, board->variant & 1);
    }
    REQUIRE(scenario_since_ms(begun_ns) < SLACK_MS);
    REQUIRE(expect_aborted(group, status, board->victim) == 0);
    REQUIRE(expect_aborted(group, shoal_barrier(group, NULL), board->victim) == 0);
    REQUIRE(expect_aborted(group, shoal_send(in, 1, SHOAL_I64, 0, 1, group, NULL), board->victim) ==
            0);
    if (rank == board->victim)
        pthread_join(thread, NULL);
    return 0;
}

static void test_aborts(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int variant = 0; variant < 8; variant++) {
            struct scenario scenario = {.layout = layout,
                                        .timeout_ms = 60000,
                                        .variant = variant,
                                        .victim = variant % 3 == 0,
                                        .act = abort_all};
            scenario_run(&scenario);
        }
}

/* ---- at the start
 * ---------------------------------------------------------------------------------------------- */

#define MEETING_MS 1500

static int miss_the_start(int rank, int size, const char *store, struct board *board)
{
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    struct shoal_store on_board;
    shoal_group_t group = NULL;
    char missing[32];
    if (rank == board->victim)
        return 0;
    board_store(board, &on_board);
    options.rank = rank;
    options.size = size;
    options.store = board->variant == 0 ? store : NULL;
    options.user_store = board->variant == 0 ? NULL : &on_board;
    options.timeout_ms = MEETING_MS;
    int64_t begun_ns = scenario_now_ns();
    enum shoal_status status = shoal_group_create(&options, &group);
    REQUIRE(group == NULL && scenario_since_ms(begun_ns) < MEETING_MS + SLACK_MS);
    if (board->victim == 0 && board->variant == 0) {
        EXPECT(status, SHOAL_ERR_PEER_UNREACHABLE, store); /* nobody serves the meeting */
        return 0;
    }
    if (board->victim == 0) {
        EXPECT(status, SHOAL_ERR_TIMEOUT, "rank 0"); /* who hands out the secret */
        return 0;
    }
    snprintf(missing, sizeof(missing), "%d", board->victim);
    EXPECT(status, SHOAL_ERR_TIMEOUT, "waits for all", missing, "(host host");
    return 0;
}

static void test_missing_at_start(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++)
        for (int victim = 0; victim < 3; victim++)
            scenario_on_every_layout((struct scenario){
                .variant = variant, .victim = victim, .by_address = true, .bare = miss_the_start});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_absent_from_chains),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_stopped_for_moments),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_end_one_by_one),
        cmocka_unit_test(test_aborts),
        cmocka_unit_test(test_missing_at_start),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
