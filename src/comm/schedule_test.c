/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_test.c: what the builder makes wait for what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/schedule.h"

static const int hosts[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static struct coll_shape make_shape(enum coll_kind kind, int rank, bool in_place)
{
    return (struct coll_shape){.kind = kind,
                               .rank = rank,
                               .size = 4,
                               .elem_bytes = 4,
                               .count = 10,
                               .in_place = in_place,
                               .segment_count = 100,
                               .host_of = hosts,
                               .host_count = 4};
}

static struct schedule_builder *start(const struct coll_shape *shape)
{
    struct schedule_builder *builder;
    assert_int_equal(schedule_builder_create(shape, &builder), SHOAL_OK);
    return builder;
}

static struct schedule *end(struct schedule_builder *builder)
{
    struct schedule *schedule;
    assert_int_equal(schedule_finish(builder, "test", &schedule), SHOAL_OK);
    return schedule;
}

static bool has_edge(const struct schedule *schedule, uint32_t from, uint32_t to)
{
    const struct schedule_step *step = &schedule->steps[from];
    for (uint32_t i = 0; i < step->after_count; i++)
        if (schedule->edges[step->after_first + i] == to)
            return true;
    return false;
}

static struct schedule_span input(uint64_t offset, uint64_t count)
{
    return span_of(BUFFER_INPUT, offset, count);
}

static struct schedule_span output(uint64_t offset, uint64_t count)
{
    return span_of(BUFFER_OUTPUT, offset, count);
}

static void test_reads_and_writes_wait(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 0, false);
    struct schedule_builder *builder = start(&shape);
    schedule_recv(builder, 1, output(0, 4));             /* 0 */
    schedule_send(builder, 2, output(2, 4));             /* 1: reads what 0 wrote */
    schedule_send(builder, 3, output(0, 2));             /* 2: so does this, but not after 1 */
    schedule_recv(builder, 1, output(3, 1));             /* 3: writes what 1 reads */
    schedule_recv(builder, 1, output(6, 4));             /* 4: apart */
    schedule_copy(builder, output(0, 10), input(0, 10)); /* 5: all of it */
    struct schedule *schedule = end(builder);
    assert_int_equal(schedule->step_count, 6);
    assert_int_equal(schedule->edge_count, 7);
    assert_true(has_edge(schedule, 0, 1));
    assert_true(has_edge(schedule, 0, 2));
    assert_true(has_edge(schedule, 1, 3));
    assert_true(has_edge(schedule, 1, 5));
    assert_true(has_edge(schedule, 2, 5));
    assert_true(has_edge(schedule, 3, 5));
    assert_true(has_edge(schedule, 4, 5));
    assert_int_equal(schedule->steps[4].wait_count, 0);
    assert_int_equal(schedule->steps[5].wait_count, 4);
    schedule_free(schedule);
}

static void test_rounds_count_messages(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 0, false);
    struct schedule_builder *builder = start(&shape);
    struct schedule_span slot = schedule_scratch(builder, 4);
    schedule_recv(builder, 1, slot);
    schedule_copy(builder, output(0, 4), slot);
    schedule_send(builder, 2, output(0, 4));
    schedule_recv(builder, 1, output(0, 4));
    struct schedule *schedule = end(builder);
    assert_int_equal(schedule->steps[0].round, 0);
    assert_int_equal(schedule->steps[1].round, 1);
    assert_int_equal(schedule->steps[2].round, 1);
    assert_int_equal(schedule->steps[3].round, 2);
    schedule_free(schedule);
}

static void test_messages_are_numbered_per_peer(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 0, false);
    struct schedule_builder *builder = start(&shape);
    schedule_send(builder, 1, input(0, 1));
    schedule_send(builder, 2, input(1, 1));
    schedule_send(builder, 1, input(2, 1));
    schedule_recv(builder, 1, output(0, 1));
    schedule_send(builder, 1, input(0, 0)); /* nothing */
    schedule_send(builder, 1, input(3, 1));
    struct schedule *schedule = end(builder);
    static const uint32_t expected[] = {0, 0, 1, 0, 2};
    assert_int_equal(schedule->step_count, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(schedule->steps[i].message, expected[i]);
    schedule_free(schedule);
}

static void test_steps_without_effect_vanish(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 0, true);
    struct schedule_builder *builder = start(&shape);
    struct schedule_span source = input(3, 4);
    schedule_copy(builder, output(3, 4), source);
    schedule_reduce(builder, output(3, 4), &source, 1, false);
    schedule_reduce(builder, output(3, 0), &source, 1, true);
    schedule_reduce(builder, output(3, 4), &source, 1, true);
    schedule_finalize(builder, output(0, 2));
    struct schedule *schedule = end(builder);
    assert_int_equal(schedule->step_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(schedule->steps[i].kind, STEP_COPY);
        assert_true(schedule->steps[i].final);
    }
    schedule_free(schedule);
}

