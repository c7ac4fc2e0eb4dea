/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_bench.c: measures an MPI library in the way that `shoal bench` measures Shoal: the rounds,
 * buffers, checks and times are the same code (cmd/shoal/bench_measure.c). Built once per MPI by
 * bench/peers/setup.
 *
 *   mpirun -n 2 mpi_bench LIBRARY allreduce --sizes 8:64M --dtype f32 --note '{"x": "y"}'
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_measure.h"

struct mpi_state {
    MPI_Datatype types[BENCH_DTYPE_COUNT];
    MPI_Op operations[BENCH_REDUCTION_COUNT];
    bool in_place;
};

static void fill_tables(struct mpi_state *state)
{
    static const struct {
        enum bench_dtype dtype;
        MPI_Datatype type;
    } types[] = {{BENCH_F64, MPI_DOUBLE},
                 {BENCH_F32, MPI_FLOAT},
                 {BENCH_I8, MPI_INT8_T},
                 {BENCH_U8, MPI_UINT8_T},
                 {BENCH_I16, MPI_INT16_T},
                 {BENCH_I32, MPI_INT32_T},
                 {BENCH_I64, MPI_INT64_T},
                 {BENCH_U16, MPI_UINT16_T},
                 {BENCH_U32, MPI_UINT32_T},
                 {BENCH_U64, MPI_UINT64_T},
                 {BENCH_BOOL, MPI_C_BOOL},
                 {BENCH_COMPLEX64, MPI_C_FLOAT_COMPLEX},
                 {BENCH_COMPLEX128, MPI_C_DOUBLE_COMPLEX}};
    static const struct {
        enum bench_reduction reduction;
        MPI_Op operation;
    } operations[] = {{BENCH_SUM, MPI_SUM},   {BENCH_PROD, MPI_PROD}, {BENCH_MIN, MPI_MIN},
                      {BENCH_MAX, MPI_MAX},   {BENCH_BAND, MPI_BAND}, {BENCH_BOR, MPI_BOR},
                      {BENCH_BXOR, MPI_BXOR}, {BENCH_LAND, MPI_LAND}, {BENCH_LOR, MPI_LOR},
                      {BENCH_LXOR, MPI_LXOR}};
    for (int i = 0; i < BENCH_DTYPE_COUNT; i++)
        state->types[i] = MPI_DATATYPE_NULL;
    for (int i = 0; i < BENCH_REDUCTION_COUNT; i++)
        state->operations[i] = MPI_OP_NULL;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        state->types[types[i].dtype] = types[i].type;
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
        state->operations[operations[i].reduction] = operations[i].operation;
}

static int run_call(void *user, const struct bench_call *call)
{
    const struct mpi_state *state = user;
    MPI_Datatype type = state->types[call->dtype];
    MPI_Op operation = state->operations[call->reduction];
    const void *in = state->in_place ? MPI_IN_PLACE : call->in;
    int count = (int)call->count;
    MPI_Comm world = MPI_COMM_WORLD;
    switch (call->operation) {
    case BENCH_ALLREDUCE: return MPI_Allreduce(in, call->out, count, type, operation, world);
    case BENCH_ALLGATHER: return MPI_Allgather(in, count, type, call->out, count, type, world);
    case BENCH_REDUCE_SCATTER:
        return MPI_Reduce_scatter_block(call->in, call->out, count, type, operation, world);
    case BENCH_BROADCAST: return MPI_Bcast(call->out, count, type, 0, world);
    case BENCH_REDUCE: return MPI_Reduce(call->in, call->out, count, type, operation, 0, world);
    case BENCH_ALLTOALL: return MPI_Alltoall(call->in, count, type, call->out, count, type, world);
    case BENCH_GATHER: return MPI_Gather(call->in, count, type, call->out, count, type, 0, world);
    case BENCH_SCATTER: return MPI_Scatter(call->in, count, type, call->out, count, type, 0, world);
    default: return MPI_Barrier(world);
    }
}

