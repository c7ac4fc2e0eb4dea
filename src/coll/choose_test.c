/* SPDX-License-Identifier: Apache-2.0 */
/* choose_test.c: what the table chooses, and that all ranks choose alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "coll/coll.h"

#define RANKS_MAX 128

static int host_of[RANKS_MAX];

static bool is_half(enum shoal_dtype dtype)
{
    return dtype == SHOAL_F16 || dtype == SHOAL_BF16;
}

static struct coll_shape make_shape(enum coll_kind kind, int size, int ranks_per_host,
                                    uint64_t bytes, enum shoal_dtype dtype)
{
    size_t elem_bytes = is_half(dtype) ? 2 : 4;
    for (int rank = 0; rank < size; rank++)
        host_of[rank] = rank / ranks_per_host;
    bool is_block = kind != COLL_ALLREDUCE && kind != COLL_REDUCE && kind != COLL_BROADCAST;
    return (struct coll_shape){.kind = kind,
                               .size = size,
                               .elem_bytes = elem_bytes,
                               .wide_sums = is_half(dtype),
                               .count = bytes / elem_bytes / (is_block ? (uint64_t)size : 1),
                               .segment_count = 1000,
                               .host_of = host_of,
                               .host_count = (size + ranks_per_host - 1) / ranks_per_host};
}

static const char *chosen(const struct coll_shape *shape, struct coll_choice choice)
{
    const struct coll_algorithm *algorithm = NULL;
    if (coll_choose(shape, &choice, &algorithm) != SHOAL_OK)
        fail_msg("%s", base_error_text());
    assert_non_null(algorithm);
    assert_int_equal(algorithm->kind, shape->kind);
    assert_true(!algorithm->fits || algorithm->fits(shape));
    return algorithm->name;
}

static void test_the_table(void **state)
{
    (void)state;
    static const struct {
        enum coll_kind kind;
        int size, ranks_per_host;
        uint64_t bytes;
        const char *expected;
        const char *of_halves; /* NULL: the same */
    } cases[] = {
        {COLL_ALLREDUCE, 4, 1, 8, "exchange", NULL},
        {COLL_ALLREDUCE, 4, 1, 8192, "exchange", NULL},
        {COLL_ALLREDUCE, 4, 1, 8196, "direct", NULL},
        {COLL_ALLREDUCE, 16, 1, 8, "recursive_doubling", NULL},
        {COLL_ALLREDUCE, 8, 4, 1 << 20, "two_level", NULL},
        {COLL_ALLREDUCE, 8, 8, 1 << 20, "direct", NULL},
        {COLL_ALLREDUCE, 4, 1, 1 << 22, "ring", "direct"},
        {COLL_ALLREDUCE, 16, 1, 1 << 22, "direct", NULL},
        {COLL_ALLREDUCE, 64, 1, 1 << 20, "halving_doubling", "direct"},
        {COLL_ALLREDUCE, 64, 1, 1 << 26, "ring", "direct"},
        {COLL_ALLREDUCE, 128, 1, 1 << 23, "halving_doubling", "direct"},
        {COLL_ALLREDUCE, 100, 1, 1 << 23, "direct", NULL},
        {COLL_REDUCE, 64, 1, 8, "binomial", NULL},
        {COLL_REDUCE, 16, 4, 1 << 20, "two_level", NULL},
        {COLL_REDUCE, 4, 1, 1 << 20, "direct", NULL},
        {COLL_BROADCAST, 4, 1, 1 << 20, "direct", NULL},
        {COLL_BROADCAST, 80, 1, 1 << 26, "chain", NULL},
        {COLL_ALLGATHER, 16, 1, 1 << 12, "bruck", NULL},
        {COLL_ALLGATHER, 4, 1, 1 << 19, "direct", NULL},
        {COLL_ALLGATHER, 4, 1, 1 << 20, "ring", NULL},
        {COLL_GATHER, 16, 1, 1 << 12, "binomial", NULL},
        {COLL_REDUCE_SCATTER, 16, 1, 1 << 12, "halving", NULL},
        {COLL_REDUCE_SCATTER, 16, 4, 1 << 20, "two_level", NULL},
        {COLL_REDUCE_SCATTER, 4, 1, 1 << 20, "ring", "direct"},
        {COLL_REDUCE_SCATTER, 64, 1, 1 << 26, "ring", "direct"},
        {COLL_SCATTER, 4, 1, 1 << 20, "direct", NULL},
        {COLL_ALLTOALL, 16, 1, 1 << 12, "bruck", NULL},
        {COLL_ALLTOALL, 64, 1, 1 << 26, "pairwise", NULL},
        {COLL_BARRIER, 4, 1, 0, "direct", NULL},
        {COLL_BARRIER, 16, 1, 0, "dissemination", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct coll_shape shape = make_shape(cases[i].kind, cases[i].size, cases[i].ranks_per_host,
                                             cases[i].bytes, SHOAL_F32);
        assert_string_equal(chosen(&shape, (struct coll_choice){.dtype = SHOAL_F32}),
                            cases[i].expected);
        const char *of_halves = cases[i].of_halves ? cases[i].of_halves : cases[i].expected;
        shape = make_shape(cases[i].kind, cases[i].size, cases[i].ranks_per_host, cases[i].bytes,
                           SHOAL_BF16);
        assert_string_equal(chosen(&shape, (struct coll_choice){.dtype = SHOAL_BF16}), of_halves);
    }
}

