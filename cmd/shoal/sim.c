/* SPDX-License-Identifier: Apache-2.0 */
/* sim.c: `shoal sim`: runs our schedules over a model of hosts and links, in virtual time. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "sim_training.h"
#include "svg.h"

#define BYTES_DEFAULT UINT64_C(100000000)
#define HOSTS_DEFAULT "2:4096"
#define NAME_BYTES    32
#define BUFFER_MIN    65536

int cmd_sim(int argc, char **argv);

enum {
    SIM_PLATFORM,
    SIM_HOSTS,
    SIM_RANKS,
    SIM_SERVERS,
    SIM_SHARES,
    SIM_BYTES,
    SIM_DTYPE,
    SIM_ALGORITHM,
    SIM_REPRODUCIBLE,
    SIM_SEGMENT,
    SIM_RATE,
    SIM_LATENCY,
    SIM_EVERY_RANK,
    SIM_MODEL,
    SIM_COMPUTE,
    SIM_BUFFER,
    SIM_IN_FLIGHT,
    SIM_CALIBRATE,
    SIM_COMPARE,
    SIM_PLOT,
    SIM_JSON,
    SIM_PRINT,
    SIM_HELP,
    SIM_COUNT
};

static const struct argument table[SIM_COUNT] = {
    [SIM_PLATFORM] = {"platform", 'p', "FILE",
                      "hosts and links (docs/sim.md says how to write it)"},
    [SIM_HOSTS] = {"hosts", 'H', "LIST",
                   "numbers of hosts: 2:4096 doubles, 2:4096:4 goes by four, 2,3,8 is a list\n"
                   "(default: the platform's; without one " HOSTS_DEFAULT ")"},
    [SIM_RANKS] = {"ranks", 'n', "N", "on each host (default: the platform's; without one 1)"},
    [SIM_SERVERS] = {"servers", 0, "N",
                     "that only sum, each on one more host; all: as many as hosts\n"
                     "(default: the platform's; without one none)"},
    [SIM_SHARES] = {"shares", 0, "HOW",
                    "auto: large allreduces follow the rates of unequal links (default); equal"},
    [SIM_BYTES] = {"bytes", 'b', "SIZE",
                   "of the buffer; of all blocks together where there is one per rank\n"
                   "(default 100000000)"},
    [SIM_DTYPE] = {"dtype", 0, "NAME", "of an element (default f32)"},
    [SIM_ALGORITHM] = {"algorithm", 'a', "LIST",
                       "names; auto: as the table chooses (default); all: auto and every one"},
    [SIM_REPRODUCIBLE] = {"reproducible", 0, NULL,
                          "auto: only algorithms whose sums don't depend on the size"},
    [SIM_SEGMENT] = {"segment", 0, "SIZE",
                     "longer messages are cut in pieces of this size (default: by the table)"},
    [SIM_RATE] = {"rate", 0, "RATE", "of every host's link, each way, instead of the platform's"},
    [SIM_LATENCY] = {"latency", 0, "TIME", "of every host's link, instead of the platform's"},
    [SIM_EVERY_RANK] = {"every-rank", 0, NULL,
                        "simulate every rank also where one host could stand for all"},
    [SIM_MODEL] = {"model", 'm', "NAME",
                   "simulate a step of training: bert-large, gpt-2, gpt-2-xl, mask-rcnn-r50,\n"
                   "resnet-50, or a file as in models/"},
    [SIM_COMPUTE] = {"compute", 'c', "TIME",
                     "of a step's forward and backward pass (default 200ms)"},
    [SIM_BUFFER] = {"buffer", 0, "SIZE", "of a fusion buffer (default 4M)"},
    [SIM_IN_FLIGHT] = {"in-flight", 0, "N", "fusion buffers on their way at a time (default 2)"},
    [SIM_CALIBRATE] = {"calibrate", 0, "FILE",
                       "fit rate, latency and message costs of the platform to runs between hosts\n"
                       "(lines of shoal bench --json), and print it"},
    [SIM_COMPARE] = {"compare", 0, "FILE", "the same runs beside the platform as it is"},
    [SIM_PLOT] = {"plot", 0, "FILE", "draw time over hosts, beside the bound, as SVG"},
    [SIM_JSON] = {"json", 0, NULL, "as one JSON object"},
    [SIM_PRINT] = {"print-platform", 0, NULL, "print the platform as a file, and simulate nothing"},
    [SIM_HELP] = {"help", 'h', NULL, "this text"},
};

/* What the arguments say, before it is put together. */
struct words {
    struct sim_request *request; /* what needs no putting together goes there */
    const char *operation, *platform, *hosts, *servers, *algorithms, *rate, *latency;
    long ranks; /* 0: not given */
    long in_flight;
    const char *runs; /* of --calibrate or --compare */
    bool fits, print, help;
};

