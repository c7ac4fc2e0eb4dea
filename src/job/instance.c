/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance.c: the maker's side of a job's instances. Their own side is in instance_process.c.
 *
 * States of an instance: PREPARED until its first process says STARTED, RUNNING until both its
 * socket and its output have ended, then ENDED. The order in which the two end is the kernel's.
 */
#include "job/instance.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "job/instance_state.h"
#include "job/internet.h"
#include "launch/process.h"

#define HALL_NAMESPACES  (CLONE_NEWPID | CLONE_NEWNET)
#define READY_TIMEOUT_MS 30000
#define CLEAR_TIMEOUT_MS 10000
#define OUTPUT_BYTES     (64u << 10)
#define NAME_BYTES_MAX   128

const char *job_host_name(int index, char buffer[JOB_HOST_BYTES])
{
    snprintf(buffer, JOB_HOST_BYTES, "algo-%d", index + 1);
    return buffer;
}

/* ---- the plan ---- */

static bool is_name(const char *name)
{
    size_t bytes = strlen(name);
    for (size_t i = 0; i < bytes; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '-')
            return false;
    }
    return bytes > 0 && bytes <= NAME_BYTES_MAX;
}

static enum shoal_status check_mounts(const struct job_mount *mounts, int count)
{
    if (count < 0 || count > JOB_MOUNTS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "%d mounts: at most %d are possible", count,
                          JOB_MOUNTS_MAX);
    for (int i = 0; i < count; i++) {
        if (mounts[i].from[0] != '/' || mounts[i].to[0] != '/')
            return base_error(SHOAL_ERR_ARGUMENT, "mount %s at %s: both paths must be absolute",
                              mounts[i].from, mounts[i].to);
    }
    return SHOAL_OK;
}

static enum shoal_status check_doors(const struct job_plan *plan)
{
    if (plan->door_count < 0 || plan->door_count > JOB_DOORS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "%d doors: at most %d are possible", plan->door_count,
                          JOB_DOORS_MAX);
    for (int i = 0; i < plan->door_count; i++) {
        if (plan->doors[i].port < 1 || plan->doors[i].port > 65535)
            return base_error(SHOAL_ERR_ARGUMENT, "%d is no port", plan->doors[i].port);
        if (strcmp(plan->doors[i].to, JOB_INTERNET) != 0)
            TRY(forward_check(plan->doors[i].to));
    }
    return SHOAL_OK;
}

static enum shoal_status check_plan(const struct job_plan *plan)
{
    if (plan->count < 1 || plan->count > JOB_INSTANCES_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "%d instances: 1 to %d are possible", plan->count,
                          JOB_INSTANCES_MAX);
    if (!is_name(plan->name))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "'%s' is no name of a job: letters, digits and hyphens", plan->name);
    if (plan->program == NULL || plan->program[0] == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "job %s has no program to run", plan->name);
    for (int i = 0; i < plan->count; i++) {
        if (plan->instances[i].folder[0] != '/')
            return base_error(SHOAL_ERR_ARGUMENT, "the instance's folder '%s' is not absolute",
                              plan->instances[i].folder);
        TRY(check_mounts(plan->instances[i].mounts, plan->instances[i].mount_count));
    }
    TRY(check_doors(plan));
    return check_mounts(plan->mounts, plan->mount_count);
}

/* ---- making them ---- */

static enum shoal_status make_socket_pair(int *ours, int *theirs)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making a socket pair");
    *ours = pair[0];
    *theirs = pair[1];
    return SHOAL_OK;
}

const struct job_limits *instance_limits(const struct job_plan *plan, int index)
{
    const struct job_limits *own = plan->instances[index].limits;
    return own != NULL ? own : &plan->limits;
}

const struct job_mount *instance_mount(const struct job_plan *plan, int index, int mount)
{
    return mount < plan->mount_count ? &plan->mounts[mount]
                                     : &plan->instances[index].mounts[mount - plan->mount_count];
}

