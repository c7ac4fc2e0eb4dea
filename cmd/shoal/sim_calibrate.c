/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_calibrate.c: `shoal sim --calibrate`: reads what `shoal bench --json` measured between hosts,
 * fits the platform to it, and prints it as a file, with each run beside its simulated time.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "boot/json.h"
#include "kernel/kernel.h"
#include "sim.h"
#include "sim/fit.h"
#include "sort.h"

#define RUNS_MAX   512
#define LINE_BYTES 4096
#define NAME_BYTES 32

/* A line of the file. */
struct run {
    char operation[NAME_BYTES], dtype[NAME_BYTES], algorithm[NAME_BYTES];
    double ranks, hosts, bytes, count, p50_us;
};

struct runs {
    struct run *runs;               /* [RUNS_MAX] */
    struct sim_sample *samples;     /* [RUNS_MAX] */
    struct sim_programs **programs; /* [2 * RUNS_MAX] of each run, and of the barrier before it */
    int count;
};

/* ---- lines --------------------------------------------------------------------------------- */

/* {"algorithm": "ring"}, which the measuring side had set. */
static enum shoal_status read_settings(struct boot_json *json, struct run *run)
{
    TRY(boot_json_object(json));
    for (;;) {
        char name[NAME_BYTES];
        bool more;
        TRY(boot_json_member(json, name, sizeof(name), &more));
        if (!more)
            return SHOAL_OK;
        if (strcmp(name, "algorithm") == 0)
            TRY(boot_json_string(json, run->algorithm, sizeof(run->algorithm)));
        else
            TRY(boot_json_skip(json));
    }
}

static enum shoal_status read_member(struct boot_json *json, const char *name, struct run *run)
{
    const struct {
        const char *name;
        double *number;
    } numbers[] = {{"ranks", &run->ranks},
                   {"hosts", &run->hosts},
                   {"bytes", &run->bytes},
                   {"count", &run->count},
                   {"p50_us", &run->p50_us}};
    if (strcmp(name, "op") == 0)
        return boot_json_string(json, run->operation, sizeof(run->operation));
    if (strcmp(name, "dtype") == 0)
        return boot_json_string(json, run->dtype, sizeof(run->dtype));
    if (strcmp(name, "settings") == 0)
        return read_settings(json, run);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(name, numbers[i].name) == 0)
            return boot_json_number(json, numbers[i].number);
    return boot_json_skip(json);
}

static enum shoal_status parse_run(const char *line, struct run *run)
{
    struct boot_json json;
    *run = (struct run){.algorithm = "auto"};
    boot_json_begin(&json, line, strlen(line));
    TRY(boot_json_object(&json));
    for (;;) {
        char name[NAME_BYTES];
        bool more;
        TRY(boot_json_member(&json, name, sizeof(name), &more));
        if (!more)
            break;
        TRY(read_member(&json, name, run));
    }
    bool fits = run->ranks <= SIM_RANKS_MAX && run->hosts >= 2 && fmod(run->ranks, run->hosts) == 0;
    if (!fits || run->p50_us <= 0 || run->count < 0 || run->count > 1e15)
        return base_error(SHOAL_ERR_FORMAT, "expected a line of `shoal bench --json` between two "
                                            "hosts or more, with equally many ranks on each");
    return boot_json_end(&json);
}

/* ---- programs ------------------------------------------------------------------------------ */

static enum shoal_status make_programs(const struct sim_platform *platform, const struct run *run,
                                       enum coll_kind kind, struct sim_programs **out)
{
    enum shoal_dtype dtype;
    const struct coll_algorithm *algorithm;
    int size = (int)run->ranks, each = size / (int)run->hosts;
    char forced[128];
    TRY(argument_dtype(run->dtype, &dtype));
    int *host_of;
    TRY(BASE_NEW_ARRAY(&host_of, size, "the ranks' hosts"));
    for (int rank = 0; rank < size; rank++)
        host_of[rank] = rank / each;
    struct coll_shape shape = {.kind = kind,
                               .size = size,
                               .elem_bytes = shoal_dtype_bytes(dtype),
                               .wide_sums = kernel_dtype_is_half(dtype),
                               .count = (uint64_t)run->count,
                               .in_place = kind == COLL_BROADCAST,
                               .crowded = sim_is_crowded(platform, (int)run->hosts, size),
                               .host_of = host_of,
                               .host_count = (int)run->hosts};
    shape.segment_count = coll_segment_count(&shape);
    snprintf(forced, sizeof(forced), "%s:%s", run->operation, run->algorithm);
    struct coll_choice choice = {.dtype = dtype, .forced = forced};
    enum shoal_status status = coll_choose(&shape, &choice, &algorithm);
    if (status == SHOAL_OK)
        status = sim_programs_create(algorithm, &shape, true, out);
    base_free(host_of);
    return status;
}

