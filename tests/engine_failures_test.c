/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_failures_test.c: ranks that are killed, stopped, late or gone, groups that break, and
 * allocations that fail: whoever is concerned ends with an error that says who and why, and what is
 * left of it disturbs no other group.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine_state.h"
#include "support/engines.h"
#include "support/message.h"
#include "support/operation.h"

#define TIMEOUT_MS   1000
#define RANKS        4
#define COUNT_OF(at) (sizeof(at) / sizeof((at)[0]))

struct rig {
    struct engines *engines;
    struct engines_group *group;
};

static void must(enum shoal_status status)
{
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
}

static struct engines_group *open_group(struct engines *engines, uint64_t context)
{
    struct engines_group *group = NULL;
    must(engines_group_open(engines, NULL, engines->size, NULL, context, TIMEOUT_MS, &group));
    return group;
}

static void rig_open(struct rig *rig, uint64_t eager_bytes)
{
    struct engines_options options = {
        .size = RANKS, .eager_bytes = eager_bytes, .late_seed = eager_bytes == 64};
    must(engines_open(&options, &rig->engines));
    rig->group = open_group(rig->engines, 3);
}

static void rig_close(struct rig *rig)
{
    engines_group_close(rig->group);
    engines_close(rig->engines);
}

static void let_time_pass(struct engines *engines)
{
    for (int i = 0; i < TIMEOUT_MS + 50; i += 50) {
        engines->now_ns += 50 * BASE_NS_PER_MS;
        engines_settle(engines);
    }
}

static struct operation *make(struct engines_group *group, enum coll_kind kind, const char *name,
                              uint64_t count)
{
    static uint64_t seed;
    struct operation_options options = {.coll = {.algorithm = coll_find(kind, name),
                                                 .size = group->size,
                                                 .count = count,
                                                 .segment_count = 1000},
                                        .dtype = SHOAL_F32,
                                        .seed = ++seed};
    struct operation *operation = NULL;
    bool fits;
    must(operation_create(&options, group, &fits, &operation));
    assert_true(fits);
    return operation;
}

static void start(struct operation *operation, int rank)
{
    must(operation_start(operation, rank, false));
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static void expect_error(const struct operation *operation, int rank, enum shoal_status status,
                         const char *who, const char *what)
{
    const struct operation_rank *one = &operation->rank[rank];
    if (!one->done)
        fail_msg("rank %d hangs", rank);
    if (one->status != status || !has(one->text, who) || !has(one->text, what))
        fail_msg("rank %d: status %d, not %d with '%s' and '%s': %s", rank, (int)one->status,
                 (int)status, who, what, one->text);
}

static void end(struct operation *operation)
{
    char text[512];
    if (!operation_end(operation, text, sizeof(text)))
        fail_msg("%s", text);
}

/* Runs one to its good end. */
static void run_well(struct engines_group *group, enum coll_kind kind, const char *name,
                     uint64_t count)
{
    struct operation *operation = make(group, kind, name, count);
    for (int rank = 0; rank < group->size; rank++)
        start(operation, rank);
    engines_settle(group->engines);
    for (int rank = 0; rank < group->size; rank++) {
        assert_true(operation->rank[rank].done);
        if (operation->rank[rank].status != SHOAL_OK)
            fail_msg("rank %d: %s", rank, operation->rank[rank].text);
    }
    end(operation);
}

/* ---- who is late
 * ------------------------------------------------------------------------------------- */

static void test_not_called(void **state)
{
    (void)state;
    static const char *const names[] = {"direct", "ring", "recursive_doubling", "exchange"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct rig rig;
        rig_open(&rig, 64);
        run_well(rig.group, COLL_BARRIER, "direct", 0);
        struct operation *operation = make(rig.group, COLL_ALLREDUCE, names[i], 300);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != 2)
                start(operation, rank);
        let_time_pass(rig.engines);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != 2)
                expect_error(operation, rank, SHOAL_ERR_TIMEOUT, "rank 2 (host cod)",
                             "has not called it");
        assert_int_equal(comm_group_health(rig.group->of[2]), SHOAL_ERR_TIMEOUT);
        rig_close(&rig);
        end(operation);
    }
}

