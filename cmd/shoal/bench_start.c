/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_start.c: `shoal bench start`: starts ranks on this host again and again (`shoal run` of
 * `shoal start-rank`) and shows medians of what they measured.
 */
#include "bench_start.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "arguments.h"
#include "base/clock.h"
#include "base/status.h"
#include "launch/process.h"
#include "own_program.h"
#include "shoal.h"
#include "sort.h"

#define RANKS_MAX  256 /* on one host */
#define LIST_MAX   16
#define ROUNDS_MAX 100
#define LINE_BYTES 1024

enum { START_ARG_RANKS, START_ARG_ROUNDS, START_ARG_JSON, START_ARG_HELP, START_ARG_COUNT };

static const struct argument table[START_ARG_COUNT] = {
    [START_ARG_RANKS] = {"ranks", 'n', "LIST", "numbers of ranks (default 2,4,8,16,32,64)"},
    [START_ARG_ROUNDS] = {"rounds", 0, "N", "starts for each number (default 5)"},
    [START_ARG_JSON] = {"json", 'j', NULL, "one JSON object per number of ranks"},
    [START_ARG_HELP] = {"help", 'h', NULL, "this text"},
};

static const struct {
    const char *name, *head; /* in JSON, and above its column; bytes are shown in KiB */
} start_values[START_VALUE_COUNT] = {
    [START_LAUNCH_MS] = {"launch_ms", "launch"},
    [START_ARRIVE_MS] = {"arrive_ms", "arrive"},
    [START_CREATE_MS] = {"create_ms", "create"},
    [START_SPLIT_MS] = {"split_ms", "split"},
    [START_SUBSET_MS] = {"subset_ms", "subset"},
    [START_SUBSET_SUM_MS] = {"subset_sum_ms", "first sum"},
    [START_SUM_MS] = {"sum_ms", "sum"},
    [START_MAPPED_BYTES] = {"mapped_bytes", NULL},
    [START_SHARED_BYTES] = {"shared_bytes", "shared"},
    [START_SHARED_SUM_BYTES] = {"shared_sum_bytes", "sh. 1M"},
    [START_PRIVATE_BYTES] = {"private_bytes", "private"},
    [START_PRIVATE_SUM_BYTES] = {"private_sum_bytes", "pr. 1M"},
    [START_PAGE_TABLE_BYTES] = {"page_table_bytes", "tables"},
    [START_DESCRIPTORS] = {"descriptors", "fds"},
    [START_THREADS] = {"threads", "threads"},
};

struct start_bench {
    int ranks[LIST_MAX];
    int ranks_count;
    long rounds;
    bool json, help;
};

