/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_fuse_replay.c: steps of training without the training. Gradients are made at home before
 * the clock starts; in the step each is added when the accelerator would have it, and the thread
 * sleeps in between, so that the processor is free for the communication.
 */
#include "bench_fuse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "sort.h"

struct replay {
    const struct fuse_replay_settings *settings;
    const struct bench_library *library;
    shoal_group_t group;
    shoal_fuse_t fuse;
    /* The tensors as the forward pass needs them: the model's table from its end. */
    int tensor_count;
    uint64_t *counts, *offsets; /* elements; before it */
    int *order;
    void **homes;
    uint64_t elements;
    void *whole; /* all gradients in one piece, for the blocking allreduce */
    uint64_t round;
    double compute_ns;
    struct fuse_replay_result *result;
    double (*values)[FUSE_STEPS_MAX]; /* [FUSE_VALUE_COUNT] */
};

/* ---- making and freeing ---------------------------------------------------------------------- */

static int failed(const struct replay *replay, enum shoal_status status, const char *text)
{
    if (status == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal bench fuse: rank %d: %s: %s\n", replay->library->rank,
            shoal_status_name(status), text);
    return -1;
}

/* For a call of the library. */
static int call(const struct replay *replay, enum shoal_status status)
{
    return failed(replay, status, status == SHOAL_OK ? "" : shoal_last_error(replay->group));
}

static enum shoal_status take_memory(struct replay *replay)
{
    int count = replay->tensor_count;
    TRY(BASE_NEW_ARRAY(&replay->counts, count, "the tensors"));
    TRY(BASE_NEW_ARRAY(&replay->offsets, count, "the tensors"));
    TRY(BASE_NEW_ARRAY(&replay->order, count, "the tensors"));
    TRY(BASE_NEW_ARRAY(&replay->homes, count, "the tensors"));
    return BASE_NEW_ARRAY(&replay->values, FUSE_VALUE_COUNT, "the times");
}

static void list_tensors(struct replay *replay)
{
    const struct model *model = &replay->settings->model;
    for (int i = 0; i < replay->tensor_count; i++) {
        int tensor = replay->tensor_count - 1 - i;
        double scaled = ceil((double)model->tensors[tensor].count * replay->settings->scale);
        replay->counts[i] = (uint64_t)scaled;
        replay->order[i] = tensor;
        replay->offsets[i] = replay->elements;
        replay->elements += replay->counts[i];
    }
}

static int make_fuse(struct replay *replay)
{
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    options.tensor_count = replay->tensor_count;
    options.counts = replay->counts;
    options.order = replay->order;
    options.op = SHOAL_SUM;
    options.name = replay->settings->model.name;
    options.buffer_bytes = replay->settings->buffer_bytes;
    options.in_flight = replay->settings->in_flight;
    options.compression = replay->settings->compression;
    if (call(replay, shoal_fuse_create(replay->group, &options, &replay->fuse)) != 0)
        return -1;
    for (int i = 0; i < replay->tensor_count; i++)
        if (call(replay, shoal_fuse_home(replay->fuse, i, &replay->homes[i])) != 0)
            return -1;
    return 0;
}

static int replay_init(struct replay *replay)
{
    const struct bench_library *library = replay->library;
    replay->tensor_count = replay->settings->model.tensor_count;
    enum shoal_status status = take_memory(replay);
    if (failed(replay, status, base_error_text()) != 0)
        return -1;
    list_tensors(replay);
    if (library->allocate(library->user, replay->elements * sizeof(float), &replay->whole) != 0)
        return -1;
    return make_fuse(replay);
}

