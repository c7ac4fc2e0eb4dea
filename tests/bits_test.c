/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bits_test.c: sums whose last bits depend on their order have the bits of one sum over ranks 0 to
 * p-1 in this order: on one host in every kernel form, with and without arenas, blocking or not, on
 * every rank, in every repetition and however the elements are split over calls; reproducible
 * groups on every layout too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/kernel.h"
#include "support/operation.h"
#include "support/processes.h"

#define COUNT     70001
#define RANKS_MAX 4
#define DTYPES    3
#define OPS       2

static const enum shoal_dtype dtypes[DTYPES] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
static const enum shoal_op ops[OPS] = {SHOAL_SUM, SHOAL_AVG};

/* So many elements in calls of so many: through stamps, stages, slices and several blocks. */
static const struct split {
    uint64_t total, piece;
} splits[] = {{COUNT, COUNT}, {COUNT, 50000}, {COUNT, 4099}, {20000, 1021}, {600, 12}};
#define SPLITS (sizeof(splits) / sizeof(splits[0]))

/* ---- what must come out
 * ---------------------------------------------------------------------------------------------- */

static unsigned char *expected[DTYPES][OPS];

static void fill(int dtype, int op, int rank, void *out)
{
    struct operation_options options = {
        .dtype = dtypes[dtype], .op = ops[op], .values = VALUES_ANY, .seed = 7};
    values_fill(&options, rank, out, COUNT);
}

static void *numbers(void)
{
    void *memory = malloc(COUNT * sizeof(float));
    if (!memory)
        abort();
    return memory;
}

/* In the plain form, before the ranks are forked. In single precision the other
 * order has other bits. */
static void expect_sums(int size)
{
    const void *forward[RANKS_MAX], *backward[RANKS_MAX];
    void *other = numbers();
    assert_true(kernel_force_isa("scalar"));
    for (int dtype = 0; dtype < DTYPES; dtype++)
        for (int op = 0; op < OPS; op++) {
            size_t bytes = COUNT * kernel_dtype_bytes(dtypes[dtype]);
            struct kernel_reduce how = {.dtype = dtypes[dtype],
                                        .op = ops[op],
                                        .divisor = ops[op] == SHOAL_AVG ? (uint32_t)size : 0};
            for (int rank = 0; rank < size; rank++) {
                void *in = numbers();
                fill(dtype, op, rank, in);
                forward[rank] = backward[size - 1 - rank] = in;
            }
            expected[dtype][op] = numbers();
            kernel_reduce(&how, expected[dtype][op], forward, size, COUNT);
            kernel_reduce(&how, other, backward, size, COUNT);
            assert_true(size == 2 || dtypes[dtype] != SHOAL_F32 ||
                        memcmp(other, expected[dtype][op], bytes) != 0);
            for (int rank = 0; rank < size; rank++)
                free((void *)(uintptr_t)forward[rank]);
        }
    free(other);
}

static void forget_sums(void)
{
    for (int dtype = 0; dtype < DTYPES; dtype++)
        for (int op = 0; op < OPS; op++)
            free(expected[dtype][op]);
}

/* ---- in a rank
 * ---------------------------------------------------------------------------------------------- */

enum place { PRIVATE, SHARED, MIXED, PLACES };

struct buffers {
    void *private[2], *shared[2];
    unsigned char *in, *out;
    int dtype, op;
    size_t elem_bytes;
};

static int finish(shoal_group_t group, shoal_request_t *request)
{
    if (*request)
        CHECK(shoal_request_wait(request, -1));
    return 0;
}

static int sum_split(shoal_group_t group, struct buffers *buffers, const struct split *split,
                     bool later)
{
    size_t each = buffers->elem_bytes;
    shoal_request_t request = NULL;
    memset(buffers->out, 0xee, split->total * each);
    for (uint64_t at = 0; at < split->total; at += split->piece) {
        uint64_t count = split->total - at < split->piece ? split->total - at : split->piece;
        CHECK(shoal_allreduce(buffers->in + at * each, buffers->out + at * each, count,
                              dtypes[buffers->dtype], ops[buffers->op], group,
                              later ? &request : NULL));
        REQUIRE(finish(group, &request) == 0);
    }
    const unsigned char *sums = expected[buffers->dtype][buffers->op];
    REQUIRE(memcmp(buffers->out, sums, split->total * each) == 0);
    return 0;
}