/* Fewer messages where cores are what is short, unless the order of sums forbids it. */
static void test_hosts_that_share_too_few_cores(void **state)
{
    (void)state;
    const struct {
        enum coll_kind kind;
        int size, ranks_per_host;
        uint64_t bytes;
        bool reproducible;
        const char *expected;
    } cases[] = {
        {COLL_ALLREDUCE, 2, 1, 4096, false, "exchange"},
        {COLL_ALLREDUCE, 3, 1, 4096, false, "exchange"},
        {COLL_ALLREDUCE, 4, 1, 4096, false, "recursive_doubling"},
        {COLL_ALLREDUCE, 8, 1, 4096, false, "recursive_doubling"},
        {COLL_ALLREDUCE, 8, 1, 4096, true, "exchange"},
        {COLL_ALLREDUCE, 8, 1, 65536, false, "halving_doubling"},
        {COLL_ALLREDUCE, 8, 1, 65536, true, "direct"},
        {COLL_ALLREDUCE, 6, 1, 65536, false, "direct"},
        {COLL_ALLREDUCE, 8, 1, 1 << 20, false, "direct"},
        {COLL_ALLREDUCE, 8, 2, 65536, false, "two_level"},
        {COLL_ALLGATHER, 3, 1, 1024, false, "bruck"},
        {COLL_ALLGATHER, 8, 1, 1 << 20, false, "ring"},
        {COLL_REDUCE_SCATTER, 8, 1, 1024, false, "halving"},
        {COLL_REDUCE_SCATTER, 8, 1, 1024, true, "direct"},
        {COLL_REDUCE_SCATTER, 6, 1, 1024, false, "direct"},
        {COLL_ALLTOALL, 8, 1, 1024, false, "bruck"},
        {COLL_ALLTOALL, 8, 1, 65536, false, "direct"},
        {COLL_BARRIER, 2, 1, 0, false, "direct"},
        {COLL_BARRIER, 3, 1, 0, false, "dissemination"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct coll_shape shape = make_shape(cases[i].kind, cases[i].size, cases[i].ranks_per_host,
                                             cases[i].bytes, SHOAL_F32);
        struct coll_choice choice = {.dtype = SHOAL_F32, .reproducible = cases[i].reproducible};
        shape.crowded = true;
        assert_string_equal(chosen(&shape, choice), cases[i].expected);
    }
}

/* All shapes on a grid, through every row; the promises hold, and all ranks choose alike. */
static void check_shape(const struct coll_shape *given, struct coll_choice choice)
{
    struct coll_shape shape = *given;
    const char *name = chosen(&shape, choice);
    const struct coll_algorithm *algorithm = coll_find(shape.kind, name);
    if (choice.reproducible && choice.dtype != SHOAL_I32)
        assert_true(algorithm->one_reduce && algorithm->same_tree);
    uint64_t segment_count = coll_segment_count(&shape);
    assert_true(segment_count >= 1);
    for (int rank = 1; rank < shape.size; rank += 7) {
        shape.rank = rank;
        shape.in_place = rank % 2;
        assert_string_equal(chosen(&shape, choice), name);
        assert_int_equal(coll_segment_count(&shape), segment_count);
    }
}

static void test_promises_on_a_grid(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 8, 9, 32, 33, 64, 65, 80};
    static const uint64_t bytes[] = {0, 4, 8192, 32768, 65536, 1 << 20, 1 << 22, 1 << 27};
    static const enum shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16, SHOAL_I32};
    for (int kind = 0; kind <= COLL_BARRIER; kind++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
            for (size_t b = 0; b < sizeof(bytes) / sizeof(bytes[0]); b++)
                for (int each = 1; each <= 81; each += 3)
                    for (int choice = 0; choice < 8; choice++) {
                        enum shoal_dtype dtype = dtypes[choice % 4];
                        struct coll_shape shape =
                            make_shape((enum coll_kind)kind, sizes[s], each, bytes[b], dtype);
                        check_shape(&shape, (struct coll_choice){.dtype = dtype,
                                                                 .reproducible = choice / 4});
                    }
}