static enum shoal_status prepare_instance(struct job_instances *all, int index)
{
    struct instance *instance = &all->instances[index];
    const struct job_plan *plan = all->plan;
    char name[NAME_BYTES_MAX + JOB_HOST_BYTES + 8], host[JOB_HOST_BYTES];
    int output[2];
    TRY(instance_folder_fill(plan, index));
    TRY(job_log_open(&instance->log, plan->instances[index].log_path));
    TRY(make_socket_pair(&instance->control_fd, &instance->first_fd));
    if (pipe2(output, O_CLOEXEC) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making a pipe");
    instance->output_fd = output[0];
    instance->output_write_fd = output[1];
    if (fcntl(output[0], F_SETFL, O_NONBLOCK) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "setting up a pipe");
    snprintf(name, sizeof(name), "%s-%s", plan->name, job_host_name(index, host));
    limits_group_create(&instance->group, instance_limits(plan, index), name);
    return SHOAL_OK;
}

static enum shoal_status instances_allocate(const struct job_plan *plan, struct job_instances **out)
{
    struct job_instances *all;
    TRY(BASE_NEW(&all, "a job's instances"));
    *all = (struct job_instances){.plan = plan, .hall_pid = -1, .hall_fd = -1, .hall_own_fd = -1};
    enum shoal_status status = BASE_NEW_ARRAY(&all->instances, plan->count, "a job's instances");
    if (status != SHOAL_OK) {
        base_free(all);
        return status;
    }
    for (int i = 0; i < plan->count; i++) {
        struct instance *instance = &all->instances[i];
        instance->control_fd = instance->first_fd = -1;
        instance->output_fd = instance->output_write_fd = -1;
        instance->log.fd = -1;
        instance->all = all;
    }
    *out = all;
    return SHOAL_OK;
}

/* ---- the hall ---- */

static int read_setting(const char *path)
{
    FILE *file = fopen(path, "re");
    int value = -1;
    if (file != NULL) {
        if (fscanf(file, "%d", &value) != 1)
            value = -1;
        fclose(file);
    }
    return value;
}

static enum shoal_status explain_refusal(int error_number)
{
    const char *why = "the kernel or a container's rules forbid it";
    if (read_setting("/proc/sys/user/max_user_namespaces") == 0)
        why = "user.max_user_namespaces is 0";
    else if (read_setting("/proc/sys/kernel/unprivileged_userns_clone") == 0)
        why = "kernel.unprivileged_userns_clone is 0";
    else if (read_setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
        why = "kernel.apparmor_restrict_unprivileged_userns is 1";
    return base_error_errno(SHOAL_ERR_SYSTEM, error_number,
                            "a job's instances are Linux namespaces, which this user may not make "
                            "here (%s): run the service as root (in a container: with "
                            "CAP_SYS_ADMIN), or allow user namespaces",
                            why);
}

static enum shoal_status write_map(pid_t pid, const char *file, const char *text)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    int error_number = errno;
    if (fd >= 0)
        close(fd);
    return written ? SHOAL_OK
                   : base_error_errno(SHOAL_ERR_SYSTEM, error_number, "writing %s", path);
}

/* This user is root in the namespace; others do not exist there. */
static enum shoal_status map_ids(struct job_instances *all)
{
    char users[64], groups[64];
    snprintf(users, sizeof(users), "0 %u 1", (unsigned)geteuid());
    snprintf(groups, sizeof(groups), "0 %u 1", (unsigned)getegid());
    TRY(write_map(all->hall_pid, "setgroups", "deny"));
    TRY(write_map(all->hall_pid, "uid_map", users));
    TRY(write_map(all->hall_pid, "gid_map", groups));
    struct instance_message go = {.type = INSTANCE_GO};
    instance_send(all->hall_fd, &go);
    return SHOAL_OK;
}

static pid_t clone_hall(struct job_instances *all, bool user_namespace)
{
    unsigned long flags = HALL_NAMESPACES | SIGCHLD | (user_namespace ? CLONE_NEWUSER : 0);
    all->user_namespace = user_namespace;
    pid_t pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
    if (pid == 0)
        instance_hall_run(all);
    return pid;
}

/* As ourselves where that is allowed, else in a user namespace. Signals are blocked meanwhile, so
 * that no handler of the caller's runs in the copy. */
static enum shoal_status start_hall(struct job_instances *all)
{
    sigset_t every, before;
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, &before);
    all->hall_pid = clone_hall(all, false);
    if (all->hall_pid < 0 && errno == EPERM)
        all->hall_pid = clone_hall(all, true);
    int error_number = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (all->hall_pid < 0)
        return explain_refusal(error_number);
    return all->user_namespace ? map_ids(all) : SHOAL_OK;
}

static void close_their_ends(struct job_instances *all)
{
    launch_fd_close(&all->hall_own_fd);
    for (int i = 0; i < all->plan->count; i++) {
        launch_fd_close(&all->instances[i].first_fd);
        launch_fd_close(&all->instances[i].output_write_fd);
    }
}

/* ---- waiting for all of them ---- */

