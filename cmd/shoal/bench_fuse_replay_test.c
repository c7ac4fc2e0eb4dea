/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_fuse_replay_test.c: the replay finds a wrong sum, wherever it lies. Includes the sources
 * because the command's files are in no library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "bench_fuse_replay.c"
#include "bench_pattern.c"
#include "sort.c"

#define TENSORS  4
#define ELEMENTS 1000
#define RANKS    3

static struct model_tensor model_tensors[TENSORS] = {
    {.count = 700}, {.count = 1}, {.count = 199}, {.count = 100}};
static const struct fuse_replay_settings settings = {
    .model = {.tensors = model_tensors, .tensor_count = TENSORS}, .scale = 1};

/* Sums in memory of the test, which the homes are parts of. */
struct scene {
    struct replay replay;
    uint64_t counts[TENSORS], offsets[TENSORS];
    int order[TENSORS];
    void *homes[TENSORS];
    float sums[ELEMENTS];
    struct bench_pattern pattern;
};

static void scene_init(struct scene *scene)
{
    *scene = (struct scene){.replay = {.settings = &settings, .tensor_count = TENSORS}};
    scene->replay.counts = scene->counts;
    scene->replay.offsets = scene->offsets;
    scene->replay.order = scene->order;
    scene->replay.homes = scene->homes;
    scene->replay.whole = scene->sums;
    list_tensors(&scene->replay);
    assert_int_equal(scene->replay.elements, ELEMENTS);
    for (int i = 0; i < TENSORS; i++)
        scene->homes[i] = scene->sums + scene->offsets[i];
    bench_pattern_reduced(&scene->pattern, BENCH_F32, BENCH_SUM, RANKS, 7);
    bench_pattern_fill(&scene->pattern, scene->sums, 0, ELEMENTS);
}

static void tensors_are_listed_from_the_table_s_end(void **state)
{
    struct scene scene;
    (void)state;
    scene_init(&scene);
    const uint64_t counts[TENSORS] = {100, 199, 1, 700};
    const int order[TENSORS] = {3, 2, 1, 0};
    assert_memory_equal(scene.counts, counts, sizeof(counts));
    assert_memory_equal(scene.order, order, sizeof(order));
}

static void a_wrong_sum_is_found(void **state)
{
    static const int places[] = {0, 99, 100, 298, 299, 300, 999};
    static const int tensors[] = {0, 0, 1, 1, 2, 3, 3};
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        struct scene scene;
        scene_init(&scene);
        assert_int_equal(wrong_tensor(&scene.replay, &scene.pattern, fused), TENSORS);
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            scene.sums[places[i]] += 1;
            assert_int_equal(wrong_tensor(&scene.replay, &scene.pattern, fused), tensors[i]);
            scene.sums[places[i]] -= 1;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_listed_from_the_table_s_end),
        cmocka_unit_test(a_wrong_sum_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
