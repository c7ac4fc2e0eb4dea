/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.c: see limits.h; cgroups(7), capabilities(7).
 *
 * The groups lie below the one that this process is in, so that limits which somebody set for the
 * service hold for its jobs. In version 2 the service moves itself to a leaf of its group first,
 * where that was delegated to it; otherwise there are no limits but those of the process.
 */
#include "job/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "job/instance.h"

#define CPU_PERIOD_US 100000
#define LINE_BYTES    512
#define LEAF          "/shoal-service" /* of version 2: where the service's own processes are */

/* ---- control groups ---- */

static bool write_value(const char *folder, const char *file, const char *format, uint64_t value)
    __attribute__((format(printf, 3, 0)));
static bool write_value(const char *folder, const char *file, const char *format, uint64_t value)
{
    char path[LIMITS_FOLDER_BYTES + 64], text[64];
    if (snprintf(path, sizeof(path), "%s/%s", folder, file) >= (int)sizeof(path))
        return false;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    int bytes = snprintf(text, sizeof(text), format, value);
    bool written = write(fd, text, (size_t)bytes) == bytes;
    close(fd);
    return written;
}

/* The folder of this process's own group: of the given controller in version 1, "" in version 2. */
static bool own_folder(const char *controller, char folder[LIMITS_FOLDER_BYTES])
{
    FILE *list = fopen(BASE_CGROUP_LIST, "re");
    char line[LINE_BYTES];
    bool found = false;
    while (list != NULL && !found && fgets(line, sizeof(line), list) != NULL) {
        char *names = strchr(line, ':'), *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (strcmp(names + 1, controller) != 0)
            continue;
        found = snprintf(folder, LIMITS_FOLDER_BYTES, BASE_CGROUP_MOUNT "%s%s%s",
                         *controller != '\0' ? "/" : "", controller,
                         strcmp(path, "/") == 0 ? "" : path) < LIMITS_FOLDER_BYTES;
    }
    if (list != NULL)
        fclose(list);
    return found && access(folder, W_OK) == 0;
}

/* Makes the group's folder in a tree and keeps it with the file by which processes enter. */
static const char *add_tree(struct limits_group *group, const char *parent, const char *name)
{
    char *folder = group->folders[group->tree_count], path[LIMITS_FOLDER_BYTES + 16];
    if (snprintf(folder, LIMITS_FOLDER_BYTES, "%s/shoal-%s", parent, name) >= LIMITS_FOLDER_BYTES)
        return NULL;
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return NULL;
    snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        rmdir(folder);
        return NULL;
    }
    group->process_fds[group->tree_count++] = fd;
    return folder;
}

static void create_memory_1(struct limits_group *group, const struct job_limits *limits,
                            const char *name)
{
    char parent[LIMITS_FOLDER_BYTES];
    const char *folder;
    if (limits->memory_bytes == 0 || !own_folder("memory", parent) ||
        (folder = add_tree(group, parent, name)) == NULL)
        return;
    group->has_memory =
        write_value(folder, "memory.limit_in_bytes", "%" PRIu64, limits->memory_bytes);
}

static void create_processors_1(struct limits_group *group, const struct job_limits *limits,
                                const char *name)
{
    char parent[LIMITS_FOLDER_BYTES];
    const char *folder;
    if (limits->core_thousands == 0 ||
        !(own_folder("cpu", parent) || own_folder("cpu,cpuacct", parent)) ||
        (folder = add_tree(group, parent, name)) == NULL)
        return;
    write_value(folder, "cpu.cfs_period_us", "%" PRIu64, CPU_PERIOD_US);
    write_value(folder, "cpu.cfs_quota_us", "%" PRIu64,
                limits->core_thousands * CPU_PERIOD_US / 1000);
}

static void create_processes_1(struct limits_group *group, const struct job_limits *limits,
                               const char *name)
{
    char parent[LIMITS_FOLDER_BYTES];
    const char *folder;
    if (limits->process_count > 0 && own_folder("pids", parent) &&
        (folder = add_tree(group, parent, name)) != NULL)
        write_value(folder, "pids.max", "%" PRIu64, limits->process_count);
}

