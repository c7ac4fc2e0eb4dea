/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_kernel.c: `shoal bench kernel`: the arithmetic loops of one core, in every form that this
 * processor has, beside what memory allows.
 *
 * The roof of a row is a copy that loads and stores as many bytes as the kernel, between buffers of
 * the same total size; the faster of memcpy and of a copy whose stores go around the cache counts.
 * A row's form and the roof's copies take turns, and each round's buffers are written anew.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench_kernel.h"
#include "bench_measure.h"
#include "kernel/kernel.h"
#include "sort.h"

#define INPUTS_MAX   16
#define ROUNDS_MIN   5
#define ROUNDS_MAX   1000
#define BATCH_US     50.0
#define LINE_BYTES   64
#define FORMS        "scalar,base,avx2,avx512,neon" /* those there are of them are measured */
#define STREAM_BYTES (UINT64_C(1) << 20) /* sizes from here on also try stores around the cache */

enum {
    KERNEL_ARG_SIZES,
    KERNEL_ARG_DTYPE,
    KERNEL_ARG_OP,
    KERNEL_ARG_INPUTS,
    KERNEL_ARG_ISA,
    KERNEL_ARG_SIZE_MS,
    KERNEL_ARG_JSON,
    KERNEL_ARG_HELP,
    KERNEL_ARG_COUNT
};

static const struct argument table[KERNEL_ARG_COUNT] = {
    [KERNEL_ARG_SIZES] = {"sizes", 's', "SIZES",
                          "bytes of each buffer (default 16K,256K,4M,64M): in the first, the\n"
                          "second and the last cache, and beyond"},
    [KERNEL_ARG_DTYPE] = {"dtype", 't', "DTYPES", "default f32,f64,f16,bf16,i32,u8"},
    [KERNEL_ARG_OP] = {"op", 'o', "OP", "sum (default), avg, prod, min, max, ..."},
    [KERNEL_ARG_INPUTS] = {"inputs", 0, "N", "arrays that are reduced in one pass (default 2)"},
    [KERNEL_ARG_ISA] = {"isa", 0, "FORMS", "default " FORMS ": those there are"},
    [KERNEL_ARG_SIZE_MS] = {"size-ms", 0, "MS", "time per row (default 60)"},
    [KERNEL_ARG_JSON] = {"json", 'j', NULL, "one JSON object per row"},
    [KERNEL_ARG_HELP] = {"help", 'h', NULL, "this text"},
};

struct kernel_bench {
    struct bench_settings sizes; /* its sizes alone are used */
    const char *dtypes, *forms;
    enum shoal_op op;
    long input_count, size_ms;
    bool json, help;
    /* buffers of the largest size */
    unsigned char *inputs[INPUTS_MAX], *output;
};

/* One row: what runs, and the medians. */
struct kernel_row {
    struct kernel_reduce how;
    uint64_t bytes; /* of a buffer */
    int input_count;
    double us, copy_us, stream_us;
};

static void print_help(void)
{
    printf("usage: shoal bench kernel [OPTION...]\n\n"
           "Measures the arithmetic loops on one core, in every form that the processor has.\n\n");
    arguments_help(table, KERNEL_ARG_COUNT, stdout);
    printf("\nColumns: form, dtype, bytes of a buffer, median time, bytes loaded and stored per\n"
           "second, elements per second, and the time as a multiple of the roof's: a copy that\n"
           "loads and stores as many bytes, by memcpy or around the cache, whichever is faster.\n");
}

/* ---- arguments
 * ------------------------------------------------------------------------------------- */

static enum shoal_status op_use(struct kernel_bench *bench, const char *value)
{
    if (!kernel_op_parse(value, &bench->op) || bench->op == SHOAL_PREMUL_SUM)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "--op %s: sum, avg, prod, min, max, band, bor, bxor, land, lor or lxor",
                          value);
    return SHOAL_OK;
}

static enum shoal_status argument_use(void *user, int id, const char *value)
{
    struct kernel_bench *bench = user;
    char error[BENCH_ERROR_BYTES];
    switch (id) {
    case KERNEL_ARG_SIZES:
        if (bench_settings_set(&bench->sizes, "sizes", value, error) != 0)
            return base_error(SHOAL_ERR_ARGUMENT, "%s", error);
        return SHOAL_OK;
    case KERNEL_ARG_DTYPE: bench->dtypes = value; return SHOAL_OK;
    case KERNEL_ARG_OP: return op_use(bench, value);
    case KERNEL_ARG_INPUTS:
        return argument_number("--inputs", value, 1, INPUTS_MAX, &bench->input_count);
    case KERNEL_ARG_ISA: bench->forms = value; return SHOAL_OK;
    case KERNEL_ARG_SIZE_MS: return argument_number("--size-ms", value, 1, 60000, &bench->size_ms);
    case KERNEL_ARG_JSON: bench->json = true; return SHOAL_OK;
    default: bench->help = true; return SHOAL_OK;
    }
}

