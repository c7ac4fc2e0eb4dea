/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fit.c: a simplex of five points in the space of four logarithms walks downhill. Logarithms,
 * because all four are positive and it is factors that matter.
 */
#include "sim/fit.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

#define DIMENSIONS 4 /* rate, latency, cost per message, cost per byte */
#define CORNERS    (DIMENSIONS + 1)
#define STEPS_MAX  80
#define FIRST_STEP 0.5  /* of a logarithm */
#define SPREAD     1e-5 /* of the errors, where it is good enough */
#define STARTS     4    /* a simplex that became flat is set up anew where it is */
#define ROUNDS     2    /* of an operation, one behind the other; the last one counts */
#define SMALL      0.05 /* errors below count by their square, larger ones by themselves */

struct corner {
    double at[DIMENSIONS];
    double error;
};

struct fit {
    struct sim_platform *platform;
    struct sim_sample *samples;
    int sample_count;
};

/* As it was measured: each rank checks its last results and writes its input anew, all meet, and
 * then begins what counts. What the links did not carry meanwhile is in their buckets. */
static enum shoal_status run_sample(const struct sim_platform *platform, struct sim_sample *sample)
{
    const struct sim_programs *programs = sample->programs;
    struct sim_operation operations[2 * ROUNDS] = {{0}};
    int operation_count = 0;
    struct sim_platform own = *platform;
    own.server_count = programs->server_count;
    own.host_count = programs->host_count - programs->server_count;
    for (int round = 0; round < ROUNDS; round++) {
        if (sample->barrier)
            operations[operation_count++] = (struct sim_operation){
                .programs = sample->barrier, .work_ns = sample->own_bytes / own.copy_bytes_per_ns};
        operations[operation_count++] = (struct sim_operation){.programs = programs};
    }
    struct sim_run run = {.platform = &own,
                          .operations = operations,
                          .operation_count = operation_count,
                          .in_flight = 1};
    TRY(sim_run(&run));
    const struct sim_operation *last = &operations[operation_count - 1];
    sample->simulated_ns = last->end_ns - last->begin_ns;
    return SHOAL_OK;
}

enum shoal_status sim_samples_run(const struct sim_platform *platform, struct sim_sample *samples,
                                  int sample_count)
{
    for (int i = 0; i < sample_count; i++)
        TRY(run_sample(platform, &samples[i]));
    return SHOAL_OK;
}

static void apply(const double *at, struct sim_platform *platform)
{
    platform->link_bytes_per_ns = exp(at[0]);
    platform->link_latency_ns = exp(at[1]);
    platform->send.message_ns = platform->receive.message_ns = exp(at[2]);
    platform->send.byte_ns = platform->receive.byte_ns = exp(at[3]);
}

static enum shoal_status evaluate(const struct fit *fit, struct corner *corner)
{
    double sum = 0;
    apply(corner->at, fit->platform);
    TRY(sim_samples_run(fit->platform, fit->samples, fit->sample_count));
    for (int i = 0; i < fit->sample_count; i++) {
        double off = log(fit->samples[i].simulated_ns / fit->samples[i].measured_ns);
        sum += sqrt(off * off + SMALL * SMALL) - SMALL;
    }
    corner->error = sum / fit->sample_count;
    return SHOAL_OK;
}

/* The best first, the worst last. */
static void sort(struct corner *corners)
{
    for (int i = 1; i < CORNERS; i++) {
        struct corner corner = corners[i];
        int at = i;
        for (; at > 0 && corners[at - 1].error > corner.error; at--)
            corners[at] = corners[at - 1];
        corners[at] = corner;
    }
}

/* The point `factor` times as far from the others' centre as the worst one, which is 1. */
static enum shoal_status try_point(const struct fit *fit, const struct corner *corners,
                                   double factor, struct corner *out)
{
    for (int i = 0; i < DIMENSIONS; i++) {
        double centre = 0;
        for (int k = 0; k < DIMENSIONS; k++)
            centre += corners[k].at[i] / DIMENSIONS;
        out->at[i] = centre + factor * (corners[DIMENSIONS].at[i] - centre);
    }
    return evaluate(fit, out);
}

static enum shoal_status shrink(const struct fit *fit, struct corner *corners)
{
    for (int k = 1; k < CORNERS; k++) {
        for (int i = 0; i < DIMENSIONS; i++)
            corners[k].at[i] = (corners[k].at[i] + corners[0].at[i]) / 2;
        TRY(evaluate(fit, &corners[k]));
    }
    return SHOAL_OK;
}

/* One step: the worst corner is replaced by a better one, or all move towards the best. */
static enum shoal_status walk(const struct fit *fit, struct corner *corners)
{
    struct corner *worst = &corners[DIMENSIONS], reflected, other;
    TRY(try_point(fit, corners, -1, &reflected));
    if (reflected.error < corners[0].error) {
        TRY(try_point(fit, corners, -2, &other));
        *worst = other.error < reflected.error ? other : reflected;
    } else if (reflected.error < corners[DIMENSIONS - 1].error) {
        *worst = reflected;
    } else {
        TRY(try_point(fit, corners, reflected.error < worst->error ? -0.5 : 0.5, &other));
        if (other.error >= worst->error)
            return shrink(fit, corners);
        *worst = other;
    }
    return SHOAL_OK;
}

static enum shoal_status first_corners(const struct fit *fit, struct corner *corners)
{
    const struct sim_platform *platform = fit->platform;
    const double start[DIMENSIONS] = {
        log(platform->link_bytes_per_ns), log(fmax(platform->link_latency_ns, 1)),
        log(fmax(platform->send.message_ns, 1)), log(fmax(platform->send.byte_ns, 1e-4))};
    for (int k = 0; k < CORNERS; k++) {
        memcpy(corners[k].at, start, sizeof(start));
        if (k > 0)
            corners[k].at[k - 1] += FIRST_STEP;
    }
    for (int k = 0; k < CORNERS; k++)
        TRY(evaluate(fit, &corners[k]));
    return SHOAL_OK;
}

enum shoal_status sim_fit(struct sim_platform *platform, struct sim_sample *samples,
                          int sample_count)
{
    struct fit fit = {platform, samples, sample_count};
    struct corner corners[CORNERS];
    for (int start = 0; start < STARTS; start++) {
        TRY(first_corners(&fit, corners));
        sort(corners);
        for (int step = 0; step < STEPS_MAX; step++) {
            if (corners[DIMENSIONS].error - corners[0].error <= SPREAD * corners[0].error)
                break;
            TRY(walk(&fit, corners));
            sort(corners);
        }
        TRY(evaluate(&fit, &corners[0]));
    }
    return SHOAL_OK;
}
