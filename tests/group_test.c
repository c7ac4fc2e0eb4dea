/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_test.c: the public API between real processes: every operation, on one host (shared
 * memory), on several (tcp over loopback), and mixed; blocking and not; sub-groups; shared memory.
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

#include "base/tuning.h"
#include "support/holdings.h"
#include "support/operation.h"
#include "support/processes.h"

/* Lengths around every border of the same-host path and of eager messages. */
static const uint64_t lengths[] = {0, 1, 12, 13, 1000, 4096, 4097, 70000, 131072, 400001};
#define LENGTH_COUNT (sizeof(lengths) / sizeof(lengths[0]))
#define LENGTH_MAX   400001

static float value(int rank, uint64_t i)
{
    return (float)((rank + 1) * (int)(i % 13 + 1));
}

static void fill(float *buffer, int rank, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        buffer[i] = value(rank, i);
}

static float sum_at(int size, uint64_t i)
{
    return (float)(size * (size + 1) / 2 * (int)(i % 13 + 1));
}

/* Where the buffers of the operations lie. */
enum place {
    PRIVATE, /* of the process */
    SHARED,  /* from shoal_alloc, on all ranks */
    MIXED    /* the one or the other, by rank and by buffer */
};
static enum place place;
static shoal_group_t place_group;

static bool next_is_shared(void)
{
    static unsigned made;
    unsigned rank = place_group ? (unsigned)shoal_group_rank(place_group) : 0;
    return place == SHARED || (place == MIXED && (made++ >> rank) % 3 != 0);
}

/* [count] and one more, that no operation may write. Before them stands whose memory it is. */
static float *floats(uint64_t count)
{
    size_t bytes = (count + 17) * sizeof(float);
    bool shared = next_is_shared();
    void *memory = shared ? NULL : malloc(bytes);
    if (shared && shoal_alloc(place_group, bytes, &memory) != SHOAL_OK)
        abort();
    if (!memory)
        abort();
    float *numbers = (float *)memory + 16;
    numbers[-1] = shared;
    for (uint64_t i = 0; i <= count; i++)
        numbers[i] = -77.0f;
    return numbers;
}

static void give_back(float *numbers)
{
    void *memory = numbers - 16;
    if (numbers[-1] == 0)
        free(memory);
    else if (shoal_free(place_group, memory) != SHOAL_OK)
        abort();
}

static int finish(shoal_group_t group, shoal_request_t *request)
{
    if (*request)
        CHECK(shoal_request_wait(request, -1));
    REQUIRE(*request == NULL);
    return 0;
}

/* ---- one operation each
 * ------------------------------------------------------------------------------------------ */

static int try_allreduce(shoal_group_t group, uint64_t n, bool later)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    float *in = floats(n), *out = floats(n);
    shoal_request_t request = NULL;
    fill(in, rank, n);
    CHECK(shoal_allreduce(in, out, n, SHOAL_F32, SHOAL_SUM, group, later ? &request : NULL));
    REQUIRE(finish(group, &request) == 0);
    for (uint64_t i = 0; i < n; i++)
        REQUIRE(out[i] == sum_at(size, i) && in[i] == value(rank, i));
    REQUIRE(out[n] == -77.0f);
    CHECK(shoal_allreduce(in, in, n, SHOAL_F32, SHOAL_MAX, group, later ? &request : NULL));
    REQUIRE(finish(group, &request) == 0);
    for (uint64_t i = 0; i < n; i++)
        REQUIRE(in[i] == value(size - 1, i));
    give_back(in);
    give_back(out);
    return 0;
}

static int try_rooted(shoal_group_t group, uint64_t n, bool later)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group), root = size - 1;
    float *in = floats(n), *out = floats(n * (uint64_t)size);
    shoal_request_t request = NULL;
    shoal_request_t *handle = later ? &request : NULL;
    fill(in, rank, n);
    CHECK(shoal_reduce(in, out, n, SHOAL_F32, SHOAL_SUM, root, group, handle));
    REQUIRE(finish(group, &request) == 0);
    for (uint64_t i = 0; i < n; i++)
        REQUIRE(out[i] == (rank == root ? sum_at(size, i) : -77.0f));
    CHECK(shoal_gather(in, out, n, SHOAL_F32, 0, group, handle));
    REQUIRE(finish(group, &request) == 0);
    for (uint64_t i = 0; rank == 0 && i < n * (uint64_t)size; i++)
        REQUIRE(out[i] == value((int)(i / n), i % n));
    memset(in, 0, n * sizeof(float));
    CHECK(shoal_scatter(rank == 0 ? out : NULL, in, n, SHOAL_F32, 0, group, handle));
    REQUIRE(finish(group, &request) == 0);
    for (uint64_t i = 0; i < n; i++)
        REQUIRE(in[i] == value(rank, i));
    CHECK(shoal_broadcast(in, n, SHOAL_F32, root, group, handle));
    REQUIRE(finish(group, &request) == 0);
    for (uint64_t i = 0; i < n; i++)
        REQUIRE(in[i] == value(root, i));
    give_back(in);
    give_back(out);
    return 0;
}

