/* SPDX-License-Identifier: Apache-2.0 */
/* run.c: `shoal run`: starts a program as many ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/options.h"
#include "base/status.h"
#include "launch/launch.h"
#include "launch/sagemaker.h"

#define PORT_MAX                 65535
#define MODEL_PARALLEL_VARIABLE  "SM_HP_MP_PARAMETERS"
#define FRAMEWORK_VARIABLE       "SM_FRAMEWORK_PARAMS"
#define MODEL_PARALLEL_BYTES_MAX 65536

int cmd_run(int argc, char **argv);

enum {
    RUN_RANKS,
    RUN_HOSTS,
    RUN_HOSTFILE,
    RUN_SERVERS,
    RUN_SERVER_HOSTS,
    RUN_AGENT,
    RUN_REMOTE_SHOAL,
    RUN_INTERFACE,
    RUN_ENV,
    RUN_WDIR,
    RUN_TIMEOUT,
    RUN_START_TIMEOUT,
    RUN_GRACE,
    RUN_TAG,
    RUN_NO_TAG,
    RUN_JSON,
    RUN_QUIET,
    RUN_STORE_PORT,
    RUN_MASTER_PORT,
    RUN_SAGEMAKER,
    RUN_RESOURCE_CONFIG,
    RUN_MODEL_PARALLEL,
    RUN_HELP,
    RUN_COUNT
};

static const struct argument table[RUN_COUNT] = {
    [RUN_RANKS] = {"ranks", 'n', "N", "number of ranks (default: one for each slot of the hosts)"},
    [RUN_HOSTS] = {"hosts", 'H', "LIST", "hosts with their slots: a:2,b:2,[fd00::1]:4"},
    [RUN_HOSTFILE] = {"hostfile", 0, "FILE",
                      "hosts from a file, one per line: `a slots=2` or `a:2`"},
    [RUN_SERVERS] = {"servers", 0, "K",
                     "processes that sum large buffers for the ranks (default: one for each slot\n"
                     "of --server-hosts, else none)"},
    [RUN_SERVER_HOSTS] = {"server-hosts", 0, "LIST",
                          "hosts of the servers, with slots as in --hosts (default: the ranks')"},
    [RUN_AGENT] = {"agent", 0, "COMMAND",
                   "how to start a program on another host (default '" LAUNCH_AGENT_DEFAULT "');\n"
                   "for example 'ip netns exec {host}' or 'shoal vhosts-exec {host} --'"},
    [RUN_REMOTE_SHOAL] = {"remote-shoal", 0, "PATH",
                          "this program on the other hosts (default: the path it has here)"},
    [RUN_INTERFACE] = {"interface", 0, "NAME",
                       "network by which the hosts reach each other: an interface (eth1) or the\n"
                       "beginning of an address (10.0.) (default: what answers); several with\n"
                       "commas are used together: eth0,eth1"},
    [RUN_ENV] = {"env", 'x', "NAME=VALUE", "a variable for the ranks; may be given often"},
    [RUN_WDIR] = {"wdir", 0, "DIR", "where the ranks work, on every host (default: here)"},
    [RUN_TIMEOUT] = {"timeout", 0, "SECONDS", "end the job after this time, with status 124"},
    [RUN_START_TIMEOUT] = {"start-timeout", 0, "SECONDS",
                           "longest time until all ranks run (default 60)"},
    [RUN_GRACE] = {"grace", 0, "SECONDS",
                   "from SIGTERM to SIGKILL when ranks are ended (default 5)"},
    [RUN_TAG] = {"tag", 0, NULL, "put the rank before each line of output (the default)"},
    [RUN_NO_TAG] = {"no-tag", 0, NULL, "leave the output as it is"},
    [RUN_JSON] = {"json", 0, NULL,
                  "output and events as JSON lines on stdout: start, output, exit, note, end"},
    [RUN_QUIET] = {"quiet", 'q', NULL,
                   "of shoal's own lines only the last, which says what failed"},
    [RUN_STORE_PORT] = {"store-port", 0, "PORT", "where the ranks meet (default: any free port)"},
    [RUN_MASTER_PORT] = {"master-port", 0, "PORT",
                         "MASTER_PORT for PyTorch's own store (default: free on rank 0's host)"},
    [RUN_SAGEMAKER] = {"sagemaker", 0, NULL,
                       "every host of a SageMaker job runs this same command: -n ranks on each,\n"
                       "without an agent; the hosts come from resourceconfig.json"},
    [RUN_RESOURCE_CONFIG] = {"resource-config", 0, "FILE",
                             "another resourceconfig.json, for --sagemaker"},
    [RUN_MODEL_PARALLEL] = {"model-parallel", 0, "JSON",
                            "configuration of smdistributed.modelparallel, or the file that has\n"
                            "it: '{\"partitions\": 2, \"microbatches\": 4}'"},
    [RUN_HELP] = {"help", 'h', NULL, "this text"},
};

struct run {
    struct launch_options options;
    struct launch_hosts hosts, server_hosts;
    struct launch_variables variables;
    bool sagemaker, help;
    const char *resource_config;
};

static void help_print(void)
{
    printf(
        "usage: shoal run [OPTION...] [--] PROGRAM [ARGUMENT...]\n\n"
        "Starts PROGRAM as ranks 0 to N-1, on this host and on others, shows their output with\n"
        "the rank before each line, passes signals on, and ends all when one of them fails.\n\n");
    arguments_help(table, RUN_COUNT, stdout);
    printf(
        "\nEvery row of `shoal info --options` is an option too: --timeout-ms 60000 sets\n"
        "SHOAL_TIMEOUT_MS for the ranks.\n\n"
        "The ranks get this environment (without HOME and what else describes a login), and RANK,\n"
        "LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SHOAL_RANK,\n"
        "SHOAL_SIZE, SHOAL_STORE, SHOAL_SECRET, SHOAL_LOCAL_RANK, SHOAL_LOCAL_SIZE and\n"
        "SHOAL_LAUNCHED_BY=shoal. OMP_NUM_THREADS, where unset, becomes the host's cores divided\n"
        "by its ranks (torchrun sets 1). stdin goes to rank 0.\n\n"
        "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP and SIGCONT are passed on; a\n"
        "second one of the first four kills the ranks.\n\n"
        "Exit status: 0; the code of the first rank that failed, 128 + signal if one killed it;\n"
        "124 after --timeout, 125 when ranks could not be started or watched, 126 or 127 when\n"
        "PROGRAM cannot be executed or is not there, 2 for wrong arguments.\n\n"
        "Examples:\n"
        "  shoal run -n 2 -- python train.py\n"
        "  shoal run --hosts node1:8,node2:8 -- python train.py --epochs 3\n");
}

static enum shoal_status hosts_set(struct run *run)
{
    return run->hosts.count == 0
               ? SHOAL_OK
               : base_error(SHOAL_ERR_ARGUMENT, "the hosts are given twice (--hosts, --hostfile)");
}

static enum shoal_status port_read(const char *name, const char *text, int *port)
{
    long number = 0;
    TRY(argument_number(name, text, 1, PORT_MAX, &number));
    *port = (int)number;
    return SHOAL_OK;
}

static enum shoal_status count_read(const char *name, const char *text, int *count)
{
    long number = 0;
    TRY(argument_number(name, text, 1, LAUNCH_RANKS_MAX, &number));
    *count = (int)number;
    return SHOAL_OK;
}

static enum shoal_status server_hosts_read(struct run *run, const char *text)
{
    launch_hosts_release(&run->server_hosts);
    return launch_hosts_parse(text, &run->server_hosts);
}

/* A row of the table of options: checked here, then a variable of the ranks. */
static enum shoal_status option_set(struct run *run, int row, const char *value)
{
    int64_t ignored = 0;
    TRY(base_option_parse((enum base_option_id)row, value, &ignored));
    return launch_variables_set(&run->variables, base_options()[row].name, value);
}

