/* SPDX-License-Identifier: Apache-2.0 */
/* queue_test.c: which of the tasks on a rank runs next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "pipe/queue.h"

static struct pipe_task *add(struct pipe_queue *queue, enum shoal_pipe_kind kind, int microbatch,
                             int missing)
{
    struct pipe_task *task = NULL;
    assert_int_equal(BASE_NEW(&task, "a task"), SHOAL_OK);
    task->task.kind = kind;
    task->task.microbatch = microbatch;
    task->missing = missing;
    assert_int_equal(pipe_queue_add(queue, task), SHOAL_OK);
    return task;
}

/* "F1" for a forward of microbatch 1; "-" for none. */
static void expect(struct pipe_queue *queue, const char *what)
{
    static const char letters[] = "CRBFS";
    struct pipe_task *task = pipe_queue_take(queue, true);
    char text[8] = "-";
    if (task) {
        text[0] = letters[task->task.kind];
        text[1] = (char)('0' + task->task.microbatch);
        text[2] = '\0';
    }
    assert_string_equal(text, what);
    base_free(task);
}

static void test_interleaved(void **state)
{
    (void)state;
    struct pipe_queue queue;
    pipe_queue_init(&queue, SHOAL_PIPE_INTERLEAVED, 0, 0);
    add(&queue, SHOAL_PIPE_START, 2, 0);
    add(&queue, SHOAL_PIPE_FORWARD, 1, 0);
    add(&queue, SHOAL_PIPE_FORWARD, 0, 0);
    add(&queue, SHOAL_PIPE_BACKWARD, 3, 0);
    add(&queue, SHOAL_PIPE_BACKWARD, 1, 0);
    add(&queue, SHOAL_PIPE_RESUME, 4, 0);
    add(&queue, SHOAL_PIPE_CONTROL, 5, 0);
    expect(&queue, "C5");
    expect(&queue, "R4");
    expect(&queue, "B1");
    expect(&queue, "B3");
    expect(&queue, "F0");
    expect(&queue, "F1");
    expect(&queue, "S2");
    expect(&queue, "-");
    pipe_queue_release(&queue);
}

static struct pipe_task *add_keeping(struct pipe_queue *queue, int microbatch)
{
    struct pipe_task *task = add(queue, SHOAL_PIPE_FORWARD, microbatch, 0);
    task->task.keeps = 1;
    return task;
}

static void test_room(void **state)
{
    (void)state;
    struct pipe_queue queue;
    pipe_queue_init(&queue, SHOAL_PIPE_INTERLEAVED, 0, 2);
    for (int i = 1; i < 6; i++)
        add_keeping(&queue, i);
    add_keeping(&queue, 1); /* a second call of the same */
    expect(&queue, "F1");
    expect(&queue, "F1");
    expect(&queue, "F2");
    expect(&queue, "-");
    add_keeping(&queue, 2);
    add(&queue, SHOAL_PIPE_FORWARD, 4, 0);
    expect(&queue, "F2"); /* it is kept already */
    expect(&queue, "F4"); /* keeps nothing */
    add_keeping(&queue, 0);
    expect(&queue, "F0"); /* the earliest, over the limit */
    add(&queue, SHOAL_PIPE_BACKWARD, 1, 0);
    expect(&queue, "B1");
    expect(&queue, "-");
    add(&queue, SHOAL_PIPE_BACKWARD, 1, 0);
    expect(&queue, "B1");
    expect(&queue, "-"); /* 0 and 2 are left */
    pipe_queue_over(&queue, 2);
    pipe_queue_over(&queue, 99);
    pipe_queue_over(&queue, -1);
    expect(&queue, "F3");
    expect(&queue, "-");
    pipe_queue_end_step(&queue);
    expect(&queue, "F4");
    expect(&queue, "F5");
    expect(&queue, "-");
    pipe_queue_release(&queue);
}

