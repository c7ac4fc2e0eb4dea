/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.c: `shoal tune`: measures the thresholds of the same-host path on this machine and keeps
 * them where later runs find them (base/tuning.h).
 *
 * For each number of ranks it runs `shoal run` of `shoal tune-rank`, whose rank 0 prints one row;
 * the file is written after each, so that an interrupted run keeps what it has.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/options.h"
#include "base/status.h"
#include "base/tuning.h"
#include "base/wait.h"
#include "launch/lines.h"
#include "launch/process.h"
#include "own_program.h"

#define LINE_BYTES 512

int cmd_tune(int argc, char **argv);

enum {
    TUNE_RANKS,
    TUNE_SIZE_MS,
    TUNE_LARGEST,
    TUNE_DRY_RUN,
    TUNE_SHOW,
    TUNE_JSON,
    TUNE_HELP,
    TUNE_COUNT
};

static const struct argument table[TUNE_COUNT] = {
    [TUNE_RANKS] = {"ranks", 'n', "LIST",
                    "numbers of ranks on this host: 2 or 2,4,8 (default: 2, and doubled up to\n"
                    "the cores granted)"},
    [TUNE_SIZE_MS] = {"size-ms", 0, "MS", "time per measurement (default 10)"},
    [TUNE_LARGEST] = {"largest", 0, "BYTES", "largest buffers that are measured (default 16M)"},
    [TUNE_DRY_RUN] = {"dry-run", 0, NULL, "measure and show, but write nothing"},
    [TUNE_SHOW] = {"show", 0, NULL, "show what is in use, and measure nothing"},
    [TUNE_JSON] = {"json", 0, NULL, "as one JSON object"},
    [TUNE_HELP] = {"help", 'h', NULL, "this text"},
};

struct tune {
    int ranks[BASE_TUNING_ROWS_MAX];
    int ranks_count;
    const char *size_ms, *largest;
    bool dry_run, show, json, help;
    char path[BASE_TUNING_PATH_BYTES];
    struct base_tuning_table kept; /* the file's rows, and those that were measured */
};

static void help_print(void)
{
    printf("usage: shoal tune [OPTION...]\n\n"
           "Measures the thresholds between ranks of one host (see docs/tune.md) on this machine,\n"
           "for each number of ranks, and keeps them in the user's cache, where groups of so many\n"
           "ranks find them from then on. Takes about ten seconds for each; let nothing else run.\n"
           "\n");
    arguments_help(table, TUNE_COUNT, stdout);
    printf("\nThe file is $XDG_CACHE_HOME/shoal/tune-*.txt, or in ~/.cache; remove it to go back\n"
           "to the defaults. SHOAL_TUNE=0 ignores it for one run.\n");
}

/* ---- arguments
 * ------------------------------------------------------------------------------------------------
 */

static enum shoal_status ranks_add(struct tune *tune, long ranks)
{
    for (int i = 0; i < tune->ranks_count; i++)
        if (tune->ranks[i] == ranks)
            return SHOAL_OK;
    if (tune->ranks_count == BASE_TUNING_ROWS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "-n: at most %d numbers of ranks",
                          BASE_TUNING_ROWS_MAX);
    tune->ranks[tune->ranks_count++] = (int)ranks;
    return SHOAL_OK;
}

static enum shoal_status ranks_read(struct tune *tune, const char *list)
{
    while (list != NULL) {
        long ranks = 0;
        TRY(argument_list_number("-n", &list, 2, BASE_TUNING_RANKS_MAX, &ranks));
        TRY(ranks_add(tune, ranks));
    }
    return SHOAL_OK;
}

static enum shoal_status ranks_add_default(struct tune *tune)
{
    int most = base_cores_granted();
    if (most > BASE_TUNING_RANKS_MAX)
        most = BASE_TUNING_RANKS_MAX;
    TRY(ranks_add(tune, 2));
    for (long ranks = 4; ranks <= most; ranks *= 2)
        TRY(ranks_add(tune, ranks));
    return SHOAL_OK;
}

