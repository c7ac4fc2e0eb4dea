/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe_test.c: tasks and values between real processes, on one host and on several: values of all
 * sizes go from the rank that makes them to those that need them, whatever is heard of first; a
 * model over several stages; steps that run in a given order; any rank submits, from any thread;
 * steps end with nothing left.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "support/processes.h"

static void expect_run(int size, int hosts, int (*main)(shoal_group_t group, void *user))
{
    struct processes run = {.size = size, .hosts = hosts, .main = main};
    assert_true(processes_run(&run));
}

static struct shoal_pipe_task task_of(int rank, enum shoal_pipe_kind kind, int module,
                                      int microbatch)
{
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    task.rank = rank;
    task.kind = kind;
    task.module = module;
    task.microbatch = microbatch;
    return task;
}

static struct shoal_pipe_counters counters_of(shoal_pipe_t pipe)
{
    struct shoal_pipe_counters counters = SHOAL_PIPE_COUNTERS_INIT;
    if (shoal_pipe_counters(pipe, &counters) != SHOAL_OK)
        abort();
    return counters;
}

/* ---- a model over stages
 * ---------------------------------------------------------------------------------------------- */

#define MICROBATCHES 5
#define EXITS        6
#define STEPS        3

/* Elements of the activations between stages: small ones travel in a message, large ones not. */
static const uint64_t widths[] = {0, 1, 100, 3000, 100000};
#define WIDTHS ((int)(sizeof(widths) / sizeof(widths[0])))

/* What a task's blob says. */
struct work {
    uint64_t result;
};

/* Forward of stage s doubles and adds s; backward triples. */
static int run_stage(shoal_group_t group, shoal_pipe_t pipe, const struct shoal_pipe_task *task)
{
    struct shoal_pipe_value value = SHOAL_PIPE_VALUE_INIT;
    struct work work;
    memcpy(&work, task->blob, sizeof(work));
    CHECK(shoal_pipe_value(pipe, task->needs[0], &value));
    REQUIRE(value.buffer_count == 1 && value.descriptor_bytes == sizeof(int));
    uint64_t count = value.buffers[0].bytes / sizeof(int);
    int *out = malloc(value.buffers[0].bytes + 1), stage = task->module;
    const int *in = value.buffers[0].data;
    REQUIRE(out && (uintptr_t)in % 64 == 0);
    for (uint64_t i = 0; i < count; i++)
        out[i] = task->kind == SHOAL_PIPE_FORWARD ? 2 * in[i] + stage : 3 * in[i];
    struct shoal_pipe_buffer buffer = {out, value.buffers[0].bytes};
    CHECK(shoal_pipe_put(pipe, work.result, &stage, sizeof(stage), &buffer, 1));
    free(out);
    CHECK(shoal_pipe_release(pipe, task->needs[0]));
    return 0;
}

/* Submits the stages' tasks of a microbatch in one direction; *id: first the input, then the last
 * stage's output. */
static int submit_chain(shoal_group_t group, shoal_pipe_t pipe, enum shoal_pipe_kind kind,
                        int microbatch, uint64_t *id)
{
    int size = shoal_group_size(group);
    for (int i = 0; i < size; i++) {
        int stage = kind == SHOAL_PIPE_FORWARD ? i : size - 1 - i;
        struct shoal_pipe_task task = task_of(stage, kind, stage, microbatch);
        struct work work = {0};
        CHECK(shoal_pipe_promise(pipe, stage, &work.result));
        task.blob = &work;
        task.blob_bytes = sizeof(work);
        task.needs = id;
        task.need_count = 1;
        CHECK(shoal_pipe_submit(pipe, &task));
        CHECK(shoal_pipe_drop(pipe, *id));
        *id = work.result;
    }
    return 0;
}

static int expected(int size, int microbatch, uint64_t i)
{
    int value = (int)(i % 1000) + microbatch;
    for (int stage = 0; stage < size; stage++)
        value = 2 * value + stage;
    return value;
}

