/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_svg.c: a plan as a picture: time from left to right, one row per rank, hosts together.
 *
 * A row has three lanes: what leaves (top), what is computed, what arrives (bottom). Boxes are
 * steps over their predicted time; a line leads from each message's sender to its receiver. A
 * receive is drawn from its first byte to its end. With many ranks the
 * rows get thinner, with many messages the lines get fainter and then stay away, and boxes too
 * narrow to be told apart become one, so the picture stays readable and its file small.
 */
#include "plan.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"
#include "svg.h"

#define WIDTH      1280.0
#define LEFT       128.0
#define RIGHT      24.0
#define TOP        118.0
#define BOTTOM     34.0
#define HOST_GAP   10.0
#define RANKS_MAX  256
#define LINES_MAX  2000
#define TITLES_MAX 3000 /* boxes that get a text of their own */
#define NARROW     1.5

enum colour { SENT, SENT_LOCALLY, RECEIVED, RECEIVED_LOCALLY, REDUCED, COPIED, COLOUR_COUNT };

static const struct {
    const char *class, *fill, *text;
} colours[COLOUR_COUNT] = {
    [SENT] = {"s", "#1d4ed8", "send to another host"},
    [SENT_LOCALLY] = {"t", "#047857", "send within the host"},
    [RECEIVED] = {"r", "#7aa2f7", "receive from another host"},
    [RECEIVED_LOCALLY] = {"q", "#5cc79b", "receive within the host"},
    [REDUCED] = {"u", "#e8910c", "reduce"},
    [COPIED] = {"c", "#9aa3af", "copy"},
};

struct box {
    double begin, end; /* x */
    enum colour colour;
    int lane;
    uint32_t step;
};

struct picture {
    const struct plan *plan;
    FILE *out;
    int rank_count; /* shown */
    double row, lane, height, ns_per_x;
    uint32_t message_count, box_count;
};

static double x_of(const struct picture *picture, double ns)
{
    return LEFT + ns / picture->ns_per_x;
}

/* The top of a rank's row. */
static double y_of(const struct picture *picture, int rank)
{
    return TOP + rank * picture->row + picture->plan->host_of[rank] * HOST_GAP;
}

static double lane_y(const struct picture *picture, int rank, int lane)
{
    return y_of(picture, rank) + lane * (picture->lane + 1) + 1;
}

static const struct sim_step_time *time_of(const struct plan *plan, int rank, uint32_t step)
{
    return &plan->times[plan->first[rank] + step];
}

static double latency_ns(const struct plan *plan, int rank, int peer)
{
    return plan->host_of[rank] == plan->host_of[peer] ? plan->request->platform->local_latency_ns
                                                      : plan->request->platform->link_latency_ns;
}

static struct box box_of(const struct picture *picture, int rank, uint32_t number)
{
    const struct plan *plan = picture->plan;
    const struct schedule_step *step = &plan->schedules[rank]->steps[number];
    const struct sim_step_time *time = time_of(plan, rank, number);
    struct box box = {.begin = x_of(picture, time->start_ns),
                      .end = x_of(picture, time->end_ns),
                      .lane = 1,
                      .colour = step->kind == STEP_REDUCE ? REDUCED : COPIED,
                      .step = number};
    if (step->kind != STEP_SEND && step->kind != STEP_RECV)
        return box;
    bool local = plan->host_of[rank] == plan->host_of[step->peer];
    box.lane = step->kind == STEP_SEND ? 0 : 2;
    box.colour = step->kind == STEP_SEND ? (local ? SENT_LOCALLY : SENT)
                                         : (local ? RECEIVED_LOCALLY : RECEIVED);
    return box;
}

/* ---- frame --------------------------------------------------------------------------------- */

static void measure(struct picture *picture)
{
    const struct plan *plan = picture->plan;
    picture->rank_count = plan->size < RANKS_MAX ? plan->size : RANKS_MAX;
    picture->row = plan->size <= 16 ? 42 : plan->size <= 32 ? 24 : plan->size <= 64 ? 15 : 6;
    picture->lane = (picture->row - 4) / 3 - 1;
    picture->height = y_of(picture, picture->rank_count - 1) + picture->row + BOTTOM;
    double last_ns = plan->predicted_ns > plan->bound_ns ? plan->predicted_ns : plan->bound_ns;
    picture->ns_per_x = (last_ns > 0 ? last_ns : 1) / (WIDTH - LEFT - RIGHT);
    for (int rank = 0; rank < plan->size; rank++)
        for (uint32_t i = 0; i < plan->schedules[rank]->step_count; i++, picture->box_count++)
            picture->message_count += plan->schedules[rank]->steps[i].kind == STEP_SEND;
}

