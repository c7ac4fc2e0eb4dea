/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_measure.h: how a collective is timed, for every library in the same way. Libc only; the
 * programs that measure other libraries are built with it.
 *
 * Per size: a warm-up that estimates the time; then rounds. In a round every rank writes its input
 * buffers anew, meets the others in a barrier, reads the clock, runs the operation, reads the
 * clock, and checks its output. The time of a round is that of the slowest rank. Operations of less
 * than 20 us are timed in batches, back to back, each with buffers of its own that were written
 * before the clock started; the batch's time is divided by their number. The processor time of all
 * threads of all ranks between the two looks at the clock is added up; waiting counts where it
 * spins.
 */
#ifndef SHOAL_CMD_BENCH_MEASURE_H
#define SHOAL_CMD_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench_pattern.h"

#define BENCH_SIZES_MAX   128
#define BENCH_ERROR_BYTES 256

enum bench_operation {
    BENCH_ALLREDUCE,
    BENCH_ALLGATHER,
    BENCH_REDUCE_SCATTER,
    BENCH_BROADCAST,
    BENCH_REDUCE,
    BENCH_ALLTOALL,
    BENCH_GATHER,
    BENCH_SCATTER,
    BENCH_BARRIER,
    BENCH_OPERATION_COUNT
};

/* One call of a collective. count is what the call takes: elements per rank (per pair of ranks for
 * alltoall). The root, where there is one, is rank 0. */
struct bench_call {
    enum bench_operation operation;
    enum bench_dtype dtype;
    enum bench_reduction reduction;
    uint64_t count;
    const void *in;
    void *out; /* broadcast: the buffer, in is NULL */
};

/* The library that is measured. Functions return 0, or another value after they told why. */
struct bench_library {
    const char *name;
    const char *version;
    int rank, size, hosts;
    void *user;
    int (*run)(void *user, const struct bench_call *call);
    int (*barrier)(void *user);
    /* values[i] becomes its maximum over the ranks. */
    int (*maximum)(void *user, double *values, size_t count);
    int (*allocate)(void *user, size_t bytes, void **out);
    void (*release)(void *user, void *memory);
};

struct bench_settings {
    enum bench_operation operation;
    enum bench_dtype dtype;
    enum bench_reduction reduction;
    uint64_t sizes[BENCH_SIZES_MAX];
    size_t size_count;
    int rounds;      /* 0: as many as size_ms allows */
    int64_t size_ms; /* time for one size, without warm-up */
    bool check, in_place, json;
    const char *note; /* JSON object with the settings of the library */
};
#define BENCH_SETTINGS_INIT                                                                     \
    {                                                                                           \
        .dtype = BENCH_F32, .reduction = BENCH_SUM, .size_ms = 200, .check = true, .note = "{}" \
    }

/* Sets one option by its name without dashes: sizes, dtype, op, iters, size-ms, note; an operation
 * by the name "operation". 0, or another value with a text in error. */
int bench_settings_set(struct bench_settings *settings, const char *name, const char *value,
                       char error[BENCH_ERROR_BYTES]);
/* Whether what was set fits together; fills in default sizes. To be called last. */
int bench_settings_finish(struct bench_settings *settings, char error[BENCH_ERROR_BYTES]);
const char *bench_operation_name(enum bench_operation operation);
/* "allreduce, allgather, ..." */
const char *bench_operation_names(void);

struct bench_result {
    uint64_t bytes; /* the larger of a rank's two buffers, as in nccl-tests */
    uint64_t count;
    double p50_us, p99_us, min_us;
    double cpu_us; /* processor time of all ranks together for one call, mean */
    int rounds, batch;
    double roof_us;     /* 0: not measured */
    double pingpong_us; /* 8 bytes one way between two hosts, raw; 0: not measured */
    char roof[96];      /* what the roof is */
};

/* Elements per call and buffer sizes for a size of `bytes`; the size is rounded up to whole
 * elements for each rank. */
struct bench_shape {
    uint64_t count, in_count, out_count;
    uint64_t bytes;
};
struct bench_shape bench_shape_make(const struct bench_settings *settings, int ranks,
                                    uint64_t bytes);

/* Measures one size; all ranks call it. 0, or another value after the reason was printed. */
int bench_measure(const struct bench_library *library, const struct bench_settings *settings,
                  uint64_t bytes, struct bench_result *out);

/* bus bandwidth / algorithm bandwidth. */
double bench_bus_factor(enum bench_operation operation, int ranks);
/* On stdout, one line; rank 0 calls them. */
void bench_print_header(const struct bench_library *library, const struct bench_settings *settings);
void bench_print_row(const struct bench_library *library, const struct bench_settings *settings,
                     const struct bench_result *result);

/* Core-seconds for each GB of a rank's buffer, mean of the ranks. 0 for a size of 0. */
double bench_cpu_per_gb(const struct bench_library *library, const struct bench_result *result);

/* CLOCK_MONOTONIC in microseconds. */
double bench_now_us(void);

#endif
