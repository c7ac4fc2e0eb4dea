/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance_process.c: the processes that hold a job's instances.
 *
 *   maker ── hall: first process of a PID namespace; holds the bridge of the job's network
 *              ├── first process of algo-1, in a PID namespace inside the hall's ── the program
 *              ├── first process of algo-2 …
 *
 * The hall and the first processes are copies of the maker that never execute another program. They
 * sleep on their sockets to the maker. When the maker ends, also by SIGKILL, the hall kills all
 * that is in its PID namespace, which is all of the job, waits for it, and removes the control
 * groups. With their last process the namespaces go, and with these the bridge, the veth pairs and
 * the mounts: nothing of them has a name outside. When the hall is killed the kernel does the same.
 *
 * A first process is its instance's init: it starts the program, reaps orphans, passes signals on,
 * and ends when the program has ended, whereupon the kernel kills what is left in the instance.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job/instance_state.h"
#include "job/netlink.h"

#define INSTANCE_NAMESPACES \
    (CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC)
#define BRIDGE       "br0"
#define FDS_MAX      (8 + LIMITS_TREES_MAX * JOB_INSTANCES_MAX + 2 * JOB_INSTANCES_MAX)
#define OOM_PRIORITY "300" /* the kernel ends a job before the service */

/* ---- what hall, first processes and maker have in common ---- */

bool instance_step_failed(struct instance_message *failure, bool failed, const char *format, ...)
{
    if (!failed)
        return false;
    failure->error_number = errno;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->step, sizeof(failure->step), format, arguments);
    va_end(arguments);
    return true;
}

bool instance_send(int fd, const struct instance_message *message)
{
    ssize_t sent;
    while ((sent = send(fd, message, sizeof(*message), MSG_NOSIGNAL)) < 0 && errno == EINTR)
        continue;
    return sent == (ssize_t)sizeof(*message);
}

bool instance_receive(int fd, struct instance_message *message)
{
    ssize_t got;
    while ((got = recv(fd, message, sizeof(*message), 0)) < 0 && errno == EINTR)
        continue;
    return got == (ssize_t)sizeof(*message);
}

union fds_message {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(JOB_DOORS_MAX * sizeof(int))];
};

