/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual_hosts_process.c: the processes that hold virtual hosts, and the way into them.
 *
 *   this process ── head: first process of its PID namespace; holds the bridge
 *                     ├── vh0: first process of a PID namespace inside the head's; holds eth0
 *                     ├── vh1 …
 *
 * Holders sleep on a pipe whose other end this process holds. When it ends, also by SIGKILL, the
 * head reads the end of the file and ends, and the kernel kills every process in the head's PID
 * namespace, which includes all hosts and all they run. With their last process the namespaces go,
 * and with these the bridge, the veth pairs and the mounts. Nothing has a name that could stay.
 *
 * A program enters a host through a short-lived process that joins the holder's namespaces and
 * clones with CLONE_PARENT, because joining a PID namespace acts on children only; so the program
 * is the caller's child and waitpid() works as usual.
 */
#include "virtual_hosts_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

#define HOLD_NAMESPACES  (CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNS)
#define READY_TIMEOUT_MS 10000

/* What a holder tells its maker: ready, or which step failed. One datagram. */
struct holder_report {
    int host; /* or VHOSTS_HEAD */
    int error_number;
    char step[128];
};

const char *vhosts_name(int host, char buffer[16])
{
    if (host == VHOSTS_HEAD)
        return VHOSTS_HEAD_NAME;
    snprintf(buffer, 16, "vh%d", host);
    return buffer;
}

/* ---- inside the holders: only system calls, for the maker may have threads
 * ------------------------ */

/* One try of a holder's setup step: fills the report when it fails. */
static bool step_failed(struct holder_report *report, bool failed, const char *step)
{
    if (!failed)
        return false;
    report->error_number = errno;
    snprintf(report->step, sizeof(report->step), "%s", step);
    return true;
}

