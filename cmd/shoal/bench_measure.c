/* SPDX-License-Identifier: Apache-2.0 */
/* bench_measure.c: the rounds of a measurement and what is printed of them; see bench_measure.h. */
#include "bench_measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH_US        20.0
#define BATCH_MAX       256
#define BATCH_BYTES_MAX (16 * 1024 * 1024)
#define ROUNDS_MIN      5
#define ROUNDS_MAX      2000
#define WARM_UP_US      500.0
#define WARM_UP_MAX     100
#define WARM_UP_TRIES   3

static const char *const operation_names[BENCH_OPERATION_COUNT] = {
    "allreduce", "allgather", "reduce_scatter", "broadcast", "reduce",
    "alltoall",  "gather",    "scatter",        "barrier"};

const char *bench_operation_name(enum bench_operation operation)
{
    return operation_names[operation];
}

const char *bench_operation_names(void)
{
    return "allreduce, allgather, reduce_scatter, broadcast, reduce, alltoall, gather, scatter, "
           "barrier";
}

static double clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

double bench_now_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

static bool reduces(enum bench_operation operation)
{
    return operation == BENCH_ALLREDUCE || operation == BENCH_REDUCE_SCATTER ||
           operation == BENCH_REDUCE;
}

/* ---- settings
 * --------------------------------------------------------------------------------------- */

/* "64K" and the like; end is set behind it. False: not a size. */
static bool read_bytes(const char *text, const char **end, uint64_t *out)
{
    static const char units[] = "KMG";
    char *rest;
    if (text[0] < '0' || text[0] > '9')
        return false;
    uint64_t value = strtoull(text, &rest, 10);
    const char *unit = *rest != '\0' ? strchr(units, *rest & ~0x20) : NULL;
    if (unit != NULL) {
        value <<= 10 * (unit - units + 1);
        rest++;
    }
    *end = rest;
    *out = value;
    return value <= (UINT64_C(1) << 40);
}

/* "8:64M" doubles from 8 to 64M; "8:64M:4" goes in factors of 4. */
static bool read_range(struct bench_settings *settings, const char *text)
{
    uint64_t first, last, factor = 2;
    if (!read_bytes(text, &text, &first) || *text != ':' || first == 0 ||
        !read_bytes(text + 1, &text, &last))
        return false;
    if (*text == ':' && (!read_bytes(text + 1, &text, &factor) || factor < 2))
        return false;
    if (*text != '\0' || last < first)
        return false;
    settings->size_count = 0;
    for (uint64_t size = first; size <= last && settings->size_count < BENCH_SIZES_MAX;
         size *= factor)
        settings->sizes[settings->size_count++] = size;
    return true;
}

static bool read_list(struct bench_settings *settings, const char *text)
{
    settings->size_count = 0;
    while (settings->size_count < BENCH_SIZES_MAX) {
        if (!read_bytes(text, &text, &settings->sizes[settings->size_count]))
            return false;
        settings->size_count++;
        if (*text != ',')
            break;
        text++;
    }
    return *text == '\0';
}

static int set_sizes(struct bench_settings *settings, const char *text, char *error)
{
    bool good = strchr(text, ':') != NULL ? read_range(settings, text) : read_list(settings, text);
    if (!good)
        snprintf(error, BENCH_ERROR_BYTES,
                 "can't read sizes '%s'; write a range such as 8:64M (doubling), 8:64M:4 (times 4) "
                 "or a list such as 8,4K,1M",
                 text);
    return good ? 0 : -1;
}

static int set_number(int64_t *out, const char *name, const char *text, int64_t least, char *error)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && value >= least && value <= 1000000) {
        *out = value;
        return 0;
    }
    snprintf(error, BENCH_ERROR_BYTES, "--%s %s: give a number of %lld to 1000000", name, text,
             (long long)least);
    return -1;
}

/* Index of `text` among names, or -1 with the names in error. */
static int find_name(const char *kind, const char *text, const char *(*name)(int), int count,
                     char *error)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(text, name(i)) == 0)
            return i;
    }
    int used = snprintf(error, BENCH_ERROR_BYTES, "unknown %s '%s'; there are", kind, text);
    for (int i = 0; i < count && used > 0 && used < BENCH_ERROR_BYTES; i++)
        used += snprintf(error + used, (size_t)(BENCH_ERROR_BYTES - used), "%s %s",
                         i > 0 ? "," : "", name(i));
    return -1;
}

