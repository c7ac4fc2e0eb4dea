/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_pipe_test.c: pipes that are made differently or used wrongly, and what breaks amid a
 * step: each rank gets an error that names the rank, the host, the task with its module and
 * microbatch, and the value; the group goes on if nothing happened to it.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "support/scenario.h"

#define MODULES    3
#define SHORT_MS   1000 /* half of it is for the answer of the rank that is waited for */
#define LONG_MS    20000
#define SLICE_MS   100 /* of callers that come back again and again */
#define MICROBATCH 3

static const char *const names[MODULES] = {"embedding", "layers.0", "head"};

static const struct layout layouts[] = {{"local", 3, 1, PATH_LOCAL},
                                        {"tcp", 3, 3, PATH_TCP},
                                        {"mixed", 4, 2, PATH_MIXED},
                                        {NULL, 0, 0, PATH_LOCAL}};

static void on_layouts(struct scenario scenario)
{
    for (const struct layout *layout = layouts; layout->size > 0; layout++) {
        scenario.layout = layout;
        scenario_run(&scenario);
    }
}

static struct shoal_pipe_options good_options(void)
{
    struct shoal_pipe_options options = SHOAL_PIPE_OPTIONS_INIT;
    options.name = "stages";
    options.module_count = MODULES;
    options.module_names = names;
    return options;
}

static struct shoal_pipe_task task_of(int rank, enum shoal_pipe_kind kind, int module)
{
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    task.rank = rank;
    task.kind = kind;
    task.module = module;
    task.microbatch = MICROBATCH;
    return task;
}

static int next_is(shoal_group_t group, shoal_pipe_t pipe, enum shoal_pipe_kind kind,
                   struct shoal_pipe_task *out)
{
    *out = (struct shoal_pipe_task)SHOAL_PIPE_TASK_INIT;
    CHECK(shoal_pipe_next(pipe, -1, out));
    REQUIRE(out->kind == kind);
    return 0;
}

/* What next ends with when it gives no more tasks; every other rank waits in slices. */
static enum shoal_status next_fails(shoal_group_t group, shoal_pipe_t pipe)
{
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    int64_t timeout_ms = shoal_group_rank(group) % 2 ? -1 : SLICE_MS;
    enum shoal_status status = SHOAL_OK;
    while (status == SHOAL_OK || status == SHOAL_IN_PROGRESS)
        status = shoal_pipe_next(pipe, timeout_ms, &task);
    return status;
}

static int put_one(shoal_group_t group, shoal_pipe_t pipe, uint64_t id, size_t bytes)
{
    void *memory = calloc(1, bytes);
    struct shoal_pipe_buffer buffer = {memory, bytes};
    CHECK(shoal_pipe_put(pipe, id, NULL, 0, &buffer, 1));
    free(memory);
    return 0;
}

/* Rank 0 has rank 1 make a value, which all others need. *value: on rank 0. */
static int submit_step(shoal_group_t group, shoal_pipe_t pipe, uint64_t *value)
{
    struct shoal_pipe_task task = task_of(1, SHOAL_PIPE_FORWARD, 1);
    CHECK(shoal_pipe_promise(pipe, 1, value));
    task.blob = value;
    task.blob_bytes = sizeof(*value);
    CHECK(shoal_pipe_submit(pipe, &task));
    for (int i = 0; i < shoal_group_size(group); i++) {
        task = task_of(i, SHOAL_PIPE_FORWARD, 2);
        task.needs = value;
        task.need_count = 1;
        if (i != 1)
            CHECK(shoal_pipe_submit(pipe, &task));
    }
    return 0;
}

static int run_maker(shoal_group_t group, shoal_pipe_t pipe, size_t bytes, uint64_t *id)
{
    struct shoal_pipe_task task;
    REQUIRE(next_is(group, pipe, SHOAL_PIPE_FORWARD, &task) == 0);
    memcpy(id, task.blob, sizeof(*id));
    return put_one(group, pipe, *id, bytes);
}

