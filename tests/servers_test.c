/* SPDX-License-Identifier: Apache-2.0 */
/*
 * servers_test.c: ranks and servers as real processes, one rank or two on a host, servers on hosts
 * of their own: sums are right, have the bits that they have without servers, and take the way that
 * they should.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "support/not_finite.h"
#include "support/processes.h"

#define COUNT_MAX 150001

struct job {
    int ranks, servers;
    int per_host; /* ranks */
    const char *reproducible;
    int (*main)(const struct job *job, shoal_group_t group);
    uint64_t *digests; /* [ranks] shared with the parent: of all results */
};

static int be_rank(const struct job *job)
{
    shoal_group_t group = NULL;
    CHECK(shoal_group_create(NULL, &group));
    REQUIRE(shoal_group_size(group) == job->ranks);
    int bad = job->main(job, group);
    CHECK(shoal_group_free(group));
    return bad;
}

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    setenv(name, text, 1);
}

/* Processes behind the ranks are servers. */
static int be(int rank, int size, const char *store, void *user)
{
    const struct job *job = user;
    (void)size;
    set_number("SHOAL_SIZE", job->ranks);
    set_number("SHOAL_SERVERS", job->servers);
    setenv("SHOAL_STORE", store, 1);
    setenv("SHOAL_REPRODUCIBLE", job->reproducible, 1);
    set_number("SHOAL_HOST_ID", rank < job->ranks ? rank / job->per_host : rank);
    if (rank < job->ranks) {
        set_number("SHOAL_RANK", rank);
        return be_rank(job);
    }
    set_number("SHOAL_SERVER", rank - job->ranks);
    return expect_status(NULL, shoal_serve(), SHOAL_OK, "serve");
}

static void run_job(struct job *job)
{
    struct processes run = {.size = job->ranks + job->servers,
                            .hosts = job->ranks + job->servers,
                            .bare = be,
                            .user = job};
    assert_true(processes_run(&run));
    processes_release(&run);
}

static uint64_t digest(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Numbers whose sum depends on its order; of integers any will do, of 16-bit floats none is NaN. */
static void fill(enum shoal_dtype dtype, void *data, uint64_t count, int rank, unsigned seed)
{
    unsigned state = seed * 7919u + (unsigned)rank * 104729u + 1;
    for (uint64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        float number = (float)(int)(state >> 8) / 65536.0f - 100.0f * (float)(state >> 30);
        if (dtype == SHOAL_F32)
            ((float *)data)[i] = number;
        else if (dtype == SHOAL_F64)
            ((double *)data)[i] = (double)number / 3;
        else if (dtype == SHOAL_BF16)
            memcpy((uint16_t *)data + i, (char *)&number + 2, 2);
        else
            ((int32_t *)data)[i] = (int32_t)state;
    }
}

/* ---- the same bits
 * ------------------------------------------------------------------------------------------------
 */

static int sum_one(shoal_group_t group, enum shoal_dtype dtype, enum shoal_op op, uint64_t count,
                   uint64_t *hash)
{
    static double in[COUNT_MAX], out[COUNT_MAX];
    fill(dtype, in, count, shoal_group_rank(group), (unsigned)count);
    CHECK(shoal_allreduce(in, out, count, dtype, op, group, NULL));
    *hash = digest(*hash, out, count * shoal_dtype_bytes(dtype));
    CHECK(shoal_allreduce(in, in, count, dtype, op, group, NULL));
    REQUIRE(memcmp(in, out, count * shoal_dtype_bytes(dtype)) == 0);
    return 0;
}

static int sum_several_at_once(shoal_group_t group, uint64_t *hash)
{
    enum { REQUESTS = 6, COUNT = 40001 };
    static float data[REQUESTS][COUNT];
    shoal_request_t requests[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        fill(SHOAL_F32, data[i], COUNT, shoal_group_rank(group), (unsigned)i);
        CHECK(shoal_allreduce(data[i], data[i], COUNT, SHOAL_F32, SHOAL_AVG, group, &requests[i]));
    }
    for (int i = 0; i < REQUESTS; i++)
        CHECK(shoal_request_wait(&requests[i], -1));
    *hash = digest(*hash, data, sizeof(data));
    return 0;
}

/* Tensors over several buffers, of which the last is smaller than what servers are asked for. */
static int sum_fused(const struct job *job, shoal_group_t group, uint64_t buffer_bytes,
                     uint64_t *hash)
{
    enum { TENSORS = 3 };
    static const uint64_t counts[TENSORS] = {30011, 100003, 1009};
    static float gradient[100003];
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    struct shoal_fuse_counters counted = SHOAL_FUSE_COUNTERS_INIT;
    shoal_fuse_t fuse = NULL;
    options.tensor_count = TENSORS;
    options.counts = counts;
    options.dtype = SHOAL_F32;
    options.op = SHOAL_AVG;
    options.buffer_bytes = buffer_bytes;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    CHECK(shoal_fuse_counters(fuse, &counted));
    REQUIRE(counted.in_flight == (job->servers > 0 ? 4 : 2));
    for (unsigned step = 0; step < 3; step++) {
        for (int tensor = TENSORS - 1; tensor >= 0; tensor--) {
            fill(SHOAL_F32, gradient, counts[tensor], shoal_group_rank(group), step);
            CHECK(shoal_fuse_add(fuse, tensor, gradient, NULL, counts[tensor]));
        }
        CHECK(shoal_fuse_finish(fuse));
        for (int tensor = 0; tensor < TENSORS; tensor++) {
            void *home = NULL;
            CHECK(shoal_fuse_home(fuse, tensor, &home));
            *hash = digest(*hash, home, counts[tensor] * sizeof(float));
        }
    }
    CHECK(shoal_fuse_free(fuse));
    return 0;
}

/* However large the buffers are. */
static int sum_fused_alike(const struct job *job, shoal_group_t group, uint64_t *hash)
{
    uint64_t large = *hash, small = *hash;
    int bad = sum_fused(job, group, 256 << 10, &large) || sum_fused(job, group, 20 << 10, &small) ||
              sum_fused(job, group, 128 << 10, hash);
    if (bad)
        return bad;
    REQUIRE(job->reproducible[0] == '0' || (large == *hash && small == *hash));
    return 0;
}

static int sum_all(const struct job *job, shoal_group_t group)
{
    static const struct {
        enum shoal_dtype dtype;
        enum shoal_op op;
        uint64_t count;
    } cases[] = {
        {SHOAL_F32, SHOAL_SUM, COUNT_MAX}, {SHOAL_BF16, SHOAL_SUM, COUNT_MAX},
        {SHOAL_BF16, SHOAL_AVG, 65537},    {SHOAL_F64, SHOAL_AVG, 20011},
        {SHOAL_I32, SHOAL_SUM, 33333},     {SHOAL_F32, SHOAL_MAX, 32768},
        {SHOAL_F32, SHOAL_SUM, 1},         {SHOAL_F32, SHOAL_SUM, 0},
    };
    uint64_t hash = 1;
    int bad = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && !bad; i++)
        bad = sum_one(group, cases[i].dtype, cases[i].op, cases[i].count, &hash);
    bad = bad || sum_several_at_once(group, &hash) || sum_fused_alike(job, group, &hash);
    job->digests[shoal_group_rank(group)] = hash;
    return bad;
}

