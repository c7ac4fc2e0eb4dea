/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_rank.c: `shoal start-rank NANOSECONDS`: what each rank of `shoal bench start` does; rank 0
 * prints the numbers of all, in the order of enum start_value.
 *
 * All times are of CLOCK_MONOTONIC, which the processes of a machine share: a step takes from the
 * moment when the first rank has left the barrier before it until the last one is through. Where
 * ranks outnumber the cores a barrier lets them go over milliseconds, so sub-groups by subset, for
 * which nobody waits for anybody, are made in batches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench_start.h"
#include "footprint.h"
#include "shoal.h"
#include "sort.h"

#define NS_PER_MS 1e6
#define REPEATS   5
#define BATCH     8
#define SUM_BYTES ((size_t)1 << 20)

int cmd_start_rank(int argc, char **argv);

struct start_rank {
    shoal_group_t group;
    float *sum; /* SUM_BYTES */
    int *ranks; /* [size] all of them */
    double values[START_VALUE_COUNT];
};

static enum shoal_status largest(const struct start_rank *rank, double *values, uint64_t count)
{
    return shoal_allreduce(values, values, count, SHOAL_F64, SHOAL_MAX, rank->group, NULL);
}

/* From the first rank's start to the last one's end. */
static enum shoal_status span_ms(const struct start_rank *rank, int64_t start_ns, int64_t end_ns,
                                 double *ms)
{
    double ends[2] = {-(double)start_ns, (double)end_ns};
    TRY(largest(rank, ends, 2));
    *ms = (ends[0] + ends[1]) / NS_PER_MS;
    return SHOAL_OK;
}

static enum shoal_status sum_small(shoal_group_t group)
{
    double one = 1;
    TRY(shoal_allreduce(&one, &one, 1, SHOAL_F64, SHOAL_SUM, group, NULL));
    if ((int)one != shoal_group_size(group))
        return base_error(SHOAL_ERR_INTERNAL, "a sum of ones is %g", one);
    return SHOAL_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* A group that other processes than this one's make too; `made` from a barrier on. */
typedef enum shoal_status (*make_group)(const struct start_rank *rank, shoal_group_t *out);

static enum shoal_status make_world(const struct start_rank *rank, shoal_group_t *out)
{
    (void)rank;
    return shoal_group_create(NULL, out);
}

static enum shoal_status make_split(const struct start_rank *rank, shoal_group_t *out)
{
    return shoal_group_split(rank->group, 0, 0, out);
}

static enum shoal_status make_subset(const struct start_rank *rank, shoal_group_t *out)
{
    return shoal_group_subset(rank->group, rank->ranks, shoal_group_size(rank->group), NULL, out);
}

/* How long the making takes; and until a first and a second allreduce are done, too. */
static enum shoal_status time_making(const struct start_rank *rank, make_group make, double ms[3])
{
    shoal_group_t group = NULL;
    int64_t at_ns[4];
    TRY(shoal_barrier(rank->group, NULL));
    at_ns[0] = base_now_ns();
    TRY(make(rank, &group));
    at_ns[1] = base_now_ns();
    enum shoal_status status = sum_small(group);
    at_ns[2] = base_now_ns();
    if (status == SHOAL_OK)
        status = sum_small(group);
    at_ns[3] = base_now_ns();
    if (status == SHOAL_OK)
        status = shoal_group_free(group);
    TRY(status);
    TRY(span_ms(rank, at_ns[0], at_ns[1], &ms[0]));
    TRY(span_ms(rank, at_ns[0], at_ns[2], &ms[1]));
    return span_ms(rank, at_ns[0], at_ns[3], &ms[2]);
}

/* Medians of time_making. */
static enum shoal_status measure_making(const struct start_rank *rank, make_group make,
                                        double ms[3])
{
    double times[3][REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        TRY(time_making(rank, make, ms));
        for (int step = 0; step < 3; step++)
            times[step][i] = ms[step];
    }
    for (int step = 0; step < 3; step++) {
        sort_doubles(times[step], REPEATS);
        ms[step] = times[step][REPEATS / 2];
    }
    return SHOAL_OK;
}

static enum shoal_status free_groups(shoal_group_t *groups, int count)
{
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; i < count; i++) {
        enum shoal_status freed = shoal_group_free(groups[i]);
        status = status == SHOAL_OK ? freed : status;
    }
    return status;
}

/* Of one of BATCH subsets made in a row. */
static enum shoal_status time_batch(const struct start_rank *rank, double *ms)
{
    shoal_group_t groups[BATCH];
    int count = 0;
    TRY(shoal_barrier(rank->group, NULL));
    int64_t start_ns = base_now_ns();
    enum shoal_status status = SHOAL_OK;
    while (count < BATCH && status == SHOAL_OK) {
        status = make_subset(rank, &groups[count]);
        count += status == SHOAL_OK;
    }
    int64_t end_ns = base_now_ns();
    if (status == SHOAL_OK)
        status = span_ms(rank, start_ns, end_ns, ms);
    enum shoal_status freed = free_groups(groups, count);
    *ms /= BATCH;
    return status == SHOAL_OK ? freed : status;
}

