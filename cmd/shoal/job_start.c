/* SPDX-License-Identifier: Apache-2.0 */
/* job_start.c: `shoal job-start`: trains in an instance; job.json names it as the program. */
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "base/status.h"
#include "job/start.h"
#include "job/start_run.h"

int cmd_job_start(int argc, char **argv);

enum {
    START_PYTHON,
    START_BASE,
    START_VERSION,
    START_LIBRARIES,
    START_RANK,
    START_DESCRIBE,
    START_IMAGES,
    START_INSTANCES,
    START_HELP
};

static const struct argument table[] = {
    [START_PYTHON] = {"python", 0, "PROGRAM", "the machine's Python"},
    [START_BASE] = {"base", 0, "FOLDER", "its sys.base_prefix"},
    [START_VERSION] = {"version", 0, "X.Y", "its version"},
    [START_LIBRARIES] = {"libraries", 0, "PATHS", "where it looks for packages"},
    [START_RANK] = {"rank", 0, NULL, "become PROGRAM as a rank"},
    [START_DESCRIBE] = {"describe", 0, "REQUEST",
                        "print what a CreateTrainingJob request, a file,\n"
                        "would start here"},
    [START_IMAGES] = {"images", 0, "FILE", "with it: images.conf"},
    [START_INSTANCES] = {"instances", 0, "FILE", "with it: instances.conf"},
    [START_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

struct job_start {
    struct job_start_options options;
    const char *request, *images, *instances;
    bool is_rank, wants_help;
};

static enum shoal_status take(void *user, int id, const char *value)
{
    struct job_start *start = user;
    struct start_python *python = &start->options.python;
    switch (id) {
    case START_PYTHON: python->program = value; break;
    case START_BASE: python->base_prefix = value; break;
    case START_VERSION: python->version = value; break;
    case START_LIBRARIES: python->libraries = value; break;
    case START_RANK: start->is_rank = true; break;
    case START_DESCRIBE: start->request = value; break;
    case START_IMAGES: start->images = value; break;
    case START_INSTANCES: start->instances = value; break;
    default: start->wants_help = true; break;
    }
    return SHOAL_OK;
}

static void help_print(void)
{
    printf("usage: shoal job-start OPTION... [-- PROGRAM ARGUMENT...]\n"
           "       shoal job-start --describe REQUEST\n\n"
           "In an instance of a training job: does what the public framework images do with the\n"
           "files in /opt/ml, or runs PROGRAM. The job service starts it. docs/job-start.md\n\n");
    arguments_help(table, TABLE_COUNT, stdout);
}

/* ---- --describe ---- */

static enum shoal_status need_of(const struct job_start *start, const json_t *request,
                                 struct job_need *need)
{
    struct job_types *types;
    struct job_share machine;
    struct job_group groups[JOB_GROUPS_MAX];
    int count = job_start_groups(request, groups, NULL);
    TRY(job_types_load(start->instances, &types));
    job_machine_look(&machine);
    enum shoal_status status = job_types_need(types, &machine, groups, count, need);
    job_types_free(types);
    return status;
}

static enum shoal_status software_of(const struct job_start *start, const json_t *request,
                                     struct job_software **software)
{
    struct job_images *images;
    const char *name = NULL;
    json_unpack((json_t *)request, "{s:{s:s}}", "AlgorithmSpecification", "TrainingImage", &name);
    if (name == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "the request names no TrainingImage");
    TRY(job_images_load(start->images, "/var/tmp/shoal-images", &images));
    enum shoal_status status = job_images_prepare(images, name, NULL, software);
    job_images_free(images);
    return status;
}

static int instance_count(const struct job_need *need)
{
    int count = 0;
    for (int i = 0; i < need->group_count; i++)
        count += need->counts[i];
    return count;
}

static enum shoal_status describe_request(const struct job_start *start, const json_t *request,
                                          json_t *description)
{
    struct job_need need;
    struct job_capacity capacity = {0};
    struct job_software *software;
    const char *name = json_string_value(json_object_get(request, "TrainingJobName"));
    json_t *instances = json_array();
    json_object_set_new(description, "instances", instances);
    TRY(need_of(start, request, &need));
    TRY(software_of(start, request, &software));
    struct job_start_order order = {.name = name != NULL ? name : "job",
                                    .arn = "",
                                    .request = request,
                                    .software = software,
                                    .need = &need,
                                    .region = "us-east-1"};
    job_machine_look(&capacity.machine);
    job_capacity_take(&capacity, &need, &order.accelerators);
    for (int i = 0; i < instance_count(&need); i++)
        json_array_append_new(instances, json_object());
    enum shoal_status status = job_start_describe(&order, description);
    job_software_free(software);
    return status;
}

static int describe(const struct job_start *start)
{
    json_error_t error;
    json_t *request = json_load_file(start->request, 0, &error), *description = json_object();
    enum shoal_status status = request != NULL ? describe_request(start, request, description)
                                               : base_error(SHOAL_ERR_ARGUMENT, "%s, line %d: %s",
                                                            start->request, error.line, error.text);
    if (status == SHOAL_OK) {
        json_dumpf(description, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(request);
    json_decref(description);
    return arguments_exit("job-start", status);
}

/* ---- in an instance ---- */

static int run(struct job_start *start, char **words)
{
    const struct start_python *python = &start->options.python;
    if (start->is_rank && *words != NULL)
        return job_start_rank(words);
    if (start->is_rank || python->program == NULL || python->base_prefix == NULL ||
        python->version == NULL || python->libraries == NULL) {
        fprintf(stderr, "shoal job-start: the service starts this command; see --help\n");
        return EXIT_USAGE;
    }
    start->options.words = *words != NULL ? words : NULL;
    return job_start_run(&start->options);
}

int cmd_job_start(int argc, char **argv)
{
    struct job_start start = {0};
    struct arguments arguments = {.command = "job-start",
                                  .table = table,
                                  .count = TABLE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take,
                                  .user = &start,
                                  .at = 1};
    enum shoal_status status = arguments_take(&arguments);
    if (status != SHOAL_OK)
        return arguments_exit("job-start", status);
    if (start.wants_help) {
        help_print();
        return 0;
    }
    return start.request != NULL ? describe(&start) : run(&start, argv + arguments.at);
}
