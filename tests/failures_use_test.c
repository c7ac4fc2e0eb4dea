/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_use_test.c: errors of the caller (wrong arguments, handles used twice, groups freed with
 * requests under way or in the wrong order) and forked children. Each call says what is wrong; the
 * group goes on unharmed.
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

#define COUNT 5000

static int64_t in[COUNT * 8], out[COUNT * 8];

/* ---- arguments
 * ---------------------------------------------------------------------------------------------- */

static int give_wrong_arguments(shoal_group_t group, struct board *board)
{
    int size = shoal_group_size(group), rank = shoal_group_rank(group);
    const uint64_t huge[PROCESSES_MAX] = {UINT64_C(1) << 60};
    (void)board;
    CHECK(scenario_sum(group, COUNT, false));
    EXPECT(shoal_allreduce(in, out, 1, SHOAL_I64, SHOAL_SUM, NULL, NULL), SHOAL_ERR_ARGUMENT,
           "group is NULL");
    EXPECT(shoal_allreduce(NULL, out, 1, SHOAL_I64, SHOAL_SUM, group, NULL), SHOAL_ERR_ARGUMENT,
           "allreduce", "input buffer is NULL");
    EXPECT(shoal_allreduce(in, NULL, 1, SHOAL_I64, SHOAL_SUM, group, NULL), SHOAL_ERR_ARGUMENT,
           "allreduce", "output buffer is NULL");
    EXPECT(shoal_broadcast(out, 1, SHOAL_I64, size, group, NULL), SHOAL_ERR_ARGUMENT, "broadcast",
           "root");
    EXPECT(shoal_reduce(in, out, 1, SHOAL_I64, SHOAL_SUM, -1, group, NULL), SHOAL_ERR_ARGUMENT,
           "reduce", "root");
    EXPECT(shoal_allreduce(in, out, 1, SHOAL_DTYPE_COUNT, SHOAL_SUM, group, NULL),
           SHOAL_ERR_ARGUMENT, "allreduce", "dtype");
    EXPECT(shoal_allreduce(in, out, 1, (enum shoal_dtype)99, SHOAL_SUM, group, NULL),
           SHOAL_ERR_ARGUMENT, "dtype 99");
    EXPECT(shoal_allreduce(in, out, 1, SHOAL_COMPLEX64, SHOAL_MAX, group, NULL),
           SHOAL_ERR_UNSUPPORTED, "max", "complex64");
    EXPECT(shoal_allreduce(in, out, 1, SHOAL_F32, SHOAL_BXOR, group, NULL), SHOAL_ERR_UNSUPPORTED,
           "bxor", "f32");
    EXPECT(shoal_allreduce(in, out, 1, SHOAL_F32, SHOAL_OP_COUNT, group, NULL),
           SHOAL_ERR_UNSUPPORTED, "allreduce");
    EXPECT(shoal_allreduce(in, out, 1, SHOAL_F32, SHOAL_PREMUL_SUM, group, NULL),
           SHOAL_ERR_ARGUMENT, "factor");
    EXPECT(shoal_allreduce_premul(in, out, 1, SHOAL_F32, NULL, group, NULL), SHOAL_ERR_ARGUMENT,
           "factor");
    EXPECT(shoal_allreduce(in, out, UINT64_MAX, SHOAL_I64, SHOAL_SUM, group, NULL),
           SHOAL_ERR_ARGUMENT, "too large");
    EXPECT(shoal_allgather(in, out, UINT64_C(1) << 61, SHOAL_U8, group, NULL), SHOAL_ERR_ARGUMENT,
           "too large");
    EXPECT(shoal_allgatherv(in, out, huge, NULL, SHOAL_I64, group, NULL), SHOAL_ERR_ARGUMENT,
           "too large");
    EXPECT(shoal_allgatherv(in, out, NULL, NULL, SHOAL_I64, group, NULL), SHOAL_ERR_ARGUMENT,
           "counts is NULL");
    EXPECT(shoal_alltoallv(in, huge, NULL, out, NULL, NULL, SHOAL_I64, group, NULL),
           SHOAL_ERR_ARGUMENT, "recv_counts is NULL");
    EXPECT(shoal_alltoall(in, in, 1, SHOAL_I64, group, NULL), SHOAL_ERR_ARGUMENT, "alltoall",
           "overlaps");
    EXPECT(shoal_send(in, 1, SHOAL_I64, size, 0, group, NULL), SHOAL_ERR_ARGUMENT, "send", "rank");
    EXPECT(shoal_send(in, 1, SHOAL_I64, SHOAL_ANY_SOURCE, 0, group, NULL), SHOAL_ERR_ARGUMENT,
           "send", "rank");
    EXPECT(shoal_send(in, 1, SHOAL_I64, 0, -1, group, NULL), SHOAL_ERR_ARGUMENT, "tag");
    EXPECT(shoal_recv(out, 1, SHOAL_I64, 0, -2, NULL, group, NULL), SHOAL_ERR_ARGUMENT, "tag");
    EXPECT(shoal_recv(out, 1, SHOAL_I64, -2, 0, NULL, group, NULL), SHOAL_ERR_ARGUMENT, "rank");
    EXPECT(shoal_recv(NULL, 1, SHOAL_I64, 0, 0, NULL, group, NULL), SHOAL_ERR_ARGUMENT, "NULL");
    EXPECT(shoal_group_set_timeout(group, 0), SHOAL_ERR_ARGUMENT, "timeout_ms");
    EXPECT(shoal_group_split(group, 0, 0, NULL), SHOAL_ERR_ARGUMENT, "out");
    EXPECT(shoal_alloc(group, 100, NULL), SHOAL_ERR_ARGUMENT, "out");
    EXPECT(shoal_free(group, out), SHOAL_ERR_ARGUMENT, "shoal_alloc");
    /* Nothing of that counts as an operation. */
    CHECK(scenario_sum(group, COUNT, false));
    CHECK(shoal_allreduce(NULL, NULL, 0, SHOAL_I64, SHOAL_SUM, group, NULL));
    CHECK(shoal_allgather(in + COUNT, out, COUNT, SHOAL_I64, group, NULL));
    REQUIRE(shoal_group_health(group) == SHOAL_OK && rank < size);
    REQUIRE(shoal_group_rank(NULL) == -1 && shoal_group_size(NULL) == -1);
    return 0;
}

