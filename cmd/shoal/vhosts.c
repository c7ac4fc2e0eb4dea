/* SPDX-License-Identifier: Apache-2.0 */
/* vhosts.c: `shoal vhosts`: runs a command beside virtual hosts, which go when it ends. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "virtual_hosts.h"

int cmd_vhosts(int argc, char **argv);

static const char help_text[] =
    "usage: shoal vhosts -n COUNT [--rate RATE] [--] COMMAND [ARGUMENT...]\n"
    "\n"
    "Makes COUNT virtual hosts on this machine, runs COMMAND beside them, and removes them when "
    "it\n"
    "ends. Each has its own network, host name, IPC, processes, /proc and /dev/shm. Needs root "
    "and\n"
    "iproute2. Nothing stays behind, however this program ends.\n"
    "\n"
    "  -n, --hosts COUNT   number of hosts, 1 to 250, called vh0, vh1, ...\n"
    "  -r, --rate RATE     what each host's link carries in each direction, for example 1gbit,\n"
    "                      250mbit; none: no limit (default 1gbit)\n"
    "  -h, --help          this text\n"
    "\n"
    "COMMAND runs in the head, a host without a limit that sees all others: 10.77.0.1, vhead. It\n"
    "finds the names in SHOAL_VHOSTS (\"vh0 vh1 ...\") and starts programs in them by\n"
    "`shoal vhosts-exec HOST`, which takes the place of ssh. Examples:\n"
    "\n"
    "  shoal vhosts -n 2 -- shoal vhosts-exec vh1 -- ip addr\n"
    "  shoal vhosts -n 4 --rate 1gbit -- \\\n"
    "      shoal run --hosts vh0,vh1,vh2,vh3 --agent 'shoal vhosts-exec {host}' -- program\n"
    "\n"
    "The exit status is COMMAND's; 128 and the signal's number if a signal ended it.\n";

struct vhosts_arguments {
    int count;
    uint64_t rate_bits_per_s;
    char **command;
};

static enum shoal_status parse_count(const char *text, int *out)
{
    char *end;
    long count = strtol(text, &end, 10);
    if (end == text || *end != '\0' || count < 1 || count > VHOSTS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "-n %s: give a number of hosts, 1 to %d", text,
                          VHOSTS_MAX);
    *out = (int)count;
    return SHOAL_OK;
}

/* *help is set when the text was asked for. */
static enum shoal_status parse_arguments(int argc, char **argv, struct vhosts_arguments *arguments,
                                         int *help)
{
    static const struct option options[] = {{"hosts", required_argument, NULL, 'n'},
                                            {"rate", required_argument, NULL, 'r'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int letter;
    *arguments = (struct vhosts_arguments){.rate_bits_per_s = 1000000000};
    optind = 0;
    opterr = 0;
    while ((letter = getopt_long(argc, argv, "+n:r:h", options, NULL)) != -1) {
        switch (letter) {
        case 'n': TRY(parse_count(optarg, &arguments->count)); break;
        case 'r': TRY(vhosts_parse_rate(optarg, &arguments->rate_bits_per_s)); break;
        case 'h': *help = 1; return SHOAL_OK;
        default:
            return base_error(SHOAL_ERR_ARGUMENT, "unknown or incomplete option '%s'",
                              argv[optind - 1]);
        }
    }
    arguments->command = argv + optind;
    if (arguments->count == 0)
        return base_error(SHOAL_ERR_ARGUMENT, "-n COUNT is missing");
    if (arguments->command[0] == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "the command is missing");
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
    TRY(vhosts_create(arguments->count, arguments->rate_bits_per_s, &vhosts));
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
    int help = 0, wait_status = 0;
    enum shoal_status status = parse_arguments(argc, argv, &arguments, &help);
    if (help) {
        fputs(help_text, stdout);
        return 0;
    }
    if (status != SHOAL_OK) {
        fprintf(stderr, "shoal vhosts: %s; see shoal vhosts --help\n", base_error_text());
        return 2;
    }
    if (run_beside_hosts(&arguments, &wait_status) != SHOAL_OK) {
        fprintf(stderr, "shoal vhosts: %s\n", base_error_text());
        return 1;
    }
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}