/* Whether writing output+to waits for a send of input+from. */
static bool collide(const struct coll_shape *shape, uint64_t from, uint64_t to)
{
    struct schedule_builder *builder = start(shape);
    schedule_send(builder, (shape->rank + 1) % 4, input(from, 1));
    schedule_recv(builder, (shape->rank + 1) % 4, output(to, 1));
    struct schedule *schedule = end(builder);
    bool waits = schedule->steps[1].wait_count == 1;
    schedule_free(schedule);
    return waits;
}

static void test_in_place_is_by_kind(void **state)
{
    (void)state;
    static const struct {
        enum coll_kind kind;
        int rank, root;
        uint64_t from, to;
        bool expected;
    } cases[] = {
        {COLL_ALLREDUCE, 1, 0, 3, 3, true},       {COLL_ALLREDUCE, 1, 0, 3, 4, false},
        {COLL_BROADCAST, 1, 1, 3, 3, true},       {COLL_REDUCE, 1, 1, 3, 3, true},
        {COLL_ALLGATHER, 1, 0, 3, 13, true},      {COLL_ALLGATHER, 1, 0, 3, 3, false},
        {COLL_ALLGATHER, 2, 0, 0, 20, true},      {COLL_GATHER, 2, 2, 0, 20, true},
        {COLL_GATHER, 2, 1, 0, 20, false},        {COLL_REDUCE_SCATTER, 1, 0, 13, 3, true},
        {COLL_REDUCE_SCATTER, 1, 0, 3, 3, false}, {COLL_SCATTER, 3, 3, 31, 1, true},
        {COLL_SCATTER, 3, 0, 31, 1, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct coll_shape shape = make_shape(cases[i].kind, cases[i].rank, true);
        shape.root = cases[i].root;
        if (collide(&shape, cases[i].from, cases[i].to) != cases[i].expected)
            fail_msg("case %zu", i);
        shape.in_place = false;
        assert_false(collide(&shape, cases[i].from, cases[i].to));
    }
}

static void test_in_place_with_counts_and_displacements(void **state)
{
    (void)state;
    uint64_t counts[] = {3, 0, 5, 2}, displs[] = {20, 0, 4, 10};
    struct coll_shape shape = make_shape(COLL_ALLGATHER, 2, true);
    shape.counts = counts;
    assert_int_equal(schedule_block_count(&shape, 2), 5);
    assert_int_equal(schedule_block_offset(&shape, 3), 8);
    assert_true(collide(&shape, 1, 4));
    shape.displs = displs;
    assert_int_equal(schedule_block_offset(&shape, 3), 10);
    assert_true(collide(&shape, 1, 5));
    assert_false(collide(&shape, 1, 4));
}

static void test_signals_and_awaits(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_BARRIER, 0, false);
    struct schedule_builder *builder = start(&shape);
    schedule_recv(builder, 1, output(0, 1)); /* 0 */
    schedule_signal(builder, 1);             /* 1 */
    schedule_signal(builder, 2);             /* 2: not after 1 */
    schedule_await(builder, 3);              /* 3: at once */
    schedule_signal(builder, 1);             /* 4: after 0 and 3 */
    schedule_send(builder, 2, input(0, 1));  /* 5: after 3 */
    schedule_send(builder, 2, output(0, 1)); /* 6: after 0 and 3 */
    struct schedule *schedule = end(builder);
    static const uint32_t waits[] = {0, 1, 1, 0, 2, 1, 2};
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(schedule->steps[i].wait_count, waits[i]);
    assert_true(has_edge(schedule, 0, 1));
    assert_true(has_edge(schedule, 0, 2));
    assert_true(has_edge(schedule, 3, 4));
    assert_true(has_edge(schedule, 3, 5));
    assert_true(has_edge(schedule, 3, 6));
    schedule_free(schedule);
}

static void test_fence(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_ALLTOALL, 0, false);
    struct schedule_builder *builder = start(&shape);
    schedule_fence(builder);                 /* nothing to wait for */
    schedule_send(builder, 1, input(0, 1));  /* 0 */
    schedule_recv(builder, 2, output(0, 2)); /* 1 */
    schedule_send(builder, 2, output(0, 2)); /* 2: after 1 */
    schedule_fence(builder);
    schedule_fence(builder);                 /* once is enough */
    schedule_send(builder, 3, input(1, 1));  /* 3: after 0 and 2, not 1 */
    schedule_recv(builder, 3, output(5, 1)); /* 4: likewise */
    schedule_send(builder, 3, output(5, 1)); /* 5: after 4 alone */
    struct schedule *schedule = end(builder);
    static const uint32_t waits[] = {0, 0, 1, 2, 2, 1};
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(schedule->steps[i].wait_count, waits[i]);
    assert_true(has_edge(schedule, 0, 3));
    assert_true(has_edge(schedule, 2, 3));
    schedule_free(schedule);
}

