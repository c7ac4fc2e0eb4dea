/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model_svg.c: what each stage does when: a band for each schedule, in it a lane for each
 * stage, all over the same time, so that bands can be compared. Where a lane shows its ground, the
 * stage stands still. Numbers are microbatches; a stage's later chunks are lighter.
 */
#include "base/status.h"
#include "plan_model_pipeline.h"
#include "scaled_text.h"
#include "svg.h"

#define WIDTH      1000.0
#define LEFT       76.0
#define RIGHT      16.0
#define TOP        96.0
#define BOTTOM     40.0
#define HEADING    26.0  /* above a band's lanes */
#define GAP        16.0  /* below them */
#define LANES      620.0 /* the height of all lanes, if they need so much */
#define LANE_MOST  22.0
#define LANE_LEAST 4.0
#define TICKS      10
#define DIGIT      7.0 /* width of a digit */

struct drawing {
    const struct pipeline_table *table;
    FILE *out;
    double lane, bar, bottom; /* heights; a bar is a lane without the gap below */
    double most_ns;           /* the longest step */
};

static double x_of(const struct drawing *drawing, double time_ns)
{
    return LEFT + time_ns / drawing->most_ns * (WIDTH - LEFT - RIGHT);
}

static void measure(struct drawing *drawing)
{
    const struct pipeline_table *table = drawing->table;
    int lanes = table->row_count * table->request->stage_count;
    double lane = LANES / lanes;
    drawing->lane = lane > LANE_MOST ? LANE_MOST : lane < LANE_LEAST ? LANE_LEAST : lane;
    drawing->bar = drawing->lane - (drawing->lane > 12 ? 1.5 : 0.5);
    drawing->bottom = TOP + lanes * drawing->lane + table->row_count * (HEADING + GAP);
    drawing->most_ns = 1;
    for (int i = 0; i < table->row_count; i++)
        if ((double)table->rows[i].result.step_ns > drawing->most_ns)
            drawing->most_ns = (double)table->rows[i].result.step_ns;
}

static void print_head(const struct drawing *drawing)
{
    const struct pipeline_request *request = drawing->table->request;
    FILE *out = drawing->out;
    svg_begin(WIDTH, drawing->bottom + BOTTOM, out);
    fprintf(out, ".g{stroke:#d1d5db;stroke-dasharray:2 3}.i{fill:#e5e7eb}.f{fill:#1d4ed8}"
                 ".b{fill:#0d7a55}.w{fill:#e8910c}.o{stroke:#fff;stroke-width:.7}"
                 "text.n{text-anchor:middle;font-size:11px}text.l{fill:#fff}");
    svg_end_style(out);
    fprintf(out,
            "<text x=\"16\" y=\"28\" font-size=\"18\">a step of %d microbatch%s on %d stage%s"
            "</text>\n"
            "<text class=\"m\" x=\"16\" y=\"48\">simulated; numbers are microbatches, a stage's "
            "later chunks are lighter</text>\n",
            request->microbatch_count, request->microbatch_count > 1 ? "es" : "",
            request->stage_count, request->stage_count > 1 ? "s" : "");
}

static void print_legend(const struct drawing *drawing)
{
    static const struct {
        const char *kind, *text;
        double width;
    } entries[] = {{"f", "forward", 110},
                   {"b", "backward, or its input gradient", 250},
                   {"w", "weight gradient", 150},
                   {"i", "stands still", 0}};
    double x = 16;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        fprintf(drawing->out,
                "<rect class=\"%s\" x=\"%.0f\" y=\"60\" width=\"12\" height=\"12\"/>"
                "<text class=\"m\" x=\"%.0f\" y=\"70\">%s</text>\n",
                entries[i].kind, x, x + 18, entries[i].text);
        x += entries[i].width;
    }
}