static void test_stopped(void **state)
{
    (void)state;
    static const char *const names[] = {"direct", "ring", "recursive_doubling", "exchange"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct rig rig;
        rig_open(&rig, 64);
        struct operation *operation = make(rig.group, COLL_ALLREDUCE, names[i], 300);
        for (int rank = 0; rank < RANKS; rank++)
            start(operation, rank);
        rig.engines->dead[1] = true; /* not polled: stopped */
        let_time_pass(rig.engines);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != 1)
                expect_error(operation, rank, SHOAL_ERR_TIMEOUT, "rank 1 (host bee)",
                             "does not answer");
        rig.engines->dead[1] = false; /* it goes on, and learns why the group broke */
        engines_settle(rig.engines);
        expect_error(operation, 1, SHOAL_ERR_TIMEOUT, "rank 1 (host bee)", "does not answer");
        rig_close(&rig);
        end(operation);
    }
}

/* A task that looks at the others by itself, as on one host. */
static bool never(struct comm_task *task)
{
    (void)task;
    return false;
}

static void waits_for_rank_2(struct comm_task *task, bool *late)
{
    (void)task;
    late[2] = true;
}

static void nothing_to_cancel(struct comm_task *task)
{
    (void)task;
}

static void note_end(struct comm_task *task, enum shoal_status status)
{
    *(enum shoal_status *)task->owner = status;
}

/* The engine does not know who has called what of such tasks, and must not say so. */
static void test_tasks_of_their_own(void **state)
{
    (void)state;
    static const struct comm_task_class class = {"test", never, never, nothing_to_cancel,
                                                 waits_for_rank_2};
    struct rig rig;
    enum shoal_status status = SHOAL_IN_PROGRESS;
    rig_open(&rig, 64);
    struct comm_task task = {.class = &class,
                             .group = rig.group->of[0],
                             .call = {.kind = COLL_BARRIER},
                             .signature = {.kind = COLL_BARRIER},
                             .sequence = 1,
                             .deadline_ns = rig.engines->now_ns + TIMEOUT_MS * BASE_NS_PER_MS,
                             .done = note_end,
                             .owner = &status};
    comm_engine_start_task(rig.engines->engine[0], &task);
    let_time_pass(rig.engines);
    assert_int_equal(status, SHOAL_ERR_TIMEOUT);
    assert_int_equal(comm_group_health(rig.group->of[0]), SHOAL_ERR_TIMEOUT);
    if (!has(base_error_text(), "rank 2 (host cod) is late"))
        fail_msg("%s", base_error_text());
    rig_close(&rig);
}

static bool came; /* what the task below waits for */

static bool has_come(struct comm_task *task)
{
    (void)task;
    return came;
}

/* News that came after the last look, while nobody slept, rang no bell. */
static void test_no_sleep_over_what_came(void **state)
{
    (void)state;
    static const struct comm_task_class class = {"test", has_come, has_come, nothing_to_cancel,
                                                 waits_for_rank_2};
    struct rig rig;
    enum shoal_status status = SHOAL_IN_PROGRESS;
    rig_open(&rig, 64);
    struct comm_engine *engine = rig.engines->engine[0];
    struct comm_task task = {.class = &class,
                             .group = rig.group->of[0],
                             .sequence = 1,
                             .deadline_ns = rig.engines->now_ns + TIMEOUT_MS * BASE_NS_PER_MS,
                             .done = note_end,
                             .owner = &status};
    came = false;
    comm_engine_start_task(engine, &task);
    assert_int_equal(comm_engine_poll(engine), 0);
    assert_true(comm_engine_sleep(engine, 0));
    came = true;
    assert_false(comm_engine_sleep(engine, 0));
    comm_engine_poll(engine);
    assert_int_equal(status, SHOAL_OK);
    assert_true(comm_engine_sleep(engine, 0));
    rig_close(&rig);
}

static void test_killed(void **state)
{
    (void)state;
    static const char *const names[] = {"direct", "ring", "recursive_doubling", "exchange"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        for (int polls = 0; polls < 8; polls++) {
            struct rig rig;
            rig_open(&rig, 64);
            struct operation *operation = make(rig.group, COLL_ALLREDUCE, names[i], 30000);
            for (int rank = 0; rank < RANKS; rank++)
                start(operation, rank);
            for (int k = 0; k < polls; k++)
                engines_poll(rig.engines);
            engines_kill(rig.engines, 3);
            engines_settle(rig.engines);
            for (int rank = 0; rank < 3; rank++)
                expect_error(operation, rank, SHOAL_ERR_PEER_LOST, "rank 3 (host doe)", "is lost");
            rig_close(&rig);
            end(operation);
        }
}

/* ---- what a broken group leaves
 * ---------------------------------------------------------------------- */

static void test_abort(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 64);
    struct operation *operation = make(rig.group, COLL_ALLREDUCE, "ring", 300);
    for (int rank = 0; rank < 3; rank++)
        start(operation, rank);
    engines_settle(rig.engines);
    comm_group_break(rig.group->of[1], SHOAL_ERR_ABORTED, "enough of it");
    engines_settle(rig.engines);
    for (int rank = 0; rank < 3; rank++)
        expect_error(operation, rank, SHOAL_ERR_ABORTED, "enough", "of it");
    start(operation, 3); /* later calls too */
    engines_settle(rig.engines);
    expect_error(operation, 3, SHOAL_ERR_ABORTED, "enough", "of it");
    struct message_options options = {.rank = 1, .peer = 2, .dtype = SHOAL_U8, .count = 5};
    struct message *message;
    must(message_start(rig.group, &options, &message));
    engines_settle(rig.engines);
    assert_true(message->done);
    assert_int_equal(message->status, SHOAL_ERR_ABORTED);
    assert_true(message_end(message));
    rig_close(&rig);
    end(operation);
}

