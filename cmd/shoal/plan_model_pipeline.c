/* SPDX-License-Identifier: Apache-2.0 */
/* plan_model_pipeline.c: makes and simulates the schedules, and shows them as text and JSON. */
#include "plan_model_pipeline.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "scaled_text.h"

#define NAME_BYTES 64

enum shoal_status pipeline_kind_parse(const char *word, int *out)
{
    const char *names[SHOAL_PIPELINE_KIND_COUNT];
    for (int kind = 0; kind < SHOAL_PIPELINE_KIND_COUNT; kind++) {
        names[kind] = shoal_pipeline_name((enum shoal_pipeline_kind)kind);
        if (strcmp(word, names[kind]) == 0) {
            *out = kind;
            return SHOAL_OK;
        }
    }
    const char *nearest = base_nearest(word, names, SHOAL_PIPELINE_KIND_COUNT);
    if (nearest)
        return base_error(SHOAL_ERR_ARGUMENT, "--pipeline: there is no '%s'; did you mean '%s'?",
                          word, nearest);
    return base_error(SHOAL_ERR_ARGUMENT,
                      "--pipeline: there is no '%s': there are simple, interleaved, 1f1b, "
                      "interleaved-1f1b, zero-bubble, zero-bubble-v",
                      word);
}

/* ---- costs ----------------------------------------------------------------------------------- */

/* What the library's costs point to. */
struct costs {
    struct pipeline_chunk *chunks;
    int64_t *times_ns;
    uint64_t *bytes;
    struct shoal_pipeline_costs all;
};

static void costs_release(struct costs *costs)
{
    base_free(costs->chunks);
    base_free(costs->times_ns);
    base_free(costs->bytes);
}

static int stage_of(const struct pipeline_request *request, const struct pipeline_row *row,
                    int chunk)
{
    int stages = request->stage_count;
    if (row->revisits)
        return request->visits[chunk];
    bool folded = row->kind == SHOAL_PIPELINE_ZERO_BUBBLE_V && chunk >= stages;
    return folded ? 2 * stages - 1 - chunk : chunk % stages;
}

/* Chunk by chunk into one array for each quantity. */
static void spread(const struct pipeline_request *request, int count, struct costs *costs)
{
    for (int i = 0; i < count; i++) {
        const struct pipeline_chunk *chunk = &costs->chunks[i];
        costs->times_ns[i] = chunk->forward_ns;
        costs->times_ns[count + i] = chunk->backward_input_ns;
        costs->times_ns[2 * count + i] = chunk->backward_weight_ns;
        costs->bytes[i] = chunk->activation_bytes;
        costs->bytes[count + i] = chunk->output_bytes;
    }
    costs->all = (struct shoal_pipeline_costs)SHOAL_PIPELINE_COSTS_INIT;
    costs->all.forward_ns = costs->times_ns;
    costs->all.backward_input_ns = costs->times_ns + count;
    costs->all.backward_weight_ns = costs->times_ns + 2 * count;
    costs->all.activation_bytes = costs->bytes;
    costs->all.output_bytes = costs->bytes + count;
    costs->all.bytes_per_ns = request->bytes_per_ns;
    costs->all.latency_ns = request->latency_ns;
    costs->all.transfers_block = request->transfers_block;
}

