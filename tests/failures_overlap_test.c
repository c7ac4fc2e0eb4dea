/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_overlap_test.c: input and output buffers that share bytes otherwise than "in place"
 * says. The call names itself and the buffers, on the rank that made it, before anything was sent;
 * the group goes on. Buffers that only touch, or lie in each other's gaps, are good.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/scenario.h"

#define COUNT     5000
#define RANKS_MAX 8
#define ELEMENTS  (COUNT * (RANKS_MAX + 2))
#define FLOAT     SHOAL_F32

/* Variants: whose memory, and whether the calls are requests. */
enum { SHARED = 1, LATER = 2 };

struct buffers {
    float *at; /* [3 * ELEMENTS] */
    shoal_request_t *request;
    shoal_request_t pending;
};

static int take_buffers(shoal_group_t group, int variant, struct buffers *out)
{
    void *memory = malloc(3 * ELEMENTS * sizeof(float));
    if (variant & SHARED) {
        free(memory);
        CHECK(shoal_alloc(group, 3 * ELEMENTS * sizeof(float), &memory));
    }
    REQUIRE(memory);
    *out = (struct buffers){.at = memory};
    out->request = variant & LATER ? &out->pending : NULL;
    return 0;
}

static int give_buffers(shoal_group_t group, int variant, struct buffers *buffers)
{
    if (variant & SHARED)
        CHECK(shoal_free(group, buffers->at));
    else
        free(buffers->at);
    return 0;
}

/* ---- wrong
 * ---------------------------------------------------------------------------------------------- */

#define WRONG(call, name)                                                                       \
    do {                                                                                        \
        EXPECT(call, SHOAL_ERR_ARGUMENT, name ": the output buffer overlaps the input buffer"); \
        REQUIRE(buffers->pending == NULL);                                                      \
    } while (0)

/* One element in common, and all but one. Each rank is the root of its own call, which only says
 * that it is wrong: nobody else would take part. */
static int overlap_reductions(shoal_group_t group, struct buffers *buffers)
{
    static const uint64_t shifts[] = {1, COUNT - 1};
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    float *in = buffers->at + ELEMENTS, factor = 2;
    uint64_t counts[RANKS_MAX], whole = (uint64_t)size * COUNT, own = (uint64_t)rank * COUNT;
    shoal_request_t *request = buffers->request;
    for (int i = 0; i < size; i++)
        counts[i] = COUNT;
    for (int i = 0; i < 2; i++) {
        uint64_t shift = shifts[i];
        WRONG(shoal_allreduce(in, in + shift, COUNT, FLOAT, SHOAL_SUM, group, request),
              "allreduce");
        WRONG(shoal_allreduce(in, in - shift, COUNT, FLOAT, SHOAL_MAX, group, request),
              "allreduce");
        WRONG(shoal_allreduce_premul(in, in + shift, COUNT, FLOAT, &factor, group, request),
              "allreduce");
        WRONG(shoal_reduce(in, in - shift, COUNT, FLOAT, SHOAL_SUM, rank, group, request),
              "reduce");
        WRONG(shoal_reduce_scatter(in, in + own + shift, COUNT, FLOAT, SHOAL_SUM, group, request),
              "reduce_scatter");
        WRONG(shoal_reduce_scatterv(in, in - shift, counts, FLOAT, SHOAL_SUM, group, request),
              "reduce_scatter");
        WRONG(shoal_reduce_scatter_premul(in, in + whole - shift, COUNT, FLOAT, &factor, group,
                                          request),
              "reduce_scatter");
    }
    if (size > 1) /* another rank's part, whole */
        WRONG(shoal_reduce_scatter(in, in + (own + COUNT) % whole, COUNT, FLOAT, SHOAL_SUM, group,
                                   request),
              "reduce_scatter");
    return 0;
}

static int overlap_moves(shoal_group_t group, struct buffers *buffers)
{
    static const uint64_t shifts[] = {1, COUNT - 1};
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    float *out = buffers->at + ELEMENTS;
    uint64_t counts[RANKS_MAX], displs[RANKS_MAX];
    uint64_t whole = (uint64_t)size * COUNT, own = (uint64_t)rank * COUNT;
    shoal_request_t *request = buffers->request;
    for (int i = 0; i < size; i++) {
        counts[i] = COUNT;
        displs[i] = (uint64_t)i * COUNT * 2;
    }
    for (int i = 0; i < 2; i++) {
        uint64_t shift = shifts[i];
        WRONG(shoal_allgather(out + own + shift, out, COUNT, FLOAT, group, request), "allgather");
        WRONG(shoal_allgather(out + whole - shift, out, COUNT, FLOAT, group, request), "allgather");
        WRONG(shoal_allgatherv(out + 2 * own + shift, out, counts, displs, FLOAT, group, request),
              "allgather");
        WRONG(shoal_gather(out - shift, out, COUNT, FLOAT, rank, group, request), "gather");
        WRONG(
            shoal_gatherv(out + 2 * own - shift, out, counts, displs, FLOAT, rank, group, request),
            "gather");
        WRONG(shoal_scatter(out, out + own + shift, COUNT, FLOAT, rank, group, request), "scatter");
        WRONG(
            shoal_scatterv(out, out + 2 * own - shift, counts, displs, FLOAT, rank, group, request),
            "scatter");
        WRONG(shoal_alltoall(out, out + whole - shift, COUNT, FLOAT, group, request), "alltoall");
        WRONG(shoal_alltoallv(out, counts, displs, out + COUNT - shift, counts, displs, FLOAT,
                              group, request),
              "alltoall");
    }
    if (size > 1) {
        WRONG(shoal_allgather(out + (own + COUNT) % whole, out, COUNT, FLOAT, group, request),
              "allgather");
        WRONG(shoal_alltoall(out, out, COUNT, FLOAT, group, request), "alltoall");
    }
    return 0;
}

