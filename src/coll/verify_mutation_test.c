/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_mutation_test.c: breaks right schedules in every way that a bug could, and expects the
 * verifier to notice, with a text that says what.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "coll/coll.h"
#include "support/coll_case.h"

static struct coll_group group;
static struct coll_case one;

/* A fresh, right set of schedules. */
static void build_width(enum coll_kind kind, const char *name, int size, uint64_t count,
                        bool is_half)
{
    one = (struct coll_case){.algorithm = coll_find(kind, name),
                             .size = size,
                             .count = count,
                             .segment_count = 4,
                             .hosts = strcmp(name, "two_level") == 0 ? HOSTS_PAIRS : HOSTS_EACH,
                             .is_half = is_half};
    assert_non_null(one.algorithm);
    assert_true(case_shapes(&one, &group));
    assert_int_equal(case_schedules(&one, &group), SHOAL_OK);
    struct coll_report report;
    assert_int_equal(coll_verify(group.shapes, group.schedules, &report), SHOAL_OK);
}

static void build(enum coll_kind kind, const char *name, int size, uint64_t count)
{
    build_width(kind, name, size, count, false);
}

static void expect_caught(const char *word)
{
    struct coll_report report;
    enum shoal_status status = coll_verify(group.shapes, group.schedules, &report);
    if (status != SHOAL_ERR_INTERNAL)
        fail_msg("%s: not caught", case_text(&one));
    if (!strstr(base_error_text(), word))
        fail_msg("%s: '%s' does not say '%s'", case_text(&one), base_error_text(), word);
    case_release(&one, &group);
}

/* The n-th step of a kind on a rank. */
static struct schedule_step *find_step(int rank, enum step_kind kind, int n)
{
    struct schedule *schedule = group.schedules[rank];
    for (uint32_t i = 0; i < schedule->step_count; i++)
        if (schedule->steps[i].kind == kind && n-- == 0)
            return &schedule->steps[i];
    fail_msg("no such step");
    return NULL;
}

static uint32_t number_of(int rank, const struct schedule_step *step)
{
    return (uint32_t)(step - group.schedules[rank]->steps);
}

/* Takes the edge between two steps away, or the step's first one. */
static void cut_edge(int rank, uint32_t from, uint32_t to)
{
    struct schedule *schedule = group.schedules[rank];
    struct schedule_step *step = &schedule->steps[from];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < step->after_count; i++) {
        uint32_t later = schedule->edges[step->after_first + i];
        if (later != to)
            schedule->edges[step->after_first + kept++] = later;
    }
    assert_int_equal(kept + 1, step->after_count);
    step->after_count = kept;
    schedule->steps[to].wait_count--;
}

/* Adds an edge: makes room by writing the step's edges anew at the end of a longer array. */
static void add_edge(int rank, uint32_t from, uint32_t to)
{
    struct schedule *schedule = group.schedules[rank];
    struct schedule_step *step = &schedule->steps[from];
    uint32_t count = schedule->edge_count + step->after_count + 1;
    uint32_t *edges;
    assert_int_equal(BASE_NEW_ARRAY(&edges, count, "edges"), SHOAL_OK);
    memcpy(edges, schedule->edges, schedule->edge_count * sizeof(*edges));
    memcpy(edges + schedule->edge_count, edges + step->after_first,
           step->after_count * sizeof(*edges));
    edges[count - 1] = to;
    base_free(schedule->edges);
    schedule->edges = edges;
    step->after_first = schedule->edge_count;
    step->after_count++;
    schedule->edge_count = count;
    schedule->steps[to].wait_count++;
}

static struct schedule_span *source_of(int rank, const struct schedule_step *step, int i)
{
    return &group.schedules[rank]->sources[step->source_first + (uint32_t)i];
}

static void test_last_step_missing(void **state)
{
    (void)state;
    for (int i = 0; coll_algorithms()[i]; i++) {
        const struct coll_algorithm *algorithm = coll_algorithms()[i];
        if (algorithm->kind == COLL_BARRIER)
            continue;
        build(algorithm->kind, algorithm->name, 5, 12);
        struct schedule *schedule = group.schedules[0];
        struct schedule_step *last = &schedule->steps[--schedule->step_count];
        uint32_t number = number_of(0, last);
        for (uint32_t k = 0; k < schedule->step_count; k++) {
            struct schedule_step *step = &schedule->steps[k];
            for (uint32_t edge = 0; edge < step->after_count; edge++)
                if (schedule->edges[step->after_first + edge] == number)
                    schedule->edges[step->after_first + edge] =
                        schedule->edges[step->after_first + --step->after_count];
        }
        expect_caught("rank");
    }
}