static void replay_release(struct replay *replay)
{
    if (replay->whole != NULL)
        replay->library->release(replay->library->user, replay->whole);
    base_free(replay->counts);
    base_free(replay->offsets);
    base_free(replay->order);
    base_free(replay->homes);
    base_free(replay->values);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void fill(const struct replay *replay, bool fused)
{
    struct bench_pattern input;
    bench_pattern_input(&input, BENCH_F32, BENCH_SUM, true, replay->library->rank, replay->round);
    if (!fused)
        bench_pattern_fill(&input, replay->whole, 0, replay->elements);
    for (int i = 0; fused && i < replay->tensor_count; i++)
        bench_pattern_fill(&input, replay->homes[i], replay->offsets[i], replay->counts[i]);
}

/* The first tensor whose sum is wrong, or tensor_count. */
static int wrong_tensor(const struct replay *replay, const struct bench_pattern *sums, bool fused)
{
    for (int i = 0; i < replay->tensor_count; i++) {
        uint64_t first = replay->offsets[i], count = replay->counts[i];
        const void *at = fused ? replay->homes[i] : (const float *)replay->whole + first;
        if (bench_pattern_check(sums, at, first, count) < count)
            return i;
    }
    return replay->tensor_count;
}

static int check(const struct replay *replay, bool fused)
{
    struct bench_pattern sums;
    if (!replay->settings->check)
        return 0;
    bench_pattern_reduced(&sums, BENCH_F32, BENCH_SUM, replay->library->size, replay->round);
    int wrong = wrong_tensor(replay, &sums, fused);
    if (wrong == replay->tensor_count)
        return 0;
    fprintf(stderr, "shoal bench fuse: rank %d: wrong sum of %s in step %llu, %s\n",
            replay->library->rank,
            replay->settings->model.tensors[replay->tensor_count - 1 - wrong].name,
            (unsigned long long)replay->round,
            fused ? "by fusion buffers" : "by one blocking allreduce");
    return -1;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void sleep_until(int64_t time_ns)
{
    struct timespec time = {.tv_sec = time_ns / BASE_NS_PER_S, .tv_nsec = time_ns % BASE_NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        continue;
}

/* Adds every gradient when it is ready: the forward pass, then the model's share of the other. */
static int compute(const struct replay *replay, int64_t start_ns)
{
    for (int i = 0; i < replay->tensor_count; i++) {
        int tensor = replay->order[i];
        double share = FUSE_FORWARD_SHARE +
                       (1 - FUSE_FORWARD_SHARE) * replay->settings->model.tensors[i].ready;
        int64_t ready_ns = start_ns + (int64_t)(share * replay->compute_ns);
        if (base_now_ns() < ready_ns)
            sleep_until(ready_ns);
        if (call(replay,
                 shoal_fuse_add(replay->fuse, tensor, NULL, NULL, replay->counts[tensor])) != 0)
            return -1;
    }
    return 0;
}

static int begin(struct replay *replay, bool fused)
{
    replay->round++;
    fill(replay, fused);
    return replay->library->barrier(replay->library->user);
}

static int step_fused(struct replay *replay, double values[FUSE_VALUE_COUNT])
{
    struct fuse_replay_result *result = replay->result;
    struct shoal_fuse_counters before = SHOAL_FUSE_COUNTERS_INIT, after = SHOAL_FUSE_COUNTERS_INIT;
    if (begin(replay, true) != 0 || call(replay, shoal_fuse_counters(replay->fuse, &before)) != 0)
        return -1;
    result->start_ns = base_now_ns();
    if (compute(replay, result->start_ns) != 0)
        return -1;
    result->computed_ns = base_now_ns();
    if (call(replay, shoal_fuse_finish(replay->fuse)) != 0)
        return -1;
    result->end_ns = base_now_ns();
    if (call(replay, shoal_fuse_counters(replay->fuse, &after)) != 0)
        return -1;
    result->bytes = after.bytes - before.bytes;
    result->held_back += (double)(after.held_back - before.held_back);
    result->joined += (double)(after.joined - before.joined);
    values[FUSE_COMPUTE] = (double)(result->computed_ns - result->start_ns);
    values[FUSE_STEP] = (double)(result->end_ns - result->start_ns);
    values[FUSE_FLIGHT] = (double)(after.flight_ns - before.flight_ns);
    values[FUSE_EXPOSED] = (double)(after.exposed_ns - before.exposed_ns);
    return check(replay, true);
}

static int step_blocking(struct replay *replay, double values[FUSE_VALUE_COUNT])
{
    const struct bench_library *library = replay->library;
    const struct bench_call allreduce = {.operation = BENCH_ALLREDUCE,
                                         .dtype = BENCH_F32,
                                         .reduction = BENCH_SUM,
                                         .count = replay->elements,
                                         .in = replay->whole,
                                         .out = replay->whole};
    if (begin(replay, false) != 0)
        return -1;
    int64_t start_ns = base_now_ns();
    sleep_until(start_ns + (int64_t)replay->compute_ns);
    int64_t computed_ns = base_now_ns();
    if (library->run(library->user, &allreduce) != 0)
        return -1;
    int64_t end_ns = base_now_ns();
    values[FUSE_BLOCKING_STEP] = (double)(end_ns - start_ns);
    values[FUSE_BLOCKING_ALLREDUCE] = (double)(end_ns - computed_ns);
    return check(replay, false);
}

/* ---- results --------------------------------------------------------------------------------- */

/* What the busiest link carried: ranks of a host share it. */
static int count_link(struct replay *replay, const struct shoal_counters *before,
                      const struct shoal_counters *after)
{
    int hosts = replay->library->hosts, host = shoal_group_host(replay->group);
    double *bytes = NULL, most = 0;
    enum shoal_status status = BASE_NEW_ARRAY(&bytes, 2 * hosts, "the links");
    if (failed(replay, status, base_error_text()) != 0)
        return -1;
    bytes[2 * host] = (double)(after->network_sent_bytes - before->network_sent_bytes);
    bytes[2 * host + 1] = (double)(after->network_received_bytes - before->network_received_bytes);
    int broken = call(replay, shoal_allreduce(bytes, bytes, (uint64_t)hosts * 2, SHOAL_F64,
                                              SHOAL_SUM, replay->group, NULL));
    for (int i = 0; i < 2 * hosts; i++)
        most = fmax(most, bytes[i]);
    base_free(bytes);
    replay->result->link_bytes = most / replay->settings->steps;
    replay->result->link_bound_bytes = 2.0 * (hosts - 1) / hosts * (double)replay->result->bytes;
    return broken;
}

static int sum_up(struct replay *replay)
{
    struct fuse_replay_result *result = replay->result;
    struct shoal_fuse_times first = SHOAL_FUSE_TIMES_INIT;
    struct shoal_fuse_counters counted = SHOAL_FUSE_COUNTERS_INIT;
    int steps = replay->settings->steps;
    if (call(replay, shoal_fuse_times(replay->fuse, 0, &first)) != 0 ||
        call(replay, shoal_fuse_counters(replay->fuse, &counted)) != 0)
        return -1;
    for (int i = 0; i < FUSE_VALUE_COUNT; i++) {
        double *values = replay->values[i];
        sort_doubles(values, (size_t)steps);
        result->values[i].median = values[steps / 2];
        result->values[i].low = values[0];
        result->values[i].high = values[steps - 1];
    }
    result->tensors = replay->tensor_count;
    result->elements = replay->elements;
    result->buffers = shoal_fuse_buffer_count(replay->fuse);
    result->held_back /= steps;
    result->joined /= steps;
    result->compute_ns = replay->compute_ns;
    result->buffer_bytes = first.bytes; /* only the last one may be smaller */
    result->in_flight = (int)counted.in_flight;
    return 0;
}

/* The first steps of each kind touch memory and connect; they also tell how long computing has to
 * be to match the communication. */
static int warm_up(struct replay *replay)
{
    double values[FUSE_VALUE_COUNT] = {0};
    const struct bench_library *library = replay->library;
    if (step_fused(replay, values) != 0 || step_blocking(replay, values) != 0)
        return -1;
    replay->compute_ns = replay->settings->compute_ns;
    if (step_blocking(replay, values) != 0 ||
        library->maximum(library->user, values, FUSE_VALUE_COUNT) != 0)
        return -1;
    if (replay->settings->compute_ns == 0)
        replay->compute_ns = values[FUSE_BLOCKING_ALLREDUCE];
    replay->result->held_back = replay->result->joined = 0;
    return 0;
}

static int run_steps(struct replay *replay)
{
    const struct bench_library *library = replay->library;
    struct shoal_counters before = SHOAL_COUNTERS_INIT, after = SHOAL_COUNTERS_INIT;
    if (warm_up(replay) != 0 || call(replay, shoal_fuse_traffic(replay->fuse, &before)) != 0)
        return -1;
    for (int step = 0; step < replay->settings->steps; step++) {
        double values[FUSE_VALUE_COUNT] = {0};
        if (step_blocking(replay, values) != 0 || step_fused(replay, values) != 0 ||
            library->maximum(library->user, values, FUSE_VALUE_COUNT) != 0)
            return -1;
        for (int i = 0; i < FUSE_VALUE_COUNT; i++)
            replay->values[i][step] = values[i];
    }
    if (call(replay, shoal_fuse_traffic(replay->fuse, &after)) != 0 ||
        count_link(replay, &before, &after) != 0)
        return -1;
    return sum_up(replay);
}

int fuse_replay(const struct fuse_replay_settings *settings, const struct bench_library *library,
                shoal_group_t group, shoal_fuse_t *fuse, struct fuse_replay_result *out)
{
    struct replay replay = {
        .settings = settings, .library = library, .group = group, .result = out};
    *out = (struct fuse_replay_result){.tensors = 0};
    int broken = replay_init(&replay) != 0 || run_steps(&replay) != 0;
    *fuse = replay.fuse;
    replay_release(&replay);
    return broken;
}
