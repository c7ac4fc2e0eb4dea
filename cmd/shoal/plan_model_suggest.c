/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model_suggest.c: the layouts that `shoal plan-model --suggest` proposes, with what each
 * spends its time on.
 */
#include <inttypes.h>

#include "base/memory.h"
#include "plan/layout.h"
#include "plan_model.h"
#include "scaled_text.h"

#define SHOWN 6

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static bool has_degrees(const struct plan_layout *layout, const struct plan_layout *other)
{
    return layout->data == other->data && layout->pipeline == other->pipeline &&
           layout->tensor == other->tensor;
}

/* Whether a faster one has the same degrees, with other microbatches. */
static bool is_repeated(const struct plan_layout *layouts, int at)
{
    for (int i = 0; i < at; i++)
        if (has_degrees(&layouts[i], &layouts[at]))
            return true;
    return false;
}

/* What the step spends most of its time on, other than work. */
static const char *reason(const struct plan_layout *layout, double *cost_ns)
{
    const char *names[] = {"filling and draining the pipeline", "sums within layers",
                           "sums of gradients"};
    double costs[] = {layout->bubble_ns, layout->tensor_ns, layout->data_ns};
    int most = 0;
    for (int i = 1; i < 3; i++)
        most = costs[i] > costs[most] ? i : most;
    *cost_ns = costs[most];
    return names[most];
}

static void print_row(const struct plan_layout *layout, FILE *out)
{
    double cost_ns;
    const char *why = reason(layout, &cost_ns);
    fprintf(out, "  %4d %4d %4d  %5d x %-4d  %6.2g  %8s  %4.0f%%  %10s  ", layout->data,
            layout->pipeline, layout->tensor, layout->microbatches, layout->microbatch_size,
            layout->memory_weight, scaled_time_text(layout->step_ns),
            share(layout->compute_ns, layout->step_ns),
            scaled_bytes_text((double)layout->memory_bytes));
    if (cost_ns > 0)
        fprintf(out, "%.0f %% %s\n", share(cost_ns, layout->step_ns), why);
    else
        fprintf(out, "nothing but work\n");
}

/* How copies alone would do, which need the least of a program. */
static void print_copies(const struct plan_layout_request *request,
                         const struct plan_layout *layouts, int count, FILE *out)
{
    const struct plan_layout copies = {.data = request->rank_count, .pipeline = 1, .tensor = 1};
    for (int i = 0; i < count; i++)
        if (has_degrees(&layouts[i], &copies)) {
            fprintf(out, "  copies alone (%d x 1 x 1) take %.2f times the first one's time\n",
                    copies.data, layouts[i].step_ns / layouts[0].step_ns);
            return;
        }
    fprintf(out, "  copies alone (%d x 1 x 1) are not possible: %s\n", copies.data,
            request->batch % copies.data != 0 ? "the batch can't be divided by them"
                                              : "the model is too large for a rank");
}

static void print_text(const struct plan_layout_request *request, const struct plan_layout *layouts,
                       int count, FILE *out)
{
    fprintf(out, "\n  layouts of %d ranks, %d on a host, for %d microbatches a step",
            request->rank_count, request->host_ranks, request->batch);
    if (request->memory_bytes > 0)
        fprintf(out, ", in %s each", scaled_bytes_text((double)request->memory_bytes));
    fprintf(
        out,
        "; the fastest first\n     D    P    T  microbatches  weight      step  work      memory  "
        "what costs most\n");
    for (int i = 0, shown = 0; i < count && shown < SHOWN; i++)
        if (!is_repeated(layouts, i)) {
            print_row(&layouts[i], out);
            shown++;
        }
    print_copies(request, layouts, count, out);
}

static void print_json(const struct plan_layout *layouts, int count, FILE *out)
{
    fprintf(out, ",\n  \"layouts\": [");
    for (int i = 0; i < count; i++) {
        const struct plan_layout *layout = &layouts[i];
        fprintf(out,
                "%s\n    {\"data\": %d, \"pipeline\": %d, \"tensor\": %d, \"microbatches\": %d, "
                "\"microbatch_size\": %d, \"memory_weight\": %g, \"step_ns\": %.0f, "
                "\"compute_ns\": %.0f, "
                "\"tensor_ns\": %.0f, \"bubble_ns\": %.0f, \"data_ns\": %.0f, \"memory_bytes\": "
                "%" PRIu64 "}",
                i ? "," : "", layout->data, layout->pipeline, layout->tensor, layout->microbatches,
                layout->microbatch_size, layout->memory_weight, layout->step_ns, layout->compute_ns,
                layout->tensor_ns, layout->bubble_ns, layout->data_ns, layout->memory_bytes);
    }
    fprintf(out, "\n  ]");
}

enum shoal_status plan_model_suggest(const struct plan_model *model,
                                     const struct plan_model_world *world, bool json, FILE *out)
{
    struct plan_layout *layouts;
    int count;
    struct plan_layout_request request = {.model = model->options,
                                          .rank_count = world->rank_count,
                                          .host_ranks = world->host_ranks,
                                          .batch = world->batch,
                                          .memory_bytes = model->memory_limit,
                                          .host_bytes_per_ns = world->host_bytes_per_ns,
                                          .network_bytes_per_ns = world->network_bytes_per_ns,
                                          .network_latency_ns = world->network_latency_ns};
    enum shoal_status status = plan_layouts_create(&request, &layouts, &count);
    if (status != SHOAL_OK)
        return status;
    if (json)
        print_json(layouts, count, out);
    else
        print_text(&request, layouts, count, out);
    base_free(layouts);
    return SHOAL_OK;
}