static int good_step(shoal_group_t group, shoal_pipe_t pipe, size_t bytes)
{
    int rank = shoal_group_rank(group);
    uint64_t value = 0;
    struct shoal_pipe_task task;
    CHECK(shoal_pipe_step_begin(pipe));
    if (rank == 0) {
        REQUIRE(submit_step(group, pipe, &value) == 0);
        CHECK(shoal_pipe_drop(pipe, value));
    }
    if (rank == 1)
        REQUIRE(run_maker(group, pipe, bytes, &value) == 0);
    if (rank != 1) {
        REQUIRE(next_is(group, pipe, SHOAL_PIPE_FORWARD, &task) == 0);
        CHECK(shoal_pipe_release(pipe, task.needs[0]));
    }
    CHECK(shoal_pipe_step_end(pipe));
    return 0;
}

/* Leaves all ranks in their third step, with tasks on their way or not. */
static int make_and_use(shoal_group_t group, bool with_tasks, shoal_pipe_t *out)
{
    struct shoal_pipe_options options = good_options();
    uint64_t value = 0;
    CHECK(shoal_pipe_create(group, &options, out));
    for (int step = 0; step < 2; step++)
        REQUIRE(good_step(group, *out, 100000) == 0);
    CHECK(shoal_pipe_step_begin(*out));
    if (with_tasks && shoal_group_rank(group) == 0)
        REQUIRE(submit_step(group, *out, &value) == 0);
    CHECK(shoal_barrier(group, NULL));
    return 0;
}

/* Broken for good, and the group is not. */
static int let_go(shoal_group_t group, shoal_pipe_t pipe, enum shoal_status status, const char *why)
{
    struct shoal_pipe_task task = task_of(0, SHOAL_PIPE_CONTROL, -1);
    EXPECT(shoal_pipe_next(pipe, -1, &task), status, "pipe 'stages'", why);
    EXPECT(shoal_pipe_submit(pipe, &task), status, "pipe 'stages'", why);
    EXPECT(shoal_pipe_step_end(pipe), status, "pipe 'stages'", why);
    EXPECT(shoal_pipe_health(pipe), status, "pipe 'stages'", why);
    CHECK(shoal_pipe_free(pipe));
    CHECK(scenario_sum(group, 1000, false));
    return 0;
}

/* ---- pipes that are made differently
 * ---------------------------------------------------------------------------------------------- */

static int differ(shoal_group_t group, struct board *board)
{
    (void)board;
    static const char *const other_names[MODULES] = {"embedding", "head", "layers.0"};
    static const char *const differences[] = {
        "the name", "the order", "the number of active microbatches", "the number of modules",
        "the list of modules' names"};
    for (int i = 0; i < 5; i++) {
        struct shoal_pipe_options options = good_options();
        shoal_pipe_t pipe = NULL;
        if (shoal_group_rank(group) == 1) {
            options.name = i == 0 ? "others" : options.name;
            options.order = i == 1 ? SHOAL_PIPE_SIMPLE : options.order;
            options.active_microbatches = i == 2 ? 7 : 0;
            options.module_count = i == 3 ? 2 : MODULES;
            options.module_names = i == 4 ? other_names : names;
        }
        EXPECT(shoal_pipe_create(group, &options, &pipe), SHOAL_ERR_MISMATCH, differences[i],
               "rank 1 (host ", "rank 0 (host host0)");
        REQUIRE(pipe == NULL);
    }
    CHECK(scenario_sum(group, 1000, false));
    return 0;
}

/* ---- calls that are refused, and change nothing
 * ---------------------------------------------------------------------------------------------- */

#define REFUSED_TASK(change, ...)                                                \
    do {                                                                         \
        struct shoal_pipe_task task = task_of(0, SHOAL_PIPE_FORWARD, 1);         \
        change;                                                                  \
        EXPECT(shoal_pipe_submit(pipe, &task), SHOAL_ERR_ARGUMENT, __VA_ARGS__); \
    } while (0)

