/* SPDX-License-Identifier: Apache-2.0 */
/* plan_json.c: a plan as one JSON object. */
#include "json_text.h"
#include "plan.h"

static void print_member(const char *name, const char *text, FILE *out)
{
    fprintf(out, "  \"%s\": ", name);
    json_print_string(text, out);
    fprintf(out, ",\n");
}

static void print_hosts(const struct plan *plan, FILE *out)
{
    fprintf(out, "  \"hosts\": [");
    for (int host = 0; host < plan->request->hosts.count; host++) {
        fprintf(out, "%s{\"name\": ", host ? ", " : "");
        json_print_string(plan_host_name(plan, host), out);
        fprintf(out, ", \"ranks\": %d}", plan->request->hosts.hosts[host].rank_count);
    }
    fprintf(out, "],\n");
}

static void print_rounds(const struct plan *plan, FILE *out)
{
    fprintf(out, "  \"rounds\": [");
    for (uint32_t i = 0; i < plan->round_count; i++) {
        const struct plan_round *round = &plan->rounds[i];
        fprintf(out,
                "%s\n    {\"messages\": %u, \"bytes\": %llu, \"network_bytes\": %llu, "
                "\"most_bytes\": %llu}",
                i ? "," : "", round->messages, (unsigned long long)round->bytes,
                (unsigned long long)round->network_bytes, (unsigned long long)round->most_bytes);
    }
    fprintf(out, "%s],\n", plan->round_count ? "\n  " : "");
}

/* [from][to], hosts or, on one host, ranks. */
static void print_links(const struct plan *plan, FILE *out)
{
    fprintf(out, "  \"links_between\": \"%s\",\n  \"link_bytes\": [",
            plan->request->hosts.count > 1 ? "hosts" : "ranks");
    for (int from = 0; from < plan->place_count; from++) {
        fprintf(out, "%s\n    [", from ? "," : "");
        for (int to = 0; to < plan->place_count; to++)
            fprintf(out, "%s%llu", to ? ", " : "",
                    (unsigned long long)plan->link_bytes[from * plan->place_count + to]);
        fprintf(out, "]");
    }
    fprintf(out, "\n  ],\n");
}

static void print_span(const struct plan *plan, struct schedule_span span, FILE *out)
{
    size_t elem_bytes = schedule_elem_bytes(span.buffer, plan->elem_bytes);
    fprintf(out, "{\"buffer\": \"%s\", \"offset\": %llu}", schedule_buffer_name(span.buffer),
            (unsigned long long)(span.offset * elem_bytes));
}

static void print_step(const struct plan *plan, const struct schedule *schedule, uint32_t number,
                       FILE *out)
{
    static const char *const kinds[] = {"send", "recv", "reduce", "copy"};
    const struct schedule_step *step = &schedule->steps[number];
    const struct sim_step_time *time = &plan->times[plan->first[plan->request->rank] + number];
    fprintf(out, "    {\"kind\": \"%s\", \"start_ns\": %.0f, \"end_ns\": %.0f, \"bytes\": %llu, ",
            kinds[step->kind], time->start_ns, time->end_ns,
            (unsigned long long)plan_step_bytes(plan, step));
    if (step->kind == STEP_SEND || step->kind == STEP_RECV)
        fprintf(out, "\"peer\": %d, \"message\": %u, ", step->peer, step->message);
    fprintf(out, "\"at\": ");
    print_span(plan, step->at, out);
    fprintf(out, ", \"sources\": [");
    for (uint32_t i = 0; i < step->source_count; i++) {
        fprintf(out, i ? ", " : "");
        print_span(plan, schedule->sources[step->source_first + i], out);
    }
    fprintf(out, "], \"final\": %s, \"before\": [", step->final ? "true" : "false");
    for (uint32_t i = 0; i < step->after_count; i++)
        fprintf(out, "%s%u", i ? ", " : "", schedule->edges[step->after_first + i]);
    fprintf(out, "]}");
}

static void print_rank(const struct plan *plan, FILE *out)
{
    if (plan->request->rank < 0)
        return;
    const struct schedule *schedule = plan->schedules[plan->request->rank];
    fprintf(out, "  \"rank\": %d,\n  \"steps\": [\n", plan->request->rank);
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        fprintf(out, i ? ",\n" : "");
        print_step(plan, schedule, i, out);
    }
    fprintf(out, "\n  ],\n");
}

void plan_print_json(const struct plan *plan, FILE *out)
{
    fprintf(out, "{\n");
    print_member("operation", comm_kind_name(plan->request->kind), out);
    print_member("algorithm", plan->algorithm->name, out);
    print_member("summary", plan->algorithm->summary, out);
    print_member("why", plan->why, out);
    print_member("dtype", shoal_dtype_name(plan->request->dtype), out);
    fprintf(out, "  \"ranks\": %d,\n", plan->size);
    print_hosts(plan, out);
    fprintf(out, "  \"bytes\": %llu,\n  \"count\": %llu,\n  \"segment_bytes\": %llu,\n",
            (unsigned long long)plan->request->bytes, (unsigned long long)plan->count,
            (unsigned long long)(plan->segment_count * plan->elem_bytes));
    print_rounds(plan, out);
    print_links(plan, out);
    print_rank(plan, out);
    if (plan->request->verify)
        fprintf(out, "  \"verified\": %s,\n  \"verified_count\": %llu,\n",
                plan->verified ? "true" : "false", (unsigned long long)plan->verified_count);
    fprintf(out, "  \"predicted_ns\": %.0f,\n  \"bound_ns\": %.0f\n}\n", plan->predicted_ns,
            plan->bound_ns);
}
