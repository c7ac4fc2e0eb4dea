/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_ranks.c: the ranks that one agent has started.
 *
 * Of ranks that are found dead at the same time, those that a signal killed are reported first:
 * their peers die of their death soon after, and the order of reaping says nothing.
 */
#include "launch/agent_ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "launch/message.h"
#include "launch/survey.h"

#define READ_BYTES  65536
#define DRAIN_READS 64 /* at most, of one pipe of a rank that has ended */

/* ---- output ---- */

/* One read; *more false when there was nothing. Closes the pipe at its end. */
static enum shoal_status output_read(struct agent_rank *rank, int *fd, int stream, bool *more)
{
    static unsigned char buffer[READ_BYTES];
    ssize_t count = read(*fd, buffer, sizeof(buffer));
    *more = count > 0;
    if (count > 0)
        return launch_message_put_raw(rank->reports, LAUNCH_OUTPUT, rank->rank, (uint32_t)stream,
                                      buffer, (size_t)count);
    if (count == 0 || (errno != EAGAIN && errno != EINTR))
        launch_fd_close(fd);
    return SHOAL_OK;
}

static enum shoal_status out_ready(void *owner, short events)
{
    struct agent_rank *rank = owner;
    bool more = false;
    (void)events;
    return output_read(rank, &rank->process.out, STDOUT_FILENO, &more);
}

static enum shoal_status err_ready(void *owner, short events)
{
    struct agent_rank *rank = owner;
    bool more = false;
    (void)events;
    return output_read(rank, &rank->process.err, STDERR_FILENO, &more);
}

static enum shoal_status rank_drain(struct agent_rank *rank)
{
    int *pipes[] = {&rank->process.out, &rank->process.err};
    for (int i = 0; i < 2; i++) {
        bool more = true;
        for (int reads = 0; more && reads < DRAIN_READS && *pipes[i] >= 0; reads++)
            TRY(output_read(rank, pipes[i], STDOUT_FILENO + i, &more));
    }
    return SHOAL_OK;
}

enum shoal_status launch_agent_ranks_drain(struct agent_ranks *ranks)
{
    for (int i = 0; i < ranks->count; i++)
        TRY(rank_drain(&ranks->ranks[i]));
    return SHOAL_OK;
}

/* ---- input ---- */

static enum shoal_status input_ready(void *owner, short events)
{
    struct agent_ranks *ranks = owner;
    int *fd = &ranks->ranks[0].process.in;
    size_t waiting = launch_bytes_count(&ranks->input);
    ssize_t written = 0;
    (void)events;
    if (waiting > 0)
        written = write(*fd, launch_bytes_front(&ranks->input), waiting);
    if (written < 0 && (errno == EAGAIN || errno == EINTR))
        return SHOAL_OK;
    if (written < 0) { /* the rank reads no more */
        launch_fd_close(fd);
        launch_bytes_take(&ranks->input, waiting);
        return launch_message_put(ranks->reports, LAUNCH_INPUT_TAKEN, 1, 0, NULL);
    }
    launch_bytes_take(&ranks->input, (size_t)written);
    if (ranks->input_ended && (size_t)written == waiting)
        launch_fd_close(fd);
    if (written == 0)
        return SHOAL_OK;
    return launch_message_put(ranks->reports, LAUNCH_INPUT_TAKEN, 0, (uint32_t)written, NULL);
}

enum shoal_status launch_agent_ranks_watch(struct agent_ranks *ranks, struct launch_loop *loop,
                                           bool read_output)
{
    for (int i = 0; i < ranks->count && read_output; i++) {
        struct agent_rank *rank = &ranks->ranks[i];
        if (rank->process.out >= 0)
            TRY(launch_loop_add(loop,
                                (struct launch_watch){rank->process.out, POLLIN, out_ready, rank}));
        if (rank->process.err >= 0)
            TRY(launch_loop_add(loop,
                                (struct launch_watch){rank->process.err, POLLIN, err_ready, rank}));
    }
    bool input = ranks->input_ended || launch_bytes_count(&ranks->input) > 0;
    if (ranks->count == 0 || ranks->ranks[0].process.in < 0 || !input)
        return SHOAL_OK;
    return launch_loop_add(
        loop, (struct launch_watch){ranks->ranks[0].process.in, POLLOUT, input_ready, ranks});
}

/* ---- start ---- */

static enum shoal_status rank_variables(const struct agent_start *start, int local_rank)
{
    struct launch_variables *variables = start->variables;
    int rank = start->first_rank + local_rank;
    TRY(launch_variables_set_number(variables, "RANK", rank));
    TRY(launch_variables_set_number(variables, "LOCAL_RANK", local_rank));
    TRY(launch_variables_set_number(variables, "SHOAL_RANK", rank));
    return launch_variables_set_number(variables, "SHOAL_LOCAL_RANK", local_rank);
}

static enum shoal_status server_variables(const struct agent_start *start, int number)
{
    return launch_variables_set_number(start->variables, "SHOAL_SERVER", number);
}