bool instance_send_fds(int fd, const struct instance_message *message, const int *fds, int count)
{
    union fds_message control = {0};
    struct iovec part = {(void *)message, sizeof(*message)};
    struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        whole.msg_control = &control;
        whole.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)count * sizeof(int)),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), fds, (size_t)count * sizeof(int));
    }
    ssize_t sent;
    while ((sent = sendmsg(fd, &whole, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        continue;
    return sent == (ssize_t)sizeof(*message);
}

bool instance_receive_fds(int fd, struct instance_message *message, int fds[JOB_DOORS_MAX],
                          int *count)
{
    union fds_message control = {0};
    struct iovec part = {message, sizeof(*message)};
    struct msghdr whole = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof(control)};
    ssize_t got;
    while ((got = recvmsg(fd, &whole, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        continue;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&whole);
    *count = 0;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        *count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(header), (size_t)*count * sizeof(int));
    }
    return got == (ssize_t)sizeof(*message);
}

uint32_t instance_address(int index)
{
    uint32_t base = 10u << 24 | 77u << 16;
    return htonl(index < 0 ? base | 1 : base | 1u << 8 | (unsigned)(index + 1));
}

static int by_number(const void *left, const void *right)
{
    int a = *(const int *)left, b = *(const int *)right;
    return (a > b) - (a < b);
}

void instance_close_all_but(int *fds, int count)
{
    qsort(fds, (size_t)count, sizeof(fds[0]), by_number);
    unsigned from = 3;
    for (int i = 0; i < count; i++) {
        if (fds[i] < (int)from)
            continue;
        if ((unsigned)fds[i] > from)
            close_range(from, (unsigned)fds[i] - 1, 0);
        from = (unsigned)fds[i] + 1;
    }
    close_range(from, ~0U, 0);
}

/* ---- the hall ---- */

static int hall_descriptors(struct job_instances *all, int *fds)
{
    int count = 0;
    fds[count++] = all->hall_own_fd;
    for (int i = 0; i < all->plan->count; i++) {
        const struct instance *instance = &all->instances[i];
        fds[count++] = instance->first_fd;
        fds[count++] = instance->output_write_fd;
        for (int k = 0; k < instance->group.tree_count; k++)
            fds[count++] = instance->group.process_fds[k];
    }
    return count;
}

static bool network_open(int *netlink_fd, struct instance_message *failure)
{
    struct in_addr address = {instance_address(-1)};
    *netlink_fd = netlink_open();
    if (instance_step_failed(failure, *netlink_fd < 0, "opening a netlink socket"))
        return false;
    errno = netlink_set_up(*netlink_fd, "lo");
    if (instance_step_failed(failure, errno != 0, "setting the loopback interface up"))
        return false;
    errno = netlink_add_bridge(*netlink_fd, BRIDGE);
    if (instance_step_failed(failure, errno != 0, "making the job's bridge%s",
                             errno == EOPNOTSUPP ? " (the kernel lacks the module 'bridge')" : ""))
        return false;
    errno = netlink_add_address(*netlink_fd, BRIDGE, address, INSTANCE_ADDRESS_PREFIX);
    if (errno == 0)
        errno = netlink_set_up(*netlink_fd, BRIDGE);
    return !instance_step_failed(failure, errno != 0, "setting the job's bridge up");
}

/* Clones one instance's first process and gives it its interface. */
static bool add_instance(struct job_instances *all, int index, int netlink_fd,
                         struct instance_message *failure)
{
    int ready[2];
    char port[16];
    if (instance_step_failed(failure, pipe2(ready, O_CLOEXEC) != 0, "making a pipe"))
        return false;
    pid_t pid = (pid_t)syscall(SYS_clone, INSTANCE_NAMESPACES | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        close(ready[1]);
        instance_first_run(all, index, ready[0]);
    }
    close(ready[0]);
    bool made = !instance_step_failed(failure, pid < 0, "making an instance's namespaces");
    if (made) {
        snprintf(port, sizeof(port), "port%d", index + 1);
        errno = netlink_add_port(netlink_fd, port, BRIDGE, "eth0", pid, INSTANCE_MTU_BYTES);
        made = !instance_step_failed(failure, errno != 0, "making an instance's eth0%s",
                                     errno == EOPNOTSUPP ? " (the kernel lacks the module 'veth')"
                                                         : "");
    }
    if (made)
        made = !instance_step_failed(failure, write(ready[1], "", 1) != 1, "writing to a pipe");
    close(ready[1]);
    return made;
}

/* Opens the job's doors, by sockets that belong to this network whoever holds them. */
static bool open_doors(const struct job_plan *plan, int fds[JOB_DOORS_MAX],
                       struct instance_message *failure)
{
    int on = 1;
    for (int i = 0; i < plan->door_count; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)plan->doors[i].port),
                                      .sin_addr = {instance_address(-1)}};
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        bool open = fds[i] >= 0 &&
                    setsockopt(fds[i], SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                    bind(fds[i], (struct sockaddr *)&address, sizeof(address)) == 0 &&
                    listen(fds[i], SOMAXCONN) == 0;
        if (instance_step_failed(failure, !open, "opening port %d of the job's network",
                                 plan->doors[i].port))
            return false;
    }
    return true;
}

static bool build_hall(struct job_instances *all, int doors[JOB_DOORS_MAX],
                       struct instance_message *failure)
{
    int netlink_fd = -1;
    struct instance_message go;
    if (all->user_namespace && !instance_receive(all->hall_own_fd, &go))
        _exit(0);
    bool good = network_open(&netlink_fd, failure) && open_doors(all->plan, doors, failure);
    for (int i = 0; good && i < all->plan->count; i++)
        good = add_instance(all, i, netlink_fd, failure);
    if (netlink_fd >= 0)
        close(netlink_fd);
    return good;
}

