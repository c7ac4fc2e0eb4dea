/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counters_test.c: shoal_group_counters between real processes: the numbers are exact for
 * operations whose way is known.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "support/processes.h"

#define NUMBER_COUNT ((sizeof(struct shoal_counters) - sizeof(size_t)) / sizeof(uint64_t))

/* What the group did since *before, which becomes what it is now. sleeps are left out: they depend
 * on the scheduler. */
static struct shoal_counters since(shoal_group_t group, struct shoal_counters *before)
{
    struct shoal_counters now = SHOAL_COUNTERS_INIT, done = SHOAL_COUNTERS_INIT;
    if (shoal_group_counters(group, &now) != SHOAL_OK)
        abort();
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        (&done.operations)[i] = (&now.operations)[i] - (&before->operations)[i];
    done.sleeps = 0;
    *before = now;
    return done;
}

static bool same(const struct shoal_counters *done, const struct shoal_counters *expected)
{
    bool equal = true;
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        if ((&done->operations)[i] != (&expected->operations)[i]) {
            fprintf(stderr, "number %zu is %llu instead of %llu\n", i,
                    (unsigned long long)(&done->operations)[i],
                    (unsigned long long)(&expected->operations)[i]);
            equal = false;
        }
    return equal;
}

/* The call changes the counters by exactly these numbers. */
#define COUNTS(call, ...)                                                  \
    do {                                                                   \
        CHECK(call);                                                       \
        struct shoal_counters done = since(group, &before);                \
        struct shoal_counters expected = {.operations = 1, ##__VA_ARGS__}; \
        REQUIRE(same(&done, &expected));                                   \
    } while (0)

enum { MANY = 100000 }; /* elements, above every threshold */

static int ways_on_one_host(shoal_group_t group, void *user)
{
    (void)user;
    uint64_t size = (uint64_t)shoal_group_size(group), bytes = MANY * sizeof(float);
    struct shoal_counters before = SHOAL_COUNTERS_INIT;
    float *in = calloc(MANY * size, sizeof(float)), *out = calloc(MANY * size, sizeof(float));
    void *shared = NULL;
    CHECK(shoal_alloc(group, bytes, &shared));
    since(group, &before);
    COUNTS(shoal_allreduce(in, out, 2, SHOAL_F32, SHOAL_SUM, group, NULL), .bytes = 8,
           .inline_bytes = 8);
    COUNTS(shoal_reduce(in, out, 12, SHOAL_F32, SHOAL_SUM, 1, group, NULL), .bytes = 48,
           .inline_bytes = 48);
    COUNTS(shoal_allgather(in, out, 3, SHOAL_F64, group, NULL), .bytes = 24 * size,
           .inline_bytes = 24 * size);
    COUNTS(shoal_allreduce(in, out, 1000, SHOAL_F32, SHOAL_SUM, group, NULL), .bytes = 4000,
           .symmetric_bytes = 4000);
    COUNTS(shoal_allreduce(in, out, MANY, SHOAL_F32, SHOAL_SUM, group, NULL), .bytes = bytes,
           .staged_bytes = bytes);
    COUNTS(shoal_broadcast(in, 1000, SHOAL_F32, 0, group, NULL), .bytes = 4000,
           .staged_bytes = 4000);
    COUNTS(shoal_reduce_scatter(in, out, MANY, SHOAL_F32, SHOAL_SUM, group, NULL),
           .bytes = bytes * size, .staged_bytes = bytes * size);
    COUNTS(shoal_allreduce(shared, shared, MANY, SHOAL_F32, SHOAL_SUM, group, NULL), .bytes = bytes,
           .direct_bytes = bytes);
    COUNTS(shoal_allreduce(shared, out, MANY, SHOAL_F32, SHOAL_SUM, group, NULL), .bytes = bytes,
           .staged_bytes = bytes);
    COUNTS(shoal_barrier(group, NULL));
    CHECK(shoal_free(group, shared));
    free(in);
    free(out);
    return 0;
}

static int requests(shoal_group_t group, void *user)
{
    (void)user;
    float numbers[2] = {1, 2};
    struct shoal_counters before = SHOAL_COUNTERS_INIT;
    shoal_request_t request = NULL;
    since(group, &before);
    CHECK(shoal_allreduce(numbers, numbers, 2, SHOAL_F32, SHOAL_SUM, group, &request));
    COUNTS(shoal_request_wait(&request, -1), .requests = 1, .bytes = 8, .inline_bytes = 8);
    return 0;
}

static int streamed(shoal_group_t group, void *user)
{
    (void)user;
    uint64_t bytes = base_cache_bytes(), count = bytes / sizeof(float);
    struct shoal_counters before = SHOAL_COUNTERS_INIT;
    float *in = calloc(count, sizeof(float)), *out = calloc(count, sizeof(float));
    since(group, &before);
    COUNTS(shoal_allreduce(in, out, count, SHOAL_F32, SHOAL_SUM, group, NULL), .bytes = bytes,
           .staged_bytes = bytes, .streamed_bytes = bytes);
    COUNTS(shoal_allreduce(in, in, count, SHOAL_F32, SHOAL_SUM, group, NULL), .bytes = bytes,
           .staged_bytes = bytes);
    free(in);
    free(out);
    return 0;
}

/* One message to the next rank, and one from the rank before, twice: to one host and to another. */
static int messages(shoal_group_t group, void *user)
{
    (void)user;
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    bool far = shoal_group_host_count(group) > 1;
    float out[1000] = {0}, in[2000];
    struct shoal_counters before = SHOAL_COUNTERS_INIT;
    shoal_request_t send = NULL;
    since(group, &before);
    CHECK(shoal_send(out, 1000, SHOAL_F32, (rank + 1) % size, 1, group, &send));
    CHECK(shoal_recv(in, 2000, SHOAL_F32, (rank + size - 1) % size, 1, NULL, group, NULL));
    CHECK(shoal_request_wait(&send, -1));
    struct shoal_counters done = since(group, &before);
    REQUIRE(done.operations == 2 && done.requests >= 1); /* the receive may wait behind the send */
    REQUIRE(done.bytes == 12000 && done.engine_bytes == 12000); /* its buffer has 8000 */
    REQUIRE(done.sent_bytes == 4000 && done.received_bytes == 4000);
    REQUIRE(done.network_sent_bytes == (far ? 4000 : 0));
    REQUIRE(done.network_received_bytes == (far ? 4000 : 0));
    CHECK(shoal_recv(in, 10, SHOAL_F32, rank, 2, NULL, group, &send)); /* to itself: no message */
    CHECK(shoal_send(out, 10, SHOAL_F32, rank, 2, group, NULL));
    CHECK(shoal_request_wait(&send, -1));
    done = since(group, &before);
    REQUIRE(done.engine_bytes == 80 && done.sent_bytes == 0 && done.received_bytes == 0);
    return 0;
}

static int ways_between_hosts(shoal_group_t group, void *user)
{
    (void)user;
    uint64_t bytes = MANY * sizeof(float);
    struct shoal_counters before = SHOAL_COUNTERS_INIT;
    float *in = calloc(MANY, sizeof(float)), *out = calloc(MANY, sizeof(float));
    since(group, &before);
    CHECK(shoal_broadcast(in, MANY, SHOAL_F32, 0, group, NULL));
    struct shoal_counters done = since(group, &before);
    bool root = shoal_group_rank(group) == 0;
    struct shoal_counters expected = {.operations = 1, .bytes = bytes, .engine_bytes = bytes};
    expected.sent_bytes = expected.network_sent_bytes = root ? bytes : 0;
    expected.received_bytes = expected.network_received_bytes = root ? 0 : bytes;
    REQUIRE(same(&done, &expected));
    free(in);
    free(out);
    return 0;
}

static int alone(shoal_group_t group, void *user)
{
    (void)user;
    float numbers[4] = {0}, copy[4];
    struct shoal_counters before = SHOAL_COUNTERS_INIT;
    COUNTS(shoal_allreduce(numbers, copy, 4, SHOAL_F32, SHOAL_SUM, group, NULL), .bytes = 16);
    return 0;
}

/* Each group counts for itself. */
static int sub_groups(shoal_group_t group, void *user)
{
    (void)user;
    float numbers[2] = {0};
    struct shoal_counters before = SHOAL_COUNTERS_INIT, of_twin = SHOAL_COUNTERS_INIT;
    shoal_group_t twin = NULL;
    since(group, &before);
    COUNTS(shoal_group_split(group, 0, 0, &twin), .bytes = 12 * 2, .inline_bytes = 12 * 2);
    CHECK(shoal_allreduce(numbers, numbers, 2, SHOAL_F32, SHOAL_SUM, twin, NULL));
    struct shoal_counters done = since(group, &before);
    REQUIRE(done.operations == 0 && done.bytes == 0);
    CHECK(shoal_group_counters(twin, &of_twin));
    REQUIRE(of_twin.operations == 1 && of_twin.bytes == 8);
    CHECK(shoal_group_free(twin));
    return 0;
}

/* Rank 1 is late until rank 0 has slept. */
static int sleeps(shoal_group_t group, void *user)
{
    (void)user;
    int rank = shoal_group_rank(group), slept = 0;
    for (int i = 0; i < 500 && !slept; i++) {
        struct shoal_counters now = SHOAL_COUNTERS_INIT;
        if (rank == 1)
            usleep(10000);
        CHECK(shoal_barrier(group, NULL));
        CHECK(shoal_group_counters(group, &now));
        slept = now.sleeps > 0;
        CHECK(shoal_broadcast(&slept, 1, SHOAL_I32, 0, group, NULL));
    }
    REQUIRE(slept);
    return 0;
}

enum { NEWS = 200 };

/* Rank 0 sleeps in one group while rank 1 makes others, which rank 0 is in: none of that wakes it.
 */
static int undisturbed(shoal_group_t group, void *user)
{
    (void)user;
    int ranks[2] = {0, 1}, rank = shoal_group_rank(group);
    shoal_group_t others[NEWS];
    struct shoal_counters before = SHOAL_COUNTERS_INIT, after = SHOAL_COUNTERS_INIT;
    CHECK(shoal_barrier(group, NULL));
    for (int i = 0; i < NEWS; i++) {
        CHECK(shoal_group_subset(group, ranks, 2, NULL, &others[i]));
        if (rank == 1)
            usleep(200);
    }
    CHECK(shoal_group_counters(group, &before));
    CHECK(shoal_barrier(group, NULL));
    CHECK(shoal_group_counters(group, &after));
    for (int i = 0; i < NEWS; i++)
        CHECK(shoal_group_free(others[i]));
    REQUIRE(after.sleeps - before.sleeps < NEWS / 2); /* some slices of waiting */
    return 0;
}

/* Programs that were built against an older or a newer header. */
static int other_sizes(shoal_group_t group, void *user)
{
    (void)user;
    struct {
        struct shoal_counters known;
        uint64_t unknown[2];
    } newer = {.known = {.struct_bytes = sizeof(newer)}, .unknown = {7, 7}};
    struct shoal_counters older = {.struct_bytes = sizeof(size_t) + 2 * sizeof(uint64_t),
                                   .bytes = 77};
    CHECK(shoal_barrier(group, NULL));
    CHECK(shoal_group_counters(group, &newer.known));
    REQUIRE(newer.known.struct_bytes == sizeof(struct shoal_counters));
    REQUIRE(newer.known.operations == 1 && newer.unknown[0] == 7 && newer.unknown[1] == 7);
    CHECK(shoal_group_counters(group, &older));
    REQUIRE(older.struct_bytes == sizeof(size_t) + 2 * sizeof(uint64_t));
    REQUIRE(older.operations == 1 && older.bytes == 77);
    older.struct_bytes = 0;
    REQUIRE(shoal_group_counters(group, &older) == SHOAL_ERR_ARGUMENT);
    REQUIRE(strstr(shoal_last_error(group), "SHOAL_COUNTERS_INIT"));
    REQUIRE(shoal_group_counters(group, NULL) == SHOAL_ERR_ARGUMENT);
    REQUIRE(shoal_group_counters(NULL, &older) == SHOAL_ERR_ARGUMENT);
    return 0;
}

static void expect_run(int size, int hosts, int (*main)(shoal_group_t group, void *user))
{
    struct processes run = {.size = size, .hosts = hosts, .main = main};
    assert_true(processes_run(&run));
}

static void test_ways(void **state)
{
    (void)state;
    expect_run(2, 1, ways_on_one_host);
    expect_run(3, 1, ways_on_one_host);
    expect_run(2, 1, streamed);
    expect_run(2, 2, ways_between_hosts);
    expect_run(1, 1, alone);
}

static void test_requests_and_messages(void **state)
{
    (void)state;
    expect_run(2, 1, requests);
    expect_run(3, 1, messages);
    expect_run(3, 3, messages);
}

static void test_groups(void **state)
{
    (void)state;
    expect_run(2, 1, sub_groups);
}

static void test_sleeps(void **state)
{
    (void)state;
    expect_run(2, 1, sleeps);
    expect_run(2, 2, sleeps);
    expect_run(2, 1, undisturbed);
}

static void test_other_sizes(void **state)
{
    (void)state;
    expect_run(2, 1, other_sizes);
}

static void test_the_line_at_the_end(void **state)
{
    (void)state;
    struct processes run = {.size = 2, .main = sub_groups, .environment = {"SHOAL_LOG=info"}};
    processes_start(&run);
    assert_true(processes_wait(&run));
    for (int rank = 0; rank < 2; rank++)
        assert_non_null(strstr(run.output[rank], "group 'world' is freed after 2 operations in 2 "
                                                 "groups, 0 of them as requests; bytes 32: inline "
                                                 "32, symmetric 0, staged 0, direct 0, engine 0"));
    processes_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),        cmocka_unit_test(test_requests_and_messages),
        cmocka_unit_test(test_groups),      cmocka_unit_test(test_sleeps),
        cmocka_unit_test(test_other_sizes), cmocka_unit_test(test_the_line_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
