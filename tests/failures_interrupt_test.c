/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_interrupt_test.c: a program that wants its blocking call back before the deadline, as an
 * interpreter does at Ctrl-C. Its call ends, and all others learn who it was. Deadlines lie behind
 * the end of the test.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/scenario.h"

#define TIMEOUT_MS 120000
#define DEADLINE_S 40

/* How the victim waits. */
enum way { IN_COLLECTIVE, IN_LARGE, IN_RECEIVE, IN_REQUEST, IN_QUEUE, IN_SUBGROUP, IN_FUSE, WAYS };

static int64_t in[100000], out[100000];
static pthread_t maker;

/* The question: says that it was asked; the answer is the test's, and yes only once. */
static int is_interrupted(void *user)
{
    struct board *board = user;
    if (!pthread_equal(maker, pthread_self()))
        return 1; /* and so the answer of a wrong thread shows */
    atomic_store(&board->stage[board->victim], 1);
    int yes = 1;
    return atomic_compare_exchange_strong(&board->go, &yes, 2);
}

static enum shoal_status wait_in(enum way way, shoal_group_t group, struct board *board)
{
    int last = shoal_group_size(group) - 1;
    shoal_request_t request = NULL;
    enum shoal_status status;
    switch (way) {
    case IN_LARGE:
        return shoal_allreduce(in, out, sizeof(in) / sizeof(in[0]), SHOAL_I64, SHOAL_SUM, group,
                               NULL);
    case IN_RECEIVE: return shoal_recv(out, 1, SHOAL_I64, last, board->variant, NULL, group, NULL);
    case IN_REQUEST:
        status = shoal_allreduce(in, out, 4, SHOAL_I64, SHOAL_SUM, group, &request);
        return status == SHOAL_OK ? shoal_request_wait(&request, -1) : status;
    case IN_QUEUE:
        status = shoal_recv(out, 1, SHOAL_I64, last, board->variant, NULL, group, &request);
        if (status == SHOAL_OK)
            status = shoal_barrier(group, NULL);
        if (request && shoal_request_wait(&request, -1) != status)
            return SHOAL_ERR_INTERNAL;
        return status;
    default: return shoal_barrier(group, NULL);
    }
}

/* The last rank does not come; the victim is interrupted in the call, another one waits with it. */
static int be_interrupted(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), last = shoal_group_size(group) - 1;
    char who[64];
    enum shoal_status status = SHOAL_OK;
    CHECK(scenario_sum(group, 100, false));
    if (rank == last) {
        REQUIRE(board_wait(&board->stage[board->victim], 1) == 0);
        atomic_store(&board->go, 1);
        while (status == SHOAL_OK) {
            poll(NULL, 0, 5);
            status = shoal_group_health(group);
        }
    } else {
        status = wait_in((enum way)board->variant, group, board);
    }
    snprintf(who, sizeof(who), "was aborted by rank %d (host host0)", board->victim);
    EXPECT(status, SHOAL_ERR_ABORTED, who, "was interrupted");
    EXPECT(shoal_group_health(group), SHOAL_ERR_ABORTED, who);
    return 0;
}

/* A group of the same ranks breaks alone. */
static int be_interrupted_in_a_subgroup(shoal_group_t group, struct board *board)
{
    shoal_group_t again = NULL;
    CHECK(shoal_group_split(group, 0, 0, &again));
    REQUIRE(be_interrupted(again, board) == 0);
    REQUIRE(expect_status(again, shoal_group_free(again), SHOAL_OK, "free") == 0);
    CHECK(scenario_sum(group, 100, false));
    return 0;
}

/* The fuse breaks alone. */
static int be_interrupted_in_a_fuse(shoal_group_t group, struct board *board)
{
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    int rank = shoal_group_rank(group), last = shoal_group_size(group) - 1;
    const uint64_t count = 100;
    char who[64];
    enum shoal_status status = SHOAL_OK;
    shoal_fuse_t fuse = NULL;
    options.tensor_count = 1;
    options.counts = &count;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    if (rank == last) {
        REQUIRE(board_wait(&board->stage[board->victim], 1) == 0);
        atomic_store(&board->go, 1);
        while (status == SHOAL_OK) {
            poll(NULL, 0, 5);
            status = shoal_fuse_wait(fuse, 0);
        }
    } else {
        status = shoal_fuse_flush(fuse);
        if (status == SHOAL_OK)
            status = shoal_fuse_finish(fuse);
    }
    snprintf(who, sizeof(who), "was aborted by rank %d (host host0)", board->victim);
    EXPECT(status, SHOAL_ERR_ABORTED, "fuse 'gradients'", who, "was interrupted");
    CHECK(shoal_fuse_free(fuse));
    CHECK(scenario_sum(group, 100, false));
    return 0;
}

static int be_interrupted_somewhere(shoal_group_t group, struct board *board)
{
    switch ((enum way)board->variant) {
    case IN_SUBGROUP: return be_interrupted_in_a_subgroup(group, board);
    case IN_FUSE: return be_interrupted_in_a_fuse(group, board);
    default: return be_interrupted(group, board);
    }
}

static int with_question(int rank, int size, const char *place, struct board *board)
{
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    struct shoal_store store;
    shoal_group_t group = NULL;
    (void)place;
    board_store(board, &store);
    maker = pthread_self();
    options.rank = rank;
    options.size = size;
    options.user_store = &store;
    options.timeout_ms = TIMEOUT_MS;
    options.interrupted = is_interrupted;
    options.interrupted_user = board;
    if (rank != board->victim) /* as a program says that knows the options only up to there */
        options.struct_bytes = offsetof(struct shoal_group_options, interrupted);
    CHECK(shoal_group_create(&options, &group));
    REQUIRE(be_interrupted_somewhere(group, board) == 0);
    enum shoal_status status = shoal_group_free(group);
    group = NULL;
    CHECK(status);
    return 0;
}

static void test_ways(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++)
        scenario_on_every_layout(
            (struct scenario){.variant = way, .bare = with_question, .deadline_s = DEADLINE_S});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