/* /etc/hosts with all names, as a bind mount of a file that lives in a detached tmpfs. */
static bool mount_hosts_file(struct holder_report *report, const char *text)
{
    if (step_failed(report, mount("vhosts", "/dev/shm", "tmpfs", 0, "size=1m") != 0,
                    "mounting a tmpfs on /dev/shm"))
        return false;
    int fd = open("/dev/shm/hosts", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    size_t bytes = strlen(text);
    bool failed = fd < 0 || write(fd, text, bytes) != (ssize_t)bytes;
    if (fd >= 0)
        close(fd);
    if (step_failed(report, failed, "writing the hosts file") ||
        step_failed(report, mount("/dev/shm/hosts", "/etc/hosts", NULL, MS_BIND, NULL) != 0,
                    "mounting /etc/hosts") ||
        step_failed(report, umount2("/dev/shm", MNT_DETACH) != 0, "detaching the hosts file"))
        return false;
    return true;
}

/* A new sysfs shows this host's interfaces; the machine's cgroups, mounted below the old one, stay.
 */
static bool mount_sys(struct holder_report *report)
{
    int cgroup =
        open_tree(AT_FDCWD, "/sys/fs/cgroup", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    bool failed = mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0;
    if (!failed && cgroup >= 0)
        failed = move_mount(cgroup, "", AT_FDCWD, "/sys/fs/cgroup", MOVE_MOUNT_F_EMPTY_PATH) != 0;
    step_failed(report, failed, "mounting /sys");
    if (cgroup >= 0)
        close(cgroup);
    return !failed;
}

/* Else what is mounted here would show on the machine. Only a mount point's root can be named: in a
 * chroot into any other folder there is no way. */
static bool make_mounts_private(struct holder_report *report)
{
    bool failed = mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0;
    return !step_failed(report, failed,
                        failed && errno == EINVAL
                            ? "making mounts private (a chroot must be into a mount point: "
                              "mount --bind FOLDER FOLDER before it)"
                            : "making mounts private");
}

static bool furnish_host(struct holder_report *report, const char *hosts_text)
{
    char buffer[16];
    const char *name = vhosts_name(report->host, buffer);
    return !step_failed(report, sethostname(name, strlen(name)) != 0, "setting the host name") &&
           make_mounts_private(report) && mount_hosts_file(report, hosts_text) &&
           mount_sys(report) &&
           !step_failed(report,
                        mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0,
                        "mounting /dev/shm") &&
           !step_failed(report,
                        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0,
                        "mounting /proc");
}

static void close_all_but(int first, int second)
{
    unsigned low = (unsigned)(first < second ? first : second);
    unsigned high = (unsigned)(first < second ? second : first);
    if (low > 0)
        close_range(0, low - 1, 0);
    if (high > low + 1)
        close_range(low + 1, high - 1, 0);
    close_range(high + 1, ~0U, 0);
}

/* The life of a holder after its setup. Children that end here are nobody's to wait for. */
static void sleep_until_maker_ends(int life_fd) __attribute__((noreturn));
static void sleep_until_maker_ends(int life_fd)
{
    char byte;
    while (read(life_fd, &byte, 1) < 0 && errno == EINTR)
        continue;
    _exit(0);
}

struct holder_plan {
    int count;
    int life_fd;
    int report_fd;
    const char *hosts_text;
};

static pid_t clone_holder(const struct holder_plan *plan, int host);

/* First process of a new set of namespaces. The head makes the hosts, as its children. */
static void run_holder(const struct holder_plan *plan, int host) __attribute__((noreturn));
static void run_holder(const struct holder_plan *plan, int host)
{
    struct holder_report report = {.host = host};
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setsid();
    close_all_but(plan->life_fd, plan->report_fd);
    furnish_host(&report, plan->hosts_text);
    for (int i = 0; host == VHOSTS_HEAD && report.error_number == 0 && i < plan->count; i++)
        step_failed(&report, clone_holder(plan, i) < 0, "making the hosts' namespaces");
    while (send(plan->report_fd, &report, sizeof(report), MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
    close(plan->report_fd);
    sleep_until_maker_ends(plan->life_fd);
}

static pid_t clone_holder(const struct holder_plan *plan, int host)
{
    pid_t pid = (pid_t)syscall(SYS_clone, HOLD_NAMESPACES | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        run_holder(plan, host);
    return pid;
}

/* ---- waiting for the holders
 * ---------------------------------------------------------------------- */

/* The holder's pid as the head sees it: NSpid lists our number, the head's, the host's own. */
static enum shoal_status find_head_view(pid_t pid, pid_t *out)
{
    char path[64], line[256];
    int ours, theirs = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", path);
    while (theirs == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "NSpid:", 6) == 0)
            sscanf(line + 6, "%d %d", &ours, &theirs);
    }
    fclose(file);
    if (theirs == 0)
        return base_error(SHOAL_ERR_SYSTEM, "%s has no NSpid line with three numbers", path);
    *out = (pid_t)theirs;
    return SHOAL_OK;
}

/* One holder's report, with its pid in our numbering, which the kernel adds to the message. */
static enum shoal_status receive_report(int fd, int64_t deadline_ns, struct holder_report *report,
                                        pid_t *pid)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec part = {.iov_base = report, .iov_len = sizeof(*report)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    int ready;
    while ((ready = poll(&poller, 1, base_left_ms(deadline_ns))) < 0 && errno == EINTR)
        continue;
    if (ready <= 0)
        return base_error(SHOAL_ERR_TIMEOUT, "the virtual hosts were not ready within %d s",
                          READY_TIMEOUT_MS / 1000);
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = got == (ssize_t)sizeof(*report) ? CMSG_FIRSTHDR(&message) : NULL;
    if (header == NULL || header->cmsg_type != SCM_CREDENTIALS)
        return base_error(SHOAL_ERR_SYSTEM, "the virtual hosts' first process ended at once");
    struct ucred credentials;
    memcpy(&credentials, CMSG_DATA(header), sizeof(credentials));
    *pid = credentials.pid;
    return SHOAL_OK;
}

static enum shoal_status collect_holders(struct vhosts *vhosts, int fd)
{
    int64_t deadline_ns = base_deadline_ns(READY_TIMEOUT_MS);
    for (int i = 0; i < vhosts->count + 1; i++) {
        struct holder_report report;
        char name[16];
        pid_t pid = 0;
        TRY(receive_report(fd, deadline_ns, &report, &pid));
        if (report.error_number != 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, report.error_number,
                                    "making virtual host %s: %s", vhosts_name(report.host, name),
                                    report.step);
        if (report.host == VHOSTS_HEAD)
            continue;
        vhosts->pids[report.host] = pid;
        TRY(find_head_view(pid, &vhosts->head_view[report.host]));
    }
    return SHOAL_OK;
}

/* Clones the head, which makes the others, and waits until all are ready. */
enum shoal_status vhosts_start_holders(struct vhosts *vhosts, const char *hosts_text)
{
    int life[2], report[2], on = 1;
    if (pipe2(life, O_CLOEXEC) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making a pipe");
    vhosts->life_fd = life[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) != 0) {
        close(life[0]);
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making a socket pair");
    }
    setsockopt(report[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    struct holder_plan plan = {.count = vhosts->count,
                               .life_fd = life[0],
                               .report_fd = report[1],
                               .hosts_text = hosts_text};
    vhosts->head_pid = clone_holder(&plan, VHOSTS_HEAD);
    enum shoal_status status =
        vhosts->head_pid < 0
            ? base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the head's namespaces")
            : SHOAL_OK;
    close(life[0]);
    close(report[1]);
    if (status == SHOAL_OK)
        status = collect_holders(vhosts, report[0]);
    close(report[0]);
    return status;
}

/* ---- starting programs in a host
 * ------------------------------------------------------------------ */

/* What the processes on the way into a host report: the program's pid, or a failed step. */
struct entry_report {
    pid_t pid;
    int error_number;
    char step[48];
};

struct entry {
    int holder_fd; /* pidfd of the holder */
    int report_fd;
    char *const *argv;
    char *const *envp;
    const int *stdio;
    const char *directory;
    sigset_t signals; /* the caller's mask */
};

static void entry_fail(const struct entry *entry, const char *step) __attribute__((noreturn));
static void entry_fail(const struct entry *entry, const char *step)
{
    struct entry_report report = {.error_number = errno};
    snprintf(report.step, sizeof(report.step), "%s", step);
    if (write(entry->report_fd, &report, sizeof(report)) < 0)
        _exit(126);
    _exit(127);
}

/* The program itself, before exec. */
static void become_program(const struct entry *entry) __attribute__((noreturn));
static void become_program(const struct entry *entry)
{
    int from[3] = {-1, -1, -1};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; entry->stdio != NULL && i < 3; i++) {
        if (entry->stdio[i] >= 0 && (from[i] = fcntl(entry->stdio[i], F_DUPFD_CLOEXEC, 3)) < 0)
            entry_fail(entry, "passing descriptors");
    }
    for (int i = 0; i < 3; i++) {
        if (from[i] >= 0 && dup2(from[i], i) < 0)
            entry_fail(entry, "passing descriptors");
    }
    if (chdir(entry->directory) != 0)
        entry_fail(entry, "entering the working directory");
    sigprocmask(SIG_SETMASK, &entry->signals, NULL);
    execvpe(entry->argv[0], entry->argv, entry->envp);
    entry_fail(entry, "executing it");
}

/* The process in between: joins, clones the program as its sibling, and ends. */
static void enter_host(const struct entry *entry) __attribute__((noreturn));
static void enter_host(const struct entry *entry)
{
    if (setns(entry->holder_fd, HOLD_NAMESPACES) != 0)
        entry_fail(entry, "joining the host's namespaces");
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        become_program(entry);
    if (pid < 0)
        entry_fail(entry, "making a process");
    struct entry_report report = {.pid = pid};
    _exit(write(entry->report_fd, &report, sizeof(report)) == sizeof(report) ? 0 : 126);
}

/* Reads reports until all writers are gone; a failure is kept over the pid. */
static struct entry_report collect_entry_reports(int fd)
{
    struct entry_report result = {.error_number = ESRCH, .step = "making a process"}, report;
    pid_t pid = 0;
    bool failed = false;
    for (;;) {
        ssize_t got = read(fd, &report, sizeof(report));
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof(report))
            break;
        if (report.pid != 0) {
            pid = report.pid;
        } else {
            result = report;
            failed = true;
        }
    }
    if (pid != 0 && !failed)
        result.error_number = 0;
    result.pid = pid;
    return result;
}

void vhosts_wait_for(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* Forks the process in between and hears how it went. Signals are blocked across the fork, so that
 * no handler of the caller's runs in the children. */
static enum shoal_status run_entry(struct entry *entry, int read_fd, const char *host, pid_t *out)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &entry->signals);
    pid_t between = fork();
    if (between == 0)
        enter_host(entry);
    int fork_error = errno;
    pthread_sigmask(SIG_SETMASK, &entry->signals, NULL);
    close(entry->report_fd);
    if (between < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, fork_error, "making a process");
    struct entry_report report = collect_entry_reports(read_fd);
    vhosts_wait_for(between);
    if (report.error_number == 0) {
        *out = report.pid;
        return SHOAL_OK;
    }
    if (report.pid != 0)
        vhosts_wait_for(report.pid);
    return base_error_errno(SHOAL_ERR_SYSTEM, report.error_number, "starting '%s' in host %s: %s",
                            entry->argv[0], host, report.step);
}

/* The kernel removes a PID namespace only when all its processes have been waited for, also those
 * whose parent is outside: so what was started is remembered, by descriptor because numbers come
 * again. */
static enum shoal_status remember_program(struct vhosts *vhosts, pid_t pid)
{
    int kept = 0;
    for (int i = 0; i < vhosts->program_count; i++) {
        siginfo_t info;
        int fd = vhosts->program_fds[i];
        if (waitid(P_PIDFD, (id_t)fd, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
            vhosts->program_fds[kept++] = fd;
        else
            close(fd);
    }
    vhosts->program_count = kept;
    if (kept == VHOSTS_PROGRAMS_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "%d programs run in the virtual hosts, the most possible",
                          VHOSTS_PROGRAMS_MAX);
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "watching process %d", (int)pid);
    vhosts->program_fds[vhosts->program_count++] = fd;
    return SHOAL_OK;
}

void vhosts_reap_programs(struct vhosts *vhosts)
{
    for (int i = 0; i < vhosts->program_count; i++) {
        siginfo_t info;
        while (waitid(P_PIDFD, (id_t)vhosts->program_fds[i], &info, WEXITED) < 0 && errno == EINTR)
            continue;
        close(vhosts->program_fds[i]);
    }
    vhosts->program_count = 0;
}

enum shoal_status vhosts_spawn(struct vhosts *vhosts, int host, char *const argv[],
                               char *const envp[], const int stdio[3], pid_t *out)
{
    char name[16], directory[PATH_MAX];
    int report[2];
    if (host < VHOSTS_HEAD || host >= vhosts->count)
        return base_error(SHOAL_ERR_ARGUMENT, "there is no virtual host %d of %d", host,
                          vhosts->count);
    if (getcwd(directory, sizeof(directory)) == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "finding the working directory");
    pid_t holder = host == VHOSTS_HEAD ? vhosts->head_pid : vhosts->pids[host];
    int holder_fd = (int)syscall(SYS_pidfd_open, holder, 0);
    if (holder_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "virtual host %s is gone",
                                vhosts_name(host, name));
    if (pipe2(report, O_CLOEXEC) != 0) {
        close(holder_fd);
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making a pipe");
    }
    struct entry entry = {.holder_fd = holder_fd,
                          .report_fd = report[1],
                          .argv = argv,
                          .envp = envp != NULL ? envp : environ,
                          .stdio = stdio,
                          .directory = directory};
    pid_t pid = 0;
    enum shoal_status status = run_entry(&entry, report[0], vhosts_name(host, name), &pid);
    close(report[0]);
    close(holder_fd);
    if (status == SHOAL_OK && vhosts->owned &&
        (status = remember_program(vhosts, pid)) != SHOAL_OK) {
        kill(pid, SIGKILL);
        vhosts_wait_for(pid);
    }
    if (status == SHOAL_OK)
        *out = pid;
    return status;
}