static enum shoal_status arguments_read(struct kernel_bench *bench, int argc, char **argv)
{
    struct arguments arguments = {.command = "bench kernel",
                                  .table = table,
                                  .count = KERNEL_ARG_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = argument_use,
                                  .user = bench,
                                  .at = 1};
    char error[BENCH_ERROR_BYTES];
    TRY(arguments_take_all(&arguments));
    if (bench->sizes.size_count == 0 &&
        bench_settings_set(&bench->sizes, "sizes", "16K,256K,4M,64M", error) != 0)
        return base_error(SHOAL_ERR_INTERNAL, "%s", error);
    return SHOAL_OK;
}

/* The next word of a list with commas; false at its end. */
static bool next_word(const char **list, char *word, size_t word_bytes)
{
    size_t length = strcspn(*list, ",");
    if (**list == '\0')
        return false;
    snprintf(word, word_bytes, "%.*s", (int)length, *list);
    *list += length + ((*list)[length] == ',');
    return true;
}

/* ---- measuring
 * ------------------------------------------------------------------------------------- */

static enum shoal_status take_buffers(struct kernel_bench *bench)
{
    uint64_t most = 0;
    for (size_t i = 0; i < bench->sizes.size_count; i++)
        most = bench->sizes.sizes[i] > most ? bench->sizes.sizes[i] : most;
    for (long i = 0; i < bench->input_count; i++)
        TRY(base_alloc(most, "an input", (void **)&bench->inputs[i]));
    return base_alloc(most * (uint64_t)(bench->input_count + 1), "the output",
                      (void **)&bench->output);
}

static void release_buffers(struct kernel_bench *bench)
{
    for (long i = 0; i < bench->input_count; i++)
        base_free(bench->inputs[i]);
    base_free(bench->output);
}

/* Ones in every dtype's sense: small numbers whose bits are no slow case of the arithmetic. */
static void write_inputs(const struct kernel_bench *bench, const struct kernel_row *row)
{
    for (int i = 0; i < row->input_count; i++)
        memset(bench->inputs[i], 1 + i % 2, row->bytes);
}

static void run_kernel(const struct kernel_bench *bench, const struct kernel_row *row)
{
    const void *inputs[INPUTS_MAX];
    for (int i = 0; i < row->input_count; i++)
        inputs[i] = bench->inputs[i];
    kernel_reduce(&row->how, bench->output, inputs, row->input_count,
                  row->bytes / kernel_dtype_bytes(row->how.dtype));
}

/* Bytes of an input that are copied, so that all copies together load and store as many bytes as
 * the kernel. */
static uint64_t copied_part(uint64_t bytes, int input_count)
{
    uint64_t k = (uint64_t)input_count;
    return bytes * (k + 1) / (2 * k) / LINE_BYTES * LINE_BYTES;
}

static void run_copy(const struct kernel_bench *bench, const struct kernel_row *row, bool stream)
{
    uint64_t part = copied_part(row->bytes, row->input_count);
    for (int i = 0; i < row->input_count; i++)
        kernel_copy(bench->output + (uint64_t)i * part, bench->inputs[i], part, stream);
}

/* Time of one of `batch` calls, back to back. */
static double time_batch(const struct kernel_bench *bench, const struct kernel_row *row, int batch,
                         int what)
{
    write_inputs(bench, row);
    double start_us = bench_now_us();
    for (int i = 0; i < batch; i++) {
        if (what == 0)
            run_kernel(bench, row);
        else
            run_copy(bench, row, what == 2);
    }
    return (bench_now_us() - start_us) / batch;
}

static double median(double *values, int count)
{
    sort_doubles(values, (size_t)count);
    return values[count / 2];
}

/* Kernel, memcpy and streamed copy by turns. */
static void measure_row(const struct kernel_bench *bench, struct kernel_row *row)
{
    static double times[3][ROUNDS_MAX];
    double once_us = time_batch(bench, row, 1, 0);
    int batch = once_us < BATCH_US ? (int)(BATCH_US / (once_us > 0.01 ? once_us : 0.01)) + 1 : 1;
    double end_us = bench_now_us() + (double)bench->size_ms * 1000;
    int rounds = 0;
    while (rounds < ROUNDS_MAX && (rounds < ROUNDS_MIN || bench_now_us() < end_us)) {
        for (int what = 0; what < 3; what++)
            times[what][rounds] = time_batch(bench, row, batch, what);
        rounds++;
    }
    row->us = median(times[0], rounds);
    row->copy_us = median(times[1], rounds);
    row->stream_us = median(times[2], rounds);
}