/* The leader's part of a microbatch: its forward, and its backward behind it. */
static int start(shoal_group_t group, shoal_pipe_t pipe, uint64_t width, int microbatch)
{
    int *in = malloc(width * sizeof(int) + 1), input = -1;
    struct shoal_pipe_task resume = task_of(0, SHOAL_PIPE_RESUME, -1, microbatch);
    uint64_t id = 0;
    for (uint64_t i = 0; i < width; i++)
        in[i] = (int)(i % 1000) + microbatch;
    struct shoal_pipe_buffer buffer = {in, width * sizeof(int)};
    CHECK(shoal_pipe_promise(pipe, 0, &id));
    CHECK(shoal_pipe_put(pipe, id, &input, sizeof(input), &buffer, 1));
    free(in);
    REQUIRE(submit_chain(group, pipe, SHOAL_PIPE_FORWARD, microbatch, &id) == 0);
    resume.needs = &id;
    resume.need_count = 1;
    CHECK(shoal_pipe_submit(pipe, &resume));
    REQUIRE(submit_chain(group, pipe, SHOAL_PIPE_BACKWARD, microbatch, &id) == 0);
    resume.blob = "last";
    resume.blob_bytes = 4;
    resume.needs = &id;
    CHECK(shoal_pipe_submit(pipe, &resume));
    CHECK(shoal_pipe_drop(pipe, id));
    return 0;
}

static int check_output(shoal_group_t group, shoal_pipe_t pipe, const struct shoal_pipe_task *task,
                        uint64_t width, bool last)
{
    struct shoal_pipe_value value = SHOAL_PIPE_VALUE_INIT;
    int size = shoal_group_size(group), factor = 1;
    CHECK(shoal_pipe_value(pipe, task->needs[0], &value));
    REQUIRE(value.buffers[0].bytes == width * sizeof(int));
    for (int i = 0; i < size && last; i++)
        factor *= 3;
    for (uint64_t i = 0; i < width; i++)
        REQUIRE(((const int *)value.buffers[0].data)[i] ==
                factor * expected(size, task->microbatch, i));
    CHECK(shoal_pipe_release(pipe, task->needs[0]));
    return 0;
}

static int tell_all(shoal_group_t group, shoal_pipe_t pipe)
{
    for (int i = 1; i < shoal_group_size(group); i++) {
        struct shoal_pipe_task task = task_of(i, SHOAL_PIPE_CONTROL, -1, 0);
        CHECK(shoal_pipe_submit(pipe, &task));
    }
    return 0;
}

/* A microbatch ends with the second of its two results: the later one may come first. */
static int lead(shoal_group_t group, shoal_pipe_t pipe, uint64_t width)
{
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    bool resumed[MICROBATCHES] = {false};
    CHECK(shoal_pipe_step_begin(pipe));
    for (int i = 0; i < MICROBATCHES; i++) {
        task = task_of(0, SHOAL_PIPE_START, -1, i);
        CHECK(shoal_pipe_submit(pipe, &task));
    }
    for (int ended = 0; ended < MICROBATCHES;) {
        CHECK(shoal_pipe_next(pipe, -1, &task));
        if (task.kind == SHOAL_PIPE_START) {
            REQUIRE(start(group, pipe, width, task.microbatch) == 0);
        } else if (task.kind == SHOAL_PIPE_RESUME) {
            bool ends = resumed[task.microbatch];
            REQUIRE(check_output(group, pipe, &task, width, task.blob_bytes > 0) == 0);
            resumed[task.microbatch] = true;
            ended += ends;
            if (ends)
                CHECK(shoal_pipe_microbatch_end(pipe));
        } else {
            REQUIRE(run_stage(group, pipe, &task) == 0);
        }
    }
    REQUIRE(tell_all(group, pipe) == 0);
    CHECK(shoal_pipe_step_end(pipe));
    return 0;
}

static int serve(shoal_group_t group, shoal_pipe_t pipe)
{
    struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
    CHECK(shoal_pipe_step_begin(pipe));
    CHECK(shoal_pipe_next(pipe, -1, &task));
    while (task.kind != SHOAL_PIPE_CONTROL) {
        REQUIRE(run_stage(group, pipe, &task) == 0);
        CHECK(shoal_pipe_next(pipe, -1, &task));
    }
    CHECK(shoal_pipe_step_end(pipe));
    return 0;
}

static int one_step(shoal_group_t group, shoal_pipe_t pipe, uint64_t width)
{
    return shoal_group_rank(group) == 0 ? lead(group, pipe, width) : serve(group, pipe);
}