/* Slots for early frames that the broken group held are free again for other groups. */
static void test_slots_come_back(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1024);
    struct engines_group *other = open_group(rig.engines, 4);
    struct operation *operations[40];
    for (int i = 0; i < 40; i++) {
        operations[i] = make(rig.group, COLL_BROADCAST, "binomial", 20);
        start(operations[i], 0);
        if (i == 20) { /* half of them come before, half after it broke there */
            engines_settle(rig.engines);
            for (int rank = 1; rank < RANKS; rank++)
                comm_group_break(rig.group->of[rank], SHOAL_ERR_ABORTED, "broken here");
        }
    }
    engines_settle(rig.engines);
    engines_group_close(rig.group);
    for (int i = 0; i < 40; i++)
        end(operations[i]);
    for (int i = 0; i < 40; i++)
        run_well(other, COLL_BROADCAST, "binomial", 20);
    for (int rank = 1; rank < 3; rank++) { /* whom rank 0 sends to */
        const struct comm_peer *peer = &rig.engines->engine[0]->peers[rank];
        uint16_t open = (uint16_t)(peer->eager_sent[0] - peer->eager_acked[0]);
        if (open >= WIRE_SLOTS / 2)
            fail_msg("%d slots of rank %d are lost", open, rank);
    }
    rig.group = other;
    rig_close(&rig);
}

/* Frames for a group that this rank has closed are not kept for ever. */
static void test_frames_of_closed_groups(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1024);
    struct engines_group *other = open_group(rig.engines, 4);
    struct operation *operation = make(other, COLL_ALLREDUCE, "ring", 20000);
    comm_engine_remove_group(rig.engines->engine[2], other->of[2]);
    for (int rank = 0; rank < RANKS; rank++)
        if (rank != 2)
            start(operation, rank);
    let_time_pass(rig.engines);
    expect_error(operation, 0, SHOAL_ERR_TIMEOUT, "rank 2", "has not called it");
    assert_int_equal(rig.engines->engine[2]->early_count, 0);
    comm_engine_add_group(rig.engines->engine[2], other->of[2]);
    engines_group_close(other);
    end(operation);
    run_well(rig.group, COLL_ALLREDUCE, "ring", 100);
    rig_close(&rig);
}

/* A rank that makes a group when the others' has broken already learns why. */
static void test_group_that_broke_before(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1024);
    struct engines_group *other = open_group(rig.engines, 4);
    comm_engine_remove_group(rig.engines->engine[1], other->of[1]);
    struct engines_group *third = open_group(rig.engines, 5);
    struct operation *operation = make(other, COLL_ALLREDUCE, "direct", 10);
    run_well(third, COLL_BARRIER, "direct", 0); /* all are linked */
    for (int rank = 2; rank < RANKS; rank++)
        start(operation, rank);
    comm_group_break(other->of[2], SHOAL_ERR_ABORTED, "broke before rank 1 was there");
    engines_settle(rig.engines);
    comm_engine_add_group(rig.engines->engine[1], other->of[1]);
    start(operation, 1);
    let_time_pass(rig.engines);
    expect_error(operation, 1, SHOAL_ERR_ABORTED, "broke before", "rank 1");
    engines_group_close(other);
    engines_group_close(third);
    end(operation);
    rig_close(&rig);
}

static void test_group_with_a_lost_member(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1024);
    run_well(rig.group, COLL_BARRIER, "direct", 0);
    engines_kill(rig.engines, 3);
    engines_settle(rig.engines);
    struct engines_group *later = open_group(rig.engines, 8);
    struct operation *operation = make(later, COLL_BROADCAST, "binomial", 10);
    for (int rank = 1; rank < 3; rank++) /* they only receive */
        start(operation, rank);
    engines_settle(rig.engines);
    for (int rank = 1; rank < 3; rank++)
        expect_error(operation, rank, SHOAL_ERR_PEER_LOST, "rank 3 (host doe)", "is lost");
    engines_group_close(later);
    end(operation);
    rig_close(&rig);
}

