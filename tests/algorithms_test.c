/* SPDX-License-Identifier: Apache-2.0 */
/*
 * algorithms_test.c: the engine runs every algorithm, over inproc, against a plain reference.
 *
 * All ranks, counts, places, roots, segments, ways to send (eager or granted), hosts and orders of
 * start would be millions of cases, so the grid turns the last four by the number of the case:
 * each value of each meets all algorithms and sizes many times over. Dtypes and ops have a grid of
 * their own on few ranks. Results are compared bit by bit, together with all that lies around them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernel/kernel.h"
#include "support/engines.h"
#include "support/operation.h"

#define TIMEOUT_MS   10000
#define COUNT_OF(at) (sizeof(at) / sizeof((at)[0]))

static void must(enum shoal_status status)
{
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
}

/* ---- one case
 * --------------------------------------------------------------------------------------- */

enum start_order { START_FORWARD, START_BACKWARD, START_LATE, START_ORDERS };

static void start_all(struct operation *operation, enum start_order order)
{
    int size = operation->group->size;
    for (int i = 0; i < size; i++) {
        must(operation_start(operation, order == START_BACKWARD ? size - 1 - i : i, false));
        if (order == START_LATE) /* the rest of the ranks find early frames */
            engines_settle(operation->group->engines);
    }
}

static void finish(struct operation *operation)
{
    char text[512];
    if (!operation_done(operation))
        fail_msg("%s: hangs", operation_text(&operation->options));
    for (int i = 0; i < operation->group->size; i++)
        if (operation->rank[i].status != SHOAL_OK)
            fail_msg("%s: rank %d: %s", operation_text(&operation->options), i,
                     operation->rank[i].text);
    if (!operation_end(operation, text, sizeof(text)))
        fail_msg("%s", text);
}

/* True if the algorithm does the shape. */
static bool run_case(struct engines_group *group, const struct operation_options *options,
                     enum start_order order)
{
    struct operation *operation = NULL;
    bool fits;
    must(operation_create(options, group, &fits, &operation));
    if (!fits)
        return false;
    start_all(operation, order);
    engines_settle(group->engines);
    finish(operation);
    return true;
}

/* ---- rigs: engines and a group per number of ranks and way to send
 * ---------------------------------------------------------------------------------------------- */

static const uint64_t eager_sizes[] = {0, 64, 16384};
#define EAGER_COUNT 3

struct rig {
    struct engines *engines[EAGER_COUNT];
    struct engines_group *group[EAGER_COUNT];
};

static void rig_open(struct rig *rig, int size)
{
    for (int i = 0; i < EAGER_COUNT; i++) {
        struct engines_options options = {
            .size = size, .eager_bytes = eager_sizes[i], .late_seed = i == 1 && size <= 6};
        must(engines_open(&options, &rig->engines[i]));
        must(engines_group_open(rig->engines[i], NULL, size, NULL, 7, TIMEOUT_MS, &rig->group[i]));
    }
}

static void rig_close(struct rig *rig)
{
    for (int i = 0; i < EAGER_COUNT; i++) {
        engines_group_close(rig->group[i]);
        engines_close(rig->engines[i]);
    }
}

static bool has_root(enum coll_kind kind)
{
    return kind == COLL_REDUCE || kind == COLL_BROADCAST || kind == COLL_GATHER ||
           kind == COLL_SCATTER;
}

static bool reduces(enum coll_kind kind)
{
    return kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER;
}

static bool sees_hosts(const struct coll_algorithm *algorithm)
{
    return strcmp(algorithm->name, "two_level") == 0;
}

/* Runs the case with what the running number turns: segment, way to send, hosts, order. */
static bool run_turned(struct rig *rig, struct operation_options options, unsigned turn)
{
    static const uint64_t segments[] = {100000, 3, 64, 1};
    uint64_t count = options.coll.count;
    unsigned segment = turn / 3 % 4;
    if (segment == 3 && count > 65) /* a step per element: only where these are few */
        segment = 2;
    if (segment == 1 && count > 300)
        segment = 2;
    options.coll.segment_count = segments[segment];
    options.coll.hosts = (enum case_hosts)(turn / 12 % HOSTS_LAYOUTS);
    options.seed = turn;
    return run_case(rig->group[turn % EAGER_COUNT], &options,
                    (enum start_order)(turn / 5 % START_ORDERS));
}