/* Arguments of groups. */
static int give_wrong_groups(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), other = rank == 0, twice[2] = {rank, rank};
    int none[2] = {rank, 100};
    shoal_group_t sub = NULL;
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    struct shoal_store store = {.struct_bytes = sizeof(store)};
    (void)board;
    EXPECT(shoal_group_subset(group, twice, 2, "twice", &sub), SHOAL_ERR_ARGUMENT, "listed twice");
    EXPECT(shoal_group_subset(group, none, 2, "none", &sub), SHOAL_ERR_ARGUMENT, "no rank");
    EXPECT(shoal_group_subset(group, &other, 1, "other", &sub), SHOAL_ERR_ARGUMENT, "only members");
    EXPECT(shoal_group_subset(group, &rank, 0, "empty", &sub), SHOAL_ERR_ARGUMENT, "0 ranks");
    EXPECT(shoal_group_subset(group, NULL, 1, "null", &sub), SHOAL_ERR_ARGUMENT, "1 ranks");
    EXPECT(shoal_group_create(NULL, NULL), SHOAL_ERR_ARGUMENT, "out is NULL");
    options.rank = 3;
    options.size = 3;
    options.store = "127.0.0.1:9";
    EXPECT(shoal_group_create(&options, &sub), SHOAL_ERR_ARGUMENT, "rank 3 of size 3");
    options.rank = 0;
    options.timeout_ms = -1;
    EXPECT(shoal_group_create(&options, &sub), SHOAL_ERR_ARGUMENT, "timeout_ms");
    options.timeout_ms = 0;
    options.user_store = &store;
    EXPECT(shoal_group_create(&options, &sub), SHOAL_ERR_ARGUMENT, "not several");
    options.store = NULL;
    EXPECT(shoal_group_create(&options, &sub), SHOAL_ERR_ARGUMENT, "set and get");
    options.struct_bytes = 8;
    EXPECT(shoal_group_create(&options, &sub), SHOAL_ERR_ARGUMENT, "SHOAL_GROUP_OPTIONS_INIT");
    REQUIRE(sub == NULL);
    CHECK(scenario_sum(group, COUNT, false));
    return 0;
}