/* A rank that leaves when its part is done disturbs nobody; who needs it later is told. */
static void test_left(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 64);
    run_well(rig.group, COLL_ALLREDUCE, "ring", 100);
    static const int members[] = {0, 1, 2};
    struct engines_group *rest;
    must(engines_group_open(rig.engines, members, 3, NULL, 6, TIMEOUT_MS, &rest));
    engines_leave(rig.engines, 3, 0);
    engines_settle(rig.engines);
    run_well(rest, COLL_ALLREDUCE, "direct", 1000);
    struct operation *operation = make(rig.group, COLL_ALLREDUCE, "direct", 100);
    for (int rank = 0; rank < 3; rank++)
        start(operation, rank);
    rig.engines->now_ns += 10 * BASE_NS_PER_MS;
    engines_settle(rig.engines);
    for (int rank = 0; rank < 3; rank++) {
        expect_error(operation, rank, SHOAL_ERR_PEER_LOST, "rank 3 (host doe)", "left");
        assert_false(comm_engine_busy(rig.engines->engine[rank]));
    }
    engines_group_close(rest);
    rig_close(&rig);
    end(operation);
}

/* ---- failing allocations
 * ----------------------------------------------------------------------------- */

/* Starts it, once more if the first try failed before it had begun. */
static void start_failing(struct operation *operation, int rank)
{
    struct comm_group *group = operation->group->of[rank];
    enum shoal_status status = operation_start(operation, rank, false);
    if (status != SHOAL_OK && !comm_group_broken(group))
        status = operation_start(operation, rank, false);
    if (status == SHOAL_OK)
        return;
    struct operation_rank *one = &operation->rank[rank];
    assert_int_equal(status, SHOAL_ERR_MEMORY);
    assert_int_equal(comm_group_health(group), SHOAL_ERR_MEMORY);
    one->done = true;
    one->status = status;
    memset(one->memory, 0xee, one->memory_bytes);
}

/* Runs it with the nth allocation failing; *count: allocations there were. True: it went well. */
static bool run_failing(const struct operation_options *options, uint64_t eager_bytes, uint64_t nth,
                        uint64_t *count)
{
    struct rig rig;
    struct operation *operation;
    bool fits, well = true;
    rig_open(&rig, eager_bytes);
    must(operation_create(options, rig.group, &fits, &operation));
    uint64_t before = base_memory_count();
    base_memory_fail_at(nth);
    for (int rank = 0; rank < RANKS; rank++) {
        start_failing(operation, rank);
        engines_settle(rig.engines);
    }
    *count = base_memory_count() - before;
    base_memory_fail_at(0);
    if (!operation_done(operation))
        let_time_pass(rig.engines);
    for (int rank = 0; rank < RANKS; rank++) {
        const struct operation_rank *one = &operation->rank[rank];
        if (!one->done)
            fail_msg("%s: allocation %d fails: rank %d hangs", operation_text(options), (int)nth,
                     rank);
        if (one->status != SHOAL_OK && one->status != SHOAL_ERR_MEMORY)
            fail_msg("%s: allocation %d fails: rank %d: status %d: %s", operation_text(options),
                     (int)nth, rank, (int)one->status, one->text);
        well &= one->status == SHOAL_OK;
    }
    rig_close(&rig);
    end(operation);
    return well;
}

static void walk_allocations(const struct operation_options *options)
{
    static const uint64_t eager_sizes[] = {0, 64, 16384};
    for (size_t i = 0; i < COUNT_OF(eager_sizes); i++) {
        uint64_t total, ignored;
        int errors = 0;
        assert_true(run_failing(options, eager_sizes[i], 0, &total));
        for (uint64_t nth = 1; nth <= total; nth++) {
            size_t blocks = base_memory_blocks();
            errors += !run_failing(options, eager_sizes[i], nth, &ignored);
            if (base_memory_blocks() != blocks)
                fail_msg("%s: allocation %d fails: %zd blocks leak", operation_text(options),
                         (int)nth, base_memory_blocks() - blocks);
        }
        assert_true(total > 0 && errors > 0);
    }
}