/* Ends all that is in this PID namespace, and what stands for it on the machine. */
static void clear_hall(struct job_instances *all)
{
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        continue;
    for (int i = 0; i < all->plan->count; i++)
        limits_group_remove(&all->instances[i].group);
}

void instance_hall_run(struct job_instances *all)
{
    static int fds[FDS_MAX];
    int doors[JOB_DOORS_MAX];
    struct instance_message report = {.type = INSTANCE_READY}, ignored;
    sigset_t signals;
    sigfillset(&signals);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    setsid();
    prctl(PR_SET_NAME, "shoal-hall");
    instance_close_all_but(fds, hall_descriptors(all, fds));
    bool built = build_hall(all, doors, &report);
    if (!built)
        report.type = INSTANCE_FAILED;
    instance_send_fds(all->hall_own_fd, &report, doors, built ? all->plan->door_count : 0);
    for (int i = 0; built && i < all->plan->door_count; i++)
        close(doors[i]);
    for (int i = 0; i < all->plan->count; i++) {
        close(all->instances[i].first_fd);
        close(all->instances[i].output_write_fd);
    }
    /* Ended children are reaped in clear_hall. */
    while (instance_receive(all->hall_own_fd, &ignored))
        continue;
    clear_hall(all);
    _exit(0);
}

/* ---- an instance's first process: making it ready ---- */

static bool build_network(int index, int hall_pipe, struct instance_message *failure)
{
    struct in_addr address = {instance_address(index)};
    char byte;
    if (read(hall_pipe, &byte, 1) != 1)
        _exit(0); /* the hall says why */
    close(hall_pipe);
    int fd = netlink_open();
    if (instance_step_failed(failure, fd < 0, "opening a netlink socket"))
        return false;
    errno = netlink_set_up(fd, "lo");
    if (errno == 0)
        errno = netlink_add_address(fd, "eth0", address, INSTANCE_ADDRESS_PREFIX);
    if (errno == 0)
        errno = netlink_set_up(fd, "eth0");
    bool failed = instance_step_failed(failure, errno != 0, "setting eth0 up");
    close(fd);
    return !failed;
}

static void set_oom_priority(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t written = write(fd, OOM_PRIORITY, sizeof(OOM_PRIORITY) - 1);
    (void)written; /* as without */
    close(fd);
}

static bool connect_output(struct instance *instance, struct instance_message *failure)
{
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool good = null_fd >= 0 && dup2(null_fd, 0) == 0 && dup2(instance->output_write_fd, 1) == 1 &&
                dup2(instance->output_write_fd, 2) == 2;
    return !instance_step_failed(failure, !good, "connecting the program's output");
}

static bool make_ready(struct job_instances *all, int index, int hall_pipe,
                       struct instance_message *failure)
{
    struct instance *instance = &all->instances[index];
    char name[JOB_HOST_BYTES];
    job_host_name(index, name);
    set_oom_priority();
    limits_group_enter(&instance->group);
    return connect_output(instance, failure) &&
           !instance_step_failed(failure, sethostname(name, strlen(name)) != 0,
                                 "setting the host name") &&
           instance_root_build(all->plan, index, failure) &&
           build_network(index, hall_pipe, failure);
}

/* ---- an instance's first process: its life ---- */

struct first {
    const struct job_plan *plan;
    int index, control_fd;
    pid_t program;
};

static void program_fail(int report_fd, const char *step) __attribute__((noreturn));
static void program_fail(int report_fd, const char *step)
{
    struct instance_message failure = {.type = INSTANCE_FAILED};
    instance_step_failed(&failure, true, "%s", step);
    ssize_t written = write(report_fd, &failure, sizeof(failure));
    _exit(written == (ssize_t)sizeof(failure) ? 127 : 126);
}