/* ---- random programs against the definition ------------------------------------------------ */

#define STEPS   200
#define ELEMENT 48

struct access {
    uint64_t written; /* bits of the output's elements */
    uint64_t read;
};

static uint64_t bits(struct schedule_span span)
{
    return span.buffer != BUFFER_OUTPUT ? 0 : ((UINT64_C(1) << span.count) - 1) << span.offset;
}

static struct schedule_span random_span(void)
{
    uint64_t count = 1 + (uint64_t)rand() % 12;
    return output((uint64_t)rand() % (ELEMENT - count), count);
}

static void emit_random(struct schedule_builder *builder, struct access *access)
{
    struct schedule_span at = random_span(), sources[3];
    *access = (struct access){0};
    switch (rand() % 3) {
    case 0:
        schedule_send(builder, 1, at);
        access->read = bits(at);
        break;
    case 1:
        schedule_recv(builder, 1, at);
        access->written = bits(at);
        break;
    default:
        for (int i = 0; i < 3; i++) {
            sources[i] = random_span();
            sources[i].count = at.count;
            if (sources[i].offset + at.count > ELEMENT)
                sources[i] = at;
            access->read |= bits(sources[i]);
        }
        schedule_reduce(builder, at, sources, 3, false);
        access->written = bits(at);
        break;
    }
}

static bool conflict(const struct access *a, const struct access *b)
{
    return (a->written & (b->written | b->read)) || (a->read & b->written);
}

/* Two steps that touch an element, one of them writing, are ordered; no others are made to wait. */
static void test_random_programs(void **state)
{
    (void)state;
    static bool before[STEPS][STEPS];
    for (unsigned seed = 1; seed <= 60; seed++) {
        struct coll_shape shape = make_shape(COLL_ALLREDUCE, 0, false);
        struct access accesses[STEPS];
        struct schedule_builder *builder = start(&shape);
        srand(seed);
        for (int i = 0; i < STEPS; i++)
            emit_random(builder, &accesses[i]);
        struct schedule *schedule = end(builder);
        assert_int_equal(schedule->step_count, STEPS);
        memset(before, 0, sizeof(before));
        for (int from = STEPS - 1; from >= 0; from--)
            for (int to = from + 1; to < STEPS; to++) {
                if (!has_edge(schedule, (uint32_t)from, (uint32_t)to))
                    continue;
                assert_true(conflict(&accesses[from], &accesses[to]));
                before[from][to] = true;
                for (int later = to + 1; later < STEPS; later++)
                    before[from][later] |= before[to][later];
            }
        for (int from = 0; from < STEPS; from++)
            for (int to = from + 1; to < STEPS; to++)
                if (conflict(&accesses[from], &accesses[to]) && !before[from][to])
                    fail_msg("seed %u: step %d does not wait for %d", seed, to, from);
        schedule_free(schedule);
    }
}

/* ---- partial sums -------------------------------------------------------------------------- */

static void test_partial_sums_lie_in_scratch_or_at_their_place(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 0, false);
    struct schedule_builder *builder = start(&shape);
    struct schedule_span first = schedule_scratch(builder, 3), sums = schedule_sums(builder, 4);
    struct schedule_span at = schedule_sums_at(builder, output(2, 5));
    assert_int_equal(sums.buffer, BUFFER_SCRATCH);
    assert_int_equal(sums.offset, first.offset + 3);
    assert_int_equal(at.buffer, BUFFER_OUTPUT);
    assert_int_equal(at.offset, 2);
    assert_int_equal(at.count, 5);
    struct schedule *schedule = end(builder);
    assert_int_equal(schedule->scratch_count, 7);
    assert_int_equal(schedule->wide_count, 0);
    schedule_free(schedule);
}

/* Of 16-bit floats they lie in WIDE, apart from scratch of the same offsets, and have a life there
 * as everywhere: who reads waits for who wrote. */
