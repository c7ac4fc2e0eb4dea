/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_command.c: see start_command.h.
 *
 * All distributions start their ranks by `shoal run --sagemaker` on each instance: the launchers
 * meet at the first host, show their own ranks' output, and end together, with the first failure's
 * exit status. What differs is how many ranks there are, and which variables they read.
 */
#include "job/start_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/start.h"
#include "job/start_json.h"
#include "job/start_state.h"
#include "job/start_text.h"

#define PATH_BYTES    4096
#define OPTIONS_WORDS 256
#define MASTER_PORT   2222 /* of TensorFlow's cluster */
#define SERVER_PORT   2223
#define MIRRORED_PORT 8890

/* A parameter server of TensorFlow's, on the processor, as its image starts one. */
static const char server_program[] =
    "import importlib.util, json, os, sys\n"
    "if importlib.util.find_spec('tensorflow') is None:\n"
    "    sys.exit('no TensorFlow is installed, so there is no parameter server')\n"
    "import tensorflow as tf\n"
    "cluster, index = json.loads(sys.argv[1]), int(sys.argv[2])\n"
    "config = tf.compat.v1.ConfigProto(device_count={'GPU': 0})\n"
    "tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name='ps', task_index=index,\n"
    "                     config=config).join()\n";

static enum shoal_status no_memory(void)
{
    return base_error(SHOAL_ERR_MEMORY, "no memory for a command");
}

static enum shoal_status put_json(json_t *variables, const char *name, const json_t *value)
{
    char *text;
    TRY(start_text_json(value, &text));
    enum shoal_status status = start_put(variables, name, json_string(text));
    base_free(text);
    return status;
}

/* ---- the script ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

enum start_entry start_entry_find(const char *folder, const char *program)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/setup.py", folder);
    if (ends_with(program, ".sh"))
        return START_SHELL;
    if (access(path, F_OK) == 0)
        return START_PACKAGE;
    return ends_with(program, ".py") ? START_SCRIPT : START_SHELL;
}

static enum shoal_status add_program(const struct start_facts *facts, enum start_entry entry,
                                     const char *python, json_t *words)
{
    char text[PATH_BYTES];
    const char *program = facts->program;
    if (entry == START_SHELL) {
        snprintf(text, sizeof(text), "%s%s", *program == '/' ? "" : "./", program);
        return start_add_text(words, text);
    }
    TRY(start_add_text(words, python));
    if (entry == START_SCRIPT)
        return start_add_text(words, program);
    TRY(start_add_text(words, "-m"));
    int length = (int)strlen(program) - (ends_with(program, ".py") ? 3 : 0);
    snprintf(text, sizeof(text), "%.*s", length, program);
    return start_add_text(words, text);
}

static enum shoal_status add_script(const struct start_facts *facts, enum start_entry entry,
                                    const char *python, struct start_command *command)
{
    json_t *arguments = json_array();
    command->shown = json_array();
    enum shoal_status status = add_program(facts, entry, python, command->shown);
    if (status == SHOAL_OK)
        status = start_facts_arguments(facts, arguments);
    if (status == SHOAL_OK && json_array_extend(command->shown, arguments) != 0)
        status = no_memory();
    json_decref(arguments);
    return status;
}

/* ---- mpirun's options ---- */

/* "-x NAME=VALUE" gives ranks a variable. */
static enum shoal_status take_export(const char *word, json_t *variables)
{
    const char *equals = strchr(word, '=');
    if (equals == NULL || equals == word)
        return SHOAL_OK; /* ranks have all variables */
    json_t *name = json_stringn(word, (size_t)(equals - word));
    enum shoal_status status =
        name != NULL ? start_put(variables, json_string_value(name), json_string(equals + 1))
                     : no_memory();
    json_decref(name);
    return status;
}

/* Options that are about mpirun itself have no meaning here; what they say is left out. */
static enum shoal_status take_options(const char *options, json_t *variables)
{
    char *copy, *rest = NULL;
    enum shoal_status status = SHOAL_OK;
    TRY(base_strdup(options, "options of mpirun", &copy));
    for (char *word = strtok_r(copy, " \t\n", &rest); word != NULL && status == SHOAL_OK;
         word = strtok_r(NULL, " \t\n", &rest)) {
        bool is_export = strcmp(word, "-x") == 0;
        if (!is_export && strcmp(word, "--NCCL_DEBUG") != 0)
            continue;
        char *value = strtok_r(NULL, " \t\n", &rest);
        if (value != NULL)
            status = is_export ? take_export(value, variables)
                               : start_put(variables, "NCCL_DEBUG", json_string(value));
    }
    base_free(copy);
    return status;
}

/* ---- TensorFlow's clusters ---- */