static int try_blocks(shoal_group_t group, uint64_t n, bool later)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    uint64_t whole = n * (uint64_t)size;
    float *all = floats(whole), *in = floats(whole), *part = floats(n);
    shoal_request_t request = NULL;
    shoal_request_t *handle = later ? &request : NULL;
    fill(part, rank, n);
    CHECK(shoal_allgather(part, all, n, SHOAL_F32, group, handle));
    REQUIRE(finish(group, &request) == 0);
    for (uint64_t i = 0; i < whole; i++)
        REQUIRE(all[i] == value((int)(i / n), i % n));
    fill(in, rank, whole);
    CHECK(shoal_reduce_scatter(in, part, n, SHOAL_F32, SHOAL_SUM, group, handle));
    REQUIRE(finish(group, &request) == 0);
    for (uint64_t i = 0; i < n; i++)
        REQUIRE(part[i] == sum_at(size, (uint64_t)rank * n + i));
    for (uint64_t i = 0; i < whole; i++)
        REQUIRE(in[i] == value(rank, i));
    CHECK(shoal_alltoall(in, all, n, SHOAL_F32, group, handle));
    REQUIRE(finish(group, &request) == 0);
    for (uint64_t i = 0; i < whole; i++)
        REQUIRE(all[i] == value((int)(i / n), (uint64_t)rank * n + i % n));
    REQUIRE(all[whole] == -77.0f && part[n] == -77.0f);
    give_back(all);
    give_back(in);
    give_back(part);
    return 0;
}

static int all_operations(shoal_group_t group, void *user)
{
    place = user ? *(enum place *)user : PRIVATE;
    place_group = group;
    for (size_t i = 0; i < LENGTH_COUNT; i++)
        for (int later = 0; later < 2; later++) {
            REQUIRE(try_allreduce(group, lengths[i], later) == 0);
            REQUIRE(try_rooted(group, lengths[i] / 3, later) == 0);
            REQUIRE(try_blocks(group, lengths[i] / 2, later) == 0);
            CHECK(shoal_barrier(group, NULL));
        }
    return 0;
}

/* ---- v forms
 * ------------------------------------------------------------------------------------------------------------
 */

/* Rank i's part has i * step elements; rank 0's is empty. */
static int v_forms_of(shoal_group_t group, uint64_t step)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    uint64_t counts[PROCESSES_MAX], displs[PROCESSES_MAX], back[PROCESSES_MAX], total = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = (uint64_t)i * step;
        displs[i] = total + (uint64_t)i; /* a gap of one element before each part */
        total += counts[i];
        back[i] = (uint64_t)rank * step;
    }
    float *all = floats(step * (uint64_t)size * (uint64_t)size + (uint64_t)size),
          *in = floats(total + step * (uint64_t)size * (uint64_t)size);
    float *part = floats((uint64_t)size * step);
    fill(part, rank, counts[rank]);
    CHECK(shoal_allgatherv(part, all, counts, displs, SHOAL_F32, group, NULL));
    for (int i = 0; i < size; i++) {
        for (uint64_t j = 0; j < counts[i]; j++)
            REQUIRE(all[displs[i] + j] == value(i, j));
        REQUIRE(i == 0 || all[displs[i] - 1] == -77.0f);
    }
    CHECK(shoal_gatherv(part, all, counts, NULL, SHOAL_F32, 0, group, NULL));
    CHECK(shoal_scatterv(all, part, counts, NULL, SHOAL_F32, 0, group, NULL));
    for (uint64_t j = 0; j < counts[rank]; j++)
        REQUIRE(part[j] == value(rank, j));
    fill(in, rank, total);
    CHECK(shoal_reduce_scatterv(in, part, counts, SHOAL_F32, SHOAL_SUM, group, NULL));
    for (uint64_t j = 0; j < counts[rank]; j++)
        REQUIRE(part[j] == sum_at(size, displs[rank] - (uint64_t)rank + j));
    CHECK(shoal_alltoallv(in, counts, NULL, all, back, NULL, SHOAL_F32, group, NULL));
    give_back(all);
    give_back(in);
    give_back(part);
    return 0;
}

