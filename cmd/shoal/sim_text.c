/* SPDX-License-Identifier: Apache-2.0 */
/* sim_text.c: simulated times as text and as one JSON object. */
#include "sim.h"

#include <string.h>

#define MEGABYTE UINT64_C(1000000)

static void print_head(const struct sim_request *request, FILE *out)
{
    const struct sim_platform *platform = request->platform;
    if (request->model_name)
        fprintf(out,
                "a step of %s: %llu parameters (%s) in %d tensors, %s of computing; buffers "
                "of %s, %d at a time\n",
                request->model.name, (unsigned long long)request->model.parameters,
                shoal_dtype_name(request->dtype), request->model.tensor_count,
                scaled_time_text(request->compute_ns),
                scaled_bytes_text((double)request->buffer_bytes), request->in_flight);
    else if (request->kind == COLL_BARRIER)
        fprintf(out, "barrier\n");
    else
        fprintf(out, "%s of %s (%s)\n", comm_kind_name(request->kind),
                sim_bytes_text(request->bytes), shoal_dtype_name(request->dtype));
    fprintf(out, "%d rank%s on each host%s, links of %g Gbit/s and %s\n", platform->ranks_per_host,
            platform->ranks_per_host > 1 ? "s" : "", sim_servers_text(request),
            platform->link_bytes_per_ns * 8, scaled_time_text(platform->link_latency_ns));
}

const char *sim_servers_text(const struct sim_request *request)
{
    static _Thread_local char text[64];
    if (request->servers == SIM_SERVERS_AS_MANY)
        return ", as many servers as hosts";
    snprintf(text, sizeof(text), ", %d server%s", request->servers,
             request->servers > 1 ? "s" : "");
    return request->servers ? text : "";
}

const char *sim_bytes_text(uint64_t bytes)
{
    static _Thread_local char text[32];
    if (bytes < MEGABYTE || bytes % MEGABYTE != 0)
        return scaled_bytes_text((double)bytes);
    snprintf(text, sizeof(text), "%llu MB", (unsigned long long)(bytes / MEGABYTE));
    return text;
}

/* Of a step's communication, the share that the computing hides. */
static double hidden_share(const struct sim_request *request, const struct sim_row *row)
{
    double exposed_ns = row->time_ns - request->compute_ns;
    return row->alone_ns > exposed_ns ? 1 - exposed_ns / row->alone_ns : 0;
}

static void print_row(const struct sim_request *request, const struct sim_row *row, FILE *out)
{
    bool chosen = strcmp(row->asked, "auto") == 0;
    char name[64];
    snprintf(name, sizeof(name), "%s%s", row->algorithm ? row->algorithm : row->asked,
             chosen ? " *" : "");
    fprintf(out, "%6d  %-20s ", row->hosts, name);
    if (row->time_ns == 0 && row->why_not[0]) {
        fprintf(out, "%10s  %s\n", "-", row->why_not);
        return;
    }
    fprintf(out, "%10s %10s", scaled_time_text(row->time_ns), scaled_time_text(row->bound_ns));
    if (row->bound_ns > 0)
        fprintf(out, " %6.3f", row->time_ns / row->bound_ns);
    else
        fprintf(out, " %6s", "-");
    if (request->model_name)
        fprintf(out, " %10s %5.0f %% %10s", scaled_time_text(row->alone_ns),
                100 * hidden_share(request, row), scaled_time_text(row->overlapped_ns));
    fprintf(out, " %9llu  %s%s\n", (unsigned long long)row->messages,
            row->every_rank ? "every rank"
            : row->exact    ? "one host for all"
                            : "one host for all, nearly",
            row->follows_links ? ", unequal shares" : "");
}

void sim_print_text(const struct sim_table *table, FILE *out)
{
    const struct sim_request *request = table->request;
    print_head(request, out);
    fprintf(out, "%6s  %-20s %10s %10s %6s%s %9s  %s\n", "hosts", "algorithm", "time", "bound",
            "times", request->model_name ? "      alone  hidden overlapped" : "", "messages",
            "simulated");
    for (int i = 0; i < request->host_count; i++)
        for (int k = 0; k < request->algorithm_count; k++)
            print_row(request, &table->rows[k * request->host_count + i], out);
    for (int k = 0; k < request->algorithm_count; k++)
        if (strcmp(request->algorithms[k], "auto") == 0)
            fprintf(out, "* as the table chooses\n");
}

static void print_json_row(const struct sim_request *request, const struct sim_row *row, FILE *out)
{
    fprintf(out, "    {\"hosts\": %d, \"asked\": \"%s\", ", row->hosts, row->asked);
    if (row->time_ns == 0 && row->why_not[0]) {
        fprintf(out, "\"algorithm\": null, \"time_ns\": null, \"bound_ns\": %.0f, \"why\": \"%s\"}",
                row->bound_ns, row->why_not);
        return;
    }
    fprintf(out,
            "\"algorithm\": \"%s\", \"time_ns\": %.0f, \"bound_ns\": %.0f, \"messages\": %llu, "
            "\"events\": %llu, \"every_rank\": %s, \"exact\": %s, \"servers\": %d, "
            "\"follows_links\": %s",
            row->algorithm, row->time_ns, row->bound_ns, (unsigned long long)row->messages,
            (unsigned long long)row->events, row->every_rank ? "true" : "false",
            row->exact ? "true" : "false", row->servers, row->follows_links ? "true" : "false");
    if (request->model_name)
        fprintf(out, ", \"alone_ns\": %.0f, \"hidden\": %.4f, \"overlapped_ns\": %.0f",
                row->alone_ns, hidden_share(request, row), row->overlapped_ns);
    fprintf(out, "}");
}

void sim_print_json(const struct sim_table *table, FILE *out)
{
    const struct sim_request *request = table->request;
    fprintf(out, "{\n  \"dtype\": \"%s\",\n", shoal_dtype_name(request->dtype));
    if (request->model_name)
        fprintf(out,
                "  \"model\": \"%s\",\n  \"parameters\": %llu,\n  \"compute_ns\": %.0f,\n  "
                "\"buffer_bytes\": %llu,\n  \"in_flight\": %d,\n",
                request->model.name, (unsigned long long)request->model.parameters,
                request->compute_ns, (unsigned long long)request->buffer_bytes, request->in_flight);
    else
        fprintf(out, "  \"operation\": \"%s\",\n  \"bytes\": %llu,\n",
                comm_kind_name(request->kind), (unsigned long long)request->bytes);
    fprintf(out, "  \"ranks_per_host\": %d,\n  \"rows\": [\n", request->platform->ranks_per_host);
    for (int i = 0; i < table->row_count; i++) {
        print_json_row(request, &table->rows[i], out);
        fprintf(out, "%s\n", i + 1 < table->row_count ? "," : "");
    }
    fprintf(out, "  ]\n}\n");
}