static void print_head(const struct picture *picture)
{
    const struct plan *plan = picture->plan;
    FILE *out = picture->out;
    svg_begin(WIDTH, picture->height, out);
    fprintf(out, ".n{stroke:#1d4ed8}.l{stroke:#047857}");
    for (int colour = 0; colour < COLOUR_COUNT; colour++)
        fprintf(out, ".%s{fill:%s}", colours[colour].class, colours[colour].fill);
    svg_end_style(out);
    fprintf(
        out, "<text x=\"16\" y=\"28\" font-size=\"18\">%s%s%s, %d ranks on %d host%s: %s</text>\n",
        comm_kind_name(plan->request->kind), plan->request->kind == COLL_BARRIER ? "" : " of ",
        plan->request->kind == COLL_BARRIER ? "" : scaled_bytes_text((double)plan->request->bytes),
        plan->size, plan->request->hosts.count, plan->request->hosts.count > 1 ? "s" : "",
        plan->algorithm->name);
    fprintf(out, "<text class=\"m\" x=\"16\" y=\"48\">");
    svg_text(plan->algorithm->summary, out);
    fprintf(out, "; predicted %s", scaled_time_text(plan->predicted_ns));
    if (picture->message_count > LINES_MAX)
        fprintf(out, "; %u messages, their lines left out", picture->message_count);
    if (plan->size > RANKS_MAX)
        fprintf(out, "; the first %d ranks", RANKS_MAX);
    fprintf(out, "</text>\n");
}

static void print_legend(const struct picture *picture)
{
    const struct plan *plan = picture->plan;
    bool used[COLOUR_COUNT] = {false};
    for (int rank = 0; rank < plan->size; rank++)
        for (uint32_t i = 0; i < plan->schedules[rank]->step_count; i++)
            used[box_of(picture, rank, i).colour] = true;
    double x = 16;
    for (int colour = 0; colour < COLOUR_COUNT; colour++) {
        if (!used[colour])
            continue;
        fprintf(picture->out,
                "<rect class=\"%s\" x=\"%.0f\" y=\"62\" width=\"14\" height=\"12\"/>"
                "<text x=\"%.0f\" y=\"72\">%s</text>\n",
                colours[colour].class, x, x + 20, colours[colour].text);
        x += colour == REDUCED ? 84 : 196;
    }
}

static void print_axis(const struct picture *picture)
{
    FILE *out = picture->out;
    double last_ns = picture->ns_per_x * (WIDTH - LEFT - RIGHT), bottom = picture->height - BOTTOM;
    double distance = svg_tick_distance(last_ns / 6);
    for (double tick = 0; tick <= last_ns * 1.0001; tick += distance)
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"#d1d5db\"/>"
                "<text class=\"m\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n",
                x_of(picture, tick), TOP - 8, x_of(picture, tick), bottom + 4, x_of(picture, tick),
                bottom + 20, scaled_time_text(tick));
    double bound = picture->plan->bound_ns;
    if (bound > 0)
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"#b91c1c\" "
                "stroke-dasharray=\"5 4\"/><text x=\"%.1f\" y=\"%.0f\" text-anchor=\"end\" "
                "style=\"fill:#b91c1c\">least possible: %s</text>\n",
                x_of(picture, bound), TOP - 20, x_of(picture, bound), bottom, x_of(picture, bound),
                TOP - 24, scaled_time_text(bound));
}

static void print_hosts(const struct picture *picture)
{
    const struct plan *plan = picture->plan;
    FILE *out = picture->out;
    for (int first = 0; first < picture->rank_count;) {
        int end = first + 1, host = plan->host_of[first];
        while (end < picture->rank_count && plan->host_of[end] == host)
            end++;
        double height = (end - first) * picture->row;
        fprintf(out,
                "<rect x=\"8\" y=\"%.1f\" width=\"%.0f\" height=\"%.1f\" rx=\"4\" "
                "fill=\"#f3f4f6\"/>\n<text x=\"16\" y=\"%.1f\" font-weight=\"bold\">",
                y_of(picture, first), WIDTH - 16, height, y_of(picture, first) + height / 2 + 4);
        if (height >= 14)
            svg_text(plan_host_name(plan, host), out);
        fprintf(out, "</text>\n");
        first = end;
    }
    for (int rank = 0; rank < picture->rank_count && picture->row >= 12; rank++)
        fprintf(out, "<text class=\"m\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s%d</text>\n",
                LEFT - 8, y_of(picture, rank) + picture->row / 2 + 4,
                picture->row > 20 ? "rank " : "", rank);
}

/* ---- steps --------------------------------------------------------------------------------- */