static int v_forms(shoal_group_t group, void *user)
{
    place = user ? *(enum place *)user : PRIVATE;
    place_group = group;
    REQUIRE(v_forms_of(group, 0) == 0);
    REQUIRE(v_forms_of(group, 3) == 0);
    REQUIRE(v_forms_of(group, 5000) == 0);
    return 0;
}

/* ---- dtypes and ops
 * -------------------------------------------------------------------------------------------------------
 */

static int every_dtype(shoal_group_t group, void *user)
{
    (void)user;
    unsigned char in[64 * 16], out[64 * 16];
    for (int dtype = 0; dtype < SHOAL_DTYPE_COUNT; dtype++)
        for (int op = 0; op < SHOAL_OP_COUNT; op++) {
            memset(in, 0, sizeof(in)); /* zero is zero, false and 0.0 in every dtype */
            memset(out, 0xee, sizeof(out));
            enum shoal_status status = shoal_allreduce(in, out, 64, (enum shoal_dtype)dtype,
                                                       (enum shoal_op)op, group, NULL);
            if (op == SHOAL_PREMUL_SUM ||
                !shoal_op_supported((enum shoal_op)op, (enum shoal_dtype)dtype)) {
                REQUIRE(status == SHOAL_ERR_UNSUPPORTED || status == SHOAL_ERR_ARGUMENT);
                continue;
            }
            CHECK(status);
            REQUIRE(memcmp(in, out, 64 * shoal_dtype_bytes((enum shoal_dtype)dtype)) == 0);
        }
    int size = shoal_group_size(group), rank = shoal_group_rank(group);
    double mine[3] = {rank, rank + 1, 2}, average[3], scaled[3], factor = rank + 1;
    CHECK(shoal_allreduce(mine, average, 3, SHOAL_F64, SHOAL_AVG, group, NULL));
    REQUIRE(average[0] == (size - 1) / 2.0 && average[2] == 2);
    CHECK(shoal_allreduce_premul(mine, scaled, 3, SHOAL_F64, &factor, group, NULL));
    REQUIRE(scaled[2] == size * (size + 1));
    CHECK(shoal_allreduce_premul(mine, mine, 3, SHOAL_F64, &factor, group, NULL));
    REQUIRE(memcmp(mine, scaled, sizeof(mine)) == 0);
    return 0;
}

/* ---- requests
 * -----------------------------------------------------------------------------------------------------------------
 */

static void count_up(void *user, enum shoal_status status)
{
    if (status == SHOAL_OK)
        __atomic_fetch_add((int *)user, 1, __ATOMIC_SEQ_CST);
}

enum { MANY = 40 };

/* Many under way at once, on two groups, started in another order on each rank. */
static int many_at_once(shoal_group_t group, void *user)
{
    (void)user;
    int rank = shoal_group_rank(group), size = shoal_group_size(group), called = 0;
    shoal_group_t twin = NULL;
    shoal_request_t requests[2 * MANY] = {NULL};
    float *in = floats(2000), *out[2 * MANY];
    CHECK(shoal_group_split(group, 0, -rank, &twin));
    REQUIRE(shoal_group_rank(twin) == size - 1 - rank);
    fill(in, rank, 2000);
    for (int i = 0; i < 2 * MANY; i++) {
        int which =
            rank % 2 ? i : (i + MANY) % (2 * MANY); /* odd ranks begin with the other group */
        out[which] = floats(2000);
        CHECK(shoal_allreduce(in, out[which], (uint64_t)(25 * (which % MANY + 1)), SHOAL_F32,
                              SHOAL_SUM, which < MANY ? group : twin, &requests[which]));
        CHECK(shoal_request_on_done(requests[which], count_up, &called));
    }
    for (int i = 2 * MANY - 1; i >= 0; i--) {
        enum shoal_status status = SHOAL_IN_PROGRESS;
        while (i % 2 && (status = shoal_request_test(&requests[i])) == SHOAL_IN_PROGRESS)
            ;
        if (i % 2 == 0)
            status = shoal_request_wait(&requests[i], -1);
        CHECK(status);
        for (int j = 0; j < 25 * (i % MANY + 1); j++)
            REQUIRE(out[i][j] == sum_at(size, (uint64_t)j));
        give_back(out[i]);
    }
    REQUIRE(called == 2 * MANY);
    give_back(in);
    CHECK(shoal_group_free(twin));
    return 0;
}

