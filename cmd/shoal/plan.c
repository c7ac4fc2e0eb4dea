/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: `shoal plan`: shows the schedule of an operation before it is ever run. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "svg.h"

int cmd_plan(int argc, char **argv);

enum {
    PLAN_RANKS,
    PLAN_HOSTS,
    PLAN_BYTES,
    PLAN_DTYPE,
    PLAN_ROOT,
    PLAN_ALGORITHM,
    PLAN_REPRODUCIBLE,
    PLAN_SEGMENT,
    PLAN_RATE,
    PLAN_LATENCY,
    PLAN_RANK,
    PLAN_SVG,
    PLAN_JSON,
    PLAN_VERIFY,
    PLAN_HELP,
    PLAN_COUNT
};

static const struct argument table[PLAN_COUNT] = {
    [PLAN_RANKS] = {"ranks", 'n', "N", "number of ranks (default: one for each slot of the hosts)"},
    [PLAN_HOSTS] = {"hosts", 'H', "N|LIST",
                    "number of hosts, or hosts with their ranks: a:2,b:2\n"
                    "(default: one host)"},
    [PLAN_BYTES] = {"bytes", 'b', "SIZE",
                    "of the buffer; of all blocks together where there is one per rank\n"
                    "(default 64M)"},
    [PLAN_DTYPE] = {"dtype", 0, "NAME", "of an element (default f32)"},
    [PLAN_ROOT] = {"root", 0, "RANK", "of reduce, broadcast, gather, scatter (default 0)"},
    [PLAN_ALGORITHM] = {"algorithm", 'a', "NAME", "instead of the one that the table chooses"},
    [PLAN_REPRODUCIBLE] = {"reproducible", 0, NULL,
                           "only algorithms whose sums don't depend on the size"},
    [PLAN_SEGMENT] = {"segment", 0, "SIZE",
                      "longer messages are cut in pieces of this size (default: by the table)"},
    [PLAN_RATE] = {"rate", 0, "RATE", "of a host's network, each way (default 10gbit)"},
    [PLAN_LATENCY] = {"latency", 0, "TIME", "of the network, one way (default 50us)"},
    [PLAN_RANK] = {"rank", 'r', "RANK", "show every step of this rank"},
    [PLAN_SVG] = {"svg", 0, "FILE", "draw the schedule over the predicted time"},
    [PLAN_JSON] = {"json", 0, NULL, "as one JSON object"},
    [PLAN_VERIFY] = {"verify", 0, NULL, "prove that the schedule is right"},
    [PLAN_HELP] = {"help", 'h', NULL, "this text"},
};

/* What the arguments say, before it is put together. */
struct words {
    struct plan_request *request; /* what needs no putting together goes there */
    const char *operation, *hosts;
    long ranks; /* 0: not given */
    bool help;
};

static void usage(FILE *out)
{
    fprintf(out,
            "usage: shoal plan OPERATION [OPTION...]\n\n"
            "Shows what all ranks do in an operation: the algorithm and why it is chosen, the\n"
            "bytes on each link, and the time that a simple model of the links predicts. Runs\n"
            "nothing.\n\n"
            "OPERATION is allreduce, reduce, broadcast, allgather, gather, reduce_scatter,\n"
            "scatter, alltoall or barrier.\n\n");
    arguments_help(table, PLAN_COUNT, out);
    fprintf(out,
            "\nFor example: shoal plan allreduce --ranks 8 --hosts 2 --bytes 64M --svg a.svg\n");
}

static enum shoal_status parse_rank(const char *option, const char *text, int *out)
{
    long number;
    TRY(argument_number(option, text, 0, PLAN_RANKS_MAX - 1, &number));
    *out = (int)number;
    return SHOAL_OK;
}

/* ---- arguments ----------------------------------------------------------------------------- */

static enum shoal_status take_argument(void *user, int id, const char *value)
{
    struct words *words = user;
    struct plan_request *request = words->request;
    switch (id) {
    case PLAN_RANKS: return argument_number("--ranks", value, 1, PLAN_RANKS_MAX, &words->ranks);
    case PLAN_HOSTS: words->hosts = value; return SHOAL_OK;
    case PLAN_BYTES: return argument_bytes("--bytes", value, &request->bytes);
    case PLAN_DTYPE: return argument_dtype(value, &request->dtype);
    case PLAN_ROOT: return parse_rank("--root", value, &request->root);
    case PLAN_ALGORITHM: request->algorithm = value; return SHOAL_OK;
    case PLAN_REPRODUCIBLE: request->reproducible = true; return SHOAL_OK;
    case PLAN_SEGMENT:
        return argument_option_bytes("--segment", value, OPTION_SEGMENT_BYTES,
                                     &request->segment_bytes);
    case PLAN_RATE: return sim_parse_rate("--rate", value, &request->platform->link_bytes_per_ns);
    case PLAN_LATENCY:
        return sim_parse_time("--latency", value, &request->platform->link_latency_ns);
    case PLAN_RANK: return parse_rank("--rank", value, &request->rank);
    case PLAN_SVG: request->svg_path = value; return SHOAL_OK;
    case PLAN_JSON: request->json = true; return SHOAL_OK;
    case PLAN_VERIFY: request->verify = true; return SHOAL_OK;
    default: words->help = true; return SHOAL_OK;
    }
}

