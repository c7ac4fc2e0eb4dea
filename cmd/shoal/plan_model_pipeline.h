/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model_pipeline.h: the pipelines of `shoal plan-model`: schedules of one model side by side,
 * as a table, as JSON, and as a picture of what each stage does when.
 */
#ifndef SHOAL_CMD_PLAN_MODEL_PIPELINE_H
#define SHOAL_CMD_PLAN_MODEL_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "shoal.h"

#define PIPELINE_ROWS_MAX    (SHOAL_PIPELINE_KIND_COUNT + 1)
#define PIPELINE_DRAWN_MAX   20000 /* operations in a picture */
#define PIPELINE_CHUNKS_MOST 64    /* on one stage */

/* One chunk of the model, for one microbatch. */
struct pipeline_chunk {
    int stage;       /* where the schedule has it */
    int stage_share; /* chunks on that stage; 0: it is one of the request's visits */
    int64_t forward_ns, backward_input_ns, backward_weight_ns;
    uint64_t activation_bytes, output_bytes;
};

struct pipeline_request {
    int stage_count, microbatch_count;
    int stage_chunk_count;   /* of interleaved-1f1b; 0: 2 */
    int active_microbatches; /* 0: each schedule's own */
    int kind;                /* an enum shoal_pipeline_kind; -1: all side by side */
    double bytes_per_ns;     /* of links; 0: without limit */
    int64_t latency_ns;
    bool transfers_block; /* stages do nothing else meanwhile */
    /* [visit_count] The stages in the order in which a microbatch comes to them, where it comes to
     * some twice; NULL: it does not. Simple and interleaved pipelines follow it, with a chunk for
     * each visit; in the others a stage does all its work at the first one. */
    const int *visits;
    int visit_count;
    /* Sets all of the chunks but `stage` and `stage_share`, which are set. */
    enum shoal_status (*fill)(void *user, struct pipeline_chunk *chunks, int chunk_count);
    void *user;
};

/* One schedule, simulated. */
struct pipeline_row {
    enum shoal_pipeline_kind kind;
    int stage_count;
    int active_microbatches;            /* as asked; 0: its own */
    int chunk_count, stage_chunk_count; /* on the stage with most */
    bool revisits;                      /* chunks are the request's visits */
    shoal_pipeline_t pipeline;
    struct shoal_pipeline_result result;
    struct shoal_pipeline_stage *stages; /* [stage_count] */
    struct shoal_pipeline_times *times;  /* of all operations, stage by stage */
};

struct pipeline_table {
    const struct pipeline_request *request;
    struct pipeline_row rows[PIPELINE_ROWS_MAX];
    int row_count;
};

/* "1f1b"; an error with the nearest name, or all. */
enum shoal_status pipeline_kind_parse(const char *word, int *out);
/* Makes and simulates what is asked. Release in any case. */
enum shoal_status pipeline_table_build(const struct pipeline_request *request,
                                       struct pipeline_table *table);
void pipeline_table_release(struct pipeline_table *table);

/* "zero-bubble, 7 active": static text of the thread. */
const char *pipeline_row_name(const struct pipeline_row *row);
/* What a stage keeps most of, in microbatches: an activation of one of v chunks is 1/v. */
double pipeline_row_peak(const struct pipeline_row *row);

void pipeline_print_text(const struct pipeline_table *table, FILE *out);
/* Members of a JSON object, without its braces and without a comma behind. */
void pipeline_print_json(const struct pipeline_table *table, FILE *out);
/* SHOAL_ERR_LIMIT if there are too many operations to be seen. */
enum shoal_status pipeline_write_svg(const struct pipeline_table *table, const char *path);

/* `shoal plan-model --stages P`: stages whose times are given, without a model. */
int plan_model_stages(int argc, char **argv);

#endif
