/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_svg.c: simulated times over the number of hosts, one curve per algorithm, beside the bound;
 * and below them the same times as multiples of the bound, where small differences show. Hosts and
 * times are on logarithmic axes. A curve is named at its right end; names that would lie on each
 * other move apart. What could not be simulated is a gap; what is above the lower panel leaves it.
 */
#include "sim.h"

#include <math.h>
#include <string.h>

#include "svg.h"

#define WIDTH     1000.0
#define HEIGHT    700.0
#define LEFT      92.0
#define RIGHT     200.0
#define TOP       84.0
#define MIDDLE    430.0 /* where the upper panel ends, */
#define LOWER     476.0 /* and the lower one begins */
#define BOTTOM    52.0
#define TIMES_MAX 1.25 /* of the lower panel */
#define LABEL     15.0 /* least distance of two names */

static const char *const colours[] = {"#1d4ed8", "#b45309", "#a1217e", "#0d7a55", "#6d28d9",
                                      "#0e7490", "#b91c1c", "#4d7c0f", "#5b6470"};
#define COLOUR_COUNT (sizeof(colours) / sizeof(colours[0]))

struct chart {
    const struct sim_table *table;
    FILE *out;
    double least_ns, most_ns;
    bool is_lower; /* the panel that is being drawn */
    double label_y[SIM_ALGORITHMS_MAX + 1];
    int label_count;
};

static double x_of(const struct chart *chart, int hosts)
{
    const struct sim_request *request = chart->table->request;
    double first = log2(request->hosts[0]), last = log2(request->hosts[request->host_count - 1]);
    double place = last > first ? (log2(hosts) - first) / (last - first) : 0.5;
    return LEFT + place * (WIDTH - LEFT - RIGHT);
}

static double y_of_time(const struct chart *chart, double ns)
{
    double place = log(ns / chart->least_ns) / log(chart->most_ns / chart->least_ns);
    return MIDDLE - place * (MIDDLE - TOP);
}

static double y_of_times(double times)
{
    return HEIGHT - BOTTOM - (times - 1) / (TIMES_MAX - 1) * (HEIGHT - BOTTOM - LOWER);
}

/* Where a row's point is in the panel that is being drawn. */
static double y_of(const struct chart *chart, const struct sim_row *row)
{
    return chart->is_lower ? y_of_times(row->time_ns / row->bound_ns)
                           : y_of_time(chart, row->time_ns);
}

static bool has_point(const struct chart *chart, const struct sim_row *row)
{
    return row->time_ns > 0 && (!chart->is_lower || row->bound_ns > 0);
}

/* What is above the lower panel is not drawn. */
static bool is_inside(const struct chart *chart, const struct sim_row *row)
{
    return !chart->is_lower || row->time_ns <= TIMES_MAX * row->bound_ns;
}

static void measure(struct chart *chart)
{
    chart->least_ns = INFINITY;
    for (int i = 0; i < chart->table->row_count; i++) {
        const struct sim_row *row = &chart->table->rows[i];
        double times[] = {row->time_ns, row->bound_ns};
        for (int k = 0; k < 2; k++) {
            if (times[k] > 0 && times[k] < chart->least_ns)
                chart->least_ns = times[k];
            if (times[k] > chart->most_ns)
                chart->most_ns = times[k];
        }
    }
    if (chart->most_ns == 0)
        chart->least_ns = chart->most_ns = 1;
    chart->least_ns /= 1.1;
    chart->most_ns *= 1.1;
}

static void print_head(const struct chart *chart)
{
    const struct sim_request *request = chart->table->request;
    const struct sim_platform *platform = request->platform;
    FILE *out = chart->out;
    svg_begin(WIDTH, HEIGHT, out);
    fprintf(out, ".g{stroke:#e3e6ea;fill:none}.c{fill:none;stroke-width:2;stroke-linejoin:round}");
    svg_end_style(out);
    fprintf(out, "<text x=\"16\" y=\"28\" font-size=\"18\">");
    if (request->model_name)
        fprintf(out, "a step of %s, %s of computing,", request->model.name,
                scaled_time_text(request->compute_ns));
    else if (request->kind == COLL_BARRIER)
        fprintf(out, "barrier");
    else
        fprintf(out, "%s of %s", comm_kind_name(request->kind), sim_bytes_text(request->bytes));
    fprintf(out, " on %d to %d hosts</text>\n", request->hosts[0],
            request->hosts[request->host_count - 1]);
    fprintf(out,
            "<text class=\"m\" x=\"16\" y=\"48\">simulated; %d rank%s on each host%s, links of %g "
            "Gbit/s and %s</text>\n",
            platform->ranks_per_host, platform->ranks_per_host > 1 ? "s" : "",
            sim_servers_text(request), platform->link_bytes_per_ns * 8,
            scaled_time_text(platform->link_latency_ns));
    fprintf(out,
            "<text class=\"m\" x=\"%.0f\" y=\"%.0f\">time</text>"
            "<text class=\"m\" x=\"%.0f\" y=\"%.0f\">times the bound</text>\n"
            "<clipPath id=\"lower\"><rect x=\"0\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\"/>"
            "</clipPath>\n",
            LEFT, TOP - 10, LEFT, LOWER - 10, LOWER, WIDTH, HEIGHT - LOWER);
}

static void print_tick(const struct chart *chart, double y, const char *text)
{
    fprintf(chart->out,
            "<line class=\"g\" x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\"/>"
            "<text class=\"m\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
            LEFT, y, WIDTH - RIGHT, y, LEFT - 8, y + 4, text);
}

