/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tuning_test.c: thresholds from files, between real processes: all ranks of a host use those of
 * its lowest rank, whatever file each of them finds. Counters show which were used.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/options.h"
#include "base/tuning.h"
#include "support/processes.h"

enum { RANKS_MAX = 4 };

/* What the file of a rank says of groups of two and three: sums whole up to so many bytes. */
enum {
    NO_FILE = 0,
    BROKEN_FILE = -1,
    OPTION_OFF = -2,
    EMPTY_FILE = -3,
    HUGE_FILE = -4,
    NOT_TEXT = -5,
    OTHER_MACHINE = -6,
    NOT_READABLE = -7,
    A_FOLDER = -8
};

struct plan {
    const char *folder; /* of the caches */
    int whole_bytes[RANKS_MAX];
    int (*main)(shoal_group_t group, const struct plan *plan);
};

/* ---- caches
 * ------------------------------------------------------------------------------------------------
 */

/* Everything else differs by rank too: ranks that did not agree would not find each other's
 * blocks. */
static enum shoal_status write_rows(const char *path, int rank, int whole_bytes)
{
    struct base_tuning_table table = {.count = 2};
    for (int i = 0; i < 2; i++)
        table.rows[i] = (struct base_tuning){.ranks = 2 + i,
                                             .symmetric_bytes = (uint64_t)whole_bytes,
                                             .block_bytes = UINT64_C(32768) << rank,
                                             .stream_bytes = UINT64_C(1) << (10 + 5 * rank),
                                             .direct_bytes = UINT64_C(4096) << (4 * rank)};
    return base_tuning_write(path, &table);
}

/* Another machine's: the same rows, but a processor that is not this one. */
static int change_machine(const char *path)
{
    char text[4096];
    FILE *file = fopen(path, "r+");
    REQUIRE(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    char *cpu = strstr(text, "\ncpu ");
    REQUIRE(cpu && cpu[5] != '\n');
    cpu[5] ^= 1;
    rewind(file);
    REQUIRE(fputs(text, file) >= 0 && fclose(file) == 0);
    return 0;
}

/* What stands where a good file should. A link to itself can't be read by root either. */
static int spoil(const char *path, int how)
{
    static const char zeros[4096];
    switch (how) {
    case BROKEN_FILE: REQUIRE(truncate(path, 40) == 0); break;
    case EMPTY_FILE: REQUIRE(truncate(path, 0) == 0); break;
    case HUGE_FILE: REQUIRE(truncate(path, INT64_C(1) << 40) == 0); break;
    case NOT_TEXT: {
        FILE *file = fopen(path, "w");
        REQUIRE(file && fwrite(zeros, sizeof(zeros), 1, file) == 1 && fclose(file) == 0);
        break;
    }
    case OTHER_MACHINE: REQUIRE(change_machine(path) == 0); break;
    case NOT_READABLE: REQUIRE(unlink(path) == 0 && symlink(path, path) == 0); break;
    case A_FOLDER: REQUIRE(unlink(path) == 0 && mkdir(path, 0700) == 0); break;
    default: break;
    }
    return 0;
}

static int make_cache(const struct plan *plan, int rank)
{
    char folder[128], path[BASE_TUNING_PATH_BYTES];
    int whole_bytes = plan->whole_bytes[rank];
    snprintf(folder, sizeof(folder), "%s/rank%d", plan->folder, rank);
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("SHOAL_TUNE", whole_bytes == OPTION_OFF ? "0" : "1", 1);
    base_options_reset();
    REQUIRE(base_tuning_path(path) == SHOAL_OK);
    if (whole_bytes == NO_FILE)
        return 0;
    REQUIRE(write_rows(path, rank, whole_bytes > 0 ? whole_bytes : 1024) == SHOAL_OK);
    return spoil(path, whole_bytes);
}

static void remove_caches(const struct plan *plan)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", plan->folder);
    assert_int_equal(system(command), 0);
}

static int rank_main(int rank, int size, const char *store, void *user)
{
    const struct plan *plan = user;
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    shoal_group_t group = NULL;
    options.rank = rank;
    options.size = size;
    options.store = store;
    options.timeout_ms = 20000;
    if (make_cache(plan, rank) != 0)
        return 1;
    CHECK(shoal_group_create(&options, &group));
    REQUIRE(plan->main(group, plan) == 0);
    CHECK(shoal_group_free(group));
    return 0;
}

/* Runs the ranks; their output stays in *run for processes_release. */
static void run_ranks(struct processes *run, struct plan *plan)
{
    char folder[] = "/tmp/shoal-tuning-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    plan->folder = folder;
    run->bare = rank_main;
    run->user = plan;
    processes_start(run);
    bool good = processes_wait(run);
    for (int rank = 0; rank < run->size; rank++)
        if (!good)
            fprintf(stderr, "rank %d: %s\n", rank, run->output[rank]);
    remove_caches(plan);
    assert_true(good);
}

/* ---- what the ranks do
 * ------------------------------------------------------------------------------------------------
 */

/* An allreduce of so many bytes in memory of the process or of the host. Its sum is right; *how is
 * what it did to the counters. */