static void usage(void)
{
    printf("usage: shoal sim OPERATION [OPTION...]\n"
           "       shoal sim --model NAME --compute TIME [OPTION...]\n"
           "       shoal sim training NAME [OPTION...]   (shoal sim training --help says more)\n"
           "       shoal sim --calibrate FILE [--platform FILE]\n\n"
           "Runs an operation's schedules over a model of hosts and links, in virtual time: how\n"
           "long it takes on 2 to 4096 hosts, beside the least possible time. Or a training step,\n"
           "whose gradients are summed in fusion buffers while they become ready.\n\n"
           "OPERATION is allreduce, reduce, broadcast, allgather, gather, reduce_scatter,\n"
           "scatter, alltoall or barrier.\n\n");
    arguments_help(table, SIM_COUNT, stdout);
    printf("\nFor example:\n"
           "  shoal sim allreduce --rate 25gbit --latency 10us --algorithm all --plot a.svg\n"
           "  shoal sim allreduce --platform cluster.txt --bytes 400M\n"
           "  shoal sim --model bert-large --compute 300ms --rate 25gbit --hosts 2:64\n");
}

/* ---- arguments ----------------------------------------------------------------------------- */

static enum shoal_status take_shares(const char *value, struct sim_request *request)
{
    request->equal_shares = strcmp(value, "equal") == 0;
    if (request->equal_shares || strcmp(value, "auto") == 0)
        return SHOAL_OK;
    return base_error(SHOAL_ERR_ARGUMENT, "--shares %s: it takes auto or equal", value);
}

static enum shoal_status take_argument(void *user, int id, const char *value)
{
    struct words *words = user;
    struct sim_request *request = words->request;
    switch (id) {
    case SIM_PLATFORM: words->platform = value; break;
    case SIM_HOSTS: words->hosts = value; break;
    case SIM_RANKS: return argument_number("--ranks", value, 1, 64, &words->ranks);
    case SIM_SERVERS: words->servers = value; break;
    case SIM_SHARES: return take_shares(value, request);
    case SIM_BYTES: return argument_bytes("--bytes", value, &request->bytes);
    case SIM_DTYPE: return argument_dtype(value, &request->dtype);
    case SIM_ALGORITHM: words->algorithms = value; break;
    case SIM_REPRODUCIBLE: request->reproducible = true; break;
    case SIM_SEGMENT:
        return argument_option_bytes("--segment", value, OPTION_SEGMENT_BYTES,
                                     &request->segment_bytes);
    case SIM_RATE: words->rate = value; break;
    case SIM_LATENCY: words->latency = value; break;
    case SIM_EVERY_RANK: request->every_rank = true; break;
    case SIM_MODEL: request->model_name = value; break;
    case SIM_COMPUTE: return sim_parse_time("--compute", value, &request->compute_ns);
    case SIM_BUFFER: return argument_bytes("--buffer", value, &request->buffer_bytes);
    case SIM_IN_FLIGHT: return argument_number("--in-flight", value, 1, 16, &words->in_flight);
    case SIM_CALIBRATE:
    case SIM_COMPARE:
        words->runs = value;
        words->fits = id == SIM_CALIBRATE;
        break;
    case SIM_PLOT: request->plot_path = value; break;
    case SIM_JSON: request->json = true; break;
    case SIM_PRINT: words->print = true; break;
    default: words->help = true; break;
    }
    return SHOAL_OK;
}