static int refuse_tasks(shoal_group_t group, shoal_pipe_t pipe)
{
    uint64_t value = 0;
    char last[32];
    snprintf(last, sizeof(last), "0 to %d", shoal_group_size(group) - 1);
    REFUSED_TASK(task.struct_bytes = 8, "SHOAL_PIPE_TASK_INIT");
    REFUSED_TASK(task.rank = -1, "task.rank is -1", last);
    REFUSED_TASK(task.module = MODULES, "task.module is 3", "3 modules");
    REFUSED_TASK(task.microbatch = -2, "task.microbatch is -2");
    REFUSED_TASK(task.kind = SHOAL_PIPE_KIND_COUNT, "task.kind 5");
    REFUSED_TASK(task.need_count = 1, "task.needs is NULL");
    REFUSED_TASK(task.blob_bytes = SHOAL_PIPE_BLOB_MAX + 1, "blob_bytes is 65537");
    CHECK(shoal_pipe_promise(pipe, shoal_group_rank(group), &value));
    CHECK(shoal_pipe_drop(pipe, value));
    REFUSED_TASK((task.needs = &value, task.need_count = 1), "needs[0]", "dropped or not promised");
    EXPECT(shoal_pipe_drop(pipe, value), SHOAL_ERR_STATE, "was dropped before");
    CHECK(shoal_pipe_put(pipe, value, NULL, 0, NULL, 0));
    return 0;
}

