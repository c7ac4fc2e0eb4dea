/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c: the life of a job: one thread, one loop over the agents, the terminal and the signals.
 *
 * Who failed first? The first report to arrive is not always the cause: a rank that was killed
 * makes its peers fail within moments. So a failure settles for a short time, in which the death of
 * a rank by a signal (which no peer's death causes) takes the place of an exit with a code. The
 * time also lets the peers say what they saw. Then the others are told to end.
 */
#include "launch/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#define SETTLE_MS       100
#define PATIENCE_MS     5000 /* for what should end at once */
#define INPUT_BYTES_MAX 65536
#define INPUT_READ      16384
#define STOP_FLUSH_MS   200
#define FINISH_MS       10000

/* ---- failing and ending ---- */

static void failure_set(struct job *job, int exit_code, bool final, const char *text)
{
    struct job_failure *failure = &job->failure;
    if (failure->set && (job->ending || failure->final || !final))
        return;
    if (!failure->set)
        job->settle_ns = base_deadline_ns(SETTLE_MS);
    failure->set = true;
    failure->final = final;
    failure->exit_code = exit_code;
    snprintf(failure->text, sizeof(failure->text), "%s", text);
}

void launch_job_fail(struct job *job, int exit_code, const char *format, ...)
{
    char text[JOB_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    failure_set(job, exit_code, true, text);
}

static enum shoal_status connection_end(struct job *job, struct launch_connection *connection)
{
    if (connection->ended || connection->ending)
        return SHOAL_OK;
    connection->ending = true;
    if (connection->phase == LAUNCH_PHASE_CONNECTING) {
        launch_connection_kill(connection, SIGTERM);
        connection->patience_ns = base_deadline_ns(PATIENCE_MS);
        return SHOAL_OK;
    }
    connection->patience_ns = base_deadline_ns(job->options->grace_ms + PATIENCE_MS);
    return launch_connection_send(connection, LAUNCH_END, (uint32_t)job->options->grace_ms);
}

static enum shoal_status end_all(struct job *job)
{
    int running = 0;
    if (job->ending)
        return SHOAL_OK;
    job->ending = true;
    for (int i = 0; i < job->rank_count; i++)
        running += job->ranks[i].pid > 0 && !job->ranks[i].exited;
    if (job->peers != NULL && job->failure.set)
        launch_peers_fail(job->peers, job->failure.exit_code, job->failure.text);
    if (running > 0 && job->failure.set)
        TRY(launch_job_note(job, "ending %d rank%s that still run%s: %s", running,
                            running == 1 ? "" : "s", running == 1 ? "s" : "", job->failure.text));
    for (int i = 0; i < job->connection_count; i++)
        TRY(connection_end(job, &job->connections[i]));
    return SHOAL_OK;
}

static enum shoal_status kill_all(struct job *job)
{
    job->ending = true;
    for (int i = 0; i < job->connection_count; i++) {
        struct launch_connection *connection = &job->connections[i];
        TRY(connection_end(job, connection));
        if (connection->phase != LAUNCH_PHASE_CONNECTING)
            TRY(launch_connection_send(connection, LAUNCH_KILL, 0));
        connection->patience_ns = base_deadline_ns(PATIENCE_MS);
    }
    return SHOAL_OK;
}

/* ---- what agents report ---- */

static struct job_rank *rank_find(struct job *job, const struct launch_connection *connection,
                                  int rank)
{
    int index = rank - job->first_rank;
    if (index < 0 || index >= job->rank_count + job->server_count ||
        job->ranks[index].connection != connection)
        return NULL;
    return &job->ranks[index];
}

static bool ranks_have_ended(const struct job *job)
{
    int exited = 0;
    for (int i = 0; i < job->rank_count; i++)
        exited += job->ranks[i].exited;
    return exited == job->rank_count;
}

/* When the ranks need them no more. */
static enum shoal_status servers_end(struct job *job)
{
    for (int i = 0; i < job->connection_count; i++)
        if (job->connections[i].host->server_count > 0)
            TRY(connection_end(job, &job->connections[i]));
    return SHOAL_OK;
}

static enum shoal_status exited_handle(struct job *job, struct job_rank *rank,
                                       struct launch_message *message)
{
    const char *cause = "";
    int wait_status = (int)message->value;
    char text[JOB_TEXT_BYTES];
    TRY(launch_read_text(&message->payload, &cause));
    TRY(launch_stream_flush(&rank->out));
    TRY(launch_stream_flush(&rank->err));
    rank->exited = true;
    if (message->rank == 0)
        job->input_open = false;
    TRY(launch_job_report_exit(job, message->rank, wait_status));
    bool is_needed = !rank->out.is_server || !ranks_have_ended(job);
    if (ranks_have_ended(job))
        TRY(servers_end(job));
    if (launch_exit_code(wait_status) == 0 || !is_needed)
        return SHOAL_OK;
    launch_job_describe_exit(job, message->rank, wait_status, cause, text, sizeof(text));
    failure_set(job, launch_exit_code(wait_status), WIFSIGNALED(wait_status), text);
    return SHOAL_OK;
}

static enum shoal_status rank_message(struct job *job, const struct launch_connection *connection,
                                      struct launch_message *message)
{
    struct job_rank *rank = rank_find(job, connection, message->rank);
    if (rank == NULL)
        return base_error(SHOAL_ERR_FORMAT, "its agent speaks of rank %d, which is not there",
                          message->rank);
    if (message->type == LAUNCH_STARTED) {
        rank->pid = (pid_t)message->value;
        return launch_job_report_start(job, message->rank);
    }
    if (message->type == LAUNCH_EXITED)
        return exited_handle(job, rank, message);
    return launch_stream_write(message->value == STDERR_FILENO ? &rank->err : &rank->out,
                               message->payload.next, message->payload.left);
}

static enum shoal_status hello_handle(struct launch_connection *connection,
                                      struct launch_message *message)
{
    const char *version = NULL;
    TRY(launch_read_text(&message->payload, &version));
    if (strcmp(version, SHOAL_VERSION_STRING) != 0)
        return base_error(SHOAL_ERR_FORMAT, "shoal %s is installed there, but %s here", version,
                          SHOAL_VERSION_STRING);
    connection->phase = LAUNCH_PHASE_GREETED;
    return SHOAL_OK;
}

static enum shoal_status refused_handle(struct job *job, struct launch_connection *connection,
                                        struct launch_message *message)
{
    const char *text = "";
    TRY(launch_read_text(&message->payload, &text));
    launch_job_fail(job, (int)message->value, "host %s: %s", connection->host->name, text);
    return SHOAL_OK;
}

static void done_handle(struct job *job, struct launch_connection *connection)
{
    if (connection->phase < LAUNCH_PHASE_RUNNING)
        launch_job_fail(job, LAUNCH_EXIT_LAUNCH,
                        "host %s: its agent ended before the ranks were started",
                        connection->host->name);
    connection->phase = LAUNCH_PHASE_FINISHED;
    connection->patience_ns = base_deadline_ns(PATIENCE_MS);
}

static void input_taken(struct job *job, const struct launch_message *message)
{
    job->input_under_way -=
        message->value < job->input_under_way ? message->value : job->input_under_way;
    if (message->rank == 1)
        job->input_open = false;
}

static enum shoal_status phase_message(struct job *job, struct launch_connection *connection,
                                       struct launch_message *message)
{
    switch (message->type) {
    case LAUNCH_HELLO: return hello_handle(connection, message);
    case LAUNCH_SURVEYED:
        TRY(launch_job_survey_read(connection, message));
        connection->phase = LAUNCH_PHASE_SURVEYED;
        return SHOAL_OK;
    case LAUNCH_PROBED:
        TRY(launch_job_probe_read(job, connection, message));
        connection->phase = LAUNCH_PHASE_PROBED;
        return SHOAL_OK;
    case LAUNCH_REFUSED: return refused_handle(job, connection, message);
    case LAUNCH_INPUT_TAKEN: input_taken(job, message); return SHOAL_OK;
    case LAUNCH_DONE: done_handle(job, connection); return SHOAL_OK;
    default: return base_error(SHOAL_ERR_FORMAT, "message %d is not for launchers", message->type);
    }
}

/* What goes wrong with one agent's messages is a failure of the job, not of the loop. */
static enum shoal_status message_handle(void *user, struct launch_connection *connection,
                                        struct launch_message *message)
{
    struct job *job = user;
    bool of_rank = message->type == LAUNCH_STARTED || message->type == LAUNCH_OUTPUT ||
                   message->type == LAUNCH_EXITED;
    enum shoal_status status =
        of_rank ? rank_message(job, connection, message) : phase_message(job, connection, message);
    if (status == SHOAL_ERR_MEMORY)
        return status;
    if (status != SHOAL_OK)
        launch_job_fail(job, LAUNCH_EXIT_LAUNCH, "host %s: %s", connection->host->name,
                        base_error_text());
    return SHOAL_OK;
}

static enum shoal_status said_handle(void *user, struct launch_connection *connection,
                                     const char *line)
{
    return launch_job_note(user, "host %s: %s", connection->host->name, line);
}

/* ---- input ---- */

static enum shoal_status input_readable(void *owner, short events)
{
    struct job *job = owner;
    char buffer[INPUT_READ];
    (void)events;
    ssize_t count = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EINTR || errno == EIO))
        return SHOAL_OK;
    if (count <= 0) {
        job->input_open = false;
        count = 0;
    }
    job->input_under_way += (size_t)count;
    return launch_message_put_raw(&job->connections[0].out, LAUNCH_INPUT, 0, 0, buffer,
                                  (size_t)count);
}

