/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervisor.c: the life of one job.
 *
 * Whatever happens to it, the job ends with one record: the first cause is kept (a failure, a stop,
 * the time limit, a signal to the supervisor), and what instances do afterwards does not change it.
 * The record is written when no process of the job is left; then the lock goes with the process. So
 * whoever finds neither lock nor record knows that the supervisor was killed.
 */
#include "job/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "job/supervisor_state.h"
#include "launch/process.h"

#define INTERRUPTED_GRACE_S 5

static int64_t wall_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- ending it ---- */

static void signal_all(struct supervisor *supervisor, int signal_number)
{
    for (int i = 0; i < job_instances_count(supervisor->instances); i++) {
        if (job_instances_state(supervisor->instances, i) != JOB_INSTANCE_RUNNING)
            continue;
        if (signal_number == SIGKILL)
            job_instances_kill(supervisor->instances, i);
        else
            job_instances_signal(supervisor->instances, i, signal_number);
    }
}

void supervisor_end(struct supervisor *supervisor, enum job_outcome outcome, int64_t grace_s)
{
    if (supervisor->phase != SUPERVISOR_RUNNING)
        return;
    supervisor->phase = SUPERVISOR_ENDING;
    supervisor->record.outcome = outcome;
    supervisor->kill_ns = base_deadline_ns(grace_s * 1000);
    signal_all(supervisor, SIGTERM);
}

void supervisor_kill(struct supervisor *supervisor)
{
    supervisor_end(supervisor, JOB_STOPPED, 0);
    if (supervisor->phase == SUPERVISOR_ENDING)
        supervisor->kill_ns = base_now_ns();
}

void supervisor_set_limit(struct supervisor *supervisor, int64_t max_runtime_s)
{
    supervisor->limit_ns = supervisor->started_ns + max_runtime_s * BASE_NS_PER_S;
}

/* ---- looking at it ---- */

/* A companion that ends was needed for the job to go on. Its words are the reason. */
static void look_at_companions(struct supervisor *supervisor)
{
    struct job_record *record = &supervisor->record;
    for (int i = 0; i < supervisor->description->companion_count; i++) {
        struct companion *companion = &supervisor->companions[i];
        if (supervisor->phase != SUPERVISOR_RUNNING || !companion_has_ended(companion))
            continue;
        companion_describe(companion, record->reason, sizeof(record->reason));
        record->exit_code = LAUNCH_EXIT_LAUNCH;
        supervisor_end(supervisor, JOB_FAILED, supervisor->description->failure_grace_s);
    }
}

/* Of the instances that have failed by now the one that tells the most: one that was killed by a
 * signal before those that may only have lost it. */
static int find_failed(const struct supervisor *supervisor)
{
    int found = -1;
    for (int i = 0; i < job_instances_count(supervisor->instances); i++) {
        if (job_instances_state(supervisor->instances, i) != JOB_INSTANCE_ENDED)
            continue;
        int wait_status = job_instances_wait_status(supervisor->instances, i);
        if (wait_status != 0 && (found < 0 || WIFSIGNALED(wait_status)))
            found = i;
    }
    return found;
}

static void note_failure(struct supervisor *supervisor, int index)
{
    struct job_record *record = &supervisor->record;
    supervisor->first_failed = index;
    record->exit_code = launch_exit_code(job_instances_wait_status(supervisor->instances, index));
    job_failure_text(&supervisor->description->plan, supervisor->instances, index, record->reason,
                     sizeof(record->reason));
    supervisor_end(supervisor, JOB_FAILED, supervisor->description->failure_grace_s);
}

static bool all_ended(const struct supervisor *supervisor)
{
    for (int i = 0; i < job_instances_count(supervisor->instances); i++) {
        if (job_instances_state(supervisor->instances, i) != JOB_INSTANCE_ENDED)
            return false;
    }
    return true;
}

