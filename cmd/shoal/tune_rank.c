/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_rank.c: `shoal tune-rank`: what each rank of `shoal tune` does; rank 0 prints the row that
 * the measurements speak for on stdout, and how they go on stderr.
 *
 * One threshold after the other: groups with different values of it exist side by side and are
 * measured by turns, several times, and the best median of each counts; so what else the machine
 * does meanwhile meets all of them. All ranks see the same times (those of the slowest) and so make
 * the same choices without a word.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/tuning.h"
#include "bench_group.h"
#include "tune_choice.h"

#define PASSES         3
#define CANDIDATES_MAX 5
#define SIZES_MAX      8
#define OPERATIONS_MAX 2
#define KIB            UINT64_C(1024)
#define MIB            (KIB * 1024)

int cmd_tune_rank(int argc, char **argv);

struct tuner {
    shoal_group_t world;
    int rank, size;
    int64_t size_ms;
    uint64_t largest_bytes;
    struct base_tuning row; /* what was chosen so far */
};

/* Groups that differ in their thresholds. */
struct candidates {
    struct base_tuning rows[CANDIDATES_MAX];
    shoal_group_t groups[CANDIDATES_MAX];
    int count;
};

/* What is measured at one size. */
struct trial {
    enum bench_operation operation;
    bool in_place, shared_memory;
    uint64_t bytes;
};

/* ---- candidates
 * ------------------------------------------------------------------------------------------------
 */

static int fail(const struct tuner *tuner)
{
    fprintf(stderr, "shoal tune: rank %d: %s\n", tuner->rank, shoal_last_error(NULL));
    return -1;
}

static int candidates_open(const struct tuner *tuner, struct candidates *candidates)
{
    int ranks[BASE_TUNING_RANKS_MAX];
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; i < tuner->size; i++)
        ranks[i] = i;
    for (int i = 0; i < candidates->count && status == SHOAL_OK; i++) {
        base_tuning_force(&candidates->rows[i]);
        status = shoal_group_subset(tuner->world, ranks, tuner->size, "candidate",
                                    &candidates->groups[i]);
    }
    base_tuning_force(NULL);
    return status == SHOAL_OK ? 0 : fail(tuner);
}

static void candidates_close(struct candidates *candidates)
{
    for (int i = 0; i < candidates->count; i++)
        shoal_group_free(candidates->groups[i]);
}

/* us[candidate]: the best of all passes. */
static int candidates_measure(const struct tuner *tuner, const struct candidates *candidates,
                              const struct trial *trial, double *us)
{
    struct bench_settings settings = BENCH_SETTINGS_INIT;
    settings.operation = trial->operation;
    settings.in_place = trial->in_place;
    settings.size_ms = tuner->size_ms;
    for (int turn = 0; turn < PASSES * candidates->count; turn++) {
        int i = turn % candidates->count;
        struct bench_group group = {.command = "tune",
                                    .group = candidates->groups[i],
                                    .shared_memory = trial->shared_memory};
        struct bench_library library;
        struct bench_result result;
        bench_group_library(&group, &library);
        if (bench_measure(&library, &settings, trial->bytes, &result) != 0)
            return -1;
        us[i] = turn < candidates->count || result.p50_us < us[i] ? result.p50_us : us[i];
    }
    return 0;
}

/* ---- thresholds
 * ------------------------------------------------------------------------------------------------
 */

/* A threshold between two ways to do the same. */
struct threshold {
    const char *name;
    size_t offset;          /* in struct base_tuning */
    const char *low, *high; /* what is done below and above it */
    bool is_above;          /* its own size is done as those above */
    uint64_t sizes[SIZES_MAX];
    int size_count;
    enum bench_operation operations[OPERATIONS_MAX];
    int operation_count;
    bool in_place, shared_memory;
    bool by_part; /* of a rank's part, where each has one */
};

static const struct threshold symmetric = {
    .name = "symmetric",
    .offset = offsetof(struct base_tuning, symmetric_bytes),
    .low = "summed whole by every rank",
    .high = "by slices",
    .sizes = {2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB},
    .size_count = 7,
    .operations = {BENCH_ALLREDUCE},
    .operation_count = 1,
};

static const struct threshold stream = {
    .name = "stream",
    .offset = offsetof(struct base_tuning, stream_bytes),
    .low = "through the caches",
    .high = "around them",
    .is_above = true,
    .sizes = {256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB},
    .size_count = 7,
    .operations = {BENCH_ALLREDUCE, BENCH_ALLGATHER},
    .operation_count = 2,
};

static const struct threshold direct = {
    .name = "direct",
    .offset = offsetof(struct base_tuning, direct_bytes),
    .low = "staged",
    .high = "directly",
    .sizes = {4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB},
    .size_count = 8,
    .operations = {BENCH_ALLREDUCE, BENCH_ALLGATHER},
    .operation_count = 2,
    .in_place = true,
    .shared_memory = true,
    .by_part = true,
};