/* In the background a terminal is not read: that would stop us. */
static bool input_wanted(const struct job *job)
{
    if (!job->input_open || job->connections[0].phase != LAUNCH_PHASE_RUNNING)
        return false;
    if (job->input_under_way >= INPUT_BYTES_MAX)
        return false;
    return isatty(STDIN_FILENO) != 1 || tcgetpgrp(STDIN_FILENO) == getpgrp();
}

/* ---- other launchers ---- */

static enum shoal_status peers_readable(void *owner, short events)
{
    struct job *job = owner;
    char text[JOB_TEXT_BYTES];
    int exit_code = 0;
    (void)events;
    switch (launch_peers_take(job->peers, &exit_code, text, sizeof(text))) {
    case LAUNCH_PEERS_READY: job->peers_ready = true; break;
    case LAUNCH_PEERS_FAILED:
        launch_job_fail(job, exit_code, "%s", text);
        job->peers_told = false;
        break;
    case LAUNCH_PEERS_OVER: job->peers_over = true; break;
    case LAUNCH_PEERS_NONE: break;
    }
    return SHOAL_OK;
}

/* When nothing is left here the others are told, and told again when their news change the end. */
static bool peers_are_over(struct job *job)
{
    if (job->peers == NULL || job->peers_over)
        return true;
    if (!job->peers_told)
        launch_peers_end(job->peers, job->failure.set ? job->failure.exit_code : 0,
                         job->failure.text, job->options->grace_ms + FINISH_MS);
    job->peers_told = true;
    return false;
}

