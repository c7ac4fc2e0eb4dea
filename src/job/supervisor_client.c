/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor_client.c: the service's side: starting supervisors, finding them again, asking them.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "job/supervisor.h"
#include "job/supervisor_state.h"
#include "launch/bytes.h"
#include "launch/process.h"

#define PATH_BYTES       4096
#define START_TIMEOUT_MS 10000
#define ASK_TIMEOUT_MS   5000
#define ANSWER_BYTES_MAX (64u << 10)

/* ---- starting one ---- */

struct start {
    char program[LAUNCH_PATH_BYTES], log_path[PATH_BYTES];
    const char *folder;
    int ready_fd;
};

/* Two forks and a session of its own: it is nobody's child and has nobody's terminal. The caller
 * may have threads, so only system calls are made. */
static void become_supervisor(const struct start *start) __attribute__((noreturn));
static void become_supervisor(const struct start *start)
{
    char *const argv[] = {(char *)"shoal", (char *)JOB_SUPERVISOR_COMMAND, (char *)start->folder,
                          NULL};
    sigset_t none;
    setsid();
    if (fork() != 0)
        _exit(0);
    int null_fd = open("/dev/null", O_RDONLY);
    int log_fd = open(start->log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (null_fd < 0 || log_fd < 0 || dup2(null_fd, 0) < 0 || dup2(start->ready_fd, 1) < 0 ||
        dup2(log_fd, 2) < 0)
        _exit(126);
    close_range(3, ~0U, 0);
    for (int i = 1; i < SIGRTMIN; i++)
        signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(start->program, argv);
    _exit(127);
}

/* What it says on the pipe, until the end. */
static enum shoal_status await_ready(int fd)
{
    char text[BASE_ERROR_TEXT_BYTES];
    size_t used = 0;
    int64_t deadline_ns = base_deadline_ns(START_TIMEOUT_MS);
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    for (;;) {
        int ready = poll(&poller, 1, base_left_ms(deadline_ns));
        if (ready == 0)
            return base_error(SHOAL_ERR_TIMEOUT, "a job's supervisor did not start within %d s",
                              START_TIMEOUT_MS / 1000);
        ssize_t got = ready > 0 ? read(fd, text + used, sizeof(text) - 1 - used) : -1;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    text[used] = '\0';
    if (strcmp(text, SUPERVISOR_READY) == 0)
        return SHOAL_OK;
    return base_error(SHOAL_ERR_STATE, "%s",
                      used > 0 ? text
                               : "a job's supervisor could not be started; see " SUPERVISOR_LOG_FILE
                                 " in the job's folder");
}

enum shoal_status job_supervisor_start(const char *folder)
{
    struct start start = {.folder = folder};
    int ready[2];
    TRY(launch_own_path(start.program));
    if (snprintf(start.log_path, sizeof(start.log_path), "%s/" SUPERVISOR_LOG_FILE, folder) >=
        PATH_BYTES)
        return base_error(SHOAL_ERR_ARGUMENT, "the path %s is too long", folder);
    if (pipe2(ready, O_CLOEXEC) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making a pipe");
    start.ready_fd = ready[1];
    pid_t between = fork();
    if (between == 0)
        become_supervisor(&start);
    int error_number = errno;
    close(ready[1]);
    enum shoal_status status =
        between < 0 ? base_error_errno(SHOAL_ERR_SYSTEM, error_number, "making a process")
                    : await_ready(ready[0]);
    close(ready[0]);
    while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR)
        continue;
    return status;
}

/* ---- finding and asking it ---- */

enum shoal_status job_supervisor_find(const char *folder, enum job_presence *out)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/" SUPERVISOR_LOCK_FILE, folder);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", path);
    bool runs = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (fd >= 0)
        close(fd);
    snprintf(path, sizeof(path), "%s/" JOB_EXIT_FILE, folder);
    *out = runs ? JOB_RUNS : access(path, F_OK) == 0 ? JOB_ENDED : JOB_GONE;
    return SHOAL_OK;
}

enum shoal_status job_supervisor_hold(const char *folder, int *fd)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/" SUPERVISOR_LOCK_FILE, folder);
    int made = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (made < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", path);
    if (flock(made, LOCK_EX | LOCK_NB) != 0) {
        close(made);
        return base_error(SHOAL_ERR_STATE, "a supervisor of the job in %s runs", folder);
    }
    *fd = made;
    return SHOAL_OK;
}

/* A socket's path may have 107 bytes, a job's folder has more: the way goes by its descriptor. */
enum shoal_status job_supervisor_connect(const char *folder, int *fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening the job's folder %s", folder);
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", folder_fd,
             SUPERVISOR_SOCKET_FILE);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool connected = made >= 0 && connect(made, (struct sockaddr *)&address, sizeof(address)) == 0;
    int error_number = errno;
    close(folder_fd);
    if (!connected) {
        if (made >= 0)
            close(made);
        return base_error_errno(SHOAL_ERR_STATE, error_number,
                                "no supervisor answers for the job in %s", folder);
    }
    *fd = made;
    return SHOAL_OK;
}

/* One line, without its newline but with a NUL, in `line`. */
static enum shoal_status receive_line(int fd, struct launch_bytes *line)
{
    int64_t deadline_ns = base_deadline_ns(ASK_TIMEOUT_MS);
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    char byte = 0;
    while (byte != '\n' && launch_bytes_count(line) < ANSWER_BYTES_MAX) {
        int ready = poll(&poller, 1, base_left_ms(deadline_ns));
        if (ready == 0)
            return base_error(SHOAL_ERR_TIMEOUT, "a job's supervisor did not answer within %d s",
                              ASK_TIMEOUT_MS / 1000);
        ssize_t got = ready > 0 ? recv(fd, &byte, 1, 0) : -1;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return base_error(SHOAL_ERR_STATE, "the job has ended");
        TRY(launch_bytes_append(line, &byte, 1));
    }
    return SHOAL_OK;
}

static enum shoal_status read_answer(const struct launch_bytes *line, json_t **answer)
{
    json_error_t error;
    json_t *object = json_loadb((const char *)launch_bytes_front(line), launch_bytes_count(line),
                                JSON_REJECT_DUPLICATES, &error);
    const char *refusal = json_string_value(json_object_get(object, "error"));
    if (object == NULL)
        return base_error(SHOAL_ERR_FORMAT, "a job's supervisor answered no JSON: %s", error.text);
    if (refusal != NULL) {
        enum shoal_status status = base_error(SHOAL_ERR_STATE, "a job's supervisor: %s", refusal);
        json_decref(object);
        return status;
    }
    *answer = object;
    return SHOAL_OK;
}

enum shoal_status job_supervisor_ask(int fd, const char *command, json_t **answer)
{
    struct launch_bytes line = {0};
    struct iovec parts[2] = {{(void *)command, strlen(command)}, {(void *)"\n", 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (sendmsg(fd, &message, MSG_NOSIGNAL) != (ssize_t)strlen(command) + 1)
        return base_error(SHOAL_ERR_STATE, "the job has ended");
    enum shoal_status status = receive_line(fd, &line);
    if (status == SHOAL_OK)
        status = read_answer(&line, answer);
    launch_bytes_release(&line);
    return status;
}
