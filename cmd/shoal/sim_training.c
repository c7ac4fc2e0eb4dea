/* SPDX-License-Identifier: Apache-2.0 */
/* sim_training.c: `shoal sim training`: a step of a large model's training in copies, stages and
 * slices, on hosts that we don't have. */
#include "sim_training.h"

#include <string.h>

#include "arguments.h"
#include "base/status.h"

#define MICROBATCHES_MAX 65536
#define LAYOUT_BYTES     64

enum {
    TRAINING_HOSTS,
    TRAINING_LAYOUT,
    TRAINING_MICROBATCHES,
    TRAINING_PIPELINE,
    TRAINING_ACHIEVED,
    TRAINING_TIMELINE,
    TRAINING_JSON,
    TRAINING_HELP,
    TRAINING_COUNT
};

static const struct argument table[TRAINING_COUNT] = {
    [TRAINING_HOSTS] = {"hosts", 'H', "N", "instead of the training's"},
    [TRAINING_LAYOUT] = {"layout", 'l', "D,P,T",
                         "copies, stages and slices, instead of the training's"},
    [TRAINING_MICROBATCHES] = {"microbatches", 'm', "N",
                               "of a copy, in a step, instead of the training's"},
    [TRAINING_PIPELINE] = {"pipeline", 'p', "KIND",
                           "simple, interleaved, 1f1b, interleaved-1f1b, zero-bubble or\n"
                           "zero-bubble-v, instead of the training's"},
    [TRAINING_ACHIEVED] = {"achieved", 0, "SHARE",
                           "of an accelerator's peak, instead of the training's"},
    [TRAINING_TIMELINE] = {"timeline", 0, "FILE.svg", "draw what each stage does when"},
    [TRAINING_JSON] = {"json", 'j', NULL, "as one JSON object"},
    [TRAINING_HELP] = {"help", 'h', NULL, "this text"},
};

/* What the arguments say; NULL or 0: nothing. */
struct words {
    const char *name, *layout, *pipeline, *achieved, *timeline;
    long hosts, microbatches;
    bool json, help;
};

static void usage(void)
{
    printf("usage: shoal sim training NAME [OPTION...]\n\n"
           "Simulates a step of a large model's training: a pipeline of stages, sums within\n"
           "layers that are sliced, and sums of gradients over the copies of the model, by our\n"
           "schedules on the training's hosts and links. Says samples per second, what costs\n"
           "most, and memory.\n\n"
           "NAME is gpt-175b, gpt-175b-selene, gpt-10b, gpt-30b, gpt-60b, or a file (with a\n"
           "slash; docs/sim.md says how to write it).\n\n");
    arguments_help(table, TRAINING_COUNT, stdout);
    printf("\nFor example:\n"
           "  shoal sim training gpt-175b\n"
           "  shoal sim training gpt-175b --layout 10,12,8 --microbatches 160 --json\n"
           "  shoal sim training ./mine.txt --timeline step.svg\n");
}

static enum shoal_status take_argument(void *user, int id, const char *value)
{
    struct words *words = user;
    switch (id) {
    case TRAINING_HOSTS: return argument_number("--hosts", value, 1, SIM_HOSTS_MAX, &words->hosts);
    case TRAINING_LAYOUT: words->layout = value; break;
    case TRAINING_MICROBATCHES:
        return argument_number("--microbatches", value, 1, MICROBATCHES_MAX, &words->microbatches);
    case TRAINING_PIPELINE: words->pipeline = value; break;
    case TRAINING_ACHIEVED: words->achieved = value; break;
    case TRAINING_TIMELINE: words->timeline = value; break;
    case TRAINING_JSON: words->json = true; break;
    default: words->help = true; break;
    }
    return SHOAL_OK;
}

static enum shoal_status take_arguments(int argc, char **argv, struct words *words)
{
    struct arguments arguments = {.command = "sim training",
                                  .table = table,
                                  .count = TRAINING_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take_argument,
                                  .user = words,
                                  .at = 1};
    TRY(arguments_take_with_operation(&arguments, &words->name));
    if (!words->name && !words->help)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "which training? For example: shoal sim training gpt-175b");
    return SHOAL_OK;
}

static enum shoal_status take_layout(const char *text, struct training *training)
{
    char room[LAYOUT_BYTES], *rest = NULL;
    const char *words[3] = {NULL};
    int count = 0;
    snprintf(room, sizeof(room), "%s", strlen(text) < sizeof(room) ? text : "");
    for (char *word = strtok_r(room, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (count < 3)
            words[count] = word;
        count++;
    }
    if (count != 3)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "--layout %s: it takes copies, stages and slices: 20,6,8", text);
    return training_set_layout(training, words);
}

/* The training as its file says, but for what the arguments say. */
static enum shoal_status put_together(const struct words *words, struct training *training)
{
    TRY(training_read(words->name, training));
    if (words->hosts)
        TRY(sim_platform_resize(training->platform, (int)words->hosts, 0));
    if (words->layout)
        TRY(take_layout(words->layout, training));
    if (words->microbatches)
        training->microbatches = (int)words->microbatches;
    if (words->pipeline)
        TRY(pipeline_kind_parse(words->pipeline, &training->kind));
    if (words->pipeline && training->kind == SHOAL_PIPELINE_INTERLEAVED_1F1B &&
        training->stage_chunks == 1)
        training->stage_chunks = 2;
    if (words->achieved)
        TRY(training_parse_share("--achieved", words->achieved, &training->achieved));
    return training_check(training);
}

static enum shoal_status show(const struct words *words, const struct training *training)
{
    struct training_step step;
    enum shoal_status status = training_simulate(training, &step);
    if (status == SHOAL_OK && words->timeline)
        status = pipeline_write_svg(&step.pipeline, words->timeline);
    if (status == SHOAL_OK && words->json)
        training_print_json(training, &step, stdout);
    else if (status == SHOAL_OK)
        training_print_text(training, &step, stdout);
    training_step_release(&step);
    return status;
}

int cmd_sim_training(int argc, char **argv)
{
    struct words words = {0};
    struct training training = {0};
    enum shoal_status status = take_arguments(argc, argv, &words);
    if (status == SHOAL_OK && words.help) {
        usage();
        return 0;
    }
    if (status == SHOAL_OK)
        status = put_together(&words, &training);
    if (status == SHOAL_OK)
        status = show(&words, &training);
    training_release(&training);
    return arguments_exit("sim training", status);
}