static enum shoal_status take_arguments(int argc, char **argv, struct words *words)
{
    struct arguments arguments = {.command = "plan",
                                  .table = table,
                                  .count = PLAN_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take_argument,
                                  .user = words,
                                  .at = 1};
    return arguments_take_with_operation(&arguments, &words->operation);
}

/* "2" as a list of that many hosts with even shares of the ranks. */
static enum shoal_status number_hosts(long count, long ranks, struct launch_hosts *hosts)
{
    TRY(BASE_NEW_ARRAY(&hosts->hosts, count, "the hosts"));
    hosts->count = (int)count;
    for (long host = 0; host < count; host++) {
        snprintf(hosts->hosts[host].name, sizeof(hosts->hosts[host].name), "host%ld", host);
        hosts->hosts[host].slots = (int)(ranks / count + (host < ranks % count));
    }
    return SHOAL_OK;
}

static enum shoal_status place_ranks(const struct words *words, struct plan_request *request)
{
    const char *text = words->hosts ? words->hosts : "1";
    long ranks = words->ranks, hosts = 0;
    if (text[strspn(text, "0123456789")] == '\0') {
        TRY(argument_number("--hosts", text, 1, PLAN_RANKS_MAX, &hosts));
        ranks = ranks ? ranks : hosts;
        if (hosts > ranks)
            return base_error(SHOAL_ERR_ARGUMENT, "--hosts %ld: there are only %ld ranks", hosts,
                              ranks);
        TRY(number_hosts(hosts, ranks, &request->hosts));
    } else {
        TRY(launch_hosts_parse(text, &request->hosts));
        ranks = ranks ? ranks : launch_hosts_slots(&request->hosts);
    }
    TRY(launch_hosts_place(&request->hosts, (int)ranks));
    request->size = (int)ranks;
    request->platform->host_count = request->hosts.count;
    if (request->size > PLAN_RANKS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "plan shows at most %d ranks", PLAN_RANKS_MAX);
    if (request->root >= request->size || request->rank >= request->size)
        return base_error(SHOAL_ERR_ARGUMENT, "rank %d does not exist: there are 0 to %d",
                          request->root >= request->size ? request->root : request->rank,
                          request->size - 1);
    return SHOAL_OK;
}

/* ---- output -------------------------------------------------------------------------------- */

static enum shoal_status write_svg(const struct plan *plan, const char *path)
{
    FILE *file;
    TRY(svg_open(path, &file));
    enum shoal_status status = plan_print_svg(plan, file);
    enum shoal_status closed = svg_close(file, path);
    return status == SHOAL_OK ? closed : status;
}

static enum shoal_status show(const struct plan_request *request)
{
    struct plan plan;
    enum shoal_status status = plan_build(request, &plan);
    if (status == SHOAL_OK && request->svg_path)
        status = write_svg(&plan, request->svg_path);
    if (status == SHOAL_OK && request->json)
        plan_print_json(&plan, stdout);
    else if (status == SHOAL_OK)
        plan_print_text(&plan, stdout);
    plan_release(&plan);
    return status;
}

/* Links and copies only: what processors need for messages is `shoal sim`'s subject. */
static enum shoal_status make_platform(struct sim_platform **out)
{
    TRY(sim_platform_create(1, out));
    (*out)->send = (*out)->receive = (struct sim_cost){0, 0};
    return SHOAL_OK;
}

int cmd_plan(int argc, char **argv)
{
    struct plan_request request = {.bytes = UINT64_C(64) << 20, .dtype = SHOAL_F32, .rank = -1};
    struct words words = {.request = &request};
    enum shoal_status status = make_platform(&request.platform);
    if (status == SHOAL_OK)
        status = take_arguments(argc, argv, &words);
    if (status == SHOAL_OK && words.help) {
        usage(stdout);
        sim_platform_free(request.platform);
        return 0;
    }
    if (status == SHOAL_OK && !words.operation)
        status = base_error(SHOAL_ERR_ARGUMENT,
                            "which operation? For example: shoal plan allreduce --ranks 8");
    if (status == SHOAL_OK)
        status = argument_operation(words.operation, &request.kind);
    if (request.kind == COLL_BARRIER)
        request.bytes = 0;
    if (status == SHOAL_OK)
        status = place_ranks(&words, &request);
    if (status == SHOAL_OK)
        status = show(&request);
    launch_hosts_release(&request.hosts);
    sim_platform_free(request.platform);
    return arguments_exit("plan", status);
}