static void test_waiting(void **state)
{
    (void)state;
    struct pipe_queue queue;
    pipe_queue_init(&queue, SHOAL_PIPE_INTERLEAVED, 0, 0);
    struct pipe_task *first = add(&queue, SHOAL_PIPE_FORWARD, 0, 1);
    struct pipe_task *second = add(&queue, SHOAL_PIPE_FORWARD, 0, 2);
    struct pipe_task *third = add(&queue, SHOAL_PIPE_FORWARD, 0, 1);
    assert_ptr_equal(queue.first_waiting, first);
    expect(&queue, "-");
    pipe_queue_ready(&queue, third);
    pipe_queue_ready(&queue, first);
    assert_ptr_equal(queue.first_waiting, second);
    assert_ptr_equal(pipe_queue_take(&queue, true), first); /* it came first */
    assert_ptr_equal(pipe_queue_take(&queue, true), third);
    assert_int_equal(queue.count, 1);
    base_free(first);
    base_free(third);
    pipe_queue_release(&queue);
}

static void test_outside_of_a_step(void **state)
{
    (void)state;
    struct pipe_queue queue;
    pipe_queue_init(&queue, SHOAL_PIPE_INTERLEAVED, 0, 0);
    add(&queue, SHOAL_PIPE_RESUME, 0, 0);
    assert_null(pipe_queue_take(&queue, false));
    struct pipe_task *control = add(&queue, SHOAL_PIPE_CONTROL, 0, 0);
    assert_ptr_equal(pipe_queue_take(&queue, false), control);
    base_free(control);
    expect(&queue, "R0");
    pipe_queue_release(&queue);
}

/* As many microbatches under way as allowed; in either order. */
static void test_active(void **state)
{
    (void)state;
    for (int order = SHOAL_PIPE_INTERLEAVED; order <= SHOAL_PIPE_SIMPLE; order++) {
        struct pipe_queue queue;
        pipe_queue_init(&queue, (enum shoal_pipe_order)order, 2, 0);
        for (int i = 0; i < 4; i++)
            add(&queue, SHOAL_PIPE_START, i, 0);
        expect(&queue, "S0");
        expect(&queue, "S1");
        expect(&queue, "-");
        add(&queue, SHOAL_PIPE_BACKWARD, 1, 0);
        expect(&queue, "B1"); /* what is held does not hold what makes place for it */
        queue.active--;
        expect(&queue, "S2");
        expect(&queue, "-");
        pipe_queue_end_step(&queue);
        expect(&queue, "S3");
        pipe_queue_release(&queue);
    }
}

/* No backward before all forwards; but what is behind its own backward does not count. */
/* Backwards that are asked for long before they can run. */
static void test_simple_with_backwards_from_the_start(void **state)
{
    (void)state;
    struct pipe_queue queue;
    pipe_queue_init(&queue, SHOAL_PIPE_SIMPLE, 0, 0);
    struct pipe_task *forward = NULL, *backward[2] = {NULL};
    for (int i = 0; i < 2; i++)
        forward = add(&queue, SHOAL_PIPE_FORWARD, i, i);
    for (int i = 0; i < 2; i++)
        backward[i] = add(&queue, SHOAL_PIPE_BACKWARD, i, 1);
    expect(&queue, "F0");
    pipe_queue_ready(&queue, backward[0]);
    expect(&queue, "-"); /* microbatch 1 is not as far */
    pipe_queue_ready(&queue, forward);
    add(&queue, SHOAL_PIPE_FORWARD, 1, 1); /* computes again, for the backward */
    expect(&queue, "F1");
    expect(&queue, "B0");
    pipe_queue_ready(&queue, backward[1]);
    expect(&queue, "B1");
    pipe_queue_release(&queue);
}