static int meet(void *user)
{
    (void)user;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int take_maximum(void *user, double *values, size_t count)
{
    (void)user;
    return MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static int allocate(void *user, size_t bytes, void **out)
{
    (void)user;
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (*out == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        return -1;
    }
    memset(*out, 0, bytes);
    return 0;
}

static void release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

/* Hosts as MPI sees them: groups of ranks that share memory. */
static int count_hosts(int rank)
{
    MPI_Comm local;
    int local_rank = 0, leader, hosts = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local);
    MPI_Comm_rank(local, &local_rank);
    leader = local_rank == 0;
    MPI_Allreduce(&leader, &hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_free(&local);
    return hosts;
}

/* The number in the library's version text: "Open MPI v5.0.11, ..." gives "5.0.11". */
static void find_version(char version[64])
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    MPI_Get_library_version(text, &length);
    for (const char *at = text; *at != '\0'; at++) {
        size_t span = strspn(at, "0123456789.");
        if (span >= 3 && span < 64 && strchr(at, '.') < at + span) {
            memcpy(version, at, span);
            version[span] = '\0';
            return;
        }
        at += span > 0 ? span - 1 : 0;
    }
    strcpy(version, "unknown");
}

static int parse_arguments(int argc, char **argv, struct bench_settings *settings,
                           char error[BENCH_ERROR_BYTES])
{
    snprintf(error, BENCH_ERROR_BYTES, "usage: mpi_bench LIBRARY OPERATION [--option value]...");
    if (argc < 3 || bench_settings_set(settings, "operation", argv[2], error) != 0)
        return -1;
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--in-place") == 0) {
            settings->in_place = true;
        } else if (strcmp(argv[i], "--no-check") == 0) {
            settings->check = false;
        } else if (strncmp(argv[i], "--", 2) != 0 || i + 1 == argc) {
            snprintf(error, BENCH_ERROR_BYTES, "can't read argument '%s'", argv[i]);
            return -1;
        } else if (bench_settings_set(settings, argv[i] + 2, argv[i + 1], error) != 0) {
            return -1;
        } else {
            i++;
        }
    }
    if (settings->in_place && settings->operation != BENCH_ALLREDUCE &&
        settings->operation != BENCH_ALLGATHER) {
        snprintf(error, BENCH_ERROR_BYTES, "in place: only allreduce and allgather");
        return -1;
    }
    return bench_settings_finish(settings, error);
}

static int measure_all(const struct bench_library *library, const struct bench_settings *settings)
{
    for (size_t i = 0; i < settings->size_count; i++) {
        struct bench_result result;
        if (bench_measure(library, settings, settings->sizes[i], &result) != 0)
            return 1;
        if (library->rank == 0)
            bench_print_row(library, settings, &result);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench_settings settings = BENCH_SETTINGS_INIT;
    struct mpi_state state = {0};
    char error[BENCH_ERROR_BYTES], version[64];
    int rank, size;
    settings.json = true;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    fill_tables(&state);
    if (parse_arguments(argc, argv, &settings, error) != 0) {
        if (rank == 0)
            fprintf(stderr, "mpi_bench: %s\n", error);
        MPI_Finalize();
        return 2;
    }
    if (state.types[settings.dtype] == MPI_DATATYPE_NULL ||
        state.operations[settings.reduction] == MPI_OP_NULL) {
        fprintf(stderr, "mpi_bench: MPI has no such dtype or op\n");
        MPI_Finalize();
        return 2;
    }
    state.in_place = settings.in_place;
    find_version(version);
    struct bench_library library = {.name = argv[1],
                                    .version = version,
                                    .rank = rank,
                                    .size = size,
                                    .hosts = count_hosts(rank),
                                    .user = &state,
                                    .run = run_call,
                                    .barrier = meet,
                                    .maximum = take_maximum,
                                    .allocate = allocate,
                                    .release = release};
    int failed = measure_all(&library, &settings);
    if (failed != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
