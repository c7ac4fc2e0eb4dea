/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_memory_test.c: one rank's allocations fail, one after the other: while a group is made,
 * in the first operation of each kind, and while sub-groups and fuses are made. The call says
 * SHOAL_ERR_MEMORY; nothing crashes or is left, wrong or waiting: either the group is as it was and
 * the same call works, or it is broken for all ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "support/holdings.h"
#include "support/scenario.h"

#define TIMEOUT_MS 4000
#define MEETING_MS 400 /* of meetings that fail */
#define NTH_MAX    2000

static const struct layout layouts[] = {
    {"local", 2, 1, PATH_LOCAL},
    {"shm", 2, 1, PATH_SHM},
    {"tcp", 2, 2, PATH_TCP},
    {NULL, 0, 0, PATH_LOCAL},
};

/* ---- meetings, one after the other
 * ---------------------------------------------------------------------------------------------- */

/* A store of its own for each meeting. */
struct numbered_store {
    struct board *board;
    int number;
};

static void numbered_key(const struct numbered_store *store, const char *key, char out[128])
{
    snprintf(out, 128, "%d/%s", store->number, key);
}

static int numbered_set(void *user, const char *key, const void *value, size_t bytes)
{
    struct numbered_store *store = user;
    struct shoal_store inner;
    char own[128];
    board_store(store->board, &inner);
    numbered_key(store, key, own);
    return inner.set(inner.user, own, value, bytes);
}

static int numbered_get(void *user, const char *key, void *value, size_t capacity, size_t *bytes,
                        int64_t timeout_ms)
{
    struct numbered_store *store = user;
    struct shoal_store inner;
    char own[128];
    board_store(store->board, &inner);
    numbered_key(store, key, own);
    return inner.get(inner.user, own, value, capacity, bytes, timeout_ms);
}

static enum shoal_status create(struct board *board, int number, int rank, int timeout_ms,
                                shoal_group_t *group)
{
    struct numbered_store numbered = {board, number};
    struct shoal_store store = {sizeof(store), &numbered, numbered_set, numbered_get};
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    options.rank = rank;
    options.size = 2;
    options.user_store = &store;
    options.timeout_ms = timeout_ms;
    return shoal_group_create(&options, group);
}

/* Both ranks are here; the board's store is empty again. */
static int meet(struct board *board, int rank, int number)
{
    atomic_store(&board->stage[rank], number);
    REQUIRE(board_wait(&board->stage[1 - rank], number) == 0);
    if (rank == 0) {
        atomic_store(&board->store.count, 0);
        atomic_store(&board->stage[2], number);
    }
    return board_wait(&board->stage[2], number);
}

struct level {
    size_t blocks;
    int descriptors, threads;
};

static struct level level_now(void)
{
    return (struct level){base_memory_blocks(), open_descriptors(), running_threads()};
}

static int check_level(const struct level *before, uint64_t nth)
{
    struct level now = level_now();
    now.threads = threads_left(before->threads);
    if (now.blocks == before->blocks && now.descriptors == before->descriptors &&
        now.threads <= before->threads)
        return 0;
    fprintf(stderr,
            "after failure %llu: %zu blocks, %d descriptors, %d threads; before %zu, %d, %d\n",
            (unsigned long long)nth, now.blocks, now.descriptors, now.threads, before->blocks,
            before->descriptors, before->threads);
    return 1;
}

/* ---- while the group is made
 * ---------------------------------------------------------------------------------------------- */

/* What a rank does with a group that may be there on one side only. */
static int end_half_a_group(shoal_group_t group)
{
    enum shoal_status status = SHOAL_OK;
    CHECK(shoal_group_set_timeout(group, MEETING_MS));
    for (int i = 0; i < 3 && status == SHOAL_OK; i++)
        status = scenario_sum(group, 100, false);
    REQUIRE(status != SHOAL_OK);
    return 0;
}

