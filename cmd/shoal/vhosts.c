/* SPDX-License-Identifier: Apache-2.0 */
/* vhosts.c: `shoal vhosts`: runs a command beside virtual hosts, which go when it ends. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"
#include "base/status.h"
#include "virtual_hosts.h"

#define RATE_DEFAULT UINT64_C(1000000000)

int cmd_vhosts(int argc, char **argv);

enum { VHOSTS_HOSTS, VHOSTS_RATE, VHOSTS_LINKS, VHOSTS_HELP, VHOSTS_COUNT };

static const struct argument table[VHOSTS_COUNT] = {
    [VHOSTS_HOSTS] = {"hosts", 'n', "N", "number of hosts, 1 to 250, called vh0, vh1, ..."},
    [VHOSTS_RATE] = {"rate", 'r', "RATE",
                     "what each host's link carries in each direction: 1gbit (default), 250mbit,\n"
                     "...; none: no limit; 250mbit,1gbit: the first host's, and all others'"},
    [VHOSTS_LINKS] =
        {"links", 0, "L",
         "interfaces of each host, 1 to 8 (default 1): eth0, eth1, ..., each with RATE "
         "on\na network of its own, 10.77.0.0/16, 10.78.0.0/16, ..."},
    [VHOSTS_HELP] = {"help", 'h', NULL, "this text"},
};

struct vhosts_arguments {
    int count, links;
    struct vhosts_rates rates;
    char **command;
    bool help;
};

static void print_help(void)
{
    printf("usage: shoal vhosts -n N [--rate RATE] [--links L] [--] COMMAND [ARGUMENT...]\n\n"
           "Makes N virtual hosts on this machine, runs COMMAND beside them, and removes them when "
           "it\n"
           "ends. Each has its own network, host name, IPC, processes, /proc, /sys and /dev/shm. "
           "Needs\n"
           "root and iproute2. Nothing stays behind, however this program ends.\n\n");
    arguments_help(table, VHOSTS_COUNT, stdout);
    printf("\nCOMMAND runs in the head, a host without a limit that sees all others: 10.77.0.1, "
           "vhead.\n"
           "It finds the names in SHOAL_VHOSTS (\"vh0 vh1 ...\") and starts programs in them by\n"
           "`shoal vhosts-exec HOST`, which takes the place of ssh. Examples:\n"
           "  shoal vhosts -n 2 -- shoal vhosts-exec vh1 -- ip addr\n"
           "  shoal vhosts -n 4 --rate 1gbit -- shoal run --hosts vh0,vh1,vh2,vh3 \\\n"
           "      --agent 'shoal vhosts-exec {host} --' -- program\n\n"
           "The exit status is COMMAND's; 128 and the signal's number if a signal ended it.\n");
}

static enum shoal_status count_read(const char *name, const char *text, int most, int *count)
{
    long number = 0;
    TRY(argument_number(name, text, 1, most, &number));
    *count = (int)number;
    return SHOAL_OK;
}

static enum shoal_status parse_arguments(int argc, char **argv, struct vhosts_arguments *out)
{
    struct arguments arguments = {.command = "vhosts",
                                  .table = table,
                                  .count = VHOSTS_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .at = 1};
    *out = (struct vhosts_arguments){.links = 1, .rates = {1, {RATE_DEFAULT}}};
    for (int id = 0; id != ARGUMENTS_END;) {
        const char *value = NULL;
        TRY(arguments_next(&arguments, &id, &value));
        if (id == VHOSTS_HOSTS)
            TRY(count_read("-n", value, VHOSTS_MAX, &out->count));
        else if (id == VHOSTS_LINKS)
            TRY(count_read("--links", value, VHOSTS_LINKS_MAX, &out->links));
        else if (id == VHOSTS_RATE)
            TRY(vhosts_parse_rates(value, &out->rates));
        else if (id == VHOSTS_HELP)
            out->help = true;
    }
    out->command = argv + arguments.at;
    if (!out->help && out->count == 0)
        return base_error(SHOAL_ERR_ARGUMENT, "how many hosts? give -n N");
    if (!out->help && out->command[0] == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "which command? shoal vhosts -n N -- COMMAND");
    return SHOAL_OK;
}

static volatile sig_atomic_t command_pid;

static void pass_signal_on(int number)
{
    if (command_pid > 0)
        kill((pid_t)command_pid, number);
}

/* The terminal sends SIGINT to the command as well; others are passed on. */
static void set_signals(void)
{
    struct sigaction action = {.sa_handler = pass_signal_on};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
}

static void reset_signals(void)
{
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
}

static enum shoal_status run_beside_hosts(const struct vhosts_arguments *arguments,
                                          int *wait_status)
{
    struct vhosts *vhosts;
    pid_t pid;
    TRY(vhosts_create(arguments->count, arguments->links, &arguments->rates, &vhosts));
    enum shoal_status status = vhosts_export(vhosts);
    if (status == SHOAL_OK)
        status = vhosts_spawn(vhosts, VHOSTS_HEAD, arguments->command, NULL, NULL, &pid);
    if (status == SHOAL_OK) {
        command_pid = pid;
        set_signals();
        while (waitpid(pid, wait_status, 0) < 0 && errno == EINTR)
            continue;
        command_pid = 0;
        reset_signals();
    }
    vhosts_free(vhosts);
    return status;
}

int cmd_vhosts(int argc, char **argv)
{
    struct vhosts_arguments arguments;
    int wait_status = 0;
    if (parse_arguments(argc, argv, &arguments) != SHOAL_OK) {
        fprintf(stderr, "shoal vhosts: %s\n", base_error_text());
        return EXIT_USAGE;
    }
    if (arguments.help) {
        print_help();
        return 0;
    }
    if (run_beside_hosts(&arguments, &wait_status) != SHOAL_OK) {
        fprintf(stderr, "shoal vhosts: %s\n", base_error_text());
        return 1;
    }
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}