/* ---- messages
 * ------------------------------------------------------------------------------------------------------------------
 */

static int messages(shoal_group_t group, void *user)
{
    (void)user;
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    uint64_t n = 300000;
    float *out = floats(n), *in = floats(n);
    struct shoal_recv_info info = {-9, -9, 0};
    shoal_request_t send = NULL, recv = NULL;
    fill(out, rank, n);
    for (uint64_t count = 1; count <= n; count = count * 17 + 3) {
        CHECK(shoal_send(out, count, SHOAL_F32, next, 5, group, &send)); /* all send first */
        CHECK(shoal_recv(in, n, SHOAL_F32, before, 5, &info, group, NULL));
        CHECK(shoal_request_wait(&send, -1));
        REQUIRE(info.source == before && info.tag == 5 && info.bytes == count * sizeof(float));
        for (uint64_t i = 0; i < count; i++)
            REQUIRE(in[i] == value(before, i));
    }
    CHECK(shoal_barrier(group, NULL));
    int token = 100 + rank, got = 0, seen = 0;
    if (rank == 0) {
        for (int i = 1; i < size; i++) {
            CHECK(shoal_recv(&got, 1, SHOAL_I32, SHOAL_ANY_SOURCE, SHOAL_ANY_TAG, &info, group,
                             NULL));
            REQUIRE(got == 100 + info.source && info.tag == info.source);
            seen |= 1 << info.source;
        }
        REQUIRE(seen == (1 << size) - 2);
    } else {
        CHECK(shoal_send(&token, 1, SHOAL_I32, 0, rank, group, NULL));
    }
    CHECK(shoal_recv(&got, 1, SHOAL_I32, rank, 9, NULL, group, &recv)); /* to oneself */
    CHECK(shoal_send(&token, 1, SHOAL_I32, rank, 9, group, NULL));
    CHECK(shoal_request_wait(&recv, -1));
    REQUIRE(got == token);
    give_back(in);
    give_back(out);
    return 0;
}

/* ---- sub-groups and memory
 * -------------------------------------------------------------------------------------------------------
 */

static int sub_groups(shoal_group_t group, void *user)
{
    (void)user;
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    shoal_group_t half = NULL, pair = NULL, none = group;
    CHECK(shoal_barrier(group, NULL));
    REQUIRE(all_operations(group, NULL) == 0); /* every link that is needed stands */
    int before = open_descriptors();
    CHECK(shoal_group_split(group, rank % 2, rank, &half));
    REQUIRE(try_allreduce(half, 5000, false) == 0);
    CHECK(shoal_group_split(group, rank == 0 ? -1 : 3, 0, &none));
    REQUIRE((none == NULL) == (rank == 0));
    if (none)
        REQUIRE(shoal_group_size(none) == size - 1 && try_allreduce(none, 100, true) == 0);
    int ranks[2] = {rank / 2 * 2 + 1, rank / 2 * 2};
    for (int again = 0; again < 3 && ranks[0] < size; again++) {
        CHECK(shoal_group_subset(group, ranks, 2, "pair", &pair));
        REQUIRE(shoal_group_rank(pair) == (rank % 2 ? 0 : 1));
        REQUIRE(try_allreduce(pair, 9000, again == 1) == 0);
        CHECK(shoal_group_free(pair));
    }
    REQUIRE(open_descriptors() <=
            before); /* fewer: a doubly opened link has lost its second socket */
    REQUIRE(shoal_group_free(group) == SHOAL_ERR_STATE); /* sub-groups first */
    CHECK(shoal_group_free(half));
    CHECK(shoal_group_free(none));
    return 0;
}

