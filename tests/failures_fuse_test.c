/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_fuse_test.c: fuses that are made differently or used wrongly, and what breaks amid a
 * step: each rank gets an error that names the rank, the host, the tensor and the step; the group
 * goes on if nothing happened to it.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/scenario.h"

#define TENSORS    4
#define ODD        1    /* the rank that is different, or does something wrong */
#define LACKING_MS 2000 /* half of it is for questions, and for who lacks something to say so */
#define LONG_MS    20000
#define GOOD_STEPS 2

static const uint64_t counts[TENSORS] = {3000, 5, 1024, 700};
static const char *const names[TENSORS] = {"embedding", "bias", "weight", "head"};

static struct shoal_fuse_options good_options(void)
{
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    options.tensor_count = TENSORS;
    options.counts = counts;
    options.tensor_names = names;
    options.name = "layers";
    options.buffer_bytes = 4096;
    return options;
}

static int good_steps(shoal_group_t group, shoal_fuse_t fuse)
{
    for (int step = 0; step < GOOD_STEPS; step++) {
        for (int i = 0; i < TENSORS; i++)
            CHECK(shoal_fuse_add(fuse, i, NULL, NULL, counts[i]));
        CHECK(shoal_fuse_finish(fuse));
    }
    return 0;
}

/* Leaves all ranks before their third step. */
static int make_and_use_as(shoal_group_t group, enum shoal_compression compression,
                           shoal_fuse_t *out)
{
    struct shoal_fuse_options options = good_options();
    options.compression = compression;
    CHECK(shoal_fuse_create(group, &options, out));
    REQUIRE(good_steps(group, *out) == 0);
    CHECK(shoal_barrier(group, NULL));
    return 0;
}

static int make_and_use(shoal_group_t group, shoal_fuse_t *out)
{
    return make_and_use_as(group, SHOAL_COMPRESSION_NONE, out);
}

/* A step of which others may hear amid it that it failed. */
static enum shoal_status whole_step(shoal_fuse_t fuse)
{
    enum shoal_status status = SHOAL_OK;
    for (int i = TENSORS - 1; i >= 0 && status == SHOAL_OK; i--)
        status = shoal_fuse_add(fuse, i, NULL, NULL, counts[i]);
    return status == SHOAL_OK ? shoal_fuse_finish(fuse) : status;
}

/* Broken for good, and the group is not. */
static int let_go(shoal_group_t group, shoal_fuse_t fuse, enum shoal_status status, const char *why)
{
    EXPECT(shoal_fuse_add(fuse, 0, NULL, NULL, counts[0]), status, "fuse 'layers'", why);
    EXPECT(shoal_fuse_flush(fuse), status, "fuse 'layers'", why);
    EXPECT(shoal_fuse_wait(fuse, 0), status, "fuse 'layers'", why);
    EXPECT(shoal_fuse_finish(fuse), status, "fuse 'layers'", why);
    CHECK(shoal_fuse_free(fuse));
    CHECK(scenario_sum(group, 1000, false));
    return 0;
}

/* ---- fuses that are made differently
 * ---------------------------------------------------------------------------------------------- */

static const uint64_t other_counts[TENSORS] = {3000, 5, 1025, 700};
static const char *const other_names[TENSORS] = {"embedding", "weight", "bias", "head"};
static const int order[TENSORS] = {0, 1, 2, 3};

enum difference {
    NAME,
    NUMBER,
    COUNT,
    NAMELESS,
    TENSOR_NAME,
    DTYPE,
    OP,
    BYTES,
    IN_FLIGHT,
    ORDER,
    COMPRESSION,
    FEEDBACK,
    DIFFERENCES
};

/* What messages say of it. */
static const char *const differences[DIFFERENCES] = {
    "the name is others on rank 1",
    "the number of tensors is 3",
    "tensor 2 is 'weight' of 1025 elements",
    "tensor 2 is of 1025 elements on rank 1",
    "tensor 1 is 'weight' of 5",
    "the dtype is f64",
    "the op is sum",
    "the size of its buffers is 8192",
    "buffers in flight is 7",
    "options.order is",
    "the compression is f16 on rank 1",
    "error feedback is off on rank 1",
};

static void make_different(struct shoal_fuse_options *options, enum difference difference)
{
    switch (difference) {
    case NAME: options->name = "others"; break;
    case NUMBER: options->tensor_count = 3; break;
    case COUNT:
    case NAMELESS: options->counts = other_counts; break;
    case TENSOR_NAME: options->tensor_names = other_names; break;
    case DTYPE: options->dtype = SHOAL_F64; break;
    case OP: options->op = SHOAL_SUM; break;
    case BYTES: options->buffer_bytes = 8192; break;
    case IN_FLIGHT: options->in_flight = 7; break;
    case COMPRESSION: options->compression = SHOAL_COMPRESSION_F16; break;
    case FEEDBACK: options->error_feedback = 0; break;
    default: options->order = order;
    }
}

