/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model_stages.c: `shoal plan-model --stages P`: pipelines over stages whose times are given
 * by hand, to see schedules before there is a model.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/status.h"
#include "plan_model_pipeline.h"
#include "scaled_text.h"
#include "sim/sim.h"

#define STAGES_MAX 1024
#define MS_MAX     100000.0 /* of an operation */

enum {
    STAGES_STAGES,
    STAGES_MICROBATCHES,
    STAGES_PIPELINE,
    STAGES_CHUNKS,
    STAGES_ACTIVE,
    STAGES_FORWARD,
    STAGES_BACKWARD,
    STAGES_WEIGHT,
    STAGES_ACTIVATION,
    STAGES_OUTPUT,
    STAGES_RATE,
    STAGES_LATENCY,
    STAGES_BLOCKING,
    STAGES_TIMELINE,
    STAGES_JSON,
    STAGES_HELP,
    STAGES_COUNT
};

static const struct argument table[STAGES_COUNT] = {
    [STAGES_STAGES] = {"stages", 's', "P", "number of stages"},
    [STAGES_MICROBATCHES] = {"microbatches", 'm', "M",
                             "in a step (default: four times the stages)"},
    [STAGES_PIPELINE] = {"pipeline", 'p', "KIND",
                         "simple, interleaved, 1f1b, interleaved-1f1b, zero-bubble or\n"
                         "zero-bubble-v (default: all side by side)"},
    [STAGES_CHUNKS] = {"chunks", 0, "V", "on each stage, of interleaved-1f1b (default 2)"},
    [STAGES_ACTIVE] = {"active-microbatches", 0, "N",
                       "whose activations are kept at most (default: the schedule's own)"},
    [STAGES_FORWARD] = {"forward-ms", 0, "MS[,MS...]",
                        "of a microbatch on a stage, one for all or one for each (default 10)"},
    [STAGES_BACKWARD] = {"backward-ms", 0, "MS[,MS...]",
                         "likewise, both gradients together (default: twice the forward)"},
    [STAGES_WEIGHT] = {"weight-share", 0, "F",
                       "of a backward that makes the weights' gradient (default 0.5)"},
    [STAGES_ACTIVATION] = {"activation", 0, "SIZE",
                           "what a stage keeps of a microbatch (default: not counted)"},
    [STAGES_OUTPUT] = {"output", 0, "SIZE", "of a microbatch, from chunk to chunk (default: none)"},
    [STAGES_RATE] = {"rate", 0, "RATE", "of links between stages, each way (default: no limit)"},
    [STAGES_LATENCY] = {"latency", 0, "TIME", "of these, one way (default 0)"},
    [STAGES_BLOCKING] = {"blocking-transfers", 0, NULL,
                         "stages do nothing else while they send to the next one"},
    [STAGES_TIMELINE] = {"timeline", 0, "FILE.svg", "draw what each stage does when"},
    [STAGES_JSON] = {"json", 'j', NULL, "as one JSON object"},
    [STAGES_HELP] = {"help", 'h', NULL, "this text"},
};

struct stages {
    struct pipeline_request request;
    const char *forward_text, *backward_text, *timeline;
    double forward_ms[STAGES_MAX], backward_ms[STAGES_MAX];
    double weight_share;
    uint64_t activation_bytes, output_bytes;
    bool json, help;
};