/* ---- every algorithm on 1 to 17 ranks
 * --------------------------------------------------------------- */

static unsigned turn;
static unsigned cases_of[64];

static void run_places(struct rig *rig, int number, struct operation_options options)
{
    int size = options.coll.size;
    enum coll_kind kind = options.coll.algorithm->kind;
    int roots[] = {0, size - 1, size / 2};
    int root_count = !has_root(kind) || size == 1 ? 1 : 2 + (size > 2);
    int place_count = case_has_in_place(kind) ? PLACE_COUNT : 1;
    for (int root = 0; root < root_count; root++)
        for (int place = 0; place < place_count; place++) {
            options.coll.root = roots[root];
            options.coll.in_place = (enum case_in_place)place;
            options.dtype = turn / 2 % 2 ? SHOAL_I32 : SHOAL_F32;
            cases_of[number] += run_turned(rig, options, turn++);
        }
}

static void run_counts(struct rig *rig, int number, struct operation_options options)
{
    static const uint64_t whole[] = {0, 1, 251, 1024, 1025}, blocks[] = {0, 1, 13, 64, 65};
    bool has_blocks = case_has_v(options.coll.algorithm->kind);
    for (size_t i = 0; i < COUNT_OF(whole); i++) {
        options.coll.count = has_blocks ? blocks[i] : whole[i];
        run_places(rig, number, options);
    }
}

static void test_all_sizes(void **state)
{
    (void)state;
    for (int size = 1; size <= ENGINES_MAX; size++) {
        struct rig rig;
        rig_open(&rig, size);
        for (int i = 0; coll_algorithms()[i]; i++) {
            struct operation_options options = {
                .coll = {.algorithm = coll_algorithms()[i], .size = size}};
            run_counts(&rig, i, options);
        }
        rig_close(&rig);
    }
    for (int i = 0; coll_algorithms()[i]; i++)
        if (cases_of[i] == 0)
            fail_msg("%s %s was never run", comm_kind_name(coll_algorithms()[i]->kind),
                     coll_algorithms()[i]->name);
}

/* Messages of several rings and several windows of segments. */
static void test_long_buffers(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 8};
    for (size_t k = 0; k < COUNT_OF(sizes); k++) {
        struct rig rig;
        rig_open(&rig, sizes[k]);
        for (int i = 0; coll_algorithms()[i]; i++)
            for (unsigned way = 0; way < 2 * EAGER_COUNT; way++) {
                struct operation_options options = {
                    .coll = {.algorithm = coll_algorithms()[i],
                             .size = sizes[k],
                             .count = case_has_v(coll_algorithms()[i]->kind) ? 9001 : 30011,
                             .segment_count = way < EAGER_COUNT ? 1000 : 100000,
                             .hosts = HOSTS_PAIRS},
                    .dtype = SHOAL_F32,
                    .seed = way};
                run_case(rig.group[way % EAGER_COUNT], &options, START_FORWARD);
            }
        rig_close(&rig);
    }
}

/* ---- v forms
 * ---------------------------------------------------------------------------------------- */

static void test_v_forms(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 8, 13, 16, 17};
    for (size_t k = 0; k < COUNT_OF(sizes); k++) {
        struct rig rig;
        rig_open(&rig, sizes[k]);
        for (int i = 0; coll_algorithms()[i]; i++) {
            if (!case_has_v(coll_algorithms()[i]->kind))
                continue;
            for (uint64_t count = 1; count < 60; count = 3 * count + 1) {
                struct operation_options options = {.coll = {.algorithm = coll_algorithms()[i],
                                                             .size = sizes[k],
                                                             .count = count,
                                                             .is_v = true},
                                                    .dtype = SHOAL_F32};
                run_places(&rig, i, options);
            }
        }
        rig_close(&rig);
    }
}

/* ---- dtypes and operations
 * --------------------------------------------------------------------------- */