/* Hugging Face's Trainer looks into the second variable too, whether mpirun has started it. */
static enum shoal_status model_parallel_pass(struct run *run, const char *json)
{
    TRY(launch_variables_set(&run->variables, MODEL_PARALLEL_VARIABLE, json));
    if (getenv(FRAMEWORK_VARIABLE) || launch_variables_get(&run->variables, FRAMEWORK_VARIABLE))
        return SHOAL_OK;
    return launch_variables_set(&run->variables, FRAMEWORK_VARIABLE,
                                "{\"sagemaker_mpi_enabled\": true}");
}

/* JSON, or the name of the file that has it; the ranks check what it says. */
static enum shoal_status model_parallel_set(struct run *run, const char *value)
{
    char text[MODEL_PARALLEL_BYTES_MAX];
    if (value[strspn(value, " \t\n")] == '{')
        return model_parallel_pass(run, value);
    FILE *file = fopen(value, "re");
    if (!file)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "--model-parallel: %s is neither JSON, which begins with {, nor a file "
                          "that can be read: %s",
                          value, strerror(errno));
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    bool whole = feof(file) && !ferror(file);
    fclose(file);
    text[bytes] = '\0';
    if (!whole || text[strspn(text, " \t\n")] != '{')
        return base_error(SHOAL_ERR_ARGUMENT,
                          "--model-parallel: %s does not have JSON, which begins with {, of less "
                          "than %d bytes",
                          value, MODEL_PARALLEL_BYTES_MAX);
    return model_parallel_pass(run, text);
}