static enum shoal_status costs_make(const struct pipeline_request *request,
                                    const struct pipeline_row *row, struct costs *costs)
{
    int count = row->chunk_count;
    TRY(BASE_NEW_ARRAY(&costs->chunks, count, "a model's chunks"));
    TRY(BASE_NEW_ARRAY(&costs->times_ns, 3 * count, "a model's chunks"));
    TRY(BASE_NEW_ARRAY(&costs->bytes, 2 * count, "a model's chunks"));
    for (int chunk = 0; chunk < count; chunk++) {
        costs->chunks[chunk].stage = stage_of(request, row, chunk);
        costs->chunks[chunk].stage_share = row->revisits ? 0 : row->stage_chunk_count;
    }
    TRY(request->fill(request->user, costs->chunks, count));
    spread(request, count, costs);
    return SHOAL_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Whether its chunks may lie anywhere. */
static bool is_free(enum shoal_pipeline_kind kind)
{
    return kind == SHOAL_PIPELINE_SIMPLE || kind == SHOAL_PIPELINE_INTERLEAVED;
}

/* The most visits to one stage. */
static int most_visits(const struct pipeline_request *request)
{
    int most = 0;
    for (int stage = 0; stage < request->stage_count; stage++) {
        int count = 0;
        for (int i = 0; i < request->visit_count; i++)
            count += request->visits[i] == stage;
        most = count > most ? count : most;
    }
    return most;
}

static bool takes_limit(enum shoal_pipeline_kind kind)
{
    return kind != SHOAL_PIPELINE_SIMPLE && kind != SHOAL_PIPELINE_INTERLEAVED_1F1B;
}

static enum shoal_status simulate(const struct pipeline_request *request, const struct costs *costs,
                                  struct pipeline_row *row)
{
    struct shoal_pipeline_options options = SHOAL_PIPELINE_OPTIONS_INIT;
    options.kind = row->kind;
    options.stage_count = request->stage_count;
    options.microbatch_count = request->microbatch_count;
    options.chunk_count = row->chunk_count;
    options.chunk_stages = row->revisits ? request->visits : NULL;
    options.active_microbatches = row->active_microbatches;
    options.costs = &costs->all;
    row->result = (struct shoal_pipeline_result)SHOAL_PIPELINE_RESULT_INIT;
    TRY(shoal_pipeline_create(&options, &row->pipeline));
    TRY(BASE_NEW_ARRAY(&row->stages, request->stage_count, "a pipeline's stages"));
    TRY(BASE_NEW_ARRAY(&row->times, shoal_pipeline_operation_count(row->pipeline, -1),
                       "a pipeline's times"));
    return shoal_pipeline_simulate(row->pipeline, &costs->all, &row->result, row->stages,
                                   row->times);
}

static enum shoal_status add_row(struct pipeline_table *table, enum shoal_pipeline_kind kind,
                                 int active_microbatches)
{
    const struct pipeline_request *request = table->request;
    struct pipeline_row *row = &table->rows[table->row_count++];
    struct costs costs = {0};
    bool several = kind == SHOAL_PIPELINE_INTERLEAVED_1F1B;
    row->stage_count = request->stage_count;
    row->kind = kind;
    row->active_microbatches = active_microbatches;
    row->stage_chunk_count = kind == SHOAL_PIPELINE_ZERO_BUBBLE_V ? 2 : 1;
    if (several)
        row->stage_chunk_count = request->stage_chunk_count ? request->stage_chunk_count : 2;
    row->chunk_count = row->stage_chunk_count * request->stage_count;
    row->revisits = request->visits && is_free(kind);
    if (row->revisits) {
        row->stage_chunk_count = most_visits(request);
        row->chunk_count = request->visit_count;
    }
    enum shoal_status status = costs_make(request, row, &costs);
    if (status == SHOAL_OK)
        status = simulate(request, &costs, row);
    costs_release(&costs);
    return status;
}

/* zero-bubble twice: as much memory as 1f1b, and as much as it has a use for. */
static enum shoal_status add_all(struct pipeline_table *table)
{
    const struct pipeline_request *request = table->request;
    int asked = request->active_microbatches;
    for (int kind = 0; kind < SHOAL_PIPELINE_KIND_COUNT; kind++) {
        enum shoal_pipeline_kind each = (enum shoal_pipeline_kind)kind;
        TRY(add_row(table, each, takes_limit(each) ? asked : 0));
        if (each == SHOAL_PIPELINE_ZERO_BUBBLE && !asked && request->stage_count > 1)
            TRY(add_row(table, each, 2 * request->stage_count - 1));
    }
    return SHOAL_OK;
}

enum shoal_status pipeline_table_build(const struct pipeline_request *request,
                                       struct pipeline_table *table)
{
    *table = (struct pipeline_table){.request = request};
    if (request->kind < 0)
        return add_all(table);
    return add_row(table, (enum shoal_pipeline_kind)request->kind, request->active_microbatches);
}

void pipeline_table_release(struct pipeline_table *table)
{
    for (int i = 0; i < table->row_count; i++) {
        shoal_pipeline_free(table->rows[i].pipeline);
        base_free(table->rows[i].stages);
        base_free(table->rows[i].times);
    }
    table->row_count = 0;
}

const char *pipeline_row_name(const struct pipeline_row *row)
{
    static _Thread_local char text[NAME_BYTES];
    size_t used = (size_t)snprintf(text, sizeof(text), "%s", shoal_pipeline_name(row->kind));
    if (row->kind == SHOAL_PIPELINE_INTERLEAVED_1F1B)
        used += (size_t)snprintf(text + used, sizeof(text) - used, ", %d chunks",
                                 row->stage_chunk_count);
    if (row->active_microbatches)
        snprintf(text + used, sizeof(text) - used, ", %d active", row->active_microbatches);
    return text;
}

/* What a stage keeps most of, in microbatches. */
static double stage_peak(const struct pipeline_row *row, int stage)
{
    int chunks = 0;
    for (int chunk = 0; chunk < row->chunk_count; chunk++)
        chunks += shoal_pipeline_chunk_stage(row->pipeline, chunk) == stage;
    return (double)row->stages[stage].peak_activations / chunks;
}

double pipeline_row_peak(const struct pipeline_row *row)
{
    double peak = 0;
    for (int stage = 0; stage < row->stage_count; stage++)
        peak = fmax(peak, stage_peak(row, stage));
    return peak;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *bytes_text(uint64_t bytes)
{
    return bytes ? scaled_bytes_text((double)bytes) : "-";
}

static void print_stages(const struct pipeline_table *table, FILE *out)
{
    const struct pipeline_row *row = &table->rows[0];
    fprintf(out, "\n%5s %10s %10s %10s %12s %10s %10s\n", "stage", "from", "to", "busy",
            "stands still", "keeps", "bytes");
    for (int i = 0; i < table->request->stage_count; i++) {
        const struct shoal_pipeline_stage *stage = &row->stages[i];
        int64_t idle_ns = row->result.step_ns - stage->busy_ns;
        fprintf(out, "%5d %10s %10s %10s %12s %10.4g %10s\n", i,
                scaled_time_text((double)stage->start_ns), scaled_time_text((double)stage->end_ns),
                scaled_time_text((double)stage->busy_ns), scaled_time_text((double)idle_ns),
                stage_peak(row, i), bytes_text(stage->peak_bytes));
    }
}

void pipeline_print_text(const struct pipeline_table *table, FILE *out)
{
    fprintf(out, "%-28s %10s %8s %10s %10s %10s\n", "schedule", "step", "bubble", "period", "keeps",
            "bytes");
    for (int i = 0; i < table->row_count; i++) {
        const struct pipeline_row *row = &table->rows[i];
        fprintf(out, "%-28s %10s %6.2f %% %10s %10.4g %10s\n", pipeline_row_name(row),
                scaled_time_text((double)row->result.step_ns), row->result.bubble * 100,
                scaled_time_text((double)row->result.period_ns), pipeline_row_peak(row),
                bytes_text(row->result.peak_bytes));
    }
    if (table->row_count == 1)
        print_stages(table, out);
    if (table->request->visits && !table->rows[table->row_count - 1].revisits)
        fprintf(out, "stages that are visited twice do all their work at the first visit, but in "
                     "simple and interleaved\n");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void print_json_stage(const struct pipeline_row *row, int index, bool operations, FILE *out)
{
    static const char *const works[] = {"forward", "backward", "backward_input", "backward_weight"};
    const struct shoal_pipeline_stage *stage = &row->stages[index];
    fprintf(out,
            "%s\n      {\"start_ns\": %lld, \"end_ns\": %lld, \"busy_ns\": %lld, "
            "\"peak_activations\": %d, \"peak_bytes\": %llu",
            index ? "," : "", (long long)stage->start_ns, (long long)stage->end_ns,
            (long long)stage->busy_ns, stage->peak_activations,
            (unsigned long long)stage->peak_bytes);
    const struct shoal_pipeline_operation *all = shoal_pipeline_operations(row->pipeline, -1);
    const struct shoal_pipeline_operation *own = shoal_pipeline_operations(row->pipeline, index);
    int count = shoal_pipeline_operation_count(row->pipeline, index);
    fprintf(out, operations ? ", \"operations\": [" : "}");
    for (int i = 0; operations && i < count; i++) {
        const struct shoal_pipeline_times *times = &row->times[own - all + i];
        fprintf(out,
                "%s\n        {\"work\": \"%s\", \"microbatch\": %d, \"chunk\": %d, \"start_ns\": "
                "%lld, \"end_ns\": %lld}",
                i ? "," : "", works[own[i].work], own[i].microbatch, own[i].chunk,
                (long long)times->start_ns, (long long)times->end_ns);
    }
    fprintf(out, operations ? "]}" : "");
}

static void print_json_row(const struct pipeline_table *table, const struct pipeline_row *row,
                           FILE *out)
{
    fprintf(out,
            "    {\"schedule\": \"%s\", \"chunks\": %d, \"active_microbatches\": %d, "
            "\"step_ns\": %lld, \"period_ns\": %lld, \"bubble\": %.6f, \"peak_activations\": %d, "
            "\"peak_microbatches\": %g, \"peak_bytes\": %llu, \"revisits\": %s, "
            "\"per_stage\": [",
            shoal_pipeline_name(row->kind), row->chunk_count, row->active_microbatches,
            (long long)row->result.step_ns, (long long)row->result.period_ns, row->result.bubble,
            row->result.peak_activations, pipeline_row_peak(row),
            (unsigned long long)row->result.peak_bytes, row->revisits ? "true" : "false");
    for (int stage = 0; stage < table->request->stage_count; stage++)
        print_json_stage(row, stage, table->row_count == 1, out);
    fprintf(out, "]}");
}

void pipeline_print_json(const struct pipeline_table *table, FILE *out)
{
    fprintf(out, "  \"stages\": %d,\n  \"microbatches\": %d,\n  \"schedules\": [",
            table->request->stage_count, table->request->microbatch_count);
    for (int i = 0; i < table->row_count; i++) {
        fprintf(out, "%s\n", i ? "," : "");
        print_json_row(table, &table->rows[i], out);
    }
    fprintf(out, "\n  ]");
}
