/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.c: `shoal jobs`: which training jobs there are, newest first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arguments.h"
#include "base/status.h"
#include "job_client.h"

int cmd_jobs(int argc, char **argv);

#define PAGE_MAX      100
#define LIMIT_DEFAULT 20
#define LIMIT_MAX     1000000

enum {
    JOBS_STATUS,
    JOBS_NAME,
    JOBS_LIMIT,
    JOBS_ALL,
    JOBS_JSON,
    JOBS_DIR,
    JOBS_ENDPOINT,
    JOBS_HELP
};

static const struct argument table[] = {
    [JOBS_STATUS] = {"status", 's', "STATUS",
                     "only these: InProgress, Completed, Failed, Stopping,\n"
                     "Stopped"},
    [JOBS_NAME] = {"name", 0, "TEXT", "only those whose name contains it"},
    [JOBS_LIMIT] = {"limit", 'n', "N", "at most so many (default 20)"},
    [JOBS_ALL] = {"all", 'a', NULL, "all of them"},
    [JOBS_JSON] = {"json", 0, NULL, "an array, as ListTrainingJobs has them"},
    [JOBS_DIR] = JOB_CLIENT_DIR_ROW,
    [JOBS_ENDPOINT] = JOB_CLIENT_ENDPOINT_ROW,
    [JOBS_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

struct jobs {
    struct job_client client;
    const char *status, *name;
    long limit;
    bool wants_json, wants_help;
};

static enum shoal_status take(void *user, int id, const char *value)
{
    struct jobs *jobs = user;
    switch (id) {
    case JOBS_STATUS: jobs->status = value; break;
    case JOBS_NAME: jobs->name = value; break;
    case JOBS_LIMIT: return argument_number("--limit", value, 1, LIMIT_MAX, &jobs->limit);
    case JOBS_ALL: jobs->limit = LIMIT_MAX; break;
    case JOBS_JSON: jobs->wants_json = true; break;
    case JOBS_DIR: jobs->client.wish.dir = value; break;
    case JOBS_ENDPOINT: jobs->client.wish.url = value; break;
    default: jobs->wants_help = true; break;
    }
    return SHOAL_OK;
}

static void help_print(void)
{
    printf("usage: shoal jobs [OPTION...]\n\n"
           "Lists training jobs of the job service, the newest first.\n\n");
    arguments_help(table, TABLE_COUNT, stdout);
    printf("\nexample:\n"
           "  shoal jobs --status InProgress\n");
}

/* One page behind the others; *token becomes the next one's, NULL after the last. */
static enum shoal_status page_add(struct jobs *jobs, char **token, json_t *all)
{
    long left = jobs->limit - (long)json_array_size(all);
    json_t *reply, *request = json_pack("{s:I, s:s, s:s}", "MaxResults",
                                        (json_int_t)(left < PAGE_MAX ? left : PAGE_MAX), "SortBy",
                                        "CreationTime", "SortOrder", "Descending");
    if (jobs->status != NULL)
        json_object_set_new(request, "StatusEquals", json_string(jobs->status));
    if (jobs->name != NULL)
        json_object_set_new(request, "NameContains", json_string(jobs->name));
    if (*token != NULL)
        json_object_set_new(request, "NextToken", json_string(*token));
    free(*token);
    *token = NULL;
    TRY(job_client_call(&jobs->client, "SageMaker.ListTrainingJobs", request, &reply));
    json_array_extend(all, json_object_get(reply, "TrainingJobSummaries"));
    const char *next = job_text(reply, "NextToken");
    if (next[0] != '\0' && (long)json_array_size(all) < jobs->limit)
        *token = strdup(next);
    json_decref(reply);
    return SHOAL_OK;
}

static double number(const json_t *job, const char *name)
{
    return json_number_value(json_object_get(job, name));
}

/* From the job's creation to its end, or until now. */
static double age_s(const json_t *job)
{
    double end = number(job, "TrainingEndTime");
    return (end > 0 ? end : (double)time(NULL)) - number(job, "CreationTime");
}

static void table_print(const json_t *all)
{
    size_t i;
    const json_t *job;
    int width = (int)strlen("NAME");
    json_array_foreach((json_t *)all, i, job)
    {
        int length = (int)strlen(job_text(job, "TrainingJobName"));
        width = length > width ? length : width;
    }
    if (json_array_size(all) > 0)
        printf("%-*s  %-10s  %-19s  %s\n", width, "NAME", "STATUS", "CREATED", "TIME");
    json_array_foreach((json_t *)all, i, job)
    {
        printf("%-*s  %-10s  %-19s  %s\n", width, job_text(job, "TrainingJobName"),
               job_text(job, "TrainingJobStatus"), job_time_text(number(job, "CreationTime")),
               job_duration_text(age_s(job)));
    }
}

static enum shoal_status jobs_run(struct jobs *jobs)
{
    json_t *all = json_array();
    char *token = NULL;
    enum shoal_status status;
    do
        status = page_add(jobs, &token, all);
    while (status == SHOAL_OK && token != NULL);
    free(token);
    if (status == SHOAL_OK && jobs->wants_json) {
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
    } else if (status == SHOAL_OK) {
        table_print(all);
    }
    json_decref(all);
    return status;
}

int cmd_jobs(int argc, char **argv)
{
    struct jobs jobs = {.limit = LIMIT_DEFAULT};
    struct arguments arguments = {.command = "jobs",
                                  .table = table,
                                  .count = TABLE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take,
                                  .user = &jobs,
                                  .at = 1};
    enum shoal_status status = arguments_take_all(&arguments);
    if (status == SHOAL_OK && jobs.wants_help) {
        help_print();
        return 0;
    }
    int code = arguments_exit("jobs", status == SHOAL_OK ? jobs_run(&jobs) : status);
    job_client_release(&jobs.client);
    return code;
}