static enum shoal_status argument_use(void *user, int id, const char *value)
{
    struct tune *tune = user;
    long number;
    uint64_t bytes;
    switch (id) {
    case TUNE_RANKS: return ranks_read(tune, value);
    case TUNE_SIZE_MS:
        tune->size_ms = value;
        return argument_number("--size-ms", value, 1, 100000, &number);
    case TUNE_LARGEST: tune->largest = value; return base_parse_bytes(value, &bytes);
    case TUNE_DRY_RUN: tune->dry_run = true; break;
    case TUNE_SHOW: tune->show = true; break;
    case TUNE_JSON: tune->json = true; break;
    default: tune->help = true; break;
    }
    return SHOAL_OK;
}

static enum shoal_status arguments_read(struct tune *tune, int argc, char **argv)
{
    struct arguments arguments = {.command = "tune",
                                  .table = table,
                                  .count = TUNE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = argument_use,
                                  .user = tune,
                                  .at = 1};
    TRY(arguments_take_all(&arguments));
    return tune->ranks_count > 0 ? SHOAL_OK : ranks_add_default(tune);
}

/* Options that would hide what is to be measured. */
static enum shoal_status options_check(void)
{
    TRY(base_options_load());
    if (base_option_int(OPTION_LOCAL) == 0)
        return base_error(SHOAL_ERR_OPTION, "SHOAL_LOCAL=0: there is nothing to measure");
    if (base_option_int(OPTION_CHUNK_BYTES) != 0)
        return base_error(SHOAL_ERR_OPTION,
                          "SHOAL_CHUNK_BYTES is set and would hide the size of blocks: unset it");
    return SHOAL_OK;
}

/* ---- measuring
 * ------------------------------------------------------------------------------------------------
 */

/* Runs `shoal run ... shoal tune-rank`, whose rank 0 prints one row. */
static enum shoal_status measure(const struct tune *tune, int ranks, struct base_tuning *row)
{
    char self[LAUNCH_PATH_BYTES], count[16], what[48], line[LINE_BYTES];
    char *const words[] = {self,
                           "run",
                           "--no-tag",
                           "--quiet",
                           "--tune",
                           "0",
                           "-n",
                           count,
                           "--",
                           self,
                           "tune-rank",
                           "--size-ms",
                           (char *)tune->size_ms,
                           "--largest",
                           (char *)tune->largest,
                           NULL};
    TRY(launch_own_path(self));
    snprintf(count, sizeof(count), "%d", ranks);
    snprintf(what, sizeof(what), "measuring with %d ranks", ranks);
    TRY(own_program_line(words, what, line, sizeof(line)));
    if (line[0] == '\0')
        return base_error(SHOAL_ERR_SYSTEM, "nothing was measured for %d ranks", ranks);
    return base_tuning_row_read(line, row);
}

/* Rows of a file that can't be used are not kept. */
static void kept_read(struct tune *tune)
{
    if (base_tuning_read(tune->path, &tune->kept) == SHOAL_OK)
        return;
    tune->kept = (struct base_tuning_table){0};
    fprintf(stderr, "shoal tune: what was measured before is lost: %s\n", base_error_text());
}

/* Before anything is measured. */
static enum shoal_status room_check(const struct tune *tune)
{
    struct base_tuning_table rows = tune->kept;
    for (int i = 0; i < tune->ranks_count; i++) {
        struct base_tuning row = base_tuning_default(tune->ranks[i]);
        enum shoal_status status = base_tuning_put(&rows, &row);
        if (status != SHOAL_OK)
            return base_error_context(status, "%s: remove it to begin anew", tune->path);
    }
    return SHOAL_OK;
}

static enum shoal_status measure_all(struct tune *tune)
{
    TRY(options_check());
    kept_read(tune);
    TRY(room_check(tune));
    for (int i = 0; i < tune->ranks_count; i++) {
        struct base_tuning row;
        TRY(measure(tune, tune->ranks[i], &row));
        TRY(base_tuning_put(&tune->kept, &row));
        if (!tune->dry_run)
            TRY(base_tuning_write(tune->path, &tune->kept));
    }
    return SHOAL_OK;
}

/* ---- showing
 * ------------------------------------------------------------------------------------------------
 */

static void row_print(const char *ranks, const struct base_tuning *row, const char *source)
{
    char symmetric[BASE_BYTES_TEXT_BYTES], block[BASE_BYTES_TEXT_BYTES],
        stream[BASE_BYTES_TEXT_BYTES], direct[BASE_BYTES_TEXT_BYTES];
    printf("%6s %10s %10s %10s %10s  %s\n", ranks, base_bytes_text(row->symmetric_bytes, symmetric),
           base_bytes_text(row->block_bytes, block), base_bytes_text(row->stream_bytes, stream),
           base_bytes_text(row->direct_bytes, direct), source);
}