static int host_index(const struct start_facts *facts)
{
    const json_t *hosts = facts->distribution_hosts;
    for (size_t i = 0; i < json_array_size(hosts); i++)
        if (strcmp(json_string_value(json_array_get(hosts, i)), facts->host) == 0)
            return (int)i;
    return -1;
}

/* "algo-2:2222", ... of the hosts from `first` to before `end`. */
static json_t *addresses(const struct start_facts *facts, size_t first, size_t end, int port)
{
    json_t *list = json_array();
    for (size_t i = first; i < end; i++)
        json_array_append_new(
            list,
            json_sprintf("%s:%d", json_string_value(json_array_get(facts->distribution_hosts, i)),
                         port));
    return list;
}

static enum shoal_status put_cluster(const struct start_facts *facts, json_t *cluster,
                                     json_t *variables)
{
    int index = host_index(facts);
    bool mirrored = json_object_get(cluster, "master") == NULL;
    json_t *config = json_pack("{s:O, s:s, s:{s:i, s:s}}", "cluster", cluster, "environment",
                               "cloud", "task", "index", mirrored || index == 0 ? index : index - 1,
                               "type", mirrored || index > 0 ? "worker" : "master");
    if (config == NULL)
        return no_memory();
    enum shoal_status status = put_json(variables, "TF_CONFIG", config);
    json_decref(config);
    return status;
}

static enum shoal_status add_server(const struct start_facts *facts, const char *python,
                                    const json_t *cluster, struct start_command *command)
{
    char *text, index[16];
    command->background = json_array();
    snprintf(index, sizeof(index), "%d", host_index(facts));
    TRY(start_add_text(command->background, python));
    TRY(start_add_text(command->background, "-c"));
    TRY(start_add_text(command->background, server_program));
    TRY(start_text_json(cluster, &text));
    enum shoal_status status = start_add_text(command->background, text);
    base_free(text);
    return status == SHOAL_OK ? start_add_text(command->background, index) : status;
}

static enum shoal_status add_servers(const struct start_facts *facts, const char *python,
                                     json_t *variables, struct start_command *command)
{
    size_t count = json_array_size(facts->distribution_hosts);
    json_t *cluster = json_pack("{s:o, s:o, s:o}", "master", addresses(facts, 0, 1, MASTER_PORT),
                                "ps", addresses(facts, 0, count, SERVER_PORT), "worker",
                                addresses(facts, 1, count, MASTER_PORT));
    if (cluster == NULL)
        return no_memory();
    enum shoal_status status = put_cluster(facts, cluster, variables);
    if (status == SHOAL_OK)
        status = add_server(facts, python, cluster, command);
    json_decref(cluster);
    return status;
}

static enum shoal_status add_mirrored(const struct start_facts *facts, json_t *variables)
{
    size_t count = json_array_size(facts->distribution_hosts);
    json_t *cluster = json_pack("{s:o}", "worker", addresses(facts, 0, count, MIRRORED_PORT));
    if (cluster == NULL)
        return no_memory();
    enum shoal_status status = put_cluster(facts, cluster, variables);
    json_decref(cluster);
    return status;
}

/* ---- the launcher ---- */

static int ranks_per_host(const struct start_facts *facts)
{
    int count = start_facts_number(facts, START_MPI_RANKS);
    if (count == 0)
        count = facts->accelerator_count;
    return count > 0 ? count : 1;
}

static enum shoal_status write_resources(const struct start_facts *facts, const char *path)
{
    json_t *resources =
        json_pack("{s:s, s:O, s:s}", "current_host", facts->host, "hosts",
                  facts->distribution_hosts, "network_interface_name", facts->interface);
    int result = resources != NULL ? json_dump_file(resources, path, 0) : -1;
    json_decref(resources);
    return result == 0 ? SHOAL_OK : base_error(SHOAL_ERR_SYSTEM, "writing %s failed", path);
}

/* `with_rank`: ranks go through `shoal job-start --rank`, for variables that differ among them. */
static enum shoal_status add_launcher(int ranks, bool with_tags, bool with_rank, const char *path,
                                      struct start_command *command)
{
    char count[16];
    snprintf(count, sizeof(count), "%d", ranks);
    const char *const words[] = {
        START_PROGRAM, "run", "--sagemaker", "--resource-config",
        path,          "-n",  count,         with_tags ? "--tag" : "--no-tag",
        "--"};
    const char *const rank[] = {START_PROGRAM, JOB_START_COMMAND, "--rank", "--"};
    command->words = json_array();
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        TRY(start_add_text(command->words, words[i]));
    for (size_t i = 0; with_rank && i < sizeof(rank) / sizeof(rank[0]); i++)
        TRY(start_add_text(command->words, rank[i]));
    return json_array_extend(command->words, command->shown) == 0 ? SHOAL_OK : no_memory();
}