/* One making with the nth allocation of the victim failing; *ended when it has fewer. */
static int make_once(struct board *board, int rank, uint64_t nth, bool *ended)
{
    shoal_group_t group = NULL;
    int number = 1 + 2 * (int)nth;
    bool victim = rank == board->victim;
    REQUIRE(meet(board, rank, number) == 0);
    uint64_t before = base_memory_count();
    if (victim)
        base_memory_fail_at(nth);
    enum shoal_status status = create(board, number, rank, MEETING_MS, &group);
    base_memory_fail_at(0);
    if (victim && status != SHOAL_OK)
        EXPECT(status, SHOAL_ERR_MEMORY, "no memory for");
    if (victim)
        atomic_store(&board->stage[3], base_memory_count() - before < nth ? 3 : status == SHOAL_OK);
    REQUIRE(meet(board, rank, number + 1) == 0);
    int came_through = atomic_load(&board->stage[3]);
    *ended = came_through == 3;
    if (status == SHOAL_OK && came_through == 0)
        REQUIRE(end_half_a_group(group) == 0);
    enum shoal_status freed = shoal_group_free(group);
    group = NULL;
    CHECK(freed);
    return 0;
}

static int walk_the_making(int rank, int size, const char *store, struct board *board)
{
    bool ended = false;
    (void)size;
    (void)store;
    struct level before = level_now();
    for (uint64_t nth = 1; !ended; nth += (uint64_t)board->variant) {
        REQUIRE(nth < NTH_MAX);
        REQUIRE(make_once(board, rank, nth, &ended) == 0);
        REQUIRE(check_level(&before, nth) == 0);
    }
    return 0;
}

/* Over tcp every third one: the other rank waits until its deadline each time. */
static void test_making(void **state)
{
    (void)state;
    struct scenario scenario = {
        .layout = &layouts[0], .variant = 1, .deadline_s = 200, .bare = walk_the_making};
    scenario_run(&scenario);
    scenario.layout = &layouts[2];
    scenario.variant = 3;
    scenario.victim = 1;
    scenario_run(&scenario);
}

/* ---- in operations
 * ---------------------------------------------------------------------------------------------- */

#define SMALL         10
#define LARGE         100000
#define KINDS         14
#define VARIANT_LATER 100

static float in[2 * LARGE], out[2 * LARGE];

static enum shoal_status make_subset(shoal_group_t group)
{
    const int all[2] = {1, 0};
    shoal_group_t sub = NULL;
    enum shoal_status status = shoal_group_subset(group, all, 2, "again", &sub);
    if (status != SHOAL_OK)
        return status;
    status = scenario_sum(sub, SMALL, false);
    enum shoal_status freed = shoal_group_free(sub);
    return status == SHOAL_OK ? freed : status;
}

/* Two steps, of which the first shows the order. */
static enum shoal_status use_fuse(shoal_group_t group)
{
    const uint64_t counts[3] = {SMALL, LARGE, SMALL};
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    shoal_fuse_t fuse = NULL;
    options.tensor_count = 3;
    options.counts = counts;
    options.buffer_bytes = LARGE;
    enum shoal_status status = shoal_fuse_create(group, &options, &fuse);
    for (int i = 0; i < 6 && status == SHOAL_OK; i++) {
        status = shoal_fuse_add(fuse, i % 3, in, NULL, counts[i % 3]);
        if (status == SHOAL_OK && i % 3 == 2)
            status = shoal_fuse_finish(fuse);
    }
    enum shoal_status freed = shoal_fuse_free(fuse);
    return status == SHOAL_OK ? freed : status;
}

static enum shoal_status call_kind(int kind, shoal_group_t group, shoal_request_t *request)
{
    const uint64_t counts[2] = {SMALL, LARGE};
    uint64_t same[2] = {LARGE, LARGE};
    float factor = 2;
    int peer = 1 - shoal_group_rank(group);
    switch (kind) {
    case 0: return shoal_allreduce(in, out, SMALL, SHOAL_F32, SHOAL_SUM, group, request);
    case 1: return shoal_allreduce(in, out, LARGE, SHOAL_F32, SHOAL_AVG, group, request);
    case 2: return shoal_allreduce_premul(in, out, LARGE, SHOAL_F32, &factor, group, request);
    case 3: return shoal_allgather(in, out, LARGE, SHOAL_F32, group, request);
    case 4: return shoal_allgatherv(in, out, counts, NULL, SHOAL_F32, group, request);
    case 5: return shoal_reduce_scatter(in, out, LARGE, SHOAL_F32, SHOAL_SUM, group, request);
    case 6: return shoal_broadcast(out, LARGE, SHOAL_F32, 0, group, request);
    case 7: return shoal_alltoallv(in, same, NULL, out, same, NULL, SHOAL_F32, group, request);
    case 8: return shoal_barrier(group, request);
    case 9:
        return peer == 0 ? shoal_send(in, LARGE, SHOAL_F32, peer, 1, group, request)
                         : shoal_recv(out, LARGE, SHOAL_F32, peer, 1, NULL, group, request);
    case 10:
        return peer == 1 ? shoal_send(in, SMALL, SHOAL_F32, peer, 1, group, request)
                         : shoal_recv(out, SMALL, SHOAL_F32, peer, 1, NULL, group, request);
    default: return SHOAL_OK;
    }
}