static bool write_text(const char *folder, const char *file, const char *text)
{
    char path[LIMITS_FOLDER_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    int error_number = errno;
    close(fd);
    errno = error_number;
    return written;
}

/* In version 2 a group with processes of its own can't hand controllers down (EBUSY), the first one
 * excepted. */
static bool enable(const char *folder, const char *const *controllers)
{
    char text[64];
    for (; *controllers != NULL; controllers++) {
        snprintf(text, sizeof(text), "+%s", *controllers);
        if (!write_text(folder, "cgroup.subtree_control", text))
            return false;
    }
    return true;
}

bool limits_hand_down(const char *folder, const char *const *controllers)
{
    char leaf[LIMITS_FOLDER_BYTES + sizeof(LEAF)];
    if (enable(folder, controllers))
        return true;
    if (errno != EBUSY)
        return false;
    snprintf(leaf, sizeof(leaf), "%s" LEAF, folder);
    return (mkdir(leaf, 0755) == 0 || errno == EEXIST) && write_text(leaf, "cgroup.procs", "0") &&
           enable(folder, controllers);
}

static const char *const controllers_2[] = {"memory", "cpu", "pids", NULL};

/* The group of version 2 that jobs' groups are made in: this process's own, or the one above the
 * leaf that the service has moved to. */
static bool parent_folder_2(char folder[LIMITS_FOLDER_BYTES])
{
    if (!own_folder("", folder))
        return false;
    size_t length = strlen(folder), leaf_length = strlen(LEAF);
    if (length > leaf_length && strcmp(folder + length - leaf_length, LEAF) == 0)
        folder[length - leaf_length] = '\0';
    return true;
}

void job_limits_prepare(void)
{
    char folder[LIMITS_FOLDER_BYTES];
    if (parent_folder_2(folder))
        limits_hand_down(folder, controllers_2);
}

static bool create_2(struct limits_group *group, const struct job_limits *limits, const char *name)
{
    char parent[LIMITS_FOLDER_BYTES];
    if (!parent_folder_2(parent) || !enable(parent, controllers_2))
        return false;
    const char *folder = add_tree(group, parent, name);
    if (folder == NULL)
        return false;
    if (limits->memory_bytes > 0)
        group->has_memory = write_value(folder, "memory.max", "%" PRIu64, limits->memory_bytes);
    if (limits->core_thousands > 0)
        write_value(folder, "cpu.max", "%" PRIu64 " 100000",
                    limits->core_thousands * CPU_PERIOD_US / 1000);
    if (limits->process_count > 0)
        write_value(folder, "pids.max", "%" PRIu64, limits->process_count);
    return true;
}

void limits_group_create(struct limits_group *group, const struct job_limits *limits,
                         const char *name)
{
    *group = (struct limits_group){0};
    if (limits->memory_bytes == 0 && limits->core_thousands == 0 && limits->process_count == 0)
        return;
    if (create_2(group, limits, name))
        return;
    create_memory_1(group, limits, name);
    create_processors_1(group, limits, name);
    create_processes_1(group, limits, name);
}

void limits_group_enter(const struct limits_group *group)
{
    for (int i = 0; i < group->tree_count; i++) {
        ssize_t written = write(group->process_fds[i], "0", 1);
        (void)written; /* as without limits */
    }
}

bool limits_group_out_of_memory(const struct limits_group *group)
{
    static const char *const files[] = {"memory.events", "memory.oom_control"};
    char path[LIMITS_FOLDER_BYTES + 32], word[64];
    long long number, killed = 0;
    for (size_t i = 0; group->has_memory && i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", group->folders[0], files[i]);
        FILE *file = fopen(path, "re");
        while (file != NULL && fscanf(file, "%63s %lld", word, &number) == 2) {
            if (strcmp(word, "oom_kill") == 0)
                killed = number;
        }
        if (file != NULL)
            fclose(file);
    }
    return killed > 0;
}

void limits_group_remove(struct limits_group *group)
{
    for (int i = 0; i < group->tree_count; i++) {
        close(group->process_fds[i]);
        rmdir(group->folders[i]);
    }
    *group = (struct limits_group){0};
}

/* ---- of the process itself ---- */

/* What container engines leave to a root user, without the making of device files. */
static bool is_kept(int capability)
{
    static const int kept[] = {CAP_CHOWN,   CAP_DAC_OVERRIDE, CAP_FSETID,           CAP_FOWNER,
                               CAP_KILL,    CAP_SETGID,       CAP_SETUID,           CAP_SETPCAP,
                               CAP_SETFCAP, CAP_NET_RAW,      CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT};
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        if (kept[i] == capability)
            return true;
    }
    return false;
}

static bool drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};
    for (int i = 0; i <= 63; i++) {
        if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) < 0)
            break;
        if (!is_kept(i) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) != 0)
            return false;
        if (is_kept(i))
            sets[i / 32].permitted |= 1u << (i % 32);
    }
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        sets[i].effective = sets[i].permitted;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return syscall(SYS_capset, &header, sets) == 0;
}

bool limits_apply(const struct job_limits *limits)
{
    struct rlimit none = {0, 0}, files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return false;
    files.rlim_cur = files.rlim_max;
    if (limits->open_file_count > 0 && limits->open_file_count < files.rlim_max)
        files.rlim_cur = files.rlim_max = limits->open_file_count;
    return setrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_CORE, &none) == 0 &&
           drop_capabilities();
}