static void test_arguments(void **state)
{
    (void)state;
    scenario_on_every_layout((struct scenario){.act = give_wrong_arguments});
    scenario_on_every_layout((struct scenario){.act = give_wrong_groups});
}

/* ---- handles
 * ---------------------------------------------------------------------------------------------- */

static void on_done(void *user, enum shoal_status status)
{
    *(int *)user = status == SHOAL_OK ? 1 : -1;
}

static int use_requests_wrongly(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group), done = 0;
    shoal_request_t request = NULL, copy = NULL;
    (void)board;
    EXPECT(shoal_request_wait(NULL, -1), SHOAL_ERR_ARGUMENT, "request is NULL");
    EXPECT(shoal_request_wait(&request, -1), SHOAL_ERR_ARGUMENT, "request is NULL");
    EXPECT(shoal_request_test(&request), SHOAL_ERR_ARGUMENT, "request is NULL");
    EXPECT(shoal_request_on_done(NULL, on_done, &done), SHOAL_ERR_ARGUMENT, "request is NULL");
    /* Twice. */
    CHECK(shoal_barrier(group, &request));
    copy = request;
    EXPECT(shoal_request_on_done(request, NULL, &done), SHOAL_ERR_ARGUMENT, "callback");
    CHECK(shoal_request_on_done(request, on_done, &done));
    EXPECT(shoal_request_on_done(request, on_done, &done), SHOAL_ERR_STATE, "one callback");
    CHECK(shoal_request_wait(&request, -1));
    REQUIRE(done == 1);
    EXPECT(shoal_request_wait(&request, -1), SHOAL_ERR_ARGUMENT, "finished already");
    EXPECT(shoal_request_wait(&copy, -1), SHOAL_ERR_ARGUMENT, "finished already");
    EXPECT(shoal_request_test(&copy), SHOAL_ERR_ARGUMENT, "finished already");
    /* A wait that is over before the request is: it goes on. */
    if (rank == 0) {
        CHECK(shoal_recv(out, 1, SHOAL_I64, size - 1, 9, NULL, group, &request));
        EXPECT(shoal_request_wait(&request, 50), SHOAL_ERR_TIMEOUT, "50 ms", "goes on");
        REQUIRE(request != NULL && shoal_request_test(&request) == SHOAL_IN_PROGRESS);
        EXPECT(shoal_request_wait(&request, 0), SHOAL_ERR_TIMEOUT, "goes on");
    }
    CHECK(scenario_sum(group, COUNT, false));
    if (rank == size - 1) {
        in[0] = 77;
        CHECK(shoal_send(in, 1, SHOAL_I64, 0, 9, group, NULL));
    }
    if (rank == 0) {
        CHECK(shoal_request_wait(&request, 10000));
        REQUIRE(out[0] == 77);
    }
    CHECK(scenario_sum(group, COUNT, true));
    return 0;
}

static int use_groups_wrongly(shoal_group_t group, struct board *board)
{
    shoal_group_t sub = NULL, copy;
    (void)board;
    CHECK(shoal_group_split(group, 1, 0, &sub));
    EXPECT(shoal_group_free(group), SHOAL_ERR_STATE, "sub-groups", "free them first");
    CHECK(scenario_sum(group, COUNT, false));
    CHECK(scenario_sum(sub, COUNT, false));
    copy = sub;
    CHECK(shoal_group_free(sub));
    EXPECT(shoal_group_free(copy), SHOAL_ERR_ARGUMENT, "freed already");
    EXPECT(shoal_group_free((shoal_group_t)(void *)out), SHOAL_ERR_ARGUMENT, "freed already");
    CHECK(shoal_group_free(NULL));
    CHECK(scenario_sum(group, COUNT, true));
    return 0;
}

static void test_handles(void **state)
{
    (void)state;
    scenario_on_every_layout((struct scenario){.act = use_requests_wrongly});
    scenario_on_every_layout((struct scenario){.act = use_groups_wrongly});
}

