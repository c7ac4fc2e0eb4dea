/* SPDX-License-Identifier: Apache-2.0 */
/* plan_model.c: `shoal plan-model`: cuts a model over devices, and shows what each has to do. */
#include "plan_model.h"

#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "sim/platform.h"

#define DEVICES_MAX      1024
#define MICROBATCHES_MAX 4096
#define COPIES_MAX       64
#define RANKS_MAX        4096
#define BATCH_MAX        (1 << 20)
#define HOST_RANKS       8

int cmd_plan_model(int argc, char **argv);

enum {
    MODEL_DEVICES,
    MODEL_WEIGHT,
    MODEL_LIMIT,
    MODEL_COPIES,
    MODEL_MICROBATCHES,
    MODEL_DEFAULT_DEVICE,
    MODEL_PIPELINE,
    MODEL_CHUNKS,
    MODEL_ACTIVE,
    MODEL_TIMELINE,
    MODEL_SUGGEST,
    MODEL_HOST_RANKS,
    MODEL_BATCH,
    MODEL_RATE,
    MODEL_LATENCY,
    MODEL_BLOCKING,
    MODEL_HOST_RATE,
    MODEL_TREE,
    MODEL_JSON,
    MODEL_HELP,
    MODEL_COUNT
};

static const struct argument table[MODEL_COUNT] = {
    [MODEL_DEVICES] = {"devices", 'd', "N", "number of devices (default 2)"},
    [MODEL_WEIGHT] = {"memory-weight", 'w', "SHARE",
                      "0 to 1: what counts is so much memory, the rest time\n"
                      "(default 0.8)"},
    [MODEL_LIMIT] = {"memory-limit", 'l', "SIZE", "memory of each device (default: no limit)"},
    [MODEL_COPIES] = {"parameter-copies", 0, "N",
                      "times that memory holds the parameters: with gradients\n"
                      "and Adam's state in fp32 4 (default 4)"},
    [MODEL_MICROBATCHES] = {"microbatches", 'm', "N",
                            "of a step (default: four times the devices); device i of\n"
                            "n keeps the activations of at most n - i of them"},
    [MODEL_DEFAULT_DEVICE] = {"default-device", 0, "DEVICE",
                              "only what the model's file places is placed, and the rest\n"
                              "goes to this device"},
    [MODEL_PIPELINE] = {"pipeline", 'p', "KIND",
                        "simple, interleaved, 1f1b, interleaved-1f1b, zero-bubble or\n"
                        "zero-bubble-v (default: all side by side)"},
    [MODEL_CHUNKS] = {"chunks", 0, "V", "on each device, of interleaved-1f1b (default 2)"},
    [MODEL_ACTIVE] = {"active-microbatches", 0, "N",
                      "whose activations are kept at most (default: the schedule's own)"},
    [MODEL_TIMELINE] = {"timeline", 0, "FILE.svg", "draw what each device does when"},
    [MODEL_SUGGEST] = {"suggest", 0, "RANKS",
                       "propose layouts D x P x T of so many ranks: copies, stages and\n"
                       "slices of layers"},
    [MODEL_HOST_RANKS] = {"host-ranks", 0, "N", "of them on each host (default: 8, or all)"},
    [MODEL_BATCH] = {"batch", 0, "N", "microbatches in a step of all copies (default: 4 per rank)"},
    [MODEL_RATE] = {"rate", 0, "RATE", "of a host's network, each way (default 100gbit)"},
    [MODEL_LATENCY] = {"latency", 0, "TIME", "of the network, one way (default 20us)"},
    [MODEL_BLOCKING] = {"blocking-transfers", 0, NULL,
                        "devices do nothing else while they send to the next one"},
    [MODEL_HOST_RATE] = {"host-rate", 0, "RATE", "between ranks of a host (default 50GB/s)"},
    [MODEL_TREE] = {"tree", 't', NULL, "show the modules of each device"},
    [MODEL_JSON] = {"json", 0, NULL, "as one JSON object"},
    [MODEL_HELP] = {"help", 'h', NULL, "this text"},
};

struct request {
    const char *name;
    long devices, copies, microbatches, default_device; /* 0, -1: not given */
    double memory_weight;
    uint64_t memory_limit;
    struct pipeline_request pipeline;
    const char *timeline;
    long ranks, host_ranks, batch; /* 0: not given */
    struct plan_model_world world;
    bool tree, json, help;
};

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: shoal plan-model MODEL [OPTION...]\n"
        "       shoal plan-model --stages P [OPTION...]   (--stages P --help says more)\n\n"
        "Cuts a model over devices, as model parallel training does, and shows what each\n"
        "device has to do. Runs nothing.\n\n"
        "MODEL is bert-large, gpt-2, gpt-10b, gpt-30b, gpt-60b, gpt-175b, resnet-50, t5-large, or\n"
        "a file (with a slash).\n\n");
    arguments_help(table, MODEL_COUNT, out);
    fprintf(out, "\nFor example: shoal plan-model gpt-2 --devices 4 --tree\n");
}

