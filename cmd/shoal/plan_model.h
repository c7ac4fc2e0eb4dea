/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model.h: `shoal plan-model` in parts: plan_model.c reads the arguments and cuts the model,
 * plan_model_show.c shows the result as text and as JSON, plan_model_chunks.c runs pipelines over
 * it, plan_model_suggest.c finds layouts.
 */
#ifndef SHOAL_CMD_PLAN_MODEL_H
#define SHOAL_CMD_PLAN_MODEL_H

#include <stdbool.h>
#include <stdio.h>

#include "model_tree.h"
#include "plan_model_pipeline.h"

struct plan_model {
    struct model_tree tree;
    struct shoal_plan_options options; /* as they were given to the planner */
    shoal_plan_t plan;
    struct shoal_plan_report report;
    struct shoal_plan_load *loads; /* [options.device_count] */
    uint64_t memory_limit;         /* of each device; 0: none */
    bool show_tree;
};

/* Where a layout is looked for. */
struct plan_model_world {
    int rank_count, host_ranks; /* 0 ranks: nowhere */
    int batch;                  /* microbatches in a step */
    double host_bytes_per_ns, network_bytes_per_ns, network_latency_ns;
};

/* "published", "balanced" or "manual". */
const char *plan_model_method_name(enum shoal_plan_method method);
void plan_model_print_text(const struct plan_model *model, FILE *out);
/* Members of a JSON object, without its braces. */
void plan_model_print_json(const struct plan_model *model, FILE *out);
/* Simulates and prints pipelines, as text or as more JSON members with a comma before them; draws
 * them if timeline is a path. Of `wanted`, stage_count and fill are not read. */
enum shoal_status plan_model_pipelines(struct plan_model *model,
                                       const struct pipeline_request *wanted, const char *timeline,
                                       bool json);
/* Finds and prints layouts, as text or as one more JSON member with a comma before it. */
enum shoal_status plan_model_suggest(const struct plan_model *model,
                                     const struct plan_model_world *world, bool json, FILE *out);

#endif
