/* SPDX-License-Identifier: Apache-2.0 */
/* processes.c: see processes.h. */
#include "support/processes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OUTPUT_BYTES 65536

static bool port_is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return is_free;
}

/* A port that was free a moment ago, as was the one after it; below those that the kernel gives to
 * connections, so that none of them takes it meanwhile. */
static int free_port(void)
{
    static unsigned number;
    for (int tries = 0; tries < 1000; tries++) {
        int port = 20000 + (int)(((unsigned)getpid() * 7919u + 2 * number++) % 10000u);
        if (port_is_free(port) && port_is_free(port + 1))
            return port;
    }
    abort();
}

static int run_group(struct processes *run, int rank, const char *store)
{
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    shoal_group_t group = NULL;
    options.rank = rank;
    options.size = run->size;
    options.store = store;
    options.timeout_ms = run->timeout_ms > 0 ? run->timeout_ms : 20000;
    int bad = expect_status(NULL, shoal_group_create(&options, &group), SHOAL_OK, "create");
    if (!bad)
        bad = run->main(group, run->user);
    if (!bad)
        bad = expect_status(NULL, shoal_group_free(group), SHOAL_OK, "free");
    return bad;
}

static void rank_process(struct processes *run, int rank, const char *store, int error_fd)
{
    char host[32];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(error_fd, STDERR_FILENO);
    setvbuf(stderr, NULL, _IOLBF, 0);
    if (run->hosts > 1) {
        snprintf(host, sizeof(host), "host%d", rank * run->hosts / run->size);
        setenv("SHOAL_HOST_ID", host, 1);
    }
    setenv("SHOAL_TUNE", "0", 0); /* what was measured on this machine is no part of a test */
    for (int i = 0; run->environment[i]; i++)
        putenv((char *)run->environment[i]);
    int code =
        run->bare ? run->bare(rank, run->size, store, run->user) : run_group(run, rank, store);
    fflush(NULL);
    _exit(code);
}

void processes_start(struct processes *run)
{
    char store[64];
    snprintf(store, sizeof(store), "127.0.0.1:%d", free_port());
    for (int rank = 0; rank < run->size; rank++) {
        char path[] = "/tmp/shoal-test-XXXXXX";
        int fd = mkstemp(path);
        if (fd < 0)
            abort();
        unlink(path);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        run->pids[rank] = fork();
        if (run->pids[rank] == 0)
            rank_process(run, rank, store, fd);
        run->exit_codes[rank] = fd; /* until processes_wait reads it */
    }
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* The child's exit code, -1 (after ending it) when the deadline passed first. */
static int reap(pid_t pid, int64_t deadline_ms)
{
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_ms() > deadline_ms) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        poll(NULL, 0, 5);
    }
    return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

static char *read_output(int fd)
{
    char *text = calloc(1, OUTPUT_BYTES);
    if (!text || pread(fd, text, OUTPUT_BYTES - 1, 0) < 0)
        abort();
    close(fd);
    return text;
}

bool processes_wait(struct processes *run)
{
    int64_t deadline_ms = now_ms() + 1000 * (run->deadline_s > 0 ? run->deadline_s : 60);
    bool good = true;
    for (int rank = 0; rank < run->size; rank++) {
        int fd = run->exit_codes[rank];
        run->exit_codes[rank] = reap(run->pids[rank], deadline_ms);
        run->output[rank] = read_output(fd);
        good &= run->exit_codes[rank] == 0;
    }
    return good;
}

bool processes_run(struct processes *run)
{
    processes_start(run);
    bool good = processes_wait(run);
    for (int rank = 0; !good && rank < run->size; rank++)
        if (run->exit_codes[rank] != 0)
            fprintf(stderr, "rank %d of %d (%d hosts) ended with %d:\n%s\n", rank, run->size,
                    run->hosts, run->exit_codes[rank], run->output[rank]);
    processes_release(run);
    return good;
}

void processes_release(struct processes *run)
{
    for (int rank = 0; rank < run->size; rank++) {
        free(run->output[rank]);
        run->output[rank] = NULL;
    }
}

int expect_status(shoal_group_t group, enum shoal_status status, enum shoal_status expected,
                  const char *what)
{
    if (status == expected)
        return 0;
    fprintf(stderr, "%s: %s instead of %s: %s\n", what, shoal_status_name(status),
            shoal_status_name(expected), shoal_last_error(group));
    return 1;
}

int expect_text(shoal_group_t group, const char *const *pieces)
{
    const char *text = shoal_last_error(group);
    for (; *pieces; pieces++)
        if (!strstr(text, *pieces)) {
            fprintf(stderr, "'%s' is missing in: %s\n", *pieces, text);
            return 1;
        }
    return 0;
}