static uint64_t threshold_of(const struct base_tuning *row, const struct threshold *threshold)
{
    uint64_t bytes;
    memcpy(&bytes, (const char *)row + threshold->offset, sizeof(bytes));
    return bytes;
}

static void threshold_set(struct base_tuning *row, const struct threshold *threshold,
                          uint64_t bytes)
{
    memcpy((char *)row + threshold->offset, &bytes, sizeof(bytes));
}

/* How many sizes lie below the threshold. */
static int cut_of(const struct threshold *threshold, int size_count, uint64_t bytes)
{
    int cut = 0;
    while (cut < size_count && (threshold->sizes[cut] < bytes ||
                                (threshold->sizes[cut] == bytes && !threshold->is_above)))
        cut++;
    return cut;
}

/* The threshold below which so many sizes lie. */
static uint64_t bytes_of(const struct threshold *threshold, int size_count, int cut)
{
    if (!threshold->is_above)
        return cut == 0 ? threshold->sizes[0] / 2 : threshold->sizes[cut - 1];
    return cut == size_count ? 2 * threshold->sizes[cut - 1] : threshold->sizes[cut];
}

/* The geometric mean over the operations. */
static int point_measure(const struct tuner *tuner, const struct threshold *threshold,
                         const struct candidates *candidates, uint64_t bytes,
                         struct tune_point *out)
{
    double low = 0, high = 0;
    char size[BASE_BYTES_TEXT_BYTES];
    for (int i = 0; i < threshold->operation_count; i++) {
        bool parts = threshold->by_part && threshold->operations[i] == BENCH_ALLGATHER;
        struct trial trial = {.operation = threshold->operations[i],
                              .in_place = threshold->in_place,
                              .shared_memory = threshold->shared_memory,
                              .bytes = bytes * (parts ? (uint64_t)tuner->size : 1)};
        double us[CANDIDATES_MAX];
        if (candidates_measure(tuner, candidates, &trial, us) != 0)
            return -1;
        if (tuner->rank == 0)
            fprintf(stderr, "%d ranks, %s of %s: %.2f us %s, %.2f us %s\n", tuner->size,
                    bench_operation_name(trial.operation), base_bytes_text(trial.bytes, size),
                    us[0], threshold->low, us[1], threshold->high);
        low += log(us[0]) / threshold->operation_count;
        high += log(us[1]) / threshold->operation_count;
    }
    *out = (struct tune_point){exp(low), exp(high)};
    return 0;
}

/* How many of the sizes are measured: one at least. */
static int sizes_within(const uint64_t *sizes, int count, uint64_t largest_bytes)
{
    while (count > 1 && sizes[count - 1] > largest_bytes)
        count--;
    return count;
}

static int points_measure(const struct tuner *tuner, const struct threshold *threshold,
                          int size_count, struct tune_point *points)
{
    struct candidates candidates = {.rows = {tuner->row, tuner->row}, .count = 2};
    threshold_set(&candidates.rows[0], threshold, UINT64_MAX);
    threshold_set(&candidates.rows[1], threshold, 0);
    int failed = candidates_open(tuner, &candidates);
    for (int i = 0; i < size_count && failed == 0; i++)
        failed = point_measure(tuner, threshold, &candidates, threshold->sizes[i], &points[i]);
    candidates_close(&candidates);
    return failed;
}

static void report_choice(const struct tuner *tuner, const char *name, uint64_t before,
                          uint64_t chosen)
{
    char old_text[BASE_BYTES_TEXT_BYTES], new_text[BASE_BYTES_TEXT_BYTES];
    if (tuner->rank == 0)
        fprintf(stderr, "%d ranks: %s %s (default %s)\n", tuner->size, name,
                base_bytes_text(chosen, new_text), base_bytes_text(before, old_text));
}

static int threshold_tune(struct tuner *tuner, const struct threshold *threshold)
{
    struct tune_point points[SIZES_MAX];
    int size_count = sizes_within(threshold->sizes, threshold->size_count, tuner->largest_bytes);
    uint64_t standing = threshold_of(&tuner->row, threshold), chosen = standing;
    if (points_measure(tuner, threshold, size_count, points) != 0)
        return -1;
    int standing_cut = cut_of(threshold, size_count, standing);
    int cut = tune_cut(points, size_count, standing_cut);
    if (cut != standing_cut)
        chosen = bytes_of(threshold, size_count, cut);
    threshold_set(&tuner->row, threshold, chosen);
    report_choice(tuner, threshold->name, standing, chosen);
    return 0;
}

/* ---- blocks
 * ------------------------------------------------------------------------------------------------
 */

#define BLOCKS_STANDING 2 /* the default among these */

static const uint64_t block_candidates[CANDIDATES_MAX] = {128 * KIB, 256 * KIB, 512 * KIB, MIB,
                                                          2 * MIB};
static const uint64_t block_sizes[] = {512 * KIB, 2 * MIB, 8 * MIB}; /* of a rank's part */