static enum shoal_status measure_batch(const struct start_rank *rank, double *ms)
{
    double times[REPEATS] = {0};
    for (int i = 0; i < REPEATS; i++)
        TRY(time_batch(rank, &times[i]));
    sort_doubles(times, REPEATS);
    *ms = times[REPEATS / 2];
    return SHOAL_OK;
}

static enum shoal_status measure_makings(struct start_rank *rank)
{
    double ms[3], *values = rank->values;
    TRY(measure_making(rank, make_world, ms));
    values[START_CREATE_MS] = ms[0];
    TRY(measure_making(rank, make_split, ms));
    values[START_SPLIT_MS] = ms[0];
    TRY(measure_making(rank, make_subset, ms));
    values[START_SUBSET_SUM_MS] = ms[1];
    values[START_SUM_MS] = ms[2] - ms[1];
    return measure_batch(rank, &values[START_SUBSET_MS]);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum shoal_status take_buffers(struct start_rank *rank)
{
    TRY(BASE_NEW_ARRAY(&rank->sum, SUM_BYTES / sizeof(float), "a buffer"));
    memset(rank->sum, 1, SUM_BYTES); /* in memory before anything is counted */
    return SHOAL_OK;
}

static enum shoal_status list_ranks(struct start_rank *rank)
{
    int size = shoal_group_size(rank->group);
    if (shoal_group_host_count(rank->group) != 1)
        return base_error(SHOAL_ERR_UNSUPPORTED, "all ranks must be on one host");
    TRY(BASE_NEW_ARRAY(&rank->ranks, size, "the ranks"));
    for (int i = 0; i < size; i++)
        rank->ranks[i] = i;
    return SHOAL_OK;
}

static void count_growth(double *values, const struct footprint *before,
                         const struct footprint *made, const struct footprint *used)
{
    values[START_MAPPED_BYTES] = (double)made->mapped_bytes;
    values[START_SHARED_BYTES] = (double)made->shared_bytes;
    values[START_SHARED_SUM_BYTES] = (double)used->shared_bytes;
    values[START_PRIVATE_BYTES] = (double)made->private_bytes - (double)before->private_bytes;
    values[START_PRIVATE_SUM_BYTES] = (double)used->private_bytes - (double)before->private_bytes;
    values[START_PAGE_TABLE_BYTES] =
        (double)used->page_table_bytes - (double)before->page_table_bytes;
    values[START_DESCRIPTORS] = (double)(made->descriptors - before->descriptors);
    values[START_THREADS] = (double)(made->threads - before->threads);
}

static enum shoal_status measure(struct start_rank *rank, int64_t launched_ns)
{
    struct footprint before, made, used;
    TRY(take_buffers(rank));
    footprint_read(&before);
    rank->values[START_ARRIVE_MS] = (double)(base_now_ns() - launched_ns) / NS_PER_MS;
    TRY(shoal_group_create(NULL, &rank->group));
    rank->values[START_LAUNCH_MS] = (double)(base_now_ns() - launched_ns) / NS_PER_MS;
    footprint_read(&made);
    TRY(shoal_allreduce(rank->sum, rank->sum, SUM_BYTES / sizeof(float), SHOAL_F32, SHOAL_SUM,
                        rank->group, NULL));
    footprint_read(&used);
    count_growth(rank->values, &before, &made, &used);
    TRY(list_ranks(rank));
    TRY(measure_makings(rank));
    return largest(rank, rank->values, START_VALUE_COUNT);
}

static void print_values(const struct start_rank *rank)
{
    for (int i = 0; i < START_VALUE_COUNT; i++)
        printf("%.6f%s", rank->values[i], i + 1 < START_VALUE_COUNT ? " " : "\n");
    fflush(stdout);
}

int cmd_start_rank(int argc, char **argv)
{
    struct start_rank rank = {.group = NULL};
    if (argc != 2) {
        fprintf(stderr, "shoal start-rank: started by shoal bench start\n");
        return 2;
    }
    enum shoal_status status = measure(&rank, strtoll(argv[1], NULL, 10));
    if (status != SHOAL_OK) {
        fprintf(stderr, "shoal bench start: rank %d: %s\n", shoal_group_rank(rank.group),
                shoal_last_error(rank.group));
        shoal_group_abort(rank.group, "the benchmark failed on a rank");
    } else if (shoal_group_rank(rank.group) == 0) {
        print_values(&rank);
    }
    shoal_group_free(rank.group);
    base_free(rank.sum);
    base_free(rank.ranks);
    return status == SHOAL_OK ? 0 : 1;
}
