/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.c: the end of a launch that stands on each host.
 *
 * States, by `phase`: WAITING (greeted; survey, probe) -> RUNNING (start_handle) -> ENDING (end(),
 * also when all ranks have ended but processes of theirs are left) -> OVER (nothing is left). In
 * ENDING all descendants have had SIGTERM, and get SIGKILL from kill_ns on, again and again, since
 * new ones may be born meanwhile.
 *
 * Whoever dies, nobody is left: the ranks get SIGKILL when the agent ends; the guard, which is the
 * reaper above the agent, kills what an agent that was killed has left; and the agent gets SIGTERM
 * when the guard ends.
 */
#include "launch/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/wait.h"
#include "launch/agent_ranks.h"
#include "launch/hosts.h"
#include "launch/message.h"
#include "launch/reach.h"
#include "launch/survey.h"

#define READ_BYTES        65536
#define OUT_BYTES_MAX     (1 << 20) /* waiting for the launcher; above it ranks are not read */
#define PROBE_MS          3000
#define LEFTOVER_GRACE_MS 1000 /* for what ranks leave behind that have ended well */
#define KILL_AGAIN_MS     20
#define FLUSH_MS          10000
#define DEFAULT_GRACE_MS  5000

enum agent_phase { WAITING, RUNNING, ENDING, OVER };

struct agent {
    enum agent_phase phase;
    struct launch_loop loop;
    struct launch_bytes in, out; /* the channel */
    bool in_open, out_open;
    int signal_fd, port_fd;
    pid_t guard;
    int64_t grace_ms, kill_ns;
    char directory[4096], path[8192]; /* from the survey */
    struct agent_ranks ranks;
};

/* ---- ending ---- */

static void end(struct agent *agent, int64_t grace_ms)
{
    if (agent->phase == WAITING || agent->phase == OVER) {
        agent->phase = OVER;
        return;
    }
    int64_t kill_ns = base_deadline_ns(grace_ms);
    if (agent->phase == RUNNING || kill_ns < agent->kill_ns)
        agent->kill_ns = kill_ns;
    if (agent->phase == RUNNING && grace_ms > 0) {
        launch_descendants_kill(getpid(), SIGTERM);
        launch_descendants_kill(getpid(), SIGCONT);
    }
    agent->phase = ENDING;
}

/* Says no to the launcher, with the thread's error text, and ends. */
static enum shoal_status refuse(struct agent *agent, int exit_code)
{
    end(agent, 0);
    return launch_message_put_text(&agent->out, LAUNCH_REFUSED, 0, (uint32_t)exit_code,
                                   base_error_text());
}

static void advance(struct agent *agent)
{
    if (agent->phase == WAITING || agent->phase == OVER)
        return;
    if (agent->ranks.childless && agent->ranks.running == 0) {
        agent->phase = OVER;
        return;
    }
    if (agent->phase == RUNNING && agent->ranks.running == 0)
        end(agent, agent->grace_ms < LEFTOVER_GRACE_MS ? agent->grace_ms : LEFTOVER_GRACE_MS);
    if (agent->phase == ENDING && base_now_ns() >= agent->kill_ns) {
        launch_descendants_kill(getpid(), SIGKILL);
        agent->kill_ns = base_deadline_ns(KILL_AGAIN_MS);
    }
}

/* ---- what the launcher asks ---- */

static enum shoal_status survey_answer(struct agent *agent, bool with_port, int wanted_port,
                                       const char *interface)
{
    struct launch_addresses addresses = {.count = 0};
    const char *texts[LAUNCH_ADDRESSES_MAX];
    struct launch_bytes payload = {0};
    int port = 0;
    TRY(launch_addresses_read(with_port ? interface : NULL, &addresses));
    if (with_port)
        TRY(launch_port_open(wanted_port, &agent->port_fd, &port));
    for (int i = 0; i < addresses.count; i++)
        texts[i] = addresses.text[i];
    enum shoal_status status = launch_put_texts(&payload, texts, addresses.count);
    if (status == SHOAL_OK)
        status = launch_message_put(&agent->out, LAUNCH_SURVEYED, 0, (uint32_t)port, &payload);
    launch_bytes_release(&payload);
    return status;
}