static enum shoal_status argument_use(struct run *run, int id, const char *value)
{
    struct launch_options *options = &run->options;
    switch (id) {
    case RUN_RANKS: return count_read("-n", value, &options->rank_count);
    case RUN_HOSTS: TRY(hosts_set(run)); return launch_hosts_parse(value, &run->hosts);
    case RUN_HOSTFILE: TRY(hosts_set(run)); return launch_hosts_read(value, &run->hosts);
    case RUN_SERVERS: return count_read("--servers", value, &options->server_count);
    case RUN_SERVER_HOSTS: return server_hosts_read(run, value);
    case RUN_AGENT: options->agent = value; break;
    case RUN_REMOTE_SHOAL: options->remote_shoal = value; break;
    case RUN_INTERFACE: options->interface = value; return option_set(run, OPTION_INTERFACE, value);
    case RUN_ENV: return launch_variables_put(&run->variables, value);
    case RUN_WDIR: options->directory = value; break;
    case RUN_TIMEOUT: return argument_seconds("--timeout", value, &options->timeout_ms);
    case RUN_START_TIMEOUT:
        return argument_seconds("--start-timeout", value, &options->start_timeout_ms);
    case RUN_GRACE: return argument_seconds("--grace", value, &options->grace_ms);
    case RUN_TAG: options->form = LAUNCH_LINES_TAG; break;
    case RUN_NO_TAG: options->form = LAUNCH_LINES_PLAIN; break;
    case RUN_JSON: options->form = LAUNCH_LINES_JSON; break;
    case RUN_QUIET: options->quiet = true; break;
    case RUN_STORE_PORT: return port_read("--store-port", value, &options->store_port);
    case RUN_MASTER_PORT: return port_read("--master-port", value, &options->master_port);
    case RUN_SAGEMAKER: run->sagemaker = true; break;
    case RUN_RESOURCE_CONFIG: run->resource_config = value; break;
    case RUN_MODEL_PARALLEL: return model_parallel_set(run, value);
    default: run->help = true; break;
    }
    return SHOAL_OK;
}

static enum shoal_status arguments_read(struct run *run, int argc, char **argv)
{
    struct arguments arguments = {.command = "run",
                                  .table = table,
                                  .count = RUN_COUNT,
                                  .with_options = true,
                                  .argc = argc,
                                  .argv = argv,
                                  .at = 1};
    for (;;) {
        int id = 0;
        const char *value = NULL;
        TRY(arguments_next(&arguments, &id, &value));
        if (id == ARGUMENTS_END)
            break;
        if (id == ARGUMENTS_OPTION)
            TRY(option_set(run, arguments.option, value));
        else
            TRY(argument_use(run, id, value));
    }
    run->options.argv = argv + arguments.at;
    return SHOAL_OK;
}

static enum shoal_status run_check(struct run *run)
{
    if (*run->options.argv == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "which program? shoal run -n N -- PROGRAM");
    if (run->options.rank_count == 0 && run->hosts.count == 0 && !run->sagemaker)
        return base_error(SHOAL_ERR_ARGUMENT, "how many ranks? give -n N or --hosts");
    if (run->sagemaker && (run->hosts.count > 0 || run->options.agent != NULL))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "--sagemaker takes its hosts from resourceconfig.json; leave --hosts, "
                          "--hostfile and --agent out");
    if (run->options.server_count == 0)
        run->options.server_count = launch_hosts_slots(&run->server_hosts);
    if (run->sagemaker && run->options.server_count > 0)
        return base_error(
            SHOAL_ERR_ARGUMENT,
            "--servers does not go with --sagemaker: every host of such a job runs this "
            "command and gets ranks, so none is left that brings another port; for K "
            "servers elsewhere give --env SHOAL_SERVERS=K and start them by "
            "`shoal reduce-server`");
    if (run->resource_config != NULL && !run->sagemaker)
        return base_error(SHOAL_ERR_ARGUMENT, "--resource-config goes with --sagemaker");
    return SHOAL_OK;
}

static int fail(int exit_code)
{
    fprintf(stderr, "shoal run: %s\n", base_error_text());
    return exit_code;
}

static int run_job(struct run *run)
{
    int exit_code = 0;
    enum shoal_status status =
        run->sagemaker ? launch_sagemaker(&run->options, run->resource_config, &exit_code)
                       : launch_run(&run->options, &exit_code);
    if (status == SHOAL_OK)
        return exit_code;
    bool usage = status == SHOAL_ERR_OPTION || status == SHOAL_ERR_ARGUMENT;
    return fail(usage ? EXIT_USAGE : LAUNCH_EXIT_LAUNCH);
}

int cmd_run(int argc, char **argv)
{
    struct run run = {.options = {.grace_ms = LAUNCH_GRACE_MS_DEFAULT,
                                  .start_timeout_ms = LAUNCH_START_TIMEOUT_DEFAULT}};
    int exit_code = 0;
    run.options.hosts = &run.hosts;
    run.options.server_hosts = &run.server_hosts;
    run.options.variables = &run.variables;
    enum shoal_status status = arguments_read(&run, argc, argv);
    if (status == SHOAL_OK && !run.help)
        status = run_check(&run);
    if (status != SHOAL_OK)
        exit_code = fail(EXIT_USAGE);
    else if (run.help)
        help_print();
    else
        exit_code = run_job(&run);
    launch_hosts_release(&run.hosts);
    launch_hosts_release(&run.server_hosts);
    launch_variables_release(&run.variables);
    return exit_code;
}
