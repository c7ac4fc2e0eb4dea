/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_fuse_svg.c: one step over time, a line for each buffer in the order in which they were
 * sent: its gradients come, it waits for its turn, it is on its way, and a caller has it back.
 */
#include "bench_fuse.h"

#include "scaled_text.h"
#include "svg.h"

#define WIDTH    1000.0
#define LEFT     92.0
#define RIGHT    24.0
#define TOP      84.0
#define BOTTOM   44.0
#define ROWS     560.0 /* the height of all lines, if they need so much */
#define ROW_MOST 16.0
#define TICKS    10

struct timeline {
    const struct fuse_replay_settings *settings;
    const struct fuse_replay_result *result;
    shoal_fuse_t fuse;
    FILE *out;
    double row, bottom; /* heights */
};

static double x_of(const struct timeline *timeline, int64_t time_ns)
{
    const struct fuse_replay_result *result = timeline->result;
    double place =
        (double)(time_ns - result->start_ns) / (double)(result->end_ns - result->start_ns);
    return LEFT + place * (WIDTH - LEFT - RIGHT);
}

static void print_head(const struct timeline *timeline)
{
    const struct fuse_replay_result *result = timeline->result;
    FILE *out = timeline->out;
    svg_begin(WIDTH, timeline->bottom + BOTTOM, out);
    fprintf(out, ".g{stroke:#e3e6ea}.e{stroke:#b91c1c;stroke-dasharray:4 3}.f{fill:#f3f4f6}"
                 ".r{fill:#cbd5e1}.w{fill:#f0b46a}.s{fill:#1d4ed8}.b{stroke:#0d7a55}");
    svg_end_style(out);
    fprintf(out, "<text x=\"16\" y=\"28\" font-size=\"18\">a step of ");
    svg_text(timeline->settings->model.name, out);
    fprintf(out, " in %d fusion buffers</text>\n", result->buffers);
    fprintf(out,
            "<text class=\"m\" x=\"16\" y=\"48\">%s of gradients, %s of computing; rank 0, the "
            "last step</text>\n",
            scaled_bytes_text((double)result->bytes), scaled_time_text(result->compute_ns));
}

static void print_legend(const struct timeline *timeline)
{
    static const struct {
        const char *kind, *text;
    } entries[] = {{"r", "gradients become ready"},
                   {"w", "packed, waits for its turn"},
                   {"s", "sent, until it is reduced"},
                   {"f", "forward pass"}};
    double x = 16;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++, x += 200)
        fprintf(timeline->out,
                "<rect class=\"%s\" x=\"%.0f\" y=\"58\" width=\"12\" height=\"12\"/>"
                "<text class=\"m\" x=\"%.0f\" y=\"68\">%s</text>\n",
                entries[i].kind, x, x + 18, entries[i].text);
    fprintf(timeline->out,
            "<line class=\"b\" x1=\"%.0f\" y1=\"58\" x2=\"%.0f\" y2=\"70\"/>"
            "<text class=\"m\" x=\"%.0f\" y=\"68\">back</text>\n",
            x, x, x + 8);
}

static void print_axis(const struct timeline *timeline)
{
    const struct fuse_replay_result *result = timeline->result;
    double length_us = (double)(result->end_ns - result->start_ns) / 1e3;
    double distance_us = svg_tick_distance(length_us > TICKS ? length_us / TICKS : 1);
    int64_t forward_ns = result->start_ns + (int64_t)(FUSE_FORWARD_SHARE * result->compute_ns);
    double computed_x = x_of(timeline, result->computed_ns);
    fprintf(timeline->out,
            "<rect class=\"f\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%.1f\"/>\n", LEFT, TOP,
            x_of(timeline, forward_ns) - LEFT, timeline->bottom - TOP);
    for (double us = 0; us <= length_us; us += distance_us) {
        double x = x_of(timeline, result->start_ns + (int64_t)(us * 1e3));
        fprintf(timeline->out,
                "<line class=\"g\" x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.1f\"/>"
                "<text class=\"m\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                x, TOP, x, timeline->bottom, x, timeline->bottom + 16, us / 1e3);
    }
    fprintf(timeline->out,
            "<line class=\"e\" x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.1f\"/>"
            "<text class=\"m\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">computing ends</text>\n"
            "<text class=\"m\" x=\"16\" y=\"%.1f\">ms</text>\n",
            computed_x, TOP - 4, computed_x, timeline->bottom, computed_x, timeline->bottom + 32,
            timeline->bottom + 16);
}

static void print_bar(const struct timeline *timeline, const char *kind, double y, int64_t from_ns,
                      int64_t to_ns)
{
    double x = x_of(timeline, from_ns), width = x_of(timeline, to_ns) - x;
    if (width > 0)
        fprintf(timeline->out,
                "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>", kind,
                x, y, width, timeline->row * 0.8);
}

static double ms_of(const struct timeline *timeline, int64_t time_ns)
{
    return (double)(time_ns - timeline->result->start_ns) / 1e6;
}

static void print_buffer(const struct timeline *timeline, int buffer)
{
    struct shoal_fuse_times times = SHOAL_FUSE_TIMES_INIT;
    FILE *out = timeline->out;
    if (shoal_fuse_times(timeline->fuse, buffer, &times) != SHOAL_OK || times.sent_as < 0)
        return;
    double y = TOP + times.sent_as * timeline->row;
    fprintf(out,
            "<g><title>buffer %d, %s, sent as %d: ready %.3f to %.3f, packed %.3f, sent %.3f, "
            "reduced %.3f, back %.3f ms</title>",
            buffer, scaled_bytes_text((double)times.bytes), times.sent_as,
            ms_of(timeline, times.first_added_ns), ms_of(timeline, times.last_added_ns),
            ms_of(timeline, times.packed_ns), ms_of(timeline, times.sent_ns),
            ms_of(timeline, times.reduced_ns), ms_of(timeline, times.back_ns));
    print_bar(timeline, "r", y, times.first_added_ns, times.packed_ns);
    print_bar(timeline, "w", y, times.packed_ns, times.sent_ns);
    print_bar(timeline, "s", y, times.sent_ns, times.reduced_ns);
    double back_x = x_of(timeline, times.back_ns);
    fprintf(out, "<line class=\"b\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/></g>\n",
            back_x, y, back_x, y + timeline->row * 0.8);
}

void fuse_timeline_print(const struct fuse_replay_settings *settings,
                         const struct fuse_replay_result *result, shoal_fuse_t fuse, FILE *out)
{
    struct timeline timeline = {.settings = settings, .result = result, .fuse = fuse, .out = out};
    double row = ROWS / result->buffers;
    timeline.row = row < ROW_MOST ? row : ROW_MOST;
    timeline.bottom = TOP + timeline.row * result->buffers;
    print_head(&timeline);
    print_legend(&timeline);
    print_axis(&timeline);
    for (int buffer = 0; buffer < result->buffers; buffer++)
        print_buffer(&timeline, buffer);
    fprintf(out, "</svg>\n");
}
