/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_test.c: the verifier proves every algorithm for 1 to 64 ranks. Small groups get the full
 * grid of counts, segments, roots, hosts and places; large ones a sparse one, since what goes wrong
 * with many ranks goes wrong with few.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "coll/coll.h"
#include "support/coll_case.h"

#define ALGORITHMS_MAX 64
#define LARGE_SIZE     20

/* What all cases of an algorithm had in common. */
struct finding {
    uint32_t proofs;
    bool same_tree, one_reduce; /* in all cases */
};

static struct finding findings[ALGORITHMS_MAX];

static void prove_one(int number, const struct coll_case *one)
{
    bool fits;
    struct coll_report report = {0};
    enum shoal_status status = case_verify(one, &fits, &report);
    if (status != SHOAL_OK)
        fail_msg("%s: %s", case_text(one), base_error_text());
    if (!fits)
        return;
    if (one->algorithm->same_tree && !report.same_tree)
        fail_msg("%s: claims one tree, but has several", case_text(one));
    if (one->algorithm->one_reduce && !report.one_reduce)
        fail_msg("%s: claims one reduce, but has several", case_text(one));
    struct finding *finding = &findings[number];
    finding->same_tree = (finding->proofs == 0 || finding->same_tree) && report.same_tree;
    finding->one_reduce = (finding->proofs == 0 || finding->one_reduce) && report.one_reduce;
    finding->proofs++;
}

static bool reduces(enum coll_kind kind)
{
    return kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER;
}

/* Sums of 16-bit floats have schedules of their own. */
static void prove(int number, struct coll_case one)
{
    prove_one(number, &one);
    one.is_half = true;
    if (reduces(one.algorithm->kind))
        prove_one(number, &one);
}

static bool has_root(enum coll_kind kind)
{
    return kind == COLL_REDUCE || kind == COLL_BROADCAST || kind == COLL_GATHER ||
           kind == COLL_SCATTER;
}

static bool sees_hosts(const struct coll_algorithm *algorithm)
{
    return strcmp(algorithm->name, "two_level") == 0;
}

/* All roots to be tried, hosts and places of one algorithm, size, count and segment. */
static void prove_places(int number, struct coll_case one, bool sparse)
{
    enum coll_kind kind = one.algorithm->kind;
    int roots[] = {0, one.size - 1, one.size / 2};
    int root_count = !has_root(kind) ? 1 : one.size < 3 ? one.size : sparse ? 2 : 3;
    int places = case_has_in_place(kind) ? sparse ? 2 : PLACE_COUNT : 1;
    for (int root = 0; root < root_count; root++)
        for (int place = 0; place < places; place++)
            for (int hosts = 0; hosts < HOSTS_LAYOUTS; hosts++) {
                if (!sees_hosts(one.algorithm) && hosts != HOSTS_EACH)
                    continue;
                if (one.size > LARGE_SIZE && (root + place + hosts + one.size) % 2)
                    continue; /* its neighbour in size has it */
                one.root = roots[root];
                one.in_place = (enum case_in_place)place;
                one.hosts = (enum case_hosts)hosts;
                prove(number, one);
            }
}

static void prove_size(int size, bool sparse)
{
    uint64_t p = (uint64_t)size;
    uint64_t counts[] = {1, 2 * p + 1, 0, p - 1, p, 13};
    uint64_t segments[] = {3, 1, 1000};
    for (int i = 0; coll_algorithms()[i]; i++) {
        struct coll_case one = {.algorithm = coll_algorithms()[i], .size = size};
        for (int count = 0; count < (sparse ? 2 : 6); count++)
            for (int segment = 0; segment < (sparse ? 1 : 3); segment++) {
                bool has_blocks = case_has_v(one.algorithm->kind);
                one.count = has_blocks ? counts[count] / p + (counts[count] > 0) : counts[count];
                one.segment_count = segments[segment];
                prove_places(i, one, sparse);
            }
    }
}

static void test_small_groups(void **state)
{
    (void)state;
    for (int size = 1; size <= 9; size++)
        prove_size(size, false);
}

static void test_groups_up_to_64(void **state)
{
    (void)state;
    for (int size = 10; size <= 64; size++)
        prove_size(size, true);
}

static void test_v_forms(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33, 64};
    for (int i = 0; coll_algorithms()[i]; i++) {
        struct coll_case one = {.algorithm = coll_algorithms()[i], .is_v = true};
        if (!case_has_v(one.algorithm->kind))
            continue;
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            bool sparse = sizes[k] > 9;
            one.size = sizes[k];
            for (uint64_t count = 1; count < 6; count += sparse ? 4 : 1) {
                one.count = count;
                one.segment_count = sparse ? 3 : 2;
                prove_places(i, one, sparse);
            }
        }
    }
}