static int shared_memory(shoal_group_t group, void *user)
{
    (void)user;
    void *memory[100];
    for (int i = 0; i < 100; i++) {
        size_t bytes = (size_t)(i * i * 100);
        CHECK(shoal_alloc(group, bytes, &memory[i]));
        REQUIRE((uintptr_t)memory[i] % 64 == 0);
        memset(memory[i], i, bytes);
    }
    for (int i = 0; i < 100; i++) /* none lies in another */
        for (size_t j = 0; j < (size_t)(i * i * 100); j += 997)
            REQUIRE(((unsigned char *)memory[i])[j] == i);
    float *shared = memory[99];
    fill(shared, shoal_group_rank(group), 10000);
    CHECK(shoal_allreduce(shared, shared, 10000, SHOAL_F32, SHOAL_SUM, group, NULL));
    for (uint64_t i = 0; i < 10000; i++)
        REQUIRE(shared[i] == sum_at(shoal_group_size(group), i));
    for (int i = 0; i < 100; i += 2)
        CHECK(shoal_free(group, memory[i]));
    REQUIRE(shoal_free(group, memory[0]) == SHOAL_ERR_ARGUMENT); /* twice */
    for (int i = 1; i < 100; i += 2)
        CHECK(shoal_free(group, memory[i]));
    void *huge = NULL;
    REQUIRE(shoal_alloc(group, (size_t)1 << 60, &huge) == SHOAL_ERR_MEMORY && huge == NULL);
    return 0;
}

/* ---- the same bits
 * ---------------------------------------------------------------------------------------------------------------
 */

/* Sums whose result depends on the order: all ranks and all repetitions must agree bit by bit. */
static int same_bits(shoal_group_t group, void *user)
{
    (void)user;
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    uint64_t n = 100003;
    float *in = floats(n), *first = floats(n), *again = floats(n),
          *all = floats(n * (uint64_t)size);
    struct operation_options options = {.dtype = SHOAL_F32, .values = VALUES_ANY, .seed = 5};
    values_fill(&options, rank, in, n);
    CHECK(shoal_allreduce(in, first, n, SHOAL_F32, SHOAL_SUM, group, NULL));
    for (int round = 0; round < 5; round++) {
        shoal_request_t request = NULL;
        CHECK(shoal_allreduce(in, again, n, SHOAL_F32, SHOAL_SUM, group, &request));
        CHECK(shoal_request_wait(&request, -1));
        REQUIRE(memcmp(first, again, n * sizeof(float)) == 0);
    }
    CHECK(shoal_allgather(first, all, n, SHOAL_F32, group, NULL));
    for (int i = 0; i < size; i++)
        REQUIRE(memcmp(all + n * (uint64_t)i, first, n * sizeof(float)) == 0);
    give_back(in);
    give_back(first);
    give_back(again);
    give_back(all);
    return 0;
}

/* ---- running ahead
 * ------------------------------------------------------------------------------------------------------------------------
 */

#define RUNS_AHEAD 16

/* The peers begin with the broadcasts when the root is through with all of them. */
static int root_runs_ahead(shoal_group_t group, void *user)
{
    (void)user;
    shoal_group_t signals;
    int rank = shoal_group_rank(group), size = shoal_group_size(group), done = 1;
    int32_t values[RUNS_AHEAD][2];
    CHECK(shoal_group_split(group, 0, 0, &signals));
    CHECK(shoal_barrier(group, NULL));
    CHECK(shoal_barrier(signals, NULL));
    for (int round = 0; round < 5; round++) {
        if (rank > 0)
            CHECK(shoal_recv(&done, 1, SHOAL_I32, 0, round, NULL, signals, NULL));
        for (int i = 0; i < RUNS_AHEAD; i++) {
            values[i][0] = rank == 0 ? round * RUNS_AHEAD + i : -1;
            values[i][1] = -rank;
            CHECK(shoal_broadcast(values[i], 2, SHOAL_I32, 0, group, NULL));
        }
        for (int peer = 1; rank == 0 && peer < size; peer++)
            CHECK(shoal_send(&done, 1, SHOAL_I32, peer, round, signals, NULL));
        for (int i = 0; i < RUNS_AHEAD; i++)
            REQUIRE(values[i][0] == round * RUNS_AHEAD + i && values[i][1] == 0);
        CHECK(shoal_barrier(group, NULL));
    }
    return shoal_group_free(signals) != SHOAL_OK;
}

/* ---- layouts
 * ------------------------------------------------------------------------------------------------------------------------
 */

static void on_every_layout(int (*main)(shoal_group_t group, void *user))
{
    static const int layouts[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 1},
                                     {2, 2}, {3, 3}, {4, 2}, {5, 2}};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct processes run = {.size = layouts[i][0], .hosts = layouts[i][1], .main = main};
        assert_true(processes_run(&run));
    }
}