static void print_times_axis(const struct chart *chart)
{
    for (int percent = 100; percent <= (int)(100 * TIMES_MAX); percent += 5) {
        char text[16];
        snprintf(text, sizeof(text), "%.2f", percent / 100.0);
        print_tick(chart, y_of_times(percent / 100.0), text);
    }
}

/* Ticks at 1, 2 and 5 times powers of ten; only powers where the axis is long. */
static void print_time_axis(const struct chart *chart)
{
    static const double steps[] = {1, 2, 5};
    bool is_long = chart->most_ns / chart->least_ns > 1000;
    double power = pow(10, floor(log10(chart->least_ns)));
    for (; power <= chart->most_ns; power *= 10)
        for (int i = 0; i < (is_long ? 1 : 3); i++) {
            double tick = power * steps[i];
            if (tick >= chart->least_ns && tick <= chart->most_ns)
                print_tick(chart, y_of_time(chart, tick), scaled_time_text(tick));
        }
}

static void print_host_axis(const struct chart *chart)
{
    const struct sim_request *request = chart->table->request;
    double last_x = -100;
    for (int i = 0; i < request->host_count; i++) {
        double x = x_of(chart, request->hosts[i]);
        if (x < last_x + 36)
            continue;
        last_x = x;
        fprintf(chart->out,
                "<path class=\"g\" d=\"M%.1f %.0fV%.0fM%.1f %.0fV%.0f\"/>"
                "<text class=\"m\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%d</text>\n",
                x, TOP, MIDDLE, x, LOWER, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18,
                request->hosts[i]);
    }
    fprintf(chart->out,
            "<text class=\"m\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">hosts"
            "</text>\n",
            LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 10);
}

/* Where a name that belongs at y finds room: there, or below the names that are in its way. */
static double place_label(struct chart *chart, double y)
{
    for (int i = 0; i < chart->label_count; i++)
        if (fabs(chart->label_y[i] - y) < LABEL) {
            y = chart->label_y[i] + LABEL;
            i = -1;
        }
    chart->label_y[chart->label_count++] = y;
    return y;
}

static void print_label(struct chart *chart, double x, double y, const char *colour,
                        const char *name)
{
    fprintf(chart->out, "<text x=\"%.1f\" y=\"%.1f\" style=\"fill:%s\">", x + 8,
            place_label(chart, y) + 4, colour);
    svg_text(name, chart->out);
    fprintf(chart->out, "</text>\n");
}

static void print_bound(struct chart *chart)
{
    const struct sim_request *request = chart->table->request;
    double x = 0, y = 0;
    fprintf(chart->out, "<polyline class=\"c\" stroke=\"#1b1f24\" stroke-dasharray=\"5 4\" "
                        "points=\"");
    for (int i = 0; i < request->host_count; i++) {
        const struct sim_row *row = &chart->table->rows[i];
        if (row->bound_ns <= 0)
            continue;
        x = x_of(chart, row->hosts);
        y = y_of_time(chart, row->bound_ns);
        fprintf(chart->out, "%.1f,%.1f ", x, y);
    }
    fprintf(chart->out, "\"/>\n");
    if (x > 0)
        print_label(chart, x, y, "#1b1f24", "bound");
}

static void print_points(const struct chart *chart, const struct sim_row *rows, const char *colour)
{
    for (int i = 0; i < chart->table->request->host_count; i++)
        if (has_point(chart, &rows[i]) && is_inside(chart, &rows[i]))
            fprintf(chart->out,
                    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%d hosts, %s: %s, "
                    "%.3f times the bound</title></circle>\n",
                    x_of(chart, rows[i].hosts), y_of(chart, &rows[i]), colour, rows[i].hosts,
                    rows[i].algorithm, scaled_time_text(rows[i].time_ns),
                    rows[i].bound_ns > 0 ? rows[i].time_ns / rows[i].bound_ns : 0);
}

static void print_curve(struct chart *chart, int number)
{
    const struct sim_request *request = chart->table->request;
    const struct sim_row *rows = &chart->table->rows[number * request->host_count];
    const char *colour = colours[(size_t)number % COLOUR_COUNT];
    bool chosen = strcmp(request->algorithms[number], "auto") == 0, open = false;
    const struct sim_row *last = NULL;
    double x = 0, y = 0;
    for (int i = 0; i < request->host_count; i++) {
        if (!has_point(chart, &rows[i])) {
            fprintf(chart->out, "%s", open ? "\"/>\n" : "");
            open = false;
            continue;
        }
        if (!open)
            fprintf(chart->out, "<polyline class=\"c\" stroke=\"%s\"%s%s points=\"", colour,
                    chosen ? " style=\"stroke-width:5;stroke-opacity:.45\"" : "",
                    chart->is_lower ? " clip-path=\"url(#lower)\"" : "");
        open = true;
        x = x_of(chart, rows[i].hosts);
        y = y_of(chart, &rows[i]);
        last = &rows[i];
        fprintf(chart->out, "%.1f,%.1f ", x, y);
    }
    fprintf(chart->out, "%s", open ? "\"/>\n" : "");
    print_points(chart, rows, colour);
    if (last && is_inside(chart, last))
        print_label(chart, x, y, colour, chosen ? "as chosen" : request->algorithms[number]);
}

void sim_print_svg(const struct sim_table *table, FILE *out)
{
    struct chart chart = {.table = table, .out = out};
    measure(&chart);
    print_head(&chart);
    print_time_axis(&chart);
    print_host_axis(&chart);
    print_bound(&chart);
    for (int i = 0; i < table->request->algorithm_count; i++)
        print_curve(&chart, i);
    chart.is_lower = true;
    chart.label_count = 0;
    print_times_axis(&chart);
    for (int i = 0; i < table->request->algorithm_count; i++)
        print_curve(&chart, i);
    fprintf(out, "</svg>\n");
}
