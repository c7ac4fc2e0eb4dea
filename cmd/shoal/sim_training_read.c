/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_training_read.c: a training's file. It has statements of its own, one for each row of the
 * table below, and those of a platform file. Own ones are taken out, and the platform's reader gets
 * the rest, with the lines where they were.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "model_table.h"
#include "sim_training.h"
#include "trainings.h"

#define LINE_BYTES       512
#define WORDS_MAX        4
#define BLANKS           " \t\r\n"
#define DEGREE_MAX       4096
#define MICROBATCHES_MAX 65536
#define SIZE_MAX_OF      65536
#define COPIES_MAX       64
#define SUMS_MAX         64
#define BUFFER_MIN       65536

enum key {
    KEY_MODEL,
    KEY_SAMPLES,
    KEY_PEAK,
    KEY_ACHIEVED,
    KEY_MEMORY,
    KEY_WORKING,
    KEY_LAYOUT,
    KEY_PLACEMENT,
    KEY_PIPELINE,
    KEY_CHUNKS,
    KEY_ACTIVE,
    KEY_MICROBATCHES,
    KEY_SIZE,
    KEY_SUMS,
    KEY_STATE,
    KEY_ACTIVATIONS,
    KEY_BUFFER,
    KEY_PUBLISHED,
    KEY_COUNT
};

static const struct {
    const char *name, *form;
    int words;
} keys[KEY_COUNT] = {
    [KEY_MODEL] = {"model", "model NAME", 2},
    [KEY_SAMPLES] = {"samples", "samples NUMBER", 2},
    [KEY_PEAK] = {"peak", "peak NUMBERtflops", 2},
    [KEY_ACHIEVED] = {"achieved", "achieved SHARE", 2},
    [KEY_MEMORY] = {"memory", "memory BYTES", 2},
    [KEY_WORKING] = {"working", "working BYTES", 2},
    [KEY_LAYOUT] = {"layout", "layout COPIES STAGES SLICES", 4},
    [KEY_PLACEMENT] = {"placement", "placement NAME", 2},
    [KEY_PIPELINE] = {"pipeline", "pipeline KIND", 2},
    [KEY_CHUNKS] = {"chunks", "chunks NUMBER", 2},
    [KEY_ACTIVE] = {"active", "active NUMBER", 2},
    [KEY_MICROBATCHES] = {"microbatches", "microbatches NUMBER", 2},
    [KEY_SIZE] = {"size", "size NUMBER", 2},
    [KEY_SUMS] = {"sums", "sums FORWARD BACKWARD", 3},
    [KEY_STATE] = {"state", "state COPIES SHARDED", 3},
    [KEY_ACTIVATIONS] = {"activations", "activations sliced, or activations whole", 2},
    [KEY_BUFFER] = {"buffer", "buffer BYTES", 2},
    [KEY_PUBLISHED] = {"published", "published NUMBER", 2},
};

struct reader {
    const char *path;
    struct training *training;
    int line;
    int seen[KEY_COUNT]; /* line of each keyword; 0: not yet */
};

/* ---- values -------------------------------------------------------------------------------- */

static enum shoal_status parse_int(const char *what, const char *text, long minimum, long maximum,
                                   int *out)
{
    long number;
    TRY(argument_number(what, text, minimum, maximum, &number));
    *out = (int)number;
    return SHOAL_OK;
}

static enum shoal_status parse_positive(const char *what, const char *text, const char *unit,
                                        double *out)
{
    char *end = NULL;
    double number = strtod(text, &end);
    if (end == text || strcmp(end, unit) != 0 || !(number > 0 && number < 1e9))
        return base_error(SHOAL_ERR_ARGUMENT, "%s %s: it takes a number above 0%s%s", what, text,
                          *unit ? " with " : "", unit);
    *out = number;
    return SHOAL_OK;
}

enum shoal_status training_parse_share(const char *what, const char *text, double *out)
{
    char *end = NULL;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !(number > 0 && number <= 1))
        return base_error(SHOAL_ERR_ARGUMENT, "%s %s: it takes a number above 0, up to 1", what,
                          text);
    *out = number;
    return SHOAL_OK;
}