static enum shoal_status survey_handle(struct agent *agent, struct launch_message *message)
{
    const char *directory = NULL, *program = NULL, *search_path = NULL, *interface = NULL;
    int exit_code = LAUNCH_EXIT_LAUNCH;
    uint32_t port = 0;
    TRY(launch_read_text(&message->payload, &directory));
    TRY(launch_read_text(&message->payload, &program));
    TRY(launch_read_text(&message->payload, &search_path));
    TRY(launch_read_text(&message->payload, &interface));
    TRY(launch_read_number(&message->payload, &port));
    snprintf(agent->directory, sizeof(agent->directory), "%s", directory);
    enum shoal_status status = launch_program_find(directory, program, search_path, agent->path,
                                                   sizeof(agent->path), &exit_code);
    if (status == SHOAL_OK)
        status = survey_answer(agent, message->value == 1, (int)port, interface);
    return status == SHOAL_OK ? SHOAL_OK : refuse(agent, exit_code);
}

/* Tries one list of addresses and appends the indexes of those that answer. */
static enum shoal_status probe_list(struct launch_reader *reader, struct launch_bytes *answer)
{
    const char **addresses = NULL;
    int count = 0, reached[LAUNCH_ADDRESSES_MAX], reached_count = 0;
    TRY(launch_read_texts(reader, &addresses, &count));
    enum shoal_status status =
        launch_probe(addresses, count, PROBE_MS, reached, &reached_count, NULL, 0);
    base_free(addresses);
    TRY(status);
    TRY(launch_put_number(answer, (uint32_t)reached_count));
    for (int i = 0; i < reached_count; i++)
        TRY(launch_put_number(answer, (uint32_t)reached[i]));
    return SHOAL_OK;
}

static enum shoal_status probe_handle(struct agent *agent, struct launch_message *message)
{
    struct launch_bytes answer = {0};
    enum shoal_status status = probe_list(&message->payload, &answer);
    if (status == SHOAL_OK)
        status = probe_list(&message->payload, &answer);
    if (status == SHOAL_OK)
        status = launch_message_put(&agent->out, LAUNCH_PROBED, 0, 0, &answer);
    launch_bytes_release(&answer);
    return status == SHOAL_OK ? SHOAL_OK : refuse(agent, LAUNCH_EXIT_LAUNCH);
}

/* ---- start ---- */

/* START: numbers size, first rank, ranks here, grace in ms, input, first server, servers here;
 * texts argv, the launcher's environment (empty for the launcher's own host), the job's variables.
 */
struct start_message {
    uint32_t size, first_rank, rank_count, grace_ms, input, first_server, server_count;
    const char **argv, **environment, **variables;
};

static enum shoal_status start_read(struct launch_reader *reader, struct start_message *out)
{
    int count = 0;
    TRY(launch_read_number(reader, &out->size));
    TRY(launch_read_number(reader, &out->first_rank));
    TRY(launch_read_number(reader, &out->rank_count));
    TRY(launch_read_number(reader, &out->grace_ms));
    TRY(launch_read_number(reader, &out->input));
    TRY(launch_read_number(reader, &out->first_server));
    TRY(launch_read_number(reader, &out->server_count));
    TRY(launch_read_texts(reader, &out->argv, &count));
    if (count == 0 || out->rank_count > out->size || out->server_count > LAUNCH_RANKS_MAX ||
        out->rank_count + out->server_count == 0)
        return base_error(SHOAL_ERR_FORMAT, "the launcher's start message is broken");
    TRY(launch_read_texts(reader, &out->environment, &count));
    return launch_read_texts(reader, &out->variables, &count);
}

