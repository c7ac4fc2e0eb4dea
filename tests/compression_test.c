/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compression_test.c: compressed fusion buffers between real processes, on one host and on several:
 * errors within the stated bound, the same bits on every rank and in every repetition, what
 * rounding loses comes back in later steps, NaN and infinities, counters, what is refused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/operation.h"
#include "support/processes.h"
#include "support/scenario.h"

/* With buffers of 4 KiB: tensors of many buffers, many in one, none at all. */
static const uint64_t counts[] = {3, 1000, 0, 7, 5000, 64, 1, 2048, 17};
#define TENSORS    ((int)(sizeof(counts) / sizeof(counts[0])))
#define TENSOR_MAX 5000
#define SMALLEST   4096
#define RANKS_MAX  4

static const enum shoal_compression compressions[] = {SHOAL_COMPRESSION_BF16, SHOAL_COMPRESSION_F16,
                                                      SHOAL_COMPRESSION_INT8};
#define COMPRESSIONS ((int)(sizeof(compressions) / sizeof(compressions[0])))

/* ---- what the cases share
 * ---------------------------------------------------------------------------------------------- */

/* Numbers of many sizes, the same whoever asks. */
static float value_of(int rank, int step, int tensor, uint64_t i)
{
    uint64_t bits =
        (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15u + (uint64_t)step * 0xd1b54a32d192ed03u;
    bits = (bits ^ (uint64_t)tensor << 32 ^ i) * 0xff51afd7ed558ccdu;
    bits = (bits ^ bits >> 33) * 0xc4ceb9fe1a85ec53u;
    return ldexpf((float)(int32_t)(uint32_t)(bits >> 20), -31 - (int)(bits >> 60));
}

static struct shoal_fuse_options options_of(enum shoal_compression compression)
{
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    options.tensor_count = TENSORS;
    options.counts = counts;
    options.op = SHOAL_SUM;
    options.buffer_bytes = SMALLEST;
    options.compression = compression;
    return options;
}

static float *home_of(shoal_fuse_t fuse, int tensor)
{
    void *home = NULL;
    if (shoal_fuse_home(fuse, tensor, &home) != SHOAL_OK)
        abort();
    return home;
}

/* In another order on each rank. */
static int add_all(shoal_group_t group, shoal_fuse_t fuse, int step)
{
    int rank = shoal_group_rank(group);
    for (int i = 0; i < TENSORS; i++) {
        int tensor = (i + rank) % TENSORS;
        float *home = home_of(fuse, tensor);
        for (uint64_t k = 0; k < counts[tensor]; k++)
            home[k] = value_of(rank, step, tensor, k);
        CHECK(shoal_fuse_add(fuse, tensor, NULL, NULL, counts[tensor]));
    }
    return 0;
}

static uint64_t hash_of(shoal_fuse_t fuse)
{
    uint64_t hash = 14695981039346656037u;
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        const unsigned char *bytes = (const unsigned char *)home_of(fuse, tensor);
        for (uint64_t i = 0; i < counts[tensor] * sizeof(float); i++)
            hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
}

static int same_on_all(shoal_group_t group, uint64_t mine)
{
    uint64_t all[RANKS_MAX] = {0};
    CHECK(shoal_allgather(&mine, all, 1, SHOAL_U64, group, NULL));
    for (int i = 0; i < shoal_group_size(group); i++)
        REQUIRE(all[i] == mine);
    return 0;
}

static void expect_run(int size, int hosts, int (*main)(shoal_group_t group, void *user))
{
    struct processes run = {.size = size, .hosts = hosts, .main = main};
    assert_true(processes_run(&run));
}

/* ---- within the bound, and the same bits
 * ---------------------------------------------------------------------------------------------- */

/* What one rounding may lose of a number, among numbers of up to `largest`; 16-bit floats have
 * subnormals of less than 2^-24. */
static double rounding_of(enum shoal_compression compression, double value, double largest)
{
    if (compression == SHOAL_COMPRESSION_INT8)
        return largest / 252;
    double unit = compression == SHOAL_COMPRESSION_BF16 ? 0x1p-8 : 0x1p-11;
    return fabs(value) * unit + 0x1p-25;
}

static int check_sums(shoal_group_t group, shoal_fuse_t fuse, enum shoal_compression compression)
{
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        const float *sum = home_of(fuse, tensor);
        for (uint64_t i = 0; i < counts[tensor]; i++) {
            double exact = 0, bound = 0;
            for (int rank = 0; rank < shoal_group_size(group); rank++) {
                double value = (double)value_of(rank, 0, tensor, i);
                exact += value;
                bound += 1.001 * rounding_of(compression, value, 1);
            }
            bound += rounding_of(compression, fabs(exact) + bound, shoal_group_size(group) + bound);
            REQUIRE(fabs((double)sum[i] - exact) <= bound);
        }
    }
    return 0;
}

