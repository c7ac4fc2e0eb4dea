/* SPDX-License-Identifier: Apache-2.0 */
/* stop.c: `shoal stop`: ends training jobs; what they have made is kept. */
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "base/clock.h"
#include "base/status.h"
#include "job_client.h"

int cmd_stop(int argc, char **argv);

#define NAMES_MAX    1000
#define PAUSE_MS_MIN 20
#define PAUSE_MS_MAX 500

enum { STOP_WAIT, STOP_JSON, STOP_DIR, STOP_ENDPOINT, STOP_HELP };

static const struct argument table[] = {
    [STOP_WAIT] = {"wait", 'w', NULL, "until they have ended"},
    [STOP_JSON] = {"json", 0, NULL, "an array of their names and statuses"},
    [STOP_DIR] = JOB_CLIENT_DIR_ROW,
    [STOP_ENDPOINT] = JOB_CLIENT_ENDPOINT_ROW,
    [STOP_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

struct stop {
    struct job_client client;
    const char *names[NAMES_MAX];
    int count;
    bool waits, wants_json, wants_help;
};

static enum shoal_status take(void *user, int id, const char *value)
{
    struct stop *stop = user;
    switch (id) {
    case STOP_WAIT: stop->waits = true; break;
    case STOP_JSON: stop->wants_json = true; break;
    case STOP_DIR: stop->client.wish.dir = value; break;
    case STOP_ENDPOINT: stop->client.wish.url = value; break;
    default: stop->wants_help = true; break;
    }
    return SHOAL_OK;
}

static void help_print(void)
{
    printf("usage: shoal stop [OPTION...] NAME...\n\n"
           "Stops training jobs: their programs get SIGTERM, and SIGKILL 120 s later. What they\n"
           "have made by then is stored. Jobs that have ended are left as they are.\n\n");
    arguments_help(table, TABLE_COUNT, stdout);
    printf("\nexample:\n"
           "  shoal stop --wait train-2026-11-22-20-15-01-123\n\n"
           "exit status: 0, 1 if one could not be stopped, 2 for wrong arguments.\n");
}

static enum shoal_status names_read(struct stop *stop, struct arguments *arguments)
{
    for (;;) {
        TRY(arguments_take(arguments));
        if (arguments->at >= arguments->argc)
            break;
        if (stop->count == NAMES_MAX)
            return base_error(SHOAL_ERR_ARGUMENT, "at most %d jobs at a time", NAMES_MAX);
        stop->names[stop->count++] = arguments->argv[arguments->at++];
    }
    if (stop->count == 0 && !stop->wants_help)
        return base_error(SHOAL_ERR_ARGUMENT, "no job's name (see shoal jobs)");
    return SHOAL_OK;
}

static enum shoal_status status_get(struct stop *stop, const char *name, char out[JOB_STATUS_BYTES])
{
    json_t *job;
    TRY(job_client_describe(&stop->client, name, &job));
    snprintf(out, JOB_STATUS_BYTES, "%s", job_text(job, "TrainingJobStatus"));
    json_decref(job);
    return SHOAL_OK;
}

/* A job that has ended meanwhile is what was wanted. */
static enum shoal_status stop_one(struct stop *stop, const char *name)
{
    char status[JOB_STATUS_BYTES];
    TRY(status_get(stop, name, status));
    if (job_has_ended(status))
        return SHOAL_OK;
    enum shoal_status result = job_client_call(&stop->client, "SageMaker.StopTrainingJob",
                                               json_pack("{s:s}", "TrainingJobName", name), NULL);
    if (result != SHOAL_ERR_PEER_REFUSED)
        return result;
    char text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    TRY(status_get(stop, name, status));
    return job_has_ended(status) || strcmp(status, "Stopping") == 0
               ? SHOAL_OK
               : base_error(result, "%s: %s", name, text);
}

/* Its status, with --wait the one that it ends with. */
static enum shoal_status status_await(struct stop *stop, const char *name,
                                      char status[JOB_STATUS_BYTES])
{
    int64_t pause_ms = PAUSE_MS_MIN;
    for (;;) {
        TRY(status_get(stop, name, status));
        if (!stop->waits || job_has_ended(status))
            return SHOAL_OK;
        base_sleep_ms(pause_ms);
        pause_ms = pause_ms * 2 < PAUSE_MS_MAX ? pause_ms * 2 : PAUSE_MS_MAX;
    }
}

static enum shoal_status status_print(struct stop *stop, const char *name, json_t *all)
{
    char status[JOB_STATUS_BYTES];
    TRY(status_await(stop, name, status));
    if (stop->wants_json)
        json_array_append_new(
            all, json_pack("{s:s, s:s}", "TrainingJobName", name, "TrainingJobStatus", status));
    else
        printf("%s: %s\n", name, status);
    return SHOAL_OK;
}

/* All are told before any is waited for. The last failure is what the command ends with. */
static int stop_run(struct stop *stop)
{
    int code = 0;
    bool shows = stop->waits || stop->wants_json;
    json_t *all = json_array();
    for (int i = 0; i < stop->count; i++) {
        enum shoal_status status = stop_one(stop, stop->names[i]);
        if (status == SHOAL_OK)
            continue;
        code = arguments_exit("stop", status);
        stop->names[i] = NULL;
    }
    for (int i = 0; shows && i < stop->count; i++) {
        if (stop->names[i] != NULL && status_print(stop, stop->names[i], all) != SHOAL_OK)
            code = arguments_exit("stop", SHOAL_ERR_SYSTEM);
    }
    if (stop->wants_json) {
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(all);
    return code;
}

int cmd_stop(int argc, char **argv)
{
    static struct stop stop;
    struct arguments arguments = {.command = "stop",
                                  .table = table,
                                  .count = TABLE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take,
                                  .user = &stop,
                                  .at = 1};
    enum shoal_status status = names_read(&stop, &arguments);
    if (status == SHOAL_OK && stop.wants_help) {
        help_print();
        return 0;
    }
    int code = status == SHOAL_OK ? stop_run(&stop) : arguments_exit("stop", status);
    job_client_release(&stop.client);
    return code;
}