/* ---- signals ---- */

static enum shoal_status signal_pass(struct job *job, int signal_number)
{
    for (int i = 0; i < job->connection_count; i++)
        if (job->connections[i].phase == LAUNCH_PHASE_RUNNING)
            TRY(launch_connection_send(&job->connections[i], LAUNCH_SIGNAL,
                                       (uint32_t)signal_number));
    return SHOAL_OK;
}

static enum shoal_status connections_flush(struct job *job, int64_t timeout_ms)
{
    int64_t deadline_ns = base_deadline_ns(timeout_ms);
    while (base_now_ns() < deadline_ns) {
        size_t waiting = 0;
        for (int i = 0; i < job->connection_count; i++) {
            waiting += launch_bytes_count(&job->connections[i].out);
            TRY(launch_connection_watch(&job->connections[i], &job->loop, true));
        }
        TRY(launch_loop_turn(&job->loop, waiting > 0 ? deadline_ns : 0));
        if (waiting == 0)
            break;
    }
    return SHOAL_OK;
}

/* INT, TERM, HUP, QUIT: the first is passed on, a second one ends all at once. Before the ranks run
 * the first ends the launch. */
static enum shoal_status end_signal(struct job *job, int signal_number)
{
    job->interrupts++;
    if (job->peers_told) /* only the others run still: stop waiting for them */
        job->peers_over = true;
    if (job->interrupts > 1) {
        launch_job_fail(job, 128 + signal_number, "ended by a second %s",
                        launch_signal_name(signal_number));
        return kill_all(job);
    }
    if (job->phase < LAUNCH_PHASE_RUNNING) {
        launch_job_fail(job, 128 + signal_number, "ended by %s before the ranks ran",
                        launch_signal_name(signal_number));
        return end_all(job);
    }
    job->passed_signal = signal_number;
    return signal_pass(job, signal_number);
}