static enum shoal_status rank_start(const struct agent_start *start, struct agent_rank *rank,
                                    int *exec_errno)
{
    static char own_name[] = "shoal", command[] = "reduce-server";
    static char *const serve[] = {own_name, command, NULL};
    bool is_server = rank->rank >= start->size;
    struct launch_program program = {.path = is_server ? LAUNCH_OWN_PROGRAM : start->path,
                                     .argv = is_server ? serve : start->argv,
                                     .envp = start->variables->entries,
                                     .directory = start->directory,
                                     .input = start->input && rank->rank == 0,
                                     .death_signal = SIGKILL};
    enum shoal_status status = launch_process_start(&program, &rank->process, exec_errno);
    if (status != SHOAL_OK && *exec_errno == ENOEXEC)
        status = base_error_context(status, "is it a script without a #! line?");
    if (status != SHOAL_OK)
        return base_error_context(status, "%s %d cannot be started", is_server ? "server" : "rank",
                                  is_server ? rank->rank - start->size : rank->rank);
    rank->running = true;
    return SHOAL_OK;
}

/* How often the kernel has killed for want of memory since it started; 0 if it doesn't say. */
static uint64_t kernel_kills_read(void)
{
    char name[64];
    unsigned long long number = 0, kills = 0;
    FILE *file = fopen("/proc/vmstat", "re");
    if (file == NULL)
        return 0;
    while (fscanf(file, "%63s %llu", name, &number) == 2)
        if (strcmp(name, "oom_kill") == 0)
            kills = number;
    fclose(file);
    return kills;
}

enum shoal_status launch_agent_ranks_start(struct agent_ranks *ranks,
                                           const struct agent_start *start, int *exit_code)
{
    *exit_code = LAUNCH_EXIT_LAUNCH;
    ranks->kernel_kills = kernel_kills_read();
    ranks->size = start->size;
    TRY(BASE_NEW_ARRAY(&ranks->ranks, start->rank_count + start->server_count,
                       "the table of ranks"));
    for (int i = 0; i < start->rank_count + start->server_count; i++) {
        struct agent_rank *rank = &ranks->ranks[i];
        int exec_errno = 0, server = start->first_server + i - start->rank_count;
        bool is_server = i >= start->rank_count;
        *rank =
            (struct agent_rank){.process = {-1, -1, -1, -1},
                                .rank = is_server ? start->size + server : start->first_rank + i,
                                .reports = ranks->reports};
        ranks->count = i + 1;
        TRY(is_server ? server_variables(start, server) : rank_variables(start, i));
        enum shoal_status status = rank_start(start, rank, &exec_errno);
        if (exec_errno != 0)
            *exit_code = exec_errno == ENOENT ? LAUNCH_EXIT_NOT_FOUND : LAUNCH_EXIT_NOT_EXECUTABLE;
        TRY(status);
        ranks->running++;
        TRY(launch_message_put(ranks->reports, LAUNCH_STARTED, rank->rank,
                               (uint32_t)rank->process.pid, NULL));
    }
    return SHOAL_OK;
}

/* ---- end ---- */

static enum shoal_status rank_report(struct agent_ranks *ranks, struct agent_rank *rank)
{
    const char *cause = "";
    TRY(rank_drain(rank));
    rank->running = rank->reaped = false;
    ranks->running--;
    launch_fd_close(&rank->process.in);
    if (WIFSIGNALED(rank->wait_status) && WTERMSIG(rank->wait_status) == SIGKILL &&
        kernel_kills_read() > ranks->kernel_kills)
        cause = "the kernel's out-of-memory killer was at work on that host";
    return launch_message_put_text(ranks->reports, LAUNCH_EXITED, rank->rank,
                                   (uint32_t)rank->wait_status, cause);
}

static enum shoal_status report_reaped(struct agent_ranks *ranks, bool by_signal)
{
    for (int i = 0; i < ranks->count; i++) {
        struct agent_rank *rank = &ranks->ranks[i];
        if (rank->reaped && (by_signal ? WIFSIGNALED(rank->wait_status) : 1))
            TRY(rank_report(ranks, rank));
    }
    return SHOAL_OK;
}

enum shoal_status launch_agent_ranks_reap(struct agent_ranks *ranks)
{
    int wait_status = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        for (int i = 0; i < ranks->count; i++) {
            if (!ranks->ranks[i].running || ranks->ranks[i].process.pid != pid)
                continue;
            ranks->ranks[i].reaped = true;
            ranks->ranks[i].wait_status = wait_status;
        }
    }
    ranks->childless = pid < 0 && errno == ECHILD;
    TRY(report_reaped(ranks, true));
    return report_reaped(ranks, false);
}

void launch_agent_ranks_signal(const struct agent_ranks *ranks, int signal_number)
{
    bool from_terminals = signal_number == SIGINT || signal_number == SIGQUIT ||
                          signal_number == SIGHUP || signal_number == SIGTSTP ||
                          signal_number == SIGCONT;
    for (int i = 0; i < ranks->count; i++) {
        pid_t pid = ranks->ranks[i].process.pid;
        bool is_server = ranks->ranks[i].rank >= ranks->size; /* it is there until the ranks end */
        if (ranks->ranks[i].running && !is_server)
            kill(from_terminals ? -pid : pid, signal_number);
    }
}

void launch_agent_ranks_release(struct agent_ranks *ranks)
{
    for (int i = 0; i < ranks->count; i++)
        launch_process_close(&ranks->ranks[i].process);
    base_free(ranks->ranks);
    launch_bytes_release(&ranks->input);
    *ranks = (struct agent_ranks){0};
}
