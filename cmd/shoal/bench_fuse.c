/* SPDX-License-Identifier: Apache-2.0 */
/* bench_fuse.c: `shoal bench fuse`: arguments, ranks, and what is shown. */
#include "bench_fuse.h"

#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/options.h"
#include "base/status.h"
#include "bench_group.h"
#include "bench_launch.h"
#include "scaled_text.h"
#include "svg.h"

#define COMPUTE_MS_MAX 600000

enum {
    FUSE_ARG_MODEL,
    FUSE_ARG_COMPUTE_MS,
    FUSE_ARG_BUFFER,
    FUSE_ARG_IN_FLIGHT,
    FUSE_ARG_COMPRESSION,
    FUSE_ARG_SCALE,
    FUSE_ARG_STEPS,
    FUSE_ARG_NO_CHECK,
    FUSE_ARG_TIMELINE,
    FUSE_ARG_JSON,
    FUSE_ARG_LAUNCH, /* the first of BENCH_LAUNCH_COUNT */
    FUSE_ARG_HELP = FUSE_ARG_LAUNCH + BENCH_LAUNCH_COUNT,
    FUSE_ARG_COUNT
};

static const struct argument table[FUSE_ARG_COUNT] = {
    [FUSE_ARG_MODEL] = {"model", 'm', "NAME",
                        "bert-large, gpt-2, gpt-2-xl, mask-rcnn-r50, resnet-50, or a file as in\n"
                        "models/"},
    [FUSE_ARG_COMPUTE_MS] = {"compute-ms", 0, "MS",
                             "computing of a step, simulated by waiting: 1/3 forward pass, 2/3\n"
                             "backward (default: as long as one allreduce of all gradients takes)"},
    [FUSE_ARG_BUFFER] = {"buffer", 0, "BYTES", "of a fusion buffer (default: by SHOAL_FUSE_BYTES)"},
    [FUSE_ARG_IN_FLIGHT] = {"in-flight", 0, "K",
                            "buffers on their way at a time (default SHOAL_FUSE_IN_FLIGHT)"},
    [FUSE_ARG_COMPRESSION] = {"compression", 0, "TYPE",
                              "buffers travel as bf16, f16 or int8 (default none); their sums are\n"
                              "rounded, and not checked"},
    [FUSE_ARG_SCALE] = {"scale", 0, "F",
                        "each tensor has only F times its elements, up to 1 (default)"},
    [FUSE_ARG_STEPS] = {"steps", 0, "N", "steps of each kind (default 10), after a warm-up"},
    [FUSE_ARG_NO_CHECK] = {"no-check", 0, NULL, "don't check sums"},
    [FUSE_ARG_TIMELINE] = {"timeline", 0, "FILE.svg",
                           "a picture of the last step, as rank 0 sees it"},
    [FUSE_ARG_JSON] = {"json", 'j', NULL, "one JSON object"},
    [FUSE_ARG_LAUNCH] = BENCH_LAUNCH_ROWS,
    [FUSE_ARG_HELP] = {"help", 'h', NULL, "this text"},
};

struct fuse_bench {
    struct fuse_replay_settings settings;
    const char *model, *timeline;
    bool json, help;
    struct bench_launch launch;
    struct bench_group group;
    FILE *picture;
};

