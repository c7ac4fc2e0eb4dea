/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cores.c: cores granted to this process: the affinity mask, cut by the cgroup quotas of its own
 * group and all above it (each of them binds).
 */
#include "base/cores.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>

#include "base/cgroup.h"
#include "base/wait.h"

#define PATH_BYTES   1088 /* a folder's and its file's name */
#define CPU_SETS_MAX (1 << 16)

static long long quota_cores(long long quota, long long period)
{
    if (quota <= 0 || period <= 0 || quota / period >= INT_MAX)
        return LLONG_MAX;
    return quota < period ? 1 : quota / period;
}

/* The quota of one folder. */
static long long folder_cores(const char *folder, int version)
{
    char path[PATH_BYTES];
    long long numbers[2];
    if (version == 2) {
        snprintf(path, sizeof(path), "%s/cpu.max", folder);
        return base_cgroup_numbers(path, numbers, 2) == 2 ? quota_cores(numbers[0], numbers[1])
                                                          : LLONG_MAX;
    }
    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
    if (base_cgroup_numbers(path, &numbers[0], 1) != 1)
        return LLONG_MAX;
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
    return base_cgroup_numbers(path, &numbers[1], 1) == 1 ? quota_cores(numbers[0], numbers[1])
                                                          : LLONG_MAX;
}

int base_cgroup_cores(const char *list, const char *mount)
{
    long long cores = base_cgroup_least(list, mount, "cpu", folder_cores);
    return cores > INT_MAX ? INT_MAX : (int)cores;
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
    int granted = base_cgroup_cores(BASE_CGROUP_LIST, BASE_CGROUP_MOUNT);
    int cores = affinity_cores();
    cores = granted < cores ? granted : cores;
    return cores < 1 ? 1 : cores;
}