static int differ(shoal_group_t group, struct board *board)
{
    (void)board;
    for (int i = 0; i < DIFFERENCES; i++) {
        struct shoal_fuse_options options = good_options();
        shoal_fuse_t fuse = NULL;
        if (i == NAMELESS)
            options.tensor_names = NULL; /* on all ranks */
        if (shoal_group_rank(group) == ODD)
            make_different(&options, (enum difference)i);
        EXPECT(shoal_fuse_create(group, &options, &fuse), SHOAL_ERR_MISMATCH, "fuse '",
               differences[i], "rank 1 (host ", "rank 0 (host host0)");
        REQUIRE(fuse == NULL);
    }
    CHECK(scenario_sum(group, 1000, false));
    return 0;
}

static void test_different(void **state)
{
    (void)state;
    scenario_on_every_layout((struct scenario){.act = differ});
}

static const struct layout local = {"local", 3, 1, PATH_LOCAL};
static const struct layout mixed = {"mixed", 4, 2, PATH_MIXED};

/* One rank's region is too small. */
static int lack_memory(shoal_group_t group, struct board *board)
{
    struct shoal_fuse_options options = good_options();
    uint64_t many[TENSORS] = {3000000, 3000000, 3000000, 3000000};
    shoal_fuse_t fuse = NULL;
    options.counts = many;
    options.buffer_bytes = 1 << 20;
    bool victim = shoal_group_rank(group) == board->victim;
    EXPECT(shoal_fuse_create(group, &options, &fuse), SHOAL_ERR_MEMORY,
           victim ? "SHOAL_SHARED_BYTES" : "rank 2 (host host0) has no memory for fuse 'layers'");
    REQUIRE(make_and_use(group, &fuse) == 0);
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct scenario scenario = {.layout = &local,
                                .act = lack_memory,
                                .victim = 2,
                                .victim_environment = "SHOAL_SHARED_BYTES=32M"};
    scenario_run(&scenario);
}

/* ---- arguments
 * ---------------------------------------------------------------------------------------------- */

#define REFUSED(change, ...)                                                                \
    do {                                                                                    \
        struct shoal_fuse_options options = good_options();                                 \
        change;                                                                             \
        EXPECT(shoal_fuse_create(group, &options, &fuse), SHOAL_ERR_ARGUMENT, __VA_ARGS__); \
    } while (0)

static int refuse_options(shoal_group_t group)
{
    shoal_fuse_t fuse = NULL;
    static const int twice[TENSORS] = {0, 1, 1, 2}, beyond[TENSORS] = {0, 1, 2, 4};
    static const char *const nameless[TENSORS] = {"a", "b", NULL, "d"};
    REFUSED(options.struct_bytes = 8, "SHOAL_FUSE_OPTIONS_INIT");
    REFUSED(options.tensor_count = 0, "tensor_count is 0");
    REFUSED(options.counts = NULL, "counts is NULL");
    REFUSED(options.tensor_names = nameless, "tensor_names[2]");
    REFUSED(options.dtype = SHOAL_DTYPE_COUNT, "dtype");
    REFUSED(options.buffer_bytes = 100, "buffer_bytes is 100");
    REFUSED(options.in_flight = 1000, "in_flight is 1000");
    REFUSED(options.order = twice, "order[2] is 1, which is there twice");
    REFUSED(options.order = beyond, "order[3] is 4, which is no tensor");
    EXPECT(shoal_fuse_create(group, NULL, &fuse), SHOAL_ERR_ARGUMENT, "options is NULL");
    struct shoal_fuse_options options = good_options();
    EXPECT(shoal_fuse_create(group, &options, NULL), SHOAL_ERR_ARGUMENT, "out is NULL");
    EXPECT(shoal_fuse_create(NULL, &options, &fuse), SHOAL_ERR_ARGUMENT, "group is NULL");
    options.op = SHOAL_MAX;
    EXPECT(shoal_fuse_create(group, &options, &fuse), SHOAL_ERR_UNSUPPORTED, "max of f32");
    uint64_t endless[TENSORS] = {UINT64_MAX / 8, UINT64_MAX / 8, 1, 1};
    options = good_options();
    options.counts = endless;
    EXPECT(shoal_fuse_create(group, &options, &fuse), SHOAL_ERR_LIMIT, "more than");
    return 0;
}