static enum shoal_status variables_make(const struct start_message *message,
                                        struct launch_variables *out)
{
    long threads = base_cores_granted() / (long)(message->rank_count + message->server_count);
    TRY(launch_variables_put_all(out, environ));
    TRY(launch_variables_put_all(out, (char *const *)message->environment));
    TRY(launch_variables_set_number(out, "WORLD_SIZE", message->size));
    TRY(launch_variables_set_number(out, "SHOAL_SIZE", message->size));
    TRY(launch_variables_set_number(out, "LOCAL_WORLD_SIZE", message->rank_count));
    TRY(launch_variables_set_number(out, "SHOAL_LOCAL_SIZE", message->rank_count));
    TRY(launch_variables_put_all(out, (char *const *)message->variables));
    if (launch_variables_get(out, "OMP_NUM_THREADS") == NULL)
        TRY(launch_variables_set_number(out, "OMP_NUM_THREADS", threads > 0 ? threads : 1));
    return SHOAL_OK;
}

static enum shoal_status ranks_start(struct agent *agent, const struct start_message *message,
                                     int *exit_code)
{
    struct launch_variables variables = {0};
    struct agent_start start = {.size = (int)message->size,
                                .first_rank = (int)message->first_rank,
                                .rank_count = (int)message->rank_count,
                                .first_server = (int)message->first_server,
                                .server_count = (int)message->server_count,
                                .input = message->input == 1,
                                .path = agent->path,
                                .directory = agent->directory,
                                .argv = (char *const *)message->argv,
                                .variables = &variables};
    agent->grace_ms = message->grace_ms;
    agent->phase = RUNNING;
    launch_fd_close(&agent->port_fd); /* so that rank 0 can have the port */
    enum shoal_status status = variables_make(message, &variables);
    if (status == SHOAL_OK)
        status = launch_agent_ranks_start(&agent->ranks, &start, exit_code);
    launch_variables_release(&variables);
    return status;
}

static enum shoal_status start_handle(struct agent *agent, struct launch_message *message)
{
    struct start_message start = {0};
    int exit_code = LAUNCH_EXIT_LAUNCH;
    enum shoal_status status = start_read(&message->payload, &start);
    if (status == SHOAL_OK && agent->phase == WAITING)
        status = ranks_start(agent, &start, &exit_code);
    base_free(start.argv);
    base_free(start.environment);
    base_free(start.variables);
    return status == SHOAL_OK ? SHOAL_OK : refuse(agent, exit_code);
}

/* ---- the channel ---- */

static enum shoal_status input_handle(struct agent *agent, const struct launch_message *message)
{
    struct agent_ranks *ranks = &agent->ranks;
    if (message->payload.left == 0)
        ranks->input_ended = true;
    else if (ranks->count > 0 && ranks->ranks[0].process.in >= 0)
        return launch_bytes_append(&ranks->input, message->payload.next, message->payload.left);
    return SHOAL_OK;
}

static enum shoal_status message_handle(struct agent *agent, struct launch_message *message)
{
    switch (message->type) {
    case LAUNCH_SURVEY: return survey_handle(agent, message);
    case LAUNCH_PROBE: return probe_handle(agent, message);
    case LAUNCH_START: return start_handle(agent, message);
    case LAUNCH_INPUT: return input_handle(agent, message);
    case LAUNCH_SIGNAL: launch_agent_ranks_signal(&agent->ranks, (int)message->value); break;
    case LAUNCH_END: end(agent, message->value); break;
    case LAUNCH_KILL: end(agent, 0); break;
    default: return base_error(SHOAL_ERR_FORMAT, "message %d is not for agents", message->type);
    }
    return SHOAL_OK;
}

static enum shoal_status channel_ended(struct agent *agent)
{
    agent->in_open = false;
    if (agent->phase == WAITING) {
        base_error(SHOAL_ERR_STATE, "stdin ended before the ranks were started; the agent's "
                                    "command must pass it on (ssh without -n or StdinNull)");
        return refuse(agent, LAUNCH_EXIT_LAUNCH);
    }
    end(agent, agent->grace_ms);
    return SHOAL_OK;
}

