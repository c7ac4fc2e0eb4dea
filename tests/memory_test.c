/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_test.c: what a group costs each rank in bytes stays below what docs/local.md says, from 2
 * to 64 ranks; and what happens when memory is refused that is taken late.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "base/memory.h"
#include "support/holdings.h"
#include "support/scenario.h"
#include "support/skip.h"

#define KIB ((int64_t)1024)
#define MIB (KIB * KIB)

/* The bounds of docs/local.md. */
#define REGION_BYTES    (64 * KIB)  /* of a region that carries groups, with small sums only */
#define BLOCK_BYTES     (512 * KIB) /* of a stage, by default */
#define STAGE_BLOCKS    4
#define RINGS_BYTES     (2 * MIB) /* if all peers send something */
#define HEAP_BYTES      (64 * KIB)
#define HEAP_RANK_BYTES (3 * KIB)
#define GROUPS          100

static int64_t stage_bytes(int size)
{
    int64_t slice = (BLOCK_BYTES / size + 4095) / 4096 * 4096;
    return STAGE_BLOCKS * (slice * size + slice);
}

/* ---- bounds
 * ---------------------------------------------------------------------------------------------- */

static int sum(shoal_group_t group, uint64_t count)
{
    float *numbers = calloc(count, sizeof(float));
    CHECK(shoal_allreduce(numbers, numbers, count, SHOAL_F32, SHOAL_SUM, group, NULL));
    free(numbers);
    return 0;
}

static int within(const char *what, int64_t bytes, int64_t bound)
{
    if (bytes >= 0 && bytes <= bound)
        return 0;
    fprintf(stderr, "%s: %lld bytes, at most %lld expected\n", what, (long long)bytes,
            (long long)bound);
    return 1;
}

/* Nothing but the group's own page before the first sum that needs a stage; then as much of a stage
 * as the sums need, and never more than a whole one. */
static int grows_as_needed(shoal_group_t group, void *user)
{
    (void)user;
    int size = shoal_group_size(group);
    REQUIRE(within("a new group", shared_bytes_taken(), REGION_BYTES) == 0);
    for (int i = 0; i < 10; i++)
        REQUIRE(sum(group, 2) == 0);
    REQUIRE(within("small sums", shared_bytes_taken(), REGION_BYTES) == 0);
    REQUIRE(sum(group, 1024) == 0);
    REQUIRE(within("a sum of 4 KiB", shared_bytes_taken(), REGION_BYTES + 4 * KIB) == 0);
    REQUIRE(sum(group, MIB / 4) == 0);
    REQUIRE(
        within("a sum of 1 MiB", shared_bytes_taken(), REGION_BYTES + stage_bytes(size) * 3 / 4) ==
        0); /* two blocks, and the one above */
    for (int i = 0; i < 3; i++)
        REQUIRE(sum(group, MIB) == 0);
    REQUIRE(within("sums of 4 MiB", shared_bytes_taken(), REGION_BYTES + stage_bytes(size)) == 0);
    REQUIRE(within("heap", (int64_t)base_memory_bytes(), HEAP_BYTES + size * HEAP_RANK_BYTES) == 0);
    return 0;
}

static void test_bounds(void **state)
{
    (void)state;
    for (int size = 2; size <= 64; size *= size < 8 ? 2 : 8) {
        struct processes run = {
            .size = size, .main = grows_as_needed, .timeout_ms = 60000, .deadline_s = 120};
        assert_true(processes_run(&run));
    }
}

/* Groups that come and go use the same memory again. */
static int comes_and_goes(shoal_group_t group, void *user)
{
    (void)user;
    int64_t shared = 0;
    size_t heap = 0;
    for (int i = 0; i < GROUPS; i++) {
        shoal_group_t other = NULL;
        CHECK(shoal_group_split(group, 0, 0, &other));
        REQUIRE(sum(other, MIB) == 0);
        CHECK(shoal_group_free(other));
        CHECK(shoal_barrier(group, NULL));
        if (i == GROUPS / 10) {
            shared = shared_bytes_taken();
            heap = base_memory_bytes();
        }
    }
    REQUIRE(within("shared memory", shared_bytes_taken(), shared + stage_bytes(3)) == 0);
    REQUIRE(within("heap", (int64_t)base_memory_bytes(), (int64_t)heap + 4 * KIB) == 0);
    return 0;
}