/* Where the rows are, or why none are in use. */
static const char *state_of(const struct tune *tune)
{
    if (tune->dry_run)
        return "not written: --dry-run";
    if (base_option_int(OPTION_TUNE) == 0)
        return "not used: SHOAL_TUNE=0";
    return tune->kept.count > 0 ? "in use" : "not there; `shoal tune` makes it";
}

static void table_print(const struct tune *tune)
{
    struct base_machine machine;
    struct base_tuning standard = base_tuning_default(0);
    base_machine_read(&machine);
    printf("machine  %s, %d cores\nfile     %s (%s)\n\n%6s %10s %10s %10s %10s\n", machine.cpu,
           machine.cores, tune->path, state_of(tune), "ranks", "symmetric", "block", "stream",
           "direct");
    for (int64_t i = 0; i < tune->kept.count; i++) {
        char ranks[16];
        snprintf(ranks, sizeof(ranks), "%" PRId64, tune->kept.rows[i].ranks);
        row_print(ranks, &tune->kept.rows[i], "measured");
    }
    row_print(tune->kept.count > 0 ? "others" : "all", &standard, "default");
}

static enum shoal_status json_thresholds(struct launch_bytes *out, const struct base_tuning *row)
{
    return launch_put_format(out,
                             "\"symmetric_bytes\":%" PRIu64 ",\"block_bytes\":%" PRIu64
                             ",\"stream_bytes\":%" PRIu64 ",\"direct_bytes\":%" PRIu64 "}",
                             row->symmetric_bytes, row->block_bytes, row->stream_bytes,
                             row->direct_bytes);
}

static enum shoal_status json_make(const struct tune *tune, struct launch_bytes *out)
{
    struct base_machine machine;
    struct base_tuning standard = base_tuning_default(0);
    base_machine_read(&machine);
    TRY(launch_put_format(out, "{\"cpu\":"));
    TRY(launch_json_text(out, machine.cpu, strlen(machine.cpu)));
    TRY(launch_put_format(out, ",\"cores\":%d,\"path\":", machine.cores));
    TRY(launch_json_text(out, tune->path, strlen(tune->path)));
    bool in_use = !tune->dry_run && base_option_int(OPTION_TUNE) != 0 && tune->kept.count > 0;
    TRY(launch_put_format(out, ",\"in_use\":%s,\"rows\":[", in_use ? "true" : "false"));
    for (int64_t i = 0; i < tune->kept.count; i++) {
        const struct base_tuning *row = &tune->kept.rows[i];
        TRY(launch_put_format(out, "%s{\"ranks\":%" PRId64 ",", i > 0 ? "," : "", row->ranks));
        TRY(json_thresholds(out, row));
    }
    TRY(launch_put_format(out, "],\"default\":{"));
    TRY(json_thresholds(out, &standard));
    return launch_put_format(out, "}\n");
}

static enum shoal_status json_print(const struct tune *tune)
{
    struct launch_bytes out = {0};
    enum shoal_status status = json_make(tune, &out);
    if (status == SHOAL_OK)
        fwrite(launch_bytes_front(&out), 1, launch_bytes_count(&out), stdout);
    launch_bytes_release(&out);
    return status;
}

static enum shoal_status tune_run(struct tune *tune)
{
    TRY(base_tuning_path(tune->path));
    if (tune->show)
        TRY(base_tuning_read(tune->path, &tune->kept));
    else
        TRY(measure_all(tune));
    if (tune->json)
        return json_print(tune);
    table_print(tune);
    return SHOAL_OK;
}

int cmd_tune(int argc, char **argv)
{
    struct tune tune = {.size_ms = "10", .largest = "16M"};
    enum shoal_status status = arguments_read(&tune, argc, argv);
    if (status == SHOAL_OK && tune.help) {
        help_print();
        return 0;
    }
    int exit_code = status == SHOAL_OK ? 1 : EXIT_USAGE;
    if (status == SHOAL_OK)
        status = tune_run(&tune);
    if (status == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal tune: %s\n", base_error_text());
    return exit_code;
}