static void run_dtype(struct rig *rig, struct operation_options options, enum shoal_dtype dtype,
                      enum shoal_op op)
{
    static const uint64_t counts[] = {1, 37};
    if (!kernel_supports(dtype, op))
        return;
    if (op == SHOAL_PREMUL_SUM && options.coll.algorithm->kind == COLL_REDUCE)
        return;
    options.dtype = dtype;
    options.op = op;
    int place_count = case_has_in_place(options.coll.algorithm->kind) ? PLACE_COUNT : 1;
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        for (int place = 0; place < place_count; place++) {
            options.coll.count = counts[i];
            options.coll.in_place = (enum case_in_place)place;
            options.coll.root = (int)turn % options.coll.size;
            run_turned(rig, options, turn++);
        }
}

static void test_dtypes_and_ops(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t k = 0; k < COUNT_OF(sizes); k++) {
        struct rig rig;
        rig_open(&rig, sizes[k]);
        for (int i = 0; coll_algorithms()[i]; i++) {
            struct operation_options options = {
                .coll = {.algorithm = coll_algorithms()[i], .size = sizes[k]}};
            int ops = reduces(options.coll.algorithm->kind) ? SHOAL_OP_COUNT : 1;
            for (int dtype = 0; dtype < SHOAL_DTYPE_COUNT; dtype++)
                for (int op = 0; op < ops; op++)
                    run_dtype(&rig, options, (enum shoal_dtype)dtype, (enum shoal_op)op);
        }
        rig_close(&rig);
    }
}

/* ---- the order of sums
 * ------------------------------------------------------------------------------- */

/* Inputs that round: the same bits on all ranks; with one reduce those of the plain reference; with
 * one tree the same wherever an element lies. */
static void test_order_of_sums(void **state)
{
    (void)state;
    static const enum shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_F64, SHOAL_F16, SHOAL_BF16,
                                              SHOAL_COMPLEX64};
    static const enum shoal_op ops[] = {SHOAL_SUM, SHOAL_AVG, SHOAL_PROD};
    for (int size = 2; size <= ENGINES_MAX; size += size < 9 ? 1 : 4) {
        struct rig rig;
        rig_open(&rig, size);
        for (int i = 0; coll_algorithms()[i]; i++) {
            if (!reduces(coll_algorithms()[i]->kind))
                continue;
            for (unsigned k = 0; k < COUNT_OF(dtypes) * COUNT_OF(ops) * 2; k++) {
                struct operation_options options = {
                    .coll = {.algorithm = coll_algorithms()[i], .size = size, .count = 257},
                    .dtype = dtypes[k % COUNT_OF(dtypes)],
                    .op = ops[k / COUNT_OF(dtypes) % COUNT_OF(ops)],
                    .values = k % 2 ? VALUES_PERIODIC : VALUES_ANY};
                run_turned(&rig, options, turn++);
            }
        }
        rig_close(&rig);
    }
}

/* ---- 16-bit floats
 * ---------------------------------------------------------------------------------------------- */

static const struct operation_options *halves_of(int number, int size, unsigned way)
{
    static const enum shoal_op ops[] = {SHOAL_SUM, SHOAL_AVG, SHOAL_PROD};
    static const uint64_t segments[] = {100000, 3, 16};
    static struct operation_options options;
    options = (struct operation_options){
        .coll = {.algorithm = coll_algorithms()[number],
                 .size = size,
                 .root = (int)way % size,
                 .count = way % 5 == 0 ? 1 : 133,
                 .segment_count = segments[way % COUNT_OF(segments)],
                 .hosts = (enum case_hosts)(way % HOSTS_LAYOUTS),
                 .in_place = (enum case_in_place)(way / 2 % PLACE_COUNT)},
        .dtype = way % 2 ? SHOAL_F16 : SHOAL_BF16,
        .op = ops[way / 6 % COUNT_OF(ops)],
        .seed = way};
    return &options;
}

#define HALVES_WAYS \
    60 /* each host layout with each dtype and op, and with each segment and place */

/* Whatever the tree, its sums in f32 are the same here, and one rounding gives the bits of the
 * plain reference; a sum that was in 16 bits on its way does not. */
static void test_halves_are_rounded_once(void **state)
{
    (void)state;
    for (int size = 1; size <= ENGINES_MAX; size++) {
        struct rig rig;
        rig_open(&rig, size);
        for (int i = 0; coll_algorithms()[i]; i++)
            for (unsigned way = 0; way < HALVES_WAYS && reduces(coll_algorithms()[i]->kind);
                 way += sees_hosts(coll_algorithms()[i]) ? 1 : 7) {
                struct operation_options options = *halves_of(i, size, way);
                options.values = VALUES_HALVES;
                run_case(rig.group[way % EAGER_COUNT], &options,
                         (enum start_order)(way / 5 % START_ORDERS));
            }
        rig_close(&rig);
    }
}