static void print_row(const struct kernel_bench *bench, const struct kernel_row *row)
{
    double roof_us = row->stream_us < row->copy_us ? row->stream_us : row->copy_us;
    double moved = (double)row->bytes * (row->input_count + 1);
    double elements = (double)row->bytes / (double)kernel_dtype_bytes(row->how.dtype);
    const char *format =
        bench->json
            ? "{\"form\": \"%s\", \"stream\": %s, \"dtype\": \"%s\", \"op\": \"%s\", \"inputs\": "
              "%d, \"bytes\": %" PRIu64 ", \"us\": %.3f, \"gbps\": %.3f, \"gelems\": %.4f, "
              "\"roof_us\": %.3f, \"ratio_roof\": %.3f}\n"
            : "%8s %6s %9s %5s %6d %11" PRIu64 " %11.2f %8.2f %9.3f %11.2f %7.2f\n";
    const char *yes = bench->json ? "true" : "around", *no = bench->json ? "false" : "in";
    printf(format, kernel_isa(), row->how.stream ? yes : no, kernel_dtype_name(row->how.dtype),
           kernel_op_name(row->how.op), row->input_count, row->bytes, row->us,
           moved / row->us / 1000, elements / row->us / 1000, roof_us, row->us / roof_us);
    fflush(stdout);
}

static void measure_form(const struct kernel_bench *bench, enum shoal_dtype dtype)
{
    for (size_t i = 0; i < bench->sizes.size_count; i++)
        for (int stream = 0; stream < 2; stream++) {
            struct kernel_row row = {
                .how = {.dtype = dtype, .op = bench->op, .stream = stream != 0},
                .bytes = (bench->sizes.sizes[i] + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES,
                .input_count = (int)bench->input_count};
            if (bench->op == SHOAL_AVG)
                row.how.divisor = (uint32_t)bench->input_count;
            if (stream && row.bytes < STREAM_BYTES)
                continue;
            measure_row(bench, &row);
            print_row(bench, &row);
        }
}

/* Every form of the list that is there; a word that is no form at all is an error. */
static enum shoal_status measure_forms(const struct kernel_bench *bench, enum shoal_dtype dtype)
{
    const char *list = bench->forms;
    char form[32];
    while (next_word(&list, form, sizeof(form))) {
        if (!strstr("," FORMS ",", form))
            return base_error(SHOAL_ERR_ARGUMENT, "--isa %s: not one of " FORMS, form);
        if (kernel_force_isa(form))
            measure_form(bench, dtype);
    }
    return SHOAL_OK;
}

static enum shoal_status measure(const struct kernel_bench *bench)
{
    const char *list = bench->dtypes;
    char name[32];
    if (!bench->json)
        printf("# shoal %s, kernels on one core\n%8s %6s %9s %5s %6s %11s %11s %8s %9s %11s %7s\n",
               shoal_version(), "form", "cache", "dtype", "op", "inputs", "bytes", "p50 us", "GB/s",
               "Gelem/s", "roof us", "x roof");
    while (next_word(&list, name, sizeof(name))) {
        enum shoal_dtype dtype;
        if (!kernel_dtype_parse(name, &dtype))
            return base_error(SHOAL_ERR_ARGUMENT, "--dtype %s: there is no such dtype", name);
        if (!kernel_supports(dtype, bench->op))
            return base_error(SHOAL_ERR_ARGUMENT, "--op %s has no meaning on %s",
                              kernel_op_name(bench->op), name);
        TRY(measure_forms(bench, dtype));
    }
    return SHOAL_OK;
}

int bench_kernel(int argc, char **argv)
{
    struct kernel_bench bench = {.sizes = BENCH_SETTINGS_INIT,
                                 .dtypes = "f32,f64,f16,bf16,i32,u8",
                                 .forms = FORMS,
                                 .op = SHOAL_SUM,
                                 .input_count = 2,
                                 .size_ms = 60};
    enum shoal_status status = arguments_read(&bench, argc, argv);
    if (status == SHOAL_OK && bench.help) {
        print_help();
        return 0;
    }
    if (status == SHOAL_OK)
        status = take_buffers(&bench);
    if (status == SHOAL_OK)
        status = measure(&bench);
    release_buffers(&bench);
    return arguments_exit("bench kernel", status);
}
