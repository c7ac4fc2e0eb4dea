/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.c: `shoal bench`: measures an operation between ranks, beside the roof of the same machine.
 *
 * Started with -n, --hosts or --virtual-hosts it starts ranks (bench_launch.h). Started as a rank,
 * by whatever launcher, it measures.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/status.h"
#include "bench_fuse.h"
#include "bench_group.h"
#include "bench_kernel.h"
#include "bench_launch.h"
#include "bench_measure.h"
#include "bench_roof.h"
#include "bench_start.h"
#include "shoal.h"

int cmd_bench(int argc, char **argv);

enum {
    BENCH_ARG_SIZES,
    BENCH_ARG_DTYPE,
    BENCH_ARG_OP,
    BENCH_ARG_ITERS,
    BENCH_ARG_SIZE_MS,
    BENCH_ARG_IN_PLACE,
    BENCH_ARG_MEMORY,
    BENCH_ARG_NO_CHECK,
    BENCH_ARG_NO_ROOF,
    BENCH_ARG_JSON,
    BENCH_ARG_LABEL,
    BENCH_ARG_NOTE,
    BENCH_ARG_LAUNCH, /* the first of BENCH_LAUNCH_COUNT */
    BENCH_ARG_HELP = BENCH_ARG_LAUNCH + BENCH_LAUNCH_COUNT,
    BENCH_ARG_COUNT
};

static const struct argument table[BENCH_ARG_COUNT] = {
    [BENCH_ARG_SIZES] = {"sizes", 's', "SIZES",
                         "bytes: 8:64M doubles, 8:64M:4 goes by four, 8,4K,1M is a list\n"
                         "(default 8:64M). A size is that of a rank's larger buffer"},
    [BENCH_ARG_DTYPE] = {"dtype", 't', "DTYPE", "f32 (default), f64, f16, bf16, i8, ..."},
    [BENCH_ARG_OP] = {"op", 'o', "OP", "of reductions: sum (default), avg, prod, min, max, ..."},
    [BENCH_ARG_ITERS] = {"iters", 'i', "N", "rounds per size (default: what --size-ms allows)"},
    [BENCH_ARG_SIZE_MS] = {"size-ms", 0, "MS", "time per size, 5 rounds at least (default 200)"},
    [BENCH_ARG_IN_PLACE] = {"in-place", 0, NULL, "one buffer is input and output"},
    [BENCH_ARG_MEMORY] = {"memory", 'm', "KIND",
                          "private (default), or shared: buffers from shoal_alloc"},
    [BENCH_ARG_NO_CHECK] = {"no-check", 0, NULL, "don't check results"},
    [BENCH_ARG_NO_ROOF] = {"no-roof", 0, NULL, "don't measure the roof"},
    [BENCH_ARG_JSON] = {"json", 'j', NULL, "one JSON object per size"},
    [BENCH_ARG_LABEL] = {"label", 0, "NAME", "\"lib\" in the JSON lines (default shoal)"},
    [BENCH_ARG_NOTE] = {"note", 0, "JSON", "\"settings\" in the JSON lines (default {})"},
    [BENCH_ARG_LAUNCH] = BENCH_LAUNCH_ROWS,
    [BENCH_ARG_HELP] = {"help", 'h', NULL, "this text"},
};

struct bench {
    struct bench_settings settings;
    bool roof, help;
    const char *label;
    struct bench_launch launch;
    struct bench_group group;
};

static void print_help(void)
{
    printf("usage: shoal bench OPERATION [OPTION...]\n"
           "       shoal bench kernel [OPTION...]\n"
           "       shoal bench start [OPTION...]\n"
           "       shoal bench fuse --model NAME [OPTION...]\n\n"
           "Measures an operation between ranks: %s;\n"
           "or the arithmetic loops on one core (shoal bench kernel --help);\n"
           "or how ranks start, and what that costs (shoal bench start --help);\n"
           "or a training step of a known model by fusion buffers (shoal bench fuse --help).\n\n",
           bench_operation_names());
    arguments_help(table, BENCH_ARG_COUNT, stdout);
    printf(
        "\nIn each round every rank writes its inputs anew, meets the others in a barrier, takes\n"
        "the time of the operation, and checks the result; the slowest rank counts. Operations\n"
        "under 20 us are timed in batches, each call with buffers of its own.\n\n"
        "Columns: bytes, count (elements per call and rank), median, 99th percentile and minimum "
        "of\n"
        "the time; alg = bytes / time; bus = alg times a factor that makes it comparable with the\n"
        "link's rate (allreduce 2(p-1)/p, allgather, reduce_scatter and alltoall (p-1)/p, else "
        "1);\n"
        "roof: what the hardware allows, measured in the same run: on one host the larger of\n"
        "concurrent copies that make the same loads and stores, and an exchange of 8 bytes "
        "through\n"
        "shared flags; across hosts raw sockets in the same pattern.\n\n"
        "Without -n, --hosts and --virtual-hosts this process is a rank, of the group that its\n"
        "launcher's environment describes. Examples:\n"
        "  shoal bench allreduce -n 2\n"
        "  shoal bench allgather --virtual-hosts 4 --rate 1gbit --sizes 4M:16M\n"
        "  mpirun -n 2 shoal bench allreduce --sizes 8:1M --json\n");
}

/* ---- arguments
 * ------------------------------------------------------------------------------------- */

static enum shoal_status setting_use(struct bench *bench, const char *name, const char *value)
{
    char error[BENCH_ERROR_BYTES];
    if (bench_settings_set(&bench->settings, name, value, error) != 0)
        return base_error(SHOAL_ERR_ARGUMENT, "%s", error);
    return SHOAL_OK;
}