static void print_axis(const struct drawing *drawing)
{
    double length_us = drawing->most_ns / 1e3;
    double distance_us = svg_tick_distance(length_us > TICKS ? length_us / TICKS : 1);
    for (double us = 0; us <= length_us; us += distance_us) {
        double x = x_of(drawing, us * 1e3);
        fprintf(drawing->out,
                "<line class=\"g\" x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.1f\"/>"
                "<text class=\"m\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                x, TOP, x, drawing->bottom, x, drawing->bottom + 16, us / 1e3);
    }
    fprintf(drawing->out, "<text class=\"m\" x=\"16\" y=\"%.1f\">ms</text>\n",
            drawing->bottom + 16);
}

/* Which of its stage's chunks this is, in the model's order. */
static int turn_of(const struct pipeline_row *row, int chunk)
{
    int stage = shoal_pipeline_chunk_stage(row->pipeline, chunk), turn = 0;
    for (int i = 0; i < chunk; i++)
        turn += shoal_pipeline_chunk_stage(row->pipeline, i) == stage;
    return turn;
}

static void print_operation(const struct drawing *drawing, const struct pipeline_row *row,
                            const struct shoal_pipeline_operation *operation, double y)
{
    static const char kinds[] = "fbbw";
    static const char *const names[] = {"forward", "backward", "input gradient", "weight gradient"};
    const struct shoal_pipeline_times *times =
        &row->times[operation - shoal_pipeline_operations(row->pipeline, -1)];
    double x = x_of(drawing, (double)times->start_ns);
    double width = x_of(drawing, (double)times->end_ns) - x;
    int last = row->stage_chunk_count - 1;
    double strength = last ? 1 - 0.6 * turn_of(row, operation->chunk) / last : 1;
    fprintf(drawing->out,
            "<g><title>%s of microbatch %d, chunk %d: %.3f to %.3f ms</title>"
            "<rect class=\"%c%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"",
            names[operation->work], operation->microbatch, operation->chunk,
            (double)times->start_ns / 1e6, (double)times->end_ns / 1e6, kinds[operation->work],
            drawing->lane > 12 ? " o" : "", x, y, width, drawing->bar);
    if (strength < 1)
        fprintf(drawing->out, " fill-opacity=\"%.2f\"", strength);
    fprintf(drawing->out, "/>");
    double needed = DIGIT * (operation->microbatch > 99 ? 3 : operation->microbatch > 9 ? 2 : 1);
    bool light = operation->work != SHOAL_WORK_BACKWARD_WEIGHT && strength > 0.7;
    if (width > needed + 1 && drawing->lane > 12)
        fprintf(drawing->out, "<text class=\"n%s\" x=\"%.1f\" y=\"%.1f\">%d</text>",
                light ? " l" : "", x + width / 2, y + drawing->lane / 2 + 3.2,
                operation->microbatch);
    fprintf(drawing->out, "</g>\n");
}

static void print_lane(const struct drawing *drawing, const struct pipeline_row *row, int stage,
                       double y)
{
    const struct shoal_pipeline_operation *operations =
        shoal_pipeline_operations(row->pipeline, stage);
    fprintf(drawing->out,
            "<rect class=\"i\" x=\"%.1f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n", LEFT, y,
            x_of(drawing, (double)row->result.step_ns) - LEFT, drawing->bar);
    if (drawing->lane > 8 || stage == 0 || stage == drawing->table->request->stage_count - 1)
        fprintf(
            drawing->out,
            "<text class=\"m\" x=\"%.0f\" y=\"%.2f\" text-anchor=\"end\" font-size=\"11\">stage "
            "%d</text>\n",
            LEFT - 8, y + drawing->lane / 2 + 3.2, stage);
    for (int i = 0; i < shoal_pipeline_operation_count(row->pipeline, stage); i++)
        print_operation(drawing, row, &operations[i], y);
}

static void print_band(const struct drawing *drawing, const struct pipeline_row *row, double y)
{
    const struct shoal_pipeline_result *result = &row->result;
    fprintf(drawing->out,
            "<text x=\"16\" y=\"%.1f\"><tspan font-weight=\"bold\">%s</tspan>: step %s, bubble "
            "%.1f %%, keeps activations of %.3g microbatch%s</text>\n",
            y + HEADING - 9, pipeline_row_name(row), scaled_time_text((double)result->step_ns),
            result->bubble * 100, pipeline_row_peak(row), pipeline_row_peak(row) > 1 ? "es" : "");
    for (int stage = 0; stage < drawing->table->request->stage_count; stage++)
        print_lane(drawing, row, stage, y + HEADING + stage * drawing->lane);
}

static enum shoal_status check_size(const struct pipeline_table *table)
{
    long operations = 0;
    for (int i = 0; i < table->row_count; i++)
        operations += shoal_pipeline_operation_count(table->rows[i].pipeline, -1);
    if (operations > PIPELINE_DRAWN_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "--timeline: %ld operations are too many to be seen, at most %d; take "
                          "fewer microbatches or stages, or one --pipeline",
                          operations, PIPELINE_DRAWN_MAX);
    return SHOAL_OK;
}

enum shoal_status pipeline_write_svg(const struct pipeline_table *table, const char *path)
{
    struct drawing drawing = {.table = table};
    TRY(check_size(table));
    TRY(svg_open(path, &drawing.out));
    measure(&drawing);
    print_head(&drawing);
    print_legend(&drawing);
    print_axis(&drawing);
    double band = HEADING + GAP + table->request->stage_count * drawing.lane;
    for (int i = 0; i < table->row_count; i++)
        print_band(&drawing, &table->rows[i], TOP + i * band - 8);
    fprintf(drawing.out, "</svg>\n");
    return svg_close(drawing.out, path);
}