static enum shoal_status take_arguments(int argc, char **argv, struct words *words)
{
    struct arguments arguments = {.command = "sim",
                                  .table = table,
                                  .count = SIM_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take_argument,
                                  .user = words,
                                  .at = 1};
    return arguments_take_with_operation(&arguments, &words->operation);
}

/* "2:4096", "2:4096:4". */
static enum shoal_status read_range(const char *text, struct sim_request *request)
{
    char *end = NULL;
    long first = strtol(text, &end, 10), factor = 2;
    long last = *end == ':' ? strtol(end + 1, &end, 10) : -1;
    if (*end == ':')
        factor = strtol(end + 1, &end, 10);
    if (*end != '\0' || first < 1 || last < first || last > SIM_HOSTS_MAX || factor < 2)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "--hosts %s: it takes numbers from 1 to %d: 2:4096, 2:4096:4 or 2,3,8",
                          text, SIM_HOSTS_MAX);
    for (; first <= last; first *= factor)
        request->hosts[request->host_count++] = (int)first;
    return SHOAL_OK;
}

static enum shoal_status read_hosts(const char *text, struct sim_request *request)
{
    TRY(BASE_NEW_ARRAY(&request->hosts, SIM_HOSTS_MAX, "the numbers of hosts"));
    if (strchr(text, ':'))
        return read_range(text, request);
    for (const char *rest = text; rest;) {
        long hosts;
        TRY(argument_list_number("--hosts", &rest, 1, SIM_HOSTS_MAX, &hosts));
        if (request->host_count && request->hosts[request->host_count - 1] >= hosts)
            return base_error(SHOAL_ERR_ARGUMENT, "--hosts %s: the numbers must rise", text);
        request->hosts[request->host_count++] = (int)hosts;
    }
    return SHOAL_OK;
}

static enum shoal_status add_algorithm(struct sim_request *request, const char *name)
{
    if (request->algorithm_count == SIM_ALGORITHMS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "more than %d algorithms", SIM_ALGORITHMS_MAX);
    request->algorithms[request->algorithm_count++] = name;
    return SHOAL_OK;
}

/* A name of the list; the room for it is the caller's. */
static enum shoal_status read_algorithm(const char *word, size_t bytes, struct sim_request *request)
{
    char name[NAME_BYTES], list[256] = "";
    snprintf(name, sizeof(name), "%.*s", (int)(bytes < sizeof(name) ? bytes : 0), word);
    if (strcmp(name, "auto") == 0)
        return add_algorithm(request, "auto");
    const struct coll_algorithm *algorithm = coll_find(request->kind, name);
    if (algorithm)
        return add_algorithm(request, algorithm->name);
    for (int i = 0; coll_algorithms()[i]; i++)
        if (coll_algorithms()[i]->kind == request->kind)
            snprintf(list + strlen(list), sizeof(list) - strlen(list), ", %s",
                     coll_algorithms()[i]->name);
    return base_error(SHOAL_ERR_ARGUMENT, "no algorithm '%.*s' for %s: there are auto, all%s",
                      (int)bytes, word, comm_kind_name(request->kind), list);
}

static enum shoal_status read_algorithms(const char *text, struct sim_request *request)
{
    if (strcmp(text, "all") == 0) {
        TRY(add_algorithm(request, "auto"));
        for (int i = 0; coll_algorithms()[i]; i++)
            if (coll_algorithms()[i]->kind == request->kind)
                TRY(add_algorithm(request, coll_algorithms()[i]->name));
        return SHOAL_OK;
    }
    for (const char *word = text;; word++) {
        size_t bytes = strcspn(word, ",");
        TRY(read_algorithm(word, bytes, request));
        word += bytes;
        if (*word == '\0')
            return SHOAL_OK;
    }
}

