/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_process.c: see start_process.h. One thread; the child is told by a pidfd, for a pipe may be
 * held open by what the child has left behind.
 */
#include "job/start_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "launch/process.h"

#define CHUNK_BYTES (64 << 10)

struct child {
    pid_t pid;
    int pid_fd, output_fd, signal_fd; /* -1: none */
    struct start_tail *tail;
};

/* ---- lists ---- */

enum shoal_status start_list_words(const json_t *words, char ***out)
{
    TRY(BASE_NEW_ARRAY(out, json_array_size(words) + 1, "a command"));
    for (size_t i = 0; i < json_array_size(words); i++)
        (*out)[i] = (char *)json_string_value(json_array_get(words, i));
    return SHOAL_OK;
}

enum shoal_status start_list_variables(const json_t *variables, char ***out)
{
    char **list;
    size_t count = 0;
    const char *name;
    json_t *value;
    TRY(BASE_NEW_ARRAY(&list, json_object_size(variables) + 1, "an environment"));
    json_object_foreach((json_t *)variables, name, value)
    {
        size_t bytes = strlen(name) + strlen(json_string_value(value)) + 2;
        enum shoal_status status = base_alloc(bytes, "an environment", (void **)&list[count]);
        if (status != SHOAL_OK) {
            start_list_free(list);
            return status;
        }
        snprintf(list[count++], bytes, "%s=%s", name, json_string_value(value));
    }
    *out = list;
    return SHOAL_OK;
}

void start_list_free(char **list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        base_free(list[i]);
    base_free(list);
}

/* ---- the last of the output ---- */

static void keep(struct start_tail *tail, const char *text, size_t bytes)
{
    size_t room = sizeof(tail->text) - 1;
    if (bytes > room) {
        text += bytes - room;
        bytes = room;
    }
    if (tail->bytes + bytes > room) {
        size_t kept = room - bytes;
        memmove(tail->text, tail->text + tail->bytes - kept, kept);
        tail->bytes = kept;
    }
    memcpy(tail->text + tail->bytes, text, bytes);
    tail->bytes += bytes;
    tail->text[tail->bytes] = '\0';
}

const char *start_tail_lines(struct start_tail *tail, size_t bytes_max)
{
    while (tail->bytes > 0 &&
           (tail->text[tail->bytes - 1] == '\n' || tail->text[tail->bytes - 1] == ' '))
        tail->text[--tail->bytes] = '\0';
    if (tail->bytes <= bytes_max)
        return tail->text;
    const char *start = tail->text + tail->bytes - bytes_max;
    const char *line = strchr(start, '\n');
    return line != NULL ? line + 1 : start;
}

/* ---- starting ---- */

/* In the child. The error goes back through a pipe that a program would close. */
static void become(char *const *words, char *const *variables, const char *directory, int output_fd,
                   int report_fd) __attribute__((noreturn));
static void become(char *const *words, char *const *variables, const char *directory, int output_fd,
                   int report_fd)
{
    extern char **environ;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (output_fd >= 0) {
        dup2(output_fd, STDOUT_FILENO);
        dup2(output_fd, STDERR_FILENO);
    }
    environ = (char **)variables; /* execvp looks in its PATH */
    if (chdir(directory) == 0)
        execvp(words[0], words);
    int error_number = errno;
    ssize_t written = write(report_fd, &error_number, sizeof(error_number));
    _exit(written == (ssize_t)sizeof(error_number) ? LAUNCH_EXIT_NOT_FOUND
                                                   : LAUNCH_EXIT_NOT_EXECUTABLE);
}