static int refuse(shoal_group_t group, struct board *board)
{
    (void)board;
    struct shoal_pipe_value out = SHOAL_PIPE_VALUE_INIT;
    struct shoal_pipe_counters counters = {.struct_bytes = 8};
    shoal_pipe_t pipe = NULL;
    uint64_t value = 0;
    int rank = shoal_group_rank(group), other = (rank + 1) % shoal_group_size(group);
    struct shoal_pipe_options options = good_options();
    CHECK(shoal_pipe_create(group, &options, &pipe));
    EXPECT(shoal_pipe_step_end(pipe), SHOAL_ERR_STATE, "no step has begun");
    EXPECT(shoal_pipe_microbatch_end(pipe), SHOAL_ERR_STATE, "no microbatch");
    EXPECT(shoal_pipe_promise(pipe, -1, &value), SHOAL_ERR_ARGUMENT, "home is -1");
    EXPECT(shoal_pipe_counters(pipe, &counters), SHOAL_ERR_ARGUMENT, "SHOAL_PIPE_COUNTERS_INIT");
    EXPECT(shoal_pipe_next(NULL, 0, NULL), SHOAL_ERR_ARGUMENT, "pipe is NULL");
    CHECK(shoal_pipe_step_begin(pipe));
    EXPECT(shoal_pipe_step_begin(pipe), SHOAL_ERR_STATE, "begun already");
    CHECK(shoal_pipe_promise(pipe, other, &value));
    EXPECT(shoal_pipe_put(pipe, value, NULL, 0, NULL, 0), SHOAL_ERR_ARGUMENT, "its home");
    EXPECT(shoal_pipe_value(pipe, value, &out), SHOAL_ERR_STATE, "is not on this rank");
    EXPECT(shoal_pipe_release(pipe, value), SHOAL_ERR_STATE, "no need of a task");
    struct shoal_pipe_task task = task_of(other, SHOAL_PIPE_FORWARD, 1), given;
    task.blob = &value;
    task.blob_bytes = sizeof(value);
    CHECK(shoal_pipe_submit(pipe, &task)); /* so that somebody puts it */
    CHECK(shoal_pipe_drop(pipe, value));
    REQUIRE(next_is(group, pipe, SHOAL_PIPE_FORWARD, &given) == 0);
    memcpy(&value, given.blob, sizeof(value));
    CHECK(shoal_pipe_put(pipe, value, NULL, 0, NULL, 0));
    REQUIRE(refuse_tasks(group, pipe) == 0);
    EXPECT(shoal_pipe_drop(pipe, 12345), SHOAL_ERR_STATE, "not its maker");
    CHECK(shoal_pipe_free(NULL));
    CHECK(shoal_pipe_step_end(pipe));
    REQUIRE(good_step(group, pipe, 10) == 0);
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

static int refuse_and_leave(shoal_group_t group, struct board *board)
{
    (void)board;
    struct shoal_pipe_options options = good_options();
    shoal_pipe_t pipe = NULL;
    options.order = (enum shoal_pipe_order)9;
    EXPECT(shoal_pipe_create(group, &options, &pipe), SHOAL_ERR_ARGUMENT, "order 9");
    options = good_options();
    options.active_microbatches = -1;
    EXPECT(shoal_pipe_create(group, &options, &pipe), SHOAL_ERR_ARGUMENT, "active_microbatches");
    EXPECT(shoal_pipe_create(group, &options, NULL), SHOAL_ERR_ARGUMENT, "out is NULL");
    return 0;
}

/* ---- pipes that are used wrongly
 * ---------------------------------------------------------------------------------------------- */

static int put_twice(shoal_group_t group, struct board *board)
{
    (void)board;
    shoal_pipe_t pipe = NULL;
    uint64_t value = 0;
    int rank = shoal_group_rank(group);
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    REQUIRE(make_and_use(group, true, &pipe) == 0);
    if (rank == 1) {
        REQUIRE(run_maker(group, pipe, 10, &value) == 0);
        EXPECT(shoal_pipe_put(pipe, value, NULL, 0, NULL, 0), SHOAL_ERR_MISMATCH,
               "value 3 of rank 0", "put twice", "rank 1 (host ");
    }
    enum shoal_status status = SHOAL_OK;
    while (status == SHOAL_OK) /* the value may have come before */
        status = shoal_pipe_next(pipe, -1, &task);
    EXPECT(status, SHOAL_ERR_MISMATCH, "value 3 of rank 0", "put twice", "rank 1 (host ");
    return let_go(group, pipe, SHOAL_ERR_MISMATCH, "put twice");
}

static int unknown_module(shoal_group_t group, struct board *board)
{
    (void)board;
    struct shoal_pipe_options options = good_options();
    unsigned char runs[MODULES] = {1, 1, 1};
    shoal_pipe_t pipe = NULL;
    struct shoal_pipe_task task = task_of(1, SHOAL_PIPE_FORWARD, 2);
    runs[2] = shoal_group_rank(group) != 1;
    options.runs = runs;
    CHECK(shoal_pipe_create(group, &options, &pipe));
    CHECK(shoal_pipe_step_begin(pipe));
    CHECK(shoal_barrier(group, NULL));
    if (shoal_group_rank(group) == 0)
        CHECK(shoal_pipe_submit(pipe, &task));
    EXPECT(shoal_pipe_next(pipe, -1, &task), SHOAL_ERR_MISMATCH, "forward of module 2 'head'",
           "microbatch 3", "rank 1 (host ", "does not run that module", "from rank 0 (host host0)");
    return let_go(group, pipe, SHOAL_ERR_MISMATCH, "does not run");
}

static int leave_value(shoal_group_t group, struct board *board)
{
    (void)board;
    shoal_pipe_t pipe = NULL;
    uint64_t value = 0;
    REQUIRE(make_and_use(group, false, &pipe) == 0);
    if (shoal_group_rank(group) == 0) {
        CHECK(shoal_pipe_promise(pipe, 1, &value));
        CHECK(shoal_pipe_drop(pipe, value));
    }
    enum shoal_status status = shoal_pipe_step_end(pipe);
    if (status == SHOAL_OK) {
        struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
        status = shoal_pipe_next(pipe, -1, &task);
    }
    EXPECT(status, SHOAL_ERR_STATE, "step 3", "rank 1 (host ", "1 values left over",
           "value 3 of rank 0", "never put");
    return let_go(group, pipe, SHOAL_ERR_STATE, "left over");
}

static int leave_task(shoal_group_t group, struct board *board)
{
    (void)board;
    shoal_pipe_t pipe = NULL;
    struct shoal_pipe_task task = task_of(1, SHOAL_PIPE_BACKWARD, 0);
    REQUIRE(make_and_use(group, false, &pipe) == 0);
    if (shoal_group_rank(group) == 0)
        CHECK(shoal_pipe_submit(pipe, &task));
    enum shoal_status status = shoal_pipe_step_end(pipe);
    if (status == SHOAL_OK)
        status = shoal_pipe_next(pipe, -1, &task);
    EXPECT(status, SHOAL_ERR_STATE, "step 3", "rank 1 (host ", "tasks that did not run",
           "backward of module 0 'embedding', microbatch 3");
    return let_go(group, pipe, SHOAL_ERR_STATE, "did not run");
}

static int free_amid(shoal_group_t group, struct board *board)
{
    shoal_pipe_t pipe = NULL;
    uint64_t value = 0;
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    REQUIRE(make_and_use(group, false, &pipe) == 0);
    if (shoal_group_rank(group) == board->victim) {
        CHECK(shoal_pipe_promise(pipe, 1, &value));
        CHECK(shoal_pipe_free(pipe));
        CHECK(scenario_sum(group, 1000, false));
        return 0;
    }
    EXPECT(shoal_pipe_next(pipe, -1, &task), SHOAL_ERR_ABORTED,
           "freed it with 0 tasks and 1 values", "rank 2 (host ");
    return let_go(group, pipe, SHOAL_ERR_ABORTED, "freed it");
}

static int abort_in_task(shoal_group_t group, struct board *board)
{
    (void)board;
    shoal_pipe_t pipe = NULL;
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    REQUIRE(make_and_use(group, true, &pipe) == 0);
    if (shoal_group_rank(group) == 1) {
        REQUIRE(next_is(group, pipe, SHOAL_PIPE_FORWARD, &task) == 0);
        CHECK(shoal_pipe_abort(pipe, "out of memory"));
    }
    EXPECT(shoal_pipe_next(pipe, -1, &task), SHOAL_ERR_ABORTED, "aborted by rank 1 (host ",
           "in forward of module 1 'layers.0', microbatch 3: out of memory");
    return let_go(group, pipe, SHOAL_ERR_ABORTED, "out of memory");
}

static void test_differing(void **state)
{
    (void)state;
    on_layouts((struct scenario){.act = differ});
}

static void test_refused(void **state)
{
    (void)state;
    struct scenario scenario = {.layout = &layouts[0], .act = refuse_and_leave};
    scenario_run(&scenario);
    scenario.act = refuse;
    scenario_run(&scenario);
}

static void test_misuse(void **state)
{
    (void)state;
    on_layouts((struct scenario){.act = put_twice});
    on_layouts((struct scenario){.act = unknown_module});
    on_layouts((struct scenario){.act = leave_value});
    on_layouts((struct scenario){.act = leave_task});
    on_layouts((struct scenario){.act = free_amid, .victim = 2});
    on_layouts((struct scenario){.act = abort_in_task});
}

/* ---- ranks that do not go on
 * ---------------------------------------------------------------------------------------------- */

enum { STOPPED, BUSY, IDLE };

/* Rank 1 is to make a value that the others need: it is stopped, or runs on, or forgets it. */
static int never_put(shoal_group_t group, struct board *board)
{
    static const char *const doing[] = {"it does not answer",
                                        "it has run forward of module 1 'layers.0', microbatch 3",
                                        "it has had no task"};
    shoal_pipe_t pipe = NULL;
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    int rank = shoal_group_rank(group);
    bool is_victim = rank == board->victim;
    REQUIRE(make_and_use(group, true, &pipe) == 0);
    CHECK(shoal_group_set_timeout(group, is_victim ? LONG_MS : SHORT_MS));
    atomic_store(&board->stage[rank], 1);
    if (board->variant == STOPPED)
        REQUIRE(board_wait(&board->go, is_victim ? 2 : 1) == 0);
    if (is_victim && board->variant != STOPPED)
        REQUIRE(next_is(group, pipe, SHOAL_PIPE_FORWARD, &task) == 0);
    for (int i = 0; i < shoal_group_size(group) && is_victim && board->variant == BUSY; i++)
        REQUIRE(i == rank || board_wait(&board->stage[i], 2) == 0);
    /* a victim that was stopped has its task yet */
    EXPECT(next_fails(group, pipe), SHOAL_ERR_TIMEOUT,
           "forward of module 2 'head', microbatch 3 waits on rank ",
           "1000 ms for value 3 of rank 0, which rank 1 (host ", doing[board->variant]);
    atomic_store(&board->stage[rank], 2);
    CHECK(shoal_group_set_timeout(group, LONG_MS));
    return let_go(group, pipe, SHOAL_ERR_TIMEOUT, "has not put");
}

/* Rank 0 gives nobody anything to do: it is stopped, or runs on, or does not begin the step. */
static int never_submit(shoal_group_t group, struct board *board)
{
    static const char *const doing[] = {"it does not answer", "it has run start, microbatch 3 for ",
                                        "it is in no step, since "};
    struct shoal_pipe_options options = good_options();
    struct shoal_pipe_task task = task_of(0, SHOAL_PIPE_START, -1);
    shoal_pipe_t pipe = NULL;
    int rank = shoal_group_rank(group);
    bool is_victim = rank == board->victim, begins = !is_victim || board->variant != IDLE;
    CHECK(shoal_pipe_create(group, &options, &pipe));
    REQUIRE(good_step(group, pipe, 10) == 0);
    CHECK(shoal_group_set_timeout(group, is_victim ? LONG_MS : SHORT_MS));
    if (begins)
        CHECK(shoal_pipe_step_begin(pipe));
    if (is_victim && board->variant == BUSY) {
        CHECK(shoal_pipe_submit(pipe, &task));
        REQUIRE(next_is(group, pipe, SHOAL_PIPE_START, &task) == 0);
    }
    atomic_store(&board->stage[rank], 1);
    if (board->variant == STOPPED)
        REQUIRE(board_wait(&board->go, is_victim ? 2 : 1) == 0);
    for (int i = 0; i < shoal_group_size(group) && is_victim && board->variant != STOPPED; i++)
        REQUIRE(i == rank || board_wait(&board->stage[i], 2) == 0);
    EXPECT(next_fails(group, pipe), SHOAL_ERR_TIMEOUT, "has had nothing to run in step 2 for 1000 ",
           "because of rank 0 (host host0): ", doing[board->variant]);
    atomic_store(&board->stage[rank], 2);
    CHECK(shoal_group_set_timeout(group, LONG_MS));
    return let_go(group, pipe, SHOAL_ERR_TIMEOUT, "nothing to run");
}

static int work_for_oneself(shoal_group_t group, shoal_pipe_t pipe)
{
    for (int i = 0; i < 17; i++) {
        struct shoal_pipe_task task = task_of(0, SHOAL_PIPE_START, -1);
        CHECK(shoal_pipe_submit(pipe, &task));
        REQUIRE(next_is(group, pipe, SHOAL_PIPE_START, &task) == 0);
        poll(NULL, 0, SHORT_MS / 5);
    }
    for (int i = 1; i < shoal_group_size(group); i++) {
        struct shoal_pipe_task task = task_of(i, SHOAL_PIPE_FORWARD, 2);
        CHECK(shoal_pipe_submit(pipe, &task));
    }
    return 0;
}

/* Rank 0 is at work for longer than the timeout, but not on one task: the others wait for it. */
static int submit_late(shoal_group_t group, struct board *board)
{
    (void)board;
    struct shoal_pipe_options options = good_options();
    struct shoal_pipe_task task;
    shoal_pipe_t pipe = NULL;
    CHECK(shoal_pipe_create(group, &options, &pipe));
    CHECK(shoal_group_set_timeout(group, 3 * SHORT_MS));
    CHECK(shoal_pipe_step_begin(pipe));
    if (shoal_group_rank(group) == 0)
        REQUIRE(work_for_oneself(group, pipe) == 0);
    else
        REQUIRE(next_is(group, pipe, SHOAL_PIPE_FORWARD, &task) == 0);
    CHECK(shoal_group_set_timeout(group, LONG_MS));
    CHECK(shoal_pipe_step_end(pipe));
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

/* The victim does not come to the end of the step. */
static int never_end(shoal_group_t group, struct board *board)
{
    shoal_pipe_t pipe = NULL;
    struct shoal_pipe_task task = task_of(1, SHOAL_PIPE_BACKWARD, 0);
    int rank = shoal_group_rank(group);
    REQUIRE(make_and_use(group, false, &pipe) == 0);
    CHECK(shoal_group_set_timeout(group, SHORT_MS));
    if (rank == 0)
        CHECK(shoal_pipe_submit(pipe, &task));
    if (rank == 1)
        REQUIRE(next_is(group, pipe, SHOAL_PIPE_BACKWARD, &task) == 0);
    for (int i = 0; i < shoal_group_size(group) && rank == 1; i++)
        REQUIRE(i == 1 || board_wait(&board->stage[i], 1) == 0);
    EXPECT(shoal_pipe_step_end(pipe), SHOAL_ERR_TIMEOUT, "the end of step 3", "rank 1 (host ",
           "it has run backward of module 0 'embedding', microbatch 3");
    atomic_store(&board->stage[rank], 1);
    CHECK(shoal_group_set_timeout(group, LONG_MS));
    return let_go(group, pipe, SHOAL_ERR_TIMEOUT, "the end of step 3");
}

static int list_of_head(shoal_group_t group, shoal_pipe_t pipe)
{
    const struct shoal_pipe_run runs[] = {
        {.kind = SHOAL_PIPE_BACKWARD, .module = 2, .microbatch = MICROBATCH},
        {.kind = SHOAL_PIPE_FORWARD, .module = 2, .microbatch = MICROBATCH}};
    const struct shoal_pipe_run wrong = {.kind = SHOAL_PIPE_CONTROL};
    EXPECT(shoal_pipe_list(pipe, &wrong, 1), SHOAL_ERR_ARGUMENT, "runs[0]", "kind 0");
    EXPECT(shoal_pipe_list(pipe, NULL, 1), SHOAL_ERR_ARGUMENT, "not 1");
    CHECK(shoal_pipe_list(pipe, runs, 2));
    CHECK(shoal_pipe_step_begin(pipe));
    EXPECT(shoal_pipe_list(pipe, runs, 2), SHOAL_ERR_STATE, "between steps");
    CHECK(shoal_barrier(group, NULL));
    return 0;
}

/* The list has a backward before the forward, which alone comes. */
static int list_stands_still(shoal_group_t group, struct board *board)
{
    struct shoal_pipe_options options = good_options();
    struct shoal_pipe_task task = task_of(0, SHOAL_PIPE_FORWARD, 2);
    shoal_pipe_t pipe = NULL;
    bool ends = board->variant != 0;
    CHECK(shoal_pipe_create(group, &options, &pipe));
    REQUIRE(list_of_head(group, pipe) == 0);
    CHECK(shoal_group_set_timeout(group, SHORT_MS));
    task.rank = shoal_group_rank(group);
    if (task.rank == 1 && !ends)
        CHECK(shoal_pipe_submit(pipe, &task));
    if (ends)
        EXPECT(shoal_pipe_step_end(pipe), SHOAL_ERR_STATE, "step 1", "at 0 of 2 of its list",
               "backward of module 2 'head', microbatch 3 did not come");
    else
        EXPECT(shoal_pipe_next(pipe, -1, &task), SHOAL_ERR_TIMEOUT, "the list of rank 1 (host ",
               "at 0 of 2, has come to backward of module 2 'head', microbatch 3",
               "ready instead is forward of module 2 'head', microbatch 3");
    CHECK(shoal_group_set_timeout(group, LONG_MS));
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

/* The victim dies with views of others' memory, and others with views of its own. */
static int die(shoal_group_t group, struct board *board)
{
    shoal_pipe_t pipe = NULL;
    char who[32];
    uint64_t value = 0;
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    int rank = shoal_group_rank(group);
    snprintf(who, sizeof(who), "rank %d (host ", board->victim);
    REQUIRE(make_and_use(group, true, &pipe) == 0);
    if (rank == 1)
        REQUIRE(run_maker(group, pipe, 100000, &value) == 0);
    else
        REQUIRE(next_is(group, pipe, SHOAL_PIPE_FORWARD, &task) == 0);
    atomic_store(&board->stage[rank], 1);
    for (int i = 0; i < shoal_group_size(group); i++)
        REQUIRE(board_wait(&board->stage[i], 1) == 0);
    if (rank == board->victim)
        raise(SIGKILL);
    task = (struct shoal_pipe_task)SHOAL_PIPE_TASK_INIT;
    EXPECT(shoal_pipe_next(pipe, -1, &task), SHOAL_ERR_PEER_LOST, "pipe 'stages'", who);
    EXPECT(shoal_pipe_step_end(pipe), SHOAL_ERR_PEER_LOST, who);
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

/* Its reason comes before the news of its end. */
static int abort_and_end(shoal_group_t group, struct board *board)
{
    shoal_pipe_t pipe = NULL;
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    REQUIRE(make_and_use(group, false, &pipe) == 0);
    REQUIRE(scenario_let_victim_go(group, board) == 0);
    if (shoal_group_rank(group) == board->victim) {
        CHECK(shoal_pipe_abort(pipe, "out of memory"));
        raise(SIGKILL);
    }
    EXPECT(shoal_pipe_next(pipe, -1, &task), SHOAL_ERR_ABORTED, "aborted by rank 1 (host ",
           ": out of memory");
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

static int abort_group(shoal_group_t group, struct board *board)
{
    shoal_pipe_t pipe = NULL;
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    REQUIRE(make_and_use(group, false, &pipe) == 0);
    REQUIRE(scenario_let_victim_go(group, board) == 0);
    if (shoal_group_rank(group) == board->victim)
        CHECK(shoal_group_abort(group, "the disk is full"));
    EXPECT(shoal_pipe_next(pipe, -1, &task), SHOAL_ERR_ABORTED, "pipe 'stages'",
           "the disk is full");
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

static void test_late(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i += 2) {
        struct scenario scenario = {.layout = &layouts[i],
                                    .victim = 1,
                                    .variant = STOPPED,
                                    .act = never_put,
                                    .meanwhile = scenario_stop_victim};
        scenario_run(&scenario);
    }
    struct scenario scenario = {.layout = &layouts[2], .victim = 1, .act = never_put};
    for (scenario.variant = BUSY; scenario.variant <= IDLE; scenario.variant++)
        scenario_run(&scenario);
    scenario.act = never_end;
    scenario_run(&scenario);
    scenario.act = list_stands_still;
    for (scenario.variant = 0; scenario.variant < 2; scenario.variant++)
        scenario_run(&scenario);
}

static void test_idle(void **state)
{
    (void)state;
    struct scenario scenario = {.layout = &layouts[2], .act = never_submit};
    for (scenario.variant = BUSY; scenario.variant <= IDLE; scenario.variant++)
        scenario_run(&scenario);
    scenario.variant = STOPPED;
    scenario.meanwhile = scenario_stop_victim;
    scenario_run(&scenario);
    scenario_run(&(struct scenario){.layout = &layouts[2], .act = submit_late});
}

static void test_death_and_abort(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++)
        on_layouts((struct scenario){
            .victim = victim, .victim_code = 256 + SIGKILL, .victim_stays = true, .act = die});
    on_layouts((struct scenario){.victim = 1, .act = abort_group});
    for (int i = 0; i < 5; i++)
        on_layouts((struct scenario){
            .victim = 1, .victim_code = 256 + SIGKILL, .victim_stays = true, .act = abort_and_end});
}

/* ---- memory
 * ---------------------------------------------------------------------------------------------- */

/* What does not fit in shared memory travels in messages. */
static int lack_shared(shoal_group_t group, struct board *board)
{
    (void)board;
    struct shoal_pipe_options options = good_options();
    struct shoal_pipe_counters counters = SHOAL_PIPE_COUNTERS_INIT;
    shoal_pipe_t pipe = NULL;
    CHECK(shoal_pipe_create(group, &options, &pipe));
    REQUIRE(good_step(group, pipe, 40u << 20) == 0);
    CHECK(shoal_pipe_counters(pipe, &counters));
    REQUIRE(counters.shared_bytes == 0);
    REQUIRE(shoal_group_rank(group) != 1 || counters.message_bytes >= 40u << 20);
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

static int lack_memory(shoal_group_t group, struct board *board)
{
    (void)board;
    shoal_pipe_t pipe = NULL;
    uint64_t value = 0;
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    REQUIRE(make_and_use(group, true, &pipe) == 0);
    if (shoal_group_rank(group) == 1) {
        REQUIRE(next_is(group, pipe, SHOAL_PIPE_FORWARD, &task) == 0);
        memcpy(&value, task.blob, sizeof(value));
        base_memory_fail_at(1);
        EXPECT(shoal_pipe_put(pipe, value, NULL, 0, NULL, 0), SHOAL_ERR_MEMORY,
               "value 3 of rank 0, put on rank 1", "no memory for a value");
        base_memory_fail_at(0);
    }
    EXPECT(shoal_pipe_next(pipe, -1, &task), SHOAL_ERR_MEMORY, "value 3 of rank 0, put on rank 1",
           "no memory for a value");
    return let_go(group, pipe, SHOAL_ERR_MEMORY, "no memory");
}

static void test_memory(void **state)
{
    (void)state;
    struct scenario scenario = {
        .layout = &layouts[0], .act = lack_shared, .environment = {"SHOAL_SHARED_BYTES=32M"}};
    scenario_run(&scenario);
    on_layouts((struct scenario){.act = lack_memory});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differing), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_misuse),    cmocka_unit_test(test_late),
        cmocka_unit_test(test_idle),      cmocka_unit_test(test_death_and_abort),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