static void print_help(void)
{
    printf(
        "usage: shoal bench fuse --model NAME [OPTION...]\n\n"
        "Replays steps of training a known model: gradients of its shapes, in the order and at\n"
        "the times in which its backward pass makes them, go through fusion buffers. By turns\n"
        "with these, steps with one blocking allreduce of all gradients after the computing.\n\n");
    arguments_help(table, FUSE_ARG_COUNT, stdout);
    printf(
        "\nOf each step the slowest rank counts; medians, lowest and highest are shown. Sums are\n"
        "checked. Each rank takes twice the gradients' memory; --scale makes it less.\n\n"
        "Without -n, --hosts and --virtual-hosts this process is a rank, of the group that its\n"
        "launcher's environment describes. Examples:\n"
        "  shoal bench fuse --model resnet-50 -n 2\n"
        "  shoal bench fuse --model bert-large --scale 0.1 --virtual-hosts 4 --rate 1gbit \\\n"
        "      --compute-ms 1500 --timeline step.svg\n");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static enum shoal_status number_read(const char *name, const char *text, double most, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    if (end == text || *end != '\0' || !(*out > 0 && *out <= most))
        return base_error(SHOAL_ERR_ARGUMENT, "%s %s: it takes a number above 0, up to %g", name,
                          text, most);
    return SHOAL_OK;
}

static enum shoal_status in_flight_read(const char *text, int *out)
{
    const struct base_option *row = &base_options()[OPTION_FUSE_IN_FLIGHT];
    long number = 0;
    TRY(argument_number("--in-flight", text, (long)row->minimum, (long)row->maximum, &number));
    *out = (int)number;
    return SHOAL_OK;
}

static const char *const compression_names[] = {"none", "bf16", "f16", "int8"};

static enum shoal_status compression_read(const char *text, enum shoal_compression *out)
{
    for (size_t i = 0; i < sizeof compression_names / sizeof *compression_names; i++)
        if (strcmp(text, compression_names[i]) == 0) {
            *out = (enum shoal_compression)i;
            return SHOAL_OK;
        }
    return base_error(SHOAL_ERR_ARGUMENT, "--compression %s: it takes none, bf16, f16 or int8",
                      text);
}

static enum shoal_status steps_read(const char *text, int *out)
{
    long number = 0;
    TRY(argument_number("--steps", text, 1, FUSE_STEPS_MAX, &number));
    *out = (int)number;
    return SHOAL_OK;
}

static enum shoal_status argument_use(void *user, int id, const char *value)
{
    struct fuse_bench *bench = user;
    struct fuse_replay_settings *settings = &bench->settings;
    switch (id) {
    case FUSE_ARG_MODEL: bench->model = value; break;
    case FUSE_ARG_COMPUTE_MS:
        TRY(number_read("--compute-ms", value, COMPUTE_MS_MAX, &settings->compute_ns));
        settings->compute_ns *= 1e6;
        break;
    case FUSE_ARG_BUFFER:
        return argument_option_bytes("--buffer", value, OPTION_FUSE_BYTES, &settings->buffer_bytes);
    case FUSE_ARG_IN_FLIGHT: return in_flight_read(value, &settings->in_flight);
    case FUSE_ARG_COMPRESSION: return compression_read(value, &settings->compression);
    case FUSE_ARG_SCALE: return number_read("--scale", value, 1, &settings->scale);
    case FUSE_ARG_STEPS: return steps_read(value, &settings->steps);
    case FUSE_ARG_NO_CHECK: settings->check = false; break;
    case FUSE_ARG_TIMELINE: bench->timeline = value; break;
    case FUSE_ARG_JSON: bench->json = true; break;
    case FUSE_ARG_HELP: bench->help = true; break;
    default: return bench_launch_use(&bench->launch, id - FUSE_ARG_LAUNCH, value);
    }
    return SHOAL_OK;
}

static enum shoal_status arguments_read(struct fuse_bench *bench, int argc, char **argv)
{
    struct arguments arguments = {.command = "bench fuse",
                                  .table = table,
                                  .count = FUSE_ARG_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = argument_use,
                                  .user = bench,
                                  .at = 1};
    TRY(arguments_take_all(&arguments));
    if (bench->help)
        return SHOAL_OK;
    if (bench->settings.compression != SHOAL_COMPRESSION_NONE)
        bench->settings.check = false;
    if (bench->model == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "which model? --model NAME");
    TRY(bench_launch_check(&bench->launch));
    return model_read(bench->model, &bench->settings.model);
}

/* ---- showing --------------------------------------------------------------------------------- */

static const struct {
    const char *name, *text; /* in JSON, and for people */
} value_names[FUSE_VALUE_COUNT] = {
    [FUSE_COMPUTE] = {"computed", "computing, until the last gradient is ready"},
    [FUSE_STEP] = {"step", "step with fusion buffers"},
    [FUSE_FLIGHT] = {"flight", "  buffers on their way"},
    [FUSE_EXPOSED] = {"exposed", "  of that, after the computing"},
    [FUSE_BLOCKING_STEP] = {"blocking_step", "step with one allreduce behind it"},
    [FUSE_BLOCKING_ALLREDUCE] = {"blocking_allreduce", "  of that, the allreduce"},
};

/* The share of the communication that computing hid. */
static double hidden_share(const struct fuse_replay_result *result)
{
    double flight = result->values[FUSE_FLIGHT].median;
    return flight > 0 ? 1 - result->values[FUSE_EXPOSED].median / flight : 0;
}

static double gain(const struct fuse_replay_result *result)
{
    return result->values[FUSE_BLOCKING_STEP].median / result->values[FUSE_STEP].median;
}

/* A step can't be shorter than its computing, nor than its communication alone. */
static double over_longer(const struct fuse_replay_result *result)
{
    double computing = result->values[FUSE_COMPUTE].median;
    double communication = result->values[FUSE_BLOCKING_ALLREDUCE].median;
    return result->values[FUSE_STEP].median /
           (computing > communication ? computing : communication);
}

static void json_print(const struct fuse_bench *bench, const struct bench_library *library,
                       const struct fuse_replay_result *result)
{
    printf("{\"lib\": \"shoal\", \"version\": \"%s\", \"op\": \"fuse\", \"model\": \"%s\", "
           "\"ranks\": %d, \"hosts\": %d, \"scale\": %g, \"tensors\": %d, \"elements\": %llu, "
           "\"bytes\": %llu, \"buffer_bytes\": %llu, \"buffers\": %d, \"in_flight\": %d, "
           "\"steps\": %d, \"checked\": %s, \"compression\": \"%s\", \"compute_ms\": %.4f",
           library->version, bench->settings.model.name, library->size, library->hosts,
           bench->settings.scale, result->tensors, (unsigned long long)result->elements,
           (unsigned long long)result->bytes, (unsigned long long)result->buffer_bytes,
           result->buffers, result->in_flight, bench->settings.steps,
           bench->settings.check ? "true" : "false", compression_names[bench->settings.compression],
           result->compute_ns / 1e6);
    for (int i = 0; i < FUSE_VALUE_COUNT; i++) {
        const char *name = value_names[i].name;
        printf(", \"%s_ms\": %.4f, \"%s_low_ms\": %.4f, \"%s_high_ms\": %.4f", name,
               result->values[i].median / 1e6, name, result->values[i].low / 1e6, name,
               result->values[i].high / 1e6);
    }
    printf(", \"hidden\": %.4f, \"gain\": %.4f, \"over_longer\": %.4f, \"held_back\": %.1f, "
           "\"joined\": %.1f, \"link_bytes\": %.0f, \"link_bound_bytes\": %.0f}\n",
           hidden_share(result), gain(result), over_longer(result), result->held_back,
           result->joined, result->link_bytes, result->link_bound_bytes);
}

static void text_print(const struct fuse_bench *bench, const struct bench_library *library,
                       const struct fuse_replay_result *result)
{
    printf("# shoal %s, %d steps of %s: %d tensors, %s in %d buffers of %s, %d in flight; %d ranks "
           "on %d host%s\n%-46s %10s %10s %10s\n",
           library->version, bench->settings.steps, bench->settings.model.name, result->tensors,
           scaled_bytes_text((double)result->bytes), result->buffers,
           scaled_bytes_text((double)result->buffer_bytes), result->in_flight, library->size,
           library->hosts, library->hosts > 1 ? "s" : "", "ms", "median", "low", "high");
    for (int i = 0; i < FUSE_VALUE_COUNT; i++)
        printf("%-46s %10.3f %10.3f %10.3f\n", value_names[i].text, result->values[i].median / 1e6,
               result->values[i].low / 1e6, result->values[i].high / 1e6);
    printf("hidden behind the computing: %.1f %% of the communication; %.1f buffers of a step had "
           "to wait for others, %.1f went with another one\n",
           100 * hidden_share(result), result->held_back, result->joined);
    printf("the step is %.2f times as fast as with one allreduce, and takes %.3f times the longer "
           "one of computing and allreduce\n",
           gain(result), over_longer(result));
    if (result->link_bound_bytes > 0)
        printf("the busiest link carried %s in a step, %.3f times the bound 2(h-1)/h n = %s\n",
               scaled_bytes_text(result->link_bytes), result->link_bytes / result->link_bound_bytes,
               scaled_bytes_text(result->link_bound_bytes));
}

/* ---- as a rank ------------------------------------------------------------------------------- */

static int picture_open(struct fuse_bench *bench, int rank)
{
    if (bench->timeline == NULL || rank != 0)
        return 0;
    if (svg_open(bench->timeline, &bench->picture) == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal bench fuse: %s\n", base_error_text());
    return -1;
}

static int picture_close(struct fuse_bench *bench)
{
    if (bench->picture == NULL)
        return 0;
    if (svg_close(bench->picture, bench->timeline) == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal bench fuse: %s\n", base_error_text());
    return -1;
}

static int measure(struct fuse_bench *bench)
{
    struct bench_library library;
    struct fuse_replay_result result;
    shoal_fuse_t fuse = NULL;
    bench_group_library(&bench->group, &library);
    if (picture_open(bench, library.rank) != 0)
        return -1;
    int failed = fuse_replay(&bench->settings, &library, bench->group.group, &fuse, &result);
    if (failed == 0 && library.rank == 0 && bench->json)
        json_print(bench, &library, &result);
    else if (failed == 0 && library.rank == 0)
        text_print(bench, &library, &result);
    if (failed == 0 && bench->picture != NULL)
        fuse_timeline_print(&bench->settings, &result, fuse, bench->picture);
    shoal_fuse_free(fuse);
    return picture_close(bench) != 0 ? -1 : failed;
}

static int run_rank(struct fuse_bench *bench)
{
    if (shoal_group_create(NULL, &bench->group.group) != SHOAL_OK) {
        fprintf(stderr, "shoal bench fuse: %s\n", shoal_last_error(NULL));
        return 1;
    }
    int failed = measure(bench);
    if (failed != 0)
        shoal_group_abort(bench->group.group, "the benchmark failed on a rank");
    if (shoal_group_free(bench->group.group) != SHOAL_OK && failed == 0) {
        fprintf(stderr, "shoal bench fuse: %s\n", shoal_last_error(NULL));
        return 1;
    }
    return failed != 0;
}

int bench_fuse(int argc, char **argv)
{
    struct fuse_bench bench = {.settings = {.scale = 1, .steps = 10, .check = true},
                               .group = {.command = "bench fuse", .shared_memory = true}};
    int exit_status = EXIT_USAGE;
    enum shoal_status status = arguments_read(&bench, argc, argv);
    if (status == SHOAL_OK && bench.help) {
        print_help();
        return 0;
    }
    if (status == SHOAL_OK && bench_launch_wanted(&bench.launch))
        status = bench_launch_become(&bench.launch, "fuse", argc, argv);
    else if (status == SHOAL_OK)
        exit_status = run_rank(&bench);
    if (status != SHOAL_OK)
        fprintf(stderr, "shoal bench fuse: %s\n", base_error_text());
    model_release(&bench.settings.model);
    return exit_status;
}
