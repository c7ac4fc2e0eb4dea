/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cores.c: cores granted to this process: the affinity mask, cut by the cgroup quotas of its own
 * group and all above it (each of them binds).
 */
#include "base/cores.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/wait.h"

#define PATH_BYTES   1024
#define CPU_SETS_MAX (1 << 16)

/* The first `count` numbers of a file, "max" and what is no number read as -1; how many there were.
 */
static int read_numbers(const char *path, long long *numbers, int count)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    int found = 0;
    char word[64];
    while (found < count && fscanf(file, "%63s", word) == 1) {
        if (sscanf(word, "%lld", &numbers[found]) != 1)
            numbers[found] = -1;
        found++;
    }
    fclose(file);
    return found;
}

static int quota_cores(long long quota, long long period)
{
    if (quota <= 0 || period <= 0 || quota / period >= INT_MAX)
        return INT_MAX;
    int cores = (int)(quota / period);
    return cores < 1 ? 1 : cores;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* The quota of one folder of either version. */
static int folder_cores(const char *folder, int version)
{
    char path[PATH_BYTES + 32];
    long long numbers[2];
    if (version == 2) {
        snprintf(path, sizeof(path), "%s/cpu.max", folder);
        return read_numbers(path, numbers, 2) == 2 ? quota_cores(numbers[0], numbers[1]) : INT_MAX;
    }
    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
    if (read_numbers(path, &numbers[0], 1) != 1)
        return INT_MAX;
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
    return read_numbers(path, &numbers[1], 1) == 1 ? quota_cores(numbers[0], numbers[1]) : INT_MAX;
}

/* The group's folder and all above it, up to the mount. Folders that this process cannot see (a
 * container's mount shows less) count as without quota. */
static int tree_cores(const char *mount, const char *group, int version)
{
    char folder[PATH_BYTES];
    int mount_bytes = snprintf(folder, sizeof(folder), "%s", mount);
    snprintf(folder + mount_bytes, sizeof(folder) - (size_t)mount_bytes, "%s", group);
    int cores = INT_MAX;
    while (strlen(folder) >= (size_t)mount_bytes) {
        cores = smaller(cores, folder_cores(folder, version));
        char *slash = strrchr(folder, '/');
        if (slash == NULL)
            break;
        *slash = '\0';
    }
    return cores;
}

/* Whether a comma-separated list has the word. */
static int list_has(const char *list, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, bytes) == 0 && (at[bytes] == ',' || at[bytes] == '\0'))
            return 1;
    }
    return 0;
}

int base_cgroup_cores(const char *list, const char *mount)
{
    FILE *file = fopen(list, "re");
    if (file == NULL)
        return INT_MAX;
    char line[PATH_BYTES], hierarchy[PATH_BYTES];
    int cores = INT_MAX;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        /* number:controllers:path */
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL || strlen(mount) + 16 >= sizeof(hierarchy))
            continue;
        controllers++;
        *group++ = '\0';
        if (controllers[0] == '\0') {
            cores = smaller(cores, tree_cores(mount, group, 2));
        } else if (list_has(controllers, "cpu")) {
            snprintf(hierarchy, sizeof(hierarchy), "%.900s/cpu", mount);
            cores = smaller(cores, tree_cores(hierarchy, group, 1));
        }
    }
    fclose(file);
    return cores;
}

static int affinity_cores(void)
{
    /* The kernel refuses a mask that is smaller than its own. */
    for (int bits = 1024; bits <= CPU_SETS_MAX; bits *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)bits);
        if (set == NULL)
            return 1;
        size_t bytes = CPU_ALLOC_SIZE((size_t)bits);
        int result = sched_getaffinity(0, bytes, set);
        int cores = result == 0 ? CPU_COUNT_S(bytes, set) : 0;
        int cause = errno;
        CPU_FREE(set);
        if (result == 0)
            return cores;
        if (cause != EINVAL)
            return 1;
    }
    return 1;
}

int base_cores_granted(void)
{
    int cores = smaller(affinity_cores(), base_cgroup_cores("/proc/self/cgroup", "/sys/fs/cgroup"));
    return cores < 1 ? 1 : cores;
}