static int compare_boxes(const void *a, const void *b)
{
    const struct box *left = a, *right = b;
    if (left->lane != right->lane)
        return left->lane - right->lane;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return left->step < right->step ? -1 : 1;
}

static void print_title(const struct picture *picture, int rank, uint32_t number)
{
    static const char *const kinds[] = {"send", "receive", "reduce", "copy"};
    const struct plan *plan = picture->plan;
    const struct schedule_step *step = &plan->schedules[rank]->steps[number];
    const struct sim_step_time *time = time_of(plan, rank, number);
    fprintf(picture->out, "<title>rank %d, step %u: %s %s", rank, number, kinds[step->kind],
            scaled_bytes_text((double)plan_step_bytes(plan, step)));
    if (step->kind == STEP_SEND || step->kind == STEP_RECV)
        fprintf(picture->out, " %s rank %d", step->kind == STEP_SEND ? "to" : "from", step->peer);
    fprintf(picture->out, ", %s to %s</title>", scaled_time_text(time->start_ns),
            scaled_time_text(time->end_ns));
}

static void print_box(const struct picture *picture, int rank, const struct box *box)
{
    double width = box->end - box->begin;
    width = width > NARROW ? width - 0.5 : width < 0.5 ? 0.5 : width;
    fprintf(picture->out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"",
            colours[box->colour].class, box->begin, lane_y(picture, rank, box->lane), width,
            picture->lane);
    if (picture->box_count > TITLES_MAX) {
        fprintf(picture->out, "/>\n");
        return;
    }
    fprintf(picture->out, ">");
    print_title(picture, rank, box->step);
    fprintf(picture->out, "</rect>\n");
}

/* Boxes of one rank, by lane and time; those that the eye cannot tell apart become one. */
static void print_boxes(const struct picture *picture, int rank, struct box *boxes)
{
    uint32_t count = picture->plan->schedules[rank]->step_count;
    for (uint32_t i = 0; i < count; i++)
        boxes[i] = box_of(picture, rank, i);
    if (count > 1)
        qsort(boxes, count, sizeof(*boxes), compare_boxes);
    for (uint32_t i = 0; i < count;) {
        struct box box = boxes[i++];
        while (i < count && boxes[i].lane == box.lane && boxes[i].colour == box.colour &&
               boxes[i].end - boxes[i].begin < NARROW && boxes[i].begin - box.end < 0.5) {
            box.end = boxes[i].end > box.end ? boxes[i].end : box.end;
            i++;
        }
        print_box(picture, rank, &box);
    }
}

/* A line from the begin of a send to the begin of its receive. */
static void print_line(const struct picture *picture, int rank, uint32_t number)
{
    const struct plan *plan = picture->plan;
    const struct schedule_step *step = &plan->schedules[rank]->steps[number];
    if (step->kind != STEP_SEND || step->peer >= picture->rank_count)
        return;
    double begin_ns = time_of(plan, rank, number)->start_ns;
    double end_ns = begin_ns + latency_ns(plan, rank, step->peer);
    bool local = plan->host_of[rank] == plan->host_of[step->peer];
    fprintf(picture->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
            local ? "l" : "n", x_of(picture, begin_ns),
            lane_y(picture, rank, 0) + picture->lane / 2, x_of(picture, end_ns),
            lane_y(picture, step->peer, 2) + picture->lane / 2);
}

static void print_lines(const struct picture *picture)
{
    if (picture->message_count > LINES_MAX)
        return;
    double opacity = picture->message_count <= 60    ? 0.7
                     : picture->message_count <= 300 ? 0.35
                                                     : 0.15;
    fprintf(picture->out, "<g stroke-opacity=\"%.2f\">\n", opacity);
    for (int rank = 0; rank < picture->rank_count; rank++)
        for (uint32_t i = 0; i < picture->plan->schedules[rank]->step_count; i++)
            print_line(picture, rank, i);
    fprintf(picture->out, "</g>\n");
}

enum shoal_status plan_print_svg(const struct plan *plan, FILE *out)
{
    struct picture picture = {.plan = plan, .out = out};
    struct box *boxes;
    uint32_t most = 0;
    measure(&picture);
    for (int rank = 0; rank < plan->size; rank++)
        if (plan->schedules[rank]->step_count > most)
            most = plan->schedules[rank]->step_count;
    TRY(BASE_NEW_ARRAY(&boxes, most, "the picture's boxes"));
    print_head(&picture);
    print_legend(&picture);
    print_hosts(&picture);
    print_axis(&picture);
    for (int rank = 0; rank < picture.rank_count; rank++)
        print_boxes(&picture, rank, boxes);
    print_lines(&picture);
    fprintf(out, "</svg>\n");
    base_free(boxes);
    return SHOAL_OK;
}