/* The next message on a socket, before the deadline, with what descriptors it has. */
static enum shoal_status await_fds(int fd, const char *whose, int64_t deadline_ns,
                                   struct instance_message *message, int fds[JOB_DOORS_MAX],
                                   int *count)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    int ready;
    while ((ready = poll(&poller, 1, base_left_ms(deadline_ns))) < 0 && errno == EINTR)
        continue;
    if (ready <= 0)
        return base_error(SHOAL_ERR_TIMEOUT, "%s was not ready within %d s", whose,
                          READY_TIMEOUT_MS / 1000);
    if (!instance_receive_fds(fd, message, fds, count))
        return base_error(SHOAL_ERR_SYSTEM, "the first process of %s ended at once", whose);
    if (message->type == INSTANCE_FAILED)
        return base_error_errno(SHOAL_ERR_SYSTEM, message->error_number, "%s: %s", whose,
                                message->step);
    return SHOAL_OK;
}

static enum shoal_status await_message(int fd, const char *whose, int64_t deadline_ns,
                                       struct instance_message *message)
{
    int fds[JOB_DOORS_MAX], count;
    return await_fds(fd, whose, deadline_ns, message, fds, &count);
}

/* Takes the socket. A second door to the Internet leads nowhere. */
static enum shoal_status open_door(struct job_instances *all, int fd, const char *to)
{
    if (strcmp(to, JOB_INTERNET) != 0)
        return forward_add(&all->forward, fd, to);
    if (all->internet_pid > 0) {
        close(fd);
        return SHOAL_OK;
    }
    return internet_start(fd, &all->internet_pid);
}

static enum shoal_status await_ready(struct job_instances *all)
{
    int64_t deadline_ns = base_deadline_ns(READY_TIMEOUT_MS);
    struct instance_message message;
    char name[JOB_HOST_BYTES];
    int doors[JOB_DOORS_MAX], door_count;
    TRY(await_fds(all->hall_fd, "the job's network", deadline_ns, &message, doors, &door_count));
    for (int i = 0; i < door_count; i++)
        TRY(open_door(all, doors[i], all->plan->doors[i].to));
    if (door_count != all->plan->door_count)
        return base_error(SHOAL_ERR_LIMIT,
                          "too many open files for the doors of the job's network");
    for (int i = 0; i < all->plan->count; i++)
        TRY(await_message(all->instances[i].control_fd, job_host_name(i, name), deadline_ns,
                          &message));
    return SHOAL_OK;
}

static enum shoal_status build(struct job_instances *all)
{
    for (int i = 0; i < all->plan->count; i++)
        TRY(prepare_instance(all, i));
    TRY(make_socket_pair(&all->hall_fd, &all->hall_own_fd));
    enum shoal_status status = start_hall(all);
    close_their_ends(all);
    return status == SHOAL_OK ? await_ready(all) : status;
}

enum shoal_status job_instances_create(const struct job_plan *plan, struct job_instances **out)
{
    struct job_instances *all;
    TRY(check_plan(plan));
    TRY(instances_allocate(plan, &all));
    enum shoal_status status = build(all);
    if (status != SHOAL_OK) {
        job_instances_free(all);
        return base_error_context(status, "making the instances of job %s", plan->name);
    }
    *out = all;
    return SHOAL_OK;
}

enum shoal_status job_instances_start(struct job_instances *all, int *exec_errno)
{
    int64_t deadline_ns = base_deadline_ns(READY_TIMEOUT_MS);
    struct instance_message go = {.type = INSTANCE_GO}, answer = {0};
    char name[JOB_HOST_BYTES];
    for (int i = 0; i < all->plan->count; i++)
        instance_send(all->instances[i].control_fd, &go);
    for (int i = 0; i < all->plan->count; i++) {
        enum shoal_status status = await_message(all->instances[i].control_fd,
                                                 job_host_name(i, name), deadline_ns, &answer);
        if (status != SHOAL_OK) {
            *exec_errno = answer.type == INSTANCE_FAILED ? answer.error_number : 0;
            return status;
        }
        all->instances[i].state = JOB_INSTANCE_RUNNING;
    }
    return SHOAL_OK;
}

/* ---- their life ---- */

static void settle(struct instance *instance)
{
    if (instance->control_fd >= 0 || instance->output_fd >= 0)
        return;
    if (!instance->exited)
        instance->wait_status = SIGKILL;
    instance->out_of_memory = limits_group_out_of_memory(&instance->group);
    instance->state = JOB_INSTANCE_ENDED;
}

/* Takes what there is of the program's output. Closes at its end, and then writes the log's last
 * line. False when there is nothing more to take now. */