static const char *operation_name_at(int index)
{
    return operation_names[index];
}

static const char *dtype_name_at(int index)
{
    return bench_dtype_name((enum bench_dtype)index);
}

static const char *reduction_name_at(int index)
{
    return bench_reduction_name((enum bench_reduction)index);
}

int bench_settings_set(struct bench_settings *settings, const char *name, const char *value,
                       char error[BENCH_ERROR_BYTES])
{
    int found = 0;
    int64_t number = 0;
    if (strcmp(name, "sizes") == 0)
        return set_sizes(settings, value, error);
    if (strcmp(name, "note") == 0) {
        settings->note = value;
    } else if (strcmp(name, "operation") == 0) {
        found = find_name("operation", value, operation_name_at, BENCH_OPERATION_COUNT, error);
        settings->operation = (enum bench_operation)found;
    } else if (strcmp(name, "dtype") == 0) {
        found = find_name("dtype", value, dtype_name_at, BENCH_DTYPE_COUNT, error);
        settings->dtype = (enum bench_dtype)found;
    } else if (strcmp(name, "op") == 0) {
        found = find_name("op", value, reduction_name_at, BENCH_REDUCTION_COUNT, error);
        settings->reduction = (enum bench_reduction)found;
    } else if (strcmp(name, "iters") == 0) {
        found = set_number(&number, name, value, 1, error);
        settings->rounds = (int)number;
    } else if (strcmp(name, "size-ms") == 0) {
        found = set_number(&settings->size_ms, name, value, 1, error);
    } else {
        snprintf(error, BENCH_ERROR_BYTES, "unknown option '--%s'", name);
        return -1;
    }
    return found >= 0 ? 0 : -1;
}

int bench_settings_finish(struct bench_settings *settings, char error[BENCH_ERROR_BYTES])
{
    if (reduces(settings->operation) &&
        !bench_reduction_checkable(settings->reduction, settings->dtype)) {
        snprintf(error, BENCH_ERROR_BYTES, "op %s on dtype %s can't be measured here",
                 bench_reduction_name(settings->reduction), bench_dtype_name(settings->dtype));
        return -1;
    }
    if (settings->in_place && settings->operation == BENCH_ALLTOALL) {
        snprintf(error, BENCH_ERROR_BYTES, "alltoall has no form in place");
        return -1;
    }
    if (settings->operation == BENCH_BARRIER) {
        settings->sizes[0] = 0;
        settings->size_count = 1;
        return 0;
    }
    return settings->size_count > 0 ? 0 : set_sizes(settings, "8:64M", error);
}

/* ---- shapes
 * ------------------------------------------------------------------------------------------ */

struct bench_shape bench_shape_make(const struct bench_settings *settings, int ranks,
                                    uint64_t bytes)
{
    enum bench_operation operation = settings->operation;
    uint64_t element = bench_dtype_bytes(settings->dtype), p = (uint64_t)ranks;
    bool blocks = operation == BENCH_ALLGATHER || operation == BENCH_REDUCE_SCATTER ||
                  operation == BENCH_ALLTOALL || operation == BENCH_GATHER ||
                  operation == BENCH_SCATTER;
    uint64_t unit = blocks ? element * p : element;
    struct bench_shape shape = {.count = (bytes + unit - 1) / unit};
    if (operation == BENCH_BARRIER)
        return (struct bench_shape){0};
    shape.bytes = shape.count * unit;
    shape.in_count = shape.out_count = shape.count;
    if (operation == BENCH_ALLGATHER || operation == BENCH_GATHER || operation == BENCH_ALLTOALL)
        shape.out_count *= p;
    if (operation == BENCH_REDUCE_SCATTER || operation == BENCH_SCATTER ||
        operation == BENCH_ALLTOALL)
        shape.in_count *= p;
    return shape;
}

/* ---- buffers
 * ------------------------------------------------------------------------------------------ */

/* The buffers of one batch. In place, the one buffer is as large as the larger of the two. */
struct bench_buffers {
    unsigned char *in[BATCH_MAX];
    unsigned char *out[BATCH_MAX];
    unsigned char *memory;
};