static enum shoal_status do_kind(int kind, shoal_group_t group, bool later)
{
    shoal_request_t request = NULL;
    shoal_group_t sub = NULL;
    if (kind == 11) {
        enum shoal_status status = shoal_group_split(group, 0, 0, &sub);
        return status == SHOAL_OK ? shoal_group_free(sub) : status;
    }
    if (kind == 12)
        return make_subset(group);
    if (kind == 13)
        return use_fuse(group);
    enum shoal_status status = call_kind(kind, group, later ? &request : NULL);
    return status == SHOAL_OK && request ? shoal_request_wait(&request, -1) : status;
}

/* One operation on a fresh group, with the nth allocation of the victim failing. */
static int operate_once(shoal_group_t group, struct board *board, uint64_t nth, bool *ended)
{
    int kind = board->variant % VARIANT_LATER, rank = shoal_group_rank(group);
    bool victim = rank == board->victim, later = board->variant >= VARIANT_LATER;
    uint64_t before = base_memory_count();
    if (victim)
        base_memory_fail_at(nth);
    enum shoal_status status = do_kind(kind, group, later);
    base_memory_fail_at(0);
    *ended = base_memory_count() - before < nth;
    if (victim && status != SHOAL_OK) {
        /* A link that can't be made for want of memory is first of all that: no link. */
        bool no_link = status == SHOAL_ERR_PEER_UNREACHABLE || status == SHOAL_ERR_PEER_LOST;
        EXPECT(status, no_link ? status : SHOAL_ERR_MEMORY, "no memory");
        /* A sub-group's own operation may have failed; then only the sub-group is broken. */
        if (shoal_group_health(group) == SHOAL_OK && kind < 11)
            CHECK(do_kind(kind, group, later)); /* nothing had changed */
    }
    bool broken = shoal_group_health(group) != SHOAL_OK;
    if (victim)
        atomic_store(&board->stage[4], broken ? 2 : 1);
    if (kind >= 11 && victim && status != SHOAL_OK)
        CHECK(shoal_group_abort(group, "no sub-group")); /* the other may wait in it */
    status = scenario_sum(group, SMALL, false);
    REQUIRE(board_wait(&board->stage[4], 1) == 0);
    if (atomic_load(&board->stage[4]) == 2)
        REQUIRE(status != SHOAL_OK); /* broken for all */
    return 0;
}

static int walk_operations(int rank, int size, const char *store, struct board *board)
{
    bool ended = false;
    (void)size;
    (void)store;
    struct level before = level_now();
    for (uint64_t nth = 1; !ended; nth++) {
        shoal_group_t group = NULL;
        bool own_end = false;
        int number = (int)nth * 3;
        REQUIRE(nth < NTH_MAX && meet(board, rank, number) == 0);
        atomic_store(&board->stage[4], 0);
        REQUIRE(meet(board, rank, number + 1) == 0);
        CHECK(create(board, number, rank, TIMEOUT_MS, &group));
        REQUIRE(operate_once(group, board, nth, &own_end) == 0);
        enum shoal_status freed = shoal_group_free(group);
        group = NULL;
        CHECK(freed);
        REQUIRE(check_level(&before, nth) == 0);
        if (rank == board->victim && own_end)
            atomic_store(&board->go, 1);
        REQUIRE(meet(board, rank, number + 2) == 0);
        ended = atomic_load(&board->go) == 1;
    }
    return 0;
}

static void walk(int later)
{
    for (const struct layout *layout = layouts; layout->size > 0; layout++)
        for (int kind = 0; kind < (later ? 11 : KINDS); kind++) {
            struct scenario scenario = {.layout = layout,
                                        .victim = kind % 2,
                                        .variant = kind + later * VARIANT_LATER,
                                        .deadline_s = 200,
                                        .bare = walk_operations};
            scenario_run(&scenario);
        }
}

static void test_operations(void **state)
{
    (void)state;
    walk(0);
}

static void test_operations_later(void **state)
{
    (void)state;
    walk(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_making),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_operations_later),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
