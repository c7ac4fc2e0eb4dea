/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.c: programs started with pipes, and the end of whole trees of them.
 *
 * The child tells by a close-on-exec pipe why it could not be executed. Trees are found in /proc by
 * parent: the one who starts ranks is the reaper of its orphans (PR_SET_CHILD_SUBREAPER), so even a
 * process that has made itself a daemon is still below it.
 */
#include "launch/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#define GONE       " (deleted)" /* behind the path of a program whose file was removed or replaced */
#define STAT_BYTES 512

void launch_fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void launch_process_close(struct launch_process *process)
{
    launch_fd_close(&process->in);
    launch_fd_close(&process->out);
    launch_fd_close(&process->err);
}

enum shoal_status launch_own_path(char path[LAUNCH_PATH_BYTES])
{
    ssize_t bytes = readlink("/proc/self/exe", path, LAUNCH_PATH_BYTES - 1);
    if (bytes < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "finding this program");
    path[bytes] = '\0';
    /* A file that took its place, as an update does, is this program too. */
    size_t kept = (size_t)bytes - (sizeof(GONE) - 1);
    if ((size_t)bytes > sizeof(GONE) - 1 && strcmp(path + kept, GONE) == 0 &&
        access(path, F_OK) != 0)
        path[kept] = '\0';
    return SHOAL_OK;
}

/* ---- start ---- */

struct pipes { /* [0] reads, [1] writes */
    int in[2], out[2], err[2], failure[2];
};

static void pipes_close(struct pipes *pipes)
{
    int *all[] = {pipes->in, pipes->out, pipes->err, pipes->failure};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        launch_fd_close(&all[i][0]);
        launch_fd_close(&all[i][1]);
    }
}

static enum shoal_status pipes_open(bool input, struct pipes *pipes)
{
    *pipes = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    bool opened = pipe2(pipes->out, O_CLOEXEC) == 0 && pipe2(pipes->err, O_CLOEXEC) == 0 &&
                  pipe2(pipes->failure, O_CLOEXEC) == 0;
    if (opened && input)
        opened = pipe2(pipes->in, O_CLOEXEC) == 0;
    else if (opened)
        opened = (pipes->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;
    if (opened)
        return SHOAL_OK;
    enum shoal_status status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "pipes for a new process");
    pipes_close(pipes);
    return status;
}

/* In the child: only calls that are safe between fork and exec. */
static void child_run(const struct launch_program *program, const struct pipes *pipes, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (program->session)
        setsid();
    else
        setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, program->death_signal);
    if (getppid() != parent)
        _exit(LAUNCH_EXIT_LAUNCH);
    dup2(pipes->in[0], STDIN_FILENO);
    dup2(pipes->out[1], STDOUT_FILENO);
    dup2(pipes->err[1], STDERR_FILENO);
    char *const *envp = program->envp != NULL ? program->envp : environ;
    if (program->directory == NULL || chdir(program->directory) == 0) {
        if (program->search_path)
            execvpe(program->path, program->argv, envp);
        else
            execve(program->path, program->argv, envp);
    }
    int error_number = errno;
    ssize_t told = write(pipes->failure[1], &error_number, sizeof(error_number));
    _exit(told > 0 ? LAUNCH_EXIT_NOT_FOUND : LAUNCH_EXIT_LAUNCH);
}