static enum shoal_status read_servers(const char *text, struct sim_request *request)
{
    long servers = request->platform->server_count;
    if (text && strcmp(text, "all") == 0)
        servers = SIM_SERVERS_AS_MANY;
    else if (text)
        TRY(argument_number("--servers", text, 0, SIM_RANKS_MAX - 1, &servers));
    request->servers = (int)servers;
    return SHOAL_OK;
}

static enum shoal_status make_platform(const struct words *words, struct sim_request *request)
{
    if (words->platform)
        TRY(sim_platform_read(words->platform, &request->platform));
    else
        TRY(sim_platform_create(2, &request->platform));
    struct sim_platform *platform = request->platform;
    if (words->rate)
        TRY(sim_parse_rate("--rate", words->rate, &platform->link_bytes_per_ns));
    if (words->latency)
        TRY(sim_parse_time("--latency", words->latency, &platform->link_latency_ns));
    if (words->ranks)
        platform->ranks_per_host = (int)words->ranks;
    TRY(read_servers(words->servers, request));
    int servers = request->servers == SIM_SERVERS_AS_MANY ? 0 : request->servers;
    return sim_platform_resize(platform, platform->host_count, servers);
}

static enum shoal_status put_together(const struct words *words, struct sim_request *request)
{
    TRY(make_platform(words, request));
    if (words->print || words->runs)
        return SHOAL_OK;
    request->in_flight = (int)words->in_flight;
    if (request->buffer_bytes < BUFFER_MIN)
        return base_error(SHOAL_ERR_ARGUMENT, "--buffer: it takes %d bytes or more", BUFFER_MIN);
    if (request->model_name && words->operation)
        return base_error(SHOAL_ERR_ARGUMENT, "--model is a step of training: '%s' is one too many",
                          words->operation);
    if (request->model_name)
        TRY(model_read(request->model_name, &request->model));
    else if (!words->operation)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "which operation? For example: shoal sim allreduce --hosts 2:64");
    if (words->operation)
        TRY(argument_operation(words->operation, &request->kind));
    char own[16];
    snprintf(own, sizeof(own), "%d", request->platform->host_count);
    const char *otherwise = words->platform ? own : HOSTS_DEFAULT;
    TRY(read_hosts(words->hosts ? words->hosts : otherwise, request));
    return read_algorithms(words->algorithms ? words->algorithms : "auto", request);
}

/* ---- output -------------------------------------------------------------------------------- */

static enum shoal_status write_svg(const struct sim_table *simulated, const char *path)
{
    FILE *file;
    TRY(svg_open(path, &file));
    sim_print_svg(simulated, file);
    return svg_close(file, path);
}

static enum shoal_status show(const struct sim_request *request)
{
    struct sim_table simulated;
    enum shoal_status status = sim_table_fill(request, &simulated);
    if (status == SHOAL_OK && request->plot_path)
        status = write_svg(&simulated, request->plot_path);
    if (status == SHOAL_OK && request->json)
        sim_print_json(&simulated, stdout);
    else if (status == SHOAL_OK)
        sim_print_text(&simulated, stdout);
    sim_table_release(&simulated);
    return status;
}

int cmd_sim(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "training") == 0)
        return cmd_sim_training(argc - 1, argv + 1);
    struct sim_request request = {.bytes = BYTES_DEFAULT,
                                  .dtype = SHOAL_F32,
                                  .compute_ns = 200e6,
                                  .buffer_bytes = UINT64_C(4) << 20};
    struct words words = {.request = &request, .in_flight = 2};
    enum shoal_status status = take_arguments(argc, argv, &words);
    if (status == SHOAL_OK && words.help) {
        usage();
        return 0;
    }
    if (status == SHOAL_OK)
        status = put_together(&words, &request);
    if (status == SHOAL_OK && words.print)
        sim_platform_print(request.platform, stdout);
    else if (status == SHOAL_OK && words.runs)
        status = sim_calibrate(request.platform, words.runs, words.fits);
    else if (status == SHOAL_OK)
        status = show(&request);
    base_free(request.hosts);
    model_release(&request.model);
    sim_platform_free(request.platform);
    return arguments_exit("sim", status);
}
