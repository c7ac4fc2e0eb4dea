/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_mismatch_test.c: one rank calls something else than the others, between real processes
 * on every path. Each rank ends with SHOAL_ERR_MISMATCH that names both ranks, their hosts, both
 * calls and the number of the operation; ranks that can end early, because they only give, learn it
 * in a later call. No sum is ever wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/scenario.h"

enum kind {
    ALLREDUCE,
    REDUCE,
    BROADCAST,
    ALLGATHER,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    ALLTOALL,
    BARRIER,
    ALLGATHERV
};

struct call {
    enum kind kind;
    uint64_t count;
    enum shoal_dtype dtype;
    enum shoal_op op;
    int root;
};

/* What most ranks call, and what one calls. text: a piece of each call as messages show it. */
struct disagreement {
    struct call common, odd;
    const char *common_text, *odd_text;
};

#define SMALL 4
#define LARGE 300000

static const struct disagreement disagreements[] = {
    /* counts */
    {{ALLREDUCE, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {ALLREDUCE, SMALL + 1, SHOAL_F32, SHOAL_SUM, 0},
     "allreduce(4 x f32, sum)",
     "allreduce(5 x f32, sum)"},
    {{ALLREDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     {ALLREDUCE, LARGE - 1, SHOAL_F32, SHOAL_SUM, 0},
     "allreduce(300000 x f32, sum)",
     "allreduce(299999 x f32, sum)"},
    {{ALLREDUCE, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {ALLREDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     "allreduce(4 x f32, sum)",
     "allreduce(300000 x f32, sum)"},
    {{ALLREDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     {ALLREDUCE, 0, SHOAL_F32, SHOAL_SUM, 0},
     "allreduce(300000 x f32, sum)",
     "allreduce(0 x f32, sum)"},
    {{BROADCAST, SMALL, SHOAL_F32, SHOAL_SUM, 1},
     {BROADCAST, SMALL - 1, SHOAL_F32, SHOAL_SUM, 1},
     "broadcast(4 x f32, root 1)",
     "broadcast(3 x f32, root 1)"},
    {{BROADCAST, LARGE, SHOAL_F32, SHOAL_SUM, 1},
     {BROADCAST, SMALL, SHOAL_F32, SHOAL_SUM, 1},
     "broadcast(300000 x f32, root 1)",
     "broadcast(4 x f32, root 1)"},
    {{REDUCE, SMALL, SHOAL_F32, SHOAL_SUM, 1},
     {REDUCE, SMALL - 1, SHOAL_F32, SHOAL_SUM, 1},
     "reduce(4 x f32, sum, root 1)",
     "reduce(3 x f32, sum, root 1)"},
    {{GATHER, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     {GATHER, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     "gather(300000 x f32, root 0)",
     "gather(4 x f32, root 0)"},
    {{REDUCE_SCATTER, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {REDUCE_SCATTER, SMALL + 2, SHOAL_F32, SHOAL_SUM, 0},
     "reduce_scatter(4 x f32, sum)",
     "reduce_scatter(6 x f32, sum)"},
    {{ALLGATHERV, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {ALLGATHERV, SMALL + 1, SHOAL_F32, SHOAL_SUM, 0},
     "allgather(counts ~",
     "allgather(counts ~"},
    /* dtypes of the same size, ops */
    {{ALLREDUCE, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {ALLREDUCE, SMALL, SHOAL_I32, SHOAL_SUM, 0},
     "allreduce(4 x f32, sum)",
     "allreduce(4 x i32, sum)"},
    {{ALLGATHER, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     {ALLGATHER, LARGE, SHOAL_I32, SHOAL_SUM, 0},
     "allgather(300000 x f32)",
     "allgather(300000 x i32)"},
    {{ALLREDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     {ALLREDUCE, LARGE, SHOAL_F32, SHOAL_MAX, 0},
     "allreduce(300000 x f32, sum)",
     "allreduce(300000 x f32, max)"},
    {{REDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     {REDUCE, LARGE, SHOAL_F32, SHOAL_AVG, 0},
     "reduce(300000 x f32, sum, root 0)",
     "reduce(300000 x f32, avg, root 0)"},
    /* roots */
    {{BROADCAST, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {BROADCAST, SMALL, SHOAL_F32, SHOAL_SUM, 1},
     "broadcast(4 x f32, root 0)",
     "broadcast(4 x f32, root 1)"},
    {{REDUCE, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {REDUCE, SMALL, SHOAL_F32, SHOAL_SUM, 1},
     "reduce(4 x f32, sum, root 0)",
     "reduce(4 x f32, sum, root 1)"},
    {{REDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 1},
     {REDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     "reduce(300000 x f32, sum, root 1)",
     "reduce(300000 x f32, sum, root 0)"},
    {{GATHER, SMALL, SHOAL_F32, SHOAL_SUM, 1},
     {GATHER, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     "gather(4 x f32, root 1)",
     "gather(4 x f32, root 0)"},
    {{SCATTER, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     {SCATTER, LARGE, SHOAL_F32, SHOAL_SUM, 2},
     "scatter(300000 x f32, root 0)",
     "scatter(300000 x f32, root 2)"},
    /* kinds */
    {{ALLREDUCE, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {BARRIER, 0, SHOAL_U8, SHOAL_SUM, 0},
     "allreduce(4 x f32, sum)",
     "barrier"},
    {{BARRIER, 0, SHOAL_U8, SHOAL_SUM, 0},
     {BROADCAST, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     "barrier",
     "broadcast(300000 x f32, root 0)"},
    {{ALLREDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     {REDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     "allreduce(300000 x f32, sum)",
     "reduce(300000 x f32, sum, root 0)"},
    {{REDUCE, LARGE, SHOAL_F32, SHOAL_SUM, 0},
     {ALLGATHER, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     "reduce(300000 x f32, sum, root 0)",
     "allgather(4 x f32)"},
    {{BROADCAST, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {ALLTOALL, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     "broadcast(4 x f32, root 0)",
     "alltoall(4 x f32)"},
    {{GATHER, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     {SCATTER, SMALL, SHOAL_F32, SHOAL_SUM, 0},
     "gather(4 x f32, root 0)",
     "scatter(4 x f32, root 0)"},
};
#define DISAGREEMENTS ((int)(sizeof(disagreements) / sizeof(disagreements[0])))

static float in[(LARGE + 8) * 4], out[(LARGE + 8) * 4];

static enum shoal_status do_call(const struct call *call, shoal_group_t group,
                                 shoal_request_t *request)
{
    uint64_t counts[PROCESSES_MAX];
    for (int i = 0; i < shoal_group_size(group); i++)
        counts[i] = call->count + (uint64_t)i;
    switch (call->kind) {
    case ALLREDUCE:
        return shoal_allreduce(in, out, call->count, call->dtype, call->op, group, request);
    case REDUCE:
        return shoal_reduce(in, out, call->count, call->dtype, call->op, call->root, group,
                            request);
    case BROADCAST:
        return shoal_broadcast(out, call->count, call->dtype, call->root, group, request);
    case ALLGATHER: return shoal_allgather(in, out, call->count, call->dtype, group, request);
    case GATHER: return shoal_gather(in, out, call->count, call->dtype, call->root, group, request);
    case SCATTER:
        return shoal_scatter(in, out, call->count, call->dtype, call->root, group, request);
    case REDUCE_SCATTER:
        return shoal_reduce_scatter(in, out, call->count, call->dtype, call->op, group, request);
    case ALLTOALL: return shoal_alltoall(in, out, call->count, call->dtype, group, request);
    case ALLGATHERV: return shoal_allgatherv(in, out, counts, NULL, call->dtype, group, request);
    case BARRIER: return shoal_barrier(group, request);
    }
    return SHOAL_ERR_INTERNAL;
}

static enum shoal_status do_and_wait(const struct call *call, shoal_group_t group, bool later)
{
    shoal_request_t request = NULL;
    enum shoal_status status = do_call(call, group, later ? &request : NULL);
    return status == SHOAL_OK && later ? shoal_request_wait(&request, -1) : status;
}

#define VARIANT_LATER 1000 /* added for non-blocking calls */
#define ROUNDS_MORE   12   /* calls in which an early finisher must have learnt it */
#define DEADLINE_MS   4000 /* the least that leaves the members a whole second for their answers */

/* An operation on which all agree, then the one on which they don't, then good ones until all know.
 * Where each waits for what no other sends, it shows when the deadline is near. A rank that saw the
 * error stops: it calls nothing more. */
static int disagree(shoal_group_t group, struct board *board)
{
    const struct disagreement *about = &disagreements[board->variant % VARIANT_LATER];
    bool odd = shoal_group_rank(group) == board->victim, later = board->variant >= VARIANT_LATER;
    char odd_rank[32];
    enum shoal_status status = scenario_sum(group, 100, later);
    CHECK(shoal_group_set_timeout(group, DEADLINE_MS));
    if (status == SHOAL_OK) /* a slow rank may hear of the next operation first */
        status = do_and_wait(odd ? &about->odd : &about->common, group, later);
    for (int i = 0; i < ROUNDS_MORE && status == SHOAL_OK; i++)
        status = scenario_sum(group, 5, later);
    snprintf(odd_rank, sizeof(odd_rank), "rank %d (host host", board->victim);
    EXPECT(status, SHOAL_ERR_MISMATCH, odd_rank, "#2", about->common_text, about->odd_text);
    EXPECT(shoal_group_health(group), SHOAL_ERR_MISMATCH, odd_rank, about->common_text);
    EXPECT(shoal_barrier(group, NULL), SHOAL_ERR_MISMATCH, odd_rank, about->odd_text);
    const char *text = shoal_last_error(group), *first = strstr(text, "(host host");
    REQUIRE(first && strstr(first + 1, "(host host"));
    return 0;
}

static void disagree_on_every_layout(bool later)
{
    for (const struct layout *layout = scenario_layouts; layout->size > 0; layout++)
        for (int i = 0; i < DISAGREEMENTS; i++)
            for (int odd = 0; odd < layout->size; odd += layout->size - 1) {
                struct scenario scenario = {.layout = layout,
                                            .variant = i + (later ? VARIANT_LATER : 0),
                                            .victim = odd,
                                            .act = disagree};
                scenario_run(&scenario);
            }
}

/* ---- one block of an alltoallv
 * ---------------------------------------------------------------------------------------------- */

/* What rank 0 sends to the last rank, and what that one expects. */
struct block {
    uint64_t sent, expected;
};

static const struct block blocks[] = {
    {LARGE, SMALL}, {SMALL, LARGE}, {LARGE, 0}, {0, LARGE}, {LARGE, LARGE + 1}, {SMALL, SMALL + 1},
};
#define BLOCKS ((int)(sizeof(blocks) / sizeof(blocks[0])))

/* The deadline lies behind the scenario's end: only what is seen before it counts. */
static int disagree_on_a_block(shoal_group_t group, struct board *board)
{
    const struct block *block = &blocks[board->variant % VARIANT_LATER];
    int rank = shoal_group_rank(group), last = shoal_group_size(group) - 1;
    uint64_t sends[PROCESSES_MAX], expects[PROCESSES_MAX];
    char counts[64];
    for (int i = 0; i <= last; i++)
        sends[i] = expects[i] = SMALL;
    if (rank == 0)
        sends[last] = block->sent;
    if (rank == last)
        expects[0] = block->expected;
    shoal_request_t request = NULL;
    shoal_request_t *later = board->variant >= VARIANT_LATER ? &request : NULL;
    enum shoal_status status =
        shoal_alltoallv(in, sends, NULL, out, expects, NULL, SHOAL_F32, group, later);
    if (status == SHOAL_OK && later)
        status = shoal_request_wait(&request, -1);
    for (int i = 0; i < ROUNDS_MORE && status == SHOAL_OK; i++)
        status = scenario_sum(group, 5, later != NULL);
    snprintf(counts, sizeof(counts), "sends %d x f32 to rank %d (host", (int)block->sent, last);
    EXPECT(status, SHOAL_ERR_MISMATCH, "alltoall #1", "rank 0 (host host0)", "their counts");
    const char *text = shoal_last_error(group);
    /* Who has sent what it had knows no more how much that was. */
    if (block->sent < block->expected && strstr(text, "which sends fewer"))
        snprintf(counts, sizeof(counts), "rank %d (host", last);
    REQUIRE(strstr(text, counts));
    snprintf(counts, sizeof(counts), "expects %d", (int)block->expected);
    REQUIRE(strstr(text, counts));
    return 0;
}

static void test_blocks_of_alltoallv(void **state)
{
    (void)state;
    for (int later = 0; later < 2; later++)
        for (int i = 0; i < BLOCKS; i++)
            scenario_on_every_layout((struct scenario){.variant = i + later * VARIANT_LATER,
                                                       .timeout_ms = 120000,
                                                       .deadline_s = 30,
                                                       .act = disagree_on_a_block});
}

/* ----------------------------------------------------------------------------------------------
 */

static void test_blocking(void **state)
{
    (void)state;
    disagree_on_every_layout(false);
}

static void test_later(void **state)
{
    (void)state;
    disagree_on_every_layout(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocking),
        cmocka_unit_test(test_later),
        cmocka_unit_test(test_blocks_of_alltoallv),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