/* Buffers over several windows of segments. */
static void test_long_buffers(void **state)
{
    (void)state;
    for (int i = 0; coll_algorithms()[i]; i++)
        for (int size = 2; size <= 6; size++) {
            struct coll_case one = {
                .algorithm = coll_algorithms()[i], .size = size, .count = 400, .segment_count = 5};
            prove_places(i, one, true);
        }
}

/* By shares the sums are right too, and in the order that they have without. */
static void expect_same_order(int number, struct coll_case one)
{
    bool fits;
    struct coll_report equal = {0}, shared = {0};
    one.has_shares = false;
    assert_int_equal(case_verify(&one, &fits, &equal), SHOAL_OK);
    one.has_shares = true;
    prove_one(number, &one);
    assert_int_equal(case_verify(&one, &fits, &shared), SHOAL_OK);
    if (shared.order != equal.order)
        fail_msg("%s: the order of a sum depends on the shares", case_text(&one));
}

static void test_shares(void **state)
{
    (void)state;
    static const int sizes[] = {3, 4, 5, 8, 13, 32};
    for (int i = 0; coll_algorithms()[i]; i++) {
        if (!coll_algorithms()[i]->follows_shares)
            continue;
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
            for (int variant = 0; variant < 12; variant++) {
                struct coll_case one = {.algorithm = coll_algorithms()[i],
                                        .size = sizes[k],
                                        .count = variant % 2 ? 400 : 2 * (uint64_t)sizes[k] + 1,
                                        .segment_count = variant % 3 ? 5 : 1000,
                                        .hosts = (enum case_hosts)(1 + variant % 4),
                                        .in_place = (enum case_in_place)(variant % PLACE_COUNT),
                                        .is_half = variant > 5};
                expect_same_order(i, one);
            }
    }
}

/* With servers the sums are right too, by shares as well, and in the order that they have without.
 */
static void expect_same_order_served(int number, struct coll_case one)
{
    bool fits;
    struct coll_report alone = {0}, served = {0};
    prove_one(number, &one);
    assert_int_equal(case_verify(&one, &fits, &served), SHOAL_OK);
    one.size -= one.server_count;
    one.server_count = 0;
    one.has_shares = false;
    assert_int_equal(case_verify(&one, &fits, &alone), SHOAL_OK);
    if (served.order != alone.order)
        fail_msg("%s: the order of a sum depends on servers", case_text(&one));
}

static void test_servers(void **state)
{
    (void)state;
    for (int i = 0; coll_algorithms()[i]; i++)
        for (int variant = 0; variant < 8 * 5 * 6 && coll_algorithms()[i]->takes_servers;
             variant++) {
            int ranks = 2 + variant % 8, servers = 1 + variant / 8 % 5;
            uint64_t counts[] = {0, 1, 7, 2 * (uint64_t)ranks + 1, 400, 401};
            struct coll_case one = {.algorithm = coll_algorithms()[i],
                                    .size = ranks + servers,
                                    .server_count = servers,
                                    .count = counts[variant / 40],
                                    .segment_count = variant % 3 ? 5 : 1000,
                                    .hosts = (enum case_hosts)(variant % HOSTS_LAYOUTS),
                                    .in_place = (enum case_in_place)(variant % PLACE_COUNT),
                                    .has_shares = variant / 3 % 2,
                                    .is_half = variant / 7 % 2};
            expect_same_order_served(i, one);
        }
}

/* All ports carry what the optimum says: of n hosts with one rank and k with one server each. */
static void test_traffic_with_servers(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n++)
        for (int k = 1; k <= n + 1; k++) {
            struct coll_report report = {0};
            bool fits;
            struct coll_case one = {.algorithm = coll_find(COLL_ALLREDUCE, "direct"),
                                    .size = n + k,
                                    .server_count = k,
                                    .count = 20000,
                                    .segment_count = 2000,
                                    .hosts = HOSTS_EACH};
            int servers = k < n ? k : n;
            double whole = n * n + servers * n - 2 * servers;
            double bound = 4 * 20000 * 2.0 * n * (n - 1) / whole;
            assert_int_equal(case_verify(&one, &fits, &report), SHOAL_OK);
            if ((double)report.bytes_sent_max > 1.005 * bound)
                fail_msg("%s: %llu bytes sent, %.0f is the optimum", case_text(&one),
                         (unsigned long long)report.bytes_sent_max, bound);
        }
}

/* The scratch of an allreduce in two levels doesn't grow with the buffer, however wide sums are. */
static void test_scratch_is_for_pieces(void **state)
{
    (void)state;
    for (int is_half = 0; is_half < 2; is_half++) {
        struct coll_report short_one, long_one;
        struct coll_case one = {.algorithm = coll_find(COLL_ALLREDUCE, "two_level"),
                                .size = 6,
                                .count = 400,
                                .segment_count = 5,
                                .hosts = HOSTS_PAIRS,
                                .is_half = is_half};
        bool fits;
        assert_int_equal(case_verify(&one, &fits, &short_one), SHOAL_OK);
        one.count = 4000;
        assert_int_equal(case_verify(&one, &fits, &long_one), SHOAL_OK);
        assert_true(short_one.scratch_bytes_max > 0);
        assert_int_equal(long_one.scratch_bytes_max, short_one.scratch_bytes_max);
    }
}

