/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h: how many copies (D), stages (P) and slices (T) for so many ranks, and how many
 * microbatches: all layouts that are possible, by a model of time and memory. docs/plan.md states
 * the model.
 */
#ifndef SHOAL_PLAN_LAYOUT_H
#define SHOAL_PLAN_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "shoal.h"

#define PLAN_RANKS_MAX 4096
#define PLAN_BATCH_MAX (1 << 20)

struct plan_layout_request {
    struct shoal_plan_options model; /* device_count, memory_limits and in_flight are not read */
    int rank_count;                  /* D x P x T */
    int host_ranks;                  /* on each host, neighbours: divides rank_count */
    int batch;                       /* microbatches of the model's size in a step of all copies */
    uint64_t memory_bytes;           /* of a rank; 0: any */
    double host_bytes_per_ns;        /* of a rank's link to those on its host */
    double network_bytes_per_ns;     /* of a host's link to the others, shared by its ranks */
    double network_latency_ns;
};

/* Times are of one step. Compute, tensor and data are the slowest stage's. */
struct plan_layout {
    int data, pipeline, tensor;
    int microbatches;     /* that go through a pipeline in a step */
    int microbatch_size;  /* in microbatches of the model's size */
    double memory_weight; /* by which the model is cut: the request's, or 0 */
    double step_ns;
    double compute_ns;     /* of which this is work */
    double tensor_ns;      /* sums within layers */
    double bubble_ns;      /* waiting for the pipeline to fill and to drain, transfers included */
    double data_ns;        /* sums of gradients that no work hides */
    uint64_t memory_bytes; /* of the fullest rank */
};

/* Marks the model's layers: elements of lists of modules, which have numbers for names, and are in
 * no other layer. is_layer[module_count] is cleared before. False: there are none. */
bool plan_layers_mark(const struct shoal_plan_options *model, bool *is_layer);

/* All possible layouts, the fastest first; of equally fast ones that with the least memory. The
 * caller frees *layouts with base_free. SHOAL_ERR_ARGUMENT for a wrong request; SHOAL_ERR_LIMIT if
 * no layout fits, with what is missing for the nearest. */
enum shoal_status plan_layouts_create(const struct plan_layout_request *request,
                                      struct plan_layout **layouts, int *layout_count);

#endif
