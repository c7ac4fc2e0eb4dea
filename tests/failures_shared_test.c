/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_shared_test.c: operations that fail while peers read and write each other's buffers
 * from shoal_alloc, or a rank that dies there. When the call has returned, the memory is the
 * caller's own again: nobody writes it later; and where it has returned well, though a rank has
 * died meanwhile, all results are right. If a peer stands still just then, what is freed is not
 * used again.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/scenario.h"

#define TRIALS 12
#define COUNT  (UINT64_C(8) << 20) /* f32: 32 MiB, some milliseconds */
#define OWN    0x5a5a5a5au
#define SIZE   3

/* ---- abort amid
 * ---------------------------------------------------------------------------------------------- */

static bool is_own(const uint32_t *numbers)
{
    for (uint64_t i = 0; i < COUNT; i++)
        if (numbers[i] != OWN)
            return false;
    return true;
}

static void fill_own(uint32_t *numbers)
{
    for (uint64_t i = 0; i < COUNT; i++)
        numbers[i] = OWN;
}

/* Rank 0 aborts a group of its own for this trial a while after the start, each time later. */
static int abort_once(shoal_group_t root, float *memory, int trial)
{
    shoal_group_t group = NULL;
    shoal_request_t request = NULL;
    if (expect_status(root, shoal_group_split(root, 0, 0, &group), SHOAL_OK, "split"))
        return 1;
    CHECK(shoal_barrier(root, NULL));
    enum shoal_status status =
        shoal_allreduce(memory, memory, COUNT, SHOAL_F32, SHOAL_SUM, group, &request);
    if (shoal_group_rank(root) == 0) {
        usleep((useconds_t)(trial * 400));
        CHECK(shoal_group_abort(group, "enough"));
    }
    if (status == SHOAL_OK) /* a slow rank may come after the abort */
        status = shoal_request_wait(&request, -1);
    if (status != SHOAL_OK && expect_status(group, status, SHOAL_ERR_ABORTED, "allreduce"))
        return 1;
    fill_own((uint32_t *)memory); /* whoever still wrote would be seen */
    usleep(20000);
    REQUIRE(is_own((uint32_t *)memory));
    if (shoal_group_rank(root) != 0)
        while (shoal_group_health(group) == SHOAL_OK)
            usleep(1000); /* an operation that was through before the abort */
    shoal_group_free(group);
    return 0;
}

static int abort_amid(shoal_group_t group, struct board *board)
{
    void *memory = NULL;
    (void)board;
    CHECK(shoal_alloc(group, COUNT * sizeof(float), &memory));
    memset(memory, 0, COUNT * sizeof(float));
    for (int trial = 0; trial < TRIALS; trial++)
        REQUIRE(abort_once(group, memory, trial) == 0);
    CHECK(shoal_barrier(group, NULL));
    CHECK(shoal_free(group, memory));
    return 0;
}

static const struct layout one_host = {"one host", SIZE, 1, PATH_LOCAL};

static void test_memory_is_own_after_an_abort(void **state)
{
    (void)state;
    scenario_run(&(struct scenario){.layout = &one_host, .act = abort_amid, .victim = -1});
}

/* ---- a rank that dies amid
 * ---------------------------------------------------------------------------------------------- */

#define TIMEOUT_MS 60000
#define QUICK_MS   20000
#define PART       (COUNT / SIZE)

static void die_here(int signal)
{
    (void)signal;
    raise(SIGKILL);
}

/* Variants: the operation, and whether it is a request. */
enum { SUM, GATHER, OPERATIONS, LATER = OPERATIONS };

static enum shoal_status operate(shoal_group_t group, int variant, uint32_t *memory)
{
    shoal_request_t request = NULL, *handle = variant & LATER ? &request : NULL;
    enum shoal_status status =
        variant % OPERATIONS == SUM
            ? shoal_allreduce(memory, memory, COUNT, SHOAL_U32, SHOAL_SUM, group, handle)
            : shoal_allgather(memory + PART * (uint64_t)shoal_group_rank(group), memory, PART,
                              SHOAL_U32, group, handle);
    return status == SHOAL_OK && request ? shoal_request_wait(&request, -1) : status;
}