static int sum(shoal_group_t group, uint64_t bytes, bool shared, struct shoal_counters *how)
{
    uint64_t count = bytes / sizeof(float);
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    struct shoal_counters before = SHOAL_COUNTERS_INIT, after = SHOAL_COUNTERS_INIT;
    void *memory = NULL;
    if (shared)
        CHECK(shoal_alloc(group, bytes, &memory));
    else
        memory = malloc(bytes);
    float *numbers = memory;
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = (float)(rank + (int)(i % 7));
    CHECK(shoal_group_counters(group, &before));
    CHECK(shoal_allreduce(numbers, numbers, count, SHOAL_F32, SHOAL_SUM, group, NULL));
    CHECK(shoal_group_counters(group, &after));
    for (uint64_t i = 0; i < count; i++)
        REQUIRE(numbers[i] == (float)(size * (size - 1) / 2 + size * (int)(i % 7)));
    *how =
        (struct shoal_counters){.symmetric_bytes = after.symmetric_bytes - before.symmetric_bytes,
                                .staged_bytes = after.staged_bytes - before.staged_bytes,
                                .direct_bytes = after.direct_bytes - before.direct_bytes};
    if (shared)
        CHECK(shoal_free(group, memory));
    else
        free(memory);
    return 0;
}

/* Sums are made whole exactly up to so many bytes. */
static int expect_whole(shoal_group_t group, uint64_t whole_bytes)
{
    struct shoal_counters how;
    REQUIRE(sum(group, whole_bytes, false, &how) == 0);
    REQUIRE(how.symmetric_bytes == whole_bytes);
    REQUIRE(sum(group, whole_bytes + 4, false, &how) == 0);
    REQUIRE(how.staged_bytes == whole_bytes + 4);
    REQUIRE(sum(group, 1 << 20, false, &how) == 0);
    REQUIRE(how.staged_bytes == 1 << 20);
    return 0;
}

#define DEFAULT_BYTES 16384

static int as_the_lowest_says(shoal_group_t group, const struct plan *plan)
{
    struct shoal_counters how;
    REQUIRE(expect_whole(group, (uint64_t)plan->whole_bytes[0]) == 0);
    REQUIRE(sum(group, 8192, true, &how) == 0); /* rank 0's limit is 4 KiB */
    REQUIRE(how.direct_bytes == 8192);
    REQUIRE(sum(group, 4096, true, &how) == 0);
    REQUIRE(how.direct_bytes == 0);
    return 0;
}

static int by_default(shoal_group_t group, const struct plan *plan)
{
    (void)plan;
    return expect_whole(group, DEFAULT_BYTES);
}

static int by_host(shoal_group_t group, const struct plan *plan)
{
    shoal_group_t half = NULL;
    int host = shoal_group_host(group);
    CHECK(shoal_group_split(group, host, 0, &half));
    REQUIRE(expect_whole(half, (uint64_t)plan->whole_bytes[2 * host]) == 0);
    CHECK(shoal_group_free(half));
    return 0;
}

/* The file has rows for two and three ranks. */
static int by_size(shoal_group_t group, const struct plan *plan)
{
    shoal_group_t half = NULL;
    REQUIRE(expect_whole(group, DEFAULT_BYTES) == 0);
    CHECK(shoal_group_split(group, shoal_group_rank(group) / 2, 0, &half));
    REQUIRE(expect_whole(half, (uint64_t)plan->whole_bytes[0]) == 0);
    CHECK(shoal_group_free(half));
    return 0;
}

/* ---- tests
 * ------------------------------------------------------------------------------------------------
 */

static void expect_warnings(const struct processes *run, int rank, int expected)
{
    int found = 0;
    for (const char *at = run->output[rank]; (at = strstr(at, "the default thresholds")); at++)
        found++;
    assert_int_equal(found, expected);
}

static void test_ranks_with_different_files_agree(void **state)
{
    (void)state;
    static const int files[][3] = {
        {1024, 65536, 2048}, {65536, 1024, NO_FILE}, {2048, BROKEN_FILE, OPTION_OFF}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct processes run = {.size = 3};
        struct plan plan = {.main = as_the_lowest_says};
        memcpy(plan.whole_bytes, files[i], sizeof(files[i]));
        run_ranks(&run, &plan);
        for (int rank = 0; rank < 3; rank++)
            expect_warnings(&run, rank, 0); /* a file that does not count is no matter */
        processes_release(&run);
    }
}

/* Or none that can be used: one warning, and the default thresholds. */
static void test_the_lowest_has_none(void **state)
{
    (void)state;
    static const int lowest[] = {NO_FILE,  BROKEN_FILE,   OPTION_OFF,   EMPTY_FILE, HUGE_FILE,
                                 NOT_TEXT, OTHER_MACHINE, NOT_READABLE, A_FOLDER};
    for (size_t i = 0; i < sizeof(lowest) / sizeof(lowest[0]); i++) {
        struct processes run = {.size = 2};
        struct plan plan = {.main = by_default, .whole_bytes = {lowest[i], 1024}};
        run_ranks(&run, &plan);
        expect_warnings(&run, 0, lowest[i] != NO_FILE && lowest[i] != OPTION_OFF);
        expect_warnings(&run, 1, 0);
        processes_release(&run);
    }
}

static void test_each_host_has_its_own(void **state)
{
    (void)state;
    struct processes run = {.size = 4, .hosts = 2};
    struct plan plan = {.main = by_host, .whole_bytes = {1024, 65536, 32768, NO_FILE}};
    run_ranks(&run, &plan);
    processes_release(&run);
}

static void test_rows_are_by_size(void **state)
{
    (void)state;
    struct processes run = {.size = 4};
    struct plan plan = {.main = by_size, .whole_bytes = {1024, 2048, 4096, 8192}};
    run_ranks(&run, &plan);
    processes_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_with_different_files_agree),
        cmocka_unit_test(test_the_lowest_has_none),
        cmocka_unit_test(test_each_host_has_its_own),
        cmocka_unit_test(test_rows_are_by_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