/* Counts of alltoallv are not known to all ranks; the choice and the segment must not see them. */
static void test_alltoallv_ignores_counts(void **state)
{
    (void)state;
    uint64_t small[16] = {0}, large[16];
    for (int i = 0; i < 16; i++)
        large[i] = 1 << 20;
    struct coll_shape shape = make_shape(COLL_ALLTOALL, 16, 1, 0, SHOAL_F32);
    shape.counts = shape.recv_counts = small;
    const char *name = chosen(&shape, (struct coll_choice){.dtype = SHOAL_F32});
    uint64_t segment_count = coll_segment_count(&shape);
    shape.counts = shape.recv_counts = large;
    assert_string_equal(chosen(&shape, (struct coll_choice){.dtype = SHOAL_F32}), name);
    assert_int_equal(coll_segment_count(&shape), segment_count);
    assert_string_equal(name, "direct");
}

static uint64_t segment_bytes(int hosts, uint64_t bytes, bool long_messages)
{
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, hosts, 1, bytes, SHOAL_F32);
    shape.long_messages = long_messages;
    return coll_segment_count(&shape) * shape.elem_bytes;
}

/* Half a share instead of a sixteenth, within the bounds of all segments, where few hosts meet. */
static void test_long_messages(void **state)
{
    (void)state;
    assert_int_equal(segment_bytes(4, 1 << 20, false), 16 << 10);
    assert_int_equal(segment_bytes(4, 1 << 20, true), 128 << 10);
    assert_int_equal(segment_bytes(4, 384 << 10, true), 64 << 10);
    assert_int_equal(segment_bytes(2, 4 << 20, true), 256 << 10);
    assert_int_equal(segment_bytes(8, 64 << 10, true), 16 << 10);
    assert_int_equal(segment_bytes(9, 4 << 20, true), segment_bytes(9, 4 << 20, false));
}