/* What a rank brings, in units: all have other numbers, as have neighbouring places. */
static uint32_t unit_at(uint64_t i)
{
    return (uint32_t)(i & 1023) + 1;
}

static void fill_units(uint32_t *numbers, uint64_t count, uint32_t factor)
{
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = factor * unit_at(i);
}

static bool are_units(const uint32_t *numbers, uint64_t count, uint32_t factor)
{
    for (uint64_t i = 0; i < count; i++)
        if (numbers[i] != factor * unit_at(i))
            return false;
    return true;
}

/* The first sum is of 1, 2 and 3 units, each further one of three equal numbers; sums wrap. */
static bool is_right(int variant, int round, const uint32_t *memory)
{
    uint32_t sum = 1 + 2 + 3;
    for (int i = 0; i < round; i++)
        sum *= SIZE;
    if (variant % OPERATIONS == SUM)
        return are_units(memory, COUNT, sum);
    for (uint32_t rank = 0; rank < SIZE; rank++)
        if (!are_units(memory + rank * PART, PART, rank + 1))
            return false;
    return true;
}

/* So that results which were right in the round before are not taken for this one's. */
static void forget_others(int variant, int rank, uint32_t *memory)
{
    for (int i = 0; i < SIZE && variant % OPERATIONS == GATHER; i++)
        if (i != rank)
            memset(memory + (uint64_t)i * PART, 0, PART * sizeof(*memory));
}

/* The victim does nothing else, so that it ends amid its work. */
static int work_until_death(shoal_group_t group, const struct board *board, uint32_t *memory)
{
    struct itimerval soon = {
        .it_value = {.tv_usec = 1500 + 700 * (board->victim + SIZE * board->variant)}};
    signal(SIGVTALRM, die_here);
    setitimer(ITIMER_VIRTUAL, &soon, NULL);
    while (operate(group, board->variant, memory) == SHOAL_OK)
        continue;
    return 1;
}

/* Works until an operation fails; the results of all before it are right. */
static int work_beside_victim(shoal_group_t group, struct board *board, uint32_t *memory)
{
    enum shoal_status status = SHOAL_OK;
    char victim[32];
    for (int round = 0; round < 1000 && status == SHOAL_OK; round++) {
        forget_others(board->variant, shoal_group_rank(group), memory);
        status = operate(group, board->variant, memory);
        REQUIRE(status != SHOAL_OK || is_right(board->variant, round, memory));
    }
    snprintf(victim, sizeof(victim), "rank %d (host host0", board->victim);
    EXPECT(status, SHOAL_ERR_PEER_LOST, victim);
    return 0;
}

/* The victim ends after a while of its own computing, most of which is work on everybody's
 * buffers: within an operation, or between two. The others' memory is theirs again at once, also
 * what they free. */
static int die_amid(shoal_group_t group, struct board *board)
{
    void *memory = NULL, *again = NULL;
    uint64_t rank = (uint64_t)shoal_group_rank(group);
    CHECK(shoal_alloc(group, COUNT * sizeof(uint32_t), &memory));
    if (board->variant % OPERATIONS == SUM)
        fill_units(memory, COUNT, (uint32_t)rank + 1);
    else
        fill_units((uint32_t *)memory + rank * PART, PART, (uint32_t)rank + 1);
    CHECK(shoal_barrier(group, NULL));
    if ((int)rank == board->victim)
        return work_until_death(group, board, memory);
    REQUIRE(work_beside_victim(group, board, memory) == 0);
    fill_own(memory);
    CHECK(shoal_free(group, memory));
    CHECK(shoal_alloc(group, COUNT * sizeof(uint32_t), &again));
    usleep(20000);
    REQUIRE(again == memory && is_own(memory));
    return 0;
}