/* ---- arguments ----------------------------------------------------------------------------- */

static enum shoal_status parse_weight(const char *text, double *out)
{
    char *end = NULL;
    double weight = strtod(text, &end);
    if (end == text || *end != '\0' || !(weight >= 0 && weight <= 1))
        return base_error(SHOAL_ERR_ARGUMENT, "--memory-weight %s: it takes a number from 0 to 1",
                          text);
    *out = weight;
    return SHOAL_OK;
}

static enum shoal_status parse_count(const char *name, const char *text, long maximum, int *out)
{
    long number;
    TRY(argument_number(name, text, 1, maximum, &number));
    *out = (int)number;
    return SHOAL_OK;
}

static enum shoal_status take_argument(void *user, int id, const char *value)
{
    struct request *request = user;
    switch (id) {
    case MODEL_DEVICES:
        return argument_number("--devices", value, 1, DEVICES_MAX, &request->devices);
    case MODEL_WEIGHT: return parse_weight(value, &request->memory_weight);
    case MODEL_LIMIT: return argument_bytes("--memory-limit", value, &request->memory_limit);
    case MODEL_COPIES:
        return argument_number("--parameter-copies", value, 1, COPIES_MAX, &request->copies);
    case MODEL_MICROBATCHES:
        return argument_number("--microbatches", value, 1, MICROBATCHES_MAX,
                               &request->microbatches);
    case MODEL_DEFAULT_DEVICE:
        return argument_number("--default-device", value, 0, DEVICES_MAX - 1,
                               &request->default_device);
    case MODEL_PIPELINE: return pipeline_kind_parse(value, &request->pipeline.kind);
    case MODEL_CHUNKS:
        return parse_count("--chunks", value, PIPELINE_CHUNKS_MOST,
                           &request->pipeline.stage_chunk_count);
    case MODEL_ACTIVE:
        return parse_count("--active-microbatches", value, MICROBATCHES_MAX,
                           &request->pipeline.active_microbatches);
    case MODEL_TIMELINE: request->timeline = value; return SHOAL_OK;
    case MODEL_SUGGEST: return argument_number("--suggest", value, 1, RANKS_MAX, &request->ranks);
    case MODEL_HOST_RANKS:
        return argument_number("--host-ranks", value, 1, RANKS_MAX, &request->host_ranks);
    case MODEL_BATCH: return argument_number("--batch", value, 1, BATCH_MAX, &request->batch);
    case MODEL_RATE: return sim_parse_rate("--rate", value, &request->world.network_bytes_per_ns);
    case MODEL_LATENCY:
        return sim_parse_time("--latency", value, &request->world.network_latency_ns);
    case MODEL_BLOCKING: request->pipeline.transfers_block = true; return SHOAL_OK;
    case MODEL_HOST_RATE:
        return sim_parse_rate("--host-rate", value, &request->world.host_bytes_per_ns);
    case MODEL_TREE: request->tree = true; return SHOAL_OK;
    case MODEL_JSON: request->json = true; return SHOAL_OK;
    default: request->help = true; return SHOAL_OK;
    }
}

static enum shoal_status take_arguments(int argc, char **argv, struct request *request)
{
    struct arguments arguments = {.command = "plan-model",
                                  .table = table,
                                  .count = MODEL_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take_argument,
                                  .user = request,
                                  .at = 1};
    for (;;) {
        TRY(arguments_take(&arguments));
        if (arguments.at >= argc)
            break;
        if (request->name)
            return base_error(SHOAL_ERR_ARGUMENT, "'%s': there is a model already",
                              argv[arguments.at]);
        request->name = argv[arguments.at++];
    }
    if (!request->name && !request->help)
        return base_error(SHOAL_ERR_ARGUMENT, "which model? (see shoal help plan-model)");
    return SHOAL_OK;
}

/* ---- planning ------------------------------------------------------------------------------ */

/* Each device's limit, and how many microbatches it keeps: in a pipeline that goes back as soon as
 * it can (1F1B), as many as there are devices from it to the end. */