static void test_bits(void **state)
{
    (void)state;
    static const struct {
        int ranks, servers, per_host;
        const char *reproducible;
    } cases[] = {{2, 1, 1, "1"}, {3, 4, 1, "1"}, {4, 2, 1, "1"}, {4, 2, 2, "0"}, {5, 1, 2, "1"}};
    uint64_t *digests = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct job job = {.ranks = cases[i].ranks,
                          .per_host = cases[i].per_host,
                          .reproducible = cases[i].reproducible,
                          .main = sum_all,
                          .digests = digests};
        run_job(&job);
        uint64_t alone = digests[0];
        job.servers = cases[i].servers;
        run_job(&job);
        for (int rank = 0; rank < job.ranks; rank++)
            assert_true(digests[rank] == alone);
    }
    munmap(digests, 4096);
}

/* ---- the way
 * ------------------------------------------------------------------------------------------------
 */

/* As many servers as hosts: a host sends its input, or the sum of its ranks' inputs, once, and no
 * more; its ranks do so together. */
static int count_bytes(const struct job *job, shoal_group_t group)
{
    static float data[1 << 18];
    uint64_t due = sizeof(data) / (uint64_t)job->per_host;
    struct shoal_counters before = SHOAL_COUNTERS_INIT, after = SHOAL_COUNTERS_INIT;
    CHECK(shoal_group_counters(group, &before));
    CHECK(shoal_allreduce(data, data, 1 << 18, SHOAL_F32, SHOAL_SUM, group, NULL));
    CHECK(shoal_group_counters(group, &after));
    REQUIRE(after.network_sent_bytes - before.network_sent_bytes == due);
    REQUIRE(after.network_received_bytes - before.network_received_bytes == due);
    return 0;
}

static void test_way(void **state)
{
    (void)state;
    for (int per_host = 1; per_host <= 2; per_host++) {
        struct job job = {.ranks = 3 * per_host,
                          .servers = 3,
                          .per_host = per_host,
                          .reproducible = "0",
                          .main = count_bytes};
        run_job(&job);
    }
}

/* ---- NaN and infinities
 * ------------------------------------------------------------------------------------------------
 */

static int carry(const struct job *job, shoal_group_t group)
{
    (void)job;
    REQUIRE(not_finite_sums(group, 1009) == 0 && not_finite_sums(group, 70001) == 0);
    for (int way = SHOAL_COMPRESSION_NONE; way <= SHOAL_COMPRESSION_INT8; way++)
        REQUIRE(not_finite_fused(group, (enum shoal_compression)way) == 0);
    return 0;
}

static void test_not_finite(void **state)
{
    (void)state;
    for (int per_host = 1; per_host <= 2; per_host++) {
        struct job job = {.ranks = 3 * per_host,
                          .servers = 2,
                          .per_host = per_host,
                          .reproducible = "0",
                          .main = carry};
        run_job(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_way),
                                       cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