static void test_a_rank_dies_amid(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2 * OPERATIONS; variant++)
        for (int victim = 0; victim < SIZE; victim++) {
            int64_t begun_ns = scenario_now_ns();
            scenario_run(&(struct scenario){.layout = &one_host,
                                            .timeout_ms = TIMEOUT_MS,
                                            .variant = variant,
                                            .victim = victim,
                                            .victim_code = 256 + SIGKILL,
                                            .act = die_amid});
            assert_true(scenario_since_ms(begun_ns) < QUICK_MS);
        }
}

/* ---- a peer that stands still amid
 * ---------------------------------------------------------------------------------------------- */

static void stop_here(int signal)
{
    (void)signal;
    raise(SIGSTOP);
}

/* The victim stops amid its work until the others have looked; then its own call fails as well. The
 * timer counts the victim's own computing, so that it doesn't stop where it waits for a core. */
static int stand_still(shoal_group_t group, float *memory)
{
    struct itimerval soon = {.it_value = {.tv_usec = 1500}};
    signal(SIGVTALRM, stop_here);
    CHECK(shoal_barrier(group, NULL));
    setitimer(ITIMER_VIRTUAL, &soon, NULL);
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; i < 1000 && status == SHOAL_OK; i++)
        status = shoal_allreduce(memory, memory, COUNT, SHOAL_F32, SHOAL_MAX, group, NULL);
    REQUIRE(status == SHOAL_ERR_TIMEOUT || status == SHOAL_ERR_PEER_LOST);
    return 0;
}

static int look_at_memory(shoal_group_t group, struct board *board, float *memory)
{
    void *others = NULL;
    enum shoal_status status = SHOAL_OK;
    CHECK(shoal_barrier(group, NULL));
    for (int i = 0; i < 1000 && status == SHOAL_OK; i++)
        status = shoal_allreduce(memory, memory, COUNT, SHOAL_F32, SHOAL_MAX, group, NULL);
    char victim[32];
    snprintf(victim, sizeof(victim), "rank %d", board->victim);
    EXPECT(status, SHOAL_ERR_TIMEOUT, "allreduce", victim);
    CHECK(shoal_free(group, memory));
    CHECK(shoal_alloc(group, COUNT * sizeof(float), &others));
    atomic_store(&board->stage[shoal_group_rank(group)], others != memory ? 1 : 2);
    CHECK(shoal_free(group, others));
    return 0;
}

static int stop_amid(shoal_group_t group, struct board *board)
{
    void *memory = NULL;
    CHECK(shoal_alloc(group, COUNT * sizeof(float), &memory));
    memset(memory, 0, COUNT * sizeof(float));
    if (shoal_group_rank(group) == board->victim)
        return stand_still(group, memory);
    return look_at_memory(group, board, memory);
}

/* Where the victim stops is chance: within its work, or between. It is one of the many operations,
 * most of whose time is work, so some run of a few stops it there. */
static int kept_count;

static void go_on_later(struct board *board, const pid_t *pids)
{
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != board->victim)
            board_wait(&board->stage[rank], 1);
    for (int rank = 0; rank < SIZE; rank++)
        kept_count += atomic_load(&board->stage[rank]) == 1;
    kill(pids[board->victim], SIGCONT);
}

static void test_memory_is_kept_from_a_peer_that_stands_still(void **state)
{
    (void)state;
    for (int run = 0; run < 5 && kept_count == 0; run++)
        scenario_run(&(struct scenario){.layout = &one_host,
                                        .act = stop_amid,
                                        .timeout_ms = 1500,
                                        .victim = 1,
                                        .victim_stays = true,
                                        .meanwhile = go_on_later});
    assert_true(kept_count > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_own_after_an_abort),
        cmocka_unit_test(test_a_rank_dies_amid),
        cmocka_unit_test(test_memory_is_kept_from_a_peer_that_stands_still),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