/* Runs an allreduce and keeps its result. */
static bool keep_result(struct engines_group *group, const struct operation_options *options,
                        enum start_order order, unsigned char *result)
{
    struct operation *operation = NULL;
    bool fits;
    must(operation_create(options, group, &fits, &operation));
    if (!fits)
        return false;
    start_all(operation, order);
    engines_settle(group->engines);
    memcpy(result, operation->result, operation->sum_count * operation->elem_bytes);
    finish(operation);
    return true;
}

/* Sums that depend on the order have the same bits however messages are sent and ranks start. */
static void test_repetitions(void **state)
{
    (void)state;
    static unsigned char first[1024], again[1024];
    for (int size = 2; size <= ENGINES_MAX; size += 5) {
        struct rig rig;
        rig_open(&rig, size);
        for (int i = 0; coll_algorithms()[i]; i++)
            for (unsigned way = 0; way < 10 && coll_algorithms()[i]->kind == COLL_ALLREDUCE;
                 way++) {
                struct operation_options options = *halves_of(i, size, way);
                options.values = VALUES_ANY;
                if (!keep_result(rig.group[0], &options, START_FORWARD, first))
                    continue;
                for (int k = 0; k < EAGER_COUNT; k++) {
                    keep_result(rig.group[k], &options, (enum start_order)k, again);
                    assert_memory_equal(again, first, 2 * options.coll.count);
                }
            }
        rig_close(&rig);
    }
}

/* ---- several at once
 * --------------------------------------------------------------------------------- */

#define GROUPS    3
#define PER_GROUP 12
#define RANKS     6

struct crowd {
    struct engines_group *groups[GROUPS];
    struct operation *operations[GROUPS][PER_GROUP];
    int next[GROUPS][RANKS]; /* the operation to start next, per group and group rank */
};

static void crowd_open(struct crowd *crowd, struct engines *engines)
{
    static const int members[GROUPS][RANKS] = {{0, 1, 2, 3, 4, 5}, {5, 3, 1}, {4, 0, 2, 5, 3, 1}};
    static const int sizes[GROUPS] = {6, 3, 6};
    memset(crowd, 0, sizeof(*crowd));
    int algorithm_count = 0;
    while (coll_algorithms()[algorithm_count])
        algorithm_count++;
    for (int g = 0; g < GROUPS; g++) {
        must(engines_group_open(engines, members[g], sizes[g], NULL, (uint64_t)(40 + g), TIMEOUT_MS,
                                &crowd->groups[g]));
        for (int k = 0; k < PER_GROUP; k++) {
            struct operation_options options = {.dtype = SHOAL_I32, .seed = turn++};
            bool fits = false;
            for (unsigned i = turn; !fits; i++) {
                options.coll = (struct coll_case){
                    .algorithm = coll_algorithms()[i % (unsigned)algorithm_count],
                    .size = sizes[g],
                    .count = 20 + 50 * (turn % 5),
                    .root = (int)turn % sizes[g],
                    .segment_count = 16,
                    .hosts = HOSTS_PAIRS};
                must(operation_create(&options, crowd->groups[g], &fits, &crowd->operations[g][k]));
            }
        }
    }
}

/* Each rank starts its operations in the order of each group, but goes through the groups as its
 * own dice say. */
static void crowd_start(struct crowd *crowd, struct engines *engines, unsigned dice)
{
    for (int left = PER_GROUP * (6 + 3 + 6); left > 0;) {
        dice = dice * 1664525u + 1013904223u;
        int g = (int)(dice >> 8) % GROUPS, rank = (int)(dice >> 16) % crowd->groups[g]->size;
        int *next = &crowd->next[g][rank];
        if (*next < PER_GROUP) {
            must(operation_start(crowd->operations[g][(*next)++], rank, false));
            left--;
        }
        if (dice >> 28 == 0)
            engines_poll(engines);
    }
}