static void test_all_operations(void **state)
{
    (void)state;
    on_every_layout(all_operations);
}

static void test_without_local_path(void **state)
{
    (void)state;
    struct processes run = {.size = 3, .main = all_operations, .environment = {"SHOAL_LOCAL=0"}};
    assert_true(processes_run(&run));
}

static void test_v_forms(void **state)
{
    (void)state;
    on_every_layout(v_forms);
}

static void test_dtypes(void **state)
{
    (void)state;
    on_every_layout(every_dtype);
}

static void test_many_at_once(void **state)
{
    (void)state;
    on_every_layout(many_at_once);
}

static void test_messages(void **state)
{
    (void)state;
    static const int layouts[][2] = {{2, 1}, {4, 1}, {3, 3}, {4, 2}};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct processes run = {.size = layouts[i][0], .hosts = layouts[i][1], .main = messages};
        assert_true(processes_run(&run));
    }
}

static void test_sub_groups(void **state)
{
    (void)state;
    static const int layouts[][2] = {{4, 1}, {4, 2}, {4, 4}};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct processes run = {.size = layouts[i][0], .hosts = layouts[i][1], .main = sub_groups};
        assert_true(processes_run(&run));
    }
}

static void test_shared_memory(void **state)
{
    (void)state;
    on_every_layout(shared_memory);
}

/* All operations on buffers that peers can read and write where they lie, or some of them can. */
static void test_operations_on_shared_memory(void **state)
{
    (void)state;
    for (enum place where = SHARED; where <= MIXED; where++)
        for (int size = 2; size <= 5; size++) {
            struct processes run = {.size = size, .main = all_operations, .user = &where};
            assert_true(processes_run(&run));
            run = (struct processes){.size = size, .main = v_forms, .user = &where};
            assert_true(processes_run(&run));
        }
}

/* Thresholds as far apart as a file may have them. */
static void test_other_thresholds(void **state)
{
    (void)state;
    static const struct base_tuning extremes[] = {
        {2, UINT64_C(1) << 40, 4096, 0, 0},
        {2, 0, UINT64_C(8) << 20, UINT64_C(1) << 40, UINT64_C(1) << 40},
    };
    char folder[] = "/tmp/shoal-group-test-XXXXXX", path[BASE_TUNING_PATH_BYTES], variable[64];
    assert_non_null(mkdtemp(folder));
    snprintf(variable, sizeof(variable), "XDG_CACHE_HOME=%s", folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    assert_int_equal(base_tuning_path(path), SHOAL_OK);
    unsetenv("XDG_CACHE_HOME");
    for (size_t i = 0; i < 2; i++) {
        struct base_tuning_table table = {.count = 2, .rows = {extremes[i], extremes[i]}};
        table.rows[1].ranks = 3;
        assert_int_equal(base_tuning_write(path, &table), SHOAL_OK);
        for (enum place where = PRIVATE; where <= MIXED; where++)
            for (int size = 2; size <= 3; size++) {
                struct processes run = {.size = size,
                                        .main = all_operations,
                                        .user = &where,
                                        .environment = {"SHOAL_TUNE=1", variable}};
                assert_true(processes_run(&run));
                run.main = v_forms;
                assert_true(processes_run(&run));
            }
    }
    unlink(path);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path) | rmdir(folder), 0);
}

static void test_same_bits(void **state)
{
    (void)state;
    on_every_layout(same_bits);
}

static void test_root_runs_ahead(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) {
        struct processes run = {.size = size, .timeout_ms = 5000, .main = root_runs_ahead};
        assert_true(processes_run(&run));
    }
}

static void test_sixteen_ranks(void **state)
{
    (void)state;
    struct processes run = {.size = 16, .main = same_bits, .deadline_s = 120};
    assert_true(processes_run(&run));
    struct processes spread = {.size = 16, .hosts = 4, .main = same_bits, .deadline_s = 120};
    assert_true(processes_run(&spread));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_operations),   cmocka_unit_test(test_without_local_path),
        cmocka_unit_test(test_v_forms),          cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_many_at_once),     cmocka_unit_test(test_messages),
        cmocka_unit_test(test_sub_groups),       cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_same_bits),        cmocka_unit_test(test_root_runs_ahead),
        cmocka_unit_test(test_sixteen_ranks),    cmocka_unit_test(test_operations_on_shared_memory),
        cmocka_unit_test(test_other_thresholds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