static enum shoal_status channel_readable(void *owner, short events)
{
    struct agent *agent = owner;
    unsigned char *room = NULL;
    (void)events;
    TRY(launch_bytes_room(&agent->in, READ_BYTES, &room));
    ssize_t count = read(STDIN_FILENO, room, READ_BYTES);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return SHOAL_OK;
    if (count <= 0)
        return channel_ended(agent);
    launch_bytes_grew(&agent->in, (size_t)count);
    for (bool found = true; found;) {
        struct launch_message message;
        TRY(launch_message_take(&agent->in, &message, &found));
        if (found)
            TRY(message_handle(agent, &message));
    }
    return SHOAL_OK;
}

static enum shoal_status channel_writable(void *owner, short events)
{
    struct agent *agent = owner;
    size_t waiting = launch_bytes_count(&agent->out);
    (void)events;
    ssize_t count = write(STDOUT_FILENO, launch_bytes_front(&agent->out), waiting);
    if (count >= 0) {
        launch_bytes_take(&agent->out, (size_t)count);
    } else if (errno != EAGAIN && errno != EINTR) {
        agent->out_open = false; /* nobody hears; stdin's end will follow */
        end(agent, agent->grace_ms);
    }
    return SHOAL_OK;
}

/* An agent that has lost its guard says nothing more: the ends of ranks that it could tell of are
 * its own doing, and a launcher that hears of them first would take them for the cause. */
static void end_signal(struct agent *agent)
{
    if (getppid() != agent->guard)
        agent->out_open = false;
    end(agent, agent->grace_ms);
}

