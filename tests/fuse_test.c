/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse_test.c: fusion buffers between real processes, on one host and on several: right sums in any
 * order of gradients, from any thread, at home or elsewhere; the agreed order; which buffer goes
 * next and how many at a time; the same bits, however fast they go and whichever go together; how
 * often a step's end wakes its caller; counters and times.
 */
#include <math.h>
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
#include "support/operation.h"
#include "support/processes.h"

/* With buffers of 4 KiB: tensors of many buffers, many in one, none at all. */
static const uint64_t counts[] = {3, 1000, 0, 7, 5000, 64, 12345, 1, 0, 1024, 2048, 17};
#define TENSORS     ((int)(sizeof(counts) / sizeof(counts[0])))
#define TENSOR_MAX  12345
#define ROOM_BYTES  64
#define SMALLEST    4096
#define SMALL_STEPS 6

/* ---- what the cases share
 * ---------------------------------------------------------------------------------------------- */

struct random {
    uint64_t state;
};

static uint32_t draw(struct random *random, uint32_t below)
{
    random->state = random->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random->state >> 33) % below;
}

static void shuffle(int *order, struct random *random)
{
    for (int i = 0; i < TENSORS; i++)
        order[i] = i;
    for (int i = TENSORS - 1; i > 0; i--) {
        int other = (int)draw(random, (uint32_t)i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* Small whole numbers: every order of summation gives the same. */
static float value_of(int rank, int step, int tensor, uint64_t i)
{
    return (float)((rank + 1) * (int)((i + (uint64_t)(3 * tensor + step)) % 97));
}

static void fill(float *out, int rank, int step, int tensor)
{
    for (uint64_t i = 0; i < counts[tensor]; i++)
        out[i] = value_of(rank, step, tensor, i);
}

static int check_sum(const float *sum, int size, int step, int tensor)
{
    float ranks = (float)(size * (size + 1) / 2);
    for (uint64_t i = 0; i < counts[tensor]; i++)
        REQUIRE(sum[i] == ranks * value_of(0, step, tensor, i));
    return 0;
}

static struct shoal_fuse_options options_of(uint64_t buffer_bytes, int in_flight)
{
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    options.tensor_count = TENSORS;
    options.counts = counts;
    options.op = SHOAL_SUM;
    options.buffer_bytes = buffer_bytes;
    options.in_flight = in_flight;
    return options;
}

static float *home_of(shoal_fuse_t fuse, int tensor)
{
    void *home = NULL;
    if (shoal_fuse_home(fuse, tensor, &home) != SHOAL_OK)
        abort();
    return home;
}

static struct shoal_fuse_times times_of(shoal_fuse_t fuse, int buffer)
{
    struct shoal_fuse_times times = SHOAL_FUSE_TIMES_INIT;
    if (shoal_fuse_times(fuse, buffer, &times) != SHOAL_OK)
        abort();
    return times;
}

static struct shoal_fuse_counters counters_of(shoal_fuse_t fuse)
{
    struct shoal_fuse_counters counters = SHOAL_FUSE_COUNTERS_INIT;
    if (shoal_fuse_counters(fuse, &counters) != SHOAL_OK)
        abort();
    return counters;
}

static void expect_run(int size, int hosts, int (*main)(shoal_group_t group, void *user))
{
    struct processes run = {.size = size, .hosts = hosts, .main = main};
    assert_true(processes_run(&run));
}

/* ---- any order
 * ---------------------------------------------------------------------------------------------- */

static float elsewhere[TENSORS][TENSOR_MAX], results[TENSORS][TENSOR_MAX];

/* Where a gradient is made and its result wanted. */
enum place { AT_HOME, IN_PLACE, APART, ONLY_IN, PLACES };

static int add(shoal_group_t group, shoal_fuse_t fuse, int step, int tensor, enum place place)
{
    int rank = shoal_group_rank(group);
    float *in = elsewhere[tensor], *out = NULL;
    if (place == AT_HOME)
        fill(home_of(fuse, tensor), rank, step, tensor);
    else
        fill(in, rank, step, tensor);
    if (place == IN_PLACE)
        out = in;
    else if (place == APART)
        out = results[tensor];
    CHECK(shoal_fuse_add(fuse, tensor, place == AT_HOME ? NULL : in, out, counts[tensor]));
    return 0;
}

static int check_result(shoal_group_t group, shoal_fuse_t fuse, int step, int tensor,
                        enum place place)
{
    int size = shoal_group_size(group);
    REQUIRE(check_sum(home_of(fuse, tensor), size, step, tensor) == 0);
    if (place == IN_PLACE)
        REQUIRE(check_sum(elsewhere[tensor], size, step, tensor) == 0);
    if (place == APART)
        REQUIRE(check_sum(results[tensor], size, step, tensor) == 0);
    return 0;
}

/* A step in this rank's own order; waits for some tensors alone before the end. */
static int one_step(shoal_group_t group, shoal_fuse_t fuse, int step)
{
    struct random random = {(uint64_t)(1000 * step + shoal_group_rank(group))};
    int order[TENSORS];
    enum place places[TENSORS];
    shuffle(order, &random);
    for (int i = 0; i < TENSORS; i++) {
        places[order[i]] = (enum place)draw(&random, PLACES);
        REQUIRE(add(group, fuse, step, order[i], places[order[i]]) == 0);
    }
    for (int i = 0; i < TENSORS / 2; i++) {
        CHECK(shoal_fuse_wait(fuse, order[i]));
        REQUIRE(check_result(group, fuse, step, order[i], places[order[i]]) == 0);
    }
    CHECK(shoal_fuse_finish(fuse));
    for (int i = 0; i < TENSORS; i++)
        REQUIRE(check_result(group, fuse, step, i, places[i]) == 0);
    return 0;
}

static int any_order(shoal_group_t group, void *user)
{
    (void)user;
    static const uint64_t buffer_bytes[] = {SMALLEST, SMALLEST, 20000, 1 << 20};
    static const int in_flight[] = {1, 3, 2, 0};
    int given[TENSORS];
    struct random random = {5};
    for (int i = 0; i < 4; i++) {
        struct shoal_fuse_options options = options_of(buffer_bytes[i], in_flight[i]);
        shoal_fuse_t fuse = NULL;
        shuffle(given, &random);
        options.order = i % 2 == 0 ? given : NULL;
        CHECK(shoal_fuse_create(group, &options, &fuse));
        for (int step = 0; step < SMALL_STEPS; step++)
            REQUIRE(one_step(group, fuse, step) == 0);
        REQUIRE(counters_of(fuse).steps == SMALL_STEPS);
        CHECK(shoal_fuse_free(fuse));
    }
    return 0;
}

static void test_any_order(void **state)
{
    (void)state;
    expect_run(1, 1, any_order);
    expect_run(3, 1, any_order);
    expect_run(3, 3, any_order);
    expect_run(4, 2, any_order);
}

/* ---- threads
 * ---------------------------------------------------------------------------------------------- */

#define THREADS 4

struct adder {
    pthread_t thread;
    shoal_group_t group;
    shoal_fuse_t fuse;
    int step, first, failed;
};

static void *add_some(void *user)
{
    struct adder *adder = user;
    for (int tensor = adder->first; tensor < TENSORS; tensor += THREADS)
        adder->failed |= add(adder->group, adder->fuse, adder->step, tensor, AT_HOME);
    return NULL;
}

/* The end is waited for while others still add. */
static int from_threads(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(SMALLEST, 2);
    struct adder adders[THREADS];
    shoal_fuse_t fuse = NULL;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    for (int step = 0; step < 50; step++) {
        for (int i = 0; i < THREADS; i++) {
            adders[i] = (struct adder){.group = group, .fuse = fuse, .step = step, .first = i};
            REQUIRE(pthread_create(&adders[i].thread, NULL, add_some, &adders[i]) == 0);
        }
        for (int i = 0; i < THREADS && step == 0; i++) /* homes move at the end of the first */
            pthread_join(adders[i].thread, NULL);
        CHECK(shoal_fuse_finish(fuse));
        for (int i = 0; i < THREADS && step > 0; i++)
            pthread_join(adders[i].thread, NULL);
        for (int i = 0; i < TENSORS; i++)
            REQUIRE(check_sum(home_of(fuse, i), shoal_group_size(group), step, i) == 0);
        for (int i = 0; i < THREADS; i++)
            REQUIRE(!adders[i].failed);
    }
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static void test_threads(void **state)
{
    (void)state;
    expect_run(2, 1, from_threads);
    expect_run(2, 2, from_threads);
}

/* ---- homes
 * ---------------------------------------------------------------------------------------------- */

static const float *seen_homes[TENSORS];

/* Homes lie in the order of rank 0's first step. */
static int check_homes(shoal_fuse_t fuse, const int *order)
{
    const char *next = (const char *)home_of(fuse, order[0]);
    for (int i = 0; i < TENSORS; i++) {
        REQUIRE((const char *)home_of(fuse, order[i]) == next);
        REQUIRE((uintptr_t)next % ROOM_BYTES == 0);
        next += (counts[order[i]] * sizeof(float) + ROOM_BYTES - 1) / ROOM_BYTES * ROOM_BYTES;
    }
    return 0;
}

static int homes(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(1 << 20, 0);
    int backward[TENSORS], order[TENSORS];
    struct random random = {(uint64_t)shoal_group_rank(group)}, first = {0};
    shoal_fuse_t fuse = NULL;
    for (int i = 0; i < TENSORS; i++)
        backward[i] = TENSORS - 1 - i;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    REQUIRE(check_homes(fuse, backward) == 0);
    shuffle(order, &random);
    for (int i = 0; i < TENSORS; i++)
        REQUIRE(add(group, fuse, 0, order[i], AT_HOME) == 0);
    CHECK(shoal_fuse_finish(fuse));
    shuffle(order, &first);
    REQUIRE(check_homes(fuse, order) == 0);
    for (int i = 0; i < TENSORS; i++)
        seen_homes[i] = home_of(fuse, i);
    REQUIRE(one_step(group, fuse, 1) == 0);
    for (int i = 0; i < TENSORS; i++)
        REQUIRE(seen_homes[i] == home_of(fuse, i));
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

/* Gradients at home are copied by nobody, not even between ranks of a host. */
static int nothing_is_copied(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(1 << 20, 0);
    struct shoal_counters traffic = SHOAL_COUNTERS_INIT;
    shoal_fuse_t fuse = NULL;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    for (int i = 0; i < TENSORS; i++)
        REQUIRE(add(group, fuse, 0, i, AT_HOME) == 0);
    CHECK(shoal_fuse_finish(fuse));
    CHECK(shoal_fuse_traffic(fuse, &traffic));
    struct shoal_fuse_counters counted = counters_of(fuse);
    REQUIRE(counted.copied == 0 && counted.steps == 1 && counted.buffers == 1);
    REQUIRE(counted.in_flight == 2);
    REQUIRE(shoal_fuse_buffer_count(fuse) == 1 && times_of(fuse, 0).bytes == counted.bytes);
    REQUIRE(traffic.direct_bytes == counted.bytes);
    REQUIRE(add(group, fuse, 1, 0, APART) == 0);
    CHECK(shoal_fuse_flush(fuse));
    CHECK(shoal_fuse_finish(fuse));
    REQUIRE(counters_of(fuse).copied == 2 * counts[0] * sizeof(float));
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

/* All that a step needs was taken before, or in the first ones. */
static int nothing_is_taken(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(SMALLEST, 2);
    shoal_fuse_t fuse = NULL;
    uint64_t taken = 0;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    for (int step = 0; step < 20; step++) {
        if (step == 2)
            taken = base_memory_count();
        for (int i = TENSORS - 1; i >= 0; i--)
            REQUIRE(add(group, fuse, step, i, APART) == 0);
        CHECK(shoal_fuse_finish(fuse));
    }
    REQUIRE(base_memory_count() == taken);
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

/* Ranks whose order is another one say so. */
static void test_the_line(void **state)
{
    (void)state;
    struct processes run = {.size = 2, .main = homes, .environment = {"SHOAL_LOG=info"}};
    processes_start(&run);
    assert_true(processes_wait(&run));
    assert_null(strstr(run.output[0], "in another order"));
    assert_non_null(strstr(run.output[1], "gradients were ready in another order than on rank 0"));
    processes_release(&run);
}

static void test_homes(void **state)
{
    (void)state;
    expect_run(3, 1, homes);
    expect_run(2, 2, homes);
    expect_run(2, 1, nothing_is_copied);
    expect_run(1, 1, nothing_is_taken);
    expect_run(3, 1, nothing_is_taken);
}

/* ---- which goes next, and how many at a time
 * ---------------------------------------------------------------------------------------------- */

#define EQUAL_TENSORS 8
#define EQUAL_COUNT   2048 /* two buffers each */

/* Rank 0 is ready with all before rank 1 begins, so only as many as allowed can be on their way;
 * then what the forward pass needs first goes first. */
static int urgent_first(shoal_group_t group, shoal_fuse_t fuse, int in_flight)
{
    int go = 0, buffers = shoal_fuse_buffer_count(fuse);
    bool first = shoal_group_rank(group) == 0;
    if (!first)
        CHECK(shoal_recv(&go, 1, SHOAL_I32, 0, 1, NULL, group, NULL));
    for (int i = EQUAL_TENSORS - 1; i >= 0; i--)
        CHECK(shoal_fuse_add(fuse, i, NULL, NULL, EQUAL_COUNT));
    int sent = 0;
    for (int b = 0; b < buffers && first; b++)
        sent += times_of(fuse, b).sent_ns != 0;
    REQUIRE(!first || sent == in_flight);
    REQUIRE(!first || counters_of(fuse).held_back == (uint64_t)(buffers - in_flight));
    if (first)
        for (int i = 1; i < shoal_group_size(group); i++)
            CHECK(shoal_send(&go, 1, SHOAL_I32, i, 1, group, NULL));
    CHECK(shoal_fuse_finish(fuse));
    for (int b = 0; b < buffers; b++) {
        struct shoal_fuse_times times = times_of(fuse, b);
        REQUIRE(times.priority == EQUAL_TENSORS - 1 - b / 2);
        /* two buffers of a tensor are equally urgent, and go as they lie */
        int place = b < in_flight ? b : in_flight + (buffers - 2 - b / 2 * 2) + b % 2;
        REQUIRE(in_flight % 2 == 1 || times.sent_as == place);
    }
    REQUIRE(!first || counters_of(fuse).overtakings > 0);
    return 0;
}

static int one_at_a_time(shoal_group_t group, void *user)
{
    uint64_t equal[EQUAL_TENSORS];
    int in_flight = *(int *)user, order[EQUAL_TENSORS];
    struct shoal_fuse_options options = options_of(SMALLEST, in_flight);
    shoal_fuse_t fuse = NULL;
    for (int i = 0; i < EQUAL_TENSORS; i++) {
        equal[i] = EQUAL_COUNT;
        order[i] = EQUAL_TENSORS - 1 - i;
    }
    options.tensor_count = EQUAL_TENSORS;
    options.counts = equal;
    options.order = order;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    REQUIRE(urgent_first(group, fuse, in_flight) == 0);
    for (int a = 0; a < shoal_fuse_buffer_count(fuse) && in_flight == 1; a++)
        for (int b = 0; b < a; b++) {
            struct shoal_fuse_times one = times_of(fuse, a), other = times_of(fuse, b);
            REQUIRE(one.reduced_ns <= other.sent_ns || other.reduced_ns <= one.sent_ns);
        }
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static void test_urgent_first(void **state)
{
    (void)state;
    for (int hosts = 1; hosts <= 3; hosts += 2)
        for (int in_flight = 1; in_flight <= 4; in_flight += in_flight) {
            struct processes run = {
                .size = 3, .hosts = hosts, .main = one_at_a_time, .user = &in_flight};
            assert_true(processes_run(&run));
        }
}

/* ---- several fuses, and other operations between
 * ---------------------------------------------------------------------------------------------- */

static int side_by_side(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(SMALLEST, 1);
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    shoal_fuse_t fuses[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        CHECK(shoal_fuse_create(group, &options, &fuses[i]));
    for (int step = 0; step < SMALL_STEPS; step++) {
        int64_t number = 1;
        for (int i = 0; i < TENSORS; i++) {
            REQUIRE(add(group, fuses[rank % 2], step, i, AT_HOME) == 0);
            if (i == TENSORS / 2)
                CHECK(shoal_allreduce(&number, &number, 1, SHOAL_I64, SHOAL_SUM, group, NULL));
            REQUIRE(add(group, fuses[(rank + 1) % 2], step, TENSORS - 1 - i, AT_HOME) == 0);
        }
        REQUIRE(number == size);
        for (int i = 0; i < 2; i++)
            CHECK(shoal_fuse_finish(fuses[i]));
        for (int i = 0; i < TENSORS; i++)
            REQUIRE(check_sum(home_of(fuses[i % 2], i), size, step, i) == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(shoal_fuse_free(fuses[i]));
    return 0;
}

static void test_side_by_side(void **state)
{
    (void)state;
    expect_run(3, 1, side_by_side);
    expect_run(3, 3, side_by_side);
}

/* ---- values
 * ---------------------------------------------------------------------------------------------- */

/* Rank 0 has all gradients, the last rank none, the others every second one. */
static int flushed(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(SMALLEST, 2);
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    shoal_fuse_t fuse = NULL;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    for (int step = 0; step < SMALL_STEPS; step++) {
        for (int i = rank > 0; i < TENSORS && rank < size - 1; i += 1 + (rank > 0))
            REQUIRE(add(group, fuse, step, i, AT_HOME) == 0);
        CHECK(shoal_fuse_flush(fuse));
        CHECK(shoal_fuse_finish(fuse));
        for (int i = 0; i < TENSORS; i++)
            for (uint64_t j = 0; j < counts[i]; j++)
                REQUIRE(home_of(fuse, i)[j] ==
                        value_of(0, step, i, j) + (i % 2 ? value_of(1, step, i, j) : 0));
    }
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

/* They stay in their own element, wherever buffers end. */
static int not_finite(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(SMALLEST, 2);
    bool first = shoal_group_rank(group) == 0;
    shoal_fuse_t fuse = NULL;
    options.op = SHOAL_AVG;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    for (int i = 0; i < TENSORS; i++) {
        for (uint64_t j = 0; j < counts[i]; j++)
            home_of(fuse, i)[j] = j % 3 == 0 ? 1 : j % 3 == 1 ? INFINITY : first ? NAN : 1;
        CHECK(shoal_fuse_add(fuse, i, NULL, NULL, counts[i]));
    }
    CHECK(shoal_fuse_finish(fuse));
    for (int i = 0; i < TENSORS; i++)
        for (uint64_t j = 0; j < counts[i]; j++) {
            float value = home_of(fuse, i)[j];
            REQUIRE(j % 3 == 0 ? value == 1 : j % 3 == 1 ? isinf(value) : isnan(value));
        }
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static void test_values(void **state)
{
    (void)state;
    expect_run(3, 1, flushed);
    expect_run(3, 3, flushed);
    expect_run(2, 1, not_finite);
}

/* ---- bits
 * ---------------------------------------------------------------------------------------------- */

static const enum shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16};

/* The tensor's values on this rank, in `out`. */
static void fill_any(void *out, int rank, int tensor, enum shoal_dtype dtype)
{
    struct operation_options options = {
        .dtype = dtype, .op = SHOAL_SUM, .values = VALUES_ANY, .seed = (uint64_t)tensor};
    values_fill(&options, rank, out, counts[tensor]);
}

/* Of a tensor that is reduced alone. */
static int check_bits(shoal_group_t group, shoal_fuse_t fuse, int tensor, enum shoal_dtype dtype)
{
    size_t bytes = counts[tensor] * shoal_dtype_bytes(dtype);
    fill_any(elsewhere[0], shoal_group_rank(group), tensor, dtype);
    CHECK(shoal_allreduce(elsewhere[0], results[0], counts[tensor], dtype, SHOAL_AVG, group, NULL));
    REQUIRE(memcmp(results[0], home_of(fuse, tensor), bytes) == 0);
    return 0;
}

static int bits(shoal_group_t group, void *user)
{
    (void)user;
    struct random random = {3};
    int order[TENSORS];
    for (int i = 0; i < 6; i++) {
        struct shoal_fuse_options options = options_of(i < 2 ? SMALLEST : SMALLEST << 2 * i, 2);
        shoal_fuse_t fuse = NULL;
        shuffle(order, &random);
        options.op = SHOAL_AVG;
        options.dtype = dtypes[i % 2];
        options.order = order;
        CHECK(shoal_fuse_create(group, &options, &fuse));
        for (int step = 0; step < 2; step++) {
            shuffle(order, &random);
            for (int j = 0; j < TENSORS; j++) {
                fill_any(home_of(fuse, order[j]), shoal_group_rank(group), order[j], options.dtype);
                CHECK(shoal_fuse_add(fuse, order[j], NULL, NULL, counts[order[j]]));
            }
            CHECK(shoal_fuse_finish(fuse));
            for (int j = 0; j < TENSORS; j++)
                REQUIRE(check_bits(group, fuse, j, options.dtype) == 0);
        }
        CHECK(shoal_fuse_free(fuse));
    }
    return 0;
}

/* On one host sums have the bits of one order always, on several in reproducible groups. */
static void test_bits(void **state)
{
    (void)state;
    expect_run(3, 1, bits);
    static const int hosts[] = {3, 2};
    for (int i = 0; i < 2; i++) {
        struct processes run = {
            .size = 3, .hosts = hosts[i], .main = bits, .environment = {"SHOAL_REPRODUCIBLE=1"}};
        assert_true(processes_run(&run));
    }
}

/* ---- pace
 * ---------------------------------------------------------------------------------------------- */

#define LARGE_COUNT     (1 << 20)
#define LARGE_BUFFER    (512 << 10)
#define LARGE_STEPS     6
#define LARGE_STEPS_MAX 1000

/* The same gradients in each step, of which the first goes in short messages and buffer by buffer,
 * and the others as fast as the first one was, until some have gone together: the same bits. */
static int steps_alike(shoal_group_t group, void *user)
{
    (void)user;
    static float first[LARGE_COUNT];
    static const uint64_t count = LARGE_COUNT;
    struct operation_options values = {.dtype = SHOAL_F32, .op = SHOAL_SUM, .values = VALUES_ANY};
    struct shoal_fuse_options options = options_of(LARGE_BUFFER, 2);
    shoal_fuse_t fuse = NULL;
    options.tensor_count = 1;
    options.counts = &count;
    options.op = SHOAL_AVG;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    for (int step = 0; step < LARGE_STEPS || counters_of(fuse).joined == 0; step++) {
        float *home = home_of(fuse, 0);
        REQUIRE(step < LARGE_STEPS_MAX);
        values_fill(&values, shoal_group_rank(group), home, count);
        CHECK(shoal_fuse_add(fuse, 0, NULL, NULL, count));
        CHECK(shoal_fuse_finish(fuse));
        if (step == 0)
            memcpy(first, home, sizeof(first));
        REQUIRE(step > 0 || counters_of(fuse).joined == 0);
        REQUIRE(memcmp(first, home, sizeof(first)) == 0);
    }
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static void test_pace(void **state)
{
    (void)state;
    expect_run(2, 2, steps_alike);
    expect_run(3, 3, steps_alike);
    expect_run(4, 2, steps_alike);
}

/* ---- the end of a step
 * ---------------------------------------------------------------------------------------------- */

#define QUIET_STEPS   20
#define QUIET_TENSORS 64
#define QUIET_COUNT   (32 << 10) /* a buffer each, too long for the caller's thread to move */

/* Who waits for all results is woken when they are there, not at each of many buffers. (A sleep
 * ends now and then to look round; two in the mean would be a machine that stands still.) */
static int sleeps_once(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(QUIET_COUNT * sizeof(float), 1);
    struct shoal_counters traffic = SHOAL_COUNTERS_INIT;
    uint64_t equal[QUIET_TENSORS];
    shoal_fuse_t fuse = NULL;
    for (int i = 0; i < QUIET_TENSORS; i++)
        equal[i] = QUIET_COUNT;
    options.tensor_count = QUIET_TENSORS;
    options.counts = equal;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    for (int step = 0; step < QUIET_STEPS; step++) {
        for (int i = QUIET_TENSORS - 1; i >= 0; i--)
            CHECK(shoal_fuse_add(fuse, i, NULL, NULL, QUIET_COUNT));
        CHECK(shoal_fuse_finish(fuse));
    }
    CHECK(shoal_fuse_traffic(fuse, &traffic));
    REQUIRE(traffic.sleeps <= (uint64_t)2 * QUIET_STEPS);
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static void test_sleeps(void **state)
{
    (void)state;
    expect_run(2, 2, sleeps_once);
}

/* ---- what can be seen
 * ---------------------------------------------------------------------------------------------- */

static int seen(shoal_group_t group, void *user)
{
    (void)user;
    struct shoal_fuse_options options = options_of(SMALLEST, 2);
    shoal_fuse_t fuse = NULL;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    int buffers = shoal_fuse_buffer_count(fuse);
    uint64_t bytes = 0;
    REQUIRE(buffers > 10 && times_of(fuse, 0).sent_as == -1 && times_of(fuse, 0).bytes == SMALLEST);
    for (int step = 0; step < 3; step++)
        REQUIRE(one_step(group, fuse, step) == 0);
    for (int b = 0; b < buffers; b++) {
        struct shoal_fuse_times times = times_of(fuse, b);
        REQUIRE(times.sent_as >= 0 && times.sent_as < buffers);
        REQUIRE(0 < times.first_added_ns && times.first_added_ns <= times.last_added_ns);
        REQUIRE(times.last_added_ns <= times.packed_ns && times.packed_ns <= times.sent_ns);
        REQUIRE(times.sent_ns <= times.reduced_ns && times.reduced_ns <= times.back_ns);
        bytes += times.bytes;
    }
    struct shoal_fuse_counters counted = counters_of(fuse);
    REQUIRE(counted.steps == 3 && counted.buffers == 3 * (uint64_t)buffers);
    REQUIRE(counted.bytes == 3 * bytes && counted.flight_ns > 0);
    REQUIRE(counted.exposed_ns <= counted.flight_ns && counted.exposed_ns <= counted.waited_ns);
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

static void test_seen(void **state)
{
    (void)state;
    expect_run(2, 1, seen);
    expect_run(2, 2, seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_homes),        cmocka_unit_test(test_the_line),
        cmocka_unit_test(test_urgent_first), cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_values),       cmocka_unit_test(test_bits),
        cmocka_unit_test(test_pace),         cmocka_unit_test(test_sleeps),
        cmocka_unit_test(test_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
