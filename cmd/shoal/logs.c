/* SPDX-License-Identifier: Apache-2.0 */
/* logs.c: `shoal logs`: what a job has printed, and prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arguments.h"
#include "base/status.h"
#include "job_follow.h"

int cmd_logs(int argc, char **argv);

#define INSTANCE_MAX 100
#define TAIL_MAX     10000

enum {
    LOGS_FOLLOW,
    LOGS_INSTANCE,
    LOGS_SINCE,
    LOGS_TAIL,
    LOGS_TIMES,
    LOGS_JSON,
    LOGS_DIR,
    LOGS_ENDPOINT,
    LOGS_HELP
};

static const struct argument table[] = {
    [LOGS_FOLLOW] = {"follow", 'f', NULL, "until the job has ended"},
    [LOGS_INSTANCE] = {"instance", 'i', "N", "of this one only: 2 or algo-2"},
    [LOGS_SINCE] = {"since", 's', "TIME",
                    "from then on: 90s, 10m, 2h, 1d before now, or seconds\n"
                    "since 1970"},
    [LOGS_TAIL] = {"tail", 'n', "N", "the last N lines, and what follows with -f"},
    [LOGS_TIMES] = {"times", 't', NULL, "the time in front of each line"},
    [LOGS_JSON] = {"json", 0, NULL, "a JSON object a line: instance, timestamp (ms), message"},
    [LOGS_DIR] = JOB_CLIENT_DIR_ROW,
    [LOGS_ENDPOINT] = JOB_CLIENT_ENDPOINT_ROW,
    [LOGS_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

struct logs_wish {
    struct job_client client;
    struct job_follow_options options;
    bool wants_help;
};

static enum shoal_status instance_read(const char *text, int *out)
{
    long number;
    const char *digits = strncmp(text, "algo-", 5) == 0 ? text + 5 : text;
    TRY(argument_number("--instance", digits, 1, INSTANCE_MAX, &number));
    *out = (int)number;
    return SHOAL_OK;
}

static enum shoal_status since_read(const char *text, int64_t *out)
{
    static const char units[] = "smhd";
    static const double seconds[] = {1, 60, 3600, 86400};
    char *end;
    double value = strtod(text, &end);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    bool is_age = unit != NULL && end[1] == '\0';
    if (end == text || !(value >= 0) || value > 1e11 || (*end != '\0' && !is_age))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "--since %s: it takes 90s, 10m, 2h, 1d, or seconds since 1970", text);
    if (is_age)
        value = (double)time(NULL) - value * seconds[unit - units];
    *out = value > 0 ? (int64_t)(value * 1000) : 0;
    return SHOAL_OK;
}

static enum shoal_status take(void *user, int id, const char *value)
{
    struct logs_wish *wish = user;
    switch (id) {
    case LOGS_FOLLOW: wish->options.follows = true; break;
    case LOGS_INSTANCE: return instance_read(value, &wish->options.instance);
    case LOGS_SINCE: return since_read(value, &wish->options.since_ms);
    case LOGS_TAIL: return argument_number("--tail", value, 0, TAIL_MAX, &wish->options.tail);
    case LOGS_TIMES: wish->options.has_times = true; break;
    case LOGS_JSON: wish->options.wants_json = true; break;
    case LOGS_DIR: wish->client.wish.dir = value; break;
    case LOGS_ENDPOINT: wish->client.wish.url = value; break;
    default: wish->wants_help = true; break;
    }
    return SHOAL_OK;
}

static void help_print(void)
{
    printf("usage: shoal logs [OPTION...] NAME\n\n"
           "Prints what a training job has printed, all its instances in the order of time.\n\n");
    arguments_help(table, TABLE_COUNT, stdout);
    printf("\nexample:\n"
           "  shoal logs -f --tail 20 train-2026-11-22-20-15-01-123\n\n"
           "exit status: 0, or with --follow: 0 completed, 1 failed, 3 stopped, 130 after Ctrl-C;\n"
           "1 for errors, 2 for wrong arguments.\n");
}

static int logs_run(struct logs_wish *wish)
{
    char ended[JOB_STATUS_BYTES] = "";
    enum shoal_status status = job_follow(&wish->client, &wish->options, ended);
    return job_follow_exit("logs", &wish->options, status, ended);
}

int cmd_logs(int argc, char **argv)
{
    struct logs_wish wish = {.options = JOB_FOLLOW_OPTIONS_INIT};
    struct arguments arguments = {.command = "logs",
                                  .table = table,
                                  .count = TABLE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take,
                                  .user = &wish,
                                  .at = 1};
    enum shoal_status status = arguments_take_with_operation(&arguments, &wish.options.name);
    if (status == SHOAL_OK && wish.wants_help) {
        help_print();
        return 0;
    }
    if (status == SHOAL_OK && wish.options.name == NULL)
        status = base_error(SHOAL_ERR_ARGUMENT, "no job's name (see shoal jobs)");
    int code = status == SHOAL_OK ? logs_run(&wish) : arguments_exit("logs", status);
    job_client_release(&wish.client);
    return code;
}