struct bench_run {
    const struct bench_library *library;
    const struct bench_settings *settings;
    struct bench_shape shape;
    struct bench_buffers buffers;
    uint64_t round; /* counts every call, so that no two have the same input */
    double cpu_us;  /* of this rank, in all rounds so far */
};

static size_t padded(uint64_t bytes)
{
    return (size_t)((bytes + 63) / 64 * 64 + 64);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool one_buffer(const struct bench_settings *settings)
{
    return settings->in_place || settings->operation == BENCH_BROADCAST;
}

/* Bytes of one call's buffers. */
static size_t slot_bytes(const struct bench_run *run)
{
    uint64_t element = bench_dtype_bytes(run->settings->dtype);
    uint64_t in = run->shape.in_count * element, out = run->shape.out_count * element;
    return one_buffer(run->settings) ? padded(larger(in, out)) : padded(in) + padded(out);
}

/* Where the input starts in a buffer that is in and out at once. */
static uint64_t input_offset(const struct bench_run *run)
{
    enum bench_operation operation = run->settings->operation;
    bool gathers = operation == BENCH_ALLGATHER || operation == BENCH_GATHER;
    return gathers ? (uint64_t)run->library->rank * run->shape.count : 0;
}

/* Where the output starts in it. */
static uint64_t output_offset(const struct bench_run *run)
{
    enum bench_operation operation = run->settings->operation;
    bool scatters = operation == BENCH_REDUCE_SCATTER || operation == BENCH_SCATTER;
    return scatters ? (uint64_t)run->library->rank * run->shape.count : 0;
}

static int buffers_create(struct bench_run *run, int batch)
{
    const struct bench_library *library = run->library;
    size_t slot = slot_bytes(run), element = bench_dtype_bytes(run->settings->dtype);
    void *memory;
    if (library->allocate(library->user, slot * (size_t)batch, &memory) != 0)
        return -1;
    run->buffers.memory = memory;
    for (int i = 0; i < batch; i++) {
        unsigned char *start = run->buffers.memory + slot * (size_t)i;
        run->buffers.in[i] = run->buffers.out[i] = start;
        if (one_buffer(run->settings)) {
            run->buffers.in[i] += input_offset(run) * element;
            run->buffers.out[i] += output_offset(run) * element;
        } else {
            run->buffers.out[i] += padded(run->shape.in_count * element);
        }
    }
    return 0;
}

static void buffers_free(struct bench_run *run)
{
    run->library->release(run->library->user, run->buffers.memory);
}

/* ---- filling and checking
 * ----------------------------------------------------------------------------- */

/* Whether this rank's input, or output, means something. */
static bool has_input(const struct bench_run *run)
{
    enum bench_operation operation = run->settings->operation;
    return run->library->rank == 0 || (operation != BENCH_BROADCAST && operation != BENCH_SCATTER);
}

static bool has_output(const struct bench_run *run)
{
    enum bench_operation operation = run->settings->operation;
    return run->library->rank == 0 || (operation != BENCH_REDUCE && operation != BENCH_GATHER);
}

static void fill_input(const struct bench_run *run, int slot, uint64_t round)
{
    const struct bench_settings *settings = run->settings;
    struct bench_pattern pattern;
    if (!has_input(run))
        return;
    bench_pattern_input(&pattern, settings->dtype, settings->reduction,
                        reduces(settings->operation), run->library->rank, round);
    bench_pattern_fill(&pattern, run->buffers.in[slot], 0, run->shape.in_count);
}

static int report_wrong(const struct bench_run *run, uint64_t index)
{
    fprintf(stderr,
            "wrong result: %s of %" PRIu64 " bytes, %s, rank %d, output element %" PRIu64 "\n",
            bench_operation_name(run->settings->operation), run->shape.bytes,
            bench_dtype_name(run->settings->dtype), run->library->rank, index);
    return -1;
}

/* Where in the sender's sequence the data that `rank` sent to this one begins. */
static uint64_t sender_offset(const struct bench_run *run)
{
    enum bench_operation operation = run->settings->operation;
    bool cut = operation == BENCH_ALLTOALL || operation == BENCH_SCATTER;
    return cut ? (uint64_t)run->library->rank * run->shape.count : 0;
}

/* The output is blocks that came from ranks, unchanged. */
static int check_moved(const struct bench_run *run, int slot, uint64_t round)
{
    const struct bench_settings *settings = run->settings;
    uint64_t blocks = run->shape.out_count / run->shape.count, count = run->shape.count;
    for (uint64_t block = 0; block < blocks; block++) {
        struct bench_pattern pattern;
        bench_pattern_input(&pattern, settings->dtype, settings->reduction, false, (int)block,
                            round);
        const unsigned char *from = run->buffers.out[slot] + block * count * pattern.element_bytes;
        uint64_t wrong = bench_pattern_check(&pattern, from, sender_offset(run), count);
        if (wrong < count)
            return report_wrong(run, block * count + wrong);
    }
    return 0;
}

static int check_output(const struct bench_run *run, int slot, uint64_t round)
{
    const struct bench_settings *settings = run->settings;
    struct bench_pattern pattern;
    if (!settings->check || !has_output(run) || run->shape.count == 0)
        return 0;
    if (!reduces(settings->operation))
        return check_moved(run, slot, round);
    bench_pattern_reduced(&pattern, settings->dtype, settings->reduction, run->library->size,
                          round);
    uint64_t first = settings->operation == BENCH_REDUCE_SCATTER
                         ? (uint64_t)run->library->rank * run->shape.count
                         : 0;
    uint64_t wrong =
        bench_pattern_check(&pattern, run->buffers.out[slot], first, run->shape.out_count);
    return wrong < run->shape.out_count ? report_wrong(run, wrong) : 0;
}

/* ---- rounds
 * -------------------------------------------------------------------------------------------- */

/* One round of `batch` calls: the time per call on this rank. */
static int run_round(struct bench_run *run, int batch, double *time_us)
{
    const struct bench_library *library = run->library;
    const struct bench_settings *settings = run->settings;
    struct bench_call call = {.operation = settings->operation,
                              .dtype = settings->dtype,
                              .reduction = settings->reduction,
                              .count = run->shape.count};
    uint64_t first_round = run->round;
    run->round += (uint64_t)batch;
    for (int i = 0; i < batch; i++)
        fill_input(run, i, first_round + (uint64_t)i);
    if (library->barrier(library->user) != 0)
        return -1;
    double cpu_us = clock_us(CLOCK_PROCESS_CPUTIME_ID), start_us = bench_now_us();
    for (int i = 0; i < batch; i++) {
        call.in = run->buffers.in[i];
        call.out = run->buffers.out[i];
        if (library->run(library->user, &call) != 0)
            return -1;
    }
    *time_us = (bench_now_us() - start_us) / batch;
    run->cpu_us += clock_us(CLOCK_PROCESS_CPUTIME_ID) - cpu_us;
    for (int i = 0; i < batch; i++) {
        if (check_output(run, i, first_round + (uint64_t)i) != 0)
            return -1;
    }
    return 0;
}

static double smallest(const double *values, int count)
{
    double least = values[0];
    for (int i = 1; i < count; i++)
        least = values[i] < least ? values[i] : least;
    return least;
}

/* `count` calls in a row on the same buffers, not checked: the time of one on this rank. */
static int run_in_a_row(struct bench_run *run, int count, double *time_us)
{
    const struct bench_library *library = run->library;
    struct bench_call call = {.operation = run->settings->operation,
                              .dtype = run->settings->dtype,
                              .reduction = run->settings->reduction,
                              .count = run->shape.count,
                              .in = run->buffers.in[0],
                              .out = run->buffers.out[0]};
    double start_us = bench_now_us();
    for (int i = 0; i < count; i++) {
        if (library->run(library->user, &call) != 0)
            return -1;
    }
    *time_us = (bench_now_us() - start_us) / count;
    return 0;
}

/* What a warm-up found, as all ranks see it: the best of a few tries, for it only serves to choose
 * numbers. */
struct estimate {
    double call_us;
    double around_us; /* writing, barrier and check of a round of one call */
};

static int estimate_make(struct bench_run *run, struct estimate *out)
{
    const struct bench_library *library = run->library;
    double times_us[WARM_UP_TRIES] = {0}, around_us[WARM_UP_TRIES];
    for (int i = 0; i < WARM_UP_TRIES; i++) {
        double start_us = bench_now_us();
        if (run_round(run, 1, &times_us[i]) != 0)
            return -1;
        around_us[i] = bench_now_us() - start_us - times_us[i];
    }
    if (library->maximum(library->user, times_us, WARM_UP_TRIES) != 0 ||
        library->maximum(library->user, around_us, WARM_UP_TRIES) != 0)
        return -1;
    double best_us = smallest(times_us, WARM_UP_TRIES);
    int row = best_us * WARM_UP_MAX < WARM_UP_US ? WARM_UP_MAX : (int)(WARM_UP_US / best_us);
    for (int i = 0; row > 1 && i < WARM_UP_TRIES; i++) {
        if (run_in_a_row(run, row, &times_us[i]) != 0)
            return -1;
    }
    if (library->maximum(library->user, times_us, WARM_UP_TRIES) != 0)
        return -1;
    *out = (struct estimate){.call_us = smallest(times_us, WARM_UP_TRIES),
                             .around_us = smallest(around_us, WARM_UP_TRIES)};
    return 0;
}

static int choose_batch(const struct bench_run *run, double call_us)
{
    double batch = call_us > 0 ? BATCH_US / call_us : BATCH_MAX;
    double fitting = (double)BATCH_BYTES_MAX / (double)slot_bytes(run);
    if (batch > fitting)
        batch = fitting;
    if (batch > BATCH_MAX)
        batch = BATCH_MAX;
    return batch > 1 ? (int)batch : 1;
}

static int choose_rounds(const struct bench_settings *settings, double round_us)
{
    if (settings->rounds > 0)
        return settings->rounds;
    double rounds = (double)settings->size_ms * 1000 / (round_us > 0.1 ? round_us : 0.1);
    if (rounds > ROUNDS_MAX)
        return ROUNDS_MAX;
    return rounds < ROUNDS_MIN ? ROUNDS_MIN : (int)rounds;
}

static int compare_times(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* What all ranks took together for one call of those since cpu_us was 0. */
static int sum_cpu(struct bench_run *run, struct bench_result *out)
{
    const struct bench_library *library = run->library;
    size_t count = (size_t)library->size;
    void *memory;
    if (library->allocate(library->user, count * sizeof(double), &memory) != 0)
        return -1;
    double *ranks = memory;
    memset(ranks, 0, count * sizeof(*ranks));
    ranks[library->rank] = run->cpu_us / ((double)out->rounds * out->batch);
    int failed = library->maximum(library->user, ranks, count);
    out->cpu_us = 0;
    for (size_t i = 0; i < count; i++)
        out->cpu_us += ranks[i];
    library->release(library->user, memory);
    return failed;
}

static int take_samples(struct bench_run *run, double *samples, struct bench_result *out)
{
    const struct bench_library *library = run->library;
    run->cpu_us = 0;
    for (int i = 0; i < out->rounds; i++) {
        if (run_round(run, out->batch, &samples[i]) != 0)
            return -1;
    }
    if (library->maximum(library->user, samples, (size_t)out->rounds) != 0 ||
        sum_cpu(run, out) != 0)
        return -1;
    qsort(samples, (size_t)out->rounds, sizeof(samples[0]), compare_times);
    out->min_us = samples[0];
    out->p50_us = samples[out->rounds / 2];
    out->p99_us = samples[(out->rounds * 99 + 99) / 100 - 1];
    return 0;
}

static int measure_batches(struct bench_run *run, const struct estimate *estimate,
                           struct bench_result *out)
{
    const struct bench_library *library = run->library;
    void *samples;
    out->batch = choose_batch(run, estimate->call_us);
    out->rounds =
        choose_rounds(run->settings, (estimate->call_us + estimate->around_us) * out->batch);
    if (buffers_create(run, out->batch) != 0)
        return -1;
    int failed = library->allocate(library->user, (size_t)out->rounds * sizeof(double), &samples);
    if (failed == 0) {
        failed = take_samples(run, samples, out);
        library->release(library->user, samples);
    }
    buffers_free(run);
    return failed;
}

int bench_measure(const struct bench_library *library, const struct bench_settings *settings,
                  uint64_t bytes, struct bench_result *out)
{
    struct bench_run run = {.library = library,
                            .settings = settings,
                            .shape = bench_shape_make(settings, library->size, bytes)};
    struct estimate found = {0};
    *out = (struct bench_result){.bytes = run.shape.bytes, .count = run.shape.count};
    if (buffers_create(&run, 1) != 0)
        return -1;
    int failed = estimate_make(&run, &found);
    buffers_free(&run);
    return failed != 0 ? failed : measure_batches(&run, &found, out);
}

/* ---- printing
 * -------------------------------------------------------------------------------------------- */

double bench_bus_factor(enum bench_operation operation, int ranks)
{
    double p = ranks;
    switch (operation) {
    case BENCH_ALLREDUCE: return 2 * (p - 1) / p;
    case BENCH_ALLGATHER:
    case BENCH_REDUCE_SCATTER:
    case BENCH_ALLTOALL:
    case BENCH_GATHER:
    case BENCH_SCATTER: return (p - 1) / p;
    default: return 1;
    }
}

double bench_cpu_per_gb(const struct bench_library *library, const struct bench_result *result)
{
    double bytes = (double)result->bytes * library->size;
    return bytes > 0 ? result->cpu_us * 1e3 / bytes : 0;
}

void bench_print_header(const struct bench_library *library, const struct bench_settings *settings)
{
    if (settings->json)
        return;
    printf("# %s %s, %s", library->name, library->version,
           bench_operation_name(settings->operation));
    if (settings->operation != BENCH_BARRIER)
        printf(" %s", bench_dtype_name(settings->dtype));
    if (reduces(settings->operation))
        printf(" %s", bench_reduction_name(settings->reduction));
    printf(", %d ranks on %d hosts%s%s\n", library->size, library->hosts,
           settings->in_place ? ", in place" : "", settings->check ? "" : ", not checked");
    printf("#%11s %12s %11s %11s %11s %9s %9s %11s %7s %9s %6s\n", "bytes", "count", "p50 us",
           "p99 us", "min us", "alg GB/s", "bus GB/s", "roof us", "x roof", "core s/GB", "iters");
    fflush(stdout);
}

static void print_json(const struct bench_library *library, const struct bench_settings *settings,
                       const struct bench_result *result)
{
    printf("{\"lib\": \"%s\", \"version\": \"%s\", \"op\": \"%s\", \"dtype\": \"%s\", "
           "\"reduction\": \"%s\", \"ranks\": %d, \"hosts\": %d, \"bytes\": %" PRIu64
           ", \"count\": %" PRIu64 ", \"p50_us\": %.4f, \"p99_us\": %.4f, \"min_us\": %.4f, "
           "\"cpu_us\": %.4f, \"iters\": %d, \"batch\": %d, \"in_place\": %s, \"checked\": %s, ",
           library->name, library->version, bench_operation_name(settings->operation),
           bench_dtype_name(settings->dtype), bench_reduction_name(settings->reduction),
           library->size, library->hosts, result->bytes, result->count, result->p50_us,
           result->p99_us, result->min_us, result->cpu_us, result->rounds, result->batch,
           settings->in_place ? "true" : "false", settings->check ? "true" : "false");
    if (result->roof_us > 0)
        printf("\"roof_us\": %.4f, \"ratio_roof\": %.4f, \"roof\": \"%s\", ", result->roof_us,
               result->p50_us / result->roof_us, result->roof);
    if (result->pingpong_us > 0)
        printf("\"pingpong_us\": %.4f, ", result->pingpong_us);
    printf("\"settings\": %s}\n", settings->note);
}

void bench_print_row(const struct bench_library *library, const struct bench_settings *settings,
                     const struct bench_result *result)
{
    if (settings->json) {
        print_json(library, settings, result);
        fflush(stdout);
        return;
    }
    double algorithm = (double)result->bytes / result->p50_us / 1e3;
    printf("%12" PRIu64 " %12" PRIu64 " %11.2f %11.2f %11.2f %9.3f %9.3f", result->bytes,
           result->count, result->p50_us, result->p99_us, result->min_us, algorithm,
           algorithm * bench_bus_factor(settings->operation, library->size));
    if (result->roof_us > 0)
        printf(" %11.2f %7.2f", result->roof_us, result->p50_us / result->roof_us);
    else
        printf(" %11s %7s", "-", "-");
    printf(" %9.2f %6d\n", bench_cpu_per_gb(library, result), result->rounds);
    fflush(stdout);
}
