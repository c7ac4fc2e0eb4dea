/* SPDX-License-Identifier: Apache-2.0 */
/* plan_text.c: a plan as text. */
#include "plan.h"

#include <string.h>

#define ROUNDS_SHOWN 24 /* of more, the first and the last */
#define LAST_ROUNDS  4
#define PLACES_SHOWN 12 /* of more, only the extremes */
#define HOSTS_SHOWN  8

static void print_head(const struct plan *plan, FILE *out)
{
    const struct plan_request *request = plan->request;
    fprintf(out, "%s", comm_kind_name(request->kind));
    if (request->kind != COLL_BARRIER)
        fprintf(out, " of %s (%s)", scaled_bytes_text((double)request->bytes),
                shoal_dtype_name(request->dtype));
    fprintf(out, ", %d rank%s on %d host%s:", plan->size, plan->size > 1 ? "s" : "",
            request->hosts.count, request->hosts.count > 1 ? "s" : "");
    for (int host = 0; host < request->hosts.count && host < HOSTS_SHOWN; host++)
        fprintf(out, " %s:%d", plan_host_name(plan, host), request->hosts.hosts[host].rank_count);
    fprintf(out, "%s\n", request->hosts.count > HOSTS_SHOWN ? " ..." : "");
    fprintf(out, "  algorithm  %s: %s\n", plan->algorithm->name, plan->algorithm->summary);
    fprintf(out, "  why        %s\n", plan->why);
}

static uint64_t longest_message(const struct plan *plan)
{
    uint64_t longest = 0;
    for (int rank = 0; rank < plan->size; rank++)
        for (uint32_t i = 0; i < plan->schedules[rank]->step_count; i++) {
            const struct schedule_step *step = &plan->schedules[rank]->steps[i];
            uint64_t bytes = step->kind == STEP_SEND ? plan_step_bytes(plan, step) : 0;
            longest = bytes > longest ? bytes : longest;
        }
    return longest;
}

static void print_facts(const struct plan *plan, FILE *out)
{
    uint32_t least = UINT32_MAX, most = 0;
    uint64_t scratch = 0;
    for (int rank = 0; rank < plan->size; rank++) {
        const struct schedule *schedule = plan->schedules[rank];
        least = schedule->step_count < least ? schedule->step_count : least;
        most = schedule->step_count > most ? schedule->step_count : most;
        uint64_t bytes = schedule_scratch_bytes(schedule, plan->elem_bytes);
        scratch = bytes > scratch ? bytes : scratch;
    }
    fprintf(out, "  steps      %u", least);
    if (most > least)
        fprintf(out, " to %u", most);
    fprintf(out, " per rank");
    if (plan->round_count > 0)
        fprintf(out, "; messages of at most %s", scaled_bytes_text((double)longest_message(plan)));
    fprintf(out, "; scratch %s\n", scaled_bytes_text((double)scratch));
    if (!plan->verified)
        return;
    fprintf(out, "  verified   %s; no deadlock, no race",
            plan->request->kind == COLL_BARRIER
                ? "every rank hears of every other"
                : "every result holds each input that it should, once, in one order");
    if (plan->verified_count != plan->count)
        fprintf(out, "\n             (with count %llu instead of %llu in as many segments)",
                (unsigned long long)plan->verified_count, (unsigned long long)plan->count);
    fprintf(out, "\n");
}

static void print_time(const struct plan *plan, FILE *out)
{
    const struct sim_platform *platform = plan->request->platform;
    fprintf(out, "  predicted  %s", scaled_time_text(plan->predicted_ns));
    if (plan->bound_ns > 0)
        fprintf(out, ", %.2f times the least possible (%s)", plan->predicted_ns / plan->bound_ns,
                scaled_time_text(plan->bound_ns));
    if (plan->request->hosts.count > 1)
        fprintf(out, ", with %g Gbit/s and %s between hosts", platform->link_bytes_per_ns * 8,
                scaled_time_text(platform->link_latency_ns));
    fprintf(out, "\n");
}

static void print_rounds(const struct plan *plan, FILE *out)
{
    if (plan->round_count == 0)
        return;
    fprintf(out, "\nRounds, were no message cut\n%8s %9s %10s %14s %15s\n", "round", "messages",
            "bytes", "between hosts", "most by a rank");
    for (uint32_t i = 0; i < plan->round_count; i++) {
        if (plan->round_count > ROUNDS_SHOWN && i == ROUNDS_SHOWN - LAST_ROUNDS) {
            fprintf(out, "%8s\n", "...");
            i = plan->round_count - LAST_ROUNDS;
        }
        const struct plan_round *round = &plan->rounds[i];
        fprintf(out, "%8u %9u %10s %14s %15s\n", i + 1, round->messages,
                scaled_bytes_text((double)round->bytes),
                scaled_bytes_text((double)round->network_bytes),
                scaled_bytes_text((double)round->most_bytes));
    }
}