static void set_memory(const struct request *request, uint64_t *limits, int *in_flight)
{
    for (long device = 0; device < request->devices; device++) {
        long depth = request->devices - device;
        bool fewer = request->microbatches > 0 && request->microbatches < depth;
        limits[device] = request->memory_limit;
        in_flight[device] = (int)(fewer ? request->microbatches : depth);
    }
}

static enum shoal_status cut(const struct request *request, uint64_t *limits, int *in_flight,
                             struct plan_model *model)
{
    struct shoal_plan_options *options = &model->options;
    set_memory(request, limits, in_flight);
    *options = (struct shoal_plan_options)SHOAL_PLAN_OPTIONS_INIT;
    options->modules = model->tree.modules;
    options->module_count = model->tree.module_count;
    options->device_count = (int)request->devices;
    options->memory_weight = request->memory_weight;
    options->auto_partition = request->default_device < 0;
    options->default_device = (int)request->default_device;
    options->memory_limits = limits;
    options->parameter_copies = (int)request->copies;
    options->in_flight = in_flight;
    TRY(shoal_plan_create(options, &model->plan));
    TRY(BASE_NEW_ARRAY(&model->loads, request->devices, "a plan's loads"));
    model->report = (struct shoal_plan_report)SHOAL_PLAN_REPORT_INIT;
    TRY(shoal_plan_report(model->plan, &model->report));
    for (int device = 0; device < options->device_count; device++) {
        model->loads[device] = (struct shoal_plan_load)SHOAL_PLAN_LOAD_INIT;
        TRY(shoal_plan_load(model->plan, device, &model->loads[device]));
    }
    return SHOAL_OK;
}

/* The world as asked, or as most have it. */
static struct plan_model_world world_of(const struct request *request)
{
    struct plan_model_world world = request->world;
    long usual = request->ranks % HOST_RANKS == 0 ? HOST_RANKS : request->ranks;
    world.rank_count = (int)request->ranks;
    world.host_ranks = (int)(request->host_ranks > 0 ? request->host_ranks : usual);
    world.batch = (int)(request->batch > 0 ? request->batch : 4 * request->ranks);
    return world;
}

static enum shoal_status print(const struct request *request, struct plan_model *model)
{
    struct plan_model_world world = world_of(request);
    struct pipeline_request pipeline = request->pipeline;
    pipeline.microbatch_count = (int)request->microbatches;
    pipeline.bytes_per_ns = request->world.network_bytes_per_ns;
    pipeline.latency_ns = (int64_t)request->world.network_latency_ns;
    if (request->json)
        printf("{\n");
    if (request->json)
        plan_model_print_json(model, stdout);
    else
        plan_model_print_text(model, stdout);
    enum shoal_status status =
        plan_model_pipelines(model, &pipeline, request->timeline, request->json);
    if (status == SHOAL_OK && world.rank_count > 0)
        status = plan_model_suggest(model, &world, request->json, stdout);
    if (request->json)
        printf("\n}\n");
    return status;
}

static enum shoal_status show(const struct request *request)
{
    struct plan_model model = {.memory_limit = request->memory_limit, .show_tree = request->tree};
    uint64_t *limits = NULL;
    int *in_flight = NULL;
    enum shoal_status status = BASE_NEW_ARRAY(&limits, request->devices, "limits of memory");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&in_flight, request->devices, "microbatches in flight");
    if (status == SHOAL_OK)
        status = model_tree_read(request->name, &model.tree);
    if (status == SHOAL_OK)
        status = cut(request, limits, in_flight, &model);
    if (status == SHOAL_OK)
        status = print(request, &model);
    base_free(model.loads);
    shoal_plan_free(model.plan);
    model_tree_release(&model.tree);
    base_free(in_flight);
    base_free(limits);
    return status;
}

/* With --stages there is no model, and other arguments. */
static bool has_stages(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--stages", strlen("--stages")) == 0 || strncmp(argv[i], "-s", 2) == 0)
            return true;
    return false;
}

int cmd_plan_model(int argc, char **argv)
{
    if (has_stages(argc, argv))
        return plan_model_stages(argc, argv);
    struct request request = {.devices = 2,
                              .copies = 4,
                              .memory_weight = 0.8,
                              .default_device = -1,
                              .pipeline = {.kind = -1},
                              .world = {.host_bytes_per_ns = 50,
                                        .network_bytes_per_ns = 12.5,
                                        .network_latency_ns = 20e3}};
    enum shoal_status status = take_arguments(argc, argv, &request);
    if (status == SHOAL_OK && request.help) {
        usage(stdout);
        return 0;
    }
    if (status == SHOAL_OK)
        status = show(&request);
    return arguments_exit("plan-model", status);
}