enum shoal_status training_set_layout(struct training *training, const char *const words[3])
{
    int *degrees[] = {&training->data, &training->pipeline, &training->tensor};
    for (int i = 0; i < 3; i++)
        TRY(parse_int("layout", words[i], 1, DEGREE_MAX, degrees[i]));
    return SHOAL_OK;
}

static enum shoal_status set_placement(struct training *training, const char *name)
{
    snprintf(training->placement, sizeof(training->placement), "%s", name);
    return strlen(name) < sizeof(training->placement)
               ? SHOAL_OK
               : base_error(SHOAL_ERR_ARGUMENT, "placement %s: there is none of this name", name);
}

static enum shoal_status set_activations(struct training *training, const char *word)
{
    training->whole_activations = strcmp(word, "whole") == 0;
    if (training->whole_activations || strcmp(word, "sliced") == 0)
        return SHOAL_OK;
    return base_error(SHOAL_ERR_FORMAT, "expected: %s", keys[KEY_ACTIVATIONS].form);
}

static enum shoal_status set_buffer(struct training *training, const char *word)
{
    TRY(argument_bytes("buffer", word, &training->buffer_bytes));
    if (training->buffer_bytes >= BUFFER_MIN)
        return SHOAL_OK;
    return base_error(SHOAL_ERR_ARGUMENT, "buffer %s: it takes %d bytes or more", word, BUFFER_MIN);
}

static enum shoal_status set_peak(struct training *training, const char *word)
{
    double tera = 0;
    TRY(parse_positive("peak", word, "tflops", &tera));
    training->peak_per_ns = tera * 1e3;
    return SHOAL_OK;
}

static enum shoal_status set_two(const char *what, char *const *words, int least, long maximum,
                                 int *first, int *second)
{
    TRY(parse_int(what, words[1], least, maximum, first));
    return parse_int(what, words[2], 0, maximum, second);
}

static enum shoal_status set(struct training *training, enum key key, char *const *words)
{
    const char *value = words[1];
    switch (key) {
    case KEY_MODEL: return model_tree_read(value, &training->tree);
    case KEY_SAMPLES: return parse_positive("samples", value, "", &training->samples);
    case KEY_PEAK: return set_peak(training, value);
    case KEY_ACHIEVED: return training_parse_share("achieved", value, &training->achieved);
    case KEY_MEMORY: return argument_bytes("memory", value, &training->memory_bytes);
    case KEY_WORKING: return argument_bytes("working", value, &training->working_bytes);
    case KEY_LAYOUT: return training_set_layout(training, (const char *const *)words + 1);
    case KEY_PLACEMENT: return set_placement(training, value);
    case KEY_PIPELINE: return pipeline_kind_parse(value, &training->kind);
    case KEY_CHUNKS:
        return parse_int("chunks", value, 1, PIPELINE_CHUNKS_MOST, &training->stage_chunks);
    case KEY_ACTIVE: return parse_int("active", value, 1, MICROBATCHES_MAX, &training->active);
    case KEY_MICROBATCHES:
        return parse_int("microbatches", value, 1, MICROBATCHES_MAX, &training->microbatches);
    case KEY_SIZE: return parse_int("size", value, 1, SIZE_MAX_OF, &training->size);
    case KEY_SUMS:
        return set_two("sums", words, 0, SUMS_MAX, &training->forward_sums,
                       &training->backward_sums);
    case KEY_STATE:
        return set_two("state", words, 1, COPIES_MAX, &training->state_copies,
                       &training->sharded_copies);
    case KEY_ACTIVATIONS: return set_activations(training, value);
    case KEY_BUFFER: return set_buffer(training, value);
    default: return parse_positive("published", value, "", &training->published);
    }
}

/* ---- lines --------------------------------------------------------------------------------- */

static enum shoal_status unknown_word(const char *word)
{
    const char *names[KEY_COUNT];
    for (int i = 0; i < KEY_COUNT; i++)
        names[i] = keys[i].name;
    const char *nearest = base_nearest(word, names, KEY_COUNT);
    if (nearest)
        return base_error(SHOAL_ERR_FORMAT, "there is no '%s'; did you mean '%s'?", word, nearest);
    return base_error(SHOAL_ERR_FORMAT,
                      "there is no '%s': expected a statement of a training (model, layout, peak, "
                      "...) or of a platform (hosts, link, ...)",
                      word);
}