static void test_forced(void **state)
{
    (void)state;
    static const struct {
        const char *forced, *expected;
    } cases[] = {
        {"auto", "direct"},
        {"ring", "ring"},
        {"allreduce:ring", "ring"},
        {"broadcast:chain", "direct"},
        {"chain", "direct"},
        {"ring,allreduce:halving_doubling", "halving_doubling"},
        {"allreduce:auto", "direct"},
        {"two_level", "direct"}, /* there is one rank per host */
        {"", "direct"},
    };
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 4, 1, 1 << 20, SHOAL_F32);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct coll_choice choice = {.dtype = SHOAL_F32, .forced = cases[i].forced};
        assert_string_equal(chosen(&shape, choice), cases[i].expected);
    }
    /* The promise stands above it. */
    struct coll_choice choice = {.dtype = SHOAL_F32, .forced = "ring", .reproducible = true};
    assert_string_equal(chosen(&shape, choice), "direct");
}

static void test_forced_names_that_do_not_exist(void **state)
{
    (void)state;
    static const struct {
        const char *forced, *expected;
    } cases[] = {
        {"rign", "did you mean 'ring'?"},
        {"allreduce:chain", "for allreduce: there are direct, exchange"},
        {"alreduce:ring", "did you mean 'allreduce'?"},
        {"ring,nothing", "no algorithm 'nothing'"},
        {"a-name-that-is-longer-than-any-name-of-an-algorithm-can-ever-be-here", "too long"},
    };
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 4, 1, 1 << 20, SHOAL_F32);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct coll_choice choice = {.dtype = SHOAL_F32, .forced = cases[i].forced};
        const struct coll_algorithm *algorithm = NULL;
        assert_int_equal(coll_choose(&shape, &choice, &algorithm), SHOAL_ERR_OPTION);
        assert_null(algorithm);
        if (!strstr(base_error_text(), cases[i].expected))
            fail_msg("'%s' does not say '%s'", base_error_text(), cases[i].expected);
    }
}

static void test_explanations(void **state)
{
    (void)state;
    char text[256];
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 4, 1, 1 << 20, SHOAL_F32);
    struct coll_choice choice = {.dtype = SHOAL_F32};
    assert_int_equal(coll_explain(&shape, &choice, text, sizeof(text)), SHOAL_OK);
    assert_string_equal(text, "from the table: allreduce, up to 8 ranks, up to 2048 KiB");
    choice.forced = "ring";
    assert_int_equal(coll_explain(&shape, &choice, text, sizeof(text)), SHOAL_OK);
    assert_string_equal(text, "forced");
    choice.forced = "two_level";
    assert_int_equal(coll_explain(&shape, &choice, text, sizeof(text)), SHOAL_OK);
    assert_non_null(strstr(text, "two_level cannot do this; from the table"));
}

/* Memory that fails at any point of any algorithm is an error, and nothing stays behind. */
static void test_every_failing_allocation(void **state)
{
    (void)state;
    size_t blocks = base_memory_blocks();
    for (int i = 0; coll_algorithms()[i]; i++) {
        const struct coll_algorithm *algorithm = coll_algorithms()[i];
        enum shoal_dtype dtype = i % 2 ? SHOAL_BF16 : SHOAL_F32;
        struct coll_shape shape = make_shape(algorithm->kind, 7, 2, 4000, dtype);
        enum shoal_status status = SHOAL_ERR_MEMORY;
        shape.rank = 3;
        for (uint64_t nth = 1; status != SHOAL_OK; nth++) {
            struct schedule *schedule = NULL;
            base_memory_fail_at(nth);
            status = coll_schedule(algorithm, &shape, &schedule);
            base_memory_fail_at(0);
            schedule_free(schedule);
            assert_true(status == SHOAL_OK || status == SHOAL_ERR_MEMORY);
            assert_int_equal(base_memory_blocks(), blocks);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table),
        cmocka_unit_test(test_hosts_that_share_too_few_cores),
        cmocka_unit_test(test_promises_on_a_grid),
        cmocka_unit_test(test_alltoallv_ignores_counts),
        cmocka_unit_test(test_long_messages),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_forced_names_that_do_not_exist),
        cmocka_unit_test(test_explanations),
        cmocka_unit_test(test_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