static enum shoal_status add_run(const struct sim_platform *platform, const char *line,
                                 struct runs *runs)
{
    struct run *run = &runs->runs[runs->count];
    enum coll_kind kind;
    if (runs->count == RUNS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "more than %d runs", RUNS_MAX);
    TRY(parse_run(line, run));
    TRY(argument_operation(run->operation, &kind));
    struct sim_programs **programs = &runs->programs[2 * runs->count];
    runs->count++;
    TRY(make_programs(platform, run, kind, &programs[0]));
    TRY(make_programs(platform, run, COLL_BARRIER, &programs[1]));
    runs->samples[runs->count - 1] = (struct sim_sample){.programs = programs[0],
                                                         .barrier = programs[1],
                                                         .own_bytes = 2 * run->bytes,
                                                         .measured_ns = run->p50_us * 1e3};
    return SHOAL_OK;
}

static enum shoal_status read_runs(const struct sim_platform *platform, FILE *file,
                                   const char *path, struct runs *runs)
{
    char line[LINE_BYTES];
    for (int number = 1; fgets(line, sizeof(line), file); number++) {
        if (line[strspn(line, " \t\r\n")] == '\0')
            continue;
        enum shoal_status status = add_run(platform, line, runs);
        if (status != SHOAL_OK)
            return base_error_context(status, "%s:%d", path, number);
    }
    if (ferror(file))
        return base_error(SHOAL_ERR_SYSTEM, "cannot read %s", path);
    return runs->count ? SHOAL_OK : base_error(SHOAL_ERR_FORMAT, "%s: there is no run in it", path);
}

static enum shoal_status open_runs(const struct sim_platform *platform, const char *path,
                                   struct runs *runs)
{
    TRY(BASE_NEW_ARRAY(&runs->runs, RUNS_MAX, "the runs"));
    TRY(BASE_NEW_ARRAY(&runs->samples, RUNS_MAX, "the runs"));
    TRY(BASE_NEW_ARRAY(&runs->programs, 2 * RUNS_MAX, "the runs"));
    FILE *file = fopen(path, "r");
    if (!file)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read %s", path);
    enum shoal_status status = read_runs(platform, file, path, runs);
    fclose(file);
    return status;
}

static void close_runs(struct runs *runs)
{
    for (int i = 0; runs->programs && i < 2 * runs->count; i++)
        sim_programs_free(runs->programs[i]);
    base_free(runs->programs);
    base_free(runs->samples);
    base_free(runs->runs);
}

/* ---- output -------------------------------------------------------------------------------- */

static void print_summary(const struct runs *runs, const char *path)
{
    double off[RUNS_MAX];
    for (int i = 0; i < runs->count; i++)
        off[i] = fabs(runs->samples[i].simulated_ns / runs->samples[i].measured_ns - 1);
    sort_doubles(off, (size_t)runs->count);
    printf("# %d runs of %s: half of them are off by at most %.1f %%, nine in ten by %.1f %%, all "
           "by %.1f %%\n",
           runs->count, path, 100 * off[(runs->count - 1) / 2],
           100 * off[(runs->count - 1) * 9 / 10], 100 * off[runs->count - 1]);
    printf("# %-14s %-18s %5s %5s %11s %11s %11s %6s\n", "operation", "algorithm", "hosts", "ranks",
           "bytes", "measured", "simulated", "ratio");
}

static void print_runs(const struct runs *runs, const char *path)
{
    print_summary(runs, path);
    for (int i = 0; i < runs->count; i++) {
        const struct run *run = &runs->runs[i];
        const struct sim_sample *sample = &runs->samples[i];
        printf("# %-14s %-18s %5.0f %5.0f %11s %11s %11s %6.3f\n", run->operation,
               sample->programs->algorithm, run->hosts, run->ranks, scaled_bytes_text(run->bytes),
               scaled_time_text(sample->measured_ns), scaled_time_text(sample->simulated_ns),
               sample->simulated_ns / sample->measured_ns);
    }
}

enum shoal_status sim_calibrate(struct sim_platform *platform, const char *path, bool fits)
{
    struct runs runs = {0};
    enum shoal_status status = open_runs(platform, path, &runs);
    if (status == SHOAL_OK)
        status = fits ? sim_fit(platform, runs.samples, runs.count)
                      : sim_samples_run(platform, runs.samples, runs.count);
    if (status == SHOAL_OK) {
        print_runs(&runs, path);
        sim_platform_print(platform, stdout);
    }
    close_runs(&runs);
    return status;
}