static bool take_output(struct instance *instance, enum shoal_status *status)
{
    char data[OUTPUT_BYTES];
    ssize_t count = read(instance->output_fd, data, sizeof(data));
    if (count < 0 && errno == EINTR)
        return true;
    if (count < 0 && errno == EAGAIN)
        return false;
    if (count > 0) {
        *status = job_log_write(&instance->log, data, (size_t)count);
        return *status == SHOAL_OK;
    }
    launch_fd_close(&instance->output_fd);
    job_log_close(&instance->log);
    return false;
}

static enum shoal_status output_ready(void *owner, short events)
{
    enum shoal_status status = SHOAL_OK;
    (void)events;
    take_output(owner, &status);
    settle(owner);
    return status;
}

static enum shoal_status control_ready(void *owner, short events)
{
    struct instance *instance = owner;
    struct instance_message message;
    (void)events;
    if (instance_receive(instance->control_fd, &message)) {
        if (message.type == INSTANCE_EXITED) {
            instance->exited = true;
            instance->wait_status = message.value;
        }
        return SHOAL_OK;
    }
    launch_fd_close(&instance->control_fd);
    settle(instance);
    return SHOAL_OK;
}

enum shoal_status job_instances_watch(struct job_instances *all, struct launch_loop *loop)
{
    TRY(forward_watch(&all->forward, loop));
    for (int i = 0; i < all->plan->count; i++) {
        struct instance *instance = &all->instances[i];
        if (instance->control_fd >= 0)
            TRY(launch_loop_add(loop, (struct launch_watch){instance->control_fd, POLLIN,
                                                            control_ready, instance}));
        if (instance->output_fd >= 0)
            TRY(launch_loop_add(
                loop, (struct launch_watch){instance->output_fd, POLLIN, output_ready, instance}));
    }
    return SHOAL_OK;
}

int job_instances_count(const struct job_instances *all)
{
    return all->plan->count;
}

enum job_instance_state job_instances_state(const struct job_instances *all, int index)
{
    return all->instances[index].state;
}

int job_instances_wait_status(const struct job_instances *all, int index)
{
    return all->instances[index].wait_status;
}

bool job_instances_out_of_memory(const struct job_instances *all, int index)
{
    return all->instances[index].out_of_memory;
}

const struct job_log *job_instances_log(const struct job_instances *all, int index)
{
    return &all->instances[index].log;
}

void job_instances_signal(struct job_instances *all, int index, int signal_number)
{
    struct instance_message message = {.type = INSTANCE_SIGNAL, .value = signal_number};
    if (all->instances[index].control_fd >= 0)
        instance_send(all->instances[index].control_fd, &message);
}

void job_instances_kill(struct job_instances *all, int index)
{
    struct instance_message message = {.type = INSTANCE_KILL};
    if (all->instances[index].control_fd >= 0)
        instance_send(all->instances[index].control_fd, &message);
}

/* ---- their end ---- */

static bool hall_has_ended(pid_t pid)
{
    pid_t got = waitpid(pid, NULL, WNOHANG);
    return got == pid || (got < 0 && errno == ECHILD);
}

/* The hall clears up when our end of its socket closes. */
static void end_hall(struct job_instances *all)
{
    launch_fd_close(&all->hall_fd);
    if (all->hall_pid < 0)
        return;
    int64_t deadline_ns = base_deadline_ns(CLEAR_TIMEOUT_MS);
    bool ended;
    while (!(ended = hall_has_ended(all->hall_pid)) && base_now_ns() < deadline_ns)
        base_sleep_ms(1);
    if (!ended) {
        kill(all->hall_pid, SIGKILL);
        while (waitpid(all->hall_pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    all->hall_pid = -1;
}

static void end_instance(struct instance *instance)
{
    enum shoal_status status = SHOAL_OK;
    launch_fd_close(&instance->control_fd);
    while (instance->output_fd >= 0 && take_output(instance, &status))
        continue;
    launch_fd_close(&instance->output_fd);
    job_log_close(&instance->log);
    if (instance->state != JOB_INSTANCE_ENDED)
        settle(instance);
    limits_group_remove(&instance->group);
}

void job_instances_end(struct job_instances *all)
{
    close_their_ends(all);
    forward_release(&all->forward);
    internet_end(all->internet_pid);
    all->internet_pid = -1;
    end_hall(all);
    for (int i = 0; i < all->plan->count; i++)
        end_instance(&all->instances[i]);
}

void job_instances_free(struct job_instances *all)
{
    if (all == NULL)
        return;
    job_instances_end(all);
    base_free(all->instances);
    base_free(all);
}