static void test_barrier_without_one_signal(void **state)
{
    (void)state;
    build(COLL_BARRIER, "direct", 3, 0);
    group.schedules[0]->steps[0].peer = 2;
    group.schedules[0]->steps[1].message = 1;
    expect_caught("rank 0 sends 0 messages to rank 1, which receives 1");

    /* Each rank signals the next one only, and hears from the previous one only. */
    build(COLL_BARRIER, "dissemination", 4, 0);
    for (int rank = 0; rank < 4; rank++)
        for (uint32_t i = 2; i < 4; i++) {
            struct schedule_step *step = &group.schedules[rank]->steps[i];
            step->peer = (rank + (step->kind == STEP_SEND ? 1 : 3)) % 4;
            step->message = 1;
        }
    expect_caught("without having heard of rank");
}

static void test_sources_swapped_on_one_rank(void **state)
{
    (void)state;
    build(COLL_ALLREDUCE, "recursive_doubling", 4, 3);
    struct schedule_step *step = find_step(2, STEP_REDUCE, 0);
    struct schedule_span first = *source_of(2, step, 0);
    *source_of(2, step, 0) = *source_of(2, step, 1);
    *source_of(2, step, 1) = first;
    expect_caught("the sum in the other ranks' order");
}

static void test_a_contribution_twice(void **state)
{
    (void)state;
    build(COLL_ALLREDUCE, "direct", 4, 8);
    struct schedule_step *step = find_step(1, STEP_REDUCE, 0);
    *source_of(1, step, 0) = *source_of(1, step, 2);
    expect_caught("a second time");
}

static void test_a_contribution_missing(void **state)
{
    (void)state;
    build(COLL_REDUCE, "exchange", 4, 3);
    find_step(0, STEP_REDUCE, 0)->source_count--;
    expect_caught("the complete and final sum");
}

static void test_division_missing_or_early(void **state)
{
    (void)state;
    build(COLL_ALLREDUCE, "ring", 3, 3);
    find_step(0, STEP_REDUCE, 1)->final = false;
    expect_caught("the complete and final sum");
    build(COLL_ALLREDUCE, "ring", 3, 3);
    find_step(0, STEP_REDUCE, 0)->final = true;
    expect_caught("already final");
}

static void miss_every_dependency(bool is_half)
{
    for (int i = 0; coll_algorithms()[i]; i++) {
        const struct coll_algorithm *algorithm = coll_algorithms()[i];
        if (algorithm->kind == COLL_BARRIER)
            continue;
        build_width(algorithm->kind, algorithm->name, 4, 40, is_half);
        for (int rank = 0; rank < 4; rank++)
            for (uint32_t from = 0; from < group.schedules[rank]->step_count; from++) {
                struct schedule_step *step = &group.schedules[rank]->steps[from];
                /* Another path may keep the order: only direct followers count. */
                if (step->after_count != 1 || algorithm == coll_find(COLL_ALLTOALL, "pairwise"))
                    continue;
                uint32_t to = group.schedules[rank]->edges[step->after_first];
                cut_edge(rank, from, to);
                struct coll_report report;
                assert_int_equal(coll_verify(group.shapes, group.schedules, &report),
                                 SHOAL_ERR_INTERNAL);
                assert_non_null(strstr(base_error_text(), "does not wait for"));
                step->after_count = 1;
                group.schedules[rank]->steps[to].wait_count++;
            }
        case_release(&one, &group);
    }
}

static void test_a_dependency_missing(void **state)
{
    (void)state;
    miss_every_dependency(false);
    miss_every_dependency(true);
}

/* Both ranks wait for the other's message before they send their own. */
static void test_crossed_messages_deadlock(void **state)
{
    (void)state;
    build(COLL_ALLGATHER, "direct", 2, 3);
    for (int rank = 0; rank < 2; rank++) {
        struct schedule_step *sends = find_step(rank, STEP_SEND, 0);
        struct schedule_step *receives = find_step(rank, STEP_RECV, 0);
        struct schedule_step kept = *sends;
        *sends = *receives;
        *receives = kept;
        add_edge(rank, 0, 1);
    }
    expect_caught("deadlock: rank 0 step 0 (recv of 3 elements from rank 1");
}