static void print_help(void)
{
    printf(
        "usage: shoal bench start [OPTION...]\n\n"
        "Measures how long it takes until processes on this host are a group, and what that\n"
        "costs them. All ranks of a start are measured; the last or the largest counts, and the\n"
        "median of the starts is shown.\n\n");
    arguments_help(table, START_ARG_COUNT, stdout);
    printf(
        "\nColumns, in ms: launch, from the start of `shoal run` until every rank has its\n"
        "group; arrive, of that until the last rank has asked for it; create, another group of\n"
        "all that running ranks make; split and subset, a sub-group of all; first sum, a subset\n"
        "until its first allreduce of 8 bytes is done; sum, a later one. In KiB for each rank:\n"
        "shared memory when the group is made and after an allreduce of 1 MiB, memory of its\n"
        "own and page tables, and descriptors and threads: more than without a group.\n");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static enum shoal_status ranks_read(struct start_bench *bench, const char *list)
{
    for (bench->ranks_count = 0; list != NULL;) {
        long ranks = 0;
        if (bench->ranks_count == LIST_MAX)
            return base_error(SHOAL_ERR_ARGUMENT, "-n: at most %d numbers of ranks", LIST_MAX);
        TRY(argument_list_number("-n", &list, 2, RANKS_MAX, &ranks));
        bench->ranks[bench->ranks_count++] = (int)ranks;
    }
    return SHOAL_OK;
}

static enum shoal_status argument_use(void *user, int id, const char *value)
{
    struct start_bench *bench = user;
    switch (id) {
    case START_ARG_RANKS: return ranks_read(bench, value);
    case START_ARG_ROUNDS: return argument_number("--rounds", value, 1, ROUNDS_MAX, &bench->rounds);
    case START_ARG_JSON: bench->json = true; break;
    default: bench->help = true; break;
    }
    return SHOAL_OK;
}

static enum shoal_status arguments_read(struct start_bench *bench, int argc, char **argv)
{
    struct arguments arguments = {.command = "bench start",
                                  .table = table,
                                  .count = START_ARG_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = argument_use,
                                  .user = bench,
                                  .at = 1};
    return arguments_take_all(&arguments);
}

/* ---- one start ------------------------------------------------------------------------------- */

static enum shoal_status values_read(const char *line, double values[START_VALUE_COUNT])
{
    for (int i = 0; i < START_VALUE_COUNT; i++) {
        char *end = NULL;
        values[i] = strtod(line, &end);
        if (end == line)
            return base_error(SHOAL_ERR_SYSTEM, "nothing was measured");
        line = end;
    }
    return SHOAL_OK;
}

/* Runs `shoal run ... shoal start-rank`, whose rank 0 prints one line. */
static enum shoal_status start_once(int ranks, double values[START_VALUE_COUNT])
{
    char self[LAUNCH_PATH_BYTES], count[16], launched[24], what[48], line[LINE_BYTES];
    char *const words[] = {self, "run", "--no-tag",   "--quiet", "-n", count,
                           "--", self,  "start-rank", launched,  NULL};
    TRY(launch_own_path(self));
    snprintf(count, sizeof(count), "%d", ranks);
    snprintf(what, sizeof(what), "a start with %d ranks", ranks);
    snprintf(launched, sizeof(launched), "%" PRId64, base_now_ns()); /* the clock starts here */
    TRY(own_program_line(words, what, line, sizeof(line)));
    return values_read(line, values);
}

/* ---- showing --------------------------------------------------------------------------------- */

static bool is_time(int value)
{
    return value <= START_SUM_MS;
}

static bool is_bytes(int value)
{
    return value >= START_MAPPED_BYTES && value <= START_PAGE_TABLE_BYTES;
}

/* Rounds are sorted; the median of each, and of times the shortest and the longest too. */
static void json_print(int ranks, long rounds, double found[START_VALUE_COUNT][ROUNDS_MAX])
{
    printf("{\"lib\": \"shoal\", \"version\": \"%s\", \"ranks\": %d, \"rounds\": %ld",
           shoal_version(), ranks, rounds);
    for (int i = 0; i < START_VALUE_COUNT; i++) {
        const char *name = start_values[i].name;
        if (is_time(i))
            printf(", \"%s\": %.4f, \"%s_low\": %.4f, \"%s_high\": %.4f", name,
                   found[i][rounds / 2], name, found[i][0], name, found[i][rounds - 1]);
        else
            printf(", \"%s\": %.0f", name, found[i][rounds / 2]);
    }
    printf("}\n");
}

static void row_print(int ranks, long rounds, double found[START_VALUE_COUNT][ROUNDS_MAX])
{
    printf("%5d", ranks);
    for (int i = 0; i < START_VALUE_COUNT; i++) {
        double median = found[i][rounds / 2];
        if (start_values[i].head != NULL)
            printf(is_time(i) ? " %9.3f" : " %9.0f", is_bytes(i) ? median / 1024 : median);
    }
    printf("\n");
}

static void head_print(void)
{
    printf("# shoal %s, start of ranks on one host; ms, KiB for each rank\nranks", shoal_version());
    for (int i = 0; i < START_VALUE_COUNT; i++)
        if (start_values[i].head != NULL)
            printf(" %9s", start_values[i].head);
    printf("\n");
}

static enum shoal_status measure(const struct start_bench *bench, int ranks)
{
    static double found[START_VALUE_COUNT][ROUNDS_MAX];
    for (long round = 0; round < bench->rounds; round++) {
        double values[START_VALUE_COUNT];
        TRY(start_once(ranks, values));
        for (int i = 0; i < START_VALUE_COUNT; i++)
            found[i][round] = values[i];
    }
    for (int i = 0; i < START_VALUE_COUNT; i++)
        sort_doubles(found[i], (size_t)bench->rounds);
    if (bench->json)
        json_print(ranks, bench->rounds, found);
    else
        row_print(ranks, bench->rounds, found);
    fflush(stdout);
    return SHOAL_OK;
}

int bench_start(int argc, char **argv)
{
    struct start_bench bench = {.ranks = {2, 4, 8, 16, 32, 64}, .ranks_count = 6, .rounds = 5};
    enum shoal_status status = arguments_read(&bench, argc, argv);
    if (status == SHOAL_OK && bench.help) {
        print_help();
        return 0;
    }
    int failure = status == SHOAL_OK ? 1 : EXIT_USAGE;
    if (status == SHOAL_OK && !bench.json)
        head_print();
    for (int i = 0; status == SHOAL_OK && i < bench.ranks_count; i++)
        status = measure(&bench, bench.ranks[i]);
    if (status == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal bench start: %s\n", base_error_text());
    return failure;
}