#define BLOCK_SIZE_COUNT ((int)(sizeof(block_sizes) / sizeof(block_sizes[0])))

static int blocks_measure(const struct tuner *tuner, const struct candidates *candidates,
                          uint64_t bytes, double *costs)
{
    struct trial trial = {.operation = BENCH_ALLGATHER, .bytes = bytes * (uint64_t)tuner->size};
    double us[CANDIDATES_MAX];
    char size[BASE_BYTES_TEXT_BYTES], block[BASE_BYTES_TEXT_BYTES];
    if (candidates_measure(tuner, candidates, &trial, us) != 0)
        return -1;
    if (tuner->rank == 0)
        fprintf(stderr, "%d ranks, allgather of %s in blocks:", tuner->size,
                base_bytes_text(trial.bytes, size));
    for (int i = 0; i < candidates->count; i++) {
        costs[i] += log(us[i]);
        if (tuner->rank == 0)
            fprintf(stderr, " %s %.0f us%s", base_bytes_text(block_candidates[i], block), us[i],
                    i + 1 < candidates->count ? "," : "\n");
    }
    return 0;
}

static int blocks_tune(struct tuner *tuner)
{
    struct candidates candidates = {.count = CANDIDATES_MAX};
    double costs[CANDIDATES_MAX] = {0};
    int size_count = sizes_within(block_sizes, BLOCK_SIZE_COUNT, tuner->largest_bytes);
    for (int i = 0; i < candidates.count; i++) {
        candidates.rows[i] = tuner->row;
        candidates.rows[i].block_bytes = block_candidates[i];
    }
    int failed = candidates_open(tuner, &candidates);
    for (int i = 0; i < size_count && failed == 0; i++)
        failed = blocks_measure(tuner, &candidates, block_sizes[i], costs);
    candidates_close(&candidates);
    if (failed != 0)
        return -1;
    uint64_t standing = tuner->row.block_bytes;
    BASE_ASSERT(standing == block_candidates[BLOCKS_STANDING]);
    tuner->row.block_bytes = block_candidates[tune_least(costs, candidates.count, BLOCKS_STANDING)];
    report_choice(tuner, "block", standing, tuner->row.block_bytes);
    return 0;
}

/* ---- the rank
 * ------------------------------------------------------------------------------------------------
 */

static int tune(struct tuner *tuner)
{
    char text[BASE_TUNING_ROW_BYTES];
    if (threshold_tune(tuner, &symmetric) != 0 || blocks_tune(tuner) != 0 ||
        threshold_tune(tuner, &stream) != 0 || threshold_tune(tuner, &direct) != 0)
        return -1;
    base_tuning_row_text(&tuner->row, text);
    if (tuner->rank == 0)
        printf("%s\n", text);
    return 0;
}

static int run(struct tuner *tuner)
{
    if (shoal_group_create(NULL, &tuner->world) != SHOAL_OK)
        return fail(tuner);
    tuner->rank = shoal_group_rank(tuner->world);
    tuner->size = shoal_group_size(tuner->world);
    tuner->row = base_tuning_default(tuner->size);
    int failed = tune(tuner);
    if (failed != 0)
        shoal_group_abort(tuner->world, "measuring failed on a rank");
    enum shoal_status status = shoal_group_free(tuner->world);
    return failed == 0 && status != SHOAL_OK ? fail(tuner) : failed;
}

enum { TUNE_RANK_SIZE_MS, TUNE_RANK_LARGEST, TUNE_RANK_COUNT };

static const struct argument table[TUNE_RANK_COUNT] = {
    [TUNE_RANK_SIZE_MS] = {"size-ms", 0, "MS", "time per measurement"},
    [TUNE_RANK_LARGEST] = {"largest", 0, "BYTES", "largest buffers"},
};

static enum shoal_status argument_use(void *user, int id, const char *value)
{
    struct tuner *tuner = user;
    long number = 0;
    if (id == TUNE_RANK_LARGEST)
        return base_parse_bytes(value, &tuner->largest_bytes);
    TRY(argument_number("--size-ms", value, 1, 100000, &number));
    tuner->size_ms = number;
    return SHOAL_OK;
}

static enum shoal_status arguments_read(struct tuner *tuner, int argc, char **argv)
{
    struct arguments arguments = {.command = "tune",
                                  .table = table,
                                  .count = TUNE_RANK_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = argument_use,
                                  .user = tuner,
                                  .at = 1};
    return arguments_take_all(&arguments);
}

int cmd_tune_rank(int argc, char **argv)
{
    struct tuner tuner = {.size_ms = 10, .largest_bytes = 16 * MIB};
    if (arguments_read(&tuner, argc, argv) != SHOAL_OK) {
        fprintf(stderr, "shoal tune: %s\n", base_error_text());
        return EXIT_USAGE;
    }
    return run(&tuner) == 0 ? 0 : 1;
}