/* Nothing has changed after any of these. */
static int refuse(shoal_group_t group, struct board *board)
{
    (void)board;
    shoal_fuse_t fuse = NULL;
    struct shoal_fuse_counters counters = {.struct_bytes = 8};
    struct shoal_fuse_times times = SHOAL_FUSE_TIMES_INIT;
    void *home = NULL;
    REQUIRE(refuse_options(group) == 0);
    REQUIRE(make_and_use(group, &fuse) == 0);
    EXPECT(shoal_fuse_add(fuse, TENSORS, NULL, NULL, 1), SHOAL_ERR_ARGUMENT, "tensor is 4", "0 to");
    EXPECT(shoal_fuse_add(fuse, -1, NULL, NULL, 1), SHOAL_ERR_ARGUMENT, "tensor is -1");
    EXPECT(shoal_fuse_add(NULL, 0, NULL, NULL, 1), SHOAL_ERR_ARGUMENT, "fuse is NULL");
    EXPECT(shoal_fuse_home(fuse, TENSORS, &home), SHOAL_ERR_ARGUMENT, "tensor is 4");
    EXPECT(shoal_fuse_home(fuse, 0, NULL), SHOAL_ERR_ARGUMENT, "out is NULL");
    EXPECT(shoal_fuse_wait(fuse, TENSORS), SHOAL_ERR_ARGUMENT, "tensor is 4");
    EXPECT(shoal_fuse_finish(NULL), SHOAL_ERR_ARGUMENT, "fuse is NULL");
    EXPECT(shoal_fuse_counters(fuse, &counters), SHOAL_ERR_ARGUMENT, "SHOAL_FUSE_COUNTERS_INIT");
    EXPECT(shoal_fuse_times(fuse, 100, &times), SHOAL_ERR_ARGUMENT, "buffer is 100");
    REQUIRE(shoal_fuse_buffer_count(NULL) == -1);
    CHECK(shoal_fuse_free(NULL));
    REQUIRE(good_steps(group, fuse) == 0);
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static void test_arguments(void **state)
{
    (void)state;
    struct scenario scenario = {.layout = &local, .act = refuse};
    scenario_run(&scenario);
}

/* ---- fuses that are used wrongly
 * ---------------------------------------------------------------------------------------------- */

/* One rank adds the tensor once more; the others wait for the end of the step. */
static int add_twice(shoal_group_t group, bool odd)
{
    shoal_fuse_t fuse = NULL;
    REQUIRE(make_and_use(group, &fuse) == 0);
    if (odd)
        CHECK(shoal_fuse_add(fuse, 2, NULL, NULL, counts[2]));
    enum shoal_status status =
        odd ? shoal_fuse_add(fuse, 2, NULL, NULL, counts[2]) : shoal_fuse_finish(fuse);
    EXPECT(status, SHOAL_ERR_MISMATCH, "fuse 'layers'", "rank 1 (host ", "tensor 2 'weight'",
           "second time", "step 3", "shoal_fuse_finish");
    return let_go(group, fuse, SHOAL_ERR_MISMATCH, "second time");
}

static int add_another_shape(shoal_group_t group, bool odd)
{
    shoal_fuse_t fuse = NULL;
    REQUIRE(make_and_use(group, &fuse) == 0);
    enum shoal_status status =
        odd ? shoal_fuse_add(fuse, 3, NULL, NULL, 699) : shoal_fuse_finish(fuse);
    EXPECT(status, SHOAL_ERR_MISMATCH, "fuse 'layers'", "rank 1 (host ", "tensor 3 'head'",
           "699 elements", "step 3", "700");
    return let_go(group, fuse, SHOAL_ERR_MISMATCH, "699 elements");
}

/* One rank never adds some; the text is its own on all ranks. */
static int add_never(shoal_group_t group, struct board *board)
{
    shoal_fuse_t fuse = NULL;
    char who[32];
    snprintf(who, sizeof(who), "rank %d (host ", board->victim);
    REQUIRE(make_and_use(group, &fuse) == 0);
    CHECK(shoal_group_set_timeout(group, LACKING_MS));
    for (int i = TENSORS - 1; i >= 0; i--)
        if (shoal_group_rank(group) != board->victim || i % 2 == 0)
            CHECK(shoal_fuse_add(fuse, i, NULL, NULL, counts[i]));
    EXPECT(shoal_fuse_finish(fuse), SHOAL_ERR_TIMEOUT, "fuse 'layers'", who,
           "has not added tensor 1 'bias' and 1 more of 4", "step 3", "shoal_fuse_flush");
    CHECK(shoal_group_set_timeout(group, LONG_MS));
    return let_go(group, fuse, SHOAL_ERR_TIMEOUT, "has not added");
}

static int free_amid(shoal_group_t group, bool odd)
{
    shoal_fuse_t fuse = NULL;
    REQUIRE(make_and_use(group, &fuse) == 0);
    if (odd) {
        CHECK(shoal_fuse_add(fuse, 2, NULL, NULL, counts[2]));
        CHECK(shoal_fuse_free(fuse));
        CHECK(scenario_sum(group, 1000, false));
        return 0;
    }
    EXPECT(whole_step(fuse), SHOAL_ERR_ABORTED, "fuse 'layers'", "rank 1 (host ",
           "freed fuse 'layers' in step 3");
    return let_go(group, fuse, SHOAL_ERR_ABORTED, "freed");
}

static int misuse(shoal_group_t group, struct board *board)
{
    (void)board;
    bool odd = shoal_group_rank(group) == ODD;
    REQUIRE(add_twice(group, odd) == 0);
    REQUIRE(add_another_shape(group, odd) == 0);
    REQUIRE(free_amid(group, odd) == 0);
    return 0;
}

static void test_misuse(void **state)
{
    (void)state;
    scenario_on_every_layout((struct scenario){.act = misuse});
}

static void test_never(void **state)
{
    (void)state;
    struct scenario scenario = {.layout = &local, .victim = 2, .act = add_never};
    scenario_run(&scenario);
    scenario.layout = &mixed;
    scenario.victim = 0; /* who says which buffer is next */
    scenario_run(&scenario);
}

/* ---- ranks that don't come, abort or die
 * ---------------------------------------------------------------------------------------------- */

/* The text has the tensors of the buffer that does not come. */
static int stay_away(shoal_group_t group, struct board *board)
{
    shoal_fuse_t fuse = NULL;
    char who[32];
    int rank = shoal_group_rank(group);
    snprintf(who, sizeof(who), "rank %d (host ", board->victim);
    REQUIRE(make_and_use(group, &fuse) == 0);
    CHECK(shoal_group_set_timeout(group, LACKING_MS));
    atomic_store(&board->stage[rank], 1); /* others must not be late as well */
    for (int i = 0; i < shoal_group_size(group); i++)
        REQUIRE(board_wait(&board->stage[i], 1) == 0);
    if (rank == board->victim) {
        for (int i = 0; i < shoal_group_size(group); i++)
            REQUIRE(i == rank || board_wait(&board->stage[i], 2) == 0);
    } else {
        EXPECT(whole_step(fuse), SHOAL_ERR_TIMEOUT, "fuse 'layers'", who,
               board->victim == 0 ? "order of the fuse"
                                  : ": buffer 4 of 5, tensor 3 'head', is not back");
        atomic_store(&board->stage[rank], 2);
    }
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

/* Also amid the exchange of shards and the gathering of sums, which int8 has. */
static int die(shoal_group_t group, struct board *board)
{
    shoal_fuse_t fuse = NULL;
    char who[32];
    snprintf(who, sizeof(who), "rank %d (host ", board->victim);
    REQUIRE(make_and_use_as(group, (enum shoal_compression)board->variant, &fuse) == 0);
    REQUIRE(scenario_let_victim_go(group, board) == 0);
    if (shoal_group_rank(group) == board->victim) {
        for (int i = TENSORS - 1; i > 0; i--)
            CHECK(shoal_fuse_add(fuse, i, NULL, NULL, counts[i]));
        raise(SIGKILL);
    }
    enum shoal_status status = whole_step(fuse);
    EXPECT(status, SHOAL_ERR_PEER_LOST, "fuse 'layers'", who);
    EXPECT(shoal_fuse_finish(fuse), SHOAL_ERR_PEER_LOST, "fuse 'layers'", who);
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

/* What breaks the group breaks its fuses, with the same cause. */
static int abort_group(shoal_group_t group, struct board *board)
{
    shoal_fuse_t fuse = NULL;
    REQUIRE(make_and_use(group, &fuse) == 0);
    REQUIRE(scenario_let_victim_go(group, board) == 0);
    if (shoal_group_rank(group) == board->victim)
        CHECK(shoal_group_abort(group, "the disk is full"));
    EXPECT(whole_step(fuse), SHOAL_ERR_ABORTED, "fuse 'layers'", "the disk is full");
    EXPECT(shoal_fuse_add(fuse, 0, NULL, NULL, counts[0]), SHOAL_ERR_ABORTED, "the disk is full");
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static void test_absent(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct scenario scenario = {
            .layout = &scenario_layouts[i], .victim = i % 2 ? 0 : 2, .act = stay_away};
        scenario_run(&scenario);
    }
}

static void test_death_and_abort(void **state)
{
    (void)state;
    struct scenario death = {
        .victim = 2, .victim_code = 256 + SIGKILL, .victim_stays = true, .act = die};
    scenario_on_every_layout(death);
    death.variant = SHOAL_COMPRESSION_INT8;
    scenario_on_every_layout(death);
    scenario_on_every_layout((struct scenario){.victim = 1, .act = abort_group});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_different),       cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_arguments),       cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_never),           cmocka_unit_test(test_absent),
        cmocka_unit_test(test_death_and_abort),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