/* ---- good
 * ---------------------------------------------------------------------------------------------- */

static float value(int rank, uint64_t i)
{
    return (float)(rank * 7 + (int)(i % 11));
}

static void fill(float *numbers, int rank, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = value(rank, i);
}

static int finish(shoal_group_t group, struct buffers *buffers)
{
    if (buffers->pending)
        CHECK(shoal_request_wait(&buffers->pending, -1));
    return 0;
}

#define GOOD(call)                            \
    do {                                      \
        CHECK(call);                          \
        REQUIRE(finish(group, buffers) == 0); \
    } while (0)

/* Each of the forms in place that shoal.h names. */
static int work_in_place(shoal_group_t group, struct buffers *buffers)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    uint64_t whole = (uint64_t)size * COUNT, own = (uint64_t)rank * COUNT;
    float *all = buffers->at + ELEMENTS;
    shoal_request_t *request = buffers->request;
    fill(all + own, rank, COUNT);
    GOOD(shoal_allgather(all + own, all, COUNT, FLOAT, group, request));
    for (uint64_t i = 0; i < whole; i++)
        REQUIRE(all[i] == value((int)(i / COUNT), i % COUNT));
    GOOD(shoal_reduce_scatter(all, all + own, COUNT, FLOAT, SHOAL_SUM, group, request));
    for (uint64_t i = 0; i < COUNT; i++)
        REQUIRE(all[own + i] == (float)size * value(rank, i));
    GOOD(shoal_gather(all + own, all, COUNT, FLOAT, 0, group, request));
    GOOD(shoal_scatter(all, rank == 0 ? all : all + own, COUNT, FLOAT, 0, group, request));
    for (uint64_t i = 0; i < COUNT; i++)
        REQUIRE(all[own + i] == (float)size * value(rank, i));
    return 0;
}

/* The output begins where the input ends, or lies between its parts. */
static int touch(shoal_group_t group, struct buffers *buffers)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    uint64_t counts[RANKS_MAX], displs[RANKS_MAX], gap = 2 * COUNT;
    float *in = buffers->at + ELEMENTS, *all = buffers->at;
    shoal_request_t *request = buffers->request;
    fill(in, rank, COUNT);
    GOOD(shoal_allreduce(in, in + COUNT, COUNT, FLOAT, SHOAL_MAX, group, request));
    for (uint64_t i = 0; i < COUNT; i++)
        REQUIRE(in[COUNT + i] == value(size - 1, i));
    for (int i = 0; i < size; i++) {
        counts[i] = COUNT;
        displs[i] = (uint64_t)i * gap;
    }
    fill(all + COUNT, rank, COUNT); /* the gap behind rank 0's part */
    GOOD(shoal_allgatherv(all + COUNT, all, counts, displs, FLOAT, group, request));
    for (uint64_t i = 0; i < COUNT; i++)
        REQUIRE(all[gap * (uint64_t)(size - 1) + i] == value(size - 1, i));
    GOOD(shoal_alltoallv(all, counts, displs, all + COUNT, counts, displs, FLOAT, group, request));
    for (uint64_t i = 0; i < COUNT; i++)
        REQUIRE(all[gap * (uint64_t)(size - 1) + COUNT + i] == value(rank, i));
    return 0;
}

static int overlap(shoal_group_t group, struct board *board)
{
    struct buffers buffers;
    REQUIRE(shoal_group_size(group) <= RANKS_MAX);
    REQUIRE(take_buffers(group, board->variant, &buffers) == 0);
    REQUIRE(overlap_reductions(group, &buffers) == 0);
    REQUIRE(overlap_moves(group, &buffers) == 0);
    REQUIRE(work_in_place(group, &buffers) == 0);
    REQUIRE(touch(group, &buffers) == 0);
    CHECK(shoal_barrier(group, NULL));
    return give_buffers(group, board->variant, &buffers);
}

static void test_overlaps(void **state)
{
    (void)state;
    for (int variant = 0; variant <= (SHARED | LATER); variant++)
        scenario_on_every_layout((struct scenario){.variant = variant, .act = overlap});
}

/* A group of one: the same errors, so that a program learns them before it runs on several. */
static void test_overlaps_alone(void **state)
{
    static const struct layout alone = {"alone", 1, 1, PATH_LOCAL};
    (void)state;
    scenario_run(&(struct scenario){.layout = &alone, .act = overlap});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_overlaps_alone),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