/* Both send first and receive after: fine where sends are buffered, a deadlock where they block. */
static void test_blocking_sends_deadlock(void **state)
{
    (void)state;
    build(COLL_ALLGATHER, "direct", 2, 3);
    for (int rank = 0; rank < 2; rank++)
        add_edge(rank, 0, 1);
    expect_caught("deadlock: rank 0 step 0 (send of 3 elements to rank 1");
}

static void test_lengths_that_differ(void **state)
{
    (void)state;
    build(COLL_BROADCAST, "binomial", 4, 3);
    find_step(3, STEP_RECV, 0)->at.count--;
    expect_caught("gets 3 elements");
}

static void test_message_numbers_out_of_order(void **state)
{
    (void)state;
    build(COLL_BROADCAST, "chain", 3, 9);
    find_step(1, STEP_RECV, 0)->message = 1;
    find_step(1, STEP_RECV, 1)->message = 0;
    expect_caught("out of order");
}

static void test_write_to_input(void **state)
{
    (void)state;
    build(COLL_ALLREDUCE, "direct", 3, 6);
    find_step(1, STEP_REDUCE, 0)->at.buffer = BUFFER_INPUT;
    expect_caught("writes to the input");
}

static void test_beyond_a_buffer(void **state)
{
    (void)state;
    build(COLL_ALLREDUCE, "direct", 3, 6);
    find_step(2, STEP_SEND, 0)->at.offset += 5;
    expect_caught("reaches beyond its buffer");
    build(COLL_ALLREDUCE, "direct", 3, 6);
    source_of(2, find_step(2, STEP_REDUCE, 0), 1)->offset += 100;
    expect_caught("has a wrong length or place");
}

/* The right elements in the wrong places. */
static void test_shifted_elements(void **state)
{
    (void)state;
    build(COLL_ALLREDUCE, "direct", 3, 6);
    find_step(0, STEP_SEND, 0)->at.offset -= 1;
    expect_caught("it adds element");
    build(COLL_ALLGATHER, "direct", 3, 4);
    struct schedule_step *first = find_step(0, STEP_RECV, 0), *second = find_step(0, STEP_RECV, 1);
    struct schedule_span kept = first->at;
    first->at = second->at;
    second->at = kept;
    expect_caught("should be one rank's input element");
}

static void test_unwritten_scratch(void **state)
{
    (void)state;
    build(COLL_ALLREDUCE, "direct", 3, 6);
    struct schedule *schedule = group.schedules[1];
    source_of(1, find_step(1, STEP_REDUCE, 0), 0)->offset = schedule->scratch_count++;
    source_of(1, find_step(1, STEP_REDUCE, 0), 0)->offset = schedule->scratch_count++ - 1;
    expect_caught("scratch that was never written");
}

/* A gap between blocks is the caller's. */
static void test_write_between_blocks(void **state)
{
    (void)state;
    one = (struct coll_case){.algorithm = coll_find(COLL_ALLGATHER, "direct"),
                             .size = 4,
                             .count = 4,
                             .segment_count = 100,
                             .hosts = HOSTS_EACH,
                             .is_v = true};
    assert_true(case_shapes(&one, &group));
    assert_int_equal(case_schedules(&one, &group), SHOAL_OK);
    struct schedule *schedule = group.schedules[0];
    struct schedule_step *copy = &schedule->steps[schedule->step_count - 1];
    assert_int_equal(copy->kind, STEP_COPY);
    copy->at.offset = 0;
    copy->at.count = source_of(0, copy, 0)->count = 1;
    expect_caught("output element");
}

static void test_wait_counts_that_lie(void **state)
{
    (void)state;
    build(COLL_ALLREDUCE, "ring", 3, 3);
    find_step(0, STEP_REDUCE, 0)->wait_count++;
    expect_caught("says that it waits for");
}

static void test_edges_backward(void **state)
{
    (void)state;
    build(COLL_ALLREDUCE, "ring", 3, 3);
    struct schedule_step *step = find_step(0, STEP_REDUCE, 0);
    group.schedules[0]->edges[step->after_first] = 0;
    expect_caught("does not lead forward");
}

/* ---- the rounding of 16-bit floats --------------------------------------------------------- */