static void set_nonblocking(int fd)
{
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* 0 when the child was executed, else its errno. */
static int failure_read(int fd)
{
    int error_number = 0;
    ssize_t got;
    do
        got = read(fd, &error_number, sizeof(error_number));
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof(error_number) ? error_number : 0;
}

enum shoal_status launch_process_start(const struct launch_program *program,
                                       struct launch_process *out, int *exec_errno)
{
    struct pipes pipes;
    *exec_errno = 0;
    TRY(pipes_open(program->input, &pipes));
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        child_run(program, &pipes, parent);
    if (pid < 0) {
        int error_number = errno;
        pipes_close(&pipes);
        return base_error_errno(SHOAL_ERR_SYSTEM, error_number, "fork");
    }
    launch_fd_close(&pipes.failure[1]);
    *exec_errno = failure_read(pipes.failure[0]); /* by its end, the group is there */
    if (*exec_errno != 0) {
        pipes_close(&pipes);
        waitpid(pid, NULL, 0);
        return base_error_errno(SHOAL_ERR_SYSTEM, *exec_errno, "%s", program->path);
    }
    *out =
        (struct launch_process){pid, program->input ? pipes.in[1] : -1, pipes.out[0], pipes.err[0]};
    pipes.out[0] = pipes.err[0] = -1;
    if (program->input)
        pipes.in[1] = -1;
    pipes_close(&pipes);
    set_nonblocking(out->in);
    set_nonblocking(out->out);
    set_nonblocking(out->err);
    return SHOAL_OK;
}

/* ---- trees ---- */

struct family {
    pid_t *pids, *parents;
    int count, capacity;
};

static enum shoal_status family_grow(struct family *family)
{
    int capacity = family->capacity > 0 ? family->capacity * 2 : 256;
    pid_t *pids = NULL;
    TRY(BASE_NEW_ARRAY(&pids, capacity * 2, "the process table"));
    if (family->count > 0) {
        memcpy(pids, family->pids, sizeof(pid_t) * (size_t)family->count);
        memcpy(pids + capacity, family->parents, sizeof(pid_t) * (size_t)family->count);
    }
    base_free(family->pids);
    family->pids = pids;
    family->parents = pids + capacity;
    family->capacity = capacity;
    return SHOAL_OK;
}

/* The parent of a process, 0 if it is gone. The name in /proc/PID/stat may hold anything, so what
 * counts stands behind its last bracket. */
static pid_t parent_read(const char *pid)
{
    char path[64], text[STAT_BYTES];
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t count = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (count <= 0)
        return 0;
    text[count] = '\0';
    const char *behind = strrchr(text, ')');
    int parent = 0;
    return behind != NULL && sscanf(behind + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

static void family_read(struct family *family)
{
    DIR *directory = opendir("/proc");
    if (directory == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid <= 0)
            continue;
        if (family->count == family->capacity && family_grow(family) != SHOAL_OK)
            break;
        family->pids[family->count] = pid;
        family->parents[family->count++] = parent_read(entry->d_name);
    }
    closedir(directory);
}

/* A process is a descendant when its parent is root or a descendant; depth by depth, marking by
 * making root the parent. */
static bool family_adopt(struct family *family, pid_t root, int child)
{
    for (int i = 0; i < family->count; i++) {
        if (family->pids[i] == family->parents[child] && family->parents[i] == root) {
            family->parents[child] = root;
            return true;
        }
    }
    return false;
}

int launch_descendants_kill(pid_t root, int signal_number)
{
    struct family family = {0};
    int killed = 0;
    family_read(&family);
    for (bool going = true; going;) {
        going = false;
        for (int i = 0; i < family.count; i++)
            if (family.parents[i] != root && family.parents[i] != 0)
                going = family_adopt(&family, root, i) || going;
    }
    for (int i = 0; i < family.count; i++)
        if (family.parents[i] == root && kill(family.pids[i], signal_number) == 0)
            killed++;
    base_free(family.pids);
    return killed;
}

/* ---- exits ---- */

int launch_exit_code(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

const char *launch_signal_name(int signal_number)
{
    static _Thread_local char text[32];
    const char *abbreviation = sigabbrev_np(signal_number);
    if (abbreviation == NULL)
        snprintf(text, sizeof(text), "signal %d", signal_number);
    else
        snprintf(text, sizeof(text), "SIG%s", abbreviation);
    return text;
}

void launch_exit_describe(int wait_status, char *out, size_t capacity)
{
    if (WIFSIGNALED(wait_status))
        snprintf(out, capacity, "was killed by %s%s", launch_signal_name(WTERMSIG(wait_status)),
                 WCOREDUMP(wait_status) ? " (core dumped)" : "");
    else
        snprintf(out, capacity, "exited with code %d", WEXITSTATUS(wait_status));
}