/* Takes the line's statement if it is a training's own. */
static enum shoal_status read_line(struct reader *reader, char *line, bool *own)
{
    char *words[WORDS_MAX + 1] = {NULL}, *rest = NULL;
    int count = 0, key = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, BLANKS, &rest); word && count <= WORDS_MAX;
         word = strtok_r(NULL, BLANKS, &rest))
        words[count++] = word;
    if (count == 0)
        return SHOAL_OK;
    while (key < KEY_COUNT && strcmp(keys[key].name, words[0]) != 0)
        key++;
    if (key == KEY_COUNT)
        return sim_platform_has_keyword(words[0]) ? SHOAL_OK : unknown_word(words[0]);
    *own = true;
    if (count != keys[key].words)
        return base_error(SHOAL_ERR_FORMAT, "expected: %s", keys[key].form);
    if (reader->seen[key])
        return base_error(SHOAL_ERR_FORMAT, "'%s' stands already in line %d", keys[key].name,
                          reader->seen[key]);
    reader->seen[key] = reader->line;
    return set(reader->training, (enum key)key, words);
}

/* Own statements become blanks in the text. */
static enum shoal_status read_lines(struct reader *reader, char *text)
{
    for (char *at = text; *at; at += *at == '\n') {
        char line[LINE_BYTES];
        size_t bytes = strcspn(at, "\n");
        bool own = false;
        reader->line++;
        snprintf(line, sizeof(line), "%.*s", (int)(bytes < sizeof(line) ? bytes : 0), at);
        enum shoal_status status = read_line(reader, line, &own);
        if (status != SHOAL_OK)
            return base_error_context(status == SHOAL_ERR_ARGUMENT ? SHOAL_ERR_FORMAT : status,
                                      "%s:%d", reader->path, reader->line);
        if (own)
            memset(at, ' ', bytes);
        at += bytes;
    }
    return SHOAL_OK;
}

static enum shoal_status check_complete(const struct reader *reader)
{
    static const enum key needed[] = {KEY_MODEL, KEY_PEAK, KEY_LAYOUT};
    for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
        if (!reader->seen[needed[i]])
            return base_error(SHOAL_ERR_FORMAT, "%s: there is no '%s' in it; expected: %s",
                              reader->path, keys[needed[i]].name, keys[needed[i]].form);
    return SHOAL_OK;
}

enum shoal_status training_read(const char *name, struct training *out)
{
    char *text = NULL;
    struct reader reader = {.path = name, .training = out};
    *out = (struct training){.samples = 1,
                             .achieved = 1,
                             .placement = "cluster",
                             .kind = SHOAL_PIPELINE_1F1B,
                             .stage_chunks = 1,
                             .microbatches = 1,
                             .size = 1,
                             .forward_sums = 2,
                             .backward_sums = 2,
                             .state_copies = 4,
                             .buffer_bytes = UINT64_C(25) << 20};
    TRY(model_table_read(name, trainings, TRAININGS_COUNT, &text));
    enum shoal_status status = read_lines(&reader, text);
    if (status == SHOAL_OK)
        status = check_complete(&reader);
    if (status == SHOAL_OK)
        status = sim_platform_parse(name, text, &out->platform);
    base_free(text);
    return status;
}

enum shoal_status training_check(const struct training *training)
{
    const struct sim_platform *platform = training->platform;
    long ranks = (long)training->data * training->pipeline * training->tensor;
    long accelerators = (long)platform->host_count * platform->accelerators;
    if (ranks != accelerators)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "%d copies x %d stages x %d slices are %ld accelerators, but %d hosts of "
                          "%d are %ld",
                          training->data, training->pipeline, training->tensor, ranks,
                          platform->host_count, platform->accelerators, accelerators);
    if (!sim_is_uniform(platform) || platform->server_count || platform->ranks_per_host > 1)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "a training is simulated on equal links and one switch: leave out "
                          "switch, cores, servers, ranks and link HOST");
    if (training->stage_chunks > 1 && training->kind != SHOAL_PIPELINE_INTERLEAVED_1F1B)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "%d chunks on a stage: only interleaved-1f1b has several",
                          training->stage_chunks);
    return SHOAL_OK;
}

void training_release(struct training *training)
{
    model_tree_release(&training->tree);
    sim_platform_free(training->platform);
}