/* Schedules that keep partial sums as wide as elements, which is right but for 16-bit floats. */
static void test_partial_sums_in_16_bits(void **state)
{
    (void)state;
    int staged = 0;
    for (int i = 0; coll_algorithms()[i]; i++) {
        const struct coll_algorithm *algorithm = coll_algorithms()[i];
        if (algorithm->one_reduce)
            continue;
        build(algorithm->kind, algorithm->name, 5, 12);
        for (int rank = 0; rank < 5; rank++) {
            group.shapes[rank].elem_bytes = 2;
            group.shapes[rank].wide_sums = true;
        }
        expect_caught("rounds a sum that is not final");
        staged++;
    }
    assert_int_equal(staged, 10);
}

/* The first sum of a block is rounded as if it were complete, and goes on into the second one. */
static void test_a_sum_rounded_twice(void **state)
{
    (void)state;
    build_width(COLL_REDUCE_SCATTER, "pairwise", 3, 2, true);
    struct schedule_step *first = find_step(0, STEP_REDUCE, 0);
    struct schedule_step *second = find_step(0, STEP_REDUCE, 1);
    assert_int_equal(first->at.buffer, BUFFER_WIDE);
    first->at = second->at;
    *source_of(0, second, 0) = second->at;
    struct schedule_step partial = *first;
    first->final = true;
    expect_caught("it reduces a sum that is already final");
    build_width(COLL_REDUCE_SCATTER, "pairwise", 3, 2, true);
    *find_step(0, STEP_REDUCE, 0) = partial;
    expect_caught("rounds a sum that is not final");
}

/* A copy to 16 bits rounds too. */
static void test_a_sum_rounded_by_a_copy(void **state)
{
    (void)state;
    build_width(COLL_ALLREDUCE, "two_level", 4, 8, true);
    struct schedule_step *step = find_step(0, STEP_REDUCE, 1);
    assert_int_equal(source_of(0, step, 0)->buffer, BUFFER_WIDE);
    step->kind = STEP_COPY;
    step->source_count = 1;
    step->final = false;
    expect_caught("rounds a sum that is not final");
}

static void test_a_result_left_in_f32(void **state)
{
    (void)state;
    build_width(COLL_ALLREDUCE, "ring", 3, 3, true);
    find_step(0, STEP_REDUCE, 0)->final = true;
    expect_caught("is final, but leaves its sum in f32");
}

static void test_a_sum_received_in_16_bits(void **state)
{
    (void)state;
    build_width(COLL_ALLREDUCE, "ring", 3, 3, true);
    struct schedule_step *step = find_step(1, STEP_RECV, 1);
    assert_int_equal(step->at.buffer, BUFFER_WIDE);
    step->at = span_of(BUFFER_SCRATCH, group.schedules[1]->scratch_count++, 1);
    *source_of(1, find_step(1, STEP_REDUCE, 1), 0) = step->at;
    expect_caught("gets elements of another width");
}

static void test_f32_sums_of_other_types(void **state)
{
    (void)state;
    build_width(COLL_REDUCE, "two_level", 4, 8, true);
    for (int rank = 0; rank < 4; rank++)
        group.shapes[rank].wide_sums = false;
    expect_caught("has f32 sums, but no 16-bit floats");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_step_missing),
        cmocka_unit_test(test_barrier_without_one_signal),
        cmocka_unit_test(test_sources_swapped_on_one_rank),
        cmocka_unit_test(test_a_contribution_twice),
        cmocka_unit_test(test_a_contribution_missing),
        cmocka_unit_test(test_division_missing_or_early),
        cmocka_unit_test(test_a_dependency_missing),
        cmocka_unit_test(test_crossed_messages_deadlock),
        cmocka_unit_test(test_blocking_sends_deadlock),
        cmocka_unit_test(test_lengths_that_differ),
        cmocka_unit_test(test_message_numbers_out_of_order),
        cmocka_unit_test(test_write_to_input),
        cmocka_unit_test(test_beyond_a_buffer),
        cmocka_unit_test(test_shifted_elements),
        cmocka_unit_test(test_unwritten_scratch),
        cmocka_unit_test(test_write_between_blocks),
        cmocka_unit_test(test_wait_counts_that_lie),
        cmocka_unit_test(test_edges_backward),
        cmocka_unit_test(test_partial_sums_in_16_bits),
        cmocka_unit_test(test_a_sum_rounded_twice),
        cmocka_unit_test(test_a_sum_rounded_by_a_copy),
        cmocka_unit_test(test_a_result_left_in_f32),
        cmocka_unit_test(test_a_sum_received_in_16_bits),
        cmocka_unit_test(test_f32_sums_of_other_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