static enum shoal_status put_torch(const struct start_facts *facts, json_t *variables)
{
    const char *job = getenv("TRAINING_JOB_NAME");
    TRY(start_put(variables, "GROUP_RANK", json_sprintf("%d", host_index(facts))));
    TRY(start_put(variables, "GROUP_WORLD_SIZE",
                  json_sprintf("%zu", json_array_size(facts->distribution_hosts))));
    TRY(start_put(variables, "TORCHELASTIC_RUN_ID", json_string(job != NULL ? job : "none")));
    TRY(start_put(variables, "TORCHELASTIC_RESTART_COUNT", json_string("0")));
    TRY(start_put(variables, "TORCHELASTIC_MAX_RESTARTS", json_string("0")));
    return start_put(variables, "NCCL_PROTO", json_string("simple"));
}

static enum shoal_status make_torch(const struct start_facts *facts, enum start_entry entry,
                                    const char *path, json_t *variables,
                                    struct start_command *command)
{
    if (entry == START_PACKAGE)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "Python packages are not supported for torch_distributed. Please use a "
                          "python script as the entry-point");
    if (entry != START_SCRIPT)
        return base_error(SHOAL_ERR_ARGUMENT, "Unsupported entry point type for torch_distributed");
    TRY(put_torch(facts, variables));
    return add_launcher(ranks_per_host(facts), false, false, path, command);
}

/* As under mpirun. */
static enum shoal_status make_mpi(const struct start_facts *facts, const char *options,
                                  const char *path, json_t *variables,
                                  struct start_command *command)
{
    TRY(take_options(options, variables));
    return add_launcher(ranks_per_host(facts), true, true, path, command);
}

/* In the order in which the framework images look. */
static const char *find_way(const struct start_facts *facts)
{
    static const char *const ways[][2] = {{START_MPI, "mpi"},
                                          {START_PYTORCH_DDP, "pytorchddp"},
                                          {START_TORCH_DISTRIBUTED, "torch_distributed"},
                                          {START_DATA_PARALLEL, "smddp"},
                                          {START_PYTORCH_XLA, "pytorchxla"},
                                          {START_PARAMETER_SERVER, "parameter_server"},
                                          {START_MIRRORED, "multi_worker_mirrored_strategy"}};
    if (host_index(facts) < 0)
        return NULL;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (start_facts_enabled(facts, ways[i][0]))
            return ways[i][1];
    return NULL;
}

static enum shoal_status make_way(const struct start_facts *facts, enum start_entry entry,
                                  const char *python, const char *path, json_t *variables,
                                  struct start_command *command)
{
    const char *way = command->way;
    TRY(write_resources(facts, path));
    if (strcmp(way, "torch_distributed") == 0)
        return make_torch(facts, entry, path, variables, command);
    if (strcmp(way, "mpi") == 0)
        return make_mpi(facts, start_facts_text(facts, START_MPI_OPTIONS), path, variables,
                        command);
    if (strcmp(way, "smddp") == 0 || strcmp(way, "pytorchddp") == 0)
        return make_mpi(facts, start_facts_text(facts, START_DATA_OPTIONS), path, variables,
                        command);
    if (strcmp(way, "pytorchxla") == 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "the distribution pytorchxla is not there: this machine has no XLA "
                          "devices");
    if (strcmp(way, "parameter_server") == 0)
        TRY(add_servers(facts, python, variables, command));
    else
        TRY(add_mirrored(facts, variables));
    return add_launcher(1, false, false, path, command);
}

enum shoal_status start_command_make(const struct start_facts *facts, enum start_entry entry,
                                     const char *python, const char *resource_config,
                                     json_t *variables, struct start_command *out)
{
    struct start_command command = {.way = find_way(facts)};
    bool alone = json_array_size(facts->distribution_hosts) < 2;
    if (alone && command.way != NULL && strcmp(command.way, "parameter_server") == 0)
        command.way = NULL;
    enum shoal_status status = add_script(facts, entry, python, &command);
    if (status == SHOAL_OK && command.way != NULL)
        status = make_way(facts, entry, python, resource_config, variables, &command);
    else if (status == SHOAL_OK)
        command.words = json_incref(command.shown);
    if (status != SHOAL_OK) {
        start_command_release(&command);
        return status;
    }
    *out = command;
    return SHOAL_OK;
}

void start_command_release(struct start_command *command)
{
    json_decref(command->words);
    json_decref(command->shown);
    json_decref(command->background);
    *command = (struct start_command){0};
}

/* ---- a rank ---- */

void start_rank_variables(void)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_RANK", "RANK"},
                                           {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"},
                                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_NODE_RANK", "LOCAL_RANK"},
                                           {"SMDATAPARALLEL_LOCAL_RANK", "LOCAL_RANK"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i][1]);
        if (value != NULL)
            setenv(names[i][0], value, 0);
    }
}