/* ---- messages that do not fit
 * ---------------------------------------------------------------------------------------------- */

/* Variants: 0 too long, eager; 1 too long, large; 2 another dtype. */
static int receive_too_little(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group), last = shoal_group_size(group) - 1;
    uint64_t count = board->variant == 1 ? COUNT : 2;
    enum shoal_status status = scenario_sum(group, COUNT, false);
    if (rank == last && status == SHOAL_OK)
        status = shoal_send(in, count, SHOAL_I64, 0, 4, group, NULL);
    if (rank == 0 && status == SHOAL_OK)
        status = board->variant == 2 ? shoal_recv(out, 2, SHOAL_F64, last, 4, NULL, group, NULL)
                                     : shoal_recv(out, 1, SHOAL_I64, last, 4, NULL, group, NULL);
    for (int i = 0; i < 20 && status == SHOAL_OK; i++)
        status = scenario_sum(group, 4, false);
    EXPECT(status, SHOAL_ERR_MISMATCH, "rank 0 (host host", "tag 4", "receive");
    return 0;
}

static void test_messages(void **state)
{
    (void)state;
    for (int variant = 0; variant < 3; variant++)
        scenario_on_every_layout(
            (struct scenario){.timeout_ms = 3000, .variant = variant, .act = receive_too_little});
}

/* ---- freeing with requests under way
 * ---------------------------------------------------------------------------------------------- */

/* The requests end with SHOAL_ERR_ABORTED; they may be waited for before or after the group is
 * gone, in any order. Variant 1: of a sub-group. */
static int free_with_requests(int rank, int size, const char *store, struct board *board)
{
    shoal_request_t requests[4] = {NULL};
    shoal_group_t group = NULL, root = NULL;
    struct shoal_store on_board;
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    (void)store;
    board_store(board, &on_board);
    options.rank = rank;
    options.size = size;
    options.user_store = &on_board;
    options.timeout_ms = 60000;
    CHECK(shoal_group_create(&options, &root));
    if (board->variant == 1) {
        CHECK(shoal_group_split(root, 0, rank, &group));
    } else {
        group = root;
    }
    int last = size - 1;
    enum shoal_status status = scenario_sum(group, COUNT, false);
    if (rank != last && status == SHOAL_OK) { /* the last one does not take part */
        CHECK(shoal_allreduce(in, out, COUNT, SHOAL_I64, SHOAL_SUM, group, &requests[0]));
        CHECK(shoal_recv(out, COUNT, SHOAL_I64, last, 1, NULL, group, &requests[1]));
        CHECK(shoal_barrier(group, &requests[2]));
        CHECK(shoal_send(in, COUNT, SHOAL_I64, last, 1, group, &requests[3]));
        poll(NULL, 0, 50);
    } else {
        poll(NULL, 0, 300);
    }
    int64_t begun_ns = scenario_now_ns();
    CHECK(shoal_group_free(group));
    REQUIRE(scenario_since_ms(begun_ns) < 15000);
    for (int i = 3; i >= 0 && requests[i]; i--) {
        status = shoal_request_wait(&requests[i], -1);
        REQUIRE(status == SHOAL_ERR_ABORTED || status == SHOAL_ERR_PEER_LOST);
        EXPECT(status, status, "group '");
        REQUIRE(requests[i] == NULL);
    }
    group = NULL;
    if (board->variant == 1)
        CHECK(shoal_group_free(root));
    return 0;
}

static void test_free_with_requests(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++)
        scenario_on_every_layout((struct scenario){.variant = variant, .bare = free_with_requests});
}

/* ---- forked children
 * ---------------------------------------------------------------------------------------------- */

static shoal_request_t pending;
static int is_child;

