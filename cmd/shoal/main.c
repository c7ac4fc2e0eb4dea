/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: `shoal`: finds the subcommand. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "base/options.h"
#include "shoal.h"

int cmd_run(int argc, char **argv);
int cmd_run_agent(int argc, char **argv);
int cmd_job_supervisor(int argc, char **argv);
int cmd_job_start(int argc, char **argv);
int cmd_channel_feed(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_plan_model(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_reduce_server(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_submit(int argc, char **argv);
int cmd_jobs(int argc, char **argv);
int cmd_describe(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_s3(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_start_rank(int argc, char **argv);
int cmd_tune_rank(int argc, char **argv);
int cmd_vhosts(int argc, char **argv);
int cmd_vhosts_exec(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* NULL: called by shoal itself */
} commands[] = {
    {"run", cmd_run, "start a program as many ranks, here and on other hosts"},
    {"reduce-server", cmd_reduce_server, "sum large buffers for the ranks of a job"},
    {"serve", cmd_serve, "the job service: run what the SageMaker SDK asks for on this machine"},
    {"env", cmd_env, "print the variables that make a shell a client of the job service"},
    {"submit", cmd_submit, "run a script as a training job of the job service"},
    {"jobs", cmd_jobs, "list training jobs"},
    {"describe", cmd_describe, "show a training job: status, reasons, data, metrics"},
    {"logs", cmd_logs, "print what a training job prints"},
    {"stop", cmd_stop, "end training jobs"},
    {"s3", cmd_s3, "list, copy and remove buckets' objects, here and elsewhere"},
    {"bench", cmd_bench, "measure an operation between ranks"},
    {"plan", cmd_plan, "show the schedule of an operation: steps, bytes and predicted time"},
    {"plan-model", cmd_plan_model, "cut a model over devices: balance, memory, pipelines, layouts"},
    {"sim", cmd_sim, "simulate an operation on up to 4096 hosts"},
    {"tune", cmd_tune, "measure this machine's best thresholds, for later runs"},
    {"info", cmd_info, "show version, machine, libraries and options"},
    {"vhosts", cmd_vhosts, "make virtual hosts on this machine (root)"},
    {"vhosts-exec", cmd_vhosts_exec, "run a program in a virtual host"},
    {"run-agent", cmd_run_agent, NULL},
    {"job-supervisor", cmd_job_supervisor, NULL},
    {"job-start", cmd_job_start, NULL},
    {"channel-feed", cmd_channel_feed, NULL},
    {"start-rank", cmd_start_rank, NULL},
    {"tune-rank", cmd_tune_rank, NULL},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *out)
{
    fprintf(out, "usage: shoal COMMAND [ARGUMENT...]\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (commands[i].help != NULL)
            fprintf(out, "  %-13s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\n  shoal help COMMAND   what a command takes\n"
                 "  shoal --version      shoal's version\n");
}

static int unknown(const char *name)
{
    const char *names[COMMAND_COUNT];
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i].name;
    const char *nearest = base_nearest(name, names, COMMAND_COUNT);
    fprintf(stderr, "shoal: there is no command '%s'", name);
    if (nearest != NULL)
        fprintf(stderr, "; did you mean '%s'?\n", nearest);
    else
        fprintf(stderr, " (see shoal --help)\n");
    return EXIT_USAGE;
}

static int command_run(int argc, char **argv)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, argv[0]) == 0)
            return commands[i].run(argc, argv);
    return unknown(argv[0]);
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        usage(stdout);
        return 0;
    }
    char flag[] = "--help";
    char *arguments[] = {argv[1], flag, NULL};
    return command_run(2, arguments);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    const char *first = argv[1];
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) {
        printf("shoal %s\n", shoal_version());
        return 0;
    }
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 || strcmp(first, "help") == 0)
        return help(argc - 1, argv + 1);
    return command_run(argc - 1, argv + 1);
}