static void test_partial_sums_of_halves_are_wide(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 0, false);
    shape.elem_bytes = 2;
    shape.wide_sums = true;
    struct schedule_builder *builder = start(&shape);
    struct schedule_span slot = schedule_scratch(builder, 4), other = schedule_sums(builder, 1);
    struct schedule_span sum = schedule_sums_at(builder, output(6, 4));
    struct schedule_span sources[2] = {slot, input(0, 4)};
    assert_int_equal(other.buffer, BUFFER_WIDE);
    assert_int_equal(sum.buffer, BUFFER_WIDE);
    assert_int_equal(sum.offset, 1);
    assert_int_equal(sum.count, 4);
    schedule_recv(builder, 1, slot);                       /* 0 */
    schedule_reduce(builder, sum, sources, 2, false);      /* 1: reads what 0 wrote */
    schedule_recv(builder, 2, slot);                       /* 2: writes what 1 read */
    schedule_send(builder, 3, sum);                        /* 3: reads what 1 wrote, not 2 */
    schedule_reduce(builder, output(6, 4), &sum, 1, true); /* 4: so does this */
    schedule_copy(builder, other, input(0, 1));            /* 5: apart */
    struct schedule *schedule = end(builder);
    assert_int_equal(schedule->scratch_count, 4);
    assert_int_equal(schedule->wide_count, 5);
    assert_int_equal(schedule->step_count, 6);
    assert_int_equal(schedule->edge_count, 4);
    assert_true(has_edge(schedule, 0, 1));
    assert_true(has_edge(schedule, 1, 2));
    assert_true(has_edge(schedule, 1, 3));
    assert_true(has_edge(schedule, 1, 4));
    schedule_free(schedule);
}

static void test_spans_have_their_buffer_s_width(void **state)
{
    (void)state;
    assert_int_equal(schedule_span_bytes(output(7, 5), 2), 10);
    assert_int_equal(schedule_span_bytes(span_of(BUFFER_WIDE, 7, 5), 2), 20);
    for (int buffer = 0; buffer < BUFFER_COUNT; buffer++)
        assert_string_not_equal(schedule_buffer_name((enum schedule_buffer)buffer), "?");
}

/* ---- size and failure ---------------------------------------------------------------------- */

/* 100,000 steps on a fragmented buffer, whose slots are used again and again. */
static struct schedule_builder *emit_many(const struct coll_shape *shape)
{
    struct schedule_builder *builder = start(shape);
    struct schedule_span slots = schedule_scratch(builder, 64);
    for (uint64_t i = 0; i < 25000; i++) {
        struct schedule_span slot = span_of(BUFFER_SCRATCH, slots.offset + i % 64, 1);
        struct schedule_span sources[2] = {slot, input(i, 1)};
        schedule_recv(builder, 1, slot);
        schedule_reduce(builder, output(i, 1), sources, 2, true);
        schedule_send(builder, 1, output(i, 1));
        schedule_send(builder, 2, output(i, 1));
    }
    return builder;
}

static void test_edges_stay_few(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 0, false);
    shape.count = 25000;
    struct schedule *schedule = end(emit_many(&shape));
    assert_int_equal(schedule->step_count, 100000);
    assert_int_equal(schedule->edge_count, 4 * 25000 - 64);
    assert_int_equal(schedule->scratch_count, 64);
    schedule_free(schedule);
}

static void test_every_failing_allocation(void **state)
{
    (void)state;
    struct coll_shape shape = make_shape(COLL_ALLREDUCE, 0, true);
    size_t blocks = base_memory_blocks();
    enum shoal_status status = SHOAL_ERR_MEMORY;
    uint64_t nth = 0;
    while (status != SHOAL_OK) {
        struct schedule_builder *builder;
        struct schedule *schedule = NULL;
        base_memory_fail_at(++nth);
        status = schedule_builder_create(&shape, &builder);
        if (status == SHOAL_OK) {
            for (uint64_t i = 0; i < 300; i++) {
                struct schedule_span sources[2] = {input(i % 9, 1), output((i + 3) % 9, 1)};
                schedule_send(builder, 1, input(i % 7, 2));
                schedule_reduce(builder, output(i % 9, 1), sources, 2, false);
            }
            status = schedule_finish(builder, "test", &schedule);
        }
        base_memory_fail_at(0);
        schedule_free(schedule);
        assert_true(status == SHOAL_OK || status == SHOAL_ERR_MEMORY);
        assert_int_equal(base_memory_blocks(), blocks);
        assert_true(nth < 1000);
    }
    assert_true(nth > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_and_writes_wait),
        cmocka_unit_test(test_rounds_count_messages),
        cmocka_unit_test(test_messages_are_numbered_per_peer),
        cmocka_unit_test(test_steps_without_effect_vanish),
        cmocka_unit_test(test_in_place_is_by_kind),
        cmocka_unit_test(test_in_place_with_counts_and_displacements),
        cmocka_unit_test(test_signals_and_awaits),
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_partial_sums_lie_in_scratch_or_at_their_place),
        cmocka_unit_test(test_partial_sums_of_halves_are_wide),
        cmocka_unit_test(test_spans_have_their_buffer_s_width),
        cmocka_unit_test(test_edges_stay_few),
        cmocka_unit_test(test_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