/* The address sanitizer asks before it looks for leaks at exit: in a child that was forked out of a
 * process with threads it may wait for a lock that one of those threads held. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_child;
}

/* Everything is refused, nothing hangs, and its memory is its own. */
static int be_a_child(shoal_group_t group, void *shared)
{
    shoal_group_t other = NULL;
    void *memory = NULL;
    EXPECT(shoal_allreduce(in, out, 1, SHOAL_I64, SHOAL_SUM, group, NULL), SHOAL_ERR_STATE,
           "forked");
    EXPECT(shoal_barrier(group, NULL), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_send(in, 1, SHOAL_I64, 0, 1, group, NULL), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_request_wait(&pending, -1), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_request_test(&pending), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_group_health(group), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_group_abort(group, "x"), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_group_split(group, 0, 0, &other), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_alloc(group, 100, &memory), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_free(group, shared), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_group_free(group), SHOAL_ERR_STATE, "forked");
    EXPECT(shoal_group_create(NULL, &other), SHOAL_ERR_STATE, "forked");
    REQUIRE(shoal_group_rank(group) >= 0);
    REQUIRE(((unsigned char *)shared)[4095] == 1);
    memset(shared, 0xff, 4096);
    memset(in, 0xff, sizeof(in));
    memset(out, 0xff, sizeof(out));
    return 0;
}

static int child_code(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int have_children(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    void *shared = NULL;
    CHECK(shoal_alloc(group, 4096, &shared));
    memset(shared, 1, 4096);
    CHECK(scenario_sum(group, COUNT, false));
    for (int round = 0; round < 3; round++) {
        CHECK(shoal_recv(out, 1, SHOAL_I64, rank, round, NULL, group, &pending));
        pid_t child = fork();
        if (child == 0) {
            is_child = 1;
            int bad = be_a_child(group, shared);
            if (board->variant == 0)
                _exit(bad);
            exit(bad); /* with all that the program does at its end */
        }
        REQUIRE(child > 0);
        CHECK(scenario_sum(group, 200000, round % 2)); /* while the child does its worst */
        REQUIRE(child_code(child) == 0);
        REQUIRE(((unsigned char *)shared)[0] == 1);
        CHECK(scenario_sum(group, COUNT, false));
        CHECK(shoal_send(in, 1, SHOAL_I64, rank, round, group, NULL));
        CHECK(shoal_request_wait(&pending, -1));
    }
    CHECK(shoal_free(group, shared));
    return 0;
}

static void test_children(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++)
        scenario_on_every_layout((struct scenario){.variant = variant, .act = have_children});
}

#define TIMEOUT_MS 60000
#define QUICK_MS   20000

/* A rank dies whose child lives on and has copies of all its descriptors. */
static int leave_a_child(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    char who[32];
    CHECK(scenario_sum(group, COUNT, false));
    if (rank == board->victim) {
        for (int i = 0; i < shoal_group_size(group); i++)
            REQUIRE(i == rank || board_wait(&board->stage[i], 1) == 0);
        pid_t child = fork();
        if (child == 0) {
            while (atomic_load(&board->go) < 1)
                poll(NULL, 0, 5);
            _exit(0);
        }
        kill(getpid(), SIGKILL);
    }
    atomic_store(&board->stage[rank], 1);
    int64_t begun_ns = scenario_now_ns();
    enum shoal_status status = scenario_sum(group, COUNT, false);
    int64_t took_ms = scenario_since_ms(begun_ns);
    atomic_store(&board->stage[rank], 2);
    snprintf(who, sizeof(who), "rank %d (host host", board->victim);
    EXPECT(status, SHOAL_ERR_PEER_LOST, who);
    REQUIRE(took_ms < QUICK_MS);
    return 0;
}

/* Lets the child go when all others are through. */
static void end_the_child(struct board *board, const pid_t *pids)
{
    (void)pids;
    for (int rank = 0; rank < board->size; rank++)
        if (rank != board->victim)
            board_wait(&board->stage[rank], 2);
    atomic_store(&board->go, 1);
}

static void test_child_outlives(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int victim = 0; victim < layout->size; victim++) {
            struct scenario scenario = {.layout = layout,
                                        .timeout_ms = TIMEOUT_MS,
                                        .victim = victim,
                                        .victim_code = 256 + SIGKILL,
                                        .act = leave_a_child,
                                        .meanwhile = end_the_child};
            scenario_run(&scenario);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_handles),
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_free_with_requests),
        cmocka_unit_test(test_children),  cmocka_unit_test(test_child_outlives),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
