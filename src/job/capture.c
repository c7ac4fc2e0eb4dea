/* SPDX-License-Identifier: Apache-2.0 */
/* capture.c: see capture.h. posix_spawn, because the caller may have other threads. */
#include "job/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "job/log.h"
#include "launch/process.h"

#define CHUNK_BYTES    (64 << 10)
#define ERR_KEPT_BYTES 600
#define LOOK_MS        100  /* between two looks at who cancels */
#define END_MS         2000 /* from SIGTERM to SIGKILL */
#define END_POLL_MS    5

extern char **environ;

struct capture {
    const char *name;
    pid_t pid;
    int out_fd, err_fd; /* -1 at their end */
    char *text;
    size_t bytes, capacity;
    char err[ERR_KEPT_BYTES]; /* the last of stderr */
    size_t err_bytes;
};

static enum shoal_status spawn(char *const *words, int out_fd, int err_fd, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_fd, STDERR_FILENO);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0); /* to be ended with what it starts */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    int result = posix_spawnp(pid, words[0], &actions, &attributes, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (result != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, result, "%s can't be executed", words[0]);
    return SHOAL_OK;
}

static enum shoal_status start(char *const *words, struct capture *capture)
{
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making a pipe");
    if (pipe2(err, O_CLOEXEC) != 0) {
        int error_number = errno;
        close(out[0]);
        close(out[1]);
        return base_error_errno(SHOAL_ERR_SYSTEM, error_number, "making a pipe");
    }
    capture->out_fd = out[0];
    capture->err_fd = err[0];
    enum shoal_status status = spawn(words, out[1], err[1], &capture->pid);
    close(out[1]);
    close(err[1]);
    return status;
}

static enum shoal_status grow(struct capture *capture)
{
    char *text;
    if (capture->bytes + CHUNK_BYTES + 1 <= capture->capacity)
        return SHOAL_OK;
    if (capture->bytes > CAPTURE_BYTES_MAX)
        return base_error(SHOAL_ERR_SYSTEM, "%s printed more than 4 MiB", capture->name);
    size_t capacity = capture->capacity * 2 + CHUNK_BYTES + 1;
    TRY(base_alloc(capacity, "a program's output", (void **)&text));
    if (capture->bytes > 0)
        memcpy(text, capture->text, capture->bytes);
    base_free(capture->text);
    capture->text = text;
    capture->capacity = capacity;
    return SHOAL_OK;
}

static void keep_err(struct capture *capture, const char *text, size_t bytes)
{
    job_keep_last(capture->err, &capture->err_bytes, sizeof(capture->err), text, bytes);
    capture->err[capture->err_bytes] = '\0';
}

static enum shoal_status read_out(struct capture *capture)
{
    TRY(grow(capture));
    ssize_t got = read(capture->out_fd, capture->text + capture->bytes, CHUNK_BYTES);
    if (got > 0)
        capture->bytes += (size_t)got;
    else if (got == 0 || errno != EINTR)
        launch_fd_close(&capture->out_fd);
    return SHOAL_OK;
}

static void read_err(struct capture *capture)
{
    char chunk[4096];
    ssize_t got = read(capture->err_fd, chunk, sizeof(chunk));
    if (got > 0)
        keep_err(capture, chunk, (size_t)got);
    else if (got == 0 || errno != EINTR)
        launch_fd_close(&capture->err_fd);
}

static enum shoal_status read_all(struct capture *capture, int64_t deadline_ns,
                                  const atomic_bool *is_cancelled)
{
    while (capture->out_fd >= 0 || capture->err_fd >= 0) {
        struct pollfd watched[2] = {{capture->out_fd, POLLIN, 0}, {capture->err_fd, POLLIN, 0}};
        int64_t left_ms = (deadline_ns - base_now_ns()) / BASE_NS_PER_MS;
        if (left_ms <= 0)
            return base_error(SHOAL_ERR_SYSTEM, "%s did not end in time", capture->name);
        if (is_cancelled != NULL && atomic_load(is_cancelled))
            return base_error(SHOAL_ERR_ABORTED, "%s was given up", capture->name);
        poll(watched, 2, left_ms < LOOK_MS ? (int)left_ms : LOOK_MS);
        if (watched[0].revents != 0)
            TRY(read_out(capture));
        if (watched[1].revents != 0)
            read_err(capture);
    }
    return SHOAL_OK;
}

/* A chance to put away what it has half done, then the end. */
static void end(const struct capture *capture)
{
    int64_t deadline_ns = base_deadline_ns(END_MS);
    kill(-capture->pid, SIGTERM);
    while (waitpid(capture->pid, NULL, WNOHANG) == 0 && base_left_ms(deadline_ns) > 0)
        base_sleep_ms(END_POLL_MS);
    if (kill(-capture->pid, SIGKILL) == 0) /* the program, or what it has left */
        waitpid(capture->pid, NULL, 0);
}

/* The last line of what it said on stderr. */
static const char *last_words(struct capture *capture)
{
    while (capture->err_bytes > 0 && capture->err[capture->err_bytes - 1] <= ' ')
        capture->err[--capture->err_bytes] = '\0';
    const char *line = strrchr(capture->err, '\n');
    return line != NULL ? line + 1 : capture->err;
}

static enum shoal_status wait_end(struct capture *capture)
{
    char ending[128];
    int wait_status = 0;
    while (waitpid(capture->pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    if (wait_status == 0)
        return SHOAL_OK;
    launch_exit_describe(wait_status, ending, sizeof(ending));
    const char *words = last_words(capture);
    return base_error(SHOAL_ERR_SYSTEM, "%s %s%s%s", capture->name, ending,
                      *words != '\0' ? ": " : "", words);
}

enum shoal_status capture_run(char *const *words, int64_t timeout_ms,
                              const atomic_bool *is_cancelled, char **out)
{
    struct capture capture = {.name = words[0], .pid = -1, .out_fd = -1, .err_fd = -1};
    enum shoal_status status = start(words, &capture);
    if (status == SHOAL_OK) {
        status = read_all(&capture, base_deadline_ns(timeout_ms), is_cancelled);
        if (status == SHOAL_OK)
            status = wait_end(&capture);
        else
            end(&capture);
    }
    launch_fd_close(&capture.out_fd);
    launch_fd_close(&capture.err_fd);
    if (status == SHOAL_OK)
        status = grow(&capture);
    if (status != SHOAL_OK) {
        base_free(capture.text);
        return status;
    }
    capture.text[capture.bytes] = '\0';
    *out = capture.text;
    return SHOAL_OK;
}
