/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c: `shoal submit`: a training job out of a script or a folder of this machine. */
#include "submit.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "arguments.h"
#include "base/status.h"
#include "job_follow.h"

int cmd_submit(int argc, char **argv);

#define RUNTIME_MS_DEFAULT (INT64_C(86400) * 1000)
#define INSTANCES_MAX      100
#define PROCESSES_MAX      1024
#define PRIORITY_MAX       1000000
#define KEEP_ALIVE_S_MAX   21600 /* that the API takes */
#define BASE_NAME_MAX      38    /* of a job's name, in front of its time */

enum {
    SUBMIT_INSTANCES,
    SUBMIT_TYPE,
    SUBMIT_DATA,
    SUBMIT_HYPERPARAMETER,
    SUBMIT_ENV,
    SUBMIT_IMAGE,
    SUBMIT_OUTPUT,
    SUBMIT_CHECKPOINTS,
    SUBMIT_METRIC,
    SUBMIT_DISTRIBUTION,
    SUBMIT_PROCESSES,
    SUBMIT_RUNTIME,
    SUBMIT_PRIORITY,
    SUBMIT_KEEP_ALIVE,
    SUBMIT_NAME,
    SUBMIT_ENTRY,
    SUBMIT_FOLLOW,
    SUBMIT_JSON,
    SUBMIT_DIR,
    SUBMIT_ENDPOINT,
    SUBMIT_HELP
};