static void test_groups_come_and_go(void **state)
{
    (void)state;
    struct processes run = {.size = 3, .main = comes_and_goes};
    assert_true(processes_run(&run));
}

/* Rank 0 alone gets a message; then each gets one from each. */
static int takes_rings(shoal_group_t group, void *user)
{
    (void)user;
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    int32_t out[16] = {0}, in[16];
    int64_t before = shared_bytes_taken();
    CHECK(shoal_barrier(group, NULL));
    if (rank == 1)
        CHECK(shoal_send(out, 1, SHOAL_I32, 0, 0, group, NULL));
    if (rank == 0)
        CHECK(shoal_recv(in, 1, SHOAL_I32, 1, 0, NULL, group, NULL));
    CHECK(shoal_barrier(group, NULL));
    int64_t ring = shared_bytes_taken() - before;
    REQUIRE(rank == 0 ? ring > 0 && ring <= RINGS_BYTES / size : ring == 0);
    CHECK(shoal_barrier(group, NULL));
    uint64_t counts[16], displs[16];
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        displs[i] = (uint64_t)i;
    }
    CHECK(shoal_alltoallv(out, counts, displs, in, counts, displs, SHOAL_I32, group, NULL));
    REQUIRE(within("rings", shared_bytes_taken() - before, RINGS_BYTES) == 0);
    return 0;
}

static void test_rings_of_those_that_talk(void **state)
{
    (void)state;
    struct processes run = {.size = 16, .main = takes_rings};
    assert_true(processes_run(&run));
}

/* ---- refused
 * ---------------------------------------------------------------------------------------------- */

/* From now on this thread's system call fails, if its third argument is `third` or that is -1. */
static int refuse(int number, int third, int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)third, 0, third < 0 ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    return 0;
}

/* A barrier that nothing which happens later can break for those who are late to leave it. */
static int come_together(shoal_group_t group, struct board *board)
{
    atomic_store(&board->stage[shoal_group_rank(group)], 1);
    for (int i = 0; i < shoal_group_size(group); i++)
        REQUIRE(board_wait(&board->stage[i], 1) == 0);
    return 0;
}

static const struct layout three = {"local", 3, 1, PATH_LOCAL};

/* The victim has no memory for its stage: all learn it from the call, and small sums that need none
 * went on before. */
static int no_stage(shoal_group_t group, struct board *board)
{
    static float numbers[1024];
    if (shoal_group_rank(group) == board->victim)
        REQUIRE(refuse(SYS_fallocate, -1, ENOSPC) == 0);
    REQUIRE(sum(group, 2) == 0);
    REQUIRE(come_together(group, board) == 0);
    EXPECT(shoal_allreduce(numbers, numbers, 1024, SHOAL_F32, SHOAL_SUM, group, NULL),
           SHOAL_ERR_MEMORY, "rank 1", "cannot take 4 KiB of shared memory");
    EXPECT(shoal_barrier(group, NULL), SHOAL_ERR_MEMORY, "rank 1");
    return 0;
}

static void test_no_memory_for_a_stage(void **state)
{
    (void)state;
    scenario_run(&(struct scenario){.layout = &three, .act = no_stage, .victim = 1});
}

/* Likewise for a ring: the message fails. */
static int no_ring(shoal_group_t group, struct board *board)
{
    int32_t number = 0;
    REQUIRE(come_together(group, board) == 0);
    if (shoal_group_rank(group) == board->victim) {
        REQUIRE(refuse(SYS_madvise, MADV_POPULATE_WRITE, ENOMEM) == 0);
        EXPECT(shoal_send(&number, 1, SHOAL_I32, 0, 0, group, NULL), SHOAL_ERR_PEER_LOST,
               "no memory for a frame to rank 0");
    } else {
        enum shoal_status status = shoal_recv(&number, 1, SHOAL_I32, 1, 0, NULL, group, NULL);
        REQUIRE(status == SHOAL_ERR_PEER_LOST);
    }
    return 0;
}

static void test_no_memory_for_a_ring(void **state)
{
    (void)state;
    scenario_run(&(struct scenario){.layout = &three, .act = no_ring, .victim = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_groups_come_and_go),
        cmocka_unit_test(test_rings_of_those_that_talk),
        cmocka_unit_test(test_no_memory_for_a_stage),
        cmocka_unit_test(test_no_memory_for_a_ring),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