/* Runs after the others: a property that all cases had must be claimed. */
static void test_no_claim_is_missing(void **state)
{
    (void)state;
    for (int i = 0; coll_algorithms()[i]; i++) {
        const struct coll_algorithm *algorithm = coll_algorithms()[i];
        if (findings[i].proofs == 0)
            fail_msg("%s %s was never proved", comm_kind_name(algorithm->kind), algorithm->name);
        if (findings[i].same_tree != algorithm->same_tree)
            fail_msg("%s %s always has one tree", comm_kind_name(algorithm->kind), algorithm->name);
        if (findings[i].one_reduce != algorithm->one_reduce)
            fail_msg("%s %s always has one reduce", comm_kind_name(algorithm->kind),
                     algorithm->name);
    }
}

/* `bytes`: sent by the rank that sends most. */
static void expect_traffic(const struct coll_case *one, uint32_t rounds, uint64_t bytes)
{
    bool fits;
    struct coll_report report = {0};
    assert_int_equal(case_verify(one, &fits, &report), SHOAL_OK);
    if (report.rounds != rounds)
        fail_msg("%s: %u rounds", case_text(one), report.rounds);
    /* The direct forms with a root cut 160 in 15 parts: the longest has 11. */
    uint64_t slack = has_root(one->algorithm->kind) ? bytes / 10 : 0;
    if (report.bytes_sent_max > bytes + slack || report.bytes_sent_max < bytes)
        fail_msg("%s: %llu bytes sent", case_text(one), (unsigned long long)report.bytes_sent_max);
}

/* Rounds and bytes are what the papers say. */
static void test_rounds_and_bytes(void **state)
{
    (void)state;
    static const struct {
        enum coll_kind kind;
        const char *name;
        uint32_t rounds;
        uint64_t elements; /* sent by one rank, of 16 ranks with count 160 or blocks of 10 */
        uint64_t sums;     /* of them partial sums, which of 16-bit floats are f32 */
    } expected[] = {
        {COLL_ALLREDUCE, "direct", 2, 300, 0},
        {COLL_ALLREDUCE, "exchange", 1, 2400, 0},
        {COLL_ALLREDUCE, "recursive_doubling", 4, 640, 480},
        {COLL_ALLREDUCE, "halving_doubling", 8, 300, 70},
        {COLL_ALLREDUCE, "ring", 30, 300, 140},
        {COLL_REDUCE_SCATTER, "direct", 1, 150, 0},
        {COLL_REDUCE_SCATTER, "halving", 4, 150, 70},
        {COLL_REDUCE_SCATTER, "ring", 15, 150, 140},
        {COLL_ALLGATHER, "direct", 1, 150, 0},
        {COLL_ALLGATHER, "bruck", 4, 150, 0},
        {COLL_ALLGATHER, "ring", 15, 150, 0},
        {COLL_BROADCAST, "direct", 2, 160, 0},
        {COLL_BROADCAST, "binomial", 4, 640, 0},
        {COLL_REDUCE, "direct", 2, 160, 0},
        {COLL_REDUCE, "binomial", 4, 160, 160},
        {COLL_ALLTOALL, "direct", 1, 150, 0},
        {COLL_ALLTOALL, "bruck", 4, 320, 0},
        {COLL_ALLTOALL, "pairwise", 15, 150, 0},
        {COLL_BARRIER, "direct", 1, 0, 0},
        {COLL_BARRIER, "dissemination", 4, 0, 0},
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        struct coll_case one = {.algorithm = coll_find(expected[i].kind, expected[i].name),
                                .size = 16,
                                .segment_count = 1000,
                                .hosts = HOSTS_EACH};
        assert_non_null(one.algorithm);
        one.count = case_has_v(expected[i].kind) ? 10 : 160;
        expect_traffic(&one, expected[i].rounds, 4 * expected[i].elements);
        one.is_half = true;
        expect_traffic(&one, expected[i].rounds, 2 * (expected[i].elements + expected[i].sums));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_groups),
        cmocka_unit_test(test_groups_up_to_64),
        cmocka_unit_test(test_v_forms),
        cmocka_unit_test(test_long_buffers),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_servers),
        cmocka_unit_test(test_traffic_with_servers),
        cmocka_unit_test(test_scratch_is_for_pieces),
        cmocka_unit_test(test_rounds_and_bytes),
        cmocka_unit_test(test_no_claim_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