static void test_simple(void **state)
{
    (void)state;
    struct pipe_queue queue;
    pipe_queue_init(&queue, SHOAL_PIPE_SIMPLE, 0, 0);
    add(&queue, SHOAL_PIPE_START, 0, 0);
    add(&queue, SHOAL_PIPE_START, 1, 0);
    expect(&queue, "S0");
    struct pipe_task *resume = add(&queue, SHOAL_PIPE_RESUME, 0, 1);
    expect(&queue, "S1");
    add(&queue, SHOAL_PIPE_BACKWARD, 1, 0);
    expect(&queue, "-"); /* microbatch 0 goes on forward */
    pipe_queue_ready(&queue, resume);
    expect(&queue, "R0");
    add(&queue, SHOAL_PIPE_BACKWARD, 0, 0);
    add(&queue, SHOAL_PIPE_FORWARD, 0, 0);
    struct pipe_task *later = add(&queue, SHOAL_PIPE_RESUME, 0, 1);
    expect(&queue, "F0");
    expect(&queue, "B0");
    expect(&queue, "B1"); /* the resume that waits is one of its backward */
    pipe_queue_ready(&queue, later);
    expect(&queue, "R0");
    pipe_queue_release(&queue);
}

/* What is listed comes in the list's order, whatever else is ready; the other kinds as ever. */
static void test_list(void **state)
{
    (void)state;
    struct pipe_queue queue;
    const struct shoal_pipe_run runs[] = {{.kind = SHOAL_PIPE_FORWARD, .microbatch = 1},
                                          {.kind = SHOAL_PIPE_BACKWARD, .microbatch = 1},
                                          {.kind = SHOAL_PIPE_FORWARD, .microbatch = 0}};
    pipe_queue_init(&queue, SHOAL_PIPE_SIMPLE, 0, 0);
    assert_int_equal(pipe_queue_set_list(&queue, runs, 3), SHOAL_OK);
    for (int step = 0; step < 2; step++) {
        add(&queue, SHOAL_PIPE_FORWARD, 0, 0);
        add(&queue, SHOAL_PIPE_BACKWARD, 1, 0);
        expect(&queue, "-");
        add(&queue, SHOAL_PIPE_RESUME, 2, 0);
        struct pipe_task *waits = add(&queue, SHOAL_PIPE_FORWARD, 1, 1);
        expect(&queue, "R2");
        expect(&queue, "-");
        pipe_queue_ready(&queue, waits);
        expect(&queue, "F1");
        expect(&queue, "B1");
        expect(&queue, "F0");
        pipe_queue_end_step(&queue);
    }
    add(&queue, SHOAL_PIPE_BACKWARD, 0, 0);
    expect(&queue, "-");
    assert_int_equal(pipe_queue_set_list(&queue, NULL, 0), SHOAL_OK);
    expect(&queue, "B0");
    pipe_queue_release(&queue);
}

/* Random tasks come out by kind and microbatch, and in the order in which they came. */
static void test_heaps(void **state)
{
    (void)state;
    struct pipe_queue queue;
    uint64_t random = 1;
    pipe_queue_init(&queue, SHOAL_PIPE_INTERLEAVED, 0, 0);
    for (int i = 0; i < 3000; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        add(&queue, (enum shoal_pipe_kind)((random >> 33) % SHOAL_PIPE_KIND_COUNT),
            (int)(random >> 50) % 50, 0);
    }
    struct pipe_task *last = pipe_queue_take(&queue, true);
    for (int i = 1; i < 3000; i++) {
        struct pipe_task *task = pipe_queue_take(&queue, true);
        assert_non_null(task);
        const struct shoal_pipe_task *a = &last->task, *b = &task->task;
        bool rises = a->kind != b->kind               ? a->kind < b->kind
                     : a->microbatch != b->microbatch ? a->microbatch < b->microbatch
                                                      : last->number < task->number;
        assert_true(rises);
        base_free(last);
        last = task;
    }
    base_free(last);
    assert_null(pipe_queue_take(&queue, true));
    assert_int_equal(queue.count, 0);
    pipe_queue_release(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_outside_of_a_step),
        cmocka_unit_test(test_active),
        cmocka_unit_test(test_simple),
        cmocka_unit_test(test_simple_with_backwards_from_the_start),
        cmocka_unit_test(test_heaps),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