static void usage(FILE *out)
{
    fprintf(out, "usage: shoal plan-model --stages P [OPTION...]\n\n"
                 "Simulates the schedules of a pipeline: how long a step takes, how long stages\n"
                 "stand still (the bubble), and how many microbatches' activations they keep.\n\n");
    arguments_help(table, STAGES_COUNT, out);
    fprintf(out,
            "\nThe period is the distance of steps that follow each other without waiting for\n"
            "all stages. For example:\n"
            "  shoal plan-model --stages 4 --microbatches 8\n"
            "  shoal plan-model --stages 4 --microbatches 8 --pipeline 1f1b --timeline a.svg\n");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static enum shoal_status parse_share(const char *text, double *out)
{
    char *end;
    double share = strtod(text, &end);
    if (end == text || *end != '\0' || !(share >= 0 && share <= 1))
        return base_error(SHOAL_ERR_ARGUMENT, "--weight-share %s: it takes a number from 0 to 1",
                          text);
    *out = share;
    return SHOAL_OK;
}

/* "10" for all stages, or "10,12.5,9" for each. */
static enum shoal_status parse_times(const char *name, const char *text, int stage_count,
                                     double *out)
{
    int count = 0;
    for (const char *at = text;; at++) {
        char *end;
        double ms = strtod(at, &end);
        if (end == at || (*end != ',' && *end != '\0') || !(ms >= 0 && ms <= MS_MAX))
            return base_error(
                SHOAL_ERR_ARGUMENT,
                "%s %s: it takes milliseconds from 0 to %g, with commas between those "
                "of several stages",
                name, text, MS_MAX);
        if (count == stage_count)
            return base_error(SHOAL_ERR_ARGUMENT, "%s %s: there are only %d stages", name, text,
                              stage_count);
        out[count++] = ms;
        at = end;
        if (*at == '\0')
            break;
    }
    if (count > 1 && count < stage_count)
        return base_error(SHOAL_ERR_ARGUMENT, "%s %s: %d stages need as many times, or one for all",
                          name, text, stage_count);
    for (; count < stage_count; count++)
        out[count] = out[0];
    return SHOAL_OK;
}

static enum shoal_status parse_number(const char *name, const char *text, long maximum, int *out)
{
    long number;
    TRY(argument_number(name, text, 1, maximum, &number));
    *out = (int)number;
    return SHOAL_OK;
}

static enum shoal_status parse_latency(const char *text, int64_t *out)
{
    double ns;
    TRY(sim_parse_time("--latency", text, &ns));
    if (ns > MS_MAX * 1e6)
        return base_error(SHOAL_ERR_ARGUMENT, "--latency %s: at most %g ms", text, MS_MAX);
    *out = (int64_t)ns;
    return SHOAL_OK;
}

static enum shoal_status take_argument(void *user, int id, const char *value)
{
    struct stages *stages = user;
    struct pipeline_request *request = &stages->request;
    switch (id) {
    case STAGES_STAGES: return parse_number("--stages", value, STAGES_MAX, &request->stage_count);
    case STAGES_MICROBATCHES:
        return parse_number("--microbatches", value, 65536, &request->microbatch_count);
    case STAGES_PIPELINE: return pipeline_kind_parse(value, &request->kind);
    case STAGES_CHUNKS:
        return parse_number("--chunks", value, PIPELINE_CHUNKS_MOST, &request->stage_chunk_count);
    case STAGES_ACTIVE:
        return parse_number("--active-microbatches", value, 65536, &request->active_microbatches);
    case STAGES_FORWARD: stages->forward_text = value; return SHOAL_OK;
    case STAGES_BACKWARD: stages->backward_text = value; return SHOAL_OK;
    case STAGES_WEIGHT: return parse_share(value, &stages->weight_share);
    case STAGES_ACTIVATION: return argument_bytes("--activation", value, &stages->activation_bytes);
    case STAGES_OUTPUT: return argument_bytes("--output", value, &stages->output_bytes);
    case STAGES_RATE: return sim_parse_rate("--rate", value, &request->bytes_per_ns);
    case STAGES_LATENCY: return parse_latency(value, &request->latency_ns);
    case STAGES_BLOCKING: request->transfers_block = true; return SHOAL_OK;
    case STAGES_TIMELINE: stages->timeline = value; return SHOAL_OK;
    case STAGES_JSON: stages->json = true; return SHOAL_OK;
    default: stages->help = true; return SHOAL_OK;
    }
}

static enum shoal_status check(struct stages *stages)
{
    struct pipeline_request *request = &stages->request;
    int count = request->stage_count;
    if (request->stage_chunk_count && request->kind >= 0 &&
        request->kind != SHOAL_PIPELINE_INTERLEAVED_1F1B)
        return base_error(SHOAL_ERR_ARGUMENT, "--chunks is for interleaved-1f1b: %s has its own",
                          shoal_pipeline_name((enum shoal_pipeline_kind)request->kind));
    if (request->microbatch_count == 0)
        request->microbatch_count = 4 * count;
    TRY(parse_times("--forward-ms", stages->forward_text, count, stages->forward_ms));
    if (stages->backward_text)
        return parse_times("--backward-ms", stages->backward_text, count, stages->backward_ms);
    for (int stage = 0; stage < count; stage++)
        stages->backward_ms[stage] = 2 * stages->forward_ms[stage];
    return SHOAL_OK;
}

static enum shoal_status take_arguments(int argc, char **argv, struct stages *stages)
{
    struct arguments arguments = {.command = "plan-model",
                                  .table = table,
                                  .count = STAGES_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take_argument,
                                  .user = stages,
                                  .at = 1};
    TRY(arguments_take(&arguments));
    if (arguments.at < argc)
        return base_error(SHOAL_ERR_ARGUMENT, "what is '%s'? With --stages there is no model",
                          argv[arguments.at]);
    return stages->help ? SHOAL_OK : check(stages);
}

/* ---- what is shown --------------------------------------------------------------------------- */

/* Equal shares of a stage's own. */
static enum shoal_status fill(void *user, struct pipeline_chunk *chunks, int chunk_count)
{
    const struct stages *stages = user;
    for (int i = 0; i < chunk_count; i++) {
        struct pipeline_chunk *chunk = &chunks[i];
        int share = chunk->stage_share;
        double backward_ns = stages->backward_ms[chunk->stage] * 1e6 / share;
        chunk->forward_ns = llround(stages->forward_ms[chunk->stage] * 1e6 / share);
        chunk->backward_weight_ns = llround(backward_ns * stages->weight_share);
        chunk->backward_input_ns = llround(backward_ns) - chunk->backward_weight_ns;
        chunk->activation_bytes = stages->activation_bytes / (uint64_t)share;
        chunk->output_bytes = stages->output_bytes;
    }
    return SHOAL_OK;
}

static void print_title(const struct stages *stages)
{
    const struct pipeline_request *request = &stages->request;
    printf("%d stage%s, %d microbatch%s of %s ms forward and %s ms backward on a stage\n",
           request->stage_count, request->stage_count > 1 ? "s" : "", request->microbatch_count,
           request->microbatch_count > 1 ? "es" : "", stages->forward_text,
           stages->backward_text ? stages->backward_text : "twice as many");
    if (stages->output_bytes && request->bytes_per_ns > 0)
        printf("%s from chunk to chunk, at %g Gbit/s\n",
               scaled_bytes_text((double)stages->output_bytes), request->bytes_per_ns * 8);
    printf("\n");
}

static enum shoal_status show(struct stages *stages)
{
    struct pipeline_table made;
    enum shoal_status status = pipeline_table_build(&stages->request, &made);
    if (status == SHOAL_OK && stages->timeline)
        status = pipeline_write_svg(&made, stages->timeline);
    if (status == SHOAL_OK && stages->json) {
        printf("{\n");
        pipeline_print_json(&made, stdout);
        printf("\n}\n");
    } else if (status == SHOAL_OK) {
        print_title(stages);
        pipeline_print_text(&made, stdout);
    }
    pipeline_table_release(&made);
    return status;
}

int plan_model_stages(int argc, char **argv)
{
    static struct stages stages;
    stages = (struct stages){.request = {.kind = -1, .fill = fill, .user = &stages},
                             .forward_text = "10",
                             .weight_share = 0.5};
    enum shoal_status status = take_arguments(argc, argv, &stages);
    if (status == SHOAL_OK && stages.help) {
        usage(stdout);
        return 0;
    }
    if (status == SHOAL_OK)
        status = show(&stages);
    return arguments_exit("plan-model", status);
}