static void become_program(const struct first *first, int report_fd) __attribute__((noreturn));
static void become_program(const struct first *first, int report_fd)
{
    const struct job_plan *plan = first->plan;
    const char *directory = plan->directory != NULL ? plan->directory : "/";
    char step[INSTANCE_STEP_BYTES];
    sigset_t none;
    sigemptyset(&none);
    setsid();
    if (chdir(directory) != 0) {
        snprintf(step, sizeof(step), "entering the working directory %s", directory);
        program_fail(report_fd, step);
    }
    if (!limits_apply(instance_limits(plan, first->index)))
        program_fail(report_fd, "setting limits");
    for (int i = 1; i < SIGRTMIN; i++)
        signal(i, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    environ = (char **)plan->instances[first->index].environment;
    execvp(plan->program[0], plan->program);
    snprintf(step, sizeof(step), "executing %s", plan->program[0]);
    program_fail(report_fd, step);
}

/* Starts the program; the answer goes to the maker. */
static bool start_program(struct first *first)
{
    int report[2];
    struct instance_message answer = {.type = INSTANCE_STARTED}, failure;
    if (pipe2(report, O_CLOEXEC) != 0 || (first->program = fork()) < 0) {
        instance_step_failed(&answer, true, "making a process");
        answer.type = INSTANCE_FAILED;
        instance_send(first->control_fd, &answer);
        return false;
    }
    if (first->program == 0)
        become_program(first, report[1]);
    close(report[1]);
    ssize_t got;
    while ((got = read(report[0], &failure, sizeof(failure))) < 0 && errno == EINTR)
        continue;
    close(report[0]);
    if (got == (ssize_t)sizeof(failure))
        answer = failure;
    return instance_send(first->control_fd, &answer) && answer.type == INSTANCE_STARTED;
}

/* Waits for whatever has ended; true when it was the program. */
static bool reap(const struct first *first, int *wait_status)
{
    int status;
    pid_t pid;
    bool found = false;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != first->program)
            continue;
        *wait_status = status;
        found = true;
    }
    return found;
}

/* One message of the maker's. False when the instance is to end. */
static bool obey(struct first *first)
{
    struct instance_message message;
    if (!instance_receive(first->control_fd, &message) || message.type == INSTANCE_KILL)
        return false;
    if (message.type == INSTANCE_GO)
        return start_program(first);
    if (message.type == INSTANCE_SIGNAL && first->program > 0)
        kill(first->program, message.value);
    return true;
}

static void live(struct first *first)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    int signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK), wait_status = 0;
    struct pollfd watched[2] = {{first->control_fd, POLLIN, 0}, {signal_fd, POLLIN, 0}};
    for (;;) {
        if (poll(watched, 2, -1) < 0 && errno != EINTR)
            return;
        struct signalfd_siginfo ignored;
        while (read(signal_fd, &ignored, sizeof(ignored)) > 0)
            continue;
        if (reap(first, &wait_status)) {
            struct instance_message exited = {.type = INSTANCE_EXITED, .value = wait_status};
            instance_send(first->control_fd, &exited);
            return;
        }
        if (watched[0].revents != 0 && !obey(first))
            return;
    }
}

/* Of descriptors only the socket to the maker and the way to the log stay. */
void instance_first_run(struct job_instances *all, int index, int hall_pipe)
{
    struct instance *instance = &all->instances[index];
    struct instance_message report = {.type = INSTANCE_READY};
    int fds[4 + LIMITS_TREES_MAX] = {instance->first_fd, instance->output_write_fd, hall_pipe};
    int count = 3;
    for (int i = 0; i < instance->group.tree_count; i++)
        fds[count++] = instance->group.process_fds[i];
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "shoal-instance");
    instance_close_all_but(fds, count);
    if (!make_ready(all, index, hall_pipe, &report))
        report.type = INSTANCE_FAILED;
    close(instance->output_write_fd);
    struct first first = {.plan = all->plan, .index = index, .control_fd = instance->first_fd};
    /* One that failed stays until the maker ends it, so that the hall finds whom it connects. */
    if (instance_send(first.control_fd, &report))
        live(&first);
    _exit(0);
}