/* The other two that sum. */
static int sum_otherwise(shoal_group_t group, struct buffers *buffers)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group), root = size - 1;
    uint64_t part = COUNT / (uint64_t)size;
    size_t each = buffers->elem_bytes;
    enum shoal_dtype dtype = dtypes[buffers->dtype];
    const unsigned char *sums = expected[buffers->dtype][buffers->op];
    CHECK(
        shoal_reduce(buffers->in, buffers->out, COUNT, dtype, ops[buffers->op], root, group, NULL));
    REQUIRE(rank != root || memcmp(buffers->out, sums, COUNT * each) == 0);
    CHECK(shoal_reduce_scatter(buffers->in, buffers->out, part, dtype, ops[buffers->op], group,
                               NULL));
    REQUIRE(memcmp(buffers->out, sums + (uint64_t)rank * part * each, part * each) == 0);
    return 0;
}

/* Every way with these buffers, twice. */
static int sum_in(shoal_group_t group, struct buffers *buffers)
{
    for (int dtype = 0; dtype < DTYPES; dtype++)
        for (int op = 0; op < OPS; op++) {
            buffers->dtype = dtype;
            buffers->op = op;
            buffers->elem_bytes = kernel_dtype_bytes(dtypes[dtype]);
            fill(dtype, op, shoal_group_rank(group), buffers->in);
            for (size_t i = 0; i < 2 * SPLITS; i++)
                REQUIRE(sum_split(group, buffers, &splits[i / 2], (i + (size_t)op) % 2) == 0);
            REQUIRE(sum_otherwise(group, buffers) == 0);
        }
    return 0;
}

static int sum_everywhere(shoal_group_t group, void *user)
{
    int rank = shoal_group_rank(group);
    struct buffers buffers;
    REQUIRE(kernel_force_isa(user));
    for (int i = 0; i < 2; i++) {
        buffers.private[i] = numbers();
        CHECK(shoal_alloc(group, COUNT * sizeof(float), &buffers.shared[i]));
    }
    for (enum place place = PRIVATE; place < PLACES; place++) {
        bool in_shared = place == SHARED || (place == MIXED && rank != 1);
        bool out_shared = place == SHARED || (place == MIXED && rank == 1);
        buffers.in = in_shared ? buffers.shared[0] : buffers.private[0];
        buffers.out = out_shared ? buffers.shared[1] : buffers.private[1];
        REQUIRE(sum_in(group, &buffers) == 0);
    }
    for (int i = 0; i < 2; i++) {
        free(buffers.private[i]);
        CHECK(shoal_free(group, buffers.shared[i]));
    }
    return 0;
}

/* ---- the runs
 * ---------------------------------------------------------------------------------------------- */

static const char *const forms[] = {"scalar", "base", "avx2", "avx512", "neon"};
#define FORMS (sizeof(forms) / sizeof(forms[0]))

/* The thread sanitizer makes arithmetic slow and finds nothing in it: then the plain form only. */
#if defined(__SANITIZE_THREAD__)
#define FORM_STEP FORMS
#else
#define FORM_STEP 1
#endif

static void run_in_form(struct processes run, const char *form)
{
    if (!kernel_force_isa(form))
        return; /* not on this processor */
    run.main = sum_everywhere;
    run.user = (void *)(uintptr_t)form;
    run.timeout_ms = 60000;
    run.deadline_s = 300;
    assert_true(processes_run(&run));
}

static void test_one_host(void **state)
{
    (void)state;
    for (int size = 2; size < RANKS_MAX; size++) {
        expect_sums(size);
        for (size_t i = 0; i < FORMS; i += FORM_STEP)
            run_in_form((struct processes){.size = size}, forms[i]);
        forget_sums();
    }
}

static void test_reproducible(void **state)
{
    static const int hosts[] = {1, 2, 4};
    (void)state;
    expect_sums(RANKS_MAX);
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
        for (size_t form = 0; form < FORMS; form += 2 * FORM_STEP)
            run_in_form((struct processes){.size = RANKS_MAX,
                                           .hosts = hosts[i],
                                           .environment = {"SHOAL_REPRODUCIBLE=1"}},
                        forms[form]);
    forget_sums();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_reproducible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