static void test_failing_allocations(void **state)
{
    (void)state;
    for (int i = 0; coll_algorithms()[i]; i++) {
        enum coll_kind kind = coll_algorithms()[i]->kind;
        struct operation_options options = {.coll = {.algorithm = coll_algorithms()[i],
                                                     .size = RANKS,
                                                     .count = 50,
                                                     .segment_count = 30,
                                                     .hosts = HOSTS_PAIRS},
                                            .dtype = SHOAL_F32};
        walk_allocations(&options);
        if (kind == COLL_ALLREDUCE || kind == COLL_REDUCE_SCATTER) {
            options.op = SHOAL_PREMUL_SUM;
            walk_allocations(&options);
        }
        options.coll.is_v = true;
        options.op = SHOAL_SUM;
        if (case_has_v(kind) && (!coll_algorithms()[i]->fits || kind != COLL_ALLTOALL))
            walk_allocations(&options);
    }
}

/* A frame for a group that is not made yet finds no memory: the group is broken when it is made. */
static void test_failing_allocation_before_the_group(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1024);
    struct engines_group *other = open_group(rig.engines, 4);
    comm_engine_remove_group(rig.engines->engine[2], other->of[2]);
    rig.engines->engine[2]->closed_count = 0; /* as if it had never been there */
    struct operation *operation = make(other, COLL_BROADCAST, "direct", 3);
    for (int rank = 0; rank < RANKS; rank++)
        if (rank != 2)
            start(operation, rank);
    base_memory_fail_at(1);
    engines_settle(rig.engines);
    base_memory_fail_at(0);
    comm_engine_add_group(rig.engines->engine[2], other->of[2]);
    start(operation, 2);
    engines_settle(rig.engines);
    expect_error(operation, 2, SHOAL_ERR_MEMORY, "rank 2", "no place");
    engines_group_close(other);
    end(operation);
    rig_close(&rig);
}

/* A message and its receive; true: both went well. */
static bool exchange_failing(uint64_t eager_bytes, bool receive_first, uint64_t nth,
                             uint64_t *count)
{
    struct rig rig;
    struct message *messages[2] = {NULL, NULL};
    struct message_options options[2] = {
        {.rank = 0, .peer = 1, .tag = 3, .dtype = SHOAL_U8, .count = 100},
        {.rank = 1, .receives = true, .peer = 0, .tag = 3, .dtype = SHOAL_U8, .count = 100}};
    bool well = true;
    rig_open(&rig, eager_bytes);
    uint64_t before = base_memory_count();
    base_memory_fail_at(nth);
    for (int i = 0; i < 2; i++) {
        int which = receive_first ? 1 - i : i;
        enum shoal_status status = message_start(rig.group, &options[which], &messages[which]);
        if (status != SHOAL_OK)
            assert_int_equal(status, SHOAL_ERR_MEMORY);
        engines_settle(rig.engines);
    }
    *count = base_memory_count() - before;
    base_memory_fail_at(0);
    let_time_pass(rig.engines);
    for (int i = 0; i < 2; i++) {
        if (!messages[i]) {
            well = false;
            continue;
        }
        assert_true(messages[i]->done);
        well &= messages[i]->status == SHOAL_OK;
        assert_true(message_end(messages[i]));
    }
    rig_close(&rig);
    return well;
}

static void test_failing_allocations_of_messages(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        uint64_t total, ignored, eager_bytes = i < 2 ? 64 : 1024;
        int errors = 0;
        assert_true(exchange_failing(eager_bytes, i % 2, 0, &total));
        for (uint64_t nth = 1; nth <= total; nth++)
            errors += !exchange_failing(eager_bytes, i % 2, nth, &ignored);
        assert_true(errors > 0);
    }
}

/* ---------------------------------------------------------------------------------------------- */

static size_t blocks_before;

static int count_blocks(void **state)
{
    (void)state;
    blocks_before = base_memory_blocks();
    return 0;
}

static int check_blocks(void **state)
{
    (void)state;
    if (base_memory_blocks() == blocks_before)
        return 0;
    print_error("%zu blocks were not freed\n", base_memory_blocks() - blocks_before);
    return -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, count_blocks, check_blocks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_not_called),
        TEST(test_stopped),
        TEST(test_tasks_of_their_own),
        TEST(test_no_sleep_over_what_came),
        TEST(test_killed),
        TEST(test_abort),
        TEST(test_slots_come_back),
        TEST(test_frames_of_closed_groups),
        TEST(test_group_that_broke_before),
        TEST(test_group_with_a_lost_member),
        TEST(test_left),
        TEST(test_failing_allocations),
        TEST(test_failing_allocation_before_the_group),
        TEST(test_failing_allocations_of_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