static enum shoal_status signal_readable(void *owner, short events)
{
    struct agent *agent = owner;
    struct signalfd_siginfo info;
    (void)events;
    while (read(agent->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo != SIGCHLD)
            end_signal(agent);
    return SHOAL_OK;
}

/* ---- the loop ---- */

static enum shoal_status turn(struct agent *agent)
{
    struct launch_loop *loop = &agent->loop;
    size_t waiting = launch_bytes_count(&agent->out);
    if (!agent->out_open)
        launch_bytes_take(&agent->out, waiting);
    TRY(launch_loop_add(loop,
                        (struct launch_watch){agent->signal_fd, POLLIN, signal_readable, agent}));
    if (agent->in_open)
        TRY(launch_loop_add(loop,
                            (struct launch_watch){STDIN_FILENO, POLLIN, channel_readable, agent}));
    if (agent->out_open && waiting > 0)
        TRY(launch_loop_add(
            loop, (struct launch_watch){STDOUT_FILENO, POLLOUT, channel_writable, agent}));
    TRY(launch_agent_ranks_watch(&agent->ranks, loop, waiting < OUT_BYTES_MAX));
    TRY(launch_loop_turn(loop, agent->phase == ENDING ? agent->kill_ns : BASE_NO_DEADLINE));
    TRY(launch_agent_ranks_reap(&agent->ranks));
    advance(agent);
    return SHOAL_OK;
}

static enum shoal_status channel_flush(struct agent *agent)
{
    int64_t deadline_ns = base_deadline_ns(FLUSH_MS);
    while (agent->out_open && launch_bytes_count(&agent->out) > 0 && base_now_ns() < deadline_ns) {
        TRY(launch_loop_add(
            &agent->loop, (struct launch_watch){STDOUT_FILENO, POLLOUT, channel_writable, agent}));
        TRY(launch_loop_turn(&agent->loop, deadline_ns));
    }
    return SHOAL_OK;
}

static enum shoal_status greet(struct agent *agent)
{
    struct launch_bytes payload = {0};
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    TRY(launch_bytes_append(&agent->out, LAUNCH_GREETING, strlen(LAUNCH_GREETING)));
    enum shoal_status status = launch_put_text(&payload, SHOAL_VERSION_STRING);
    if (status == SHOAL_OK)
        status = launch_put_text(&payload, name);
    if (status == SHOAL_OK)
        status = launch_message_put(&agent->out, LAUNCH_HELLO, 0, 0, &payload);
    launch_bytes_release(&payload);
    return status;
}

static enum shoal_status serve(struct agent *agent)
{
    TRY(greet(agent));
    while (agent->phase != OVER)
        TRY(turn(agent));
    TRY(launch_agent_ranks_drain(&agent->ranks));
    TRY(launch_message_put(&agent->out, LAUNCH_DONE, 0, 0, NULL));
    return channel_flush(agent);
}

/* After an error of the agent's own nothing can be promised but that the ranks end. */
static void give_up(void)
{
    fprintf(stderr, "shoal run-agent: %s\n", base_error_text());
    for (bool going = true; going;) {
        launch_descendants_kill(getpid(), SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        going = waitpid(-1, NULL, WNOHANG) == 0;
        if (going)
            base_sleep_ms(KILL_AGAIN_MS);
    }
}

static void set_nonblocking(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static int agent_run(const sigset_t *signals, pid_t guard)
{
    struct agent agent = {.in_open = true,
                          .out_open = true,
                          .port_fd = -1,
                          .guard = guard,
                          .grace_ms = DEFAULT_GRACE_MS,
                          .kill_ns = BASE_NO_DEADLINE};
    agent.ranks.reports = &agent.out;
    agent.signal_fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    set_nonblocking(STDIN_FILENO);
    set_nonblocking(STDOUT_FILENO);
    enum shoal_status status = SHOAL_ERR_SYSTEM;
    if (agent.signal_fd < 0)
        base_error_errno(status, errno, "signalfd");
    else
        status = serve(&agent);
    if (status != SHOAL_OK)
        give_up();
    launch_agent_ranks_release(&agent.ranks);
    launch_bytes_release(&agent.in);
    launch_bytes_release(&agent.out);
    launch_loop_release(&agent.loop);
    launch_fd_close(&agent.signal_fd);
    launch_fd_close(&agent.port_fd);
    return status == SHOAL_OK ? 0 : LAUNCH_EXIT_LAUNCH;
}

/* ---- the guard ---- */

/* Waits for the agent, then ends what it has left. */
static int guard_run(pid_t agent)
{
    int wait_status = 0, agent_status = 0;
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    for (pid_t pid = 0; pid != agent;) {
        pid = waitpid(-1, &wait_status, 0);
        if (pid < 0 && errno != EINTR)
            return LAUNCH_EXIT_LAUNCH;
        agent_status = wait_status;
    }
    for (pid_t pid = 0; pid >= 0;) {
        launch_descendants_kill(getpid(), SIGKILL);
        do
            pid = waitpid(-1, &wait_status, WNOHANG);
        while (pid > 0);
        if (pid == 0)
            base_sleep_ms(KILL_AGAIN_MS);
    }
    return launch_exit_code(agent_status);
}

/* A terminal echoes, and gives bytes a meaning. */
static bool refuse_terminal(void)
{
    if (isatty(STDIN_FILENO) != 1)
        return false;
    fprintf(stderr, "shoal run-agent: stdin is a terminal, through which messages do not pass "
                    "unchanged; the agent's command must not make one (ssh -T)\n");
    return true;
}

int launch_agent_main(void)
{
    sigset_t signals, before;
    if (refuse_terminal())
        return LAUNCH_EXIT_LAUNCH;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigprocmask(SIG_BLOCK, &signals, &before);
    pid_t guard = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "shoal run-agent: fork: %s\n", strerror(errno));
        return LAUNCH_EXIT_LAUNCH;
    }
    if (pid > 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        return guard_run(pid);
    }
    setpgid(0, 0); /* who kills the guard's group leaves the agent time to end the ranks */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != guard)
        return LAUNCH_EXIT_LAUNCH;
    return agent_run(&signals, guard);
}
