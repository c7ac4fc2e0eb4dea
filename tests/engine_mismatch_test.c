/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_mismatch_test.c: one rank calls something else than the others: another kind, dtype, op,
 * root or count, another algorithm or segment, more or fewer operations. Whoever is not done yet
 * ends with an error that names both sides; nobody hangs, and nobody's buffer is touched
 * afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "support/engines.h"
#include "support/message.h"
#include "support/operation.h"

#define TIMEOUT_MS   1000
#define RANKS        4
#define COUNT_OF(at) (sizeof(at) / sizeof((at)[0]))

struct rig {
    struct engines *engines;
    struct engines_group *group;
};

static void must(enum shoal_status status)
{
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
}

static void rig_open(struct rig *rig, uint64_t eager_bytes)
{
    struct engines_options options = {.size = RANKS, .eager_bytes = eager_bytes};
    must(engines_open(&options, &rig->engines));
    must(engines_group_open(rig->engines, NULL, RANKS, NULL, 3, TIMEOUT_MS, &rig->group));
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* Lets the deadlines of all operations pass. */
static void let_time_pass(struct engines *engines)
{
    for (int i = 0; i < TIMEOUT_MS + 50; i += 50) {
        engines->now_ns += 50 * BASE_NS_PER_MS;
        engines_settle(engines);
    }
}

static struct operation_options options_of(enum coll_kind kind, const char *name)
{
    return (struct operation_options){.coll = {.algorithm = coll_find(kind, name ? name : "direct"),
                                               .size = RANKS,
                                               .count = 24,
                                               .root = 0,
                                               .segment_count = 100},
                                      .dtype = SHOAL_F32};
}

/* All have ended: with an error that names `odd`, or, unless `all`, well. Returns how many erred.
 */
static int expect_errors(struct rig *rig, struct operation *operation, int odd, bool all,
                         const char *what)
{
    char me[32];
    int errors = 0;
    snprintf(me, sizeof(me), "rank %d", odd);
    engines_settle(rig->engines);
    if (!operation_done(operation))
        let_time_pass(rig->engines);
    for (int i = 0; i < RANKS; i++) {
        const struct operation_rank *one = &operation->rank[i];
        if (!one->done)
            fail_msg("%s: rank %d hangs", what, i);
        if (one->status == SHOAL_OK && !all)
            continue;
        if (one->status != SHOAL_ERR_MISMATCH)
            fail_msg("%s: rank %d: status %d: %s", what, i, (int)one->status, one->text);
        if (!has(one->text, me))
            fail_msg("%s: rank %d does not name rank %d: %s", what, i, odd, one->text);
        errors++;
    }
    return errors;
}

static void start_all(struct rig *rig, struct operation *operation, int odd, bool odd_first)
{
    for (int i = 0; i < RANKS; i++) {
        int rank = odd_first ? (odd + i) % RANKS : (odd + 1 + i) % RANKS;
        must(operation_start(operation, rank, false));
        if (odd_first == (i % 2 == 0))
            engines_settle(rig->engines);
    }
}

/* All ranks call `common`, but `odd` calls `other`. Who was done before it could know learns at its
 * next operation, which has the same end on all ranks. */
static void disagree(uint64_t eager_bytes, const struct operation_options *common,
                     const struct operation_options *other, int odd, bool odd_first)
{
    struct rig rig;
    struct operation *operation, *next;
    struct operation_options barrier = options_of(COLL_BARRIER, "direct");
    bool fits;
    char what[1024], text[512];
    int used = snprintf(what, sizeof(what), "eager %d, rank %d calls %s", (int)eager_bytes, odd,
                        operation_text(other));
    snprintf(what + used, sizeof(what) - (size_t)used, ", the others %s", operation_text(common));
    rig_open(&rig, eager_bytes);
    must(operation_create(common, rig.group, &fits, &operation));
    assert_true(fits);
    operation_disagree(operation, odd, other);
    start_all(&rig, operation, odd, odd_first);
    expect_errors(&rig, operation, odd, false, what);
    must(operation_create(&barrier, rig.group, &fits, &next));
    start_all(&rig, next, odd, false);
    expect_errors(&rig, next, odd, true, what);
    engines_group_close(rig.group);
    operation->wrong[0] = '\0'; /* what was received before it broke is nobody's result */
    if (!operation_end(operation, text, sizeof(text)))
        fail_msg("%s", text);
    assert_true(operation_end(next, text, sizeof(text)));
    engines_close(rig.engines);
}

static void try_all_ways(const struct operation_options *common,
                         const struct operation_options *other)
{
    static const uint64_t eager_sizes[] = {0, 64, 16384};
    for (size_t i = 0; i < COUNT_OF(eager_sizes); i++)
        for (int odd = 0; odd < RANKS; odd++)
            for (int first = 0; first < 2; first++)
                disagree(eager_sizes[i], common, other, odd, first);
}

/* ---- the tests
 * --------------------------------------------------------------------------------------- */

static void test_kinds(void **state)
{
    (void)state;
    for (int common = 0; common <= COLL_BARRIER; common++)
        for (int other = 0; other <= COLL_BARRIER; other++) {
            if (common == other)
                continue;
            struct operation_options a = options_of((enum coll_kind)common, NULL);
            struct operation_options b = options_of((enum coll_kind)other, NULL);
            try_all_ways(&a, &b);
        }
}

static void test_dtypes_ops_roots_counts(void **state)
{
    (void)state;
    for (int i = 0; coll_algorithms()[i]; i++) {
        enum coll_kind kind = coll_algorithms()[i]->kind;
        if (kind == COLL_BARRIER)
            continue;
        struct operation_options common = {.coll = {.algorithm = coll_algorithms()[i],
                                                    .size = RANKS,
                                                    .count = 24,
                                                    .segment_count = 7,
                                                    .hosts = HOSTS_PAIRS},
                                           .dtype = SHOAL_F32};
        static const uint64_t counts[] = {0, 23, 25, 9000};
        struct operation_options other = common;
        other.dtype = SHOAL_I32;
        try_all_ways(&common, &other);
        other.dtype = SHOAL_F64;
        try_all_ways(&common, &other);
        for (size_t k = 0; k < COUNT_OF(counts); k++) {
            other = common;
            other.coll.count = counts[k];
            try_all_ways(&common, &other);
            try_all_ways(&other, &common);
        }
        other = common;
        other.op = SHOAL_MAX;
        if (kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER)
            try_all_ways(&common, &other);
        other = common;
        other.coll.root = 2;
        if (kind == COLL_REDUCE || kind == COLL_BROADCAST || kind == COLL_GATHER ||
            kind == COLL_SCATTER)
            try_all_ways(&common, &other);
    }
}

/* The same call with another algorithm or segment: the text says what to look at. */
static void test_algorithms_and_segments(void **state)
{
    (void)state;
    struct operation_options common = options_of(COLL_ALLREDUCE, "ring");
    struct operation_options other = options_of(COLL_ALLREDUCE, "ring");
    other.coll.segment_count = 3;
    try_all_ways(&common, &other);
}

/* What one rank sends to another is not what that one expects, which no signature shows. */
static void disagree_on_a_block(uint64_t eager_bytes, const struct coll_algorithm *algorithm,
                                uint64_t sent, uint64_t expected)
{
    struct rig rig;
    struct operation_options options = {.coll = {.algorithm = algorithm,
                                                 .size = RANKS,
                                                 .count = 30,
                                                 .segment_count = 1000,
                                                 .is_v = true},
                                        .dtype = SHOAL_I16};
    struct operation *operation;
    bool fits;
    char text[512];
    rig_open(&rig, eager_bytes);
    must(operation_create(&options, rig.group, &fits, &operation));
    operation->shapes->table[0][1][3] = sent; /* both less than what the buffers hold */
    operation->shapes->table[2][3][1] = expected;
    start_all(&rig, operation, 1, false);
    engines_settle(rig.engines);
    /* Of a block that is not sent no frame tells; by pairwise each then waits for the other. */
    bool silent = sent == 0 && expected * 2 <= eager_bytes;
    bool both_wait = silent && strcmp(algorithm->name, "pairwise") == 0;
    if (silent)
        let_time_pass(rig.engines);
    char sends[64], expects[64];
    snprintf(sends, sizeof(sends), "sends %d x i16 to rank 3 ", (int)sent);
    snprintf(expects, sizeof(expects), "expects %d:", (int)expected);
    int errors = 0;
    for (int i = 0; i < RANKS; i++) {
        const struct operation_rank *one = &operation->rank[i];
        assert_true(one->done);
        if (one->status == SHOAL_OK)
            continue;
        if (one->status != SHOAL_ERR_MISMATCH && !(both_wait && one->status == SHOAL_ERR_TIMEOUT))
            fail_msg("rank %d: status %d: %s", i, (int)one->status, one->text);
        if (has(one->text, "another algorithm"))
            fail_msg("rank %d: it is no other algorithm: %s", i, one->text);
        if (!has(one->text, "rank 1") && !has(one->text, "rank 3"))
            fail_msg("rank %d names neither: %s", i, one->text);
        bool counted = has(one->text, sends) && has(one->text, expects);
        if (!silent && !counted && !has(one->text, "which sends fewer"))
            fail_msg("rank %d: the counts are not in: %s", i, one->text);
        errors++;
    }
    assert_true(errors > 0);
    engines_group_close(rig.group);
    operation->wrong[0] = '\0';
    assert_true(operation_end(operation, text, sizeof(text)));
    engines_close(rig.engines);
}

static void test_blocks_of_alltoallv(void **state)
{
    (void)state;
    static const uint64_t eager_sizes[] = {0, 16, 16384};
    for (int i = 0; coll_algorithms()[i]; i++)
        for (size_t k = 0; k < COUNT_OF(eager_sizes); k++) {
            const struct coll_algorithm *algorithm = coll_algorithms()[i];
            if (algorithm->kind != COLL_ALLTOALL || algorithm->fits) /* only equal blocks */
                continue;
            disagree_on_a_block(eager_sizes[k], algorithm, 0, 7);
            disagree_on_a_block(eager_sizes[k], algorithm, 7, 0);
            disagree_on_a_block(eager_sizes[k], algorithm, 6, 7);
            disagree_on_a_block(eager_sizes[k], algorithm, 15, 6);
        }
}

/* -----------------------------------------------------------------------------------------------
 */

static size_t blocks_before;

static int count_blocks(void **state)
{
    (void)state;
    blocks_before = base_memory_blocks();
    return 0;
}

static int check_blocks(void **state)
{
    (void)state;
    if (base_memory_blocks() == blocks_before)
        return 0;
    print_error("%zu blocks were not freed\n", base_memory_blocks() - blocks_before);
    return -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, count_blocks, check_blocks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_kinds),
        TEST(test_dtypes_ops_roots_counts),
        TEST(test_algorithms_and_segments),
        TEST(test_blocks_of_alltoallv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