/* The process, or -1 with errno. */
static pid_t spawn(char *const *words, char *const *variables, const char *directory, int output_fd)
{
    int report[2], error_number = 0;
    if (pipe2(report, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        become(words, variables, directory, output_fd, report[1]);
    close(report[1]);
    ssize_t got = pid > 0 ? read(report[0], &error_number, sizeof(error_number)) : 0;
    close(report[0]);
    if (got != (ssize_t)sizeof(error_number))
        return pid;
    waitpid(pid, NULL, 0);
    errno = error_number;
    return -1;
}

static pid_t spawn_lists(const json_t *words, const json_t *variables, const char *directory,
                         int output_fd)
{
    char **list = NULL, **environment = NULL;
    pid_t pid = -1;
    errno = ENOMEM;
    if (start_list_words(words, &list) == SHOAL_OK &&
        start_list_variables(variables, &environment) == SHOAL_OK)
        pid = spawn(list, environment, directory, output_fd);
    int error_number = errno;
    base_free(list);
    start_list_free(environment);
    errno = error_number;
    return pid;
}

int start_process_begin(const json_t *words, const json_t *variables, const char *directory)
{
    return spawn_lists(words, variables, directory, -1);
}

/* ---- watching ---- */

static void pass_output(struct child *child)
{
    static char chunk[CHUNK_BYTES];
    ssize_t got = read(child->output_fd, chunk, sizeof(chunk));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
        launch_fd_close(&child->output_fd);
        return;
    }
    for (ssize_t done = 0; done < got;) {
        ssize_t wrote = write(STDOUT_FILENO, chunk + done, (size_t)(got - done));
        if (wrote < 0 && errno != EINTR)
            break;
        done += wrote > 0 ? wrote : 0;
    }
    if (got > 0)
        keep(child->tail, chunk, (size_t)got);
}

static void pass_signal(struct child *child)
{
    struct signalfd_siginfo info;
    if (read(child->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        kill(child->pid, (int)info.ssi_signo);
}

/* What is in the pipe when the child has ended is still its own. */
static void drain(struct child *child)
{
    struct pollfd left = {child->output_fd, POLLIN, 0};
    while (child->output_fd >= 0 && poll(&left, 1, 0) > 0) {
        pass_output(child);
        left.fd = child->output_fd;
    }
}

static void watch(struct child *child)
{
    for (;;) {
        struct pollfd watched[3] = {{child->pid_fd, POLLIN, 0},
                                    {child->output_fd, POLLIN, 0},
                                    {child->signal_fd, POLLIN, 0}};
        if (poll(watched, 3, -1) < 0 && errno != EINTR)
            break;
        if (watched[2].revents != 0)
            pass_signal(child);
        if (watched[1].revents != 0)
            pass_output(child);
        if (watched[0].revents != 0)
            break;
    }
    drain(child);
}

static void take_signals(sigset_t *set)
{
    static const int passed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigemptyset(set);
    for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
        sigaddset(set, passed[i]);
    sigprocmask(SIG_BLOCK, set, NULL);
}

/* Until it has ended, which it does with us. */
static enum shoal_status hear(struct child *child, int *exit_code)
{
    int wait_status = 0;
    child->pid_fd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    if (child->pid_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening a process");
    watch(child);
    waitpid(child->pid, &wait_status, 0);
    *exit_code = launch_exit_code(wait_status);
    return SHOAL_OK;
}

enum shoal_status start_process_run(const json_t *words, const json_t *variables,
                                    const char *directory, struct start_tail *tail, int *exit_code)
{
    struct child child = {.pid_fd = -1, .output_fd = -1, .signal_fd = -1, .tail = tail};
    const char *name = json_string_value(json_array_get(words, 0));
    int output[2];
    sigset_t signals;
    if (pipe2(output, O_CLOEXEC) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making a pipe");
    take_signals(&signals);
    child.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    child.output_fd = output[0];
    child.pid = spawn_lists(words, variables, directory, output[1]);
    int error_number = errno;
    close(output[1]);
    enum shoal_status status = child.pid > 0 ? hear(&child, exit_code)
                                             : base_error_errno(SHOAL_ERR_SYSTEM, error_number,
                                                                "%s can't be started", name);
    sigprocmask(SIG_UNBLOCK, &signals, NULL);
    launch_fd_close(&child.pid_fd);
    launch_fd_close(&child.output_fd);
    launch_fd_close(&child.signal_fd);
    return status;
}