static int check_counters(shoal_group_t group, shoal_pipe_t pipe)
{
    struct shoal_pipe_counters counters = counters_of(pipe);
    uint64_t rounds = (uint64_t)STEPS * WIDTHS * MICROBATCHES;
    bool leads = shoal_group_rank(group) == 0;
    struct shoal_pipe_run runs[64];
    int count = 0;
    REQUIRE(counters.steps == (uint64_t)STEPS * WIDTHS);
    REQUIRE(counters.tasks[SHOAL_PIPE_FORWARD] == rounds);
    REQUIRE(counters.tasks[SHOAL_PIPE_BACKWARD] == rounds);
    REQUIRE(counters.tasks[SHOAL_PIPE_RESUME] == (leads ? 2 * rounds : 0));
    REQUIRE(counters.values == (leads ? 3 : 2) * rounds);
    REQUIRE(counters.kept_bytes == 0 && counters.kept_most > 0);
    if (shoal_group_local_size(group) == shoal_group_size(group) && shoal_group_size(group) > 1)
        REQUIRE(counters.shared_bytes > 0 && counters.message_bytes < counters.shared_bytes);
    CHECK(shoal_pipe_timeline(pipe, runs, 64, &count));
    REQUIRE(!leads || count == 5 * MICROBATCHES);
    for (int i = 0; i < count && leads; i++)
        REQUIRE(runs[i].begin_ns <= runs[i].end_ns &&
                (i == 0 || runs[i - 1].end_ns <= runs[i].begin_ns));
    return 0;
}