static enum shoal_status children_look(struct job *job)
{
    for (int i = 0; i < job->connection_count; i++)
        TRY(launch_connection_look(&job->connections[i]));
    return SHOAL_OK;
}

static enum shoal_status signal_handle(struct job *job, int signal_number)
{
    switch (signal_number) {
    case SIGCHLD: return children_look(job);
    case SIGTTIN: return SHOAL_OK;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT: return end_signal(job, signal_number);
    case SIGTSTP:
        TRY(signal_pass(job, SIGTSTP));
        TRY(connections_flush(job, STOP_FLUSH_MS));
        raise(SIGSTOP);
        return SHOAL_OK;
    default: return signal_pass(job, signal_number);
    }
}

static enum shoal_status signal_readable(void *owner, short events)
{
    struct job *job = owner;
    struct signalfd_siginfo info;
    (void)events;
    while (read(job->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        TRY(signal_handle(job, (int)info.ssi_signo));
    return SHOAL_OK;
}

/* What the caller has asked to ignore (nohup) stays ignored. */
static void signals_block(sigset_t *signals, sigset_t *before)
{
    static const int passed[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1,
                                 SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD, SIGTTIN};
    sigemptyset(signals);
    for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
        struct sigaction action;
        bool ignored = sigaction(passed[i], NULL, &action) == 0 && action.sa_handler == SIG_IGN;
        if (!ignored || passed[i] == SIGCHLD)
            sigaddset(signals, passed[i]);
    }
    sigprocmask(SIG_BLOCK, signals, before);
}

/* ---- the loop ---- */

static enum shoal_status sink_writable(void *owner, short events)
{
    (void)events;
    launch_sink_flush(owner);
    return SHOAL_OK;
}

static enum shoal_status watch_all(struct job *job)
{
    struct launch_loop *loop = &job->loop;
    bool read_messages = !launch_sink_full(job->out) && !launch_sink_full(job->err);
    TRY(launch_loop_add(loop, (struct launch_watch){job->signal_fd, POLLIN, signal_readable, job}));
    for (int i = 0; i < job->connection_count; i++)
        TRY(launch_connection_watch(&job->connections[i], loop, read_messages));
    for (int i = 0; i < 2; i++) {
        struct launch_sink *sink = &job->sinks[i];
        if (launch_bytes_count(&sink->queue) > 0 && !sink->closed)
            TRY(launch_loop_add(loop,
                                (struct launch_watch){sink->fd, POLLOUT, sink_writable, sink}));
    }
    if (job->peers != NULL && !job->peers_over)
        TRY(launch_loop_add(
            loop, (struct launch_watch){launch_peers_fd(job->peers), POLLIN, peers_readable, job}));
    if (input_wanted(job))
        TRY(launch_loop_add(loop,
                            (struct launch_watch){STDIN_FILENO, POLLIN, input_readable, job}));
    return SHOAL_OK;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t next_deadline_ns(const struct job *job)
{
    int64_t next = job->deadline_ns;
    if (job->phase < LAUNCH_PHASE_RUNNING && job->peers_ready)
        next = earlier(next, job->start_deadline_ns);
    if (job->failure.set && !job->ending)
        next = earlier(next, job->settle_ns);
    for (int i = 0; i < job->connection_count; i++)
        if (!job->connections[i].ended)
            next = earlier(next, job->connections[i].patience_ns);
    for (int i = 0; i < job->rank_count + job->server_count; i++) {
        next = earlier(next, launch_stream_idle_ns(&job->ranks[i].out));
        next = earlier(next, launch_stream_idle_ns(&job->ranks[i].err));
    }
    return next;
}

static enum shoal_status idle_flush(struct job *job, int64_t now_ns)
{
    for (int i = 0; i < job->rank_count + job->server_count; i++) {
        struct launch_stream *streams[] = {&job->ranks[i].out, &job->ranks[i].err};
        for (int j = 0; j < 2; j++)
            if (launch_stream_idle_ns(streams[j]) <= now_ns)
                TRY(launch_stream_flush(streams[j]));
    }
    return SHOAL_OK;
}

static void deadlines_look(struct job *job, int64_t now_ns)
{
    char late[512];
    bool starting = job->phase < LAUNCH_PHASE_RUNNING && job->peers_ready && !job->ending;
    if (starting && now_ns >= job->start_deadline_ns) {
        launch_job_describe_late(job, job->phase + 1, late, sizeof(late));
        launch_job_fail(
            job, LAUNCH_EXIT_LAUNCH,
            "no answer from host %s within %.1f s (--start-timeout); is it unreachable, or does "
            "its agent's command wait for something?",
            late, (double)job->options->start_timeout_ms / 1e3);
    }
    if (now_ns >= job->deadline_ns) {
        job->deadline_ns = BASE_NO_DEADLINE;
        launch_job_fail(job, LAUNCH_EXIT_TIMEOUT, "the job did not end within %.1f s (--timeout)",
                        (double)job->options->timeout_ms / 1e3);
    }
}

/* A connection whose process has ended too early is lost, with its ranks. */
static enum shoal_status connection_advance(struct job *job, struct launch_connection *connection,
                                            int64_t now_ns)
{
    char text[JOB_TEXT_BYTES];
    if (!connection->ended) {
        if (connection->process.out < 0 && connection->patience_ns == BASE_NO_DEADLINE)
            connection->patience_ns = base_deadline_ns(PATIENCE_MS);
        if (now_ns < connection->patience_ns)
            return SHOAL_OK;
        launch_connection_kill(connection, SIGKILL);
        connection->patience_ns = base_deadline_ns(PATIENCE_MS);
        return launch_job_note(job, "host %s: its agent did not end in time; killed",
                               connection->host->name);
    }
    if (connection->phase == LAUNCH_PHASE_FINISHED)
        return SHOAL_OK;
    launch_job_describe_lost(connection, text, sizeof(text));
    launch_job_fail(job, LAUNCH_EXIT_LAUNCH, "%s", text);
    connection->phase = LAUNCH_PHASE_FINISHED;
    for (int i = 0; i < job->rank_count + job->server_count; i++)
        if (job->ranks[i].connection == connection)
            job->ranks[i].exited = true;
    return SHOAL_OK;
}

static enum shoal_status advance(struct job *job)
{
    int64_t now_ns = base_now_ns();
    for (int i = 0; i < job->connection_count; i++)
        TRY(connection_advance(job, &job->connections[i], now_ns));
    deadlines_look(job, now_ns);
    if (job->out->closed)
        launch_job_fail(job, 128 + SIGPIPE, "nobody reads standard output any more");
    TRY(launch_job_start_advance(job));
    TRY(idle_flush(job, now_ns));
    bool settled = job->phase < LAUNCH_PHASE_RUNNING || now_ns >= job->settle_ns;
    return job->failure.set && settled ? end_all(job) : SHOAL_OK;
}

static bool is_over(struct job *job)
{
    for (int i = 0; i < job->connection_count; i++)
        if (!job->connections[i].ended && job->connections[i].process.pid > 0)
            return false;
    return peers_are_over(job);
}

static enum shoal_status watch(struct job *job)
{
    while (!is_over(job)) {
        TRY(watch_all(job));
        TRY(launch_loop_turn(&job->loop, next_deadline_ns(job)));
        TRY(advance(job));
    }
    return SHOAL_OK;
}

/* ---- making and unmaking ---- */

/* Both as one sink where they are the same file, so that their lines keep their order. */
static void sinks_init(struct job *job)
{
    struct stat out, err;
    enum launch_lines_form form = job->options->form;
    launch_sink_init(&job->sinks[0], STDOUT_FILENO, form);
    launch_sink_init(&job->sinks[1], STDERR_FILENO, form);
    bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
                out.st_dev == err.st_dev && out.st_ino == err.st_ino;
    job->out = &job->sinks[0];
    job->err = same || form == LAUNCH_LINES_JSON ? job->out : &job->sinks[1];
    job->last = job->err;
    if (form == LAUNCH_LINES_JSON) {
        job->sinks[1].form = LAUNCH_LINES_PLAIN;
        job->last = same ? NULL : &job->sinks[1];
    }
}

static enum shoal_status connections_init(struct job *job)
{
    struct launch_hosts *hosts = job->options->hosts;
    bool by_name = job->options->agent == NULL;
    TRY(BASE_NEW_ARRAY(&job->connections, hosts->count, "the table of hosts"));
    job->connection_count = hosts->count;
    int local = 0, loopback = -1;
    for (int i = 0; i < hosts->count; i++) {
        enum launch_nearness nearness = launch_nearness(hosts->hosts[i].name, by_name);
        struct launch_connection *connection = &job->connections[i];
        *connection = (struct launch_connection){.host = &hosts->hosts[i],
                                                 .local = nearness != LAUNCH_REMOTE,
                                                 .process = {-1, -1, -1, -1},
                                                 .events = {job, message_handle, said_handle}};
        local += connection->local;
        loopback = nearness == LAUNCH_LOOPBACK ? i : loopback;
    }
    if (loopback >= 0 && hosts->count > 1)
        return base_error(SHOAL_ERR_OPTION,
                          "host %s resolves to a loopback address here, so the other hosts cannot "
                          "reach it by that name; give its address, or correct /etc/hosts",
                          hosts->hosts[loopback].name);
    if (local > 1)
        return base_error(SHOAL_ERR_OPTION, "%d of the hosts are this one; name it once", local);
    return SHOAL_OK;
}

static void rank_init(struct job *job, struct launch_connection *connection, bool is_server,
                      int number)
{
    int index = is_server ? job->rank_count + number : number - job->first_rank;
    struct launch_stream stream = {
        .rank = number, .is_server = is_server, .host = connection->host->name};
    struct job_rank *rank = &job->ranks[index];
    rank->connection = connection;
    rank->out = rank->err = stream;
    rank->out.name = "stdout";
    rank->out.sink = job->out;
    rank->err.name = "stderr";
    rank->err.sink = job->err;
}

static enum shoal_status ranks_init(struct job *job)
{
    const struct launch_part *part = job->options->part;
    job->rank_count = 0;
    for (int i = 0; i < job->connection_count; i++)
        job->rank_count += job->connections[i].host->rank_count;
    job->first_rank = job->connections[0].host->first_rank;
    job->size = part != NULL ? job->rank_count * part->count : job->rank_count;
    job->server_count = job->options->server_count;
    TRY(BASE_NEW_ARRAY(&job->ranks, job->rank_count + job->server_count, "the table of ranks"));
    for (int i = 0; i < job->connection_count; i++) {
        const struct launch_host *host = job->connections[i].host;
        for (int j = 0; j < host->rank_count; j++)
            rank_init(job, &job->connections[i], false, host->first_rank + j);
        for (int j = 0; j < host->server_count; j++)
            rank_init(job, &job->connections[i], true, host->first_server + j);
    }
    return SHOAL_OK;
}

static enum shoal_status job_init(struct job *job, const sigset_t *signals)
{
    const struct launch_options *options = job->options;
    sinks_init(job);
    TRY(connections_init(job));
    TRY(ranks_init(job));
    job->input_open = job->first_rank == 0;
    job->start_deadline_ns = base_deadline_ns(options->start_timeout_ms);
    job->deadline_ns =
        options->timeout_ms > 0 ? base_deadline_ns(options->timeout_ms) : BASE_NO_DEADLINE;
    job->signal_fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job->signal_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "signalfd");
    return launch_job_start(job);
}

static void job_release(struct job *job)
{
    for (int i = 0; i < job->connection_count; i++) {
        struct launch_connection *connection = &job->connections[i];
        launch_connection_kill(connection, SIGKILL);
        if (!connection->ended && connection->process.pid > 0)
            waitpid(connection->process.pid, NULL, 0);
        launch_connection_release(connection);
    }
    for (int i = 0; i < job->rank_count + job->server_count && job->ranks != NULL; i++) {
        launch_stream_release(&job->ranks[i].out);
        launch_stream_release(&job->ranks[i].err);
    }
    launch_peers_close(job->peers);
    if (job->server != NULL)
        boot_store_stop(job->server, 0);
    launch_sink_release(&job->sinks[0]);
    launch_sink_release(&job->sinks[1]);
    base_free(job->connections);
    base_free(job->ranks);
    launch_loop_release(&job->loop);
    launch_fd_close(&job->signal_fd);
}

static enum shoal_status finish(struct job *job, int *exit_code)
{
    int code = job->failure.set ? job->failure.exit_code : 0;
    for (int i = 0; i < job->rank_count + job->server_count; i++) {
        TRY(launch_stream_flush(&job->ranks[i].out));
        TRY(launch_stream_flush(&job->ranks[i].err));
    }
    TRY(launch_job_report_end(job, code));
    for (int i = 0; i < 2; i++)
        launch_sink_finish(&job->sinks[i], base_deadline_ns(FINISH_MS));
    *exit_code = code;
    return SHOAL_OK;
}

/* Without a host in the list: this one, with as many slots as ranks. */
static enum shoal_status hosts_place(const struct launch_options *options)
{
    struct launch_hosts *hosts = options->hosts;
    if (hosts->count == 0) {
        launch_hosts_release(hosts);
        TRY(BASE_NEW_ARRAY(&hosts->hosts, 1, "the list of hosts"));
        struct launch_host *own = &hosts->hosts[0];
        hosts->count = 1;
        own->slots = options->rank_count > 0 ? options->rank_count : 1;
        if (options->part != NULL)
            snprintf(own->name, sizeof(own->name), "%s", options->part->host);
        else
            gethostname(own->name, sizeof(own->name) - 1);
    }
    int slots = launch_hosts_slots(hosts);
    TRY(launch_hosts_place(hosts, options->rank_count > 0 ? options->rank_count : slots));
    if (options->part != NULL)
        hosts->hosts[0].first_rank = options->part->index * hosts->hosts[0].rank_count;
    if (options->server_count > 0)
        TRY(launch_hosts_place_servers(hosts, options->server_hosts, options->server_count));
    return SHOAL_OK;
}

/* Descriptors 0 to 2 must not become something else's. */
static void standard_streams_open(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

enum shoal_status launch_run(const struct launch_options *options, int *exit_code)
{
    struct job job = {.options = options, .signal_fd = -1, .deadline_ns = BASE_NO_DEADLINE};
    sigset_t signals, before;
    standard_streams_open();
    TRY(hosts_place(options));
    void (*pipe_before)(int) = signal(SIGPIPE, SIG_IGN);
    signals_block(&signals, &before);
    enum shoal_status status = job_init(&job, &signals);
    if (status == SHOAL_OK)
        status = watch(&job);
    if (status == SHOAL_OK)
        status = finish(&job, exit_code);
    job_release(&job);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGPIPE, pipe_before);
    return status;
}