static void look(struct supervisor *supervisor)
{
    int failed;
    if (supervisor->phase == SUPERVISOR_RUNNING && (failed = find_failed(supervisor)) >= 0)
        note_failure(supervisor, failed);
    if (!all_ended(supervisor))
        look_at_companions(supervisor);
    if (all_ended(supervisor)) {
        if (supervisor->phase == SUPERVISOR_RUNNING)
            supervisor->record.outcome = JOB_COMPLETED;
        supervisor->phase = SUPERVISOR_ENDED;
    } else if (supervisor->phase == SUPERVISOR_RUNNING && base_now_ns() >= supervisor->limit_ns) {
        supervisor_end(supervisor, JOB_OUT_OF_TIME, supervisor->description->grace_s);
    } else if (supervisor->phase == SUPERVISOR_ENDING && base_now_ns() >= supervisor->kill_ns) {
        supervisor->kill_ns = BASE_NO_DEADLINE;
        signal_all(supervisor, SIGKILL);
    }
}

/* SIGTERM: the machine goes down, or somebody ends the job's processes by hand. */
static enum shoal_status signal_ready(void *owner, short events)
{
    struct supervisor *supervisor = owner;
    struct signalfd_siginfo info;
    (void)events;
    while (read(supervisor->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        supervisor_end(supervisor, JOB_INTERRUPTED, INTERRUPTED_GRACE_S);
    return SHOAL_OK;
}

static enum shoal_status turn(struct supervisor *supervisor, struct launch_loop *loop)
{
    int64_t deadline_ns =
        supervisor->phase == SUPERVISOR_ENDING ? supervisor->kill_ns : supervisor->limit_ns;
    TRY(launch_loop_add(
        loop, (struct launch_watch){supervisor->signal_fd, POLLIN, signal_ready, supervisor}));
    TRY(supervisor_watch_clients(supervisor, loop));
    TRY(job_instances_watch(supervisor->instances, loop));
    for (int i = 0; i < supervisor->description->companion_count; i++)
        TRY(companion_watch(&supervisor->companions[i], loop));
    TRY(launch_loop_turn(loop, deadline_ns));
    look(supervisor);
    return SHOAL_OK;
}

static enum shoal_status watch(struct supervisor *supervisor)
{
    struct launch_loop loop = {0};
    enum shoal_status status = SHOAL_OK;
    while (status == SHOAL_OK && supervisor->phase != SUPERVISOR_ENDED)
        status = turn(supervisor, &loop);
    launch_loop_release(&loop);
    return status;
}

/* ---- from beginning to end ---- */

static void note_not_started(struct supervisor *supervisor, int exec_errno)
{
    struct job_record *record = &supervisor->record;
    const char *text = base_error_text();
    char words[BASE_ERROR_TEXT_BYTES];
    job_clean_text(text, strlen(text), JOB_REASON_CHARS_MAX - 192, words, sizeof(words));
    record->started_ms = 0;
    if (exec_errno != 0) {
        record->outcome = JOB_FAILED;
        record->exit_code =
            exec_errno == ENOENT ? LAUNCH_EXIT_NOT_FOUND : LAUNCH_EXIT_NOT_EXECUTABLE;
        snprintf(record->reason, sizeof(record->reason),
                 "AlgorithmError: " JOB_CANNOT_START "%s, exit code: %d", words, record->exit_code);
    } else {
        record->outcome = JOB_NOT_STARTED;
        record->exit_code = LAUNCH_EXIT_LAUNCH;
        snprintf(record->reason, sizeof(record->reason), "InternalServerError: %s", words);
    }
    supervisor->phase = SUPERVISOR_ENDED;
}

static enum shoal_status start_instances(struct supervisor *supervisor, int *exec_errno)
{
    for (int i = 0; i < supervisor->description->companion_count; i++)
        TRY(companion_start(&supervisor->companions[i], supervisor->description->companions[i]));
    TRY(job_instances_create(&supervisor->description->plan, &supervisor->instances));
    TRY(job_instances_start(supervisor->instances, exec_errno));
    supervisor->phase = SUPERVISOR_RUNNING;
    supervisor->started_ns = base_now_ns();
    supervisor->record.started_ms = wall_clock_ms();
    supervisor_set_limit(supervisor, supervisor->description->max_runtime_s);
    return SHOAL_OK;
}

/* A failure of ours while the job runs ends it, as a failure of this machine. */
static void run_job(struct supervisor *supervisor)
{
    int exec_errno = 0;
    if (start_instances(supervisor, &exec_errno) != SHOAL_OK) {
        note_not_started(supervisor, exec_errno);
    } else if (watch(supervisor) != SHOAL_OK) {
        supervisor->record.outcome = JOB_INTERRUPTED;
        snprintf(supervisor->record.reason, sizeof(supervisor->record.reason),
                 "InternalServerError: %s", base_error_text());
    }
}

/* The lock is taken before anything else is changed in the folder. */
static enum shoal_status take_lock(struct supervisor *supervisor)
{
    int fd = open(SUPERVISOR_LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s/" SUPERVISOR_LOCK_FILE,
                                supervisor->folder);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return base_error(SHOAL_ERR_STATE, "a supervisor of the job in %s runs already",
                          supervisor->folder);
    }
    supervisor->lock_fd = fd;
    if (access(JOB_EXIT_FILE, F_OK) == 0)
        return base_error(SHOAL_ERR_STATE, "the job in %s has ended before", supervisor->folder);
    return SHOAL_OK;
}

static enum shoal_status take_signals(struct supervisor *supervisor)
{
    static const int ignored[] = {SIGINT, SIGHUP, SIGQUIT, SIGPIPE};
    sigset_t blocked;
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    supervisor->signal_fd = signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    if (supervisor->signal_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening a signal descriptor");
    return SHOAL_OK;
}

static enum shoal_status take_charge(struct supervisor *supervisor)
{
    if (chdir(supervisor->folder) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "entering the job's folder %s",
                                supervisor->folder);
    TRY(take_lock(supervisor));
    job_record_reserve(supervisor->folder);
    TRY(job_description_read(supervisor->folder, &supervisor->description));
    TRY(take_signals(supervisor));
    return supervisor_listen(supervisor);
}

static void say_ready(int ready_fd, enum shoal_status status)
{
    if (ready_fd < 0)
        return;
    dprintf(ready_fd, "%s", status == SHOAL_OK ? SUPERVISOR_READY : base_error_text());
    dup2(STDERR_FILENO, ready_fd);
}

/* The instances end before the record is written, the socket goes after it. */
static enum shoal_status leave(struct supervisor *supervisor)
{
    if (supervisor->instances != NULL)
        job_instances_end(supervisor->instances);
    for (int i = 0; i < supervisor->description->companion_count; i++)
        companion_end(&supervisor->companions[i]);
    supervisor->record.ended_ms = wall_clock_ms();
    enum shoal_status status =
        job_record_write(supervisor->folder, &supervisor->record,
                         supervisor->record.started_ms > 0 ? supervisor->instances : NULL);
    if (status != SHOAL_OK)
        base_log(BASE_LOG_ERROR, "%s", base_error_text());
    return status;
}

enum shoal_status job_supervisor_run(const char *folder, int ready_fd)
{
    struct supervisor supervisor = {.folder = folder,
                                    .first_failed = -1,
                                    .lock_fd = -1,
                                    .listen_fd = -1,
                                    .signal_fd = -1,
                                    .limit_ns = BASE_NO_DEADLINE,
                                    .kill_ns = BASE_NO_DEADLINE};
    enum shoal_status status = take_charge(&supervisor);
    say_ready(ready_fd, status);
    if (status == SHOAL_OK) {
        run_job(&supervisor);
        status = leave(&supervisor);
    }
    job_instances_free(supervisor.instances);
    supervisor_close_clients(&supervisor);
    job_description_free(supervisor.description);
    launch_fd_close(&supervisor.signal_fd);
    launch_fd_close(&supervisor.lock_fd);
    return status;
}