/* ---- links --------------------------------------------------------------------------------- */

static void place_name(const struct plan *plan, int place, char name[16])
{
    if (plan->request->hosts.count == 1)
        snprintf(name, 16, "rank %d", place);
    else
        snprintf(name, 16, "%.15s", plan_host_name(plan, place));
}

static void print_link_table(const struct plan *plan, FILE *out)
{
    char name[16];
    fprintf(out, "%12s", "from \\ to");
    for (int to = 0; to < plan->place_count; to++) {
        place_name(plan, to, name);
        fprintf(out, " %10.10s", name);
    }
    fprintf(out, "\n");
    for (int from = 0; from < plan->place_count; from++) {
        place_name(plan, from, name);
        fprintf(out, "%12.12s", name);
        for (int to = 0; to < plan->place_count; to++) {
            uint64_t bytes = plan->link_bytes[from * plan->place_count + to];
            fprintf(out, " %10s", bytes ? scaled_bytes_text((double)bytes) : "-");
        }
        fprintf(out, "\n");
    }
}

static void print_link_extremes(const struct plan *plan, FILE *out)
{
    int used = 0, busiest = 0;
    for (int link = 0; link < plan->place_count * plan->place_count; link++) {
        used += plan->link_bytes[link] > 0;
        if (plan->link_bytes[link] > plan->link_bytes[busiest])
            busiest = link;
    }
    char from[16], to[16];
    place_name(plan, busiest / plan->place_count, from);
    place_name(plan, busiest % plan->place_count, to);
    fprintf(out, "  %d links are used; the busiest, %s to %s, carries %s\n", used, from, to,
            scaled_bytes_text((double)plan->link_bytes[busiest]));
}

static void print_links(const struct plan *plan, FILE *out)
{
    uint64_t bytes = 0;
    for (int link = 0; link < plan->place_count * plan->place_count; link++)
        bytes += plan->link_bytes[link];
    if (bytes == 0)
        return;
    bool hosts = plan->request->hosts.count > 1;
    fprintf(out, "\nBytes on each link%s\n",
            hosts ? " (between the ranks of one host: on the diagonal)" : "");
    if (plan->place_count <= PLACES_SHOWN)
        print_link_table(plan, out);
    else
        print_link_extremes(plan, out);
}

/* ---- one rank ------------------------------------------------------------------------------ */

static void print_span(const struct plan *plan, struct schedule_span span, FILE *out)
{
    size_t elem_bytes = schedule_elem_bytes(span.buffer, plan->elem_bytes);
    fprintf(out, "%s+%llu", schedule_buffer_name(span.buffer),
            (unsigned long long)(span.offset * elem_bytes));
}

static void print_step(const struct plan *plan, const struct schedule *schedule, uint32_t number,
                       FILE *out)
{
    static const char *const kinds[] = {"send", "recv", "reduce", "copy"};
    const struct schedule_step *step = &schedule->steps[number];
    const struct sim_step_time *time = &plan->times[plan->first[plan->request->rank] + number];
    fprintf(out, "%6u %10s %10s  %-6s %10s  ", number, scaled_time_text(time->start_ns),
            scaled_time_text(time->end_ns), kinds[step->kind],
            scaled_bytes_text((double)plan_step_bytes(plan, step)));
    if (step->kind == STEP_SEND || step->kind == STEP_RECV)
        fprintf(out, "%s rank %d, ", step->kind == STEP_SEND ? "to" : "from", step->peer);
    print_span(plan, step->at, out);
    for (uint32_t i = 0; i < step->source_count; i++) {
        fprintf(out, i ? " " : " = ");
        print_span(plan, schedule->sources[step->source_first + i], out);
    }
    fprintf(out, "%s\n", step->final ? ", final" : "");
}

static void print_rank(const struct plan *plan, FILE *out)
{
    if (plan->request->rank < 0)
        return;
    const struct schedule *schedule = plan->schedules[plan->request->rank];
    fprintf(out, "\nSteps of rank %d (offsets in bytes)\n%6s %10s %10s  %-6s %10s\n",
            plan->request->rank, "step", "starts", "ends", "does", "bytes");
    for (uint32_t i = 0; i < schedule->step_count; i++)
        print_step(plan, schedule, i, out);
}

void plan_print_text(const struct plan *plan, FILE *out)
{
    print_head(plan, out);
    print_facts(plan, out);
    print_time(plan, out);
    print_rounds(plan, out);
    print_links(plan, out);
    print_rank(plan, out);
}