/* The hash of each step. */
static int train(shoal_group_t group, const struct shoal_fuse_options *options, int steps,
                 uint64_t *hashes)
{
    shoal_fuse_t fuse = NULL;
    CHECK(shoal_fuse_create(group, options, &fuse));
    for (int step = 0; step < steps; step++) {
        REQUIRE(add_all(group, fuse, step) == 0);
        CHECK(shoal_fuse_finish(fuse));
        if (step == 0)
            REQUIRE(check_sums(group, fuse, options->compression) == 0);
        hashes[step] = hash_of(fuse);
        REQUIRE(same_on_all(group, hashes[step]) == 0);
    }
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

#define STEPS 3

static int bounds(shoal_group_t group, void *user)
{
    (void)user;
    for (int i = 0; i < COMPRESSIONS; i++) {
        struct shoal_fuse_options options = options_of(compressions[i]);
        uint64_t first[STEPS], again[STEPS];
        REQUIRE(train(group, &options, STEPS, first) == 0);
        REQUIRE(train(group, &options, STEPS, again) == 0);
        REQUIRE(memcmp(first, again, sizeof(first)) == 0);
    }
    return 0;
}

static void test_bounds(void **state)
{
    (void)state;
    expect_run(1, 1, bounds);
    expect_run(3, 1, bounds);
    expect_run(3, 3, bounds);
    expect_run(4, 2, bounds);
}

/* ---- what rounding has lost comes back
 * ---------------------------------------------------------------------------------------------- */

#define MANY_STEPS 128

/* The error of the mean over all steps, of a gradient that stays the same; rank 0 alone has one, so
 * that only its own rounding is seen. */
static int mean_error(shoal_group_t group, const struct shoal_fuse_options *options, double *out)
{
    static double means[TENSOR_MAX];
    bool first = shoal_group_rank(group) == 0;
    int tensor = 1;
    shoal_fuse_t fuse = NULL;
    memset(means, 0, sizeof(means));
    CHECK(shoal_fuse_create(group, options, &fuse));
    for (int step = 0; step < MANY_STEPS; step++) {
        float *home = home_of(fuse, tensor);
        for (uint64_t i = 0; i < counts[tensor]; i++)
            home[i] = first ? 1 + value_of(0, 0, tensor, i) : 0;
        CHECK(shoal_fuse_add(fuse, tensor, NULL, NULL, counts[tensor]));
        CHECK(shoal_fuse_flush(fuse));
        CHECK(shoal_fuse_finish(fuse));
        home = home_of(fuse, tensor);
        for (uint64_t i = 0; i < counts[tensor]; i++)
            means[i] += (double)home[i] / MANY_STEPS;
    }
    *out = 0;
    for (uint64_t i = 0; i < counts[tensor]; i++)
        *out = fmax(*out, fabs(means[i] - (double)(1 + value_of(0, 0, tensor, i))));
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static int feedback(shoal_group_t group, void *user)
{
    (void)user;
    for (int i = 0; i < COMPRESSIONS; i++) {
        struct shoal_fuse_options options = options_of(compressions[i]);
        double with = 1, without = 0, once = 2.1 * rounding_of(compressions[i], 2, 2);
        REQUIRE(mean_error(group, &options, &with) == 0);
        options.error_feedback = 0;
        REQUIRE(mean_error(group, &options, &without) == 0);
        REQUIRE(with <= once / MANY_STEPS && without >= once / 8);
    }
    return 0;
}

static void test_feedback(void **state)
{
    (void)state;
    expect_run(2, 1, feedback);
    expect_run(2, 2, feedback);
}

/* Residuals move with their tensors: a step's bits don't depend on when the order was learnt. */
static int moved(shoal_group_t group, void *user)
{
    (void)user;
    int order[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        order[i] = i; /* rank 0's, and not the one that is guessed */
    for (int i = 0; i < 2; i++) {
        struct shoal_fuse_options options = options_of(compressions[i]);
        uint64_t given[STEPS], learnt[STEPS];
        REQUIRE(train(group, &options, STEPS, learnt) == 0);
        options.order = order;
        REQUIRE(train(group, &options, STEPS, given) == 0);
        REQUIRE(memcmp(given, learnt, sizeof(given)) == 0);
    }
    return 0;
}

static void test_moved(void **state)
{
    (void)state;
    expect_run(2, 1, moved);
    expect_run(2, 2, moved);
}

/* ---- NaN and infinities
 * ---------------------------------------------------------------------------------------------- */

enum { PLUS, MINUS, BOTH, NO_NUMBER, TOO_LARGE, PLACES };

static int add_odd(shoal_group_t group, shoal_fuse_t fuse, enum shoal_compression compression)
{
    float *home = home_of(fuse, 1);
    bool first = shoal_group_rank(group) == 0;
    for (uint64_t i = 0; i < counts[1]; i++)
        home[i] = 1;
    home[PLUS] = first ? (float)INFINITY : 1;
    home[MINUS] = first ? 1 : -(float)INFINITY;
    home[BOTH] = first ? (float)INFINITY : -(float)INFINITY;
    home[NO_NUMBER] = first ? 1 : (float)NAN;
    if (compression == SHOAL_COMPRESSION_F16)
        home[TOO_LARGE] = 65520.0f;
    CHECK(shoal_fuse_add(fuse, 1, NULL, NULL, counts[1]));
    CHECK(shoal_fuse_flush(fuse));
    CHECK(shoal_fuse_finish(fuse));
    return 0;
}

static int odd_numbers(shoal_group_t group, void *user)
{
    (void)user;
    for (int i = 0; i < COMPRESSIONS; i++) {
        struct shoal_fuse_options options = options_of(compressions[i]);
        shoal_fuse_t fuse = NULL;
        CHECK(shoal_fuse_create(group, &options, &fuse));
        REQUIRE(add_odd(group, fuse, compressions[i]) == 0);
        const float *sum = home_of(fuse, 1);
        REQUIRE(isinf(sum[PLUS]) && sum[PLUS] > 0 && isinf(sum[MINUS]) && sum[MINUS] < 0);
        REQUIRE(isnan(sum[BOTH]) && isnan(sum[NO_NUMBER]));
        REQUIRE(isinf(sum[TOO_LARGE]) == (compressions[i] == SHOAL_COMPRESSION_F16));
        for (uint64_t k = PLACES; k < counts[1]; k++)
            REQUIRE(fabsf(sum[k] - 2) < 1e-6f);
        REQUIRE(add_all(group, fuse, 0) == 0); /* nothing of it is left */
        CHECK(shoal_fuse_finish(fuse));
        sum = home_of(fuse, 1);
        for (uint64_t k = 0; k < counts[1]; k++)
            REQUIRE(isfinite(sum[k]));
        CHECK(shoal_fuse_free(fuse));
    }
    return 0;
}

static void test_odd_numbers(void **state)
{
    (void)state;
    expect_run(2, 1, odd_numbers);
    expect_run(2, 2, odd_numbers);
}

/* ---- what can be seen, and what is refused
 * ---------------------------------------------------------------------------------------------- */

static int seen(shoal_group_t group, void *user)
{
    (void)user;
    static const enum shoal_compression asked[] = {SHOAL_COMPRESSION_NONE, SHOAL_COMPRESSION_BF16,
                                                   SHOAL_COMPRESSION_INT8};
    uint64_t traffic[3];
    for (int i = 0; i < 3; i++) {
        struct shoal_fuse_options options = options_of(asked[i]);
        struct shoal_fuse_counters counted = SHOAL_FUSE_COUNTERS_INIT;
        struct shoal_counters ways = SHOAL_COUNTERS_INIT;
        shoal_fuse_t fuse = NULL;
        CHECK(shoal_fuse_create(group, &options, &fuse));
        REQUIRE(add_all(group, fuse, 0) == 0);
        CHECK(shoal_fuse_finish(fuse));
        CHECK(shoal_fuse_counters(fuse, &counted));
        CHECK(shoal_fuse_traffic(fuse, &ways));
        uint64_t least = counted.bytes >> i; /* and for 8 bits the scales, and what is not whole */
        REQUIRE(least > 0 && counted.wire_bytes >= least);
        REQUIRE(counted.wire_bytes <= (i < 2 ? least : least * 11 / 10));
        traffic[i] = shoal_group_size(group) > 1 ? ways.bytes : 0;
        CHECK(shoal_fuse_free(fuse));
    }
    REQUIRE(traffic[1] <= traffic[0] / 2 + 1024); /* of both, the agreed order is a part */
    REQUIRE(traffic[2] < traffic[0]);
    return 0;
}

static int refused(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(SHOAL_COMPRESSION_BF16);
    shoal_fuse_t fuse = NULL;
    options.dtype = SHOAL_F64;
    EXPECT(shoal_fuse_create(group, &options, &fuse), SHOAL_ERR_UNSUPPORTED, "is bf16",
           "of f32, and the tensors are f64");
    options = options_of((enum shoal_compression)99);
    EXPECT(shoal_fuse_create(group, &options, &fuse), SHOAL_ERR_ARGUMENT, "compression 99");
    return 0;
}

static int refused_reproducible(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(SHOAL_COMPRESSION_INT8);
    shoal_fuse_t fuse = NULL;
    EXPECT(shoal_fuse_create(group, &options, &fuse), SHOAL_ERR_UNSUPPORTED, "is int8",
           "the group is reproducible");
    return 0;
}

static void test_seen_and_refused(void **state)
{
    (void)state;
    expect_run(2, 1, seen);
    expect_run(2, 2, seen);
    expect_run(1, 1, refused);
    struct processes run = {
        .size = 1, .main = refused_reproducible, .environment = {"SHOAL_REPRODUCIBLE=1"}};
    assert_true(processes_run(&run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_feedback),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_odd_numbers),
        cmocka_unit_test(test_seen_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