static enum shoal_status memory_use(struct bench *bench, const char *value)
{
    bench->group.shared_memory = strcmp(value, "shared") == 0;
    if (!bench->group.shared_memory && strcmp(value, "private") != 0)
        return base_error(SHOAL_ERR_ARGUMENT, "--memory %s: private or shared", value);
    return SHOAL_OK;
}

static enum shoal_status label_use(struct bench *bench, const char *value)
{
    if (strpbrk(value, "\"\\") != NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "--label: no quotes and backslashes");
    bench->label = value;
    return SHOAL_OK;
}

static enum shoal_status argument_use(void *user, int id, const char *value)
{
    struct bench *bench = user;
    switch (id) {
    case BENCH_ARG_SIZES:
    case BENCH_ARG_DTYPE:
    case BENCH_ARG_OP:
    case BENCH_ARG_ITERS:
    case BENCH_ARG_SIZE_MS:
    case BENCH_ARG_NOTE: return setting_use(bench, table[id].name, value);
    case BENCH_ARG_IN_PLACE: bench->settings.in_place = true; break;
    case BENCH_ARG_MEMORY: return memory_use(bench, value);
    case BENCH_ARG_NO_CHECK: bench->settings.check = false; break;
    case BENCH_ARG_NO_ROOF: bench->roof = false; break;
    case BENCH_ARG_JSON: bench->settings.json = true; break;
    case BENCH_ARG_LABEL: return label_use(bench, value);
    case BENCH_ARG_HELP: bench->help = true; break;
    default: return bench_launch_use(&bench->launch, id - BENCH_ARG_LAUNCH, value);
    }
    return SHOAL_OK;
}

static enum shoal_status arguments_check(struct bench *bench)
{
    char error[BENCH_ERROR_BYTES];
    TRY(bench_launch_check(&bench->launch));
    if (bench_settings_finish(&bench->settings, error) != 0)
        return base_error(SHOAL_ERR_ARGUMENT, "%s", error);
    return SHOAL_OK;
}

static enum shoal_status arguments_read(struct bench *bench, int argc, char **argv)
{
    struct arguments arguments = {.command = "bench",
                                  .table = table,
                                  .count = BENCH_ARG_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = argument_use,
                                  .user = bench,
                                  .at = 1};
    const char *operation = NULL;
    TRY(arguments_take_with_operation(&arguments, &operation));
    if (bench->help)
        return SHOAL_OK;
    if (operation == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "which operation? There are %s",
                          bench_operation_names());
    TRY(setting_use(bench, "operation", operation));
    return arguments_check(bench);
}

/* ---- measuring
 * ----------------------------------------------------------------------------------------- */

static int measure_sizes(const struct bench *bench, const struct bench_library *library,
                         struct bench_roof *roof)
{
    const struct bench_settings *settings = &bench->settings;
    for (size_t i = 0; i < settings->size_count; i++) {
        struct bench_result result;
        if (bench_measure(library, settings, settings->sizes[i], &result) != 0)
            return -1;
        if (roof != NULL && bench_roof_measure(roof, settings, &result) != SHOAL_OK) {
            fprintf(stderr, "shoal bench: rank %d: %s\n", library->rank, base_error_text());
            return -1;
        }
        if (library->rank == 0)
            bench_print_row(library, settings, &result);
    }
    return 0;
}

static int measure(struct bench *bench)
{
    struct bench_library library;
    struct bench_roof *roof = NULL;
    bench_group_library(&bench->group, &library);
    library.name = bench->label;
    if (bench->roof && bench_roof_create(&library, bench->group.group, &roof) != SHOAL_OK) {
        fprintf(stderr, "shoal bench: rank %d: %s\n", library.rank, base_error_text());
        return -1;
    }
    if (library.rank == 0)
        bench_print_header(&library, &bench->settings);
    int failed = measure_sizes(bench, &library, roof);
    bench_roof_free(roof);
    return failed;
}

static int run_rank(struct bench *bench)
{
    enum shoal_status status = shoal_group_create(NULL, &bench->group.group);
    if (status != SHOAL_OK) {
        fprintf(stderr, "shoal bench: %s\n", shoal_last_error(NULL));
        return 1;
    }
    int failed = measure(bench);
    if (failed != 0)
        shoal_group_abort(bench->group.group, "the benchmark failed on a rank");
    status = shoal_group_free(bench->group.group);
    if (failed == 0 && status != SHOAL_OK) {
        fprintf(stderr, "shoal bench: %s\n", shoal_last_error(NULL));
        return 1;
    }
    return failed != 0;
}

int cmd_bench(int argc, char **argv)
{
    struct bench bench = {.settings = BENCH_SETTINGS_INIT,
                          .roof = true,
                          .label = "shoal",
                          .group = {.command = "bench"}};
    if (argc > 1 && strcmp(argv[1], "kernel") == 0)
        return bench_kernel(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "start") == 0)
        return bench_start(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "fuse") == 0)
        return bench_fuse(argc - 1, argv + 1);
    enum shoal_status status = arguments_read(&bench, argc, argv);
    if (status == SHOAL_OK && bench.help) {
        print_help();
        return 0;
    }
    if (status == SHOAL_OK && bench_launch_wanted(&bench.launch))
        status = bench_launch_become(&bench.launch, NULL, argc, argv);
    else if (status == SHOAL_OK)
        return run_rank(&bench);
    fprintf(stderr, "shoal bench: %s\n", base_error_text());
    return EXIT_USAGE;
}