static const struct argument table[] = {
    [SUBMIT_INSTANCES] = {"instances", 'n', "N", "how many instances (default 1)"},
    [SUBMIT_TYPE] = {"instance-type", 't', "TYPE",
                     "what each is, by the service's instances.conf\n"
                     "(default ml.local; ml.g5.xlarge and the like have\n"
                     "this machine's accelerators)"},
    [SUBMIT_DATA] = {"data", 'i', "[NAME=]WHERE",
                     "s3://bucket/prefix, or a folder that is uploaded; the job\n"
                     "has it in /opt/ml/input/data/NAME (default training)"},
    [SUBMIT_HYPERPARAMETER] = {"hyperparameter", 'p', "NAME=VALUE",
                               "the script gets --NAME VALUE; the same as behind --"},
    [SUBMIT_ENV] = {"env", 'e', "NAME=VALUE", "a variable of its environment"},
    [SUBMIT_IMAGE] = {"image", 0, "NAME",
                      "by the service's images.conf (default python: this\n"
                      "machine's, with Shoal)"},
    [SUBMIT_OUTPUT] = {"output", 'o', "S3-ADDRESS", "where the model goes (default s3://shoal/)"},
    [SUBMIT_CHECKPOINTS] = {"checkpoints", 0, "S3-ADDRESS",
                            "kept like /opt/ml/checkpoints, both ways"},
    [SUBMIT_METRIC] = {"metric", 'm', "NAME=REGEX",
                       "a number in the output; the first group is the value"},
    [SUBMIT_DISTRIBUTION] = {"distribution", 0, "HOW", "smddp, mpi or torchrun"},
    [SUBMIT_PROCESSES] = {"processes", 0, "N",
                          "ranks on each instance (default: one for each of its\n"
                          "accelerators, else one)"},
    [SUBMIT_RUNTIME] = {"max-runtime", 0, "SECONDS", "stopped then (default 86400, a day)"},
    [SUBMIT_PRIORITY] = {"priority", 0, "N", "before jobs with less (default 0)"},
    [SUBMIT_KEEP_ALIVE] = {"keep-alive", 0, "SECONDS",
                           "its instances are kept for so long for the next job\n"
                           "like it, which starts before others (default 0)"},
    [SUBMIT_NAME] = {"name", 0, "NAME", "of the job (default: the script's and the time)"},
    [SUBMIT_ENTRY] = {"entry", 0, "SCRIPT", "in the folder (default train.py)"},
    [SUBMIT_FOLLOW] = {"follow", 'f', NULL, "show what it prints, until it has ended"},
    [SUBMIT_JSON] = {"json", 0, NULL, "print name and ARN as JSON, and with --follow its lines"},
    [SUBMIT_DIR] = JOB_CLIENT_DIR_ROW,
    [SUBMIT_ENDPOINT] = JOB_CLIENT_ENDPOINT_ROW,
    [SUBMIT_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

/* ---- arguments ---- */

static enum shoal_status list_add(struct submit_list *list, const char *value)
{
    if (list->count == SUBMIT_LIST_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is one too many: there can be %d", value,
                          SUBMIT_LIST_MAX);
    list->items[list->count++] = value;
    return SHOAL_OK;
}

static enum shoal_status take(void *user, int id, const char *value)
{
    struct submit *submit = user;
    switch (id) {
    case SUBMIT_INSTANCES:
        return argument_number("--instances", value, 1, INSTANCES_MAX, &submit->instances);
    case SUBMIT_TYPE: submit->instance_type = value; break;
    case SUBMIT_DATA: return list_add(&submit->data, value);
    case SUBMIT_HYPERPARAMETER: return list_add(&submit->hyperparameters, value);
    case SUBMIT_ENV: return list_add(&submit->environment, value);
    case SUBMIT_IMAGE: submit->image = value; break;
    case SUBMIT_OUTPUT: submit->output = value; break;
    case SUBMIT_CHECKPOINTS: submit->checkpoints = value; break;
    case SUBMIT_METRIC: return list_add(&submit->metrics, value);
    case SUBMIT_DISTRIBUTION: submit->distribution = value; break;
    case SUBMIT_PROCESSES:
        return argument_number("--processes", value, 1, PROCESSES_MAX, &submit->processes);
    case SUBMIT_RUNTIME: return argument_seconds("--max-runtime", value, &submit->max_runtime_ms);
    case SUBMIT_PRIORITY:
        return argument_number("--priority", value, -PRIORITY_MAX, PRIORITY_MAX, &submit->priority);
    case SUBMIT_KEEP_ALIVE:
        return argument_number("--keep-alive", value, 0, KEEP_ALIVE_S_MAX, &submit->keep_alive_s);
    case SUBMIT_NAME: submit->name = value; break;
    case SUBMIT_ENTRY: submit->entry = value; break;
    case SUBMIT_FOLLOW: submit->follows = true; break;
    case SUBMIT_JSON: submit->wants_json = true; break;
    case SUBMIT_DIR: submit->client.wish.dir = value; break;
    case SUBMIT_ENDPOINT: submit->client.wish.url = value; break;
    default: submit->wants_help = true; break;
    }
    return SHOAL_OK;
}

/* Options, the script, more options, and the script's own behind "--". */
static enum shoal_status arguments_read(struct submit *submit, struct arguments *arguments)
{
    for (;;) {
        TRY(arguments_take(arguments));
        bool is_behind = arguments->at > 1 && submit->path != NULL &&
                         strcmp(arguments->argv[arguments->at - 1], "--") == 0;
        while (is_behind && arguments->at < arguments->argc)
            TRY(list_add(&submit->arguments, arguments->argv[arguments->at++]));
        if (arguments->at >= arguments->argc)
            break;
        const char *word = arguments->argv[arguments->at++];
        if (submit->path != NULL)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "one script or folder at a time: '%s' is one too many (what the "
                              "script gets stands behind --)",
                              word);
        submit->path = word;
    }
    if (submit->path == NULL && !submit->wants_help)
        return base_error(SHOAL_ERR_ARGUMENT, "no script or folder (see shoal help submit)");
    return SHOAL_OK;
}

static void help_print(void)
{
    printf("usage: shoal submit [OPTION...] SCRIPT|FOLDER [-- --NAME VALUE...]\n\n"
           "Runs a script as a training job of the job service: uploads it, prints the job's\n"
           "name, and returns; with --follow, shows what the job prints until it has ended.\n\n");
    arguments_help(table, TABLE_COUNT, stdout);
    printf("\nexamples:\n"
           "  shoal submit train.py --data s3://data/digits --follow -- --epochs 3\n"
           "  shoal submit src/ --entry train.py -n 2 --distribution smddp -m 'loss=loss "
           "([0-9.]+)'\n\n"
           "exit status: 0, or with --follow: 0 completed, 1 failed, 3 stopped, 130 after Ctrl-C\n"
           "(the job goes on); 1 for errors, 2 for wrong arguments.\n");
}

/* ---- the job's name ---- */

/* The script's name or the folder's, with what a job's name may hold, and the time. */
static void name_make(const struct submit *submit, char out[SUBMIT_NAME_BYTES])
{
    char base[BASE_NAME_MAX + 1], when[20];
    const char *end = submit->path + strlen(submit->path);
    while (end > submit->path + 1 && end[-1] == '/')
        end--;
    const char *from = end;
    while (from > submit->path && from[-1] != '/')
        from--;
    size_t length = (size_t)(end - from), used = 0;
    if (length > 3 && strncmp(end - 3, ".py", 3) == 0)
        length -= 3;
    for (size_t i = 0; i < length && used < BASE_NAME_MAX; i++) {
        if (isalnum((unsigned char)from[i]))
            base[used++] = from[i];
        else if (used > 0 && base[used - 1] != '-')
            base[used++] = '-';
    }
    while (used > 0 && base[used - 1] == '-')
        used--;
    base[used] = '\0';
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(when, sizeof(when), "%Y-%m-%d-%H-%M-%S", &parts);
    snprintf(out, SUBMIT_NAME_BYTES, "%s-%s-%03u", used > 0 ? base : "job", when,
             (unsigned)(now.tv_nsec / 1000000) % 1000u);
}

/* ---- the command ---- */

static enum shoal_status create(struct submit *submit)
{
    json_t *request, *reply;
    if (submit->name != NULL)
        snprintf(submit->job, sizeof(submit->job), "%s", submit->name);
    else
        name_make(submit, submit->job);
    if (submit->name != NULL && strlen(submit->name) >= sizeof(submit->job))
        return base_error(SHOAL_ERR_ARGUMENT, "--name %s: a job's name has 63 characters at most",
                          submit->name);
    TRY(submit_find(submit));
    TRY(submit_request(submit, &request));
    enum shoal_status status = submit_upload(submit);
    if (status != SHOAL_OK) {
        json_decref(request);
        return status;
    }
    TRY(job_client_call(&submit->client, "SageMaker.CreateTrainingJob", request, &reply));
    if (submit->wants_json) {
        json_object_set_new(reply, "TrainingJobName", json_string(submit->job));
        json_dumpf(reply, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
        putchar('\n');
    } else {
        fprintf(submit->follows ? stderr : stdout, "%s\n", submit->job);
    }
    json_decref(reply);
    return SHOAL_OK;
}

static int submit_run(struct submit *submit)
{
    enum shoal_status status = create(submit);
    if (status != SHOAL_OK || !submit->follows)
        return arguments_exit("submit", status);
    struct job_follow_options options = JOB_FOLLOW_OPTIONS_INIT;
    char ended[JOB_STATUS_BYTES] = "";
    options.name = submit->job;
    options.follows = options.has_statuses = true;
    options.wants_json = submit->wants_json;
    status = job_follow(&submit->client, &options, ended);
    return job_follow_exit("submit", &options, status, ended);
}

int cmd_submit(int argc, char **argv)
{
    struct submit submit = {.instances = 1, .max_runtime_ms = RUNTIME_MS_DEFAULT};
    struct arguments arguments = {.command = "submit",
                                  .table = table,
                                  .count = TABLE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take,
                                  .user = &submit,
                                  .at = 1};
    enum shoal_status status = arguments_read(&submit, &arguments);
    if (status == SHOAL_OK && submit.wants_help) {
        help_print();
        return 0;
    }
    int code = status == SHOAL_OK ? submit_run(&submit) : arguments_exit("submit", status);
    job_client_release(&submit.client);
    return code;
}