static void test_many_at_once(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 30; round++) {
        struct engines_options options = {.size = RANKS,
                                          .eager_bytes = eager_sizes[round % EAGER_COUNT]};
        struct engines *engines;
        struct crowd crowd;
        must(engines_open(&options, &engines));
        crowd_open(&crowd, engines);
        crowd_start(&crowd, engines, round);
        engines_settle(engines);
        for (int g = 0; g < GROUPS; g++)
            for (int k = 0; k < PER_GROUP; k++)
                finish(crowd.operations[g][k]);
        for (int g = 0; g < GROUPS; g++)
            engines_group_close(crowd.groups[g]);
        engines_close(engines);
    }
}

/* ---- windows
 * ---------------------------------------------------------------------------------------- */

#define AHEAD 300

/* One rank is hundreds of small operations ahead: more than the receivers have slots for. */
static void test_far_ahead(void **state)
{
    (void)state;
    static const char *const names[] = {"binomial", "direct", "chain"};
    for (int i = 0; i < 3; i++) {
        struct engines_options engines_options = {.size = 4, .eager_bytes = 1024};
        struct engines *engines;
        struct engines_group *group;
        static struct operation *operations[AHEAD];
        must(engines_open(&engines_options, &engines));
        must(engines_group_open(engines, NULL, 4, NULL, 9, TIMEOUT_MS, &group));
        for (int k = 0; k < AHEAD; k++) {
            struct operation_options options = {
                .coll = {.algorithm = coll_find(COLL_BROADCAST, names[i]),
                         .size = 4,
                         .count = 20,
                         .segment_count = 1000},
                .dtype = SHOAL_F32,
                .seed = (uint64_t)k};
            bool fits;
            must(operation_create(&options, group, &fits, &operations[k]));
        }
        for (int rank = 0; rank < 4; rank++) {
            for (int k = 0; k < AHEAD; k++)
                must(operation_start(operations[k], rank, false));
            engines_settle(engines);
        }
        for (int k = 0; k < AHEAD; k++)
            finish(operations[k]);
        engines_group_close(group);
        engines_close(engines);
    }
}

/* ---- no allocation
 * ----------------------------------------------------------------------------------- */

/* Runs one of each kind by the cache; returns the allocations that starting and running took. */
static uint64_t allocations_of_round(struct engines_group *group, unsigned round)
{
    uint64_t taken = 0;
    for (int i = 0; coll_algorithms()[i]; i++) {
        const struct coll_algorithm *algorithm = coll_algorithms()[i];
        if (strcmp(algorithm->name, "direct") != 0)
            continue;
        struct operation_options options = {
            .coll = {.algorithm = algorithm,
                     .size = group->size,
                     .count = 500,
                     .segment_count = 50},
            .dtype = SHOAL_F32,
            .op = algorithm->kind == COLL_ALLREDUCE ? SHOAL_PREMUL_SUM : SHOAL_SUM,
            .seed = round};
        struct operation *operation;
        bool fits;
        must(operation_create(&options, group, &fits, &operation));
        uint64_t before = base_memory_count();
        for (int rank = 0; rank < group->size; rank++) {
            must(operation_start(operation, rank, true));
            engines_settle(group->engines);
        }
        taken += base_memory_count() - before;
        finish(operation);
    }
    return taken;
}

static void test_no_allocation_once_seen(void **state)
{
    (void)state;
    for (int i = 0; i < EAGER_COUNT; i++) {
        struct engines_options options = {.size = 5, .eager_bytes = eager_sizes[i]};
        struct engines *engines;
        struct engines_group *group;
        must(engines_open(&options, &engines));
        must(engines_group_open(engines, NULL, 5, NULL, 9, TIMEOUT_MS, &group));
        assert_true(allocations_of_round(group, 0) > 0);
        for (unsigned round = 1; round < 4; round++)
            assert_int_equal(allocations_of_round(group, round), 0);
        engines_group_close(group);
        engines_close(engines);
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
        TEST(test_all_sizes),     TEST(test_long_buffers),
        TEST(test_v_forms),       TEST(test_dtypes_and_ops),
        TEST(test_order_of_sums), TEST(test_halves_are_rounded_once),
        TEST(test_repetitions),   TEST(test_many_at_once),
        TEST(test_far_ahead),     TEST(test_no_allocation_once_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