static int model(shoal_group_t group, void *user)
{
    struct shoal_pipe_options options = SHOAL_PIPE_OPTIONS_INIT;
    shoal_pipe_t pipe = NULL;
    options.module_count = shoal_group_size(group);
    options.order = *(enum shoal_pipe_order *)user;
    options.active_microbatches = 2;
    CHECK(shoal_pipe_create(group, &options, &pipe));
    for (int step = 0; step < STEPS; step++)
        for (int width = 0; width < WIDTHS; width++)
            REQUIRE(one_step(group, pipe, widths[width]) == 0);
    REQUIRE(check_counters(group, pipe) == 0);
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

static void test_model(void **state)
{
    (void)state;
    static enum shoal_pipe_order orders[] = {SHOAL_PIPE_INTERLEAVED, SHOAL_PIPE_SIMPLE};
    static const int sizes[][2] = {{1, 1}, {2, 1}, {2, 2}, {4, 2}};
    for (int i = 0; i < 4; i++) {
        struct processes run = {
            .size = sizes[i][0], .hosts = sizes[i][1], .main = model, .user = &orders[i % 2]};
        assert_true(processes_run(&run));
    }
}

/* ---- lists
 * ---------------------------------------------------------------------------------------------- */

#define RUNS_MAX 64

static int read_timeline(shoal_group_t group, shoal_pipe_t pipe, struct shoal_pipe_run *runs,
                         int *count)
{
    CHECK(shoal_pipe_timeline(pipe, runs, RUNS_MAX, count));
    REQUIRE(*count > 0 && *count <= RUNS_MAX);
    return 0;
}

/* Steps run as the first one did, until they need not. */
static int replay(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_pipe_options options = SHOAL_PIPE_OPTIONS_INIT;
    struct shoal_pipe_run first[RUNS_MAX], later[RUNS_MAX];
    shoal_pipe_t pipe = NULL;
    int first_count = 0, later_count = 0;
    options.module_count = shoal_group_size(group);
    CHECK(shoal_pipe_create(group, &options, &pipe));
    REQUIRE(one_step(group, pipe, 100) == 0);
    REQUIRE(read_timeline(group, pipe, first, &first_count) == 0);
    CHECK(shoal_pipe_list(pipe, first, first_count));
    for (int step = 0; step < 10; step++) {
        REQUIRE(one_step(group, pipe, step % 2 ? 20000 : 1) == 0);
        REQUIRE(read_timeline(group, pipe, later, &later_count) == 0);
        REQUIRE(later_count == first_count);
        for (int i = 0; i < first_count; i++)
            REQUIRE(later[i].kind == first[i].kind && later[i].module == first[i].module &&
                    later[i].microbatch == first[i].microbatch);
    }
    CHECK(shoal_pipe_list(pipe, NULL, 0));
    REQUIRE(one_step(group, pipe, 100) == 0);
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

static void test_replay(void **state)
{
    (void)state;
    expect_run(1, 1, replay);
    expect_run(3, 1, replay);
    expect_run(2, 2, replay);
}

/* ---- any rank, any thread, any order
 * ---------------------------------------------------------------------------------------------- */

#define THREADS  2
#define PROMISES 60 /* of each thread */
#define USERS    3  /* tasks for each promise */

/* A task that makes a value, or one that checks some. */
struct random_work {
    uint64_t makes;
    uint32_t seed;
    uint32_t counts_of_all[16]; /* control: so many tasks come to each rank */
};

struct random {
    uint64_t state;
};

static uint32_t draw(struct random *random, uint32_t below)
{
    random->state = random->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random->state >> 33) % below;
}

/* What the value of that id holds: its sizes and bytes follow from it. */
static int buffers_of(uint64_t id, uint64_t *bytes)
{
    struct random random = {id};
    static const uint32_t limits[] = {1, 40, 3000, 40000};
    int count = (int)draw(&random, 4);
    for (int i = 0; i < count; i++)
        bytes[i] = draw(&random, limits[draw(&random, 4)]);
    return count;
}

static unsigned char byte_of(uint64_t id, int buffer, uint64_t i)
{
    return (unsigned char)(id * 31 + (uint64_t)buffer * 7 + i);
}

static int make_value(shoal_group_t group, shoal_pipe_t pipe, uint64_t id)
{
    struct shoal_pipe_buffer buffers[4];
    static unsigned char memory[4][40000];
    uint64_t bytes[4];
    int count = buffers_of(id, bytes);
    for (int b = 0; b < count; b++) {
        for (uint64_t i = 0; i < bytes[b]; i++)
            memory[b][i] = byte_of(id, b, i);
        buffers[b] = (struct shoal_pipe_buffer){memory[b], bytes[b]};
    }
    CHECK(shoal_pipe_put(pipe, id, &id, sizeof(id), buffers, count));
    memset(memory, 0xee, sizeof(memory));
    return 0;
}

static int check_value(shoal_group_t group, shoal_pipe_t pipe, uint64_t id)
{
    struct shoal_pipe_value value = SHOAL_PIPE_VALUE_INIT;
    uint64_t bytes[4];
    CHECK(shoal_pipe_value(pipe, id, &value));
    REQUIRE(value.buffer_count == buffers_of(id, bytes));
    REQUIRE(value.descriptor_bytes == sizeof(id) && memcmp(value.descriptor, &id, sizeof(id)) == 0);
    for (int b = 0; b < value.buffer_count; b++) {
        REQUIRE(value.buffers[b].bytes == bytes[b]);
        for (uint64_t i = 0; i < bytes[b]; i++)
            REQUIRE(((const unsigned char *)value.buffers[b].data)[i] == byte_of(id, b, i));
    }
    CHECK(shoal_pipe_release(pipe, id));
    return 0;
}

struct submitter {
    pthread_t thread;
    shoal_group_t group;
    shoal_pipe_t pipe;
    uint64_t seed;
    uint32_t counts[16]; /* tasks submitted to each rank */
    int failed;
};

static int submit_maker(struct submitter *at, uint64_t id, int home)
{
    shoal_group_t group = at->group;
    struct random_work work = {.makes = id};
    struct shoal_pipe_task task = task_of(home, SHOAL_PIPE_FORWARD, -1, (int)(id % 7));
    task.blob = &work;
    task.blob_bytes = sizeof(work);
    CHECK(shoal_pipe_submit(at->pipe, &task));
    at->counts[home]++;
    return 0;
}

static int submit_user(struct submitter *at, struct random *random, const uint64_t *ids, int known)
{
    shoal_group_t group = at->group;
    uint64_t needs[3];
    struct random_work work = {0};
    struct shoal_pipe_task task = task_of((int)draw(random, (uint32_t)shoal_group_size(group)),
                                          SHOAL_PIPE_BACKWARD, -1, (int)draw(random, 9));
    task.need_count = 1 + (int)draw(random, 3);
    for (int i = 0; i < task.need_count; i++)
        needs[i] = ids[draw(random, (uint32_t)known)];
    task.needs = needs;
    task.blob = &work;
    task.blob_bytes = sizeof(work);
    CHECK(shoal_pipe_submit(at->pipe, &task));
    at->counts[task.rank]++;
    return 0;
}

/* Values are made before tasks need them, after that, or while they wait. */
static int submit_random(struct submitter *at)
{
    shoal_group_t group = at->group;
    struct random random = {at->seed};
    uint64_t ids[PROMISES];
    int homes[PROMISES];
    for (int i = 0; i < PROMISES; i++) {
        homes[i] = (int)draw(&random, (uint32_t)shoal_group_size(group));
        CHECK(shoal_pipe_promise(at->pipe, homes[i], &ids[i]));
        if (i % 2 == 0)
            REQUIRE(submit_maker(at, ids[i], homes[i]) == 0);
        for (int k = 0; k < USERS; k++)
            REQUIRE(submit_user(at, &random, ids, i + 1) == 0);
    }
    for (int i = PROMISES - 1; i >= 0; i--) {
        if (i % 4 == 1)
            CHECK(shoal_pipe_drop(at->pipe, ids[i]));
        if (i % 2 == 1)
            REQUIRE(submit_maker(at, ids[i], homes[i]) == 0);
        if (i % 4 != 1)
            CHECK(shoal_pipe_drop(at->pipe, ids[i]));
    }
    return 0;
}

static void *submit_in_thread(void *user)
{
    struct submitter *at = user;
    at->failed = submit_random(at);
    return NULL;
}

/* Tells each rank how many tasks it has got from this one. */
static int tell_counts(shoal_group_t group, shoal_pipe_t pipe, const struct submitter *submitters)
{
    for (int i = 0; i < shoal_group_size(group); i++) {
        struct shoal_pipe_task task = task_of(i, SHOAL_PIPE_CONTROL, -1, 0);
        struct random_work work = {0};
        for (int t = 0; t < THREADS; t++)
            work.counts_of_all[0] += submitters[t].counts[i];
        task.blob = &work;
        task.blob_bytes = sizeof(work);
        CHECK(shoal_pipe_submit(pipe, &task));
    }
    return 0;
}

static int run_random(shoal_group_t group, shoal_pipe_t pipe)
{
    uint32_t expected_tasks = 0, ran = 0;
    int heard = 0;
    while (heard < shoal_group_size(group) || ran < expected_tasks) {
        struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
        struct random_work work;
        CHECK(shoal_pipe_next(pipe, -1, &task));
        REQUIRE(task.blob_bytes == sizeof(work));
        memcpy(&work, task.blob, sizeof(work));
        if (task.kind == SHOAL_PIPE_CONTROL) {
            heard++;
            expected_tasks += work.counts_of_all[0];
            continue;
        }
        ran++;
        if (work.makes)
            REQUIRE(make_value(group, pipe, work.makes) == 0);
        for (int i = 0; i < task.need_count; i++)
            REQUIRE(check_value(group, pipe, task.needs[i]) == 0);
    }
    return 0;
}

static int at_random(shoal_group_t group, void *user)
{
    (void)user;
    struct submitter submitters[THREADS];
    shoal_pipe_t pipe = NULL;
    size_t held = 0;
    CHECK(shoal_pipe_create(group, NULL, &pipe));
    for (int step = 0; step < 6; step++) {
        CHECK(shoal_pipe_step_begin(pipe));
        for (int i = 0; i < THREADS; i++) {
            submitters[i] = (struct submitter){
                .group = group,
                .pipe = pipe,
                .seed = (uint64_t)(1000 * step + 10 * shoal_group_rank(group) + i + 1)};
            REQUIRE(pthread_create(&submitters[i].thread, NULL, submit_in_thread, &submitters[i]) ==
                    0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(submitters[i].thread, NULL);
            REQUIRE(!submitters[i].failed);
        }
        REQUIRE(tell_counts(group, pipe, submitters) == 0);
        REQUIRE(run_random(group, pipe) == 0);
        CHECK(shoal_pipe_step_end(pipe));
        CHECK(shoal_barrier(group, NULL));
        if (step == 0)
            held = base_memory_bytes();
    }
    REQUIRE(counters_of(pipe).steps == 6);
    REQUIRE(base_memory_bytes() < held + (4u << 20));
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

static void test_at_random(void **state)
{
    (void)state;
    expect_run(1, 1, at_random);
    expect_run(3, 1, at_random);
    expect_run(2, 2, at_random);
    expect_run(4, 2, at_random);
}

/* ---- limits of waiting
 * ---------------------------------------------------------------------------------------------- */

/* Nothing comes, and that is no error; outside of a step only control is given. */
/* Rank 0 looks at a value that the last rank has put, and holds it for three steps more. */
static int hold(shoal_group_t group, void *user)
{
    (void)user;
    shoal_pipe_t pipe = NULL;
    struct shoal_pipe_options options = SHOAL_PIPE_OPTIONS_INIT;
    int rank = shoal_group_rank(group), last = shoal_group_size(group) - 1;
    uint64_t id = 0;
    CHECK(shoal_pipe_create(group, &options, &pipe));
    if (rank == 0)
        CHECK(shoal_pipe_promise(pipe, last, &id));
    CHECK(shoal_broadcast(&id, 1, SHOAL_U64, 0, group, NULL));
    CHECK(shoal_pipe_step_begin(pipe));
    if (rank == last)
        REQUIRE(make_value(group, pipe, id) == 0);
    if (rank == 0) {
        struct shoal_pipe_task task = task_of(0, SHOAL_PIPE_RESUME, -1, 0);
        task.needs = &id;
        task.need_count = 1;
        CHECK(shoal_pipe_submit(pipe, &task));
        CHECK(shoal_pipe_next(pipe, -1, &task));
    }
    for (int step = 0; step < 3; step++) {
        CHECK(shoal_pipe_step_end(pipe));
        CHECK(shoal_pipe_step_begin(pipe));
    }
    if (rank == 0) {
        CHECK(shoal_pipe_drop(pipe, id));
        REQUIRE(check_value(group, pipe, id) == 0);
    }
    CHECK(shoal_pipe_step_end(pipe));
    REQUIRE(counters_of(pipe).kept_bytes == 0);
    return shoal_pipe_free(pipe) == SHOAL_OK ? 0 : 1;
}

static void test_hold(void **state)
{
    (void)state;
    expect_run(1, 1, hold);
    expect_run(3, 1, hold);
    expect_run(3, 3, hold);
}

static int nothing_yet(shoal_group_t group, void *user)
{
    (void)user;
    shoal_pipe_t pipe = NULL;
    struct shoal_pipe_task task = task_of(0, SHOAL_PIPE_FORWARD, -1, 0);
    struct shoal_pipe_task given = SHOAL_PIPE_TASK_INIT;
    CHECK(shoal_pipe_create(group, NULL, &pipe));
    REQUIRE(shoal_pipe_next(pipe, 0, &given) == SHOAL_IN_PROGRESS);
    task.rank = shoal_group_rank(group);
    CHECK(shoal_pipe_submit(pipe, &task));
    REQUIRE(shoal_pipe_next(pipe, 5, &given) == SHOAL_IN_PROGRESS);
    task.kind = SHOAL_PIPE_CONTROL;
    CHECK(shoal_pipe_submit(pipe, &task));
    CHECK(shoal_pipe_next(pipe, 0, &given));
    REQUIRE(given.kind == SHOAL_PIPE_CONTROL && given.rank == shoal_group_rank(group));
    CHECK(shoal_pipe_step_begin(pipe));
    CHECK(shoal_pipe_next(pipe, 0, &given));
    REQUIRE(given.kind == SHOAL_PIPE_FORWARD);
    CHECK(shoal_pipe_step_end(pipe));
    CHECK(shoal_pipe_free(pipe));
    return 0;
}

static void test_nothing_yet(void **state)
{
    (void)state;
    expect_run(1, 1, nothing_yet);
    expect_run(3, 1, nothing_yet);
}

/* A rank ends with its last step, while others may still be on their way out of it. */
static int exit_behind_step(shoal_group_t group, void *user)
{
    (void)user;
    shoal_pipe_t pipe = NULL;
    CHECK(shoal_pipe_create(group, NULL, &pipe));
    CHECK(shoal_pipe_step_begin(pipe));
    CHECK(shoal_pipe_step_end(pipe));
    exit(0);
}

static void test_exit_behind_a_step(void **state)
{
    (void)state;
    for (int round = 0; round < EXITS; round++)
        expect_run(2, 1 + round % 2, exit_behind_step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),       cmocka_unit_test(test_replay),
        cmocka_unit_test(test_at_random),   cmocka_unit_test(test_hold),
        cmocka_unit_test(test_nothing_yet), cmocka_unit_test(test_exit_behind_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
