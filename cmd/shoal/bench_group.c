/* SPDX-License-Identifier: Apache-2.0 */
/* bench_group.c: see bench_group.h. */
#include "bench_group.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"

_Static_assert((int)BENCH_F64 == (int)SHOAL_F64 && (int)BENCH_BF16 == (int)SHOAL_BF16 &&
                   (int)BENCH_I64 == (int)SHOAL_I64 && (int)BENCH_U16 == (int)SHOAL_U16 &&
                   (int)BENCH_BOOL == (int)SHOAL_BOOL &&
                   (int)BENCH_DTYPE_COUNT == (int)SHOAL_DTYPE_COUNT,
               "dtypes are numbered alike");
_Static_assert((int)BENCH_SUM == (int)SHOAL_SUM && (int)BENCH_MAX == (int)SHOAL_MAX &&
                   (int)BENCH_BXOR == (int)SHOAL_BXOR && (int)BENCH_LXOR == (int)SHOAL_LXOR,
               "ops are numbered alike");

static int report(const struct bench_group *bench, enum shoal_status status)
{
    if (status == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal %s: rank %d: %s: %s\n", bench->command, shoal_group_rank(bench->group),
            shoal_status_name(status), shoal_last_error(bench->group));
    return -1;
}

static int run_call(void *user, const struct bench_call *call)
{
    const struct bench_group *bench = user;
    shoal_group_t group = bench->group;
    enum shoal_dtype dtype = (enum shoal_dtype)call->dtype;
    enum shoal_op op = (enum shoal_op)call->reduction;
    uint64_t count = call->count;
    const void *in = call->in;
    void *out = call->out;
    switch (call->operation) {
    case BENCH_ALLREDUCE:
        return report(bench, shoal_allreduce(in, out, count, dtype, op, group, NULL));
    case BENCH_ALLGATHER: return report(bench, shoal_allgather(in, out, count, dtype, group, NULL));
    case BENCH_REDUCE_SCATTER:
        return report(bench, shoal_reduce_scatter(in, out, count, dtype, op, group, NULL));
    case BENCH_BROADCAST: return report(bench, shoal_broadcast(out, count, dtype, 0, group, NULL));
    case BENCH_REDUCE:
        return report(bench, shoal_reduce(in, out, count, dtype, op, 0, group, NULL));
    case BENCH_ALLTOALL: return report(bench, shoal_alltoall(in, out, count, dtype, group, NULL));
    case BENCH_GATHER: return report(bench, shoal_gather(in, out, count, dtype, 0, group, NULL));
    case BENCH_SCATTER: return report(bench, shoal_scatter(in, out, count, dtype, 0, group, NULL));
    default: return report(bench, shoal_barrier(group, NULL));
    }
}

static int meet(void *user)
{
    const struct bench_group *bench = user;
    return report(bench, shoal_barrier(bench->group, NULL));
}

static int take_maximum(void *user, double *values, size_t count)
{
    const struct bench_group *bench = user;
    return report(bench,
                  shoal_allreduce(values, values, count, SHOAL_F64, SHOAL_MAX, bench->group, NULL));
}

static int allocate(void *user, size_t bytes, void **out)
{
    const struct bench_group *bench = user;
    if (bench->shared_memory)
        return report(bench, shoal_alloc(bench->group, bytes, out));
    if (base_alloc(bytes, "benchmark buffers", out) == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal %s: rank %d: %s\n", bench->command, shoal_group_rank(bench->group),
            base_error_text());
    return -1;
}

static void release(void *user, void *memory)
{
    const struct bench_group *bench = user;
    if (bench->shared_memory)
        shoal_free(bench->group, memory);
    else
        base_free(memory);
}

void bench_group_library(struct bench_group *group, struct bench_library *out)
{
    *out = (struct bench_library){.name = "shoal",
                                  .version = shoal_version(),
                                  .rank = shoal_group_rank(group->group),
                                  .size = shoal_group_size(group->group),
                                  .hosts = shoal_group_host_count(group->group),
                                  .user = group,
                                  .run = run_call,
                                  .barrier = meet,
                                  .maximum = take_maximum,
                                  .allocate = allocate,
                                  .release = release};
}
