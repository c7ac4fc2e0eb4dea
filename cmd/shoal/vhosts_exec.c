/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vhosts_exec.c: `shoal vhosts-exec`: runs a program in a virtual host; takes the place of ssh.
 *
 * Behind "--" the words are a program and its arguments. Without it they are joined by blanks and
 * given to /bin/sh, as ssh does with its command: launchers that were written for ssh rely on that.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "virtual_hosts.h"

int cmd_vhosts_exec(int argc, char **argv);

static const char help_text[] =
    "usage: shoal vhosts-exec HOST -- PROGRAM [ARGUMENT...]\n"
    "       shoal vhosts-exec HOST COMMAND...\n"
    "\n"
    "Runs a program in a virtual host that `shoal vhosts` made; only in a command that it "
    "started.\n"
    "The second form gives the words, joined by blanks, to /bin/sh, as ssh does, so that this can\n"
    "stand where a launcher expects ssh. Signals are passed on; the program is killed when this "
    "one\n"
    "ends. The exit status is the program's; 128 and the signal's number if a signal ended it.\n"
    "\n"
    "  HOST         vh0, vh1, ..., or vhead\n"
    "  -h, --help   this text\n";

static volatile sig_atomic_t program_pid;

static void pass_signal_on(int number)
{
    if (program_pid > 0)
        kill((pid_t)program_pid, number);
}

static void set_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};
    struct sigaction action = {.sa_handler = pass_signal_on};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
}

/* The words as one line for /bin/sh. Freed by base_free. */
static enum shoal_status join_words(char **words, char **out)
{
    size_t bytes = 1;
    char *line;
    for (int i = 0; words[i] != NULL; i++)
        bytes += strlen(words[i]) + 1;
    TRY(BASE_NEW_ARRAY(&line, bytes, "a command line"));
    char *end = line;
    for (int i = 0; words[i] != NULL; i++) {
        if (i > 0)
            *end++ = ' ';
        end = stpcpy(end, words[i]);
    }
    *out = line;
    return SHOAL_OK;
}

/* A program that stops (SIGSTOP, SIGTSTP) stays stopped until it is continued; only its end counts.
 */
static enum shoal_status run_program(const char *host_name, char *const argv[], int *wait_status)
{
    struct vhosts *vhosts;
    int host;
    pid_t pid;
    TRY(vhosts_attach(&vhosts));
    enum shoal_status status = vhosts_find(vhosts, host_name, &host);
    if (status == SHOAL_OK)
        status = vhosts_spawn(vhosts, host, argv, NULL, NULL, &pid);
    vhosts_free(vhosts);
    TRY(status);
    program_pid = pid;
    set_signals();
    while (waitpid(pid, wait_status, 0) < 0 && errno == EINTR)
        continue;
    return SHOAL_OK;
}

static enum shoal_status run_words(char **argv, int *wait_status)
{
    if (strcmp(argv[2], "--") == 0)
        return run_program(argv[1], argv + 3, wait_status);
    char *line;
    TRY(join_words(argv + 2, &line));
    char *const shell[] = {(char *)"/bin/sh", (char *)"-c", line, NULL};
    enum shoal_status status = run_program(argv[1], shell, wait_status);
    base_free(line);
    return status;
}

int cmd_vhosts_exec(int argc, char **argv)
{
    int wait_status = 0;
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help_text, stdout);
        return 0;
    }
    if (argc < 3 || (strcmp(argv[2], "--") == 0 && argc < 4) || argv[1][0] == '-') {
        fprintf(stderr, "shoal vhosts-exec: give a host and a program; see shoal vhosts-exec "
                        "--help\n");
        return 2;
    }
    if (run_words(argv, &wait_status) != SHOAL_OK) {
        fprintf(stderr, "shoal vhosts-exec: %s\n", base_error_text());
        return 255;
    }
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}
